/* Products over panels of codes, written once for vectors of eight and of sixteen floats.
 *
 * A file of one instruction set includes its vectors (kern_avx2.h, kern_avx512.h), defines INLINE, UNROLL and what follows, then includes this. A
 * panel's sixteen rows are PARTS vectors.
 *
 *   vi: a vector of whole numbers; vf v_float(vi)
 *   struct acts_row acts_at(const struct quant_acts *, int64_t row): where a row begins, in the set's own layout
 *   void group_dots(const unsigned char *p, const struct acts_row *x, vi *total, n, bits, group): one group of a panel against n rows,
 *     exact; total[part * n + m]
 *   ROWS_MAX: rows that share unpacked codes; FEW_REGISTERS: there are four at most
 */
enum { STREAMS_MAX = 8, PARTS = PANEL_ROWS / VW };

#define ROLLED _Pragma("GCC unroll 1")

/* One group of a panel for n rows of activations: weighed sums are added to inner. */
INLINE void group_add(const unsigned char *p, const struct acts_row *x, vf *inner, bool narrow, const int n, const int bits,
                      const int group) {
    vi total[PARTS * ROWS_MAX];
    group_dots(p, x, total, n, bits, group);
    p += group * bits / 8 * PANEL_ROWS;
    UNROLL for (int part = 0; part < PARTS; part++) {
        vf scale, bias;
        if (narrow) load_scales(p, 1, part, &scale, &bias);
        else load_scales(p, 0, part, &scale, &bias);
        UNROLL for (int m = 0; m < n; m++) {
            vf weighed = v_fma(v_float(total[part * n + m]), scale, inner[part * n + m]);
            inner[part * n + m] = v_fma(bias, v_set(x->sum[m]), weighed);
        }
    }
}

/* What a tile asks for while it is at group g: `far` groups ahead in the same panel, or in those that come next. */
INLINE size_t far_ahead(const struct panel_args *a, int64_t g, int n_panels, const int far) {
    size_t same = (size_t)far * a->shape->group_bytes;
    return g + far < a->x.n_groups ? same : same + (size_t)(n_panels - 1) * a->shape->panel_bytes;
}

/* n rows of activations from `row` on (in one tile) against n_panels panels, which advance together, group by group. */
INLINE void tile(const struct panel_args *a, int64_t row, int64_t panel, int n_panels, const int n, const int bits, const int group,
                 const int far) {
    const struct pack_shape *s = a->shape;
    const unsigned char *p = a->panels + (size_t)panel * s->panel_bytes;
    struct acts_row x = acts_at(&a->x, row);
    vf acc[STREAMS_MAX][PARTS * ROWS_MAX], inner[STREAMS_MAX][PARTS * ROWS_MAX];
    ROLLED for (int i = 0; i < n_panels; i++) UNROLL for (int m = 0; m < PARTS * n; m++) acc[i][m] = inner[i][m] = v_set(0);
    for (int64_t g = 0; g < a->x.n_groups; x.scale += x.step) {
        for (int64_t end = g + acts_span_groups(&a->x, g); g < end; g++, p += s->group_bytes, x.q += x.q_step, x.sum += x.step) {
            const unsigned char *at = p;
            size_t ahead = far_ahead(a, g, n_panels, far);
            ROLLED for (int i = 0; i < n_panels; i++, at += s->panel_bytes) {
                UNROLL for (int line = 0; line <= group * bits / 8 * PANEL_ROWS; line += PANEL_LINE)
                    _mm_prefetch((const char *)(at + ahead + line), _MM_HINT_T0);
                group_add(at, &x, inner[i], s->narrow_scales, n, bits, group);
            }
        }
        ROLLED for (int i = 0; i < n_panels; i++) UNROLL for (int m = 0; m < PARTS * n; m++) {
            acc[i][m] = v_fma(inner[i][m], v_set(x.scale[m % n]), acc[i][m]);
            inner[i][m] = v_set(0);
        }
    }
    float *y = a->y + row * a->y_stride + panel * PANEL_ROWS;
    ROLLED for (int i = 0; i < n_panels; i++) UNROLL for (int m = 0; m < PARTS * n; m++)
        v_store(y + m % n * a->y_stride + i * PANEL_ROWS + m / n * VW, acc[i][m]);
}

