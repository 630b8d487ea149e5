/* Drafts: tokens that may come next, guessed cheaply. One step of the model then checks several of them.
 *
 * The model's own token is chosen behind each of them, with the numbers of its own place; a draft is kept as far as it says the same. So drafts change
 * how long an answer takes and nothing else.
 *
 * A type of drafts knows how to guess; a drafter is one of a type in an engine; a state is what it keeps for one sequence.
 *
 * (1) propose may be given more tokens than the last time, never others: when some were taken back, settle has told so.
 * (2) propose and settle allocate nothing.
 */
#ifndef MLXCEL_ENGINE_DRAFT_H
#define MLXCEL_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

enum { DRAFT_MAX = 15, DRAFT_KINDS = 4 };

/* Where the drafts of a job come from. */
enum draft_from { DRAFT_USUAL, DRAFT_NONE, DRAFT_NGRAM, DRAFT_MODEL, DRAFT_MTP, N_DRAFTS };

struct drafter;

/* What is wanted for one sequence, and what comes. */
struct draft_ask {
    void *state;
    const int32_t *tokens; /* [n_tokens] prompt and answer so far */
    int32_t n_tokens;
    int32_t most; /* tokens that are wanted */
    int32_t *out; /* [most] */
    int32_t n;    /* how many were guessed */
    int32_t kind; /* below DRAFT_KINDS: guesses of one kind come true equally often */
};

/* Rows of one sequence that the model has computed, all of them in front of its last token. */
enum { DRAFT_STATES = 3 };
struct draft_seen {
    void *state;
    const int32_t *tokens; /* [n_tokens] as in an ask */
    int32_t n_tokens, first, n;
    const float *states[DRAFT_STATES]; /* [n][hidden] each, as the model's taps have it */
};

struct draft_type {
    const char *name;
    float hopes[DRAFT_KINDS]; /* how often guesses of a kind come true, before anything is known of a request */
    bool is_dear;             /* each guess takes time: no more are asked for than pay */
    void *(*begin)(struct drafter *d, int32_t capacity, int32_t vocab);
    void (*end)(struct drafter *d, void *state);
    /* All sequences of a step at once. */
    void (*propose)(struct drafter *d, struct draft_ask *asks, int32_t n);
    /* Of the tokens that it was given and those that it proposed, the first n_tokens are in the sequence. */
    void (*settle)(struct drafter *d, void *state, int32_t n_tokens);
    void (*observe)(struct drafter *d, const struct draft_seen *seen); /* behind every step; NULL: it reads no states */
    void (*close)(struct drafter *d);                                  /* NULL: nothing to be freed */
};

struct drafter {
    const struct draft_type *type;
    double cost; /* of a guess, in steps of one row of the model that is helped */
};

/* Looks the last tokens up in the sequence itself, and proposes what followed there. */
extern const struct draft_type draft_ngram;

/* ---- how many ----------------------------------------------------------------------------------------------------------- */

/* What a step of n rows takes, in steps of one row: 1 + first + more * (n - 1). Counted, not timed: the same requests give the same steps. */
struct draft_cost {
    double first, more;
};

/* How often the guesses of a request came true, by kind. */
struct draft_pace {
    float hits[DRAFT_KINDS], tries[DRAFT_KINDS];
    int32_t n_skipped[DRAFT_KINDS],
        pause[DRAFT_KINDS]; /* chances since guesses of this kind did not pay; after so many, a short one is tried */
};

void draft_pace_init(struct draft_pace *p, const struct draft_type *type);
/* How many tokens are worth a row each, where n_rows rows are computed anyway; 0: it does not pay. */
int32_t draft_pace_length(struct draft_pace *p, int32_t kind, const struct draft_cost *cost, int32_t n_rows, int32_t most);
/* n tokens were proposed, and n_kept came true. */
void draft_pace_count(struct draft_pace *p, int32_t kind, int32_t n, int32_t n_kept);

#endif
