/* One rendering in progress: limits, scopes, output, and how errors leave it.
 *
 * Errors inside a rendering are raised, not returned: rt_raise writes the message and jumps back to tmpl_render. That is
 * safe here because (1) everything a rendering makes lives in its arena and (2) no function below tmpl_render holds
 * anything else. Nothing outside this folder ever sees the jump.
 */
#ifndef MLXCEL_TEXT_TEMPLATE_TMPL_RT_H
#define MLXCEL_TEXT_TEMPLATE_TMPL_RT_H

#include "text/template/template.h"
#include "text/template/tmpl_ast.h"
#include "text/template/tmpl_value.h"

struct binding {
    int name;
    struct tv value;
};

/* Names set in a block. The outermost scope is rt.globals, indexed by name. */
struct scope {
    struct scope *parent;
    struct binding *bindings;
    int n, capacity;
    bool captured; /* by a macro: may not be reused for the next round of a loop */
};

struct rt {
    struct arena *arena;
    const struct tmpl *t;
    struct tmpl_limits limits;
    struct tmpl_time now;
    struct err *err;
    jmp_buf fail;
    size_t steps_left;
    size_t memory_start; /* arena->total_bytes at the beginning */
    size_t depth;
    int line;            /* of the node in hand */
    struct tv *globals;  /* [n_names]: context and top-level variables; TV_MISSING where unset */
    struct scope *scope; /* innermost; NULL at top level */
    struct tbuf *out;
    struct tbuf *root_out;
    struct tmpl_range *generations;
    size_t n_generations, generations_capacity;
};

/* ---- limits and errors (tmpl_limits.c) ---- */
/* kind is Python's name of the exception. "TemplateError" is raise_exception: its text stands alone. */
_Noreturn void rt_raise(struct rt *rt, const char *kind, const char *fmt, ...) MLXCEL_PRINTF(3, 4);
_Noreturn void rt_limit(struct rt *rt, const char *fmt, ...) MLXCEL_PRINTF(2, 3);
/* Counts work; raises when the budget is spent. */
void rt_charge(struct rt *rt, size_t steps);
/* For copying and plain scanning; and for work on each character. */
static inline void rt_charge_bytes(struct rt *rt, size_t bytes) {
    rt_charge(rt, bytes / 16 + 1);
}
static inline void rt_charge_chars(struct rt *rt, size_t bytes) {
    rt_charge(rt, bytes / 2 + 1);
}
void *rt_alloc(struct rt *rt, size_t bytes); /* zeroed; raises when over the limit */
void *rt_alloc_array(struct rt *rt, size_t size, size_t count);
#define rt_new(rt, type, count) ((type *)rt_alloc_array((rt), sizeof(type), (size_t)(count)))
void rt_enter(struct rt *rt); /* one level deeper; raises RecursionError */
static inline void rt_leave(struct rt *rt) {
    rt->depth--;
}

/* ---- calls ---- */
/* What a call was given, already evaluated. */
struct tcall {
    struct tv *pos;
    struct tv *kw;
    struct str *kw_names;
    int n_pos, n_kw;
};

enum { BUILTIN_MAX_ARGS = 8 };

/* A filter, test, method or function in C. sig names its arguments after self: "old new count?", where ? may be left
 * out (then TV_MISSING); "/" at the front: positional only; "*": the call comes unbound. */
struct builtin {
    const char *name;
    struct tv (*fn)(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call);
    const char *sig;
};

enum builtin_table { BUILTIN_FILTER, BUILTIN_TEST };
const struct builtin *tmpl_builtin_find(enum builtin_table table, struct str name);
const struct builtin *tmpl_builtin_lookup(const struct builtin *table, struct str name); /* table ends with a NULL name */
struct tv tmpl_builtin_call(struct rt *rt, const struct builtin *f, struct tv self, const struct tcall *call);

extern const struct builtin tmpl_filters_text[], tmpl_filters_seq[], tmpl_filters_html[], tmpl_tests[], tmpl_globals[];
extern const struct builtin tmpl_methods_str[], tmpl_methods_str_is[], tmpl_methods_list[], tmpl_methods_tuple[], tmpl_methods_dict[];
extern const struct builtin tmpl_methods_loop[], tmpl_methods_cycler[], tmpl_methods_int[], tmpl_methods_float[], tmpl_methods_range[];

