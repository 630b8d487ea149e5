/* The contract between the model and a device.
 *
 * Terms:
 *   device   a processor or GPU with its driver, its threads, its kernels and a memory budget; models share it (device.h)
 *   backend  one model's context on a device: op list, packed weights, KV cache, recurrent state, scratch memory
 *   step     one pass of the model over a batch of rows
 *
 * A backend binds weights (it owns the packed result), owns the memory behind the KV cache and the recurrent state, and
 * runs op lists. Everything that changes from step to step lies in `struct step`, one block of plain arrays.
 *
 * (1) begin() answers whether forward must walk or a prepared program for this key can be replayed; end() runs the step
 *     and reports the first error of the list, the device or a row.
 * (2) KV blocks hold 64 tokens; their inner layout is the backend's secret. Block and slot numbers are handed out by the
 *     engine; a backend never allocates one.
 * (3) Nothing here allocates after reserve(): a step that fits the reserved shape runs without the heap.
 * (4) A backend belongs to one thread at a time, the engine's. Backends of one device may be used by different threads at once.
 */
#ifndef MLXCEL_BACKEND_BACKEND_H
#define MLXCEL_BACKEND_BACKEND_H

#include "backend/device.h"
#include "backend/ops.h"
#include "comm/comm.h"

struct backend;

/* ---- weights -------------------------------------------------------------------------------------------------- */

/* One matrix, or a stack of n_experts matrices, [n_experts, out, in]. Vectors (norms, biases, sinks, tables) are
 * weights of one row in f32. */
struct weight {
    const char *name;
    struct format format;
    int32_t n_experts;
    int64_t out, in;
    size_t bytes;                      /* on the device */
    const struct adapt_site *adapters; /* what adapters add to its products; NULL: nothing */
    void *packed;                      /* the backend's */
    int32_t side;                      /* of a context on two devices: which of them has it (split/split.h) */
    struct weight *twin;               /* the same numbers on the other one; NULL: they are on one alone */
    bool is_borrowed;                  /* they lie in the host's memory, and are copied whenever an op of the device reads them */
};

/* Who reads a weight: a layer of this number, or one of these. */
enum weight_reader {
    READ_BEFORE = -1, /* what stands before the first layer */
    READ_BEHIND = -2, /* what stands behind the last one */
    READ_ENDS = -3,   /* both: one matrix is embedding and head */
    READ_ALL = -4,    /* every layer */
};

enum weight_plane { PLANE_VALUES, PLANE_SCALES, PLANE_BIASES, N_PLANES };

/* What weight_bind reads from: rows of the checkpoint in its own format. Rows count through experts: expert * out + r. */
struct weight_source {
    const char *name;
    struct format format;
    int32_t n_experts;
    int64_t out, in;
    bool is_vector; /* small and read by element-wise kernels: never repacked, always f32 */
    bool is_router; /* chooses experts: its inputs are never rounded to a smaller type */
    bool is_expert; /* read by EXPERTS alone */
    int32_t reader; /* a layer, or one of enum weight_reader */
    int (*read)(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err);
    void *user;
};

/* How a weight lies in the host's memory, in one piece. `panels`: as backend/cpu/pack.h says; else rows of each plane. */
struct weight_lent {
    const void *data;
    size_t bytes;
    bool panels, narrow_scales;
    int32_t group, code_bits;               /* of panels */
    size_t at[N_PLANES], strides[N_PLANES]; /* of rows: where a plane begins, bytes of a row; 0: it has none */
};

/* ---- KV cache and recurrent state ------------------------------------------------------------------------------ */

enum { KV_BLOCK = 64, KV_CLASSES_MAX = 4, STATES_MAX = 512 };

struct kv_class {
    int32_t n_layers, heads, k_width, v_width; /* v_width 0: values are a part of the keys */
    int32_t window;                            /* 0: all positions are kept */
    int32_t picture_rows;                      /* its positions are rows of pictures, of which one has so many; 0: they are tokens */
    int32_t n_blocks;
    int32_t wide;       /* scores get so large that bf16 keys show: a backend whose cache is bf16 keeps this class in f32 */
    int32_t n_borrowed; /* layers of another device's, with which this one may compute (kv_borrow): their numbers follow those of its own */
    const int32_t *layers; /* [n_layers] the model's layer that each belongs to; NULL: not told */
};

