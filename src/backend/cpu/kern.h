/* The innermost loops of one instruction set.
 *
 * No allocation, no threads, no OS, no globals. Rows are contiguous, pointers need no alignment beyond their element.
 * kern_ref is the readable truth: its results are the same bits on every platform (fixed lanes, no contraction). Better
 * sets override what they have, oldest to newest (kern.c).
 *
 * Whatever the set: one output element is computed by the same sequence of operations for every number of rows, so that
 * a row's result does not depend on what stands beside it.
 */
#ifndef MLXCEL_BACKEND_CPU_KERN_H
#define MLXCEL_BACKEND_CPU_KERN_H

#include "backend/cpu/pack.h"
#include "backend/ops.h"
#include "base/str.h"
#include "tensor/quant.h"

/* Rows of activations as whole numbers of 12 bits: value = q * scale. A scale holds for a span of ACTS_SPAN inputs (the last
 * one of a row may be shorter), which is some whole groups of the weight; sum is the sum of a group's q, a whole number.
 * A q is kept as two bytes, q = 16 high + low, high within -120 .. 120 and low within -8 .. 7: a dot product is two products
 * of bytes, 16 times the one plus the other, and exact. ACTS_MAX is the most that a set can also keep as three bytes for two of them (kern_dotprod.c).
 *
 * What a row of weights makes of them, in f32 and in this order, fma all over: from 0, for each span, (from 0, for each of its
 * groups, the integer dot product times the weights' scale, then the weights' bias times sum) times the span's scale.
 *
 * Rows lie in tiles of `tile` rows, group by group, so that one group of a tile's rows is one stretch of memory, the high
 * bytes and then the low ones: q[tiles][groups][ACTS_TERMS][tile][group], sum[tiles][groups][tile], scale[tiles][spans][tile].
 * The last tile may be part-filled: the memory is there, its contents are anything.
 *
 * For nested panels a q is one byte within -ACTS_BYTE_MAX .. ACTS_BYTE_MAX, q[tiles][groups][tile][group]: the K types of GGUF are made for that. */
struct quant_acts {
    int8_t *q;
    float *scale, *sum;
    int64_t in, n_groups;
    int32_t group, tile;
    int32_t bits; /* of the weights' codes as they lie: 4, 8 */
    bool nested;  /* for nested panels: nested_row filled q, scale and, in an order of its own, sum */
    bool
        plain; /* for panels of plain weights: the set's own plain_kernels.row filled q, ACTS_PLAIN_BYTES for an input; there is no scale and no sum */
    enum dtype dtype; /* of those weights */
    bool half;        /* half_row filled q and scale */
};

enum { ACTS_PLAIN_BYTES = 4 };

enum { ACTS_TILE = 16, ACTS_TERMS = 2, ACTS_MAX = 1919, ACTS_BYTE_MAX = 127, ACTS_SPAN = 256 };
/* A span whose largest magnitude is not above this is taken for zeros: ACTS_MAX / magnitude must be a number. */
#define ACTS_LEAST 1e-35f

static inline int64_t acts_spans(int64_t in) {
    return (in + ACTS_SPAN - 1) / ACTS_SPAN;
}
/* Groups of the span that begins with group g. */
static inline int64_t acts_span_groups(const struct quant_acts *x, int64_t g) {
    int64_t n = ACTS_SPAN / x->group;
    return x->n_groups - g < n ? x->n_groups - g : n;
}

/* What rows are laid out by. */
static inline void acts_fit(struct quant_acts *x, const struct pack_shape *s) {
    x->bits = s->code_bits;
    x->nested = s->nested;
}

/* Bytes of a q. */
static inline int64_t acts_terms(const struct quant_acts *x) {
    return x->nested ? 1 : ACTS_TERMS;
}

/* Rows of a tile for a batch of this size: a single row lies as it is, small batches are one tile of 4, 8 or 12. */
static inline int32_t acts_tile(int64_t n_rows) {
    return n_rows <= 1 ? 1 : n_rows >= ACTS_TILE ? ACTS_TILE : (int32_t)(n_rows + 3) / 4 * 4;
}

