/* Reading and searching a precompiled_charsmap. The blob comes from a file: every index is checked, and what is found is whole characters on
 * both sides, so that text stays valid UTF-8 whatever the map says. */
#include "text/tokenizer/charsmap.h"

#include "text/tokenizer/internal.h"

/* The replacements are text, and none is longer than those of other normalizers may be. */
static int check_pool(struct str pool, struct err *err) {
    size_t start = 0;
    if (!utf8_valid(pool)) return err_set(err, ERR_EFORMAT, "tokenizer: precompiled_charsmap has replacements that are not valid UTF-8");
    for (size_t i = 0; i <= pool.n; i++) {
        if (i < pool.n && pool.p[i]) continue;
        if (i - start > TOK_MAX_PART_BYTES)
            return err_set(err, ERR_ELIMIT, "tokenizer: precompiled_charsmap has a replacement of %zu bytes, at most %d are read",
                           i - start, TOK_MAX_PART_BYTES);
        start = i + 1;
    }
    return ERR_OK;
}

int tok_charsmap_init(struct arena *a, struct str blob, struct tok_charsmap *out, struct err *err) {
    uint32_t size;
    if (blob.n < 4) return err_set(err, ERR_EFORMAT, "tokenizer: precompiled_charsmap of %zu bytes is too short", blob.n);
    memcpy(&size, blob.p, 4);
    if (size > blob.n - 4 || size % 4 || size == 0)
        return err_set(err, ERR_EFORMAT, "tokenizer: precompiled_charsmap says %u bytes, has %zu", (unsigned)size, blob.n - 4);
    TRY(check_pool(str_from(blob, 4 + (size_t)size), err));
    uint32_t *units = arena_try(a, size);
    char *pool = arena_try(a, blob.n - 4 - size + 1);
    if (!units || !pool) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for precompiled_charsmap");
    memcpy(units, blob.p + 4, size);
    memcpy(pool, blob.p + 4 + size, blob.n - 4 - size);
    *out = (struct tok_charsmap){units, size / 4, {pool, blob.n - 4 - size}};
    return ERR_OK;
}

int tok_charsmap_base64(struct arena *a, struct str text, struct tok_charsmap *out, struct err *err) {
    struct sb blob = {0};
    int code = tok_base64(text, &blob) ? tok_charsmap_init(a, sb_str(&blob), out, err)
                                       : err_set(err, ERR_EFORMAT, "tokenizer.json: precompiled_charsmap is not base64");
    sb_free(&blob);
    return code;
}

static size_t unit_offset(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* Whether a character begins at byte i; the end of the text counts. */
static bool is_boundary(struct str s, size_t i) {
    return i == s.n || (i < s.n && ((unsigned char)s.p[i] & 0xC0) != 0x80);
}

struct str tok_charsmap_find(const struct tok_charsmap *m, struct str s, bool longest, size_t *out_len) {
    struct str found = {NULL, 0};
    size_t node = unit_offset(m->units[0]);
    for (size_t i = 0; i < s.n && i < TOK_MAX_TOKEN_BYTES; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == 0) break;
        node ^= c;
        if (node >= m->n_units) break;
        uint32_t unit = m->units[node];
        if ((unit & (1u << 31 | 255)) != c) break;
        node ^= unit_offset(unit);
        if (node >= m->n_units) break;
        if (!(unit & 1u << 8)) continue;
        size_t at = m->units[node] & 0x7FFFFFFF;
        if (at >= m->pool.n) break;
        if (!is_boundary(m->pool, at) || !is_boundary(s, i + 1)) continue;
        const char *end = memchr(m->pool.p + at, 0, m->pool.n - at);
        found = str_n(m->pool.p + at, end ? (size_t)(end - m->pool.p) - at : m->pool.n - at);
        *out_len = i + 1;
        if (!longest) break;
    }
    return found;
}
