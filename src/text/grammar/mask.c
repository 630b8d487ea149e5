/* The walk through the vocabulary's tries along the states of a machine.
 *
 * A mask is kept as a base (a mask of the vocabulary, or none), and the tokens that the walk found besides; where those are many,
 * as bits. Parts of the vocabulary that a state takes as a whole are not walked. Inside a string whose content is not
 * kept, the walk follows the string's automaton alone and comes back to states at the closing quote and at escapes.
 */
#include "text/grammar/mask.h"

#include "text/grammar/vocab_trie.h"

enum { MAX_LISTED = 256, MAX_PAIRS = 48, MAX_CACHE_BYTES = 64 << 20 };

struct mask {
    const uint32_t *base; /* NULL: nothing */
    uint32_t *bits;       /* everything; NULL: base and tokens */
    int32_t *tokens;
    uint32_t n_tokens;
};

struct string_place {
    uint32_t state, n_chars;
};

struct mask_cache {
    struct arena a;
    struct mask *masks;
    uint32_t n, capacity;
    /* the walk under way */
    int32_t *found;
    uint32_t n_found, found_capacity;
    uint32_t *stack; /* states by depth */
    struct string_place *places;
    uint32_t parts; /* bits of parts taken whole */
    const uint32_t *base;
};

struct mask_cache *mask_cache_create(struct gram_machine *m) {
    struct mask_cache *c = mem_alloc(sizeof *c);
    c->stack = mem_alloc((m->v->longest + 2) * sizeof *c->stack);
    c->places = mem_alloc((m->v->longest + 2) * sizeof *c->places);
    return c;
}

void mask_cache_destroy(struct mask_cache *c) {
    if (!c) return;
    arena_free(&c->a);
    mem_free(c->masks);
    mem_free(c->found);
    mem_free(c->stack);
    mem_free(c->places);
    mem_free(c);
}

size_t mask_cache_bytes(const struct mask_cache *c) {
    return c ? c->a.total_bytes + c->capacity * sizeof *c->masks + c->found_capacity * sizeof *c->found : 0;
}

