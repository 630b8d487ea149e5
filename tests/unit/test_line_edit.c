/* cli/line_edit: what keys do to the text, the cursor and the history. */
#include "unit.h"

#include "cli/history.h"
#include "os/os.h"

#define CTRL(letter) ((letter) - 'A' + 1)

/* Presses keys: letters as they are; < > left and right, ^X control, { } home and end, ~ delete, # backspace, @ up, ! down. */
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

const struct unit_suite unit_line_edit = {
    "line_edit",
    (const struct unit_case[]){{"keys_edit_the_text", keys_edit_the_text},
                               {"lines_end", lines_end},
                               {"history_comes_back", history_comes_back},
                               {"history_outlives_a_session", history_outlives_a_session},
                               {"characters_have_columns", characters_have_columns},
                               {0}},
};
