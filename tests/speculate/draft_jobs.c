/* Jobs that are run with and without drafts. */
#include "draft_jobs.h"

#include "base/hash.h"

int32_t draft_prompt_token(int32_t i_job, int32_t at, int32_t vocab) {
    int32_t k = at < 2 ? at : 2 + (at - 2) % 14; /* three times the same, so that there is something to find */
    return (int32_t)(hash_mix((uint64_t)i_job * 1000 + (uint64_t)k) % (uint64_t)(vocab < 1000 ? vocab : 1000));
}

static int submit(struct session *s, const struct draft_way *w, int32_t i, struct draft_answer *out, struct err *err) {
    int32_t prompt[DRAFT_PROMPT], vocab = s->model.spec.vocab;
    struct job *job;
    for (int32_t k = 0; k < DRAFT_PROMPT; k++) prompt[k] = draft_prompt_token(i, k, vocab);
    *out = (struct draft_answer){0};
    struct job_spec spec = {.tokens = prompt,
                            .n_tokens = DRAFT_PROMPT,
                            .max_new = DRAFT_NEW,
                            .sampling = sampler_defaults(),
                            .has_seed = true,
                            .ignore_eos = true,
                            .draft = w->draft,
                            .user = out};
    spec.sampling.temperature = w->temperature;
    spec.sampling.seed = (uint64_t)i + 11;
    return engine_submit(s->engine, &spec, 1, &job, err);
}

static void take(struct session *s) {
    struct job *j;
    while ((j = engine_next_ready(s->engine))) {
        struct draft_answer *a = job_user(j);
        struct job_events ev;
        job_take(j, &ev);
        for (size_t i = 0; i < ev.n_tokens; i++) a->tokens[a->n++] = ev.tokens[i].id;
        a->finish = ev.finish;
        a->usage = ev.usage;
        a->err = ev.err;
        if (ev.finish) job_release(j);
    }
}

int draft_run(struct session *s, const struct draft_way *w, struct draft_answer *out, struct err *err) {
    for (int32_t i = 0; i < w->n; i++) TRY(submit(s, w, w->first + i, &out[i], err));
    for (bool idle = false; !idle;) {
        TRY(engine_turn(s->engine, &idle, err));
        take(s);
    }
    for (int32_t i = 0; i < w->n; i++)
        if (out[i].finish == JOB_ERROR) return err_set(err, out[i].err.code, "%s", out[i].err.msg);
    return ERR_OK;
}

int draft_same(const struct draft_answer *got, const struct draft_answer *want, const struct draft_way *w, struct err *err) {
    for (int32_t i = 0; i < w->n; i++) {
        int32_t k = 0;
        while (k < DRAFT_NEW && got[i].tokens[k] == want[i].tokens[k]) k++;
        if (got[i].n != DRAFT_NEW || want[i].n != DRAFT_NEW || k < DRAFT_NEW)
            return err_set(err, ERR_EFORMAT, "%s drafts, %d at once, temperature %g: job %d has %d tokens, and token %d differs",
                           w->draft == DRAFT_NGRAM ? "ngram"
                           : w->draft == DRAFT_MTP ? "mtp"
                                                   : "a model's",
                           w->n, (double)w->temperature, w->first + i, got[i].n, k);
    }
    return ERR_OK;
}
