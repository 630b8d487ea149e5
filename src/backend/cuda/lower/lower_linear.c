/* Lowering of matrix products of few rows: quantised codes straight to the tensor cores (qmv, qmm), f32 products (linear_few), and the reference row,
 * which takes everything else and all products in exact precision. */
#include "backend/cuda/lower/lower.h"

enum { QMM_ROWS = 64 };

struct k_linear cuda_linear_args(const struct cuda *c, const struct op *op) {
    const struct linear_args *l = &op->arg.linear;
    return (struct k_linear){
        .w = cuda_weight_args(l->weight),
        .bias = cuda_vec(l->bias),
        .x = cuda_view(c, op->in[0]),
        .y = cuda_view(c, op->out[0]),
        .n_out = l->weight->out,
        .per_head = op->kind == OP_HEAD_LINEAR,
        .k_splits = 1,
    };
}

void lower_linear_ref(struct cuda *c, const struct op *op) {
    struct k_linear a = cuda_linear_args(c, op);
    EMIT(c, KERNEL_linear_ref, GRID(ceil_div(a.n_out, 8), ceil_div(a.x.rows, 4), a.per_head ? a.x.heads : 1), 256, 0, a);
}

bool cuda_linear_few_fits(const struct cuda *c, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    struct tensor x = op->in[0];
    return !c->exact && op->kind == OP_LINEAR && c->base.list.values[x.id - 1].dtype == DT_F32 && x.heads == 1 && x.row_stride % 4 == 0 &&
           x.offset % 4 == 0 && w->in % 8 == 0 && w->n_experts == 1 && !cuda_weight_args(w).tile_bytes;
}

enum { MANY_FROM = 1024 }; /* with fewer rows, blocks of 32 rows would leave the GPU idle */

void lower_linear_few(struct cuda *c, const struct op *op) {
    struct k_linear a = cuda_linear_args(c, op);
    bool has_codes = a.w.mode == K_AFFINE && a.w.dtype != K_F32;
    if (a.x.rows >= MANY_FROM && a.w.in % 64 == 0) {
        EMIT(c, KERNEL_linear_many, GRID(ceil_div(a.w.out, 64), ceil_div(a.x.rows, 32), 1), 256, 0, a);
        return;
    }
    EMIT(c,
         has_codes && a.w.bits == 8   ? KERNEL_linear_few_8
         : has_codes && a.w.bits == 4 ? KERNEL_linear_few_4
                                      : KERNEL_linear_few,
         GRID(ceil_div(a.w.out, 8), ceil_div(a.x.rows, 4), 1), 256, 0, a);
}

/* 4 or 8 for codes that the tensor cores take as they are, 16 for bf16 and f16, 0 for others. */
static int fast_bits(const struct weight *w) {
    const struct format *f = &w->format;
    if (cuda_weight_args(w).tile_bytes) return 0;
    if (f->mode == QUANT_AFFINE && (f->bits == 4 || f->bits == 8) && f->group >= 32) return f->bits;
    return f->mode == QUANT_NONE && f->dtype != DT_F32 ? 16 : 0;
}

/* ---- up to eight rows --------------------------------------------------------------------------------------------- */

static bool is_mxfp4(const struct weight *w) {
    return w->format.mode == QUANT_MXFP4;
}

static bool qmv_takes(const struct cuda *c, const struct weight *w, int32_t rows) {
    bool is_f16 = w->format.mode == QUANT_NONE && w->format.dtype == DT_F16; /* qmm makes bf16 of it */
    return c->gpu->functions[KERNEL_qmv_4_64] && rows <= QMV_ROWS && (fast_bits(w) || is_mxfp4(w)) && !is_f16 && w->in % 32 == 0 &&
           w->out >= 16;
}

bool qmv_fits(const struct cuda *c, const struct op *op) {
    return cuda_may_round(c, op) && qmv_takes(c, op->arg.linear.weight, op->in[0].rows);
}

