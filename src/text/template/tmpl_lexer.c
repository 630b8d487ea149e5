/* The lexer: template text, tags and what stands in them. It owns whitespace control (trim_blocks, lstrip_blocks, the
 * signs - and +), comments, raw blocks and string escapes. Like Jinja's it closes a tag only outside brackets, so that
 * "{{ {'a': {}}}}" is read rightly. It lexes on demand: the parser holds two tokens at most. */
#include "text/template/tmpl_ast.h"
#include "text/template/tmpl_unicode.h"

#include <stdlib.h>

void tmpl_lex_init(struct lexer *lx, struct arena *a, struct str source) {
    char *p = arena_alloc(a, source.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        char c = source.p[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < source.n && source.p[i + 1] == '\n') i++;
        }
        p[n++] = c;
    }
    if (n && p[n - 1] == '\n') n--;
    lx->arena = a;
    lx->src = str_n(p, n);
    lx->line = 1;
    lx->line_starting = true;
}

void tmpl_lex_fail(struct lexer *lx, int line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    err_vset(lx->err, ERR_EFORMAT, fmt, args);
    va_end(args);
    if (lx->err) err_prefix(lx->err, "chat template line %d: %s", line, lx->kind ? lx->kind : "TemplateSyntaxError");
    longjmp(*lx->fail, 1);
}

static char at(const struct lexer *lx, size_t i) {
    return i < lx->src.n ? lx->src.p[i] : '\0';
}

static bool looking_at(const struct lexer *lx, size_t i, const char *text) {
    return str_starts(str_from(lx->src, i), str_of(text));
}

/* The first byte at or after i that is not white space. */
static size_t skip_space(const struct lexer *lx, size_t i) {
    while (i < lx->src.n) {
        uint32_t code;
        size_t n = utf8_decode(lx->src.p + i, lx->src.n - i, &code);
        if (!uni_is_space(code)) break;
        i += n;
    }
    return i;
}

static void count_lines(struct lexer *lx, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) lx->line += lx->src.p[i] == '\n';
}

static void move_to(struct lexer *lx, size_t to) {
    count_lines(lx, lx->pos, to);
    if (to > lx->pos) lx->line_starting = lx->src.p[to - 1] == '\n';
    lx->pos = to;
}

/* After the closing braces: "-" eats white space, trim_blocks eats one newline unless "+" stood before them. */
static size_t after_close(const struct lexer *lx, size_t i, char sign, bool trims) {
    if (sign == '-') return skip_space(lx, i);
    return trims && sign != '+' && at(lx, i) == '\n' ? i + 1 : i;
}

/* The end of a "{% word %}" that begins at i, or 0. *out_sign is the sign after "{%". */
static size_t match_word_tag(const struct lexer *lx, size_t i, const char *word, char *out_sign) {
    if (!looking_at(lx, i, "{%")) return 0;
    size_t k = i + 2;
    *out_sign = at(lx, k) == '-' || at(lx, k) == '+' ? at(lx, k) : '\0';
    if (*out_sign) k++;
    k = skip_space(lx, k);
    if (!looking_at(lx, k, word)) return 0;
    k = skip_space(lx, k + strlen(word));
    bool ends_raw = word[0] == 'e';
    char sign = at(lx, k) == '-' || (ends_raw && at(lx, k) == '+') ? at(lx, k) : '\0';
    if (sign) k++;
    if (!looking_at(lx, k, "%}")) return 0;
    return after_close(lx, k + 2, sign, ends_raw);
}

/* What is left of the text before a tag: "-" strips white space, lstrip_blocks strips blanks back to the line's start. */
static struct str strip_before(const struct lexer *lx, struct str text, char sign, bool is_var) {
    if (sign == '-') return uni_strip_right(text);
    if (sign == '+' || is_var) return text;
    size_t line = text.n;
    while (line && text.p[line - 1] != '\n') line--;
    if (line == 0 && !lx->line_starting) return text;
    struct str tail = str_from(text, line);
    return uni_strip_right(tail).n == 0 ? str_sub(text, 0, line) : text;
}

