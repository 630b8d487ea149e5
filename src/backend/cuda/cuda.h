/* Inside the CUDA backend: its state, and how an op list becomes launches.
 *
 * (1) end() lowers the list to a program: launches in order on one stream, each with its arguments by value. A program of a pure decode
 *     step is kept as a graph and replayed by its key. (2) Everything that changes from step to step lies in the step block, at addresses
 *     that depend on the key alone. (3) Values live in scratch memory planned by plan.h; what an op needs only while it runs lies in op
 *     scratch, shared by all ops. (4) No floating-point atomics anywhere: the same batch twice gives the same bits. (5) Precision exact
 *     and f32: every value and the cache in f32, reference rows only, and a row's bits do not depend on its batch. Otherwise values that
 *     only matrix products read, and the cache, are bf16, but for what the model asks to be wide. */
#ifndef MLXCEL_BACKEND_CUDA_CUDA_H
#define MLXCEL_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"
#include "backend/cuda/args.h"
#include "backend/cuda/probe.h"
#include "backend/plan.h"

enum kernel_id {
#define KERNEL(file, symbol) KERNEL_##symbol,
#include "backend/cuda/kernels.def"
#undef KERNEL
    N_KERNELS
};

enum { RESULTS = 4 }; /* of steps that may be on their way to the host */
enum { CUDA_MODULES_MAX = 32, GRAPHS_MAX = 512, SEEN_MAX = 512, STAGES = 4, OUTPUTS_MAX = 16, MAX_GRID_Y = 65535, QMV_ROWS = 8 };

/* A bound weight: the checkpoint's planes, row after row or as tiles, in one piece of device memory. */
struct cuda_weight {
    CUdeviceptr base;
    size_t bytes;
    struct k_weight k;
};

struct cuda_kv_class {
    struct kv_class shape;
    CUdeviceptr k, v; /* [layers][blocks][heads][K_BLOCK][width] */
};

/* A piece of device memory that was allocated. */
struct cuda_piece {
    CUdeviceptr p;
    size_t bytes;
};

struct launch {
    enum kernel_id kernel;
    unsigned int grid[3], threads, shared_bytes;
    size_t args; /* offset in program.args */
    int32_t op;  /* index in the list, for timings and messages */
};

/* Room for what blocks of a launch count together: two counters of the barrier, the last tag, whether a wait had no end, the address of the
 * host's word for that, then counters of attention's splits. */
enum { COUNTERS = 4096, COUNTERS_GAVE_UP = 3, COUNTERS_HOST = 4, COUNTERS_FIRST = 64 };

struct program {
    struct launch *launches;
    int32_t n_launches, launches_capacity;
    unsigned char *args;
    size_t args_used, args_capacity;
};

/* Where the arrays of a step lie in the step block; a function of the key and the limits. */
struct step_layout {
    size_t ids, pos, seq_of, wanted_rows, seqs, choices, tables[KV_CLASSES_MAX], rope, tiles;
    size_t bytes;
    int32_t table_stride;
};

/* Pinned memory for what a step chose, and when it is there. */
struct cuda_result {
    unsigned char *data;
    CUevent done;
    int32_t n;
    bool has_records; /* struct step_chosen; else tokens */
};

struct cuda_output {
    int32_t id;
    int64_t offset;
};

/* What is copied into scratch memory before a part of a step (part.c). */
struct cuda_input {
    int32_t slot;
    int64_t offset;
    size_t bytes;
};

struct cuda_graph {
    struct step_key key; /* max_len: its bucket */
    CUgraphExec exec;
    uint64_t last_use;
    struct cuda_output outputs[OUTPUTS_MAX];
    int32_t n_outputs;
    struct cuda_input inputs[OUTPUTS_MAX];
    int32_t n_inputs;
    CUdeviceptr instrs; /* of its runs of instructions, and their links; 0: none */
};

/* Pinned memory that a step is packed into; a stage is reused when its copy has been made. */
struct cuda_stage {
    unsigned char *data;
    CUevent copied;
    bool busy;
};

