/* Statements: a table of tags, and tmpl_parse. Tags that would load other templates are parsed and refused when they are
 * reached, as Jinja does without a loader. */
#include "text/template/template.h"
#include "text/template/tmpl_ast.h"
#include "text/template/tmpl_rt.h"

#include "base/hash.h"

static struct tnode *parse_body(struct parser *p, const char *const *ends);

/* Jinja looks filters and tests up when it compiles, except under a condition. */
static void check_unknown(struct parser *p) {
    struct tnode *n = p->unknown;
    p->unknown = NULL;
    if (n && !p->soft)
        tmpl_parse_refuse(p, n->line, "No %s named '%.*s'.", n->kind == TN_FILTER ? "filter" : "test", STR_ARG(tstr_str(n->str)));
}

/* The statements up to one of the end tags, whose name is then the current token. */
static struct tnode *parse_statements(struct parser *p, const char *const *ends) {
    check_unknown(p);
    tmpl_parse_skip(p, TK_COLON);
    tmpl_parse_expect(p, TK_BLOCK_END);
    struct tnode *body = parse_body(p, ends);
    if (tmpl_parse_is(p, TK_EOF))
        tmpl_parse_fail(p, p->cur.line, "Unexpected end of template. Jinja was looking for the tag '%s'.", ends[0]);
    return body;
}

/* The same for a body with a scope of its own, which is not soft. */
static struct tnode *parse_scoped(struct parser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    bool soft = p->soft;
    check_unknown(p);
    p->soft = false;
    struct tnode *body = parse_statements(p, ends);
    p->soft = soft;
    tmpl_parse_advance(p);
    return body;
}

static struct tnode *parse_if(struct parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif", NULL};
    struct tnode *n = tmpl_parse_node(p, TN_IF);
    struct node_list l = {0};
    bool soft = p->soft;
    check_unknown(p);
    p->soft = true;
    do {
        tmpl_parse_advance(p);
        tmpl_node_list_push(p, &l, tmpl_parse_tuple(p, false, NULL));
        tmpl_node_list_push(p, &l, parse_statements(p, ends));
    } while (tmpl_parse_is_word(p, "elif"));
    if (tmpl_parse_skip_word(p, "else")) n->orelse = parse_statements(p, end);
    tmpl_parse_advance(p);
    p->soft = soft;
    n->list = l.items;
    n->n_list = l.n;
    return n;
}

static void refuse_loop_target(struct parser *p, const struct tnode *target) {
    if (target->kind == TN_NAME && target->name == NAME_LOOP)
        tmpl_parse_refuse(p, target->line, "Can't assign to special loop variable in for-loop target");
    for (int i = 0; i < target->n_list; i++) refuse_loop_target(p, target->list[i]);
}

static struct tnode *parse_for(struct parser *p) {
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
    struct tnode *n = tmpl_parse_node(p, TN_FOR);
    tmpl_parse_advance(p);
    n->a = tmpl_parse_assign_target(p, true, false, "in");
    refuse_loop_target(p, n->a);
    if (!tmpl_parse_skip_word(p, "in")) tmpl_parse_fail(p, p->cur.line, "expected token 'in', got '%s'", tmpl_token_name(p->cur.kind));
    n->b = tmpl_parse_tuple(p, false, "recursive");
    if (tmpl_parse_skip_word(p, "if")) n->c = tmpl_parse_expression(p);
    n->u.flag = tmpl_parse_skip_word(p, "recursive");
    check_unknown(p);
    bool soft = p->soft;
    p->soft = false;
    p->n_loops++;
    n->body = parse_statements(p, ends);
    p->n_loops--;
    if (tmpl_parse_skip_word(p, "else")) n->orelse = parse_statements(p, end);
    tmpl_parse_advance(p);
    p->soft = soft;
    return n;
}

static struct tnode *parse_set(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_SET);
    tmpl_parse_advance(p);
    n->a = tmpl_parse_assign_target(p, true, true, NULL);
    if (tmpl_parse_skip(p, TK_ASSIGN)) {
        n->b = tmpl_parse_tuple(p, true, NULL);
        return n;
    }
    n->kind = TN_SET_BLOCK;
    n->b = tmpl_parse_filter_chain(p, NULL, false);
    n->body = parse_scoped(p, "endset");
    return n;
}

