/* Lowering of matrix products of many rows, as prompts have them. The kernels multiply bf16; quantised weights are dequantised first, in pieces.
 *
 * On sm_90a kernels/gemm_sm90.cu runs, where addresses and sizes are aligned as the copy engine needs; else kernels/gemm.cu. The kernel of sm_90a has
 * idle warps, which dequantise the weight of the next product meanwhile. So there are two buffers for weights: one is read, the other written. */
#include "backend/cuda/lower/lower.h"

enum { DEQUANT_BYTES = 128 << 20 };

bool cuda_rows_are_even(const struct weight *w) {
    if (w->in % 8 == 0) return true;
    struct k_weight k = cuda_weight_args(w);
    return k.mode == K_PLAIN && k.dtype == K_BF16 && k.values_bytes % 16 == 0 && k.values_bytes > w->in * 2;
}

bool gemm_fits(const struct cuda *c, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    return c->gpu->functions[KERNEL_gemm_bf16] && cuda_may_round(c, op) && op->in[0].rows > QMV_ROWS && cuda_rows_are_even(w) &&
           GEMM_SHARED <= c->gpu->shared_max;
}

/* ---- warpgroup products -------------------------------------------------------------------------------------------- */

/* A product, for either kernel. */
struct gemm {
    struct k_gemm k;
    int64_t w_rows;          /* rows of the matrix at w */
    int64_t up_row, up_bias; /* with a gate: distance from a row, or bias, of the gate to the one of up */
    struct k_act act;
};

static bool has_wgemm(const struct cuda *c) {
    return c->gpu->functions[KERNEL_wgemm_256] && c->d->cuTensorMapEncodeTiled && wgemm_shared_bytes(256) <= c->gpu->shared_max;
}

static bool wgemm_fits(const struct cuda *c, const struct gemm *g) {
    const struct k_gemm *a = &g->k;
    return has_wgemm(c) && a->k >= WGEMM_K && a->k % 8 == 0 && a->x_stride % 8 == 0 && a->x % 16 == 0 && a->w % 16 == 0 && a->n % 8 == 0 &&
           a->y_stride % 4 == 0 && a->y_column % 4 == 0 && a->y % 16 == 0 && a->bias % 8 == 0 && g->up_bias % 2 == 0;
}

void cuda_encode_map(struct cuda *c, struct k_tensor_map *out, CUdeviceptr p, int64_t rows, int64_t stride, unsigned int box_rows,
                     int64_t k) {
    if (!p) return;
    unsigned char room[2 * sizeof(CUtensorMap)]; /* room to align it: not every compiler aligns the stack to 128 bytes */
    CUtensorMap *map = (CUtensorMap *)(void *)(room + (sizeof *map - (uintptr_t)room % sizeof *map));
    uint64_t dims[2] = {(uint64_t)k, (uint64_t)rows}, strides[1] = {(uint64_t)stride * 2};
    unsigned int box[2] = {WGEMM_K, box_rows}, ones[2] = {1, 1};
    CUresult code = c->d->cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)(uintptr_t)p, dims, strides, box, ones,
                                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    static_assert(sizeof *map == sizeof *out, "a tensor map");
    memcpy(out, map, sizeof *map);
    if (code && !c->lower_code) c->lower_code = code;
}

/* Tiles of results 128 or 256 wide, whichever fills the GPU better: a narrow tile takes 0.57 of the time of a wide one. */
static unsigned int wgemm_width(const struct cuda *c, const struct k_wgemm *a) {
    unsigned int rows = ceil_div(a->m, WGEMM_ROWS), parts = a->up_row ? 2 : 1, wide = rows * ceil_div(a->n, 256 / parts),
                 narrow = rows * ceil_div(a->n, 128 / parts);
    return ceil_div(wide, c->gpu->n_sm) * 100 <= ceil_div(narrow, c->gpu->n_sm) * 57 ? 256 : 128;
}

