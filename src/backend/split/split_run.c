/* Steps: the list is cut, and its pieces are run one after the other. */
#include "backend/split/split_internal.h"

#include "backend/op_fields.h"
#include "os/os.h"

/* ---- slots ----------------------------------------------------------------------------------------------------------- */

static void free_slot(struct split *s, int32_t i) {
    struct backend *card = s->sides[SIDE_CARD];
    if (!s->slots[i]) return;
    if (card->type->host_free) card->type->host_free(card, s->slots[i]);
    else os_pages_free(s->slots[i], s->slot_bytes[i]);
    s->slots[i] = NULL;
    s->slot_bytes[i] = 0;
}

static int alloc_slot(struct split *s, int32_t i, size_t bytes, struct err *err) {
    struct backend *card = s->sides[SIDE_CARD];
    free_slot(s, i);
    if (card->type->host_alloc) TRY(card->type->host_alloc(card, bytes, &s->slots[i], err));
    else s->slots[i] = os_pages_alloc(bytes, err);
    if (!s->slots[i]) return err_prefix(err, "memory for what passes between the devices");
    s->slot_bytes[i] = bytes;
    return ERR_OK;
}

/* What was launched on a card has read its inputs, and its outputs are in their slots. */
static int wait_for_card(struct split *s, int32_t side, struct err *err) {
    struct backend *card = s->sides[side];
    bool waits = s->runs[side] && card->type->read_many;
    s->runs[side] = false;
    return waits ? card->type->read_many(card, NULL, NULL, 0, err) : ERR_OK;
}

static int wait_for_cards(struct split *s, struct err *err) {
    for (int32_t i = SIDE_CARD; i < s->n_sides; i++) TRY(wait_for_card(s, i, err));
    return ERR_OK;
}

int split_end_visit(struct split *s, struct err *err) {
    bool waits = s->may_visit;
    s->may_visit = false;
    return waits ? wait_for_card(s, SIDE_CARD, err) : ERR_OK;
}

int split_wait_for_others(struct split *s, struct err *err) {
    for (int32_t i = SIDE_CARD; i < split_last_side(s); i++) TRY(wait_for_card(s, i, err));
    return ERR_OK;
}

static int grow_slots(struct split *s, struct err *err) {
    const struct cut *c = &s->cut;
    if (c->n_slots > s->slots_capacity) {
        int32_t n = 2 * c->n_slots;
        s->slots = mem_realloc(s->slots, (size_t)n * sizeof *s->slots);
        s->slot_bytes = mem_realloc(s->slot_bytes, (size_t)n * sizeof *s->slot_bytes);
        for (int32_t i = s->slots_capacity; i < n; i++) s->slots[i] = NULL, s->slot_bytes[i] = 0;
        s->slots_capacity = n;
    }
    if (c->n_slots > s->n_slots) s->n_slots = c->n_slots;
    for (int32_t i = 0; i < c->n_slots; i++) {
        if (c->slots[i].bytes <= s->slot_bytes[i]) continue;
        TRY(wait_for_cards(s, err));
        TRY(alloc_slot(s, i, c->slots[i].bytes, err));
    }
    return ERR_OK;
}

void split_run_close(struct split *s) {
    for (int32_t i = 0; i < s->n_slots; i++) free_slot(s, i);
    mem_free(s->slots);
    mem_free(s->slot_bytes);
    mem_free(s->op_sides);
    cut_free(&s->cut);
}

/* ---- pieces ---------------------------------------------------------------------------------------------------------- */

static struct step_key key_of(const struct split *s, int32_t i) {
    const struct cut_piece *p = &s->cut.pieces[i];
    struct step_key key = s->key;
    key.part = i + 1;
    key.same_step = !p->is_first;
    key.no_choice = !p->chooses;
    return key;
}

/* A value as the piece's own list knows it: one of its inputs, or one that it makes. */
static int32_t id_in(const struct cut *c, int32_t piece, int32_t value) {
    const struct cut_piece *p = &c->pieces[piece];
    if (c->values[value].piece == piece) return c->values[value].id;
    for (int32_t k = 0; k < p->n_inputs; k++)
        if (c->inputs[p->inputs + k] == value) return k + 1;
    return 0;
}

static int copy_op(struct split *s, int32_t piece, const struct op *op, struct oplist *to, struct err *err) {
    struct tensor in[OP_INPUTS];
    for (int32_t k = 0; k < op->n_in; k++) {
        in[k] = op->in[k];
        in[k].id = id_in(&s->cut, piece, op->in[k].id - 1);
    }
    struct op *copy = op_copy(to, op, in);
    return copy ? split_move_op(s, copy, s->cut.pieces[piece].side, err) : err_set(err, to->err.code, "%s", to->err.msg);
}

