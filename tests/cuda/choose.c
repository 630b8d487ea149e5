/* kernels/choose.cu against the host's sampler: the same rows, the same parameters, the same tokens and log-probabilities. Where the random number
 * lies within 1e-4 of the border between two tokens, or a cut does, either may come: such draws are counted and named. Skipped where there is no
 * GPU.
 *
 * usage: cuda_choose [VOCAB...]    default: 37 5000 151936 */
#include "../backend_alone.h"

#include "backend/cuda/cuda.h"

#include "base/rng.h"
#include "engine/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 12, STEPS = 6, PROMPT = 9, KINDS = 6 };
#define NEAR 1e-4

struct bench {
    struct backend *be;
    int32_t vocab;
    float *rows; /* [ROWS, vocab] */
    struct weight table;
    struct sampler_work *work;
};

static int n_passed, n_failed, n_near;

/* ---- rows ------------------------------------------------------------------------------------------------------------- */

static double unit(uint64_t a, uint64_t b) {
    return rng_uniform(a, b, 7);
}

/* As models have them, evenly spread, flat, all alike, with masked tokens, in few steps. */
static float logit_of(int kind, uint64_t i) {
    double u = unit((uint64_t)kind + 1, i), gauss = 0;
    for (uint64_t k = 0; k < 6; k++) gauss += unit((uint64_t)kind * 100 + k, i) - 0.5;
    switch (kind) {
    case 0: return (float)(-log(u + 1e-12) * 3);
    case 1: return (float)(gauss * 4);
    case 2: return (float)(gauss * 0.2);
    case 3: return 1.5f;
    case 4: return u < 0.4 ? -INFINITY : (float)(gauss * 6);
    default: return (float)floor(u * 6);
    }
}

static int read_rows(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    const struct bench *b = user;
    (void)plane, (void)err;
    memcpy(dst, b->rows + row * b->vocab, (size_t)(n_rows * b->vocab) * sizeof(float));
    return ERR_OK;
}

static int open_bench(struct bench *b, int32_t vocab, struct err *err) {
    b->vocab = vocab;
    b->rows = malloc((size_t)ROWS * (size_t)vocab * sizeof *b->rows);
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t i = 0; i < vocab; i++) b->rows[(int64_t)r * vocab + i] = logit_of(r % KINDS, (uint64_t)r * 1000003 + (uint64_t)i);
    for (int32_t r = 0; r < ROWS; r++) b->rows[(int64_t)r * vocab] = 0.25f; /* one token at least may be chosen */
    b->work = sampler_work_create(vocab);
    struct weight_source source = {
        .name = "rows", .format = {.dtype = DT_F32}, .n_experts = 1, .out = ROWS, .in = vocab, .read = read_rows, .user = b};
    TRY(b->be->type->weight_bind(b->be, &source, &b->table, err));
    struct kv_layout layout = {.max_context = KV_BLOCK};
    return b->be->type->kv_open(b->be, &layout, err);
}

static void close_bench(struct bench *b) {
    b->be->type->kv_close(b->be);
    b->be->type->weight_release(b->be, &b->table);
    sampler_work_destroy(b->work);
    free(b->rows);
}

/* ---- one step on the device ------------------------------------------------------------------------------------------- */

struct step_memory {
    int32_t ids[ROWS], pos[ROWS], seq_of[ROWS], wanted[ROWS];
    struct step_seq seqs[ROWS];
    struct step_choice choices[ROWS];
};

/* The least that the rows need. */
static unsigned work_of(const struct step_memory *m) {
    unsigned work = CHOICE_DRAWS;
    for (int32_t r = 0; r < ROWS; r++) {
        const struct step_choice *c = &m->choices[r];
        if (c->slot >= 0 || c->mask >= 0) work |= CHOICE_SHAPES;
        if (c->n_top >= 0 || c->top_k > 0 || c->top_p < 1) work |= CHOICE_LISTS;
        if (c->top_k > CHOICE_SHORT || (c->top_k == 0 && c->top_p < 1)) work |= CHOICE_COUNTS;
    }
    return work;
}

