/* The forward pass: embedding, blocks, final norm, logits of the rows that are wanted. */
#include "model/mixer.h"

struct tensor pass_norm(const struct pass *p, struct tensor x, const struct bound *w) {
    const struct norm_spec *n = &p->m->spec.norm;
    return op_norm(p->l, x,
                   &(struct norm_args){.weight = w->w, .bias = w->bias, .kind = n->kind, .eps = n->eps, .weight_offset = n->weight_offset});
}

struct tensor pass_linear(const struct pass *p, struct tensor x, enum role role) {
    bool wide = p->m->spec.wide && role != ROLE_ROUTER; /* backends keep the router's own in f32 */
    return op_linear(p->l, x, &(struct linear_args){p->w[role].w, p->w[role].bias, wide});
}

struct tensor pass_linear_wide(const struct pass *p, struct tensor x, enum role role) {
    return op_linear(p->l, x, &(struct linear_args){p->w[role].w, p->w[role].bias, 1});
}

struct tensor pass_low_rank(const struct pass *p, struct tensor y, struct tensor x, enum role down, enum role up) {
    return p->w[down].w ? op_add(p->l, y, pass_linear(p, pass_linear(p, x, down), up), NULL) : y;
}

struct tensor pass_sum(const struct pass *p, struct tensor x) {
    return p->m->spec.rank.n > 1 ? op_sum(p->l, x) : x;
}

struct tensor pass_nothing(const struct pass *p, struct tensor x) {
    return op_act(p->l, x, &(struct act_args){.kind = ACT_NONE, .scale = 0.0f});
}

struct tensor pass_gather(const struct pass *p, struct tensor x, struct cut_range part) {
    return part.of ? op_gather(p->l, x, (int32_t)(x.width / part.n * part.of)) : x;
}

struct tensor pass_own(struct tensor x, struct cut_range part) {
    int32_t each = part.of ? (int32_t)(x.width / part.of) : 0;
    return part.of ? tensor_slice(x, (int32_t)part.first * each, (int32_t)part.n * each) : x;
}

struct tensor pass_embed(const struct pass *p, const struct bound *table, const struct embed_args *args) {
    struct embed_args part = *args;
    part.weight = table->w;
    part.first = (int32_t)table->first;
    part.of = (int32_t)table->of;
    struct tensor x = op_embed(p->l, &part);
    return table->of ? op_sum(p->l, x) : x;
}

struct tensor pass_mix_part(const struct pass *p, const struct mixer *m, struct tensor x) {
    bool is_absent = m->is_recurrent ? p->layer->no_recurrence : p->layer->no_attention;
    if (!is_absent) return m->mix(p, x);
    if (m->join) m->join(p);
    return pass_nothing(p, tensor_slice(x, 0, p->m->spec.hidden));
}

struct tensor pass_mix(const struct pass *p, struct tensor x) {
    return pass_sum(p, pass_mix_part(p, mixer_table[p->layer->mixer], x));
}

struct tensor pass_rope(const struct pass *p, struct tensor x) {
    if (p->layer->attn.rope < 0) return x;
    const struct rope_spec *r = &p->m->spec.ropes[p->layer->attn.rope];
    return op_rope(p->l, x,
                   &(struct rope_args){.inv_freq = p->m->weights.ropes[p->layer->attn.rope],
                                       .kind = r->kind,
                                       .first = r->first,
                                       .n_rotated = r->n_rotated,
                                       .magnitude = r->magnitude,
                                       .table = r->table,
                                       .axes = p->l->has_places ? r->axes : NULL});
}

typedef struct tensor half_fn(const struct pass *p, struct tensor x);

/* One half of a block: the mixer or the feed-forward, with its norms and its residual. */
static struct tensor half(const struct pass *p, struct tensor x, half_fn *f, enum role pre, enum role post) {
    const struct spec *s = &p->m->spec;
    enum wiring wiring = p->layer->wiring;
    if (wiring == WIRE_SUM_NORM) return pass_norm(p, op_add(p->l, x, f(p, x), NULL), &p->w[pre]);
    if (wiring == WIRE_NORM_FIRST) {
        x = pass_norm(p, x, &p->w[pre]);
        return op_add(p->l, x, f(p, x), NULL);
    }
    bool is_bare = wiring == WIRE_POST || (p->layer->is_unnormed && pre == ROLE_MIX_NORM);
    struct tensor h = f(p, is_bare ? x : pass_norm(p, x, &p->w[pre]));
    if (wiring == WIRE_POST || wiring == WIRE_PRE_POST) h = pass_norm(p, h, &p->w[post]);
    const struct weight *share = p->w[pre == ROLE_MIX_NORM ? ROLE_MIX_RESIDUAL : ROLE_FFN_RESIDUAL].w;
    if (share) x = op_mulvec(p->l, x, &(struct vec_args){.mul = share});
    return op_add(p->l, x, h, &(struct add_args){1.0f, s->residual_scale});
}

static struct tensor parallel(const struct pass *p, struct tensor x) {
    bool two = p->layer->wiring == WIRE_PARALLEL_TWO;
    struct tensor n = pass_norm(p, x, &p->w[ROLE_MIX_NORM]);
    struct tensor h = pass_mix_part(p, mixer_table[p->layer->mixer], n);
    h = op_add(p->l, h, feed_forward_part(p, two ? pass_norm(p, x, &p->w[ROLE_FFN_NORM]) : n), NULL);
    h = pass_sum(p, h);
    return op_add(p->l, x, h, &(struct add_args){1.0f, p->m->spec.residual_scale});
}

