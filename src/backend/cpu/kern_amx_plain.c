/* AMX bf16: tiles of up to 16 rows of activations x 16 rows of weights x 32 inputs, for weights of bf16 and f16.
 *
 * An activation is two bf16 numbers, x = high + low: 16 bits of mantissa. A block of 32 inputs of a panel of bf16 is a tile as
 * it lies; it is multiplied with the low and then with the high terms, and both products add to the same sums. An f16 is the
 * sum of two bf16 numbers too, exactly: its first eight bits and the other three. Blocks of f16 are split into two such tiles
 * before they are used, and a third product adds the second tile times the high terms; what is left out, low times low, is
 * below 2^-15 of a product, and as a rule as small as what an activation lost by rounding. What a product adds to a sum is, by observation over all kinds of numbers: two chains of fused multiply-adds over the 16 pairs of inputs,
 * one of the even and one of the odd inputs, added to each other and then to the sum, numbers below the normal ones taken
 * for zero. It depends neither on the other rows nor on how many there are, and sums may be stored and loaded between
 * blocks: the bits are the same for every number of rows, and a single row goes through tiles too (a row of a tile takes one
 * cycle: less than its weights take to arrive).
 */
#include "backend/cpu/kern_amx.h"

/* STRETCH tiles of two panels stay in the level-1 cache; the blocks of ROW_BLOCK rows of activations, and
 * the sums of PANEL_BLOCK panels, in the level-2 cache. What had to be split serves twice as many rows. */
enum { BLOCK_BYTES = PANEL_LINE * PACK_PLAIN_GROUP / 2, STRETCH = 16, PANEL_BLOCK = 16, ROW_BLOCK = 128 };
enum { TERMS_MAX = 2, TILE_FLOATS = ACTS_TILE * PANEL_ROWS, TILE_STEP = PANEL_ROWS * 4 };

/* Tiles 0 .. 3: sums; 4, 5: weights; 6, 7: activations. */
enum { WEIGHT_TILES = 4 };

INLINE void ask_for(const unsigned char *p) {
#pragma GCC unroll 16
    for (int i = 0; i < BLOCK_BYTES; i += PANEL_LINE) _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

/* A block of f16 as two tiles of bf16, one behind the other, and what lies `ahead` of it is asked for line by line: a core has some
 * sixteen requests under way, and a block is as many. One instruction puts the upper halves of 16 floats beside those of
 * 16 others. */
INLINE void split_block(const unsigned char *p, unsigned char *out, size_t ahead) {
    const __m512i upper = _mm512_set1_epi32((int32_t)0xFFFF0000u), down = _mm512_set4_epi32(0x80800F0E, 0x80800B0A, 0x80800706, 0x80800302);
    const __mmask64 lower = 0x3333333333333333;
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK_BYTES; i += PANEL_LINE) {
        _mm_prefetch((const char *)p + ahead + i, _MM_HINT_T0);
        __m512 first = v_f16((const uint16_t *)(const void *)(p + i)),
               second = v_f16((const uint16_t *)(const void *)(p + i + PANEL_LINE / 2));
        __m512i a = _mm512_castps_si512(first), b = _mm512_castps_si512(second);
        _mm512_store_si512(out + i, _mm512_mask_shuffle_epi8(b, lower, a, down));
        a = _mm512_castps_si512(_mm512_sub_ps(first, _mm512_castsi512_ps(_mm512_and_si512(a, upper))));
        b = _mm512_castps_si512(_mm512_sub_ps(second, _mm512_castsi512_ps(_mm512_and_si512(b, upper))));
        _mm512_store_si512(out + BLOCK_BYTES + i, _mm512_mask_shuffle_epi8(b, lower, a, down));
    }
}

INLINE void zero_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* ---- one tile of rows: up to four panels side by side -------------------------------------------------------------- */

struct few {
    const unsigned char *x, *panels;
    int64_t n_blocks;
    size_t panel_bytes, low; /* low: from the high terms to the low ones */
};

