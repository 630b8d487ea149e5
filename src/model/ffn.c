/* The feed-forward half of a block: gated or plain, dense or of experts, with or without a shared expert. */
#include "base/fmath.h"
#include "model/families.h"

/* ---- resolving ---------------------------------------------------------------------------------------------------- */

/* Whether "3,4,5" has a number. */
static bool text_has(struct str list, int32_t number) {
    struct str item;
    int64_t value;
    while (str_split_next(&list, ',', &item))
        if (str_to_int64(str_trim(item), &value) && value == number) return true;
    return false;
}

/* Several dialects say which layers have experts; each key that is there must agree. */
static int is_sparse(const struct cfg *c, int32_t layer, int32_t n_layers, bool *out, struct err *err) {
    yyjson_val *types;
    int32_t first, last, step, offset;
    TRY(cfg_list(c, "mlp_layer_types", n_layers, &types, err));
    TRY(cfg_int(c, "first_k_dense_replace", 0, 1 << 20, 0, &first, err));
    TRY(cfg_int(c, "moe_layer_end_index", -1, 1 << 20, -1, &last, err));
    TRY(cfg_int(c, "decoder_sparse_step", 1, 1 << 20, 1, &step, err));
    TRY(cfg_int(c, "expert_layer_offset", 0, 1 << 20, step - 1, &offset, err));
    if (types) *out = !str_is(json_val_str(yyjson_arr_get(types, (size_t)layer)), "dense");
    else if (json_val_str(cfg_get(c, "moe_layers_enum")).p) *out = text_has(json_val_str(cfg_get(c, "moe_layers_enum")), layer);
    else if (yyjson_is_arr(cfg_get(c, "moe_layers"))) *out = cfg_list_has(c, "moe_layers", layer);
    else if (yyjson_is_arr(cfg_get(c, "moe_layer_freq")))
        *out = yyjson_get_num(yyjson_arr_get(cfg_get(c, "moe_layer_freq"), (size_t)layer)) != 0;
    else *out = layer >= first && (last < 0 || layer <= last) && layer % step == offset && !cfg_list_has(c, "mlp_only_layers", layer);
    return ERR_OK;
}

static int resolve_groups(const struct cfg *c, const struct moe_spec *m, struct route_args *route, struct err *err) {
    TRY(cfg_int(c, "n_group", 0, 65536, 0, &route->n_groups, err));
    TRY(cfg_int(c, "topk_group", 0, 65536, 0, &route->top_groups, err));
    if (str_is(cfg_str(c, "topk_method", (struct str){0}), "greedy")) route->n_groups = 0;
    if (route->n_groups <= 1) {
        route->n_groups = route->top_groups = route->group_top2 = 0;
        return ERR_OK;
    }
    int32_t size = m->n_experts / route->n_groups;
    if (m->n_experts % route->n_groups || route->top_groups < 1 || route->top_groups > route->n_groups ||
        size < (route->group_top2 ? 2 : 1) || size * route->top_groups < route->k)
        return err_set(err, ERR_EFORMAT, "%s: %d experts in n_group %d with topk_group %d cannot give %d experts per token", c->file->name,
                       m->n_experts, route->n_groups, route->top_groups, route->k);
    return ERR_OK;
}

static int resolve_passing(const struct cfg *c, struct moe_spec *m, struct err *err) {
    struct str type = cfg_str(c, "zero_expert_type", STR("identity"));
    TRY(cfg_int(c, "zero_expert_num", 0, 65536, 0, &m->n_passing, err));
    if (m->n_passing == 0 || str_is(type, "identity")) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: zero_expert_type is \"%.*s\"; experts without matrices are supported as \"identity\"",
                   c->file->name, STR_ARG(type));
}

