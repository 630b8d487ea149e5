/* The split as a backend: what the engine asks of one context goes to all sides, or to the one that has it. */
#include "backend/split/split_internal.h"

#include "base/hash.h"

#include <stdio.h>

static void split_close(struct backend *be) {
    struct split *s = (struct split *)be;
    split_run_close(s);
    split_kv_maps_free(s);
    for (int32_t i = 0; i < s->n_sides; i++) backend_close(s->sides[i]);
    oplist_free(&be->list);
    mem_free(s);
}

static int32_t smaller_limit(int32_t a, int32_t b) {
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* What it can do is what all of its sides can. */
static int describe_sides(struct split *s, struct err *err) {
    struct backend *base = &s->base;
    const struct backend *first = s->sides[split_first_side(s)], *last = s->sides[split_last_side(s)];
    base->kv_bits = last->kv_bits;
    base->mixes_rows = true;
    base->chooses = last->chooses;
    base->row_first = first->row_first, base->row_more = first->row_more;
    for (int32_t i = 0; i < s->n_sides; i++) {
        const struct backend *side = s->sides[i];
        if (!side) continue;
        if (!side->takes_inputs) return err_set(err, ERR_EUNSUPPORTED, "%s cannot run a part of a model", side->type->name);
        if (side->kv_bits != base->kv_bits) base->kv_bits = 0; /* the caller refuses a wish that was not fulfilled */
        base->rows_max = smaller_limit(base->rows_max, side->rows_max);
        base->mixes_rows = base->mixes_rows && side->mixes_rows;
    }
    return ERR_OK;
}

int split_open(struct device *const devices[SIDES_MAX], const struct backend_options *options, const struct split_plan *plan,
               struct backend **out, struct err *err) {
    struct split *s = mem_alloc(sizeof *s);
    int code = ERR_OK;
    s->base = (struct backend){
        .type = &split_backend, .device = device_hold(devices[SIDE_CARD]), .precision = options->precision, .is_split = true};
    s->plan = *plan;
    s->n_sides = SIDE_CARD + plan->n_cards;
    for (int32_t i = 0; i < s->n_sides && !code; i++)
        if (devices[i]) code = backend_open(devices[i], options, &s->sides[i], err);
    if (!code) code = describe_sides(s, err);
    if (code) {
        backend_close(&s->base);
        return code;
    }
    *out = &s->base;
    return ERR_OK;
}

bool split_is(const struct backend *be) {
    return be->is_split;
}

uint64_t split_weight_bytes(const struct backend *be, int32_t side) {
    return ((const struct split *)be)->weight_bytes[side];
}

int32_t split_parts(struct backend *be, const struct kv_layout *layout, struct split_part out[SIDES_MAX]) {
    struct split *s = (struct split *)be;
    int32_t n = 0;
    if (!split_is(be)) {
        out[0] = (struct split_part){be, *layout, false};
        return 1;
    }
    for (int32_t i = 0; i < s->n_sides; i++) {
        if (!s->sides[i]) continue;
        out[n].be = s->sides[i];
        out[n].is_card = i != SIDE_HOST;
        split_layout(s, layout, i, &out[n++].layout);
    }
    return n;
}

/* ---- cache and state ------------------------------------------------------------------------------------------------- */

/* By the layers at which sides begin, and what the sides are. */
static void name_layout(struct split *s) {
    uint64_t hash = 0;
    for (int32_t i = 0; i < s->n_sides; i++) {
        const char *type = s->sides[i] ? s->sides[i]->type->name : "";
        hash = hash_bytes(type, strlen(type), hash_pair(hash, (uint64_t)s->plan.first_layers[i]));
    }
    snprintf(s->layout_name, sizeof s->layout_name, "split-%08x", (unsigned)hash);
}

/* Cards before the host, whose memory they may have borrowed. */
static void split_kv_close(struct backend *be) {
    struct split *s = (struct split *)be;
    for (int32_t i = s->n_sides - 1; i >= 0; i--) {
        if (s->sides[i]) s->sides[i]->type->kv_close(s->sides[i]);
        s->runs[i] = false;
    }
    for (int32_t i = 0; i < KV_CLASSES_MAX; i++) s->lends[i] = false;
    s->may_visit = s->is_cut = false;
    split_kv_maps_free(s);
}

/* The first card gets the host's layers of a class, where both can do that. */
static int lend(struct split *s, int32_t kv_class, struct err *err) {
    struct backend *host = s->sides[SIDE_HOST], *card = s->sides[SIDE_CARD];
    struct kv_lent lent;
    bool may = host && s->layouts[SIDE_CARD].classes[kv_class].n_borrowed && host->type->kv_lend && card->type->kv_borrow;
    if (!may || !host->type->kv_lend(host, kv_class, &lent)) return ERR_OK;
    return card->type->kv_borrow(card, kv_class, &lent, &s->lends[kv_class], err);
}

static int split_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err) {
    struct split *s = (struct split *)be;
    TRY(split_kv_maps(s, layout, err));
    name_layout(s);
    for (int32_t i = 0; i < s->n_sides; i++)
        if (s->sides[i]) TRY(s->sides[i]->type->kv_open(s->sides[i], &s->layouts[i], err));
    for (int32_t i = 0; i < layout->n_classes; i++) TRY(lend(s, i, err));
    return ERR_OK;
}

