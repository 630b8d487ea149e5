/* The step block: everything that changes from step to step, in one piece of memory of fixed size.
 *
 * Rows are ordered: decode rows first, then prompt chunks. A row's key, value and result depend only on its own
 * sequence; what stands beside it in the batch must not matter.
 */
#ifndef MLXCEL_ENGINE_BATCH_H
#define MLXCEL_ENGINE_BATCH_H

#include "engine/sequence.h"

struct spec;

struct batch {
    struct step step;
    const struct spec *spec;
    struct kv *kv;
    int32_t max_len; /* longest sequence in the batch, this step's rows included */
};

struct batch_limits {
    int32_t rows, seqs, context;
};

int batch_init(struct batch *b, const struct spec *spec, struct kv *kv, const struct batch_limits *limits, struct err *err);
void batch_free(struct batch *b);
void batch_clear(struct batch *b);
enum batch_logits { LOGITS_NONE, LOGITS_LAST, LOGITS_ALL };
/* The next n_rows tokens of the sequence, whose blocks are already reserved. */
void batch_add(struct batch *b, const struct sequence *s, int32_t n_rows, enum batch_logits logits);
struct step_key batch_key(const struct batch *b);

#endif
