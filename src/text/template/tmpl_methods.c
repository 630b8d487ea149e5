/* Methods of the other types, and the questions that str answers (isalpha and its kin). */
#include "text/template/tmpl_rt.h"
#include "text/template/tmpl_unicode.h"

#include <math.h>

#define METHOD(name) static struct tv name(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call)
#define UNUSED (void)rt, (void)self, (void)args, (void)call

/* ---- str.is... ---- */

static struct tv all_are(struct rt *rt, const struct tstr *s, bool (*is)(uint32_t), bool if_empty) {
    rt_charge_chars(rt, s->n);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        i += utf8_decode(s->p + i, s->n - i, &code);
        if (!is(code)) return tv_bool(false);
    }
    return tv_bool(s->n ? true : if_empty);
}

static bool is_alnum(uint32_t c) {
    return uni_is_alpha(c) || uni_is_decimal(c) || uni_is_digit(c) || uni_is_numeric(c);
}
static bool is_ascii(uint32_t c) {
    return c < 0x80;
}

METHOD(m_isalnum) {
    UNUSED;
    return all_are(rt, self.u.s, is_alnum, false);
}
METHOD(m_isalpha) {
    UNUSED;
    return all_are(rt, self.u.s, uni_is_alpha, false);
}
METHOD(m_isascii) {
    UNUSED;
    return all_are(rt, self.u.s, is_ascii, true);
}
METHOD(m_isdecimal) {
    UNUSED;
    return all_are(rt, self.u.s, uni_is_decimal, false);
}
METHOD(m_isdigit) {
    UNUSED;
    return all_are(rt, self.u.s, uni_is_digit, false);
}
METHOD(m_isnumeric) {
    UNUSED;
    return all_are(rt, self.u.s, uni_is_numeric, false);
}
METHOD(m_isspace) {
    UNUSED;
    return all_are(rt, self.u.s, uni_is_space, false);
}
METHOD(m_isprintable) {
    UNUSED;
    return all_are(rt, self.u.s, uni_is_printable, true);
}

METHOD(m_isidentifier) {
    UNUSED;
    const struct tstr *s = self.u.s;
    uint32_t first = 0;
    if (s->n) utf8_decode(s->p, s->n, &first);
    if (!s->n || uni_is_numeric(first)) return tv_bool(false);
    return all_are(rt, s, uni_is_word, false);
}

/* No letter of the other case, and at least one of this. */
static struct tv one_case(struct rt *rt, const struct tstr *s, bool (*is)(uint32_t)) {
    bool any = false;
    rt_charge_chars(rt, s->n);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        i += utf8_decode(s->p + i, s->n - i, &code);
        if (is(code)) any = true;
        else if (uni_is_cased(code)) return tv_bool(false);
    }
    return tv_bool(any);
}

METHOD(m_islower) {
    UNUSED;
    return one_case(rt, self.u.s, uni_is_lower);
}
METHOD(m_isupper) {
    UNUSED;
    return one_case(rt, self.u.s, uni_is_upper);
}

METHOD(m_istitle) {
    UNUSED;
    const struct tstr *s = self.u.s;
    bool in_word = false, any = false;
    rt_charge_chars(rt, s->n);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        i += utf8_decode(s->p + i, s->n - i, &code);
        bool capital = uni_is_upper(code) || uni_is_title(code);
        if (capital && in_word) return tv_bool(false);
        if (uni_is_lower(code) && !in_word) return tv_bool(false);
        in_word = uni_is_cased(code);
        any |= in_word;
    }
    return tv_bool(any);
}

const struct builtin tmpl_methods_str_is[] = {
    {"isalnum", m_isalnum, ""},
    {"isalpha", m_isalpha, ""},
    {"isascii", m_isascii, ""},
    {"isdecimal", m_isdecimal, ""},
    {"isdigit", m_isdigit, ""},
    {"isidentifier", m_isidentifier, ""},
    {"islower", m_islower, ""},
    {"isnumeric", m_isnumeric, ""},
    {"isprintable", m_isprintable, ""},
    {"isspace", m_isspace, ""},
    {"istitle", m_istitle, ""},
    {"isupper", m_isupper, ""},
    {NULL, NULL, NULL},
};

/* ---- list, tuple, range ---- */

METHOD(m_seq_count) {
    UNUSED;
    struct titer *it = tv_iter(rt, self);
    struct tv item;
    int64_t n = 0;
    while (titer_next(rt, it, &item)) n += tv_eq(rt, item, args[0]);
    return tv_int(n);
}

