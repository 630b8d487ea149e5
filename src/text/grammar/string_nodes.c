/* Steps inside strings and inside the names of members: characters, escapes, the closing quote. */
#include "text/grammar/escape.h"
#include "text/grammar/machine.h"

/* Characters that cannot stand in a string without an escape. */
enum { LAST_ESCAPED = '\\' };

static bool char_needs_escape(uint32_t c) {
    return c < 0x20 || c == '"' || c == '\\';
}

/* ---- strings ----------------------------------------------------------------------------------------------------------- */

bool gram_string_is_any(const struct gram *g, const struct prog_string *s) {
    return s->dfa == g->any_string && s->max >= s->min;
}

/* The string can be completed from here. */
static bool string_fits(const struct gram_machine *m, const struct node *n) {
    const struct prog_string *s = &m->g->strings[n->a];
    if (!n->b || !gram_strlengths_fits(s->lengths, n->b, s->min, s->max, n->c)) return false;
    if (!n->f) return true;
    uint32_t left = m->g->counts[s->dfa][n->b];
    return left == PROG_MANY || left > gram_wordset_count(m, n->f, n->e);
}

/* Characters are counted as far as they matter. */
static void count_char(const struct prog_string *s, struct node *n) {
    if (s->max != STR_LONG || n->c < s->min) n->c++;
}

static void add_byte(struct gram_machine *m, struct node *n, uint8_t byte) {
    n->b = dfa_step(prog_dfa(m->g, m->g->strings[n->a].dfa), n->b, byte);
    if (n->b) n->e = gram_word_add(m, n->e, byte);
}

/* The string after a whole character; false: it cannot be completed then. */
static bool add_char(struct gram_machine *m, struct node *n, uint32_t c) {
    char text[4];
    size_t len = utf8_encode(c, text);
    count_char(&m->g->strings[n->a], n);
    for (size_t i = 0; i < len && n->b; i++) add_byte(m, n, (uint8_t)text[i]);
    return string_fits(m, n);
}

/* A range of characters of equal length in UTF-8, seen as a tree of bytes. */
struct char_range {
    uint8_t lo[4], hi[4];
    size_t len;
};

/* Some character of the range can follow; `at` is inside it, tight to its ends as the flags say. */
static bool any_below(struct gram_machine *m, const struct node *at, const struct char_range *r, size_t i, bool low, bool high) {
    if (i >= r->len || i >= sizeof r->lo) return string_fits(m, at);
    for (int b = low ? r->lo[i] : 0x80; b <= (high ? r->hi[i] : 0xBF); b++) {
        struct node next = *at;
        add_byte(m, &next, (uint8_t)b);
        if (next.b && string_fits(m, &next) && any_below(m, &next, r, i + 1, low && b == r->lo[i], high && b == r->hi[i])) return true;
    }
    return false;
}

static bool any_char(struct gram_machine *m, const struct node *n, uint32_t lo, uint32_t hi) {
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    struct node after = *n;
    count_char(&m->g->strings[n->a], &after);
    for (size_t i = 0; i < 4 && lo <= hi; i++) {
        if (lo > ends[i]) continue;
        struct char_range r = {.len = i + 1};
        char text[4];
        uint32_t last = hi < ends[i] ? hi : ends[i];
        utf8_encode(lo, text);
        memcpy(r.lo, text, 4);
        utf8_encode(last, text);
        memcpy(r.hi, text, 4);
        if (any_below(m, &after, &r, 0, true, true)) return true;
        lo = ends[i] + 1;
    }
    return false;
}

/* Surrogates are no characters: their range is left out. */
static bool any_plain_char(struct gram_machine *m, const struct node *n, uint32_t lo, uint32_t hi) {
    if (lo <= 0xD7FF && any_char(m, n, lo, hi < 0xD7FF ? hi : 0xD7FF)) return true;
    return hi >= 0xE000 && any_char(m, n, lo > 0xE000 ? lo : 0xE000, hi);
}

/* Some of the characters that an escape can still become can follow. */
static bool any_escaped_char(struct gram_machine *m, const struct node *n, const struct escape_ranges *r, bool where_needed) {
    if (!where_needed)
        return (r->lo <= r->hi && any_plain_char(m, n, r->lo, r->hi)) || (r->lo2 <= r->hi2 && any_char(m, n, r->lo2, r->hi2));
    for (uint32_t c = r->lo; c <= r->hi && c <= LAST_ESCAPED; c++) {
        struct node next = *n;
        if (char_needs_escape(c) && add_char(m, &next, c)) return true;
    }
    return false;
}

static void string_escape(struct gram_machine *m, const struct node *n, uint8_t byte) {
    struct node next = *n;
    struct escape_ranges r;
    bool where_needed = !m->g->options.any_escape && !gram_string_is_any(m->g, &m->g->strings[n->a]);
    switch (escape_step(&next.d, byte, &r)) {
    case ESCAPE_BAD: return;
    case ESCAPE_CHAR:
        if ((!where_needed || char_needs_escape(r.lo)) && add_char(m, &next, r.lo)) machine_emit(m, &next);
        return;
    case ESCAPE_MORE:
        if (any_escaped_char(m, n, &r, where_needed)) machine_emit(m, &next);
    }
}

