/* GBNF, the grammar language of llama.cpp: its parser, and rules to little automata.
 *
 * Characters are code points. A name that is no rule may be that of a JSON schema which came with the grammar. What llama.cpp refuses is
 * refused here: left recursion, names without a rule, escapes that it does not know. Tokens (<...>) are not supported. */
#include "base/map.h"
#include "text/grammar/front.h"
#include "text/grammar/rules.h"

enum { MAX_DEPTH = 200, MAX_REPEAT = 2000, MAX_STATES = 1 << 18 };

struct parser {
    struct gram *g;
    struct arena a;
    struct str s;
    size_t i;
    struct rule_set rules;
    const struct gram_source *source;
    struct sb *warnings;
    uint32_t *goals; /* by schema; PROG_NONE: not compiled yet */
    int depth;
    struct err *err;
};

static int bad(const struct parser *p, const char *why) {
    size_t line = 1;
    for (size_t i = 0; i < p->i && i < p->s.n; i++) line += p->s.p[i] == '\n';
    return err_set(p->err, ERR_EARG, "grammar: line %zu: %s", line, why);
}

static bool more(const struct parser *p) {
    return p->i < p->s.n;
}

static char peek(const struct parser *p) {
    return more(p) ? p->s.p[p->i] : '\0';
}

static bool take(struct parser *p, const char *text) {
    if (!str_starts(str_from(p->s, p->i), str_of(text))) return false;
    p->i += strlen(text);
    return true;
}