static enum kernel_id qmv_kernel(const struct weight *w) {
    static const enum kernel_id four[] = {KERNEL_qmv_4_32, KERNEL_qmv_4_64, KERNEL_qmv_4_128},
                                eight[] = {KERNEL_qmv_8_32, KERNEL_qmv_8_64, KERNEL_qmv_8_128};
    int i = w->format.group == 32 ? 0 : w->format.group == 64 ? 1 : 2, bits = fast_bits(w);
    return is_mxfp4(w) ? KERNEL_qmv_fp4_32 : bits == 4 ? four[i] : bits == 8 ? eight[i] : KERNEL_qmv_16_64;
}

/* x is bf16 already. */
static void emit_qmv_of(struct cuda *c, const struct op *op, struct k_linear *a) {
    const struct weight *w = op->arg.linear.weight;
    int slabs = (int)ceil_div(w->in, fast_bits(w) == 8 ? 128 : 256), most = a->glu_inner ? 4 : 8;
    a->k_splits = 1;
    while (a->k_splits < most && a->k_splits * 2 <= slabs) a->k_splits *= 2;
    int tiles = 8 / a->k_splits;
    int64_t n = a->glu_inner ? ceil_div(a->glu_inner, tiles / 2 * 16) : ceil_div(w->out, tiles * 16);
    cuda_emit(c, qmv_kernel(w), GRID(n, a->per_head ? a->x.heads : 1, 1), 256, 0, a, sizeof *a);
}

static void emit_qmv(struct cuda *c, const struct op *op, struct k_linear *a) {
    size_t used = 0;
    a->x = cuda_bf16_input(c, a->x, op->arg.linear.weight->in, &used);
    emit_qmv_of(c, op, a);
}

bool qmv_heads_fit(const struct cuda *c, const struct op *op) {
    return !c->exact && !op->arg.linear.bias && op->in[0].heads <= MAX_GRID_Y && qmv_takes(c, op->arg.linear.weight, op->in[0].rows);
}

void lower_head_qmv(struct cuda *c, const struct op *op) {
    struct k_linear a = cuda_linear_args(c, op);
    size_t used = 0;
    a.x = cuda_bf16_heads(c, a.x, &used);
    emit_qmv_of(c, op, &a);
}

void lower_qmv(struct cuda *c, const struct op *op) {
    struct k_linear a = cuda_linear_args(c, op);
    emit_qmv(c, op, &a);
}

/* ---- up to 64 rows, and twice as many where the weight is small ---------------------------------------------------- */

/* A weight of few tiles leaves most of the GPU idle in a product of many rows (lower_gemm.c): reading it twice is quicker. */
static int32_t qmm_rows_max(const struct cuda *c, const struct weight *w) {
    bool is_small = cuda_weight_args(w).tile_bytes && ceil_div(w->out, QMM_RESULTS) < (unsigned int)c->gpu->n_sm;
    return is_small ? 2 * QMM_ROWS : QMM_ROWS;
}

bool qmm_fits(const struct cuda *c, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    return c->gpu->functions[KERNEL_qmm_4_64] && cuda_may_round(c, op) && op->in[0].rows <= qmm_rows_max(c, w) &&
           (fast_bits(w) || cuda_weight_args(w).tile_bytes) && w->in % 64 == 0;
}

/* As many parts of k as fill the GPU, `blocks` on a multiprocessor, each part at least four steps long. */
static int32_t qmm_splits(const struct cuda *c, const struct weight *w, int32_t rows, int32_t blocks) {
    int64_t tiles = ceil_div(w->out, QMM_RESULTS) * ceil_div(rows, QMM_ROWS), splits = blocks * c->gpu->n_sm / tiles, most = w->in / 256;
    return (int32_t)(splits < 1 || most < 1 ? 1 : splits < most ? splits : most);
}

