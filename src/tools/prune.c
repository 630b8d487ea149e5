/* What goes, and the tensors without it. */
#include "base/log.h"
#include "file/cut_view.h"
#include "model/families.h"
#include "tools/prune_internal.h"

static const struct part {
    const char *one, *many;
    enum cut_axis axis;
} parts[N_PRUNE_PARTS] = {[PRUNE_LAYERS] = {"layer", "layers", AXIS_NONE},
                          [PRUNE_HEADS] = {"head", "heads", AXIS_HEADS},
                          [PRUNE_CHANNELS] = {"channel", "channels", AXIS_INNER}};

int64_t prune_units(const struct layer_spec *l, enum cut_axis axis) {
    return axis == AXIS_HEADS ? l->attn.heads : axis == AXIS_KV ? l->attn.kv_heads : axis == AXIS_INNER ? l->inner : 0;
}

const bool *prune_gone(const struct prune_layer *l, enum cut_axis axis) {
    return axis == AXIS_HEADS ? l->heads : axis == AXIS_KV ? l->kv : axis == AXIS_INNER ? l->inner : NULL;
}

int32_t prune_number(const struct prune *p, int64_t layer) {
    int32_t n = 0, last = p->model.spec.n_layers;
    for (int64_t i = 0; i < layer; i++) n += i >= last || !p->layers[i].goes; /* layers beyond the last are heads that draft */
    return n;
}

/* The layer that a tensor belongs to; -1: none. */
static int64_t layer_of(const struct prune_model *m, struct str name, struct str *out_rest) {
    struct str rest = name, number;
    int64_t layer;
    if (!str_starts(name, m->before)) return -1;
    rest = str_from(name, m->before.n);
    size_t end = str_find_char(rest, '.', 0);
    number = str_sub(rest, 0, end == STR_NONE ? rest.n : end);
    *out_rest = str_from(rest, number.n);
    return str_to_int64(number, &layer) && layer >= 0 && layer < 1 << 20 ? layer : -1;
}

struct str prune_name(const struct prune *p, struct arena *a, struct str name) {
    struct str rest;
    int64_t layer = layer_of(&p->model, name, &rest);
    if (layer < 0) return name;
    if (layer < p->model.spec.n_layers && p->layers[layer].goes) return (struct str){0};
    int32_t number = prune_number(p, layer);
    return number == layer ? name : str_fmt(a, "%.*s%d%.*s", STR_ARG(p->model.before), number, STR_ARG(rest));
}

/* ---- what goes ------------------------------------------------------------------------------------------------------------ */

static const struct tensor_use *reader_of(const struct prune_model *m, int32_t layer, enum cut_axis axis) {
    for (size_t i = 0; i < m->n_uses; i++)
        if (m->uses[i].layer == layer && m->uses[i].side == CUT_COLUMNS && m->uses[i].axis == axis) return &m->uses[i];
    return NULL;
}

static int check_range(const struct prune_edit *e, const struct prune_range *r, int64_t n, const char *of, struct err *err) {
    if (r->first >= 0 && r->first <= r->last && r->last < n) return ERR_OK;
    return err_set(err, ERR_EARG, "%s: there is no %s %lld: %s has 0 to %lld", e->where, parts[e->part].one,
                   (long long)(r->first < 0 || r->first >= n ? r->first : r->last), of, (long long)n - 1);
}

/* A pattern that names a part of a layer's tensors would not take out the layer. */
static int mark_layers(struct prune *p, const struct checkpoint *c, const struct prune_edit *e, struct err *err) {
    int32_t n = p->model.spec.n_layers;
    bool *named = arena_new(p->arena, bool, n), any = false;
    struct str rest;
    for (size_t i = 0; i < e->n_ranges; i++) {
        TRY(check_range(e, &e->ranges[i], n, "the model", err));
        for (int64_t k = e->ranges[i].first; k <= e->ranges[i].last; k++) named[k] = true;
    }
    bool *matched = arena_new(p->arena, bool, n), *missed = arena_new(p->arena, bool, n);
    for (size_t i = 0; i < c->n_tensors; i++) {
        int64_t layer = layer_of(&p->model, c->tensors[i].t->name, &rest);
        if (layer < 0 || layer >= n || !named[layer]) continue;
        *(!e->pattern.p || str_glob(e->pattern, c->tensors[i].t->name) ? &matched[layer] : &missed[layer]) = true;
    }
    for (int32_t i = 0; i < n; i++) {
        if (matched[i] && missed[i])
            return err_set(err, ERR_EARG, "%s: the pattern %.*s matches a part of layer %d only", e->where, STR_ARG(e->pattern), i);
        p->layers[i].goes = p->layers[i].goes || matched[i];
        any = any || matched[i];
    }
    return any ? ERR_OK : err_set(err, ERR_EARG, "%s: the pattern %.*s matches none of those layers", e->where, STR_ARG(e->pattern));
}

