/* The tower: its sizes and weights, its forward pass, its learned positions. */
#include "vision/vision_internal.h"

#include "base/fmath.h"
#include "base/json.h"

/* ---- sizes ---------------------------------------------------------------------------------------------------------- */

static int read_int(const struct config_part *p, const char *key, int64_t low, int64_t high, int64_t absent, int32_t *out,
                    struct err *err) {
    int64_t value;
    TRY(config_part_int(p, key, (struct config_range){(double)low, (double)high}, absent, &value, err));
    *out = (int32_t)value;
    return value >= low ? ERR_OK : err_set(err, ERR_EFORMAT, "%s: %s of %s is missing", p->file, key, p->where);
}

static int read_activation(struct vision *v, yyjson_val *config, struct err *err) {
    struct str name = json_val_str(json_get(config, "hidden_act"));
    if (!name.p) name = str_of(v->family->act);
    v->is_quick_gelu = str_is(name, "quick_gelu");
    return v->is_quick_gelu ? ERR_OK : resolve_activation(name, &v->act, err);
}

/* Patches of a token's side: as config.json says, or so that a picture has as many tokens as it says. */
static int read_merge(struct vision *v, const struct config_part *p, struct err *err) {
    struct config_part top = {p->file, "the top", v->config};
    bool in_tower = json_get(p->obj, "spatial_merge_size") || v->family->has_frames;
    int32_t tokens, side;
    if (!v->family->size_key)
        return read_int(in_tower ? p : &top, "spatial_merge_size", 1, 16, v->family->has_frames ? 2 : 1, &v->merge, err);
    TRY(read_int(&top, v->family->size_key, 1, 1 << 16, -1, &tokens, err));
    TRY(read_int(p, "image_size", 1, 1 << 16, -1, &side, err));
    v->merge = side / v->patch / (int32_t)sqrt((double)tokens);
    return v->merge >= 1 ? ERR_OK
                         : err_set(err, ERR_EFORMAT, "%s: %s is %d, and a picture has fewer patches", p->file, v->family->size_key, tokens);
}

static int read_eps(struct vision *v, const struct config_part *p, struct err *err) {
    double eps, text;
    struct config_part part = {p->file, "text_config", json_get(v->config, "text_config")};
    TRY(config_part_num(p, "layer_norm_eps", (struct config_range){0, 1}, (double)v->family->eps, &eps, err));
    v->eps = v->merge_eps = (float)eps;
    if (!v->family->names.merge_join) return ERR_OK;
    TRY(config_part_num(&part, "rms_norm_eps", (struct config_range){0, 1}, 1e-6, &text, err));
    v->merge_eps = (float)text;
    return ERR_OK;
}

/* The layer whose states are taken: one further back for each below -1. Those behind it are not computed. */
static int read_depth(struct vision *v, struct err *err) {
    int64_t layer = json_int(v->config, "vision_feature_layer", -1);
    if (yyjson_is_arr(json_get(v->config, "vision_feature_layer")) || layer < -v->layers || layer > v->layers || layer == 0)
        return err_set(err, ERR_EUNSUPPORTED, "config.json: this vision_feature_layer is not supported: the model takes text alone");
    v->layers = layer < 0 ? v->layers + 1 + (int32_t)layer : (int32_t)layer;
    struct str strategy = json_str(v->config, "vision_feature_select_strategy", STR("default"));
    if (v->family->names.class_row && !str_is(strategy, "default"))
        return err_set(err, ERR_EUNSUPPORTED,
                       "config.json: vision_feature_select_strategy \"%.*s\" is not supported: the model takes text alone",
                       STR_ARG(strategy));
    return ERR_OK;
}

