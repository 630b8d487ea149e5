/* Emitters of element-wise and row-wise ops. */
#include "backend/xla/emit.h"

#include <math.h>

/* ---- activations -------------------------------------------------------------------------------------------------- */

struct hlo_val emit_softplus(struct emit *e, struct hlo_val x) {
    struct hlo *h = &e->h;
    struct hlo_val soft = hlo_unary(h, "log_plus_one", hlo_unary(h, "exponential", hlo_with(h, "minimum", x, 20.0)));
    return hlo_select(h, hlo_compare_with(h, "GT", x, 20.0), x, soft);
}

static struct hlo_val times(struct emit *e, struct hlo_val x, double by) {
    return by == 1.0 ? x : hlo_with(&e->h, "multiply", x, by);
}

static struct hlo_val gelu_tanh(struct emit *e, struct hlo_val x) {
    struct hlo *h = &e->h;
    struct hlo_val cube = times(e, hlo_mul(h, hlo_mul(h, x, x), x), 0.044715);
    struct hlo_val t = hlo_unary(h, "tanh", times(e, hlo_add(h, x, cube), 0.79788456080286536));
    struct hlo_val half = times(e, x, 0.5);
    return hlo_mul(h, half, hlo_with(h, "add", t, 1.0));
}

static struct hlo_val gelu(struct emit *e, struct hlo_val x) {
    struct hlo *h = &e->h;
    struct hlo_val half = times(e, x, 0.5), t = hlo_erf(h, times(e, x, 0.70710678118654752));
    return hlo_mul(h, half, hlo_with(h, "add", t, 1.0));
}

static struct hlo_val xielu(struct emit *e, struct hlo_val x, const float *p) {
    struct hlo *h = &e->h;
    struct hlo_val straight = times(e, x, (double)p[2]);
    struct hlo_val above = hlo_add(h, hlo_mul(h, times(e, x, (double)p[0]), x), straight);
    struct hlo_val curve = hlo_unary(h, "exponential_minus_one", hlo_with(h, "minimum", x, (double)p[3]));
    struct hlo_val below = hlo_add(h, times(e, hlo_sub(h, curve, x), (double)p[1]), straight);
    return hlo_select(h, hlo_compare_with(h, "GT", x, 0.0), above, below);
}

struct hlo_val emit_act_of(struct emit *e, struct hlo_val x, enum act_kind kind, const float *p) {
    struct hlo *h = &e->h;
    switch (kind) {
    case ACT_SILU: return hlo_mul(h, x, hlo_unary(h, "logistic", x));
    case ACT_GELU: return gelu(e, x);
    case ACT_GELU_TANH: return gelu_tanh(e, x);
    case ACT_RELU: return hlo_with(h, "maximum", x, 0.0);
    case ACT_RELU2: x = hlo_with(h, "maximum", x, 0.0); return hlo_mul(h, x, x);
    case ACT_SIGMOID: return hlo_unary(h, "logistic", x);
    case ACT_TANH: return hlo_unary(h, "tanh", x);
    case ACT_SOFTPLUS: return emit_softplus(e, x);
    case ACT_SQRT_SOFTPLUS: return hlo_unary(h, "sqrt", emit_softplus(e, x));
    case ACT_SOFTCAP: return times(e, hlo_unary(h, "tanh", hlo_with(h, "divide", x, (double)p[0])), (double)p[0]);
    case ACT_XIELU: return xielu(e, x, p);
    case ACT_EXP: return hlo_unary(h, "exponential", x);
    case ACT_NEG_EXP: return hlo_unary(h, "negate", hlo_unary(h, "exponential", x));
    case ACT_CLAMP: return hlo_with(h, "maximum", hlo_with(h, "minimum", x, (double)p[0]), (double)-p[0]);
    case ACT_CLAMPED_SWIGLU:
        x = hlo_with(h, "minimum", x, (double)p[1]);
        return hlo_mul(h, x, hlo_unary(h, "logistic", times(e, x, (double)p[0])));
    case ACT_LIMITED_SWIGLU:
        if (p[1] != 0) x = hlo_with(h, "minimum", x, (double)p[0]);
        return hlo_with(h, "minimum", hlo_mul(h, x, hlo_unary(h, "logistic", x)), (double)p[0]);
    default: return x;
    }
}