static int run_step(struct bench *b, struct step_memory *m, bool repeat, struct step_chosen *out, struct err *err) {
    struct step step = {.n_rows = ROWS,
                        .n_seqs = ROWS,
                        .n_logits = ROWS,
                        .n_wanted = ROWS,
                        .rows_capacity = ROWS,
                        .seqs_capacity = ROWS,
                        .table_capacity = 1,
                        .ids = m->ids,
                        .pos = m->pos,
                        .seq_of = m->seq_of,
                        .wanted_rows = m->wanted,
                        .seqs = m->seqs,
                        .choices = m->choices};
    struct step_key key = {.n_rows = ROWS, .n_seqs = ROWS, .n_logits = ROWS, .max_len = 1, .chooses = work_of(m), .decode_only = repeat};
    struct oplist *l = &b->be->list;
    if (b->be->type->begin(b->be, &key)) {
        struct tensor x = op_embed(l, &(struct embed_args){.weight = &b->table, .scale = 1, .by_position = 1});
        oplist_output(l, op_choose(l, x));
    }
    TRY(b->be->type->end(b->be, &step, err));
    return b->be->type->chosen(b->be, 0, out, err);
}

/* ---- the host --------------------------------------------------------------------------------------------------------- */

/* The part of all weight that lies from the lower of two tokens to the higher: what a border between them can be off by. */
static double distance(const struct bench *b, const float *logits, double temperature, int32_t token, int32_t other) {
    int32_t low = token < other ? token : other, high = token < other ? other : token;
    double best = -INFINITY, total = 0, between = 0;
    for (int32_t i = 0; i < b->vocab; i++)
        if ((double)logits[i] > best) best = (double)logits[i];
    for (int32_t i = 0; i < b->vocab; i++) {
        double w = exp(((double)logits[i] - best) / temperature);
        total += w;
        if (i >= low && i < high) between += w;
    }
    return between / total;
}

/* Whether a cut or a temperature that is 1e-4 off gives the device's token. */
static bool is_near(struct bench *b, const struct sampler_params *p, const struct sampler_input *in, int32_t token) {
    struct err err;
    for (int i = -10; i <= 10; i++) {
        struct sampler_params q = *p;
        q.n_top = -1;
        if (q.top_p < 1) q.top_p = p->top_p + (float)(i * NEAR / 10);
        if (q.min_p > 0) q.min_p = p->min_p * (float)(1 + i * NEAR / 10);
        if (q.top_p <= 0 || q.top_p > 1) continue;
        q.temperature = p->temperature * (float)(1 + (i % 2) * NEAR);
        if (sampler_choose(b->work, &q, in, NULL, &err) == token) return true;
    }
    return false;
}

static void check_row(struct bench *b, const char *what, int32_t r, const struct sampler_params *p, const struct sampler_input *in,
                      const struct step_chosen *got) {
    struct sampler_result want = {0};
    struct err err = {0};
    int32_t token = sampler_choose(b->work, p, in, &want, &err);
    double norm = (double)got->largest + log((double)got->sum), worst = 0;
    bool ok = token == got->token;
    if (!ok && p->temperature > 0) {
        if (distance(b, in->logits, (double)p->temperature, token, got->token) < NEAR || is_near(b, p, in, got->token)) {
            n_near++;
            ok = true;
        }
    }
    if (p->n_top >= 0 && token == got->token) {
        worst = fabs((double)got->logit - norm - (double)want.logprob);
        int32_t n = got->n_top < want.n_top ? got->n_top : want.n_top;
        ok = ok && (got->n_top == want.n_top || got->n_top == 0); /* 0: more than 2,048 tokens are alike */
        for (int32_t i = 0; i < n; i++) {
            ok = ok && got->top_tokens[i] == want.top[i].token;
            worst = fmax(worst, fabs((double)got->top_logits[i] - norm - (double)want.top[i].logprob));
        }
        ok = ok && worst < 2e-5;
    }
    n_passed += ok;
    n_failed += !ok;
    if (!ok)
        printf("FAILED %s, vocabulary %d, row %d: token %d, expected %d; %d most likely, expected %d; log-probabilities are %.2g off\n",
               what, b->vocab, r, got->token, token, got->n_top, want.n_top, worst);
}

