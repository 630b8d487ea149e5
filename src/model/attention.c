/* The attention mixer: projections, optional norms of queries and keys, rope, the cache, the output projection. */
#include "base/fmath.h"
#include "base/half.h"
#include "model/families.h"
#include "model/mixer.h"

/* The last layers may read what the last of their kind before them wrote. */
static int resolve_lender(const struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = r->layers;
    int32_t n_shared, n = r->spec->n_layers;
    TRY(cfg_int(&r->cfg, "num_kv_shared_layers", 0, n, 0, &n_shared, err));
    if (n_shared == 0 || n_shared == n || layer < n - n_shared) return ERR_OK;
    for (int32_t i = n - n_shared - 1; i >= 0; i--)
        if (l[i].kind == l[layer].kind) {
            l[layer].kv = l[i].kv;
            l[layer].borrows_kv = true;
            return ERR_OK;
        }
    return err_set(err, ERR_EFORMAT, "%s: num_kv_shared_layers %d leaves layer %d without keys", r->cfg.file->name, n_shared, layer);
}

enum { BIAS_WIDTH = 2 }; /* widths are even */

/* Beyond keep_window_size positions the reference would leave some out. */
static int resolve_key_bias(struct resolver *r, int32_t layer, struct err *err) {
    int32_t most;
    r->layers[layer].attn.has_key_bias = r->family->attn.key_bias;
    if (!r->family->attn.key_bias) return ERR_OK;
    if (cfg_bool(&r->cfg, "is_moe", false))
        return err_set(err, ERR_EUNSUPPORTED, "%s: is_moe is set: experts of this kind, whose choice mixes tokens, are not supported",
                       r->cfg.file->name);
    TRY(cfg_int(&r->cfg, "keep_window_size", 1, INT32_MAX, INT32_MAX, &most, err));
    if (r->spec->context > most) r->spec->context = most;
    return ERR_OK;
}

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    TRY(resolve_attention(r, layer, err));
    TRY(resolve_key_bias(r, layer, err));
    struct layer_spec *l = &r->layers[layer];
    TRY(resolve_lender(r, layer, err));
    if (l->borrows_kv) return ERR_OK;
    const struct attn_spec *a = &l->attn;
    int32_t window = a->chunk ? a->chunk : a->window; /* a chunk never looks back farther than its length */
    if (r->spec->is_encoder) window = 0;
    int32_t k_width = a->k_width + (a->has_key_bias ? BIAS_WIDTH : 0);
    return resolve_kv(r, &(struct kv_class){.heads = a->kv_heads, .k_width = k_width, .v_width = a->v_width, .window = window}, &l->kv,
                      err);
}

/* A fused projection whose q, k and v do not lie in turn. */
static int bind_woven(struct loader *l, int32_t layer, struct err *err) {
    const struct attn_spec *a = &l->spec->layers[layer].attn;
    int64_t d = a->k_width, q = a->heads * d, k = a->kv_heads * d, all = q + 2 * k, run = q / a->kv_heads, block = q / 4;
    struct stack_part by_group[] = {{.role = ROLE_QKV, .as = ROLE_Q, .out = q, .run = run, .step = run + 2 * d, .of = all},
                                    {.role = ROLE_QKV, .as = ROLE_K, .out = k, .from = run, .run = d, .step = run + 2 * d, .of = all},
                                    {.role = ROLE_QKV, .as = ROLE_V, .out = k, .from = run + d, .run = d, .step = run + 2 * d, .of = all}};
    struct stack_part by_four[] = {
        {.role = ROLE_QKV, .as = ROLE_Q, .out = q, .run = block, .step = 3 * block, .of = all},
        {.role = ROLE_QKV, .as = ROLE_K, .out = q, .from = 2 * block, .run = block, .step = 3 * block, .of = all},
        {.role = ROLE_QKV, .as = ROLE_V, .out = q, .from = block, .run = block, .step = 3 * block, .of = all}};
    bool is_by_four = l->spec->family->attn.qkv == QKV_QVK_BY_FOUR;
    if (is_by_four && (a->heads % 4 || a->kv_heads != a->heads))
        return err_set(err, ERR_EFORMAT, "a fused projection in four blocks needs heads by fours, not %d", a->heads);
    return loader_stack(l, ROLE_QKV, is_by_four ? by_four : by_group, 3, layer, l->spec->hidden, err);
}

