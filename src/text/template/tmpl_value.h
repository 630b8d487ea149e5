/* The interpreter's one value type, after Python's: a tag and a word.
 *
 * (1) Values are immutable once they are visible to the template, except namespaces, iterators, cyclers and joiners.
 * (2) Everything a value points to lives in the render's arena; nothing is freed.
 * (3) A string knows for each of its bytes whether the user or the template wrote it. Most strings are of one kind
 *     (marks == NULL, `user` tells); only a mixture carries a byte of mark for each byte of text. Whoever copies bytes
 *     copies their marks (tbuf_put does); whoever makes new text from user text marks all of it as the user's.
 * (4) Text is valid UTF-8, and Python's indices count characters.
 */
#ifndef MLXCEL_TEXT_TEMPLATE_TMPL_VALUE_H
#define MLXCEL_TEXT_TEMPLATE_TMPL_VALUE_H

#include "base/str.h"

struct rt;
struct tnode;
struct scope;
struct tcall;

enum tv_type {
    TV_MISSING, /* never seen by a template: an argument that was not given */
    TV_UNDEF,
    TV_NONE,
    TV_BOOL,
    TV_INT,
    TV_FLOAT,
    TV_BIG, /* an integer beyond 64 bits from the context: prints, compares equal, does not calculate */
    TV_STR,
    TV_LIST,
    TV_TUPLE,
    TV_DICT,
    TV_RANGE,
    TV_VIEW, /* dict.keys(), .values(), .items() */
    TV_ITER, /* a generator: can be walked once */
    TV_NAMESPACE,
    TV_LOOP,
    TV_MACRO,
    TV_FUNC,   /* a global function */
    TV_METHOD, /* a builtin bound to its object */
    TV_CYCLER,
    TV_JOINER,
    TV_SELF, /* `self`, through which blocks are called */
    TV_BLOCK,
    N_TV_TYPES
};

struct tv {
    enum tv_type type;
    union {
        bool b;
        int64_t i;
        double f;
        struct tstr *s;
        struct tlist *list;
        struct tdict *dict; /* also namespaces */
        struct trange *range;
        struct tview *view;
        struct titer *iter;
        struct tloop *loop;
        struct tmacro *macro;
        const struct builtin *func;
        struct tmethod *method;
        struct tcycler *cycler;
        struct tundef *undef;
        const struct tnode *block;
    } u;
};

/* Bytes that may still grow at their end; strings share its front. */
struct tbuf {
    char *p;
    unsigned char *marks; /* NULL while all bytes are of one kind */
    size_t used, capacity;
    bool user;
};

struct tstr {
    const char *p;
    size_t n;
    const unsigned char *marks;
    struct tbuf *buf; /* where p points into, or NULL */
    size_t n_chars;   /* STR_NONE until counted */
    bool user;
    bool markup; /* result of safe or escape: what is added to it gets escaped */
};

struct tlist {
    struct tv *items;
    size_t n, capacity;
    struct tlist *owner; /* the list whose items are shared; its n is how far the array is taken */
    bool is_group;       /* a tuple of groupby: has .grouper and .list */
};

struct tdict {
    struct tv *keys, *values; /* in order of insertion */
    size_t n, capacity;
    uint32_t *slots; /* index + 1; NULL while n is small */
    size_t n_slots;
};

struct trange {
    int64_t start, stop, step, n;
};

/* Item i. The steps in between may leave 64 bits, so it wraps; beyond the last item only what is printed depends on it. */
static inline int64_t trange_at(const struct trange *r, int64_t i) {
    return (int64_t)((uint64_t)r->start + (uint64_t)i * (uint64_t)r->step);
}

enum tview_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct tview {
    struct tdict *dict;
    enum tview_kind kind;
};

struct titer {
    struct tv source;                                              /* list, tuple, dict, string, range, view, or another iterator */
    size_t position;                                               /* item or byte */
    bool (*next)(struct rt *rt, struct titer *it, struct tv *out); /* NULL: walk the source */
    struct tcall *call;                                            /* what a lazy filter was given */
    const struct builtin *func;
    const struct tnode *node; /* a loop's own condition */
    struct scope *scope;
    struct tv extra;
    const char *type_name; /* as Python calls it */
    int64_t count;
    bool negate, done, running;
};

struct tloop {
    struct titer *iter;
    struct tv source, current, before, after; /* after: peeked, or TV_MISSING */
    struct tv changed;
    int64_t index0, length; /* length -1: not known */
    int64_t depth0;
    const struct tnode *node; /* the for, when it is recursive */
    struct scope *scope;      /* where it stands */
};

struct tmacro {
    const struct tnode *node;
    struct scope *scope;
    struct str name;
};

struct tmethod {
    struct tv self;
    const struct builtin *func;
};

struct tcycler {
    struct tlist *items;
    struct tstr *sep; /* joiner */
    size_t position;
    bool used;
};

struct tundef {
    struct str hint; /* the whole message, or empty */
    bool has_obj, unsafe;
    enum tv_type obj_type;
    const char *obj_name;
    struct tv name;
};

static const struct tv TV_NONE_V = {TV_NONE, {0}};
static const struct tv TV_MISSING_V = {TV_MISSING, {0}};

