/* Model families as rows of one table. Only families.c contains their names.
 *
 * A row holds what config.json does not say; zero means Llama. A column needs two families that use it, or one family
 * and under twenty lines. A family that changes the residual stream itself brings its own block function.
 */
#ifndef MLXCEL_MODEL_FAMILIES_H
#define MLXCEL_MODEL_FAMILIES_H

#include "model/spec.h"

enum family_flag {
    FAM_QKV_BIAS = 1 << 0, /* q, k and v have biases though config.json does not say so */
    FAM_TIED = 1 << 1,     /* tied embeddings unless config.json says otherwise */
};

struct family {
    const char *type;    /* model_type */
    const char *title;   /* for people */
    const char *pattern; /* one letter per layer, cyclic; NULL: "F". F full attention, S sliding ... */
    enum wiring wiring;
    enum norm_kind norm;
    float norm_offset;
    enum qk_norm qk_norm;
    enum rope_kind rope; /* 0: ROPE_HALF */
    enum act_kind act;   /* where config.json has no hidden_act; 0: silu */
    enum ffn_kind ffn;
    uint32_t flags;
};

extern const struct family families[];
extern const int32_t n_families;

/* NULL and an error with the nearest names when the type is unknown. */
const struct family *family_find(struct str type, struct err *err);

#endif
