/* What dfa.c lends to dfa_ops.c alone: results by key of operation and operands. */
#ifndef MLXCEL_TEXT_GRAMMAR_DFA_INTERNAL_H
#define MLXCEL_TEXT_GRAMMAR_DFA_INTERNAL_H

#include "text/grammar/dfa.h"

bool dfa_memo_get(struct dfa_pool *p, uint64_t key, dfa_id *out);
void dfa_memo_put(struct dfa_pool *p, uint64_t key, dfa_id result);

#endif
