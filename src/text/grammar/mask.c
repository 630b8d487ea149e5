/* The walk through the vocabulary's tries along the states of a machine.
 *
 * A mask is kept as a base (a mask of the vocabulary, or none), and the tokens that the walk found besides; where those are many,
 * as bits. Parts of the vocabulary that a state takes as a whole are not walked. Nodes inside strings and names are walked one by
 * one without states of their own (mask_text.c): what a state takes is what its nodes take.
 *
 * The work for one mask is bounded. Rules with deeply nested repetitions can be at thousands of places at once; the tokens that the walk
 * has not come to when the work is done are then left out of the mask. Every token that is in it leads on.
 */
#include "text/grammar/mask_internal.h"

#include "base/bits.h"

enum { MAX_LISTED = 256, MAX_CACHE_BYTES = 64 << 20, MAX_WORK = 16 << 20 };

struct mask_cache *mask_cache_create(struct gram_machine *m) {
    struct mask_cache *c = mem_alloc(sizeof *c);
    c->stack = mem_alloc((m->v->longest + 2) * sizeof *c->stack);
    c->places = mem_alloc((m->v->longest + 2) * sizeof *c->places);
    c->inside_keys.size = sizeof(struct inside_key);
    struct node hole = {.tag = node_tag(NODE_END, END_HOLE)};
    c->hole_up = machine_up_of(m, &hole);
    c->hole = machine_state_of(m, &hole);
    return c;
}

void mask_cache_destroy(struct mask_cache *c) {
    if (!c) return;
    arena_free(&c->a);
    mem_free(c->masks);
    gram_records_free(&c->inside_keys);
    mem_free(c->insides);
    mem_free(c->ends.p);
    mem_free(c->found.p);
    mem_free(c->suspects.p);
    mem_free(c->stack);
    mem_free(c->places);
    mem_free(c);
}

size_t mask_cache_bytes(const struct mask_cache *c) {
    return c ? c->a.total_bytes + c->capacity * sizeof *c->masks + c->found.capacity * sizeof *c->found.p : 0;
}

