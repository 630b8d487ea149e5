/* Which names a scope hides.
 *
 * Jinja decides when it compiles where a name comes from: a scope that sets a name before it reads it, and outside an
 * `if`, has a variable of its own from the start, undefined until it is set. Loops, macros and blocks inside see that
 * variable, not the context's value. Reading and setting are meant in the order of the text, without what stands in
 * inner scopes. A name that an outer scope knows is never hidden: it starts with the outer value.
 *
 * One pass over the tree, linear in its size: `seen` tells for each name the innermost scope that knows it, and a log
 * undoes the entries of a scope when it ends. */
#include "text/template/tmpl_ast.h"

struct change {
    int name, before;
};

struct name_list {
    int *names;
    int n, capacity;
};

struct scopes {
    struct tmpl *t;
    int *seen; /* [n_names]: number of the scope; 0: none */
    struct change *log;
    int n_log, capacity;
    int current, last;       /* number of the scope in hand; highest used */
    int conditions;          /* how many ifs stand around the place in hand, within this scope */
    struct name_list hidden; /* of the scope in hand */
};

static void expression(struct scopes *s, const struct tnode *n);
static void statement(struct scopes *s, struct tnode *n);
static void inner_scopes(struct scopes *s, struct tnode *n);

static void define(struct scopes *s, int name) {
    if (s->n_log == s->capacity) {
        int capacity = s->capacity ? s->capacity * 2 : 64;
        struct change *more = arena_new(s->t->arena, struct change, capacity);
        if (s->n_log) memcpy(more, s->log, (size_t)s->n_log * sizeof *more);
        s->log = more;
        s->capacity = capacity;
    }
    s->log[s->n_log++] = (struct change){name, s->seen[name]};
    s->seen[name] = s->current;
}

static void hide(struct scopes *s, int name) {
    if (s->hidden.n == s->hidden.capacity) {
        int capacity = s->hidden.capacity ? s->hidden.capacity * 2 : 4;
        int *more = arena_new(s->t->arena, int, capacity);
        if (s->hidden.n) memcpy(more, s->hidden.names, (size_t)s->hidden.n * sizeof *more);
        s->hidden.names = more;
        s->hidden.capacity = capacity;
    }
    s->hidden.names[s->hidden.n++] = name;
}

static void load_name(struct scopes *s, int name) {
    if (!s->seen[name]) define(s, name);
}

static void store_name(struct scopes *s, int name) {
    if (s->seen[name] == s->current) return;
    if (!s->seen[name] && !s->conditions) hide(s, name);
    define(s, name);
}

static void declare(struct scopes *s, int name) {
    if (s->seen[name] != s->current) define(s, name);
}

static void target(struct scopes *s, const struct tnode *n, bool as_parameter) {
    if (n->kind == TN_NSREF) load_name(s, n->name);
    else if (n->kind == TN_NAME && as_parameter) declare(s, n->name);
    else if (n->kind == TN_NAME) store_name(s, n->name);
    for (int i = 0; i < n->n_list; i++) target(s, n->list[i], as_parameter);
}

/* ---- what a scope reads and sets ---- */

static void arguments(struct scopes *s, const struct targs *args) {
    if (!args) return;
    for (int i = 0; i < args->n_pos; i++) expression(s, args->pos[i]);
    for (int i = 0; i < args->n_kw; i++) expression(s, args->kw[i]);
    expression(s, args->dyn_pos);
    expression(s, args->dyn_kw);
}

/* Left-deep chains are as long as the template: the first child is walked by a loop. */
static void expression(struct scopes *s, const struct tnode *n) {
    for (; n; n = n->a) {
        if (n->kind == TN_NAME) load_name(s, n->name);
        expression(s, n->b);
        expression(s, n->c);
        for (int i = 0; i < n->n_list; i++) expression(s, n->list[i]);
        arguments(s, n->args);
    }
}

static void body(struct scopes *s, struct tnode *n) {
    for (int i = 0; n && i < n->n_list; i++) statement(s, n->list[i]);
}

