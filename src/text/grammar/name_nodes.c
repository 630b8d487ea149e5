/* Names of members: keys of the schema in a trie, other names in an automaton, both at once. */
#include "text/grammar/machine.h"

const uint32_t *gram_seen_bits(const struct gram_machine *m, const struct object_progress *p) {
    uint32_t n;
    const uint32_t *bits = lists_get(&m->seen, p->seen, &n);
    return n ? bits : NULL;
}

struct name_place gram_name_begin(const struct gram_machine *m, const struct object_progress *p) {
    const struct prog_object *o = &m->g->objects[p->shape];
    struct name_place at = {.trie = o->n_keys ? 1 : 0};
    for (uint32_t c = 0; c < o->n_classes && !at.extra; c++)
        if (gram_object_takes_extra(m->g, p, gram_seen_bits(m, p), c)) at.extra = prog_dfa(m->g, o->extras)->start;
    if (at.extra && o->tracks_extras && p->extras != NAMES_FREE) at.word = WORD_STRING;
    return at;
}

struct name_place gram_name_next(struct gram_machine *m, const struct object_progress *p, struct name_place at, uint8_t byte) {
    const struct prog_object *o = &m->g->objects[p->shape];
    if (at.trie) {
        uint32_t child = o->trie[at.trie - 1].child;
        while (child && o->trie[child].byte != byte) child = o->trie[child].sibling;
        at.trie = child ? child + 1 : 0;
    }
    if (at.extra) at.extra = dfa_step(prog_dfa(m->g, o->extras), at.extra, byte);
    if (at.extra) at.word = gram_word_add(m, at.word, byte);
    return at;
}

static bool any_key_fits(const struct gram_machine *m, const struct object_progress *p, struct name_place at) {
    const struct prog_object *o = &m->g->objects[p->shape];
    if (!at.trie) return false;
    const struct prog_trie_node *t = &o->trie[at.trie - 1];
    const uint32_t *seen = gram_seen_bits(m, p);
    for (uint32_t k = t->first; k < t->end; k++)
        if (gram_object_takes_key(m->g, p, seen, &o->keys[k])) return true;
    return false;
}

bool gram_name_fits(struct gram_machine *m, const struct object_progress *p, struct name_place at) {
    const struct prog_object *o = &m->g->objects[p->shape];
    if (at.extra) {
        const uint32_t *seen = gram_seen_bits(m, p);
        bool fits = false;
        for (uint32_t c = 0; c < o->n_classes && !fits; c++)
            fits = (o->extra_classes[at.extra] >> c & 1) && gram_object_takes_extra(m->g, p, seen, c);
        uint32_t left = m->g->counts[o->extras][at.extra];
        if (fits && left != PROG_MANY) { /* few names: are some of them neither keys nor used up? */
            uint32_t used = at.trie ? o->trie[at.trie - 1].end - o->trie[at.trie - 1].first : 0;
            if (at.word) used += gram_wordset_count(m, p->extras, at.word);
            fits = left > used;
        }
        if (fits) return true;
    }
    return any_key_fits(m, p, at);
}

static uint32_t add_seen(struct gram_machine *m, const struct object_progress *p, uint32_t key) {
    uint32_t n, n_words = (m->g->objects[p->shape].n_keys + 31) / 32;
    uint32_t *bits = mem_alloc(n_words * sizeof *bits);
    const uint32_t *old = lists_get(&m->seen, p->seen, &n);
    if (n) memcpy(bits, old, n * sizeof *bits);
    bits[key / 32] |= (uint32_t)1 << key % 32;
    uint32_t set = gram_lists_put(&m->seen, bits, n_words);
    mem_free(bits);
    return set;
}

/* The values that may follow a name, each with the object's progress behind it. */
static void emit_value(struct gram_machine *m, const struct object_progress *next, uint32_t goal, uint32_t up) {
    if (!m->g->goals[goal].is_possible || !gram_object_fits(m->g, next, gram_seen_bits(m, next))) return;
    struct node after = {.tag = node_tag(NODE_OBJECT, OBJECT_AFTER), .a = gram_records_put(&m->objects, next), .up = up};
    struct node colon = {.tag = node_tag(NODE_COLON, 0), .a = goal};
    colon.up = machine_up_of(m, &after);
    machine_emit(m, &colon);
}

static void end_key(struct gram_machine *m, const struct object_progress *p, uint32_t key, uint32_t up) {
    const struct prog_key *k = &m->g->objects[p->shape].keys[key];
    if (!gram_object_takes_key(m->g, p, gram_seen_bits(m, p), k)) return;
    for (uint32_t i = 0; i < k->choices.n; i++) {
        struct object_progress next = gram_object_after_key(m->g, p, k, k->choices.p[i].meets);
        if (m->g->options.any_order) next.seen = add_seen(m, p, key);
        emit_value(m, &next, k->choices.p[i].goal, up);
    }
}

void gram_name_end(struct gram_machine *m, const struct object_progress *p, struct name_place at, uint32_t up) {
    const struct prog_object *o = &m->g->objects[p->shape];
    uint32_t key = at.trie ? o->trie[at.trie - 1].key : PROG_NONE;
    if (key != PROG_NONE) {
        end_key(m, p, key, up);
        return;
    }
    uint16_t label = prog_dfa(m->g, o->extras)->labels[at.extra];
    if (!label || !gram_object_takes_extra(m->g, p, gram_seen_bits(m, p), label - 1u)) return;
    if (at.word && gram_wordset_has(m, p->extras, at.word)) return;
    const struct prog_choices *choices = &o->classes[label - 1];
    for (uint32_t i = 0; i < choices->n; i++) {
        struct object_progress next = gram_object_after_extra(m->g, p, choices->p[i].meets);
        if (at.word) next.extras = gram_wordset_add(m, p->extras, at.word);
        emit_value(m, &next, choices->p[i].goal, up);
    }
}
