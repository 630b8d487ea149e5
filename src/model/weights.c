/* The loader: finds tensors by role, checks their shapes, and hands the backend row readers made of segments. */
#include "model/weights.h"

#include "model/families.h"
#include "tensor/quant.h"

enum { SEGMENTS_MAX = 8 };

/* Rows [begin, begin + n) of a weight, taken from one tensor (and its scales and biases) from row `from` on. */
struct segment {
    struct tensor_info planes[N_PLANES];
    int64_t begin, n, from;
};

struct assembly {
    const struct tensor_store *store;
    struct format format;
    int64_t in;
    struct segment segments[SEGMENTS_MAX];
    int32_t n_segments;
};

static const char *const default_names[N_ROLES] = {
#define ROLE(id, name) [ROLE_##id] = name,
#include "model/roles.def"
#undef ROLE
};

struct str loader_path(const struct loader *l, enum role role, int32_t layer) {
    struct str prefix = role == ROLE_HEAD ? l->head_prefix : l->prefix;
    const char *name = default_names[role];
    struct str rest = str_of(name);
    size_t at = str_find(rest, STR("%d"), 0);
    if (at == STR_NONE) return str_fmt(l->arena, "%.*s%s", STR_ARG(prefix), name);
    return str_fmt(l->arena, "%.*s%.*s%d%s", STR_ARG(prefix), (int)at, name, layer, name + at + 2);
}

static bool find(const struct loader *l, struct str path, const char *suffix, struct tensor_info *out) {
    return l->store->find(l->store->user, str_fmt(l->arena, "%.*s%s", STR_ARG(path), suffix), out);
}

bool loader_has(const struct loader *l, enum role role, int32_t layer) {
    struct tensor_info t;
    return find(l, loader_path(l, role, layer), ".weight", &t);
}

static int read_segments(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    const struct assembly *a = user;
    size_t (*const row_bytes[N_PLANES])(const struct format *, int64_t) = {quant_values_bytes, quant_scales_bytes, quant_biases_bytes};
    size_t stride = row_bytes[plane](&a->format, a->in);
    for (int32_t i = 0; i < a->n_segments; i++) {
        const struct segment *s = &a->segments[i];
        int64_t first = row > s->begin ? row : s->begin;
        int64_t last = row + n_rows < s->begin + s->n ? row + n_rows : s->begin + s->n;
        if (first >= last) continue;
        uint64_t offset = (uint64_t)(first - s->begin + s->from) * stride;
        TRY(a->store->read(a->store->user, &s->planes[plane], offset, (char *)dst + (size_t)(first - row) * stride, (size_t)(last - first) * stride, err));
    }
    return ERR_OK;
}

static struct weight *track(struct loader *l) {
    struct model_weights *w = l->out;
    if (w->n_all == w->capacity) {
        w->capacity = w->capacity ? w->capacity * 2 : 256;
        w->all = mem_realloc(w->all, (size_t)w->capacity * sizeof *w->all);
    }
    return w->all[w->n_all++] = arena_new(l->arena, struct weight, 1);
}

static int bind(struct loader *l, const struct weight_source *source, struct weight **out, struct err *err) {
    struct weight *w = track(l);
    int code = l->backend->type->weight_bind(l->backend, source, w, err);
    if (code) {
        l->out->n_all--;
        return code;
    }
    l->out->bytes += w->bytes;
    *out = w;
    return ERR_OK;
}

static int check_shape(const struct tensor_info *t, int64_t rows, int64_t columns, struct err *err) {
    int64_t got_rows = 1, got_columns = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    for (int32_t i = 0; i + 1 < t->n_dims; i++) got_rows *= t->shape[i];
    if (got_rows == rows && got_columns == columns) return ERR_OK;
    return err_set(err, ERR_EFORMAT, "%.*s is [%lld, %lld], expected [%lld, %lld]", STR_ARG(t->name), (long long)got_rows, (long long)got_columns,
                   (long long)rows, (long long)columns);
}

