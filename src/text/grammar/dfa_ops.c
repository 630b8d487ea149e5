/* Set operations by products of automata, labels, counting, and automata for lists of texts. */
#include "text/grammar/dfa.h"

#include "base/hash.h"
#include "text/grammar/dfa_internal.h"

#include <stdlib.h>

enum op { OP_AND, OP_OR, OP_MINUS, OP_SPLIT };

static uint16_t joint_label(enum op op, uint16_t x, uint16_t y) {
    switch (op) {
    case OP_AND: return x && y;
    case OP_OR: return x || y;
    case OP_MINUS: return y ? 0 : x;
    case OP_SPLIT: return x ? (uint16_t)(2 * x - (y ? 0 : 1)) : 0;
    }
    return 0;
}

/* Whether a pair of states can still matter. */
static bool is_live(enum op op, uint32_t x, uint32_t y) {
    return op == OP_AND ? x && y : op == OP_OR ? x || y : x != 0;
}

struct product {
    struct dfa_pool *p;
    uint64_t *pairs; /* by number of the joint state */
    uint32_t n, capacity, *slots, n_slots;
};

static void grow_pairs(struct product *q) {
    if (q->n == q->capacity) {
        uint32_t capacity = q->capacity ? 2 * q->capacity : 64;
        uint64_t *pairs = arena_new(&q->p->scratch, uint64_t, capacity);
        if (q->n) memcpy(pairs, q->pairs, q->n * sizeof *pairs);
        q->pairs = pairs;
        q->capacity = capacity;
    }
    if (2 * (q->n + 1) <= q->n_slots) return;
    q->n_slots = q->n_slots ? 2 * q->n_slots : 128;
    q->slots = arena_new(&q->p->scratch, uint32_t, q->n_slots);
    for (uint32_t i = 0; i < q->n; i++) {
        uint32_t at = (uint32_t)hash_mix(q->pairs[i]) & (q->n_slots - 1);
        while (q->slots[at]) at = (at + 1) & (q->n_slots - 1);
        q->slots[at] = i + 1;
    }
}

static uint32_t pair_number(struct product *q, uint32_t x, uint32_t y) {
    uint64_t pair = (uint64_t)x << 32 | y;
    grow_pairs(q);
    uint32_t at = (uint32_t)hash_mix(pair) & (q->n_slots - 1);
    for (; q->slots[at]; at = (at + 1) & (q->n_slots - 1))
        if (q->pairs[q->slots[at] - 1] == pair) return q->slots[at] - 1;
    q->slots[at] = q->n + 1;
    q->pairs[q->n] = pair;
    return q->n++;
}

/* Columns of both automata at once. */
static uint32_t joint_classes(const struct dfa *x, const struct dfa *y, uint8_t classes[256], uint8_t first[256]) {
    uint32_t n = 0;
    for (int b = 0; b < 256; b++) {
        uint32_t i = 0;
        while (i < n && (x->classes[first[i]] != x->classes[b] || y->classes[first[i]] != y->classes[b])) i++;
        if (i == n) first[n++] = (uint8_t)b;
        classes[b] = (uint8_t)i;
    }
    return n;
}

static dfa_id product(struct dfa_pool *p, enum op op, dfa_id xi, dfa_id yi) {
    const struct dfa *x = dfa_get(p, xi), *y = dfa_get(p, yi);
    struct product q = {.p = p};
    struct dfa d = {0};
    uint8_t first[256];
    uint32_t capacity = 0;
    arena_reset(&p->scratch);
    d.n_classes = joint_classes(x, y, d.classes, first);
    pair_number(&q, 0, 0);
    d.start = pair_number(&q, x->start, y->start);
    for (uint32_t s = 0; s < q.n && !p->is_over; s++) {
        if (s == capacity) {
            uint32_t more = capacity ? 2 * capacity : 64;
            uint32_t *next = arena_new(&p->scratch, uint32_t, (size_t)more * d.n_classes);
            uint16_t *labels = arena_new(&p->scratch, uint16_t, more);
            if (capacity) memcpy(next, d.next, (size_t)capacity * d.n_classes * sizeof *next);
            if (capacity) memcpy(labels, d.labels, capacity * sizeof *labels);
            d.next = next, d.labels = labels, capacity = more;
        }
        uint32_t xs = (uint32_t)(q.pairs[s] >> 32), ys = (uint32_t)q.pairs[s];
        d.labels[s] = joint_label(op, x->labels[xs], y->labels[ys]);
        for (uint32_t c = 0; c < d.n_classes; c++) {
            uint32_t xn = dfa_step(x, xs, first[c]), yn = dfa_step(y, ys, first[c]);
            d.next[(size_t)s * d.n_classes + c] = is_live(op, xn, yn) ? pair_number(&q, xn, yn) : 0;
        }
        p->work += d.n_classes;
        if (p->work > p->max_work) p->is_over = true;
    }
    d.n_states = q.n;
    return p->is_over ? DFA_NONE : dfa_from_table(p, &d);
}

