/* Python's two formatting languages: "%-5d" % x and "{:>5}".format(x). Literal text keeps the format's marks, inserted
 * text those of the value. */
#include "text/template/tmpl_rt.h"

#include <math.h>
#include <stdio.h>

enum { FORMAT_MAX_PRECISION = 1000 };

struct spec {
    const struct tstr *fill; /* NULL: blank */
    char align, sign, type, grouping;
    bool alternate, zero;
    int64_t width, precision; /* precision -1: none */
};

/* ---- pieces ---- */

static struct str digits_of(struct rt *rt, uint64_t value, int base, bool upper) {
    static const char low[] = "0123456789abcdef", high[] = "0123456789ABCDEF";
    char text[72];
    size_t at = sizeof text;
    do {
        text[--at] = (upper ? high : low)[value % (unsigned)base];
        value /= (unsigned)base;
    } while (value);
    return tv_str(tv_str_copy(rt, str_n(text + at, sizeof text - at), false));
}

static uint64_t magnitude(int64_t i) {
    return i < 0 ? (uint64_t)0 - (uint64_t)i : (uint64_t)i;
}

/* The least number of digits, n or more, that are min_width wide with a separator between groups. */
static size_t filled_digits(size_t n, int64_t min_width, size_t every) {
    int64_t group = (int64_t)every + 1, count = min_width / group * (int64_t)every + min_width % group;
    if (min_width % group == 0) count++; /* a separator never comes first */
    return count > (int64_t)n && min_width > 0 ? (size_t)count : n;
}

/* The first `whole` digits with a separator every so many of them. Zeros that fill the width, of which `taken` is for sign and prefix, are
 * digits too. */
static struct str grouped(struct rt *rt, const struct spec *s, struct str digits, size_t whole, size_t every, size_t taken) {
    bool fills = s->align == '=' && s->fill && str_is(tstr_str(s->fill), "0");
    size_t count = whole;
    if (fills) count = filled_digits(whole, s->width - (int64_t)(taken + digits.n - whole), every);
    rt_charge_chars(rt, count);
    struct tbuf *b = tbuf_new(rt);
    for (size_t i = 0; i < count; i++) {
        if (i && (count - i) % every == 0) tbuf_put(rt, b, str_n(&s->grouping, 1), false);
        tbuf_put(rt, b, i < count - whole ? STR("0") : str_sub(digits, i - (count - whole), 1), false);
    }
    tbuf_put(rt, b, str_from(digits, whole), false);
    return str_n(b->p, b->used);
}

static struct str print_float(struct rt *rt, double f, char type, int64_t precision, bool alternate) {
    if (precision > FORMAT_MAX_PRECISION) rt_raise(rt, "ValueError", "precision too big");
    char form[8] = "%.*f";
    size_t at = 1;
    if (alternate) form[at++] = '#';
    form[at++] = '.';
    form[at++] = '*';
    form[at++] = type;
    form[at] = '\0';
    size_t room = 400 + (size_t)precision;
    char *text = rt_alloc(rt, room);
    const char *fmt = form;
    snprintf(text, room, fmt, (int)precision, f);
    return str_of(text);
}

/* "1.200e+02" -> "1.2e+02" */
static struct str without_zeros(struct rt *rt, struct str text) {
    size_t e = str_find_char(text, 'e', 0), end = e;
    if (e == STR_NONE || str_find_char(text, '.', 0) == STR_NONE) return text;
    while (text.p[end - 1] == '0') end--;
    if (text.p[end - 1] == '.') end--;
    return tv_str(tv_concat(rt, tv_str_of(rt, str_sub(text, 0, end), false).u.s, tv_str_of(rt, str_from(text, e), false).u.s));
}

