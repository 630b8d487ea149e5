/* Strings with marks, and the buffer that builds them.
 *
 * Appending to a string that ends where its buffer ends grows the buffer in place, so that a template which collects its
 * result with "x = x + y" takes time and memory in proportion to the result, not to its square. */
#include "text/template/tmpl_rt.h"

static struct tv wrap(struct rt *rt, struct tstr init) {
    struct tstr *s = rt_new(rt, struct tstr, 1);
    *s = init;
    return (struct tv){TV_STR, {.s = s}};
}

struct tv tv_str_of(struct rt *rt, struct str s, bool user) {
    return wrap(rt, (struct tstr){.p = s.p ? s.p : "", .n = s.n, .n_chars = STR_NONE, .user = user});
}

struct tv tv_str_copy(struct rt *rt, struct str s, bool user) {
    char *p = rt_alloc(rt, s.n + 1);
    if (s.n) memcpy(p, s.p, s.n);
    return tv_str_of(rt, str_n(p, s.n), user);
}

struct tv tv_str_const(struct rt *rt, const char *c) {
    return tv_str_of(rt, str_of(c), false);
}

struct tv tv_sub(struct rt *rt, const struct tstr *s, size_t from, size_t n) {
    if (from == 0 && n == s->n) return wrap(rt, *s);
    return wrap(rt, (struct tstr){.p = s->p + from,
                                  .n = n,
                                  .marks = s->marks ? s->marks + from : NULL,
                                  .buf = s->buf,
                                  .n_chars = s->n_chars == s->n ? n : STR_NONE,
                                  .user = s->user,
                                  .markup = s->markup});
}

size_t tstr_chars(struct rt *rt, const struct tstr *s) {
    if (s->n_chars != STR_NONE) return s->n_chars;
    rt_charge_bytes(rt, s->n / 4);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
    ((struct tstr *)(uintptr_t)s)->n_chars = n; /* a cache; constants of the template come with it filled */
    return n;
}

size_t tstr_offset(struct rt *rt, const struct tstr *s, size_t i) {
    size_t n_chars = tstr_chars(rt, s), at = 0;
    if (n_chars == s->n) return i < s->n ? i : s->n;
    if (i >= n_chars) return s->n;
    rt_charge_bytes(rt, i);
    for (;; at++) {
        if (((unsigned char)s->p[at] & 0xC0) == 0x80) continue;
        if (i-- == 0) return at;
    }
}

bool tstr_user_at(const struct tstr *s, size_t at) {
    return s->marks && at < s->n ? s->marks[at] : s->user;
}

bool tstr_any_user(const struct tstr *s) {
    return s->marks ? memchr(s->marks, 1, s->n) != NULL : s->user && s->n;
}

size_t tstr_find(struct rt *rt, struct str s, struct str needle, size_t from) {
    if (needle.n == 0) return from <= s.n ? from : STR_NONE;
    rt_charge(rt, 1);
    for (size_t tries = 0; from <= s.n && needle.n <= s.n - from; from++, tries++) {
        const char *hit = memchr(s.p + from, needle.p[0], s.n - from - needle.n + 1);
        size_t at = hit ? (size_t)(hit - s.p) : s.n;
        rt_charge(rt, (at - from) / 256 + needle.n / 256 + tries % 2);
        if (!hit) return STR_NONE;
        if (memcmp(hit, needle.p, needle.n) == 0) return at;
        from = at;
    }
    return STR_NONE;
}

size_t tstr_find_last(struct rt *rt, struct str s, struct str needle) {
    rt_charge(rt, 1);
    for (size_t at = s.n >= needle.n ? s.n - needle.n + 1 : 0; at-- > 0;) {
        if (at % 16 == 0) rt_charge(rt, 1);
        if (needle.n && s.p[at] != needle.p[0]) continue;
        rt_charge(rt, needle.n / 256);
        if (str_eq(str_sub(s, at, needle.n), needle)) return at;
    }
    return STR_NONE;
}

/* ---- buffers ---- */

struct tbuf *tbuf_new(struct rt *rt) {
    return rt_new(rt, struct tbuf, 1);
}

static void reserve(struct rt *rt, struct tbuf *b, size_t more) {
    if (more <= b->capacity - b->used) return;
    size_t need;
    if (size_add(b->used, more, &need)) rt_limit(rt, "a string is too long");
    size_t capacity = b->capacity * 2 > need ? b->capacity * 2 : need;
    if (capacity < 32) capacity = 32;
    char *p = rt_alloc(rt, capacity);
    if (b->used) memcpy(p, b->p, b->used);
    if (b->marks) {
        unsigned char *marks = rt_alloc(rt, capacity);
        memcpy(marks, b->marks, b->used);
        b->marks = marks;
    }
    b->p = p;
    b->capacity = capacity;
}

