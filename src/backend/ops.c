/* The op list: constructors with their shape checks, growth of the list. */
#include "backend/ops.h"

#include "backend/backend.h"

static const char *const kind_names[N_OP_KINDS] = {
#define OP(id, name, member) [OP_##id] = name,
#include "backend/ops.def"
#undef OP
};

static const char *const act_names[N_ACT_KINDS] = {
#define ACT(name, word) [ACT_##name] = word,
#include "backend/kinds.def"
};

const char *op_name(enum op_kind kind) {
    return kind_names[kind];
}

bool op_is_sharp(const struct op *op) {
    float scale = op->arg.attn_rows.scale;
    return scale * scale * (float)op->in[0].width >= 4;
}

const char *act_name(enum act_kind kind) {
    return act_names[kind];
}

void oplist_begin(struct oplist *l, int32_t n_rows, int32_t n_wanted) {
    l->n_ops = l->n_values = 0;
    l->n_rows = n_rows;
    l->n_wanted = n_wanted;
    l->layer = -1;
    l->adapts = l->is_wanted_only = l->gives = l->has_places = l->has_spans = false;
    err_clear(&l->err);
}

void oplist_free(struct oplist *l) {
    mem_free(l->ops);
    mem_free(l->values);
    *l = (struct oplist){0};
}

void oplist_output(struct oplist *l, struct tensor t) {
    if (tensor_is(t)) l->values[t.id - 1].is_output = true;
}

/* A new op of the kind with its inputs; NULL once the list has failed. */
static struct op *append(struct oplist *l, enum op_kind kind, int32_t n_in, const struct tensor *in) {
    if (l->err.code) return NULL;
    if (l->n_ops == l->ops_capacity) {
        l->ops_capacity = l->ops_capacity ? l->ops_capacity * 2 : 256;
        l->ops = mem_realloc(l->ops, (size_t)l->ops_capacity * sizeof *l->ops);
    }
    struct op *op = &l->ops[l->n_ops];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->layer = l->layer;
    for (int32_t i = 0; i < n_in; i++) {
        if (!tensor_is(in[i])) {
            err_set(&l->err, ERR_EINTERNAL, "op %s: input %d is no tensor", op_name(kind), i);
            return NULL;
        }
        op->in[i] = in[i];
        l->values[in[i].id - 1].last_op = l->n_ops;
    }
    op->n_in = n_in;
    l->n_ops++;
    return op;
}

struct shape {
    int32_t rows, heads, width;
};

static struct tensor new_value(struct oplist *l, enum dtype dtype, struct shape s) {
    if (l->n_values == l->values_capacity) {
        l->values_capacity = l->values_capacity ? l->values_capacity * 2 : 256;
        l->values = mem_realloc(l->values, (size_t)l->values_capacity * sizeof *l->values);
    }
    struct value *v = &l->values[l->n_values++];
    memset(v, 0, sizeof *v);
    v->elements = (int64_t)s.rows * s.heads * s.width;
    v->dtype = dtype;
    v->first_op = v->last_op = l->n_ops - 1;
    struct tensor t;
    memset(&t, 0, sizeof t);
    t.id = l->n_values;
    t.dtype = dtype;
    t.rows = s.rows;
    t.heads = s.heads;
    t.width = s.width;
    t.row_stride = (int64_t)s.heads * s.width;
    t.head_stride = s.width;
    return t;
}

static struct tensor output(struct oplist *l, struct op *op, enum dtype dtype, struct shape s) {
    return op->out[op->n_out++] = new_value(l, dtype, s);
}

struct tensor oplist_value(struct oplist *l, struct tensor t, int32_t rows, enum dtype dtype) {
    return new_value(l, dtype, (struct shape){rows, t.heads, t.width});
}

void oplist_renumber(struct oplist *l) {
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        for (int32_t k = 0; k < op->n_out; k++) l->values[op->out[k].id - 1].first_op = l->values[op->out[k].id - 1].last_op = i;
        for (int32_t k = 0; k < op->n_in; k++) l->values[op->in[k].id - 1].last_op = i;
    }
}

