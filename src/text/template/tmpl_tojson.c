/* tojson as transformers defines it: json.dumps with ensure_ascii, indent, separators and sort_keys; no HTML escapes. */
#include "text/template/tmpl_rt.h"

#include <math.h>
#include <stdio.h>

struct dump {
    struct rt *rt;
    struct tbuf *out;
    bool user; /* how the whole text is marked */
    bool ascii, sort_keys, pretty;
    struct str item_sep, key_sep, indent;
    int level;
};

static void put(struct dump *d, struct str s) {
    tbuf_put(d->rt, d->out, s, d->user);
}

static void put_unicode(struct dump *d, uint32_t unit) {
    char text[16];
    snprintf(text, sizeof text, "\\u%04x", (unsigned)unit);
    put(d, str_of(text));
}

static void dump_string(struct dump *d, struct str s) {
    static const char letters[128] = {['"'] = '"', ['\\'] = '\\', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't', ['\f'] = 'f', ['\b'] = 'b'};
    rt_charge_bytes(d->rt, s.n * 2);
    put(d, STR("\""));
    size_t plain = 0; /* start of what needs no escape */
    for (size_t i = 0; i < s.n;) {
        uint32_t code = (unsigned char)s.p[i];
        size_t n = 1;
        if (code >= 0x80) n = utf8_decode(s.p + i, s.n - i, &code);
        bool escape = code < 0x20 || code == '"' || code == '\\' || (d->ascii && code >= 0x7F);
        if (escape) {
            put(d, str_sub(s, plain, i - plain));
            plain = i + n;
            if (code < 0x80 && letters[code]) {
                char pair[2] = {'\\', letters[code]};
                put(d, str_n(pair, 2));
            } else if (code < 0x10000) {
                put_unicode(d, code);
            } else {
                put_unicode(d, 0xD800 + ((code - 0x10000) >> 10));
                put_unicode(d, 0xDC00 + ((code - 0x10000) & 0x3FF));
            }
        }
        i += n;
    }
    put(d, str_from(s, plain));
    put(d, STR("\""));
}

static struct str float_text(struct rt *rt, double f) {
    if (isnan(f)) return STR("NaN");
    if (isinf(f)) return f < 0 ? STR("-Infinity") : STR("Infinity");
    return tmpl_float_repr(rt, f);
}

static void new_line(struct dump *d) {
    if (!d->pretty) return;
    put(d, STR("\n"));
    for (int i = 0; i < d->level; i++) put(d, d->indent);
}

static void dump_value(struct dump *d, struct tv v);

static void dump_list(struct dump *d, const struct tlist *l) {
    if (!l->n) {
        put(d, STR("[]"));
        return;
    }
    put(d, STR("["));
    d->level++;
    for (size_t i = 0; i < l->n; i++) {
        if (i) put(d, d->item_sep);
        new_line(d);
        dump_value(d, l->items[i]);
    }
    d->level--;
    new_line(d);
    put(d, STR("]"));
}

static void dump_key(struct dump *d, struct tv key) {
    switch (key.type) {
    case TV_STR: dump_string(d, tv_str(key)); return;
    case TV_BOOL: put(d, key.u.b ? STR("\"true\"") : STR("\"false\"")); return;
    case TV_NONE: put(d, STR("\"null\"")); return;
    case TV_FLOAT: dump_string(d, float_text(d->rt, key.u.f)); return;
    case TV_INT:
    case TV_BIG: dump_string(d, tv_str(tmpl_to_str(d->rt, key))); return;
    default: rt_raise(d->rt, "TypeError", "keys must be str, int, float, bool or None, not %s", tv_type_name(key));
    }
}

