/* Byte pair encoding: merges the pair of lowest rank, leftmost first, until no pair has a merge.
 *
 * Words of up to SHORT_WORD symbols are merged by looking for the lowest rank each time; longer ones with a heap, so
 * that a word of ten megabytes takes n log n. Before that, a word is cut wherever no merge can ever cross: between two
 * characters that stand side by side in no merged token. A merge across such a place would make a token that contains
 * the two characters side by side, so none exists, and the parts can be encoded apart (and found in the cache).
 */
#include "text/tokenizer/word_cache.h"

enum { SHORT_WORD = 40, CROSS_BITS = 21, CHAR_IDS = 0x10000 };
enum word_kind { KIND_WORD = 0, KIND_PART = 1 };

/* A character of several bytes that its own merges make one token: that token, and the highest rank among those merges. */
struct whole_char {
    int32_t id; /* -1: the bytes stay apart */
    uint32_t rank;
};

struct bpe {
    /* Pairs by hash: four bytes a slot, so that most of the table stays in the processor's cache. A slot holds the number
     * of the merge plus one in its lower bits and a tag of the hash above; 0 is empty. */
    uint32_t *slots;
    size_t mask;
    uint64_t seed; /* of the hashes */
    int index_bits;
    struct tok_merge *merges;
    int32_t byte_id[256];     /* byte-level: the symbol of each byte, -1: none */
    int32_t fallback_id[256]; /* byte fallback: "<0xNN>", -1: none */
    int32_t *char_id;         /* [CHAR_IDS] by code point, -1: none; NULL where prefixes or suffixes matter */
    struct whole_char *whole; /* byte-level: [CHAR_IDS] by code point; NULL: not used */
    int32_t unk;              /* -1: none */
    bool fuse_unk, byte_fallback, ignore_merges;
    struct str prefix, suffix;
    /* where merges may cross; cross == NULL: no cutting */
    uint64_t *cross;          /* hashed pairs of characters, one of them not ASCII */
    uint64_t ascii[128][2];   /* ascii[a] has bit b when a token contains ab */
    uint64_t partial[256][4]; /* by last and first byte: some token that begins or ends inside a character crosses here */
};

static inline uint64_t pair_hash(const struct bpe *b, int32_t left, int32_t right) {
    uint64_t h = (b->seed ^ ((uint64_t)(uint32_t)left << 32 | (uint32_t)right)) * UINT64_C(0x9E3779B97F4A7C15);
    h ^= h >> 32;
    return h * UINT64_C(0xD6E8FEB86659FD93);
}

/* The merge of a pair, or NULL. */
static inline const struct tok_merge *merge_find(const struct bpe *b, int32_t left, int32_t right) {
    uint64_t h = pair_hash(b, left, right);
    uint32_t low = (1u << b->index_bits) - 1, tag = (uint32_t)h & ~low;
    for (size_t i = (size_t)(h >> 32) & b->mask;; i = (i + 1) & b->mask) {
        uint32_t slot = b->slots[i];
        if (slot == 0) return NULL;
        if ((slot & ~low) != tag) continue;
        const struct tok_merge *m = &b->merges[(slot & low) - 1];
        if (m->left == left && m->right == right) return m;
    }
}

/* Of equal pairs the last counts, as in the reference. */
static void merge_put(struct bpe *b, uint32_t index) {
    const struct tok_merge *m = &b->merges[index];
    uint64_t h = pair_hash(b, m->left, m->right);
    uint32_t low = (1u << b->index_bits) - 1, tag = (uint32_t)h & ~low;
    size_t i = (size_t)(h >> 32) & b->mask;
    for (; b->slots[i]; i = (i + 1) & b->mask) {
        const struct tok_merge *other = &b->merges[(b->slots[i] & low) - 1];
        if ((b->slots[i] & ~low) == tag && other->left == m->left && other->right == m->right) break;
    }
    b->slots[i] = tag | (index + 1);
}

/* ---- merging ---------------------------------------------------------------------------------------------------- */

