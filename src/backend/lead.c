/* Telling calls to the other ranks. A rank that fails afterwards says so (comm_fail), and the next sum fails here. */
#include "backend/lead.h"

struct lead {
    struct backend_type type; /* the device's, but for what is told */
    struct step_key key;      /* of the list that is being collected */
};

static struct lead *lead_of(struct backend *be) {
    return (struct lead *)(uintptr_t)be->type;
}

static const struct backend_type *inner(const struct backend *be) {
    return be->device->type;
}

static int tell(struct backend *be, struct lead_call *call, struct err *err) {
    return comm_broadcast(be->comm, 0, call, sizeof *call, err);
}

/* Others may wait for this rank, which has failed. */
static int result(struct backend *be, int code, struct err *err) {
    if (code && err) comm_fail(be->comm, err);
    return code;
}

static int lead_kv_open(struct backend *be, const struct kv_layout *l, struct err *err) {
    struct lead_call call = {.kind = LEAD_CACHE,
                             .cache = {.n_classes = l->n_classes, .n_slots = l->n_slots, .max_context = l->max_context}};
    for (int32_t i = 0; i < l->n_classes; i++) call.cache.n_blocks[i] = l->classes[i].n_blocks;
    TRY(tell(be, &call, err));
    return result(be, inner(be)->kv_open(be, l, err), err);
}

static void lead_kv_close(struct backend *be) {
    struct err unread;
    tell(be, &(struct lead_call){.kind = LEAD_NO_CACHE}, &unread);
    inner(be)->kv_close(be);
}

static int lead_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err) {
    struct err own;
    struct lead_call call = {.kind = LEAD_BLOCK_COPY, .kv_class = kv_class, .from = from, .to = to};
    TRY(tell(be, &call, err));
    return result(be, inner(be)->block_copy(be, kv_class, from, to, err ? err : &own), err ? err : &own);
}

static int lead_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err) {
    struct err own;
    TRY(tell(be, &(struct lead_call){.kind = LEAD_SLOT_COPY, .from = from, .to = to}, err));
    return result(be, inner(be)->slot_copy(be, from, to, err ? err : &own), err ? err : &own);
}

static bool lead_begin_step(struct backend *be, const struct step_key *key) {
    lead_of(be)->key = *key;
    return inner(be)->begin(be, key);
}

static int lead_reserve(struct backend *be, struct err *err) {
    TRY(tell(be, &(struct lead_call){.kind = LEAD_RESERVE, .key = lead_of(be)->key}, err));
    return result(be, inner(be)->reserve(be, err), err);
}

static int lead_end(struct backend *be, const struct step *step, struct err *err) {
    TRY(tell(be, &(struct lead_call){.kind = LEAD_STEP, .key = lead_of(be)->key, .step = *step}, err));
    int code = comm_broadcast(be->comm, 0, step->block, step->block_bytes, err);
    if (!code) code = inner(be)->end(be, step, err);
    return result(be, code, err);
}

static void lead_close(struct backend *be) {
    struct lead *l = lead_of(be);
    struct err unread;
    tell(be, &(struct lead_call){.kind = LEAD_END}, &unread);
    inner(be)->close(be);
    mem_free(l);
}

void lead_begin(struct backend *be) {
    struct lead *l = mem_alloc(sizeof *l);
    l->type = *be->type;
    l->type.kv_open = lead_kv_open;
    l->type.kv_close = lead_kv_close;
    l->type.block_copy = lead_block_copy;
    l->type.slot_copy = lead_slot_copy;
    l->type.begin = lead_begin_step;
    l->type.reserve = lead_reserve;
    l->type.end = lead_end;
    l->type.close = lead_close;
    l->type.block_bytes = NULL; /* a block is one rank's part: caches are neither saved nor restored */
    l->type.block_read = NULL;
    l->type.block_write = NULL;
    l->type.slot_read = NULL;
    l->type.slot_write = NULL;
    be->type = &l->type;
}

/* What lies elsewhere is the first rank's alone, which may be another process. */
static void *moved(const void *p, const struct step *s, void *block) {
    uintptr_t at = (uintptr_t)p - (uintptr_t)s->block;
    return p && at < s->block_bytes ? (unsigned char *)block + at : NULL;
}

void lead_step_at(struct step *s, void *block) {
    const struct step old = *s;
    s->ids = moved(s->ids, &old, block);
    s->pos = moved(s->pos, &old, block);
    s->seq_of = moved(s->seq_of, &old, block);
    s->wanted_rows = moved(s->wanted_rows, &old, block);
    s->seqs = moved(s->seqs, &old, block);
    s->sharing = moved(s->sharing, &old, block);
    s->choices = moved(s->choices, &old, block);
    s->places = moved(s->places, &old, block);
    s->until = moved(s->until, &old, block);
    s->adapters = moved(s->adapters, &old, block);
    s->rope = moved(s->rope, &old, block);
    for (int32_t i = 0; i < KV_CLASSES_MAX; i++) s->tables[i] = moved(s->tables[i], &old, block);
    for (int32_t i = 0; i < GIVEN_SETS; i++) s->given[i] = moved(s->given[i], &old, block);
    for (int32_t i = 0; i < 2; i++) s->spans[i] = moved(s->spans[i], &old, block);
    s->masks = NULL; /* the first rank chooses */
    s->inputs = NULL;
    s->block = block;
}
