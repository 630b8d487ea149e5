/* The causal convolution of the recurrent mixers. */
#include "model/recur.h"

int recur_conv_resolve(struct resolver *r, int32_t layer, int64_t channels, int32_t taps, struct err *err) {
    r->spec->recur.taps = taps;
    return resolve_state(r, channels * (taps - 1), &r->spec->layers[layer].state, err);
}

int recur_conv_bind(struct loader *l, int32_t layer, int64_t channels, struct err *err) {
    struct str path;
    struct tensor_info t;
    struct bound *b = loader_slot(l, ROLE_CONV, layer);
    if (!loader_find(l, ROLE_CONV, layer, &path) || !loader_tensor_values(l, path, -1, &t)) return loader_missing(l, ROLE_CONV, layer, err);
    TRY(loader_flat(l, &t, channels * l->spec->recur.taps, &b->w, err));
    return loader_tensor_bias(l, path, -1, &t) ? loader_flat(l, &t, channels, &b->bias, err) : ERR_OK;
}

struct tensor recur_conv(const struct pass *p, struct tensor x, enum act_kind act) {
    const struct bound *w = &p->w[ROLE_CONV];
    return op_conv(
        p->l, x, &(struct conv_args){.weight = w->w, .bias = w->bias, .taps = p->m->spec.recur.taps, .state = p->layer->state, .act = act});
}

bool recur_conv_is_mlx(struct loader *l, int32_t layer) {
    struct str path;
    struct tensor_info t;
    return loader_find(l, ROLE_CONV, layer, &path) && loader_tensor_values(l, path, -1, &t) && t.n_dims == 3 && t.shape[2] == 1 &&
           t.shape[1] > 1;
}