static struct tensor fail(struct oplist *l, const char *what, int64_t got, int64_t want) {
    if (!l->err.code)
        err_set(&l->err, ERR_EINTERNAL, "layer %d: %s is %lld, expected %lld", l->layer, what, (long long)got, (long long)want);
    return (struct tensor){0};
}

#define FITS(what, got, want)                                                                         \
    do {                                                                                              \
        if (l->err.code) return (struct tensor){0};                                                   \
        if ((int64_t)(got) != (int64_t)(want)) return fail(l, what, (int64_t)(got), (int64_t)(want)); \
    } while (0)

static struct shape shape_of(struct tensor t) {
    return (struct shape){t.rows, t.heads, t.width};
}

/* A product of a kind that adapters are not computed for. */
static struct tensor cannot_adapt(struct oplist *l, const struct weight *w) {
    if (!l->err.code) err_set(&l->err, ERR_EUNSUPPORTED, "an adapter of %s cannot be computed here", w->name);
    return (struct tensor){0};
}

/* y with what adapters add to it, where x was multiplied. */
static struct tensor adapt(struct oplist *l, struct tensor x, struct tensor y, const struct adapt_args *a) {
    struct op *op = append(l, OP_ADAPT, 2, (struct tensor[]){x, y});
    if (!op) return (struct tensor){0};
    op->arg.adapt = *a;
    return output(l, op, DT_F32, (struct shape){y.rows, 1, y.width});
}

struct tensor op_embed(struct oplist *l, const struct embed_args *a) {
    struct op *op = append(l, OP_EMBED, 0, NULL);
    if (!op) return (struct tensor){0};
    op->arg.embed = *a;
    struct tensor y = output(l, op, DT_F32, (struct shape){l->n_rows, 1, (int32_t)a->weight->in});
    if (!l->adapts || !a->weight->adapters) return y;
    if (!a->weight->adapters->by_token || a->by_position || a->by_type) return cannot_adapt(l, a->weight);
    return adapt(l, y, y, &(struct adapt_args){.site = a->weight->adapters, .scale = a->scale});
}

struct tensor op_given(struct oplist *l, struct tensor x, const struct given_args *a) {
    if (tensor_is(x)) FITS("width of given rows", a->width, tensor_row_size(x));
    struct op *op = append(l, OP_GIVEN, tensor_is(x) ? 1 : 0, &x);
    if (!op) return (struct tensor){0};
    op->arg.given = *a;
    return output(l, op, DT_F32, (struct shape){l->n_rows, 1, a->width});
}

struct tensor op_input(struct oplist *l, struct tensor t, int32_t slot) {
    struct op *op = append(l, OP_INPUT, 0, NULL);
    if (!op) return (struct tensor){0};
    op->arg.input = (struct input_args){slot};
    return output(l, op, t.dtype, shape_of(t));
}

struct op *op_copy(struct oplist *l, const struct op *op, const struct tensor *in) {
    struct op *copy = append(l, op->kind, op->n_in, in);
    if (!copy) return NULL;
    copy->layer = op->layer;
    copy->arg = op->arg;
    for (int32_t k = 0; k < op->n_out; k++) output(l, copy, op->out[k].dtype, shape_of(op->out[k]));
    return copy;
}

struct tensor op_linear(struct oplist *l, struct tensor x, const struct linear_args *a) {
    FITS("width of a linear layer's input", tensor_row_size(x), a->weight->in);
    if (!tensor_rows_dense(x)) return fail(l, "head stride of a linear layer's input", x.head_stride, x.width);
    if (a->bias) FITS("length of a bias", a->bias->in, a->weight->out);
    struct op *op = append(l, OP_LINEAR, 1, &x);
    if (!op) return (struct tensor){0};
    op->arg.linear = *a;
    struct tensor y = output(l, op, DT_F32, (struct shape){x.rows, 1, (int32_t)a->weight->out});
    if (!l->adapts || !a->weight->adapters) return y;
    if (a->weight->adapters->by_token) return cannot_adapt(l, a->weight);
    return adapt(l, x, y, &(struct adapt_args){.site = a->weight->adapters, .bias = a->bias, .of_wanted = l->is_wanted_only});
}