/* The digits of |f|, without a sign. */
static struct str float_digits(struct rt *rt, double f, const struct spec *s) {
    bool upper = s->type == 'E' || s->type == 'F' || s->type == 'G';
    f = fabs(f);
    if (isnan(f)) return upper ? STR("NAN") : STR("nan");
    if (isinf(f)) return upper ? STR("INF") : STR("inf");
    if (s->type == '%') {
        struct str n = print_float(rt, f * 100, 'f', s->precision < 0 ? 6 : s->precision, s->alternate);
        return tv_str(tv_concat(rt, tv_str_of(rt, n, false).u.s, tv_str_const(rt, "%").u.s));
    }
    if (s->type == '\0' && s->precision < 0) return tmpl_float_repr(rt, f);
    char type = s->type == '\0' || s->type == 'n' ? 'g' : s->type;
    int64_t precision = s->precision < 0 ? 6 : s->precision;
    if ((type == 'g' || type == 'G') && precision == 0) precision = 1;
    struct str text = print_float(rt, f, type, precision, s->alternate);
    if (s->type != '\0') return text;
    /* no type but a precision: like g, but with a point, or with an exponent where there is no room for it */
    bool has_point = str_find_char(text, '.', 0) != STR_NONE || str_find_char(text, 'e', 0) != STR_NONE;
    if (has_point) return text;
    if (text.n < (size_t)precision) return tv_str(tv_concat(rt, tv_str_of(rt, text, false).u.s, tv_str_const(rt, ".0").u.s));
    return without_zeros(rt, print_float(rt, f, 'e', precision - 1, false));
}

static void put_padding(struct rt *rt, struct tbuf *b, const struct spec *s, int64_t count) {
    if (count <= 0) return;
    const struct tstr *fill = s->fill ? s->fill : tv_str_const(rt, " ").u.s;
    tbuf_put_repeat(rt, b, fill, (size_t)count);
}

/* sign, prefix and digits, padded; '=' puts the padding behind the sign */
static struct tv assemble(struct rt *rt, const struct spec *s, const char *sign, const char *prefix, struct str digits) {
    struct tbuf *b = tbuf_new(rt);
    int64_t n = (int64_t)(strlen(sign) + strlen(prefix) + digits.n), pad = s->width - n;
    char align = s->align ? s->align : '>';
    put_padding(rt, b, s, align == '>' ? pad : align == '^' ? pad / 2 : 0);
    tbuf_puts(rt, b, sign);
    tbuf_puts(rt, b, prefix);
    if (align == '=') put_padding(rt, b, s, pad);
    tbuf_put(rt, b, digits, false);
    put_padding(rt, b, s, align == '<' ? pad : align == '^' && pad > 0 ? pad - pad / 2 : 0);
    return tbuf_value(rt, b);
}

static const char *sign_of(bool negative, char sign) {
    return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

static struct tv format_float(struct rt *rt, double f, struct spec s) {
    struct str digits = float_digits(rt, f, &s);
    const char *sign = sign_of(signbit(f) && !isnan(f), s.sign);
    size_t whole = 0;
    while (whole < digits.n && digits.p[whole] >= '0' && digits.p[whole] <= '9') whole++;
    if (s.grouping && whole) digits = grouped(rt, &s, digits, whole, 3, strlen(sign));
    return assemble(rt, &s, sign, "", digits);
}

static struct tv format_int(struct rt *rt, int64_t i, struct spec s) {
    static const struct {
        char type;
        int base;
        const char *prefix;
    } bases[] = {{'b', 2, "0b"}, {'o', 8, "0o"}, {'x', 16, "0x"}, {'X', 16, "0X"}};
    int base = 10;
    const char *prefix = "", *sign = sign_of(i < 0, s.sign);
    for (size_t k = 0; k < sizeof bases / sizeof *bases; k++)
        if (bases[k].type == s.type) {
            base = bases[k].base;
            if (s.alternate) prefix = bases[k].prefix;
        }
    struct str digits = digits_of(rt, magnitude(i), base, s.type == 'X');
    if (s.grouping) digits = grouped(rt, &s, digits, digits.n, base == 10 ? 3 : 4, strlen(sign) + strlen(prefix));
    return assemble(rt, &s, sign, prefix, digits);
}

static struct tv format_string(struct rt *rt, const struct tstr *text, const struct spec *s) {
    struct tv cut = tv_sub(rt, text, 0, text->n);
    if (s->precision >= 0 && (uint64_t)s->precision < tstr_chars(rt, text))
        cut = tv_sub(rt, text, 0, tstr_offset(rt, text, (size_t)s->precision));
    int64_t pad = s->width - (int64_t)tstr_chars(rt, cut.u.s);
    if (pad <= 0) return cut;
    struct tbuf *b = tbuf_new(rt);
    char align = s->align ? s->align : '<';
    put_padding(rt, b, s, align == '>' ? pad : align == '^' ? pad / 2 : 0);
    tbuf_put_str(rt, b, cut.u.s);
    put_padding(rt, b, s, align == '<' ? pad : align == '^' ? pad - pad / 2 : 0);
    return tbuf_value(rt, b);
}

static struct tv format_char(struct rt *rt, int64_t code, const struct spec *s) {
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) rt_raise(rt, "OverflowError", "%%c arg not in range(0x110000)");
    struct tbuf *b = tbuf_new(rt);
    tbuf_put_code(rt, b, (uint32_t)code, false);
    return format_string(rt, tbuf_value(rt, b).u.s, s);
}

