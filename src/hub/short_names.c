/* Looks through a table of some twenty rows. */
#include "hub/short_names.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *size, *repo, *bits;
} rows[] = {
#define ROW(name, size, repo, bits) {name, size, repo, bits},
#include "hub/short_names.def"
#undef ROW
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* As the hub writes them; NULL: no bits. */
static const char *bits_of(struct str s) {
    static const char *const known[] = {"3bit", "4bit", "5bit", "6bit", "8bit", "bf16"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (hub_same_ignoring_case(s, str_of(known[i]))) return known[i];
    return NULL;
}

static struct str name_of(struct str text) {
    return str_sub(text, 0, str_find_char(text, ':', 0));
}

/* The tag is a size, bits, or a size, a dash and bits. */
static bool tag_fits(struct str tag, size_t row, bool is_first, const char **out_bits) {
    struct str size = str_of(rows[row].size);
    *out_bits = rows[row].bits;
    if (tag.n == 0) return is_first;
    if (hub_same_ignoring_case(tag, size)) return true;
    struct str bits = tag;
    if (tag.n > size.n + 1 && hub_same_ignoring_case(str_sub(tag, 0, size.n), size) && tag.p[size.n] == '-')
        bits = str_from(tag, size.n + 1);
    else if (!is_first) return false;
    *out_bits = bits_of(bits);
    return *out_bits != NULL;
}

bool hub_short_find(struct str text, char out[REPO_NAME_BYTES]) {
    struct str name = name_of(text), tag = name.n < text.n ? str_from(text, name.n + 1) : STR("");
    bool is_first = true;
    if (name.n < text.n && tag.n == 0) return false;
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *bits;
        if (!hub_same_ignoring_case(name, str_of(rows[i].name))) continue;
        if (tag_fits(tag, i, is_first, &bits)) {
            snprintf(out, REPO_NAME_BYTES, "%s%s", rows[i].repo, bits);
            return true;
        }
        is_first = false;
    }
    return false;
}

/* Billions of parameters: "0.6b" and "30b-a3b" begin with them. Weights of 4 bits with their scales take 4.5 bits each, then a tenth for what stays at 16 bits, and
 * half a gigabyte for a cache of some thousand tokens. */
static double bytes_of(size_t row) {
    double billions = 0, unit = 1;
    bool is_fraction = false;
    for (const char *p = rows[row].size; (*p >= '0' && *p <= '9') || *p == '.'; p++) {
        if (*p == '.') is_fraction = true;
        else if (is_fraction) billions += (*p - '0') * (unit /= 10);
        else billions = billions * 10 + (*p - '0');
    }
    return billions * 1e9 * 4.5 / 8 * 1.1 + 0.5e9;
}

size_t hub_short_fitting(uint64_t bytes, struct sb *out) {
    size_t n = 0;
    for (size_t first = 0, end; first < N_ROWS; first = end) {
        size_t best = N_ROWS;
        for (end = first; end < N_ROWS && strcmp(rows[end].name, rows[first].name) == 0; end++)
            if (bytes_of(end) <= (double)bytes && (best == N_ROWS || bytes_of(end) > bytes_of(best))) best = end;
        if (best == N_ROWS) continue;
        sb_fmt(out, "%s%s:%s", n ? ", " : "", rows[best].name, rows[best].size);
        n++;
    }
    return n;
}

bool hub_short_sizes(struct str text, struct sb *out) {
    struct str name = name_of(text);
    bool found = false;
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!hub_same_ignoring_case(name, str_of(rows[i].name))) continue;
        sb_fmt(out, "%s%s", found ? ", " : "", rows[i].size);
        found = true;
    }
    return found;
}

struct str hub_short_of(struct arena *a, struct str id) {
    for (size_t i = 0; i < N_ROWS; i++) {
        struct str repo = str_fmt(a, "%s%s", rows[i].repo, rows[i].bits);
        if (str_eq(repo, id)) return str_fmt(a, "%s:%s", rows[i].name, rows[i].size);
    }
    return (struct str){0};
}
