/* Emitters of the router and of experts.
 *
 * Choosing is by rank: an expert's rank is the number of experts that beat it, ties going to the lower index. That is one
 * comparison of all pairs, without sorting. Experts run in one of two ways, by how many there are to run: the chosen
 * ones' matrices are gathered, or all of them are computed for all rows and those not chosen are weighed with zero.
 */
#include "backend/xla/emit.h"

#include <math.h>

/* ---- the router --------------------------------------------------------------------------------------------------- */

static struct hlo_val without_nans(struct emit *e, struct hlo_val x) {
    struct hlo *h = &e->h;
    struct hlo_val number = hlo_compare(h, "EQ", x, x);
    return hlo_select(h, number, x, hlo_like(h, x, -INFINITY));
}

/* How many of its row beat each element: x [rows, n] without NANs, result int32. */
static struct hlo_val ranks(struct emit *e, struct hlo_val x) {
    struct hlo *h = &e->h;
    struct hlo_shape shape = HLO_SHAPE(hlo_dim(x, 0), hlo_dim(x, 1), hlo_dim(x, 1));
    struct hlo_val own = hlo_spread(h, x, shape, 0), other = hlo_broadcast(h, x, shape, (const int32_t[]){0, 2});
    struct hlo_val own_at = hlo_iota(h, HLO_I32, shape, 1), other_at = hlo_iota(h, HLO_I32, shape, 2);
    struct hlo_val before = hlo_compare(h, "LT", other_at, own_at);
    struct hlo_val more = hlo_compare(h, "GT", other, own), as_much = hlo_compare(h, "EQ", other, own);
    struct hlo_val beats = hlo_binary(h, "or", more, hlo_binary(h, "and", as_much, before));
    return hlo_reduce(h, "add", hlo_convert(h, beats, HLO_I32), 2, 0);
}

/* Only experts of the best groups may be chosen. */
static struct hlo_val mask_groups(struct emit *e, const struct route_args *a, struct hlo_val choice) {
    struct hlo *h = &e->h;
    int64_t rows = hlo_dim(choice, 0), n = hlo_dim(choice, 1), size = n / a->n_groups;
    struct hlo_val members = hlo_reshape(h, choice, HLO_SHAPE(rows * a->n_groups, size));
    struct hlo_val counted = hlo_compare_with(h, "LT", ranks(e, members), a->group_top2 ? 2 : 1);
    struct hlo_val score = hlo_reduce(h, "add", hlo_select(h, counted, members, hlo_like(h, members, 0)), 1, 0);
    struct hlo_val group_rank = ranks(e, without_nans(e, hlo_reshape(h, score, HLO_SHAPE(rows, a->n_groups))));
    struct hlo_val open = hlo_compare_with(h, "LT", group_rank, a->top_groups);
    open = hlo_reshape(h, hlo_spread(h, open, HLO_SHAPE(rows, a->n_groups, size), 0), choice.shape);
    return hlo_select(h, open, choice, hlo_like(h, choice, -INFINITY));
}

static struct hlo_val softmax(struct emit *e, struct hlo_val x) {
    struct hlo *h = &e->h;
    struct hlo_val most = hlo_reduce(h, "maximum", x, 1, -INFINITY);
    struct hlo_val y = hlo_unary(h, "exponential", hlo_sub(h, x, hlo_spread(h, most, x.shape, 0)));
    return hlo_div(h, y, hlo_spread(h, hlo_reduce(h, "add", y, 1, 0), x.shape, 0));
}

/* Of each row the elements whose ranks are 0 ... k - 1: their indices, or what `from` has there. [rows, k] */
static struct hlo_val pick(struct emit *e, struct hlo_val rank, struct hlo_val from, int32_t k) {
    struct hlo *h = &e->h;
    struct hlo_shape shape = HLO_SHAPE(hlo_dim(rank, 0), k, hlo_dim(rank, 1));
    const int32_t dims[] = {0, 2};
    struct hlo_val place = hlo_iota(h, HLO_I32, shape, 1);
    struct hlo_val here = hlo_compare(h, "EQ", hlo_broadcast(h, rank, shape, dims), place);
    struct hlo_val wide = hlo_broadcast(h, from, shape, dims);
    return hlo_reduce(h, "add", hlo_select(h, here, wide, hlo_like(h, wide, 0)), 2, 0);
}

