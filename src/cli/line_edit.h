/* One line of text from a terminal, with editing and history: arrows, Home, End, Ctrl-A E B F K U W L, Ctrl-Left and -Right,
 * Up and Down through earlier lines, Ctrl-R to search them, Tab to complete. Text is UTF-8; long lines run over several rows.
 *
 * Text that is pasted stays in one piece, with its newlines: it is Enter that ends the line, and a paste presses no Enter. Only terminals
 * that mark pasted text are believed; lines that come fast may as well be typed ahead, or a script's. In a text of several lines Up, Down,
 * Home and End move within it. A text that is higher than the screen is shown in part. */
#ifndef MLXCEL_CLI_LINE_EDIT_H
#define MLXCEL_CLI_LINE_EDIT_H

#include "cli/line_view.h"

enum { LINE_HISTORY_MAX = 500 };

/* What may stand for the text before the cursor: the last word of `before` in full, each followed by a newline. */
typedef void line_complete_fn(void *user, struct str before, struct sb *out);

struct line_edit {
    line_complete_fn *complete; /* NULL: Tab is a blank */
    void *complete_user;
    struct sb text;
    size_t cursor; /* byte, between characters */
    char *history[LINE_HISTORY_MAX];
    size_t n_history, i_history; /* i_history == n_history: the new line */
    struct sb draft;             /* the new line while an older one is shown */
    struct sb paste;             /* what has come of a text that is being pasted */
    bool is_pasting, was_return; /* was_return: the first half of a newline */
    bool is_searching;           /* Ctrl-R: the newest entry with `query` in it is shown */
    struct sb query;
    struct sb choices; /* for the user to choose from, below the line; empty: none */
    const char *prompt;
    struct line_view view;
    size_t top; /* the first row that is shown */
    int row;    /* of the cursor, below the first that is shown */
};

enum line_end {
    LINE_DONE,
    LINE_CANCELLED /* Ctrl-C */,
    LINE_CLOSED /* Ctrl-D in an empty line, or the terminal went away */,
    LINE_FAILED /* with an error */
};

/* The text is in e->text until the next call. Standard input and output must be terminals. */
enum line_end line_read(struct line_edit *e, const char *prompt);
bool line_remember(struct line_edit *e, struct str line); /* not twice in a row, and no empty ones: false */
void line_free(struct line_edit *e);

/* The keys alone, for tests: what the key does to text, cursor and history; true when the line is at its end. */
bool line_key(struct line_edit *e, uint32_t key, enum line_end *out_end);

#endif
