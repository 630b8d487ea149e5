/* Inside the xla backend: a PJRT client, weights and cache on its device, and programs compiled for shapes.
 *
 * A step is cut into pieces that programs exist for: sequences of one row together, up to a batch; longer ones alone, in
 * chunks. Each piece is padded to its program's shape; what padded rows would write is left out. The
 * op list is walked for every step and only looked at where a program is missing.
 */
#ifndef MLXCEL_BACKEND_XLA_XLA_H
#define MLXCEL_BACKEND_XLA_XLA_H

#include "backend/xla/emit.h"
#include "backend/xla/pjrt.h"

enum {
    XLA_PROGRAMS = 6, /* kept in memory, unless the user wants another number */
    XLA_PROGRAMS_MAX = 64,
    XLA_CONTEXT_FIRST = 512,
    XLA_CONTEXT_FACTOR = 4,
    XLA_CHUNK_SMALL = 64,
    XLA_CHUNK_LARGE = 512,
    XLA_BATCH_MAX = 64
};
#define XLA_CACHE_BYTES_MAX ((uint64_t)2 << 30)

struct xla_executable {
    struct xla_shape at;
    int32_t n_ops; /* of its list: the one with a head or the one without */
    bool sees;
    struct pjrt_executable *exec;
    struct xla_step_layout in;
    const struct weight **weights;
    int32_t n_weights, outputs[XLA_OUTPUTS_MAX], n_outputs;
    uint64_t last_use;
};

/* One run of a program in the current step. */
struct xla_piece {
    struct pjrt_buffer *results[XLA_OUTPUTS_MAX];
    struct xla_shape at; /* of its program */
    int32_t outputs[XLA_OUTPUTS_MAX], n_outputs;
    int32_t first_wanted, n_wanted; /* into xla.wanted */
    bool is_whole;                  /* of a tower: results have rows of their own, and all are read */
};

/* A plugin's client and what the user wants of it, shared by the models on it. */
struct xla_device {
    struct device base;
    struct pjrt pjrt;
    bool is_cpu;
    const char *cache_dir; /* NULL: compiled programs are not kept */
    const char *flags;     /* of XLA itself; NULL: none */
    const char *dump_dir;  /* NULL, or where the text of every program is written */
    int32_t n_places;      /* programs of a model that are kept in memory */
    struct arena arena;
};

/* One model on it. */
struct xla {
    struct backend base;
    struct xla_device *device;
    struct pjrt *pjrt; /* the device's */
    bool half;
    bool cache_failed;     /* that programs could not be kept was told */
    bool library_products; /* see pjrt_compile */
    struct arena arena;
    struct kv_layout layout;
    struct pjrt_buffer **memory; /* keys, values, states in the order of the arguments */
    int32_t n_memory;
    struct xla_executable programs[XLA_PROGRAMS_MAX];
    int32_t n_places;                                    /* of them that may be used */
    struct pjrt_executable *copiers[KV_CLASSES_MAX + 1]; /* of blocks by class, of slots */
    struct xla_needs needs;                              /* of the list at hand */
    bool sees;                                           /* of the step at hand: step_key.sees */
    uint64_t n_uses;                                     /* of programs: the clock of last_use */
    int32_t n_compiled, n_loaded;                        /* programs compiled, and found in the cache on disk */
    int32_t *block;                                      /* the step block of the piece at hand */
    int32_t block_capacity;
    struct pjrt_buffer **args, **results;
    int32_t args_capacity, results_capacity;
    struct xla_piece *pieces;
    int32_t n_pieces, pieces_capacity;
    int32_t *wanted; /* rows of the pieces' outputs, one per logits row of the step */
    int32_t wanted_capacity;
    unsigned char *stage; /* for reading results */
    size_t stage_bytes;
};

/* the device */
int xla_device_open(const struct device_options *options, struct device **out, struct err *err);
void xla_device_close(struct device *d);
void xla_device_memory(struct device *d, uint64_t *out_free, uint64_t *out_total);
/* Whether the client runs on "cpu", "cuda", "gpu" ... */
bool xla_is_kind(const struct pjrt *p, struct str kind);

/* weights and memory */
int xla_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err);
void xla_weight_release(struct backend *be, struct weight *w);
int32_t xla_kv_number_bytes(const struct backend *be, const struct kv_class *k);
int xla_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err);
void xla_kv_close(struct backend *be);
int xla_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err);
int xla_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err);

/* programs */
/* The program for a shape of the current list: the one that is kept, or where all places are taken the cheapest that can do
 * its work, or a new one, for which the longest unused makes room. */
int xla_program_get(struct xla *x, struct xla_shape want, struct xla_executable **out, struct err *err);
void xla_programs_drop(struct xla *x);
/* Compiles a program, or loads it from the cache on disk. */
int xla_compile_cached(struct xla *x, struct str text, const char *what, struct pjrt_executable **out, struct err *err);
/* The context bucket of a length. */
int32_t xla_context_bucket(const struct kv_layout *layout, int32_t len);

/* steps */
bool xla_begin(struct backend *be, const struct step_key *key);
int xla_end(struct backend *be, const struct step *step, struct err *err);
int xla_reserve(struct backend *be, struct err *err);
int xla_read(struct backend *be, struct tensor t, void *dst, struct err *err);
void xla_pieces_drop(struct xla *x);

#endif
