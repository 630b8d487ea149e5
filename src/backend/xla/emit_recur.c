/* Emitters of recurrent ops.
 *
 * What a row's update needs is computed for all rows at once; the update itself walks the rows of a prompt in a loop that
 * ends at the last true row, so that the padding of a chunk leaves no trace. A decode step is one turn without a loop.
 * States lie in slots [slots + 1, elements]; padded sequences read the last one.
 */
#include "backend/xla/emit.h"

#include <assert.h>
#include <math.h>

/* ---- slots -------------------------------------------------------------------------------------------------------- */

static struct hlo_val slots_of(struct emit *e) {
    return emit_step_part(e, e->in.slots, HLO_SHAPE(e->a.at.seqs), HLO_I32);
}

/* The state of each sequence; zeros where it starts. `shape` begins with the sequences. */
static struct hlo_val load_state(struct emit *e, int32_t state, struct hlo_shape shape) {
    struct hlo *h = &e->h;
    struct hlo_val s = hlo_take(h, e->states[state], slots_of(e));
    struct hlo_val starts = emit_step_part(e, e->in.starts, HLO_SHAPE(e->a.at.seqs), HLO_I32);
    struct hlo_val fresh = hlo_spread(h, hlo_compare_with(h, "NE", starts, 0), s.shape, 0);
    return hlo_reshape(h, hlo_select(h, fresh, hlo_like(h, s, 0), s), shape);
}

static void store_state(struct emit *e, int32_t state, struct hlo_val s) {
    struct hlo_val rows = hlo_reshape(&e->h, s, HLO_SHAPE(e->a.at.seqs, hlo_dim(e->states[state], 1)));
    e->states[state] = hlo_put(&e->h, e->states[state], slots_of(e), rows);
}

/* ---- convolution -------------------------------------------------------------------------------------------------- */

void emit_conv(struct emit *e, const struct op *op) {
    const struct conv_args *a = &op->arg.conv;
    struct hlo *h = &e->h;
    int64_t seqs = e->a.at.seqs, rows = e->a.at.rows, channels = op->in[0].width, kept = a->taps - 1;
    struct hlo_shape shape = HLO_SHAPE(seqs, rows, channels);
    struct hlo_val x = hlo_reshape(h, emit_flat(e, op->in[0]), shape), all = x;
    if (kept) all = hlo_concat(h, load_state(e, a->state, HLO_SHAPE(seqs, kept, channels)), x, 1);
    struct hlo_val weight = hlo_reshape(h, emit_vector(e, a->weight), HLO_SHAPE(channels, a->taps));
    struct hlo_val y = a->bias ? hlo_spread(h, emit_vector(e, a->bias), shape, 2) : hlo_like(h, x, 0);
    for (int32_t t = 0; t < a->taps; t++) {
        struct hlo_val tap = hlo_reshape(h, hlo_slice(h, weight, 1, t, t + 1), HLO_SHAPE(channels));
        tap = hlo_spread(h, tap, shape, 2);
        y = hlo_add(h, y, hlo_mul(h, hlo_slice(h, all, 1, t, t + rows), tap));
    }
    emit_set(e, op, 0, emit_act_of(e, y, a->act, (const float[ACT_PARAMS]){0}));
    if (!kept) return;
    struct hlo_val valid = emit_step_part(e, e->in.n_valid, (struct hlo_shape){0}, HLO_I32);
    store_state(e, a->state, rows == 1 ? hlo_slice(h, all, 1, 1, 1 + kept) : hlo_slice_at(h, all, 1, valid, kept));
}

/* ---- the walk over rows ------------------------------------------------------------------------------------------- */

enum { RECUR_INPUTS = 6 };

/* One turn: the inputs of a row of every sequence, without their time dimension; changes the state, returns the output. */
typedef struct hlo_val recur_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state);

struct recur {
    const struct op *op;
    recur_turn *turn;
    int32_t state, n_in;
    struct hlo_shape state_shape, out_shape; /* of one row of every sequence */
    struct hlo_val in[RECUR_INPUTS];         /* [rows of a prompt, sequences, ...] */
};

