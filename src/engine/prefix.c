/* The tree of cached blocks: entries in one array, found through a table of chains, ordered by use in a doubly linked list. */
#include "engine/prefix.h"

#include "base/hash.h"
#include "model/spec.h"

#include <assert.h>

#define NO_TOKEN (INT32_MIN + 1) /* no token has this number, nor one that the device has yet to choose */

enum { NONE = -1, ROOT = -1, COPY_MIN = 8 /* common tokens that are worth copying a block */ };

struct entry {
    uint64_t hash;
    int32_t tree; /* see struct sequence */
    int32_t parent, n_children, first_child, next_sibling, previous_sibling;
    int32_t next_in_chain;          /* of the hash table, or of the free entries */
    int32_t older, newer;           /* by use */
    int32_t snapshot;               /* slot; NONE */
    int32_t blocks[KV_CLASSES_MAX]; /* NONE: left the window, or given up */
    int32_t tokens[KV_BLOCK];
};

struct prefix {
    struct prefix_options options;
    struct entry *entries;
    int32_t n_entries, free, oldest, newest;
    int32_t *table; /* [n_table] first of each chain */
    uint64_t n_table;
    int32_t root_child;
    int32_t n_snapshots; /* held */
};

struct prefix *prefix_open(const struct prefix_options *o) {
    struct prefix *p = mem_alloc(sizeof *p);
    p->options = *o;
    int32_t n = 1024;
    for (int32_t c = 0; c < kv_token_classes(&o->kv->layout); c++)
        if (o->kv->pools[c].n_blocks > n) n = o->kv->pools[c].n_blocks;
    p->n_entries = n;
    p->entries = mem_alloc((size_t)n * sizeof *p->entries);
    p->n_table = 1;
    while (p->n_table < (uint64_t)n * 2) p->n_table *= 2;
    p->table = mem_alloc((size_t)p->n_table * sizeof *p->table);
    for (uint64_t i = 0; i < p->n_table; i++) p->table[i] = NONE;
    for (int32_t i = 0; i < n; i++) p->entries[i].next_in_chain = i + 1 < n ? i + 1 : NONE;
    p->oldest = p->newest = p->root_child = NONE;
    return p;
}

static bool is_recurrent(const struct prefix *p) {
    return p->options.kv->layout.n_states > 0;
}

/* ---- the order of use --------------------------------------------------------------------------------------------------- */

static void unlink_use(struct prefix *p, int32_t i) {
    struct entry *e = &p->entries[i];
    if (e->older != NONE) p->entries[e->older].newer = e->newer;
    else p->oldest = e->newer;
    if (e->newer != NONE) p->entries[e->newer].older = e->older;
    else p->newest = e->older;
}

static void link_use(struct prefix *p, int32_t i) {
    struct entry *e = &p->entries[i];
    e->newer = NONE;
    e->older = p->newest;
    if (p->newest != NONE) p->entries[p->newest].newer = i;
    else p->oldest = i;
    p->newest = i;
}

/* Marks an entry and its parents as used. The leaf comes first, so that in the order of use a leaf is always older than its parent. */
static void touch(struct prefix *p, int32_t i) {
    for (; i != ROOT; i = p->entries[i].parent) {
        unlink_use(p, i);
        link_use(p, i);
    }
}

/* ---- the tree ------------------------------------------------------------------------------------------------------------ */

static uint64_t hash_of(const struct prefix *p, int32_t tree, int32_t parent, const int32_t *tokens) {
    return hash_bytes(tokens, KV_BLOCK * sizeof *tokens, parent == ROOT ? (uint64_t)tree : p->entries[parent].hash);
}

static int32_t find_child(const struct prefix *p, int32_t tree, int32_t parent, const int32_t *tokens) {
    uint64_t hash = hash_of(p, tree, parent, tokens);
    for (int32_t i = p->table[hash & (p->n_table - 1)]; i != NONE; i = p->entries[i].next_in_chain) {
        const struct entry *e = &p->entries[i];
        if (e->hash == hash && e->parent == parent && e->tree == tree && memcmp(e->tokens, tokens, sizeof e->tokens) == 0) return i;
    }
    return NONE;
}

static int32_t *first_child_of(struct prefix *p, int32_t parent) {
    return parent == ROOT ? &p->root_child : &p->entries[parent].first_child;
}

static void drop_snapshot(struct prefix *p, struct entry *e) {
    if (e->snapshot == NONE) return;
    kv_slot_put(p->options.kv, e->snapshot);
    e->snapshot = NONE;
    p->n_snapshots--;
}

