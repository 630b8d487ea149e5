/* Trees to nondeterministic automata. States are made from the end of a text to its beginning: every state knows where it
 * goes when it is made, and tails that are equal become one. */
#include "text/grammar/expr.h"

#include "base/hash.h"

struct expr *expr_new(struct arena *a, enum expr_kind kind) {
    struct expr *e = arena_new(a, struct expr, 1);
    e->kind = kind;
    return e;
}

struct expr *expr_text(struct arena *a, struct str text) {
    struct expr *e = expr_new(a, text.n ? EXPR_TEXT : EXPR_EMPTY);
    e->text = str_copy(a, text);
    return e;
}

struct expr *expr_repeat(struct arena *a, struct expr *item, uint32_t min, uint32_t max) {
    struct expr *e = expr_new(a, EXPR_REPEAT);
    e->items = arena_new(a, struct expr *, 1);
    e->items[0] = item;
    e->n_items = 1;
    e->min = min;
    e->max = max;
    return e;
}

void expr_list_put(struct arena *a, struct expr_list *l, struct expr *e) {
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 4;
        struct expr **p = arena_new(a, struct expr *, capacity);
        if (l->n) memcpy(p, l->p, l->n * sizeof *p);
        l->p = p;
        l->capacity = capacity;
    }
    l->p[l->n++] = e;
}

struct expr *expr_join(struct arena *a, enum expr_kind kind, const struct expr_list *l) {
    if (l->n == 0) return expr_new(a, EXPR_EMPTY);
    if (l->n == 1) return l->p[0];
    struct expr *e = expr_new(a, kind);
    e->items = l->p;
    e->n_items = l->n;
    return e;
}

/* ---- states ----------------------------------------------------------------------------------------------------------- */

void nfa_init(struct nfa *n, struct arena *a, uint32_t max_states) {
    *n = (struct nfa){.a = a, .max_states = max_states};
}

uint32_t nfa_add(struct nfa *n, struct nfa_state s) {
    if (n->n >= n->max_states) {
        n->is_over = true;
        return 0;
    }
    if (n->n == n->capacity) {
        uint32_t capacity = n->capacity ? 2 * n->capacity : 64;
        struct nfa_state *states = arena_new(n->a, struct nfa_state, capacity);
        if (n->n) memcpy(states, n->states, n->n * sizeof *states);
        n->states = states;
        n->capacity = capacity;
    }
    n->states[n->n] = s;
    return n->n++;
}

static uint64_t range_hash(uint8_t lo, uint8_t hi, uint32_t out) {
    return hash_mix((uint64_t)out << 16 | (uint64_t)lo << 8 | hi);
}

static void grow_slots(struct nfa *n) {
    uint32_t n_slots = n->n_slots ? 2 * n->n_slots : 256;
    uint32_t *slots = arena_new(n->a, uint32_t, n_slots);
    for (uint32_t i = 0; i < n->n; i++) {
        const struct nfa_state *s = &n->states[i];
        if (s->kind != NFA_RANGE) continue;
        uint32_t at = (uint32_t)range_hash(s->lo, s->hi, s->out) & (n_slots - 1);
        while (slots[at]) at = (at + 1) & (n_slots - 1);
        slots[at] = i + 1;
    }
    n->slots = slots;
    n->n_slots = n_slots;
}

uint32_t nfa_range(struct nfa *n, uint8_t lo, uint8_t hi, uint32_t out) {
    if (2 * (n->n + 1) > n->n_slots) grow_slots(n);
    uint32_t at = (uint32_t)range_hash(lo, hi, out) & (n->n_slots - 1);
    for (; n->slots[at]; at = (at + 1) & (n->n_slots - 1)) {
        const struct nfa_state *s = &n->states[n->slots[at] - 1];
        if (s->lo == lo && s->hi == hi && s->out == out) return n->slots[at] - 1;
    }
    uint32_t i = nfa_add(n, (struct nfa_state){.kind = NFA_RANGE, .lo = lo, .hi = hi, .out = out});
    if (!n->is_over) n->slots[at] = i + 1;
    return i;
}

