/* What the files that make instructions of decode steps share. */
#ifndef MLXCEL_BACKEND_CUDA_FUSE_STEP_H
#define MLXCEL_BACKEND_CUDA_FUSE_STEP_H

#include "backend/cuda/cuda.h"

/* A norm of whole rows without anything around it. */
bool step_is_row_norm(const struct op *op);
/* Rows that begin at multiples of 16 bytes. */
bool step_is_even(struct tensor t);
/* The summand beside y: 0 or 1, -1 where the op is no such sum. */
int step_other_summand(struct tensor y, const struct op *add);
/* How many ops read a value; -1: somebody after the step does. */
int32_t step_count_reads(const struct cuda *c, struct tensor t);
/* The norm of op `norm` before the product, and the sum of op `add` behind it, whose other summand is `other`. */
void step_put_norm(struct k_step_linear *a, const struct op *norm);
void step_put_residual(const struct cuda *c, struct k_step_linear *a, const struct op *add, int other);
/* A product's tiles, shared by all blocks. */
void step_share_tiles(const struct cuda *c, struct k_step_linear *a, int64_t n_tiles);
void step_emit(struct cuda *c, const struct k_instr *in, unsigned int blocks, size_t shared_bytes);

/* Experts (fuse_experts.c): ops of the three instructions that begin at op i, 0 for none; and their instructions. */
int32_t step_experts_size(const struct cuda *c, int32_t i);
void step_experts_lower(struct cuda *c, int32_t i);

#endif
