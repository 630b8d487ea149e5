/* AMX int8: tiles of up to 16 rows of activations x 16 rows of weights x 64 inputs.
 *
 * A panel's lines of 8-bit codes are tile rows as they lie; 4-bit codes are spread into such lines first, a stretch of
 * a few panels at a time, and serve all rows of the batch from the level-1 cache. One tile product covers one group of
 * 64, so that its integers are weighed by scale and bias exactly as in the other kernels: the results are the same bits.
 * Fewer than FEWEST rows, and groups of other sizes, are left to the set below.
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

/* FEWEST: from there on the spreading of codes pays. STRETCH groups of BLOCK panels and of a tile of activations stay in
 * the level-1 cache. */
enum { GROUP = 64, GROUP_BYTES = 1024, STRETCH = 8, BLOCK = 4, FEWEST = 4 };

#define INLINE static inline __attribute__((always_inline))

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0, 1 and 3, 4: sums and activations of n rows; 2, 5: codes. */
static void configure(int32_t n) {
    struct tile_config c = {.palette = 1};
    for (int t = 0; t < 6; t++) {
        c.row_bytes[t] = 64;
        c.rows[t] = t == 2 || t == 5 ? 16 : (uint8_t)n;
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* gcc 12 takes the instruction to read eight bytes, and drops the rest */
    _tile_loadconfig(&c);
}

/* n groups of 4-bit codes from p on as lines of bytes. */
static void spread(const struct pack_shape *s, const unsigned char *p, int64_t n, unsigned char *out) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int64_t g = 0; g < n; g++, p += s->group_bytes, out += GROUP_BYTES)
        for (int j = 0; j < 8; j++) {
            __m512i w = _mm512_loadu_si512(p + j * PANEL_LINE);
            _mm512_store_si512(out + (size_t)(2 * j) * PANEL_LINE, _mm512_and_si512(w, low));
            _mm512_store_si512(out + (size_t)(2 * j + 1) * PANEL_LINE, _mm512_and_si512(_mm512_srli_epi16(w, 4), low));
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

/* One tile of rows against a stretch of groups of one panel. */
struct stretch {
    const int8_t *q;
    const float *scale, *sum;                  /* of the activations, from the stretch's first group on */
    const unsigned char *codes, *panel_scales; /* lines of bytes; scales of the first group */
    size_t codes_step, panel_step;
    int64_t n_groups;
    int32_t n_rows; /* whose sums are kept */
    bool first;     /* nothing to add to */
    float *y;
    int64_t y_stride;
};

INLINE void weigh(const struct stretch *s, int64_t g, const int32_t *total, __m512 *acc, const int n, const int narrow) {
    __m512 scale, bias;
    load_scales(s->panel_scales + (size_t)g * s->panel_step, narrow, &scale, &bias);
    const float *sx = s->scale + g * n, *sum = s->sum + g * n;
#pragma GCC unroll 16
    for (int m = 0; m < n; m++) {
        __m512 weighed = _mm512_mul_ps(scale, _mm512_set1_ps(sx[m]));
        acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(total + m * PANEL_ROWS)), weighed, acc[m]);
        acc[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(sum[m]), acc[m]);
    }
}