static uint32_t either(struct nfa *n, uint32_t one, uint32_t other) {
    if (one == UINT32_MAX || one == other) return other;
    if (other == UINT32_MAX) return one;
    return nfa_add(n, (struct nfa_state){.kind = NFA_SPLIT, .out = one, .out2 = other});
}

/* ---- characters as bytes ---------------------------------------------------------------------------------------------- */

/* The bytes that follow in one character, as a node of a tree: stretches of them, each with the state it leads to. The tree is
 * deterministic, and equal nodes are one, so that a set of thousands of characters has few states. */
struct byte_node {
    struct {
        uint8_t lo, hi;
        uint32_t to;
    } edges[64];
    uint32_t n;
};

static void node_put(struct byte_node *b, uint8_t byte, uint32_t to) {
    if (b->n && b->edges[b->n - 1].to == to && b->edges[b->n - 1].hi + 1 == byte) {
        b->edges[b->n - 1].hi = byte;
    } else {
        b->edges[b->n].lo = b->edges[b->n].hi = byte;
        b->edges[b->n++].to = to;
    }
}

/* The state of a node; UINT32_MAX: it has no edges. */
static uint32_t node_state(struct nfa *n, const struct byte_node *b) {
    uint32_t s = UINT32_MAX;
    for (uint32_t i = b->n; i-- > 0;) s = either(n, nfa_range(n, b->edges[i].lo, b->edges[i].hi, b->edges[i].to), s);
    return s;
}

/* Ranges of a set, walked from left to right. */
struct cursor {
    const struct charset *set;
    size_t i;
};

/* 0: no character of lo..hi is in the set; 2: all are; 1: some. */
static int overlap(struct cursor *c, uint32_t lo, uint32_t hi) {
    const struct charset *s = c->set;
    while (c->i && s->r[c->i - 1].hi >= lo) c->i--;
    while (c->i < s->n && s->r[c->i].hi < lo) c->i++;
    if (c->i == s->n || s->r[c->i].lo > hi) return 0;
    return s->r[c->i].lo <= lo && s->r[c->i].hi >= hi ? 2 : 1;
}

/* The state at which the last `n_bytes` bytes of characters from `base` on begin; full[k]: any k bytes. Characters below `least` would
 * be longer than they need be, surrogates are none, and there are none above CS_LAST. */
static uint32_t build_tail(struct nfa *n, struct cursor *c, uint32_t base, uint32_t n_bytes, uint32_t least, const uint32_t full[4]) {
    if (n_bytes == 0) return full[0];
    uint32_t n_chars = (uint32_t)1 << 6 * (n_bytes - 1);
    struct byte_node b = {.n = 0};
    for (uint32_t i = 0; i < 64 && !n->is_over; i++) {
        uint32_t lo = base + i * n_chars, hi = lo + n_chars - 1;
        int how = overlap(c, lo, hi);
        if (how == 0 || hi < least || lo > CS_LAST || (lo >= 0xD800 && hi <= 0xDFFF)) continue;
        bool is_full = how == 2 && lo >= least && hi <= CS_LAST && (hi < 0xD800 || lo > 0xDFFF);
        uint32_t to = is_full ? full[n_bytes - 1] : build_tail(n, c, lo, n_bytes - 1, least, full);
        if (to != UINT32_MAX) node_put(&b, (uint8_t)(0x80 + i), to);
    }
    return node_state(n, &b);
}

