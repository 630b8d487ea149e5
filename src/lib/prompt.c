/* A prompt's cache in a file: jobs that copy it out of the engine or into it, which the caller waits for. */
#include "lib/lib_internal.h"

/* Runs the job to its end. path: where its saved cache goes; NULL: it has none. */
static int run(mlxcel_model *m, struct job_spec spec, const char *path, struct job_usage *out, struct err *err) {
    struct job_events events;
    TRY(lib_begin(err));
    struct mlxcel_job *job = lib_job_create(m, err);
    if (!job) return err->code;
    TRY(lib_jobs_submit(m, &spec, 1, &job, err));
    int code = lib_job_wait(job, &events, err);
    if (!code && path) code = service_write_prompt(&events, path, err);
    if (!code) *out = events.usage;
    mlxcel_job_free(job);
    return code;
}

static int save(mlxcel_model *m, const int32_t *tokens, size_t n, const char *path, size_t *out_n, struct err *err) {
    struct job_usage usage;
    TRY(lib_tokens_check(m, "mlxcel_prompt_save", tokens, n, 1, err));
    if (!path || !*path) return err_set(err, ERR_EARG, "mlxcel_prompt_save: the path is NULL or empty");
    struct service_prompt p = {.tokens = tokens, .n_tokens = (int32_t)n};
    TRY(run(m, service_prompt_job(&p, CACHE_SAVE), path, &usage, err));
    if (out_n) *out_n = (size_t)usage.n_prompt;
    return ERR_OK;
}

int32_t mlxcel_prompt_save(mlxcel_model *model, const int32_t *tokens, size_t n_tokens, const char *path, size_t *out_n,
                           mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, save(model, tokens, n_tokens, path, out_n, &err), &err);
}

static int copy_tokens(const struct service_prompt *p, int32_t **out, struct err *err) {
    void *copy = NULL;
    if (!out) return ERR_OK;
    TRY(lib_copy(p->tokens, (size_t)p->n_tokens * sizeof *p->tokens, &copy, err));
    *out = copy;
    return ERR_OK;
}

static int restore(mlxcel_model *m, const char *path, int32_t **out_tokens, size_t *out_n, struct err *err) {
    struct service_saved *file = NULL;
    struct job_usage usage;
    if (!m || !path) return err_set(err, ERR_EARG, "mlxcel_prompt_restore: the model or the path is NULL");
    TRY(lib_events_check("mlxcel_prompt_restore", err));
    if (service_read_prompt(m->service, path, &file, err)) return err_prefix(err, "%s", path);
    struct service_prompt p = service_saved_prompt(file);
    int code = run(m, service_restore_job(file), NULL, &usage, err);
    if (!code) code = copy_tokens(&p, out_tokens, err);
    if (!code && out_n) *out_n = (size_t)p.n_tokens;
    service_saved_free(file);
    return code;
}

int32_t mlxcel_prompt_restore(mlxcel_model *model, const char *path, int32_t **out_tokens, size_t *out_n, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, restore(model, path, out_tokens, out_n, &err), &err);
}
