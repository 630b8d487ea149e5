/* GET /metrics: figures in Prometheus' text form, under our names and under those that dashboards of other servers read (docs/server.md has the table). */
#include "server/server_internal.h"

#include "os/os.h"

#include <stdio.h>

/* The figures of one model. */
struct figures {
    const char *label; /* model="NAME" where there are several, else "" */
    const char *named; /* model_name="NAME" */
    const char *lent;  /* running_lora_adapters="ONE,TWO" */
    int32_t n_seqs, n_adapters;
    struct engine_stats stats;
};

static double share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

/* ---- gauges and counters ------------------------------------------------------------------------------------------------ */

#define FIGURE(name, expression)                  \
    static double name(const struct figures *f) { \
        const struct engine_stats *s = &f->stats; \
        (void)s;                                  \
        return (double)(expression);              \
    }
FIGURE(waiting, s->n_waiting)
FIGURE(running, s->n_running)
FIGURE(places, f->n_seqs)
FIGURE(rows_prefill, s->rows_prefill)
FIGURE(rows_decode, s->rows_decode)
FIGURE(steps, s->n_steps)
FIGURE(jobs_in_steps, s->n_step_jobs)
FIGURE(busy, share((double)s->n_step_jobs, (double)s->n_steps))
FIGURE(preempted, s->n_preempted)
FIGURE(prompt_tokens, s->n_prompt_tokens)
FIGURE(cached_tokens, s->n_cached_tokens)
FIGURE(new_tokens, s->n_new_tokens)
FIGURE(drafted_tokens, s->n_drafted_tokens)
FIGURE(accepted_tokens, s->n_accepted_tokens)
FIGURE(prompt_seconds, s->reading.sum)
FIGURE(new_seconds, s->writing.sum)
FIGURE(prompt_rate, share(s->n_prompt.sum, s->reading.sum))
FIGURE(new_rate, share(s->n_answer.sum, s->writing.sum))
FIGURE(longest, s->n_longest)
FIGURE(blocks, s->blocks_total)
FIGURE(blocks_used, s->blocks_used)
FIGURE(blocks_cached, s->blocks_cached)
FIGURE(blocks_away, s->blocks_away)
FIGURE(returned_tokens, s->n_returned_tokens)
FIGURE(cache_usage, share(s->blocks_used, s->blocks_total))
FIGURE(prefix_hits, s->n_prefix_hits)
FIGURE(prefix_misses, s->n_prefix_misses)

enum { NAMES_MAX = 3 };

