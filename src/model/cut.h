/* Which part of a model a rank has (docs/ranks.md).
 *
 * Each role says in roles.def along which of its sides it is cut, and by what: heads, the width of the feed-forward, experts, the vocabulary. The parts of a
 * layer are ranges of those, which every rank computes for itself from shapes, formats and its number. What is left over is a whole number of heads or of
 * quantised groups: ranks may have parts of unlike size, and a rank without one contributes zeros.
 *
 * (1) The loader binds parts: it is asked for whole matrices, and leaves rows, columns or experts of other ranks in the file.
 * (2) Behind that the spec is the rank's own: forward and the engine see its heads and its width.
 * (3) A mixer that cannot be cut is one rank's, layer by layer in turn.
 */
#ifndef MLXCEL_MODEL_CUT_H
#define MLXCEL_MODEL_CUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Sides of a weight [n_experts, out, in]. */
enum cut_side {
    CUT_WHOLE,    /* every rank has all of it */
    CUT_ROWS,     /* along out, and so its bias */
    CUT_COLUMNS,  /* along in: results are parts of a sum, and the bias is the first part's */
    CUT_MATRICES, /* along n_experts */
    CUT_SUMMED,   /* whole, but what it is applied to are parts of a sum: the bias is the first rank's */
};

enum cut_axis {
    AXIS_NONE,
    AXIS_HEADS,   /* of queries */
    AXIS_KV,      /* of keys and values; repeated where there are fewer of them than ranks */
    AXIS_INNER,   /* elements of the feed-forward's width */
    AXIS_SHARED,  /* the same of the shared expert */
    AXIS_UNITS,   /* what a recurrent layer or a compressed attention consists of */
    AXIS_EXPERTS, /* all experts of the matrix */
    AXIS_VOCAB,   /* all rows of the matrix */
    N_AXES
};

struct role_cut {
    enum cut_side side;
    enum cut_axis axis;
};

/* Units [first, first + n) of `of`; of 0: it is not cut. */
struct cut_range {
    int64_t first, n, of;
};

struct layer_cut {
    struct cut_range axes[N_AXES];
    bool no_attention, no_recurrence; /* other ranks have all of that */
};

/* A rank of so many. */
struct rank {
    int32_t i, n;
};

/* Its part of so many units, in whole steps of `step` units; the last step may be shorter. */
struct cut_range cut_share(int64_t units, int64_t step, struct rank r);

/* Its heads of attention. Columns are cut where v_width * heads is a multiple of `group`. */
struct cut_heads {
    int32_t heads, kv_heads, v_width, group;
};
void cut_attention(const struct cut_heads *h, struct rank r, struct cut_range *out_heads, struct cut_range *out_kv);

struct loader;
struct spec;
/* The cuts of every layer, [n_layers], in the loader's arena; NULL for a rank alone. What cannot be cut is an error that names it. */
int cut_plan(struct loader *l, struct layer_cut **out, struct err *err);
/* The spec of the rank's own part. */
void cut_spec(const struct loader *l, struct spec *spec);

#endif
