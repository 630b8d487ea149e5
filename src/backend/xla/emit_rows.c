/* Emitters of rows that the host gives, and of what a tower over them needs: attention without a cache, means of rows. Nothing of a tower's step is padding. */
#include "backend/xla/emit.h"

#include <math.h>

void emit_given(struct emit *e, const struct op *op) {
    const struct given_args *a = &op->arg.given;
    struct hlo *h = &e->h;
    int64_t rows = xla_all_rows(&e->a.at);
    struct hlo_val given = emit_step_part(e, e->in.given[a->set], HLO_SHAPE(rows, a->width), HLO_F32);
    if (op->n_in == 0) {
        emit_set(e, op, 0, given);
        return;
    }
    struct hlo_val x = emit_flat(e, op->in[0]);
    if (a->adds) { /* of rows that are not given there are zeros */
        emit_set(e, op, 0, hlo_add(h, x, given));
        return;
    }
    struct hlo_val has = hlo_compare_with(h, "NE", emit_step_part(e, e->in.has[a->set], HLO_SHAPE(rows), HLO_I32), 0);
    emit_set(e, op, 0, hlo_select(h, hlo_spread(h, has, given.shape, 0), given, x));
}

/* Which rows each row sees: [rows, rows]. */
static struct hlo_val seen_rows(struct emit *e, int32_t set, int64_t rows) {
    struct hlo *h = &e->h;
    struct hlo_shape shape = HLO_SHAPE(rows, rows);
    struct hlo_val spans = emit_step_part(e, e->in.spans[set], HLO_SHAPE(rows, 2), HLO_I32), where = hlo_iota(h, HLO_I32, shape, 1);
    struct hlo_val from = hlo_reshape(h, hlo_slice(h, spans, 1, 0, 1), HLO_SHAPE(rows));
    struct hlo_val to = hlo_reshape(h, hlo_slice(h, spans, 1, 1, 2), HLO_SHAPE(rows));
    struct hlo_val behind = hlo_compare(h, "GE", where, hlo_spread(h, from, shape, 0));
    struct hlo_val before = hlo_compare(h, "LT", where, hlo_spread(h, to, shape, 0));
    return hlo_binary(h, "and", behind, before);
}

void emit_attn_rows(struct emit *e, const struct op *op) {
    const struct attn_rows_args *a = &op->arg.attn_rows;
    struct hlo *h = &e->h;
    enum hlo_type type = e->a.half && !op_is_sharp(op) ? HLO_BF16 : HLO_F32;
    struct hlo_val q = hlo_convert(h, emit_view(e, op->in[0]), type), k = hlo_convert(h, emit_view(e, op->in[1]), type);
    struct hlo_val v = hlo_convert(h, emit_view(e, op->in[2]), type);
    struct hlo_val scores = hlo_dot(
        h, q, k, &(struct hlo_dot){.n_batch = 1, .batch_a = {1}, .batch_b = {1}, .n_contract = 1, .contract_a = {2}, .contract_b = {2}});
    scores = hlo_with(h, "multiply", scores, (double)a->scale); /* [heads, rows, rows] */
    struct hlo_val seen = hlo_spread(h, seen_rows(e, a->set, hlo_dim(q, 0)), scores.shape, 1);
    scores = hlo_select(h, seen, scores, hlo_like(h, scores, -INFINITY));
    struct hlo_val most = hlo_reduce(h, "maximum", scores, 2, -INFINITY);
    struct hlo_val weights = hlo_unary(h, "exponential", hlo_sub(h, scores, hlo_spread(h, most, scores.shape, 0)));
    struct hlo_val sum = hlo_reduce(h, "add", weights, 2, 0);
    struct hlo_val y =
        hlo_dot(h, hlo_convert(h, weights, type), v,
                &(struct hlo_dot){.n_batch = 1, .batch_a = {0}, .batch_b = {1}, .n_contract = 1, .contract_a = {2}, .contract_b = {0}});
    y = hlo_div(h, y, hlo_spread(h, sum, y.shape, 0));
    emit_set(e, op, 0, hlo_transpose(h, y, (const int32_t[]){1, 0, 2}));
}

void emit_pool_rows(struct emit *e, const struct op *op) {
    struct hlo *h = &e->h;
    int64_t n = op->arg.pool_rows.n;
    struct hlo_val x = emit_flat(e, op->in[0]);
    x = hlo_reshape(h, x, HLO_SHAPE(hlo_dim(x, 0) / n, n, hlo_dim(x, 1)));
    emit_set(e, op, 0, hlo_with(h, "divide", hlo_reduce(h, "add", x, 1, 0), (double)n));
}
