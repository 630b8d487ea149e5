/* AMX int8: tiles of up to 16 rows of activations x 16 rows of weights x 64 inputs.
 *
 * A panel's lines of 8-bit codes are tile rows as they lie; 4-bit codes are spread into such lines first, a span of two
 * panels at a time, and serve all rows of the batch from the level-1 cache. A tile product covers one group of 64, and two
 * of them, high and low bytes of the activations, make the group's integers, which are weighed by scale and bias exactly
 * as in the other kernels: the results are the same bits. 4-bit codes are spread twice, sixteenfold for the high bytes, so
 * that both products add to one sum; 8-bit codes have two sums.
 *
 * Work is a line of units, a span of a tile and of two panels (8-bit codes: of one). While the products of a unit are made,
 * the one before it is weighed: what waits for a product, or for a store, keeps all that comes after it from beginning. So a
 * sum is stored when the next products are under way, and weighed a unit later; an output's sums stay in registers over its
 * span.
 * A single row, and groups of other sizes, are left to the set below, and so are as few rows as it is faster for (tune.h).
 */
#include "backend/cpu/kern_amx.h"

/* MANY: from there on the spreading of codes pays, as far as that is known without a measurement (tune.h). A unit's codes, activations and sums
 * stay in the level-1 cache; a span of ROW_BLOCK rows and their results for PANEL_BLOCK panels in the level-2 cache. */
enum { GROUP = 64, TIMES_16 = 0, TIMES_1 = 1024, GROUP_BYTES = 2048, SPAN = ACTS_SPAN / GROUP, MANY = 5 };
enum { ROW_BLOCK = 256, PANEL_BLOCK = 8, TILE_FLOATS = ACTS_TILE * PANEL_ROWS, SUMS = 2 };
_Static_assert(SPAN == 4, "a unit has four steps");

/* Tiles 0, 1 and 2, 3: sums, in turn; 4, 5: activations of n rows; 6, 7: codes. */
enum { WEIGHT_TILES = 6 };

/* n groups of 4-bit codes from p on as lines of bytes. */
static void spread(const struct pack_shape *s, const unsigned char *p, int64_t n, unsigned char *out) {
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8((char)0xF0);
    for (int64_t g = 0; g < n; g++, p += s->group_bytes, out += GROUP_BYTES)
        for (int j = 0; j < 8; j++) {
            __m512i w = _mm512_loadu_si512(p + j * PANEL_LINE);
            unsigned char *line = out + (size_t)(2 * j) * PANEL_LINE;
            _mm512_store_si512(line + TIMES_16, _mm512_and_si512(_mm512_slli_epi16(w, 4), high));
            _mm512_store_si512(line + TIMES_16 + PANEL_LINE, _mm512_and_si512(w, high));
            _mm512_store_si512(line + TIMES_1, _mm512_and_si512(w, low));
            _mm512_store_si512(line + TIMES_1 + PANEL_LINE, _mm512_and_si512(_mm512_srli_epi16(w, 4), low));
        }
}

/* A span of one tile of rows, and of one or two panels. A group has two sums: 4-bit codes, one for each panel; 8-bit codes, one
 * panel, by high bytes and by low ones. */
struct unit {
    const int8_t *q; /* of the span's first group, as are sum, panels and codes */
    const float *sum, *scale;
    const unsigned char *panels, *codes;
    int64_t n_groups;
    bool two;         /* panels */
    bool first, last; /* of the row's spans: nothing to add to, and the result goes to y */
    ptrdiff_t ahead;  /* from a group to what is asked for; 0: nothing */
    float *results;   /* [2][TILE_FLOATS] */
    float *y;
    int64_t n_rows;             /* that count */
    int32_t *slots[SPAN][SUMS]; /* where the sums go */
};

/* What all units have in common. */
struct way {
    const struct pack_shape *shape;
    int64_t y_stride;
    int32_t *const *wait; /* where the sums go that are in the tiles still: those of the step before; NULL: none */
};

/* A unit takes its slots in the order in which the unit before it frees them, step by step. */
INLINE void place_slots(struct unit *u, const struct unit *before, const int bits) {
    for (int g = 0; g < SPAN; g++)
        for (int i = 0; i < SUMS; i++) u->slots[g][i] = bits == 8 ? before->slots[g][i] : before->slots[2 * (g % 2) + i][g / 2];
}

