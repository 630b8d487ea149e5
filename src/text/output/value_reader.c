/* Values of three dialects: one machine, whose tables of words and escapes differ. */
#include "text/output/value_reader.h"

enum state {
    ANY,          /* a value */
    ANY_OR_CLOSE, /* a value, or the end of the list */
    KEY,          /* a key */
    KEY_OR_CLOSE, /* a key, or the end of the object */
    BARE_KEY,     /* inside a key without quotes */
    COLON,        /* what stands between key and value */
    NEXT,         /* a comma, or an end */
    STRING,       /* inside a string */
    MAYBE_TRIPLE, /* behind two quotes: an empty string, or three quotes */
    ESCAPE,       /* behind a backslash */
    HEX,          /* inside the digits of an escape */
    OCTAL,        /* likewise */
    QUOTE,        /* inside the quote that begins a string */
    QUOTED,       /* inside such a string */
    WORD,         /* a number or a name of a constant */
    END           /* behind the value */
};

enum container { OBJECT, ARRAY, TUPLE, KEYWORDS };

void value_reader_put_char(struct sb *out, char c) {
    static const char hex[] = "0123456789abcdef", plain[] = "\"\"\\\\\nn\tt\rr\bb\ff";
    unsigned char u = (unsigned char)c;
    const char *known = c ? strchr(plain, c) : NULL;
    if (u >= 0x20 && c != '"' && c != '\\') {
        sb_putc(out, c);
    } else if (known) { /* the character is at an even place, the letter of its escape behind it */
        sb_putc(out, '\\');
        sb_putc(out, known[1]);
    } else {
        sb_puts(out, "\\u00");
        sb_putc(out, hex[u >> 4]);
        sb_putc(out, hex[u & 15]);
    }
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' || c == '.' || c == '_';
}

void value_reader_begin(struct value_reader *r, enum value_dialect dialect, const struct literal *quote, bool any_type, struct sb *out) {
    *r = (struct value_reader){.out = out, .dialect = dialect, .quote = quote, .type = any_type ? VALUE_NONE : VALUE_OBJECT, .state = ANY};
}

void value_reader_begin_keywords(struct value_reader *r, struct sb *out) {
    *r = (struct value_reader){.out = out, .dialect = VALUE_PYTHON, .type = VALUE_OBJECT, .state = KEY_OR_CLOSE, .depth = 1};
    r->stack[0] = KEYWORDS;
    sb_putc(out, '{');
}

/* ---- begin and end of values ------------------------------------------------------------------------------------ */

static void put_comma(struct value_reader *r) {
    if (r->has_comma) sb_puts(r->out, ", ");
    r->has_comma = false;
}

/* A value of this type begins; false where it may not. */
static bool begin_value(struct value_reader *r, enum value_type type) {
    if (r->depth == 0) {
        if (r->type != VALUE_NONE && r->type != type) return false;
        r->type = type;
    }
    put_comma(r);
    if (r->depth == 1) r->value_reader_begin = r->out->n;
    return true;
}

static enum value_reader_step end_value(struct value_reader *r) {
    r->state = r->depth ? NEXT : END;
    if (r->depth == 1 && r->stack[0] != ARRAY && r->stack[0] != TUPLE) r->has_member = true;
    return r->depth ? VALUE_MORE : VALUE_DONE;
}

static enum value_reader_step open_container(struct value_reader *r, enum container kind) {
    bool is_list = kind != OBJECT;
    if (!begin_value(r, is_list ? VALUE_ARRAY : VALUE_OBJECT) || r->depth == OUTPUT_DEPTH) return VALUE_BAD;
    r->stack[r->depth++] = (uint8_t)kind;
    sb_putc(r->out, is_list ? '[' : '{');
    r->state = is_list ? ANY_OR_CLOSE : KEY_OR_CLOSE;
    return VALUE_MORE;
}

static enum value_reader_step close_container(struct value_reader *r, char c) {
    static const char closers[] = {[OBJECT] = '}', [ARRAY] = ']', [TUPLE] = ')', [KEYWORDS] = ')'};
    enum container kind = r->stack[r->depth - 1];
    if (c != closers[kind]) return VALUE_BAD;
    r->has_comma = false;
    r->depth--;
    sb_putc(r->out, kind == OBJECT || kind == KEYWORDS ? '}' : ']');
    return end_value(r);
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

static bool is_number(const char *p) {
    const char *digits = "0123456789";
    p += *p == '-';
    size_t n = strspn(p, digits);
    if (n == 0 || (n > 1 && *p == '0')) return false;
    p += n;
    if (*p == '.') {
        n = strspn(p + 1, digits);
        if (n == 0) return false;
        p += n + 1;
    }
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '+' || p[1] == '-');
        n = strspn(p, digits);
        if (n == 0) return false;
        p += n;
    }
    return *p == '\0';
}

