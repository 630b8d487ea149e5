/* Goals: sets of literals by number, unfolded one after the other, and what is left of them when the impossible is taken out. */
#include "text/grammar/schema.h"

#include "text/grammar/regex.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_GOALS = 40000, MAX_UNIQUE_CHARS = 64 };

/* ---- literals ---------------------------------------------------------------------------------------------------------- */

static void push(struct schema *s, struct lits *l, literal x) {
    if (l->n == l->capacity) {
        uint32_t capacity = l->capacity ? 2 * l->capacity : 4;
        literal *p = arena_new(&s->a, literal, capacity);
        if (l->n) memcpy(p, l->p, l->n * sizeof *p);
        l->p = p;
        l->capacity = capacity;
    }
    l->p[l->n++] = x;
}

void gram_lits_add(struct schema *s, struct lits *l, literal x) {
    if (x == LIT_UNIQUE) {
        push(s, l, x);
        return;
    }
    uint32_t node = schema_same(s, lit_node(x));
    if (s->code) return;
    if (s->nodes[node].kind == SNODE_SCHEMA) {
        bool is_true = !schema_asserts(s, node), is_false = yyjson_is_false(s->nodes[node].v);
        if (is_true || is_false) {
            if (is_true == lit_negated(x)) l->is_never = true;
            return;
        }
    }
    push(s, l, lit(node, lit_negated(x)));
}

void gram_lits_add_all(struct schema *s, struct lits *l, const struct lits *other) {
    for (uint32_t i = 0; i < other->n; i++) push(s, l, other->p[i]);
    l->is_never = l->is_never || other->is_never;
}

static int by_number(const void *x, const void *y) {
    literal a = *(const literal *)x, b = *(const literal *)y;
    return a < b ? -1 : a > b;
}

/* Sorted, each once; false: some literal is there together with its negation. */
static bool tidy(struct schema *s, const struct lits *l, struct lits *out) {
    *out = (struct lits){0};
    literal *sorted = l->n ? arena_copy(&s->a, l->p, l->n * sizeof *l->p) : NULL;
    if (l->n > 1) qsort(sorted, l->n, sizeof *sorted, by_number);
    for (uint32_t i = 0; i < l->n; i++) {
        if (out->n && out->p[out->n - 1] == sorted[i]) continue;
        if (out->n && sorted[i] != LIT_UNIQUE && lit_node(out->p[out->n - 1]) == lit_node(sorted[i])) return false;
        push(s, out, sorted[i]);
    }
    return true;
}

uint32_t gram_goal_of(struct schema *s, const struct lits *l) {
    struct lits set;
    if (l->is_never || s->code || !tidy(s, l, &set)) return PROG_NONE;
    uint32_t goal = gram_lists_put(&s->goal_keys, set.p, set.n);
    if (goal >= MAX_GOALS) {
        schema_fail(s, s->root, ERR_ELIMIT, "the schema unfolds into more than %d parts", (int)MAX_GOALS);
        return PROG_NONE;
    }
    return s->first_goal + goal;
}

/* ---- is there any value? ------------------------------------------------------------------------------------------------ */

static struct scalars common_scalars(struct schema *s, const literal *p, uint32_t n) {
    struct scalars x = gram_scalars_all(s);
    for (uint32_t i = 0; i < n; i++) {
        if (p[i] == LIT_UNIQUE) continue;
        struct scalars y = *schema_scalars(s, lit_node(p[i]));
        if (lit_negated(p[i])) y = gram_scalars_not(s, &y);
        gram_scalars_and(s, &x, &y);
    }
    return x;
}

struct maybe {
    int depth;
    unsigned kind;
    bool found;
};

static bool try_alternative(struct schema *s, const struct facts *facts, void *user) {
    struct maybe *m = user;
    m->found = (m->kind == KIND_OBJECT ? gram_object_maybe : gram_array_maybe)(s, facts, m->depth);
    return !m->found;
}

static bool kind_maybe(struct schema *s, const struct lits *l, unsigned kind, int depth) {
    for (uint32_t i = 0; i < l->n; i++)
        if (!lit_negated(l->p[i]) && !(schema_kinds(s, lit_node(l->p[i])) & kind)) return false;
    if (depth <= 0) return true;
    struct maybe m = {depth, kind, false};
    gram_unfold_goal(s, l, kind, try_alternative, &m);
    return m.found || s->code;
}

