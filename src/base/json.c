/* JSON glue: yyjson's allocator over an arena, readers with defaults, the writer. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>

static void *alc_malloc(void *ctx, size_t n) {
    return arena_try(ctx, n);
}

static void *alc_realloc(void *ctx, void *old, size_t old_n, size_t n) {
    return arena_try_grow(ctx, old, old_n, n);
}

static void alc_free(void *ctx, void *p) {
    (void)ctx, (void)p; /* the arena frees */
}

static void locate(struct str text, size_t pos, size_t *out_line, size_t *out_column) {
    *out_line = 1;
    size_t start = 0;
    for (size_t i = 0; i < pos && i < text.n; i++)
        if (text.p[i] == '\n') {
            ++*out_line;
            start = i + 1;
        }
    *out_column = pos - start + 1;
}

int json_parse(struct arena *a, struct str text, const char *name, enum json_flags flags, yyjson_val **out_root, struct err *err) {
    *out_root = NULL;
    yyjson_alc alc = {alc_malloc, alc_realloc, alc_free, a};
    yyjson_read_err bad = {0};
    yyjson_read_flag how = flags & JSON_LENIENT ? YYJSON_READ_ALLOW_INF_AND_NAN : YYJSON_READ_NOFLAG;
    if (flags & JSON_RAW_NUMBERS) how |= YYJSON_READ_NUMBER_AS_RAW;
    if (text.n == 0) return err_set(err, ERR_EFORMAT, "%s: empty, expected JSON", name);
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)text.p, text.n, how, &alc, &bad);
    if (!doc) {
        size_t line, column;
        locate(text, bad.pos, &line, &column);
        int code = bad.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION ? ERR_EMEMORY : ERR_EFORMAT;
        return err_set(err, code, "%s: line %zu, column %zu: %s", name, line, column, bad.msg);
    }
    *out_root = yyjson_doc_get_root(doc);
    return ERR_OK;
}

yyjson_val *json_get(yyjson_val *obj, const char *key) {
    return yyjson_obj_get(obj, key);
}

struct str json_val_str(yyjson_val *val) {
    if (!yyjson_is_str(val)) return (struct str){NULL, 0};
    return (struct str){yyjson_get_str(val), yyjson_get_len(val)};
}

bool json_val_int(yyjson_val *val, int64_t *out) {
    if (yyjson_is_sint(val)) {
        *out = yyjson_get_sint(val);
    } else if (yyjson_is_uint(val)) {
        if (yyjson_get_uint(val) > INT64_MAX) return false;
        *out = (int64_t)yyjson_get_uint(val);
    } else if (yyjson_is_real(val)) {
        double d = yyjson_get_real(val);
        if (!(fabs(d) < 9e18) || d != floor(d)) return false;
        *out = (int64_t)d;
    } else {
        return false;
    }
    return true;
}

yyjson_val *json_given(yyjson_val *obj, const char *key) {
    yyjson_val *val = json_get(obj, key);
    return yyjson_is_null(val) ? NULL : val;
}

struct str json_str(yyjson_val *obj, const char *key, struct str absent) {
    struct str s = json_val_str(json_get(obj, key));
    return s.p ? s : absent;
}

int64_t json_int(yyjson_val *obj, const char *key, int64_t absent) {
    int64_t value;
    return json_val_int(json_get(obj, key), &value) ? value : absent;
}

double json_num(yyjson_val *obj, const char *key, double absent) {
    yyjson_val *v = json_get(obj, key);
    return yyjson_is_num(v) ? yyjson_get_num(v) : absent;
}

bool json_bool(yyjson_val *obj, const char *key, bool absent) {
    yyjson_val *v = json_get(obj, key);
    return yyjson_is_bool(v) ? yyjson_get_bool(v) : absent;
}

static void comma(struct jsonw *w) {
    if (w->need_comma) sb_putc(w->out, ',');
    w->need_comma = true;
}

