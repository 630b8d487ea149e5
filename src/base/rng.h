/* Counter-based random numbers: the value depends on (seed, position, draw) and nothing else, so that batching,
 * preemption and the device do not change a sample. */
#ifndef MLXCEL_BASE_RNG_H
#define MLXCEL_BASE_RNG_H

#include "base/hash.h"

static inline uint64_t rng_at(uint64_t seed, uint64_t position, uint64_t draw) {
    return hash_pair(hash_pair(seed, position), draw);
}
/* Uniform in [0, 1) with 53 bits. */
static inline double rng_uniform(uint64_t seed, uint64_t position, uint64_t draw) {
    return (double)(rng_at(seed, position, draw) >> 11) * (1.0 / 9007199254740992.0);
}

#endif