static void drop_block(struct prefix *p, struct entry *e, int32_t c) {
    if (e->blocks[c] == NONE) return;
    kv_block_uncache(p->options.kv, c, e->blocks[c]);
    e->blocks[c] = NONE;
}

static void remove_entry(struct prefix *p, int32_t i) {
    struct entry *e = &p->entries[i];
    assert(e->n_children == 0);
    int32_t *link = &p->table[e->hash & (p->n_table - 1)];
    while (*link != i) link = &p->entries[*link].next_in_chain;
    *link = e->next_in_chain;
    if (e->previous_sibling != NONE) p->entries[e->previous_sibling].next_sibling = e->next_sibling;
    else *first_child_of(p, e->parent) = e->next_sibling;
    if (e->next_sibling != NONE) p->entries[e->next_sibling].previous_sibling = e->previous_sibling;
    if (e->parent != ROOT) p->entries[e->parent].n_children--;
    unlink_use(p, i);
    drop_snapshot(p, e);
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) drop_block(p, e, c);
    e->next_in_chain = p->free;
    p->free = i;
}

static bool is_idle(const struct prefix *p, const struct entry *e, int32_t c) {
    return e->blocks[c] == NONE || p->options.kv->pools[c].n_readers[e->blocks[c]] == 1;
}

/* A leaf whose blocks nobody reads. */
static bool is_spare(const struct prefix *p, int32_t i) {
    const struct entry *e = &p->entries[i];
    bool spare = e->n_children == 0;
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) spare = spare && is_idle(p, e, c);
    return spare;
}

bool prefix_evict(struct prefix *p, int32_t c) {
    for (int32_t i = p->oldest, next; i != NONE; i = next) {
        next = p->entries[i].newer;
        if (!is_spare(p, i)) continue;
        bool had = p->entries[i].blocks[c] != NONE;
        remove_entry(p, i);
        if (had) return true;
    }
    if (p->options.kv->layout.classes[c].window == 0) return false;
    for (int32_t i = p->oldest; i != NONE;
         i = p->entries[i].newer) /* blocks inside the tree that no reader of a leaf can see, because they lie behind its window */
        if (p->entries[i].blocks[c] != NONE && is_idle(p, &p->entries[i], c)) {
            drop_block(p, &p->entries[i], c);
            return true;
        }
    return false;
}

/* An unused entry. If there is none, an entry other than `keep` is given up. */
static int32_t take_entry(struct prefix *p, int32_t keep) {
    for (int32_t i = p->oldest; p->free == NONE && i != NONE; i = p->entries[i].newer)
        if (i != keep && is_spare(p, i)) {
            remove_entry(p, i);
            break;
        }
    int32_t i = p->free;
    if (i != NONE) p->free = p->entries[i].next_in_chain;
    return i;
}

static int32_t add_child(struct prefix *p, int32_t tree, int32_t parent, const int32_t *tokens) {
    int32_t i = take_entry(p, parent);
    if (i == NONE) return NONE;
    struct entry *e = &p->entries[i];
    *e = (struct entry){.hash = hash_of(p, tree, parent, tokens),
                        .tree = tree,
                        .parent = parent,
                        .first_child = NONE,
                        .previous_sibling = NONE,
                        .snapshot = NONE};
    memcpy(e->tokens, tokens, sizeof e->tokens);
    for (int32_t c = 0; c < KV_CLASSES_MAX; c++) e->blocks[c] = NONE;
    int32_t *first = first_child_of(p, parent), *chain = &p->table[e->hash & (p->n_table - 1)];
    e->next_sibling = *first;
    if (*first != NONE) p->entries[*first].previous_sibling = i;
    *first = i;
    if (parent != ROOT) p->entries[parent].n_children++;
    e->next_in_chain = *chain;
    *chain = i;
    link_use(p, i);
    return i;
}

void prefix_close(struct prefix *p) {
    if (!p) return;
    while (p->oldest != NONE) {
        int32_t i = p->oldest;
        while (p->entries[i].first_child != NONE) i = p->entries[i].first_child;
        remove_entry(p, i);
    }
    mem_free(p->entries);
    mem_free(p->table);
    mem_free(p);
}

/* ---- giving -------------------------------------------------------------------------------------------------------------- */

/* Whether no rope table of the sequence depends on its length yet. */
static bool has_plain_ropes(const struct prefix *p, const struct sequence *s) {
    int32_t len = s->n_tokens > s->rope_len ? s->n_tokens : s->rope_len;
    for (int32_t i = 0; i < p->options.spec->n_ropes; i++) {
        const struct rope_spec *r = &p->options.spec->ropes[i];
        if (r->table >= 0 && len > r->original_len) return false;
    }
    return true;
}

