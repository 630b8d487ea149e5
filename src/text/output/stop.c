/* Stop strings: one Knuth-Morris-Pratt matcher each; the longest partial match is what must be held back. */
#include "text/output/stop.h"

static void init_string(struct stop_string *s, struct arena *a, struct str text) {
    s->text = str_copy(a, text);
    s->fail = arena_new(a, int32_t, text.n);
    s->n_seen = 0;
    for (size_t i = 1; i < text.n; i++) {
        int32_t k = s->fail[i - 1];
        while (k > 0 && text.p[i] != text.p[k]) k = s->fail[k - 1];
        s->fail[i] = text.p[i] == text.p[k] ? k + 1 : 0;
    }
}

int stop_init(struct stop *s, struct arena *a, const struct str *strings, size_t n, struct err *err) {
    *s = (struct stop){.matched = -1};
    if (n > STOP_STRINGS_MAX) return err_set(err, ERR_EARG, "%zu stop strings were given, at most %d are taken", n, STOP_STRINGS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (strings[i].n == 0) return err_set(err, ERR_EARG, "a stop string is empty");
        if (strings[i].n > STOP_BYTES_MAX) return err_set(err, ERR_EARG, "a stop string has more than %d bytes", STOP_BYTES_MAX);
        init_string(&s->strings[s->n++], a, strings[i]);
    }
    return ERR_OK;
}

void stop_free(struct stop *s) {
    sb_free(&s->hold);
}

static int32_t advance(struct stop_string *s, char c) {
    int32_t k = s->n_seen;
    while (k > 0 && s->text.p[k] != c) k = s->fail[k - 1];
    if (s->text.p[k] == c) k++;
    return s->n_seen = k;
}

/* Takes one byte; the length of the longest string that ends with it, or 0. */
static int32_t step(struct stop *s, char c, int32_t *out_held) {
    int32_t found = 0, held = 0;
    for (int32_t i = 0; i < s->n; i++) {
        int32_t k = advance(&s->strings[i], c);
        if ((size_t)k == s->strings[i].text.n && k > found) {
            found = k;
            s->matched = i;
        }
        if (k > held) held = k;
    }
    *out_held = held;
    return found;
}

bool stop_push(struct stop *s, struct str text, struct sb *out) {
    if (s->matched >= 0) return true;
    if (s->n == 0) {
        sb_put(out, text);
        return false;
    }
    int32_t held = 0;
    for (size_t i = 0; i < text.n; i++) {
        int32_t found = step(s, text.p[i], &held);
        sb_putc(&s->hold, text.p[i]);
        if (found) {
            sb_put(out, str_n(s->hold.p, s->hold.n - (s->keeps ? 0 : (size_t)found)));
            sb_clear(&s->hold);
            return true;
        }
    }
    size_t certain = s->hold.n - (size_t)held;
    if (s->hold.n == 0 || certain == 0) return false;
    sb_put(out, str_n(s->hold.p, certain));
    memmove(s->hold.p, s->hold.p + certain, (size_t)held);
    s->hold.n = (size_t)held;
    return false;
}

void stop_flush(struct stop *s, struct sb *out) {
    if (s->matched < 0) sb_put(out, sb_str(&s->hold));
    sb_clear(&s->hold);
}