/* A GPU: its driver and its kernels, shared by the models on it. Nothing of it changes after it was opened. */
struct cuda_gpu {
    struct device base;
    struct cuda_probe probe;
    struct cuda_driver *d;     /* of the probe */
    struct cuda_device *about; /* of the probe: what the driver says of this GPU */
    CUcontext context;
    CUmodule modules[CUDA_MODULES_MAX];
    int n_modules;
    CUfunction functions[N_KERNELS]; /* NULL: not compiled for this GPU */
    bool begins_early[N_KERNELS];    /* the kernel waits by itself for the one before it in a graph */
    int n_sm, sm, shared_max;
    bool has_context;
    bool can_run_lists; /* blocks of one launch may wait for each other */
};

/* One model on a GPU. */
struct cuda {
    struct backend base;
    struct cuda_gpu *gpu;
    struct cuda_driver *d; /* the GPU's */
    CUstream stream;
    bool exact, no_fuse;
    bool one_list;    /* while a step of one row with experts is lowered as a list of instructions: its products keep 16 bits of x there */
    size_t kept_back; /* bytes of the GPU that are left to the driver and the display */
    const struct select_row *forced; /* measurements: this row for all ops of its kind that fit it */
    struct cuda_piece *pieces;       /* [n_pieces] of device memory */
    int32_t n_pieces, pieces_capacity;

    struct kv_layout layout;
    struct cuda_kv_class kv[KV_CLASSES_MAX];
    CUdeviceptr states;
    int64_t state_offsets[STATES_MAX], state_total;

    struct plan plan;
    struct program program;
    CUdeviceptr scratch, op_scratch, counters;
    volatile uint32_t *gave_up; /* pinned: blocks of a launch waited for each other in vain */
    CUdeviceptr staging;        /* a weight's rows before they become tiles */
    size_t staging_bytes;
    size_t scratch_bytes, op_scratch_bytes, op_scratch_need;
    CUresult lower_code; /* of a driver function that lowering called */
    CUdeviceptr widened; /* two places for dequantised weights: one is read while the next weight is written to the other */
    size_t widened_bytes, widened_need;
    int32_t i_widened, carrier; /* the place that is free; the launch that can dequantise what comes next, -1: none */

    struct step_key key; /* of the step being built; max_len as given */
    struct step_layout at;
    CUdeviceptr step_block;
    size_t step_capacity;
    struct cuda_stage stages[STAGES];
    int i_stage;
    int32_t n_rope_tables, rope_width; /* of the step */
    int32_t n_tiles, n_decode;         /* prompt tiles of 64 rows; rows of sequences with one row, which come first */

    CUdeviceptr chosen, choose_counters;   /* [rows] tokens of the last step; [2 rows] */
    CUdeviceptr said, biases, masks;       /* tables of choose.c; 0 until somebody needs them */
    struct cuda_stage mask_stages[STAGES]; /* the host's side of the masks */
    int32_t i_mask_stage, mask_words;
    struct cuda_result results[RESULTS];
    int i_result; /* the next one to be filled */

    struct cuda_graph graphs[GRAPHS_MAX];
    int32_t n_graphs;
    struct cuda_graph *replay; /* chosen by begin */
    struct step_key seen[SEEN_MAX];
    int32_t n_seen;
    uint64_t n_steps;
    struct cuda_output outputs[OUTPUTS_MAX]; /* of the last step */
    int32_t n_outputs;
    struct cuda_input inputs[OUTPUTS_MAX];
    int32_t n_inputs;
    unsigned char *bounce; /* pinned, for reading back and for uploads */
    CUevent bounced[2];
};

enum { BOUNCE_BYTES = 8 << 20 }; /* each of two halves */

#define CUDA_TRY(c, call, ...) TRY(cuda_check((c)->d, (call), err, __VA_ARGS__))

/* The calling thread uses this GPU from now on. Every entry begins with it: which of its threads loads, runs and closes is the caller's business. */
int cuda_use(struct cuda *c, struct err *err);

/* ---- memory and weights (weight.c), cache (kv.c) ---- */
/* Kept back while a model is loaded, since Windows would spill to system memory instead of failing. A model that runs takes the little that it still
 * needs of this too: a program that has taken the rest meanwhile does not stop it. */