/* Where row `row` begins, how far its low bytes are from the high ones, and the steps to its next group (of q and sum; of
 * scale: to its next span). */
struct acts_row {
    int8_t *q;
    float *scale, *sum;
    int64_t low, q_step, step;
};
static inline struct acts_row acts_row_at(const struct quant_acts *x, int64_t row) {
    int64_t first = row / x->tile * x->tile, m = row % x->tile, low = (int64_t)x->tile * x->group;
    return (struct acts_row){.q = x->q + first * acts_terms(x) * x->in + m * x->group,
                             .scale = x->scale + first * acts_spans(x->in) + m,
                             .sum = x->sum + first * x->n_groups + m,
                             .low = low,
                             .q_step = acts_terms(x) * low,
                             .step = x->tile};
}

/* Spans [from, to) of the tile that begins with `row`, as activations of their own. */
static inline struct quant_acts acts_part(const struct quant_acts *x, int64_t row, int64_t from, int64_t to) {
    struct acts_row at = acts_row_at(x, row);
    int64_t g = from * (ACTS_SPAN / x->group), end = to * (ACTS_SPAN / x->group);
    struct quant_acts part = {.q = at.q + g * at.q_step, .scale = at.scale + from * at.step, .sum = at.sum + g * at.step};
    part.n_groups = (end < x->n_groups ? end : x->n_groups) - g;
    part.in = part.n_groups * x->group;
    part.group = x->group;
    part.tile = x->tile;
    part.bits = x->bits;
    part.nested = x->nested;
    return part;
}

/* Outputs of some panels, one after the other in memory, for `n_rows` rows of activations: y[r][16 p + i]. */
struct panel_args {
    const struct pack_shape *shape;
    const unsigned char *panels;
    int64_t n_panels;
    struct quant_acts x;
    int64_t n_rows;
    float *y;
    int64_t y_stride;
};

/* y[r] = dot(w, x[r]) over a plain row of weights. */
struct plain_args {
    const void *w;
    enum dtype dtype; /* F32, F16, BF16 */
    const float *x;
    int64_t x_stride, n, n_rows;
    float *y;
    int64_t y_stride;
};

/* n inputs from `first` on of rows in half precision, in tiles of HALF_TILE, with a panel of half numbers, [n][PANEL_ROWS], which were divided by w_scale.
 * Inputs are multiples of eight. */
enum { HALF_TILE = 8 };
struct half_args {
    const uint16_t *w;
    float w_scale;
    const struct quant_acts *x;
    int64_t first, n, n_rows;
    float *y;
    int64_t y_stride;
    bool adds; /* to what y holds */
};

/* One block of the half-precision cache against some heads that share it. */
enum { KV_BLOCK_POS = 64 };
struct attn_block {
    const uint16_t *cache; /* f16: keys transposed, [width][64]; values [64][width] */
    int32_t width, heads;
    const float *q; /* [heads], q_stride apart */
    int64_t q_stride;
    float *scores; /* [heads][64], scores_stride apart: written by scores, read by mix */
    int64_t scores_stride;
    float scale;
    float *out; /* [heads][width], out_stride apart */
    int64_t out_stride;
    int32_t first, last;  /* positions that mix adds */
    const uint16_t *next; /* what is read after this block: asked for on the way; any address that lies in a block */
};

/* The cache of 8 or 4 bits (kern_kv_tmpl.h). A query, or the weights of some positions, as multipliers: in the order that the
 * set's own loops want. */
enum { KV_WIDTH_MAX = 256, KV_HEADS_MAX = 8, KV_SCALE_BYTES = KV_BLOCK_POS * 4 };
enum { KV_MULTIPLIER_MAX = 127 * 256, KV_FINITE_BITS = 0x7F800000 };
#define KV_LEAST 1e-30f /* below it all multipliers are zero */
struct kv_query {
    float scale;
    int32_t sum; /* of the multipliers */
    union {
        int8_t bytes[2 * KV_WIDTH_MAX];
        int16_t pairs[KV_WIDTH_MAX];
    } m;
};

