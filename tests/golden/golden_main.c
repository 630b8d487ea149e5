/* Golden test: every checkpoint folder that holds golden.safetensors, against what the reference computed.
 *
 * For each of its prompts: logits at every position within the tolerance; the same bits when the prompt is cut
 * into chunks of 1 and 7, when recurrent state is put back from a copy, when all prompts share one batch, and when the
 * op list is not fused; and the greedy continuation, wherever the reference's margin is wide enough to demand it.
 *
 * With --close, for the default precision of a GPU: prompt and reference continuation are fed to the backend and to the exact CPU
 * path; the distributions must be close, and the choice the same wherever the reference's margin is above 0.1 sd. Models with experts are
 * judged by medians, and without the positions where a router of the reference was within 0.05 of another choice, which are counted.
 *
 * With --depth N: a made-up sequence of N tokens is read in long chunks, then a few tokens one by one, on the backend and on the exact CPU
 * path; the last logits must agree, within the model's tolerance in exact precision, within the bounds of --close otherwise.
 *
 * With --near, for compilers that choose the order of sums by shape: all of the above within the tolerance instead of the same bits.
 *
 * With --kv-bits 8 beside --close: that cache on the CPU, and nothing else that rounds, within bounds of its own; choices are counted.
 *
 * Encoders have texts in place of prompts: the last states of each, alone and in batches, with the same bits.
 *
 * With --text: only prompts without an image, for models that also see.
 *
 * With --split N[,E[,R]]: the last N layers run on the backend, those before them on the CPU, and so do the experts of the first E layers; steps of R rows
 * borrow the CPU's weights.
 *
 * With --cards NAME,NAME...: the layers run on these devices of the backend, in equal parts; with --split the last N of them.
 *
 * With --ranks N: the model is cut for N ranks, which are threads; with --nccl those on GPUs exchange by NCCL.
 *
 * With --config NAME: that file is read in place of config.json, in the folders that have it: the same model in other words.
 *
 * usage: golden_tests [--backend NAME] [--precision NAME] [--close | --depth N] [--near] [--grow] [--kv-bits N] [--split N[,E[,R]]] [--cards NAMES] [--ranks N [--nccl]] [--text] [--config NAME] [--only TEXT]
 * FOLDER...   (a folder, or a folder of folders)
 */
#include "../backend_alone.h"

#include "backend/split/split.h"
#include "base/log.h"
#include "engine/runner.h"
#include "model/model.h"
#include "os/os.h"
#include "encoder.h"
#include "figures.h"
#include "mate.h"
#include "router.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROMPTS_MAX = 8 };

struct golden {
    int n; /* prompts */
    int32_t *prompt[PROMPTS_MAX], *greedy[PROMPTS_MAX];
    float *logits[PROMPTS_MAX], *margin[PROMPTS_MAX];
    int32_t n_prompt[PROMPTS_MAX], n_greedy[PROMPTS_MAX];
    double sd;
};

/* What --close allows, for every model. */
static const double rms_bound = 2e-2, kl_bound = 4e-4;
/* The same with a cache of 8 bits. Of most models it is below what a GPU is allowed; scores that are not divided by the root of the width
 * (gemma3n) and linear layers between (minimax) magnify it. */
static const double kv8_rms_bound = 8e-2, kv8_kl_bound = 1.5e-3;

struct bench {
    struct arena arena;
    struct checkpoint cp;
    struct model model;
    struct backend *be;
    int32_t n_ranks;   /* of --ranks; below 2: it is alone */
    struct team *team; /* the other ranks */
    struct runner runner;
    struct golden g;
    double worst; /* largest |difference| / sd */
    double tolerance;
    bool is_unjudged; /* --close and --depth count, but do not fail */
    bool is_small;    /* has the cache of --kv-bits */
    bool is_split;    /* has the places of --split */
};

static const char *backend_name = "cpu";
static bool by_closeness, is_near; /* is_near: another order of rounding is no failure */
static int32_t depth;
static bool must_grow; /* leave the device's memory to others too */
static enum precision precision = PRECISION_EXACT;
static int32_t kv_bits;
static int32_t split_layers = -1, split_experts, split_borrows; /* --split */
static const char *split_cards;                                 /* --cards */
static bool by_nccl;                                            /* --nccl */
static int32_t n_ranks = 1;                                     /* --ranks */
static const char *config_name = "config.json";
static bool is_text_only; /* only prompts without an image */
static int n_passed, n_failed, n_skipped;

/* ---- reading golden.safetensors ---------------------------------------------------------------------------------- */

