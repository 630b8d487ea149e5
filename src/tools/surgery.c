/* Reading edits. A key that an operation has no use for is refused, so that a slip of the pen is not passed over. */
#include "tools/surgery.h"

#include "api/model_folder.h"
#include "base/yaml_tree.h"
#include "os/os.h"

#include <math.h>

enum { RANGES_MAX = 1 << 16 };

static const struct op {
    const char *name;
    enum fused_op op;
    const char *keys; /* besides op and pattern */
    const char *number;
    bool has_source, needs_number, is_prune;
} ops[] = {
    {"scale", FUSED_SCALE, "factor", "factor", false, true, false},
    {"add", FUSED_ADD, "source|source_key|alpha", "alpha", true, false, false},
    {"interpolate", FUSED_INTERPOLATE, "source|source_a|source_b|source_key|ratio|method", "ratio", true, true, false},
    {"replace", FUSED_REPLACE, "source|source_key", NULL, true, false, false},
    {"prune", 0, "granularity|layer_ids|head_ids|channel_ids", NULL, false, false, true},
};

static const struct granularity {
    const char *name, *ids;
} granularities[N_PRUNE_PARTS] = {[PRUNE_LAYERS] = {"layer", "layer_ids"},
                                  [PRUNE_HEADS] = {"attention_head", "head_ids"},
                                  [PRUNE_CHANNELS] = {"mlp_channel", "channel_ids"}};

struct reader {
    struct arena *arena;
    const char *path;
    struct surgery *out;
    struct err *err;
};

static int wrong(const struct reader *r, const struct toml *at, const char *what, struct str which) {
    return err_set(r->err, ERR_EARG, "%s:%d: %s%.*s", r->path, at->line, what, STR_ARG(which));
}

/* ---- values --------------------------------------------------------------------------------------------------------- */

static int read_text(const struct reader *r, const struct toml *edit, const char *key, bool required, struct str *out) {
    const struct toml *v = toml_get(edit, str_of(key));
    *out = (struct str){0};
    if (!v) return required ? wrong(r, edit, "an edit lacks ", str_of(key)) : ERR_OK;
    if (v->kind != TOML_STRING) return wrong(r, v, "expected a text for ", str_of(key));
    *out = v->s;
    return ERR_OK;
}

/* Paths of weights lack ".weight", and so do the patterns and names that are compared with them. */
static int read_path(const struct reader *r, const struct toml *edit, const char *key, bool required, struct str *out) {
    TRY(read_text(r, edit, key, required, out));
    if (str_ends(*out, STR(".weight"))) out->n -= STR(".weight").n;
    return ERR_OK;
}

static int read_number(const struct reader *r, const struct toml *edit, const struct op *op, double *out) {
    const struct toml *v = op->number ? toml_get(edit, str_of(op->number)) : NULL;
    *out = 1;
    if (!v) return op->needs_number ? wrong(r, edit, "an edit lacks ", str_of(op->number)) : ERR_OK;
    if (v->kind != TOML_INT && v->kind != TOML_FLOAT) return wrong(r, v, "expected a number for ", v->key);
    *out = v->kind == TOML_INT ? (double)v->i : v->f;
    return isfinite(*out) && fabs(*out) <= 1e6 ? ERR_OK : wrong(r, v, "no usable number for ", v->key);
}

/* 5, or "5-8". */
static int read_range(const struct reader *r, const struct toml *v, struct prune_range *out) {
    struct str rest = v->s, first;
    if (v->kind == TOML_INT) {
        *out = (struct prune_range){v->i, v->i};
        return ERR_OK;
    }
    bool is_range = v->kind == TOML_STRING && str_split_next(&rest, '-', &first) && str_to_int64(first, &out->first) &&
                    str_to_int64(rest, &out->last) && out->first >= 0 && out->first <= out->last;
    return is_range ? ERR_OK : wrong(r, v, "expected a number, or two as \"4-7\"", STR(""));
}

