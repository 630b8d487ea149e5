/* The line editor: keys change a buffer, the buffer is drawn again. */
#include "cli/line_edit.h"

#include "os/os.h"

#define CTRL(letter) ((letter) - 'A' + 1)

/* ---- text ------------------------------------------------------------------------------------------------------------- */

static size_t before(const struct line_edit *e, size_t at) {
    while (at > 0 && ((unsigned char)e->text.p[--at] & 0xC0) == 0x80) continue;
    return at;
}

static size_t behind(const struct line_edit *e, size_t at) {
    if (at < e->text.n) at++;
    while (at < e->text.n && ((unsigned char)e->text.p[at] & 0xC0) == 0x80) at++;
    return at;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t';
}

static size_t word_before(const struct line_edit *e, size_t at) {
    while (at > 0 && is_blank(e->text.p[at - 1])) at--;
    while (at > 0 && !is_blank(e->text.p[at - 1])) at--;
    return at;
}

static size_t word_behind(const struct line_edit *e, size_t at) {
    while (at < e->text.n && is_blank(e->text.p[at])) at++;
    while (at < e->text.n && !is_blank(e->text.p[at])) at++;
    return at;
}

static size_t begin_of_line(const struct line_edit *e, size_t at) {
    while (at > 0 && e->text.p[at - 1] != '\n') at--;
    return at;
}

static size_t end_of_line(const struct line_edit *e, size_t at) {
    while (at < e->text.n && e->text.p[at] != '\n') at++;
    return at;
}

/* To the same place in another line of the text, or its end. */
static void move_to_line(struct line_edit *e, size_t begin) {
    size_t n = 0, end = end_of_line(e, begin);
    for (size_t at = begin_of_line(e, e->cursor); at < e->cursor; at = behind(e, at)) n++;
    e->cursor = begin;
    while (n-- && e->cursor < end) e->cursor = behind(e, e->cursor);
}

static void cut(struct line_edit *e, size_t from, size_t to) {
    if (to <= from) return;
    memmove(e->text.p + from, e->text.p + to, e->text.n - to);
    e->text.n -= to - from;
    e->text.p[e->text.n] = 0;
    e->cursor = from;
}

static void insert(struct line_edit *e, struct str text) {
    if (text.n == 0) return;
    sb_extend(&e->text, text.n);
    memmove(e->text.p + e->cursor + text.n, e->text.p + e->cursor, e->text.n - text.n - e->cursor);
    memcpy(e->text.p + e->cursor, text.p, text.n);
    e->cursor += text.n;
}

/* A character that can be shown: no key, and nothing that would steer the terminal. */
static bool is_text(uint32_t key) {
    return key >= 32 && key < OS_KEY_CLOSED && (key < 127 || key >= 160);
}

static void set_text(struct line_edit *e, struct str text) {
    sb_clear(&e->text);
    sb_put(&e->text, text);
    e->cursor = e->text.n;
}

/* ---- history ---------------------------------------------------------------------------------------------------------- */

static void recall(struct line_edit *e, size_t i) {
    if (e->i_history == e->n_history) {
        sb_clear(&e->draft);
        sb_put(&e->draft, sb_str(&e->text));
    }
    e->i_history = i;
    set_text(e, i == e->n_history ? sb_str(&e->draft) : str_of(e->history[i]));
}

bool line_remember(struct line_edit *e, struct str line) {
    if (line.n == 0 || (e->n_history && str_is(line, e->history[e->n_history - 1]))) return false;
    if (e->n_history == LINE_HISTORY_MAX) {
        mem_free(e->history[0]);
        memmove(e->history, e->history + 1, (LINE_HISTORY_MAX - 1) * sizeof *e->history);
        e->n_history--;
    }
    char *copy = mem_alloc(line.n + 1);
    memcpy(copy, line.p, line.n);
    e->history[e->n_history++] = copy;
    return true;
}