/* Of several ranks, each norms all keys together, and takes its own then. */
static bool norms_all_keys(const struct attn_spec *a) {
    return a->qk_norm == QK_FULL;
}

/* Rows of q, k and v (and of the gate behind q) in the checkpoint's projections, whichever way they are stored. */
static int bind_projections(struct loader *l, int32_t layer, struct err *err) {
    const struct attn_spec *a = &l->spec->layers[layer].attn;
    const struct attn_row *row = &l->spec->family->attn;
    int64_t hidden = (int64_t)l->spec->hidden * l->spec->attn_inputs, d = a->k_width, q = a->heads * d, k = a->kv_heads * d,
            v = (int64_t)a->kv_heads * a->v_width, all = q + k + v;
    bool norms = norms_all_keys(a);
    if (l->spec->layers[layer].borrows_kv) {
        loader_ignore(l, (enum role[]){ROLE_K, ROLE_V, ROLE_K_NORM}, 3, layer);
        return loader_matrix(l, ROLE_Q, layer, q, hidden, err);
    }
    if (a->v_is_k)
        return loader_stack(l, ROLE_QKV, (struct stack_part[]){{.role = ROLE_Q, .out = q}, {.role = ROLE_K, .out = k, .is_whole = norms}},
                            2, layer, hidden, err);
    if (row->gate == ATTN_GATE_OWN || row->gate == ATTN_GATE_HEAD)
        return loader_stack(
            l, ROLE_QKV,
            (struct stack_part[]){{.role = ROLE_Q, .out = q},
                                  {.role = ROLE_K, .out = k, .is_whole = norms},
                                  {.role = ROLE_V, .out = v},
                                  {.role = ROLE_ATTN_GATE, .out = row->gate == ATTN_GATE_HEAD ? a->heads : (int64_t)a->heads * a->v_width}},
            4, layer, hidden, err);
    if (row->gate)
        return loader_stack(
            l, ROLE_QKV,
            (struct stack_part[]){{.role = ROLE_Q, .out = q, .run = d, .step = 2 * d, .of = 2 * q},
                                  {.role = ROLE_K, .out = k, .is_whole = norms},
                                  {.role = ROLE_V, .out = v},
                                  {.role = ROLE_Q, .as = ROLE_ATTN_GATE, .out = q, .from = d, .run = d, .step = 2 * d, .of = 2 * q}},
            4, layer, hidden, err);
    if (row->qkv != QKV_IN_TURN && loader_has(l, ROLE_QKV, layer)) return bind_woven(l, layer, err);
    struct stack_part fused[] = {{.role = ROLE_QKV, .as = ROLE_Q, .out = q, .of = all},
                                 {.role = ROLE_QKV, .as = ROLE_K, .out = k, .from = q, .of = all, .is_whole = norms},
                                 {.role = ROLE_QKV, .as = ROLE_V, .out = v, .from = q + k, .of = all}};
    struct stack_part apart[] = {{.role = ROLE_Q, .out = q}, {.role = ROLE_K, .out = k, .is_whole = norms}, {.role = ROLE_V, .out = v}};
    return loader_stack(l, ROLE_QKV, loader_has(l, ROLE_QKV, layer) ? fused : apart, 3, layer, hidden, err);
}

static int bind_norms(struct loader *l, int32_t layer, struct err *err) {
    const struct attn_spec *a = &l->spec->layers[layer].attn;
    if (a->qk_norm == QK_NONE || l->spec->family->attn.qk_norm_bare) return ERR_OK;
    bool full = a->qk_norm != QK_HEAD;
    l->keeps_whole = a->qk_norm != QK_PER_HEAD;
    int code = loader_vector(l, ROLE_Q_NORM, layer, (int64_t)a->k_width * (full ? a->heads : 1), true, err);
    if (!code && !l->spec->layers[layer].borrows_kv)
        code = loader_vector(l, ROLE_K_NORM, layer, (int64_t)a->k_width * (full ? a->kv_heads : 1), true, err);
    l->keeps_whole = false;
    return code;
}