static void drop_masks(struct gram_machine *m) {
    struct mask_cache *c = m->masks;
    if (c->a.total_bytes < MAX_CACHE_BYTES) return;
    for (uint32_t i = 0; i < m->n_info; i++) m->info[i].mask = 0;
    arena_reset(&c->a);
    c->n = 0;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------------- */

static void found_token(struct gram_machine *m, int32_t token) {
    struct mask_cache *c = m->masks;
    for (; token >= 0; token = m->v->same[token]) {
        if (c->n_found == c->found_capacity) {
            c->found_capacity = c->found_capacity ? 2 * c->found_capacity : 1024;
            c->found = mem_realloc(c->found, c->found_capacity * sizeof *c->found);
        }
        c->found[c->n_found++] = token;
    }
}

/* Nodes `from` up to `to`, which begin in `state`. */
static void walk(struct gram_machine *m, const struct vocab_part *p, uint32_t from, uint32_t to, uint32_t state) {
    uint32_t *stack = m->masks->stack;
    if (from >= to) return;
    stack[p->depths[from] - 1] = state;
    for (uint32_t i = from; i < to;) {
        uint32_t depth = p->depths[i], before = stack[depth - 1];
        const uint32_t *row = m->info[before].row;
        uint32_t next = row ? row[p->bytes[i]] : STEP_UNKNOWN;
        if (next == STEP_UNKNOWN) next = machine_step_row(m, before, p->bytes[i]);
        if (!next) {
            i = p->skips[i];
            continue;
        }
        if (p->tokens[i] >= 0) found_token(m, p->tokens[i]);
        stack[depth] = next;
        i++;
    }
}

static void walk_first_bytes(struct gram_machine *m, const struct vocab_part *p, uint32_t state, const uint32_t bytes[8]) {
    for (int b = 0; b < 256; b++)
        if (bytes[b / 32] >> b % 32 & 1 && p->first[b] < p->n) walk(m, p, p->first[b], p->skips[p->first[b]], state);
}

/* ---- strings ----------------------------------------------------------------------------------------------------------- */

struct string_walk {
    const struct node *n;
    const struct prog_string *s;
    const struct dfa *d;
    uint32_t closed; /* the state behind the closing quote */
};

static struct string_place string_next(const struct string_walk *w, struct string_place at, uint8_t byte) {
    at.state = dfa_step(w->d, at.state, byte);
    if ((byte & 0xC0) != 0x80 && (w->s->max != STR_LONG || at.n_chars < w->s->min)) at.n_chars++;
    if (at.state && !strlengths_fits(w->s->lengths, at.state, w->s->min, w->s->max, at.n_chars)) at.state = 0;
    return at;
}

/* An escape at node i: from there on the walk goes by states. */
static void walk_escape(struct gram_machine *m, const struct string_walk *w, const struct vocab_part *p, uint32_t i,
                        struct string_place at) {
    struct node n = *w->n;
    n.b = at.state;
    n.c = at.n_chars;
    walk(m, p, i, p->skips[i], machine_state_of(m, &n));
}

static void walk_string(struct gram_machine *m, const struct string_walk *w, const struct vocab_part *p) {
    struct string_place *places = m->masks->places;
    places[0] = (struct string_place){w->n->b, w->n->c};
    for (uint32_t i = 0; i < p->n;) {
        uint32_t depth = p->depths[i];
        uint8_t byte = p->bytes[i];
        struct string_place at = places[depth - 1];
        if (byte == '"') {
            if (w->d->labels[at.state] && at.n_chars >= w->s->min) {
                if (p->tokens[i] >= 0) found_token(m, p->tokens[i]);
                walk(m, p, i + 1, p->skips[i], w->closed);
            }
            i = p->skips[i];
            continue;
        }
        if (byte == '\\') walk_escape(m, w, p, i, at);
        at = byte >= 0x20 && byte != '\\' ? string_next(w, at, byte) : (struct string_place){0};
        if (!at.state) {
            i = p->skips[i];
            continue;
        }
        if (p->tokens[i] >= 0) found_token(m, p->tokens[i]);
        places[depth] = at;
        i++;
    }
}

/* ---- parts that are taken whole ---------------------------------------------------------------------------------------- */

/* Bytes that neither of two automata tells apart, one of each. */
static uint32_t joint_bytes(const struct dfa *x, const struct dfa *y, uint8_t out[256]) {
    uint32_t n = 0;
    uint8_t xs[256], ys[256];
    for (int b = 0; b < 256; b++) {
        uint32_t i = 0;
        while (i < n && (xs[i] != x->classes[b] || ys[i] != y->classes[b])) i++;
        if (i < n) continue;
        xs[n] = x->classes[b];
        ys[n] = y->classes[b];
        out[n++] = (uint8_t)b;
    }
    return n;
}

struct pairs { /* states of a part's language and of something that reads along */
    uint32_t part[MAX_PAIRS], other[MAX_PAIRS];
    uint32_t n;
};

/* False: no room. */
static bool pair_put(struct pairs *p, uint32_t part, uint32_t other) {
    for (uint32_t i = 0; i < p->n; i++)
        if (p->part[i] == part && p->other[i] == other) return true;
    if (p->n == MAX_PAIRS) return false;
    p->part[p->n] = part;
    p->other[p->n++] = other;
    return true;
}

/* Every text of the part's language leads from `state` to a live state of d; those are left in *out. */
static bool dfa_takes(const struct dfa *d, uint32_t state, const struct dfa *language, struct pairs *out) {
    uint8_t bytes[256];
    uint32_t n_bytes = joint_bytes(d, language, bytes);
    out->n = 0;
    pair_put(out, language->start, state);
    for (uint32_t i = 0; i < out->n; i++)
        for (uint32_t k = 0; k < n_bytes; k++) {
            uint32_t part = dfa_step(language, out->part[i], bytes[k]), other = dfa_step(d, out->other[i], bytes[k]);
            if (part && (!other || !pair_put(out, part, other))) return false;
        }
    return true;
}

static bool string_takes(const struct string_walk *w, const struct vocab_part *p) {
    struct pairs pairs;
    uint32_t chars = w->n->c, last = chars + p->longest;
    if (!dfa_takes(w->d, w->n->b, p->language, &pairs)) return false;
    if (w->s->max == STR_LONG) last = chars;
    for (uint32_t i = 0; i < pairs.n; i++)
        for (uint32_t c = chars; c <= last; c++)
            if (!strlengths_fits(w->s->lengths, pairs.other[i], w->s->min, w->s->max, c)) return false;
    return true;
}

/* A name that no key has may go on with anything of the part. */
static bool name_takes(struct gram_machine *m, const struct node *n, const struct vocab_part *p) {
    struct object_progress progress = *(const struct object_progress *)records_get(&m->objects, n->a);
    const struct prog_object *o = &m->g->objects[progress.shape];
    struct pairs pairs;
    if (!n->c || n->d || !dfa_takes(prog_dfa(m->g, o->extras), n->c, p->language, &pairs)) return false;
    for (uint32_t i = 0; i < pairs.n; i++) {
        if (m->g->counts[o->extras][pairs.other[i]] != PROG_MANY) return false;
        if (!name_fits(m, &progress, (struct name_place){0, pairs.other[i], WORD_NONE})) return false;
    }
    return true;
}

static bool state_takes(struct gram_machine *m, uint32_t state, const struct vocab_part *p) {
    struct pairs pairs = {.n = 0};
    pair_put(&pairs, p->language->start, state);
    for (uint32_t i = 0; i < pairs.n; i++)
        for (int b = 0; b < 256; b++) {
            uint32_t part = dfa_step(p->language, pairs.part[i], (uint8_t)b);
            if (!part) continue;
            uint32_t other = machine_step_row(m, pairs.other[i], (uint8_t)b);
            if (!other || !pair_put(&pairs, part, other)) return false;
        }
    return true;
}

/* ---- one mask ---------------------------------------------------------------------------------------------------------- */

static void fill_string(struct gram_machine *m, const struct node *n) {
    struct mask_cache *c = m->masks;
    const struct gram_vocab *v = m->v;
    const struct prog_string *s = &m->g->strings[n->a];
    struct string_walk w = {.n = n, .s = s, .d = prog_dfa(m->g, s->dfa), .closed = machine_behind(m, n)};
    uint32_t first = 0;
    if (!s->lengths && w.d->n_states > 1 && string_is_any(m->g, s)) {
        uint32_t left = s->max == STR_LONG ? v->longest_text : s->max - n->c;
        if (left >= v->longest_text) c->base = v->text_bits;
        else if (left < VOCAB_LENGTHS) c->base = v->length_bits[left];
        if (c->base && n->b == w.d->start) first = VOCAB_TEXT_PARTS;
        else c->base = NULL;
    }
    for (uint32_t i = first; i < VOCAB_PARTS; i++) {
        if (i < VOCAB_TEXT_PARTS && string_takes(&w, &v->parts[i])) c->parts |= (uint32_t)1 << i;
        else walk_string(m, &w, &v->parts[i]);
    }
}

static void fill_state(struct gram_machine *m, uint32_t state) {
    struct mask_cache *c = m->masks;
    uint32_t bytes[8], n;
    const uint32_t *ids = lists_get(&m->states, state, &n);
    struct node names[8];
    uint32_t n_names = 0;
    bool has_rule = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = machine_node(m, ids[i]);
        if (node_kind(node) == NODE_RULE) has_rule = true;
        if (node_kind(node) == NODE_KEY && n_names < 8) names[n_names++] = *node;
    }
    machine_first_bytes(m, state, bytes);
    for (uint32_t i = 0; i < VOCAB_PARTS; i++) {
        const struct vocab_part *p = &m->v->parts[i];
        bool whole = false;
        for (uint32_t k = 0; k < n_names && !whole && i < VOCAB_TEXT_PARTS; k++) whole = name_takes(m, &names[k], p);
        if (!whole && has_rule && i < VOCAB_TEXT_PARTS) whole = state_takes(m, state, p);
        if (whole) c->parts |= (uint32_t)1 << i;
        else walk_first_bytes(m, p, state, bytes);
    }
}

