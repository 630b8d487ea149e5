/* Tables that give equal things equal numbers, from 0 on: records of a fixed size, and lists of numbers. */
#ifndef MLXCEL_TEXT_GRAMMAR_INTERN_H
#define MLXCEL_TEXT_GRAMMAR_INTERN_H

#include "base/arena.h"

#include <stdbool.h>

struct records { /* `size` set, the rest zero: empty. Records are compared as bytes: they must have no holes */
    size_t size;
    uint8_t *p;
    uint32_t n, capacity;
    uint32_t *slots, n_slots; /* number + 1; 0: free */
};

uint32_t gram_records_put(struct records *r, const void *record);
/* The number of a record; UINT32_MAX: it has none. */
uint32_t gram_records_find(const struct records *r, const void *record);
static inline const void *records_get(const struct records *r, uint32_t i) {
    return r->p + (size_t)i * r->size;
}
void gram_records_free(struct records *r);
size_t gram_records_bytes(const struct records *r);

struct list_ref {
    uint32_t at, n;
};

struct lists { /* zeroed: empty */
    uint32_t *data;
    uint32_t n_data, data_capacity;
    struct list_ref *refs;
    uint32_t n, capacity;
    uint32_t *slots, n_slots;
};

uint32_t gram_lists_put(struct lists *l, const uint32_t *items, uint32_t n);
/* Valid until the next put; NULL for the empty list. */
static inline const uint32_t *lists_get(const struct lists *l, uint32_t i, uint32_t *out_n) {
    *out_n = l->refs[i].n;
    return *out_n ? l->data + l->refs[i].at : NULL;
}
void gram_lists_free(struct lists *l);
size_t gram_lists_bytes(const struct lists *l);

#endif
