/* Python's str() and repr(): numbers, quoting of strings, containers. */
#include "text/template/tmpl_rt.h"
#include "text/template/tmpl_unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- floats: the shortest digits that read back equal, with an exponent below 1e-4 and from 1e16 on ---- */

static int shortest_digits(double f, char digits[32], int *out_exponent) {
    char text[40];
    for (int n = 1; n <= 17; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, f);
        if (strtod(text, NULL) == f) break;
    }
    char *e = strchr(text, 'e');
    *out_exponent = (int)strtol(e + 1, NULL, 10);
    int n = 0;
    for (char *c = text; c < e; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    while (n > 1 && digits[n - 1] == '0') n--;
    return n;
}

static void put_fixed(struct sb *out, const char *digits, int n, int exponent) {
    if (exponent < 0) {
        sb_puts(out, "0.");
        for (int i = -1; i > exponent; i--) sb_putc(out, '0');
        sb_put(out, str_n(digits, (size_t)n));
        return;
    }
    for (int i = 0; i <= exponent; i++) sb_putc(out, i < n ? digits[i] : '0');
    sb_putc(out, '.');
    if (n > exponent + 1) sb_put(out, str_n(digits + exponent + 1, (size_t)(n - exponent - 1)));
    else sb_putc(out, '0');
}

struct str tmpl_float_repr(struct rt *rt, double f) {
    if (isnan(f)) return STR("nan");
    if (isinf(f)) return f < 0 ? STR("-inf") : STR("inf");
    char digits[32];
    int exponent, n = shortest_digits(fabs(f), digits, &exponent);
    struct sb out = {0};
    if (signbit(f)) sb_putc(&out, '-');
    if (exponent >= -4 && exponent < 16) {
        put_fixed(&out, digits, n, exponent);
    } else {
        sb_putc(&out, digits[0]);
        if (n > 1) sb_fmt(&out, ".%.*s", n - 1, digits + 1);
        sb_fmt(&out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    }
    struct str text = str_copy(rt->arena, sb_str(&out));
    sb_free(&out);
    return text;
}

/* ---- strings ---- */

static void put_escaped(struct rt *rt, struct tbuf *b, uint32_t code, bool user) {
    char text[16];
    if (code == '\n' || code == '\r' || code == '\t') snprintf(text, sizeof text, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    else if (code < 0x100) snprintf(text, sizeof text, "\\x%02x", (unsigned)code);
    else if (code < 0x10000) snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
    else snprintf(text, sizeof text, "\\U%08x", (unsigned)code);
    tbuf_put(rt, b, str_of(text), user);
}

static void repr_string(struct rt *rt, struct tbuf *b, const struct tstr *s) {
    struct str text = tstr_str(s);
    bool user = tstr_any_user(s);
    char quote = str_find_char(text, '\'', 0) != STR_NONE && str_find_char(text, '"', 0) == STR_NONE ? '"' : '\'';
    rt_charge_chars(rt, s->n);
    tbuf_put(rt, b, str_n(&quote, 1), user);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t n = utf8_decode(s->p + i, s->n - i, &code);
        if (code == (unsigned char)quote || code == '\\') {
            char pair[2] = {'\\', (char)code};
            tbuf_put(rt, b, str_n(pair, 2), user);
        } else if (uni_is_printable(code)) {
            tbuf_put(rt, b, str_sub(text, i, n), user);
        } else {
            put_escaped(rt, b, code, user);
        }
        i += n;
    }
    tbuf_put(rt, b, str_n(&quote, 1), user);
}

/* ---- containers ---- */

static void repr_into(struct rt *rt, struct tbuf *b, struct tv v);

static void repr_items(struct rt *rt, struct tbuf *b, const struct tlist *l) {
    for (size_t i = 0; i < l->n; i++) {
        if (i) tbuf_puts(rt, b, ", ");
        repr_into(rt, b, l->items[i]);
    }
}

static void repr_tuple(struct rt *rt, struct tbuf *b, const struct tlist *l) {
    tbuf_puts(rt, b, "(");
    repr_items(rt, b, l);
    tbuf_puts(rt, b, l->n == 1 ? ",)" : ")");
}

static void repr_dict(struct rt *rt, struct tbuf *b, const struct tdict *d) {
    tbuf_puts(rt, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i) tbuf_puts(rt, b, ", ");
        repr_into(rt, b, d->keys[i]);
        tbuf_puts(rt, b, ": ");
        repr_into(rt, b, d->values[i]);
    }
    tbuf_puts(rt, b, "}");
}

