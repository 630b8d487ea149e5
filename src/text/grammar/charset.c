/* Ranges of code points: adding, sorting, negating, folding, and the classes that have names. */
#include "text/grammar/charset.h"

#include "text/tokenizer/unicode.h"

#include <stdlib.h>

enum { SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

void cs_add(struct arena *a, struct charset *s, uint32_t lo, uint32_t hi) {
    if (lo > hi) return;
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4;
        struct cs_range *r = arena_new(a, struct cs_range, capacity);
        if (s->n) memcpy(r, s->r, s->n * sizeof *r);
        s->r = r;
        s->capacity = capacity;
    }
    s->r[s->n++] = (struct cs_range){lo, hi};
}

void cs_add_set(struct arena *a, struct charset *s, const struct charset *other) {
    for (size_t i = 0; i < other->n; i++) cs_add(a, s, other->r[i].lo, other->r[i].hi);
}

static int by_lo(const void *x, const void *y) {
    const struct cs_range *a = x, *b = y;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

void cs_finish(struct charset *s) {
    if (s->n < 2) return;
    qsort(s->r, s->n, sizeof *s->r, by_lo);
    size_t n = 1;
    for (size_t i = 1; i < s->n; i++) {
        struct cs_range *last = &s->r[n - 1];
        if (s->r[i].lo > last->hi + 1) s->r[n++] = s->r[i];
        else if (s->r[i].hi > last->hi) last->hi = s->r[i].hi;
    }
    s->n = n;
}

static void add_without_surrogates(struct arena *a, struct charset *s, uint32_t lo, uint32_t hi) {
    if (lo < SURROGATE_FIRST) cs_add(a, s, lo, hi < SURROGATE_FIRST ? hi : SURROGATE_FIRST - 1);
    if (hi > SURROGATE_LAST) cs_add(a, s, lo > SURROGATE_LAST ? lo : SURROGATE_LAST + 1, hi);
}

void cs_negate(struct arena *a, struct charset *s) {
    struct charset out = {0};
    uint32_t from = 0;
    cs_finish(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->r[i].lo > from) add_without_surrogates(a, &out, from, s->r[i].lo - 1);
        from = s->r[i].hi + 1;
    }
    if (from <= CS_LAST) add_without_surrogates(a, &out, from, CS_LAST);
    *s = out;
}

static bool has(const struct charset *s, uint32_t c) {
    for (size_t i = 0; i < s->n; i++)
        if (c >= s->r[i].lo && c <= s->r[i].hi) return true;
    return false;
}

void cs_fold(struct arena *a, struct charset *s) {
    struct charset more = {0};
    for (uint32_t c = 'a'; c <= 'z'; c++) {
        if (has(s, c)) cs_add(a, &more, c - 32, c - 32);
        if (has(s, c - 32)) cs_add(a, &more, c, c);
    }
    for (size_t i = 0; i < tok_uni_lower.n; i++) {
        const struct tok_uni_row *row = &tok_uni_lower.rows[i];
        uint32_t lower;
        if (row->code < 128 || utf8_decode((const char *)tok_uni_lower.pool + row->at, row->n, &lower) != row->n || lower < 128) continue;
        if (has(s, row->code)) cs_add(a, &more, lower, lower);
        if (has(s, lower)) cs_add(a, &more, row->code, row->code);
    }
    cs_add_set(a, s, &more);
    cs_finish(s);
}

static void add_flagged(struct arena *a, struct charset *s, uint32_t flags) {
    uint32_t from = 0;
    bool inside = false;
    for (uint32_t c = 0; c <= CS_LAST + 1; c++) {
        bool is = c <= CS_LAST && (tok_uni(c) & flags) && (c < SURROGATE_FIRST || c > SURROGATE_LAST);
        if (is && !inside) from = c;
        if (!is && inside) cs_add(a, s, from, c - 1);
        inside = is;
    }
}

static const struct cs_range space_ranges[] = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                                               {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const struct cs_range word_ranges[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

void cs_add_class(struct arena *a, struct charset *s, enum cs_class class_) {
    switch (class_) {
    case CS_DIGIT: cs_add(a, s, '0', '9'); break;
    case CS_WORD:
        for (size_t i = 0; i < sizeof word_ranges / sizeof *word_ranges; i++) cs_add(a, s, word_ranges[i].lo, word_ranges[i].hi);
        break;
    case CS_SPACE:
        for (size_t i = 0; i < sizeof space_ranges / sizeof *space_ranges; i++) cs_add(a, s, space_ranges[i].lo, space_ranges[i].hi);
        break;
    case CS_UNI_SPACE: add_flagged(a, s, UNI_SPACE); break;
    case CS_UNI_DIGIT: add_flagged(a, s, UNI_ND); break;
    case CS_UNI_WORD: add_flagged(a, s, UNI_WORD); break;
    }
}

static const struct {
    const char *name;
    uint32_t flags;
} properties[] = {
    {"L", UNI_L},         {"Letter", UNI_L},
    {"Lu", UNI_LU},       {"Uppercase_Letter", UNI_LU},
    {"Ll", UNI_LL},       {"Lowercase_Letter", UNI_LL},
    {"Lt", UNI_LT},       {"Lm", UNI_LM},
    {"Lo", UNI_LO},       {"M", UNI_M},
    {"Mark", UNI_M},      {"N", UNI_N},
    {"Number", UNI_N},    {"Nd", UNI_ND},
    {"digit", UNI_ND},    {"Decimal_Number", UNI_ND},
    {"P", UNI_P},         {"Punctuation", UNI_P},
    {"punct", UNI_P},     {"Pc", UNI_PC},
    {"S", UNI_S},         {"Symbol", UNI_S},
    {"Z", UNI_Z},         {"Separator", UNI_Z},
    {"Cn", UNI_CN},       {"White_Space", UNI_SPACE},
    {"space", UNI_SPACE},
};

bool cs_add_property(struct arena *a, struct charset *s, struct str name) {
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        if (str_is(name, properties[i].name)) {
            add_flagged(a, s, properties[i].flags);
            return true;
        }
    return false;
}

static const struct {
    const char *name;
    const char *ranges; /* pairs of first and last */
} posix_classes[] = {
    {"alpha", "azAZ"},   {"digit", "09"},      {"alnum", "azAZ09"},  {"upper", "AZ"},       {"lower", "az"}, {"blank", "  \t\t"},
    {"space", "\t\r  "}, {"xdigit", "09afAF"}, {"word", "azAZ09__"}, {"punct", "!/:@[`{~"}, {"graph", "!~"}, {"print", " ~"},
};

bool cs_add_posix(struct arena *a, struct charset *s, struct str name) {
    for (size_t i = 0; i < sizeof posix_classes / sizeof *posix_classes; i++)
        if (str_is(name, posix_classes[i].name)) {
            for (const char *p = posix_classes[i].ranges; *p; p += 2) cs_add(a, s, (uint8_t)p[0], (uint8_t)p[1]);
            return true;
        }
    return false;
}
