/* Heads that draft, out of the two layouts in which checkpoints have them. */
#include "model/draft_head.h"

#include "model/mixer.h"

/* ---- names -------------------------------------------------------------------------------------------------------------- */

/* The loader asks for a model of one layer; these are its tensors in the file. In `to`, @ is what stands before `from`, # the number of the layer. */
struct renaming {
    const char *from, *to;
};

static const struct renaming behind_layers[] = {{"layers.0.", "@layers.#."}, {"norm.", "@layers.#.shared_head.norm."}, {NULL, NULL}};
static const struct renaming beside_layers[] = {{"layers.0.enorm.", "mtp.pre_fc_norm_embedding."},
                                                {"layers.0.hnorm.", "mtp.pre_fc_norm_hidden."},
                                                {"layers.0.eh_proj.", "mtp.fc."},
                                                {"layers.0.", "mtp.layers.0."},
                                                {"norm.", "mtp.norm."},
                                                {NULL, NULL}};
static const struct renaming in_folder[] = {{"layers.0.eh_proj.", "fc."},
                                            {"layers.0.hnorm.", "midlayer.hidden_norm."},
                                            {"layers.0.", "midlayer."},
                                            {NULL, NULL}};

struct renamed {
    const struct tensor_store *inner;
    const struct renaming *rules;
    int32_t layer;
    struct arena names;
};

static struct str rename_tensor(struct renamed *r, struct str name) {
    for (const struct renaming *rule = r->rules; rule->from; rule++) {
        size_t at = str_find(name, str_of(rule->from), 0);
        if (at == STR_NONE || (at > 0 && name.p[at - 1] != '.')) continue;
        struct str rest = str_from(name, at + strlen(rule->from));
        const char *number = strchr(rule->to, '#'), *to = rule->to + (rule->to[0] == '@');
        struct str root = rule->to[0] == '@' ? (struct str){name.p, at} : (struct str){0};
        if (!number) return str_fmt(&r->names, "%.*s%s%.*s", STR_ARG(root), to, STR_ARG(rest));
        return str_fmt(&r->names, "%.*s%.*s%d%s%.*s", STR_ARG(root), (int)(number - to), to, r->layer, number + 1, STR_ARG(rest));
    }
    return name;
}

static bool renamed_find(void *user, struct str name, struct tensor_info *out) {
    struct renamed *r = user;
    bool found = r->inner->find(r->inner->user, rename_tensor(r, name), out);
    arena_reset(&r->names);
    return found;
}

static int renamed_read(void *user, const struct tensor_info *t, uint64_t offset, void *dst, size_t n, struct err *err) {
    const struct renamed *r = user;
    return r->inner->read(r->inner->user, t, offset, dst, n, err);
}

/* The path of a matrix, which is a tensor's name without its last part. */
static struct str renamed_shown(void *user, struct arena *a, struct str path) {
    struct renamed *r = user;
    struct str name = rename_tensor(r, str_fmt(&r->names, "%.*s.", STR_ARG(path)));
    name = str_fmt(a, "%.*s", (int)name.n - 1, name.p);
    arena_reset(&r->names);
    return name;
}

static int renamed_format(void *user, struct str path, struct format *out, struct err *err) {
    struct renamed *r = user;
    struct arena a = {0};
    int code = r->inner->format(r->inner->user, renamed_shown(user, &a, path), out, err);
    arena_free(&a);
    return code;
}

/* ---- binding ------------------------------------------------------------------------------------------------------------ */

static int bind_own(struct loader *l, int32_t layer, struct err *err) {
    int64_t hidden = l->spec->hidden;
    if (layer < 0) return ERR_OK;
    TRY(loader_vector(l, ROLE_AHEAD_EMBED_NORM, layer, hidden, true, err));
    TRY(loader_vector(l, ROLE_AHEAD_STATE_NORM, layer, hidden, true, err));
    return loader_matrix(l, ROLE_AHEAD_IN, layer, hidden, 2 * hidden, err);
}

static int bind_folder(struct loader *l, int32_t layer, struct err *err) {
    int64_t hidden = l->spec->hidden;
    if (layer < 0) return ERR_OK;
    TRY(loader_vector(l, ROLE_AHEAD_STATE_NORM, layer, hidden, true, err));
    return loader_matrix(l, ROLE_AHEAD_IN, layer, hidden, STATE_TAPS * hidden, err);
}

/* ---- the pass ----------------------------------------------------------------------------------------------------------- */

static struct tensor states(const struct pass *p, int32_t set) {
    return op_given(p->l, (struct tensor){0}, &(struct given_args){.set = set, .width = p->m->spec.hidden});
}

