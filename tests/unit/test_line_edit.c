/* cli/line_edit: what keys do to the text, the cursor and the history. */
#include "unit.h"

#include "cli/history.h"
#include "os/os.h"

#define CTRL(letter) ((letter) - 'A' + 1)

/* Presses keys: letters as they are; < > left and right, ^X control, { } home and end, ~ delete, # backspace, @ up, ! down, [ ] begin and
 * end of a paste. */
static enum line_end press(struct line_edit *e, const char *keys) {
    enum line_end end = LINE_DONE;
    struct str s = str_of(keys);
    for (size_t i = 0; i < s.n;) {
        uint32_t c;
        i += utf8_decode(s.p + i, s.n - i, &c);
        if (c == '^') c = (uint32_t)CTRL(s.p[i++]);
        else if (c == '<') c = OS_KEY_LEFT;
        else if (c == '>') c = OS_KEY_RIGHT;
        else if (c == '{') c = OS_KEY_HOME;
        else if (c == '}') c = OS_KEY_END;
        else if (c == '~') c = OS_KEY_DELETE;
        else if (c == '#') c = 127;
        else if (c == '@') c = OS_KEY_UP;
        else if (c == '!') c = OS_KEY_DOWN;
        else if (c == '[') c = OS_KEY_PASTE_BEGIN;
        else if (c == ']') c = OS_KEY_PASTE_END;
        if (line_key(e, c, &end)) return end;
    }
    return end;
}

