/* mlxcel: language models in your program. The public C interface of libmlxcel.
 *
 *     mlxcel_model *model;
 *     mlxcel_error error;
 *     if (mlxcel_model_open(NULL, &model, &error)) { puts(error.message); return 1; }      the built-in model
 *     ... mlxcel_submit, mlxcel_next ...                                                    see examples/
 *     mlxcel_model_close(model);
 *
 * A model is loaded once and then answers any number of jobs, which are computed together as one batch. A job is a conversation, a text or a
 * list of tokens that goes on; what it writes comes as events, by mlxcel_next or by a callback.
 *
 * (1) Functions that can fail return 0, or a code of enum mlxcel_code, and fill *error, which may be NULL. The message is one sentence
 *     that names the thing and what to do about it.
 * (2) Options structs begin with struct_size and are filled by their init function, which takes sizeof the struct as your compiler sees it;
 *     then set what you want. Structs grow at their ends, and either side may be the newer one. An option that the library does not know is
 *     refused. In a struct, 0 or NULL is the default unless the init function sets another.
 * (3) Text is UTF-8. Strings that you pass are copied where they are needed longer than the call. Memory that a function gives you
 *     through a pointer to a pointer is yours; mlxcel_free frees it.
 * (4) Unless it says otherwise, a function may be called from any thread, also for the same model at the same time, and inside a callback.
 * (5) The library reads no variables of the environment but those that name the user's folders, installs no signal handlers, prints nothing
 *     but warnings and errors to standard error (mlxcel_log_set changes that), and never ends the process but where memory for small things
 *     cannot be had (docs/library.md).
 * (6) Names and layouts of ABI 0 may still change until version 1.0; every such change raises MLXCEL_ABI and the library's soname.
 */
#ifndef MLXCEL_H
#define MLXCEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MLXCEL_API
#if defined(__ELF__) || defined(__MACH__)
#define MLXCEL_API __attribute__((visibility("default")))
#else
#define MLXCEL_API
#endif
#endif

#define MLXCEL_ABI 0

/* "0.1.0" */
MLXCEL_API const char *mlxcel_version(void);
/* MLXCEL_ABI of the library that runs: a program that was compiled with another number must not go on. */
MLXCEL_API int32_t mlxcel_abi(void);

/* ---- errors ----------------------------------------------------------------------------------------------------------- */

enum mlxcel_code {
    MLXCEL_OK = 0,
    MLXCEL_E_ARG = 1,         /* what was asked for is wrong */
    MLXCEL_E_FORMAT = 2,      /* a file is not what it should be */
    MLXCEL_E_UNSUPPORTED = 3, /* right, and not done here */
    MLXCEL_E_NOTFOUND = 4,
    MLXCEL_E_IO = 5,
    MLXCEL_E_MEMORY = 6,
    MLXCEL_E_LIMIT = 7, /* larger than allowed */
    MLXCEL_E_BUSY = 8,  /* all places are taken and the queue is full */
    MLXCEL_E_CANCELLED = 9,
    MLXCEL_E_NETWORK = 10,
    MLXCEL_E_DEVICE = 11,
    MLXCEL_E_INTERNAL = 12 /* a mistake of the library */
};

/* Its layout never changes. */
typedef struct mlxcel_error {
    int32_t code;
    char message[508]; /* one line, ends with NUL */
} mlxcel_error;

/* "out of memory": what a code means, in a word or two. Never NULL. */
MLXCEL_API const char *mlxcel_code_text(int32_t code);
/* Frees what a function of the library gave you; NULL is fine. */
MLXCEL_API void mlxcel_free(void *memory);

/* ---- log -------------------------------------------------------------------------------------------------------------- */

enum mlxcel_log_level { MLXCEL_LOG_ERROR = 0, MLXCEL_LOG_WARN = 1, MLXCEL_LOG_INFO = 2, MLXCEL_LOG_DEBUG = 3, MLXCEL_LOG_NONE = -1 };
/* One line without its newline. May come from any thread, several at a time. It must not call the library. */
typedef void (*mlxcel_log_fn)(void *user, int32_t level, const char *line);
/* Lines up to this level go to fn; NULL: to standard error. Without a call: warnings and errors to standard error. One thread, while no
 * model is open and no download runs. */
MLXCEL_API void mlxcel_log_set(int32_t level, mlxcel_log_fn fn, void *user);

