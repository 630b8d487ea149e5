/* The expression grammar: a Pratt parser driven by one table, rules[], with a prefix function, an infix function and a
 * precedence for each token. Jinja's precedences differ from Python's in four points that the table keeps: filters and
 * tests bind tighter than any operator; a sign binds tighter than **, which groups to the left; ~ stands between + and *;
 * after a filter or a test neither "." nor "[" may follow. */
#include "text/template/tmpl_ast.h"
#include "text/template/tmpl_rt.h"

enum prec { PREC_NONE, PREC_OR, PREC_AND, PREC_NOT, PREC_COMPARE, PREC_ADD, PREC_CONCAT, PREC_MUL, PREC_POW, PREC_FILTER, PREC_CALL };

typedef struct tnode *prefix_fn(struct parser *p);
typedef struct tnode *infix_fn(struct parser *p, struct tnode *left);

struct rule {
    prefix_fn *prefix;
    infix_fn *infix;
    enum prec prec;
};

static const struct rule rules[N_TOKENS];
static struct tnode *parse_prec(struct parser *p, enum prec min);

static _Noreturn void fail_with(struct parser *p, int line, const char *fmt, va_list args) {
    struct err e;
    err_vset(&e, ERR_EFORMAT, fmt, args);
    tmpl_lex_fail(&p->lx, line, "%s", e.msg);
}

void tmpl_parse_fail(struct parser *p, int line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_with(p, line, fmt, args);
}

void tmpl_parse_refuse(struct parser *p, int line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    p->lx.kind = "TemplateAssertionError";
    fail_with(p, line, fmt, args);
}

/* ---- tokens ---- */

void tmpl_parse_advance(struct parser *p) {
    p->cur = p->has_ahead ? p->ahead : tmpl_lex_next(&p->lx);
    p->has_ahead = false;
}

struct token tmpl_parse_peek(struct parser *p) {
    if (!p->has_ahead) p->ahead = tmpl_lex_next(&p->lx);
    p->has_ahead = true;
    return p->ahead;
}

bool tmpl_parse_is(const struct parser *p, enum tk kind) {
    return p->cur.kind == kind;
}

bool tmpl_parse_is_word(const struct parser *p, const char *word) {
    return p->cur.kind == TK_NAME && str_is(p->cur.text, word);
}

bool tmpl_parse_skip(struct parser *p, enum tk kind) {
    if (p->cur.kind != kind) return false;
    tmpl_parse_advance(p);
    return true;
}

bool tmpl_parse_skip_word(struct parser *p, const char *word) {
    if (!tmpl_parse_is_word(p, word)) return false;
    tmpl_parse_advance(p);
    return true;
}

struct token tmpl_parse_expect(struct parser *p, enum tk kind) {
    struct token t = p->cur;
    if (t.kind == kind) {
        tmpl_parse_advance(p);
        return t;
    }
    if (t.kind == TK_EOF) tmpl_parse_fail(p, t.line, "unexpected end of template, expected '%s'.", tmpl_token_name(kind));
    if (t.kind == TK_NAME) tmpl_parse_fail(p, t.line, "expected token '%s', got '%.*s'", tmpl_token_name(kind), STR_ARG(t.text));
    tmpl_parse_fail(p, t.line, "expected token '%s', got '%s'", tmpl_token_name(kind), tmpl_token_name(t.kind));
}

int tmpl_parse_intern(struct parser *p, struct str name) {
    bool is_new;
    struct map_entry *e = map_put(&p->names, name, &is_new);
    if (is_new) e->value.i = (int64_t)p->names.n - 1;
    return (int)e->value.i;
}

void tmpl_parse_enter(struct parser *p) {
    if (++p->depth > PARSE_MAX_DEPTH) tmpl_parse_fail(p, p->cur.line, "nested more than %d deep", PARSE_MAX_DEPTH);
}

void tmpl_parse_leave(struct parser *p) {
    p->depth--;
}

struct tnode *tmpl_parse_node(struct parser *p, enum tn kind) {
    struct tnode *n = arena_new(p->arena, struct tnode, 1);
    n->kind = kind;
    n->line = p->cur.line;
    return n;
}

