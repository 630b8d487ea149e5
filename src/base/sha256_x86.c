/* SHA-256 with the SHA extensions of x86: two rounds per instruction, four message words per register. */
#include "base/sha256_kern.h"

#include <immintrin.h>

/* Four rounds; the message words plus constants are in `wk`. */
static inline void rounds4(__m128i *abef, __m128i *cdgh, __m128i wk) {
    *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, wk);
    *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(wk, 0x0E));
}

static void blocks(uint32_t state[8], const unsigned char *p, size_t n_blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_loadu_si128((const __m128i *)state), hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (; n_blocks; n_blocks--, p += 64) {
        __m128i w[4], abef0 = abef, cdgh0 = cdgh;
        for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), swap);
        for (int i = 0; i < 16; i++) {
            __m128i k = _mm_loadu_si128((const __m128i *)(sha256_constants + 4 * i)), now = w[i & 3];
            rounds4(&abef, &cdgh, _mm_add_epi32(now, k));
            if (i >= 12) continue;
            /* w[t] = s1(w[t-2]) + w[t-7] + s0(w[t-15]) + w[t-16], four at a time */
            __m128i seventh = _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4);
            __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) & 3]), seventh);
            w[i & 3] = _mm_sha256msg2_epu32(next, w[(i + 3) & 3]);
        }
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

sha256_blocks_fn *const sha256_blocks_fast = blocks;
