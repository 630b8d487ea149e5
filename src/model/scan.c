/* Mamba's selective scan as a mixer: [x | gate], a convolution over x, time steps, B and C projected from the result,
 * the scan, the gate. */
#include "model/families.h"
#include "model/recur.h"

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct recur_spec *s = &r->spec->recur;
    const struct cfg *c = &r->cfg;
    int32_t expand, taps, state;
    TRY(cfg_int(c, "ssm_expand", 1, 64, 2, &expand, err));
    TRY(cfg_need(c, "ssm_width", 1, 65536, &s->state_width, err));
    TRY(cfg_int(c, "ssm_taps", 2, 64, 4, &taps, err));
    TRY(cfg_int(c, "ssm_inner", 1, 1 << 24, (int64_t)expand * r->spec->hidden, &s->inner, err));
    s->dt_rank = (r->spec->hidden + 15) / 16; /* "auto" */
    if (yyjson_is_int(cfg_get(c, "ssm_dt_rank"))) TRY(cfg_need(c, "ssm_dt_rank", 1, 1 << 20, &s->dt_rank, err));
    TRY(cfg_num(c, "mixer_rms_eps", 1e-6, &s->bare_eps, err));
    s->bare_norms = r->family->recur.bare_norms;
    TRY(recur_conv_resolve(r, layer, s->inner, taps, err));
    return resolve_state(r, (int64_t)s->inner * s->state_width, &state, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    TRY(loader_matrix(l, ROLE_MIX_IN, layer, 2 * (int64_t)s->inner, l->spec->hidden, err));
    TRY(recur_conv_bind(l, layer, s->inner, err));
    TRY(loader_matrix(l, ROLE_X_PROJ, layer, s->dt_rank + 2 * (int64_t)s->state_width, s->inner, err));
    TRY(loader_matrix(l, ROLE_DT_PROJ, layer, s->inner, s->dt_rank, err));
    TRY(loader_vector(l, ROLE_A_LOG, layer, (int64_t)s->inner * s->state_width, true, err));
    TRY(loader_vector(l, ROLE_SKIP, layer, s->inner, true, err));
    TRY(loader_vector(l, ROLE_DT_NORM, layer, s->dt_rank, false, err));
    TRY(loader_vector(l, ROLE_B_NORM, layer, s->state_width, false, err));
    TRY(loader_vector(l, ROLE_C_NORM, layer, s->state_width, false, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, l->spec->hidden, s->inner, err);
}

static struct tensor part(const struct pass *p, struct tensor x, int32_t from, int32_t width, enum role norm) {
    x = tensor_slice(x, from, width);
    if (p->m->spec.recur.bare_norms) return op_norm(p->l, x, &(struct norm_args){.kind = NORM_RMS, .eps = p->m->spec.recur.bare_eps});
    return p->w[norm].w ? pass_norm(p, x, &p->w[norm]) : x;
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct recur_spec *s = &p->m->spec.recur;
    struct tensor both = pass_linear(p, x, ROLE_MIX_IN);
    struct tensor mixed = recur_conv(p, tensor_slice(both, 0, s->inner), ACT_SILU), z = tensor_slice(both, s->inner, s->inner);
    struct tensor chosen = pass_linear_wide(p, mixed, ROLE_X_PROJ); /* small, and all time steps come of it */
    struct tensor dt = pass_linear_wide(p, part(p, chosen, 0, s->dt_rank, ROLE_DT_NORM), ROLE_DT_PROJ);
    struct tensor b = part(p, chosen, s->dt_rank, s->state_width, ROLE_B_NORM),
                  c = part(p, chosen, s->dt_rank + s->state_width, s->state_width, ROLE_C_NORM);
    struct scan_args args = {
        .a_log = p->w[ROLE_A_LOG].w, .d = p->w[ROLE_SKIP].w, .state = p->layer->state + 1, .state_width = s->state_width};
    struct tensor y = op_glu(p->l, z, op_scan(p->l, mixed, dt, b, c, &args), &(struct act_args){.kind = ACT_SILU, .scale = 1.0f});
    return pass_linear(p, y, ROLE_MIX_OUT);
}

const struct mixer scan_mixer = {.name = "selective scan", .resolve = resolve, .bind = bind, .mix = mix, .is_recurrent = true};
