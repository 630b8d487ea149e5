/* Attention to a window, and to compressed entries of all that was before: one head of keys, which are the values too. Every few positions become one entry; of
 * those a row sees all, or the ones that an index of its own chooses. Queries, keys and entries are turned by their position, and what attention returns is turned
 * back by the row's. */
#include "model/families.h"
#include "model/mixer.h"

#include <math.h>

/* ---- resolving ---------------------------------------------------------------------------------------------------- */

enum { ROPE_MAIN, ROPE_COMPRESS };

/* The share of a head that is turned. */
static int share_of(const struct resolver *r, int32_t width, double *out, struct err *err) {
    float share;
    int32_t turned;
    TRY(cfg_num(&r->cfg, "partial_rotary_factor", 0, &share, err));
    TRY(cfg_int(&r->cfg, "qk_rope_head_dim", 2, width, width / 8, &turned, err));
    *out = share > 0 ? (double)share : (double)turned / width;
    return ERR_OK;
}

/* A table for layers with a window alone, one for the others; the flat dialect scales the second only. Its negative stands behind it. */
static int add_rope(struct resolver *r, int32_t which, int32_t width, int32_t *out, struct err *err) {
    static const char *const words[] = {"main", "compress"};
    struct spec *s = r->spec;
    struct config_rope params;
    float theta;
    double share;
    TRY(share_of(r, width, &share, err));
    TRY(cfg_num(&r->cfg, which == ROPE_MAIN ? "rope_theta" : "compress_rope_theta", 10000, &theta, err));
    TRY(config_rope(r->cfg.file, &(struct rope_ask){.layer_type = words[which], .theta = (double)theta}, &params, err));
    if (!params.is_nested) {
        if (which == ROPE_MAIN) params = (struct config_rope){.type = STR("default"), .factor = 1};
        params.theta = (double)theta, params.partial = share;
    }
    struct rope_spec table = {.kind = ROPE_PAIR};
    TRY(rope_resolve(r->arena, &r->cfg, &params, width, &table, err));
    table.first = width - table.n_rotated;
    if (table.scaling == SCALE_YARN && !yyjson_is_num(json_get(params.raw, "attention_factor"))) table.magnitude = 1.0f;
    if (table.scaling == SCALE_DYNAMIC || table.scaling == SCALE_LONGROPE)
        return err_set(err, ERR_EUNSUPPORTED, "%s: rope that depends on the length is not supported here", r->cfg.file->name);
    *out = s->n_ropes;
    s->ropes[s->n_ropes++] = table;
    float *back = arena_new(r->arena, float, width / 2 + 1);
    for (int32_t i = 0; i < table.n_rotated / 2; i++) back[i] = -table.inv_freq[i];
    table.inv_freq = back;
    s->ropes[s->n_ropes++] = table;
    return ERR_OK;
}

static int resolve_sizes(struct resolver *r, struct err *err) {
    struct compressed_spec *t = &r->spec->compressed;
    const struct cfg *c = &r->cfg;
    TRY(cfg_need(c, "head_dim", 2, 4096, &t->width, err));
    TRY(cfg_need(c, "q_lora_rank", 1, 1 << 20, &t->q_rank, err));
    TRY(cfg_need(c, "o_groups", 1, 65536, &t->groups, err));
    TRY(cfg_need(c, "o_lora_rank", 1, 1 << 20, &t->group_rank, err));
    TRY(cfg_need(c, "index_n_heads", 1, 65536, &t->index_heads, err));
    TRY(cfg_need(c, "index_head_dim", 2, 4096, &t->index_width, err));
    TRY(cfg_need(c, "index_topk", 1, 1 << 20, &t->index_k, err));
    TRY(add_rope(r, ROPE_MAIN, t->width, &t->ropes[ROPE_MAIN], err));
    return add_rope(r, ROPE_COMPRESS, t->width, &t->ropes[ROPE_COMPRESS], err);
}

/* How many positions an entry stands for, in either dialect. */
static int every_of(const struct cfg *c, bool picks, int32_t *out, struct err *err) {
    int32_t usual;
    TRY(cfg_int(c, picks ? "compress_rate_csa" : "compress_rate_hca", 1, 1 << 16, picks ? 4 : 128, &usual, err));
    return cfg_int(c, picks ? "compress_rates.compressed_sparse_attention" : "compress_rates.heavily_compressed_attention", 1, 1 << 16,
                   usual, out, err);
}

