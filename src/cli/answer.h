/* An answer on its way to standard output: thoughts apart from the text, hidden or dimmed. */
#ifndef MLXCEL_CLI_ANSWER_H
#define MLXCEL_CLI_ANSWER_H

#include "api/session.h"
#include "cli/screen_text.h"

struct answer {
    /* set by the caller */
    bool shows;  /* print the thoughts: dimmed on a terminal, else between their tags */
    bool silent; /* print nothing, only collect */
    bool wraps;  /* to a terminal for people: lines break between words, light Markdown becomes colours */
    /* its own */
    struct sb thoughts, text; /* everything so far */
    struct screen_text screen;
    bool notes, dims; /* on the terminal now: "thinking", dimmed text */
    bool breaks;      /* the last byte that was printed is a newline, or there was none */
    bool joins;       /* the log goes to the same terminal */
    int code;
    struct err err; /* why printing failed */
};

void answer_begin(struct answer *a);
/* More of it. False when it cannot be written any more; code and err say why. */
bool answer_push(struct answer *a, const struct output_pieces *pieces);
/* A newline where the text has none at its end. */
bool answer_end(struct answer *a);
void answer_free(struct answer *a);

#endif
