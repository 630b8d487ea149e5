/* Filters over sequences. Those that are generators in Jinja are lazy here too: they are true, have no length, can be
 * walked once, and their errors appear when they are walked. */
#include "text/template/tmpl_rt.h"

#define FILTER(name) static struct tv name(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call)
#define UNUSED (void)rt, (void)self, (void)args, (void)call

static struct tcall *keep_call(struct rt *rt, const struct tcall *call) {
    struct tcall *copy = rt_new(rt, struct tcall, 1);
    *copy = *call;
    return copy;
}

static struct tv fold_case(struct rt *rt, struct tv v, bool case_sensitive) {
    return v.type == TV_STR && !case_sensitive ? tmpl_str_map_case(rt, v.u.s, 'l') : v;
}

FILTER(f_length) {
    UNUSED;
    return tv_int(tv_len(rt, self));
}
FILTER(f_list) {
    UNUSED;
    return tv_to_list(rt, self, TV_LIST);
}

FILTER(f_first) {
    UNUSED;
    struct tv v;
    if (titer_next(rt, tv_iter(rt, self), &v)) return v;
    return tv_undef_hint(rt, STR("No first item, sequence was empty."));
}

FILTER(f_last) {
    UNUSED;
    if (!tv_has_len(self)) rt_raise(rt, "TypeError", "'%s' object is not reversible", tv_type_name(self));
    int64_t n = tv_len(rt, self);
    if (n == 0) return tv_undef_hint(rt, STR("No last item, sequence was empty."));
    if (self.type == TV_DICT || self.type == TV_VIEW) {
        struct tv all = tv_to_list(rt, self, TV_LIST);
        return all.u.list->items[n - 1];
    }
    return tmpl_op_getitem(rt, self, tv_int(n - 1));
}

FILTER(f_random) {
    UNUSED;
    rt_raise(rt, "TemplateRuntimeError", "the filter random is not supported: a rendering must not be random");
}

/* ---- join ---- */

static bool next_path(struct rt *rt, struct titer *it, struct tv *out) {
    struct tv item;
    if (!titer_next(rt, it->source.u.iter, &item)) return false;
    *out = tmpl_op_path(rt, item, it->extra, TV_MISSING_V);
    return true;
}

static struct tv map_path(struct rt *rt, struct tv v, struct tv path) {
    if (path.type == TV_MISSING || path.type == TV_NONE) return v;
    struct tv source = {TV_ITER, {.iter = tv_iter(rt, v)}};
    return tv_iter_lazy(rt, (struct titer){.next = next_path, .source = source, .extra = path});
}

FILTER(f_join) {
    UNUSED;
    struct tv sep = args[0].type == TV_MISSING ? tv_str_const(rt, "") : tmpl_to_str(rt, args[0]);
    struct tstr plain = *sep.u.s;
    plain.markup = false;
    return tmpl_str_join(rt, &plain, map_path(rt, self, args[1]), true);
}

/* ---- map, select, reject ---- */

static struct titer *begin_lazy(struct rt *rt, struct titer *it) {
    if (it->count++) return it->extra.u.iter;
    it->extra = (struct tv){TV_ITER, {.iter = tv_truth(rt, it->source) ? tv_iter(rt, it->source) : NULL}};
    return it->extra.u.iter;
}

static struct tv keyword(const struct tcall *call, const char *name) {
    for (int i = 0; i < call->n_kw; i++)
        if (str_is(call->kw_names[i], name)) return call->kw[i];
    return TV_MISSING_V;
}

static const struct builtin *need_builtin(struct rt *rt, enum builtin_table table, struct tv name) {
    struct str text = tv_str(tmpl_to_str(rt, name));
    const struct builtin *f = tmpl_builtin_find(table, text);
    if (!f) rt_raise(rt, "TemplateRuntimeError", "No %s named '%.*s'.", table == BUILTIN_FILTER ? "filter" : "test", STR_ARG(text));
    return f;
}

/* The call without its first n positional arguments. */
static struct tcall skip_args(const struct tcall *call, int n) {
    struct tcall rest = *call;
    rest.pos += n;
    rest.n_pos -= n;
    return rest;
}

