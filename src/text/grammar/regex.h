/* Regular expressions to automata.
 *
 * Two dialects. REGEX_SCHEMA is that of JSON Schema's `pattern`: ECMAScript, searched for anywhere in the text, \d and \w of
 * ASCII. REGEX_WHOLE is what users send to servers: Rust's and Python's common core, matched against the whole text, classes
 * of Unicode. Look-ahead and word boundaries are known in schemas, where they stand for sets of texts like everything else;
 * back-references and look-behind are refused everywhere, by name.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_REGEX_H
#define MLXCEL_TEXT_GRAMMAR_REGEX_H

#include "text/grammar/dfa.h"

enum regex_dialect { REGEX_SCHEMA, REGEX_WHOLE };

/* Messages begin with where in the pattern: "byte 5: ...". The tree lives in a. */
int regex_parse(struct arena *a, struct str pattern, enum regex_dialect dialect, struct expr **out, struct err *err);
/* The language of a pattern over UTF-8. */
int regex_compile(struct dfa_pool *p, struct str pattern, enum regex_dialect dialect, dfa_id *out, struct err *err);
/* For patterns of our own, which are right. */
dfa_id regex_known(struct dfa_pool *p, const char *pattern);

#endif
