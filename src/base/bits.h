/* Bits of a word. */
#ifndef MLXCEL_BASE_BITS_H
#define MLXCEL_BASE_BITS_H

#include <stdint.h>

static inline int bits_count(uint32_t word) {
    return __builtin_popcount(word);
}
/* The place of the lowest bit that is set; there must be one. */
static inline int bits_first(uint32_t word) {
    return __builtin_ctz(word);
}

/* Memory that will be changed soon: the processor may fetch it meanwhile. */
static inline void bits_ask(void *at) {
    __builtin_prefetch(at, 1);
}

#endif