static void drop_masks(struct gram_machine *m) {
    struct mask_cache *c = m->masks;
    if (c->a.total_bytes < MAX_CACHE_BYTES) return;
    for (uint32_t i = 0; i < m->n_info; i++) m->info[i].mask = 0;
    arena_reset(&c->a);
    gram_records_free(&c->inside_keys);
    c->n = c->n_insides = 0;
    c->blanks = NULL;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------------- */

void gram_token_list_put(struct token_list *l, int32_t token) {
    if (l->n == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 1024;
        l->p = mem_realloc(l->p, l->capacity * sizeof *l->p);
    }
    l->p[l->n++] = token;
}

void mask_found(struct gram_machine *m, const struct vocab_part *p, uint32_t node) {
    for (int32_t token = p->nodes[node].token; token >= 0; token = p->same[token]) gram_token_list_put(&m->masks->found, token);
}

void mask_ended(struct gram_machine *m, const struct vocab_part *p, uint32_t node) {
    if (p->nodes[node].skip > node + 1) gram_token_list_put(&m->masks->ends, (int32_t)node);
}

/* The state behind a node of the trie, its parent's being `before`; 0: none. White space is not counted by states here, since there would be
 * one for each character of a run: the walk stays in the state before it and counts by itself. */
static struct walk_place place_behind(struct gram_machine *m, struct walk_place before, uint8_t byte) {
    const uint32_t *row = m->info[before.state].row;
    uint32_t next = row ? row[byte] : STEP_UNKNOWN;
    if (next == STEP_UNKNOWN) next = machine_step_row(m, before.state, byte);
    uint32_t n_spaces = m->info[next].n_spaces;
    if (!n_spaces) return (struct walk_place){next, 0};
    n_spaces += before.n_spaces;
    return n_spaces > m->g->options.space ? (struct walk_place){0} : (struct walk_place){m->info[next].plain, n_spaces};
}

void mask_walk(struct gram_machine *m, const struct vocab_part *p, uint32_t from, uint32_t to, uint32_t state) {
    struct walk_place *stack = m->masks->stack;
    uint32_t hole = m->masks->hole;
    if (from >= to) return;
    stack[p->nodes[from].depth - 1] = (struct walk_place){state, 0};
    for (uint32_t i = from; i < to;) {
        uint32_t depth = p->nodes[i].depth;
        if (mask_is_over(m) && m->masks->found.n) return;
        struct walk_place next = place_behind(m, stack[depth - 1], p->nodes[i].byte);
        if (!next.state) {
            i = p->nodes[i].skip;
            continue;
        }
        mask_found(m, p, i);
        if (next.state == hole) {
            mask_ended(m, p, i);
            i = p->nodes[i].skip;
            continue;
        }
        stack[depth] = next;
        i++;
    }
}

void mask_walk_bytes(struct gram_machine *m, const struct vocab_part *p, uint32_t state, const uint32_t bytes[8]) {
    for (int i = 0; i < 8; i++)
        for (uint32_t word = bytes[i]; word; word &= word - 1) {
            uint32_t first = p->first[32 * i + bits_first(word)];
            if (first < p->n) mask_walk(m, p, first, p->nodes[first].skip, state);
        }
}

/* ---- white space ------------------------------------------------------------------------------------------------------- */

/* Where JSON allows white space, and nothing else begins with it: the state behind it, uncounted. 0: not so. */
static uint32_t state_indented(struct gram_machine *m, uint32_t state) {
    uint32_t next = machine_step_row(m, state, ' ');
    return m->info[next].n_spaces == 1 ? m->info[next].plain : 0;
}

static const uint32_t *blanks_of(struct gram_machine *m) {
    struct mask_cache *c = m->masks;
    const int32_t *blank = m->v->blank;
    if (c->blanks) return c->blanks;
    uint32_t *bits = arena_new(&c->a, uint32_t, m->v->n_words);
    for (uint32_t i = 0; i < m->v->n_blank; i++)
        if (m->v->n_spaces[blank[i]] <= m->g->options.space) bits[blank[i] / 32] |= (uint32_t)1 << blank[i] % 32;
    return c->blanks = bits;
}

/* Tokens that begin with white space, behind which the state is `state`. */
static void fill_indented(struct gram_machine *m, uint32_t state) {
    struct mask_cache *c = m->masks;
    uint32_t bytes[8], kept = c->found.n;
    c->first_indented = kept;
    machine_first_bytes(m, state, bytes);
    mask_walk_bytes(m, &m->v->indented, state, bytes);
    for (uint32_t i = kept; i < c->found.n; i++)
        if (m->v->n_spaces[c->found.p[i]] <= m->g->options.space) c->found.p[kept++] = c->found.p[i];
    c->found.n = kept;
    c->n_indented = kept - c->first_indented;
    c->taken[c->n_taken++] = blanks_of(m);
}

/* ---- one mask ---------------------------------------------------------------------------------------------------------- */

static void fill_by_states(struct gram_machine *m, uint32_t state, bool has_rule) {
    struct mask_cache *c = m->masks;
    uint32_t bytes[8], indented;
    machine_first_bytes(m, state, bytes);
    if (bytes[1] & 1 && (indented = state_indented(m, state))) {
        fill_indented(m, indented);
        bytes[0] = 0; /* tabs and ends of lines */
        bytes[1] &= ~(uint32_t)1;
    }
    for (uint32_t i = 0; i < VOCAB_PARTS; i++) {
        const struct vocab_part *p = &m->v->parts[i];
        if (c->parts >> i & 1) continue;
        if (has_rule && i < VOCAB_TEXT_PARTS && gram_mask_state_takes(m, state, p)) mask_take_part(c, i);
        else mask_walk_bytes(m, p, state, bytes);
    }
}

/* A state takes what its nodes take. Strings and names are walked one by one, the others together. */
static void fill_state(struct gram_machine *m, uint32_t state) {
    uint32_t n, n_others = 0, apart[MAX_APART], n_apart = 0, *others;
    bool has_rule = false;
    const uint32_t *ids = lists_get(&m->states, state, &n);
    bool is_changed = false;
    others = mem_alloc((n + 1) * sizeof *others);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = node_kind(machine_node(m, ids[i])), id = ids[i];
        if (kind == NODE_OBJECT) id = gram_mask_free_object(m, id);
        is_changed = is_changed || id != ids[i];
        if ((kind == NODE_STRING || kind == NODE_KEY) && n_apart < MAX_APART) apart[n_apart++] = id;
        else others[n_others++] = id;
        if (kind == NODE_RULE || m->g->root_kind == ROOT_REGEX) has_rule = true;
    }
    for (uint32_t i = 0; i < n_apart; i++) {
        struct node node = *machine_node(m, apart[i]);
        if ((node_kind(&node) == NODE_STRING ? gram_mask_fill_string : gram_mask_fill_name)(m, &node)) continue;
        others[n_others++] = gram_records_put(&m->nodes, &node);
        is_changed = is_changed || others[n_others - 1] != apart[i];
    }
    if (n_others) fill_by_states(m, n_others == n && !is_changed ? state : machine_state_of_ids(m, others, n_others), has_rule);
    mem_free(others);
}