static const struct node *only_string(const struct gram_machine *m, uint32_t state, struct node *out) {
    uint32_t n;
    const uint32_t *ids = lists_get(&m->states, state, &n);
    if (n != 1) return NULL;
    *out = *machine_node(m, ids[0]);
    return node_kind(out) == NODE_STRING && !out->d && out->e == WORD_NONE ? out : NULL;
}

static void or_bits(uint32_t *to, const uint32_t *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] |= from[i];
}

static void keep_mask(struct gram_machine *m, struct mask *out) {
    struct mask_cache *c = m->masks;
    size_t n_words = m->v->n_words;
    *out = (struct mask){.base = c->base};
    if (c->parts == ((uint32_t)1 << VOCAB_TEXT_PARTS) - 1 && !c->base) {
        out->base = m->v->text_bits;
        c->parts = 0;
    }
    if (c->n_found <= MAX_LISTED && !c->parts) {
        out->n_tokens = c->n_found;
        if (c->n_found) out->tokens = arena_copy(&c->a, c->found, c->n_found * sizeof *c->found);
        return;
    }
    out->bits = arena_new(&c->a, uint32_t, n_words);
    if (out->base) memcpy(out->bits, out->base, n_words * sizeof *out->bits);
    for (uint32_t i = 0; i < VOCAB_TEXT_PARTS; i++)
        if (c->parts >> i & 1) or_bits(out->bits, m->v->parts[i].bits, n_words);
    for (uint32_t i = 0; i < c->n_found; i++) out->bits[c->found[i] / 32] |= (uint32_t)1 << c->found[i] % 32;
}

