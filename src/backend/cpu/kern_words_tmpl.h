/* Products of words, for sets without an instruction that adds four products of bytes: vpmaddwd multiplies words and adds the two products of a pair,
 * half as much work as two products of bytes.
 *
 * A mask or a shift makes two words of the four bytes of a row's codes: the first and the third, or the second and the fourth. So activations lie as
 * words of 12 bits, eight inputs in the order 0 2 4 6 1 3 5 7, in the memory of their high and low bytes: of each row of a tile a whole group.
 *
 * A file defines before it includes this: INLINE, UNROLL, vi, and vi v_loads(const void *), v_masks(int) (that word everywhere), v_and, v_right(vi, int) by words, v_pair(const int16_t *) (those two
 * words everywhere), v_add_products(vi sum, vi a, vi b) to 32 bits.
 */
enum {
    WORDS_ODD = 4,
    WORDS_NEXT = 2
}; /* how far the second and the fourth of four inputs are from the first and the third, and the same of the next four inputs */

INLINE struct acts_row acts_at(const struct quant_acts *x, int64_t row) {
    struct acts_row at = acts_row_at(x, row);
    at.q += row % x->tile * x->group; /* rows lie two groups of bytes apart */
    return at;
}

/* Two words of each row of a panel against the two inputs at q of n rows of activations. */
INLINE void pairs_add(const vi *codes, const int16_t *q, vi *total, const int n, const int group) {
    UNROLL for (int m = 0; m < n; m++) {
        vi by = v_pair(q + m * group);
        UNROLL for (int part = 0; part < PANEL_ROWS / VW; part++) {
            vi sum = v_add_products(total[part * n + m], codes[part], by);
            __asm__("" : "+v"(sum)); /* else gcc 12 adds up in another order, for which there are too few registers */
            total[part * n + m] = sum;
        }
    }
}

/* A line of codes: inputs [0, 8) of 4 bits, or four of 8 bits. */
INLINE void line_dots(const unsigned char *p, const int16_t *q, vi *total, const int n, const int bits, const int group) {
    enum { LINE_PARTS = PANEL_ROWS / VW };
    const vi mask = v_masks(bits == 4 ? 15 : 255);
    vi codes[LINE_PARTS];
    UNROLL for (int shift = 0; shift < 16; shift += bits) {
        UNROLL for (int part = 0; part < LINE_PARTS; part++) {
            vi w = v_loads(p + part * VW * 4);
            if (shift) w = v_right(w, shift);
            codes[part] = shift + bits < 16 ? v_and(w, mask) : w;
        }
        pairs_add(codes, q + shift / 8 * WORDS_ODD + shift % 8 / 4 * WORDS_NEXT, total, n, group);
    }
}

INLINE void group_dots(const unsigned char *p, const struct acts_row *x, vi *total, const int n, const int bits, const int group) {
    const int16_t *q = (const int16_t *)(const void *)x->q;
    __asm__("" : "+r"(q)); /* else the address of each pair is kept in a register, or in what is left of them */
    UNROLL for (int m = 0; m < n * PANEL_ROWS / VW; m++) total[m] = v_masks(0);
    UNROLL for (int k = 0; k < group; k += 32 / bits, p += PANEL_LINE)
        line_dots(p, q + k / 8 * 8 + k % 8 / 4 * WORDS_NEXT, total, n, bits, group);
}