/* ---- devices of this machine -------------------------------------------------------------------------------------------- */

typedef struct mlxcel_device {
    size_t struct_size;
    char name[32];         /* what mlxcel_model_options.device takes: "cpu", "cuda:0" */
    char description[224]; /* for people */
    int32_t is_usable;     /* 0: the description says why not */
    int32_t reserved;
    uint64_t memory_bytes, free_bytes; /* 0: unknown */
} mlxcel_device;

/* Device number `index`; the CPU is number 0. MLXCEL_E_NOTFOUND behind the last one. Looks at the machine at each call, which opens drivers. */
MLXCEL_API int32_t mlxcel_device_get(size_t index, mlxcel_device *out, mlxcel_error *error);

/* ---- models ----------------------------------------------------------------------------------------------------------- */

typedef struct mlxcel_model mlxcel_model;

enum mlxcel_stage { MLXCEL_STAGE_DOWNLOAD = 0, MLXCEL_STAGE_LOAD = 1 };
/* How many bytes of how many are done. A nonzero result ends a download with MLXCEL_E_CANCELLED; while a model is loaded it is ignored. It may
 * come from another thread than the one that called, one at a time, and must not call the library. */
typedef int32_t (*mlxcel_progress_fn)(void *user, int32_t stage, uint64_t done, uint64_t total);

/* Numbers: as the device likes it; f32 throughout and every rope table as it should be; products and cache in f32; in bf16. */
enum mlxcel_precision { MLXCEL_PRECISION_AUTO = 0, MLXCEL_PRECISION_EXACT = 1, MLXCEL_PRECISION_F32 = 2, MLXCEL_PRECISION_BF16 = 3 };

/* Where models lie and where they come from. */
typedef struct mlxcel_store {
    size_t struct_size;
    const char *models_dir; /* NULL: mlxcel/models in the user's cache folder, where the program keeps them, too */
    const char *hf_home;    /* folder of the hub's own tools, whose models are used where they lie; NULL: ~/.cache/huggingface */
    const char *hub;        /* NULL: https://huggingface.co */
    const char *token;      /* for the hub; NULL: the file `token` in hf_home, where there is one */
    const char *cacert;     /* certificates in PEM form that the hub's may be signed by; NULL: the system's */
    int32_t offline;        /* 1: nothing is asked of the hub */
    int32_t reserved;
} mlxcel_store;
MLXCEL_API void mlxcel_store_init(mlxcel_store *store, size_t struct_size);

typedef struct mlxcel_model_options {
    size_t struct_size;
    const char *model;         /* a folder, a .safetensors file, or OWNER/NAME on the hub; NULL or "built-in": the built-in model */
    const char *device;        /* NULL or "auto": a GPU where one can be used, else the CPU; "cpu", "cuda", "cuda:1" */
    const char *chat_template; /* Jinja source instead of the model's own; NULL: that */
    const mlxcel_store *store; /* NULL: the defaults */
    int32_t precision;         /* enum mlxcel_precision */
    int32_t threads;           /* of the CPU; 0: one per core */
    int32_t context;           /* tokens of a job; 0: the model's, or as much as memory allows */
    int32_t parallel;          /* jobs that are computed at once; 0: as many as suit the device */
    int32_t queue;             /* jobs that may wait beyond those; -1 (by the init function): any number */
    int32_t kv_bits;           /* of a cached number: 8 or 4, on the CPU only; 0: as the precision wants it */
    int32_t
        logit_rows; /* positions whose logits a step may give: what mlxcel_logits and mlxcel_score are fast by; 32 by the init function */
    int32_t force;  /* 1: do not ask whether memory suffices */
    mlxcel_progress_fn progress; /* of downloading and loading; NULL: nobody is told */
    void *user;                  /* of progress */
} mlxcel_model_options;
MLXCEL_API void mlxcel_model_options_init(mlxcel_model_options *options, size_t struct_size);

/* Opens a model, and downloads it where it has to; waits until it is loaded. options NULL: the built-in model with the defaults. Models on
 * the same device share its threads and its memory. Not from a callback. */
MLXCEL_API int32_t mlxcel_model_open(const mlxcel_model_options *options, mlxcel_model **out, mlxcel_error *error);
/* Ends the jobs that still run (MLXCEL_FINISH_CANCELLED) and unloads the model; NULL is fine. Jobs stay valid, and are freed before or
 * afterwards. No other function of this model may be running but mlxcel_next. Not from a callback. */