static struct token data_token(struct lexer *lx, struct str text) {
    return (struct token){.kind = TK_DATA, .line = lx->line, .text = text};
}

static size_t find_tag(const struct lexer *lx, size_t from) {
    for (size_t i = from; i + 1 < lx->src.n; i++) {
        if (lx->src.p[i] != '{') continue;
        char c = lx->src.p[i + 1];
        if (c == '{' || c == '%' || c == '#') return i;
    }
    return lx->src.n;
}

static void skip_comment(struct lexer *lx, size_t begin) {
    size_t end = str_find(lx->src, STR("#}"), begin);
    if (end == STR_NONE) tmpl_lex_fail(lx, lx->line, "Missing end of comment tag");
    char sign = end > begin && (at(lx, end - 1) == '-' || at(lx, end - 1) == '+') ? at(lx, end - 1) : '\0';
    move_to(lx, after_close(lx, end + 2, sign, true));
}

static struct token lex_raw(struct lexer *lx) {
    for (size_t i = lx->pos; i < lx->src.n; i++) {
        char sign;
        size_t end = match_word_tag(lx, i, "endraw", &sign);
        if (!end) continue;
        struct str text = strip_before(lx, str_sub(lx->src, lx->pos, i - lx->pos), sign, false);
        struct token t = data_token(lx, text);
        move_to(lx, end);
        lx->state = LEX_ROOT;
        return t;
    }
    tmpl_lex_fail(lx, lx->line, "Missing end of raw directive");
}

/* Text up to the next tag; opens the tag. A text of no bytes is not worth a token, except that it opens a tag. */
static struct token lex_root(struct lexer *lx) {
    size_t start = lx->pos, tag = find_tag(lx, start);
    if (tag == lx->src.n) {
        struct token t = data_token(lx, str_from(lx->src, start));
        move_to(lx, lx->src.n);
        return t;
    }
    char c = at(lx, tag + 1), sign = at(lx, tag + 2);
    if (sign != '-' && sign != '+') sign = '\0';
    size_t inside = tag + 2 + (sign != '\0');
    char raw_sign;
    size_t raw_end = match_word_tag(lx, tag, "raw", &raw_sign);
    struct token t = data_token(lx, strip_before(lx, str_sub(lx->src, start, tag - start), sign, c == '{'));
    if (raw_end) {
        move_to(lx, raw_end);
        lx->state = LEX_RAW;
    } else if (c == '#') {
        move_to(lx, inside);
        skip_comment(lx, inside);
    } else {
        move_to(lx, inside);
        lx->state = c == '%' ? LEX_BLOCK : LEX_VAR;
        lx->n_closers = -1; /* the opening token comes first */
    }
    return t;
}

/* The position after the end of the current tag if it ends here, else 0. */
static size_t match_end(const struct lexer *lx) {
    size_t i = lx->pos;
    bool block = lx->state == LEX_BLOCK;
    char sign = at(lx, i);
    if (sign == '-' || (block && sign == '+')) i++;
    else sign = '\0';
    if (!looking_at(lx, i, block ? "%}" : "}}")) return 0;
    return after_close(lx, i + 2, sign, block);
}

static size_t digits(const struct lexer *lx, size_t i, const char *allowed) {
    size_t k = i;
    for (;;) {
        size_t m = at(lx, k) == '_' && k > i ? k + 1 : k;
        if (!at(lx, m) || !strchr(allowed, at(lx, m))) return k;
        k = m + 1;
    }
}

static void lex_int(struct lexer *lx, struct token *t, struct str text, int base, size_t prefix) {
    uint64_t value = 0;
    for (size_t i = prefix; i < text.n; i++) {
        char c = text.p[i];
        if (c == '_') continue;
        unsigned digit = c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 32) - 'a' + 10);
        if (value > ((uint64_t)INT64_MAX - digit) / (unsigned)base)
            tmpl_lex_fail(lx, t->line, "integer %.*s is beyond 64 bits", STR_ARG(text));
        value = value * (unsigned)base + digit;
    }
    t->kind = TK_INT;
    t->i = (int64_t)value;
}

