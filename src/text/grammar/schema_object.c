/* Objects: from the facts of one alternative to a shape of a program. */
#include "text/grammar/schema.h"

#include <stdlib.h>

enum { MAX_NEEDS = 5, MAX_SETS = 12, MAX_CLASSES = 64, MAX_WORDS = 64, MAX_KEYS = 20000 };

/* ---- predicates -------------------------------------------------------------------------------------------------------- */

static bool list_has(struct schema *s, const struct pred_list *l, struct str name) {
    for (; l; l = l->next)
        if (gram_pred_has(s, l->pred, name)) return true;
    return false;
}

bool gram_pred_has(struct schema *s, const struct pred *p, struct str name) {
    s->g->pool.work++;
    switch (p->kind) {
    case PRED_NAME: return str_eq(p->name, name);
    case PRED_SET: return dfa_run(dfa_get(&s->g->pool, p->set), name) != 0;
    case PRED_REST: return !list_has(s, p->of, name);
    case PRED_ALL: return true;
    }
    return false;
}

/* Automata that predicates ask, so that names that no key has can be parted by them. */
struct sets {
    dfa_id ids[MAX_SETS];
    uint32_t n;
    bool is_over;
};

static void find_sets(struct sets *sets, const struct pred *p) {
    if (p->kind == PRED_REST)
        for (const struct pred_list *l = p->of; l; l = l->next) find_sets(sets, l->pred);
    if (p->kind != PRED_SET) return;
    for (uint32_t i = 0; i < sets->n; i++)
        if (sets->ids[i] == p->set) return;
    if (sets->n == MAX_SETS) sets->is_over = true;
    else sets->ids[sets->n++] = p->set;
}

/* Whether a predicate holds of a name that no key has and that lies in these of the sets. */
static bool pred_has_class(const struct sets *sets, const struct pred *p, uint32_t inside) {
    switch (p->kind) {
    case PRED_NAME: return false;
    case PRED_ALL: return true;
    case PRED_REST:
        for (const struct pred_list *l = p->of; l; l = l->next)
            if (pred_has_class(sets, l->pred, inside)) return false;
        return true;
    case PRED_SET:
        for (uint32_t i = 0; i < sets->n; i++)
            if (sets->ids[i] == p->set) return inside >> i & 1;
    }
    return false;
}

/* ---- collecting -------------------------------------------------------------------------------------------------------- */

struct member {
    struct str name;
    struct lits lits;
    bool is_required;
};

struct draft_object {
    struct schema *s;
    const struct fact **facts; /* oldest first */
    size_t n_facts;
    struct map by_name;
    struct member *members;
    uint32_t n_members, capacity;
    const struct fact *needs[MAX_NEEDS];
    uint32_t n_needs;
    uint32_t min, max;
    struct sets sets;
};

static void order_facts(struct draft_object *o, const struct facts *facts) {
    for (const struct facts *f = facts; f; f = f->next) o->n_facts++;
    o->facts = arena_new(&o->s->a, const struct fact *, o->n_facts + 1);
    size_t i = o->n_facts;
    for (const struct facts *f = facts; f; f = f->next) o->facts[--i] = &f->fact;
}

static struct member *member_of(struct draft_object *o, struct str name) {
    bool is_new;
    struct map_entry *e = map_put(&o->by_name, name, &is_new);
    if (is_new) {
        if (o->n_members == o->capacity) {
            uint32_t capacity = o->capacity ? 2 * o->capacity : 16;
            struct member *members = arena_new(&o->s->a, struct member, capacity);
            if (o->n_members) memcpy(members, o->members, o->n_members * sizeof *members);
            o->members = members;
            o->capacity = capacity;
        }
        e->value.i = o->n_members;
        o->members[o->n_members++].name = name;
    }
    return &o->members[e->value.i];
}

static void add_literal(struct schema *s, struct lits *l, literal x) {
    if (x == LIT_FALSE) l->is_never = true;
    else if (x != LIT_TRUE) gram_lits_add(s, l, x);
}

