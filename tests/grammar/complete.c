/* A state is a set of places, and each of them can be completed by itself. So the search goes on with the one place that owes least (members
 * that must still come, items), closes what it can, and writes the shortest of what it must. What it finds is given to the match that was asked. */
#include "complete.h"

#include "base/bits.h"
#include "base/hash.h"
#include "text/grammar/machine.h"

enum { MAX_REACHED = 1 << 11, N_SLOTS = 4 * MAX_REACHED, MAX_ALIKE = 8, MAX_REST_BYTES = 20000, MAX_TRIES = 4, MAX_PARTS = 400 };

/* ---- what is owed ------------------------------------------------------------------------------------------------------ */

static uint32_t object_owes(const struct gram_machine *m, uint32_t progress) {
    const struct object_progress *p = records_get(&m->objects, progress);
    uint32_t min = m->g->objects[p->shape].min, few = p->n_members < min ? min - p->n_members : 0;
    return p->n_required + (uint32_t)bits_count(p->pending) + few;
}

static uint32_t array_owes(const struct gram_machine *m, uint32_t progress) {
    const struct array_progress *p = records_get(&m->arrays, progress);
    const struct prog_array *a = &m->g->arrays[p->shape];
    uint32_t owed = p->index < a->min ? a->min - p->index : 0;
    for (uint32_t i = 0; i < a->n_needs; i++) owed += p->met[i] < a->need_min[i] ? a->need_min[i] - p->met[i] : 0;
    return owed;
}

static uint32_t node_owes(const struct gram_machine *m, const struct node *n);

/* The least that is owed behind a node. */
static uint32_t up_owes(const struct gram_machine *m, uint32_t up) {
    uint32_t n, least = UINT32_MAX;
    const uint32_t *ids = lists_get(&m->ups, up, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t owed = node_owes(m, machine_node(m, ids[i]));
        least = owed < least ? owed : least;
    }
    return n ? least : 0;
}

/* An open container owes one more than a closed one, and so does a scalar that goes on. */
static uint32_t node_owes(const struct gram_machine *m, const struct node *n) {
    uint32_t owed = node_kind(n) != NODE_END;
    if (node_kind(n) == NODE_OBJECT || node_kind(n) == NODE_KEY) owed += object_owes(m, n->a);
    if (node_kind(n) == NODE_ARRAY) owed += array_owes(m, n->a);
    return owed + up_owes(m, n->up);
}

/* Behind a bracket the items stand beside their list, which can only be closed there. */
static bool is_stuck(const struct gram_machine *m, const struct node *n) {
    return node_kind(n) == NODE_ARRAY && node_phase(n) == ARRAY_FIRST && !gram_array_may_end(m->g, records_get(&m->arrays, n->a));
}

/* The node of a state that owes least; its number in *out_id. */
static uint32_t least_owed(const struct gram_machine *m, uint32_t state, uint32_t *out_id) {
    uint32_t n, least = UINT32_MAX;
    const uint32_t *ids = lists_get(&m->states, state, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t owed = node_owes(m, machine_node(m, ids[i]));
        if (owed >= least || is_stuck(m, machine_node(m, ids[i]))) continue;
        least = owed;
        *out_id = ids[i];
    }
    return least;
}

/* ---- inside strings, names and numbers ---------------------------------------------------------------------------------- */

struct reached {
    uint32_t state, before;
    char byte;
};

struct search {
    struct gram_machine *m;
    struct reached list[MAX_REACHED];
    uint32_t n;
    struct {
        uint64_t key;
        uint32_t n;
    } slots[N_SLOTS]; /* how often something alike was reached */
};

/* Names and items that must differ have a state for each text: those are alike whose automata are at the same place. */
static uint64_t likeness(const struct gram_machine *m, uint32_t state) {
    uint32_t n;
    const uint32_t *ids = lists_get(&m->states, state, &n);
    struct node node = *machine_node(m, ids[0]);
    if (n != 1 || node.e == WORD_NONE) return hash_mix(state) | 1;
    node.e = 0;
    return hash_bytes(&node, sizeof node, 7) | 1;
}

static void reach(struct search *s, uint32_t state, uint32_t before, char byte) {
    uint64_t key = likeness(s->m, state);
    uint32_t n, at = (uint32_t)(key >> 8) % N_SLOTS;
    const uint32_t *ids = lists_get(&s->m->states, state, &n);
    uint32_t most = n == 1 && machine_node(s->m, ids[0])->e != WORD_NONE ? MAX_ALIKE : 1;
    while (s->slots[at].key && s->slots[at].key != key) at = (at + 1) % N_SLOTS;
    s->slots[at].key = key;
    if (s->n == MAX_REACHED || s->slots[at].n++ >= most) return;
    s->list[s->n++] = (struct reached){state, before, byte};
}