MLXCEL_API void mlxcel_model_close(mlxcel_model *model);

typedef struct mlxcel_model_info {
    size_t struct_size;
    const char *name;          /* strings are valid until the model is closed */
    const char *description;   /* one line: model, format, device, context */
    const char *path;          /* the folder; "": it has none */
    const char *type;          /* model_type of its config.json */
    const char *weights;       /* how the numbers of its layers are stored */
    const char *chat_template; /* its source; "": the model has none */
    uint64_t weight_bytes;
    int32_t vocab, context;
    int32_t parallel; /* jobs at once */
    int32_t width;    /* numbers of an embedding */
    int32_t kv_bits;  /* of the cache; 0: as the precision wants it */
    int32_t on_gpu;
    int32_t has_template;
    int32_t has_tools; /* its template shows how tools are called */
} mlxcel_model_info;
/* Set out->struct_size to sizeof *out before the call. */
MLXCEL_API int32_t mlxcel_model_info_get(const mlxcel_model *model, mlxcel_model_info *out, mlxcel_error *error);

/* A model from the hub into the store. *out_path, which may be NULL: its folder. name: OWNER/NAME. revision NULL: main. store NULL: the
 * defaults. What was received stays, and the next call goes on there. */
MLXCEL_API int32_t mlxcel_download(const char *name, const char *revision, const mlxcel_store *store, mlxcel_progress_fn progress,
                                   void *user, char **out_path, mlxcel_error *error);

/* ---- text ------------------------------------------------------------------------------------------------------------- */

enum mlxcel_tokenize_flags {
    MLXCEL_ADD_SPECIAL = 1,  /* the tokens that the model wants around a text, such as the one for its beginning */
    MLXCEL_PARSE_SPECIAL = 2 /* special tokens that are written in the text become tokens */
};
/* The tokens of a text of n_bytes. */
MLXCEL_API int32_t mlxcel_tokenize(const mlxcel_model *model, const char *text, size_t n_bytes, uint32_t flags, int32_t **out_tokens,
                                   size_t *out_n, mlxcel_error *error);
/* The text of tokens, special ones by their names; it ends with NUL, which out_bytes (may be NULL) does not count. */
MLXCEL_API int32_t mlxcel_detokenize(const mlxcel_model *model, const int32_t *tokens, size_t n_tokens, char **out_text, size_t *out_bytes,
                                     mlxcel_error *error);
/* The token that is written so in the vocabulary; -1: there is none. */
MLXCEL_API int32_t mlxcel_token_id(const mlxcel_model *model, const char *token);

typedef struct mlxcel_message {
    const char *role; /* "system", "user", "assistant", "tool" */
    const char *content;
} mlxcel_message;

/* A conversation. */
typedef struct mlxcel_chat {
    size_t struct_size;
    const mlxcel_message *messages; /* [n_messages] */
    size_t n_messages;
    const char *messages_json; /* instead: OpenAI's list of messages, with calls and their results */
    const char *tools_json;    /* OpenAI's list of tools; NULL: none */
    const char *template_json; /* an object of further values for the template, such as {"enable_thinking": false}; NULL: none */
    int32_t continues;         /* 1: the last message, the assistant's, is gone on with */
    int32_t reserved;
} mlxcel_chat;
MLXCEL_API void mlxcel_chat_init(mlxcel_chat *chat, size_t struct_size);
/* The prompt that a conversation becomes by the model's template, as text and as tokens; each of the three may be NULL. Control tokens come
 * from the template alone. */
MLXCEL_API int32_t mlxcel_chat_render(const mlxcel_model *model, const mlxcel_chat *chat, char **out_text, int32_t **out_tokens,
                                      size_t *out_n, mlxcel_error *error);

/* ---- jobs -------------------------------------------------------------------------------------------------------------- */

typedef struct mlxcel_job mlxcel_job;

