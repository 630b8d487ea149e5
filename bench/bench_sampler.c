/* Times the sampler's chains on the host, one thread: microseconds of processor time for one row of 151,936 logits.
 *
 * usage: bench_sampler [ROWS]     rows for each figure (default 64); the median of nine turns, all chains in every turn
 *
 * Two kinds of rows. "model": some hundred tokens stand out from many thousand that do not, as trained models have it. "flat": numbers of a
 * normal distribution, as random weights give: tens of thousands of tokens are likely, and cuts keep many of them.
 */
#include "base/arena.h"
#include "base/fmath.h"
#include "base/hash.h"
#include "engine/sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { VOCAB = 151936, N_KINDS = 2, N_ROWS = 4, N_STANDING = 300, N_HISTORY = 2048, N_PROMPT = 1536, N_TURNS = 9 };

struct bench {
    float *rows[N_KINDS][N_ROWS];
    int32_t history[N_HISTORY];
    uint32_t *mask;
    struct sampler_work *work;
};

static const char *const kinds[N_KINDS] = {"model", "flat"};

/* ---- what is timed ------------------------------------------------------------------------------------------------- */

static const struct sampler_bias some_bias[] = {{5, 1}, {70000, -2}, {150000, 3}};

/* Parameters by their names (engine/sampler.h), beside a temperature of 1. */
struct chain_case {
    const char *name;
    struct {
        const char *field;
        double value;
    } set[12];
    int n_top; /* log-probabilities; 0: none */
    bool masked, biased;
};

