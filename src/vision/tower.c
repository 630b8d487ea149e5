/* The tower: its sizes and weights. */
#include "vision/vision_internal.h"

#include "base/fmath.h"
#include "base/json.h"

/* ---- sizes ---------------------------------------------------------------------------------------------------------- */

static int read_int(const struct config_part *p, const char *key, int64_t low, int64_t high, int64_t absent, int32_t *out,
                    struct err *err) {
    int64_t value;
    yyjson_val *list = json_get(p->obj, key);
    if (yyjson_is_arr(list)) { /* height and width, which are the same */
        value = yyjson_get_sint(yyjson_arr_get_first(list));
        if (value < low || value > high || value != yyjson_get_sint(yyjson_arr_get_last(list)))
            return err_set(err, ERR_EFORMAT, "%s: %s of %s must be two equal numbers between %lld and %lld", p->file, key, p->where,
                           (long long)low, (long long)high);
    } else TRY(config_part_int(p, key, (struct config_range){(double)low, (double)high}, absent, &value, err));
    *out = (int32_t)value;
    return value >= low ? ERR_OK : err_set(err, ERR_EFORMAT, "%s: %s of %s is missing", p->file, key, p->where);
}

/* The feed-forward's, and the merger's. */
static int read_activations(struct vision *v, yyjson_val *config, struct err *err) {
    struct str name = json_val_str(json_get(config, "hidden_act"));
    if (!name.p) name = json_val_str(json_get(config, "hidden_activation"));
    if (!name.p) name = str_of(v->family->act);
    v->is_quick_gelu = str_is(name, "quick_gelu");
    if (!v->is_quick_gelu) TRY(resolve_activation(name, &v->act, err));
    return resolve_activation(json_str(v->config, "projector_hidden_act", STR("gelu")), &v->merge_act, err);
}

/* Patches of a token's side: as config.json says (or one over that), or so that a picture has as many tokens as it says. */
static int read_merge(struct vision *v, const struct config_part *p, struct err *err) {
    const struct vision_family *f = v->family;
    struct config_part top = {p->file, "the top", v->config};
    const char *key = f->merge_key ? f->merge_key : "spatial_merge_size";
    bool in_tower = json_get(p->obj, key) || f->has_frames;
    yyjson_val *value = json_get(in_tower ? p->obj : v->config, key);
    int32_t tokens, side;
    if (!f->size_key && yyjson_is_real(value)) {
        double ratio = yyjson_get_real(value);
        if (ratio < 1.0 / 16 || ratio > 1) return err_set(err, ERR_EFORMAT, "%s: %s is %g", p->file, key, ratio);
        v->merge = (int32_t)(1 / ratio + 0.5);
        return ERR_OK;
    }
    if (!f->size_key) return read_int(in_tower ? p : &top, key, 1, 16, f->has_frames ? 2 : 1, &v->merge, err);
    TRY(read_int(&top, f->size_key, 1, 1 << 16, -1, &tokens, err));
    TRY(read_int(p, "image_size", 1, 1 << 16, -1, &side, err));
    v->merge = side / v->patch / (int32_t)sqrt((double)tokens);
    return v->merge >= 1 ? ERR_OK
                         : err_set(err, ERR_EFORMAT, "%s: %s is %d, and a picture has fewer patches", p->file, f->size_key, tokens);
}

static const struct vision_keys *keys_of(const struct vision *v) {
    static const struct vision_keys usual = {"hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", NULL, NULL};
    return v->family->keys.hidden ? &v->family->keys : &usual;
}

static int read_eps(struct vision *v, const struct config_part *p, struct err *err) {
    const struct norm_row_of_merger *n = &v->family->merge_norm;
    const char *key = json_get(p->obj, "layer_norm_eps") ? "layer_norm_eps" : json_get(p->obj, "norm_eps") ? "norm_eps" : "rms_norm_eps";
    double eps, text;
    struct config_part part = {p->file, "text_config", json_get(v->config, "text_config")};
    TRY(config_part_num(p, key, (struct config_range){0, 1}, v->family->eps > 0 ? (double)v->family->eps : 1e-6, &eps, err));
    v->eps = (float)eps;
    v->merge_eps = n->eps > 0 ? n->eps : v->eps;
    if (!n->has_text_eps) return ERR_OK;
    TRY(config_part_num(&part, "rms_norm_eps", (struct config_range){0, 1}, 1e-6, &text, err));
    v->merge_eps = (float)text;
    return ERR_OK;
}

