/* The pool: subset construction, minimal form, equal languages under one number. */
#include "text/grammar/dfa.h"

#include "base/hash.h"

#include <stdlib.h>

struct dfa_memo {
    uint64_t key;
    dfa_id result;
    bool used;
};

enum { START_SLOTS = 64 };

static void put_none(struct dfa_pool *p) {
    struct dfa *none = arena_new(p->a, struct dfa, 1);
    none->n_classes = none->n_states = 1;
    none->next = arena_new(p->a, uint32_t, 1);
    none->labels = arena_new(p->a, uint16_t, 1);
    p->list[p->n++] = none;
}

void dfa_pool_init(struct dfa_pool *p, struct arena *a, uint64_t max_work) {
    *p = (struct dfa_pool){.a = a, .max_work = max_work, .capacity = 16, .n_slots = START_SLOTS, .n_memo_slots = START_SLOTS};
    p->list = arena_new(a, const struct dfa *, p->capacity);
    p->slots = mem_alloc(p->n_slots * sizeof *p->slots);
    p->memo = mem_alloc(p->n_memo_slots * sizeof *p->memo);
    put_none(p);
}

void dfa_pool_free(struct dfa_pool *p) {
    arena_free(&p->scratch);
    mem_free(p->slots);
    mem_free(p->memo);
    p->slots = NULL;
    p->memo = NULL;
}

static bool spend(struct dfa_pool *p, uint64_t work) {
    p->work += work;
    if (p->work > p->max_work) p->is_over = true;
    return !p->is_over;
}

/* ---- numbers by content ------------------------------------------------------------------------------------------------ */

static uint64_t content_hash(const struct dfa *d) {
    uint64_t h = hash_bytes(d->classes, sizeof d->classes, d->start);
    h = hash_bytes(d->next, (size_t)d->n_states * d->n_classes * sizeof *d->next, h);
    return hash_bytes(d->labels, d->n_states * sizeof *d->labels, h);
}

static bool content_equal(const struct dfa *x, const struct dfa *y) {
    return x->n_states == y->n_states && x->n_classes == y->n_classes && x->start == y->start &&
           memcmp(x->classes, y->classes, sizeof x->classes) == 0 &&
           memcmp(x->next, y->next, (size_t)x->n_states * x->n_classes * sizeof *x->next) == 0 &&
           memcmp(x->labels, y->labels, x->n_states * sizeof *x->labels) == 0;
}

static void grow_slots(struct dfa_pool *p) {
    uint32_t n_slots = 2 * p->n_slots;
    uint32_t *slots = mem_alloc(n_slots * sizeof *slots);
    for (uint32_t i = 1; i < p->n; i++) {
        uint32_t at = (uint32_t)content_hash(p->list[i]) & (n_slots - 1);
        while (slots[at]) at = (at + 1) & (n_slots - 1);
        slots[at] = i + 1;
    }
    mem_free(p->slots);
    p->slots = slots;
    p->n_slots = n_slots;
}

static void grow_list(struct dfa_pool *p) {
    const struct dfa **list = arena_new(p->a, const struct dfa *, 2 * p->capacity);
    memcpy(list, p->list, p->n * sizeof *list);
    p->list = list;
    p->capacity *= 2;
}

/* d is minimal and in canonical order; it is copied when new. */
static dfa_id intern(struct dfa_pool *p, const struct dfa *d) {
    if (2 * (p->n + 1) > p->n_slots) grow_slots(p);
    uint32_t at = (uint32_t)content_hash(d) & (p->n_slots - 1);
    for (; p->slots[at]; at = (at + 1) & (p->n_slots - 1))
        if (content_equal(p->list[p->slots[at] - 1], d)) return p->slots[at] - 1;
    if (p->n == p->capacity) grow_list(p);
    struct dfa *copy = arena_copy(p->a, d, sizeof *d);
    copy->next = arena_copy(p->a, d->next, (size_t)d->n_states * d->n_classes * sizeof *d->next);
    copy->labels = arena_copy(p->a, d->labels, d->n_states * sizeof *d->labels);
    p->list[p->n] = copy;
    p->slots[at] = p->n + 1;
    return p->n++;
}

/* ---- the minimal form (Hopcroft) --------------------------------------------------------------------------------------- */

