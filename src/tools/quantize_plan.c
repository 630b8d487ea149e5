/* The plan of a quantisation: which tensors become which, and where they lie in the result. */
#include "tools/quantize_internal.h"

#include "tensor/quant.h"

#define SHARD_BYTES (UINT64_C(5) << 30)
enum { PLAIN_BITS = 16, ROUTER_BITS = 8, ROUTER_GROUP = 64 };

static bool is_float(enum dtype dt) {
    return dt == DT_F32 || dt == DT_F16 || dt == DT_BF16;
}

/* "X.experts.12.w1.weight" is expert 12 of "X.switch_mlp.gate_proj.weight"; false for other names. */
static bool expert_of(struct arena *a, struct str name, struct str *out_stack, int64_t *out_expert) {
    static const char *const renamed[][2] = {{"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}};
    size_t at = str_find(name, STR(".experts."), 0);
    struct str rest = at == STR_NONE ? (struct str){0} : str_from(name, at + 9), number, role;
    if (!rest.p || !str_split_next(&rest, '.', &number) || !str_to_int64(number, out_expert) || *out_expert < 0) return false;
    if (!str_split_next(&rest, '.', &role) || !str_is(rest, "weight")) return false;
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (str_is(role, renamed[i][0])) role = str_of(renamed[i][1]);
    *out_stack = str_fmt(a, "%.*s.switch_mlp.%.*s.weight", (int)at, name.p, (int)role.n, role.p);
    return true;
}

/* Precomputed rotary frequencies and a head that is the embedding are not part of what MLX keeps. */
static bool is_dropped(const struct checkpoint *c, struct str name) {
    if (str_find(name, STR("rotary_emb.inv_freq"), 0) != STR_NONE) return true;
    yyjson_val *tied = config_get(&c->config, "tie_word_embeddings");
    return str_is(name, "lm_head.weight") && yyjson_get_bool(tied);
}

static void choose_dtype(const struct checkpoint *c, struct quantize_plan *p) {
    static const struct {
        const char *name;
        enum dtype dt;
    } names[] = {{"float32", DT_F32}, {"float16", DT_F16}, {"bfloat16", DT_BF16}};
    struct str said = json_str(c->config.root, "torch_dtype", (struct str){0});
    if (!said.p) said = json_str(c->config.text, "dtype", (struct str){0});
    bool is_unpacked = c->gguf || c->quant.is_repacked;
    if (!said.p && is_unpacked) said = json_str(c->config.root, "dtype", STR("bfloat16"));
    p->dtype = N_DTYPES;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_is(said, names[i].name)) p->dtype = names[i].dt;
}

/* ---- formats ------------------------------------------------------------------------------------------------------- */

static bool ends(struct str path, const char *suffix) {
    return str_ends(path, str_of(suffix));
}

/* Routers: of the usual kind 8 bits, plain where they have a correction bias beside them (they are no linear layers in MLX). */
static bool router_format(const struct checkpoint *c, struct arena *a, struct str path, struct format *f) {
    bool is_gate = ends(path, ".mlp.gate"),
         has_bias = checkpoint_find(c, str_fmt(a, "%.*s.e_score_correction_bias", STR_ARG(path))) != NULL;
    if (is_gate && has_bias) {
        f->mode = QUANT_NONE;
        return true;
    }
    if (!is_gate && !ends(path, ".feed_forward.gate") && !ends(path, ".router") && !ends(path, ".router.proj") &&
        !ends(path, ".router.layer"))
        return false;
    *f = (struct format){.mode = QUANT_AFFINE, .dtype = f->dtype, .bits = ROUTER_BITS, .group = ROUTER_GROUP};
    return true;
}

static bool override_format(const struct quantize_plan *p, struct str path, struct format *f) {
    const struct quantize_override *first = NULL;
    for (size_t i = 0; i < p->options->n_overrides; i++) {
        const struct quantize_override *o = &p->options->overrides[i];
        if (!str_glob(o->glob, path)) continue;
        p->matched[i] = true;
        if (!first) first = o;
    }
    if (!first) return false;
    uint16_t group = p->base.mode == QUANT_AFFINE ? p->base.group : 64;
    *f = (struct format){
        .mode = first->bits == PLAIN_BITS ? QUANT_NONE : QUANT_AFFINE, .dtype = f->dtype, .bits = (uint8_t)first->bits, .group = group};
    return true;
}

static struct str any_matrix(const struct quantize_plan *p) {
    for (size_t i = 0; i < p->n_items; i++)
        if (p->items[i].format.mode != QUANT_NONE) return p->items[i].path;
    return STR("(there are none)");
}

/* One that matches nothing is a mistake in its pattern: the copy would be another than the one asked for. */
static int check_overrides(const struct quantize_plan *p, struct err *err) {
    for (size_t i = 0; i < p->options->n_overrides; i++)
        if (!p->matched[i])
            return err_set(err, ERR_EARG, "--override %.*s matches no matrix; their names are like %.*s",
                           STR_ARG(p->options->overrides[i].glob), STR_ARG(any_matrix(p)));
    return ERR_OK;
}

/* A matrix of a linear layer or an embedding, by name and shape. */
static bool is_matrix(const struct st_tensor *t, struct str path, bool is_stack) {
    static const char *const others[] = {"norm", "conv", "rotary"};
    if (t->n_dims != 2 && !(t->n_dims == 3 && (is_stack || str_find(path, STR("switch_"), 0) != STR_NONE))) return false;
    size_t from = path.n;
    while (from > 0 && path.p[from - 1] != '.') from--;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (str_find(str_from(path, from), str_of(others[i]), 0) != STR_NONE) return false;
    return true;
}

/* Of a copy: as it is, unless the list says otherwise. */
static void kept_format(const struct quantize_plan *p, struct quantize_item *item, struct str name) {
    if (!str_ends(name, STR(".weight"))) return;
    struct str path = str_sub(name, 0, name.n - 7);
    const struct format *f = map_get_ptr(p->formats, path);
    if (!f) return;
    item->format = *f;
    if (f->mode != QUANT_NONE) item->path = path;
}

static void choose_format(const struct checkpoint *c, struct quantize_plan *p, struct quantize_item *item, struct str name) {
    const struct st_tensor *t = item->sources[0]->t;
    bool casts = is_float(t->dtype) && p->dtype != N_DTYPES && str_find(name, STR("e_score_correction_bias"), 0) == STR_NONE &&
                 str_find(name, STR("expert_bias"), 0) == STR_NONE;
    enum dtype dt = casts ? p->dtype : t->dtype;
    item->format = (struct format){.dtype = dt};
    item->path = name;
    if (p->formats) {
        kept_format(p, item, name);
        return;
    }
    if (!str_ends(name, STR(".weight")) || !is_float(dt)) return;
    struct str path = str_sub(name, 0, name.n - 7);
    if (!is_matrix(t, path, item->n_sources > 1) || t->n_elements == 0 || item->width % p->base.group) return;
    struct format f = p->base;
    f.dtype = dt;
    item->is_special = override_format(p, path, &f) || router_format(c, &p->arena, path, &f);
    if (f.mode == QUANT_NONE || item->width % f.group) return;
    item->format = f;
    item->path = path;
}

/* ---- planes -------------------------------------------------------------------------------------------------------- */

static void add_plane(struct quantize_item *item, struct quantize_plane plane, int64_t width) {
    const struct st_tensor *t = item->sources[0]->t;
    bool is_stack = item->n_sources > 1;
    plane.n_dims = t->n_dims + is_stack;
    if (is_stack) plane.shape[0] = (int64_t)item->n_sources;
    for (int i = 0; i < t->n_dims; i++) plane.shape[i + is_stack] = t->shape[i];
    if (item->is_turned) plane.shape[0] = item->rows;
    if (plane.n_dims) plane.shape[plane.n_dims - 1] = width;
    item->planes[item->n_planes++] = plane;
}

static void make_planes(struct arena *a, struct quantize_item *item, const struct format *f) {
    uint64_t rows = (uint64_t)item->rows * item->n_sources;
    if (f->mode == QUANT_NONE) {
        uint64_t bytes = f->dtype == item->sources[0]->t->dtype ? item->sources[0]->t->bytes * item->n_sources
                                                                : rows * (uint64_t)item->width * (uint64_t)dtype_bits(f->dtype) / 8;
        add_plane(item, (struct quantize_plane){.name = item->path, .dtype = f->dtype, .bytes = bytes}, item->width);
        return;
    }
    uint64_t values = quant_values_bytes(f, item->width), scales = quant_scales_bytes(f, item->width),
             biases = quant_biases_bytes(f, item->width);
    enum dtype scale_type = f->mode == QUANT_AFFINE ? f->dtype : DT_U8;
    struct str weight = str_fmt(a, "%.*s.weight", STR_ARG(item->path)), scale = str_fmt(a, "%.*s.scales", STR_ARG(item->path)),
               bias = str_fmt(a, "%.*s.biases", STR_ARG(item->path));
    int64_t groups = item->width / f->group;
    add_plane(item, (struct quantize_plane){.name = weight, .dtype = DT_U32, .bytes = rows * values}, (int64_t)values / 4);
    add_plane(item, (struct quantize_plane){.name = scale, .dtype = scale_type, .bytes = rows * scales}, groups);
    if (biases) add_plane(item, (struct quantize_plane){.name = bias, .dtype = f->dtype, .bytes = rows * biases}, groups);
}

/* Shards of at most 5 GiB, as mlx-lm cuts them; a tensor that is larger has one of its own. */
static void place(struct quantize_plan *p) {
    uint64_t used = 0;
    p->n_shards = 1;
    for (size_t i = 0; i < p->n_items; i++)
        for (int k = 0; k < p->items[i].n_planes; k++) {
            struct quantize_plane *plane = &p->items[i].planes[k];
            if (used && used + plane->bytes > SHARD_BYTES) {
                p->n_shards++;
                used = 0;
            }
            plane->i_shard = p->n_shards - 1;
            plane->offset = used;
            used += plane->bytes;
            p->target_bytes += plane->bytes;
        }
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

/* The item that a tensor belongs to, made when it is the first; *out_at is its place there. */
static struct quantize_item *item_of(struct quantize_plan *p, struct map *stacks, struct str name, size_t n_max, size_t *out_at) {
    struct str stack;
    int64_t expert;
    *out_at = 0;
    if (p->formats || !expert_of(&p->arena, name, &stack, &expert)) {
        struct quantize_item *item = &p->items[p->n_items++];
        item->path = name;
        item->sources = arena_new(&p->arena, const struct checkpoint_tensor *, 1);
        return item;
    }
    struct map_entry *e = map_put(stacks, stack, NULL);
    if (!e->value.i) {
        p->items[p->n_items++] = (struct quantize_item){.path = stack};
        e->value.i = (int64_t)p->n_items;
    }
    *out_at = (uint64_t)expert < n_max ? (size_t)expert : n_max;
    return &p->items[e->value.i - 1];
}

static int add_source(struct quantize_plan *p, struct quantize_item *item, size_t at, size_t n_max, const struct checkpoint_tensor *t,
                      struct err *err) {
    if (at >= n_max) return err_set(err, ERR_EFORMAT, "%.*s: there are not that many experts", STR_ARG(t->t->name));
    if (at >= item->capacity) {
        size_t capacity = at < 8 ? 16 : 2 * at;
        const struct checkpoint_tensor **more = arena_new(&p->arena, const struct checkpoint_tensor *, capacity);
        if (item->n_sources) memcpy(more, item->sources, item->n_sources * sizeof *more);
        item->sources = more;
        item->capacity = capacity;
    }
    if (at >= item->n_sources) item->n_sources = at + 1;
    item->sources[at] = t;
    return ERR_OK;
}

/* GPT-2 keeps the matrices of its layers [in, out]; its projection to queries, keys and values tells. */
static bool turns_matrices(const struct checkpoint *c) {
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct st_tensor *t = c->tensors[i].t;
        if (str_ends(t->name, STR(".c_attn.weight"))) return t->n_dims == 2 && t->shape[1] % 3 == 0 && t->shape[1] / 3 == t->shape[0];
    }
    return false;
}

static bool is_turned(const struct quantize_plan *p, const struct st_tensor *t) {
    static const char *const names[] = {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (p->turns && t->n_dims == 2 && is_float(t->dtype) && ends(t->name, names[i])) return true;
    return false;
}

static int check_item(struct quantize_plan *p, const struct checkpoint *c, struct quantize_item *item, struct err *err) {
    const struct st_tensor *first = item->sources[0] ? item->sources[0]->t : NULL;
    for (size_t i = 0; i < item->n_sources; i++) {
        const struct st_tensor *t = item->sources[i] ? item->sources[i]->t : NULL;
        if (!t) return err_set(err, ERR_EFORMAT, "%.*s: expert %zu is missing", STR_ARG(item->path), i);
        if (t->dtype != first->dtype || t->n_dims != first->n_dims ||
            memcmp(t->shape, first->shape, (size_t)t->n_dims * sizeof *t->shape) != 0)
            return err_set(err, ERR_EFORMAT, "%.*s: experts differ in shape or type", STR_ARG(item->path));
        p->source_bytes += t->bytes;
        p->n_parameters += t->n_elements;
    }
    if (first->n_dims + 1 > QUANTIZE_DIMS_MAX)
        return err_set(err, ERR_EUNSUPPORTED, "%.*s has %d dimensions", STR_ARG(item->path), first->n_dims);
    item->width = first->n_dims ? first->shape[first->n_dims - 1] : 1;
    item->rows = item->width ? (int64_t)(first->n_elements / (uint64_t)item->width) : 0;
    item->is_turned = is_turned(p, first);
    if (item->is_turned) item->rows = first->shape[1], item->width = first->shape[0];
    choose_format(c, p, item, item->path);
    make_planes(&p->arena, item, &item->format);
    return ERR_OK;
}

static int collect(const struct checkpoint *c, struct quantize_plan *p, struct map *stacks, struct err *err) {
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        size_t at;
        if (!p->formats && is_dropped(c, t->t->name)) continue;
        struct quantize_item *item = item_of(p, stacks, t->t->name, c->n_tensors, &at);
        if (item->n_sources == 0 && item->sources) { /* no stack */
            item->sources[0] = t;
            item->n_sources = 1;
            continue;
        }
        TRY(add_source(p, item, at, c->n_tensors, t, err));
    }
    for (size_t i = 0; i < p->n_items; i++) TRY(check_item(p, c, &p->items[i], err));
    return ERR_OK;
}

/* Every mode but affine has one width and one group. */
static int no_such_format(const struct format *asked, const struct format *usual, struct err *err) {
    const char *mode = quant_mode_name(asked->mode);
    if (asked->mode == QUANT_AFFINE)
        return err_set(err, ERR_EARG, "there is no affine with %d bits in groups of %d: bits are 2, 3, 4, 5, 6 or 8, groups 32, 64 or 128",
                       asked->bits, asked->group);
    return err_set(err, ERR_EARG, "there is no %s with %d bits in groups of %d: it has %d bits in groups of %d", mode, asked->bits,
                   asked->group, usual->bits, usual->group);
}

int quantize_plan_make(const struct checkpoint *c, const struct quantize_options *o, struct quantize_plan *p, struct err *err) {
    static const struct format usual[N_QUANT_MODES] = {[QUANT_AFFINE] = {QUANT_AFFINE, DT_F32, 4, 64},
                                                       [QUANT_MXFP4] = {QUANT_MXFP4, DT_F32, 4, 32},
                                                       [QUANT_MXFP8] = {QUANT_MXFP8, DT_F32, 8, 32},
                                                       [QUANT_NVFP4] = {QUANT_NVFP4, DT_F32, 4, 16}};
    struct map stacks = {0};
    *p = (struct quantize_plan){.options = o, .base = usual[o->format.mode]};
    if (o->format.bits) p->base.bits = o->format.bits;
    if (o->format.group) p->base.group = o->format.group;
    if (!format_valid(&p->base)) return no_such_format(&p->base, &usual[o->format.mode], err);
    for (size_t i = 0; i < o->n_overrides; i++) {
        struct format f = {QUANT_AFFINE, DT_F32, (uint8_t)o->overrides[i].bits, 64};
        if (o->overrides[i].bits != PLAIN_BITS && !format_valid(&f))
            return err_set(err, ERR_EARG, "--override %.*s: bits must be 2, 3, 4, 5, 6, 8, or 16 for plain", STR_ARG(o->overrides[i].glob));
    }
    bool is_unpacked = c->gguf || c->quant.is_repacked;
    if (!is_unpacked && (c->quant.present || c->quant.foreign.p))
        return err_set(err, ERR_EARG, "%s is quantised already; quantise from the plain weights", c->path ? c->path : "the built-in model");
    choose_dtype(c, p);
    p->turns = turns_matrices(c);
    p->items = arena_new(&p->arena, struct quantize_item, c->n_tensors);
    p->matched = arena_new(&p->arena, bool, o->n_overrides + 1);
    int code = collect(c, p, &stacks, err);
    map_free(&stacks);
    if (!code) code = check_overrides(p, err);
    if (!code) place(p);
    return code;
}

int quantize_plan_keep(const struct checkpoint *c, const struct quantize_options *o, const struct map *formats, bool is_plain,
                       struct quantize_plan *p, struct err *err) {
    struct map stacks = {0};
    *p = (struct quantize_plan){.options = o, .formats = formats, .is_plain = is_plain, .dtype = N_DTYPES};
    p->items = arena_new(&p->arena, struct quantize_item, c->n_tensors);
    int code = collect(c, p, &stacks, err);
    map_free(&stacks);
    if (!code) place(p);
    return code;
}

void quantize_plan_free(struct quantize_plan *p) {
    arena_free(&p->arena);
}