struct symbol {
    int32_t id;
    uint32_t rank;  /* of the pair with the next symbol; UINT32_MAX: none */
    int32_t merged; /* what that merge gives */
};

static inline void rate(const struct bpe *b, struct symbol *s, int32_t next) {
    const struct tok_merge *m = merge_find(b, s->id, next);
    s->rank = m ? m->rank : UINT32_MAX;
    s->merged = m ? m->merged : -1;
}

static uint32_t rate_all(const struct bpe *b, struct symbol *s, size_t n) {
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i + 1 < n; i++) {
        rate(b, &s[i], s[i + 1].id);
        if (s[i].rank < least) least = s[i].rank;
    }
    if (n) s[n - 1].rank = UINT32_MAX;
    return least;
}

/* All pairs have been rated; least is the lowest rank. */
static size_t merge_short(const struct bpe *b, struct symbol *s, size_t n, uint32_t least) {
    while (least != UINT32_MAX) {
        size_t best = 0;
        while (s[best].rank != least) best++;
        s[best].id = s[best].merged;
        memmove(&s[best + 1], &s[best + 2], (n - best - 2) * sizeof *s);
        n--;
        if (best + 1 < n) rate(b, &s[best], s[best + 1].id);
        else s[best].rank = UINT32_MAX;
        if (best > 0) rate(b, &s[best - 1], s[best].id);
        least = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (s[i].rank < least) least = s[i].rank;
    }
    return n;
}

/* Long words: symbols stay in place and are linked; the heap holds rank << 32 | position, smallest first. */
struct links {
    struct symbol *s;
    uint32_t *next, *prev; /* UINT32_MAX: none; prev of a removed symbol is UINT32_MAX - 1 */
    uint64_t *heap;
    size_t n_heap;
};
#define LINK_NONE UINT32_MAX
#define LINK_GONE (UINT32_MAX - 1)

static void heap_push(struct links *l, uint64_t key) {
    size_t i = l->n_heap++;
    while (i > 0) {
        size_t up = (i - 1) / 4;
        if (l->heap[up] <= key) break;
        l->heap[i] = l->heap[up];
        i = up;
    }
    l->heap[i] = key;
}

static uint64_t heap_pop(struct links *l) {
    uint64_t top = l->heap[0], key = l->heap[--l->n_heap];
    size_t i = 0;
    for (;;) {
        size_t first = i * 4 + 1, best = first;
        if (first >= l->n_heap) break;
        for (size_t k = first + 1; k < first + 4 && k < l->n_heap; k++)
            if (l->heap[k] < l->heap[best]) best = k;
        if (l->heap[best] >= key) break;
        l->heap[i] = l->heap[best];
        i = best;
    }
    l->heap[i] = key;
    return top;
}

static void rate_link(const struct bpe *b, struct links *l, uint32_t i) {
    uint32_t next = l->next[i];
    if (next == LINK_NONE) {
        l->s[i].rank = UINT32_MAX;
        return;
    }
    rate(b, &l->s[i], l->s[next].id);
    if (l->s[i].rank != UINT32_MAX) heap_push(l, (uint64_t)l->s[i].rank << 32 | i);
}

static int merge_long(const struct bpe *b, struct tok_work *w, struct symbol *s, size_t n, size_t *out_n, struct err *err) {
    size_t bytes;
    if (n >= LINK_GONE || size_mul(n, 2 * sizeof(uint32_t) + 3 * sizeof(uint64_t), &bytes))
        return err_set(err, ERR_ELIMIT, "tokenizer: a word of %zu symbols is too long", n);
    TRY(tok_scratch(&w->heap, &w->heap_bytes, bytes, err));
    struct links l = {.s = s, .heap = w->heap};
    l.next = (uint32_t *)(l.heap + 3 * n); /* every merge pushes at most two entries and takes one away */
    l.prev = l.next + n;
    for (size_t i = 0; i < n; i++) {
        l.next[i] = i + 1 < n ? (uint32_t)i + 1 : LINK_NONE;
        l.prev[i] = i ? (uint32_t)i - 1 : LINK_NONE;
    }
    for (size_t i = 0; i < n; i++) rate_link(b, &l, (uint32_t)i);
    while (l.n_heap) {
        uint64_t top = heap_pop(&l);
        uint32_t i = (uint32_t)top, rank = (uint32_t)(top >> 32);
        if (l.prev[i] == LINK_GONE || s[i].rank != rank) continue; /* overtaken */
        uint32_t gone = l.next[i], after = l.next[gone];
        s[i].id = s[i].merged;
        l.next[i] = after;
        l.prev[gone] = LINK_GONE;
        if (after != LINK_NONE) l.prev[after] = i;
        rate_link(b, &l, i);
        if (l.prev[i] != LINK_NONE) rate_link(b, &l, l.prev[i]);
    }
    size_t n_left = 0;
    for (uint32_t i = 0; i != LINK_NONE; i = l.next[i]) s[n_left++].id = s[i].id;
    *out_n = n_left;
    return ERR_OK;
}