/* [rows, ...] with the rows of a prompt first: [rows, seqs, ...]. One of the two is 1, so this is a reshape. */
static struct hlo_val by_time(struct emit *e, struct hlo_val x) {
    struct hlo_shape shape = {.rank = x.shape.rank + 1, .dims = {e->a.at.rows, e->a.at.seqs}};
    for (int32_t i = 1; i < x.shape.rank; i++) shape.dims[i + 1] = x.shape.dims[i];
    return hlo_reshape(&e->h, x, shape);
}

static struct hlo_shape without_first(struct hlo_shape s) {
    for (int32_t i = 1; i < s.rank; i++) s.dims[i - 1] = s.dims[i];
    s.rank--;
    return s;
}

static struct hlo_shape with_first(struct hlo_shape s, int64_t n) {
    for (int32_t i = s.rank; i > 0; i--) s.dims[i] = s.dims[i - 1];
    s.dims[0] = n;
    s.rank++;
    return s;
}

static void run_recur(struct emit *e, struct recur *r) {
    struct hlo *h = &e->h;
    struct hlo_val in[RECUR_INPUTS], state = load_state(e, r->state, r->state_shape);
    int64_t rows = e->a.at.rows;
    if (rows == 1) {
        for (int32_t i = 0; i < r->n_in; i++) in[i] = hlo_reshape(h, r->in[i], without_first(r->in[i].shape));
        emit_set(e, r->op, 0, r->turn(e, r->op, in, &state));
        store_state(e, r->state, state);
        return;
    }
    assert(e->a.at.seqs == 1);
    struct hlo_loop loop = {.n = 2, .carried = {state, hlo_const(h, HLO_F32, 0, with_first(r->out_shape, rows))}};
    hlo_loop_begin(h, &loop, emit_step_part(e, e->in.n_valid, (struct hlo_shape){0}, HLO_I32));
    for (int32_t i = 0; i < r->n_in; i++) {
        struct hlo_val row = hlo_slice_at(h, r->in[i], 0, loop.i, 1);
        in[i] = hlo_reshape(h, row, without_first(row.shape));
    }
    state = loop.carried[0];
    struct hlo_val y = r->turn(e, r->op, in, &state);
    y = hlo_update_at(h, loop.carried[1], hlo_reshape(h, y, with_first(r->out_shape, 1)), 0, loop.i);
    hlo_loop_end(h, &loop, (struct hlo_val[]){state, y});
    store_state(e, r->state, loop.carried[0]);
    emit_set(e, r->op, 0, loop.carried[1]);
}

/* x [seqs, heads, a] and y [seqs, heads, b] to [seqs, heads, a, b]. */
static struct hlo_val outer(struct emit *e, struct hlo_val x, struct hlo_val y) {
    struct hlo_shape shape = HLO_SHAPE(hlo_dim(x, 0), hlo_dim(x, 1), hlo_dim(x, 2), hlo_dim(y, 2));
    struct hlo_val columns = hlo_broadcast(&e->h, y, shape, (const int32_t[]){0, 1, 3});
    return hlo_mul(&e->h, hlo_spread(&e->h, x, shape, 0), columns);
}

/* The sum over the rows of each head's state, weighed: x [seqs, heads, a], s [seqs, heads, a, b] to [seqs, heads, b]. */
static struct hlo_val read_rows(struct emit *e, struct hlo_val x, struct hlo_val s) {
    return hlo_reduce(&e->h, "add", hlo_mul(&e->h, s, hlo_spread(&e->h, x, s.shape, 0)), 2, 0);
}

/* Each head as many times as it has followers: [rows, heads, width] to [rows, heads * times, width]. */
static struct hlo_val repeat_heads(struct emit *e, struct hlo_val x, int64_t times) {
    struct hlo *h = &e->h;
    if (times == 1) return x;
    struct hlo_shape wide = HLO_SHAPE(hlo_dim(x, 0), hlo_dim(x, 1), times, hlo_dim(x, 2));
    x = hlo_broadcast(h, x, wide, (const int32_t[]){0, 1, 3});
    return hlo_reshape(h, x, HLO_SHAPE(wide.dims[0], wide.dims[1] * times, wide.dims[3]));
}

