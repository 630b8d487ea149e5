/* The tree of cached blocks: entries in one array, found through a table of chains, ordered by use in doubly linked lists: those whose blocks are in the
 * device's cache, and those that are away, whose numbers lie in the host's memory. Children of an entry that is away are away, too: entries go from the leaves, and
 * come back from the root. */
#include "engine/prefix.h"

#include "base/hash.h"
#include "engine/spare.h"
#include "model/spec.h"

#include <assert.h>

#define NO_TOKEN (INT32_MIN + 1) /* no token has this number, nor one that the device has yet to choose */

enum { NONE = -1, ROOT = -1, COPY_MIN = 8 /* common tokens that are worth copying a block */ };

struct entry {
    uint64_t hash;
    int32_t tree; /* see struct sequence */
    int32_t parent, n_children, first_child, next_sibling, previous_sibling;
    int32_t n_here;                 /* children that are not away */
    int32_t away;                   /* its place in the host's memory; NONE: it is not away */
    unsigned away_classes;          /* bits of the classes that have a block there */
    int32_t next_on_line;           /* while a sequence takes a line of entries: the one behind it */
    bool is_held;                   /* likewise: it is not given up */
    int32_t next_in_chain;          /* of the hash table, or of the free entries */
    int32_t older, newer;           /* by use, among those that are here or those that are away */
    int32_t snapshot;               /* slot; NONE */
    int32_t blocks[KV_CLASSES_MAX]; /* NONE: left the window, given up, or away */
    int32_t tokens[KV_BLOCK];
};

struct order {
    int32_t oldest, newest;
};

struct prefix {
    struct prefix_options options;
    struct entry *entries;
    int32_t n_entries, free, n_away;
    struct order here, away;
    int64_t n_returned;
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
    if (o->spare) n += spare_most(o->spare);
    p->n_entries = n;
    p->entries = mem_alloc((size_t)n * sizeof *p->entries);
    p->n_table = 1;
    while (p->n_table < (uint64_t)n * 2) p->n_table *= 2;
    p->table = mem_alloc((size_t)p->n_table * sizeof *p->table);
    for (uint64_t i = 0; i < p->n_table; i++) p->table[i] = NONE;
    for (int32_t i = 0; i < n; i++) p->entries[i].next_in_chain = i + 1 < n ? i + 1 : NONE;
    p->here = p->away = (struct order){NONE, NONE};
    p->root_child = NONE;
    return p;
}

static bool is_recurrent(const struct prefix *p) {
    return p->options.kv->layout.n_states > 0;
}

/* ---- the order of use --------------------------------------------------------------------------------------------------- */

static struct order *order_of(struct prefix *p, const struct entry *e) {
    return e->away == NONE ? &p->here : &p->away;
}

static void unlink_use(struct prefix *p, int32_t i) {
    struct entry *e = &p->entries[i];
    struct order *o = order_of(p, e);
    if (e->older != NONE) p->entries[e->older].newer = e->newer;
    else o->oldest = e->newer;
    if (e->newer != NONE) p->entries[e->newer].older = e->older;
    else o->newest = e->older;
}

static void link_use(struct prefix *p, int32_t i) {
    struct entry *e = &p->entries[i];
    struct order *o = order_of(p, e);
    e->newer = NONE;
    e->older = o->newest;
    if (o->newest != NONE) p->entries[o->newest].newer = i;
    else o->oldest = i;
    o->newest = i;
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

static void drop_place(struct prefix *p, struct entry *e) {
    if (e->away == NONE) return;
    spare_put(p->options.spare, e->away);
    e->away = NONE;
    p->n_away--;
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
    if (e->parent != ROOT) p->entries[e->parent].n_children--, p->entries[e->parent].n_here -= e->away == NONE;
    unlink_use(p, i);
    drop_place(p, e);
    drop_snapshot(p, e);
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) drop_block(p, e, c);
    e->next_in_chain = p->free;
    p->free = i;
}

static bool is_idle(const struct prefix *p, const struct entry *e, int32_t c) {
    return e->blocks[c] == NONE || p->options.kv->pools[c].n_readers[e->blocks[c]] == 1;
}

/* Nobody reads its blocks, and nobody is about to. */
static bool is_unread(const struct prefix *p, const struct entry *e) {
    bool is = !e->is_held;
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) is = is && is_idle(p, e, c);
    return is;
}

