/* Masks inside strings and names.
 *
 * The walk follows the automaton of the string or name alone and comes back to the machine's states at the closing quote and at
 * escapes. Texts that must differ from earlier ones (names that are counted, unique items) are walked as if they need not, so that
 * their states are the same every time; the few tokens for which it matters are noted as suspects: those that end an earlier text
 * again, and those that hold two whole texts. */
#include "text/grammar/mask_internal.h"

enum { MAX_PAIRS = 48, MAX_CLOSED = 16 };

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

bool gram_mask_state_takes(struct gram_machine *m, uint32_t state, const struct vocab_part *p) {
    struct pairs pairs = {.n = 0};
    pair_put(&pairs, p->language->start, state);
    for (uint32_t i = 0; i < pairs.n; i++)
        for (int b = 0; b < 256; b++) {
            uint32_t part = dfa_step(p->language, pairs.part[i], (uint8_t)b);
            if (!part) continue;
            if (mask_is_over(m)) return false;
            uint32_t other = machine_step_row(m, pairs.other[i], (uint8_t)b);
            if (!other || !pair_put(&pairs, part, other)) return false;
        }
    return true;
}

/* ---- texts that must differ -------------------------------------------------------------------------------------------- */

static const struct word *word_get(const struct gram_machine *m, uint32_t word) {
    return records_get(&m->words, word);
}

/* Tokens that begin with these bytes and then a quote. */
static void suspect_ending(struct gram_machine *m, const uint8_t *bytes, uint32_t n) {
    const struct vocab_part *p = &m->v->parts[VOCAB_REST];
    uint32_t at = p->first[n ? bytes[0] : '"'], end;
    for (uint32_t i = 1; i <= n && at < p->n; i++) {
        uint8_t byte = i < n ? bytes[i] : '"';
        for (end = p->skips[at], at++; at < end && p->bytes[at] != byte;) at = p->skips[at];
        if (at >= end) return;
    }
    if (at >= p->n) return;
    for (end = p->skips[at]; at < end; at++)
        for (int32_t t = p->tokens[at]; t >= 0; t = m->v->same[t]) gram_token_list_put(&m->masks->suspects, t);
}

static void suspect_list(struct gram_machine *m, const int32_t *tokens, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) gram_token_list_put(&m->masks->suspects, tokens[i]);
}

static bool is_special(uint32_t byte) {
    return byte < 0x20 || byte == '"' || byte == '\\';
}

/* What a word of the set has behind `word`; false: it does not begin so, or no token is as long. */
static bool rest_of(const struct gram_machine *m, uint32_t other, uint32_t word, uint8_t *rest, uint32_t *out_n) {
    uint32_t length = word_get(m, word)->length, whole = word_get(m, other)->length;
    if (whole < length || whole - length > m->v->longest) return false;
    *out_n = whole - length;
    for (uint32_t i = *out_n; i > 0; other = word_get(m, other)->before) rest[--i] = (uint8_t)word_get(m, other)->byte;
    return other == word;
}

/* `word` is under way, the texts of `set` were there before. *by_escape: escapes may repeat one of them. */
static void note_suspects(struct gram_machine *m, uint32_t word, uint32_t set, bool *by_escape) {
    uint8_t *rest = mem_alloc(m->v->longest + 1);
    uint32_t n;
    *by_escape = false;
    for (; set; set = gram_wordset_before(m, set)) {
        if (!rest_of(m, gram_wordset_last(m, set), word, rest, &n)) continue;
        suspect_ending(m, rest, n);
        if (m->g->options.any_escape) *by_escape = true;
        for (uint32_t i = 0; i < n; i++)
            if (is_special(rest[i])) *by_escape = true;
    }
    mem_free(rest);
    if (*by_escape) suspect_list(m, m->v->escaped, m->v->n_escaped);
    suspect_list(m, m->v->quoted, m->v->n_quoted);
}

/* From every state there is no end of texts. */
static bool has_no_end(const uint32_t *counts, const struct dfa *d) {
    for (uint32_t i = 1; i < d->n_states; i++)
        if (counts[i] != PROG_MANY) return false;
    return true;
}

