/* What the recurrent mixers share: sizes that resolve finds, the causal convolution in front of most of them, mixing with the position before. */
#ifndef MLXCEL_MODEL_RECUR_H
#define MLXCEL_MODEL_RECUR_H

#include "model/mixer.h"

/* The layer's first state: the last taps - 1 inputs of its convolution. */
int recur_conv_resolve(struct resolver *r, int32_t layer, int64_t channels, int32_t taps, struct err *err);
/* conv1d's kernel as [channels, taps]; both layouts of it, [C, 1, K] and [C, K, 1], are that in memory. */
int recur_conv_bind(struct loader *l, int32_t layer, int64_t channels, struct err *err);
struct tensor recur_conv(const struct pass *p, struct tensor x, enum act_kind act);
/* Whether the file was converted for MLX, which moves a convolution's channels last: [C, K, 1]. Such files have been
 * through its cures already (norm weights with the 1 added, multipliers folded in). */
bool recur_conv_is_mlx(struct loader *l, int32_t layer);

/* A position, and what it differs by from the one before; each of its channels mixed of the two. */
struct shifted {
    struct tensor before, change;
};
int recur_shift_bind(struct loader *l, int32_t layer, struct err *err); /* of a stream, with layer -1 */
struct shifted recur_shift(const struct pass *p, struct tensor x, int32_t state /* of the layer's */);
struct tensor recur_mixed(const struct pass *p, struct shifted s, enum role share /* of the position itself */);

#endif
