/* Planning: what each layer takes is counted, then as much as fits is the GPU's.
 *
 * (1) Experts go to the CPU first, those of the first layers before those of the last: a token reads few of them. When all of them are there and
 *     it does not fit yet, whole layers go, the first ones first.
 * (2) A context that was asked for is part of what must fit. Without one there is room for PLAN_TOKENS; what is left over later is the cache's, too.
 * (3) What does not fit is moved only where nobody said how much is to be moved; a number that was said is kept, or refused.
 */
#include "api/placement.h"

#include "api/session_internal.h"
#include "backend/plan.h"
#include "backend/split/tally.h"
#include "engine/kv_size.h"
#include "os/os.h"

#define GB 1e-9
#define EASY_BYTES (UINT64_C(2) << 30) /* of a card whose free memory is enough for a small model and everything else */
enum { PLAN_TOKENS = 4096, ROWS_LEAST = 256, SMALL_BYTES = 64 << 20, STEP_SHARE = 8 };

/* What is known while a plan is made. */
struct planner {
    struct session *s;
    struct backend *counted; /* tally */
    const struct tally *tally;
    struct model model;   /* on the tally */
    struct backend *card; /* asked how it stores a cache */
    struct placement *out;
    uint64_t available[N_SIDES];
    int32_t tokens, seqs, experts_end; /* behind the last layer with experts */
};

static void put_size(struct sb *out, uint64_t bytes) {
    if (bytes < 100000000) sb_fmt(out, " %.1f MB", (double)bytes * 1e-6);
    else sb_fmt(out, " %.1f GB", (double)bytes * GB);
}

/* ---- counting --------------------------------------------------------------------------------------------------------- */

/* The values of a step with so many rows, unfused and in f32: more than they will take. */
static uint64_t values_bytes(const struct planner *p, int32_t rows) {
    struct oplist *l = &p->counted->list;
    int32_t n_logits = p->s->options.n_logits < 0 ? rows : p->seqs;
    struct plan plan = {0};
    oplist_begin(l, rows, n_logits);
    struct tensor hidden = forward_hidden(&p->model, l, NULL);
    if (!p->model.spec.is_encoder) op_argmax(l, forward_head(&p->model, l, hidden));
    plan_make(&plan, l);
    uint64_t bytes = l->err.code ? 0 : (uint64_t)plan.bytes;
    plan_free(&plan);
    return bytes;
}

/* What experts keep of each row while they run. */
static uint64_t experts_bytes(const struct planner *p, int32_t rows) {
    const struct moe_spec *m = &p->model.spec.moe;
    if (!m->n_experts) return 0;
    return (uint64_t)rows * (uint64_t)m->route.k * (uint64_t)(3 * m->inner + 2 * p->model.spec.hidden) * sizeof(float);
}

/* Beside the values: products of dequantised rows, choosing, tables. */
static uint64_t step_bytes(const struct planner *p, int32_t rows) {
    uint64_t logits = (uint64_t)p->seqs * (uint64_t)p->model.spec.vocab * sizeof(float);
    return values_bytes(p, rows) + experts_bytes(p, rows) + 2 * logits + 3 * (uint64_t)SMALL_BYTES;
}

/* The GPU's part of the cache. */
static uint64_t cache_bytes(const struct planner *p, int32_t first) {
    const struct kv_layout *l = &p->model.spec.kv;
    uint64_t bytes = 0;
    for (int32_t i = 0; i < l->n_classes; i++) {
        struct kv_class k = l->classes[i];
        int64_t span = (int64_t)k.window + p->out->rows + 2 * KV_BLOCK, tokens = p->tokens;
        if (k.window > 0 && span * p->seqs < tokens) tokens = span * p->seqs;
        k.n_layers = 0;
        for (int32_t n = 0; n < l->classes[i].n_layers; n++) k.n_layers += l->classes[i].layers[n] >= first;
        bytes += kv_position_bytes(p->card, &k) * (uint64_t)(tokens + KV_BLOCK * (p->seqs + 1));
    }
    for (int32_t i = 0; i < l->n_states; i++)
        if (l->states[i].layer >= first) bytes += (uint64_t)l->states[i].elements * sizeof(float) * (uint64_t)(3 * p->seqs);
    return bytes;
}

/* The exact kernels are the CPU's: nothing is borrowed for them. */
static int32_t borrow_rows(const struct session_options *o) {
    return o->precision == SESSION_EXACT || o->precision == SESSION_F32 ? 0 : o->stream_rows;
}

