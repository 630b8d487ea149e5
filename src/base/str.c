/* Strings: searching, parsing of numbers, the growing buffer, UTF-8. */
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Where the largest suffix of x begins, in the order of bytes or in the reverse one, and the period of that suffix. */
static size_t largest_suffix(struct str x, bool reverse, size_t *out_period) {
    size_t begin = 0, j = 1, k = 0, period = 1;
    while (j + k < x.n) {
        unsigned char a = (unsigned char)x.p[j + k], b = (unsigned char)x.p[begin + k];
        if (a == b) {
            k++;
            if (k == period) j += period, k = 0;
        } else if (reverse ? a > b : a < b) {
            j += k + 1, k = 0;
            period = j - begin;
        } else {
            begin = j++;
            k = 0, period = 1;
        }
    }
    *out_period = period;
    return begin;
}

/* The two-way search of Crochemore and Perrin: linear in the text, whatever the needle. The needle is cut where neither half
 * can match without showing how far the next possible match is; `known` bytes of it need not be compared again. */
static size_t find_two_way(struct str s, struct str x, size_t from) {
    size_t period, other_period;
    size_t cut = largest_suffix(x, false, &period), other = largest_suffix(x, true, &other_period);
    if (other > cut) cut = other, period = other_period;
    bool is_periodic = cut + period <= x.n && memcmp(x.p, x.p + period, cut) == 0;
    if (!is_periodic) period = (cut > x.n - cut ? cut : x.n - cut) + 1;
    for (size_t known = 0; from <= s.n && x.n <= s.n - from;) {
        size_t i = cut > known ? cut : known;
        while (i < x.n && x.p[i] == s.p[from + i]) i++;
        if (i < x.n) {
            from += i - cut + 1;
            known = 0;
            continue;
        }
        for (i = cut; i > known && x.p[i - 1] == s.p[from + i - 1];) i--;
        if (i <= known) return from;
        from += period;
        known = is_periodic ? x.n - period : 0;
    }
    return STR_NONE;
}

size_t str_find(struct str s, struct str needle, size_t from) {
    enum { PLAIN_BYTES = 16, PLAIN_TRIES = 32 };
    if (needle.n == 0) return from <= s.n ? from : STR_NONE;
    for (size_t tries = 0; from <= s.n && needle.n <= s.n - from; tries++) {
        if (needle.n > PLAIN_BYTES && tries == PLAIN_TRIES) return find_two_way(s, needle, from);
        const char *hit = memchr(s.p + from, needle.p[0], s.n - from - needle.n + 1);
        if (!hit) return STR_NONE;
        from = (size_t)(hit - s.p);
        if (memcmp(hit, needle.p, needle.n) == 0) return from;
        from++;
    }
    return STR_NONE;
}

size_t str_find_char(struct str s, char c, size_t from) {
    if (from >= s.n) return STR_NONE;
    const char *hit = memchr(s.p + from, c, s.n - from);
    return hit ? (size_t)(hit - s.p) : STR_NONE;
}

