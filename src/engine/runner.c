/* Running batches: cache layout from limits, a dry walk that reserves scratch memory, then begin / forward / end. */
#include "engine/runner.h"

static int32_t blocks_needed(const struct kv_class *k, const struct runner_limits *l) {
    int64_t tokens = l->kv_tokens;
    if (k->window > 0) {
        /* a window keeps its own span, a chunk of new rows, and the block that straddles each end */
        int64_t span = (int64_t)k->window + l->rows + 2 * KV_BLOCK;
        int64_t most = span * l->seqs;
        if (most < tokens) tokens = most;
    }
    return (int32_t)((tokens + KV_BLOCK - 1) / KV_BLOCK + l->seqs + 1); /* a part-filled block per sequence, the reserved one */
}

/* The op list of a step. The hidden states of all wanted rows come out of one norm; logits are made of those that want them. */
static void describe(struct runner *r, const struct step_key *key) {
    struct oplist *l = &r->backend->list;
    struct tensor states = forward_hidden(r->model, l);
    r->hidden = tensor_slice_rows(states, key->n_logits, key->n_hidden);
    if (key->n_hidden) oplist_output(l, states);
    if (key->n_hidden && !key->n_logits) return;
    r->logits = forward_head(r->model, l, tensor_slice_rows(states, 0, key->n_logits));
    oplist_output(l, r->logits);
    r->best = op_argmax(l, r->logits);
    oplist_output(l, r->best);
}

static int reserve_key(struct runner *r, const struct step_key *key, struct err *err) {
    r->backend->type->begin(r->backend, key);
    describe(r, key);
    return r->backend->type->reserve(r->backend, err);
}

/* Plans the largest steps, so that later ones find their memory. */
static int reserve(struct runner *r, struct err *err) {
    struct step_key key = {.n_rows = r->limits.rows, .n_seqs = r->limits.seqs, .n_logits = r->limits.logits, .max_len = r->limits.context};
    TRY(reserve_key(r, &key, err));
    key.n_hidden = key.n_rows - key.n_logits;
    return r->backend->mixes_rows && key.n_hidden ? reserve_key(r, &key, err) : ERR_OK;
}

int runner_open(const struct model *m, struct backend *be, const struct runner_limits *limits, struct runner *out, struct err *err) {
    *out = (struct runner){.model = m, .backend = be, .limits = *limits};
    struct runner_limits *l = &out->limits;
    if (be->rows_max > 0 && l->rows > be->rows_max) l->rows = be->rows_max;
    if (l->context <= 0 || l->context > m->spec.context) l->context = m->spec.context;
    if (l->kv_tokens <= 0) l->kv_tokens = (int64_t)l->seqs * l->context;
    if (l->logits < l->seqs) l->logits = l->seqs;
    if (l->logits > l->rows) l->logits = l->rows;
    struct kv_layout layout = m->spec.kv;
    layout.max_context = l->context;
    layout.n_slots = l->seqs + l->snapshots;
    for (int32_t i = 0; i < layout.n_classes; i++) layout.classes[i].n_blocks = blocks_needed(&layout.classes[i], l);
    kv_init(&out->kv, &layout);
    int code = be->type->kv_open(be, &layout, err);
    if (!code) code = batch_init(&out->batch, &m->spec, &out->kv, &(struct batch_limits){l->rows, l->seqs, l->context}, err);
    if (!code) code = reserve(out, err);
    if (!code) {
        out->host_logits = mem_try((size_t)l->logits * (size_t)m->spec.vocab * sizeof(float));
        if (!out->host_logits) code = err_set(err, ERR_EMEMORY, "no memory for the logits of %d rows", l->logits);
    }
    if (code) runner_close(out);
    return code;
}

void runner_close(struct runner *r) {
    if (r->backend) r->backend->type->kv_close(r->backend);
    batch_free(&r->batch);
    kv_free(&r->kv);
    mem_free(r->host_logits);
    *r = (struct runner){0};
}

int runner_run(struct runner *r, struct err *err) {
    struct step_key key = batch_seal(&r->batch);
    if (r->backend->type->begin(r->backend, &key)) describe(r, &key);
    else r->logits.rows = r->best.rows = key.n_logits; /* replayed: the same list, so the same values */
    return r->backend->type->end(r->backend, &r->batch.step, err);
}

int runner_hidden(struct runner *r, float *out, struct err *err) {
    return r->backend->type->read(r->backend, r->hidden, out, err);
}

int runner_logits(struct runner *r, const float **out, struct err *err) {
    *out = r->backend->type->view ? r->backend->type->view(r->backend, r->logits) : NULL;
    if (*out) return ERR_OK;
    *out = r->host_logits;
    return r->backend->type->read(r->backend, r->logits, r->host_logits, err);
}

int runner_best(struct runner *r, int32_t *out, struct err *err) {
    return r->backend->type->read(r->backend, r->best, out, err);
}