static int resolve_route(struct resolver *r, struct moe_spec *m, struct err *err) {
    static const char *const keys[] = {"num_experts_per_tok", "num_experts_per_token", "moe_top_k"};
    const struct moe_row *row = &r->family->moe;
    const struct cfg *c = &r->cfg;
    struct route_args *route = &m->route;
    *route = (struct route_args){.score = row->score, .group_top2 = row->group_top2, .norm_eps = row->norm_eps};
    const char *key = cfg_first(c, keys, sizeof keys / sizeof *keys);
    TRY(cfg_int_at(c, key, 0, 1, 65536, 0, &route->k, err));
    if (route->k < 1 || route->k > m->n_experts)
        return err_set(err, ERR_EFORMAT, "%s: %s is %d of %d experts", c->file->name, cfg_key(c, key), route->k, m->n_experts);
    route->normalize = row->normalize || cfg_bool(c, "norm_topk_prob", false);
    static const char *const scores[] = {"expert_selection_fn", "score_function"};
    if (str_is(cfg_str(c, cfg_first(c, scores, 2), (struct str){0}), "sigmoid")) route->score = ROUTE_SIGMOID;
    m->score_act = row->score_act;
    struct str scoring = cfg_str(c, "scoring_func", (struct str){0});
    if (row->score_act && scoring.p && !str_is(scoring, "sqrtsoftplus"))
        return err_set(err, ERR_EUNSUPPORTED, "%s: scoring_func \"%.*s\" is not supported; \"sqrtsoftplus\" is", c->file->name,
                       STR_ARG(scoring));
    TRY(cfg_num(c, "routed_scaling_factor", 1.0, &route->scale, err));
    if (row->score == ROUTE_SPARSEMIXER) TRY(cfg_num(c, "router_jitter_noise", 0.01, &route->jitter, err));
    return resolve_groups(c, m, route, err);
}

/* The number of experts goes by several names; 0: none of them is there. */
static int n_experts_of(const struct cfg *c, int32_t *out, struct err *err) {
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"};
    return cfg_int_at(c, cfg_first(c, keys, sizeof keys / sizeof *keys), 0, 0, 65536, 0, out, err);
}

int resolve_experts(struct resolver *r, struct err *err) {
    struct moe_spec *m = &r->spec->moe;
    const struct cfg *c = &r->cfg;
    int32_t n_shared;
    TRY(n_experts_of(c, &m->n_experts, err));
    TRY(resolve_passing(c, m, err));
    if (m->n_experts <= 1) { /* one expert is a dense layer */
        m->n_experts = 0;
        return ERR_OK;
    }
    m->kind = r->family->moe.is_plain ? FFN_PLAIN : FFN_GATED;
    m->act = r->spec->act;
    m->scale_input = r->family->moe.scale_input;
    m->shared_gate = r->family->moe.shared_gate;
    m->has_bias = r->family->moe.bias && cfg_bool(c, "use_expert_bias", true);
    TRY(cfg_int_at(c, "moe_intermediate_size", 0, 1, 1 << 24, 0, &m->inner, err));
    TRY(cfg_int(c, "moe_latent_size", 1, 1 << 20, 0, &m->latent, err));
    if (m->inner == 0) return err_set(err, ERR_EFORMAT, "%s: %s is missing", c->file->name, cfg_key(c, "moe_intermediate_size"));
    TRY(cfg_int_at(c, "n_shared_experts", 0, 0, 1024, r->family->moe.n_shared, &n_shared, err));
    int32_t each;
    TRY(cfg_int(c, "shared_expert_each", 1, 1 << 24, m->inner, &each, err));
    TRY(cfg_int(c, "shared_expert_intermediate_size", 0, 1 << 24, (int64_t)n_shared * each, &m->shared_inner, err));
    m->sum_scale = str_is(cfg_str(c, "shared_expert_combination_strategy", (struct str){0}), "average") ? 0.5f : 1.0f;
    return resolve_route(r, m, err);
}

/* Most files say it; one family's rule makes it from another number, and where all experts are left out the shared one stays. */
static int resolve_inner(struct resolver *r, int32_t layer, int32_t *out, struct err *err) {
    const struct cfg *c = &r->cfg;
    float factor;
    int32_t multiple;
    TRY(cfg_int_at(c, "intermediate_size", layer, 1, 1 << 24, (int64_t)r->spec->hidden * 4, out, err));
    if (r->family->flags & FAM_INNER_HALVED) *out /= 2;
    if (r->family->ffn == FFN_EXPERTS && r->spec->moe.n_experts == 0)
        TRY(cfg_int(c, "shared_expert_intermediate_size", 0, 1 << 24, *out, out, err));
    if (!cfg_bool(c, "block_auto_adjust_ff_dim", false)) return ERR_OK;
    TRY(cfg_num(c, "block_ffn_dim_multiplier", 1.0, &factor, err));
    TRY(cfg_int(c, "block_multiple_of", 1, 1 << 20, 256, &multiple, err));
    TRY(cfg_int(c, "block_ff_dim", 1, 1 << 24, *out, out, err));
    if (!(factor > 0 && factor < 64))
        return err_set(err, ERR_EFORMAT, "%s: block_ffn_dim_multiplier must be above 0 and below 64", c->file->name);
    int64_t n = (int64_t)((double)factor * (double)(*out * (int64_t)2 / 3));
    *out = (int32_t)((n + multiple - 1) / multiple * multiple);
    return ERR_OK;
}

