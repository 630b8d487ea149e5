/* Methods of str. Pieces keep their marks: what is cut out of user text stays user text. */
#include "text/template/tmpl_rt.h"
#include "text/template/tmpl_unicode.h"

#define METHOD(name) static struct tv name(struct rt *rt, struct tv self, const struct tv *args, const struct tcall *call)
#define UNUSED (void)rt, (void)self, (void)args, (void)call

/* A method of Markup gives Markup. */
static struct tv like(struct tv self, struct tv v) {
    if (v.type == TV_STR) v.u.s->markup = self.u.s->markup;
    return v;
}

/* ---- case ---- */

static void put_codes(struct rt *rt, struct tbuf *b, const uint32_t *codes, int n, bool user) {
    for (int i = 0; i < n; i++) tbuf_put_code(rt, b, codes[i], user);
}

/* Sigma at the end of a word has its own small letter. */
static bool is_final_sigma(const struct tstr *s, size_t at) {
    bool before = false;
    for (size_t i = at; i > 0;) {
        i--;
        while (i && ((unsigned char)s->p[i] & 0xC0) == 0x80) i--;
        uint32_t code;
        utf8_decode(s->p + i, s->n - i, &code);
        if (uni_is_case_ignorable(code)) continue;
        before = uni_is_cased(code);
        break;
    }
    for (size_t i = at + 2; before && i < s->n;) {
        uint32_t code;
        i += utf8_decode(s->p + i, s->n - i, &code);
        if (uni_is_case_ignorable(code)) continue;
        return !uni_is_cased(code);
    }
    return before;
}

static int lower_at(const struct tstr *s, size_t at, uint32_t code, uint32_t out[3]) {
    if (code == 0x3A3 && is_final_sigma(s, at)) {
        out[0] = 0x3C2;
        return 1;
    }
    return uni_lower(code, out);
}

struct tv tmpl_str_map_case(struct rt *rt, const struct tstr *s, char how) {
    struct tbuf *b = tbuf_new(rt);
    bool in_word = false;
    rt_charge_chars(rt, s->n);
    for (size_t i = 0; i < s->n;) {
        uint32_t code, out[3];
        size_t n = utf8_decode(s->p + i, s->n - i, &code);
        int k;
        switch (how) {
        case 'u': k = uni_upper(code, out); break;
        case 'l': k = lower_at(s, i, code, out); break;
        case 'f': k = uni_fold(code, out); break;
        case 'c': k = i == 0 ? uni_title(code, out) : lower_at(s, i, code, out); break;
        case 's':
            out[0] = code;
            k = uni_is_upper(code) ? lower_at(s, i, code, out) : uni_is_lower(code) ? uni_upper(code, out) : 1;
            break;
        default: k = in_word ? lower_at(s, i, code, out) : uni_title(code, out); break;
        }
        in_word = uni_is_cased(code);
        put_codes(rt, b, out, k, tstr_user_at(s, i));
        i += n;
    }
    return tbuf_value(rt, b);
}

METHOD(m_upper) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, self.u.s, 'u'));
}
METHOD(m_lower) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, self.u.s, 'l'));
}
METHOD(m_casefold) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, self.u.s, 'f'));
}
METHOD(m_capitalize) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, self.u.s, 'c'));
}
METHOD(m_swapcase) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, self.u.s, 's'));
}
METHOD(m_title) {
    UNUSED;
    return like(self, tmpl_str_map_case(rt, self.u.s, 't'));
}

/* ---- strip ---- */

static bool in_set(struct rt *rt, const struct tstr *set, const char *p, size_t n) {
    return tstr_find(rt, tstr_str(set), str_n(p, n), 0) != STR_NONE;
}

struct tv tmpl_str_strip(struct rt *rt, const struct tstr *s, struct tv chars, bool left, bool right) {
    struct str text = tstr_str(s);
    const struct tstr *set = NULL;
    if (chars.type != TV_MISSING && chars.type != TV_NONE) set = tmpl_need_str(rt, chars, "strip arg");
    size_t from = 0, to = s->n;
    rt_charge_bytes(rt, s->n / 16);
    if (!set) {
        if (left) text = uni_strip_left(text);
        if (right) text = uni_strip_right(text);
        from = s->n ? (size_t)(text.p - s->p) : 0;
        return tv_sub(rt, s, from, text.n);
    }
    uint32_t code;
    while (left && from < to) {
        size_t n = utf8_decode(s->p + from, to - from, &code);
        if (!in_set(rt, set, s->p + from, n)) break;
        from += n;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s->p[at] & 0xC0) == 0x80) at--;
        if (!in_set(rt, set, s->p + at, to - at)) break;
        to = at;
    }
    return tv_sub(rt, s, from, to - from);
}