/* A figure, under one name or several. */
static const struct metric {
    const char *names[NAMES_MAX], *kind, *help;
    double (*value)(const struct figures *f);
} metrics[] = {
    {{"mlxcel_queue_depth", "vllm:num_requests_waiting", "llamacpp:requests_deferred"}, "gauge", "Generations that wait.", waiting},
    {{"mlxcel_generations_running", "vllm:num_requests_running", "llamacpp:requests_processing"},
     "gauge",
     "Generations in the batch.",
     running},
    {{"mlxcel_slots_total", NULL, NULL}, "gauge", "Generations that fit the batch.", places},
    {{"mlxcel_batch_prefill_rows", NULL, NULL}, "gauge", "Prompt rows of the last step.", rows_prefill},
    {{"mlxcel_batch_decode_rows", NULL, NULL}, "gauge", "Decode rows of the last step.", rows_decode},
    {{"mlxcel_steps_total", "llamacpp:n_decode_total", NULL}, "counter", "Steps of the engine.", steps},
    {{"mlxcel_step_generations_total", NULL, NULL}, "counter", "Generations of all steps together.", jobs_in_steps},
    {{"llamacpp:n_busy_slots_per_decode", NULL, NULL}, "gauge", "Generations of a step, on average.", busy},
    {{"mlxcel_preemptions_total", "vllm:num_preemptions_total", NULL}, "counter", "Generations put back for lack of blocks.", preempted},
    {{"mlxcel_prompt_tokens_total", "vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total"},
     "counter",
     "Tokens of prompts.",
     prompt_tokens},
    {{"vllm:prefix_cache_queries_total", NULL, NULL}, "counter", "Tokens of prompts that the cache was asked for.", prompt_tokens},
    {{"mlxcel_prompt_tokens_cached_total", "vllm:prefix_cache_hits_total", NULL},
     "counter",
     "Tokens of prompts that were found in the cache.",
     cached_tokens},
    {{"mlxcel_completion_tokens_total", "vllm:generation_tokens_total", "llamacpp:tokens_predicted_total"},
     "counter",
     "Tokens generated.",
     new_tokens},
    {{"mlxcel_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total", NULL},
     "counter",
     "Tokens that drafts proposed.",
     drafted_tokens},
    {{"mlxcel_draft_tokens_accepted_total", "vllm:spec_decode_num_accepted_tokens_total", NULL},
     "counter",
     "Of those, tokens that the model chose too.",
     accepted_tokens},
    {{"llamacpp:prompt_seconds_total", NULL, NULL},
     "counter",
     "Time from a generation's start to its first token, of all that are done.",
     prompt_seconds},
    {{"llamacpp:tokens_predicted_seconds_total", NULL, NULL},
     "counter",
     "Time from the first token to the last, of all that are done.",
     new_seconds},
    {{"llamacpp:prompt_tokens_seconds", NULL, NULL}, "gauge", "Tokens of prompts per second, on average.", prompt_rate},
    {{"llamacpp:predicted_tokens_seconds", NULL, NULL}, "gauge", "Tokens generated per second of a generation, on average.", new_rate},
    {{"llamacpp:n_tokens_max", NULL, NULL}, "counter", "Tokens of the longest generation, with its prompt.", longest},
    {{"mlxcel_kv_blocks_total", NULL, NULL}, "gauge", "Blocks of the cache.", blocks},
    {{"mlxcel_kv_blocks_used", NULL, NULL}, "gauge", "Blocks held by generations.", blocks_used},
    {{"mlxcel_kv_blocks_cached", NULL, NULL}, "gauge", "Blocks kept for prompts to come.", blocks_cached},
    {{"mlxcel_cache_ram_blocks", NULL, NULL}, "gauge", "Blocks kept for prompts to come in the host's memory.", blocks_away},
    {{"mlxcel_cache_ram_tokens_total", NULL, NULL}, "counter", "Tokens of prompts that came back from there.", returned_tokens},
    {{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", NULL},
     "gauge",
     "Share of the cache's blocks that generations hold: 1 is all.",
     cache_usage},
    {{"mlxcel_prefix_cache_hits_total", NULL, NULL}, "counter", "Prompts that began with cached blocks.", prefix_hits},
    {{"mlxcel_prefix_cache_misses_total", NULL, NULL}, "counter", "Prompts that did not.", prefix_misses},
};

static void put_head(struct sb *out, const char *name, const char *kind, const char *help) {
    sb_fmt(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void put_value(struct sb *out, const char *name, const char *kind, const char *help, double value) {
    put_head(out, name, kind, help);
    sb_fmt(out, "%s %.10g\n", name, value);
}

/* What a name wants to know of the model: vLLM's are always with it. */
static const char *label_for(const char *name, const struct figures *f) {
    return str_starts(str_of(name), STR("vllm:")) ? f->named : f->label;
}

/* {model="NAME",reason="stop"}: what applies of the two. */
static void put_labels(struct sb *out, const char *label, const char *more) {
    if (!label[0] && !more[0]) return;
    sb_fmt(out, "{%s%s%s}", label, label[0] && more[0] ? "," : "", more);
}

static void put_metric(struct sb *out, const struct metric *m, const char *name, const struct figures *f, size_t n) {
    put_head(out, name, m->kind, m->help);
    for (size_t k = 0; k < n; k++) {
        sb_puts(out, name);
        put_labels(out, label_for(name, &f[k]), "");
        sb_fmt(out, " %.10g\n", m->value(&f[k]));
    }
}

static void put_metrics(struct sb *out, const struct figures *f, size_t n) {
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        for (size_t k = 0; k < NAMES_MAX && metrics[i].names[k]; k++) put_metric(out, &metrics[i], metrics[i].names[k], f, n);
}

/* ---- how generations ended ---------------------------------------------------------------------------------------------- */

static void put_finished(struct sb *out, const struct figures *f, size_t n) {
    static const char *const names[N_JOB_FINISHES] = {NULL, "stop", "length", "cancelled", "deadline", "error"};
    put_head(out, "mlxcel_generations_total", "counter", "Generations that ended, by reason.");
    for (size_t k = 0; k < n; k++)
        for (int i = 1; i < N_JOB_FINISHES; i++) {
            char reason[40];
            snprintf(reason, sizeof reason, "reason=\"%s\"", names[i]);
            sb_puts(out, "mlxcel_generations_total");
            put_labels(out, f[k].label, reason);
            sb_fmt(out, " %lld\n", (long long)f[k].stats.n_finished[i]);
        }
    put_head(out, "vllm:request_success_total", "counter", "Generations that came to their end, by reason.");
    for (size_t k = 0; k < n; k++)
        for (int i = JOB_STOP; i <= JOB_CANCELLED; i++)
            sb_fmt(out, "vllm:request_success_total{%s,finished_reason=\"%s\"} %lld\n", f[k].named, i == JOB_CANCELLED ? "abort" : names[i],
                   (long long)f[k].stats.n_finished[i]);
}

/* ---- histograms --------------------------------------------------------------------------------------------------------- */

#define HISTOGRAM(member) offsetof(struct engine_stats, member)
static const struct {
    const char *names[NAMES_MAX], *help;
    size_t offset;
} histograms[] = {
    {{"mlxcel_time_to_first_token_seconds", "vllm:time_to_first_token_seconds", NULL},
     "From the request to its first token.",
     HISTOGRAM(first_token)},
    {{"mlxcel_inter_token_seconds", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"},
     "Between the tokens of a generation.",
     HISTOGRAM(between_tokens)},
    {{"mlxcel_generation_seconds", "vllm:e2e_request_latency_seconds", NULL}, "From the request to its end.", HISTOGRAM(whole)},
    {{"mlxcel_queue_seconds", "vllm:request_queue_time_seconds", NULL}, "From the request until it is computed.", HISTOGRAM(waiting)},
    {{"mlxcel_prefill_seconds", "vllm:request_prefill_time_seconds", NULL}, "From there to the first token.", HISTOGRAM(reading)},
    {{"mlxcel_decode_seconds", "vllm:request_decode_time_seconds", NULL}, "From the first token to the last.", HISTOGRAM(writing)},
    {{"mlxcel_generation_prompt_tokens", "vllm:request_prompt_tokens", NULL}, "Tokens of a prompt.", HISTOGRAM(n_prompt)},
    {{"mlxcel_generation_tokens", "vllm:request_generation_tokens", NULL}, "Tokens of an answer.", HISTOGRAM(n_answer)},
};

static void put_bucket(struct sb *out, const char *name, const char *label, const char *bound, uint64_t n) {
    char le[40];
    snprintf(le, sizeof le, "le=\"%s\"", bound);
    sb_fmt(out, "%s_bucket", name);
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
    sb_fmt(out, "%s_sum", name);
    put_labels(out, label, "");
    sb_fmt(out, " %.9g\n%s_count", h->sum, name);
    put_labels(out, label, "");
    sb_fmt(out, " %llu\n", (unsigned long long)h->n);
}

static void put_histograms(struct sb *out, const struct figures *f, size_t n) {
    for (size_t i = 0; i < sizeof histograms / sizeof *histograms; i++)
        for (size_t k = 0; k < NAMES_MAX && histograms[i].names[k]; k++) {
            const char *name = histograms[i].names[k];
            put_head(out, name, "histogram", histograms[i].help);
            for (size_t m = 0; m < n; m++)
                put_histogram(out, name, label_for(name, &f[m]),
                              (const struct histogram *)((const char *)&f[m].stats + histograms[i].offset));
        }
}

/* ---- what schedulers of clusters ask ------------------------------------------------------------------------------------ */

static void put_facts(struct sb *out, const struct figures *f, size_t n) {
    put_head(out, "vllm:cache_config_info", "gauge", "The cache: tokens of a block, and blocks.");
    for (size_t k = 0; k < n; k++)
        sb_fmt(out, "vllm:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n", f[k].named, (int)f[k].stats.block_tokens,
               (int)f[k].stats.blocks_total);
    put_head(out, "vllm:lora_requests_info", "gauge", "Adapters that requests can name: all of them are in memory. The value is the time.");
    for (size_t k = 0; k < n; k++)
        sb_fmt(out, "vllm:lora_requests_info{%s,max_lora=\"%d\",%s,waiting_lora_adapters=\"\"} %.3f\n", f[k].named, (int)f[k].n_adapters,
               f[k].lent, (double)(os_wall_ns() / 1000000) / 1000);
}

/* model="NAME", with what a label's text must not hold as it is. */
static const char *label_of(struct call *c, const char *key, const char *name) {
    struct sb text = {0};
    sb_fmt(&text, "%s=\"", key);
    for (; *name; name++) {
        if (*name == '"' || *name == '\\') sb_putc(&text, '\\');
        sb_putc(&text, *name == '\n' ? ' ' : *name);
    }
    sb_putc(&text, '"');
    const char *copy = str_cstr(&c->arena, sb_str(&text));
    sb_free(&text);
    return copy;
}

/* Names with a comma between them, as the picker takes them apart. */
static const char *adapters_label(struct call *c, const struct service_info *info) {
    struct sb names = {0};
    for (int32_t i = 0; i < info->n_adapters; i++) sb_fmt(&names, "%s%s", i ? "," : "", info->adapters[i].name);
    const char *label = label_of(c, "running_lora_adapters", str_cstr(&c->arena, sb_str(&names)));
    sb_free(&names);
    return label;
}

/* Those that are loaded; the others' figures went with them. */
static struct figures *gather(struct call *c, size_t *out_n) {
    struct server *s = c->server;
    struct figures *f = arena_new(&c->arena, struct figures, models_count(s));
    for (struct served *m = models_first(s); m; m = models_next(m)) {
        if (models_state(m) != SERVED_LOADED && !models_is_one(s)) continue;
        const struct service_info *info = service_info(m->service);
        const char *name = info->name;
        f[(*out_n)++] = (struct figures){.label = models_is_one(s) ? "" : label_of(c, "model", name),
                                         .named = label_of(c, "model_name", name),
                                         .lent = adapters_label(c, info),
                                         .n_seqs = info->n_seqs,
                                         .n_adapters = info->n_adapters,
                                         .stats = service_stats(m->service)};
    }
    return f;
}

/* ---- of the server ------------------------------------------------------------------------------------------------------ */

static void put_loads(struct sb *out, const struct server *s) {
    int64_t n_loads = 0, n_unloads = 0, n_failed = 0, n_loaded = 0;
    for (const struct served *m = s->models; m; m = m->next) {
        n_loads += m->n_loads;
        n_unloads += m->n_unloads;
        n_failed += m->n_failed;
        n_loaded += models_state(m) == SERVED_LOADED;
    }
    put_value(out, "mlxcel_models_loaded", "gauge", "Models that are loaded.", (double)n_loaded);
    put_value(out, "mlxcel_model_loads_total", "counter", "Loads of models that began.", (double)n_loads);
    put_value(out, "mlxcel_model_load_failures_total", "counter", "Loads of models that failed.", (double)n_failed);
    put_value(out, "mlxcel_model_unloads_total", "counter", "Models that were unloaded.", (double)n_unloads);
}

static void put_http(struct sb *out, const struct server *s) {
    put_value(out, "mlxcel_http_requests_total", "counter", "Requests received.", (double)s->n_requests);
    put_value(out, "mlxcel_http_connections", "gauge", "Connections that are open.", http_server_n_conns(s->http));
    put_head(out, "mlxcel_http_answers_total", "counter", "Answers by class of status.");
    for (int i = 2; i < 6; i++) sb_fmt(out, "mlxcel_http_answers_total{class=\"%dxx\"} %lld\n", i, (long long)s->n_answers[i]);
}
static void show_metrics(struct call *c) {
    struct sb out = {0};
    size_t n = 0;
    struct figures *f = gather(c, &n);
    put_metrics(&out, f, n);
    put_finished(&out, f, n);
    put_facts(&out, f, n);
    put_http(&out, c->server);
    put_loads(&out, c->server);
    put_histograms(&out, f, n);
    call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", sb_str(&out));
    sb_free(&out);
}

const struct route routes_metrics[] = {{"GET", "/metrics", ROUTE_OF_ALL | ROUTE_WATCHED, NULL, show_metrics}, {0}};