/* Lists with one number per layer; 0 and null mean none. */
static int resolve_limits(struct resolver *r, struct err *err) {
    yyjson_val *own, *shared;
    int32_t n = r->spec->n_layers;
    TRY(cfg_list(&r->cfg, "swiglu_limits", n, &own, err));
    TRY(cfg_list(&r->cfg, "swiglu_limits_shared", n, &shared, err));
    for (int32_t i = 0; i < n; i++) {
        r->layers[i].expert_limit = (float)yyjson_get_num(yyjson_arr_get(own, (size_t)i));
        r->layers[i].limit = (float)yyjson_get_num(yyjson_arr_get(shared, (size_t)i));
    }
    r->spec->moe.limits_first = r->family->moe.limits_first;
    for (int32_t i = 0; i < n && r->family->moe.limits_first; i++)
        TRY(cfg_num(&r->cfg, "swiglu_limit", 0, &r->layers[i].expert_limit, err));
    for (int32_t i = 0; i < n && r->family->moe.limits_shared; i++) r->layers[i].limit = r->layers[i].expert_limit;
    return ERR_OK;
}

int resolve_ffn(struct resolver *r, struct err *err) {
    struct spec *s = r->spec;
    bool has_experts = r->family->ffn == FFN_EXPERTS;
    TRY(resolve_limits(r, err));
    if (has_experts) TRY(resolve_experts(r, err));
    for (int32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &r->layers[i];
        bool sparse = false;
        if (l->ffn == FFN_NONE) continue;
        if (has_experts && s->moe.n_experts) TRY(is_sparse(&r->cfg, i, s->n_layers, &sparse, err));
        if (l->mixer == MIX_NONE) sparse = l->kind == 'E';
        l->ffn = sparse ? FFN_EXPERTS : !has_experts ? r->family->ffn : r->family->moe.is_plain ? FFN_PLAIN : FFN_GATED;
        TRY(resolve_inner(r, i, &l->inner, err));
    }
    return ERR_OK;
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

struct dense_roles {
    enum role gate, up, gate_up, down;
};

static const struct dense_roles own_roles = {ROLE_GATE, ROLE_UP, ROLE_GATE_UP, ROLE_DOWN};
static const struct dense_roles shared_roles = {ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_GATE_UP, ROLE_SHARED_DOWN};

static int bind_dense(struct loader *l, int32_t layer, const struct dense_roles *d, enum ffn_kind kind, int64_t inner, struct err *err) {
    int64_t hidden = l->spec->hidden;
    if (kind == FFN_PLAIN) TRY(loader_matrix(l, d->up, layer, inner, hidden, err));
    else if (l->spec->family->flags & FAM_UP_FIRST && loader_has(l, d->gate_up, layer))
        TRY(loader_stack(l, d->gate_up,
                         (struct stack_part[]){{.role = d->gate_up, .as = d->gate, .out = inner, .from = inner, .of = 2 * inner},
                                               {.role = d->gate_up, .as = d->up, .out = inner, .of = 2 * inner}},
                         2, layer, hidden, err));
    else if (loader_has(l, d->gate_up, layer))
        TRY(loader_stack(l, d->gate_up,
                         (struct stack_part[]){{.role = d->gate_up, .as = d->gate, .out = inner, .of = 2 * inner},
                                               {.role = d->gate_up, .as = d->up, .out = inner, .from = inner, .of = 2 * inner}},
                         2, layer, hidden, err));
    else
        TRY(loader_stack(l, d->gate_up, (struct stack_part[]){{.role = d->gate, .out = inner}, {.role = d->up, .out = inner}}, 2, layer,
                         hidden, err));
    return loader_matrix(l, d->down, layer, hidden, inner, err);
}

/* Whether stacked experts are stored [expert, in, out]: their shape says so, and where it is square the family's row. */
static bool experts_transposed(struct loader *l, int32_t layer, int64_t out, int64_t in) {
    struct str path;
    struct tensor_info t;
    if (!loader_find(l, ROLE_EXPERT_GATE_UP, layer, &path) || !loader_tensor_values(l, path, -1, &t) || t.n_dims != 3) return false;
    return out == in ? l->spec->family->moe.is_transposed : t.shape[1] == in && t.shape[2] == out;
}

/* n experts behind those of the model, which the file has all the same. */
static void ignore_experts(struct loader *l, int32_t layer, int32_t n) {
    static const enum role roles[] = {ROLE_EXPERT_GATE, ROLE_EXPERT_UP, ROLE_EXPERT_DOWN};
    struct str path;
    struct tensor_info t;
    int32_t first = l->spec->moe.n_experts;
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        for (int32_t i = first; loader_find(l, roles[k], layer, &path) && i < first + n; i++) loader_tensor(l, path, ".weight", i, &t);
}

/* Experts for images, and what chooses among them: text has no use for them. */
static void ignore_images(struct loader *l, int32_t layer) {
    struct str path;
    struct tensor_info t;
    if (loader_find(l, ROLE_ROUTER, layer, &path)) loader_tensor(l, path, ".weight_1", -1, &t);
    ignore_experts(l, layer, l->spec->moe.n_experts);
}

/* The router of a file that has one for images, too. */
static int bind_text_router(struct loader *l, int32_t layer, struct err *err) {
    int32_t n = l->spec->moe.n_experts;
    struct stack_part part = {.role = ROLE_ROUTER, .out = n};
    struct matrix_args a = {
        .into = ROLE_ROUTER, .layer = layer, .parts = &part, .n_parts = 1, .in = l->spec->hidden, .is_transposed = true};
    float *biases = arena_new(&l->scratch, float, 2 * n);
    TRY(loader_assemble(l, &a, err));
    TRY(loader_values(l, ROLE_ROUTER_BIAS, layer, "", 2 * (int64_t)n, biases, err));
    ignore_images(l, layer);
    return loader_constant(l, "biases", biases, n, &loader_slot(l, ROLE_ROUTER_BIAS, layer)->w, err);
}

/* The n whole numbers of a role's tensor, of either width. */
static int read_whole(struct loader *l, enum role role, int32_t layer, int64_t n, int64_t *out, struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!loader_find(l, role, layer, &path) || !loader_tensor_values(l, path, -1, &t)) return loader_missing(l, role, layer, err);
    if ((t.dtype != DT_I64 && t.dtype != DT_I32) || loader_tensor_elements(&t, t.n_dims) != n)
        return err_set(err, ERR_EFORMAT, "%.*s is no table of %lld whole numbers, I32 or I64", STR_ARG(t.name), (long long)n);
    TRY(l->store->read(l->store->user, &t, 0, out, (size_t)n * (size_t)dtype_bits(t.dtype) / 8, err));
    for (int64_t i = n - 1; t.dtype == DT_I32 && i >= 0; i--) { /* from the last: a wide number takes the place of two */
        int32_t narrow;
        memcpy(&narrow, (const char *)out + i * 4, sizeof narrow);
        out[i] = narrow;
    }
    return ERR_OK;
}

