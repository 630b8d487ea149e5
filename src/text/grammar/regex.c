/* The parser of regular expressions, and the way from its tree to an automaton. */
#include "text/grammar/regex.h"

#include <assert.h>

enum { MAX_DEPTH = 200, MAX_REPEAT = 100000, MAX_PATTERN_BYTES = 1 << 16 };

struct parser {
    struct arena *a;
    struct str s;
    size_t i;
    enum regex_dialect dialect;
    bool fold, dot_all; /* (?i), (?s) */
    int depth;
    struct err *err;
};

static int bad(struct parser *p, const char *why) {
    return err_set(p->err, ERR_EARG, "byte %zu: %s", p->i, why);
}

static int unsupported(struct parser *p, const char *what) {
    return err_set(p->err, ERR_EUNSUPPORTED, "byte %zu: %s is not supported", p->i, what);
}

static bool more(const struct parser *p) {
    return p->i < p->s.n;
}

static bool at(const struct parser *p, const char *text) {
    return str_starts(str_from(p->s, p->i), str_of(text));
}

static bool take(struct parser *p, const char *text) {
    if (!at(p, text)) return false;
    p->i += strlen(text);
    return true;
}

static uint32_t next_char(struct parser *p) {
    uint32_t c;
    p->i += utf8_decode(p->s.p + p->i, p->s.n - p->i, &c);
    return c;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int take_hex(struct parser *p, int n_digits, uint32_t *out) {
    uint32_t v = 0;
    for (int i = 0; i < n_digits; i++) {
        int digit = more(p) ? hex_value(p->s.p[p->i]) : -1;
        if (digit < 0) return bad(p, "a hex digit is missing");
        v = v * 16 + (uint32_t)digit;
        p->i++;
    }
    *out = v;
    return ERR_OK;
}

/* {H...} behind \x or \u. */
static int take_braced_hex(struct parser *p, uint32_t *out) {
    uint32_t v = 0;
    size_t n = 0;
    for (p->i++; more(p) && p->s.p[p->i] != '}'; p->i++, n++) {
        int digit = hex_value(p->s.p[p->i]);
        if (digit < 0 || n >= 6) return bad(p, "not a code point");
        v = v * 16 + (uint32_t)digit;
    }
    if (!more(p) || n == 0 || v > CS_LAST) return bad(p, "not a code point");
    p->i++;
    *out = v;
    return ERR_OK;
}

static int take_code(struct parser *p, char letter, uint32_t *out) {
    if (at(p, "{")) return take_braced_hex(p, out);
    TRY(take_hex(p, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, out));
    if (*out >= 0xD800 && *out <= 0xDBFF && at(p, "\\u")) {
        size_t back = p->i;
        uint32_t low = 0;
        p->i += 2;
        TRY(take_hex(p, 4, &low));
        if (low >= 0xDC00 && low <= 0xDFFF) *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
        else p->i = back;
    }
    return *out > CS_LAST ? bad(p, "not a code point") : ERR_OK;
}

/* \p{Name}, \pL; P negates, as does ^ inside the braces. */
static int take_property(struct parser *p, bool negate, struct charset *set) {
    struct str name;
    if (take(p, "{")) {
        size_t end = str_find_char(p->s, '}', p->i);
        if (end == STR_NONE) return bad(p, "\\p{ has no end");
        name = str_sub(p->s, p->i, end - p->i);
        p->i = end + 1;
    } else {
        name = str_sub(p->s, p->i, 1);
        p->i += name.n;
    }
    if (name.n && name.p[0] == '^') {
        negate = !negate;
        name = str_from(name, 1);
    }
    static const char *const prefixes[] = {"General_Category=", "gc=", "Is"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (str_starts(name, str_of(prefixes[i]))) name = str_from(name, strlen(prefixes[i]));
    struct charset s = {0};
    if (!cs_add_property(p->a, &s, name))
        return err_set(p->err, ERR_EUNSUPPORTED, "byte %zu: the property \\p{%.*s} is not supported", p->i, STR_ARG(name));
    if (negate) cs_negate(p->a, &s);
    cs_add_set(p->a, set, &s);
    return ERR_OK;
}

static const struct {
    char letter;
    uint8_t schema, whole; /* enum cs_class */
} class_letters[] = {{'d', CS_DIGIT, CS_UNI_DIGIT}, {'w', CS_WORD, CS_UNI_WORD}, {'s', CS_SPACE, CS_UNI_SPACE}};

/* \d and its like, also in capitals; false: another letter. */
static bool add_class_letter(struct parser *p, char letter, struct charset *set) {
    char lower = (char)(letter | 0x20);
    for (size_t i = 0; i < sizeof class_letters / sizeof *class_letters; i++) {
        if (class_letters[i].letter != lower) continue;
        struct charset s = {0};
        cs_add_class(p->a, &s, p->dialect == REGEX_SCHEMA ? class_letters[i].schema : class_letters[i].whole);
        if (letter != lower) cs_negate(p->a, &s);
        cs_add_set(p->a, set, &s);
        return true;
    }
    return false;
}

static const struct {
    char letter;
    uint8_t code;
} control_letters[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'a', '\a'}, {'e', 27}};

/* An escape that stands for characters. The backslash is behind us. *is_class: it may not begin or end a range. */
static int take_escape(struct parser *p, struct charset *set, bool *is_class) {
    if (!more(p)) return bad(p, "nothing follows the backslash");
    uint32_t c = 0;
    char letter = p->s.p[p->i];
    *is_class = false;
    if (letter == 'p' || letter == 'P') {
        p->i++;
        *is_class = true;
        return take_property(p, letter == 'P', set);
    }
    if (add_class_letter(p, letter, set)) {
        p->i++;
        *is_class = true;
        return ERR_OK;
    }
    if (letter == 'x' || letter == 'u' || letter == 'U') {
        p->i++;
        TRY(take_code(p, letter, &c));
        cs_add(p->a, set, c, c);
        return ERR_OK;
    }
    for (size_t i = 0; i < sizeof control_letters / sizeof *control_letters; i++)
        if (control_letters[i].letter == letter) {
            p->i++;
            cs_add(p->a, set, control_letters[i].code, control_letters[i].code);
            return ERR_OK;
        }
    if (letter == 'c' && p->i + 1 < p->s.n && ((p->s.p[p->i + 1] | 0x20) >= 'a' && (p->s.p[p->i + 1] | 0x20) <= 'z')) {
        cs_add(p->a, set, p->s.p[p->i + 1] & 31, p->s.p[p->i + 1] & 31);
        p->i += 2;
        return ERR_OK;
    }
    if (letter == '0' && !(p->i + 1 < p->s.n && p->s.p[p->i + 1] >= '0' && p->s.p[p->i + 1] <= '9')) {
        p->i++;
        cs_add(p->a, set, 0, 0);
        return ERR_OK;
    }
    if (letter >= '0' && letter <= '9') return unsupported(p, "a back-reference");
    if (letter == 'k') return unsupported(p, "a back-reference");
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
        return err_set(p->err, ERR_EARG, "byte %zu: \\%c is not known", p->i, letter);
    c = next_char(p);
    cs_add(p->a, set, c, c);
    return ERR_OK;
}

/* One member of a class, not yet a range. */
static int take_member(struct parser *p, struct charset *set, uint32_t *out_char, bool *is_class) {
    *is_class = false;
    if (take(p, "\\")) {
        struct charset s = {0};
        if (take(p, "b")) cs_add(p->a, &s, 8, 8);
        else if (take(p, "B")) return bad(p, "\\B in a class");
        else TRY(take_escape(p, &s, is_class));
        *out_char = s.n ? s.r[0].lo : 0;
        if (*is_class) cs_add_set(p->a, set, &s);
        return ERR_OK;
    }
    if (p->dialect == REGEX_WHOLE && at(p, "[:")) {
        size_t end = str_find(p->s, STR(":]"), p->i);
        if (end != STR_NONE) {
            struct str name = str_sub(p->s, p->i + 2, end - p->i - 2);
            bool negate = name.n && name.p[0] == '^';
            struct charset s = {0};
            if (!cs_add_posix(p->a, &s, negate ? str_from(name, 1) : name)) return bad(p, "this [:class:] is not known");
            if (negate) cs_negate(p->a, &s);
            cs_add_set(p->a, set, &s);
            *is_class = true;
            p->i = end + 2;
            return ERR_OK;
        }
    }
    if (p->dialect == REGEX_WHOLE && (at(p, "&&") || at(p, "~~"))) return unsupported(p, "an operation on classes");
    *out_char = next_char(p);
    return ERR_OK;
}

/* [...]: the bracket is behind us. */
static int take_class(struct parser *p, struct charset *set) {
    bool negate = take(p, "^"), first = true, is_class;
    for (;; first = false) {
        uint32_t lo, hi;
        if (!more(p)) return bad(p, "the class [ has no end");
        if (at(p, "]") && !(first && p->dialect == REGEX_WHOLE)) break;
        TRY(take_member(p, set, &lo, &is_class));
        if (is_class) continue;
        hi = lo;
        if (at(p, "-") && !at(p, "-]") && p->i + 1 < p->s.n) {
            size_t dash = p->i++;
            struct charset rest = {0};
            TRY(take_member(p, &rest, &hi, &is_class));
            if (is_class) { /* [a-\d]: the dash is itself */
                cs_add(p->a, set, '-', '-');
                cs_add_set(p->a, set, &rest);
                hi = lo;
            } else if (hi < lo) {
                p->i = dash;
                return bad(p, "the range ends before it begins");
            }
        }
        cs_add(p->a, set, lo, hi);
    }
    p->i++;
    cs_finish(set);
    if (p->fold) cs_fold(p->a, set);
    if (negate) cs_negate(p->a, set);
    return ERR_OK;
}

static int take_alternatives(struct parser *p, struct expr **out);

static struct expr *set_expr(struct parser *p, struct charset *set) {
    struct expr *e = expr_new(p->a, EXPR_SET);
    cs_finish(set);
    e->set = *set;
    return e;
}

/* (?flags) and (?flags: */
static int take_flags(struct parser *p, bool *is_group) {
    bool on = true;
    *is_group = false;
    for (; more(p); p->i++) {
        char c = p->s.p[p->i];
        if (c == ')' || c == ':') {
            *is_group = c == ':';
            p->i++;
            return ERR_OK;
        }
        if (c == '-') on = false;
        else if (c == 'i') p->fold = on;
        else if (c == 's') p->dot_all = on;
        else if (c != 'u' && c != 'a' && c != 'L')
            return err_set(p->err, ERR_EUNSUPPORTED, "byte %zu: the flag %c is not supported", p->i, c);
    }
    return bad(p, "the group ( has no end");
}

static int take_look(struct parser *p, bool negative, struct expr **out) {
    struct expr *e = expr_new(p->a, EXPR_LOOK), *inner;
    if (p->dialect == REGEX_WHOLE) return unsupported(p, "look-ahead");
    TRY(take_alternatives(p, &inner));
    if (!take(p, ")")) return bad(p, "the group ( has no end");
    p->depth--;
    e->negative = negative;
    e->items = arena_new(p->a, struct expr *, 1);
    e->items[0] = inner;
    e->n_items = 1;
    *out = e;
    return ERR_OK;
}

static int take_group(struct parser *p, struct expr **out) {
    bool fold = p->fold, dot_all = p->dot_all;
    if (++p->depth > MAX_DEPTH) return bad(p, "groups are nested too deep");
    if (take(p, "?")) {
        if (take(p, "=")) return take_look(p, false, out);
        if (take(p, "!")) return take_look(p, true, out);
        if (at(p, "<=") || at(p, "<!")) return unsupported(p, "look-behind");
        if (take(p, "P<") || take(p, "<")) {
            size_t end = str_find_char(p->s, '>', p->i);
            if (end == STR_NONE) return bad(p, "the group's name has no end");
            p->i = end + 1;
        } else if (at(p, "P=")) {
            return unsupported(p, "a back-reference");
        } else if (at(p, ">")) {
            return unsupported(p, "an atomic group");
        } else if (at(p, "(")) {
            return unsupported(p, "a conditional group");
        } else if (take(p, "#")) {
            size_t end = str_find_char(p->s, ')', p->i);
            if (end == STR_NONE) return bad(p, "the comment has no end");
            p->i = end + 1;
            p->depth--;
            *out = expr_new(p->a, EXPR_EMPTY);
            return ERR_OK;
        } else if (!take(p, ":")) {
            bool is_group;
            TRY(take_flags(p, &is_group));
            if (!is_group) { /* the flags hold for the rest of the group around */
                p->depth--;
                *out = expr_new(p->a, EXPR_EMPTY);
                return ERR_OK;
            }
        }
    }
    TRY(take_alternatives(p, out));
    if (!take(p, ")")) return bad(p, "the group ( has no end");
    p->depth--;
    p->fold = fold;
    p->dot_all = dot_all;
    return ERR_OK;
}

static struct expr *dot(struct parser *p) {
    struct charset s = {0};
    if (!p->dot_all) {
        cs_add(p->a, &s, '\n', '\n');
        if (p->dialect == REGEX_SCHEMA) {
            cs_add(p->a, &s, '\r', '\r');
            cs_add(p->a, &s, 0x2028, 0x2029);
        }
    }
    cs_negate(p->a, &s);
    return set_expr(p, &s);
}

static int take_backslash(struct parser *p, struct expr **out) {
    static const struct {
        const char *letter;
        enum expr_kind kind;
    } places[] = {{"A", EXPR_START}, {"z", EXPR_END}, {"Z", EXPR_END}, {"b", EXPR_WORD}, {"B", EXPR_NOT_WORD}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!at(p, places[i].letter)) continue;
        if (p->dialect == REGEX_WHOLE && (places[i].kind == EXPR_WORD || places[i].kind == EXPR_NOT_WORD))
            return unsupported(p, "a word boundary");
        p->i++;
        *out = expr_new(p->a, places[i].kind);
        return ERR_OK;
    }
    struct charset set = {0};
    bool is_class;
    TRY(take_escape(p, &set, &is_class));
    cs_finish(&set);
    if (p->fold) cs_fold(p->a, &set);
    *out = set_expr(p, &set);
    return ERR_OK;
}

