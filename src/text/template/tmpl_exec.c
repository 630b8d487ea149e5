/* Statements, scopes, loops. What a block sets is seen until the block ends; a loop's round starts with what stood around
 * the loop; `if` has no scope of its own; a macro sees the scope it was defined in, as it is when it runs. */
#include "text/template/tmpl_rt.h"

/* ---- scopes ---- */

struct scope *tmpl_scope_push(struct rt *rt) {
    struct scope *s = rt_new(rt, struct scope, 1);
    s->parent = rt->scope;
    rt->scope = s;
    return s;
}

void tmpl_scope_set(struct rt *rt, struct scope *s, int name, struct tv value) {
    if (!s) {
        rt->globals[name] = value;
        return;
    }
    if (s->n >= 16) rt_charge(rt, (size_t)s->n / 16);
    for (int i = 0; i < s->n; i++)
        if (s->bindings[i].name == name) {
            s->bindings[i].value = value;
            return;
        }
    if (s->n == s->capacity) {
        int capacity = s->capacity ? s->capacity * 2 : 4;
        struct binding *more = rt_new(rt, struct binding, capacity);
        if (s->n) memcpy(more, s->bindings, (size_t)s->n * sizeof *more);
        s->bindings = more;
        s->capacity = capacity;
    }
    s->bindings[s->n++] = (struct binding){name, value};
}

/* A scope for n's body. */
static struct scope *scope_for(struct rt *rt, const struct tnode *n) {
    struct scope *s = tmpl_scope_push(rt);
    for (int i = 0; i < n->hidden.n; i++) tmpl_scope_set(rt, s, n->hidden.names[i], TV_MISSING_V);
    return s;
}

static void capture(struct rt *rt) {
    for (struct scope *s = rt->scope; s && !s->captured; s = s->parent) s->captured = true;
}

/* ---- assignment ---- */

static void unpack(struct rt *rt, const struct tnode *target, struct tv value) {
    if (!tv_is_iterable(value)) rt_raise(rt, "TypeError", "cannot unpack non-iterable %s object", tv_type_name(value));
    struct titer *it = tv_iter(rt, value);
    struct tv items[64], extra;
    if (target->n_list > 64) rt_limit(rt, "more than 64 targets in one assignment");
    for (int i = 0; i < target->n_list; i++)
        if (!titer_next(rt, it, &items[i]))
            rt_raise(rt, "ValueError", "not enough values to unpack (expected %d, got %d)", target->n_list, i);
    if (titer_next(rt, it, &extra)) rt_raise(rt, "ValueError", "too many values to unpack (expected %d)", target->n_list);
    for (int i = 0; i < target->n_list; i++) tmpl_assign(rt, target->list[i], items[i]);
}

