/* Latent attention (MLA): a position keeps one compressed vector and one rotated key, shared by all heads.
 *
 * The matrix that would expand the latent into keys is applied to the queries instead, and the one that would expand it
 * into values is applied to what attention returns: both are per-head products, and attention itself runs over the cache
 * [latent | rotated key] as one head, whose values are the latent.
 */
#include "base/fmath.h"
#include "model/families.h"
#include "model/mixer.h"
#include "tensor/quant.h"

/* Whether a layer looks at what an earlier one chose: a list of words, a word of letters, or a period. */
static bool borrows_picks(const struct cfg *c, int32_t layer) {
    struct str letters = json_val_str(cfg_get(c, "index_topk_pattern"));
    yyjson_val *types = cfg_get(c, "indexer_types");
    int64_t period = 1, first = 2;
    if (yyjson_is_arr(types)) return str_is(json_val_str(yyjson_arr_get(types, (size_t)layer)), "shared");
    if (letters.p) return (size_t)layer < letters.n && letters.p[layer] == 'S';
    json_val_int(cfg_get(c, "index_topk_freq"), &period);
    json_val_int(cfg_get(c, "index_skip_topk_offset"), &first);
    return period > 1 && layer >= first && (layer - first + 1) % period != 0;
}

static int resolve_index(struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = &r->layers[layer];
    struct latent_spec *t = &r->spec->latent;
    const struct cfg *c = &r->cfg;
    TRY(cfg_int(c, "index_topk", 1, 1 << 20, 0, &t->index_k, err));
    if (t->index_k == 0) return ERR_OK;
    TRY(cfg_need(c, "index_n_heads", 1, 65536, &t->index_heads, err));
    TRY(cfg_need(c, "index_head_dim", t->rope, 4096, &t->index_width, err));
    l->borrows_picks = borrows_picks(c, layer);
    if (t->q_rank == 0) return err_set(err, ERR_EUNSUPPORTED, "%s: index_topk without q_lora_rank is not supported", c->file->name);
    if (l->borrows_picks && layer == 0) return err_set(err, ERR_EFORMAT, "%s: the first layer has no index to share", c->file->name);
    return l->borrows_picks ? ERR_OK
                            : resolve_kv(r, &(struct kv_class){.heads = 1, .k_width = t->index_width, .wide = 1}, &l->index_kv, err);
}

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = &r->layers[layer];
    struct latent_spec *t = &r->spec->latent;
    struct attn_spec *a = &l->attn;
    const struct cfg *c = &r->cfg;
    TRY(cfg_need(c, "num_attention_heads", 1, 65536, &a->heads, err));
    TRY(cfg_int(c, "q_lora_rank", 0, 1 << 20, 0, &t->q_rank, err));
    TRY(cfg_need(c, "kv_lora_rank", 1, 1 << 20, &t->kv_rank, err));
    TRY(cfg_need(c, "qk_nope_head_dim", 1, 1 << 16, &t->nope, err));
    TRY(cfg_need(c, "qk_rope_head_dim", 2, 1 << 16, &t->rope, err));
    TRY(cfg_int(c, "v_head_dim", 1, 1 << 16, r->spec->hidden / a->heads, &t->v_width, err));
    t->norm_eps = 1e-6f; /* not the model's */
    t->scale = 1.0f;
    t->index_rope = r->family->attn.index_rope;
    t->index_turns_last = r->family->attn.index_turns_last;
    t->index_eps = t->index_turns_last ? r->spec->norm.eps : 1e-6f;
    a->gate = r->family->attn.gate;
    a->kv_heads = 1;
    a->k_width = t->kv_rank + t->rope;
    a->v_width = t->kv_rank;
    a->rope = -1;
    a->scale = 1.0f / (float)sqrt((double)(t->nope + t->rope));
    if (r->family->attn.no_rope) return resolve_kv(r, &(struct kv_class){.heads = 1, .k_width = a->k_width}, &l->kv, err);
    TRY(resolve_rope(r, layer, t->rope, ROPE_WHOLE, &a->rope, err));
    struct rope_spec *rope = &r->spec->ropes[a->rope];
    if (!cfg_bool(c, "rope_interleave", true)) rope->kind = ROPE_HALF;
    a->scale = rope->score_scale / (float)sqrt((double)(t->nope + t->rope));
    if (r->family->attn.latents_grow) {
        t->scale = (float)sqrt((double)r->spec->hidden / t->kv_rank);
        if (t->q_rank) a->scale *= (float)sqrt((double)r->spec->hidden / t->q_rank);
    }
    a->pos_scale_beta = rope->pos_scale_beta;
    a->pos_scale_len = rope->pos_scale_len;
    TRY(resolve_index(r, layer, err));
    return resolve_kv(r, &(struct kv_class){.heads = 1, .k_width = a->k_width}, &l->kv, err);
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

