/* One model on a GPU: what it has there, and what every part of the CUDA backend finds in it.
 *
 * (1) Everything that changes from step to step lies in the step block, at addresses that depend on the key alone. (2) Values live in scratch
 * memory planned by plan.h; what an op needs only while it runs lies in op scratch, shared by all ops. (3) Precision exact and f32: every value
 * and the cache in f32. Otherwise values that only matrix products read, and the cache, are bf16, but for what the model asks to be wide. With base.kv_bits
 * the whole cache has 8 bits. */
#ifndef MLXCEL_BACKEND_CUDA_CONTEXT_CONTEXT_H
#define MLXCEL_BACKEND_CUDA_CONTEXT_CONTEXT_H

#include "backend/cuda/device/gpu.h"
#include "backend/cuda/device/nccl.h"
#include "backend/cuda/shared/layout.h"
#include "backend/plan.h"

#include <stdatomic.h>

enum { RESULTS = 4 }; /* steps whose results may be on their way to the host at once */
enum {
    GRAPHS_MAX = 512,
    SEEN_MAX = 512,
    STAGES = 4,
    OUTPUTS_MAX = 16,
    MAX_GRID_Y = 65535,
    QMV_ROWS = 8
}; /* a step in parts has a graph for each */

/* A bound weight: the checkpoint's planes, row after row or as tiles, in one piece of device memory. */
struct cuda_weight {
    CUdeviceptr base;
    size_t bytes;
    struct k_weight k;
    struct cuda_borrowed *borrowed; /* the host has its numbers (borrow.c); k.values is then the place of the step that is being lowered */
};

struct cuda_kv_class {
    struct kv_class shape;
    CUdeviceptr k, v;                   /* [layers][blocks][heads][K_BLOCK][width], or blocks of kernels/kv8.cuh */
    CUdeviceptr unpacked_k, unpacked_v; /* where cuda_kv_unpacks: of one layer, bf16 [blocks][heads][K_BLOCK][width] */
    struct kv_lent lent;                /* of the host; its layers have numbers from shape.n_layers on. k NULL: there are none */
    CUdeviceptr lent_k, lent_v;         /* its addresses for kernels */
    CUdeviceptr guest_k, guest_v;       /* where cuda_kv_borrows: a lent layer while ops compute with it */
    int32_t guest;                      /* the lent layer that is there at this point of the program; -1: none */
};

/* A piece of device memory that was allocated. */
struct cuda_piece {
    CUdeviceptr p;
    size_t bytes;
};

struct launch {
    enum kernel_id kernel; /* N_KERNELS: a struct cuda_call instead */
    unsigned int grid[3], threads, shared_bytes;
    size_t args;  /* offset in program.args */
    int32_t op;   /* index in the list, for timings and messages */
    bool is_slow; /* a reference row runs it */
};

/* A borrowed weight of a program: before launch `first` it is copied to the places' memory from byte `at` on, which is free again behind launch `last`. */
struct cuda_loan {
    const struct cuda_borrowed *of;
    size_t at;
    int32_t end, first, last; /* end: of the memory, where it lies */
    bool waits, waits_all;    /* until what lay at its end before is used no more; until nothing is */
};

/* The values that an instruction of a decode step reads and makes; id 0: it has none. */
struct step_values {
    struct tensor x;                              /* of a product; the queries of attention */
    struct tensor residual, scores, k, v, y, sum; /* sum: x of a product, if it is one (k_step_linear.has_sum) */
    int32_t reads;                                /* how often ops of the list read y; -1: somebody reads it after the step */
    int32_t sum_reads;                            /* how often instructions behind it read the sum; below 0: somebody does after the step */
    bool is_next;                                 /* a product that reads the x of the one before it, through the same norm */
};
enum { STEP_INNER = -1 }; /* id of the inner values of experts, which lie in op scratch memory and are no value of the list */

