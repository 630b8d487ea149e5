/* The forward pass of every family: straight C that says ops. */
#ifndef MLXCEL_MODEL_FORWARD_H
#define MLXCEL_MODEL_FORWARD_H

#include "model/weights.h"

/* What somebody reads of the stream, of all rows of a step: what goes into layer at[i]; at[i] = n_layers: what comes out of the last. */
enum { STATE_TAPS = 3 };
struct taps {
    int32_t n, at[STATE_TAPS];
    bool is_normed; /* that of the last layer's output is behind the final norm */
};
enum { LOOKED_AT_SETS = 2 }; /* of rows that the host gives where pictures are looked at: those that pass by (cross.c) */

struct model {
    struct spec spec;
    struct model_weights weights;
    /* What the tower of a model that sees adds to the spec. */
    int32_t
        n_given; /* sets of rows that stand for pictures: the first instead of embeddings, others added behind the first layers; 0: none */
    bool is_draft_head; /* those sets are states of a model that it helps (draft_head.h) */
    struct taps taps;
    bool is_prefix;       /* as in the spec, or because of the tower */
    bool sees_in_windows; /* rows of one picture see each other in layers with a window alone */
};

/* What a block works with. */
struct pass {
    struct oplist *l;
    const struct model *m;
    const struct layer_spec *layer;
    const struct bound *w; /* the layer's weights, by role */
    struct tensor extra;   /* a stream's own second input to the layers */
    struct tensor *picks;  /* the positions that the last index chose */
    struct tensor *beside; /* what an earlier layer left for later ones */
};

/* A family that changes the residual stream itself. Every function may be NULL: the usual thing is done then. */
struct stream {
    int (*resolve)(struct resolver *r, struct err *err);
    int (*settle)(struct loader *l, struct spec *spec, struct err *err); /* as that of a mixer, for the whole model */
    int (*bind)(struct loader *l, int32_t layer, struct err *err);       /* layer -1: what belongs to no layer */
    struct tensor (*enter)(struct pass *p, struct tensor embedded);
    struct tensor (*block)(const struct pass *p, struct tensor x);
    struct tensor (*leave)(const struct pass *p, struct tensor x); /* of the rows whose logits are wanted */
};

/* Emits the pass for the list's rows; returns the hidden states of the wanted rows behind the final norm [n_wanted, 1, hidden]. taps, [m->taps.n], get
 * what those say, [rows, 1, hidden] each; NULL: nobody reads them. */
struct tensor forward_hidden(const struct model *m, struct oplist *l, struct tensor *taps);
/* Keys and values of pictures for the layers that look at them: the list's rows are states that the host gives, and nothing comes out. */
void forward_states(const struct model *m, struct oplist *l);
/* The logits of hidden states [rows, 1, vocab]. */
struct tensor forward_head(const struct model *m, struct oplist *l, struct tensor hidden);

/* Shared by the blocks and mixers. */
struct tensor pass_norm(const struct pass *p, struct tensor x, const struct bound *w);
struct tensor pass_linear(const struct pass *p, struct tensor x, enum role role);
/* For a product whose rounding the ops behind it magnify (linear_args.wide); others are wide where the whole model is. */
struct tensor pass_linear_wide(const struct pass *p, struct tensor x, enum role role);
/* y + up(down(x)), where the layer has these two. */
struct tensor pass_low_rank(const struct pass *p, struct tensor y, struct tensor x, enum role down, enum role up);
struct tensor pass_mix(const struct pass *p, struct tensor x); /* the layer's mixer */
struct mixer;
/* A rank's part of what a mixer makes, which pass_sum adds up. */
struct tensor pass_mix_part(const struct pass *p, const struct mixer *m, struct tensor x);
/* Of several ranks: the sum of what each has; one without a part brings zeros of x's shape. A rank alone: x. */
struct tensor pass_sum(const struct pass *p, struct tensor x);
struct tensor pass_nothing(const struct pass *p, struct tensor x);
/* [rows, 1, part.n * k] of every rank behind each other, [rows, 1, part.of * k]; and the rank's own of such. */
struct tensor pass_gather(const struct pass *p, struct tensor x, struct cut_range part);
struct tensor pass_own(struct tensor x, struct cut_range part);
/* Rows of a table of the vocabulary, of which each rank has a part. */
struct tensor pass_embed(const struct pass *p, const struct bound *table, const struct embed_args *args);
struct tensor pass_block(const struct pass *p, struct tensor x); /* the usual block */
struct tensor pass_rope(const struct pass *p, struct tensor x);  /* by the layer's table, if it has one */
struct tensor feed_forward(const struct pass *p, struct tensor x);
struct tensor feed_forward_part(const struct pass *p, struct tensor x);                         /* what a rank has of it */
struct tensor pass_experts(const struct pass *p, struct tensor x, struct tensor router_logits); /* without a shared one */

#endif
