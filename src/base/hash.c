/* Byte hashing: word-wise multiply and mix, the length folded in at the start. */
#include "base/hash.h"

#include <string.h>

uint64_t hash_bytes(const void *data, size_t n, uint64_t seed) {
    const unsigned char *p = data;
    uint64_t h = hash_mix(seed ^ (uint64_t)n * UINT64_C(0x9E3779B97F4A7C15));
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    if (n) memcpy(&tail, p, n);
    return hash_mix(h ^ tail);
}