static void emit_wgemm(struct cuda *c, const struct gemm *g) {
    const struct k_gemm *k = &g->k;
    struct k_wgemm a = {.bias = k->bias,
                        .y = k->y,
                        .y_stride = k->y_stride,
                        .y_column = k->y_column,
                        .up_bias = g->up_bias,
                        .m = k->m,
                        .n = k->n,
                        .k = k->k,
                        .y_dtype = k->y_dtype,
                        .up_row = (int32_t)g->up_row,
                        .act = g->act};
    unsigned int width = wgemm_width(c, &a), tiles = ceil_div(k->m, WGEMM_ROWS) * ceil_div(k->n, width / (a.up_row ? 2 : 1));
    cuda_encode_map(c, &a.x_map, k->x, k->m, k->x_stride, WGEMM_ROWS, k->k);
    cuda_encode_map(c, &a.w_map, k->w, g->w_rows, k->w_stride, width / 2, k->k);
    EMIT(c, width == 256 ? KERNEL_wgemm_256 : KERNEL_wgemm_128,
         GRID(tiles < (unsigned int)c->gpu->n_sm ? tiles : (unsigned int)c->gpu->n_sm, 1, 1), WGEMM_THREADS,
         (unsigned int)wgemm_shared_bytes((int)width), a);
    c->carrier = c->program.n_launches - 1;
}

/* ---- one product, in pieces where the weight is dequantised -------------------------------------------------------- */

static void emit_gemm(struct cuda *c, const struct gemm *g) {
    if (g->up_row || wgemm_fits(c, g)) {
        emit_wgemm(c, g);
        return;
    }
    c->carrier = -1;
    EMIT(c, KERNEL_gemm_bf16, GRID(ceil_div(g->k.m, GEMM_TILE), ceil_div(g->k.n, GEMM_TILE), 1), GEMM_THREADS, GEMM_SHARED, g->k);
}

/* Rows [first, first + n) as bf16; first is a multiple of a tile's rows. */
static void emit_dequant(struct cuda *c, const struct k_weight *w, CUdeviceptr to, int64_t first, int64_t n) {
    if (w->tile_bytes) {
        struct k_tile a = {.w = *w, .out = to, .first = first, .n = n};
        unsigned int tiles = ceil_div(n, TILE_ROWS), y = tiles < MAX_GRID_Y ? tiles : MAX_GRID_Y;
        EMIT(c, KERNEL_tile_dequant, GRID(ceil_div(w->in / TILE_UNIT, 8), y, ceil_div(tiles, y)), 256, 0, a);
        return;
    }
    struct k_dequant d = {.w = *w, .out = to, .first = first, .n = n};
    EMIT(c, KERNEL_dequant, GRID(ceil_div(n * ceil_div(w->in, 8), 256), 1, 1), 256, 0, d);
}

/* Dequantises rows [first, first + n) for the next product; with two parts also the rows n_out behind them. The product before does it while it
 * runs, where it can; else kernels of its own do. */
static void emit_weight(struct cuda *c, const struct k_weight *w, CUdeviceptr to, int64_t first, int64_t n, int64_t n_out, int parts) {
    if (w->tile_bytes && c->carrier >= 0) {
        unsigned char *args = c->program.args + c->program.launches[c->carrier].args;
        struct k_wgemm a;
        memcpy(&a, args, sizeof a);
        a.aside = (struct k_tile){.w = *w, .out = to, .first = first, .n = n};
        a.aside_up = parts > 1 ? n_out : 0;
        memcpy(args, &a, sizeof a);
        c->carrier = -1;
        return;
    }
    for (int p = 0; p < parts; p++) emit_dequant(c, w, to + (uint64_t)(p * n * w->in) * 2, p * n_out + first, n);
}

/* A buffer for n dequantised rows: of the two buffers the one that the product before does not read. */
static CUdeviceptr dequantised_buffer(struct cuda *c, const struct k_weight *w, int64_t n, size_t *used) {
    size_t bytes = (size_t)n * (size_t)w->in * 2, both = (bytes + 255) / 256 * 256 * 2;
    if (!w->tile_bytes || !has_wgemm(c)) return cuda_op_scratch(c, used, bytes);
    if (both > c->dequantised_need) c->dequantised_need = both;
    c->i_dequantised ^= 1;
    return c->dequantised + (c->i_dequantised ? c->dequantised_bytes / 2 : 0);
}

static struct gemm gemm_of(struct cuda *c, const struct op *op, struct k_view y, size_t *used) {
    const struct weight *w = op->arg.linear.weight;
    struct k_view x = cuda_bf16_input(c, cuda_view(c, op->in[0]), w->in, used);
    int64_t k = (w->in + 7) / 8 * 8;
    return (struct gemm){.k = {.x = x.p,
                               .y = y.p,
                               .x_stride = x.row_stride,
                               .w_stride = k,
                               .y_stride = y.row_stride,
                               .m = x.rows,
                               .k = (int32_t)k,
                               .y_dtype = y.dtype}};
}

