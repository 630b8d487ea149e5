/* Open addressing over arrays that only grow. */
#include "text/grammar/intern.h"

#include "base/hash.h"

#include <string.h>

static uint32_t *rehash(uint32_t *old, uint32_t n_slots) {
    mem_free(old);
    return mem_alloc(n_slots * sizeof *old);
}

static uint64_t record_hash(const struct records *r, const void *record) {
    return hash_bytes(record, r->size, 0);
}

static void grow_record_slots(struct records *r) {
    r->n_slots = r->n_slots ? 2 * r->n_slots : 64;
    r->slots = rehash(r->slots, r->n_slots);
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t at = (uint32_t)record_hash(r, records_get(r, i)) & (r->n_slots - 1);
        while (r->slots[at]) at = (at + 1) & (r->n_slots - 1);
        r->slots[at] = i + 1;
    }
}

uint32_t gram_records_put(struct records *r, const void *record) {
    if (2 * (r->n + 1) > r->n_slots) grow_record_slots(r);
    uint32_t at = (uint32_t)record_hash(r, record) & (r->n_slots - 1);
    for (; r->slots[at]; at = (at + 1) & (r->n_slots - 1))
        if (memcmp(records_get(r, r->slots[at] - 1), record, r->size) == 0) return r->slots[at] - 1;
    if (r->n == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 32;
        r->p = mem_realloc(r->p, r->capacity * r->size);
    }
    memcpy(r->p + (size_t)r->n * r->size, record, r->size);
    r->slots[at] = r->n + 1;
    return r->n++;
}

uint32_t gram_records_find(const struct records *r, const void *record) {
    if (!r->n) return UINT32_MAX;
    uint32_t at = (uint32_t)record_hash(r, record) & (r->n_slots - 1);
    for (; r->slots[at]; at = (at + 1) & (r->n_slots - 1))
        if (memcmp(records_get(r, r->slots[at] - 1), record, r->size) == 0) return r->slots[at] - 1;
    return UINT32_MAX;
}

void gram_records_free(struct records *r) {
    mem_free(r->p);
    mem_free(r->slots);
    *r = (struct records){.size = r->size};
}

size_t gram_records_bytes(const struct records *r) {
    return r->capacity * r->size + r->n_slots * sizeof *r->slots;
}

static uint64_t list_hash(const uint32_t *items, uint32_t n) {
    return hash_bytes(items, n * sizeof *items, n);
}

static void grow_list_slots(struct lists *l) {
    l->n_slots = l->n_slots ? 2 * l->n_slots : 64;
    l->slots = rehash(l->slots, l->n_slots);
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t at = (uint32_t)list_hash(l->data + l->refs[i].at, l->refs[i].n) & (l->n_slots - 1);
        while (l->slots[at]) at = (at + 1) & (l->n_slots - 1);
        l->slots[at] = i + 1;
    }
}

static void keep_list(struct lists *l, const uint32_t *items, uint32_t n) {
    if (l->n == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 32;
        l->refs = mem_realloc(l->refs, l->capacity * sizeof *l->refs);
    }
    if (l->n_data + n > l->data_capacity) {
        l->data_capacity = 2 * (l->n_data + n);
        l->data = mem_realloc(l->data, l->data_capacity * sizeof *l->data);
    }
    if (n) memcpy(l->data + l->n_data, items, n * sizeof *items);
    l->refs[l->n++] = (struct list_ref){l->n_data, n};
    l->n_data += n;
}

uint32_t gram_lists_put(struct lists *l, const uint32_t *items, uint32_t n) {
    if (2 * (l->n + 1) > l->n_slots) grow_list_slots(l);
    uint32_t at = (uint32_t)list_hash(items, n) & (l->n_slots - 1);
    for (; l->slots[at]; at = (at + 1) & (l->n_slots - 1)) {
        const struct list_ref *r = &l->refs[l->slots[at] - 1];
        if (r->n == n && (!n || memcmp(l->data + r->at, items, n * sizeof *items) == 0)) return l->slots[at] - 1;
    }
    keep_list(l, items, n);
    l->slots[at] = l->n;
    return l->n - 1;
}

void gram_lists_free(struct lists *l) {
    mem_free(l->data);
    mem_free(l->refs);
    mem_free(l->slots);
    *l = (struct lists){0};
}

size_t gram_lists_bytes(const struct lists *l) {
    return l->data_capacity * sizeof *l->data + l->capacity * sizeof *l->refs + l->n_slots * sizeof *l->slots;
}
