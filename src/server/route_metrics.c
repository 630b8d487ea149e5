/* GET /metrics: figures in Prometheus' text form. */
#include "server/server_internal.h"

static void put_value(struct sb *out, const char *name, const char *kind, const char *help, double value) {
    sb_fmt(out, "# HELP mlxcel_%s %s\n# TYPE mlxcel_%s %s\nmlxcel_%s %.10g\n", name, help, name, kind, name, value);
}

static void put_histogram(struct sb *out, const char *name, const char *help, const struct histogram *h) {
    uint64_t below = 0;
    sb_fmt(out, "# HELP mlxcel_%s %s\n# TYPE mlxcel_%s histogram\n", name, help, name);
    for (int32_t i = 0; i < h->n_bounds; i++) {
        below += h->counts[i];
        sb_fmt(out, "mlxcel_%s_bucket{le=\"%g\"} %llu\n", name, h->bounds[i], (unsigned long long)below);
    }
    sb_fmt(out, "mlxcel_%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)h->n);
    sb_fmt(out, "mlxcel_%s_sum %.9g\nmlxcel_%s_count %llu\n", name, h->sum, name, (unsigned long long)h->n);
}

static void put_finished(struct sb *out, const struct engine_stats *s) {
    static const char *const names[N_JOB_FINISHES] = {NULL, "stop", "length", "cancelled", "deadline", "error"};
    sb_puts(out, "# HELP mlxcel_generations_total Generations that ended, by reason.\n# TYPE mlxcel_generations_total counter\n");
    for (int i = 1; i < N_JOB_FINISHES; i++)
        sb_fmt(out, "mlxcel_generations_total{reason=\"%s\"} %lld\n", names[i], (long long)s->n_finished[i]);
}

static void put_http(struct sb *out, const struct server *s) {
    put_value(out, "http_requests_total", "counter", "Requests received.", (double)s->n_requests);
    put_value(out, "http_connections", "gauge", "Connections that are open.", http_server_n_conns(s->http));
    sb_puts(out, "# HELP mlxcel_http_answers_total Answers by class of status.\n# TYPE mlxcel_http_answers_total counter\n");
    for (int i = 2; i < 6; i++) sb_fmt(out, "mlxcel_http_answers_total{class=\"%dxx\"} %lld\n", i, (long long)s->n_answers[i]);
}

static void show_metrics(struct call *c) {
    struct engine_stats s = service_stats(c->service);
    struct sb out = {0};
    put_value(&out, "queue_depth", "gauge", "Generations that wait.", s.n_waiting);
    put_value(&out, "generations_running", "gauge", "Generations in the batch.", s.n_running);
    put_value(&out, "slots_total", "gauge", "Generations that fit the batch.", service_info(c->service)->n_seqs);
    put_value(&out, "batch_prefill_rows", "gauge", "Prompt rows of the last step.", s.rows_prefill);
    put_value(&out, "batch_decode_rows", "gauge", "Decode rows of the last step.", s.rows_decode);
    put_value(&out, "steps_total", "counter", "Steps of the engine.", (double)s.n_steps);
    put_value(&out, "preemptions_total", "counter", "Generations put back for lack of blocks.", (double)s.n_preempted);
    put_value(&out, "prompt_tokens_total", "counter", "Tokens of prompts.", (double)s.n_prompt_tokens);
    put_value(&out, "prompt_tokens_cached_total", "counter", "Tokens of prompts that were found in the cache.", (double)s.n_cached_tokens);
    put_value(&out, "completion_tokens_total", "counter", "Tokens generated.", (double)s.n_new_tokens);
    put_value(&out, "kv_blocks_total", "gauge", "Blocks of the cache.", s.blocks_total);
    put_value(&out, "kv_blocks_used", "gauge", "Blocks held by generations.", s.blocks_used);
    put_value(&out, "kv_blocks_cached", "gauge", "Blocks kept for prompts to come.", s.blocks_cached);
    put_value(&out, "prefix_cache_hits_total", "counter", "Prompts that began with cached blocks.", (double)s.n_prefix_hits);
    put_value(&out, "prefix_cache_misses_total", "counter", "Prompts that did not.", (double)s.n_prefix_misses);
    put_finished(&out, &s);
    put_http(&out, c->server);
    put_histogram(&out, "time_to_first_token_seconds", "From the request to its first token.", &s.first_token);
    put_histogram(&out, "inter_token_seconds", "Between the tokens of a generation.", &s.between_tokens);
    call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", sb_str(&out));
    sb_free(&out);
}

const struct route routes_metrics[] = {{"GET", "/metrics", 0, NULL, show_metrics}, {0}};
