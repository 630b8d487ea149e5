/* The gated delta rule as a mixer: one projection to queries, keys, values and gates, a convolution over the first three,
 * the rule itself, and a norm gated by the fourth. */
#include "base/fmath.h"
#include "model/recur.h"

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct recur_spec *s = &r->spec->recur;
    const struct cfg *c = &r->cfg;
    int32_t taps;
    TRY(cfg_need(c, "linear_num_key_heads", 1, 65536, &s->k_heads, err));
    TRY(cfg_need(c, "linear_num_value_heads", 1, 65536, &s->heads, err));
    TRY(cfg_need(c, "linear_key_head_dim", 1, 4096, &s->k_width, err));
    TRY(cfg_need(c, "linear_value_head_dim", 1, 4096, &s->width, err));
    TRY(cfg_int(c, "linear_conv_kernel_dim", 2, 64, 4, &taps, err));
    if (s->heads % s->k_heads)
        return err_set(err, ERR_EFORMAT, "%s: linear_num_value_heads %d is no multiple of linear_num_key_heads %d", c->file->name, s->heads,
                       s->k_heads);
    s->inner = s->heads * s->width;
    TRY(recur_conv_resolve(r, layer, 2 * (int64_t)s->k_heads * s->k_width + s->inner, taps, err));
    int32_t state;
    return resolve_state(r, (int64_t)s->heads * s->k_width * s->width, &state, err);
}

/* [q | k | v | z] and [b | a], each for all heads in turn; the fused forms have them by key head. */
static int bind_inputs(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    int64_t hidden = l->spec->hidden, keys = (int64_t)s->k_heads * s->k_width, values = s->inner, heads = s->heads;
    int64_t group = heads / s->k_heads, v_run = group * s->width, step = 2 * s->k_width + 2 * v_run, all = 2 * keys + 2 * values;
    if (loader_has(l, ROLE_DELTA_QKVZ, layer)) {
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
    struct stack_part qkvz[] = {{.role = ROLE_DELTA_QKV, .out = 2 * keys + values}, {.role = ROLE_DELTA_Z, .out = values}};
    struct stack_part ba[] = {{.role = ROLE_DELTA_B, .out = heads}, {.role = ROLE_DELTA_A, .out = heads}};
    TRY(loader_stack(l, ROLE_DELTA_QKVZ, qkvz, 2, layer, hidden, err));
    return loader_stack(l, ROLE_DELTA_BA, ba, 2, layer, hidden, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    if (recur_conv_is_mlx(l, layer)) l->spec->norm.weight_offset = 0;
    TRY(bind_inputs(l, layer, err));
    TRY(recur_conv_bind(l, layer, 2 * (int64_t)s->k_heads * s->k_width + s->inner, err));
    TRY(loader_vector(l, ROLE_A_LOG, layer, s->heads, true, err));
    TRY(loader_vector(l, ROLE_DT_BIAS, layer, s->heads, true, err));
    TRY(loader_vector(l, ROLE_MIX_OUT_NORM, layer, s->width, true, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, l->spec->hidden, s->inner, err);
}

/* One projection cut in two, or two. Wide: the rule feeds its own errors back, and now and then magnifies one. */
static void project(const struct pass *p, struct tensor x, const enum role roles[3], int32_t first, struct tensor *a, struct tensor *b) {
    if (p->w[roles[0]].w) {
        struct tensor both = pass_linear_wide(p, x, roles[0]);
        *a = tensor_slice(both, 0, first);
        *b = tensor_slice(both, first, both.width - first);
    } else {
        *a = pass_linear_wide(p, x, roles[1]);
        *b = pass_linear_wide(p, x, roles[2]);
    }
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    static const enum role qkvz_roles[] = {ROLE_DELTA_QKVZ, ROLE_DELTA_QKV, ROLE_DELTA_Z},
                           ba_roles[] = {ROLE_DELTA_BA, ROLE_DELTA_B, ROLE_DELTA_A};
    const struct recur_spec *s = &p->m->spec.recur;
    int32_t keys = s->k_heads * s->k_width;
    struct tensor qkv, z, a, b;
    project(p, x, qkvz_roles, 2 * keys + s->inner, &qkv, &z);
    project(p, x, ba_roles, s->heads, &b, &a);
    struct tensor mixed = recur_conv(p, qkv, ACT_SILU);
    struct tensor q = tensor_split_heads(tensor_slice(mixed, 0, keys), s->k_heads),
                  k = tensor_split_heads(tensor_slice(mixed, keys, keys), s->k_heads);
    struct tensor v = tensor_split_heads(tensor_slice(mixed, 2 * keys, s->inner), s->heads);
    struct delta_args args = {.a_log = p->w[ROLE_A_LOG].w,
                              .dt_bias = p->w[ROLE_DT_BIAS].w,
                              .state = p->layer->state + 1,
                              .k_heads = s->k_heads,
                              .v_heads = s->heads,
                              .k_width = s->k_width,
                              .v_width = s->width,
                              .scale = 1.0f / (float)sqrt((double)s->k_width),
                              .l2_norm = 1,
                              .l2_eps = 1e-6f};
    struct tensor y = op_delta(p->l, q, k, v, a, b, &args);
    y = op_norm_gated(
        p->l, y, tensor_split_heads(z, s->heads),
        &(struct norm_args){
            .weight = p->w[ROLE_MIX_OUT_NORM].w, .kind = NORM_RMS, .eps = p->m->spec.norm.eps, .gate = GATE_AFTER, .gate_act = ACT_SILU});
    return pass_linear(p, tensor_join_heads(y), ROLE_MIX_OUT);
}

const struct mixer delta_mixer = {"gated delta rule", resolve, bind, mix};