static struct tnode *parse_with(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_WITH);
    struct node_list l = {0};
    tmpl_parse_advance(p);
    while (!tmpl_parse_is(p, TK_BLOCK_END)) {
        if (l.n) tmpl_parse_expect(p, TK_COMMA);
        tmpl_node_list_push(p, &l, tmpl_parse_assign_target(p, true, false, NULL));
        tmpl_parse_expect(p, TK_ASSIGN);
        tmpl_node_list_push(p, &l, tmpl_parse_expression(p));
    }
    n->list = l.items;
    n->n_list = l.n;
    n->body = parse_scoped(p, "endwith");
    return n;
}

static void parse_signature(struct parser *p, struct tparams *params) {
    int names[256];
    struct node_list defaults = {0};
    bool had_default = false;
    tmpl_parse_expect(p, TK_LPAREN);
    while (!tmpl_parse_is(p, TK_RPAREN)) {
        if (params->n) tmpl_parse_expect(p, TK_COMMA);
        struct token t = tmpl_parse_expect(p, TK_NAME);
        if (params->n == 256) tmpl_parse_fail(p, t.line, "more than 256 parameters");
        names[params->n] = tmpl_parse_intern(p, t.text);
        for (int i = 0; i < params->n; i++)
            if (names[i] == names[params->n]) tmpl_parse_fail(p, t.line, "duplicate argument '%.*s' in a macro", STR_ARG(t.text));
        params->n++;
        bool has = tmpl_parse_skip(p, TK_ASSIGN);
        if (!has && had_default) tmpl_parse_fail(p, p->cur.line, "non-default argument follows default argument");
        had_default |= has;
        tmpl_node_list_push(p, &defaults, has ? tmpl_parse_expression(p) : NULL);
    }
    tmpl_parse_expect(p, TK_RPAREN);
    params->names = arena_copy(p->arena, names, (size_t)params->n * sizeof *names);
    params->defaults = defaults.items;
}

/* A body that is a function of its own: loops around it cannot be broken from inside. */
static struct tnode *parse_function_body(struct parser *p, struct tparams *params, const char *end) {
    if (p->n_macros == 64) tmpl_parse_fail(p, p->cur.line, "macros are nested more than 64 deep");
    int n_loops = p->n_loops;
    p->n_loops = 0;
    p->macros[p->n_macros++] = params;
    struct tnode *body = parse_scoped(p, end);
    p->n_macros--;
    p->n_loops = n_loops;
    for (int i = 0; i < params->n; i++) { /* a parameter of that name is an ordinary one */
        if (params->names[i] == NAME_CALLER && params->uses_caller && !params->defaults[i])
            tmpl_parse_refuse(p, body->line, "the special \"caller\" argument must be omitted or be given a default");
        if (params->names[i] == NAME_VARARGS) params->uses_varargs = false;
        if (params->names[i] == NAME_KWARGS) params->uses_kwargs = false;
    }
    return body;
}

static struct tnode *parse_macro(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_MACRO);
    tmpl_parse_advance(p);
    n->name = tmpl_parse_intern(p, tmpl_parse_expect(p, TK_NAME).text);
    n->params = arena_new(p->arena, struct tparams, 1);
    parse_signature(p, n->params);
    n->body = parse_function_body(p, n->params, "endmacro");
    return n;
}

static struct tnode *parse_call_block(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_CALL_BLOCK);
    tmpl_parse_advance(p);
    n->params = arena_new(p->arena, struct tparams, 1);
    if (tmpl_parse_is(p, TK_LPAREN)) parse_signature(p, n->params);
    n->a = tmpl_parse_expression(p);
    if (n->a->kind != TN_CALL) tmpl_parse_fail(p, n->line, "expected call");
    n->name = NAME_CALLER;
    n->body = parse_function_body(p, n->params, "endcall");
    return n;
}

static struct tnode *parse_generation(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_GENERATION);
    tmpl_parse_advance(p);
    n->params = arena_new(p->arena, struct tparams, 1);
    n->body = parse_function_body(p, n->params, "endgeneration");
    return n;
}

static struct tnode *parse_filter_block(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_FILTER_BLOCK);
    tmpl_parse_advance(p);
    n->b = tmpl_parse_filter_chain(p, NULL, true);
    n->body = parse_scoped(p, "endfilter");
    return n;
}