/* A leaf that can be given up for good. */
static bool is_spare(const struct prefix *p, int32_t i) {
    const struct entry *e = &p->entries[i];
    return e->n_children == 0 && is_unread(p, e);
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

/* ---- away and back ------------------------------------------------------------------------------------------------------- */

/* A free place in the host's memory, for which the leaf there that was used longest ago may be given up. */
static int32_t take_place(struct prefix *p) {
    int32_t place = spare_get(p->options.spare);
    for (int32_t i = p->away.oldest, next; place < 0 && i != NONE; i = next) {
        next = p->entries[i].newer;
        if (!is_spare(p, i)) continue;
        remove_entry(p, i);
        place = spare_get(p->options.spare);
    }
    return place;
}

/* Marks an entry as away, or as here again. */
static void move_to(struct prefix *p, int32_t i, int32_t place) {
    struct entry *e = &p->entries[i];
    unlink_use(p, i);
    if (place == NONE) drop_place(p, e);
    else p->n_away++;
    e->away = place;
    link_use(p, i);
    if (e->parent != ROOT) p->entries[e->parent].n_here += place == NONE ? 1 : -1;
}

/* Copies an entry's blocks to the host and gives them up here; false: there is no place for them. */
static bool send_away(struct prefix *p, int32_t i) {
    struct entry *e = &p->entries[i];
    struct backend *be = p->options.backend;
    int32_t place = p->options.spare ? take_place(p) : NONE;
    if (place < 0) return false;
    e->away_classes = 0;
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) {
        if (e->blocks[c] == NONE) continue;
        if (be->type->block_read(be, c, e->blocks[c], spare_at(p->options.spare, place, c), NULL)) {
            spare_put(p->options.spare, place);
            return false;
        }
        e->away_classes |= 1u << c;
    }
    move_to(p, i, place);
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) drop_block(p, e, c);
    return true;
}

/* A block of the class, which others are given up for. */
static int32_t take_block(struct prefix *p, int32_t c) {
    while (p->options.kv->pools[c].n_free == 0)
        if (!prefix_evict(p, c)) return NONE;
    return kv_block_get(p->options.kv, c);
}

/* Copies an entry's blocks back; false: there is no room, and it stays away. */
static bool bring_back(struct prefix *p, int32_t i) {
    struct entry *e = &p->entries[i];
    struct backend *be = p->options.backend;
    bool ok = true;
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout) && ok; c++) {
        if (!(e->away_classes >> c & 1)) continue;
        int32_t block = take_block(p, c);
        ok = block != NONE;
        if (!ok) continue;
        e->blocks[c] = block;
        kv_block_cache(p->options.kv, c, block);
        kv_block_put(p->options.kv, c, block);
        ok = be->type->block_write(be, c, block, spare_at(p->options.spare, e->away, c), NULL) == ERR_OK;
    }
    if (!ok) {
        for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) drop_block(p, e, c);
        return false;
    }
    move_to(p, i, NONE);
    p->n_returned += KV_BLOCK;
    return true;
}

int32_t prefix_away(const struct prefix *p) {
    return p->n_away;
}

int64_t prefix_returned(const struct prefix *p) {
    return p->n_returned;
}

/* ---- room ---------------------------------------------------------------------------------------------------------------- */

/* Gives up the blocks of an entry, behind which nothing is here. */
static void give_up(struct prefix *p, int32_t i) {
    if (!send_away(p, i)) remove_line(p, i);
}

bool prefix_evict(struct prefix *p, int32_t c) {
    for (int32_t i = p->here.oldest; i != NONE;) {
        const struct entry *e = &p->entries[i];
        bool had = e->blocks[c] != NONE;
        if (e->n_here > 0 || !is_unread(p, e)) {
            i = e->newer;
            continue;
        }
        give_up(p, i);
        if (had) return true;
        i = p->here.oldest;
    }
    if (p->options.kv->layout.classes[c].window == 0) return false;
    for (int32_t i = p->here.oldest; i != NONE;
         i = p->entries[i].newer) /* blocks inside the tree that no reader of a leaf can see, because they lie behind its window */
        if (p->entries[i].blocks[c] != NONE && !p->entries[i].is_held && is_idle(p, &p->entries[i], c)) {
            drop_block(p, &p->entries[i], c);
            return true;
        }
    return false;
}

/* An unused entry. If there is none, an entry other than `keep` is given up. */
static int32_t take_entry(struct prefix *p, int32_t keep) {
    const struct order *orders[] = {&p->away, &p->here};
    for (int k = 0; k < 2; k++)
        for (int32_t i = orders[k]->oldest; p->free == NONE && i != NONE; i = p->entries[i].newer)
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
                        .away = NONE,
                        .snapshot = NONE};
    memcpy(e->tokens, tokens, sizeof e->tokens);
    for (int32_t c = 0; c < KV_CLASSES_MAX; c++) e->blocks[c] = NONE;
    int32_t *first = first_child_of(p, parent), *chain = &p->table[e->hash & (p->n_table - 1)];
    e->next_sibling = *first;
    if (*first != NONE) p->entries[*first].previous_sibling = i;
    *first = i;
    if (parent != ROOT) p->entries[parent].n_children++, p->entries[parent].n_here++;
    e->next_in_chain = *chain;
    *chain = i;
    link_use(p, i);
    return i;
}