void tmpl_node_list_push(struct parser *p, struct node_list *l, struct tnode *item) {
    if (l->n == l->capacity) {
        int capacity = l->capacity ? l->capacity * 2 : 4;
        struct tnode **items = arena_new(p->arena, struct tnode *, capacity);
        if (l->n) memcpy(items, l->items, (size_t)l->n * sizeof *items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = item;
}

static struct tnode *list_node(struct parser *p, enum tn kind, struct node_list l) {
    struct tnode *n = tmpl_parse_node(p, kind);
    n->list = l.items;
    n->n_list = l.n;
    return n;
}

/* A constant of the template: its text is the template's own. */
static struct tstr *const_str(struct parser *p, struct str text) {
    struct tstr *s = arena_new(p->arena, struct tstr, 1);
    s->p = text.p;
    s->n = text.n;
    s->n_chars = 0;
    for (size_t i = 0; i < text.n; i++) s->n_chars += ((unsigned char)text.p[i] & 0xC0) != 0x80;
    return s;
}

/* ---- prefix ---- */

static struct tnode *const_node(struct parser *p, struct tv value) {
    struct tnode *n = tmpl_parse_node(p, TN_CONST);
    n->value = value;
    tmpl_parse_advance(p);
    return n;
}

static void note_macro_names(struct parser *p, int name) {
    if (name < NAME_CALLER || name > NAME_KWARGS) return;
    for (int i = 0; i < p->n_macros; i++) {
        p->macros[i]->uses_caller |= name == NAME_CALLER;
        p->macros[i]->uses_varargs |= name == NAME_VARARGS;
        p->macros[i]->uses_kwargs |= name == NAME_KWARGS;
    }
}

static struct tnode *prefix_name(struct parser *p) {
    static const struct {
        const char *word;
        struct tv value;
    } words[] = {
        {"true", {TV_BOOL, {.b = true}}},   {"True", {TV_BOOL, {.b = true}}}, {"false", {TV_BOOL, {.b = false}}},
        {"False", {TV_BOOL, {.b = false}}}, {"none", {TV_NONE, {0}}},         {"None", {TV_NONE, {0}}},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_is(p->cur.text, words[i].word)) return const_node(p, words[i].value);
    struct tnode *n = tmpl_parse_node(p, TN_NAME);
    n->name = tmpl_parse_intern(p, p->cur.text);
    note_macro_names(p, n->name);
    tmpl_parse_advance(p);
    return n;
}

static struct tnode *prefix_string(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_CONST);
    struct str text = p->cur.text;
    size_t capacity = 0;
    tmpl_parse_advance(p);
    while (tmpl_parse_is(p, TK_STRING)) { /* neighbours are one string */
        size_t total = text.n + p->cur.text.n;
        if (total > capacity) {
            capacity = 2 * total + 16;
            char *more = arena_alloc(p->arena, capacity);
            if (text.n) memcpy(more, text.p, text.n);
            text.p = more;
        }
        if (p->cur.text.n) memcpy((char *)(uintptr_t)text.p + text.n, p->cur.text.p, p->cur.text.n);
        text.n = total;
        tmpl_parse_advance(p);
    }
    n->value = (struct tv){TV_STR, {.s = const_str(p, text)}};
    return n;
}

static struct tnode *prefix_int(struct parser *p) {
    return const_node(p, tv_int(p->cur.i));
}

static struct tnode *prefix_float(struct parser *p) {
    return const_node(p, tv_float(p->cur.f));
}

static struct tnode *prefix_paren(struct parser *p) {
    struct tnode *empty = tmpl_parse_node(p, TN_TUPLE);
    tmpl_parse_advance(p);
    struct tnode *n = tmpl_parse_is(p, TK_RPAREN) ? empty : tmpl_parse_tuple(p, true, NULL);
    tmpl_parse_expect(p, TK_RPAREN);
    return n;
}

static struct tnode *prefix_list(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_LIST);
    struct node_list l = {0};
    tmpl_parse_advance(p);
    while (!tmpl_parse_is(p, TK_RBRACKET)) {
        if (l.n) tmpl_parse_expect(p, TK_COMMA);
        if (tmpl_parse_is(p, TK_RBRACKET)) break;
        tmpl_node_list_push(p, &l, tmpl_parse_expression(p));
    }
    tmpl_parse_expect(p, TK_RBRACKET);
    n->list = l.items;
    n->n_list = l.n;
    return n;
}

