/* Look-ups in the generated tables, UTF-8 repair, and the four normal forms over runs of characters. */
#include "text/tokenizer/unicode.h"

#include "text/tokenizer/unicode_data.inc"

enum {
    HANGUL_S = 0xAC00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    N_HANGUL_L = 19,
    N_HANGUL_V = 21,
    N_HANGUL_T = 28,
    N_HANGUL_S = N_HANGUL_L * N_HANGUL_V * N_HANGUL_T
};

struct str tok_uni_find(const struct tok_uni_map *map, uint32_t c) {
    size_t low = 0, high = map->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (map->rows[mid].code < c) low = mid + 1;
        else high = mid;
    }
    if (low == map->n || map->rows[low].code != c) return (struct str){NULL, 0};
    return (struct str){(const char *)map->pool + map->rows[low].at, map->rows[low].n};
}

uint8_t tok_ccc(uint32_t c) {
    size_t low = 0, high = tok_uni_n_ccc;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (tok_uni_ccc[mid].code < c) low = mid + 1;
        else high = mid;
    }
    return low < tok_uni_n_ccc && tok_uni_ccc[low].code == c ? tok_uni_ccc[low].class_ : 0;
}

size_t tok_ascii_run(const char *p, size_t n) {
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        if (word & UINT64_C(0x8080808080808080)) break;
    }
    while (i < n && (unsigned char)p[i] < 0x80) i++;
    return i;
}

/* Length of the valid character at p, or 0; *out_bad is then the length of the maximal invalid part (at least 1), and
 * *out_short tells that the text ends inside what could still become a character. */
static size_t utf8_step(const unsigned char *p, size_t n, size_t *out_bad, bool *out_short) {
    unsigned char c = p[0], low = 0x80, high = 0xBF;
    size_t need;
    *out_bad = 1;
    *out_short = false;
    if (c < 0x80) return 1;
    if (c < 0xC2 || c > 0xF4) return 0;
    need = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    for (size_t i = 1; i < need; i++) {
        if (i == n) {
            *out_bad = i;
            *out_short = true;
            return 0;
        }
        if (p[i] < low || p[i] > high) {
            *out_bad = i;
            return 0;
        }
        low = 0x80, high = 0xBF;
    }
    return need;
}

size_t tok_utf8_lossy(struct str s, bool more, struct sb *out) {
    size_t i = 0, copied = 0;
    while (i < s.n) {
        size_t ascii = tok_ascii_run(s.p + i, s.n - i), bad, len;
        bool cut;
        i += ascii;
        if (i == s.n) break;
        len = utf8_step((const unsigned char *)s.p + i, s.n - i, &bad, &cut);
        if (len) {
            i += len;
            continue;
        }
        sb_put(out, str_n(s.p + copied, i - copied));
        if (cut && more) return i;
        sb_puts(out, "\xEF\xBF\xBD");
        i += bad;
        copied = i;
    }
    sb_put(out, str_n(s.p + copied, i - copied));
    return i;
}

bool tok_utf8_check(struct str s, struct sb *out) {
    size_t i = 0;
    while (i < s.n) {
        size_t bad, len;
        bool cut;
        i += tok_ascii_run(s.p + i, s.n - i);
        if (i == s.n) break;
        len = utf8_step((const unsigned char *)s.p + i, s.n - i, &bad, &cut);
        if (!len) {
            tok_utf8_lossy(s, false, out);
            return false;
        }
        i += len;
    }
    return true;
}

static void push(struct tok_cells *cells, uint32_t c, uint8_t mark) {
    if (cells->n == cells->capacity) {
        cells->capacity = cells->capacity ? cells->capacity * 2 : 64;
        cells->p = mem_realloc(cells->p, cells->capacity * sizeof *cells->p);
    }
    cells->p[cells->n++] = (struct tok_cell){c, tok_uni(c) & UNI_NFD ? tok_ccc(c) : 0, mark};
}

