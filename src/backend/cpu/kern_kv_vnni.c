/* The cache of 8 or 4 bits with AVX-512 and VNNI: vpdpbusd takes four codes of sixteen lanes at a time.
 *
 * A line of 64 codes costs a load and, for each head, two products: those with the high bytes and with the low ones. Heads
 * that share the keys share the loads.
 */
#include "backend/cpu/kern.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, VECTORS_MAX = 4 };

INLINE __m512i four(const int8_t *m) {
    int32_t word;
    memcpy(&word, m, 4);
    return _mm512_set1_epi32(word);
}

/* n_heads heads from `head` on, n_vectors vectors of lanes from `lane` on: as many sums as the registers hold. */
INLINE void dot_part(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, int32_t lane, const int n_heads,
                     const int n_vectors, const int bits, bool asks, int32_t *out, int32_t stride) {
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i high[KV_HEADS_MAX][VECTORS_MAX], low[KV_HEADS_MAX][VECTORS_MAX];
    for (int h = 0; h < n_heads; h++)
        for (int v = 0; v < n_vectors; v++) high[h][v] = low[h][v] = _mm512_setzero_si512();
    int64_t at = KV_SCALE_BYTES + (int64_t)lane * 4;
    uint32_t line = (uint32_t)(lane * n * bits) / 512;
    for (int32_t k = 0; k < n; k += 32 / bits, at += (int64_t)lanes * 4) {
        __m512i codes[VECTORS_MAX];
        for (int v = 0; v < n_vectors; v++) {
            if (asks) kern_ask(b->ask, line++);
            codes[v] = _mm512_loadu_si512(b->cache + at + 64 * v);
        }
        for (int half = 0; half < 8 / bits; half++)
            for (int h = 0; h < n_heads; h++) {
                __m512i by = four(m[h].m.bytes + k + 4 * half), by_low = four(m[h].m.bytes + n + k + 4 * half);
                for (int v = 0; v < n_vectors; v++) {
                    __m512i w = bits == 8 ? codes[v] : _mm512_and_si512(half ? _mm512_srli_epi16(codes[v], 4) : codes[v], mask);
                    high[h][v] = _mm512_dpbusd_epi32(high[h][v], w, by);
                    low[h][v] = _mm512_dpbusd_epi32(low[h][v], w, by_low);
                }
            }
    }
    for (int h = 0; h < n_heads; h++)
        for (int v = 0; v < n_vectors; v++)
            _mm512_storeu_si512(out + (int64_t)h * stride + lane + v * LANES,
                                _mm512_add_epi32(_mm512_slli_epi32(high[h][v], 8), low[h][v]));
}

#include "backend/cpu/kern_kv_x86.h"

void kern_kv_vnni(struct kernels *k) {
    fill_kv_kernels(k);
}
