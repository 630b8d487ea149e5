/* Expressions: a walk over the tree. Each node costs a step and a level of depth. */
#include "text/template/tmpl_rt.h"

static struct tv lookup(struct rt *rt, int name) {
    for (const struct scope *s = rt->scope; s; s = s->parent) {
        if (s->n >= 16) rt_charge(rt, (size_t)s->n / 16);
        for (int i = 0; i < s->n; i++)
            if (s->bindings[i].name == name)
                return s->bindings[i].value.type == TV_MISSING ? tv_undef_name(rt, rt->t->names[name]) : s->bindings[i].value;
    }
    if (rt->globals[name].type != TV_MISSING) return rt->globals[name];
    const struct builtin *f = tmpl_builtin_lookup(tmpl_globals, rt->t->names[name]);
    if (f) return (struct tv){TV_FUNC, {.func = f}};
    if (str_is(rt->t->names[name], "self")) return (struct tv){TV_SELF, {0}};
    return tv_undef_name(rt, rt->t->names[name]);
}

static struct tv eval_sequence(struct rt *rt, const struct tnode *n, enum tv_type type) {
    struct tv list = tv_list_new(rt, type, (size_t)n->n_list);
    for (int i = 0; i < n->n_list; i++) tv_list_push(rt, list.u.list, tmpl_eval(rt, n->list[i]));
    return list;
}

static struct tv eval_dict(struct rt *rt, const struct tnode *n) {
    struct tdict *d = tdict_new(rt);
    for (int i = 0; i < n->n_list; i += 2) {
        struct tv key = tmpl_eval(rt, n->list[i]);
        tdict_set(rt, d, key, tmpl_eval(rt, n->list[i + 1]));
    }
    return (struct tv){TV_DICT, {.dict = d}};
}

static struct tv eval_optional(struct rt *rt, const struct tnode *n) {
    return n ? tmpl_eval(rt, n) : TV_NONE_V;
}

static struct tv eval_slice(struct rt *rt, const struct tnode *n) {
    struct tv obj = tmpl_eval(rt, n->a), start = eval_optional(rt, n->list[0]), stop = eval_optional(rt, n->list[1]);
    return tmpl_op_slice(rt, obj, start, stop, eval_optional(rt, n->list[2]));
}

static struct tv eval_concat(struct rt *rt, const struct tnode *n) {
    struct tv all = tmpl_to_str(rt, tmpl_eval(rt, n->list[0]));
    for (int i = 1; i < n->n_list; i++) {
        struct tv next = tmpl_to_str(rt, tmpl_eval(rt, n->list[i]));
        all = tv_concat(rt, all.u.s, next.u.s);
    }
    all.u.s->markup = false;
    return all;
}

static struct tv eval_compare(struct rt *rt, const struct tnode *n) {
    struct tv left = tmpl_eval(rt, n->a);
    for (int i = 0; i < n->n_list; i++) {
        struct tv right = tmpl_eval(rt, n->list[i]);
        rt->line = n->line;
        if (!tmpl_op_compare(rt, n->u.ops[i], left, right)) return tv_bool(false);
        left = right;
    }
    return tv_bool(true);
}

static struct tv eval_cond(struct rt *rt, const struct tnode *n) {
    if (tv_truth(rt, tmpl_eval(rt, n->a))) return tmpl_eval(rt, n->b);
    if (n->c) return tmpl_eval(rt, n->c);
    return tv_undef_hint(rt, STR("the inline if-expression evaluated to false and no else section was defined."));
}

static void expand_list(struct rt *rt, struct tcall *call, struct tv list) {
    struct tv all = tv_to_list(rt, list, TV_LIST);
    size_t n = (size_t)call->n_pos + all.u.list->n;
    if (n > 100000) rt_limit(rt, "a call with %zu arguments", n);
    struct tv *pos = rt_new(rt, struct tv, n);
    if (call->n_pos) memcpy(pos, call->pos, (size_t)call->n_pos * sizeof *pos);
    if (all.u.list->n) memcpy(pos + call->n_pos, all.u.list->items, all.u.list->n * sizeof *pos);
    call->pos = pos;
    call->n_pos = (int)n;
}

static void add_keyword(struct rt *rt, struct tcall *call, struct str name, struct tv value) {
    rt_charge(rt, (size_t)call->n_kw / 4);
    for (int i = 0; i < call->n_kw; i++)
        if (str_eq(call->kw_names[i], name)) rt_raise(rt, "TypeError", "got multiple values for keyword argument '%.*s'", STR_ARG(name));
    call->kw_names[call->n_kw] = name;
    call->kw[call->n_kw++] = value;
}

static void expand_dict(struct rt *rt, struct tcall *call, struct tv dict) {
    if (dict.type == TV_UNDEF) tv_undef_raise(rt, dict);
    if (dict.type != TV_DICT) rt_raise(rt, "TypeError", "argument after ** must be a mapping, not %s", tv_type_name(dict));
    size_t n = (size_t)call->n_kw + dict.u.dict->n;
    if (n > 1000) rt_limit(rt, "a call with %zu keyword arguments", n);
    struct tv *kw = rt_new(rt, struct tv, n);
    struct str *names = rt_new(rt, struct str, n);
    if (call->n_kw) memcpy(kw, call->kw, (size_t)call->n_kw * sizeof *kw);
    if (call->n_kw) memcpy(names, call->kw_names, (size_t)call->n_kw * sizeof *names);
    call->kw = kw;
    call->kw_names = names;
    for (size_t i = 0; i < dict.u.dict->n; i++) {
        if (dict.u.dict->keys[i].type != TV_STR) rt_raise(rt, "TypeError", "keywords must be strings");
        add_keyword(rt, call, tv_str(dict.u.dict->keys[i]), dict.u.dict->values[i]);
    }
}

