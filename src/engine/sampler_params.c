/* The sampler's parameters: defaults, names, limits. */
#include "engine/sampler.h"

#include <math.h>
#include <stddef.h>

struct sampler_params sampler_defaults(void) {
    return (struct sampler_params){.top_p = 1,
                                   .typical_p = 1,
                                   .repetition = 1,
                                   .last_n = -1,
                                   .n_top = -1,
                                   .xtc_threshold = 0.1f,
                                   .dry_base = 1.75f,
                                   .dry_allowed = 2,
                                   .dry_last_n = -1,
                                   .mirostat_tau = 5,
                                   .mirostat_eta = 0.1f,
                                   .dynatemp_exponent = 1};
}

/* ---- parameters by name ---------------------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct sampler_params, member)

const struct sampler_field sampler_fields[] = {
    {"temperature", "temp", AT(temperature), false, 0, 100},
    {"top_k", NULL, AT(top_k), true, 0, INT32_MAX},
    {"top_p", NULL, AT(top_p), false, 1e-9, 1},
    {"min_p", NULL, AT(min_p), false, 0, 1},
    {"typical_p", NULL, AT(typical_p), false, 1e-9, 1},
    {"xtc_probability", NULL, AT(xtc_probability), false, 0, 1},
    {"xtc_threshold", NULL, AT(xtc_threshold), false, 0, 1},
    {"repetition_penalty", "repeat_penalty", AT(repetition), false, 1e-3, 1e3},
    {"repeat_last_n", "repetition_context_size", AT(last_n), true, -1, INT32_MAX},
    {"frequency_penalty", NULL, AT(frequency), false, -100, 100},
    {"presence_penalty", NULL, AT(presence), false, -100, 100},
    {"dry_multiplier", NULL, AT(dry_multiplier), false, 0, 100},
    {"dry_base", NULL, AT(dry_base), false, 1, 100},
    {"dry_allowed_length", NULL, AT(dry_allowed), true, 1, INT32_MAX},
    {"dry_penalty_last_n", NULL, AT(dry_last_n), true, -1, INT32_MAX},
    {"mirostat", NULL, AT(mirostat), true, 0, 2},
    {"mirostat_tau", NULL, AT(mirostat_tau), false, 0, 100},
    {"mirostat_eta", NULL, AT(mirostat_eta), false, 0, 100},
    {"dynatemp_range", NULL, AT(dynatemp_range), false, 0, 100},
    {"dynatemp_exponent", NULL, AT(dynatemp_exponent), false, 0, 100},
};
const size_t n_sampler_fields = sizeof sampler_fields / sizeof *sampler_fields;

const struct sampler_field *sampler_field_find(struct str name) {
    for (size_t i = 0; i < n_sampler_fields; i++)
        if (str_is(name, sampler_fields[i].name) || (sampler_fields[i].other && str_is(name, sampler_fields[i].other)))
            return &sampler_fields[i];
    return NULL;
}

double sampler_field_get(const struct sampler_params *p, const struct sampler_field *f) {
    const char *at = (const char *)p + f->offset;
    return f->is_int ? (double)*(const int32_t *)at : (double)*(const float *)at;
}

static bool within(double value, double min, double max) {
    return value >= min && value <= max; /* false for what is no number */
}

bool sampler_field_set(struct sampler_params *p, const struct sampler_field *f, double value) {
    char *at = (char *)p + f->offset;
    if (!within(value, f->min, f->max) || (f->is_int && value != floor(value))) return false;
    if (f->is_int) *(int32_t *)at = (int32_t)value;
    else *(float *)at = (float)value;
    return true;
}

int sampler_check(const struct sampler_params *p, int32_t vocab, struct err *err) {
    for (size_t i = 0; i < n_sampler_fields; i++) {
        const struct sampler_field *f = &sampler_fields[i];
        if (!within(sampler_field_get(p, f), f->min, f->max))
            return err_set(err, ERR_EARG, "%s is out of range: %g to %g", f->name, f->min, f->max);
    }
    if (!within(p->n_bias, 0, SAMPLER_BIAS_MAX)) return err_set(err, ERR_EARG, "logit_bias takes at most %d tokens", SAMPLER_BIAS_MAX);
    if (!within(p->n_top, -1, SAMPLER_TOP_MAX)) return err_set(err, ERR_EARG, "top_logprobs is out of range: 0 to %d", SAMPLER_TOP_MAX);
    for (int32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token < 0 || p->bias[i].token >= vocab)
            return err_set(err, ERR_EARG, "logit_bias: token %d is outside the vocabulary of %d", p->bias[i].token, vocab);
        if (!within((double)p->bias[i].bias, -1e6, 1e6))
            return err_set(err, ERR_EARG, "logit_bias of token %d is out of range", p->bias[i].token);
    }
    return ERR_OK;
}
