/* The cache of 8 or 4 bits with AVX-512 and VNNI: vpdpbusd takes four codes of sixteen lanes at a time.
 *
 * A line of 64 codes costs a load and, for each head, two products: those with the high bytes and with the low ones. Heads
 * that share the keys share the loads.
 */
#include "backend/cpu/kern.h"

#include <immintrin.h>
#include <math.h>

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

/* The 64 positions that are seen, as bits. */
INLINE uint64_t seen(const int32_t *range) {
    if (range[0] >= range[1]) return 0;
    return UINT64_MAX << range[0] & UINT64_MAX >> (KV_BLOCK_POS - range[1]);
}

/* kv_multipliers (kern_kv_tmpl.h) for 64 numbers in four registers: the same operations on each. */
static void kv_weights(const struct kv_block *b, int32_t h, struct kv_query *out) {
    const float *scores = b->scores + h * b->scores_stride, *scales = (const float *)(const void *)b->cache;
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), byte = _mm512_set1_epi16(255);
    uint64_t mask = seen(b->range[h]);
    __m512i most_bits = _mm512_setzero_si512(), q[4], sum = _mm512_setzero_si512();
    __m512 w[4];
    for (int v = 0; v < 4; v++, mask >>= 16) {
        w[v] = _mm512_maskz_mul_ps((__mmask16)mask, _mm512_loadu_ps(scores + v * LANES), _mm512_loadu_ps(scales + v * LANES));
        most_bits = _mm512_max_epi32(most_bits, _mm512_and_si512(_mm512_castps_si512(w[v]), _mm512_set1_epi32(0x7FFFFFFF)));
    }
    int32_t bits = _mm512_reduce_max_epi32(most_bits);
    bool finite = bits < KV_FINITE_BITS;
    float most;
    memcpy(&most, &bits, sizeof most);
    __m512 inverse = _mm512_set1_ps(finite && most > KV_LEAST ? (float)KV_MULTIPLIER_MAX / most : 0);
    for (int v = 0; v < 4; v++) {
        q[v] = finite ? _mm512_cvtps_epi32(_mm512_mul_ps(w[v], inverse)) : _mm512_setzero_si512();
        sum = _mm512_add_epi32(sum, q[v]);
    }
    out->sum = _mm512_reduce_add_epi32(sum);
    out->scale = finite ? most * (1.0f / (float)KV_MULTIPLIER_MAX) : NAN;
    /* packing goes by quarters of a register, which `order` undoes */
    __m512i first = _mm512_packs_epi32(q[0], q[1]), second = _mm512_packs_epi32(q[2], q[3]), round = _mm512_set1_epi16(128);
    __m512i high =
        _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(first, round), 8), _mm512_srai_epi16(_mm512_add_epi16(second, round), 8));
    __m512i low = _mm512_packus_epi16(_mm512_and_si512(first, byte), _mm512_and_si512(second, byte));
    _mm512_storeu_si512(out->m.bytes, _mm512_permutexvar_epi32(order, high));
    _mm512_storeu_si512(out->m.bytes + KV_BLOCK_POS, _mm512_permutexvar_epi32(order, low));
}
#define KV_OWN_WEIGHTS

#include "backend/cpu/kern_kv_x86.h"

void kern_kv_vnni(struct kernels *k) {
    fill_kv_kernels(k);
}
