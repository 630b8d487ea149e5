/* The trace backend: binds names and shapes without reading data, and prints op lists as text instead of running them.
 * Golden tests pin the lists of every family with it. */
#include "backend/trace/trace.h"

#include "backend/backend.h"

struct trace {
    struct backend base;
    struct sb text;
};

enum { ROWS_DEFAULT = 512 };

static int trace_device_open(const struct device_options *options, struct device **out, struct err *err) {
    (void)options, (void)err;
    *out = mem_alloc(sizeof **out);
    (*out)->rows_default = ROWS_DEFAULT;
    (*out)->places_default = 1;
    return ERR_OK;
}

static void trace_device_close(struct device *d) {
    mem_free(d);
}

static void trace_device_memory(struct device *d, uint64_t *out_free, uint64_t *out_total) {
    (void)d;
    *out_free = *out_total = UINT64_MAX;
}

static int trace_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err) {
    (void)err;
    struct trace *t = mem_alloc(sizeof *t);
    t->base = (struct backend){.type = &trace_backend, .device = d, .precision = options->precision, .mixes_rows = true, .adapts = true};
    *out = &t->base;
    return ERR_OK;
}

static void trace_close(struct backend *be) {
    struct trace *t = (struct trace *)be;
    sb_free(&t->text);
    oplist_free(&be->list);
    mem_free(t);
}

static int trace_weight_bind(struct backend *be, const struct weight_source *s, struct weight *out, struct err *err) {
    (void)be, (void)err;
    *out = (struct weight){.name = s->name, .format = s->format, .n_experts = s->n_experts, .out = s->out, .in = s->in};
    out->bytes = format_row_bytes(&s->format, (size_t)s->in) * (size_t)s->out * (size_t)s->n_experts;
    return ERR_OK;
}

static void trace_weight_release(struct backend *be, struct weight *w) {
    (void)be, (void)w;
}

static int trace_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err) {
    (void)be, (void)layout, (void)err;
    return ERR_OK;
}

static void trace_kv_close(struct backend *be) {
    (void)be;
}

static int trace_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err) {
    (void)be, (void)kv_class, (void)from, (void)to, (void)err;
    return ERR_OK;
}

static int trace_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err) {
    return trace_copy(be, 0, from, to, err);
}

static bool trace_begin(struct backend *be, const struct step_key *key) {
    oplist_begin(&be->list, key->n_rows, key->n_logits + key->n_hidden);
    return true;
}

static void put_tensor(struct sb *out, struct tensor t) {
    sb_fmt(out, "%%%d[%d,%d,%d]", t.id, t.rows, t.heads, t.width);
    if (t.offset) sb_fmt(out, "+%lld", (long long)t.offset);
    if (t.heads > 1 && t.head_stride != t.width)
        sb_fmt(out, "~%lld", (long long)t.head_stride); /* heads that lie apart, or on top of each other */
}

static void put_weight(struct sb *out, const char *label, const struct weight *w) {
    char format[32];
    if (!w) return;
    sb_fmt(out, " %s=%s[", label, w->name);
    if (w->n_experts > 1) sb_fmt(out, "%d,", w->n_experts);
    sb_fmt(out, "%lld,%lld] %s", (long long)w->out, (long long)w->in, format_name(&w->format, format));
}

static void put_number(struct sb *out, const char *label, double value, double usual) {
    if (value != usual) sb_fmt(out, " %s=%.6g", label, value);
}

static void put_rope(struct sb *out, const struct rope_args *a) {
    sb_fmt(out, " %s rotated=%d", a->kind == ROPE_HALF ? "half" : "pair", a->n_rotated);
    put_number(out, "first", a->first, 0);
    put_number(out, "magnitude", a->magnitude, 1);
    put_number(out, "shift", a->shift, 0);
    if (!a->inv_freq) sb_fmt(out, " table=%d", a->table);
}

static void put_act(struct sb *out, const struct act_args *a) {
    sb_fmt(out, " %s", act_name(a->kind));
    put_number(out, "scale", a->scale, 1);
    for (int i = 0; i < ACT_PARAMS; i++) put_number(out, "p", a->p[i], 0);
}

static void put_norm(struct sb *out, const struct norm_args *a) {
    static const char *const kinds[] = {"rms", "layer", "cut"}, *const gates[] = {"none", "after", "before", "match"};
    sb_fmt(out, " %s eps=%.6g", kinds[a->kind], (double)a->eps);
    put_number(out, "cut", a->cut, 0);
    put_weight(out, "w", a->weight);
    put_weight(out, "b", a->bias);
    put_number(out, "offset", a->weight_offset, 0);
    put_number(out, "per_head", a->per_head, 0);
    if (a->gate) sb_fmt(out, " gate=%s %s", gates[a->gate], act_name(a->gate_act));
}