/* Of one, two or four panels. */
INLINE void store_few(float *sums, const int n) {
    TILE_STORE(0, sums, TILE_STEP);
    if (n > 1) TILE_STORE(1, sums + TILE_FLOATS, TILE_STEP);
    if (n > 2) TILE_STORE(2, sums + 2 * TILE_FLOATS, TILE_STEP);
    if (n > 2) TILE_STORE(3, sums + 3 * TILE_FLOATS, TILE_STEP);
}

INLINE void few_panels(const struct few *f, float *sums, const int n) {
    const unsigned char *x = f->x, *p = f->panels;
    zero_sums();
    for (int64_t b = 0; b < f->n_blocks; b++, x += 2 * f->low, p += BLOCK_BYTES) {
        /* the block after this one: of the same panel, or the first one of a panel that comes next */
        size_t ahead = BLOCK_BYTES + (b + 1 < f->n_blocks ? 0 : (size_t)(n - 1) * f->panel_bytes);
        for (int i = 0; i < n; i++) ask_for(p + (size_t)i * f->panel_bytes + ahead);
        TILE_LOAD(6, x + f->low, 64);
        TILE_LOAD(7, x, 64);
        TILE_LOAD(4, p, PANEL_LINE);
        _tile_dpbf16ps(0, 6, 4);
        if (n > 1) TILE_LOAD(5, p + f->panel_bytes, PANEL_LINE);
        if (n > 1) _tile_dpbf16ps(1, 6, 5);
        _tile_dpbf16ps(0, 7, 4);
        if (n > 1) _tile_dpbf16ps(1, 7, 5);
        if (n < 4) continue;
        TILE_LOAD(4, p + 2 * f->panel_bytes, PANEL_LINE);
        _tile_dpbf16ps(2, 6, 4);
        TILE_LOAD(5, p + 3 * f->panel_bytes, PANEL_LINE);
        _tile_dpbf16ps(3, 6, 5);
        _tile_dpbf16ps(2, 7, 4);
        _tile_dpbf16ps(3, 7, 5);
    }
    store_few(sums, n);
}

/* Sums of one panel: the products of a block that is split. */
#define SPLIT_PRODUCTS(sum, at)                       \
    do {                                              \
        TILE_LOAD(4, at, PANEL_LINE);                 \
        _tile_dpbf16ps(sum, 6, 4);                    \
        TILE_LOAD(5, (at) + BLOCK_BYTES, PANEL_LINE); \
        _tile_dpbf16ps(sum, 7, 4);                    \
        _tile_dpbf16ps(sum, 7, 5);                    \
    } while (0)

/* The same for f16. While a block is multiplied the next one is split: tiles are loaded from what was stored long before. */
INLINE void few_panels_split(const struct few *f, float *sums, const int n) {
    unsigned char tiles[2][4][2 * BLOCK_BYTES] __attribute__((aligned(64)));
    const unsigned char *x = f->x, *p = f->panels;
    zero_sums();
    for (int i = 0; i < n; i++) split_block(p + (size_t)i * f->panel_bytes, tiles[0][i], 2 * BLOCK_BYTES);
    for (int64_t b = 0; b < f->n_blocks; b++, x += 2 * f->low) {
        unsigned char(*now)[2 * BLOCK_BYTES] = tiles[b % 2], (*then)[2 * BLOCK_BYTES] = tiles[(b + 1) % 2];
        const bool more = b + 1 < f->n_blocks;
        if (more) p += BLOCK_BYTES;
        size_t ahead = 2 * BLOCK_BYTES + (b + 3 < f->n_blocks ? 0 : (size_t)(n - 1) * f->panel_bytes);
        TILE_LOAD(6, x + f->low, 64);
        TILE_LOAD(7, x, 64);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            if (i == 0) SPLIT_PRODUCTS(0, now[0]);
            if (i == 1) SPLIT_PRODUCTS(1, now[1]);
            if (i == 2) SPLIT_PRODUCTS(2, now[2]);
            if (i == 3) SPLIT_PRODUCTS(3, now[3]);
            if (more) split_block(p + (size_t)i * f->panel_bytes, then[i], ahead);
        }
    }
    store_few(sums, n);
}

