/* The cache of 8 or 4 bits with AVX2: products of 16 bits.
 *
 * Four codes of a lane are two pairs, even and odd: a mask and a shift make numbers of 16 bits of them, and vpmaddwd adds the
 * two products of a pair. Multipliers come as pairs of 16 bits in that order.
 */
#include "backend/cpu/kern.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define KV_PAIRS

enum { LANES = 8, VECTORS_MAX = 4 };

INLINE __m256i pair(const int16_t *m) {
    int32_t word;
    memcpy(&word, m, 4);
    return _mm256_set1_epi32(word);
}

INLINE void dot_part(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, int32_t lane, const int n_heads,
                     const int n_vectors, const int bits, bool asks, int32_t *out, int32_t stride) {
    const __m256i mask = _mm256_set1_epi16(bits == 8 ? 255 : 15);
    __m256i total[KV_HEADS_MAX][VECTORS_MAX];
    for (int h = 0; h < n_heads; h++)
        for (int v = 0; v < n_vectors; v++) total[h][v] = _mm256_setzero_si256();
    int64_t at = KV_SCALE_BYTES + (int64_t)lane * 4;
    uint32_t line = (uint32_t)(lane * n * bits) / 512;
    for (int32_t k = 0; k < n; k += 32 / bits, at += (int64_t)lanes * 4)
        for (int v = 0; v < n_vectors; v++) {
            if (asks && v % 2 == 0) kern_ask(b->ask, line++);
            __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(b->cache + at + 32 * v));
            for (int half = 0; half < 8 / bits; half++) {
                __m256i even = _mm256_and_si256(half ? _mm256_srli_epi16(codes, 4) : codes, mask);
                __m256i odd = _mm256_srli_epi16(codes, half ? 12 : 8);
                if (bits == 4 && !half) odd = _mm256_and_si256(odd, mask);
                for (int h = 0; h < n_heads; h++) {
                    const int16_t *by = m[h].m.pairs + k + 4 * half;
                    __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(even, pair(by)), _mm256_madd_epi16(odd, pair(by + 2)));
                    total[h][v] = _mm256_add_epi32(total[h][v], sum);
                }
            }
        }
    for (int h = 0; h < n_heads; h++)
        for (int v = 0; v < n_vectors; v++)
            _mm256_storeu_si256((__m256i *)(void *)(out + (int64_t)h * stride + lane + v * LANES), total[h][v]);
}

#include "backend/cpu/kern_kv_x86.h"

void kern_kv_avx2(struct kernels *k) {
    fill_kv_kernels(k);
}