static struct tnode *parse_loop_control(struct parser *p) {
    bool is_break = tmpl_parse_is_word(p, "break");
    struct tnode *n = tmpl_parse_node(p, is_break ? TN_BREAK : TN_CONTINUE);
    if (!p->n_loops) tmpl_parse_fail(p, n->line, "'%s' outside loop", is_break ? "break" : "continue");
    tmpl_parse_advance(p);
    return n;
}

static struct tnode *parse_autoescape(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_SCOPE);
    tmpl_parse_advance(p);
    n->a = tmpl_parse_expression(p);
    n->body = parse_scoped(p, "endautoescape");
    return n;
}

static struct tnode *parse_print(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_BODY);
    struct node_list l = {0};
    tmpl_parse_advance(p);
    while (!tmpl_parse_is(p, TK_BLOCK_END)) {
        if (l.n) tmpl_parse_expect(p, TK_COMMA);
        struct tnode *out = tmpl_parse_node(p, TN_PRINT);
        out->a = tmpl_parse_expression(p);
        tmpl_node_list_push(p, &l, out);
    }
    n->list = l.items;
    n->n_list = l.n;
    return n;
}

static void remember_block(struct parser *p, struct tnode *n, struct str name) {
    struct tmpl *t = p->t;
    if (t->n_blocks == 1000) tmpl_parse_fail(p, n->line, "more than 1000 blocks");
    for (int i = 0; i < t->n_blocks; i++)
        if (t->blocks[i]->name == n->name) tmpl_parse_refuse(p, n->line, "block '%.*s' defined twice", STR_ARG(name));
    if ((t->n_blocks & (t->n_blocks - 1)) == 0) {
        struct tnode **more = arena_new(p->arena, struct tnode *, t->n_blocks ? t->n_blocks * 2 : 1);
        if (t->n_blocks) memcpy(more, t->blocks, (size_t)t->n_blocks * sizeof *more);
        t->blocks = more;
    }
    t->blocks[t->n_blocks++] = n;
}

static struct tnode *parse_block(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_BLOCK);
    tmpl_parse_advance(p);
    struct str name = tmpl_parse_expect(p, TK_NAME).text;
    n->name = tmpl_parse_intern(p, name);
    n->u.flag = tmpl_parse_skip_word(p, "scoped");
    if (tmpl_parse_skip_word(p, "required"))
        tmpl_parse_fail(p, n->line, "a required block has no meaning here: templates are not extended");
    remember_block(p, n, name);
    int n_loops = p->n_loops;
    p->n_loops = 0;
    n->body = parse_scoped(p, "endblock");
    p->n_loops = n_loops;
    if (tmpl_parse_is(p, TK_NAME) && str_eq(p->cur.text, name)) tmpl_parse_advance(p);
    return n;
}

/* include, import, from, extends: whatever stands in the tag is skipped. */
static struct tnode *parse_refused(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_REFUSED);
    n->name = tmpl_parse_intern(p, p->cur.text);
    while (!tmpl_parse_is(p, TK_BLOCK_END)) {
        if (tmpl_parse_is(p, TK_EOF)) tmpl_parse_expect(p, TK_BLOCK_END);
        tmpl_parse_advance(p);
    }
    return n;
}

static const struct {
    const char *tag;
    struct tnode *(*parse)(struct parser *p);
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"with", parse_with},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"generation", parse_generation},
    {"break", parse_loop_control},
    {"continue", parse_loop_control},
    {"autoescape", parse_autoescape},
    {"print", parse_print},
    {"block", parse_block},
    {"include", parse_refused},
    {"import", parse_refused},
    {"from", parse_refused},
    {"extends", parse_refused},
};

static struct tnode *parse_statement(struct parser *p) {
    struct token t = p->cur;
    if (t.kind != TK_NAME) tmpl_parse_fail(p, t.line, "tag name expected");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (str_is(t.text, statements[i].tag)) return statements[i].parse(p);
    tmpl_parse_fail(p, t.line, "Encountered unknown tag '%.*s'.", STR_ARG(t.text));
}

static bool at_end_tag(const struct parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (tmpl_parse_is_word(p, *ends)) return true;
    return false;
}