/* ---- "{:spec}" ---- */

static int64_t read_number(struct rt *rt, struct str s, size_t *at) {
    int64_t n = 0;
    for (; *at < s.n && s.p[*at] >= '0' && s.p[*at] <= '9'; ++*at) {
        n = n * 10 + (s.p[*at] - '0');
        if (n > INT32_MAX) rt_raise(rt, "ValueError", "Too many decimal digits in format string");
    }
    return n;
}

static void check_grouping(struct rt *rt, const struct spec *s, struct tv v) {
    char type = s->type ? s->type : v.type == TV_STR ? 's' : 'd';
    if (s->grouping && !strchr(s->grouping == '_' ? "deEfFgG%bBoxX" : "deEfFgG%", type))
        rt_raise(rt, "ValueError", "Cannot specify '%c' with '%c'.", s->grouping, type);
}

static struct spec read_spec(struct rt *rt, const struct tstr *text, struct tv v) {
    struct spec spec = {.precision = -1};
    struct str s = tstr_str(text);
    size_t at = 0;
    uint32_t code;
    size_t first = s.n ? utf8_decode(s.p, s.n, &code) : 0;
    if (first && first < s.n && strchr("<>=^", s.p[first])) {
        spec.fill = tv_sub(rt, text, 0, first).u.s;
        spec.align = s.p[first];
        at = first + 1;
    } else if (s.n && strchr("<>=^", s.p[0])) {
        spec.align = s.p[at++];
    }
    if (at < s.n && strchr("+- ", s.p[at])) spec.sign = s.p[at++];
    if (at < s.n && s.p[at] == 'z') at++; /* negative zero is printed as it is: only its sign differs */
    if (at < s.n && s.p[at] == '#') spec.alternate = true, at++;
    if (at < s.n && s.p[at] == '0') {
        spec.zero = true;
        if (!spec.fill) spec.fill = tv_str_const(rt, "0").u.s;
        if (!spec.align) spec.align = v.type == TV_STR ? '<' : '=';
        at++;
    }
    spec.width = read_number(rt, s, &at);
    if (at < s.n && (s.p[at] == ',' || s.p[at] == '_')) spec.grouping = s.p[at++];
    if (at < s.n && s.p[at] == '.') {
        size_t before = ++at;
        spec.precision = read_number(rt, s, &at);
        if (at == before) rt_raise(rt, "ValueError", "Format specifier missing precision");
    }
    if (at < s.n) spec.type = s.p[at++];
    if (at == s.n) check_grouping(rt, &spec, v);
    if (at < s.n) rt_raise(rt, "ValueError", "Invalid format specifier '%.*s' for object of type '%s'", STR_ARG(s), tv_type_name(v));
    return spec;
}

static _Noreturn void bad_type(struct rt *rt, char type, struct tv v) {
    rt_raise(rt, "ValueError", "Unknown format code '%c' for object of type '%s'", type, tv_type_name(v));
}

