/* The lines of TOML: keys, values, tables, and what may be added to which. */
#include "base/toml.h"

#include "base/toml_internal.h"

#include <stdarg.h>

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

int toml_fail(struct toml_reader *r, const char *fmt, ...) {
    struct sb text = {0};
    va_list args;
    va_start(args, fmt);
    sb_vfmt(&text, fmt, args);
    va_end(args);
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < 32) text.p[i] = '?'; /* of a key that was quoted: messages have one line */
    int code = err_set(r->err, ERR_EFORMAT, "%s:%d: %s", r->name, (int)r->line, text.p);
    sb_free(&text);
    return code;
}

int toml_peek(const struct toml_reader *r) {
    return r->at < r->text.n ? (unsigned char)r->text.p[r->at] : -1;
}

bool toml_starts(const struct toml_reader *r, const char *what) {
    return str_starts(str_from(r->text, r->at), str_of(what));
}

void toml_skip_blanks(struct toml_reader *r) {
    while (toml_peek(r) == ' ' || toml_peek(r) == '\t') r->at++;
}

static int skip_comment(struct toml_reader *r) {
    if (toml_peek(r) != '#') return ERR_OK;
    for (; toml_peek(r) >= 0 && toml_peek(r) != '\n' && !toml_starts(r, "\r\n"); r->at++) {
        int c = toml_peek(r);
        if ((c < 32 && c != '\t') || c == 127) return toml_fail(r, "a comment holds a control character");
    }
    return ERR_OK;
}

int toml_end_line(struct toml_reader *r) {
    toml_skip_blanks(r);
    TRY(skip_comment(r));
    if (toml_starts(r, "\r\n")) r->at++;
    if (toml_peek(r) < 0) return ERR_OK;
    if (toml_peek(r) != '\n') return toml_fail(r, "the line goes on behind its end; a value stands alone on its line");
    r->at++;
    r->line++;
    return ERR_OK;
}

int toml_skip_lines(struct toml_reader *r) {
    for (;;) {
        toml_skip_blanks(r);
        int c = toml_peek(r);
        if (c != '#' && c != '\n' && !toml_starts(r, "\r\n")) return ERR_OK;
        TRY(toml_end_line(r));
    }
}

/* ---- the tree ----------------------------------------------------------------------------------------------------------- */

struct toml *toml_get(const struct toml *table, struct str key) {
    for (struct toml *v = table->first; v; v = v->next)
        if (str_eq(v->key, key)) return v;
    return NULL;
}

const char *toml_kind_name(enum toml_kind kind) {
    static const char *const names[] = {"a text", "a whole number", "a number", "true or false", "a list", "a table"};
    return names[kind];
}

static struct toml *new_value(struct toml_reader *r, enum toml_kind kind, enum toml_origin origin) {
    struct toml *v = arena_new(r->arena, struct toml, 1);
    v->kind = kind;
    v->origin = origin;
    v->line = r->line;
    return v;
}

static int append(struct toml_reader *r, struct toml *to, struct toml *v) {
    if (to->kind == TOML_TABLE && to->n == TOML_KEYS_MAX) return toml_fail(r, "a table has more than %d keys", TOML_KEYS_MAX);
    if (to->last) to->last->next = v;
    else to->first = v;
    to->last = v;
    to->n++;
    return ERR_OK;
}

static int add_table(struct toml_reader *r, struct toml *to, struct str key, enum toml_origin origin, struct toml **out) {
    *out = new_value(r, TOML_TABLE, origin);
    (*out)->key = key;
    return append(r, to, *out);
}

/* ---- keys --------------------------------------------------------------------------------------------------------------- */

static bool is_bare(int c) {
    int low = c | 32;
    return (c >= '0' && c <= '9') || (low >= 'a' && low <= 'z') || c == '_' || c == '-';
}

static int read_key(struct toml_reader *r, struct str *out) {
    if (toml_peek(r) == '"' || toml_peek(r) == '\'') return toml_text_read(r, true, out);
    size_t from = r->at;
    while (toml_peek(r) >= 0 && is_bare(toml_peek(r))) r->at++;
    *out = str_copy(r->arena, str_sub(r->text, from, r->at - from));
    if (out->n) return ERR_OK;
    return toml_fail(r, "a key is missing; one with other characters than letters, digits, - and _ needs quotation marks");
}

static int read_value(struct toml_reader *r, struct toml *out);

/* A step towards the last part of a dotted key, or of a header. */
static int step_into(struct toml_reader *r, struct toml **table, struct str key, enum toml_origin origin) {
    struct toml *found = toml_get(*table, key);
    if (!found) return add_table(r, *table, key, origin, table);
    bool by_header = origin == TOML_BY_PATH;
    if (by_header && found->kind == TOML_ARRAY && found->origin == TOML_BY_HEADER) found = found->last;
    bool is_open = found->kind == TOML_TABLE && found->origin != TOML_BY_ITSELF;
    if (!is_open || (!by_header && found->origin == TOML_BY_HEADER))
        return toml_fail(r, "%.*s is given in line %d and cannot be added to here", STR_ARG(key), (int)found->line);
    if (!by_header) found->origin = TOML_BY_DOTS;
    *table = found;
    return ERR_OK;
}

/* Reads a.b.c up to its last part, from *table on. */
static int read_path(struct toml_reader *r, struct toml **table, enum toml_origin origin, struct str *out_last) {
    for (int32_t depth = 0;; depth++) {
        if (depth == TOML_DEPTH_MAX) return toml_fail(r, "a key has more than %d parts", TOML_DEPTH_MAX);
        toml_skip_blanks(r);
        TRY(read_key(r, out_last));
        toml_skip_blanks(r);
        if (toml_peek(r) != '.') return ERR_OK;
        r->at++;
        TRY(step_into(r, table, *out_last, origin));
    }
}

