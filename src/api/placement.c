/* Planning: what each layer takes is counted, then as much as fits is the GPU's.
 *
 * (1) Experts go to the CPU first, those of the first layers before those of the last: a token reads few of them. When all of them are there and
 *     it does not fit yet, whole layers go, the first ones first.
 * (2) A context that was asked for is part of what must fit. Without one there is room for PLAN_TOKENS; what is left over later is the cache's, too.
 * (3) What does not fit is moved only where nobody said how much is to be moved; a number that was said is kept, or refused.
 * (4) Several GPUs have runs of layers, so many that all are filled alike. Where nobody named a GPU and one does not suffice, others are taken
 *     before the CPU is.
 */
#include "api/placement.h"

#include "api/session_internal.h"
#include "backend/plan.h"
#include "backend/split/tally.h"
#include "engine/kv_size.h"
#include "os/os.h"

#define GB 1e-9
#define EASY_BYTES (UINT64_C(2) << 30) /* of a card whose free memory is enough for a small model and everything else */
enum { PLAN_TOKENS = 4096, ROWS_LEAST = 256, SMALL_BYTES = 64 << 20, STEP_SHARE = 8, SHARES = 1 << 20 };

static uint64_t free_bytes(struct device *d) {
    uint64_t available = 0, total = 0;
    device_memory(d, &available, &total);
    return available;
}