struct program {
    struct launch *launches;
    struct step_values *values; /* [n_launches] of those that are instructions */
    int32_t n_launches, launches_capacity;
    unsigned char *args;
    size_t args_used, args_capacity;
    struct cuda_loan *loans; /* [n_loans] in the order of their launches */
    int32_t n_loans, loans_capacity;
    int32_t first_open;  /* loan: from there on they are used by the launches that come */
    int32_t loan_end;    /* of the next ones */
    size_t bytes_before; /* of those of the other end */
};

/* Where the arrays of a step lie in the step block; a function of the key and the limits. */
struct step_layout {
    size_t ids, pos, seq_of, wanted_rows, seqs, sharing, shared_of, choices, tables[KV_CLASSES_MAX], rope, tiles;
    size_t adapters, given, places, until,
        spans[2]; /* where the key has them; given: [GIVEN_SETS][rows] which of cuda.given's numbers are the row's */
    size_t bytes;
    int32_t table_stride;
};

/* Pinned memory for the tokens that a step chose, and an event that says when they have arrived. */
struct cuda_result {
    unsigned char *data;
    CUevent done;
    int32_t n;
    bool has_records; /* data is struct step_chosen for each row; else a token for each row */
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
    struct step_key key; /* max_len: rounded up to its bucket */
    CUgraphExec exec;
    uint64_t last_use;
    struct cuda_output outputs[OUTPUTS_MAX];
    int32_t n_outputs;
    struct cuda_input inputs[OUTPUTS_MAX];
    int32_t n_inputs;
    bool passes;        /* its kernels pass inputs and outputs (part.c) */
    CUdeviceptr instrs; /* memory for its instructions and their links; 0: it has none */
};

/* Pinned memory into which the data of a step is packed. It is used again when the GPU has copied it. */
struct cuda_stage {
    unsigned char *data;
    CUevent copied;
    bool busy;
};

/* Where borrowed weights are while a step uses them: in turn at either end of the memory. */
enum { BORROW_ENDS = 2 };
struct cuda_places {
    CUstream stream; /* of the copies; NULL: nothing is borrowed */
    CUevent arrived, freed[BORROW_ENDS];
    bool used[BORROW_ENDS];
    CUdeviceptr memory;
    size_t bytes, need;
};

/* How a part's values pass between the host's memory and ours (part.c). */
struct cuda_passing {
    const void *const *inputs; /* of the part that is being run */
    const struct step_output *outputs;
    int32_t n_outputs;
    _Atomic uint32_t *done; /* pinned word: parts whose outputs have arrived; NULL: none ever passed any */
    CUdeviceptr done_at;
    uint32_t n_parts; /* that were launched */
    bool by_kernels;  /* of the last part */
    bool is_awaited;  /* nothing was launched since */
};

/* A context that is one of several ranks (ranks.c). */
struct cuda_ranks {
    bool by_nccl;             /* ranks do not share a process; or they are told to use NCCL all the same */
    struct nccl *nccl;        /* the rest is for ranks that do without */
    bool is_open, is_at_work; /* at_work: others may still look at the desk */
    CUdeviceptr desk, rounds;
    int32_t n_blocks;                      /* of an exchange at most (ranks.c) */
    void *host_desk;                       /* instead of `desk`, where GPUs do not reach each other */
    CUdeviceptr desks[RANKS_MAX];          /* of all ranks */
    volatile uint32_t *gave_up[RANKS_MAX]; /* cuda.gave_up of all ranks */
};
enum { GAVE_UP_WAITING = 1, GAVE_UP_RANK = 2 }; /* what cuda.gave_up says: a wait had no end; another rank has failed */

/* One model on a GPU. */
struct cuda {
    struct backend base;
    struct cuda_gpu *gpu;
    struct cuda_driver *d; /* the GPU's */
    CUstream stream;
    bool exact, no_fuse;
    bool
        one_list; /* a step is being lowered that is one list or none (may_be_one_list); wide products are rounded then, since kernels/one.cu keeps 16 bits of x */
    bool
        is_replayed; /* the program that was lowered last does not depend on how rows are shared among sequences, so that a graph of it can be replayed */
    size_t kept_back;                /* bytes of the GPU that are left free for the driver and the display */
    const struct select_row *forced; /* for measurements: this row of the table is taken for all ops that it fits */
    struct step_times *times;        /* for measurements: launches are timed one by one, and no step is a graph; NULL: they are not */
    CUevent *timers;                 /* [n_timers] for that */
    int32_t n_timers;
    struct cuda_piece *pieces; /* [n_pieces] of device memory */
    int32_t n_pieces, pieces_capacity;

