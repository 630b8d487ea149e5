/* The forward pass: embedding, blocks, final norm, logits of the rows that are wanted. */
#include "model/forward.h"

struct tensor pass_norm(const struct pass *p, struct tensor x, const struct bound *w) {
    const struct norm_spec *n = &p->m->spec.norm;
    return op_norm(p->l, x, &(struct norm_args){.weight = w->w, .bias = w->bias, .kind = n->kind, .eps = n->eps, .weight_offset = n->weight_offset});
}

struct tensor feed_forward(const struct pass *p, struct tensor x) {
    const struct bound *w = p->w;
    struct act_args act = p->m->spec.act;
    int32_t inner = p->layer->inner;
    struct tensor h;
    if (p->layer->ffn == FFN_PLAIN) {
        h = op_act(p->l, op_linear(p->l, x, &(struct linear_args){w[ROLE_UP].w, w[ROLE_UP].bias}), &act);
    } else if (w[ROLE_GATE_UP].w) {
        struct tensor both = op_linear(p->l, x, &(struct linear_args){w[ROLE_GATE_UP].w, w[ROLE_GATE_UP].bias});
        h = op_glu(p->l, tensor_slice(both, 0, inner), tensor_slice(both, inner, inner), &act);
    } else {
        struct tensor gate = op_linear(p->l, x, &(struct linear_args){w[ROLE_GATE].w, w[ROLE_GATE].bias});
        struct tensor up = op_linear(p->l, x, &(struct linear_args){w[ROLE_UP].w, w[ROLE_UP].bias});
        h = op_glu(p->l, gate, up, &act);
    }
    return op_linear(p->l, h, &(struct linear_args){w[ROLE_DOWN].w, w[ROLE_DOWN].bias});
}

static struct tensor block(const struct pass *p, struct tensor x) {
    struct tensor h = mix_attention(p, pass_norm(p, x, &p->w[ROLE_MIX_NORM]));
    x = op_add(p->l, x, h, NULL);
    h = feed_forward(p, pass_norm(p, x, &p->w[ROLE_FFN_NORM]));
    return op_add(p->l, x, h, NULL);
}

struct tensor forward(const struct model *m, struct oplist *l) {
    const struct spec *s = &m->spec;
    const struct bound *g = m->weights.global;
    struct pass p = {.l = l, .m = m};
    struct tensor x = op_embed(l, &(struct embed_args){.weight = g[ROLE_EMBED].w, .scale = s->embed_scale});
    for (int32_t i = 0; i < s->n_layers; i++) {
        l->layer = i;
        p.layer = &s->layers[i];
        p.w = m->weights.layers[i];
        x = block(&p, x);
    }
    l->layer = -1;
    x = pass_norm(&p, op_rows(l, x), &g[ROLE_FINAL_NORM]);
    return op_linear(l, x, &(struct linear_args){g[ROLE_HEAD].w, g[ROLE_HEAD].bias});
}