/* The format of a matrix with scales: what the config declares, verified against the shapes of its planes. */
static int quantised_format(struct loader *l, struct str path, struct segment *s, int64_t out, int64_t in, struct format *f, struct err *err) {
    TRY(l->store->format(l->store->user, path, f, err));
    if (f->mode == QUANT_AFFINE) f->dtype = s->planes[PLANE_SCALES].dtype;
    if (in % f->group || in * f->bits % 32) return err_set(err, ERR_EFORMAT, "%.*s: %lld inputs are no multiple of its group of %d", STR_ARG(path), (long long)in, f->group);
    TRY(check_shape(&s->planes[PLANE_VALUES], out, in * f->bits / 32, err));
    TRY(check_shape(&s->planes[PLANE_SCALES], out, in / f->group, err));
    if (s->planes[PLANE_VALUES].dtype != DT_U32) return err_set(err, ERR_EFORMAT, "%.*s.weight is %s, expected U32", STR_ARG(path), dtype_name(s->planes[PLANE_VALUES].dtype));
    if (f->mode != QUANT_AFFINE) return ERR_OK;
    if (f->dtype > DT_BF16) return err_set(err, ERR_EFORMAT, "%.*s.scales is %s, expected a float type", STR_ARG(path), dtype_name(f->dtype));
    if (!find(l, path, ".biases", &s->planes[PLANE_BIASES])) return err_set(err, ERR_EFORMAT, "%.*s.biases is missing", STR_ARG(path));
    if (s->planes[PLANE_BIASES].dtype != f->dtype) return err_set(err, ERR_EFORMAT, "%.*s.biases and .scales differ in type", STR_ARG(path));
    return check_shape(&s->planes[PLANE_BIASES], out, in / f->group, err);
}

/* Finds a matrix and its format; fills the segment's planes. */
static int locate(struct loader *l, struct str path, int64_t out, int64_t in, struct segment *s, struct format *f, struct err *err) {
    if (!find(l, path, ".weight", &s->planes[PLANE_VALUES])) return err_set(err, ERR_EFORMAT, "%.*s.weight is missing from the checkpoint", STR_ARG(path));
    if (find(l, path, ".scales", &s->planes[PLANE_SCALES])) return quantised_format(l, path, s, out, in, f, err);
    *f = (struct format){.mode = QUANT_NONE, .dtype = s->planes[PLANE_VALUES].dtype};
    if (f->dtype > DT_BF16)
        return err_set(err, ERR_EUNSUPPORTED, "%.*s.weight is %s, expected F32, F16, BF16 or a quantised matrix with scales", STR_ARG(path), dtype_name(f->dtype));
    return check_shape(&s->planes[PLANE_VALUES], out, in, err);
}

static int bind_assembly(struct loader *l, struct assembly *a, struct str name, int64_t out, struct weight **w, struct err *err) {
    struct weight_source source = {.name = name.p, .format = a->format, .n_experts = 1, .out = out, .in = a->in, .read = read_segments, .user = a};
    a->store = l->store;
    return bind(l, &source, w, err);
}

static struct bound *slot(struct loader *l, enum role role, int32_t layer) {
    return layer < 0 ? &l->out->global[role] : &l->out->layers[layer][role];
}

/* ---- vectors ------------------------------------------------------------------------------------------------------ */

static int read_floats(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    (void)plane, (void)row, (void)n_rows, (void)err;
    const struct str *bytes = user;
    memcpy(dst, bytes->p, bytes->n);
    return ERR_OK;
}

int loader_constant(struct loader *l, const char *name, const float *values, int64_t n, struct weight **out, struct err *err) {
    struct str bytes = {(const char *)values, (size_t)n * sizeof *values};
    struct weight_source source = {.name = name, .format = {.dtype = DT_F32}, .n_experts = 1, .out = 1, .in = n, .is_vector = true, .read = read_floats, .user = &bytes};
    return bind(l, &source, out, err);
}

/* Reads a small tensor and widens it to f32 behind *out. */
static int read_widened(struct loader *l, const struct tensor_info *t, int64_t n, float *out, struct err *err) {
    int64_t have = 1;
    for (int32_t i = 0; i < t->n_dims; i++) have *= t->shape[i];
    if (have != n) return err_set(err, ERR_EFORMAT, "%.*s has %lld elements, expected %lld", STR_ARG(t->name), (long long)have, (long long)n);
    size_t bytes = (size_t)n * (size_t)dtype_bits(t->dtype) / 8;
    void *raw = mem_alloc(bytes);
    int code = l->store->read(l->store->user, t, 0, raw, bytes, err);
    if (!code && !plain_to_f32(t->dtype, raw, n, out)) code = err_set(err, ERR_EUNSUPPORTED, "%.*s is %s, expected F32, F16 or BF16", STR_ARG(t->name), dtype_name(t->dtype));
    mem_free(raw);
    return code;
}

