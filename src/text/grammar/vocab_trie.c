/* Parting and sorting the vocabulary, once for each model. */
#include "text/grammar/vocab_trie.h"

#include "text/grammar/regex.h"

#include <stdlib.h>

/* First match wins; the rest is what matches none of them. */
static const char *const languages[VOCAB_REST] = {
    "[a-z]+",           "[A-Za-z]+",        "[A-Za-z0-9_\\-]+",      " [A-Za-z]+", "[^\\x00-\\x7F]+",
    " [^\\x00-\\x7F]+", "[ -!#-\\[\\]-~]+", "[^\"\\\\\\x00-\\x1F]+", "[^\"\\\\]+",
};

static int by_bytes(const void *x, const void *y) {
    const struct vocab_entry *a = x, *b = y;
    int order = str_cmp(a->bytes, b->bytes);
    return order ? order : a->id < b->id ? -1 : 1;
}

void gram_vocab_sort(struct vocab_entry *e, size_t n) {
    qsort(e, n, sizeof *e, by_bytes);
}

int32_t *gram_vocab_same(struct gram_vocab *v) {
    int32_t *same = arena_new(&v->a, int32_t, v->n_tokens);
    for (size_t id = 0; id < v->n_tokens; id++) same[id] = -1;
    return same;
}

static void set_bit(uint32_t *bits, int32_t i) {
    bits[i / 32] |= (uint32_t)1 << i % 32;
}

static uint32_t count_chars(struct str s) {
    uint32_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((uint8_t)s.p[i] & 0xC0) != 0x80;
    return n;
}

static size_t common_prefix(struct str x, struct str y) {
    size_t n = 0;
    while (n < x.n && n < y.n && x.p[n] == y.p[n]) n++;
    return n;
}

/* Sorted entries into nodes; entries with equal bytes are chained behind the first. */
void gram_vocab_trie(struct gram_vocab *v, struct vocab_part *p, int32_t *same, const struct vocab_entry *e, size_t n) {
    size_t n_nodes = 0;
    for (size_t i = 0; i < n; i++) n_nodes += e[i].bytes.n - (i ? common_prefix(e[i - 1].bytes, e[i].bytes) : 0);
    p->nodes = arena_new(&v->a, struct vocab_node, n_nodes + 1);
    p->same = same;
    uint32_t *open = mem_alloc((v->longest + 1) * sizeof *open); /* node at each depth of the entry before */
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        struct str b = e[i].bytes;
        size_t common = i ? common_prefix(e[i - 1].bytes, b) : 0;
        if (i && common == b.n) {
            same[e[i - 1].id] = e[i].id;
            continue;
        }
        for (; depth > common; depth--) p->nodes[open[depth]].skip = p->n;
        for (; depth < b.n; p->n++) {
            p->nodes[p->n].byte = (uint8_t)b.p[depth];
            p->nodes[p->n].token = -1;
            open[++depth] = p->n;
            p->nodes[p->n].depth = (uint16_t)depth;
        }
        p->nodes[p->n - 1].token = e[i].id;
    }
    for (; depth > 0; depth--) p->nodes[open[depth]].skip = p->n;
    mem_free(open);
    for (int b = 0; b < 256; b++) p->first[b] = p->n;
    for (uint32_t i = 0; i < p->n; i = p->nodes[i].skip) p->first[p->nodes[i].byte] = i;
}

static void add_lengths(struct gram_vocab *v, struct vocab_part *p, const struct vocab_entry *e, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t chars = count_chars(e[i].bytes);
        if (chars > p->longest) p->longest = chars;
        set_bit(v->text_bits, e[i].id);
        for (uint32_t k = chars; k < VOCAB_LENGTHS; k++) set_bit(v->length_bits[k], e[i].id);
        if (chars >= VOCAB_LENGTHS) v->long_texts[v->n_long++] = (struct vocab_length){e[i].id, chars};
    }
    if (p->longest > v->longest_text) v->longest_text = p->longest;
}

static int by_chars(const void *x, const void *y) {
    const struct vocab_length *a = x, *b = y;
    return a->n != b->n ? (a->n > b->n ? -1 : 1) : a->token < b->token ? -1 : 1;
}

