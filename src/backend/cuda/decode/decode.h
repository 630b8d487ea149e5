/* Decode steps: few rows, each of a sequence of its own or several of one (drafts). Groups of ops become instructions, which one kernel runs one behind the other.
 *
 * An instruction is a product with what stands around it (product.c), attention with what stands before it (attention.c), or one of the three
 * that make a row's experts (experts.c) or its latent attention (latent.c). A list is the instructions of a step of up to LIST_ROWS rows that one launch runs (links.c). A graph is the whole
 * step, kept by the driver and started with one call (graph.c). */
#ifndef MLXCEL_BACKEND_CUDA_DECODE_DECODE_H
#define MLXCEL_BACKEND_CUDA_DECODE_DECODE_H

#include "backend/cuda/lower/lower.h"
#include "backend/cuda/shared/list_groups.h"

/* ---- what instructions share (instr.c) ---- */

/* Whether steps of this shape have instructions. */
bool cuda_step_small(const struct cuda *c);
/* A norm of whole rows without anything around it. */
bool step_is_row_norm(const struct op *op);
/* Rows that begin at multiples of 16 bytes. */
bool step_is_even(struct tensor t);
/* The index, 0 or 1, of the summand that is not y; -1: the op is no sum of y and a row of the same width. */
int step_other_summand(struct tensor y, const struct op *add);
/* How often ops of the list read a value; -1: it is an output, which is read after the step. */
int32_t step_count_reads(const struct cuda *c, struct tensor t);
/* Adds the norm in front of a product to its instruction; adds the sum behind it, whose summand `other` is the residual. */
void step_put_norm(struct k_step_linear *a, const struct op *norm);
void step_put_residual(const struct cuda *c, struct k_step_linear *a, const struct op *add, int other);
/* Divides a product's tiles among all blocks. */
void step_share_tiles(const struct cuda *c, struct k_step_linear *a, int64_t n_tiles);
/* Whether a launch of this kernel is an instruction. */
bool step_is_instr(enum kernel_id kernel);
/* Emits the launch of one instruction. A graph joins launches that follow each other (graph.c). values: what the instruction reads and makes. */
void step_emit(struct cuda *c, const struct k_instr *in, const struct step_values *values, unsigned int blocks, size_t shared_bytes);

/* ---- products (product.c) ---- */

/* Indices of the ops of a product's instruction; -1: not there. post, sum: a norm of what the product before it made, and the sum that adds it to the residual, which is x. is_next: the norm
 * belongs to the product before it, too. */
struct step_product {
    int32_t post, sum, rows, norm, linear, glu, add;
    bool is_next;
};
/* Whether op i is a norm that op i + 1 adds to a residual. */
bool step_is_post_norm(const struct cuda *c, int32_t i);
/* The number of ops of the instruction that begins at op i; 0: none does. */
int32_t step_product_find(const struct cuda *c, int32_t i, struct step_product *out);
void step_product_lower(struct cuda *c, const struct step_product *p);
/* A product alone. */
bool step_linear_fits(const struct cuda *c, const struct op *op);
cuda_lower_fn lower_step_linear;

/* ---- attention (attention.c) ---- */

struct step_attention {
    struct cuda_qkv qkv;
    int32_t attn; /* op */
};
/* The number of ops of the instruction that begins at op i; 0: none does. */
int32_t step_attention_find(const struct cuda *c, int32_t i, struct step_attention *out);
void step_attention_lower(struct cuda *c, const struct step_attention *g);

/* ---- experts (experts.c) ---- */

/* Indices of the ops, one behind the other. */
struct step_experts {
    int32_t norm, router, route, experts, shared, add; /* shared: its product, gate and product, then the sum; -1: none */
};
/* The number of ops of the three instructions that begin at op i; 0: none do. */
int32_t step_experts_find(const struct cuda *c, int32_t i, struct step_experts *out);
void step_experts_lower(struct cuda *c, const struct step_experts *g);

/* ---- latent attention (latent.c) ---- */

/* Indices of the ops, one behind the other: of the new position, of the queries, then attention and the product behind it. */
struct step_latent {
    int32_t norm, rope, concat, write, into, q_rope, q_concat, attn, out_of;
};
/* The number of ops of the three instructions that begin at op i; 0: none do. */
int32_t step_latent_find(const struct cuda *c, int32_t i, struct step_latent *out);
void step_latent_lower(struct cuda *c, const struct step_latent *g);
/* Of a list: whether an instruction is one of those three; its shared memory; bytes of the parts that attention leaves for who joins them, and where they lie. */
bool cuda_is_latent(const struct k_instr *in);
size_t cuda_latent_room(const struct k_instr *in, bool is_small);
size_t cuda_latent_parts(const struct k_instr *in, int32_t n);
void cuda_latent_place(struct k_instr *in, int32_t n, CUdeviceptr parts);

/* ---- lists of instructions (links.c) ---- */

/* The launch of kernels/one.cu, few.cu or several.cu that runs them, and how many places a warp's ring of weights has; false: none does. */
bool cuda_list_fits(const struct cuda *c, const struct k_instr *in, int32_t n, struct launch *out, int32_t *out_depth);
/* Finds which instruction reads the result of which, and returns the bytes that the links need; then gives each link its memory. */
size_t cuda_links_find(struct k_instr *in, const struct step_values *values, int32_t n);
/* Whether everybody who reads a sum that some x is (k_step_linear.has_sum) finds it through a link, and its maker all that it reads. */
bool cuda_sums_hold(const struct k_instr *in, const struct step_values *values, int32_t n);
void cuda_links_place(struct k_instr *in, const struct step_values *values, int32_t n, CUdeviceptr links, size_t bytes);

/* ---- x of several rows (rows.c) ---- */

/* Puts the instructions that make x between those of a list; there is room for twice as many. Returns how many there are then. */
int32_t cuda_rows_expand(struct k_instr *in, struct step_values *values, int32_t n);

/* The memory of x: n are made, each of at most so many bytes; those of the last two begin at `rest`. */
struct rows_memory {
    size_t each, rest, bytes;
    int32_t n;
};
struct rows_memory cuda_rows_memory(const struct k_instr *in, int32_t n);
void cuda_rows_place(struct k_instr *in, int32_t n, const struct rows_memory *m, CUdeviceptr memory);

/* ---- graphs (graph.c) ---- */

/* Whether a step checks drafts: few rows, several of one sequence, all with logits. */
bool cuda_key_checks(const struct step_key *key);
struct cuda_graph *cuda_graph_find(struct cuda *c, const struct step_key *key);
/* Whether this key came before, so that a graph is worth building; notes the key. */
bool cuda_graph_wanted(struct cuda *c, const struct step_key *key);
/* Whether the program that was lowered with one_list is a single list that kernels/one.cu can run, with all links that its experts and sums need. */
bool cuda_one_list_holds(const struct cuda *c);
/* Whether the step must be a graph the first time already: its lists run in another kernel than single launches do, and the same step twice must give
 * the same bits. */
bool cuda_graph_at_once(const struct cuda *c);
int cuda_graph_build(struct cuda *c, struct cuda_graph **out, struct err *err);

#endif
