/* Layers with a state space behind a block of attention and feed-forward that several layers take turns in. The block reads the stream and the embedding side
 * by side; every use of it has small matrices of its own. What it makes goes through a matrix of the layer and is added to what the state space reads, not to
 * the stream. */
#include "model/families.h"
#include "model/mixer.h"

/* Which block a layer has: they come in turn. */
static void find_lender(struct resolver *r, int32_t layer) {
    struct layer_spec *l = r->layers;
    int32_t n_blocks = r->spec->shared.n_blocks, n = 0;
    l[layer].lender = layer;
    for (int32_t i = 0; i < layer; i++) l[layer].use += l[i].mixer == MIX_SHARED;
    for (int32_t i = 0; i < layer && l[layer].use >= n_blocks; i++)
        if (l[i].mixer == MIX_SHARED && n++ == l[layer].use % n_blocks) l[layer].lender = i;
}

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct shared_spec *s = &r->spec->shared;
    TRY(cfg_int(&r->cfg, "num_mem_blocks", 1, 1024, 1, &s->n_blocks, err));
    TRY(cfg_int(&r->cfg, "adapter_rank", 1, 1 << 16, 128, &s->rank, err));
    TRY(cfg_int(&r->cfg, "intermediate_size", 1, 1 << 24, (int64_t)r->spec->hidden * 4, &r->layers[layer].inner, err));
    s->has_qkv_ranks = cfg_bool(&r->cfg, "use_shared_attention_adapter", false);
    if (cfg_bool(&r->cfg, "use_long_context", false)) r->spec->context = 16384;
    find_lender(r, layer);
    TRY(attention_mixer.resolve(r, layer, err));
    return mixer_table[MIX_SSD]->resolve(r, layer, err);
}

/* What attention returns is normed as it is, without a residual beside it: rounding before it counts as much as the values themselves. */
static int settle(struct loader *l, struct spec *spec, int32_t layer, struct err *err) {
    (void)l, (void)err;
    spec->wide = true;
    spec->kv.classes[spec->layers[layer].kv.kv_class].wide = 1;
    return ERR_OK;
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

static const enum role block_roles[] = {ROLE_BLOCK_NORM, ROLE_QKV, ROLE_Q, ROLE_K, ROLE_V, ROLE_O, ROLE_FFN_NORM, ROLE_GATE_UP, ROLE_DOWN};
enum { N_BLOCK_ROLES = sizeof block_roles / sizeof *block_roles };

/* [gate | up], as a matrix of two parts. */
static int bind_pair(struct loader *l, int32_t layer, enum role role, int64_t in, struct err *err) {
    int64_t inner = l->spec->layers[layer].inner;
    struct stack_part parts[] = {{.role = role, .as = ROLE_GATE, .out = inner, .of = 2 * inner},
                                 {.role = role, .as = ROLE_UP, .out = inner, .from = inner, .of = 2 * inner}};
    return loader_stack(l, role, parts, 2, layer, in, err);
}

/* The block itself, once for all layers that use it; a file may hold it again for each of them. */
static int bind_block(struct loader *l, int32_t layer, struct err *err) {
    const struct layer_spec *ls = &l->spec->layers[layer];
    int64_t hidden = l->spec->hidden;
    if (ls->lender != layer) {
        for (int32_t i = 0; i < N_BLOCK_ROLES; i++) *loader_slot(l, block_roles[i], layer) = *loader_slot(l, block_roles[i], ls->lender);
        loader_ignore(l, block_roles, N_BLOCK_ROLES, layer);
        return ERR_OK;
    }
    TRY(loader_vector(l, ROLE_BLOCK_NORM, layer, hidden * attn_inputs(l->spec->family), true, err));
    TRY(loader_bind_mixer(l, &attention_mixer, layer, err));
    TRY(loader_vector(l, ROLE_FFN_NORM, layer, hidden, true, err));
    TRY(bind_pair(l, layer, ROLE_GATE_UP, hidden, err));
    return loader_matrix(l, ROLE_DOWN, layer, hidden, ls->inner, err);
}

static int bind_low_rank(struct loader *l, int32_t layer, enum role down, int64_t out, int64_t in, struct err *err) {
    TRY(loader_matrix(l, down, layer, l->spec->shared.rank, in, err));
    return loader_matrix(l, down + 1, layer, out, l->spec->shared.rank, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct layer_spec *ls = &l->spec->layers[layer];
    int64_t hidden = l->spec->hidden, wide = hidden * attn_inputs(l->spec->family), width = ls->attn.k_width;
    int32_t reader = l->reader;
    l->reader = READ_ALL;
    l->is_absent = false; /* of several ranks, the parts of this say for themselves who has them */
    int code = bind_block(l, layer, err);
    l->reader = reader;
    if (code) return code;
    TRY(loader_matrix(l, ROLE_BLOCK_OUT, layer, hidden, hidden, err));
    TRY(loader_matrix(l, ROLE_LOW_FFN_DOWN, layer, l->spec->shared.rank, hidden, err));
    TRY(bind_pair(l, layer, ROLE_LOW_FFN_UP, l->spec->shared.rank, err));
    if (l->spec->shared.has_qkv_ranks) {
        TRY(bind_low_rank(l, layer, ROLE_LOW_Q_DOWN, ls->attn.heads * width, wide, err));
        TRY(bind_low_rank(l, layer, ROLE_LOW_K_DOWN, ls->attn.kv_heads * width, wide, err));
        TRY(bind_low_rank(l, layer, ROLE_LOW_V_DOWN, ls->attn.kv_heads * width, wide, err));
    }
    return loader_bind_mixer(l, mixer_table[MIX_SSD], layer, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static struct tensor mix(const struct pass *p, struct tensor x) {
    return mixer_table[MIX_SSD]->mix(p, x);
}

const struct mixer shared_mixer =
    {.name = "state space behind a shared block", .resolve = resolve, .settle = settle, .bind = bind, .mix = mix, .is_recurrent = true};

static struct tensor enter(struct pass *p, struct tensor x) {
    return p->extra = x;
}

static struct tensor shared_block(const struct pass *p, struct tensor x) {
    int32_t inner = p->layer->inner;
    x = pass_sum(p, pass_mix_part(p, &attention_mixer, pass_norm(p, op_concat(p->l, x, p->extra), &p->w[ROLE_BLOCK_NORM])));
    x = pass_norm(p, x, &p->w[ROLE_FFN_NORM]);
    if (!p->w[ROLE_DOWN].w) return pass_linear(p, pass_sum(p, pass_nothing(p, x)), ROLE_BLOCK_OUT);
    struct tensor both = pass_low_rank(p, pass_linear(p, x, ROLE_GATE_UP), x, ROLE_LOW_FFN_DOWN, ROLE_LOW_FFN_UP);
    x = op_glu(p->l, tensor_slice(both, 0, inner), tensor_slice(both, inner, inner), &p->m->spec.act);
    return pass_linear(p, pass_sum(p, pass_linear(p, x, ROLE_DOWN)), ROLE_BLOCK_OUT);
}

static struct tensor block(const struct pass *p, struct tensor x) {
    if (p->layer->mixer != MIX_SHARED) return pass_block(p, x);
    struct tensor seen = op_add(p->l, x, shared_block(p, x), NULL);
    return op_add(p->l, x, pass_mix(p, pass_norm(p, seen, &p->w[ROLE_MIX_NORM])), NULL);
}

const struct stream shared_stream = {.enter = enter, .block = block};