INLINE void few_of(const struct few *f, float *sums, const int n, const int terms) {
    if (terms == 1) few_panels(f, sums, n);
    else few_panels_split(f, sums, n);
}

/* Rows of some panels' sums to where they belong. */
static void put_rows(const struct panel_args *a, const float *sums, int64_t row, int64_t n_rows, int64_t panel, int64_t n_panels) {
    for (int64_t m = 0; m < n_rows; m++) {
        float *y = a->y + (row + m) * a->y_stride + panel * PANEL_ROWS;
        for (int64_t p = 0; p < n_panels; p++)
            _mm512_storeu_ps(y + p * PANEL_ROWS, _mm512_load_ps(sums + p * TILE_FLOATS + m * PANEL_ROWS));
    }
}

/* terms: tiles that a block of weights is. */
INLINE void one_tile(const struct panel_args *a, const int terms) {
    float sums[4 * TILE_FLOATS] __attribute__((aligned(64)));
    struct few f = {.x = (const unsigned char *)a->x.q,
                    .n_blocks = a->x.in / PACK_PLAIN_GROUP,
                    .panel_bytes = a->shape->panel_bytes,
                    .low = (size_t)a->x.tile * 64};
    for (int64_t p = 0, n; p < a->n_panels; p += n) {
        f.panels = a->panels + (size_t)p * f.panel_bytes;
        n = a->n_panels - p >= 4 ? 4 : a->n_panels - p >= 2 ? 2 : 1;
        if (n == 4) few_of(&f, sums, 4, terms);
        else if (n == 2) few_of(&f, sums, 2, terms);
        else few_of(&f, sums, 1, terms);
        put_rows(a, sums, 0, a->n_rows, p, n);
    }
}

/* ---- many rows: blocks of two tiles x two panels ------------------------------------------------------------------- */

/* Blocks [0, n_blocks) of one or two tiles of rows and one or two panels, and what is read next. */
struct stretch {
    const unsigned char *x, *p, *next;
    size_t x_step, p_step, next_step; /* to the other tile, the other panel, and that of what is next */
    int64_t n_blocks;
    bool first; /* nothing to add to */
    float *sums, *sums_2;
};

INLINE void load_sums(const struct stretch *s, const int n_tiles, const int n_panels) {
    TILE_LOAD(0, s->sums, TILE_STEP);
    if (n_panels > 1) TILE_LOAD(1, s->sums + TILE_FLOATS, TILE_STEP);
    if (n_tiles > 1) TILE_LOAD(2, s->sums_2, TILE_STEP);
    if (n_tiles > 1 && n_panels > 1) TILE_LOAD(3, s->sums_2 + TILE_FLOATS, TILE_STEP);
}

INLINE void store_sums(const struct stretch *s, const int n_tiles, const int n_panels) {
    TILE_STORE(0, s->sums, TILE_STEP);
    if (n_panels > 1) TILE_STORE(1, s->sums + TILE_FLOATS, TILE_STEP);
    if (n_tiles > 1) TILE_STORE(2, s->sums_2, TILE_STEP);
    if (n_tiles > 1 && n_panels > 1) TILE_STORE(3, s->sums_2 + TILE_FLOATS, TILE_STEP);
}

/* One term of one block, whose weights are in tiles 4 and 5. */
INLINE void products(const unsigned char *x, size_t x_step, const int n_tiles, const int n_panels) {
    TILE_LOAD(6, x, 64);
    _tile_dpbf16ps(0, 6, 4);
    if (n_panels > 1) _tile_dpbf16ps(1, 6, 5);
    if (n_tiles > 1) {
        TILE_LOAD(7, x + x_step, 64);
        _tile_dpbf16ps(2, 7, 4);
        if (n_panels > 1) _tile_dpbf16ps(3, 7, 5);
    }
}

/* The same with the activations that are in tiles 6 and 7. */
INLINE void products_again(const int n_tiles, const int n_panels) {
    _tile_dpbf16ps(0, 6, 4);
    if (n_panels > 1) _tile_dpbf16ps(1, 6, 5);
    if (n_tiles > 1) _tile_dpbf16ps(2, 7, 4);
    if (n_tiles > 1 && n_panels > 1) _tile_dpbf16ps(3, 7, 5);
}

