/* From checkpoint tensors to bound weights.
 *
 * Layout is not architecture: fused, split, stacked, interleaved, transposed or renamed tensors are cured here, so that
 * forward sees one form. A weight is put together from parts: output rows, each taken from one role's tensor. q/k/v and
 * gate/up become one weight where their formats agree. What a mixer needs is bound by the mixer (mixer.h), through the
 * loader's functions below.
 */
#ifndef MLXCEL_MODEL_WEIGHTS_H
#define MLXCEL_MODEL_WEIGHTS_H

#include "base/map.h"
#include "file/adapter.h"
#include "model/spec.h"

enum role {
#define ROLE(id, side, axis, name) ROLE_##id,
#include "model/roles.def"
#undef ROLE
    N_ROLES
};

enum { TENSOR_DIMS = 5 };    /* a convolution over frames has five */
enum { DISTANCE_MAX = 128 }; /* of a table of distances: farther ones count as this */

struct tensor_info {
    struct str name;
    enum dtype dtype;
    int32_t n_dims;
    int64_t shape[TENSOR_DIMS];
    const void *handle; /* the store's */
};

/* What became of a tensor whose rows or columns are heads or channels, or of another that a layer has. Told to whoever takes parts out of a model. */
struct tensor_use {
    struct str path; /* '#' still standing for a number; lives as long as the call */
    enum role role;  /* what it is used as */
    int32_t layer;   /* -1: the whole model */
    enum cut_side side;
    enum cut_axis axis;      /* AXIS_NONE: it is not cut */
    int64_t n;               /* rows or columns that are used: the units of the axis, one behind the other */
    int64_t from, run, step; /* of rows: where they lie in the tensor (struct stack_part) */
    int64_t of;              /* rows or columns that the tensor has */
    bool is_transposed;      /* rows are its columns */
};

struct tensor_watch {
    void (*layers)(void *user, struct str before); /* what stands before a layer's number in names; lives as long as the call */
    void (*use)(void *user, const struct tensor_use *use);
    void *user;
};

struct model_weights;
/* Where a model's tensors come from: a checkpoint on disk, or made up on the spot. Names live as long as the store. */
struct tensor_store {
    bool (*find)(void *user, struct str name, struct tensor_info *out);
    int (*read)(void *user, const struct tensor_info *t, uint64_t offset, void *dst, size_t n, struct err *err);
    /* The declared format of a quantised matrix; called only for paths that have scales. */
    int (*format)(void *user, struct str path, struct format *out, struct err *err);
    /* The name of tensor i, to find what nobody read; {NULL, 0} past the last. NULL: nobody looks for that. */
    struct str (*name_at)(void *user, size_t i);
    /* What the file calls a path, for messages. NULL: the same. */
    struct str (*shown)(void *user, struct arena *a, struct str path);
    bool may_be_unread;                 /* tensors inside layers that nothing reads are no error */
    const struct model_weights *lender; /* of another model on the device, which lives longer: its embedding is this one's; NULL: none */
    bool lends_head;                    /* and its head, too */
    const struct tensor_watch *watch;   /* told while weights are bound; NULL: nobody is */
    void *user;
};

struct bound {
    struct weight *w, *bias; /* NULL when the checkpoint has none, or another rank has it */
    int64_t first, of;       /* of a part: its first row or matrix among all, and how many those are; of 0: it is no part */
};

struct model_weights {
    struct bound global[N_ROLES];
    struct bound (*layers)[N_ROLES];       /* [n_layers] */
    struct weight *ropes[ROPE_TABLES_MAX]; /* inverse frequencies; NULL: they depend on the length */
    struct act_args *acts;                 /* [n_layers] activations whose parameters are in the checkpoint; NULL: spec.act */
    struct weight **all;                   /* everything bound, for release */
    int32_t n_all, capacity;
    uint64_t bytes;
    int32_t n_adapters;
    const bool *fixed_adapters; /* [n_adapters] those that are used as they are or not at all: their magnitudes belong to one scale */
};