static void need_marks(struct rt *rt, struct tbuf *b) {
    if (b->marks) return;
    b->marks = rt_alloc(rt, b->capacity);
    memset(b->marks, b->user, b->used);
}

/* Marks for n bytes that are about to be appended: NULL while the buffer stays of one kind. */
static unsigned char *mark_tail(struct rt *rt, struct tbuf *b, bool user, bool mixed) {
    if (b->used == 0 && !mixed && !b->marks) b->user = user;
    if (mixed || b->marks || user != b->user) {
        need_marks(rt, b);
        return b->marks + b->used;
    }
    return NULL;
}

static void check_output(struct rt *rt, const struct tbuf *b) {
    if (b == rt->root_out && b->used > rt->limits.output_bytes)
        rt_limit(rt, "the output is longer than %zu bytes", rt->limits.output_bytes);
}

void tbuf_put(struct rt *rt, struct tbuf *b, struct str s, bool user) {
    if (!s.n) return;
    reserve(rt, b, s.n);
    unsigned char *marks = mark_tail(rt, b, user, false);
    if (marks) memset(marks, user, s.n);
    memcpy(b->p + b->used, s.p, s.n);
    b->used += s.n;
    check_output(rt, b);
}

void tbuf_puts(struct rt *rt, struct tbuf *b, const char *c) {
    tbuf_put(rt, b, str_of(c), false);
}

void tbuf_put_code(struct rt *rt, struct tbuf *b, uint32_t code, bool user) {
    char utf8[4];
    tbuf_put(rt, b, str_n(utf8, utf8_encode(code, utf8)), user);
}

void tbuf_put_sub(struct rt *rt, struct tbuf *b, const struct tstr *s, size_t from, size_t n) {
    if (!n) return;
    rt_charge_bytes(rt, n / 16);
    if (!s->marks) {
        tbuf_put(rt, b, str_n(s->p + from, n), s->user);
        return;
    }
    reserve(rt, b, n);
    unsigned char *marks = mark_tail(rt, b, false, true);
    memcpy(marks, s->marks + from, n);
    memcpy(b->p + b->used, s->p + from, n);
    b->used += n;
    check_output(rt, b);
}

void tbuf_put_str(struct rt *rt, struct tbuf *b, const struct tstr *s) {
    tbuf_put_sub(rt, b, s, 0, s->n);
}

void tbuf_put_repeat(struct rt *rt, struct tbuf *b, const struct tstr *fill, size_t count) {
    size_t bytes;
    if (size_mul(fill->n, count, &bytes) || bytes > rt->limits.memory_bytes)
        rt_limit(rt, "a string of %zu x %zu bytes is too long", count, fill->n);
    if (!bytes) return;
    reserve(rt, b, bytes);
    rt_charge_bytes(rt, bytes / 16);
    for (size_t i = 0; i < count; i++) {
        if ((i & 1023) == 1023) rt_charge(rt, 64);
        tbuf_put_str(rt, b, fill);
    }
}

struct tv tbuf_value(struct rt *rt, struct tbuf *b) {
    return wrap(rt,
                (struct tstr){
                    .p = b->p ? b->p : "", .n = b->used, .marks = b->marks, .buf = b->p ? b : NULL, .n_chars = STR_NONE, .user = b->user});
}

struct tv tv_concat(struct rt *rt, const struct tstr *a, const struct tstr *b) {
    if (!a->n) return wrap(rt, *b);
    if (!b->n) return wrap(rt, *a);
    struct tbuf *buf = a->buf;
    bool grows = buf && buf != rt->out && (uintptr_t)(a->p + a->n) == (uintptr_t)(buf->p + buf->used) && b->n <= buf->capacity - buf->used;
    size_t start = grows ? (size_t)(a->p - buf->p) : 0;
    if (!grows) {
        buf = tbuf_new(rt);
        reserve(rt, buf, a->n > 256 ? 2 * a->n + b->n : a->n + b->n);
        tbuf_put_str(rt, buf, a);
    }
    tbuf_put_str(rt, buf, b);
    size_t n_chars = a->n_chars != STR_NONE && b->n_chars != STR_NONE ? a->n_chars + b->n_chars : STR_NONE;
    return wrap(rt, (struct tstr){.p = buf->p + start,
                                  .n = a->n + b->n,
                                  .marks = buf->marks ? buf->marks + start : NULL,
                                  .buf = buf,
                                  .n_chars = n_chars,
                                  .user = buf->user});
}