enum mlxcel_event_kind {
    MLXCEL_EVENT_NONE = 0,      /* the time limit of mlxcel_next has passed */
    MLXCEL_EVENT_PROGRESS = 1,  /* so much of the prompt is read; where it was asked for */
    MLXCEL_EVENT_TOKENS = 2,    /* tokens that were chosen; where it was asked for */
    MLXCEL_EVENT_TEXT = 3,      /* the next part of the answer: whole characters */
    MLXCEL_EVENT_REASONING = 4, /* the next part of the model's thoughts, which is no part of its answer */
    MLXCEL_EVENT_CALL = 5,      /* a call of a tool begins: text is the tool's name */
    MLXCEL_EVENT_ARGUMENTS = 6, /* the next part of its arguments, which together are one JSON object */
    MLXCEL_EVENT_CALL_END = 7,
    MLXCEL_EVENT_END = 8 /* nothing comes behind it */
};
enum mlxcel_finish {
    MLXCEL_FINISH_NONE = 0,
    MLXCEL_FINISH_STOP = 1,   /* the model ended it, or a stop string */
    MLXCEL_FINISH_LENGTH = 2, /* max_tokens, or the context is full */
    MLXCEL_FINISH_CANCELLED = 3,
    MLXCEL_FINISH_DEADLINE = 4,
    MLXCEL_FINISH_ERROR = 5 /* code and text say why */
};

typedef struct mlxcel_event {
    size_t struct_size;
    int32_t kind;          /* enum mlxcel_event_kind */
    int32_t call;          /* CALL to CALL_END: counts the calls from 0 */
    const char *text;      /* ends with NUL; never NULL. END: the message of an error */
    size_t text_bytes;     /* without the NUL */
    const char *id;        /* CALL: the id that the model gave it; "": none */
    const int32_t *tokens; /* TOKENS: [n_tokens] */
    const float *logprobs; /* [n_tokens] where logprobs >= 0 was asked for, else NULL */
    size_t n_tokens;
    const int32_t *n_tops;     /* [n_tokens] how many of the next two each token has, one token's after another's */
    const int32_t *top_tokens; /* the most likely ones in its place, the likeliest first */
    const float *top_logprobs;
    int32_t n_prompt, n_read;           /* tokens of the prompt; of them, read so far */
    int32_t n_cached;                   /* of the prompt, known from an earlier job */
    int32_t n_new;                      /* tokens chosen so far */
    int32_t n_reasoning;                /* of those, in reasoning */
    int32_t finish;                     /* END: enum mlxcel_finish */
    int32_t code;                       /* END: of an error */
    int32_t stopped_by;                 /* END: number of the stop string; -1: none */
    double prompt_seconds, new_seconds; /* until the first token; from there to the last */
} mlxcel_event;
MLXCEL_API void mlxcel_event_init(mlxcel_event *event, size_t struct_size);

/* An event, in a thread of the model's own: while it runs, no other callback of this model does, so it must not wait for other jobs.
 * The event is valid until it returns. It may submit, cancel and free jobs, this one too. */
typedef void (*mlxcel_event_fn)(void *user, mlxcel_job *job, const mlxcel_event *event);

/* A number of the sampler by its name: temperature, top_k, top_p, min_p, typical_p, repetition_penalty, frequency_penalty ... as requests to
 * the server have them (docs/server.md). */
typedef struct mlxcel_parameter {
    const char *name;
    double value;
} mlxcel_parameter;

typedef struct mlxcel_bias {
    int32_t token;
    float bias; /* is added to the token's logit */
} mlxcel_bias;

/* Whether tools are called: as the model likes, not, at least one, the one that tool_name names. */
enum mlxcel_tool_choice { MLXCEL_TOOLS_AUTO = 0, MLXCEL_TOOLS_NONE = 1, MLXCEL_TOOLS_REQUIRED = 2, MLXCEL_TOOLS_NAMED = 3 };