void line_free(struct line_edit *e) {
    for (size_t i = 0; i < e->n_history; i++) mem_free(e->history[i]);
    sb_free(&e->text);
    sb_free(&e->draft);
    sb_free(&e->paste);
    sb_free(&e->query);
    sb_free(&e->choices);
    line_view_free(&e->view);
}

/* The newest entry before `end` that has the query in it; the text stays where there is none. */
static void search(struct line_edit *e, size_t end) {
    for (size_t i = end; i-- > 0 && e->query.n;)
        if (str_find(str_of(e->history[i]), sb_str(&e->query), 0) != STR_NONE) {
            e->i_history = i;
            set_text(e, str_of(e->history[i]));
            return;
        }
}

static void search_begin(struct line_edit *e) {
    if (e->i_history == e->n_history) {
        sb_clear(&e->draft);
        sb_put(&e->draft, sb_str(&e->text));
    }
    e->is_searching = true;
    sb_clear(&e->query);
}

/* A key while history is searched; false: the search is over, and the key has its usual meaning. */
static bool search_key(struct line_edit *e, uint32_t key) {
    char bytes[4];
    if (key == CTRL('R')) {
        search(e, e->i_history);
    } else if (key == CTRL('C') || key == CTRL('G')) {
        e->is_searching = false;
        recall(e, e->n_history);
    } else if (key == 127 || key == CTRL('H')) {
        while (e->query.n && ((unsigned char)e->query.p[--e->query.n] & 0xC0) == 0x80) continue;
        if (e->query.p) e->query.p[e->query.n] = 0;
        search(e, e->n_history);
    } else if (is_text(key)) {
        sb_put(&e->query, str_n(bytes, utf8_encode(key, bytes)));
        search(e, e->i_history < e->n_history ? e->i_history + 1 : e->n_history);
    } else {
        e->is_searching = false;
        return key == OS_KEY_OTHER; /* Escape alone ends it */
    }
    return true;
}

/* ---- completion ------------------------------------------------------------------------------------------------------- */

static size_t common(struct str a, struct str b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n]) n++;
    return n;
}

static void complete(struct line_edit *e) {
    struct str before_cursor = str_sub(sb_str(&e->text), 0, e->cursor), rest, one, shared = {0};
    size_t from = e->cursor, n = 0;
    while (from > 0 && !is_blank(e->text.p[from - 1])) from--;
    sb_clear(&e->choices);
    if (e->complete) e->complete(e->complete_user, before_cursor, &e->choices);
    for (rest = sb_str(&e->choices); str_split_next(&rest, '\n', &one);) {
        if (one.n == 0) continue;
        shared = n++ ? str_sub(shared, 0, common(shared, one)) : one;
    }
    if (n == 0) {
        sb_clear(&e->choices);
        if (before_cursor.n == 0 || before_cursor.p[0] != '/') insert(e, STR(" "));
        return;
    }
    size_t typed = e->cursor - from;
    bool grows = shared.n > typed;
    if (grows) insert(e, str_from(shared, typed));
    if (n == 1) insert(e, STR(" "));
    if (n == 1 || grows) sb_clear(&e->choices);
}

/* ---- keys ------------------------------------------------------------------------------------------------------------- */

static void move_key(struct line_edit *e, uint32_t key) {
    switch (key) {
    case OS_KEY_LEFT:
    case CTRL('B'): e->cursor = before(e, e->cursor); break;
    case OS_KEY_RIGHT:
    case CTRL('F'): e->cursor = behind(e, e->cursor); break;
    case OS_KEY_WORD_LEFT: e->cursor = word_before(e, e->cursor); break;
    case OS_KEY_WORD_RIGHT: e->cursor = word_behind(e, e->cursor); break;
    case OS_KEY_HOME:
    case CTRL('A'): e->cursor = begin_of_line(e, e->cursor); break;
    case OS_KEY_END:
    case CTRL('E'): e->cursor = end_of_line(e, e->cursor); break;
    case OS_KEY_UP:
    case CTRL('P'):
        if (begin_of_line(e, e->cursor) > 0) move_to_line(e, begin_of_line(e, begin_of_line(e, e->cursor) - 1));
        else if (e->i_history > 0) recall(e, e->i_history - 1);
        break;
    case OS_KEY_DOWN:
    case CTRL('N'):
        if (end_of_line(e, e->cursor) < e->text.n) move_to_line(e, end_of_line(e, e->cursor) + 1);
        else if (e->i_history < e->n_history) recall(e, e->i_history + 1);
        break;
    default: break;
    }
}