static int wrong_layer(struct err *err) {
    return err_set(err, ERR_EFORMAT,
                   "config.json: vision_feature_layer must be numbers of the tower's layers, ascending, at most %d of them", TAPS_MAX);
}

/* Layers whose states are taken, counted from the end where they are below 0. Those behind the last of them are not computed. */
static int read_taps(struct vision *v, struct err *err) {
    yyjson_val *said = json_get(v->config, "vision_feature_layer");
    int32_t n = yyjson_is_arr(said) ? (int32_t)yyjson_arr_size(said) : 1;
    if (n < 1 || n > TAPS_MAX) return wrong_layer(err);
    for (int32_t i = 0; i < n; i++) {
        yyjson_val *item = yyjson_is_arr(said) ? yyjson_arr_get(said, (size_t)i) : said;
        int64_t layer = yyjson_is_int(item) ? yyjson_get_sint(item) : -1;
        layer = layer < 0 ? v->layers + 1 + layer : layer;
        if (layer < 0 || layer > v->layers || (item && !yyjson_is_int(item)) || (i && layer < v->taps[i - 1])) return wrong_layer(err);
        v->taps[i] = (int32_t)layer;
    }
    v->n_taps = n;
    v->layers = v->taps[n - 1];
    struct str strategy = json_str(v->config, "vision_feature_select_strategy", STR("default"));
    if (v->family->names.class_row && !str_is(strategy, "default"))
        return err_set(err, ERR_EUNSUPPORTED,
                       "config.json: vision_feature_select_strategy \"%.*s\" is not supported: the model takes text alone",
                       STR_ARG(strategy));
    return ERR_OK;
}

/* Blocks whose states stand beside those of the last one. */
static int read_beside(struct vision *v, const struct config_part *p, struct err *err) {
    yyjson_val *list = json_get(p->obj, "intermediate_layers_indices"), *item;
    size_t i, n;
    yyjson_arr_foreach(list, i, n, item) {
        int64_t block = yyjson_is_int(item) ? yyjson_get_sint(item) : -1;
        if (i >= TAPS_MAX || block < 0 || block >= v->layers || (i && block < v->taps[i - 1]))
            return err_set(err, ERR_EFORMAT,
                           "%s: intermediate_layers_indices of %s must be numbers of the tower's blocks, ascending, at most %d of them",
                           p->file, p->where, TAPS_MAX);
        v->taps[v->n_taps++] = (int32_t)block + 1;
    }
    return read_int(p, keys_of(v)->more, 0, TOWER_LAYERS_MAX, 0, &v->tiled.n_global, err);
}

static int read_heads(struct vision *v, const struct config_part *p, struct err *err) {
    int32_t keys;
    TRY(read_int(p, keys_of(v)->heads, 1, 1024, -1, &v->heads, err));
    TRY(read_int(p, "num_key_value_heads", 1, 1024, v->heads, &keys, err));
    TRY(read_int(p, "head_dim", 1, 1 << 12, v->hidden / v->heads, &v->head, err));
    if (keys != v->heads)
        return err_set(err, ERR_EUNSUPPORTED, "%s: num_key_value_heads of %s is %d, and there are %d heads: the model takes text alone",
                       p->file, p->where, keys, v->heads);
    if ((!json_get(p->obj, "head_dim") && v->hidden % v->heads) || (v->family->rope && v->head % 4))
        return err_set(err, ERR_EFORMAT, "%s: %d numbers for %d heads of %s", p->file, v->hidden, v->heads, p->where);
    return ERR_OK;
}

