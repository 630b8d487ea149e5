/* A text on its way to a terminal, piece by piece: lines break between words at the window's edge, and the marks of light Markdown become
 * colours (headings, **bold**, *slanted*, `code`, fences, quotes). Code and tables keep their lines. What would steer the terminal is shown as a sign.
 * Knows no stream: what is to be written is appended to the caller's buffer. */
#ifndef MLXCEL_CLI_SCREEN_TEXT_H
#define MLXCEL_CLI_SCREEN_TEXT_H

#include "base/str.h"

struct screen_text {
    /* set by the caller, and free to change: the window may */
    int width;
    bool marks; /* Markdown becomes colours; else it stays as it is written */
    /* its own */
    struct sb head, word; /* what may still be a mark at the begin of the line; a word that may go to the next line */
    char part[4];         /* of a character */
    size_t n_part;
    int column, indent, n_blanks;
    enum { SCREEN_BEGIN, SCREEN_TEXT, SCREEN_RAW } at; /* of the line: nothing yet, words, as it is */
    bool in_fence, ends_fence;                         /* within one; on its last line */
    bool is_heading, is_quote, bold, slanted, code;
    bool is_empty_line; /* so far */
};

void screen_text_put(struct screen_text *s, struct str text, struct sb *out);
/* What was held back; colours end. The next text begins a line. */
void screen_text_end(struct screen_text *s, struct sb *out);
void screen_text_free(struct screen_text *s);

#endif