static struct tv format_number(struct rt *rt, struct tv v, struct spec s) {
    bool integral = s.type == '\0' || (s.type && strchr("bdoxXn", s.type));
    if (tv_is_int(v) && integral) {
        if (s.precision >= 0) rt_raise(rt, "ValueError", "Precision not allowed in integer format specifier");
        return format_int(rt, tv_as_int(v), s);
    }
    if (tv_is_int(v) && s.type == 'c') {
        if (s.precision >= 0) rt_raise(rt, "ValueError", "Precision not allowed in integer format specifier");
        if (s.sign) rt_raise(rt, "ValueError", "Sign not allowed with integer format specifier 'c'");
        if (s.alternate) rt_raise(rt, "ValueError", "Alternate form (#) not allowed with integer format specifier 'c'");
        if (!s.align || s.align == '=') s.align = '>';
        return format_char(rt, tv_as_int(v), &s);
    }
    if (s.type && !strchr("eEfFgGn%", s.type)) bad_type(rt, s.type, v);
    return format_float(rt, tv_as_float(v), s);
}

struct tv tmpl_format_value(struct rt *rt, struct tv v, const struct tstr *text) {
    if (!text->n) return tmpl_to_str(rt, v);
    if (v.type != TV_STR && !tv_is_num(v)) rt_raise(rt, "TypeError", "unsupported format string passed to %s.__format__", tv_type_name(v));
    struct spec s = read_spec(rt, text, v);
    if (tv_is_num(v)) return format_number(rt, v, s);
    if (s.type && s.type != 's') bad_type(rt, s.type, v);
    if (s.sign) rt_raise(rt, "ValueError", "Sign not allowed in string format specifier");
    if (s.alternate) rt_raise(rt, "ValueError", "Alternate form (#) not allowed in string format specifier");
    if (s.align == '=') rt_raise(rt, "ValueError", "'=' alignment not allowed in string format specifier");
    return format_string(rt, v.u.s, &s);
}

/* ---- "{a.b[0]!r:spec}".format() ---- */

struct fields {
    const struct tcall *call;
    int64_t next; /* automatic numbering */
    bool manual, automatic;
    bool markup;
};

static struct tv field_base(struct rt *rt, struct fields *f, struct str name) {
    int64_t index = 0;
    bool numbered = name.n == 0 || (name.n < 10 && str_to_int64(name, &index) && index >= 0 && name.p[0] != '+');
    if (!numbered) {
        rt_charge(rt, (size_t)f->call->n_kw / 4);
        for (int i = 0; i < f->call->n_kw; i++)
            if (str_eq(f->call->kw_names[i], name)) return f->call->kw[i];
        rt_raise(rt, "KeyError", "'%.*s'", STR_ARG(name));
    }
    if (name.n) f->manual = true;
    else f->automatic = true;
    if (f->manual && f->automatic)
        rt_raise(rt, "ValueError", "cannot switch from %s",
                 name.n ? "automatic field numbering to manual field specification"
                        : "manual field specification to automatic field numbering");
    if (!name.n) index = f->next++;
    if (index >= f->call->n_pos)
        rt_raise(rt, "IndexError", "Replacement index %lld out of range for positional args tuple", (long long)index);
    return f->call->pos[index];
}

static struct tv field_value(struct rt *rt, struct fields *f, struct str name) {
    size_t at = 0;
    while (at < name.n && name.p[at] != '.' && name.p[at] != '[') at++;
    struct tv v = field_base(rt, f, str_sub(name, 0, at));
    while (at < name.n) {
        bool dot = name.p[at++] == '.';
        size_t from = at;
        while (at < name.n && (dot ? name.p[at] != '.' && name.p[at] != '[' : name.p[at] != ']')) at++;
        struct str part = str_sub(name, from, at - from);
        if (!part.n) rt_raise(rt, "ValueError", "Empty attribute in format string");
        struct tv key = tv_str_of(rt, part, false);
        int64_t index;
        if (!dot && part.p[0] >= '0' && part.p[0] <= '9' && str_to_int64(part, &index)) key = tv_int(index);
        v = dot ? tmpl_op_getattr(rt, v, key.u.s) : tmpl_op_getitem(rt, v, key);
        if (dot) continue;
        if (at >= name.n) rt_raise(rt, "ValueError", "Missing ']' in format string");
        at++;
        if (at < name.n && name.p[at] != '.' && name.p[at] != '[')
            rt_raise(rt, "ValueError", "Only '.' or '[' may follow ']' in format field specifier");
    }
    return v;
}