/* The key part of kv_b_proj [heads, nope + v, rank], transposed per head to [rank, nope]. */
static int bind_absorbed_keys(struct loader *l, int32_t layer, struct err *err) {
    const struct latent_spec *t = &l->spec->latent;
    int64_t heads = l->spec->layers[layer].attn.heads, rank = t->kv_rank, nope = t->nope, all = nope + t->v_width;
    struct stack_part keys = {.role = ROLE_KV_B, .out = heads * nope, .run = nope, .step = all, .of = heads * all};
    struct cut_range own = loader_range(l, AXIS_HEADS, layer, heads);
    if (own.of) heads = own.n;
    size_t bytes = (size_t)(heads * rank * nope) * sizeof(float) + 1;
    struct weight_source shape = {
        .name = str_copy(l->arena, loader_path(l, ROLE_K_ABSORBED, layer)).p, .n_experts = (int32_t)heads, .out = rank, .in = nope};
    float *stored = mem_try(bytes), *turned = mem_try(bytes);
    int code = stored && turned ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for %s", shape.name);
    if (!code)
        code = loader_unpack(l, &(struct matrix_args){.into = ROLE_KV_B, .layer = layer, .parts = &keys, .n_parts = 1, .in = rank}, stored,
                             &shape.format.dtype, err);
    for (int64_t i = 0; i < heads * nope && !code; i++)
        for (int64_t c = 0; c < rank; c++) turned[(i / nope * rank + c) * nope + i % nope] = stored[i * rank + c];
    if (!code) code = loader_made(l, &shape, turned, &loader_slot(l, ROLE_K_ABSORBED, layer)->w, err);
    mem_free(stored);
    mem_free(turned);
    return code;
}

/* Both per-head matrices: kept apart by some converters, else cut out of kv_b_proj. */
static int bind_absorbed(struct loader *l, int32_t layer, struct err *err) {
    const struct latent_spec *t = &l->spec->latent;
    int32_t heads = l->spec->layers[layer].attn.heads;
    struct stack_part part = {.role = ROLE_K_ABSORBED, .out = t->kv_rank};
    struct matrix_args a = {.into = ROLE_K_ABSORBED, .layer = layer, .parts = &part, .n_parts = 1, .in = t->nope, .n_experts = heads};
    if (loader_has(l, ROLE_K_ABSORBED, layer)) {
        TRY(loader_assemble(l, &a, err));
        part = (struct stack_part){.role = ROLE_V_ABSORBED, .out = t->v_width};
    } else {
        TRY(bind_absorbed_keys(l, layer, err));
        part =
            (struct stack_part){.role = ROLE_KV_B, .as = ROLE_V_ABSORBED, .out = t->v_width, .from = t->nope, .of = t->nope + t->v_width};
    }
    a.into = ROLE_V_ABSORBED, a.in = t->kv_rank;
    return loader_assemble(l, &a, err);
}

