/* Taking parts out of a model: layers, heads of attention, channels of the feed-forward.
 *
 * (1) Which rows and columns belong to a part, the loader says: it binds the model to a backend that keeps nothing, and tells what became of each tensor.
 * (2) What is left is bound the same way, and compared with what it was: a part that config.json or a layout cannot say is an error before anything
 *     is written.
 * (3) Where layers would lose different numbers of heads or channels, which config.json has one number for, the shapes stay, and the columns that
 *     read those heads or channels become zeros: the model computes the same.
 * (4) Numbers of parts are those of the model as it was, in all edits.
 */
#ifndef MLXCEL_TOOLS_PRUNE_H
#define MLXCEL_TOOLS_PRUNE_H

#include "file/fused_view.h"

enum prune_part { PRUNE_LAYERS, PRUNE_HEADS, PRUNE_CHANNELS, N_PRUNE_PARTS };

struct prune_range {
    int64_t first, last;
};

struct prune_edit {
    enum prune_part part;
    struct str pattern; /* of layers: of all their tensors; else of what reads the heads or channels. {NULL, 0}: all layers */
    const struct prune_range *ranges;
    size_t n_ranges;
    const char *where; /* before messages: "edits.toml:7" */
};

struct prune;
/* What of the model goes, and in *out_masks what becomes zeros instead. Everything lives in the arena. n_edits 0 gives *out NULL. */
int prune_plan(struct arena *a, const struct checkpoint *c, const struct prune_edit *edits, size_t n_edits, struct prune **out,
               struct fused_changes *out_masks, struct err *err);
/* Changes the tensors and the config of the checkpoint. formats, by path, are those that matrices get when they are written. p NULL: nothing. */
int prune_apply(struct prune *p, struct checkpoint *c, struct map *formats, struct err *err);

#endif