/* Keys, in the order in which they are first named, with what is said of them by name. */
static void collect_named(struct draft_object *o) {
    for (size_t i = 0; i < o->n_facts; i++) {
        const struct fact *f = o->facts[i];
        struct member *m;
        switch (f->kind) {
        case FACT_EVERY:
            if (f->pred->kind == PRED_NAME) add_literal(o->s, &member_of(o, f->pred->name)->lits, f->lit);
            else find_sets(&o->sets, f->pred);
            break;
        case FACT_HAS:
            m = member_of(o, f->name);
            m->is_required = true;
            add_literal(o->s, &m->lits, f->lit);
            break;
        case FACT_LACKS: member_of(o, f->name)->lits.is_never = true; break;
        case FACT_MIN_MEMBERS:
            if (f->n > o->min) o->min = f->n;
            break;
        case FACT_MAX_MEMBERS:
            if (f->n < o->max) o->max = f->n;
            break;
        case FACT_SOME:
            find_sets(&o->sets, f->pred);
            if (o->n_needs < MAX_NEEDS) o->needs[o->n_needs] = f;
            o->n_needs++;
            break;
        default: break;
        }
    }
}

/* A need whose names are few: they become keys, each of which may meet it. */
static void name_needs(struct draft_object *o) {
    for (uint32_t i = 0; i < o->n_needs && i < MAX_NEEDS; i++) {
        const struct pred *p = o->needs[i]->pred;
        struct str *words;
        size_t n;
        if (p->kind == PRED_SET && dfa_words(&o->s->a, dfa_get(&o->s->g->pool, p->set), MAX_WORDS, &words, &n))
            for (size_t k = 0; k < n; k++) member_of(o, words[k]);
    }
}

/* What is said of keys by patterns and of "all others". */
static void apply_patterns(struct draft_object *o) {
    for (size_t i = 0; i < o->n_facts; i++) {
        const struct fact *f = o->facts[i];
        if (f->kind != FACT_EVERY || f->pred->kind == PRED_NAME) continue;
        for (uint32_t k = 0; k < o->n_members; k++)
            if (gram_pred_has(o->s, f->pred, o->members[k].name)) add_literal(o->s, &o->members[k].lits, f->lit);
    }
}

/* ---- choices ----------------------------------------------------------------------------------------------------------- */

/* The goals for a member that these needs apply to: one for each set of them that it may meet. */
static struct prog_choices make_choices(struct draft_object *o, const struct lits *base, uint32_t applies) {
    struct schema *s = o->s;
    struct prog_choices out = {arena_new(&s->g->a, struct prog_choice, (size_t)1 << MAX_NEEDS), 0};
    for (uint32_t set = 0; set < (uint32_t)1 << o->n_needs; set++) {
        if (set & ~applies) continue;
        struct lits l = {0};
        gram_lits_add_all(s, &l, base);
        for (uint32_t i = 0; i < o->n_needs; i++)
            if (set >> i & 1) add_literal(s, &l, o->needs[i]->lit);
        uint32_t goal = gram_goal_of(s, &l);
        if (goal != PROG_NONE) out.p[out.n++] = (struct prog_choice){goal, set};
    }
    return out;
}

static uint32_t needs_of_name(struct draft_object *o, struct str name) {
    uint32_t applies = 0;
    for (uint32_t i = 0; i < o->n_needs; i++)
        if (gram_pred_has(o->s, o->needs[i]->pred, name)) applies |= (uint32_t)1 << i;
    return applies;
}

/* ---- names that no key has --------------------------------------------------------------------------------------------- */

static uint32_t sets_of_label(const struct draft_object *o, uint32_t label) {
    uint32_t inside = 0;
    for (uint32_t i = 0; i < o->sets.n; i++)
        if ((label - 1) >> (o->sets.n - 1 - i) & 1) inside |= (uint32_t)1 << i;
    return inside;
}

static void class_literals(struct draft_object *o, uint32_t inside, struct lits *out, uint32_t *applies) {
    for (size_t i = 0; i < o->n_facts; i++) {
        const struct fact *f = o->facts[i];
        if (f->kind == FACT_EVERY && pred_has_class(&o->sets, f->pred, inside)) add_literal(o->s, out, f->lit);
    }
    *applies = 0;
    for (uint32_t i = 0; i < o->n_needs; i++)
        if (pred_has_class(&o->sets, o->needs[i]->pred, inside)) *applies |= (uint32_t)1 << i;
}