/* A class's cache in the host's memory: [layers][n_blocks][heads] blocks of f16, keys [k_width][KV_BLOCK] and values [KV_BLOCK][v_width]. */
struct kv_lent {
    void *k, *v;
    size_t k_bytes, v_bytes;
};

struct state_class {
    int64_t elements; /* f32, zero at the start of a sequence */
    int32_t layer;    /* of the model */
};

struct kv_layout {
    int32_t n_classes, n_states, n_slots;
    int32_t n_of_pictures; /* 1: the last class is one of pictures */
    struct kv_class classes[KV_CLASSES_MAX];
    struct state_class states[STATES_MAX]; /* one per recurrent layer and kind */
    int32_t max_context;
};

/* Classes that grow with the tokens; the one of pictures, where there is one, is behind them. */
static inline int32_t kv_token_classes(const struct kv_layout *l) {
    return l->n_classes - l->n_of_pictures;
}

/* ---- one step -------------------------------------------------------------------------------------------------- */

struct step_seq {
    int32_t row, n_rows; /* its rows of this step */
    int32_t pos;         /* position of the first of them */
    int32_t slot;        /* of recurrent state; -1 where the model has none */
    int32_t rope_len;    /* length that dynamic rope tables were made for */
    int32_t starts;      /* 1: no state yet, begin with zeros */
};

enum { CHOICE_TOP_MAX = 20, CHOICE_BIAS_MAX = 1024, CHOICE_TOP_K_MAX = 1024 };

/* How the device chooses a token from a row of logits. The meaning of the numbers is the sampler's (engine/sampler.h). */
struct step_choice {
    uint64_t seed;
    int32_t position; /* tokens before the one that is chosen */
    int32_t top_k;    /* 0: all */
    float temperature, top_p, min_p, repetition, frequency, presence;
    int32_t slot;         /* of tables (choice_begin); -1: no bias and no penalties */
    int32_t n_bias;       /* in those tables */
    int32_t counts_input; /* 1: the row's own token is to be counted in the tables */
    int32_t leaves;       /* token that is no longer counted for repetition; -1: none */
    int32_t mask;         /* index into step.masks; -1: every token may be chosen */
    int32_t n_top;        /* log-probabilities: as in struct sampler_params */
};

/* What the device chose. */
struct step_chosen {
    int32_t token;      /* -1: nothing can be chosen */
    float logit;        /* of the token, as the model gave it */
    float largest, sum; /* where n_top >= 0: the largest logit, and the sum of exp(logit - largest), of the row as the model gave it */
    int32_t n_top;
    int32_t top_tokens[CHOICE_TOP_MAX];
    float top_logits[CHOICE_TOP_MAX];
    int32_t pad[3];
};

struct choice_bias {
    int32_t token;
    float bias;
};

/* What the tables of a slot begin with: tokens that were said, and biases. */
struct choice_tables {
    const int32_t *history; /* [n_history] prompt and answer */
    int32_t n_history, n_prompt;
    int32_t n_slots, vocab;
    int32_t last_n;                 /* how far back repetition looks; -1: everything */
    const struct choice_bias *bias; /* [n_bias] each token once */
    int32_t n_bias;
};

enum { GIVEN_SETS = 8, STEP_AXES = 3 };

/* A value of a part of a step that another part reads, and where it goes. */
struct step_output {
    int32_t id;
    void *to;
};

