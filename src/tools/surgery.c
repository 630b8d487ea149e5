/* Reading edits. A key that an operation has no use for is refused, so that a slip of the pen is not passed over. */
#include "tools/surgery.h"

#include "api/model_folder.h"
#include "base/toml.h"
#include "os/os.h"

#include <math.h>

static const struct op {
    const char *name;
    enum fused_op op;
    const char *number; /* its key; NULL: none */
    bool has_source, needs_number;
} ops[] = {
    {"scale", FUSED_SCALE, "factor", false, true},
    {"add", FUSED_ADD, "alpha", true, false},
    {"interpolate", FUSED_INTERPOLATE, "ratio", true, true},
    {"replace", FUSED_REPLACE, NULL, true, false},
};

struct reader {
    struct arena *arena;
    const char *path;
    struct err *err;
};

static int wrong(const struct reader *r, const struct toml *at, const char *what, struct str which) {
    return err_set(r->err, ERR_EARG, "%s:%d: %s%.*s", r->path, at->line, what, STR_ARG(which));
}

static int read_text(const struct reader *r, const struct toml *edit, const char *key, bool required, struct str *out) {
    const struct toml *v = toml_get(edit, str_of(key));
    *out = (struct str){0};
    if (!v) return required ? wrong(r, edit, "an edit lacks ", str_of(key)) : ERR_OK;
    if (v->kind != TOML_STRING) return wrong(r, v, "expected a text for ", str_of(key));
    *out = v->s;
    return ERR_OK;
}

static const struct op *op_of(struct str name) {
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (str_is(name, ops[i].name)) return &ops[i];
    return NULL;
}

static int check_keys(const struct reader *r, const struct toml *edit, const struct op *op) {
    for (const struct toml *v = edit->first; v; v = v->next) {
        bool known = str_is(v->key, "op") || str_is(v->key, "pattern") || (op->number && str_is(v->key, op->number)) ||
                     (op->has_source && (str_is(v->key, "source") || str_is(v->key, "source_key")));
        if (!known) return wrong(r, v, "this edit has no use for ", v->key);
    }
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

static int read_edit(const struct reader *r, const struct toml *edit, struct surgery *s) {
    struct str name, source;
    struct fused_edit *e = &s->edits[s->n_edits];
    if (edit->kind != TOML_TABLE) return wrong(r, edit, "expected tables of [[edit]]", STR(""));
    TRY(read_text(r, edit, "op", true, &name));
    const struct op *op = op_of(name);
    if (!op) return wrong(r, edit, "op is scale, add, interpolate or replace, not ", name);
    TRY(check_keys(r, edit, op));
    e->op = op->op;
    TRY(read_text(r, edit, "pattern", true, &e->pattern));
    TRY(read_number(r, edit, op, &e->number));
    TRY(read_text(r, edit, "source", op->has_source, &source));
    TRY(read_text(r, edit, "source_key", false, &e->source_path));
    if (source.p) {
        TRY(model_folder_open(str_cstr(r->arena, source), &s->sources[s->n_edits], r->err));
        e->source = &s->sources[s->n_edits];
    }
    s->n_edits++;
    return ERR_OK;
}

int surgery_open(struct arena *a, const char *path, struct surgery *out, struct err *err) {
    struct str text;
    struct toml *root;
    const struct reader r = {a, path, err};
    TRY(os_file_load(a, path, TOML_BYTES_MAX, &text, err));
    TRY(toml_parse(a, text, path, &root, err));
    const struct toml *list = toml_get(root, STR("edit"));
    if (!list || list->kind != TOML_ARRAY || root->n != 1) return wrong(&r, root, "expected tables of [[edit]] and nothing else", STR(""));
    out->edits = arena_new(a, struct fused_edit, list->n + 1);
    out->sources = arena_new(a, struct checkpoint, list->n + 1);
    for (const struct toml *edit = list->first; edit; edit = edit->next) TRY(read_edit(&r, edit, out));
    return ERR_OK;
}

void surgery_close(struct surgery *s) {
    for (size_t i = 0; i < s->n_edits; i++) checkpoint_close(&s->sources[i]);
}