static struct tnode *prefix_dict(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_DICT);
    struct node_list l = {0};
    tmpl_parse_advance(p);
    while (!tmpl_parse_is(p, TK_RBRACE)) {
        if (l.n) tmpl_parse_expect(p, TK_COMMA);
        if (tmpl_parse_is(p, TK_RBRACE)) break;
        tmpl_node_list_push(p, &l, tmpl_parse_expression(p));
        tmpl_parse_expect(p, TK_COLON);
        tmpl_node_list_push(p, &l, tmpl_parse_expression(p));
    }
    tmpl_parse_expect(p, TK_RBRACE);
    n->list = l.items;
    n->n_list = l.n;
    return n;
}

static struct tnode *prefix_sign(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, tmpl_parse_is(p, TK_SUB) ? TN_NEG : TN_POS);
    tmpl_parse_advance(p);
    n->a = parse_prec(p, PREC_CALL);
    return n;
}

static struct tnode *prefix_not(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_NOT);
    tmpl_parse_advance(p);
    n->a = parse_prec(p, PREC_NOT);
    return n;
}

/* ---- infix ---- */

static struct tnode *infix_binary(struct parser *p, struct tnode *left) {
    struct tnode *n = tmpl_parse_node(p, TN_BINARY);
    n->u.op = p->cur.kind;
    tmpl_parse_advance(p);
    n->a = left;
    n->b = parse_prec(p, rules[n->u.op].prec + 1);
    return n;
}

static struct tnode *infix_logic(struct parser *p, struct tnode *left) {
    bool is_and = tmpl_parse_is_word(p, "and");
    struct tnode *n = tmpl_parse_node(p, is_and ? TN_AND : TN_OR);
    tmpl_parse_advance(p);
    n->a = left;
    n->b = parse_prec(p, is_and ? PREC_AND + 1 : PREC_OR + 1);
    return n;
}

static struct tnode *infix_concat(struct parser *p, struct tnode *left) {
    struct node_list l = {0};
    tmpl_node_list_push(p, &l, left);
    while (tmpl_parse_skip(p, TK_TILDE)) tmpl_node_list_push(p, &l, parse_prec(p, PREC_CONCAT + 1));
    return list_node(p, TN_CONCAT, l);
}

/* The operator at the current token, taken off; TK_EOF when there is none. "not in" is TK_NOT. */
static enum tk take_comparison(struct parser *p) {
    enum tk kind = p->cur.kind;
    if (kind >= TK_EQ && kind <= TK_GE) {
        tmpl_parse_advance(p);
        return kind;
    }
    if (tmpl_parse_skip_word(p, "in")) return TK_IN;
    if (!tmpl_parse_is_word(p, "not")) return TK_EOF;
    struct token next = tmpl_parse_peek(p);
    if (next.kind != TK_NAME || !str_is(next.text, "in")) return TK_EOF;
    tmpl_parse_advance(p);
    tmpl_parse_advance(p);
    return TK_NOT;
}

static struct tnode *infix_compare(struct parser *p, struct tnode *left) {
    struct node_list l = {0};
    enum tk ops[64], op;
    struct tnode *n = tmpl_parse_node(p, TN_COMPARE);
    while ((op = take_comparison(p)) != TK_EOF) {
        if (l.n == 64) tmpl_parse_fail(p, p->cur.line, "more than 64 comparisons in a chain");
        ops[l.n] = op;
        tmpl_node_list_push(p, &l, parse_prec(p, PREC_COMPARE + 1));
    }
    n->a = left;
    n->list = l.items;
    n->n_list = l.n;
    n->u.ops = arena_copy(p->arena, ops, (size_t)l.n * sizeof *ops);
    return n;
}

