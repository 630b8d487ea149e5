/* Attention among the rows of a step in half precision, for processors that have such arithmetic (kern_half.c).
 *
 * Keys and values of CHUNK rows of a head lie as panels of half numbers with one scale each: keys [16 rows][width][row], values [16 columns][row][column]. An item is
 * ROWS queries of a head. It walks the chunks that any of them sees, so that a panel is read once for all; a row keeps its largest score so far, and what it has
 * mixed shrinks when that grows. Borders of chunks and steps do not depend on the rows of an item, so neither do a row's bits. */
#include "backend/cpu/cpu.h"

#include "base/fmath.h"

enum {
    ROWS = 32,
    CHUNK = 256,
    STEP = 32,
    LEAST_ROWS = 96
}; /* below that there is nothing to win: products stay in f32, too (cpu_linear.c) */

struct half_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
};

/* What a thread keeps of an item. */
struct half_item {
    int64_t head;
    int32_t row, n; /* queries */
    struct quant_acts q, weights;
    float *scores; /* [ROWS][CHUNK] */
    float *mixed;  /* [ROWS][width of values] */
    float most[ROWS], sum[ROWS];
};

static int32_t key_width(const struct op *op) {
    return (op->in[0].width + 7) / 8 * 8;
}
static int32_t value_width(const struct op *op) {
    return (op->in[2].width + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
}
static int32_t n_chunks(const struct op *op) {
    return (op->in[0].rows + CHUNK - 1) / CHUNK;
}

bool cpu_rows_in_half(const struct cpu *c, const struct op *op) {
    bool is_rough = c->base.precision != PRECISION_EXACT && c->base.precision != PRECISION_F32;
    return is_rough && c->kern.half_inputs && op->in[0].rows >= LEAST_ROWS && op->in[0].width <= KV_WIDTH_MAX &&
           op->in[2].width <= KV_WIDTH_MAX && !op_is_sharp(op);
}

/* ---- keys and values ------------------------------------------------------------------------------------------------------- */

/* Of a chunk: two scales, in the place of some halves; keys; values. */
enum { SCALES = 32 };

static int64_t chunk_halves(const struct op *op) {
    return SCALES + (int64_t)CHUNK * (key_width(op) + value_width(op));
}

static uint16_t *chunk_of(const struct half_job *job, int64_t head, int64_t chunk) {
    return (uint16_t *)(void *)job->c->op_scratch + (head * n_chunks(job->op) + chunk) * chunk_halves(job->op);
}

int64_t cpu_rows_half_op_floats(const struct op *op) {
    return chunk_halves(op) / 2 * n_chunks(op) * op->in[0].heads;
}

/* Where number `column` of row r lies. */
static int64_t key_at(int32_t width, int32_t r, int32_t column) {
    return (int64_t)r / PANEL_ROWS * PANEL_ROWS * width + (int64_t)column * PANEL_ROWS + r % PANEL_ROWS;
}
static int64_t value_at(int32_t width, int32_t r, int32_t column) {
    (void)width;
    return ((int64_t)column / PANEL_ROWS * CHUNK + r) * PANEL_ROWS + column % PANEL_ROWS;
}

/* n rows of x from `first` on as half numbers below 8; returns what they were divided by. */
static float put_rows(const struct half_job *job, struct tensor x, int64_t head, int64_t first, int32_t width, uint16_t *out,
                      int64_t at(int32_t, int32_t, int32_t)) {
    const struct cpu *c = job->c;
    int32_t n = x.rows - first < CHUNK ? (int32_t)(x.rows - first) : CHUNK, exponent;
    float largest = 0, row[KV_WIDTH_MAX];
    uint16_t half[KV_WIDTH_MAX];
    for (int32_t r = 0; r < n; r++) {
        const float *from = cpu_row(c, x, first + r) + head * x.head_stride;
        for (int32_t i = 0; i < x.width; i++) largest = fabsf(from[i]) > largest ? fabsf(from[i]) : largest;
    }
    frexpf(largest > 1e-30f && largest < 1e30f ? largest : 8.0f, &exponent);
    float scale = ldexpf(1.0f, 3 - exponent);
    for (int32_t r = 0; r < n; r++) {
        const float *from = cpu_row(c, x, first + r) + head * x.head_stride;
        for (int32_t i = 0; i < x.width; i++) row[i] = from[i] * scale;
        c->kern.store_f16(half, row, x.width);
        for (int32_t i = 0; i < x.width; i++) out[at(width, r, i)] = half[i];
    }
    return 1.0f / scale;
}

/* Items are chunks of heads. */
static void pack_chunks(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct half_job *job = ctx;
    const struct op *op = job->op;
    for (int64_t item = first; item < last; item++) {
        int64_t head = item / n_chunks(op), i = item % n_chunks(op);
        uint16_t *chunk = chunk_of(job, head, i), *keys = chunk + SCALES;
        memset(chunk, 0, (size_t)chunk_halves(op) * sizeof *chunk);
        float scales[2];
        scales[0] = put_rows(job, op->in[1], head, i * CHUNK, key_width(op), keys, key_at);
        scales[1] = put_rows(job, op->in[2], head, i * CHUNK, value_width(op), keys + (int64_t)CHUNK * key_width(op), value_at);
        memcpy(chunk, scales, sizeof scales);
    }
}

/* ---- queries --------------------------------------------------------------------------------------------------------------- */

/* Scores, what is mixed, queries and weights in halves, their scales. */
int64_t cpu_rows_half_floats(const struct op *op) {
    return (int64_t)ROWS * (CHUNK + value_width(op) + key_width(op) / 2 + CHUNK / 2 + 2);
}

static void begin_item(const struct half_job *job, int64_t head, int32_t row, float *memory, struct half_item *out) {
    struct tensor q = job->op->in[0];
    int32_t width = key_width(job->op), v_width = value_width(job->op);
    *out = (struct half_item){.head = head, .row = row, .n = q.rows - row < ROWS ? q.rows - row : ROWS, .scores = memory};
    out->mixed = memory + (int64_t)ROWS * CHUNK;
    float *scales = out->mixed + (int64_t)ROWS * v_width;
    out->q = (struct quant_acts){.q = (int8_t *)(scales + 2 * ROWS), .scale = scales, .in = width};
    out->weights = (struct quant_acts){.q = out->q.q + (int64_t)ROWS * width * 2, .scale = scales + ROWS, .in = CHUNK};
    memset(out->mixed, 0, (size_t)ROWS * (size_t)v_width * sizeof *out->mixed);
    memset(out->q.q, 0, (size_t)ROWS * (size_t)(width + CHUNK) * 2);
    for (int32_t i = 0; i < out->n; i++) {
        float filled[KV_WIDTH_MAX] = {0};
        memcpy(filled, cpu_row(job->c, q, row + i) + head * q.head_stride, (size_t)q.width * sizeof *filled);
        job->c->kern.half_row(filled, &out->q, i);
        out->most[i] = -INFINITY;
    }
}

/* Weights of query i for rows [from, to), whose scores it has; those that it does not see weigh nothing. */
static void weigh(const struct half_job *job, struct half_item *it, int32_t i, int32_t from, int32_t to) {
    const struct kernels *k = &job->c->kern;
    const int32_t *span = job->step->spans[job->op->arg.attn_rows.set] + 2 * (int64_t)(it->row + i);
    float *scores = it->scores + (int64_t)i * CHUNK, *mixed = it->mixed + (int64_t)i * value_width(job->op);
    int32_t first = span[0] > from ? span[0] - from : 0, last = (span[1] < to ? span[1] : to) - from;
    float most = first < last ? k->max(scores + first, last - first, scores[first]) : -INFINITY;
    if (most < it->most[i] || first >= last) most = it->most[i];
    if (most > it->most[i] && it->sum[i] > 0) {
        float shrink = m_expf(it->most[i] - most);
        it->sum[i] *= shrink;
        for (int32_t d = 0; d < value_width(job->op); d++) mixed[d] *= shrink;
    }
    if (first >= last) first = last = 0;
    for (int32_t r = 0; r < first; r++) scores[r] = -INFINITY;
    for (int32_t r = last; r < to - from; r++) scores[r] = -INFINITY;
    it->most[i] = most;
    it->sum[i] += k->half_weights(scores, to - from, first < last ? most : 0, &it->weights, i);
}

/* Rows [from, to) of a chunk, some whole steps. */
static void attend_chunk(const struct half_job *job, struct half_item *it, int32_t chunk, int32_t from, int32_t to) {
    const struct kernels *k = &job->c->kern;
    const struct op *op = job->op;
    const uint16_t *keys = chunk_of(job, it->head, chunk) + SCALES, *values = keys + (int64_t)CHUNK * key_width(op);
    float scales[2];
    int32_t begin = from - chunk * CHUNK, end = to - chunk * CHUNK, width = key_width(op);
    memcpy(scales, keys - SCALES, sizeof scales);
    struct half_args a = {.w_scale = scales[0] * op->arg.attn_rows.scale, .x = &it->q, .n = width, .n_rows = it->n, .y_stride = CHUNK};
    for (int32_t p = begin; p < end; p += PANEL_ROWS) {
        a.w = keys + (int64_t)p * width;
        a.y = it->scores + p - begin;
        k->half_inputs(&a);
    }
    it->weights.in = to - from;
    for (int32_t i = 0; i < it->n; i++) weigh(job, it, i, from, to);
    a = (struct half_args){
        .w_scale = scales[1], .x = &it->weights, .n = to - from, .n_rows = it->n, .y_stride = value_width(op), .adds = true};
    for (int32_t p = 0; p < value_width(op); p += PANEL_ROWS) {
        a.w = values + ((int64_t)p * CHUNK / PANEL_ROWS + begin) * PANEL_ROWS;
        a.y = it->mixed + p;
        k->half_inputs(&a);
    }
}

static void attend_item(const struct half_job *job, struct half_item *it) {
    struct tensor y = job->op->out[0];
    const int32_t *spans = job->step->spans[job->op->arg.attn_rows.set] + 2 * (int64_t)it->row;
    int32_t from = spans[0], to = spans[1];
    for (int32_t i = 1; i < it->n; i++) {
        from = spans[2 * i] < from ? spans[2 * i] : from;
        to = spans[2 * i + 1] > to ? spans[2 * i + 1] : to;
    }
    from = from / STEP * STEP, to = (to + STEP - 1) / STEP * STEP;
    for (int32_t chunk = from / CHUNK; chunk * CHUNK < to; chunk++) {
        int32_t first = chunk * CHUNK, last = first + CHUNK;
        attend_chunk(job, it, chunk, from > first ? from : first, to < last ? to : last);
    }
    for (int32_t i = 0; i < it->n; i++) {
        float *out = cpu_row(job->c, y, it->row + i) + it->head * y.head_stride;
        for (int32_t d = 0; d < y.width; d++) out[d] = it->mixed[(int64_t)i * value_width(job->op) + d] / it->sum[i];
    }
}

/* Items are ROWS rows of a head, those of one head next to each other. */
static void attend_items(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct half_job *job = ctx;
    int64_t each = (job->op->in[0].rows + ROWS - 1) / ROWS;
    for (int64_t item = first; item < last; item++) {
        struct half_item it;
        begin_item(job, item / each, (int32_t)(item % each) * ROWS, cpu_thread(job->c, thread), &it);
        attend_item(job, &it);
    }
}

void cpu_run_rows_half(struct cpu *c, const struct op *op, const struct step *step) {
    struct half_job job = {c, op, step};
    struct tensor q = op->in[0];
    pool_run(c->pool, (int64_t)n_chunks(op) * q.heads, 0, pack_chunks, &job);
    pool_run(c->pool, (int64_t)((q.rows + ROWS - 1) / ROWS) * q.heads, 0, attend_items, &job);
}
