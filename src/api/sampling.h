/* Where sampling parameters come from: a flag or request field, else generation_config.json, else the built-in value. */
#ifndef MLXCEL_API_SAMPLING_H
#define MLXCEL_API_SAMPLING_H

#include "api/session.h"
#include "engine/sampler.h" /* the parameters, plain data */

/* The built-in temperature where tokens are drawn and nobody says how. */
#define SAMPLING_TEMPERATURE 0.8f

/* Values that somebody gave, and which: bit i stands for sampler_fields[i]. */
struct sampling_given {
    struct sampler_params values;
    uint64_t fields;
};

/* False when the value is out of range. */
bool sampling_give(struct sampling_given *g, const struct sampler_field *f, double value);
/* *p holds the built-in values; what generation_config.json says comes over them, then what was given. A temperature that the
 * file has for do_sample: false does not count. A value in the file that is out of range is ignored with a warning. */
void sampling_resolve(const struct session *s, const struct sampling_given *given, struct sampler_params *p);

#endif
