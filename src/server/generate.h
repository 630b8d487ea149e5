/* Generation for the routes: from prompts and parameters to jobs, from events to an answer or a stream. What the answer looks
 * like is the route's: a table of functions.
 *
 * (1) Everything but the filling of `struct generation` runs on the loop's thread.
 * (2) A stream whose client does not read is not fed: its jobs' boxes fill up, and the service cancels them.
 */
#ifndef MLXCEL_SERVER_GENERATE_H
#define MLXCEL_SERVER_GENERATE_H

#include "server/params.h"
#include "server/route.h"

struct generation;

struct gen_prompt {
    struct service_ids ids;
    struct str text; /* for echoes */
};

struct gen_choice {
    struct job_listener listener; /* first: the job's user */
    struct generation *gen;
    struct job *job; /* NULL: ended and released */
    int32_t index, i_prompt;
    struct output_pieces pieces; /* since the last frame, or of everything when not streaming */
    struct output_pieces all;    /* everything so far, where the format keeps it */
    int32_t n_calls;             /* complete ones, of everything */
    struct job_token *tokens;    /* as the pieces, where log-probabilities were asked for */
    struct sampler_top *tops;
    size_t n_tokens, n_tops, tokens_capacity, tops_capacity;
    int32_t *said; /* [n_said] tokens of the answer, where slots are kept */
    size_t n_said, said_capacity;
    struct job_token *scores; /* of the prompt's tokens from the second on, where they are echoed with log-probabilities */
    struct sampler_top *score_tops;
    size_t n_scores, n_score_tops, scores_capacity, score_tops_capacity;
    int32_t *reads; /* [n_reads] tokens of the prompt that were read, behind each step since the last frame */
    size_t n_reads, reads_capacity;
    int64_t n_chars;   /* before this piece, for text_offset */
    bool has_begun;    /* its first frame is out */
    bool has_newline;  /* somewhere in its text */
    bool has_progress; /* a report of its prompt is out */
    bool is_blocked;   /* has events that its client has no room for */
    enum job_finish finish;
    int32_t stopped_by; /* index of the stop string that ended it; -1: none */
    struct job_usage usage;
};

struct gen_format {
    const char *id_prefix;
    const char *input;   /* the field that prompts come from */
    bool splits;         /* reasoning and calls are told from content */
    bool keeps;          /* the end of a stream repeats everything: gen_choice.all is wanted */
    bool calls_in_parts; /* a stream tells a call's arguments while they are written */
    bool continues;      /* an answer is the rest of its prompt's text, not a text of its own */
    /* Frames of a stream, appended to out: with a choice's first token; for a piece; at its end; at the end of all. */
    void (*begin)(struct generation *g, struct gen_choice *c, struct sb *out);
    void (*piece)(struct generation *g, struct gen_choice *c, struct sb *out);
    void (*end)(struct generation *g, struct gen_choice *c, struct sb *out);
    void (*done)(struct generation *g, struct sb *out);
    void (*whole)(struct generation *g, struct sb *out);                          /* the answer in one piece */
    void (*progress)(struct generation *g, struct gen_choice *c, struct sb *out); /* while the prompt is read; NULL: nothing is told */
    void (*fail)(struct generation *g, struct sb *out); /* the call's error ends a stream; NULL: as the wire has it */
};

struct generation {
    struct call *call;
    const struct gen_format *format;
    struct params params;
    struct gen_prompt *prompts; /* [n_prompts] */
    int32_t n_prompts;
    struct gen_choice *choices; /* [n_prompts * params.n] */
    int32_t n_choices, n_open;
    struct str id, fingerprint;
    int64_t created;
    uint64_t written_ns;
    void *wire_state; /* the format's own; in the arena */
};

/* In the call's arena, with the server's defaults in params; those and prompts are to be filled by prepare, then generate_start is the route's
 * start. */
struct generation *generate_create(struct call *c, const struct gen_format *format);
void generate_start(struct call *c);

/* Nonzero, with the error, when a job ended otherwise than by itself. */
int generate_check_finish(struct api_error *e, const struct job_events *ev, const char *param);
/* Begins an answer or a stream's event, up to its choices: `object` is what it calls itself. */
void generate_put_head(const struct generation *g, const char *object, struct jsonw *w);
/* As a number that JSON has: -9999, as OpenAI writes it, for tokens that cannot come. */
double generate_logprob(float logprob);
void generate_put_finish(const struct gen_choice *c, enum job_finish finish, struct jsonw *w);
/* The text of all pieces of a kind, joined. */
void generate_join(const struct output_pieces *pieces, enum output_kind kind, struct sb *out);
/* The keys prompt_tokens, completion_tokens ... of an object that is open. */
void generate_put_usage(const struct generation *g, struct jsonw *w);
/* The key timings: what the prompts and the answers took, as llama-server tells it. Of all choices; of one. */
void generate_put_timings(const struct generation *g, struct jsonw *w);
void generate_put_choice_timings(const struct gen_choice *c, struct jsonw *w);
/* The key prompt_progress of a choice, as of usage.n_read. */
void generate_put_progress(const struct gen_choice *c, struct jsonw *w);
enum chunk_parts { CHUNK_USAGE = 1, CHUNK_TIMINGS = 2 };
/* Ends the choices and the object of a stream's event and sends it; what was written goes. parts: what it has besides. */
void generate_end_chunk(const struct generation *g, struct jsonw *w, unsigned parts, struct sb *out);

#endif
