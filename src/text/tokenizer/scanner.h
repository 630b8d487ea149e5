/* Hand-written scanners for the regular expressions that nearly all models split with.
 *
 * Each gives exactly the matches that Oniguruma finds for its pattern, from left to right, in a time proportional to the
 * length of the text. They are chosen by comparing the pattern string; every other pattern goes through PCRE2.
 */
#ifndef MLXCEL_TEXT_TOKENIZER_SCANNER_H
#define MLXCEL_TEXT_TOKENIZER_SCANNER_H

#include "base/str.h"

/* The first match at or after `from`, in valid UTF-8; false when there is none. Matches are never empty. */
typedef bool tok_scan_fn(struct str text, size_t from, size_t *out_start, size_t *out_end);

struct tok_scanner {
    const char *name;
    const char *pattern;
    tok_scan_fn *next;
};

extern const struct tok_scanner tok_scanners[];                 /* ends with a zeroed one */
const struct tok_scanner *tok_scanner_find(struct str pattern); /* NULL when none has that pattern */
const struct tok_scanner *tok_scanner_named(const char *name);  /* one that is there */

#endif