static uint8_t *maybe_slot(struct schema *s, const struct lits *l) {
    uint32_t id = gram_lists_put(&s->maybe_keys, l->p, l->n);
    if (id >= s->maybe_capacity) {
        uint32_t capacity = s->maybe_capacity ? 2 * s->maybe_capacity : 64;
        uint8_t *maybe = arena_new(&s->a, uint8_t, capacity);
        if (s->maybe_capacity) memcpy(maybe, s->maybe, s->maybe_capacity);
        s->maybe = maybe;
        s->maybe_capacity = capacity;
    }
    return &s->maybe[id];
}

enum { MAYBE_UNKNOWN, MAYBE_ASKED, MAYBE_NO, MAYBE_YES };

bool gram_lits_maybe(struct schema *s, const struct lits *l, int depth) {
    struct lits set;
    if (l->is_never) return false;
    if (s->code || l->n == 0 || (l->n == 1 && !lit_negated(l->p[0]))) return true;
    if (!tidy(s, l, &set)) return false;
    uint8_t *slot = maybe_slot(s, &set);
    if (*slot != MAYBE_UNKNOWN) return *slot != MAYBE_NO;
    *slot = MAYBE_ASKED;
    struct scalars x = common_scalars(s, set.p, set.n);
    bool found = !gram_scalars_empty(&x) || kind_maybe(s, &set, KIND_OBJECT, depth) || kind_maybe(s, &set, KIND_ARRAY, depth);
    *maybe_slot(s, &set) = found ? MAYBE_YES : MAYBE_NO;
    return found;
}

/* ---- strings and scalars of a goal --------------------------------------------------------------------------------------- */

uint32_t gram_put_string(struct schema *s, struct strterm t, uint32_t node) {
    struct gram *g = s->g;
    uint32_t id = s->first_string + gram_records_put(&s->strings_known, &t);
    if (id < g->n_strings) return id;
    if (id == s->g->strings_capacity) {
        uint32_t capacity = s->g->strings_capacity ? 2 * s->g->strings_capacity : 32;
        struct prog_string *strings = arena_new(&g->a, struct prog_string, capacity);
        if (g->n_strings) memcpy(strings, g->strings, g->n_strings * sizeof *strings);
        g->strings = strings;
        s->g->strings_capacity = capacity;
    }
    struct strlengths *lengths = NULL;
    struct err err;
    int code = gram_strlengths_make(&g->a, dfa_get(&g->pool, t.dfa), t.min, t.max, &lengths, &err);
    if (code) schema_fail(s, node, code, "%s", err.msg);
    g->strings[id] = (struct prog_string){t.dfa, t.min, t.max, lengths};
    g->n_strings++;
    return id;
}

/* Some text of the term has a length that it allows. */
static bool has_text(const struct gram *g, uint32_t string) {
    const struct prog_string *p = &g->strings[string];
    return gram_strlengths_fits(p->lengths, prog_dfa(g, p->dfa)->start, p->min, p->max, 0);
}

/* Where texts are told apart, lengths become part of the automaton, so that it can be said how many there are. */
static struct strterm with_lengths(struct schema *s, struct strterm t) {
    char pattern[64];
    if ((t.min == 0 && t.max == STR_LONG) || (t.max > MAX_UNIQUE_CHARS && t.max != STR_LONG) || t.min > MAX_UNIQUE_CHARS) return t;
    if (t.max == STR_LONG) return t;
    snprintf(pattern, sizeof pattern, "(?s).{%u,%u}", t.min, t.max);
    return (struct strterm){dfa_and(&s->g->pool, t.dfa, regex_known(&s->g->pool, pattern)), 0, STR_LONG};
}

static void fill_scalars(struct schema *s, struct prog_goal *goal, const struct lits *l, uint32_t node, bool is_unique) {
    struct dfa_pool *p = &s->g->pool;
    struct scalars x = common_scalars(s, l->p, l->n);
    struct str words[3];
    size_t n = 0;
    if (x.null) words[n++] = STR("null");
    if (x.yes) words[n++] = STR("true");
    if (x.no) words[n++] = STR("false");
    goal->raw = dfa_or(p, dfa_from_texts(p, words, n), numbers_spell(&s->numbers, x.numbers, is_unique));
    goal->strings = arena_new(&s->g->a, uint32_t, x.strings.n + 1);
    for (size_t i = 0; i < x.strings.n && !s->code; i++) {
        struct strterm t = is_unique ? with_lengths(s, x.strings.terms[i]) : x.strings.terms[i];
        if (t.dfa == DFA_NONE) continue;
        uint32_t string = gram_put_string(s, t, node);
        if (!s->code && has_text(s->g, string)) goal->strings[goal->n_strings++] = string;
    }
    if (p->is_over) schema_fail(s, node, ERR_ELIMIT, "the schema takes too much work to compile");
}

/* ---- unfolding ---------------------------------------------------------------------------------------------------------- */