static int read_sizes(struct vision *v, const struct config_part *p, struct err *err) {
    const struct vision_keys *k = &v->family->keys;
    int32_t out = v->text_hidden, window, ratio;
    TRY(read_int(p, k->hidden, 1, 1 << 16, -1, &v->hidden, err));
    TRY(read_int(p, k->heads, 1, 1024, -1, &v->heads, err));
    TRY(read_int(p, k->depth, 1, TOWER_LAYERS_MAX, -1, &v->layers, err));
    TRY(read_int(p, "patch_size", 1, 256, 14, &v->patch, err));
    TRY(read_int(p, "temporal_patch_size", 1, 16, 2, &v->frames, err));
    if (!v->family->has_frames) v->frames = 1;
    TRY(read_merge(v, p, err));
    TRY(read_eps(v, p, err));
    TRY(read_int(p, "mlp_ratio", 1, 64, 4, &ratio, err));
    v->inner = v->hidden * ratio;
    if (k->inner) TRY(read_int(p, k->inner, 1, 1 << 20, -1, &v->inner, err));
    if (k->out) TRY(read_int(p, k->out, 1, 1 << 20, v->text_hidden, &out, err));
    TRY(read_int(p, "window_size", 1, 1 << 16, 112, &window, err));
    if (v->family->has_windows) v->window = window / v->patch / v->merge > 0 ? window / v->patch / v->merge : 1;
    if (out != v->text_hidden)
        return err_set(err, ERR_EFORMAT, "%s: %s of %s is %d, and the text model's rows have %d", p->file, k->out, p->where, out,
                       v->text_hidden);
    if (v->hidden % v->heads || (v->family->rope && v->hidden / v->heads % 4))
        return err_set(err, ERR_EFORMAT, "%s: %d numbers for %d heads of %s", p->file, v->hidden, v->heads, p->where);
    TRY(read_depth(v, err));
    return read_activation(v, p->obj, err);
}

/* ---- weights -------------------------------------------------------------------------------------------------------- */

struct binder {
    struct loader l;
    struct vision *v;
    struct str prefix;
};

/* The path of the first of a tensor's names that the checkpoint has. */
static bool find(struct binder *b, const char *names, int32_t number, struct str *out, struct tensor_info *t) {
    struct str rest = str_of(names), name;
    while (str_split_next(&rest, '|', &name)) {
        bool is_beside = name.n && name.p[0] == '^';
        struct str path = is_beside ? str_from(name, 1) : str_fmt(b->l.arena, "%.*s%.*s", STR_ARG(b->prefix), STR_ARG(name));
        size_t at = str_find_char(path, '#', 0);
        if (at != STR_NONE) path = str_fmt(b->l.arena, "%.*s%d%.*s", (int)at, path.p, number, STR_ARG(str_from(path, at + 1)));
        *out = path;
        if (loader_tensor_values(&b->l, path, -1, t)) return true;
        if (is_beside) *out = path = str_fmt(b->l.arena, "model.%.*s", STR_ARG(path));
        if (is_beside && loader_tensor_values(&b->l, path, -1, t)) return true;
    }
    return false;
}

static int missing(struct str path, struct err *err) {
    return err_set(err, ERR_EFORMAT, "%.*s is missing from the checkpoint", STR_ARG(path));
}

/* A vector of n numbers with its bias, if there is one. */
static int bind_vector(struct binder *b, const char *names, int32_t number, int64_t n, struct bound *out, struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!find(b, names, number, &path, &t)) return missing(path, err);
    TRY(loader_flat(&b->l, &t, n, &out->w, err));
    return loader_tensor_bias(&b->l, path, -1, &t) ? loader_flat(&b->l, &t, n, &out->bias, err) : ERR_OK;
}

/* Patches of files for MLX have their colours last: [out, frames, rows, columns, 3]. */
static void colours_first(const struct vision *v, const float *from, float *to) {
    int64_t area = (int64_t)v->frames * v->patch * v->patch;
    for (int64_t o = 0; o < v->hidden; o++)
        for (int64_t i = 0; i < area; i++)
            for (int64_t c = 0; c < 3; c++) to[(o * 3 + c) * area + i] = from[(o * area + i) * 3 + c];
}

/* What is done to a matrix before it is bound. */
enum turn { TURN_NONE, TURN_PATCHES, TURN_OVER /* stored [in, out] */, TURN_CHANNELS /* columns by channel, then by patch */ };

static void turn_over(const float *from, int64_t out, int64_t in, float *to) {
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) to[o * in + i] = from[i * out + o];
}

static void patches_first(const float *from, int64_t out, int64_t in, int64_t each, float *to) {
    int64_t channels = in / each;
    for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < each; k++)
            for (int64_t c = 0; c < channels; c++) to[o * in + k * channels + c] = from[o * in + c * each + k];
}

