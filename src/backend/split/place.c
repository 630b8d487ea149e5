/* What lies where: weights, cache and state by layer, and ops by what they read. */
#include "backend/split/split_internal.h"

#include "backend/op_fields.h"

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

enum { FEW_ROWS = 16 };

static bool is_small(const struct weight_source *source) {
    return source->is_vector || source->is_router || source->n_experts * source->out < FEW_ROWS;
}

/* Vectors that belong to no layer are small, and both sides have them; so have they what is small of the host's layers, whose products the card may run.
 * A matrix that is embedding and head is the card's, and the host's, too, where the first layer is. */
static bool is_on_both(const struct split *s, const struct weight_source *source) {
    if (source->reader >= 0) return s->plan.borrow_rows && reader_side(s, source) == SIDE_HOST && is_small(source);
    return source->is_vector || source->reader == READ_ALL || (source->reader == READ_ENDS && s->plan.first_layer > 0);
}

static int bind_on(struct split *s, enum split_side side, const struct weight_source *source, struct weight *out, struct err *err) {
    struct backend *be = s->sides[side];
    TRY(be->type->weight_bind(be, source, out, err));
    out->side = side;
    s->weight_bytes[side] += out->bytes;
    return ERR_OK;
}

/* The card's half of a matrix that is the host's. Without one the host runs all of its products, as those of one layer would go to and fro. */
static int borrow(struct split *s, const struct weight_source *source, struct weight *of, struct err *err) {
    struct backend *host = s->sides[SIDE_HOST], *card = s->sides[SIDE_CARD];
    struct weight_lent lent;
    bool wanted = s->plan.borrow_rows && of->side == SIDE_HOST && source->reader >= 0 && !s->cannot_borrow;
    if (!wanted) return ERR_OK;
    s->cannot_borrow = !card->type->weight_borrow || !host->type->weight_lend || !host->type->weight_lend(host, of, &lent);
    if (s->cannot_borrow) return ERR_OK;
    struct weight *twin = mem_alloc(sizeof *twin);
    *twin = (struct weight){0};
    int code = card->type->weight_borrow(card, source, &lent, twin, err);
    twin->side = SIDE_CARD;
    s->cannot_borrow = !twin->packed;
    if (twin->packed) of->twin = twin;
    else mem_free(twin);
    return code;
}

int split_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err) {
    struct split *s = (struct split *)be;
    enum split_side side = reader_side(s, source);
    TRY(bind_on(s, side, source, out, err));
    int code = ERR_OK;
    if (is_on_both(s, source)) {
        struct weight *twin = mem_alloc(sizeof *twin);
        code = bind_on(s, side == SIDE_HOST ? SIDE_CARD : SIDE_HOST, source, twin, err);
        out->twin = twin;
    } else code = borrow(s, source, out, err);
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
    if (w->twin) release(s, w->twin); /* before the memory that it may have borrowed */
    release(s, w);
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

/* The side that alone has a weight of the op; of a matrix that the card may borrow, the side that runs its products in this step. -1: both have them
 * all, or it has none. */
static int weights_side(const struct split *s, struct op *op) {
    int side = -1;
    bool is_borrowed = false;
    for (int32_t i = 0; i < op_weight_places(); i++) {
        const struct weight **w = op_weight_at(op, i);
        if (!w || !*w) continue;
        if (!(*w)->twin) side = side < 0 ? (*w)->side : side;
        else if ((*w)->twin->is_borrowed) is_borrowed = true;
    }
    if (side >= 0 || !is_borrowed) return side;
    return s->borrows ? SIDE_CARD : SIDE_HOST;
}

/* The side of the op's cache or state; -1: it has none. */
static int memory_side(const struct split *s, struct op *op) {
    const int32_t *state = op_state(op);
    for (int32_t i = 0; i < op_kv_places(); i++) {
        const struct kv_ref *kv = op_kv_at(op, i);
        if (kv) return s->kv[kv->kv_class][kv->index].side;
    }
    return state ? s->states[*state].side : -1;
}

static int8_t side_of(const struct split *s, struct op *op, const struct oplist *l) {
    int side = memory_side(s, op);
    if (side < 0) side = weights_side(s, op);
    if (side >= 0) return (int8_t)side;
    if (op->layer >= 0) return (int8_t)(s->borrows ? SIDE_CARD : split_layer_side(s, op->layer));
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

bool split_may_borrow(const struct split *s) {
    return s->plan.borrow_rows && !s->cannot_borrow && !s->key.decode_only && s->key.n_rows >= s->plan.borrow_rows;
}

int split_move_op(const struct split *s, struct op *op, enum split_side side, struct err *err) {
    int32_t *state = op_state(op);
    for (int32_t i = 0; i < op_kv_places(); i++) {
        struct kv_ref *kv = op_kv_at(op, i);
        if (kv) kv->index = s->kv[kv->kv_class][kv->index].index;
    }
    if (state) *state = s->states[*state].index;
    for (int32_t i = 0; i < op_weight_places(); i++) {
        const struct weight **w = op_weight_at(op, i);
        if (!w || !*w || (*w)->side == (int32_t)side) continue;
        if (!(*w)->twin)
            return err_set(err, ERR_EUNSUPPORTED, "layer %d reads the cache of a layer on the other device, which %s is not on", op->layer,
                           (*w)->name);
        *w = (*w)->twin;
    }
    return ERR_OK;
}