/* There is no end of names that no key has, however a name begins. */
static bool object_is_endless(const struct gram *g, const struct object_progress *p) {
    uint32_t extras = g->objects[p->shape].extras;
    return has_no_end(g->counts[extras], prog_dfa(g, extras));
}

/* ---- strings ----------------------------------------------------------------------------------------------------------- */

struct string_walk {
    const struct node *n;
    const struct prog_string *s;
    const struct dfa *d;
    uint32_t closed; /* the state behind the closing quote */
};

static struct text_place string_next(const struct string_walk *w, struct text_place at, uint8_t byte) {
    at.state = dfa_step(w->d, at.state, byte);
    if ((byte & 0xC0) != 0x80 && (w->s->max != STR_LONG || at.n < w->s->min)) at.n++;
    if (at.state && !gram_strlengths_fits(w->s->lengths, at.state, w->s->min, w->s->max, at.n)) at.state = 0;
    return at;
}

/* An escape at node i: from there on the walk goes by states. */
static void string_escape(struct gram_machine *m, const struct string_walk *w, const struct vocab_part *p, uint32_t i,
                          struct text_place at) {
    struct node n = *w->n;
    n.b = at.state;
    n.c = at.n;
    mask_walk(m, p, i, p->skips[i], machine_state_of(m, &n));
}

static void walk_string(struct gram_machine *m, const struct string_walk *w, const struct vocab_part *p) {
    struct text_place *places = m->masks->places;
    places[0] = (struct text_place){w->n->b, w->n->c};
    for (uint32_t i = 0; i < p->n;) {
        uint32_t depth = p->depths[i];
        uint8_t byte = p->bytes[i];
        struct text_place at = places[depth - 1];
        if (byte == '"') {
            if (w->d->labels[at.state] && at.n >= w->s->min) {
                mask_found(m, p->tokens[i]);
                mask_walk(m, p, i + 1, p->skips[i], w->closed);
            }
            i = p->skips[i];
            continue;
        }
        if (byte == '\\') string_escape(m, w, p, i, at);
        at = byte >= 0x20 && byte != '\\' ? string_next(w, at, byte) : (struct text_place){0};
        places[depth] = at;
        if (!at.state) {
            i = p->skips[i];
            continue;
        }
        mask_found(m, p->tokens[i]);
        i++;
    }
}

static bool string_takes(const struct string_walk *w, const struct vocab_part *p) {
    struct pairs pairs;
    uint32_t chars = w->n->c, last = chars + p->longest;
    if (!dfa_takes(w->d, w->n->b, p->language, &pairs)) return false;
    if (w->s->max == STR_LONG) last = chars;
    for (uint32_t i = 0; i < pairs.n; i++)
        for (uint32_t c = chars; c <= last; c++)
            if (!gram_strlengths_fits(w->s->lengths, pairs.other[i], w->s->min, w->s->max, c)) return false;
    return true;
}

/* Any text as long as the string may still become: tokens of text need no walk then. */
static bool take_base(struct gram_machine *m, const struct string_walk *w) {
    struct mask_cache *c = m->masks;
    const struct gram_vocab *v = m->v;
    if (w->s->lengths || !gram_string_is_any(m->g, w->s) || w->n->b != w->d->start) return false;
    uint32_t left = w->s->max == STR_LONG ? v->longest_text : w->s->max - w->n->c;
    if (left > v->longest_text) left = v->longest_text;
    if (left < v->longest_text && left >= VOCAB_LENGTHS) return false;
    if (c->base && c->base_chars >= left) return true;
    c->base = left == v->longest_text ? v->text_bits : v->length_bits[left];
    c->base_chars = left;
    return true;
}

/* In a list whose items must differ: every item has no end of values, so that one value more does not matter. */
static bool has_many_items(const struct gram_machine *m, uint32_t up) {
    uint32_t n;
    const uint32_t *ids = lists_get(&m->ups, up, &n);
    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = machine_node(m, ids[i]);
        if (node_kind(node) != NODE_ARRAY) return false;
        const struct array_progress *p = records_get(&m->arrays, node->a);
        const struct prog_array *a = &m->g->arrays[p->shape];
        for (uint32_t k = 0; k < a->rest.n; k++)
            if (m->g->goals[a->rest.p[k].goal].n_values != PROG_MANY) return false;
        if (a->n_prefix) return false;
    }
    return true;
}

