/* One model on two devices: a card, and the host for what the card has no room for.
 *
 * A split is a backend like the others, made of two of them. The model's op list is cut where the device changes (cut.h); each piece is run by
 * the backend of its device, and what another piece reads of it passes through memory of the host. A layer's weights, cache and recurrent
 * state lie where the layer runs.
 *
 * (1) An op runs where its cache, its state or its weights lie; else where its layer does. So results do not depend on what is placed where,
 *     but for the rounding of the two devices; in exact precision they compute the same.
 * (2) Layers before `first_layer` are the host's, the others are the card's. Of those, the experts of layers before `experts_from` are the
 *     host's, too. The embedding is the host's, the head is the card's.
 * (3) In a step of many prompt rows, products with the host's weights run on the card, which copies these weights while it works (struct
 *     weight.is_borrowed). Caches and recurrent states stay where they are, and so do the ops that use them.
 * (4) Nothing here names a device: the card may be any backend that takes parts of steps (struct backend.takes_inputs).
 */
#ifndef MLXCEL_BACKEND_SPLIT_SPLIT_H
#define MLXCEL_BACKEND_SPLIT_SPLIT_H

#include "backend/backend.h"

enum split_side { SIDE_HOST, SIDE_CARD, N_SIDES };

/* What of a model lies where. */
struct split_plan {
    int32_t n_layers;
    int32_t first_layer;  /* of the card */
    int32_t experts_from; /* the first layer of the card whose experts are there, too; at most first_layer: all of them are */
    int32_t borrow_rows;  /* steps of so many prompt rows run the host's products on the card; 0: none does */
};

/* A context on both devices, which it holds until it is closed. */
int split_open(struct device *const devices[N_SIDES], const struct backend_options *options, const struct split_plan *plan,
               struct backend **out, struct err *err);

/* The contexts that this one is made of: itself alone where it is no split. Returns how many; out[i] and the cache that is in each. */
struct split_part {
    struct backend *be;
    struct kv_layout layout;
};
int32_t split_parts(struct backend *be, const struct kv_layout *layout, struct split_part out[N_SIDES]);
/* Bytes of weights on a side, of a split. */
uint64_t split_weight_bytes(const struct backend *be, enum split_side side);
bool split_is(const struct backend *be);

#endif
