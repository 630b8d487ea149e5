/* cli/screen_text: words that go to the next line, marks that become colours, and what is left as it is. */
#include "unit.h"

#include "cli/screen_text.h"

/* The text in pieces of n bytes; colours are written as <b>, <i>, <c>, <q> and </>. */
static struct str shown(struct arena *a, const char *text, int width, bool marks, size_t n) {
    static const struct {
        const char *code, *name;
    } codes[] = {{"\x1b[0m", "</>"}, {"\x1b[1m", "<b>"}, {"\x1b[3m", "<i>"}, {"\x1b[36m", "<c>"}, {"\x1b[2m", "<q>"}};
    struct screen_text s = {.width = width, .marks = marks, .is_empty_line = true};
    struct sb out = {0}, plain = {0};
    struct str rest = str_of(text);
    for (; rest.n; rest = str_from(rest, n < rest.n ? n : rest.n)) screen_text_put(&s, str_sub(rest, 0, n), &out);
    screen_text_end(&s, &out);
    for (size_t i = 0; i < out.n;) {
        size_t k = 0, n_codes = sizeof codes / sizeof *codes;
        while (k < n_codes && !str_starts(str_from(sb_str(&out), i), str_of(codes[k].code))) k++;
        if (k < n_codes) sb_puts(&plain, codes[k].name), i += strlen(codes[k].code);
        else sb_putc(&plain, out.p[i++]);
    }
    struct str copy = str_copy(a, sb_str(&plain));
    screen_text_free(&s);
    sb_free(&out);
    sb_free(&plain);
    return copy;
}

static void check_rows(const char *const rows[][2], size_t n_rows, int width, bool marks) {
    struct arena a = {0};
    for (size_t i = 0; i < n_rows; i++)
        for (size_t n = 1; n < 40; n += 13) CHECK_STR(shown(&a, rows[i][0], width, marks, n), str_of(rows[i][1]));
    arena_free(&a);
}

static void lines_break_between_words(void) {
    static const char *const rows[][2] = {
        {"one two three", "one two\nthree"},
        {"one two three four", "one two\nthree four"},
        {"exactly ten", "exactly\nten"},
        {"1234567890 x", "1234567890\nx"},
        {"12345678901234 x", "12345678901234 x"}, /* the terminal breaks it: 4 columns are used of the next row */
        {"a\nb\n\nc", "a\nb\n\nc"},
        {"- one two three", "- one two\n  three"},
        {"12. one two six", "12. one\n    two\n    six"},
        {"> one two three", "> one two\n  three"},
        {"  in two three", "  in two\n  three"},
        {"```\na long line of code\n```\none two three", "```\na long line of code\n```\none two\nthree"},
        {"| a | long | row |\nx", "| a | long | row |\nx"},
        {"\xE4\xB8\xAD\xE6\x96\x87\xE4\xB8\xAD\xE6\x96\x87\xE4\xB8\xAD\xE6\x96\x87",
         "\xE4\xB8\xAD\xE6\x96\x87\xE4\xB8\xAD\xE6\x96\x87\xE4\xB8\xAD\n\xE6\x96\x87"},
        {"x\x1b[31my\x07", "x\xEF\xBF\xBD[31my\xEF\xBF\xBD"}, /* nothing steers the terminal */
        {"# Title **b**", "# Title\n**b**"},
    };
    check_rows(rows, sizeof rows / sizeof *rows, 10, false);
}

static void marks_become_colours(void) {
    static const char *const rows[][2] = {
        {"# Title\ntext", "</><b>Title</>\ntext"},
        {"a **bold word** b", "a </><b>bold word</> b"},
        {"a *slanted* b", "a </><i>slanted</> b"},
        {"***both***", "</><b></><b><i>both</><i></>"},
        {"use `x * y` now", "use </><c>x * y</> now"},
        {"2*3*4 and 5 * 6", "2*3*4 and 5 * 6"},
        {"snake_case_name", "snake_case_name"},
        {"```c\nint x;\n```\nend", "</><c>```c\nint x;\n```</>\nend"},
        {"> quoted\nplain", "</><q>> quoted</>\nplain"},
        {"* item **b**", "* item </><b>b</>"},
        {"**never closed\n\nnext", "</><b>never closed\n</>\nnext"},
        {"#hashtag", "#hashtag"},
        {"**x**, **y**.", "</><b>x</>, </><b>y</>."},
    };
    check_rows(rows, sizeof rows / sizeof *rows, 60, true);
}

const struct unit_suite unit_screen_text = {
    "screen_text",
    (const struct unit_case[]){{"lines_break_between_words", lines_break_between_words},
                               {"marks_become_colours", marks_become_colours},
                               {0}},
};