static void repr_view(struct rt *rt, struct tbuf *b, struct tv v) {
    tbuf_puts(rt, b, tv_type_name(v));
    tbuf_puts(rt, b, "([");
    repr_items(rt, b, tv_to_list(rt, v, TV_LIST).u.list);
    tbuf_puts(rt, b, "])");
}

static void repr_int(struct rt *rt, struct tbuf *b, int64_t i) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)i);
    tbuf_puts(rt, b, text);
}

static void repr_range(struct rt *rt, struct tbuf *b, const struct trange *r) {
    tbuf_puts(rt, b, "range(");
    repr_int(rt, b, r->start);
    tbuf_puts(rt, b, ", ");
    repr_int(rt, b, r->stop);
    if (r->step != 1) {
        tbuf_puts(rt, b, ", ");
        repr_int(rt, b, r->step);
    }
    tbuf_puts(rt, b, ")");
}

static void repr_node(struct rt *rt, struct tbuf *b, struct tv v) {
    switch (v.type) {
    case TV_UNDEF: tbuf_puts(rt, b, "Undefined"); return;
    case TV_NONE: tbuf_puts(rt, b, "None"); return;
    case TV_BOOL: tbuf_puts(rt, b, v.u.b ? "True" : "False"); return;
    case TV_INT: repr_int(rt, b, v.u.i); return;
    case TV_FLOAT: tbuf_put(rt, b, tmpl_float_repr(rt, v.u.f), false); return;
    case TV_BIG: tbuf_put_str(rt, b, v.u.s); return;
    case TV_STR:
        if (v.u.s->markup) tbuf_puts(rt, b, "Markup(");
        repr_string(rt, b, v.u.s);
        if (v.u.s->markup) tbuf_puts(rt, b, ")");
        return;
    case TV_LIST:
        tbuf_puts(rt, b, "[");
        repr_items(rt, b, v.u.list);
        tbuf_puts(rt, b, "]");
        return;
    case TV_TUPLE: repr_tuple(rt, b, v.u.list); return;
    case TV_DICT: repr_dict(rt, b, v.u.dict); return;
    case TV_NAMESPACE:
        tbuf_puts(rt, b, "<Namespace ");
        repr_dict(rt, b, v.u.dict);
        tbuf_puts(rt, b, ">");
        return;
    case TV_RANGE: repr_range(rt, b, v.u.range); return;
    case TV_VIEW: repr_view(rt, b, v); return;
    case TV_SELF: tbuf_puts(rt, b, "<TemplateReference None>"); return;
    case TV_MACRO:
        tbuf_puts(rt, b, "<Macro '");
        tbuf_put(rt, b, v.u.macro->name, false);
        tbuf_puts(rt, b, "'>");
        return;
    case TV_LOOP:
        tbuf_puts(rt, b, "<LoopContext ");
        repr_int(rt, b, v.u.loop->index0 + 1);
        tbuf_puts(rt, b, "/");
        repr_int(rt, b, tmpl_loop_attr(rt, v.u.loop, STR("length")).u.i);
        tbuf_puts(rt, b, ">");
        return;
    default: /* Python prints an address here; nothing can depend on it */
        tbuf_puts(rt, b, "<");
        tbuf_puts(rt, b, tv_type_name(v));
        tbuf_puts(rt, b, " object>");
    }
}