struct tensor pass_block(const struct pass *p, struct tensor x) {
    if (p->layer->wiring >= WIRE_PARALLEL) return parallel(p, x);
    if (p->layer->mixer != MIX_NONE) x = half(p, x, pass_mix, ROLE_MIX_NORM, ROLE_MIX_POST_NORM);
    if (p->layer->ffn != FFN_NONE) x = half(p, x, feed_forward, ROLE_FFN_NORM, ROLE_FFN_POST_NORM);
    return x;
}

static struct tensor embed(struct pass *p) {
    const struct spec *s = &p->m->spec;
    const struct bound *g = p->m->weights.global;
    int32_t typed = s->n_types ? s->vocab : 0;
    struct tensor x = pass_embed(p, &g[ROLE_EMBED], &(struct embed_args){.scale = s->embed_scale, .vocab = typed});
    bool is_among = !s->kv.n_of_pictures; /* pictures are rows of the stream */
    if (p->l->gives && is_among && !p->m->is_draft_head) x = op_given(p->l, x, &(struct given_args){.width = s->embed_width});
    if (g[ROLE_TYPES].w) {
        struct embed_args type = {.weight = g[ROLE_TYPES].w, .scale = 1.0f, .vocab = typed, .by_type = 1};
        x = op_add(p->l, x, op_embed(p->l, &type), NULL);
    }
    struct linear_args widen = {.weight = g[ROLE_EMBED_IN].w, .bias = g[ROLE_EMBED_IN].bias};
    if (widen.weight && !s->is_encoder) x = op_linear(p->l, x, &widen);
    if (g[ROLE_POSITIONS].w) {
        struct embed_args at = {.weight = g[ROLE_POSITIONS].w, .scale = 1.0f, .by_position = 1, .position_offset = s->first_position};
        x = op_add(p->l, x, op_embed(p->l, &at), NULL);
    }
    if (g[ROLE_EMBED_NORM].w) x = pass_norm(p, x, &g[ROLE_EMBED_NORM]);
    if (widen.weight && s->is_encoder) x = op_linear(p->l, x, &widen);
    return s->stream && s->stream->enter ? s->stream->enter(p, x) : x;
}

static struct tensor final_norm(const struct pass *p, struct tensor x) {
    return p->m->spec.no_final_norm ? x : pass_norm(p, x, &p->m->weights.global[ROLE_FINAL_NORM]);
}

/* The wanted rows behind the final norm. */
static struct tensor hidden(const struct pass *p, struct tensor x) {
    const struct stream *stream = p->m->spec.stream;
    x = op_rows(p->l, x);
    if (stream && stream->leave) x = stream->leave(p, x);
    return final_norm(p, x);
}

static void tap(const struct model *m, int32_t at, struct tensor x, struct tensor *out) {
    for (int32_t i = 0; out && i < m->taps.n; i++)
        if (m->taps.at[i] == at) out[i] = x;
}

struct tensor forward_hidden(const struct model *m, struct oplist *l, struct tensor *taps) {
    const struct spec *s = &m->spec;
    const struct stream *stream = s->stream;
    struct tensor picks = {0}, beside = {0};
    bool is_among = !s->kv.n_of_pictures;
    struct pass p = {.l = l, .m = m, .picks = &picks, .beside = &beside};
    struct tensor x = embed(&p);
    for (int32_t i = 0; i < s->n_layers; i++) {
        l->layer = i;
        p.layer = &s->layers[i];
        p.w = m->weights.layers[i];
        tap(m, i, x, taps);
        x = stream && stream->block ? stream->block(&p, x) : pass_block(&p, x);
        if (l->gives && is_among && !m->is_draft_head && i + 1 < m->n_given)
            x = op_given(l, x, &(struct given_args){.set = i + 1, .width = s->hidden, .adds = 1});
    }
    l->layer = -1;
    bool is_normed = taps && m->taps.is_normed; /* all rows are, and those that are wanted come out of them */
    if (is_normed) x = final_norm(&p, x);
    tap(m, s->n_layers, x, taps);
    return is_normed ? op_rows(l, x) : hidden(&p, x);
}

struct tensor forward_head(const struct model *m, struct oplist *l, struct tensor x) {
    const struct spec *s = &m->spec;
    const struct bound *g = m->weights.global;
    if (g[ROLE_EMBED_OUT].w) x = op_linear(l, x, &(struct linear_args){.weight = g[ROLE_EMBED_OUT].w});
    x = op_linear(l, x, &(struct linear_args){g[ROLE_HEAD].w, g[ROLE_HEAD].bias, 0});
    if (g[ROLE_HEAD].of) x = op_gather(l, x, s->vocab);
    if (s->logit_scale != 1.0f) x = op_act(l, x, &(struct act_args){.kind = ACT_NONE, .scale = s->logit_scale});
    if (s->logit_softcap > 0) x = op_act(l, x, &(struct act_args){.kind = ACT_SOFTCAP, .scale = 1.0f, .p = {s->logit_softcap}});
    return x;
}
