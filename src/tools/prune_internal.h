/* Between the files of prune. */
#ifndef MLXCEL_TOOLS_PRUNE_INTERNAL_H
#define MLXCEL_TOOLS_PRUNE_INTERNAL_H

#include "model/weights.h"
#include "tools/prune.h"

/* A model as it was bound. */
struct prune_model {
    struct spec spec;
    struct str before; /* a layer's number */
    struct tensor_use *uses;
    size_t n_uses, capacity;
};

/* What a layer keeps. */
struct prune_layer {
    bool goes;
    bool *heads, *kv, *inner; /* [of the layer] those that go; NULL: none */
    int32_t n_heads, n_kv, n_inner;
};

struct prune {
    struct arena *arena;
    struct prune_model model;
    struct prune_layer *layers; /* [n_layers] */
    int32_t n_left;             /* layers */
    bool cuts_heads, cuts_inner;
};

/* Units of a layer along an axis, and which of them go. */
int64_t prune_units(const struct layer_spec *l, enum cut_axis axis);
const bool *prune_gone(const struct prune_layer *l, enum cut_axis axis);
/* The name that a tensor or path gets: the number of its layer is another. {NULL, 0}: it goes. */
struct str prune_name(const struct prune *p, struct arena *a, struct str name);
/* The new number of a layer: how many before it stay. */
int32_t prune_number(const struct prune *p, int64_t layer);
/* The config of what is left. */
void prune_config(const struct prune *p, const struct config *c, struct sb *out);
/* Binds a model and keeps what it was told. */
int prune_look(struct arena *a, const struct checkpoint *c, struct prune_model *out, struct err *err);
/* The layer whose keys and values a layer reads: itself, mostly. */
int32_t prune_look_writer(const struct spec *s, int32_t layer);
/* Whether the model that is left computes with the numbers that the old one would. */
int prune_look_compare(const struct prune *p, const struct prune_model *left, const char *path, struct err *err);

#endif