/* What is read after a block is asked for on the way, line by line from KV_ASKS places in turn: memory answers several streams
 * faster than one. Any address will do. */
enum { KV_ASKS = 4, KV_LINE = 64 };
static inline void kern_ask(const unsigned char *const *ask, uint32_t line) {
    __builtin_prefetch(ask[line % KV_ASKS] + (size_t)(line / KV_ASKS) * KV_LINE);
}

/* One block of one key head against some heads that share it; widths are multiples of 16. */
struct kv_block {
    const unsigned char *cache, *ask[KV_ASKS];
    int32_t width, bits, heads;
    const struct kv_query *q; /* [heads] */
    float scale;
    float *scores; /* [heads][64], scores_stride apart: written by scores, read by mix */
    int64_t scores_stride;
    float *out; /* [heads][width], out_stride apart: turned values */
    int64_t out_stride;
    int32_t (*range)[2]; /* [heads] positions that mix adds */
};

/* Elements that are turned together: the largest power of two that divides the width. */
static inline int32_t kv_turn_size(int32_t width) {
    return width & -width;
}

/* Bytes of one block of one head. */
static inline size_t kv_block_size(int32_t width, int32_t bits) {
    return KV_SCALE_BYTES + (size_t)(KV_BLOCK_POS * width * bits / 8);
}

/* Products over panels of plain weights, whose order is `unit` (pack.h). A set lays out a tile's activations, [tiles][all inputs
 * of a tile], in its own way. NULL: the weights stay as they are. */
struct plain_kernels {
    void (*row)(const float *x, const struct quant_acts *out, int64_t row);
    void (*panel)(const struct panel_args *a);
    int32_t unit;
};

struct kernels {
    const char *isa; /* for the start-up line and --version */
    float (*dot)(const float *a, const float *b, int64_t n);
    void (*axpy)(float *y, const float *x, float scale, int64_t n); /* y += scale * x */
    void (*unpack)(const struct format *f, const struct quant_row *row, int64_t first, int64_t n, float *out);
    void (*act)(float *x, int64_t n, const struct act_args *a); /* in place */
    float (*exp_sum)(float *x, int64_t n, float max);           /* x = exp(x - max); returns the sum */
    double (*sum_squares)(const float *x, int64_t n);
    double (*sum)(const float *x, int64_t n);
    float (*max)(const float *x, int64_t n, float least); /* the largest of them and `least`; what is no number is passed over */
    /* Integer products over packed panels. NULL: this set has none, and weights stay as they are. A set may order the
     * codes inside one group of a tile in its own way: only its own panel reads what its quant_row wrote. */
    void (*quant_row)(const float *x, const struct quant_acts *out, int64_t row);
    void (*panel)(const struct panel_args *a);
    /* The same bits by another way, for fewer rows than many_rows (kern_panel). NULL: panel takes any number. */
    void (*panel_few)(const struct panel_args *a);
    int64_t many_rows;
    /* The same over nested panels, with rows of activations of their own. What a row of weights makes of them: from 0, for each span, the sum of the
     * groups' (dot product - centre times sum) times their bytes, a whole number, times scale_1; plus, fma, the sum of sum times bias byte, a whole
     * number, times bias_1; all that, fma, times the span's scale. NULL: weights are not nested. */
    void (*nested_row)(const float *x, const struct quant_acts *out, int64_t row);
    void (*nested)(const struct panel_args *a);
    float row_more; /* what each further row of a step takes, in steps of one row: for drafts; 0: a quarter */
    struct plain_kernels f32, f16, bf16;
    /* Many rows over panels of 16-bit weights, in half precision where nobody asks for more; n_rows from a multiple of eight on. NULL: this set has nothing quicker
     * than the above. */
    void (*half_row)(const float *x, const struct quant_acts *out, int64_t row);
    void (*half_panel)(const struct panel_args *a);
    /* The parts of attention in half precision. inputs: see half_args. weights: e^(score - most) as a row of such activations, n a multiple of eight; returns
     * their sum. half_row makes one of queries. NULL: there is none. */
    void (*half_inputs)(const struct half_args *a);
    float (*half_weights)(const float *scores, int64_t n, float most, const struct quant_acts *out, int64_t row);
    /* NULL: unpack and dot. */
    void (*plain)(const struct plain_args *a);
    /* Attention over a half-precision cache; widths are multiples of 16. NULL: the cache stays f32. */
    void (*block_scores)(const struct attn_block *b);
    void (*block_mix)(const struct attn_block *b);
    void (*store_f16)(uint16_t *out, const float *x, int64_t n);
    /* Attention over a cache of 8 or 4 bits; every set gives the same bits. turn: the Hadamard transform, in place. store: a key
     * or a value as codes, a byte each; returns their scale. */
    void (*kv_turn)(float *x, int32_t width);
    void (*kv_query)(const float *x, int32_t width, struct kv_query *out);
    float (*kv_store)(const float *x, int32_t width, int32_t bits, uint8_t *codes);
    void (*kv_scores)(const struct kv_block *b);
    void (*kv_mix)(const struct kv_block *b);
};

