/* The gated delta rule as a mixer: projections to queries, keys, values, gates, decays and rates, a convolution over the first three, the rule
 * itself, and a norm gated by the fourth. Decays are by head, or by channel of the keys. */
#include "base/fmath.h"
#include "model/families.h"
#include "model/recur.h"

static int resolve_widths(struct resolver *r, int32_t layer, struct recur_spec *s, struct err *err) {
    static const char *const k_heads[] = {"linear_num_key_heads", "linear_attn_config.num_heads"},
                             *const v_heads[] = {"linear_num_value_heads", "linear_attn_config.num_heads"},
                             *const k_widths[] = {"linear_key_head_dim", "linear_attn_config.head_dim"},
                             *const v_widths[] = {"linear_value_head_dim", "linear_attn_config.head_dim"};
    const struct cfg *c = &r->cfg;
    int32_t heads, width;
    TRY(cfg_int_at(c, "num_attention_heads", layer, 1, 65536, 1, &heads, err));
    TRY(cfg_int(c, cfg_first(c, k_heads, 2), 1, 65536, heads, &s->k_heads, err));
    TRY(cfg_int(c, cfg_first(c, v_heads, 2), 1, 65536, heads, &s->heads, err));
    TRY(cfg_int(c, "linear_width_else", 1, 4096, 0, &width, err)); /* what one family calls the width of both */
    TRY(cfg_int(c, cfg_first(c, k_widths, 2), 1, 4096, width ? width : r->spec->hidden * (int64_t)3 / 4 / s->k_heads, &s->k_width, err));
    TRY(cfg_int(c, cfg_first(c, v_widths, 2), 1, 4096, width ? width : (int64_t)2 * s->k_width, &s->width, err));
    s->inner = s->heads * s->width;
    if (s->k_width < 1 || s->heads % s->k_heads)
        return err_set(err, ERR_EFORMAT, "%s: linear_num_value_heads %d is no multiple of linear_num_key_heads %d", c->file->name, s->heads,
                       s->k_heads);
    return ERR_OK;
}

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    static const char *const tap_keys[] = {"linear_conv_kernel_dim", "short_conv_kernel_size", "linear_attn_config.short_conv_kernel_size"};
    struct recur_spec *s = &r->spec->recur;
    const struct cfg *c = &r->cfg;
    int32_t taps, state;
    TRY(resolve_widths(r, layer, s, err));
    TRY(cfg_int(c, cfg_first(c, tap_keys, 3), 2, 64, 4, &taps, err));
    s->beta_scale = cfg_bool(c, "linear_allow_neg_eigval", false) ? 2.0f : 1.0f;
    s->decays_by_channel = r->family->recur.decays_by_channel;
    s->out_eps = r->family->recur.norm_eps > 0 ? r->family->recur.norm_eps : r->spec->norm.eps;
    s->decay_bound = 0;
    if (cfg_bool(c, "kda_safe_gate", false)) TRY(cfg_num(c, "kda_lower_bound", -5.0, &s->decay_bound, err));
    TRY(recur_conv_resolve(r, layer, 2 * (int64_t)s->k_heads * s->k_width + s->inner, taps, err));
    return resolve_state(r, (int64_t)s->heads * s->k_width * s->width, &state, err);
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

/* [q | k | v | z] and [b | a], each for all heads in turn; the fused forms have them by key head. */
static int bind_fused(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    int64_t hidden = l->spec->hidden, keys = (int64_t)s->k_heads * s->k_width, values = s->inner, heads = s->heads;
    int64_t group = heads / s->k_heads, v_run = group * s->width, step = 2 * s->k_width + 2 * v_run, all = 2 * keys + 2 * values;
    struct stack_part qkvz[] = {
        {.role = ROLE_DELTA_QKVZ, .out = keys, .of = all, .run = s->k_width, .step = step},
        {.role = ROLE_DELTA_QKVZ, .out = keys, .of = all, .run = s->k_width, .step = step, .from = s->k_width},
        {.role = ROLE_DELTA_QKVZ, .out = values, .of = all, .run = v_run, .step = step, .from = 2 * s->k_width},
        {.role = ROLE_DELTA_QKVZ, .out = values, .of = all, .run = v_run, .step = step, .from = 2 * s->k_width + v_run}};
    struct stack_part ba[] = {{.role = ROLE_DELTA_BA, .out = heads, .of = 2 * heads, .run = group, .step = 2 * group},
                              {.role = ROLE_DELTA_BA, .out = heads, .of = 2 * heads, .run = group, .step = 2 * group, .from = group}};
    TRY(loader_stack(l, ROLE_DELTA_QKVZ, qkvz, 4, layer, hidden, err));
    return loader_stack(l, ROLE_DELTA_BA, ba, 2, layer, hidden, err);
}