static struct tv braces(struct rt *rt, const struct tstr *format, struct fields *f, int depth);

static void put_field(struct rt *rt, struct tbuf *b, struct fields *f, struct tv inside, int depth) {
    struct str text = tv_str(inside);
    size_t name_end = 0;
    bool bracket = false;
    for (; name_end < text.n && (bracket || (text.p[name_end] != '!' && text.p[name_end] != ':')); name_end++) {
        if (text.p[name_end] == '[') bracket = true;
        if (text.p[name_end] == ']') bracket = false;
    }
    size_t spec_at = name_end;
    struct tv v = field_value(rt, f, str_sub(text, 0, name_end));
    if (name_end < text.n && text.p[name_end] == '!') {
        char how = name_end + 1 < text.n ? text.p[name_end + 1] : '\0';
        spec_at = name_end + 2;
        if (spec_at < text.n && text.p[spec_at] != ':') rt_raise(rt, "ValueError", "expected ':' after conversion specifier");
        if (how == 'r') v = tmpl_to_repr(rt, v);
        else if (how == 'a') v = tmpl_to_ascii(rt, v);
        else if (how == 's') v = tmpl_to_str(rt, v);
        else rt_raise(rt, "ValueError", "Unknown conversion specifier %c", how ? how : '}');
    }
    struct tv spec = tv_str_const(rt, "");
    if (spec_at < text.n) spec = braces(rt, tv_sub(rt, inside.u.s, spec_at + 1, text.n - spec_at - 1).u.s, f, depth - 1);
    v = tmpl_format_value(rt, v, spec.u.s);
    if (f->markup) v = tmpl_escape_html(rt, v);
    tbuf_put_str(rt, b, v.u.s);
}

static struct tv braces(struct rt *rt, const struct tstr *format, struct fields *f, int depth) {
    if (depth < 0) rt_raise(rt, "ValueError", "Max string recursion exceeded");
    struct str s = tstr_str(format);
    struct tbuf *b = tbuf_new(rt);
    rt_charge_bytes(rt, s.n);
    for (size_t i = 0; i < s.n;) {
        char c = s.p[i];
        if (c != '{' && c != '}') {
            size_t from = i;
            while (i < s.n && s.p[i] != '{' && s.p[i] != '}') i++;
            tbuf_put_sub(rt, b, format, from, i - from);
            continue;
        }
        if (i + 1 < s.n && s.p[i + 1] == c) {
            tbuf_put_sub(rt, b, format, i, 1);
            i += 2;
            continue;
        }
        if (c == '}') rt_raise(rt, "ValueError", "Single '}' encountered in format string");
        size_t from = ++i;
        int level = 1;
        for (; i < s.n; i++) {
            if (s.p[i] == '{') level++;
            if (s.p[i] == '}' && --level == 0) break;
        }
        if (i >= s.n)
            rt_raise(rt, "ValueError", from == s.n ? "Single '{' encountered in format string" : "expected '}' before end of string");
        put_field(rt, b, f, tv_sub(rt, format, from, i - from), depth);
        i++;
    }
    return tbuf_value(rt, b);
}

struct tv tmpl_format_braces(struct rt *rt, const struct tstr *format, const struct tcall *call) {
    struct fields f = {.call = call, .markup = format->markup};
    return braces(rt, format, &f, 1);
}

/* ---- "%" ---- */

struct percent {
    struct tv args;
    size_t next;
    bool used_mapping, markup;
};

static struct tv next_arg(struct rt *rt, struct percent *p) {
    if (p->args.type == TV_TUPLE && p->next < p->args.u.list->n) return p->args.u.list->items[p->next++];
    if (p->args.type != TV_TUPLE && p->next == 0) {
        p->next++;
        return p->args;
    }
    rt_raise(rt, "TypeError", "not enough arguments for format string");
}