static int mark_units(struct prune *p, const struct prune_edit *e, struct err *err) {
    enum cut_axis axis = parts[e->part].axis;
    bool any = false;
    for (int32_t i = 0; i < p->model.spec.n_layers; i++) {
        const struct tensor_use *u = reader_of(&p->model, i, axis);
        struct prune_layer *l = &p->layers[i];
        if (!u || (e->pattern.p && !str_glob(e->pattern, u->path))) continue;
        int64_t n = prune_units(&p->model.spec.layers[i], axis);
        bool **gone = axis == AXIS_HEADS ? &l->heads : &l->inner;
        if (!*gone) *gone = arena_new(p->arena, bool, n);
        for (size_t k = 0; k < e->n_ranges; k++) {
            TRY(check_range(e, &e->ranges[k], n, "a layer", err));
            for (int64_t h = e->ranges[k].first; h <= e->ranges[k].last; h++) (*gone)[h] = true;
        }
        any = true;
    }
    if (any) return ERR_OK;
    return e->pattern.p
               ? err_set(err, ERR_EARG, "%s: the pattern %.*s matches no weight that reads %s", e->where, STR_ARG(e->pattern),
                         parts[e->part].many)
               : err_set(err, ERR_EUNSUPPORTED, "%s: no layer of the model has %s that can be taken out", e->where, parts[e->part].many);
}

/* ---- what is left ----------------------------------------------------------------------------------------------------------- */

/* Heads of a layer, by the key heads that they share: those that keep no query go, and the others keep as many each. False: they do not. */
static bool count_heads(struct prune *p, int32_t layer) {
    const struct attn_spec *a = &p->model.spec.layers[layer].attn;
    struct prune_layer *l = &p->layers[layer];
    int32_t each = a->heads / a->kv_heads, share = 0;
    l->n_heads = l->n_kv = 0;
    l->kv = arena_new(p->arena, bool, a->kv_heads);
    for (int32_t k = 0; k < a->kv_heads; k++) {
        int32_t n = 0;
        for (int32_t h = 0; h < each; h++) n += !l->heads[k * each + h];
        l->kv[k] = n == 0;
        if (n == 0) continue;
        if (share && share != n) return false;
        share = n;
        l->n_heads += n;
        l->n_kv++;
    }
    return true;
}

static bool is_listed(const struct prune *p, const struct checkpoint *c, const char *key) {
    const struct cfg cfg = {&c->config, p->model.spec.family->keys};
    return yyjson_is_arr(cfg_get(&cfg, key));
}

/* Heads that depend on each other, or whose number says more than how many there are. */
static int check_heads(const struct prune *p, int32_t layer, const char *path, struct err *err) {
    const struct spec *s = &p->model.spec;
    const struct attn_spec *a = &s->layers[layer].attn;
    const char *why = s->layers[layer].mixer != MIX_ATTENTION ? "its attention is not made of plain heads"
                      : a->qk_norm == QK_FULL                 ? "its queries are normed over all heads together"
                      : a->has_slopes                         ? "the slope of a head follows from how many there are"
                      : a->has_key_bias                       ? "its keys get numbers that are made of all values"
                      : s->relative.span || s->n_buckets      ? "its heads have tables of distances"
                                                              : NULL;
    for (size_t i = 0; i < p->model.n_uses && !why; i++)
        if (p->model.uses[i].layer == layer && p->model.uses[i].role == ROLE_ATTN_SUB_NORM) why = "what its heads make is normed together";
    return why ? err_set(err, ERR_EUNSUPPORTED, "%s: heads of layer %d cannot be taken out: %s", path, layer, why) : ERR_OK;
}

static int check_inner(const struct prune *p, int32_t layer, const char *path, struct err *err) {
    for (size_t i = 0; i < p->model.n_uses; i++)
        if (p->model.uses[i].layer == layer && p->model.uses[i].role == ROLE_FFN_SUB_NORM)
            return err_set(err, ERR_EUNSUPPORTED, "%s: channels of layer %d cannot be taken out: they are normed together", path, layer);
    return ERR_OK;
}

