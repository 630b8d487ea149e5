/* Drafts from the sequence itself: where its last tokens stood before, what followed there may follow again. Source code that is edited, documents
 * that are quoted and lists that go on are like that.
 *
 * Every three tokens in a row lead, by a hash, to the last place behind them, and from there to the place before. Of a few such places the one wins whose
 * tokens agree with the last ones for longest. How long they agree is the kind of the guess.
 */
#include "engine/draft.h"

#include "base/arena.h"
#include "base/hash.h"

#include <string.h>

enum { GRAM = 3, PLACES_MAX = 16, AGREES_MAX = 32 };

struct ngram {
    int32_t *heads; /* [n_heads] the last place behind three tokens with this hash; 0: none */
    int32_t *older; /* [capacity] the place before, with the same hash */
    uint32_t n_heads;
    int32_t n_known; /* places below this are in */
    int32_t vocab;
};

static void *begin(struct drafter *d, int32_t capacity, int32_t vocab) {
    struct ngram *g = mem_alloc(sizeof *g);
    (void)d;
    g->n_heads = 64;
    while (g->n_heads < (uint32_t)capacity) g->n_heads *= 2;
    g->heads = mem_alloc(g->n_heads * sizeof *g->heads);
    g->older = mem_alloc((size_t)capacity * sizeof *g->older);
    g->n_known = GRAM;
    g->vocab = vocab;
    return g;
}

static void end(struct drafter *d, void *state) {
    struct ngram *g = state;
    (void)d;
    mem_free(g->heads);
    mem_free(g->older);
    mem_free(g);
}

static uint32_t slot_of(const struct ngram *g, const int32_t *last) {
    uint64_t three = hash_pair((uint64_t)(uint32_t)last[0] << 32 | (uint32_t)last[1], (uint32_t)last[2]);
    return (uint32_t)three & (g->n_heads - 1);
}

/* All places that have a token. */
static void learn(struct ngram *g, const int32_t *tokens, int32_t n_tokens) {
    for (; g->n_known < n_tokens; g->n_known++) {
        int32_t *head = &g->heads[slot_of(g, tokens + g->n_known - GRAM)];
        g->older[g->n_known] = *head;
        *head = g->n_known;
    }
}

/* How many tokens before `place` are those before the end. */
static int32_t count_agreeing(const int32_t *tokens, int32_t n_tokens, int32_t place) {
    int32_t n = 0;
    while (n < AGREES_MAX && n < place && tokens[place - 1 - n] == tokens[n_tokens - 1 - n]) n++;
    return n;
}

static int32_t find_place(const struct ngram *g, const int32_t *tokens, int32_t n_tokens, int32_t *out_agreeing) {
    int32_t best = 0, most = GRAM - 1, place = g->heads[slot_of(g, tokens + n_tokens - GRAM)];
    for (int i = 0; i < PLACES_MAX && place && most < AGREES_MAX; i++, place = g->older[place]) {
        int32_t n = count_agreeing(tokens, n_tokens, place);
        if (n > most) most = n, best = place;
    }
    *out_agreeing = most;
    return best;
}

/* What followed there; where that is the end, the guess goes on with itself. */
static int32_t copy(const struct ngram *g, const struct draft_ask *a, int32_t place) {
    for (int32_t i = 0; i < a->most; i++) {
        int32_t from = place + i, token = from < a->n_tokens ? a->tokens[from] : a->out[from - a->n_tokens];
        if (token < 0 || token >= g->vocab) return i; /* it stands for a picture */
        a->out[i] = token;
    }
    return a->most;
}

static void propose_one(struct draft_ask *a) {
    struct ngram *g = a->state;
    int32_t agreeing;
    a->n = 0;
    if (a->n_tokens <= GRAM) return;
    learn(g, a->tokens, a->n_tokens);
    int32_t place = find_place(g, a->tokens, a->n_tokens, &agreeing);
    if (!place) return;
    a->kind = agreeing < 5 ? 0 : agreeing < 9 ? 1 : agreeing < 20 ? 2 : 3;
    a->n = copy(g, a, place);
}

static void propose(struct drafter *d, struct draft_ask *asks, int32_t n) {
    (void)d;
    for (int32_t i = 0; i < n; i++) propose_one(&asks[i]);
}

/* Tokens that were taken back, or moved, are rare: everything is learnt again. */
static void settle(struct drafter *d, void *state, int32_t n_tokens) {
    struct ngram *g = state;
    (void)d;
    if (g->n_known <= n_tokens) return;
    memset(g->heads, 0, g->n_heads * sizeof *g->heads);
    g->n_known = GRAM;
}

const struct draft_type draft_ngram =
    {.name = "ngram", .hopes = {0.35f, 0.55f, 0.75f, 0.9f}, .begin = begin, .end = end, .propose = propose, .settle = settle};
