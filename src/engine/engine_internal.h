/* What an engine and its jobs hold; for the files of engine/ only. */
#ifndef MLXCEL_ENGINE_ENGINE_INTERNAL_H
#define MLXCEL_ENGINE_ENGINE_INTERNAL_H

#include "engine/constraint.h"
#include "engine/draft.h"
#include "engine/engine.h"
#include "engine/prefix.h"
#include "engine/saved.h"
#include "os/os.h"
#include "text/output/chain.h"

enum { MAILBOX_TOKENS_MAX = 4096, MAILBOX_BYTES_MAX = 1 << 20 }; /* events that nobody took; more cancel the job */

struct token_list {
    struct job_token *p;
    struct sampler_top *tops;
    size_t n, capacity, n_tops, tops_capacity;
};

/* Events that wait to be taken. */
struct mailbox {
    struct output_pieces pieces;
    struct token_list tokens, scores;
    int32_t *reads; /* how much of the prompt was read, step by step */
    size_t n_reads, reads_capacity;
};

/* A grammar that jobs share. */
struct constraint {
    uint64_t key; /* hash of what it was made from */
    struct arena arena;
    struct gram *grammar;
    struct str trigger;
    bool then_free;
    struct os_mutex *lock;
    struct gram_machine *machine; /* under the lock */
    int32_t n_holders;            /* under the lock */
};

/* A job's place in a constraint. */
struct job_bound {
    struct constraint *constraint;           /* NULL: it is free */
    enum { BOUND_WAITS, BOUND_HOLDS } state; /* the answer is free until the constraint begins */
    struct gram_match match;
    int32_t thinking;    /* token that begins reasoning and may come first; -1: none */
    bool may_space;      /* behind reasoning: white space may come first */
    struct sb tail;      /* the last of the text, where a trigger may be beginning */
    struct sb forced;    /* scratch: text that must come next */
    struct tok_ids next; /* tokens that must come next; [i_next] is the first of them */
    size_t i_next;
    int32_t refused; /* place of a token that was taken back; 0: none */
};

/* A job's drafts. */
struct job_draft {
    struct drafter *drafter; /* NULL: it has none */
    void *state;             /* the drafter's */
    struct draft_pace pace;
    int32_t most;              /* tokens of one */
    int32_t tokens[DRAFT_MAX]; /* [n] of the next step, or of the one in flight */
    int32_t n, kind;
    int32_t n_kept;                /* of the step that is being collected: tokens that came true */
    int32_t n_hoped;               /* of a device that runs ahead: the job waits for its next token, for a draft of so many behind it */
    int32_t snapshot;              /* slot of the recurrent state before the step; -1: none */
    int32_t n_again;               /* rows that are computed once more, because that state was put back */
    int32_t n_drafted, n_accepted; /* in all */
};

enum bound_says { BOUND_GOES_ON, BOUND_ENDS, BOUND_REFUSES };

struct job {
    /* fixed at submission */
    struct engine *engine;
    struct arena arena;
    struct job_spec spec;            /* what it points at lies in the arena */
    const uint32_t *breakers;        /* of DRY, see struct sampler_input */
    uint64_t submit_ns, deadline_ns; /* deadline 0: none */
    uint64_t group;                  /* jobs of one request share a number; 0: it is alone */
    int32_t tree;                    /* of the prefix cache */
    bool is_further;                 /* not the first of its request: the queue's limit counts requests */
    /* the turning thread's: its place in the schedule */
    struct sequence seq;
    int32_t n_limit;     /* tokens at which it ends */
    bool is_placed;      /* its sequence holds a slot and tables */
    bool is_running;     /* it is in engine.running */
    bool was_attached;   /* the prefix cache was asked */
    int32_t n_cached;    /* positions of its prompt that it knew */
    int32_t n_forgotten; /* tokens that made room; those of the prompt no longer count in spec.n_tokens */
    int32_t n_seen;      /* positions whose rows were handed on; they may be computed again after preemption */
    struct job *next;    /* in the queue of waiting jobs */
    bool is_planned;     /* it has rows in the step that is being planned */
    struct err why;      /* why nothing could be chosen, or its rows are no numbers */
    /* the turning thread's: its answer */
    struct sampler_state state;
    struct sampler_result result;
    int32_t choice_slot, n_bias; /* of the device's tables; slot -1: none */
    struct chain chain;
    struct job_bound bound;
    struct job_draft draft;
    uint32_t *allowed;           /* [vocab / 32 + 1] bits of spec.allowed; NULL: all */
    int32_t *never;              /* scratch: tokens that must not come next */
    struct tok_ids closing;      /* tokens that end reasoning, where it has a limit */
    struct output_pieces pieces; /* scratch: what one token made certain */
    struct pool_sum pooled;      /* of ROWS_HIDDEN that are pooled */
    float *vectors, *scratch;    /* [job_n_vectors, width of the head], [2 * the widest] */
    void *saved;                 /* [n_saved] of CACHE_SAVE */
    size_t n_saved;
    uint64_t begun_ns, first_ns, last_ns; /* when it first ran; its first and its last token */
    /* under the engine's lock */
    struct mailbox mailboxes[2];
    int32_t i_mailbox; /* the one that is written */
    enum job_finish finish;
    struct err err;
    struct job_usage usage;
    size_t n_pending; /* tokens since the last take */
    bool is_full;     /* its mailbox was full */
    bool is_ready;    /* it is in engine.ready */
    bool is_ordered;  /* it is in engine.orders */
    bool wants_cancel;
    bool is_released;
    bool is_done; /* the turning thread forgot it */
    struct job *next_ready, *next_in, *next_order;
    struct job *older, *newer; /* in the list of all jobs that live */
};

