/* Emitters of the KV cache and of attention over it.
 *
 * Keys and values of a layer are one array of positions [blocks * KV_BLOCK, heads * width]; the step block says where
 * each row is written and which blocks a sequence has. Whole blocks are gathered up to the program's context; what a row
 * must not see is masked by position, and what was never written is zero, so that a mask times garbage stays zero.
 */
#include "backend/xla/emit.h"

#include <math.h>

static struct hlo_val write_rows(struct emit *e, struct hlo_val pool, struct hlo_val index, struct tensor t) {
    return hlo_put(&e->h, pool, index, hlo_convert(&e->h, emit_flat(e, t), pool.type));
}

void emit_kv_write(struct emit *e, const struct op *op) {
    struct kv_ref kv = op->arg.kv.kv;
    struct hlo_val index = emit_step_part(e, e->in.writes[kv.kv_class], HLO_SHAPE(xla_all_rows(&e->a.at)), HLO_I32);
    e->k[kv.kv_class][kv.index] = write_rows(e, e->k[kv.kv_class][kv.index], index, op->in[0]);
    if (op->n_in == 2) e->v[kv.kv_class][kv.index] = write_rows(e, e->v[kv.kv_class][kv.index], index, op->in[1]);
}

/* Blocks of every sequence: [seqs, context, heads, width]. */
static struct hlo_val gather_blocks(struct emit *e, struct kv_ref kv, struct hlo_val pool, int32_t width) {
    struct hlo *h = &e->h;
    const struct xla_shape *at = &e->a.at;
    const struct kv_class *c = &e->a.kv->classes[kv.kv_class];
    int32_t n = at->seqs * (at->context / KV_BLOCK);
    struct hlo_val table = emit_step_part(e, e->in.tables[kv.kv_class], HLO_SHAPE(n), HLO_I32);
    struct hlo_val blocks = hlo_reshape(h, pool, HLO_SHAPE(c->n_blocks, (int64_t)KV_BLOCK * c->heads * width));
    return hlo_reshape(h, hlo_take(h, blocks, table), HLO_SHAPE(at->seqs, at->context, c->heads, width));
}

/* Which positions [context] each row sees: [seqs, rows, context]. */
static struct hlo_val visible(struct emit *e, const struct attn_args *a, struct hlo_val pos) {
    struct hlo *h = &e->h;
    const struct xla_shape *at = &e->a.at;
    struct hlo_shape shape = HLO_SHAPE(at->seqs, at->rows, at->context);
    struct hlo_val where = hlo_iota(h, HLO_I32, shape, 2), wide = hlo_spread(h, pos, shape, 0);
    struct hlo_val seen;
    if (a->both_ways) {
        struct hlo_val lens = emit_step_part(e, e->in.lens, HLO_SHAPE(at->seqs), HLO_I32), end = hlo_spread(h, lens, shape, 0);
        struct hlo_val behind = hlo_with(h, "add", wide, 1); /* rows without a text see one position */
        seen = hlo_compare(h, "LT", where, hlo_binary(h, "maximum", end, behind));
        if (a->window > 0) seen = hlo_binary(h, "and", seen, hlo_compare(h, "LT", where, hlo_with(h, "add", wide, a->window)));
    } else {
        struct hlo_val last = wide;
        if (e->a.needs->sees && !a->is_strict) {
            struct hlo_val until = emit_step_part(e, e->in.until, HLO_SHAPE(at->seqs, at->rows), HLO_I32);
            last = hlo_binary(h, "maximum", wide, hlo_spread(h, until, shape, 0));
        }
        seen = hlo_compare(h, "LE", where, last);
    }
    if (a->window > 0) seen = hlo_binary(h, "and", seen, hlo_compare(h, "GT", where, hlo_with(h, "subtract", wide, a->window)));
    if (a->chunk > 0) {
        struct hlo_val first = hlo_with(h, "multiply", hlo_with(h, "divide", wide, a->chunk), a->chunk);
        seen = hlo_binary(h, "and", seen, hlo_compare(h, "GE", where, first));
    }
    return seen;
}