struct hlo_val emit_gated(struct emit *e, struct hlo_val gate, struct hlo_val up, const struct act_args *a) {
    struct hlo *h = &e->h;
    gate = emit_act_of(e, gate, a->kind, a->p);
    if (a->kind == ACT_CLAMPED_SWIGLU) {
        up = hlo_with(h, "maximum", hlo_with(h, "minimum", up, (double)a->p[1]), (double)-a->p[1]);
        up = hlo_with(h, "add", up, 1.0);
    } else if (a->kind == ACT_LIMITED_SWIGLU) {
        up = hlo_with(h, "maximum", hlo_with(h, "minimum", up, (double)a->p[0]), (double)-a->p[0]);
    }
    return times(e, hlo_mul(h, gate, up), (double)a->scale);
}

void emit_act(struct emit *e, const struct op *op) {
    const struct act_args *a = &op->arg.act;
    emit_set(e, op, 0, times(e, emit_act_of(e, emit_view(e, op->in[0]), a->kind, a->p), (double)a->scale));
}

void emit_glu(struct emit *e, const struct op *op) {
    struct hlo_val a = emit_view(e, op->in[0]), b = emit_view(e, op->in[1]);
    if (hlo_dim(b, 1) != hlo_dim(a, 1) || hlo_dim(b, 2) != hlo_dim(a, 2)) b = hlo_spread(&e->h, b, a.shape, 0);
    emit_set(e, op, 0, emit_gated(e, a, b, &op->arg.act));
}

/* ---- norms -------------------------------------------------------------------------------------------------------- */

/* The mean over the last dimension, spread back over it. */
static struct hlo_val mean_of(struct emit *e, struct hlo_val x) {
    struct hlo *h = &e->h;
    int32_t last = x.shape.rank - 1;
    struct hlo_val m = hlo_with(h, "divide", hlo_reduce(h, "add", x, last, 0), (double)hlo_dim(x, last));
    return hlo_spread(h, m, x.shape, 0);
}

static struct hlo_val mean_square(struct emit *e, struct hlo_val x) {
    return mean_of(e, hlo_mul(&e->h, x, x));
}

/* A norm's weight or bias over [rows, heads, width]. */
static struct hlo_val over_heads(struct emit *e, const struct norm_args *a, struct hlo_val v, struct hlo_shape shape) {
    if (!a->per_head) return hlo_spread(&e->h, v, shape, 2);
    return hlo_spread(&e->h, hlo_reshape(&e->h, v, HLO_SHAPE(shape.dims[1], shape.dims[2])), shape, 1);
}

static struct hlo_val norm_of(struct emit *e, const struct norm_args *a, struct hlo_val x) {
    struct hlo *h = &e->h;
    if (a->kind != NORM_RMS) x = hlo_sub(h, x, mean_of(e, x));
    if (a->kind == NORM_CUT) {
        struct hlo_val above = times(e, hlo_unary(h, "sqrt", mean_square(e, x)), (double)a->cut);
        return hlo_with(h, "maximum", hlo_sub(h, x, above), 0.0);
    }
    struct hlo_val y = hlo_div(h, x, hlo_unary(h, "sqrt", hlo_with(h, "add", mean_square(e, x), (double)a->eps)));
    if (a->weight) {
        struct hlo_val w = emit_vector(e, a->weight);
        if (a->weight_offset != 0) w = hlo_with(h, "add", w, (double)a->weight_offset);
        y = hlo_mul(h, y, over_heads(e, a, w, y.shape));
    }
    return a->bias ? hlo_add(h, y, over_heads(e, a, emit_vector(e, a->bias), y.shape)) : y;
}

static struct hlo_val match_of(struct emit *e, const struct norm_args *a, struct hlo_val x, struct hlo_val model) {
    struct hlo *h = &e->h;
    struct hlo_val have = hlo_unary(h, "sqrt", hlo_with(h, "maximum", mean_square(e, x), (double)a->eps));
    return hlo_div(h, hlo_mul(h, x, hlo_unary(h, "sqrt", mean_square(e, model))), have);
}

void emit_norm(struct emit *e, const struct op *op) {
    const struct norm_args *a = &op->arg.norm;
    struct hlo_val x = emit_view(e, op->in[0]);
    if (op->n_in == 1) {
        emit_set(e, op, 0, norm_of(e, a, x));
        return;
    }
    if (a->gate == GATE_MATCH) {
        emit_set(e, op, 0, match_of(e, a, x, emit_view(e, op->in[1])));
        return;
    }
    struct hlo_val gate = hlo_reshape(&e->h, emit_flat(e, op->in[1]), x.shape);
    gate = emit_act_of(e, gate, a->gate_act, (const float[ACT_PARAMS]){0});
    if (a->gate == GATE_BEFORE) emit_set(e, op, 0, norm_of(e, a, hlo_mul(&e->h, x, gate)));
    else emit_set(e, op, 0, hlo_mul(&e->h, norm_of(e, a, x), gate));
}

