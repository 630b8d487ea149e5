/* AMX int8 for prompts: tiles of 16 rows of activations x 16 rows of weights x 64 inputs.
 *
 * A panel's lines of 8-bit codes are tile rows as they lie; 4-bit codes are spread into such lines first, a stretch of
 * the panel at a time, and serve all rows of the batch from the level-1 cache. One tile product covers one group of 64,
 * so that its integers are weighed by scale and bias exactly as in the other kernels: the results are the same bits.
 * Fewer than 16 rows, and groups of other sizes, are left to the set below.
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

enum { GROUP = 64, GROUP_BYTES = 1024, STRETCH = 16, ROWS = 16 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static void configure(void) {
    struct tile_config c = {.palette = 1};
    for (int t = 0; t < 3; t++) {
        c.row_bytes[t] = 64;
        c.rows[t] = 16;
    }
    _tile_loadconfig(&c);
}

/* n groups from p on as lines of 8-bit codes; returns where the next group begins. */
static const unsigned char *spread(const struct pack_shape *s, const unsigned char *p, int64_t n, unsigned char *out) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int64_t g = 0; g < n; g++, p += s->group_bytes, out += GROUP_BYTES) {
        if (s->code_bits == 8) {
            memcpy(out, p, GROUP_BYTES);
            continue;
        }
        for (int j = 0; j < 8; j++) {
            __m512i w = _mm512_loadu_si512(p + j * PANEL_LINE);
            _mm512_storeu_si512(out + (size_t)(2 * j) * PANEL_LINE, _mm512_and_si512(w, low));
            _mm512_storeu_si512(out + (size_t)(2 * j + 1) * PANEL_LINE, _mm512_and_si512(_mm512_srli_epi16(w, 4), low));
        }
    }
    return p;
}

static inline void load_scales(const struct pack_shape *s, const unsigned char *p, __m512 *scale, __m512 *bias) {
    if (s->narrow_scales) {
        *scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
        *bias =
            _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32))), 16));
    } else {
        *scale = _mm512_loadu_ps((const float *)(const void *)p);
        *bias = _mm512_loadu_ps((const float *)(const void *)(p + 64));
    }
}

/* Sixteen rows of the batch against a stretch of groups [g, g + n); sums go on where the last stretch left them in y. */
static void stretch(const struct panel_args *a, int64_t row, int64_t g, int64_t n, const unsigned char *codes, const unsigned char *panel) {
    const struct pack_shape *s = a->shape;
    size_t code_bytes = (size_t)GROUP * PANEL_ROWS * (size_t)s->code_bits / 8;
    int32_t total[ROWS][PANEL_ROWS] __attribute__((aligned(64)));
    __m512 acc[ROWS];
#pragma GCC unroll 16
    for (int m = 0; m < ROWS; m++) acc[m] = g ? _mm512_loadu_ps(a->y + (row + m) * a->y_stride) : _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i++, codes += GROUP_BYTES, panel += s->group_bytes) {
        _tile_zero(0);
        TILE_LOAD(1, a->x.q + row * a->x.in + (g + i) * GROUP, a->x.in);
        TILE_LOAD(2, codes, PANEL_LINE);
        _tile_dpbsud(0, 1, 2);
        TILE_STORE(0, total, PANEL_LINE);
        __m512 scale, bias;
        load_scales(s, panel + code_bytes, &scale, &bias);
        const float *sx = a->x.scale + row * a->x.n_groups + g + i, *sum = a->x.sum + row * a->x.n_groups + g + i;
#pragma GCC unroll 16
        for (int m = 0; m < ROWS; m++) {
            __m512 weighed = _mm512_mul_ps(scale, _mm512_set1_ps(sx[m * a->x.n_groups]));
            acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(total[m])), weighed, acc[m]);
            acc[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(sum[m * a->x.n_groups]), acc[m]);
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < ROWS; m++) _mm512_storeu_ps(a->y + (row + m) * a->y_stride, acc[m]);
}

static void panel(const struct panel_args *a) {
    if (a->n_rows < ROWS || a->shape->group != GROUP) {
        kern_vnni_panel(a);
        return;
    }
    unsigned char codes[STRETCH * GROUP_BYTES] __attribute__((aligned(64)));
    int64_t whole = a->n_rows / ROWS * ROWS;
    const unsigned char *p = a->panel;
    configure();
    for (int64_t g = 0; g < a->x.n_groups; g += STRETCH) {
        int64_t n = a->x.n_groups - g < STRETCH ? a->x.n_groups - g : STRETCH;
        const unsigned char *next = spread(a->shape, p, n, codes);
        for (int64_t row = 0; row < whole; row += ROWS) stretch(a, row, g, n, codes, p);
        p = next;
    }
    _tile_release();
    if (whole == a->n_rows) return;
    struct panel_args rest = *a;
    rest.n_rows -= whole;
    rest.x.q += whole * a->x.in;
    rest.x.scale += whole * a->x.n_groups;
    rest.x.sum += whole * a->x.n_groups;
    rest.y += whole * a->y_stride;
    kern_vnni_panel(&rest);
}

void kern_amx(struct kernels *k) {
    k->isa = "avx512-vnni, amx-int8";
    k->panel = panel;
}