static int split_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err) {
    struct split *s = (struct split *)be;
    TRY(split_end_visit(s, err));
    for (int32_t i = 0; i < s->n_sides; i++)
        if (s->layouts[i].classes[kv_class].n_layers) TRY(s->sides[i]->type->block_copy(s->sides[i], kv_class, from, to, err));
    return ERR_OK;
}

static int split_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err) {
    struct split *s = (struct split *)be;
    for (int32_t i = 0; i < s->n_sides; i++)
        if (s->layouts[i].n_states) TRY(s->sides[i]->type->slot_copy(s->sides[i], from, to, err));
    return ERR_OK;
}

static size_t side_block_bytes(const struct split *s, int32_t side, int32_t kv_class, const char **out_layout) {
    *out_layout = "";
    if (s->layouts[side].classes[kv_class].n_layers == 0) return 0;
    return s->sides[side]->type->block_bytes(s->sides[side], kv_class, out_layout);
}

/* A class that is on one side has that side's layout. */
static size_t split_block_bytes(const struct backend *be, int32_t kv_class, const char **out_layout) {
    const struct split *s = (const struct split *)be;
    const char *name;
    size_t bytes = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_sides; i++) {
        size_t part = side_block_bytes(s, i, kv_class, &name);
        if (part) *out_layout = name, n++;
        bytes += part;
    }
    if (n > 1) *out_layout = s->layout_name;
    return bytes;
}

static int split_block_read(struct backend *be, int32_t kv_class, int32_t block, void *dst, struct err *err) {
    struct split *s = (struct split *)be;
    TRY(split_end_visit(s, err));
    const char *layout;
    unsigned char *to = dst;
    for (int32_t i = 0; i < s->n_sides; i++) {
        size_t bytes = side_block_bytes(s, i, kv_class, &layout);
        if (bytes) TRY(s->sides[i]->type->block_read(s->sides[i], kv_class, block, to, err));
        to += bytes;
    }
    return ERR_OK;
}

static int split_block_write(struct backend *be, int32_t kv_class, int32_t block, const void *src, struct err *err) {
    struct split *s = (struct split *)be;
    TRY(split_end_visit(s, err));
    const char *layout;
    const unsigned char *from = src;
    for (int32_t i = 0; i < s->n_sides; i++) {
        size_t bytes = side_block_bytes(s, i, kv_class, &layout);
        if (bytes) TRY(s->sides[i]->type->block_write(s->sides[i], kv_class, block, from, err));
        from += bytes;
    }
    return ERR_OK;
}

/* Sides have states in the order of their layers. */
static int64_t state_floats(const struct split *s, int32_t side) {
    int64_t n = 0;
    for (int32_t i = 0; i < s->layouts[side].n_states; i++) n += s->layouts[side].states[i].elements;
    return n;
}

static int split_slot_read(struct backend *be, int32_t slot, float *dst, struct err *err) {
    const struct split *s = (const struct split *)be;
    for (int32_t i = 0; i < s->n_sides; i++) {
        if (s->layouts[i].n_states) TRY(s->sides[i]->type->slot_read(s->sides[i], slot, dst, err));
        dst += state_floats(s, i);
    }
    return ERR_OK;
}