/* A job's rows in a step. */
struct flight_row {
    struct job *job;            /* NULL: it ended before the results came */
    int32_t first, n_rows;      /* positions */
    int32_t i_wanted, n_wanted; /* among the logits or among the hidden states: its first row, how many */
    int32_t n_drafts, i_draft;  /* the last rows hold a draft of so many tokens; how many of them have come true */
    bool chooses, on_device;    /* a token is chosen from the last row before the draft, then from those of it; by the device */
    bool is_open;               /* a token is to be chosen now */
    int32_t i_choice;           /* among the logits: the row that it is chosen from */
    int32_t i_mask;             /* among the step's masks; -1: every token may be chosen */
    int32_t at;                 /* the token's place in the sequence */
    int32_t token;              /* the token, when it is known; -1: none could be chosen */
};

/* A step whose results have not been taken. */
struct flight {
    struct flight_row *rows; /* [seqs] */
    int32_t n;
    int32_t n_logits, n_hidden;
    int32_t n_prefill, n_decode; /* rows */
    uint64_t launched_ns;
    /* What the host looks at, so that the next step must wait; states: those that a head that drafts reads. */
    bool reads_logits, reads_hidden, reads_states;
};

enum { FLIGHTS = 2 };
/* In the place of a token that the host has yet to choose. Other numbers below 0 name a row of the step before. */
#define TOKEN_OF_THE_HOST INT32_MIN

struct engine {
    struct runner runner;
    struct engine_options options;
    const struct tok *tok; /* NULL: there is no text */
    const struct output_format *format;
    const struct output_reasoning *reasoning;
    struct prefix *prefix;          /* NULL: none */
    struct spare *spare;            /* NULL: none */
    const uint32_t *usual_breakers; /* made when it is first needed, by the owner */
    struct arena arena;             /* of the usual breakers */
    uint64_t n_seeds, n_groups;     /* the owner's */
    const float **trees;            /* [n_trees] the owner's: scales of adapters that jobs had; number i has i + 1 in the prefix cache */
    int32_t n_trees;
    /* under the lock of constraints; the vocabulary does not change once it is made, when it is first needed */
    struct os_mutex *constraints_lock;
    struct arena vocab_arena;
    struct gram_vocab *vocab;
    uint32_t *space_bits;            /* mask of tokens that are white space */
    struct constraint **constraints; /* [n_constraints] those that are kept, the last one first */
    int32_t n_constraints;
    /* the turning thread's */
    struct job **running;            /* [seqs] by age, oldest first */
    struct flight *flights[FLIGHTS]; /* [n_flights] in the order of their launch; the others are free */
    struct flight_row **choosing;    /* [seqs] rows whose token the host chooses */
    int32_t n_running, n_waiting, n_flights;
    struct job *waiting, **waiting_end;
    struct step_chosen *chosen;        /* [logits] what the device chose */
    int32_t *free_slots, n_free_slots; /* of the device's tables */
    float *hidden;                     /* [rows, width] of this step; made when it is first needed */
    const float *logits;               /* of this step, where somebody needs them */
    int32_t chunk;                     /* most prompt rows of a step, where its time is watched; else 0 */
    uint64_t collected_ns;             /* when the results of the last step were there */
    int32_t n_extra;                   /* rows of this step that may still want logits beyond one for each job */
    bool hidden_turn;                  /* of a device that cannot mix: this step is for hidden states */
    uint32_t *masks;                   /* [seqs][mask_words] of rows whose job is bound: where they lie in this step */
    uint32_t *own_masks;               /* the same, memory for rows that the host chooses from */
    struct sampler_work **works;       /* [n_works] one for each thread that chooses; made when first needed */
    int32_t n_works;
    struct drafter *drafters[N_DRAFTS]; /* NULL: jobs have no such drafts here */
    struct draft_ask *asks;             /* [seqs] scratch, with the jobs that ask; NULL: there are no drafts */
    struct job **asking;
    struct engine_stats live; /* published after each turn */
    /* under the lock */
    struct os_mutex *lock;
    struct os_cond *wake;
    bool quit;
    struct job *inbox, **inbox_end; /* new ones */
    struct job *orders;             /* to be ended */
    struct job *ready, **ready_end; /* with events */
    struct job *newest;             /* all that live */
    int32_t n_held, n_further;      /* submitted and not done; of those, not the first of their request */
    struct engine_stats stats;
};

