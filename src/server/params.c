/* The table of fields, and those that are no plain numbers: stop, logit_bias, stream_options. */
#include "server/params.h"

#include "server/bias.h"
#include "server/fields.h"
#include "server/token_fields.h"

#include <math.h>

enum kind { KIND_INT, KIND_INT64, KIND_BOOL, KIND_NOT /* a bool, kept as its opposite */ };

struct field {
    const char *name;
    enum kind kind;
    unsigned sets;
    size_t offset;
    double min, max;
    bool or_all; /* -1 stands for "as many as there are" */
};

#define AT(member) offsetof(struct params, member)
#define BOTH (PARAMS_CHAT | PARAMS_COMPLETION)
#define ANY (BOTH | PARAMS_LLAMA)

static const struct field fields[] = {
    {"seed", KIND_INT64, ANY, AT(job.sampling.seed), -9.3e18, 9.3e18, false},
    {"n_predict", KIND_INT, PARAMS_CHAT, AT(job.max_new), 1, INT32_MAX, true},
    {"n_predict", KIND_INT, PARAMS_COMPLETION, AT(job.max_new), 0, INT32_MAX, true},
    {"max_tokens", KIND_INT, PARAMS_CHAT, AT(job.max_new), 1, INT32_MAX, true},
    {"max_completion_tokens", KIND_INT, PARAMS_CHAT, AT(job.max_new), 1, INT32_MAX, true},
    {"max_tokens", KIND_INT, PARAMS_COMPLETION | PARAMS_LLAMA, AT(job.max_new), 0, INT32_MAX, true},
    {"max_completion_tokens", KIND_INT, PARAMS_LLAMA, AT(job.max_new), 0, INT32_MAX, true},
    {"n_predict", KIND_INT, PARAMS_LLAMA, AT(job.max_new), 0, INT32_MAX, true},
    {"thinking_token_budget", KIND_INT, PARAMS_CHAT, AT(job.max_reasoning), 1, INT32_MAX, true},
    {"thinking_budget_tokens", KIND_INT, PARAMS_CHAT, AT(job.max_reasoning), 1, INT32_MAX, true},
    {"reasoning_budget_tokens", KIND_INT, PARAMS_CHAT, AT(job.max_reasoning), 1, INT32_MAX, true},
    {"t_max_predict_ms", KIND_INT64, ANY, AT(max_new_ms), 0, 9e15, true},
    {"n", KIND_INT, ANY, AT(n), 1, PARAMS_CHOICES_MAX, false},
    {"n_cmpl", KIND_INT, ANY, AT(n), 1, PARAMS_CHOICES_MAX, false},
    {"logprobs", KIND_BOOL, PARAMS_CHAT, AT(logprobs), 0, 0, false},
    {"top_logprobs", KIND_INT, PARAMS_CHAT, AT(job.sampling.n_top), 0, SAMPLER_TOP_MAX, false},
    {"logprobs", KIND_INT, PARAMS_COMPLETION | PARAMS_LLAMA, AT(job.sampling.n_top), 0, SAMPLER_TOP_MAX, false},
    {"n_probs", KIND_INT, PARAMS_LLAMA, AT(job.sampling.n_top), 0, SAMPLER_TOP_MAX, false},
    {"post_sampling_probs", KIND_BOOL, PARAMS_LLAMA, AT(job.sampling.top_is_drawn), 0, 0, false},
    {"echo", KIND_BOOL, PARAMS_COMPLETION, AT(echo), 0, 0, false},
    {"stream", KIND_BOOL, ANY, AT(stream), 0, 0, false},
    {"ignore_eos", KIND_BOOL, ANY, AT(job.ignore_eos), 0, 0, false},
    {"min_tokens", KIND_INT, ANY, AT(job.min_new), 0, INT32_MAX, false},
    {"include_stop_str_in_output", KIND_BOOL, ANY, AT(job.keeps_stop), 0, 0, false},
    {"cache_prompt", KIND_NOT, ANY, AT(job.is_fresh), 0, 0, false},
    {"return_progress", KIND_BOOL, ANY, AT(job.wants_progress), 0, 0, false},
    {"return_tokens", KIND_BOOL, PARAMS_LLAMA, AT(keeps_tokens), 0, 0, false},
    {"timings_per_token", KIND_BOOL, ANY, AT(timings_always), 0, 0, false},
    {"verbose", KIND_BOOL, ANY, AT(verbose), 0, 0, false},
    {"n_keep", KIND_INT, ANY, AT(job.n_keep), 0, INT32_MAX, true},
    {"id_slot", KIND_INT, PARAMS_LLAMA, AT(slot), 0, INT32_MAX, true},
    {"speculative.n_max", KIND_INT, ANY, AT(job.max_draft), 0, INT32_MAX, false},
};

/* A field's value; NULL where it is absent or null, which means the same everywhere. */
static yyjson_val *given(yyjson_val *body, const char *name) {
    yyjson_val *val = json_get(body, name);
    return yyjson_is_null(val) ? NULL : val;
}

