/* Nested panels by tiles: the bytes of the scales are multiplied into the codes, so that a span of 256 inputs needs no work for its groups.
 *
 * A code times its group's byte has up to 14 bits: two digits of a byte each, and a tile product for each of them, all inputs of the span adding to
 * the same sums. Codes of 4 bits with bytes that are not negative have digits of 16 (the halves of the byte, each times the code; two products of
 * bytes in one multiplication), all others digits of 256. Digits are made once for up to ROW_BLOCK rows.
 *
 * Work is a line of units, a span of a panel against a tile of rows. A unit's sums are stored while the products of the next one are made, and
 * weighed beside those of the one after that: what waits for a product, or for a store, keeps all that comes after it from beginning.
 *
 * This is a template: kern_amx_nested.c has it with tiles, a test with tiles in plain C (TILE_LOAD, TILE_STORE, TILE_ZERO, TILE_DOT_UNSIGNED,
 * TILE_DOT_SIGNED, tiles_configure, tiles_release).
 */
#include "backend/cpu/kern_nested_avx512.h"

enum { LINES = PACK_SPAN / 4, STEP_LINES = LINES / NESTED_STEPS, INPUTS = 16, ROW_BLOCK = 256, PANEL_BLOCK = 8, MANY = 8 };
enum { TILE_FLOATS = ACTS_TILE * PANEL_ROWS, TILES = ROW_BLOCK / ACTS_TILE, QUARTER = ACTS_TILE / NESTED_STEPS };
enum { LOW, HIGH, DIGITS, UNITS = 4 }; /* UNITS: more than are under way */

/* Tiles 0, 1 and 2, 3: sums, in turn; 4, 5: activations of n rows; 6, 7: digits. */
enum { WEIGHT_TILES = 6 };

/* ---- digits ------------------------------------------------------------------------------------------------------- */

struct digits {
    unsigned char at[DIGITS][LINES][PANEL_LINE] __attribute__((aligned(64)));
};

/* Four inputs of sixteen rows; scale: each row's byte as two words. */
INLINE void put_bytes(__m512i codes, __m512i scale, unsigned char *low, unsigned char *high) {
    const __m512i lower = _mm512_set1_epi16(0xFF);
    __m512i even = _mm512_mullo_epi16(_mm512_and_si512(codes, lower), scale), odd = _mm512_mullo_epi16(_mm512_srli_epi16(codes, 8), scale);
    _mm512_store_si512(low, _mm512_ternarylogic_epi32(lower, even, _mm512_slli_epi16(odd, 8), CHOOSE));
    _mm512_store_si512(high, _mm512_ternarylogic_epi32(lower, _mm512_srli_epi16(even, 8), odd, CHOOSE));
}

/* The same by halves of the byte: products of two inputs stay in their bytes. */
INLINE void put_halves(__m512i codes, __m512i scale, unsigned char *low, unsigned char *high) {
    _mm512_store_si512(low, _mm512_mullo_epi16(codes, _mm512_and_si512(scale, _mm512_set1_epi16(15))));
    _mm512_store_si512(high, _mm512_mullo_epi16(codes, _mm512_srli_epi16(scale, 4)));
}

INLINE void put_digits(const unsigned char *p, const int8_t *scales, struct digits *out, const int bits, const int group,
                       const int halves) {
    for (int k = 0; k < PACK_SPAN; k += group) {
        __m512i byte = sixteen_bytes(scales + k / group * PANEL_ROWS), w[4];
        __m512i scale = _mm512_mask_mov_epi16(byte, 0xAAAAAAAA, _mm512_slli_epi32(byte, 16));
        for (int i = k; i < k + group; i += INPUTS, p += INPUTS * PANEL_ROWS * bits / 8) {
            load_codes(p, bits, w);
            UNROLL for (int j = 0; j < 4; j++) {
                if (halves) put_halves(w[j], scale, out->at[LOW][i / 4 + j], out->at[HIGH][i / 4 + j]);
                else put_bytes(w[j], scale, out->at[LOW][i / 4 + j], out->at[HIGH][i / 4 + j]);
            }
        }
    }
}

INLINE bool has_negative(const int8_t *p, const int groups) {
    __mmask16 found = 0;
    for (int g = 0; g < groups; g++)
        found |= (__mmask16)_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + g * PANEL_ROWS)));
    return found != 0;
}

/* Returns the bits of the lower digit. */
INLINE int make_digits(const struct pack_shape *s, const unsigned char *p, const struct pack_span *at, struct digits *out,
                       const int group) {
    bool halves = s->code_bits == 4 && !has_negative(at->scale, PACK_SPAN / group);
    if (halves) put_digits(p, at->scale, out, 4, group, 1);
    else if (s->code_bits == 4) put_digits(p, at->scale, out, 4, group, 0);
    else put_digits(p, at->scale, out, 6, group, 0);
    return halves ? 4 : 8;
}

