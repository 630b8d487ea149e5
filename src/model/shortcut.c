/* The residual stream of models whose layers are two: experts begin behind the first attention, and what they make is added at the end of the second half, so that
 * a machine may compute them meanwhile. */
#include "model/families.h"

static int resolve(struct resolver *r, struct err *err) {
    return resolve_experts(r, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    return layer >= 0 && l->spec->layers[layer].use == 0 ? ffn_bind_experts(l, layer, err) : ERR_OK;
}

static struct tensor block(const struct pass *p, struct tensor x) {
    bool begins = p->layer->use == 0;
    x = op_add(p->l, x, pass_mix(p, pass_norm(p, x, &p->w[ROLE_MIX_NORM])), NULL);
    struct tensor n = pass_norm(p, x, &p->w[ROLE_FFN_NORM]);
    if (begins) *p->beside = pass_experts(p, n, pass_linear(p, n, ROLE_ROUTER));
    x = op_add(p->l, x, feed_forward(p, n), NULL);
    return begins ? x : op_add(p->l, x, *p->beside, NULL);
}

const struct stream shortcut_stream = {.resolve = resolve, .bind = bind, .block = block};
