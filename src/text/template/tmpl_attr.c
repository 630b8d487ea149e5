/* Attributes, items and slices, with the sandbox's rules: names that Python's objects keep private and methods that would
 * change a list or dict give an undefined value whose use is a SecurityError. There is nothing behind an attribute but
 * the tables of methods named here. */
#include "text/template/tmpl_rt.h"

/* ---- what attributes there are ---- */

static const struct {
    enum tv_type type;
    const struct builtin *tables[2];
    const char *mutators; /* blank-separated */
} types[] = {
    {TV_STR, {tmpl_methods_str, tmpl_methods_str_is}, ""},
    {TV_LIST, {tmpl_methods_list, NULL}, " append clear pop reverse insert sort extend remove "},
    {TV_TUPLE, {tmpl_methods_tuple, NULL}, ""},
    {TV_DICT, {tmpl_methods_dict, NULL}, " clear pop popitem setdefault update "},
    {TV_RANGE, {tmpl_methods_range, NULL}, ""},
    {TV_INT, {tmpl_methods_int, NULL}, ""},
    {TV_BOOL, {tmpl_methods_int, NULL}, ""},
    {TV_FLOAT, {tmpl_methods_float, NULL}, ""},
    {TV_LOOP, {tmpl_methods_loop, NULL}, ""},
    {TV_CYCLER, {tmpl_methods_cycler, NULL}, ""},
};

static bool in_words(const char *words, struct str word) {
    char padded[64];
    if (word.n + 3 > sizeof padded || str_find_char(word, ' ', 0) != STR_NONE) return false;
    padded[0] = ' ';
    memcpy(padded + 1, word.p, word.n);
    padded[word.n + 1] = ' ';
    return str_find(str_of(words), str_n(padded, word.n + 2), 0) != STR_NONE;
}

/* What every Python object has; and the containers besides. */
static bool is_internal(struct tv obj, struct str name) {
    static const char any[] =
        " __class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getstate__ __gt__ __hash__ __init__"
        " __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__ __sizeof__ __str__"
        " __subclasshook__ ";
    static const char container[] =
        " __contains__ __getitem__ __iter__ __len__ __add__ __mul__ __rmul__ __mod__ __rmod__ __class_getitem__ __delitem__ __setitem__ __iadd__ __imul__ __reversed__ __ior__ __or__ __ror__ __getnewargs__ ";
    static const char object[] =
        " __dict__ __module__ __weakref__ __call__ __globals__ __code__ __closure__ __defaults__ __func__ __self__ __name__ __qualname__ ";
    if (!str_starts(name, STR("__"))) return false;
    if (in_words(any, name)) return true;
    bool data = obj.type <= TV_VIEW;
    return in_words(data ? container : object, name);
}

static const struct builtin *find_method(struct tv obj, struct str name, bool *out_unsafe) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].type != obj.type) continue;
        *out_unsafe = in_words(types[i].mutators, name);
        for (int t = 0; t < 2 && types[i].tables[t]; t++) {
            const struct builtin *f = tmpl_builtin_lookup(types[i].tables[t], name);
            if (f) return f;
        }
    }
    return NULL;
}

static struct tv macro_attr(struct rt *rt, const struct tmacro *m, struct str name) {
    const struct tparams *params = m->node->params;
    if (str_is(name, "name")) return tv_str_of(rt, m->name, false);
    if (str_is(name, "catch_kwargs")) return tv_bool(params->uses_kwargs);
    if (str_is(name, "catch_varargs")) return tv_bool(params->uses_varargs);
    if (str_is(name, "caller")) return tv_bool(params->uses_caller);
    if (!str_is(name, "arguments")) return TV_MISSING_V;
    struct tv list = tv_list_new(rt, TV_TUPLE, (size_t)params->n);
    for (int i = 0; i < params->n; i++) tv_list_push(rt, list.u.list, tv_str_of(rt, rt->t->names[params->names[i]], false));
    return list;
}

/* Attributes that are values, not methods. */
static struct tv plain_attr(struct rt *rt, struct tv obj, struct str name) {
    switch (obj.type) {
    case TV_LOOP: return tmpl_loop_attr(rt, obj.u.loop, name);
    case TV_MACRO: return macro_attr(rt, obj.u.macro, name);
    case TV_NAMESPACE: {
        struct tv *v = tdict_get_str(obj.u.dict, name);
        return v ? *v : TV_MISSING_V;
    }
    case TV_TUPLE:
        if (!obj.u.list->is_group) return TV_MISSING_V;
        if (str_is(name, "grouper")) return obj.u.list->items[0];
        return str_is(name, "list") ? obj.u.list->items[1] : TV_MISSING_V;
    case TV_BOOL:
    case TV_INT:
        if (str_is(name, "real") || str_is(name, "numerator")) return tv_int(tv_as_int(obj));
        if (str_is(name, "imag")) return tv_int(0);
        return str_is(name, "denominator") ? tv_int(1) : TV_MISSING_V;
    case TV_FLOAT:
        if (str_is(name, "real")) return obj;
        return str_is(name, "imag") ? tv_float(0) : TV_MISSING_V;
    case TV_RANGE:
        if (str_is(name, "start")) return tv_int(obj.u.range->start);
        if (str_is(name, "stop")) return tv_int(obj.u.range->stop);
        return str_is(name, "step") ? tv_int(obj.u.range->step) : TV_MISSING_V;
    case TV_CYCLER:
        if (!str_is(name, "current") || !obj.u.cycler->items->n) return TV_MISSING_V;
        return obj.u.cycler->items->items[obj.u.cycler->position];
    default: return TV_MISSING_V;
    }
}