static struct tnode *parse_text(struct parser *p) {
    struct tnode *n = tmpl_parse_node(p, TN_TEXT);
    n->str = arena_new(p->arena, struct tstr, 1);
    n->str->p = p->cur.text.p;
    n->str->n = p->cur.text.n;
    n->str->n_chars = STR_NONE;
    tmpl_parse_advance(p);
    return n;
}

static struct tnode *parse_output(struct parser *p) {
    tmpl_parse_advance(p);
    struct tnode *n = tmpl_parse_node(p, TN_PRINT);
    n->a = tmpl_parse_tuple(p, true, NULL);
    check_unknown(p);
    tmpl_parse_expect(p, TK_VAR_END);
    return n;
}

static struct tnode *parse_body(struct parser *p, const char *const *ends) {
    tmpl_parse_enter(p);
    struct tnode *body = tmpl_parse_node(p, TN_BODY);
    struct node_list l = {0};
    while (!tmpl_parse_is(p, TK_EOF)) {
        if (tmpl_parse_is(p, TK_DATA)) {
            tmpl_node_list_push(p, &l, parse_text(p));
        } else if (tmpl_parse_is(p, TK_VAR_BEGIN)) {
            tmpl_node_list_push(p, &l, parse_output(p));
        } else {
            tmpl_parse_expect(p, TK_BLOCK_BEGIN);
            if (at_end_tag(p, ends)) break;
            tmpl_node_list_push(p, &l, parse_statement(p));
            check_unknown(p);
            tmpl_parse_expect(p, TK_BLOCK_END);
        }
    }
    tmpl_parse_leave(p);
    body->list = l.items;
    body->n_list = l.n;
    return body;
}

static int run_parser(struct parser *p) {
    if (setjmp(p->fail)) return ERR_EFORMAT;
    tmpl_parse_advance(p);
    p->t->root = parse_body(p, NULL);
    return ERR_OK;
}

static void index_names(struct tmpl *t, const struct map *names) {
    t->n_names = (int)names->n;
    t->names = arena_new(t->arena, struct str, names->n);
    t->n_name_slots = 16;
    while (t->n_name_slots < 2 * names->n) t->n_name_slots *= 2;
    t->name_slots = arena_new(t->arena, uint32_t, t->n_name_slots);
    for (size_t i = 0; i < names->n; i++) {
        t->names[i] = names->entries[i].key;
        size_t at = hash_bytes(t->names[i].p, t->names[i].n, 0) & (t->n_name_slots - 1);
        while (t->name_slots[at]) at = (at + 1) & (t->n_name_slots - 1);
        t->name_slots[at] = (uint32_t)i + 1;
    }
}

int tmpl_name_find(const struct tmpl *t, struct str name) {
    size_t at = hash_bytes(name.p, name.n, 0) & (t->n_name_slots - 1);
    for (; t->name_slots[at]; at = (at + 1) & (t->n_name_slots - 1))
        if (str_eq(t->names[t->name_slots[at] - 1], name)) return (int)t->name_slots[at] - 1;
    return -1;
}

int tmpl_parse(struct arena *a, struct str source, struct tmpl **out_template, struct err *err) {
    *out_template = NULL;
    if (source.n > TMPL_SOURCE_BYTES)
        return err_set(err, ERR_ELIMIT, "chat template: %zu bytes, more than the limit of %d", source.n, TMPL_SOURCE_BYTES);
    if (!utf8_valid(source)) return err_set(err, ERR_EFORMAT, "chat template: not valid UTF-8");
    struct parser *p = arena_new(a, struct parser, 1);
    struct tmpl *t = arena_new(a, struct tmpl, 1);
    tmpl_lex_init(&p->lx, a, source);
    p->lx.fail = &p->fail;
    p->lx.err = err;
    p->arena = a;
    p->t = t;
    t->arena = a;
    static const char *const fixed[N_FIXED_NAMES] = {"loop", "caller", "varargs", "kwargs"};
    for (int i = 0; i < N_FIXED_NAMES; i++) tmpl_parse_intern(p, str_of(fixed[i]));
    int code = run_parser(p);
    if (code == ERR_OK) {
        index_names(t, &p->names);
        tmpl_scopes_resolve(t);
        *out_template = t;
    }
    map_free(&p->names);
    return code;
}