static void change_key(struct line_edit *e, uint32_t key) {
    switch (key) {
    case 127:
    case CTRL('H'): cut(e, before(e, e->cursor), e->cursor); break;
    case OS_KEY_DELETE:
    case CTRL('D'): {
        size_t at = e->cursor;
        cut(e, at, behind(e, at));
        break;
    }
    case CTRL('U'): cut(e, 0, e->cursor); break;
    case CTRL('K'): cut(e, e->cursor, e->text.n); break;
    case CTRL('W'): cut(e, word_before(e, e->cursor), e->cursor); break;
    case '\t': complete(e); break;
    case CTRL('R'): search_begin(e); break;
    case OS_KEY_RESIZE: break;
    default: {
        char bytes[4];
        if (is_text(key)) insert(e, str_n(bytes, utf8_encode(key, bytes)));
        else move_key(e, key);
    }
    }
}

/* Newlines stay, in the form of this system or another; Ctrl-C is always the user's. */
static bool paste_key(struct line_edit *e, uint32_t key, enum line_end *out_end) {
    char bytes[4];
    if (key == CTRL('C') || key == OS_KEY_CLOSED) {
        e->is_pasting = false;
        *out_end = key == OS_KEY_CLOSED ? LINE_CLOSED : LINE_CANCELLED;
        return true;
    }
    if (key == OS_KEY_PASTE_END) {
        e->is_pasting = false;
        insert(e, sb_str(&e->paste));
        sb_free(&e->paste);
        return false;
    }
    if (key == '\r' || (key == '\n' && !e->was_return)) sb_putc(&e->paste, '\n');
    else if (key == '\t') sb_putc(&e->paste, '\t');
    else if (is_text(key)) sb_put(&e->paste, str_n(bytes, utf8_encode(key, bytes)));
    e->was_return = key == '\r';
    return false;
}

bool line_key(struct line_edit *e, uint32_t key, enum line_end *out_end) {
    bool is_empty = e->text.n == 0;
    sb_clear(&e->choices);
    if (e->is_pasting) return paste_key(e, key, out_end);
    if (e->is_searching && search_key(e, key)) return false;
    if (key == OS_KEY_PASTE_BEGIN) {
        e->is_pasting = true;
        e->was_return = false;
        sb_clear(&e->paste);
        return false;
    }
    if (key == '\r' || key == '\n') *out_end = LINE_DONE;
    else if (key == CTRL('C')) *out_end = LINE_CANCELLED;
    else if (key == OS_KEY_CLOSED || (is_empty && (key == CTRL('D') || key == CTRL('Z')))) *out_end = LINE_CLOSED;
    else {
        change_key(e, key);
        return false;
    }
    return true;
}

/* ---- drawing ---------------------------------------------------------------------------------------------------------- */

/* The rows of a text that is higher than the screen, among them the cursor's; a row of the screen is for the line that says so, one is
 * free for what makes the terminal end the last row. */
static void choose_rows(struct line_edit *e, size_t n_shown) {
    const struct line_view *v = &e->view;
    if (e->top + n_shown > v->n_rows) e->top = v->n_rows - n_shown;
    if (e->top > v->row) e->top = v->row;
    if (e->top + n_shown <= v->row) e->top = v->row + 1 - n_shown;
}

