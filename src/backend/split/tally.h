/* What a model's weights and steps take, by layer, without binding anything: for plans that are made before a model is loaded.
 *
 * A tally is a backend that counts: weight_bind adds the bytes of the planes and reads none of them. Its list can be walked, and planned.
 */
#ifndef MLXCEL_BACKEND_SPLIT_TALLY_H
#define MLXCEL_BACKEND_SPLIT_TALLY_H

#include "backend/backend.h"

struct tally {
    int32_t n_layers;
    uint64_t *layers, *experts;         /* [n_layers] a layer without its experts, its experts */
    uint64_t before, behind, ends, all; /* as enum weight_reader has them; vectors of no layer are in `all` */
    uint64_t borrowed;                  /* what the card sets aside where it borrows matrices of layers */
};

/* Counted as `card` would keep them. */
int tally_open(int32_t n_layers, const struct backend *card, struct backend **out, struct err *err);
const struct tally *tally_of(const struct backend *be);

#endif
