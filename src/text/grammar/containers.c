/* How objects and arrays go on: which members may still come, when they may end, and whether they can be completed at all.
 *
 * A container that is under way always fits: its required keys can still be written, its number of members can reach the
 * least without passing the greatest, and every need can still be met. The machine takes no byte that would break that. */
#include "text/grammar/program.h"

static bool is_possible(const struct gram *g, const struct prog_choices *c) {
    for (uint32_t i = 0; i < c->n; i++)
        if (g->goals[c->p[i].goal].is_possible) return true;
    return false;
}

void gram_object_refresh(const struct gram *g, struct prog_object *o) {
    uint32_t n = o->n_keys;
    o->next_required[n] = n;
    o->n_required[n] = o->n_possible[n] = 0;
    o->is_blocked = false;
    for (uint32_t place = n; place-- > 0;) {
        struct prog_key *k = &o->keys[o->by_order[place]];
        k->is_possible = is_possible(g, &k->choices);
        if (k->is_required && !k->is_possible) o->is_blocked = true;
        o->next_required[place] = k->is_required ? place : o->next_required[place + 1];
        o->n_required[place] = o->n_required[place + 1] + k->is_required;
        o->n_possible[place] = o->n_possible[place + 1] + k->is_possible;
    }
}

struct object_progress gram_object_begin(const struct gram *g, uint32_t shape) {
    const struct prog_object *o = &g->objects[shape];
    return (struct object_progress){.shape = shape, .pending = o->needs, .n_required = o->n_required[0], .n_possible = o->n_possible[0]};
}

struct array_progress gram_array_begin(uint32_t shape) {
    return (struct array_progress){.shape = shape};
}

bool gram_object_may_end(const struct gram *g, const struct object_progress *p) {
    return p->n_required == 0 && p->pending == 0 && p->n_members >= g->objects[p->shape].min;
}

/* ---- needs of objects -------------------------------------------------------------------------------------------------- */

enum { MAX_NEED_SETS = 64 };

struct cover {
    const struct gram *g;
    uint32_t pending;
    uint32_t cost[MAX_NEED_SETS]; /* members beyond the required ones, by the set of needs that they meet */
};

static void cover_key(struct cover *c, const struct prog_key *k) {
    uint32_t next[MAX_NEED_SETS];
    for (uint32_t set = 0; set <= c->pending; set++) next[set] = k->is_required ? PROG_MANY : c->cost[set];
    for (uint32_t i = 0; i < k->choices.n; i++) {
        if (!c->g->goals[k->choices.p[i].goal].is_possible) continue;
        for (uint32_t set = 0; set <= c->pending; set++) {
            uint32_t to = (set | k->choices.p[i].meets) & c->pending;
            uint32_t cost = c->cost[set] == PROG_MANY ? PROG_MANY : c->cost[set] + !k->is_required;
            if (cost < next[to]) next[to] = cost;
        }
    }
    memcpy(c->cost, next, ((size_t)c->pending + 1) * sizeof *next);
}

static void cover_extras(struct cover *c, const struct prog_object *o) {
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < o->n_classes; i++)
            for (uint32_t k = 0; k < o->classes[i].n; k++) {
                const struct prog_choice *choice = &o->classes[i].p[k];
                for (uint32_t set = 0; set <= c->pending && c->g->goals[choice->goal].is_possible; set++) {
                    uint32_t to = (set | choice->meets) & c->pending;
                    if (c->cost[set] == PROG_MANY || c->cost[set] + 1 >= c->cost[to]) continue;
                    c->cost[to] = c->cost[set] + 1;
                    changed = true;
                }
            }
    }
}

static bool is_seen(const uint32_t *seen, uint32_t key) {
    return seen && seen[key / 32] >> key % 32 & 1;
}

/* The least number of members, beyond those that are required, that meet what is pending; PROG_MANY: it cannot be met. */
static uint32_t cost_of_needs(const struct gram *g, const struct object_progress *p, const uint32_t *seen, uint32_t without) {
    const struct prog_object *o = &g->objects[p->shape];
    struct cover c;
    c.g = g;
    c.pending = p->pending;
    c.cost[0] = 0;
    for (uint32_t set = 1; set <= p->pending; set++) c.cost[set] = PROG_MANY;
    for (uint32_t place = p->place; place < o->n_keys; place++)
        if (o->by_order[place] != without && !is_seen(seen, o->by_order[place])) cover_key(&c, &o->keys[o->by_order[place]]);
    if (o->extras != DFA_NONE) cover_extras(&c, o);
    return c.cost[p->pending];
}

