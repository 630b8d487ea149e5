/* A job: what somebody wants of the engine, and what comes back.
 *
 * `struct job_spec` is the whole request, as the server and the command line fill it. A job reads its prompt and then writes an answer.
 * Either part may be missing: an embedding has no answer, a plain generation wants nothing of the prompt's rows.
 *
 * Terms:
 *   row     one position of one sequence in one step of the model
 *   prompt  the tokens that were given
 *   answer  the tokens that the model chose
 *   events  what has happened since the owner last looked; they pile up in the job until they are taken
 *   owner   the thread that submits jobs, takes their events and releases them
 *
 * (1) Everything in a spec is copied by engine_submit.
 * (2) A job lives until it is released. Releasing one that still runs cancels it.
 * (3) A job whose owner takes no events is cancelled when its mailbox is full: the engine never waits for a reader.
 */
#ifndef MLXCEL_ENGINE_JOB_H
#define MLXCEL_ENGINE_JOB_H

#include "engine/constraint.h"
#include "engine/draft.h"
#include "engine/pool.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "text/output/output.h"

struct engine;
struct job;
struct saved;

/* What the rows of the prompt are wanted for, beside the answer that follows them. */
enum job_rows {
    ROWS_NONE,
    ROWS_LOGITS, /* on_rows gets the logits of every position */
    ROWS_SCORES, /* every token's log-probability behind those before it, as sampling.n_top says */
    ROWS_HIDDEN, /* the hidden states behind the final norm become vectors, see job_pooling */
};

/* What a job has to do with the cache. The last three are all that such a job does: it has neither rows nor an answer. */
enum job_cache {
    CACHE_USED,    /* what is known of the prompt is taken from it, what is computed is kept there */
    CACHE_SAVE,    /* the prompt is computed as far as it is not known; then its cache is copied out: job_events.saved */
    CACHE_RESTORE, /* spec.saved is put into it, for prompts that begin alike */
    CACHE_ERASE,   /* what is known of the prompt is forgotten */
};

/* Rows of logits [n_rows, vocab], of positions `first` and on. On the engine's thread; the memory is the engine's. */
typedef void job_rows_fn(void *user, int32_t first, int32_t n_rows, const float *logits);

/* A sequence of tokens. */
struct job_words {
    const int32_t *p;
    int32_t n;
};

struct job_spec {
    const int32_t *tokens; /* the prompt */
    int32_t n_tokens;
    const struct picture_rows *pictures; /* [n_pictures] runs of tokens that stand for pictures, in order */
    int32_t n_pictures;
    const struct picture_states *states; /* pictures that the model looks at; NULL: none */
    const int32_t *places;               /* [n_tokens][STEP_AXES] where tokens lie in time, height and width; NULL: one behind the other */
    int32_t max_new;                     /* tokens of the answer at most; 0: none; -1: until it ends or the context is full */
    enum job_rows rows;
    enum job_cache cache;
    int32_t n_asked; /* CACHE_SAVE: of the tokens, those that somebody asked with; the others were an answer. 0: all. A cache that cannot be
                                 * cut (recurrent state, windows) is saved for those, up to a whole block. */
    const struct saved *saved;      /* CACHE_RESTORE; it is not copied: the owner keeps it until the job is done */
    enum job_pooling pooling;       /* ROWS_HIDDEN */
    int32_t n_skip;                 /* ROWS_HIDDEN: positions at the front that the pooling leaves out */
    const struct pool_head *head;   /* ROWS_HIDDEN: what comes behind the pooling; NULL: the length is made 1 */
    job_rows_fn *on_rows;           /* ROWS_LOGITS */
    void *rows_user;                /* of on_rows */
    struct sampler_params sampling; /* ignored where there is no answer */
    bool has_seed;                  /* sampling.seed was given; else one is made up */
    bool ignore_eos;
    bool shifts;               /* where the context is full, the answer goes on with less before it: half of the tokens are forgotten */
    int32_t n_keep;            /* of the prompt's tokens, those at the front that are not; -1: all */
    bool is_fresh;             /* nothing is taken from the prefix cache */
    int32_t min_new;           /* before so many tokens nothing ends the answer but a stop string */
    const int32_t *end_tokens; /* [n_end_tokens] they end the answer, as an end-of-text token does */
    int32_t n_end_tokens;
    const int32_t *allowed; /* [n_allowed] no other token is chosen; NULL: all are allowed */
    int32_t n_allowed;
    const struct job_words *bad_words; /* [n_bad_words] sequences of tokens that the answer does not have */
    int32_t n_bad_words;
    bool keeps_stop;                            /* the stop string that ends the answer is part of it */
    bool wants_text;                            /* tokens become text; else events have tokens alone */
    bool wants_progress;                        /* events also while the prompt is read */
    bool splits;                                /* reasoning and calls are told from content, as the next fields say */
    bool thinks;                                /* the prompt left the model inside its reasoning */
    bool takes_calls;                           /* else what looks like a call is content */
    bool one_call;                              /* the answer ends behind its first call */
    bool calls_in_parts;                        /* arguments come out while they are written */
    struct str tools;                           /* JSON list of the tools that may be called; {NULL, 0}: none are known */
    const struct output_format *format;         /* how the model writes calls; NULL: it cannot */
    const struct output_reasoning *reasoning;   /* its markers of reasoning; NULL: the format's */
    const struct constraint_source *constraint; /* what the answer is held to; NULL: nothing */
    bool may_think;                             /* reasoning may come before what the constraint holds, if the model begins it */
    int32_t max_reasoning;                      /* tokens after which reasoning is ended; 0: no limit */
    bool continues;                             /* the answer goes on with the prompt's text: a space at its front stays */
    const struct str *stops;                    /* [n_stops] strings that end the answer and are not part of it; needs wants_text */
    size_t n_stops;
    const float *adapters; /* [n_adapters of the model] scale of each; NULL: as engine_options has them */
    enum draft_from draft; /* where drafts come from; DRAFT_USUAL: as engine_options has it */
    int32_t max_draft;     /* tokens of one at most; 0: as engine_options has it */
    const int32_t *replay; /* [n_replay] the answer is this, whatever the model says: for measuring; NULL: the model's */
    int32_t n_replay;
    int64_t deadline_ms; /* from now; 0: none */
    void *user;          /* the owner's */
};