    struct kv_layout layout;
    struct cuda_kv_class kv[KV_CLASSES_MAX];
    CUdeviceptr states;
    int64_t state_offsets[STATES_MAX], state_total;

    struct plan plan;
    struct cuda_group *groups; /* [n_groups] of ops that one launch takes together, in order (cuda.h) */
    int32_t n_groups, groups_capacity;
    struct program program;
    CUdeviceptr scratch, op_scratch, counters;
    volatile uint32_t *gave_up; /* pinned word that a kernel sets when its blocks waited for each other in vain */
    CUdeviceptr staging;        /* rows of a weight that are about to become tiles */
    size_t staging_bytes;
    size_t scratch_bytes, op_scratch_bytes, op_scratch_need;
    CUresult lower_code; /* the first error of the driver during lowering */
    CUdeviceptr given;   /* rows from the host, set by set (given.c) */
    size_t given_bytes, given_at[GIVEN_SETS];
    CUdeviceptr dequantised; /* two buffers for dequantised weights: one is read while the next weight is written to the other */
    size_t dequantised_bytes, dequantised_need;
    int32_t i_dequantised, carrier; /* the buffer that is free; the launch that can dequantise the next weight while it runs, -1: none */

    struct cuda_passing passing;
    struct cuda_places places;
    bool borrows; /* ops of the list read borrowed weights */
    struct cuda_ranks ranks;

    struct step_key key; /* of the step that is being built; max_len is not rounded */
    struct step_layout at;
    CUdeviceptr step_block;
    size_t step_capacity;
    struct cuda_stage stages[STAGES];
    int i_stage;
    int32_t n_rope_tables, rope_width, n_adapters; /* of the step */
    int32_t n_tiles, n_decode;                     /* tiles of 64 prompt rows; rows of sequences that have one row, which come first */

    CUdeviceptr chosen, choose_counters;   /* [rows] tokens that the last step chose; [2 rows] */
    CUdeviceptr said, biases, masks;       /* tables of choose.c; 0 until a job needs them */
    struct cuda_stage mask_stages[STAGES]; /* pinned memory in which the host writes masks */
    int32_t i_mask_stage, mask_words;
    struct cuda_result results[RESULTS];
    int i_result; /* the result that the next step fills */

    struct cuda_graph graphs[GRAPHS_MAX];
    int32_t n_graphs;
    struct cuda_graph *replay; /* the graph that the step will replay; NULL: the list is lowered */
    struct step_key seen[SEEN_MAX];
    int32_t n_seen;
    uint64_t n_steps;
    struct cuda_output outputs[OUTPUTS_MAX]; /* of the last step */
    int32_t n_outputs;
    struct cuda_input inputs[OUTPUTS_MAX];
    int32_t n_inputs;
    unsigned char *bounce; /* pinned, for reading results back and for uploads */
    CUevent bounced[2];
    CUevent launched; /* behind what was launched, for a context that follows; NULL until there is one */
};

enum { BOUNCE_BYTES = 8 << 20 }; /* each of two halves */

static inline size_t align256(size_t n) {
    return (n + 255) / 256 * 256;
}

static inline unsigned int ceil_div(int64_t a, int64_t b) {
    return (unsigned int)((a + b - 1) / b);
}

/* A block has at most 99 KB of shared memory, as on 8.6, 8.9 and 12.x. Kernels for those are compiled with smaller rings (kernels/sync.cuh). */
static inline bool cuda_has_small_shared(const struct cuda *c) {
    return c->gpu->shared_max < 128 << 10;
}

/* ---- opened and closed (context.c) ---- */
int cuda_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err);
void cuda_close(struct backend *be);

/* ---- memory (memory.c) ---- */
/* The calling thread uses this GPU from now on. Every function that the engine calls begins with it, because loading, running and closing may
 * happen on different threads. */