static int read_ranges(const struct reader *r, const struct toml *edit, const char *key, struct prune_edit *out) {
    const struct toml *list = toml_get(edit, str_of(key));
    if (!list) return wrong(r, edit, "an edit lacks ", str_of(key));
    if (list->kind != TOML_ARRAY || list->n < 1 || list->n > RANGES_MAX)
        return wrong(r, list, "expected a list of numbers for ", list->key);
    struct prune_range *ranges = arena_new(r->arena, struct prune_range, list->n);
    out->ranges = ranges;
    for (const struct toml *v = list->first; v; v = v->next) TRY(read_range(r, v, &ranges[out->n_ranges++]));
    return ERR_OK;
}

/* A model that an edit names; a path that is not absolute may begin where the file lies. */
static int open_source(const struct reader *r, struct str name, const struct checkpoint **out) {
    struct os_stat stat;
    struct str beside = {0};
    size_t end = strlen(r->path);
    while (end > 0 && r->path[end - 1] != '/' && r->path[end - 1] != '\\') end--;
    if (end) beside = str_fmt(r->arena, "%.*s%.*s", (int)end, r->path, STR_ARG(name));
    bool is_beside = beside.p && os_stat(beside.p, &stat, NULL) == ERR_OK;
    struct checkpoint *c = &r->out->sources[r->out->n_sources];
    TRY(model_folder_open(is_beside ? beside.p : str_cstr(r->arena, name), c, r->err));
    r->out->n_sources++;
    *out = c;
    return ERR_OK;
}

/* ---- edits ---------------------------------------------------------------------------------------------------------- */

static bool is_one_of(struct str words, struct str key) {
    struct str word;
    while (str_split_next(&words, '|', &word))
        if (str_eq(word, key)) return true;
    return false;
}

static int check_keys(const struct reader *r, const struct toml *edit, const struct op *op) {
    for (const struct toml *v = edit->first; v; v = v->next)
        if (!is_one_of(STR("op|pattern"), v->key) && !is_one_of(str_of(op->keys), v->key))
            return wrong(r, v, "this edit has no use for ", v->key);
    return ERR_OK;
}

static int read_prune(const struct reader *r, const struct toml *edit) {
    struct prune_edit *e = &r->out->prunes[r->out->n_prunes];
    struct str what;
    size_t part = 0;
    TRY(read_text(r, edit, "granularity", true, &what));
    while (part < N_PRUNE_PARTS && !str_is(what, granularities[part].name)) part++;
    if (part == N_PRUNE_PARTS) return wrong(r, edit, "granularity is layer, attention_head or mlp_channel, not ", what);
    for (size_t i = 0; i < N_PRUNE_PARTS; i++)
        if (i != part && toml_get(edit, str_of(granularities[i].ids)))
            return wrong(r, edit, "this edit has no use for ", str_of(granularities[i].ids));
    *e = (struct prune_edit){.part = (enum prune_part)part, .where = str_fmt(r->arena, "%s:%d", r->path, edit->line).p};
    TRY(read_path(r, edit, "pattern", false, &e->pattern));
    TRY(read_ranges(r, edit, granularities[part].ids, e));
    r->out->n_prunes++;
    return ERR_OK;
}

/* The other weight, or two that count in place of the model's own. */
static int read_sources(const struct reader *r, const struct toml *edit, const struct op *op, struct fused_edit *e) {
    struct str source, first, second, method;
    TRY(read_text(r, edit, "source_a", false, &first));
    TRY(read_text(r, edit, "source_b", first.p != NULL, &second));
    TRY(read_text(r, edit, "source", op->has_source && !second.p, &source));
    TRY(read_path(r, edit, "source_key", false, &e->source_path));
    TRY(read_text(r, edit, "method", false, &method));
    if (source.p && second.p) return wrong(r, edit, "source and source_b say the same: one of them is too much", STR(""));
    if (method.p && !str_is(method, "lerp") && !str_is(method, "slerp")) return wrong(r, edit, "method is lerp or slerp, not ", method);
    if (str_is(method, "slerp")) e->op = FUSED_SLERP;
    if (first.p) TRY(open_source(r, first, &e->first));
    if (source.p || second.p) TRY(open_source(r, source.p ? source : second, &e->source));
    return ERR_OK;
}

