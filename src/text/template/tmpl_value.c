/* Lists, dicts, undefined values; truth, equality, order and membership as in Python. */
#include "text/template/tmpl_rt.h"

#include "base/hash.h"

#include <math.h>

/* ---- lists ---- */

struct tv tv_list_new(struct rt *rt, enum tv_type type, size_t capacity) {
    struct tlist *l = rt_new(rt, struct tlist, 1);
    l->items = rt_new(rt, struct tv, capacity);
    l->capacity = capacity;
    return (struct tv){type, {.list = l}};
}

void tv_list_push(struct rt *rt, struct tlist *l, struct tv item) {
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? l->capacity * 2 : 4;
        struct tv *items = rt_new(rt, struct tv, capacity);
        if (l->n) memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = item;
}

/* a + b. When a ends where its array's taken part ends, b is written behind it and the array shared, as with strings. */
struct tv tv_list_concat(struct rt *rt, struct tv a, struct tv b) {
    struct tlist *la = a.u.list, *lb = b.u.list, *owner = la->owner;
    bool grows = owner && owner->items == la->items && owner->n == la->n && lb->n <= owner->capacity - owner->n;
    rt_charge(rt, lb->n + (grows ? 0 : la->n / 8));
    struct tlist *l = rt_new(rt, struct tlist, 1);
    if (!grows) {
        owner = rt_new(rt, struct tlist, 1);
        owner->capacity = la->n > 8 ? 2 * la->n + lb->n : la->n + lb->n;
        owner->items = rt_new(rt, struct tv, owner->capacity);
        if (la->n) memcpy(owner->items, la->items, la->n * sizeof *owner->items);
        owner->n = la->n;
    }
    if (lb->n) memcpy(owner->items + owner->n, lb->items, lb->n * sizeof *owner->items);
    owner->n += lb->n;
    l->items = owner->items;
    l->n = l->capacity = owner->n;
    l->owner = owner;
    return (struct tv){a.type, {.list = l}};
}

struct tv tv_pair(struct rt *rt, struct tv a, struct tv b) {
    struct tv pair = tv_list_new(rt, TV_TUPLE, 2);
    tv_list_push(rt, pair.u.list, a);
    tv_list_push(rt, pair.u.list, b);
    return pair;
}

/* ---- dicts ---- */

enum { DICT_LINEAR = 8 };

/* Equal values have equal hashes: 1, 1.0 and true are one key. */
static uint64_t hash_value(struct rt *rt, struct tv v) {
    switch (v.type) {
    case TV_BOOL:
    case TV_INT: return hash_mix((uint64_t)tv_as_int(v));
    case TV_FLOAT:
        if (v.u.f >= -9.2e18 && v.u.f <= 9.2e18 && floor(v.u.f) == v.u.f) return hash_mix((uint64_t)(int64_t)v.u.f);
        return hash_bytes(&v.u.f, sizeof v.u.f, 1);
    case TV_STR:
    case TV_BIG: rt_charge(rt, v.u.s->n / 256); return hash_bytes(v.u.s->p, v.u.s->n, 2);
    case TV_TUPLE: {
        uint64_t h = 3;
        rt_enter(rt);
        for (size_t i = 0; i < v.u.list->n; i++) h = hash_pair(h, hash_value(rt, v.u.list->items[i]));
        rt_leave(rt);
        return h;
    }
    case TV_LIST:
    case TV_DICT: rt_raise(rt, "TypeError", "unhashable type: '%s'", tv_type_name(v));
    default: return (uint64_t)v.type;
    }
}

struct tdict *tdict_new(struct rt *rt) {
    return rt_new(rt, struct tdict, 1);
}

static void index_insert(struct tdict *d, uint64_t hash, size_t i) {
    size_t at = hash & (d->n_slots - 1);
    while (d->slots[at]) at = (at + 1) & (d->n_slots - 1);
    d->slots[at] = (uint32_t)(i + 1);
}

static void reindex(struct rt *rt, struct tdict *d) {
    if (d->n <= DICT_LINEAR || d->n * 2 < d->n_slots) return;
    d->n_slots = 32;
    while (d->n_slots < d->n * 4) d->n_slots *= 2;
    d->slots = rt_new(rt, uint32_t, d->n_slots);
    for (size_t i = 0; i < d->n; i++) index_insert(d, hash_value(rt, d->keys[i]), i);
}

struct tv *tdict_get(struct rt *rt, const struct tdict *d, struct tv key) {
    uint64_t hash = hash_value(rt, key); /* also where the index is not used: it refuses unhashable keys */
    if (!d->slots) {
        for (size_t i = 0; i < d->n; i++)
            if (tv_eq(rt, d->keys[i], key)) return &d->values[i];
        return NULL;
    }
    for (size_t at = hash & (d->n_slots - 1); d->slots[at]; at = (at + 1) & (d->n_slots - 1)) {
        size_t i = d->slots[at] - 1;
        rt_charge(rt, 1);
        if (tv_eq(rt, d->keys[i], key)) return &d->values[i];
    }
    return NULL;
}