static uint32_t build_set(struct nfa *n, const struct charset *set, uint32_t next) {
    struct cursor c = {set, 0};
    uint32_t full[4] = {next, 0, 0, 0}, start = UINT32_MAX, run_to = UINT32_MAX;
    int run = -1;
    for (int k = 1; k < 4; k++) full[k] = nfa_range(n, 0x80, 0xBF, full[k - 1]);
    uint32_t last = set->n ? set->r[set->n - 1].hi : 0;
    for (int lead = 0; lead <= 0xF5 && !n->is_over; lead++) { /* one more than there are, to end the last run */
        uint32_t to = UINT32_MAX, n_bytes = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        uint32_t bits = lead < 0x80 ? (uint32_t)lead : (uint32_t)lead & (0x3Fu >> n_bytes), lo = bits << 6 * n_bytes,
                 hi = lo + ((uint32_t)1 << 6 * n_bytes) - 1;
        bool is_lead = lead < 0x80 || (lead >= 0xC2 && lead < 0xF5);
        uint32_t least = n_bytes == 2 ? 0x800 : n_bytes == 3 ? 0x10000 : 0;
        int how = is_lead && lo <= CS_LAST ? overlap(&c, lo, hi) : 0;
        bool is_full = how == 2 && lo >= least && hi <= CS_LAST && (hi < 0xD800 || lo > 0xDFFF);
        if (how) to = is_full ? full[n_bytes] : build_tail(n, &c, lo, n_bytes, least, full);
        if (to != run_to) {
            if (run_to != UINT32_MAX) start = either(n, nfa_range(n, (uint8_t)run, (uint8_t)(lead - 1), run_to), start);
            run = lead;
            run_to = to;
        }
        if (is_lead && lo > last) break;
    }
    if (start == UINT32_MAX) start = nfa_add(n, (struct nfa_state){.kind = NFA_RANGE, .lo = 1, .hi = 0}); /* no character: no way on */
    return start;
}

/* ---- trees ------------------------------------------------------------------------------------------------------------ */

static uint32_t build_repeat(struct nfa *n, const struct expr *e, uint32_t next) {
    const struct expr *item = e->items[0];
    uint32_t s = next, n_before = e->min;
    if (e->max == EXPR_MANY) {
        uint32_t loop = nfa_add(n, (struct nfa_state){.kind = NFA_SPLIT, .out2 = next});
        if (n->is_over) return 0;
        n->n_loops++;
        uint32_t body = nfa_build(n, item, loop);
        n->n_loops--;
        n->states[loop].out = body;
        s = n_before ? body : loop; /* the loop's body is the last of those that must come: nested repetitions stay small */
        n_before -= n_before > 0;
    } else {
        for (uint32_t i = e->min; i < e->max && !n->is_over; i++) s = either(n, nfa_build(n, item, s), next);
    }
    for (uint32_t i = 0; i < n_before && !n->is_over; i++) s = nfa_build(n, item, s);
    return s;
}

uint32_t nfa_build(struct nfa *n, const struct expr *e, uint32_t next) {
    uint32_t s = next;
    static const uint8_t kinds[] = {[EXPR_START] = NFA_START,       [EXPR_END] = NFA_END,   [EXPR_WORD] = NFA_WORD,
                                    [EXPR_NOT_WORD] = NFA_NOT_WORD, [EXPR_CALL] = NFA_CALL, [EXPR_VALUE] = NFA_VALUE};
    if (n->n_calls++ >= 4 * n->max_states) n->is_over = true;
    if (n->is_over) return 0;
    switch (e->kind) {
    case EXPR_EMPTY: return next;
    case EXPR_SET: return build_set(n, &e->set, next);
    case EXPR_TEXT:
        for (size_t i = e->text.n; i-- > 0;) s = nfa_range(n, (uint8_t)e->text.p[i], (uint8_t)e->text.p[i], s);
        return s;
    case EXPR_CAT:
        for (size_t i = e->n_items; i-- > 0;) s = nfa_build(n, e->items[i], s);
        return s;
    case EXPR_ALT:
        s = UINT32_MAX;
        for (size_t i = e->n_items; i-- > 0;) s = either(n, nfa_build(n, e->items[i], next), s);
        return s;
    case EXPR_REPEAT: return build_repeat(n, e, next);
    case EXPR_LOOK: return n->look(n, e, next);
    default: return nfa_add(n, (struct nfa_state){.kind = kinds[e->kind], .out = next, .number = e->number});
    }
}