METHOD(m_strip) {
    UNUSED;
    return tmpl_str_strip(rt, self.u.s, args[0], true, true);
}
METHOD(m_lstrip) {
    UNUSED;
    return tmpl_str_strip(rt, self.u.s, args[0], true, false);
}
METHOD(m_rstrip) {
    UNUSED;
    return tmpl_str_strip(rt, self.u.s, args[0], false, true);
}

METHOD(m_removeprefix) {
    UNUSED;
    struct str s = tv_str(self), prefix = tstr_str(tmpl_need_str(rt, args[0], "removeprefix() argument"));
    size_t n = str_starts(s, prefix) ? prefix.n : 0;
    return tv_sub(rt, self.u.s, n, s.n - n);
}

METHOD(m_removesuffix) {
    UNUSED;
    struct str s = tv_str(self), suffix = tstr_str(tmpl_need_str(rt, args[0], "removesuffix() argument"));
    return tv_sub(rt, self.u.s, 0, s.n - (str_ends(s, suffix) ? suffix.n : 0));
}

/* ---- split ---- */

static struct tv split_space(struct rt *rt, const struct tstr *s, int64_t max) {
    struct tv list = tv_list_new(rt, TV_LIST, 4);
    struct str rest = uni_strip_left(tstr_str(s));
    while (rest.n) {
        size_t at = (size_t)(rest.p - s->p), end = 0;
        if (max >= 0 && (int64_t)list.u.list->n == max) {
            tv_list_push(rt, list.u.list, tv_sub(rt, s, at, rest.n));
            break;
        }
        for (uint32_t code; end < rest.n;) {
            size_t n = utf8_decode(rest.p + end, rest.n - end, &code);
            if (uni_is_space(code)) break;
            end += n;
        }
        tv_list_push(rt, list.u.list, tv_sub(rt, s, at, end));
        rest = uni_strip_left(str_from(rest, end));
    }
    return list;
}

static struct tv split_sep(struct rt *rt, const struct tstr *s, const struct tstr *sep, int64_t max) {
    struct tv list = tv_list_new(rt, TV_LIST, 4);
    if (!sep->n) rt_raise(rt, "ValueError", "empty separator");
    size_t from = 0;
    while (max < 0 || (int64_t)list.u.list->n < max) {
        size_t at = tstr_find(rt, tstr_str(s), tstr_str(sep), from);
        if (at == STR_NONE) break;
        tv_list_push(rt, list.u.list, tv_sub(rt, s, from, at - from));
        from = at + sep->n;
    }
    tv_list_push(rt, list.u.list, tv_sub(rt, s, from, s->n - from));
    return list;
}

static struct tv reversed_list(struct rt *rt, struct tv list) {
    (void)rt;
    struct tlist *l = list.u.list;
    for (size_t i = 0; i + 1 < l->n - i; i++) {
        struct tv swap = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = swap;
    }
    return list;
}

static struct tv rsplit_sep(struct rt *rt, const struct tstr *s, const struct tstr *sep, int64_t max) {
    struct tv list = tv_list_new(rt, TV_LIST, 4);
    if (!sep->n) rt_raise(rt, "ValueError", "empty separator");
    size_t end = s->n;
    while (max < 0 || (int64_t)list.u.list->n < max) {
        size_t at = tstr_find_last(rt, str_sub(tstr_str(s), 0, end), tstr_str(sep));
        if (at == STR_NONE) break;
        tv_list_push(rt, list.u.list, tv_sub(rt, s, at + sep->n, end - at - sep->n));
        end = at;
    }
    tv_list_push(rt, list.u.list, tv_sub(rt, s, 0, end));
    return reversed_list(rt, list);
}

static struct tv rsplit_space(struct rt *rt, const struct tstr *s, int64_t max) {
    struct tv list = tv_list_new(rt, TV_LIST, 4);
    struct str rest = uni_strip_right(tstr_str(s));
    while (rest.n) {
        if (max >= 0 && (int64_t)list.u.list->n == max) {
            tv_list_push(rt, list.u.list, tv_sub(rt, s, 0, rest.n));
            break;
        }
        size_t from = rest.n;
        while (from) {
            size_t at = from - 1;
            while (at && ((unsigned char)rest.p[at] & 0xC0) == 0x80) at--;
            uint32_t code;
            utf8_decode(rest.p + at, rest.n - at, &code);
            if (uni_is_space(code)) break;
            from = at;
        }
        tv_list_push(rt, list.u.list, tv_sub(rt, s, from, rest.n - from));
        rest = uni_strip_right(str_sub(rest, 0, from));
    }
    return reversed_list(rt, list);
}