static bool next_map(struct rt *rt, struct titer *it, struct tv *out) {
    struct titer *source = begin_lazy(rt, it);
    const struct tcall *call = it->call;
    if (!source) return false;
    struct tv path = keyword(call, "attribute");
    bool by_path = !call->n_pos && path.type != TV_MISSING;
    if (by_path && it->count == 1)
        for (int i = 0; i < call->n_kw; i++)
            if (!str_is(call->kw_names[i], "attribute") && !str_is(call->kw_names[i], "default"))
                rt_raise(rt, "FilterArgumentError", "Unexpected keyword argument '%.*s'", STR_ARG(call->kw_names[i]));
    if (!by_path && !call->n_pos) rt_raise(rt, "FilterArgumentError", "map requires a filter argument");
    struct tv item;
    if (!titer_next(rt, source, &item)) return false;
    if (by_path) {
        *out = tmpl_op_path(rt, item, path, keyword(call, "default"));
        return true;
    }
    if (!it->func) it->func = need_builtin(rt, BUILTIN_FILTER, call->pos[0]);
    struct tcall rest = skip_args(call, 1);
    *out = tmpl_builtin_call(rt, it->func, item, &rest);
    return true;
}

FILTER(f_map) {
    UNUSED;
    return tv_iter_lazy(rt, (struct titer){.next = next_map, .source = self, .call = keep_call(rt, call)});
}

/* position: 1 where the first argument is an attribute */
static bool next_select(struct rt *rt, struct titer *it, struct tv *out) {
    struct titer *source = begin_lazy(rt, it);
    if (!source) return false;
    int off = (int)it->position;
    if (it->call->n_pos < off) rt_raise(rt, "FilterArgumentError", "Missing parameter for attribute name");
    while (titer_next(rt, source, out)) {
        struct tv v = off ? tmpl_op_path(rt, *out, it->call->pos[0], TV_MISSING_V) : *out;
        if (it->call->n_pos > off) {
            if (!it->func) it->func = need_builtin(rt, BUILTIN_TEST, it->call->pos[off]);
            struct tcall rest = skip_args(it->call, off + 1);
            v = tmpl_builtin_call(rt, it->func, v, &rest);
        }
        if (tv_truth(rt, v) != it->negate) return true;
    }
    return false;
}

static struct tv select_lazy(struct rt *rt, struct tv self, const struct tcall *call, size_t off, bool negate) {
    return tv_iter_lazy(
        rt, (struct titer){.next = next_select, .source = self, .call = keep_call(rt, call), .position = off, .negate = negate});
}

FILTER(f_select) {
    UNUSED;
    return select_lazy(rt, self, call, 0, false);
}
FILTER(f_reject) {
    UNUSED;
    return select_lazy(rt, self, call, 0, true);
}
FILTER(f_selectattr) {
    UNUSED;
    return select_lazy(rt, self, call, 1, false);
}
FILTER(f_rejectattr) {
    UNUSED;
    return select_lazy(rt, self, call, 1, true);
}

/* ---- items, unique, batch, slice, reverse ---- */

static bool next_item(struct rt *rt, struct titer *it, struct tv *out) {
    if (it->source.type == TV_UNDEF) return false;
    if (it->source.type != TV_DICT) rt_raise(rt, "TypeError", "Can only get item pairs from a mapping.");
    const struct tdict *d = it->source.u.dict;
    if (it->position >= d->n) return false;
    *out = tv_pair(rt, d->keys[it->position], d->values[it->position]);
    it->position++;
    return true;
}

FILTER(f_items) {
    UNUSED;
    return tv_iter_lazy(rt, (struct titer){.next = next_item, .source = self});
}

static bool next_unique(struct rt *rt, struct titer *it, struct tv *out) {
    if (!it->count++) it->source = (struct tv){TV_ITER, {.iter = tv_iter(rt, it->source)}};
    while (titer_next(rt, it->source.u.iter, out)) {
        struct tv path = it->call->n_pos ? it->call->pos[0] : TV_NONE_V;
        struct tv key = fold_case(rt, tmpl_op_path(rt, *out, path, TV_MISSING_V), it->negate);
        if (tdict_get(rt, it->extra.u.dict, key)) continue;
        tdict_set(rt, it->extra.u.dict, key, TV_NONE_V);
        return true;
    }
    return false;
}

