/* Strings of TOML: with escapes or literal, on one line or on several. */
#include "base/toml_internal.h"

/* A character that no text and no comment may hold. */
static bool is_control(int c) {
    return (c >= 0 && c < 32 && c != '\t') || c == 127;
}

static int read_code(struct toml_reader *r, int n_digits, struct sb *out) {
    uint32_t code = 0;
    char utf8[4];
    for (int i = 0; i < n_digits; i++, r->at++) {
        int c = toml_peek(r), low = c | 32;
        if (c >= '0' && c <= '9') code = code << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f') code = code << 4 | (uint32_t)(low - 'a' + 10);
        else return toml_fail(r, "\\%c needs %d hexadecimal digits", n_digits == 4 ? 'u' : 'U', n_digits);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return toml_fail(r, "U+%X is no character", (unsigned)code);
    sb_put(out, str_n(utf8, utf8_encode(code, utf8)));
    return ERR_OK;
}

/* Behind the backslash. */
static int read_escape(struct toml_reader *r, struct sb *out) {
    static const char letters[] = "btnfr\"\\", meanings[] = "\b\t\n\f\r\"\\";
    int c = toml_peek(r);
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    r->at++;
    if (found) sb_putc(out, meanings[found - letters]);
    else if (c == 'u' || c == 'U') return read_code(r, c == 'u' ? 4 : 8, out);
    else return toml_fail(r, "a text has a backslash before a character that it means nothing for; write \\\\, or '...' around the text");
    return ERR_OK;
}

/* A backslash at the end of a line: the white space up to the next character is left out. False: it stands inside a line. */
static bool skip_break(struct toml_reader *r) {
    size_t at = r->at;
    while (at < r->text.n && (r->text.p[at] == ' ' || r->text.p[at] == '\t')) at++;
    bool breaks = at < r->text.n && (r->text.p[at] == '\n' || (r->text.p[at] == '\r' && at + 1 < r->text.n && r->text.p[at + 1] == '\n'));
    for (; breaks && at < r->text.n && strchr(" \t\r\n", r->text.p[at]) && r->text.p[at]; at++) r->line += r->text.p[at] == '\n';
    if (breaks) r->at = at;
    return breaks;
}

/* A newline is "\n" or "\r\n"; a carriage return alone is none. */
static bool at_newline(const struct toml_reader *r) {
    return toml_peek(r) == '\n' || toml_starts(r, "\r\n");
}

/* The end of a text on several lines: three marks, before which up to two belong to the text. */
static bool at_long_end(const struct toml_reader *r, int mark, int *out_n) {
    int n = 0;
    while (r->at + (size_t)n < r->text.n && r->text.p[r->at + (size_t)n] == mark && n < 6) n++;
    *out_n = n;
    return n >= 3;
}

static int read_long(struct toml_reader *r, int mark, struct sb *out) {
    int n;
    r->at += 3;
    if (toml_starts(r, "\r\n")) r->at++;
    if (toml_peek(r) == '\n') {
        r->at++;
        r->line++;
    }
    while (!at_long_end(r, mark, &n)) {
        int c = toml_peek(r);
        if (c < 0) return toml_fail(r, "a text has no end: %c%c%c is missing", mark, mark, mark);
        if (at_newline(r)) {
            sb_putc(out, '\n'); /* whatever the file's newlines are */
            r->at += c == '\r' ? 2 : 1;
            r->line++;
        } else if (is_control(c)) {
            return toml_fail(r, "a text holds a control character");
        } else {
            r->at++;
            if (c != '\\' || mark == '\'') sb_putc(out, (char)c);
            else if (!skip_break(r)) TRY(read_escape(r, out));
        }
    }
    if (n > 5) return toml_fail(r, "a text ends with more than two marks of its own");
    for (int i = 3; i < n; i++) sb_putc(out, (char)mark);
    r->at += (size_t)n;
    return ERR_OK;
}

static int read_short(struct toml_reader *r, int mark, struct sb *out) {
    for (r->at++; toml_peek(r) != mark;) {
        int c = toml_peek(r);
        if (c < 0 || at_newline(r)) return toml_fail(r, "a text has no end: %c is missing", mark);
        if (is_control(c)) return toml_fail(r, "a text holds a control character");
        r->at++;
        if (c == '\\' && mark == '"') TRY(read_escape(r, out));
        else sb_putc(out, (char)c);
    }
    r->at++;
    return ERR_OK;
}

int toml_text_read(struct toml_reader *r, bool is_key, struct str *out) {
    struct sb text = {0};
    int mark = toml_peek(r);
    const char marks[] = {(char)mark, (char)mark, (char)mark, 0};
    bool is_long = toml_starts(r, marks);
    int code = is_long && is_key ? toml_fail(r, "a key stands on one line")
               : is_long         ? read_long(r, mark, &text)
                                 : read_short(r, mark, &text);
    *out = str_copy(r->arena, sb_str(&text));
    sb_free(&text);
    return code;
}