METHOD(m_split) {
    UNUSED;
    int64_t max = tmpl_arg_int(rt, args[1], -1);
    rt_charge_bytes(rt, self.u.s->n * 4);
    if (args[0].type == TV_MISSING || args[0].type == TV_NONE) return split_space(rt, self.u.s, max);
    return split_sep(rt, self.u.s, tmpl_need_str(rt, args[0], "split() separator"), max);
}

METHOD(m_rsplit) {
    UNUSED;
    int64_t max = tmpl_arg_int(rt, args[1], -1);
    rt_charge_bytes(rt, self.u.s->n * 4);
    if (args[0].type == TV_MISSING || args[0].type == TV_NONE) return rsplit_space(rt, self.u.s, max);
    return rsplit_sep(rt, self.u.s, tmpl_need_str(rt, args[0], "rsplit() separator"), max);
}

struct tv tmpl_str_split_lines(struct rt *rt, const struct tstr *s, bool keep_ends) {
    struct tv list = tv_list_new(rt, TV_LIST, 4);
    rt_charge_bytes(rt, s->n * 4);
    for (size_t from = 0, at = 0; from < s->n;) {
        uint32_t code = 0;
        size_t n = 0;
        while (at < s->n) {
            n = utf8_decode(s->p + at, s->n - at, &code);
            if (uni_is_line_break(code)) break;
            at += n;
        }
        size_t end = at;
        if (at < s->n) {
            at += n;
            if (code == '\r' && at < s->n && s->p[at] == '\n') at++;
        }
        tv_list_push(rt, list.u.list, tv_sub(rt, s, from, (keep_ends ? at : end) - from));
        from = at;
    }
    return list;
}

METHOD(m_splitlines) {
    UNUSED;
    return tmpl_str_split_lines(rt, self.u.s, tmpl_arg_bool(rt, args[0], false));
}

static struct tv three(struct rt *rt, struct tv a, struct tv b, struct tv c) {
    struct tv t = tv_list_new(rt, TV_TUPLE, 3);
    tv_list_push(rt, t.u.list, a);
    tv_list_push(rt, t.u.list, b);
    tv_list_push(rt, t.u.list, c);
    return t;
}

static struct tv partition(struct rt *rt, const struct tstr *s, const struct tstr *sep, bool last) {
    if (!sep->n) rt_raise(rt, "ValueError", "empty separator");
    rt_charge_bytes(rt, s->n);
    size_t at = last ? tstr_find_last(rt, tstr_str(s), tstr_str(sep)) : tstr_find(rt, tstr_str(s), tstr_str(sep), 0);
    struct tv none = tv_sub(rt, s, 0, 0), whole = tv_sub(rt, s, 0, s->n);
    if (at == STR_NONE) return last ? three(rt, none, none, whole) : three(rt, whole, none, none);
    return three(rt, tv_sub(rt, s, 0, at), tv_sub(rt, s, at, sep->n), tv_sub(rt, s, at + sep->n, s->n - at - sep->n));
}

METHOD(m_partition) {
    UNUSED;
    return partition(rt, self.u.s, tmpl_need_str(rt, args[0], "partition() separator"), false);
}
METHOD(m_rpartition) {
    UNUSED;
    return partition(rt, self.u.s, tmpl_need_str(rt, args[0], "rpartition() separator"), true);
}

/* ---- replace and join ---- */

struct tv tmpl_str_replace(struct rt *rt, const struct tstr *s, const struct tstr *from, const struct tstr *to, int64_t count) {
    struct tbuf *b = tbuf_new(rt);
    size_t at = 0;
    rt_charge_bytes(rt, s->n / 2);
    for (int64_t done = 0; count < 0 || done < count; done++) {
        size_t hit = tstr_find(rt, tstr_str(s), tstr_str(from), at);
        if (hit == STR_NONE) break;
        rt_charge(rt, 1);
        tbuf_put_sub(rt, b, s, at, hit - at);
        tbuf_put_str(rt, b, to);
        at = hit + from->n;
        if (from->n) continue;
        if (at >= s->n) return tbuf_value(rt, b);
        uint32_t code; /* an empty needle stands before each character */
        size_t n = utf8_decode(s->p + at, s->n - at, &code);
        tbuf_put_sub(rt, b, s, at, n);
        at += n;
    }
    tbuf_put_sub(rt, b, s, at, s->n - at);
    return tbuf_value(rt, b);
}

