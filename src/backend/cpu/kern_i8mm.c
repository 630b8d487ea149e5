/* NEON with int8 matrix products: usmmla multiplies two rows of codes with two rows of activations, eight inputs at a time.
 *
 * Rows of eight inputs come from lines of a panel, which hold four: a zip of two lines makes two rows of four and four, still two
 * codes to a byte. So the inputs of a step are 0 .. 3 and 8 .. 11 of sixteen, then 4 .. 7 and 12 .. 15, and activations lie in the
 * same order, in blocks of eight rows (or four, where a tile is 4 or 12): [steps][high, low][pairs of rows][2][8].
 * - One row: its high bytes and its low ones are the pair. Several panels advance together, group by group.
 * - More rows: tiles of eight by eight. The codes of a span of some panels are spread into bytes once for all rows, sixteenfold for
 *   the high bytes of 4-bit codes, so that both products add to one sum; 8-bit codes take the high bytes first, and shift.
 * Integer sums are exact: the results are the same bits as those of the other sets.
 */
#include "backend/cpu/kern_arm.h"

/* A span of BLOCK panels and of eight rows of activations stay in the level-1 cache (64 KB on the machines meant), the sums of ROW_BLOCK
 * rows in the level-2 cache. */
enum { PAIRS = 4, HALF_ROWS = 8, HALVES = 2, BLOCK = 4, ROW_BLOCK = 256 };
enum { STEP_BYTES = PAIRS * 16, SPAN_BYTES = ACTS_SPAN * HALF_ROWS * ACTS_TERMS, TILE_FLOATS = 64 };
enum { SPAN_NUMBERS = ACTS_SPAN / 16 * 2 * 2 * HALF_ROWS };

/* Some groups of half a panel as they lie. */
struct half {
    const unsigned char *codes, *scales, *biases; /* from the eight rows' first ones on */
    size_t group_bytes;
    int64_t n_groups;
    int32_t group;
    bool narrow;
};

/* One span of half a panel against a block of rows. A sum of floats is kept as its integers came, [weights][activations] of a pair. */
struct span {
    struct half half;
    const unsigned char *codes; /* spread ones with their numbers; NULL: as they lie */
    const float *numbers;
    const int8_t *q;
    int64_t q_line, q_step;     /* bytes from the high to the low ones of a step; from group to group */
    const float *sums, *scales; /* of the block's rows, each pair twice: [groups][8][2], [8][2] */
    float *acc;                 /* [n_pairs][PAIRS][4] */
};

/* ---- codes -------------------------------------------------------------------------------------------------------- */

INLINE uint8x16_t zip_first(uint8x16_t a, uint8x16_t b) {
    return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}
INLINE uint8x16_t zip_second(uint8x16_t a, uint8x16_t b) {
    return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}

/* Two lines of n quads of rows as pairs of rows. */
INLINE void load_pairs(const unsigned char *p, size_t to_second, uint8x16_t *w, const int n) {
    UNROLL for (int i = 0; i < n; i++) {
        uint8x16_t a = vld1q_u8(p + 16 * i), b = vld1q_u8(p + to_second + 16 * i);
        w[2 * i] = zip_first(a, b);
        w[2 * i + 1] = zip_second(a, b);
    }
}

/* The codes of one group of half a panel as bytes: 4-bit ones [steps][16 times, once][pairs][16], 8-bit ones [steps][pairs][16]. */
INLINE void spread_group(const unsigned char *p, int32_t group, unsigned char *out, const int bits) {
    for (int32_t k = 0; k < group; k += 16) {
        uint8x16_t w[PAIRS];
        for (int odd = 0; odd < 2 && bits == 8; odd++, p += PANEL_LINE, out += STEP_BYTES) {
            load_pairs(p, 2 * PANEL_LINE, w, 2);
            for (int i = 0; i < PAIRS; i++) vst1q_u8(out + 16 * i, w[i]);
        }
        if (bits == 8) {
            p += 2 * PANEL_LINE;
            continue;
        }
        load_pairs(p, PANEL_LINE, w, 2);
        for (int i = 0; i < PAIRS; i++) {
            vst1q_u8(out + 16 * i, vshlq_n_u8(w[i], 4));
            vst1q_u8(out + STEP_BYTES + 16 * i, vandq_u8(w[i], vdupq_n_u8(15)));
            vst1q_u8(out + 2 * STEP_BYTES + 16 * i, vandq_u8(w[i], vdupq_n_u8(0xF0)));
            vst1q_u8(out + 3 * STEP_BYTES + 16 * i, vshrq_n_u8(w[i], 4));
        }
        p += 2 * PANEL_LINE;
        out += 4 * STEP_BYTES;
    }
}