static dfa_id remembered(struct dfa_pool *p, enum op op, dfa_id x, dfa_id y) {
    dfa_id result;
    if ((op == OP_AND || op == OP_OR) && x > y) {
        dfa_id swap = x;
        x = y;
        y = swap;
    }
    uint64_t key = (uint64_t)op << 60 | (uint64_t)x << 30 | y;
    if (p->is_over) return DFA_NONE;
    if (dfa_memo_get(p, key, &result)) return result;
    result = product(p, op, x, y);
    if (!p->is_over) dfa_memo_put(p, key, result);
    return result;
}

dfa_id dfa_and(struct dfa_pool *p, dfa_id x, dfa_id y) {
    if (x == DFA_NONE || y == DFA_NONE) return DFA_NONE;
    return x == y ? x : remembered(p, OP_AND, x, y);
}

dfa_id dfa_or(struct dfa_pool *p, dfa_id x, dfa_id y) {
    if (x == DFA_NONE) return y;
    if (y == DFA_NONE || x == y) return x;
    return remembered(p, OP_OR, x, y);
}

dfa_id dfa_minus(struct dfa_pool *p, dfa_id x, dfa_id y) {
    if (x == DFA_NONE || x == y) return DFA_NONE;
    return y == DFA_NONE ? x : remembered(p, OP_MINUS, x, y);
}

dfa_id dfa_split(struct dfa_pool *p, dfa_id x, dfa_id y) {
    return remembered(p, OP_SPLIT, x, y);
}

dfa_id dfa_relabel(struct dfa_pool *p, dfa_id x, const uint16_t *map) {
    struct dfa d = *dfa_get(p, x);
    if (p->is_over) return DFA_NONE;
    arena_reset(&p->scratch);
    d.labels = arena_copy(&p->scratch, d.labels, d.n_states * sizeof *d.labels);
    for (uint32_t s = 0; s < d.n_states; s++) d.labels[s] = d.labels[s] ? map[d.labels[s]] : 0;
    return dfa_from_table(p, &d);
}

uint16_t dfa_run(const struct dfa *d, struct str text) {
    uint32_t s = d->start;
    for (size_t i = 0; i < text.n && s; i++) s = dfa_step(d, s, (uint8_t)text.p[i]);
    return d->labels[s];
}

/* ---- lists of texts ---------------------------------------------------------------------------------------------------- */

struct edge {
    uint8_t byte;
    uint32_t to;
};

/* The minimal automaton of sorted texts: a state is its edges and whether a text ends there; equal ones are one. */
struct list_builder {
    struct dfa_pool *p;
    struct list_state {
        struct edge *edges;
        uint32_t n_edges;
        bool is_end;
        uint64_t hash;
    } * states;
    uint32_t n, capacity, *slots, n_slots;
};

static void grow_list_states(struct list_builder *b) {
    if (b->n >= b->capacity) {
        uint32_t capacity = b->capacity ? 2 * b->capacity : 64;
        struct list_state *states = arena_new(&b->p->scratch, struct list_state, capacity);
        if (b->states) memcpy(states, b->states, b->n * sizeof *states);
        b->states = states;
        b->capacity = capacity;
    }
    if (2 * (b->n + 1) <= b->n_slots) return;
    b->n_slots = b->n_slots ? 2 * b->n_slots : 128;
    b->slots = arena_new(&b->p->scratch, uint32_t, b->n_slots);
    for (uint32_t i = 1; i < b->n; i++) {
        uint32_t at = (uint32_t)b->states[i].hash & (b->n_slots - 1);
        while (b->slots[at]) at = (at + 1) & (b->n_slots - 1);
        b->slots[at] = i + 1;
    }
}