METHOD(m_replace) {
    UNUSED;
    struct tv to = {TV_STR, {.s = (struct tstr *)(uintptr_t)tmpl_need_str(rt, args[1], "replace() argument 2")}};
    if (self.u.s->markup) to = tmpl_escape_html(rt, to);
    return like(self,
                tmpl_str_replace(rt, self.u.s, tmpl_need_str(rt, args[0], "replace() argument 1"), to.u.s, tmpl_arg_int(rt, args[2], -1)));
}

struct tv tmpl_str_join(struct rt *rt, const struct tstr *sep, struct tv items, bool convert) {
    struct titer *it = tv_iter(rt, items);
    struct tbuf *b = tbuf_new(rt);
    struct tv item;
    for (int64_t i = 0; titer_next(rt, it, &item); i++) {
        if (convert) item = tmpl_to_str(rt, item);
        if (item.type != TV_STR)
            rt_raise(rt, "TypeError", "sequence item %lld: expected str instance, %s found", (long long)i, tv_type_name(item));
        if (sep->markup) item = tmpl_escape_html(rt, item);
        if (i) tbuf_put_str(rt, b, sep);
        tbuf_put_str(rt, b, item.u.s);
    }
    return tbuf_value(rt, b);
}

METHOD(m_join) {
    UNUSED;
    if (!tv_is_iterable(args[0])) rt_raise(rt, "TypeError", "can only join an iterable");
    return like(self, tmpl_str_join(rt, self.u.s, args[0], false));
}

/* ---- searching ---- */

struct window {
    size_t from, to; /* bytes */
    bool empty;      /* start lies behind the end: nothing is found, not even "" */
};

static struct window window_of(struct rt *rt, const struct tstr *s, struct tv start, struct tv end) {
    int64_t n = (int64_t)tstr_chars(rt, s), a = 0, b = n;
    if (start.type != TV_MISSING && start.type != TV_NONE) a = tmpl_need_int(rt, start);
    if (end.type != TV_MISSING && end.type != TV_NONE) b = tmpl_need_int(rt, end);
    if (a < 0) a = a < -n ? 0 : a + n;
    if (b < 0) b = b < -n ? 0 : b + n;
    if (b > n) b = n;
    if (a > n || a > b) return (struct window){0, 0, true};
    return (struct window){tstr_offset(rt, s, (size_t)a), tstr_offset(rt, s, (size_t)b), false};
}

static int64_t char_index(const struct tstr *s, size_t at) {
    int64_t n = 0;
    for (size_t i = 0; i < at; i++) n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
    return n;
}

static int64_t find(struct rt *rt, struct tv self, const struct tv *args, bool last, const char *what) {
    const struct tstr *s = self.u.s, *needle = tmpl_need_str(rt, args[0], what);
    struct window w = window_of(rt, s, args[1], args[2]);
    rt_charge_bytes(rt, s->n);
    if (w.empty) return -1;
    struct str hay = str_sub(tstr_str(s), 0, w.to);
    size_t at = last ? tstr_find_last(rt, hay, tstr_str(needle)) : tstr_find(rt, hay, tstr_str(needle), w.from);
    if (at == STR_NONE || at < w.from) return -1;
    return char_index(s, at);
}

static struct tv need_found(struct rt *rt, int64_t at) {
    if (at < 0) rt_raise(rt, "ValueError", "substring not found");
    return tv_int(at);
}

METHOD(m_find) {
    UNUSED;
    return tv_int(find(rt, self, args, false, "find() argument 1"));
}
METHOD(m_rfind) {
    UNUSED;
    return tv_int(find(rt, self, args, true, "rfind() argument 1"));
}
METHOD(m_index) {
    UNUSED;
    return need_found(rt, find(rt, self, args, false, "index() argument 1"));
}
METHOD(m_rindex) {
    UNUSED;
    return need_found(rt, find(rt, self, args, true, "rindex() argument 1"));
}