/* Eight scales or biases, each twice. */
INLINE void spread_numbers(const unsigned char *p, float *out, const int narrow) {
    UNROLL for (int i = 0; i < 2; i++) {
        float32x4_t v = arm_scales(p, 4 * i, narrow);
        vst1q_f32(out + 8 * i, vzip1q_f32(v, v));
        vst1q_f32(out + 8 * i + 4, vzip2q_f32(v, v));
    }
}

/* n groups of half a panel. numbers: [n][scale, bias][8][2]. */
INLINE void spread(const struct half *s, unsigned char *codes, float *numbers, const int bits) {
    for (int64_t g = 0; g < s->n_groups; g++, numbers += 4 * HALF_ROWS) {
        size_t at = (size_t)g * s->group_bytes;
        spread_group(s->codes + at, s->group, codes, bits);
        codes += (size_t)s->group * HALF_ROWS * (bits == 4 ? ACTS_TERMS : 1);
        spread_numbers(s->scales + at, numbers, s->narrow);
        spread_numbers(s->biases + at, numbers + 2 * HALF_ROWS, s->narrow);
    }
}
static NOINLINE void spread_4_bits(const struct half *s, unsigned char *codes, float *numbers) {
    spread(s, codes, numbers, 4);
}
static NOINLINE void spread_8_bits(const struct half *s, unsigned char *codes, float *numbers) {
    spread(s, codes, numbers, 8);
}

/* ---- tiles -------------------------------------------------------------------------------------------------------- */

INLINE void line_products(const uint8x16_t w[PAIRS], const int8_t *q, int32x4_t t[PAIRS * PAIRS], const int n_pairs) {
    UNROLL for (int i = 0; i < n_pairs; i++) {
        int8x16_t x = vld1q_s8(q + 16 * i);
        UNROLL for (int j = 0; j < PAIRS; j++) t[i * PAIRS + j] = vusmmlaq_s32(t[i * PAIRS + j], w[j], x);
    }
}

/* n lines of codes against lines of activations. The loop is as long as the registers allow: unrolled, gcc moves sums about. */
INLINE void products(const unsigned char *codes, const int8_t *q, int64_t q_step, int32_t n, int32x4_t t[PAIRS * PAIRS],
                     const int n_pairs) {
    ROLLED for (int32_t k = 0; k < n; k++, codes += STEP_BYTES, q += q_step) {
        uint8x16_t w[PAIRS];
        UNROLL for (int j = 0; j < PAIRS; j++) w[j] = vld1q_u8(codes + 16 * j);
        line_products(w, q, t, n_pairs);
    }
}

