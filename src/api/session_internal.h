/* What a session holds; for the files of src/api and of src/tools only. */
#ifndef MLXCEL_API_SESSION_INTERNAL_H
#define MLXCEL_API_SESSION_INTERNAL_H

#include "api/embedder.h"
#include "api/gpus.h"
#include "api/judge.h"
#include "api/placement.h"
#include "api/pictures.h"
#include "api/pictures_kept.h"
#include "api/session.h"
#include "engine/job.h"
#include "engine/engine.h"
#include "engine/team.h"
#include "file/checkpoint.h"
#include "model/model.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

struct session {
    struct arena arena;
    struct session_options options;
    struct checkpoint checkpoint; /* closed again after loading, but for its config and side files */
    bool has_checkpoint;
    struct config config;
    struct device *device; /* that was found or given; the first of several */
    struct gpus gpus;
    struct placement placement;
    struct backend *backend;
    struct team *team; /* the other ranks, where the model is cut for several; NULL: none */
    struct model model;
    bool has_model;
    struct engine *engine;
    struct session *draft;     /* its model makes drafts; NULL: none */
    struct session_head *head; /* which makes drafts; NULL: none */
    int32_t *eos, n_eos;
    const char *name;
    struct embedder embedder; /* by the model's own files */
    struct err embedder_why;  /* why those cannot be followed */
    struct judge judge;       /* of documents */
    struct err judge_why;     /* why there is none */
    float *adapter_scales;    /* [options.n_adapters] for jobs that have none of their own */
    uint64_t identity;        /* of the model and its adapters, where caches may be saved */
    struct vision *vision;    /* the tower, with a backend of its own; NULL: none */
    struct backend *vision_backend;
    struct os_mutex *vision_lock;
    struct err vision_why;            /* why there is none */
    struct pictures_kept kept;        /* rows of earlier pictures, under the lock */
    struct session_pictures pictures; /* of the last prompt that was encoded, in prompt_arena */
    struct arena prompt_arena;
    struct err no_gpu; /* with an automatic choice: why it is not the GPU */
    /* text, loaded when it is first needed */
    bool text_loaded;
    struct tok *tok;
    struct chat_template *chat;
    const struct output_format *format;       /* how the template has calls written; NULL: it does not */
    const struct output_reasoning *reasoning; /* its markers of reasoning */
    struct tok_ids ids;
};

void session_text_close(struct session *s);
/* A language model without a head for judging judges by its words yes and no. */
void session_judge_words(struct session *s);
/* Runs jobs of ROWS_HIDDEN to their end on the calling thread; their vectors, [n][width]. */
int session_run_vectors(struct session *s, const struct job_spec *specs, int32_t n, int32_t width, float *out, struct err *err);
/* A conversation (an object with messages and further keywords) through the template to ids; *out_text may be NULL. */
int session_chat_encode(const struct session *s, struct arena *a, yyjson_val *input, const struct session_pictures *pictures,
                        struct tok_ids *out, struct str *out_text, struct err *err);
/* The tower of a checkpoint that was opened; without one, or where it cannot be run, the model takes text alone. */
void session_vision_open(struct session *s);
void session_vision_close(struct session *s);

/* session_draft.c: the model of options.draft_model, on the same device. */
int session_draft_open(struct session *s, struct err *err);
/* session_head.c: the head that options.draft asks for, or that options.draft_model is; none where they are something else. Before the engine is opened; then
 * behind that; and when it is closed. */
int session_head_open(struct session *s, struct err *err);
int session_head_set(struct session *s, struct err *err);
void session_head_close(struct session *s);

/* session_ranks.c: what cannot be had with several ranks is refused, then their group is opened; the ranks behind the first, with weights from this store. */
int session_ranks_fit(struct session *s, struct err *err); /* of a number that is ours to choose, as many as divide the heads */
int session_ranks_open(struct session *s, struct err *err);
int session_ranks_start(struct session *s, const struct tensor_store *store, struct err *err);
/* Does what the first rank is asked to do, until that one ends. */
int session_ranks_follow(struct session *s, struct err *err);
/* The others need not wait: this rank cannot go on. */
void session_ranks_fail(struct session *s, const struct err *reason);
/* The device of a rank, on a GPU or not; 0: of the first, or of a model that is not cut. */
struct rank_device {
    struct device_options options;
    char name[32]; /* of a GPU */
};
int session_ranks_device(const struct session_options *o, bool is_gpu, int32_t rank, struct rank_device *out, struct err *err);

/* session.c: the context on the device, or on two of them, as s->placement has it. */
int session_backend_open(struct session *s, struct err *err);

/* session_load.c: config, spec and weights, in the backend that is open. */
int session_model_open(struct session *s, struct err *err);
/* What it would be placed by: the checkpoint stays open. */
int session_model_plan(struct session *s, struct err *err);

/* preflight.c: refusals name what is needed and what is there. */
int preflight_weights(const struct session *s, uint64_t need, struct err *err);
int preflight_cache(const struct session *s, int32_t context, int32_t rows, int32_t seqs, struct err *err);
/* The largest context that fits beside what else is needed. */
int32_t preflight_context(const struct session *s, int32_t rows, int32_t seqs);

/* Bytes that the next token of a sequence of this length must read at least: of the cache and the state; with its share of the weights,
 * which n_batch sequences read once for all. */
uint64_t session_cache_bytes(const struct session *s, int32_t length);
double session_token_bytes(const struct session *s, int32_t n_batch, int32_t length);
double session_step_bytes(const struct model *m, int32_t n_batch); /* of the weights alone, for all of them */

#endif
