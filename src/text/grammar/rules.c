/* Rules to states: closures over what takes no byte, then the checks that make the machine's promises hold. */
#include "text/grammar/rules.h"

uint32_t rules_find(struct rule_set *r, struct str name) {
    bool is_new;
    struct map_entry *e = map_put(&r->by_name, name, &is_new);
    if (is_new) {
        if (r->n == r->capacity) {
            uint32_t capacity = r->capacity ? 2 * r->capacity : 16;
            struct rule *p = arena_new(r->a, struct rule, capacity);
            if (r->n) memcpy(p, r->p, r->n * sizeof *p);
            r->p = p;
            r->capacity = capacity;
        }
        e->value.i = r->n;
        r->p[r->n++].name = name;
    }
    return (uint32_t)e->value.i;
}

struct maker {
    struct gram *g;
    struct arena *a;
    const struct nfa *n;
    uint32_t *state_of; /* NFA state -> program state + 1 */
    uint32_t *nfa_of;   /* and back */
    uint32_t states_capacity, edges_capacity;
    uint32_t *seen, round, *stack;
};

static void put_edge(struct maker *m, struct prog_edge e) {
    struct gram *g = m->g;
    if (g->n_edges == m->edges_capacity) {
        m->edges_capacity = m->edges_capacity ? 2 * m->edges_capacity : 256;
        struct prog_edge *edges = arena_new(&g->a, struct prog_edge, m->edges_capacity);
        if (g->n_edges) memcpy(edges, g->edges, g->n_edges * sizeof *edges);
        g->edges = edges;
    }
    g->edges[g->n_edges++] = e;
}

/* The program's state for a state of the automaton; its edges are made later. */
static uint32_t state_for(struct maker *m, uint32_t nfa_state) {
    struct gram *g = m->g;
    if (m->state_of[nfa_state]) return m->state_of[nfa_state] - 1;
    if (g->n_states == m->states_capacity) {
        m->states_capacity = m->states_capacity ? 2 * m->states_capacity : 128;
        struct prog_state *states = arena_new(&g->a, struct prog_state, m->states_capacity);
        if (g->n_states) memcpy(states, g->states, g->n_states * sizeof *states);
        g->states = states;
    }
    m->nfa_of[g->n_states] = nfa_state;
    m->state_of[nfa_state] = ++g->n_states;
    return g->n_states - 1;
}

/* All edges that a state reaches without a byte. */
static void make_edges(struct maker *m, uint32_t state) {
    uint32_t n_stack = 0;
    m->round++;
    m->g->states[state].first = m->g->n_edges;
    m->stack[n_stack++] = m->nfa_of[state];
    while (n_stack) {
        uint32_t at = m->stack[--n_stack];
        const struct nfa_state *s = &m->n->states[at];
        if (m->seen[at] == m->round) continue;
        m->seen[at] = m->round;
        if (s->kind == NFA_SPLIT) {
            m->stack[n_stack++] = s->out2;
            m->stack[n_stack++] = s->out;
        } else if (s->kind == NFA_ACCEPT) {
            m->g->states[state].is_end = true;
        } else if (s->kind != NFA_RANGE || s->lo <= s->hi) {
            static const uint8_t kinds[] = {[NFA_RANGE] = EDGE_RANGE, [NFA_CALL] = EDGE_CALL, [NFA_VALUE] = EDGE_GOAL};
            uint32_t to = state_for(m, s->out);
            put_edge(m, (struct prog_edge){kinds[s->kind], s->lo, s->hi, s->number, to});
        }
        m->g->pool.work++;
    }
    m->g->states[state].n = m->g->n_edges - m->g->states[state].first;
}

/* ---- what can end, and what can be empty -------------------------------------------------------------------------------- */

/* States from which the rule's end can be reached, and rules whose start is one. */
static bool *find_live(struct gram *g, struct arena *a) {
    bool *live = arena_new(a, bool, g->n_states);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t s = g->n_states; s-- > 0;) {
            bool is = live[s] || g->states[s].is_end;
            for (uint32_t i = 0; i < g->states[s].n && !is; i++) {
                const struct prog_edge *e = &g->edges[g->states[s].first + i];
                is = live[e->to] && (e->kind != EDGE_CALL || live[g->rules[e->number].start]);
            }
            if (is != live[s]) live[s] = changed = true;
        }
    }
    return live;
}

static void drop_dead_edges(struct gram *g, const bool *live) {
    for (uint32_t s = 0; s < g->n_states; s++) {
        struct prog_state *st = &g->states[s];
        uint32_t n = 0;
        for (uint32_t i = 0; i < st->n; i++) {
            struct prog_edge e = g->edges[st->first + i];
            if (!live[e.to] || (e.kind == EDGE_CALL && !live[g->rules[e.number].start])) continue;
            g->edges[st->first + n++] = e;
            if (e.kind == EDGE_RANGE) st->has_range = true;
        }
        st->n = n;
    }
}

