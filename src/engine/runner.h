/* One model on one backend, ready to run batches: cache, step block and scratch memory sized once at open.
 *
 * runner_run executes the batch that was filled through runner->batch and leaves logits and hidden states of the wanted rows
 * readable. Scheduling is the engine's business; this only computes.
 */
#ifndef MLXCEL_ENGINE_RUNNER_H
#define MLXCEL_ENGINE_RUNNER_H

#include "engine/batch.h"
#include "model/forward.h"

struct runner_limits {
    int32_t context;    /* longest sequence; 0: the model's */
    int32_t rows;       /* most rows in a step */
    int32_t seqs;       /* most sequences at once */
    int32_t logits;     /* most rows in a step whose logits are wanted; 0: one for each sequence */
    int32_t snapshots;  /* slots of recurrent state beyond those of the sequences */
    int64_t kv_tokens;  /* positions that the cache holds in all; 0: seqs * context */
    double kv_share;    /* above 0: the cache takes at most this share of the memory that is free when everything else has been allocated */
    bool keeps_context; /* the context was asked for: it is not made shorter for want of memory */
    bool drafts;        /* some steps check drafts */
};

struct runner {
    const struct model *model;
    struct backend *backend;
    struct kv kv;
    struct batch batch;
    struct runner_limits limits;
    struct tensor logits, best;     /* of the last run: [n_logits, 1, vocab], [n_logits, 1, 1] */
    struct tensor hidden;           /* of the last run: [n_hidden, 1, hidden] */
    struct tensor taps[STATE_TAPS]; /* of the last run, as the model has them: [n_rows, 1, hidden] each */
    void *host_taps[STATE_TAPS];    /* [limits.rows, hidden] when read; made when first needed */
    float *host_logits;             /* [limits.logits, vocab] when read */
    int32_t *host_best;             /* [limits.logits] when read */
};

int runner_open(const struct model *m, struct backend *be, const struct runner_limits *limits, struct runner *out, struct err *err);
void runner_close(struct runner *r);

/* The op list of a step, between the backend's begin and end. */
void runner_describe(struct runner *r, const struct step_key *key);
/* Runs the batch. */
int runner_run(struct runner *r, struct err *err);
/* Keys and values of the pictures that the sequence looks at, into its blocks; nothing may be in flight. */
int runner_states(struct runner *r, const struct sequence *s, struct err *err);
/* The hidden states that were wanted of the last run, dense, [n_hidden, hidden]. */
int runner_hidden(struct runner *r, float *out, struct err *err);
/* The model's taps of the last run, dense, [n_rows, hidden] each; valid until the next. */
int runner_taps(struct runner *r, const float *out[STATE_TAPS], struct err *err);
/* The logits of the last run, dense, [n_logits, vocab]; valid until the next. */
int runner_logits(struct runner *r, const float **out, struct err *err);
/* What was chosen for each of the n rows with logits: of the last run, or of the run `age` before it on a backend that runs ahead. A backend
 * that does not choose gives tokens alone, those of the largest logits. */
int runner_chosen(struct runner *r, int32_t age, int32_t n, struct step_chosen *out, struct err *err);

#endif
