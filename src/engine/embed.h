/* Embeddings: the hidden states of texts, pooled to one vector of length 1 each. Computed in chunks between the engine's steps, so that
 * requests that generate go on meanwhile; when these need blocks, texts give theirs back and begin again, the last one first.
 *
 * Short texts are read side by side in one batch. A text is cut into the same chunks as if it were alone, so its vector has the same bits
 * in any company.
 */
#ifndef MLXCEL_ENGINE_EMBED_H
#define MLXCEL_ENGINE_EMBED_H

#include "engine/engine.h"

enum embed_pooling { EMBED_MEAN, EMBED_LAST };

struct embed;

struct embed_text {
    const int32_t *tokens; /* copied */
    int32_t n_tokens;
    enum embed_pooling pooling;
    float *vector; /* [width] filled at the end */
    void *user;
};

/* A text has its vector; or, with why, none. */
typedef void embed_fn(void *user, const struct err *why);

/* Numbers of one vector. */
int32_t embed_width(struct engine *e);
struct embed *embed_open(struct engine *e, embed_fn *on_done);
void embed_close(struct embed *b); /* NULL is fine */
/* Whether one more text may be read by the next step. */
bool embed_has_room(const struct embed *b);
/* Not more than 64 at once: ask embed_has_room. ERR_EBUSY: no slot of recurrent state is free just now. */
int embed_add(struct embed *b, const struct embed_text *text, struct err *err);
/* Forgets a user's texts. Not from on_done. */
void embed_drop(struct embed *b, const void *user);
/* One batch. ERR_EBUSY: the first text finds no blocks just now, try again after a step of the engine. */
int embed_step(struct embed *b, struct err *err);
/* Whose text came first; NULL: there is none. */
void *embed_first(const struct embed *b);

#endif
