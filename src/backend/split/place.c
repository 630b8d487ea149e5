/* What lies where: weights, cache and state by layer, and ops by what they read. */
#include "backend/split/split_internal.h"

#include "backend/op_fields.h"

int32_t split_plan_end(const struct split_plan *plan, int32_t side) {
    return side < plan->n_cards ? plan->first_layers[side + 1] : plan->n_layers;
}

int32_t split_plan_side(const struct split_plan *plan, int32_t layer) {
    int32_t side = SIDE_HOST;
    while (side < plan->n_cards && layer >= plan->first_layers[side + 1]) side++;
    return side;
}

int32_t split_first_side(const struct split *s) {
    return s->sides[SIDE_HOST] ? SIDE_HOST : SIDE_CARD;
}

int32_t split_last_side(const struct split *s) {
    return s->n_sides - 1;
}

/* Which card runs a layer's products where it borrows what the host has of them. */
static int32_t borrowing_card(const struct split *s, int32_t layer) {
    int32_t side = split_plan_side(&s->plan, layer);
    return side == SIDE_HOST ? SIDE_CARD : side;
}

/* ---- weights -------------------------------------------------------------------------------------------------------- */

static int32_t reader_side(const struct split *s, const struct weight_source *source) {
    if (source->reader == READ_BEFORE) return split_first_side(s);
    if (source->reader < 0) return split_last_side(s);
    if (source->is_expert && source->reader < s->plan.experts_from) return SIDE_HOST;
    return split_plan_side(&s->plan, source->reader);
}

enum { FEW_ROWS = 16 };

static bool is_small(const struct weight_source *source) {
    return source->is_vector || source->is_router || source->n_experts * source->out < FEW_ROWS;
}

/* Whether a side has a weight, too, which is another's. Vectors that belong to no layer are small, and all sides have them; so has a card what is small of
 * the host's layers, whose products it may run. A matrix that is embedding and head is the last side's, and that of the first layer, too. */
static bool is_also_on(const struct split *s, const struct weight_source *source, int32_t side) {
    if (!s->sides[side]) return false;
    if (source->reader >= 0)
        return s->plan.borrow_rows && reader_side(s, source) == SIDE_HOST && is_small(source) && side == borrowing_card(s, source->reader);
    return source->is_vector || source->reader == READ_ALL || (source->reader == READ_ENDS && split_plan_side(&s->plan, 0) == side);
}

static int bind_on(struct split *s, int32_t side, const struct weight_source *source, struct weight *out, struct err *err) {
    struct backend *be = s->sides[side];
    TRY(be->type->weight_bind(be, source, out, err));
    out->side = side;
    s->weight_bytes[side] += out->bytes;
    return ERR_OK;
}

/* The card's half of a matrix that is the host's. Without one the host runs all of its products, as those of one layer would go to and fro. */
static int borrow(struct split *s, const struct weight_source *source, struct weight *of, struct err *err) {
    struct weight_lent lent;
    bool wanted = s->plan.borrow_rows && of->side == SIDE_HOST && source->reader >= 0 && !s->cannot_borrow;
    if (!wanted) return ERR_OK;
    int32_t side = borrowing_card(s, source->reader);
    struct backend *host = s->sides[SIDE_HOST], *card = s->sides[side];
    s->cannot_borrow = !card->type->weight_borrow || !host->type->weight_lend || !host->type->weight_lend(host, of, &lent);
    if (s->cannot_borrow) return ERR_OK;
    struct weight *twin = mem_alloc(sizeof *twin);
    *twin = (struct weight){0};
    int code = card->type->weight_borrow(card, source, &lent, twin, err);
    twin->side = side;
    s->cannot_borrow = !twin->packed;
    if (twin->packed) of->twin = twin;
    else mem_free(twin);
    return code;
}

static int bind_twin(struct split *s, int32_t side, const struct weight_source *source, struct weight *of, struct err *err) {
    struct weight *twin = mem_alloc(sizeof *twin);
    int code = bind_on(s, side, source, twin, err);
    if (code) {
        mem_free(twin);
        return code;
    }
    twin->twin = of->twin;
    of->twin = twin;
    return ERR_OK;
}

int split_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err) {
    struct split *s = (struct split *)be;
    int32_t home = reader_side(s, source);
    TRY(bind_on(s, home, source, out, err));
    int code = ERR_OK;
    for (int32_t side = 0; side < s->n_sides && !code; side++)
        if (side != home && is_also_on(s, source, side)) code = bind_twin(s, side, source, out, err);
    if (!code && !out->twin) code = borrow(s, source, out, err);
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
    while (w->twin) { /* before the memory that it may have borrowed */
        struct weight *twin = w->twin;
        w->twin = twin->twin;
        release(s, twin);
        mem_free(twin);
    }
    release(s, w);
}

/* ---- cache and state ------------------------------------------------------------------------------------------------- */

void split_layout(const struct split *s, const struct kv_layout *layout, int32_t side, struct kv_layout *out) {
    *out = *layout;
    out->n_states = 0;
    for (int32_t i = 0; i < layout->n_classes; i++) {
        const struct kv_class *k = &layout->classes[i];
        int32_t n_on[SIDES_MAX] = {0};
        for (int32_t n = 0; k->layers && n < k->n_layers; n++) n_on[split_plan_side(&s->plan, k->layers[n])]++;
        out->classes[i].n_layers = n_on[side];
        out->classes[i].n_borrowed = side == SIDE_CARD && s->plan.borrow_rows && !s->cannot_borrow ? n_on[SIDE_HOST] : 0;
    }
    for (int32_t i = 0; i < layout->n_states; i++)
        if (split_plan_side(&s->plan, layout->states[i].layer) == side) out->states[out->n_states++] = layout->states[i];
}

