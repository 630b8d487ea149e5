/* The formats of JSON Schema as sets of strings. */
#ifndef MLXCEL_TEXT_GRAMMAR_FORMAT_TABLE_H
#define MLXCEL_TEXT_GRAMMAR_FORMAT_TABLE_H

#include "text/grammar/strset.h"

/* False: no format of this name is known. */
bool format_strings(struct strings *s, struct str name, struct strset *out);

#endif