static int read_edit(const struct reader *r, const struct toml *edit) {
    struct str name;
    const struct op *op = NULL;
    if (edit->kind != TOML_TABLE) return wrong(r, edit, "expected a table for each edit", STR(""));
    TRY(read_text(r, edit, "op", true, &name));
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (str_is(name, ops[i].name)) op = &ops[i];
    if (!op) return wrong(r, edit, "op is scale, add, interpolate, replace or prune, not ", name);
    TRY(check_keys(r, edit, op));
    if (op->is_prune) return read_prune(r, edit);
    struct fused_edit *e = &r->out->edits[r->out->n_edits];
    e->op = op->op;
    TRY(read_path(r, edit, "pattern", true, &e->pattern));
    TRY(read_number(r, edit, op, &e->number));
    TRY(read_sources(r, edit, op, e));
    r->out->n_edits++;
    return ERR_OK;
}

/* version: 1 and operations. */
static int yaml_list(const struct reader *r, const struct toml *root, const struct toml **out) {
    const struct toml *version = root->kind == TOML_TABLE ? toml_get(root, STR("version")) : NULL;
    *out = root->kind == TOML_TABLE ? toml_get(root, STR("operations")) : NULL;
    for (const struct toml *v = root->first; v && root->kind == TOML_TABLE; v = v->next)
        if (v != version && v != *out) return wrong(r, v, "expected version and operations, not ", v->key);
    if (!version || version->kind != TOML_INT || version->i != 1) return wrong(r, version ? version : root, "expected version: 1", STR(""));
    return *out && (*out)->kind == TOML_ARRAY ? ERR_OK : wrong(r, root, "expected a list of operations", STR(""));
}

static int toml_list(const struct reader *r, const struct toml *root, const struct toml **out) {
    *out = toml_get(root, STR("edit"));
    if (*out && (*out)->kind == TOML_ARRAY && root->n == 1) return ERR_OK;
    return wrong(r, root, "expected tables of [[edit]] and nothing else", STR(""));
}

int surgery_open(struct arena *a, const char *path, struct surgery *out, struct err *err) {
    struct str text;
    struct toml *root;
    const struct toml *list;
    const struct reader r = {a, path, out, err};
    bool is_yaml = str_ends(str_of(path), STR(".yaml")) || str_ends(str_of(path), STR(".yml"));
    TRY(os_file_load(a, path, TOML_BYTES_MAX, &text, err));
    TRY((is_yaml ? yaml_tree : toml_parse)(a, text, path, &root, err));
    TRY((is_yaml ? yaml_list : toml_list)(&r, root, &list));
    out->edits = arena_new(a, struct fused_edit, list->n + 1);
    out->prunes = arena_new(a, struct prune_edit, list->n + 1);
    out->sources = arena_new(a, struct checkpoint, 2 * list->n + 1);
    for (const struct toml *edit = list->first; edit; edit = edit->next) TRY(read_edit(&r, edit));
    return ERR_OK;
}

int surgery_apply(struct surgery *s, struct checkpoint *c, struct map *formats, struct fused_view **out_view, struct err *err) {
    struct fused_changes changes = {.edits = s->edits, .n_edits = s->n_edits};
    struct prune *prune;
    TRY(prune_plan(&c->arena, c, s->prunes, s->n_prunes, &prune, &changes, err));
    TRY(fused_view_open(c, &changes, formats, out_view, err));
    return prune_apply(prune, c, formats, err);
}

void surgery_close(struct surgery *s) {
    for (size_t i = 0; i < s->n_sources; i++) checkpoint_close(&s->sources[i]);
}