static void put_attn(struct sb *out, const struct attn_args *a) {
    sb_fmt(out, " kv=%d.%d scale=%.6g", a->kv.kv_class, a->kv.index, (double)a->scale);
    put_number(out, "softcap", a->softcap, 0);
    put_number(out, "window", a->window, 0);
    put_number(out, "chunk", a->chunk, 0);
    put_weight(out, "sinks", a->sinks);
    put_weight(out, "slopes", a->slopes);
    put_number(out, "slopes_in_bf16", a->slopes_in_bf16, 0);
    put_number(out, "pos_scale_beta", a->pos_scale_beta, 0);
    put_number(out, "pos_scale_len", a->pos_scale_len, 0);
    put_number(out, "pos_scale_first", a->pos_scale_first, 0);
    put_weight(out, "distances", a->distances);
    put_weight(out, "buckets", a->buckets);
    put_number(out, "both_ways", a->both_ways, 0);
    put_number(out, "is_strict", a->is_strict, 0);
    if (a->every) sb_fmt(out, " more=%d.%d every=%d", a->more.kv_class, a->more.index, a->every);
    put_number(out, "of_pictures", a->of_pictures, 0);
}

static void put_route(struct sb *out, const struct route_args *a) {
    static const char *const scores[] = {[ROUTE_SOFTMAX] = "softmax",
                                         [ROUTE_SIGMOID] = "sigmoid",
                                         [ROUTE_SOFTMAX_AFTER] = "softmax_after",
                                         [ROUTE_SPARSEMIXER] = "sparsemixer",
                                         [ROUTE_PLAIN] = "plain"};
    sb_fmt(out, " %s k=%d", scores[a->score], a->k);
    put_weight(out, "bias", a->bias);
    put_number(out, "normalize", a->normalize, 0);
    put_number(out, "norm_eps", a->norm_eps, 0);
    put_number(out, "scale", a->scale, 1);
    put_number(out, "groups", a->n_groups, 0);
    put_number(out, "top_groups", a->top_groups, 0);
    put_number(out, "group_top2", a->group_top2, 0);
    put_number(out, "jitter", a->jitter, 0);
    put_weight(out, "expert_scale", a->expert_scale);
}

static void put_experts(struct sb *out, const struct experts_args *a) {
    put_weight(out, "gate_up", a->gate_up);
    put_weight(out, "gate", a->gate);
    put_weight(out, "up", a->up);
    put_weight(out, "down", a->down);
    put_act(out, &a->act);
    if (a->gate_up_bias || a->up_bias || a->down_bias) sb_puts(out, " biases");
    put_number(out, "scale_input", a->scale_input, 0);
}

static void put_delta(struct sb *out, const struct delta_args *a) {
    sb_fmt(out, " state=%d scale=%.6g", a->state, (double)a->scale);
    if (a->l2_norm) sb_fmt(out, " l2_eps=%.6g", (double)a->l2_eps);
    put_number(out, "by_channel", a->by_channel, 0);
    put_number(out, "bound", a->bound, 0);
    put_number(out, "beta_scale", a->beta_scale, 1);
    put_weight(out, "a_log", a->a_log);
    put_weight(out, "dt_bias", a->dt_bias);
}

static void put_ssd(struct sb *out, const struct ssd_args *a) {
    sb_fmt(out, " state=%d groups=%d dt=[%.6g,%.6g]", a->state, a->groups, (double)a->dt_min, (double)a->dt_max);
    put_weight(out, "a_log", a->a_log);
    put_weight(out, "d", a->d);
    put_weight(out, "dt_bias", a->dt_bias);
}

