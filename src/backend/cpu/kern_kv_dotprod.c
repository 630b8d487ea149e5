/* The cache of 8 or 4 bits with NEON's dot products: sdot by lane takes four codes of four lanes at a time.
 *
 * Codes of 8 bits are taken as code - 128, which is a signed byte; what that leaves out, 128 times the sum of the multipliers,
 * is added back at the end and is exact.
 */
#include "backend/cpu/kern.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, VECTORS_MAX = 4 };

INLINE void dot_part(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, int32_t lane, const int n_heads,
                     const int bits, bool asks, int32_t *out, int32_t stride) {
    const uint8x16_t mask = vdupq_n_u8(15), top = vdupq_n_u8(128);
    int32x4_t high[KV_HEADS_MAX][VECTORS_MAX], low[KV_HEADS_MAX][VECTORS_MAX];
    for (int h = 0; h < n_heads; h++)
        for (int v = 0; v < VECTORS_MAX; v++) high[h][v] = low[h][v] = vdupq_n_s32(0);
    int64_t at = KV_SCALE_BYTES + (int64_t)lane * 4;
    uint32_t line = (uint32_t)(lane * n * bits) / 512;
    for (int32_t k = 0; k < n; k += 32 / bits, at += (int64_t)lanes * 4) {
        if (asks) kern_ask(b->ask, line++);
        uint8x16_t codes[VECTORS_MAX];
        for (int v = 0; v < VECTORS_MAX; v++) codes[v] = vld1q_u8(b->cache + at + 16 * v);
        for (int half = 0; half < 8 / bits; half++)
            for (int h = 0; h < n_heads; h++) {
                const int8_t *by = m[h].m.bytes + k + 4 * half;
                int8x8_t by_high = vreinterpret_s8_s32(vld1_dup_s32((const int32_t *)(const void *)by));
                int8x8_t by_low = vreinterpret_s8_s32(vld1_dup_s32((const int32_t *)(const void *)(by + n)));
                for (int v = 0; v < VECTORS_MAX; v++) {
                    uint8x16_t w = bits == 8 ? veorq_u8(codes[v], top) : half ? vshrq_n_u8(codes[v], 4) : vandq_u8(codes[v], mask);
                    high[h][v] = vdotq_lane_s32(high[h][v], vreinterpretq_s8_u8(w), by_high, 0);
                    low[h][v] = vdotq_lane_s32(low[h][v], vreinterpretq_s8_u8(w), by_low, 0);
                }
            }
    }
    for (int h = 0; h < n_heads; h++)
        for (int v = 0; v < VECTORS_MAX; v++) {
            int32x4_t all = vaddq_s32(vshlq_n_s32(high[h][v], 8), low[h][v]);
            if (bits == 8) all = vaddq_s32(all, vdupq_n_s32(128 * m[h].sum));
            vst1q_s32(out + (int64_t)h * stride + lane + v * LANES, all);
        }
}

INLINE void dot_all(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, const int bits, int32_t *out,
                    int32_t stride) {
    for (int32_t lane = 0; lane < lanes; lane += VECTORS_MAX * LANES) {
        int32_t h = 0;
        for (; h + 2 <= b->heads; h += 2) dot_part(b, m + h, n, lanes, lane, 2, bits, h == 0, out + (int64_t)h * stride, stride);
        if (h < b->heads) dot_part(b, m + h, n, lanes, lane, 1, bits, h == 0, out + (int64_t)h * stride, stride);
    }
}

static void kv_dot(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, int32_t *out, int32_t stride) {
    if (b->bits == 8) dot_all(b, m, n, lanes, 8, out, stride);
    else dot_all(b, m, n, lanes, 4, out, stride);
}

#include "backend/cpu/kern_kv_tmpl.h"

void kern_kv_dotprod(struct kernels *k) {
    fill_kv_kernels(k);
}
