/* From checkpoint tensors to bound weights.
 *
 * Layout is not architecture: fused, split, stacked, interleaved or renamed tensors are cured here, so that forward sees
 * one form. A weight is put together from segments: runs of output rows, each taken from one tensor of the store.
 * q/k/v and gate/up become one weight where their formats agree.
 */
#ifndef MLXCEL_MODEL_WEIGHTS_H
#define MLXCEL_MODEL_WEIGHTS_H

#include "model/spec.h"

enum role {
#define ROLE(id, name) ROLE_##id,
#include "model/roles.def"
#undef ROLE
    N_ROLES
};

enum { TENSOR_DIMS = 4 };

struct tensor_info {
    struct str name;
    enum dtype dtype;
    int32_t n_dims;
    int64_t shape[TENSOR_DIMS];
    const void *handle; /* the store's */
};

/* Where a model's tensors come from: a checkpoint on disk, or made up on the spot. */
struct tensor_store {
    bool (*find)(void *user, struct str name, struct tensor_info *out);
    int (*read)(void *user, const struct tensor_info *t, uint64_t offset, void *dst, size_t n, struct err *err);
    /* The declared format of a quantised matrix; called only for paths that have scales. */
    int (*format)(void *user, struct str path, struct format *out, struct err *err);
    void *user;
};

struct bound {
    struct weight *w, *bias; /* NULL when the checkpoint has none */
};

struct model_weights {
    struct bound global[N_ROLES];
    struct bound (*layers)[N_ROLES]; /* [n_layers] */
    struct weight **all;             /* everything bound, for release */
    int32_t n_all, capacity;
    uint64_t bytes;
};

struct loader {
    struct arena *arena;
    struct backend *backend;
    const struct tensor_store *store;
    const struct spec *spec;
    struct model_weights *out;
    struct str prefix;     /* before "layers.N": "model.", "language_model.model." ... */
    struct str head_prefix; /* before "lm_head" */
};

/* Binds everything the spec needs. On failure nothing stays bound. */
int weights_bind(struct arena *a, struct backend *be, const struct tensor_store *store, struct spec *spec, struct model_weights *out, struct err *err);
void weights_release(struct backend *be, struct model_weights *w);

/* ---- for the parts that bind a mixer's own weights -------------------------------------------------------------- */

struct str loader_path(const struct loader *l, enum role role, int32_t layer);
bool loader_has(const struct loader *l, enum role role, int32_t layer);
/* A matrix [out, in] with its bias, if there is one. */
int loader_matrix(struct loader *l, enum role role, int32_t layer, int64_t out, int64_t in, struct err *err);
/* Several matrices stacked into one weight of role `into` where their formats agree, else each under its own role. */
struct stack_part {
    enum role role;
    int64_t out;
};
int loader_stack(struct loader *l, enum role into, const struct stack_part *parts, int32_t n_parts, int32_t layer, int64_t in, struct err *err);
/* A vector of n elements (norm weight), with its bias if there is one; required or not. */
int loader_vector(struct loader *l, enum role role, int32_t layer, int64_t n, bool required, struct err *err);
/* Elements that we computed ourselves, as a vector weight. */
int loader_constant(struct loader *l, const char *name, const float *values, int64_t n, struct weight **out, struct err *err);

#endif