static int take_atom(struct parser *p, struct expr **out) {
    struct charset set = {0};
    if (take(p, "(")) return take_group(p, out);
    if (take(p, "[")) {
        TRY(take_class(p, &set));
        *out = set_expr(p, &set);
        return ERR_OK;
    }
    if (take(p, ".")) *out = dot(p);
    else if (take(p, "^")) *out = expr_new(p->a, EXPR_START);
    else if (take(p, "$")) *out = expr_new(p->a, EXPR_END);
    else if (take(p, "\\")) return take_backslash(p, out);
    else if (at(p, "*") || at(p, "+") || at(p, "?")) return bad(p, "there is nothing to repeat");
    else {
        uint32_t c = next_char(p);
        cs_add(p->a, &set, c, c);
        if (p->fold) cs_fold(p->a, &set);
        *out = set_expr(p, &set);
    }
    return ERR_OK;
}

static bool take_number(struct parser *p, uint32_t *out) {
    size_t from = p->i;
    uint64_t v = 0;
    for (; more(p) && p->s.p[p->i] >= '0' && p->s.p[p->i] <= '9'; p->i++)
        if (v <= MAX_REPEAT) v = v * 10 + (uint64_t)(p->s.p[p->i] - '0');
    *out = (uint32_t)v;
    return p->i > from;
}

