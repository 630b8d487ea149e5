/* Filters for markup: escape, striptags, urlencode. */
#include "text/template/tmpl_rt.h"
#include "text/template/tmpl_unicode.h"

#define FILTER(name) static struct tv name(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call)
#define UNUSED (void)rt, (void)self, (void)args, (void)call

/* ---- escape ---- */

static const char *entity(char c) {
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&#34;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

static struct tv force_escape(struct rt *rt, struct tv v) {
    const struct tstr *s = tmpl_to_str(rt, v).u.s;
    struct tbuf *b = tbuf_new(rt);
    rt_charge_bytes(rt, s->n * 2);
    size_t plain = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *e = entity(s->p[i]);
        if (!e) continue;
        tbuf_put_sub(rt, b, s, plain, i - plain);
        tbuf_put(rt, b, str_of(e), tstr_user_at(s, i));
        plain = i + 1;
    }
    tbuf_put_sub(rt, b, s, plain, s->n - plain);
    struct tv out = tbuf_value(rt, b);
    out.u.s->markup = true;
    return out;
}

struct tv tmpl_escape_html(struct rt *rt, struct tv v) {
    return v.type == TV_STR && v.u.s->markup ? v : force_escape(rt, v);
}

FILTER(f_escape) {
    UNUSED;
    return tmpl_escape_html(rt, self);
}
FILTER(f_forceescape) {
    UNUSED;
    return force_escape(rt, self);
}

FILTER(f_safe) {
    UNUSED;
    struct tv s = tmpl_to_str(rt, self), v = tv_sub(rt, s.u.s, 0, s.u.s->n);
    v.u.s->markup = true;
    return v;
}

/* ---- striptags ---- */

static struct tv cut_between(struct rt *rt, struct tv v, struct str open, struct str close) {
    const struct tstr *s = v.u.s;
    struct tbuf *b = tbuf_new(rt);
    size_t at = 0;
    for (;;) {
        size_t from = tstr_find(rt, tstr_str(s), open, at);
        size_t to = from == STR_NONE ? STR_NONE : tstr_find(rt, tstr_str(s), close, from);
        if (to == STR_NONE) break;
        rt_charge(rt, 1);
        tbuf_put_sub(rt, b, s, at, from - at);
        at = to + close.n;
    }
    tbuf_put_sub(rt, b, s, at, s->n - at);
    return tbuf_value(rt, b);
}

static const struct {
    const char *name;
    uint32_t code;
} entities[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xA0}, {"copy", 0xA9}};

static uint32_t entity_code(struct str name) {
    int64_t code = 0;
    if (name.n > 1 && name.p[0] == '#') {
        bool hex = name.n > 2 && (name.p[1] | 32) == 'x', overflow;
        if (!tmpl_number_parse_int(str_from(name, hex ? 2 : 1), hex ? 16 : 10, &code, &overflow) || overflow || code <= 0 ||
            code > 0x10FFFF)
            return 0;
        return code >= 0xD800 && code < 0xE000 ? UTF8_INVALID : (uint32_t)code;
    }
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (str_is(name, entities[i].name)) return entities[i].code;
    return 0;
}

static struct tv unescape_entities(struct rt *rt, struct tv v) {
    const struct tstr *s = v.u.s;
    struct tbuf *b = tbuf_new(rt);
    for (size_t i = 0; i < s->n;) {
        size_t end = s->p[i] == '&' ? str_find_char(str_sub(tstr_str(s), 0, i + 12), ';', i) : STR_NONE;
        uint32_t code = end == STR_NONE ? 0 : entity_code(str_sub(tstr_str(s), i + 1, end - i - 1));
        if (code) {
            tbuf_put_code(rt, b, code, tstr_user_at(s, i));
            i = end + 1;
        } else {
            tbuf_put_sub(rt, b, s, i++, 1);
        }
    }
    return tbuf_value(rt, b);
}

FILTER(f_striptags) {
    UNUSED;
    struct tv s = tmpl_to_str(rt, self);
    rt_charge_chars(rt, s.u.s->n * 2);
    s = cut_between(rt, cut_between(rt, s, STR("<!--"), STR("-->")), STR("<"), STR(">"));
    struct tcall none = {0};
    struct tv words = tmpl_builtin_call(rt, tmpl_builtin_lookup(tmpl_methods_str, STR("split")), s, &none);
    return unescape_entities(rt, tmpl_str_join(rt, tv_str_const(rt, " ").u.s, words, false));
}

/* ---- urlencode ---- */

static void url_quote(struct rt *rt, struct tbuf *b, struct tv v, bool query) {
    static const char hex[] = "0123456789ABCDEF";
    const struct tstr *s = tmpl_to_str(rt, v).u.s;
    rt_charge_chars(rt, s->n);
    for (size_t i = 0; i < s->n; i++) {
        unsigned char c = (unsigned char)s->p[i];
        bool plain = (c < 0x80 && (uni_is_alpha(c) || uni_is_decimal(c))) || (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (plain) {
            tbuf_put_sub(rt, b, s, i, 1);
        } else if (query && c == ' ') {
            tbuf_put(rt, b, STR("+"), tstr_user_at(s, i));
        } else {
            char text[3] = {'%', hex[c >> 4], hex[c & 15]};
            tbuf_put(rt, b, str_n(text, 3), tstr_user_at(s, i));
        }
    }
}

FILTER(f_urlencode) {
    UNUSED;
    struct tbuf *b = tbuf_new(rt);
    if (self.type == TV_STR || !tv_is_iterable(self)) {
        url_quote(rt, b, self, false);
        return tbuf_value(rt, b);
    }
    struct tview items = {self.u.dict, VIEW_ITEMS};
    struct titer *it = tv_iter(rt, self.type == TV_DICT ? (struct tv){TV_VIEW, {.view = &items}} : self);
    struct tv pair;
    for (bool first = true; titer_next(rt, it, &pair); first = false) {
        struct tv kv = tv_to_list(rt, pair, TV_LIST);
        if (kv.u.list->n != 2) rt_raise(rt, "ValueError", "not enough values to unpack (expected 2, got %zu)", kv.u.list->n);
        if (!first) tbuf_puts(rt, b, "&");
        url_quote(rt, b, kv.u.list->items[0], true);
        tbuf_puts(rt, b, "=");
        url_quote(rt, b, kv.u.list->items[1], true);
    }
    return tbuf_value(rt, b);
}

const struct builtin tmpl_filters_html[] = {
    {"safe", f_safe, ""},
    {"e", f_escape, ""},
    {"escape", f_escape, ""},
    {"forceescape", f_forceescape, ""},
    {"striptags", f_striptags, ""},
    {"urlencode", f_urlencode, ""},
    {NULL, NULL, NULL},
};