static struct hlo_val final_weights(struct emit *e, const struct route_args *a, struct hlo_val w, struct hlo_val ids) {
    struct hlo *h = &e->h;
    if (a->score == ROUTE_SOFTMAX_AFTER) w = softmax(e, w);
    if (a->normalize) {
        struct hlo_val sum = hlo_with(h, "add", hlo_reduce(h, "add", w, 1, 0), (double)a->norm_eps);
        w = hlo_div(h, w, hlo_spread(h, sum, w.shape, 0));
    }
    if (a->scale != 1.0f) w = hlo_with(h, "multiply", w, (double)a->scale);
    if (!a->expert_scale) return w;
    struct hlo_val flat = hlo_reshape(h, ids, HLO_SHAPE(hlo_dim(ids, 0) * hlo_dim(ids, 1)));
    return hlo_mul(h, w, hlo_reshape(h, hlo_take(h, emit_vector(e, a->expert_scale), flat), w.shape));
}

/* One expert after the other, each weighed by the softmax over those within the threshold of it. */
static void sparsemixer(struct emit *e, const struct op *op, struct hlo_val logits) {
    const struct route_args *a = &op->arg.route;
    struct hlo *h = &e->h;
    int64_t rows = hlo_dim(logits, 0);
    logits = without_nans(e, logits);
    struct hlo_val rank = ranks(e, logits), ids = {0}, weights = {0};
    for (int32_t j = 0; j < a->k; j++) {
        struct hlo_val taken = hlo_compare_with(h, "LT", rank, j), least = hlo_like(h, logits, -INFINITY);
        struct hlo_val left = hlo_select(h, taken, least, logits);
        struct hlo_val most = hlo_spread(h, hlo_reduce(h, "maximum", left, 1, -INFINITY), logits.shape, 0);
        struct hlo_val size = hlo_binary(h, "maximum", hlo_unary(h, "abs", logits), most);
        struct hlo_val far = hlo_compare_with(h, "GT", hlo_div(h, hlo_sub(h, most, logits), size), 2.0 * (double)a->jitter);
        struct hlo_val weight = hlo_unary(h, "exponential", hlo_sub(h, hlo_select(h, far, least, left), most));
        weight = hlo_reshape(h, hlo_reduce(h, "add", weight, 1, 0), HLO_SHAPE(rows, 1));
        weight = hlo_div(h, hlo_like(h, weight, 1.0), weight);
        struct hlo_val chosen = hlo_compare_with(h, "EQ", rank, j), index = hlo_iota(h, HLO_I32, rank.shape, 1);
        struct hlo_val id = hlo_reduce(h, "add", hlo_select(h, chosen, index, hlo_like(h, index, 0)), 1, 0);
        id = hlo_reshape(h, id, HLO_SHAPE(rows, 1));
        ids = j ? hlo_concat(h, ids, id, 1) : id;
        weights = j ? hlo_concat(h, weights, weight, 1) : weight;
    }
    emit_set(e, op, 0, ids);
    emit_set(e, op, 1, weights);
}

void emit_route(struct emit *e, const struct op *op) {
    const struct route_args *a = &op->arg.route;
    struct hlo *h = &e->h;
    struct hlo_val scores = emit_flat(e, op->in[0]);
    if (a->score == ROUTE_SPARSEMIXER) {
        sparsemixer(e, op, scores);
        return;
    }
    if (a->score == ROUTE_SOFTMAX) scores = softmax(e, scores);
    if (a->score == ROUTE_SIGMOID) scores = hlo_unary(h, "logistic", scores);
    struct hlo_val choice = scores;
    if (a->bias) choice = hlo_add(h, choice, hlo_spread(h, emit_vector(e, a->bias), choice.shape, 1));
    choice = without_nans(e, choice);
    if (a->n_groups > 1) choice = mask_groups(e, a, choice);
    struct hlo_val rank = ranks(e, choice);
    struct hlo_val ids = pick(e, rank, hlo_iota(h, HLO_I32, rank.shape, 1), a->k);
    emit_set(e, op, 0, ids);
    emit_set(e, op, 1, final_weights(e, a, pick(e, rank, scores, a->k), ids));
}

