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
    bool is_slow; /* a reference row: right, and slow */
};
/* The rows, best first within a kind, reference last; ends with one without a name. */
extern const struct select_row cuda_select_rows[];
/* The row for an op: the first that fits; NULL when none does. */
const struct select_row *cuda_select(const struct cuda *c, const struct op *op);
/* Chooses the element type of every value: bf16 where only matrix products read it. */
void cuda_choose_dtypes(struct cuda *c);
int cuda_lower(struct cuda *c, struct err *err);

/* ---- several ops as one launch (fuse_cuda.c) ---- */

/* n ops of the list, one behind the other, that are lowered together. */
struct cuda_group {
    const struct group_kind *kind; /* a row of fuse_cuda.c */
    int32_t first, n;
    union {
        struct step_experts experts;
        struct step_product product;
        struct step_attention attention;
        struct step_latent latent;
        struct cuda_qkv qkv;
    } of;
};
/* Finds all groups of the list (c->groups), and makes the values that a group reads live to its end. Before planning. */
void cuda_find_groups(struct cuda *c);
void cuda_lower_group(struct cuda *c, const struct cuda_group *g);
/* Whether an op has no rows to compute, such as the logits of a prompt's chunk where nobody wants any. */
static inline bool cuda_op_is_empty(const struct op *op) {
    return op->n_out > 0 && op->out[0].rows == 0;
}

/* ---- steps (run.c) ---- */

bool cuda_begin(struct backend *be, const struct step_key *key);
int cuda_end(struct backend *be, const struct step *step, struct err *err);
int cuda_reserve(struct backend *be, struct err *err);
/* Lowers the list for a step of rows that come one from each sequence, or of one sequence's prompt. */
int cuda_prepare_plan(struct cuda *c, struct err *err);
int cuda_read(struct backend *be, struct tensor t, void *dst, struct err *err);

/* ---- which kernels a step takes (paths.c) ---- */

struct device *cuda_plan_device(struct device *gpu);
int cuda_plan_step(struct backend *be, struct step_paths *out, struct err *err);
void cuda_watch_times(struct backend *be, struct step_times *to);

#endif