static int64_t count_gone(const bool *gone, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n && gone; i++) count += gone[i];
    return count;
}

/* Whether a layer keeps the key heads of the layer whose keys it reads. */
static bool fits_writer(const struct prune *p, int32_t layer) {
    const struct spec *s = &p->model.spec;
    const struct prune_layer *l = &p->layers[layer], *writer = &p->layers[prune_look_writer(s, layer)];
    for (int32_t k = 0; s->layers[layer].borrows_kv && k < s->layers[layer].attn.kv_heads; k++)
        if ((l->kv && l->kv[k]) != (writer->kv && writer->kv[k])) return false;
    return true;
}

/* Whether one number in config.json, or a list, says what all layers that stay have of an axis. */
static int count_units(struct prune *p, const struct checkpoint *c, enum cut_axis axis, bool *out_even, struct err *err) {
    const struct spec *s = &p->model.spec;
    bool is_listed_ = is_listed(p, c, axis == AXIS_HEADS ? "num_attention_heads" : "intermediate_size");
    const struct prune_layer *first = NULL;
    *out_even = true;
    for (int32_t i = 0; i < s->n_layers; i++) {
        struct prune_layer *l = &p->layers[i];
        if (l->goes || !reader_of(&p->model, i, axis)) continue;
        if (axis == AXIS_HEADS && l->heads) TRY(check_heads(p, i, c->path, err));
        if (axis == AXIS_INNER && l->inner) TRY(check_inner(p, i, c->path, err));
        if (axis == AXIS_HEADS && l->heads && !count_heads(p, i)) *out_even = false;
        if (axis == AXIS_HEADS && !fits_writer(p, i)) *out_even = false;
        if (axis == AXIS_INNER && l->inner) l->n_inner -= (int32_t)count_gone(l->inner, s->layers[i].inner);
        bool is_empty = axis == AXIS_HEADS ? count_gone(l->heads, s->layers[i].attn.heads) == s->layers[i].attn.heads : l->n_inner == 0;
        if (is_empty) return err_set(err, ERR_EARG, "%s: layer %d would keep no %s", c->path, i, axis == AXIS_HEADS ? "heads" : "channels");
        if (!first) first = l;
        bool is_same = axis == AXIS_HEADS ? l->n_heads == first->n_heads && l->n_kv == first->n_kv : l->n_inner == first->n_inner;
        *out_even = *out_even && (is_same || is_listed_);
    }
    return ERR_OK;
}

/* ---- zeros ------------------------------------------------------------------------------------------------------------------- */

static void keep_axis(struct prune *p, enum cut_axis axis) {
    for (int32_t i = 0; i < p->model.spec.n_layers; i++) {
        const struct layer_spec *s = &p->model.spec.layers[i];
        struct prune_layer *l = &p->layers[i];
        if (axis == AXIS_HEADS) l->heads = l->kv = NULL, l->n_heads = s->attn.heads, l->n_kv = s->attn.kv_heads;
        else l->inner = NULL, l->n_inner = s->inner;
    }
}

/* The columns that read what would go become zeros. */
static void mask_axis(struct prune *p, enum cut_axis axis, struct fused_changes *out) {
    struct fused_mask *masks = arena_new(p->arena, struct fused_mask, out->n_masks + (size_t)p->model.spec.n_layers);
    if (out->n_masks) memcpy(masks, out->masks, out->n_masks * sizeof *masks);
    for (int32_t i = 0; i < p->model.spec.n_layers; i++) {
        const struct tensor_use *u = reader_of(&p->model, i, axis);
        const bool *gone = prune_gone(&p->layers[i], axis);
        if (!u || !gone || p->layers[i].goes) continue;
        int64_t each = u->n / prune_units(&p->model.spec.layers[i], axis);
        bool *columns = arena_new(p->arena, bool, u->n);
        for (int64_t k = 0; k < u->n; k++) columns[k] = gone[k / each];
        masks[out->n_masks++] =
            (struct fused_mask){.path = u->path, .inputs = columns, .n_inputs = u->n, .is_transposed = u->is_transposed};
    }
    out->masks = masks;
    keep_axis(p, axis);
    log_info("layers lose different %s, which config.json has one number for: what reads them is set to zero, and the shapes stay",
             axis == AXIS_HEADS ? "heads" : "channels");
}

