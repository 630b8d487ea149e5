/* Stop strings: text in as it comes, text out as far as no stop string can still begin in it.
 *
 * The match that is complete first wins, of several at the same place the longest; so the result does not depend on how
 * the text was cut into pieces, and streamed text equals text that is taken whole. Neither the stop string nor what
 * follows it comes out.
 */
#ifndef MLXCEL_TEXT_OUTPUT_STOP_H
#define MLXCEL_TEXT_OUTPUT_STOP_H

#include "base/str.h"

enum { STOP_STRINGS_MAX = 16, STOP_BYTES_MAX = 1024 };

struct stop_string {
    struct str text;
    int32_t *fail;  /* [n] longest proper prefix of text[0..i] that is also its suffix */
    int32_t n_seen; /* bytes of it that the text so far ends with */
};

struct stop {
    struct stop_string strings[STOP_STRINGS_MAX];
    int32_t n;
    struct sb hold;  /* text that may turn out to be the beginning of a stop string */
    int32_t matched; /* index of the string that was found; -1: none yet */
    bool keeps;      /* the string that was found comes out, too */
};

/* Copies the strings into the arena. Refuses empty and over-long ones, and too many. */
int stop_init(struct stop *s, struct arena *a, const struct str *strings, size_t n, struct err *err);
void stop_free(struct stop *s);
/* Appends to *out what is certain; true when a stop string was found, and from then on. */
bool stop_push(struct stop *s, struct str text, struct sb *out);
/* The text ended without one: what was held back belongs to it. */
void stop_flush(struct stop *s, struct sb *out);

#endif