/* Prompt number k of the file as the next one of ours. */
static int load_prompt(struct arena *a, const struct figures *f, int k, struct golden *g, int32_t *n_logits, struct err *err) {
    void *p[4];
    int at = g->n++;
    TRY(figures_load(a, f, "prompt", k, &p[0], &g->n_prompt[at], err));
    TRY(figures_load(a, f, "logits", k, &p[1], n_logits, err));
    TRY(figures_load(a, f, "greedy", k, &p[2], &g->n_greedy[at], err));
    TRY(figures_load(a, f, "margin", k, &p[3], &g->n_greedy[at], err));
    g->prompt[at] = p[0], g->logits[at] = p[1], g->greedy[at] = p[2], g->margin[at] = p[3];
    return ERR_OK;
}

static int load_prompts(struct bench *b, const struct figures *f, struct err *err) {
    struct golden *g = &b->g;
    double sum = 0, square = 0, count = 0;
    for (int k = 0; k < PROMPTS_MAX; k++) {
        int32_t n = 0;
        if (!figures_find(f, "prompt", k) || (is_text_only && figures_find(f, "pixel_values", k))) continue;
        TRY(load_prompt(&b->arena, f, k, g, &n, err));
        const float *x = g->logits[g->n - 1];
        for (int32_t i = 0; i < n; i++) sum += x[i], square += (double)x[i] * x[i], count++;
    }
    if (g->n == 0) return err_set(err, ERR_EUNSUPPORTED, "golden.safetensors has no prompt for us");
    g->sd = sqrt(square / count - sum / count * (sum / count));
    return ERR_OK;
}

