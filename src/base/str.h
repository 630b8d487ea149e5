/* Strings: a pointer and a length, never owning; and `struct sb`, a growing buffer for building them.
 *
 * Text is UTF-8 everywhere. A `struct str` need not end in NUL; str_cstr makes one that does.
 */
#ifndef MLXCEL_BASE_STR_H
#define MLXCEL_BASE_STR_H

#include "base/arena.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){"" literal, sizeof(literal) - 1})
/* For "%.*s" in a format. Long strings are cut at 1,000 bytes: they are meant for messages. */
#define STR_ARG(s) ((int)((s).n > 1000 ? 1000 : (s).n)), (s).p

static inline struct str str_of(const char *c) {
    return (struct str){c, c ? strlen(c) : 0};
}
static inline struct str str_n(const char *p, size_t n) {
    return (struct str){p, n};
}
static inline bool str_eq(struct str a, struct str b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool str_is(struct str a, const char *c) {
    return str_eq(a, str_of(c));
}
static inline bool str_starts(struct str s, struct str prefix) {
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}
static inline bool str_ends(struct str s, struct str suffix) {
    return s.n >= suffix.n && (suffix.n == 0 || memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n) == 0);
}
/* The part from `from` on, at most n bytes; out-of-range values are cut. */
static inline struct str str_sub(struct str s, size_t from, size_t n) {
    if (from > s.n) from = s.n;
    if (n > s.n - from) n = s.n - from;
    return (struct str){s.p ? s.p + from : NULL, n};
}
static inline struct str str_from(struct str s, size_t from) {
    return str_sub(s, from, s.n);
}

#define STR_NONE SIZE_MAX
size_t str_find(struct str s, struct str needle, size_t from); /* STR_NONE when absent */
size_t str_find_char(struct str s, char c, size_t from);
int str_cmp(struct str a, struct str b);
struct str str_trim(struct str s); /* ASCII white space off both ends */
/* Takes the piece up to the next `sep` off *rest; false when *rest was used up. */
bool str_split_next(struct str *rest, char sep, struct str *out_piece);
bool str_to_int64(struct str s, int64_t *out);
bool str_to_double(struct str s, double *out);
/* Shell-style match with * and ?. */
bool str_glob(struct str pattern, struct str s);
/* Edits (insert, delete, replace) that turn a into b; for "did you mean". */
size_t str_distance(struct str a, struct str b);

struct str str_copy(struct arena *a, struct str s); /* the copy ends in NUL */
char *str_cstr(struct arena *a, struct str s);
struct str str_fmt(struct arena *a, const char *fmt, ...) MLXCEL_PRINTF(2, 3);

/* A growing byte buffer on the heap; always NUL-terminated once it holds something. Zeroed storage is empty. */
struct sb {
    char *p;
    size_t n, capacity;
};

void sb_put(struct sb *b, struct str s);
void sb_putc(struct sb *b, char c);
void sb_puts(struct sb *b, const char *c);
void sb_fmt(struct sb *b, const char *fmt, ...) MLXCEL_PRINTF(2, 3);
void sb_vfmt(struct sb *b, const char *fmt, va_list args) MLXCEL_PRINTF(2, 0);
void sb_reserve(struct sb *b, size_t more);
/* Room for exactly n more bytes, to be written by the caller. */
char *sb_extend(struct sb *b, size_t n);
void sb_clear(struct sb *b);
void sb_free(struct sb *b);
static inline struct str sb_str(const struct sb *b) {
    return (struct str){b->p ? b->p : "", b->n};
}

/* UTF-8. Decoding an invalid sequence gives U+FFFD and a length of 1, so that loops always advance. */
enum { UTF8_INVALID = 0xFFFD };
size_t utf8_decode(const char *p, size_t n, uint32_t *out_code);
size_t utf8_encode(uint32_t code, char out[4]);
bool utf8_valid(struct str s);
/* Length of the longest prefix that does not end inside a character that may still be completed. */
size_t utf8_complete_prefix(struct str s);

#endif
