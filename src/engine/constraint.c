/* Constraints that are compiled once: by what they were made from, the last ones are kept. */
#include "engine/engine_internal.h"

#include "base/hash.h"

enum { KEPT_MAX = 32, MACHINE_BYTES_MAX = 64 << 20 };

/* ---- the vocabulary --------------------------------------------------------------------------------------------------- */

/* Tokens that are markers of the model's format: they are meant as tokens. */
static size_t find_markers(const struct engine *e, int32_t *out) {
    size_t n = 0;
    for (size_t id = 0; id < tok_vocab_size(e->tok); id++) {
        struct str text = tok_token_text(e->tok, (int32_t)id);
        if (text.p && output_uses_token(e->format, e->reasoning, text)) out[n++] = (int32_t)id;
    }
    return n;
}

static void mark_spaces(struct engine *e) {
    e->space_bits = arena_new(&e->vocab_arena, uint32_t, gram_mask_words(e->vocab));
    for (size_t id = 0; id < tok_vocab_size(e->tok); id++) {
        struct str bytes = tok_is_special(e->tok, (int32_t)id) ? (struct str){0} : tok_token_bytes(e->tok, (int32_t)id);
        if (bytes.n && str_trim(bytes).n == 0) e->space_bits[id / 32] |= UINT32_C(1) << id % 32;
    }
}

/* Made when it is first needed. */
static int make_vocab(struct engine *e, struct err *err) {
    if (e->vocab) return ERR_OK;
    int32_t *markers = mem_alloc((tok_vocab_size(e->tok) + 1) * sizeof *markers);
    size_t n = find_markers(e, markers);
    e->vocab = gram_vocab_create(e->tok, (size_t)e->runner.model->spec.vocab, markers, n, err);
    mem_free(markers);
    if (!e->vocab) return ERR_EMEMORY;
    mark_spaces(e);
    return ERR_OK;
}

/* ---- sharing ---------------------------------------------------------------------------------------------------------- */

static uint64_t hash_str(struct str s) {
    return hash_bytes(s.p, s.n, hash_seed());
}

static uint64_t key_of(const struct constraint_source *s) {
    uint64_t key = hash_pair(hash_str(s->grammar.text), (uint64_t)s->grammar.kind << 2 | (uint64_t)s->at_once << 1 | s->then_free);
    key = hash_pair(key, hash_str(s->trigger));
    for (size_t i = 0; i < s->grammar.n_schemas; i++) {
        const struct gram_schema *g = &s->grammar.schemas[i];
        key = hash_pair(key, hash_str(g->name));
        key = hash_pair(key, hash_str(g->text));
        key = hash_pair(key, hash_pair(hash_str(g->without), g->is_bare));
    }
    return key;
}

void constraint_hold(struct constraint *c) {
    os_mutex_lock(c->lock);
    c->n_holders++;
    os_mutex_unlock(c->lock);
}

void constraint_release(struct constraint *c) {
    os_mutex_lock(c->lock);
    bool is_last = --c->n_holders == 0;
    os_mutex_unlock(c->lock);
    if (!is_last) return;
    gram_machine_destroy(c->machine);
    gram_destroy(c->grammar);
    os_mutex_destroy(c->lock);
    arena_free(&c->arena);
    mem_free(c);
}

/* With the lock of all held. The one that was used last comes first; what has grown large is not handed out again. */
static struct constraint *find_kept(struct engine *e, uint64_t key) {
    for (int32_t i = 0; i < e->n_constraints; i++) {
        struct constraint *c = e->constraints[i];
        if (c->key != key) continue;
        os_mutex_lock(c->lock);
        bool is_large = gram_machine_bytes(c->machine) > MACHINE_BYTES_MAX;
        os_mutex_unlock(c->lock);
        memmove(&e->constraints[1], &e->constraints[0], (size_t)i * sizeof c);
        e->constraints[0] = c;
        if (!is_large) {
            constraint_hold(c);
            return c;
        }
        memmove(&e->constraints[0], &e->constraints[1], (size_t)(--e->n_constraints) * sizeof c);
        constraint_release(c);
        return NULL;
    }
    return NULL;
}

/* With the lock of all held. */
static void keep(struct engine *e, struct constraint *c) {
    if (!e->constraints) e->constraints = arena_new(&e->vocab_arena, struct constraint *, KEPT_MAX);
    if (e->n_constraints == KEPT_MAX) constraint_release(e->constraints[--e->n_constraints]);
    memmove(&e->constraints[1], &e->constraints[0], (size_t)e->n_constraints * sizeof c);
    e->constraints[0] = c;
    e->n_constraints++;
    constraint_hold(c);
}

static struct constraint *create(struct engine *e, const struct constraint_source *s, uint64_t key, struct gram *g) {
    struct constraint *c = mem_alloc(sizeof *c);
    c->key = key;
    c->grammar = g;
    c->lock = os_mutex_create();
    c->n_holders = 1;
    c->machine = gram_machine_create(g, e->vocab, e->options.eos, (size_t)e->options.n_eos);
    c->trigger = str_copy(&c->arena, s->trigger);
    c->then_free = s->then_free;
    return c;
}

/* Two threads may compile the same one at once; then both are right. */
int constraint_open(struct engine *e, const struct constraint_source *s, struct sb *warnings, struct constraint **out, struct err *err) {
    struct gram_options options = gram_defaults();
    struct gram *g;
    uint64_t key = key_of(s);
    if (!e->tok) return err_set(err, ERR_EARG, "there is no tokenizer, so that no grammar can be held");
    os_mutex_lock(e->constraints_lock);
    int code = make_vocab(e, err);
    *out = code ? NULL : find_kept(e, key);
    os_mutex_unlock(e->constraints_lock);
    if (code || *out) return code;
    TRY(gram_compile(&s->grammar, &options, warnings, &g, err));
    os_mutex_lock(e->constraints_lock);
    *out = create(e, s, key, g);
    keep(e, *out);
    os_mutex_unlock(e->constraints_lock);
    return ERR_OK;
}

int engine_prepare_constraint(struct engine *e, const struct constraint_source *s, struct sb *warnings, struct err *err) {
    struct constraint *c;
    TRY(constraint_open(e, s, warnings, &c, err));
    constraint_release(c);
    return ERR_OK;
}

void constraint_free_all(struct engine *e) {
    while (e->n_constraints) constraint_release(e->constraints[--e->n_constraints]);
    gram_vocab_destroy(e->vocab);
    arena_free(&e->vocab_arena);
    os_mutex_destroy(e->constraints_lock);
}
