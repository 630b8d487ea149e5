/* Decode steps: few rows, each of a sequence of its own. Groups of ops become instructions, which one kernel runs one behind the other.
 *
 * An instruction is a product with what stands around it (product.c), attention with what stands before it (attention.c), or one of the three
 * that make a row's experts (experts.c). A list is the instructions of a step of one row that one launch runs (links.c). A graph is the whole
 * step, kept by the driver and started with one call (graph.c). */
#ifndef MLXCEL_BACKEND_CUDA_DECODE_DECODE_H
#define MLXCEL_BACKEND_CUDA_DECODE_DECODE_H

#include "backend/cuda/lower/lower.h"

enum { STEP_ROWS = 8, STEP_THREADS = 512 }; /* rows that an instruction takes at most; threads of its blocks */

/* ---- ops as instructions (decode.c) ---- */

/* The ops of the instruction that begins at op i, 0 for none; and its launch. */
int32_t cuda_step_size(const struct cuda *c, int32_t i);
void cuda_step_lower(struct cuda *c, int32_t i);

/* ---- what instructions share (instr.c) ---- */

/* Whether steps of this shape have instructions. */
bool cuda_step_small(const struct cuda *c);
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

/* ---- products (product.c) ---- */

/* Indices of the ops of a product's instruction; -1: not there. */
struct step_product {
    int32_t rows, norm, linear, glu, add, size;
};
bool step_product_find(const struct cuda *c, int32_t i, struct step_product *out);
void step_product_lower(struct cuda *c, const struct step_product *p);
/* A product alone. */
bool step_linear_fits(const struct cuda *c, const struct op *op);
cuda_lower_fn lower_step_linear;

/* ---- attention (attention.c) ---- */

/* Indices of the ops, those of queries before those of keys; -1: not there. */
struct step_attention {
    int32_t norms[2], ropes[2], write, attn, size;
};
bool step_attention_find(const struct cuda *c, int32_t i, struct step_attention *out);
void step_attention_lower(struct cuda *c, const struct step_attention *g);

/* ---- experts (experts.c) ---- */

/* Ops of the three instructions that begin at op i, 0 for none; and their instructions. */
int32_t step_experts_size(const struct cuda *c, int32_t i);
void step_experts_lower(struct cuda *c, int32_t i);

/* ---- lists of instructions of one row (links.c) ---- */

/* The launch of kernels/one.cu that runs them, and how many places a warp's ring of weights has; false: none does. */
bool cuda_list_fits(const struct cuda *c, const struct k_instr *in, int32_t n, struct launch *out, int32_t *out_depth);
/* Finds who reads what of whom, and says how much memory the links take; then gives them their places. */
size_t cuda_links_find(struct k_instr *in, int32_t n);
void cuda_links_place(struct k_instr *in, int32_t n, CUdeviceptr links, size_t bytes);

/* ---- graphs (graph.c) ---- */

struct cuda_graph *cuda_graph_find(struct cuda *c, const struct step_key *key);
/* Whether this key came before and is worth a graph now. */
bool cuda_graph_wanted(struct cuda *c, const struct step_key *key);
/* Whether a step that was lowered as one list (one_list) is one that kernels/one.cu runs, with all links that experts need. */
bool cuda_one_list_holds(const struct cuda *c);
/* Whether the program has lists that other kernels run than its single launches: such steps are graphs from the first on, since the same step
 * twice gives the same bits. */
bool cuda_graph_at_once(const struct cuda *c);
int cuda_graph_build(struct cuda *c, struct cuda_graph **out, struct err *err);

#endif