/* The same of 4-bit codes as they lie in a panel: few rows leave registers for sums of high and of low bytes. */
INLINE void direct_products(const unsigned char *p, const int8_t *q, int64_t q_step, int32_t group, int32x4_t t[PAIRS * PAIRS],
                            const int n_pairs) {
    const int32_t *zero = arm_begin()->zero;
    int32x4_t high[PAIRS * PAIRS];
    UNROLL for (int i = 0; i < n_pairs * PAIRS; i++) high[i] = vld1q_s32(zero + 4 * i);
    ROLLED for (int32_t k = 0; k < group; k += 16, p += 2 * PANEL_LINE, q += 4 * q_step) {
        uint8x16_t w[PAIRS], part[PAIRS];
        load_pairs(p, PANEL_LINE, w, 2);
        UNROLL for (int j = 0; j < PAIRS; j++) part[j] = vandq_u8(w[j], vdupq_n_u8(15));
        line_products(part, q, high, n_pairs);
        line_products(part, q + q_step, t, n_pairs);
        UNROLL for (int j = 0; j < PAIRS; j++) part[j] = vshrq_n_u8(w[j], 4);
        line_products(part, q + 2 * q_step, high, n_pairs);
        line_products(part, q + 3 * q_step, t, n_pairs);
    }
    UNROLL for (int i = 0; i < n_pairs * PAIRS; i++) t[i] = vmlaq_s32(t[i], high[i], vdupq_n_s32(16));
}

/* Group g: its integers, weighed, are added to the span's sums; those of the last one make the span whole. */
INLINE void span_group(const struct span *s, int64_t g, float *restrict acc, float32x4_t inner[PAIRS * PAIRS], const int n_pairs,
                       const int bits, const int direct, const int first, const int last) {
    const float *numbers = s->numbers + 4 * HALF_ROWS * g, *sums = s->sums + 16 * g;
    const struct arm_begin *begin = arm_begin();
    const int8_t *q = s->q + g * s->q_step;
    int32x4_t t[PAIRS * PAIRS];
    UNROLL for (int i = 0; i < n_pairs * PAIRS; i++) t[i] = vld1q_s32((bits == 4 ? begin->start : begin->zero) + 4 * i);
    float own[4 * HALF_ROWS];
    if (direct) {
        size_t at = (size_t)g * s->half.group_bytes;
        direct_products(s->half.codes + at, q, s->q_line, s->half.group, t, n_pairs);
        spread_numbers(s->half.scales + at, own, s->half.narrow);
        spread_numbers(s->half.biases + at, own + 2 * HALF_ROWS, s->half.narrow);
        numbers = own;
    } else if (bits == 4) {
        products(s->codes + (size_t)g * (size_t)s->half.group * HALF_ROWS * ACTS_TERMS, q, s->q_line, s->half.group / 4, t, n_pairs);
    } else {
        const unsigned char *codes = s->codes + (size_t)g * (size_t)s->half.group * HALF_ROWS;
        products(codes, q, 2 * s->q_line, s->half.group / 8, t, n_pairs);
        UNROLL for (int i = 0; i < n_pairs * PAIRS; i++) t[i] = vshlq_n_s32(t[i], 4);
        products(codes, q + s->q_line, 2 * s->q_line, s->half.group / 8, t, n_pairs);
    }
    UNROLL for (int i = 0; i < n_pairs; i++) {
        float32x4_t sum = vld1q_f32(sums + 4 * i), scale = vld1q_f32(s->scales + 4 * i);
        UNROLL for (int j = 0; j < PAIRS; j++) {
            const int k = i * PAIRS + j;
            float32x4_t v = first ? vreinterpretq_f32_s32(vld1q_s32(begin->zero + 4 * k)) : inner[k];
            v = vfmaq_f32(v, bits == 4 ? arm_float(t[k]) : vcvtq_f32_s32(t[k]), vld1q_f32(numbers + 4 * j));
            v = vfmaq_f32(v, vld1q_f32(numbers + 2 * HALF_ROWS + 4 * j), sum);
            if (last) vst1q_f32(acc + 4 * k, vfmaq_f32(vld1q_f32(acc + 4 * k), v, scale));
            else inner[k] = v;
        }
    }
}

INLINE void span_of(const struct span *whole, const int n_pairs, const int bits, const int direct) {
    const struct span local = *whole, *s = &local; /* what is stored cannot change it */
    float32x4_t inner[PAIRS * PAIRS];
    if (s->half.n_groups == 1) {
        span_group(s, 0, s->acc, inner, n_pairs, bits, direct, 1, 1);
        return;
    }
    span_group(s, 0, s->acc, inner, n_pairs, bits, direct, 1, 0);
    for (int64_t g = 1; g < s->half.n_groups - 1; g++) span_group(s, g, s->acc, inner, n_pairs, bits, direct, 0, 0);
    span_group(s, s->half.n_groups - 1, s->acc, inner, n_pairs, bits, direct, 0, 1);
}