static int split_slot_write(struct backend *be, int32_t slot, const float *src, struct err *err) {
    const struct split *s = (const struct split *)be;
    for (int32_t i = 0; i < s->n_sides; i++) {
        if (s->layouts[i].n_states) TRY(s->sides[i]->type->slot_write(s->sides[i], slot, src, err));
        src += state_floats(s, i);
    }
    return ERR_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------------ */

/* Whether two decode steps have the same list: lengths do not show in it. */
static bool same_list(const struct step_key *a, const struct step_key *b) {
    return a->decode_only && b->decode_only && a->n_rows == b->n_rows && a->n_seqs == b->n_seqs && a->n_logits == b->n_logits &&
           a->n_hidden == b->n_hidden && a->chooses == b->chooses && a->adapts == b->adapts && a->gives == b->gives &&
           a->has_places == b->has_places && a->sees == b->sees && a->has_spans == b->has_spans;
}

/* The list of the last step stays, cut as it is, where this one has the same. */
static bool split_begin(struct backend *be, const struct step_key *key) {
    struct split *s = (struct split *)be;
    s->is_cut = s->is_cut && same_list(&s->key, key);
    s->key = *key;
    if (!s->is_cut) oplist_begin(&be->list, key->n_rows, key->n_logits + key->n_hidden);
    return !s->is_cut;
}

/* The head is its, and so is what is chosen. */
static struct backend *last_of(struct backend *be) {
    const struct split *s = (const struct split *)be;
    return s->sides[split_last_side(s)];
}

static int split_choice_begin(struct backend *be, int32_t slot, const struct choice_tables *t, struct err *err) {
    return last_of(be)->type->choice_begin(last_of(be), slot, t, err);
}

static int split_mask_room(struct backend *be, int32_t rows, int32_t words, uint32_t **out, struct err *err) {
    return last_of(be)->type->mask_room(last_of(be), rows, words, out, err);
}

static int split_chosen(struct backend *be, int32_t age, struct step_chosen *out, struct err *err) {
    struct split *s = (struct split *)be;
    struct backend *last = last_of(be);
    if (last->type->chosen) {
        TRY(split_note_lost(s, last->type->chosen(last, age, out, err)));
        return split_note_lost(s, split_wait_for_others(s, err));
    }
    const struct cut *c = &s->cut;
    const struct oplist *l = &be->list;
    const struct op *choice = &l->ops[c->pieces[c->n_pieces - 1].last - 1];
    for (int32_t i = 0; i < choice->out[0].rows; i++) TRY(split_read(be, tensor_slice_rows(choice->out[0], i, 1), &out[i].token, err));
    return ERR_OK;
}

static void split_describe(struct backend *be, struct sb *out) {
    const struct split *s = (const struct split *)be;
    for (int32_t i = SIDE_CARD; i < s->n_sides; i++) {
        if (i > SIDE_CARD) sb_puts(out, s->sides[SIDE_HOST] || i + 1 < s->n_sides ? ", " : " and ");
        s->sides[i]->type->describe(s->sides[i], out);
    }
    if (!s->sides[SIDE_HOST]) return;
    sb_puts(out, " and ");
    s->sides[SIDE_HOST]->type->describe(s->sides[SIDE_HOST], out);
}

/* It has no devices of its own: split_open is the way to one. */
const struct backend_type split_backend = {
    .name = "split",
    .close = split_close,
    .weight_bind = split_weight_bind,
    .weight_release = split_weight_release,
    .kv_open = split_kv_open,
    .kv_close = split_kv_close,
    .block_copy = split_block_copy,
    .slot_copy = split_slot_copy,
    .block_bytes = split_block_bytes,
    .block_read = split_block_read,
    .block_write = split_block_write,
    .slot_read = split_slot_read,
    .slot_write = split_slot_write,
    .begin = split_begin,
    .end = split_end,
    .reserve = split_reserve,
    .read = split_read,
    .choice_begin = split_choice_begin,
    .mask_room = split_mask_room,
    .chosen = split_chosen,
    .describe = split_describe,
};