static void count(const struct planner *p, int32_t first, int32_t experts_from, struct placement *out) {
    const struct tally *t = p->tally;
    out->plan =
        (struct split_plan){p->model.spec.n_layers, first, experts_from > first ? experts_from : first, borrow_rows(&p->s->options)};
    out->is_split = first > 0 || out->plan.experts_from > first;
    out->borrowed = out->is_split && out->plan.borrow_rows ? t->borrowed : 0;
    out->n_experts_moved = 0;
    out->weights[SIDE_CARD] = t->behind + t->ends + t->all + (out->is_split ? 0 : t->before);
    out->weights[SIDE_HOST] = out->is_split ? t->before + t->all + (first > 0 ? t->ends : 0) : 0;
    for (int32_t i = 0; i < t->n_layers; i++) {
        out->weights[i < first ? SIDE_HOST : SIDE_CARD] += t->layers[i];
        out->weights[i < out->plan.experts_from ? SIDE_HOST : SIDE_CARD] += t->experts[i];
        out->n_experts_moved += i >= first && i < out->plan.experts_from && t->experts[i];
    }
    out->cache = cache_bytes(p, first);
    if (first < t->n_layers) return;
    out->weights[SIDE_HOST] += out->weights[SIDE_CARD]; /* the CPU has it alone */
    out->weights[SIDE_CARD] = out->cache = out->step = out->borrowed = 0;
}

static bool fits(const struct planner *p, int32_t first, int32_t experts_from) {
    count(p, first, experts_from, p->out);
    return p->out->weights[SIDE_CARD] + p->out->cache + p->out->step + p->out->borrowed <= p->available[SIDE_CARD];
}

/* ---- choosing --------------------------------------------------------------------------------------------------------- */

/* The layer behind the n-th that has experts. */
static int32_t behind_experts(const struct tally *t, int32_t n) {
    int32_t layer = 0;
    for (; layer < t->n_layers && n > 0; layer++) n -= t->experts[layer] > 0;
    return layer;
}

/* Layers that would fit with these experts on the CPU. */
static int32_t layers_that_fit(const struct planner *p, int32_t experts) {
    struct placement tried = *p->out;
    struct planner q = *p;
    int32_t n = p->model.spec.n_layers, first = 0;
    q.out = &tried;
    while (first < n && !fits(&q, first, experts)) first++;
    return n - first;
}

static int refuse(const struct planner *p, int32_t experts, struct err *err) {
    const struct placement *o = p->out;
    bool has_moved = o->plan.experts_from > o->plan.first_layer;
    struct sb text = {0};
    sb_fmt(&text, "%d of %d layers on the GPU%s need", o->plan.n_layers - o->plan.first_layer, o->plan.n_layers,
           has_moved ? ", some without their experts," : "");
    put_size(&text, o->weights[SIDE_CARD]);
    sb_puts(&text, " for weights,");
    put_size(&text, o->cache);
    sb_fmt(&text, " for a cache of %d tokens and", p->tokens);
    put_size(&text, o->step + o->borrowed);
    sb_puts(&text, " for a step, and");
    put_size(&text, p->available[SIDE_CARD]);
    err_set(err, ERR_EMEMORY, "%s are free there; --gpu-layers %d fits, auto finds it; or take a smaller --ctx-size, or --device cpu",
            text.p, layers_that_fit(p, experts));
    sb_free(&text);
    return err->code;
}

/* Numbers are kept; what is automatic moves to the CPU until the rest fits. */
static int choose(struct planner *p, struct err *err) {
    const struct session_options *o = &p->s->options;
    int32_t n = p->model.spec.n_layers;
    bool has_layers = o->gpu_layers.kind == SHARE_NUMBER, has_experts = o->cpu_experts.kind == SHARE_NUMBER;
    bool fixes_experts = has_experts || (has_layers && o->cpu_experts.kind == SHARE_USUAL) || p->experts_end == 0;
    int32_t first = has_layers && o->gpu_layers.n < n ? n - o->gpu_layers.n : 0;
    if (has_experts && o->cpu_experts.n > 0 && p->experts_end == 0)
        return err_set(err, ERR_EARG, "--cpu-experts %d: this model has no experts; leave it out", o->cpu_experts.n);
    int32_t experts = has_experts ? behind_experts(p->tally, o->cpu_experts.n) : 0;
    bool found = fits(p, first, experts);
    p->out->is_forced = !found && !has_layers && !has_experts;
    for (; !found && !fixes_experts && experts < p->experts_end; found = fits(p, first, experts)) experts++;
    for (; !found && !has_layers && first < n; found = fits(p, first, experts)) first++;
    return found || (o->force && has_layers) ? ERR_OK : refuse(p, experts, err);
}

static int check_host(const struct planner *p, struct err *err) {
    uint64_t need = p->out->weights[SIDE_HOST], there = p->available[SIDE_HOST];
    if (p->s->options.force || there == 0 || need <= there) return ERR_OK;
    return err_set(err, ERR_EMEMORY,
                   "%.1f GB of the weights do not fit the GPU's %.1f GB, and %.1f GB are free for the CPU; take a smaller or more "
                   "quantised model, or --force",
                   (double)need * GB, (double)p->available[SIDE_CARD] * GB, (double)there * GB);
}

/* Steps have fewer rows where their values would take much of a small card. */
static void choose_rows(struct planner *p) {
    const struct session_options *o = &p->s->options;
    int32_t rows = o->n_rows > 0 ? o->n_rows : p->s->device->rows_default;
    p->out->step = step_bytes(p, rows);
    for (; o->n_rows <= 0 && rows > ROWS_LEAST && p->out->step > p->available[SIDE_CARD] / STEP_SHARE; p->out->step = step_bytes(p, rows))
        rows /= 2;
    p->out->rows = rows;
}

