/* AMX int8: tiles of up to 16 rows of activations x 16 rows of weights x 64 inputs.
 *
 * A panel's lines of 8-bit codes are tile rows as they lie; 4-bit codes are spread into such lines first, a stretch of
 * a few panels at a time, and serve all rows of the batch from the level-1 cache. A tile product covers one group of 64,
 * and two of them, high and low bytes of the activations, make the group's integers, which are weighed by scale and bias
 * exactly as in the other kernels: the results are the same bits. 4-bit codes are spread twice, sixteenfold for the high
 * bytes, so that both products add to one sum; 8-bit codes have two sums.
 * A single row, and groups of other sizes, are left to the set below, and so are as few rows as it is faster for (tune.h).
 */
#include "backend/cpu/kern.h"

#include <immintrin.h>

/* gcc's own macros hold the stride in a `long`, which on Windows names a 32-bit register that the assembler refuses. */
#ifdef __clang__
#define TILE_LOAD(tile, base, stride) _tile_loadd(tile, base, stride)
#define TILE_STORE(tile, base, stride) _tile_stored(tile, base, stride)
#else
#define TILE_LOAD(tile, base, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"((const void *)(base)), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, base, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"((void *)(base)), "r"((int64_t)(stride)) : "memory")
#endif

/* MANY: from there on the spreading of codes pays on the machines that were measured. A span of BLOCK panels and of a tile of activations stay in
 * the level-1 cache; activations and sums of ROW_BLOCK rows in the level-2 cache. */
enum { GROUP = 64, TIMES_16 = 0, TIMES_1 = 1024, GROUP_BYTES = 2048, STRETCH = ACTS_SPAN / GROUP, BLOCK = 2, ROW_BLOCK = 256, MANY = 4 };
enum { TILE_FLOATS = ACTS_TILE * PANEL_ROWS };

#define INLINE static inline __attribute__((always_inline))

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 2, 5: codes; all others: sums and activations of n rows. */
static void configure(int32_t n) {
    struct tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = 64;
        c.rows[t] = t == 2 || t == 5 ? 16 : (uint8_t)n;
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* gcc 12 takes the instruction to read eight bytes, and drops the rest */
    _tile_loadconfig(&c);
}

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

INLINE void load_scales(const unsigned char *p, const int narrow, __m512 *scale, __m512 *bias) {
    if (narrow) {
        __m512i s = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
        __m512i b = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32)));
        *scale = _mm512_castsi512_ps(_mm512_slli_epi32(s, 16));
        *bias = _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
    } else {
        *scale = _mm512_loadu_ps((const float *)(const void *)p);
        *bias = _mm512_loadu_ps((const float *)(const void *)(p + 64));
    }
}

/* Some tiles of rows against a span of some panels. */
struct stretch {
    const int8_t *q;                     /* of the activations, from the stretch's first group on */
    const float *scale, *sum;            /* the same */
    int64_t q_step, step, scale_step;    /* from tile to tile */
    const unsigned char *panels, *codes; /* the first group as it lies; lines of 4-bit codes */
    const struct pack_shape *shape;
    ptrdiff_t next; /* from a group to the one of its place in the next stretch */
    int64_t n_groups, n_panels, n_tiles;
    bool first;  /* nothing to add to */
    float *sums; /* [n_tiles][BLOCK][TILE_FLOATS] */
};

/* Which product: all groups of a panel, all panels, all tiles. */
struct place {
    int64_t tile, panel, g;
};

INLINE void place_next(const struct stretch *s, struct place *at) {
    if (++at->g < s->n_groups) return;
    at->g = 0;
    if (++at->panel < s->n_panels) return;
    at->panel = 0;
    at->tile++;
}

/* Products of one group of one panel: into tiles 0 or 3; of 8-bit codes, by high and low bytes, into 0, 3 or 6, 7. */
#define PRODUCTS_OF_4_BITS(SUM)                 \
    do {                                        \
        _tile_zero(SUM);                        \
        TILE_LOAD(1, q, GROUP);                 \
        TILE_LOAD(2, c + TIMES_16, PANEL_LINE); \
        _tile_dpbsud(SUM, 1, 2);                \
        TILE_LOAD(4, q + n * GROUP, GROUP);     \
        TILE_LOAD(5, c + TIMES_1, PANEL_LINE);  \
        _tile_dpbsud(SUM, 4, 5);                \
    } while (0)
#define PRODUCTS_OF_8_BITS(HIGH, LOW)       \
    do {                                    \
        _tile_zero(HIGH);                   \
        _tile_zero(LOW);                    \
        TILE_LOAD(1, q, GROUP);             \
        TILE_LOAD(2, c, PANEL_LINE);        \
        _tile_dpbsud(HIGH, 1, 2);           \
        TILE_LOAD(4, q + n * GROUP, GROUP); \
        _tile_dpbsud(LOW, 4, 2);            \
    } while (0)