static NOINLINE void span_8_rows_4_bits(const struct span *s) {
    span_of(s, 4, 4, 0);
}
static NOINLINE void span_8_rows_8_bits(const struct span *s) {
    span_of(s, 4, 8, 0);
}
static NOINLINE void span_4_rows_4_bits(const struct span *s) {
    span_of(s, 2, 4, 0);
}
static NOINLINE void span_4_rows_8_bits(const struct span *s) {
    span_of(s, 2, 8, 0);
}
static NOINLINE void span_4_rows_direct(const struct span *s) {
    span_of(s, 2, 4, 1);
}
static NOINLINE void span_2_rows_direct(const struct span *s) {
    span_of(s, 1, 4, 1);
}

static void span_run(const struct span *s, int64_t kept, int32_t bits) {
    if (!s->codes) {
        if (kept > 2) span_4_rows_direct(s);
        else span_2_rows_direct(s);
    } else if (kept > 4) {
        if (bits == 4) span_8_rows_4_bits(s);
        else span_8_rows_8_bits(s);
    } else {
        if (bits == 4) span_4_rows_4_bits(s);
        else span_4_rows_8_bits(s);
    }
}

/* Some rows against some panels. */
struct block {
    const struct panel_args *a;
    int64_t row, n_rows, panel, n_panels;
    unsigned char (*codes)[SPAN_BYTES]; /* [BLOCK * HALVES] */
    float (*numbers)[SPAN_NUMBERS];     /* the same */
    float (*sums)[TILE_FLOATS];         /* [ROW_BLOCK / 8][BLOCK * HALVES] */
};

/* Half h of the block's panels, groups [g, g + n). */
static struct half half_at(const struct block *b, int64_t h, int64_t g, int64_t n) {
    const struct pack_shape *s = b->a->shape;
    size_t odd = (size_t)(h % HALVES), number = s->narrow_scales ? 2 : 4;
    const unsigned char *p = b->a->panels + (size_t)(b->panel + h / HALVES) * s->panel_bytes + (size_t)g * s->group_bytes;
    const unsigned char *scales = p + (size_t)s->group * PANEL_ROWS * (size_t)s->code_bits / 8 + odd * HALF_ROWS * number;
    return (struct half){p + odd * 32, scales, scales + PANEL_ROWS * number, s->group_bytes, n, s->group, s->narrow_scales};
}

/* Pairs of rows, each twice. */
static void pairs_twice(const float *from, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 2, out += 4) {
        float32x2_t pair = vld1_f32(from + i);
        vst1q_f32(out, vcombine_f32(pair, pair));
    }
}

/* Asks for half h's share of the groups that come next: of the same panels, or the first ones of the next. */
static void ask_ahead(const struct block *b, int64_t h, int64_t g, int64_t n) {
    const struct pack_shape *s = b->a->shape;
    size_t bytes = (size_t)n * s->group_bytes, panel = (size_t)(b->panel + h / HALVES) * s->panel_bytes;
    size_t next = g + n < b->a->x.n_groups ? panel + (size_t)(g + n) * s->group_bytes : panel + BLOCK * s->panel_bytes;
    for (size_t at = (size_t)(h % HALVES) * PANEL_LINE; at < bytes; at += HALVES * PANEL_LINE)
        __builtin_prefetch(b->a->panels + next + at, 0, 3);
}