static inline struct tv tv_bool(bool b) {
    return (struct tv){TV_BOOL, {.b = b}};
}
static inline struct tv tv_int(int64_t i) {
    return (struct tv){TV_INT, {.i = i}};
}
static inline struct tv tv_float(double f) {
    return (struct tv){TV_FLOAT, {.f = f}};
}
static inline bool tv_is_str(struct tv v) {
    return v.type == TV_STR;
}
static inline bool tv_is_seq(struct tv v) {
    return v.type == TV_LIST || v.type == TV_TUPLE;
}
/* bool counts as int, as in Python */
static inline bool tv_is_int(struct tv v) {
    return v.type == TV_INT || v.type == TV_BOOL;
}
static inline bool tv_is_num(struct tv v) {
    return tv_is_int(v) || v.type == TV_FLOAT;
}
static inline int64_t tv_as_int(struct tv v) {
    return v.type == TV_BOOL ? (int64_t)v.u.b : v.u.i;
}
static inline double tv_as_float(struct tv v) {
    return v.type == TV_FLOAT ? v.u.f : (double)tv_as_int(v);
}
static inline struct str tstr_str(const struct tstr *s) {
    return (struct str){s->p, s->n};
}
static inline struct str tv_str(struct tv v) {
    return tstr_str(v.u.s);
}

/* Strings (tmpl_str.c). A piece is bytes [from, from + n) of s, with marks. */
struct tv tv_str_of(struct rt *rt, struct str s, bool user); /* not copied */
struct tv tv_str_copy(struct rt *rt, struct str s, bool user);
struct tv tv_str_const(struct rt *rt, const char *c);
struct tv tv_sub(struct rt *rt, const struct tstr *s, size_t from, size_t n);
struct tv tv_concat(struct rt *rt, const struct tstr *a, const struct tstr *b);
size_t tstr_chars(struct rt *rt, const struct tstr *s);
/* Byte offset of character i (0 <= i <= number of characters). */
size_t tstr_offset(struct rt *rt, const struct tstr *s, size_t i);
/* Searching is plain, and charged by the work done, so that needles made to be slow run into the limit. STR_NONE: absent. */
size_t tstr_find(struct rt *rt, struct str s, struct str needle, size_t from);
size_t tstr_find_last(struct rt *rt, struct str s, struct str needle); /* the last place */
bool tstr_any_user(const struct tstr *s);
bool tstr_user_at(const struct tstr *s, size_t at);

void tbuf_put(struct rt *rt, struct tbuf *b, struct str s, bool user);
void tbuf_puts(struct rt *rt, struct tbuf *b, const char *c); /* template text */
void tbuf_put_code(struct rt *rt, struct tbuf *b, uint32_t code, bool user);
void tbuf_put_str(struct rt *rt, struct tbuf *b, const struct tstr *s);
void tbuf_put_sub(struct rt *rt, struct tbuf *b, const struct tstr *s, size_t from, size_t n);
void tbuf_put_repeat(struct rt *rt, struct tbuf *b, const struct tstr *fill, size_t count);
struct tv tbuf_value(struct rt *rt, struct tbuf *b); /* the buffer must be the arena's own: tbuf_new */
struct tbuf *tbuf_new(struct rt *rt);

/* Lists and dicts (tmpl_value.c). */
struct tv tv_list_new(struct rt *rt, enum tv_type type, size_t capacity);
void tv_list_push(struct rt *rt, struct tlist *list, struct tv item);
struct tv tv_list_concat(struct rt *rt, struct tv a, struct tv b);
struct tv tv_pair(struct rt *rt, struct tv a, struct tv b);
struct tdict *tdict_new(struct rt *rt);
void tdict_set(struct rt *rt, struct tdict *d, struct tv key, struct tv value);
struct tv *tdict_get(struct rt *rt, const struct tdict *d, struct tv key); /* NULL when absent */
struct tv *tdict_get_str(const struct tdict *d, struct str key);

bool tv_truth(struct rt *rt, struct tv v);
bool tv_eq(struct rt *rt, struct tv a, struct tv b);
bool tv_same(struct tv a, struct tv b); /* Python's `is` */
/* -1, 0, 1; 2 when unordered (NaN). Raises TypeError, naming op, when Python would. */
int tv_compare(struct rt *rt, struct tv a, struct tv b, const char *op);
bool tv_contains(struct rt *rt, struct tv item, struct tv container);
int64_t tv_len(struct rt *rt, struct tv v); /* raises TypeError */
bool tv_has_len(struct tv v);
bool tv_is_iterable(struct tv v);
bool tv_any_user(struct rt *rt, struct tv v); /* does any string in it come from the user? */
const char *tv_type_name(struct tv v);        /* as Python's type(v).__name__ */

/* Undefined values. */
struct tv tv_undef_name(struct rt *rt, struct str name);
struct tv tv_undef_attr(struct rt *rt, struct tv obj, struct tv name);
struct tv tv_undef_hint(struct rt *rt, struct str hint);
struct tv tv_undef_unsafe(struct rt *rt, struct tv obj, struct str name);
_Noreturn void tv_undef_raise(struct rt *rt, struct tv v);

/* Iteration (tmpl_iter.c). */
struct titer *tv_iter(struct rt *rt, struct tv v); /* raises TypeError when v cannot be walked */
bool titer_next(struct rt *rt, struct titer *it, struct tv *out);
struct tv tv_iter_lazy(struct rt *rt, struct titer init);
struct tv tv_to_list(struct rt *rt, struct tv v, enum tv_type type); /* a fresh list or tuple */

#endif
