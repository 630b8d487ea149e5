/* Filters over text and numbers. */
#include "text/template/tmpl_rt.h"
#include "text/template/tmpl_unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name) static struct tv name(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call)
#define UNUSED (void)rt, (void)self, (void)args, (void)call

/* A filter of Markup gives Markup. */
static struct tv like(struct tv self, struct tv v) {
    if (v.type == TV_STR && self.type == TV_STR) v.u.s->markup = self.u.s->markup;
    return v;
}

FILTER(f_upper) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, tmpl_to_str(rt, self).u.s, 'u'));
}
FILTER(f_lower) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, tmpl_to_str(rt, self).u.s, 'l'));
}
FILTER(f_capitalize) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, tmpl_to_str(rt, self).u.s, 'c'));
}
FILTER(f_trim) {
    UNUSED;
    return tmpl_str_strip(rt, tmpl_to_str(rt, self).u.s, args[0], true, true);
}
FILTER(f_string) {
    UNUSED;
    return tmpl_to_str(rt, self);
}
FILTER(f_tojson) {
    UNUSED;
    return tmpl_to_json(rt, self, args);
}

FILTER(f_replace) {
    UNUSED;
    struct tv s = tmpl_to_str(rt, self), from = tmpl_to_str(rt, args[0]), to = tmpl_to_str(rt, args[1]);
    int64_t count = args[2].type == TV_NONE ? -1 : tmpl_arg_int(rt, args[2], -1);
    return tmpl_str_replace(rt, s.u.s, from.u.s, to.u.s, count);
}

FILTER(f_default) {
    UNUSED;
    bool use = self.type == TV_UNDEF || (tmpl_arg_bool(rt, args[1], false) && !tv_truth(rt, self));
    if (!use) return self;
    return args[0].type == TV_MISSING ? tv_str_const(rt, "") : args[0];
}

FILTER(f_center) {
    UNUSED;
    return like(self, tmpl_str_center(rt, tmpl_to_str(rt, self).u.s, tmpl_arg_int(rt, args[0], 80), tv_str_const(rt, " ").u.s, 'c'));
}

/* ---- title: Jinja's own idea of a word ---- */

