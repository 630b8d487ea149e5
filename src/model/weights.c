/* The loader: finds tensors by role under the names that checkpoints use, and binds what the spec asks for. */
#include "model/weights.h"

#include "base/fmath.h"
#include "model/families.h"
#include "model/mixer.h"
#include "tensor/quant.h"

static const char *const default_names[N_ROLES] = {
#define ROLE(id, side, axis, name) [ROLE_##id] = name,
#include "model/roles.def"
#undef ROLE
};

static const struct role_cut role_cuts[N_ROLES] = {
#define ROLE(id, side, axis, name) [ROLE_##id] = {CUT_##side, AXIS_##axis},
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
    int32_t of = name.p[1] == 's' ? l->spec->layers[layer].lender : layer;
    struct str rest = str_from(name, 2);
    size_t at = str_find_char(rest, '%', 0);
    if (at != STR_NONE) rest = str_fmt(a, "%.*s%d%.*s", (int)at, rest.p, l->spec->layers[layer].use, STR_ARG(str_from(rest, at + 1)));
    return str_fmt(a, "%.*s%.*s.%d%s%s%.*s", STR_ARG(prefix), STR_ARG(l->layers), of, *module ? "." : "", module, STR_ARG(rest));
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
    if (l->store->shown) first = l->store->shown(l->store->user, l->arena, first);
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
    return loader_tensor(l, path, ".weight", expert, out) || loader_tensor(l, path, "", expert, out) ||
           loader_tensor(l, path, ".gamma", expert, out); /* as norms of old files have it */
}