static void assign_attribute(struct rt *rt, const struct tnode *target, struct tv value) {
    struct tnode name = {.kind = TN_NAME, .line = target->line, .name = target->name};
    struct tv ns = tmpl_eval(rt, &name);
    if (ns.type != TV_NAMESPACE) rt_raise(rt, "TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    struct str attr = tstr_str(target->str);
    if (str_starts(attr, STR("_")))
        rt_raise(rt, "SecurityError", "chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'",
                 STR_ARG(attr));
    tdict_set(rt, ns.u.dict, (struct tv){TV_STR, {.s = target->str}}, value);
}

void tmpl_assign(struct rt *rt, const struct tnode *target, struct tv value) {
    if (target->kind == TN_NAME) tmpl_scope_set(rt, rt->scope, target->name, value);
    else if (target->kind == TN_NSREF) assign_attribute(rt, target, value);
    else unpack(rt, target, value);
}

/* ---- capturing output ---- */

static struct tv captured_body(struct rt *rt, const struct tnode *n, enum flow *out_flow) {
    struct tbuf *outer = rt->out;
    rt->out = tbuf_new(rt);
    struct scope *scope = rt->scope;
    scope_for(rt, n);
    *out_flow = tmpl_exec(rt, n->body);
    rt->scope = scope;
    struct tv text = tbuf_value(rt, rt->out);
    rt->out = outer;
    return text;
}

static void put(struct rt *rt, struct tv v) {
    tbuf_put_str(rt, rt->out, tmpl_to_str(rt, v).u.s);
}

/* ---- loops ---- */

static bool loop_advance(struct rt *rt, struct tloop *l, struct tv *out) {
    if (l->after.type != TV_MISSING) {
        *out = l->after;
        l->after = TV_MISSING_V;
    } else if (!titer_next(rt, l->iter, out)) {
        return false;
    }
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return true;
}

static struct tv loop_peek(struct rt *rt, struct tloop *l) {
    if (l->after.type == TV_MISSING && !titer_next(rt, l->iter, &l->after)) l->after = TV_MISSING_V;
    return l->after;
}

/* A generator has no length: its rest is collected first, as Jinja does. */
static int64_t loop_length(struct rt *rt, struct tloop *l) {
    if (l->length >= 0) return l->length;
    if (tv_has_len(l->source)) return l->length = tv_len(rt, l->source);
    struct tv rest = tv_list_new(rt, TV_LIST, 4);
    struct tv item;
    while (titer_next(rt, l->iter, &item)) tv_list_push(rt, rest.u.list, item);
    l->iter = tv_iter(rt, rest);
    return l->length = (int64_t)rest.u.list->n + l->index0 + 1 + (l->after.type != TV_MISSING);
}

struct tv tmpl_loop_attr(struct rt *rt, struct tloop *l, struct str name) {
    if (str_is(name, "index")) return tv_int(l->index0 + 1);
    if (str_is(name, "index0")) return tv_int(l->index0);
    if (str_is(name, "first")) return tv_bool(l->index0 == 0);
    if (str_is(name, "last")) return tv_bool(loop_peek(rt, l).type == TV_MISSING);
    if (str_is(name, "length")) return tv_int(loop_length(rt, l));
    if (str_is(name, "revindex")) return tv_int(loop_length(rt, l) - l->index0);
    if (str_is(name, "revindex0")) return tv_int(loop_length(rt, l) - l->index0 - 1);
    if (str_is(name, "depth")) return tv_int(l->depth0 + 1);
    if (str_is(name, "depth0")) return tv_int(l->depth0);
    if (str_is(name, "previtem")) return l->index0 == 0 ? tv_undef_hint(rt, STR("there is no previous item")) : l->before;
    if (!str_is(name, "nextitem")) return TV_MISSING_V;
    struct tv next = loop_peek(rt, l);
    return next.type == TV_MISSING ? tv_undef_hint(rt, STR("there is no next item")) : next;
}

/* The items of a loop that meet its condition, tested as they are needed. */
static bool next_if(struct rt *rt, struct titer *it, struct tv *out) {
    struct scope *scope = rt->scope;
    struct titer *source = it->extra.u.iter;
    while (titer_next(rt, source, out)) {
        rt->scope = it->scope;
        tmpl_scope_push(rt);
        tmpl_assign(rt, it->node->a, *out);
        bool wanted = tv_truth(rt, tmpl_eval(rt, it->node->c));
        rt->scope = scope;
        if (wanted) return true;
    }
    return false;
}

static struct tv filtered(struct rt *rt, const struct tnode *n, struct tv iterable) {
    struct tv source = {TV_ITER, {.iter = tv_iter(rt, iterable)}};
    return tv_iter_lazy(rt, (struct titer){.next = next_if, .node = n, .scope = rt->scope, .extra = source});
}

/* Whether a round came to its end: Jinja runs the else part unless one did, even where rounds were broken off. */
static bool loop_rounds(struct rt *rt, const struct tnode *n, struct tloop *l) {
    bool completed = false;
    struct scope *outer = rt->scope, *s = tmpl_scope_push(rt);
    struct tv item, self = {TV_LOOP, {.loop = l}};
    while (loop_advance(rt, l, &item)) {
        if (s->captured) {
            rt->scope = outer;
            s = tmpl_scope_push(rt);
        }
        s->n = 0;
        for (int i = 0; i < n->hidden.n; i++) tmpl_scope_set(rt, s, n->hidden.names[i], TV_MISSING_V);
        tmpl_scope_set(rt, s, NAME_LOOP, self);
        tmpl_assign(rt, n->a, item);
        enum flow flow = tmpl_exec(rt, n->body);
        rt->scope = s;
        if (flow == FLOW_BREAK) break;
        completed |= flow == FLOW_NEXT;
    }
    rt->scope = outer;
    return completed;
}

static enum flow run_loop(struct rt *rt, const struct tnode *n, struct tv iterable, int64_t depth0) {
    if (n->c) iterable = filtered(rt, n, iterable);
    struct tloop *l = rt_new(rt, struct tloop, 1);
    *l =
        (struct tloop){.iter = tv_iter(rt, iterable), .source = iterable, .index0 = -1, .length = -1, .depth0 = depth0, .scope = rt->scope};
    l->node = n->u.flag ? n : NULL;
    if (n->u.flag) capture(rt);
    if (loop_rounds(rt, n, l) || !n->orelse) return FLOW_NEXT;
    struct scope *outer = rt->scope;
    tmpl_scope_push(rt);
    enum flow flow = tmpl_exec(rt, n->orelse);
    rt->scope = outer;
    return flow;
}

/* loop(children): the body of a recursive loop over other items, as text. */
static struct tv loop_call(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)call;
    struct tloop *l = self.u.loop;
    if (!l->node) rt_raise(rt, "TypeError", "The loop must have the 'recursive' marker to be called recursively.");
    struct tbuf *outer = rt->out;
    struct scope *scope = rt->scope;
    rt->out = tbuf_new(rt);
    rt->scope = l->scope;
    rt_enter(rt);
    run_loop(rt, l->node, args[0], l->depth0 + 1);
    rt_leave(rt);
    struct tv text = tbuf_value(rt, rt->out);
    rt->scope = scope;
    rt->out = outer;
    return text;
}

