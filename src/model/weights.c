/* The loader: finds tensors by role under the names that checkpoints use, and binds what the spec asks for. */
#include "model/weights.h"

#include "base/log.h"
#include "model/families.h"
#include "model/mixer.h"
#include "tensor/quant.h"

static const char *const default_names[N_ROLES] = {
#define ROLE(id, name) [ROLE_##id] = name,
#include "model/roles.def"
#undef ROLE
};

/* ---- names -------------------------------------------------------------------------------------------------------- */

/* All names of a role, with '|' between them. */
static struct str role_names(const struct loader *l, enum role role) {
    for (const struct role_name *r = l->spec->family->names.roles; r && r->name; r++)
        if (r->role == role) return str_of(r->name);
    return str_of(default_names[role]);
}

static const char *or_else(const char *name, const char *usual) {
    return name ? name : usual;
}

/* One name of a role as a path: prefix and modules filled in, '#' left alone. */
static struct str expand(const struct loader *l, struct arena *a, enum role role, struct str name, int32_t layer) {
    const struct names_row *n = &l->spec->family->names;
    struct str prefix = role == ROLE_HEAD ? l->head_prefix : l->prefix;
    if (name.n < 2 || name.p[0] != '@') return str_fmt(a, "%.*s%.*s", STR_ARG(prefix), STR_ARG(name));
    const char *module = name.p[1] == 'a'   ? or_else(n->attn, "self_attn")
                         : name.p[1] == 'f' ? or_else(n->ffn, "mlp")
                         : name.p[1] == 'm' ? or_else(n->mixer, "mixer")
                                            : "";
    return str_fmt(a, "%.*s%s.%d%s%s%.*s", STR_ARG(prefix), or_else(n->layers, "layers"), layer, *module ? "." : "", module,
                   STR_ARG(str_from(name, 2)));
}

struct str loader_path(const struct loader *l, enum role role, int32_t layer) {
    struct str names = role_names(l, role), name;
    str_split_next(&names, '|', &name);
    return expand(l, l->arena, role, name, layer);
}

int loader_missing(const struct loader *l, enum role role, int32_t layer, struct err *err) {
    struct str names = role_names(l, role), name, first = {0};
    int32_t n = 0;
    for (; str_split_next(&names, '|', &name); n++)
        if (n == 0) first = expand(l, l->arena, role, name, layer);
    if (n == 1) return err_set(err, ERR_EFORMAT, "%.*s is missing from the checkpoint", STR_ARG(first));
    return err_set(err, ERR_EFORMAT, "%.*s (or a tensor of the same role under another name) is missing from the checkpoint",
                   STR_ARG(first));
}

bool loader_tensor(struct loader *l, struct str path, const char *suffix, int32_t expert, struct tensor_info *out) {
    size_t at = str_find_char(path, '#', 0);
    struct str name = at == STR_NONE ? str_fmt(&l->scratch, "%.*s%s", STR_ARG(path), suffix)
                                     : str_fmt(&l->scratch, "%.*s%d%.*s%s", (int)at, path.p, expert < 0 ? 0 : expert,
                                               STR_ARG(str_from(path, at + 1)), suffix);
    if (!l->store->find(l->store->user, name, out)) return false;
    map_put(&l->seen, out->name, NULL);
    return true;
}

bool loader_tensor_values(struct loader *l, struct str path, int32_t expert, struct tensor_info *out) {
    return loader_tensor(l, path, ".weight", expert, out) || loader_tensor(l, path, "", expert, out);
}

bool loader_tensor_bias(struct loader *l, struct str path, int32_t expert, struct tensor_info *out) {
    return loader_tensor(l, path, ".bias", expert, out) || loader_tensor(l, path, "_bias", expert, out);
}

bool loader_find(struct loader *l, enum role role, int32_t layer, struct str *out) {
    struct str names = role_names(l, role), name;
    struct tensor_info t;
    while (str_split_next(&names, '|', &name)) {
        struct str path = expand(l, &l->scratch, role, name, layer);
        if (!loader_tensor_values(l, path, 0, &t) && !loader_tensor(l, path, "_blocks", 0, &t)) continue;
        if (out) *out = path;
        return true;
    }
    return false;
}

