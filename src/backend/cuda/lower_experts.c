/* Lowering of experts: on the tensor cores, pair by pair or sorted by expert (kernels/experts.cu); the reference rows (kernels/moe.cu). */
#include "backend/cuda/cuda.h"

static struct k_experts experts_args_of(const struct cuda *c, const struct op *op) {
    const struct experts_args *e = &op->arg.experts;
    const struct weight *up = e->gate_up ? e->gate_up : e->up, *up_bias = e->gate_up ? e->gate_up_bias : e->up_bias;
    const struct weight *gate = e->gate_up ? e->gate_up : e->gate, *gate_bias = e->gate_up ? e->gate_up_bias : e->gate_bias;
    return (struct k_experts){
        .gate = cuda_weight_args(gate),
        .up = cuda_weight_args(up),
        .down = cuda_weight_args(e->down),
        .gate_rows = gate ? gate->out : 0,
        .up_rows = up->out,
        .up_first = e->gate_up ? e->inner : 0,
        .gate_bias = cuda_vec(gate_bias),
        .up_bias = cuda_vec(up_bias),
        .down_bias = cuda_vec(e->down_bias),
        .gate_bias_stride = gate ? gate->out : 0,
        .up_bias_stride = up->out,
        .up_bias_first = e->gate_up ? e->inner : 0,
        .x = cuda_view(c, op->in[0]),
        .y = cuda_view(c, op->out[0]),
        .ids = cuda_view(c, op->in[1]).p,
        .weights = cuda_view(c, op->in[2]).p,
        .ids_stride = op->in[1].row_stride,
        .weights_stride = op->in[2].row_stride,
        .act = cuda_act(&e->act),
        .inner = e->inner,
        .k = op->in[1].width,
        .n_experts = e->down->n_experts,
        .scale_input = e->scale_input,
    };
}

void lower_experts_ref(struct cuda *c, const struct op *op) {
    struct k_experts a = experts_args_of(c, op);
    int64_t pairs = (int64_t)a.x.rows * a.k;
    size_t used = 0;
    a.inner_values = cuda_op_scratch(c, &used, (size_t)pairs * (size_t)a.inner * sizeof(float));
    EMIT(c, KERNEL_experts_inner, GRID(pairs, ceil_div(a.inner, 8), 1), 256, 0, a);
    EMIT(c, KERNEL_experts_down, GRID(a.x.rows, ceil_div(a.down.out, 8), 1), 256, 0, a);
}

/* ---- on the tensor cores ------------------------------------------------------------------------------------------ */

/* As in kernels/experts.cu. */
enum { FEW_ROWS = 8, TILE_PAIRS = 64, EXPERTS_MAX = 1024, CHOICES_MAX = 64, K_STEP = 64, FEW_SHARED = 80 << 10 };

enum kind { KIND_4, KIND_8, KIND_16, KIND_FP4, N_KINDS };

struct kind_kernels {
    enum kernel_id few_inner, few_down, many_inner, many_down;
    int32_t x_stride; /* elements from a row of x in shared memory to the next */
};

#define KIND(name, stride)                                                                                 \
    {                                                                                                      \
        KERNEL_experts_few_inner_##name, KERNEL_experts_few_down_##name, KERNEL_experts_many_inner_##name, \
            KERNEL_experts_many_down_##name, stride                                                        \
    }
static const struct kind_kernels kinds[N_KINDS] = {
    [KIND_4] = KIND(4, 72),
    [KIND_8] = KIND(8, 72),
    [KIND_16] = KIND(16, 96),
    [KIND_FP4] = KIND(fp4, 72),
};

/* N_KINDS: none of them. */
static enum kind kind_of(const struct weight *w) {
    const struct format *f = &w->format;
    if (f->mode == QUANT_MXFP4) return KIND_FP4;
    if (f->mode == QUANT_NONE) return f->dtype == DT_BF16 ? KIND_16 : N_KINDS;
    return f->mode != QUANT_AFFINE ? N_KINDS : f->bits == 4 ? KIND_4 : f->bits == 8 ? KIND_8 : N_KINDS;
}

static unsigned int many_shared_bytes(enum kind k) {
    return 3u * 2 * TILE_PAIRS * (unsigned int)kinds[k].x_stride * 2;
}

