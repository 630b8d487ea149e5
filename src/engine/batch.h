/* The batch of a step: rows of several sequences, packed into the step block (struct step of backend.h).
 *
 * Rows are ordered: decode rows first, then prompt chunks. A row's key, value and result depend only on its own
 * sequence; what stands beside it in the batch must not matter.
 *
 * A row may be wanted: its logits, or its hidden state. In the step block the rows whose logits are wanted come first.
 */
#ifndef MLXCEL_ENGINE_BATCH_H
#define MLXCEL_ENGINE_BATCH_H

#include "engine/sequence.h"

struct spec;

struct batch {
    struct step step;
    const struct spec *spec;
    struct kv *kv;
    int32_t n_given;      /* of the model */
    bool is_prefix;       /* the same */
    int32_t max_len;      /* longest sequence in the batch, this step's rows included */
    int32_t *hidden_rows; /* [n_hidden] rows whose hidden states are wanted, until batch_seal puts them behind the others */
    int32_t n_hidden;
    unsigned chooses; /* bits of enum choice_work: what the device does to choose tokens */
    bool adapts;      /* some sequence has adapters */
    bool gives;       /* some rows stand for pictures */
    bool sees;        /* some rows see those behind them in their picture */
    int32_t *until;   /* [rows] becomes step.until when `sees` is true */
    bool has_places;  /* some rows have places of their own */
    int32_t *common;  /* [seqs] of sharing.c; NULL: the device reads every sequence's blocks by themselves */
};

struct batch_limits {
    int32_t rows, seqs, logits, context, adapters, given;
    bool is_prefix, reads_shared;
};

int batch_init(struct batch *b, const struct spec *spec, struct kv *kv, const struct batch_limits *limits, struct err *err);
void batch_free(struct batch *b);
void batch_clear(struct batch *b);
/* Adds the next n_rows tokens of the sequence, whose blocks are already reserved. Rows from first_wanted on are wanted. If the device has yet to choose
 * the last token, its id is negative and names the row of the step before that chooses it. */
void batch_add(struct batch *b, const struct sequence *s, int32_t n_rows, int32_t first_wanted, bool wants_hidden);
/* The batch is complete: the step block is ready to run, and this is its key. */
struct step_key batch_seal(struct batch *b);
/* Fills step.sharing of a decode step. The positions that those rows have in common; 0: no group of rows is worth it (sharing.c). */
int32_t batch_find_sharing(struct batch *b);

#endif