static int load_golden(struct bench *b, const char *dir, struct err *err) {
    struct figures f;
    TRY(figures_open(&b->arena, dir, &f, err));
    int code = load_prompts(b, &f, err);
    figures_close(&f);
    return code;
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

static int start(struct bench *b, struct sequence *s, int k, struct err *err) {
    if (!sequence_init(s, &b->runner.kv, b->g.n_prompt[k] + b->g.n_greedy[k] + 1)) return err_set(err, ERR_EINTERNAL, "no slot");
    for (int32_t i = 0; i < b->g.n_prompt[k]; i++) sequence_append(s, b->g.prompt[k][i]);
    s->n_prompt = s->n_tokens;
    return ERR_OK;
}

static int advance(struct bench *b, struct sequence *s, int32_t n_rows, float *out, struct err *err) {
    struct runner *r = &b->runner;
    const float *logits;
    batch_clear(&r->batch);
    if (!sequence_reserve(s, &r->kv, n_rows)) return err_set(err, ERR_EINTERNAL, "no blocks");
    batch_add(&r->batch, s, n_rows, 0, false);
    TRY(runner_run(r, err));
    TRY(runner_logits(r, &logits, err));
    memcpy(out, logits, (size_t)n_rows * (size_t)b->model.spec.vocab * sizeof *out);
    sequence_advance(s, &r->kv, n_rows);
    return ERR_OK;
}

/* A prompt in chunks; logits of every position into out. */
static int run_prompt(struct bench *b, int k, int32_t chunk, float *out, struct err *err) {
    struct sequence s;
    TRY(start(b, &s, k, err));
    int code = ERR_OK;
    while (s.n_done < s.n_tokens && !code) {
        int32_t n = s.n_tokens - s.n_done < chunk ? s.n_tokens - s.n_done : chunk;
        code = advance(b, &s, n, out + (int64_t)s.n_done * b->model.spec.vocab, err);
    }
    sequence_free(&s, &b->runner.kv);
    return code;
}

/* All prompts in one batch. */
static int run_together(struct bench *b, float **out, struct err *err) {
    struct runner *r = &b->runner;
    struct sequence s[PROMPTS_MAX];
    const float *logits;
    int32_t vocab = b->model.spec.vocab;
    batch_clear(&r->batch);
    for (int k = 0; k < b->g.n; k++) {
        TRY(start(b, &s[k], k, err));
        if (!sequence_reserve(&s[k], &r->kv, s[k].n_tokens)) return err_set(err, ERR_EINTERNAL, "no blocks");
        batch_add(&r->batch, &s[k], s[k].n_tokens, 0, false);
    }
    TRY(runner_run(r, err));
    TRY(runner_logits(r, &logits, err));
    for (int k = 0; k < b->g.n; k++) {
        memcpy(out[k], logits, (size_t)s[k].n_tokens * (size_t)vocab * sizeof **out);
        logits += (int64_t)s[k].n_tokens * vocab;
        sequence_free(&s[k], &r->kv);
    }
    return ERR_OK;
}

static int32_t argmax(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* The reference's continuation fed token by token; ours must choose the same where the margin allows. */
static int check_greedy(struct bench *b, int k, float *logits, struct err *err) {
    struct sequence s;
    int32_t vocab = b->model.spec.vocab;
    TRY(start(b, &s, k, err));
    int code = advance(b, &s, s.n_tokens, logits, err);
    const float *last = logits + (int64_t)(s.n_tokens - 1) * vocab;
    for (int32_t i = 0; i < b->g.n_greedy[k] && !code; i++) {
        int32_t got = argmax(last, vocab), want = b->g.greedy[k][i];
        if (got != want && b->g.margin[k][i] > 1e-3 * b->g.sd)
            code = err_set(err, ERR_EFORMAT, "prompt %d, step %d: token %d, expected %d (margin %.3g sd)", k, i, got, want,
                           b->g.margin[k][i] / b->g.sd);
        sequence_append(&s, want);
        sequence_follow_rope(&s, &b->runner.kv, &b->model.spec, true);
        int32_t n_rows = s.n_tokens - s.n_done;
        if (!code) code = advance(b, &s, n_rows, logits, err);
        last = logits + (int64_t)(n_rows - 1) * vocab;
    }
    sequence_free(&s, &b->runner.kv);
    return code;
}

/* The same for all prompts at once: every step decodes a batch. */
static int check_greedy_together(struct bench *b, struct err *err) {
    struct runner *r = &b->runner;
    struct sequence s[PROMPTS_MAX];
    int32_t vocab = b->model.spec.vocab, n_steps = b->g.n_greedy[0];
    const float *logits;
    int code = ERR_OK;
    for (int k = 0; k < b->g.n; k++) {
        TRY(start(b, &s[k], k, err));
        if (b->g.n_greedy[k] < n_steps) n_steps = b->g.n_greedy[k];
    }
    for (int32_t i = 0; i < n_steps && !code; i++) {
        batch_clear(&r->batch);
        for (int k = 0; k < b->g.n; k++) {
            int32_t n_rows = s[k].n_tokens - s[k].n_done;
            if (!sequence_reserve(&s[k], &r->kv, n_rows)) return err_set(err, ERR_EINTERNAL, "no blocks");
            batch_add(&r->batch, &s[k], n_rows, n_rows - 1, false);
        }
        code = runner_run(r, err);
        if (!code) code = runner_logits(r, &logits, err);
        for (int k = 0; k < b->g.n && !code; k++) {
            int32_t got = argmax(logits + (int64_t)k * vocab, vocab), want = b->g.greedy[k][i];
            if (got != want && b->g.margin[k][i] > 1e-3 * b->g.sd)
                code = err_set(err, ERR_EFORMAT, "in a batch: prompt %d, step %d: token %d, expected %d", k, i, got, want);
            sequence_advance(&s[k], &r->kv, s[k].n_tokens - s[k].n_done);
            sequence_append(&s[k], want);
            sequence_follow_rope(&s[k], &r->kv, &b->model.spec, true);
        }
    }
    for (int k = 0; k < b->g.n; k++) sequence_free(&s[k], &r->kv);
    return code;
}

static int check_near(struct bench *b, int k, const float *got, struct err *err) {
    int64_t n = (int64_t)b->g.n_prompt[k] * b->model.spec.vocab;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)b->g.logits[k][i]) / b->g.sd;
        if (!(d <= b->worst)) b->worst = d;
        if (!(d <= b->tolerance))
            return err_set(err, ERR_EFORMAT, "prompt %d, position %d, token %d: %.6g, expected %.6g (%.2g sd)", k,
                           (int)(i / b->model.spec.vocab), (int)(i % b->model.spec.vocab), (double)got[i], (double)b->g.logits[k][i], d);
    }
    return ERR_OK;
}

static int check_same(struct bench *b, int k, const float *got, const float *want, const char *how, struct err *err) {
    int64_t n = (int64_t)b->g.n_prompt[k] * b->model.spec.vocab;
    if (is_near) return check_near(b, k, got, err) ? err_prefix(err, "%s", how) : ERR_OK;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            return err_set(err, ERR_EFORMAT, "prompt %d %s: position %d differs (%.9g, %.9g)", k, how, (int)(i / b->model.spec.vocab),
                           (double)got[i], (double)want[i]);
    return ERR_OK;
}