/* ---- sums and pieces ---------------------------------------------------------------------------------------------- */

void emit_add(struct emit *e, const struct op *op) {
    const struct add_args *a = &op->arg.add;
    struct hlo_val x = times(e, emit_view(e, op->in[0]), (double)a->a_scale), y = times(e, emit_view(e, op->in[1]), (double)a->b_scale);
    emit_set(e, op, 0, hlo_add(&e->h, x, y));
}

void emit_mulvec(struct emit *e, const struct op *op) {
    const struct vec_args *a = &op->arg.vec;
    struct hlo_val x = emit_view(e, op->in[0]);
    if (a->mul) x = hlo_mul(&e->h, x, hlo_spread(&e->h, emit_vector(e, a->mul), x.shape, 2));
    if (a->add) x = hlo_add(&e->h, x, hlo_spread(&e->h, emit_vector(e, a->add), x.shape, 2));
    emit_set(e, op, 0, x);
}

void emit_concat(struct emit *e, const struct op *op) {
    struct hlo_val a = emit_view(e, op->in[0]), b = emit_view(e, op->in[1]);
    if (hlo_dim(b, 1) != hlo_dim(a, 1)) b = hlo_spread(&e->h, b, HLO_SHAPE(hlo_dim(a, 0), hlo_dim(a, 1), hlo_dim(b, 2)), 0);
    emit_set(e, op, 0, hlo_concat(&e->h, a, b, 2));
}

void emit_rows(struct emit *e, const struct op *op) {
    struct hlo_val x = emit_flat(e, op->in[0]);
    if (e->a.at.logits != xla_all_rows(&e->a.at))
        x = hlo_take(&e->h, x, emit_step_part(e, e->in.logit_rows, HLO_SHAPE(e->a.at.logits), HLO_I32));
    emit_set(e, op, 0, x);
}

/* The first of the largest; -1 where the first or the largest is not finite. */
void emit_argmax(struct emit *e, const struct op *op) {
    struct hlo *h = &e->h;
    struct hlo_val x = emit_flat(e, op->in[0]);
    int64_t rows = hlo_dim(x, 0), n = hlo_dim(x, 1);
    struct hlo_val most = hlo_reduce(h, "maximum", x, 1, -INFINITY);
    struct hlo_val is_most = hlo_compare(h, "EQ", x, hlo_spread(h, most, x.shape, 0));
    struct hlo_val index = hlo_iota(h, HLO_I32, x.shape, 1);
    struct hlo_val best = hlo_reduce(h, "minimum", hlo_select(h, is_most, index, hlo_like(h, index, (double)n)), 1, (double)n);
    struct hlo_val first = hlo_reshape(h, hlo_slice(h, x, 1, 0, 1), HLO_SHAPE(rows));
    struct hlo_val sound = hlo_compare_with(h, "LT", hlo_unary(h, "abs", most), INFINITY);
    sound = hlo_binary(h, "and", sound, hlo_compare_with(h, "LT", hlo_unary(h, "abs", first), INFINITY));
    emit_set(e, op, 0, hlo_select(h, sound, best, hlo_like(h, best, -1)));
}

/* ---- positions ---------------------------------------------------------------------------------------------------- */

