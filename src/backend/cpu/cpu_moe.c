/* Mixtures of experts: the router's choice, and the feed-forward of the chosen experts.
 *
 * (1) A row's choice and result depend on that row alone. Experts are folded in ascending order, whatever the batch.
 * (2) A score that is not a number is the worst score: a broken row still names k distinct experts within range.
 * (3) Ties go to the lower index.
 *
 * EXPERTS gathers the (row, choice) pairs of each expert, so that a weight is read once for all of them: first all gate
 * and up products, then the activation, then the last matrix. Experts in panels are taken by cpu_moe_panels.c; here are
 * those that are dequantised row by row.
 */
#include "backend/cpu/cpu_moe.h"

#include "base/fmath.h"

/* ---- route -------------------------------------------------------------------------------------------------------- */

struct route_job {
    struct cpu *c;
    const struct op *op;
};

/* Index of the best score; -INFINITY is a score like another, NAN is worse. Never -1: the first unless one is better. */
static int32_t best_of(const float *scores, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (scores[i] > scores[best] || (isnan(scores[best]) && !isnan(scores[i]))) best = i;
    return best;
}

/* After this only a choice already taken is NAN. */
static void bury_nans(float *choice, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (isnan(choice[i])) choice[i] = -INFINITY;
}

/* Takes the k best out of `choice`, which is spent: a taken one becomes NAN, and is not taken again. */
static void take_best(float *choice, int32_t n, int32_t k, int32_t *out_ids) {
    bury_nans(choice, n);
    for (int32_t j = 0; j < k; j++) {
        out_ids[j] = best_of(choice, n);
        choice[out_ids[j]] = NAN;
    }
}

static float group_score(const float *choice, int32_t n, int32_t top2) {
    int32_t best = best_of(choice, n);
    if (!top2 || n < 2) return choice[best];
    float second = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        if (i != best && choice[i] > second) second = choice[i];
    return choice[best] + second;
}

/* Only experts of the best groups may be chosen. `groups` and `ids` are scratch memory, one per group. */
static void mask_groups(const struct route_args *a, float *choice, int32_t n, float *groups, int32_t *ids) {
    int32_t size = n / a->n_groups;
    for (int32_t g = 0; g < a->n_groups; g++) groups[g] = group_score(choice + g * size, size, a->group_top2);
    take_best(groups, a->n_groups, a->top_groups, ids);
    for (int32_t g = 0; g < a->n_groups; g++) {
        if (isnan(groups[g])) continue; /* taken */
        for (int32_t i = 0; i < size; i++) choice[g * size + i] = -INFINITY;
    }
}

static void softmax(const struct kernels *k, float *x, int32_t n) {
    float max = x[best_of(x, n)];
    float sum = k->exp_sum(x, n, max);
    for (int32_t i = 0; i < n; i++) x[i] /= sum;
}

/* One expert after the other, each weighed by the softmax over those within the threshold of it. */
static void sparsemixer(const struct kernels *k, const struct route_args *a, float *logits, int32_t n, float *choice, int32_t *out_ids,
                        float *out_weights) {
    bury_nans(logits, n);
    for (int32_t j = 0; j < a->k; j++) {
        int32_t best = best_of(logits, n);
        float max = logits[best];
        for (int32_t i = 0; i < n; i++) {
            float size = fabsf(logits[i]) > max ? fabsf(logits[i]) : max;
            choice[i] = (max - logits[i]) / size > 2.0f * a->jitter || isnan(logits[i]) ? -INFINITY : logits[i];
        }
        out_ids[j] = best;
        out_weights[j] = 1.0f / k->exp_sum(choice, n, max);
        logits[best] = NAN; /* out of the game */
    }
}

static void weigh(const struct kernels *k, const struct route_args *a, const float *scores, const int32_t *ids, float *out) {
    const float *expert_scale = cpu_vec(a->expert_scale);
    double sum = 0;
    for (int32_t j = 0; j < a->k; j++) out[j] = scores[ids[j]];
    if (a->score == ROUTE_SOFTMAX_AFTER) softmax(k, out, a->k);
    for (int32_t j = 0; j < a->k; j++) sum += (double)out[j];
    for (int32_t j = 0; j < a->k; j++) {
        if (a->normalize) out[j] /= (float)sum + a->norm_eps;
        out[j] *= a->scale;
        if (expert_scale) out[j] *= expert_scale[ids[j]];
    }
}

