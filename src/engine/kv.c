/* Blocks and slots: stacks of free numbers and reader counts. */
#include "engine/kv.h"

#include <assert.h>

static void pool_init(struct kv_pool *p, int32_t n_blocks) {
    p->n_blocks = n_blocks;
    p->free = mem_alloc((size_t)n_blocks * sizeof *p->free);
    p->n_readers = mem_alloc((size_t)n_blocks * sizeof *p->n_readers);
    p->is_cached = mem_alloc((size_t)n_blocks * sizeof *p->is_cached);
    for (int32_t b = n_blocks - 1; b > 0; b--) p->free[p->n_free++] = b; /* low numbers first; 0 is reserved */
}

void kv_init(struct kv *kv, const struct kv_layout *layout) {
    *kv = (struct kv){.layout = *layout};
    for (int32_t i = 0; i < layout->n_classes; i++) pool_init(&kv->pools[i], layout->classes[i].n_blocks);
    kv->free_slots = mem_alloc((size_t)(layout->n_slots ? layout->n_slots : 1) * sizeof *kv->free_slots);
    for (int32_t s = layout->n_slots - 1; s >= 0; s--) kv->free_slots[kv->n_free_slots++] = s;
}

void kv_free(struct kv *kv) {
    for (int32_t i = 0; i < kv->layout.n_classes; i++) {
        mem_free(kv->pools[i].free);
        mem_free(kv->pools[i].n_readers);
        mem_free(kv->pools[i].is_cached);
    }
    mem_free(kv->free_slots);
    *kv = (struct kv){0};
}

int32_t kv_block_get(struct kv *kv, int32_t kv_class) {
    struct kv_pool *p = &kv->pools[kv_class];
    if (p->n_free == 0) return -1;
    int32_t block = p->free[--p->n_free];
    p->n_readers[block] = 1;
    return block;
}

/* Changes the number of readers; keeps the count of idle blocks. */
static void count_reader(struct kv_pool *p, int32_t block, int32_t by) {
    assert(block > 0 && p->n_readers[block] > 0);
    p->n_idle -= p->is_cached[block] && p->n_readers[block] == 1;
    p->n_readers[block] = (uint16_t)(p->n_readers[block] + by);
    p->n_idle += p->is_cached[block] && p->n_readers[block] == 1;
    if (p->n_readers[block] == 0) p->free[p->n_free++] = block;
}

void kv_block_share(struct kv *kv, int32_t kv_class, int32_t block) {
    count_reader(&kv->pools[kv_class], block, 1);
}

void kv_block_put(struct kv *kv, int32_t kv_class, int32_t block) {
    count_reader(&kv->pools[kv_class], block, -1);
}

void kv_block_cache(struct kv *kv, int32_t kv_class, int32_t block) {
    struct kv_pool *p = &kv->pools[kv_class];
    assert(!p->is_cached[block]);
    count_reader(p, block, 1);
    p->is_cached[block] = true;
}

void kv_block_uncache(struct kv *kv, int32_t kv_class, int32_t block) {
    struct kv_pool *p = &kv->pools[kv_class];
    assert(p->is_cached[block]);
    p->n_idle -= p->n_readers[block] == 1;
    p->is_cached[block] = false;
    count_reader(p, block, -1);
}

int32_t kv_slot_get(struct kv *kv) {
    return kv->n_free_slots ? kv->free_slots[--kv->n_free_slots] : -1;
}

void kv_slot_put(struct kv *kv, int32_t slot) {
    kv->free_slots[kv->n_free_slots++] = slot;
}
