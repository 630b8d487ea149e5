/* Calls: binding of arguments for builtins (by their signature string) and for macros; the global functions. */
#include "text/template/tmpl_rt.h"

const struct builtin *tmpl_builtin_lookup(const struct builtin *table, struct str name) {
    for (; table->name; table++)
        if (str_is(name, table->name)) return table;
    return NULL;
}

const struct builtin *tmpl_builtin_find(enum builtin_table table, struct str name) {
    if (table == BUILTIN_TEST) return tmpl_builtin_lookup(tmpl_tests, name);
    const struct builtin *f = tmpl_builtin_lookup(tmpl_filters_text, name);
    if (!f) f = tmpl_builtin_lookup(tmpl_filters_seq, name);
    return f ? f : tmpl_builtin_lookup(tmpl_filters_html, name);
}

/* ---- builtins ---- */

struct param {
    struct str name;
    bool optional;
};

static int read_signature(const char *sig, struct param params[BUILTIN_MAX_ARGS]) {
    struct str rest = str_of(sig), word;
    int n = 0;
    while (str_split_next(&rest, ' ', &word)) {
        if (!word.n) continue;
        params[n].optional = str_ends(word, STR("?"));
        params[n].name = str_sub(word, 0, word.n - params[n].optional);
        n++;
    }
    return n;
}

static void bind_keywords(struct rt *rt, const struct builtin *f, const struct tcall *call, const struct param *params, int n,
                          struct tv *args) {
    for (int k = 0; k < call->n_kw; k++) {
        int i = 0;
        while (i < n && !str_eq(params[i].name, call->kw_names[k])) i++;
        if (i == n) rt_raise(rt, "TypeError", "%s() got an unexpected keyword argument '%.*s'", f->name, STR_ARG(call->kw_names[k]));
        if (args[i].type != TV_MISSING)
            rt_raise(rt, "TypeError", "%s() got multiple values for argument '%.*s'", f->name, STR_ARG(call->kw_names[k]));
        args[i] = call->kw[k];
    }
}

struct tv tmpl_builtin_call(struct rt *rt, const struct builtin *f, struct tv self, const struct tcall *call) {
    struct tv args[BUILTIN_MAX_ARGS] = {{0}};
    if (f->sig[0] == '*') return f->fn(rt, self, args, call);
    rt_charge(rt, 2);
    struct param params[BUILTIN_MAX_ARGS];
    bool positional_only = f->sig[0] == '/';
    int n = read_signature(f->sig + positional_only, params);
    if (call->n_pos > n) rt_raise(rt, "TypeError", "%s() takes at most %d arguments (%d given)", f->name, n, call->n_pos);
    if (positional_only && call->n_kw) rt_raise(rt, "TypeError", "%s() takes no keyword arguments", f->name);
    for (int i = 0; i < call->n_pos; i++) args[i] = call->pos[i];
    bind_keywords(rt, f, call, params, n, args);
    for (int i = 0; i < n; i++)
        if (args[i].type == TV_MISSING && !params[i].optional)
            rt_raise(rt, "TypeError", "%s() missing 1 required positional argument: '%.*s'", f->name, STR_ARG(params[i].name));
    return f->fn(rt, self, args, call);
}

/* ---- macros ---- */

static struct tv take_keyword(const struct tcall *call, bool *taken, struct str name) {
    for (int i = 0; i < call->n_kw; i++)
        if (!taken[i] && str_eq(call->kw_names[i], name)) {
            taken[i] = true;
            return call->kw[i];
        }
    return TV_MISSING_V;
}

static struct tv rest_keywords(struct rt *rt, const struct tcall *call, const bool *taken) {
    struct tdict *d = tdict_new(rt);
    for (int i = 0; i < call->n_kw; i++)
        if (!taken[i]) tdict_set(rt, d, tv_str_of(rt, call->kw_names[i], false), call->kw[i]);
    return (struct tv){TV_DICT, {.dict = d}};
}

static void refuse_keywords(struct rt *rt, const struct tmacro *m, const struct tcall *call, const bool *taken) {
    for (int i = 0; i < call->n_kw; i++) {
        if (taken[i]) continue;
        if (str_is(call->kw_names[i], "caller"))
            rt_raise(rt, "TypeError",
                     "macro '%.*s' was invoked with two values for the special caller argument. This is most likely a bug.",
                     STR_ARG(m->name));
        rt_raise(rt, "TypeError", "macro '%.*s' takes no keyword argument '%.*s'", STR_ARG(m->name), STR_ARG(call->kw_names[i]));
    }
}