bool loader_has(struct loader *l, enum role role, int32_t layer) {
    return loader_find(l, role, layer, NULL);
}

struct bound *loader_slot(struct loader *l, enum role role, int32_t layer) {
    return layer < 0 ? &l->out->global[role] : &l->out->layers[layer][role];
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

static struct weight *track(struct loader *l) {
    struct model_weights *w = l->out;
    if (w->n_all == w->capacity) {
        w->capacity = w->capacity ? w->capacity * 2 : 256;
        w->all = mem_realloc(w->all, (size_t)w->capacity * sizeof *w->all);
    }
    return w->all[w->n_all++] = arena_new(l->arena, struct weight, 1);
}

int loader_bind(struct loader *l, const struct weight_source *source, struct weight **out, struct err *err) {
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

struct made {
    const float *values;
    int64_t in;
    enum dtype dtype;
};

static int read_made(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    (void)plane, (void)err;
    const struct made *m = user;
    plain_from_f32(m->dtype, m->values + row * m->in, n_rows * m->in, dst);
    return ERR_OK;
}

int loader_made(struct loader *l, const struct weight_source *shape, const float *values, struct weight **out, struct err *err) {
    struct made made = {values, shape->in, shape->format.dtype};
    struct weight_source source = *shape;
    source.read = read_made;
    source.user = &made;
    return loader_bind(l, &source, out, err);
}

int loader_constant(struct loader *l, const char *name, const float *values, int64_t n, struct weight **out, struct err *err) {
    return loader_made(
        l, &(struct weight_source){.name = name, .format = {.dtype = DT_F32}, .n_experts = 1, .out = 1, .in = n, .is_vector = true}, values,
        out, err);
}

int64_t loader_tensor_elements(const struct tensor_info *t, int32_t n_dims) {
    int64_t n = 1;
    for (int32_t i = 0; i < n_dims; i++) {
        if (t->shape[i] < 0 || (n > 0 && t->shape[i] > INT64_MAX / n)) return INT64_MAX;
        n *= t->shape[i];
    }
    return n;
}

/* ---- vectors ------------------------------------------------------------------------------------------------------ */

int loader_read_f32(struct loader *l, const struct tensor_info *t, int64_t n, float *out, struct err *err) {
    int64_t have = loader_tensor_elements(t, t->n_dims);
    if (have != n)
        return err_set(err, ERR_EFORMAT, "%.*s has %lld elements, expected %lld", STR_ARG(t->name), (long long)have, (long long)n);
    size_t bytes = (size_t)n * (size_t)dtype_bits(t->dtype) / 8;
    void *raw = mem_try(bytes + 1);
    if (!raw) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->name));
    int code = l->store->read(l->store->user, t, 0, raw, bytes, err);
    if (!code && !plain_to_f32(t->dtype, raw, n, out))
        code = err_set(err, ERR_EUNSUPPORTED, "%.*s is %s, expected F32, F16 or BF16", STR_ARG(t->name), dtype_name(t->dtype));
    mem_free(raw);
    return code;
}

int loader_flat(struct loader *l, const struct tensor_info *t, int64_t n, struct weight **out, struct err *err) {
    float *values = mem_try((size_t)n * sizeof *values);
    if (!values) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->name));
    int code = loader_read_f32(l, t, n, values, err);
    if (!code) code = loader_constant(l, str_cstr(l->arena, t->name), values, n, out, err);
    mem_free(values);
    return code;
}