/* The state of half a prompt is kept aside, the rest is computed, the state is put back, and the rest computed again. */
static int check_resume(struct bench *b, int k, float *out, const float *want, struct err *err) {
    struct runner *r = &b->runner;
    struct sequence s;
    int32_t vocab = b->model.spec.vocab, half = b->g.n_prompt[k] / 2;
    if (r->kv.layout.n_states == 0 || half == 0) return ERR_OK;
    TRY(start(b, &s, k, err));
    int32_t aside = kv_slot_get(&r->kv);
    int code = aside < 0 ? err_set(err, ERR_EINTERNAL, "no slot") : advance(b, &s, half, out, err);
    if (!code) code = r->backend->type->slot_copy(r->backend, s.slot, aside, err);
    if (!code) code = advance(b, &s, s.n_tokens - half, out + (int64_t)half * vocab, err);
    if (!code) code = r->backend->type->slot_copy(r->backend, aside, s.slot, err);
    s.n_done = half;
    if (!code) code = advance(b, &s, s.n_tokens - half, out + (int64_t)half * vocab, err);
    if (!code) code = check_same(b, k, out, want, "resumed from a copied state", err);
    if (aside >= 0) kv_slot_put(&r->kv, aside);
    sequence_free(&s, &r->kv);
    return code;
}

static int check_all(struct bench *b, struct err *err) {
    float *whole[PROMPTS_MAX], *other[PROMPTS_MAX];
    for (int k = 0; k < b->g.n; k++) {
        size_t n = (size_t)(b->g.n_prompt[k] + b->g.n_greedy[k]) * (size_t)b->model.spec.vocab;
        whole[k] = arena_new(&b->arena, float, n);
        other[k] = arena_new(&b->arena, float, n);
        TRY(run_prompt(b, k, INT32_MAX, whole[k], err));
        TRY(check_near(b, k, whole[k], err));
        TRY(run_prompt(b, k, 1, other[k], err));
        TRY(check_same(b, k, other[k], whole[k], "in chunks of 1", err));
        TRY(run_prompt(b, k, 7, other[k], err));
        TRY(check_same(b, k, other[k], whole[k], "in chunks of 7", err));
        TRY(check_resume(b, k, other[k], whole[k], err));
    }
    TRY(run_together(b, other, err));
    for (int k = 0; k < b->g.n; k++) TRY(check_same(b, k, other[k], whole[k], "in one batch", err));
    for (int k = 0; k < b->g.n; k++) TRY(check_greedy(b, k, other[k], err));
    return is_near ? check_greedy_together(b, err) : ERR_OK;
}

static bool has_file(const char *dir, const char *name) {
    char path[1200];
    struct os_stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return os_stat(path, &st, NULL) == ERR_OK;
}

/* ---- the default precision of a GPU -------------------------------------------------------------------------------- */

