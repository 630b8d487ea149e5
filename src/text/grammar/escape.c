/* The states of an escape in one number: kind, digits so far, their value, the high surrogate before. */
#include "text/grammar/escape.h"

enum kind { NONE, SLASH, DIGITS, PAIR_SLASH, PAIR_U, PAIR_DIGITS };

static uint32_t pack(uint32_t kind, uint32_t n_digits, uint32_t value, uint32_t high) {
    return kind | n_digits << 3 | value << 5 | high << 21;
}

static int hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t of_pair(uint32_t high, uint32_t low) {
    return 0x10000 + (high << 10) + (low - 0xDC00);
}

/* Every character that has an escape of its own. */
static const struct {
    char letter, meaning;
} letters[] = {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', '\b'}, {'f', '\f'}, {'n', '\n'}, {'r', '\r'}, {'t', '\t'}};

static enum escape_result after_slash(uint32_t *escape, uint8_t byte, struct escape_ranges *out) {
    if (byte == 'u') {
        *escape = pack(DIGITS, 0, 0, 0);
        *out = (struct escape_ranges){0, 0xFFFF, 0x10000, 0x10FFFF};
        return ESCAPE_MORE;
    }
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].letter == (char)byte) {
            *escape = NONE;
            *out = (struct escape_ranges){(uint8_t)letters[i].meaning, (uint8_t)letters[i].meaning, 1, 0};
            return ESCAPE_CHAR;
        }
    return ESCAPE_BAD;
}

static enum escape_result add_digit(uint32_t *escape, uint8_t byte, struct escape_ranges *out) {
    int digit = hex_digit(byte);
    if (digit < 0) return ESCAPE_BAD;
    uint32_t n = (*escape >> 3 & 3) + 1, value = (*escape >> 5 & 0xFFFF) << 4 | (uint32_t)digit, open = 4 * (4 - n);
    *out = (struct escape_ranges){value << open, (value << open) + ((uint32_t)1 << open) - 1, 1, 0};
    uint32_t first = out->lo > 0xD800 ? out->lo : 0xD800, last = out->hi < 0xDBFF ? out->hi : 0xDBFF;
    if (first <= last) { /* high surrogates are among them */
        out->lo2 = of_pair(first - 0xD800, 0xDC00);
        out->hi2 = of_pair(last - 0xD800, 0xDFFF);
    }
    if (n < 4) {
        *escape = pack(DIGITS, n, value, 0);
        return ESCAPE_MORE;
    }
    if (value >= 0xDC00 && value <= 0xDFFF) return ESCAPE_BAD;
    if (value >= 0xD800 && value <= 0xDBFF) {
        *escape = pack(PAIR_SLASH, 0, 0, value - 0xD800);
        out->lo = 1, out->hi = 0;
        return ESCAPE_MORE;
    }
    *escape = NONE;
    return ESCAPE_CHAR;
}

static enum escape_result add_pair_digit(uint32_t *escape, uint8_t byte, struct escape_ranges *out) {
    int digit = hex_digit(byte);
    if (digit < 0) return ESCAPE_BAD;
    uint32_t n = (*escape >> 3 & 3) + 1, value = (*escape >> 5 & 0xFFFF) << 4 | (uint32_t)digit, open = 4 * (4 - n), high = *escape >> 21;
    uint32_t lo = value << open, hi = lo + ((uint32_t)1 << open) - 1;
    uint32_t first = lo > 0xDC00 ? lo : 0xDC00, last = hi < 0xDFFF ? hi : 0xDFFF;
    if (first > last) return ESCAPE_BAD;
    *out = (struct escape_ranges){1, 0, of_pair(high, first), of_pair(high, last)};
    if (n < 4) {
        *escape = pack(PAIR_DIGITS, n, value, high);
        return ESCAPE_MORE;
    }
    *escape = NONE;
    out->lo = out->hi = out->lo2;
    return ESCAPE_CHAR;
}

enum escape_result escape_step(uint32_t *escape, uint8_t byte, struct escape_ranges *out) {
    uint32_t high = *escape >> 21;
    switch (*escape & 7) {
    case NONE:
        if (byte != '\\') return ESCAPE_BAD;
        *escape = SLASH;
        *out = (struct escape_ranges){0, 0xFFFF, 0x10000, 0x10FFFF};
        return ESCAPE_MORE;
    case SLASH: return after_slash(escape, byte, out);
    case DIGITS: return add_digit(escape, byte, out);
    case PAIR_SLASH:
    case PAIR_U:
        if (byte != ((*escape & 7) == PAIR_SLASH ? '\\' : 'u')) return ESCAPE_BAD;
        *escape = pack((*escape & 7) == PAIR_SLASH ? PAIR_U : PAIR_DIGITS, 0, 0, high);
        *out = (struct escape_ranges){1, 0, of_pair(high, 0xDC00), of_pair(high, 0xDFFF)};
        return ESCAPE_MORE;
    case PAIR_DIGITS: return add_pair_digit(escape, byte, out);
    }
    return ESCAPE_BAD;
}