/* Python's numbers as JSON has them: 1_000, +3, .5 and 5. are written otherwise. */
static void plain_number(struct value_reader *r) {
    char text[sizeof r->word + 4];
    size_t n = 0;
    const char *p = r->word;
    if (*p == '+') p++;
    if (*p == '-') text[n++] = *p++;
    if (*p == '.') text[n++] = '0';
    for (; *p && n + 3 < sizeof r->word; p++) {
        bool digit_before = n && text[n - 1] >= '0' && text[n - 1] <= '9', digit_behind = p[1] >= '0' && p[1] <= '9';
        if (*p == '_' && digit_before && digit_behind) continue;
        text[n++] = *p;
        if (*p == '.' && !digit_behind) text[n++] = '0';
    }
    text[n] = '\0';
    if (*p == '\0') memcpy(r->word, text, n + 1);
}

static enum value_reader_step end_word(struct value_reader *r) {
    static const struct {
        const char *word, *json;
        enum value_type type;
    } words[] = {{"true", "true", VALUE_BOOL}, {"false", "false", VALUE_BOOL}, {"null", "null", VALUE_NULL},
                 {"True", "true", VALUE_BOOL}, {"False", "false", VALUE_BOOL}, {"None", "null", VALUE_NULL}};
    size_t n_words = r->dialect == VALUE_JSON ? 3 : sizeof words / sizeof *words;
    r->word[r->n_word] = '\0';
    for (size_t i = 0; i < n_words; i++)
        if (strcmp(r->word, words[i].word) == 0) {
            if (!begin_value(r, words[i].type)) return VALUE_BAD;
            sb_puts(r->out, words[i].json);
            return end_value(r);
        }
    if (r->dialect != VALUE_JSON) plain_number(r);
    if (!is_number(r->word) || !begin_value(r, VALUE_NUMBER)) return VALUE_BAD;
    sb_puts(r->out, r->word);
    return end_value(r);
}

static enum value_reader_step step_word(struct value_reader *r, char c, bool is_token) {
    if (is_word(c)) {
        if (r->n_word + 1 == sizeof r->word) return VALUE_BAD;
        r->word[r->n_word++] = c;
        return VALUE_MORE;
    }
    enum value_reader_step step = end_word(r);
    if (step == VALUE_DONE) return VALUE_BEFORE;
    return step == VALUE_BAD ? step : value_reader_step(r, c, is_token);
}

/* ---- strings ---------------------------------------------------------------------------------------------------- */

static enum value_reader_step begin_string(struct value_reader *r, char quote, bool is_key) {
    if (is_key) put_comma(r);
    else if (!begin_value(r, VALUE_STRING)) return VALUE_BAD;
    if (is_key) r->key_begin = r->depth == 1 ? r->out->n : r->key_begin;
    r->is_key = is_key;
    r->is_triple = false;
    r->n_quotes = 0;
    r->string_quote = quote;
    sb_putc(r->out, '"');
    r->state = STRING;
    return VALUE_MORE;
}

static enum value_reader_step end_string(struct value_reader *r) {
    sb_putc(r->out, '"');
    if (!r->is_key) return end_value(r);
    if (r->depth == 1) r->key_end = r->out->n;
    r->state = COLON;
    return VALUE_MORE;
}

/* A character by its number. A half of a pair stays an escape. */
static bool put_code(struct sb *out, uint32_t code) {
    char utf8[4];
    if (code > 0x10FFFF) return false;
    if (code < 0x80) value_reader_put_char(out, (char)code);
    else if (code >= 0xD800 && code < 0xE000) sb_fmt(out, "\\u%04x", (unsigned)code);
    else sb_put(out, str_n(utf8, utf8_encode(code, utf8)));
    return true;
}

static enum value_reader_step begin_digits(struct value_reader *r, enum state state, uint8_t n) {
    r->state = state;
    r->n_digits = n;
    r->code = 0;
    return VALUE_MORE;
}