static int bind_numbers(struct binder *b, struct str path, const struct tensor_info *t, enum turn turn, int64_t out_rows, int64_t in,
                        struct bound *out, struct err *err) {
    size_t bytes = (size_t)(out_rows * in) * sizeof(float);
    float *values = mem_try(bytes), *turned = NULL;
    if (!values) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
    int code = loader_read_f32(&b->l, t, out_rows * in, values, err);
    if (t->n_dims >= 4 && t->shape[t->n_dims - 1] == 3 && t->shape[1] != 3) turn = TURN_PATCHES;
    if (!code && turn) {
        turned = mem_try(bytes);
        if (!turned) code = err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
        else if (turn == TURN_PATCHES) colours_first(b->v, values, turned);
        else if (turn == TURN_OVER) turn_over(values, out_rows, in, turned);
        else patches_first(values, out_rows, in, (int64_t)b->v->merge * b->v->merge, turned);
    }
    struct weight_source shape = {
        .name = str_cstr(b->l.arena, path), .format = {.dtype = t->dtype}, .n_experts = 1, .out = out_rows, .in = in};
    if (!code) code = loader_made(&b->l, &shape, turned ? turned : values, &out->w, err);
    mem_free(values);
    mem_free(turned);
    return code;
}

/* A matrix [out, in] with its bias, if there is one. */
static int bind_turned(struct binder *b, const char *names, int32_t number, enum turn turn, int64_t out_rows, int64_t in, struct bound *out,
                       struct err *err) {
    struct str path;
    struct tensor_info t, scales;
    if (!find(b, names, number, &path, &t)) return missing(path, err);
    if (loader_tensor(&b->l, path, ".scales", -1, &scales))
        return err_set(err, ERR_EUNSUPPORTED, "%.*s is quantised: towers run with plain weights", STR_ARG(path));
    TRY(bind_numbers(b, path, &t, turn, out_rows, in, out, err));
    return loader_tensor_bias(&b->l, path, -1, &t) ? loader_flat(&b->l, &t, out_rows, &out->bias, err) : ERR_OK;
}

static int bind_matrix(struct binder *b, const char *names, int32_t number, int64_t out_rows, int64_t in, struct bound *out,
                       struct err *err) {
    return bind_turned(b, names, number, TURN_NONE, out_rows, in, out, err);
}

/* Queries, keys and values are one matrix, or three. */
static int bind_qkv(struct binder *b, int32_t i, struct tower_block *o, struct err *err) {
    const struct vision_names *n = &b->v->family->names;
    int64_t hidden = b->v->hidden;
    if (n->qkv) return bind_matrix(b, n->qkv, i, 3 * hidden, hidden, &o->qkv, err);
    TRY(bind_matrix(b, n->q, i, hidden, hidden, &o->qkv, err));
    TRY(bind_matrix(b, n->k, i, hidden, hidden, &o->k, err));
    return bind_matrix(b, n->v, i, hidden, hidden, &o->v, err);
}

static int bind_block(struct binder *b, int32_t i, struct tower_block *o, struct err *err) {
    const struct vision_names *n = &b->v->family->names;
    int64_t hidden = b->v->hidden, inner = b->v->inner;
    TRY(bind_vector(b, n->norm1, i, hidden, &o->norm1, err));
    TRY(bind_vector(b, n->norm2, i, hidden, &o->norm2, err));
    TRY(bind_qkv(b, i, o, err));
    TRY(bind_matrix(b, n->out, i, hidden, hidden, &o->out, err));
    if (b->v->family->is_gated) TRY(bind_matrix(b, n->gate, i, inner, hidden, &o->gate, err));
    TRY(bind_matrix(b, n->up, i, inner, hidden, &o->up, err));
    return bind_matrix(b, n->down, i, hidden, inner, &o->down, err);
}

static int bind_blocks(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    yyjson_val *full = json_get(config, "fullatt_block_indexes"), *item;
    size_t k, n;
    v->blocks = arena_new(&v->arena, struct tower_block, v->layers);
    for (int32_t i = 0; i < v->layers; i++) {
        v->blocks[i].sees_all = !v->window;
        yyjson_arr_foreach(full, k, n, item) v->blocks[i].sees_all |= yyjson_get_int(item) == i;
        TRY(bind_block(b, i, &v->blocks[i], err));
    }
    return ERR_OK;
}

/* Each part of it may be absent. */
static int bind_last_merger(struct binder *b, int64_t joined, struct err *err) {
    struct vision *v = b->v;
    const struct vision_names *n = &v->family->names;
    struct tower_merger *m = &v->mergers[0];
    int64_t width = v->family->pools || n->merge_join ? v->hidden : joined, inner = v->family->has_frames ? joined : v->text_hidden;
    enum turn join = v->family->merges_by_channel ? TURN_CHANNELS : TURN_NONE, out = v->family->is_out_transposed ? TURN_OVER : TURN_NONE;
    if (n->merge_norm) TRY(bind_vector(b, n->merge_norm, 0, v->hidden, &m->norm, err));
    if (n->merge_join) TRY(bind_turned(b, n->merge_join, 0, join, v->hidden, joined, &m->join, err));
    if (n->merge_in) TRY(bind_matrix(b, n->merge_in, 0, inner, width, &m->in, err));
    return bind_turned(b, n->merge_out, 0, out, v->text_hidden, n->merge_in ? inner : width, &m->out, err);
}

