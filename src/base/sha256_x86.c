/* SHA-256 with the SHA extensions of x86: two rounds per instruction, four message words per register. */
#include "base/sha256_kern.h"

#include <immintrin.h>

/* Four rounds with the words of `m0`; while they run, `m0` becomes the words of sixteen rounds later, four at a time:
 * w[t] = s1(w[t-2]) + w[t-7] + s0(w[t-15]) + w[t-16]. Spelled out, so that the words stay in registers at any optimisation. */
#define ROUNDS(i, m0)                                                                           \
    do {                                                                                        \
        wk = _mm_add_epi32(m0, _mm_loadu_si128((const __m128i *)(sha256_constants + 4 * (i)))); \
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);                                           \
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0E));                  \
    } while (0)
#define ROUNDS_NEXT(i, m0, m1, m2, m3)                                                                          \
    do {                                                                                                        \
        ROUNDS(i, m0);                                                                                          \
        m0 = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(m0, m1), _mm_alignr_epi8(m3, m2, 4)), m3); \
    } while (0)

static void blocks(uint32_t state[8], const unsigned char *p, size_t n_blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_loadu_si128((const __m128i *)state), hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (; n_blocks; n_blocks--, p += 64) {
        __m128i wk, abef0 = abef, cdgh0 = cdgh;
        __m128i a = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)p), swap);
        __m128i b = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16)), swap);
        __m128i c = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 32)), swap);
        __m128i d = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 48)), swap);
        ROUNDS_NEXT(0, a, b, c, d);
        ROUNDS_NEXT(1, b, c, d, a);
        ROUNDS_NEXT(2, c, d, a, b);
        ROUNDS_NEXT(3, d, a, b, c);
        ROUNDS_NEXT(4, a, b, c, d);
        ROUNDS_NEXT(5, b, c, d, a);
        ROUNDS_NEXT(6, c, d, a, b);
        ROUNDS_NEXT(7, d, a, b, c);
        ROUNDS_NEXT(8, a, b, c, d);
        ROUNDS_NEXT(9, b, c, d, a);
        ROUNDS_NEXT(10, c, d, a, b);
        ROUNDS_NEXT(11, d, a, b, c);
        ROUNDS(12, a);
        ROUNDS(13, b);
        ROUNDS(14, c);
        ROUNDS(15, d);
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

sha256_blocks_fn *const sha256_blocks_fast = blocks;
