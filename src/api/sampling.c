/* Sampling parameters by precedence. */
#include "api/sampling.h"

#include "api/session_internal.h"
#include "base/log.h"

bool sampling_give(struct sampling_given *g, const struct sampler_field *f, double value) {
    if (!sampler_field_set(&g->values, f, value)) return false;
    g->fields |= UINT64_C(1) << (f - sampler_fields);
    return true;
}

static void from_file(const struct config *c, struct sampler_params *p) {
    for (size_t i = 0; i < n_sampler_fields; i++) {
        const struct sampler_field *f = &sampler_fields[i];
        yyjson_val *val = config_get(c, f->name);
        if (!yyjson_is_num(val)) continue;
        if (!sampler_field_set(p, f, yyjson_get_num(val)))
            log_warn("%s: %s is out of range (%g to %g) and not used", c->name, f->name, f->min, f->max);
    }
}

void sampling_resolve(const struct session *s, const struct sampling_given *given, struct sampler_params *p) {
    if (s->has_checkpoint && s->checkpoint.has_generation) {
        float temperature = p->temperature;
        yyjson_val *draws = config_get(&s->checkpoint.generation, "do_sample");
        from_file(&s->checkpoint.generation, p);
        if (draws && !yyjson_get_bool(draws)) p->temperature = temperature;
    }
    for (size_t i = 0; i < n_sampler_fields; i++)
        if (given->fields >> i & 1) sampler_field_set(p, &sampler_fields[i], sampler_field_get(&given->values, &sampler_fields[i]));
}