void cuda_emit_reduce(struct cuda *c, const struct k_linear *a) {
    if (a->partial == a->y.p) return; /* the only part was written to y */
    cuda_emit(c, KERNEL_linear_reduce, GRID(ceil_div(a->glu_inner ? a->glu_inner : a->w.out, 1024), a->x.rows, 1), 256, 0, a, sizeof *a);
}

static void emit_qmm(struct cuda *c, const struct op *op, struct k_linear *a) {
    static const enum kernel_id kernels[5][3] = {
        {KERNEL_qmm_4_16, KERNEL_qmm_4_32, KERNEL_qmm_4_64},
        {KERNEL_qmm_8_16, KERNEL_qmm_8_32, KERNEL_qmm_8_64},
        {KERNEL_qmm_16_16, KERNEL_qmm_16_32, KERNEL_qmm_16_64},
        {KERNEL_qmm_tiles_16, KERNEL_qmm_tiles_32, KERNEL_qmm_tiles_64},
        {KERNEL_qmm_bytes_16, KERNEL_qmm_bytes_32, KERNEL_qmm_bytes_64},
    };
    const struct weight *w = op->arg.linear.weight;
    int bits = fast_bits(w), rows = a->x.rows <= 16 ? 0 : a->x.rows <= 32 ? 1 : 2;
    bool in_tiles = a->w.tile_bytes != 0;
    int i = in_tiles ? (a->w.bits == 8 ? 4 : 3) : bits == 4 ? 0 : bits == 8 ? 1 : 2;
    size_t used = 0;
    a->x = cuda_bf16_input(c, a->x, w->in, &used);
    a->k_splits = qmm_splits(c, w, a->x.rows, i == 3 ? 3 : 2);
    a->partial = cuda_op_scratch(c, &used, (size_t)a->k_splits * (size_t)a->x.rows * (size_t)w->out * sizeof(float));
    int staged = 16 << rows, x_bytes = staged * (in_tiles ? TILE_UNIT : codes_x_stride(bits)) * 2;
    int tile_bytes = QMM_RESULTS / TILE_ROWS * tile_unit_bytes(w->format.bits, w->format.group);
    int shared_bytes = in_tiles ? QMM_TILE_STAGES * (x_bytes + tile_bytes) : QMM_STAGES * x_bytes;
    cuda_emit(c, kernels[i][rows], GRID(ceil_div(w->out, QMM_RESULTS), a->k_splits, ceil_div(a->x.rows, QMM_ROWS)), QMM_WARPS * 32,
              (unsigned int)shared_bytes, a, sizeof *a);
    cuda_emit_reduce(c, a);
}

void lower_qmm(struct cuda *c, const struct op *op) {
    struct k_linear a = cuda_linear_args(c, op);
    emit_qmm(c, op, &a);
}

void lower_wqmm(struct cuda *c, const struct op *op) {
    struct k_linear a = cuda_linear_args(c, op);
    size_t used = 0;
    cuda_emit_wqmm(c, op, &a, &used);
    cuda_emit_reduce(c, &a);
}

void lower_linear_glu(struct cuda *c, const struct op *linear, const struct op *glu) {
    struct k_linear a = cuda_linear_args(c, linear);
    a.y = cuda_view(c, glu->out[0]);
    a.act = cuda_act(&glu->arg.act);
    a.glu_inner = glu->out[0].width;
    size_t used = 0;
    if (qmv_fits(c, linear)) emit_qmv(c, linear, &a);
    else if (cuda_wqmm_fits(c, linear)) cuda_emit_wqmm(c, linear, &a, &used), cuda_emit_reduce(c, &a);
    else if (qmm_fits(c, linear)) emit_qmm(c, linear, &a);
    else if (gemm_bytes_glu_fits(c, linear, glu)) lower_gemm_bytes_glu(c, linear, glu);
    else lower_gemm_glu(c, linear, glu);
}