/* The piece's list: inputs, then its ops. */
static int describe(struct split *s, int32_t piece, struct oplist *to, struct err *err) {
    const struct cut *c = &s->cut;
    const struct cut_piece *p = &c->pieces[piece];
    const struct oplist *l = &s->base.list;
    for (int32_t k = 0; k < p->n_inputs; k++) op_input(to, c->values[c->inputs[p->inputs + k]].t, k);
    for (int32_t i = p->first; i < p->last; i++) TRY(copy_op(s, piece, &l->ops[i], to, err));
    for (int32_t i = p->first; i < p->last; i++)
        for (int32_t k = 0; k < l->ops[i].n_out; k++) {
            int32_t value = l->ops[i].out[k].id - 1;
            if (l->values[value].is_output || c->values[value].slot >= 0) to->values[c->values[value].id - 1].is_output = true;
        }
    return ERR_OK;
}

/* Cards that pass values among themselves without the host: what reads them follows what makes them. */
static bool follows(const struct backend *card) {
    return card->type->follow && card->type->send_many;
}

/* Cards may still read slots that a piece of this one is about to overwrite. */
static int follow_readers(struct split *s, int32_t side, struct err *err) {
    struct backend *be = s->sides[side];
    for (int32_t i = SIDE_CARD; i < s->n_sides; i++)
        if (i != side && s->runs[i]) TRY(be->type->follow(be, s->sides[i], err));
    return ERR_OK;
}

/* The inputs of a piece have been made, or will have been when it reads them. */
static int follow_makers(struct split *s, const struct cut_piece *p, struct err *err) {
    bool is_done[SIDES_MAX] = {false};
    struct backend *be = s->sides[p->side];
    for (int32_t k = 0; k < p->n_inputs; k++) {
        int32_t from = s->cut.pieces[s->cut.values[s->cut.inputs[p->inputs + k]].piece].side;
        if (from == SIDE_HOST || from == p->side || is_done[from] || !s->runs[from]) continue;
        is_done[from] = true;
        if (p->side != SIDE_HOST) TRY(be->type->follow(be, s->sides[from], err));
        else TRY(wait_for_card(s, from, err));
    }
    return ERR_OK;
}

/* What other pieces read goes into its slots. */
static int keep_outputs(struct split *s, const struct cut_piece *p, struct err *err) {
    struct backend *be = s->sides[p->side];
    struct tensor t[PIECE_VALUES];
    void *to[PIECE_VALUES];
    for (int32_t k = 0; k < p->n_outputs; k++) {
        const struct cut_value *v = &s->cut.values[s->cut.outputs[p->outputs + k]];
        t[k] = v->t;
        t[k].id = v->id;
        to[k] = s->slots[v->slot];
    }
    if (p->side == SIDE_HOST) TRY(wait_for_cards(s, err));
    if (p->n_outputs == 0) return ERR_OK;
    if (p->side != SIDE_HOST && follows(be)) {
        TRY(follow_readers(s, p->side, err));
        return be->type->send_many(be, t, to, p->n_outputs, err);
    }
    s->runs[p->side] = false; /* it is waited for below */
    TRY(wait_for_cards(s, err));
    if (be->type->read_many) return be->type->read_many(be, t, to, p->n_outputs, err);
    for (int32_t k = 0; k < p->n_outputs; k++) TRY(be->type->read(be, t[k], to[k], err));
    return ERR_OK;
}

static int begin_piece(struct split *s, int32_t i, struct err *err) {
    struct backend *be = s->sides[s->cut.pieces[i].side];
    struct step_key key = key_of(s, i);
    return be->type->begin(be, &key) ? describe(s, i, &be->list, err) : ERR_OK;
}

static bool uses_cache(const struct split *s, const struct cut_piece *p) {
    for (int32_t i = p->first; i < p->last; i++)
        for (int32_t k = 0; k < op_kv_places(); k++)
            if (op_kv_at(&s->base.list.ops[i], k)) return true;
    return false;
}

/* Slots are memory of the first card, which forgets what it knows of them when they are freed. */
static bool may_send_itself(const struct split *s, const struct cut_piece *p) {
    return p->side == SIDE_CARD && s->n_sides == SIDE_CARD + 1 && s->key.decode_only;
}