/* 1 for each expert that the file's table has for a token, else 0: [vocab, experts]. */
static int bind_table(struct loader *l, int32_t layer, struct err *err) {
    const struct spec *s = l->spec;
    int64_t k = s->moe.route.k, n = s->moe.n_experts;
    int64_t *ids = mem_try((size_t)(s->vocab * k) * sizeof *ids);
    float *table = mem_try((size_t)(s->vocab * n) * sizeof *table);
    int code = ids && table ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for the table of experts by token");
    if (!code) code = read_whole(l, ROLE_ROUTER_TABLE, layer, s->vocab * k, ids, err);
    for (int64_t i = 0; i < s->vocab * n && !code; i++) table[i] = 0;
    for (int64_t i = 0; i < s->vocab * k && !code; i++) {
        float *row = table + i / k * n;
        if (ids[i] < 0 || ids[i] >= n || row[ids[i]] != 0)
            code = err_set(err, ERR_EFORMAT, "tid2eid of layer %d: token %lld has expert %lld, which there is not or which it has twice",
                           layer, (long long)(i / k), (long long)ids[i]);
        else row[ids[i]] = 1.0f;
    }
    struct weight_source shape = {.name = "table", .format = {.dtype = DT_BF16}, .n_experts = 1, .out = s->vocab, .in = n};
    if (!code) code = loader_made(l, &shape, table, &loader_slot(l, ROLE_ROUTER_TABLE, layer)->w, err);
    mem_free(ids);
    mem_free(table);
    return code;
}