/* Scores times what the layer multiplies them with; the scale may grow with the position. */
static struct hlo_val scale_scores(struct emit *e, const struct attn_args *a, struct hlo_val scores, struct hlo_val pos) {
    struct hlo *h = &e->h;
    scores = hlo_with(h, "multiply", scores, (double)a->scale);
    if (a->pos_scale_len > 0) {
        struct hlo_val n = hlo_with(h, "divide", hlo_with(h, "add", pos, a->pos_scale_first), a->pos_scale_len);
        struct hlo_val grown = hlo_unary(h, "log", hlo_with(h, "add", hlo_convert(h, n, HLO_F32), 1.0));
        grown = hlo_with(h, "add", hlo_with(h, "multiply", grown, (double)a->pos_scale_beta), 1.0);
        scores = hlo_mul(h, scores, hlo_broadcast(h, grown, scores.shape, (const int32_t[]){0, 2}));
    }
    if (a->softcap > 0) {
        scores = hlo_unary(h, "tanh", hlo_with(h, "divide", scores, (double)a->softcap));
        scores = hlo_with(h, "multiply", scores, (double)a->softcap);
    }
    return scores;
}

/* Each head's slope times the distance of every key, at or before 0; or times its position, rounded and scaled. */
static struct hlo_val add_slopes(struct emit *e, const struct attn_args *a, struct hlo_val scores, struct hlo_val pos) {
    struct hlo *h = &e->h;
    struct hlo_shape shape = HLO_SHAPE(e->a.at.seqs, e->a.at.rows, e->a.at.context);
    struct hlo_val far = hlo_iota(h, HLO_I32, shape, 2);
    struct hlo_val slopes = hlo_reshape(h, emit_vector(e, a->slopes), HLO_SHAPE(hlo_dim(scores, 1), hlo_dim(scores, 3)));
    if (!a->slopes_in_bf16) far = hlo_sub(h, far, hlo_spread(h, pos, shape, 0));
    far = hlo_broadcast(h, hlo_convert(h, far, HLO_F32), scores.shape, (const int32_t[]){0, 2, 4});
    struct hlo_val bias = hlo_mul(h, far, hlo_broadcast(h, slopes, scores.shape, (const int32_t[]){1, 3}));
    if (a->slopes_in_bf16) bias = hlo_with(h, "multiply", hlo_round_bf16(h, bias), (double)a->scale);
    return hlo_add(h, scores, bias);
}

static struct hlo_val within(struct emit *e, struct hlo_val x, double least, double most) {
    x = hlo_binary(&e->h, "maximum", x, hlo_like(&e->h, x, least));
    return hlo_binary(&e->h, "minimum", x, hlo_like(&e->h, x, most));
}

/* The place of every key's distance from its row in tables by distance: [seqs * rows * context]. */
static struct hlo_val distances_of(struct emit *e, const struct attn_args *a, struct hlo_val pos) {
    struct hlo *h = &e->h;
    const struct xla_shape *at = &e->a.at;
    struct hlo_shape shape = HLO_SHAPE(at->seqs, at->rows, at->context);
    struct hlo_val where = hlo_iota(h, HLO_I32, shape, 2), wide = hlo_spread(h, pos, shape, 0);
    struct hlo_val d = within(e, hlo_with(h, "add", hlo_sub(h, where, wide), a->farthest), 0, 2.0 * a->farthest);
    return hlo_reshape(h, d, HLO_SHAPE((int64_t)at->seqs * at->rows * at->context));
}

/* What the table has for the distance of every key from its row. */
static struct hlo_val add_distances(struct emit *e, const struct attn_args *a, struct hlo_val scores, struct hlo_val pos) {
    struct hlo *h = &e->h;
    const struct xla_shape *at = &e->a.at;
    int64_t heads = a->distances->in / (2 * (int64_t)a->farthest + 1);
    struct hlo_val d = distances_of(e, a, pos);
    struct hlo_val table = hlo_reshape(h, emit_vector(e, a->distances), HLO_SHAPE(2 * (int64_t)a->farthest + 1, heads));
    struct hlo_val bias = hlo_take(h, table, d);
    bias = hlo_reshape(h, bias, HLO_SHAPE(at->seqs, at->rows, at->context, hlo_dim(scores, 1), hlo_dim(scores, 3)));
    return hlo_add(h, scores, hlo_transpose(h, bias, (const int32_t[]){0, 3, 1, 4, 2}));
}