struct shapes {
    uint32_t *p, n, capacity;
    unsigned kind;
    uint32_t node;
};

static bool add_shape(struct schema *s, const struct facts *facts, void *user) {
    struct shapes *to = user;
    if (!(to->kind == KIND_OBJECT ? gram_object_maybe : gram_array_maybe)(s, facts, 2)) return true;
    uint32_t shape = to->kind == KIND_OBJECT ? gram_object_shape(s, facts) : gram_array_shape(s, facts, to->node);
    if (shape == PROG_NONE) return true;
    if (to->n == to->capacity) {
        uint32_t capacity = to->capacity ? 2 * to->capacity : 4, *p = arena_new(&s->g->a, uint32_t, capacity);
        if (to->n) memcpy(p, to->p, to->n * sizeof *p);
        to->p = p;
        to->capacity = capacity;
    }
    to->p[to->n++] = shape;
    return true;
}

static void unfold_kind(struct schema *s, const struct lits *l, unsigned kind, uint32_t node, uint32_t **out, uint32_t *out_n) {
    struct shapes shapes = {.kind = kind, .node = node};
    for (uint32_t i = 0; i < l->n; i++)
        if (!lit_negated(l->p[i]) && !(schema_kinds(s, lit_node(l->p[i])) & kind)) return;
    gram_unfold_goal(s, l, kind, add_shape, &shapes);
    *out = shapes.p;
    *out_n = shapes.n;
}

uint32_t gram_goal_put(struct gram *g, struct prog_goal goal) {
    if (g->n_goals == g->goals_capacity) {
        uint32_t capacity = g->goals_capacity ? 2 * g->goals_capacity : 64;
        struct prog_goal *goals = arena_new(&g->a, struct prog_goal, capacity);
        if (g->n_goals) memcpy(goals, g->goals, g->n_goals * sizeof *goals);
        g->goals = goals;
        g->goals_capacity = capacity;
    }
    g->goals[g->n_goals] = goal;
    return g->n_goals++;
}

static void compile_goal(struct schema *s, uint32_t id) {
    struct prog_goal goal = {0};
    struct lits l = {0};
    uint32_t n;
    const uint32_t *key = lists_get(&s->goal_keys, id, &n);
    bool is_unique = n && key[n - 1] == LIT_UNIQUE;
    for (uint32_t i = 0; i < n - is_unique; i++) push(s, &l, key[i]);
    uint32_t node = l.n ? lit_node(l.p[0]) : s->root;
    fill_scalars(s, &goal, &l, node, is_unique);
    unfold_kind(s, &l, KIND_OBJECT, node, &goal.objects, &goal.n_objects);
    unfold_kind(s, &l, KIND_ARRAY, node, &goal.arrays, &goal.n_arrays);
    if (is_unique && (goal.n_objects || goal.n_arrays))
        schema_fail(s, node, ERR_EUNSUPPORTED,
                    "uniqueItems is supported for strings, numbers, booleans and null; these items may be objects or arrays");
    gram_goal_put(s->g, goal);
}

/* ---- the impossible ----------------------------------------------------------------------------------------------------- */

static bool goal_has_value(const struct gram *g, const struct prog_goal *goal) {
    if (goal->raw != DFA_NONE || goal->n_strings) return true;
    for (uint32_t i = 0; i < goal->n_objects; i++) {
        struct object_progress p = gram_object_begin(g, goal->objects[i]);
        if (gram_object_fits(g, &p, NULL)) return true;
    }
    for (uint32_t i = 0; i < goal->n_arrays; i++) {
        struct array_progress p = gram_array_begin(goal->arrays[i]);
        if (gram_array_fits(g, &p)) return true;
    }
    return false;
}

/* From "nothing is possible" upwards, until nothing more becomes so. */
static void find_possible(struct gram *g) {
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < g->n_objects; i++) gram_object_refresh(g, &g->objects[i]);
        for (uint32_t i = 0; i < g->n_goals; i++) {
            if (g->goals[i].is_possible || !goal_has_value(g, &g->goals[i])) continue;
            g->goals[i].is_possible = changed = true;
        }
    }
}

static void drop_choices(const struct gram *g, struct prog_choices *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (g->goals[c->p[i].goal].is_possible) c->p[n++] = c->p[i];
    c->n = n;
}