static int bind_mergers(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    const struct vision_names *n = &v->family->names;
    yyjson_val *deep = json_get(config, "deepstack_visual_indexes"), *item;
    int64_t joined = (int64_t)v->hidden * v->merge * v->merge;
    size_t k, count;
    TRY(bind_last_merger(b, joined, err));
    v->n_mergers = 1;
    if (!n->deep_in) return ERR_OK;
    yyjson_arr_foreach(deep, k, count, item) {
        if (v->n_mergers == MERGERS_MAX)
            return err_set(err, ERR_EUNSUPPORTED, "config.json: deepstack_visual_indexes has more than %d entries", MERGERS_MAX - 1);
        if (!yyjson_is_int(item) || yyjson_get_sint(item) < 0 || yyjson_get_sint(item) >= v->layers)
            return err_set(err, ERR_EFORMAT, "config.json: deepstack_visual_indexes must be numbers of the tower's %d blocks", v->layers);
        struct tower_merger *m = &v->mergers[v->n_mergers];
        m->norms_joined = true;
        v->deep_at[v->n_mergers++] = (int32_t)yyjson_get_sint(item);
        TRY(bind_vector(b, n->deep_norm, (int32_t)k, joined, &m->norm, err));
        TRY(bind_matrix(b, n->deep_in, (int32_t)k, joined, joined, &m->in, err));
        TRY(bind_matrix(b, n->deep_out, (int32_t)k, v->text_hidden, joined, &m->out, err));
    }
    return ERR_OK;
}

static int bind_positions(struct binder *b, struct err *err) {
    struct vision *v = b->v;
    struct str path;
    struct tensor_info t;
    if (v->family->positions == POSITIONS_NONE) return ERR_OK;
    if (!find(b, v->family->names.positions, 0, &path, &t)) return missing(path, err);
    int64_t n = t.n_dims == 2 ? t.shape[0] : 0, cells = n - (v->family->names.class_row ? 1 : 0);
    v->positions_side = cells > 0 && cells < 1 << 20 ? (int32_t)sqrt((double)cells) : 0;
    if (v->positions_side < 1 || (int64_t)v->positions_side * v->positions_side != cells)
        return err_set(err, ERR_EFORMAT, "%.*s is no square of positions", STR_ARG(path));
    if (t.shape[1] != v->hidden)
        return err_set(err, ERR_EFORMAT, "%.*s has rows of %lld numbers, and the tower's have %d", STR_ARG(path), (long long)t.shape[1],
                       v->hidden);
    v->positions = arena_new(&v->arena, float, n * v->hidden);
    return loader_read_f32(&b->l, &t, n * v->hidden, v->positions, err);
}

static int bind_rope(struct binder *b, struct err *err) {
    struct vision *v = b->v;
    bool in_turn = v->family->rope == VISION_ROPE_IN_TURN;
    int32_t width = v->hidden / v->heads, n = width / 4;
    if (!v->family->rope) return ERR_OK;
    float *table = arena_new(&v->arena, float, 2 * n);
    v->axes = arena_new(&v->arena, int8_t, 2 * n);
    for (int32_t i = 0; i < 2 * n; i++) {
        float exponent = in_turn ? (float)(2 * (2 * (i % n) + i / n)) / (float)width : (float)(2 * (i % n)) / (float)(width / 2);
        table[i] = 1.0f / m_powf(10000.0f, exponent);
        v->axes[i] = i < n ? 1 : 2;
    }
    return loader_constant(&b->l, "tower rope", table, 2 * n, &v->inv_freq, err);
}

/* The row before the patches, and norms before and behind the blocks. */
static int bind_ends(struct binder *b, struct err *err) {
    struct vision *v = b->v;
    const struct vision_names *n = &v->family->names;
    struct str path;
    struct tensor_info t;
    if (n->pre_norm) TRY(bind_vector(b, n->pre_norm, 0, v->hidden, &v->pre_norm, err));
    if (n->post_norm) TRY(bind_vector(b, n->post_norm, 0, v->hidden, &v->post_norm, err));
    if (!n->class_row) return ERR_OK;
    if (!find(b, n->class_row, 0, &path, &t)) return missing(path, err);
    v->class_row = arena_new(&v->arena, float, v->hidden);
    return loader_read_f32(&b->l, &t, v->hidden, v->class_row, err);
}

