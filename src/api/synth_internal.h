/* What a made-up model consists of; shared by synth.c and the writer. */
#ifndef MLXCEL_API_SYNTH_INTERNAL_H
#define MLXCEL_API_SYNTH_INTERNAL_H

#include "api/synth.h"
#include "model/shapes.h"

enum synth_kind { SYNTH_PLAIN, SYNTH_CODES, SYNTH_SCALES, SYNTH_BIASES, SYNTH_CONSTANT, SYNTH_EXPONENTS };

struct synth_tensor {
    struct tensor_info info;
    enum synth_kind kind;
    float spread, middle; /* how far values are from the middle; of biases, how many scales they are below 0 */
    uint64_t seed, bytes;
};

struct synth {
    struct arena *arena;
    const struct model_shape *shape;
    int32_t bits;
    enum dtype dtype; /* of plain weights, scales and norms */
    uint64_t seed;
    struct synth_tensor *tensors;
    int32_t n_tensors, capacity;
    struct str config_json;
    struct config config;
};

void synth_fill(const struct synth_tensor *t, uint64_t offset, void *dst, size_t n);

#endif