struct tv tmpl_op_attr_only(struct rt *rt, struct tv obj, const struct tstr *name) {
    struct str n = tstr_str(name);
    if (obj.type == TV_UNDEF && !(str_starts(n, STR("__")) && str_ends(n, STR("__")))) tv_undef_raise(rt, obj);
    rt_charge(rt, 4); /* the tables are searched from the front */
    if (is_internal(obj, n)) return tv_undef_unsafe(rt, obj, n);
    struct tv v = plain_attr(rt, obj, n);
    if (v.type != TV_MISSING) return str_starts(n, STR("_")) ? tv_undef_unsafe(rt, obj, n) : v;
    bool unsafe = false;
    const struct builtin *f = find_method(obj, n, &unsafe);
    if (unsafe) return tv_undef_unsafe(rt, obj, n);
    if (obj.type == TV_FUNC && strcmp(obj.u.func->name, "dict") == 0 && str_is(n, "fromkeys"))
        f = tmpl_builtin_lookup(tmpl_methods_dict, n);
    if (!f) return TV_MISSING_V;
    struct tmethod *m = rt_new(rt, struct tmethod, 1);
    m->self = obj;
    m->func = f;
    return (struct tv){TV_METHOD, {.method = m}};
}

/* ---- items ---- */

/* obj[key], or TV_MISSING where Python raises TypeError or LookupError. */
static struct tv item(struct rt *rt, struct tv obj, struct tv key) {
    if (obj.type == TV_UNDEF) tv_undef_raise(rt, obj);
    if (obj.type == TV_DICT) {
        if (key.type == TV_LIST || key.type == TV_DICT) return TV_MISSING_V;
        struct tv *v = key.type == TV_STR ? tdict_get_str(obj.u.dict, tv_str(key)) : tdict_get(rt, obj.u.dict, key);
        return v ? *v : TV_MISSING_V;
    }
    if (obj.type == TV_SELF && key.type == TV_STR) {
        for (int i = 0; i < rt->t->n_blocks; i++)
            if (str_eq(rt->t->names[rt->t->blocks[i]->name], tv_str(key))) return (struct tv){TV_BLOCK, {.block = rt->t->blocks[i]}};
        return TV_MISSING_V;
    }
    if (!tv_is_int(key) || !(tv_is_seq(obj) || obj.type == TV_STR || obj.type == TV_RANGE)) return TV_MISSING_V;
    int64_t n = tv_len(rt, obj), i = tv_as_int(key);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return TV_MISSING_V;
    if (tv_is_seq(obj)) return obj.u.list->items[i];
    if (obj.type == TV_RANGE) return tv_int(trange_at(obj.u.range, i));
    size_t from = tstr_offset(rt, obj.u.s, (size_t)i);
    uint32_t code;
    return tv_sub(rt, obj.u.s, from, utf8_decode(obj.u.s->p + from, obj.u.s->n - from, &code));
}

struct tv tmpl_op_getattr(struct rt *rt, struct tv obj, const struct tstr *name) {
    struct tv v = tmpl_op_attr_only(rt, obj, name);
    if (v.type != TV_MISSING) return v;
    struct tv key = {TV_STR, {.s = (struct tstr *)(uintptr_t)name}};
    v = item(rt, obj, key);
    return v.type != TV_MISSING ? v : tv_undef_attr(rt, obj, key);
}

struct tv tmpl_op_getitem(struct rt *rt, struct tv obj, struct tv key) {
    struct tv v = item(rt, obj, key);
    if (v.type == TV_MISSING && key.type == TV_STR) v = tmpl_op_attr_only(rt, obj, key.u.s);
    return v.type != TV_MISSING ? v : tv_undef_attr(rt, obj, key);
}

/* ---- slices ---- */

static int64_t clamp_index(struct rt *rt, struct tv v, int64_t n, int64_t absent, int64_t low, int64_t high) {
    if (v.type == TV_NONE || v.type == TV_MISSING) return absent;
    if (v.type == TV_UNDEF || !tv_is_int(v))
        rt_raise(rt, "TypeError", "slice indices must be integers or None or have an __index__ method");
    int64_t i = tv_as_int(v);
    if (i < 0) i = i < -n ? -1 - n : i + n;
    return i < low ? low : i > high ? high : i;
}

struct bounds {
    int64_t start, end, step, count;
};

