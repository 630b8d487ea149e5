/* States and steps: what is common to all kinds of nodes. */
#include "text/grammar/machine.h"

#include "base/hash.h"
#include "text/grammar/mask.h"

enum { MAX_ROWS = 48 << 10, VISITS_BEFORE_ROW = 2, MANY_NODES = 8, MAX_EMITTED = 1 << 16 };

/* ---- the set under way ------------------------------------------------------------------------------------------------- */

static void made_grow(struct gram_machine *m) {
    if (m->n_emitted == m->emitted_capacity) {
        m->emitted_capacity = m->emitted_capacity ? 2 * m->emitted_capacity : 32;
        m->emitted = mem_realloc(m->emitted, m->emitted_capacity * sizeof *m->emitted);
    }
    if (2 * (m->n_emitted + 1) <= m->n_emitted_slots) return;
    m->n_emitted_slots = m->n_emitted_slots ? 2 * m->n_emitted_slots : 64;
    mem_free(m->emitted_slots);
    m->emitted_slots = mem_alloc(m->n_emitted_slots * sizeof *m->emitted_slots);
    for (uint32_t i = 0; i < m->n_emitted; i++) {
        uint32_t at = (uint32_t)hash_bytes(&m->emitted[i], sizeof *m->emitted, 1) & (m->n_emitted_slots - 1);
        while (m->emitted_slots[at]) at = (at + 1) & (m->n_emitted_slots - 1);
        m->emitted_slots[at] = i + 1;
    }
}

void machine_emit(struct gram_machine *m, const struct node *n) {
    made_grow(m);
    uint32_t at = (uint32_t)hash_bytes(n, sizeof *n, 1) & (m->n_emitted_slots - 1);
    for (; m->emitted_slots[at]; at = (at + 1) & (m->n_emitted_slots - 1))
        if (memcmp(&m->emitted[m->emitted_slots[at] - 1], n, sizeof *n) == 0) return;
    if (m->n_emitted >= MAX_EMITTED) return;
    m->emitted[m->n_emitted] = *n;
    m->emitted_slots[at] = ++m->n_emitted;
}

uint32_t machine_up_of(struct gram_machine *m, const struct node *n) {
    uint32_t id = gram_records_put(&m->nodes, n);
    return gram_lists_put(&m->ups, &id, 1);
}

void machine_finish(struct gram_machine *m, uint32_t up, uint32_t word) {
    uint32_t n;
    lists_get(&m->ups, up, &n);
    for (uint32_t i = 0; i < n; i++) {
        struct node next = *machine_node(m, lists_get(&m->ups, up, &n)[i]);
        if (word != WORD_NONE && node_kind(&next) == NODE_ARRAY) {
            struct array_progress p = *(const struct array_progress *)records_get(&m->arrays, next.a);
            p.items = gram_wordset_add(m, p.items, word);
            next.a = gram_records_put(&m->arrays, &p);
        }
        machine_emit(m, &next);
    }
}

/* ---- rules ------------------------------------------------------------------------------------------------------------- */

/* What is behind an edge to `to`; a rule that ends there leaves nothing of its own. */
static uint32_t up_behind(struct gram_machine *m, const struct node *n, uint32_t to) {
    const struct prog_state *s = &m->g->states[to];
    if (s->is_end && s->n == 0) return n->up;
    struct node next = {.tag = node_tag(NODE_RULE, 0), .a = to, .up = n->up};
    return machine_up_of(m, &next);
}

/* Where a rule's state leads without a byte. */
static void rule_close(struct gram_machine *m, const struct node *n) {
    const struct gram *g = m->g;
    const struct prog_state *s = &g->states[n->a];
    m->work += s->n;
    if (s->is_end) machine_finish(m, n->up, WORD_NONE);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct prog_edge *e = &g->edges[s->first + i];
        if (e->kind == EDGE_RANGE) continue;
        struct node next = {.up = up_behind(m, n, e->to)};
        if (e->kind == EDGE_GOAL) {
            next.tag = node_tag(NODE_VALUE, VALUE_BARE);
            next.a = e->number;
            machine_emit(m, &next);
            continue;
        }
        next.tag = node_tag(NODE_RULE, 0);
        next.a = g->rules[e->number].start;
        machine_emit(m, &next);
        if (g->rules[e->number].is_nullable) {
            struct node skipped = {.tag = node_tag(NODE_RULE, 0), .a = e->to, .up = n->up};
            machine_emit(m, &skipped);
        }
    }
}