int str_cmp(struct str a, struct str b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;
    if (order) return order;
    return a.n < b.n ? -1 : a.n > b.n;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct str str_trim(struct str s) {
    while (s.n && is_space(s.p[0])) s.p++, s.n--;
    while (s.n && is_space(s.p[s.n - 1])) s.n--;
    return s;
}

bool str_split_next(struct str *rest, char sep, struct str *out_piece) {
    if (!rest->p) return false;
    size_t at = str_find_char(*rest, sep, 0);
    if (at == STR_NONE) {
        *out_piece = *rest;
        *rest = (struct str){NULL, 0};
    } else {
        *out_piece = str_sub(*rest, 0, at);
        *rest = str_from(*rest, at + 1);
    }
    return true;
}

bool str_to_int64(struct str s, int64_t *out) {
    bool negative = s.n && s.p[0] == '-';
    size_t i = s.n && (s.p[0] == '-' || s.p[0] == '+');
    if (i == s.n) return false;
    uint64_t value = 0, limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    for (; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        uint64_t digit = (uint64_t)(s.p[i] - '0');
        if (value > (limit - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

bool str_to_double(struct str s, double *out) {
    char text[64];
    if (s.n == 0 || s.n >= sizeof text || is_space(s.p[0])) return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end != text + s.n) return false;
    *out = value;
    return true;
}

bool str_glob(struct str pattern, struct str s) {
    size_t ip = 0, is = 0, star = STR_NONE, retry = 0;
    while (is < s.n) {
        if (ip < pattern.n && pattern.p[ip] == '*') {
            star = ip++;
            retry = is;
        } else if (ip < pattern.n && (pattern.p[ip] == '?' || pattern.p[ip] == s.p[is])) {
            ip++, is++;
        } else if (star != STR_NONE) {
            ip = star + 1;
            is = ++retry;
        } else {
            return false;
        }
    }
    while (ip < pattern.n && pattern.p[ip] == '*') ip++;
    return ip == pattern.n;
}

size_t str_distance(struct str a, struct str b) {
    enum { LIMIT = 64 };
    size_t row[LIMIT + 1];
    if (a.n > LIMIT || b.n > LIMIT) return STR_NONE;
    for (size_t j = 0; j <= b.n; j++) row[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            size_t best = diagonal + (a.p[i - 1] != b.p[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b.n];
}

struct str str_copy(struct arena *a, struct str s) {
    char *p = arena_alloc(a, s.n + 1);
    if (s.n) memcpy(p, s.p, s.n);
    return (struct str){p, s.n};
}

char *str_cstr(struct arena *a, struct str s) {
    return (char *)str_copy(a, s).p;
}

struct str str_fmt(struct arena *a, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *p = arena_alloc(a, (size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0) vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return (struct str){p, (size_t)(n < 0 ? 0 : n)};
}

void sb_reserve(struct sb *b, size_t more) {
    size_t need = b->n + more + 1;
    if (need <= b->capacity) return;
    size_t capacity = b->capacity ? b->capacity : 256;
    while (capacity < need) capacity += capacity / 2 + 64;
    b->p = mem_realloc(b->p, capacity);
    b->capacity = capacity;
}

char *sb_extend(struct sb *b, size_t n) {
    sb_reserve(b, n);
    char *p = b->p + b->n;
    b->n += n;
    b->p[b->n] = '\0';
    return p;
}

void sb_put(struct sb *b, struct str s) {
    char *p = sb_extend(b, s.n);
    if (s.n) memcpy(p, s.p, s.n);
}

void sb_putc(struct sb *b, char c) {
    *sb_extend(b, 1) = c;
}

void sb_puts(struct sb *b, const char *c) {
    sb_put(b, str_of(c));
}

void sb_vfmt(struct sb *b, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n <= 0) return;
    char *p = sb_extend(b, (size_t)n);
    vsnprintf(p, (size_t)n + 1, fmt, args);
}

void sb_fmt(struct sb *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    sb_vfmt(b, fmt, args);
    va_end(args);
}

void sb_clear(struct sb *b) {
    b->n = 0;
    if (b->p) b->p[0] = '\0';
}

void sb_free(struct sb *b) {
    mem_free(b->p);
    *b = (struct sb){0};
}

/* Bytes that a character starting with this byte takes; 0 for a byte that cannot start one. */
static size_t utf8_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    return lead < 0xF5 ? 4 : 0;
}

static bool utf8_tail_ok(const unsigned char *p, size_t have, size_t length) {
    for (size_t i = 1; i < have && i < length; i++)
        if ((p[i] & 0xC0) != 0x80) return false;
    if (have < 2) return true;
    if (p[0] == 0xE0 && p[1] < 0xA0) return false; /* overlong */
    if (p[0] == 0xED && p[1] > 0x9F) return false; /* surrogate */
    if (p[0] == 0xF0 && p[1] < 0x90) return false;
    return !(p[0] == 0xF4 && p[1] > 0x8F);
}

size_t utf8_decode(const char *text, size_t n, uint32_t *out_code) {
    const unsigned char *p = (const unsigned char *)text;
    size_t length = utf8_length(p[0]);
    if (length == 0 || length > n || !utf8_tail_ok(p, n, length)) {
        *out_code = UTF8_INVALID;
        return 1;
    }
    uint32_t code = length == 1 ? p[0] : p[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) code = code << 6 | (p[i] & 0x3Fu);
    *out_code = code;
    return length;
}

size_t utf8_encode(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)(lead[length] | code);
    return length;
}

bool utf8_valid(struct str s) {
    for (size_t i = 0; i < s.n;) {
        unsigned char lead = (unsigned char)s.p[i];
        size_t length = utf8_length(lead);
        if (length == 0 || length > s.n - i || !utf8_tail_ok((const unsigned char *)s.p + i, s.n - i, length)) return false;
        i += length;
    }
    return true;
}

size_t utf8_complete_prefix(struct str s) {
    for (size_t back = 1; back <= 3 && back <= s.n; back++) {
        unsigned char lead = (unsigned char)s.p[s.n - back];
        if ((lead & 0xC0) == 0x80) continue;
        size_t length = utf8_length(lead);
        bool open = length > back && utf8_tail_ok((const unsigned char *)s.p + s.n - back, back, length);
        return open ? s.n - back : s.n;
    }
    return s.n;
}