/* {m}, {m,}, {m,n}; what is none of them is text. */
static int take_braces(struct parser *p, uint32_t *min, uint32_t *max, bool *is_there) {
    size_t back = p->i++;
    *is_there = false;
    if (!take_number(p, min)) {
        if (at(p, ",") && p->i + 1 < p->s.n && p->s.p[p->i + 1] >= '0' && p->s.p[p->i + 1] <= '9')
            return bad(p, "the lower bound is missing: write {0,n}");
        p->i = back;
        return ERR_OK;
    }
    *max = *min;
    if (take(p, ",") && !take_number(p, max)) *max = EXPR_MANY;
    if (!take(p, "}")) {
        p->i = back;
        return ERR_OK;
    }
    if (*max < *min) return bad(p, "the upper bound is less than the lower one");
    if (*min > MAX_REPEAT || (*max != EXPR_MANY && *max > MAX_REPEAT)) return bad(p, "more than 100000 repetitions");
    *is_there = true;
    return ERR_OK;
}

static int take_quantifiers(struct parser *p, struct expr **e) {
    for (int n = 0;; n++) {
        uint32_t min = 0, max = EXPR_MANY;
        bool is_there = true;
        if (take(p, "+")) min = 1;
        else if (take(p, "?")) max = 1;
        else if (at(p, "{")) TRY(take_braces(p, &min, &max, &is_there));
        else if (!take(p, "*")) return ERR_OK;
        if (!is_there) return ERR_OK;
        if (n) return bad(p, "a repetition is repeated: put it into a group");
        take(p, "?"); /* lazy: the language is the same */
        if (at(p, "+")) return unsupported(p, "a possessive repetition");
        if ((*e)->kind >= EXPR_START && (*e)->kind <= EXPR_LOOK) return bad(p, "there is nothing to repeat");
        *e = expr_repeat(p->a, *e, min, max);
    }
}