/* ---- gated delta rule --------------------------------------------------------------------------------------------- */

static struct hlo_val delta_unit(struct emit *e, const struct delta_args *a, struct hlo_val x, double scale) {
    struct hlo *h = &e->h;
    if (a->l2_norm) {
        struct hlo_val square = hlo_with(h, "add", hlo_reduce(h, "add", hlo_mul(h, x, x), 2, 0), (double)a->l2_eps);
        x = hlo_div(h, x, hlo_spread(h, hlo_unary(h, "sqrt", square), x.shape, 0));
    }
    return scale == 1.0 ? x : hlo_with(h, "multiply", x, scale);
}

static struct hlo_val delta_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state) {
    (void)op;
    struct hlo *h = &e->h;
    struct hlo_val q = in[0], k = in[1], v = in[2], decay = in[3], beta = in[4];
    struct hlo_val s = hlo_mul(h, *state, hlo_spread(h, decay, state->shape, 0));
    struct hlo_val change = hlo_sub(h, v, read_rows(e, k, s));
    change = hlo_mul(h, change, hlo_spread(h, beta, v.shape, 0));
    *state = hlo_add(h, s, outer(e, k, change));
    return read_rows(e, q, *state);
}

/* exp(-exp(a_log) * dt) for dt [rows, n] and a_log [n]. */
static struct hlo_val decay_of(struct emit *e, const struct weight *a_log, struct hlo_val dt) {
    struct hlo *h = &e->h;
    struct hlo_val rate = hlo_unary(h, "negate", hlo_unary(h, "exponential", emit_vector(e, a_log)));
    return hlo_unary(h, "exponential", hlo_mul(h, dt, hlo_spread(h, rate, dt.shape, 1)));
}

/* The time steps, by head or by channel. */
static struct hlo_val delta_time(struct emit *e, const struct op *op) {
    const struct delta_args *a = &op->arg.delta;
    struct hlo *h = &e->h;
    struct hlo_val x = a->by_channel ? emit_view(e, op->in[3]) : emit_flat(e, op->in[3]), bias = emit_vector(e, a->dt_bias);
    if (a->by_channel) bias = hlo_reshape(h, bias, HLO_SHAPE(a->v_heads, a->k_width));
    x = hlo_add(h, x, hlo_spread(h, bias, x.shape, 1));
    return a->bound == 0 ? emit_softplus(e, x) : x;
}

/* What each row of the state keeps. */
static struct hlo_val delta_decay(struct emit *e, const struct delta_args *a, struct hlo_val x) {
    struct hlo *h = &e->h;
    if (a->bound == 0) return decay_of(e, a->a_log, x);
    struct hlo_val rate = hlo_unary(h, "exponential", emit_vector(e, a->a_log));
    x = hlo_unary(h, "logistic", hlo_mul(h, x, hlo_spread(h, rate, x.shape, 1)));
    return hlo_unary(h, "exponential", hlo_with(h, "multiply", x, (double)a->bound));
}

void emit_delta(struct emit *e, const struct op *op) {
    const struct delta_args *a = &op->arg.delta;
    struct hlo *h = &e->h;
    int64_t times = a->v_heads / a->k_heads, seqs = e->a.at.seqs;
    struct hlo_val dt = delta_time(e, op);
    struct recur r = {.op = op, .turn = delta_turn, .state = a->state, .n_in = 5};
    r.state_shape = HLO_SHAPE(seqs, a->v_heads, a->k_width, a->v_width);
    r.out_shape = HLO_SHAPE(seqs, a->v_heads, a->v_width);
    r.in[0] = by_time(e, repeat_heads(e, delta_unit(e, a, emit_view(e, op->in[0]), (double)a->scale), times));
    r.in[1] = by_time(e, repeat_heads(e, delta_unit(e, a, emit_view(e, op->in[1]), 1.0), times));
    r.in[2] = by_time(e, emit_view(e, op->in[2]));
    r.in[3] = by_time(e, delta_decay(e, a, dt));
    struct hlo_val beta = hlo_unary(h, "logistic", emit_flat(e, op->in[4]));
    r.in[4] = by_time(e, a->beta_scale == 1.0f ? beta : hlo_with(h, "multiply", beta, (double)a->beta_scale));
    run_recur(e, &r);
}