static void keys_edit_the_text(void) {
    static const struct {
        const char *keys, *text;
        size_t cursor;
    } rows[] = {
        {"abc", "abc", 3},
        {"abc<<x", "axbc", 2},
        {"abc^Ax^Ey", "xabcy", 5},
        {"abc{~}#", "b", 1},
        {"one two three^W", "one two ", 8},
        {"one two three^A>>>^K", "one", 3},
        {"one two three<<<<<^U", "three", 0},
        {"\xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80<<#x", "x\xE4\xB8\xAD\xF0\x9F\x98\x80", 1},
        {"a^D", "a", 1},
        {"<<<>>>", "", 0},
        {"##~^K^U^W", "", 0},
        /* pasted text is text: newlines of every system, tabs, no keys and nothing that steers a terminal */
        {"[one\rtwo]", "one\ntwo", 7},
        {"[one\ntwo\r\nthree\r\rfour\n]", "one\ntwo\nthree\n\nfour\n", 20},
        {"ab<[\tx\r]y", "a\tx\nyb", 5},
        {"[a^D^Ub<@>#~{}c]", "abc", 3},
        {"[\x7F\x01\xC2\x9B\xC3\xA4]", "\xC3\xA4", 2},
        {"x[][y]z", "xyz", 3},
        {"[[a]]b", "ab", 2},
        /* lines of one text */
        {"[one\rtwo\rthree]@x", "one\ntwox\nthree", 8},
        {"[one\rtwo\rthree]@@x", "onex\ntwo\nthree", 4},
        {"[\xC3\xA4\xC3\xB6\xC3\xBC\rxyz]<@.", "\xC3\xA4\xC3\xB6.\xC3\xBC\nxyz", 5},
        {"[one\r\rthree]@!x", "one\n\nxthree", 6},
        {"[one\rtwo]{x}y", "one\nxtwoy", 9},
        {"[one\rtwo]@^Ex^Ay", "yonex\ntwo", 1},
        {"[one two\rthree]^W^W", "one ", 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct line_edit e = {0};
        press(&e, rows[i].keys);
        CHECK_STR(sb_str(&e.text), str_of(rows[i].text));
        CHECK_INT(e.cursor, rows[i].cursor);
        line_free(&e);
    }
}

static void lines_end(void) {
    struct line_edit e = {0};
    CHECK_INT(press(&e, "x\r"), LINE_DONE);
    CHECK_INT(press(&e, "^C"), LINE_CANCELLED);
    CHECK_INT(press(&e, "#^D"), LINE_CLOSED);
    CHECK_INT(line_key(&e, OS_KEY_CLOSED, &(enum line_end){0}), true);
    line_free(&e);
}

static void pastes_end_no_line(void) {
    struct line_edit e = {0};
    enum line_end end;
    CHECK_INT(press(&e, "[a\rb\r]\r"), LINE_DONE);
    CHECK_STR(sb_str(&e.text), STR("a\nb\n"));
    CHECK_INT(press(&e, "[not all of it^C"), LINE_CANCELLED);
    CHECK_INT(press(&e, "c\r"), LINE_DONE); /* no longer pasted */
    CHECK_STR(sb_str(&e.text), STR("a\nb\nc"));
    CHECK(!line_key(&e, OS_KEY_PASTE_BEGIN, &end) && line_key(&e, OS_KEY_CLOSED, &end));
    CHECK_INT(end, LINE_CLOSED);
    line_free(&e);
}

static void history_comes_back(void) {
    struct line_edit e = {0};
    line_remember(&e, STR("first"));
    line_remember(&e, STR("second"));
    line_remember(&e, STR("second"));
    line_remember(&e, STR(""));
    CHECK_INT(e.n_history, 2);
    e.i_history = e.n_history;
    press(&e, "draft@");
    CHECK_STR(sb_str(&e.text), STR("second"));
    press(&e, "@@");
    CHECK_STR(sb_str(&e.text), STR("first"));
    press(&e, "!!!");
    CHECK_STR(sb_str(&e.text), STR("draft"));
    line_remember(&e, STR("third\nof two lines"));
    e.i_history = e.n_history;
    press(&e, "@@@"); /* through its lines, then to the one before */
    CHECK_STR(sb_str(&e.text), STR("second"));
    press(&e, "!<<<<!!");
    CHECK_STR(sb_str(&e.text), STR("draft"));
    for (int i = 0; i < LINE_HISTORY_MAX + 5; i++) line_remember(&e, i % 2 ? STR("a") : STR("b"));
    CHECK_INT(e.n_history, LINE_HISTORY_MAX);
    line_free(&e);
}

static void press_up(const char *path, const char *want) {
    struct line_edit e = {0};
    struct err err;
    CHECK_OK(history_load(path, &e, &err), err);
    e.i_history = e.n_history;
    press(&e, "@");
    CHECK_STR(sb_str(&e.text), str_of(want));
    CHECK(e.n_history <= LINE_HISTORY_MAX);
    line_free(&e);
}

/* Lines of one session are there in the next; the file stays short, and nothing in it reaches the terminal unlooked at. */
static void history_outlives_a_session(void) {
    struct arena a = {0};
    struct err err;
    struct str text;
    const char *path = str_fmt(&a, "%s/state/deep/history", unit_scratch_dir()).p;
    press_up(path, ""); /* no file, and none is made */
    CHECK_INT(os_stat(path, &(struct os_stat){0}, NULL), ERR_ENOTFOUND);
    CHECK_OK(history_add(path, STR("first"), &err), err);
    CHECK_OK(history_add(path, STR("zweite Zeile \xC3\xA4"), &err), err);
    press_up(path, "zweite Zeile \xC3\xA4");
    static char wide[HISTORY_LINE_BYTES + 1];
    memset(wide, 'x', sizeof wide);
    CHECK_OK(history_add(path, str_n(wide, sizeof wide), &err), err);
    CHECK_OK(history_add(path, STR("\x1B[2J"), &err), err);
    CHECK_OK(history_add(path, STR("\xFF"), &err), err);
    CHECK_OK(history_add(path, STR(""), &err), err);
    CHECK_OK(os_file_load(&a, path, 0, &text, &err), err);
    CHECK_STR(text, STR("first\nzweite Zeile \xC3\xA4\n"));
    struct sb many = {0};
    for (int i = 0; i < 3 * LINE_HISTORY_MAX; i++) sb_fmt(&many, "line %d\n", i);
    sb_puts(&many, "\x1B]0;evil\x07\n\xC2\x9Bm\ncut off");
    CHECK_OK(os_file_save(path, sb_str(&many), &err), err);
    press_up(path, "cut off");
    CHECK_OK(os_file_load(&a, path, 0, &text, &err), err);
    CHECK(str_starts(text, STR("line 1001\n")) && str_ends(text, STR("line 1499\ncut off\n")));
    sb_clear(&many);
    while (many.n < HISTORY_FILE_BYTES + 100) sb_put(&many, str_n(wide, 100));
    sb_puts(&many, "\nafter\n");
    CHECK_OK(os_file_save(path, sb_str(&many), &err), err);
    press_up(path, "after");
    CHECK_OK(os_file_load(&a, path, 0, &text, &err), err);
    CHECK_STR(text, STR("after\n"));
    CHECK(history_add(unit_scratch_dir(), STR("a folder"), &err) != 0 && err.msg[0]);
    sb_free(&many);
    arena_free(&a);
}

static void characters_have_columns(void) {
    CHECK_INT(char_columns('a'), 1);
    CHECK_INT(char_columns(0x4E2D), 2);
    CHECK_INT(char_columns(0x1F600), 2);
    CHECK_INT(char_columns(0x301), 0);
    CHECK_INT(char_columns(0xE4), 1);
}

/* What is drawn, with | between rows; the cursor's row and column. */
static void texts_have_rows(void) {
    static const struct {
        const char *text;
        size_t cursor;
        int width;
        const char *rows;
        size_t row, column;
    } rows[] = {
        {"", 0, 10, "> ", 0, 2},
        {"abc", 1, 10, "> abc", 0, 3},
        {"abcdefgh", 8, 10, "> abcdefgh|", 1, 0}, /* the cursor stands in the next row when this one is full */
        {"abcdefghij", 9, 10, "> abcdefgh|ij", 1, 1},
        {"one\ntwo\n", 8, 10, "> one|two|", 2, 0},
        {"one\n\nthree", 4, 10, "> one||three", 1, 0},
        {"\tx", 2, 10, ">     x", 0, 7},
        {"\tx", 2, 5, ">    | x", 1, 2},
        {"abcdefg\xE4\xB8\xAD", 10, 10, "> abcdefg|\xE4\xB8\xAD", 1, 2}, /* a wide letter has no room in the last column */
        {"e\xCC\x81x", 4, 10, "> e\xCC\x81x", 0, 4},
        {"\xE4\xB8\xAD", 3, 1, ">| ||\xE4\xB8\xAD|", 4, 0},
    };
    struct line_view v = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sb got = {0};
        line_view_make(&v, STR("> "), str_of(rows[i].text), rows[i].cursor, rows[i].width);
        for (size_t r = 0; r < v.n_rows; r++) {
            if (r) sb_putc(&got, '|');
            sb_put(&got, str_sub(sb_str(&v.shown), v.rows[r].begin, v.rows[r].end - v.rows[r].begin));
        }
        CHECK_STR(sb_str(&got), str_of(rows[i].rows));
        CHECK_INT(v.row, rows[i].row);
        CHECK_INT(v.column, rows[i].column);
        sb_free(&got);
    }
    line_view_free(&v);
}

const struct unit_suite unit_line_edit = {
    "line_edit",
    (const struct unit_case[]){{"keys_edit_the_text", keys_edit_the_text},
                               {"lines_end", lines_end},
                               {"pastes_end_no_line", pastes_end_no_line},
                               {"history_comes_back", history_comes_back},
                               {"history_outlives_a_session", history_outlives_a_session},
                               {"characters_have_columns", characters_have_columns},
                               {"texts_have_rows", texts_have_rows},
                               {0}},
};