static void rule_step(struct gram_machine *m, const struct node *n, uint8_t byte) {
    const struct prog_state *s = &m->g->states[n->a];
    m->work += s->n;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct prog_edge *e = &m->g->edges[s->first + i];
        if (e->kind != EDGE_RANGE || byte < e->lo || byte > e->hi) continue;
        struct node next = {.tag = n->tag, .a = e->to, .up = n->up};
        machine_emit(m, &next);
    }
}

/* ---- states ------------------------------------------------------------------------------------------------------------ */

static bool differs_in_up(const struct node *x, const struct node *y) {
    return memcmp(x, y, offsetof(struct node, up)) == 0;
}

/* The union of two lists of nodes. */
static uint32_t join_ups(struct gram_machine *m, uint32_t x, uint32_t y) {
    uint32_t nx, ny, n = 0, i = 0, k = 0;
    const uint32_t *a = lists_get(&m->ups, x, &nx), *b = lists_get(&m->ups, y, &ny);
    uint32_t *both = mem_alloc((nx + ny) * sizeof *both);
    while (i < nx || k < ny) {
        if (k == ny || (i < nx && a[i] < b[k])) both[n++] = a[i++];
        else if (i == nx || b[k] < a[i]) both[n++] = b[k++];
        else both[n++] = a[i++], k++;
    }
    uint32_t joined = gram_lists_put(&m->ups, both, n);
    mem_free(both);
    return joined;
}

/* A node that does nothing but lead on has done so. */
static bool is_passive(const struct gram_machine *m, const struct node *n) {
    return node_kind(n) == NODE_RULE && !m->g->states[n->a].has_range;
}

/* Nodes that differ in `up` alone become one. Few nodes: pairs; many: by a table of what is left of `up`. */
static void join_emitted(struct gram_machine *m) {
    uint32_t n = 0, n_slots = 0, *slots = NULL;
    if (m->n_emitted > 24) {
        for (n_slots = 64; n_slots < 2 * m->n_emitted;) n_slots *= 2;
        slots = mem_alloc(n_slots * sizeof *slots);
    }
    for (uint32_t i = 0; i < m->n_emitted; i++) {
        const struct node *node = &m->emitted[i];
        uint32_t same = UINT32_MAX, at = 0;
        if (is_passive(m, node)) continue;
        if (slots) {
            at = (uint32_t)hash_bytes(node, offsetof(struct node, up), 2) & (n_slots - 1);
            for (; slots[at] && same == UINT32_MAX; at = (at + 1) & (n_slots - 1))
                if (differs_in_up(&m->emitted[slots[at] - 1], node)) same = slots[at] - 1;
        } else {
            for (uint32_t k = 0; k < n && same == UINT32_MAX; k++)
                if (differs_in_up(&m->emitted[k], node)) same = k;
        }
        if (same != UINT32_MAX) {
            m->emitted[same].up = join_ups(m, m->emitted[same].up, node->up);
        } else {
            if (slots) slots[at] = n + 1;
            m->emitted[n++] = *node;
        }
    }
    mem_free(slots);
    m->n_emitted = n;
}

static void sort_ids(uint32_t *ids, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) { /* mostly one, or a few in order */
        uint32_t id = ids[i], k = i;
        for (; k > 0 && ids[k - 1] > id; k--) ids[k] = ids[k - 1];
        ids[k] = id;
    }
}

static uint32_t plain_state(struct gram_machine *m, const uint32_t *ids, uint32_t n);

