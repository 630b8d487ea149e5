/* Lowering: an op becomes launches of kernels. No file here knows which op stands where in a step; select.c and fuse_cuda.c ask. */
#ifndef MLXCEL_BACKEND_CUDA_LOWER_LOWER_H
#define MLXCEL_BACKEND_CUDA_LOWER_LOWER_H

#include "backend/cuda/context/context.h"

/* ---- launches and their arguments (emit.c) ---- */

/* Appends a launch. */
void cuda_emit(struct cuda *c, enum kernel_id kernel, const unsigned int grid[3], unsigned int threads, unsigned int shared_bytes,
               const void *args, size_t args_bytes);
#define GRID(x, y, z) ((const unsigned int[3]){(unsigned int)(x), (unsigned int)(y), (unsigned int)(z)})
#define EMIT(c, kernel, grid, threads, shared_bytes, args) cuda_emit(c, kernel, grid, threads, shared_bytes, &(args), sizeof(args))

/* Op scratch memory that the op being lowered uses: `bytes` from the start of the region, beyond what it asked for before. */
CUdeviceptr cuda_op_scratch(struct cuda *c, size_t *used, size_t bytes);
/* The input as bf16 with rows at multiples of 16 bytes: itself, or a copy in op scratch memory. */
struct k_view cuda_bf16_input(struct cuda *c, struct k_view x, int64_t width, size_t *used);

/* A bf16 matrix in boxes of 64 columns and `box_rows` rows, their pieces exchanged as the tensor cores of sm_90 read them; p = 0, in a
 * program that is lowered for its sizes alone, makes no map. */
void cuda_encode_map(struct cuda *c, struct k_tensor_map *out, CUdeviceptr p, int64_t rows, int64_t stride, unsigned int box_rows,
                     int64_t columns);

struct k_view cuda_view(const struct cuda *c, struct tensor t);
struct k_weight cuda_weight_args(const struct weight *w);
CUdeviceptr cuda_vec(const struct weight *w); /* 0 for none */
struct k_act cuda_act(const struct act_args *a);
struct k_route_rule cuda_route_rule(const struct route_args *r);
struct k_cache cuda_cache(const struct cuda *c, struct kv_ref kv);
CUdeviceptr cuda_step_array(const struct cuda *c, size_t offset);

/* ---- what ops have to do with each other (pattern.c) ---- */

/* Whether op j is the only reader of t; whether two handles are the same elements. */
bool cuda_read_only_by(const struct cuda *c, struct tensor t, int32_t j);
bool cuda_same_view(struct tensor a, struct tensor b);
/* Whether an op is the GLU of a product's two halves. */
bool cuda_is_halves(const struct op *linear, const struct op *glu);
/* A norm and a rope of one value from op j on, each where it is there. Returns the op behind them; t: what they make of it. */
int32_t cuda_take_place(const struct cuda *c, int32_t j, int32_t *norm, int32_t *rope, struct tensor *t);

/* ---- ops (lower_*.c, widen.c) ---- */

/* Rewrites products that must keep more of their input than bf16 does (widen.c); whether most of them do. */
bool cuda_widen(struct cuda *c);
bool cuda_may_round(const struct cuda *c, const struct op *op);
bool experts_fit(const struct cuda *c, const struct op *op);
bool qmv_fits(const struct cuda *c, const struct op *op);
bool qmm_fits(const struct cuda *c, const struct op *op);
bool cuda_wqmm_fits(const struct cuda *c, const struct op *op);
/* Products that keep two bf16 terms of x (linear_args.wide), which this kernel makes by itself. */
bool cuda_wqmm_takes_terms(const struct cuda *c, const struct op *op);
struct k_linear cuda_linear_args(const struct cuda *c, const struct op *op);
/* A product in parts along k (a->partial, a->k_splits), and the launch that adds them up, with bias and gate. */
void cuda_emit_wqmm(struct cuda *c, const struct op *op, struct k_linear *a);
void cuda_emit_reduce(struct cuda *c, const struct k_linear *a);
/* A norm that adds up the parts of the product before it, which is one of its two summands: whether it can, and it does. */
bool cuda_norm_takes_parts(const struct cuda *c, const struct op *add_norm);
void cuda_lower_parts_norm(struct cuda *c, const struct op *linear, const struct op *add_norm);
bool cuda_linear_few_fits(const struct cuda *c, const struct op *op);
bool gemm_fits(const struct cuda *c, const struct op *op);
bool gemm_glu_fits(const struct cuda *c, const struct op *linear, const struct op *glu);
bool attn_fast_fits(const struct cuda *c, const struct op *op);
bool attn_pick_fits(const struct cuda *c, const struct op *op);
/* A product with the GLU op of its two halves. qmv_fits, cuda_wqmm_fits, qmm_fits or gemm_glu_fits holds. */
void lower_gemm_glu(struct cuda *c, const struct op *linear, const struct op *glu);
void lower_linear_glu(struct cuda *c, const struct op *linear, const struct op *glu);

typedef void cuda_lower_fn(struct cuda *c, const struct op *op);
cuda_lower_fn lower_embed, lower_input, lower_linear_ref, lower_linear_few, lower_qmv, lower_wqmm, lower_qmm, lower_gemm;
cuda_lower_fn lower_norm, lower_add_norm, lower_add, lower_act, lower_glu, lower_mulvec, lower_rope, lower_concat, lower_rows, lower_argmax,
    lower_terms, lower_terms_sum;
cuda_lower_fn lower_choose;
bool choose_fits(const struct cuda *c, const struct op *op);
cuda_lower_fn lower_kv_write, lower_attn_ref, lower_pick, lower_attn_fast, lower_route, lower_experts, lower_experts_ref;
cuda_lower_fn lower_conv, lower_delta, lower_ssd, lower_scan, lower_lightning, lower_lru;

#endif