/* One group of one output of u. */
INLINE void weigh_group(const struct way *w, const struct unit *u, int panel, int g, __m512 *inner, const int n, const int bits,
                        const int narrow) {
    if (!u || g >= u->n_groups || (panel && !u->two)) return;
    const unsigned char *group = u->panels + (size_t)panel * w->shape->panel_bytes + (size_t)g * w->shape->group_bytes;
    const int32_t *total = u->slots[g][panel], *low = u->slots[g][1];
    const float *sum = u->sum + g * n;
    __m512 scale, bias;
    load_scales(group + GROUP * PANEL_ROWS * bits / 8, narrow, 0, &scale, &bias);
#pragma GCC unroll 16
    for (int m = 0; m < n; m++) {
        __m512i whole = _mm512_load_si512(total + m * PANEL_ROWS);
        if (bits == 8) whole = _mm512_add_epi32(_mm512_slli_epi32(whole, 4), _mm512_load_si512(low + m * PANEL_ROWS));
        inner[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, inner[m]);
        inner[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(sum[m]), inner[m]);
    }
}

/* Adds a span to what the spans before it made: in results, at last in y. */
INLINE void add_span(const struct way *w, const struct unit *u, int panel, __m512 *inner, const int n) {
    if (!u || (panel && !u->two)) return;
    float *results = u->results + panel * TILE_FLOATS;
    const __mmask16 added = u->first ? 0 : 0xFFFF;
#pragma GCC unroll 16
    for (int m = 0; m < n; m++)
        inner[m] = _mm512_fmadd_ps(inner[m], _mm512_set1_ps(u->scale[m]), _mm512_maskz_load_ps(added, results + m * PANEL_ROWS));
    if (!u->last) {
#pragma GCC unroll 16
        for (int m = 0; m < n; m++) _mm512_store_ps(results + m * PANEL_ROWS, inner[m]);
        return;
    }
    float *y = u->y + panel * PANEL_ROWS;
#pragma GCC unroll 16
    for (int m = 0; m < n; m++, y += w->y_stride)
        if (m < u->n_rows) _mm512_storeu_ps(y, inner[m]);
}

/* Asks for group g of the panels that come next. A few lines with each product: a core has some sixteen requests under way, and
 * where all of a span's came together, it stood still until most were served. */
INLINE void ask_ahead(const struct way *w, const struct unit *u, int g, const int bits) {
    const char *group = (const char *)u->panels + (size_t)g * w->shape->group_bytes + u->ahead;
    if (!u->ahead) return;
#pragma GCC unroll 17
    for (int i = 0; i <= 2 * bits; i++) {
        _mm_prefetch(group + i * PANEL_LINE, _MM_HINT_T0);
        if (bits == 4) _mm_prefetch(group + w->shape->panel_bytes + i * PANEL_LINE, _MM_HINT_T0);
    }
}

#define STORE_WAITING(Z0, Z1)                       \
    do {                                            \
        if (w->wait) {                              \
            TILE_STORE(Z0, w->wait[0], PANEL_LINE); \
            TILE_STORE(Z1, w->wait[1], PANEL_LINE); \
        }                                           \
    } while (0)

/* Step g: products of group g of u into tiles S0 and S1, the sums in Z0 and Z1 are stored, `old` is weighed in between. */
#define STEP_OF_4_BITS(S0, S1, Z0, Z1)                                  \
    do {                                                                \
        _tile_zero(S0);                                                 \
        _tile_zero(S1);                                                 \
        TILE_LOAD(4, q, GROUP);                                         \
        TILE_LOAD(6, c + TIMES_16, PANEL_LINE);                         \
        _tile_dpbsud(S0, 4, 6);                                         \
        TILE_LOAD(7, d + TIMES_16, PANEL_LINE);                         \
        _tile_dpbsud(S1, 4, 7);                                         \
        weigh_group(w, old, g / 2, g % 2 * 2, inner, n, 4, narrow);     \
        STORE_WAITING(Z0, Z1);                                          \
        TILE_LOAD(5, q + n * GROUP, GROUP);                             \
        TILE_LOAD(6, c + TIMES_1, PANEL_LINE);                          \
        _tile_dpbsud(S0, 5, 6);                                         \
        TILE_LOAD(7, d + TIMES_1, PANEL_LINE);                          \
        _tile_dpbsud(S1, 5, 7);                                         \
        weigh_group(w, old, g / 2, g % 2 * 2 + 1, inner, n, 4, narrow); \
    } while (0)