static uint32_t state_put(struct gram_machine *m, uint32_t *ids, uint32_t n) {
    sort_ids(ids, n);
    uint32_t s = gram_lists_put(&m->states, ids, n);
    if (s < m->n_info) return s;
    if (m->n_info == m->info_capacity) {
        m->info_capacity = m->info_capacity ? 2 * m->info_capacity : 64;
        m->info = mem_realloc(m->info, m->info_capacity * sizeof *m->info);
    }
    struct state_info *info = &m->info[m->n_info++];
    *info = (struct state_info){.plain = s, .mask_of = UINT32_MAX};
    bool is_spaced = false;
    if (n) info->n_spaces = node_spaces(machine_node(m, ids[0]));
    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = machine_node(m, ids[i]);
        if (node_kind(node) == NODE_END) info->may_end = true;
        if (node_spaces(node)) is_spaced = true;
        if (node_spaces(node) != info->n_spaces) info->n_spaces = 0;
    }
    if (is_spaced) {
        uint32_t plain = plain_state(m, ids, n);
        m->info[s].plain = plain;
    }
    return s;
}

/* The same nodes without the white space that they have taken. */
static uint32_t plain_state(struct gram_machine *m, const uint32_t *ids, uint32_t n) {
    uint32_t *plain = mem_alloc(n * sizeof *plain);
    for (uint32_t i = 0; i < n; i++) {
        struct node node = *machine_node(m, ids[i]);
        node.tag &= 0xFFFF;
        plain[i] = gram_records_put(&m->nodes, &node);
    }
    uint32_t s = state_put(m, plain, n);
    mem_free(plain);
    return s;
}

/* The state made of what was emitted. */
static uint32_t state_of_emitted(struct gram_machine *m) {
    uint32_t few[32], *ids = few;
    for (uint32_t i = 0; i < m->n_emitted; i++) {
        struct node n = m->emitted[i]; /* the array may move */
        if (node_kind(&n) == NODE_RULE) rule_close(m, &n);
        if (node_kind(&n) == NODE_VALUE) gram_value_close(m, &n);
    }
    join_emitted(m);
    if (m->n_emitted > sizeof few / sizeof *few) ids = mem_alloc(m->n_emitted * sizeof *ids);
    for (uint32_t i = 0; i < m->n_emitted; i++) ids[i] = gram_records_put(&m->nodes, &m->emitted[i]);
    uint32_t s = state_put(m, ids, m->n_emitted);
    if (ids != few) mem_free(ids);
    memset(m->emitted_slots, 0, m->n_emitted_slots * sizeof *m->emitted_slots);
    m->n_emitted = 0;
    return s;
}

typedef void step_fn(struct gram_machine *m, const struct node *n, uint8_t byte);

static void end_step(struct gram_machine *m, const struct node *n, uint8_t byte) {
    if (node_phase(n) == END_SPACED && gram_is_space_byte(byte)) machine_emit(m, n);
}

static step_fn *const steps[] = {
    [NODE_END] = end_step,
    [NODE_VALUE] = gram_value_node_step,
    [NODE_RAW] = gram_raw_node_step,
    [NODE_STRING] = gram_string_node_step,
    [NODE_KEY] = gram_key_node_step,
    [NODE_COLON] = gram_value_node_step,
    [NODE_OBJECT] = gram_object_node_step,
    [NODE_ARRAY] = gram_array_node_step,
    [NODE_RULE] = rule_step,
};

uint32_t machine_step(struct gram_machine *m, uint32_t state, uint8_t byte) {
    uint32_t plain = m->info[state].plain;
    if (m->info[state].row && m->info[state].row[byte] != STEP_UNKNOWN) return m->info[state].row[byte];
    if (plain != state && !gram_is_space_byte(byte)) return machine_step(m, plain, byte);
    uint32_t n;
    lists_get(&m->states, state, &n);
    m->work += n;
    for (uint32_t i = 0; i < n; i++) {
        struct node node = *machine_node(m, lists_get(&m->states, state, &n)[i]);
        steps[node_kind(&node)](m, &node, byte);
    }
    return machine_emitted_state(m);
}

/* Many nodes take long to step: bytes that none of them can take are known at once. */
static bool wants_row(struct gram_machine *m, uint32_t state) {
    uint32_t n;
    lists_get(&m->states, state, &n);
    return n >= MANY_NODES || m->info[state].n_visits++ >= VISITS_BEFORE_ROW;
}