struct blocks { /* a partition of the states; blocks are stretches of `order` */
    uint32_t *order, *place, *block_of;
    uint32_t *first, *end, *marked; /* per block; marked: how many at its front are marked */
    uint32_t n;
};

static void mark(struct blocks *b, uint32_t state, uint32_t *touched, uint32_t *n_touched) {
    uint32_t block = b->block_of[state], at = b->place[state], to = b->first[block] + b->marked[block];
    if (at < to) return;
    if (!b->marked[block]++) touched[(*n_touched)++] = block;
    uint32_t other = b->order[to];
    b->order[to] = state, b->order[at] = other;
    b->place[state] = to, b->place[other] = at;
}

/* Splits a touched block; the number of the smaller part, or UINT32_MAX when it was not split. */
static uint32_t split(struct blocks *b, uint32_t block) {
    uint32_t n_marked = b->marked[block], n = b->end[block] - b->first[block];
    b->marked[block] = 0;
    if (n_marked == n) return UINT32_MAX;
    uint32_t fresh = b->n++;
    if (2 * n_marked <= n) {
        b->first[fresh] = b->first[block];
        b->end[fresh] = b->first[block] = b->first[block] + n_marked;
    } else {
        b->end[fresh] = b->end[block];
        b->first[fresh] = b->end[block] = b->first[block] + n_marked;
    }
    b->marked[fresh] = 0;
    for (uint32_t i = b->first[fresh]; i < b->end[fresh]; i++) b->block_of[b->order[i]] = fresh;
    return fresh;
}

struct by_label {
    uint32_t state;
    uint16_t label;
};

static int compare_label(const void *x, const void *y) {
    const struct by_label *a = x, *b = y;
    return a->label != b->label ? (a->label < b->label ? -1 : 1) : (a->state < b->state ? -1 : a->state > b->state);
}

static void start_blocks(struct arena *a, const struct dfa *d, struct blocks *b) {
    uint32_t n = d->n_states;
    struct by_label *sorted = arena_new(a, struct by_label, n);
    uint32_t *memory = arena_new(a, uint32_t, 6 * ((size_t)n + 1)); /* one more than the states: a dead one may join them */
    *b = (struct blocks){memory, memory + (n + 1), memory + 2 * (n + 1), memory + 3 * (n + 1), memory + 4 * (n + 1), memory + 5 * (n + 1),
                         0};
    for (uint32_t i = 0; i < n; i++) sorted[i] = (struct by_label){i, d->labels[i]};
    qsort(sorted, n, sizeof *sorted, compare_label);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || sorted[i].label != sorted[i - 1].label) b->first[b->n++] = i;
        b->end[b->n - 1] = i + 1;
        b->order[i] = sorted[i].state;
        b->place[sorted[i].state] = i;
        b->block_of[sorted[i].state] = b->n - 1;
    }
}

/* For every column, which states lead to a state: from[begin[c * n + s] ..]. */
static void invert(struct arena *a, const struct dfa *d, uint32_t **out_begin, uint32_t **out_from) {
    uint32_t n = d->n_states, k = d->n_classes;
    uint32_t *begin = arena_new(a, uint32_t, (size_t)n * k + 1), *from = arena_new(a, uint32_t, (size_t)n * k);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t c = 0; c < k; c++) begin[(size_t)c * n + d->next[(size_t)s * k + c] + 1]++;
    for (size_t i = 0; i < (size_t)n * k; i++) begin[i + 1] += begin[i];
    for (uint32_t s = n; s-- > 0;) /* backwards, using begin as a cursor that ends where the next one begins */
        for (uint32_t c = 0; c < k; c++) {
            size_t slot = (size_t)c * n + d->next[(size_t)s * k + c];
            from[--begin[slot + 1]] = s;
        }
    memmove(begin, begin + 1, (size_t)n * k * sizeof *begin);
    begin[(size_t)n * k] = n * k;
    *out_begin = begin;
    *out_from = from;
}