static const struct node *only_string(const struct gram_machine *m, uint32_t state, struct node *out) {
    uint32_t n;
    const uint32_t *ids = lists_get(&m->states, state, &n);
    if (n != 1) return NULL;
    *out = *machine_node(m, ids[0]);
    return node_kind(out) == NODE_STRING && !out->d && out->e == WORD_NONE ? out : NULL;
}

static bool has_bit(const uint32_t *bits, int32_t i) {
    return bits[i / 32] >> i % 32 & 1;
}

static bool is_taken(struct gram_machine *m, uint32_t state, struct str bytes) {
    for (size_t i = 0; i < bytes.n && state; i++) state = machine_step(m, state, (uint8_t)bytes.p[i]);
    return state && bytes.n;
}

/* Tries the suspects that were found. */
static void try_suspects(struct gram_machine *m, uint32_t state, uint32_t *bits) {
    const struct token_list *l = &m->masks->suspects;
    for (uint32_t i = 0; i < l->n; i++)
        if (has_bit(bits, l->p[i]) && !is_taken(m, state, m->v->bytes[l->p[i]])) bits[l->p[i] / 32] &= ~((uint32_t)1 << l->p[i] % 32);
}

/* The mask is this one and the tokens that were found; NULL in *out: nothing but those. False: it is put together from several. */
static bool find_base(const struct gram_machine *m, const uint32_t **out) {
    const struct mask_cache *c = m->masks;
    *out = c->n_taken ? c->taken[0] : c->own_parts == ALL_TEXT_PARTS ? m->v->text_bits : NULL;
    return c->n_taken + (c->own_parts != 0) <= 1 && (!c->own_parts || c->own_parts == ALL_TEXT_PARTS);
}

static void keep_mask(struct gram_machine *m, uint32_t state, struct mask *out) {
    struct mask_cache *c = m->masks;
    size_t n_words = m->v->n_words;
    *out = (struct mask){.n_indented = c->n_indented};
    bool is_whole = find_base(m, &out->base);
    if (is_whole && c->found.n <= MAX_LISTED && !c->suspects.n) {
        out->n_tokens = c->found.n;
        if (!c->found.n) return;
        out->tokens = arena_copy(&c->a, c->found.p, c->found.n * sizeof *c->found.p);
        out->indented = out->tokens + c->first_indented;
        return;
    }
    if (c->n_indented) out->indented = arena_copy(&c->a, c->found.p + c->first_indented, c->n_indented * sizeof *c->found.p);
    out->bits = arena_new(&c->a, uint32_t, n_words);
    if (out->base) memcpy(out->bits, out->base, n_words * sizeof *out->bits);
    for (uint32_t i = 1; i < c->n_taken; i++) mask_or_bits(out->bits, c->taken[i], n_words);
    for (uint32_t i = 0; i < VOCAB_TEXT_PARTS && !is_whole; i++)
        if (c->own_parts >> i & 1) mask_or_bits(out->bits, m->v->parts[i].bits, n_words);
    mask_set_bits(out->bits, &c->found, 0);
    try_suspects(m, state, out->bits);
}