static void statement(struct scopes *s, struct tnode *n) {
    switch (n->kind) {
    case TN_BODY: body(s, n); break;
    case TN_PRINT: expression(s, n->a); break;
    case TN_IF:
        expression(s, n->list[0]);
        s->conditions++;
        for (int i = 0; i < n->n_list; i += 2) {
            if (i) expression(s, n->list[i]);
            body(s, n->list[i + 1]);
        }
        body(s, n->orelse);
        s->conditions--;
        break;
    case TN_FOR: expression(s, n->b); break;
    case TN_SET:
        expression(s, n->b);
        target(s, n->a, false);
        break;
    case TN_SET_BLOCK: target(s, n->a, false); break;
    case TN_WITH:
        for (int i = 1; i < n->n_list; i += 2) expression(s, n->list[i]);
        break;
    case TN_MACRO: store_name(s, n->name); break;
    case TN_CALL_BLOCK: expression(s, n->a); break;
    case TN_FILTER_BLOCK: expression(s, n->b); break;
    default: break;
    }
}

/* ---- scopes inside scopes ---- */

/* Opens a scope, lets `names` come in as n's parameters and targets, analyses the part, goes on inside it, closes. */
static void one_scope(struct scopes *s, struct tnode *n, struct tnode *part, bool with_names, struct thidden *out) {
    struct scopes outer = *s;
    s->current = ++s->last;
    s->conditions = 0;
    s->hidden = (struct name_list){0};
    int mark = s->n_log;
    if (with_names && n->kind == TN_FOR) {
        target(s, n->a, true);
        declare(s, NAME_LOOP);
    }
    if (with_names && n->kind == TN_WITH)
        for (int i = 0; i < n->n_list; i += 2) target(s, n->list[i], true);
    if (n->params) {
        for (int i = 0; i < n->params->n; i++) declare(s, n->params->names[i]);
        for (int i = 0; i < n->params->n; i++) expression(s, n->params->defaults[i]);
        if (n->params->uses_caller) declare(s, NAME_CALLER);
        if (n->params->uses_varargs) declare(s, NAME_VARARGS);
        if (n->params->uses_kwargs) declare(s, NAME_KWARGS);
    }
    if (n->kind == TN_SET_BLOCK || n->kind == TN_FILTER_BLOCK) expression(s, n->b);
    body(s, part);
    *out = (struct thidden){s->hidden.names, s->hidden.n};
    inner_scopes(s, part);
    while (s->n_log > mark) {
        s->n_log--;
        s->seen[s->log[s->n_log].name] = s->log[s->n_log].before;
    }
    s->current = outer.current;
    s->conditions = outer.conditions;
    s->hidden = outer.hidden;
}

static void inner_scopes(struct scopes *s, struct tnode *n) {
    struct thidden unused;
    if (!n) return;
    switch (n->kind) {
    case TN_BODY:
        for (int i = 0; i < n->n_list; i++) inner_scopes(s, n->list[i]);
        break;
    case TN_IF:
        for (int i = 1; i < n->n_list; i += 2) inner_scopes(s, n->list[i]);
        inner_scopes(s, n->orelse);
        break;
    case TN_FOR:
        one_scope(s, n, n->body, true, &n->hidden);
        if (n->orelse) one_scope(s, n, n->orelse, false, &unused);
        break;
    case TN_SET_BLOCK:
    case TN_FILTER_BLOCK:
    case TN_WITH:
    case TN_MACRO:
    case TN_CALL_BLOCK:
    case TN_GENERATION:
    case TN_BLOCK:
    case TN_SCOPE: one_scope(s, n, n->body, true, &n->hidden); break;
    default: break;
    }
}

void tmpl_scopes_resolve(struct tmpl *t) {
    struct scopes s = {.t = t, .current = 1, .last = 1};
    s.seen = arena_new(t->arena, int, t->n_names + 1);
    t->is_hidden = arena_new(t->arena, bool, t->n_names + 1);
    body(&s, t->root);
    for (int i = 0; i < s.hidden.n; i++) t->is_hidden[s.hidden.names[i]] = true;
    inner_scopes(&s, t->root);
}