struct tensor op_head_linear(struct oplist *l, struct tensor x, const struct linear_args *a) {
    if (l->adapts && a->weight->adapters) return cannot_adapt(l, a->weight);
    FITS("heads of a per-head linear layer", x.heads, a->weight->n_experts);
    FITS("width of a per-head linear layer's input", x.width, a->weight->in);
    struct op *op = append(l, OP_HEAD_LINEAR, 1, &x);
    if (!op) return (struct tensor){0};
    op->arg.linear = *a;
    return output(l, op, DT_F32, (struct shape){x.rows, x.heads, (int32_t)a->weight->out});
}

static struct tensor norm(struct oplist *l, const struct tensor *in, int32_t n_in, const struct norm_args *a) {
    struct tensor x = in[0];
    if (a->weight) FITS("length of a norm's weight", a->weight->in, a->per_head ? tensor_row_size(x) : x.width);
    if (n_in == 2) FITS("width of a norm's gate", tensor_row_size(in[1]), tensor_row_size(x));
    if (a->gate == GATE_MATCH) FITS("heads of a norm's model", in[n_in - 1].heads, x.heads);
    struct op *op = append(l, OP_NORM, n_in, in);
    if (!op) return (struct tensor){0};
    op->arg.norm = *a;
    return output(l, op, DT_F32, shape_of(x));
}

struct tensor op_norm(struct oplist *l, struct tensor x, const struct norm_args *a) {
    return norm(l, &x, 1, a);
}

struct tensor op_norm_gated(struct oplist *l, struct tensor x, struct tensor gate, const struct norm_args *a) {
    return norm(l, (struct tensor[]){x, gate}, 2, a);
}

struct tensor op_add(struct oplist *l, struct tensor a, struct tensor b, const struct add_args *scales) {
    FITS("heads of a summand", b.heads, a.heads);
    FITS("width of a summand", b.width, a.width);
    FITS("rows of a summand", b.rows, a.rows);
    struct op *op = append(l, OP_ADD, 2, (struct tensor[]){a, b});
    if (!op) return (struct tensor){0};
    op->arg.add = scales ? *scales : (struct add_args){1.0f, 1.0f};
    return output(l, op, DT_F32, shape_of(a));
}

struct tensor op_act(struct oplist *l, struct tensor x, const struct act_args *a) {
    struct op *op = append(l, OP_ACT, 1, &x);
    if (!op) return (struct tensor){0};
    op->arg.act = *a;
    return output(l, op, DT_F32, shape_of(x));
}

struct tensor op_glu(struct oplist *l, struct tensor a, struct tensor b, const struct act_args *args) {
    FITS("rows of a gate", b.rows, a.rows);
    if (b.heads != 1) FITS("heads of a gate", b.heads, a.heads);
    if (b.width != 1) FITS("width of a gate", b.width, a.width);
    struct op *op = append(l, OP_GLU, 2, (struct tensor[]){a, b});
    if (!op) return (struct tensor){0};
    op->arg.act = *args;
    return output(l, op, DT_F32, shape_of(a));
}

struct tensor op_mulvec(struct oplist *l, struct tensor x, const struct vec_args *a) {
    if (a->mul && a->mul->in != 1) FITS("length of a multiplier", a->mul->in, x.width);
    if (a->add) FITS("length of an addend", a->add->in, x.width);
    struct op *op = append(l, OP_MULVEC, 1, &x);
    if (!op) return (struct tensor){0};
    op->arg.vec = *a;
    return output(l, op, DT_F32, shape_of(x));
}