static int read_field(const struct field *f, yyjson_val *val, struct params *p, struct api_error *e) {
    char *at = (char *)p + f->offset;
    if (f->kind == KIND_BOOL || f->kind == KIND_NOT) {
        if (!yyjson_is_bool(val)) return api_fail(e, 400, NULL, f->name, "%s must be true or false", f->name);
        *(bool *)at = yyjson_get_bool(val) != (f->kind == KIND_NOT);
        return 0;
    }
    int64_t whole;
    if (!json_val_int(val, &whole)) return api_fail(e, 400, NULL, f->name, "%s must be a whole number of 64 bits", f->name);
    bool is_all = f->or_all && whole == -1;
    if (!is_all && ((double)whole < f->min || (double)whole > f->max))
        return api_fail(e, 400, NULL, f->name, "%s must lie between %.10g and %.10g%s", f->name, f->min, f->max,
                        f->or_all ? ", or be -1 for no limit" : "");
    if (f->kind == KIND_INT64) *(int64_t *)at = whole;
    else *(int32_t *)at = (int32_t)whole;
    return 0;
}

/* Sampling fields whose range in requests is another than the sampler's own: OpenAI's, or with a value that means "all". */
static const struct {
    const char *name;
    double min, max;
} ranges[] = {
    {"temperature", 0, 2},
    {"top_p", 0, 1},
    {"typical_p", 0, 1},
    {"top_k", -1, INT32_MAX},
    {"repetition_penalty", 0.01, 10},
    {"frequency_penalty", -2, 2},
    {"presence_penalty", -2, 2},
};

static int read_number(const struct sampler_field *f, const char *name, yyjson_val *val, enum param_sets set, struct params *p,
                       struct api_error *e) {
    double min = f->min, max = f->max, number = yyjson_get_num(val);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (strcmp(ranges[i].name, f->name) == 0) {
            min = ranges[i].min < f->min || set != PARAMS_LLAMA ? ranges[i].min : f->min;
            max = set == PARAMS_LLAMA ? f->max : ranges[i].max;
        }
    if (!yyjson_is_num(val) || !isfinite(number) || (f->is_int && number != floor(number)))
        return api_fail(e, 400, NULL, name, "%s must be a %snumber", name, f->is_int ? "whole " : "");
    if (number < min || number > max) return api_fail(e, 400, NULL, name, "%s must lie between %.10g and %.10g", name, min, max);
    if (strcmp(f->name, "temperature") == 0 && number < 1e-4) number = 0;
    if (number < f->min) number = f->is_int ? f->min : 1e-6; /* top_k -1 is all, top_p 0 the best alone */
    sampler_field_set(&p->job.sampling, f, number);
    return 0;
}

static int read_sampling(yyjson_val *body, enum param_sets set, struct params *p, struct api_error *e) {
    for (size_t i = 0; i < n_sampler_fields; i++) {
        const struct sampler_field *f = &sampler_fields[i];
        const char *name = f->other && given(body, f->other) && !given(body, f->name) ? f->other : f->name;
        yyjson_val *val = given(body, name);
        if (val && read_number(f, name, val, set, p, e)) return -1;
    }
    return 0;
}

static int read_fields(yyjson_val *body, enum param_sets set, struct params *p, struct api_error *e) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        yyjson_val *val = fields[i].sets & set ? given(body, fields[i].name) : NULL;
        if (!val) continue;
        if (read_field(&fields[i], val, p, e)) return -1;
        if (fields[i].offset == AT(job.sampling.seed)) p->job.has_seed = set != PARAMS_LLAMA || (int64_t)p->job.sampling.seed != -1;
    }
    return 0;
}

static int add_stop(struct params *p, struct str *stops, yyjson_val *val, struct api_error *e) {
    struct str s = json_val_str(val);
    if (!s.p || s.n == 0) return api_fail(e, 400, NULL, "stop", "stop must be a string or a list of strings, none of them empty");
    if (p->job.n_stops == PARAMS_STOPS_MAX) return api_fail(e, 400, NULL, "stop", "stop takes at most %d strings", PARAMS_STOPS_MAX);
    if (s.n > PARAMS_STOP_BYTES_MAX) return api_fail(e, 400, NULL, "stop", "stop takes strings of at most %d bytes", PARAMS_STOP_BYTES_MAX);
    stops[p->job.n_stops++] = s;
    return 0;
}

static int read_stop(struct arena *a, yyjson_val *body, struct params *p, struct api_error *e) {
    yyjson_val *stop = given(body, "stop"), *item;
    size_t i, n;
    if (!stop || (yyjson_is_str(stop) && yyjson_get_len(stop) == 0)) return 0;
    struct str *stops = arena_new(a, struct str, PARAMS_STOPS_MAX);
    p->job.stops = stops;
    if (!yyjson_is_arr(stop)) return add_stop(p, stops, stop, e);
    yyjson_arr_foreach(stop, i, n, item) if (add_stop(p, stops, item, e)) return -1;
    return 0;
}