/* ---- objects ----------------------------------------------------------------------------------------------------------- */

static uint32_t sum(uint32_t x, uint32_t y) {
    return x > PROG_MANY - y ? PROG_MANY : x + y;
}

/* `without`: a key that has had its turn although `seen` lacks it. */
static bool fits_without(const struct gram *g, const struct object_progress *p, const uint32_t *seen, uint32_t without) {
    const struct prog_object *o = &g->objects[p->shape];
    uint32_t least = p->n_required;
    if (o->is_blocked) return false;
    if (p->pending) {
        uint32_t cost = cost_of_needs(g, p, seen, without);
        if (cost == PROG_MANY) return false;
        least += cost;
    }
    if (o->max != PROG_MANY && (sum(p->n_members, least) > o->max || o->min > o->max)) return false;
    uint32_t extras = o->extras == DFA_NONE      ? 0
                      : o->n_extras == PROG_MANY ? PROG_MANY
                                                 : o->n_extras - (p->n_extras < o->n_extras ? p->n_extras : o->n_extras);
    return sum(p->n_members, sum(p->n_possible, extras)) >= o->min;
}

bool gram_object_fits(const struct gram *g, const struct object_progress *p, const uint32_t *seen) {
    return fits_without(g, p, seen, PROG_NONE);
}

/* Counts as far as they matter, so that places that are alike stay so. */
static void count_member(const struct prog_object *o, struct object_progress *p) {
    if (o->max != PROG_MANY || p->n_members < o->min) p->n_members++;
}

struct object_progress gram_object_after_key(const struct gram *g, const struct object_progress *p, const struct prog_key *k,
                                             uint32_t meets) {
    const struct prog_object *o = &g->objects[p->shape];
    struct object_progress next = *p;
    count_member(o, &next);
    next.pending &= ~meets;
    if (g->options.any_order) {
        next.n_required -= k->is_required;
        next.n_possible -= k->is_possible;
    } else {
        next.place = k->order + 1;
        next.n_required = o->n_required[next.place];
        next.n_possible = o->n_possible[next.place];
    }
    return next;
}

struct object_progress gram_object_after_extra(const struct gram *g, const struct object_progress *p, uint32_t meets) {
    const struct prog_object *o = &g->objects[p->shape];
    struct object_progress next = *p;
    count_member(o, &next);
    if (o->n_extras != PROG_MANY) next.n_extras++;
    next.pending &= ~meets;
    if (!g->options.any_order) {
        next.place = PROG_NONE;
        next.n_possible = 0;
    }
    return next;
}

static bool takes_choice(const struct gram *g, const struct prog_choices *c, uint32_t i) {
    return g->goals[c->p[i].goal].is_possible;
}

bool gram_object_takes_key(const struct gram *g, const struct object_progress *p, const uint32_t *seen, const struct prog_key *k) {
    const struct prog_object *o = &g->objects[p->shape];
    if (!k->is_possible) return false;
    if (g->options.any_order) {
        if (is_seen(seen, (uint32_t)(k - o->keys))) return false;
    } else if (p->place == PROG_NONE || k->order < p->place || o->next_required[p->place] < k->order) {
        return false;
    }
    for (uint32_t i = 0; i < k->choices.n; i++) {
        if (!takes_choice(g, &k->choices, i)) continue;
        struct object_progress next = gram_object_after_key(g, p, k, k->choices.p[i].meets);
        if (fits_without(g, &next, seen, (uint32_t)(k - o->keys))) return true;
    }
    return false;
}

