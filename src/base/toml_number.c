/* Numbers and truths of TOML. */
#include "base/toml_internal.h"

#include <math.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The word that begins here: everything that a number, a truth or a date may hold. */
static struct str take_word(struct toml_reader *r) {
    size_t from = r->at;
    for (; r->at < r->text.n; r->at++) {
        char c = r->text.p[r->at], low = (char)(c | 32);
        if (!is_digit(c) && !(low >= 'a' && low <= 'z') && c != '_' && c != '+' && c != '-' && c != '.' && c != ':') break;
    }
    return str_sub(r->text, from, r->at - from);
}

/* Without the underscores, each of which must stand between two digits. False: one does not. */
static bool drop_underscores(struct str word, bool (*is_part)(char), struct sb *out) {
    for (size_t i = 0; i < word.n; i++) {
        if (word.p[i] != '_') sb_putc(out, word.p[i]);
        else if (i == 0 || i + 1 == word.n || !is_part(word.p[i - 1]) || !is_part(word.p[i + 1])) return false;
    }
    return true;
}

static bool is_hex(char c) {
    char low = (char)(c | 32);
    return is_digit(c) || (low >= 'a' && low <= 'f');
}

/* 0x, 0o, 0b. */
static bool read_based(struct str word, int64_t *out) {
    static const struct {
        const char *prefix;
        uint64_t base;
    } kinds[] = {{"0x", 16}, {"0o", 8}, {"0b", 2}};
    struct sb digits = {0};
    uint64_t value = 0, base = 0;
    for (size_t k = 0; k < 3; k++)
        if (str_starts(word, str_of(kinds[k].prefix))) base = kinds[k].base;
    bool ok = base && drop_underscores(str_from(word, 2), is_hex, &digits) && digits.n > 0;
    for (size_t i = 0; i < digits.n && ok; i++) {
        char c = digits.p[i];
        uint64_t digit = is_digit(c) ? (uint64_t)(c - '0') : is_hex(c) ? (uint64_t)((c | 32) - 'a' + 10) : 16;
        ok = digit < base && value <= ((uint64_t)INT64_MAX - digit) / base;
        value = value * base + digit;
    }
    sb_free(&digits);
    *out = (int64_t)value;
    return ok;
}

/* [+-] 0 or digits without a zero before them. Returns how long that is; 0: none is there. */
static size_t whole_part(struct str t) {
    size_t from = t.n && (t.p[0] == '+' || t.p[0] == '-'), n = from;
    while (n < t.n && is_digit(t.p[n])) n++;
    bool has_zero = n > from + 1 && t.p[from] == '0';
    return n == from || has_zero ? 0 : n;
}

static size_t digits_at(struct str t, size_t at) {
    size_t n = at;
    while (n < t.n && is_digit(t.p[n])) n++;
    return n - at;
}

/* A fraction, an exponent, or both, behind the whole part. */
static bool is_float(struct str t) {
    size_t at = whole_part(t), n;
    if (at == 0) return false;
    if (at < t.n && t.p[at] == '.') {
        if ((n = digits_at(t, at + 1)) == 0) return false;
        at += 1 + n;
    }
    if (at < t.n && (t.p[at] | 32) == 'e') {
        at++;
        if (at < t.n && (t.p[at] == '+' || t.p[at] == '-')) at++;
        if ((n = digits_at(t, at)) == 0) return false;
        at += n;
    }
    return at == t.n;
}

static bool read_special(struct str word, double *out) {
    bool is_negative = word.n && word.p[0] == '-';
    if (word.n && (word.p[0] == '+' || word.p[0] == '-')) word = str_from(word, 1);
    *out = str_is(word, "inf") ? (double)INFINITY : (double)NAN;
    if (is_negative) *out = -*out;
    return str_is(word, "inf") || str_is(word, "nan");
}

static bool read_decimal(struct str word, struct toml *out) {
    struct sb clean = {0};
    bool ok = drop_underscores(word, is_digit, &clean);
    struct str t = sb_str(&clean);
    if (ok && whole_part(t) == t.n && t.n) {
        out->kind = TOML_INT;
        ok = str_to_int64(str_from(t, t.p[0] == '+'), &out->i);
    } else if (ok) {
        out->kind = TOML_FLOAT;
        ok = is_float(t) && str_to_double(str_from(t, t.p[0] == '+'), &out->f);
    }
    sb_free(&clean);
    return ok;
}

/* 1979-05-27, 07:32:00. */
static bool is_date(struct str word) {
    return (digits_at(word, 0) == 4 && word.n > 4 && word.p[4] == '-') || (digits_at(word, 0) == 2 && word.n > 2 && word.p[2] == ':');
}

int toml_number_read(struct toml_reader *r, struct toml *out) {
    struct str word = take_word(r);
    out->kind = TOML_BOOL;
    out->i = str_is(word, "true");
    if (out->i || str_is(word, "false")) return ERR_OK;
    out->kind = TOML_INT;
    if (read_based(word, &out->i)) return ERR_OK;
    out->kind = TOML_FLOAT;
    if (read_special(word, &out->f)) return ERR_OK;
    if (is_date(word)) return toml_fail(r, "%.*s is a date or a time, which nothing here takes", STR_ARG(word));
    if (read_decimal(word, out)) return ERR_OK;
    if (word.n == 0) return toml_fail(r, "a value is missing");
    return toml_fail(r, "%.*s is no value; a text needs quotation marks", STR_ARG(word));
}
