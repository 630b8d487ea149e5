/* The engine: continuous batching of many requests over one model.
 *
 * Every step is one packed batch: a decode row of each running request first, then chunks of prompts. Requests are
 * admitted in order of arrival; one of many generations shares the slots with the others. When blocks run out, the youngest running request is preempted: it keeps its tokens,
 * gives its blocks back and computes them again later.
 *
 * (1) One thread owns an engine. Requests come in by engine_submit and tokens go out by the request's function, both on
 *     that thread; crossing threads is the caller's business. Choosing functions alone run on the backend's workers too.
 * (2) What a request gets does not depend on what else is in the batch (on the CPU bit for bit).
 * (3) Between admissions nothing allocates: steps run under a memory guard in debug builds.
 * (4) An error of one request ends that request. Only an error of the device ends a step.
 */
#ifndef MLXCEL_ENGINE_ENGINE_H
#define MLXCEL_ENGINE_ENGINE_H

#include "engine/runner.h"

struct engine;
struct job;

struct engine_options {
    struct runner_limits limits;
    int32_t chunk; /* most prompt rows of one request in a step; 0: as many as fit */
    bool exact;    /* see sequence_follow_rope */
    bool prefix;   /* keep computed blocks for prompts that begin alike */
};

enum finish { FINISH_NONE, FINISH_EOS, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR };

struct engine_event {
    int32_t token;         /* the new token; -1 where the request ended without one */
    enum finish finish;    /* FINISH_NONE while it goes on */
    int32_t n_cached;      /* positions of the prompt that were there already */
    const float *logits;   /* [vocab] that the token was chosen from; NULL unless the request wants them */
    const struct err *err; /* FINISH_ERROR: why */
};

/* Called once per token. After an event with a finish the job is gone. */
typedef void engine_fn(void *user, const struct engine_event *event);
/* A row that a token is to be chosen from. */
struct engine_choice {
    const float *logits; /* [vocab] */
    int32_t vocab;
    const int32_t *history; /* prompt and answer so far */
    int32_t n_history;
    int32_t worker; /* below engine_workers(): requests of one step are served by several threads at once */
};
/* Chooses a token. NULL in a request means the largest logit. Returns -1 and sets err when nothing can be chosen. */
typedef int32_t engine_choose_fn(void *user, const struct engine_choice *choice, struct err *err);

struct engine_request {
    const int32_t *tokens; /* copied */
    int32_t n_tokens;
    int32_t max_new;    /* at most; -1: until the end or the context is full */
    const int32_t *eos; /* tokens that end it; copied */
    int32_t n_eos;
    bool want_logits;
    engine_fn *on_event;
    engine_choose_fn *choose;
    void *user;
    uint64_t group; /* generations of one request share a number other than 0 */
};

struct engine_stats {
    int32_t n_running, n_waiting;
    int32_t rows_prefill, rows_decode; /* of the last step */
    int64_t n_steps, n_preempted;
    int64_t n_prefix_hits, n_prefix_misses, n_cached; /* prompts that began with known blocks or not; positions known */
};

int engine_open(const struct model *m, struct backend *be, const struct engine_options *options, struct engine **out, struct err *err);
void engine_close(struct engine *e);
/* Refuses prompts that are empty, hold ids outside the vocabulary, or do not fit the context. */
int engine_submit(struct engine *e, const struct engine_request *request, struct job **out, struct err *err);
/* Ends a request at once, with an event. */
void engine_cancel(struct engine *e, struct job *job);
/* Positions of a request that have been computed or were known; of its prompt, while no token has come. */
int32_t engine_done(const struct job *job);
/* One step; *out_idle when nothing is left to do. An error is the device's: all requests were ended with it. */
int engine_step(struct engine *e, bool *out_idle, struct err *err);
/* Blocks for n more rows of a sequence outside the schedule; cached ones that nobody reads are given up for them. */
bool engine_reserve(struct engine *e, struct sequence *s, int32_t n);
/* Whether so many positions would find blocks beside those that running prompts will still take. */
bool engine_fits(const struct engine *e, int32_t n_positions);
/* Who holds blocks for sequences outside the schedule (NULL: nobody). When they run out it is asked first, as often as it gives some back:
 * a sequence that does has 0 positions done, and must begin again. */
typedef bool engine_guest_fn(void *guest);
void engine_invite(struct engine *e, engine_guest_fn *give_way, void *guest);
struct engine_stats engine_stats(const struct engine *e);
/* Threads that call the choosing functions. */
int32_t engine_workers(const struct engine *e);
const struct runner_limits *engine_limits(const struct engine *e);
/* How many prompt rows the next step may have, after one of n_rows that took ms, on a device where a step may take limit_ms: half as many
 * when it took longer, twice as many when it took less than a third; at most `most`. */
int32_t engine_next_chunk(int32_t chunk, int32_t n_rows, double ms, int32_t limit_ms, int32_t most);
/* For looking inside while the engine is idle. */
struct runner *engine_runner(struct engine *e);

#endif