static int take_sequence(struct parser *p, struct expr **out) {
    struct expr_list l = {0};
    while (more(p) && !at(p, "|") && !at(p, ")")) {
        struct expr *e;
        TRY(take_atom(p, &e));
        TRY(take_quantifiers(p, &e));
        if (e->kind != EXPR_EMPTY) expr_list_put(p->a, &l, e);
    }
    *out = expr_join(p->a, EXPR_CAT, &l);
    return ERR_OK;
}

static int take_alternatives(struct parser *p, struct expr **out) {
    struct expr_list l = {0};
    do {
        struct expr *e = NULL;
        TRY(take_sequence(p, &e));
        expr_list_put(p->a, &l, e);
    } while (take(p, "|"));
    *out = expr_join(p->a, EXPR_ALT, &l);
    return ERR_OK;
}

int regex_parse(struct arena *a, struct str pattern, enum regex_dialect dialect, struct expr **out, struct err *err) {
    struct parser p = {.a = a, .s = pattern, .dialect = dialect, .err = err};
    if (pattern.n > MAX_PATTERN_BYTES) return err_set(err, ERR_ELIMIT, "longer than %d bytes", (int)MAX_PATTERN_BYTES);
    if (!utf8_valid(pattern)) return err_set(err, ERR_EARG, "not valid UTF-8");
    TRY(take_alternatives(&p, out));
    return more(&p) ? bad(&p, "this ) opens nowhere") : ERR_OK;
}