/* Two groups are under way at a time: while one's sums are weighed, the next one's product runs. */
INLINE void run_stretch(const struct stretch *s, const int n, const int narrow) {
    int32_t even[ACTS_TILE * PANEL_ROWS] __attribute__((aligned(64))), odd[ACTS_TILE * PANEL_ROWS] __attribute__((aligned(64)));
    __m512 acc[ACTS_TILE];
#pragma GCC unroll 16
    for (int m = 0; m < n; m++) acc[m] = s->first || m >= s->n_rows ? _mm512_setzero_ps() : _mm512_loadu_ps(s->y + m * s->y_stride);
    int64_t g = 0;
    for (; g + 2 <= s->n_groups; g += 2) {
        _tile_zero(0);
        TILE_LOAD(1, s->q + g * n * GROUP, GROUP);
        TILE_LOAD(2, s->codes + (size_t)g * s->codes_step, PANEL_LINE);
        _tile_dpbsud(0, 1, 2);
        _tile_zero(3);
        TILE_LOAD(4, s->q + (g + 1) * n * GROUP, GROUP);
        TILE_LOAD(5, s->codes + (size_t)(g + 1) * s->codes_step, PANEL_LINE);
        _tile_dpbsud(3, 4, 5);
        TILE_STORE(0, even, PANEL_LINE);
        TILE_STORE(3, odd, PANEL_LINE);
        weigh(s, g, even, acc, n, narrow);
        weigh(s, g + 1, odd, acc, n, narrow);
    }
    if (g < s->n_groups) {
        _tile_zero(0);
        TILE_LOAD(1, s->q + g * n * GROUP, GROUP);
        TILE_LOAD(2, s->codes + (size_t)g * s->codes_step, PANEL_LINE);
        _tile_dpbsud(0, 1, 2);
        TILE_STORE(0, even, PANEL_LINE);
        weigh(s, g, even, acc, n, narrow);
    }
#pragma GCC unroll 16
    for (int m = 0; m < n; m++)
        if (m < s->n_rows) _mm512_storeu_ps(s->y + m * s->y_stride, acc[m]);
}

INLINE void run_width(const struct stretch *s, int32_t tile, const int narrow) {
    if (tile == 16) run_stretch(s, 16, narrow);
    else if (tile == 12) run_stretch(s, 12, narrow);
    else if (tile == 8) run_stretch(s, 8, narrow);
    else run_stretch(s, 4, narrow);
}

/* Groups [g, g + n) of the panels [first, first + n_panels) for all rows. */
static void block(const struct panel_args *a, int64_t first, int64_t n_panels, int64_t g, int64_t n, unsigned char *codes) {
    const struct pack_shape *s = a->shape;
    const bool wide = s->code_bits == 8;
    const unsigned char *at = a->panels + (size_t)first * s->panel_bytes + (size_t)g * s->group_bytes;
    size_t code_bytes = (size_t)GROUP * PANEL_ROWS * (size_t)s->code_bits / 8;
    int32_t tile = a->x.tile;
    for (int64_t p = 0; p < n_panels && !wide; p++) spread(s, at + (size_t)p * s->panel_bytes, n, codes + p * STRETCH * GROUP_BYTES);
    for (int64_t row = 0; row < a->n_rows; row += tile) {
        struct acts_row x = acts_row_at(&a->x, row);
        struct stretch w = {.q = x.q + g * x.q_step,
                            .scale = x.scale + g * x.step,
                            .sum = x.sum + g * x.step,
                            .codes_step = wide ? s->group_bytes : GROUP_BYTES,
                            .panel_step = s->group_bytes,
                            .n_groups = n,
                            .n_rows = (int32_t)(a->n_rows - row < tile ? a->n_rows - row : tile),
                            .first = g == 0,
                            .y_stride = a->y_stride};
        for (int64_t p = 0; p < n_panels; p++) {
            const unsigned char *panel = at + (size_t)p * s->panel_bytes;
            w.codes = wide ? panel : codes + p * STRETCH * GROUP_BYTES;
            w.panel_scales = panel + code_bytes;
            w.y = a->y + row * a->y_stride + (first + p) * PANEL_ROWS;
            if (s->narrow_scales) run_width(&w, tile, 1);
            else run_width(&w, tile, 0);
        }
    }
}

static void panel(const struct panel_args *a) {
    if (a->n_rows < FEWEST || a->shape->group != GROUP) {
        kern_vnni_panel(a);
        return;
    }
    unsigned char codes[BLOCK * STRETCH * GROUP_BYTES] __attribute__((aligned(64)));
    configure(a->x.tile);
    for (int64_t p = 0; p < a->n_panels; p += BLOCK)
        for (int64_t g = 0; g < a->x.n_groups; g += STRETCH)
            block(a, p, a->n_panels - p < BLOCK ? a->n_panels - p : BLOCK, g, a->x.n_groups - g < STRETCH ? a->x.n_groups - g : STRETCH,
                  codes);
    _tile_release();
}

void kern_amx(struct kernels *k) {
    k->isa = "avx512-vnni, amx-int8";
    k->panel = panel;
}
