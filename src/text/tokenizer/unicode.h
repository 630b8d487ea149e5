/* Character properties and normal forms, as the reference tokenizers see them.
 *
 * The tables (unicode_data.inc, written by tools/make_unicode.py) record the answers of the libraries beneath Hugging Face
 * `tokenizers`, which follow different versions of Unicode; that is why one property can exist twice (N and NUMERIC,
 * P and PUNCT). Nothing here depends on the C library's locale or on the version of an installed Unicode library.
 */
#ifndef MLXCEL_TEXT_TOKENIZER_UNICODE_H
#define MLXCEL_TEXT_TOKENIZER_UNICODE_H

#include "base/str.h"

/* ORDER UNICODE: bit numbers equal the order of the rows in tools/make_unicode.py. */
enum tok_uni_flag {
    UNI_LU = 1 << 0, /* general categories, as Oniguruma's \p{..} */
    UNI_LL = 1 << 1,
    UNI_LT = 1 << 2,
    UNI_LM = 1 << 3,
    UNI_LO = 1 << 4,
    UNI_M = 1 << 5,
    UNI_N = 1 << 6,
    UNI_P = 1 << 7,
    UNI_S = 1 << 8,
    UNI_ND = 1 << 9,
    UNI_Z = 1 << 10,
    UNI_PC = 1 << 11,
    UNI_CN = 1 << 12,
    UNI_SPACE = 1 << 13,      /* \s, and Rust's is_whitespace: they agree */
    UNI_NUMERIC = 1 << 14,    /* Rust's is_numeric: Digits */
    UNI_PUNCT = 1 << 15,      /* Punctuation, BertPreTokenizer */
    UNI_WORD = 1 << 16,       /* \w of the crate regex: Whitespace, single_word */
    UNI_CONTROL = 1 << 17,    /* removed by BertNormalizer's clean_text */
    UNI_NONSPACING = 1 << 18, /* removed by BertNormalizer's strip_accents */
    UNI_COMBINING = 1 << 19,  /* removed by StripAccents */
    UNI_EXTEND = 1 << 20,     /* continues the grapheme cluster before it */
    UNI_PREPEND = 1 << 21,    /* joins the grapheme cluster after it */
    UNI_BREAK = 1 << 22,      /* a grapheme cluster of its own: controls, line ends */
    UNI_NFD = 1 << 23,        /* may change or move under that form */
    UNI_NFKD = 1 << 24,
    UNI_NFC = 1 << 25,
    UNI_NFKC = 1 << 26,
    UNI_L = UNI_LU | UNI_LL | UNI_LT | UNI_LM | UNI_LO,
};

struct tok_uni_row {
    uint32_t code;
    uint16_t at;
    uint8_t n;
};

struct tok_uni_map {
    const struct tok_uni_row *rows; /* sorted by code */
    size_t n;
    const uint8_t *pool; /* UTF-8 */
};

struct tok_uni_ccc {
    uint32_t code;
    uint8_t class_;
};

struct tok_uni_pair {
    uint32_t first, second, composed;
};

extern const uint32_t tok_uni_flags[];
extern const uint32_t tok_uni_ascii[128];
extern const uint16_t tok_uni_index[];
extern const uint8_t tok_uni_class[];
extern const struct tok_uni_map tok_uni_canonical, tok_uni_compatible, tok_uni_lower;
extern const struct tok_uni_ccc tok_uni_ccc[];
extern const size_t tok_uni_n_ccc;
extern const struct tok_uni_pair tok_uni_pairs[];
extern const size_t tok_uni_n_pairs;

/* The flags of a code point; 0 beyond U+10FFFF. */
static inline uint32_t tok_uni(uint32_t c) {
    if (c >= 0x110000) return 0;
    return tok_uni_flags[tok_uni_class[(size_t)tok_uni_index[c >> 7] * 128 + (c & 127)]];
}

/* Decodes one character of text that is known to be valid UTF-8 and not at its end. */
static inline uint32_t tok_utf8(const char *s, size_t *out_len) {
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) {
        *out_len = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *out_len = 2;
        return (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
    }
    if (p[0] < 0xF0) {
        *out_len = 3;
        return (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
    }
    *out_len = 4;
    return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 | (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
}

/* Length of a character of valid UTF-8 by its first byte. */
static inline size_t tok_utf8_len(unsigned char first) {
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Start of the character that ends before byte i > 0 of valid UTF-8. */
static inline size_t tok_utf8_back(const char *p, size_t i) {
    do i--;
    while (i > 0 && ((unsigned char)p[i] & 0xC0) == 0x80);
    return i;
}

/* The replacement of c in a map; {NULL, 0} when it has none. */
struct str tok_uni_find(const struct tok_uni_map *map, uint32_t c);

/* ASCII bytes at the start of s, at least up to the first other one less 7 (read eight at a time). */
size_t tok_ascii_run(const char *p, size_t n);

/* Valid UTF-8: returns true. Otherwise appends a copy to *out with each maximal invalid part replaced by U+FFFD, as
 * Rust's from_utf8_lossy and Python's errors="replace" do. */
bool tok_utf8_check(struct str s, struct sb *out);
/* Appends s with invalid parts replaced; a part that more bytes could still complete stays out when `more` is true.
 * Returns how many bytes were used. */
size_t tok_utf8_lossy(struct str s, bool more, struct sb *out);

enum tok_form { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD };

/* One character on its way through a normal form. */
struct tok_cell {
    uint32_t code;
    uint8_t ccc;
    uint8_t mark; /* carried along: see normalizer.h */
};

struct tok_cells {
    struct tok_cell *p;
    size_t n, capacity;
};

/* Appends the decomposition of c (compatible where the form says so) to cells; each gets `mark`. */
void tok_decompose(struct tok_cells *cells, enum tok_form form, uint32_t c, uint8_t mark);
/* Canonical order, then composition for NFC and NFKC, in place. A composed character keeps the lesser mark. */
void tok_compose(struct tok_cells *cells, enum tok_form form);
static inline uint32_t tok_form_flag(enum tok_form form) {
    static const uint32_t flags[] = {UNI_NFC, UNI_NFD, UNI_NFKC, UNI_NFKD};
    return flags[form];
}
uint8_t tok_ccc(uint32_t c);

#endif
