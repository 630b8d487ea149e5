/* Lowering: an op becomes launches of kernels. For each way to run an op there is a function that says whether it fits, and one that emits the
 * launches; the tables of select.c and fuse_cuda.c choose among them. */
#ifndef MLXCEL_BACKEND_CUDA_LOWER_LOWER_H
#define MLXCEL_BACKEND_CUDA_LOWER_LOWER_H

#include "backend/cuda/context/context.h"

/* ---- launches and their arguments (emit.c) ---- */

/* Room for so many launches. */
void cuda_program_reserve(struct program *p, int32_t n_launches);
/* Appends a launch. */
void cuda_emit(struct cuda *c, enum kernel_id kernel, const unsigned int grid[3], unsigned int threads, unsigned int shared_bytes,
               const void *args, size_t args_bytes);
#define GRID(x, y, z) ((const unsigned int[3]){(unsigned int)(x), (unsigned int)(y), (unsigned int)(z)})
#define EMIT(c, kernel, grid, threads, shared_bytes, args) cuda_emit(c, kernel, grid, threads, shared_bytes, &(args), sizeof(args))

/* A piece of op scratch memory. *used: bytes that this op has taken so far, 0 at its beginning. */
CUdeviceptr cuda_op_scratch(struct cuda *c, size_t *used, size_t bytes);
/* The input as bf16 with rows at multiples of 16 bytes: itself, or a copy in op scratch memory, filled up with zeros to a multiple of 8 elements. */
struct k_view cuda_bf16_input(struct cuda *c, struct k_view x, int64_t width, size_t *used);
/* A copy of all heads of the input as bf16, one behind the other. */
struct k_view cuda_bf16_heads(struct cuda *c, struct k_view x, size_t *used);

/* A tensor map: the copy engine fetches boxes of 64 columns and `box_rows` rows of a bf16 matrix, and swizzles them as the tensor cores of sm_90
 * read them. p is 0 while a program is lowered for its sizes alone; then no map is made. */
void cuda_encode_map(struct cuda *c, struct k_tensor_map *out, CUdeviceptr p, int64_t rows, int64_t stride, unsigned int box_rows,
                     int64_t columns);

struct k_view cuda_view(const struct cuda *c, struct tensor t);
struct k_weight cuda_weight_args(const struct weight *w);
CUdeviceptr cuda_vec(const struct weight *w); /* 0 for none */
struct k_act cuda_act(const struct act_args *a);
struct k_route_rule cuda_route_rule(const struct route_args *r);
struct k_cache cuda_cache(const struct cuda *c, struct kv_ref kv);
/* Whether pairs of this rope turn by places along axes in this step: in a decode step rows are text, whose places are the same along all. */
bool cuda_turns_by_axes(const struct cuda *c, const struct rope_args *r);
/* What stands for a row's position in a rope that does not. */
CUdeviceptr cuda_rope_pos(const struct cuda *c, const struct rope_args *r);
CUdeviceptr cuda_step_array(const struct cuda *c, size_t offset);

/* ---- what ops have to do with each other (pattern.c) ---- */

/* Whether op j is the only reader of t; whether two handles mean the same elements. */
bool cuda_read_only_by(const struct cuda *c, struct tensor t, int32_t j);
bool cuda_same_view(struct tensor a, struct tensor b);
/* Whether glu takes its gate and its up from the two halves of the product's result. */
bool cuda_is_halves(const struct op *linear, const struct op *glu);
/* The ops between a layer's product and its attention: [NORM] ROPE of the queries, [NORM] ROPE of the keys, KV_WRITE. */
struct cuda_qkv {
    int32_t norms[2], ropes[2], write; /* ops, those of queries before those of keys; norms -1: none */
    struct tensor from[3];             /* queries, keys and values as the product made them */
    struct tensor q;                   /* the queries as attention reads them */
};
/* The number of ops of the group that begins at op i; 0: none does. */
int32_t cuda_find_qkv(const struct cuda *c, int32_t i, struct cuda_qkv *out);

/* ---- weights of the host (lower_borrow.c) ---- */

enum { BORROW_WEIGHTS = 8 }; /* that a group of ops borrows at most */
/* Launches that bring those of these weights that are borrowed, until cuda_borrow_done says that the launches which use them have been emitted. */
void cuda_borrow_weights(struct cuda *c, const struct weight *const *weights, int32_t n);
/* The same of all weights of ops [first, first + n), but for experts: they bring theirs half by half. */
void cuda_borrow(struct cuda *c, int32_t first, int32_t n);
void cuda_borrow_done(struct cuda *c);
/* Before and behind ops [first, first + n): a layer of the host's cache comes here before they use it, and what they write goes back. */
void cuda_fetch_cache(struct cuda *c, int32_t first, int32_t n);
void cuda_return_cache(struct cuda *c, int32_t first, int32_t n);

/* ---- parts of steps (lower_part.c) ---- */

/* Whether kernels pass inputs and outputs of the part that is being run: few bytes, always of the same memory. */
bool cuda_part_passes(const struct cuda *c);
/* In front of all launches, and behind them; nothing where others pass them. */
void cuda_pass_inputs(struct cuda *c);
void cuda_pass_outputs(struct cuda *c);

/* ---- ops (lower_*.c, split_wide.c) ---- */

