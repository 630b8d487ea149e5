/* The gap of a router: between the worst logit that was chosen and the best that was not, in the numbers that the choice is made by, put back
 * to the scale of the logits. A device that rounds elsewhere may choose otherwise where it is small, and then computes another function.
 *
 * The CPU backend is wrapped: its end() keeps the routers' inputs as outputs of the step and reads them afterwards. */
#include "router.h"

#include "backend/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

enum { ROUTES_MAX = 512 };

static struct backend_type watched;
static const struct backend_type *plain;
static struct op routes[ROUTES_MAX];
static float *gaps, *scores;
static int32_t n_gaps;

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

/* Between the k-th and the next of n numbers, which are sorted here. */
static float gap_after(float *x, int32_t n, int32_t k) {
    qsort(x, (size_t)n, sizeof *x, descending);
    return k < n ? x[k - 1] - x[k] : INFINITY;
}

static float group_score(const float *choice, int32_t n, bool top2) {
    float best = -INFINITY, second = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (choice[i] > best) second = best, best = choice[i];
        else if (choice[i] > second) second = choice[i];
    }
    return top2 && n > 1 ? best + second : best;
}

/* Buries the experts of groups that are not taken; returns the gap of that choice. */
static float take_groups(const struct route_args *a, float *choice, int32_t n, float *scratch) {
    int32_t size = n / a->n_groups;
    float *sorted = scratch, *groups = scratch + a->n_groups;
    for (int32_t g = 0; g < a->n_groups; g++) sorted[g] = groups[g] = group_score(choice + g * size, size, a->group_top2);
    float gap = gap_after(sorted, a->n_groups, a->top_groups), last = sorted[a->top_groups - 1];
    for (int32_t i = 0; i < n; i++)
        if (groups[i / size] < last) choice[i] = -INFINITY;
    return gap;
}

static void softmax(float *x, int32_t n) {
    float max = x[0], sum = 0;
    for (int32_t i = 1; i < n; i++) max = fmaxf(max, x[i]);
    for (int32_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    for (int32_t i = 0; i < n; i++) x[i] /= sum;
}

/* x: the logits of a row, spent. Softmax alone keeps their order. Where its results or sigmoids are compared, a step of the logit is at most
 * a quarter of itself. */
static float row_gap(const struct route_args *a, float *x, int32_t n, float *scratch) {
    float slope = 1, gap = INFINITY;
    const float *bias = cpu_vec(a->bias);
    if (a->score == ROUTE_SIGMOID || (a->score == ROUTE_SOFTMAX && (bias || a->n_groups > 1))) {
        slope = 0.25f;
        if (a->score == ROUTE_SOFTMAX) softmax(x, n);
        else
            for (int32_t i = 0; i < n; i++) x[i] = 1.0f / (1.0f + expf(-x[i]));
    }
    for (int32_t i = 0; i < n && bias; i++) x[i] += bias[i];
    if (a->n_groups > 1) gap = take_groups(a, x, n, scratch);
    return fminf(gap, gap_after(x, n, a->k)) / slope;
}

static int note_gaps(struct backend *be, int32_t n_routes, const struct step *step, struct err *err) {
    n_gaps = step->n_rows;
    gaps = mem_realloc(gaps, (size_t)n_gaps * sizeof *gaps);
    for (int32_t r = 0; r < n_gaps; r++) gaps[r] = INFINITY;
    for (int32_t i = 0; i < n_routes; i++) {
        struct tensor x = routes[i].in[0];
        size_t width = (size_t)x.width;
        scores = mem_realloc(scores, (size_t)(x.rows + 2) * width * sizeof *scores);
        TRY(plain->read(be, x, scores, err));
        for (int32_t r = 0; r < x.rows && r < n_gaps; r++)
            gaps[r] = fminf(gaps[r], row_gap(&routes[i].arg.route, scores + (size_t)r * width, x.width, scores + (size_t)x.rows * width));
    }
    return ERR_OK;
}

static int watched_end(struct backend *be, const struct step *step, struct err *err) {
    int32_t n = 0;
    for (int32_t i = 0; i < be->list.n_ops && n < ROUTES_MAX; i++) {
        if (be->list.ops[i].kind != OP_ROUTE) continue;
        routes[n] = be->list.ops[i];
        be->list.values[routes[n++].in[0].id - 1].is_output = true;
    }
    TRY(plain->end(be, step, err));
    return note_gaps(be, n, step, err);
}

void router_watch(struct backend *be) {
    plain = be->type;
    watched = *plain;
    watched.end = watched_end;
    be->type = &watched;
}

float router_gap(int32_t row) {
    return row < n_gaps ? gaps[row] : INFINITY;
}