static int bind_all(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    struct str prefixes = str_of(v->family->prefixes), path;
    struct tensor_info t;
    while (str_split_next(&prefixes, '|', &b->prefix) && !find(b, v->family->names.patch, 0, &path, &t)) {}
    TRY(bind_matrix(b, v->family->names.patch, 0, v->hidden, (int64_t)3 * v->frames * v->patch * v->patch, &v->patches, err));
    TRY(bind_positions(b, err));
    TRY(bind_rope(b, err));
    TRY(bind_ends(b, err));
    TRY(bind_blocks(b, config, err));
    return bind_mergers(b, config, err);
}

int tower_bind(struct vision *v, const struct config_part *config, const struct tensor_store *store, struct err *err) {
    struct binder b = {.v = v, .l = {.arena = &v->arena, .backend = v->backend, .store = store, .out = &v->weights}};
    TRY(read_sizes(v, config, err));
    int code = bind_all(&b, config->obj, err);
    map_free(&b.l.seen);
    arena_free(&b.l.scratch);
    return code;
}

/* ---- the pass ------------------------------------------------------------------------------------------------------- */

static struct tensor norm(const struct vision *v, struct oplist *l, struct tensor x, const struct bound *w) {
    return op_norm(l, x, &(struct norm_args){.weight = w->w, .bias = w->bias, .kind = v->family->norm, .eps = v->eps});
}

static struct tensor linear(struct oplist *l, struct tensor x, const struct bound *w) {
    return op_linear(l, x, &(struct linear_args){w->w, w->bias, 1});
}

/* n rows behind each other as one; only for dense rows. */
static struct tensor join_rows(struct tensor x, int32_t n) {
    x.rows /= n;
    x.width *= n;
    x.row_stride = x.head_stride = x.width;
    return x;
}

static struct tensor activate(const struct vision *v, struct oplist *l, struct tensor x) {
    const float slope = 1.702f; /* quick_gelu(x) is x * sigmoid(1.702 x) */
    if (!v->is_quick_gelu) return op_act(l, x, &(struct act_args){.kind = v->act, .scale = 1.0f});
    x = op_act(l, x, &(struct act_args){.kind = ACT_NONE, .scale = slope});
    return op_act(l, x, &(struct act_args){.kind = ACT_SILU, .scale = 1.0f / slope});
}

static struct tensor attend(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_block *b) {
    int32_t width = v->hidden / v->heads;
    struct rope_args rope = {.inv_freq = v->inv_freq, .kind = ROPE_HALF, .n_rotated = width, .magnitude = 1.0f, .axes = v->axes};
    struct attn_rows_args args = {.scale = 1.0f / (float)sqrt((double)width), .set = b->sees_all ? 0 : 1};
    struct tensor all = linear(l, x, &b->qkv), q = all, k = all, values = all;
    if (b->k.w) k = linear(l, x, &b->k), values = linear(l, x, &b->v);
    else
        q = tensor_slice(all, 0, v->hidden), k = tensor_slice(all, v->hidden, v->hidden),
        values = tensor_slice(all, 2 * v->hidden, v->hidden);
    q = tensor_split_heads(q, v->heads), k = tensor_split_heads(k, v->heads), values = tensor_split_heads(values, v->heads);
    if (v->inv_freq) q = op_rope(l, q, &rope), k = op_rope(l, k, &rope);
    return linear(l, tensor_join_heads(op_attn_rows(l, q, k, values, &args)), &b->out);
}

static struct tensor feed(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_block *b) {
    struct tensor up = linear(l, x, &b->up);
    if (!v->family->is_gated) return linear(l, activate(v, l, up), &b->down);
    struct tensor gate = linear(l, x, &b->gate);
    return linear(l, op_glu(l, gate, up, &(struct act_args){.kind = v->act, .scale = 1.0f}), &b->down);
}

static struct tensor merge_norm(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_merger *m) {
    const struct norm_row_of_merger *n = &v->family->merge_norm;
    if (!m->norm.w) return x;
    return op_norm(l, x,
                   &(struct norm_args){.weight = m->norm.w,
                                       .bias = m->norm.bias,
                                       .kind = v->family->pools ? n->kind : v->family->norm,
                                       .eps = v->merge_eps,
                                       .weight_offset = n->offset});
}

