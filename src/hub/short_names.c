/* Looks through a table of some twenty rows. */
#include "hub/short_names.h"

#include <stdio.h>

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
