/* Candidates of one draw: a row of logits, or what cuts have left of it, always in the order of the tokens' numbers. The sampler's own.
 *
 * Nothing is sorted: a cut finds the one candidate at which it ends, in the order of keys (the larger first, of equal ones the lower number),
 * and keeps what stands before it. Groups of numbers whose largest is known are passed over as a whole. */
#ifndef MLXCEL_ENGINE_CANDIDATES_H
#define MLXCEL_ENGINE_CANDIDATES_H

#include "backend/cpu/row.h"

#include <stdbool.h>

/* A row is shaped in place, and mended, where so few of its tokens are touched. */
enum { SAVED_SHARE = 8 };

struct sampler_work {
    int32_t vocab;
    const struct row_kernels *k;
    float *x;       /* [vocab] a row of logits with masks, or without what XTC drops */
    float *saved_x; /* [vocab / SAVED_SHARE] logits before they were shaped, and whose */
    int32_t *saved_ids;
    float *kept_x;          /* [vocab] what a cut has left */
    int32_t *kept_ids;      /* [vocab] */
    float *p;               /* [vocab] relative probabilities */
    float *keys;            /* [vocab] what else an order is by */
    double *spans;          /* sums of p */
    float *peaks, *upper;   /* largest of each group of x; of each group of peaks */
    int32_t *list, *narrow; /* [vocab] places of candidates */
    uint32_t *counts;       /* [vocab] all 0 between calls */
    uint32_t *bits;         /* [vocab / 32 + 1] */
};

struct candidates {
    struct sampler_work *w;
    const float *x;     /* [n] */
    const int32_t *ids; /* [n] ascending; NULL: the places are the tokens */
    int32_t n;
    float best;  /* the largest of x, whose peaks the work has */
    float scale; /* of the p that the work has; 0: none */
    double sum;  /* of those */
};

/* A row, or part of one; best is NaN where a logit is. */
void candidates_set(struct candidates *c, const float *x, const int32_t *ids, int32_t n);
/* x as the work's own numbers, which may be changed; candidates_set afterwards. */
float *candidates_own(struct candidates *c);
/* A whole row, less what mask or allowed (each may be NULL) have no bit for. */
void candidates_masked(struct candidates *c, const float *x, const uint32_t *mask, const uint32_t *allowed);
/* Fills the work's p at this temperature; the sum. */
double candidates_weigh(struct candidates *c, double temperature);
/* Fills it at temperature 1; how far below the best the mean logit is, as a number up to 0. *out_count: how many can come. */
double candidates_mean(struct candidates *c, int64_t *out_count);
/* Takes n places out of p and its sums. */
void candidates_drop(struct candidates *c, const int32_t *places, int32_t n);
/* Places of logits that are at least bar into the work's list; how many. */
int32_t candidates_list(struct candidates *c, float bar);
/* Only the first n of the work's list stay. */
void candidates_keep(struct candidates *c, int32_t n);
/* Only the k best stay. */
void candidates_top(struct candidates *c, int32_t k);
/* Of the first n in the list those stay that come first in the order of keys and together hold `mass` of p. */
void candidates_share(struct candidates *c, const float *keys, int32_t n, double mass);
/* Places of those with the k largest keys, the largest first, in the work's list; how many. For small k. Where keys are not x, the peaks
 * are theirs afterwards. */
int32_t candidates_best(struct candidates *c, const float *keys, int32_t k);
/* The place of the best. */
int32_t candidates_first(const struct candidates *c);
/* The place where the sums of p, from the first candidate on, go beyond `mass`. */
int32_t candidates_at(const struct candidates *c, double mass);

static inline int32_t candidates_id(const struct candidates *c, int32_t place) {
    return c->ids ? c->ids[place] : place;
}

#endif
