/* Lowering of matrix products of 9 to 128 rows on sm_90a: weights in tiles (kernels/qmm_sm90.cu). */
#include "backend/cuda/lower/lower.h"

/* LEAST_UNITS: of a part of k. With two, adding up the parts takes longer than they save (0.6B, 16 requests: 18,010 tok/s instead of 18,730). */
enum { BATCH_ROWS = 128, LEAST_UNITS = 3 };

/* Kernels for codes of 4 bits and of 8. terms: those for wide products. They take half as many rows, each as two bf16 terms. */
static const struct {
    int32_t rows;
    enum kernel_id kernels[2], terms[2];
} sizes[] = {{16, {KERNEL_wqmm_16, KERNEL_wqmm_bytes_16}, {KERNEL_wqmm_terms_32, KERNEL_wqmm_bytes_terms_32}},
             {32, {KERNEL_wqmm_32, KERNEL_wqmm_bytes_32}, {KERNEL_wqmm_terms_32, KERNEL_wqmm_bytes_terms_32}},
             {64, {KERNEL_wqmm_64, KERNEL_wqmm_bytes_64}, {KERNEL_wqmm_terms_64, KERNEL_wqmm_bytes_terms_64}},
             {128, {KERNEL_wqmm_128, KERNEL_wqmm_bytes_128}, {KERNEL_wqmm_terms_128, KERNEL_wqmm_bytes_terms_128}}};

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

void cuda_emit_wqmm(struct cuda *c, const struct op *op, struct k_linear *a) {
    const struct weight *w = op->arg.linear.weight;
    size_t used = 0;
    bool terms = cuda_wqmm_takes_terms(c, op);
    if (!terms) a->x = cuda_bf16_input(c, a->x, w->in, &used);
    int i = size_of(terms ? 2 * a->x.rows : a->x.rows);
    int64_t blocks = ceil_div(w->out, wqmm_warps(sizes[i].rows) * TILE_ROWS), splits = c->gpu->n_sm / blocks,
            most = w->in / TILE_UNIT / LEAST_UNITS;
    a->k_splits = (int32_t)(splits < 1 || most < 1 ? 1 : splits < most ? splits : most);
    bool is_whole = a->k_splits == 1 && !a->bias && !a->glu_inner && a->y.dtype == K_F32 && a->y.row_stride == w->out;
    a->partial = is_whole ? a->y.p : cuda_op_scratch(c, &used, (size_t)a->k_splits * (size_t)a->x.rows * (size_t)w->out * sizeof(float));
    cuda_emit(c, terms ? sizes[i].terms[is_8(w)] : sizes[i].kernels[is_8(w)], GRID(blocks, a->k_splits, 1),
              (unsigned int)(wqmm_warps(sizes[i].rows) + WQMM_FILLERS) * 32, shared_bytes_of(i, w), a, sizeof *a);
}