/* Its bias is one that counts for the choice only. */
static int bind_scores(struct loader *l, int32_t layer, struct err *err) {
    int32_t n = l->spec->moe.n_experts;
    TRY(loader_matrix(l, ROLE_ROUTER, layer, n, l->spec->hidden, err));
    loader_slot(l, ROLE_ROUTER, layer)->bias = NULL;
    if (l->spec->layers[layer].by_token) return bind_table(l, layer, err);
    return loader_vector(l, ROLE_ROUTER_BIAS, layer, n, true, err);
}

static int bind_router(struct loader *l, int32_t layer, struct err *err) {
    const struct moe_spec *m = &l->spec->moe;
    int64_t n = (int64_t)m->n_experts + m->n_passing;
    if (l->spec->family->moe.beside_images) return bind_text_router(l, layer, err);
    if (m->score_act) return bind_scores(l, layer, err);
    ignore_experts(l, layer, m->n_passing);
    TRY(loader_matrix(l, ROLE_ROUTER, layer, n, l->spec->hidden, err));
    if (m->has_bias) return loader_vector(l, ROLE_ROUTER_BIAS, layer, n, !l->spec->family->moe.may_lack_bias, err);
    if (l->spec->family->moe.bias) loader_ignore(l, (enum role[]){ROLE_ROUTER_BIAS}, 1, layer); /* switched off by config.json */
    return ERR_OK;
}

int ffn_bind_experts(struct loader *l, int32_t layer, struct err *err) {
    const struct moe_spec *m = &l->spec->moe;
    TRY(bind_router(l, layer, err));
    TRY(loader_vector(l, ROLE_EXPERT_SCALE, layer, (int64_t)m->n_experts + m->n_passing, false, err));
    int64_t width = m->latent ? m->latent : l->spec->hidden, inner = m->inner;
    if (m->latent) {
        TRY(loader_matrix(l, ROLE_LATENT_IN, layer, width, l->spec->hidden, err));
        TRY(loader_matrix(l, ROLE_LATENT_OUT, layer, l->spec->hidden, width, err));
    }
    struct matrix_args a = {.into = ROLE_EXPERT_GATE_UP, .layer = layer, .in = width, .n_experts = m->n_experts};
    struct stack_part both[] = {{.role = ROLE_EXPERT_GATE, .out = inner}, {.role = ROLE_EXPERT_UP, .out = inner}};
    struct stack_part fused[] = {{.role = ROLE_EXPERT_GATE_UP, .out = inner, .of = 2 * inner},
                                 {.role = ROLE_EXPERT_GATE_UP, .out = inner, .of = 2 * inner, .from = inner}};
    struct stack_part woven[] = {{.role = ROLE_EXPERT_GATE_UP, .out = inner, .of = 2 * inner, .run = 1, .step = 2},
                                 {.role = ROLE_EXPERT_GATE_UP, .out = inner, .of = 2 * inner, .from = 1, .run = 1, .step = 2}};
    a.parts = both, a.n_parts = 2;
    if (m->kind == FFN_PLAIN) a.into = ROLE_EXPERT_UP, a.parts = &both[1], a.n_parts = 1;
    if (loader_has(l, ROLE_EXPERT_GATE_UP, layer)) {
        a.parts = l->spec->family->moe.is_interleaved ? woven : fused;
        a.is_transposed = experts_transposed(l, layer, 2 * inner, width);
    }
    l->is_expert = true;
    int code = loader_assemble(l, &a, err);
    struct stack_part down = {.role = ROLE_EXPERT_DOWN, .out = width};
    a.into = ROLE_EXPERT_DOWN, a.parts = &down, a.n_parts = 1, a.in = inner;
    a.is_transposed |= l->spec->family->moe.is_down_transposed;
    if (!code) code = loader_assemble(l, &a, err);
    l->is_expert = false;
    return code;
}