/* A call that carries values for a lazy filter. */
static struct tcall *carry(struct rt *rt, const struct tv *values, int n) {
    struct tcall *call = rt_new(rt, struct tcall, 1);
    call->pos = rt_new(rt, struct tv, n);
    memcpy(call->pos, values, (size_t)n * sizeof *values);
    call->n_pos = n;
    return call;
}

FILTER(f_unique) {
    UNUSED;
    struct tv seen = {TV_DICT, {.dict = tdict_new(rt)}};
    return tv_iter_lazy(rt, (struct titer){.next = next_unique,
                                           .source = self,
                                           .call = carry(rt, &args[1], 1),
                                           .extra = seen,
                                           .negate = tmpl_arg_bool(rt, args[0], false)});
}

/* extra: the batch being filled */
static bool next_batch(struct rt *rt, struct titer *it, struct tv *out) {
    struct tv size = it->call->pos[0], fill = it->call->pos[1], item;
    if (!it->count++) {
        it->source = (struct tv){TV_ITER, {.iter = tv_iter(rt, it->source)}};
        it->extra = tv_list_new(rt, TV_LIST, 4);
    }
    while (titer_next(rt, it->source.u.iter, &item)) {
        bool full = tv_eq(rt, tv_int((int64_t)it->extra.u.list->n), size);
        *out = it->extra;
        if (full) it->extra = tv_list_new(rt, TV_LIST, 4);
        tv_list_push(rt, it->extra.u.list, item);
        if (full) return true;
    }
    *out = it->extra;
    it->extra = tv_list_new(rt, TV_LIST, 0);
    if (!out->u.list->n) return false;
    bool fills = fill.type != TV_NONE && fill.type != TV_MISSING;
    for (int64_t i = (int64_t)out->u.list->n; fills && i < tmpl_need_int(rt, size); i++) {
        rt_charge(rt, 1);
        tv_list_push(rt, out->u.list, fill);
    }
    return true;
}

FILTER(f_batch) {
    UNUSED;
    return tv_iter_lazy(rt, (struct titer){.next = next_batch, .source = self, .call = carry(rt, args, 2)});
}

static bool next_slice(struct rt *rt, struct titer *it, struct tv *out) {
    int64_t slices = tmpl_need_int(rt, it->call->pos[0]), i = it->count++;
    if (i == 0) {
        it->source = tv_to_list(rt, it->source, TV_LIST);
        if (slices == 0) rt_raise(rt, "ZeroDivisionError", "integer division or modulo by zero");
    }
    if (i >= slices) return false;
    const struct tlist *all = it->source.u.list;
    int64_t n = (int64_t)all->n, each = n / slices, extra = n % slices;
    int64_t start = i * each + (i < extra ? i : extra), end = start + each + (i < extra);
    struct tv part = tv_list_new(rt, TV_LIST, (size_t)(end - start) + 1);
    for (int64_t k = start; k < end; k++) tv_list_push(rt, part.u.list, all->items[k]);
    struct tv fill = it->call->pos[1];
    if (fill.type != TV_NONE && fill.type != TV_MISSING && i >= extra) tv_list_push(rt, part.u.list, fill);
    *out = part;
    return true;
}

FILTER(f_slice) {
    UNUSED;
    return tv_iter_lazy(rt, (struct titer){.next = next_slice, .source = self, .call = carry(rt, args, 2)});
}

static bool next_reverse(struct rt *rt, struct titer *it, struct tv *out) {
    (void)rt;
    if (it->position == 0) return false;
    *out = it->source.u.list->items[--it->position];
    return true;
}

FILTER(f_reverse) {
    UNUSED;
    if (self.type == TV_STR) return tmpl_op_slice(rt, self, TV_NONE_V, TV_NONE_V, tv_int(-1));
    if (!tv_is_iterable(self)) rt_raise(rt, "FilterArgumentError", "argument must be iterable");
    struct tv all = tv_to_list(rt, self, TV_LIST);
    if (self.type != TV_ITER)
        return tv_iter_lazy(
            rt, (struct titer){.next = next_reverse, .source = all, .position = all.u.list->n, .type_name = "list_reverseiterator"});
    return tmpl_op_slice(rt, all, TV_NONE_V, TV_NONE_V, tv_int(-1));
}