/* ---- symbols of a word ------------------------------------------------------------------------------------------ */

static size_t symbols_of_bytes(const struct bpe *b, struct str word, struct symbol *s) {
    size_t n = 0;
    for (size_t i = 0; i < word.n; i++) {
        int32_t id = b->byte_id[(unsigned char)word.p[i]];
        if (id >= 0) s[n++].id = id;
    }
    return n;
}

/* Starts from whole characters in place of bytes; false where that is not sure to give the same. In a part whose inner
 * boundaries no token crosses with half a character, a merge across a boundary needs both characters complete. So if
 * every merge inside the characters ranks before every merge between them, all characters are complete before the
 * first merge between two, and nothing is lost by beginning there. */
static bool symbols_of_whole_chars(const struct bpe *b, struct str part, struct symbol *s, size_t *out_n, uint32_t *out_least) {
    size_t n = 0, len;
    uint32_t highest = 0;
    bool inner = false;
    for (size_t i = 0; i < part.n; i += len) {
        unsigned char first = (unsigned char)part.p[i];
        len = tok_utf8_len(first);
        if (len == 1) {
            s[n++].id = b->byte_id[first];
            continue;
        }
        if (len == 4) return false;
        size_t ignored;
        struct whole_char c = b->whole[tok_utf8(part.p + i, &ignored)];
        if (c.id < 0) return false;
        if (c.rank > highest) highest = c.rank;
        inner = true;
        s[n++].id = c.id;
    }
    *out_n = n;
    *out_least = rate_all(b, s, n);
    return !inner || *out_least > highest;
}

/* The id of one character, with the prefix and suffix that its place in the word asks for. */
static int32_t char_id(const struct tok *t, const struct bpe *b, struct str c, bool first, bool last) {
    if (b->char_id && c.n < 4 && c.n == tok_utf8_len((unsigned char)c.p[0])) {
        size_t len;
        return b->char_id[tok_utf8(c.p, &len)];
    }
    if ((first || !b->prefix.n) && (!last || !b->suffix.n)) return tok_table_find(&t->table, c.p, c.n);
    char text[512];
    size_t n = 0;
    if (!first) memcpy(text, b->prefix.p, b->prefix.n), n = b->prefix.n;
    memcpy(text + n, c.p, c.n), n += c.n;
    if (last) memcpy(text + n, b->suffix.p, b->suffix.n), n += b->suffix.n;
    return tok_table_find(&t->table, text, n);
}

/* Bytes of the character as it would be looked up, each as its own token; false when one of them has none. */
static bool fall_back(const struct bpe *b, struct str c, struct symbol *s, size_t *n) {
    for (size_t k = 0; k < c.n; k++)
        if (b->fallback_id[(unsigned char)c.p[k]] < 0) return false;
    for (size_t k = 0; k < c.n; k++) s[(*n)++].id = b->fallback_id[(unsigned char)c.p[k]];
    return true;
}