static bool is_finite(struct schema *s, dfa_id names) {
    const struct dfa *d = dfa_get(&s->g->pool, names);
    return dfa_counts(&s->a, d)[d->start] != PROG_MANY;
}

/* The labels whose names have an end. */
static bool *finite_labels(struct schema *s, dfa_id names, uint32_t n_labels) {
    bool *finite = arena_new(&s->a, bool, n_labels + 1);
    uint16_t *map = arena_new(&s->a, uint16_t, n_labels + 1);
    for (uint32_t i = 1; i <= n_labels; i++) {
        map[i] = 1;
        finite[i] = is_finite(s, dfa_relabel(&s->g->pool, names, map));
        map[i] = 0;
    }
    return finite;
}

/* Names that keys have are none of the extras. The machine looks for keys first in any case; it matters where names have an end and
 * are counted, or must meet a need: a class of names that are all keys can do neither. */
static dfa_id without_keys(struct draft_object *o, dfa_id names, uint32_t n_labels) {
    struct dfa_pool *pool = &o->s->g->pool;
    const bool *finite = finite_labels(o->s, names, n_labels);
    struct str *keys = arena_new(&o->s->a, struct str, o->n_members + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < o->n_members; i++)
        if (finite[dfa_run(dfa_get(pool, names), o->members[i].name)]) keys[n++] = o->members[i].name;
    return n ? dfa_minus(pool, names, dfa_from_texts(pool, keys, n)) : names;
}

/* The automaton of extra names, its labels classes of them; the classes' choices. */
static void make_extras(struct draft_object *o, struct prog_object *out) {
    struct schema *s = o->s;
    struct dfa_pool *pool = &s->g->pool;
    dfa_id all = s->strings.any;
    for (uint32_t i = 0; i < o->sets.n; i++) all = dfa_split(pool, all, o->sets.ids[i]);
    if (o->n_needs) all = without_keys(o, all, (uint32_t)1 << o->sets.n);
    const struct dfa *d = dfa_get(pool, all);
    uint16_t *map = arena_new(&s->a, uint16_t, ((size_t)1 << o->sets.n) + 1);
    bool *seen = arena_new(&s->a, bool, ((size_t)1 << o->sets.n) + 1);
    out->classes = arena_new(&s->g->a, struct prog_choices, MAX_CLASSES);
    for (uint32_t q = 0; q < d->n_states && !s->code; q++) {
        uint16_t label = d->labels[q];
        struct lits l = {0};
        uint32_t applies;
        if (!label || seen[label]) continue;
        seen[label] = true;
        class_literals(o, sets_of_label(o, label), &l, &applies);
        struct prog_choices choices = make_choices(o, &l, applies);
        if (!choices.n) continue;
        if (out->n_classes == MAX_CLASSES) {
            schema_fail(s, s->root, ERR_ELIMIT, "patterns of members overlap in more than %d ways", (int)MAX_CLASSES);
            return;
        }
        out->classes[out->n_classes++] = choices;
        map[label] = (uint16_t)out->n_classes;
    }
    out->extras = dfa_relabel(pool, all, map);
    if (is_finite(s, out->extras)) out->extras = without_keys(o, out->extras, out->n_classes);
}

/* Few extra names are better seen as keys. */
static void name_extras(struct draft_object *o, struct prog_object *out) {
    struct str *words;
    size_t n;
    if (out->extras == DFA_NONE || !dfa_words(&o->s->a, dfa_get(&o->s->g->pool, out->extras), MAX_WORDS, &words, &n)) return;
    for (size_t i = 0; i < n; i++) {
        if (map_find(&o->by_name, words[i])) continue;
        struct member *m = member_of(o, words[i]);
        for (size_t k = 0; k < o->n_facts; k++) {
            const struct fact *f = o->facts[k];
            if (f->kind == FACT_EVERY && gram_pred_has(o->s, f->pred, m->name)) add_literal(o->s, &m->lits, f->lit);
        }
    }
    out->extras = DFA_NONE;
    out->n_classes = 0;
}