/* Binds what was given; parameters that were not keep TV_MISSING until their default is evaluated. */
static void bind_macro(struct rt *rt, const struct tmacro *m, const struct tcall *call, struct scope *s) {
    const struct tparams *params = m->node->params;
    bool *taken = rt_new(rt, bool, call->n_kw + 1);
    bool has_caller = false;
    for (int i = 0; i < params->n; i++) {
        struct tv v = i < call->n_pos ? call->pos[i] : take_keyword(call, taken, rt->t->names[params->names[i]]);
        has_caller |= params->names[i] == NAME_CALLER;
        if (v.type != TV_MISSING) tmpl_scope_set(rt, s, params->names[i], v);
    }
    if (params->uses_caller && !has_caller) {
        struct tv caller = take_keyword(call, taken, STR("caller"));
        if (caller.type == TV_MISSING || caller.type == TV_NONE) caller = tv_undef_hint(rt, STR("No caller defined"));
        tmpl_scope_set(rt, s, NAME_CALLER, caller);
    }
    if (params->uses_kwargs) tmpl_scope_set(rt, s, NAME_KWARGS, rest_keywords(rt, call, taken));
    else refuse_keywords(rt, m, call, taken);
    if (params->uses_varargs) {
        struct tv rest = tv_list_new(rt, TV_TUPLE, 4);
        for (int i = params->n; i < call->n_pos; i++) tv_list_push(rt, rest.u.list, call->pos[i]);
        tmpl_scope_set(rt, s, NAME_VARARGS, rest);
    } else if (call->n_pos > params->n) {
        rt_raise(rt, "TypeError", "macro '%.*s' takes not more than %d argument(s)", STR_ARG(m->name), params->n);
    }
}

static bool is_bound(const struct scope *s, int name) {
    for (int i = 0; i < s->n; i++)
        if (s->bindings[i].name == name) return s->bindings[i].value.type != TV_MISSING;
    return false;
}

static void bind_defaults(struct rt *rt, const struct tparams *params, struct scope *s) {
    for (int i = 0; i < params->n; i++) {
        if (is_bound(s, params->names[i])) continue;
        struct str name = rt->t->names[params->names[i]];
        struct tv v =
            params->defaults[i]
                ? tmpl_eval(rt, params->defaults[i])
                : tv_undef_hint(
                      rt, tv_str(tv_concat(rt, tv_str_const(rt, "parameter '").u.s,
                                           tv_concat(rt, tv_str_of(rt, name, false).u.s, tv_str_const(rt, "' was not provided").u.s).u.s)));
        tmpl_scope_set(rt, s, params->names[i], v);
    }
}

struct tv tmpl_call_macro(struct rt *rt, const struct tmacro *m, const struct tcall *call) {
    struct scope *caller_scope = rt->scope;
    struct tbuf *outer = rt->out;
    rt_enter(rt);
    rt->scope = m->scope;
    struct scope *s = tmpl_scope_push(rt);
    const struct thidden *hidden = &m->node->hidden;
    for (int i = 0; i < hidden->n; i++) tmpl_scope_set(rt, s, hidden->names[i], TV_MISSING_V);
    bind_macro(rt, m, call, s);
    bind_defaults(rt, m->node->params, s);
    rt->out = tbuf_new(rt);
    tmpl_exec(rt, m->node->body);
    struct tv text = tbuf_value(rt, rt->out);
    rt->out = outer;
    rt->scope = caller_scope;
    rt_leave(rt);
    return text;
}

/* ---- anything callable ---- */

static struct tv call_joiner(struct rt *rt, struct tcycler *j) {
    struct tv v = j->used ? (struct tv){TV_STR, {.s = j->sep}} : tv_str_const(rt, "");
    j->used = true;
    return v;
}

struct tv tmpl_call_value(struct rt *rt, struct tv f, const struct tcall *call) {
    switch (f.type) {
    case TV_UNDEF: tv_undef_raise(rt, f);
    case TV_MACRO: return tmpl_call_macro(rt, f.u.macro, call);
    case TV_FUNC: return tmpl_builtin_call(rt, f.u.func, TV_NONE_V, call);
    case TV_METHOD: return tmpl_builtin_call(rt, f.u.method->func, f.u.method->self, call);
    case TV_LOOP: return tmpl_builtin_call(rt, tmpl_builtin_lookup(tmpl_methods_loop, STR("__call__")), f, call);
    case TV_JOINER: return call_joiner(rt, f.u.cycler);
    case TV_BLOCK: return tmpl_call_block(rt, f.u.block);
    default: rt_raise(rt, "TypeError", "'%s' object is not callable", tv_type_name(f));
    }
}

/* ---- global functions ---- */

static int64_t range_count(int64_t start, int64_t stop, int64_t step) {
    uint64_t gap, stride;
    if (step > 0 && start < stop) {
        gap = (uint64_t)stop - (uint64_t)start - 1;
        stride = (uint64_t)step;
    } else if (step < 0 && start > stop) {
        gap = (uint64_t)start - (uint64_t)stop - 1;
        stride = (uint64_t)0 - (uint64_t)step;
    } else {
        return 0;
    }
    uint64_t n = gap / stride;
    return n >= INT64_MAX ? INT64_MAX : (int64_t)n + 1;
}

static struct tv global_range(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)self, (void)call;
    struct trange *r = rt_new(rt, struct trange, 1);
    bool one = args[1].type == TV_MISSING;
    r->start = one ? 0 : tmpl_need_int(rt, args[0]);
    r->stop = tmpl_need_int(rt, args[one ? 0 : 1]);
    r->step = tmpl_arg_int(rt, args[2], 1);
    if (r->step == 0) rt_raise(rt, "ValueError", "range() arg 3 must not be zero");
    r->n = range_count(r->start, r->stop, r->step);
    if ((uint64_t)r->n > rt->limits.range)
        rt_raise(rt, "OverflowError", "Range too big. The sandbox blocks ranges larger than %zu items.", rt->limits.range);
    return (struct tv){TV_RANGE, {.range = r}};
}