static void repr_into(struct rt *rt, struct tbuf *b, struct tv v) {
    rt_charge(rt, 3);
    rt_enter(rt);
    repr_node(rt, b, v);
    rt_leave(rt);
}

struct tv tmpl_to_repr(struct rt *rt, struct tv v) {
    struct tbuf *b = tbuf_new(rt);
    repr_into(rt, b, v);
    struct tv text = tbuf_value(rt, b);
    if (v.type != TV_STR && text.u.s->marks) { /* one span for a printed container */
        text.u.s->marks = NULL;
        text.u.s->buf = NULL;
        text.u.s->user = true;
    }
    return text;
}

struct tv tmpl_to_ascii(struct rt *rt, struct tv v) {
    const struct tstr *s = tmpl_to_repr(rt, v).u.s;
    struct tbuf *b = tbuf_new(rt);
    rt_charge_chars(rt, s->n);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t n = utf8_decode(s->p + i, s->n - i, &code);
        if (code < 0x80) tbuf_put_sub(rt, b, s, i, n);
        else put_escaped(rt, b, code, tstr_user_at(s, i));
        i += n;
    }
    return tbuf_value(rt, b);
}

struct tv tmpl_to_str(struct rt *rt, struct tv v) {
    if (v.type == TV_STR) return v;
    if (v.type == TV_UNDEF || v.type == TV_MISSING) return tv_str_const(rt, "");
    return tmpl_to_repr(rt, v);
}

/* ---- reading numbers as int() and float() do ---- */

static struct str strip(struct str s) {
    return uni_strip_right(uni_strip_left(s));
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

bool tmpl_number_parse_int(struct str s, int base, int64_t *out, bool *out_overflow) {
    s = strip(s);
    *out_overflow = false;
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+')) s = str_from(s, 1);
    static const struct {
        char letter;
        int base;
    } prefixes[] = {{'b', 2}, {'o', 8}, {'x', 16}};
    bool prefixed = false;
    for (size_t i = 0; i < 3; i++) {
        if (s.n < 2 || s.p[0] != '0' || (s.p[1] | 32) != prefixes[i].letter || (base != 0 && base != prefixes[i].base)) continue;
        base = prefixes[i].base;
        s = str_from(s, 2);
        prefixed = true;
        break;
    }
    bool any_base = base == 0;
    if (any_base) base = 10;
    uint64_t value = 0;
    bool last_digit = prefixed, nonzero = false;
    if (!s.n) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '_') {
            if (!last_digit) return false;
            last_digit = false;
            continue;
        }
        int d = digit_of(s.p[i]);
        if (d >= base) return false;
        if (value > ((uint64_t)INT64_MAX - (uint64_t)d) / (uint64_t)base) *out_overflow = true;
        else value = value * (uint64_t)base + (uint64_t)d;
        nonzero |= d != 0;
        last_digit = true;
    }
    if (any_base && nonzero && s.p[0] == '0') return false;
    *out = negative ? -(int64_t)value : (int64_t)value;
    return last_digit;
}

bool tmpl_number_parse_float(struct str s, double *out) {
    s = strip(s);
    char text[512];
    size_t n = 0;
    bool digit_before = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool digit = c >= '0' && c <= '9';
        if (c == '_') { /* only between digits */
            bool digit_after = i + 1 < s.n && s.p[i + 1] >= '0' && s.p[i + 1] <= '9';
            if (!digit_before || !digit_after) return false;
            continue;
        }
        if (c == 'x' || c == 'X' || c == '(' || c == '\0' || n + 1 >= sizeof text) return false; /* forms that only strtod knows */
        digit_before = digit;
        text[n++] = c;
    }
    text[n] = '\0';
    if (!n || uni_is_space((unsigned char)text[0])) return false;
    char *end;
    *out = strtod(text, &end);
    return *end == '\0';
}
