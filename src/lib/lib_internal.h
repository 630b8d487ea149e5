/* What the files of the library share: handles, options that may be older or newer than the library, and errors on their way out.
 *
 * The library stands on api/service.h: an engine behind a thread. What that calls the owner is here everybody who holds the model's lock.
 *
 * (1) model->lock is held while jobs are submitted, taken, cancelled and released, and while their handles change. Nothing that waits or
 *     computes for long is done with it: constraints are compiled and texts encoded before.
 * (2) The engine's thread asks which jobs have events, with the lock. It wakes whoever waits for one, and lists jobs that have a callback for the
 *     model's events thread, which calls them without the lock.
 * (3) A model lives until it is closed and the last of its jobs is freed.
 */
#ifndef MLXCEL_LIB_INTERNAL_H
#define MLXCEL_LIB_INTERNAL_H

#include "api/service.h"
#include "hub/store.h"
#include "mlxcel.h"
#include "os/os.h"

#include <stdatomic.h>

enum { LIB_BELLS = 64 };

struct mlxcel_model {
    struct arena arena; /* strings of the options */
    struct service *service;
    const char *template; /* its source; "": it has none */
    struct device *device;
    struct os_thread *thread; /* of events */
    _Atomic uint32_t n_news;  /* grows when it is loaded, and when there is something to call */
    atomic_bool is_open;      /* it is loaded, and may have jobs */
    mlxcel_progress_fn progress;
    void *progress_user;
    struct os_mutex *lock;
    _Atomic uint32_t bells[LIB_BELLS];       /* words that readers wait on; jobs share them in turn, and they outlive any job */
    uint32_t i_bell;                         /* of the next job */
    struct mlxcel_job *newest;               /* all jobs that are not freed */
    struct mlxcel_job *called, **called_end; /* those whose callback has something to hear */
    int32_t n_holders;                       /* whoever opened it, and each job */
    bool quits;                              /* it is being closed */
};

struct mlxcel_job {
    struct mlxcel_model *model;
    struct job *job; /* the engine's; NULL: the model was closed */
    struct mlxcel_job *older, *newer, *next_called;
    uint32_t i_bell;
    mlxcel_event_fn on_event; /* NULL: mlxcel_next */
    void *user;
    bool wants_tokens, wants_logprobs, wants_progress;
    bool is_ready;   /* the engine has events for it */
    bool is_awaited; /* somebody waits on its bell */
    bool is_called;  /* it stands in the list of those to be called */
    bool in_call;    /* its callback runs */
    bool is_freed;   /* by its own callback */
    bool is_over;    /* the end has been handed out */
    bool has_events; /* taken, and not all handed out */
    struct job_events events;
    int part; /* of the events, that comes next: see job.c */
    size_t i_piece;
    struct arena scratch; /* what the last event points at */
    mlxcel_event last;
};

enum { LIB_SETTINGS_MAX = 10000 }; /* of a server */

/* ---- errors and options ------------------------------------------------------------------------------------------------- */

/* The result of a public function: *out, which may be NULL, says why. */
int32_t lib_result(mlxcel_error *out, int code, const struct err *err);
/* Before anything large is begun. A library is silent where nobody has said what it may print, and keeps memory for the case that there is none left;
 * an error where that is used up. */
int lib_begin(struct err *err);
/* Copies options over the defaults in *full, whichever of the two is longer; given NULL: the defaults. */
int lib_options_read(void *full, size_t full_bytes, const void *given, const char *name, struct err *err);
/* The defaults into the caller's struct. */
void lib_options_write(void *out, size_t out_bytes, const void *full, size_t full_bytes);
/* A filled struct into the caller's, whose struct_size says how long that is. */
int lib_struct_write(void *out, const void *full, size_t full_bytes, const char *name, struct err *err);
/* Memory for the caller, who frees it by mlxcel_free. */
int lib_copy(const void *data, size_t bytes, void **out, struct err *err);
int lib_copy_text(struct str text, char **out, size_t *out_bytes, struct err *err);