static void lex_float(struct lexer *lx, struct token *t, struct str text) {
    char *copy = arena_alloc(lx->arena, text.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != '_') copy[n++] = text.p[i];
    t->kind = TK_FLOAT;
    t->f = strtod(copy, NULL); /* the form was checked; out of range becomes infinity, as in Python */
}

static size_t exponent(const struct lexer *lx, size_t i) {
    if ((at(lx, i) | 32) != 'e') return i;
    size_t k = i + 1;
    if (at(lx, k) == '+' || at(lx, k) == '-') k++;
    size_t end = digits(lx, k, "0123456789");
    return end > k ? end : i;
}

static size_t lex_number(struct lexer *lx, struct token *t) {
    static const char decimal[] = "0123456789";
    size_t i = lx->pos, whole = digits(lx, i, decimal), end = whole;
    bool after_dot = i > 0 && at(lx, i - 1) == '.';
    if (!after_dot) {
        if (at(lx, whole) == '.' && digits(lx, whole + 1, decimal) > whole + 1) end = digits(lx, whole + 1, decimal);
        end = exponent(lx, end);
    }
    if (end > whole) {
        lex_float(lx, t, str_sub(lx->src, i, end - i));
        return end;
    }
    static const struct {
        char letter;
        int base;
        const char *digits;
    } bases[] = {{'b', 2, "01"}, {'o', 8, "01234567"}, {'x', 16, "0123456789abcdefABCDEF"}};
    for (size_t k = 0; at(lx, i) == '0' && k < sizeof bases / sizeof *bases; k++) {
        size_t first = i + 2 + (at(lx, i + 2) == '_');
        size_t last = (at(lx, i + 1) | 32) == bases[k].letter ? digits(lx, first, bases[k].digits) : first;
        if (last == first) continue;
        lex_int(lx, t, str_sub(lx->src, i, last - i), bases[k].base, 2);
        return last;
    }
    if (at(lx, i) == '0') whole = digits(lx, i, "0"); /* "007" is 00 and then 7 */
    lex_int(lx, t, str_sub(lx->src, i, whole - i), 10, 0);
    return whole;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Unescaped text, in memory that was made large enough beforehand: no escape grows to more than twice its length. */
struct unescaped {
    char *p;
    size_t n;
};

static void put_code(struct unescaped *out, uint32_t code) {
    out->n += utf8_encode(code, out->p + out->n);
}

/* \xhh, \uhhhh, \Uhhhhhhhh: i is at the letter. */
static size_t unescape_hex(struct lexer *lx, struct str s, size_t i, struct unescaped *out) {
    size_t n = s.p[i] == 'x' ? 2 : s.p[i] == 'u' ? 4 : 8;
    uint32_t code = 0;
    for (size_t k = 1; k <= n; k++) {
        int d = i + k < s.n ? hex_value(s.p[i + k]) : -1;
        if (d < 0) tmpl_lex_fail(lx, lx->line, "truncated \\%c escape in a string", s.p[i]);
        code = code << 4 | (uint32_t)d;
    }
    if (code > 0x10FFFF) tmpl_lex_fail(lx, lx->line, "illegal Unicode character in a string");
    if (code >= 0xD800 && code < 0xE000) tmpl_lex_fail(lx, lx->line, "a lone surrogate in a string cannot be written as UTF-8");
    put_code(out, code);
    return i + n + 1;
}

static size_t unescape_octal(struct str s, size_t i, struct unescaped *out) {
    uint32_t code = 0;
    size_t k = 0;
    for (; k < 3 && i + k < s.n && s.p[i + k] >= '0' && s.p[i + k] <= '7'; k++) code = code * 8 + (uint32_t)(s.p[i + k] - '0');
    put_code(out, code);
    return i + k;
}

/* A backslash before a character that stands for nothing keeps both. Python writes characters beyond ASCII as escapes
 * first, so there the character turns into the escape's letters. */
static size_t unescape_other(struct str s, size_t i, struct unescaped *out) {
    static const char hex[] = "0123456789abcdef";
    uint32_t code;
    size_t n = utf8_decode(s.p + i, s.n - i, &code);
    put_code(out, '\\');
    if (code < 0x80) {
        put_code(out, code);
        return i + n;
    }
    int n_digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    put_code(out, n_digits == 2 ? 'x' : n_digits == 4 ? 'u' : 'U');
    while (n_digits--) put_code(out, (unsigned char)hex[code >> 4 * n_digits & 15]);
    return i + n;
}

static size_t unescape_one(struct lexer *lx, struct str s, size_t i, struct unescaped *out) {
    static const char letters[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
    char c = s.p[i];
    const char *letter = c ? strchr(letters, c) : NULL;
    if (c == '\n') return i + 1;
    if (letter) {
        put_code(out, (unsigned char)meanings[letter - letters]);
        return i + 1;
    }
    if (c >= '0' && c <= '7') return unescape_octal(s, i, out);
    if (c == 'x' || c == 'u' || c == 'U') return unescape_hex(lx, s, i, out);
    if (c == 'N') tmpl_lex_fail(lx, lx->line, "\\N{name} escapes are not supported: write the character");
    return unescape_other(s, i, out);
}

static struct str unescape(struct lexer *lx, struct str s) {
    if (str_find_char(s, '\\', 0) == STR_NONE) return s;
    struct unescaped out = {arena_alloc(lx->arena, 2 * s.n + 16), 0};
    for (size_t i = 0; i < s.n;) {
        if (s.p[i] == '\\') i = unescape_one(lx, s, i + 1, &out);
        else out.p[out.n++] = s.p[i++];
    }
    return str_n(out.p, out.n);
}

static size_t lex_string(struct lexer *lx, struct token *t) {
    char quote = at(lx, lx->pos);
    size_t i = lx->pos + 1;
    while (i < lx->src.n && lx->src.p[i] != quote) i += lx->src.p[i] == '\\' ? 2 : 1;
    if (i >= lx->src.n) tmpl_lex_fail(lx, t->line, "unexpected char '%c' at %zu: the string has no end", quote, lx->pos);
    t->kind = TK_STRING;
    t->text = unescape(lx, str_sub(lx->src, lx->pos + 1, i - lx->pos - 1));
    return i + 1;
}

static size_t lex_name(struct lexer *lx, struct token *t) {
    size_t i = lx->pos;
    while (i < lx->src.n) {
        uint32_t code;
        size_t n = utf8_decode(lx->src.p + i, lx->src.n - i, &code);
        if (!uni_is_word(code)) break;
        i += n;
    }
    t->kind = TK_NAME;
    t->text = str_sub(lx->src, lx->pos, i - lx->pos);
    return i;
}

/* Two characters before one. */
static const struct {
    const char *text;
    enum tk kind;
} operators[] = {
    {"//", TK_FLOORDIV}, {"**", TK_POW},   {"==", TK_EQ},    {"!=", TK_NE},    {">=", TK_GE},       {"<=", TK_LE},      {"+", TK_ADD},
    {"-", TK_SUB},       {"/", TK_DIV},    {"*", TK_MUL},    {"%", TK_MOD},    {"~", TK_TILDE},     {"[", TK_LBRACKET}, {"]", TK_RBRACKET},
    {"(", TK_LPAREN},    {")", TK_RPAREN}, {"{", TK_LBRACE}, {"}", TK_RBRACE}, {">", TK_GT},        {"<", TK_LT},       {"=", TK_ASSIGN},
    {".", TK_DOT},       {":", TK_COLON},  {"|", TK_PIPE},   {",", TK_COMMA},  {";", TK_SEMICOLON},
};

static void balance(struct lexer *lx, enum tk kind) {
    char c = at(lx, lx->pos);
    if (kind == TK_LPAREN || kind == TK_LBRACKET || kind == TK_LBRACE) {
        if (lx->n_closers == LEX_MAX_NESTING) tmpl_lex_fail(lx, lx->line, "brackets are nested more than %d deep", LEX_MAX_NESTING);
        lx->closers[lx->n_closers++] = kind == TK_LPAREN ? ')' : kind == TK_LBRACKET ? ']' : '}';
    } else if (kind == TK_RPAREN || kind == TK_RBRACKET || kind == TK_RBRACE) {
        if (lx->n_closers == 0) tmpl_lex_fail(lx, lx->line, "unexpected '%c'", c);
        char want = lx->closers[--lx->n_closers];
        if (want != c) tmpl_lex_fail(lx, lx->line, "unexpected '%c', expected '%c'", c, want);
    }
}

static size_t lex_operator(struct lexer *lx, struct token *t) {
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!looking_at(lx, lx->pos, operators[i].text)) continue;
        t->kind = operators[i].kind;
        balance(lx, t->kind);
        return lx->pos + strlen(operators[i].text);
    }
    uint32_t code;
    size_t n = utf8_decode(lx->src.p + lx->pos, lx->src.n - lx->pos, &code);
    tmpl_lex_fail(lx, lx->line, "unexpected char '%.*s' at %zu", (int)n, lx->src.p + lx->pos, lx->pos);
}