static int bind_index(struct loader *l, int32_t layer, struct err *err) {
    const struct latent_spec *t = &l->spec->latent;
    if (t->index_k == 0 || l->spec->layers[layer].borrows_picks) return ERR_OK;
    TRY(loader_matrix(l, ROLE_INDEX_Q, layer, (int64_t)t->index_heads * t->index_width, t->q_rank, err));
    TRY(loader_matrix(l, ROLE_INDEX_K, layer, t->index_width, l->spec->hidden, err));
    TRY(loader_vector(l, ROLE_INDEX_K_NORM, layer, t->index_width, true, err));
    return loader_matrix(l, ROLE_INDEX_WEIGHTS, layer, t->index_heads, l->spec->hidden, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct latent_spec *t = &l->spec->latent;
    int64_t hidden = l->spec->hidden, heads = l->spec->layers[layer].attn.heads, q = heads * (t->nope + t->rope);
    if (t->q_rank) {
        TRY(loader_stack(l, ROLE_Q_A,
                         (struct stack_part[]){{.role = ROLE_Q_A, .out = t->q_rank}, {.role = ROLE_KV_A, .out = t->kv_rank + t->rope}}, 2,
                         layer, hidden, err));
        TRY(loader_vector(l, ROLE_Q_A_NORM, layer, t->q_rank, true, err));
        TRY(loader_matrix(l, ROLE_Q_B, layer, q, t->q_rank, err));
    } else {
        TRY(loader_stack(l, ROLE_Q, (struct stack_part[]){{.role = ROLE_Q, .out = q}, {.role = ROLE_KV_A, .out = t->kv_rank + t->rope}}, 2,
                         layer, hidden, err));
    }
    TRY(loader_vector(l, ROLE_KV_A_NORM, layer, t->kv_rank, true, err));
    TRY(bind_absorbed(l, layer, err));
    TRY(bind_index(l, layer, err));
    enum attn_gate gate = l->spec->layers[layer].attn.gate;
    if (gate) TRY(loader_matrix(l, ROLE_ATTN_GATE, layer, gate == ATTN_GATE_HEAD ? heads : heads * t->v_width, hidden, err));
    TRY(loader_vector(l, ROLE_SINKS, layer, heads, false, err));
    return loader_matrix(l, ROLE_O, layer, hidden, heads * t->v_width, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static struct tensor norm(const struct pass *p, struct tensor x, enum role role) {
    return op_norm(p->l, x, &(struct norm_args){.weight = p->w[role].w, .kind = NORM_RMS, .eps = p->m->spec.latent.norm_eps});
}

/* The first or the last part of an index's head is turned like the positions' keys. */
static struct tensor index_rope(const struct pass *p, struct tensor x) {
    const struct rope_spec *r = &p->m->spec.ropes[p->layer->attn.rope];
    enum rope_kind own = p->m->spec.latent.index_rope;
    return op_rope(p->l, x,
                   &(struct rope_args){.inv_freq = p->m->weights.ropes[p->layer->attn.rope],
                                       .kind = own ? own : r->kind,
                                       .first = p->m->spec.latent.index_turns_last ? x.width - r->n_rotated : 0,
                                       .n_rotated = r->n_rotated,
                                       .magnitude = r->magnitude,
                                       .table = r->table});
}

/* The positions that the rows look at, by queries from their latent and keys of the index's own. Wide: a choice magnifies rounding. */
static void pick(const struct pass *p, struct tensor x, struct tensor q_latent) {
    const struct latent_spec *t = &p->m->spec.latent;
    const struct bound *norm = &p->w[ROLE_INDEX_K_NORM];
    if (t->index_k == 0 || p->layer->borrows_picks) return;
    struct tensor k = op_norm(p->l, pass_linear_wide(p, x, ROLE_INDEX_K),
                              &(struct norm_args){.weight = norm->w, .bias = norm->bias, .kind = NORM_LAYER, .eps = t->index_eps});
    op_kv_write(p->l, index_rope(p, k), (struct tensor){0}, p->layer->index_kv);
    struct tensor q = index_rope(p, tensor_split_heads(pass_linear_wide(p, q_latent, ROLE_INDEX_Q), t->index_heads));
    struct tensor weights = pass_linear_wide(p, x, ROLE_INDEX_WEIGHTS);
    *p->picks = op_pick(p->l, q, weights, &(struct pick_args){.kv = p->layer->index_kv, .k = t->index_k});
}

/* Queries [rows, heads, nope + rope] and the compressed position [rows, 1, rank + rope]. */
static void project(const struct pass *p, struct tensor x, struct tensor *q, struct tensor *kv) {
    const struct latent_spec *t = &p->m->spec.latent;
    enum role first = t->q_rank ? ROLE_Q_A : ROLE_Q;
    int32_t q_width = t->q_rank ? t->q_rank : p->layer->attn.heads * (t->nope + t->rope);
    struct tensor both = pass_linear(p, x, first);
    bool stacked = both.width > q_width; /* the formats agreed */
    *q = tensor_slice(both, 0, q_width);
    *kv = stacked ? tensor_slice(both, q_width, t->kv_rank + t->rope) : pass_linear(p, x, ROLE_KV_A);
    if (t->q_rank) {
        struct tensor latent = norm(p, *q, ROLE_Q_A_NORM);
        pick(p, x, latent);
        *q = pass_linear(p, latent, ROLE_Q_B);
    }
    *q = tensor_split_heads(*q, p->layer->attn.heads);
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct latent_spec *t = &p->m->spec.latent;
    struct tensor q, kv;
    project(p, x, &q, &kv);
    struct tensor latent = norm(p, tensor_slice(kv, 0, t->kv_rank), ROLE_KV_A_NORM);
    if (t->scale != 1.0f) latent = op_act(p->l, latent, &(struct act_args){.kind = ACT_NONE, .scale = t->scale});
    op_kv_write(p->l, op_concat(p->l, latent, pass_rope(p, tensor_slice(kv, t->kv_rank, t->rope))), (struct tensor){0}, p->layer->kv);
    struct tensor absorbed = op_head_linear(p->l, tensor_slice(q, 0, t->nope), &(struct linear_args){.weight = p->w[ROLE_K_ABSORBED].w});
    q = op_concat(p->l, absorbed, pass_rope(p, tensor_slice(q, t->nope, t->rope)));
    const struct attn_spec *a = &p->layer->attn;
    struct attn_args attn = {.kv = p->layer->kv,
                             .sinks = p->w[ROLE_SINKS].w,
                             .scale = a->scale,
                             .v_width = t->kv_rank,
                             .pos_scale_beta = a->pos_scale_beta,
                             .pos_scale_len = a->pos_scale_len};
    struct tensor mixed = op_attn_picked(p->l, q, t->index_k ? *p->picks : (struct tensor){0}, &attn);
    mixed = op_head_linear(p->l, mixed, &(struct linear_args){.weight = p->w[ROLE_V_ABSORBED].w});
    if (p->w[ROLE_ATTN_GATE].w) {
        struct tensor gate = op_act(p->l, pass_linear(p, x, ROLE_ATTN_GATE), &(struct act_args){.kind = ACT_SIGMOID, .scale = 1.0f});
        mixed = op_glu(p->l, mixed, tensor_split_heads(gate, a->heads), &(struct act_args){.kind = ACT_NONE, .scale = 1.0f});
    }
    return pass_linear(p, tensor_join_heads(mixed), ROLE_O);
}

const struct mixer latent_mixer = {.name = "latent attention", .resolve = resolve, .bind = bind, .mix = mix};