/* ---- units -------------------------------------------------------------------------------------------------------- */

struct unit {
    const int8_t *q;
    const struct digits *digits;
    const struct span_weights *weights;
    int shift, centre;
    const int16_t *sums;
    const float *scale;
    bool first, last; /* of the row's spans: nothing to add to, and the result goes to y */
    float *results;   /* [ACTS_TILE][PANEL_ROWS]: what spans before gave */
    float *y;
    int64_t y_stride, n_rows;      /* that count */
    int32_t (*slots)[TILE_FLOATS]; /* [DIGITS]: where its sums go */
};

/* Quarter i of its rows. */
INLINE void weigh_rows(const struct unit *u, int i, const int group) {
    const int from = i * QUARTER;
    const int groups = PACK_SPAN / group;
    const __mmask16 added = u->first ? 0 : 0xFFFF;
    const __m128i shift = _mm_cvtsi32_si128(u->shift);
    UNROLL for (int m = from; m < from + QUARTER; m++) {
        __m512i low = _mm512_load_si512(u->slots[LOW] + m * PANEL_ROWS), high = _mm512_load_si512(u->slots[HIGH] + m * PANEL_ROWS);
        __m512i total = _mm512_add_epi32(_mm512_sll_epi32(high, shift), low);
        __m512 acc = _mm512_maskz_load_ps(added, u->results + m * PANEL_ROWS);
        acc = weigh_span(acc, total, u->weights, u->sums + m * 2 * groups, u->scale[m], groups, u->centre);
        if (!u->last) _mm512_store_ps(u->results + m * PANEL_ROWS, acc);
        else if (m < u->n_rows) _mm512_storeu_ps(u->y + m * u->y_stride, acc);
    }
}

/* A quarter of the products of a unit, into tiles S0 and S1. */
#define PRODUCTS(S0, S1, A)                                             \
    do {                                                                \
        TILE_LOAD(A, u->q + (int64_t)i * n * NESTED_STEP, NESTED_STEP); \
        TILE_LOAD(6, u->digits->at[LOW][i * STEP_LINES], PANEL_LINE);   \
        TILE_DOT_UNSIGNED(S0, A, 6);                                    \
        TILE_LOAD(7, u->digits->at[HIGH][i * STEP_LINES], PANEL_LINE);  \
        TILE_DOT_SIGNED(S1, A, 7);                                      \
    } while (0)
#define STORE(S0, S1, UNIT)                              \
    do {                                                 \
        TILE_STORE(S0, (UNIT)->slots[LOW], PANEL_LINE);  \
        TILE_STORE(S1, (UNIT)->slots[HIGH], PANEL_LINE); \
    } while (0)
/* Products of u, which takes tiles S0 and S1; the sums of the unit before are in Z0 and Z1. */
#define RUN_UNIT(S0, S1, Z0, Z1)                                   \
    do {                                                           \
        TILE_ZERO(S0);                                             \
        TILE_ZERO(S1);                                             \
        UNROLL for (int i = 0; i < NESTED_STEPS; i++) {            \
            if (i % 2) PRODUCTS(S0, S1, 5);                        \
            else PRODUCTS(S0, S1, 4);                              \
            if (i == 0 && before) STORE(Z0, Z1, before);           \
            if (old && QUARTER * i < n) weigh_rows(old, i, group); \
        }                                                          \
    } while (0)

/* Units in turn: the last ones, and how many there were; the same of the spans that they are of. */
struct line {
    struct unit units[UNITS];
    struct span_weights weights[UNITS];
    int64_t count, spans;
};

INLINE void run_unit(struct line *l, const int n, const int group) {
    const struct unit *u = &l->units[l->count % UNITS];
    const struct unit *before = l->count > 0 ? &l->units[(l->count - 1) % UNITS] : NULL;
    const struct unit *old = l->count > 1 ? &l->units[(l->count - 2) % UNITS] : NULL;
    if (l->count++ % 2) RUN_UNIT(2, 3, 0, 1);
    else RUN_UNIT(0, 1, 2, 3);
}