void emit_rope(struct emit *e, const struct op *op) {
    const struct rope_args *a = &op->arg.rope;
    struct hlo *h = &e->h;
    struct hlo_val x = emit_view(e, op->in[0]);
    int64_t rows = hlo_dim(x, 0), heads = hlo_dim(x, 1), width = hlo_dim(x, 2), half = a->n_rotated / 2;
    struct hlo_val angles = emit_step_part(e, e->in.ropes[xla_rope_index(e->a.needs, a)], HLO_SHAPE(rows, 2, half), HLO_F32);
    struct hlo_shape flat = HLO_SHAPE(rows, half), wide = HLO_SHAPE(rows, heads, half);
    const int32_t dims[] = {0, 2};
    struct hlo_val cosine = hlo_broadcast(h, hlo_reshape(h, hlo_slice(h, angles, 1, 0, 1), flat), wide, dims);
    struct hlo_val sine = hlo_broadcast(h, hlo_reshape(h, hlo_slice(h, angles, 1, 1, 2), flat), wide, dims);
    struct hlo_val turned = hlo_slice(h, x, 2, a->first, a->first + a->n_rotated);
    int32_t axis = a->kind == ROPE_HALF ? 2 : 3;
    turned = hlo_reshape(h, turned, axis == 2 ? HLO_SHAPE(rows, heads, 2, half) : HLO_SHAPE(rows, heads, half, 2));
    struct hlo_val u = hlo_reshape(h, hlo_slice(h, turned, axis, 0, 1), wide), v = hlo_reshape(h, hlo_slice(h, turned, axis, 1, 2), wide);
    struct hlo_val first = hlo_mul(h, u, cosine), second = hlo_mul(h, v, cosine);
    first = hlo_sub(h, first, hlo_mul(h, v, sine));
    second = hlo_add(h, second, hlo_mul(h, u, sine));
    struct hlo_shape apart = axis == 2 ? HLO_SHAPE(rows, heads, 1, half) : HLO_SHAPE(rows, heads, half, 1);
    first = hlo_reshape(h, first, apart);
    struct hlo_val y = hlo_concat(h, first, hlo_reshape(h, second, apart), axis);
    y = hlo_reshape(h, y, HLO_SHAPE(rows, heads, a->n_rotated));
    if (a->first > 0) y = hlo_concat(h, hlo_slice(h, x, 2, 0, a->first), y, 2);
    if (a->first + a->n_rotated < width) y = hlo_concat(h, y, hlo_slice(h, x, 2, a->first + a->n_rotated, width), 2);
    emit_set(e, op, 0, y);
}

/* ---- streams ------------------------------------------------------------------------------------------------------ */

/* c [rows, n, n] divided by its sums along a dimension. */
static struct hlo_val divide_by_sums(struct emit *e, struct hlo_val c, int32_t dim, float eps) {
    struct hlo *h = &e->h;
    struct hlo_val sum = hlo_with(h, "add", hlo_reduce(h, "add", c, dim, 0), (double)eps);
    return hlo_div(h, c, hlo_broadcast(h, sum, c.shape, dim == 1 ? (const int32_t[]){0, 2} : (const int32_t[]){0, 1}));
}

static struct hlo_val blend_weights(struct emit *e, const struct blend_args *a, struct hlo_val logits) {
    struct hlo *h = &e->h;
    struct hlo_val most = hlo_reduce(h, "maximum", logits, 2, -INFINITY);
    struct hlo_val c = hlo_unary(h, "exponential", hlo_sub(h, logits, hlo_spread(h, most, logits.shape, 0)));
    c = hlo_with(h, "add", divide_by_sums(e, c, 2, 0), (double)a->eps);
    c = divide_by_sums(e, c, 1, a->eps);
    struct hlo_loop loop = {.n = 1, .carried = {c}};
    hlo_loop_begin(h, &loop, hlo_const(h, HLO_I32, a->rounds - 1, (struct hlo_shape){0}));
    c = divide_by_sums(e, loop.carried[0], 2, a->eps);
    c = divide_by_sums(e, c, 1, a->eps);
    hlo_loop_end(h, &loop, &c);
    return loop.carried[0];
}

void emit_blend(struct emit *e, const struct op *op) {
    struct hlo *h = &e->h;
    struct hlo_val x = emit_view(e, op->in[0]), logits = emit_flat(e, op->in[1]);
    int64_t rows = hlo_dim(x, 0), n = hlo_dim(x, 1);
    struct hlo_val c = blend_weights(e, &op->arg.blend, hlo_reshape(h, logits, HLO_SHAPE(rows, n, n)));
    struct hlo_val mixed = hlo_dot(
        h, c, x, &(struct hlo_dot){.n_batch = 1, .batch_a = {0}, .batch_b = {0}, .n_contract = 1, .contract_a = {1}, .contract_b = {1}});
    struct hlo_val made = hlo_broadcast(h, emit_flat(e, op->in[2]), x.shape, (const int32_t[]){0, 2});
    made = hlo_mul(h, made, hlo_spread(h, emit_flat(e, op->in[3]), x.shape, 0));
    emit_set(e, op, 0, hlo_add(h, made, mixed));
}
