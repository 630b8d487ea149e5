/* What lies where: weights, cache and state by layer, and ops by what they read. */
#include "backend/split/split_internal.h"

enum split_side split_layer_side(const struct split *s, int32_t layer) {
    return layer < s->plan.first_layer ? SIDE_HOST : SIDE_CARD;
}

/* ---- weights -------------------------------------------------------------------------------------------------------- */

static enum split_side reader_side(const struct split *s, const struct weight_source *source) {
    if (source->reader == READ_BEFORE) return SIDE_HOST;
    if (source->reader < 0) return SIDE_CARD;
    if (source->is_expert && source->reader < s->plan.experts_from) return SIDE_HOST;
    return split_layer_side(s, source->reader);
}

/* Vectors that belong to no layer are small, and both sides have them. A matrix that is embedding and head is the card's, and the host's, too,
 * where the first layer is. */
static bool is_on_both(const struct split *s, const struct weight_source *source) {
    if (source->reader >= 0) return false;
    return source->is_vector || source->reader == READ_ALL || (source->reader == READ_ENDS && s->plan.first_layer > 0);
}

static int bind_on(struct split *s, enum split_side side, const struct weight_source *source, struct weight *out, struct err *err) {
    struct backend *be = s->sides[side];
    TRY(be->type->weight_bind(be, source, out, err));
    out->side = side;
    s->weight_bytes[side] += out->bytes;
    return ERR_OK;
}

int split_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err) {
    struct split *s = (struct split *)be;
    enum split_side side = reader_side(s, source);
    TRY(bind_on(s, side, source, out, err));
    if (!is_on_both(s, source)) return ERR_OK;
    struct weight *twin = mem_alloc(sizeof *twin);
    int code = bind_on(s, side == SIDE_HOST ? SIDE_CARD : SIDE_HOST, source, twin, err);
    out->twin = twin;
    if (code) split_weight_release(be, out);
    return code;
}

static void release(struct split *s, struct weight *w) {
    if (!w->packed) return;
    s->weight_bytes[w->side] -= w->bytes;
    s->sides[w->side]->type->weight_release(s->sides[w->side], w);
}

void split_weight_release(struct backend *be, struct weight *w) {
    struct split *s = (struct split *)be;
    release(s, w);
    if (w->twin) release(s, w->twin);
    mem_free(w->twin);
    w->twin = NULL;
}

/* ---- cache and state ------------------------------------------------------------------------------------------------- */

void split_layout(const struct split *s, const struct kv_layout *layout, enum split_side side, struct kv_layout *out) {
    *out = *layout;
    out->n_states = 0;
    for (int32_t i = 0; i < layout->n_classes; i++) {
        const struct kv_class *k = &layout->classes[i];
        out->classes[i].n_layers = 0;
        for (int32_t n = 0; n < k->n_layers; n++) out->classes[i].n_layers += k->layers && split_layer_side(s, k->layers[n]) == side;
    }
    for (int32_t i = 0; i < layout->n_states; i++)
        if (split_layer_side(s, layout->states[i].layer) == side) out->states[out->n_states++] = layout->states[i];
}

int split_kv_maps(struct split *s, const struct kv_layout *layout, struct err *err) {
    int32_t n_states[N_SIDES] = {0};
    split_kv_maps_free(s);
    for (int side = 0; side < N_SIDES; side++) split_layout(s, layout, (enum split_side)side, &s->layouts[side]);
    for (int32_t i = 0; i < layout->n_classes; i++) {
        const struct kv_class *k = &layout->classes[i];
        int32_t n[N_SIDES] = {0};
        if (!k->layers) return err_set(err, ERR_EINTERNAL, "nobody knows which layers a cache belongs to");
        s->kv[i] = mem_alloc((size_t)(k->n_layers + 1) * sizeof *s->kv[i]);
        for (int32_t at = 0; at < k->n_layers; at++) {
            enum split_side side = split_layer_side(s, k->layers[at]);
            s->kv[i][at] = (struct split_at){(int8_t)side, n[side]++};
        }
    }
    for (int32_t i = 0; i < layout->n_states; i++) {
        enum split_side side = split_layer_side(s, layout->states[i].layer);
        s->states[i] = (struct split_at){(int8_t)side, n_states[side]++};
    }
    return ERR_OK;
}

void split_kv_maps_free(struct split *s) {
    for (int32_t i = 0; i < KV_CLASSES_MAX; i++) {
        mem_free(s->kv[i]);
        s->kv[i] = NULL;
    }
}

/* ---- ops ------------------------------------------------------------------------------------------------------------- */