/* An element of a tensor [rows, heads, columns] for every score, by its head, a row and a column. */
static struct hlo_val pick_columns(struct emit *e, struct tensor t, struct hlo_val rows, struct hlo_val columns) {
    struct hlo *h = &e->h;
    struct hlo_shape shape = columns.shape;
    int64_t n = (int64_t)xla_all_rows(&e->a.at) * t.heads * t.width, n_scores = 1;
    for (int32_t i = 0; i < shape.rank; i++) n_scores *= shape.dims[i];
    struct hlo_val head = hlo_with(h, "multiply", hlo_iota(h, HLO_I32, shape, 1), (double)shape.dims[3]);
    head = hlo_add(h, head, hlo_iota(h, HLO_I32, shape, 3));
    struct hlo_val index = hlo_add(h, hlo_with(h, "multiply", rows, t.heads), head);
    index = hlo_add(h, hlo_with(h, "multiply", index, t.width), columns);
    struct hlo_val all = hlo_reshape(h, emit_view(e, t), HLO_SHAPE(n));
    return hlo_reshape(h, hlo_take(h, all, hlo_reshape(h, index, HLO_SHAPE(n_scores))), shape);
}

/* The row's own products and the key's, of the column that their distance has; all keys are rows of the step. */
static struct hlo_val add_relative(struct emit *e, const struct op *op, struct hlo_val scores, struct hlo_val pos) {
    struct hlo *h = &e->h;
    const struct attn_args *a = &op->arg.attn;
    const struct xla_shape *at = &e->a.at;
    struct hlo_val buckets = emit_vector(e, a->buckets), columns = hlo_convert(h, hlo_take(h, buckets, distances_of(e, a, pos)), HLO_I32);
    columns = hlo_reshape(h, columns, HLO_SHAPE(at->seqs, at->rows, at->context));
    columns = hlo_broadcast(h, columns, scores.shape, (const int32_t[]){0, 2, 4});
    struct hlo_val seq = hlo_with(h, "multiply", hlo_iota(h, HLO_I32, scores.shape, 0), at->rows);
    struct hlo_val row = hlo_add(h, seq, hlo_iota(h, HLO_I32, scores.shape, 2));
    struct hlo_val first = hlo_reshape(h, hlo_slice(h, pos, 1, 0, 1), HLO_SHAPE(at->seqs)), key = hlo_iota(h, HLO_I32, scores.shape, 4);
    key = within(e, hlo_sub(h, key, hlo_spread(h, first, scores.shape, 0)), 0, at->rows - 1);
    key = hlo_add(h, seq, key);
    struct hlo_val bias = pick_columns(e, op->in[1], row, columns);
    bias = hlo_add(h, bias, pick_columns(e, op->in[2], key, columns));
    return hlo_add(h, scores, hlo_with(h, "multiply", bias, (double)a->scale));
}

/* Softmax weights [seqs, kv heads, rows, group, context] and their sums, not yet divided. */
static struct hlo_val weigh(struct emit *e, const struct attn_args *a, struct hlo_val scores, struct hlo_val seen,
                            struct hlo_val *out_sum) {
    struct hlo *h = &e->h;
    seen = hlo_broadcast(h, seen, scores.shape, (const int32_t[]){0, 2, 4});
    scores = hlo_select(h, seen, scores, hlo_like(h, scores, -INFINITY));
    struct hlo_val most = hlo_reduce(h, "maximum", scores, 4, -INFINITY), sinks = {0};
    if (a->sinks) {
        sinks = hlo_reshape(h, emit_vector(e, a->sinks), HLO_SHAPE(hlo_dim(most, 1), hlo_dim(most, 3)));
        sinks = hlo_broadcast(h, sinks, most.shape, (const int32_t[]){1, 3});
        most = hlo_binary(h, "maximum", most, sinks);
    }
    struct hlo_val weights = hlo_unary(h, "exponential", hlo_sub(h, scores, hlo_spread(h, most, scores.shape, 0)));
    *out_sum = hlo_reduce(h, "add", weights, 4, 0);
    if (a->sinks) *out_sum = hlo_add(h, *out_sum, hlo_unary(h, "exponential", hlo_sub(h, sinks, most)));
    return weights;
}

