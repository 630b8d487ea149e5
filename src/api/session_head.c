/* A head beside a session's model: its weights on the same device, with a context of its own. */
#include "api/session_internal.h"

#include "api/model_folder.h"
#include "model/draft_head.h"

struct session_head {
    struct arena arena;
    struct checkpoint checkpoint; /* of a folder of its own */
    bool has_checkpoint;
    struct backend *backend;
    struct draft_head head;
};

static int check_device(const struct session *s, struct err *err) {
    const struct backend *be = s->backend;
    if (be->gives && be->mixes_rows && !be->is_split) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "a head that drafts is computed on the CPU or on one GPU, and this runs on %s; use --draft ngram",
                   be->type->name);
}

/* Whether options.draft_model is a head; other folders are models. */
static int open_folder(struct session *s, bool *is_head, struct err *err) {
    struct session_head *h = s->head;
    TRY(model_folder_open(s->options.draft_model, &h->checkpoint, err));
    h->has_checkpoint = true;
    struct tensor_store store = model_checkpoint_store(&h->checkpoint);
    *is_head = draft_head_is(&store);
    if (*is_head && !h->checkpoint.has_config) return err_set(err, ERR_EFORMAT, "%s is a head without config.json", s->options.draft_model);
    return ERR_OK;
}

static int open_head(struct session *s, struct err *err) {
    struct session_head *h = s->head;
    struct backend_options options = {.precision = (enum precision)s->options.precision, .no_fuse = s->options.no_fuse};
    struct tensor_store store = model_checkpoint_store(h->has_checkpoint ? &h->checkpoint : &s->checkpoint);
    struct draft_head_source source = {h->has_checkpoint ? &h->checkpoint.config : &s->config, &store, &s->model};
    TRY(check_device(s, err));
    if (!s->has_checkpoint) return err_set(err, ERR_EUNSUPPORTED, "a made-up model has no head; use --draft ngram");
    TRY(backend_open(s->backend->device, &options, &h->backend, err));
    TRY(h->has_checkpoint ? draft_head_open(&h->arena, h->backend, &source, &h->head, err)
                          : draft_head_open_own(&h->arena, h->backend, &source, &h->head, err));
    s->model.taps = h->head.taps;
    return ERR_OK;
}

int session_head_open(struct session *s, struct err *err) {
    bool is_head = s->options.draft == DRAFT_MTP;
    if (!is_head && s->options.draft != DRAFT_MODEL) return ERR_OK;
    s->head = mem_alloc(sizeof *s->head);
    if (!is_head && open_folder(s, &is_head, err)) return err_prefix(err, "--draft-model");
    if (!is_head) {
        session_head_close(s);
        return ERR_OK;
    }
    return open_head(s, err) ? err_prefix(err, s->options.draft == DRAFT_MTP ? "--draft mtp" : "--draft-model") : ERR_OK;
}

int session_head_set(struct session *s, struct err *err) {
    struct session_head *h = s->head;
    const struct weight *head = h->head.model.weights.global[ROLE_HEAD].w; /* where it is lent, it is not among those of the head */
    double bytes = session_step_bytes(&h->head.model, 1) + (h->head.to_target ? 0 : (double)head->bytes);
    return engine_set_head(s->engine, s->options.draft, &h->head, h->backend, bytes / session_token_bytes(s, 1, 64), err);
}

void session_head_close(struct session *s) {
    struct session_head *h = s->head;
    if (!h) return;
    if (h->backend) draft_head_close(h->backend, &h->head);
    backend_close(h->backend);
    if (h->has_checkpoint) checkpoint_close(&h->checkpoint);
    arena_free(&h->arena);
    mem_free(h);
    s->head = NULL;
}
