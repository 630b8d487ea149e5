/* Hash table and trie of token strings. Sizes come from files, so memory is asked for politely. */
#include "text/tokenizer/vocab.h"

#include <stdlib.h>

int tok_table_init(struct arena *a, struct tok_table *t, const struct str *keys, size_t n_keys, struct err *err) {
    size_t n_slots = 16, bytes;
    while (n_slots < n_keys + n_keys / 2) n_slots *= 2;
    if (size_mul(n_slots, sizeof *t->slots, &bytes) || !(t->slots = arena_try(a, bytes)))
        return err_set(err, ERR_EMEMORY, "tokenizer: no memory for a table of %zu tokens", n_keys);
    t->mask = n_slots - 1;
    t->seed = hash_seed();
    t->keys = keys;
    return ERR_OK;
}

bool tok_table_put(struct tok_table *t, uint32_t index) {
    struct str key = t->keys[index];
    uint64_t h = tok_hash(key.p, key.n, t->seed);
    uint32_t tag = (uint32_t)(h >> 32);
    size_t i = h & t->mask;
    for (; t->slots[i].index; i = (i + 1) & t->mask)
        if (t->slots[i].tag == tag && str_eq(t->keys[t->slots[i].index - 1], key)) return false;
    t->slots[i] = (struct tok_slot){tag, index + 1};
    return true;
}

void tok_table_find_block(const struct tok_table *t, const struct str *keys, size_t n, int32_t *out) {
    uint64_t hashes[TOK_BLOCK];
    struct tok_slot first[TOK_BLOCK];
    for (size_t i = 0; i < n; i++) hashes[i] = tok_hash(keys[i].p, keys[i].n, t->seed);
    for (size_t i = 0; i < n; i++) first[i] = t->slots[hashes[i] & t->mask];
    for (size_t i = 0; i < n; i++) { /* the first place is mostly the right one */
        bool hit = first[i].index && first[i].tag == (uint32_t)(hashes[i] >> 32);
        out[i] = hit ? (int32_t)(first[i].index - 1) : -1;
    }
    struct str found[TOK_BLOCK];
    for (size_t i = 0; i < n; i++) found[i] = out[i] >= 0 ? t->keys[out[i]] : (struct str){NULL, 0};
    for (size_t i = 0; i < n; i++)
        if (out[i] < 0 || !str_eq(found[i], keys[i])) out[i] = tok_table_find(t, keys[i].p, keys[i].n);
}

uint32_t tok_table_put_block(struct tok_table *t, const uint32_t *indices, size_t n) {
    uint64_t hashes[TOK_BLOCK];
    uint32_t taken[TOK_BLOCK];
    for (size_t i = 0; i < n; i++) hashes[i] = tok_hash(t->keys[indices[i]].p, t->keys[indices[i]].n, t->seed);
    for (size_t i = 0; i < n; i++) taken[i] = t->slots[hashes[i] & t->mask].index;
    for (size_t i = 0; i < n; i++) {
        size_t at = hashes[i] & t->mask;
        if (taken[i] == 0 && t->slots[at].index == 0) t->slots[at] = (struct tok_slot){(uint32_t)(hashes[i] >> 32), indices[i] + 1};
        else if (!tok_table_put(t, indices[i])) return indices[i];
    }
    return UINT32_MAX;
}

static int compare_items(const void *a, const void *b) {
    const struct tok_trie_item *x = a, *y = b;
    int order = str_cmp(x->key, y->key);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

struct trie_range {
    uint32_t node;
    size_t first, last; /* items [first, last) share the node's prefix */
    size_t depth;
};

/* The nodes that still need their edges: never more than the edges that leave one path, whatever the number of all nodes. */
struct trie_stack {
    struct trie_range *p;
    size_t n, capacity;
};

static void trie_push(struct trie_stack *s, struct trie_range r) {
    if (s->n == s->capacity) {
        s->capacity = s->capacity ? s->capacity * 2 : 256;
        s->p = mem_realloc(s->p, s->capacity * sizeof *s->p);
    }
    s->p[s->n++] = r;
}

/* Adds the edges of one node: its items, grouped by their byte at `depth`. */
static void expand(struct tok_trie *t, const struct tok_trie_item *items, struct trie_range r, struct trie_stack *stack, uint32_t *n_nodes,
                   uint32_t *n_edges) {
    struct tok_trie_node *node = &t->nodes[r.node];
    node->edge = *n_edges;
    node->value = -1;
    size_t i = r.first;
    while (i < r.last && items[i].key.n == r.depth) node->value = items[i++].value;
    while (i < r.last) {
        unsigned char byte = (unsigned char)items[i].key.p[r.depth];
        size_t end = i;
        while (end < r.last && (unsigned char)items[end].key.p[r.depth] == byte) end++;
        uint32_t child = (*n_nodes)++;
        t->labels[*n_edges] = byte;
        t->targets[(*n_edges)++] = child;
        node->n_edges++;
        if (r.node == 0) t->root[byte] = child;
        trie_push(stack, (struct trie_range){child, i, end, r.depth + 1});
        i = end;
    }
}

int tok_trie_build(struct arena *a, struct tok_trie *t, struct tok_trie_item *items, size_t n, struct err *err) {
    memset(t->root, 0, sizeof t->root);
    t->empty = n == 0;
    if (n == 0) return ERR_OK;
    qsort(items, n, sizeof *items, compare_items);
    size_t max_nodes = 1;
    for (size_t i = 0; i < n; i++) {
        size_t common = 0, limit = i ? items[i - 1].key.n : 0;
        while (common < limit && common < items[i].key.n && items[i].key.p[common] == items[i - 1].key.p[common]) common++;
        if (size_add(max_nodes, items[i].key.n - common, &max_nodes)) return err_set(err, ERR_EMEMORY, "tokenizer: token strings too long");
    }
    if (max_nodes > TOK_MAX_NODES)
        return err_set(err, ERR_ELIMIT, "tokenizer: %zu tokens have more than %d bytes that differ", n, TOK_MAX_NODES);
    t->nodes = arena_try(a, max_nodes * sizeof *t->nodes);
    t->labels = arena_try(a, max_nodes);
    t->targets = arena_try(a, max_nodes * sizeof *t->targets);
    if (!t->nodes || !t->labels || !t->targets) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for a trie of %zu nodes", max_nodes);
    uint32_t n_nodes = 1, n_edges = 0;
    struct trie_stack stack = {0};
    trie_push(&stack, (struct trie_range){0, 0, n, 0});
    while (stack.n) {
        struct trie_range r = stack.p[--stack.n];
        expand(t, items, r, &stack, &n_nodes, &n_edges);
    }
    mem_free(stack.p);
    return ERR_OK;
}