/* ---- state spaces ------------------------------------------------------------------------------------------------- */

/* in: dt * x, B, C, what is kept. */
static struct hlo_val ssd_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state) {
    (void)op;
    struct hlo *h = &e->h;
    struct hlo_val kept = hlo_mul(h, *state, hlo_spread(h, in[3], state->shape, 0));
    *state = hlo_add(h, kept, outer(e, in[0], in[1]));
    struct hlo_val c = hlo_broadcast(h, in[2], state->shape, (const int32_t[]){0, 1, 3});
    return hlo_reduce(h, "add", hlo_mul(h, *state, c), 3, 0);
}

/* The input passed by, weighed by head or by channel. */
static void add_skip(struct emit *e, const struct op *op, const struct weight *d, struct hlo_val x) {
    struct hlo *h = &e->h;
    if (!d) return;
    struct hlo_val y = hlo_reshape(h, e->values[op->out[0].id - 1], x.shape);
    emit_set(e, op, 0, hlo_add(h, y, hlo_mul(h, x, hlo_spread(h, emit_vector(e, d), x.shape, 1))));
}

void emit_ssd(struct emit *e, const struct op *op) {
    const struct ssd_args *a = &op->arg.ssd;
    struct hlo *h = &e->h;
    int64_t times = a->heads / a->groups, seqs = e->a.at.seqs;
    struct hlo_val x = emit_view(e, op->in[0]), dt = emit_flat(e, op->in[3]);
    if (a->dt_bias) dt = hlo_add(h, dt, hlo_spread(h, emit_vector(e, a->dt_bias), dt.shape, 1));
    dt = hlo_with(h, "maximum", emit_softplus(e, dt), (double)a->dt_min);
    if (a->dt_max < INFINITY) dt = hlo_with(h, "minimum", dt, (double)a->dt_max);
    struct recur r = {.op = op, .turn = ssd_turn, .state = a->state, .n_in = 4};
    r.state_shape = HLO_SHAPE(seqs, a->heads, a->head_width, a->state_width);
    r.out_shape = HLO_SHAPE(seqs, a->heads, a->head_width);
    r.in[0] = by_time(e, hlo_mul(h, x, hlo_spread(h, dt, x.shape, 0)));
    r.in[1] = by_time(e, repeat_heads(e, emit_view(e, op->in[1]), times));
    r.in[2] = by_time(e, repeat_heads(e, emit_view(e, op->in[2]), times));
    r.in[3] = by_time(e, decay_of(e, a->a_log, dt));
    run_recur(e, &r);
    add_skip(e, op, a->d, x);
}

/* in: dt * x, dt, B, C; over [seqs, channels, state_width]. */
static struct hlo_val scan_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state) {
    struct hlo *h = &e->h;
    const struct scan_args *a = &op->arg.scan;
    struct hlo_shape shape = state->shape;
    struct hlo_val rates = hlo_reshape(h, emit_vector(e, a->a_log), HLO_SHAPE(shape.dims[1], shape.dims[2]));
    rates = hlo_spread(h, hlo_unary(h, "negate", hlo_unary(h, "exponential", rates)), shape, 1);
    struct hlo_val keep = hlo_unary(h, "exponential", hlo_mul(h, hlo_spread(h, in[1], shape, 0), rates));
    const int32_t dims[] = {0, 2};
    struct hlo_val input = hlo_spread(h, in[0], shape, 0);
    struct hlo_val gain = hlo_mul(h, input, hlo_broadcast(h, in[2], shape, dims));
    *state = hlo_add(h, hlo_mul(h, *state, keep), gain);
    return hlo_reduce(h, "add", hlo_mul(h, *state, hlo_broadcast(h, in[3], shape, dims)), 2, 0);
}