static struct token lex_tag(struct lexer *lx) {
    struct token t = {.line = lx->line};
    bool block = lx->state == LEX_BLOCK;
    if (lx->n_closers < 0) {
        lx->n_closers = 0;
        t.kind = block ? TK_BLOCK_BEGIN : TK_VAR_BEGIN;
        return t;
    }
    for (;;) {
        size_t end = lx->n_closers == 0 ? match_end(lx) : 0;
        if (end) {
            t.kind = block ? TK_BLOCK_END : TK_VAR_END;
            t.line = lx->line;
            move_to(lx, end);
            lx->state = LEX_ROOT;
            return t;
        }
        size_t next = skip_space(lx, lx->pos);
        if (next == lx->pos) break;
        move_to(lx, next);
    }
    t.line = lx->line;
    if (lx->pos >= lx->src.n) return t; /* TK_EOF */
    uint32_t code;
    utf8_decode(lx->src.p + lx->pos, lx->src.n - lx->pos, &code);
    size_t end;
    if (code >= '0' && code <= '9') end = lex_number(lx, &t);
    else if (code == '\'' || code == '"') end = lex_string(lx, &t);
    else if (uni_is_word(code)) end = lex_name(lx, &t);
    else end = lex_operator(lx, &t);
    move_to(lx, end);
    return t;
}