/* ---- sorting: a stable merge sort over keys ---- */

struct sorter {
    struct rt *rt;
    struct tv *keys;
    size_t *order, *spare;
    bool reverse;
};

static bool right_first(const struct sorter *s, size_t left, size_t right) {
    if (s->reverse) return tv_compare(s->rt, s->keys[left], s->keys[right], "<") == -1;
    return tv_compare(s->rt, s->keys[right], s->keys[left], "<") == -1;
}

static void merge(struct sorter *s, size_t low, size_t mid, size_t high) {
    size_t i = low, k = mid;
    for (size_t o = low; o < high; o++) {
        rt_charge(s->rt, 1);
        bool right = i >= mid || (k < high && right_first(s, s->order[i], s->order[k]));
        s->spare[o] = right ? s->order[k++] : s->order[i++];
    }
}

static struct tv sort_by(struct rt *rt, const struct tlist *items, struct tv *keys, bool reverse) {
    size_t n = items->n;
    struct sorter s = {rt, keys, rt_new(rt, size_t, n), rt_new(rt, size_t, n), reverse};
    for (size_t i = 0; i < n; i++) s.order[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width)
            merge(&s, low, low + width < n ? low + width : n, low + 2 * width < n ? low + 2 * width : n);
        size_t *swap = s.order;
        s.order = s.spare;
        s.spare = swap;
    }
    struct tv out = tv_list_new(rt, TV_LIST, n);
    for (size_t i = 0; i < n; i++) tv_list_push(rt, out.u.list, items->items[s.order[i]]);
    return out;
}

/* sort takes several paths: "age,name". The key is the list of their values. */
static struct tv multi_key(struct rt *rt, struct tv item, struct tv paths, bool case_sensitive) {
    struct tv key = tv_list_new(rt, TV_LIST, 1);
    if (paths.type != TV_STR) {
        tv_list_push(rt, key.u.list, fold_case(rt, tmpl_op_path(rt, item, paths, TV_MISSING_V), case_sensitive));
        return key;
    }
    for (size_t from = 0; from <= paths.u.s->n;) {
        size_t end = str_find_char(tv_str(paths), ',', from);
        if (end == STR_NONE) end = paths.u.s->n;
        struct tv path = tv_sub(rt, paths.u.s, from, end - from);
        tv_list_push(rt, key.u.list, fold_case(rt, tmpl_op_path(rt, item, path, TV_MISSING_V), case_sensitive));
        from = end + 1;
    }
    return key;
}

FILTER(f_sort) {
    UNUSED;
    bool case_sensitive = tmpl_arg_bool(rt, args[1], false);
    struct tv all = tv_to_list(rt, self, TV_LIST);
    struct tv *keys = rt_new(rt, struct tv, all.u.list->n);
    for (size_t i = 0; i < all.u.list->n; i++) keys[i] = multi_key(rt, all.u.list->items[i], args[2], case_sensitive);
    return sort_by(rt, all.u.list, keys, tmpl_arg_bool(rt, args[0], false));
}

