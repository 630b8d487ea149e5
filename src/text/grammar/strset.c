/* The algebra of string sets, and which lengths an automaton leaves. */
#include "text/grammar/strset.h"

#include "text/grammar/regex.h"

enum { MAX_TERMS = 256, MAX_LEVEL_CELLS = 1 << 22 };

void gram_strings_init(struct strings *s, struct arena *a, struct dfa_pool *p) {
    s->a = a;
    s->p = p;
    s->any = regex_known(p, "(?s).*");
}

struct strset strset_of(struct strings *s, dfa_id dfa, uint32_t min, uint32_t max) {
    if (dfa == DFA_NONE || min > max) return (struct strset){0};
    struct strterm *t = arena_new(s->a, struct strterm, 1);
    *t = (struct strterm){dfa, min, max};
    return (struct strset){t, 1};
}

struct strset strset_all(struct strings *s) {
    return strset_of(s, s->any, 0, STR_LONG);
}

bool strset_is_all(const struct strings *s, struct strset x) {
    return x.n == 1 && x.terms[0].dfa == s->any && x.terms[0].min == 0 && x.terms[0].max == STR_LONG;
}

/* Adds a term; terms of equal lengths become one, as do lengths that touch of one automaton. */
static void add_term(struct strings *s, struct strset *out, struct strterm t) {
    if (t.dfa == DFA_NONE || t.min > t.max) return;
    for (size_t i = 0; i < out->n; i++) {
        struct strterm *o = &out->terms[i];
        if (o->min == t.min && o->max == t.max) {
            o->dfa = dfa_or(s->p, o->dfa, t.dfa);
            return;
        }
        if (o->dfa == t.dfa && (o->max == STR_LONG || t.min <= o->max + 1) && (t.max == STR_LONG || o->min <= t.max + 1)) {
            if (t.min < o->min) o->min = t.min;
            if (t.max > o->max) o->max = t.max;
            return;
        }
    }
    if (out->n >= MAX_TERMS) s->p->is_over = true;
    else out->terms[out->n++] = t;
}

static struct strset with_room(struct strings *s, size_t n) {
    return (struct strset){arena_new(s->a, struct strterm, n < MAX_TERMS ? n : MAX_TERMS), 0};
}

struct strset strset_and(struct strings *s, struct strset x, struct strset y) {
    if (strset_is_all(s, x)) return y;
    if (strset_is_all(s, y)) return x;
    struct strset out = with_room(s, x.n * y.n);
    for (size_t i = 0; i < x.n; i++)
        for (size_t k = 0; k < y.n; k++) {
            struct strterm a = x.terms[i], b = y.terms[k];
            struct strterm t = {DFA_NONE, a.min > b.min ? a.min : b.min, a.max < b.max ? a.max : b.max};
            if (t.min <= t.max) t.dfa = dfa_and(s->p, a.dfa, b.dfa);
            add_term(s, &out, t);
        }
    return out;
}

struct strset strset_or(struct strings *s, struct strset x, struct strset y) {
    if (x.n == 0 || strset_is_all(s, y)) return y;
    if (y.n == 0 || strset_is_all(s, x)) return x;
    struct strset out = with_room(s, x.n + y.n);
    for (size_t i = 0; i < x.n; i++) add_term(s, &out, x.terms[i]);
    for (size_t i = 0; i < y.n; i++) add_term(s, &out, y.terms[i]);
    return out;
}

static struct strset term_not(struct strings *s, struct strterm t) {
    struct strset out = with_room(s, 3);
    add_term(s, &out, (struct strterm){dfa_minus(s->p, s->any, t.dfa), 0, STR_LONG});
    if (t.min) add_term(s, &out, (struct strterm){s->any, 0, t.min - 1});
    if (t.max != STR_LONG) add_term(s, &out, (struct strterm){s->any, t.max + 1, STR_LONG});
    return out;
}

struct strset strset_not(struct strings *s, struct strset x) {
    struct strset out = strset_all(s);
    for (size_t i = 0; i < x.n; i++) out = strset_and(s, out, term_not(s, x.terms[i]));
    return out;
}

/* ---- lengths ----------------------------------------------------------------------------------------------------------- */

static bool is_continuation(int b) {
    return (b & 0xC0) == 0x80;
}

/* Columns as the states' lengths see them: one byte of each column, and whether it begins a character. Columns never mix the two,
 * for no state of an automaton over UTF-8 takes both; a column that no state takes does not matter. */
struct columns {
    uint8_t byte[256];
    bool begins[256];
    uint32_t n;
};

static void find_columns(const struct dfa *d, struct columns *c) {
    bool seen[2][256] = {{false}};
    c->n = 0;
    for (int b = 0; b < 256; b++) {
        bool begins = !is_continuation(b);
        if (seen[begins][d->classes[b]]) continue;
        seen[begins][d->classes[b]] = true;
        c->byte[c->n] = (uint8_t)b;
        c->begins[c->n++] = begins;
    }
}

static bool is_inside_char(const struct dfa *d, uint32_t s) {
    for (int b = 0x80; b < 0xC0; b++)
        if (dfa_step(d, s, (uint8_t)b)) return true;
    return false;
}

