/* Lowering of element-wise and row-wise ops. */
#include "backend/cuda/lower/lower.h"

static void emit_elem(struct cuda *c, enum kernel_id kernel, const struct k_elem *a) {
    cuda_emit(c, kernel, GRID(ceil_div((int64_t)a->y.heads * a->y.width, 256), a->y.rows, 1), 256, 0, a, sizeof *a);
}

static struct k_elem elem_args(const struct cuda *c, const struct op *op) {
    struct k_elem a = {.a = cuda_view(c, op->in[0]), .y = cuda_view(c, op->out[0]), .act = {.scale = 1}};
    if (op->n_in > 1) a.b = cuda_view(c, op->in[1]);
    return a;
}

void lower_add(struct cuda *c, const struct op *op) {
    struct k_elem a = elem_args(c, op);
    a.a_scale = op->arg.add.a_scale;
    a.b_scale = op->arg.add.b_scale;
    emit_elem(c, KERNEL_elem_add, &a);
}

void lower_act(struct cuda *c, const struct op *op) {
    struct k_elem a = elem_args(c, op);
    a.act = cuda_act(&op->arg.act);
    emit_elem(c, KERNEL_elem_act, &a);
}

void lower_glu(struct cuda *c, const struct op *op) {
    struct k_elem a = elem_args(c, op);
    a.act = cuda_act(&op->arg.act);
    emit_elem(c, KERNEL_elem_glu, &a);
}

void lower_mulvec(struct cuda *c, const struct op *op) {
    const struct vec_args *v = &op->arg.vec;
    struct k_elem a = elem_args(c, op);
    a.mul = cuda_vec(v->mul);
    a.add = cuda_vec(v->add);
    a.mul_is_one = v->mul && v->mul->in == 1;
    emit_elem(c, KERNEL_elem_mulvec, &a);
}

void lower_terms(struct cuda *c, const struct op *op) {
    struct k_elem a = elem_args(c, op);
    EMIT(c, KERNEL_elem_terms, GRID(ceil_div((int64_t)a.a.heads * a.a.width, 256), a.a.rows, 1), 256, 0, a);
}

void lower_terms_sum(struct cuda *c, const struct op *op) {
    struct k_elem a = elem_args(c, op);
    a.add = cuda_vec(op->arg.linear.bias);
    emit_elem(c, KERNEL_elem_terms_sum, &a);
}

void lower_concat(struct cuda *c, const struct op *op) {
    struct k_elem a = elem_args(c, op);
    emit_elem(c, KERNEL_elem_concat, &a);
}

void lower_rows(struct cuda *c, const struct op *op) {
    struct k_elem a = elem_args(c, op);
    a.rows = cuda_step_array(c, c->at.wanted_rows);
    emit_elem(c, KERNEL_elem_rows, &a);
}

/* Nothing is launched: the value is copied before the part begins (context/part.c). */
void lower_input(struct cuda *c, const struct op *op) {
    (void)c, (void)op;
}

void lower_embed(struct cuda *c, const struct op *op) {
    const struct embed_args *e = &op->arg.embed;
    struct k_embed a = {
        .w = cuda_weight_args(e->weight),
        .ids = cuda_step_array(c, c->at.ids),
        .chosen = c->chosen,
        .pos = cuda_step_array(c, c->at.pos),
        .y = cuda_view(c, op->out[0]),
        .scale = e->scale,
        .by_position = e->by_position,
        .position_offset = e->position_offset,
        .vocab = e->vocab,
        .by_type = e->by_type,
        .first = e->first,
        .of = e->of,
    };
    EMIT(c, KERNEL_embed, GRID(op->out[0].rows, 1, 1), 256, 0, a);
}