/* ---- job.c ---- */
struct job *job_create(struct engine *e, const struct job_spec *spec, struct err *err);
/* Frees what a job holds; its sequence must be gone. */
void job_destroy(struct job *j);

/* Reasoning has reached its limit: what ends it must follow now. */
bool job_thinks_too_long(const struct job *j);
/* It may do so with the next token. */
bool job_nears_close(const struct job *j);

/* ---- events.c ---- */
/* A chosen token through the output chain into the mailbox. True: its text ended the answer, by a stop string or by a call that was the last. */
bool job_put_token(struct job *j, int32_t token, bool is_eos);
/* Log-probabilities of a token of the prompt. */
void job_put_score(struct job *j, int32_t token, const struct sampler_result *r);
/* So much of the prompt is read. */
void job_put_progress(struct job *j);
/* The last event. The job may be gone afterwards. */
void job_put_end(struct job *j, enum job_finish finish, const struct err *why);
/* With the lock held: takes it out of the list of all jobs, before it is destroyed. */
void job_unlist(struct job *j);

/* Its rows are wanted as logits. */
bool job_wants_logits(const struct job *j);
int32_t job_n_vectors(const struct job *j);

/* ---- stats.c ---- */
void stats_init(struct engine_stats *s);
void stats_token(struct job *j); /* one was chosen */
void stats_end(const struct job *j, enum job_finish finish);

/* ---- shift.c ---- */
/* Its sequence is full: makes room where it may. False: the answer is over. */
bool shift_job(struct engine *e, struct job *j);

/* ---- prompt_cache.c ---- */
/* On the owner's thread: what a job about the cache asks for can be done. May shorten its prompt. */
int prompt_cache_check(struct job *j, struct err *err);
/* The prompt of a CACHE_SAVE is computed: copies its cache. */
enum job_finish prompt_cache_collect(struct engine *e, struct job *j);
/* Does what a CACHE_RESTORE or CACHE_ERASE asks for. */
enum job_finish prompt_cache_change(struct engine *e, struct job *j);

/* ---- choose.c ---- */
/* Log-probabilities of the prompt's tokens behind rows of logits, of positions `first` and on. */
void choose_scores(struct engine *e, struct job *j, int32_t first, int32_t n_rows, const float *logits);
/* Whether the device can choose the job's next token, and those behind a draft of n_drafts. */
bool choose_on_device(const struct engine *e, const struct job *j, int32_t n_drafts);
/* Before a step is launched: tells the device how to choose. */
int choose_prepare(struct engine *e, struct flight *f, struct err *err);
/* After its results were read: every row that chooses gets its token. */
void choose_tokens(struct engine *e, struct flight *f);
/* The job needs no tables any more. */
void choose_end(struct engine *e, struct job *j);
void choose_free(struct engine *e);