static int resolve_entries(struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = &r->layers[layer];
    const struct compressed_spec *t = &r->spec->compressed;
    int32_t state;
    l->picks_entries = l->kind == 'P';
    if (l->kind == 'A') return ERR_OK;
    TRY(every_of(&r->cfg, l->picks_entries, &l->every, err));
    int64_t taps = (int64_t)l->every * (l->picks_entries ? 2 : 1), series = l->picks_entries ? 2 : 1;
    TRY(resolve_kv(r, &(struct kv_class){.heads = 1, .k_width = t->width}, &l->more_kv, err));
    TRY(resolve_state(r, (taps - 1) * 2 * series * t->width, &l->state, err));
    if (!l->picks_entries) return ERR_OK;
    TRY(resolve_kv(r, &(struct kv_class){.heads = 1, .k_width = t->index_width, .wide = 1}, &l->index_kv, err));
    return resolve_state(r, (taps - 1) * 2 * series * t->index_width, &state, err);
}

/* Whether a layer's experts are a table's choice, by token. */
static int resolve_table(struct resolver *r, int32_t layer, struct err *err) {
    yyjson_val *types;
    int32_t n;
    TRY(cfg_list(&r->cfg, "mlp_layer_types", r->spec->n_layers, &types, err));
    TRY(cfg_int(&r->cfg, "num_hash_layers", 0, 1 << 20, 3, &n, err));
    r->layers[layer].by_token = types ? str_is(json_val_str(yyjson_arr_get(types, (size_t)layer)), "hash_moe") : layer < n;
    return ERR_OK;
}

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = &r->layers[layer];
    struct attn_spec *a = &l->attn;
    const struct compressed_spec *t = &r->spec->compressed;
    if (layer == 0) TRY(resolve_sizes(r, err));
    TRY(cfg_need(&r->cfg, "num_attention_heads", 1, 65536, &a->heads, err));
    TRY(cfg_need(&r->cfg, "sliding_window", 1, INT32_MAX, &a->window, err));
    if (a->heads % t->groups)
        return err_set(err, ERR_EFORMAT, "%s: num_attention_heads %d is no multiple of o_groups %d", r->cfg.file->name, a->heads,
                       t->groups);
    a->kv_heads = 1;
    a->k_width = a->v_width = t->width;
    a->scale = 1.0f / (float)sqrt((double)t->width);
    a->rope = t->ropes[l->kind == 'A' ? ROPE_MAIN : ROPE_COMPRESS];
    TRY(resolve_table(r, layer, err));
    TRY(resolve_kv(r, &(struct kv_class){.heads = 1, .k_width = t->width, .window = a->window}, &l->kv, err));
    return resolve_entries(r, layer, err);
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