#define STEP_OF_8_BITS(S0, S1, Z0, Z1)                  \
    do {                                                \
        _tile_zero(S0);                                 \
        _tile_zero(S1);                                 \
        TILE_LOAD(4, q, GROUP);                         \
        TILE_LOAD(6, c, PANEL_LINE);                    \
        _tile_dpbsud(S0, 4, 6);                         \
        STORE_WAITING(Z0, Z1);                          \
        TILE_LOAD(5, q + n * GROUP, GROUP);             \
        _tile_dpbsud(S1, 5, 6);                         \
        weigh_group(w, old, 0, g, inner, n, 8, narrow); \
    } while (0)

INLINE void step(struct way *w, const struct unit *u, const struct unit *old, const int g, __m512 *inner, const int n, const int bits,
                 const int narrow) {
    if (!u || g >= u->n_groups) {
        if (g % 2) STORE_WAITING(0, 1);
        else STORE_WAITING(2, 3);
        w->wait = NULL;
        weigh_group(w, old, bits == 4 ? g / 2 : 0, bits == 4 ? g % 2 * 2 : g, inner, n, bits, narrow);
        if (bits == 4) weigh_group(w, old, g / 2, g % 2 * 2 + 1, inner, n, bits, narrow);
        return;
    }
    ask_ahead(w, u, g, bits);
    const int8_t *q = u->q + (int64_t)g * ACTS_TERMS * n * GROUP;
    if (bits == 4) {
        const unsigned char *c = u->codes + g * GROUP_BYTES, *d = u->two ? c + SPAN * GROUP_BYTES : c;
        if (g % 2) STEP_OF_4_BITS(2, 3, 0, 1);
        else STEP_OF_4_BITS(0, 1, 2, 3);
    } else {
        const unsigned char *c = u->panels + (size_t)g * w->shape->group_bytes;
        if (g % 2) STEP_OF_8_BITS(2, 3, 0, 1);
        else STEP_OF_8_BITS(0, 1, 2, 3);
    }
    w->wait = u->slots[g];
}

/* Products of u, if there is one, beside the weighing of the unit before. */
INLINE void run_unit(struct way *w, const struct unit *u, const struct unit *old, const int n, const int bits, const int narrow) {
    __m512 inner[ACTS_TILE];
#pragma GCC unroll 4
    for (int g = 0; g < SPAN; g++) {
        if (g == 0 || (bits == 4 && g == 2)) {
#pragma GCC unroll 16
            for (int m = 0; m < n; m++) inner[m] = _mm512_setzero_ps();
        }
        step(w, u, old, g, inner, n, bits, narrow);
        if (g == 3 || (bits == 4 && g == 1)) add_span(w, old, bits == 4 ? g / 2 : 0, inner, n);
    }
}

/* Some rows against some panels. */
struct block {
    const struct panel_args *a;
    int64_t row, n_rows, panel, n_panels;
    unsigned char *codes;          /* [2][SPAN][GROUP_BYTES] */
    float *results;                /* [tiles][PANEL_BLOCK][TILE_FLOATS] */
    int32_t (*slots)[TILE_FLOATS]; /* [SPAN * SUMS] */
};

/* What is read after the span of groups from g on of the panels from p on: the same span of the next panels, the next span of
 * the first ones, the next block. */
static ptrdiff_t next_read(const struct block *b, int64_t g, int64_t p, int64_t step) {
    ptrdiff_t panel = (ptrdiff_t)b->a->shape->panel_bytes, group = (ptrdiff_t)b->a->shape->group_bytes;
    if (p + step < b->n_panels) return step * panel;
    if (g + SPAN < b->a->x.n_groups) return SPAN * group - p * panel;
    return step * panel - g * group;
}