int32_t prefix_pause(const struct prefix *p, const struct sequence *s) {
    if (!is_recurrent(p) || p->options.n_snapshots == 0) return 0;
    return (s->n_prompt - 1) / KV_BLOCK * KV_BLOCK;
}

static void keep_blocks(struct prefix *p, struct entry *e, const struct sequence *s, int32_t i_block) {
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) {
        if (e->blocks[c] != NONE || s->tables[c][i_block] < 0) continue;
        e->blocks[c] = s->tables[c][i_block];
        kv_block_cache(p->options.kv, c, e->blocks[c]);
    }
}

static void keep_snapshot(struct prefix *p, struct entry *e, const struct sequence *s) {
    if (e->snapshot != NONE) return;
    for (int32_t i = p->oldest; p->n_snapshots >= p->options.n_snapshots && i != NONE; i = p->entries[i].newer)
        drop_snapshot(p, &p->entries[i]);
    int32_t slot = kv_slot_get(p->options.kv);
    if (slot < 0) return;
    if (p->options.backend->type->slot_copy(p->options.backend, s->slot, slot, NULL)) {
        kv_slot_put(p->options.kv, slot);
        return;
    }
    e->snapshot = slot;
    p->n_snapshots++;
}

bool prefix_takes(const struct prefix *p, const struct sequence *s) {
    return s->tree >= 0 && has_plain_ropes(p, s);
}

/* The entry of a sequence's i-th block behind its parent; NONE: there is no room for another. */
static int32_t keep_block(struct prefix *p, const struct sequence *s, int32_t at, int32_t i, const int32_t *tokens) {
    int32_t child = find_child(p, s->tree, at, tokens);
    if (child == NONE) child = add_child(p, s->tree, at, tokens);
    if (child != NONE) keep_blocks(p, &p->entries[child], s, i);
    return child;
}

/* The tokens behind n full blocks, filled up to a whole block with NO_TOKEN. */
static void fill_tail(int32_t out[KV_BLOCK], const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < KV_BLOCK; i++) out[i] = i < n ? tokens[i] : NO_TOKEN;
}

static void keep(struct prefix *p, const struct sequence *s, bool with_tail) {
    int32_t n = s->n_done / KV_BLOCK, n_tail = s->n_done % KV_BLOCK, at = ROOT, i = 0, tail[KV_BLOCK];
    bool snaps = is_recurrent(p) && s->n_done > 0 && s->n_done == prefix_pause(p, s);
    if (!prefix_takes(p, s) || (is_recurrent(p) && !snaps)) return;
    for (; i < n; i++) {
        int32_t child = keep_block(p, s, at, i, s->tokens + (int64_t)i * KV_BLOCK);
        if (child == NONE) break;
        at = child;
        if (snaps && i == n - 1) keep_snapshot(p, &p->entries[child], s);
    }
    if (with_tail && n_tail && i == n) {
        fill_tail(tail, s->tokens + (int64_t)n * KV_BLOCK, n_tail);
        int32_t child = keep_block(p, s, at, n, tail);
        if (child != NONE) at = child;
    }
    touch(p, at);
}

void prefix_keep(struct prefix *p, const struct sequence *s) {
    keep(p, s, false);
}

void prefix_put(struct prefix *p, const struct sequence *s) {
    keep(p, s, true);
}

/* Gives up an entry and everything behind it, as far as nobody reads it. */
static void remove_line(struct prefix *p, int32_t top) {
    for (int32_t i = top;;) {
        while (p->entries[i].first_child != NONE) i = p->entries[i].first_child;
        int32_t parent = p->entries[i].parent;
        if (!is_spare(p, i)) return;
        remove_entry(p, i);
        if (i == top) return;
        i = parent;
    }
}

void prefix_erase(struct prefix *p, int32_t tree, const int32_t *tokens, int32_t n) {
    int32_t at = ROOT, depth = 0, left = n % KV_BLOCK;
    for (; depth < n / KV_BLOCK; depth++) {
        int32_t child = find_child(p, tree, at, tokens + (int64_t)depth * KV_BLOCK);
        if (child == NONE) break;
        at = child;
    }
    bool is_whole = depth == n / KV_BLOCK;
    for (int32_t i = is_whole ? *first_child_of(p, at) : NONE, next; i != NONE; i = next) { /* what goes on with the tokens */
        next = p->entries[i].next_sibling;
        const struct entry *e = &p->entries[i];
        if (e->tree == tree && memcmp(e->tokens, tokens + (int64_t)depth * KV_BLOCK, (size_t)left * sizeof *tokens) == 0) remove_line(p, i);
    }
    while (at != ROOT && is_spare(p, at)) {
        int32_t parent = p->entries[at].parent;
        remove_entry(p, at);
        at = parent;
    }
}