/* ---- cases ------------------------------------------------------------------------------------------------------------ */

static const struct named {
    const char *what;
    struct sampler_params p; /* beyond the defaults */
} cases[] = {
    {"the largest", {.temperature = 0}},
    {"the largest, reported", {.temperature = 0, .n_top = 5}},
    {"temperature 1", {.temperature = 1}},
    {"temperature 0.3", {.temperature = 0.3f}},
    {"temperature 2, reported", {.temperature = 2, .n_top = 20}},
    {"top-k 1", {.temperature = 1, .top_k = 1}},
    {"top-k 20, top-p 0.95", {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f}},
    {"top-k 1000", {.temperature = 1, .top_k = 1000, .n_top = 0}},
    {"top-p 0.9", {.temperature = 1, .top_p = 0.9f}},
    {"top-p 0.01", {.temperature = 1, .top_p = 0.01f, .n_top = 3}},
    {"top-p 0.9999", {.temperature = 0.8f, .top_p = 0.9999f}},
    {"min-p 0.05", {.temperature = 1, .min_p = 0.05f}},
    {"all cuts", {.temperature = 1.2f, .top_k = 100, .top_p = 0.8f, .min_p = 0.02f, .n_top = 5}},
    {"repetition 1.3", {.temperature = 1, .repetition = 1.3f}},
    {"repetition 1.3 of 4 tokens", {.temperature = 0, .repetition = 1.3f, .last_n = 4}},
    {"frequency and presence", {.temperature = 0.7f, .frequency = 0.5f, .presence = 0.7f, .top_k = 40, .n_top = 5}},
    {"penalties, the largest", {.temperature = 0, .repetition = 1.1f, .frequency = 1.5f, .n_top = 20}},
};

static struct sampler_params filled(const struct sampler_params *given, uint64_t seed) {
    struct sampler_params p = sampler_defaults();
    p.temperature = given->temperature;
    p.top_k = given->top_k;
    if (given->top_p > 0) p.top_p = given->top_p;
    p.min_p = given->min_p;
    if (given->repetition > 0) p.repetition = given->repetition;
    if (given->last_n > 0) p.last_n = given->last_n;
    p.frequency = given->frequency;
    p.presence = given->presence;
    p.n_top = given->n_top ? given->n_top : -1;
    p.seed = seed;
    return p;
}

static bool has_tables(const struct sampler_params *p) {
    return p->repetition != 1 || p->frequency != 0 || p->presence != 0 || p->n_bias > 0;
}

struct history {
    int32_t tokens[PROMPT + STEPS + 1], n;
};

static struct step_choice choice_of(const struct sampler_params *p, const struct history *h, int32_t slot, bool is_first) {
    struct step_choice c = {.seed = p->seed,
                            .position = h->n,
                            .top_k = p->temperature > 0 ? p->top_k : 0,
                            .temperature = p->temperature,
                            .top_p = p->temperature > 0 ? p->top_p : 1,
                            .min_p = p->temperature > 0 ? p->min_p : 0,
                            .repetition = p->repetition,
                            .frequency = p->frequency,
                            .presence = p->presence,
                            .slot = has_tables(p) ? slot : -1,
                            .n_bias = p->n_bias,
                            .counts_input = !is_first,
                            .leaves = -1,
                            .mask = -1,
                            .n_top = p->n_top};
    int32_t out = !is_first && p->last_n > 0 && h->n > p->last_n ? h->tokens[h->n - p->last_n - 1] : -1;
    if (out < PICTURE_TOKEN) c.leaves = out;
    return c;
}

static int begin_tables(struct bench *b, const struct sampler_params *p, const struct history *h, int32_t slot, struct err *err) {
    struct choice_bias bias[4];
    for (int32_t i = 0; i < p->n_bias; i++) bias[i] = (struct choice_bias){p->bias[i].token, p->bias[i].bias};
    struct choice_tables t = {.history = h->tokens,
                              .n_history = h->n,
                              .n_prompt = PROMPT,
                              .n_slots = ROWS,
                              .vocab = b->vocab,
                              .last_n = p->last_n,
                              .bias = bias,
                              .n_bias = p->n_bias};
    return b->be->type->choice_begin(b->be, slot, &t, err);
}