static int bind_moe(struct loader *l, int32_t layer, struct err *err) {
    const struct moe_spec *m = &l->spec->moe;
    TRY(ffn_bind_experts(l, layer, err));
    if (m->shared_inner == 0) return ERR_OK;
    TRY(bind_dense(l, layer, &shared_roles, m->kind, m->shared_inner, err));
    return m->shared_gate ? loader_matrix(l, ROLE_SHARED_SWITCH, layer, 1, l->spec->hidden, err) : ERR_OK;
}

static float softplus(float x) {
    return x > 20.0f ? x : (float)m_log(1.0 + m_exp((double)x));
}

/* The activation whose four parameters every layer learns. */
static int bind_xielu(struct loader *l, int32_t layer, struct err *err) {
    static const char *const names[] = {".alpha_p", ".alpha_n", ".beta", ".eps"};
    float p[ACT_PARAMS];
    if (!l->out->acts) l->out->acts = arena_new(l->arena, struct act_args, l->spec->n_layers);
    for (int i = 0; i < ACT_PARAMS; i++) TRY(loader_values(l, ROLE_ACT_PARAMS, layer, names[i], 1, &p[i], err));
    l->out->acts[layer] = (struct act_args){.kind = ACT_XIELU, .scale = 1.0f, .p = {softplus(p[0]), p[2] + softplus(p[1]), p[2], p[3]}};
    return ERR_OK;
}