typedef struct mlxcel_job_options {
    size_t struct_size;
    /* The prompt, one of the three: */
    const mlxcel_chat *chat; /* a conversation; the answer's reasoning and calls are told from its content */
    const char *text;        /* a text that goes on as it is; special tokens that are written in it count */
    const int32_t *tokens;   /* [n_tokens] */
    size_t n_tokens;
    /* The end: */
    int32_t max_tokens;       /* of the answer; -1 (by the init function): until it ends or the context is full */
    int32_t ignore_end;       /* 1: the model's end-of-text token ends nothing */
    int64_t deadline_ms;      /* from now; 0: none */
    const char *const *stops; /* [n_stops] strings that end the answer and are not part of it */
    size_t n_stops;
    /* What the answer is held to, at most one: */
    const char *json_schema; /* a JSON schema */
    const char *grammar;     /* GBNF */
    const char *regex;       /* that the whole answer matches */
    int32_t json_object;     /* 1: any JSON object */
    /* Tools, where the conversation has some: */
    int32_t tool_choice;   /* enum mlxcel_tool_choice */
    const char *tool_name; /* MLXCEL_TOOLS_NAMED */
    int32_t one_call;      /* 1: the answer ends behind its first call */
    /* Sampling; what is not named is as the model's generation_config.json says: */
    int32_t has_seed;
    uint64_t seed;
    const mlxcel_parameter *parameters; /* [n_parameters] */
    size_t n_parameters;
    const mlxcel_bias *bias; /* [n_bias] */
    size_t n_bias;
    /* Events: */
    int32_t
        logprobs; /* in the TOKENS events: -1 (by the init function): none; 0: of the tokens; else of so many likely ones, too (at most 20) */
    int32_t wants_tokens;     /* 1: TOKENS events */
    int32_t wants_progress;   /* 1: PROGRESS events */
    int32_t max_reasoning;    /* tokens after which the model's reasoning is ended; 0: no limit */
    mlxcel_event_fn on_event; /* NULL: they are taken by mlxcel_next */
    void *user;               /* of on_event */
} mlxcel_job_options;
MLXCEL_API void mlxcel_job_options_init(mlxcel_job_options *options, size_t struct_size);

/* Submits a job and returns at once; it is computed together with those that run. MLXCEL_E_BUSY: the queue is full. MLXCEL_E_LIMIT: the prompt does
 * not fit the context. With on_event, events may come before this returns. */
MLXCEL_API int32_t mlxcel_submit(mlxcel_model *model, const mlxcel_job_options *options, mlxcel_job **out, mlxcel_error *error);
/* The job's next event, for which it waits so many milliseconds; -1: as long as it takes; then *event is MLXCEL_EVENT_NONE. What it points at is
 * valid until the next call for this job. Behind the end it gives the end again. Events must be taken: where 4,096 tokens or 1 MiB of text
 * wait for their reader, the job ends (MLXCEL_FINISH_CANCELLED). One thread at a time for a job; not in a callback, and not for a
 * job with one. */
MLXCEL_API int32_t mlxcel_next(mlxcel_job *job, int32_t timeout_ms, mlxcel_event *event, mlxcel_error *error);
/* The job ends soon, with MLXCEL_FINISH_CANCELLED unless it has ended by itself before. */
MLXCEL_API void mlxcel_cancel(mlxcel_job *job);
/* Cancels the job where it still runs, and frees it; NULL is fine. Waits for its callback where that runs, but for one that calls this itself.
 * No other function of this job may be running. */
MLXCEL_API void mlxcel_job_free(mlxcel_job *job);

/* A whole job: submits it, waits for its end, gives the answer's text without reasoning and calls. Not in a callback; on_event must be NULL. An
 * end by cancelling, a deadline or an error is an error. */
MLXCEL_API int32_t mlxcel_complete(mlxcel_model *model, const mlxcel_job_options *options, char **out_text, size_t *out_bytes,
                                   mlxcel_error *error);

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

/* How the states of a text become its vector: as the model's files say; their mean; that of the last, the first token; the largest. */
enum mlxcel_pooling { MLXCEL_POOL_AUTO = 0, MLXCEL_POOL_MEAN = 1, MLXCEL_POOL_LAST = 2, MLXCEL_POOL_FIRST = 3, MLXCEL_POOL_MAX = 4 };

typedef struct mlxcel_embed_options {
    size_t struct_size;
    int32_t pooling;         /* enum mlxcel_pooling */
    int32_t truncate;        /* 1: texts that are too long are cut; else they are refused */
    const char *prompt_name; /* one of the model's prompts, put before each text; NULL: its usual one; "": none */
} mlxcel_embed_options;
MLXCEL_API void mlxcel_embed_options_init(mlxcel_embed_options *options, size_t struct_size);
/* The vectors of n texts, each of length 1 and *out_width numbers, one behind another in *out. options NULL: the defaults. Waits; not in a
 * callback. */
MLXCEL_API int32_t mlxcel_embed(mlxcel_model *model, const mlxcel_embed_options *options, const char *const *texts, size_t n, float **out,
                                size_t *out_width, mlxcel_error *error);
