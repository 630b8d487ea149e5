/* Lowering of matrix products of 9 to 128 rows on sm_90a: weights of 4 bits in tiles (kernels/qmm_sm90.cu). */
#include "backend/cuda/cuda.h"

enum { BATCH_ROWS = 128, UNIT = 64, X_STAGES = 6, FILLERS = 4, CHUNK_UNITS = 4, CHUNKS = 4, TILE_ROWS = 16 };

static const struct {
    int32_t rows, warps;
    enum kernel_id kernel;
} sizes[] = {{16, 16, KERNEL_wqmm_16}, {32, 16, KERNEL_wqmm_32}, {64, 16, KERNEL_wqmm_64}, {128, 8, KERNEL_wqmm_128}};

static int size_of(int32_t rows) {
    int i = 0;
    while (sizes[i].rows < rows) i++;
    return i;
}

static unsigned int shared_bytes_of(int i, const struct weight *w) {
    unsigned int x = X_STAGES * (unsigned int)sizes[i].rows * UNIT * 2, unit = w->format.group == 32 ? 640 : 576;
    return 1024 + x + (unsigned int)sizes[i].warps * CHUNKS * CHUNK_UNITS * unit;
}

bool wqmm_fits(const struct cuda *c, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    int32_t rows = op->in[0].rows;
    return c->gpu->functions[KERNEL_wqmm_64] && cuda_may_round(c, op) && rows > QMV_ROWS && rows <= BATCH_ROWS &&
           cuda_weight_args(w).tile_bytes && w->in % UNIT == 0 && shared_bytes_of(size_of(rows), w) <= (unsigned int)c->gpu->shared_max;
}

void cuda_emit_wqmm(struct cuda *c, const struct op *op, struct k_linear *a) {
    const struct weight *w = op->arg.linear.weight;
    size_t used = 0;
    a->x = cuda_bf16_input(c, a->x, w->in, &used);
    int i = size_of(a->x.rows);
    int64_t blocks = ceil_div(w->out, sizes[i].warps * TILE_ROWS), splits = c->gpu->n_sm / blocks, most = w->in / UNIT / 2;
    a->k_splits = (int32_t)(splits < 1 || most < 1 ? 1 : splits < most ? splits : most);
    bool is_whole = a->k_splits == 1 && !a->bias && !a->glu_inner && a->y.dtype == K_F32 && a->y.row_stride == w->out;
    a->partial = is_whole ? a->y.p : cuda_op_scratch(c, &used, (size_t)a->k_splits * (size_t)a->x.rows * (size_t)w->out * sizeof(float));
    cuda_emit(c, sizes[i].kernel, GRID(blocks, a->k_splits, 1), (unsigned int)(sizes[i].warps + FILLERS) * 32, shared_bytes_of(i, w), a, sizeof *a);
}