static bool edges_equal(const struct edge *x, const struct edge *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (x[i].byte != y[i].byte || x[i].to != y[i].to) return false;
    return true;
}

static uint32_t list_state_put(struct list_builder *b, const struct edge *edges, uint32_t n, bool is_end) {
    grow_list_states(b);
    uint64_t hash = is_end;
    for (uint32_t i = 0; i < n; i++) hash = hash_pair(hash, (uint64_t)edges[i].to << 8 | edges[i].byte);
    uint32_t at = (uint32_t)hash & (b->n_slots - 1);
    for (; b->slots[at]; at = (at + 1) & (b->n_slots - 1)) {
        const struct list_state *s = &b->states[b->slots[at] - 1];
        if (s->hash == hash && s->n_edges == n && s->is_end == is_end && edges_equal(s->edges, edges, n)) return b->slots[at] - 1;
    }
    b->slots[at] = b->n + 1;
    struct edge *copy = n ? arena_copy(&b->p->scratch, edges, n * sizeof *edges) : NULL;
    b->states[b->n] = (struct list_state){copy, n, is_end, hash};
    return b->n++;
}

/* An open state on the way to the end of the text that is being added; its newest edge leads on along that text. */
struct open_edge {
    struct edge edge;
    struct open_edge *before;
};
struct open_state {
    struct open_edge *newest;
    bool is_end;
};

static int by_text(const void *x, const void *y) {
    return str_cmp(*(const struct str *)x, *(const struct str *)y);
}

static uint32_t close_state(struct list_builder *b, const struct open_state *s) {
    struct edge edges[256];
    uint32_t n = 256;
    for (const struct open_edge *e = s->newest; e; e = e->before) edges[--n] = e->edge;
    return list_state_put(b, edges + n, 256 - n, s->is_end);
}

/* Closes the open states from the deepest to that at depth `to`; the number of the latter. */
static uint32_t close_states(struct list_builder *b, struct open_state *open, size_t from, size_t to) {
    uint32_t last = close_state(b, &open[from]);
    for (size_t i = from; i-- > to;) {
        open[i].newest->edge.to = last;
        last = close_state(b, &open[i]);
    }
    return last;
}

static void add_edge(struct list_builder *b, struct open_state *s, uint8_t byte) {
    struct open_edge *e = arena_new(&b->p->scratch, struct open_edge, 1);
    *e = (struct open_edge){{byte, 0}, s->newest};
    s->newest = e;
}

static uint32_t build_list(struct list_builder *b, const struct str *sorted, size_t n, size_t longest) {
    struct open_state *open = arena_new(&b->p->scratch, struct open_state, longest + 1);
    size_t depth = 0; /* of the text added last */
    for (size_t i = 0; i < n; i++) {
        struct str t = sorted[i];
        size_t same = 0;
        if (i)
            while (same < t.n && same < depth && t.p[same] == sorted[i - 1].p[same]) same++;
        if (same < depth) open[same].newest->edge.to = close_states(b, open, depth, same + 1);
        for (size_t at = same; at < t.n; at++) {
            add_edge(b, &open[at], (uint8_t)t.p[at]);
            open[at + 1] = (struct open_state){0};
        }
        open[t.n].is_end = true;
        depth = t.n;
        b->p->work += t.n + 1;
    }
    return close_states(b, open, depth, 0);
}

