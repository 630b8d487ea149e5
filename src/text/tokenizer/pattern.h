/* A pattern to search for: a literal string, a hand-written scanner, or a regular expression run by PCRE2.
 *
 * Regular expressions are in Oniguruma's dialect; what PCRE2 reads differently is rewritten (white space, \h, line
 * anchors), what it cannot express (class intersection) is refused. Matching runs under limits: an expression
 * that would take too long is an error, not a hang.
 */
#ifndef MLXCEL_TEXT_TOKENIZER_PATTERN_H
#define MLXCEL_TEXT_TOKENIZER_PATTERN_H

#include "base/json.h"
#include "text/tokenizer/scanner.h"

struct tok_pattern;
struct tok_match_state;

/* `no_scanner` forces PCRE2, for tests that compare the two. */
int tok_pattern_literal(struct arena *a, struct str literal, struct tok_pattern **out, struct err *err);
int tok_pattern_regex(struct arena *a, struct str regex, bool no_scanner, struct tok_pattern **out, struct err *err);
/* {"String": ...} or {"Regex": ...}. */
int tok_pattern_read(struct arena *a, yyjson_val *json, const char *what, struct tok_pattern **out, struct err *err);
void tok_pattern_destroy(struct tok_pattern *p);
struct str tok_pattern_literal_of(const struct tok_pattern *p);             /* {NULL, 0}: it is none */
const struct tok_scanner *tok_pattern_scanner(const struct tok_pattern *p); /* NULL: none */

struct tok_match {
    size_t start, end;
};
/* Where a search through one text stands; zeroed at its start. */
struct tok_cursor {
    size_t from, last_end;
    bool has_last; /* an empty match right behind the last one is passed over */
};
/* The next match; *out_found tells whether there is one. *state is made when needed and belongs to the caller's thread. */
int tok_pattern_next(const struct tok_pattern *p, struct tok_match_state **state, struct str text, struct tok_cursor *at,
                     struct tok_match *out, bool *out_found, struct err *err);
/* A new text begins: what searches through the text before have cost is forgotten. NULL is fine. */
void tok_match_state_refill(struct tok_match_state *s);
void tok_match_state_destroy(struct tok_match_state *s);

#endif
