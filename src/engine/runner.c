/* Running batches: cache layout from limits, a dry walk that reserves scratch memory, then begin / forward / end. */
#include "engine/runner.h"

#include "backend/split/split.h"
#include "engine/kv_size.h"

/* Rows of pictures follow the tokens, but there is room for two pictures at least and for one of each sequence at most. */
static int64_t picture_positions(const struct kv_class *k, const struct runner_limits *l) {
    int64_t least = 2 * (int64_t)k->picture_rows, most = (int64_t)l->seqs * k->picture_rows;
    return l->kv_tokens < least || most < least ? least : l->kv_tokens < most ? l->kv_tokens : most;
}

static int32_t blocks_needed(const struct kv_class *k, const struct runner_limits *l) {
    int64_t tokens = k->picture_rows ? picture_positions(k, l) : l->kv_tokens;
    if (k->window > 0) {
        /* a window keeps its own span, a chunk of new rows, and the block that straddles each end */
        int64_t span = (int64_t)k->window + l->rows + 2 * KV_BLOCK;
        int64_t most = span * l->seqs;
        if (most < tokens) tokens = most;
    }
    return (int32_t)((tokens + KV_BLOCK - 1) / KV_BLOCK + l->seqs + 1); /* a part-filled block per sequence, the reserved one */
}

/* The op list of a step. The hidden states of all wanted rows come out of one norm; logits are made of those that want them. */
void runner_describe(struct runner *r, const struct step_key *key) {
    struct oplist *l = &r->backend->list;
    l->adapts = key->adapts;
    l->gives = key->gives;
    l->has_places = key->has_places;
    l->has_spans = key->has_spans;
    struct tensor states = forward_hidden(r->model, l, r->taps);
    for (int32_t i = 0; i < r->model->taps.n; i++) oplist_output(l, r->taps[i]);
    r->hidden = tensor_slice_rows(states, key->n_logits, key->n_hidden);
    if (key->n_hidden) oplist_output(l, states);
    if (key->n_hidden && !key->n_logits) return;
    r->logits = forward_head(r->model, l, tensor_slice_rows(states, 0, key->n_logits));
    oplist_output(l, r->logits);
    r->best = key->chooses ? op_choose(l, r->logits) : op_argmax(l, r->logits);
    oplist_output(l, r->best);
}

/* Whether pictures are looked at, not among the tokens. */
static bool runner_looks(const struct runner *r) {
    return r->model->spec.kv.n_of_pictures && r->model->n_given > 0;
}

/* The most positions that a sequence may see: of the text, or of pictures. */
static int32_t runner_positions(const struct runner *r) {
    const struct kv_layout *l = &r->model->spec.kv;
    int64_t rows = l->n_of_pictures ? picture_positions(&l->classes[l->n_classes - 1], &r->limits) : 0;
    return rows > r->limits.context ? (int32_t)rows : r->limits.context;
}

static struct step_key states_key(const struct runner *r, int32_t n_rows) {
    return (struct step_key){.n_rows = n_rows, .n_seqs = 1, .max_len = runner_positions(r), .gives = true};
}

static void describe_states(struct runner *r) {
    r->backend->list.gives = true;
    forward_states(r->model, &r->backend->list);
}

static int reserve_key(struct runner *r, const struct step_key *key, struct err *err) {
    r->backend->type->begin(r->backend, key);
    runner_describe(r, key);
    return r->backend->type->reserve(r->backend, err);
}

/* A short draft of one request: the backend sees before the first one what such a step is on it (struct backend.row_first). */
static int reserve_draft(struct runner *r, struct err *err) {
    enum { ROWS = 4 };
    int32_t n = r->limits.logits < ROWS ? r->limits.logits : ROWS;
    struct step_key key = {.n_rows = n, .n_seqs = 1, .n_logits = n, .max_len = n, .chooses = r->backend->chooses ? CHOICE_ALL : 0};
    return r->limits.drafts && n > 1 && n <= r->limits.context ? reserve_key(r, &key, err) : ERR_OK;
}

/* Plans the largest steps, so that later ones find their memory. */
static int reserve(struct runner *r, struct err *err) {
    bool has_head = !r->model->spec.is_encoder, looks = runner_looks(r);
    struct step_key key = {.n_rows = r->limits.rows,
                           .n_seqs = r->limits.seqs,
                           .n_logits = r->limits.logits,
                           .max_len = r->limits.context,
                           .chooses = r->backend->chooses ? CHOICE_ALL : 0,
                           .adapts = r->model->weights.n_adapters > 0,
                           .gives = r->model->n_given > 0,
                           .has_places = r->model->n_given > 0,
                           .has_spans = looks};
    if (looks) {
        struct step_key states = states_key(r, key.n_rows);
        r->backend->type->begin(r->backend, &states);
        describe_states(r);
        TRY(r->backend->type->reserve(r->backend, err));
    }
    if (has_head) TRY(reserve_key(r, &key, err));
    key.n_hidden = key.n_rows - key.n_logits;
    if ((r->backend->mixes_rows || !has_head) && key.n_hidden) TRY(reserve_key(r, &key, err));
    return reserve_draft(r, err);
}