struct tv tmpl_call_value(struct rt *rt, struct tv f, const struct tcall *call);
struct tv tmpl_call_macro(struct rt *rt, const struct tmacro *m, const struct tcall *call);

/* ---- evaluation (tmpl_eval.c, tmpl_exec.c) ---- */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };
struct tv tmpl_eval(struct rt *rt, const struct tnode *n);
struct tcall tmpl_eval_args(struct rt *rt, const struct targs *args);
struct tv tmpl_eval_filter_chain(struct rt *rt, const struct tnode *n, struct tv input);
enum flow tmpl_exec(struct rt *rt, const struct tnode *n);
void tmpl_assign(struct rt *rt, const struct tnode *target, struct tv value);
struct scope *tmpl_scope_push(struct rt *rt);
void tmpl_scope_set(struct rt *rt, struct scope *s, int name, struct tv value);
struct tv tmpl_loop_attr(struct rt *rt, struct tloop *loop, struct str name);
struct tv tmpl_call_block(struct rt *rt, const struct tnode *n);

/* ---- operations (tmpl_ops.c, tmpl_attr.c) ---- */
struct tv tmpl_op_binary(struct rt *rt, enum tk op, struct tv a, struct tv b);
struct tv tmpl_op_negate(struct rt *rt, struct tv a);
struct tv tmpl_op_positive(struct rt *rt, struct tv a);
bool tmpl_op_compare(struct rt *rt, enum tk op, struct tv a, struct tv b);
struct tv tmpl_op_getattr(struct rt *rt, struct tv obj, const struct tstr *name);
struct tv tmpl_op_getitem(struct rt *rt, struct tv obj, struct tv key);
struct tv tmpl_op_slice(struct rt *rt, struct tv obj, struct tv start, struct tv stop, struct tv step);
struct tv tmpl_op_path(struct rt *rt, struct tv obj, struct tv path, struct tv missing); /* "a.b.0" of filters */
struct tv tmpl_op_attr_only(struct rt *rt, struct tv obj, const struct tstr *name);      /* TV_MISSING when there is none */
int64_t tmpl_need_int(struct rt *rt, struct tv v);
int64_t tmpl_arg_int(struct rt *rt, struct tv v, int64_t absent);
bool tmpl_arg_bool(struct rt *rt, struct tv v, bool absent);
const struct tstr *tmpl_need_str(struct rt *rt, struct tv v, const char *what);

/* ---- text of values (tmpl_repr.c, tmpl_tojson.c, tmpl_format.c, tmpl_time.c) ---- */
struct tv tmpl_to_str(struct rt *rt, struct tv v); /* Python's str() */
struct tv tmpl_to_repr(struct rt *rt, struct tv v);
struct tv tmpl_to_ascii(struct rt *rt, struct tv v); /* Python's ascii() */
struct str tmpl_float_repr(struct rt *rt, double f);
struct tv tmpl_to_json(struct rt *rt, struct tv v, const struct tv *options);
struct tv tmpl_escape_html(struct rt *rt, struct tv v); /* a markup string */
struct tv tmpl_format_percent(struct rt *rt, const struct tstr *format, struct tv args);
struct tv tmpl_format_braces(struct rt *rt, const struct tstr *format, const struct tcall *call);
struct tv tmpl_format_value(struct rt *rt, struct tv v, const struct tstr *spec);
struct str tmpl_time_format(struct rt *rt, struct str format);
bool tmpl_number_parse_int(struct str s, int base, int64_t *out, bool *out_overflow);
bool tmpl_number_parse_float(struct str s, double *out);

/* ---- used by several files of filters ---- */
struct tv tmpl_str_strip(struct rt *rt, const struct tstr *s, struct tv chars, bool left, bool right);
struct tv tmpl_str_replace(struct rt *rt, const struct tstr *s, const struct tstr *from, const struct tstr *to, int64_t count);
struct tv tmpl_str_split_lines(struct rt *rt, const struct tstr *s, bool keep_ends);
struct tv tmpl_str_map_case(struct rt *rt, const struct tstr *s, char how); /* 'u', 'l', 'f', 'c' capitalize, 's' swap, 't' title */
struct tv tmpl_str_join(struct rt *rt, const struct tstr *sep, struct tv items, bool convert);
struct tv tmpl_str_center(struct rt *rt, const struct tstr *s, int64_t width, const struct tstr *fill, char align);

#endif