METHOD(m_seq_index) {
    UNUSED;
    int64_t n = tv_len(rt, self), from = tmpl_arg_int(rt, args[1], 0), to = tmpl_arg_int(rt, args[2], n);
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to = to < -n ? 0 : to + n;
    for (int64_t i = from; i < to && i < n; i++) {
        rt_charge(rt, 1);
        struct tv item = self.type == TV_RANGE ? tv_int(trange_at(self.u.range, i)) : self.u.list->items[i];
        if (tv_eq(rt, item, args[0])) return tv_int(i);
    }
    if (self.type == TV_TUPLE) rt_raise(rt, "ValueError", "tuple.index(x): x not in tuple");
    rt_raise(rt, "ValueError", "%.*s is not in %s", STR_ARG(tv_str(tmpl_to_repr(rt, args[0]))), self.type == TV_RANGE ? "range" : "list");
}

METHOD(m_list_copy) {
    UNUSED;
    return tv_to_list(rt, self, TV_LIST);
}

const struct builtin tmpl_methods_list[] = {
    {"count", m_seq_count, "/value"},
    {"index", m_seq_index, "/value start? stop?"},
    {"copy", m_list_copy, ""},
    {NULL, NULL, NULL},
};
const struct builtin tmpl_methods_tuple[] = {
    {"count", m_seq_count, "/value"},
    {"index", m_seq_index, "/value start? stop?"},
    {NULL, NULL, NULL},
};
const struct builtin tmpl_methods_range[] = {
    {"count", m_seq_count, "/value"},
    {"index", m_seq_index, "/value"},
    {NULL, NULL, NULL},
};

/* ---- dict ---- */

static struct tv view(struct rt *rt, struct tv self, enum tview_kind kind) {
    struct tview *v = rt_new(rt, struct tview, 1);
    v->dict = self.u.dict;
    v->kind = kind;
    return (struct tv){TV_VIEW, {.view = v}};
}

METHOD(m_keys) {
    UNUSED;
    return view(rt, self, VIEW_KEYS);
}
METHOD(m_values) {
    UNUSED;
    return view(rt, self, VIEW_VALUES);
}
METHOD(m_items) {
    UNUSED;
    return view(rt, self, VIEW_ITEMS);
}

METHOD(m_get) {
    UNUSED;
    struct tv *v = tdict_get(rt, self.u.dict, args[0]);
    if (v) return *v;
    return args[1].type == TV_MISSING ? TV_NONE_V : args[1];
}

METHOD(m_dict_copy) {
    UNUSED;
    struct tdict *d = tdict_new(rt);
    for (size_t i = 0; i < self.u.dict->n; i++) tdict_set(rt, d, self.u.dict->keys[i], self.u.dict->values[i]);
    return (struct tv){TV_DICT, {.dict = d}};
}

METHOD(m_fromkeys) {
    UNUSED;
    struct tdict *d = tdict_new(rt);
    struct titer *it = tv_iter(rt, args[0]);
    struct tv key;
    while (titer_next(rt, it, &key)) tdict_set(rt, d, key, args[1].type == TV_MISSING ? TV_NONE_V : args[1]);
    return (struct tv){TV_DICT, {.dict = d}};
}

const struct builtin tmpl_methods_dict[] = {
    {"get", m_get, "/key default?"},
    {"items", m_items, ""},
    {"keys", m_keys, ""},
    {"values", m_values, ""},
    {"copy", m_dict_copy, ""},
    {"fromkeys", m_fromkeys, "/iterable value?"},
    {NULL, NULL, NULL},
};

/* ---- numbers ---- */

METHOD(m_bit_length) {
    UNUSED;
    int64_t i = tv_as_int(self), n = 0;
    for (uint64_t u = i < 0 ? (uint64_t)0 - (uint64_t)i : (uint64_t)i; u; u >>= 1) n++;
    return tv_int(n);
}

METHOD(m_conjugate) {
    UNUSED;
    return self.type == TV_FLOAT ? self : tv_int(tv_as_int(self));
}
METHOD(m_is_integer) {
    UNUSED;
    return tv_bool(isfinite(self.u.f) && floor(self.u.f) == self.u.f);
}

const struct builtin tmpl_methods_int[] = {
    {"bit_length", m_bit_length, ""},
    {"conjugate", m_conjugate, ""},
    {NULL, NULL, NULL},
};
const struct builtin tmpl_methods_float[] = {
    {"is_integer", m_is_integer, ""},
    {"conjugate", m_conjugate, ""},
    {NULL, NULL, NULL},
};
