/* Mamba-2's state space as a mixer: one projection to [gate | x B C | time steps], a convolution over the middle, the
 * recurrence, and a norm by the gate (before or after it, over all channels or by group). */
#include "base/fmath.h"
#include "model/families.h"
#include "model/recur.h"

/* time_step_limit is a list of two; its upper end is no number where there is none. */
static int resolve_limits(struct resolver *r, struct recur_spec *s, struct err *err) {
    yyjson_val *limit = cfg_get(&r->cfg, "time_step_limit");
    yyjson_val *low = yyjson_arr_get(limit, 0), *high = yyjson_arr_get(limit, 1);
    s->dt_min = yyjson_is_num(low) ? (float)yyjson_get_num(low) : 0.0f;
    s->dt_max = yyjson_is_num(high) ? (float)yyjson_get_num(high) : INFINITY;
    if (r->family->recur.time_step_min) return cfg_num(&r->cfg, "time_step_min", 0.001, &s->dt_min, err);
    return ERR_OK;
}

/* The keys are those of the hybrid models; others are renamed in their rows. */
static int resolve_sizes(struct resolver *r, struct recur_spec *s, int32_t *out_taps, struct err *err) {
    const struct cfg *c = &r->cfg;
    int32_t expand;
    TRY(cfg_need(c, "ssm_heads", 1, 65536, &s->heads, err));
    TRY(cfg_int(c, "ssm_groups", 1, 65536, 1, &s->groups, err));
    TRY(cfg_need(c, "ssm_width", 1, 65536, &s->state_width, err));
    TRY(cfg_int(c, "ssm_taps", 2, 64, 4, out_taps, err));
    TRY(cfg_int(c, "ssm_expand", 1, 64, 2, &expand, err));
    if (yyjson_is_int(cfg_get(c, "ssm_head_dim"))) TRY(cfg_need(c, "ssm_head_dim", 1, 65536, &s->width, err));
    else s->width = expand * r->spec->hidden / s->heads; /* absent, or "auto" */
    s->inner = s->heads * s->width;
    if (s->width < 1 || s->heads % s->groups || s->inner % s->groups)
        return err_set(err, ERR_EFORMAT, "%s: %d state-space heads of width %d do not divide into %d groups", c->file->name, s->heads,
                       s->width, s->groups);
    return ERR_OK;
}

static int64_t conv_channels(const struct recur_spec *s) {
    return s->inner + 2 * (int64_t)s->groups * s->state_width;
}

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct recur_spec *s = &r->spec->recur;
    int32_t state, taps;
    TRY(resolve_sizes(r, s, &taps, err));
    TRY(resolve_limits(r, s, err));
    s->norm_groups = r->family->recur.group_norm ? s->groups : 1;
    s->norm_gate = cfg_bool(&r->cfg, "ssm_norm_first", false) ? GATE_AFTER : GATE_BEFORE;
    s->out_eps = r->family->recur.norm_eps > 0 ? r->family->recur.norm_eps : r->spec->norm.eps;
    s->has_norm = cfg_bool(&r->cfg, "ssm_norm", true);
    TRY(recur_conv_resolve(r, layer, conv_channels(s), taps, err));
    return resolve_state(r, (int64_t)s->inner * s->state_width, &state, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    TRY(loader_matrix(l, ROLE_MIX_IN, layer, s->inner + conv_channels(s) + s->heads, l->spec->hidden, err));
    TRY(recur_conv_bind(l, layer, conv_channels(s), err));
    TRY(loader_vector(l, ROLE_A_LOG, layer, s->heads, true, err));
    TRY(loader_vector(l, ROLE_SKIP, layer, s->heads, true, err));
    TRY(loader_vector(l, ROLE_DT_BIAS, layer, s->heads, true, err));
    if (s->has_norm) TRY(loader_vector(l, ROLE_MIX_OUT_NORM, layer, s->inner, true, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, l->spec->hidden, s->inner, err);
}

static struct tensor gated(const struct pass *p, struct tensor y, struct tensor z) {
    const struct recur_spec *s = &p->m->spec.recur;
    if (!s->has_norm) return op_glu(p->l, z, y, &(struct act_args){.kind = ACT_SILU, .scale = 1.0f});
    struct norm_args norm = {.weight = p->w[ROLE_MIX_OUT_NORM].w,
                             .kind = NORM_RMS,
                             .eps = s->out_eps,
                             .per_head = 1,
                             .gate = s->norm_gate,
                             .gate_act = ACT_SILU};
    return tensor_join_heads(op_norm_gated(p->l, tensor_split_heads(y, s->norm_groups), tensor_split_heads(z, s->norm_groups), &norm));
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct recur_spec *s = &p->m->spec.recur;
    const struct bound *w = p->w;
    int32_t channels = (int32_t)conv_channels(s), states = s->groups * s->state_width;
    struct tensor all = pass_linear(p, x, ROLE_MIX_IN);
    if (w[ROLE_MIX_IN_SCALE].w) all = op_mulvec(p->l, all, &(struct vec_args){.mul = w[ROLE_MIX_IN_SCALE].w});
    struct tensor mixed = recur_conv(p, tensor_slice(all, s->inner, channels), ACT_SILU);
    struct tensor b = tensor_split_heads(tensor_slice(mixed, s->inner, states), s->groups),
                  c = tensor_split_heads(tensor_slice(mixed, s->inner + states, states), s->groups);
    struct ssd_args args = {.a_log = w[ROLE_A_LOG].w,
                            .d = w[ROLE_SKIP].w,
                            .dt_bias = w[ROLE_DT_BIAS].w,
                            .state = p->layer->state + 1,
                            .heads = s->heads,
                            .head_width = s->width,
                            .groups = s->groups,
                            .state_width = s->state_width,
                            .dt_min = s->dt_min,
                            .dt_max = s->dt_max};
    struct tensor y = op_ssd(p->l, tensor_split_heads(tensor_slice(mixed, 0, s->inner), s->heads), b, c,
                             tensor_slice(all, s->inner + channels, s->heads), &args);
    return pass_linear(p, gated(p, tensor_join_heads(y), tensor_slice(all, 0, s->inner)), ROLE_MIX_OUT);
}

const struct mixer ssd_mixer = {.name = "state space", .resolve = resolve, .bind = bind, .mix = mix, .is_recurrent = true};