static int run_piece(struct split *s, int32_t i, const struct step *step, struct err *err) {
    const struct cut *c = &s->cut;
    const struct cut_piece *p = &c->pieces[i];
    struct backend *be = s->sides[p->side];
    const void *inputs[PIECE_VALUES];
    struct step_output outputs[PIECE_VALUES];
    struct step part = *step;
    for (int32_t k = 0; k < p->n_inputs; k++) inputs[k] = s->slots[c->values[c->inputs[p->inputs + k]].slot];
    for (int32_t k = 0; k < p->n_outputs; k++) {
        const struct cut_value *v = &c->values[c->outputs[p->outputs + k]];
        outputs[k] = (struct step_output){v->id, s->slots[v->slot]};
    }
    part.inputs = inputs;
    if (may_send_itself(s, p)) part.outputs = outputs, part.n_outputs = p->n_outputs;
    if (p->side != split_last_side(s)) part.n_masks = 0; /* tokens are chosen on the last side */
    TRY(begin_piece(s, i, err));
    TRY(follow_makers(s, p, err));
    if (p->side == SIDE_HOST && uses_cache(s, p)) TRY(split_end_visit(s, err));
    TRY(be->type->end(be, &part, err));
    s->runs[p->side] = p->side != SIDE_HOST;
    s->may_visit = s->may_visit || (s->visits && p->side == SIDE_CARD);
    return keep_outputs(s, p, err);
}

/* ---- steps ----------------------------------------------------------------------------------------------------------- */

static int cut_list(struct split *s, struct err *err) {
    const struct oplist *l = &s->base.list;
    if (l->err.code) return err_set(err, l->err.code, "%s", l->err.msg);
    split_find_sides(s);
    cut_make(&s->cut, l, s->op_sides);
    for (int32_t i = 0; i < s->cut.n_pieces; i++)
        if (s->cut.pieces[i].n_inputs > PIECE_VALUES || s->cut.pieces[i].n_outputs > PIECE_VALUES)
            return err_set(err, ERR_EUNSUPPORTED, "more than %d values pass between the devices at once; run this model on one of them",
                           PIECE_VALUES);
    return grow_slots(s, err);
}

/* The largest step may run in several ways: a smaller one, which does not borrow, needs the host's memory, and so does one that does not visit. */
int split_reserve(struct backend *be, struct err *err) {
    struct split *s = (struct split *)be;
    int last = !split_may_borrow(s) ? 0 : split_may_visit(s) ? 2 : 1;
    for (int way = 0; way <= last; way++) {
        s->borrows = way > 0;
        s->visits = way > 1;
        TRY(cut_list(s, err));
        for (int32_t i = 0; i < s->cut.n_pieces; i++) {
            struct backend *side = s->sides[s->cut.pieces[i].side];
            TRY(begin_piece(s, i, err));
            TRY(side->type->reserve(side, err));
        }
    }
    return ERR_OK;
}

int split_note_lost(struct split *s, int code) {
    for (int32_t i = SIDE_CARD; code && i < s->n_sides; i++)
        if (atomic_load(&s->sides[i]->device->lost)) atomic_store(&s->base.device->lost, true);
    return code;
}

/* What sequences have of a layer goes to the card: not worth it where that is much and the step's own rows are few. */
static bool is_worth_a_visit(const struct step *step) {
    enum { PAST_OF_A_ROW = 32 };
    int64_t past = 0;
    for (int32_t i = 0; i < step->n_seqs; i++) past += step->seqs[i].pos;
    return past <= (int64_t)PAST_OF_A_ROW * step->n_rows;
}

int split_end(struct backend *be, const struct step *step, struct err *err) {
    struct split *s = (struct split *)be;
    s->borrows = split_may_borrow(s);
    s->visits = s->borrows && split_may_visit(s) && is_worth_a_visit(step);
    int code = s->is_cut ? ERR_OK : cut_list(s, err);
    s->is_cut = !code;
    for (int32_t i = 0; i < s->cut.n_pieces && !code; i++) code = run_piece(s, i, step, err);
    return split_note_lost(s, code);
}

/* Out of a slot, or from the side whose last piece has made it. */
int split_read(struct backend *be, struct tensor t, void *dst, struct err *err) {
    struct split *s = (struct split *)be;
    const struct cut_value *v = &s->cut.values[t.id - 1];
    if (v->slot < 0) {
        struct backend *side = s->sides[s->cut.pieces[v->piece].side];
        t.id = v->id;
        TRY(split_note_lost(s, side->type->read(side, t, dst, err)));
        return split_note_lost(s, split_wait_for_others(s, err));
    }
    TRY(split_note_lost(s, wait_for_cards(s, err)));
    const float *from = (const float *)s->slots[v->slot] + t.offset;
    for (int64_t r = 0; r < t.rows; r++)
        for (int64_t h = 0; h < t.heads; h++)
            memcpy((float *)dst + (r * t.heads + h) * t.width, from + r * t.row_stride + h * t.head_stride,
                   (size_t)t.width * sizeof(float));
    return ERR_OK;
}
