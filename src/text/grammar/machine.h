/* The machine's inside: nodes, states, and the step from one state to the next.
 *
 * (1) A node is a place in the grammar with what must come behind it: `up` is a list of nodes that go on when the node's own part
 *     has ended. Nodes are never changed, and equal nodes have one number; a stack is a chain of numbers.
 * (2) A state is a set of nodes: all places where the text so far can be. State 0 is the empty set: no text leads on.
 * (3) Nodes of one state that differ in `up` alone are joined, so that the number of nodes in a state is bounded by the
 *     grammar and not by the text.
 * (4) Counters that no longer matter stand still (see containers.c), so that texts without end have few states.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_MACHINE_H
#define MLXCEL_TEXT_GRAMMAR_MACHINE_H

#include "text/grammar/intern.h"
#include "text/grammar/program.h"

enum node_kind {
    NODE_END,    /* the text may end */
    NODE_VALUE,  /* a value is next; a: goal, f: words that it must differ from */
    NODE_RAW,    /* inside a scalar without quotes; a: automaton, b: automaton's state, e: word, f as above */
    NODE_STRING, /* inside a string; a: string, b: automaton's state, c: characters, d: escape, e: word, f as above */
    NODE_KEY,    /* inside a name; a: object's progress, b: node of the trie + 1, c: extras' state, d: escape, e: word */
    NODE_COLON,  /* behind a name; a: goal of its value */
    NODE_OBJECT, /* a: progress */
    NODE_ARRAY,  /* a: progress */
    NODE_RULE,   /* a: state of a rule's automaton */
};

enum { END_BARE, END_SPACED, END_HOLE };          /* phases of NODE_END: whether white space may follow; a place that masks fill later */
enum { VALUE_BARE, VALUE_SPACED };                /* of NODE_VALUE: whether it may come first */
enum { OBJECT_FIRST, OBJECT_AFTER, OBJECT_NEXT }; /* behind the brace, a member, a comma */
enum { ARRAY_FIRST, ARRAY_AFTER };                /* behind the bracket, an item */

struct node {     /* without holes: hashed as bytes */
    uint32_t tag; /* kind, phase << 8, white space so far << 16 */
    uint32_t a, b, c, d, e, f;
    uint32_t up; /* list of nodes; 0: none */
};

static inline uint32_t node_tag(uint32_t kind, uint32_t phase) {
    return kind | phase << 8;
}
static inline uint32_t node_kind(const struct node *n) {
    return n->tag & 255;
}
static inline uint32_t node_phase(const struct node *n) {
    return n->tag >> 8 & 255;
}
static inline uint32_t node_spaces(const struct node *n) {
    return n->tag >> 16;
}

/* A text byte by byte, kept where equal texts matter: a member's name, an item that must be unique. */
struct word {
    uint32_t before; /* the word without its last byte */
    uint32_t byte;
    uint32_t length;
};
enum { WORD_NONE, WORD_STRING, WORD_RAW, N_WORDS }; /* no word is kept; the beginnings of strings and of other scalars */

/* In place of an object's set of names: names need not differ. Masks are made so. */
#define NAMES_FREE UINT32_MAX

/* A set of words, by the one it was made from and the word that was added. Set 0 is empty. */
struct wordset {
    uint32_t before;
    uint32_t word;
    uint32_t n;
};

struct state_info {
    uint32_t *row;     /* [256], STEP_UNKNOWN where nobody asked; NULL: none yet */
    uint32_t plain;    /* the same state before any white space; itself where there was none */
    uint32_t mask;     /* cached mask + 1 */
    uint32_t mask_of;  /* another state whose mask is the same; UINT32_MAX: not known yet */
    uint32_t n_spaces; /* white space so far, where it is the same for all nodes; else 0 */
    uint32_t n_visits; /* steps before there was a row */
    bool may_end;
};

#define STEP_UNKNOWN UINT32_MAX

struct mask_cache;

struct gram_machine {
    const struct gram *g;
    const struct gram_vocab *v;
    int32_t *eos;
    size_t n_eos;
    struct records nodes, objects, arrays, words, wordsets;
    struct lists ups, states, seen;
    struct state_info *info; /* by state */
    uint32_t n_info, info_capacity;
    uint32_t start;
    size_t n_rows;
    uint64_t work; /* nodes and edges that were stepped */
    /* nodes of the next state, while a byte is taken */
    struct node *emitted;
    uint32_t n_emitted, emitted_capacity;
    uint32_t *emitted_slots, n_emitted_slots;
    struct mask_cache *masks;
};