struct tv *tdict_get_str(const struct tdict *d, struct str key) {
    if (!d->slots) {
        for (size_t i = 0; i < d->n; i++)
            if (d->keys[i].type == TV_STR && str_eq(tv_str(d->keys[i]), key)) return &d->values[i];
        return NULL;
    }
    uint64_t hash = hash_bytes(key.p, key.n, 2);
    for (size_t at = hash & (d->n_slots - 1); d->slots[at]; at = (at + 1) & (d->n_slots - 1)) {
        size_t i = d->slots[at] - 1;
        if (d->keys[i].type == TV_STR && str_eq(tv_str(d->keys[i]), key)) return &d->values[i];
    }
    return NULL;
}

void tdict_set(struct rt *rt, struct tdict *d, struct tv key, struct tv value) {
    rt_charge(rt, 2);
    struct tv *old = tdict_get(rt, d, key);
    if (old) {
        *old = value;
        return;
    }
    if (d->n == d->capacity) {
        size_t capacity = d->capacity ? d->capacity * 2 : 4;
        struct tv *keys = rt_new(rt, struct tv, capacity), *values = rt_new(rt, struct tv, capacity);
        if (d->n) memcpy(keys, d->keys, d->n * sizeof *keys);
        if (d->n) memcpy(values, d->values, d->n * sizeof *values);
        d->keys = keys;
        d->values = values;
        d->capacity = capacity;
    }
    d->keys[d->n] = key;
    d->values[d->n] = value;
    d->n++;
    if (d->slots && d->n * 2 < d->n_slots) index_insert(d, hash_value(rt, key), d->n - 1);
    else reindex(rt, d);
}

/* ---- types ---- */

const char *tv_type_name(struct tv v) {
    static const char *const names[N_TV_TYPES] = {
        [TV_MISSING] = "missing",
        [TV_UNDEF] = "Undefined",
        [TV_NONE] = "NoneType",
        [TV_BOOL] = "bool",
        [TV_INT] = "int",
        [TV_FLOAT] = "float",
        [TV_BIG] = "int",
        [TV_STR] = "str",
        [TV_LIST] = "list",
        [TV_TUPLE] = "tuple",
        [TV_DICT] = "dict",
        [TV_RANGE] = "range",
        [TV_NAMESPACE] = "Namespace",
        [TV_LOOP] = "LoopContext",
        [TV_MACRO] = "Macro",
        [TV_FUNC] = "function",
        [TV_METHOD] = "builtin_function_or_method",
        [TV_CYCLER] = "Cycler",
        [TV_JOINER] = "Joiner",
        [TV_SELF] = "TemplateReference",
        [TV_BLOCK] = "BlockReference",
    };
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (v.type == TV_VIEW) return views[v.u.view->kind];
    if (v.type == TV_ITER) return v.u.iter->type_name;
    if (v.type == TV_STR && v.u.s->markup) return "Markup";
    return names[v.type];
}

bool tv_has_len(struct tv v) {
    return v.type == TV_STR || tv_is_seq(v) || v.type == TV_DICT || v.type == TV_RANGE || v.type == TV_VIEW || v.type == TV_UNDEF ||
           v.type == TV_LOOP;
}

int64_t tv_len(struct rt *rt, struct tv v) {
    switch (v.type) {
    case TV_STR: return (int64_t)tstr_chars(rt, v.u.s);
    case TV_LIST:
    case TV_TUPLE: return (int64_t)v.u.list->n;
    case TV_DICT: return (int64_t)v.u.dict->n;
    case TV_VIEW: return (int64_t)v.u.view->dict->n;
    case TV_RANGE: return v.u.range->n;
    case TV_UNDEF: return 0;
    case TV_LOOP: return tmpl_loop_attr(rt, v.u.loop, STR("length")).u.i;
    default: rt_raise(rt, "TypeError", "object of type '%s' has no len()", tv_type_name(v));
    }
}

bool tv_is_iterable(struct tv v) {
    return tv_has_len(v) || v.type == TV_ITER;
}

bool tv_truth(struct rt *rt, struct tv v) {
    switch (v.type) {
    case TV_MISSING:
    case TV_UNDEF:
    case TV_NONE: return false;
    case TV_BOOL: return v.u.b;
    case TV_INT: return v.u.i != 0;
    case TV_FLOAT: return v.u.f != 0;
    case TV_STR: return v.u.s->n != 0;
    default: return !tv_has_len(v) || tv_len(rt, v) != 0;
    }
}

