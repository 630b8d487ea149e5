/* Candidates of one draw: a row of logits, or what cuts have left of it, always in the order of the tokens' numbers. The sampler's own.
 *
 * Nothing is sorted: a cut finds the one candidate at which it ends, in the order of keys (the larger first, of equal ones the lower number),
 * and keeps what stands before it. Groups of numbers whose largest is known are passed over as a whole. */
#ifndef MLXCEL_ENGINE_CANDIDATES_H
#define MLXCEL_ENGINE_CANDIDATES_H

#include "backend/cpu/row.h"

#include <stdbool.h>

/* A row is shaped in place, and mended, where so few of its tokens are touched. */
enum { SAVED_SHARE = 8, GONE_MAX = 32 };

struct sampler_work {
    int32_t vocab;
    const struct row_kernels *k;
    float *x;       /* [vocab] a row of logits with masks, or without what XTC drops */
    float *saved_x; /* [vocab / SAVED_SHARE] logits before they were shaped, and whose */
    int32_t *saved_ids;
    float *kept_x;     /* [vocab] what a cut has left */
    int32_t *kept_ids; /* [vocab] */
    double *spans;     /* sums of relative probabilities, and the parts of which they are made */
    float *folds;
    float *peaks, *upper;   /* largest of each group of x; of each group of peaks */
    int32_t *list, *narrow; /* [vocab] places of candidates */
    float *list_x, *list_p; /* [vocab] logits and relative probabilities of those that are listed */
    float *keys;            /* [vocab] what else an order of them is by */
    double *list_spans;
    uint32_t *counts;      /* [vocab] all 0 between calls */
    uint32_t *bits, *seen; /* [vocab / 32 + 1] seen: all 0 between calls */
};

/* A candidate's relative probability p is made when it is asked for: a row of them would cost as much to write as to compute. */
struct candidates {
    struct sampler_work *w;
    const float *x;     /* [n] */
    const int32_t *ids; /* [n] ascending; NULL: the places are the tokens */
    int32_t n;
    float best, least;      /* the largest of x, whose peaks the work has; none is below least */
    float scale;            /* of p; 0: none yet */
    double sum;             /* of all p, and the work has the others; 0: not made yet */
    int32_t gone[GONE_MAX]; /* places whose p is 0, whatever their logit */
    int32_t n_gone;
};

/* A row, or part of one; best is NaN where a logit is. */
void candidates_set(struct candidates *c, const float *x, const int32_t *ids, int32_t n);
/* x as the work's own numbers, which may be changed; candidates_set afterwards. */
float *candidates_own(struct candidates *c);
/* A whole row, less what mask or allowed (each may be NULL) have no bit for. */
void candidates_masked(struct candidates *c, const float *x, const uint32_t *mask, const uint32_t *allowed);
/* p is at this temperature from now on; the sums are made when they are asked for. */
void candidates_scale(struct candidates *c, double temperature);
/* The sums of p at this temperature; that of all. */
double candidates_weigh(struct candidates *c, double temperature);
/* The same at temperature 1; how far below the best the mean logit is, as a number up to 0. */
double candidates_mean(struct candidates *c);
/* Logits of these tokens of a whole row have changed: peaks and sums follow, as if they were made anew. */
void candidates_mend(struct candidates *c, const int32_t *tokens, int32_t n);
/* Takes up to GONE_MAX places out of the sums. */
void candidates_drop(struct candidates *c, const int32_t *places, int32_t n);
/* How many can come. */
int64_t candidates_count(const struct candidates *c);
/* Places of logits that are at least bar into the work's list, with their logits; how many. */
int32_t candidates_list(struct candidates *c, float bar);
/* The p of the first n that are listed, beside them; their sum. */
double candidates_list_weigh(struct candidates *c, int32_t n);
/* Lists what is within `reach` of the best, and further until that holds `mass` of p, which is beside them then; how many. */
int32_t candidates_list_mass(struct candidates *c, double reach, double mass);
/* Puts what is listed at one place to another. */
static inline void candidates_list_move(struct candidates *c, int32_t to, int32_t from) {
    c->w->list[to] = c->w->list[from];
    c->w->list_x[to] = c->w->list_x[from];
}
/* Only the first n of the work's list stay. */
void candidates_keep(struct candidates *c, int32_t n);
/* Only the k best stay. */
void candidates_top(struct candidates *c, int32_t k);
/* Of the first n in the list those stay that come first in the order of keys, [n], and together hold `mass` of p. */
void candidates_share(struct candidates *c, const float *keys, int32_t n, double mass);
/* Lists the k best, the best first; how many. For small k. */
int32_t candidates_best(struct candidates *c, int32_t k);
/* The place of the best. */
int32_t candidates_first(const struct candidates *c);
/* The place where the sums of p, from the first candidate on, go beyond `mass`. */
int32_t candidates_at(const struct candidates *c, double mass);
/* The p of one place. */
float candidates_p(const struct candidates *c, int32_t place);

static inline int32_t candidates_id(const struct candidates *c, int32_t place) {
    return c->ids ? c->ids[place] : place;
}

#endif
