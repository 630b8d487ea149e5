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
    v->is_quick_gelu = !name.p || str_is(name, "quick_gelu");
    return v->is_quick_gelu ? ERR_OK : resolve_activation(name, &v->act, err);
}

static int read_sizes(struct vision *v, const struct config_part *p, struct err *err) {
    const struct vision_keys *k = &v->family->keys;
    int32_t out, window, ratio;
    TRY(read_int(p, k->hidden, 1, 1 << 16, -1, &v->hidden, err));
    TRY(read_int(p, k->heads, 1, 1024, -1, &v->heads, err));
    TRY(read_int(p, k->depth, 1, TOWER_LAYERS_MAX, -1, &v->layers, err));
    TRY(read_int(p, "patch_size", 1, 256, 14, &v->patch, err));
    TRY(read_int(p, "temporal_patch_size", 1, 16, 2, &v->frames, err));
    TRY(read_int(p, "spatial_merge_size", 1, 16, 2, &v->merge, err));
    TRY(read_int(p, "mlp_ratio", 1, 64, 4, &ratio, err));
    v->inner = v->hidden * ratio;
    if (k->inner) TRY(read_int(p, k->inner, 1, 1 << 20, -1, &v->inner, err));
    TRY(read_int(p, k->out, 1, 1 << 20, v->text_hidden, &out, err));
    TRY(read_int(p, "window_size", 1, 1 << 16, 112, &window, err));
    if (v->family->has_windows) v->window = window / v->patch / v->merge > 0 ? window / v->patch / v->merge : 1;
    if (out != v->text_hidden)
        return err_set(err, ERR_EFORMAT, "%s: %s of %s is %d, and the text model's rows have %d", p->file, k->out, p->where, out,
                       v->text_hidden);
    if (v->hidden % v->heads || v->hidden / v->heads % 4)
        return err_set(err, ERR_EFORMAT, "%s: %d numbers for %d heads of %s", p->file, v->hidden, v->heads, p->where);
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
        struct str path = str_fmt(b->l.arena, "%.*s%.*s", STR_ARG(b->prefix), STR_ARG(name));
        size_t at = str_find_char(path, '#', 0);
        if (at != STR_NONE) path = str_fmt(b->l.arena, "%.*s%d%.*s", (int)at, path.p, number, STR_ARG(str_from(path, at + 1)));
        *out = path;
        if (loader_tensor_values(&b->l, path, -1, t)) return true;
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

static int bind_numbers(struct binder *b, struct str path, const struct tensor_info *t, int64_t out_rows, int64_t in, struct bound *out,
                        struct err *err) {
    size_t bytes = (size_t)(out_rows * in) * sizeof(float);
    float *values = mem_try(bytes), *turned = NULL;
    if (!values) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
    int code = loader_read_f32(&b->l, t, out_rows * in, values, err);
    bool is_channel_last = t->n_dims >= 4 && t->shape[t->n_dims - 1] == 3 && t->shape[1] != 3;
    if (!code && is_channel_last) {
        turned = mem_try(bytes);
        if (turned) colours_first(b->v, values, turned);
        else code = err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
    }
    struct weight_source shape = {
        .name = str_cstr(b->l.arena, path), .format = {.dtype = t->dtype}, .n_experts = 1, .out = out_rows, .in = in};
    if (!code) code = loader_made(&b->l, &shape, turned ? turned : values, &out->w, err);
    mem_free(values);
    mem_free(turned);
    return code;
}

/* A matrix [out, in] with its bias, if there is one. */
static int bind_matrix(struct binder *b, const char *names, int32_t number, int64_t out_rows, int64_t in, struct bound *out,
                       struct err *err) {
    struct str path;
    struct tensor_info t, scales;
    if (!find(b, names, number, &path, &t)) return missing(path, err);
    if (loader_tensor(&b->l, path, ".scales", -1, &scales))
        return err_set(err, ERR_EUNSUPPORTED, "%.*s is quantised: towers run with plain weights", STR_ARG(path));
    TRY(bind_numbers(b, path, &t, out_rows, in, out, err));
    return loader_tensor_bias(&b->l, path, -1, &t) ? loader_flat(&b->l, &t, out_rows, &out->bias, err) : ERR_OK;
}

static int bind_block(struct binder *b, int32_t i, struct tower_block *o, struct err *err) {
    const struct vision_names *n = &b->v->family->names;
    int64_t hidden = b->v->hidden, inner = b->v->inner;
    TRY(bind_vector(b, n->norm1, i, hidden, &o->norm1, err));
    TRY(bind_vector(b, n->norm2, i, hidden, &o->norm2, err));
    TRY(bind_matrix(b, n->qkv, i, 3 * hidden, hidden, &o->qkv, err));
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

static int bind_mergers(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    const struct vision_names *n = &v->family->names;
    yyjson_val *deep = json_get(config, "deepstack_visual_indexes"), *item;
    int64_t joined = (int64_t)v->hidden * v->merge * v->merge;
    size_t k, count;
    TRY(bind_vector(b, n->merge_norm, 0, v->hidden, &v->mergers[0].norm, err));
    TRY(bind_matrix(b, n->merge_in, 0, joined, joined, &v->mergers[0].in, err));
    TRY(bind_matrix(b, n->merge_out, 0, v->text_hidden, joined, &v->mergers[0].out, err));
    v->n_mergers = 1;
    if (!n->deep_in) return ERR_OK;
    yyjson_arr_foreach(deep, k, count, item) {
        if (v->n_mergers == MERGERS_MAX)
            return err_set(err, ERR_EUNSUPPORTED, "config.json: deepstack_visual_indexes has more than %d entries", MERGERS_MAX - 1);
        struct tower_merger *m = &v->mergers[v->n_mergers];
        m->norms_joined = true;
        v->deep_at[v->n_mergers++] = (int32_t)yyjson_get_int(item);
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
    int64_t n = t.n_dims == 2 ? t.shape[0] : 0;
    v->positions_side = (int32_t)sqrt((double)n);
    if (n < 1 || n > 1 << 20 || (int64_t)v->positions_side * v->positions_side != n)
        return err_set(err, ERR_EFORMAT, "%.*s is no square of positions", STR_ARG(path));
    v->positions = arena_new(&v->arena, float, n * v->hidden);
    return loader_read_f32(&b->l, &t, n * v->hidden, v->positions, err);
}

/* Rows turn a quarter of the head's pairs, columns the next; each by the same frequencies. */
static int bind_rope(struct binder *b, struct err *err) {
    struct vision *v = b->v;
    int32_t width = v->hidden / v->heads, n = width / 4;
    float *table = arena_new(&v->arena, float, 2 * n);
    v->axes = arena_new(&v->arena, int8_t, 2 * n);
    for (int32_t i = 0; i < 2 * n; i++) {
        table[i] = 1.0f / m_powf(10000.0f, (float)(2 * (i % n)) / (float)(width / 2));
        v->axes[i] = i < n ? 1 : 2;
    }
    return loader_constant(&b->l, "tower rope", table, 2 * n, &v->inv_freq, err);
}

static int bind_all(struct binder *b, yyjson_val *config, struct err *err) {
    struct vision *v = b->v;
    struct str prefixes = str_of(v->family->prefixes), path;
    struct tensor_info t;
    while (str_split_next(&prefixes, '|', &b->prefix) && !find(b, v->family->names.patch, 0, &path, &t)) {}
    TRY(bind_matrix(b, v->family->names.patch, 0, v->hidden, (int64_t)3 * v->frames * v->patch * v->patch, &v->patches, err));
    TRY(bind_positions(b, err));
    TRY(bind_rope(b, err));
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
    return op_norm(l, x, &(struct norm_args){.weight = w->w, .bias = w->bias, .kind = v->family->norm, .eps = v->family->eps});
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
    struct tensor all = linear(l, x, &b->qkv);
    struct tensor q = tensor_split_heads(tensor_slice(all, 0, v->hidden), v->heads);
    struct tensor k = tensor_split_heads(tensor_slice(all, v->hidden, v->hidden), v->heads);
    struct tensor values = tensor_split_heads(tensor_slice(all, 2 * v->hidden, v->hidden), v->heads);
    q = op_rope(l, q, &rope);
    k = op_rope(l, k, &rope);
    return linear(l, tensor_join_heads(op_attn_rows(l, q, k, values, &args)), &b->out);
}

static struct tensor feed(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_block *b) {
    struct tensor up = linear(l, x, &b->up);
    if (!v->family->is_gated) return linear(l, activate(v, l, up), &b->down);
    struct tensor gate = linear(l, x, &b->gate);
    return linear(l, op_glu(l, gate, up, &(struct act_args){.kind = v->act, .scale = 1.0f}), &b->down);
}

static struct tensor merge(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_merger *m) {
    int32_t each = v->merge * v->merge;
    x = m->norms_joined ? norm(v, l, join_rows(x, each), &m->norm) : join_rows(norm(v, l, x, &m->norm), each);
    x = op_act(l, linear(l, x, &m->in), &(struct act_args){.kind = ACT_GELU, .scale = 1.0f});
    return linear(l, x, &m->out);
}

void tower_forward(const struct vision *v, struct oplist *l, struct tensor *out_sets) {
    struct tensor none = {0};
    struct tensor x = op_given(l, none, &(struct given_args){.width = 3 * v->frames * v->patch * v->patch});
    x = linear(l, x, &v->patches);
    if (v->positions) x = op_given(l, x, &(struct given_args){.set = 1, .width = v->hidden, .adds = 1});
    for (int32_t i = 0; i < v->layers; i++) {
        const struct tower_block *b = &v->blocks[i];
        l->layer = i;
        x = op_add(l, x, attend(v, l, norm(v, l, x, &b->norm1), b), NULL);
        x = op_add(l, x, feed(v, l, norm(v, l, x, &b->norm2), b), NULL);
        for (int32_t k = 1; k < v->n_mergers; k++)
            if (v->deep_at[k] == i) out_sets[k] = merge(v, l, x, &v->mergers[k]);
    }
    l->layer = -1;
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

void tower_positions(const struct vision *v, const struct patches *p, float *out) {
    int32_t side = v->positions_side;
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