/* ---- the automaton ----------------------------------------------------------------------------------------------------- */

struct look {
    struct dfa_pool *pool;
    struct err *err;
    int code;
};

static uint32_t any_text(struct nfa *n, uint32_t next) {
    struct arena a = {0};
    struct expr all = {.kind = EXPR_SET}, loop = {.kind = EXPR_REPEAT, .max = EXPR_MANY, .n_items = 1};
    struct expr *item = &all;
    cs_negate(&a, &all.set);
    loop.items = &item;
    uint32_t s = nfa_build(n, &loop, next);
    arena_free(&a);
    return s;
}

/* A DFA as states of the nondeterministic automaton. */
static uint32_t embed(struct nfa *n, const struct dfa *d) {
    if (d->start == 0) return nfa_add(n, (struct nfa_state){.kind = NFA_RANGE, .lo = 1, .hi = 0});
    uint32_t base = n->n, end = nfa_add(n, (struct nfa_state){.kind = NFA_ACCEPT, .number = 1});
    for (uint32_t s = 1; s < d->n_states; s++) nfa_add(n, (struct nfa_state){.kind = NFA_SPLIT});
    for (uint32_t s = 1; s < d->n_states && !n->is_over; s++) {
        uint32_t way = d->labels[s] ? end : UINT32_MAX;
        for (int lo = 0, hi; lo < 256; lo = hi + 1) {
            uint32_t to = dfa_step(d, s, (uint8_t)lo);
            for (hi = lo; hi < 255 && dfa_step(d, s, (uint8_t)(hi + 1)) == to;) hi++;
            if (!to) continue;
            uint32_t edge = nfa_range(n, (uint8_t)lo, (uint8_t)hi, base + to);
            way = way == UINT32_MAX ? edge : nfa_add(n, (struct nfa_state){.kind = NFA_SPLIT, .out = edge, .out2 = way});
        }
        if (n->is_over) return 0;
        n->states[base + s].out = n->states[base + s].out2 = way;
    }
    return base + d->start;
}