/* Whatever expert stands in, its weight is 0. */
void emit_passing(struct emit *e, const struct op *op) {
    struct hlo *h = &e->h;
    struct hlo_val ids = emit_flat(e, op->in[0]), weights = emit_flat(e, op->in[1]);
    struct hlo_val stays = hlo_compare_with(h, "LT", ids, op->arg.passing.n_experts), zero = hlo_like(h, weights, 0);
    emit_set(e, op, 0, hlo_select(h, stays, ids, hlo_like(h, ids, 0)));
    struct hlo_val kept = hlo_select(h, stays, weights, zero);
    struct hlo_val sum = hlo_reduce(h, "add", hlo_select(h, stays, zero, weights), 1, 0);
    emit_set(e, op, 1, hlo_concat(h, kept, hlo_reshape(h, sum, HLO_SHAPE(hlo_dim(ids, 0), 1)), 1));
}

/* ---- experts ------------------------------------------------------------------------------------------------------ */

/* Where an expert's products come from: all experts for every row, or the chosen ones of every (row, choice) pair. The first two dimensions
 * of a product are [rows, experts] or [pairs, 1]. */
struct bank {
    struct hlo_val x;     /* [rows, in] or [pairs, in] */
    struct hlo_val pairs; /* int32 [pairs], or none: all experts */
    struct hlo_val scale; /* router weights over the first two dimensions: [rows, experts] or [pairs, 1] */
    bool scale_input;
};

static struct hlo_val bias_of(struct emit *e, const struct bank *b, const struct weight *w, int64_t n_experts) {
    struct hlo *h = &e->h;
    struct hlo_val all = emit_vector(e, w);
    all = hlo_reshape(h, all, HLO_SHAPE(n_experts, hlo_dim(all, 0) / n_experts));
    return b->pairs.id ? hlo_take(h, all, b->pairs) : all;
}

/* x times each expert's matrix: [rows, experts, out] or [pairs, 1, out]. */
static struct hlo_val product(struct emit *e, const struct bank *b, const struct weight *w, const struct weight *bias) {
    struct hlo *h = &e->h;
    struct hlo_val x = emit_factor(e, w, b->x), y;
    if (b->pairs.id) {
        y = hlo_dot(h, x, emit_matrix_experts(e, w, b->pairs),
                    &(struct hlo_dot){.n_batch = 1, .n_contract = 1, .contract_a = {1}, .contract_b = {2}});
        y = hlo_reshape(h, y, HLO_SHAPE(hlo_dim(y, 0), 1, hlo_dim(y, 1)));
    } else {
        struct hlo_val m = hlo_reshape(h, emit_matrix(e, w), HLO_SHAPE(w->n_experts, w->out, w->in));
        y = hlo_dot(h, x, m, &(struct hlo_dot){.n_contract = 1, .contract_a = {1}, .contract_b = {2}});
    }
    if (b->scale_input) y = hlo_mul(h, y, hlo_spread(h, b->scale, y.shape, 0));
    if (!bias) return y;
    struct hlo_val add = bias_of(e, b, bias, w->n_experts);
    return hlo_add(h, y, b->pairs.id ? hlo_broadcast(h, add, y.shape, (const int32_t[]){0, 2}) : hlo_spread(h, add, y.shape, 1));
}

static struct hlo_val inner_of(struct emit *e, const struct bank *b, const struct experts_args *a) {
    struct hlo *h = &e->h;
    if (a->gate_up) {
        struct hlo_val both = product(e, b, a->gate_up, a->gate_up_bias);
        struct hlo_val gate = hlo_slice(h, both, 2, 0, a->inner);
        return emit_gated(e, gate, hlo_slice(h, both, 2, a->inner, 2 * (int64_t)a->inner), &a->act);
    }
    struct hlo_val up = product(e, b, a->up, a->up_bias);
    if (a->gate) return emit_gated(e, product(e, b, a->gate, a->gate_bias), up, &a->act);
    up = emit_act_of(e, up, a->act.kind, a->act.p);
    return a->act.scale != 1.0f ? hlo_with(h, "multiply", up, (double)a->act.scale) : up;
}