static bool begins_word(uint32_t code) {
    return uni_is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

FILTER(f_title) {
    UNUSED;
    const struct tstr *s = tmpl_to_str(rt, self).u.s;
    struct tbuf *b = tbuf_new(rt);
    rt_charge_chars(rt, s->n);
    for (size_t i = 0, end; i < s->n; i = end) {
        uint32_t code;
        size_t first = utf8_decode(s->p + i, s->n - i, &code);
        end = i + first;
        for (size_t n; end < s->n && !begins_word(code); end += n) n = utf8_decode(s->p + end, s->n - end, &code);
        tbuf_put_str(rt, b, tmpl_str_map_case(rt, tv_sub(rt, s, i, first).u.s, 'u').u.s);
        tbuf_put_str(rt, b, tmpl_str_map_case(rt, tv_sub(rt, s, i + first, end - i - first).u.s, 'l').u.s);
    }
    return like(self, tbuf_value(rt, b));
}

/* ---- numbers ---- */

static struct tv float_to_int(struct rt *rt, double f, struct tv absent, bool caught) {
    if (isnan(f)) return absent;
    if (isinf(f)) {
        if (caught) return absent;
        rt_raise(rt, "OverflowError", "cannot convert float infinity to integer");
    }
    if (!(fabs(f) < 9223372036854775808.0)) rt_raise(rt, "OverflowError", "the result needs an integer of more than 64 bits");
    return tv_int((int64_t)f);
}

FILTER(f_int) {
    UNUSED;
    struct tv absent = args[0].type == TV_MISSING ? tv_int(0) : args[0];
    if (self.type == TV_UNDEF) tv_undef_raise(rt, self);
    if (tv_is_int(self)) return tv_int(tv_as_int(self));
    if (self.type == TV_BIG) return self;
    if (self.type == TV_FLOAT) return float_to_int(rt, self.u.f, absent, false);
    if (self.type != TV_STR) return absent;
    int64_t base = tmpl_arg_int(rt, args[1], 10), value;
    bool overflow, base_ok = base == 0 || (base >= 2 && base <= 36);
    if (base_ok && tmpl_number_parse_int(tv_str(self), (int)base, &value, &overflow)) {
        if (overflow) rt_raise(rt, "OverflowError", "the result needs an integer of more than 64 bits");
        return tv_int(value);
    }
    double f;
    return tmpl_number_parse_float(tv_str(self), &f) ? float_to_int(rt, f, absent, true) : absent;
}

FILTER(f_float) {
    UNUSED;
    double f;
    if (self.type == TV_UNDEF) tv_undef_raise(rt, self);
    if (tv_is_num(self)) return tv_float(tv_as_float(self));
    if ((self.type == TV_STR || self.type == TV_BIG) && tmpl_number_parse_float(tv_str(self), &f)) return tv_float(f);
    return args[0].type == TV_MISSING ? tv_float(0) : args[0];
}

FILTER(f_abs) {
    UNUSED;
    if (self.type == TV_UNDEF) rt_raise(rt, "TypeError", "bad operand type for abs(): 'Undefined'");
    if (self.type == TV_FLOAT) return tv_float(fabs(self.u.f));
    if (!tv_is_int(self)) rt_raise(rt, "TypeError", "bad operand type for abs(): '%s'", tv_type_name(self));
    return tv_as_int(self) < 0 ? tmpl_op_negate(rt, self) : tv_int(tv_as_int(self));
}

static double round_float(struct rt *rt, double f, int64_t digits) {
    if (!isfinite(f) || digits > 323) return f;
    if (digits < -308) return copysign(0.0, f);
    char text[720]; /* printf rounds the exact decimal value half to even, as Python does */
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    snprintf(text, sizeof text, "%.*e", 17, f);
    int64_t kept = strtol(strchr(text, 'e') + 1, NULL, 10) + digits; /* digits behind the first */
    if (kept < 0) {                                                  /* nothing, or one of the place before the first digit */
        snprintf(text, sizeof text, "1e%d", (int)-digits);           /* read, not pow(): that of Windows misses by some units */
        double scale = strtod(text, NULL);
        return kept == -1 && fabs(f) > scale / 2 ? copysign(scale, f) : copysign(0.0, f);
    }
    snprintf(text, sizeof text, "%.*e", (int)kept, f);
    double rounded = strtod(text, NULL);
    if (isinf(rounded)) rt_raise(rt, "OverflowError", "rounded value too large to represent");
    return rounded;
}

static int64_t round_int(struct rt *rt, int64_t i, int64_t digits) {
    if (digits >= 0) return i;
    if (digits < -18) return 0;
    int64_t scale = 1;
    for (int64_t k = 0; k < -digits; k++) scale *= 10;
    struct tv down = tmpl_op_binary(rt, TK_FLOORDIV, tv_int(i), tv_int(scale));
    int64_t q = down.u.i, rest = i - q * scale;
    if (rest * 2 > scale || (rest * 2 == scale && q % 2 != 0)) q++;
    return tmpl_op_binary(rt, TK_MUL, tv_int(q), tv_int(scale)).u.i;
}

FILTER(f_round) {
    UNUSED;
    struct str method = args[1].type == TV_MISSING ? STR("common") : args[1].type == TV_STR ? tv_str(args[1]) : STR("");
    int64_t digits = tmpl_arg_int(rt, args[0], 0);
    bool up = str_is(method, "ceil");
    if (!up && !str_is(method, "common") && !str_is(method, "floor"))
        rt_raise(rt, "FilterArgumentError", "method must be common, ceil or floor");
    if (self.type == TV_UNDEF) {
        if (str_is(method, "common")) rt_raise(rt, "TypeError", "type Undefined doesn't define __round__ method");
        tv_undef_raise(rt, self);
    }
    if (!tv_is_num(self)) rt_raise(rt, "TypeError", "type %s doesn't define __round__ method", tv_type_name(self));
    if (str_is(method, "common"))
        return self.type == TV_FLOAT ? tv_float(round_float(rt, self.u.f, digits)) : tv_int(round_int(rt, tv_as_int(self), digits));
    struct tv scale = tmpl_op_binary(rt, TK_POW, tv_int(10), tv_int(digits)), scaled = tmpl_op_binary(rt, TK_MUL, self, scale);
    double whole = up ? ceil(tv_as_float(scaled)) : floor(tv_as_float(scaled));
    return tv_float((whole == 0 ? 0 : whole) / tv_as_float(scale)); /* there a whole number, which has no negative zero */
}

/* ---- layout ---- */

FILTER(f_indent) {
    UNUSED;
    struct tv indent = args[0];
    if (indent.type != TV_STR) {
        struct tbuf *b = tbuf_new(rt);
        int64_t width = tmpl_arg_int(rt, indent, 4);
        tbuf_put_repeat(rt, b, tv_str_const(rt, " ").u.s, width > 0 ? (size_t)width : 0);
        indent = tbuf_value(rt, b);
    }
    bool first = tmpl_arg_bool(rt, args[1], false), blank = tmpl_arg_bool(rt, args[2], false);
    if (self.type == TV_UNDEF) tv_undef_raise(rt, self);
    if (self.type != TV_STR) rt_raise(rt, "TypeError", "unsupported operand type(s) for +=: '%s' and 'str'", tv_type_name(self));
    struct tv newline = tv_str_const(rt, "\n"), lines = tmpl_str_split_lines(rt, tv_concat(rt, self.u.s, newline.u.s).u.s, false);
    struct tbuf *b = tbuf_new(rt);
    if (first) tbuf_put_str(rt, b, indent.u.s);
    for (size_t i = 0; i < lines.u.list->n; i++) {
        const struct tstr *line = lines.u.list->items[i].u.s;
        if (i) tbuf_puts(rt, b, "\n");
        if (i && (blank || line->n)) tbuf_put_str(rt, b, indent.u.s);
        tbuf_put_str(rt, b, line);
    }
    return like(self, tbuf_value(rt, b));
}

FILTER(f_truncate) {
    UNUSED;
    int64_t length = tmpl_arg_int(rt, args[0], 255), leeway = args[3].type == TV_NONE ? 5 : tmpl_arg_int(rt, args[3], 5);
    bool kill_words = tmpl_arg_bool(rt, args[1], false);
    const struct tstr *end = args[2].type == TV_MISSING ? tv_str_const(rt, "...").u.s : tmpl_need_str(rt, args[2], "end");
    int64_t end_chars = (int64_t)tstr_chars(rt, end);
    if (length < end_chars) rt_raise(rt, "AssertionError", "expected length >= %lld, got %lld", (long long)end_chars, (long long)length);
    if (leeway < 0) rt_raise(rt, "AssertionError", "expected leeway >= 0, got %lld", (long long)leeway);
    if (self.type != TV_STR) {
        if (tv_len(rt, self) - leeway <= length) return self;
        rt_raise(rt, "TypeError", "can only truncate str, not %s", tv_type_name(self));
    }
    if ((int64_t)tstr_chars(rt, self.u.s) - leeway <= length) return self;
    struct tv cut = tv_sub(rt, self.u.s, 0, tstr_offset(rt, self.u.s, (size_t)(length - end_chars)));
    if (!kill_words) {
        size_t at = cut.u.s->n;
        while (at && cut.u.s->p[at - 1] != ' ') at--;
        if (at) cut = tv_sub(rt, cut.u.s, 0, at - 1);
    }
    return like(self, tv_concat(rt, cut.u.s, end));
}

FILTER(f_wordcount) {
    UNUSED;
    const struct tstr *s = tmpl_to_str(rt, self).u.s;
    int64_t n = 0;
    bool inside = false;
    rt_charge_chars(rt, s->n);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        i += utf8_decode(s->p + i, s->n - i, &code);
        bool word = uni_is_word(code);
        n += word && !inside;
        inside = word;
    }
    return tv_int(n);
}