static int read_breakers(struct arena *a, yyjson_val *body, struct params *p, struct api_error *e) {
    yyjson_val *list = given(body, "dry_sequence_breakers"), *item;
    size_t i, n;
    if (!list) return 0;
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) > PARAMS_BREAKERS_MAX)
        return api_fail(e, 400, NULL, "dry_sequence_breakers", "dry_sequence_breakers must be a list of at most %d strings",
                        PARAMS_BREAKERS_MAX);
    struct str *breakers = arena_new(a, struct str, yyjson_arr_size(list) + 1);
    p->job.sampling.breakers = breakers;
    yyjson_arr_foreach(list, i, n, item) {
        struct str s = json_val_str(item);
        if (!s.p || s.n == 0)
            return api_fail(e, 400, NULL, "dry_sequence_breakers", "dry_sequence_breakers must be a list of strings, none of them empty");
        breakers[p->job.sampling.n_breakers++] = s;
    }
    return 0;
}

static int read_option(yyjson_val *options, const char *name, bool *out, struct api_error *e) {
    yyjson_val *val = given(options, name);
    if (val && !yyjson_is_bool(val)) return api_fail(e, 400, NULL, "stream_options", "stream_options.%s must be true or false", name);
    *out = yyjson_get_bool(val);
    return 0;
}

/* A whole answer has its usage in any case, so that without a stream nothing is left to choose. */
static int read_stream_options(yyjson_val *body, struct params *p, struct api_error *e) {
    yyjson_val *options = given(body, "stream_options");
    if (!options) return 0;
    if (!yyjson_is_obj(options)) return api_fail(e, 400, NULL, "stream_options", "stream_options must be an object");
    return read_option(options, "include_usage", &p->include_usage, e) ||
           read_option(options, "continuous_usage_stats", &p->usage_always, e);
}

/* Fields whose values are supported in part. */
static int refuse_values(yyjson_val *body, const struct params *p, struct api_error *e) {
    yyjson_val *best = given(body, "best_of");
    int64_t n_best;
    if (best && (!json_val_int(best, &n_best) || n_best != p->n))
        return api_fail(e, 400, "unsupported_value", "best_of", "best_of must be equal to n");
    return 0;
}

/* Drafts: a limit above ours is no limit, and 0 turns them off, as does the type "none". Other types are the server's choice. */
static int read_drafts(yyjson_val *body, struct params *p, struct api_error *e) {
    static const char name[] = "speculative.type";
    yyjson_val *type = given(body, name);
    struct str text = json_val_str(type);
    if (type && !str_is(text, "none"))
        return api_fail(e, 400, "unsupported_value", name, "%s may be \"none\"; which drafts there are, the server's --draft says", name);
    if (type || (given(body, "speculative.n_max") && p->job.max_draft == 0)) p->job.draft = DRAFT_NONE;
    if (p->job.max_draft > DRAFT_MAX) p->job.max_draft = DRAFT_MAX;
    return 0;
}

/* How many log-probabilities are wanted: each set says it in its own way. */
static int read_top(enum param_sets set, struct params *p, struct api_error *e) {
    int32_t *n_top = &p->job.sampling.n_top;
    if (set == PARAMS_CHAT) {
        if (*n_top > 0 && !p->logprobs) return api_fail(e, 400, NULL, "top_logprobs", "top_logprobs needs logprobs: true");
        *n_top = !p->logprobs ? -1 : *n_top < 0 ? 0 : *n_top;
        return 0;
    }
    if (set == PARAMS_LLAMA && *n_top == 0) *n_top = -1;
    p->logprobs = *n_top >= 0;
    return 0;
}

int params_read(struct arena *a, yyjson_val *body, enum param_sets set, struct params *p, struct api_error *e) {
    *p = (struct params){.job = {.sampling = p->job.sampling,
                                 .has_seed = p->job.has_seed,
                                 .max_new = p->job.max_new,
                                 .shifts = p->job.shifts,
                                 .wants_text = true},
                         .vocab = p->vocab,
                         .service = p->service,
                         .verbose = p->verbose,
                         .n = 1,
                         .slot = -1};
    if (set == PARAMS_COMPLETION && p->job.max_new < 0) p->job.max_new = 16;
    p->job.sampling.n_top = -1;
    if (fields_refuse(body, set, e)) return -1;
    if (read_sampling(body, set, p, e) || read_breakers(a, body, p, e)) return -1;
    if (read_fields(body, set, p, e) || read_stop(a, body, p, e) || read_stream_options(body, p, e)) return -1;
    if (bias_read(a, given(body, "logit_bias"), p, e) || read_top(set, p, e) || token_fields_read(a, body, p, e)) return -1;
    if (read_drafts(body, p, e)) return -1;
    if (p->echo && p->logprobs) p->job.rows = ROWS_SCORES;
    return refuse_values(body, p, e);
}
