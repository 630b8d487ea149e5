/* Unfolding: a set of literals, seen as objects or as arrays, into alternatives of plain facts.
 *
 * A branch holds the facts so far, literals that are still to be unfolded, and choices that are still open. Literals without a choice are
 * unfolded first; then the smallest choice is decided, each way in a branch of its own. All lists are shared between branches and
 * never changed. */
#include "text/grammar/schema_unfold.h"

enum { MAX_ALTERNATIVES = 4096, WORK_PER_LITERAL = 60, MAX_NESTING = 300 };

const struct facts *gram_facts_put(struct schema *s, const struct facts *list, struct fact f) {
    struct facts *l = arena_new(&s->a, struct facts, 1);
    *l = (struct facts){f, list};
    return l;
}

const struct facts *gram_facts_literal(struct schema *s, const struct facts *list, literal l, const struct collector *scope) {
    return gram_facts_put(s, list, (struct fact){.kind = FACT_LITERAL, .lit = l, .scope = lit_negated(l) ? NULL : scope});
}

void gram_branch_fact(struct unfolding *u, struct branch *b, struct fact f) {
    b->facts = gram_facts_put(u->s, b->facts, f);
}

void gram_branch_literal(struct unfolding *u, struct branch *b, literal l, const struct collector *scope) {
    b->todo = gram_facts_literal(u->s, b->todo, l, scope);
}

void gram_way_add(struct unfolding *u, struct ways *w, const struct facts *facts) {
    if (w->n == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 4;
        const struct facts **p = arena_new(&u->s->a, const struct facts *, capacity);
        if (w->n) memcpy(p, w->p, w->n * sizeof *p);
        w->p = p;
        w->capacity = capacity;
    }
    w->p[w->n++] = facts;
}

void gram_branch_choice(struct unfolding *u, struct branch *b, const struct ways *w) {
    struct choice *c = arena_new(&u->s->a, struct choice, 1);
    *c = (struct choice){*w, b->choices};
    b->choices = c;
}

/* ---- who evaluated what (unevaluatedProperties, unevaluatedItems) ------------------------------------------------------- */

void gram_branch_collect(struct unfolding *u, struct branch *b, const struct collector *scope, const struct pred *pred, uint32_t n_items) {
    for (; scope; scope = scope->outer) {
        struct collected *c = arena_new(&u->s->a, struct collected, 1);
        *c = (struct collected){scope, pred, n_items, b->collected};
        b->collected = c;
    }
}

/* The facts that the collectors of a finished branch come to. */
static const struct facts *close_collectors(struct unfolding *u, const struct branch *b) {
    struct schema *s = u->s;
    const struct facts *facts = b->facts;
    for (const struct collector *c = b->collectors; c; c = c->before) {
        const struct pred_list *names = NULL;
        uint32_t n_items = 0;
        for (const struct collected *e = b->collected; e; e = e->next) {
            if (e->by != c) continue;
            if (e->n_items > n_items) n_items = e->n_items;
            if (!e->pred) continue;
            struct pred_list *l = arena_new(&s->a, struct pred_list, 1);
            *l = (struct pred_list){e->pred, names};
            names = l;
        }
        struct pred *rest = arena_new(&s->a, struct pred, 1);
        *rest = (struct pred){.kind = PRED_REST, .of = names};
        struct fact f = {.kind = FACT_EVERY, .lit = c->lit, .pred = rest};
        if (u->kind == KIND_ARRAY) f = (struct fact){.kind = FACT_ITEMS_FROM, .lit = c->lit, .n = n_items};
        if (u->kind == KIND_OBJECT || n_items != UINT32_MAX) facts = gram_facts_put(s, facts, f);
    }
    return facts;
}

/* ---- subschemas in place ----------------------------------------------------------------------------------------------- */

static uint32_t list_item(struct schema *s, uint32_t node, const char *keyword, yyjson_val *list, size_t i) {
    return schema_item(s, node, keyword, i, yyjson_arr_get(list, i));
}