static int bind_vector(struct loader *l, const struct tensor_info *t, int64_t n, struct weight **out, struct err *err) {
    float *values = mem_alloc((size_t)n * sizeof *values);
    int code = read_widened(l, t, n, values, err);
    if (!code) code = loader_constant(l, str_cstr(l->arena, t->name), values, n, out, err);
    mem_free(values);
    return code;
}

int loader_vector(struct loader *l, enum role role, int32_t layer, int64_t n, bool required, struct err *err) {
    struct str path = loader_path(l, role, layer);
    struct tensor_info t;
    struct bound *b = slot(l, role, layer);
    if (!find(l, path, ".weight", &t)) {
        if (required) return err_set(err, ERR_EFORMAT, "%.*s.weight is missing from the checkpoint", STR_ARG(path));
        return ERR_OK;
    }
    TRY(bind_vector(l, &t, n, &b->w, err));
    return find(l, path, ".bias", &t) ? bind_vector(l, &t, n, &b->bias, err) : ERR_OK;
}

/* ---- matrices ----------------------------------------------------------------------------------------------------- */

int loader_matrix(struct loader *l, enum role role, int32_t layer, int64_t out, int64_t in, struct err *err) {
    return loader_stack(l, role, &(struct stack_part){role, out}, 1, layer, in, err);
}

/* The biases of all parts in one vector; parts without one contribute zeros. */
static int stack_bias(struct loader *l, const struct stack_part *parts, int32_t n_parts, int32_t layer, int64_t total, struct weight **out, struct err *err) {
    struct tensor_info t[SEGMENTS_MAX];
    bool has[SEGMENTS_MAX], any = false;
    for (int32_t i = 0; i < n_parts; i++) any |= has[i] = find(l, loader_path(l, parts[i].role, layer), ".bias", &t[i]);
    if (!any) return ERR_OK;
    float *values = mem_alloc((size_t)total * sizeof *values);
    int code = ERR_OK;
    int64_t at = 0;
    for (int32_t i = 0; i < n_parts && !code; at += parts[i++].out)
        if (has[i]) code = read_widened(l, &t[i], parts[i].out, values + at, err);
    if (!code) code = loader_constant(l, str_fmt(l->arena, "%.*s.bias", STR_ARG(loader_path(l, parts[0].role, layer))).p, values, total, out, err);
    mem_free(values);
    return code;
}

static bool format_eq(const struct format *a, const struct format *b) {
    return a->mode == b->mode && a->dtype == b->dtype && a->bits == b->bits && a->group == b->group;
}

int loader_stack(struct loader *l, enum role into, const struct stack_part *parts, int32_t n_parts, int32_t layer, int64_t in, struct err *err) {
    struct assembly a = {.in = in, .n_segments = n_parts};
    struct format formats[SEGMENTS_MAX];
    int64_t total = 0;
    bool same = true;
    for (int32_t i = 0; i < n_parts; i++) {
        struct segment *s = &a.segments[i];
        TRY(locate(l, loader_path(l, parts[i].role, layer), parts[i].out, in, s, &formats[i], err));
        s->begin = total;
        s->n = parts[i].out;
        total += parts[i].out;
        same &= format_eq(&formats[i], &formats[0]);
    }
    if (!same) { /* each on its own */
        for (int32_t i = 0; i < n_parts; i++) TRY(loader_matrix(l, parts[i].role, layer, parts[i].out, in, err));
        return ERR_OK;
    }
    a.format = formats[0];
    struct bound *b = slot(l, into, layer);
    TRY(bind_assembly(l, &a, loader_path(l, into, layer), total, &b->w, err));
    return stack_bias(l, parts, n_parts, layer, total, &b->bias, err);
}

/* ---- the whole model ---------------------------------------------------------------------------------------------- */

/* Checkpoints differ in what stands before "layers.N" and before "lm_head". */
static int find_prefix(struct loader *l, struct err *err) {
    static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model.", "", "transformer.", "backbone."};
    static const char *const heads[] = {"", "language_model.", "model."};
    struct tensor_info t;
    bool found = false;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !found; i++) {
        l->prefix = str_of(prefixes[i]);
        found = find(l, loader_path(l, ROLE_EMBED, -1), ".weight", &t);
    }
    if (!found) return err_set(err, ERR_EFORMAT, "the checkpoint has no %s.weight under any known prefix", default_names[ROLE_EMBED]);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        l->head_prefix = str_of(heads[i]);
        if (find(l, loader_path(l, ROLE_HEAD, -1), ".weight", &t)) return ERR_OK;
    }
    return ERR_OK;
}

