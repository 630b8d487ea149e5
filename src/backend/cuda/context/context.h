/* One model on a GPU: what it has there, and what every part of the CUDA backend finds in it.
 *
 * (1) Everything that changes from step to step lies in the step block, at addresses that depend on the key alone. (2) Values live in scratch
 * memory planned by plan.h; what an op needs only while it runs lies in op scratch, shared by all ops. (3) Precision exact and f32: every value
 * and the cache in f32. Otherwise values that only matrix products read, and the cache, are bf16, but for what the model asks to be wide. */
#ifndef MLXCEL_BACKEND_CUDA_CONTEXT_CONTEXT_H
#define MLXCEL_BACKEND_CUDA_CONTEXT_CONTEXT_H

#include "backend/cuda/device/gpu.h"
#include "backend/cuda/shared/args.h"
#include "backend/plan.h"

enum { RESULTS = 4 }; /* of steps that may be on their way to the host */
enum { GRAPHS_MAX = 512, SEEN_MAX = 512, STAGES = 4, OUTPUTS_MAX = 16, MAX_GRID_Y = 65535, QMV_ROWS = 8 };

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

static inline unsigned int ceil_div(int64_t a, int64_t b) {
    return (unsigned int)((a + b - 1) / b);
}

/* 99 KB for a block, as 8.6, 8.9 and 12.x have, whose kernels are compiled for that (kernels/step.cuh). */
static inline bool cuda_has_small_shared(const struct cuda *c) {
    return c->gpu->shared_max < 128 << 10;
}

/* ---- opened and closed (context.c) ---- */
int cuda_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err);
void cuda_close(struct backend *be);

/* ---- memory (memory.c) ---- */
/* The calling thread uses this GPU from now on. Every entry begins with it: which of its threads loads, runs and closes is the caller's business. */
int cuda_use(struct cuda *c, struct err *err);
int cuda_alloc(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err);
/* Ordinary memory to the GPU, in the stream's order; it may go when this returns. */
int cuda_upload(struct cuda *c, CUdeviceptr to, const void *from, size_t bytes, const char *what, struct err *err);
void cuda_free(struct cuda *c, CUdeviceptr *p);
/* Every graph goes: called before memory whose address they hold is given back. */
void cuda_graphs_drop(struct cuda *c);
/* Waits for what was launched. */
int cuda_wait(struct cuda *c, struct err *err);
/* An error when blocks of a launch waited for each other in vain. */
int cuda_check_waits(struct cuda *c, struct err *err);
/* Notes whether what failed with this code has cost us the GPU, and returns it. */
int cuda_note_lost(struct cuda *c, int code);

/* ---- weights (weight.c) ---- */
int cuda_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err);
void cuda_weight_release(struct backend *be, struct weight *w);
size_t cuda_weight_bytes(const struct backend *be, const struct weight_source *source);
/* The tile layout of kernels/tile.cuh: whether a weight takes it, and its bytes per tile. */
bool cuda_tiles(const struct cuda *c, const struct weight_source *s);
int64_t cuda_tile_bytes(const struct format *f, int64_t in);
/* Bits of a code there, 4 or 8, and bytes of a unit: 16 rows of 64 elements with their scales and biases. */
int32_t cuda_tile_bits(const struct format *f);
int32_t cuda_unit_bytes(const struct format *f);

/* ---- cache (kv.c) ---- */
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

/* ---- parts of steps (part.c) ---- */
/* Where the inputs of the list go; their copies. */
int cuda_note_inputs(struct cuda *c, struct err *err);
int cuda_inputs_send(struct cuda *c, const struct step *step, struct err *err);
int cuda_read_many(struct backend *be, const struct tensor *t, void *const *dst, int32_t n, struct err *err);
int cuda_host_alloc(struct backend *be, size_t bytes, void **out, struct err *err);
void cuda_host_free(struct backend *be, void *p);

/* ---- the step block (step.c) ---- */
int cuda_step_open(struct cuda *c, const struct step *step, struct err *err);
void cuda_step_close(struct cuda *c);
void cuda_step_layout(const struct cuda *c, const struct step_key *key, struct step_layout *out);
int cuda_step_upload(struct cuda *c, const struct step *step, struct err *err);
int32_t cuda_length_bucket(int32_t len);

/* ---- tables for choosing, and what was chosen (choose.c) ---- */
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

#endif