/* ---- equality and order ---- */

static bool dict_eq(struct rt *rt, const struct tdict *a, const struct tdict *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        struct tv *other = tdict_get(rt, b, a->keys[i]);
        if (!other || !tv_eq(rt, a->values[i], *other)) return false;
    }
    return true;
}

static bool list_eq(struct rt *rt, const struct tlist *a, const struct tlist *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!tv_eq(rt, a->items[i], b->items[i])) return false;
    return true;
}

static bool range_eq(const struct trange *a, const struct trange *b) {
    if (a->n != b->n) return false;
    return a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step));
}

/* Keys and items views are sets; values views are equal only to themselves. */
static bool view_eq(struct rt *rt, const struct tview *a, const struct tview *b) {
    if (a->kind == VIEW_VALUES || b->kind == VIEW_VALUES || a->kind != b->kind) return a == b;
    if (a->kind == VIEW_ITEMS) return dict_eq(rt, a->dict, b->dict);
    if (a->dict->n != b->dict->n) return false;
    for (size_t i = 0; i < a->dict->n; i++)
        if (!tdict_get(rt, b->dict, a->dict->keys[i])) return false;
    return true;
}

bool tv_same(struct tv a, struct tv b) {
    if (a.type != b.type) return false;
    switch (a.type) {
    case TV_MISSING:
    case TV_NONE:
    case TV_SELF: return true;
    case TV_BOOL: return a.u.b == b.u.b;
    case TV_INT: return a.u.i == b.u.i && a.u.i >= -5 && a.u.i <= 256; /* the small integers of CPython are single objects */
    case TV_FLOAT: return false;
    default: return a.u.s == b.u.s;
    }
}

static int compare_int_float(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 9223372036854775808.0) return -1;
    if (f < -9223372036854775808.0) return 1;
    double whole = floor(f);
    int64_t w = (int64_t)whole;
    if (i != w) return i < w ? -1 : 1;
    return f > whole ? -1 : 0;
}

static int compare_num(struct tv a, struct tv b) {
    if (a.type == TV_FLOAT && b.type == TV_FLOAT) return isnan(a.u.f) || isnan(b.u.f) ? 2 : (a.u.f > b.u.f) - (a.u.f < b.u.f);
    if (b.type == TV_FLOAT) return compare_int_float(tv_as_int(a), b.u.f);
    if (a.type == TV_FLOAT) {
        int c = compare_int_float(tv_as_int(b), a.u.f);
        return c == 2 ? 2 : -c;
    }
    int64_t x = tv_as_int(a), y = tv_as_int(b);
    return (x > y) - (x < y);
}

static bool eq_pointed(struct rt *rt, struct tv a, struct tv b) {
    switch (a.type) {
    case TV_LIST:
    case TV_TUPLE: return list_eq(rt, a.u.list, b.u.list);
    case TV_DICT: return dict_eq(rt, a.u.dict, b.u.dict);
    case TV_RANGE: return range_eq(a.u.range, b.u.range);
    case TV_VIEW: return view_eq(rt, a.u.view, b.u.view);
    case TV_METHOD: return a.u.method->func == b.u.method->func && tv_same(a.u.method->self, b.u.method->self);
    default: return tv_same(a, b);
    }
}

bool tv_eq(struct rt *rt, struct tv a, struct tv b) {
    if (tv_is_num(a) && tv_is_num(b)) return compare_num(a, b) == 0;
    if (a.type != b.type) return false;
    if (a.type == TV_UNDEF || a.type == TV_NONE || a.type == TV_MISSING) return true;
    if (a.type == TV_STR || a.type == TV_BIG) {
        if (a.u.s->n == b.u.s->n) rt_charge(rt, a.u.s->n / 256);
        return a.u.s == b.u.s || str_eq(tv_str(a), tv_str(b));
    }
    rt_charge(rt, 1);
    rt_enter(rt);
    bool equal = eq_pointed(rt, a, b);
    rt_leave(rt);
    return equal;
}

static int compare_lists(struct rt *rt, const struct tlist *a, const struct tlist *b, const char *op) {
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++)
        if (!tv_eq(rt, a->items[i], b->items[i])) return tv_compare(rt, a->items[i], b->items[i], op);
    return (a->n > b->n) - (a->n < b->n);
}