struct loader {
    struct arena *arena;  /* the model's */
    struct arena scratch; /* emptied after every weight */
    struct backend *backend;
    const struct tensor_store *store;
    const struct spec *spec;
    struct model_weights *out;
    struct map seen;        /* tensors that somebody asked for */
    struct str prefix;      /* before "layers.N": "model.", "language_model.model." ... */
    struct str head_prefix; /* before "lm_head" */
    struct str layers;      /* between the prefix and a layer's number */
    bool is_transposed;     /* matrices of the layers are stored [in, out] */
    int32_t reader;         /* of the weights that are bound now: a layer, or one of enum weight_reader */
    bool is_expert;         /* they are experts */
    struct adapter *adapters;
    int32_t n_adapters;
    struct rank rank;
    const struct layer_cut *cuts; /* [spec.n_layers]; NULL: the rank is alone */
    bool is_absent;               /* what is bound now is another rank's: it is looked for, and left in the file */
    bool keeps_whole;             /* it is not cut, whatever its roles say */
};

/* Adapters that go beside the weights; they are read while those are bound. */
struct weights_adapters {
    struct adapter *p;
    int32_t n;
};
/* Completes the spec by what only the store shows, then binds everything that it needs; adapters may be NULL. On failure nothing stays bound. */
int weights_bind(struct arena *a, struct backend *be, const struct tensor_store *store, struct spec *spec,
                 const struct weights_adapters *adapters, struct model_weights *out, struct err *err);
void weights_release(struct backend *be, struct model_weights *w);

/* ---- for the parts that bind a mixer's own weights; layer -1 is the whole model ----------------------------------- */

/* Whether the checkpoint has a role. *out (may be NULL) gets its path, '#' still standing for the expert. */
bool loader_find(struct loader *l, enum role role, int32_t layer, struct str *out);
bool loader_has(struct loader *l, enum role role, int32_t layer);

/* Roles that the checkpoint may have and the model has no use for. */
void loader_ignore(struct loader *l, const enum role *roles, int32_t n, int32_t layer);

/* Output rows taken from a role's tensor: row i of the part is row from + i / run * step + i % run of the tensor. */
struct stack_part {
    enum role role;
    int64_t out;             /* rows taken (of every expert) */
    int64_t from, run, step; /* run 0: one behind the other */
    int64_t of;              /* rows that the tensor has (per expert); 0: out */
    enum role as;            /* what it is: by this it is cut, and bound where the formats of the parts differ; 0: role */
    bool is_whole;           /* every rank has all of it */
};

struct matrix_args {
    enum role into;
    int32_t layer;
    const struct stack_part *parts;
    int32_t n_parts;
    int64_t in;
    int32_t n_experts;  /* 0: a plain matrix. Experts lie in one tensor, or in one each ('#' in the name) */
    bool is_transposed; /* stored [in, out]; plain types only */
};

/* Parts become one weight (and one bias) of role `into` where their formats agree, else each its own role's. */
int loader_assemble(struct loader *l, const struct matrix_args *a, struct err *err);
/* The two usual cases. A matrix [out, in] with its bias, if there is one; several on top of each other. */
int loader_matrix(struct loader *l, enum role role, int32_t layer, int64_t out, int64_t in, struct err *err);
int loader_stack(struct loader *l, enum role into, const struct stack_part *parts, int32_t n_parts, int32_t layer, int64_t in,
                 struct err *err);
/* A vector of n elements (norm weight), with its bias if there is one; required or not. '#' in its name: a tensor per head. */
int loader_vector(struct loader *l, enum role role, int32_t layer, int64_t n, bool required, struct err *err);
/* The n elements of a role's tensor plus `suffix` as f32; ERR_EFORMAT when absent or of another size. */
int loader_values(struct loader *l, enum role role, int32_t layer, const char *suffix, int64_t n, float *out, struct err *err);
/* The n elements of a tensor of any shape, as a vector in f32; the same of a role, of which each rank has its part. */
int loader_flat(struct loader *l, const struct tensor_info *t, int64_t n, struct weight **out, struct err *err);
int loader_flat_part(struct loader *l, enum role role, int32_t layer, const struct tensor_info *t, int64_t n, struct weight **out,
                     struct err *err);