int split_kv_maps(struct split *s, const struct kv_layout *layout, struct err *err) {
    int32_t n_states[SIDES_MAX] = {0};
    split_kv_maps_free(s);
    for (int32_t side = 0; side < s->n_sides; side++) split_layout(s, layout, side, &s->layouts[side]);
    for (int32_t i = 0; i < layout->n_classes; i++) {
        const struct kv_class *k = &layout->classes[i];
        int32_t n[SIDES_MAX] = {0};
        if (!k->layers) return err_set(err, ERR_EINTERNAL, "nobody knows which layers a cache belongs to");
        s->kv[i] = mem_alloc((size_t)(k->n_layers + 1) * sizeof *s->kv[i]);
        for (int32_t at = 0; at < k->n_layers; at++) {
            int32_t side = split_plan_side(&s->plan, k->layers[at]);
            s->kv[i][at] = (struct split_at){side, n[side]++};
        }
    }
    for (int32_t i = 0; i < layout->n_states; i++) {
        int32_t side = split_plan_side(&s->plan, layout->states[i].layer);
        s->states[i] = (struct split_at){side, n_states[side]++};
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

/* The side that alone has a weight of the op; of a matrix that a card may borrow, the side that runs its products in this step. -1: several have them
 * all, or it has none. */
static int32_t weights_side(const struct split *s, struct op *op) {
    int32_t side = -1, borrower = -1;
    for (int32_t i = 0; i < op_weight_places(); i++) {
        const struct weight **w = op_weight_at(op, i);
        if (!w || !*w) continue;
        if (!(*w)->twin) side = side < 0 ? (*w)->side : side;
        else if ((*w)->twin->is_borrowed) borrower = (*w)->twin->side;
    }
    if (side >= 0 || borrower < 0) return side;
    return s->borrows ? borrower : SIDE_HOST;
}

/* Whether the op computes on the first card with a layer of the host's cache. */
static bool is_visit(const struct split *s, const struct kv_ref *kv, int32_t side) {
    return s->visits && s->lends[kv->kv_class] && side == SIDE_CARD && s->kv[kv->kv_class][kv->index].side == SIDE_HOST;
}

/* The side of the op's cache or state; -1: it has none. */
static int32_t memory_side(const struct split *s, struct op *op) {
    const int32_t *state = op_state(op);
    for (int32_t i = 0; i < op_kv_places(); i++) {
        const struct kv_ref *kv = op_kv_at(op, i);
        if (kv) return is_visit(s, kv, SIDE_CARD) ? SIDE_CARD : s->kv[kv->kv_class][kv->index].side;
    }
    return state ? s->states[*state].side : -1;
}

static int32_t side_of(const struct split *s, struct op *op, const struct oplist *l) {
    int32_t side = memory_side(s, op);
    if (side < 0) side = weights_side(s, op);
    if (side >= 0) return side;
    if (op->layer >= 0) return s->borrows ? borrowing_card(s, op->layer) : split_plan_side(&s->plan, op->layer);
    if (op->n_in) return s->op_sides[l->values[op->in[0].id - 1].first_op]; /* where its input is made */
    return split_plan_side(&s->plan, 0);
}

void split_find_sides(struct split *s) {
    struct oplist *l = &s->base.list;
    if (s->op_sides_capacity < l->n_ops) {
        s->op_sides_capacity = 2 * l->n_ops;
        s->op_sides = mem_realloc(s->op_sides, (size_t)s->op_sides_capacity * sizeof *s->op_sides);
    }
    for (int32_t i = 0; i < l->n_ops; i++) s->op_sides[i] = side_of(s, &l->ops[i], l);
}

bool split_may_borrow(const struct split *s) {
    return s->plan.borrow_rows && !s->cannot_borrow && !s->key.decode_only && s->key.n_rows >= s->plan.borrow_rows;
}

bool split_may_visit(const struct split *s) {
    bool lends = false;
    for (int32_t i = 0; i < KV_CLASSES_MAX; i++) lends = lends || s->lends[i];
    return lends;
}

static const struct weight *on_side(const struct weight *w, int32_t side) {
    while (w && w->side != side) w = w->twin;
    return w;
}

int split_move_op(const struct split *s, struct op *op, int32_t side, struct err *err) {
    int32_t *state = op_state(op);
    for (int32_t i = 0; i < op_kv_places(); i++) {
        struct kv_ref *kv = op_kv_at(op, i);
        if (!kv) continue;
        int32_t own = is_visit(s, kv, side) ? s->layouts[side].classes[kv->kv_class].n_layers : 0; /* layers of the host follow them */
        kv->index = own + s->kv[kv->kv_class][kv->index].index;
    }
    if (state) *state = s->states[*state].index;
    for (int32_t i = 0; i < op_weight_places(); i++) {
        const struct weight **w = op_weight_at(op, i);
        if (!w || !*w) continue;
        const struct weight *there = on_side(*w, side);
        if (!there)
            return err_set(err, ERR_EUNSUPPORTED, "layer %d reads the cache of a layer on another device, which %s is not on", op->layer,
                           (*w)->name);
        *w = there;
    }
    return ERR_OK;
}