/* ---- speculate.c ---- */
/* Before the runner is opened: drafts as the options have them; the limits get room for them. */
int speculate_open(struct engine *e, struct runner_limits *limits, const struct model *m, struct backend *be, struct err *err);
void speculate_close(struct engine *e);
/* On the owner's thread: the drafts that a spec asks for can be had. */
int speculate_check(const struct engine *e, const struct job_spec *s, struct err *err);
/* The job has a place now; it has none any more. */
void speculate_begin(struct engine *e, struct job *j);
void speculate_end(struct engine *e, struct job *j);
/* Its tokens were moved or forgotten. */
void speculate_moved(struct job *j);
/* Before a step is planned: drafts for all jobs whose next token is known, in draft.tokens. */
void speculate_propose(struct engine *e);
/* Before a step with drafts runs. */
int speculate_launch(struct engine *e, const struct flight *f, struct err *err);
/* Behind it, for a row with a draft: as if its first token alone were wanted. */
void speculate_advance(struct engine *e, const struct flight_row *r);
/* A token was chosen and not yet taken: does the draft say the same? */
void speculate_compare(struct engine *e, const struct flight_row *r);
/* It was taken: true where the token behind it can be chosen too, because the draft said the same. */
bool speculate_goes_on(struct engine *e, struct flight_row *r);
/* No more tokens come of the row. */
int speculate_settle(struct engine *e, const struct flight_row *r, struct err *err);

/* Whether the job's drafter reads the states of its rows. */
bool speculate_reads_states(const struct job *j);
/* All rows of a step have their tokens: those who read states see them. */
int speculate_observe(struct engine *e, const struct flight *f, struct err *err);

/* ---- constraint.c ---- */
/* Held until it is released. */
int constraint_open(struct engine *e, const struct constraint_source *s, struct sb *warnings, struct constraint **out, struct err *err);
void constraint_hold(struct constraint *c);
void constraint_release(struct constraint *c);
void constraint_free_all(struct engine *e);

/* ---- bound.c ---- */
int bound_init(struct job *j, struct err *err);
void bound_free(struct job *j);
/* The next token must be one of the mask. */
bool bound_holds(const struct job *j);
/* Writes the mask of the next token. */
void bound_mask(struct job *j, uint32_t *bits);
/* Whether both jobs have the same mask: the same grammar in the same state. */
bool bound_masks_alike(const struct job *a, const struct job *b);
/* A token was chosen. BOUND_REFUSES: it was chosen before the constraint began, and is not allowed now. */
enum bound_says bound_take(struct job *j, int32_t token);
/* The token has gone through the chain: does the constraint begin behind it? */
void bound_look(struct job *j);
/* Finds the tokens that must come next, because the grammar takes no other text: bound.next. They are those that the tokenizer makes of it; the last of it is
 * left to the model where a longer token might reach beyond. */
void bound_force(struct job *j);
/* Some of these are still to come; the mask allows nothing else. */
bool bound_is_forced(const struct job *j);

/* ---- flight.c ---- */
/* Rows of a job that were added to the batch. */
void flight_add(struct engine *e, struct flight *f, struct job *j, struct flight_row row);
/* Runs the batch. */
int flight_launch(struct engine *e, struct flight *f, struct err *err);
/* Takes its results; `age`: how many steps were launched since. */
int flight_collect(struct engine *e, struct flight *f, int32_t age, struct err *err);
/* Nobody waits for the job's results any more. */
void flight_forget(struct engine *e, const struct job *j);

/* ---- schedule.c ---- */
void schedule_push(struct engine *e, struct job *j);
/* Takes a job out of the schedule, gives its blocks back and puts its last event out. */
void schedule_end(struct engine *e, struct job *j, enum job_finish finish, const struct err *why);
void schedule_end_all(struct engine *e, enum job_finish finish, const struct err *why);
/* Gives waiting jobs a place, as far as blocks and places last. */
void schedule_admit(struct engine *e);
/* Jobs that look at pictures whose keys and values are not in the cache yet: whether one is there, and their steps, where nothing is in flight. */
bool schedule_lacks_states(const struct job *j);
bool schedule_awaits_states(const struct engine *e);
int schedule_states(struct engine *e, struct err *err);
/* Fills the batch with rows of running jobs, and the flight with who has which; they stay empty when there is nothing to compute now. A job that
 * will never find blocks is ended, unless `is_ahead`: a step is in flight, whose end may bring some. */
void schedule_plan(struct engine *e, struct flight *f, bool is_ahead);

#endif
