/* Slots, for those who save and restore them: the last request of each number. Requests share one cache here; a slot is no more than the tokens of the last
 * request that had its number, by which their cache is found. Belongs to the loop's thread. */
#ifndef MLXCEL_SERVER_SLOTS_H
#define MLXCEL_SERVER_SLOTS_H

#include "server/generate.h"

struct slot {
    int32_t *tokens; /* [n_tokens] prompt and answer */
    int32_t n_tokens, n_asked;
    float *adapters; /* [n_adapters of the model] */
};

/* Whether requests are remembered: somebody may save them. */
bool slots_are_kept(const struct call *c);
/* The call's model has so many. */
int32_t slots_count(const struct call *c);
/* Number i of the call's model; its n_tokens is 0 where nothing was asked of it. NULL: there is none of this number. */
struct slot *slots_get(struct call *c, int64_t i);
/* A choice is at its end: its slot has its tokens. */
void slots_keep(struct gen_choice *choice);
/* The slot has these tokens from now on; n_tokens 0: none. */
void slots_set(struct call *c, struct slot *slot, const struct service_prompt *p);
/* The model is unloaded. */
void slots_free(struct served *m);

#endif