/* What can be chosen from, in columns, below the line; how many rows that takes. */
static int draw_choices(struct line_edit *e, int width, struct sb *out) {
    struct str rest = sb_str(&e->choices), one;
    int widest = 0, column = 0, n_rows = 1, height = os_console_height();
    while (str_split_next(&rest, '\n', &one)) widest = (int)one.n > widest ? (int)one.n : widest;
    sb_puts(out, "\r\n");
    for (rest = sb_str(&e->choices); str_split_next(&rest, '\n', &one);) {
        if (one.n == 0) continue;
        if (column && column + widest + 2 > width) {
            if (n_rows >= height / 2) break;
            sb_puts(out, "\r\n");
            n_rows++;
            column = 0;
        }
        sb_fmt(out, "%-*.*s", widest + 2 < width ? widest + 2 : 0, (int)(one.n < (size_t)width ? one.n : (size_t)width), one.p);
        column += widest + 2;
    }
    return n_rows;
}

static void draw(struct line_edit *e) {
    struct line_view *v = &e->view;
    struct sb out = {0}, searching = {0};
    size_t height = (size_t)os_console_height(), n = height > 4 ? height - 2 : 3, head = 0;
    if (e->is_searching) sb_fmt(&searching, "(search: %.*s) ", STR_ARG(sb_str(&e->query)));
    line_view_make(v, e->is_searching ? sb_str(&searching) : str_of(e->prompt), sb_str(&e->text), e->cursor, os_console_width());
    if (v->n_rows <= height) {
        e->top = 0;
        n = v->n_rows;
    } else {
        choose_rows(e, n);
        head = 1;
        sb_fmt(&out, "[rows %zu to %zu of %zu]\r\n", e->top + 1, e->top + n, v->n_rows);
    }
    bool is_end = e->top + n == v->n_rows;
    size_t from = v->rows[e->top].begin, to = is_end ? v->shown.n : v->rows[e->top + n].begin;
    int last_row = (int)(head + n) - is_end, row = (int)(head + v->row - e->top);
    sb_put(&out, str_n(v->shown.p + from, to - from));
    if (e->choices.n && is_end) last_row += draw_choices(e, os_console_width(), &out);
    os_term_move(e->row, 0);
    os_term_clear_below();
    os_write(OS_STDOUT, sb_str(&out), NULL);
    os_term_move(last_row - row, (int)v->column);
    e->row = row;
    sb_free(&out);
    sb_free(&searching);
}

/* The terminal has broken the rows anew: the cursor stands where the text of the new width has it. */
static void resized(struct line_edit *e) {
    line_view_make(&e->view, str_of(e->prompt), sb_str(&e->text), e->cursor, os_console_width());
    e->row = e->view.n_rows <= (size_t)os_console_height() ? (int)e->view.row : os_console_height();
}

/* Where keys cannot be had one by one: the terminal's own editing, and nothing but the prompt from us. */
static enum line_end read_plain(struct line_edit *e) {
    bool is_there;
    os_write(OS_STDOUT, str_of(e->prompt), NULL);
    if (os_read_line(&e->text, &is_there, NULL) == 0 && is_there) return LINE_DONE;
    os_write(OS_STDOUT, STR("\n"), NULL);
    return LINE_CLOSED;
}

enum line_end line_read(struct line_edit *e, const char *prompt) {
    enum line_end end = LINE_CLOSED;
    bool done = false;
    e->prompt = prompt;
    e->row = 0;
    e->top = 0;
    e->is_pasting = e->is_searching = false;
    sb_clear(&e->choices);
    e->i_history = e->n_history;
    set_text(e, STR(""));
    if (!os_term_begin()) return read_plain(e);
    draw(e);
    while (!done) {
        uint32_t key = os_term_key();
        if (key == CTRL('L')) {
            os_term_move(1000, 0);
            os_term_clear_below();
            e->row = 0;
        } else if (key == OS_KEY_RESIZE) {
            resized(e);
        } else {
            done = line_key(e, key, &end);
        }
        if (!done && !e->is_pasting && !os_term_key_waits()) draw(e); /* what comes at once is drawn once */
    }
    e->cursor = e->text.n;
    e->is_searching = false;
    draw(e);
    os_write(OS_STDOUT, STR("\r\n"), NULL);
    os_term_end();
    return end;
}
