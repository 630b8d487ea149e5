/* SHA-256 with the SHA2 instructions of arm64: four rounds per pair of instructions. */
#include "base/sha256_kern.h"

#include <arm_neon.h>

static void blocks(uint32_t state[8], const unsigned char *p, size_t n_blocks) {
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
    for (; n_blocks; n_blocks--, p += 64) {
        uint32x4_t w[4], abcd0 = abcd, efgh0 = efgh;
        for (int i = 0; i < 4; i++) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)));
        for (int i = 0; i < 16; i++) {
            uint32x4_t wk = vaddq_u32(w[i & 3], vld1q_u32(sha256_constants + 4 * i)), before = abcd;
            abcd = vsha256hq_u32(abcd, efgh, wk);
            efgh = vsha256h2q_u32(efgh, before, wk);
            if (i < 12) w[i & 3] = vsha256su1q_u32(vsha256su0q_u32(w[i & 3], w[(i + 1) & 3]), w[(i + 2) & 3], w[(i + 3) & 3]);
        }
        abcd = vaddq_u32(abcd, abcd0);
        efgh = vaddq_u32(efgh, efgh0);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}

sha256_blocks_fn *const sha256_blocks_fast = blocks;