static struct k_norm norm_args_of(const struct cuda *c, const struct op *op, struct tensor y) {
    const struct norm_args *n = &op->arg.norm;
    return (struct k_norm){
        .x = cuda_view(c, op->in[0]),
        .b = op->n_in > 1 ? cuda_view(c, op->in[1]) : (struct k_view){0},
        .y = cuda_view(c, y),
        .weight = cuda_vec(n->weight),
        .bias = cuda_vec(n->bias),
        .kind = (int32_t)n->kind,
        .per_head = n->per_head,
        .gate = op->kind == OP_NORM && op->n_in > 1 ? (int32_t)n->gate : 0,
        .gate_act = (int32_t)n->gate_act,
        .eps = n->eps,
        .cut = n->cut,
        .weight_offset = n->weight_offset,
        .a_scale = n->a_scale,
        .b_scale = n->b_scale,
    };
}

/* A row of f32 that can be read 16 bytes at a time. */
static bool is_row4(struct k_view v) {
    return v.heads == 1 && v.dtype == K_F32 && v.row_stride % 4 == 0 && v.p % 16 == 0;
}

static bool row4_fits(const struct cuda *c, const struct k_norm *a) {
    return !c->exact && a->kind == NORM_RMS && !a->gate && !a->bias && a->y.heads == 1 && a->y.width > 512 && a->y.width <= 8192 &&
           a->y.width % 4 == 0 && a->y.row_stride % 4 == 0 && a->y.p % 16 == 0 && a->weight % 16 == 0 && is_row4(a->x) &&
           (!a->is_add || (is_row4(a->b) && is_row4(a->sum)));
}

static void emit_norm(struct cuda *c, const struct k_norm *a) {
    if (row4_fits(c, a)) {
        cuda_emit(c, KERNEL_norm_row4, GRID(a->y.rows, 1, 1), 256, 0, a, sizeof *a);
        return;
    }
    if (a->y.width <= 512 && !a->is_add) {
        cuda_emit(c, KERNEL_norm_warp, GRID(ceil_div((int64_t)a->y.rows * a->y.heads, 4), 1, 1), 128, 0, a, sizeof *a);
        return;
    }
    unsigned int threads = a->y.width >= 4096 ? 1024 : a->y.width >= 2048 ? 512 : 256;
    cuda_emit(c, KERNEL_norm_block, GRID(a->y.heads, a->y.rows, 1), threads, 0, a, sizeof *a);
}

void lower_norm(struct cuda *c, const struct op *op) {
    struct k_norm a = norm_args_of(c, op, op->out[0]);
    emit_norm(c, &a);
}

void lower_add_norm(struct cuda *c, const struct op *op) {
    struct k_norm a = norm_args_of(c, op, op->out[1]);
    a.sum = cuda_view(c, op->out[0]);
    a.is_add = 1;
    emit_norm(c, &a);
}

static bool is_row4_tensor(const struct cuda *c, struct tensor t) {
    return t.heads == 1 && t.row_stride % 4 == 0 && t.offset % 4 == 0 && c->base.list.values[t.id - 1].dtype == DT_F32;
}

/* Asked before values have addresses, so it decides by shapes alone; where it holds, row4_fits holds later. */
bool cuda_norm_takes_parts(const struct cuda *c, const struct op *add_norm) {
    const struct norm_args *n = &add_norm->arg.norm;
    int32_t width = add_norm->out[1].width;
    return !c->exact && add_norm->kind == OP_ADD_NORM && n->kind == NORM_RMS && !n->bias && width > 512 && width <= 8192 &&
           width % 4 == 0 && add_norm->out[1].heads == 1 && add_norm->out[1].row_stride % 8 == 0 && add_norm->out[1].offset % 8 == 0 &&
           is_row4_tensor(c, add_norm->in[0]) && is_row4_tensor(c, add_norm->in[1]) && is_row4_tensor(c, add_norm->out[0]);
}