struct tensor op_rope(struct oplist *l, struct tensor x, const struct rope_args *a) {
    if (a->first + a->n_rotated > x.width) return fail(l, "end of a rotated part", a->first + a->n_rotated, x.width);
    if (a->inv_freq) FITS("length of a rope table", a->inv_freq->in, a->n_rotated / 2);
    struct op *op = append(l, OP_ROPE, 1, &x);
    if (!op) return (struct tensor){0};
    op->arg.rope = *a;
    return output(l, op, DT_F32, shape_of(x));
}

void op_kv_write(struct oplist *l, struct tensor k, struct tensor v, struct kv_ref kv) {
    struct op *op = append(l, OP_KV_WRITE, tensor_is(v) ? 2 : 1, (struct tensor[]){k, v});
    if (op) op->arg.kv = (struct kv_args){kv};
}

struct tensor op_attn_rows(struct oplist *l, struct tensor q, struct tensor k, struct tensor v, const struct attn_rows_args *a) {
    FITS("heads of keys", k.heads, q.heads);
    FITS("heads of values", v.heads, q.heads);
    FITS("width of keys", k.width, q.width);
    struct op *op = append(l, OP_ATTN_ROWS, 3, (struct tensor[]){q, k, v});
    if (!op) return (struct tensor){0};
    op->arg.attn_rows = *a;
    return output(l, op, DT_F32, (struct shape){q.rows, q.heads, v.width});
}

struct tensor op_pool_rows(struct oplist *l, struct tensor x, int32_t n) {
    FITS("rows that are left over of a mean", x.rows % n, 0);
    struct op *op = append(l, OP_POOL_ROWS, 1, &x);
    if (!op) return (struct tensor){0};
    op->arg.pool_rows = (struct pool_rows_args){n};
    return output(l, op, DT_F32, (struct shape){x.rows / n, x.heads, x.width});
}

struct tensor op_pick(struct oplist *l, struct tensor q, struct tensor weights, const struct pick_args *a) {
    FITS("weights of a choice of positions", weights.width, q.heads);
    struct op *op = append(l, OP_PICK, 2, (struct tensor[]){q, weights});
    if (!op) return (struct tensor){0};
    op->arg.pick = *a;
    return output(l, op, DT_I32, (struct shape){q.rows, 1, a->k});
}

struct tensor op_attn(struct oplist *l, struct tensor q, const struct attn_args *a) {
    return op_attn_picked(l, q, (struct tensor){0}, a);
}

struct tensor op_attn_relative(struct oplist *l, struct tensor q, struct tensor by_row, struct tensor by_key, const struct attn_args *a) {
    FITS("heads of a table of distances", by_row.heads, q.heads);
    FITS("heads of a table of distances", by_key.heads, q.heads);
    FITS("columns of a table of distances", by_key.width, by_row.width);
    struct op *op = append(l, OP_ATTN, 3, (struct tensor[]){q, by_row, by_key});
    if (!op) return (struct tensor){0};
    op->arg.attn = *a;
    return output(l, op, DT_F32, (struct shape){q.rows, q.heads, a->v_width});
}

struct tensor op_attn_picked(struct oplist *l, struct tensor q, struct tensor picks, const struct attn_args *a) {
    struct op *op = append(l, OP_ATTN, tensor_is(picks) ? 2 : 1, (struct tensor[]){q, picks});
    if (!op) return (struct tensor){0};
    op->arg.attn = *a;
    return output(l, op, DT_F32, (struct shape){q.rows, q.heads, a->v_width});
}

void op_route(struct oplist *l, struct tensor logits, const struct route_args *a, struct tensor *out_ids, struct tensor *out_weights) {
    *out_ids = *out_weights = (struct tensor){0};
    struct op *op = append(l, OP_ROUTE, 1, &logits);
    if (!op) return;
    op->arg.route = *a;
    *out_ids = output(l, op, DT_I32, (struct shape){logits.rows, 1, a->k});
    *out_weights = output(l, op, DT_F32, (struct shape){logits.rows, 1, a->k});
}

