/* Matches: one text on its way through a machine. */
#include "text/grammar/mask.h"
#include "text/grammar/vocab_trie.h"

void gram_match_init(struct gram_match *t, struct gram_machine *m) {
    *t = (struct gram_match){.m = m, .state = m->start};
}

void gram_match_free(struct gram_match *t) {
    mem_free(t->history);
    *t = (struct gram_match){0};
}

void gram_match_copy(struct gram_match *to, const struct gram_match *from) {
    *to = *from;
    to->capacity = from->n_history;
    to->history = from->n_history ? mem_alloc(from->n_history * sizeof *to->history) : NULL;
    if (from->n_history) memcpy(to->history, from->history, from->n_history * sizeof *to->history);
}

bool gram_match_may_end(const struct gram_match *t) {
    return t->has_ended || machine_may_end(t->m, t->state);
}

bool gram_match_must_end(struct gram_match *t) {
    uint32_t maybe[8];
    if (t->has_ended) return true;
    machine_first_bytes(t->m, t->state, maybe);
    for (int b = 255; b >= 0; b--) /* letters before white space, which makes more states */
        if (maybe[b / 32] >> b % 32 & 1 && machine_step(t->m, t->state, (uint8_t)b)) return false;
    return true;
}

static void remember(struct gram_match *t, uint32_t next) {
    if (t->n_history == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 64;
        t->history = mem_realloc(t->history, t->capacity * sizeof *t->history);
    }
    t->history[t->n_history++] = t->state;
    t->state = next;
}

size_t gram_match_bytes(struct gram_match *t, struct str bytes) {
    uint32_t s = t->state;
    if (t->has_ended) return 0;
    for (size_t i = 0; i < bytes.n; i++) {
        s = machine_step(t->m, s, (uint8_t)bytes.p[i]);
        if (!s) return i;
    }
    remember(t, s);
    return bytes.n;
}

static bool is_eos(const struct gram_machine *m, int32_t token) {
    for (size_t i = 0; i < m->n_eos; i++)
        if (m->eos[i] == token) return true;
    return false;
}

bool gram_match_token(struct gram_match *t, int32_t token) {
    const struct gram_vocab *v = t->m->v;
    if (t->has_ended || token < 0 || (size_t)token >= v->n_tokens) return false;
    struct str bytes = v->bytes[token];
    if (bytes.n && gram_match_bytes(t, bytes) == bytes.n) return true; /* an end token may be a marker of the grammar, too */
    if (!is_eos(t->m, token) || !gram_match_may_end(t)) return false;
    remember(t, t->state);
    t->has_ended = true;
    return true;
}

void gram_match_back(struct gram_match *t, size_t n) {
    for (; n && t->n_history; n--) {
        t->state = t->history[--t->n_history];
        t->has_ended = false;
    }
}

void gram_match_next_bytes(struct gram_match *t, uint32_t bits[8]) {
    uint32_t maybe[8];
    memset(bits, 0, 8 * sizeof *bits);
    if (t->has_ended) return;
    machine_first_bytes(t->m, t->state, maybe);
    for (int b = 0; b < 256; b++)
        if (maybe[b / 32] >> b % 32 & 1 && machine_step(t->m, t->state, (uint8_t)b)) bits[b / 32] |= (uint32_t)1 << b % 32;
}

/* The only byte that a state takes; -1: it takes none, or several. */
static int only_byte(struct gram_machine *m, uint32_t state) {
    uint32_t maybe[8];
    int only = -1;
    machine_first_bytes(m, state, maybe);
    for (int b = 0; b < 256; b++) {
        if (!(maybe[b / 32] >> b % 32 & 1) || !machine_step(m, state, (uint8_t)b)) continue;
        if (only >= 0) return -1;
        only = b;
    }
    return only;
}

enum { MAX_FORCED = 4096 };

void gram_match_forced(struct gram_match *t, struct sb *out) {
    uint32_t s = t->state;
    for (int n = 0, b; n < MAX_FORCED && !t->has_ended && !machine_may_end(t->m, s) && (b = only_byte(t->m, s)) >= 0; n++) {
        sb_putc(out, (char)b);
        s = machine_step(t->m, s, (uint8_t)b);
    }
}

void gram_match_mask(struct gram_match *t, uint32_t *bits) {
    if (t->has_ended) memset(bits, 0, t->m->v->n_words * sizeof *bits);
    else mask_write(t->m, t->state, bits);
}
