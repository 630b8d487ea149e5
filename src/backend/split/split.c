/* The split as a backend: what the engine asks of one context goes to both, or to the one that has it. */
#include "backend/split/split_internal.h"

#include <stdio.h>

static void split_close(struct backend *be) {
    struct split *s = (struct split *)be;
    split_run_close(s);
    split_kv_maps_free(s);
    for (int i = 0; i < N_SIDES; i++) backend_close(s->sides[i]);
    oplist_free(&be->list);
    mem_free(s);
}

static int32_t smaller_limit(int32_t a, int32_t b) {
    return a == 0 || (b > 0 && b < a) ? b : a;
}

int split_open(struct device *const devices[N_SIDES], const struct backend_options *options, const struct split_plan *plan,
               struct backend **out, struct err *err) {
    struct split *s = mem_alloc(sizeof *s);
    struct backend_options each = *options;
    int code = ERR_OK;
    s->base = (struct backend){
        .type = &split_backend, .device = device_hold(devices[SIDE_CARD]), .precision = options->precision, .is_split = true};
    s->plan = *plan;
    for (int i = 0; i < N_SIDES && !code; i++) code = backend_open(devices[i], &each, &s->sides[i], err);
    if (!code && !(s->sides[SIDE_CARD]->takes_inputs && s->sides[SIDE_HOST]->takes_inputs))
        code = err_set(err, ERR_EUNSUPPORTED, "%s cannot run a part of a model", s->sides[SIDE_CARD]->type->name);
    if (code) {
        backend_close(&s->base);
        return code;
    }
    const struct backend *host = s->sides[SIDE_HOST], *card = s->sides[SIDE_CARD];
    if (host->kv_bits == card->kv_bits) s->base.kv_bits = card->kv_bits; /* else the caller refuses a wish that was not fulfilled */
    s->base.rows_max = smaller_limit(host->rows_max, card->rows_max);
    s->base.row_first = host->row_first, s->base.row_more = host->row_more;
    s->base.mixes_rows = host->mixes_rows && card->mixes_rows;
    s->base.chooses = card->chooses;
    *out = &s->base;
    return ERR_OK;
}

bool split_is(const struct backend *be) {
    return be->is_split;
}

uint64_t split_weight_bytes(const struct backend *be, enum split_side side) {
    return ((const struct split *)be)->weight_bytes[side];
}

int32_t split_parts(struct backend *be, const struct kv_layout *layout, struct split_part out[N_SIDES]) {
    struct split *s = (struct split *)be;
    if (!split_is(be)) {
        out[0] = (struct split_part){be, *layout};
        return 1;
    }
    for (int i = 0; i < N_SIDES; i++) {
        out[i].be = s->sides[i];
        split_layout(s, layout, (enum split_side)i, &out[i].layout);
    }
    return N_SIDES;
}

/* ---- cache and state ------------------------------------------------------------------------------------------------- */

static void name_layouts(struct split *s) {
    for (int32_t i = 0; i < s->layouts[SIDE_CARD].n_classes; i++)
        snprintf(s->layout_names[i], sizeof s->layout_names[i], "split-%d", s->plan.first_layer);
}

static void split_kv_close(struct backend *be) {
    struct split *s = (struct split *)be;
    for (int i = 0; i < N_SIDES; i++) s->sides[i]->type->kv_close(s->sides[i]);
    s->card_runs = false;
    split_kv_maps_free(s);
}

static int split_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err) {
    struct split *s = (struct split *)be;
    TRY(split_kv_maps(s, layout, err));
    name_layouts(s);
    for (int i = 0; i < N_SIDES; i++) TRY(s->sides[i]->type->kv_open(s->sides[i], &s->layouts[i], err));
    return ERR_OK;
}

static int split_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err) {
    struct split *s = (struct split *)be;
    for (int i = 0; i < N_SIDES; i++) TRY(s->sides[i]->type->block_copy(s->sides[i], kv_class, from, to, err));
    return ERR_OK;
}

static int split_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err) {
    struct split *s = (struct split *)be;
    for (int i = 0; i < N_SIDES; i++)
        if (s->layouts[i].n_states) TRY(s->sides[i]->type->slot_copy(s->sides[i], from, to, err));
    return ERR_OK;
}

static size_t side_block_bytes(const struct split *s, int side, int32_t kv_class, const char **out_layout) {
    *out_layout = "";
    if (s->layouts[side].classes[kv_class].n_layers == 0) return 0;
    return s->sides[side]->type->block_bytes(s->sides[side], kv_class, out_layout);
}

