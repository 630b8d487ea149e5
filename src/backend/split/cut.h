/* An op list in pieces, each for one device.
 *
 * (1) Pieces are runs of ops of one side, in the order of the list.
 * (2) A value that another piece reads, or that the host reads and a later piece of its side would overwrite, gets a slot: memory of the host,
 *     from the end of the piece that makes it to the last one that reads it. Slots are used again.
 * (3) Which slot a value gets depends on the ops alone, not on their sizes: a larger step needs larger slots, not others.
 * (4) In its piece a value has the number that the piece's own list gives it: those of the inputs first, then the results in order.
 */
#ifndef MLXCEL_BACKEND_SPLIT_CUT_H
#define MLXCEL_BACKEND_SPLIT_CUT_H

#include "backend/split/split.h"

struct cut_value {
    struct tensor t; /* the whole value, in the list that is cut */
    int32_t piece, id;
    int32_t slot;      /* -1: none */
    int32_t last_read; /* piece; that behind the last one where the host reads it */
    int32_t seen_by;   /* the last piece that has it as an input */
};

struct cut_piece {
    int32_t side;
    int32_t first, last;                          /* ops [first, last) */
    int32_t inputs, n_inputs, outputs, n_outputs; /* in cut.inputs and cut.outputs: values with slots */
    bool is_first, chooses;                       /* of its side; tokens are chosen here */
};

struct cut_slot {
    size_t bytes;
    int32_t until; /* the last piece that reads what is in it */
};

struct cut {
    struct cut_value *values;
    struct cut_piece *pieces;
    struct cut_slot *slots;
    int32_t *inputs, *outputs; /* indices of values */
    int32_t n_pieces, n_slots, n_inputs, n_outputs;
    int32_t values_capacity, pieces_capacity, slots_capacity, inputs_capacity, outputs_capacity;
};

/* sides: of every op. */
void cut_make(struct cut *c, const struct oplist *l, const int32_t *sides);
void cut_free(struct cut *c);
/* Bytes of a value in a slot. */
size_t cut_value_bytes(const struct cut_value *v);

#endif