void op_passing(struct oplist *l, struct tensor ids, struct tensor weights, const struct passing_args *a, struct tensor *out_ids,
                struct tensor *out_weights) {
    *out_ids = *out_weights = (struct tensor){0};
    struct op *op = append(l, OP_PASSING, 2, (struct tensor[]){ids, weights});
    if (!op) return;
    op->arg.passing = *a;
    *out_ids = output(l, op, DT_I32, (struct shape){ids.rows, 1, ids.width});
    *out_weights = output(l, op, DT_F32, (struct shape){ids.rows, 1, ids.width + 1});
}

struct tensor op_experts(struct oplist *l, struct tensor x, struct tensor ids, struct tensor weights, const struct experts_args *a) {
    FITS("inner width of an expert's last matrix", a->down->in, a->inner);
    FITS("width of an expert's input", x.width, a->gate_up ? a->gate_up->in : a->up->in);
    struct op *op = append(l, OP_EXPERTS, 3, (struct tensor[]){x, ids, weights});
    if (!op) return (struct tensor){0};
    op->arg.experts = *a;
    return output(l, op, DT_F32, (struct shape){x.rows, 1, (int32_t)a->down->out});
}

struct tensor op_conv(struct oplist *l, struct tensor x, const struct conv_args *a) {
    FITS("heads of a convolution's input", x.heads, 1);
    FITS("size of a convolution's kernel", a->weight->in, (int64_t)x.width * a->taps);
    if (a->bias) FITS("length of a convolution's bias", a->bias->in, x.width);
    struct op *op = append(l, OP_CONV, 1, &x);
    if (!op) return (struct tensor){0};
    op->arg.conv = *a;
    return output(l, op, DT_F32, shape_of(x));
}

/* Whether t is [heads, width]. */
#define FITS_HEADS(what, t, want_heads, want_width)    \
    do {                                               \
        FITS("heads of " what, (t).heads, want_heads); \
        FITS("width of " what, (t).width, want_width); \
    } while (0)

struct tensor op_delta(struct oplist *l, struct tensor q, struct tensor k, struct tensor v, struct tensor a, struct tensor b,
                       const struct delta_args *args) {
    FITS_HEADS("a delta rule's queries", q, args->k_heads, args->k_width);
    FITS_HEADS("a delta rule's keys", k, args->k_heads, args->k_width);
    FITS_HEADS("a delta rule's values", v, args->v_heads, args->v_width);
    FITS_HEADS("a delta rule's decay", a, args->by_channel ? args->v_heads : 1, args->by_channel ? args->k_width : args->v_heads);
    FITS_HEADS("a delta rule's beta", b, 1, args->v_heads);
    FITS("length of a delta rule's rates", args->a_log->in, args->v_heads);
    FITS("length of a delta rule's time bias", args->dt_bias->in, args->v_heads * (args->by_channel ? args->k_width : 1));
    FITS("value heads left over by a delta rule's key heads", args->v_heads % args->k_heads, 0);
    struct op *op = append(l, OP_DELTA, 5, (struct tensor[]){q, k, v, a, b});
    if (!op) return (struct tensor){0};
    op->arg.delta = *args;
    return output(l, op, DT_F32, (struct shape){q.rows, args->v_heads, args->v_width});
}

struct tensor op_ssd(struct oplist *l, struct tensor x, struct tensor b, struct tensor c, struct tensor dt, const struct ssd_args *a) {
    FITS_HEADS("a state space's input", x, a->heads, a->head_width);
    FITS_HEADS("a state space's B", b, a->groups, a->state_width);
    FITS_HEADS("a state space's C", c, a->groups, a->state_width);
    FITS_HEADS("a state space's time steps", dt, 1, a->heads);
    FITS("length of a state space's rates", a->a_log->in, a->heads);
    FITS("heads left over by a state space's groups", a->heads % a->groups, 0);
    struct op *op = append(l, OP_SSD, 4, (struct tensor[]){x, b, c, dt});
    if (!op) return (struct tensor){0};
    op->arg.ssd = *a;
    return output(l, op, DT_F32, (struct shape){x.rows, a->heads, a->head_width});
}