/* The state after a byte; 0: not allowed. */
uint32_t machine_step(struct gram_machine *m, uint32_t state, uint8_t byte);
/* The same, remembered in a row of the state once walks have come back to it. */
uint32_t machine_step_row(struct gram_machine *m, uint32_t state, uint8_t byte);
void machine_drop_rows(struct gram_machine *m);

static inline const struct node *machine_node(const struct gram_machine *m, uint32_t id) {
    return records_get(&m->nodes, id);
}
static inline bool machine_may_end(const struct gram_machine *m, uint32_t state) {
    return m->info[state].may_end;
}
/* Bytes outside of which a state takes none, as 256 bits; quick and not exact. */
void machine_first_bytes(const struct gram_machine *m, uint32_t state, uint32_t bits[8]);
/* The state of this node alone, and that behind it when its part has ended. */
uint32_t machine_state_of(struct gram_machine *m, const struct node *n);
uint32_t machine_behind(struct gram_machine *m, const struct node *n);
/* The state of some nodes; `ids` is sorted by the call. */
uint32_t machine_state_of_ids(struct gram_machine *m, uint32_t *ids, uint32_t n);
/* Any text at all. */
bool gram_string_is_any(const struct gram *g, const struct prog_string *s);

/* ---- for the steps of the nodes ------------------------------------------------------------------------------------------ */

/* Adds a node to the next state, and whatever it leads to without a byte. */
void machine_emit(struct gram_machine *m, const struct node *n);
/* The state of what was added; 0: nothing was. */
uint32_t machine_emitted_state(struct gram_machine *m);
/* The node's part has ended: what is behind it goes on. word: the text that ended, where it is kept. */
void machine_finish(struct gram_machine *m, uint32_t up, uint32_t word);
uint32_t machine_up_of(struct gram_machine *m, const struct node *n); /* a list of one */

/* A scalar that may be empty (a regular expression) has ended before it began. */
void gram_value_close(struct gram_machine *m, const struct node *n);
void gram_value_node_step(struct gram_machine *m, const struct node *n, uint8_t byte);
void gram_raw_node_step(struct gram_machine *m, const struct node *n, uint8_t byte);
void gram_string_node_step(struct gram_machine *m, const struct node *n, uint8_t byte);
void gram_key_node_step(struct gram_machine *m, const struct node *n, uint8_t byte);
void gram_object_node_step(struct gram_machine *m, const struct node *n, uint8_t byte);
void gram_array_node_step(struct gram_machine *m, const struct node *n, uint8_t byte);
/* Adds the items that may be next, for a list that is at p. */
void gram_array_emit_items(struct gram_machine *m, const struct array_progress *p, uint32_t up);

bool gram_is_space_byte(uint8_t byte);
/* One more white space character, where the options allow it. */
void gram_space_step(struct gram_machine *m, const struct node *n);

/* words.c */
uint32_t gram_word_add(struct gram_machine *m, uint32_t word, uint8_t byte); /* WORD_NONE stays none */
uint32_t gram_wordset_add(struct gram_machine *m, uint32_t set, uint32_t word);
bool gram_wordset_has(const struct gram_machine *m, uint32_t set, uint32_t word);
/* How many words of the set begin with this one. */
uint32_t gram_wordset_count(const struct gram_machine *m, uint32_t set, uint32_t word);
/* The word that was added last, and the set before. */
uint32_t gram_wordset_last(const struct gram_machine *m, uint32_t set);
uint32_t gram_wordset_before(const struct gram_machine *m, uint32_t set);
uint32_t gram_wordset_size(const struct gram_machine *m, uint32_t set);

/* name_nodes.c: where a name may go on. */
struct name_place {
    uint32_t trie;  /* node + 1; 0: no key has this beginning */
    uint32_t extra; /* state of the extras' automaton; 0: none */
    uint32_t word;
};
struct name_place gram_name_begin(const struct gram_machine *m, const struct object_progress *p);
struct name_place gram_name_next(struct gram_machine *m, const struct object_progress *p, struct name_place at, uint8_t byte);
bool gram_name_fits(struct gram_machine *m, const struct object_progress *p, struct name_place at);
const uint32_t *gram_seen_bits(const struct gram_machine *m, const struct object_progress *p);
/* The name has ended: its values are next. */
void gram_name_end(struct gram_machine *m, const struct object_progress *p, struct name_place at, uint32_t up);

#endif
