/* Steps of values: scalars, objects, arrays, and the white space between their parts. */
#include "text/grammar/machine.h"

bool gram_is_space_byte(uint8_t byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

void gram_space_step(struct gram_machine *m, const struct node *n) {
    uint8_t most = m->g->options.space;
    struct node next = *n;
    if (most != GRAM_SPACE_ANY) {
        if (node_spaces(n) >= most) return;
        next.tag += 1 << 16;
    }
    machine_emit(m, &next);
}

/* ---- scalars ----------------------------------------------------------------------------------------------------------- */

void gram_value_close(struct gram_machine *m, const struct node *n) {
    const struct dfa *d = prog_dfa(m->g, m->g->goals[n->a].raw);
    if (d->labels[d->start]) machine_finish(m, n->up, WORD_NONE);
}

/* A scalar stands in a state of its automaton: it may end there, go on, or both. */
static void raw_emit(struct gram_machine *m, const struct node *n) {
    const struct dfa *d = prog_dfa(m->g, n->a);
    uint32_t left = PROG_MANY, seen = 0; /* texts that can still come, and those of them that were there already */
    if (n->f) {
        left = m->g->counts[n->a][n->b];
        seen = gram_wordset_count(m, n->f, n->e);
    }
    if (left <= seen) return;
    if (d->labels[n->b] && !(n->f && gram_wordset_has(m, n->f, n->e))) machine_finish(m, n->up, n->e);
    for (uint32_t c = 0; c < d->n_classes; c++)
        if (d->next[(size_t)n->b * d->n_classes + c]) {
            machine_emit(m, n);
            return;
        }
}

void gram_raw_node_step(struct gram_machine *m, const struct node *n, uint8_t byte) {
    struct node next = *n;
    next.b = dfa_step(prog_dfa(m->g, n->a), n->b, byte);
    if (!next.b) return;
    next.e = gram_word_add(m, n->e, byte);
    raw_emit(m, &next);
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

static void open_string(struct gram_machine *m, const struct node *n, bool is_unique) {
    const struct prog_goal *goal = &m->g->goals[n->a];
    for (uint32_t i = 0; i < goal->n_strings; i++) {
        const struct prog_string *s = &m->g->strings[goal->strings[i]];
        struct node next = {
            .tag = node_tag(NODE_STRING, 0), .a = goal->strings[i], .b = prog_dfa(m->g, s->dfa)->start, .f = n->f, .up = n->up};
        next.e = is_unique ? WORD_STRING : WORD_NONE;
        if (n->f && m->g->counts[s->dfa][next.b] <= gram_wordset_count(m, n->f, WORD_STRING)) continue;
        machine_emit(m, &next);
    }
}

static void open_containers(struct gram_machine *m, const struct node *n, uint8_t byte) {
    const struct prog_goal *goal = &m->g->goals[n->a];
    for (uint32_t i = 0; i < goal->n_objects && byte == '{'; i++) {
        struct object_progress p = gram_object_begin(m->g, goal->objects[i]);
        struct node next = {.tag = node_tag(NODE_OBJECT, OBJECT_FIRST), .a = gram_records_put(&m->objects, &p), .up = n->up};
        machine_emit(m, &next);
    }
    for (uint32_t i = 0; i < goal->n_arrays && byte == '['; i++) {
        struct array_progress p = gram_array_begin(goal->arrays[i]);
        struct node next = {.tag = node_tag(NODE_ARRAY, ARRAY_FIRST), .a = gram_records_put(&m->arrays, &p), .up = n->up};
        machine_emit(m, &next);
        gram_array_emit_items(m, &p, n->up);
    }
}

/* Also for NODE_COLON, which stands before the colon of a value. */
void gram_value_node_step(struct gram_machine *m, const struct node *n, uint8_t byte) {
    if (gram_is_space_byte(byte) && (node_kind(n) == NODE_COLON || node_phase(n) == VALUE_SPACED)) gram_space_step(m, n);
    if (node_kind(n) == NODE_COLON) {
        struct node next = {.tag = node_tag(NODE_VALUE, VALUE_SPACED), .a = n->a, .up = n->up};
        if (byte == ':') machine_emit(m, &next);
        return;
    }
    const struct prog_goal *goal = &m->g->goals[n->a];
    bool is_unique = n->e != WORD_NONE;
    if (byte == '"') open_string(m, n, is_unique);
    if (byte == '{' || byte == '[') open_containers(m, n, byte);
    const struct dfa *d = prog_dfa(m->g, goal->raw);
    struct node raw = {.tag = node_tag(NODE_RAW, 0), .a = goal->raw, .b = dfa_step(d, d->start, byte), .f = n->f, .up = n->up};
    if (!raw.b) return;
    if (is_unique) raw.e = gram_word_add(m, WORD_RAW, byte);
    raw_emit(m, &raw);
}

/* ---- objects ----------------------------------------------------------------------------------------------------------- */

void gram_object_node_step(struct gram_machine *m, const struct node *n, uint8_t byte) {
    struct object_progress p = *(const struct object_progress *)records_get(&m->objects, n->a);
    uint32_t phase = node_phase(n);
    if (gram_is_space_byte(byte)) {
        gram_space_step(m, n);
    } else if (byte == '}') {
        if (phase != OBJECT_NEXT && gram_object_may_end(m->g, &p)) machine_finish(m, n->up, WORD_NONE);
    } else if ((byte == '"' && phase != OBJECT_AFTER) || (byte == ',' && phase == OBJECT_AFTER)) {
        struct name_place at = gram_name_begin(m, &p);
        if (!gram_name_fits(m, &p, at)) return;
        struct node next = {.tag = node_tag(NODE_OBJECT, OBJECT_NEXT), .a = n->a, .up = n->up};
        if (byte == '"')
            next = (struct node){.tag = node_tag(NODE_KEY, 0), .a = n->a, .b = at.trie, .c = at.extra, .e = at.word, .up = n->up};
        machine_emit(m, &next);
    }
}

/* ---- arrays ------------------------------------------------------------------------------------------------------------ */

/* Some value of the goal is not in the set yet. */
static bool has_fresh_value(const struct gram_machine *m, uint32_t goal, uint32_t set) {
    return m->g->goals[goal].n_values == PROG_MANY || m->g->goals[goal].n_values > gram_wordset_size(m, set);
}

static bool takes_item(const struct gram_machine *m, const struct array_progress *p, const struct prog_choice *c,
                       struct array_progress *next) {
    *next = gram_array_after_item(m->g, p, c->meets);
    return m->g->goals[c->goal].is_possible && gram_array_fits(m->g, next) && has_fresh_value(m, c->goal, p->items);
}

void gram_array_emit_items(struct gram_machine *m, const struct array_progress *p, uint32_t up) {
    const struct prog_choices *choices = gram_array_choices(m->g, p);
    for (uint32_t i = 0; i < choices->n; i++) {
        struct array_progress next;
        if (!takes_item(m, p, &choices->p[i], &next)) continue;
        struct node after = {.tag = node_tag(NODE_ARRAY, ARRAY_AFTER), .a = gram_records_put(&m->arrays, &next), .up = up};
        struct node value = {.tag = node_tag(NODE_VALUE, VALUE_SPACED), .a = choices->p[i].goal, .f = p->items};
        value.e = m->g->arrays[p->shape].is_unique ? WORD_STRING : WORD_NONE;
        value.up = machine_up_of(m, &after);
        machine_emit(m, &value);
    }
}

void gram_array_node_step(struct gram_machine *m, const struct node *n, uint8_t byte) {
    struct array_progress p = *(const struct array_progress *)records_get(&m->arrays, n->a);
    if (gram_is_space_byte(byte)) gram_space_step(m, n);
    else if (byte == ']' && gram_array_may_end(m->g, &p)) machine_finish(m, n->up, WORD_NONE);
    else if (byte == ',' && node_phase(n) == ARRAY_AFTER) gram_array_emit_items(m, &p, n->up);
}