INLINE void products(const struct stretch *s, const struct place *at, int64_t odd, const int n, const int bits) {
    const int8_t *q = s->q + at->tile * s->q_step + at->g * ACTS_TERMS * n * GROUP;
    const unsigned char *c = bits == 8 ? s->panels + (size_t)at->panel * s->shape->panel_bytes + (size_t)at->g * s->shape->group_bytes
                                       : s->codes + (at->panel * STRETCH + at->g) * GROUP_BYTES;
    if (at->tile >= s->n_tiles) return;
    if (bits == 8) {
        if (odd) PRODUCTS_OF_8_BITS(6, 7);
        else PRODUCTS_OF_8_BITS(0, 3);
    } else {
        if (odd) PRODUCTS_OF_4_BITS(3);
        else PRODUCTS_OF_4_BITS(0);
    }
}

/* What products() left behind: whole sums, or those of the high and then those of the low bytes. */
INLINE void store(int32_t *total, int64_t odd, const int bits) {
    if (bits == 8) {
        if (odd) {
            TILE_STORE(6, total, PANEL_LINE);
            TILE_STORE(7, total + TILE_FLOATS, PANEL_LINE);
        } else {
            TILE_STORE(0, total, PANEL_LINE);
            TILE_STORE(3, total + TILE_FLOATS, PANEL_LINE);
        }
    } else {
        if (odd) TILE_STORE(3, total, PANEL_LINE);
        else TILE_STORE(0, total, PANEL_LINE);
    }
}

INLINE void weigh(const struct stretch *s, const struct place *at, const int32_t *total, __m512 *inner, const int n, const int bits,
                  const int narrow) {
    const unsigned char *group = s->panels + (size_t)at->panel * s->shape->panel_bytes + (size_t)at->g * s->shape->group_bytes;
    __m512 scale, bias;
    load_scales(group + GROUP * PANEL_ROWS * bits / 8, narrow, &scale, &bias);
    const float *sum = s->sum + at->tile * s->step + at->g * n;
#pragma GCC unroll 16
    for (int m = 0; m < n; m++) {
        __m512i whole = _mm512_load_si512(total + m * PANEL_ROWS);
        if (bits == 8) whole = _mm512_add_epi32(_mm512_slli_epi32(whole, 4), _mm512_load_si512(total + TILE_FLOATS + m * PANEL_ROWS));
        inner[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, inner[m]);
        inner[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(sum[m]), inner[m]);
    }
}

/* Asks for the group that follows in the next stretch. A few lines with each product: a core has some sixteen requests under way, and
 * where all of a stretch's came together, it stood still until most were served. */
INLINE void ask_ahead(const struct stretch *s, const struct place *at, const int bits) {
    const unsigned char *group = s->panels + (size_t)at->panel * s->shape->panel_bytes + (size_t)at->g * s->shape->group_bytes;
    if (at->tile > 0) return;
#pragma GCC unroll 17
    for (int i = 0; i <= 2 * bits; i++) _mm_prefetch((const char *)group + s->next + i * PANEL_LINE, _MM_HINT_T0);
}

/* Products run two groups ahead of the weighing, on into the next panel and the next tile. */
INLINE void run_stretch(const struct stretch *s, const int n, const int bits, const int narrow) {
    int32_t total[2][2 * TILE_FLOATS] __attribute__((aligned(64)));
    struct place ahead = {0}, at = {0};
    int64_t odd = 0;
    products(s, &ahead, 0, n, bits);
    place_next(s, &ahead);
    products(s, &ahead, 1, n, bits);
    place_next(s, &ahead);
    for (; at.tile < s->n_tiles; at.tile++)
        for (at.panel = 0; at.panel < s->n_panels; at.panel++) {
            __m512 inner[ACTS_TILE];
            const float *scale = s->scale + at.tile * s->scale_step;
            float *sums = s->sums + (at.tile * BLOCK + at.panel) * TILE_FLOATS;
#pragma GCC unroll 16
            for (int m = 0; m < n; m++) inner[m] = _mm512_setzero_ps();
            for (at.g = 0; at.g < s->n_groups; at.g++, odd ^= 1) {
                store(total[odd], odd, bits);
                ask_ahead(s, &at, bits);
                products(s, &ahead, odd, n, bits);
                place_next(s, &ahead);
                weigh(s, &at, total[odd], inner, n, bits, narrow);
            }
#pragma GCC unroll 16
            for (int m = 0; m < n; m++) {
                __m512 acc = s->first ? _mm512_setzero_ps() : _mm512_load_ps(sums + m * PANEL_ROWS);
                _mm512_store_ps(sums + m * PANEL_ROWS, _mm512_fmadd_ps(inner[m], _mm512_set1_ps(scale[m]), acc));
            }
        }
}