/* ---- keys -------------------------------------------------------------------------------------------------------------- */

static int by_name(const void *x, const void *y) {
    return str_cmp(((const struct prog_key *)x)->name, ((const struct prog_key *)y)->name);
}

static void make_keys(struct draft_object *o, struct prog_object *out) {
    struct schema *s = o->s;
    out->keys = arena_new(&s->g->a, struct prog_key, o->n_members + 1);
    for (uint32_t i = 0; i < o->n_members && !s->code; i++) {
        struct member *m = &o->members[i];
        struct prog_key *k = &out->keys[out->n_keys++];
        *k = (struct prog_key){.name = str_copy(&s->g->a, m->name), .order = i, .is_required = m->is_required};
        k->choices = make_choices(o, &m->lits, needs_of_name(o, m->name));
    }
    qsort(out->keys, out->n_keys, sizeof *out->keys, by_name);
    out->by_order = arena_new(&s->g->a, uint32_t, out->n_keys + 1);
    for (uint32_t i = 0; i < out->n_keys; i++) out->by_order[out->keys[i].order] = i;
}

static uint32_t trie_put(struct prog_object *o, uint32_t *n, struct prog_trie_node node) {
    o->trie[*n] = node;
    return (*n)++;
}

/* Keys first..end share their first `depth` bytes, which lead to `at`. One level below it, then each of its nodes. */
static void grow_trie(struct prog_object *o, uint32_t *n) {
    for (uint32_t at = 0; at < *n; at++) {
        struct prog_trie_node t = o->trie[at];
        uint32_t last = 0, k = t.first;
        if (k < t.end && o->keys[k].name.n == t.depth) o->trie[at].key = k++;
        while (k < t.end) {
            uint8_t byte = (uint8_t)o->keys[k].name.p[t.depth];
            uint32_t first = k;
            while (k < t.end && (uint8_t)o->keys[k].name.p[t.depth] == byte) k++;
            uint32_t child =
                trie_put(o, n, (struct prog_trie_node){.first = first, .end = k, .key = PROG_NONE, .depth = t.depth + 1, .byte = byte});
            if (last) o->trie[last].sibling = child;
            else o->trie[at].child = child;
            last = child;
        }
    }
}

static void make_trie(struct schema *s, struct prog_object *o) {
    size_t n_bytes = 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_keys; i++) n_bytes += o->keys[i].name.n;
    o->trie = arena_new(&s->g->a, struct prog_trie_node, n_bytes);
    trie_put(o, &n, (struct prog_trie_node){.end = o->n_keys, .key = PROG_NONE});
    grow_trie(o, &n);
}

/* ---- the shape --------------------------------------------------------------------------------------------------------- */

void gram_object_reach_classes(struct schema *s, struct prog_object *o) {
    const struct dfa *d = dfa_get(&s->g->pool, o->extras);
    uint64_t *reach = arena_new(&s->g->a, uint64_t, d->n_states);
    for (uint32_t q = 1; q < d->n_states; q++)
        if (d->labels[q]) reach[q] = (uint64_t)1 << (d->labels[q] - 1);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t q = d->n_states; q-- > 1;)
            for (uint32_t c = 0; c < d->n_classes; c++) {
                uint64_t more = reach[q] | reach[d->next[(size_t)q * d->n_classes + c]];
                if (more != reach[q]) changed = true;
                reach[q] = more;
            }
        s->g->pool.work += (uint64_t)d->n_states * d->n_classes;
    }
    o->extra_classes = reach;
}

static uint32_t put_object(struct schema *s, const struct prog_object *o) {
    struct gram *g = s->g;
    if (g->n_objects == s->g->objects_capacity) {
        uint32_t capacity = s->g->objects_capacity ? 2 * s->g->objects_capacity : 32;
        struct prog_object *objects = arena_new(&g->a, struct prog_object, capacity);
        if (g->n_objects) memcpy(objects, g->objects, g->n_objects * sizeof *objects);
        g->objects = objects;
        s->g->objects_capacity = capacity;
    }
    g->objects[g->n_objects] = *o;
    return g->n_objects++;
}