/* Prompt and reference continuation, token by token after the prompt; logits of every position into out. */
static int run_forced(struct bench *b, int k, float *out, float *gaps, float *scratch, struct err *err) {
    struct sequence s;
    int32_t vocab = b->model.spec.vocab;
    TRY(start(b, &s, k, err));
    int code = advance(b, &s, s.n_tokens, out, err);
    for (int32_t i = 0; i < b->g.n_prompt[k] && gaps; i++) gaps[i] = router_gap(i);
    for (int32_t i = 0; i < b->g.n_greedy[k] && !code; i++) {
        sequence_append(&s, b->g.greedy[k][i]);
        sequence_follow_rope(&s, &b->runner.kv, &b->model.spec, true);
        int32_t n_rows = s.n_tokens - s.n_done;
        code = advance(b, &s, n_rows, scratch, err);
        if (gaps) gaps[b->g.n_prompt[k] + i] = router_gap(n_rows - 1);
        memcpy(out + (int64_t)(b->g.n_prompt[k] + i) * vocab, scratch + (int64_t)(n_rows - 1) * vocab, (size_t)vocab * sizeof *out);
    }
    sequence_free(&s, &b->runner.kv);
    return code;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct closeness {
    double *rms, *kl; /* by position */
    int32_t n, n_sure, n_same, n_left_out;
};

static void compare_position(const struct bench *b, const float *got, const float *want, struct closeness *c) {
    int32_t n = b->model.spec.vocab, best = argmax(want, n);
    double square = 0, sum_p = 0, sum_q = 0, kl = 0, second = -INFINITY;
    float top = got[argmax(got, n)];
    for (int32_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        square += d * d;
        sum_p += exp((double)want[i] - (double)want[best]);
        sum_q += exp((double)got[i] - (double)top);
        if (i != best && want[i] > second) second = want[i];
    }
    for (int32_t i = 0; i < n; i++) {
        double lp = (double)want[i] - (double)want[best] - log(sum_p), lq = (double)got[i] - (double)top - log(sum_q);
        kl += exp(lp) * (lp - lq);
    }
    c->rms[c->n] = sqrt(square / n) / b->g.sd;
    c->kl[c->n++] = kl;
    if ((double)want[best] - second > 0.1 * b->g.sd) {
        c->n_sure++;
        c->n_same += argmax(got, n) == best;
    }
}

static bool has_experts(const struct bench *b) {
    for (int32_t i = 0; i < b->be->list.n_ops; i++)
        if (b->be->list.ops[i].kind == OP_EXPERTS) return true;
    return false;
}

static int judge(const struct bench *b, struct closeness *c, struct sb *out, struct err *err) {
    double rms = 0, kl = 0;
    if (c->n == 0) return err_set(err, ERR_EFORMAT, "all %d positions are near ties of the router", c->n_left_out);
    for (int32_t i = 0; i < c->n; i++) rms += c->rms[i] * c->rms[i] / c->n, kl += c->kl[i] / c->n;
    rms = sqrt(rms);
    qsort(c->rms, (size_t)c->n, sizeof *c->rms, by_value);
    qsort(c->kl, (size_t)c->n, sizeof *c->kl, by_value);
    bool experts = has_experts(b);
    double judged_rms = experts ? c->rms[c->n / 2] : rms, judged_kl = experts ? c->kl[c->n / 2] : kl;
    sb_fmt(out, "rms %.2g sd (median %.2g), KL %.2g (median %.2g), argmax %d of %d", rms, c->rms[c->n / 2], kl, c->kl[c->n / 2], c->n_same,
           c->n_sure);
    if (experts) sb_fmt(out, ", experts: %d of %d positions left out", c->n_left_out, c->n_left_out + c->n);
    if (b->is_unjudged) return ERR_OK;
    double rms_most = kv_bits ? kv8_rms_bound : rms_bound, kl_most = kv_bits ? kv8_kl_bound : kl_bound;
    if (!(judged_rms <= rms_most) || !(judged_kl <= kl_most) || (c->n_same < c->n_sure && !b->is_small))
        return err_set(err, ERR_EFORMAT, "%s", out->p);
    return ERR_OK;
}

/* The same three prompts in one batch, twice: the same bits. */
static int check_batch_again(struct bench *b, struct err *err) {
    float *first[PROMPTS_MAX], *second[PROMPTS_MAX];
    for (int k = 0; k < b->g.n; k++) {
        size_t n = (size_t)b->g.n_prompt[k] * (size_t)b->model.spec.vocab;
        first[k] = arena_new(&b->arena, float, n);
        second[k] = arena_new(&b->arena, float, n);
    }
    TRY(run_together(b, first, err));
    TRY(run_together(b, second, err));
    for (int k = 0; k < b->g.n; k++) TRY(check_same(b, k, second[k], first[k], "in one batch, the second time", err));
    return ERR_OK;
}

static int check_default(struct bench *b, struct bench *reference, struct sb *out, struct err *err) {
    struct closeness c = {0};
    int32_t vocab = b->model.spec.vocab, n_all = 0;
    for (int k = 0; k < b->g.n; k++) n_all += b->g.n_prompt[k] + b->g.n_greedy[k];
    c.rms = arena_new(&b->arena, double, n_all);
    c.kl = arena_new(&b->arena, double, n_all);
    for (int k = 0; k < b->g.n; k++) {
        int32_t n = b->g.n_prompt[k] + b->g.n_greedy[k];
        float *got = arena_new(&b->arena, float, (size_t)n *(size_t)vocab), *want = arena_new(&b->arena, float, (size_t)n *(size_t)vocab);
        float *again = arena_new(&b->arena, float, (size_t)n *(size_t)vocab),
              *scratch = arena_new(&b->arena, float, (size_t)(n + 1) * (size_t)vocab);
        float *gaps = arena_new(&b->arena, float, n);
        TRY(run_forced(reference, k, want, gaps, scratch, err));
        TRY(run_forced(b, k, got, NULL, scratch, err));
        TRY(run_forced(b, k, again, NULL, scratch, err));
        if (memcmp(got, again, (size_t)n * (size_t)vocab * sizeof *got) != 0)
            return err_set(err, ERR_EFORMAT, "prompt %d: another result the second time", k);
        for (int32_t i = 0; i < n; i++) {
            if (gaps[i] < 0.05f) c.n_left_out++;
            else compare_position(b, got + (int64_t)i * vocab, want + (int64_t)i * vocab, &c);
        }
    }
    TRY(check_batch_again(b, err));
    return judge(b, &c, out, err);
}

/* ---- far into a sequence ------------------------------------------------------------------------------------------- */

enum { DEPTH_CHUNK = 512, DEPTH_STEPS = 8 };

/* Logits of the last DEPTH_STEPS tokens, which are run one by one. */
static int run_deep(struct bench *b, float *out, struct err *err) {
    struct sequence s;
    int32_t vocab = b->model.spec.vocab, n = depth + DEPTH_STEPS;
    float *scratch = arena_new(&b->arena, float, (size_t)DEPTH_CHUNK *(size_t)vocab);
    if (!sequence_init(&s, &b->runner.kv, n + 1)) return err_set(err, ERR_EINTERNAL, "no slot");
    for (int32_t i = 0; i < n; i++) sequence_append(&s, (int32_t)((uint32_t)(i + 1) * 2654435761u >> 8) % vocab);
    s.n_prompt = s.n_tokens;
    int code = ERR_OK;
    while (s.n_done < n && !code) {
        int32_t n_rows = s.n_done >= depth ? 1 : depth - s.n_done < DEPTH_CHUNK ? depth - s.n_done : DEPTH_CHUNK;
        float *to = s.n_done >= depth ? out + (int64_t)(s.n_done - depth) * vocab : scratch;
        code = advance(b, &s, n_rows, to, err);
    }
    sequence_free(&s, &b->runner.kv);
    return code;
}

static int check_depth(struct bench *b, struct bench *reference, struct sb *out, struct err *err) {
    int32_t vocab = b->model.spec.vocab;
    size_t n = (size_t)DEPTH_STEPS * (size_t)vocab;
    float *want = arena_new(&b->arena, float, n), *got = arena_new(&b->arena, float, n);
    struct closeness c = {.rms = arena_new(&b->arena, double, DEPTH_STEPS), .kl = arena_new(&b->arena, double, DEPTH_STEPS)};
    b->is_unjudged = has_experts(b) && precision != PRECISION_EXACT; /* so far in, some router was near a tie */
    TRY(run_deep(reference, want, err));
    TRY(run_deep(b, got, err));
    for (int32_t i = 0; i < DEPTH_STEPS; i++) compare_position(b, got + (int64_t)i * vocab, want + (int64_t)i * vocab, &c);
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]) / b->g.sd;
        if (!(d <= b->worst)) b->worst = d; /* fmax here makes gcc 12 for aarch64 fail with an internal error */
    }
    sb_fmt(out, "depth %d: worst %.2g sd, ", depth, b->worst);
    TRY(judge(b, &c, out, err));
    if (precision == PRECISION_EXACT && !(b->worst <= b->tolerance)) return err_set(err, ERR_EFORMAT, "%s", out->p);
    return ERR_OK;
}