int ffn_bind(struct loader *l, int32_t layer, struct err *err) {
    const struct layer_spec *ls = &l->spec->layers[layer];
    if (ls->ffn == FFN_NONE) return ERR_OK;
    if (ls->ffn == FFN_EXPERTS) return bind_moe(l, layer, err);
    if (l->spec->act.kind == ACT_XIELU) TRY(bind_xielu(l, layer, err));
    TRY(loader_vector(l, ROLE_FFN_SUB_NORM, layer, ls->inner, false, err));
    return bind_dense(l, layer, &own_roles, ls->ffn, ls->inner, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

/* Only gates well above their row's mean count. */
static struct tensor cut(const struct pass *p, struct tensor gate) {
    if (!p->layer->is_cut) return gate;
    gate = pass_gather(p, gate, p->layer->inner_part);
    return pass_own(op_norm(p->l, gate, &(struct norm_args){.kind = NORM_CUT, .cut = p->layer->cut}), p->layer->inner_part);
}

typedef struct tensor product_fn(const struct pass *p, struct tensor x, enum role role);

static struct tensor dense(const struct pass *p, struct tensor x, const struct dense_roles *d, enum ffn_kind kind,
                           const struct act_args *act) {
    const struct bound *w = p->w;
    struct tensor h;
    bool is_normed = d == &own_roles && w[ROLE_FFN_SUB_NORM].w;
    if (!w[d->down].w) {
        int32_t whole = (int32_t)p->layer->inner_part.of;
        if (d == &own_roles && p->layer->is_cut) op_gather(p->l, (struct tensor){0}, whole);
        if (is_normed) op_gather(p->l, (struct tensor){0}, whole);
        return pass_nothing(p, x);
    }
    product_fn *product = act->kind == ACT_RELU2 ? pass_linear_wide : pass_linear; /* a square doubles errors */
    if (kind == FFN_PLAIN) {
        h = op_act(p->l, product(p, x, d->up), act);
    } else if (w[d->gate_up].w) {
        struct tensor both = product(p, x, d->gate_up);
        int32_t inner = both.width / 2;
        h = op_glu(p->l, cut(p, tensor_slice(both, 0, inner)), tensor_slice(both, inner, inner), act);
    } else {
        h = op_glu(p->l, cut(p, product(p, x, d->gate)), product(p, x, d->up), act);
    }
    if (is_normed) h = pass_own(pass_norm(p, pass_gather(p, h, p->layer->inner_part), &w[ROLE_FFN_SUB_NORM]), p->layer->inner_part);
    return product(p, h, d->down);
}

static struct act_args limited(float limit, const struct act_args *usual) {
    return limit > 0 ? (struct act_args){.kind = ACT_LIMITED_SWIGLU, .scale = 1.0f, .p = {limit}} : *usual;
}

static struct tensor shared_expert(const struct pass *p, struct tensor x) {
    const struct moe_spec *m = &p->m->spec.moe;
    struct act_args act = limited(p->layer->limit, &m->act);
    if (act.kind == ACT_LIMITED_SWIGLU) act.p[1] = m->limits_first;
    struct tensor y = dense(p, x, &shared_roles, m->kind, &act);
    if (!m->shared_gate) return y;
    struct tensor gate = op_act(p->l, pass_linear(p, x, ROLE_SHARED_SWITCH), &(struct act_args){.kind = ACT_SIGMOID, .scale = 1.0f});
    return op_glu(p->l, y, gate, &(struct act_args){.kind = ACT_NONE, .scale = 1.0f});
}

static struct tensor experts_part(const struct pass *p, struct tensor x, struct tensor router_logits) {
    const struct moe_spec *m = &p->m->spec.moe;
    const struct bound *w = p->w;
    struct route_args route = m->route;
    struct act_args act = limited(p->layer->expert_limit, &m->act);
    struct tensor ids, weights;
    if (act.kind == ACT_LIMITED_SWIGLU) act.p[1] = m->limits_first;
    route.bias = w[ROLE_ROUTER_BIAS].w;
    if (m->score_act) router_logits = op_act(p->l, router_logits, &(struct act_args){.kind = m->score_act, .scale = 1.0f});
    if (w[ROLE_ROUTER_TABLE].w) { /* scores of the token's experts, which are above 0; of others 0 */
        struct tensor chosen = op_embed(p->l, &(struct embed_args){.weight = w[ROLE_ROUTER_TABLE].w, .scale = 1.0f});
        router_logits = op_glu(p->l, router_logits, chosen, &(struct act_args){.kind = ACT_NONE, .scale = 1.0f});
    }
    route.expert_scale = w[ROLE_EXPERT_SCALE].w;
    if (!w[ROLE_EXPERT_DOWN].w) return pass_nothing(p, x);
    op_route(p->l, router_logits, &route, &ids, &weights);
    struct tensor passed = {0};
    if (m->n_passing) {
        op_passing(p->l, ids, weights, &(struct passing_args){m->n_experts}, &ids, &weights);
        passed = op_glu(p->l, x, tensor_slice(weights, route.k, 1), &(struct act_args){.kind = ACT_NONE, .scale = 1.0f});
        weights = tensor_slice(weights, 0, route.k);
    }
    if (m->latent) x = pass_linear(p, x, ROLE_LATENT_IN);
    x = op_experts(p->l, x, ids, weights,
                   &(struct experts_args){.gate_up = w[ROLE_EXPERT_GATE_UP].w,
                                          .gate_up_bias = w[ROLE_EXPERT_GATE_UP].bias,
                                          .gate = w[ROLE_EXPERT_GATE].w,
                                          .gate_bias = w[ROLE_EXPERT_GATE].bias,
                                          .up = w[ROLE_EXPERT_UP].w,
                                          .up_bias = w[ROLE_EXPERT_UP].bias,
                                          .down = w[ROLE_EXPERT_DOWN].w,
                                          .down_bias = w[ROLE_EXPERT_DOWN].bias,
                                          .act = act,
                                          .inner = m->inner,
                                          .first = (int32_t)w[ROLE_EXPERT_DOWN].first,
                                          .scale_input = m->scale_input});
    if (m->latent) x = pass_linear(p, x, ROLE_LATENT_OUT);
    return m->n_passing && w[ROLE_EXPERT_DOWN].first == 0 ? op_add(p->l, x, passed, NULL) : x; /* one rank passes it on */
}

struct tensor pass_experts(const struct pass *p, struct tensor x, struct tensor router_logits) {
    return pass_sum(p, experts_part(p, x, router_logits));
}

struct tensor feed_forward_part(const struct pass *p, struct tensor x) {
    if (p->layer->ffn == FFN_EXPERTS) {
        struct tensor y = experts_part(p, x, pass_linear(p, x, ROLE_ROUTER));
        const struct moe_spec *m = &p->m->spec.moe;
        return m->shared_inner ? op_add(p->l, y, shared_expert(p, x), &(struct add_args){m->sum_scale, m->sum_scale}) : y;
    }
    const struct act_args *own = p->m->weights.acts ? &p->m->weights.acts[p->layer - p->m->spec.layers] : &p->m->spec.act;
    struct act_args act = limited(p->layer->limit, own);
    return dense(p, x, &own_roles, p->layer->ffn, &act);
}

struct tensor feed_forward(const struct pass *p, struct tensor x) {
    return pass_sum(p, feed_forward_part(p, x));
}
