/* The cache of 8 or 4 bits on x86: how heads and lanes are shared out to dot_part, which a file defines before it includes this,
 * with LANES (of a vector) and INLINE. What follows is static. */
#include "backend/cpu/kern.h"

/* Lanes are a multiple of 16. */
INLINE void dot_heads(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, const int n_heads, const int n_vectors,
                      const int bits, bool asks, int32_t *out, int32_t stride) {
    int32_t lane = 0;
    for (; lane + n_vectors * LANES <= lanes; lane += n_vectors * LANES)
        dot_part(b, m, n, lanes, lane, n_heads, n_vectors, bits, asks, out, stride);
    for (; lane < lanes; lane += 16) dot_part(b, m, n, lanes, lane, n_heads, 16 / LANES, bits, asks, out, stride);
}

/* Many heads take few lanes at a time, few heads many: the registers hold as many sums either way. */
INLINE void dot_all(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, const int bits, int32_t *out,
                    int32_t stride) {
    int32_t h = 0;
    for (; h + 4 <= b->heads; h += 4) dot_heads(b, m + h, n, lanes, 4, 2, bits, h == 0, out + (int64_t)h * stride, stride);
    if (h + 2 <= b->heads) dot_heads(b, m + h, n, lanes, 2, 4, bits, h == 0, out + (int64_t)h * stride, stride), h += 2;
    if (h < b->heads) dot_heads(b, m + h, n, lanes, 1, 4, bits, h == 0, out + (int64_t)h * stride, stride);
}

static void kv_dot(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, int32_t *out, int32_t stride) {
    if (b->bits == 8) dot_all(b, m, n, lanes, 8, out, stride);
    else dot_all(b, m, n, lanes, 4, out, stride);
}

#include "backend/cpu/kern_kv_tmpl.h"