/* Another file in place of config.json. */
static int read_config(struct bench *b, struct err *err) {
    struct str text;
    TRY(checkpoint_file_load(&b->cp.arena, &b->cp, config_name, 1 << 20, &text, err));
    return config_parse(&b->cp.arena, text, config_name, &b->cp.config, err);
}

static struct device_options device_options(void) {
    struct device_options o = {.n_threads = depth ? 0 : 2, .n_sharing = n_ranks, .name = os_env("MLXCEL_XLA_DEVICE")};
    o.xla = (struct xla_options){.plugin = os_env("MLXCEL_XLA_PLUGIN"), .cache = os_env("MLXCEL_XLA_CACHE"), .flags = os_env("XLA_FLAGS")};
    o.xla.no_preallocate = must_grow;
    return o;
}

/* The n-th name of --cards, as an option of the device; NULL: the backend's first. */
static const char *card_name(struct bench *b, int32_t n) {
    struct str rest = str_of(split_cards ? split_cards : ""), name = {0};
    for (int32_t i = 0; i <= n; i++)
        if (!str_split_next(&rest, ',', &name)) return NULL;
    return str_cstr(&b->arena, name);
}

/* Some layers on this backend, in equal parts where it has several cards, those before them on the CPU; the experts of some on the CPU, too. */
static int open_split(struct bench *b, const struct backend_type *card, const struct device_options *options,
                      const struct backend_options *o, struct err *err) {
    struct spec spec;
    struct device *devices[SIDES_MAX] = {NULL};
    TRY(spec_resolve(&b->arena, &b->cp.config, &spec, err));
    int32_t n = spec.n_layers, first = split_layers >= 0 && split_layers < n ? n - split_layers : 0;
    int32_t experts = split_experts < n ? split_experts : n;
    struct split_plan plan = {.n_layers = n, .n_cards = 1, .experts_from = experts > first ? experts : first, .borrow_rows = split_borrows};
    while (plan.n_cards < SPLIT_CARDS_MAX && card_name(b, plan.n_cards)) plan.n_cards++;
    int code = split_layers >= 0 ? device_open(&cpu_backend, options, &devices[SIDE_HOST], err) : ERR_OK;
    for (int32_t i = 0; i < plan.n_cards && !code; i++) {
        struct device_options own = *options;
        own.name = card_name(b, i);
        plan.first_layers[SIDE_CARD + i] = first + (n - first) * i / plan.n_cards;
        code = device_open(card, &own, &devices[SIDE_CARD + i], err);
    }
    if (!code) code = split_open(devices, o, &plan, &b->be, err);
    for (int i = 0; i < SIDES_MAX; i++) device_release(devices[i]);
    return code;
}

