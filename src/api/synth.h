/* Made-up models of real shapes: complete checkpoints whose numbers come from a hash of (seed, tensor, index).
 *
 * They answer "what would my machine do" before any download, and are the same bytes everywhere. Weights are scaled to
 * keep activations near 1.
 */
#ifndef MLXCEL_API_SYNTH_H
#define MLXCEL_API_SYNTH_H

#include "file/config.h"
#include "model/weights.h"

struct synth;

/* bits: 16 (bf16), 8 or 4 (affine, groups of 64). Lives in the arena. */
int synth_create(struct arena *a, struct str shape, int32_t bits, uint64_t seed, struct synth **out, struct err *err);
const struct config *synth_config(const struct synth *s);
struct tensor_store synth_store(struct synth *s);

#endif