void emit_scan(struct emit *e, const struct op *op) {
    const struct scan_args *a = &op->arg.scan;
    struct hlo *h = &e->h;
    int64_t seqs = e->a.at.seqs, channels = op->in[0].width;
    struct hlo_val x = emit_flat(e, op->in[0]), dt = emit_softplus(e, emit_flat(e, op->in[1]));
    struct recur r = {.op = op, .turn = scan_turn, .state = a->state, .n_in = 4};
    r.state_shape = HLO_SHAPE(seqs, channels, a->state_width);
    r.out_shape = HLO_SHAPE(seqs, channels);
    r.in[0] = by_time(e, hlo_mul(h, x, dt));
    r.in[1] = by_time(e, dt);
    r.in[2] = by_time(e, emit_flat(e, op->in[2]));
    r.in[3] = by_time(e, emit_flat(e, op->in[3]));
    run_recur(e, &r);
    add_skip(e, op, a->d, x);
}

/* ---- linear attention with decay ---------------------------------------------------------------------------------- */

static struct hlo_val lightning_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state) {
    struct hlo *h = &e->h;
    struct hlo_val keep = hlo_unary(h, "exponential", hlo_unary(h, "negate", emit_vector(e, op->arg.lightning.slope)));
    struct hlo_val kept = hlo_mul(h, *state, hlo_spread(h, keep, state->shape, 1));
    *state = hlo_add(h, kept, outer(e, in[1], in[2]));
    return read_rows(e, in[0], *state);
}

void emit_lightning(struct emit *e, const struct op *op) {
    const struct lightning_args *a = &op->arg.lightning;
    struct recur r = {.op = op, .turn = lightning_turn, .state = a->state, .n_in = 3};
    r.state_shape = HLO_SHAPE(e->a.at.seqs, a->heads, a->width, a->width);
    r.out_shape = HLO_SHAPE(e->a.at.seqs, a->heads, a->width);
    for (int32_t i = 0; i < 3; i++) r.in[i] = by_time(e, emit_view(e, op->in[i]));
    run_recur(e, &r);
}

/* ---- linear recurrence with a gate per channel ------------------------------------------------------------------- */

/* in: what is kept, what is added. */
static struct hlo_val lru_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state) {
    (void)op;
    return *state = hlo_add(&e->h, hlo_mul(&e->h, *state, in[0]), in[1]);
}

void emit_lru(struct emit *e, const struct op *op) {
    const struct lru_args *a = &op->arg.lru;
    struct hlo *h = &e->h;
    int64_t seqs = e->a.at.seqs, channels = op->in[0].width;
    struct hlo_val power = hlo_unary(h, "logistic", emit_flat(e, op->in[2]));
    power = hlo_with(h, "multiply", hlo_mul(h, power, hlo_spread(h, emit_vector(e, a->rate), power.shape, 1)), -8.0);
    struct hlo_val square = hlo_unary(h, "exponential", hlo_with(h, "multiply", power, 2.0));
    struct hlo_val root = hlo_unary(h, "sqrt", hlo_sub(h, hlo_like(h, square, 1.0), square));
    struct hlo_val pos = emit_step_part(e, e->in.pos, HLO_SHAPE(xla_all_rows(&e->a.at)), HLO_I32);
    struct hlo_val begins = hlo_spread(h, hlo_compare_with(h, "EQ", pos, 0), root.shape, 0);
    root = hlo_select(h, begins, hlo_like(h, root, 1.0), root);
    struct hlo_val x = emit_flat(e, op->in[0]); /* before its gate: C does not say which argument is computed first */
    struct hlo_val gain = hlo_mul(h, x, hlo_unary(h, "logistic", emit_flat(e, op->in[1])));
    struct recur r = {.op = op, .turn = lru_turn, .state = a->state, .n_in = 2};
    r.state_shape = r.out_shape = HLO_SHAPE(seqs, channels);
    r.in[0] = by_time(e, hlo_unary(h, "exponential", power));
    r.in[1] = by_time(e, hlo_mul(h, gain, root));
    run_recur(e, &r);
}

/* ---- weighed mean of all values ----------------------------------------------------------------------------------- */

/* The sums above and below after one more value, both over e^top. */
struct mean {
    struct hlo_val above, below, top;
};