/* ---- taking -------------------------------------------------------------------------------------------------------------- */

/* The first block that a row at n_done can see in this class. */
static int32_t first_seen(const struct prefix *p, int32_t c, int32_t n_done) {
    int32_t window = p->options.kv->layout.classes[c].window;
    return window == 0 || n_done < window ? 0 : (n_done - window + 1) / KV_BLOCK;
}

/* Whether a sequence can begin behind this entry, the depth-th of its line: every block that will be seen is there. Classes
 * without a window never lose one inside the tree. */
static bool can_begin(const struct prefix *p, int32_t at, int32_t depth) {
    if (is_recurrent(p) && p->entries[at].snapshot == NONE) return false;
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) {
        bool windowed = p->options.kv->layout.classes[c].window > 0;
        int32_t first = windowed ? first_seen(p, c, depth * KV_BLOCK) : depth - 1, e = at;
        for (int32_t i = depth - 1; i >= first; i--, e = p->entries[e].parent)
            if (p->entries[e].blocks[c] == NONE) return false;
    }
    return true;
}

static void share_line(struct prefix *p, struct sequence *s, int32_t at, int32_t depth) {
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) {
        int32_t first = first_seen(p, c, depth * KV_BLOCK), e = at;
        for (int32_t i = depth - 1; i >= 0; i--, e = p->entries[e].parent) {
            s->tables[c][i] = i >= first ? p->entries[e].blocks[c] : -1;
            if (i >= first) kv_block_share(p->options.kv, c, s->tables[c][i]);
        }
        s->n_blocks[c] = depth;
    }
    s->n_done = depth * KV_BLOCK;
}

static int32_t count_common(const int32_t *a, const int32_t *b, int32_t n) {
    int32_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* The child that begins most like the tokens that follow. */
static int32_t nearest_child(const struct prefix *p, int32_t tree, int32_t at, const int32_t *tokens, int32_t n, int32_t *out_common) {
    int32_t best = NONE;
    *out_common = 0;
    for (int32_t i = at == ROOT ? p->root_child : p->entries[at].first_child; i != NONE; i = p->entries[i].next_sibling) {
        int32_t common = count_common(p->entries[i].tokens, tokens, n);
        bool whole = p->entries[i].tree == tree;
        for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) whole = whole && p->entries[i].blocks[c] != NONE;
        if (whole && common > *out_common) {
            best = i;
            *out_common = common;
        }
    }
    return best;
}

/* Copies the common part of a block into one of the sequence's own. */
static void copy_part(struct prefix *p, struct sequence *s, int32_t at) {
    struct kv *kv = p->options.kv;
    int32_t left = s->n_tokens - 1 - s->n_done, common;
    if (left > KV_BLOCK) left = KV_BLOCK;
    int32_t from = nearest_child(p, s->tree, at, s->tokens + s->n_done, left, &common);
    if (from == NONE || common < COPY_MIN) return;
    for (int32_t c = 0; c < kv_token_classes(&kv->layout); c++)
        if (kv->pools[c].n_free == 0) return;
    for (int32_t c = 0; c < kv_token_classes(&kv->layout); c++) {
        int32_t block = kv_block_get(kv, c);
        s->tables[c][s->n_blocks[c]++] = block;
        if (p->options.backend->type->block_copy(p->options.backend, c, p->entries[from].blocks[c], block, NULL)) common = 0;
    }
    s->n_done += common;
}

int32_t prefix_attach(struct prefix *p, struct sequence *s) {
    int32_t at = ROOT, depth = 0, best = ROOT, best_depth = 0, n = (s->n_tokens - 1) / KV_BLOCK;
    assert(s->n_done == 0 && s->n_blocks[0] == 0);
    if (s->tree < 0 || !has_plain_ropes(p, s)) return 0;
    while (depth < n) {
        int32_t child = find_child(p, s->tree, at, s->tokens + (int64_t)depth * KV_BLOCK);
        if (child == NONE) break;
        at = child;
        if (can_begin(p, at, ++depth)) {
            best = at;
            best_depth = depth;
        }
    }
    if (is_recurrent(p)) {
        if (best_depth == 0 || p->options.backend->type->slot_copy(p->options.backend, p->entries[best].snapshot, s->slot, NULL)) return 0;
    }
    touch(p, best);
    share_line(p, s, best, best_depth);
    if (!is_recurrent(p) && kv_token_classes(&p->options.kv->layout) > 0) copy_part(p, s, best);
    return s->n_done;
}