/* Rewrites products that must keep more of their input than bf16 does (split_wide.c); whether most of them do. */
bool cuda_split_wide(struct cuda *c);
bool cuda_may_round(const struct cuda *c, const struct op *op);
bool experts_fit(const struct cuda *c, const struct op *op);
bool qmv_fits(const struct cuda *c, const struct op *op);
bool qmm_fits(const struct cuda *c, const struct op *op);
bool cuda_wqmm_fits(const struct cuda *c, const struct op *op);
/* Whether the kernel runs this wide product (linear_args.wide) and splits x into two bf16 terms by itself. */
bool cuda_wqmm_takes_terms(const struct cuda *c, const struct op *op);
struct k_linear cuda_linear_args(const struct cuda *c, const struct op *op);
/* A product whose sums over k are left in a->k_splits parts (a->partial); and the launch that adds the parts, with bias and gate. */
void cuda_emit_wqmm(struct cuda *c, const struct op *op, struct k_linear *a, size_t *used);
void cuda_emit_reduce(struct cuda *c, const struct k_linear *a);
/* ADD_NORM of a product: whether the norm's kernel can add the product's parts itself, and the launches that do so. */
bool cuda_norm_takes_parts(const struct cuda *c, const struct op *add_norm);
void cuda_lower_parts_norm(struct cuda *c, const struct op *linear, const struct op *add_norm);
bool cuda_linear_few_fits(const struct cuda *c, const struct op *op);
bool gemm_fits(const struct cuda *c, const struct op *op);
bool gemm_bytes_fit(const struct cuda *c, const struct op *op);
/* Whether the kernels for bytes run this wide product as it is. */
bool cuda_bytes_takes_wide(const struct cuda *c, const struct op *op);
/* Rows of this weight are multiples of 8 elements, or bf16 that zeros fill up to that (context/weight.c). */
bool cuda_rows_are_even(const struct weight *w);
bool gemm_glu_fits(const struct cuda *c, const struct op *linear, const struct op *glu);
bool gemm_bytes_glu_fits(const struct cuda *c, const struct op *linear, const struct op *glu);
bool qmv_heads_fit(const struct cuda *c, const struct op *op);
bool gemm_heads_fit(const struct cuda *c, const struct op *op);
bool attn_fast_fits(const struct cuda *c, const struct op *op);
bool attn_latent_fits(const struct cuda *c, const struct op *op);
bool attn_pick_fits(const struct cuda *c, const struct op *op);
/* Whether attention can make its queries and the new keys and values of the projection itself; and the launch that does. used: as of cuda_op_scratch. */
bool cuda_attn_takes_parts(const struct cuda *c, const struct op *attn);
void cuda_lower_parts_attn(struct cuda *c, const struct op *attn, const struct k_qkv *heads, size_t *used);
/* A product with the GLU op of its two halves. qmv_fits, cuda_wqmm_fits, qmm_fits, gemm_bytes_glu_fits or gemm_glu_fits holds. */
void lower_gemm_bytes_glu(struct cuda *c, const struct op *linear, const struct op *glu);
void lower_gemm_glu(struct cuda *c, const struct op *linear, const struct op *glu);
void lower_linear_glu(struct cuda *c, const struct op *linear, const struct op *glu);

typedef void cuda_lower_fn(struct cuda *c, const struct op *op);
cuda_lower_fn lower_embed, lower_input, lower_linear_ref, lower_linear_few, lower_qmv, lower_wqmm, lower_qmm, lower_gemm_bytes, lower_gemm;
cuda_lower_fn lower_norm, lower_add_norm, lower_add, lower_act, lower_glu, lower_mulvec, lower_rope, lower_concat, lower_rows, lower_argmax,
    lower_terms, lower_terms_sum;
cuda_lower_fn lower_choose;
bool choose_fits(const struct cuda *c, const struct op *op);
cuda_lower_fn lower_kv_write, lower_attn_ref, lower_attn_relative, lower_pick, lower_attn_fast, lower_attn_latent, lower_head_qmv,
    lower_head_gemm, lower_route, lower_passing, lower_experts, lower_experts_ref;
cuda_lower_fn lower_sum, lower_gather;
/* Behind the last op: all ranks get the tokens that the first one chose. */
void cuda_tell_chosen(struct cuda *c);
cuda_lower_fn lower_adapt, lower_given, lower_pool_rows, lower_attn_rows, lower_attn_rows_flash;
bool attn_rows_flash_fits(const struct cuda *c, const struct op *op);
cuda_lower_fn lower_conv, lower_delta, lower_ssd, lower_scan, lower_lightning, lower_lru, lower_wkv, lower_exchange, lower_mlstm,
    lower_compress, lower_blend, lower_attn_more;

/* ---- fields that several kernels' arguments have in common ---- */

/* Of a rope: where its angles come from, and which elements turn. */
#define ROPE_FIELDS(c, r)                                                                                                                \
    .inv_freq = cuda_vec((r)->inv_freq), .step_rope = cuda_step_array(c, (c)->at.rope), .kind = (int32_t)(r)->kind, .first = (r)->first, \
    .n_rotated = (r)->n_rotated, .table = (r)->table, .n_rope_tables = (c)->n_rope_tables, .rope_width = (c)->rope_width,                \
    .magnitude = (r)->magnitude

/* Of attention: how scores are made, and what a row sees. */
#define ATTN_FIELDS(t)                                                                                                               \
    .scale = (t)->scale, .softcap = (t)->softcap, .pos_scale_beta = (t)->pos_scale_beta, .window = (t)->window, .chunk = (t)->chunk, \
    .pos_scale_len = (t)->pos_scale_len, .pos_scale_first = (t)->pos_scale_first

#endif
