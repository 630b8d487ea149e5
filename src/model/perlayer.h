/* The parts of the per-layer inputs that another residual stream uses too. */
#ifndef MLXCEL_MODEL_PERLAYER_H
#define MLXCEL_MODEL_PERLAYER_H

#include "model/families.h"

int per_layer_resolve(struct resolver *r, struct err *err);
int per_layer_bind(struct loader *l, int32_t layer, struct err *err);
/* Makes p->extra [rows, layers, width]; returns x. */
struct tensor per_layer_enter(struct pass *p, struct tensor x);
/* What the layer's slice adds to the stream, gated by x. */
struct tensor per_layer_input(const struct pass *p, struct tensor x);

#endif