bool gram_mask_fill_string(struct gram_machine *m, struct node *n) {
    struct mask_cache *c = m->masks;
    const struct prog_string *s = &m->g->strings[n->a];
    const struct dfa *d = prog_dfa(m->g, s->dfa);
    bool by_escape;
    if (n->e != WORD_NONE) {
        if (!has_no_end(m->g->counts[s->dfa], d) || !has_many_items(m, n->up)) return false;
        note_suspects(m, n->e, n->f, &by_escape);
        if (n->d && by_escape) return false;
        n->e = WORD_NONE;
        n->f = 0;
    }
    if (n->d) return false;
    struct string_walk w = {.n = n, .s = s, .d = d, .closed = machine_behind(m, n)};
    for (uint32_t i = take_base(m, &w) ? VOCAB_TEXT_PARTS : 0; i < VOCAB_PARTS; i++) {
        if (i == VOCAB_CONTROL) continue;
        if (i < VOCAB_TEXT_PARTS && (c->base == m->v->text_bits || c->parts >> i & 1)) continue;
        if (i < VOCAB_TEXT_PARTS && string_takes(&w, &m->v->parts[i])) c->parts |= (uint32_t)1 << i;
        else walk_string(m, &w, &m->v->parts[i]);
    }
    return true;
}

/* ---- names ------------------------------------------------------------------------------------------------------------- */

struct name_walk {
    const struct node *n;
    struct object_progress p;
    const struct prog_object *o;
    const struct dfa *d; /* of names that no key has */
    uint64_t takes;      /* classes of such names that may come */
    struct {
        uint32_t key, label, state;
    } closed[MAX_CLOSED]; /* states behind the closing quote */
    uint32_t n_closed;
};

static bool name_walk_fits(struct gram_machine *m, const struct name_walk *w, struct text_place at) {
    if (at.state && w->o->extra_classes[at.state] & w->takes) return true;
    return at.n && gram_name_fits(m, &w->p, (struct name_place){.trie = at.n});
}

static uint32_t name_closed(struct gram_machine *m, struct name_walk *w, struct text_place at) {
    uint32_t key = at.n ? w->o->trie[at.n - 1].key : PROG_NONE, label = key == PROG_NONE ? w->d->labels[at.state] : 0;
    if (key == PROG_NONE && !label) return 0;
    for (uint32_t i = 0; i < w->n_closed; i++)
        if (w->closed[i].key == key && w->closed[i].label == label) return w->closed[i].state;
    gram_name_end(m, &w->p, (struct name_place){at.n, at.state, WORD_NONE}, w->n->up);
    uint32_t state = machine_emitted_state(m);
    if (w->n_closed < MAX_CLOSED) {
        w->closed[w->n_closed].key = key;
        w->closed[w->n_closed].label = label;
        w->closed[w->n_closed++].state = state;
    }
    return state;
}

static void name_escape(struct gram_machine *m, const struct name_walk *w, const struct vocab_part *p, uint32_t i, struct text_place at) {
    struct node n = *w->n;
    n.b = at.n;
    n.c = at.state;
    mask_walk(m, p, i, p->skips[i], machine_state_of(m, &n));
}

static struct text_place name_place_next(struct gram_machine *m, const struct name_walk *w, struct text_place at, uint8_t byte) {
    struct name_place next = gram_name_next(m, &w->p, (struct name_place){at.n, at.state, WORD_NONE}, byte);
    return (struct text_place){next.extra, next.trie};
}

