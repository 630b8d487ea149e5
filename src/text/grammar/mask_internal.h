/* What mask.c and mask_text.c share: the cache, and the walk that is under way. */
#ifndef MLXCEL_TEXT_GRAMMAR_MASK_INTERNAL_H
#define MLXCEL_TEXT_GRAMMAR_MASK_INTERNAL_H

#include "text/grammar/mask.h"
#include "text/grammar/vocab_trie.h"

struct mask {
    const uint32_t *base; /* NULL: nothing */
    uint32_t *bits;       /* everything; NULL: base and tokens */
    int32_t *tokens;
    const int32_t *indented; /* those with white space before something else */
    uint32_t n_tokens, n_indented;
};

struct token_list {
    int32_t *p;
    uint32_t n, capacity;
};

struct walk_place { /* at one depth of the walk */
    uint32_t state;
    uint32_t n_spaces; /* white space before it that the state does not count */
};

struct text_place { /* inside a string or a name, at one depth of the walk */
    uint32_t state; /* of the automaton of strings, or of names that no key has */
    uint32_t n;     /* characters of a string; a name's node in the trie of keys + 1 */
};

struct inside_key {
    uint32_t string, state, n_chars;
};

enum { MAX_APART = 8 }; /* strings and names of one state that are walked one by one */

struct mask_cache {
    struct arena a;
    struct mask *masks;
    uint32_t n, capacity;
    struct records inside_keys;
    struct inside *insides; /* by the number of its key */
    uint32_t n_insides, insides_capacity;
    const uint32_t *blanks; /* tokens of white space alone; NULL: not made yet */
    uint32_t hole, hole_up; /* stands for what is behind a string: the state, and the list of its node */
    /* the walk under way */
    struct token_list found;
    struct token_list suspects; /* tokens on which a walk cannot be trusted: each is tried in the end */
    struct walk_place *stack;   /* by depth */
    struct text_place *places;
    uint32_t first_indented, n_indented;  /* of what was found */
    struct token_list ends;               /* nodes, as struct inside has them */
    const uint32_t *taken[MAX_APART + 1]; /* bits of strings and of white space */
    uint32_t n_taken;
    uint32_t parts, own_parts; /* bits of parts taken whole, and of those that `taken` has not */
    uint64_t max_work;         /* of the machine: beyond it the walk ends as soon as it has found something */
};

enum { ALL_TEXT_PARTS = (1 << VOCAB_TEXT_PARTS) - 1 };

static inline bool mask_is_over(const struct gram_machine *m) {
    return m->work > m->masks->max_work;
}

static inline void mask_take_part(struct mask_cache *c, uint32_t part) {
    c->parts |= (uint32_t)1 << part;
    c->own_parts |= (uint32_t)1 << part;
}

static inline void mask_or_bits(uint32_t *to, const uint32_t *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] |= from[i];
}

static inline void mask_set_bits(uint32_t *bits, const struct token_list *l, uint32_t from) {
    for (uint32_t i = from; i < l->n; i++) bits[l->p[i] / 32] |= (uint32_t)1 << l->p[i] % 32;
}

void gram_token_list_put(struct token_list *l, int32_t token);
/* The tokens that end at a node of the trie. */
void mask_found(struct gram_machine *m, const struct vocab_part *p, uint32_t node);
/* A string has ended at this node of VOCAB_REST. */
void mask_ended(struct gram_machine *m, const struct vocab_part *p, uint32_t node);
/* Nodes `from` up to `to`, which begin in `state`: every token on which the machine stays alive is found, and nodes that lead to the hole are
 * listed as ends. */
void mask_walk(struct gram_machine *m, const struct vocab_part *p, uint32_t from, uint32_t to, uint32_t state);
/* The same for all nodes, where the state takes but these bytes, as 256 bits. */
void mask_walk_bytes(struct gram_machine *m, const struct vocab_part *p, uint32_t state, const uint32_t bytes[8]);
/* Every text of the part leads from `state` to a live one. */
bool gram_mask_state_takes(struct gram_machine *m, uint32_t state, const struct vocab_part *p);

/* An object that is between its members, without the names that it has had; tokens that could repeat one are suspects then. */
uint32_t gram_mask_free_object(struct gram_machine *m, uint32_t node);
/* Finds the tokens that may follow inside a string or a name, without a state for each text. False: that is not possible; *n may have
 * become a node whose states are fewer, and which takes the same apart from the suspects. */
bool gram_mask_fill_string(struct gram_machine *m, struct node *n);
bool gram_mask_fill_name(struct gram_machine *m, struct node *n);

#endif