/* All tiles of a span of the panels from p on: what their units have in common is in u. */
INLINE struct unit *run_tiles(const struct block *b, struct way *w, struct unit *u, struct unit units[2], struct unit *old, int64_t g,
                              int64_t p, const int n, const int bits, const int narrow) {
    const struct quant_acts *acts = &b->a->x;
    const struct acts_row x = acts_row_at(acts, b->row);
    for (int64_t t = 0; t * n < b->n_rows; t++, u->ahead = 0) {
        struct unit *now = old == units ? units + 1 : units;
        u->q = x.q + (t * acts->n_groups + g) * x.q_step;
        u->sum = x.sum + (t * acts->n_groups + g) * x.step;
        u->scale = x.scale + (t * acts_spans(acts->in) + g / SPAN) * x.step;
        u->results = b->results + (t * PANEL_BLOCK + p) * TILE_FLOATS;
        u->y = b->a->y + (b->row + t * n) * b->a->y_stride + (b->panel + p) * PANEL_ROWS;
        u->n_rows = b->n_rows - t * n;
        if (old) place_slots(u, old, bits);
        *now = *u;
        run_unit(w, now, old, n, bits, narrow);
        old = now;
    }
    return old;
}

INLINE void run_block(const struct block *b, const int n, const int bits, const int narrow) {
    const struct quant_acts *acts = &b->a->x;
    const struct pack_shape *s = b->a->shape;
    const int64_t step = bits == 4 ? 2 : 1;
    struct way w = {.shape = s, .y_stride = b->a->y_stride};
    struct unit units[2], *old = NULL;
    for (int64_t g = 0; g < acts->n_groups; g += SPAN)
        for (int64_t p = 0; p < b->n_panels; p += step) {
            struct unit u = {.n_groups = acts_span_groups(acts, g), .codes = b->codes, .first = g == 0, .two = p + step - 1 < b->n_panels};
            u.panels = b->a->panels + (size_t)(b->panel + p) * s->panel_bytes + (size_t)g * s->group_bytes;
            u.last = g + SPAN >= acts->n_groups;
            u.ahead = next_read(b, g, p, step);
            for (int i = 0; i < SPAN * SUMS; i++) u.slots[i / SUMS][i % SUMS] = b->slots[i]; /* the first unit's */
            for (int64_t i = 0; bits == 4 && i <= u.two; i++)
                spread(s, u.panels + (size_t)i * s->panel_bytes, u.n_groups, b->codes + i * SPAN * GROUP_BYTES);
            old = run_tiles(b, &w, &u, units, old, g, p, n, bits, narrow);
        }
    run_unit(&w, NULL, old, n, bits, narrow);
}

INLINE void run_tile(const struct block *b, const int bits, const int narrow) {
    int32_t tile = b->a->x.tile;
    if (tile == 16) run_block(b, 16, bits, narrow);
    else if (tile == 12) run_block(b, 12, bits, narrow);
    else if (tile == 8) run_block(b, 8, bits, narrow);
    else run_block(b, 4, bits, narrow);
}

static void run(const struct block *b) {
    const struct pack_shape *s = b->a->shape;
    if (s->code_bits == 4) {
        if (s->narrow_scales) run_tile(b, 4, 1);
        else run_tile(b, 4, 0);
    } else {
        if (s->narrow_scales) run_tile(b, 8, 1);
        else run_tile(b, 8, 0);
    }
}

static void panel(const struct panel_args *a) {
    if (a->x.tile == 1 || a->shape->group != GROUP) {
        kern_vnni_panel(a);
        return;
    }
    unsigned char codes[2 * SPAN * GROUP_BYTES] __attribute__((aligned(64)));
    float results[ROW_BLOCK / ACTS_TILE * PANEL_BLOCK * TILE_FLOATS] __attribute__((aligned(64)));
    int32_t slots[SPAN * SUMS][TILE_FLOATS] __attribute__((aligned(64)));
    struct block b = {.a = a, .codes = codes, .results = results, .slots = slots};
    tiles_configure(a->x.tile, WEIGHT_TILES);
    for (b.row = 0; b.row < a->n_rows; b.row += ROW_BLOCK)
        for (b.panel = 0; b.panel < a->n_panels; b.panel += PANEL_BLOCK) {
            b.n_rows = a->n_rows - b.row < ROW_BLOCK ? a->n_rows - b.row : ROW_BLOCK;
            b.n_panels = a->n_panels - b.panel < PANEL_BLOCK ? a->n_panels - b.panel : PANEL_BLOCK;
            run(&b);
        }
    _tile_release();
}

void kern_amx(struct kernels *k) {
    k->isa = "avx512-vnni, amx-int8";
    k->panel = panel;
    k->panel_few = kern_vnni_panel;
    k->many_rows = MANY;
    k->row_more = 0; /* 16 cores: 2 rows take 1.3, 4 rows 1.7 and 8 rows 2.3 */
}