/* ---- parts of the library ------------------------------------------------------------------------------------------------ */

/* Who looks at a download; lib_store_options fills the rest. */
struct lib_download {
    mlxcel_progress_fn progress; /* NULL: nobody is told */
    void *user;
    struct watch watch;
    atomic_bool stop; /* the caller wants no more of it */
};
/* The store and the hub as options of the caller say; strings are copied. *download must outlive what is asked of them. */
int lib_store_options(struct arena *a, const mlxcel_store *given, struct lib_download *download, struct store_options *out,
                      struct err *err);
/* A device that all models of the process with the same wishes share. */
int lib_device_hold(const struct session_options *options, struct device **out, struct err *err);
void lib_device_release(struct device *device); /* NULL is fine */

/* A conversation as tokens. takes_tools false: those of the chat are left out. The prompt's state goes into *spec: whether the model is inside its
 * reasoning, or goes on with a message. */
struct lib_prompt {
    struct service_ids ids;
    struct str text;
    yyjson_val *tools; /* the list; NULL: none */
};
int lib_chat_encode(const struct mlxcel_model *m, struct arena *a, const mlxcel_chat *chat, bool takes_tools, struct lib_prompt *out,
                    struct job_spec *spec, struct err *err);
/* What the answer is held to, into *spec; strings lie in the arena. */
int lib_constrain(struct mlxcel_model *m, struct arena *a, const mlxcel_job_options *o, yyjson_val *tools, struct job_spec *spec,
                  struct err *err);

/* Tokens that a function was given, at least so many, by a caller that may wait. */
int lib_tokens_check(const struct mlxcel_model *m, const char *function, const int32_t *tokens, size_t n, size_t least, struct err *err);

/* ---- jobs ---------------------------------------------------------------------------------------------------------------- */

/* Submits jobs as one request. Their handles were created, and what they want is set; an error drops them. */
int lib_jobs_submit(struct mlxcel_model *m, struct job_spec *specs, int32_t n, struct mlxcel_job **jobs, struct err *err);
struct mlxcel_job *lib_job_create(struct mlxcel_model *m, struct err *err);
void lib_job_drop(struct mlxcel_job *j); /* one that was not submitted */
/* Waits for the end of a job that has no answer, and gives its events. An end that is no success is an error. */
int lib_job_wait(struct mlxcel_job *j, struct job_events *out, struct err *err);
/* The next of the events that were taken, into j->last; false: there is none. */
bool lib_job_next(struct mlxcel_job *j);
/* With the lock held. True: nobody holds the model any more, and lib_model_destroy is the next. */
bool lib_job_destroy(struct mlxcel_job *j);
/* Without the lock; it was closed before. */
void lib_model_destroy(struct mlxcel_model *m);

/* The events thread. */
void lib_events_run(void *model);
/* Wakes it, or whoever waits until the model is loaded. */
void lib_events_wake(struct mlxcel_model *m);
/* From the service's thread: it is loaded, or jobs have events. */
void lib_events_notify(void *model);
/* Refuses a function that waits, inside of a callback, which everything that it waits for would wait for. */
int lib_events_check(const char *function, struct err *err);
/* With the lock held: the job is handed to the events thread. */
void lib_events_call(struct mlxcel_job *j);
/* With the lock held: waits until somebody rings for the job, or until the time (os_clock_ns; 0: never). It may come back for nothing. False: the
 * time has passed. */
bool lib_job_await(struct mlxcel_job *j, uint64_t deadline_ns);
/* With the lock held: whoever waits for the job's news is to look again. The result is its bell as a bit; lib_events_ring wakes those who wait on these.
 * Without the lock, since it is the first thing that they want. */
uint64_t lib_job_news(struct mlxcel_job *j);
void lib_events_ring(struct mlxcel_model *m, uint64_t bells);
/* Whether this thread is in the callback of this job; j NULL: of any. */
bool lib_events_inside(const struct mlxcel_job *j);

#endif