FILTER(f_format) {
    UNUSED;
    if (call->n_pos && call->n_kw) rt_raise(rt, "FilterArgumentError", "can't handle positional and keyword arguments at the same time");
    struct tv given;
    if (call->n_kw) {
        struct tdict *d = tdict_new(rt);
        for (int i = 0; i < call->n_kw; i++) tdict_set(rt, d, tv_str_of(rt, call->kw_names[i], false), call->kw[i]);
        given = (struct tv){TV_DICT, {.dict = d}};
    } else {
        given = tv_list_new(rt, TV_TUPLE, (size_t)call->n_pos);
        for (int i = 0; i < call->n_pos; i++) tv_list_push(rt, given.u.list, call->pos[i]);
    }
    return tmpl_format_percent(rt, tmpl_to_str(rt, self).u.s, given);
}

FILTER(f_attr) {
    UNUSED;
    const struct tstr *name = tmpl_need_str(rt, args[0], "attribute name");
    if (self.type == TV_UNDEF && !str_starts(tstr_str(name), STR("__"))) tv_undef_raise(rt, self);
    struct tv v = tmpl_op_attr_only(rt, self, name);
    return v.type == TV_MISSING ? tv_undef_attr(rt, self, args[0]) : v;
}

const struct builtin tmpl_filters_text[] = {
    {"trim", f_trim, "chars?"},
    {"tojson", f_tojson, "ensure_ascii? indent? separators? sort_keys?"},
    {"default", f_default, "default_value? boolean?"},
    {"d", f_default, "default_value? boolean?"},
    {"string", f_string, ""},
    {"upper", f_upper, ""},
    {"lower", f_lower, ""},
    {"replace", f_replace, "old new count?"},
    {"capitalize", f_capitalize, ""},
    {"title", f_title, ""},
    {"center", f_center, "width?"},
    {"indent", f_indent, "width? first? blank?"},
    {"truncate", f_truncate, "length? killwords? end? leeway?"},
    {"wordcount", f_wordcount, ""},
    {"format", f_format, "*"},
    {"int", f_int, "default? base?"},
    {"float", f_float, "default?"},
    {"abs", f_abs, ""},
    {"round", f_round, "precision? method?"},
    {"attr", f_attr, "name"},
    {NULL, NULL, NULL},
};
