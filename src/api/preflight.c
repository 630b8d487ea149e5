/* Memory before it is taken: what weights and cache need, by class of the cache, against what the device has free. And what of it a token
 * reads, which is what its speed is measured by. */
#include "api/session_internal.h"
#include "backend/split/split.h"
#include "engine/kv_size.h"

#define GB 1e-9

/* Positions of one sequence that a class keeps at this context. */
static uint64_t positions(const struct kv_class *k, int32_t context, int32_t rows) {
    int64_t span = (int64_t)k->window + rows + 2 * KV_BLOCK;
    return (uint64_t)(k->window > 0 && span < context ? span : context);
}

static uint64_t class_bytes(const struct split_part *p, int32_t i, int32_t context, int32_t rows, int32_t seqs) {
    const struct kv_class *k = &p->layout.classes[i];
    return kv_position_bytes(p->be, k) * positions(k, context, rows) * (uint64_t)seqs;
}

/* Of a device's part; ranks of this process have one each. */
static uint64_t cache_bytes(const struct split_part *p, int32_t context, int32_t rows, int32_t seqs) {
    uint64_t bytes = kv_state_bytes(&p->layout) * (uint64_t)seqs;
    for (int32_t i = 0; i < p->layout.n_classes; i++) bytes += class_bytes(p, i, context, rows, seqs);
    return p->be->comm ? bytes * (uint64_t)p->be->comm->n_here : bytes;
}

static uint64_t read_bytes(const struct split_part *p, int32_t length) {
    uint64_t bytes = kv_state_bytes(&p->layout);
    for (int32_t i = 0; i < p->layout.n_classes; i++) {
        const struct kv_class *k = &p->layout.classes[i];
        bytes += kv_read_bytes(p->be, k) * (uint64_t)(k->window > 0 && k->window < length ? k->window : length);
    }
    return bytes;
}

uint64_t session_cache_bytes(const struct session *s, int32_t length) {
    struct split_part parts[SIDES_MAX];
    uint64_t bytes = 0;
    for (int32_t i = 0, n = split_parts(s->backend, &s->model.spec.kv, parts); i < n; i++) bytes += read_bytes(&parts[i], length);
    return bytes;
}

double session_step_bytes(const struct model *m, int32_t n_batch) {
    const struct model_weights *w = &m->weights;
    double bytes = 0;
    for (int32_t i = 0; i < w->n_all; i++) {
        const struct weight *weight = w->all[i];
        if (weight == w->global[ROLE_EMBED].w && !m->spec.tied) continue; /* a row of it */
        double chosen = (double)m->spec.moe.route.k * n_batch / weight->n_experts;
        bytes += (double)weight->bytes * (weight->n_experts > 1 && chosen < 1 ? chosen : 1);
    }
    return bytes;
}

double session_token_bytes(const struct session *s, int32_t n_batch, int32_t length) {
    return session_step_bytes(&s->model, n_batch) / n_batch + (double)session_cache_bytes(s, length);
}

static uint64_t free_bytes(struct device *d) {
    uint64_t available = 0, total = 0;
    device_memory(d, &available, &total);
    return available;
}

int preflight_weights(const struct session *s, uint64_t need, struct err *err) {
    const struct comm *comm = s->backend->comm;
    uint64_t available = free_bytes(s->backend->device);
    bool on_gpu = s->backend->device->is_gpu;
    int32_t n_here = comm && !on_gpu ? comm->n_here : 1;             /* parts that this memory holds */
    if (comm) need = need / (uint64_t)comm->size * (uint64_t)n_here; /* about: small tensors are whole everywhere */
    if (s->options.force || available == 0 || need <= available) return ERR_OK;
    return err_set(err, ERR_EMEMORY,
                   "the weights need %.1f GB and %.1f GB are free %s; take a smaller or more quantised model%s, or --force",
                   (double)need * GB, (double)available * GB, on_gpu ? "on the GPU" : "here", on_gpu ? ", --device cpu" : "");
}

/* The largest context whose cache on this device takes half of what is free there: the rest is for activations and for others. Of a split's card
 * the room for activations is known. */
static int32_t part_context(const struct session *s, const struct split_part *p, int32_t context, int32_t rows, int32_t seqs) {
    double share = s->options.memory_share > 0 ? s->options.memory_share : 1;
    uint64_t available = free_bytes(p->be->device), most = (uint64_t)((double)available * share / 2);
    if (p->is_card && available - most > s->placement.step) most = available - s->placement.step;
    int32_t low = 1, high = context / KV_BLOCK; /* in blocks; low is taken in any case */
    if (available == 0 || cache_bytes(p, context, rows, seqs) <= most) return context;
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if (cache_bytes(p, middle * KV_BLOCK, rows, seqs) <= most) low = middle;
        else high = middle - 1;
    }
    return low * KV_BLOCK < context ? low * KV_BLOCK : context;
}

int32_t preflight_context(const struct session *s, int32_t rows, int32_t seqs) {
    struct split_part parts[SIDES_MAX];
    int32_t context = spec_longest(&s->model.spec, s->options.context);
    for (int32_t i = 0, n = split_parts(s->backend, &s->model.spec.kv, parts); i < n; i++)
        context = part_context(s, &parts[i], context, rows, seqs);
    return context;
}

static int check_part(const struct session *s, const struct split_part *p, int32_t context, int32_t rows, int32_t seqs, struct err *err) {
    const struct kv_layout *l = &p->layout;
    uint64_t available = free_bytes(p->be->device), need = cache_bytes(p, context, rows, seqs);
    struct sb parts = {0};
    if (s->options.force || available == 0 || need <= available) return ERR_OK;
    for (int32_t i = 0; i < l->n_classes; i++) {
        sb_fmt(&parts, "%s%.1f GB ", i ? ", " : "", (double)class_bytes(p, i, context, rows, seqs) * GB);
        if (l->classes[i].window > 0) sb_fmt(&parts, "in windows of %d", l->classes[i].window);
        else sb_puts(&parts, "for the whole context");
    }
    if (l->n_states) sb_fmt(&parts, "%s%.1f GB of recurrent state", parts.n ? ", " : "", (double)kv_state_bytes(l) * seqs * GB);
    err_set(err, ERR_EMEMORY,
            "a context of %d for %d at once needs %.1f GB (%s) and %.1f GB are free %s; --ctx-size %d fits, --force tries", context, seqs,
            (double)need * GB, parts.p ? parts.p : "", (double)available * GB, p->be->device->is_gpu ? "on the GPU" : "here",
            preflight_context(s, rows, seqs));
    sb_free(&parts);
    return err->code;
}

int preflight_cache(const struct session *s, int32_t context, int32_t rows, int32_t seqs, struct err *err) {
    struct split_part parts[SIDES_MAX];
    for (int32_t i = 0, n = split_parts(s->backend, &s->model.spec.kv, parts); i < n; i++)
        TRY(check_part(s, &parts[i], context, rows, seqs, err));
    return ERR_OK;
}