static void dict_update(struct rt *rt, struct tdict *d, struct tv from) {
    if (from.type == TV_DICT || from.type == TV_NAMESPACE) {
        for (size_t i = 0; i < from.u.dict->n; i++) tdict_set(rt, d, from.u.dict->keys[i], from.u.dict->values[i]);
        return;
    }
    if (from.type == TV_UNDEF) tv_undef_raise(rt, from); /* asked for its keys */
    struct titer *it = tv_iter(rt, from);
    struct tv pair;
    for (int64_t i = 0; titer_next(rt, it, &pair); i++) {
        struct tv items = tv_is_iterable(pair) ? tv_to_list(rt, pair, TV_LIST) : TV_NONE_V;
        if (items.type != TV_LIST)
            rt_raise(rt, "TypeError", "cannot convert dictionary update sequence element #%lld to a sequence", (long long)i);
        if (items.u.list->n != 2)
            rt_raise(rt, "ValueError", "dictionary update sequence element #%lld has length %zu; 2 is required", (long long)i,
                     items.u.list->n);
        tdict_set(rt, d, items.u.list->items[0], items.u.list->items[1]);
    }
}

static struct tv global_dict(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)self, (void)args;
    struct tdict *d = tdict_new(rt);
    if (call->n_pos > 1) rt_raise(rt, "TypeError", "dict expected at most 1 argument, got %d", call->n_pos);
    if (call->n_pos) dict_update(rt, d, call->pos[0]);
    for (int i = 0; i < call->n_kw; i++) tdict_set(rt, d, tv_str_of(rt, call->kw_names[i], false), call->kw[i]);
    return (struct tv){TV_DICT, {.dict = d}};
}

static struct tv global_namespace(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    struct tv v = global_dict(rt, self, args, call);
    for (size_t i = 0; i < v.u.dict->n; i++)
        if (v.u.dict->keys[i].type == TV_STR && str_starts(tv_str(v.u.dict->keys[i]), STR("_")))
            rt_raise(rt, "SecurityError", "chat templates cannot store underscore-prefixed attributes on a namespace");
    v.type = TV_NAMESPACE;
    return v;
}

static struct tv global_cycler(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)self, (void)args;
    if (call->n_kw) rt_raise(rt, "TypeError", "cycler() takes no keyword arguments");
    if (!call->n_pos) rt_raise(rt, "RuntimeError", "at least one item has to be provided");
    struct tcycler *c = rt_new(rt, struct tcycler, 1);
    c->items = tv_list_new(rt, TV_LIST, (size_t)call->n_pos).u.list;
    for (int i = 0; i < call->n_pos; i++) tv_list_push(rt, c->items, call->pos[i]);
    return (struct tv){TV_CYCLER, {.cycler = c}};
}

static struct tv cycler_next(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)rt, (void)args, (void)call;
    struct tcycler *c = self.u.cycler;
    struct tv v = c->items->items[c->position];
    c->position = (c->position + 1) % c->items->n;
    return v;
}

static struct tv cycler_reset(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)rt, (void)args, (void)call;
    self.u.cycler->position = 0;
    return TV_NONE_V;
}

static struct tv global_joiner(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)self, (void)call;
    struct tcycler *j = rt_new(rt, struct tcycler, 1);
    struct tv sep = args[0].type == TV_MISSING ? tv_str_const(rt, ", ") : tmpl_to_str(rt, args[0]);
    j->sep = sep.u.s;
    return (struct tv){TV_JOINER, {.cycler = j}};
}

static struct tv global_raise(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)self, (void)call;
    rt_raise(rt, "TemplateError", "%.*s", STR_ARG(tv_str(tmpl_to_str(rt, args[0]))));
}

static struct tv global_strftime(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)self, (void)call;
    const struct tstr *format = tmpl_need_str(rt, args[0], "strftime() argument 1");
    return tv_str_of(rt, tmpl_time_format(rt, tstr_str(format)), tstr_any_user(format));
}

static struct tv global_lipsum(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)self, (void)args, (void)call;
    rt_raise(rt, "TemplateRuntimeError", "lipsum is not supported: a rendering must not be random");
}

const struct builtin tmpl_globals[] = {
    {"range", global_range, "/start stop? step?"},
    {"dict", global_dict, "*"},
    {"namespace", global_namespace, "*"},
    {"cycler", global_cycler, "*"},
    {"joiner", global_joiner, "sep?"},
    {"raise_exception", global_raise, "message"},
    {"strftime_now", global_strftime, "format"},
    {"lipsum", global_lipsum, "*"},
    {NULL, NULL, NULL},
};

const struct builtin tmpl_methods_cycler[] = {
    {"next", cycler_next, ""},
    {"reset", cycler_reset, ""},
    {NULL, NULL, NULL},
};