static struct bounds slice_bounds(struct rt *rt, int64_t n, struct tv start, struct tv stop, struct tv step_v) {
    struct bounds b = {.step = 1};
    if (step_v.type != TV_NONE && step_v.type != TV_MISSING) {
        if (!tv_is_int(step_v)) rt_raise(rt, "TypeError", "slice indices must be integers or None or have an __index__ method");
        b.step = tv_as_int(step_v);
    }
    if (b.step == 0) rt_raise(rt, "ValueError", "slice step cannot be zero");
    if (b.step < -INT32_MAX) b.step = -INT32_MAX;
    if (b.step > INT32_MAX) b.step = INT32_MAX;
    bool up = b.step > 0;
    int64_t low = up ? 0 : -1, high = up ? n : n - 1;
    b.start = clamp_index(rt, start, n, up ? 0 : n - 1, low, high);
    int64_t end = b.end = clamp_index(rt, stop, n, up ? n : -1, low, high);
    if (up && end > b.start) b.count = (end - b.start + b.step - 1) / b.step;
    if (!up && end < b.start) b.count = (b.start - end - b.step - 1) / -b.step;
    return b;
}

static struct tv slice_string(struct rt *rt, const struct tstr *s, struct bounds b) {
    if (b.step == 1) {
        size_t from = tstr_offset(rt, s, (size_t)b.start), to = tstr_offset(rt, s, (size_t)(b.start + b.count));
        return tv_sub(rt, s, from, to - from);
    }
    bool ascii = tstr_chars(rt, s) == s->n;
    size_t *offsets = NULL, k = 0;
    if (!ascii) {
        offsets = rt_new(rt, size_t, s->n_chars + 1);
        rt_charge_bytes(rt, s->n);
        for (size_t i = 0; i < s->n; i++)
            if (((unsigned char)s->p[i] & 0xC0) != 0x80) offsets[k++] = i;
        offsets[k] = s->n;
    }
    struct tbuf *out = tbuf_new(rt);
    rt_charge(rt, (size_t)b.count / 4);
    for (int64_t i = 0; i < b.count; i++) {
        size_t c = (size_t)(b.start + i * b.step);
        size_t from = ascii ? c : offsets[c], to = ascii ? c + 1 : offsets[c + 1];
        tbuf_put_sub(rt, out, s, from, to - from);
    }
    struct tv v = tbuf_value(rt, out);
    v.u.s->markup = s->markup;
    return v;
}

static struct tv slice_list(struct rt *rt, struct tv list, struct bounds b) {
    struct tv out = tv_list_new(rt, list.type, (size_t)b.count);
    rt_charge(rt, (size_t)b.count / 8);
    for (int64_t i = 0; i < b.count; i++) out.u.list->items[i] = list.u.list->items[b.start + i * b.step];
    out.u.list->n = (size_t)b.count;
    return out;
}

static struct tv slice_range(struct rt *rt, const struct trange *r, struct bounds b) {
    struct trange *out = rt_new(rt, struct trange, 1);
    out->start = trange_at(r, b.start);
    out->step = (int64_t)((uint64_t)r->step * (uint64_t)b.step);
    out->stop = trange_at(r, b.end);
    out->n = b.count;
    return (struct tv){TV_RANGE, {.range = out}};
}

struct tv tmpl_op_slice(struct rt *rt, struct tv obj, struct tv start, struct tv stop, struct tv step) {
    if (obj.type == TV_UNDEF) tv_undef_raise(rt, obj);
    if (obj.type == TV_DICT) rt_raise(rt, "TypeError", "unhashable type: 'slice'");
    if (!tv_is_seq(obj) && obj.type != TV_STR && obj.type != TV_RANGE)
        rt_raise(rt, "TypeError", "'%s' object is not subscriptable", tv_type_name(obj));
    struct bounds b = slice_bounds(rt, tv_len(rt, obj), start, stop, step);
    if (obj.type == TV_STR) return slice_string(rt, obj.u.s, b);
    return obj.type == TV_RANGE ? slice_range(rt, obj.u.range, b) : slice_list(rt, obj, b);
}

/* ---- paths, as filters take them: "a.b.0", or an index ---- */

static bool all_digits(struct str s) {
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9') return false;
    return s.n > 0 && s.n < 18;
}

struct tv tmpl_op_path(struct rt *rt, struct tv obj, struct tv path, struct tv missing) {
    bool has_default = missing.type != TV_MISSING && missing.type != TV_NONE;
    if (path.type == TV_NONE || path.type == TV_MISSING) return obj;
    if (path.type != TV_STR) {
        obj = tmpl_op_getitem(rt, obj, path);
        return has_default && obj.type == TV_UNDEF ? missing : obj;
    }
    for (size_t from = 0; from <= path.u.s->n;) {
        size_t end = str_find_char(tv_str(path), '.', from);
        if (end == STR_NONE) end = path.u.s->n;
        struct tv part = tv_sub(rt, path.u.s, from, end - from);
        int64_t index;
        if (all_digits(tv_str(part)) && str_to_int64(tv_str(part), &index)) part = tv_int(index);
        obj = tmpl_op_getitem(rt, obj, part);
        if (has_default && obj.type == TV_UNDEF) obj = missing;
        from = end + 1;
    }
    return obj;
}