INLINE void run_tile(const struct stretch *s, int32_t tile, const int bits, const int narrow) {
    if (tile == 16) run_stretch(s, 16, bits, narrow);
    else if (tile == 12) run_stretch(s, 12, bits, narrow);
    else if (tile == 8) run_stretch(s, 8, bits, narrow);
    else run_stretch(s, 4, bits, narrow);
}

static void run(const struct stretch *s, int32_t tile) {
    if (s->shape->code_bits == 4) {
        if (s->shape->narrow_scales) run_tile(s, tile, 4, 1);
        else run_tile(s, tile, 4, 0);
    } else {
        if (s->shape->narrow_scales) run_tile(s, tile, 8, 1);
        else run_tile(s, tile, 8, 0);
    }
}

/* Some rows against some panels. */
struct block {
    const struct panel_args *a;
    int64_t row, n_rows, panel, n_panels;
    unsigned char *codes; /* [BLOCK][STRETCH][GROUP_BYTES] */
    float *sums;          /* [tiles][BLOCK][TILE_FLOATS] */
};

/* Groups [g, g + n) of a block. */
static void block_groups(const struct block *b, int64_t g, int64_t n) {
    const struct pack_shape *s = b->a->shape;
    const struct quant_acts *acts = &b->a->x;
    const unsigned char *at = b->a->panels + (size_t)b->panel * s->panel_bytes + (size_t)g * s->group_bytes;
    /* what comes next: the panels' next stretch, or the next panels' first one */
    ptrdiff_t next = g + n < acts->n_groups ? (ptrdiff_t)((size_t)n * s->group_bytes)
                                            : (ptrdiff_t)(BLOCK * s->panel_bytes) - (ptrdiff_t)((size_t)g * s->group_bytes);
    for (int64_t p = 0; p < b->n_panels && s->code_bits == 4; p++)
        spread(s, at + (size_t)p * s->panel_bytes, n, b->codes + p * STRETCH * GROUP_BYTES);
    struct acts_row x = acts_row_at(acts, b->row);
    run(&(struct stretch){.q = x.q + g * x.q_step,
                          .scale = x.scale + g / STRETCH * x.step,
                          .sum = x.sum + g * x.step,
                          .q_step = acts->n_groups * x.q_step,
                          .step = acts->n_groups * x.step,
                          .scale_step = acts_spans(acts->in) * x.step,
                          .panels = at,
                          .codes = b->codes,
                          .shape = s,
                          .next = next,
                          .n_groups = n,
                          .n_panels = b->n_panels,
                          .n_tiles = (b->n_rows + acts->tile - 1) / acts->tile,
                          .first = g == 0,
                          .sums = b->sums},
        acts->tile);
}

static void run_block(const struct block *b) {
    int64_t n_groups = b->a->x.n_groups;
    int32_t tile = b->a->x.tile;
    for (int64_t g = 0; g < n_groups; g += STRETCH) block_groups(b, g, n_groups - g < STRETCH ? n_groups - g : STRETCH);
    for (int64_t row = 0; row < b->n_rows; row++) {
        const float *sums = b->sums + row / tile * BLOCK * TILE_FLOATS + row % tile * PANEL_ROWS;
        float *y = b->a->y + (b->row + row) * b->a->y_stride + b->panel * PANEL_ROWS;
        for (int64_t p = 0; p < b->n_panels; p++) _mm512_storeu_ps(y + p * PANEL_ROWS, _mm512_load_ps(sums + p * TILE_FLOATS));
    }
}

static void panel(const struct panel_args *a) {
    if (a->x.tile == 1 || a->shape->group != GROUP) {
        kern_vnni_panel(a);
        return;
    }
    unsigned char codes[BLOCK * STRETCH * GROUP_BYTES] __attribute__((aligned(64)));
    float sums[ROW_BLOCK / ACTS_TILE * BLOCK * TILE_FLOATS] __attribute__((aligned(64)));
    struct block b = {.a = a, .codes = codes, .sums = sums};
    configure(a->x.tile);
    for (b.row = 0; b.row < a->n_rows; b.row += ROW_BLOCK)
        for (b.panel = 0; b.panel < a->n_panels; b.panel += BLOCK) {
            b.n_rows = a->n_rows - b.row < ROW_BLOCK ? a->n_rows - b.row : ROW_BLOCK;
            b.n_panels = a->n_panels - b.panel < BLOCK ? a->n_panels - b.panel : BLOCK;
            run_block(&b);
        }
    _tile_release();
}

void kern_amx(struct kernels *k) {
    k->isa = "avx512-vnni, amx-int8";
    k->panel = panel;
    k->panel_few = kern_vnni_panel;
    k->many_rows = MANY;
}
