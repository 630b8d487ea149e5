/* A product of a decode step with what stands around it as one instruction: [ROWS] [NORM] LINEAR [GLU or ADD]. In a step that becomes one list also [NORM ADD] [ROWS] NORM LINEAR [GLU]:
 * the norm of what the product before it made, added to the residual.
 *
 * Which ops join is decided by shapes and readers alone: what lies between them is read by nobody else. A norm that several products read, such as those of queries, keys and
 * values in formats of their own, is made by each of them. */
#include "backend/cuda/decode/decode.h"

/* Shared memory of a product: head, sums of warps, rings of weights, sums of x, x. */
static size_t linear_shared_bytes(const struct cuda *c, const struct weight *w, int32_t rows) {
    bool is_plain = w->format.mode == QUANT_NONE, is_small = cuda_has_small_shared(c);
    bool is_8 = !is_plain && tile_bits(w->format.bits) == 8;
    int group = is_plain ? TILE_UNIT : w->format.group, slot_bytes = step_slot_bytes(is_plain, w->format.bits, group);
    int ring = STEP_WARPS * step_ring_slots(is_plain, is_8, is_small) * slot_bytes;
    int x_sums = (rows * step_x_sums(is_plain && w->format.dtype == DT_BF16, group, w->in) + 3) / 4 * 4;
    return STEP_HEAD_BYTES + (size_t)(step_sums(is_small) + x_sums) * sizeof(float) + (size_t)ring +
           (size_t)rows * (size_t)step_x_stride(w->in) * 2;
}

bool step_linear_fits(const struct cuda *c, const struct op *op) {
    if (!cuda_step_small(c) || op->kind != OP_LINEAR || !cuda_may_round(c, op)) return false;
    const struct weight *w = op->arg.linear.weight;
    bool is_plain = w->format.mode == QUANT_NONE && w->format.dtype != DT_F32;
    bool is_of_rows = c->one_list && op->in[0].rows > 1; /* x of lists of several rows is in memory */
    return op->in[0].rows <= STEP_ROWS && (is_plain || cuda_weight_args(w).tile_bytes) && w->n_experts == 1 && w->in % 64 == 0 &&
           step_is_even(op->in[0]) && (is_of_rows || linear_shared_bytes(c, w, op->in[0].rows) <= (size_t)c->gpu->shared_max);
}

/* How many products read the norm at op i, if they stand right behind it, nobody else reads it, and what it reads is there until the last of them has ended; else 0. */
static int32_t products_of_norm(const struct cuda *c, int32_t i) {
    const struct oplist *l = &c->base.list;
    const struct op *norm = &l->ops[i];
    if (!step_is_row_norm(norm) || !step_is_even(norm->in[0])) return 0;
    const struct value *y = &l->values[norm->out[0].id - 1], *x = &l->values[norm->in[0].id - 1];
    int32_t n = 0;
    while (i + 1 + n < l->n_ops && cuda_same_view(l->ops[i + 1 + n].in[0], norm->out[0]) && step_linear_fits(c, &l->ops[i + 1 + n])) n++;
    return !y->is_output && y->last_op == i + n && x->last_op > i + n ? n : 0;
}

/* The norm of the product at op i, where it is one of several and not the first; -1: it is not. */
static int32_t norm_of_several(const struct cuda *c, int32_t i) {
    const struct oplist *l = &c->base.list;
    if (l->ops[i].kind != OP_LINEAR) return -1;
    int32_t norm = l->values[l->ops[i].in[0].id - 1].first_op;
    return norm >= 0 && norm + 1 < i && i <= norm + products_of_norm(c, norm) ? norm : -1;
}

bool step_is_post_norm(const struct cuda *c, int32_t i) {
    const struct oplist *l = &c->base.list;
    const struct op *norm = &l->ops[i];
    return i + 1 < l->n_ops && step_is_row_norm(norm) && step_is_even(norm->in[0]) && step_other_summand(norm->out[0], norm + 1) >= 0 &&
           cuda_read_only_by(c, norm->out[0], i + 1);
}

/* Whether the product is of the sum before it. */
static bool is_of_sum(const struct cuda *c, const struct step_product *p) {
    const struct op *ops = c->base.list.ops;
    return p->norm >= 0 && cuda_same_view(ops[p->rows >= 0 ? p->rows : p->norm].in[0], ops[p->sum].out[0]);
}

