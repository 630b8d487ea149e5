/* What mask.c and mask_text.c share: the cache, and the walk that is under way. */
#ifndef MLXCEL_TEXT_GRAMMAR_MASK_INTERNAL_H
#define MLXCEL_TEXT_GRAMMAR_MASK_INTERNAL_H

#include "text/grammar/mask.h"
#include "text/grammar/vocab_trie.h"

struct mask {
    const uint32_t *base; /* NULL: nothing */
    uint32_t *bits;       /* everything; NULL: base and tokens */
    int32_t *tokens;
    uint32_t n_tokens;
};

struct token_list {
    int32_t *p;
    uint32_t n, capacity;
};

struct text_place { /* inside a string or a name, at one depth of the walk */
    uint32_t state; /* of the automaton of strings, or of names that no key has */
    uint32_t n;     /* characters of a string; a name's node in the trie of keys + 1 */
};

struct mask_cache {
    struct arena a;
    struct mask *masks;
    uint32_t n, capacity;
    /* the walk under way */
    struct token_list found;
    struct token_list suspects; /* tokens on which a walk cannot be trusted: each is tried in the end */
    uint32_t *stack;            /* states by depth */
    struct text_place *places;
    uint32_t parts;       /* bits of parts taken whole */
    const uint32_t *base; /* tokens of text that are all taken */
    uint32_t base_chars;  /* how long those are at most */
    uint64_t max_work;    /* of the machine: beyond it the walk ends as soon as it has found something */
};

enum { ALL_TEXT_PARTS = (1 << VOCAB_TEXT_PARTS) - 1 };

static inline bool mask_is_over(const struct gram_machine *m) {
    return m->work > m->masks->max_work;
}

void gram_token_list_put(struct token_list *l, int32_t token);
/* The token at a node of the trie, and those with the same bytes. */
void mask_found(struct gram_machine *m, int32_t token);
/* Nodes `from` up to `to`, which begin in `state`: every token on which the machine stays alive is found. */
void mask_walk(struct gram_machine *m, const struct vocab_part *p, uint32_t from, uint32_t to, uint32_t state);
/* Every text of the part leads from `state` to a live one. */
bool gram_mask_state_takes(struct gram_machine *m, uint32_t state, const struct vocab_part *p);

/* An object that is between its members, without the names that it has had; tokens that could repeat one are suspects then. */
uint32_t gram_mask_free_object(struct gram_machine *m, uint32_t node);
/* Finds the tokens that may follow inside a string or a name, without a state for each text. False: that is not possible; *n may have
 * become a node whose states are fewer, and which takes the same apart from the suspects. */
bool gram_mask_fill_string(struct gram_machine *m, struct node *n);
bool gram_mask_fill_name(struct gram_machine *m, struct node *n);

#endif