static int read_pair(struct toml_reader *r, struct toml *table) {
    struct str key;
    TRY(read_path(r, &table, TOML_BY_DOTS, &key));
    struct toml *found = toml_get(table, key), *v = new_value(r, TOML_STRING, TOML_BY_ITSELF);
    if (found) return toml_fail(r, "%.*s is given twice, first in line %d", STR_ARG(key), (int)found->line);
    if (toml_peek(r) != '=') return toml_fail(r, "%.*s has no value: = is missing", STR_ARG(key));
    r->at++;
    v->key = key;
    toml_skip_blanks(r);
    TRY(read_value(r, v));
    return append(r, table, v);
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static int read_list(struct toml_reader *r, struct toml *out) {
    out->kind = TOML_ARRAY;
    for (r->at++;; r->at++) {
        TRY(toml_skip_lines(r));
        if (toml_peek(r) == ']') break;
        struct toml *v = new_value(r, TOML_STRING, TOML_BY_ITSELF);
        TRY(read_value(r, v));
        TRY(append(r, out, v));
        TRY(toml_skip_lines(r));
        if (toml_peek(r) == ']') break;
        if (toml_peek(r) != ',') return toml_fail(r, "a list that begins in line %d: a comma or ] is missing", (int)out->line);
    }
    r->at++;
    return ERR_OK;
}

/* What stands in braces is closed behind them: nothing in it may be added to. */
static void close_all(struct toml *table) {
    table->origin = TOML_BY_ITSELF;
    for (struct toml *v = table->first; v; v = v->next)
        if (v->kind == TOML_TABLE && v->origin == TOML_BY_DOTS) close_all(v);
}

static int read_braces(struct toml_reader *r, struct toml *out) {
    out->kind = TOML_TABLE;
    r->at++;
    toml_skip_blanks(r);
    for (bool is_first = true; !is_first || toml_peek(r) != '}'; is_first = false) {
        TRY(read_pair(r, out));
        toml_skip_blanks(r);
        if (toml_peek(r) == '}') break;
        if (toml_peek(r) != ',') return toml_fail(r, "a comma or } is missing; a table in braces stands on one line");
        r->at++;
    }
    r->at++;
    close_all(out);
    return ERR_OK;
}

static int read_value(struct toml_reader *r, struct toml *out) {
    int c = toml_peek(r), code;
    out->line = r->line;
    if (c == '"' || c == '\'') {
        out->kind = TOML_STRING;
        return toml_text_read(r, false, &out->s);
    }
    if (c != '[' && c != '{') return toml_number_read(r, out);
    if (++r->depth > TOML_DEPTH_MAX) return toml_fail(r, "values are nested more than %d deep", TOML_DEPTH_MAX);
    code = c == '[' ? read_list(r, out) : read_braces(r, out);
    r->depth--;
    return code;
}

/* ---- headers ------------------------------------------------------------------------------------------------------------ */

static int open_table(struct toml_reader *r, struct toml *parent, struct str key, struct toml **out) {
    struct toml *found = toml_get(parent, key);
    if (!found) return add_table(r, parent, key, TOML_BY_HEADER, out);
    if (found->kind != TOML_TABLE || found->origin != TOML_BY_PATH)
        return toml_fail(r, "%.*s is given twice, first in line %d", STR_ARG(key), (int)found->line);
    found->origin = TOML_BY_HEADER;
    *out = found;
    return ERR_OK;
}

static int open_list(struct toml_reader *r, struct toml *parent, struct str key, struct toml **out) {
    struct toml *list = toml_get(parent, key);
    if (list && (list->kind != TOML_ARRAY || list->origin != TOML_BY_HEADER))
        return toml_fail(r, "%.*s is given twice, first in line %d", STR_ARG(key), (int)list->line);
    if (!list) {
        list = new_value(r, TOML_ARRAY, TOML_BY_HEADER);
        list->key = key;
        TRY(append(r, parent, list));
    }
    *out = new_value(r, TOML_TABLE, TOML_BY_HEADER);
    return append(r, list, *out);
}

static int read_header(struct toml_reader *r, struct toml *root, struct toml **out) {
    bool is_list = toml_starts(r, "[[");
    struct toml *parent = root;
    struct str key;
    r->at += is_list ? 2 : 1;
    TRY(read_path(r, &parent, TOML_BY_PATH, &key));
    if (!toml_starts(r, is_list ? "]]" : "]")) return toml_fail(r, "the name of a table has no end: %s is missing", is_list ? "]]" : "]");
    r->at += is_list ? 2 : 1;
    return is_list ? open_list(r, parent, key, out) : open_table(r, parent, key, out);
}

int toml_parse(struct arena *a, struct str text, const char *name, struct toml **out_root, struct err *err) {
    struct toml_reader r = {.arena = a, .name = name, .text = text, .line = 1, .err = err};
    if (text.n > TOML_BYTES_MAX) return err_set(err, ERR_ELIMIT, "%s has more than %d bytes", name, TOML_BYTES_MAX);
    if (!utf8_valid(text)) return err_set(err, ERR_EFORMAT, "%s is no text in UTF-8", name);
    struct toml *table = *out_root = new_value(&r, TOML_TABLE, TOML_BY_HEADER);
    for (;;) {
        TRY(toml_skip_lines(&r));
        if (toml_peek(&r) < 0) return ERR_OK;
        if (toml_peek(&r) == '[') TRY(read_header(&r, *out_root, &table));
        else TRY(read_pair(&r, table));
        TRY(toml_end_line(&r));
    }
}