/* Values [seqs, context, heads, v width], zero beyond the end of the sequence. */
static struct hlo_val values_of(struct emit *e, const struct attn_args *a, struct hlo_val keys) {
    struct hlo *h = &e->h;
    const struct kv_class *c = &e->a.kv->classes[a->kv.kv_class];
    struct hlo_val v =
        c->v_width ? gather_blocks(e, a->kv, e->v[a->kv.kv_class][a->kv.index], c->v_width) : hlo_slice(h, keys, 3, 0, a->v_width);
    struct hlo_val lens = emit_step_part(e, e->in.lens, HLO_SHAPE(e->a.at.seqs), HLO_I32);
    struct hlo_val where = hlo_iota(h, HLO_I32, v.shape, 1);
    struct hlo_val written = hlo_compare(h, "LT", where, hlo_spread(h, lens, v.shape, 0));
    return hlo_select(h, written, v, hlo_like(h, v, 0));
}

/* Whether a position [..., context] is the last of every so many. */
static struct hlo_val ends_window(struct emit *e, int32_t every, struct hlo_shape shape) {
    struct hlo *h = &e->h;
    struct hlo_val where = hlo_with(h, "add", hlo_iota(h, HLO_I32, shape, shape.rank - 1), 1);
    return hlo_compare_with(h, "EQ", hlo_binary(h, "remainder", where, hlo_like(h, where, every)), 0);
}

/* Which positions were picked, [seqs, rows, context]: a mask stands for the list that the other backends make. */
void emit_pick(struct emit *e, const struct op *op) {
    const struct pick_args *a = &op->arg.pick;
    struct hlo *h = &e->h;
    const struct xla_shape *at = &e->a.at;
    int32_t width = op->in[0].width, heads = op->in[0].heads, k = a->k < at->context ? a->k : at->context;
    struct hlo_val pos = emit_step_part(e, e->in.pos, HLO_SHAPE(at->seqs, at->rows), HLO_I32);
    struct hlo_val seen = visible(e, &(struct attn_args){0}, pos), keys = gather_blocks(e, a->kv, e->k[a->kv.kv_class][a->kv.index], width);
    struct hlo_val q = hlo_reshape(h, hlo_convert(h, emit_view(e, op->in[0]), keys.type), HLO_SHAPE(at->seqs, at->rows, heads, width));
    keys = hlo_reshape(h, keys, HLO_SHAPE(at->seqs, at->context, width));
    struct hlo_val scores = hlo_dot(
        h, q, keys, &(struct hlo_dot){.n_batch = 1, .batch_a = {0}, .batch_b = {0}, .n_contract = 1, .contract_a = {3}, .contract_b = {2}});
    scores = hlo_binary(h, "maximum", scores, hlo_like(h, scores, 0));
    struct hlo_val weights = hlo_reshape(h, emit_flat(e, op->in[1]), HLO_SHAPE(at->seqs, at->rows, heads));
    scores = hlo_reduce(h, "add", hlo_mul(h, scores, hlo_spread(h, weights, scores.shape, 0)), 2, 0);
    if (a->every > 0) seen = hlo_binary(h, "and", seen, ends_window(e, a->every, seen.shape));
    scores = hlo_select(h, seen, scores, hlo_like(h, scores, -INFINITY));
    struct hlo_val bar = hlo_slice(h, hlo_sort_down(h, scores, 2), 2, k - 1, k);
    bar = hlo_spread(h, hlo_reshape(h, bar, HLO_SHAPE(at->seqs, at->rows)), scores.shape, 0);
    e->values[op->out[0].id - 1] = hlo_compare(h, "GE", scores, bar);
}

