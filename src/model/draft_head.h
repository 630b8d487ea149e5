/* Heads that draft: one layer that reads the states of a larger model beside the next token, and guesses the token behind that.
 *
 * Such a head is a small model of its own, with a cache of its own; embedding and mostly the head are the larger model's. Its row i has the token that follows
 * the larger model's row i, and that row's states (taps of forward.h) as rows that the host gives. For a second guess it takes its own state of the row before.
 *
 * Two kinds are known by their tensors:
 * - the model's own, behind its last layer in its checkpoint ("layers.N.eh_proj") or beside the layers ("mtp.fc"): it reads the state behind the final norm;
 * - in a folder of its own ("fc" and "midlayer", EAGLE-3): it reads the stream before three of the layers, and has a smaller vocabulary.
 */
#ifndef MLXCEL_MODEL_DRAFT_HEAD_H
#define MLXCEL_MODEL_DRAFT_HEAD_H

#include "model/forward.h"

struct draft_head {
    struct model model;
    struct taps taps;   /* of the larger model: the first sets of given rows */
    int32_t own_set;    /* the set of given rows that takes the head's own state of the row before */
    int32_t *to_target; /* [vocab] its tokens as the larger model's; NULL: they are the same */
};

/* A store of the checkpoint that the head lies in, its config, and the larger model, which must outlive it. */
struct draft_head_source {
    const struct config *config;
    const struct tensor_store *store;
    const struct model *target;
};

/* Whether a folder holds a head and no model. */
bool draft_head_is(const struct tensor_store *store);
/* The model's own head; an error where its checkpoint has none. */
int draft_head_open_own(struct arena *a, struct backend *be, const struct draft_head_source *s, struct draft_head *out, struct err *err);
/* The head of a folder; an error says why it is none for this model. */
int draft_head_open(struct arena *a, struct backend *be, const struct draft_head_source *s, struct draft_head *out, struct err *err);
void draft_head_close(struct backend *be, struct draft_head *h);

#endif
