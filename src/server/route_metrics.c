/* GET /metrics: figures in Prometheus' text form. */
#include "server/server_internal.h"

#include <stdio.h>

static void put_head(struct sb *out, const char *name, const char *kind, const char *help) {
    sb_fmt(out, "# HELP mlxcel_%s %s\n# TYPE mlxcel_%s %s\n", name, help, name, kind);
}

static void put_value(struct sb *out, const char *name, const char *kind, const char *help, double value) {
    put_head(out, name, kind, help);
    sb_fmt(out, "mlxcel_%s %.10g\n", name, value);
}

/* ---- of models ---------------------------------------------------------------------------------------------------------- */

/* The figures of one model. label: model="NAME" where there are several, else "". */
struct figures {
    const char *label;
    int32_t n_seqs;
    struct engine_stats stats;
};

#define STAT(member) offsetof(struct engine_stats, member)
enum width { W32, W64 };
static const struct {
    const char *name, *kind, *help;
    size_t offset;
    enum width width;
} rows[] = {
    {"queue_depth", "gauge", "Generations that wait.", STAT(n_waiting), W32},
    {"generations_running", "gauge", "Generations in the batch.", STAT(n_running), W32},
    {"batch_prefill_rows", "gauge", "Prompt rows of the last step.", STAT(rows_prefill), W32},
    {"batch_decode_rows", "gauge", "Decode rows of the last step.", STAT(rows_decode), W32},
    {"steps_total", "counter", "Steps of the engine.", STAT(n_steps), W64},
    {"preemptions_total", "counter", "Generations put back for lack of blocks.", STAT(n_preempted), W64},
    {"prompt_tokens_total", "counter", "Tokens of prompts.", STAT(n_prompt_tokens), W64},
    {"prompt_tokens_cached_total", "counter", "Tokens of prompts that were found in the cache.", STAT(n_cached_tokens), W64},
    {"completion_tokens_total", "counter", "Tokens generated.", STAT(n_new_tokens), W64},
    {"kv_blocks_total", "gauge", "Blocks of the cache.", STAT(blocks_total), W32},
    {"kv_blocks_used", "gauge", "Blocks held by generations.", STAT(blocks_used), W32},
    {"kv_blocks_cached", "gauge", "Blocks kept for prompts to come.", STAT(blocks_cached), W32},
    {"prefix_cache_hits_total", "counter", "Prompts that began with cached blocks.", STAT(n_prefix_hits), W64},
    {"prefix_cache_misses_total", "counter", "Prompts that did not.", STAT(n_prefix_misses), W64},
};

static double value_of(const struct engine_stats *s, size_t offset, enum width width) {
    const char *at = (const char *)s + offset;
    return width == W32 ? (double)*(const int32_t *)at : (double)*(const int64_t *)at;
}

/* {model="NAME",reason="stop"}: what applies of the two. */
static void put_labels(struct sb *out, const char *label, const char *more) {
    if (!label[0] && !more[0]) return;
    sb_fmt(out, "{%s%s%s}", label, label[0] && more[0] ? "," : "", more);
}

static void put_rows(struct sb *out, const struct figures *f, size_t n) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_head(out, rows[i].name, rows[i].kind, rows[i].help);
        for (size_t k = 0; k < n; k++) {
            sb_fmt(out, "mlxcel_%s", rows[i].name);
            put_labels(out, f[k].label, "");
            sb_fmt(out, " %.10g\n", value_of(&f[k].stats, rows[i].offset, rows[i].width));
        }
    }
    put_head(out, "slots_total", "gauge", "Generations that fit the batch.");
    for (size_t k = 0; k < n; k++) {
        sb_puts(out, "mlxcel_slots_total");
        put_labels(out, f[k].label, "");
        sb_fmt(out, " %d\n", (int)f[k].n_seqs);
    }
}

static void put_finished(struct sb *out, const struct figures *f, size_t n) {
    static const char *const names[N_JOB_FINISHES] = {NULL, "stop", "length", "cancelled", "deadline", "error"};
    put_head(out, "generations_total", "counter", "Generations that ended, by reason.");
    for (size_t k = 0; k < n; k++)
        for (int i = 1; i < N_JOB_FINISHES; i++) {
            char reason[40];
            snprintf(reason, sizeof reason, "reason=\"%s\"", names[i]);
            sb_puts(out, "mlxcel_generations_total");
            put_labels(out, f[k].label, reason);
            sb_fmt(out, " %lld\n", (long long)f[k].stats.n_finished[i]);
        }
}

