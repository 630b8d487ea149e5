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

struct synth_args {
    struct str shape;
    int32_t n_layers; /* fewer than the shape has; 0: all */
    int32_t bits;     /* 32 or 16: plain; fewer: affine, groups of 64 */
    bool f16;         /* plain weights of 16 bits, scales and norms: f16 instead of bf16 */
    uint64_t seed;
};

/* Lives in the arena. */
int synth_create(struct arena *a, const struct synth_args *args, struct synth **out, struct err *err);
const struct config *synth_config(const struct synth *s);
struct tensor_store synth_store(struct synth *s);
uint64_t synth_bytes(const struct synth *s); /* of all tensors */
const char *synth_shape_name(int i);         /* the names that `shape` may have, one after the other; NULL behind the last */

#endif
