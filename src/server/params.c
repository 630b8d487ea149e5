/* The table of fields, and those that are no plain numbers: stop, logit_bias, stream_options, response_format, tools. */
#include "server/params.h"

#include <math.h>

enum kind { KIND_INT, KIND_INT64, KIND_BOOL };

/* null is taken where OpenAI's API takes it, as if the field were absent. */
struct field {
    const char *name;
    enum kind kind;
    unsigned sets;
    size_t offset;
    double min, max;
    bool nullable;
};

#define AT(member) offsetof(struct params, member)
#define BOTH (PARAMS_CHAT | PARAMS_COMPLETION)

static const struct field fields[] = {
    {"seed", KIND_INT64, BOTH, AT(job.sampling.seed), -9.3e18, 9.3e18, true},
    {"max_tokens", KIND_INT, PARAMS_CHAT, AT(job.max_new), 1, INT32_MAX, true},
    {"max_completion_tokens", KIND_INT, PARAMS_CHAT, AT(job.max_new), 1, INT32_MAX, true},
    {"max_tokens", KIND_INT, PARAMS_COMPLETION, AT(job.max_new), 0, INT32_MAX, true},
    {"n", KIND_INT, BOTH, AT(n), 1, PARAMS_CHOICES_MAX, true},
    {"logprobs", KIND_BOOL, PARAMS_CHAT, AT(logprobs), 0, 0, true},
    {"top_logprobs", KIND_INT, PARAMS_CHAT, AT(job.sampling.n_top), 0, SAMPLER_TOP_MAX, true},
    {"logprobs", KIND_INT, PARAMS_COMPLETION, AT(job.sampling.n_top), 0, SAMPLER_TOP_MAX, true},
    {"echo", KIND_BOOL, PARAMS_COMPLETION, AT(echo), 0, 0, true},
    {"stream", KIND_BOOL, BOTH, AT(stream), 0, 0, true},
    {"ignore_eos", KIND_BOOL, BOTH, AT(job.ignore_eos), 0, 0, false},
};

static int read_field(const struct field *f, yyjson_val *val, struct params *p, struct api_error *e) {
    char *at = (char *)p + f->offset;
    if (f->kind == KIND_BOOL) {
        if (!yyjson_is_bool(val)) return api_fail(e, 400, NULL, f->name, "%s must be true or false", f->name);
        *(bool *)at = yyjson_get_bool(val);
        return 0;
    }
    int64_t whole;
    if (!json_val_int(val, &whole)) return api_fail(e, 400, NULL, f->name, "%s must be a whole number of 64 bits", f->name);
    if ((double)whole < f->min || (double)whole > f->max)
        return api_fail(e, 400, NULL, f->name, "%s must lie between %.10g and %.10g", f->name, f->min, f->max);
    if (f->kind == KIND_INT64) *(int64_t *)at = whole;
    else *(int32_t *)at = (int32_t)whole;
    return 0;
}

/* Sampling fields whose range in requests is another than the sampler's own: OpenAI's, or with a value that means "all". */
static const struct {
    const char *name;
    double min, max;
    bool nullable;
} ranges[] = {
    {"temperature", 0, 2, true},
    {"top_p", 0, 1, true},
    {"typical_p", 0, 1, false},
    {"top_k", -1, INT32_MAX, false},
    {"repetition_penalty", 0.01, 10, false},
    {"frequency_penalty", -2, 2, true},
    {"presence_penalty", -2, 2, true},
};

static int read_number(const struct sampler_field *f, const char *name, yyjson_val *val, struct params *p, struct api_error *e) {
    double min = f->min, max = f->max, number = yyjson_get_num(val);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (strcmp(ranges[i].name, f->name) == 0) {
            if (yyjson_is_null(val) && ranges[i].nullable) return 0;
            min = ranges[i].min;
            max = ranges[i].max;
        }
    if (!yyjson_is_num(val) || !isfinite(number) || (f->is_int && number != floor(number)))
        return api_fail(e, 400, NULL, name, "%s must be a %snumber", name, f->is_int ? "whole " : "");
    if (number < min || number > max) return api_fail(e, 400, NULL, name, "%s must lie between %.10g and %.10g", name, min, max);
    if (strcmp(f->name, "temperature") == 0 && number < 1e-4) number = 0;
    if (number < f->min) number = f->is_int ? f->min : 1e-6; /* top_k -1 is all, top_p 0 the best alone */
    sampler_field_set(&p->job.sampling, f, number);
    return 0;
}

static int read_sampling(yyjson_val *body, struct params *p, struct api_error *e) {
    for (size_t i = 0; i < n_sampler_fields; i++) {
        const struct sampler_field *f = &sampler_fields[i];
        const char *name = f->other && json_get(body, f->other) && !json_get(body, f->name) ? f->other : f->name;
        yyjson_val *val = json_get(body, name);
        if (val && read_number(f, name, val, p, e)) return -1;
    }
    return 0;
}

static int read_fields(yyjson_val *body, enum param_sets set, struct params *p, struct api_error *e) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        yyjson_val *val = fields[i].sets & set ? json_get(body, fields[i].name) : NULL;
        if (!val || (yyjson_is_null(val) && fields[i].nullable)) continue;
        if (read_field(&fields[i], val, p, e)) return -1;
        if (fields[i].offset == AT(job.sampling.seed)) p->job.has_seed = true;
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
    yyjson_val *stop = json_get(body, "stop"), *item;
    size_t i, n;
    if (!stop || yyjson_is_null(stop)) return 0;
    struct str *stops = arena_new(a, struct str, PARAMS_STOPS_MAX);
    p->job.stops = stops;
    if (!yyjson_is_arr(stop)) return add_stop(p, stops, stop, e);
    yyjson_arr_foreach(stop, i, n, item) if (add_stop(p, stops, item, e)) return -1;
    return 0;
}

