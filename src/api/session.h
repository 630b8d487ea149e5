/* A session: one model, loaded and ready to generate. What the commands and the server stand on.
 *
 * Opening resolves the model (a folder, a file, the built-in one, or a made-up one of a real shape), opens the device,
 * binds the weights and sizes the cache. One thread at a time uses a session.
 */
#ifndef MLXCEL_API_SESSION_H
#define MLXCEL_API_SESSION_H

#include "backend/device.h"
#include "engine/job.h"

struct session;

/* In the order of the choices auto|exact|f32|bf16. */
enum session_precision { SESSION_AUTO, SESSION_EXACT, SESSION_F32, SESSION_BF16 };

/* Small matrices beside the model's, of a folder as mlx-lm or PEFT writes it. */
struct session_adapter {
    const char *path;
    const char *name;
    float scale; /* for jobs that have none of their own */
};

/* How much of a model runs on a device: as the planner thinks (api/placement.h), or so many layers. */
enum session_share { SHARE_USUAL, SHARE_AUTO, SHARE_NUMBER };
struct session_layers {
    enum session_share kind;
    int32_t n;
};

/* How several GPUs share a model: each has a part of every layer, or some of the layers. */
enum session_split { SESSION_SPLIT_USUAL, SESSION_SPLIT_LAYER, SESSION_SPLIT_TENSOR };
enum { RANKS_AUTO = -1 };

/* Processes that compute one model together, of which this is one. */
struct session_world {
    int32_t rank, size; /* size below 2: this process is alone */
    int32_t rank_here;  /* among the processes of this machine; below 0: unknown */
    const char *host;   /* where the first rank listens for the others */
    int32_t port;
    struct str secret;
    int32_t join_ms, silence_ms;
    void (*on_lost)(void *user,
                    const struct err *reason); /* another rank has failed, from a thread of its own; NULL: the next step tells */
    void (*on_joined)(void *user);             /* all are there; NULL: nobody is told */
    void *user;
};

struct session_options {
    const char *model;   /* path; NULL: the built-in model */
    const char *name;    /* of the model, for people; NULL: its path */
    struct str template; /* a chat template instead of the model's own; {NULL, 0}: that */
    const char *shape;   /* a made-up model of this shape instead */
    int32_t n_layers;    /* that it has, fewer than the shape; 0: all */
    int32_t bits;        /* of its weights: 4, 8, 16, 32 */
    bool f16;            /* those of 16 bits, and scales: f16 instead of bf16 */
    uint64_t seed;
    struct device *shared_device; /* the model runs on this one, beside others; NULL: on one of its own, as the next fields say */
    const char *backend;          /* NULL: chosen by device; "cpu", "cuda", "trace", "xla" */
    const char *device; /* NULL or "auto": the GPU where one can be used, else the CPU; "cpu", "cuda", "cuda:1", "gpu", "cuda:0,cuda:1" */
    enum session_split split;          /* of several GPUs; usual: tensor where they are alike and reach each other's memory, else layer */
    int32_t n_stages;                  /* GPUs that have layers each; 0 and 1: as split and device say */
    struct session_layers gpu_layers;  /* the last n layers run on the GPU, those before them on the CPU; usual and auto: as many as fit */
    struct session_layers cpu_experts; /* the experts of the first n layers that have some run on the CPU; usual: as few as fit, or with
                                        * a number of gpu_layers none */
    uint64_t gpu_memory;               /* bytes of the GPU that may be taken; 0: what is free */
    int32_t stream_rows;               /* prompt rows of a step from which on the GPU copies the CPU's weights and multiplies; 0: never */
    struct xla_options xla;
    enum session_precision precision;
    int32_t n_threads; /* 0: one per core */
    int32_t
        n_ranks; /* that the model is cut for, each a part of the threads; 0 and 1: it is not cut; RANKS_AUTO: by GPUs that fit together */
    struct session_world world;
    int32_t context;     /* 0: the model's, or as much as memory allows */
    int32_t n_seqs;      /* requests at once; 0: 1; -1: as many as suit the device, and a cache of what its memory allows */
    int32_t n_rows;      /* rows per step; 0: as many as suit the device */
    int32_t max_step_ms; /* see engine_options */
    int32_t n_logits;    /* rows of a step whose logits may be wanted; 0: one for each request; -1: all */
    int64_t kv_tokens;   /* positions that the cache holds in all; 0: the context for each of n_seqs */
    int32_t kv_bits;     /* of a cached number: 8 on the CPU and CUDA, 4 on the CPU; 0 or 16: as the precision wants it */
    const struct session_adapter *adapters; /* [n_adapters] */
    int32_t n_adapters;
    double memory_share; /* of what the cache may take, where several models run; 0: all of it */
    bool force;          /* do not ask whether memory suffices, and load a checkpoint with weights that nothing reads */
    bool no_fuse;
    enum draft_from draft;      /* of jobs that do not say; DRAFT_USUAL: none */
    int32_t max_draft;          /* tokens of a draft at most; 0: DRAFT_MAX */
    const char *draft_model;    /* path, for DRAFT_MODEL */
    bool prefix_cache;          /* keep what was computed for prompts that begin alike */
    uint64_t cache_ram;         /* bytes of the host's memory for what of it leaves the device's cache; 0: none */
    int32_t n_queue;            /* requests that may wait beyond those that run; -1: any number */
    void (*notify)(void *user); /* some job has events; NULL: nobody is told */
    void *notify_user;
    /* Told how many bytes of a checkpoint's weights have been read; at the end, or when it failed, once more with done = total. NULL: nobody. */
    void (*on_load)(void *user, uint64_t done, uint64_t total);
    void *load_user;
};