/* Each of the list's schemas that hold decides what is evaluated: every set of them is a way of its own. */
static void any_of_exactly(struct unfolding *u, struct branch *b, uint32_t node, yyjson_val *list, const struct collector *scope) {
    size_t n = yyjson_arr_size(list);
    struct ways w = {0};
    if (n > 8) {
        schema_fail(u->s, node, ERR_ELIMIT, "anyOf of %zu schemas beside unevaluatedProperties or unevaluatedItems is too much", n);
        return;
    }
    for (uint32_t set = 1; set < (uint32_t)1 << n; set++) {
        const struct facts *facts = NULL;
        for (size_t i = 0; i < n; i++)
            facts = gram_facts_literal(u->s, facts, lit(list_item(u->s, node, "anyOf", list, i), !(set >> i & 1)), scope);
        gram_way_add(u, &w, facts);
    }
    gram_branch_choice(u, b, &w);
}

static void any_of(struct unfolding *u, struct branch *b, uint32_t node, yyjson_val *list, const struct collector *scope) {
    struct ways w = {0};
    if (scope) {
        any_of_exactly(u, b, node, list, scope);
        return;
    }
    for (size_t i = 0; i < yyjson_arr_size(list); i++)
        gram_way_add(u, &w, gram_facts_literal(u->s, NULL, lit(list_item(u->s, node, "anyOf", list, i), false), NULL));
    gram_branch_choice(u, b, &w);
}

static bool can_both_hold(struct unfolding *u, uint32_t x, uint32_t y) {
    struct lits l = {0};
    gram_lits_add(u->s, &l, lit(x, false));
    gram_lits_add(u->s, &l, lit(y, false));
    return gram_lits_maybe(u->s, &l, 3);
}

/* One holds and the others do not; schemas that cannot hold together need not be told not to. */
static void one_of(struct unfolding *u, struct branch *b, uint32_t node, yyjson_val *list, const struct collector *scope) {
    struct ways w = {0};
    for (size_t i = 0; i < yyjson_arr_size(list) && !u->s->code; i++) {
        uint32_t chosen = list_item(u->s, node, "oneOf", list, i);
        const struct facts *facts = gram_facts_literal(u->s, NULL, lit(chosen, false), scope);
        for (size_t k = 0; k < yyjson_arr_size(list); k++) {
            uint32_t other = list_item(u->s, node, "oneOf", list, k);
            if (k != i && can_both_hold(u, chosen, other)) facts = gram_facts_literal(u->s, facts, lit(other, true), NULL);
        }
        gram_way_add(u, &w, facts);
    }
    gram_branch_choice(u, b, &w);
}

static void apply_lists(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope) {
    yyjson_val *all = schema_keyword(u->s, node, "allOf"), *any = schema_keyword(u->s, node, "anyOf"),
               *one = schema_keyword(u->s, node, "oneOf");
    for (size_t i = yyjson_arr_size(all); i-- > 0;) gram_branch_literal(u, b, lit(list_item(u->s, node, "allOf", all, i), false), scope);
    if (any) any_of(u, b, node, any, scope);
    if (one) one_of(u, b, node, one, scope);
}

static void apply_if(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope) {
    struct schema *s = u->s;
    yyjson_val *test = schema_keyword(s, node, "if"), *then = schema_keyword(s, node, "then"), *other = schema_keyword(s, node, "else");
    if (!test || (!then && !other && !scope)) return;
    uint32_t at = schema_child(s, node, "if", test);
    const struct facts *yes = gram_facts_literal(s, NULL, lit(at, false), scope), *no = gram_facts_literal(s, NULL, lit(at, true), NULL);
    if (then) yes = gram_facts_literal(s, yes, lit(schema_child(s, node, "then", then), false), scope);
    if (other) no = gram_facts_literal(s, no, lit(schema_child(s, node, "else", other), false), scope);
    struct ways w = {0};
    gram_way_add(u, &w, yes);
    gram_way_add(u, &w, no);
    gram_branch_choice(u, b, &w);
}

static void apply_refs(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope) {
    static const char *const names[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < 3; i++) {
        yyjson_val *ref = schema_keyword(u->s, node, names[i]);
        uint32_t target = ref ? schema_target(u->s, node, names[i], ref) : PROG_NONE;
        if (target != PROG_NONE) gram_branch_literal(u, b, lit(target, false), scope);
    }
}