static int open_bench(struct bench *b, const char *dir, const char *backend, enum precision wanted, struct err *err) {
    /* a folder with figures but neither config.json nor model.gguf belongs to the built-in model */
    TRY(checkpoint_open(has_file(dir, "config.json") || has_file(dir, "model.gguf") ? dir : NULL, &b->cp, err));
    if (strcmp(config_name, "config.json") != 0) TRY(read_config(b, err));
    TRY(load_golden(b, dir, err));
    const struct backend_type *type = backend_find(str_of(backend));
    if (!type) return err_set(err, ERR_EARG, "unknown backend %s", backend);
    struct backend_options o = {.precision = wanted};
    struct device_options device = device_options();
    if (b->is_small) o.kv_bits = kv_bits;
    if (b->n_ranks > 1) {
        TRY(team_open(n_ranks, &b->team, err));
        o.comm = team_comm(b->team);
        o.by_nccl = by_nccl;
    }
    if (b->is_split) TRY(open_split(b, type, &device, &o, err));
    else TRY(backend_open_alone(type, &device, &o, &b->be, err));
    struct tensor_store store = model_checkpoint_store(&b->cp);
    TRY(model_open_checkpoint(&b->arena, b->be, &b->cp, &store, NULL, &b->model, err));
    if (b->team) {
        struct device_options devices[COMM_RANKS_MAX];
        for (int32_t i = 0; i < n_ranks; i++) devices[i] = device;
        TRY(team_start(b->team, type, devices, &o, mate_open, &b->cp, err));
    }
    int32_t rows = 0;
    for (int k = 0; k < b->g.n; k++) rows += b->g.n_prompt[k] + b->g.n_greedy[k];
    if (depth) {
        rows = DEPTH_CHUNK;
        b->model.spec.context = depth + KV_BLOCK;
    }
    int32_t n_seqs = depth ? 1 : b->g.n < 2 ? 2 : b->g.n;
    return runner_open(&b->model, b->be, &(struct runner_limits){.rows = rows, .seqs = n_seqs, .logits = rows}, &b->runner, err);
}

static void close_bench(struct bench *b) {
    runner_close(&b->runner);
    if (b->be) {
        model_close(b->be, &b->model);
        backend_close(b->be);
    }
    team_close(b->team);
    checkpoint_close(&b->cp);
    arena_free(&b->arena);
}

/* What a model must meet: 1e-4 of the logits' standard deviation, or the number that a line "NAME NUMBER REASON" of tolerance.list gives;
 * below 0 where it says "skip", with the reason as the error. The list is sought where the program was built, then under the folder it runs in: it may have been carried to another machine. */
static double tolerance_of(struct str name, struct err *err) {
    for (size_t slash; (slash = str_find_char(name, '/', 0)) != STR_NONE;) name = str_from(name, slash + 1);
    struct arena a = {0};
    struct str text, line, word;
    double tolerance = 1e-4;
    int code = os_file_load(&a, MLXCEL_SOURCE_DIR "/tests/golden/tolerance.list", 0, &text, NULL);
    if (code) code = os_file_load(&a, "tests/golden/tolerance.list", 0, &text, NULL);
    while (!code && str_split_next(&text, '\n', &line)) {
        if (!str_split_next(&line, ' ', &word) || !str_eq(word, name) || !str_split_next(&line, ' ', &word)) continue;
        if (str_is(word, "skip")) err_set(err, ERR_EUNSUPPORTED, "%.*s", STR_ARG(line)), tolerance = -1;
        else str_to_double(word, &tolerance);
    }
    arena_free(&a);
    return tolerance;
}

static void report(struct str name, int code, const char *figures, const struct err *err) {
    n_passed += !code;
    n_skipped += code == ERR_EUNSUPPORTED;
    n_failed += code && code != ERR_EUNSUPPORTED;
    printf("%-7s %-22.*s %s\n", !code ? "ok" : code == ERR_EUNSUPPORTED ? "skipped" : "FAILED", STR_ARG(name), code ? err->msg : figures);
    fflush(stdout);
}

