/* The formats of JSON Schema as sets of strings. */
#ifndef MLXCEL_TEXT_GRAMMAR_FORMAT_TABLE_H
#define MLXCEL_TEXT_GRAMMAR_FORMAT_TABLE_H

#include "text/grammar/grammar.h"
#include "text/grammar/strset.h"

/* False: the draft knows no format of this name. */
bool gram_format_strings(struct strings *s, struct str name, enum gram_draft draft, struct strset *out);

#endif