int tower_sizes(struct vision *v, const struct config_part *p, struct err *err) {
    const struct vision_keys *k = keys_of(v);
    int32_t out = v->text_hidden, window, ratio;
    TRY(read_int(p, k->hidden, 1, 1 << 16, -1, &v->hidden, err));
    TRY(read_heads(v, p, err));
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
    if (v->family->global) TRY(read_beside(v, p, err));
    else TRY(read_taps(v, err));
    return read_activations(v, p->obj, err);
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
enum turn {
    TURN_NONE,
    TURN_PATCHES,
    TURN_OVER /* stored [in, out] */,
    TURN_CHANNELS /* columns by channel, then by patch */,
    TURN_BESIDE /* columns of the last block, then of the others by channel */
};

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

static void beside_first(const float *from, int64_t out, int64_t in, int64_t hidden, float *to) {
    int64_t n = in / hidden - 1;
    for (int64_t o = 0; o < out; o++, from += in, to += in) {
        memcpy(to, from, (size_t)hidden * sizeof *to);
        for (int64_t k = 0; k < n; k++)
            for (int64_t c = 0; c < hidden; c++) to[(k + 1) * hidden + c] = from[hidden + c * n + k];
    }
}

static bool is_quantised(struct binder *b, struct str path) {
    struct tensor_info scales;
    return loader_tensor(&b->l, path, ".scales", -1, &scales);
}

/* The numbers of a tensor as f32, whatever it is stored as. */
static int read_numbers(struct binder *b, struct str path, const struct tensor_info *t, int64_t rows, int64_t columns, float *out,
                        struct err *err) {
    if (is_quantised(b, path)) return loader_dequantised(&b->l, path, rows, columns, out, err);
    return loader_read_f32(&b->l, t, rows * columns, out, err);
}

/* Files for MLX have the channels of a convolution last, which is as the tower wants a joining one. */
static enum turn turn_of(const struct tensor_info *t, enum turn turn) {
    if (t->n_dims >= 4 && t->shape[t->n_dims - 1] == 3 && t->shape[1] != 3) return TURN_PATCHES;
    return turn == TURN_CHANNELS && t->n_dims == 4 && t->shape[1] < t->shape[3] ? TURN_NONE : turn;
}

static int bind_numbers(struct binder *b, struct str path, const struct tensor_info *t, enum turn turn, int64_t out_rows, int64_t in,
                        struct bound *out, struct err *err) {
    size_t bytes = (size_t)(out_rows * in) * sizeof(float);
    float *values = mem_try(bytes), *turned = NULL;
    if (!values) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
    int code = read_numbers(b, path, t, out_rows, in, values, err);
    if (!code && turn) {
        turned = mem_try(bytes);
        if (!turned) code = err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
        else if (turn == TURN_PATCHES) colours_first(b->v, values, turned);
        else if (turn == TURN_OVER) turn_over(values, out_rows, in, turned);
        else if (turn == TURN_BESIDE) beside_first(values, out_rows, in, b->v->hidden, turned);
        else patches_first(values, out_rows, in, (int64_t)b->v->merge * b->v->merge, turned);
    }
    struct weight_source shape = {.name = str_cstr(b->l.arena, path),
                                  .format = {.dtype = is_quantised(b, path) ? DT_F32 : t->dtype},
                                  .n_experts = 1,
                                  .out = out_rows,
                                  .in = in};
    if (!code) code = loader_made(&b->l, &shape, turned ? turned : values, &out->w, err);
    mem_free(values);
    mem_free(turned);
    return code;
}

/* A matrix [out, in] with its bias, if there is one. */
static int bind_bare(struct binder *b, const char *names, int32_t number, enum turn turn, int64_t out_rows, int64_t in, struct bound *out,
                     struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!find(b, names, number, &path, &t)) return missing(path, err);
    turn = turn_of(&t, turn);
    if (!turn && is_quantised(b, path)) TRY(loader_quantised(&b->l, path, out_rows, in, &out->w, err));
    else TRY(bind_numbers(b, path, &t, turn, out_rows, in, out, err));
    return loader_tensor_bias(&b->l, path, -1, &t) ? loader_flat(&b->l, &t, out_rows, &out->bias, err) : ERR_OK;
}

/* One limit of a product; false: the checkpoint has none, or it limits nothing. */
static bool read_limit(struct binder *b, struct str path, const char *suffix, float *out) {
    struct tensor_info t;
    struct err err;
    return loader_tensor(&b->l, path, suffix, -1, &t) && !loader_read_f32(&b->l, &t, 1, out, &err) && isfinite(*out);
}

static int bind_clip(struct binder *b, struct str path, const char *low_name, const char *high_name, int64_t n, struct tower_clip *out,
                     struct err *err) {
    float low, high;
    bool has_low = read_limit(b, path, low_name, &low), has_high = read_limit(b, path, high_name, &high);
    if (!has_low && !has_high) return ERR_OK;
    if (!has_low || !has_high || high <= low)
        return err_set(err, ERR_EUNSUPPORTED, "%.*s: limits on one side are not supported: the model takes text alone", STR_ARG(path));
    float middle = low + (high - low) / 2;
    out->half = (high - low) / 2;
    if (middle == 0) return ERR_OK;
    float *values = arena_new(&b->v->arena, float, n);
    for (int64_t i = 0; i < n; i++) values[i] = -middle;
    TRY(loader_constant(&b->l, "middle", values, n, &out->minus, err));
    for (int64_t i = 0; i < n; i++) values[i] = middle;
    return loader_constant(&b->l, "middle", values, n, &out->plus, err);
}

