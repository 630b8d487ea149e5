/* Embeddings of a service: one job for all texts of a request, a chunk of one of them between two steps of the engine. */
#include "api/service_internal.h"

static int copy_inputs(struct service_job *j, const struct service_embed_request *r, struct err *err) {
    const struct service_info *info = &j->service->info;
    int64_t n_tokens = 0;
    j->inputs = arena_new(&j->arena, struct service_ids, r->n_inputs);
    j->n_inputs = r->n_inputs;
    for (size_t i = 0; i < r->n_inputs; i++) {
        const struct service_ids *in = &r->inputs[i];
        if (in->n < 1) return err_set(err, ERR_EARG, "an input is empty");
        if (in->n > info->context)
            return err_set(err, ERR_ELIMIT, "an input has %d tokens, the model's context holds %d", in->n, info->context);
        for (int32_t k = 0; k < in->n; k++)
            if (in->p[k] < 0 || in->p[k] >= info->vocab)
                return err_set(err, ERR_EARG, "token %d is outside the vocabulary of %d", in->p[k], info->vocab);
        j->inputs[i] = (struct service_ids){arena_copy(&j->arena, in->p, (size_t)in->n * sizeof *in->p), in->n};
        n_tokens += in->n;
    }
    if (r->n_inputs < 1 || n_tokens > INT32_MAX) return err_set(err, ERR_EARG, "there are no inputs, or too many");
    j->usage.n_prompt = (int32_t)n_tokens;
    return ERR_OK;
}

int service_embed(struct service *s, const struct service_embed_request *r, struct service_job **out, struct err *err) {
    if (service_state(s, NULL) != SERVICE_READY) return err_set(err, ERR_EBUSY, "the model is being loaded");
    struct service_job *j = mem_alloc(sizeof *j);
    j->service = s;
    j->user = r->user;
    j->pooling = r->last ? EMBED_LAST : EMBED_MEAN;
    j->sampling.n_top = -1;
    service_job_set_deadline(j, r->deadline_ms);
    tok_stream_init(&j->stream, s->session->tok, true);
    int code = copy_inputs(j, r, err);
    if (!code) {
        j->vectors = mem_try(r->n_inputs * (size_t)s->info.width * sizeof *j->vectors);
        if (!j->vectors) code = err_set(err, ERR_EMEMORY, "no memory for %zu embeddings", r->n_inputs);
    }
    if (code) {
        service_job_destroy(j);
        return code;
    }
    return service_enqueue(s, j, out, err);
}

/* ---- on the engine's thread ------------------------------------------------------------------------------------------ */

void service_embed_stop(struct service_job *j, enum service_finish finish) {
    embed_end(j->embed);
    j->embed = NULL;
    service_job_end(j, finish, NULL);
}

static int advance(struct service_job *j, struct err *err) {
    struct service *s = j->service;
    const struct service_ids *in = &j->inputs[j->i_input];
    bool done;
    if (!j->embed) TRY(embed_begin(s->session->engine, in->p, in->n, j->pooling, &j->embed, err));
    TRY(embed_step(j->embed, j->vectors + j->i_input * (size_t)s->info.width, &done, err));
    if (!done) return ERR_OK;
    embed_end(j->embed);
    j->embed = NULL;
    if (++j->i_input == j->n_inputs) service_job_end(j, JOB_STOP, NULL);
    return ERR_OK;
}

void service_embed_some(struct service *s) {
    struct err err;
    struct service_job *j = NULL;
    for (int32_t i = 0; i < s->n_active && !(j && j->embed); i++) /* what has begun goes first: one holds blocks at a time */
        if (s->active[i]->inputs && !s->active[i]->is_over && !s->active[i]->want && (!j || s->active[i]->embed)) j = s->active[i];
    if (!j) return;
    int code = advance(j, &err);
    /* busy: requests that generate hold what is missing, and will give it back; with none of them it will never come */
    if (code == ERR_OK || (code == ERR_EBUSY && engine_stats(s->session->engine).n_running > 0)) return;
    embed_end(j->embed);
    j->embed = NULL;
    service_job_end(j, JOB_ERROR, &err);
}