static void compile_languages(struct gram_vocab *v) {
    struct dfa_pool pool;
    dfa_pool_init(&pool, &v->a, UINT64_MAX);
    for (size_t i = 0; i < VOCAB_REST; i++) v->parts[i].language = dfa_get(&pool, regex_known(&pool, languages[i]));
    dfa_pool_free(&pool);
}

static size_t part_of(const struct gram_vocab *v, struct str bytes) {
    size_t i = 0;
    while (i < VOCAB_REST && !dfa_run(v->parts[i].language, bytes)) i++;
    return i;
}

/* Tokens sorted by part: counts first, then places. */
static void sort_tokens(struct gram_vocab *v, struct vocab_entry *sorted, size_t ends[VOCAB_PARTS]) {
    uint8_t *parts = mem_alloc(v->n_tokens + 1);
    size_t next[VOCAB_PARTS] = {0}, n[VOCAB_PARTS] = {0};
    for (size_t id = 0; id < v->n_tokens; id++)
        if (v->bytes[id].n) n[parts[id] = (uint8_t)part_of(v, v->bytes[id])]++;
    for (size_t i = 0, at = 0; i < VOCAB_PARTS; i++) {
        next[i] = at;
        ends[i] = at += n[i];
    }
    for (size_t id = 0; id < v->n_tokens; id++)
        if (v->bytes[id].n) sorted[next[parts[id]]++] = (struct vocab_entry){v->bytes[id], (int32_t)id};
    for (size_t i = 0; i < VOCAB_PARTS; i++) gram_vocab_sort(sorted + ends[i] - n[i], n[i]);
    mem_free(parts);
}

static void list_quoted(struct gram_vocab *v) {
    v->quoted = arena_new(&v->a, int32_t, v->n_tokens);
    v->paired = arena_new(&v->a, int32_t, v->n_tokens);
    v->escaped = arena_new(&v->a, int32_t, v->n_tokens);
    for (size_t id = 0; id < v->n_tokens; id++) {
        int n = 0;
        for (size_t i = 0; i < v->bytes[id].n; i++) n += v->bytes[id].p[i] == '"';
        if (n >= 2) v->paired[v->n_paired++] = (int32_t)id;
        if (n >= 3) v->quoted[v->n_quoted++] = (int32_t)id;
        if (str_find_char(v->bytes[id], '\\', 0) != STR_NONE) v->escaped[v->n_escaped++] = (int32_t)id;
    }
}

static int by_length(const void *x, const void *y) {
    const struct vocab_entry *a = x, *b = y;
    return a->bytes.n != b->bytes.n ? (a->bytes.n > b->bytes.n ? -1 : 1) : a->id < b->id ? -1 : 1;
}

/* Tokens of white space alone, and those that begin with it. */
static void list_spaced(struct gram_vocab *v) {
    struct vocab_entry *blank = mem_alloc((v->n_tokens + 1) * sizeof *blank), *indented = mem_alloc((v->n_tokens + 1) * sizeof *indented);
    size_t n_indented = 0;
    v->n_spaces = arena_new(&v->a, uint16_t, v->n_tokens);
    for (size_t id = 0; id < v->n_tokens; id++) {
        struct str bytes = v->bytes[id];
        uint16_t n = 0;
        while (n < bytes.n && memchr(" \t\n\r", bytes.p[n], 4)) n++;
        v->n_spaces[id] = n;
        if (n && n == bytes.n) blank[v->n_blank++] = (struct vocab_entry){bytes, (int32_t)id};
        else if (n) indented[n_indented++] = (struct vocab_entry){str_from(bytes, n), (int32_t)id};
    }
    qsort(blank, v->n_blank, sizeof *blank, by_length);
    v->blank = arena_new(&v->a, int32_t, v->n_blank + 1);
    for (uint32_t i = 0; i < v->n_blank; i++) v->blank[i] = blank[i].id;
    gram_vocab_sort(indented, n_indented);
    gram_vocab_trie(v, &v->indented, gram_vocab_same(v), indented, n_indented);
    mem_free(blank);
    mem_free(indented);
}