INLINE void run_stretch(const struct stretch *s, const int n_tiles, const int n_panels, const int terms) {
    const unsigned char *x = s->x, *p = s->p, *next = s->next;
    if (s->first) {
        zero_sums();
    } else {
        load_sums(s, n_tiles, n_panels);
    }
    for (int64_t b = 0; b < s->n_blocks; b++, p += terms * BLOCK_BYTES, x += 2 * ACTS_TILE * 64) {
        if (next) {
            ask_for(next);
            if (n_panels > 1) ask_for(next + s->next_step);
            next += BLOCK_BYTES;
        }
        TILE_LOAD(4, p, PANEL_LINE);
        if (n_panels > 1) TILE_LOAD(5, p + s->p_step, PANEL_LINE);
        products(x + ACTS_TILE * 64, s->x_step, n_tiles, n_panels);
        products(x, s->x_step, n_tiles, n_panels);
        if (terms == 1) continue;
        TILE_LOAD(4, p + BLOCK_BYTES, PANEL_LINE);
        if (n_panels > 1) TILE_LOAD(5, p + s->p_step + BLOCK_BYTES, PANEL_LINE);
        products_again(n_tiles, n_panels);
    }
    store_sums(s, n_tiles, n_panels);
}

/* Some rows against some panels. */
struct block {
    const struct panel_args *a;
    int64_t row, n_rows, panel, n_panels;
    float *sums;          /* [tiles][PANEL_BLOCK][TILE_FLOATS] */
    unsigned char *split; /* of f16: [2][STRETCH tiles] */
};

/* A stretch of one or two panels from `panel` on, against all tiles. The first tiles ask for what comes next. */
INLINE void panels_of_block(const struct block *b, struct stretch s, int64_t panel, const unsigned char *next, const int terms) {
    int64_t n_tiles = (b->n_rows + ACTS_TILE - 1) / ACTS_TILE;
    const unsigned char *x = s.x;
    bool two = panel + 1 < b->n_panels;
    s.next_step = s.p_step;
    if (terms > 1) {
        for (int64_t i = 0; i < (two ? 2 : 1) * s.n_blocks; i++)
            split_block(s.p + (size_t)(i / s.n_blocks) * s.p_step + (size_t)(i % s.n_blocks) * BLOCK_BYTES,
                        b->split + (i / s.n_blocks * STRETCH + i % s.n_blocks * 2) * BLOCK_BYTES, 0);
        s.p = b->split;
        s.p_step = STRETCH * BLOCK_BYTES;
    }
    for (int64_t t = 0; t < n_tiles; t += 2) {
        s.x = x + (size_t)t * s.x_step;
        s.next = t == 0 ? next : NULL;
        s.sums = b->sums + (t * PANEL_BLOCK + panel) * TILE_FLOATS;
        s.sums_2 = s.sums + PANEL_BLOCK * TILE_FLOATS;
        if (t + 1 < n_tiles) {
            if (two) run_stretch(&s, 2, 2, terms);
            else run_stretch(&s, 2, 1, terms);
        } else {
            if (two) run_stretch(&s, 1, 2, terms);
            else run_stretch(&s, 1, 1, terms);
        }
    }
}