/* One tensor per head, behind each other. */
static int bind_vectors(struct loader *l, struct str path, int64_t n, struct weight **out, struct err *err) {
    struct tensor_info t;
    float *values = mem_try((size_t)n * sizeof *values);
    if (!values) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(path));
    int code = ERR_OK;
    int64_t at = 0;
    for (int32_t i = 0; at < n && !code; i++) {
        if (!loader_tensor_values(l, path, i, &t)) {
            code = err_set(err, ERR_EFORMAT, "%.*s: number %d is missing from the checkpoint", STR_ARG(path), i);
            break;
        }
        int64_t size = t.n_dims ? t.shape[t.n_dims - 1] : 1;
        if (size < 1 || size > n - at)
            code = err_set(err, ERR_EFORMAT, "%.*s has %lld elements too many", STR_ARG(t.name), (long long)(at + size - n));
        if (!code) code = loader_read_f32(l, &t, size, values + at, err);
        at += size;
    }
    if (!code) code = loader_constant(l, str_cstr(l->arena, path), values, n, out, err);
    mem_free(values);
    return code;
}

int loader_vector(struct loader *l, enum role role, int32_t layer, int64_t n, bool required, struct err *err) {
    struct str path;
    struct tensor_info t;
    struct bound *b = loader_slot(l, role, layer);
    if (!loader_find(l, role, layer, &path)) return required ? loader_missing(l, role, layer, err) : ERR_OK;
    if (str_find_char(path, '#', 0) != STR_NONE) return bind_vectors(l, path, n, &b->w, err);
    loader_tensor_values(l, path, -1, &t);
    TRY(loader_flat(l, &t, n, &b->w, err));
    return loader_tensor_bias(l, path, -1, &t) ? loader_flat(l, &t, n, &b->bias, err) : ERR_OK;
}

int loader_values(struct loader *l, enum role role, int32_t layer, const char *suffix, int64_t n, float *out, struct err *err) {
    struct str names = role_names(l, role), name;
    struct tensor_info t;
    while (str_split_next(&names, '|', &name))
        if (loader_tensor(l, expand(l, &l->scratch, role, name, layer), suffix, -1, &t)) return loader_read_f32(l, &t, n, out, err);
    return err_set(err, ERR_EFORMAT, "%.*s%s is missing from the checkpoint", STR_ARG(loader_path(l, role, layer)), suffix);
}

/* ---- the whole model ---------------------------------------------------------------------------------------------- */

/* Checkpoints differ in what stands before "layers.N" and before "lm_head". */
static int find_prefix(struct loader *l, struct err *err) {
    static const char *const prefixes[] = {"model.",    "language_model.model.", "model.language_model.", "", "transformer.",
                                           "backbone.", "model.model.",          "language_model."};
    static const char *const heads[] = {"", "language_model.", "model."};
    l->prefix = str_of(or_else(l->spec->family->names.root, "model."));
    bool found = loader_has(l, ROLE_EMBED, -1);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !found; i++) {
        l->prefix = str_of(prefixes[i]);
        found = loader_has(l, ROLE_EMBED, -1);
    }
    if (!found) return err_set(err, ERR_EFORMAT, "the checkpoint has no %s.weight under any known prefix", "embed_tokens");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        l->head_prefix = str_of(heads[i]);
        if (loader_has(l, ROLE_HEAD, -1)) return ERR_OK;
    }
    return ERR_OK;
}

static int bind_norms(struct loader *l, int32_t layer, struct err *err) {
    const struct spec *s = l->spec;
    const struct layer_spec *ls = &s->layers[layer];
    if (s->norm.no_weight) return ERR_OK;
    bool mix = ls->mixer != MIX_NONE, ffn = ls->ffn != FFN_NONE, pre = s->wiring != WIRE_POST,
         post = s->wiring == WIRE_POST || s->wiring == WIRE_PRE_POST;
    if (pre && (mix || s->wiring == WIRE_PARALLEL)) TRY(loader_vector(l, ROLE_MIX_NORM, layer, s->hidden, true, err));
    if (pre && ffn && s->wiring != WIRE_PARALLEL) TRY(loader_vector(l, ROLE_FFN_NORM, layer, s->hidden, true, err));
    if (post && mix) TRY(loader_vector(l, ROLE_MIX_POST_NORM, layer, s->hidden, true, err));
    if (post && ffn) TRY(loader_vector(l, ROLE_FFN_POST_NORM, layer, s->hidden, true, err));
    return ERR_OK;
}