struct tensor op_scan(struct oplist *l, struct tensor x, struct tensor dt, struct tensor b, struct tensor c, const struct scan_args *a) {
    FITS("heads of a scan's input", x.heads, 1);
    FITS_HEADS("a scan's time steps", dt, 1, x.width);
    FITS_HEADS("a scan's B", b, 1, a->state_width);
    FITS_HEADS("a scan's C", c, 1, a->state_width);
    FITS("size of a scan's rates", a->a_log->in, (int64_t)x.width * a->state_width);
    struct op *op = append(l, OP_SCAN, 4, (struct tensor[]){x, dt, b, c});
    if (!op) return (struct tensor){0};
    op->arg.scan = *a;
    return output(l, op, DT_F32, shape_of(x));
}

struct tensor op_lru(struct oplist *l, struct tensor x, struct tensor i, struct tensor r, const struct lru_args *a) {
    FITS("heads of a recurrence's input", x.heads, 1);
    FITS_HEADS("a recurrence's input gate", i, 1, x.width);
    FITS_HEADS("a recurrence's own gate", r, 1, x.width);
    FITS("length of a recurrence's rates", a->rate->in, x.width);
    struct op *op = append(l, OP_LRU, 3, (struct tensor[]){x, i, r});
    if (!op) return (struct tensor){0};
    op->arg.lru = *a;
    return output(l, op, DT_F32, shape_of(x));
}

struct tensor op_lightning(struct oplist *l, struct tensor q, struct tensor k, struct tensor v, const struct lightning_args *a) {
    FITS_HEADS("linear attention's queries", q, a->heads, a->width);
    FITS_HEADS("linear attention's keys", k, a->heads, a->width);
    FITS_HEADS("linear attention's values", v, a->heads, a->width);
    FITS("length of linear attention's slopes", a->slope->in, a->heads);
    struct op *op = append(l, OP_LIGHTNING, 3, (struct tensor[]){q, k, v});
    if (!op) return (struct tensor){0};
    op->arg.lightning = *a;
    return output(l, op, DT_F32, (struct shape){q.rows, a->heads, a->width});
}

struct tensor op_wkv(struct oplist *l, struct tensor k, struct tensor v, const struct wkv_args *a) {
    FITS("heads of a weighed mean's keys", k.heads, 1);
    FITS_HEADS("a weighed mean's values", v, 1, k.width);
    FITS("length of a weighed mean's rates", a->rate->in, k.width);
    FITS("length of a weighed mean's first weights", a->first->in, k.width);
    struct op *op = append(l, OP_WKV, 2, (struct tensor[]){k, v});
    if (!op) return (struct tensor){0};
    op->arg.wkv = *a;
    return output(l, op, DT_F32, shape_of(k));
}

struct tensor op_exchange(struct oplist *l, const struct tensor in[6], const struct exchange_args *a) {
    for (int32_t i = 1; i < 6; i++) FITS_HEADS("an exchange's input", in[i], in[0].heads, in[0].width);
    struct op *op = append(l, OP_EXCHANGE, 6, in);
    if (!op) return (struct tensor){0};
    op->arg.exchange = *a;
    return output(l, op, DT_F32, shape_of(in[0]));
}

struct tensor op_mlstm(struct oplist *l, struct tensor q, struct tensor k, struct tensor v, struct tensor i, struct tensor f,
                       const struct mlstm_args *a) {
    FITS_HEADS("a gated memory's keys", k, q.heads, q.width);
    FITS("heads of a gated memory's values", v.heads, q.heads);
    FITS_HEADS("a gated memory's input gate", i, 1, q.heads);
    FITS_HEADS("a gated memory's forget gate", f, 1, q.heads);
    struct op *op = append(l, OP_MLSTM, 5, (struct tensor[]){q, k, v, i, f});
    if (!op) return (struct tensor){0};
    op->arg.mlstm = *a;
    return output(l, op, DT_F32, shape_of(v));
}