static void make_row(struct gram_machine *m, uint32_t state) {
    uint32_t bits[8], *row = mem_alloc(256 * sizeof *row);
    machine_first_bytes(m, state, bits);
    for (int b = 0; b < 256; b++) row[b] = bits[b / 32] >> b % 32 & 1 ? STEP_UNKNOWN : 0;
    m->info[state].row = row;
    m->n_rows++;
}

uint32_t machine_step_row(struct gram_machine *m, uint32_t state, uint8_t byte) {
    if (!m->info[state].row) {
        if (!wants_row(m, state)) return machine_step(m, state, byte);
        make_row(m, state);
    }
    uint32_t next = m->info[state].row[byte];
    if (next != STEP_UNKNOWN) return next;
    next = machine_step(m, state, byte);
    m->info[state].row[byte] = next;
    return next;
}

void machine_drop_rows(struct gram_machine *m) {
    if (m->n_rows < MAX_ROWS) return;
    for (uint32_t i = 0; i < m->n_info; i++) {
        mem_free(m->info[i].row);
        m->info[i].row = NULL;
    }
    m->n_rows = 0;
}

/* ---- first bytes ------------------------------------------------------------------------------------------------------- */

static void add_range(uint32_t bits[8], int lo, int hi) {
    for (int b = lo; b <= hi; b++) bits[b / 32] |= (uint32_t)1 << b % 32;
}

static void add_text(uint32_t bits[8], const char *bytes) {
    for (; *bytes; bytes++) add_range(bits, (uint8_t)*bytes, (uint8_t)*bytes);
}

static void add_dfa(uint32_t bits[8], const struct dfa *d, uint32_t state) {
    for (int b = 0; b < 256; b++)
        if (dfa_step(d, state, (uint8_t)b)) add_range(bits, b, b);
}

/* Without other names, the bytes that keys go on with; an escape of a key's byte begins with a backslash. */
static void add_name_bytes(const struct gram_machine *m, const struct node *n, uint32_t bits[8]) {
    const struct object_progress *p = records_get(&m->objects, n->a);
    const struct prog_trie_node *trie = m->g->objects[p->shape].trie;
    if (n->c || n->d || !n->b) {
        add_range(bits, 0x20, 0xFF);
        return;
    }
    add_text(bits, "\"\\");
    for (uint32_t child = trie[n->b - 1].child; child; child = trie[child].sibling) add_range(bits, trie[child].byte, trie[child].byte);
}

void machine_first_bytes(const struct gram_machine *m, uint32_t state, uint32_t bits[8]) {
    const struct gram *g = m->g;
    uint32_t n_nodes;
    const uint32_t *ids = lists_get(&m->states, state, &n_nodes);
    memset(bits, 0, 8 * sizeof *bits);
    for (uint32_t i = 0; i < n_nodes; i++) {
        const struct node *n = machine_node(m, ids[i]);
        switch (node_kind(n)) {
        case NODE_END: add_text(bits, node_phase(n) == END_SPACED ? " \t\n\r" : ""); break;
        case NODE_VALUE:
            add_text(bits, node_phase(n) == VALUE_SPACED ? " \t\n\r\"{[" : "\"{[");
            add_dfa(bits, prog_dfa(g, g->goals[n->a].raw), prog_dfa(g, g->goals[n->a].raw)->start);
            break;
        case NODE_RAW: add_dfa(bits, prog_dfa(g, n->a), n->b); break;
        case NODE_STRING: add_range(bits, 0x20, 0xFF); break;
        case NODE_KEY: add_name_bytes(m, n, bits); break;
        case NODE_COLON: add_text(bits, " \t\n\r:"); break;
        case NODE_OBJECT: add_text(bits, " \t\n\r\",}"); break;
        case NODE_ARRAY: add_text(bits, " \t\n\r,]"); break;
        case NODE_RULE:
            for (uint32_t k = 0; k < g->states[n->a].n; k++) {
                const struct prog_edge *e = &g->edges[g->states[n->a].first + k];
                if (e->kind == EDGE_RANGE) add_range(bits, e->lo, e->hi);
            }
        }
    }
}

