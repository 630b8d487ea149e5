/* Literals: which of their bytes are tokens, and Knuth-Morris-Pratt. */
#include "text/output/literal.h"

#include "text/tokenizer/tokenizer.h"

bool literal_looks_marked(struct str s) {
    return s.n >= 4 && strchr("<[]", s.p[0]) && strchr(">[]", s.p[s.n - 1]);
}

static const bool *find_tokens(struct arena *a, struct str text, const struct tok *tok) {
    bool *marks = arena_new(a, bool, text.n), any = false;
    for (size_t i = 0, n; i < text.n; i += n) {
        for (n = text.n - i; n > 1; n--) {
            struct str part = str_sub(text, i, n);
            if (literal_looks_marked(part) && tok_id_of(tok, part) >= 0) break;
        }
        if (n > 1) memset(marks + i, any = true, n);
    }
    return any ? marks : NULL;
}

struct literal literal_make(struct arena *a, struct str text, const struct tok *tok) {
    uint8_t *fail = arena_new(a, uint8_t, text.n);
    for (size_t i = 1; i < text.n; i++) {
        size_t k = fail[i - 1];
        while (k > 0 && text.p[i] != text.p[k]) k = fail[k - 1];
        fail[i] = (uint8_t)(text.p[i] == text.p[k] ? k + 1 : 0);
    }
    return (struct literal){.text = text, .is_token = tok ? find_tokens(a, text, tok) : NULL, .fail = fail};
}

size_t literal_advance(const struct literal *l, size_t n, char c, bool is_token) {
    while (n > 0 && !literal_takes(l, n, c, is_token)) n = l->fail[n - 1];
    return literal_takes(l, n, c, is_token) ? n + 1 : 0;
}
