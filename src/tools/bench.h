/* Measuring a session: prompt processing and generation, as users of llama-bench know them.
 *
 * Every figure goes through the engine that `generate` and the server use: paged cache, packed batches, sampling of the
 * largest logit; a prompt computes the logits of its last row only.
 */
#ifndef MLXCEL_TOOLS_BENCH_H
#define MLXCEL_TOOLS_BENCH_H

#include "api/session.h"

struct bench_case {
    int32_t n_prompt; /* tokens of a prompt, timed; or 0 */
    int32_t n_new;    /* tokens generated per request, timed; or 0 */
    int32_t n_batch;  /* requests at once */
    int32_t depth;    /* tokens already in the cache */
    bool shares;      /* those are the same for all requests */
};

/* A text that is replayed: the model reads the prompt and computes the answer's rows, and what it chooses is the answer. */
struct bench_text {
    int32_t *prompt, *answer;
    int32_t n_prompt, n_answer;
};

enum { BENCH_REPEATS_MAX = 100 };

struct bench_result {
    struct bench_case which;
    double seconds[BENCH_REPEATS_MAX];     /* sorted */
    double cpu_seconds[BENCH_REPEATS_MAX]; /* likewise: processor time of all threads, which other programs disturb less */
    int32_t n_repeats;
    double tokens;              /* per repeat */
    double median_rate, spread; /* tokens per second; standard deviation */
    double bytes_per_token;     /* read from memory per generated token and request: weights / batch + cache */
    double bandwidth;           /* bytes per second that this amounts to */
    int64_t n_steps;            /* of the engine, for all repeats, and drafts in them */
    int64_t n_drafted, n_accepted;
};

struct bench_plan {
    struct bench_case which;
    const struct bench_text *text; /* replayed in place of made-up tokens; NULL: none */
    int32_t n_repeats;
    /* Before each run, the warm-up too; outside what is timed. May be NULL. */
    void (*on_run)(void *user, int32_t i_run, int32_t n_runs);
    void *user;
};
/* A text for bench_plan: a JSON object with "prompt" and "answer". Tokens are the model's own; a made-up model has none, and gets a number for each word. The
 * memory is the arena's. */
int bench_read_text(struct session *s, struct arena *a, const char *path, struct bench_text *out, struct err *err);
/* One warm-up run, then n_repeats timed ones. */
int bench_run(struct session *s, const struct bench_plan *plan, struct bench_result *out, struct err *err);

/* How much of the steps' time goes to reference rows of its backend: shares of a prompt of 512 tokens and of a few tokens behind it,
 * each launch timed by itself. ERR_EUNSUPPORTED: the session runs elsewhere. */
struct bench_times {
    double prompt, decode;
};
int bench_slow_times(struct session *s, struct bench_times *out, struct err *err);

/* A picture of made-up pixels through the tower of the options' model or shape, resizing and all; the first run is not timed. */
struct bench_tower_plan {
    int32_t width, height, n_repeats;
};
struct bench_tower_result {
    double seconds[BENCH_REPEATS_MAX];   /* sorted */
    double processor[BENCH_REPEATS_MAX]; /* seconds of all threads of this process, sorted: what others do on the machine does not count */
    int32_t n_repeats, n_tokens;
    double flops, bytes; /* of the last tile: of products and attention, and of weights */
};
int bench_tower(const struct session_options *o, const struct bench_tower_plan *plan, struct bench_tower_result *out, struct err *err);

/* Bytes per second that this machine reads from memory with all threads, measured now over a buffer larger than the
 * caches. */
double bench_read_bandwidth(int32_t n_threads);

struct bench_agreement {
    int32_t n_tokens; /* compared */
    int32_t n_same;   /* with the same largest logit */
    double mean_kl;   /* of the exact distribution from the measured one, in nats */
};
/* Runs n_tokens of a fixed prompt at once, then one by one as generation does, and compares the distributions of both with the exact CPU
 * reference's. */
int bench_verify(const struct session_options *options, int32_t n_tokens, struct bench_agreement *out_prompt,
                 struct bench_agreement *out_steps, struct err *err);

#endif