/* can[s]: a text from s with exactly `level` further characters is possible; before[s] the same for one less. */
static void next_level(const struct dfa *d, const struct columns *c, const bool *inside, bool first, const bool *before, bool *can) {
    for (uint32_t s = 1; s < d->n_states; s++) {
        can[s] = first && d->labels[s] && !inside[s];
        for (uint32_t i = 0; i < c->n && !first && !inside[s] && !can[s]; i++) {
            uint32_t to = c->begins[i] ? dfa_step(d, s, c->byte[i]) : 0;
            can[s] = to && before[to];
        }
    }
    for (int round = 0; round < 3; round++) /* the bytes of one character are at most four */
        for (uint32_t s = 1; s < d->n_states; s++)
            for (uint32_t i = 0; i < c->n && inside[s] && !can[s]; i++) {
                uint32_t to = c->begins[i] ? 0 : dfa_step(d, s, c->byte[i]);
                can[s] = to && can[to];
            }
}

/* The greatest number of characters from each state, by levels until nothing is possible; endless where that lasts. */
static void find_longest(struct arena *a, const struct dfa *d, const struct columns *c, const bool *inside, struct strlengths *l) {
    uint32_t *counts = dfa_counts(a, d);
    bool *before = arena_new(a, bool, d->n_states), *can = arena_new(a, bool, d->n_states);
    l->longest = arena_new(a, uint32_t, d->n_states);
    for (uint32_t level = 0, alive = 1; alive; level++) {
        alive = 0;
        next_level(d, c, inside, level == 0, before, can);
        for (uint32_t s = 1; s < d->n_states; s++) {
            if (can[s] && counts[s] != UINT32_MAX) l->longest[s] = level, alive = 1;
            before[s] = can[s];
        }
        if (level > d->n_states) break;
    }
    for (uint32_t s = 1; s < d->n_states; s++)
        if (counts[s] == UINT32_MAX) l->longest[s] = STR_LONG;
}

static int find_levels(struct arena *a, const struct dfa *d, const struct columns *c, const bool *inside, uint32_t max,
                       struct strlengths *l, struct err *err) {
    uint32_t n = d->n_states, n_levels = 0;
    uint64_t most = (uint64_t)MAX_LEVEL_CELLS / n;
    struct sb cells = {0}; /* one byte for each level and state */
    bool *before = arena_new(a, bool, n), *can = arena_new(a, bool, n);
    for (bool is_steady = false; n_levels <= max && !is_steady; n_levels++) {
        if (n_levels >= most) {
            sb_free(&cells);
            return err_set(err, ERR_ELIMIT, "maxLength %u is too large beside this pattern", max);
        }
        next_level(d, c, inside, n_levels == 0, before, can);
        is_steady = n_levels > 1 && memcmp(before, can, n * sizeof *can) == 0; /* and so it is on all levels above */
        memcpy(before, can, n * sizeof *can);
        memcpy(sb_extend(&cells, n), can, n);
    }
    l->n_levels = n_levels;
    l->next = arena_new(a, uint32_t, (size_t)n_levels * n);
    for (uint32_t level = n_levels; level-- > 0;)
        for (uint32_t s = 0; s < n; s++) {
            size_t cell = (size_t)level * n + s;
            l->next[cell] = cells.p[cell] ? level : level + 1 < n_levels ? l->next[cell + n] : STR_LONG;
        }
    for (uint32_t s = 1; s < n; s++)
        if (l->next[s] > l->slack) l->slack = l->next[s];
    sb_free(&cells);
    return ERR_OK;
}

int gram_strlengths_make(struct arena *a, const struct dfa *d, uint32_t min, uint32_t max, struct strlengths **out, struct err *err) {
    struct columns c;
    *out = NULL;
    if (min == 0 && max == STR_LONG) return ERR_OK;
    bool *inside = arena_new(a, bool, d->n_states);
    bool is_any = true; /* all states are ends or inside a character, and go on for ever */
    for (uint32_t s = 1; s < d->n_states; s++) {
        inside[s] = is_inside_char(d, s);
        if (!inside[s]) is_any = is_any && s == d->start && d->labels[s];
    }
    if (is_any && dfa_counts(a, d)[d->start] == UINT32_MAX) return ERR_OK;
    struct strlengths *l = arena_new(a, struct strlengths, 1);
    l->n_states = d->n_states;
    find_columns(d, &c);
    *out = l;
    if (max != STR_LONG) return find_levels(a, d, &c, inside, max, l, err);
    find_longest(a, d, &c, inside, l);
    return ERR_OK;
}

bool gram_strlengths_fits(const struct strlengths *l, uint32_t state, uint32_t min, uint32_t max, uint32_t n_chars) {
    uint32_t low = min > n_chars ? min - n_chars : 0;
    if (n_chars > max) return false;
    if (!l) return true;
    if (!l->n_levels) return l->longest[state] >= low;
    uint32_t least =
        low < l->n_levels ? l->next[(size_t)low * l->n_states + state] : l->next[(size_t)(l->n_levels - 1) * l->n_states + state];
    if (least == STR_LONG) return false;
    return (least > low ? least : low) <= max - n_chars;
}
