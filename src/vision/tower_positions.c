/* Learned positions of a tower's patches, computed on the host: fixed tables, tables that are stretched over a picture, class tokens. */
#include "vision/vision_internal.h"

#include "base/fmath.h"

/* Along one side: cells, and how much of each. */
struct taps {
    int32_t n, cells[POSITION_TAPS];
    float shares[POSITION_TAPS];
};

/* Corner to corner. */
static void stretched(int32_t i, int32_t n, int32_t side, struct taps *t) {
    float step = n > 1 ? (float)(side - 1) / (float)(n - 1) : 0,
          at = i < n / 2 || n == 1 ? step * (float)i : (float)(side - 1) - step * (float)(n - 1 - i);
    int32_t low = (int32_t)at;
    float rest = at - (float)low;
    *t = (struct taps){2, {low, low + 1 < side ? low + 1 : low}, {1 - rest, rest}};
}

/* Cell to cell, with a triangle that is as wide as the cells that one patch covers. */
static void smooth(int32_t i, int32_t n, int32_t side, struct taps *t) {
    float scale = (float)side / (float)n, support = scale > 1 ? scale : 1, center = scale * ((float)i + 0.5f), sum = 0;
    int32_t first = (int32_t)(center - support + 0.5f), last = (int32_t)(center + support + 0.5f);
    if (first < 0 || center - support + 0.5f < 0) first = 0;
    if (last > side) last = side;
    t->n = last - first < POSITION_TAPS ? last - first : POSITION_TAPS;
    for (int32_t k = 0; k < t->n; k++) {
        float x = fabsf(((float)(k + first) - center + 0.5f) * (1 / support));
        sum += t->shares[k] = x < 1 ? 1 - x : 0;
        t->cells[k] = first + k;
    }
    for (int32_t k = 0; k < t->n; k++) t->shares[k] /= sum;
}

static float near_cubic(float x, float a) {
    return ((a + 2) * x - (a + 3)) * x * x + 1;
}

static float far_cubic(float x, float a) {
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* Cell to cell through four of them; beyond the border lies its last cell. */
static void cubic(int32_t i, int32_t n, int32_t side, struct taps *t) {
    const float a = -0.75f;
    float at = ((float)i + 0.5f) * ((float)side / (float)n) - 0.5f, low = floorf(at), rest = at - low;
    t->n = 4;
    for (int32_t k = 0; k < 4; k++) {
        int32_t cell = (int32_t)low - 1 + k;
        t->cells[k] = cell < 0 ? 0 : cell >= side ? side - 1 : cell;
    }
    t->shares[0] = far_cubic(rest + 1, a);
    t->shares[1] = near_cubic(rest, a);
    t->shares[2] = near_cubic(1 - rest, a);
    t->shares[3] = far_cubic(2 - rest, a);
}

/* The cell that a patch begins in; both are numbered by fractions in f32, and rounding counts. */
static void bucket(int32_t i, int32_t n, int32_t side, struct taps *t) {
    float at = (float)i * (1.0f / (float)n), last = 1.0f - 1e-6f;
    int32_t cell = 0;
    if (at > last) at = last;
    while (cell + 1 < side && (float)(1.0 / side + cell * (1.0 / side)) <= at) cell++;
    *t = (struct taps){1, {cell}, {1}};
}

static void same(int32_t i, int32_t n, int32_t side, struct taps *t) {
    (void)n, (void)side;
    *t = (struct taps){1, {i}, {1}};
}

typedef void taps_fn(int32_t i, int32_t n, int32_t side, struct taps *t);

/* The sum of the cells that two sides name. */
static void blend(const float *table, int32_t side, const struct taps *down, const struct taps *across, int64_t width, float *out) {
    for (int32_t r = 0; r < down->n; r++)
        for (int32_t c = 0; c < across->n; c++) {
            const float *cell = table + ((int64_t)down->cells[r] * side + across->cells[c]) * width;
            float share = down->shares[r] * across->shares[c];
            for (int64_t i = 0; i < width; i++) out[i] += share * cell[i];
        }
}

/* A row for each column, then one for each row. */
static void by_axes(const struct vision *v, int32_t y, int32_t x, float *out) {
    const float *columns = v->positions + (int64_t)x * v->hidden, *rows = v->positions + (int64_t)(v->positions_side + y) * v->hidden;
    for (int32_t i = 0; i < v->hidden; i++) out[i] = columns[i] + rows[i];
}

void tower_positions(const struct vision *v, const struct patches *p, float *out) {
    static taps_fn *const kinds[] = {[POSITIONS_STRETCHED] = stretched, [POSITIONS_SMOOTH] = smooth,  [POSITIONS_CUBIC] = cubic,
                                     [POSITIONS_FIXED] = same,          [POSITIONS_BUCKETS] = bucket, [POSITIONS_AXES] = same};
    taps_fn *make = kinds[v->family->positions];
    bool is_last = v->family->is_class_last;
    int64_t width = v->hidden, first = v->class_row && !is_last ? 1 : 0, side = v->positions_side;
    const float *table = v->positions + first * width, *class_row = v->positions + (is_last ? side * side * width : 0);
    float *row = out + (is_last ? p->n * width : 0);
    for (int64_t i = 0; i < width && v->class_row; i++) row[i] = v->class_row[i] + class_row[i];
    for (int64_t r = 0; r < p->n; r++) {
        int32_t y = p->places[r * STEP_AXES + 1], x = p->places[r * STEP_AXES + 2];
        struct taps down, across;
        float *to = out + (r + first) * width;
        if (v->family->positions == POSITIONS_AXES) {
            by_axes(v, y, x, to);
            continue;
        }
        make(y, p->height, v->positions_side, &down);
        make(x, p->width, v->positions_side, &across);
        memset(to, 0, (size_t)width * sizeof *to);
        blend(table, v->positions_side, &down, &across, width, to);
    }
}