void cuda_lower_parts_norm(struct cuda *c, const struct op *linear, const struct op *add_norm) {
    struct k_linear product = cuda_linear_args(c, linear);
    size_t used = 0;
    cuda_emit_wqmm(c, linear, &product, &used);
    struct k_norm a = norm_args_of(c, add_norm, add_norm->out[1]);
    a.sum = cuda_view(c, add_norm->out[0]);
    a.is_add = 1;
    if (add_norm->in[1].id == linear->out[0].id) { /* the product is the second summand: exchange the two */
        a.b = a.x;
        float scale = a.a_scale;
        a.a_scale = a.b_scale;
        a.b_scale = scale;
    }
    a.x = (struct k_view){.p = product.partial, .row_stride = product.w.out, .dtype = K_F32, .heads = 1, .rows = product.x.rows};
    a.n_parts = product.k_splits;
    a.part_stride = (int64_t)product.x.rows * product.w.out;
    cuda_emit(c, KERNEL_norm_row4, GRID(a.y.rows, 1, 1), 256, 0, &a, sizeof a);
}

void lower_rope(struct cuda *c, const struct op *op) {
    const struct rope_args *r = &op->arg.rope;
    bool by_axes = cuda_turns_by_axes(c, r);
    struct k_rope a = {
        .x = cuda_view(c, op->in[0]),
        .y = cuda_view(c, op->out[0]),
        .pos = cuda_rope_pos(c, r),
        .places = by_axes ? cuda_step_array(c, c->at.places) : 0,
        .seq_of = cuda_step_array(c, c->at.seq_of),
        ROPE_FIELDS(c, r),
        .shift = r->shift,
    };
    for (int32_t i = 0; by_axes && i < r->n_rotated / 2; i++) a.axes[i / 16] |= (uint32_t)r->axes[i] << i % 16 * 2;
    EMIT(c, KERNEL_rope, GRID(op->out[0].rows, 1, 1), 256, 0, a);
}

void lower_kv_write(struct cuda *c, const struct op *op) {
    struct k_kv_write a = {
        .c = cuda_cache(c, op->arg.kv.kv),
        .k = cuda_view(c, op->in[0]),
        .v = op->n_in > 1 ? cuda_view(c, op->in[1]) : (struct k_view){0},
        .pos = cuda_step_array(c, c->at.pos),
        .seq_of = cuda_step_array(c, c->at.seq_of),
    };
    if (a.c.dtype == K_I8) EMIT(c, KERNEL_kv8_write, GRID(ceil_div(2 * a.c.heads, 4), op->in[0].rows, 1), 128, 0, a);
    else EMIT(c, KERNEL_kv_write, GRID(op->in[0].rows, 1, 1), 256, 0, a);
}

void lower_argmax(struct cuda *c, const struct op *op) {
    enum { CHUNK = 2048 };
    struct tensor x = op->in[0];
    size_t used = 0;
    struct k_argmax a = {.x = cuda_view(c, x),
                         .y = cuda_view(c, op->out[0]).p,
                         .chosen = c->chosen,
                         .y_stride = op->out[0].row_stride,
                         .chunks = (int32_t)ceil_div(x.width, CHUNK)};
    a.best = cuda_op_scratch(c, &used, (size_t)x.rows * (size_t)a.chunks * sizeof(float));
    a.at = cuda_op_scratch(c, &used, (size_t)x.rows * (size_t)a.chunks * sizeof(int32_t));
    EMIT(c, KERNEL_argmax_chunks, GRID(a.chunks, x.rows, 1), 256, 0, a);
    EMIT(c, KERNEL_argmax_rows, GRID(x.rows, 1, 1), 128, 0, a);
}

void lower_blend(struct cuda *c, const struct op *op) {
    struct k_blend a = {
        .x = cuda_view(c, op->in[0]),
        .logits = cuda_view(c, op->in[1]),
        .made = cuda_view(c, op->in[2]),
        .post = cuda_view(c, op->in[3]),
        .y = cuda_view(c, op->out[0]),
        .rounds = op->arg.blend.rounds,
        .eps = op->arg.blend.eps,
    };
    EMIT(c, KERNEL_blend, GRID(op->out[0].rows, 1, 1), 256, 0, a);
}