/* With the limits of its input and output, if there are some. */
static int bind_turned(struct binder *b, const char *names, int32_t number, enum turn turn, int64_t out_rows, int64_t in,
                       struct tower_matrix *out, struct err *err) {
    struct str path, owner;
    struct tensor_info t;
    if (!names) return ERR_OK;
    TRY(bind_bare(b, names, number, turn, out_rows, in, &out->b, err));
    find(b, names, number, &path, &t);
    owner = str_ends(path, STR(".linear")) ? str_sub(path, 0, path.n - (sizeof ".linear" - 1)) : path;
    TRY(bind_clip(b, owner, ".input_min", ".input_max", in, &out->before, err));
    return bind_clip(b, owner, ".output_min", ".output_max", out_rows, &out->after, err);
}

static int bind_matrix(struct binder *b, const char *names, int32_t number, int64_t out_rows, int64_t in, struct tower_matrix *out,
                       struct err *err) {
    return bind_turned(b, names, number, TURN_NONE, out_rows, in, out, err);
}

/* Queries, keys and values are one matrix, or three. */
static int bind_qkv(struct binder *b, int32_t i, struct tower_block *o, struct err *err) {
    const struct vision_names *n = &b->v->family->names;
    int64_t hidden = b->v->hidden, width = (int64_t)b->v->heads * b->v->head;
    struct str path;
    struct tensor_info t;
    if (n->qkv && (!n->q || find(b, n->qkv, i, &path, &t))) return bind_matrix(b, n->qkv, i, 3 * width, hidden, &o->qkv, err);
    TRY(bind_matrix(b, n->q, i, width, hidden, &o->qkv, err));
    TRY(bind_matrix(b, n->k, i, width, hidden, &o->k, err));
    return bind_matrix(b, n->v, i, width, hidden, &o->v, err);
}

/* A norm of one head or of all, where the checkpoint has it. */
static int bind_head_norm(struct binder *b, const char *names, int32_t i, struct bound *out, struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!names || !find(b, names, i, &path, &t)) return ERR_OK;
    int64_t all = (int64_t)b->v->heads * b->v->head, n = loader_tensor_elements(&t, t.n_dims) == all ? all : b->v->head;
    return bind_vector(b, names, i, n, out, err);
}

static int bind_block(struct binder *b, int32_t i, struct tower_block *o, struct err *err) {
    const struct vision_names *n = &b->v->family->names;
    int64_t hidden = b->v->hidden, inner = b->v->inner;
    TRY(bind_vector(b, n->norm1, i, hidden, &o->norm1, err));
    TRY(bind_vector(b, n->norm2, i, hidden, &o->norm2, err));
    if (n->post1) TRY(bind_vector(b, n->post1, i, hidden, &o->post1, err));
    if (n->post2) TRY(bind_vector(b, n->post2, i, hidden, &o->post2, err));
    if (n->scale1) TRY(bind_vector(b, n->scale1, i, hidden, &o->scale1, err));
    if (n->scale2) TRY(bind_vector(b, n->scale2, i, hidden, &o->scale2, err));
    TRY(bind_head_norm(b, n->q_norm, i, &o->q_norm, err));
    TRY(bind_head_norm(b, n->k_norm, i, &o->k_norm, err));
    TRY(bind_qkv(b, i, o, err));
    TRY(bind_matrix(b, n->out, i, hidden, (int64_t)b->v->heads * b->v->head, &o->out, err));
    if (b->v->family->is_gated) TRY(bind_matrix(b, n->gate, i, inner, hidden, &o->gate, err));
    TRY(bind_matrix(b, n->up, i, inner, hidden, &o->up, err));
    return bind_matrix(b, n->down, i, hidden, inner, &o->down, err);
}

/* A number that is stored before its tanh. */
static int read_gate(struct binder *b, const char *name, int32_t i, float *out, struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!find(b, name, i, &path, &t)) return missing(path, err);
    TRY(loader_read_f32(&b->l, &t, 1, out, err));
    *out = m_tanhf(*out);
    return ERR_OK;
}