static int64_t star_or_number(struct rt *rt, struct percent *p, struct str s, size_t *at) {
    if (*at >= s.n || s.p[*at] != '*') return read_number(rt, s, at);
    ++*at;
    struct tv v = next_arg(rt, p);
    if (!tv_is_int(v)) rt_raise(rt, "TypeError", "* wants int");
    int64_t n = tv_as_int(v);
    if (n > INT32_MAX || n < -INT32_MAX) rt_raise(rt, "OverflowError", "Python int too large to convert to C int");
    return n;
}

static struct tv percent_number(struct rt *rt, struct tv v, struct spec s) {
    bool real = strchr("eEfFgG", s.type) != NULL;
    if (v.type == TV_UNDEF) {
        if (real) tv_undef_raise(rt, v);
        rt_raise(rt, "TypeError", "%%%c format: a real number is required, not Undefined", s.type);
    }
    if (real) {
        if (!tv_is_num(v)) rt_raise(rt, "TypeError", "must be real number, not %s", tv_type_name(v));
        if (s.precision < 0) s.precision = 6;
        return format_float(rt, tv_as_float(v), s);
    }
    bool decimal = strchr("diu", s.type) != NULL;
    if (decimal && v.type == TV_FLOAT) {
        if (!isfinite(v.u.f))
            rt_raise(rt, isnan(v.u.f) ? "ValueError" : "OverflowError", "cannot convert float %s to integer",
                     isnan(v.u.f) ? "NaN" : "infinity");
        if (fabs(v.u.f) >= 9223372036854775808.0) rt_raise(rt, "OverflowError", "the result needs an integer of more than 64 bits");
        v = tv_int((int64_t)v.u.f);
    }
    if (!tv_is_int(v))
        rt_raise(rt, "TypeError",
                 decimal ? "%%%c format: a real number is required, not %s" : "%%%c format: an integer is required, not %s", s.type,
                 tv_type_name(v));
    if (decimal) s.type = 'd';
    if (s.precision > 0) { /* digits, filled with zeros */
        if (s.precision > FORMAT_MAX_PRECISION) rt_raise(rt, "ValueError", "precision too big");
        int base = s.type == 'o' ? 8 : s.type == 'd' ? 10 : 16;
        struct str digits = digits_of(rt, magnitude(tv_as_int(v)), base, s.type == 'X');
        struct tbuf *b = tbuf_new(rt);
        if (digits.n < (size_t)s.precision) tbuf_put_repeat(rt, b, tv_str_const(rt, "0").u.s, (size_t)s.precision - digits.n);
        tbuf_put(rt, b, digits, false);
        const char *prefix = !s.alternate || base == 10 ? "" : base == 8 ? "0o" : s.type == 'X' ? "0X" : "0x";
        return assemble(rt, &s, sign_of(tv_as_int(v) < 0, s.sign), prefix, str_n(b->p, b->used));
    }
    return format_int(rt, tv_as_int(v), s);
}

static struct tv percent_char(struct rt *rt, struct tv v, const struct spec *s) {
    if (v.type == TV_STR && tstr_chars(rt, v.u.s) == 1) return format_string(rt, v.u.s, s);
    if (!tv_is_int(v)) rt_raise(rt, "TypeError", "%%c requires int or char");
    return format_char(rt, tv_as_int(v), s);
}

static struct tv percent_one(struct rt *rt, struct percent *p, struct tv v, struct spec s) {
    if (strchr("sra", s.type)) {
        v = s.type == 's' ? tmpl_to_str(rt, v) : s.type == 'r' ? tmpl_to_repr(rt, v) : tmpl_to_ascii(rt, v);
        if (p->markup) v = tmpl_escape_html(rt, v);
        if (!s.align) s.align = '>';
        s.fill = NULL;
        return format_string(rt, v.u.s, &s);
    }
    if (s.type == 'c') { /* neither zeros nor a precision */
        if (!s.align) s.align = '>';
        s.precision = -1;
        return percent_char(rt, v, &s);
    }
    if (!s.align && s.zero) s.align = '=', s.fill = tv_str_const(rt, "0").u.s;
    if (!s.align) s.align = '>';
    if (s.align == '<') s.fill = NULL;
    if (strchr("diuoxXeEfFgG", s.type)) return percent_number(rt, v, s);
    rt_raise(rt, "ValueError", "unsupported format character '%c'", s.type);
}