METHOD(m_count) {
    UNUSED;
    const struct tstr *s = self.u.s, *needle = tmpl_need_str(rt, args[0], "count() argument 1");
    struct window w = window_of(rt, s, args[1], args[2]);
    rt_charge_bytes(rt, s->n);
    if (w.empty) return tv_int(0);
    struct str hay = str_sub(tstr_str(s), w.from, w.to - w.from);
    if (!needle->n) return tv_int(char_index(s, w.to) - char_index(s, w.from) + 1);
    int64_t n = 0;
    for (size_t at = tstr_find(rt, hay, tstr_str(needle), 0); at != STR_NONE; at = tstr_find(rt, hay, tstr_str(needle), at + needle->n))
        n++;
    return tv_int(n);
}

static bool affix_matches(struct str part, struct tv affix, bool at_end) {
    return at_end ? str_ends(part, tv_str(affix)) : str_starts(part, tv_str(affix));
}

static struct tv affix(struct rt *rt, struct tv self, const struct tv *args, bool at_end) {
    struct window w = window_of(rt, self.u.s, args[1], args[2]);
    struct str part = str_sub(tv_str(self), w.from, w.to - w.from);
    const char *name = at_end ? "endswith" : "startswith";
    if (args[0].type == TV_UNDEF) rt_raise(rt, "TypeError", "%s first arg must be str or a tuple of str, not Undefined", name);
    if (args[0].type == TV_STR) return tv_bool(!w.empty && affix_matches(part, args[0], at_end));
    if (args[0].type != TV_TUPLE)
        rt_raise(rt, "TypeError", "%s first arg must be str or a tuple of str, not %s", name, tv_type_name(args[0]));
    const struct tlist *l = args[0].u.list;
    for (size_t i = 0; i < l->n; i++) {
        if (l->items[i].type != TV_STR)
            rt_raise(rt, "TypeError", "tuple for %s must only contain str, not %s", name, tv_type_name(l->items[i]));
        if (!w.empty && affix_matches(part, l->items[i], at_end)) return tv_bool(true);
    }
    return tv_bool(false);
}

METHOD(m_startswith) {
    UNUSED;
    return affix(rt, self, args, false);
}
METHOD(m_endswith) {
    UNUSED;
    return affix(rt, self, args, true);
}

/* ---- padding ---- */

struct tv tmpl_str_center(struct rt *rt, const struct tstr *s, int64_t width, const struct tstr *fill, char align) {
    int64_t n = (int64_t)tstr_chars(rt, s);
    if (width <= n) return tv_sub(rt, s, 0, s->n);
    int64_t pad = width - n, left = align == 'c' ? pad / 2 + (pad & width & 1) : align == 'r' ? pad : 0;
    struct tbuf *b = tbuf_new(rt);
    tbuf_put_repeat(rt, b, fill, (size_t)left);
    tbuf_put_str(rt, b, s);
    tbuf_put_repeat(rt, b, fill, (size_t)(pad - left));
    return tbuf_value(rt, b);
}

static struct tv pad_with(struct rt *rt, struct tv self, const struct tv *args, char align) {
    const struct tstr *fill = args[1].type == TV_MISSING ? tv_str_const(rt, " ").u.s : tmpl_need_str(rt, args[1], "the fill character");
    if (tstr_chars(rt, fill) != 1) rt_raise(rt, "TypeError", "The fill character must be exactly one character long");
    return like(self, tmpl_str_center(rt, self.u.s, tmpl_need_int(rt, args[0]), fill, align));
}

METHOD(m_center) {
    UNUSED;
    return pad_with(rt, self, args, 'c');
}
METHOD(m_ljust) {
    UNUSED;
    return pad_with(rt, self, args, 'l');
}
METHOD(m_rjust) {
    UNUSED;
    return pad_with(rt, self, args, 'r');
}

METHOD(m_zfill) {
    UNUSED;
    const struct tstr *s = self.u.s;
    int64_t width = tmpl_need_int(rt, args[0]), n = (int64_t)tstr_chars(rt, s);
    if (width <= n) return tv_sub(rt, s, 0, s->n);
    size_t sign = s->n && (s->p[0] == '+' || s->p[0] == '-');
    struct tbuf *b = tbuf_new(rt);
    tbuf_put_sub(rt, b, s, 0, sign);
    tbuf_put_repeat(rt, b, tv_str_const(rt, "0").u.s, (size_t)(width - n));
    tbuf_put_sub(rt, b, s, sign, s->n - sign);
    return like(self, tbuf_value(rt, b));
}