/* enum and const: one of the values of this kind. */
static bool apply_values(struct unfolding *u, struct branch *b, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *constant = schema_keyword(s, node, "const"), *list = schema_keyword(s, node, "enum");
    struct ways w = {0};
    if (constant) gram_branch_literal(u, b, lit(schema_node(s, SNODE_VALUE, constant, node, STR("const")), false), NULL);
    if (!list) return true;
    for (size_t i = 0; i < yyjson_arr_size(list); i++) {
        yyjson_val *v = yyjson_arr_get(list, i);
        if ((u->kind == KIND_OBJECT ? yyjson_is_obj(v) : yyjson_is_arr(v)))
            gram_way_add(u, &w, gram_facts_literal(s, NULL, lit(schema_node(s, SNODE_VALUE, v, node, STR("enum")), false), NULL));
    }
    gram_branch_choice(u, b, &w);
    return w.n > 0;
}

/* A collector of its own for unevaluatedProperties or unevaluatedItems; NULL-safe. */
static const struct collector *open_collector(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope) {
    const char *name = u->kind == KIND_OBJECT ? "unevaluatedProperties" : "unevaluatedItems";
    yyjson_val *v = schema_keyword(u->s, node, name);
    if (!v) return scope;
    static const struct pred all = {.kind = PRED_ALL};
    gram_branch_collect(u, b, scope, &all, UINT32_MAX); /* it evaluates all that is left */
    struct collector *c = arena_new(&u->s->a, struct collector, 1);
    *c = (struct collector){lit(schema_child(u->s, node, name, v), false), scope, b->collectors};
    b->collectors = c;
    return c;
}

static bool apply_positive(struct unfolding *u, struct branch *b, uint32_t node, const struct collector *scope) {
    struct schema *s = u->s;
    yyjson_val *v = s->nodes[node].v, *negated;
    if (!(schema_kinds(s, node) & u->kind)) return false;
    if (s->nodes[node].kind == SNODE_VALUE) {
        (u->kind == KIND_OBJECT ? gram_object_equals : gram_array_equals)(u, b, node);
        return true;
    }
    if (!yyjson_is_obj(v)) return true;
    scope = open_collector(u, b, node, scope);
    if (!apply_values(u, b, node)) return false;
    (u->kind == KIND_OBJECT ? gram_object_keywords : gram_array_keywords)(u, b, node, scope);
    apply_refs(u, b, node, scope);
    apply_lists(u, b, node, scope);
    apply_if(u, b, node, scope);
    if ((negated = schema_keyword(s, node, "not"))) gram_branch_literal(u, b, lit(schema_child(s, node, "not", negated), true), NULL);
    return true;
}

/* ---- negation: one way for each keyword that can be broken -------------------------------------------------------------- */

static void break_lists(struct unfolding *u, struct ways *w, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *all = schema_keyword(s, node, "allOf"), *any = schema_keyword(s, node, "anyOf"), *one = schema_keyword(s, node, "oneOf");
    for (size_t i = 0; i < yyjson_arr_size(all); i++)
        gram_way_add(u, w, gram_facts_literal(s, NULL, lit(list_item(s, node, "allOf", all, i), true), NULL));
    const struct facts *none = NULL;
    for (size_t i = 0; i < yyjson_arr_size(any); i++)
        none = gram_facts_literal(s, none, lit(list_item(s, node, "anyOf", any, i), true), NULL);
    if (any) gram_way_add(u, w, none);
    none = NULL;
    for (size_t i = 0; i < yyjson_arr_size(one); i++) {
        uint32_t x = list_item(s, node, "oneOf", one, i);
        none = gram_facts_literal(s, none, lit(x, true), NULL);
        for (size_t k = i + 1; k < yyjson_arr_size(one); k++) {
            uint32_t y = list_item(s, node, "oneOf", one, k);
            if (can_both_hold(u, x, y))
                gram_way_add(u, w, gram_facts_literal(s, gram_facts_literal(s, NULL, lit(x, false), NULL), lit(y, false), NULL));
        }
    }
    if (one) gram_way_add(u, w, none);
}

