/* The events of libyaml become a tree. Its own stack grows on the heap; ours is an array of fixed depth. */
#include "base/yaml_tree.h"

#include <yaml.h>

struct builder {
    struct arena *arena;
    const char *name;
    struct err *err;
    yaml_parser_t parser;
    struct toml *open[YAML_DEPTH_MAX]; /* lists and tables that are not closed yet */
    int32_t depth;
    struct str key; /* read, and still without a value */
    struct toml *root;
    bool is_ended;
};

static int wrong(const struct builder *b, const yaml_event_t *e, const char *what) {
    return err_set(b->err, ERR_EFORMAT, "%s:%d: %s", b->name, (int)e->start_mark.line + 1, what);
}

/* ---- values --------------------------------------------------------------------------------------------------------- */

static bool wants_key(const struct builder *b) {
    return b->depth && b->open[b->depth - 1]->kind == TOML_TABLE && !b->key.p;
}

static int add(struct builder *b, const yaml_event_t *e, enum toml_kind kind, struct toml **out) {
    struct toml *v = *out = arena_new(b->arena, struct toml, 1), *in = b->depth ? b->open[b->depth - 1] : NULL;
    v->kind = kind;
    v->line = (int32_t)e->start_mark.line + 1;
    v->key = b->key;
    b->key = (struct str){0};
    if (!in) {
        b->root = v;
        return ERR_OK;
    }
    if (in->kind == TOML_TABLE && in->n == TOML_KEYS_MAX) return wrong(b, e, "too many keys in one table");
    if (in->last) in->last->next = v;
    else in->first = v;
    in->last = v;
    in->n++;
    return ERR_OK;
}

static int take_key(struct builder *b, const yaml_event_t *e) {
    struct str key = str_copy(b->arena, str_n((const char *)e->data.scalar.value, e->data.scalar.length));
    if (toml_get(b->open[b->depth - 1], key)) return wrong(b, e, "this key is there already");
    b->key = key;
    return ERR_OK;
}

static int take_plain(struct builder *b, const yaml_event_t *e, struct str word) {
    struct toml *v;
    int64_t whole = 0;
    double number = 0;
    bool is_true = str_is(word, "true"), is_false = str_is(word, "false");
    bool is_number = word.n && (word.p[0] == '-' || word.p[0] == '.' || (word.p[0] >= '0' && word.p[0] <= '9'));
    bool is_whole = is_number && str_to_int64(word, &whole);
    if (word.n == 0 || str_is(word, "null") || str_is(word, "~")) return wrong(b, e, "a value is missing");
    if (!is_whole && is_number) is_number = str_to_double(word, &number);
    TRY(add(b, e, is_whole ? TOML_INT : is_number ? TOML_FLOAT : is_true || is_false ? TOML_BOOL : TOML_STRING, &v));
    v->i = is_whole ? whole : is_true;
    v->f = number;
    v->s = word;
    return ERR_OK;
}

static int take_scalar(struct builder *b, const yaml_event_t *e) {
    struct toml *v;
    if (e->data.scalar.anchor || e->data.scalar.tag) return wrong(b, e, "anchors and tags are not read");
    if (wants_key(b)) return take_key(b, e);
    struct str word = str_copy(b->arena, str_n((const char *)e->data.scalar.value, e->data.scalar.length));
    if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) return take_plain(b, e, word);
    TRY(add(b, e, TOML_STRING, &v));
    v->s = word;
    return ERR_OK;
}

static int open_one(struct builder *b, const yaml_event_t *e, enum toml_kind kind, const void *anchor, const void *tag) {
    struct toml *v;
    if (anchor || tag) return wrong(b, e, "anchors and tags are not read");
    if (wants_key(b)) return wrong(b, e, "a key must be a text");
    if (b->depth == YAML_DEPTH_MAX) return wrong(b, e, "lists and tables are too deep in each other");
    TRY(add(b, e, kind, &v));
    b->open[b->depth++] = v;
    return ERR_OK;
}

/* ---- events --------------------------------------------------------------------------------------------------------- */

static int take(struct builder *b, const yaml_event_t *e) {
    switch (e->type) {
    case YAML_SCALAR_EVENT: return take_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT: return open_one(b, e, TOML_ARRAY, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT: return open_one(b, e, TOML_TABLE, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: b->depth--; return ERR_OK;
    case YAML_ALIAS_EVENT: return wrong(b, e, "aliases are not read");
    case YAML_DOCUMENT_START_EVENT: return b->root ? wrong(b, e, "a second document begins here") : ERR_OK;
    case YAML_STREAM_END_EVENT: b->is_ended = true; return ERR_OK;
    default: return ERR_OK;
    }
}

static int build(struct builder *b) {
    while (!b->is_ended) {
        yaml_event_t event;
        if (!yaml_parser_parse(&b->parser, &event)) {
            const char *problem = b->parser.problem ? b->parser.problem : "this is no YAML";
            int line = b->parser.error == YAML_READER_ERROR ? 1 : (int)b->parser.problem_mark.line + 1;
            return err_set(b->err, ERR_EFORMAT, "%s:%d: %s", b->name, line, problem);
        }
        int code = take(b, &event);
        yaml_event_delete(&event);
        if (code) return code;
    }
    return b->root ? ERR_OK : err_set(b->err, ERR_EFORMAT, "%s: there is nothing in it", b->name);
}

int yaml_tree(struct arena *a, struct str text, const char *name, struct toml **out_root, struct err *err) {
    struct builder b = {.arena = a, .name = name, .err = err};
    *out_root = NULL;
    if (text.n > YAML_BYTES_MAX) return err_set(err, ERR_ELIMIT, "%s is larger than %d bytes", name, YAML_BYTES_MAX);
    if (!yaml_parser_initialize(&b.parser)) return err_set(err, ERR_EMEMORY, "no memory to read %s", name);
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text.p, text.n);
    int code = build(&b);
    yaml_parser_delete(&b.parser);
    if (!code) *out_root = b.root;
    return code;
}