static const struct chain_case cases[] = {
    {.name = "temperature 1"},
    {.name = "temperature 0.7", .set = {{"temperature", 0.7}}},
    {.name = "0.6, top-k 20, top-p 0.95", .set = {{"temperature", 0.6}, {"top_k", 20}, {"top_p", 0.95}}},
    {.name = "top-k 1000", .set = {{"top_k", 1000}}},
    {.name = "0.8, top-p 0.95", .set = {{"temperature", 0.8}, {"top_p", 0.95}}},
    {.name = "min-p 0.05", .set = {{"min_p", 0.05}}},
    {.name = "typical 0.9", .set = {{"typical_p", 0.9}}},
    {.name = "xtc 0.5, 0.1", .set = {{"xtc_probability", 0.5}}},
    {.name = "xtc 0.5, 0.1, min-p 0.02", .set = {{"xtc_probability", 0.5}, {"min_p", 0.02}}},
    {.name = "repetition 1.1", .set = {{"repetition_penalty", 1.1}}},
    {.name = "frequency 0.2, presence 0.1", .set = {{"frequency_penalty", 0.2}, {"presence_penalty", 0.1}}},
    {.name = "bias", .biased = true},
    {.name = "dry 0.8", .set = {{"dry_multiplier", 0.8}}},
    {.name = "mirostat 1", .set = {{"mirostat", 1}}},
    {.name = "mirostat 2", .set = {{"mirostat", 2}}},
    {.name = "dynamic temperature 0.5", .set = {{"dynatemp_range", 0.5}}},
    {.name = "logprobs 5", .n_top = 5},
    {.name = "0.6, top-k 20, top-p 0.95, logprobs 5", .set = {{"temperature", 0.6}, {"top_k", 20}, {"top_p", 0.95}}, .n_top = 5},
    {.name = "repetition 1.1, logprobs 5", .set = {{"repetition_penalty", 1.1}}, .n_top = 5},
    {.name = "greedy, repetition 1.1", .set = {{"temperature", 0}, {"repetition_penalty", 1.1}}},
    {.name = "everything", .set = {{"temperature", 0.8}, {"top_k", 40}, {"typical_p", 0.97}, {"top_p", 0.95}, {"min_p", 0.02}, {"xtc_probability", 0.3}, {"repetition_penalty", 1.1}, {"frequency_penalty", 0.1}, {"dry_multiplier", 0.8}, {"dynatemp_range", 0.2}}},
    {.name = "a grammar's mask, temperature 1", .masked = true},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static struct sampler_params params_of(const struct chain_case *c) {
    struct sampler_params p = sampler_defaults();
    p.temperature = 1;
    for (int i = 0; c->set[i].field; i++) sampler_field_set(&p, sampler_field_find(str_of(c->set[i].field)), c->set[i].value);
    if (c->n_top) p.n_top = c->n_top;
    if (c->biased) p.bias = some_bias, p.n_bias = 3;
    return p;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

static double unit(uint64_t a, uint64_t b) {
    return (double)(hash_pair(a, b) >> 11) * 0x1p-53 + 1e-12;
}

static double normal(uint64_t a, uint64_t b) {
    double sine, cosine;
    m_sincos(6.283185307179586 * unit(a, 2 * b), &sine, &cosine);
    return sqrt(-2 * m_log(unit(a, 2 * b + 1))) * sine;
}

static void fill(struct bench *b) {
    for (int kind = 0; kind < N_KINDS; kind++)
        for (uint64_t r = 0; r < N_ROWS; r++) {
            float *row = b->rows[kind][r] = mem_alloc(VOCAB * sizeof *row);
            for (uint64_t i = 0; i < VOCAB; i++) row[i] = (float)(2.2 * normal(r + 1, i));
            for (uint64_t i = 0; i < N_STANDING && kind == 0; i++)
                row[hash_pair(r + 77, i) % VOCAB] = (float)(19 - 1.9 * m_log((double)(i + 1)) + 0.3 * normal(r + 99, i));
        }
    for (uint64_t i = 0; i < N_HISTORY; i++) b->history[i] = (int32_t)(hash_pair(3, i % 700) % VOCAB);
    b->mask = mem_alloc((VOCAB / 32 + 1) * sizeof *b->mask);
    for (uint64_t i = 0; i < VOCAB / 32; i++) b->mask[i] = (uint32_t)(hash_pair(4, i) | hash_pair(5, i)); /* three of four tokens */
    b->work = sampler_work_create(VOCAB);
}

/* ---- the clock ----------------------------------------------------------------------------------------------------- */

/* Processor time: other programs on the machine do not count. */
static double time_case(struct bench *b, const struct chain_case *c, int kind, int n_rows) {
    struct sampler_params p = params_of(c);
    struct sampler_state state = {0};
    struct sampler_result result;
    struct err err = {0};
    clock_t start = clock();
    for (int i = 0; i < n_rows; i++) {
        struct sampler_input in = {.logits = b->rows[kind][i % N_ROWS],
                                   .history = b->history,
                                   .n_history = N_HISTORY,
                                   .n_prompt = N_PROMPT,
                                   .state = &state,
                                   .mask = c->masked ? b->mask : NULL};
        p.seed = (uint64_t)i + 1;
        if (sampler_choose(b->work, &p, &in, &result, &err) < 0) {
            fprintf(stderr, "bench_sampler: %s: %s\n", c->name, err.msg);
            exit(1);
        }
    }
    return (double)(clock() - start) * 1e6 / CLOCKS_PER_SEC / n_rows;
}

static int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    static double times[N_CASES][N_KINDS][N_TURNS];
    struct bench b;
    int n_rows = argc > 1 ? atoi(argv[1]) : 64;
    if (n_rows < 1) n_rows = 1;
    fill(&b);
    for (int turn = 0; turn < N_TURNS; turn++)
        for (int c = 0; c < N_CASES; c++)
            for (int kind = 0; kind < N_KINDS; kind++) times[c][kind][turn] = time_case(&b, &cases[c], kind, n_rows);
    printf("microseconds for a row of %d, median of %d turns of %d rows\n%-40s %10s %10s\n", VOCAB, N_TURNS, n_rows, "", kinds[0], kinds[1]);
    for (int c = 0; c < N_CASES; c++) {
        for (int kind = 0; kind < N_KINDS; kind++) qsort(times[c][kind], N_TURNS, sizeof(double), by_size);
        printf("%-40s %10.1f %10.1f\n", cases[c].name, times[c][0][N_TURNS / 2], times[c][1][N_TURNS / 2]);
    }
    sampler_work_destroy(b.work);
    mem_free(b.mask);
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int r = 0; r < N_ROWS; r++) mem_free(b.rows[kind][r]);
    return 0;
}