/* A product in pieces of the weight's rows. parts: 1; with a gate 2, where the rows n_out behind the gate's are those of up. */
static void emit_pieces(struct cuda *c, const struct op *op, struct gemm *g, int64_t n_out, int parts, size_t used) {
    const struct weight *w = op->arg.linear.weight;
    struct k_weight kw = cuda_weight_args(w);
    uint64_t bias = cuda_vec(op->arg.linear.bias);
    g->up_bias = parts > 1 ? n_out : 0;
    if (kw.mode == K_PLAIN && kw.dtype == K_BF16) {
        g->k.w = kw.values;
        g->k.n = (int32_t)n_out;
        g->k.bias = bias;
        g->w_rows = w->out;
        g->up_row = g->up_bias;
        emit_gemm(c, g);
        return;
    }
    int64_t at_once = DEQUANT_BYTES / 2 / w->in / parts / GEMM_TILE * GEMM_TILE;
    if (at_once < GEMM_TILE) at_once = GEMM_TILE;
    if (at_once > n_out) at_once = n_out;
    for (int64_t first = 0; first < n_out; first += at_once) {
        int64_t n = n_out - first < at_once ? n_out - first : at_once;
        size_t piece_used = used;
        g->k.w = dequantised_buffer(c, &kw, at_once * parts, &piece_used);
        emit_weight(c, &kw, g->k.w, first, n, n_out, parts);
        g->k.n = (int32_t)n;
        g->k.y_column = first;
        g->k.bias = bias ? bias + (uint64_t)first * sizeof(float) : 0;
        g->w_rows = parts * n;
        g->up_row = parts > 1 ? n : 0;
        emit_gemm(c, g);
    }
}

void lower_gemm(struct cuda *c, const struct op *op) {
    size_t used = 0;
    struct gemm g = gemm_of(c, op, cuda_view(c, op->out[0]), &used);
    emit_pieces(c, op, &g, op->arg.linear.weight->out, 1, used);
}

/* ---- a matrix for each head ------------------------------------------------------------------------------------------ */

bool gemm_heads_fit(const struct cuda *c, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    return !c->exact && c->gpu->functions[KERNEL_gemm_bf16] && op->in[0].rows > QMV_ROWS && w->in % 8 == 0 && !op->arg.linear.bias &&
           op->in[0].heads <= MAX_GRID_Y && GEMM_SHARED <= c->gpu->shared_max;
}

void lower_head_gemm(struct cuda *c, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    struct k_weight kw = cuda_weight_args(w);
    size_t used = 0;
    struct k_view x = cuda_bf16_heads(c, cuda_view(c, op->in[0]), &used), y = cuda_view(c, op->out[0]);
    int64_t heads = x.heads, in = w->in;
    CUdeviceptr weights = cuda_op_scratch(c, &used, (size_t)(heads * w->out * in) * 2);
    emit_dequant(c, &kw, weights, 0, heads * w->out);
    struct k_gemm a = {.x = x.p,
                       .w = weights,
                       .y = y.p,
                       .x_stride = x.row_stride,
                       .w_stride = in,
                       .y_stride = y.row_stride,
                       .m = x.rows,
                       .n = (int32_t)w->out,
                       .k = (int32_t)in,
                       .y_dtype = y.dtype,
                       .x_head = in,
                       .w_head = w->out * in,
                       .y_head = y.head_stride};
    EMIT(c, KERNEL_gemm_bf16, GRID(ceil_div(a.m, GEMM_TILE), ceil_div(a.n, GEMM_TILE), heads), GEMM_THREADS, GEMM_SHARED, a);
}

/* ---- with its gate ------------------------------------------------------------------------------------------------- */

/* Asked before values have addresses, so it decides by sizes alone: planned values begin at multiples of 256 bytes. */
bool gemm_glu_fits(const struct cuda *c, const struct op *linear, const struct op *glu) {
    const struct weight *w = linear->arg.linear.weight;
    enum act_kind kind = glu->arg.act.kind;
    struct tensor y = glu->out[0];
    return gemm_fits(c, linear) && has_wgemm(c) && (kind == ACT_SILU || kind == ACT_GELU_TANH) && w->in >= WGEMM_K &&
           cuda_weight_args(w).values % 16 == 0 && y.heads == 1 && y.width % 16 == 0 && y.row_stride % 8 == 0 && y.offset % 8 == 0;
}

void lower_gemm_glu(struct cuda *c, const struct op *linear, const struct op *glu) {
    struct k_view y = cuda_view(c, glu->out[0]);
    size_t used = 0;
    struct gemm g = gemm_of(c, linear, y, &used);
    g.act = cuda_act(&glu->arg.act);
    emit_pieces(c, linear, &g, y.width, 2, used);
}
