/* One call after the other, as the first rank tells them. */
#include "engine/follow.h"

#include "backend/lead.h"
#include "engine/runner.h"

struct follower {
    struct runner runner; /* model and backend alone: the step comes ready */
    void *block;
    size_t block_bytes;
    bool has_ended;
};

typedef int call_fn(struct follower *f, struct lead_call *call, struct err *err);

static int do_cache(struct follower *f, struct lead_call *call, struct err *err) {
    struct backend *be = f->runner.backend;
    struct kv_layout layout = f->runner.model->spec.kv;
    if (call->cache.n_classes != layout.n_classes)
        return err_set(err, ERR_EINTERNAL, "rank %d has %d classes of caches, and rank 0 has %d", be->comm->rank, layout.n_classes,
                       call->cache.n_classes);
    layout.n_slots = call->cache.n_slots;
    layout.max_context = call->cache.max_context;
    for (int32_t i = 0; i < layout.n_classes; i++) layout.classes[i].n_blocks = call->cache.n_blocks[i];
    return be->type->kv_open(be, &layout, err);
}

static int do_no_cache(struct follower *f, struct lead_call *call, struct err *err) {
    (void)call, (void)err;
    f->runner.backend->type->kv_close(f->runner.backend);
    return ERR_OK;
}

/* The first rank chooses. */
static bool begin(struct follower *f, struct lead_call *call) {
    struct backend *be = f->runner.backend;
    call->key.chooses = 0;
    return be->type->begin(be, &call->key);
}

static int do_reserve(struct follower *f, struct lead_call *call, struct err *err) {
    struct backend *be = f->runner.backend;
    if (begin(f, call)) runner_describe(&f->runner, &call->key);
    return be->type->reserve(be, err);
}

static int do_step(struct follower *f, struct lead_call *call, struct err *err) {
    struct backend *be = f->runner.backend;
    if (f->block_bytes < call->step.block_bytes) {
        mem_free(f->block);
        f->block_bytes = 0;
        f->block = mem_try(call->step.block_bytes);
        if (!f->block) return err_set(err, ERR_EMEMORY, "no memory for a step of %zu bytes", call->step.block_bytes);
        f->block_bytes = call->step.block_bytes;
    }
    TRY(comm_broadcast(be->comm, 0, f->block, call->step.block_bytes, err));
    lead_step_at(&call->step, f->block);
    if (begin(f, call)) runner_describe(&f->runner, &call->key);
    return be->type->end(be, &call->step, err);
}

static int do_block_copy(struct follower *f, struct lead_call *call, struct err *err) {
    return f->runner.backend->type->block_copy(f->runner.backend, call->kv_class, call->from, call->to, err);
}

static int do_slot_copy(struct follower *f, struct lead_call *call, struct err *err) {
    return f->runner.backend->type->slot_copy(f->runner.backend, call->from, call->to, err);
}

static int do_end(struct follower *f, struct lead_call *call, struct err *err) {
    (void)call, (void)err;
    f->has_ended = true;
    return ERR_OK;
}

static call_fn *const calls[N_LEAD_KINDS] = {
    [LEAD_CACHE] = do_cache,           [LEAD_NO_CACHE] = do_no_cache,   [LEAD_RESERVE] = do_reserve, [LEAD_STEP] = do_step,
    [LEAD_BLOCK_COPY] = do_block_copy, [LEAD_SLOT_COPY] = do_slot_copy, [LEAD_END] = do_end,
};

int follow_calls(const struct model *m, struct backend *be, struct err *err) {
    struct follower f = {.runner = {.model = m, .backend = be}};
    int code = ERR_OK;
    while (!code && !f.has_ended) {
        struct lead_call call;
        code = comm_broadcast(be->comm, 0, &call, sizeof call, err);
        if (!code && (call.kind < 0 || call.kind >= N_LEAD_KINDS))
            code = err_set(err, ERR_EFORMAT, "rank 0 asks for %d, which there is not", call.kind);
        if (!code) code = calls[call.kind](&f, &call, err);
    }
    if (code) comm_fail(be->comm, err);
    mem_free(f.block);
    return code;
}