static struct tnode *infix_dot(struct parser *p, struct tnode *left) {
    struct tnode *n = tmpl_parse_node(p, TN_GETATTR);
    tmpl_parse_advance(p);
    n->a = left;
    if (tmpl_parse_is(p, TK_NAME)) {
        n->str = const_str(p, p->cur.text);
    } else if (tmpl_parse_is(p, TK_INT)) {
        n->kind = TN_GETITEM;
        n->b = tmpl_parse_node(p, TN_CONST);
        n->b->value = tv_int(p->cur.i);
    } else {
        tmpl_parse_fail(p, p->cur.line, "expected name or number");
    }
    tmpl_parse_advance(p);
    return n;
}

static struct tnode *slice_part(struct parser *p) {
    bool absent = tmpl_parse_is(p, TK_COLON) || tmpl_parse_is(p, TK_RBRACKET) || tmpl_parse_is(p, TK_COMMA);
    return absent ? NULL : tmpl_parse_expression(p);
}

static struct tnode *infix_bracket(struct parser *p, struct tnode *left) {
    struct tnode *n = tmpl_parse_node(p, TN_GETITEM);
    tmpl_parse_advance(p);
    n->a = left;
    struct tnode *first = slice_part(p);
    if (tmpl_parse_is(p, TK_COLON)) {
        n->kind = TN_SLICE;
        n->list = arena_new(p->arena, struct tnode *, 3);
        n->n_list = 3;
        n->list[0] = first;
        tmpl_parse_advance(p);
        n->list[1] = slice_part(p);
        if (tmpl_parse_skip(p, TK_COLON)) n->list[2] = slice_part(p);
    } else if (tmpl_parse_is(p, TK_COMMA) || !first) {
        struct node_list l = {0};
        if (first) tmpl_node_list_push(p, &l, first);
        while (!tmpl_parse_is(p, TK_RBRACKET)) {
            if (l.n) tmpl_parse_expect(p, TK_COMMA);
            tmpl_node_list_push(p, &l, tmpl_parse_expression(p));
        }
        n->b = list_node(p, TN_TUPLE, l);
    } else {
        n->b = first;
    }
    if (tmpl_parse_is(p, TK_COMMA)) tmpl_parse_fail(p, p->cur.line, "a slice inside a tuple index is not supported");
    tmpl_parse_expect(p, TK_RBRACKET);
    return n;
}

static void parse_kwarg(struct parser *p, struct node_list *kw, struct str **names) {
    if (kw->n == 1000) tmpl_parse_fail(p, p->cur.line, "more than 1000 keyword arguments");
    if ((kw->n & (kw->n - 1)) == 0) { /* the array is full at each power of two */
        struct str *more = arena_new(p->arena, struct str, kw->n ? kw->n * 2 : 1);
        if (kw->n) memcpy(more, *names, (size_t)kw->n * sizeof *more);
        *names = more;
    }
    for (int i = 0; i < kw->n; i++)
        if (str_eq((*names)[i], p->cur.text)) tmpl_parse_fail(p, p->cur.line, "keyword argument repeated: %.*s", STR_ARG(p->cur.text));
    (*names)[kw->n] = p->cur.text;
    tmpl_parse_advance(p);
    tmpl_parse_advance(p);
    tmpl_node_list_push(p, kw, tmpl_parse_expression(p));
}