static void finish_object(struct draft_object *o, struct prog_object *out) {
    struct schema *s = o->s;
    uint32_t n_required = 0;
    out->min = o->min;
    out->max = o->max;
    out->needs = ((uint32_t)1 << o->n_needs) - 1;
    make_keys(o, out);
    make_trie(s, out);
    for (uint32_t i = 0; i < out->n_keys; i++) n_required += out->keys[i].is_required;
    if (out->min <= n_required) out->min = 0; /* required keys see to it */
    out->next_required = arena_new(&s->g->a, uint32_t, out->n_keys + 1);
    out->n_required = arena_new(&s->g->a, uint32_t, out->n_keys + 1);
    out->n_possible = arena_new(&s->g->a, uint32_t, out->n_keys + 1);
    const struct dfa *extras = dfa_get(&s->g->pool, out->extras);
    out->n_extras = out->extras == DFA_NONE ? 0 : dfa_counts(&s->a, extras)[extras->start];
    bool counts = out->min > 1 || out->max != PROG_MANY || out->needs || out->n_extras != PROG_MANY;
    out->tracks_extras = out->extras != DFA_NONE && out->max > 1 && counts; /* a single member has no equal */
    gram_object_reach_classes(s, out);
}

uint32_t gram_object_shape(struct schema *s, const struct facts *facts) {
    struct draft_object o = {.s = s, .max = PROG_MANY};
    struct prog_object out = {0};
    order_facts(&o, facts);
    collect_named(&o);
    if (o.n_needs > MAX_NEEDS || o.sets.is_over)
        schema_fail(s, s->root, ERR_ELIMIT, "one object has more than %d patterns or negated rules",
                    (int)(o.sets.is_over ? MAX_SETS : MAX_NEEDS));
    if (o.n_members > MAX_KEYS) schema_fail(s, s->root, ERR_ELIMIT, "one object has more than %d names", (int)MAX_KEYS);
    uint32_t shape = PROG_NONE;
    if (!s->code) {
        name_needs(&o);
        apply_patterns(&o);
        make_extras(&o, &out);
        name_extras(&o, &out);
        finish_object(&o, &out);
        if (!s->code) shape = put_object(s, &out);
    }
    map_free(&o.by_name);
    return shape;
}

/* ---- quick contradictions ---------------------------------------------------------------------------------------------- */

static bool member_maybe(struct schema *s, const struct facts *facts, struct str name, int depth) {
    struct lits l = {0};
    for (const struct facts *f = facts; f; f = f->next) {
        const struct fact *x = &f->fact;
        if (x->kind == FACT_LACKS && str_eq(x->name, name)) return false;
        if (x->kind == FACT_HAS && str_eq(x->name, name)) add_literal(s, &l, x->lit);
        if (x->kind == FACT_EVERY && gram_pred_has(s, x->pred, name)) add_literal(s, &l, x->lit);
    }
    return !l.is_never && (depth <= 0 || gram_lits_maybe(s, &l, depth - 1));
}

/* The newest fact about a required name stands for all of them. */
static bool is_first_mention(const struct facts *facts, const struct facts *at) {
    for (const struct facts *f = facts; f != at; f = f->next)
        if (f->fact.kind == FACT_HAS && str_eq(f->fact.name, at->fact.name)) return false;
    return true;
}

bool gram_object_maybe(struct schema *s, const struct facts *facts, int depth) {
    uint32_t n_required = 0, max = PROG_MANY;
    for (const struct facts *f = facts; f && !s->code; f = f->next) {
        if (f->fact.kind == FACT_MAX_MEMBERS && f->fact.n < max) max = f->fact.n;
        if (f->fact.kind != FACT_HAS || !is_first_mention(facts, f)) continue;
        n_required++;
        if (!member_maybe(s, facts, f->fact.name, depth)) return false;
    }
    return n_required <= max;
}
