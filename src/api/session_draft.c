/* A draft model beside a session's own: opened on the same device, and its vocabulary laid over the model's. */
#include "api/session_internal.h"

/* Tokens that a tokenizer knows: a model may have rows for more. */
static int32_t n_known(const struct session *s) {
    int32_t n = (int32_t)tok_vocab_size(s->tok);
    return n < s->model.spec.vocab ? n : s->model.spec.vocab;
}

/* Each token of one vocabulary in the other, by how it is written; -1: it is not there. */
static int32_t *lay_over(struct arena *a, const struct session *from, const struct session *to) {
    int32_t n = n_known(from), n_to = n_known(to), *map = arena_new(a, int32_t, from->model.spec.vocab);
    for (int32_t i = 0; i < from->model.spec.vocab; i++) {
        struct str text = i < n ? tok_token_text(from->tok, i) : (struct str){0};
        map[i] = text.n ? tok_id_of(to->tok, text) : -1;
        if (map[i] >= n_to) map[i] = -1;
    }
    return map;
}

/* Most tokens must have a counterpart, or the draft model would lose the thread at once. */
static int map_tokens(struct session *s, struct draft_map *out, struct err *err) {
    struct session *d = s->draft;
    TRY(session_text_load(s, err));
    TRY(session_text_load(d, err));
    int32_t *to_draft = lay_over(&s->arena, s, d), *to_target = lay_over(&s->arena, d, s), n = n_known(s), n_missing = 0, first = -1;
    bool same = s->model.spec.vocab == d->model.spec.vocab;
    for (int32_t i = 0; i < n; i++) {
        if (to_draft[i] < 0 && tok_token_text(s->tok, i).n) n_missing++, first = first < 0 ? i : first;
        same &= to_draft[i] == i;
    }
    if (n_missing > n / 20) {
        struct str text = tok_token_text(s->tok, first);
        return err_set(
            err, ERR_EUNSUPPORTED,
            "--draft-model: %d of the model's %d tokens are not in the vocabulary of %s, such as \"%.*s\"; take a model of the same family",
            n_missing, n, d->name, text.n > 40 ? 40 : (int)text.n, text.p);
    }
    if (!same) out->to_draft = to_draft, out->to_target = to_target;
    return ERR_OK;
}

int session_draft_open(struct session *s, struct err *err) {
    const struct runner_limits *l = engine_limits(s->engine);
    struct session_options o = {.model = s->options.draft_model,
                                .shared_device = s->backend->device,
                                .precision = s->options.precision,
                                .context = l->context,
                                .n_seqs = l->seqs,
                                .force = s->options.force};
    struct draft_map map = {0};
    if (session_open(&o, &s->draft, err)) return err_prefix(err, "--draft-model");
    TRY(map_tokens(s, &map, err));
    map.cost = session_token_bytes(s->draft, 1, 64) / session_token_bytes(s, 1, 64);
    if (engine_set_draft(s->engine, s->draft->engine, &map, err)) return err_prefix(err, "--draft-model");
    return ERR_OK;
}