/* Special tokens stand for nothing, but for those that are marked. */
static void take_bytes(struct gram_vocab *v, const struct tok *t, const int32_t *marked, size_t n_marked) {
    for (size_t id = 0; id < v->n_tokens; id++) {
        struct str b = id < tok_vocab_size(t) && !tok_is_special(t, (int32_t)id) ? tok_token_bytes(t, (int32_t)id) : (struct str){0};
        if (b.n > 0 && b.n <= UINT16_MAX) v->bytes[id] = (struct str){arena_copy(&v->a, b.p, b.n), b.n};
    }
    for (size_t i = 0; i < n_marked; i++)
        v->bytes[marked[i]] = str_fmt(&v->a, GRAM_TOKEN_MARK "%.*s" GRAM_TOKEN_MARK, STR_ARG(tok_token_text(t, marked[i])));
    for (size_t id = 0; id < v->n_tokens; id++)
        if (v->bytes[id].n > v->longest) v->longest = (uint32_t)v->bytes[id].n;
}

struct gram_vocab *gram_vocab_create(const struct tok *t, size_t n_tokens, const int32_t *marked, size_t n_marked, struct err *err) {
    struct gram_vocab *v = mem_alloc(sizeof *v);
    v->n_tokens = n_tokens > tok_vocab_size(t) ? n_tokens : tok_vocab_size(t);
    v->n_words = (v->n_tokens + 31) / 32;
    v->bytes = arena_new(&v->a, struct str, v->n_tokens);
    take_bytes(v, t, marked, n_marked);
    list_quoted(v);
    list_spaced(v);
    compile_languages(v);
    v->text_bits = arena_new(&v->a, uint32_t, v->n_words);
    for (size_t i = 0; i < VOCAB_LENGTHS; i++) v->length_bits[i] = arena_new(&v->a, uint32_t, v->n_words);
    v->long_texts = arena_new(&v->a, struct vocab_length, v->n_tokens);
    struct vocab_entry *sorted = mem_alloc((v->n_tokens + 1) * sizeof *sorted);
    size_t ends[VOCAB_PARTS];
    int32_t *same = gram_vocab_same(v);
    sort_tokens(v, sorted, ends);
    for (size_t i = 0; i < VOCAB_PARTS; i++) {
        const struct vocab_entry *e = sorted + (i ? ends[i - 1] : 0);
        size_t n = ends[i] - (i ? ends[i - 1] : 0);
        struct vocab_part *p = &v->parts[i];
        gram_vocab_trie(v, p, same, e, n);
        p->bits = arena_new(&v->a, uint32_t, v->n_words);
        for (size_t k = 0; k < n; k++) set_bit(p->bits, e[k].id);
        if (i < VOCAB_TEXT_PARTS) add_lengths(v, p, e, n);
    }
    mem_free(sorted);
    qsort(v->long_texts, v->n_long, sizeof *v->long_texts, by_chars);
    if (gram_vocab_find_any(v, err) == ERR_OK) return v;
    gram_vocab_destroy(v);
    return NULL;
}

void gram_vocab_destroy(struct gram_vocab *v) {
    if (!v) return;
    arena_free(&v->a);
    mem_free(v);
}

static bool part_goes_on(const struct vocab_part *p, struct str text) {
    uint32_t at = p->first[(uint8_t)text.p[0]];
    for (size_t i = 1; i < text.n && at < p->n; i++) {
        uint32_t end = p->nodes[at].skip, child = at + 1;
        while (child < end && p->nodes[child].byte != (uint8_t)text.p[i]) child = p->nodes[child].skip;
        at = child < end ? child : p->n;
    }
    return at < p->n && p->nodes[at].skip > at + 1;
}

bool gram_vocab_goes_on(const struct gram_vocab *v, struct str text) {
    for (size_t i = 0; i < VOCAB_PARTS; i++)
        if (part_goes_on(&v->parts[i], text)) return true;
    return false;
}

size_t gram_mask_words(const struct gram_vocab *v) {
    return v->n_words;
}