dfa_id dfa_from_texts(struct dfa_pool *p, const struct str *texts, size_t n) {
    struct list_builder b = {.p = p};
    struct dfa d = {0};
    size_t longest = 0;
    bool used[256] = {false};
    if (n == 0 || p->is_over) return DFA_NONE;
    arena_reset(&p->scratch);
    struct str *sorted = arena_copy(&p->scratch, texts, n * sizeof *texts);
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++) {
        if (sorted[i].n > longest) longest = sorted[i].n;
        for (size_t k = 0; k < sorted[i].n; k++) used[(uint8_t)sorted[i].p[k]] = true;
    }
    b.n = 1; /* the dead state */
    grow_list_states(&b);
    d.start = build_list(&b, sorted, n, longest);
    d.n_states = b.n;
    d.n_classes = 1;
    for (int c = 0; c < 256; c++) d.classes[c] = used[c] ? (uint8_t)d.n_classes++ : 0;
    p->work += (uint64_t)d.n_states * d.n_classes;
    if (p->work > p->max_work) p->is_over = true;
    if (p->is_over) return DFA_NONE;
    d.next = arena_new(&p->scratch, uint32_t, (size_t)d.n_states * d.n_classes);
    d.labels = arena_new(&p->scratch, uint16_t, d.n_states);
    for (uint32_t s = 1; s < b.n; s++) {
        d.labels[s] = b.states[s].is_end;
        for (uint32_t i = 0; i < b.states[s].n_edges; i++)
            d.next[(size_t)s * d.n_classes + d.classes[b.states[s].edges[i].byte]] = b.states[s].edges[i].to;
    }
    return dfa_from_table(p, &d);
}

dfa_id dfa_from_text(struct dfa_pool *p, struct str text) {
    return dfa_from_texts(p, &text, 1);
}

/* ---- counting ---------------------------------------------------------------------------------------------------------- */

enum visit { NEW, OPEN, DONE };

/* Depth first without recursion: a state that leads back to an open one has infinitely many texts, for all its states are live. */
uint32_t *dfa_counts(struct arena *a, const struct dfa *d) {
    uint32_t *counts = arena_new(a, uint32_t, d->n_states), *stack = arena_new(a, uint32_t, d->n_states);
    uint32_t *column = arena_new(a, uint32_t, d->n_states), *weight = arena_new(a, uint32_t, d->n_classes), n_stack = 0;
    uint8_t *visits = arena_new(a, uint8_t, d->n_states);
    for (int b = 0; b < 256; b++) weight[d->classes[b]]++;
    visits[0] = DONE;
    if (d->start) stack[n_stack++] = d->start;
    while (n_stack) {
        uint32_t s = stack[n_stack - 1];
        if (visits[s] == NEW) {
            visits[s] = OPEN;
            counts[s] = d->labels[s] != 0;
        }
        if (column[s] == d->n_classes) {
            visits[s] = DONE;
            n_stack--;
            continue;
        }
        uint32_t c = column[s], to = d->next[(size_t)s * d->n_classes + c];
        if (visits[to] == NEW) {
            stack[n_stack++] = to;
            continue;
        }
        uint64_t more = visits[to] == OPEN ? UINT32_MAX : (uint64_t)counts[to] * weight[c];
        counts[s] = more > UINT32_MAX - counts[s] ? UINT32_MAX : counts[s] + (uint32_t)more;
        column[s]++;
    }
    return counts;
}

enum { MAX_WORD_BYTES = 256 };

static bool collect_words(struct arena *a, const struct dfa *d, uint32_t s, struct sb *text, struct str *out, size_t *n) {
    if (text->n > MAX_WORD_BYTES) return false;
    if (d->labels[s]) out[(*n)++] = str_copy(a, sb_str(text));
    for (int b = 0; b < 256; b++) {
        uint32_t to = dfa_step(d, s, (uint8_t)b);
        if (!to) continue;
        sb_putc(text, (char)b);
        if (!collect_words(a, d, to, text, out, n)) return false;
        text->n--;
    }
    return true;
}

bool dfa_words(struct arena *a, const struct dfa *d, size_t limit, struct str **out, size_t *out_n) {
    uint32_t *counts = dfa_counts(a, d);
    struct sb text = {0};
    *out_n = 0;
    if (counts[d->start] > limit) return false;
    *out = arena_new(a, struct str, counts[d->start]);
    bool all = collect_words(a, d, d->start, &text, *out, out_n);
    sb_free(&text);
    return all;
}
