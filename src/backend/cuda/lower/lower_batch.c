/* Lowering of matrix products of 9 to 128 rows on sm_90a: weights in tiles (kernels/qmm_sm90.cu, kernels/qmm_short_sm90.cu). */
#include "backend/cuda/lower/lower.h"

/* LEAST_UNITS: of a part of k. With two, adding up the parts takes longer than they save (0.6B, 16 requests: 18,010 tok/s instead of 18,730). */
enum { BATCH_ROWS = 128, LEAST_UNITS = 3 };

/* Kernels for codes of 4 bits and of 8. gate: those that make both halves of a gate. few: for products of few units of k, gate or not. terms: for wide products. They
 * take half as many rows, each as two bf16 terms. */
#define KERNELS(name, rows) \
    { KERNEL_wqmm##name##_##rows, KERNEL_wqmm_bytes##name##_##rows }
#define FEW(rows) \
    { KERNEL_wshort_##rows, KERNEL_wshort_bytes_##rows }
static const struct {
    int32_t rows;
    enum kernel_id kernels[2], gate[2], few[2], terms[2];
} sizes[] = {
    {16, KERNELS(, 16), KERNELS(_gate, 16), FEW(16), KERNELS(_terms, 32)},
    {32, KERNELS(, 32), KERNELS(_gate, 32), FEW(32), KERNELS(_terms, 32)},
    {64, KERNELS(, 64), KERNELS(_gate, 64), FEW(64), KERNELS(_terms, 64)},
    {128, KERNELS(, 128), KERNELS(_gate, 128), {N_KERNELS, N_KERNELS}, KERNELS(_terms, 128)},
};

static int is_8(const struct weight *w) {
    return tile_bits(w->format.bits) == 8;
}

static int size_of(int32_t rows) {
    int i = 0;
    while (sizes[i].rows < rows) i++;
    return i;
}

static unsigned int shared_bytes_of(int i, const struct weight *w) {
    int x = WQMM_X_STAGES * sizes[i].rows * TILE_UNIT * 2;
    int chunk = wqmm_chunk_units(tile_bits(w->format.bits)) * tile_unit_bytes(w->format.bits, w->format.group);
    return (unsigned int)(1024 + x + wqmm_warps(sizes[i].rows) * WQMM_CHUNKS * chunk);
}

static bool shape_fits(const struct cuda *c, const struct op *op, int32_t rows) {
    const struct weight *w = op->arg.linear.weight;
    return c->gpu->functions[KERNEL_wqmm_64] && op->in[0].rows > QMV_ROWS && rows <= BATCH_ROWS && cuda_weight_args(w).tile_bytes &&
           w->in % TILE_UNIT == 0 && shared_bytes_of(size_of(rows), w) <= (unsigned int)c->gpu->shared_max;
}

bool cuda_wqmm_takes_terms(const struct cuda *c, const struct op *op) {
    struct tensor x = op->in[0];
    return !c->exact && op->kind == OP_LINEAR && op->arg.linear.wide && shape_fits(c, op, 2 * x.rows) && x.row_stride % 4 == 0 &&
           x.offset % 4 == 0;
}

bool cuda_wqmm_fits(const struct cuda *c, const struct op *op) {
    return cuda_wqmm_takes_terms(c, op) || (cuda_may_round(c, op) && shape_fits(c, op, op->in[0].rows));
}

/* Whether a block can make both halves of a gate: their rows lie in different tiles, and results leave it four at a time. */
static bool gate_fits(const struct k_linear *a) {
    return a->glu_inner % TILE_ROWS == 0 && a->y.heads == 1 && a->y.row_stride % 4 == 0 && a->y.p % 16 == 0;
}

/* Where the product's results go: to y, or parts of them to memory of their own, to be added up. glu_inner: of the launch. */
static void place_results(struct cuda *c, struct k_linear *a, int64_t glu_inner, size_t *used) {
    bool is_whole = a->k_splits == 1 && !a->bias && !a->glu_inner && a->y.dtype == K_F32 && a->y.row_stride == a->w.out;
    a->partial = is_whole || glu_inner
                     ? a->y.p
                     : cuda_op_scratch(c, used, (size_t)a->k_splits * (size_t)a->x.rows * (size_t)a->w.out * sizeof(float));
}

static void emit(struct cuda *c, enum kernel_id kernel, int64_t blocks, int warps, unsigned int shared_bytes, const struct k_linear *a,
                 int64_t glu_inner) {
    struct k_linear launch = *a;
    launch.glu_inner = glu_inner;
    EMIT(c, kernel, GRID(blocks, a->k_splits, 1), (unsigned int)warps * 32, shared_bytes, launch);
}

/* ---- products of few units of k ------------------------------------------------------------------------------------ */

static unsigned int few_shared_bytes(int i, const struct weight *w, int splits) {
    int units = wshort_group_units((int)(w->in / TILE_UNIT), splits), unit_bytes = tile_unit_bytes(w->format.bits, w->format.group);
    return (unsigned int)(1024 + 4 * units * sizes[i].rows * TILE_UNIT * 2 + WSHORT_WARPS * units * unit_bytes);
}

/* Parts of k, each of them at least a unit for every warpgroup; 0: the kernel for few units does not take this product. What is decided does not depend on the number
 * of rows, so that a row's result does not either. */
static int32_t few_splits(const struct cuda *c, const struct k_linear *a, const struct weight *w, bool gates) {
    int64_t blocks = w->out / WSHORT_ROWS, units = w->in / TILE_UNIT, splits = blocks ? c->gpu->n_sm / blocks : 0, most = units / 4;
    if (!c->gpu->functions[KERNEL_wshort_64] || a->x.rows > 64 || w->out % WSHORT_ROWS || splits < 1 || most < 1) return 0;
    if (a->glu_inner && (!gates || a->glu_inner % (WSHORT_ROWS / 2))) return 0;
    splits = a->glu_inner ? 1 : splits < most ? splits : most;
    return ceil_div(units, splits) <= WSHORT_UNITS && few_shared_bytes(2, w, (int)splits) <= (unsigned int)c->gpu->shared_max
               ? (int32_t)splits
               : 0;
}

void cuda_emit_wqmm(struct cuda *c, const struct op *op, struct k_linear *a, size_t *used) {
    const struct weight *w = op->arg.linear.weight;
    bool terms = cuda_wqmm_takes_terms(c, op), gates = !terms && a->glu_inner && gate_fits(a);
    if (!terms) a->x = cuda_bf16_input(c, a->x, w->in, used);
    int i = size_of(terms ? 2 * a->x.rows : a->x.rows);
    int32_t few = terms ? 0 : few_splits(c, a, w, gates);
    if (few) {
        a->k_splits = few;
        place_results(c, a, a->glu_inner, used);
        emit(c, sizes[i].few[is_8(w)], w->out / WSHORT_ROWS, WSHORT_WARPS, few_shared_bytes(i, w, few), a, a->glu_inner);
        return;
    }
    int64_t blocks = ceil_div(w->out, wqmm_warps(sizes[i].rows) * TILE_ROWS), splits = c->gpu->n_sm / blocks,
            most = w->in / TILE_UNIT / LEAST_UNITS;
    a->k_splits = (int32_t)(splits < 1 || most < 1 ? 1 : splits < most ? splits : most);
    int64_t glu_inner = gates && a->k_splits == 1 ? a->glu_inner : 0;
    place_results(c, a, glu_inner, used);
    const enum kernel_id *kernels = terms ? sizes[i].terms : glu_inner ? sizes[i].gate : sizes[i].kernels;
    emit(c, kernels[is_8(w)], blocks, wqmm_warps(sizes[i].rows) + WQMM_FILLERS, shared_bytes_of(i, w), a, glu_inner);
}