/* A projection of its own, or one through a narrow middle whose width the file has. */
static int bind_narrow(struct loader *l, enum role down, enum role up, int32_t layer, int64_t out, struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!loader_find(l, up, layer, &path) || !loader_find(l, down, layer, &path) || !loader_tensor_values(l, path, -1, &t) || t.n_dims != 2)
        return loader_missing(l, down, layer, err);
    TRY(loader_matrix(l, down, layer, t.shape[0], l->spec->hidden, err));
    return loader_matrix(l, up, layer, out, t.shape[0], err);
}

static int bind_apart(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    int64_t hidden = l->spec->hidden, keys = (int64_t)s->k_heads * s->k_width, values = s->inner;
    bool has_z = loader_has(l, ROLE_DELTA_Z, layer), has_a = loader_has(l, ROLE_DELTA_A, layer);
    struct stack_part fused[] = {{.role = ROLE_DELTA_QKV, .out = 2 * keys + values}, {.role = ROLE_DELTA_Z, .out = values}};
    struct stack_part apart[] = {{.role = ROLE_DELTA_Q, .out = keys},
                                 {.role = ROLE_DELTA_K, .out = keys},
                                 {.role = ROLE_DELTA_V, .out = values},
                                 {.role = ROLE_DELTA_Z, .out = values}};
    struct stack_part ba[] = {{.role = ROLE_DELTA_B, .out = s->heads},
                              {.role = ROLE_DELTA_A, .out = s->decays_by_channel ? keys : s->heads}};
    if (loader_has(l, ROLE_DELTA_Q, layer)) TRY(loader_stack(l, ROLE_DELTA_QKVZ, apart, has_z ? 4 : 3, layer, hidden, err));
    else TRY(loader_stack(l, ROLE_DELTA_QKVZ, fused, 2, layer, hidden, err));
    if (!has_z && loader_has(l, ROLE_DELTA_Q, layer)) TRY(bind_narrow(l, ROLE_DELTA_Z_DOWN, ROLE_DELTA_Z_UP, layer, values, err));
    if (has_a) return loader_stack(l, ROLE_DELTA_BA, ba, 2, layer, hidden, err);
    TRY(loader_matrix(l, ROLE_DELTA_B, layer, s->heads, hidden, err));
    return bind_narrow(l, ROLE_DELTA_A_DOWN, ROLE_DELTA_A_UP, layer, ba[1].out, err);
}