void jsonw_begin(struct jsonw *w, char bracket) {
    comma(w);
    sb_putc(w->out, bracket);
    w->need_comma = false;
}

void jsonw_end(struct jsonw *w, char bracket) {
    sb_putc(w->out, bracket);
    w->need_comma = true;
}

void jsonw_key_str(struct jsonw *w, struct str key) {
    comma(w);
    json_quote(w->out, key);
    sb_putc(w->out, ':');
    w->need_comma = false;
}

void jsonw_key(struct jsonw *w, const char *key) {
    jsonw_key_str(w, str_of(key));
}

void jsonw_str(struct jsonw *w, struct str value) {
    comma(w);
    json_quote(w->out, value);
}

void jsonw_int(struct jsonw *w, int64_t value) {
    comma(w);
    sb_fmt(w->out, "%lld", (long long)value);
}

void jsonw_num(struct jsonw *w, double value) {
    comma(w);
    if (!isfinite(value)) {
        sb_puts(w->out, "null");
        return;
    }
    char text[40];
    for (int digits = 6; digits <= 17; digits++) { /* the shortest that reads back equal */
        snprintf(text, sizeof text, "%.*g", digits, value);
        double back;
        if (str_to_double(str_of(text), &back) && back == value) break;
    }
    sb_puts(w->out, text);
}

void jsonw_fixed(struct jsonw *w, double value) {
    enum { DIGITS = 7 };
    static const double scale = 1e7;
    double size = fabs(value) * scale;
    if (!(size < 1e15)) {
        jsonw_num(w, value);
        return;
    }
    char text[32], *p = text + sizeof text;
    uint64_t n = (uint64_t)(size + 0.5);
    bool is_negative = value < 0 && n > 0, is_begun = false;
    for (int i = 0; i < DIGITS; i++, n /= 10) {
        if (!is_begun && n % 10 == 0) continue; /* zeros at the end */
        is_begun = true;
        *--p = (char)('0' + n % 10);
    }
    if (is_begun) *--p = '.';
    do *--p = (char)('0' + n % 10);
    while (n /= 10);
    if (is_negative) *--p = '-';
    comma(w);
    sb_put(w->out, str_n(p, (size_t)(text + sizeof text - p)));
}

void jsonw_bool(struct jsonw *w, bool value) {
    comma(w);
    sb_puts(w->out, value ? "true" : "false");
}

void jsonw_null(struct jsonw *w) {
    comma(w);
    sb_puts(w->out, "null");
}

void jsonw_raw(struct jsonw *w, struct str json) {
    comma(w);
    sb_put(w->out, json);
}

static void *heap_malloc(void *ctx, size_t n) {
    (void)ctx;
    return mem_try(n);
}

static void *heap_realloc(void *ctx, void *old, size_t old_n, size_t n) {
    (void)ctx, (void)old_n;
    return mem_realloc(old, n);
}

static void heap_free(void *ctx, void *p) {
    (void)ctx;
    mem_free(p);
}

static void put_val(struct jsonw *w, yyjson_val *val, yyjson_write_flag flags) {
    yyjson_alc alc = {heap_malloc, heap_realloc, heap_free, NULL};
    size_t n = 0;
    char *text = val ? yyjson_val_write_opts(val, flags, &alc, &n, NULL) : NULL;
    jsonw_raw(w, text ? str_n(text, n) : STR("null"));
    mem_free(text);
}

void jsonw_val(struct jsonw *w, yyjson_val *val) {
    put_val(w, val, YYJSON_WRITE_NOFLAG);
}

void jsonw_val_lenient(struct jsonw *w, yyjson_val *val) {
    put_val(w, val, YYJSON_WRITE_ALLOW_INF_AND_NAN);
}

void jsonw_open(struct jsonw *w, const char *key, char bracket) {
    jsonw_key(w, key);
    jsonw_begin(w, bracket);
}

