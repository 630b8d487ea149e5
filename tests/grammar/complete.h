/* The search for an end of a text that was cut. */
#ifndef MLXCEL_TESTS_GRAMMAR_COMPLETE_H
#define MLXCEL_TESTS_GRAMMAR_COMPLETE_H

#include "text/grammar/grammar.h"

/* Bytes that lead from where the match stands to an end, as the match itself sees it. False: none were found. */
bool complete_text(const struct gram_match *from, struct sb *rest);

#endif
