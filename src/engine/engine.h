/* The engine: continuous batching of many jobs over one model.
 *
 * Each turn runs at most one step of the model. A step is one packed batch: a decode row of each running job first, then chunks of prompts.
 * Jobs are admitted in order of arrival; the jobs of one request share the places with other requests. When blocks run out, the youngest
 * running job is preempted: it keeps its tokens, gives its blocks back and computes them again later.
 *
 * (1) Two threads know an engine. One turns it: engine_turn, engine_wait. The other owns the jobs: engine_submit, engine_next_ready, and the
 *     functions of job.h. Both may be the same thread.
 * (2) notify is called from the turning thread, without the engine's lock. It may wake somebody, and must not wait for long.
 * (3) What a job gets does not depend on what else is in the batch (on the CPU bit for bit).
 * (4) Steps run under a memory guard in debug builds: nothing allocates while the device computes.
 * (5) An error of one job ends that job. Only an error of the device ends a step, and all jobs with it.
 */
#ifndef MLXCEL_ENGINE_ENGINE_H
#define MLXCEL_ENGINE_ENGINE_H

#include "engine/job.h"
#include "engine/runner.h"

struct tok;

struct engine_options {
    struct runner_limits limits;
    int32_t chunk; /* most prompt rows of one job in a step; 0: as many as fit */
    int32_t
        max_step_ms; /* while somebody reads an answer, prompts are cut into chunks so that a step takes no longer than this; 0: no limit */
    bool exact;      /* see sequence_follow_rope */
    uint64_t identity;     /* hash of the model's configuration and weights, for caches that are saved */
    enum draft_from draft; /* of jobs that do not say; DRAFT_USUAL or DRAFT_NONE: no job has drafts */
    int32_t max_draft;     /* tokens of one at most; 0: DRAFT_MAX */
    bool prefix;           /* keep computed blocks for prompts that begin alike */
    uint64_t cache_ram;    /* bytes of the host's memory for those that leave the device's cache; 0: none */
    const int32_t *eos;    /* [n_eos] tokens that end an answer; must outlive the engine */
    int32_t n_eos;
    const float *
        adapters; /* [n_adapters of the model] scales for jobs that have none of their own; NULL: 0. The owner's: may change between jobs */
    int32_t n_queue;            /* requests that may wait beyond those that run; -1: any number */
    void (*notify)(void *user); /* some job has events; NULL: nobody is told */
    void *user;
};

enum { HISTOGRAM_MAX = 12 };
struct histogram {
    const double *bounds; /* upper ends of the buckets; the last bucket, behind them, has none */
    int32_t n_bounds;
    uint64_t counts[HISTOGRAM_MAX + 1], n;
    double sum;
};

struct engine_stats {
    int32_t n_running, n_waiting;
    int32_t rows_prefill, rows_decode; /* of the last step */
    int64_t n_steps, n_preempted;
    int64_t n_prompt_tokens, n_new_tokens, n_cached_tokens;
    int64_t n_drafted_tokens, n_accepted_tokens;      /* of drafts; of those, that came true */
    int64_t n_prefix_hits, n_prefix_misses;           /* prompts that began with known blocks, and those that did not */
    int32_t blocks_total, blocks_used, blocks_cached; /* used: by jobs; cached: kept for prefixes alone */
    int32_t blocks_away;                              /* kept for prefixes in the host's memory */
    int64_t n_returned_tokens;                        /* that came back from there */
    int64_t n_finished[N_JOB_FINISHES];
    int32_t block_tokens; /* of a block */
    int64_t n_step_jobs;  /* jobs of all steps together */
    int32_t n_longest;    /* tokens of the longest job that is done, prompt and answer */
    /* Seconds: to the first token, between tokens; of jobs that are done: in all, until they ran, then until the first token, then writing. */
    struct histogram first_token, between_tokens, whole, waiting, reading, writing;
    struct histogram n_prompt, n_answer; /* tokens of those */
};

int engine_open(const struct model *m, struct backend *be, const struct engine_options *options, struct engine **out, struct err *err);
/* Ends what still runs. Nobody may touch a job of this engine afterwards. */
void engine_close(struct engine *e);
/* The tokenizer, for jobs that want text, and how the model writes calls and reasoning (either may be NULL). Before the first of them; they must
 * outlive the engine. */
void engine_set_text(struct engine *e, const struct tok *tok, const struct output_format *format, const struct output_reasoning *reasoning);

/* A draft model for jobs of DRAFT_MODEL, which options.draft must be: another engine on the same device, which has no jobs of its own and outlives this one.
 * Before the first job. An error says why that model cannot. */
struct draft_map {
    const int32_t *to_draft,
        *to_target; /* tokens of one vocabulary in the other; -1: there is none. NULL: they are the same. They outlive the engine */
    double cost;    /* of a step of the draft model, in steps of this one */
};
int engine_set_draft(struct engine *e, struct engine *draft, const struct draft_map *map, struct err *err);

/* A head for jobs of `from`, which options.draft must be; the engine's model has the taps that it reads. Head and backend outlive the engine. Before the first
 * job. */
struct draft_head;
int engine_set_head(struct engine *e, enum draft_from from, const struct draft_head *head, struct backend *be, double cost,
                    struct err *err);

/* ---- the owner ------------------------------------------------------------------------------------------------------- */

/* The jobs of one request, all or none. ERR_EBUSY: the queue is full. ERR_ELIMIT: a prompt does not fit the context. ERR_EARG: anything else
 * that is wrong with a spec. */
int engine_submit(struct engine *e, const struct job_spec *specs, int32_t n, struct job **out, struct err *err);
/* The next job that has events, or NULL. */
struct job *engine_next_ready(struct engine *e);
/* As of the last turn. */
struct engine_stats engine_stats(struct engine *e);

/* ---- the turning thread ---------------------------------------------------------------------------------------------- */

/* Takes orders, runs a step if there is one to run, hands out events. *out_idle: nothing is left to do. An error is the device's: all jobs
 * were ended with it. */
int engine_turn(struct engine *e, bool *out_idle, struct err *err);
/* Waits for something to do; false: engine_quit was called. */
bool engine_wait(struct engine *e);
/* From any thread: engine_wait returns false from now on, and no job is taken any more. */
void engine_quit(struct engine *e);

/* ---- facts that do not change ---------------------------------------------------------------------------------------- */

const struct runner_limits *engine_limits(const struct engine *e);
/* Whether caches can be saved and restored here; else why not. */
int engine_can_save(const struct engine *e, struct err *err);
/* What a saved cache must fit. */
struct saved_reader;
void engine_saved_reader(const struct engine *e, struct saved_reader *out);
/* Numbers of an embedding. */
int32_t engine_width(const struct engine *e);
/* How many prompt rows the next step may have. The last step had n_rows and took ms; a step may take limit_ms. The answer aims at four fifths of the
 * limit. It is at least half of `chunk`, at most twice `chunk`, and at most `most`. A step with fewer rows than `chunk` does not raise it. */
int32_t engine_next_chunk(int32_t chunk, int32_t n_rows, double ms, int32_t limit_ms, int32_t most);

#endif