/* The matrix that loader_assemble would bind, as f32 [n_experts * out, in]; *dtype is the smallest plain type that holds it. */
int loader_unpack(struct loader *l, const struct matrix_args *a, float *out, enum dtype *dtype, struct err *err);
/* A quantised matrix [out, in] by its path, which has scales: bound as it is, or as f32. */
int loader_quantised(struct loader *l, struct str path, int64_t out, int64_t in, struct weight **w, struct err *err);
int loader_dequantised(struct loader *l, struct str path, int64_t out, int64_t in, float *values, struct err *err);
/* Numbers that we computed ourselves: a vector in f32, or [n_experts, out, in] in a plain format. Nothing keeps `values`. */
int loader_constant(struct loader *l, const char *name, const float *values, int64_t n, struct weight **out, struct err *err);
int loader_made(struct loader *l, const struct weight_source *shape, const float *values, struct weight **out, struct err *err);

/* The rank's part of n made-up numbers of a role: *values and the count returned. */
int64_t loader_own(const struct loader *l, enum role role, int32_t layer, const float **values, int64_t n);
/* What of a layer, or of `units` where the axis counts all that a matrix has, is the rank's; of 0: all. */
struct cut_range loader_range(const struct loader *l, enum cut_axis axis, int32_t layer, int64_t units);
struct role_cut loader_cut(enum role role);
struct mixer;
/* A mixer's weights, or those that the rank has of them. */
int loader_bind_mixer(struct loader *l, const struct mixer *m, int32_t layer, struct err *err);

/* The feed-forward of a layer (ffn.c). */
int ffn_bind(struct loader *l, int32_t layer, struct err *err);
int ffn_bind_experts(struct loader *l, int32_t layer, struct err *err); /* router and experts, no shared one */

/* ---- adapters (adapt.c) -------------------------------------------------------------------------------------------- */

/* A part of a weight that was bound: rows of the tensor at `path` that became outputs from `first` on. */
struct adapted_part {
    struct str path;
    int64_t in, of, first, n;
    bool is_embedding;
    int64_t (*row)(const void *user, int64_t i);                       /* the tensor's row of output i */
    int (*unpack)(void *user, int64_t i, float *out, struct err *err); /* the weight's own numbers of output i, [in] */
    void *user;
};
/* What adapters have for these parts becomes the weight's. */
int adapt_weight(struct loader *l, struct weight *w, const struct adapted_part *parts, int32_t n_parts, struct err *err);
/* The head is the embedding's matrix: *w becomes a weight that shares its numbers, where adapters tell the two apart. */
int adapt_tied_head(struct loader *l, struct weight **w, struct err *err);
/* After everything is bound: an adapter's module that found no place is an error that names it. */
int adapt_check(const struct loader *l, struct err *err);

/* ---- between weights.c and assemble.c ----------------------------------------------------------------------------- */

struct str loader_path(const struct loader *l, enum role role, int32_t layer); /* the first of its names, for messages */
int64_t loader_tensor_elements(const struct tensor_info *t, int32_t n_dims);   /* of the first dimensions; INT64_MAX where it overflows */
bool loader_tensor(struct loader *l, struct str path, const char *suffix, int32_t expert, struct tensor_info *out);
bool loader_tensor_values(struct loader *l, struct str path, int32_t expert, struct tensor_info *out);
bool loader_tensor_bias(struct loader *l, struct str path, int32_t expert, struct tensor_info *out);
int loader_check_unread(const struct loader *l, struct err *err); /* after everything is bound (unread.c) */
int loader_missing(const struct loader *l, enum role role, int32_t layer, struct err *err);
int loader_bind(struct loader *l, const struct weight_source *source, struct weight **out, struct err *err);
int loader_read_f32(struct loader *l, const struct tensor_info *t, int64_t n, float *out, struct err *err);
struct bound *loader_slot(struct loader *l, enum role role, int32_t layer);

#endif