/* A class that is on one side has that side's layout. */
static size_t split_block_bytes(const struct backend *be, int32_t kv_class, const char **out_layout) {
    const struct split *s = (const struct split *)be;
    const char *names[N_SIDES];
    size_t bytes[N_SIDES];
    for (int i = 0; i < N_SIDES; i++) bytes[i] = side_block_bytes(s, i, kv_class, &names[i]);
    *out_layout = bytes[SIDE_HOST] == 0 ? names[SIDE_CARD] : bytes[SIDE_CARD] == 0 ? names[SIDE_HOST] : s->layout_names[kv_class];
    return bytes[SIDE_HOST] + bytes[SIDE_CARD];
}

static int split_block_read(struct backend *be, int32_t kv_class, int32_t block, void *dst, struct err *err) {
    const struct split *s = (const struct split *)be;
    const char *layout;
    unsigned char *to = dst;
    for (int i = 0; i < N_SIDES; i++) {
        size_t bytes = side_block_bytes(s, i, kv_class, &layout);
        if (bytes) TRY(s->sides[i]->type->block_read(s->sides[i], kv_class, block, to, err));
        to += bytes;
    }
    return ERR_OK;
}

static int split_block_write(struct backend *be, int32_t kv_class, int32_t block, const void *src, struct err *err) {
    const struct split *s = (const struct split *)be;
    const char *layout;
    const unsigned char *from = src;
    for (int i = 0; i < N_SIDES; i++) {
        size_t bytes = side_block_bytes(s, i, kv_class, &layout);
        if (bytes) TRY(s->sides[i]->type->block_write(s->sides[i], kv_class, block, from, err));
        from += bytes;
    }
    return ERR_OK;
}

/* The host's layers come first, and so do their states. */
static int64_t state_floats(const struct split *s, int side) {
    int64_t n = 0;
    for (int32_t i = 0; i < s->layouts[side].n_states; i++) n += s->layouts[side].states[i].elements;
    return n;
}

static int split_slot_read(struct backend *be, int32_t slot, float *dst, struct err *err) {
    const struct split *s = (const struct split *)be;
    for (int i = 0; i < N_SIDES; i++) {
        if (s->layouts[i].n_states) TRY(s->sides[i]->type->slot_read(s->sides[i], slot, dst, err));
        dst += state_floats(s, i);
    }
    return ERR_OK;
}

static int split_slot_write(struct backend *be, int32_t slot, const float *src, struct err *err) {
    const struct split *s = (const struct split *)be;
    for (int i = 0; i < N_SIDES; i++) {
        if (s->layouts[i].n_states) TRY(s->sides[i]->type->slot_write(s->sides[i], slot, src, err));
        src += state_floats(s, i);
    }
    return ERR_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------------ */

static bool split_begin(struct backend *be, const struct step_key *key) {
    ((struct split *)be)->key = *key;
    oplist_begin(&be->list, key->n_rows, key->n_logits + key->n_hidden);
    return true;
}

static struct backend *card_of(struct backend *be) {
    return ((struct split *)be)->sides[SIDE_CARD];
}

static int split_choice_begin(struct backend *be, int32_t slot, const struct choice_tables *t, struct err *err) {
    return card_of(be)->type->choice_begin(card_of(be), slot, t, err);
}

static int split_mask_room(struct backend *be, int32_t rows, int32_t words, uint32_t **out, struct err *err) {
    return card_of(be)->type->mask_room(card_of(be), rows, words, out, err);
}

/* The head is the card's, and so is what is chosen. */
static int split_chosen(struct backend *be, int32_t age, struct step_chosen *out, struct err *err) {
    struct split *s = (struct split *)be;
    struct backend *card = card_of(be);
    if (card->type->chosen) return card->type->chosen(card, age, out, err);
    const struct cut *c = &s->cut;
    const struct oplist *l = &be->list;
    const struct op *last = &l->ops[c->pieces[c->n_pieces - 1].last - 1];
    for (int32_t i = 0; i < last->out[0].rows; i++) TRY(split_read(be, tensor_slice_rows(last->out[0], i, 1), &out[i].token, err));
    return ERR_OK;
}

static void split_describe(struct backend *be, struct sb *out) {
    const struct split *s = (const struct split *)be;
    s->sides[SIDE_CARD]->type->describe(s->sides[SIDE_CARD], out);
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
