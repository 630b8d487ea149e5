/* Arrays: from the facts of one alternative to a shape of a program. */
#include "text/grammar/schema.h"

enum { MAX_PREFIX = 1000, MAX_NEEDS = 3 };

struct draft_array {
    struct schema *s;
    const struct facts *facts;
    const struct fact *needs[MAX_NEEDS]; /* FACT_COUNT_ITEMS, FACT_SOME_ITEM */
    uint32_t n_needs, n_prefix, min, max;
    bool is_unique;
};

static void collect(struct draft_array *d) {
    d->max = PROG_MANY;
    for (const struct facts *f = d->facts; f; f = f->next) {
        const struct fact *x = &f->fact;
        uint32_t prefix = 0;
        switch (x->kind) {
        case FACT_ITEM:
            if (x->n + 1 > d->min) d->min = x->n + 1;
            prefix = x->n + 1;
            break;
        case FACT_ITEM_IF: prefix = x->n + 1; break;
        case FACT_ITEMS_FROM: prefix = x->n; break;
        case FACT_SOME_ITEM: prefix = x->n; /* fallthrough */
        case FACT_COUNT_ITEMS:
            if (d->n_needs < MAX_NEEDS) d->needs[d->n_needs] = x;
            d->n_needs++;
            break;
        case FACT_MIN_ITEMS:
            if (x->n > d->min) d->min = x->n;
            break;
        case FACT_MAX_ITEMS:
            if (x->n < d->max) d->max = x->n;
            break;
        case FACT_UNIQUE: d->is_unique = true; break;
        default: break;
        }
        if (prefix > d->n_prefix) d->n_prefix = prefix;
    }
}

static void add_literal(struct schema *s, struct lits *l, literal x) {
    if (x == LIT_FALSE) l->is_never = true;
    else if (x != LIT_TRUE) gram_lits_add(s, l, x);
}

/* What is said of the item at a place. */
static void item_literals(struct draft_array *d, uint32_t at, struct lits *out) {
    for (const struct facts *f = d->facts; f; f = f->next) {
        const struct fact *x = &f->fact;
        bool applies = ((x->kind == FACT_ITEM || x->kind == FACT_ITEM_IF) && x->n == at) || (x->kind == FACT_ITEMS_FROM && x->n <= at);
        if (applies) add_literal(d->s, out, x->lit);
    }
}

static struct prog_choices item_choices(struct draft_array *d, uint32_t at) {
    struct schema *s = d->s;
    struct lits base = {0};
    struct prog_choices out = {arena_new(&s->g->a, struct prog_choice, (size_t)1 << MAX_NEEDS), 0};
    item_literals(d, at, &base);
    for (uint32_t set = 0; set < (uint32_t)1 << d->n_needs; set++) {
        struct lits l = {0};
        bool is_possible = true;
        gram_lits_add_all(s, &l, &base);
        for (uint32_t i = 0; i < d->n_needs; i++) {
            const struct fact *need = d->needs[i];
            if (set >> i & 1) {
                if (need->kind == FACT_SOME_ITEM && at < need->n) is_possible = false;
                add_literal(s, &l, need->lit);
            } else if (need->kind == FACT_COUNT_ITEMS && need->n2 != PROG_MANY) {
                add_literal(s, &l, need->lit ^ 1); /* what is not counted must not meet it */
            }
        }
        if (d->is_unique) gram_lits_add(s, &l, LIT_UNIQUE);
        uint32_t goal = is_possible ? gram_goal_of(s, &l) : PROG_NONE;
        if (goal != PROG_NONE) out.p[out.n++] = (struct prog_choice){goal, set};
    }
    return out;
}

static uint32_t put_array(struct schema *s, const struct prog_array *a) {
    struct gram *g = s->g;
    if (g->n_arrays == s->g->arrays_capacity) {
        uint32_t capacity = s->g->arrays_capacity ? 2 * s->g->arrays_capacity : 32;
        struct prog_array *arrays = arena_new(&g->a, struct prog_array, capacity);
        if (g->n_arrays) memcpy(arrays, g->arrays, g->n_arrays * sizeof *arrays);
        g->arrays = arrays;
        s->g->arrays_capacity = capacity;
    }
    g->arrays[g->n_arrays] = *a;
    return g->n_arrays++;
}

uint32_t gram_array_shape(struct schema *s, const struct facts *facts, uint32_t node) {
    struct draft_array d = {.s = s, .facts = facts};
    struct prog_array out = {0};
    collect(&d);
    if (d.n_prefix > MAX_PREFIX && d.max < d.n_prefix) d.n_prefix = d.max;
    if (d.n_needs > MAX_NEEDS) schema_fail(s, node, ERR_ELIMIT, "one array has more than %d rules of the kind of contains", (int)MAX_NEEDS);
    if (d.n_prefix > MAX_PREFIX) schema_fail(s, node, ERR_ELIMIT, "more than %d items have rules of their own", (int)MAX_PREFIX);
    if (s->code) return PROG_NONE;
    if (d.is_unique && d.max <= 1) d.is_unique = false;
    out.n_prefix = d.n_prefix;
    out.prefix = arena_new(&s->g->a, struct prog_choices, d.n_prefix + 1);
    for (uint32_t i = 0; i < d.n_prefix && !s->code; i++) out.prefix[i] = item_choices(&d, i);
    if (d.max > d.n_prefix) out.rest = item_choices(&d, PROG_MANY - 1);
    out.min = d.min;
    out.max = d.max;
    out.is_unique = d.is_unique;
    out.n_needs = d.n_needs;
    for (uint32_t i = 0; i < d.n_needs; i++) {
        bool is_count = d.needs[i]->kind == FACT_COUNT_ITEMS;
        out.need_min[i] = is_count ? d.needs[i]->n : 1;
        out.need_max[i] = is_count ? d.needs[i]->n2 : PROG_MANY;
    }
    return s->code ? PROG_NONE : put_array(s, &out);
}

bool gram_array_maybe(struct schema *s, const struct facts *facts, int depth) {
    struct draft_array d = {.s = s, .facts = facts};
    collect(&d);
    if (d.min > d.max) return false;
    for (uint32_t i = 0; i < d.min && i <= d.n_prefix && i < 16 && depth > 0; i++) {
        struct lits l = {0};
        item_literals(&d, i, &l);
        if (l.is_never || !gram_lits_maybe(s, &l, depth - 1)) return false;
    }
    return true;
}
