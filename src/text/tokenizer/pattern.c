/* Literals, scanners and PCRE2 behind one "next match". */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/pattern.h"

#include "text/tokenizer/unicode.h"

#include <pcre2.h>

enum {
    MATCH_LIMIT = 20000000, /* backtracking steps in one match: some seconds at most */
    DEPTH_LIMIT = 10000000,
    HEAP_LIMIT_KIB = 512 * 1024,
    JIT_STACK_MIN = 32 * 1024,
    JIT_STACK_MAX = 16 * 1024 * 1024,
    MAX_PATTERN_BYTES = 64 * 1024,
};

struct tok_pattern {
    struct str literal; /* where scanner and code are NULL; empty: matches nowhere */
    const struct tok_scanner *scanner;
    pcre2_code *code;
};

struct tok_match_state {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    size_t last_end; /* of the last match in this text; an empty match there is passed over */
    bool has_last;
};

static const char white_space[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
static const char no_white_space[] =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}"
    "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";

static int rewrite(struct str r, struct sb *out, struct err *err);

/* The class "[A&&[^B]]" is written as a look-ahead, (?:(?![B])[A]). Anything more involved is refused. */
static int rewrite_intersection(struct str class_, struct sb *out, struct err *err) {
    size_t cut = str_find(class_, STR("&&"), 0);
    struct str left = str_sub(class_, 1, cut - 1), right = str_from(class_, cut + 2);
    right.n -= 1; /* the outer bracket */
    bool plain = right.n > 3 && right.p[0] == '[' && right.p[1] == '^' && right.p[right.n - 1] == ']' && left.n && left.p[0] != '^' &&
                 str_find_char(left, '[', 0) == STR_NONE && str_find_char(str_sub(right, 2, right.n - 3), '[', 0) == STR_NONE;
    if (!plain) return err_set(err, ERR_EUNSUPPORTED, "tokenizer.json: regular expression class %.*s is not supported", STR_ARG(class_));
    struct sb plain_text = {0};
    sb_puts(&plain_text, "(?:(?![");
    sb_put(&plain_text, str_sub(right, 2, right.n - 3));
    sb_puts(&plain_text, "])[");
    sb_put(&plain_text, left);
    sb_puts(&plain_text, "])");
    int code = rewrite(sb_str(&plain_text), out, err);
    sb_free(&plain_text);
    return code;
}

/* One escape at i, inside a class or not; returns its length. */
static size_t rewrite_escape(struct str r, size_t i, bool in_class, struct sb *out) {
    if (i + 1 >= r.n) {
        sb_putc(out, '\\');
        return 1;
    }
    char c = r.p[i + 1];
    const char *set = c == 's' ? white_space : c == 'S' ? no_white_space : c == 'h' ? "0-9a-fA-F" : NULL;
    if (set) sb_fmt(out, in_class ? "%s" : "[%s]", set);
    else if (c == 'H' && !in_class) sb_puts(out, "[^0-9a-fA-F]");
    else sb_put(out, str_sub(r, i, 2));
    return 2;
}

/* The end of the class that opens at i (behind its bracket), or STR_NONE. */
static size_t class_end(struct str r, size_t i) {
    int depth = 0;
    for (size_t k = i; k < r.n; k++) {
        if (r.p[k] == '\\') k++;
        else if (r.p[k] == '[') depth++;
        else if (r.p[k] == ']' && --depth == 0) return k + 1;
    }
    return STR_NONE;
}

/* Oniguruma's Ruby dialect as PCRE2 reads it. */
static int rewrite(struct str r, struct sb *out, struct err *err) {
    bool in_class = false;
    for (size_t i = 0; i < r.n;) {
        char c = r.p[i];
        if (c == '\\') {
            i += rewrite_escape(r, i, in_class, out);
        } else if (c == '[' && !in_class) {
            size_t end = class_end(r, i);
            if (end != STR_NONE && str_find(str_sub(r, i, end - i), STR("&&"), 0) != STR_NONE) {
                TRY(rewrite_intersection(str_sub(r, i, end - i), out, err));
                i = end;
                continue;
            }
            in_class = true;
            sb_putc(out, c);
            i++;
        } else {
            if (c == ']') in_class = false;
            sb_putc(out, c);
            i++;
        }
    }
    return ERR_OK;
}

