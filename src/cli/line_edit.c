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

static size_t word_before(const struct line_edit *e, size_t at) {
    while (at > 0 && e->text.p[at - 1] == ' ') at--;
    while (at > 0 && e->text.p[at - 1] != ' ') at--;
    return at;
}

static size_t word_behind(const struct line_edit *e, size_t at) {
    while (at < e->text.n && e->text.p[at] == ' ') at++;
    while (at < e->text.n && e->text.p[at] != ' ') at++;
    return at;
}

static void cut(struct line_edit *e, size_t from, size_t to) {
    if (to <= from) return;
    memmove(e->text.p + from, e->text.p + to, e->text.n - to);
    e->text.n -= to - from;
    e->text.p[e->text.n] = 0;
    e->cursor = from;
}

static void insert(struct line_edit *e, uint32_t code) {
    char bytes[4];
    size_t n = utf8_encode(code, bytes);
    sb_extend(&e->text, n);
    memmove(e->text.p + e->cursor + n, e->text.p + e->cursor, e->text.n - n - e->cursor);
    memcpy(e->text.p + e->cursor, bytes, n);
    e->cursor += n;
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
    case CTRL('A'): e->cursor = 0; break;
    case OS_KEY_END:
    case CTRL('E'): e->cursor = e->text.n; break;
    case OS_KEY_UP:
    case CTRL('P'):
        if (e->i_history > 0) recall(e, e->i_history - 1);
        break;
    case OS_KEY_DOWN:
    case CTRL('N'):
        if (e->i_history < e->n_history) recall(e, e->i_history + 1);
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
    case '\t': insert(e, ' '); break;
    default:
        if (key >= 32 && key < OS_KEY_CLOSED) insert(e, key);
        else move_key(e, key);
    }
}

bool line_key(struct line_edit *e, uint32_t key, enum line_end *out_end) {
    bool is_empty = e->text.n == 0;
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

struct place {
    int row, column;
};

/* Where the terminal's cursor stands after the text; a wide character does not begin in the last column. */
static struct place walk(struct place p, struct str text, int width) {
    for (size_t i = 0; i < text.n;) {
        uint32_t code;
        i += utf8_decode(text.p + i, text.n - i, &code);
        int n = char_columns(code);
        if (p.column + n > width) p = (struct place){p.row + 1, 0};
        p.column += n;
        if (p.column == width) p = (struct place){p.row + 1, 0};
    }
    return p;
}

static void draw(struct line_edit *e) {
    int width = os_console_width();
    struct sb out = {0};
    struct place start = walk((struct place){0}, str_of(e->prompt), width);
    struct place cursor = walk(start, str_sub(sb_str(&e->text), 0, e->cursor), width);
    struct place end = walk(start, sb_str(&e->text), width);
    os_term_move(e->row, 0);
    os_term_clear_below();
    sb_puts(&out, e->prompt);
    sb_put(&out, sb_str(&e->text));
    if (end.row > 0 && end.column == 0) sb_puts(&out, " \r"); /* terminals wrap with the next character only */
    os_write(OS_STDOUT, sb_str(&out), NULL);
    os_term_move(end.row - cursor.row, cursor.column);
    e->row = cursor.row;
    sb_free(&out);
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
        } else {
            done = line_key(e, key, &end);
        }
        if (!done && !os_term_key_waits()) draw(e); /* pasted text is drawn once */
    }
    e->cursor = e->text.n;
    draw(e);
    os_write(OS_STDOUT, STR("\r\n"), NULL);
    os_term_end();
    return end;
}
