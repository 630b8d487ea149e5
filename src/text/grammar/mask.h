/* Masks of tokens by state: computed when first asked for, then kept. */
#ifndef MLXCEL_TEXT_GRAMMAR_MASK_H
#define MLXCEL_TEXT_GRAMMAR_MASK_H

#include "text/grammar/machine.h"

struct mask_cache *mask_cache_create(struct gram_machine *m);
void mask_cache_destroy(struct mask_cache *c); /* NULL is fine */
size_t mask_cache_bytes(const struct mask_cache *c);
void mask_write(struct gram_machine *m, uint32_t state, uint32_t *bits);

#endif
