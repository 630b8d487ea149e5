/* Hashing that is the same on every platform: for tables, cache keys and synthetic weights. Not for secrets (sha256.h). */
#ifndef MLXCEL_BASE_HASH_H
#define MLXCEL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* A bijective mix of 64 bits (the finaliser of splitmix64): every input bit reaches every output bit. */
static inline uint64_t hash_mix(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    x ^= x >> 27;
    x *= UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static inline uint64_t hash_pair(uint64_t a, uint64_t b) {
    return hash_mix(a + UINT64_C(0x9E3779B97F4A7C15) + hash_mix(b));
}

/* A number that is another in every process and that nobody outside can know. Tables of keys from files and requests start from it: else
 * somebody could choose keys that all fall on one place, and a table of n keys would take n * n steps. */
uint64_t hash_seed(void);

/* Eight bytes at a time; seed chains hashes. */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed);

#endif
