/* The short convolution as a mixer: [B | C | x], C * conv(B * x). */
#include "model/recur.h"

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    int32_t taps;
    TRY(cfg_int(&r->cfg, "conv_L_cache", 2, 64, 3, &taps, err));
    return recur_conv_resolve(r, layer, r->spec->hidden, taps, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    int64_t hidden = l->spec->hidden;
    TRY(loader_matrix(l, ROLE_MIX_IN, layer, 3 * hidden, hidden, err));
    TRY(recur_conv_bind(l, layer, hidden, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, hidden, hidden, err);
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    static const struct act_args product = {.kind = ACT_NONE, .scale = 1.0f};
    int32_t hidden = p->m->spec.hidden;
    struct tensor all = pass_linear(p, x, ROLE_MIX_IN);
    struct tensor y = recur_conv(p, op_glu(p->l, tensor_slice(all, 0, hidden), tensor_slice(all, 2 * hidden, hidden), &product), ACT_NONE);
    return pass_linear(p, op_glu(p->l, tensor_slice(all, hidden, hidden), y, &product), ROLE_MIX_OUT);
}

const struct mixer shortconv_mixer = {.name = "short convolution", .resolve = resolve, .bind = bind, .mix = mix, .is_recurrent = true};