struct tensor op_compress(struct oplist *l, struct tensor x, const struct compress_args *a) {
    int32_t channels = a->width * (a->overlaps ? 2 : 1);
    FITS_HEADS("what is compressed", x, 1, 2 * channels);
    FITS("size of the bias of what is compressed", a->bias->in, (int64_t)a->every * channels);
    struct op *op = append(l, OP_COMPRESS, 1, &x);
    if (!op) return (struct tensor){0};
    op->arg.compress = *a;
    return output(l, op, DT_F32, (struct shape){x.rows, 1, a->width});
}

struct tensor op_attn_more(struct oplist *l, struct tensor q, struct tensor picks, const struct attn_args *a) {
    FITS("width of attention with a second cache", a->v_width, q.width);
    struct op *op = append(l, OP_ATTN_MORE, tensor_is(picks) ? 2 : 1, (struct tensor[]){q, picks});
    if (!op) return (struct tensor){0};
    op->arg.attn = *a;
    return output(l, op, DT_F32, shape_of(q));
}

struct tensor op_blend(struct oplist *l, struct tensor x, struct tensor logits, struct tensor made, struct tensor post,
                       const struct blend_args *a) {
    FITS_HEADS("the weights of a blend", logits, 1, x.heads * x.heads);
    FITS_HEADS("what is added in a blend", made, 1, x.width);
    FITS_HEADS("the factors of what is added", post, 1, x.heads);
    if (x.heads > BLEND_STREAMS_MAX) return fail(l, "streams of a blend", x.heads, BLEND_STREAMS_MAX);
    struct op *op = append(l, OP_BLEND, 4, (struct tensor[]){x, logits, made, post});
    if (!op) return (struct tensor){0};
    op->arg.blend = *a;
    return output(l, op, DT_F32, shape_of(x));
}

struct tensor op_sum(struct oplist *l, struct tensor x) {
    if (!tensor_is(x) || x.row_stride != tensor_row_size(x) || !tensor_rows_dense(x))
        return fail(l, "row stride of what is summed up", x.row_stride, tensor_row_size(x));
    struct op *op = append(l, OP_SUM, 1, &x);
    if (!op) return (struct tensor){0};
    return output(l, op, DT_F32, shape_of(x));
}

struct tensor op_gather(struct oplist *l, struct tensor x, int32_t width) {
    if (tensor_is(x)) FITS("heads of what is gathered", x.heads, 1);
    struct op *op = append(l, OP_GATHER, tensor_is(x) ? 1 : 0, &x);
    if (!op) return (struct tensor){0};
    return output(l, op, DT_F32, (struct shape){l->is_wanted_only ? l->n_wanted : l->n_rows, 1, width});
}

struct tensor op_concat(struct oplist *l, struct tensor a, struct tensor b) {
    FITS("rows of a concatenated tensor", b.rows, a.rows);
    if (a.heads != b.heads && b.heads != 1) return fail(l, "heads of a concatenated tensor", b.heads, a.heads);
    struct op *op = append(l, OP_CONCAT, 2, (struct tensor[]){a, b});
    if (!op) return (struct tensor){0};
    return output(l, op, DT_F32, (struct shape){a.rows, a.heads, a.width + b.width});
}

struct tensor op_rows(struct oplist *l, struct tensor x) {
    struct op *op = append(l, OP_ROWS, 1, &x);
    if (!op) return (struct tensor){0};
    l->is_wanted_only = true;
    return output(l, op, DT_F32, (struct shape){l->n_wanted, x.heads, x.width});
}

struct tensor op_choose(struct oplist *l, struct tensor x) {
    struct op *op = append(l, OP_CHOOSE, 1, &x);
    if (!op) return (struct tensor){0};
    return output(l, op, DT_I32, (struct shape){x.rows, 1, (int32_t)(sizeof(struct step_chosen) / sizeof(int32_t))});
}

struct tensor op_argmax(struct oplist *l, struct tensor x) {
    struct op *op = append(l, OP_ARGMAX, 1, &x);
    if (!op) return (struct tensor){0};
    return output(l, op, DT_I32, (struct shape){x.rows, 1, 1});
}