/* The chosen experts only. */
static struct hlo_val experts_gathered(struct emit *e, const struct op *op, struct hlo_val ids, struct hlo_val weights) {
    const struct experts_args *a = &op->arg.experts;
    struct hlo *h = &e->h;
    int64_t rows = hlo_dim(ids, 0), k = hlo_dim(ids, 1), pairs = rows * k;
    struct hlo_val x = emit_flat(e, op->in[0]);
    int64_t in = hlo_dim(x, 1);
    x = hlo_reshape(h, hlo_broadcast(h, x, HLO_SHAPE(rows, k, in), (const int32_t[]){0, 2}), HLO_SHAPE(pairs, in));
    struct bank b = {.x = x,
                     .pairs = hlo_reshape(h, ids, HLO_SHAPE(pairs)),
                     .scale = hlo_reshape(h, weights, HLO_SHAPE(pairs, 1)),
                     .scale_input = a->scale_input};
    struct bank last = b;
    last.x = hlo_reshape(h, inner_of(e, &b, a), HLO_SHAPE(pairs, a->inner));
    last.scale_input = false;
    struct hlo_val y = product(e, &last, a->down, a->down_bias);
    if (!a->scale_input) y = hlo_mul(h, y, hlo_spread(h, b.scale, y.shape, 0));
    return hlo_reduce(h, "add", hlo_reshape(h, y, HLO_SHAPE(rows, k, a->down->out)), 1, 0);
}

/* Sums over a row's choices of what stands beside each expert: [rows, experts]. */
static struct hlo_val over_experts(struct emit *e, struct hlo_val ids, struct hlo_val weights, int64_t n) {
    struct hlo *h = &e->h;
    struct hlo_shape shape = HLO_SHAPE(hlo_dim(ids, 0), hlo_dim(ids, 1), n);
    struct hlo_val expert = hlo_iota(h, HLO_I32, shape, 2);
    struct hlo_val here = hlo_compare(h, "EQ", hlo_spread(h, ids, shape, 0), expert);
    struct hlo_val wide = hlo_spread(h, weights, shape, 0);
    return hlo_reduce(h, "add", hlo_select(h, here, wide, hlo_like(h, wide, 0)), 1, 0);
}

static struct hlo_val experts_all(struct emit *e, const struct op *op, struct hlo_val ids, struct hlo_val weights) {
    const struct experts_args *a = &op->arg.experts;
    struct hlo *h = &e->h;
    int64_t n = a->down->n_experts;
    struct hlo_val share = over_experts(e, ids, weights, n);
    struct hlo_val sum = a->scale_input ? over_experts(e, ids, hlo_like(h, weights, 1.0), n) : share;
    struct bank b = {.x = emit_flat(e, op->in[0]), .scale = share, .scale_input = a->scale_input};
    struct hlo_val inner = inner_of(e, &b, a);
    /* a product that overflowed in an expert that was not chosen must not reach the sum as 0 * infinity */
    struct hlo_val used = hlo_spread(h, hlo_compare_with(h, "NE", sum, 0.0), inner.shape, 0);
    inner = hlo_mul(h, inner, hlo_spread(h, sum, inner.shape, 0));
    inner = hlo_select(h, used, inner, hlo_like(h, inner, 0));
    struct hlo_val down = hlo_reshape(h, emit_matrix(e, a->down), HLO_SHAPE(n, a->down->out, a->down->in));
    struct hlo_val y =
        hlo_dot(h, emit_factor(e, a->down, inner), down, &(struct hlo_dot){.n_contract = 2, .contract_a = {1, 2}, .contract_b = {0, 2}});
    if (!a->down_bias) return y;
    struct hlo_val bias = hlo_reshape(h, emit_vector(e, a->down_bias), HLO_SHAPE(n, a->down->out));
    return hlo_add(h, y, hlo_dot(h, sum, bias, &(struct hlo_dot){.n_contract = 1, .contract_a = {1}, .contract_b = {0}}));
}

void emit_experts(struct emit *e, const struct op *op) {
    struct hlo_val ids = emit_flat(e, op->in[1]), weights = emit_flat(e, op->in[2]);
    bool few = 2 * hlo_dim(ids, 0) * hlo_dim(ids, 1) <= op->arg.experts.down->n_experts;
    emit_set(e, op, 0, few ? experts_gathered(e, op, ids, weights) : experts_all(e, op, ids, weights));
}