enum { RESERVE_BYTES = 256 << 20 };
int cuda_alloc(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err);
/* Ordinary memory to the GPU, in the stream's order; it may go when this returns. */
int cuda_upload(struct cuda *c, CUdeviceptr to, const void *from, size_t bytes, const char *what, struct err *err);
void cuda_free(struct cuda *c, CUdeviceptr *p);
int cuda_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err);
void cuda_weight_release(struct backend *be, struct weight *w);
bool cuda_kv_is_f32(const struct cuda *c, const struct kv_class *k);
int32_t cuda_kv_number_bytes(const struct backend *be, const struct kv_class *k);
int cuda_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err);
void cuda_kv_close(struct backend *be);
int cuda_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err);
int cuda_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err);
size_t cuda_block_bytes(const struct backend *be, int32_t kv_class, const char **out_layout);
int cuda_block_read(struct backend *be, int32_t kv_class, int32_t block, void *dst, struct err *err);
int cuda_block_write(struct backend *be, int32_t kv_class, int32_t block, const void *src, struct err *err);
int cuda_slot_read(struct backend *be, int32_t slot, float *dst, struct err *err);
int cuda_slot_write(struct backend *be, int32_t slot, const float *src, struct err *err);

/* ---- the GPU (gpu.c), its modules (module.c) ---- */
int cuda_gpu_open(const struct device_options *options, struct device **out, struct err *err);
void cuda_gpu_close(struct device *d);
void cuda_gpu_memory(struct device *d, uint64_t *out_free, uint64_t *out_total);
/* The calling thread uses this GPU from now on. */
int cuda_gpu_use(struct cuda_gpu *g, struct err *err);
int cuda_modules_load(struct cuda_gpu *g, struct err *err);
const char *cuda_kernel_name(enum kernel_id id);

/* ---- lowering (select.c and lower_*.c) ---- */

/* Appends a launch. */
void cuda_emit(struct cuda *c, enum kernel_id kernel, const unsigned int grid[3], unsigned int threads, unsigned int shared_bytes,
               const void *args, size_t args_bytes);
#define GRID(x, y, z) ((const unsigned int[3]){(unsigned int)(x), (unsigned int)(y), (unsigned int)(z)})
#define EMIT(c, kernel, grid, threads, shared_bytes, args) cuda_emit(c, kernel, grid, threads, shared_bytes, &(args), sizeof(args))

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
/* Rewrites products that must keep more of their input than bf16 does (widen.c); whether most of them do. */
bool cuda_widen(struct cuda *c);
int cuda_lower(struct cuda *c, struct err *err);
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
static inline unsigned int ceil_div(int64_t a, int64_t b) {
    return (unsigned int)((a + b - 1) / b);
}

/* Several ops as one launch: the number of ops from the i-th on that were lowered, 0 for none (fuse_*.c). */
int32_t cuda_lower_fused(struct cuda *c, int32_t i);
/* Before planning: what a group of ops reads lives to the end of the group. */
void cuda_fuse_lives(struct cuda *c);
/* Whether op j is the only reader of t; whether two handles are the same elements. */
bool cuda_read_only_by(const struct cuda *c, struct tensor t, int32_t j);
bool cuda_same_view(struct tensor a, struct tensor b);
/* Whether an op is the GLU of a product's two halves. */
bool cuda_is_halves(const struct op *linear, const struct op *glu);
/* Instructions of decode steps (fuse_step.c): whether steps of this shape have them; the ops of the one that begins at op i, 0 for none. */
enum { STEP_ROWS = 8 }; /* that a decode step's kernels take */
bool cuda_step_small(const struct cuda *c);
/* 99 KB for a block, as 8.6, 8.9 and 12.x have, whose kernels are compiled for that (kernels/step.cuh). */
static inline bool cuda_has_small_shared(const struct cuda *c) {
    return c->gpu->shared_max < 128 << 10;
}
int32_t cuda_step_size(const struct cuda *c, int32_t i);
void cuda_step_lower(struct cuda *c, int32_t i);
/* Lists of instructions of one row (link_step.c): the launch of kernels/one.cu that runs them, and how many places a warp's ring of weights
 * has; false: none does. */