/* Inside an escape, where quotes and backslashes are letters. */
static bool in_escape(const struct gram_machine *m, uint32_t state, uint32_t kind) {
    uint32_t n;
    return kind != NODE_RAW && machine_node(m, lists_get(&m->states, state, &n)[0])->d;
}

/* The state behind the end of what began, where it may end at this place; 0: it may not. */
static uint32_t state_behind(struct gram_machine *m, uint32_t state, uint32_t kind) {
    uint32_t n, k = 0, others[64];
    if (in_escape(m, state, kind)) return 0;
    if (kind != NODE_RAW) return machine_step(m, state, '"');
    const uint32_t *ids = lists_get(&m->states, state, &n);
    for (uint32_t i = 0; i < n && k < 64; i++)
        if (node_kind(machine_node(m, ids[i])) != NODE_RAW) others[k++] = ids[i];
    return k ? machine_state_of_ids(m, others, k) : 0;
}

/* Breadth first to where it may end, without further escapes: the first end where less is owed than before, else the best of all; `skip` such ends
 * are passed over. UINT32_MAX: none. */
static uint32_t search_end(struct search *s, uint32_t kind, uint32_t owed, uint32_t skip) {
    uint32_t best = UINT32_MAX, least = UINT32_MAX, id;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t behind = i || kind != NODE_RAW ? state_behind(s->m, s->list[i].state, kind) : 0;
        if (behind) {
            uint32_t now = least_owed(s->m, behind, &id);
            if (now < least) best = i;
            if (now < least) least = now;
            if ((now < owed || kind != NODE_KEY) && !skip--) return i;
        }
        bool is_escape = in_escape(s->m, s->list[i].state, kind);
        for (int b = 0x20; b < 256; b++) {
            uint32_t next = !is_escape && (b == '"' || b == '\\') ? 0 : machine_step(s->m, s->list[i].state, (uint8_t)b);
            if (next) reach(s, next, i, (char)b);
        }
    }
    return best;
}

/* Writes what ends the string, name or number; the state behind it, 0: no end was found. */
static uint32_t end_part(struct gram_machine *m, uint32_t state, uint32_t kind, uint32_t owed, uint32_t skip, struct sb *rest) {
    struct search *s = mem_alloc(sizeof *s);
    size_t from = rest->n;
    s->m = m;
    reach(s, state, 0, 0);
    uint32_t end = search_end(s, kind, owed, skip), behind = end == UINT32_MAX ? 0 : state_behind(m, s->list[end].state, kind);
    for (uint32_t i = end; behind && i; i = s->list[i].before) sb_putc(rest, s->list[i].byte);
    for (size_t i = from, k = rest->n; i + 1 < k; i++, k--) {
        char c = rest->p[i];
        rest->p[i] = rest->p[k - 1];
        rest->p[k - 1] = c;
    }
    if (behind && kind != NODE_RAW) sb_putc(rest, '"');
    mem_free(s);
    return behind;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------- */

/* What closes first, then what is short. */
static uint32_t write_byte(struct gram_machine *m, uint32_t state, struct sb *rest) {
    static const char order[] = "}],:ntf0123456789-.eE+\"[{";
    uint32_t next = 0;
    for (const char *p = order; *p && !next; p++)
        if ((next = machine_step(m, state, (uint8_t)*p))) sb_putc(rest, *p);
    for (int b = 255; b >= 0x20 && !next; b--)
        if ((next = machine_step(m, state, (uint8_t)b))) sb_putc(rest, (char)b);
    return next;
}

static bool complete(struct gram_machine *m, uint32_t state, uint32_t skip, struct sb *rest) {
    for (uint32_t n_parts = 0; state && rest->n < MAX_REST_BYTES && n_parts < MAX_PARTS;) {
        uint32_t id = 0, owed;
        if (machine_may_end(m, state)) return true;
        owed = least_owed(m, state, &id);
        state = machine_state_of_ids(m, &id, 1);
        uint32_t kind = node_kind(machine_node(m, id));
        if (kind != NODE_STRING && kind != NODE_KEY && kind != NODE_RAW) {
            state = write_byte(m, state, rest);
            continue;
        }
        state = end_part(m, state, kind, owed, skip, rest);
        n_parts++;
    }
    return false;
}

bool complete_text(const struct gram_match *from, struct sb *rest) {
    bool is_done = false;
    for (uint32_t skip = 0; skip < MAX_TRIES && !is_done; skip++) {
        struct gram_match m;
        sb_clear(rest);
        if (!complete(from->m, from->state, skip, rest)) continue;
        gram_match_copy(&m, from);
        is_done = gram_match_bytes(&m, sb_str(rest)) == rest->n && gram_match_may_end(&m);
        gram_match_free(&m);
    }
    return is_done;
}