static int mean_square(struct loader *l, enum role role, int32_t layer, int64_t n, double *out, struct err *err) {
    float *w = arena_new(&l->scratch, float, n);
    TRY(loader_values(l, role, layer, ".weight", n, w, err));
    *out = 0;
    for (int64_t i = 0; i < n; i++)
        *out += ((double)w[i] + l->spec->norm.weight_offset) * ((double)w[i] + l->spec->norm.weight_offset) / (double)n;
    return ERR_OK;
}

/* Scores that are not divided by the root of the head's width get as large as the norms' weights let them: queries and keys have the length
 * of their weights. From some size on the softmax magnifies every rounding before it: the model is wide. */
static int settle(struct loader *l, struct spec *spec, int32_t layer, struct err *err) {
    enum { LARGE = 32 }; /* a divided score of unit weights reaches 8 to 16 */
    const struct attn_spec *a = &l->spec->layers[layer].attn;
    double q, k, d = a->k_width;
    if (a->scale * sqrt(d) < 2 || a->qk_norm != QK_HEAD) return ERR_OK;
    if (!loader_has(l, ROLE_Q_NORM, layer) || !loader_has(l, ROLE_K_NORM, layer)) return ERR_OK;
    TRY(mean_square(l, ROLE_Q_NORM, layer, a->k_width, &q, err));
    TRY(mean_square(l, ROLE_K_NORM, layer, a->k_width, &k, err));
    if (a->scale * d * sqrt(q * k) <= LARGE) return ERR_OK;
    spec->wide = true;
    spec->kv.classes[spec->layers[layer].kv.kv_class].wide = 1;
    return ERR_OK;
}

/* Powers of one number for the largest power of two of heads; what is left has those between the first of them. */
static int bind_slopes(struct loader *l, int32_t layer, struct err *err) {
    int32_t heads = l->spec->layers[layer].attn.heads, n = 1;
    float *slopes = arena_new(&l->scratch, float, heads);
    bool rounded = l->spec->layers[layer].attn.slopes_in_bf16;
    while (2 * n <= heads) n *= 2;
    for (int32_t i = 0; i < heads; i++) {
        double power = i < n ? (i + 1) * 8.0 / n : (2 * (i - n) + 1) * 4.0 / n;
        float slope = (float)m_pow(2.0, -power);
        slopes[i] = rounded ? bf16_to_f32(bf16_from_f32(slope)) : slope;
    }
    const float *own = slopes;
    int64_t n_own = loader_own(l, ROLE_SLOPES, layer, &own, heads);
    return loader_constant(l, "slopes", own, n_own, &loader_slot(l, ROLE_SLOPES, layer)->w, err);
}