static struct tv loop_cycle(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)args;
    if (!call->n_pos) rt_raise(rt, "TypeError", "no items for cycling given");
    return call->pos[self.u.loop->index0 % call->n_pos];
}

static struct tv loop_changed(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call) {
    (void)args;
    struct tv now = tv_list_new(rt, TV_TUPLE, (size_t)call->n_pos);
    for (int i = 0; i < call->n_pos; i++) tv_list_push(rt, now.u.list, call->pos[i]);
    bool changed = self.u.loop->changed.type != TV_TUPLE || !tv_eq(rt, self.u.loop->changed, now);
    if (changed) self.u.loop->changed = now;
    return tv_bool(changed);
}

const struct builtin tmpl_methods_loop[] = {
    {"cycle", loop_cycle, "*"},
    {"changed", loop_changed, "*"},
    {"__call__", loop_call, "iterable"},
    {NULL, NULL, NULL},
};

/* ---- macros and blocks ---- */

static struct tv make_macro(struct rt *rt, const struct tnode *n, struct str name) {
    struct tmacro *m = rt_new(rt, struct tmacro, 1);
    m->node = n;
    m->scope = rt->scope;
    m->name = name;
    capture(rt);
    return (struct tv){TV_MACRO, {.macro = m}};
}

static enum flow exec_call_block(struct rt *rt, const struct tnode *n) {
    struct tv caller = make_macro(rt, n, STR("caller")), f = tmpl_eval(rt, n->a->a);
    struct tcall call = tmpl_eval_args(rt, n->a->args), with = call;
    with.kw = rt_new(rt, struct tv, call.n_kw + 1);
    with.kw_names = rt_new(rt, struct str, call.n_kw + 1);
    for (int i = 0; i < call.n_kw; i++) {
        with.kw[i] = call.kw[i];
        with.kw_names[i] = call.kw_names[i];
    }
    with.kw[call.n_kw] = caller;
    with.kw_names[call.n_kw] = STR("caller");
    with.n_kw++;
    rt->line = n->line;
    put(rt, tmpl_call_value(rt, f, &with));
    return FLOW_NEXT;
}

struct tv tmpl_call_block(struct rt *rt, const struct tnode *n) {
    struct tbuf *outer = rt->out;
    struct scope *scope = rt->scope;
    rt->out = tbuf_new(rt);
    rt->scope = NULL;
    scope_for(rt, n);
    rt_enter(rt);
    tmpl_exec(rt, n->body);
    rt_leave(rt);
    struct tv text = tbuf_value(rt, rt->out);
    rt->scope = scope;
    rt->out = outer;
    return text;
}

/* A block sees the top level; a scoped one also what surrounds it. */
static enum flow exec_block(struct rt *rt, const struct tnode *n) {
    struct scope *scope = rt->scope;
    if (!n->u.flag) rt->scope = NULL;
    scope_for(rt, n);
    tmpl_exec(rt, n->body);
    rt->scope = scope;
    return FLOW_NEXT;
}

static void note_generation(struct rt *rt, size_t begin, size_t end) {
    if (rt->n_generations == rt->generations_capacity) {
        size_t capacity = rt->generations_capacity ? rt->generations_capacity * 2 : 8;
        struct tmpl_range *more = rt_new(rt, struct tmpl_range, capacity);
        if (rt->n_generations) memcpy(more, rt->generations, rt->n_generations * sizeof *more);
        rt->generations = more;
        rt->generations_capacity = capacity;
    }
    rt->generations[rt->n_generations++] = (struct tmpl_range){begin, end};
}

