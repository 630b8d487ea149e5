/* pprint: Python's pprint.pformat at its default width of 80. What fits on the rest of the line is printed as repr() does;
 * else lists, tuples and dicts go one item a line and strings are broken after white space. Dicts are in the order of keys. */
#include "text/template/tmpl_rt.h"
#include "text/template/tmpl_unicode.h"

enum { PPRINT_WIDTH = 80 };

struct pprint {
    struct rt *rt;
    struct tbuf *out;
    bool user; /* how the whole text is marked */
};

static void format(struct pprint *p, struct tv v, int64_t indent, int64_t allowance, int level);

static void put(struct pprint *p, struct str s) {
    tbuf_put(p->rt, p->out, s, p->user);
}

static void put_line(struct pprint *p, struct str before, int64_t indent) {
    put(p, before);
    put(p, STR("\n"));
    for (int64_t i = 0; i < indent; i++) put(p, STR(" "));
    rt_charge(p->rt, (size_t)(indent > 0 ? indent : 0) / 4);
}

static struct str repr_of(struct pprint *p, struct tv v) {
    return tv_str(to_repr(p->rt, v));
}

static int64_t width_of(struct pprint *p, struct tv v) {
    return (int64_t)tstr_chars(p->rt, to_repr(p->rt, v).u.s);
}

/* A copy whose dicts are in the order of their keys. */
static struct tv sorted_copy(struct rt *rt, struct tv v) {
    rt_charge(rt, 1);
    rt_enter(rt);
    if (tv_is_seq(v)) {
        v = tv_to_list(rt, v, v.type);
        for (size_t i = 0; i < v.u.list->n; i++) v.u.list->items[i] = sorted_copy(rt, v.u.list->items[i]);
    } else if (v.type == TV_DICT) {
        struct tv sensitive = tv_bool(true);
        struct tcall call = {.pos = &sensitive, .n_pos = 1};
        struct tv pairs = builtin_call(rt, builtin_lookup(tmpl_filters_seq, STR("dictsort")), v, &call);
        v = (struct tv){TV_DICT, {.dict = tdict_new(rt)}};
        for (size_t i = 0; i < pairs.u.list->n; i++) {
            const struct tv *kv = pairs.u.list->items[i].u.list->items;
            tdict_set(rt, v.u.dict, kv[0], sorted_copy(rt, kv[1]));
        }
    }
    rt_leave(rt);
    return v;
}

static void format_items(struct pprint *p, const struct tlist *l, int64_t indent, int64_t allowance, int level) {
    for (size_t i = 0; i < l->n; i++) {
        if (i) put_line(p, STR(","), indent);
        format(p, l->items[i], indent, i + 1 == l->n ? allowance : 1, level);
    }
}

static void format_dict(struct pprint *p, const struct tdict *d, int64_t indent, int64_t allowance, int level) {
    put(p, STR("{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i) put_line(p, STR(","), indent + 1);
        put(p, repr_of(p, d->keys[i]));
        put(p, STR(": "));
        format(p, d->values[i], indent + 3 + width_of(p, d->keys[i]), i + 1 == d->n ? allowance + 1 : 1, level);
    }
    put(p, STR("}"));
}

/* The end of the word at `from` with the white space behind it. */
static size_t part_end(const struct tstr *s, size_t from) {
    bool blank = false;
    size_t at = from;
    while (at < s->n) {
        uint32_t code;
        size_t n = utf8_decode(s->p + at, s->n - at, &code);
        if (blank && !uni_is_space(code)) break;
        blank |= uni_is_space(code);
        at += n;
    }
    return at;
}

/* One line of a string, in pieces that fit. */
static void break_line(struct pprint *p, const struct tstr *line, int64_t width, int64_t last_allowance, struct tlist *chunks) {
    size_t start = 0;
    for (size_t at = 0; at < line->n;) {
        size_t end = part_end(line, at);
        if (end == line->n) width -= last_allowance;
        if (width_of(p, tv_sub(p->rt, line, start, end - start)) > width) {
            if (at > start) tv_list_push(p->rt, chunks, to_repr(p->rt, tv_sub(p->rt, line, start, at - start)));
            start = at;
        }
        at = end;
    }
    if (line->n > start) tv_list_push(p->rt, chunks, to_repr(p->rt, tv_sub(p->rt, line, start, line->n - start)));
}

static void format_string(struct pprint *p, struct tv v, int64_t indent, int64_t allowance, int level) {
    struct tv lines = str_split_lines(p->rt, v.u.s, true), chunks = tv_list_new(p->rt, TV_LIST, 4);
    if (level == 1) indent++, allowance++;
    int64_t width = PPRINT_WIDTH - indent;
    for (size_t i = 0; i < lines.u.list->n; i++) {
        struct tv line = lines.u.list->items[i];
        int64_t last = i + 1 == lines.u.list->n ? allowance : 0;
        if (width_of(p, line) <= width - last) tv_list_push(p->rt, chunks.u.list, to_repr(p->rt, line));
        else break_line(p, line.u.s, width, last, chunks.u.list);
    }
    bool wraps = level == 1 && chunks.u.list->n > 1;
    if (wraps) put(p, STR("("));
    for (size_t i = 0; i < chunks.u.list->n; i++) {
        if (i) put_line(p, STR(""), indent);
        put(p, tv_str(chunks.u.list->items[i]));
    }
    if (wraps) put(p, STR(")"));
}

static void format(struct pprint *p, struct tv v, int64_t indent, int64_t allowance, int level) {
    rt_enter(p->rt);
    level++;
    if (width_of(p, v) <= PPRINT_WIDTH - indent - allowance) {
        put(p, repr_of(p, v));
    } else if (v.type == TV_DICT) {
        format_dict(p, v.u.dict, indent, allowance, level);
    } else if (tv_is_seq(v)) {
        bool tuple = v.type == TV_TUPLE, one = tuple && v.u.list->n == 1;
        put(p, tuple ? STR("(") : STR("["));
        format_items(p, v.u.list, indent + 1, allowance + (one ? 2 : 1), level);
        put(p, !tuple ? STR("]") : one ? STR(",)") : STR(")"));
    } else if (v.type == TV_STR && v.u.s->n && !v.u.s->markup) {
        format_string(p, v, indent, allowance, level);
    } else {
        put(p, repr_of(p, v));
    }
    rt_leave(p->rt);
}

struct tv to_pretty(struct rt *rt, struct tv v) {
    struct pprint p = {.rt = rt, .out = tbuf_new(rt), .user = tv_any_user(rt, v)};
    format(&p, sorted_copy(rt, v), 0, 0, 0);
    return tbuf_value(rt, p.out);
}
