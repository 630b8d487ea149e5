/* Masks inside strings and names.
 *
 * The walk follows the automaton of the string or name alone and comes back to the machine's states at the closing quote and at
 * escapes. Texts that must differ from earlier ones (names that are counted, unique items) are walked as if they need not, so that
 * their states are the same every time; the few tokens for which it matters are noted as suspects: those that end an earlier text
 * again, and those that hold two whole texts. */
#include "text/grammar/mask_internal.h"

enum { MAX_PAIRS = 48, MAX_DFA_PAIRS = 1 << 13, MAX_CLOSED = 16 };

/* ---- parts that are taken whole ---------------------------------------------------------------------------------------- */

/* Bytes that neither of two automata tells apart, one of each. */
static uint32_t joint_bytes(const struct dfa *x, const struct dfa *y, uint8_t out[256]) {
    uint32_t n = 0, seen[256 * 256 / 32]; /* pairs of columns */
    memset(seen, 0, ((size_t)x->n_classes * y->n_classes / 32 + 1) * sizeof *seen);
    for (int b = 0; b < 256; b++) {
        uint32_t pair = x->classes[b] * y->n_classes + y->classes[b], bit = (uint32_t)1 << pair % 32;
        if (seen[pair / 32] & bit) continue;
        seen[pair / 32] |= bit;
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

struct dfa_pairs { /* the same for automata, whose states are few enough for a bit each */
    uint32_t seen[MAX_DFA_PAIRS / 32];
    uint16_t part[MAX_DFA_PAIRS], other[MAX_DFA_PAIRS];
    uint32_t n;
};

static void dfa_pair_put(struct dfa_pairs *p, const struct dfa *language, uint32_t part, uint32_t other) {
    uint32_t at = other * language->n_states + part, bit = (uint32_t)1 << at % 32;
    if (p->seen[at / 32] & bit) return;
    p->seen[at / 32] |= bit;
    p->part[p->n] = (uint16_t)part;
    p->other[p->n++] = (uint16_t)other;
}

/* Every text of the part's language leads from `state` to a live state of d; those are left in *out. */
static bool dfa_takes(const struct dfa *d, uint32_t state, const struct dfa *language, struct dfa_pairs *out) {
    uint8_t bytes[256];
    uint64_t n_pairs = (uint64_t)d->n_states * language->n_states;
    if (n_pairs > MAX_DFA_PAIRS) return false;
    uint32_t n_bytes = joint_bytes(d, language, bytes);
    memset(out->seen, 0, (size_t)(n_pairs + 31) / 32 * sizeof *out->seen);
    out->n = 0;
    dfa_pair_put(out, language, language->start, state);
    for (uint32_t i = 0; i < out->n; i++)
        for (uint32_t k = 0; k < n_bytes; k++) {
            uint32_t part = dfa_step(language, out->part[i], bytes[k]), other = dfa_step(d, out->other[i], bytes[k]);
            if (!part) continue;
            if (!other) return false;
            dfa_pair_put(out, language, part, other);
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
        for (end = p->nodes[at].skip, at++; at < end && p->nodes[at].byte != byte;) at = p->nodes[at].skip;
        if (at >= end) return;
    }
    if (at >= p->n) return;
    for (end = p->nodes[at].skip; at < end; at++)
        for (int32_t t = p->nodes[at].token; t >= 0; t = p->same[t]) gram_token_list_put(&m->masks->suspects, t);
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
    bool is_counted; /* the number of characters matters */
    bool is_bounded; /* and a token may have too many, or lead where too few can come */
};

static struct string_walk string_walk_of(const struct gram_machine *m, const struct node *n) {
    const struct prog_string *s = &m->g->strings[n->a];
    struct string_walk w = {.n = n, .s = s, .d = prog_dfa(m->g, s->dfa)};
    uint64_t reach = (uint64_t)m->v->longest + (s->lengths ? s->lengths->slack : 0);
    w.is_counted = n->c < s->min || s->max != STR_LONG;
    w.is_bounded = n->c < s->min || (s->max != STR_LONG && s->max - n->c <= reach);
    return w;
}

static struct text_place string_next(const struct string_walk *w, struct text_place at, uint8_t byte) {
    at.state = dfa_step(w->d, at.state, byte);
    if (!at.state || !w->is_counted) return at;
    if ((byte & 0xC0) != 0x80 && (w->s->max != STR_LONG || at.n < w->s->min)) at.n++;
    if (w->is_bounded && !gram_strlengths_fits(w->s->lengths, at.state, w->s->min, w->s->max, at.n)) at.state = 0;
    return at;
}

/* An escape at node i: from there on the walk goes by states, up to the hole. */
static void string_escape(struct gram_machine *m, const struct string_walk *w, const struct vocab_part *p, uint32_t i,
                          struct text_place at) {
    struct node n = *w->n;
    n.b = at.state;
    n.c = at.n;
    n.up = m->masks->hole_up;
    mask_walk(m, p, i, p->nodes[i].skip, machine_state_of(m, &n));
}

/* What stays inside goes to the bits, what has escapes is found. */
static void walk_string(struct gram_machine *m, const struct string_walk *w, const struct vocab_part *p, uint32_t *bits) {
    struct text_place *places = m->masks->places;
    places[0] = (struct text_place){w->n->b, w->n->c};
    for (uint32_t i = 0; i < p->n;) {
        uint32_t depth = p->nodes[i].depth;
        uint8_t byte = p->nodes[i].byte;
        struct text_place at = places[depth - 1];
        bool is_end = false;
        if (byte == '"') is_end = w->d->labels[at.state] && at.n >= w->s->min;
        else if (byte == '\\') string_escape(m, w, p, i, at);
        else at = string_next(w, at, byte);
        if (is_end) mask_ended(m, p, i);
        else if (byte == '"' || byte == '\\' || byte < 0x20) at.state = 0;
        places[depth] = at;
        if (at.state)
            for (int32_t t = p->nodes[i].token; t >= 0; t = p->same[t]) bits[t / 32] |= (uint32_t)1 << t % 32;
        i = at.state && !is_end ? i + 1 : p->nodes[i].skip;
    }
}

/* How many characters may still come. */
static uint32_t chars_left(const struct string_walk *w) {
    return w->s->max == STR_LONG ? STR_LONG : w->s->max - w->n->c;
}

/* Any characters. */
static bool takes_any(const struct gram_machine *m, const struct string_walk *w) {
    return !w->s->lengths && gram_string_is_any(m->g, w->s) && w->n->b == w->d->start;
}

/* Every text of the part that is not too long. */
static bool string_takes(const struct string_walk *w, const struct vocab_part *p) {
    struct dfa_pairs pairs;
    uint32_t chars = w->n->c, left = chars_left(w), last = chars;
    if (!dfa_takes(w->d, w->n->b, p->language, &pairs)) return false;
    if (!w->is_bounded) return true;
    if (left != STR_LONG) last += left < p->longest ? left : p->longest;
    for (uint32_t i = 0; i < pairs.n; i++)
        for (uint32_t c = chars; c <= last; c++)
            if (!gram_strlengths_fits(w->s->lengths, pairs.other[i], w->s->min, w->s->max, c)) return false;
    return true;
}

/* Takes tokens of text out of the bits that have more characters. */
static void cut_long(const struct gram_vocab *v, uint32_t chars, uint32_t *bits) {
    if (chars < VOCAB_LENGTHS)
        for (size_t i = 0; i < v->n_words; i++) bits[i] &= v->length_bits[chars][i];
    for (uint32_t i = 0; i < v->n_long && v->long_texts[i].n > chars; i++)
        bits[v->long_texts[i].token / 32] &= ~((uint32_t)1 << v->long_texts[i].token % 32);
}

/* What the string takes from here on. Nothing of the cache's walk is changed. */
static struct inside make_inside(struct gram_machine *m, const struct string_walk *w) {
    struct mask_cache *c = m->masks;
    const struct gram_vocab *v = m->v;
    bool is_any = takes_any(m, w);
    uint32_t left = chars_left(w), whole = 0, n_found = c->found.n, *bits = arena_new(&c->a, uint32_t, v->n_words);
    struct inside in = {.bits = bits};
    if (!is_any && string_takes(w, &v->parts[VOCAB_TEXT_PARTS - 1])) is_any = true; /* its language has all the others in it */
    if (is_any) {
        whole = ALL_TEXT_PARTS;
        memcpy(bits, v->text_bits, v->n_words * sizeof *bits);
    }
    for (uint32_t i = 0; i < VOCAB_TEXT_PARTS - 1 && !is_any; i++)
        if (string_takes(w, &v->parts[i])) {
            whole |= (uint32_t)1 << i;
            mask_or_bits(bits, v->parts[i].bits, v->n_words);
        }
    if (left < v->longest_text) cut_long(v, left, bits);
    c->ends.n = 0;
    for (uint32_t i = 0; i < VOCAB_PARTS; i++) {
        if (whole >> i & 1 && v->parts[i].longest <= left) in.parts |= (uint32_t)1 << i;
        if (!(whole >> i & 1) && i != VOCAB_CONTROL) walk_string(m, w, &v->parts[i], bits);
    }
    mask_set_bits(bits, &c->found, n_found);
    c->found.n = n_found;
    in.n_ends = c->ends.n;
    if (in.n_ends) in.ends = arena_copy(&c->a, c->ends.p, in.n_ends * sizeof *in.ends);
    return in;
}

static const struct inside *inside_of(struct gram_machine *m, const struct string_walk *w) {
    struct mask_cache *c = m->masks;
    struct inside_key key = {w->n->a, w->n->b, w->n->c};
    uint32_t at = gram_records_put(&c->inside_keys, &key);
    if (at < c->n_insides) return &c->insides[at];
    if (c->n_insides == c->insides_capacity) {
        c->insides_capacity = c->insides_capacity ? 2 * c->insides_capacity : 16;
        c->insides = mem_realloc(c->insides, c->insides_capacity * sizeof *c->insides);
    }
    c->insides[c->n_insides] = make_inside(m, w);
    return &c->insides[c->n_insides++];
}

/* Any characters, and so many of them that no token has more. */
static bool is_any_from_here(const struct gram_machine *m, const struct string_walk *w) {
    return takes_any(m, w) && w->n->c >= w->s->min && chars_left(w) >= m->v->longest;
}

/* Tokens that go on behind the closing quote. */
static void walk_closing(struct gram_machine *m, uint32_t closed) {
    uint32_t bytes[8];
    machine_first_bytes(m, closed, bytes);
    mask_walk_bytes(m, &m->v->closing, closed, bytes);
}

static void walk_ends(struct gram_machine *m, const struct inside *in, uint32_t closed) {
    const struct vocab_part *p = &m->v->parts[VOCAB_REST];
    for (uint32_t i = 0; i < in->n_ends; i++) mask_walk(m, p, (uint32_t)in->ends[i] + 1, p->nodes[in->ends[i]].skip, closed);
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
    struct string_walk w = string_walk_of(m, n);
    bool is_any = is_any_from_here(m, &w);
    const struct inside in = is_any ? m->v->any : *inside_of(m, &w);
    c->taken[c->n_taken++] = in.bits;
    c->parts |= in.parts;
    if (is_any) walk_closing(m, machine_behind(m, n));
    else if (in.n_ends) walk_ends(m, &in, machine_behind(m, n));
    return true;
}

/* The tokens that close a string of any characters, by what they have behind the quote. */
static void sort_closing(struct gram_vocab *v) {
    const struct vocab_part *p = &v->parts[VOCAB_REST];
    struct vocab_entry *e = mem_alloc((v->n_tokens + 1) * sizeof *e);
    size_t n = 0;
    for (uint32_t i = 0; i < v->any.n_ends; i++) {
        uint32_t end = (uint32_t)v->any.ends[i];
        for (uint32_t k = end + 1; k < p->nodes[end].skip; k++)
            for (int32_t t = p->nodes[k].token; t >= 0; t = p->same[t])
                e[n++] = (struct vocab_entry){str_from(v->bytes[t], p->nodes[end].depth), t};
    }
    gram_vocab_sort(e, n);
    gram_vocab_trie(v, &v->closing, gram_vocab_same(v), e, n);
    mem_free(e);
}

int gram_vocab_find_any(struct gram_vocab *v, struct err *err) {
    struct gram *g;
    struct gram_options options = gram_defaults();
    struct gram_source source = {.kind = GRAM_JSON_SCHEMA, .text = STR("{\"type\":\"string\"}")};
    TRY(gram_compile(&source, &options, NULL, &g, err));
    struct gram_machine *m = gram_machine_create(g, v, NULL, 0);
    uint32_t n;
    const struct node node = *machine_node(m, lists_get(&m->states, machine_step(m, m->start, '"'), &n)[0]);
    struct string_walk w = string_walk_of(m, &node);
    m->masks->max_work = UINT64_MAX;
    v->any = make_inside(m, &w);
    v->any.bits = arena_copy(&v->a, v->any.bits, v->n_words * sizeof *v->any.bits);
    if (v->any.n_ends) v->any.ends = arena_copy(&v->a, v->any.ends, v->any.n_ends * sizeof *v->any.ends);
    gram_machine_destroy(m);
    gram_destroy(g);
    sort_closing(v);
    return ERR_OK;
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
    mask_walk(m, p, i, p->nodes[i].skip, machine_state_of(m, &n));
}

static struct text_place name_place_next(struct gram_machine *m, const struct name_walk *w, struct text_place at, uint8_t byte) {
    struct name_place next = gram_name_next(m, &w->p, (struct name_place){at.n, at.state, WORD_NONE}, byte);
    return (struct text_place){next.extra, next.trie};
}

static void walk_name(struct gram_machine *m, struct name_walk *w, const struct vocab_part *p) {
    struct text_place *places = m->masks->places;
    places[0] = (struct text_place){w->n->c, w->n->b};
    for (uint32_t i = 0; i < p->n;) {
        uint32_t depth = p->nodes[i].depth;
        uint8_t byte = p->nodes[i].byte;
        struct text_place at = places[depth - 1];
        if (byte == '"') {
            uint32_t closed = name_closed(m, w, at);
            if (closed) {
                mask_found(m, p, i);
                mask_walk(m, p, i + 1, p->nodes[i].skip, closed);
            }
            i = p->nodes[i].skip;
            continue;
        }
        if (byte == '\\') name_escape(m, w, p, i, at);
        places[depth] = byte >= 0x20 && byte != '\\' ? name_place_next(m, w, at, byte) : (struct text_place){0};
        at = places[depth];
        if (!name_walk_fits(m, w, at)) {
            i = p->nodes[i].skip;
            continue;
        }
        mask_found(m, p, i);
        i++;
    }
}

/* A name that no key has may go on with anything of the part. */
static bool name_takes(const struct name_walk *w, const struct vocab_part *p) {
    struct dfa_pairs pairs;
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
        if (c->parts >> i & 1) continue;
        if (i < VOCAB_TEXT_PARTS && name_takes(&w, &m->v->parts[i])) mask_take_part(c, i);
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