static int settle(struct loader *l, struct spec *spec, int32_t layer, struct err *err) {
    (void)err;
    if (recur_conv_is_mlx(l, layer)) spec->norm.weight_offset = 0;
    return ERR_OK;
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    TRY(loader_has(l, ROLE_DELTA_QKVZ, layer) ? bind_fused(l, layer, err) : bind_apart(l, layer, err));
    TRY(recur_conv_bind(l, layer, 2 * (int64_t)s->k_heads * s->k_width + s->inner, err));
    TRY(loader_vector(l, ROLE_A_LOG, layer, s->heads, true, err));
    TRY(loader_vector(l, ROLE_DT_BIAS, layer, s->decays_by_channel ? (int64_t)s->heads * s->k_width : s->heads, true, err));
    TRY(loader_vector(l, ROLE_MIX_OUT_NORM, layer, s->width, true, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, l->spec->hidden, s->inner, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

/* One projection cut in two, or two. Wide: the rule feeds its own errors back, and now and then magnifies one. */
static void project(const struct pass *p, struct tensor x, const enum role roles[3], int32_t first, struct tensor *a, struct tensor *b) {
    if (p->w[roles[0]].w) {
        struct tensor both = pass_linear_wide(p, x, roles[0]);
        *a = tensor_slice(both, 0, first);
        if (both.width > first) *b = tensor_slice(both, first, both.width - first);
    } else {
        *a = pass_linear_wide(p, x, roles[1]);
        if (p->w[roles[2]].w) *b = pass_linear_wide(p, x, roles[2]);
    }
}

/* Queries, keys and values of a file whose formats differ among them. */
static struct tensor joined(const struct pass *p, struct tensor x) {
    struct tensor q = pass_linear_wide(p, x, ROLE_DELTA_Q), k = pass_linear_wide(p, x, ROLE_DELTA_K);
    struct tensor qk = op_concat(p->l, q, k);
    return op_concat(p->l, qk, pass_linear_wide(p, x, ROLE_DELTA_V));
}

static struct tensor narrow(const struct pass *p, struct tensor x, enum role down, enum role up) {
    return pass_linear_wide(p, pass_linear_wide(p, x, down), up);
}

static struct tensor rule(const struct pass *p, struct tensor mixed, struct tensor a, struct tensor b) {
    const struct recur_spec *s = &p->m->spec.recur;
    bool by_channel = s->decays_by_channel;
    int32_t keys = s->k_heads * s->k_width;
    struct tensor q = tensor_split_heads(tensor_slice(mixed, 0, keys), s->k_heads),
                  k = tensor_split_heads(tensor_slice(mixed, keys, keys), s->k_heads);
    struct tensor v = tensor_split_heads(tensor_slice(mixed, 2 * keys, s->inner), s->heads);
    struct delta_args args = {.a_log = p->w[ROLE_A_LOG].w,
                              .dt_bias = p->w[ROLE_DT_BIAS].w,
                              .state = p->layer->state + 1,
                              .by_channel = by_channel,
                              .bound = s->decay_bound,
                              .beta_scale = s->beta_scale,
                              .k_heads = s->k_heads,
                              .v_heads = s->heads,
                              .k_width = s->k_width,
                              .v_width = s->width,
                              .scale = 1.0f / (float)sqrt((double)s->k_width),
                              .l2_norm = 1,
                              .l2_eps = 1e-6f};
    return op_delta(p->l, q, k, v, by_channel ? tensor_split_heads(a, s->heads) : a, b, &args);
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    static const enum role qkvz_roles[] = {ROLE_DELTA_QKVZ, ROLE_DELTA_QKV, ROLE_DELTA_Z},
                           ba_roles[] = {ROLE_DELTA_BA, ROLE_DELTA_B, ROLE_DELTA_A};
    const struct recur_spec *s = &p->m->spec.recur;
    struct tensor qkv, z = {0}, a = {0}, b;
    if (p->w[ROLE_DELTA_Q].w) {
        qkv = joined(p, x);
        if (p->w[ROLE_DELTA_Z].w) z = pass_linear_wide(p, x, ROLE_DELTA_Z);
    } else {
        project(p, x, qkvz_roles, 2 * s->k_heads * s->k_width + s->inner, &qkv, &z);
    }
    project(p, x, ba_roles, s->heads, &b, &a);
    if (!tensor_is(z)) z = narrow(p, x, ROLE_DELTA_Z_DOWN, ROLE_DELTA_Z_UP);
    if (!tensor_is(a)) a = narrow(p, x, ROLE_DELTA_A_DOWN, ROLE_DELTA_A_UP);
    struct tensor y = rule(p, recur_conv(p, qkv, ACT_SILU), a, b);
    y = op_norm_gated(p->l, y, tensor_split_heads(z, s->heads),
                      &(struct norm_args){.weight = p->w[ROLE_MIX_OUT_NORM].w,
                                          .kind = NORM_RMS,
                                          .eps = s->out_eps,
                                          .gate = GATE_AFTER,
                                          .gate_act = s->decays_by_channel ? ACT_SIGMOID : ACT_SILU});
    return pass_linear(p, tensor_join_heads(y), ROLE_MIX_OUT);
}

const struct mixer delta_mixer =
    {.name = "gated delta rule", .resolve = resolve, .settle = settle, .bind = bind, .mix = mix, .is_recurrent = true};