/* What follows must also begin like the look's pattern (or must not): the two languages are cut. */
static uint32_t build_look(struct nfa *n, const struct expr *e, uint32_t next) {
    struct look *l = n->user;
    if (n->n_loops && !l->code) l->code = err_set(l->err, ERR_EUNSUPPORTED, "look-ahead inside a repetition is not supported");
    for (uint32_t i = 0; i < n->n && !l->code; i++)
        if (n->states[i].kind == NFA_WORD || n->states[i].kind == NFA_NOT_WORD)
            l->code = err_set(l->err, ERR_EUNSUPPORTED, "look-ahead together with a word boundary is not supported");
    if (l->code) return 0;
    dfa_id rest = dfa_from_nfa(l->pool, n, next, false);
    struct nfa inner;
    struct arena a = {0};
    nfa_init(&inner, &a, n->max_states);
    inner.look = build_look;
    inner.user = l;
    uint32_t end = nfa_add(&inner, (struct nfa_state){.kind = NFA_ACCEPT, .number = 1});
    uint32_t start = nfa_build(&inner, e->items[0], any_text(&inner, end));
    dfa_id ahead = l->code ? DFA_NONE : dfa_from_nfa(l->pool, &inner, start, false);
    arena_free(&a);
    dfa_id both = e->negative ? dfa_minus(l->pool, rest, ahead) : dfa_and(l->pool, rest, ahead);
    if (l->pool->is_over) n->is_over = true;
    return n->is_over ? 0 : embed(n, dfa_get(l->pool, both));
}

int regex_compile(struct dfa_pool *p, struct str pattern, enum regex_dialect dialect, dfa_id *out, struct err *err) {
    struct arena a = {0};
    struct expr *e = NULL;
    struct nfa n;
    struct look l = {.pool = p, .err = err};
    *out = DFA_NONE;
    int code = regex_parse(&a, pattern, dialect, &e, err);
    if (!code) {
        nfa_init(&n, &a, 1 << 18);
        n.look = build_look;
        n.user = &l;
        uint32_t end = nfa_add(&n, (struct nfa_state){.kind = NFA_ACCEPT, .number = 1});
        if (dialect == REGEX_SCHEMA) end = any_text(&n, end);
        uint32_t start = nfa_build(&n, e, end);
        if (dialect == REGEX_SCHEMA && !l.code) start = any_text(&n, start);
        code = l.code;
        if (!code) *out = dfa_from_nfa(p, &n, start, true);
        if (!code && p->is_over) code = err_set(err, ERR_ELIMIT, "the expression takes too many states");
    }
    arena_free(&a);
    return code;
}

dfa_id regex_known(struct dfa_pool *p, const char *pattern) {
    struct err err;
    dfa_id id;
    int code = regex_compile(p, str_of(pattern), REGEX_WHOLE, &id, &err);
    assert(code == ERR_OK || p->is_over);
    (void)code;
    return id;
}