static void walk_name(struct gram_machine *m, struct name_walk *w, const struct vocab_part *p) {
    struct text_place *places = m->masks->places;
    places[0] = (struct text_place){w->n->c, w->n->b};
    for (uint32_t i = 0; i < p->n;) {
        uint32_t depth = p->depths[i];
        uint8_t byte = p->bytes[i];
        struct text_place at = places[depth - 1];
        if (byte == '"') {
            uint32_t closed = name_closed(m, w, at);
            if (closed) {
                mask_found(m, p->tokens[i]);
                mask_walk(m, p, i + 1, p->skips[i], closed);
            }
            i = p->skips[i];
            continue;
        }
        if (byte == '\\') name_escape(m, w, p, i, at);
        places[depth] = byte >= 0x20 && byte != '\\' ? name_place_next(m, w, at, byte) : (struct text_place){0};
        at = places[depth];
        if (!name_walk_fits(m, w, at)) {
            i = p->skips[i];
            continue;
        }
        mask_found(m, p->tokens[i]);
        i++;
    }
}

/* A name that no key has may go on with anything of the part. */
static bool name_takes(const struct name_walk *w, const struct vocab_part *p) {
    struct pairs pairs;
    if (!dfa_takes(w->d, w->n->c, p->language, &pairs)) return false;
    for (uint32_t i = 0; i < pairs.n; i++)
        if (!(w->o->extra_classes[pairs.other[i]] & w->takes)) return false;
    return true;
}

bool gram_mask_fill_name(struct gram_machine *m, struct node *n) {
    struct mask_cache *c = m->masks;
    bool by_escape;
    struct name_walk w = {.n = n, .p = *(const struct object_progress *)records_get(&m->objects, n->a)};
    w.o = &m->g->objects[w.p.shape];
    w.d = prog_dfa(m->g, w.o->extras);
    if (!n->c || !object_is_endless(m->g, &w.p)) return false;
    if (n->e != WORD_NONE) {
        note_suspects(m, n->e, w.p.extras, &by_escape);
        if (n->d && by_escape) return false;
        w.p.extras = NAMES_FREE;
        n->a = gram_records_put(&m->objects, &w.p);
        n->e = WORD_NONE;
    }
    if (n->d) return false;
    for (uint32_t i = 0; i < w.o->n_classes; i++)
        if (gram_object_takes_extra(m->g, &w.p, gram_seen_bits(m, &w.p), i)) w.takes |= (uint64_t)1 << i;
    for (uint32_t i = 0; i < VOCAB_PARTS; i++) {
        if (i == VOCAB_CONTROL) continue;
        if (i < VOCAB_TEXT_PARTS && (c->base == m->v->text_bits || c->parts >> i & 1)) continue;
        if (i < VOCAB_TEXT_PARTS && name_takes(&w, &m->v->parts[i])) c->parts |= (uint32_t)1 << i;
        else walk_name(m, &w, &m->v->parts[i]);
    }
    return true;
}

/* ---- objects ----------------------------------------------------------------------------------------------------------- */

static bool word_is(const struct gram_machine *m, uint32_t word, struct str text) {
    const struct word *w = word_get(m, word);
    if (w->length != text.n) return false;
    for (size_t i = text.n; i > 0; w = word_get(m, w->before))
        if ((uint8_t)text.p[--i] != w->byte) return false;
    return true;
}

/* A token with two quotes or more: between the first two stands a name that was there, or one with escapes. */
static bool may_repeat(const struct gram_machine *m, struct str token, uint32_t set) {
    size_t from = str_find_char(token, '"', 0) + 1;
    struct str name = str_sub(token, from, str_find_char(token, '"', from) - from);
    if (str_find_char(name, '\\', 0) != STR_NONE) return true;
    for (; set; set = gram_wordset_before(m, set))
        if (word_is(m, gram_wordset_last(m, set), name)) return true;
    return false;
}

uint32_t gram_mask_free_object(struct gram_machine *m, uint32_t node) {
    struct node n = *machine_node(m, node);
    struct object_progress p = *(const struct object_progress *)records_get(&m->objects, n.a);
    if (!m->g->objects[p.shape].tracks_extras || !object_is_endless(m->g, &p)) return node;
    for (uint32_t i = 0; i < m->v->n_paired; i++)
        if (may_repeat(m, m->v->bytes[m->v->paired[i]], p.extras)) gram_token_list_put(&m->masks->suspects, m->v->paired[i]);
    suspect_list(m, m->v->quoted, m->v->n_quoted);
    p.extras = NAMES_FREE;
    n.a = gram_records_put(&m->objects, &p);
    return gram_records_put(&m->nodes, &n);
}