/* n rows against all panels. One row takes eight side by side: memory answers several streams sooner than one. Several rows have enough
 * to do with one, whose next groups are asked for early, and keep their sums in registers. */
INLINE void rows(const struct panel_args *a, int64_t row, const int n, const int bits, const int group) {
    enum { FAR = 512 }; /* inputs */
    if (n > 1) {
        for (int64_t p = 0; p < a->n_panels; p++) tile(a, row, p, 1, n, bits, group, FAR / group);
        return;
    }
    for (int64_t p = 0; p < a->n_panels; p += STREAMS_MAX)
        tile(a, row, p, a->n_panels - p < STREAMS_MAX ? (int)(a->n_panels - p) : STREAMS_MAX, n, bits, group, 1);
}

#define ROWS(N, BITS, GROUP)                                                           \
    static void rows_##N##_##BITS##_##GROUP(const struct panel_args *a, int64_t row) { \
        rows(a, row, N, BITS, GROUP);                                                  \
    }
#define ROW_OF(N, BITS, GROUP) [N] = rows_##N##_##BITS##_##GROUP
#ifdef FEW_REGISTERS
#define SOME_ROWS(BITS, GROUP) ROWS(1, BITS, GROUP) ROWS(2, BITS, GROUP) ROWS(4, BITS, GROUP)
#define ALL_ROWS(BITS) SOME_ROWS(BITS, 64) ROWS(3, BITS, 64)
#define SOME_OF(BITS, GROUP) ROW_OF(1, BITS, GROUP), ROW_OF(2, BITS, GROUP), ROW_OF(4, BITS, GROUP)
#define ALL_OF(BITS) SOME_OF(BITS, 64), ROW_OF(3, BITS, 64)
#else
#define SOME_ROWS(BITS, GROUP) ROWS(1, BITS, GROUP) ROWS(2, BITS, GROUP) ROWS(4, BITS, GROUP) ROWS(8, BITS, GROUP)
#define ALL_ROWS(BITS) SOME_ROWS(BITS, 64) ROWS(3, BITS, 64) ROWS(5, BITS, 64) ROWS(6, BITS, 64) ROWS(7, BITS, 64)
#define SOME_OF(BITS, GROUP) ROW_OF(1, BITS, GROUP), ROW_OF(2, BITS, GROUP), ROW_OF(4, BITS, GROUP), ROW_OF(8, BITS, GROUP)
#define ALL_OF(BITS) SOME_OF(BITS, 64), ROW_OF(3, BITS, 64), ROW_OF(5, BITS, 64), ROW_OF(6, BITS, 64), ROW_OF(7, BITS, 64)
#endif
ALL_ROWS(4)
ALL_ROWS(8)
SOME_ROWS(4, 32)
SOME_ROWS(8, 32)
SOME_ROWS(4, 16)
SOME_ROWS(8, 16)

/* By the number of rows; where there is none, fewer rows go first. */
typedef void rows_fn(const struct panel_args *a, int64_t row);
static rows_fn *const rows_of[2][3][ROWS_MAX + 1] = {
    {{ALL_OF(4)}, {SOME_OF(4, 32)}, {SOME_OF(4, 16)}},
    {{ALL_OF(8)}, {SOME_OF(8, 32)}, {SOME_OF(8, 16)}},
};

static void panel(const struct panel_args *a) {
    int32_t group = a->shape->group;
    rows_fn *const *of = rows_of[a->shape->code_bits == 8][group == 64 ? 0 : group == 32 ? 1 : 2];
    for (int64_t m = 0, n; m < a->n_rows; m += n) {
        n = a->n_rows - m < ROWS_MAX ? a->n_rows - m : ROWS_MAX;
        while (!of[n]) n--;
        of[n](a, m);
    }
}