/* Indices of the entries in the order of their keys: a merge sort, so that hostile keys cost no more than others. */
static size_t *sorted_order(struct rt *rt, const struct tdict *d) {
    size_t *a = rt_new(rt, size_t, d->n), *b = rt_new(rt, size_t, d->n);
    for (size_t i = 0; i < d->n; i++) a[i] = i;
    for (size_t width = 1; width < d->n; width *= 2) {
        for (size_t low = 0; low < d->n; low += 2 * width) {
            size_t mid = low + width < d->n ? low + width : d->n, high = low + 2 * width < d->n ? low + 2 * width : d->n;
            size_t i = low, k = mid;
            for (size_t o = low; o < high; o++) {
                bool left = k >= high || (i < mid && tv_compare(rt, d->keys[a[k]], d->keys[a[i]], "<") != -1);
                b[o] = left ? a[i++] : a[k++];
            }
            rt_charge(rt, high - low);
        }
        size_t *swap = a;
        a = b;
        b = swap;
    }
    return a;
}

static void dump_dict(struct dump *d, const struct tdict *dict) {
    if (!dict->n) {
        put(d, STR("{}"));
        return;
    }
    size_t *order = d->sort_keys ? sorted_order(d->rt, dict) : NULL;
    put(d, STR("{"));
    d->level++;
    for (size_t i = 0; i < dict->n; i++) {
        size_t at = order ? order[i] : i;
        if (i) put(d, d->item_sep);
        new_line(d);
        dump_key(d, dict->keys[at]);
        put(d, d->key_sep);
        dump_value(d, dict->values[at]);
    }
    d->level--;
    new_line(d);
    put(d, STR("}"));
}

static void dump_value(struct dump *d, struct tv v) {
    rt_charge(d->rt, 1);
    rt_enter(d->rt);
    switch (v.type) {
    case TV_NONE: put(d, STR("null")); break;
    case TV_BOOL: put(d, v.u.b ? STR("true") : STR("false")); break;
    case TV_INT:
    case TV_BIG: put(d, tv_str(tmpl_to_str(d->rt, v))); break;
    case TV_FLOAT: put(d, float_text(d->rt, v.u.f)); break;
    case TV_STR: dump_string(d, tv_str(v)); break;
    case TV_LIST:
    case TV_TUPLE: dump_list(d, v.u.list); break;
    case TV_DICT: dump_dict(d, v.u.dict); break;
    default: rt_raise(d->rt, "TypeError", "Object of type %s is not JSON serializable", tv_type_name(v));
    }
    rt_leave(d->rt);
}

static void read_indent(struct dump *d, struct tv indent) {
    if (indent.type == TV_NONE || indent.type == TV_MISSING) return;
    d->pretty = true;
    if (indent.type == TV_STR) {
        d->indent = tv_str(indent);
        d->user |= tstr_any_user(indent.u.s);
        return;
    }
    int64_t n = tmpl_need_int(d->rt, indent);
    struct tbuf *b = tbuf_new(d->rt);
    tbuf_put_repeat(d->rt, b, tv_str_const(d->rt, " ").u.s, n > 0 ? (size_t)n : 0);
    d->indent = str_n(b->p, b->used);
}

static void read_separators(struct dump *d, struct tv separators) {
    d->item_sep = d->pretty ? STR(",") : STR(", ");
    d->key_sep = STR(": ");
    if (separators.type == TV_NONE || separators.type == TV_MISSING) return;
    struct tv pair = tv_to_list(d->rt, separators, TV_LIST);
    if (pair.u.list->n != 2) rt_raise(d->rt, "ValueError", "separators must be a pair (item_separator, key_separator)");
    d->item_sep = tstr_str(tmpl_need_str(d->rt, pair.u.list->items[0], "a separator"));
    d->key_sep = tstr_str(tmpl_need_str(d->rt, pair.u.list->items[1], "a separator"));
}

/* options: ensure_ascii, indent, separators, sort_keys */
struct tv tmpl_to_json(struct rt *rt, struct tv v, const struct tv *options) {
    struct dump d = {.rt = rt, .out = tbuf_new(rt), .user = tv_any_user(rt, v)};
    d.ascii = tmpl_arg_bool(rt, options[0], false);
    read_indent(&d, options[1]);
    read_separators(&d, options[2]);
    d.sort_keys = tmpl_arg_bool(rt, options[3], false);
    dump_value(&d, v);
    return tbuf_value(rt, d.out);
}
