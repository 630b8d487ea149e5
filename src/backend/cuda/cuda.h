/* Inside the CUDA backend: how an op list becomes a program, and how a program runs.
 *
 * (1) end() lowers the list to a program: launches in order on one stream, each with its arguments by value. A program of a pure decode
 *     step is kept as a graph and replayed by its key. (2) No floating-point atomics anywhere: the same batch twice gives the same bits.
 *     (3) Precision exact and f32: reference rows only, and a row's bits do not depend on its batch. */
#ifndef MLXCEL_BACKEND_CUDA_CUDA_H
#define MLXCEL_BACKEND_CUDA_CUDA_H

#include "backend/cuda/decode/decode.h"

/* ---- which kernel runs an op (select.c) ---- */

struct select_row {
    enum op_kind kind;
    const char *name; /* of the row, for checkkern --cuda --sweep */
    bool (*fits)(const struct cuda *c, const struct op *op);
    void (*lower)(struct cuda *c, const struct op *op);
};
/* The rows, best first within a kind, reference last; ends with one without a name. */
extern const struct select_row cuda_select_rows[];
/* The row for an op: the first that fits; NULL when none does. */
const struct select_row *cuda_select(const struct cuda *c, const struct op *op);
/* Chooses the element type of every value: bf16 where only matrix products read it. */
void cuda_choose_dtypes(struct cuda *c);
int cuda_lower(struct cuda *c, struct err *err);

/* ---- several ops as one launch (fuse_cuda.c) ---- */

/* The number of ops from the i-th on that were lowered, 0 for none. */
int32_t cuda_lower_fused(struct cuda *c, int32_t i);
/* Before planning: what a group of ops reads lives to the end of the group. */
void cuda_fuse_lives(struct cuda *c);

/* ---- steps (run.c) ---- */

bool cuda_begin(struct backend *be, const struct step_key *key);
int cuda_end(struct backend *be, const struct step *step, struct err *err);
int cuda_reserve(struct backend *be, struct err *err);
int cuda_read(struct backend *be, struct tensor t, void *dst, struct err *err);

#endif