static int settle_axis(struct prune *p, const struct checkpoint *c, enum cut_axis axis, bool *out_cuts, struct fused_changes *out,
                       struct err *err) {
    bool is_even, any = false;
    for (int32_t i = 0; i < p->model.spec.n_layers; i++) any = any || (prune_gone(&p->layers[i], axis) && !p->layers[i].goes);
    if (!any) return ERR_OK;
    TRY(count_units(p, c, axis, &is_even, err));
    if (is_even) *out_cuts = true;
    else mask_axis(p, axis, out);
    return ERR_OK;
}

int prune_plan(struct arena *a, const struct checkpoint *c, const struct prune_edit *edits, size_t n_edits, struct prune **out,
               struct fused_changes *out_masks, struct err *err) {
    *out = NULL;
    if (n_edits == 0) return ERR_OK;
    struct prune *p = arena_new(a, struct prune, 1);
    p->arena = a;
    TRY(prune_look(a, c, &p->model, err));
    if (p->model.spec.family->flags & FAM_TWO_IN_ONE)
        return err_set(err, ERR_EUNSUPPORTED, "%s: its layers are two in one, and nothing can be taken out of those", c->path);
    p->layers = arena_new(a, struct prune_layer, p->model.spec.n_layers);
    keep_axis(p, AXIS_HEADS);
    keep_axis(p, AXIS_INNER);
    for (size_t i = 0; i < n_edits; i++)
        TRY(edits[i].part == PRUNE_LAYERS ? mark_layers(p, c, &edits[i], err) : mark_units(p, &edits[i], err));
    p->n_left = prune_number(p, p->model.spec.n_layers);
    if (p->n_left == 0) return err_set(err, ERR_EARG, "%s: no layer would be left", c->path);
    TRY(settle_axis(p, c, AXIS_HEADS, &p->cuts_heads, out_masks, err));
    TRY(settle_axis(p, c, AXIS_INNER, &p->cuts_inner, out_masks, err));
    *out = p;
    return ERR_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------------- */

struct cutter {
    const struct prune *p;
    const struct checkpoint *c;
    const struct map *formats;
    struct cut_tensor *cuts; /* [c->n_tensors] */
    struct err *err;
};

static struct cut_tensor *cut_of(const struct cutter *k, struct str path, const char *suffix, const struct st_tensor **out) {
    int64_t i = map_get_int(&k->c->by_name, str_fmt(k->p->arena, "%.*s%s", STR_ARG(path), suffix), -1);
    if (i < 0) return NULL;
    *out = k->c->tensors[i].t;
    return &k->cuts[i];
}

static bool *own_flags(const struct cutter *k, const bool **flags, int64_t n) {
    if (!*flags) *flags = arena_new(k->p->arena, bool, n);
    return (bool *)(uintptr_t)*flags;
}

/* The first whole group of columns, for a message. */
static int torn(const struct cutter *k, struct str path, int64_t group, int64_t each) {
    int64_t n = group;
    while (n % each) n += group;
    return err_set(
        k->err, ERR_EUNSUPPORTED,
        "%s: %.*s is packed in groups of %lld columns, which cannot be torn apart: take out %lld together (0-%lld, %lld-%lld and so on), or "
        "add --dequantize",
        k->c->path, STR_ARG(path), (long long)group, (long long)(n / each), (long long)(n / each) - 1, (long long)(n / each),
        (long long)(2 * n / each) - 1);
}

/* Columns of a packed matrix go by whole groups, of which each plane has as many elements. */
static int cut_columns(const struct cutter *k, const struct tensor_use *u, const bool *gone, int64_t each) {
    static const char *const planes[] = {".weight", "", ".scales", ".biases"};
    const struct format *later = map_get_ptr(k->formats, u->path); /* of a matrix that is packed when it is written */
    const struct st_tensor *scales, *t;
    int64_t group = cut_of(k, u->path, ".scales", &scales) ? u->n / scales->shape[scales->n_dims - 1] : 1, n_gone = 0;
    for (int64_t first = 0; first < u->n; first += group) {
        int64_t n = 0;
        for (int64_t i = first; i < first + group; i++) n += gone[i / each];
        if (n && n != group) return torn(k, u->path, group, each);
        n_gone += n;
    }
    if (later && later->mode != QUANT_NONE && n_gone % later->group) return torn(k, u->path, later->group, each);
    for (size_t s = 0; s < sizeof planes / sizeof *planes; s++) {
        struct cut_tensor *cut = cut_of(k, u->path, planes[s], &t);
        if (!cut) continue;
        int64_t width = t->shape[u->is_transposed ? 0 : t->n_dims - 1], per_group = width / (u->n / group);
        if (t->n_dims != 2 || width != per_group * (u->n / group))
            return err_set(k->err, ERR_EUNSUPPORTED, "%s: columns of %.*s cannot be taken out", k->c->path, STR_ARG(t->name));
        bool *flags = own_flags(k, u->is_transposed ? &cut->rows : &cut->columns, width);
        for (int64_t i = 0; i < width; i++) flags[i] = gone[i / per_group * group / each];
    }
    return ERR_OK;
}

static int cut_rows(const struct cutter *k, const struct tensor_use *u, const bool *gone, int64_t each) {
    static const char *const planes[] = {".weight", "", ".gamma", ".scales", ".biases", ".bias", "_bias", ".beta"};
    const struct st_tensor *t;
    for (size_t s = 0; s < sizeof planes / sizeof *planes; s++) {
        struct cut_tensor *cut = cut_of(k, u->path, planes[s], &t);
        if (!cut) continue;
        bool turned = u->is_transposed && t->n_dims == 2;
        if (t->n_dims < 1 || t->n_dims > 2 || t->shape[turned ? 1 : 0] != u->of)
            return err_set(k->err, ERR_EUNSUPPORTED, "%s: rows of %.*s cannot be taken out", k->c->path, STR_ARG(t->name));
        bool *flags = own_flags(k, turned ? &cut->columns : &cut->rows, u->of);
        for (int64_t i = 0; i < u->n; i++)
            if (gone[i / each]) flags[u->run ? u->from + i / u->run * u->step + i % u->run : u->from + i] = true;
    }
    return ERR_OK;
}

static int cut_use(const struct cutter *k, const struct tensor_use *u) {
    const struct prune *p = k->p;
    const bool *gone = u->layer < 0 || p->layers[u->layer].goes ? NULL : prune_gone(&p->layers[u->layer], u->axis);
    if (!gone) return ERR_OK;
    int64_t units = prune_units(&p->model.spec.layers[u->layer], u->axis), each = u->n / units;
    if (u->n % units || str_find_char(u->path, '#', 0) != STR_NONE || (u->side != CUT_ROWS && u->side != CUT_COLUMNS))
        return err_set(k->err, ERR_EUNSUPPORTED, "%s: %.*s cannot be cut by heads or channels", k->c->path, STR_ARG(u->path));
    return u->side == CUT_ROWS ? cut_rows(k, u, gone, each) : cut_columns(k, u, gone, each);
}

/* Keys of a map by path get the paths that are left. */
static void rename_paths(const struct prune *p, struct arena *a, struct map *m) {
    struct map renamed = {0};
    for (size_t i = 0; i < m->n; i++) {
        struct str name = prune_name(p, a, m->entries[i].key);
        if (name.p) map_put(&renamed, name, NULL)->value = m->entries[i].value;
    }
    map_free(m);
    *m = renamed;
}

static int change_config(const struct prune *p, struct checkpoint *c, struct err *err) {
    struct sb text = {0};
    struct config old = c->config;
    prune_config(p, &old, &text);
    int code = config_parse(&c->arena, str_copy(&c->arena, sb_str(&text)), old.name, &c->config, err);
    sb_free(&text);
    c->config.is_canonical = old.is_canonical;
    c->config.instead = old.instead;
    return code;
}

int prune_apply(struct prune *p, struct checkpoint *c, struct map *formats, struct err *err) {
    struct prune_model left;
    if (!p || (p->n_left == p->model.spec.n_layers && !p->cuts_heads && !p->cuts_inner)) return ERR_OK;
    struct cutter k = {p, c, formats, arena_new(&c->arena, struct cut_tensor, c->n_tensors + 1), err};
    for (size_t i = 0; i < c->n_tensors; i++) k.cuts[i].name = prune_name(p, &c->arena, c->tensors[i].t->name);
    for (size_t i = 0; i < p->model.n_uses; i++) TRY(cut_use(&k, &p->model.uses[i]));
    TRY(cut_view(c, k.cuts, err));
    TRY(change_config(p, c, err));
    rename_paths(p, &c->arena, &c->quant.overrides);
    rename_paths(p, &c->arena, formats);
    if (prune_look(p->arena, c, &left, err)) return err_prefix(err, "%s: without those parts its family has no such model", c->path);
    TRY(prune_look_compare(p, &left, c->path, err));
    log_info("%d of %d layers stay%s%s", p->n_left, p->model.spec.n_layers, p->cuts_heads ? ", with fewer heads" : "",
             p->cuts_inner ? ", with fewer channels" : "");
    return ERR_OK;
}
