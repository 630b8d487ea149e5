/* The forward pass of every family: straight C that says ops. */
#ifndef MLXCEL_MODEL_FORWARD_H
#define MLXCEL_MODEL_FORWARD_H

#include "model/weights.h"

struct model {
    struct spec spec;
    struct model_weights weights;
};

/* What a block works with. */
struct pass {
    struct oplist *l;
    const struct model *m;
    const struct layer_spec *layer;
    const struct bound *w; /* the layer's weights, by role */
};

/* Emits the whole pass for the list's rows; returns the logits of the wanted rows [n_logits, 1, vocab]. */
struct tensor forward(const struct model *m, struct oplist *l);

/* Shared by the blocks and mixers. */
struct tensor pass_norm(const struct pass *p, struct tensor x, const struct bound *w);
struct tensor mix_attention(const struct pass *p, struct tensor x);
struct tensor feed_forward(const struct pass *p, struct tensor x);

#endif