/* The logits behind the positions first to n_tokens - 1 of a prompt, mlxcel_model_info.vocab numbers each, into out, which has room for n_floats.
 * Waits; not in a callback. */
MLXCEL_API int32_t mlxcel_logits(mlxcel_model *model, const int32_t *tokens, size_t n_tokens, size_t first, float *out, size_t n_floats,
                                 mlxcel_error *error);
/* The log-probability of each token behind those before it: n_tokens - 1 numbers into out, from the second token on. Waits; not in a callback. */
MLXCEL_API int32_t mlxcel_score(mlxcel_model *model, const int32_t *tokens, size_t n_tokens, float *out, mlxcel_error *error);
/* How well the model predicts a text, in chunks of so many tokens (0: the context) that do not overlap and whose first tokens are given. Waits; not in a
 * callback. */
MLXCEL_API int32_t mlxcel_perplexity(mlxcel_model *model, const int32_t *tokens, size_t n_tokens, size_t chunk, double *out,
                                     mlxcel_error *error);

/* ---- a prompt's cache in a file ------------------------------------------------------------------------------------------ */

/* Saves what the model keeps in memory of a prompt, and computes it first where it has to. Jobs whose prompts begin with the same tokens find it
 * there after mlxcel_prompt_restore, also in another process, and are told so by n_cached. The file belongs to this model with these weights, device,
 * precision and kv_bits. *out_n, which may be NULL: tokens that were saved. It is less than n_tokens for models that forget: recurrent ones,
 * and those with windows, whose prompts are saved in steps of 64 tokens. The file appears when it is complete. MLXCEL_E_UNSUPPORTED: the cache of this device or
 * model cannot be saved. Waits; not in a callback. */
MLXCEL_API int32_t mlxcel_prompt_save(mlxcel_model *model, const int32_t *tokens, size_t n_tokens, const char *path, size_t *out_n,
                                      mlxcel_error *error);
/* Puts a saved prompt back. *out_tokens and *out_n, which may be NULL: its tokens. A file that is damaged, or of another model or other settings, is
 * refused, and changes nothing. MLXCEL_E_BUSY: jobs that run take the room. What is restored gives way, as everything that is kept, when others need the
 * room. Waits; not in a callback. */
MLXCEL_API int32_t mlxcel_prompt_restore(mlxcel_model *model, const char *path, int32_t **out_tokens, size_t *out_n, mlxcel_error *error);

/* ---- the HTTP server inside of the program ---------------------------------------------------------------------------------- */

typedef struct mlxcel_server mlxcel_server;

/* An option of `mlxcel serve` by its long name, or by its variable where it has no name (docs/cli.md): {"api-key", "secret"}, {"ctx-size",
 * "4096"}, {"HF_TOKEN_PATH", "token"}; value NULL: a flag that is set. One that takes several values may be given several times. check, log-level and log-format are the command's, and refused. */
typedef struct mlxcel_setting {
    const char *name, *value;
} mlxcel_setting;

typedef struct mlxcel_server_options {
    size_t struct_size;
    const char *host;               /* addresses and sockets' paths, separated by commas; NULL: 127.0.0.1 */
    const char *const *models;      /* [n_models] folders or names on the hub; none: as `mlxcel serve` without --model has it */
    size_t n_models;                /* several: each is loaded when a request names it */
    const mlxcel_setting *settings; /* [n_settings] */
    size_t n_settings;
    const mlxcel_store *store; /* NULL: the defaults */
    int32_t port;              /* 0: one that is free, see mlxcel_server_port */
    int32_t reserved;
} mlxcel_server_options;
MLXCEL_API void mlxcel_server_options_init(mlxcel_server_options *options, size_t struct_size);

/* Starts a server on a thread of its own, with models of its own; waits until it takes requests, which is when its one model is loaded. options
 * NULL: the defaults. Several servers in one program are fine. Not from a callback. */
MLXCEL_API int32_t mlxcel_server_start(const mlxcel_server_options *options, mlxcel_server **out, mlxcel_error *error);
/* Where it listens; -1: nowhere. */
MLXCEL_API int32_t mlxcel_server_port(const mlxcel_server *server);
/* Takes no more requests, waits at most half a minute for those that run, and frees the server; NULL is fine. No other function of this server
 * may be running. Not from a callback. */
MLXCEL_API void mlxcel_server_stop(mlxcel_server *server);

#ifdef __cplusplus
}
#endif

#endif
