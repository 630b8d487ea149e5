/* The scanners. What each alternative of a pattern matches is said beside the code that does it.
 *
 * Backtracking is resolved by hand. "\s*[\r\n]+" takes a run of white space up to its last line end. "\s+(?!\S)" takes
 * the run without its last character when something follows it, so that a word keeps its space.
 */
#include "text/tokenizer/scanner.h"

#include "text/tokenizer/unicode.h"

static inline uint32_t at(struct str t, size_t i, size_t *out_len) {
    unsigned char c = (unsigned char)t.p[i];
    if (c < 0x80) {
        *out_len = 1;
        return tok_uni_ascii[c];
    }
    return tok_uni(tok_utf8(t.p + i, out_len));
}

/* End of the run of characters that have one of the flags. */
static inline size_t run_of(struct str t, size_t i, uint32_t flags) {
    size_t len;
    while (i < t.n && at(t, i, &len) & flags) i += len;
    return i;
}

static inline size_t run_not(struct str t, size_t i, uint32_t flags) {
    size_t len;
    while (i < t.n && !(at(t, i, &len) & flags)) i += len;
    return i;
}

static inline bool is_line_end(char c) {
    return c == '\r' || c == '\n';
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at white space; with lines == false only \s+(?!\S)|\s+ */
static size_t spaces(struct str t, size_t i, bool lines) {
    size_t end = i, last = i, after_line = 0, len;
    while (end < t.n && at(t, end, &len) & UNI_SPACE) {
        if (lines && is_line_end(t.p[end])) after_line = end + 1;
        last = end;
        end += len;
    }
    if (after_line) return after_line;
    return end < t.n && last > i ? last : end;
}

/* 's|'t|'re|'ve|'m|'ll|'d at i; the end, or i. With any_case also capitals, and the long s that folds to s. */
static size_t contraction(struct str t, size_t i, bool any_case) {
    if (t.n - i < 2 || t.p[i] != '\'') return i;
    unsigned char fold = any_case ? 0x20 : 0;
    unsigned char a = (unsigned char)t.p[i + 1];
    if (any_case && a == 0xC5 && t.n - i > 2 && (unsigned char)t.p[i + 2] == 0xBF) return i + 3;
    if (a >= 0x80) return i;
    a |= fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if (t.n - i < 3 || (unsigned char)t.p[i + 2] >= 0x80) return i;
    unsigned char b = (unsigned char)t.p[i + 2] | fold;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    return i;
}

static size_t digits(struct str t, size_t i, int most) {
    size_t len;
    for (int k = 0; k < most && i < t.n && at(t, i, &len) & UNI_N; k++) i += len;
    return i;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static bool next_r50k(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    if (from >= t.n) return false;
    *out_start = from;
    size_t end = contraction(t, from, false), len, i = from;
    if (end > from) return *out_end = end, true;
    if (t.p[i] == ' ' && i + 1 < t.n && !(at(t, i + 1, &len) & UNI_SPACE)) i++;
    uint32_t f = at(t, i, &len);
    if (f & UNI_L) *out_end = run_of(t, i + len, UNI_L);
    else if (f & UNI_N) *out_end = run_of(t, i + len, UNI_N);
    else if (f & UNI_SPACE) *out_end = spaces(t, i, false);
    else *out_end = run_not(t, i + len, UNI_SPACE | UNI_L | UNI_N);
    return true;
}

/* (?i:'s|...)|[^\r\n\p{L}\p{N}]?W+|\p{N}{1,k}| ?[^\s W \p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ with W = letters, or
 * letters and marks. */
static inline bool next_cl100k(struct str t, size_t from, size_t *out_start, size_t *out_end, uint32_t word, int most_digits) {
    if (from >= t.n) return false;
    *out_start = from;
    size_t len, len2 = 0;
    uint32_t f = at(t, from, &len);
    if (t.p[from] == '\'' && (*out_end = contraction(t, from, true)) > from) return true;
    if (f & word) return *out_end = run_of(t, from + len, word), true;
    if (f & UNI_N) return *out_end = digits(t, from, most_digits), true;
    size_t i = from + len;
    uint32_t next = i < t.n ? at(t, i, &len2) : UNI_SPACE;
    if (next & word && !is_line_end(t.p[from])) return *out_end = run_of(t, i + len2, word), true;
    if (f & UNI_SPACE) {
        if (t.p[from] != ' ' || next & (UNI_SPACE | UNI_N)) return *out_end = spaces(t, from, true), true;
        i += len2; /* a space before something that is neither space nor word nor number */
    }
    i = run_not(t, i, UNI_SPACE | UNI_N | word);
    while (i < t.n && is_line_end(t.p[i])) i++;
    *out_end = i;
    return true;
}

static bool next_cl100k_3(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    return next_cl100k(t, from, out_start, out_end, UNI_L, 3);
}

static bool next_cl100k_1(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    return next_cl100k(t, from, out_start, out_end, UNI_L, 1);
}

static bool next_cl100k_marks(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    return next_cl100k(t, from, out_start, out_end, UNI_L | UNI_M, 1);
}

enum {
    UPPER = UNI_LU | UNI_LT | UNI_LM | UNI_LO | UNI_M, /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
    LOWER = UNI_LL | UNI_LM | UNI_LO | UNI_M           /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
};

/* UPPER*LOWER+ at i; the end, or i. When no LOWER follows the greedy UPPER*, it gives back up to its last LOWER. */
static size_t upper_lower(struct str t, size_t i) {
    size_t len, end = i, last_both = SIZE_MAX;
    while (end < t.n) {
        uint32_t f = at(t, end, &len);
        if (!(f & UPPER)) break;
        end += len;
        if (f & LOWER) last_both = end;
    }
    size_t lower = run_of(t, end, LOWER);
    if (lower > end) return lower;
    return last_both == SIZE_MAX ? i : last_both;
}

/* UPPER+LOWER* at i; the end, or i. */
static size_t upper(struct str t, size_t i) {
    size_t end = run_of(t, i, UPPER);
    return end == i ? i : run_of(t, end, LOWER);
}

/* The two word alternatives of o200k: an optional character that is no line end, letter or number, then a word. */
static size_t cased_word(struct str t, size_t i, size_t len, uint32_t f) {
    bool prefix = !(f & (UNI_L | UNI_N)) && !is_line_end(t.p[i]);
    size_t end;
    if (prefix && (end = upper_lower(t, i + len)) > i + len) return end;
    if ((end = upper_lower(t, i)) > i) return end;
    if (prefix && (end = upper(t, i + len)) > i + len) return end;
    return upper(t, i);
}

static inline bool next_o200k(struct str t, size_t from, size_t *out_start, size_t *out_end, bool contractions, int most_digits) {
    if (from >= t.n) return false;
    *out_start = from;
    size_t len, len2 = 0, end;
    uint32_t f = at(t, from, &len);
    if (!(f & UNI_N) && (end = cased_word(t, from, len, f)) > from) {
        *out_end = contractions ? contraction(t, end, true) : end;
        return true;
    }
    if (f & UNI_N) return *out_end = digits(t, from, most_digits), true;
    size_t i = from + len;
    if (f & UNI_SPACE) {
        uint32_t next = i < t.n ? at(t, i, &len2) : UNI_SPACE;
        if (t.p[from] != ' ' || next & (UNI_SPACE | UNI_N | UNI_L)) return *out_end = spaces(t, from, true), true;
        i += len2;
    }
    i = run_not(t, i, UNI_SPACE | UNI_N | UNI_L); /* ?[^\s\p{L}\p{N}]+[\r\n/]* */
    while (i < t.n && (is_line_end(t.p[i]) || t.p[i] == '/')) i++;
    *out_end = i;
    return true;
}

static bool next_o200k_3(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    return next_o200k(t, from, out_start, out_end, true, 3);
}

static bool next_o200k_1(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    return next_o200k(t, from, out_start, out_end, false, 1);
}

/* \p{N}{1,3} */
static bool next_numbers(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    *out_start = run_not(t, from, UNI_N);
    if (*out_start == t.n) return false;
    *out_end = digits(t, *out_start, 3);
    return true;
}

static inline bool is_cjk(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

/* [一-龥぀-ゟ゠-ヿ]+ */
static bool next_cjk(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    size_t i = from, len;
    while (i < t.n && ((unsigned char)t.p[i] < 0xE3 || !is_cjk(tok_utf8(t.p + i, &len)))) i += tok_utf8_len((unsigned char)t.p[i]);
    if (i >= t.n) return false;
    *out_start = i;
    while (i < t.n && (unsigned char)t.p[i] >= 0xE3 && is_cjk(tok_utf8(t.p + i, &len))) i += len;
    *out_end = i;
    return true;
}

static inline bool is_ascii_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ at i;
 * the end, or i when nothing matches there. */
static size_t symbol_word_at(struct str t, size_t i) {
    enum { WORD = UNI_L | UNI_M, MARK = UNI_P | UNI_S };
    size_t len, len2 = 0;
    uint32_t f = at(t, i, &len);
    size_t j = i + len;
    uint32_t next = j < t.n ? at(t, j, &len2) : 0;
    if (len == 1 && f & MARK && j < t.n && is_ascii_letter(t.p[j])) {
        while (j < t.n && is_ascii_letter(t.p[j])) j++;
        return j;
    }
    if (f & WORD) return run_of(t, j, WORD);
    if (next & WORD && !(f & MARK) && !is_line_end(t.p[i])) return run_of(t, j + len2, WORD);
    if (f & MARK || (t.p[i] == ' ' && next & MARK)) {
        j = run_of(t, j, MARK);
        while (j < t.n && is_line_end(t.p[j])) j++;
        return j;
    }
    return f & UNI_SPACE ? spaces(t, i, true) : i;
}

static bool next_symbol_words(struct str t, size_t from, size_t *out_start, size_t *out_end) {
    for (size_t i = from; i < t.n; i += tok_utf8_len((unsigned char)t.p[i])) {
        size_t end = symbol_word_at(t, i);
        if (end > i) return *out_start = i, *out_end = end, true;
    }
    return false;
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CASED "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

const struct tok_scanner tok_scanners[] = {
    {"r50k", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", next_r50k},
    {"cl100k", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES, next_cl100k_3},
    {"cl100k-1", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES, next_cl100k_1},
    {"cl100k-marks", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES,
     next_cl100k_marks},
    {"o200k",
     "[^\\r\\n\\p{L}\\p{N}]?" CASED "*" SMALL "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" CASED "+" SMALL "*" CONTRACTIONS
     "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
     next_o200k_3},
    {"o200k-1",
     "[^\\r\\n\\p{L}\\p{N}]?" CASED "*" SMALL "+|[^\\r\\n\\p{L}\\p{N}]?" CASED "+" SMALL "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
     next_o200k_1},
    {"numbers", "\\p{N}{1,3}", next_numbers},
    {"cjk", "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+", next_cjk},
    {"symbol-words",
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
     "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     next_symbol_words},
    {0},
};

const struct tok_scanner *tok_scanner_find(struct str pattern) {
    for (const struct tok_scanner *s = tok_scanners; s->name; s++)
        if (str_is(pattern, s->pattern)) return s;
    return NULL;
}

const struct tok_scanner *tok_scanner_named(const char *name) {
    const struct tok_scanner *s = tok_scanners;
    while (!str_is(str_of(s->name), name)) s++;
    return s;
}