/* Refines the blocks until states of one block cannot be told apart. */
static void refine(struct dfa_pool *p, const struct dfa *d, struct blocks *b) {
    uint32_t n = d->n_states, k = d->n_classes, n_touched, n_wait = 0;
    uint32_t *begin, *from;
    invert(&p->scratch, d, &begin, &from);
    uint32_t *wait = arena_new(&p->scratch, uint32_t, (size_t)n + 1), *touched = arena_new(&p->scratch, uint32_t, n);
    uint32_t *members = arena_new(&p->scratch, uint32_t, n);
    for (uint32_t i = 0; i < b->n; i++) wait[n_wait++] = i;
    while (n_wait && !p->is_over) {
        uint32_t block = wait[--n_wait], n_members = b->end[block] - b->first[block];
        memcpy(members, b->order + b->first[block], n_members * sizeof *members);
        for (uint32_t c = 0; c < k; c++) {
            n_touched = 0;
            for (uint32_t m = 0; m < n_members; m++) {
                size_t slot = (size_t)c * n + members[m];
                for (uint32_t i = begin[slot]; i < begin[slot + 1]; i++) mark(b, from[i], touched, &n_touched);
                spend(p, begin[slot + 1] - begin[slot]);
            }
            for (uint32_t i = 0; i < n_touched; i++) {
                uint32_t fresh = split(b, touched[i]);
                if (fresh == UINT32_MAX) continue;
                wait[n_wait++] = fresh; /* the smaller part; the other one waits already, or need not */
            }
        }
        spend(p, k);
    }
}

/* Columns that are equal in all states become one; columns are numbered by their first byte. */
static void join_columns(struct arena *a, struct dfa *d) {
    uint32_t k = d->n_classes;
    uint32_t *to = arena_new(a, uint32_t, k), *kept = arena_new(a, uint32_t, k), n_kept = 0;
    uint64_t *hashes = arena_new(a, uint64_t, k);
    bool *seen = arena_new(a, bool, k);
    for (uint32_t s = 0; s < d->n_states; s++)
        for (uint32_t c = 0; c < k; c++) hashes[c] = hash_pair(hashes[c], d->next[(size_t)s * k + c]);
    for (int byte = 0; byte < 256; byte++) {
        uint32_t c = d->classes[byte], i;
        if (seen[c]) continue;
        seen[c] = true;
        for (i = 0; i < n_kept; i++) {
            if (hashes[kept[i]] != hashes[c]) continue;
            uint32_t s = 0;
            while (s < d->n_states && d->next[(size_t)s * k + kept[i]] == d->next[(size_t)s * k + c]) s++;
            if (s == d->n_states) break;
        }
        if (i == n_kept) kept[n_kept++] = c;
        to[c] = i;
    }
    uint32_t *next = arena_new(a, uint32_t, (size_t)d->n_states * n_kept);
    for (uint32_t s = 0; s < d->n_states; s++)
        for (uint32_t i = 0; i < n_kept; i++) next[(size_t)s * n_kept + i] = d->next[(size_t)s * k + kept[i]];
    for (int byte = 0; byte < 256; byte++) d->classes[byte] = (uint8_t)to[d->classes[byte]];
    d->next = next;
    d->n_classes = n_kept;
}

/* States from which no end can be reached. */
static bool *find_dead(struct arena *a, const struct dfa *d) {
    uint32_t n = d->n_states, k = d->n_classes, n_stack = 0;
    uint32_t *begin = arena_new(a, uint32_t, (size_t)n + 2), *from = arena_new(a, uint32_t, (size_t)n * k),
             *stack = arena_new(a, uint32_t, n);
    bool *dead = arena_new(a, bool, (size_t)n + 1);
    for (size_t i = 0; i < (size_t)n * k; i++) begin[d->next[i] + 2]++;
    for (uint32_t s = 0; s < n; s++) begin[s + 2] += begin[s + 1];
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t c = 0; c < k; c++) from[begin[d->next[(size_t)s * k + c] + 1]++] = s;
    for (uint32_t s = 0; s < n; s++) {
        dead[s] = d->labels[s] == 0;
        if (!dead[s]) stack[n_stack++] = s;
    }
    while (n_stack) {
        uint32_t s = stack[--n_stack];
        for (uint32_t i = begin[s]; i < begin[s + 1]; i++)
            if (dead[from[i]]) {
                dead[from[i]] = false;
                stack[n_stack++] = from[i];
            }
    }
    return dead;
}