void jsonw_put_str(struct jsonw *w, const char *key, struct str value) {
    jsonw_key(w, key);
    jsonw_str(w, value);
}

void jsonw_put_int(struct jsonw *w, const char *key, int64_t value) {
    jsonw_key(w, key);
    jsonw_int(w, value);
}

void jsonw_put_num(struct jsonw *w, const char *key, double value) {
    jsonw_key(w, key);
    jsonw_num(w, value);
}

void jsonw_put_bool(struct jsonw *w, const char *key, bool value) {
    jsonw_key(w, key);
    jsonw_bool(w, value);
}

void jsonw_put_null(struct jsonw *w, const char *key) {
    jsonw_key(w, key);
    jsonw_null(w);
}

void jsonw_put_raw(struct jsonw *w, const char *key, struct str json) {
    jsonw_key(w, key);
    jsonw_raw(w, json);
}

static void put_break(struct sb *out, size_t depth) {
    sb_putc(out, '\n');
    for (size_t i = 0; i < 4 * depth; i++) sb_putc(out, ' ');
}

void json_pretty(struct str json, struct sb *out) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < json.n; i++) {
        char c = json.p[i], next = i + 1 < json.n ? json.p[i + 1] : 0;
        if (in_string && c == '\\') sb_putc(out, json.p[i++]);
        if (in_string) {
            sb_putc(out, json.p[i]);
            in_string = c != '"';
        } else if ((c == '[' || c == '{') && next != ']' && next != '}') {
            sb_putc(out, c);
            put_break(out, ++depth);
        } else if ((c == ']' || c == '}') && json.p[i - 1] != '[' && json.p[i - 1] != '{') {
            put_break(out, --depth);
            sb_putc(out, c);
        } else if (c == ',') {
            sb_putc(out, c);
            put_break(out, depth);
        } else {
            sb_putc(out, c);
            if (c == ':') sb_putc(out, ' ');
            in_string = c == '"';
        }
    }
}

/* The next byte that stands outside strings, from *i on. False: there is none. */
static bool next_outside(struct str text, size_t *i, char *out) {
    bool in_string = false;
    for (; *i < text.n; (*i)++) {
        char c = text.p[*i];
        if (in_string && c == '\\') (*i)++;
        else if (c == '"') in_string = !in_string;
        else if (!in_string) {
            *out = c;
            (*i)++;
            return true;
        }
    }
    return false;
}

size_t json_depth(struct str text) {
    size_t depth = 0, most = 0, i = 0;
    for (char c; next_outside(text, &i, &c);) {
        if (c == '[' || c == '{') {
            if (++depth > most) most = depth;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return most;
}

/* Every value but the first stands behind a comma, a colon or an opening bracket. */
size_t json_value_count(struct str text) {
    size_t n = 1, i = 0;
    for (char c; next_outside(text, &i, &c);) n += c == ',' || c == ':' || c == '[' || c == '{';
    return n;
}

static void quote_special(struct sb *out, unsigned char c) {
    static const char short_forms[32] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    if (c == '"' || c == '\\') sb_fmt(out, "\\%c", c);
    else if (short_forms[c]) sb_fmt(out, "\\%c", short_forms[c]);
    else sb_fmt(out, "\\u%04x", c);
}

void json_quote(struct sb *out, struct str value) {
    sb_putc(out, '"');
    for (size_t i = 0; i < value.n;) {
        unsigned char c = (unsigned char)value.p[i];
        if (c >= 0x80) {
            uint32_t code;
            char utf8[4];
            i += utf8_decode(value.p + i, value.n - i, &code);
            sb_put(out, str_n(utf8, utf8_encode(code, utf8)));
        } else {
            if (c < 0x20 || c == '"' || c == '\\') quote_special(out, c);
            else sb_putc(out, (char)c);
            i++;
        }
    }
    sb_putc(out, '"');
}
