/* Reasoning and content, told apart by a small state machine over the text that is not yet certain. */
#include "text/output/reasoning.h"

static const struct str open_tag = {"<think>", 7}, close_tag = {"</think>", 8};

void reasoning_init(struct reasoning *r, bool inside) {
    *r = (struct reasoning){.state = inside ? REASONING_INSIDE : REASONING_START, .trims = inside};
}

void reasoning_free(struct reasoning *r) {
    sb_free(&r->hold);
}

bool reasoning_is_open(struct str prompt) {
    return str_ends(str_trim(prompt), open_tag);
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void drop(struct sb *b, size_t n) {
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

static void drop_space(struct reasoning *r) {
    size_t n = 0;
    while (n < r->hold.n && is_space(r->hold.p[n])) n++;
    if (n) drop(&r->hold, n);
    if (r->hold.n) r->trims = false;
}

static void give(struct reasoning *r, size_t n, struct sb *out) {
    if (n == 0) return;
    sb_put(out, str_n(r->hold.p, n));
    drop(&r->hold, n);
}

/* At the beginning: the tag, or something that cannot become it. False while that is open. */
static bool decide(struct reasoning *r) {
    size_t space = 0;
    while (space < r->hold.n && is_space(r->hold.p[space])) space++;
    struct str rest = str_from(sb_str(&r->hold), space);
    if (str_starts(rest, open_tag)) {
        drop(&r->hold, space + open_tag.n);
        r->state = REASONING_INSIDE;
        r->trims = true;
        return true;
    }
    if (str_starts(open_tag, rest)) return false;
    r->state = REASONING_NONE;
    return true;
}

/* How much at the end may still be white space before the closing tag, or a part of it. */
static size_t uncertain(struct str s) {
    size_t tag = close_tag.n - 1 < s.n ? close_tag.n - 1 : s.n;
    while (tag > 0 && !str_eq(str_from(s, s.n - tag), str_sub(close_tag, 0, tag))) tag--;
    size_t n = tag;
    while (n < s.n && is_space(s.p[s.n - n - 1])) n++;
    return n;
}

static bool think(struct reasoning *r, struct sb *out) {
    if (r->trims) drop_space(r);
    size_t at = str_find(sb_str(&r->hold), close_tag, 0);
    if (at == STR_NONE) {
        give(r, r->hold.n - uncertain(sb_str(&r->hold)), out);
        return false;
    }
    size_t end = at;
    while (end > 0 && is_space(r->hold.p[end - 1])) end--;
    sb_put(out, str_n(r->hold.p, end));
    drop(&r->hold, at + close_tag.n);
    r->state = REASONING_AFTER;
    r->trims = true;
    return true;
}

void reasoning_push(struct reasoning *r, struct str text, struct sb *out_reasoning, struct sb *out_content) {
    sb_put(&r->hold, text);
    if (r->state == REASONING_START && !decide(r)) return;
    if (r->state == REASONING_INSIDE && !think(r, out_reasoning)) return;
    if (r->trims) drop_space(r);
    give(r, r->hold.n, out_content);
}

void reasoning_flush(struct reasoning *r, struct sb *out_reasoning, struct sb *out_content) {
    if (r->state == REASONING_AFTER && r->trims) drop_space(r);
    give(r, r->hold.n, r->state == REASONING_INSIDE ? out_reasoning : out_content);
}
