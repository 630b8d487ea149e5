/* A hash map from strings to a 64-bit value (a number or a pointer), open addressing, insertion order kept.
 *
 * Keys are not copied: they must live as long as the map (usually in the same arena). Zeroed storage is an empty map.
 */
#ifndef MLXCEL_BASE_MAP_H
#define MLXCEL_BASE_MAP_H

#include "base/str.h"

struct map_entry {
    struct str key;
    union {
        int64_t i;
        void *ptr;
    } value;
    uint64_t hash;
};

struct map {
    struct map_entry *entries; /* [n], in order of insertion */
    uint32_t *slots;           /* index + 1 into entries; 0 = empty */
    size_t n, capacity, n_slots;
};

/* The entry of key, or NULL. */
struct map_entry *map_find(const struct map *m, struct str key);
/* The entry of key, made (value 0) when absent; *out_new tells which, and may be NULL. */
struct map_entry *map_put(struct map *m, struct str key, bool *out_new);
void map_free(struct map *m);

static inline void *map_get_ptr(const struct map *m, struct str key) {
    struct map_entry *e = map_find(m, key);
    return e ? e->value.ptr : NULL;
}
static inline int64_t map_get_int(const struct map *m, struct str key, int64_t absent) {
    struct map_entry *e = map_find(m, key);
    return e ? e->value.i : absent;
}

#endif
