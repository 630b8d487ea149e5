/* One line of text from a terminal, with editing and history: arrows, Home, End, Ctrl-A E B F K U W L, Ctrl-Left and -Right,
 * Up and Down through earlier lines. Text is UTF-8; long lines run over several rows. */
#ifndef MLXCEL_CLI_LINE_EDIT_H
#define MLXCEL_CLI_LINE_EDIT_H

#include "base/str.h"

enum { LINE_HISTORY_MAX = 500 };

struct line_edit {
    struct sb text;
    size_t cursor; /* byte, between characters */
    char *history[LINE_HISTORY_MAX];
    size_t n_history, i_history; /* i_history == n_history: the new line */
    struct sb draft;             /* the new line while an older one is shown */
    const char *prompt;
    int row; /* of the cursor, below the prompt's */
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

/* Columns that a character takes on a terminal: 0, 1 or 2. */
int char_columns(uint32_t code);

/* The keys alone, for tests: what the key does to text, cursor and history; true when the line is at its end. */
bool line_key(struct line_edit *e, uint32_t key, enum line_end *out_end);

#endif
