/* Where a text stands on the screen: rows of a terminal, made of what is written to draw them. Newlines and the terminal's width begin new
 * rows; a tab is four blanks. */
#ifndef MLXCEL_CLI_LINE_VIEW_H
#define MLXCEL_CLI_LINE_VIEW_H

#include "base/str.h"

struct line_row {
    size_t begin, end; /* in shown; from end to the next begin stands what goes on to the next row */
};

struct line_view {
    struct sb shown;
    struct line_row *rows;
    size_t n_rows, capacity;
    size_t row, column; /* of the cursor */
};

/* prompt, then text; the cursor stands before text.p[cursor]. The view is zeroed, or one of an earlier call. */
void line_view_make(struct line_view *v, struct str prompt, struct str text, size_t cursor, int width);
void line_view_free(struct line_view *v);

/* Columns that a character takes on a terminal: 0, 1 or 2. */
int char_columns(uint32_t code);

#endif