int session_open(const struct session_options *options, struct session **out, struct err *err);
void session_close(struct session *s);
/* A rank behind the first one: computes with it until that one ends. */
int session_follow(const struct session_options *options, struct err *err);
/* Where the model would run, in a line for people, without loading it; nothing where there is no GPU and none was asked for. */
int session_plan(const struct session_options *options, struct sb *out, struct err *err);
/* Whether the options ask for several GPUs that share the model: it takes them by itself. */
bool session_takes_gpus(const struct session_options *options);
/* The device that these options name, for models that run beside each other: it becomes the shared_device of each. memory_limit: bytes that all of
 * them together may take; 0: what is there. The caller lets it go by device_release. */
int session_device_open(const struct session_options *options, uint64_t memory_limit, struct device **out, struct err *err);
/* "tiny-stories-7m-4bit (qwen3, affine 4-bit g64) on cpu (...), context 1024" */
void session_describe(const struct session *s, struct sb *out);
/* How the numbers of the layers are stored, such as "bf16"; "" where there are none. */
const char *session_weight_format(const struct session *s, char out[32]);
int32_t session_vocab(const struct session *s);
int32_t session_context(const struct session *s);
int32_t session_kv_bits(const struct session *s); /* 8 or 4; 0: as the precision wants it */

/* ---- text ---------------------------------------------------------------------------------------------------------- */

struct session_ids {
    int32_t *p;
    size_t n;
    bool thinks; /* the prompt leaves the model inside its <think> */
};

struct session_message {
    const char *role; /* "system", "user", "assistant" */
    struct str content;
    size_t n_images; /* of the prompt's pictures: those that stand before its text */
};

/* A conversation, or a text. */
struct session_prompt {
    const struct session_message *messages; /* [n_messages]; NULL: the text */
    size_t n_messages;
    struct str text;
    const struct str *
        images; /* [n_images] files of pictures: before the text, or as messages have them, or in a raw prompt where its placeholders stand */
    size_t n_images;
    bool raw; /* no chat template; a model without one completes raw anyway */
};
/* The ids of a prompt, in memory of the session's own until the next call. With a template only the template makes control
 * tokens: what stands in the text stays text. A raw prompt is its own template, and its control tokens count. */
int session_encode(struct session *s, const struct session_prompt *prompt, struct session_ids *out, struct err *err);
/* The pictures of the prompt that was encoded last, for the job with its tokens. */
int session_attach(struct session *s, struct job_spec *job, struct err *err);
/* Whether a file is a picture, and the model takes any; its size in pixels. */
int session_check_picture(const struct session *s, struct str file, int32_t *out_width, int32_t *out_height, struct err *err);
/* Pictures for tokens that stand there already, expanded. */
int session_attach_files(struct session *s, const struct str *images, size_t n, struct job_spec *job, struct err *err);
/* After the text was loaded, by session_encode or session_text_load. */
bool session_has_template(const struct session *s);
/* Whether jobs can be held to it, without a model: the reason where not. */
int session_check_constraint(const struct constraint_source *source, struct err *err);
/* How an answer behind the model's template is taken apart: reasoning, and content that may look like a call. */
void session_split(const struct session *s, bool thinks, struct job_spec *out);
/* Tokenizer and template; afterwards they do not change, and any thread may use them. */
int session_text_load(struct session *s, struct err *err);

