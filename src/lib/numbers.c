/* Embeddings, logits and log-probabilities: jobs without an answer, which the caller waits for. */
#include "lib/lib_internal.h"

#include "base/fmath.h"

/* Runs jobs of one request to their ends. on_end gets the events of each, in their order. */
struct group {
    struct job_spec *specs;
    int32_t n;
    int (*on_end)(void *user, int32_t i, const struct job_events *events, struct err *err);
    void *user;
};

static int run(mlxcel_model *m, struct arena *a, const struct group *b, struct err *err) {
    struct mlxcel_job **jobs = arena_new(a, struct mlxcel_job *, b->n + 1);
    struct job_events events;
    int code = ERR_OK;
    TRY(lib_begin(err));
    for (int32_t i = 0; i < b->n; i++) {
        jobs[i] = lib_job_create(m, err);
        if (jobs[i]) continue;
        while (i > 0) lib_job_drop(jobs[--i]);
        return err->code;
    }
    TRY(lib_jobs_submit(m, b->specs, b->n, jobs, err));
    for (int32_t i = 0; i < b->n && !code; i++) {
        code = lib_job_wait(jobs[i], &events, err);
        if (!code) code = b->on_end(b->user, i, &events, err);
    }
    for (int32_t i = 0; i < b->n; i++) mlxcel_job_free(jobs[i]);
    return code;
}

/* ---- embeddings --------------------------------------------------------------------------------------------------------- */

void mlxcel_embed_options_init(mlxcel_embed_options *options, size_t struct_size) {
    mlxcel_embed_options full = {0};
    lib_options_write(options, struct_size, &full, sizeof full);
}

struct vectors {
    float *out;
    int32_t width;
};

static int keep_vector(void *user, int32_t i, const struct job_events *ev, struct err *err) {
    struct vectors *v = user;
    if (!ev->vectors) return err_set(err, ERR_EINTERNAL, "text %d has no vector", i + 1);
    memcpy(v->out + (int64_t)i * v->width, ev->vectors, (size_t)v->width * sizeof *v->out);
    return ERR_OK;
}

static int encode(const mlxcel_model *m, struct arena *a, const struct session_embedding *how, const char *text, size_t i,
                  struct job_spec *out, struct err *err) {
    struct service_ids ids = {0};
    if (!text) return err_set(err, ERR_EARG, "text %zu is NULL", i + 1);
    if (service_encode_embedding(m->service, a, how, str_of(text), &ids, err)) return err_prefix(err, "text %zu", i + 1);
    *out = session_embedding_job(how, ids.p, ids.n);
    return ERR_OK;
}

static int embed_all(mlxcel_model *m, struct arena *a, const struct session_embedding *how, const char *const *texts, size_t n, float **out,
                     struct err *err) {
    struct job_spec *specs = arena_new(a, struct job_spec, n + 1);
    size_t bytes;
    for (size_t i = 0; i < n; i++) TRY(encode(m, a, how, texts[i], i, &specs[i], err));
    if (size_mul(n * sizeof(float), (size_t)how->width, &bytes)) return err_set(err, ERR_EMEMORY, "no memory for %zu vectors", n);
    struct vectors v = {mem_try(bytes), how->width};
    if (!v.out) return err_set(err, ERR_EMEMORY, "no memory for %zu vectors", n);
    struct group b = {specs, (int32_t)n, keep_vector, &v};
    int code = n ? run(m, a, &b, err) : ERR_OK;
    if (code) mem_free(v.out);
    else *out = v.out;
    return code;
}

static int embed(mlxcel_model *m, const mlxcel_embed_options *given, const char *const *texts, size_t n, float **out, size_t *out_width,
                 struct err *err) {
    _Static_assert(MLXCEL_POOL_MEAN == (int)SESSION_POOL_MEAN && MLXCEL_POOL_MAX == (int)SESSION_POOL_MAX, "in the session's order");
    mlxcel_embed_options o;
    struct session_embedding how;
    struct arena a = {0};
    if (!m || !out || !out_width || (n && !texts)) return err_set(err, ERR_EARG, "mlxcel_embed: an argument is NULL");
    if (n > INT32_MAX / 64) return err_set(err, ERR_ELIMIT, "mlxcel_embed: %zu texts at once are too many", n);
    mlxcel_embed_options_init(&o, sizeof o);
    TRY(lib_events_check("mlxcel_embed", err));
    TRY(lib_options_read(&o, sizeof o, given, "mlxcel_embed_options", err));
    if (o.pooling < 0 || o.pooling > MLXCEL_POOL_MAX) return err_set(err, ERR_EARG, "pooling is %d, which is none", o.pooling);
    TRY(service_embedding(m->service, (enum session_pooling)o.pooling, str_of(o.prompt_name), &how, err));
    how.cuts = o.truncate != 0;
    int code = embed_all(m, &a, &how, texts, n, out, err);
    if (!code) *out_width = (size_t)how.width;
    arena_free(&a);
    return code;
}

int32_t mlxcel_embed(mlxcel_model *model, const mlxcel_embed_options *options, const char *const *texts, size_t n, float **out,
                     size_t *out_width, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, embed(model, options, texts, n, out, out_width, &err), &err);
}