uint32_t machine_state_of(struct gram_machine *m, const struct node *n) {
    uint32_t id = gram_records_put(&m->nodes, n);
    return state_put(m, &id, 1);
}

uint32_t machine_state_of_ids(struct gram_machine *m, uint32_t *ids, uint32_t n) {
    return state_put(m, ids, n);
}

uint32_t machine_emitted_state(struct gram_machine *m) {
    return m->n_emitted ? state_of_emitted(m) : 0;
}

uint32_t machine_behind(struct gram_machine *m, const struct node *n) {
    machine_finish(m, n->up, WORD_NONE);
    return state_of_emitted(m);
}

/* ---- life -------------------------------------------------------------------------------------------------------------- */

static void put_first_words(struct gram_machine *m) {
    for (uint32_t i = 0; i < N_WORDS; i++) {
        struct word w = {.byte = 256 + i};
        gram_records_put(&m->words, &w);
    }
    struct wordset none = {0};
    gram_records_put(&m->wordsets, &none);
}

static void emit_root(struct gram_machine *m) {
    bool is_spaced = m->g->root_kind == ROOT_GOAL && m->g->options.outer_space;
    struct node end = {.tag = node_tag(NODE_END, is_spaced ? END_SPACED : END_BARE)};
    struct node n = {.a = m->g->root, .up = machine_up_of(m, &end)};
    if (m->g->root_kind == ROOT_RULE) n.tag = node_tag(NODE_RULE, 0);
    else n.tag = node_tag(NODE_VALUE, is_spaced ? VALUE_SPACED : VALUE_BARE);
    machine_emit(m, &n);
}

struct gram_machine *gram_machine_create(const struct gram *g, const struct gram_vocab *v, const int32_t *eos, size_t n_eos) {
    struct gram_machine *m = mem_alloc(sizeof *m);
    m->g = g;
    m->v = v;
    m->nodes.size = sizeof(struct node);
    m->objects.size = sizeof(struct object_progress);
    m->arrays.size = sizeof(struct array_progress);
    m->words.size = sizeof(struct word);
    m->wordsets.size = sizeof(struct wordset);
    m->eos = mem_alloc((n_eos + 1) * sizeof *m->eos);
    if (n_eos) memcpy(m->eos, eos, n_eos * sizeof *eos);
    m->n_eos = n_eos;
    gram_lists_put(&m->ups, NULL, 0);
    gram_lists_put(&m->seen, NULL, 0);
    put_first_words(m);
    state_put(m, NULL, 0); /* the dead state */
    emit_root(m);
    m->start = state_of_emitted(m);
    if (v) m->masks = mask_cache_create(m);
    return m;
}

void gram_machine_destroy(struct gram_machine *m) {
    if (!m) return;
    for (uint32_t i = 0; i < m->n_info; i++) mem_free(m->info[i].row);
    mask_cache_destroy(m->masks);
    gram_records_free(&m->nodes);
    gram_records_free(&m->objects);
    gram_records_free(&m->arrays);
    gram_records_free(&m->words);
    gram_records_free(&m->wordsets);
    gram_lists_free(&m->ups);
    gram_lists_free(&m->states);
    gram_lists_free(&m->seen);
    mem_free(m->info);
    mem_free(m->emitted);
    mem_free(m->emitted_slots);
    mem_free(m->eos);
    mem_free(m);
}

size_t gram_machine_bytes(const struct gram_machine *m) {
    return gram_records_bytes(&m->nodes) + gram_records_bytes(&m->objects) + gram_records_bytes(&m->arrays) +
           gram_records_bytes(&m->words) + gram_records_bytes(&m->wordsets) + gram_lists_bytes(&m->ups) + gram_lists_bytes(&m->states) +
           gram_lists_bytes(&m->seen) + m->info_capacity * sizeof *m->info + m->n_rows * 256 * sizeof(uint32_t) +
           mask_cache_bytes(m->masks);
}