static void put_bucket(struct sb *out, const char *name, const char *label, const char *bound, uint64_t n) {
    char le[40];
    snprintf(le, sizeof le, "le=\"%s\"", bound);
    sb_fmt(out, "mlxcel_%s_bucket", name);
    put_labels(out, label, le);
    sb_fmt(out, " %llu\n", (unsigned long long)n);
}

static void put_histogram(struct sb *out, const char *name, const char *label, const struct histogram *h) {
    uint64_t below = 0;
    for (int32_t i = 0; i < h->n_bounds; i++) {
        char bound[32];
        snprintf(bound, sizeof bound, "%g", h->bounds[i]);
        below += h->counts[i];
        put_bucket(out, name, label, bound, below);
    }
    put_bucket(out, name, label, "+Inf", h->n);
    sb_fmt(out, "mlxcel_%s_sum", name);
    put_labels(out, label, "");
    sb_fmt(out, " %.9g\nmlxcel_%s_count", h->sum, name);
    put_labels(out, label, "");
    sb_fmt(out, " %llu\n", (unsigned long long)h->n);
}

static void put_times(struct sb *out, const struct figures *f, size_t n) {
    put_head(out, "time_to_first_token_seconds", "histogram", "From the request to its first token.");
    for (size_t k = 0; k < n; k++) put_histogram(out, "time_to_first_token_seconds", f[k].label, &f[k].stats.first_token);
    put_head(out, "inter_token_seconds", "histogram", "Between the tokens of a generation.");
    for (size_t k = 0; k < n; k++) put_histogram(out, "inter_token_seconds", f[k].label, &f[k].stats.between_tokens);
}

/* Those that are loaded; the others' figures went with them. */
static struct figures *gather(struct call *c, size_t *out_n) {
    struct server *s = c->server;
    struct figures *f = arena_new(&c->arena, struct figures, s->options.n_models);
    for (size_t i = 0; i < s->options.n_models; i++) {
        struct served *m = &s->models[i];
        if (models_state(m) != SERVED_LOADED && !models_is_one(s)) continue;
        const char *label = models_is_one(s) ? "" : str_fmt(&c->arena, "model=\"%s\"", m->name.p).p;
        f[(*out_n)++] = (struct figures){label, service_info(m->service)->n_seqs, service_stats(m->service)};
    }
    return f;
}

/* ---- of the server ------------------------------------------------------------------------------------------------------ */

static void put_loads(struct sb *out, const struct server *s) {
    int64_t n_loads = 0, n_unloads = 0, n_failed = 0, n_loaded = 0;
    for (const struct served *m = s->models; m < s->models + s->options.n_models; m++) {
        n_loads += m->n_loads;
        n_unloads += m->n_unloads;
        n_failed += m->n_failed;
        n_loaded += models_state(m) == SERVED_LOADED;
    }
    put_value(out, "models_loaded", "gauge", "Models that are loaded.", (double)n_loaded);
    put_value(out, "model_loads_total", "counter", "Loads of models that began.", (double)n_loads);
    put_value(out, "model_load_failures_total", "counter", "Loads of models that failed.", (double)n_failed);
    put_value(out, "model_unloads_total", "counter", "Models that were unloaded.", (double)n_unloads);
}

static void put_http(struct sb *out, const struct server *s) {
    put_value(out, "http_requests_total", "counter", "Requests received.", (double)s->n_requests);
    put_value(out, "http_connections", "gauge", "Connections that are open.", http_server_n_conns(s->http));
    sb_puts(out, "# HELP mlxcel_http_answers_total Answers by class of status.\n# TYPE mlxcel_http_answers_total counter\n");
    for (int i = 2; i < 6; i++) sb_fmt(out, "mlxcel_http_answers_total{class=\"%dxx\"} %lld\n", i, (long long)s->n_answers[i]);
}

static void show_metrics(struct call *c) {
    struct sb out = {0};
    size_t n = 0;
    struct figures *f = gather(c, &n);
    put_rows(&out, f, n);
    put_finished(&out, f, n);
    put_http(&out, c->server);
    put_loads(&out, c->server);
    put_times(&out, f, n);
    call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", sb_str(&out));
    sb_free(&out);
}

const struct route routes_metrics[] = {{"GET", "/metrics", ROUTE_OF_ALL, NULL, show_metrics}, {0}};