struct token tmpl_lex_next(struct lexer *lx) {
    for (;;) {
        if (lx->state == LEX_BLOCK || lx->state == LEX_VAR) return lex_tag(lx);
        if (lx->pos >= lx->src.n && lx->state == LEX_ROOT) return (struct token){.kind = TK_EOF, .line = lx->line};
        struct token t = lx->state == LEX_RAW ? lex_raw(lx) : lex_root(lx);
        if (t.text.n) return t;
    }
}

const char *tmpl_token_name(enum tk kind) {
    static const char *const names[N_TOKENS] = {
        [TK_EOF] = "end of template",
        [TK_DATA] = "template data / text",
        [TK_VAR_BEGIN] = "begin of print statement",
        [TK_VAR_END] = "end of print statement",
        [TK_BLOCK_BEGIN] = "begin of statement block",
        [TK_BLOCK_END] = "end of statement block",
        [TK_NAME] = "name",
        [TK_STRING] = "string",
        [TK_INT] = "integer",
        [TK_FLOAT] = "float",
        [TK_AND] = "and",
        [TK_OR] = "or",
        [TK_IN] = "in",
        [TK_NOT] = "not",
        [TK_IS] = "is",
    };
    if (names[kind]) return names[kind];
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (operators[i].kind == kind) return operators[i].text;
    return "token";
}
