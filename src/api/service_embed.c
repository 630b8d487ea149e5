/* Embeddings of a service: one job for all texts of a request; texts of all jobs share batches, one between two steps of the engine. */
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

static int pick_pooling(struct service_job *j, enum service_pooling wanted, struct err *err) {
    const struct session *s = j->service->session;
    if (wanted != SERVICE_POOL_AUTO) j->pooling = wanted == SERVICE_POOL_LAST ? EMBED_LAST : EMBED_MEAN;
    else if (s->pooling_why.code) return err_set(err, ERR_EUNSUPPORTED, "%s", s->pooling_why.msg);
    else j->pooling = s->pooling;
    return ERR_OK;
}

int service_embed(struct service *s, const struct service_embed_request *r, struct service_job **out, struct err *err) {
    if (service_state(s, NULL) != SERVICE_READY) return err_set(err, ERR_EBUSY, "the model is being loaded");
    struct service_job *j = mem_alloc(sizeof *j);
    j->service = s;
    j->user = r->user;
    j->sampling.n_top = -1;
    service_job_set_deadline(j, r->deadline_ms);
    tok_stream_init(&j->stream, s->session->tok, true);
    int code = pick_pooling(j, r->pooling, err);
    if (!code) code = copy_inputs(j, r, err);
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
    if (j->service->embed) embed_drop(j->service->embed, j);
    service_job_end(j, finish, finish == JOB_ERROR ? &j->embed_why : NULL);
}

static void on_embedded(void *user, const struct err *why) {
    struct service_job *j = user;
    j->n_embedded++;
    if (why) j->embed_why = *why;
}

static bool is_embedding(const struct service_job *j) {
    return j->inputs && !j->is_over && !j->want;
}

/* The oldest job with texts that nobody reads yet. */
static struct service_job *next_job(const struct service *s) {
    struct service_job *oldest = NULL;
    for (int32_t i = 0; i < s->n_active; i++) {
        struct service_job *j = s->active[i];
        if (is_embedding(j) && j->n_begun < j->n_inputs && (!oldest || j->submit_ns < oldest->submit_ns)) oldest = j;
    }
    return oldest;
}

static void add_texts(struct service *s) {
    struct service_job *j;
    struct err busy;
    while ((!s->embed || embed_has_room(s->embed)) && (j = next_job(s))) {
        const struct service_ids *in = &j->inputs[j->n_begun];
        struct embed_text text = {in->p, in->n, j->pooling, j->vectors + j->n_begun * (size_t)s->info.width, j};
        if (!s->embed) s->embed = embed_open(s->session->engine, on_embedded);
        if (embed_add(s->embed, &text, &busy)) return; /* a slot will be free again */
        j->n_begun++;
    }
}

/* The device's errors end all whose texts were in the batch; a text that finds no room even alone ends its job. */
static void blame(struct service *s, const struct err *why) {
    struct service_job *first = embed_first(s->embed);
    for (int32_t i = 0; i < s->n_active; i++) {
        struct service_job *j = s->active[i];
        if (is_embedding(j) && (j == first || (why->code != ERR_EBUSY && j->n_begun > j->n_embedded))) j->embed_why = *why;
    }
}

void service_embed_some(struct service *s) {
    struct err err;
    add_texts(s);
    int code = s->embed ? embed_step(s->embed, &err) : ERR_OK;
    /* busy: requests that generate hold what is missing, and will give it back; with none of them it will never come */
    if (code && (code != ERR_EBUSY || engine_stats(s->session->engine).n_running == 0)) blame(s, &err);
    for (int32_t i = 0; i < s->n_active; i++) {
        struct service_job *j = s->active[i];
        if (!is_embedding(j)) continue;
        if (j->embed_why.code) service_embed_stop(j, JOB_ERROR);
        else if (j->n_embedded == j->n_inputs) service_embed_stop(j, JOB_STOP);
    }
}