void emit_attn(struct emit *e, const struct op *op) {
    const struct attn_args *a = &op->arg.attn;
    struct hlo *h = &e->h;
    const struct xla_shape *at = &e->a.at;
    const struct kv_class *c = &e->a.kv->classes[a->kv.kv_class];
    int64_t group = op->in[0].heads / c->heads;
    struct hlo_val pos = emit_step_part(e, e->in.pos, HLO_SHAPE(at->seqs, at->rows), HLO_I32);
    struct hlo_val keys = gather_blocks(e, a->kv, e->k[a->kv.kv_class][a->kv.index], c->k_width);
    struct hlo_val q =
        hlo_reshape(h, hlo_convert(h, emit_view(e, op->in[0]), keys.type), HLO_SHAPE(at->seqs, at->rows, c->heads, group, op->in[0].width));
    struct hlo_val scores = hlo_dot(
        h, q, keys,
        &(struct hlo_dot){.n_batch = 2, .batch_a = {0, 2}, .batch_b = {0, 2}, .n_contract = 1, .contract_a = {4}, .contract_b = {3}});
    scores = scale_scores(e, a, scores, pos);
    if (a->slopes) scores = add_slopes(e, a, scores, pos);
    if (a->distances) scores = add_distances(e, a, scores, pos);
    if (op->n_in == 3) scores = add_relative(e, op, scores, pos);
    struct hlo_val sum, seen = visible(e, a, pos);
    if (op->n_in == 2) seen = hlo_binary(h, "and", seen, e->values[op->in[1].id - 1]);
    struct hlo_val weights = weigh(e, a, scores, seen, &sum);
    weights = hlo_convert(h, weights, keys.type);
    struct hlo_val y = hlo_dot(
        h, weights, values_of(e, a, keys),
        &(struct hlo_dot){.n_batch = 2, .batch_a = {0, 1}, .batch_b = {0, 2}, .n_contract = 1, .contract_a = {4}, .contract_b = {1}});
    y = hlo_div(h, y, hlo_spread(h, sum, y.shape, 0));
    emit_set(e, op, 0, hlo_transpose(h, y, (const int32_t[]){0, 2, 1, 3, 4}));
}

/* Keys of a class of one head, which are the values too, [seqs, context, width]; zero where nothing was written. */
static struct hlo_val keys_of(struct emit *e, struct kv_ref kv) {
    const struct kv_class *c = &e->a.kv->classes[kv.kv_class];
    struct hlo *h = &e->h;
    struct hlo_val keys = gather_blocks(e, kv, e->k[kv.kv_class][kv.index], c->k_width);
    keys = hlo_reshape(h, keys, HLO_SHAPE(hlo_dim(keys, 0), hlo_dim(keys, 1), c->k_width));
    struct hlo_val lens = emit_step_part(e, e->in.lens, HLO_SHAPE(e->a.at.seqs), HLO_I32), where = hlo_iota(h, HLO_I32, keys.shape, 1);
    struct hlo_val written = hlo_compare(h, "LT", where, hlo_spread(h, lens, keys.shape, 0));
    return hlo_select(h, written, keys, hlo_like(h, keys, 0));
}

/* A window of one cache and entries of the other are one row of keys. */
void emit_attn_more(struct emit *e, const struct op *op) {
    const struct attn_args *a = &op->arg.attn;
    struct hlo *h = &e->h;
    const struct xla_shape *at = &e->a.at;
    int64_t heads = op->in[0].heads, width = op->in[0].width;
    struct hlo_val pos = emit_step_part(e, e->in.pos, HLO_SHAPE(at->seqs, at->rows), HLO_I32);
    struct hlo_val seen = visible(e, a, pos), more = visible(e, &(struct attn_args){0}, pos);
    more = hlo_binary(h, "and", more, ends_window(e, a->every, more.shape));
    if (op->n_in == 2) more = hlo_binary(h, "and", more, e->values[op->in[1].id - 1]);
    seen = hlo_concat(h, seen, more, 2);
    struct hlo_val own = keys_of(e, a->kv), keys = hlo_concat(h, own, keys_of(e, a->more), 1);
    struct hlo_val q = hlo_reshape(h, hlo_convert(h, emit_view(e, op->in[0]), keys.type), HLO_SHAPE(at->seqs, at->rows, 1, heads, width));
    keys = hlo_reshape(h, keys, HLO_SHAPE(at->seqs, 2 * (int64_t)at->context, 1, width));
    struct hlo_val scores = hlo_dot(
        h, q, keys,
        &(struct hlo_dot){.n_batch = 2, .batch_a = {0, 2}, .batch_b = {0, 2}, .n_contract = 1, .contract_a = {4}, .contract_b = {3}});
    struct hlo_val sum, weights = weigh(e, a, hlo_with(h, "multiply", scores, (double)a->scale), seen, &sum);
    struct hlo_val y = hlo_dot(
        h, hlo_convert(h, weights, keys.type), keys,
        &(struct hlo_dot){.n_batch = 2, .batch_a = {0, 1}, .batch_b = {0, 2}, .n_contract = 1, .contract_a = {4}, .contract_b = {1}});
    y = hlo_div(h, y, hlo_spread(h, sum, y.shape, 0));
    emit_set(e, op, 0, hlo_transpose(h, y, (const int32_t[]){0, 2, 1, 3, 4}));
}