static struct targs *parse_call_args(struct parser *p) {
    struct targs *args = arena_new(p->arena, struct targs, 1);
    struct node_list pos = {0}, kw = {0};
    struct str *names = NULL;
    int line = p->cur.line;
    bool ok = true, comma = false;
    tmpl_parse_expect(p, TK_LPAREN);
    while (!tmpl_parse_is(p, TK_RPAREN)) {
        if (comma) tmpl_parse_expect(p, TK_COMMA);
        if (comma && tmpl_parse_is(p, TK_RPAREN)) break;
        comma = true;
        if (tmpl_parse_skip(p, TK_MUL)) {
            ok = !args->dyn_pos && !args->dyn_kw;
            args->dyn_pos = tmpl_parse_expression(p);
        } else if (tmpl_parse_skip(p, TK_POW)) {
            ok = !args->dyn_kw;
            args->dyn_kw = tmpl_parse_expression(p);
        } else if (tmpl_parse_is(p, TK_NAME) && tmpl_parse_peek(p).kind == TK_ASSIGN) {
            ok = !args->dyn_kw;
            parse_kwarg(p, &kw, &names);
        } else {
            ok = !args->dyn_pos && !args->dyn_kw && !kw.n;
            tmpl_node_list_push(p, &pos, tmpl_parse_expression(p));
        }
        if (!ok) tmpl_parse_fail(p, line, "invalid syntax for function call expression");
    }
    tmpl_parse_expect(p, TK_RPAREN);
    args->pos = pos.items;
    args->n_pos = pos.n;
    args->kw = kw.items;
    args->n_kw = kw.n;
    args->kw_names = names;
    return args;
}

static struct tnode *infix_call(struct parser *p, struct tnode *left) {
    struct tnode *n = tmpl_parse_node(p, TN_CALL);
    n->a = left;
    n->args = parse_call_args(p);
    return n;
}

/* name or dotted.name */
static struct str parse_dotted(struct parser *p) {
    struct str name = tmpl_parse_expect(p, TK_NAME).text;
    for (int n = 0; tmpl_parse_skip(p, TK_DOT); n++) {
        struct str more = tmpl_parse_expect(p, TK_NAME).text;
        if (n == 8 || name.n > 500) tmpl_parse_fail(p, p->cur.line, "the name of a filter or test is too long");
        name = str_fmt(p->arena, "%.*s.%.*s", STR_ARG(name), STR_ARG(more));
    }
    return name;
}

struct tnode *tmpl_parse_filter_chain(struct parser *p, struct tnode *input, bool start_inline) {
    struct tnode *node = input;
    while (start_inline || tmpl_parse_is(p, TK_PIPE)) {
        if (!start_inline) tmpl_parse_advance(p);
        start_inline = false;
        struct tnode *n = tmpl_parse_node(p, TN_FILTER);
        struct str name = parse_dotted(p);
        n->str = const_str(p, name);
        n->func = tmpl_builtin_find(BUILTIN_FILTER, name);
        if (!n->func && !p->unknown) p->unknown = n;
        n->args = tmpl_parse_is(p, TK_LPAREN) ? parse_call_args(p) : arena_new(p->arena, struct targs, 1);
        n->a = node;
        node = n;
    }
    return node;
}

static struct tnode *infix_filter(struct parser *p, struct tnode *left) {
    return tmpl_parse_filter_chain(p, left, false);
}

/* A test may take one argument without parentheses: "is divisibleby 3". */
static bool begins_test_argument(const struct parser *p) {
    enum tk k = p->cur.kind;
    if (k == TK_NAME) return !tmpl_parse_is_word(p, "else") && !tmpl_parse_is_word(p, "or") && !tmpl_parse_is_word(p, "and");
    return k == TK_STRING || k == TK_INT || k == TK_FLOAT || k == TK_LBRACKET || k == TK_LBRACE;
}

static struct tnode *infix_test(struct parser *p, struct tnode *left) {
    struct tnode *n = tmpl_parse_node(p, TN_TEST);
    tmpl_parse_advance(p);
    bool negated = tmpl_parse_skip_word(p, "not");
    struct str name = parse_dotted(p);
    n->str = const_str(p, name);
    n->func = tmpl_builtin_find(BUILTIN_TEST, name);
    if (!n->func && !p->unknown) p->unknown = n;
    n->a = left;
    if (tmpl_parse_is(p, TK_LPAREN)) {
        n->args = parse_call_args(p);
    } else {
        n->args = arena_new(p->arena, struct targs, 1);
        if (begins_test_argument(p)) {
            if (tmpl_parse_is_word(p, "is")) tmpl_parse_fail(p, p->cur.line, "You cannot chain multiple tests with is");
            struct node_list l = {0};
            tmpl_node_list_push(p, &l, parse_prec(p, PREC_CALL));
            n->args->pos = l.items;
            n->args->n_pos = 1;
        }
    }
    if (!negated) return n;
    struct tnode *not = tmpl_parse_node(p, TN_NOT);
    not ->a = n;
    return not ;
}