bool loader_tensor_bias(struct loader *l, struct str path, int32_t expert, struct tensor_info *out) {
    return loader_tensor(l, path, ".bias", expert, out) || loader_tensor(l, path, "_bias", expert, out) ||
           loader_tensor(l, path, ".beta", expert, out);
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

void loader_ignore(struct loader *l, const enum role *roles, int32_t n, int32_t layer) {
    static const char *const planes[] = {".weight", "", ".scales", ".biases", ".bias"};
    struct str path;
    struct tensor_info t;
    for (int32_t i = 0; i < n; i++)
        for (size_t k = 0; loader_find(l, roles[i], layer, &path) && k < sizeof planes / sizeof *planes; k++)
            loader_tensor(l, path, planes[k], -1, &t);
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
    *out = NULL;
    if (l->is_absent || source->n_experts == 0 || source->out == 0 || source->in == 0) return ERR_OK; /* other ranks have it */
    struct weight *w = track(l);
    struct weight_source placed = *source;
    placed.reader = l->reader;
    placed.is_expert = l->is_expert;
    int code = l->backend->type->weight_bind(l->backend, &placed, w, err);
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

/* ---- parts of ranks ------------------------------------------------------------------------------------------------ */

struct role_cut loader_cut(enum role role) {
    return role_cuts[role];
}

struct cut_range loader_range(const struct loader *l, enum cut_axis axis, int32_t layer, int64_t units) {
    enum { STEP = 16 }; /* rows that kernels take together */
    if (!l->cuts || l->keeps_whole) return (struct cut_range){0};
    if (axis == AXIS_EXPERTS) return cut_share(units, 1, l->rank);
    if (axis == AXIS_VOCAB) return cut_share(units, units / STEP < l->rank.n ? 1 : STEP, l->rank);
    return layer < 0 ? (struct cut_range){0} : l->cuts[layer].axes[axis];
}

int64_t loader_own(const struct loader *l, enum role role, int32_t layer, const float **values, int64_t n) {
    struct role_cut cut = role_cuts[role];
    struct cut_range range = cut.side == CUT_ROWS ? loader_range(l, cut.axis, layer, n) : (struct cut_range){0};
    if (range.of == 0) return n;
    *values += range.first * (n / range.of);
    return range.n * (n / range.of);
}

int loader_bind_mixer(struct loader *l, const struct mixer *m, int32_t layer, struct err *err) {
    const struct layer_cut *c = l->cuts ? &l->cuts[layer] : NULL;
    bool was_absent = l->is_absent;
    l->is_absent = c && (m->is_recurrent ? c->no_recurrence : c->no_attention);
    int code = m->bind(l, layer, err);
    l->is_absent = was_absent;
    return code;
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

static int bind_flat(struct loader *l, const struct tensor_info *t, int64_t n, enum role role, int32_t layer, struct weight **out,
                     struct err *err) {
    float *values = mem_try((size_t)n * sizeof *values);
    const float *own = values;
    if (!values) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->name));
    int code = loader_read_f32(l, t, n, values, err);
    int64_t n_own = role < N_ROLES ? loader_own(l, role, layer, &own, n) : n;
    if (!code) code = loader_constant(l, str_cstr(l->arena, t->name), own, n_own, out, err);
    mem_free(values);
    return code;
}

int loader_flat(struct loader *l, const struct tensor_info *t, int64_t n, struct weight **out, struct err *err) {
    return bind_flat(l, t, n, N_ROLES, -1, out, err);
}

int loader_flat_part(struct loader *l, enum role role, int32_t layer, const struct tensor_info *t, int64_t n, struct weight **out,
                     struct err *err) {
    return bind_flat(l, t, n, role, layer, out, err);
}

/* One tensor per head, behind each other. */
static int bind_vectors(struct loader *l, enum role role, int32_t layer, struct str path, int64_t n, struct weight **out, struct err *err) {
    struct tensor_info t;
    float *values = mem_try((size_t)n * sizeof *values);
    const float *own = values;
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
    n = loader_own(l, role, layer, &own, n);
    if (!code) code = loader_constant(l, str_cstr(l->arena, path), own, n, out, err);
    mem_free(values);
    return code;
}

/* Of what keeps whole, whatever its role says, nothing belongs to single heads. */
static void tell_vector(const struct loader *l, enum role role, int32_t layer, int64_t n, struct str path) {
    const struct tensor_watch *watch = l->store->watch;
    struct role_cut cut = l->keeps_whole ? (struct role_cut){0} : loader_cut(role);
    if (!watch) return;
    watch->use(watch->user,
               &(struct tensor_use){.path = path, .role = role, .layer = layer, .side = cut.side, .axis = cut.axis, .n = n, .of = n});
}

int loader_vector(struct loader *l, enum role role, int32_t layer, int64_t n, bool required, struct err *err) {
    struct str path;
    struct tensor_info t;
    struct bound *b = loader_slot(l, role, layer);
    if (!loader_find(l, role, layer, &path)) return required ? loader_missing(l, role, layer, err) : ERR_OK;
    tell_vector(l, role, layer, n, path);
    if (str_find_char(path, '#', 0) != STR_NONE) return bind_vectors(l, role, layer, path, n, &b->w, err);
    loader_tensor_values(l, path, -1, &t);
    TRY(loader_flat_part(l, role, layer, &t, n, &b->w, err));
    return loader_tensor_bias(l, path, -1, &t) ? loader_flat_part(l, role, layer, &t, n, &b->bias, err) : ERR_OK;
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
static const char *const prefixes[] = {
    "model.",          "language_model.model.", "model.language_model.", "",        "transformer.", "backbone.", "model.model.",
    "language_model.", "model.text_model.",     "model.decoder.",        "decoder."};
static const char *const head_prefixes[] = {"", "language_model.", "model."};

/* What a layer's tensors begin with behind the prefix; some converters call it otherwise. */
static void find_layers(struct loader *l) {
    static const enum role common[] = {ROLE_MIX_NORM, ROLE_FFN_NORM, ROLE_MIX_POST_NORM, ROLE_O};
    struct str names = str_of(or_else(l->spec->family->names.layers, "layers|h"));
    while (str_split_next(&names, '|', &l->layers))
        for (size_t i = 0; i < sizeof common / sizeof *common; i++)
            if (loader_has(l, common[i], 0)) return;
}

static int find_prefix(struct loader *l, struct err *err) {
    l->prefix = str_of(or_else(l->spec->family->names.root, "model."));
    bool found = loader_has(l, ROLE_EMBED, -1);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !found; i++) {
        l->prefix = str_of(prefixes[i]);
        found = loader_has(l, ROLE_EMBED, -1);
    }
    if (!found) l->prefix = (struct str){0};
    if (!found && !l->store->lender)
        return err_set(err, ERR_EFORMAT, "the checkpoint has no %s.weight under any known prefix", "embed_tokens");
    for (size_t i = 0; i < sizeof head_prefixes / sizeof *head_prefixes; i++) {
        l->head_prefix = str_of(head_prefixes[i]);
        if (loader_has(l, ROLE_HEAD, -1)) return ERR_OK;
    }
    return ERR_OK;
}

static void tell_layers(struct loader *l) {
    const struct tensor_watch *watch = l->store->watch;
    if (watch) watch->layers(watch->user, str_fmt(&l->scratch, "%.*s%.*s.", STR_ARG(l->prefix), STR_ARG(l->layers)));
}

/* The head is the embedding's matrix, stored once. It may have a bias of its own all the same, beside no weight. */
static int tie_head(struct loader *l, struct err *err) {
    struct bound *head = &l->out->global[ROLE_HEAD];
    struct tensor_info t;
    *head = l->out->global[ROLE_EMBED];
    head->bias = NULL;
    TRY(adapt_tied_head(l, &head->w, err));
    for (size_t i = 0; i < sizeof head_prefixes / sizeof *head_prefixes; i++) {
        struct str names = role_names(l, ROLE_HEAD), name;
        l->head_prefix = str_of(head_prefixes[i]);
        while (str_split_next(&names, '|', &name))
            if (loader_tensor(l, expand(l, &l->scratch, ROLE_HEAD, name, -1), ".bias", -1, &t))
                return loader_flat_part(l, ROLE_HEAD, -1, &t, l->spec->vocab, &head->bias, err);
    }
    return ERR_OK;
}

/* Whether a file's head holds the same bytes as its embedding: writers of some formats keep both. */
static int head_is_embedding(struct loader *l, bool *out, struct err *err) {
    enum { SPAN = 1 << 20 };
    struct str paths[2];
    struct tensor_info t[2];
    *out = false;
    if (!loader_find(l, ROLE_EMBED, -1, &paths[0]) || !loader_find(l, ROLE_HEAD, -1, &paths[1])) return ERR_OK;
    for (int i = 0; i < 2; i++)
        if (!loader_tensor_values(l, paths[i], -1, &t[i])) return ERR_OK;
    if (t[0].dtype != t[1].dtype || t[0].n_dims != t[1].n_dims || memcmp(t[0].shape, t[1].shape, sizeof t[0].shape) != 0) return ERR_OK;
    size_t n = (size_t)loader_tensor_elements(&t[0], t[0].n_dims) * (size_t)dtype_bits(t[0].dtype) / 8;
    char *spans = mem_alloc(2 * SPAN);
    int code = ERR_OK;
    *out = true;
    for (size_t at = 0; at < n && *out && !code; at += SPAN) {
        size_t part = n - at < SPAN ? n - at : SPAN;
        for (int i = 0; i < 2 && !code; i++) code = l->store->read(l->store->user, &t[i], at, spans + i * SPAN, part, err);
        *out = !code && memcmp(spans, spans + SPAN, part) == 0;
    }
    mem_free(spans);
    return code;
}

/* What the file has counts: a head of its own is used even where config.json says that there is none. */
static int settle_head(struct loader *l, struct spec *spec, struct err *err) {
    if (spec->is_encoder || l->store->lends_head) return ERR_OK;
    bool has_head = loader_has(l, ROLE_HEAD, -1);
    if (!has_head && spec->untied) return loader_missing(l, ROLE_HEAD, -1, err);
    if (!has_head) spec->tied = true;
    return has_head && spec->tied ? head_is_embedding(l, &spec->tied, err) : ERR_OK;
}

static int bind_head(struct loader *l, struct err *err) {
    const struct spec *s = l->spec;
    if (s->is_encoder) return ERR_OK;
    if (l->store->lends_head) {
        l->out->global[ROLE_HEAD] = l->store->lender->global[ROLE_HEAD];
        return ERR_OK;
    }
    return s->tied ? tie_head(l, err) : loader_matrix(l, ROLE_HEAD, -1, s->vocab, s->embed_width, err);
}

/* Half of the buckets are for keys behind a row. The first half of those count distances one by one, the others grow with the logarithm. */
static int32_t bucket_of(int32_t distance) {
    enum { BUCKETS = 32 }; /* whatever config.json says, as the reference has it */
    int32_t half = BUCKETS / 2, exact = half / 2, n = distance < 0 ? -distance : distance, first = distance > 0 ? half : 0;
    if (n < exact) return first + n;
    float grown = m_logf((float)n / (float)exact) / m_logf((float)DISTANCE_MAX / (float)exact) * (float)(half - exact);
    int32_t large = exact + (int32_t)grown;
    return first + (large < half ? large : half - 1);
}

/* [buckets][heads] becomes [distances][heads]. */
static int bind_distances(struct loader *l, struct err *err) {
    const struct spec *s = l->spec;
    int32_t heads = s->layers[0].attn.heads, n = 2 * DISTANCE_MAX + 1;
    float *table = arena_new(&l->scratch, float, (int64_t)s->n_buckets *heads), *out = arena_new(&l->scratch, float, (int64_t)n *heads);
    TRY(loader_values(l, ROLE_DISTANCES, -1, ".weight", (int64_t)s->n_buckets * heads, table, err));
    struct cut_range own = loader_range(l, AXIS_HEADS, 0, heads);
    if (own.of == 0) own = (struct cut_range){0, heads, heads};
    for (int32_t d = 0; d < n; d++)
        memcpy(out + d * own.n, table + (int64_t)bucket_of(d - DISTANCE_MAX) * heads + own.first, (size_t)own.n * sizeof *out);
    return loader_constant(l, "distances", out, n * own.n, &loader_slot(l, ROLE_DISTANCES, -1)->w, err);
}

/* What stands before the first layer and behind the last, but for the head. */
static int bind_ends(struct loader *l, struct err *err) {
    const struct spec *s = l->spec;
    if (s->tied && !s->is_encoder) l->reader = READ_ENDS;
    if (l->store->lender) l->out->global[ROLE_EMBED] = l->store->lender->global[ROLE_EMBED];
    else TRY(loader_matrix(l, ROLE_EMBED, -1, s->embed_rows ? s->embed_rows : s->vocab, s->embed_width, err));
    l->reader = READ_BEFORE;
    int64_t width = s->is_encoder ? s->embed_width : s->hidden; /* of what is added to the embedding */
    TRY(loader_vector(l, ROLE_EMBED_NORM, -1, width, false, err));
    if (s->embed_width != s->hidden) {
        TRY(loader_matrix(l, ROLE_EMBED_IN, -1, s->hidden, s->embed_width, err));
        l->reader = READ_BEHIND;
        if (!s->is_encoder) TRY(loader_matrix(l, ROLE_EMBED_OUT, -1, s->embed_width, s->hidden, err));
        l->reader = READ_BEFORE;
    }
    if (s->family->flags & FAM_LEARNED_POSITIONS) TRY(loader_matrix(l, ROLE_POSITIONS, -1, s->context + s->first_position, width, err));
    if (s->n_types) TRY(loader_matrix(l, ROLE_TYPES, -1, s->n_types, width, err));
    if (s->n_buckets) TRY(bind_distances(l, err));
    if (s->norm.no_weight || s->no_final_norm) return ERR_OK;
    return loader_vector(l, ROLE_FINAL_NORM, -1, s->hidden, true, err);
}

static int bind_norms(struct loader *l, int32_t layer, struct err *err) {
    const struct spec *s = l->spec;
    const struct layer_spec *ls = &s->layers[layer];
    if (s->norm.no_weight) return ERR_OK;
    bool mix = ls->mixer != MIX_NONE, ffn = ls->ffn != FFN_NONE, pre = ls->wiring != WIRE_POST,
         post = ls->wiring == WIRE_POST || ls->wiring == WIRE_PRE_POST;
    if (pre && (mix || ls->wiring == WIRE_PARALLEL) && !ls->is_unnormed) TRY(loader_vector(l, ROLE_MIX_NORM, layer, s->hidden, true, err));
    if (pre && ffn && ls->wiring != WIRE_PARALLEL) TRY(loader_vector(l, ROLE_FFN_NORM, layer, s->hidden, true, err));
    if (mix) TRY(loader_vector(l, ROLE_MIX_RESIDUAL, layer, s->hidden, false, err));
    if (ffn) TRY(loader_vector(l, ROLE_FFN_RESIDUAL, layer, s->hidden, false, err));
    if (post && mix) TRY(loader_vector(l, ROLE_MIX_POST_NORM, layer, s->hidden, true, err));
    if (post && ffn) TRY(loader_vector(l, ROLE_FFN_POST_NORM, layer, s->hidden, true, err));
    return ERR_OK;
}

static int bind_layer(struct loader *l, int32_t layer, struct err *err) {
    const struct stream *stream = l->spec->stream;
    TRY(bind_norms(l, layer, err));
    TRY(loader_bind_mixer(l, mixer_table[l->spec->layers[layer].mixer], layer, err));
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

/* Files that were converted for MLX have the 1 in their norms' weights already. */
static void settle_norms(struct loader *l, struct spec *spec) {
    struct str path;
    for (int32_t i = 0; i < spec->n_layers && spec->family->flags & FAM_MLX_ADDS_ONE; i++)
        if (spec->layers[i].ffn == FFN_EXPERTS && loader_find(l, ROLE_EXPERT_UP, i, &path) &&
            str_find(path, STR(".switch_mlp."), 0) != STR_NONE)
            spec->norm.weight_offset = 0;
}

/* What only the checkpoint shows. Nothing else changes a spec after spec_resolve. */
static int settle(struct loader *l, struct spec *spec, struct err *err) {
    TRY(settle_head(l, spec, err));
    settle_norms(l, spec);
    if (spec->stream && spec->stream->settle) TRY(spec->stream->settle(l, spec, err));
    for (int32_t i = 0; i < spec->n_layers; i++) {
        const struct mixer *m = mixer_table[spec->layers[i].mixer];
        if (m->settle) TRY(m->settle(l, spec, i, err));
        arena_reset(&l->scratch);
    }
    return ERR_OK;
}

static int bind_ropes(struct loader *l, struct err *err) {
    for (int32_t i = 0; i < l->spec->n_ropes; i++) {
        const struct rope_spec *r = &l->spec->ropes[i];
        if (r->table < 0) TRY(loader_constant(l, "rope", r->inv_freq, r->n_rotated / 2, &l->out->ropes[i], err));
    }
    return ERR_OK;
}

static int bind_all(struct loader *l, struct err *err) {
    const struct spec *spec = l->spec;
    const struct stream *stream = spec->stream;
    l->reader = READ_BEFORE;
    TRY(bind_ends(l, err));
    if (stream && stream->bind) TRY(stream->bind(l, -1, err));
    l->reader = READ_BEHIND;
    TRY(bind_head(l, err));
    l->reader = READ_ALL;
    TRY(bind_ropes(l, err));
    for (l->reader = 0; l->reader < spec->n_layers; l->reader++) TRY(bind_layer(l, l->reader, err));
    return ERR_OK;
}

static void note_adapters(struct arena *a, const struct weights_adapters *adapters, struct model_weights *out) {
    bool *fixed = arena_new(a, bool, adapters->n + 1);
    for (int32_t i = 0; i < adapters->n; i++) fixed[i] = adapters->p[i].has_magnitudes;
    out->n_adapters = adapters->n;
    out->fixed_adapters = fixed;
}

int weights_bind(struct arena *a, struct backend *be, const struct tensor_store *store, struct spec *spec,
                 const struct weights_adapters *adapters, struct model_weights *out, struct err *err) {
    static const struct weights_adapters none = {0};
    *out = (struct model_weights){0};
    if (!adapters) adapters = &none;
    note_adapters(a, adapters, out);
    out->layers = arena_alloc_array(a, sizeof *out->layers, (size_t)spec->n_layers);
    struct loader l = {
        .arena = a, .backend = be, .store = store, .spec = spec, .out = out, .adapters = adapters->p, .n_adapters = adapters->n};
    struct layer_cut *cuts = NULL;
    l.rank = be->comm ? (struct rank){be->comm->rank, be->comm->size} : (struct rank){0, 1};
    int code = find_prefix(&l, err);
    if (!code) {
        find_layers(&l);
        find_orientation(&l);
        tell_layers(&l);
        code = settle(&l, spec, err);
    }
    if (!code) code = cut_plan(&l, &cuts, err);
    l.cuts = cuts;
    if (!code) code = bind_all(&l, err);
    if (!code) code = adapt_check(&l, err);
    if (!code) code = loader_check_unread(&l, err);
    if (code) weights_release(be, out);
    else cut_spec(&l, spec);
    map_free(&l.seen);
    arena_free(&l.scratch);
    return code;
}

void weights_release(struct backend *be, struct model_weights *w) {
    for (int32_t i = 0; i < w->n_all; i++) be->type->weight_release(be, w->all[i]);
    mem_free(w->all);
    *w = (struct model_weights){0};
}