/* One state per block, the dead ones as 0, the others in the order in which a walk from the start meets them. */
static void renumber(struct arena *a, const struct dfa *d, const struct blocks *b, const bool *dead, struct dfa *out) {
    uint32_t *number = arena_new(a, uint32_t, b->n), *queue = arena_new(a, uint32_t, b->n), n = 1, k = d->n_classes;
    for (uint32_t i = 0; i < b->n; i++) number[i] = UINT32_MAX;
    for (uint32_t s = 0; s < d->n_states; s++)
        if (dead[s]) number[b->block_of[s]] = 0;
    uint32_t start = b->block_of[d->start];
    if (number[start] == UINT32_MAX) {
        queue[n] = start;
        number[start] = n++;
    }
    out->next = arena_new(a, uint32_t, ((size_t)b->n + 1) * k);
    out->labels = arena_new(a, uint16_t, (size_t)b->n + 1);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t s = b->order[b->first[queue[i]]];
        out->labels[i] = d->labels[s];
        for (uint32_t c = 0; c < k; c++) {
            uint32_t to = b->block_of[d->next[(size_t)s * k + c]];
            if (number[to] == UINT32_MAX) {
                queue[n] = to;
                number[to] = n++;
            }
            out->next[(size_t)i * k + c] = number[to];
        }
    }
    memcpy(out->classes, d->classes, sizeof out->classes);
    out->n_classes = k;
    out->n_states = n;
    out->start = number[start];
}

dfa_id dfa_from_table(struct dfa_pool *p, const struct dfa *d) {
    struct blocks b;
    struct dfa small = {0};
    if (!spend(p, (uint64_t)d->n_states * d->n_classes)) return DFA_NONE;
    bool *dead = find_dead(&p->scratch, d);
    start_blocks(&p->scratch, d, &b);
    refine(p, d, &b);
    if (p->is_over) return DFA_NONE;
    renumber(&p->scratch, d, &b, dead, &small);
    join_columns(&p->scratch, &small);
    struct dfa last = small; /* the order of the columns has changed, and with it that of the walk */
    for (uint32_t s = 0; s < small.n_states; s++) b.order[s] = s, b.first[s] = s, b.block_of[s] = s;
    b.n = small.n_states;
    memset(dead, 0, d->n_states * sizeof *dead);
    dead[0] = true;
    renumber(&p->scratch, &small, &b, dead, &last);
    return last.start == 0 ? DFA_NONE : intern(p, &last);
}

/* ---- subset construction ----------------------------------------------------------------------------------------------- */

/* An element of a set is an NFA state with a condition on the next byte, which \b and \B leave behind. */
enum { NEXT_WORD = 1, NEXT_OTHER = 2, CONDITIONS = 4 };
enum { AFTER_WORD = 1, AT_START = 2 };

struct subset {
    uint32_t *items; /* in any order: state * CONDITIONS + condition */
    uint32_t n;
    uint8_t flags; /* what was before it, where the automaton asks for it */
    uint64_t hash;
};

struct builder {
    struct dfa_pool *p;
    const struct nfa *n;
    bool has_words; /* \b or \B occurs */
    struct subset *sets;
    uint32_t n_sets, capacity, *slots, n_slots;
    uint32_t *seen, round; /* [n * CONDITIONS]: elements met in this closure */
    uint32_t *list, n_list;
    uint32_t *stack;
    bool at_start, at_end, after_word; /* of the closure under way */
    uint16_t label;                    /* least label among the ends that the closure met */
};