/* Groups [g, g + n) of the i-th block of eight rows against all panels. */
static void block_span(const struct block *b, int64_t g, int64_t n, int64_t i, bool direct) {
    const struct quant_acts *x = &b->a->x;
    float sums[ACTS_SPAN / 16][16], scales[16];
    int64_t row = b->row + 8 * i, first = row % x->tile, in_block = x->tile - first < 8 ? x->tile - first : 8;
    int64_t kept = b->n_rows - 8 * i < in_block ? b->n_rows - 8 * i : in_block;
    struct acts_row at = acts_row_at(x, row - first);
    const int8_t *q = at.q + g * at.q_step + first * ACTS_TERMS * x->group;
    for (int64_t k = 0; k < n; k++) pairs_twice(at.sum + (g + k) * at.step + first, in_block, sums[k]);
    pairs_twice(at.scale + g * x->group / ACTS_SPAN * at.step + first, in_block, scales);
    for (int64_t h = 0; h < b->n_panels * HALVES; h++) {
        if (i == 0) ask_ahead(b, h, g, n);
        span_run(&(struct span){.half = half_at(b, h, g, n),
                                .codes = direct ? NULL : b->codes[h],
                                .numbers = b->numbers[h],
                                .q = q,
                                .q_line = 8 * in_block,
                                .q_step = at.q_step,
                                .sums = sums[0],
                                .scales = scales,
                                .acc = b->sums[i * BLOCK * HALVES + h]},
                 kept, b->a->shape->code_bits);
    }
}

/* 4-bit codes are spread on the way where there are as few rows as that is faster for. */
static void block_groups(const struct block *b, int64_t g, int64_t n) {
    bool direct = b->n_rows <= 4 && b->a->shape->code_bits == 4;
    for (int64_t h = 0; h < b->n_panels * HALVES && !direct; h++) {
        struct half half = half_at(b, h, g, n);
        if (b->a->shape->code_bits == 4) spread_4_bits(&half, b->codes[h], b->numbers[h]);
        else spread_8_bits(&half, b->codes[h], b->numbers[h]);
    }
    for (int64_t i = 0; 8 * i < b->n_rows; i++) block_span(b, g, n, i, direct);
}

/* The sums of a pair of rows and four weights become two rows. */
static void store_block(const struct block *b) {
    const struct panel_args *a = b->a;
    for (int64_t row = 0; row < b->n_rows; row += 2)
        for (int64_t h = 0; h < b->n_panels * HALVES; h++) {
            const float *sums = b->sums[row / 8 * BLOCK * HALVES + h] + row % 8 / 2 * PAIRS * 4;
            float *y = a->y + (b->row + row) * a->y_stride + b->panel * PANEL_ROWS + h * HALF_ROWS;
            for (int i = 0; i < 2; i++) {
                float32x4_t v0 = vld1q_f32(sums + 8 * i), v1 = vld1q_f32(sums + 8 * i + 4);
                vst1q_f32(y + 4 * i, vuzp1q_f32(v0, v1));
                if (row + 1 < b->n_rows) vst1q_f32(y + a->y_stride + 4 * i, vuzp2q_f32(v0, v1));
            }
        }
}

static void many_rows(const struct panel_args *a) {
    unsigned char codes[BLOCK * HALVES][SPAN_BYTES] __attribute__((aligned(64)));
    float numbers[BLOCK * HALVES][SPAN_NUMBERS] __attribute__((aligned(64)));
    float sums[ROW_BLOCK / 8 * BLOCK * HALVES][TILE_FLOATS] __attribute__((aligned(64)));
    struct block b = {.a = a, .codes = codes, .numbers = numbers, .sums = sums};
    for (b.row = 0; b.row < a->n_rows; b.row += ROW_BLOCK)
        for (b.panel = 0; b.panel < a->n_panels; b.panel += BLOCK) {
            b.n_rows = a->n_rows - b.row < ROW_BLOCK ? a->n_rows - b.row : ROW_BLOCK;
            b.n_panels = a->n_panels - b.panel < BLOCK ? a->n_panels - b.panel : BLOCK;
            memset(sums, 0, (size_t)((b.n_rows + 7) / 8) * sizeof *sums * BLOCK * HALVES);
            for (int64_t g = 0, n; g < a->x.n_groups; g += n) {
                n = acts_span_groups(&a->x, g);
                block_groups(&b, g, n);
            }
            store_block(&b);
        }
}