static int compile(struct str regex, pcre2_code **out, struct err *err) {
    struct sb rewritten = {0};
    int code = rewrite(regex, &rewritten, err), number;
    PCRE2_SIZE offset;
    if (!code) {
        struct str s = sb_str(&rewritten);
        *out =
            pcre2_compile((PCRE2_SPTR)s.p, s.n, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &number, &offset, NULL);
        if (!*out) {
            PCRE2_UCHAR message[120];
            pcre2_get_error_message(number, message, sizeof message);
            code = err_set(err, ERR_EFORMAT, "tokenizer.json: regular expression \"%.*s\": %s", STR_ARG(str_sub(regex, 0, 80)),
                           (const char *)message);
        } else {
            pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* without it, matching is slower and the same */
        }
    }
    sb_free(&rewritten);
    return code;
}

int tok_pattern_literal(struct arena *a, struct str literal, struct tok_pattern **out) {
    *out = arena_new(a, struct tok_pattern, 1);
    (*out)->literal = str_copy(a, literal);
    return ERR_OK;
}

int tok_pattern_regex(struct arena *a, struct str regex, bool no_scanner, struct tok_pattern **out, struct err *err) {
    *out = arena_new(a, struct tok_pattern, 1);
    if (!no_scanner && ((*out)->scanner = tok_scanner_find(regex))) return ERR_OK;
    if (regex.n > MAX_PATTERN_BYTES)
        return err_set(err, ERR_ELIMIT, "tokenizer.json: a regular expression of %zu bytes is too long", regex.n);
    return compile(regex, &(*out)->code, err);
}

int tok_pattern_read(struct arena *a, yyjson_val *json, const char *what, struct tok_pattern **out, struct err *err) {
    struct str text = json_str(json, "String", (struct str){0});
    if (text.p) return tok_pattern_literal(a, text, out);
    text = json_str(json, "Regex", (struct str){0});
    if (text.p) return tok_pattern_regex(a, text, false, out, err);
    return err_set(err, ERR_EFORMAT, "tokenizer.json: %s has no pattern {\"String\": ...} or {\"Regex\": ...}", what);
}

void tok_pattern_destroy(struct tok_pattern *p) {
    if (!p) return;
    pcre2_code_free(p->code);
    p->code = NULL;
}

const struct tok_scanner *tok_pattern_scanner(const struct tok_pattern *p) {
    return p->scanner;
}

static struct tok_match_state *state_create(void) {
    struct tok_match_state *s = mem_alloc(sizeof *s);
    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (s->context) {
        pcre2_set_match_limit(s->context, MATCH_LIMIT);
        pcre2_set_depth_limit(s->context, DEPTH_LIMIT);
        pcre2_set_heap_limit(s->context, HEAP_LIMIT_KIB);
        if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
    }
    return s;
}

void tok_match_state_destroy(struct tok_match_state *s) {
    if (!s) return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_context_free(s->context);
    pcre2_match_data_free(s->data);
    mem_free(s);
}

static int regex_next(const struct tok_pattern *p, struct tok_match_state *s, struct str text, size_t *from, struct tok_match *out,
                      bool *out_found, struct err *err) {
    if (!s->data || !s->context) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for matching");
    if (*from == 0) s->has_last = false;
    for (size_t at = *from; at <= text.n;) {
        int rc = pcre2_match(p->code, (PCRE2_SPTR)text.p, text.n, at, PCRE2_NO_UTF_CHECK, s->data, s->context);
        if (rc == PCRE2_ERROR_NOMATCH) return ERR_OK;
        if (rc < 0)
            return err_set(err, ERR_ELIMIT,
                           "tokenizer: the regular expression of the pre-tokenizer exceeds its limits on this text (PCRE2 %d)", rc);
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->data);
        if (v[0] == v[1] && s->has_last && v[1] == s->last_end) { /* no empty match right behind another */
            if (v[1] >= text.n) return ERR_OK;
            at = v[1] + tok_utf8_len((unsigned char)text.p[v[1]]);
            continue;
        }
        *out = (struct tok_match){v[0], v[1] < v[0] ? v[0] : v[1]};
        s->last_end = out->end;
        s->has_last = true;
        *from = out->end;
        *out_found = true;
        return ERR_OK;
    }
    return ERR_OK;
}

int tok_pattern_next(const struct tok_pattern *p, struct tok_match_state **state, struct str text, size_t *from, struct tok_match *out,
                     bool *out_found, struct err *err) {
    *out_found = false;
    if (p->scanner) {
        *out_found = p->scanner->next(text, *from, &out->start, &out->end);
        if (*out_found) *from = out->end;
        return ERR_OK;
    }
    if (p->code) {
        if (!*state) *state = state_create();
        return regex_next(p, *state, text, from, out, out_found, err);
    }
    if (p->literal.n == 0) return ERR_OK;
    size_t at = str_find(text, p->literal, *from);
    if (at == STR_NONE) return ERR_OK;
    *out = (struct tok_match){at, at + p->literal.n};
    *from = out->end;
    *out_found = true;
    return ERR_OK;
}