static int read_bias(struct arena *a, yyjson_val *body, struct params *p, struct api_error *e) {
    yyjson_val *list = json_get(body, "logit_bias"), *key, *val;
    size_t i, n;
    if (!list || yyjson_is_null(list)) return 0;
    if (!yyjson_is_obj(list)) return api_fail(e, 400, NULL, "logit_bias", "logit_bias must be an object of token ids and numbers");
    if (yyjson_obj_size(list) > SAMPLER_BIAS_MAX)
        return api_fail(e, 400, NULL, "logit_bias", "logit_bias takes at most %d tokens", SAMPLER_BIAS_MAX);
    struct sampler_bias *bias = arena_new(a, struct sampler_bias, yyjson_obj_size(list) + 1);
    p->job.sampling.bias = bias;
    yyjson_obj_foreach(list, i, n, key, val) {
        int64_t id;
        double by = yyjson_get_num(val);
        if (!str_to_int64(json_val_str(key), &id) || id < 0 || id > INT32_MAX)
            return api_fail(e, 400, NULL, "logit_bias", "logit_bias: every key must be a token id");
        if (id >= p->vocab)
            return api_fail(e, 400, NULL, "logit_bias", "logit_bias: token %lld is outside the vocabulary of %d", (long long)id, p->vocab);
        if (!yyjson_is_num(val) || !(by >= -100 && by <= 100))
            return api_fail(e, 400, NULL, "logit_bias", "logit_bias: every value must be a number between -100 and 100");
        bias[p->job.sampling.n_bias++] = (struct sampler_bias){(int32_t)id, (float)by};
    }
    return 0;
}

static int read_breakers(struct arena *a, yyjson_val *body, struct params *p, struct api_error *e) {
    yyjson_val *list = json_get(body, "dry_sequence_breakers"), *item;
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

static int read_stream_options(yyjson_val *body, struct params *p, struct api_error *e) {
    yyjson_val *options = json_get(body, "stream_options"), *usage = json_get(options, "include_usage");
    if (!options || yyjson_is_null(options)) return 0;
    if (!yyjson_is_obj(options)) return api_fail(e, 400, NULL, "stream_options", "stream_options must be an object");
    if (!p->stream) return api_fail(e, 400, NULL, "stream_options", "stream_options needs stream: true");
    if (usage && !yyjson_is_null(usage) && !yyjson_is_bool(usage))
        return api_fail(e, 400, NULL, "stream_options", "stream_options.include_usage must be true or false");
    p->include_usage = yyjson_get_bool(usage);
    return 0;
}

static bool is_given(yyjson_val *body, const char *name) {
    yyjson_val *val = json_get(body, name);
    bool is_empty = (yyjson_is_arr(val) && yyjson_arr_size(val) == 0) || (yyjson_is_str(val) && yyjson_get_len(val) == 0);
    return val && !yyjson_is_null(val) && !is_empty;
}

/* What is understood, but not there. */
static int refuse_missing(yyjson_val *body, const struct params *p, struct api_error *e) {
    yyjson_val *format = json_get(body, "response_format"), *best = json_get(body, "best_of");
    int64_t n_best;
    if (is_given(body, "response_format")) {
        struct str type = json_str(format, "type", (struct str){0});
        if (!type.p) return api_fail(e, 400, NULL, "response_format", "response_format must be an object with a type");
        if (!str_is(type, "text"))
            return api_fail(e, 400, "unsupported_value", "response_format",
                            "response_format %.*s is not supported yet; use {\"type\": \"text\"}", (int)(type.n > 40 ? 40 : type.n),
                            type.p);
    }
    bool none = str_is(json_str(body, "tool_choice", STR("")), "none");
    if (is_given(body, "tools") && !none)
        return api_fail(e, 400, "unsupported_parameter", "tools",
                        "tools are not supported yet; leave them out or set tool_choice to \"none\"");
    if (is_given(body, "functions")) return api_fail(e, 400, "unsupported_parameter", "functions", "functions are not supported");
    if (is_given(body, "suffix")) return api_fail(e, 400, "unsupported_parameter", "suffix", "suffix is not supported");
    if (best && !yyjson_is_null(best) && (!json_val_int(best, &n_best) || n_best != p->n))
        return api_fail(e, 400, "unsupported_value", "best_of", "best_of must be equal to n");
    return 0;
}

int params_read(struct arena *a, yyjson_val *body, enum param_sets set, struct params *p, struct api_error *e) {
    *p = (struct params){.job = {.sampling = p->job.sampling, .wants_text = true}, .vocab = p->vocab, .n = 1};
    p->job.max_new = set == PARAMS_CHAT ? -1 : 16;
    p->job.sampling.n_top = -1;
    if (read_sampling(body, p, e) || read_breakers(a, body, p, e)) return -1;
    if (read_fields(body, set, p, e) || read_stop(a, body, p, e) || read_bias(a, body, p, e) || read_stream_options(body, p, e)) return -1;
    if (set == PARAMS_CHAT && p->job.sampling.n_top >= 0 && !p->logprobs)
        return api_fail(e, 400, NULL, "top_logprobs", "top_logprobs needs logprobs: true");
    if (set == PARAMS_CHAT && p->logprobs && p->job.sampling.n_top < 0) p->job.sampling.n_top = 0;
    if (set == PARAMS_COMPLETION) p->logprobs = p->job.sampling.n_top >= 0;
    if (p->echo && p->logprobs)
        return api_fail(e, 400, "unsupported_value", "echo", "log-probabilities of an echoed prompt are not supported");
    return refuse_missing(body, p, e);
}