static struct tensor merge(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_merger *m) {
    int32_t each = v->merge * v->merge;
    if (v->family->pools) x = merge_norm(v, l, op_pool_rows(l, x, each), m);
    else x = m->norms_joined ? merge_norm(v, l, join_rows(x, each), m) : join_rows(merge_norm(v, l, x, m), each);
    if (m->join.w) x = linear(l, x, &m->join);
    if (m->in.w) x = op_act(l, linear(l, x, &m->in), &(struct act_args){.kind = ACT_GELU, .scale = 1.0f});
    return linear(l, x, &m->out);
}

void tower_forward(const struct vision *v, struct oplist *l, struct tensor *out_sets) {
    struct tensor none = {0};
    struct tensor x = op_given(l, none, &(struct given_args){.width = 3 * v->frames * v->patch * v->patch});
    x = linear(l, x, &v->patches);
    if (v->positions) x = op_given(l, x, &(struct given_args){.set = 1, .width = v->hidden, .adds = 1});
    if (v->pre_norm.w) x = norm(v, l, x, &v->pre_norm);
    for (int32_t i = 0; i < v->layers; i++) {
        const struct tower_block *b = &v->blocks[i];
        l->layer = i;
        x = op_add(l, x, attend(v, l, norm(v, l, x, &b->norm1), b), NULL);
        x = op_add(l, x, feed(v, l, norm(v, l, x, &b->norm2), b), NULL);
        for (int32_t k = 1; k < v->n_mergers; k++)
            if (v->deep_at[k] == i) out_sets[k] = merge(v, l, x, &v->mergers[k]);
    }
    l->layer = -1;
    if (v->post_norm.w) x = norm(v, l, x, &v->post_norm);
    if (v->class_row) x = tensor_slice_rows(x, 1, x.rows - 1);
    out_sets[0] = merge(v, l, x, &v->mergers[0]);
    for (int32_t k = 0; k < v->n_mergers; k++) oplist_output(l, out_sets[k]);
}

/* ---- learned positions ---------------------------------------------------------------------------------------------- */

/* Where patch i of n lies along a table of `side`: the cell before it, and how far behind that. */
static int32_t stretch(int32_t i, int32_t n, int32_t side, float *out_rest) {
    float step = n > 1 ? (float)(side - 1) / (float)(n - 1) : 0,
          at = i < n / 2 || n == 1 ? step * (float)i : (float)(side - 1) - step * (float)(n - 1 - i);
    int32_t low = (int32_t)at;
    *out_rest = at - (float)low;
    return low;
}

static void fixed_positions(const struct vision *v, const struct patches *p, float *out) {
    int64_t width = v->hidden;
    int32_t first = v->class_row ? 1 : 0;
    for (int64_t i = 0; i < width && first; i++) out[i] = v->class_row[i] + v->positions[i];
    for (int64_t r = 0; r < p->n; r++) {
        int64_t at = first + (int64_t)p->places[r * STEP_AXES + 1] * v->positions_side + p->places[r * STEP_AXES + 2];
        memcpy(out + (r + first) * width, v->positions + at * width, (size_t)width * sizeof *out);
    }
}

void tower_positions(const struct vision *v, const struct patches *p, float *out) {
    int32_t side = v->positions_side;
    if (v->family->positions == POSITIONS_FIXED) {
        fixed_positions(v, p, out);
        return;
    }
    for (int64_t r = 0; r < p->n; r++) {
        float down, right;
        int32_t y = stretch(p->places[r * STEP_AXES + 1], p->height, side, &down),
                x = stretch(p->places[r * STEP_AXES + 2], p->width, side, &right);
        int32_t below = y + 1 < side ? y + 1 : y, beside = x + 1 < side ? x + 1 : x;
        const float *corners[] = {
            v->positions + (int64_t)(y * side + x) * v->hidden, v->positions + (int64_t)(y * side + beside) * v->hidden,
            v->positions + (int64_t)(below * side + x) * v->hidden, v->positions + (int64_t)(below * side + beside) * v->hidden};
        const float share[] = {(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right};
        for (int32_t i = 0; i < v->hidden; i++)
            out[r * v->hidden + i] =
                corners[0][i] * share[0] + corners[1][i] * share[1] + corners[2][i] * share[2] + corners[3][i] * share[3];
    }
}