static void put_args(struct sb *out, const struct op *op) {
    switch (op->kind) {
    case OP_EMBED:
        put_weight(out, "w", op->arg.embed.weight);
        put_number(out, "scale", op->arg.embed.scale, 1);
        put_number(out, "by_position", op->arg.embed.by_position, 0);
        put_number(out, "position_offset", op->arg.embed.position_offset, 0);
        put_number(out, "vocab", op->arg.embed.vocab, 0);
        put_number(out, "by_type", op->arg.embed.by_type, 0);
        break;
    case OP_LINEAR:
    case OP_HEAD_LINEAR:
        put_weight(out, "w", op->arg.linear.weight);
        put_weight(out, "b", op->arg.linear.bias);
        if (op->arg.linear.wide) sb_puts(out, " wide");
        break;
    case OP_NORM:
    case OP_ADD_NORM: put_norm(out, &op->arg.norm); break;
    case OP_ADD:
        put_number(out, "a", op->arg.add.a_scale, 1);
        put_number(out, "b", op->arg.add.b_scale, 1);
        break;
    case OP_ACT:
    case OP_GLU: put_act(out, &op->arg.act); break;
    case OP_MULVEC:
        put_weight(out, "mul", op->arg.vec.mul);
        put_weight(out, "add", op->arg.vec.add);
        break;
    case OP_ROPE: put_rope(out, &op->arg.rope); break;
    case OP_KV_WRITE: sb_fmt(out, " kv=%d.%d", op->arg.kv.kv.kv_class, op->arg.kv.kv.index); break;
    case OP_PICK:
        sb_fmt(out, " kv=%d.%d k=%d", op->arg.pick.kv.kv_class, op->arg.pick.kv.index, op->arg.pick.k);
        put_number(out, "every", op->arg.pick.every, 0);
        break;
    case OP_ATTN_MORE:
    case OP_ATTN: put_attn(out, &op->arg.attn); break;
    case OP_ROUTE: put_route(out, &op->arg.route); break;
    case OP_EXPERTS: put_experts(out, &op->arg.experts); break;
    case OP_CONV:
        put_weight(out, "w", op->arg.conv.weight);
        put_weight(out, "b", op->arg.conv.bias);
        sb_fmt(out, " taps=%d state=%d %s", op->arg.conv.taps, op->arg.conv.state, act_name(op->arg.conv.act));
        break;
    case OP_DELTA: put_delta(out, &op->arg.delta); break;
    case OP_SSD: put_ssd(out, &op->arg.ssd); break;
    case OP_SCAN:
        sb_fmt(out, " state=%d width=%d", op->arg.scan.state, op->arg.scan.state_width);
        put_weight(out, "a_log", op->arg.scan.a_log);
        put_weight(out, "d", op->arg.scan.d);
        break;
    case OP_PASSING: sb_fmt(out, " experts=%d", op->arg.passing.n_experts); break;
    case OP_WKV:
        sb_fmt(out, " state=%d", op->arg.wkv.state);
        put_weight(out, "rate", op->arg.wkv.rate);
        put_weight(out, "first", op->arg.wkv.first);
        break;
    case OP_COMPRESS:
        sb_fmt(out, " state=%d every=%d overlaps=%d", op->arg.compress.state, op->arg.compress.every, op->arg.compress.overlaps);
        put_weight(out, "bias", op->arg.compress.bias);
        break;
    case OP_BLEND: sb_fmt(out, " rounds=%d eps=%g", op->arg.blend.rounds, (double)op->arg.blend.eps); break;
    case OP_EXCHANGE: sb_fmt(out, " state=%d rate=%g", op->arg.exchange.state, (double)op->arg.exchange.rate); break;
    case OP_MLSTM:
        sb_fmt(out, " state=%d scale=%g eps=%g", op->arg.mlstm.state, (double)op->arg.mlstm.scale, (double)op->arg.mlstm.eps);
        break;
    case OP_LRU:
        sb_fmt(out, " state=%d", op->arg.lru.state);
        put_weight(out, "rate", op->arg.lru.rate);
        break;
    case OP_LIGHTNING:
        sb_fmt(out, " state=%d", op->arg.lightning.state);
        put_weight(out, "slope", op->arg.lightning.slope);
        break;
    default: break; /* CONCAT, ROWS, ARGMAX have none */
    }
}

void trace_print(const struct oplist *l, struct sb *out) {
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        if (op->layer < 0) sb_puts(out, "   - ");
        else sb_fmt(out, "%4d ", op->layer);
        for (int32_t k = 0; k < op->n_out; k++) {
            put_tensor(out, op->out[k]);
            sb_puts(out, k + 1 < op->n_out ? ", " : " = ");
        }
        sb_puts(out, op_name(op->kind));
        for (int32_t k = 0; k < op->n_in; k++) {
            sb_puts(out, k ? ", " : " ");
            put_tensor(out, op->in[k]);
        }
        put_args(out, op);
        sb_putc(out, '\n');
    }
}

static int trace_end(struct backend *be, const struct step *step, struct err *err) {
    (void)step;
    struct trace *t = (struct trace *)be;
    if (be->list.err.code) return err_set(err, be->list.err.code, "%s", be->list.err.msg);
    sb_clear(&t->text);
    trace_print(&be->list, &t->text);
    return ERR_OK;
}

static int trace_reserve(struct backend *be, struct err *err) {
    return be->list.err.code ? err_set(err, be->list.err.code, "%s", be->list.err.msg) : ERR_OK;
}

static int trace_read(struct backend *be, struct tensor t, void *dst, struct err *err) {
    (void)be, (void)err;
    memset(dst, 0, (size_t)(t.rows * tensor_row_size(t)) * sizeof(float)); /* nothing is computed: every value reads as zeros */
    return ERR_OK;
}

static void trace_describe(struct backend *be, struct sb *out) {
    (void)be;
    sb_puts(out, "trace");
}

struct str trace_text(const struct backend *be) {
    return sb_str(&((const struct trace *)be)->text);
}

const struct backend_type trace_backend = {
    .name = "trace",
    .device_open = trace_device_open,
    .device_close = trace_device_close,
    .memory = trace_device_memory,
    .open = trace_open,
    .close = trace_close,
    .weight_bind = trace_weight_bind,
    .weight_release = trace_weight_release,
    .kv_open = trace_kv_open,
    .kv_close = trace_kv_close,
    .block_copy = trace_copy,
    .slot_copy = trace_slot_copy,
    .begin = trace_begin,
    .end = trace_end,
    .reserve = trace_reserve,
    .read = trace_read,
    .describe = trace_describe,
};