bool gram_object_takes_extra(const struct gram *g, const struct object_progress *p, const uint32_t *seen, uint32_t class_) {
    const struct prog_object *o = &g->objects[p->shape];
    if (o->extras == DFA_NONE || (!g->options.any_order && p->n_required)) return false;
    for (uint32_t i = 0; i < o->classes[class_].n; i++) {
        if (!takes_choice(g, &o->classes[class_], i)) continue;
        struct object_progress next = gram_object_after_extra(g, p, o->classes[class_].p[i].meets);
        if (gram_object_fits(g, &next, seen)) return true;
    }
    return false;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------------ */

const struct prog_choices *gram_array_choices(const struct gram *g, const struct array_progress *p) {
    const struct prog_array *a = &g->arrays[p->shape];
    return p->index < a->n_prefix ? &a->prefix[p->index] : &a->rest;
}

bool gram_array_may_end(const struct gram *g, const struct array_progress *p) {
    const struct prog_array *a = &g->arrays[p->shape];
    for (uint32_t i = 0; i < a->n_needs; i++)
        if (p->met[i] < a->need_min[i]) return false;
    return p->index >= a->min;
}

/* Whether a possible choice of an item meets need i (or does without meeting it). */
static bool item_can(const struct gram *g, const struct prog_choices *c, uint32_t need, bool meets) {
    for (uint32_t i = 0; i < c->n; i++)
        if (takes_choice(g, c, i) && (c->p[i].meets >> need & 1) == meets) return true;
    return false;
}

/* Items that may come from p on: those before the first that is not possible. */
static uint32_t items_left(const struct gram *g, const struct array_progress *p) {
    const struct prog_array *a = &g->arrays[p->shape];
    uint32_t end = p->index;
    while (end < a->n_prefix && is_possible(g, &a->prefix[end])) end++;
    if (end >= a->n_prefix && is_possible(g, &a->rest)) end = PROG_MANY;
    if (a->max < end) end = a->max;
    return end == PROG_MANY ? PROG_MANY : end > p->index ? end - p->index : 0;
}

/* The number of items after which need i is met; PROG_MANY: never. */
static uint32_t items_for_need(const struct gram *g, const struct array_progress *p, uint32_t i) {
    const struct prog_array *a = &g->arrays[p->shape];
    uint32_t missing = a->need_min[i] > p->met[i] ? a->need_min[i] - p->met[i] : 0, n = 0;
    for (uint32_t at = p->index; missing && at < a->n_prefix; at++, n++)
        if (item_can(g, &a->prefix[at], i, true)) missing--;
    if (!missing) return n;
    return item_can(g, &a->rest, i, true) ? sum(n, missing) : PROG_MANY;
}

/* Among the next n items, those that cannot but meet need i. */
static uint32_t forced_items(const struct gram *g, const struct array_progress *p, uint32_t i, uint32_t n) {
    const struct prog_array *a = &g->arrays[p->shape];
    uint32_t forced = 0, at = p->index;
    for (; n && at < a->n_prefix; at++, n--) forced += !item_can(g, &a->prefix[at], i, false);
    return forced + (n && !item_can(g, &a->rest, i, false) ? n : 0);
}

bool gram_array_fits(const struct gram *g, const struct array_progress *p) {
    const struct prog_array *a = &g->arrays[p->shape];
    uint32_t least = a->min > p->index ? a->min - p->index : 0;
    if (p->index > a->max) return false;
    for (uint32_t i = 0; i < a->n_needs; i++) {
        uint32_t n = items_for_need(g, p, i);
        if (n > least) least = n;
        if (p->met[i] > a->need_max[i]) return false;
    }
    if (least == PROG_MANY || least > items_left(g, p)) return false;
    for (uint32_t i = 0; i < a->n_needs; i++)
        if (a->need_max[i] != PROG_MANY && sum(p->met[i], forced_items(g, p, i, least)) > a->need_max[i]) return false;
    return true;
}

struct array_progress gram_array_after_item(const struct gram *g, const struct array_progress *p, uint32_t meets) {
    const struct prog_array *a = &g->arrays[p->shape];
    struct array_progress next = *p;
    uint32_t last = a->n_prefix > a->min ? a->n_prefix : a->min; /* beyond it all places are alike */
    if (a->max != PROG_MANY && a->max > last) last = a->max;
    if (next.index < last || a->max != PROG_MANY) next.index++;
    for (uint32_t i = 0; i < a->n_needs; i++) {
        if (!(meets >> i & 1)) continue;
        if (a->need_max[i] != PROG_MANY || next.met[i] < a->need_min[i]) next.met[i]++;
    }
    return next;
}