static void route_row(const struct kernels *k, const struct route_args *a, const float *logits, int32_t n, float *scratch, int32_t *out_ids,
                      float *out_weights) {
    float *scores = scratch, *choice = scores + n, *groups = choice + n;
    const float *bias = cpu_vec(a->bias);
    memcpy(scores, logits, (size_t)n * sizeof *scores);
    if (a->score == ROUTE_SPARSEMIXER) {
        sparsemixer(k, a, scores, n, choice, out_ids, out_weights);
        return;
    }
    if (a->score == ROUTE_SOFTMAX) softmax(k, scores, n);
    if (a->score == ROUTE_SIGMOID) k->act(scores, n, &(struct act_args){.kind = ACT_SIGMOID});
    for (int32_t i = 0; i < n; i++) choice[i] = bias ? scores[i] + bias[i] : scores[i];
    if (a->n_groups > 1) mask_groups(a, choice, n, groups, (int32_t *)(groups + a->n_groups));
    take_best(choice, n, a->k, out_ids);
    weigh(k, a, scores, out_ids, out_weights);
}

static void route_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct route_job *job = ctx;
    struct cpu *c = job->c;
    struct tensor x = job->op->in[0], ids = job->op->out[0], weights = job->op->out[1];
    for (int64_t r = first; r < last; r++)
        route_row(&c->kern, &job->op->arg.route, cpu_row(c, x, r), x.width, cpu_thread(c, thread), (int32_t *)cpu_row(c, ids, r),
                  cpu_row(c, weights, r));
}

void cpu_run_route(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct route_job job = {c, op};
    pool_run(c->pool, op->in[0].rows, 0, route_rows, &job);
}

/* ---- experts without matrices -------------------------------------------------------------------------------------- */

static bool is_chosen(const int32_t *ids, int32_t k, int32_t id) {
    for (int32_t i = 0; i < k; i++)
        if (ids[i] == id) return true;
    return false;
}

/* Those that stand in are the first ones that the row did not choose. */
void cpu_run_passing(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    int32_t n = op->arg.passing.n_experts, k = op->in[0].width;
    for (int32_t r = 0; r < op->in[0].rows; r++) {
        const int32_t *ids = (const int32_t *)(const void *)cpu_row(c, op->in[0], r);
        int32_t *out = (int32_t *)(void *)cpu_row(c, op->out[0], r), spare = 0;
        const float *weights = cpu_row(c, op->in[1], r);
        float *kept = cpu_row(c, op->out[1], r), sum = 0;
        for (int32_t i = 0; i < k; i++) {
            bool passes = ids[i] >= n;
            while (passes && is_chosen(ids, k, spare)) spare++;
            out[i] = passes ? spare++ : ids[i];
            kept[i] = passes ? 0 : weights[i];
            sum += passes ? weights[i] : 0;
        }
        kept[k] = sum;
    }
}

/* ---- experts ------------------------------------------------------------------------------------------------------ */

int64_t cpu_experts_scratch(const struct op *op) {
    int64_t pairs = (int64_t)op->in[1].rows * op->in[1].width;
    return pairs * 2 * op->arg.experts.inner + pairs + 2 * ((int64_t)op->arg.experts.down->n_experts + 1) + cpu_experts_panel_floats(op);
}

/* Counted from the first expert that is here; one of another rank is out of range. */
int32_t cpu_pair_expert(const struct experts_job *job, int64_t pair) {
    return ((const int32_t *)cpu_row(job->c, job->op->in[1], pair / job->k))[pair % job->k] - job->op->arg.experts.first;
}

float cpu_pair_weight(const struct experts_job *job, int64_t pair) {
    return cpu_row(job->c, job->op->in[2], pair / job->k)[pair % job->k];
}

/* A counting sort of the pairs by expert. */
static void gather_pairs(struct experts_job *job, int32_t n_experts) {
    int64_t n_pairs = (int64_t)job->op->in[1].rows * job->k;
    job->pairs = (int32_t *)(job->inner + n_pairs * 2 * job->op->arg.experts.inner);
    job->starts = job->pairs + n_pairs;
    job->used = job->starts + n_experts + 1;
    memset(job->starts, 0, (size_t)(n_experts + 1) * sizeof *job->starts);
    for (int64_t p = 0; p < n_pairs; p++) {
        int32_t e = cpu_pair_expert(job, p);
        if (e >= 0 && e < n_experts) job->starts[e + 1]++;
    }
    for (int32_t e = 0; e < n_experts; e++) {
        if (job->starts[e + 1] > 0) job->used[job->n_used++] = e;
        job->starts[e + 1] += job->starts[e];
    }
    for (int64_t p = 0; p < n_pairs; p++) {
        int32_t e = cpu_pair_expert(job, p);
        if (e >= 0 && e < n_experts) job->pairs[job->starts[e]++] = (int32_t)p;
    }
    memmove(job->starts + 1, job->starts, (size_t)n_experts * sizeof *job->starts); /* each start moved to its end */
    job->starts[0] = 0;
    job->n_here = job->starts[n_experts];
}