struct step {
    int32_t n_rows, n_seqs;
    int32_t n_logits, n_wanted;                           /* rows whose logits are wanted; those and the rows whose hidden states are */
    int32_t rows_capacity, seqs_capacity, table_capacity; /* sizes of the arrays below */
    int32_t n_rope_tables, rope_width;
    int32_t *ids, *pos,
        *seq_of;           /* [rows] token (below 0: -1 - the wanted row of the step before whose token it is), position, index into seqs */
    int32_t *wanted_rows;  /* [rows] those with logits, ascending, then those with hidden states, ascending */
    struct step_seq *seqs; /* [seqs] */
    int32_t *sharing; /* [n_sharing] of a decode step: rows whose sequences begin with the same blocks, step_key.shared_len positions */
    int32_t n_sharing;
    int32_t *tables[KV_CLASSES_MAX]; /* [seqs][table_capacity] block of positions 64 i ... 64 i + 63; -1 where freed */
    struct step_choice *choices;     /* [n_logits] where the device chooses */
    const uint32_t *masks;           /* [n_masks][mask_words] bits of tokens that may be chosen */
    int32_t n_masks, mask_words;
    int32_t n_adapters;
    const float **given[GIVEN_SETS]; /* [rows] numbers that stand for a row, or are added to it; NULL: it has none */
    int32_t *places;                 /* [rows][STEP_AXES] where a row lies in time, height and width, for rope by axes */
    int32_t *until; /* [rows] last position of the picture whose rows see each other, or -1; NULL: there is no such picture */
    const int32_t
        *spans[2];   /* [rows][2] of ATTN_ROWS: rows that a row sees, from and to; the first also of pictures (attn_args.of_pictures) */
    float *adapters; /* [seqs][n_adapters] scale of each; 0: it is not used */
    float *rope;     /* [seqs][n_rope_tables][rope_width] inverse frequencies of dynamic tables */
    const void *const *inputs; /* what the ops INPUT give, in memory of the host; NULL: the list has none */
    const struct step_output *
        outputs; /* [n_outputs] what will be sent, or read, behind this part to the same memory as in every step of its key, until that is freed
                                        * (host_alloc): the part may bring it there itself */
    int32_t n_outputs;
    void *block; /* all arrays above, in one piece */
    size_t block_bytes;
};

/* What choosing takes; a step does what any of its rows needs. 0: the largest logits, and step.choices is not read. */
enum choice_work {
    CHOICE_DRAWS = 1,  /* step.choices is read: temperature, min-p */
    CHOICE_LISTS = 2,  /* top-k, top-p, log-probabilities */
    CHOICE_COUNTS = 4, /* top-p without top-k, or more than CHOICE_SHORT best tokens */
    CHOICE_SHAPES = 8, /* bias, penalties, masks */
    CHOICE_ALL = 15
};
enum { CHOICE_SHORT = 32 };

struct step_key {
    int32_t n_rows, n_seqs, n_logits, n_hidden, max_len;
    bool decode_only;   /* one row of each sequence, with logits */
    int32_t shared_len; /* positions that the rows of step.sharing have in common, whole blocks; 0: none, or the device does not ask */
    unsigned chooses;   /* bits of enum choice_work */
    bool adapts;        /* some rows have adapters */
    bool gives;         /* some rows are given by the host */
    bool has_places;    /* some rows have places of their own */
    bool sees;          /* some rows see others behind them: step.until is there */
    bool has_spans;     /* step.spans are there */
    int32_t part;       /* of a step that is cut into several lists: which of them, from 1 on; 0: the list is the whole step */
    bool same_step;     /* a part whose step this backend has had in an earlier part: its block is there */
    bool no_choice;     /* a part in which no tokens are chosen */
};

/* ---- the backend itself ----------------------------------------------------------------------------------------- */

enum precision { PRECISION_AUTO, PRECISION_EXACT, PRECISION_F32, PRECISION_BF16 };

struct backend_options {
    enum precision precision;
    bool no_fuse;      /* run the plain list, for conformance */
    int32_t kv_bits;   /* of a cached number: 8 or 4 on the CPU, 8 on a GPU; 0 or 16: as the precision wants it */
    struct comm *comm; /* the context is a rank of this group, which lives longer; NULL: it is alone */
    bool by_nccl;      /* ranks of one process, too, exchange by NCCL; for tests */
};

struct step_paths;
struct step_times;

struct backend_type {
    const char *name;
    int (*device_open)(const struct device_options *options, struct device **out, struct err *err);
    void (*device_close)(struct device *d);
    /* Bytes of the device's memory that can be had, and in all. */
    void (*memory)(struct device *d, uint64_t *out_free, uint64_t *out_total);
    /* The device's own workers for host work between steps; n_workers of them. Absent where it has none. */
    void (*each)(struct device *d, int64_t n, device_items_fn *fn, void *ctx);
    int32_t (*n_workers)(const struct device *d);