/* What is under way at the end. */
INLINE void finish(struct line *l, const int n, const int group) {
    const struct unit *last = &l->units[(l->count - 1) % UNITS];
    if (l->count % 2) STORE(0, 1, last);
    else STORE(2, 3, last);
    for (int64_t i = l->count > 1 ? l->count - 2 : 0; i < l->count; i++)
        for (int k = 0; QUARTER * k < n; k++) weigh_rows(&l->units[i % UNITS], k, group);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */

/* Some rows against some panels. */
struct block {
    const struct panel_args *a;
    int64_t row, n_rows, panel, n_panels;
    struct digits *digits;
    float *results;                /* [TILES][PANEL_BLOCK][TILE_FLOATS] */
    int32_t (*slots)[TILE_FLOATS]; /* [2][DIGITS] */
};

/* What is read after a span of a panel: the same span of the next panel, the next span of the first one, the next block. */
static const unsigned char *next_read(const struct block *b, const unsigned char *p, int64_t span, int64_t panel) {
    const struct pack_shape *s = b->a->shape;
    if (panel + 1 == b->n_panels && span + 1 < s->in / PACK_SPAN) return p + s->span_bytes - (size_t)panel * s->panel_bytes;
    return p + s->panel_bytes - (panel + 1 < b->n_panels ? 0 : (size_t)span * s->span_bytes);
}

/* Asks for part t of n of a span's lines: a few lines with each unit, since a core has only so many requests under way. */
INLINE void ask_for(const struct pack_shape *s, const unsigned char *p, int64_t t, int64_t n) {
    int64_t lines = (int64_t)s->span_bytes / PANEL_LINE;
    for (int64_t i = t * lines / n; i < (t + 1) * lines / n; i++) _mm_prefetch((const char *)p + i * PANEL_LINE, _MM_HINT_T0);
}

/* All tiles of rows against a span of a panel. */
INLINE void run_span(const struct block *b, struct line *l, int64_t span, int64_t panel, const int n, const int group) {
    const struct quant_acts *acts = &b->a->x;
    const struct pack_shape *s = b->a->shape;
    const unsigned char *p = b->a->panels + (size_t)(b->panel + panel) * s->panel_bytes + (size_t)span * s->span_bytes;
    struct pack_span at = pack_span_at(s, p);
    struct unit u = {.digits = b->digits, .centre = nested_centre(s), .first = span == 0, .y_stride = b->a->y_stride};
    struct span_weights *weights = &l->weights[l->spans++ % UNITS];
    load_span_weights(&at, PACK_SPAN / group, weights);
    u.weights = weights;
    u.shift = make_digits(s, p, &at, b->digits, group);
    u.last = span + 1 == s->in / PACK_SPAN;
    const unsigned char *next = next_read(b, p, span, panel);
    for (int64_t t = 0, n_tiles = (b->n_rows + n - 1) / n; t < n_tiles; t++) {
        ask_for(s, next, t, n_tiles);
        struct nested_acts x = nested_acts_at(acts, b->row + t * n, span);
        u.q = x.q, u.sums = x.sums, u.scale = x.scale;
        u.results = b->results + (t * PANEL_BLOCK + panel) * TILE_FLOATS;
        u.y = b->a->y + (b->row + t * n) * b->a->y_stride + (b->panel + panel) * PANEL_ROWS;
        u.n_rows = b->n_rows - t * n;
        u.slots = b->slots + l->count % 2 * DIGITS;
        l->units[l->count % UNITS] = u;
        run_unit(l, n, group);
    }
}

INLINE void run_block(const struct block *b, const int n, const int group) {
    struct line l;
    l.count = l.spans = 0;
    for (int64_t span = 0; span < b->a->shape->in / PACK_SPAN; span++)
        for (int64_t p = 0; p < b->n_panels; p++) run_span(b, &l, span, p, n, group);
    finish(&l, n, group);
}

static void block_of_16(const struct block *b) {
    run_block(b, b->a->x.tile, 16);
}
static void block_of_32(const struct block *b) {
    run_block(b, b->a->x.tile, 32);
}

static void nested(const struct panel_args *a) {
    if (a->n_rows < MANY) {
        kern_vnni_nested_panel(a);
        return;
    }
    struct digits digits;
    float results[TILES * PANEL_BLOCK * TILE_FLOATS] __attribute__((aligned(64)));
    int32_t slots[2 * DIGITS][TILE_FLOATS] __attribute__((aligned(64)));
    struct block b = {.a = a, .digits = &digits, .results = results, .slots = slots};
    tiles_configure(a->x.tile, WEIGHT_TILES);
    for (b.row = 0; b.row < a->n_rows; b.row += ROW_BLOCK)
        for (b.panel = 0; b.panel < a->n_panels; b.panel += PANEL_BLOCK) {
            b.n_rows = a->n_rows - b.row < ROW_BLOCK ? a->n_rows - b.row : ROW_BLOCK;
            b.n_panels = a->n_panels - b.panel < PANEL_BLOCK ? a->n_panels - b.panel : PANEL_BLOCK;
            if (a->shape->group == 16) block_of_16(&b);
            else block_of_32(&b);
        }
    tiles_release();
}