/* "%(key)s": from the mapping; at stands behind the parenthesis. */
static struct tv keyed_arg(struct rt *rt, struct percent *p, const struct tstr *format, size_t *at) {
    size_t from = *at;
    int level = 1;
    for (; *at < format->n; ++*at) {
        if (format->p[*at] == '(') level++;
        if (format->p[*at] == ')' && --level == 0) break;
    }
    if (*at >= format->n) rt_raise(rt, "ValueError", "incomplete format key");
    struct tv key = tv_sub(rt, format, from, *at - from);
    ++*at;
    if (p->args.type != TV_DICT) rt_raise(rt, "TypeError", "format requires a mapping");
    p->used_mapping = true;
    struct tv *v = tdict_get(rt, p->args.u.dict, key);
    if (!v) rt_raise(rt, "KeyError", "%.*s", STR_ARG(tv_str(tmpl_to_repr(rt, key))));
    return *v;
}

static void put_percent(struct rt *rt, struct tbuf *b, struct percent *p, const struct tstr *format, size_t *at) {
    struct str s = tstr_str(format);
    struct spec spec = {.precision = -1};
    struct tv v = TV_MISSING_V;
    if (*at < s.n && s.p[*at] == '(') {
        ++*at;
        v = keyed_arg(rt, p, format, at);
    }
    for (; *at < s.n && strchr("-+ #0", s.p[*at]); ++*at) {
        char c = s.p[*at];
        if (c == '-') spec.align = '<';
        else if (c == '#') spec.alternate = true;
        else if (c == '0') spec.zero = true;
        else if (spec.sign != '+') spec.sign = c;
    }
    spec.width = star_or_number(rt, p, s, at);
    if (spec.width < 0) spec.width = -spec.width, spec.align = '<';
    if (*at < s.n && s.p[*at] == '.') {
        ++*at;
        spec.precision = star_or_number(rt, p, s, at);
        if (spec.precision < 0) spec.precision = 0;
    }
    while (*at < s.n && strchr("hlL", s.p[*at])) ++*at;
    if (*at >= s.n) rt_raise(rt, "ValueError", "incomplete format");
    spec.type = s.p[(*at)++];
    if (spec.type == '%' && *at >= 2 && s.p[*at - 2] == '%') {
        tbuf_put_sub(rt, b, format, *at - 1, 1);
        return;
    }
    if (!spec.type) rt_raise(rt, "ValueError", "unsupported format character");
    if (v.type == TV_MISSING) v = next_arg(rt, p);
    tbuf_put_str(rt, b, percent_one(rt, p, v, spec).u.s);
}

struct tv tmpl_format_percent(struct rt *rt, const struct tstr *format, struct tv args) {
    struct percent p = {.args = args, .markup = format->markup};
    struct tbuf *b = tbuf_new(rt);
    rt_charge_bytes(rt, format->n);
    for (size_t i = 0; i < format->n;) {
        size_t from = i;
        while (i < format->n && format->p[i] != '%') i++;
        tbuf_put_sub(rt, b, format, from, i - from);
        if (i == format->n) break;
        i++;
        put_percent(rt, b, &p, format, &i);
    }
    bool subscriptable = args.type == TV_DICT || args.type == TV_LIST || args.type == TV_UNDEF || args.type == TV_RANGE;
    bool all_used = args.type == TV_TUPLE ? p.next >= args.u.list->n : p.next > 0 || subscriptable;
    if (!all_used) rt_raise(rt, "TypeError", "not all arguments converted during string formatting");
    struct tv v = tbuf_value(rt, b);
    v.u.s->markup = format->markup;
    return v;
}