static void break_if(struct unfolding *u, struct ways *w, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *test = schema_keyword(s, node, "if"), *then = schema_keyword(s, node, "then"), *other = schema_keyword(s, node, "else");
    if (!test) return;
    uint32_t at = schema_child(s, node, "if", test);
    if (then)
        gram_way_add(
            u, w,
            gram_facts_literal(s, gram_facts_literal(s, NULL, lit(at, false), NULL), lit(schema_child(s, node, "then", then), true), NULL));
    if (other)
        gram_way_add(
            u, w,
            gram_facts_literal(s, gram_facts_literal(s, NULL, lit(at, true), NULL), lit(schema_child(s, node, "else", other), true), NULL));
}

/* False: the values have no other kind than this, so that the negation holds of it anyway. */
static bool break_values(struct unfolding *u, struct ways *w, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *constant = schema_keyword(s, node, "const"), *list = schema_keyword(s, node, "enum");
    const struct facts *none = NULL;
    if (constant)
        gram_way_add(u, w, gram_facts_literal(s, NULL, lit(schema_node(s, SNODE_VALUE, constant, node, STR("const")), true), NULL));
    if (!list) return true;
    for (size_t i = 0; i < yyjson_arr_size(list); i++) {
        yyjson_val *v = yyjson_arr_get(list, i);
        if (u->kind == KIND_OBJECT ? yyjson_is_obj(v) : yyjson_is_arr(v))
            none = gram_facts_literal(s, none, lit(schema_node(s, SNODE_VALUE, v, node, STR("enum")), true), NULL);
    }
    gram_way_add(u, w, none);
    return true;
}

static bool apply_negative(struct unfolding *u, struct branch *b, uint32_t node) {
    struct schema *s = u->s;
    yyjson_val *v = s->nodes[node].v, *inner;
    struct ways w = {0};
    if (!(schema_kinds(s, node) & u->kind)) return true;
    if (s->nodes[node].kind == SNODE_VALUE) {
        (u->kind == KIND_OBJECT ? gram_object_differs : gram_array_differs)(u, &w, node);
    } else {
        if (!yyjson_is_obj(v)) return false;
        if (schema_keyword(s, node, "unevaluatedProperties") || schema_keyword(s, node, "unevaluatedItems"))
            schema_fail(s, node, ERR_EUNSUPPORTED,
                        "unevaluatedProperties and unevaluatedItems are not supported where they are negated (not, oneOf, if)");
        break_values(u, &w, node);
        (u->kind == KIND_OBJECT ? gram_object_break : gram_array_break)(u, &w, node);
        break_lists(u, &w, node);
        break_if(u, &w, node);
        if ((inner = schema_keyword(s, node, "not")))
            gram_way_add(u, &w, gram_facts_literal(s, NULL, lit(schema_child(s, node, "not", inner), false), NULL));
        static const char *const refs[] = {"$ref", "$dynamicRef", "$recursiveRef"};
        for (size_t i = 0; i < 3; i++) {
            yyjson_val *ref = schema_keyword(s, node, refs[i]);
            uint32_t target = ref ? schema_target(s, node, refs[i], ref) : PROG_NONE;
            if (target != PROG_NONE) gram_way_add(u, &w, gram_facts_literal(s, NULL, lit(target, true), NULL));
        }
    }
    for (size_t i = 0; i < w.n; i++)
        if (!w.p[i]) return true; /* a way that asks for nothing */
    gram_branch_choice(u, b, &w);
    return w.n > 0;
}

/* ---- the search -------------------------------------------------------------------------------------------------------- */

static bool unfold_todo(struct unfolding *u, struct branch *b) {
    struct schema *s = u->s;
    while (b->todo && !s->code) {
        struct fact f = b->todo->fact;
        b->todo = b->todo->next;
        s->g->pool.work += WORK_PER_LITERAL;
        if (s->g->pool.work > s->g->pool.max_work) schema_fail(s, lit_node(f.lit), ERR_ELIMIT, "the schema takes too much work to compile");
        uint32_t node = schema_same(s, lit_node(f.lit));
        if (s->code) return false;
        if (!(lit_negated(f.lit) ? apply_negative(u, b, node) : apply_positive(u, b, node, f.scope))) return false;
    }
    return !s->code;
}

