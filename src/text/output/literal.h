/* A text that must be met as it is, such as a marker; and the search for it in text that comes byte by byte. */
#ifndef MLXCEL_TEXT_OUTPUT_LITERAL_H
#define MLXCEL_TEXT_OUTPUT_LITERAL_H

#include "base/str.h"

struct tok;

struct literal {
    struct str text;
    const bool *is_token; /* [text.n]: this byte must come from a token; NULL: from anywhere */
    const uint8_t *fail;  /* [text.n] longest proper prefix of text[0..i] that is also its suffix */
    bool closes;          /* stands behind a complete call */
};

enum { LITERAL_BYTES = 128 };

/* Spelled as tokens that mark something are: in brackets. Only such tokens are known as tokens; others are text. */
bool literal_looks_marked(struct str s);
/* At most LITERAL_BYTES of text, which must outlive it. tok may be NULL. */
struct literal literal_make(struct arena *a, struct str text, const struct tok *tok);

static inline bool literal_takes(const struct literal *l, size_t i, char c, bool is_token) {
    return l->text.p[i] == c && (is_token || !l->is_token || !l->is_token[i]);
}
/* How much of it the text ends with, when n bytes of it stood before c. */
size_t literal_advance(const struct literal *l, size_t n, char c, bool is_token);

#endif