/* Blocks behind the others, whose halves have gates. */
static int bind_global(struct binder *b, struct err *err) {
    struct vision *v = b->v;
    const char *names[] = {v->family->names.gate1, v->family->names.gate2};
    struct str prefix = b->prefix;
    b->prefix = str_fmt(b->l.arena, "%.*s%s", STR_ARG(prefix), v->family->global);
    for (int32_t i = 0; i < v->tiled.n_global; i++) {
        struct tower_block *o = &v->blocks[v->layers + i];
        struct weight **to[] = {&o->scale1.w, &o->scale2.w};
        float gate;
        o->sees_all = true;
        TRY(bind_block(b, i, o, err));
        for (int k = 0; k < 2; k++) {
            TRY(read_gate(b, names[k], i, &gate, err));
            TRY(loader_constant(&b->l, "gate", &gate, 1, to[k], err));
        }
    }
    b->prefix = prefix;
    return ERR_OK;
}

static int bind_blocks(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    yyjson_val *full = json_get(config, "fullatt_block_indexes"), *item;
    size_t k, n;
    v->blocks = arena_new(&v->arena, struct tower_block, v->layers + v->tiled.n_global + 1);
    for (int32_t i = 0; i < v->layers; i++) {
        v->blocks[i].sees_all = !v->window;
        yyjson_arr_foreach(full, k, n, item) v->blocks[i].sees_all |= yyjson_get_int(item) == i;
        TRY(bind_block(b, i, &v->blocks[i], err));
    }
    return v->family->global ? bind_global(b, err) : ERR_OK;
}

/* Rows of a matrix that is as tall as the checkpoint says. */
static int64_t rows_of(struct binder *b, const char *names, int64_t absent) {
    struct str path;
    struct tensor_info t;
    return names && find(b, names, 0, &path, &t) && t.n_dims >= 2 ? t.shape[0] : absent;
}

/* Merged rows are shifted and stretched where the checkpoint says so. */
static int bind_standard(struct binder *b, struct tower_merger *m, struct err *err) {
    const struct vision_names *n = &b->v->family->names;
    struct str path;
    struct tensor_info t;
    int64_t width = b->v->hidden;
    if (!n->shift || !find(b, n->shift, 0, &path, &t)) return ERR_OK;
    float *values = arena_new(&b->v->arena, float, width);
    TRY(loader_read_f32(&b->l, &t, width, values, err));
    for (int64_t i = 0; i < width; i++) values[i] = -values[i];
    TRY(loader_constant(&b->l, "shift", values, width, &m->shift.w, err));
    return bind_vector(b, n->stretch, 0, width, &m->stretch, err);
}

/* Each part of it may be absent. */
static int bind_last_merger(struct binder *b, int64_t joined, struct err *err) {
    struct vision *v = b->v;
    const struct vision_family *f = v->family;
    const struct vision_names *n = &f->names;
    struct tower_merger *m = &v->mergers[0];
    struct str path;
    struct tensor_info t;
    int64_t width = f->pools ? v->hidden : joined;
    m->norms_joined = f->is_merge_norm_joined;
    bool has_norm = n->merge_norm && (find(b, n->merge_norm, 0, &path, &t) || !f->is_merge_norm_joined);
    if (has_norm) TRY(bind_vector(b, n->merge_norm, 0, m->norms_joined ? width : (int64_t)v->hidden * v->n_taps, &m->norm, err));
    TRY(bind_standard(b, m, err));
    TRY(bind_turned(b, n->merge_join, 0, f->merges_by_channel ? TURN_CHANNELS : TURN_NONE, rows_of(b, n->merge_join, 0), width, &m->join,
                    err));
    width = rows_of(b, n->merge_join, width);
    TRY(bind_matrix(b, n->merge_in, 0, rows_of(b, n->merge_in, 0), width, &m->in, err));
    width = rows_of(b, n->merge_in, width);
    if (n->merge_mid_norm) TRY(bind_vector(b, n->merge_mid_norm, 0, width, &m->mid_norm, err));
    TRY(bind_matrix(b, n->merge_mid, 0, rows_of(b, n->merge_mid, 0), width, &m->mid, err));
    width = rows_of(b, n->merge_mid, width);
    TRY(bind_matrix(b, n->merge_gate, 0, rows_of(b, n->merge_gate, 0), width, &m->gate, err));
    TRY(bind_matrix(b, n->merge_up, 0, rows_of(b, n->merge_gate, 0), width, &m->up, err));
    width = rows_of(b, n->merge_gate, width);
    enum turn turn = f->is_out_transposed ? TURN_OVER : f->global && v->n_taps > 1 ? TURN_BESIDE : TURN_NONE;
    return bind_turned(b, n->merge_out, 0, turn, v->text_hidden, width, &m->out, err);
}

