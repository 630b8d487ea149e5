/* wordwrap: Python's textwrap over each line, with its idea of where a word may be broken. Positions count characters. */
#include "text/template/tmpl_rt.h"
#include "text/template/tmpl_unicode.h"

struct wrap {
    struct rt *rt;
    const struct tstr *s;
    uint32_t *codes; /* [n] */
    size_t *offsets; /* [n + 1], bytes */
    size_t n;
    size_t *cuts; /* [n_cuts]: ends of chunks */
    size_t n_cuts;
    int64_t width;
    bool break_long, break_hyphens;
};

static bool is_blank(uint32_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_punct_word(uint32_t c) {
    return uni_is_word(c) || (c < 0x80 && c && strchr("!\"'&.,?", (int)c));
}

static bool is_letter(uint32_t c) {
    return uni_is_word(c) && !uni_is_decimal(c);
}

static bool blank_at(const struct wrap *w, size_t i) {
    return i < w->n && is_blank(w->codes[i]);
}

/* Nothing but white space of any kind; chunks are cut at ASCII's alone. */
static bool all_space(const struct wrap *w, size_t from, size_t to) {
    while (from < to && uni_is_space(w->codes[from])) from++;
    return from == to;
}

/* The end of two or more dashes before a word character, or 0. */
static size_t dashes_at(const struct wrap *w, size_t i) {
    size_t end = i;
    while (end < w->n && w->codes[end] == '-') end++;
    return end >= i + 2 && end < w->n && uni_is_word(w->codes[end]) ? end : 0;
}

/* "well-known" may be broken behind its hyphen at j. */
static bool breaks_after_hyphen(const struct wrap *w, size_t j) {
    const uint32_t *c = w->codes;
    if (j >= w->n || c[j] != '-' || j + 1 >= w->n || !is_letter(c[j + 1])) return false;
    bool two = j >= 2 && is_letter(c[j - 1]) && is_letter(c[j - 2]);
    bool three = j >= 3 && is_letter(c[j - 3]) && c[j - 2] == '-' && is_punct_word(c[j - 1]);
    if (!two && !three) return false;
    size_t next = j + 2 < w->n && c[j + 2] == '-' ? j + 3 : j + 2;
    if (next < w->n && is_letter(c[next])) return true;
    return j + 2 < w->n && is_letter(c[j + 2]);
}

static size_t chunk_end(const struct wrap *w, size_t i) {
    size_t end = i;
    if (blank_at(w, i)) {
        while (blank_at(w, end)) end++;
        return end;
    }
    if (!w->break_hyphens) {
        while (end < w->n && !blank_at(w, end)) end++;
        return end;
    }
    if (i && is_punct_word(w->codes[i - 1]) && dashes_at(w, i)) return dashes_at(w, i);
    for (end = i + 1; end < w->n && !blank_at(w, end); end++) {
        if (breaks_after_hyphen(w, end)) return end + 1;
        if (is_punct_word(w->codes[end - 1]) && dashes_at(w, end)) return end;
    }
    return end;
}

static void cut_chunks(struct wrap *w) {
    w->cuts = rt_new(w->rt, size_t, w->n + 1);
    rt_charge(w->rt, w->n * 2);
    for (size_t i = 0; i < w->n;) w->cuts[w->n_cuts++] = i = chunk_end(w, i);
}

static struct tv piece(const struct wrap *w, size_t from, size_t to) {
    return tv_sub(w->rt, w->s, w->offsets[from], w->offsets[to] - w->offsets[from]);
}

/* How much of a word that fits on no line stands on this one. */
static size_t long_word_part(const struct wrap *w, size_t from, size_t to, size_t room) {
    size_t end = room < to - from ? room : to - from;
    if (!w->break_hyphens) return end;
    for (size_t i = end; i-- > 1;) {
        if (w->codes[from + i] != '-') continue;
        bool other = false;
        for (size_t k = 0; k < i; k++) other |= w->codes[from + k] != '-';
        return other ? i + 1 : end;
    }
    return end;
}

static void wrap_line(struct wrap *w, struct tlist *lines) {
    size_t first = lines->n, at = 0, width = (size_t)w->width;
    for (size_t i = 0; i < w->n_cuts;) {
        if (lines->n > first && all_space(w, at, w->cuts[i])) at = w->cuts[i++]; /* blanks before a line are dropped */
        if (i == w->n_cuts) break;
        size_t start = at, last = at; /* last: where the line's last chunk begins */
        rt_charge(w->rt, 1);
        while (i < w->n_cuts && w->cuts[i] - start <= width) {
            last = at;
            at = w->cuts[i++];
        }
        if (i < w->n_cuts && w->cuts[i] - at > width) {
            size_t room = width - (at - start);
            if (w->break_long) { /* where there is no room, an empty part still keeps the blanks before it */
                last = at;
                if (room) at += long_word_part(w, at, w->cuts[i], room);
            } else if (!w->break_long && at == start) {
                last = at;
                at = w->cuts[i++];
            }
        }
        size_t end = at > last && all_space(w, last, at) ? last : at;
        if (end > start) tv_list_push(w->rt, lines, piece(w, start, end));
    }
}

static void wrap_text(struct wrap *w, struct tlist *lines) {
    w->n = tstr_chars(w->rt, w->s);
    w->n_cuts = 0;
    w->codes = rt_new(w->rt, uint32_t, w->n + 1);
    w->offsets = rt_new(w->rt, size_t, w->n + 1);
    for (size_t i = 0, byte = 0; i < w->n; i++) {
        w->offsets[i] = byte;
        byte += utf8_decode(w->s->p + byte, w->s->n - byte, &w->codes[i]);
    }
    w->offsets[w->n] = w->s->n;
    cut_chunks(w);
    wrap_line(w, lines);
}

struct tv str_wordwrap(struct rt *rt, const struct tstr *s, const struct tv *args) {
    struct wrap w = {.rt = rt,
                     .width = arg_int(rt, args[0], 79),
                     .break_long = arg_bool(rt, args[1], true),
                     .break_hyphens = arg_bool(rt, args[3], true)};
    struct tv newline = args[2].type == TV_MISSING || args[2].type == TV_NONE ? tv_str_const(rt, "\n") : args[2];
    const struct tstr *sep = need_str(rt, newline, "wrapstring");
    struct tv source = str_split_lines(rt, s, false), all = tv_list_new(rt, TV_LIST, 4);
    for (size_t i = 0; i < source.u.list->n; i++) {
        struct tv lines = tv_list_new(rt, TV_LIST, 4);
        if (w.width <= 0) rt_raise(rt, "ValueError", "invalid width %lld (must be > 0)", (long long)w.width);
        w.s = source.u.list->items[i].u.s;
        wrap_text(&w, lines.u.list);
        tv_list_push(rt, all.u.list, str_join(rt, sep, lines, false));
    }
    return str_join(rt, sep, all, false);
}