static bool is_word_byte(int b) {
    return (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || b == '_' || (b >= 'a' && b <= 'z');
}

/* Adds an element and everything that it reaches without a byte. */
static void close_over(struct builder *b, uint32_t from) {
    uint32_t n_stack = 0;
    b->stack[n_stack++] = from;
    while (n_stack) {
        uint32_t e = b->stack[--n_stack], condition = e % CONDITIONS;
        if (b->seen[e] == b->round) continue;
        b->seen[e] = b->round;
        const struct nfa_state *s = &b->n->states[e / CONDITIONS];
        uint32_t next = s->out * CONDITIONS + condition, wants;
        b->p->work++;
        switch (s->kind) {
        case NFA_RANGE: b->list[b->n_list++] = e; break;
        case NFA_ACCEPT:
            if (b->at_end && !(condition & NEXT_WORD) && (!b->label || s->number < b->label)) b->label = (uint16_t)s->number;
            b->list[b->n_list++] = e;
            break;
        case NFA_SPLIT:
            b->stack[n_stack++] = s->out2 * CONDITIONS + condition;
            b->stack[n_stack++] = next;
            break;
        case NFA_START:
            if (b->at_start) b->stack[n_stack++] = next;
            break;
        case NFA_END:
            if (b->at_end) b->stack[n_stack++] = next;
            else b->list[b->n_list++] = e; /* kept: whether the text ends here is asked later */
            break;
        default: /* NFA_WORD, NFA_NOT_WORD */
            wants = (s->kind == NFA_WORD) == b->after_word ? NEXT_OTHER : NEXT_WORD;
            if (!(condition & ~wants)) b->stack[n_stack++] = s->out * CONDITIONS + wants;
        }
    }
}

static void grow_sets(struct builder *b) {
    if (b->n_sets == b->capacity) {
        uint32_t capacity = b->capacity ? 2 * b->capacity : 64;
        struct subset *sets = arena_new(&b->p->scratch, struct subset, capacity);
        if (b->n_sets) memcpy(sets, b->sets, b->n_sets * sizeof *sets);
        b->sets = sets;
        b->capacity = capacity;
    }
    if (2 * (b->n_sets + 1) <= b->n_slots) return;
    b->n_slots = b->n_slots ? 2 * b->n_slots : 128;
    b->slots = arena_new(&b->p->scratch, uint32_t, b->n_slots);
    for (uint32_t i = 0; i < b->n_sets; i++) {
        uint32_t at = (uint32_t)b->sets[i].hash & (b->n_slots - 1);
        while (b->slots[at]) at = (at + 1) & (b->n_slots - 1);
        b->slots[at] = i + 1;
    }
}

/* The elements of the set are those of b->list, whose marks are still fresh. */
static bool is_list(const struct builder *b, const struct subset *s) {
    if (s->n != b->n_list) return false;
    for (uint32_t i = 0; i < s->n; i++)
        if (b->seen[s->items[i]] != b->round) return false;
    return true;
}

/* The number of the set in b->list. */
static uint32_t put_set(struct builder *b, uint8_t flags) {
    uint64_t hash = flags;
    grow_sets(b);
    for (uint32_t i = 0; i < b->n_list; i++) hash += hash_mix(b->list[i] + 1); /* the same in any order */
    hash = hash_mix(hash);
    uint32_t at = (uint32_t)hash & (b->n_slots - 1);
    for (; b->slots[at]; at = (at + 1) & (b->n_slots - 1)) {
        const struct subset *s = &b->sets[b->slots[at] - 1];
        if (s->hash == hash && s->flags == flags && is_list(b, s)) return b->slots[at] - 1;
    }
    b->slots[at] = b->n_sets + 1;
    uint32_t *items = b->n_list ? arena_copy(&b->p->scratch, b->list, b->n_list * sizeof *b->list) : NULL;
    b->sets[b->n_sets] = (struct subset){items, b->n_list, flags, hash};
    return b->n_sets++;
}

/* The label of a text that ends in this set. */
static uint16_t label_of(struct builder *b, uint32_t set) {
    b->round++;
    b->n_list = 0;
    b->label = 0;
    b->at_end = true;
    b->at_start = b->sets[set].flags & AT_START;
    b->after_word = b->sets[set].flags & AFTER_WORD;
    for (uint32_t i = 0; i < b->sets[set].n; i++) close_over(b, b->sets[set].items[i]);
    b->at_end = false;
    return b->label;
}

/* Bytes that no edge tells apart, as stretches; words are told apart from the rest where \b needs it. */
static uint32_t find_stretches(const struct nfa *n, bool has_words, uint8_t classes[256], uint8_t first[256]) {
    bool cut[257] = {true};
    uint32_t k = 0;
    for (uint32_t i = 0; i < n->n; i++)
        if (n->states[i].kind == NFA_RANGE && n->states[i].lo <= n->states[i].hi) cut[n->states[i].lo] = cut[n->states[i].hi + 1] = true;
    for (int b = 1; b < 256 && has_words; b++)
        if (is_word_byte(b) != is_word_byte(b - 1)) cut[b] = true;
    for (int b = 0; b < 256; b++) {
        if (cut[b]) first[k++] = (uint8_t)b;
        classes[b] = (uint8_t)(k - 1);
    }
    return k;
}

static void step_set(struct builder *b, uint32_t set, uint8_t byte) {
    bool word = is_word_byte(byte);
    b->round++;
    b->n_list = 0;
    b->at_start = b->at_end = false;
    b->after_word = b->has_words && word;
    for (uint32_t i = 0; i < b->sets[set].n; i++) {
        uint32_t e = b->sets[set].items[i], condition = e % CONDITIONS;
        const struct nfa_state *s = &b->n->states[e / CONDITIONS];
        if (s->kind != NFA_RANGE || byte < s->lo || byte > s->hi) continue;
        if ((condition & NEXT_WORD && !word) || (condition & NEXT_OTHER && word)) continue;
        close_over(b, s->out * CONDITIONS);
    }
}

static void builder_init(struct builder *b, struct dfa_pool *p, const struct nfa *n) {
    size_t elements = (size_t)n->n * CONDITIONS;
    *b = (struct builder){.p = p, .n = n};
    b->seen = arena_new(&p->scratch, uint32_t, elements);
    b->list = arena_new(&p->scratch, uint32_t, elements);
    b->stack = arena_new(&p->scratch, uint32_t, 2 * elements + 2);
    for (uint32_t i = 0; i < n->n; i++)
        if (n->states[i].kind == NFA_WORD || n->states[i].kind == NFA_NOT_WORD) b->has_words = true;
}

dfa_id dfa_from_nfa(struct dfa_pool *p, const struct nfa *n, uint32_t start, bool at_start) {
    struct builder b;
    struct dfa d = {0};
    uint8_t first[256];
    uint32_t capacity = 0;
    if (n->is_over) p->is_over = true;
    if (p->is_over) return DFA_NONE;
    arena_reset(&p->scratch);
    builder_init(&b, p, n);
    d.n_classes = find_stretches(n, b.has_words, d.classes, first);
    b.round++;
    b.at_start = at_start;
    close_over(&b, start * CONDITIONS);
    d.start = put_set(&b, at_start ? AT_START : 0);
    for (uint32_t s = 0; s < b.n_sets && !p->is_over; s++) {
        if (s == capacity) {
            uint32_t more = capacity ? 2 * capacity : 64;
            uint32_t *next = arena_new(&p->scratch, uint32_t, (size_t)more * d.n_classes);
            uint16_t *labels = arena_new(&p->scratch, uint16_t, more);
            if (capacity) memcpy(next, d.next, (size_t)capacity * d.n_classes * sizeof *next);
            if (capacity) memcpy(labels, d.labels, capacity * sizeof *labels);
            d.next = next, d.labels = labels, capacity = more;
        }
        d.labels[s] = label_of(&b, s);
        for (uint32_t c = 0; c < d.n_classes; c++) {
            step_set(&b, s, first[c]);
            d.next[(size_t)s * d.n_classes + c] = put_set(&b, b.has_words && is_word_byte(first[c]) ? AFTER_WORD : 0);
            spend(p, b.sets[s].n + 4);
        }
    }
    d.n_states = b.n_sets;
    return p->is_over ? DFA_NONE : dfa_from_table(p, &d);
}

/* ---- remembered operations --------------------------------------------------------------------------------------------- */

static struct dfa_memo *memo_find(struct dfa_pool *p, uint64_t key) {
    uint32_t at = (uint32_t)hash_mix(key) & (p->n_memo_slots - 1);
    while (p->memo[at].used && p->memo[at].key != key) at = (at + 1) & (p->n_memo_slots - 1);
    return &p->memo[at];
}

bool dfa_memo_get(struct dfa_pool *p, uint64_t key, dfa_id *out) {
    const struct dfa_memo *m = memo_find(p, key);
    if (m->used) *out = m->result;
    return m->used;
}

void dfa_memo_put(struct dfa_pool *p, uint64_t key, dfa_id result) {
    if (2 * (p->n_memo + 1) > p->n_memo_slots) {
        struct dfa_memo *old = p->memo;
        uint32_t n_old = p->n_memo_slots;
        p->n_memo_slots *= 2;
        p->memo = mem_alloc(p->n_memo_slots * sizeof *p->memo);
        for (uint32_t i = 0; i < n_old; i++)
            if (old[i].used) *memo_find(p, old[i].key) = old[i];
        mem_free(old);
    }
    *memo_find(p, key) = (struct dfa_memo){key, result, true};
    p->n_memo++;
}