/* ---- logits ------------------------------------------------------------------------------------------------------------- */

struct rows {
    float *out;
    int32_t first, vocab;
};

static void keep_rows(void *user, int32_t first, int32_t n_rows, const float *logits) {
    struct rows *r = user;
    int32_t skip = r->first > first ? r->first - first : 0;
    if (skip >= n_rows) return;
    memcpy(r->out + (int64_t)(first + skip - r->first) * r->vocab, logits + (int64_t)skip * r->vocab,
           (size_t)(n_rows - skip) * (size_t)r->vocab * sizeof *r->out);
}

static int nothing(void *user, int32_t i, const struct job_events *ev, struct err *err) {
    (void)user, (void)i, (void)ev, (void)err;
    return ERR_OK;
}

static int logits(mlxcel_model *m, const int32_t *tokens, size_t n, size_t first, float *out, size_t n_floats, struct err *err) {
    TRY(lib_tokens_check(m, "mlxcel_logits", tokens, n, 1, err));
    struct rows rows = {out, (int32_t)first, service_info(m->service)->vocab};
    if (first >= n || !out) return err_set(err, ERR_EARG, "mlxcel_logits: first is %zu of %zu tokens, or out is NULL", first, n);
    if (n_floats / (size_t)rows.vocab < n - first)
        return err_set(err, ERR_EARG, "mlxcel_logits: %zu positions need room for %zu numbers, and there is room for %zu", n - first,
                       (n - first) * (size_t)rows.vocab, n_floats);
    struct arena a = {0};
    struct job_spec spec = {.tokens = tokens, .n_tokens = (int32_t)n, .rows = ROWS_LOGITS, .on_rows = keep_rows, .rows_user = &rows};
    int code = run(m, &a, &(struct group){&spec, 1, nothing, NULL}, err);
    arena_free(&a);
    return code;
}

int32_t mlxcel_logits(mlxcel_model *model, const int32_t *tokens, size_t n_tokens, size_t first, float *out, size_t n_floats,
                      mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, logits(model, tokens, n_tokens, first, out, n_floats, &err), &err);
}

/* ---- log-probabilities -------------------------------------------------------------------------------------------------- */

static struct job_spec scores_of(const int32_t *tokens, size_t n) {
    struct job_spec spec = {.tokens = tokens, .n_tokens = (int32_t)n, .rows = ROWS_SCORES, .sampling = sampler_defaults()};
    spec.sampling.n_top = 0;
    return spec;
}

static int keep_scores(void *user, int32_t i, const struct job_events *ev, struct err *err) {
    float *out = user;
    (void)i, (void)err;
    for (size_t k = 0; k < ev->n_scores; k++) out[k] = ev->scores[k].logprob;
    return ERR_OK;
}

static int score(mlxcel_model *m, const int32_t *tokens, size_t n, float *out, struct err *err) {
    TRY(lib_tokens_check(m, "mlxcel_score", tokens, n, 2, err));
    if (!out) return err_set(err, ERR_EARG, "mlxcel_score: out is NULL");
    struct arena a = {0};
    struct job_spec spec = scores_of(tokens, n);
    int code = run(m, &a, &(struct group){&spec, 1, keep_scores, out}, err);
    arena_free(&a);
    return code;
}

int32_t mlxcel_score(mlxcel_model *model, const int32_t *tokens, size_t n_tokens, float *out, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, score(model, tokens, n_tokens, out, &err), &err);
}

struct surprise {
    double sum;
    size_t n;
};

static int add_scores(void *user, int32_t i, const struct job_events *ev, struct err *err) {
    struct surprise *s = user;
    (void)i, (void)err;
    for (size_t k = 0; k < ev->n_scores; k++) s->sum -= (double)ev->scores[k].logprob;
    s->n += ev->n_scores;
    return ERR_OK;
}

static int perplexity(mlxcel_model *m, const int32_t *tokens, size_t n, size_t chunk, double *out, struct err *err) {
    TRY(lib_tokens_check(m, "mlxcel_perplexity", tokens, n, 2, err));
    size_t most = (size_t)service_info(m->service)->context;
    if (chunk == 0) chunk = most;
    if (chunk < 2 || chunk > most || !out)
        return err_set(err, ERR_EARG, "mlxcel_perplexity: a chunk of %zu tokens does not fit the context of %zu, or out is NULL", chunk,
                       most);
    struct arena a = {0};
    struct surprise s = {0};
    size_t n_chunks = n / chunk + (n % chunk > 1);
    struct job_spec *specs = arena_new(&a, struct job_spec, n_chunks + 1);
    for (size_t i = 0; i < n_chunks; i++) specs[i] = scores_of(tokens + i * chunk, n - i * chunk < chunk ? n - i * chunk : chunk);
    int code = run(m, &a, &(struct group){specs, (int32_t)n_chunks, add_scores, &s}, err);
    if (!code) *out = m_exp(s.sum / (double)s.n);
    arena_free(&a);
    return code;
}

int32_t mlxcel_perplexity(mlxcel_model *model, const int32_t *tokens, size_t n_tokens, size_t chunk, double *out, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, perplexity(model, tokens, n_tokens, chunk, out, &err), &err);
}