static inline const struct plain_kernels *kern_plain(const struct kernels *k, enum dtype dtype) {
    return dtype == DT_F32 ? &k->f32 : dtype == DT_F16 ? &k->f16 : &k->bf16;
}

/* Products by the way that is the faster one for so many rows. */
static inline void kern_panel(const struct kernels *k, const struct panel_args *a) {
    if (a->x.half) k->half_panel(a);
    else if (a->x.plain) kern_plain(k, a->x.dtype)->panel(a);
    else if (a->shape->nested) k->nested(a);
    else if (k->panel_few && a->n_rows < k->many_rows) k->panel_few(a);
    else k->panel(a);
}

/* A row of activations for them. */
static inline void kern_acts_row(const struct kernels *k, const float *x, const struct quant_acts *out, int64_t row) {
    if (out->half) k->half_row(x, out, row);
    else if (out->plain) kern_plain(k, out->dtype)->row(x, out, row);
    else if (out->nested) k->nested_row(x, out, row);
    else k->quant_row(x, out, row);
}

void kern_ref(struct kernels *k);
void kern_ref_act(float *x, int64_t n, const struct act_args *a);
void kern_kv_ref(struct kernels *k);
#if defined(__x86_64__)
void kern_avx2(struct kernels *k);
void kern_avx2_nested(struct kernels *k);
void kern_avxvnni(struct kernels *k); /* over kern_avx2 */
void kern_avx512(struct kernels *k);  /* over kern_avx2 */
void kern_vnni(struct kernels *k);    /* over kern_avx512 */
void kern_vnni_panel(const struct panel_args *a);
void kern_vnni_nested(struct kernels *k);
void kern_vnni_nested_panel(const struct panel_args *a);
void kern_amx(struct kernels *k); /* over kern_vnni */
void kern_amx_nested(struct kernels *k);
void kern_amx_plain(struct kernels *k); /* over kern_amx */
void kern_avx512_plain(struct kernels *k);
void kern_avx2_plain(struct kernels *k);
void kern_kv_avx2(struct kernels *k);
void kern_kv_vnni(struct kernels *k);
#elif defined(__aarch64__)
void kern_neon(struct kernels *k);
void kern_neon_plain(struct kernels *k);
void kern_half(struct kernels *k);
void kern_dotprod(struct kernels *k);
void kern_dotprod_nested(struct kernels *k);
void kern_i8mm(struct kernels *k);   /* over kern_dotprod */
void kern_bfmmla(struct kernels *k); /* over kern_i8mm */
void kern_kv_dotprod(struct kernels *k);
#endif
/* Fills k for the flags of os/cpu.h, reference first. */
void kern_select(struct kernels *k, uint32_t flags);
/* One line per kernel: what it does, and the set that it comes from. */
void kern_describe(uint32_t flags, struct sb *out);

#endif