void gram_string_node_step(struct gram_machine *m, const struct node *n, uint8_t byte) {
    const struct prog_string *s = &m->g->strings[n->a];
    if (n->d || byte == '\\') {
        string_escape(m, n, byte);
    } else if (byte == '"') {
        bool is_end = prog_dfa(m->g, s->dfa)->labels[n->b] && n->c >= s->min;
        if (is_end && !(n->f && gram_wordset_has(m, n->f, n->e))) machine_finish(m, n->up, n->e);
    } else if (byte >= 0x20) {
        struct node next = *n;
        if ((byte & 0xC0) != 0x80) count_char(s, &next);
        add_byte(m, &next, byte);
        if (string_fits(m, &next)) machine_emit(m, &next);
    }
}

/* ---- names of members -------------------------------------------------------------------------------------------------- */

static struct name_place place_of(const struct node *n) {
    return (struct name_place){n->b, n->c, n->e};
}

static struct name_place name_next_char(struct gram_machine *m, const struct object_progress *p, struct name_place at, uint32_t c) {
    char text[4];
    size_t len = utf8_encode(c, text);
    for (size_t i = 0; i < len; i++) at = gram_name_next(m, p, at, (uint8_t)text[i]);
    return at;
}

static bool any_name_below(struct gram_machine *m, const struct object_progress *p, struct name_place at, const struct char_range *r,
                           size_t i, bool low, bool high) {
    if (i >= r->len || i >= sizeof r->lo) return gram_name_fits(m, p, at);
    for (int b = low ? r->lo[i] : 0x80; b <= (high ? r->hi[i] : 0xBF); b++) {
        struct name_place next = gram_name_next(m, p, at, (uint8_t)b);
        if (gram_name_fits(m, p, next) && any_name_below(m, p, next, r, i + 1, low && b == r->lo[i], high && b == r->hi[i])) return true;
    }
    return false;
}

static bool any_name_char(struct gram_machine *m, const struct object_progress *p, struct name_place at, uint32_t lo, uint32_t hi) {
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF, 0x10FFFF};
    static const size_t lengths[] = {1, 2, 3, 3, 4};
    for (size_t i = 0; i < 5 && lo <= hi; i++) {
        if (lo > ends[i]) continue;
        if (lo >= 0xD800 && lo <= 0xDFFF) lo = 0xE000;
        if (lo > hi) break;
        struct char_range r = {.len = lengths[i]};
        char text[4];
        utf8_encode(lo, text);
        memcpy(r.lo, text, 4);
        utf8_encode(hi < ends[i] ? hi : ends[i], text);
        memcpy(r.hi, text, 4);
        if (any_name_below(m, p, at, &r, 0, true, true)) return true;
        lo = ends[i] + 1;
    }
    return false;
}

static void key_emit(struct gram_machine *m, const struct node *n, uint32_t escape, struct name_place at) {
    struct node next = *n;
    next.b = at.trie;
    next.c = at.extra;
    next.d = escape;
    next.e = at.word;
    machine_emit(m, &next);
}

static bool any_escaped_name(struct gram_machine *m, const struct object_progress *p, struct name_place at, const struct escape_ranges *r) {
    if (m->g->options.any_escape)
        return (r->lo <= r->hi && any_name_char(m, p, at, r->lo, r->hi)) || (r->lo2 <= r->hi2 && any_name_char(m, p, at, r->lo2, r->hi2));
    for (uint32_t c = r->lo; c <= r->hi && c <= LAST_ESCAPED; c++)
        if (char_needs_escape(c) && gram_name_fits(m, p, name_next_char(m, p, at, c))) return true;
    return false;
}

static void key_escape(struct gram_machine *m, const struct node *n, const struct object_progress *p, uint8_t byte) {
    uint32_t escape = n->d;
    struct escape_ranges r;
    struct name_place at = place_of(n), next;
    switch (escape_step(&escape, byte, &r)) {
    case ESCAPE_BAD: return;
    case ESCAPE_CHAR:
        if (!m->g->options.any_escape && !char_needs_escape(r.lo)) return;
        next = name_next_char(m, p, at, r.lo);
        if (gram_name_fits(m, p, next)) key_emit(m, n, escape, next);
        return;
    case ESCAPE_MORE:
        if (any_escaped_name(m, p, at, &r)) key_emit(m, n, escape, at);
    }
}

void gram_key_node_step(struct gram_machine *m, const struct node *n, uint8_t byte) {
    struct object_progress p = *(const struct object_progress *)records_get(&m->objects, n->a);
    struct name_place at = place_of(n);
    if (n->d || byte == '\\') {
        key_escape(m, n, &p, byte);
    } else if (byte == '"') {
        gram_name_end(m, &p, at, n->up);
    } else if (byte >= 0x20) {
        at = gram_name_next(m, &p, at, byte);
        if (gram_name_fits(m, &p, at)) key_emit(m, n, 0, at);
    }
}