/* What is known while a plan is made. */
struct planner {
    struct session *s;
    struct backend *counted; /* tally */
    const struct tally *tally;
    struct model model;   /* on the tally */
    struct backend *card; /* asked how it stores a cache */
    struct placement *out;
    uint64_t available[SIDES_MAX];
    uint64_t *layer_cache;             /* [n_layers] of a GPU */
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

/* What experts keep while they run: of each pair of a row and an expert its inner values, its result and where it is, and the rows once more. */
static uint64_t experts_bytes(const struct planner *p, int32_t rows) {
    const struct moe_spec *m = &p->model.spec.moe;
    uint64_t pairs = (uint64_t)rows * (uint64_t)m->route.k, hidden = (uint64_t)p->model.spec.hidden;
    if (!m->n_experts) return 0;
    return (pairs * ((uint64_t)m->inner + hidden + 3) + (uint64_t)rows * hidden) * sizeof(float);
}

/* Beside the values: products of dequantised rows, choosing, tables. */
static uint64_t step_bytes(const struct planner *p, int32_t rows) {
    uint64_t logits = (uint64_t)p->seqs * (uint64_t)p->model.spec.vocab * sizeof(float);
    return values_bytes(p, rows) + experts_bytes(p, rows) + 2 * logits + 3 * (uint64_t)SMALL_BYTES;
}

static int32_t layers_between(const struct kv_class *k, int32_t first, int32_t end) {
    int32_t n_layers = 0;
    for (int32_t i = 0; i < k->n_layers; i++) n_layers += k->layers[i] >= first && k->layers[i] < end;
    return n_layers;
}

/* The cache of layers [first, end) on a GPU, which may borrow those before n_host. */
static uint64_t cache_bytes(const struct planner *p, int32_t first, int32_t end, int32_t n_host) {
    const struct kv_layout *l = &p->model.spec.kv;
    uint64_t bytes = 0;
    for (int32_t i = 0; i < l->n_classes; i++) {
        struct kv_class k = l->classes[i];
        int64_t span = (int64_t)k.window + p->out->rows + 2 * KV_BLOCK, tokens = p->tokens;
        if (k.window > 0 && span * p->seqs < tokens) tokens = span * p->seqs;
        k.n_layers = layers_between(&l->classes[i], first, end);
        k.n_borrowed = layers_between(&l->classes[i], 0, n_host);
        bytes += kv_position_bytes(p->card, &k) * (uint64_t)(tokens + KV_BLOCK * (p->seqs + 1));
    }
    for (int32_t i = 0; i < l->n_states; i++)
        if (l->states[i].layer >= first && l->states[i].layer < end)
            bytes += (uint64_t)l->states[i].elements * sizeof(float) * (uint64_t)(3 * p->seqs);
    return bytes;
}

/* The exact kernels are the CPU's: nothing is borrowed for them. */
static int32_t borrow_rows(const struct session_options *o) {
    return o->precision == SESSION_EXACT || o->precision == SESSION_F32 ? 0 : o->stream_rows;
}

bool placement_has_host(const struct placement *p) {
    return p->plan.first_layers[SIDE_CARD] > 0 || p->plan.experts_from > 0;
}

/* What each side takes by the plan. */
static void count(const struct planner *p, struct placement *out) {
    const struct tally *t = p->tally;
    const struct split_plan *plan = &out->plan;
    bool has_host = placement_has_host(out);
    int32_t last = plan->n_cards, first = plan->first_layers[SIDE_CARD];
    out->is_split = has_host || last > 1;
    out->borrowed = has_host && plan->borrow_rows ? t->borrowed : 0;
    out->n_experts_moved = 0;
    for (int32_t side = 0; side <= last; side++) {
        out->weights[side] = side > SIDE_HOST || has_host ? t->all : 0;
        int32_t n_host = side == SIDE_CARD && plan->borrow_rows ? first : 0;
        out->cache[side] = side > SIDE_HOST ? cache_bytes(p, plan->first_layers[side], split_plan_end(plan, side), n_host) : 0;
    }
    out->weights[has_host ? SIDE_HOST : SIDE_CARD] += t->before;
    out->weights[last] += t->behind + t->ends;
    if (split_plan_side(plan, 0) != last) out->weights[split_plan_side(plan, 0)] += t->ends;
    for (int32_t i = 0; i < t->n_layers; i++) {
        int32_t side = split_plan_side(plan, i);
        out->weights[side] += t->layers[i];
        out->weights[i < plan->experts_from ? SIDE_HOST : side] += t->experts[i];
        out->n_experts_moved += i >= first && i < plan->experts_from && t->experts[i];
    }
    if (first < t->n_layers) return;
    for (int32_t side = SIDE_CARD; side <= last; side++) { /* the CPU has it alone */
        if (side == last) out->weights[SIDE_HOST] += t->behind;
        out->weights[side] = out->cache[side] = 0;
    }
    out->step = out->borrowed = 0;
}

/* ---- several GPUs ------------------------------------------------------------------------------------------------------ */

/* What a GPU takes whatever layers it has. */
static uint64_t fixed_bytes(const struct planner *p, int32_t side) {
    const struct tally *t = p->tally;
    const struct split_plan *plan = &p->out->plan;
    bool has_host = placement_has_host(p->out), has_first = side == SIDE_CARD && plan->first_layers[SIDE_CARD] == 0;
    uint64_t bytes = t->all + p->out->step + (has_host && plan->borrow_rows ? t->borrowed : 0);
    if (has_first) bytes += t->ends + (has_host ? 0 : t->before);
    return side == plan->n_cards ? bytes + t->behind + (has_first ? 0 : t->ends) : bytes;
}

static uint64_t room_on(const struct planner *p, int32_t side, int32_t share) {
    uint64_t fixed = fixed_bytes(p, side), room = p->available[side] > fixed ? p->available[side] - fixed : 0;
    return share < SHARES ? room / SHARES * (uint64_t)share : room;
}

/* GPU after GPU is filled up to this share, of SHARES, of the memory that it has for layers. Each gets a layer at least, where there are as many. False: it does not fit. */
static bool fill(struct planner *p, int32_t share) {
    struct split_plan *plan = &p->out->plan;
    int32_t side = SIDE_CARD, n = plan->n_layers, on_side = 0;
    uint64_t room = room_on(p, side, share);
    for (int32_t i = plan->first_layers[SIDE_CARD]; i < n; i++) {
        uint64_t need = p->tally->layers[i] + (i >= plan->experts_from ? p->tally->experts[i] : 0) + p->layer_cache[i];
        while (side < plan->n_cards && (need > room || (on_side > 0 && n - i <= plan->n_cards - side))) {
            plan->first_layers[++side] = i;
            room = room_on(p, side, share);
            on_side = 0;
        }
        if (need > room) return false;
        room -= need;
        on_side++;
    }
    while (side < plan->n_cards) plan->first_layers[++side] = n;
    return true;
}

/* Equal numbers of layers, whatever fits. */
static void divide_evenly(struct planner *p) {
    struct split_plan *plan = &p->out->plan;
    int32_t first = plan->first_layers[SIDE_CARD], n = plan->n_layers - first;
    for (int32_t i = 0; i < plan->n_cards; i++) plan->first_layers[SIDE_CARD + i] = first + n * i / plan->n_cards;
}

/* As evenly filled as can be: by the smallest share that suffices. */
static void spread(struct planner *p) {
    int32_t low = 1, high = SHARES;
    if (p->out->plan.n_cards == 1) return;
    if (!fill(p, high)) {
        divide_evenly(p);
        return;
    }
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (fill(p, middle)) high = middle;
        else low = middle + 1;
    }
    fill(p, high);
}

