/* Comparing and dividing decimal spellings digit by digit. */
#include "text/grammar/numbers.h"

#include "text/grammar/regex.h"

enum { MAX_DIGITS = 400, MAX_MULTIPLE_STATES = 200000 };

void numbers_init(struct numbers *n, struct dfa_pool *p) {
    n->p = p;
    n->unsigned_all = regex_known(p, "(0|[1-9][0-9]*)(\\.[0-9]+)?");
    n->all = regex_known(p, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?");
    n->integers = regex_known(p, "-?(0|[1-9][0-9]*)(\\.0+)?");
    struct decimal zero = {.whole = STR("0")};
    n->at_least_zero = numbers_above(n, &zero, true);
    n->spell_all = regex_known(p, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?");
    n->spell_at_least_zero = regex_known(p, "(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?");
    n->spell_integers = regex_known(p, "0|-?[1-9][0-9]*");
    n->spell_unique = regex_known(p, "0|-?([1-9][0-9]*(\\.[0-9]*[1-9])?|0\\.[0-9]*[1-9])");
}

/* ---- decimals ---------------------------------------------------------------------------------------------------------- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

int gram_decimal_parse(struct arena *a, struct str text, struct decimal *out, struct err *err) {
    size_t i = 0, point = STR_NONE;
    int64_t exponent = 0;
    struct sb digits = {0};
    *out = (struct decimal){0};
    if (i < text.n && text.p[i] == '-') out->is_negative = true, i++;
    for (; i < text.n && (is_digit(text.p[i]) || text.p[i] == '.'); i++) {
        if (text.p[i] == '.') point = digits.n;
        else sb_putc(&digits, text.p[i]);
    }
    if (point == STR_NONE) point = digits.n;
    if (i < text.n && (text.p[i] | 0x20) == 'e') {
        struct str tail = str_from(text, i + 1 + (i + 1 < text.n && text.p[i + 1] == '+'));
        if (!str_to_int64(tail, &exponent)) exponent = MAX_DIGITS + 1;
    }
    size_t first = 0, last = digits.n;
    while (first < last && digits.p[first] == '0') first++;
    while (last > first && digits.p[last - 1] == '0') last--;
    if (first == last) {
        out->whole = STR("0");
        out->fraction = STR("");
        out->is_negative = false;
        sb_free(&digits);
        return ERR_OK;
    }
    int64_t places =
        (int64_t)point + (exponent > MAX_DIGITS || exponent < -MAX_DIGITS ? 2 * MAX_DIGITS : exponent); /* digits before the point */
    int code = ERR_OK;
    if (places > MAX_DIGITS || places < -MAX_DIGITS || last - first > MAX_DIGITS) {
        code = err_set(err, ERR_ELIMIT, "the number %.*s has too many digits", STR_ARG(str_sub(text, 0, 40)));
    } else {
        struct sb whole = {0}, fraction = {0};
        for (int64_t k = (int64_t)first; k < places; k++) sb_putc(&whole, k < (int64_t)last ? digits.p[k] : '0');
        for (int64_t k = places; k < (int64_t)last; k++) sb_putc(&fraction, k < (int64_t)first ? '0' : digits.p[k]);
        out->whole = whole.n ? str_copy(a, sb_str(&whole)) : STR("0");
        out->fraction = str_copy(a, sb_str(&fraction));
        sb_free(&whole);
        sb_free(&fraction);
    }
    sb_free(&digits);
    return code;
}

bool gram_decimal_is_whole(const struct decimal *d) {
    return d->fraction.n == 0;
}

bool gram_decimal_to_size(const struct decimal *d, uint64_t *out) {
    uint64_t v = 0;
    if (d->is_negative || d->fraction.n || d->whole.n > 18) return false;
    for (size_t i = 0; i < d->whole.n; i++) v = v * 10 + (uint64_t)(d->whole.p[i] - '0');
    *out = v;
    return true;
}

/* ---- tables ------------------------------------------------------------------------------------------------------------ */

/* Columns: any other byte, the minus, the point, the ten digits. */
enum { COLUMN_OTHER, COLUMN_MINUS, COLUMN_POINT, COLUMN_DIGIT, N_COLUMNS = COLUMN_DIGIT + 10 };

static struct dfa new_table(struct arena *a, uint32_t n_states) {
    struct dfa d = {.n_classes = N_COLUMNS, .n_states = n_states, .start = 1};
    d.classes['-'] = COLUMN_MINUS;
    d.classes['.'] = COLUMN_POINT;
    for (int i = 0; i < 10; i++) d.classes['0' + i] = (uint8_t)(COLUMN_DIGIT + i);
    d.next = arena_new(a, uint32_t, (size_t)n_states * N_COLUMNS);
    d.labels = arena_new(a, uint16_t, n_states);
    return d;
}

static uint32_t *edge(struct dfa *d, uint32_t state, uint32_t column) {
    return &d->next[(size_t)state * N_COLUMNS + column];
}

/* A minus before every text of a set. */
static dfa_id with_minus(struct dfa_pool *p, dfa_id set) {
    const struct dfa *old = dfa_get(p, set);
    if (set == DFA_NONE) return DFA_NONE;
    struct arena a = {0};
    struct dfa d = new_table(&a, old->n_states + 1);
    for (uint32_t s = 1; s < old->n_states; s++) {
        d.labels[s] = old->labels[s];
        for (int b = 0; b < 256; b++) d.next[(size_t)s * N_COLUMNS + d.classes[b]] = dfa_step(old, s, (uint8_t)b);
    }
    d.start = old->n_states;
    *edge(&d, d.start, COLUMN_MINUS) = old->start;
    arena_reset(&p->scratch);
    dfa_id id = dfa_from_table(p, &d);
    arena_free(&a);
    return id;
}

/* ---- magnitudes above a bound ------------------------------------------------------------------------------------------ */

enum relation { LESS, EQUAL, GREATER };

/* States of the comparison with digits w (whole) and f (fraction): 1 start; whole part of i digits read (i up to one more
 * than w has) in each relation; a lone zero in each relation; behind the point, before and after its first digit, with the
 * relation decided or equal through j digits of f. */
struct comparison {
    struct str w, f;
    struct dfa d;
    uint32_t whole, zero, point, fraction; /* first state of each group */
};

static uint32_t group_state(uint32_t group, enum relation r, size_t j) {
    return group + (r == EQUAL ? 2 + (uint32_t)j : r == GREATER);
}

static enum relation digit_relation(enum relation r, int digit, char other) {
    if (r != EQUAL) return r;
    return digit < other - '0' ? LESS : digit > other - '0' ? GREATER : EQUAL;
}

/* The relation of the whole parts when i digits were read and the common beginning relates as r. */
static enum relation whole_relation(const struct comparison *c, size_t i, enum relation r) {
    return i < c->w.n ? LESS : i > c->w.n ? GREATER : r;
}

static bool is_above(const struct comparison *c, enum relation r, size_t j, bool inclusive) {
    if (r == EQUAL && j < c->f.n) r = LESS; /* the digits of f that were not read are not all zero */
    return r == GREATER || (r == EQUAL && inclusive);
}

static void add_whole_part(struct comparison *c, bool inclusive) {
    struct dfa *d = &c->d;
    size_t longest = c->w.n + 1;
    for (int digit = 0; digit < 10; digit++) {
        enum relation r = digit_relation(EQUAL, digit, c->w.p[0]);
        *edge(d, 1, COLUMN_DIGIT + (uint32_t)digit) = digit ? c->whole + r : c->zero + r;
    }
    for (size_t i = 1; i <= longest; i++)
        for (int r = LESS; r <= GREATER; r++) {
            uint32_t s = c->whole + 3 * (uint32_t)(i - 1) + (uint32_t)r;
            enum relation end = whole_relation(c, i, (enum relation)r);
            d->labels[s] = is_above(c, end, 0, inclusive);
            *edge(d, s, COLUMN_POINT) = group_state(c->point, end, 0);
            for (int digit = 0; digit < 10; digit++) {
                enum relation next = i < c->w.n ? digit_relation((enum relation)r, digit, c->w.p[i]) : (enum relation)r;
                *edge(d, s, COLUMN_DIGIT + (uint32_t)digit) = c->whole + 3 * (uint32_t)(i < longest ? i : longest - 1) + (uint32_t)next;
            }
        }
    for (int r = LESS; r <= GREATER; r++) {
        enum relation end = whole_relation(c, 1, (enum relation)r);
        d->labels[c->zero + (uint32_t)r] = is_above(c, end, 0, inclusive);
        *edge(d, c->zero + (uint32_t)r, COLUMN_POINT) = group_state(c->point, end, 0);
    }
}

static void add_fraction(struct comparison *c, bool inclusive) {
    struct dfa *d = &c->d;
    for (int r = LESS; r <= GREATER; r++)
        for (size_t j = 0; j <= (r == EQUAL ? c->f.n : 0); j++) {
            uint32_t before = group_state(c->point, (enum relation)r, j), after = group_state(c->fraction, (enum relation)r, j);
            d->labels[after] = is_above(c, (enum relation)r, j, inclusive);
            for (int digit = 0; digit < 10; digit++) {
                enum relation next = digit_relation((enum relation)r, digit, j < c->f.n ? c->f.p[j] : '0');
                uint32_t to = group_state(c->fraction, next, j < c->f.n ? j + 1 : j);
                *edge(d, before, COLUMN_DIGIT + (uint32_t)digit) = *edge(d, after, COLUMN_DIGIT + (uint32_t)digit) = to;
            }
        }
}

static dfa_id magnitudes_above(struct numbers *n, const struct decimal *bound, bool inclusive) {
    struct arena a = {0};
    struct comparison c = {.w = bound->whole, .f = bound->fraction};
    c.whole = 2;
    c.zero = c.whole + 3 * (uint32_t)(c.w.n + 1);
    c.point = c.zero + 3;
    c.fraction = c.point + 3 + (uint32_t)c.f.n;
    c.d = new_table(&a, c.fraction + 3 + (uint32_t)c.f.n);
    add_whole_part(&c, inclusive);
    add_fraction(&c, inclusive);
    arena_reset(&n->p->scratch);
    dfa_id id = dfa_from_table(n->p, &c.d);
    arena_free(&a);
    return id;
}

static bool is_zero(const struct decimal *d) {
    return d->fraction.n == 0 && d->whole.n == 1 && d->whole.p[0] == '0';
}

dfa_id numbers_above(struct numbers *n, const struct decimal *bound, bool inclusive) {
    if (!bound->is_negative && !is_zero(bound)) return magnitudes_above(n, bound, inclusive);
    /* From a bound at or below zero: the numbers without a minus, and those with one that are not larger than it. */
    dfa_id larger = magnitudes_above(n, bound, !inclusive);
    dfa_id negative = with_minus(n->p, dfa_minus(n->p, n->unsigned_all, larger));
    dfa_id positive = is_zero(bound) ? magnitudes_above(n, bound, inclusive) : n->unsigned_all;
    return dfa_or(n->p, positive, negative);
}

dfa_id numbers_below(struct numbers *n, const struct decimal *bound, bool inclusive) {
    return dfa_minus(n->p, n->all, numbers_above(n, bound, !inclusive));
}

dfa_id numbers_equal(struct numbers *n, const struct decimal *value) {
    return dfa_minus(n->p, numbers_above(n, value, true), numbers_above(n, value, false));
}

/* ---- multiples --------------------------------------------------------------------------------------------------------- */

/* States: 1 start, then groups of m remainders: the whole part, a lone zero (one state), each digit behind the point (0 to k
 * of them; the group 0 is the point itself), and behind the k digits zeros alone. */
int numbers_multiples(struct numbers *n, const struct decimal *of, dfa_id *out, struct err *err) {
    uint64_t m = 0, k = of->fraction.n;
    for (size_t i = 0; i < of->whole.n + k && m <= MAX_MULTIPLE_STATES; i++)
        m = m * 10 + (uint64_t)((i < of->whole.n ? of->whole.p[i] : of->fraction.p[i - of->whole.n]) - '0');
    if (m == 0) return err_set(err, ERR_EARG, "multipleOf must be above zero");
    if (m * (k + 3) > MAX_MULTIPLE_STATES) return err_set(err, ERR_ELIMIT, "multipleOf is too large to be followed digit by digit");
    struct arena a = {0};
    uint32_t mod = (uint32_t)m, whole = 2, zero = whole + mod, point = zero + 1, zeros = point + mod * (uint32_t)(k + 1);
    struct dfa d = new_table(&a, zeros + 1);
    uint32_t scale = 1 % mod; /* 10^(digits that are still missing), by remainder */
    for (size_t j = k + 1; j-- > 0;) {
        for (uint32_t r = 0; r < mod; r++) {
            uint32_t s = point + (uint32_t)j * mod + r;
            d.labels[s] = j && (uint64_t)r * scale % mod == 0;
            for (uint32_t digit = 0; digit < 10; digit++)
                *edge(&d, s, COLUMN_DIGIT + digit) = j < k ? point + (uint32_t)(j + 1) * mod + (uint32_t)(((uint64_t)r * 10 + digit) % mod)
                                                     : digit == 0 && r == 0 ? zeros
                                                                            : 0;
        }
        if (j) scale = (uint32_t)((uint64_t)scale * 10 % mod);
    }
    for (uint32_t r = 0; r < mod; r++) {
        d.labels[whole + r] = (uint64_t)r * scale % mod == 0;
        *edge(&d, whole + r, COLUMN_POINT) = point + r;
        for (uint32_t digit = 0; digit < 10; digit++)
            *edge(&d, whole + r, COLUMN_DIGIT + digit) = whole + (uint32_t)(((uint64_t)r * 10 + digit) % mod);
    }
    for (uint32_t digit = 0; digit < 10; digit++) *edge(&d, 1, COLUMN_DIGIT + digit) = digit ? whole + digit % mod : zero;
    d.labels[zero] = 1;
    *edge(&d, zero, COLUMN_POINT) = point;
    d.labels[zeros] = 1;
    *edge(&d, zeros, COLUMN_DIGIT) = zeros;
    arena_reset(&n->p->scratch);
    dfa_id positive = dfa_from_table(n->p, &d);
    arena_free(&a);
    *out = dfa_or(n->p, positive, with_minus(n->p, positive));
    return ERR_OK;
}

/* ---- spelling ---------------------------------------------------------------------------------------------------------- */

dfa_id numbers_spell(struct numbers *n, dfa_id set, bool is_unique) {
    if (set == DFA_NONE) return DFA_NONE;
    if (is_unique) return dfa_and(n->p, set, n->spell_unique);
    if (set == n->all) return n->spell_all;
    if (set == n->at_least_zero) return n->spell_at_least_zero;
    return dfa_minus(n->p, set, n->integers) == DFA_NONE ? dfa_and(n->p, set, n->spell_integers) : set;
}