int32_t step_product_find(const struct cuda *c, int32_t i, struct step_product *out) {
    const struct oplist *l = &c->base.list;
    *out = (struct step_product){-1, -1, -1, -1, -1, -1, -1, false};
    int32_t j = i;
    if (c->one_list && step_is_post_norm(c, i)) out->post = j++, out->sum = j++;
    if (j >= l->n_ops) return 0;
    if (l->ops[j].kind == OP_ROWS && j + 2 < l->n_ops && step_is_row_norm(&l->ops[j + 1]) && step_is_even(l->ops[j].in[0]) &&
        cuda_same_view(l->ops[j + 1].in[0], l->ops[j].out[0]) && cuda_read_only_by(c, l->ops[j].out[0], j + 1))
        out->rows = j++;
    if (j + 1 < l->n_ops && step_is_row_norm(&l->ops[j]) && l->ops[j + 1].kind == OP_LINEAR && step_is_even(l->ops[j].in[0]) &&
        cuda_same_view(l->ops[j + 1].in[0], l->ops[j].out[0]) &&
        (cuda_read_only_by(c, l->ops[j].out[0], j + 1) || (j == i && products_of_norm(c, j))))
        out->norm = j++;
    else if (j == i && (out->norm = norm_of_several(c, j)) >= 0) out->is_next = true;
    if ((out->rows >= 0 && out->norm < 0) || j >= l->n_ops || !step_linear_fits(c, &l->ops[j])) return 0;
    if (out->post >= 0 && !is_of_sum(c, out)) return 0;
    out->linear = j++;
    const struct op *linear = &l->ops[out->linear];
    if (j < l->n_ops && cuda_read_only_by(c, linear->out[0], j)) {
        if (cuda_is_halves(linear, &l->ops[j]) && l->ops[j].out[0].width % 16 == 0) out->glu = j++;
        else if (out->post < 0 && step_other_summand(linear->out[0], &l->ops[j]) >= 0) out->add = j++;
    }
    return j - i;
}

/* x is the sum of a norm, which `add` behind it makes. */
static void put_sum(const struct cuda *c, struct k_step_linear *a, const struct op *norm, struct step_values *values) {
    const struct norm_args *n = &norm->arg.norm;
    const struct op *add = norm + 1;
    int other = step_other_summand(norm->out[0], add);
    step_put_residual(c, a, add, other);
    a->has_sum = 1;
    a->sum_norm = cuda_vec(n->weight);
    a->sum_eps = n->eps;
    a->sum_offset = n->weight_offset;
    values->residual = add->in[other];
    values->sum = add->out[0];
}

void step_product_lower(struct cuda *c, const struct step_product *p) {
    const struct op *ops = c->base.list.ops, *linear = &ops[p->linear];
    const struct weight *w = linear->arg.linear.weight;
    const struct op *last = &ops[p->glu >= 0 ? p->glu : p->add >= 0 ? p->add : p->linear];
    int other = p->add >= 0 ? step_other_summand(linear->out[0], last) : -1;
    struct step_values values = {.x = ops[p->post >= 0   ? p->post
                                          : p->rows >= 0 ? p->rows
                                          : p->norm >= 0 ? p->norm
                                                         : p->linear]
                                          .in[0],
                                 .y = last->out[0],
                                 .is_next = p->is_next};
    if (other >= 0) values.residual = last->in[other];
    struct k_view x = cuda_view(c, values.x), y = cuda_view(c, values.y);
    struct k_instr in = {.kind = K_STEP_LINEAR};
    struct k_step_linear *a = &in.u.linear;
    *a = (struct k_step_linear){
        .w = cuda_weight_args(w),
        .bias = cuda_vec(linear->arg.linear.bias),
        .x = x.p,
        .x_rows = p->rows >= 0 ? cuda_step_array(c, c->at.wanted_rows) : 0,
        .x_stride = x.row_stride,
        .x_dtype = x.dtype,
        .y = y.p,
        .y_stride = y.row_stride,
        .y_dtype = y.dtype,
        .rows = linear->in[0].rows,
        .own_scale = 1,
        .inv_in = 1.0f / (float)w->in,
    };
    if (p->norm >= 0) step_put_norm(a, &ops[p->norm]);
    if (p->glu >= 0) {
        a->glu_inner = last->out[0].width;
        a->act = cuda_act(&last->arg.act);
    }
    if (p->add >= 0) step_put_residual(c, a, last, other);
    if (p->post >= 0) put_sum(c, a, &ops[p->post], &values);
    step_share_tiles(c, a, p->glu >= 0 ? a->glu_inner / 16 : ceil_div(w->out, 16));
    step_emit(c, &in, &values, (unsigned int)c->gpu->n_sm, linear_shared_bytes(c, w, a->rows));
}

void lower_step_linear(struct cuda *c, const struct op *op) {
    step_product_lower(c, &(struct step_product){-1, -1, -1, -1, (int32_t)(op - c->base.list.ops), -1, -1, false});
}