static int bind_layer(struct loader *l, int32_t layer, struct err *err) {
    const struct stream *stream = l->spec->family->stream;
    TRY(bind_norms(l, layer, err));
    TRY(mixer_table[l->spec->layers[layer].mixer]->bind(l, layer, err));
    TRY(ffn_bind(l, layer, err));
    arena_reset(&l->scratch);
    return stream && stream->bind ? stream->bind(l, layer, err) : ERR_OK;
}

/* Families that store [in, out] are converted by some tools: the fused projection, never square, tells. */
static void find_orientation(struct loader *l) {
    struct str path;
    struct tensor_info t;
    if (!(l->spec->family->flags & FAM_TRANSPOSED) || !loader_find(l, ROLE_QKV, 0, &path) || !loader_tensor_values(l, path, -1, &t)) return;
    l->is_transposed = t.n_dims == 2 && t.shape[0] == l->spec->hidden && t.shape[1] != l->spec->hidden;
}

static int bind_ropes(struct loader *l, struct err *err) {
    for (int32_t i = 0; i < l->spec->n_ropes; i++) {
        struct rope_spec *r = &l->spec->ropes[i];
        if (r->table < 0) TRY(loader_constant(l, "rope", r->inv_freq, r->n_rotated / 2, &r->bound, err));
    }
    return ERR_OK;
}

static int bind_all(struct loader *l, struct err *err) {
    struct spec *spec = l->spec;
    const struct stream *stream = spec->family->stream;
    TRY(find_prefix(l, err));
    find_orientation(l);
    TRY(loader_matrix(l, ROLE_EMBED, -1, spec->vocab, spec->hidden, err));
    if (spec->family->flags & FAM_LEARNED_POSITIONS) TRY(loader_matrix(l, ROLE_POSITIONS, -1, spec->context, spec->hidden, err));
    if (!spec->norm.no_weight) TRY(loader_vector(l, ROLE_FINAL_NORM, -1, spec->hidden, true, err));
    if (spec->untied || (!spec->tied && loader_has(l, ROLE_HEAD, -1))) TRY(loader_matrix(l, ROLE_HEAD, -1, spec->vocab, spec->hidden, err));
    else l->out->global[ROLE_HEAD].w = l->out->global[ROLE_EMBED].w; /* stored once */
    TRY(bind_ropes(l, err));
    if (stream && stream->bind) TRY(stream->bind(l, -1, err));
    for (int32_t i = 0; i < spec->n_layers; i++) TRY(bind_layer(l, i, err));
    return ERR_OK;
}

/* A tensor that nobody asked for is worth a look when a model answers nonsense. */
static void report_unread(const struct loader *l) {
    enum { SHOWN = 20 };
    size_t n = 0;
    for (size_t i = 0; l->store->name_at; i++) {
        struct str name = l->store->name_at(l->store->user, i);
        if (!name.p) break;
        if (!map_find(&l->seen, name) && n++ < SHOWN) log_debug("checkpoint: nothing reads %.*s", STR_ARG(name));
    }
    if (n > SHOWN) log_debug("checkpoint: nothing reads %zu tensors in all", n);
}

int weights_bind(struct arena *a, struct backend *be, const struct tensor_store *store, struct spec *spec, struct model_weights *out,
                 struct err *err) {
    *out = (struct model_weights){0};
    out->layers = arena_alloc_array(a, sizeof *out->layers, (size_t)spec->n_layers);
    struct loader l = {.arena = a, .backend = be, .store = store, .spec = spec, .out = out};
    int code = bind_all(&l, err);
    if (code) weights_release(be, out);
    else if (log_get_level() >= LOG_DEBUG) report_unread(&l);
    map_free(&l.seen);
    arena_free(&l.scratch);
    return code;
}

void weights_release(struct backend *be, struct model_weights *w) {
    for (int32_t i = 0; i < w->n_all; i++) be->type->weight_release(be, w->all[i]);
    mem_free(w->all);
    *w = (struct model_weights){0};
}