/* A few tokens of every row. The device is told a row's own token by the row of the step before that chose it. */
static int check_case(struct bench *b, const char *what, const struct sampler_params *given, bool with_bias, struct err *err) {
    static struct step_memory m;
    static struct step_chosen got[ROWS];
    static struct history all[ROWS];
    struct sampler_bias bias[4] = {{0, 2}, {3, -5}, {b->vocab - 1, 4}, {b->vocab / 2, 1.5f}};
    m = (struct step_memory){0};
    for (int32_t r = 0; r < ROWS; r++) {
        all[r].n = PROMPT;
        for (int32_t i = 0; i < PROMPT; i++) all[r].tokens[i] = (r * 7 + i * i) % b->vocab;
        for (int32_t i = 3; i < PROMPT - 1 && r % 2; i++) all[r].tokens[i] |= PICTURE_TOKEN; /* rows of a picture are never said again */
        m.pos[r] = m.seq_of[r] = m.wanted[r] = r;
        m.seqs[r] = (struct step_seq){.row = r, .n_rows = 1, .slot = -1};
    }
    for (int32_t step = 0; step < STEPS; step++) {
        for (int32_t r = 0; r < ROWS; r++) {
            struct sampler_params p = filled(given, (uint64_t)r * 31 + 5);
            if (with_bias) p.bias = bias, p.n_bias = 4;
            if (step == 0 && has_tables(&p)) TRY(begin_tables(b, &p, &all[r], r, err));
            m.choices[r] = choice_of(&p, &all[r], r, step == 0);
            m.ids[r] = step ? -1 - r : all[r].tokens[PROMPT - 1];
        }
        TRY(run_step(b, &m, step > 1, got, err));
        for (int32_t r = 0; r < ROWS; r++) {
            struct sampler_params p = filled(given, (uint64_t)r * 31 + 5);
            if (with_bias) p.bias = bias, p.n_bias = 4;
            struct sampler_input in = {
                .logits = b->rows + (int64_t)r * b->vocab, .history = all[r].tokens, .n_history = all[r].n, .n_prompt = PROMPT};
            check_row(b, what, r, &p, &in, &got[r]);
            if (got[r].token < 0) return err_set(err, ERR_EDEVICE, "%s: nothing was chosen", what);
            all[r].tokens[all[r].n++] = got[r].token;
        }
    }
    return ERR_OK;
}

static int check_vocab(struct bench *b, int32_t vocab, struct err *err) {
    int code = open_bench(b, vocab, err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !code; i++) code = check_case(b, cases[i].what, &cases[i].p, false, err);
    if (!code) code = check_case(b, "bias", &(struct sampler_params){.temperature = 1}, true, err);
    if (!code)
        code = check_case(b, "bias and penalties", &(struct sampler_params){.temperature = 0, .repetition = 2, .n_top = 4}, true, err);
    close_bench(b);
    return code;
}

int main(int argc, char **argv) {
    static const int32_t usual[] = {37, 5000, 151936};
    struct bench b = {0};
    struct err err = {0};
    if (backend_open_alone(&cuda_backend, &(struct device_options){0}, &(struct backend_options){.precision = PRECISION_EXACT}, &b.be,
                           &err)) {
        printf("skipped: %s\n0 passed, 0 failed, 1 skipped\n", err.msg);
        return 0;
    }
    for (int i = 0; i < (argc > 1 ? argc - 1 : 3) && !err.code; i++) check_vocab(&b, argc > 1 ? atoi(argv[i + 1]) : usual[i], &err);
    backend_close(b.be);
    if (err.code) printf("FAILED %s\n", err.msg);
    printf("%d draws lay within %.0e of a border and differ\n", n_near, NEAR);
    printf("%d passed, %d failed\n", n_passed, n_failed + (err.code != 0));
    return n_failed || err.code ? 1 : 0;
}
