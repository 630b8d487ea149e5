/* The record of a completion. */
#include "server/details.h"

#include "server/adapters.h"
#include "base/fmath.h"

#include <stdio.h>

void details_put_sampling(const struct sampler_params *p, struct jsonw *w) {
    for (size_t i = 0; i < n_sampler_fields; i++) {
        const struct sampler_field *f = &sampler_fields[i];
        char text[32];
        struct str number = str_n(text, (size_t)snprintf(text, sizeof text, "%.6g", sampler_field_get(p, f)));
        jsonw_put_raw(w, f->name, number);
        if (f->other && str_is(str_of(f->other), "repeat_penalty")) jsonw_put_raw(w, f->other, number);
    }
}

static void put_stops(const struct job_spec *job, struct jsonw *w) {
    jsonw_open(w, "stop", '[');
    for (size_t i = 0; i < job->n_stops; i++) jsonw_str(w, job->stops[i]);
    jsonw_end(w, ']');
}

void details_put_settings(const struct generation *g, const char *key, struct jsonw *w) {
    const struct params *p = &g->params;
    const struct job_spec *job = &p->job;
    jsonw_open(w, key, '{');
    jsonw_put_int(w, "seed", job->has_seed ? (int64_t)job->sampling.seed : -1);
    details_put_sampling(&job->sampling, w);
    jsonw_put_int(w, "adaptive_target", -1); /* neither of these is there */
    jsonw_put_num(w, "adaptive_decay", 0.9);
    put_stops(job, w);
    jsonw_put_int(w, "max_tokens", job->max_new);
    jsonw_put_int(w, "n_predict", job->max_new);
    jsonw_put_int(w, "n_keep", p->job.n_keep);
    jsonw_put_bool(w, "ignore_eos", job->ignore_eos);
    jsonw_put_bool(w, "stream", p->stream);
    jsonw_put_int(w, "n_probs", p->logprobs ? job->sampling.n_top : 0);
    jsonw_put_bool(w, "timings_per_token", p->timings_always);
    jsonw_put_int(w, "speculative.n_max", job->draft == DRAFT_NONE ? 0 : job->max_draft ? job->max_draft : DRAFT_MAX);
    jsonw_put_bool(w, "post_sampling_probs", job->sampling.top_is_drawn);
    jsonw_open(w, "lora", '[');
    for (int32_t i = 0; g->call->adapters && i < service_info(g->call->service)->n_adapters; i++) {
        jsonw_begin(w, '{');
        jsonw_put_int(w, "id", i);
        jsonw_put_num(w, "scale", (double)g->call->adapters[i]);
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
    jsonw_end(w, '}');
}

/* ---- log-probabilities -------------------------------------------------------------------------------------------------- */

static void put_token(struct generation *g, int32_t id, float logprob, struct jsonw *w) {
    struct str text = service_token_text(g->call->service, id);
    bool is_drawn = g->params.job.sampling.top_is_drawn;
    jsonw_put_int(w, "id", id);
    jsonw_put_str(w, "token", text);
    jsonw_open(w, "bytes", '[');
    for (size_t i = 0; i < text.n; i++) jsonw_int(w, (unsigned char)text.p[i]);
    jsonw_end(w, ']');
    jsonw_put_num(w, is_drawn ? "prob" : "logprob", is_drawn ? m_exp((double)logprob) : generate_logprob(logprob));
}

void details_put_probabilities(struct generation *g, const struct gen_choice *c, size_t first, size_t n, struct jsonw *w) {
    const struct sampler_top *top = c->tops;
    for (size_t i = 0; i < first; i++) top += c->tokens[i].n_top;
    jsonw_open(w, "completion_probabilities", '[');
    for (size_t i = first; i < first + n; i++) {
        jsonw_begin(w, '{');
        put_token(g, c->tokens[i].id, c->tokens[i].logprob, w);
        jsonw_open(w, g->params.job.sampling.top_is_drawn ? "top_probs" : "top_logprobs", '[');
        for (int32_t k = 0; k < c->tokens[i].n_top; k++, top++) {
            jsonw_begin(w, '{');
            put_token(g, top->token, top->logprob, w);
            jsonw_end(w, '}');
        }
        jsonw_end(w, ']');
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

static void put_prompt(const struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    const struct service_ids *ids = &g->prompts[c->i_prompt].ids;
    struct sb text = {0};
    struct err err;
    if (service_decode(g->call->service, ids->p, ids->n, &text, &err) == ERR_OK) jsonw_put_str(w, "prompt", sb_str(&text));
    sb_free(&text);
}

static void put_stop(const struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    bool is_word = c->finish == JOB_STOP && c->stopped_by >= 0;
    bool is_full = c->finish == JOB_LENGTH && c->usage.n_prompt + c->usage.n_new >= service_info(g->call->service)->context;
    jsonw_put_bool(w, "has_new_line", c->has_newline);
    jsonw_put_bool(w, "truncated", is_full || c->usage.n_forgotten > 0);
    jsonw_put_str(w, "stop_type", is_word ? STR("word") : c->finish == JOB_STOP ? STR("eos") : STR("limit"));
    jsonw_put_str(w, "stopping_word", is_word ? g->params.job.stops[c->stopped_by] : STR(""));
}

void details_put(struct generation *g, struct gen_choice *c, const char *key, struct jsonw *w) {
    struct sb content = {0};
    bool is_whole = !g->params.stream;
    generate_join(&c->pieces, OUTPUT_CONTENT, &content);
    if (key) jsonw_key(w, key);
    jsonw_begin(w, '{');
    jsonw_put_int(w, "index", c->index);
    jsonw_put_str(w, "content", is_whole ? sb_str(&content) : STR(""));
    jsonw_open(w, "tokens", '[');
    for (size_t i = 0; is_whole && g->params.keeps_tokens && i < c->n_tokens; i++) jsonw_int(w, c->tokens[i].id);
    jsonw_end(w, ']');
    jsonw_put_int(w, "id_slot", g->params.slot < 0 ? 0 : g->params.slot);
    jsonw_put_bool(w, "stop", true);
    jsonw_put_str(w, "model", adapters_model_name(g->call));
    jsonw_put_int(w, "tokens_predicted", c->usage.n_new);
    jsonw_put_int(w, "tokens_evaluated", c->usage.n_prompt);
    details_put_settings(g, "generation_settings", w);
    put_prompt(g, c, w);
    put_stop(g, c, w);
    jsonw_put_int(w, "tokens_cached", c->usage.n_prompt + c->usage.n_new - (c->usage.n_new > 0));
    generate_put_choice_timings(c, w);
    if (is_whole && g->params.logprobs) details_put_probabilities(g, c, 0, c->n_tokens, w);
    jsonw_end(w, '}');
    sb_free(&content);
}