/* Values and scores on top of each other; the bias of each place of a window; the norm of the entry. The roles follow each other. */
static int bind_entries(struct loader *l, int32_t layer, enum role values, int32_t width, struct err *err) {
    enum role scores = values + 1, bias = values + 2, norm = values + 3;
    const struct layer_spec *ls = &l->spec->layers[layer];
    int64_t channels = (int64_t)width * (ls->picks_entries ? 2 : 1);
    TRY(loader_stack(l, values, (struct stack_part[]){{.role = values, .out = channels}, {.role = scores, .out = channels}}, 2, layer,
                     l->spec->hidden, err));
    TRY(loader_vector(l, bias, layer, ls->every * channels, true, err));
    return loader_vector(l, norm, layer, width, true, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct compressed_spec *t = &l->spec->compressed;
    const struct layer_spec *ls = &l->spec->layers[layer];
    int64_t hidden = l->spec->hidden, q = (int64_t)ls->attn.heads * t->width;
    TRY(loader_matrix(l, ROLE_Q_A, layer, t->q_rank, hidden, err));
    TRY(loader_vector(l, ROLE_Q_A_NORM, layer, t->q_rank, true, err));
    TRY(loader_matrix(l, ROLE_Q_B, layer, q, t->q_rank, err));
    TRY(loader_matrix(l, ROLE_KV_A, layer, t->width, hidden, err));
    TRY(loader_vector(l, ROLE_KV_A_NORM, layer, t->width, true, err));
    TRY(loader_vector(l, ROLE_SINKS, layer, ls->attn.heads, true, err));
    struct stack_part part = {.role = ROLE_O_GROUPS, .out = t->group_rank};
    struct matrix_args groups = {
        .into = ROLE_O_GROUPS, .layer = layer, .parts = &part, .n_parts = 1, .in = q / t->groups, .n_experts = t->groups};
    TRY(loader_assemble(l, &groups, err));
    TRY(loader_matrix(l, ROLE_O, layer, hidden, (int64_t)t->groups * t->group_rank, err));
    if (!ls->every) return ERR_OK;
    TRY(bind_entries(l, layer, ROLE_ENTRY_VALUES, t->width, err));
    if (!ls->picks_entries) return ERR_OK;
    TRY(bind_entries(l, layer, ROLE_INDEX_VALUES, t->index_width, err));
    TRY(loader_matrix(l, ROLE_INDEX_Q, layer, (int64_t)t->index_heads * t->index_width, t->q_rank, err));
    return loader_matrix(l, ROLE_INDEX_WEIGHTS, layer, t->index_heads, hidden, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static struct tensor norm(const struct pass *p, struct tensor x, const struct weight *weight) {
    return op_norm(p->l, x, &(struct norm_args){.weight = weight, .kind = NORM_RMS, .eps = p->m->spec.norm.eps});
}

/* The last part of each head by a table; table + 1 turns back. */
static struct tensor turn(const struct pass *p, struct tensor x, int32_t table, int32_t shift) {
    const struct rope_spec *r = &p->m->spec.ropes[table];
    return op_rope(p->l, x,
                   &(struct rope_args){.inv_freq = p->m->weights.ropes[table],
                                       .kind = r->kind,
                                       .first = x.width - r->n_rotated,
                                       .n_rotated = r->n_rotated,
                                       .shift = shift,
                                       .magnitude = r->magnitude,
                                       .table = r->table});
}

/* What the positions of a window become, turned by the first one's. Wide: weights and choices hang on it. */
static void write_entries(const struct pass *p, struct tensor x, enum role values, int32_t width, int32_t state, struct kv_ref kv) {
    const struct layer_spec *l = p->layer;
    int32_t channels = 2 * width * (l->picks_entries ? 2 : 1);
    struct tensor both = pass_linear_wide(p, x, values);
    if (both.width < channels) both = op_concat(p->l, both, pass_linear_wide(p, x, values + 1)); /* their formats differ */
    struct compress_args args = {
        .bias = p->w[values + 2].w, .every = l->every, .width = width, .state = state, .overlaps = l->picks_entries};
    struct tensor entry = norm(p, op_compress(p->l, both, &args), p->w[values + 3].w);
    op_kv_write(p->l, turn(p, entry, l->attn.rope, 1 - l->every), (struct tensor){0}, kv);
}

static struct tensor pick(const struct pass *p, struct tensor x, struct tensor latent) {
    const struct compressed_spec *t = &p->m->spec.compressed;
    const struct layer_spec *l = p->layer;
    write_entries(p, x, ROLE_INDEX_VALUES, t->index_width, l->state + 1, l->index_kv);
    struct tensor q = turn(p, tensor_split_heads(pass_linear_wide(p, latent, ROLE_INDEX_Q), t->index_heads), l->attn.rope, 0);
    return op_pick(p->l, q, pass_linear_wide(p, x, ROLE_INDEX_WEIGHTS),
                   &(struct pick_args){.kv = l->index_kv, .k = t->index_k, .every = l->every});
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct compressed_spec *t = &p->m->spec.compressed;
    const struct layer_spec *l = p->layer;
    struct tensor latent = norm(p, pass_linear(p, x, ROLE_Q_A), p->w[ROLE_Q_A_NORM].w), y;
    struct tensor q = norm(p, tensor_split_heads(pass_linear(p, latent, ROLE_Q_B), l->attn.heads), NULL);
    q = turn(p, q, l->attn.rope, 0);
    struct tensor kv = turn(p, norm(p, pass_linear(p, x, ROLE_KV_A), p->w[ROLE_KV_A_NORM].w), l->attn.rope, 0);
    op_kv_write(p->l, kv, (struct tensor){0}, l->kv);
    struct attn_args args = {
        .kv = l->kv, .sinks = p->w[ROLE_SINKS].w, .scale = l->attn.scale, .window = l->attn.window, .v_width = t->width};
    if (l->every) {
        args.more = l->more_kv, args.every = l->every;
        write_entries(p, x, ROLE_ENTRY_VALUES, t->width, l->state, l->more_kv);
        y = op_attn_more(p->l, q, l->picks_entries ? pick(p, x, latent) : (struct tensor){0}, &args);
    } else {
        y = op_attn(p->l, q, &args);
    }
    y = tensor_join_heads(turn(p, y, l->attn.rope + 1, 0));
    y = op_head_linear(p->l, tensor_split_heads(y, t->groups), &(struct linear_args){.weight = p->w[ROLE_O_GROUPS].w});
    return pass_linear(p, tensor_join_heads(y), ROLE_O);
}

const struct mixer compressed_mixer = {.name = "compressed attention", .resolve = resolve, .bind = bind, .mix = mix};