/* A way that cannot hold of this kind, as its literals' types say. */
static bool is_way_out(struct unfolding *u, const struct facts *way) {
    for (; way; way = way->next) {
        if (way->fact.kind != FACT_LITERAL || lit_negated(way->fact.lit)) continue;
        uint32_t node = schema_same(u->s, lit_node(way->fact.lit));
        if (!(schema_kinds(u->s, node) & u->kind)) return true;
    }
    return false;
}

static void drop_ways(struct unfolding *u, struct branch *b) {
    const struct choice *kept = NULL;
    for (const struct choice *c = b->choices; c; c = c->next) {
        struct ways w = {0};
        for (size_t i = 0; i < c->ways.n; i++)
            if (!is_way_out(u, c->ways.p[i])) gram_way_add(u, &w, c->ways.p[i]);
        struct choice *copy = arena_new(&u->s->a, struct choice, 1);
        *copy = (struct choice){w, kept};
        kept = copy;
    }
    b->choices = kept;
}

/* Takes a way's facts into the branch. */
static void take_way(struct unfolding *u, struct branch *b, const struct facts *way) {
    for (; way; way = way->next) {
        if (way->fact.kind == FACT_LITERAL) b->todo = gram_facts_put(u->s, b->todo, way->fact);
        else b->facts = gram_facts_put(u->s, b->facts, way->fact);
    }
}

/* The open choice with the fewest ways, taken out of the branch. */
static struct ways take_choice(struct unfolding *u, struct branch *b) {
    const struct choice *best = b->choices, *rest = NULL;
    for (const struct choice *c = b->choices; c; c = c->next)
        if (c->ways.n < best->ways.n) best = c;
    for (const struct choice *c = b->choices; c; c = c->next) {
        if (c == best) continue;
        struct choice *copy = arena_new(&u->s->a, struct choice, 1);
        *copy = (struct choice){c->ways, rest};
        rest = copy;
    }
    b->choices = rest;
    return best->ways;
}

static bool is_contradiction(struct unfolding *u, const struct branch *b) {
    return !(u->kind == KIND_OBJECT ? gram_object_maybe : gram_array_maybe)(u->s, b->facts, 1);
}

static void search(struct unfolding *u, struct branch b, int nesting) {
    struct schema *s = u->s;
    for (;;) {
        if (nesting > MAX_NESTING) schema_fail(s, u->node, ERR_ELIMIT, "subschemas are nested too deep");
        if (!unfold_todo(u, &b) || u->is_stopped) return;
        if (!b.choices) break;
        drop_ways(u, &b);
        if (is_contradiction(u, &b)) return;
        struct ways w = take_choice(u, &b);
        for (size_t i = 0; i + 1 < w.n && !s->code && !u->is_stopped; i++) {
            struct branch way = b;
            take_way(u, &way, w.p[i]);
            search(u, way, nesting + 1);
        }
        if (w.n == 0) return;
        take_way(u, &b, w.p[w.n - 1]);
    }
    if (++u->n_found > MAX_ALTERNATIVES) {
        schema_fail(s, u->node, ERR_ELIMIT, "anyOf, oneOf, if and the like leave more than %d combinations", (int)MAX_ALTERNATIVES);
        return;
    }
    const struct facts *facts = close_collectors(u, &b);
    if (!s->code && !u->fn(s, facts, u->user)) u->is_stopped = true;
}

void gram_unfold_goal(struct schema *s, const struct lits *l, unsigned kind, unfold_fn *fn, void *user) {
    struct unfolding u = {.s = s, .kind = kind, .fn = fn, .user = user, .node = l->n ? lit_node(l->p[0]) : s->root};
    struct branch b = {0};
    for (uint32_t i = l->n; i-- > 0;) b.todo = gram_facts_literal(s, b.todo, l->p[i], NULL);
    if (s->nesting++ > MAX_NESTING) schema_fail(s, u.node, ERR_ELIMIT, "subschemas are nested too deep");
    search(&u, b, 0);
    s->nesting--;
}