static int bind_mergers(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    const struct vision_names *n = &v->family->names;
    yyjson_val *deep = json_get(config, "deepstack_visual_indexes"), *item;
    int64_t joined = (int64_t)v->hidden * (v->n_taps + (v->family->global ? 1 : 0)) * v->merge * v->merge;
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

/* Rows of a table of positions that is a square, or two of one length. */
static int64_t position_side(const struct vision *v, const struct tensor_info *t) {
    int64_t rows = t->n_dims > 1 ? loader_tensor_elements(t, t->n_dims - 1) : 0;
    if (v->family->positions == POSITIONS_AXES) return rows % 2 ? 0 : rows / 2;
    int64_t cells = rows - (v->family->names.class_row ? 1 : 0), side = cells > 0 && cells < 1 << 20 ? (int64_t)sqrt((double)cells) : 0;
    return side * side == cells ? side : 0;
}

static int bind_positions(struct binder *b, struct err *err) {
    struct vision *v = b->v;
    enum vision_positions kind = v->family->positions;
    struct str path;
    struct tensor_info t;
    if (kind == POSITIONS_NONE) return ERR_OK;
    if (!find(b, v->family->names.positions, 0, &path, &t)) return missing(path, err);
    int64_t side = position_side(v, &t);
    if (side < 1 || side > 1 << 20 || (kind == POSITIONS_SMOOTH && side > POSITION_TAPS))
        return err_set(err, ERR_EFORMAT, "%.*s is no square of positions", STR_ARG(path));
    if (t.shape[t.n_dims - 1] != v->hidden && !is_quantised(b, path))
        return err_set(err, ERR_EFORMAT, "%.*s has rows of %lld numbers, and the tower's have %d", STR_ARG(path),
                       (long long)t.shape[t.n_dims - 1], v->hidden);
    int64_t rows = loader_tensor_elements(&t, t.n_dims - 1);
    v->positions_side = (int32_t)side;
    v->positions = arena_try(&v->arena, (size_t)(rows * v->hidden) * sizeof *v->positions);
    if (!v->positions) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
    return read_numbers(b, path, &t, rows, v->hidden, v->positions, err);
}

static int read_table(struct binder *b, const char *name, int64_t rows, int64_t columns, float **out, struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!find(b, name, 0, &path, &t)) return missing(path, err);
    *out = arena_try(&b->v->arena, (size_t)(rows * columns) * sizeof **out);
    if (!*out) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
    return read_numbers(b, path, &t, rows, columns, *out, err);
}

/* Tables of a tower that sees all tiles at once. */
static int bind_tables(struct binder *b, struct err *err) {
    struct tower_tiled *t = &b->v->tiled;
    const struct vision_names *n = &b->v->family->names;
    int64_t rows = t->n_ratios + 1, width = (int64_t)t->tiles * b->v->hidden;
    t->cells = b->v->positions_side * b->v->positions_side + 1;
    TRY(read_table(b, n->tile_before, rows, width, &t->before, err));
    TRY(read_table(b, n->tile_behind, rows, width, &t->behind, err));
    TRY(read_table(b, n->tile_positions, rows, width * t->cells, &t->positions, err));
    TRY(read_gate(b, n->tile_before_gate, 0, &t->before_gate, err));
    TRY(read_gate(b, n->tile_behind_gate, 0, &t->behind_gate, err));
    return read_gate(b, n->position_gate, 0, &t->gate, err);
}

/* Pairs of a rope, the axis of each, and the step of its frequencies: which of them turns pair i of n. */
static int rope_step(enum vision_rope rope, int32_t i, int32_t n) {
    return rope == VISION_ROPE_IN_TURN ? 2 * (i % (n / 2)) + i / (n / 2) : rope == VISION_ROPE_MIXED ? i / 2 : i % (n / 2);
}

static int8_t rope_axis(enum vision_rope rope, int32_t i, int32_t n) {
    if (rope == VISION_ROPE_MIXED) return i % 2 ? 1 : 2;
    return (i < n / 2) == (rope == VISION_ROPE_PAIRS) ? 2 : 1;
}