static void drop_impossible(struct gram *g) {
    for (uint32_t i = 0; i < g->n_objects; i++) {
        struct prog_object *o = &g->objects[i];
        for (uint32_t k = 0; k < o->n_keys; k++) drop_choices(g, &o->keys[k].choices);
        for (uint32_t k = 0; k < o->n_classes; k++) drop_choices(g, &o->classes[k]);
        gram_object_refresh(g, o);
    }
    for (uint32_t i = 0; i < g->n_arrays; i++) {
        struct prog_array *a = &g->arrays[i];
        for (uint32_t k = 0; k < a->n_prefix; k++) drop_choices(g, &a->prefix[k]);
        drop_choices(g, &a->rest);
    }
    for (uint32_t i = 0; i < g->n_goals; i++) {
        struct prog_goal *goal = &g->goals[i];
        uint32_t n = 0;
        for (uint32_t k = 0; k < goal->n_objects; k++) {
            struct object_progress p = gram_object_begin(g, goal->objects[k]);
            if (gram_object_fits(g, &p, NULL)) goal->objects[n++] = goal->objects[k];
        }
        goal->n_objects = n;
        n = 0;
        for (uint32_t k = 0; k < goal->n_arrays; k++) {
            struct array_progress p = gram_array_begin(goal->arrays[k]);
            if (gram_array_fits(g, &p)) goal->arrays[n++] = goal->arrays[k];
        }
        goal->n_arrays = n;
    }
}

/* Extra names whose values are impossible are taken out of the automaton. */
static void trim_extras(struct schema *s, struct prog_object *o) {
    uint16_t map[65] = {0};
    bool changed = false;
    for (uint32_t c = 0; c < o->n_classes; c++) {
        map[c + 1] = o->classes[c].n ? (uint16_t)(c + 1) : 0;
        if (!map[c + 1]) changed = true;
    }
    if (!changed) return;
    o->extras = dfa_relabel(&s->g->pool, o->extras, map);
    gram_object_reach_classes(s, o);
    const struct dfa *d = dfa_get(&s->g->pool, o->extras);
    o->n_extras = o->extras == DFA_NONE ? 0 : dfa_counts(&s->a, d)[d->start];
}

static const uint32_t *counts_of(struct schema *s, uint32_t dfa) {
    if (!s->g->counts[dfa]) s->g->counts[dfa] = dfa_counts(&s->g->a, prog_dfa(s->g, dfa));
    return s->g->counts[dfa];
}

static void count_values(struct schema *s) {
    struct gram *g = s->g;
    g->counts = arena_new(&g->a, const uint32_t *, g->pool.n);
    for (uint32_t i = 0; i < g->n_objects; i++) counts_of(s, g->objects[i].extras);
    for (uint32_t i = 0; i < g->n_goals; i++) {
        struct prog_goal *goal = &g->goals[i];
        uint64_t n = goal->n_objects || goal->n_arrays ? PROG_MANY : counts_of(s, goal->raw)[prog_dfa(g, goal->raw)->start];
        for (uint32_t k = 0; k < goal->n_strings; k++) {
            const struct prog_string *t = &g->strings[goal->strings[k]];
            n += counts_of(s, t->dfa)[prog_dfa(g, t->dfa)->start];
        }
        goal->n_values = n > PROG_MANY ? PROG_MANY : (uint32_t)n;
    }
}

/* Items that must differ are at most as many as there are values. */
static void limit_unique(struct schema *s) {
    struct gram *g = s->g;
    for (uint32_t i = 0; i < g->n_arrays; i++) {
        struct prog_array *a = &g->arrays[i];
        uint32_t n = PROG_MANY;
        for (uint32_t k = 0; k < a->rest.n && a->is_unique; k++) n = g->goals[a->rest.p[k].goal].n_values;
        bool is_plain = a->n_prefix == 0 && a->rest.n <= 1;
        for (uint32_t k = 0; k < a->n_prefix && a->is_unique; k++)
            for (uint32_t c = 0; c < a->prefix[k].n; c++)
                if (g->goals[a->prefix[k].p[c].goal].n_values != PROG_MANY) n = 0;
        if (n == PROG_MANY) continue;
        if (!is_plain)
            schema_fail(s, s->root, ERR_EUNSUPPORTED, "uniqueItems of few values is not supported beside prefixItems or contains");
        else if (n < a->max) a->max = n;
    }
}

int gram_goals_compile(struct schema *s) {
    struct gram *g = s->g;
    for (uint32_t i = 0; i < s->goal_keys.n && !s->code; i++) compile_goal(s, i);
    if (s->code) return s->code;
    count_values(s);
    limit_unique(s);
    find_possible(g);
    drop_impossible(g);
    for (uint32_t i = 0; i < g->n_objects; i++) trim_extras(s, &g->objects[i]);
    count_values(s);
    if (g->pool.is_over) schema_fail(s, s->root, ERR_ELIMIT, "the schema takes too much work to compile");
    return s->code;
}
