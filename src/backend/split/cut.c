/* Cutting a list: pieces by side, what passes between them, and its slots. */
#include "backend/split/cut.h"

static void *grown(void *p, int32_t *capacity, int32_t need, size_t each) {
    if (need <= *capacity) return p;
    *capacity = 2 * need;
    return mem_realloc(p, (size_t)*capacity * each);
}

size_t cut_value_bytes(const struct cut_value *v) {
    return (size_t)v->t.rows * (size_t)tensor_row_size(v->t) * sizeof(float);
}

static struct cut_piece *begin_piece(struct cut *c, int32_t side, int32_t op) {
    c->pieces = grown(c->pieces, &c->pieces_capacity, c->n_pieces + 1, sizeof *c->pieces);
    struct cut_piece *p = &c->pieces[c->n_pieces++];
    *p = (struct cut_piece){.side = side, .first = op, .inputs = c->n_inputs, .is_first = true};
    for (int32_t i = 0; i < c->n_pieces - 1; i++) p->is_first &= c->pieces[i].side != side;
    return p;
}

/* An op of the last piece reads a value: one of another piece is an input of this. */
static void note_read(struct cut *c, int32_t value) {
    struct cut_value *v = &c->values[value];
    int32_t piece = c->n_pieces - 1;
    if (v->piece == piece || v->seen_by == piece) return;
    v->seen_by = v->last_read = piece;
    c->inputs = grown(c->inputs, &c->inputs_capacity, c->n_inputs + 1, sizeof *c->inputs);
    c->inputs[c->n_inputs++] = value;
    c->pieces[piece].n_inputs++;
}

static void find_pieces(struct cut *c, const struct oplist *l, const int32_t *sides) {
    c->n_pieces = c->n_inputs = 0;
    c->values = grown(c->values, &c->values_capacity, l->n_values, sizeof *c->values);
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        if (i == 0 || sides[i] != sides[i - 1]) begin_piece(c, sides[i], i);
        for (int32_t k = 0; k < op->n_in; k++) note_read(c, op->in[k].id - 1);
        for (int32_t k = 0; k < op->n_out; k++)
            c->values[op->out[k].id - 1] =
                (struct cut_value){.t = op->out[k], .piece = c->n_pieces - 1, .slot = -1, .last_read = -1, .seen_by = -1};
        struct cut_piece *p = &c->pieces[c->n_pieces - 1];
        p->chooses |= op->kind == OP_ARGMAX || op->kind == OP_CHOOSE;
        p->last = i + 1;
    }
}

static bool is_last_of_side(const struct cut *c, int32_t piece) {
    for (int32_t i = piece + 1; i < c->n_pieces; i++)
        if (c->pieces[i].side == c->pieces[piece].side) return false;
    return true;
}

static int32_t take_slot(struct cut *c, const struct cut_value *v) {
    int32_t i = 0;
    while (i < c->n_slots && c->slots[i].until >= v->piece) i++;
    if (i == c->n_slots) {
        c->slots = grown(c->slots, &c->slots_capacity, c->n_slots + 1, sizeof *c->slots);
        c->slots[c->n_slots++] = (struct cut_slot){0};
    }
    if (c->slots[i].bytes < cut_value_bytes(v)) c->slots[i].bytes = cut_value_bytes(v);
    c->slots[i].until = v->last_read;
    return i;
}

/* Numbers of the values in their pieces, and slots for those that leave them. */
static void place_values(struct cut *c, const struct oplist *l) {
    c->n_slots = c->n_outputs = 0;
    for (int32_t p = 0; p < c->n_pieces; p++) {
        struct cut_piece *piece = &c->pieces[p];
        int32_t id = piece->n_inputs;
        piece->outputs = c->n_outputs;
        for (int32_t i = piece->first; i < piece->last; i++)
            for (int32_t k = 0; k < l->ops[i].n_out; k++) {
                int32_t value = l->ops[i].out[k].id - 1;
                struct cut_value *v = &c->values[value];
                v->id = ++id;
                if (l->values[value].is_output && !is_last_of_side(c, p)) v->last_read = c->n_pieces;
                if (v->last_read < 0) continue;
                v->slot = take_slot(c, v);
                c->outputs = grown(c->outputs, &c->outputs_capacity, c->n_outputs + 1, sizeof *c->outputs);
                c->outputs[c->n_outputs++] = value;
            }
        piece->n_outputs = c->n_outputs - piece->outputs;
    }
}

void cut_make(struct cut *c, const struct oplist *l, const int32_t *sides) {
    find_pieces(c, l, sides);
    place_values(c, l);
}

void cut_free(struct cut *c) {
    mem_free(c->values);
    mem_free(c->pieces);
    mem_free(c->slots);
    mem_free(c->inputs);
    mem_free(c->outputs);
    *c = (struct cut){0};
}