static int bind_rope(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    enum vision_rope rope = v->family->rope;
    bool is_apart = rope == VISION_ROPE_APART;
    int32_t n = v->head / 2, width = rope == VISION_ROPE_IN_TURN ? v->head : v->head / 2;
    yyjson_val *said = json_get(json_get(config, "rope_parameters"), "rope_theta");
    float theta = v->family->rope_theta > 0 ? v->family->rope_theta : 10000.0f;
    if (!said) said = json_get(config, "rope_theta");
    if (yyjson_is_num(said) && yyjson_get_num(said) > 0) theta = (float)yyjson_get_num(said);
    if (!rope) return ERR_OK;
    float *table = arena_new(&v->arena, float, n);
    v->n_ropes = is_apart ? 2 : 1;
    for (int32_t k = 0; k < v->n_ropes; k++) {
        struct tower_rope *r = &v->ropes[k];
        int32_t pairs = n / v->n_ropes;
        *r = (struct tower_rope){.axes = arena_new(&v->arena, int8_t, pairs), .first = k * v->head / 2, .n = 2 * pairs};
        for (int32_t i = 0; i < pairs; i++) {
            int32_t step = is_apart ? i : rope_step(rope, i, n);
            table[i] = 1.0f / m_powf(theta, (float)(2 * step) / (float)width);
            r->axes[i] = is_apart ? (k ? 1 : 2) : rope_axis(rope, i, n);
        }
        TRY(loader_constant(&b->l, "tower rope", table, pairs, &r->inv_freq, err));
    }
    return ERR_OK;
}

/* A row that the host puts somewhere. */
static int bind_row(struct binder *b, const char *names, int64_t n, float **out, struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!names) return ERR_OK;
    if (!find(b, names, 0, &path, &t)) return missing(path, err);
    *out = arena_new(&b->v->arena, float, n);
    return loader_read_f32(&b->l, &t, n, *out, err);
}

/* The class token takes the way of a patch without pixels: what that adds is taken off first. */
static int unbias_class(struct binder *b, struct err *err) {
    struct vision *v = b->v;
    struct str path;
    struct tensor_info t;
    if (!v->class_row || !find(b, v->family->names.patch, 0, &path, &t) || !loader_tensor_bias(&b->l, path, -1, &t)) return ERR_OK;
    float *bias = arena_new(&v->arena, float, v->hidden);
    TRY(loader_read_f32(&b->l, &t, v->hidden, bias, err));
    for (int32_t i = 0; i < v->hidden; i++) v->class_row[i] -= bias[i];
    return ERR_OK;
}

/* The rows beside the patches, and norms before and behind the blocks. */
static int bind_ends(struct binder *b, struct err *err) {
    struct vision *v = b->v;
    const struct vision_names *n = &v->family->names;
    if (n->pre_norm) TRY(bind_vector(b, n->pre_norm, 0, v->hidden, &v->pre_norm, err));
    if (n->post_norm) TRY(bind_vector(b, n->post_norm, 0, v->hidden, &v->post_norm, err));
    TRY(bind_row(b, n->class_row, v->hidden, &v->class_row, err));
    TRY(unbias_class(b, err));
    return bind_row(b, n->newline, v->text_hidden, &v->newline, err);
}

static int bind_all(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    struct str prefixes = str_of(v->family->prefixes), path;
    struct tensor_info t;
    enum turn turn = v->family->has_colours_last ? TURN_PATCHES : TURN_NONE;
    while (str_split_next(&prefixes, '|', &b->prefix) && !find(b, v->family->names.patch, 0, &path, &t)) {}
    TRY(bind_turned(b, v->family->names.patch, 0, turn, v->hidden, (int64_t)3 * v->frames * v->patch * v->patch, &v->patches, err));
    TRY(bind_positions(b, err));
    if (v->family->global) TRY(bind_tables(b, err));
    TRY(bind_rope(b, config, err));
    TRY(bind_ends(b, err));
    TRY(bind_blocks(b, config, err));
    return bind_mergers(b, config, err);
}

int tower_bind(struct vision *v, const struct config_part *config, const struct tensor_store *store, struct err *err) {
    struct binder b = {.v = v, .l = {.arena = &v->arena, .backend = v->backend, .store = store, .out = &v->weights}};
    int code = bind_all(&b, config->obj, err);
    map_free(&b.l.seen);
    arena_free(&b.l.scratch);
    return code;
}
