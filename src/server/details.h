/* How an answer was made: the record that llama-server gives for a completion, and on request beside other answers. */
#ifndef MLXCEL_SERVER_DETAILS_H
#define MLXCEL_SERVER_DETAILS_H

#include "server/generate.h"

/* Of a choice that has ended, as an object behind `key`; NULL: it stands alone. */
void details_put(struct generation *g, struct gen_choice *c, const char *key, struct jsonw *w);
/* Log-probabilities of the choice's tokens from `first` on, as the list completion_probabilities. */
void details_put_probabilities(struct generation *g, const struct gen_choice *c, size_t first, size_t n, struct jsonw *w);
/* Parameters by the names that requests have for them, in an object behind `key`. */
void details_put_settings(const struct generation *g, const char *key, struct jsonw *w);
/* The numbers of the sampler alone, in an object that is open. */
void details_put_sampling(const struct sampler_params *p, struct jsonw *w);

#endif