/* ---- one row ------------------------------------------------------------------------------------------------------ */

/* The integers of a panel's group: [pairs of rows][row][high, low]. Returns where its scales are. */
INLINE const unsigned char *row_products(const unsigned char *p, const int8_t *q, int32_t group, size_t ahead, int32x4_t t[2 * PAIRS],
                                         const int bits) {
    for (int32_t k = 0; k < group; k += 16, q += 32, p += 4 * bits * 8) {
        int8x16_t x0 = vld1q_s8(q), x1 = vld1q_s8(q + 16);
        uint8x16_t w[2 * PAIRS];
        UNROLL for (int i = 0; i < bits / 2; i++) __builtin_prefetch(p + ahead + i * PANEL_LINE, 0, 3);
        load_pairs(p, (bits / 4) * PANEL_LINE, w, 4);
        UNROLL for (int i = 0; i < 2 * PAIRS; i++) t[i] = vusmmlaq_s32(t[i], bits == 4 ? vandq_u8(w[i], vdupq_n_u8(15)) : w[i], x0);
        if (bits == 8) load_pairs(p + PANEL_LINE, 2 * PANEL_LINE, w, 4);
        UNROLL for (int i = 0; i < 2 * PAIRS; i++) t[i] = vusmmlaq_s32(t[i], bits == 4 ? vshrq_n_u8(w[i], 4) : w[i], x1);
    }
    return p;
}

INLINE void row_panels(const struct arm_row_group *whole, const int32_t group, const int bits, const int narrow) {
    const struct arm_row_group local = *whole, *r = &local; /* what is stored cannot change it */
    const int32_t *begin = bits == 4 ? arm_begin()->second : arm_begin()->zero;
    for (int64_t i = 0; i < r->n_panels; i++) {
        float *inner = r->inner[i];
        int32x4_t t[2 * PAIRS];
        UNROLL for (int j = 0; j < 2 * PAIRS; j++) t[j] = vld1q_s32(begin + 4 * j);
        const unsigned char *p = row_products(r->p + (size_t)i * r->panel_bytes, r->q, group, r->ahead, t, bits);
        __builtin_prefetch(p + r->ahead, 0, 3);
        UNROLL for (int j = 0; j < PAIRS; j++) {
            int32x4_t high = vuzp1q_s32(t[2 * j], t[2 * j + 1]), low = vuzp2q_s32(t[2 * j], t[2 * j + 1]);
            float32x4_t v = vld1q_f32(inner + 4 * j);
            low = vmlaq_s32(low, high, vdupq_n_s32(16));
            v = vfmaq_f32(v, bits == 4 ? arm_float(low) : vcvtq_f32_s32(low), arm_scales(p, 4 * j, narrow));
            vst1q_f32(inner + 4 * j, vfmaq_n_f32(v, arm_scales(p, PANEL_ROWS + 4 * j, narrow), r->sum));
        }
    }
}

ARM_ROW_KERNELS(row_panels)

static void panel(const struct panel_args *a) {
    if (a->x.tile == 1) arm_one_row(a, &row_kernels);
    else many_rows(a);
}

/* ---- activations -------------------------------------------------------------------------------------------------- */

static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    int64_t m = row % out->tile, first = m / 8 * 8, in_block = out->tile - first < 8 ? out->tile - first : 8;
    struct acts_row at = acts_row_at(out, row);
    struct arm_place to = {at.q - m * out->group, 8, 16};
    if (out->tile > 1) {
        to.q += first * ACTS_TERMS * out->group + (m - first) * 8;
        to.low = 8 * in_block;
        to.step = 16 * in_block;
    }
    arm_quant_row(x, out, at, to, 1);
}

void kern_i8mm(struct kernels *k) {
    k->isa = "neon-i8mm";
    k->quant_row = quant_row;
    k->panel = panel;
    k->nested = NULL; /* ordinary panels: its products take activations of two bytes at the rate that dot products take one */
    k->row_more = 0;
}