static void compute_mask(struct gram_machine *m, uint32_t state, struct mask *out) {
    struct mask_cache *c = m->masks;
    struct node n;
    c->n_found = c->parts = 0;
    c->base = NULL;
    if (only_string(m, state, &n)) fill_string(m, &n);
    else fill_state(m, state);
    keep_mask(m, out);
}

/* The state whose mask stands for this one's: inside a long string the number of characters does not matter yet. */
static uint32_t mask_state(struct gram_machine *m, uint32_t state) {
    struct node n;
    if (m->info[state].mask_of != UINT32_MAX) return m->info[state].mask_of;
    uint32_t same = state;
    if (only_string(m, state, &n)) {
        const struct prog_string *s = &m->g->strings[n.a];
        uint32_t longest = m->v->longest;
        if (!s->lengths && s->max != STR_LONG && n.c > s->min && s->max - n.c > longest) {
            n.c = s->min;
            same = machine_state_of(m, &n);
        }
    }
    m->info[state].mask_of = same;
    return same;
}

void mask_write(struct gram_machine *m, uint32_t state, uint32_t *bits) {
    struct mask_cache *c = m->masks;
    size_t n_words = m->v->n_words;
    uint32_t same = mask_state(m, state);
    if (!m->info[same].mask) {
        machine_drop_rows(m);
        drop_masks(m);
        if (c->n == c->capacity) {
            c->capacity = c->capacity ? 2 * c->capacity : 64;
            c->masks = mem_realloc(c->masks, c->capacity * sizeof *c->masks);
        }
        struct mask made;
        compute_mask(m, same, &made);
        c->masks[c->n] = made;
        m->info[same].mask = ++c->n;
    }
    const struct mask *k = &c->masks[m->info[same].mask - 1];
    if (k->bits) memcpy(bits, k->bits, n_words * sizeof *bits);
    else if (k->base) memcpy(bits, k->base, n_words * sizeof *bits);
    else memset(bits, 0, n_words * sizeof *bits);
    for (uint32_t i = 0; i < k->n_tokens; i++) bits[k->tokens[i] / 32] |= (uint32_t)1 << k->tokens[i] % 32;
    for (size_t i = 0; i < m->n_eos && machine_may_end(m, state); i++)
        if (m->eos[i] >= 0 && (size_t)m->eos[i] < m->v->n_tokens) bits[m->eos[i] / 32] |= (uint32_t)1 << m->eos[i] % 32;
}
