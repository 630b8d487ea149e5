/* Byte hashing: word-wise multiply and mix, the length folded in at the start. */
#include "base/hash.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Where the system put the program, its libraries and its stack, and when. */
static uint64_t make_seed(void) {
    int here = 0;
    uint64_t seed = hash_pair((uint64_t)(uintptr_t)&here, (uint64_t)(uintptr_t)&make_seed);
    seed = hash_pair(seed, (uint64_t)(uintptr_t)&time);
    return hash_pair(seed, (uint64_t)time(NULL) ^ (uint64_t)clock() << 32) | 1;
}

uint64_t hash_seed(void) {
    static _Atomic uint64_t seed; /* 0: not made yet; of several threads that make one, the first counts */
    uint64_t now = atomic_load_explicit(&seed, memory_order_relaxed), none = 0;
    if (now) return now;
    now = make_seed();
    return atomic_compare_exchange_strong(&seed, &none, now) ? now : none;
}

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
