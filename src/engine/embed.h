/* Embeddings: the hidden states of a text, pooled to one vector of length 1. Computed in chunks between the engine's steps, so
 * that requests that generate go on meanwhile; when these need its blocks, it gives them back and begins again. One at a time. */
#ifndef MLXCEL_ENGINE_EMBED_H
#define MLXCEL_ENGINE_EMBED_H

#include "engine/engine.h"

enum embed_pooling { EMBED_MEAN, EMBED_LAST };

struct embed;

/* Numbers of one vector. */
int32_t embed_width(struct engine *e);
/* ERR_EBUSY: no slot of recurrent state is free just now. The tokens must stay until the end. */
int embed_begin(struct engine *e, const int32_t *tokens, int32_t n_tokens, enum embed_pooling pooling, struct embed **out, struct err *err);
/* One chunk. ERR_EBUSY: no blocks just now, try again after a step. *out_done: `vector` is filled. */
int embed_step(struct embed *b, float *vector, bool *out_done, struct err *err);
void embed_end(struct embed *b); /* NULL is fine */

#endif