static bool fits(struct planner *p, int32_t first, int32_t experts_from) {
    struct placement *o = p->out;
    o->plan.n_layers = p->model.spec.n_layers;
    o->plan.first_layers[SIDE_CARD] = first;
    o->plan.experts_from = experts_from > first ? experts_from : first;
    o->plan.borrow_rows = borrow_rows(&p->s->options);
    spread(p);
    count(p, o);
    for (int32_t side = SIDE_CARD; side <= o->plan.n_cards; side++)
        if (p->available[side] && o->weights[side] + o->cache[side] + o->step + o->borrowed > p->available[side]) return false;
    return true;
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

/* The GPU that lacks the most. */
static int32_t fullest(const struct planner *p) {
    const struct placement *o = p->out;
    int32_t worst = SIDE_CARD;
    double most = 0;
    for (int32_t side = SIDE_CARD; side <= o->plan.n_cards; side++) {
        double share = (double)(o->weights[side] + o->cache[side]) / (double)(p->available[side] + 1);
        if (share > most) most = share, worst = side;
    }
    return worst;
}

static int refuse(const struct planner *p, int32_t experts, struct err *err) {
    const struct placement *o = p->out;
    int32_t side = fullest(p), n = split_plan_end(&o->plan, side) - o->plan.first_layers[side];
    bool has_moved = o->plan.experts_from > o->plan.first_layers[side], is_one = o->plan.n_cards == 1;
    struct sb text = {0};
    sb_fmt(&text, "%d of %d layers on %s%s need", n, o->plan.n_layers, is_one ? "the GPU" : o->names[side],
           has_moved ? ", some without their experts," : "");
    put_size(&text, o->weights[side]);
    sb_puts(&text, " for weights,");
    put_size(&text, o->cache[side]);
    sb_fmt(&text, " for a cache of %d tokens and", p->tokens);
    put_size(&text, o->step + o->borrowed);
    sb_puts(&text, " for a step, and");
    put_size(&text, p->available[side]);
    err_set(err, ERR_EMEMORY, "%s are free there; --gpu-layers %d fits, auto finds it; or take a smaller --ctx-size, or --device cpu",
            text.p, layers_that_fit(p, experts));
    sb_free(&text);
    return err->code;
}

/* Others beside the first, as the GPUs of the session are now. */
static void note_gpus(struct planner *p) {
    struct session *s = p->s;
    const struct gpus *g = &s->gpus;
    int32_t n = g->how == GPUS_LAYERS ? g->n : 1;
    p->out->plan.n_cards = n;
    for (int32_t i = 0; i < n; i++) {
        p->available[SIDE_CARD + i] = free_bytes(i ? g->p[i] : s->device);
        memcpy(p->out->names[SIDE_CARD + i], g->names[i], sizeof g->names[i]);
    }
}

/* Takes GPUs that nobody named until the model fits, or there are no more. */
static bool grow(struct planner *p, bool found) {
    struct session *s = p->s;
    while (!found && s->gpus.may_grow && !s->options.shared_device && s->options.n_ranks < 2 &&
           gpus_grow(&s->gpus, s->device, s->options.gpu_memory)) {
        note_gpus(p);
        p->out->has_grown = true;
        found = fits(p, 0, 0);
    }
    return found;
}

static bool is_asked_for(const struct session_options *o) {
    return o->gpu_layers.kind != SHARE_USUAL || o->cpu_experts.kind != SHARE_USUAL;
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
    if (!has_layers && !has_experts) found = grow(p, found);
    p->out->is_forced = !found && !has_layers && !has_experts;
    if (!found && o->force && !is_asked_for(o)) return ERR_OK; /* as it is */
    for (; !found && !fixes_experts && experts < p->experts_end; found = fits(p, first, experts)) experts++;
    for (; !found && !has_layers && first < n; found = fits(p, first, experts)) first++;
    return found || (o->force && has_layers) ? ERR_OK : refuse(p, experts, err);
}

static uint64_t gpus_bytes(const struct planner *p) {
    uint64_t bytes = 0;
    for (int32_t side = SIDE_CARD; side <= p->out->plan.n_cards; side++) bytes += p->available[side];
    return bytes;
}

static int check_host(const struct planner *p, struct err *err) {
    uint64_t need = p->out->weights[SIDE_HOST], there = p->available[SIDE_HOST];
    if (p->s->options.force || there == 0 || need <= there) return ERR_OK;
    return err_set(err, ERR_EMEMORY,
                   "%.1f GB of the weights do not fit the GPU's %.1f GB, and %.1f GB are free for the CPU; take a smaller or more "
                   "quantised model, or --force",
                   (double)need * GB, (double)gpus_bytes(p) * GB, (double)there * GB);
}

/* Steps have fewer rows where their values would take much of a small card. */
static void choose_rows(struct planner *p) {
    const struct session_options *o = &p->s->options;
    int32_t rows = o->n_rows > 0 ? o->n_rows : p->s->device->rows_default;
    p->out->step = step_bytes(p, rows);
    uint64_t least = p->available[SIDE_CARD];
    for (int32_t side = SIDE_CARD; side <= p->out->plan.n_cards; side++)
        if (p->available[side] < least) least = p->available[side];
    for (; o->n_rows <= 0 && rows > ROWS_LEAST && p->out->step > least / STEP_SHARE; p->out->step = step_bytes(p, rows)) rows /= 2;
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
    for (int32_t i = 0; i < t->n_layers; i++) p->layer_cache[i] = cache_bytes(p, i, i + 1, 0);
    TRY(choose(p, err));
    return check_host(p, err);
}

/* ---- whether there is anything to plan --------------------------------------------------------------------------------- */

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
    struct planner p = {.s = s, .out = &s->placement, .available = {[SIDE_CARD] = free_bytes(s->device)}};
    struct spec spec;
    struct os_memory host;
    s->placement = (struct placement){.weights = {[SIDE_CARD] = total}, .all = total, .plan.n_cards = 1};
    TRY(check_device(s, err));
    /* a quarter: codes of 2 bits take 4 in a GPU's tiles */
    bool is_easy =
        !counts && !is_asked_for(o) && o->context == 0 && total <= p.available[SIDE_CARD] / 4 && p.available[SIDE_CARD] > EASY_BYTES;
    bool is_for_one = is_easy || o->force || o->n_ranks > 1; /* ranks divide the model among themselves, not with the CPU */
    bool is_over_gpus = s->gpus.how == GPUS_LAYERS;
    if (!is_over_gpus && (!s->device->shares || p.available[SIDE_CARD] == 0 || (is_for_one && !is_asked_for(o)))) return ERR_OK;
    note_gpus(&p);
    os_memory(&host);
    p.available[SIDE_HOST] = host.available;
    int code = spec_resolve(&a, &s->config, &spec, err);
    if (!code && spec.is_encoder)
        code = is_asked_for(o) || is_over_gpus
                   ? err_set(err, ERR_EUNSUPPORTED, "--gpu-layers, --cpu-experts and layers on several GPUs are for models that generate")
                   : ERR_OK;
    else if (!code) {
        code = backend_open(s->device, &(struct backend_options){.precision = (enum precision)o->precision}, &p.card, err);
        if (!code) code = tally_open(spec.n_layers, p.card, &p.counted, err);
        if (!code) code = model_open(&a, p.counted, &s->config, store, NULL, &p.model, err);
        if (!code) {
            p.tally = tally_of(p.counted);
            p.layer_cache = arena_new(&a, uint64_t, spec.n_layers + 1);
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

/* "16 of 32 layers on cuda:0 (9.1 GB), 16 on cuda:1 (9.3 GB)" */
static void describe_gpus(const struct placement *p, struct sb *out) {
    for (int32_t side = SIDE_CARD; side <= p->plan.n_cards; side++) {
        int32_t n = split_plan_end(&p->plan, side) - p->plan.first_layers[side];
        if (side == SIDE_CARD) sb_fmt(out, "%d of %d layers on %s", n, p->plan.n_layers, p->names[side]);
        else sb_fmt(out, ", %d on %s", n, p->names[side]);
        put_in_brackets(out, p->weights[side]);
    }
}

void placement_describe(const struct placement *p, struct sb *out) {
    int32_t n = p->plan.n_layers, n_host = p->plan.first_layers[SIDE_CARD];
    bool is_over_gpus = p->plan.n_cards > 1 && n_host < n;
    if (is_over_gpus) describe_gpus(p, out);
    else {
        sb_fmt(out, "%d of %d layers on the GPU", n - n_host, n);
        put_in_brackets(out, p->weights[SIDE_CARD]);
    }
    if (n_host) sb_fmt(out, ", %d on the CPU", n_host);
    if (p->n_experts_moved) sb_fmt(out, ", the experts of %d%s on the CPU", p->n_experts_moved, n_host ? " others" : " layers");
    if (placement_has_host(p)) put_in_brackets(out, p->weights[SIDE_HOST]);
    if (p->is_forced) sb_fmt(out, ", since the GPU%s no room for more", p->plan.n_cards > 1 ? "s have" : " has");
    else if (p->has_grown) sb_puts(out, ", since one GPU has no room for it");
}
