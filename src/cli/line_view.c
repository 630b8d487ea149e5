/* Laying text out in rows. */
#include "cli/line_view.h"

enum { TAB_COLUMNS = 4 };

int char_columns(uint32_t c) {
    static const uint32_t none[][2] = {{0x300, 0x36F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
    static const uint32_t two[][2] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xAC00, 0xD7A3},
                                      {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
                                      {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (c >= none[i][0] && c <= none[i][1]) return 0;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (c >= two[i][0] && c <= two[i][1]) return 2;
    return c < 32 ? 0 : 1;
}

/* Ends the row; `next` is what makes the terminal go on to another. */
static void end_row(struct line_view *v, const char *next) {
    v->rows[v->n_rows - 1].end = v->shown.n;
    sb_puts(&v->shown, next);
    if (v->n_rows == v->capacity) {
        v->capacity = v->capacity ? 2 * v->capacity : 16;
        v->rows = mem_realloc(v->rows, v->capacity * sizeof *v->rows);
    }
    v->rows[v->n_rows++] = (struct line_row){v->shown.n, v->shown.n};
}

/* One character; the column behind it. A wide one does not begin in the last column. Terminals go on to the next row with the next
 * character only: a blank makes them, and the return takes its place back. */
static int put(struct line_view *v, struct str bytes, int n_columns, int column, int width) {
    if (column + n_columns > width) {
        end_row(v, "");
        column = 0;
    }
    sb_put(&v->shown, bytes);
    column += n_columns;
    if (column < width) return column;
    end_row(v, " \r");
    return 0;
}

static int put_text(struct line_view *v, struct str text, int column, int width) {
    for (size_t i = 0; i < text.n;) {
        uint32_t code;
        size_t n = utf8_decode(text.p + i, text.n - i, &code);
        if (code == '\n') {
            end_row(v, "\r\n");
            column = 0;
        } else if (code == '\t') {
            for (int k = 0; k < TAB_COLUMNS; k++) column = put(v, STR(" "), 1, column, width);
        } else {
            column = put(v, str_n(text.p + i, n), char_columns(code), column, width);
        }
        i += n;
    }
    return column;
}

void line_view_make(struct line_view *v, struct str prompt, struct str text, size_t cursor, int width) {
    sb_clear(&v->shown);
    if (!v->rows) v->rows = mem_realloc(NULL, (v->capacity = 16) * sizeof *v->rows);
    v->rows[0] = (struct line_row){0};
    v->n_rows = 1;
    int column = put_text(v, prompt, 0, width);
    column = put_text(v, str_sub(text, 0, cursor), column, width);
    v->row = v->n_rows - 1;
    v->column = (size_t)column;
    put_text(v, str_from(text, cursor), column, width);
    v->rows[v->n_rows - 1].end = v->shown.n;
}

void line_view_free(struct line_view *v) {
    sb_free(&v->shown);
    mem_free(v->rows);
    *v = (struct line_view){0};
}