struct tcall tmpl_eval_args(struct rt *rt, const struct targs *args) {
    struct tcall call = {0};
    if (args->n_pos) call.pos = rt_new(rt, struct tv, args->n_pos);
    for (int i = 0; i < args->n_pos; i++) call.pos[i] = tmpl_eval(rt, args->pos[i]);
    call.n_pos = args->n_pos;
    if (args->n_kw) {
        call.kw = rt_new(rt, struct tv, args->n_kw);
        call.kw_names = rt_new(rt, struct str, args->n_kw);
    }
    for (int i = 0; i < args->n_kw; i++) add_keyword(rt, &call, args->kw_names[i], tmpl_eval(rt, args->kw[i]));
    if (args->dyn_pos) expand_list(rt, &call, tmpl_eval(rt, args->dyn_pos));
    if (args->dyn_kw) expand_dict(rt, &call, tmpl_eval(rt, args->dyn_kw));
    return call;
}

static struct tv eval_call(struct rt *rt, const struct tnode *n) {
    struct tv f = tmpl_eval(rt, n->a);
    struct tcall call = tmpl_eval_args(rt, n->args);
    rt->line = n->line;
    return tmpl_call_value(rt, f, &call);
}

static _Noreturn void unknown(struct rt *rt, const struct tnode *n) {
    rt_raise(rt, "TemplateRuntimeError", "No %s named '%.*s' found.", n->kind == TN_FILTER ? "filter" : "test", STR_ARG(tstr_str(n->str)));
}

/* Filters over an input that is no expression: those of set blocks and filter blocks. */
struct tv tmpl_eval_filter_chain(struct rt *rt, const struct tnode *n, struct tv input) {
    if (!n) return input;
    rt_enter(rt);
    if (!n->func) unknown(rt, n);
    struct tv self = n->a ? tmpl_eval_filter_chain(rt, n->a, input) : input;
    struct tcall call = tmpl_eval_args(rt, n->args);
    rt->line = n->line;
    struct tv v = tmpl_builtin_call(rt, n->func, self, &call);
    rt_leave(rt);
    return v;
}

static struct tv eval_builtin(struct rt *rt, const struct tnode *n) {
    if (!n->func) unknown(rt, n);
    struct tv self = tmpl_eval(rt, n->a);
    struct tcall call = tmpl_eval_args(rt, n->args);
    rt->line = n->line;
    return tmpl_builtin_call(rt, n->func, self, &call);
}

static struct tv eval_binary(struct rt *rt, const struct tnode *n) {
    struct tv a = tmpl_eval(rt, n->a), b = tmpl_eval(rt, n->b);
    rt->line = n->line;
    return tmpl_op_binary(rt, n->u.op, a, b);
}

static struct tv eval_logic(struct rt *rt, const struct tnode *n) {
    struct tv a = tmpl_eval(rt, n->a);
    return tv_truth(rt, a) == (n->kind == TN_AND) ? tmpl_eval(rt, n->b) : a;
}

static struct tv eval_item(struct rt *rt, const struct tnode *n) {
    struct tv obj = tmpl_eval(rt, n->a);
    if (n->kind == TN_GETATTR) {
        rt->line = n->line;
        return tmpl_op_getattr(rt, obj, n->str);
    }
    struct tv key = tmpl_eval(rt, n->b);
    rt->line = n->line;
    return tmpl_op_getitem(rt, obj, key);
}

static struct tv eval_node(struct rt *rt, const struct tnode *n) {
    switch (n->kind) {
    case TN_CONST: return n->value;
    case TN_NAME: return lookup(rt, n->name);
    case TN_LIST: return eval_sequence(rt, n, TV_LIST);
    case TN_TUPLE: return eval_sequence(rt, n, TV_TUPLE);
    case TN_DICT: return eval_dict(rt, n);
    case TN_GETATTR:
    case TN_GETITEM: return eval_item(rt, n);
    case TN_SLICE: return eval_slice(rt, n);
    case TN_CALL: return eval_call(rt, n);
    case TN_FILTER:
    case TN_TEST: return eval_builtin(rt, n);
    case TN_NOT: return tv_bool(!tv_truth(rt, tmpl_eval(rt, n->a)));
    case TN_NEG: return tmpl_op_negate(rt, tmpl_eval(rt, n->a));
    case TN_POS: return tmpl_op_positive(rt, tmpl_eval(rt, n->a));
    case TN_AND:
    case TN_OR: return eval_logic(rt, n);
    case TN_BINARY: return eval_binary(rt, n);
    case TN_CONCAT: return eval_concat(rt, n);
    case TN_COMPARE: return eval_compare(rt, n);
    case TN_COND: return eval_cond(rt, n);
    default: rt_raise(rt, "TemplateRuntimeError", "internal: node %d is no expression", (int)n->kind);
    }
}

struct tv tmpl_eval(struct rt *rt, const struct tnode *n) {
    rt_charge(rt, 1);
    rt_enter(rt);
    rt->line = n->line;
    struct tv v = eval_node(rt, n);
    rt_leave(rt);
    return v;
}
