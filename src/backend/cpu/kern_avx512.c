/* AVX-512 without VNNI (Skylake's servers and workstations): a panel's sixteen rows are one register. Activations are the words that kern_avx2.c makes. */
#include "backend/cpu/kern_avx512.h"

enum { CHAINS = 2, SCORE_HEADS = 8, SCORE_SUMS = 16, MIX_HEADS = 8 };

#include "backend/cpu/kern_tmpl.h"

enum { ROWS_MAX = 8 };

typedef __m512i vi;

INLINE vf v_float(vi a) {
    return _mm512_cvtepi32_ps(a);
}
INLINE vi v_loads(const void *p) {
    return _mm512_loadu_si512(p);
}
INLINE vi v_masks(int word) {
    return _mm512_set1_epi16((short)word);
}
INLINE vi v_and(vi a, vi b) {
    return _mm512_and_si512(a, b);
}
INLINE vi v_right(vi a, int bits) {
    return _mm512_srli_epi16(a, (unsigned)bits);
}
INLINE vi v_pair(const int16_t *p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}
INLINE vi v_add_products(vi sum, vi a, vi b) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}

#include "backend/cpu/kern_words_tmpl.h"

#include "backend/cpu/kern_panel_tmpl.h"

void kern_avx512(struct kernels *k) {
    fill_float_kernels(k);
    k->isa = "avx512";
    k->panel = panel;
    k->row_more = 0; /* two cores, whole steps of 4-bit models: 2 rows take 1.15, 4 rows 1.6 and 8 rows 2.8 */
}
