/* A file of edits of weights: TOML with a table [[edit]] for each.
 *
 *     [[edit]]
 *     op = "interpolate"            # scale, add, interpolate, replace
 *     pattern = "*.mlp.*_proj"      # of paths without ".weight"
 *     source = "path/to/model"      # where the other weight is; not for scale
 *     source_key = "model.norm"     # what it is called there; without it, the same
 *     ratio = 0.3                   # scale: factor; add: alpha, 1 without it
 */
#ifndef MLXCEL_TOOLS_SURGERY_H
#define MLXCEL_TOOLS_SURGERY_H

#include "file/fused_view.h"

struct surgery {
    struct fused_edit *edits;
    size_t n_edits;
    struct checkpoint *sources; /* [n_edits], those that are open */
};

int surgery_open(struct arena *a, const char *path, struct surgery *out, struct err *err);
void surgery_close(struct surgery *s); /* zeroed is fine */

#endif
