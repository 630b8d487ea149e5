/* The frame of a program: arguments, step block, views of values, weights, results. */
#include "backend/xla/emit.h"

#include <assert.h>

static emit_fn *const emitters[N_OP_KINDS] = {
    [OP_EMBED] = emit_embed,
    [OP_LINEAR] = emit_linear,
    [OP_HEAD_LINEAR] = emit_head_linear,
    [OP_NORM] = emit_norm,
    [OP_ADD] = emit_add,
    [OP_ACT] = emit_act,
    [OP_GLU] = emit_glu,
    [OP_MULVEC] = emit_mulvec,
    [OP_ROPE] = emit_rope,
    [OP_KV_WRITE] = emit_kv_write,
    [OP_PICK] = emit_pick,
    [OP_ATTN] = emit_attn,
    [OP_ROUTE] = emit_route,
    [OP_EXPERTS] = emit_experts,
    [OP_CONV] = emit_conv,
    [OP_DELTA] = emit_delta,
    [OP_SSD] = emit_ssd,
    [OP_SCAN] = emit_scan,
    [OP_LIGHTNING] = emit_lightning,
    [OP_LRU] = emit_lru,
    [OP_WKV] = emit_wkv,
    [OP_EXCHANGE] = emit_exchange,
    [OP_MLSTM] = emit_mlstm,
    [OP_COMPRESS] = emit_compress,
    [OP_ATTN_MORE] = emit_attn_more,
    [OP_GIVEN] = emit_given,
    [OP_ATTN_ROWS] = emit_attn_rows,
    [OP_POOL_ROWS] = emit_pool_rows,
    [OP_BLEND] = emit_blend,
    [OP_PASSING] = emit_passing,
    [OP_CONCAT] = emit_concat,
    [OP_ROWS] = emit_rows,
    [OP_ARGMAX] = emit_argmax,
};

/* ---- the step block ----------------------------------------------------------------------------------------------- */

static bool same_rope(const struct rope_args *a, const struct rope_args *b) {
    return a->inv_freq == b->inv_freq && a->table == b->table && a->n_rotated == b->n_rotated && a->magnitude == b->magnitude &&
           a->axes == b->axes && a->shift == b->shift;
}

int32_t xla_rope_index(const struct xla_needs *needs, const struct rope_args *a) {
    for (int32_t i = 0; i < needs->n_ropes; i++)
        if (same_rope(&needs->ropes[i], a)) return i;
    return -1;
}

bool xla_needs_find(const struct oplist *l, bool sees, struct xla_needs *out) {
    *out = (struct xla_needs){.sees = sees};
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        if (op->kind == OP_GIVEN) out->given[op->arg.given.set] = op->arg.given.width;
        if (op->kind == OP_ATTN_ROWS) out->spans[op->arg.attn_rows.set] = out->is_tower = true;
        if (op->kind != OP_ROPE || xla_rope_index(out, &op->arg.rope) >= 0) continue;
        if (out->n_ropes == XLA_ROPES_MAX) return false;
        out->ropes[out->n_ropes++] = op->arg.rope;
    }
    return true;
}

static int32_t cut(struct xla_step_layout *l, int32_t n) {
    int32_t at = l->size;
    l->size += n;
    return at;
}

void xla_step_layout(const struct xla_shape *at, const struct kv_layout *kv, const struct xla_needs *needs, struct xla_step_layout *out) {
    int32_t rows = xla_all_rows(at);
    *out = (struct xla_step_layout){0};
    out->ids = cut(out, rows);
    out->pos = cut(out, rows);
    out->slots = cut(out, at->seqs);
    out->starts = cut(out, at->seqs);
    out->lens = cut(out, at->seqs);
    out->logit_rows = cut(out, at->logits);
    out->n_valid = cut(out, 1);
    for (int32_t i = 0; i < kv->n_classes; i++) {
        out->tables[i] = cut(out, at->seqs * (at->context / KV_BLOCK));
        out->writes[i] = cut(out, rows);
    }
    for (int32_t i = 0; i < needs->n_ropes; i++) out->ropes[i] = cut(out, rows * needs->ropes[i].n_rotated);
    for (int i = 0; i < GIVEN_SETS; i++) {
        if (!needs->given[i]) continue;
        out->given[i] = cut(out, rows * needs->given[i]);
        out->has[i] = cut(out, rows);
    }
    for (int i = 0; i < 2; i++)
        if (needs->spans[i]) out->spans[i] = cut(out, 2 * rows);
    if (needs->sees) out->until = cut(out, rows);
}

