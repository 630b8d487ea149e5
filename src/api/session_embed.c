/* Texts to vectors: what a model's files say, and jobs that the calling thread runs. */
#include "api/session_internal.h"

static int find_prompt(const struct session *s, struct str name, struct str *out, struct err *err) {
    const struct embedder *e = &s->embedder;
    struct sb known = {0};
    *out = STR("");
    if (!name.p) {
        if (e->i_usual >= 0) *out = e->prompts[e->i_usual].text;
        return ERR_OK;
    }
    if (name.n == 0) return ERR_OK;
    for (int32_t i = 0; i < e->n_prompts; i++) {
        if (str_eq(e->prompts[i].name, name)) {
            *out = e->prompts[i].text;
            return ERR_OK;
        }
        sb_fmt(&known, "%s%.*s", i ? ", " : "", STR_ARG(e->prompts[i].name));
    }
    int code = err_set(err, ERR_EARG, "the model has no prompt \"%.*s\"; its prompts: %s", STR_ARG(name), known.n ? known.p : "none");
    sb_free(&known);
    return code;
}

/* The prompt's own tokens, without what closes a text. */
static int count_prompt(const struct session *s, struct str prompt, int32_t *out, struct err *err) {
    struct tok_ids ids = {0};
    int code = tok_encode(s->tok, prompt, TOK_ADD_SPECIAL | TOK_ADD_BOS, &ids, err);
    *out = (int32_t)ids.n;
    if (!code && ids.n && tok_is_special(s->tok, ids.p[ids.n - 1])) --*out;
    tok_ids_free(&ids);
    return code;
}

int session_embedding(const struct session *s, enum session_pooling wanted, struct str prompt, struct session_embedding *out,
                      struct err *err) {
    static const enum job_pooling kinds[] = {[SESSION_POOL_MEAN] = POOL_MEAN,
                                             [SESSION_POOL_LAST] = POOL_LAST,
                                             [SESSION_POOL_FIRST] = POOL_FIRST,
                                             [SESSION_POOL_MAX] = POOL_MAX,
                                             [SESSION_POOL_NONE] = POOL_NONE};
    const struct embedder *e = &s->embedder;
    bool is_auto = wanted == SESSION_POOL_AUTO;
    *out = (struct session_embedding){.width = engine_width(s->engine), .max_tokens = session_context(s)};
    if (is_auto && s->embedder_why.code) return err_set(err, ERR_EUNSUPPORTED, "%s", s->embedder_why.msg);
    out->pooling = is_auto ? e->pooling : kinds[wanted];
    if (is_auto && e->head.n) out->head = &e->head, out->width = e->head.width;
    if (is_auto && e->max_tokens && e->max_tokens < out->max_tokens) out->max_tokens = e->max_tokens;
    TRY(find_prompt(s, prompt, &out->prompt, err));
    return out->prompt.n && e->skips_prompt ? count_prompt(s, out->prompt, &out->n_skip, err) : ERR_OK;
}

struct batch_of_texts {
    struct job_spec *specs;
    struct tok_ids *ids;
    int32_t n;
};

int32_t session_cut(const struct session *s, int32_t *ids, int32_t n, int32_t most) {
    if (n <= most) return n;
    if (tok_is_special(s->tok, ids[n - 1])) ids[most - 1] = ids[n - 1];
    return most;
}

int session_encode_embedding(const struct session *s, const struct session_embedding *how, struct str text, struct tok_ids *out,
                             struct err *err) {
    struct sb whole = {0};
    sb_put(&whole, how->prompt);
    sb_put(&whole, text);
    int code = tok_encode(s->tok, sb_str(&whole), TOK_ADD_SPECIAL | TOK_ADD_BOS, out, err);
    sb_free(&whole);
    if (!code && out->n == 0) code = tok_encode(s->tok, STR(" "), TOK_ADD_SPECIAL | TOK_ADD_BOS, out, err);
    TRY(code);
    if (out->n <= (size_t)how->max_tokens) return ERR_OK;
    if (!how->cuts || out->n > INT32_MAX)
        return err_set(err, ERR_ELIMIT, "%zu tokens, and the model takes %d; --truncate, in the library `truncate`, cuts a text", out->n,
                       how->max_tokens);
    out->n = (size_t)session_cut(s, out->p, (int32_t)out->n, how->max_tokens);
    return ERR_OK;
}

struct job_spec session_embedding_job(const struct session_embedding *how, const int32_t *ids, int32_t n) {
    return (struct job_spec){
        .tokens = ids, .n_tokens = n, .rows = ROWS_HIDDEN, .pooling = how->pooling, .n_skip = how->n_skip, .head = how->head};
}

static int encode_all(const struct session *s, const struct session_embedding *how, const struct str *texts, struct batch_of_texts *b,
                      struct err *err) {
    for (int32_t i = 0; i < b->n; i++) {
        if (session_encode_embedding(s, how, texts[i], &b->ids[i], err)) return err_prefix(err, "text %d", i + 1);
        b->specs[i] = session_embedding_job(how, b->ids[i].p, (int32_t)b->ids[i].n);
    }
    return ERR_OK;
}

/* Turns the engine until all jobs have ended. */
static int turn_all(struct session *s, struct job **jobs, int32_t n, int32_t width, float *out, struct err *err) {
    bool idle;
    int code = ERR_OK;
    for (int32_t i = 0; i < n && !code; i++)
        for (struct job_events ev; !code;) {
            job_take(jobs[i], &ev);
            if (ev.finish == JOB_ERROR) code = err_set(err, ev.err.code, "%s", ev.err.msg);
            if (ev.vectors) memcpy(out + (int64_t)i * width, ev.vectors, (size_t)width * sizeof *out);
            if (ev.finish) break;
            code = engine_turn(s->engine, &idle, err);
        }
    return code;
}

int session_run_vectors(struct session *s, const struct job_spec *specs, int32_t n, int32_t width, float *out, struct err *err) {
    struct job **jobs = mem_alloc((size_t)n * sizeof(struct job *) + 1);
    int code = engine_submit(s->engine, specs, n, jobs, err);
    bool runs = code == ERR_OK;
    if (!code) code = turn_all(s, jobs, n, width, out, err);
    for (int32_t i = 0; i < n && runs; i++) job_release(jobs[i]);
    mem_free(jobs);
    return code;
}

int session_embed(struct session *s, const struct session_embedding *how, const struct str *texts, int32_t n, float *out, struct err *err) {
    struct arena a = {0};
    struct batch_of_texts b = {.n = n};
    b.specs = arena_new(&a, struct job_spec, n + 1);
    b.ids = arena_new(&a, struct tok_ids, n + 1);
    int code = encode_all(s, how, texts, &b, err);
    if (!code) code = session_run_vectors(s, b.specs, n, how->width, out, err);
    for (int32_t i = 0; i < n; i++) tok_ids_free(&b.ids[i]);
    arena_free(&a);
    return code;
}
