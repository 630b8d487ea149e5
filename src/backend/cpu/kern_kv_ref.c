/* The cache of 8 or 4 bits in plain C: what every set's kernels are held against, bit for bit. */
#include "backend/cpu/kern.h"

static void kv_dot(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, int32_t *out, int32_t stride);

#include "backend/cpu/kern_kv_tmpl.h"

static void kv_dot(const struct kv_block *b, const struct kv_query *m, int32_t n, int32_t lanes, int32_t *out, int32_t stride) {
    for (int32_t h = 0; h < b->heads; h++, out += stride) {
        const int8_t *high = m[h].m.bytes, *low = high + n;
        memset(out, 0, (size_t)lanes * sizeof *out);
        for (int32_t k = 0; k < n; k++) {
            int32_t by = 256 * high[k] + low[k], shift = b->bits == 4 && k % 8 >= 4 ? 4 : 0, mask = b->bits == 4 ? 15 : 255;
            const unsigned char *codes = b->cache + KV_SCALE_BYTES + (int64_t)(k / (32 / b->bits)) * lanes * 4 + k % 4;
            for (int32_t i = 0; i < lanes; i++) out[i] += by * (codes[4 * i] >> shift & mask);
        }
    }
}

void kern_kv_ref(struct kernels *k) {
    fill_kv_kernels(k);
}
