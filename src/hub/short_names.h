/* Short names: what people type for a model instead of OWNER/NAME. Strings only; the store's part is in resolve.c (store_expand). */
#ifndef MLXCEL_HUB_SHORT_NAMES_H
#define MLXCEL_HUB_SHORT_NAMES_H

#include "hub/names.h"

/* "qwen3", "qwen3:0.6b", "qwen3:8bit" and "qwen3:0.6b-8bit", in any case: the repository that is meant. False: the table has no such name. */
bool hub_short_find(struct str text, char out[REPO_NAME_BYTES]);
/* Whether the table has the name before the colon; then `out` gets what may stand behind it, for a message. */
bool hub_short_sizes(struct str text, struct sb *out);
/* The short name of a repository, with its size: {NULL, 0} where it has none. */
struct str hub_short_of(struct arena *a, struct str id);

/* Of each name the largest size that runs within so many bytes, "qwen3:4b, gemma3:4b"; how many there are. */
size_t hub_short_fitting(uint64_t bytes, struct sb *out);

#endif
