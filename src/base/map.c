/* The string map: entries in an array, slots hold their indices, linear probing at most half full. */
#include "base/map.h"

#include "base/hash.h"

static size_t slot_of(const struct map *m, struct str key, uint64_t hash) {
    size_t mask = m->n_slots - 1;
    size_t i = (size_t)hash & mask;
    for (; m->slots[i]; i = (i + 1) & mask) {
        const struct map_entry *e = &m->entries[m->slots[i] - 1];
        if (e->hash == hash && str_eq(e->key, key)) break;
    }
    return i;
}

struct map_entry *map_find(const struct map *m, struct str key) {
    if (!m->n_slots) return NULL;
    uint32_t index = m->slots[slot_of(m, key, hash_bytes(key.p, key.n, hash_seed()))];
    return index ? &m->entries[index - 1] : NULL;
}

static void grow(struct map *m) {
    m->capacity = m->capacity ? m->capacity * 2 : 16;
    m->entries = mem_realloc(m->entries, m->capacity * sizeof *m->entries);
    mem_free(m->slots);
    m->n_slots = m->capacity * 2;
    m->slots = mem_alloc(m->n_slots * sizeof *m->slots);
    for (size_t i = 0; i < m->n; i++) m->slots[slot_of(m, m->entries[i].key, m->entries[i].hash)] = (uint32_t)i + 1;
}

struct map_entry *map_put(struct map *m, struct str key, bool *out_new) {
    uint64_t hash = hash_bytes(key.p, key.n, hash_seed());
    if (m->n_slots) {
        uint32_t index = m->slots[slot_of(m, key, hash)];
        if (index) {
            if (out_new) *out_new = false;
            return &m->entries[index - 1];
        }
    }
    if (m->n == m->capacity) grow(m);
    struct map_entry *e = &m->entries[m->n++];
    *e = (struct map_entry){.key = key, .hash = hash};
    m->slots[slot_of(m, key, hash)] = (uint32_t)m->n;
    if (out_new) *out_new = true;
    return e;
}

void map_free(struct map *m) {
    mem_free(m->entries);
    mem_free(m->slots);
    *m = (struct map){0};
}