static void compute_mask(struct gram_machine *m, uint32_t state, struct mask *out) {
    struct mask_cache *c = m->masks;
    c->found.n = c->suspects.n = c->n_taken = c->parts = c->own_parts = c->first_indented = c->n_indented = 0;
    c->max_work = m->work + MAX_WORK;
    fill_state(m, state);
    keep_mask(m, state, out);
}

/* The state whose mask stands for this one's: in the middle of a long string the number of characters does not matter. */
static uint32_t mask_state(struct gram_machine *m, uint32_t state) {
    struct node n;
    if (m->info[state].mask_of != UINT32_MAX) return m->info[state].mask_of;
    uint32_t same = state;
    if (only_string(m, state, &n)) {
        const struct prog_string *s = &m->g->strings[n.a];
        uint64_t reach = (uint64_t)m->v->longest + (s->lengths ? s->lengths->slack : 0);
        if (s->max != STR_LONG && n.c > s->min && s->max - n.c > reach) {
            n.c = s->min;
            same = machine_state_of(m, &n);
        }
    }
    m->info[state].mask_of = same;
    return same;
}

static const struct mask *cached_mask(struct gram_machine *m, uint32_t state) {
    struct mask_cache *c = m->masks;
    if (!m->info[state].mask) {
        machine_drop_rows(m);
        drop_masks(m);
        if (c->n == c->capacity) {
            c->capacity = c->capacity ? 2 * c->capacity : 64;
            c->masks = mem_realloc(c->masks, c->capacity * sizeof *c->masks);
        }
        struct mask mask;
        compute_mask(m, state, &mask);
        c->masks[c->n] = mask;
        m->info[state].mask = ++c->n;
    }
    return &c->masks[m->info[state].mask - 1];
}

static void copy_mask(const struct mask *k, size_t n_words, uint32_t *bits) {
    if (k->bits) memcpy(bits, k->bits, n_words * sizeof *bits);
    else if (k->base) memcpy(bits, k->base, n_words * sizeof *bits);
    else memset(bits, 0, n_words * sizeof *bits);
    for (uint32_t i = 0; i < k->n_tokens; i++) bits[k->tokens[i] / 32] |= (uint32_t)1 << k->tokens[i] % 32;
}

static void drop_long(const struct gram_vocab *v, const int32_t *tokens, uint32_t n, uint32_t most, uint32_t *bits) {
    for (uint32_t i = 0; i < n; i++)
        if (v->n_spaces[tokens[i]] > most) bits[tokens[i] / 32] &= ~((uint32_t)1 << tokens[i] % 32);
}

/* After white space, everything may follow that could before it, but less white space. */
static void drop_spaces(const struct gram_machine *m, const struct mask *k, uint32_t most, uint32_t *bits) {
    uint32_t n = 0;
    while (n < m->v->n_blank && m->v->n_spaces[m->v->blank[n]] > most) n++;
    drop_long(m->v, m->v->blank, n, most, bits);
    drop_long(m->v, k->indented, k->n_indented, most, bits);
}

void mask_write(struct gram_machine *m, uint32_t state, uint32_t *bits) {
    uint32_t n_spaces = m->info[state].n_spaces;
    const struct mask *k = cached_mask(m, n_spaces ? m->info[state].plain : mask_state(m, state));
    copy_mask(k, m->v->n_words, bits);
    if (n_spaces) drop_spaces(m, k, m->g->options.space - n_spaces, bits);
    for (size_t i = 0; i < m->n_eos && machine_may_end(m, state); i++)
        if (m->eos[i] >= 0 && (size_t)m->eos[i] < m->v->n_tokens) bits[m->eos[i] / 32] |= (uint32_t)1 << m->eos[i] % 32;
}