/* Names without the engine's prefix: JOB_STOP and its like do not clash with windows.h. */
enum job_finish {
    JOB_GOES_ON,
    JOB_STOP,      /* end-of-text token, a stop string, or a job without an answer is done */
    JOB_LENGTH,    /* max_new, or the context is full */
    JOB_CANCELLED, /* released, or its events were not taken */
    JOB_DEADLINE,
    JOB_ERROR,
    N_JOB_FINISHES,
};

struct job_token {
    int32_t id;
    float logprob; /* where log-probabilities were asked for; else 0 */
    int32_t n_top; /* its rows in `tops`, one token's after another's */
};

struct job_usage {
    int32_t n_prompt, n_read;           /* tokens of the prompt; of them, read so far */
    int32_t n_cached;                   /* of the prompt, known from an earlier job; of CACHE_RESTORE: restored */
    int32_t n_new;                      /* chosen so far, an end-of-text token included */
    int32_t n_reasoning;                /* of those, in reasoning */
    int32_t n_drafted, n_accepted;      /* tokens that drafts proposed; of those, that came true */
    int32_t n_forgotten;                /* tokens that made room for others */
    double prompt_seconds, new_seconds; /* from submission to the first token; from there to the last */
};

/* What has come since the last take. */
struct job_events {
    const struct output_pieces *pieces; /* new text, taken apart, in order */
    const struct job_token *tokens;     /* that were chosen, without the end-of-text token */
    size_t n_tokens;
    const struct sampler_top *tops;
    const struct job_token *scores; /* [n_scores] of ROWS_SCORES: tokens of the prompt, from the second one on */
    size_t n_scores;
    const struct sampler_top *score_tops;
    const int32_t *reads; /* [n_reads] with wants_progress: tokens of the prompt that were read, behind each step */
    size_t n_reads;
    enum job_finish finish;
    int32_t stopped_by; /* index of the stop string that ended it; -1: none */
    struct err err;     /* JOB_ERROR: why */
    struct job_usage usage;
    const float *vectors; /* [n_vectors, width] of ROWS_HIDDEN, or of its head, when it is done; else NULL */
    int32_t n_vectors;
    const void *saved; /* [n_saved] bytes of CACHE_SAVE, when it is done; until the job is released */
    size_t n_saved;
};

void *job_user(const struct job *job);
/* Takes what has come so far; valid until the next take of this job. */
void job_take(struct job *job, struct job_events *out);
/* The job ends soon, with JOB_CANCELLED among its events. */
void job_cancel(struct job *job);
void job_release(struct job *job);

#endif
