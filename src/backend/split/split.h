/* One model on several devices: cards, each with a run of layers, and the host for what they have no room for.
 *
 * A split is a backend like the others, made of several of them, its sides. The model's op list is cut where the device changes (cut.h); each piece is run
 * by the backend of its side, and what another piece reads of it passes through memory of the host. A layer's weights, cache and recurrent
 * state lie where the layer runs.
 *
 * (1) An op runs where its cache, its state or its weights lie; else where its layer does. So results do not depend on what is placed where,
 *     but for the rounding of the devices; in exact precision they compute the same.
 * (2) Sides have layers in their order: first the host, then the cards. Of the cards' layers, the experts of those before `experts_from` are the
 *     host's, too. The embedding is the first side's, the head the last one's.
 * (3) In a step of many prompt rows, products with the host's weights run on a card, which copies these weights while it works (struct
 *     weight.is_borrowed): the first one's for layers of the host, else that of the layer. Recurrent states stay where they are, and so do the ops
 *     that use them. The host's cache stays there too; the first card computes with it where it can (kv_borrow), else the host does.
 * (4) Nothing here names a device: a card may be any backend that takes parts of steps (struct backend.takes_inputs). There may be no host.
 */
#ifndef MLXCEL_BACKEND_SPLIT_SPLIT_H
#define MLXCEL_BACKEND_SPLIT_SPLIT_H

#include "backend/backend.h"

/* Sides are numbered: the host, the first card, and those behind it. */
enum { SIDE_HOST, SIDE_CARD, SPLIT_CARDS_MAX = 16, SIDES_MAX = SIDE_CARD + SPLIT_CARDS_MAX };

/* What of a model lies where. */
struct split_plan {
    int32_t n_layers, n_cards;
    int32_t first_layers[SIDES_MAX]; /* of each side, ascending, 0 of the host: it has those before the next side's first */
    int32_t experts_from; /* the first layer of a card whose experts are there, too; at most that of SIDE_CARD: all of them are */
    int32_t borrow_rows;  /* steps of so many prompt rows run the host's products on a card; 0: none does */
};

/* The layer behind the last one of a side. */
int32_t split_plan_end(const struct split_plan *plan, int32_t side);
/* The side that runs a layer. */
int32_t split_plan_side(const struct split_plan *plan, int32_t layer);

/* A context on all of these devices, which it holds until it is closed. devices[SIDE_HOST] is NULL where the cards have everything. */
int split_open(struct device *const devices[SIDES_MAX], const struct backend_options *options, const struct split_plan *plan,
               struct backend **out, struct err *err);

/* The contexts that this one is made of: itself alone where it is no split. Returns how many; out[i] and the cache that is in each. */
struct split_part {
    struct backend *be;
    struct kv_layout layout;
    bool is_card; /* of a split */
};
int32_t split_parts(struct backend *be, const struct kv_layout *layout, struct split_part out[SIDES_MAX]);
/* Bytes of weights on a side, of a split. */
uint64_t split_weight_bytes(const struct backend *be, int32_t side);
bool split_is(const struct backend *be);

#endif
