/* Which files of a model folder hold its weights. */
#ifndef MLXCEL_FILE_SHARDS_H
#define MLXCEL_FILE_SHARDS_H

#include "base/json.h"
#include "base/map.h"

struct shard_list {
    struct str *names; /* [n], sorted */
    size_t n;
    yyjson_val *index; /* weight_map of the index that was followed; NULL: none, or it was stale */
};

/* dir ends without a separator. */
int shards_find(struct arena *a, const char *dir, struct shard_list *out, struct err *err);

#endif