static int bind_attention(struct loader *l, int32_t layer, struct err *err) {
    const struct attn_spec *a = &l->spec->layers[layer].attn;
    int64_t hidden = l->spec->hidden, q = (int64_t)a->heads * a->k_width, k = (int64_t)a->kv_heads * a->k_width, v = (int64_t)a->kv_heads * a->v_width;
    if (loader_has(l, ROLE_QKV, layer)) TRY(loader_matrix(l, ROLE_QKV, layer, q + k + v, hidden, err));
    else TRY(loader_stack(l, ROLE_QKV, (struct stack_part[]){{ROLE_Q, q}, {ROLE_K, k}, {ROLE_V, v}}, 3, layer, hidden, err));
    TRY(loader_matrix(l, ROLE_O, layer, hidden, (int64_t)a->heads * a->v_width, err));
    if (a->qk_norm == QK_NONE) return ERR_OK;
    bool full = a->qk_norm == QK_FULL || a->qk_norm == QK_PER_HEAD;
    TRY(loader_vector(l, ROLE_Q_NORM, layer, full ? q : a->k_width, true, err));
    return loader_vector(l, ROLE_K_NORM, layer, full ? k : a->k_width, true, err);
}

static int bind_ffn(struct loader *l, int32_t layer, struct err *err) {
    int64_t hidden = l->spec->hidden, inner = l->spec->layers[layer].inner;
    if (l->spec->layers[layer].ffn == FFN_PLAIN) {
        TRY(loader_matrix(l, ROLE_UP, layer, inner, hidden, err));
    } else if (loader_has(l, ROLE_GATE_UP, layer)) {
        TRY(loader_matrix(l, ROLE_GATE_UP, layer, 2 * inner, hidden, err));
    } else {
        TRY(loader_stack(l, ROLE_GATE_UP, (struct stack_part[]){{ROLE_GATE, inner}, {ROLE_UP, inner}}, 2, layer, hidden, err));
    }
    return loader_matrix(l, ROLE_DOWN, layer, hidden, inner, err);
}

static int bind_layer(struct loader *l, int32_t layer, struct err *err) {
    TRY(loader_vector(l, ROLE_MIX_NORM, layer, l->spec->hidden, true, err));
    TRY(loader_vector(l, ROLE_FFN_NORM, layer, l->spec->hidden, true, err));
    TRY(bind_attention(l, layer, err));
    return bind_ffn(l, layer, err);
}

static int bind_all(struct loader *l, struct spec *spec, struct err *err) {
    TRY(find_prefix(l, err));
    TRY(loader_matrix(l, ROLE_EMBED, -1, spec->vocab, spec->hidden, err));
    TRY(loader_vector(l, ROLE_FINAL_NORM, -1, spec->hidden, true, err));
    if (!spec->tied && loader_has(l, ROLE_HEAD, -1)) TRY(loader_matrix(l, ROLE_HEAD, -1, spec->vocab, spec->hidden, err));
    else l->out->global[ROLE_HEAD] = l->out->global[ROLE_EMBED]; /* stored once */
    for (int32_t i = 0; i < spec->n_ropes; i++)
        if (spec->ropes[i].table < 0) TRY(loader_constant(l, "rope", spec->ropes[i].inv_freq, spec->ropes[i].n_rotated / 2, &spec->ropes[i].bound, err));
    for (int32_t i = 0; i < spec->n_layers; i++) TRY(bind_layer(l, i, err));
    return ERR_OK;
}

int weights_bind(struct arena *a, struct backend *be, const struct tensor_store *store, struct spec *spec, struct model_weights *out, struct err *err) {
    *out = (struct model_weights){0};
    out->layers = arena_alloc_array(a, sizeof *out->layers, (size_t)spec->n_layers);
    struct loader l = {.arena = a, .backend = be, .store = store, .spec = spec, .out = out};
    int code = bind_all(&l, spec, err);
    if (code) weights_release(be, out);
    return code;
}

void weights_release(struct backend *be, struct model_weights *w) {
    for (int32_t i = 0; i < w->n_all; i++) be->type->weight_release(be, w->all[i]);
    mem_free(w->all);
    *w = (struct model_weights){0};
}