bool cuda_list_fits(const struct cuda *c, const struct k_instr *in, int32_t n, struct launch *out, int32_t *out_depth);
/* Finds who reads what of whom, and says how much memory the links take; then gives them their places. */
size_t cuda_links_find(struct k_instr *in, int32_t n);
void cuda_links_place(struct k_instr *in, int32_t n, CUdeviceptr links, size_t bytes);
/* A norm and a rope of one value from op j on, each where it is there. Returns the op behind them; t: what they make of it. */
int32_t cuda_take_place(const struct cuda *c, int32_t j, int32_t *norm, int32_t *rope, struct tensor *t);
/* The tile layout of kernels/tile.cuh: whether a weight takes it, and its bytes per tile. */
bool cuda_tiles(const struct cuda *c, const struct weight_source *s);
int64_t cuda_tile_bytes(const struct format *f, int64_t in);
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
cuda_lower_fn lower_embed, lower_input, lower_linear_ref, lower_linear_few, lower_step_linear, lower_qmv, lower_wqmm, lower_qmm, lower_gemm;
bool step_linear_fits(const struct cuda *c, const struct op *op);
cuda_lower_fn lower_norm, lower_add_norm, lower_add, lower_act, lower_glu, lower_mulvec, lower_rope, lower_concat, lower_rows, lower_argmax,
    lower_terms, lower_terms_sum;
cuda_lower_fn lower_choose;
bool choose_fits(const struct cuda *c, const struct op *op);
cuda_lower_fn lower_kv_write, lower_attn_ref, lower_pick, lower_attn_fast, lower_route, lower_experts, lower_experts_ref;
cuda_lower_fn lower_conv, lower_delta, lower_ssd, lower_scan, lower_lightning, lower_lru;

/* ---- steps (step.c, graph.c, run.c) ---- */
int cuda_step_open(struct cuda *c, const struct step *step, struct err *err);
void cuda_step_close(struct cuda *c);
void cuda_step_layout(const struct cuda *c, const struct step_key *key, struct step_layout *out);
int cuda_step_upload(struct cuda *c, const struct step *step, struct err *err);
int32_t cuda_length_bucket(int32_t len);

struct cuda_graph *cuda_graph_find(struct cuda *c, const struct step_key *key);
/* Whether this key came before and is worth a graph now. */
bool cuda_graph_wanted(struct cuda *c, const struct step_key *key);
/* Whether the program has lists that other kernels run than its single launches: such steps are graphs from the first on, since the same step
 * twice gives the same bits. */
/* Whether a step that was lowered as one list (one_list) is one that kernels/one.cu runs, with all links that experts need. */
bool cuda_one_list_holds(const struct cuda *c);
bool cuda_graph_at_once(const struct cuda *c);
int cuda_graph_build(struct cuda *c, struct cuda_graph **out, struct err *err);
void cuda_graphs_drop(struct cuda *c);

bool cuda_begin(struct backend *be, const struct step_key *key);
int cuda_end(struct backend *be, const struct step *step, struct err *err);
int cuda_reserve(struct backend *be, struct err *err);
int cuda_read(struct backend *be, struct tensor t, void *dst, struct err *err);
/* Waits for what was launched. */
int cuda_wait(struct cuda *c, struct err *err);
/* An error when blocks of a launch waited for each other in vain. */
int cuda_check_waits(struct cuda *c, struct err *err);

/* ---- parts of steps (part.c) ---- */
/* Where the inputs of the list go; their copies. */
int cuda_note_inputs(struct cuda *c, struct err *err);
int cuda_inputs_send(struct cuda *c, const struct step *step, struct err *err);
int cuda_read_many(struct backend *be, const struct tensor *t, void *const *dst, int32_t n, struct err *err);
int cuda_host_alloc(struct backend *be, size_t bytes, void **out, struct err *err);
void cuda_host_free(struct backend *be, void *p);

/* ---- choosing (choose.c) ---- */
int cuda_choose_open(struct cuda *c, int32_t rows, struct err *err);
int cuda_mask_room(struct backend *be, int32_t rows, int32_t words, uint32_t **out, struct err *err);
/* The masks that were written into the last room go to the device. */
int cuda_masks_send(struct cuda *c, const struct step *step, struct err *err);
void cuda_masks_close(struct cuda *c);
void cuda_choose_close(struct cuda *c);
int cuda_choice_begin(struct backend *be, int32_t slot, const struct choice_tables *t, struct err *err);
/* What the step chose goes to the host, behind the step. */
int cuda_results_send(struct cuda *c, struct err *err);
int cuda_chosen(struct backend *be, int32_t age, struct step_chosen *out, struct err *err);
/* Notes whether what failed with this code has cost us the GPU, and returns it. */
int cuda_note_lost(struct cuda *c, int code);

#endif