static void find_nullable(struct gram *g, struct arena *a) {
    bool *empty = arena_new(a, bool, g->n_states);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t s = g->n_states; s-- > 0;) {
            bool is = empty[s] || g->states[s].is_end;
            for (uint32_t i = 0; i < g->states[s].n && !is; i++) {
                const struct prog_edge *e = &g->edges[g->states[s].first + i];
                is = e->kind == EDGE_CALL && empty[g->rules[e->number].start] && empty[e->to];
            }
            if (is != empty[s]) empty[s] = changed = true;
        }
    }
    for (uint32_t r = 0; r < g->n_rules; r++) g->rules[r].is_nullable = empty[g->rules[r].start];
}

/* ---- left recursion ----------------------------------------------------------------------------------------------------- */

enum visit { NEW, OPEN, DONE };

struct frame {
    uint32_t state, edge;
};

/* Whether a state is reached again without a byte: depth first over calls and over what follows an empty call. */
static bool find_left_recursion(const struct gram *g, struct arena *a) {
    uint8_t *visits = arena_new(a, uint8_t, g->n_states);
    struct frame *stack = arena_new(a, struct frame, (size_t)g->n_states + 1);
    for (uint32_t from = 0; from < g->n_states; from++) {
        uint32_t n = 0;
        if (visits[from] != NEW) continue;
        visits[from] = OPEN;
        stack[n++] = (struct frame){from, 0};
        while (n) {
            struct frame *f = &stack[n - 1];
            const struct prog_state *s = &g->states[f->state];
            if (f->edge == 2 * s->n) {
                visits[f->state] = DONE;
                n--;
                continue;
            }
            const struct prog_edge *e = &g->edges[s->first + f->edge / 2];
            bool is_after = f->edge++ % 2;
            if (e->kind != EDGE_CALL || (is_after && !g->rules[e->number].is_nullable)) continue;
            uint32_t to = is_after ? e->to : g->rules[e->number].start;
            if (visits[to] == OPEN) return true;
            if (visits[to] == NEW) {
                visits[to] = OPEN;
                stack[n++] = (struct frame){to, 0};
            }
        }
    }
    return false;
}

static int check_rules(const struct rule_set *r, struct err *err) {
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->p[i].body) return err_set(err, ERR_EARG, "grammar: there is no rule named %.*s", STR_ARG(str_sub(r->p[i].name, 0, 80)));
    return ERR_OK;
}

int rules_compile(struct gram *g, const struct rule_set *r, uint32_t root, uint32_t max_states, struct err *err) {
    struct nfa n;
    struct arena a = {0};
    int code = check_rules(r, err);
    if (code) return code;
    nfa_init(&n, &a, max_states);
    uint32_t end = nfa_add(&n, (struct nfa_state){.kind = NFA_ACCEPT}), *starts = arena_new(&a, uint32_t, r->n);
    for (uint32_t i = 0; i < r->n && !n.is_over; i++) starts[i] = nfa_build(&n, r->p[i].body, end);
    if (n.is_over) code = err_set(err, ERR_ELIMIT, "grammar: its repetitions make more than %u states", max_states);
    if (!code) {
        struct maker m = {.g = g, .a = &a, .n = &n};
        m.state_of = arena_new(&a, uint32_t, n.n);
        m.nfa_of = arena_new(&a, uint32_t, n.n);
        m.seen = arena_new(&a, uint32_t, n.n);
        m.stack = arena_new(&a, uint32_t, 2 * (size_t)n.n + 2);
        g->rules = arena_new(&g->a, struct prog_rule, r->n);
        g->n_rules = r->n;
        for (uint32_t i = 0; i < r->n; i++) g->rules[i].start = state_for(&m, starts[i]);
        for (uint32_t s = 0; s < g->n_states && g->pool.work < g->pool.max_work; s++) make_edges(&m, s);
        if (g->pool.work >= g->pool.max_work) code = err_set(err, ERR_ELIMIT, "grammar: it takes too much work to compile");
    }
    if (!code) {
        drop_dead_edges(g, find_live(g, &a));
        find_nullable(g, &a);
        if (!find_live(g, &a)[g->rules[root].start]) code = err_set(err, ERR_EARG, "grammar: no text can be completed");
        else if (find_left_recursion(g, &a)) code = err_set(err, ERR_EARG, "grammar: a rule begins with itself (left recursion)");
        g->root_kind = ROOT_RULE;
        g->root = g->rules[root].start;
    }
    arena_free(&a);
    return code;
}