static struct tensor project(const struct pass *p, struct tensor x) {
    const struct bound *w = &p->m->weights.layers[0][ROLE_AHEAD_IN];
    return op_linear(p->l, x, &(struct linear_args){w->w, w->bias, p->m->spec.wide});
}

static struct tensor enter_own(struct pass *p, struct tensor x) {
    const struct bound *w = p->m->weights.layers[0];
    struct tensor state = pass_norm(p, states(p, 0), &w[ROLE_AHEAD_STATE_NORM]);
    return project(p, op_concat(p->l, pass_norm(p, x, &w[ROLE_AHEAD_EMBED_NORM]), state));
}

/* A row has the states of three layers, or the head's own: the others are 0. */
static struct tensor enter_folder(struct pass *p, struct tensor x) {
    struct tensor three = op_concat(p->l, op_concat(p->l, states(p, 0), states(p, 1)), states(p, 2));
    p->extra = pass_norm(p, x, &p->m->weights.layers[0][ROLE_MIX_NORM]);
    return op_given(p->l, project(p, three), &(struct given_args){.set = STATE_TAPS, .width = p->m->spec.hidden, .adds = 1});
}

/* Attention reads the embedding and the state side by side. */
static struct tensor block_folder(const struct pass *p, struct tensor x) {
    struct tensor both = op_concat(p->l, p->extra, pass_norm(p, x, &p->w[ROLE_AHEAD_STATE_NORM]));
    x = op_add(p->l, x, pass_mix(p, both), NULL);
    return op_add(p->l, x, feed_forward(p, pass_norm(p, x, &p->w[ROLE_FFN_NORM])), NULL);
}

static const struct stream own_stream = {.bind = bind_own, .enter = enter_own};
static const struct stream folder_stream = {.bind = bind_folder, .enter = enter_folder, .block = block_folder};

/* ---- opening ------------------------------------------------------------------------------------------------------------ */

static bool has(const struct tensor_store *store, struct str name) {
    struct tensor_info t;
    return store->find(store->user, name, &t);
}

static int check_target(const struct draft_head_source *s, struct err *err) {
    const struct spec *t = &s->target->spec;
    if (t->stream || t->is_encoder || t->embed_width != t->hidden || t->is_prefix)
        return err_set(err, ERR_EUNSUPPORTED, "the stream of this model's layers is not one that a head can read");
    return ERR_OK;
}

/* The config of a model of one layer; `keys` is JSON, and counts before the file's. */
static int open_model(struct arena *a, struct backend *be, const struct draft_head_source *s, struct renamed *names,
                      const struct stream *stream, struct str keys, struct draft_head *out, struct err *err) {
    struct config config = *s->config;
    struct model *m = &out->model;
    TRY(json_parse(a, keys, config.name, JSON_LENIENT, &config.instead, err));
    TRY(spec_resolve(a, &config, &m->spec, err));
    if (m->spec.stream) return err_set(err, ERR_EUNSUPPORTED, "%s: a head of this kind of model is not supported", config.name);
    m->spec.stream = stream;
    m->spec.attn_inputs = stream == &folder_stream ? 2 : 1;
    m->is_draft_head = true;
    m->n_given = out->own_set + 1;
    struct tensor_store store = {.find = renamed_find,
                                 .read = renamed_read,
                                 .format = renamed_format,
                                 .shown = renamed_shown,
                                 .lender = &s->target->weights,
                                 .lends_head = stream == &own_stream,
                                 .user = names};
    m->taps = (struct taps){.n = 1, .at = {m->spec.n_layers}, .is_normed = stream == &own_stream};
    return weights_bind(a, be, &store, &m->spec, NULL, &m->weights, err);
}

/* Where the checkpoint has the head; NULL: nowhere. */
static const struct renaming *find_own(struct arena *a, const struct draft_head_source *s) {
    static const char *const roots[] = {"model.", "model.language_model.", "language_model.model.", ""};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (has(s->store, str_fmt(a, "%slayers.%d.eh_proj.weight", roots[i], s->target->spec.n_layers))) return behind_layers;
    return has(s->store, STR("mtp.fc.weight")) ? beside_layers : NULL;
}

int draft_head_open_own(struct arena *a, struct backend *be, const struct draft_head_source *s, struct draft_head *out, struct err *err) {
    static const char keys[] = "{\"num_hidden_layers\": 1, \"first_k_dense_replace\": 0, \"layer_types\": [\"full_attention\"], "
                               "\"mlp_layer_types\": [\"sparse\"], \"mlp_only_layers\": []}";
    *out = (struct draft_head){0};
    TRY(check_target(s, err));
    struct renamed names = {.inner = s->store, .rules = find_own(a, s), .layer = s->target->spec.n_layers};
    if (!names.rules)
        return err_set(err, ERR_EUNSUPPORTED,
                       "the checkpoint has no head that guesses ahead (layers.%d.eh_proj or mtp.fc); converters often leave "
                       "it out: take the original, or another kind of --draft",
                       s->target->spec.n_layers);
    int code = open_model(a, be, s, &names, &own_stream, str_of(keys), out, err);
    arena_free(&names.names);
    out->taps = (struct taps){.n = 1, .at = {s->target->spec.n_layers}, .is_normed = true};
    return code;
}