static struct mean mean_with(struct emit *e, struct mean m, struct hlo_val key, struct hlo_val value) {
    struct hlo *h = &e->h;
    struct mean y = {.top = hlo_binary(h, "maximum", m.top, key)};
    struct hlo_val old = hlo_unary(h, "exponential", hlo_sub(h, m.top, y.top));
    struct hlo_val fresh = hlo_unary(h, "exponential", hlo_sub(h, key, y.top)), kept = hlo_mul(h, old, m.above);
    y.above = hlo_add(h, kept, hlo_mul(h, fresh, value));
    y.below = hlo_add(h, hlo_mul(h, old, m.below), fresh);
    return y;
}

/* in: keys, values. */
static struct hlo_val wkv_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state) {
    const struct wkv_args *a = &op->arg.wkv;
    struct hlo *h = &e->h;
    struct hlo_shape shape = in[0].shape, row = HLO_SHAPE(hlo_dim(in[0], 0), 1, hlo_dim(in[0], 1));
    struct hlo_val part[3];
    for (int32_t i = 0; i < 3; i++) part[i] = hlo_reshape(h, hlo_slice(h, *state, 1, i, i + 1), shape);
    struct hlo_val begun = hlo_compare_with(h, "GT", part[1], 0.0);
    struct mean m = {part[0], part[1], hlo_select(h, begun, part[2], hlo_like(h, part[2], -1e38))};
    struct mean seen = mean_with(e, m, hlo_add(h, in[0], hlo_spread(h, emit_vector(e, a->first), shape, 1)), in[1]);
    m.top = hlo_sub(h, m.top, hlo_spread(h, emit_vector(e, a->rate), shape, 1));
    m = mean_with(e, m, in[0], in[1]);
    struct hlo_val above = hlo_reshape(h, m.above, row), below = hlo_reshape(h, m.below, row), top = hlo_reshape(h, m.top, row);
    *state = hlo_concat(h, hlo_concat(h, above, below, 1), top, 1);
    return hlo_div(h, seen.above, seen.below);
}

void emit_wkv(struct emit *e, const struct op *op) {
    int64_t seqs = e->a.at.seqs, channels = op->in[0].width;
    struct recur r = {.op = op, .turn = wkv_turn, .state = op->arg.wkv.state, .n_in = 2};
    r.state_shape = HLO_SHAPE(seqs, 3, channels);
    r.out_shape = HLO_SHAPE(seqs, channels);
    for (int32_t i = 0; i < 2; i++) r.in[i] = by_time(e, emit_flat(e, op->in[i]));
    run_recur(e, &r);
}

/* ---- memories by head --------------------------------------------------------------------------------------------- */

/* in: r, what is kept, k, v, where a part is taken out, the same times that part. */
static struct hlo_val exchange_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state) {
    (void)op;
    struct hlo *h = &e->h;
    struct hlo_val taken = outer(e, in[5], read_rows(e, in[4], *state));
    struct hlo_val kept = hlo_mul(h, *state, hlo_spread(h, in[1], state->shape, 0));
    *state = hlo_sub(h, hlo_add(h, kept, outer(e, in[2], in[3])), taken);
    return read_rows(e, in[0], *state);
}

void emit_exchange(struct emit *e, const struct op *op) {
    const struct exchange_args *a = &op->arg.exchange;
    struct hlo *h = &e->h;
    int64_t seqs = e->a.at.seqs, heads = op->in[0].heads, width = op->in[0].width;
    struct recur r = {.op = op, .turn = exchange_turn, .state = a->state, .n_in = 6};
    r.state_shape = HLO_SHAPE(seqs, heads, width, width);
    r.out_shape = HLO_SHAPE(seqs, heads, width);
    struct hlo_val in[6];
    for (int32_t i = 0; i < 6; i++) in[i] = emit_view(e, op->in[i]);
    in[1] = hlo_unary(h, "exponential", hlo_with(h, "multiply", hlo_unary(h, "logistic", in[1]), (double)a->rate));
    in[5] = hlo_mul(h, in[4], in[5]);
    for (int32_t i = 0; i < 6; i++) r.in[i] = by_time(e, in[i]);
    run_recur(e, &r);
}