    /* Fills type, device and precision, and what else struct backend has; backend_open is the way to call it. */
    int (*open)(struct device *d, const struct backend_options *options, struct backend **out, struct err *err);
    void (*close)(struct backend *be);
    /* Fills out (name, format, shape, bytes, packed). */
    int (*weight_bind)(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err);
    void (*weight_release)(struct backend *be, struct weight *w);
    /* What weight_bind would take of the device's memory. Absent: about the bytes of the planes. */
    size_t (*weight_bytes)(const struct backend *be, const struct weight_source *source);
    /* Where a bound weight lies, for another device that borrows it; false: in no form that others know. Absent: it lends nothing. */
    bool (*weight_lend)(const struct backend *be, const struct weight *w, struct weight_lent *out);
    /* Fills out like weight_bind, with is_borrowed: the numbers stay where they are lent. packed is NULL where the device has no use for this form. Absent: it
     * borrows nothing. */
    int (*weight_borrow)(struct backend *be, const struct weight_source *source, const struct weight_lent *lent, struct weight *out,
                         struct err *err);
    /* What a weight like this one takes at most of the device's memory while it is used, when it is borrowed. */
    size_t (*borrow_bytes)(const struct backend *be, const struct weight_source *source);
    /* Bytes of a cached number of this class, as kv_open will store it. Absent: a float's. */
    int32_t (*kv_number_bytes)(const struct backend *be, const struct kv_class *k);
    /* Bytes that kv_open takes beside the cache, for each position of a cached head; of a class without layers, too. Absent: none. */
    int32_t (*kv_aside_bytes)(const struct backend *be, const struct kv_class *k);
    int (*kv_open)(struct backend *be, const struct kv_layout *layout, struct err *err);
    void (*kv_close)(struct backend *be);
    /* Where a class lies, for another device that computes with its layers; false: in no form that others know. Absent: it lends nothing. */
    bool (*kv_lend)(const struct backend *be, int32_t kv_class, struct kv_lent *out);
    /* From now until kv_close ops may name the lent layers, kv_class.n_borrowed of them. A prompt's step reads what it needs of them, and writes what
     * is new, before what was launched is done. *out_does false: this device does without. Absent: it borrows nothing. */
    int (*kv_borrow)(struct backend *be, int32_t kv_class, const struct kv_lent *lent, bool *out_does, struct err *err);
    /* Copy-on-write and snapshots. */
    int (*block_copy)(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err);
    int (*slot_copy)(struct backend *be, int32_t from, int32_t to, struct err *err);
    /* A block's bytes, all layers, as they lie on the device: how many, and the name of their layout, which another device may not have. Absent,
     * with the four below: the cache cannot be read. */
    size_t (*block_bytes)(const struct backend *be, int32_t kv_class, const char **out_layout);
    int (*block_read)(struct backend *be, int32_t kv_class, int32_t block, void *dst, struct err *err);
    int (*block_write)(struct backend *be, int32_t kv_class, int32_t block, const void *src, struct err *err);
    /* All of a slot's state, f32, in the order of the layout. */
    int (*slot_read)(struct backend *be, int32_t slot, float *dst, struct err *err);
    int (*slot_write)(struct backend *be, int32_t slot, const float *src, struct err *err);
    /* True: walk forward into be->list and call end; false: a replayable program exists, call end at once. */
    bool (*begin)(struct backend *be, const struct step_key *key);
    int (*end)(struct backend *be, const struct step *step, struct err *err);
    /* Memory for steps up to the shape of be->list, which holds a walk of the largest one. */
    int (*reserve)(struct backend *be, struct err *err);
    /* Copies an output value's elements, dense, after end(). */
    int (*read)(struct backend *be, struct tensor t, void *dst, struct err *err);
    /* Copies n output values, dense, and waits for all that was launched; n may be 0. Absent: read() does that. */
    int (*read_many)(struct backend *be, const struct tensor *t, void *const *dst, int32_t n, struct err *err);
    /* The same without waiting: the copies are part of what was launched. Absent, with the next: read_many does it. */
    int (*send_many)(struct backend *be, const struct tensor *t, void *const *dst, int32_t n, struct err *err);
    /* What is launched from now on waits for all that `other`, of the same type, has launched until now. The host does not wait. */
    int (*follow)(struct backend *be, struct backend *other, struct err *err);
    /* Memory of the host that the device copies from and to without a detour. Absent: ordinary memory is as good. */
    int (*host_alloc)(struct backend *be, size_t bytes, void **out, struct err *err);
    void (*host_free)(struct backend *be, void *p);
    /* An f32 output value where it lies, when that is host memory and dense: until the next begin(). NULL: read() it. */
    const float *(*view)(struct backend *be, struct tensor t); /* may be absent */
    /* For a device that chooses (struct backend.chooses). Fills the tables of a slot. */
    int (*choice_begin)(struct backend *be, int32_t slot, const struct choice_tables *t, struct err *err);
    /* Memory of the host in which the masks of the next step are written, `rows` of `words`: step.masks. */
    int (*mask_room)(struct backend *be, int32_t rows, int32_t words, uint32_t **out, struct err *err);
    /* For a device that runs ahead: what was chosen in a step, waiting for it. age 0: the last step that was ended; 1: the one before. Without
     * key.chooses only the tokens are filled. */
    int (*chosen)(struct backend *be, int32_t age, struct step_chosen *out, struct err *err);
    /* Of a backend that chooses among kernels (paths.h); absent elsewhere. A device like this one that only plans: backends and models are opened on
     * it as usual, and nothing of the true device is used. Then what the list that was collected since begin() would run on it. */
    struct device *(*plan_device)(struct device *d);
    int (*plan_step)(struct backend *be, struct step_paths *out, struct err *err);
    /* From now on launches are timed one by one and added to `to`, until this is called with NULL. Steps are slower then. */
    void (*watch_times)(struct backend *be, struct step_times *to);
    /* One line for the start-up message: device, instruction set, threads. */
    void (*describe)(struct backend *be, struct sb *out);
};