static size_t symbols_of_chars(const struct tok *t, const struct bpe *b, struct str word, struct symbol *s) {
    size_t n = 0, len;
    bool unknown = false; /* an unknown token waits: it may grow */
    for (size_t i = 0; i < word.n; i += len) {
        len = tok_utf8_len((unsigned char)word.p[i]);
        struct str c = str_sub(word, i, len);
        int32_t id = char_id(t, b, c, i == 0, i + len == word.n);
        if (id >= 0) {
            if (unknown) s[n++].id = b->unk;
            unknown = false;
            s[n++].id = id;
        } else if (b->byte_fallback && fall_back(b, c, s, &n)) {
            continue; /* the reference leaves a waiting unknown token waiting here, too */
        } else if (b->unk >= 0) {
            if (unknown && !b->fuse_unk) s[n++].id = b->unk;
            unknown = true;
        }
    }
    if (unknown) s[n++].id = b->unk;
    return n;
}

/* `plain`: no token crosses one of the part's inner character boundaries with half a character. */
static int encode_part(const struct tok *t, const struct bpe *b, struct tok_work *w, struct str part, bool plain, struct tok_ids *out,
                       struct err *err) {
    size_t bytes, n;
    uint32_t least;
    if (size_mul(part.n + 8, sizeof(struct symbol), &bytes))
        return err_set(err, ERR_ELIMIT, "tokenizer: a word of %zu bytes is too long", part.n);
    TRY(tok_scratch(&w->scratch, &w->scratch_bytes, bytes, err));
    struct symbol *s = w->scratch;
    if (!plain || !b->whole || !symbols_of_whole_chars(b, part, s, &n, &least)) {
        n = t->byte_level ? symbols_of_bytes(b, part, s) : symbols_of_chars(t, b, part, s);
        least = n <= SHORT_WORD ? rate_all(b, s, n) : 0;
    }
    if (n <= SHORT_WORD) n = merge_short(b, s, n, least);
    else TRY(merge_long(b, w, s, n, &n, err));
    for (size_t i = 0; i < n; i++) tok_ids_put(out, s[i].id);
    return ERR_OK;
}

/* ---- where merges may cross ------------------------------------------------------------------------------------- */

/* Up to four bytes as a number. */
static inline uint32_t pack(const char *p, size_t n) {
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) v = v << 8 | (unsigned char)p[i];
    return v;
}

static inline size_t cross_bit(uint32_t left, uint32_t right) {
    uint64_t h = (uint64_t)left * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)right * UINT64_C(0xC2B2AE3D27D4EB4F);
    h ^= h >> 29;
    h *= UINT64_C(0xBF58476D1CE4E5B9);
    return (size_t)(h >> (64 - CROSS_BITS));
}

static inline bool cross_has(const struct bpe *b, uint32_t left, uint32_t right) {
    size_t bit = cross_bit(left, right);
    return b->cross[bit / 64] >> bit % 64 & 1;
}