void prefix_close(struct prefix *p) {
    if (!p) return;
    while (p->root_child != NONE) {
        int32_t i = p->root_child;
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

/* A sequence has computed what is away: its own blocks are taken. */
static void keep_blocks(struct prefix *p, int32_t i, const struct sequence *s, int32_t i_block) {
    struct entry *e = &p->entries[i];
    if (e->away != NONE) move_to(p, i, NONE);
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) {
        if (e->blocks[c] != NONE || s->tables[c][i_block] < 0) continue;
        e->blocks[c] = s->tables[c][i_block];
        kv_block_cache(p->options.kv, c, e->blocks[c]);
    }
}

static void keep_snapshot(struct prefix *p, struct entry *e, const struct sequence *s) {
    if (e->snapshot != NONE) return;
    for (int32_t i = p->here.oldest; p->n_snapshots >= p->options.n_snapshots && i != NONE; i = p->entries[i].newer)
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
    if (child != NONE) keep_blocks(p, child, s, i);
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

static bool has_block(const struct entry *e, int32_t c) {
    return e->away == NONE ? e->blocks[c] != NONE : e->away_classes >> c & 1;
}

/* Whether a sequence can begin behind this entry, the depth-th of its line: every block that will be seen is there, or away. Classes
 * without a window never lose one inside the tree. */
static bool can_begin(const struct prefix *p, int32_t at, int32_t depth) {
    if (is_recurrent(p) && p->entries[at].snapshot == NONE) return false;
    for (int32_t c = 0; c < kv_token_classes(&p->options.kv->layout); c++) {
        bool windowed = p->options.kv->layout.classes[c].window > 0;
        int32_t first = windowed ? first_seen(p, c, depth * KV_BLOCK) : depth - 1, e = at;
        for (int32_t i = depth - 1; i >= first; i--, e = p->entries[e].parent)
            if (!has_block(&p->entries[e], c)) return false;
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

/* Brings back what is away of a line, from the root on, as far as there is room. */
static void bring_line(struct prefix *p, int32_t first) {
    for (int32_t i = first; i != NONE; i = p->entries[i].next_on_line) p->entries[i].is_held = true;
    for (int32_t i = first; i != NONE; i = p->entries[i].next_on_line)
        if (p->entries[i].away != NONE && !bring_back(p, i)) break;
    for (int32_t i = first; i != NONE; i = p->entries[i].next_on_line) p->entries[i].is_held = false;
}

/* The entry, on the line that ends at `at`, behind which the sequence can begin now. */
static int32_t last_here(const struct prefix *p, int32_t at, int32_t *depth) {
    while (*depth > 0 && (p->entries[at].away != NONE || !can_begin(p, at, *depth))) {
        at = p->entries[at].parent;
        --*depth;
    }
    return at;
}

int32_t prefix_attach(struct prefix *p, struct sequence *s) {
    int32_t at = ROOT, depth = 0, best = ROOT, best_depth = 0, n = (s->n_tokens - 1) / KV_BLOCK, first = NONE;
    assert(s->n_done == 0 && s->n_blocks[0] == 0);
    if (s->tree < 0 || !has_plain_ropes(p, s)) return 0;
    while (depth < n) {
        int32_t child = find_child(p, s->tree, at, s->tokens + (int64_t)depth * KV_BLOCK);
        if (child == NONE) break;
        *(at == ROOT ? &first : &p->entries[at].next_on_line) = child;
        p->entries[child].next_on_line = NONE;
        at = child;
        if (can_begin(p, at, ++depth)) {
            best = at;
            best_depth = depth;
        }
    }
    if (best != ROOT && p->entries[best].away != NONE) {
        p->entries[best].next_on_line = NONE;
        touch(p, best);
        bring_line(p, first);
        best = last_here(p, best, &best_depth);
    }
    if (is_recurrent(p)) {
        if (best_depth == 0 || p->options.backend->type->slot_copy(p->options.backend, p->entries[best].snapshot, s->slot, NULL)) return 0;
    }
    touch(p, best);
    share_line(p, s, best, best_depth);
    if (!is_recurrent(p) && kv_token_classes(&p->options.kv->layout) > 0) copy_part(p, s, best);
    return s->n_done;
}