struct hlo_val emit_step_part(struct emit *e, int32_t at, struct hlo_shape shape, enum hlo_type type) {
    int64_t n = 1;
    for (int32_t i = 0; i < shape.rank; i++) n *= shape.dims[i];
    struct hlo_val v = hlo_slice(&e->h, e->step, 0, at, at + n);
    if (type == HLO_F32) v = hlo_bitcast(&e->h, v, HLO_F32);
    return hlo_reshape(&e->h, v, shape);
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

struct hlo_val emit_flat(struct emit *e, struct tensor t) {
    struct hlo_val v = emit_view(e, t);
    return hlo_reshape(&e->h, v, HLO_SHAPE(hlo_dim(v, 0), hlo_dim(v, 1) * hlo_dim(v, 2)));
}

/* The rows of a tensor of a tower: some of a value's, or several as one. */
static struct hlo_val rows_of(struct emit *e, struct tensor *t, struct hlo_val v) {
    int64_t width = hlo_dim(v, 1), first = t->offset / width, n = t->rows * t->row_stride / width;
    t->offset -= first * width;
    v = hlo_slice(&e->h, v, 0, first, first + n);
    return hlo_reshape(&e->h, v, HLO_SHAPE(t->rows, t->row_stride));
}

struct hlo_val emit_view(struct emit *e, struct tensor t) {
    struct hlo *h = &e->h;
    struct hlo_val v = e->values[t.id - 1];
    if (e->a.needs->is_tower) v = rows_of(e, &t, v);
    int64_t rows = hlo_dim(v, 0), n = hlo_dim(v, 1), size = tensor_row_size(t), from = 0;
    assert(t.row_stride == n);
    if (tensor_rows_dense(t)) return hlo_reshape(h, hlo_slice(h, v, 1, t.offset, t.offset + size), HLO_SHAPE(rows, t.heads, t.width));
    if (t.head_stride == 0) { /* one head, repeated */
        v = hlo_reshape(h, hlo_slice(h, v, 1, t.offset, t.offset + t.width), HLO_SHAPE(rows, 1, t.width));
        return hlo_spread(h, v, HLO_SHAPE(rows, t.heads, t.width), 0);
    }
    /* a part of each head: whole strides are cut out first, ending with the row where the last stride would not fit */
    int64_t span = t.heads * t.head_stride, start = t.offset;
    if (start + span > n) start = n > span ? n - span : 0;
    v = hlo_slice(h, v, 1, start, start + span < n ? start + span : n);
    v = hlo_pad_end(h, v, 1, span - hlo_dim(v, 1));
    v = hlo_reshape(h, v, HLO_SHAPE(rows, t.heads, t.head_stride));
    from = t.offset - start;
    return hlo_slice(h, v, 2, from, from + t.width);
}

void emit_set(struct emit *e, const struct op *op, int32_t i, struct hlo_val v) {
    int64_t n = tensor_row_size(op->out[i]), all = 1;
    for (int32_t k = 0; k < v.shape.rank; k++) all *= v.shape.dims[k];
    e->values[op->out[i].id - 1] = hlo_reshape(&e->h, v, HLO_SHAPE(all / n, n));
}

/* ---- weights ------------------------------------------------------------------------------------------------------ */

void emit_put_attributes(struct sb *out, int32_t n_devices, int32_t cut, int32_t alias) {
    bool many = n_devices > 1;
    if (!many && alias < 0) return;
    sb_puts(out, " {");
    if (many && cut)
        sb_fmt(out, "mhlo.sharding = \"{devices=[%d,%d]<=[%d]}\"", cut == 1 ? n_devices : 1, cut == 2 ? n_devices : 1, n_devices);
    else if (many) sb_puts(out, "mhlo.sharding = \"{replicated}\"");
    if (alias >= 0) sb_fmt(out, "%stf.aliasing_output = %d : i32", many ? ", " : "", alias);
    sb_puts(out, "}");
}

void emit_put_module(struct sb *out, const char *name, int32_t n_devices) {
    sb_fmt(out, "module @%s ", name);
    if (n_devices > 1) sb_fmt(out, "attributes {mhlo.num_partitions = %d : i32, mhlo.num_replicas = 1 : i32} ", n_devices);
    sb_puts(out, "{\n");
}

static struct hlo_val argument(struct emit *e, enum hlo_type type, struct hlo_shape shape, int32_t cut, int32_t alias) {
    struct hlo_val v = hlo_name(&e->h, type, shape);
    sb_fmt(&e->head, "%s%%%d: ", e->head.n ? ",\n    " : "", v.id);
    hlo_put_type(&e->head, type, shape);
    emit_put_attributes(&e->head, e->a.n_devices, cut, alias);
    return v;
}

/* The planes of a weight as arguments, added on first use. */
static const struct hlo_val *planes_of(struct emit *e, const struct weight *w) {
    struct xla_program *p = e->out;
    for (int32_t i = 0; i < p->n_weights; i++)
        if (p->weights[i] == w) return e->planes + (size_t)i * N_PLANES;
    if (p->n_weights == p->weights_capacity) {
        p->weights_capacity = p->weights_capacity ? p->weights_capacity * 2 : 256;
        p->weights = mem_realloc(p->weights, (size_t)p->weights_capacity * sizeof *p->weights);
        e->planes = mem_realloc(e->planes, (size_t)p->weights_capacity * N_PLANES * sizeof *e->planes);
    }
    const struct xla_weight *x = w->packed;
    struct hlo_val *v = e->planes + (size_t)p->n_weights * N_PLANES;
    for (int i = 0; i < N_PLANES; i++) {
        v[i] = (struct hlo_val){0};
        if (x->planes[i].shape.rank) v[i] = argument(e, x->planes[i].type, x->planes[i].shape, x->planes[i].cut, -1);
    }
    p->weights[p->n_weights++] = w;
    return v;
}

struct hlo_val emit_vector(struct emit *e, const struct weight *w) {
    return planes_of(e, w)[PLANE_VALUES];
}

static bool is_exact(const struct emit *e, const struct weight *w) {
    return !e->a.half || ((const struct xla_weight *)w->packed)->exact;
}

struct hlo_val emit_factor(struct emit *e, const struct weight *w, struct hlo_val x) {
    return hlo_convert(&e->h, x, is_exact(e, w) ? HLO_F32 : HLO_BF16);
}

/* Codes [n, bytes] to one per element [n, in]. */
static struct hlo_val codes(struct emit *e, const struct weight *w, struct hlo_val packed) {
    struct hlo *h = &e->h;
    int64_t n = hlo_dim(packed, 0), bytes = hlo_dim(packed, 1), per = 8 / w->format.bits;
    if (w->format.bits == 8 || ((const struct xla_weight *)w->packed)->unpacked) return packed;
    struct hlo_shape shape = HLO_SHAPE(n, bytes, per);
    struct hlo_val wide = hlo_spread(h, packed, shape, 0);
    struct hlo_val shift = hlo_with(h, "multiply", hlo_iota(h, HLO_U8, shape, 2), w->format.bits);
    wide = hlo_with(h, "and", hlo_binary(h, "shift_right_logical", wide, shift), (1 << w->format.bits) - 1);
    return hlo_reshape(h, wide, HLO_SHAPE(n, bytes * per));
}

/* Small floating-point codes by moving their bits to where float16 has sign, exponent and fraction. */
static struct hlo_val fp_values(struct emit *e, const struct weight *w, struct hlo_val code) {
    struct hlo *h = &e->h;
    bool four = w->format.bits == 4;
    code = hlo_convert(h, code, HLO_U16);
    struct hlo_val rest = hlo_with(h, "shift_left", hlo_with(h, "and", code, four ? 7 : 127), four ? 9 : 7);
    struct hlo_val sign = hlo_with(h, "shift_left", hlo_with(h, "and", code, four ? 8 : 128), four ? 12 : 8);
    struct hlo_val v = hlo_convert(h, hlo_bitcast(h, hlo_binary(h, "or", sign, rest), HLO_F16), HLO_F32);
    return hlo_with(h, "multiply", v, four ? 16384.0 : 256.0);
}

/* Planes of n rows to [n, in] in f32. */
static struct hlo_val dequantise(struct emit *e, const struct weight *w, const struct hlo_val planes[N_PLANES]) {
    struct hlo *h = &e->h;
    if (w->format.mode == QUANT_NONE) return planes[PLANE_VALUES];
    struct hlo_val code = codes(e, w, planes[PLANE_VALUES]);
    int64_t n = hlo_dim(code, 0), in = hlo_dim(code, 1), groups = hlo_dim(planes[PLANE_SCALES], 1);
    struct hlo_shape grouped = HLO_SHAPE(n, groups, in / groups);
    bool affine = w->format.mode == QUANT_AFFINE;
    struct hlo_val v = hlo_reshape(h, affine ? hlo_convert(h, code, HLO_F32) : fp_values(e, w, code), grouped);
    v = hlo_mul(h, v, hlo_spread(h, hlo_convert(h, planes[PLANE_SCALES], HLO_F32), grouped, 0));
    if (affine) v = hlo_add(h, v, hlo_spread(h, hlo_convert(h, planes[PLANE_BIASES], HLO_F32), grouped, 0));
    return hlo_reshape(h, v, HLO_SHAPE(n, in));
}

struct hlo_val emit_matrix(struct emit *e, const struct weight *w) {
    struct hlo_val v = emit_factor(e, w, dequantise(e, w, planes_of(e, w)));
    return w->n_experts > 1 ? hlo_reshape(&e->h, v, HLO_SHAPE(w->n_experts, w->out, w->in)) : v;
}

struct hlo_val emit_matrix_rows(struct emit *e, const struct weight *w, struct hlo_val index) {
    const struct hlo_val *all = planes_of(e, w);
    struct hlo_val some[N_PLANES] = {{0}};
    for (int i = 0; i < N_PLANES; i++)
        if (all[i].id) some[i] = hlo_take(&e->h, all[i], index);
    return dequantise(e, w, some);
}

struct hlo_val emit_matrix_experts(struct emit *e, const struct weight *w, struct hlo_val index) {
    const struct hlo_val *all = planes_of(e, w);
    struct hlo_val some[N_PLANES] = {{0}};
    int64_t n = hlo_dim(index, 0);
    for (int i = 0; i < N_PLANES; i++) {
        if (!all[i].id) continue;
        int64_t size = hlo_dim(all[i], 1);
        struct hlo_val v = hlo_take(&e->h, hlo_reshape(&e->h, all[i], HLO_SHAPE(w->n_experts, w->out, size)), index);
        some[i] = hlo_reshape(&e->h, v, HLO_SHAPE(n * w->out, size));
    }
    return hlo_reshape(&e->h, emit_factor(e, w, dequantise(e, w, some)), HLO_SHAPE(n, w->out, w->in));
}

void emit_embed(struct emit *e, const struct op *op) {
    const struct embed_args *a = &op->arg.embed;
    struct hlo *h = &e->h;
    struct hlo_val index = emit_step_part(e, a->by_position ? e->in.pos : e->in.ids, HLO_SHAPE(xla_all_rows(&e->a.at)), HLO_I32);
    if (a->by_position && a->position_offset) index = hlo_with(h, "add", index, a->position_offset);
    if (a->vocab) index = hlo_with(h, a->by_type ? "divide" : "remainder", index, a->vocab);
    struct hlo_val outside = hlo_compare_with(h, "GE", index, (double)a->weight->out);
    index = hlo_select(h, outside, hlo_like(h, index, 0), index);
    struct hlo_val v = hlo_convert(h, emit_matrix_rows(e, a->weight, index), HLO_F32);
    if (a->scale != 1.0f) v = hlo_with(h, "multiply", v, (double)a->scale);
    emit_set(e, op, 0, v);
}

void emit_linear(struct emit *e, const struct op *op) {
    const struct linear_args *a = &op->arg.linear;
    struct hlo *h = &e->h;
    struct hlo_val x = emit_factor(e, a->weight, emit_flat(e, op->in[0]));
    struct hlo_val y = hlo_dot(h, x, emit_matrix(e, a->weight), &(struct hlo_dot){.n_contract = 1, .contract_a = {1}, .contract_b = {1}});
    if (a->bias) y = hlo_add(h, y, hlo_spread(h, emit_vector(e, a->bias), y.shape, 1));
    emit_set(e, op, 0, y);
}

void emit_head_linear(struct emit *e, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    struct hlo *h = &e->h;
    struct hlo_val x = emit_factor(e, w, emit_view(e, op->in[0]));
    struct hlo_val m = hlo_reshape(h, emit_matrix(e, w), HLO_SHAPE(w->n_experts, w->out, w->in));
    struct hlo_val y = hlo_dot(
        h, x, m, &(struct hlo_dot){.n_batch = 1, .batch_a = {1}, .batch_b = {0}, .n_contract = 1, .contract_a = {2}, .contract_b = {2}});
    emit_set(e, op, 0, hlo_transpose(h, y, (int32_t[]){1, 0, 2}));
}

/* ---- the program -------------------------------------------------------------------------------------------------- */

static int64_t layers_of(const struct kv_class *k) {
    return k->n_layers > 0 ? k->n_layers : 1;
}

static void declare_memory(struct emit *e) {
    const struct kv_layout *kv = e->a.kv;
    enum hlo_type type = e->a.half ? HLO_BF16 : HLO_F32;
    int32_t alias = 0;
    for (int32_t c = 0; c < kv->n_classes; c++) {
        const struct kv_class *k = &kv->classes[c];
        int64_t positions = (int64_t)k->n_blocks * KV_BLOCK;
        int32_t cut = xla_cut_heads(k->heads, e->a.n_devices);
        e->k[c] = arena_new(&e->arena, struct hlo_val, layers_of(k));
        e->v[c] = arena_new(&e->arena, struct hlo_val, layers_of(k));
        for (int32_t i = 0; i < k->n_layers; i++) {
            e->k[c][i] = argument(e, type, HLO_SHAPE(positions, (int64_t)k->heads * k->k_width), cut, alias++);
            if (k->v_width) e->v[c][i] = argument(e, type, HLO_SHAPE(positions, (int64_t)k->heads * k->v_width), cut, alias++);
        }
    }
    e->states = arena_new(&e->arena, struct hlo_val, kv->n_states + 1);
    for (int32_t i = 0; i < kv->n_states; i++)
        e->states[i] = argument(e, HLO_F32, HLO_SHAPE(kv->n_slots + 1, kv->states[i].elements), 0, alias++);
}

struct results {
    struct sb names, types, ends; /* ends: types, with how they lie on the devices */
    int32_t n_devices;
};

static void add_result(struct results *r, struct hlo_val v, int32_t cut) {
    sb_fmt(&r->names, "%s%%%d", r->names.n ? ", " : "", v.id);
    if (r->types.n) sb_puts(&r->types, ", ");
    hlo_put_type(&r->types, v.type, v.shape);
    if (r->ends.n) sb_puts(&r->ends, ", ");
    hlo_put_type(&r->ends, v.type, v.shape);
    emit_put_attributes(&r->ends, r->n_devices, cut, -1);
}

static void collect_results(struct emit *e, struct results *r) {
    const struct kv_layout *kv = e->a.kv;
    for (int32_t c = 0; c < kv->n_classes; c++)
        for (int32_t i = 0; i < kv->classes[c].n_layers; i++) {
            int32_t cut = xla_cut_heads(kv->classes[c].heads, r->n_devices);
            add_result(r, e->k[c][i], cut);
            if (kv->classes[c].v_width) add_result(r, e->v[c][i], cut);
        }
    for (int32_t i = 0; i < kv->n_states; i++) add_result(r, e->states[i], 0);
    for (int32_t i = 0; i < e->out->n_outputs; i++) add_result(r, e->values[e->out->outputs[i] - 1], 0);
}

static void assemble(struct emit *e) {
    struct results r = {.n_devices = e->a.n_devices};
    struct sb *text = &e->out->text;
    collect_results(e, &r);
    emit_put_module(text, "mlxcel", r.n_devices);
    sb_fmt(text, "func.func public @main(%s)\n    -> (%s) {\n", e->head.p, r.ends.p);
    sb_put(text, sb_str(&e->h.text));
    sb_fmt(text, "  return %s : %s\n}\n}\n", r.names.p, r.types.p);
    sb_free(&r.names);
    sb_free(&r.types);
    sb_free(&r.ends);
}

static int emit_ops(struct emit *e, struct err *err) {
    const struct oplist *l = e->a.list;
    e->step = argument(e, HLO_I32, HLO_SHAPE(e->in.size), 0, -1);
    declare_memory(e);
    e->values = arena_new(&e->arena, struct hlo_val, l->n_values + 1);
    for (int32_t i = 0; i < l->n_ops; i++) {
        emit_fn *emit = emitters[l->ops[i].kind];
        if (!emit) return err_set(err, ERR_EUNSUPPORTED, "the xla backend has no emitter for the op \"%s\"", op_name(l->ops[i].kind));
        emit(e, &l->ops[i]);
    }
    for (int32_t i = 0; i < l->n_values; i++) {
        if (!l->values[i].is_output) continue;
        if (e->out->n_outputs == XLA_OUTPUTS_MAX) return err_set(err, ERR_EINTERNAL, "a list with more than %d results", XLA_OUTPUTS_MAX);
        e->out->outputs[e->out->n_outputs++] = i + 1;
    }
    return ERR_OK;
}

int emit_program(const struct emit_args *args, struct xla_program *out, struct err *err) {
    struct emit e = {.a = *args, .out = out};
    *out = (struct xla_program){0};
    xla_step_layout(&args->at, args->kv, args->needs, &e.in);
    int code = emit_ops(&e, err);
    if (!code) assemble(&e);
    else xla_program_free(out);
    sb_free(&e.h.text);
    sb_free(&e.head);
    mem_free(e.planes);
    arena_free(&e.arena);
    return code;
}

void xla_program_free(struct xla_program *p) {
    sb_free(&p->text);
    mem_free(p->weights);
    *p = (struct xla_program){0};
}
