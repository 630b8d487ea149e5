/* How many tokens of a draft are worth their rows: by what became of those before, and by what a row takes. */
#include "engine/draft.h"

enum { PAUSE_FIRST = 16, PAUSE_LAST = 1024, PROBE = 2 };
/* What is remembered of a kind: this many guesses, the older ones ever less. A hope counts like a few. */
#define TRIES_MAX 16.0f
#define HOPE_TRIES 4.0f

void draft_pace_init(struct draft_pace *p, const struct draft_type *type) {
    for (int i = 0; i < DRAFT_KINDS; i++) {
        p->tries[i] = HOPE_TRIES;
        p->hits[i] = HOPE_TRIES * type->hopes[i];
        p->n_skipped[i] = 0;
        p->pause[i] = PAUSE_FIRST;
    }
}

static double cost_of(const struct draft_cost *c, int32_t n_rows) {
    return 1 + (n_rows > 1 ? c->first : 0) + c->more * (n_rows - 1);
}

/* Tokens for a step's time, with k guesses that come true by p each: each further guess pays less, so that the first best is the best. */
static int32_t best_length(double p, const struct draft_cost *cost, int32_t n_rows, int32_t most) {
    double tokens = n_rows, chance = 1, best = tokens / cost_of(cost, n_rows);
    int32_t length = 0;
    for (int32_t k = 1; k <= most; k++) {
        chance *= p;
        tokens += chance;
        double rate = tokens / cost_of(cost, n_rows + k);
        if (rate <= best) continue;
        best = rate;
        length = k;
    }
    return length;
}

int32_t draft_pace_length(struct draft_pace *p, int32_t kind, const struct draft_cost *cost, int32_t n_rows, int32_t most) {
    int32_t n = best_length((double)(p->hits[kind] / p->tries[kind]), cost, n_rows, most);
    if (n > 0 || most == 0) return n;
    if (++p->n_skipped[kind] < p->pause[kind]) return 0;
    p->n_skipped[kind] = 0;
    if (p->pause[kind] < PAUSE_LAST) p->pause[kind] *= 2;
    return most < PROBE ? most : PROBE;
}

void draft_pace_count(struct draft_pace *p, int32_t kind, int32_t n, int32_t n_kept) {
    p->hits[kind] += (float)n_kept;
    p->tries[kind] += (float)(n_kept + (n_kept < n)); /* behind the first that was wrong, nothing was tried */
    if (n_kept == n) p->pause[kind] = PAUSE_FIRST;
    if (p->tries[kind] <= TRIES_MAX) return;
    p->hits[kind] *= TRIES_MAX / p->tries[kind];
    p->tries[kind] = TRIES_MAX;
}