struct backend {
    const struct backend_type *type;
    struct device *device;
    struct oplist list;
    enum precision precision;
    struct comm *comm;          /* the other ranks; NULL: it is alone */
    int32_t kv_bits;            /* 8 or 4: of a cached number, beside a scale of four bytes for each vector; 0: kv_number_bytes tells */
    int32_t rows_max;           /* rows that a step may have; 0: any number */
    int32_t tower_rows_max;     /* the same of a step without wide products, as towers have them */
    double row_first, row_more; /* n > 1 rows take 1 + row_first + row_more * (n - 1) steps of one, so far; 0: not for drafts */
    bool reads_shared;          /* blocks of step.sharing are read once for all of its rows */
    bool mixes_rows;            /* one step may have both rows with logits and rows with hidden states */
    bool adapts;                /* it has the op ADAPT */
    bool gives;                 /* it has GIVEN, ATTN_ROWS and POOL_ROWS, and rope by axes */
    bool looks;                 /* its attention sees pictures that lie in the cache (attn_args.of_pictures) */
    bool is_split;              /* it is made of two others (split/split.h) */
    bool takes_inputs;          /* it has the op INPUT, and steps in parts */
    bool sums;                  /* it has SUM and GATHER, and parts of tables and of experts: it may be a rank */
    bool chooses;               /* the device chooses tokens by step.choices */
    bool runs_ahead;            /* a step may be ended before the results of the one before are read; ids below 0 are understood */
};

extern const struct backend_type cpu_backend, cuda_backend, split_backend, trace_backend, xla_backend;

/* The type by name ("cpu", "cuda", "trace", "xla"), or NULL. */
const struct backend_type *backend_find(struct str name);
/* A context on a device, which it holds until it is closed. */
int backend_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err);
void backend_close(struct backend *be); /* NULL is fine */

enum { KV_PACKED_WIDTH_MAX = 256 };
/* Whether a cache of 8 or 4 bits can hold this class; the error says why not. */
int backend_kv_check(int32_t bits, const struct kv_class *k, struct err *err);

#endif