static int bind_key_bias(struct loader *l, int32_t layer, struct err *err) {
    static const float zeros[BIAS_WIDTH] = {0}, first[BIAS_WIDTH] = {1};
    const struct attn_spec *a = &l->spec->layers[layer].attn;
    struct bound *ones = loader_slot(l, ROLE_KEY_ONES, layer);
    TRY(loader_matrix(l, ROLE_KEY_DT, layer, a->kv_heads, (int64_t)a->kv_heads * a->v_width, err));
    TRY(loader_vector(l, ROLE_KEY_RATE, layer, a->kv_heads, true, err));
    TRY(loader_constant(l, "zeros", zeros, BIAS_WIDTH, &ones->w, err));
    return loader_constant(l, "first", first, BIAS_WIDTH, &ones->bias, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct attn_spec *a = &l->spec->layers[layer].attn;
    int64_t mixed = (int64_t)a->heads * a->v_width;
    TRY(bind_projections(l, layer, err));
    TRY(bind_norms(l, layer, err));
    TRY(loader_vector(l, ROLE_SINKS, layer, a->heads, false, err));
    if (a->has_slopes) TRY(bind_slopes(l, layer, err));
    if (a->has_key_bias) TRY(bind_key_bias(l, layer, err));
    TRY(relative_bind(l, layer, err));
    bool is_absent = l->is_absent;
    l->is_absent = false; /* a rank without heads must know of this norm: it takes part where the others gather */
    int code = loader_vector(l, ROLE_ATTN_SUB_NORM, layer, mixed, false, err);
    l->is_absent = is_absent;
    return code ? code : loader_matrix(l, ROLE_O, layer, l->spec->hidden, mixed, err);
}

struct qkv {
    struct tensor q, k, v, gate;
};

/* q, k and v as [rows, heads, width] views, from one stacked weight or from several. */
static struct qkv project(const struct pass *p, struct tensor x) {
    const struct attn_spec *a = &p->layer->attn;
    bool gate = a->gate != ATTN_GATE_NONE, borrows = p->layer->borrows_kv;
    int32_t k_heads = norms_all_keys(a) && p->layer->kv_part.of ? (int32_t)p->layer->kv_part.of : a->kv_heads;
    int32_t q = a->heads * a->k_width, k = k_heads * a->k_width, v = a->kv_heads * a->v_width;
    int32_t v_at = a->v_is_k ? q : q + k;
    struct qkv t = {0};
    if (p->w[ROLE_QKV].w) {
        struct tensor all = pass_linear(p, x, ROLE_QKV);
        t = (struct qkv){tensor_slice(all, 0, q), tensor_slice(all, q, k), tensor_slice(all, v_at, v), {0}};
        if (gate) t.gate = tensor_slice(all, q + k + v, all.width - q - k - v);
    } else {
        t.q = pass_linear(p, x, ROLE_Q);
        if (gate) t.gate = pass_linear(p, x, ROLE_ATTN_GATE);
        if (!borrows) t.k = pass_linear(p, x, ROLE_K), t.v = a->v_is_k ? t.k : pass_linear(p, x, ROLE_V);
    }
    t.q = pass_low_rank(p, t.q, x, ROLE_LOW_Q_DOWN, ROLE_LOW_Q_UP);
    t.k = pass_low_rank(p, t.k, x, ROLE_LOW_K_DOWN, ROLE_LOW_K_UP);
    t.v = pass_low_rank(p, t.v, x, ROLE_LOW_V_DOWN, ROLE_LOW_V_UP);
    t.q = tensor_split_heads(t.q, a->heads);
    if (!borrows) t.k = tensor_split_heads(t.k, k_heads), t.v = tensor_split_heads(t.v, a->kv_heads);
    return t;
}

static struct tensor qk_norm(const struct pass *p, struct tensor x, const struct bound *w) {
    const struct norm_spec *n = &p->m->spec.norm;
    struct norm_args args = {.weight = w->w, .bias = w->bias, .kind = n->kind, .eps = n->eps, .weight_offset = n->weight_offset};
    if (p->layer->attn.qk_norm == QK_NONE) return x;
    if (p->layer->attn.qk_norm == QK_FULL) {
        bool is_q = w == &p->w[ROLE_Q_NORM];
        struct cut_range part = is_q ? p->layer->heads_part : p->layer->kv_part;
        struct tensor all = is_q ? pass_gather(p, tensor_join_heads(x), part) : tensor_join_heads(x);
        return tensor_split_heads(pass_own(op_norm(p->l, all, &args), part), part.of ? (int32_t)part.n : x.heads);
    }
    args.per_head = p->layer->attn.qk_norm == QK_PER_HEAD;
    return op_norm(p->l, x, &args);
}

static struct tensor clip(const struct pass *p, struct tensor x) {
    float limit = p->layer->attn.clip;
    return limit > 0 ? op_act(p->l, x, &(struct act_args){.kind = ACT_CLAMP, .scale = 1.0f, .p = {limit}}) : x;
}

/* What attention returned, times the sigmoid of its gate: joined heads, or head by head. */
static struct tensor gated(const struct pass *p, struct tensor mixed, struct tensor gate) {
    static const struct act_args plain = {.kind = ACT_NONE, .scale = 1.0f};
    if (!tensor_is(gate)) return tensor_join_heads(mixed);
    gate = op_act(p->l, gate, &(struct act_args){.kind = ACT_SIGMOID, .scale = 1.0f});
    if (p->layer->attn.gate != ATTN_GATE_HEAD) return op_glu(p->l, tensor_join_heads(mixed), gate, &plain);
    return tensor_join_heads(op_glu(p->l, mixed, tensor_split_heads(gate, mixed.heads), &plain));
}

static struct tensor v_scaled(const struct pass *p, struct tensor v) {
    float scale = p->layer->attn.v_scale;
    return scale == 1.0f ? v : op_act(p->l, v, &(struct act_args){.kind = ACT_NONE, .scale = scale});
}

static struct tensor v_norm(const struct pass *p, struct tensor v) {
    return p->layer->attn.v_norm ? op_norm(p->l, v, &(struct norm_args){.kind = NORM_RMS, .eps = p->m->spec.norm.eps}) : v;
}

/* Norm and rope of queries or keys, in the family's order. */
static struct tensor place(const struct pass *p, struct tensor x, enum role norm) {
    bool last = p->layer->attn.qk_norm_last;
    if (!last) x = qk_norm(p, x, &p->w[norm]);
    x = pass_rope(p, clip(p, x));
    return last ? qk_norm(p, x, &p->w[norm]) : x;
}

/* A key's number as elements of the key: exp(rate * softplus(dt(v))), over the scale that scores have. Queries have 1 and 0 there. */
static struct tensor with_key_bias(const struct pass *p, struct tensor k, struct tensor v) {
    const struct attn_spec *a = &p->layer->attn;
    struct tensor b =
        op_act(p->l, pass_linear_wide(p, tensor_join_heads(v), ROLE_KEY_DT), &(struct act_args){.kind = ACT_SOFTPLUS, .scale = 1.0f});
    b = op_mulvec(p->l, b, &(struct vec_args){.mul = p->w[ROLE_KEY_RATE].w});
    b = tensor_split_heads(op_act(p->l, b, &(struct act_args){.kind = ACT_EXP, .scale = 1.0f / a->scale}), a->kv_heads);
    return op_concat(p->l, k, op_concat(p->l, b, b));
}

static struct tensor with_ones(const struct pass *p, struct tensor q) {
    const struct bound *w = &p->w[ROLE_KEY_ONES];
    return op_concat(p->l, q, op_mulvec(p->l, tensor_slice(q, 0, BIAS_WIDTH), &(struct vec_args){.mul = w->w, .add = w->bias}));
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct attn_spec *a = &p->layer->attn;
    struct attn_args attn = {.kv = p->layer->kv,
                             .sinks = p->w[ROLE_SINKS].w,
                             .slopes = p->w[ROLE_SLOPES].w,
                             .slopes_in_bf16 = a->slopes_in_bf16,
                             .scale = a->scale,
                             .softcap = a->softcap,
                             .window = a->window,
                             .chunk = a->chunk,
                             .v_width = a->v_width,
                             .pos_scale_beta = a->pos_scale_beta,
                             .pos_scale_len = a->pos_scale_len,
                             .pos_scale_first = a->pos_scale_first,
                             .distances = p->m->weights.global[ROLE_DISTANCES].w,
                             .farthest = DISTANCE_MAX,
                             .both_ways = p->m->spec.is_encoder,
                             .is_strict = p->m->sees_in_windows && a->window == 0};
    struct qkv t = project(p, x);
    t.q = place(p, t.q, ROLE_Q_NORM);
    if (!p->layer->borrows_kv) {
        struct tensor v = v_scaled(p, clip(p, v_norm(p, t.v))); /* not among the arguments: every compiler lists ops in one order */
        t.k = place(p, t.k, ROLE_K_NORM);
        op_kv_write(p->l, a->has_key_bias ? with_key_bias(p, t.k, t.v) : t.k, v, p->layer->kv);
    }
    if (a->has_key_bias) t.q = with_ones(p, t.q);
    bool is_relative = p->m->spec.relative.span > 0;
    struct tensor seen = is_relative ? relative_attend(p, t.q, t.k, &attn) : op_attn(p->l, t.q, &attn), mixed = gated(p, seen, t.gate);
    if (p->w[ROLE_ATTN_SUB_NORM].w) {
        struct tensor all = pass_gather(p, mixed, p->layer->heads_part);
        mixed = pass_own(pass_norm(p, all, &p->w[ROLE_ATTN_SUB_NORM]), p->layer->heads_part);
    }
    return pass_linear(p, mixed, ROLE_O);
}

/* In the order of mix. */
static void join(const struct pass *p) {
    const struct attn_spec *a = &p->layer->attn;
    int32_t heads = (int32_t)p->layer->heads_part.of;
    if (heads && a->qk_norm == QK_FULL) op_gather(p->l, (struct tensor){0}, heads * a->k_width);
    if (heads && p->w[ROLE_ATTN_SUB_NORM].w) op_gather(p->l, (struct tensor){0}, heads * a->v_width);
}

const struct mixer attention_mixer = {.name = "attention", .resolve = resolve, .settle = settle, .bind = bind, .mix = mix, .join = join};