/* Where the arguments of each kind have weights, and what of them names a cache or a state. */
struct field {
    enum op_kind kind;
    size_t at;
};
#define FIELD(kind, member) \
    { OP_##kind, offsetof(struct op, arg.member) }

static const struct field weight_fields[] = {
    FIELD(EMBED, embed.weight),
    FIELD(LINEAR, linear.weight),
    FIELD(LINEAR, linear.bias),
    FIELD(HEAD_LINEAR, linear.weight),
    FIELD(HEAD_LINEAR, linear.bias),
    FIELD(NORM, norm.weight),
    FIELD(NORM, norm.bias),
    FIELD(MULVEC, vec.mul),
    FIELD(MULVEC, vec.add),
    FIELD(ROPE, rope.inv_freq),
    FIELD(ATTN, attn.sinks),
    FIELD(ATTN, attn.slopes),
    FIELD(ATTN, attn.distances),
    FIELD(ATTN, attn.buckets),
    FIELD(ROUTE, route.bias),
    FIELD(ROUTE, route.expert_scale),
    FIELD(EXPERTS, experts.gate_up),
    FIELD(EXPERTS, experts.gate),
    FIELD(EXPERTS, experts.up),
    FIELD(EXPERTS, experts.down),
    FIELD(EXPERTS, experts.gate_bias),
    FIELD(EXPERTS, experts.up_bias),
    FIELD(EXPERTS, experts.gate_up_bias),
    FIELD(EXPERTS, experts.down_bias),
    FIELD(CONV, conv.weight),
    FIELD(CONV, conv.bias),
    FIELD(DELTA, delta.a_log),
    FIELD(DELTA, delta.dt_bias),
    FIELD(SSD, ssd.a_log),
    FIELD(SSD, ssd.d),
    FIELD(SSD, ssd.dt_bias),
    FIELD(SCAN, scan.a_log),
    FIELD(SCAN, scan.d),
    FIELD(LIGHTNING, lightning.slope),
    FIELD(LRU, lru.rate),
};
static const struct field kv_fields[] = {FIELD(KV_WRITE, kv.kv), FIELD(ATTN, attn.kv), FIELD(PICK, pick.kv)};
static const struct field state_fields[] = {FIELD(CONV, conv.state), FIELD(DELTA, delta.state),         FIELD(SSD, ssd.state),
                                            FIELD(SCAN, scan.state), FIELD(LIGHTNING, lightning.state), FIELD(LRU, lru.state)};
#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

static const struct weight **weight_at(struct op *op, const struct field *f) {
    return (const struct weight **)(void *)((char *)op + f->at);
}

static struct kv_ref *kv_of(struct op *op) {
    for (size_t i = 0; i < COUNT(kv_fields); i++)
        if (kv_fields[i].kind == op->kind) return (struct kv_ref *)(void *)((char *)op + kv_fields[i].at);
    return NULL;
}

static int32_t *state_of(struct op *op) {
    for (size_t i = 0; i < COUNT(state_fields); i++)
        if (state_fields[i].kind == op->kind) return (int32_t *)(void *)((char *)op + state_fields[i].at);
    return NULL;
}

/* The side that alone has a weight of the op; -1: both have them all, or it has none. */
static int weights_side(struct op *op) {
    for (size_t i = 0; i < COUNT(weight_fields); i++) {
        if (weight_fields[i].kind != op->kind) continue;
        const struct weight *w = *weight_at(op, &weight_fields[i]);
        if (w && !w->twin) return w->side;
    }
    return -1;
}

static int8_t side_of(const struct split *s, struct op *op, const struct oplist *l) {
    const struct kv_ref *kv = kv_of(op);
    const int32_t *state = state_of(op);
    if (kv) return s->kv[kv->kv_class][kv->index].side;
    if (state) return s->states[*state].side;
    int side = weights_side(op);
    if (side >= 0) return (int8_t)side;
    if (op->layer >= 0) return (int8_t)split_layer_side(s, op->layer);
    if (op->n_in) return s->op_sides[l->values[op->in[0].id - 1].first_op]; /* where its input is made */
    return (int8_t)split_layer_side(s, 0);
}

void split_find_sides(struct split *s) {
    struct oplist *l = &s->base.list;
    if (s->op_sides_capacity < l->n_ops) {
        s->op_sides_capacity = 2 * l->n_ops;
        s->op_sides = mem_realloc(s->op_sides, (size_t)s->op_sides_capacity);
    }
    for (int32_t i = 0; i < l->n_ops; i++) s->op_sides[i] = side_of(s, &l->ops[i], l);
}

int split_move_op(const struct split *s, struct op *op, enum split_side side, struct err *err) {
    struct kv_ref *kv = kv_of(op);
    int32_t *state = state_of(op);
    if (kv) kv->index = s->kv[kv->kv_class][kv->index].index;
    if (state) *state = s->states[*state].index;
    for (size_t i = 0; i < COUNT(weight_fields); i++) {
        if (weight_fields[i].kind != op->kind) continue;
        const struct weight **w = weight_at(op, &weight_fields[i]);
        if (!*w || (*w)->side == (int32_t)side) continue;
        if (!(*w)->twin)
            return err_set(err, ERR_EUNSUPPORTED, "layer %d reads the cache of a layer on the other device, which %s is not on", op->layer,
                           (*w)->name);
        *w = (*w)->twin;
    }
    return ERR_OK;
}