/* Records every place inside a merged token where a character ends. */
static void cross_add(struct bpe *b, struct str token) {
    for (size_t i = 1; i < token.n; i++) {
        unsigned char c = (unsigned char)token.p[i];
        if ((c & 0xC0) == 0x80) continue;
        unsigned char before = (unsigned char)token.p[i - 1];
        if (c < 0x80 && before < 0x80) {
            b->ascii[before][c >> 6] |= UINT64_C(1) << (c & 63);
            continue;
        }
        size_t left = i - 1, right = tok_utf8_len(c);
        while (left > 0 && i - left < 4 && ((unsigned char)token.p[left] & 0xC0) == 0x80) left--;
        bool partial = ((unsigned char)token.p[left] & 0xC0) == 0x80 || right > token.n - i;
        if (partial) b->partial[before][c >> 6] |= UINT64_C(1) << (c & 63);
        if (right > token.n - i) right = token.n - i;
        size_t bit = cross_bit(pack(token.p + left, i - left), pack(token.p + i, right));
        b->cross[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

enum crossing { CROSS_NEVER, CROSS_WHOLE /* only by tokens that hold both characters whole */, CROSS_ANY };

/* How a merge may join the characters on both sides of byte i; `left` and `right` are their lengths. */
static inline enum crossing crossing_at(const struct bpe *b, const char *p, size_t i, size_t left, size_t right) {
    unsigned char before = (unsigned char)p[i - 1], first = (unsigned char)p[i];
    if (left == 1 && right == 1) return b->ascii[before][first >> 6] >> (first & 63) & 1 ? CROSS_WHOLE : CROSS_NEVER;
    if (b->partial[before][first >> 6] >> (first & 63) & 1)
        for (size_t l = 1; l <= left; l++)
            for (size_t r = 1; r <= right; r++)
                if ((l < left || r < right) && cross_has(b, pack(p + i - l, l), pack(p + i, r))) return CROSS_ANY;
    return cross_has(b, pack(p + i - left, left), pack(p + i, right)) ? CROSS_WHOLE : CROSS_NEVER;
}

/* The end of the part that begins at `start`: the next place that no merge crosses. */
static size_t part_end(const struct bpe *b, struct str word, size_t start, bool *out_plain) {
    size_t left = tok_utf8_len((unsigned char)word.p[start]), i = start + left;
    *out_plain = true;
    while (i < word.n) {
        size_t right = tok_utf8_len((unsigned char)word.p[i]);
        enum crossing c = crossing_at(b, word.p, i, left, right);
        if (c == CROSS_NEVER) break;
        if (c == CROSS_ANY) *out_plain = false;
        i += right;
        left = right;
    }
    return i < word.n ? i : word.n;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

/* A word on its way through the cache: its key, and where it belongs. */
struct lookup {
    uint64_t w[4];
    struct tok_small_slot *small; /* NULL: too long for one */
    struct tok_big_slot *big;     /* set by lookup_big */
};

static inline void put_ids(struct tok_ids *out, const int32_t *ids, size_t n, size_t most) {
    if (out->capacity - out->n >= most) { /* copy the whole slot: cheaper than a loop of unknown length */
        memcpy(out->p + out->n, ids, most * sizeof *ids);
        out->n += n;
        return;
    }
    for (size_t i = 0; i < n; i++) tok_ids_put(out, ids[i]);
}

static inline bool lookup_small(const struct tok_work *w, struct lookup *l, struct str word, enum word_kind kind, struct tok_ids *out) {
    tok_small_key(l->w, word.p, word.n, (size_t)(w->end - word.p), kind);
    l->small = tok_small_slot(&w->cache, l->w);
    if (l->small->w[0] != l->w[0] || ((l->small->w[1] ^ l->w[1]) & KEY_MASK)) return false;
    put_ids(out, l->small->ids, l->small->w[1] >> (KEY_META_SHIFT + 1), SMALL_IDS);
    return true;
}

static bool lookup_big(const struct tok_work *w, struct lookup *l, struct str word, enum word_kind kind, struct tok_ids *out) {
    tok_big_key(l->w, word.p, word.n, (size_t)(w->end - word.p), kind);
    const struct tok_big_slot *s = l->big = tok_big_slot(&w->cache, l->w);
    if (s->w[0] != l->w[0] || s->w[1] != l->w[1] || s->w[2] != l->w[2] || ((s->w[3] ^ l->w[3]) & KEY_MASK)) return false;
    put_ids(out, s->ids, s->w[3] >> (KEY_META_SHIFT + 1), BIG_IDS);
    return true;
}

/* True when the ids of the word were known. */
static inline bool lookup(const struct tok_work *w, struct lookup *l, struct str word, enum word_kind kind, struct tok_ids *out) {
    l->small = NULL;
    if (word.n <= SMALL_BYTES && lookup_small(w, l, word, kind, out)) return true;
    return lookup_big(w, l, word, kind, out);
}

/* Keeps what was just appended to out behind `before`. */
static void remember(const struct tok_work *w, struct lookup *l, struct str word, enum word_kind kind, const struct tok_ids *out,
                     size_t before) {
    size_t n = out->n - before;
    if (l->small && n <= SMALL_IDS) {
        tok_small_key(l->small->w, word.p, word.n, (size_t)(w->end - word.p), kind);
        l->small->w[1] |= (uint64_t)n << (KEY_META_SHIFT + 1);
        if (n) memcpy(l->small->ids, out->p + before, n * sizeof *out->p);
    } else if (n <= BIG_IDS) {
        memcpy(l->big->w, l->w, sizeof l->w);
        l->big->w[3] |= (uint64_t)n << (KEY_META_SHIFT + 1);
        if (n) memcpy(l->big->ids, out->p + before, n * sizeof *out->p);
    }
}

static int encode_parts(const struct tok *t, const struct bpe *b, struct tok_work *w, struct str word, struct tok_ids *out,
                        struct err *err) {
    if (!b->cross) return encode_part(t, b, w, word, false, out, err);
    for (size_t i = 0; i < word.n;) {
        bool plain;
        size_t end = part_end(b, word, i, &plain), before = out->n;
        struct str part = str_sub(word, i, end - i);
        struct lookup l;
        i = end;
        if (part.n <= BIG_BYTES && lookup(w, &l, part, KIND_PART, out)) continue;
        TRY(encode_part(t, b, w, part, plain, out, err));
        if (part.n <= BIG_BYTES) remember(w, &l, part, KIND_PART, out, before);
    }
    return ERR_OK;
}

static int encode_word(const struct tok *t, const struct bpe *b, struct tok_work *w, struct str word, struct tok_ids *out,
                       struct err *err) {
    if (b->ignore_merges) {
        int32_t id = tok_table_find(&t->table, word.p, word.n);
        if (id >= 0) return tok_ids_put(out, id), ERR_OK;
    }
    return encode_parts(t, b, w, word, out, err);
}

static int bpe_encode(const struct tok *t, struct tok_work *w, struct str word, struct tok_ids *out, struct err *err) {
    const struct bpe *b = t->model.self;
    struct lookup l;
    if (word.n > BIG_BYTES) return encode_word(t, b, w, word, out, err);
    if (lookup(w, &l, word, KIND_WORD, out)) return ERR_OK;
    size_t before = out->n;
    TRY(encode_word(t, b, w, word, out, err));
    remember(w, &l, word, KIND_WORD, out, before);
    return ERR_OK;
}

/* ---- building --------------------------------------------------------------------------------------------------- */

static int build_cross(struct tok *t, struct bpe *b, const struct tok_merge *merges, size_t n_merges, struct err *err) {
    bool complete = true; /* no unknown tokens, whose length depends on their neighbours */
    for (int i = 0; i < 256; i++)
        if ((t->byte_level ? b->byte_id[i] : b->fallback_id[i]) < 0) complete = false;
    if (!complete || b->prefix.n || b->suffix.n || (!t->byte_level && !b->byte_fallback)) return ERR_OK;
    for (size_t i = 0; i < n_merges && !t->byte_level; i++) /* a merge of fallback bytes is not a merge of their text */
        if (tok_byte_token(t->vocab[merges[i].left]) >= 0 || tok_byte_token(t->vocab[merges[i].right]) >= 0) return ERR_OK;
    b->cross = arena_try(&t->arena, (size_t)1 << (CROSS_BITS - 3));
    if (!b->cross) return err_set(err, ERR_EMEMORY, "tokenizer: no memory");
    int32_t last = -1;
    for (size_t i = 0; i < n_merges; i++) {
        if (merges[i].merged != last) cross_add(b, t->vocab[merges[i].merged]);
        last = merges[i].merged;
    }
    return ERR_OK;
}

/* What the merges make of a character's two or three bytes alone. */
static struct whole_char merge_char(const struct bpe *b, struct str c) {
    struct symbol s[3];
    struct whole_char none = {-1, 0}, whole = {-1, 0};
    size_t n = symbols_of_bytes(b, c, s);
    if (n != c.n) return none;
    for (uint32_t least; n > 1; n--) {
        least = rate_all(b, s, n);
        if (least == UINT32_MAX) return none;
        size_t best = s[0].rank == least ? 0 : 1;
        s[best].id = s[best].merged;
        if (best == 0) s[1] = s[2 < n ? 2 : 1];
        if (least > whole.rank) whole.rank = least;
    }
    whole.id = s[0].id;
    return whole;
}

static int build_whole(struct tok *t, struct bpe *b, struct err *err) {
    if (!t->byte_level || !b->cross) return ERR_OK;
    b->whole = arena_try(&t->arena, CHAR_IDS * sizeof *b->whole);
    if (!b->whole) return err_set(err, ERR_EMEMORY, "tokenizer: no memory");
    for (size_t i = 0; i < CHAR_IDS; i++) b->whole[i].id = -1;
    for (size_t id = 0; id < t->n_vocab_ids; id++) {
        struct str token = t->vocab[id];
        size_t len;
        if (token.n < 2 || token.n > 3 || token.n != tok_utf8_len((unsigned char)token.p[0]) || !utf8_valid(token)) continue;
        uint32_t code = tok_utf8(token.p, &len);
        b->whole[code] = merge_char(b, token);
    }
    return ERR_OK;
}

/* Direct ids of the characters below U+10000, for vocabularies of characters. */
static int build_chars(struct tok *t, struct bpe *b, struct err *err) {
    if (t->byte_level || b->prefix.n || b->suffix.n) return ERR_OK;
    b->char_id = arena_try(&t->arena, CHAR_IDS * sizeof *b->char_id);
    if (!b->char_id) return err_set(err, ERR_EMEMORY, "tokenizer: no memory");
    memset(b->char_id, 0xFF, CHAR_IDS * sizeof *b->char_id);
    for (size_t id = 0; id < t->n_vocab_ids; id++) {
        struct str token = t->vocab[id];
        size_t len;
        if (token.n == 0 || token.n > 3 || token.n != tok_utf8_len((unsigned char)token.p[0])) continue;
        b->char_id[tok_utf8(token.p, &len)] = (int32_t)id;
    }
    return ERR_OK;
}

static int build_merges(struct tok *t, struct bpe *b, const struct tok_merge *merges, size_t n, struct err *err) {
    size_t n_slots = 16, bytes;
    while (n_slots < n * 2) n_slots *= 2;
    for (b->index_bits = 1; ((size_t)1 << b->index_bits) <= n; b->index_bits++) {}
    if (b->index_bits > 24) return err_set(err, ERR_ELIMIT, "tokenizer: %zu merges are too many", n);
    b->slots = arena_try(&t->arena, n_slots * sizeof *b->slots);
    b->merges = size_mul(n + 1, sizeof *b->merges, &bytes) ? NULL : arena_try(&t->arena, bytes);
    if (!b->slots || !b->merges) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for %zu merges", n);
    b->mask = n_slots - 1;
    b->seed = hash_seed();
    if (n) memcpy(b->merges, merges, n * sizeof *merges);
    for (size_t i = 0; i < n; i++) merge_put(b, (uint32_t)i);
    return ERR_OK;
}

int tok_bpe_init(struct tok *t, const struct tok_bpe_options *o, const struct tok_merge *merges, size_t n_merges, struct err *err) {
    struct bpe *b = arena_new(&t->arena, struct bpe, 1);
    TRY(build_merges(t, b, merges, n_merges, err));
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        b->byte_id[i] = t->byte_level ? tok_table_find(&t->table, &byte, 1) : -1;
        b->fallback_id[i] = tok_byte_fallback_id(t, (unsigned char)i);
    }
    b->unk = o->unk_token.p ? tok_table_find(&t->table, o->unk_token.p, o->unk_token.n) : -1;
    b->fuse_unk = o->fuse_unk;
    b->byte_fallback = o->byte_fallback;
    b->ignore_merges = o->ignore_merges;
    b->prefix = str_copy(&t->arena, o->prefix);
    b->suffix = str_copy(&t->arena, o->suffix);
    if (b->prefix.n + b->suffix.n > 500) return err_set(err, ERR_ELIMIT, "tokenizer: the prefix or suffix of subwords is too long");
    t->model = (struct tok_model){"BPE", bpe_encode, b};
    t->unk = b->unk;
    TRY(build_chars(t, b, err));
    TRY(build_cross(t, b, merges, n_merges, err));
    return build_whole(t, b, err);
}