static void choose_tokens(struct planner *p) {
    const struct session_options *o = &p->s->options;
    int32_t context = spec_longest(&p->model.spec, o->context), wanted = o->context > 0 ? o->context : PLAN_TOKENS;
    p->seqs = o->n_seqs > 0 ? o->n_seqs : 1;
    p->tokens = (wanted < context ? wanted : context) * p->seqs;
    if (o->kv_tokens > 0) p->tokens = (int32_t)o->kv_tokens;
    p->out->cached = p->tokens;
}

static uint64_t free_bytes(struct device *d) {
    uint64_t available = 0, total = 0;
    device_memory(d, &available, &total);
    return available;
}

static int plan_with(struct planner *p, struct err *err) {
    const struct tally *t = p->tally;
    for (int32_t i = 0; i < t->n_layers; i++) {
        p->out->all += t->layers[i] + t->experts[i];
        p->out->n_expert_layers += t->experts[i] > 0;
        if (t->experts[i]) p->experts_end = i + 1;
    }
    p->out->all += t->before + t->behind + t->ends + t->all;
    choose_tokens(p);
    choose_rows(p);
    TRY(choose(p, err));
    return check_host(p, err);
}

/* ---- whether there is anything to plan --------------------------------------------------------------------------------- */

static bool is_asked_for(const struct session_options *o) {
    return o->gpu_layers.kind != SHARE_USUAL || o->cpu_experts.kind != SHARE_USUAL;
}

/* What would be ignored is refused. */
static int check_device(const struct session *s, struct err *err) {
    const struct session_options *o = &s->options;
    bool asks_nothing = o->gpu_layers.kind != SHARE_NUMBER || o->gpu_layers.n == 0;
    if (!is_asked_for(o) || s->device->shares || (asks_nothing && o->cpu_experts.kind != SHARE_NUMBER)) return ERR_OK;
    return err_set(err, ERR_EARG, "--%s is for a GPU, and this runs on %s%s%s", asks_nothing ? "cpu-experts" : "gpu-layers",
                   s->device->type->name, s->no_gpu.code ? ": " : "; leave it out", s->no_gpu.code ? s->no_gpu.msg : "");
}

int placement_choose(struct session *s, const struct tensor_store *store, uint64_t total, bool counts, struct err *err) {
    const struct session_options *o = &s->options;
    struct arena a = {0};
    struct planner p = {.s = s, .out = &s->placement, .available = {0, free_bytes(s->device)}};
    struct spec spec;
    struct os_memory host;
    s->placement = (struct placement){.weights = {0, total}, .all = total};
    TRY(check_device(s, err));
    /* a quarter: codes of 2 bits take 4 in a GPU's tiles */
    bool is_easy =
        !counts && !is_asked_for(o) && o->context == 0 && total <= p.available[SIDE_CARD] / 4 && p.available[SIDE_CARD] > EASY_BYTES;
    bool is_for_one = is_easy || o->force || o->n_ranks > 1; /* ranks divide the model among themselves, not with the CPU */
    if (!s->device->shares || p.available[SIDE_CARD] == 0 || (is_for_one && !is_asked_for(o))) return ERR_OK;
    os_memory(&host);
    p.available[SIDE_HOST] = host.available;
    int code = spec_resolve(&a, &s->config, &spec, err);
    if (!code && spec.is_encoder)
        code = is_asked_for(o) ? err_set(err, ERR_EUNSUPPORTED, "--gpu-layers and --cpu-experts are for models that generate") : ERR_OK;
    else if (!code) {
        code = backend_open(s->device, &(struct backend_options){.precision = (enum precision)o->precision}, &p.card, err);
        if (!code) code = tally_open(spec.n_layers, p.card, &p.counted, err);
        if (!code) code = model_open(&a, p.counted, &s->config, store, NULL, &p.model, err);
        if (!code) {
            p.tally = tally_of(p.counted);
            code = plan_with(&p, err);
            model_close(p.counted, &p.model);
        }
    }
    backend_close(p.card);
    backend_close(p.counted);
    arena_free(&a);
    return code;
}

static void put_in_brackets(struct sb *out, uint64_t bytes) {
    struct sb size = {0};
    put_size(&size, bytes);
    sb_fmt(out, " (%s)", size.p + 1);
    sb_free(&size);
}

void placement_describe(const struct placement *p, struct sb *out) {
    int32_t n = p->plan.n_layers, n_host = p->plan.first_layer;
    sb_fmt(out, "%d of %d layers on the GPU", n - n_host, n);
    put_in_brackets(out, p->weights[SIDE_CARD]);
    if (n_host) sb_fmt(out, ", %d on the CPU", n_host);
    if (p->n_experts_moved) sb_fmt(out, ", the experts of %d%s on the CPU", p->n_experts_moved, n_host ? " others" : " layers");
    if (p->is_split) put_in_brackets(out, p->weights[SIDE_HOST]);
}