/* One weight row of an expert times the input of each of its pairs, into column `to` of the pairs' products. */
static void expert_row(const struct experts_job *job, const struct weight *w, const struct weight *bias, int32_t e, int64_t row, int64_t to,
                       float *unpacked) {
    struct cpu *c = job->c;
    const struct experts_args *a = &job->op->arg.experts;
    cpu_unpack_row(c, w, e * w->out + row, unpacked);
    for (int32_t i = job->starts[e]; i < job->starts[e + 1]; i++) {
        int64_t pair = job->pairs[i];
        float sum = c->kern.dot(unpacked, cpu_row(c, job->op->in[0], pair / job->k), w->in);
        if (a->scale_input) sum *= cpu_pair_weight(job, pair);
        job->inner[pair * 2 * a->inner + to] = bias ? sum + cpu_vec(bias)[e * w->out + row] : sum;
    }
}

static void inner_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct experts_job *job = ctx;
    const struct experts_args *a = &job->op->arg.experts;
    float *unpacked = cpu_thread(job->c, thread);
    for (int64_t i = first; i < last; i++) {
        int32_t e = job->used[i / a->inner];
        int64_t n = i % a->inner;
        if (a->gate_up) {
            expert_row(job, a->gate_up, a->gate_up_bias, e, n, n, unpacked);
            expert_row(job, a->gate_up, a->gate_up_bias, e, a->inner + n, a->inner + n, unpacked);
            continue;
        }
        if (a->gate) expert_row(job, a->gate, a->gate_bias, e, n, n, unpacked);
        expert_row(job, a->up, a->up_bias, e, n, a->gate ? a->inner + n : n, unpacked);
    }
}

void cpu_activate_expert(const struct experts_job *job, float *h) {
    const struct experts_args *a = &job->op->arg.experts;
    job->c->kern.act(h, a->inner, &a->act);
    if (a->gate_up || a->gate) {
        cpu_gate(&a->act, h, h + a->inner, a->inner, 1);
    } else if (a->act.scale != 1.0f) {
        for (int64_t i = 0; i < a->inner; i++) h[i] *= a->act.scale;
    }
}

static void activate_pairs(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct experts_job *job = ctx;
    for (int64_t i = first; i < last; i++) cpu_activate_expert(job, job->inner + job->pairs[i] * 2 * (int64_t)job->op->arg.experts.inner);
}

static void down_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct experts_job *job = ctx;
    struct cpu *c = job->c;
    const struct experts_args *a = &job->op->arg.experts;
    const float *bias = cpu_vec(a->down_bias);
    struct tensor y = job->op->out[0];
    float *unpacked = cpu_thread(c, thread);
    for (int64_t n = first; n < last; n++) {
        for (int64_t r = 0; r < y.rows; r++) cpu_row(c, y, r)[n] = 0;
        for (int32_t u = 0; u < job->n_used; u++) {
            int32_t e = job->used[u];
            cpu_unpack_row(c, a->down, e * a->down->out + n, unpacked);
            for (int32_t i = job->starts[e]; i < job->starts[e + 1]; i++) {
                int64_t pair = job->pairs[i];
                float sum = c->kern.dot(unpacked, job->inner + pair * 2 * a->inner, a->inner);
                if (bias) sum += bias[e * a->down->out + n];
                cpu_row(c, y, pair / job->k)[n] += a->scale_input ? sum : sum * cpu_pair_weight(job, pair);
            }
        }
    }
}

void cpu_run_experts(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    const struct experts_args *a = &op->arg.experts;
    struct experts_job job = {.c = c, .op = op, .k = op->in[1].width, .inner = c->op_scratch};
    gather_pairs(&job, a->down->n_experts);
    if (cpu_experts_packed(a)) {
        job.more = (float *)(job.used + a->down->n_experts + 1);
        cpu_experts_panels(&job);
        return;
    }
    pool_run(c->pool, (int64_t)job.n_used * a->inner, 0, inner_rows, &job);
    pool_run(c->pool, job.n_here, 0, activate_pairs, &job);
    pool_run(c->pool, a->down->out, 0, down_rows, &job);
}