/* Two terms of n numbers. */
static int64_t terms_bytes(int64_t n) {
    return 2 * 2 * n;
}

bool experts_fit(const struct cuda *c, const struct op *op) {
    const struct experts_args *e = &op->arg.experts;
    const struct weight *up = e->gate_up ? e->gate_up : e->up, *gate = e->gate_up ? e->gate_up : e->gate;
    struct tensor x = op->in[0];
    bool alike =
        !gate || (kind_of(gate) == kind_of(up) && gate->format.group == up->format.group && gate->format.dtype == up->format.dtype);
    bool dense = x.heads == 1 && x.row_stride % 4 == 0 && x.offset % 4 == 0 && c->base.list.values[x.id - 1].dtype == DT_F32;
    return !c->exact && c->functions[KERNEL_experts_sort] && alike && dense && kind_of(up) != N_KINDS && kind_of(e->down) != N_KINDS &&
           up->in % K_STEP == 0 && e->down->in % K_STEP == 0 && e->down->n_experts <= EXPERTS_MAX && op->in[1].width <= CHOICES_MAX &&
           many_shared_bytes(KIND_16) <= (unsigned int)c->shared_max;
}

static void emit_few(struct cuda *c, struct k_experts *a, enum kind inner, enum kind down) {
    int64_t pairs = (int64_t)a->x.rows * a->k;
    size_t used = 0;
    a->inner_terms = cuda_op_scratch(c, &used, 2 * (size_t)pairs * (size_t)a->inner * 2);
    cuda_emit(c, kinds[inner].few_inner, GRID(ceil_div(a->inner, 16), pairs, 1), 128, (unsigned int)terms_bytes(a->up.in), a, sizeof *a);
    cuda_emit(c, kinds[down].few_down, GRID(ceil_div(a->down.out, 16), a->x.rows, 1), 512,
              (unsigned int)terms_bytes((int64_t)a->k * a->inner), a, sizeof *a);
}

static void emit_many(struct cuda *c, struct k_experts *a, enum kind inner, enum kind down) {
    size_t used = 0, rows = (size_t)a->x.rows, pairs = rows * (size_t)a->k;
    size_t tiles = pairs / TILE_PAIRS + (pairs < (size_t)a->n_experts ? pairs : (size_t)a->n_experts);
    a->x_terms = cuda_op_scratch(c, &used, 2 * rows * (size_t)a->x.width * 2);
    a->inner_terms = cuda_op_scratch(c, &used, 2 * pairs * (size_t)a->inner * 2);
    a->outer = cuda_op_scratch(c, &used, pairs * (size_t)a->down.out * sizeof(float));
    a->pairs = cuda_op_scratch(c, &used, pairs * sizeof(int32_t));
    a->places = cuda_op_scratch(c, &used, pairs * sizeof(int32_t));
    a->tiles = cuda_op_scratch(c, &used, (1 + 3 * tiles) * sizeof(int32_t));
    cuda_emit(c, KERNEL_experts_sort, GRID(1, 1, 1), 1024, 0, a, sizeof *a);
    cuda_emit(c, KERNEL_experts_terms, GRID(ceil_div(a->x.width, 256), rows, 1), 256, 0, a, sizeof *a);
    cuda_emit(c, kinds[inner].many_inner, GRID(ceil_div(a->inner, 64), tiles, 1), 128, many_shared_bytes(inner), a, sizeof *a);
    cuda_emit(c, kinds[down].many_down, GRID(ceil_div(a->down.out, 128), tiles, 1), 128, many_shared_bytes(down), a, sizeof *a);
    cuda_emit(c, KERNEL_experts_fold, GRID(ceil_div(a->down.out, 256), rows, 1), 256, 0, a, sizeof *a);
}

void lower_experts(struct cuda *c, const struct op *op) {
    const struct experts_args *e = &op->arg.experts;
    struct k_experts a = experts_args_of(c, op);
    enum kind inner = kind_of(e->gate_up ? e->gate_up : e->up), down = kind_of(e->down);
    bool small = terms_bytes(a.up.in) <= FEW_SHARED && terms_bytes((int64_t)a.k * a.inner) <= FEW_SHARED;
    if (a.x.rows <= FEW_ROWS && small) emit_few(c, &a, inner, down);
    else emit_many(c, &a, inner, down);
}
