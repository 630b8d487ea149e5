/* A file of edits of weights: TOML with a table [[edit]] for each, or YAML with a list of operations (docs/adapters.md has the keys).
 *
 *     [[edit]]                      # version: 1
 *     op = "interpolate"            # operations:
 *     pattern = "*.mlp.*_proj"      #   - {op: interpolate, pattern: "*.mlp.*_proj", source: path/to/model, ratio: 0.3}
 *     source = "path/to/model"
 *     ratio = 0.3
 */
#ifndef MLXCEL_TOOLS_SURGERY_H
#define MLXCEL_TOOLS_SURGERY_H

#include "tools/prune.h"

struct surgery {
    struct fused_edit *edits;
    size_t n_edits;
    struct prune_edit *prunes;
    size_t n_prunes;
    struct checkpoint *sources; /* [n_sources], those that are open */
    size_t n_sources;
};

int surgery_open(struct arena *a, const char *path, struct surgery *out, struct err *err);
/* All of it done to a checkpoint that is open. *out_view lives as long as that is read; formats is as of prune_apply. */
int surgery_apply(struct surgery *s, struct checkpoint *c, struct map *formats, struct fused_view **out_view, struct err *err);
void surgery_close(struct surgery *s); /* zeroed is fine */

#endif