/* in: scaled queries, keys, values with a 1 behind them, the input gate, the logarithm of the forget gate. */
static struct hlo_val mlstm_turn(struct emit *e, const struct op *op, const struct hlo_val *in, struct hlo_val *state) {
    struct hlo *h = &e->h;
    int64_t seqs = hlo_dim(in[0], 0), heads = hlo_dim(in[0], 1), k_width = hlo_dim(in[0], 2), columns = hlo_dim(in[2], 2);
    int64_t n = heads * k_width * columns;
    struct hlo_val s = hlo_reshape(h, hlo_slice(h, *state, 1, 0, n), HLO_SHAPE(seqs, heads, k_width, columns));
    struct hlo_val kept = hlo_add(h, in[4], hlo_slice(h, *state, 1, n, n + heads)), top = hlo_binary(h, "maximum", kept, in[3]);
    struct hlo_val keep = hlo_unary(h, "exponential", hlo_sub(h, kept, top)), fresh = hlo_unary(h, "exponential", hlo_sub(h, in[3], top));
    s = hlo_mul(h, s, hlo_spread(h, keep, s.shape, 0));
    struct hlo_val gain = hlo_mul(h, in[1], hlo_spread(h, fresh, in[1].shape, 0));
    s = hlo_add(h, s, outer(e, gain, in[2]));
    struct hlo_val all = read_rows(e, in[0], s), y = hlo_slice(h, all, 2, 0, columns - 1);
    struct hlo_val below = hlo_unary(h, "abs", hlo_reshape(h, hlo_slice(h, all, 2, columns - 1, columns), HLO_SHAPE(seqs, heads)));
    below = hlo_binary(h, "maximum", below, hlo_unary(h, "exponential", hlo_unary(h, "negate", top)));
    below = hlo_with(h, "add", below, (double)op->arg.mlstm.eps);
    *state = hlo_concat(h, hlo_reshape(h, s, HLO_SHAPE(seqs, n)), top, 1);
    return hlo_div(h, y, hlo_spread(h, below, y.shape, 0));
}

void emit_mlstm(struct emit *e, const struct op *op) {
    const struct mlstm_args *a = &op->arg.mlstm;
    struct hlo *h = &e->h;
    int64_t seqs = e->a.at.seqs, heads = op->in[0].heads, k_width = op->in[0].width, v_width = op->in[2].width;
    struct recur r = {.op = op, .turn = mlstm_turn, .state = a->state, .n_in = 5};
    r.state_shape = HLO_SHAPE(seqs, heads * k_width * (v_width + 1) + heads);
    r.out_shape = HLO_SHAPE(seqs, heads, v_width);
    struct hlo_val v = emit_view(e, op->in[2]), one = hlo_const(h, HLO_F32, 1.0, HLO_SHAPE(hlo_dim(v, 0), heads, 1));
    r.in[0] = by_time(e, hlo_with(h, "multiply", emit_view(e, op->in[0]), (double)a->scale));
    r.in[1] = by_time(e, emit_view(e, op->in[1]));
    r.in[2] = by_time(e, hlo_concat(h, v, one, 2));
    r.in[3] = by_time(e, emit_flat(e, op->in[3]));
    struct hlo_val f = emit_softplus(e, hlo_unary(h, "negate", emit_flat(e, op->in[4])));
    r.in[4] = by_time(e, hlo_unary(h, "negate", f));
    run_recur(e, &r);
}

/* ---- weighed sums of windows --------------------------------------------------------------------------------------- */

struct windows {
    struct hlo_val all; /* [seqs, kept + rows, values and scores] */
    struct hlo_val pos; /* [seqs, rows] */
    struct hlo_val bias;
};