/* ---- the table ---- */

static const struct rule rules[N_TOKENS] = {
    /* token          prefix          infix           precedence */
    [TK_NAME] = {prefix_name, NULL, PREC_NONE},
    [TK_STRING] = {prefix_string, NULL, PREC_NONE},
    [TK_INT] = {prefix_int, NULL, PREC_NONE},
    [TK_FLOAT] = {prefix_float, NULL, PREC_NONE},
    [TK_ADD] = {prefix_sign, infix_binary, PREC_ADD},
    [TK_SUB] = {prefix_sign, infix_binary, PREC_ADD},
    [TK_MUL] = {NULL, infix_binary, PREC_MUL},
    [TK_DIV] = {NULL, infix_binary, PREC_MUL},
    [TK_FLOORDIV] = {NULL, infix_binary, PREC_MUL},
    [TK_MOD] = {NULL, infix_binary, PREC_MUL},
    [TK_POW] = {NULL, infix_binary, PREC_POW},
    [TK_TILDE] = {NULL, infix_concat, PREC_CONCAT},
    [TK_EQ] = {NULL, infix_compare, PREC_COMPARE},
    [TK_NE] = {NULL, infix_compare, PREC_COMPARE},
    [TK_LT] = {NULL, infix_compare, PREC_COMPARE},
    [TK_LE] = {NULL, infix_compare, PREC_COMPARE},
    [TK_GT] = {NULL, infix_compare, PREC_COMPARE},
    [TK_GE] = {NULL, infix_compare, PREC_COMPARE},
    [TK_LPAREN] = {prefix_paren, infix_call, PREC_FILTER},
    [TK_LBRACKET] = {prefix_list, infix_bracket, PREC_CALL},
    [TK_LBRACE] = {prefix_dict, NULL, PREC_NONE},
    [TK_DOT] = {NULL, infix_dot, PREC_CALL},
    [TK_PIPE] = {NULL, infix_filter, PREC_FILTER},
    [TK_AND] = {NULL, infix_logic, PREC_AND},
    [TK_OR] = {NULL, infix_logic, PREC_OR},
    [TK_IN] = {NULL, infix_compare, PREC_COMPARE},
    [TK_NOT] = {prefix_not, infix_compare, PREC_COMPARE},
    [TK_IS] = {NULL, infix_test, PREC_FILTER},
};

/* The rule of the current token as an infix operator; words that are operators count as such here only. */
static enum tk infix_kind(struct parser *p) {
    if (!tmpl_parse_is(p, TK_NAME)) return p->cur.kind;
    static const struct {
        const char *word;
        enum tk kind;
    } words[] = {{"and", TK_AND}, {"or", TK_OR}, {"in", TK_IN}, {"is", TK_IS}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_is(p->cur.text, words[i].word)) return words[i].kind;
    if (!str_is(p->cur.text, "not")) return TK_NAME;
    struct token next = tmpl_parse_peek(p);
    return next.kind == TK_NAME && str_is(next.text, "in") ? TK_NOT : TK_NAME;
}

static struct tnode *parse_prec(struct parser *p, enum prec min) {
    tmpl_parse_enter(p);
    enum tk kind = p->cur.kind;
    if (min <= PREC_NOT && tmpl_parse_is_word(p, "not")) kind = TK_NOT;
    prefix_fn *prefix = rules[kind].prefix;
    if (!prefix) tmpl_parse_fail(p, p->cur.line, "unexpected '%s'", tmpl_token_name(kind));
    struct tnode *left = prefix(p);
    enum prec reached = kind == TK_NOT ? PREC_NOT : kind == TK_ADD || kind == TK_SUB ? PREC_FILTER : PREC_CALL;
    for (;;) {
        enum tk op = infix_kind(p);
        const struct rule *r = &rules[op];
        enum prec prec = op == TK_LPAREN && reached == PREC_CALL ? PREC_CALL : r->prec;
        if (!r->infix || prec < min || (prec == PREC_CALL && reached < PREC_CALL)) break;
        if (op == TK_LPAREN && reached < PREC_FILTER) break;
        left = r->infix(p, left);
        if (prec < reached) reached = prec;
    }
    tmpl_parse_leave(p);
    return left;
}