FILTER(f_dictsort) {
    UNUSED;
    bool case_sensitive = tmpl_arg_bool(rt, args[0], false), by_value = false;
    if (args[1].type != TV_MISSING) {
        by_value = args[1].type == TV_STR && str_is(tv_str(args[1]), "value");
        if (!by_value && !(args[1].type == TV_STR && str_is(tv_str(args[1]), "key")))
            rt_raise(rt, "FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    }
    if (self.type == TV_UNDEF) tv_undef_raise(rt, self);
    if (self.type != TV_DICT) rt_raise(rt, "AttributeError", "'%s' object has no attribute 'items'", tv_type_name(self));
    const struct tdict *d = self.u.dict;
    struct tv items = tv_list_new(rt, TV_LIST, d->n);
    struct tv *keys = rt_new(rt, struct tv, d->n);
    for (size_t i = 0; i < d->n; i++) {
        tv_list_push(rt, items.u.list, tv_pair(rt, d->keys[i], d->values[i]));
        keys[i] = fold_case(rt, by_value ? d->values[i] : d->keys[i], case_sensitive);
    }
    return sort_by(rt, items.u.list, keys, tmpl_arg_bool(rt, args[2], false));
}

FILTER(f_groupby) {
    UNUSED;
    bool case_sensitive = tmpl_arg_bool(rt, args[2], false);
    struct tv all = tv_to_list(rt, self, TV_LIST), out = tv_list_new(rt, TV_LIST, 4);
    size_t n = all.u.list->n;
    struct tv *keys = rt_new(rt, struct tv, n);
    struct tv order = tv_list_new(rt, TV_LIST, n);
    for (size_t i = 0; i < n; i++) {
        keys[i] = fold_case(rt, tmpl_op_path(rt, all.u.list->items[i], args[0], args[1]), case_sensitive);
        tv_list_push(rt, order.u.list, tv_int((int64_t)i));
    }
    order = sort_by(rt, order.u.list, keys, false);
    for (size_t i = 0; i < n;) {
        size_t first = (size_t)order.u.list->items[i].u.i;
        struct tv group = tv_list_new(rt, TV_LIST, 4);
        for (; i < n && tv_eq(rt, keys[order.u.list->items[i].u.i], keys[first]); i++)
            tv_list_push(rt, group.u.list, all.u.list->items[order.u.list->items[i].u.i]);
        if (!group.u.list->n) tv_list_push(rt, group.u.list, all.u.list->items[order.u.list->items[i++].u.i]); /* NaN equals nothing */
        struct tv key = case_sensitive ? keys[first] : tmpl_op_path(rt, all.u.list->items[first], args[0], args[1]);
        struct tv pair = tv_pair(rt, key, group);
        pair.u.list->is_group = true;
        tv_list_push(rt, out.u.list, pair);
    }
    return out;
}

static struct tv extreme(struct rt *rt, struct tv self, const struct tv *args, bool want_max) {
    struct titer *it = tv_iter(rt, self);
    bool case_sensitive = tmpl_arg_bool(rt, args[0], false);
    struct tv best, item;
    if (!titer_next(rt, it, &best)) return tv_undef_hint(rt, STR("No aggregated item, sequence was empty."));
    struct tv best_key = fold_case(rt, tmpl_op_path(rt, best, args[1], TV_MISSING_V), case_sensitive);
    while (titer_next(rt, it, &item)) {
        struct tv key = fold_case(rt, tmpl_op_path(rt, item, args[1], TV_MISSING_V), case_sensitive);
        if (tv_compare(rt, key, best_key, want_max ? ">" : "<") != (want_max ? 1 : -1)) continue;
        best = item;
        best_key = key;
    }
    return best;
}

FILTER(f_min) {
    UNUSED;
    return extreme(rt, self, args, false);
}
FILTER(f_max) {
    UNUSED;
    return extreme(rt, self, args, true);
}

FILTER(f_sum) {
    UNUSED;
    struct tv total = args[1].type == TV_MISSING ? tv_int(0) : args[1], item;
    struct titer *it = tv_iter(rt, map_path(rt, self, args[0]));
    if (total.type == TV_STR) rt_raise(rt, "TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
    while (titer_next(rt, it, &item)) total = tmpl_op_binary(rt, TK_ADD, total, item);
    return total;
}

const struct builtin tmpl_filters_seq[] = {
    {"length", f_length, ""},
    {"count", f_length, ""},
    {"list", f_list, ""},
    {"first", f_first, ""},
    {"last", f_last, ""},
    {"join", f_join, "d? attribute?"},
    {"map", f_map, "*"},
    {"select", f_select, "*"},
    {"reject", f_reject, "*"},
    {"selectattr", f_selectattr, "*"},
    {"rejectattr", f_rejectattr, "*"},
    {"items", f_items, ""},
    {"unique", f_unique, "case_sensitive? attribute?"},
    {"batch", f_batch, "linecount fill_with?"},
    {"slice", f_slice, "slices fill_with?"},
    {"reverse", f_reverse, ""},
    {"sort", f_sort, "reverse? case_sensitive? attribute?"},
    {"dictsort", f_dictsort, "case_sensitive? by? reverse?"},
    {"groupby", f_groupby, "attribute default? case_sensitive?"},
    {"min", f_min, "case_sensitive? attribute?"},
    {"max", f_max, "case_sensitive? attribute?"},
    {"sum", f_sum, "attribute? start?"},
    {"random", f_random, "*"},
    {NULL, NULL, NULL},
};