/* Blanks and comments; line ends too where they mean nothing. */
static void skip_space(struct parser *p, bool over_lines) {
    for (; more(p); p->i++) {
        char c = peek(p);
        if (c == '#') {
            while (more(p) && peek(p) != '\n' && peek(p) != '\r') p->i++;
            if (!over_lines || !more(p)) return;
        } else if (c != ' ' && c != '\t' && !(over_lines && (c == '\n' || c == '\r'))) {
            return;
        }
    }
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

static struct str take_name(struct parser *p) {
    size_t from = p->i;
    while (more(p) && is_name_char(peek(p))) p->i++;
    return str_sub(p->s, from, p->i - from);
}

/* ---- characters -------------------------------------------------------------------------------------------------------- */

static int take_hex(struct parser *p, int n_digits, uint32_t *out) {
    uint32_t v = 0;
    for (int i = 0; i < n_digits; i++, p->i++) {
        char c = peek(p);
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
        if (digit < 0) return bad(p, "a hex digit is missing");
        v = v << 4 | (uint32_t)digit;
    }
    if (v > CS_LAST) return bad(p, "not a code point");
    *out = v;
    return ERR_OK;
}

static int take_char(struct parser *p, uint32_t *out) {
    if (!take(p, "\\")) {
        p->i += utf8_decode(p->s.p + p->i, p->s.n - p->i, out);
        return ERR_OK;
    }
    static const char letters[] = "nrt\\\"[]", meanings[] = "\n\r\t\\\"[]";
    char c = peek(p);
    const char *known = more(p) ? strchr(letters, c) : NULL;
    if (!known || !c) {
        if (c != 'x' && c != 'u' && c != 'U') return bad(p, "this escape is not known");
        p->i++;
        return take_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    }
    p->i++;
    *out = (uint8_t)meanings[known - letters];
    return ERR_OK;
}

static int take_literal(struct parser *p, struct expr **out) {
    struct sb text = {0};
    int code = ERR_OK;
    while (!code && !take(p, "\"")) {
        uint32_t c = 0;
        char utf8[4];
        if (!more(p)) code = bad(p, "the literal \" has no end");
        else code = take_char(p, &c);
        if (!code && c == GRAM_TOKEN_CHAR) sb_puts(&text, GRAM_TOKEN_MARK);
        else if (!code) sb_put(&text, str_n(utf8, utf8_encode(c, utf8)));
    }
    *out = expr_text(&p->a, sb_str(&text));
    sb_free(&text);
    return code;
}

static int take_class(struct parser *p, struct expr **out) {
    struct expr *e = expr_new(&p->a, EXPR_SET);
    bool negate = take(p, "^");
    while (!take(p, "]")) {
        uint32_t lo, hi;
        if (!more(p)) return bad(p, "the class [ has no end");
        TRY(take_char(p, &lo));
        hi = lo;
        if (peek(p) == '-' && p->i + 1 < p->s.n && p->s.p[p->i + 1] != ']') {
            p->i++;
            TRY(take_char(p, &hi));
            if (hi < lo) return bad(p, "a range ends before it begins");
        }
        cs_add(&p->a, &e->set, lo, hi);
    }
    cs_finish(&e->set);
    if (negate) cs_negate(&p->a, &e->set);
    *out = e;
    return ERR_OK;
}

/* ---- expressions ------------------------------------------------------------------------------------------------------- */

static int take_alternatives(struct parser *p, bool in_group, struct expr **out);

/* The strings of a schema as they stand. */
static int take_bare(struct parser *p, const struct gram_schema *schema, struct expr **out) {
    uint32_t goal;
    bool may_be_empty;
    struct expr_list ways = {0};
    if (gram_bare_compile(p->g, schema, p->warnings, &goal, &may_be_empty, p->err))
        return err_prefix(p->err, "schema %.*s", STR_ARG(schema->name));
    if (goal != PROG_NONE) {
        expr_list_put(&p->a, &ways, expr_new(&p->a, EXPR_VALUE));
        ways.p[0]->number = goal;
    }
    if (may_be_empty) expr_list_put(&p->a, &ways, expr_new(&p->a, EXPR_EMPTY));
    *out = expr_join(&p->a, EXPR_ALT, &ways);
    return ERR_OK;
}

static int take_schema(struct parser *p, size_t i, struct expr **out) {
    if (p->source->schemas[i].is_bare) return take_bare(p, &p->source->schemas[i], out);
    if (p->goals[i] == PROG_NONE) {
        struct str name = p->source->schemas[i].name;
        if (gram_schema_compile(p->g, p->source->schemas[i].text, p->warnings, &p->goals[i], p->err))
            return err_prefix(p->err, "schema %.*s", STR_ARG(name));
    }
    *out = expr_new(&p->a, EXPR_VALUE);
    (*out)->number = p->goals[i];
    return ERR_OK;
}

static int take_symbol(struct parser *p, struct expr **out) {
    struct str name = take_name(p);
    for (size_t i = 0; i < p->source->n_schemas; i++)
        if (str_eq(p->source->schemas[i].name, name)) return take_schema(p, i, out);
    *out = expr_new(&p->a, EXPR_CALL);
    (*out)->number = rules_find(&p->rules, str_copy(&p->a, name));
    return ERR_OK;
}

static int take_item(struct parser *p, bool in_group, struct expr **out) {
    if (take(p, "\"")) return take_literal(p, out);
    if (take(p, "[")) return take_class(p, out);
    if (take(p, ".")) {
        *out = expr_new(&p->a, EXPR_SET);
        cs_negate(&p->a, &(*out)->set);
        return ERR_OK;
    }
    if (take(p, "(")) {
        if (++p->depth > MAX_DEPTH) return bad(p, "groups are nested too deep");
        TRY(take_alternatives(p, true, out));
        p->depth--;
        return take(p, ")") ? ERR_OK : bad(p, "the group ( has no end");
    }
    if (is_name_char(peek(p))) return take_symbol(p, out);
    if (peek(p) == '<' || peek(p) == '!') return err_set(p->err, ERR_EUNSUPPORTED, "grammar: tokens (<...>) are not supported");
    if (peek(p) == '*' || peek(p) == '+' || peek(p) == '?' || peek(p) == '{') return bad(p, "there is nothing to repeat");
    (void)in_group;
    return bad(p, "not a literal, class, group or name");
}

static bool take_count(struct parser *p, uint32_t *out) {
    size_t from = p->i;
    uint32_t v = 0;
    for (; more(p) && peek(p) >= '0' && peek(p) <= '9'; p->i++)
        if (v < 1000000) v = v * 10 + (uint32_t)(peek(p) - '0');
    *out = v;
    return p->i > from;
}

static int take_postfix(struct parser *p, bool in_group, struct expr **e) {
    for (;;) {
        uint32_t min = 0, max = EXPR_MANY;
        skip_space(p, in_group);
        if (take(p, "+")) min = 1;
        else if (take(p, "?")) max = 1;
        else if (take(p, "{")) {
            skip_space(p, in_group);
            if (!take_count(p, &min)) return bad(p, "the lower bound of { is missing");
            skip_space(p, in_group);
            max = min;
            if (take(p, ",")) {
                skip_space(p, in_group);
                if (!take_count(p, &max)) max = EXPR_MANY;
                skip_space(p, in_group);
            }
            if (!take(p, "}")) return bad(p, "the repetition { has no end");
            if (min > MAX_REPEAT) return bad(p, "more than 2000 repetitions");
            if (max < min) return bad(p, "the upper bound is less than the lower one");
        } else if (!take(p, "*")) {
            return ERR_OK;
        }
        *e = expr_repeat(&p->a, *e, min, max);
    }
}

static bool is_sequence_end(const struct parser *p, bool in_group) {
    char c = peek(p);
    return !more(p) || c == '|' || c == ')' || (!in_group && (c == '\n' || c == '\r'));
}

static int take_sequence(struct parser *p, bool in_group, struct expr **out) {
    struct expr_list l = {0};
    for (skip_space(p, in_group); !is_sequence_end(p, in_group); skip_space(p, in_group)) {
        struct expr *e;
        TRY(take_item(p, in_group, &e));
        TRY(take_postfix(p, in_group, &e));
        expr_list_put(&p->a, &l, e);
    }
    *out = expr_join(&p->a, EXPR_CAT, &l);
    return ERR_OK;
}

static int take_alternatives(struct parser *p, bool in_group, struct expr **out) {
    struct expr_list l = {0};
    do {
        struct expr *e;
        if (l.n) skip_space(p, true); /* a line end behind | means nothing, */
        TRY(take_sequence(p, in_group, &e));
        expr_list_put(&p->a, &l, e);
    } while (take(p, "|"));
    *out = expr_join(&p->a, EXPR_ALT, &l);
    return ERR_OK;
}

static int take_rule(struct parser *p) {
    struct str name = take_name(p);
    if (!name.n) return bad(p, "a rule begins with its name");
    skip_space(p, false);
    if (!take(p, "::=")) return bad(p, "::= is missing behind the rule's name");
    skip_space(p, true);
    struct expr *body;
    uint32_t number = rules_find(&p->rules, str_copy(&p->a, name)); /* may move the rules */
    if (p->rules.p[number].body) return bad(p, "a rule of this name was there before");
    TRY(take_alternatives(p, false, &body));
    p->rules.p[number].body = body;
    if (more(p) && peek(p) != '\n' && peek(p) != '\r') return bad(p, "this ) opens nowhere");
    return ERR_OK;
}

int gbnf_compile(struct gram *g, const struct gram_source *source, struct sb *warnings, struct err *err) {
    struct parser p = {.g = g, .s = source->text, .source = source, .warnings = warnings, .err = err};
    int code = utf8_valid(source->text) ? ERR_OK : err_set(err, ERR_EARG, "grammar: not valid UTF-8");
    p.rules.a = &p.a;
    p.goals = arena_new(&p.a, uint32_t, source->n_schemas + 1);
    for (size_t i = 0; i < source->n_schemas; i++) p.goals[i] = PROG_NONE;
    uint32_t root = rules_find(&p.rules, STR("root"));
    for (skip_space(&p, true); !code && more(&p); skip_space(&p, true)) code = take_rule(&p);
    if (!code && !p.rules.p[root].body) code = err_set(err, ERR_EARG, "grammar: there is no rule named root");
    if (!code) code = rules_compile(g, &p.rules, root, MAX_STATES, err);
    map_free(&p.rules.by_name);
    arena_free(&p.a);
    return code;
}