/* The positions of one window, which lie `back` to `back` - every + 1 before a row, added to the running sums: the largest score, the weights, the weighed values. */
static void add_window(struct emit *e, const struct compress_args *a, const struct windows *w, int32_t series, struct hlo_val *sums) {
    struct hlo *h = &e->h;
    int64_t n_series = a->overlaps ? 2 : 1, channels = n_series * a->width, first = series * a->width;
    struct hlo_shape shape = sums[0].shape;
    struct hlo_val values = hlo_slice(h, w->all, 2, first, first + a->width);
    struct hlo_val scores = hlo_slice(h, w->all, 2, channels + first, channels + first + a->width);
    struct hlo_val bias = hlo_slice(h, w->bias, 1, first, first + a->width);
    struct hlo_loop loop = {.n = 3, .carried = {sums[0], sums[1], sums[2]}};
    hlo_loop_begin(h, &loop, hlo_const(h, HLO_I32, a->every, (struct hlo_shape){0}));
    struct hlo_val at = hlo_with(h, "add", loop.i, (double)(series * a->every));
    struct hlo_val x = hlo_slice_at(h, values, 1, at, shape.dims[1]), s = hlo_slice_at(h, scores, 1, at, shape.dims[1]);
    struct hlo_val own = hlo_reshape(h, hlo_slice_at(h, bias, 0, loop.i, 1), HLO_SHAPE(a->width));
    s = hlo_add(h, s, hlo_spread(h, own, shape, 2));
    struct hlo_val back = hlo_sub(h, hlo_like(h, at, (double)(n_series * a->every - 1)), at);
    struct hlo_val there = hlo_compare(h, "GE", w->pos, hlo_broadcast(h, back, w->pos.shape, NULL));
    there = hlo_spread(h, there, shape, 0);
    s = hlo_select(h, there, s, hlo_like(h, s, -1e38));
    struct hlo_val top = hlo_binary(h, "maximum", loop.carried[0], s);
    struct hlo_val keep = hlo_unary(h, "exponential", hlo_sub(h, loop.carried[0], top)),
                   fresh = hlo_unary(h, "exponential", hlo_sub(h, s, top));
    fresh = hlo_select(h, there, fresh, hlo_like(h, fresh, 0));
    struct hlo_val sum = hlo_add(h, hlo_mul(h, loop.carried[1], keep), fresh), kept = hlo_mul(h, loop.carried[2], keep);
    struct hlo_val above = hlo_add(h, kept, hlo_mul(h, fresh, hlo_select(h, there, x, hlo_like(h, x, 0))));
    hlo_loop_end(h, &loop, (struct hlo_val[]){top, sum, above});
    for (int32_t i = 0; i < 3; i++) sums[i] = loop.carried[i];
}

void emit_compress(struct emit *e, const struct op *op) {
    const struct compress_args *a = &op->arg.compress;
    struct hlo *h = &e->h;
    int64_t seqs = e->a.at.seqs, rows = e->a.at.rows, n_series = a->overlaps ? 2 : 1, kept = n_series * a->every - 1;
    int64_t all = op->in[0].width;
    struct hlo_shape shape = HLO_SHAPE(seqs, rows, a->width);
    struct hlo_val x = hlo_reshape(h, emit_flat(e, op->in[0]), HLO_SHAPE(seqs, rows, all));
    struct windows w = {.all = hlo_concat(h, load_state(e, a->state, HLO_SHAPE(seqs, kept, all)), x, 1)};
    w.pos = emit_step_part(e, e->in.pos, HLO_SHAPE(seqs, rows), HLO_I32);
    w.bias = hlo_reshape(h, emit_vector(e, a->bias), HLO_SHAPE(a->every, n_series * a->width));
    struct hlo_val sums[3] = {hlo_const(h, HLO_F32, -1e38, shape)};
    sums[1] = hlo_const(h, HLO_F32, 0, shape);
    sums[2] = hlo_const(h, HLO_F32, 0, shape);
    for (int32_t i = 0; i < n_series; i++) add_window(e, a, &w, i, sums);
    struct hlo_val next = hlo_with(h, "add", w.pos, 1), rest = hlo_binary(h, "remainder", next, hlo_like(h, next, a->every));
    struct hlo_val ends = hlo_spread(h, hlo_compare_with(h, "EQ", rest, 0), shape, 0);
    struct hlo_val y = hlo_div(h, sums[2], sums[1]);
    emit_set(e, op, 0, hlo_select(h, ends, y, hlo_like(h, y, 0)));
    struct hlo_val valid = emit_step_part(e, e->in.n_valid, (struct hlo_shape){0}, HLO_I32);
    store_state(e, a->state, rows == 1 ? hlo_slice(h, w.all, 1, 1, 1 + kept) : hlo_slice_at(h, w.all, 1, valid, kept));
}