static enum flow exec_generation(struct rt *rt, const struct tnode *n) {
    struct scope *scope = rt->scope;
    scope_for(rt, n);
    size_t begin = rt->out->used;
    tmpl_exec(rt, n->body);
    if (rt->out == rt->root_out) note_generation(rt, begin, rt->out->used);
    rt->scope = scope;
    return FLOW_NEXT;
}

/* ---- statements ---- */

static enum flow exec_if(struct rt *rt, const struct tnode *n) {
    for (int i = 0; i < n->n_list; i += 2)
        if (tv_truth(rt, tmpl_eval(rt, n->list[i]))) return tmpl_exec(rt, n->list[i + 1]);
    return n->orelse ? tmpl_exec(rt, n->orelse) : FLOW_NEXT;
}

static enum flow exec_with(struct rt *rt, const struct tnode *n) {
    struct scope *outer = rt->scope, *inner = scope_for(rt, n);
    for (int i = 0; i < n->n_list; i += 2) {
        rt->scope = outer;
        struct tv value = tmpl_eval(rt, n->list[i + 1]);
        rt->scope = inner;
        tmpl_assign(rt, n->list[i], value);
    }
    enum flow flow = tmpl_exec(rt, n->body);
    rt->scope = outer;
    return flow;
}

static enum flow exec_scope(struct rt *rt, const struct tnode *n) {
    if (tv_truth(rt, tmpl_eval(rt, n->a)))
        rt_raise(rt, "TemplateRuntimeError", "autoescape is not supported: chat templates render plain text");
    struct scope *scope = rt->scope;
    scope_for(rt, n);
    enum flow flow = tmpl_exec(rt, n->body);
    rt->scope = scope;
    return flow;
}

static enum flow exec_body(struct rt *rt, const struct tnode *n) {
    for (int i = 0; i < n->n_list; i++) {
        enum flow flow = tmpl_exec(rt, n->list[i]);
        if (flow != FLOW_NEXT) return flow;
    }
    return FLOW_NEXT;
}

static enum flow exec_captured(struct rt *rt, const struct tnode *n) {
    enum flow flow;
    struct tv text = captured_body(rt, n, &flow);
    if (flow != FLOW_NEXT) return flow;
    text = tmpl_eval_filter_chain(rt, n->b, text);
    if (n->kind == TN_SET_BLOCK) tmpl_assign(rt, n->a, text);
    else if (text.type != TV_STR) rt_raise(rt, "TypeError", "sequence item 0: expected str instance, %s found", tv_type_name(text));
    else put(rt, text);
    return FLOW_NEXT;
}

static enum flow exec_node(struct rt *rt, const struct tnode *n) {
    switch (n->kind) {
    case TN_TEXT: tbuf_put_str(rt, rt->out, n->str); return FLOW_NEXT;
    case TN_PRINT: put(rt, tmpl_eval(rt, n->a)); return FLOW_NEXT;
    case TN_IF: return exec_if(rt, n);
    case TN_FOR: return run_loop(rt, n, tmpl_eval(rt, n->b), 0);
    case TN_SET: tmpl_assign(rt, n->a, tmpl_eval(rt, n->b)); return FLOW_NEXT;
    case TN_SET_BLOCK:
    case TN_FILTER_BLOCK: return exec_captured(rt, n);
    case TN_WITH: return exec_with(rt, n);
    case TN_MACRO: tmpl_scope_set(rt, rt->scope, n->name, make_macro(rt, n, rt->t->names[n->name])); return FLOW_NEXT;
    case TN_CALL_BLOCK: return exec_call_block(rt, n);
    case TN_BREAK: return FLOW_BREAK;
    case TN_CONTINUE: return FLOW_CONTINUE;
    case TN_BLOCK: return exec_block(rt, n);
    case TN_GENERATION: return exec_generation(rt, n);
    case TN_SCOPE: return exec_scope(rt, n);
    case TN_BODY: return exec_body(rt, n);
    default:
        rt_raise(rt, "TypeError", "%.*s is not supported: a chat template cannot load other templates", STR_ARG(rt->t->names[n->name]));
    }
}

enum flow tmpl_exec(struct rt *rt, const struct tnode *n) {
    rt_charge(rt, 1);
    rt_enter(rt);
    rt->line = n->line;
    enum flow flow = exec_node(rt, n);
    rt_leave(rt);
    return flow;
}