/* ---- jobs ------------------------------------------------------------------------------------------------------------ */

/* Somebody who looks at a job that the calling thread runs. Each function may be NULL. */
struct session_watch {
    const _Atomic bool *interrupt; /* ends the job when it becomes true; NULL: nothing does */
    /* False ends the job. Text comes as far as it is certain: complete characters, no beginning of a stop string. */
    bool (*on_events)(void *user, const struct job_events *events);
    /* How much of the prompt is read: at the beginning, and after each step that brings no token. */
    void (*on_prompt)(void *user, int32_t done, int32_t total);
    void *user;
};

/* How a job ended. */
struct session_result {
    enum job_finish finish; /* JOB_STOP, JOB_LENGTH or JOB_CANCELLED */
    struct job_usage usage;
};

/* Runs one job to its end on the calling thread. */
int session_run(struct session *s, const struct job_spec *spec, const struct session_watch *watch, struct session_result *out,
                struct err *err);

/* ---- embeddings ------------------------------------------------------------------------------------------------------ */

/* How the states of a text become its vector, in the order of the choices auto|mean|last|cls|max|none. Auto: as the model's own files say, with the layers
 * that they put behind it; without such files the mean. */
enum session_pooling { SESSION_POOL_AUTO, SESSION_POOL_MEAN, SESSION_POOL_LAST, SESSION_POOL_FIRST, SESSION_POOL_MAX, SESSION_POOL_NONE };

struct session_embedding {
    enum job_pooling pooling;
    const struct pool_head *head; /* NULL: the length is made 1 */
    int32_t width;                /* numbers of a vector */
    int32_t max_tokens;           /* of a text */
    bool cuts;                    /* longer ones are cut; else they are refused */
    struct str prompt;            /* to be put before every text */
    int32_t n_skip;               /* positions of it that the pooling leaves out */
};
/* What that is for this model. `prompt` names one of the model's prompts; {NULL, 0}: the one that it has for texts that name none; "": none at all.
 * An error says what of the model's files cannot be followed. After the text was loaded. */
int session_embedding(const struct session *s, enum session_pooling wanted, struct str prompt, struct session_embedding *out,
                      struct err *err);
/* A text's tokens, with the prompt before it, cut where that is wanted. An empty text is a blank. */
struct tok_ids;
int session_encode_embedding(const struct session *s, const struct session_embedding *how, struct str text, struct tok_ids *out,
                             struct err *err);
/* As many ids of a text as fit: the token that closes it stays. */
int32_t session_cut(const struct session *s, int32_t *ids, int32_t n, int32_t most);
/* The job whose vector is the text's. */
struct job_spec session_embedding_job(const struct session_embedding *how, const int32_t *ids, int32_t n);
/* The vectors of texts, [n][width]. */
int session_embed(struct session *s, const struct session_embedding *how, const struct str *texts, int32_t n, float *out, struct err *err);

/* ---- judging documents ------------------------------------------------------------------------------------------------ */

struct session_question {
    struct str query, document;
    struct str instruction; /* what is looked for, told to a language model; {NULL, 0}: the usual one */
    bool cuts;              /* a document that is too long is cut; else it is refused */
};
/* How scores come about: a job of ROWS_HIDDEN with these, whose vector is one number. An error says why the model cannot. After the text was
 * loaded. */
int session_judge(const struct session *s, enum job_pooling *out_pooling, const struct pool_head **out_head, struct err *err);
/* The tokens of a question, in the arena. */
int session_encode_question(const struct session *s, struct arena *a, const struct session_question *q, int32_t **out, int32_t *out_n,
                            struct err *err);
/* A score for each question: how well the document fits the query. */
int session_score(struct session *s, const struct session_question *questions, int32_t n, float *out, struct err *err);

#endif