int tv_compare(struct rt *rt, struct tv a, struct tv b, const char *op) {
    if (tv_is_num(a) && tv_is_num(b)) return compare_num(a, b);
    if (a.type == TV_UNDEF) tv_undef_raise(rt, a);
    if (b.type == TV_UNDEF) tv_undef_raise(rt, b);
    if (a.type == TV_STR && b.type == TV_STR) { /* the order of UTF-8 is the order of code points */
        rt_charge(rt, (a.u.s->n < b.u.s->n ? a.u.s->n : b.u.s->n) / 256);
        int c = str_cmp(tv_str(a), tv_str(b));
        return (c > 0) - (c < 0);
    }
    if (tv_is_seq(a) && a.type == b.type) {
        rt_charge(rt, 1);
        rt_enter(rt);
        int c = compare_lists(rt, a.u.list, b.u.list, op);
        rt_leave(rt);
        return c;
    }
    rt_raise(rt, "TypeError", "'%s' not supported between instances of '%s' and '%s'", op, tv_type_name(a), tv_type_name(b));
}

static bool contains_walk(struct rt *rt, struct tv item, struct tv container) {
    struct titer *it = tv_iter(rt, container);
    struct tv v;
    while (titer_next(rt, it, &v))
        if (tv_eq(rt, v, item)) return true;
    return false;
}

bool tv_contains(struct rt *rt, struct tv item, struct tv container) {
    switch (container.type) {
    case TV_STR:
        if (item.type != TV_STR) rt_raise(rt, "TypeError", "'in <string>' requires string as left operand, not %s", tv_type_name(item));
        return tstr_find(rt, tv_str(container), tv_str(item), 0) != STR_NONE;
    case TV_DICT: return tdict_get(rt, container.u.dict, item) != NULL;
    case TV_VIEW:
        if (container.u.view->kind == VIEW_KEYS) return tdict_get(rt, container.u.view->dict, item) != NULL;
        return contains_walk(rt, item, container);
    default:
        if (!tv_is_iterable(container)) rt_raise(rt, "TypeError", "argument of type '%s' is not iterable", tv_type_name(container));
        return contains_walk(rt, item, container);
    }
}

static bool list_any_user(struct rt *rt, const struct tv *items, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (tv_any_user(rt, items[i])) return true;
    return false;
}

bool tv_any_user(struct rt *rt, struct tv v) {
    bool any = false;
    rt_charge(rt, 1);
    rt_enter(rt);
    if (v.type == TV_STR || v.type == TV_BIG) any = tstr_any_user(v.u.s);
    else if (tv_is_seq(v)) any = list_any_user(rt, v.u.list->items, v.u.list->n);
    else if (v.type == TV_DICT || v.type == TV_NAMESPACE || v.type == TV_VIEW) {
        const struct tdict *d = v.type == TV_VIEW ? v.u.view->dict : v.u.dict;
        any = list_any_user(rt, d->keys, d->n) || (v.type != TV_NAMESPACE && list_any_user(rt, d->values, d->n));
    }
    rt_leave(rt);
    return any;
}

/* ---- undefined ---- */

static struct tv undef(struct rt *rt, struct tundef init) {
    struct tundef *u = rt_new(rt, struct tundef, 1);
    *u = init;
    return (struct tv){TV_UNDEF, {.undef = u}};
}

struct tv tv_undef_name(struct rt *rt, struct str name) {
    return undef(rt, (struct tundef){.name = tv_str_of(rt, name, false)});
}

struct tv tv_undef_attr(struct rt *rt, struct tv obj, struct tv name) {
    return undef(rt, (struct tundef){.name = name, .has_obj = true, .obj_type = obj.type, .obj_name = tv_type_name(obj)});
}

struct tv tv_undef_hint(struct rt *rt, struct str hint) {
    return undef(rt, (struct tundef){.hint = hint});
}

struct tv tv_undef_unsafe(struct rt *rt, struct tv obj, struct str name) {
    return undef(rt, (struct tundef){.name = tv_str_of(rt, name, false), .has_obj = true, .unsafe = true, .obj_name = tv_type_name(obj)});
}

void tv_undef_raise(struct rt *rt, struct tv v) {
    const struct tundef *u = v.u.undef;
    const char *kind = u->unsafe ? "SecurityError" : "UndefinedError";
    if (u->hint.n) rt_raise(rt, kind, "%.*s", STR_ARG(u->hint));
    struct str name = tv_str(tmpl_to_repr(rt, u->name));
    if (!u->has_obj) rt_raise(rt, kind, "%.*s is undefined", STR_ARG(name));
    if (u->unsafe) rt_raise(rt, kind, "access to attribute %.*s of '%s' object is unsafe.", STR_ARG(name), u->obj_name);
    const char *object = u->obj_type == TV_NONE ? "" : " object", *what = u->obj_type == TV_NONE ? "None" : u->obj_name;
    if (u->name.type == TV_STR) rt_raise(rt, kind, "'%s%s' has no attribute %.*s", what, object, STR_ARG(name));
    rt_raise(rt, kind, "%s%s has no element %.*s", what, object, STR_ARG(name));
}