static enum value_reader_step step_escape(struct value_reader *r, char c) {
    static const char from[] = "ntrbfva'\"\\", to[] = "\n\t\r\b\f\v\a'\"\\";
    r->state = STRING;
    if (r->dialect == VALUE_JSON) {
        if (!c || !strchr("\"\\/bfnrtu", c)) return VALUE_BAD;
        sb_putc(r->out, '\\');
        sb_putc(r->out, c);
        return c == 'u' ? begin_digits(r, HEX, 4) : VALUE_MORE;
    }
    const char *known = c ? strchr(from, c) : NULL;
    if (known) value_reader_put_char(r->out, to[known - from]);
    else if (c == 'x' || c == 'u' || c == 'U') return begin_digits(r, HEX, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    else if (c >= '0' && c <= '7') {
        begin_digits(r, OCTAL, 2);
        r->code = (uint32_t)(c - '0');
    } else if (c != '\n') { /* no escape: Python keeps the backslash; a broken line is joined */
        value_reader_put_char(r->out, '\\');
        value_reader_put_char(r->out, c);
    }
    return VALUE_MORE;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static enum value_reader_step step_hex(struct value_reader *r, char c) {
    int digit = hex_digit(c);
    if (digit < 0) return VALUE_BAD;
    r->code = r->code << 4 | (uint32_t)digit;
    if (r->dialect == VALUE_JSON) sb_putc(r->out, c);
    if (--r->n_digits) return VALUE_MORE;
    r->state = STRING;
    return r->dialect == VALUE_JSON || put_code(r->out, r->code) ? VALUE_MORE : VALUE_BAD;
}

static enum value_reader_step step_octal(struct value_reader *r, char c) {
    bool is_digit = c >= '0' && c <= '7';
    if (is_digit) r->code = r->code * 8 + (uint32_t)(c - '0');
    if (is_digit && --r->n_digits) return VALUE_MORE;
    r->state = STRING;
    put_code(r->out, r->code);
    return is_digit ? VALUE_MORE : value_reader_step(r, c, false);
}

static enum value_reader_step step_string(struct value_reader *r, char c) {
    if (c == r->string_quote) {
        if (r->is_triple) return ++r->n_quotes == 3 ? end_string(r) : VALUE_MORE;
        bool is_empty = r->out->p[r->out->n - 1] == '"' && r->n_quotes == 0;
        if (r->dialect == VALUE_PYTHON && is_empty) {
            r->state = MAYBE_TRIPLE;
            return VALUE_MORE;
        }
        return end_string(r);
    }
    for (; r->n_quotes && r->is_triple; r->n_quotes--) value_reader_put_char(r->out, r->string_quote);
    r->n_quotes = r->is_triple ? 0 : 1; /* no longer empty */
    if (c == '\\') r->state = ESCAPE;
    else value_reader_put_char(r->out, c);
    return VALUE_MORE;
}

static enum value_reader_step step_maybe_triple(struct value_reader *r, char c, bool is_token) {
    if (c == r->string_quote) {
        r->is_triple = true;
        r->state = STRING;
        return VALUE_MORE;
    }
    enum value_reader_step step = end_string(r);
    if (step == VALUE_DONE) return VALUE_BEFORE;
    return value_reader_step(r, c, is_token);
}

/* Between two equal quotes nothing is an escape. */
static enum value_reader_step step_quoted(struct value_reader *r, char c, bool is_token) {
    size_t before = r->n_matched, now = literal_advance(r->quote, before, c, is_token);
    for (size_t i = 0; i < before + 1 - now; i++) value_reader_put_char(r->out, i < before ? r->quote->text.p[i] : c);
    r->n_matched = now;
    if (now < r->quote->text.n) return VALUE_MORE;
    r->n_matched = 0;
    return end_string(r);
}

static enum value_reader_step step_quote(struct value_reader *r, char c, bool is_token) {
    if (!literal_takes(r->quote, r->n_matched, c, is_token)) return VALUE_BAD;
    if (++r->n_matched < r->quote->text.n) return VALUE_MORE;
    r->n_matched = 0;
    r->state = QUOTED;
    return VALUE_MORE;
}

/* ---- structure -------------------------------------------------------------------------------------------------- */

static enum value_reader_step step_any(struct value_reader *r, char c, bool is_token) {
    bool is_python = r->dialect == VALUE_PYTHON;
    if (c == '{') return open_container(r, OBJECT);
    if (c == '[') return open_container(r, ARRAY);
    if (c == '(' && is_python) return open_container(r, TUPLE);
    if (c == '"' || (c == '\'' && is_python)) return begin_string(r, c, false);
    if (r->dialect == VALUE_QUOTED && literal_takes(r->quote, 0, c, is_token)) {
        if (begin_string(r, c, false) == VALUE_BAD) return VALUE_BAD;
        r->state = QUOTE;
        r->n_matched = 1;
        return VALUE_MORE;
    }
    if (!is_word(c)) return VALUE_BAD;
    r->n_word = 1;
    r->word[0] = c;
    r->state = WORD;
    return VALUE_MORE;
}

static bool has_bare_keys(const struct value_reader *r) {
    return r->dialect == VALUE_QUOTED || (r->depth && r->stack[r->depth - 1] == KEYWORDS);
}

static enum value_reader_step step_key(struct value_reader *r, char c, bool is_token) {
    if (has_bare_keys(r)) {
        if (r->dialect == VALUE_QUOTED && literal_takes(r->quote, 0, c, is_token)) {
            begin_string(r, c, true);
            r->state = QUOTE;
            r->n_matched = 1;
            return VALUE_MORE;
        }
        if (c != '"' || r->dialect != VALUE_QUOTED) {
            if (!is_word(c) && (unsigned char)c < 0x80) return VALUE_BAD;
            begin_string(r, '\0', true);
            sb_putc(r->out, c);
            r->state = BARE_KEY;
            return VALUE_MORE;
        }
    }
    if (c == '"' || (c == '\'' && r->dialect == VALUE_PYTHON)) return begin_string(r, c, true);
    return VALUE_BAD;
}

static enum value_reader_step step_bare_key(struct value_reader *r, char c, bool is_token) {
    bool is_long = r->out->n - r->key_begin > OUTPUT_NAME_BYTES && r->depth == 1;
    if (!is_long && (is_word(c) || (unsigned char)c >= 0x80 || c == '$' || c == '@' || c == '/')) {
        sb_putc(r->out, c);
        return VALUE_MORE;
    }
    end_string(r);
    return is_long ? VALUE_BAD : value_reader_step(r, c, is_token);
}

static enum value_reader_step step_next(struct value_reader *r, char c) {
    bool in_list = r->stack[r->depth - 1] == ARRAY || r->stack[r->depth - 1] == TUPLE;
    if (c != ',') return close_container(r, c);
    if (r->dialect == VALUE_JSON) {
        sb_putc(r->out, ',');
        r->state = in_list ? ANY : KEY;
    } else { /* a comma may stand before the end */
        r->has_comma = true;
        r->state = in_list ? ANY_OR_CLOSE : KEY_OR_CLOSE;
    }
    return VALUE_MORE;
}

static enum value_reader_step step_colon(struct value_reader *r, char c) {
    if (c != (r->stack[r->depth - 1] == KEYWORDS ? '=' : ':')) return VALUE_BAD;
    sb_puts(r->out, r->dialect == VALUE_JSON ? ":" : ": ");
    r->state = ANY;
    return VALUE_MORE;
}

static bool is_closer(char c) {
    return c == '}' || c == ']' || c == ')';
}

static enum value_reader_step step_between(struct value_reader *r, char c, bool is_token) {
    if (is_space(c)) {
        if (r->dialect == VALUE_JSON && r->depth) sb_putc(r->out, c);
        return VALUE_MORE;
    }
    switch (r->state) {
    case ANY_OR_CLOSE: return is_closer(c) ? close_container(r, c) : step_any(r, c, is_token);
    case KEY_OR_CLOSE: return is_closer(c) ? close_container(r, c) : step_key(r, c, is_token);
    case KEY: return step_key(r, c, is_token);
    case COLON: return step_colon(r, c);
    case NEXT: return step_next(r, c);
    default: return step_any(r, c, is_token);
    }
}

enum value_reader_step value_reader_step(struct value_reader *r, char c, bool is_token) {
    enum value_reader_step step;
    switch (r->state) {
    case STRING: step = step_string(r, c); break;
    case MAYBE_TRIPLE: step = step_maybe_triple(r, c, is_token); break;
    case ESCAPE: step = step_escape(r, c); break;
    case HEX: step = step_hex(r, c); break;
    case OCTAL: step = step_octal(r, c); break;
    case QUOTE: step = step_quote(r, c, is_token); break;
    case QUOTED: step = step_quoted(r, c, is_token); break;
    case WORD: step = step_word(r, c, is_token); break;
    case BARE_KEY: step = step_bare_key(r, c, is_token); break;
    case END: step = VALUE_BAD; break;
    default: step = step_between(r, c, is_token);
    }
    if (r->state != ESCAPE && r->state != HEX) r->n_certain = r->out->n;
    return step;
}

bool value_reader_end(struct value_reader *r) {
    if (r->state == WORD && r->depth == 0) return end_word(r) == VALUE_DONE;
    if (r->state == MAYBE_TRIPLE && r->depth == 0) return end_string(r) == VALUE_DONE;
    return r->state == END;
}

bool value_reader_read(struct str text, enum value_dialect dialect, struct sb *out, enum value_type *out_type) {
    struct value_reader r;
    struct str rest = str_trim(text);
    value_reader_begin(&r, dialect, NULL, true, out);
    for (size_t i = 0; i < rest.n; i++) switch (value_reader_step(&r, rest.p[i], false)) {
        case VALUE_MORE: break;
        case VALUE_DONE: *out_type = r.type; return i + 1 == rest.n;
        default: return false;
        }
    bool is_whole = value_reader_end(&r);
    *out_type = r.type;
    return is_whole;
}