/* The cache, with room for l->kv_tokens. */
static int open_cache(struct runner *r, struct err *err) {
    const struct runner_limits *l = &r->limits;
    struct kv_layout layout = r->model->spec.kv;
    layout.max_context = runner_positions(r);
    layout.n_slots = l->seqs + l->snapshots;
    for (int32_t i = 0; i < layout.n_classes; i++) layout.classes[i].n_blocks = blocks_needed(&layout.classes[i], l);
    kv_init(&r->kv, &layout);
    return r->backend->type->kv_open(r->backend, &layout, err);
}

static void close_cache(struct runner *r) {
    r->backend->type->kv_close(r->backend);
    kv_free(&r->kv);
}

/* Bytes of a device's part of a cache for so many tokens. */
static uint64_t cache_bytes(const struct runner *r, const struct split_part *p, int64_t tokens) {
    struct runner_limits l = r->limits;
    struct kv_layout layout = p->layout;
    l.kv_tokens = tokens;
    for (int32_t i = 0; i < layout.n_classes; i++) layout.classes[i].n_blocks = blocks_needed(&layout.classes[i], &l);
    return kv_layout_bytes(p->be, &layout);
}

/* Tokens, at most `high`, whose cache takes no more than its share of what this device has free beside the small cache of now. */
static int64_t tokens_that_fit(const struct runner *r, const struct split_part *p, int64_t high) {
    uint64_t available = 0, total = 0;
    double share = p->be->device->is_gpu ? r->limits.kv_share : r->limits.kv_share / 2; /* the host's memory is not ours alone */
    device_memory(p->be->device, &available, &total);
    uint64_t room = (uint64_t)((double)available * share) + cache_bytes(r, p, r->limits.kv_tokens);
    int64_t low = KV_BLOCK;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (cache_bytes(r, p, middle) <= room) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* Scratch memory has been allocated, and so far the cache is small. Enlarges it to its share of the memory that is free now, but to `most` tokens at most. */
static int fit_cache(struct runner *r, int64_t most, struct err *err) {
    struct runner_limits *l = &r->limits;
    struct split_part parts[SIDES_MAX];
    int64_t low = most;
    for (int32_t i = 0, n = split_parts(r->backend, &r->kv.layout, parts); i < n; i++) low = tokens_that_fit(r, &parts[i], low);
    close_cache(r);
    l->kv_tokens = low / KV_BLOCK * KV_BLOCK;
    if (l->kv_tokens < l->context && l->keeps_context)
        return err_set(err, ERR_EMEMORY, "the cache has room for %lld tokens, and --ctx-size asks for %d; take a smaller one, or --force",
                       (long long)l->kv_tokens, l->context);
    if (l->kv_tokens < l->context) l->context = (int32_t)l->kv_tokens;
    TRY(open_cache(r, err));
    return reserve(r, err);
}

static void settle_limits(struct runner *r) {
    struct runner_limits *l = &r->limits;
    const struct spec *spec = &r->model->spec;
    int32_t rows_max = r->backend->rows_max;
    if (rows_max > 0 && l->rows > rows_max) l->rows = rows_max;
    if (l->context <= 0 || l->context > spec_longest(spec, l->context)) l->context = spec->context;
    if (spec->is_encoder && rows_max > 0 && l->context > rows_max) l->context = rows_max;
    if (l->kv_tokens <= 0) l->kv_tokens = (int64_t)l->seqs * l->context;
    if (l->logits < l->seqs) l->logits = l->seqs;
    if (spec->is_encoder && l->rows < l->context) l->rows = l->context; /* a text is one step */
    if (l->logits > l->rows) l->logits = l->rows;
    if (spec->is_encoder) l->logits = 0;
}

static int open_memory(struct runner *r, struct err *err) {
    struct runner_limits *l = &r->limits;
    int64_t most = l->kv_tokens;
    if (l->kv_share > 0) l->kv_tokens = KV_BLOCK;
    TRY(open_cache(r, err));
    TRY(batch_init(&r->batch, &r->model->spec, &r->kv,
                   &(struct batch_limits){.rows = l->rows,
                                          .seqs = l->seqs,
                                          .logits = l->logits,
                                          .context = runner_positions(r),
                                          .adapters = r->model->weights.n_adapters,
                                          .given = r->model->n_given,
                                          .is_prefix = r->model->is_prefix,
                                          .reads_shared = r->backend->reads_shared},
                   err));
    TRY(reserve(r, err));
    if (l->kv_share > 0) TRY(fit_cache(r, most, err));
    r->host_logits = mem_try((size_t)l->logits * (size_t)r->model->spec.vocab * sizeof(float) + 1);
    r->host_best = mem_try((size_t)l->logits * sizeof *r->host_best + 1);
    return r->host_logits && r->host_best ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for the logits of %d rows", l->logits);
}

int runner_open(const struct model *m, struct backend *be, const struct runner_limits *limits, struct runner *out, struct err *err) {
    *out = (struct runner){.model = m, .backend = be, .limits = *limits};
    settle_limits(out);
    int code = open_memory(out, err);
    if (code) runner_close(out);
    return code;
}

static void free_host_taps(struct runner *r) {
    for (int32_t i = 0; i < STATE_TAPS; i++) {
        if (r->host_taps[i] && r->backend->type->host_free) r->backend->type->host_free(r->backend, r->host_taps[i]);
        else mem_free(r->host_taps[i]);
    }
}

void runner_close(struct runner *r) {
    if (r->backend) r->backend->type->kv_close(r->backend);
    batch_free(&r->batch);
    kv_free(&r->kv);
    mem_free(r->host_logits);
    mem_free(r->host_best);
    free_host_taps(r);
    *r = (struct runner){0};
}

int runner_run(struct runner *r, struct err *err) {
    struct step_key key = batch_seal(&r->batch);
    if (r->backend->type->begin(r->backend, &key)) runner_describe(r, &key);
    else { /* replayed: the same list, so the same values */ r->logits.rows = r->best.rows = key.n_logits;
        for (int32_t i = 0; i < r->model->taps.n; i++) r->taps[i].rows = key.n_rows;
    }
    return r->backend->type->end(r->backend, &r->batch.step, err);
}

int runner_states(struct runner *r, const struct sequence *s, struct err *err) {
    int32_t most = r->limits.rows;
    for (int32_t first = 0, n; first < s->states->n; first += n) {
        n = s->states->n - first < most ? s->states->n - first : most;
        batch_clear(&r->batch);
        batch_add_states(&r->batch, s, first, n);
        struct step_key key = states_key(r, n);
        if (r->backend->type->begin(r->backend, &key)) describe_states(r);
        TRY(r->backend->type->end(r->backend, &r->batch.step, err));
    }
    return ERR_OK;
}

int runner_hidden(struct runner *r, float *out, struct err *err) {
    return r->backend->type->read(r->backend, r->hidden, out, err);
}

/* Memory for the states of a whole step, from which the device copies without a detour where it knows such memory. */
static int open_host_taps(struct runner *r, struct err *err) {
    struct backend *be = r->backend;
    size_t bytes = (size_t)r->limits.rows * (size_t)r->model->spec.hidden * sizeof(float);
    for (int32_t i = 0; i < r->model->taps.n; i++) {
        if (r->host_taps[i]) continue;
        if (be->type->host_alloc) TRY(be->type->host_alloc(be, bytes, &r->host_taps[i], err));
        else r->host_taps[i] = mem_try(bytes);
        if (!r->host_taps[i]) return err_set(err, ERR_EMEMORY, "no memory for the states of %d rows", r->limits.rows);
    }
    return ERR_OK;
}

int runner_taps(struct runner *r, const float *out[STATE_TAPS], struct err *err) {
    struct backend *be = r->backend;
    int32_t n = r->model->taps.n;
    for (int32_t i = 0; i < n; i++) out[i] = be->type->view ? be->type->view(be, r->taps[i]) : NULL;
    if (n == 0 || out[0]) return ERR_OK;
    TRY(open_host_taps(r, err));
    for (int32_t i = 0; i < n; i++) out[i] = r->host_taps[i];
    if (be->type->read_many) return be->type->read_many(be, r->taps, r->host_taps, n, err);
    for (int32_t i = 0; i < n; i++) TRY(be->type->read(be, r->taps[i], r->host_taps[i], err));
    return ERR_OK;
}

int runner_logits(struct runner *r, const float **out, struct err *err) {
    *out = r->backend->type->view ? r->backend->type->view(r->backend, r->logits) : NULL;
    if (*out) return ERR_OK;
    *out = r->host_logits;
    return r->backend->type->read(r->backend, r->logits, r->host_logits, err);
}

int runner_chosen(struct runner *r, int32_t age, int32_t n, struct step_chosen *out, struct err *err) {
    struct backend *be = r->backend;
    if (be->type->chosen) return be->type->chosen(be, age, out, err);
    TRY(be->type->read(be, r->best, r->host_best, err));
    for (int32_t i = 0; i < n; i++) out[i].token = r->host_best[i];
    return ERR_OK;
}