int cuda_use(struct cuda *c, struct err *err);
int cuda_alloc(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err);
/* Copies ordinary memory to the GPU, behind what the stream was given before. The memory may be freed when this returns. */
int cuda_upload(struct cuda *c, CUdeviceptr to, const void *from, size_t bytes, const char *what, struct err *err);
void cuda_free(struct cuda *c, CUdeviceptr *p);
/* Makes room in one of the pieces of device memory that programs know by their addresses. */
int cuda_grow(struct cuda *c, size_t need, const char *what, CUdeviceptr *p, size_t *bytes, struct err *err);
/* Destroys all graphs. Called before memory is freed whose address their kernels hold. */
void cuda_graphs_drop(struct cuda *c);
/* Waits for what was launched. */
int cuda_wait(struct cuda *c, struct err *err);
/* An error where blocks of an earlier launch gave up waiting for each other. */
int cuda_check_waits(struct cuda *c, struct err *err);
/* Returns code. After an error it notes in the device whether the GPU is lost for this process. */
int cuda_note_lost(struct cuda *c, int code);

/* ---- weights (weight.c) ---- */
int cuda_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err);
void cuda_weight_drop(struct cuda *c, struct weight *w); /* nothing uses it any more */
size_t cuda_weight_bytes(const struct backend *be, const struct weight_source *source);
/* The tile layout of kernels/tile.cuh: whether a weight takes it, and its bytes per tile. */
bool cuda_tiles(const struct cuda *c, const struct weight_source *s);
int64_t cuda_tile_bytes(const struct format *f, int64_t in);
/* A weight as it comes, and as it lies on the GPU. */
struct cuda_stored {
    const struct weight_source *given;
    struct weight_source source;
};
void cuda_store_as(const struct cuda *c, const struct weight_source *given, struct cuda_stored *out);
/* Where rows of each plane lie, one plane behind the other. */
struct cuda_planes {
    size_t strides[N_PLANES], at[N_PLANES], bytes;
};
/* What a kernel is told of rows whose planes lie at `base`; of such rows as tiles at `base`. */
struct k_weight cuda_rows_args(const struct weight_source *s, const struct cuda_planes *p, CUdeviceptr base);
struct k_weight cuda_tiles_args(const struct weight_source *s, CUdeviceptr base);

/* ---- weights that stay in the host's memory (borrow.c) ---- */
struct cuda_borrowed {
    const void *data; /* of the host */
    size_t bytes;
    size_t tiles_at, place_bytes; /* from its place's start to the tiles; what it takes there */
    bool is_pinned, panels;
    struct k_panels panels_args; /* without addresses */
    struct k_weight rows_args;   /* planes of rows, from 0 on */
    int64_t n_rows;
};
int cuda_weight_borrow(struct backend *be, const struct weight_source *source, const struct weight_lent *lent, struct weight *out,
                       struct err *err);
void cuda_weight_release(struct backend *be, struct weight *w);
size_t cuda_borrow_bytes(const struct backend *be, const struct weight_source *source);
/* The copy to a place, which launches from now on may use; none of the launches until now uses it any more. */
int cuda_loan_begin(struct cuda *c, const struct cuda_loan *loan, struct err *err);
int cuda_loan_end(struct cuda *c, const struct cuda_loan *loan, struct err *err);
void cuda_places_close(struct cuda *c);

/* ---- cache that stays in the host's memory (borrow_kv.c) ---- */
static inline bool cuda_is_lent(const struct cuda *c, struct kv_ref kv) {
    return kv.index >= c->kv[kv.kv_class].shape.n_layers;
}
int cuda_kv_borrow(struct backend *be, int32_t kv_class, const struct kv_lent *lent, bool *out_does, struct err *err);

