/* Blocks and slots: who holds which piece of the KV cache and of the recurrent state.
 *
 * (1) A block belongs to a class and holds 64 positions of all layers of that class. It may have several readers; one
 *     with more than one is never written: the writer copies it first.
 * (2) Block 0 of every class is reserved: padded rows of a step write there. It is never handed out.
 * (3) Shortage is a scheduling fact, not an error: kv_block_get answers -1.
 * (4) Memory lies with the backend; here are only numbers.
 */
#ifndef MLXCEL_ENGINE_KV_H
#define MLXCEL_ENGINE_KV_H

#include "backend/backend.h"

struct kv_pool {
    int32_t *free; /* stack of free blocks */
    int32_t n_free, n_blocks;
    uint16_t *n_readers;
    bool *is_cached; /* one of the readers is the prefix cache */
    int32_t n_idle;  /* blocks that it alone reads */
};

struct kv {
    struct kv_layout layout;
    struct kv_pool pools[KV_CLASSES_MAX];
    int32_t *free_slots;
    int32_t n_free_slots;
};

/* layout.classes[i].n_blocks and n_slots must be filled in. */
void kv_init(struct kv *kv, const struct kv_layout *layout);
void kv_free(struct kv *kv);
int32_t kv_block_get(struct kv *kv, int32_t kv_class);
void kv_block_share(struct kv *kv, int32_t kv_class, int32_t block);
void kv_block_put(struct kv *kv, int32_t kv_class, int32_t block);
/* The prefix cache begins and ends to be a reader of a block. */
void kv_block_cache(struct kv *kv, int32_t kv_class, int32_t block);
void kv_block_uncache(struct kv *kv, int32_t kv_class, int32_t block);
int32_t kv_slot_get(struct kv *kv); /* -1 when none is free */
void kv_slot_put(struct kv *kv, int32_t slot);

#endif