INLINE void run_block(const struct block *b, const int terms) {
    const int64_t stretch = STRETCH / terms;
    const struct panel_args *a = b->a;
    int64_t n_blocks = a->x.in / PACK_PLAIN_GROUP, n_pairs = (b->n_panels + 1) / 2;
    const unsigned char *panels = a->panels + (size_t)b->panel * a->shape->panel_bytes;
    for (int64_t g = 0; g < n_blocks; g += stretch)
        for (int64_t i = 0; i < n_pairs; i++) {
            struct stretch s = {.x = (const unsigned char *)a->x.q + b->row * ACTS_PLAIN_BYTES * a->x.in + g * 2 * ACTS_TILE * 64,
                                .p = panels + (size_t)(2 * i) * a->shape->panel_bytes + (size_t)g * BLOCK_BYTES,
                                .x_step = (size_t)(ACTS_TILE * ACTS_PLAIN_BYTES * a->x.in),
                                .p_step = a->shape->panel_bytes,
                                .n_blocks = n_blocks - g < stretch ? n_blocks - g : stretch,
                                .first = g == 0};
            const unsigned char *next = i + 1 < n_pairs          ? s.p + 2 * s.p_step
                                        : g + stretch < n_blocks ? panels + (size_t)(g + stretch) * BLOCK_BYTES
                                                                 : panels + PANEL_BLOCK * s.p_step;
            panels_of_block(b, s, 2 * i, next, terms);
        }
    for (int64_t m = 0; m < b->n_rows; m += ACTS_TILE)
        put_rows(a, b->sums + m * PANEL_BLOCK * PANEL_ROWS, b->row + m, b->n_rows - m < ACTS_TILE ? b->n_rows - m : ACTS_TILE, b->panel,
                 b->n_panels);
}

INLINE void many_tiles(const struct panel_args *a, const int terms) {
    unsigned char split[2 * STRETCH * BLOCK_BYTES] __attribute__((aligned(64)));
    float sums[TERMS_MAX * ROW_BLOCK / ACTS_TILE * PANEL_BLOCK * TILE_FLOATS] __attribute__((aligned(64)));
    const int64_t row_block = terms * ROW_BLOCK;
    struct block b = {.a = a, .sums = sums, .split = split};
    for (b.row = 0; b.row < a->n_rows; b.row += row_block)
        for (b.panel = 0; b.panel < a->n_panels; b.panel += PANEL_BLOCK) {
            b.n_rows = a->n_rows - b.row < row_block ? a->n_rows - b.row : row_block;
            b.n_panels = a->n_panels - b.panel < PANEL_BLOCK ? a->n_panels - b.panel : PANEL_BLOCK;
            run_block(&b, terms);
        }
}

INLINE void panels(const struct panel_args *a, const int terms) {
    tiles_configure(a->x.tile, WEIGHT_TILES);
    if (a->n_rows <= a->x.tile) one_tile(a, terms);
    else many_tiles(a, terms);
    _tile_release();
}

static void bf16_panel(const struct panel_args *a) {
    panels(a, 1);
}
static void f16_panel(const struct panel_args *a) {
    panels(a, 2);
}

/* ---- activations ---------------------------------------------------------------------------------------------------- */

INLINE __m512 widened(__m512i h, int half) {
    __m256i part = half ? _mm512_extracti64x4_epi64(h, 1) : _mm512_castsi512_si256(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(part), 16));
}

/* Tiles as they are loaded: [tiles][blocks][high, low][rows][32]. */
static void two_terms(const float *x, const struct quant_acts *out, int64_t row) {
    int64_t first = row / out->tile * out->tile, low = (int64_t)out->tile * 64;
    int8_t *to = out->q + first * ACTS_PLAIN_BYTES * out->in + row % out->tile * 64;
    for (int64_t i = 0; i < out->in; i += PACK_PLAIN_GROUP, to += 2 * low) {
        __m512 x0 = _mm512_loadu_ps(x + i), x1 = _mm512_loadu_ps(x + i + 16);
        __m512i high = (__m512i)_mm512_cvtne2ps_pbh(x1, x0);
        _mm512_storeu_si512(to, high);
        x0 = _mm512_sub_ps(x0, widened(high, 0));
        x1 = _mm512_sub_ps(x1, widened(high, 1));
        _mm512_storeu_si512(to + low, (__m512i)_mm512_cvtne2ps_pbh(x1, x0));
    }
}

void kern_amx_plain(struct kernels *k) {
    k->isa = "avx512-vnni, amx-int8, amx-bf16";
    k->bf16 = (struct plain_kernels){.row = two_terms, .panel = bf16_panel, .unit = 2};
    k->f16 = (struct plain_kernels){.row = two_terms, .panel = f16_panel, .unit = 1};
}