static void test_encoder(const char *dir, struct str name) {
    struct err err = {0};
    struct sb figures = {0};
    struct device_options device = device_options();
    struct encoder_test t = {dir, backend_name, &device, precision, tolerance_of(name, &err), is_near || by_closeness, n_ranks};
    double worst = 0;
    if (by_closeness) t.tolerance = 0.25; /* of single numbers: default precision */
    int code = t.tolerance < 0 ? err.code : encoder_check(&t, &worst, &err);
    sb_fmt(&figures, "%.2g sd", worst);
    report(name, code, figures.p, &err);
    sb_free(&figures);
}

static void test_folder(const char *dir, struct str name) {
    struct err err = {0};
    struct bench b = {0}, reference = {0};
    struct sb figures = {0};
    b.tolerance = tolerance_of(name, &err);
    b.is_small = kv_bits != 0;
    b.is_split = split_layers >= 0 || split_cards;
    b.n_ranks = n_ranks;
    int code = b.tolerance < 0 ? err.code : open_bench(&b, dir, backend_name, precision, &err);
    if (!code && (by_closeness || depth)) {
        code = open_bench(&reference, dir, "cpu", PRECISION_EXACT, &err);
        if (!code) router_watch(reference.be);
        if (!code) code = depth ? check_depth(&b, &reference, &figures, &err) : check_default(&b, &reference, &figures, &err);
        close_bench(&reference);
    } else if (!code) {
        /* another device's recurrence rounds in another order than the CPU's; errors of a state last */
        if (b.model.spec.kv.n_states && b.be->type != &cpu_backend && b.tolerance < 1e-3) b.tolerance = 1e-3;
        code = check_all(&b, &err);
        sb_fmt(&figures, "%.2g sd", b.worst);
    }
    report(name, code, figures.p ? figures.p : "", &err);
    sb_free(&figures);
    close_bench(&b);
}

static void test_tree(const char *dir, struct str name, const char *only) {
    if (has_file(dir, "golden.safetensors")) {
        bool is_of_model = !strcmp(config_name, "config.json") || has_file(dir, config_name);
        bool is_encoder = encoder_is(dir) && !depth && !kv_bits;
        if (is_of_model && (!only || strstr(dir, only))) (is_encoder ? test_encoder : test_folder)(dir, name);
        return;
    }
    struct arena a = {0};
    struct str *names;
    size_t n;
    if (os_list_dir(&a, dir, &names, &n, NULL) == ERR_OK)
        for (size_t i = 0; i < n; i++) {
            struct str path = str_fmt(&a, "%s/%.*s", dir, STR_ARG(names[i]));
            struct os_stat st;
            if (os_stat(path.p, &st, NULL) == ERR_OK && st.is_dir) test_tree(path.p, names[i], only);
        }
    arena_free(&a);
}

static void set_precision(const char *name) {
    static const char *const names[] = {
        [PRECISION_AUTO] = "auto", [PRECISION_EXACT] = "exact", [PRECISION_F32] = "f32", [PRECISION_BF16] = "bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) precision = (enum precision)i;
}

/* "2" or "2,1": layers of the backend, layers whose experts are the CPU's. */
static void set_split(const char *text) {
    const char *comma = strchr(text, ',');
    split_layers = atoi(text);
    split_experts = comma ? atoi(comma + 1) : 0;
    comma = comma ? strchr(comma + 1, ',') : NULL;
    split_borrows = comma ? atoi(comma + 1) : 0;
}

int main(int argc, char **argv) {
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--only") && i + 1 < argc) only = argv[++i];
        else if (!strcmp(argv[i], "--text")) is_text_only = true;
        else if (!strcmp(argv[i], "--config") && i + 1 < argc) config_name = argv[++i];
        else if (!strcmp(argv[i], "--backend") && i + 1 < argc) backend_name = argv[++i];
        else if (!strcmp(argv[i], "--precision") && i + 1 < argc) set_precision(argv[++i]);
        else if (!strcmp(argv[i], "--close")) by_closeness = true;
        else if (!strcmp(argv[i], "--depth") && i + 1 < argc) depth = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--near")) is_near = true;
        else if (!strcmp(argv[i], "--grow")) must_grow = true;
        else if (!strcmp(argv[i], "--kv-bits") && i + 1 < argc) kv_bits = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--split") && i + 1 < argc) set_split(argv[++i]);
        else if (!strcmp(argv[i], "--cards") && i + 1 < argc) split_cards = argv[++i];
        else if (!strcmp(argv[i], "--nccl")) by_nccl = true;
        else if (!strcmp(argv[i], "--ranks") && i + 1 < argc) n_ranks = atoi(argv[++i]);
        else test_tree(argv[i], str_of(argv[i]), only);
    }
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed ? 1 : 0;
}