bool draft_head_is(const struct tensor_store *store) {
    return has(store, STR("fc.weight")) && has(store, STR("midlayer.hidden_norm.weight"));
}

/* Which layers' inputs it reads: what its config says, or the usual ones. */
static int choose_taps(const struct draft_head_source *s, struct taps *out, struct err *err) {
    int32_t n = s->target->spec.n_layers;
    *out = (struct taps){.n = STATE_TAPS, .at = {2, n / 2, n - 3}};
    yyjson_val *list = config_get(s->config, "eagle_config.eagle_aux_hidden_state_layer_ids");
    for (int32_t i = 0; i < STATE_TAPS && yyjson_is_arr(list); i++) {
        int64_t layer;
        if (yyjson_arr_size(list) != STATE_TAPS || !json_val_int(yyjson_arr_get(list, (size_t)i), &layer) || layer < 0 || layer >= n)
            return err_set(err, ERR_EFORMAT, "%s: eagle_aux_hidden_state_layer_ids must be %d of the model's %d layers", s->config->name,
                           STATE_TAPS, n);
        out->at[i] = (int32_t)layer + 1; /* what comes out of it */
    }
    for (int32_t i = 0; i < STATE_TAPS; i++)
        if (out->at[i] < 0 || out->at[i] > n)
            return err_set(err, ERR_EUNSUPPORTED, "the head reads the states of three layers, and the model has %d layers alone", n);
    return ERR_OK;
}

static int compare(const struct draft_head_source *s, const char *key, int32_t want, struct err *err) {
    int64_t value;
    TRY(config_int(s->config, key, (struct config_range){1, 1 << 24}, 0, &value, err));
    if (value == want) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "the head is for another model: its %s is %lld, and this model's is %d", key, (long long)value,
                   want);
}

/* Token i of the head is token i + d2t[i] of the model. */
static int read_tokens(struct arena *a, const struct draft_head_source *s, int32_t n, int32_t **out, struct err *err) {
    struct tensor_info t;
    int32_t vocab = s->target->spec.vocab;
    *out = NULL;
    if (!s->store->find(s->store->user, STR("d2t"), &t)) {
        if (n == vocab) return ERR_OK;
        return err_set(err, ERR_EFORMAT, "the head has %d tokens and no table d2t of which of the model's %d they are", n, vocab);
    }
    if (t.dtype != DT_I64 || t.n_dims != 1 || t.shape[0] != n)
        return err_set(err, ERR_EFORMAT, "d2t must be a list of %d whole numbers (I64), one for each token of the head", n);
    int64_t *shift = arena_new(a, int64_t, n);
    *out = arena_new(a, int32_t, n);
    TRY(s->store->read(s->store->user, &t, 0, shift, (size_t)n * sizeof *shift, err));
    for (int32_t i = 0; i < n; i++) {
        if (shift[i] < -i || shift[i] >= vocab - i)
            return err_set(err, ERR_EFORMAT, "d2t: token %d of the head would be %lld, and the model has %d tokens", i,
                           (long long)shift[i] + i, vocab);
        (*out)[i] = i + (int32_t)shift[i];
    }
    return ERR_OK;
}

int draft_head_open(struct arena *a, struct backend *be, const struct draft_head_source *s, struct draft_head *out, struct err *err) {
    const struct spec *t = &s->target->spec;
    int64_t vocab;
    *out = (struct draft_head){.own_set = STATE_TAPS};
    TRY(check_target(s, err));
    TRY(compare(s, "hidden_size", t->hidden, err));
    TRY(compare(s, "vocab_size", t->vocab, err));
    TRY(choose_taps(s, &out->taps, err));
    TRY(config_int(s->config, "draft_vocab_size", (struct config_range){1, 1 << 24}, t->vocab, &vocab, err));
    TRY(read_tokens(a, s, (int32_t)vocab, &out->to_target, err));
    struct str keys = str_fmt(a, "{\"num_hidden_layers\": 1, \"vocab_size\": %d}", (int)vocab);
    struct renamed names = {.inner = s->store, .rules = in_folder};
    int code = open_model(a, be, s, &names, &folder_stream, keys, out, err);
    arena_free(&names.names);
    return code;
}

void draft_head_close(struct backend *be, struct draft_head *h) {
    weights_release(be, &h->model.weights);
}