static struct tnode *parse_or_expression(struct parser *p) {
    return parse_prec(p, PREC_OR);
}

/* "a if b else c"; an unknown filter in its parts is an error only when it is reached. */
struct tnode *tmpl_parse_expression(struct parser *p) {
    tmpl_parse_enter(p);
    struct tnode *unknown = p->unknown;
    struct tnode *value = parse_or_expression(p);
    while (tmpl_parse_skip_word(p, "if")) {
        struct tnode *n = tmpl_parse_node(p, TN_COND);
        n->b = value;
        n->a = parse_or_expression(p);
        if (tmpl_parse_skip_word(p, "else")) n->c = tmpl_parse_expression(p);
        p->unknown = unknown;
        value = n;
    }
    tmpl_parse_leave(p);
    return value;
}

static bool is_tuple_end(const struct parser *p, const char *end_word) {
    if (tmpl_parse_is(p, TK_VAR_END) || tmpl_parse_is(p, TK_BLOCK_END) || tmpl_parse_is(p, TK_RPAREN)) return true;
    return end_word && tmpl_parse_is_word(p, end_word);
}

struct tnode *tmpl_parse_tuple(struct parser *p, bool with_condexpr, const char *end_word) {
    struct node_list l = {0};
    bool is_tuple = false;
    for (;;) {
        if (l.n) tmpl_parse_expect(p, TK_COMMA);
        if (is_tuple_end(p, end_word)) break;
        tmpl_node_list_push(p, &l, with_condexpr ? tmpl_parse_expression(p) : parse_or_expression(p));
        if (!tmpl_parse_is(p, TK_COMMA)) break;
        is_tuple = true;
    }
    if (!is_tuple && l.n) return l.items[0];
    if (!is_tuple) tmpl_parse_fail(p, p->cur.line, "Expected an expression, got '%s'", tmpl_token_name(p->cur.kind));
    return list_node(p, TN_TUPLE, l);
}

static struct tnode *parse_target_primary(struct parser *p, bool with_namespace) {
    if (tmpl_parse_is(p, TK_LPAREN)) {
        tmpl_parse_advance(p);
        struct tnode *n = tmpl_parse_assign_target(p, true, with_namespace, NULL);
        tmpl_parse_expect(p, TK_RPAREN);
        return n;
    }
    struct tnode *n = tmpl_parse_node(p, TN_NAME);
    struct str name = tmpl_parse_expect(p, TK_NAME).text;
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (str_is(name, reserved[i])) tmpl_parse_fail(p, n->line, "can't assign to 'const'");
    n->name = tmpl_parse_intern(p, name);
    if (with_namespace && tmpl_parse_skip(p, TK_DOT)) {
        note_macro_names(p, n->name);
        n->kind = TN_NSREF;
        n->str = const_str(p, tmpl_parse_expect(p, TK_NAME).text);
    }
    return n;
}

struct tnode *tmpl_parse_assign_target(struct parser *p, bool with_tuple, bool with_namespace, const char *end_word) {
    tmpl_parse_enter(p);
    struct tnode *first = parse_target_primary(p, with_namespace);
    if (with_tuple && tmpl_parse_is(p, TK_COMMA)) {
        struct node_list l = {0};
        tmpl_node_list_push(p, &l, first);
        while (tmpl_parse_skip(p, TK_COMMA)) {
            if (is_tuple_end(p, end_word)) break;
            tmpl_node_list_push(p, &l, parse_target_primary(p, with_namespace));
        }
        first = list_node(p, TN_TUPLE, l);
    }
    tmpl_parse_leave(p);
    return first;
}
