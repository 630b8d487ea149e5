/* What kern_words_tmpl.h and kern_panel_tmpl.h stand on, in registers of 256 bits: all but v_add_products. */
#define FEW_REGISTERS
enum { ROWS_MAX = 4 };

typedef __m256i vi;

INLINE vf v_float(vi a) {
    return _mm256_cvtepi32_ps(a);
}
INLINE vi v_loads(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE vi v_masks(int word) {
    return _mm256_set1_epi16((short)word);
}
INLINE vi v_and(vi a, vi b) {
    return _mm256_and_si256(a, b);
}
INLINE vi v_right(vi a, int bits) {
    return _mm256_srli_epi16(a, bits);
}
INLINE vi v_pair(const int16_t *p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}
INLINE void load_scales(const unsigned char *p, const int narrow, const int part, __m256 *scale, __m256 *bias) {
    if (narrow) {
        *scale = v_bf16((const uint16_t *)(const void *)p + VW * part);
        *bias = v_bf16((const uint16_t *)(const void *)p + PANEL_ROWS + VW * part);
    } else {
        *scale = v_load((const float *)(const void *)p + VW * part);
        *bias = v_load((const float *)(const void *)p + PANEL_ROWS + VW * part);
    }
}