METHOD(m_expandtabs) {
    UNUSED;
    const struct tstr *s = self.u.s;
    int64_t size = tmpl_arg_int(rt, args[0], 8), column = 0;
    struct tbuf *b = tbuf_new(rt);
    struct tv blank = tv_str_const(rt, " ");
    rt_charge_chars(rt, s->n);
    for (size_t i = 0; i < s->n; i++) {
        char c = s->p[i];
        if (c == '\t') {
            int64_t fill = size > 0 ? size - column % size : 0;
            tbuf_put_repeat(rt, b, blank.u.s, (size_t)fill);
            column += fill;
            continue;
        }
        tbuf_put_sub(rt, b, s, i, 1);
        if (c == '\n' || c == '\r') column = 0;
        else column += ((unsigned char)c & 0xC0) != 0x80;
    }
    return tbuf_value(rt, b);
}

METHOD(m_format) {
    UNUSED;
    return like(self, tmpl_format_braces(rt, self.u.s, call));
}

METHOD(m_format_map) {
    UNUSED;
    struct tcall with = {0};
    if (args[0].type != TV_DICT) rt_raise(rt, "TypeError", "format_map() takes a mapping");
    const struct tdict *d = args[0].u.dict;
    with.kw = d->values;
    with.kw_names = rt_new(rt, struct str, d->n + 1);
    for (size_t i = 0; i < d->n; i++) with.kw_names[i] = d->keys[i].type == TV_STR ? tv_str(d->keys[i]) : STR("");
    with.n_kw = (int)(d->n < 100000 ? d->n : 100000);
    return tmpl_format_braces(rt, self.u.s, &with);
}

METHOD(m_encode) {
    UNUSED;
    rt_raise(rt, "TypeError", "str.encode is not supported: there are no byte strings here");
}

METHOD(m_translate) {
    UNUSED;
    const struct tstr *s = self.u.s;
    if (args[0].type != TV_DICT) rt_raise(rt, "TypeError", "translate() needs a dict");
    struct tbuf *b = tbuf_new(rt);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t n = utf8_decode(s->p + i, s->n - i, &code);
        struct tv *to = tdict_get(rt, args[0].u.dict, tv_int(code));
        rt_charge(rt, 1);
        if (!to) tbuf_put_sub(rt, b, s, i, n);
        else if (to->type == TV_STR) tbuf_put_str(rt, b, to->u.s);
        else if (to->type == TV_INT && to->u.i >= 0 && to->u.i < 0x110000 && (to->u.i < 0xD800 || to->u.i > 0xDFFF))
            tbuf_put_code(rt, b, (uint32_t)to->u.i, tstr_user_at(s, i));
        else if (to->type != TV_NONE) rt_raise(rt, "TypeError", "character mapping must return integer, None or str");
        i += n;
    }
    return tbuf_value(rt, b);
}

const struct builtin tmpl_methods_str[] = {
    {"strip", m_strip, "/chars?"},
    {"lstrip", m_lstrip, "/chars?"},
    {"rstrip", m_rstrip, "/chars?"},
    {"split", m_split, "sep? maxsplit?"},
    {"rsplit", m_rsplit, "sep? maxsplit?"},
    {"splitlines", m_splitlines, "keepends?"},
    {"startswith", m_startswith, "/prefix start? end?"},
    {"endswith", m_endswith, "/suffix start? end?"},
    {"replace", m_replace, "/old new count?"},
    {"join", m_join, "/iterable"},
    {"format", m_format, "*"},
    {"format_map", m_format_map, "/mapping"},
    {"upper", m_upper, ""},
    {"lower", m_lower, ""},
    {"title", m_title, ""},
    {"capitalize", m_capitalize, ""},
    {"swapcase", m_swapcase, ""},
    {"casefold", m_casefold, ""},
    {"find", m_find, "/sub start? end?"},
    {"rfind", m_rfind, "/sub start? end?"},
    {"index", m_index, "/sub start? end?"},
    {"rindex", m_rindex, "/sub start? end?"},
    {"count", m_count, "/sub start? end?"},
    {"partition", m_partition, "/sep"},
    {"rpartition", m_rpartition, "/sep"},
    {"removeprefix", m_removeprefix, "/prefix"},
    {"removesuffix", m_removesuffix, "/suffix"},
    {"center", m_center, "/width fillchar?"},
    {"ljust", m_ljust, "/width fillchar?"},
    {"rjust", m_rjust, "/width fillchar?"},
    {"zfill", m_zfill, "/width"},
    {"expandtabs", m_expandtabs, "tabsize?"},
    {"translate", m_translate, "/table"},
    {"encode", m_encode, "*"},
    {NULL, NULL, NULL},
};
