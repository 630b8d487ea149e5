/* The size of a cache, by the device's own types. */
#include "engine/kv_size.h"

/* A cache of 8 or 4 bits has a scale for each vector. */
uint64_t kv_read_bytes(const struct backend *be, const struct kv_class *k) {
    uint64_t each = be->type->kv_number_bytes ? (uint64_t)be->type->kv_number_bytes(be, k) : sizeof(float),
             numbers = (uint64_t)(k->k_width + k->v_width);
    uint64_t per_head = be->kv_bits ? numbers * (uint64_t)be->kv_bits / 8 + 2 * sizeof(float) : numbers * each;
    return (uint64_t)k->n_layers * (uint64_t)k->heads * per_head;
}

uint64_t kv_position_bytes(const struct backend *be, const struct kv_class *k) {
    uint64_t aside = be->type->kv_aside_bytes ? (uint64_t)be->type->kv_aside_bytes(be, k) : 0;
    return kv_read_bytes(be, k) + (uint64_t)k->heads * aside;
}

uint64_t kv_state_bytes(const struct kv_layout *l) {
    uint64_t elements = 0;
    for (int32_t i = 0; i < l->n_states; i++) elements += (uint64_t)l->states[i].elements;
    return elements * sizeof(float);
}

uint64_t kv_layout_bytes(const struct backend *be, const struct kv_layout *l) {
    uint64_t bytes = kv_state_bytes(l) * (uint64_t)l->n_slots;
    for (int32_t i = 0; i < l->n_classes; i++) bytes += kv_position_bytes(be, &l->classes[i]) * (uint64_t)l->classes[i].n_blocks * KV_BLOCK;
    return bytes;
}
