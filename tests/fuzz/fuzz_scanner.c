/* The hand-written scanners against PCRE2 on any text: same matches, in order, never empty. The first byte picks one. */
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX_SCANNERS = 32 };

static void compare(const struct tok_scanner *s, struct tok_pattern *pattern, struct tok_match_state **state, struct str text) {
    struct tok_cursor at = {0};
    size_t from = 0, start = 0, end = 0;
    bool found, scanned;
    tok_match_state_refill(*state);
    do {
        struct tok_match m = {0};
        if (tok_pattern_next(pattern, state, text, &at, &m, &found, NULL)) return; /* over PCRE2's limits */
        scanned = s->next(text, from, &start, &end);
        if (scanned != found || (found && (m.start != start || m.end != end || end <= start))) __builtin_trap();
        from = end;
    } while (found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct tok_pattern *patterns[MAX_SCANNERS];
    static struct tok_match_state *state;
    static struct arena arena;
    struct sb text = {0};
    size_t n_scanners = 0;
    if (n < 2) return 0;
    while (tok_scanners[n_scanners].name) n_scanners++;
    size_t i = data[0] % n_scanners;
    if (!patterns[i] && tok_pattern_regex(&arena, str_of(tok_scanners[i].pattern), true, &patterns[i], NULL)) __builtin_trap();
    tok_utf8_lossy(str_n((const char *)data + 1, n - 1), false, &text);
    compare(&tok_scanners[i], patterns[i], &state, sb_str(&text));
    sb_free(&text);
    return 0;
}
