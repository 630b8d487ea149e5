/* AVX-VNNI, the dot products of Intel's processors for desktops and laptops, which have no AVX-512: vpdpwssd adds the two products of a pair to the sum, in
 * place of two instructions of kern_avx2.c, whose words these are.
 */
#include "backend/cpu/kern_avx2.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#include "backend/cpu/kern_avx2_words.h"

INLINE vi v_add_products(vi sum, vi a, vi b) {
    return _mm256_dpwssd_avx_epi32(sum, a, b);
}

#include "backend/cpu/kern_words_tmpl.h"

#include "backend/cpu/kern_panel_tmpl.h"

void kern_avxvnni(struct kernels *k) {
    k->isa = "avx-vnni";
    k->panel = panel;
    k->row_more = 0;
}