void tok_decompose(struct tok_cells *cells, enum tok_form form, uint32_t c, uint8_t mark) {
    if (c - HANGUL_S < N_HANGUL_S) {
        uint32_t s = c - HANGUL_S, t = s % N_HANGUL_T;
        push(cells, HANGUL_L + s / (N_HANGUL_V * N_HANGUL_T), mark);
        push(cells, HANGUL_V + s / N_HANGUL_T % N_HANGUL_V, mark);
        if (t) push(cells, HANGUL_T + t, mark);
        return;
    }
    struct str to = {NULL, 0};
    if (tok_uni(c) & UNI_NFKD) {
        if (form == FORM_NFKC || form == FORM_NFKD) to = tok_uni_find(&tok_uni_compatible, c);
        if (!to.p) to = tok_uni_find(&tok_uni_canonical, c);
    }
    if (!to.p) {
        push(cells, c, mark);
        return;
    }
    for (size_t i = 0, len; i < to.n; i += len) push(cells, tok_utf8(to.p + i, &len), mark);
}

/* A stable counting sort of one run of non-starters, so that a million marks take a time proportional to their number. */
static void sort_run(struct tok_cell *p, size_t n) {
    if (n < 24) {
        for (size_t i = 1; i < n; i++)
            for (size_t k = i; k > 0 && p[k - 1].ccc > p[k].ccc; k--) {
                struct tok_cell swap = p[k];
                p[k] = p[k - 1];
                p[k - 1] = swap;
            }
        return;
    }
    size_t start[257] = {0};
    struct tok_cell *sorted = mem_alloc(n * sizeof *sorted);
    for (size_t i = 0; i < n; i++) start[p[i].ccc + 1]++;
    for (size_t i = 1; i < 257; i++) start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++) sorted[start[p[i].ccc]++] = p[i];
    memcpy(p, sorted, n * sizeof *p);
    mem_free(sorted);
}

static void sort_marks(struct tok_cells *cells) {
    for (size_t i = 0; i < cells->n;) {
        size_t end = i;
        while (end < cells->n && cells->p[end].ccc) end++;
        if (end - i > 1) sort_run(cells->p + i, end - i);
        i = end > i ? end : i + 1;
    }
}

/* The composition of two characters; 0 when there is none. */
static uint32_t pair_of(uint32_t a, uint32_t b) {
    if (a - HANGUL_L < N_HANGUL_L && b - HANGUL_V < N_HANGUL_V)
        return HANGUL_S + ((a - HANGUL_L) * N_HANGUL_V + (b - HANGUL_V)) * N_HANGUL_T;
    if (a - HANGUL_S < N_HANGUL_S && (a - HANGUL_S) % N_HANGUL_T == 0 && b > HANGUL_T && b < HANGUL_T + N_HANGUL_T)
        return a + (b - HANGUL_T);
    size_t low = 0, high = tok_uni_n_pairs;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct tok_uni_pair *m = &tok_uni_pairs[mid];
        if (m->first < a || (m->first == a && m->second < b)) low = mid + 1;
        else high = mid;
    }
    if (low == tok_uni_n_pairs) return 0;
    const struct tok_uni_pair *m = &tok_uni_pairs[low];
    return m->first == a && m->second == b ? m->composed : 0;
}

void tok_compose(struct tok_cells *cells, enum tok_form form) {
    sort_marks(cells);
    if (form == FORM_NFD || form == FORM_NFKD) return;
    size_t starter = SIZE_MAX, n_out = 0;
    int last_ccc = -1; /* of the last character kept after the starter; -1: none */
    for (size_t i = 0; i < cells->n; i++) {
        struct tok_cell c = cells->p[i];
        if (starter != SIZE_MAX && last_ccc < (int)c.ccc) {
            uint32_t composed = pair_of(cells->p[starter].code, c.code);
            if (composed) {
                cells->p[starter].code = composed;
                if (c.mark < cells->p[starter].mark) cells->p[starter].mark = c.mark;
                continue;
            }
        }
        if (c.ccc == 0) {
            starter = n_out;
            last_ccc = -1;
        } else {
            last_ccc = c.ccc;
        }
        cells->p[n_out++] = c;
    }
    cells->n = n_out;
}