/* ---- ranks in processes of their own (ranks_nccl.c) ---- */
enum cuda_call_kind { CALL_SUM, CALL_GATHER, CALL_TELL };
struct cuda_call {
    enum cuda_call_kind kind;
    int32_t rows, width, whole; /* of parts: this rank's, and all */
    CUdeviceptr in, out;
    CUdeviceptr parts; /* op scratch memory for two times rows of `whole` numbers */
    int64_t total, in_stride, out_stride;
};
int cuda_calls_open(struct cuda *c, struct err *err);
int cuda_call(struct cuda *c, const struct cuda_call *call, struct err *err);
/* Until the event has come, NULL: all that was launched; an error where a rank is gone, whose part of a sum would be waited for in vain. Returns at once without NCCL. */
int cuda_calls_wait(struct cuda *c, CUevent event, struct err *err);

/* ---- ranks (ranks.c) ---- */
/* Nothing happens where the context is alone. */
int cuda_ranks_open(struct cuda *c, struct err *err);
/* All ranks have come here. */
int cuda_ranks_meet(struct cuda *c, struct err *err);
/* Waits until nobody looks at this rank's desk any more. */
void cuda_ranks_rest(struct cuda *c);
/* Returns code. After an error kernels of other ranks stop waiting for this one. */
int cuda_ranks_result(struct cuda *c, int code);
void cuda_ranks_close(struct cuda *c);

/* ---- cache (kv.c) ---- */
enum k_dtype cuda_kv_dtype(const struct cuda *c, const struct kv_class *k);
/* Memory of a cache. Cleared, because positions beyond a sequence's end are multiplied by zero, and zero times NaN is no zero. */
int cuda_kv_pool(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err);
/* Whether layers of this class can be borrowed. */
bool cuda_kv_borrows(const struct cuda *c, const struct kv_class *k);
/* Bytes of one block of one layer, its keys or its values. */
size_t cuda_kv_block_bytes(const struct cuda *c, const struct kv_class *k, int32_t width);
/* Whether prompts read a cache of 8 bits as bf16, one layer at a time; bytes of a position of a cached head that this takes. */
bool cuda_kv_unpacks(const struct cuda *c, const struct kv_class *k);
int32_t cuda_kv_aside_bytes(const struct backend *be, const struct kv_class *k);
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
/* Around the launch of a part: what it passes, and that its outputs are on their way. */
int cuda_passing_begin(struct cuda *c, const struct step *step, struct err *err);
void cuda_passing_end(struct cuda *c, int code);
void cuda_passing_close(struct cuda *c);
int cuda_read_many(struct backend *be, const struct tensor *t, void *const *dst, int32_t n, struct err *err);
int cuda_send_many(struct backend *be, const struct tensor *t, void *const *dst, int32_t n, struct err *err);
int cuda_follow(struct backend *be, struct backend *other, struct err *err);
int cuda_host_alloc(struct backend *be, size_t bytes, void **out, struct err *err);
void cuda_host_free(struct backend *be, void *p);

/* ---- the step block (step.c) ---- */
int cuda_step_open(struct cuda *c, const struct step *step, struct err *err);
void cuda_step_close(struct cuda *c);
void cuda_step_layout(const struct cuda *c, const struct step_key *key, struct step_layout *out);
int cuda_step_upload(struct cuda *c, const struct step *step, struct err *err);
int32_t cuda_length_bucket(int32_t len);

/* ---- rows from the host (given.c) ---- */
/* Room for those of the list that was walked; those of a step go there. */
int cuda_given_open(struct cuda *c, struct err *err);
int cuda_given_upload(struct cuda *c, const struct step *step, struct err *err);

/* ---- tables for choosing, and what was chosen (choose.c) ---- */
int cuda_choose_open(struct cuda *c, int32_t rows, struct err *err);
int cuda_mask_room(struct backend *be, int32_t rows, int32_t words, uint32_t **out, struct err *err);
/* Sends the masks that were written into the last room to the device. */
int cuda_masks_send(struct cuda *c, const struct step *step, struct err *err);
void cuda_masks_close(struct cuda *c);
void cuda_choose_close(struct cuda *c);
int cuda_choice_begin(struct backend *be, int32_t slot, const struct choice_tables *t, struct err *err);
/* Sends the tokens that the step chose to the host, when the step is done. */
int cuda_results_send(struct cuda *c, struct err *err);
int cuda_chosen(struct backend *be, int32_t age, struct step_chosen *out, struct err *err);

#endif
