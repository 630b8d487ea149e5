/* Lowering of matrix products of many rows on GPUs whose tensor cores multiply bytes at four times the rate of bf16 (GeForce): kernels/gemm_bytes.cu, which
 * takes weights of up to 8 bits in tiles as they lie. x becomes integers of 16 bits first. Wide products (linear_args.wide) run here too: they keep 16 bits. */
#include "backend/cuda/lower/lower.h"

/* [groups of 64 and more; groups of 32][4 bits; 8 bits] */
static const enum kernel_id kernels[2][2] = {{KERNEL_gemm_bytes_4, KERNEL_gemm_bytes_8}, {KERNEL_gemm_bytes_4_32, KERNEL_gemm_bytes_8_32}};

static int32_t runs_of(const struct weight *w) {
    return tile_runs(w->format.group);
}
static int32_t bits_of(const struct weight *w) {
    return tile_bits(w->format.bits);
}
/* tiles: of a warp. */
static unsigned int shared_bytes_of(const struct weight *w, int tiles) {
    return (unsigned int)(GEMM_BYTES_STAGES * gemm_bytes_stage(bits_of(w), runs_of(w), tiles));
}

/* Rows of a weight that a block takes. */
static int64_t block_width(int tiles) {
    return GEMM_BYTES_WARPS * tiles * TILE_ROWS;
}

/* A GeForce is told by its shared memory: others have as many bf16 products as of two bytes, and kernels that are made for them. */
static bool weight_fits(const struct cuda *c, const struct weight *w) {
    struct k_weight k = cuda_weight_args(w);
    return c->gpu->functions[KERNEL_gemm_bytes_4] && cuda_has_small_shared(c) && k.tile_bytes && k.mode == K_AFFINE &&
           w->format.group >= 32 && shared_bytes_of(w, GEMM_BYTES_NARROW) <= (unsigned int)c->gpu->shared_max;
}

static bool shape_fits(const struct cuda *c, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    return op->kind == OP_LINEAR && op->in[0].rows > QMV_ROWS && op->in[0].heads == 1 && weight_fits(c, w) &&
           ceil_div(w->out, block_width(GEMM_BYTES_NARROW)) <= MAX_GRID_Y;
}

enum { WIDE_FROM = 33 }; /* with fewer rows, their two terms are 64 rows at most, which kernels/qmm.cu takes */

bool cuda_bytes_takes_wide(const struct cuda *c, const struct op *op) {
    return !c->exact && op->kind == OP_LINEAR && op->arg.linear.wide && op->in[0].rows >= WIDE_FROM && shape_fits(c, op);
}

bool gemm_bytes_fit(const struct cuda *c, const struct op *op) {
    return (cuda_may_round(c, op) || cuda_bytes_takes_wide(c, op)) && shape_fits(c, op);
}

bool gemm_bytes_glu_fits(const struct cuda *c, const struct op *linear, const struct op *glu) {
    enum act_kind kind = glu->arg.act.kind;
    return gemm_bytes_fit(c, linear) && (kind == ACT_SILU || kind == ACT_GELU_TANH) && glu->out[0].heads == 1 &&
           glu->out[0].width % TILE_ROWS == 0;
}

/* x where eight elements can be read at once. */
static struct k_view even_input(struct cuda *c, struct k_view x, int64_t width, size_t *used) {
    bool is_f32 = x.dtype == K_F32;
    return x.row_stride % (is_f32 ? 4 : 8) == 0 && x.p % 16 == 0 ? x : cuda_bf16_input(c, x, width, used);
}

static struct k_bytes_x emit_integers(struct cuda *c, const struct op *op, size_t *used) {
    const struct weight *w = op->arg.linear.weight;
    struct k_view x = even_input(c, cuda_view(c, op->in[0]), w->in, used);
    int64_t rows = ceil_div(x.rows, GEMM_BYTES_ROWS) * GEMM_BYTES_ROWS, units = w->in / TILE_UNIT;
    struct k_bytes_x a = {
        .x = x.p, .x_stride = x.row_stride, .x_dtype = x.dtype, .k = (int32_t)w->in, .rows = (int32_t)rows, .runs = runs_of(w)};
    a.units = cuda_op_scratch(c, used, (size_t)(rows * units) * X16_UNIT);
    a.sums = cuda_op_scratch(c, used, (size_t)(rows * units * a.runs) * sizeof(float));
    a.scales = cuda_op_scratch(c, used, (size_t)rows * sizeof(float));
    EMIT(c, KERNEL_gemm_bytes_x, GRID(x.rows, 1, 1), 256, 0, a);
    return a;
}

/* Wide blocks read x half as often, and for a result they have fewer instructions; but there must be two for every multiprocessor. */
static bool is_wide(const struct cuda *c, const struct weight *w, int64_t rows) {
    return c->gpu->functions[KERNEL_gemm_bytes_wide_4] && bits_of(w) == 4 && runs_of(w) == 1 &&
           shared_bytes_of(w, GEMM_BYTES_WIDE) <= (unsigned int)c->gpu->shared_max &&
           rows / GEMM_BYTES_ROWS * ceil_div(w->out, block_width(GEMM_BYTES_WIDE)) >= 2 * (int64_t)c->gpu->n_sm;
}

/* n: results of a row; with a gate as many of it and of up. */
static void emit_product(struct cuda *c, const struct op *op, struct k_view y, int64_t n, struct k_bytes *a) {
    const struct weight *w = op->arg.linear.weight;
    size_t used = 0;
    struct k_bytes_x x = emit_integers(c, op, &used);
    a->w = cuda_weight_args(w);
    a->units = x.units, a->sums = x.sums, a->scales = x.scales, a->rows = x.rows;
    a->bias = cuda_vec(op->arg.linear.bias);
    a->y = y.p, a->y_stride = y.row_stride, a->y_dtype = y.dtype, a->m = y.rows;
    bool wide = is_wide(c, w, x.rows);
    int tiles = wide ? GEMM_BYTES_WIDE : GEMM_BYTES_NARROW;
    enum kernel_id kernel = wide ? KERNEL_gemm_bytes_wide_4 : kernels[runs_of(w) - 1][bits_of(w) == 8];
    cuda_emit(c, kernel, GRID(x.rows / GEMM_BYTES_ROWS, ceil_div(n, block_width(tiles) / (a->glu_inner ? 2 : 1)), 1), GEMM_BYTES_WARPS * 32,
              shared_bytes_of(w, tiles), a, sizeof *a);
}

void lower_gemm_bytes(struct cuda *c, const struct op *op) {
    emit_product(c, op, cuda_view(c, op->out[0]), op->arg.linear.weight->out, &(struct k_bytes){0});
}

void lower_gemm_bytes_glu(struct cuda *c, const struct op *linear, const struct op *glu) {
    struct k_view y = cuda_view(c, glu->out[0]);
    emit_product(c, linear, y, y.width, &(struct k_bytes){.glu_inner = y.width, .act = cuda_act(&glu->arg.act)});
}
