/* Tensors of a checkpoint that nothing read. Inside a layer that is an error: the model would answer, and answer wrong. */
#include "base/log.h"
#include "model/families.h"

/* What files keep beside the weights and programs make for themselves: masks, tables of angles and decays, scales of a small cache. */
static const char *const buffers[] = {
    "*.rotary_emb.*", "*.maybe_rotary.*", "*.attn.bias", "*.attn.masked_bias", "*.attention.bias", "*.attention.masked_bias",
    "*.causal_mask",  "*.diagonal_decay", "*.key_decay", "*.query_decay",      "*.slope_rate",     "*.k_scale",
    "*.v_scale",      "*._extra_state",
};

static bool is_buffer(struct str name) {
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (str_glob(str_of(buffers[i]), name)) return true;
    return false;
}

/* Whether a tensor belongs to one of the model's layers; those behind the last are for programs that guess ahead. */
static bool is_in_layer(const struct loader *l, struct str name) {
    struct str rest = name, number;
    int64_t layer;
    if (!str_starts(rest, l->prefix)) return false;
    rest = str_from(rest, l->prefix.n);
    if (!str_starts(rest, l->layers) || rest.n == l->layers.n || rest.p[l->layers.n] != '.') return false;
    rest = str_from(rest, l->layers.n + 1);
    return str_split_next(&rest, '.', &number) && str_to_int64(number, &layer) && layer >= 0 && layer < l->spec->n_layers;
}

int loader_check_unread(const struct loader *l, struct err *err) {
    enum { SHOWN = 20 };
    size_t n = 0, n_in_layers = 0;
    struct str first = {0};
    for (size_t i = 0; l->store->name_at; i++) {
        struct str name = l->store->name_at(l->store->user, i);
        if (!name.p) break;
        if (map_find(&l->seen, name)) continue;
        if (n++ < SHOWN) log_debug("checkpoint: nothing reads %.*s", STR_ARG(name));
        if (!is_in_layer(l, name) || is_buffer(name)) continue;
        if (n_in_layers++ == 0) first = name;
    }
    if (n > SHOWN) log_debug("checkpoint: nothing reads %zu tensors in all", n);
    if (n_in_layers == 0 || l->store->may_be_unread) return ERR_OK;
    return err_set(
        err, ERR_EUNSUPPORTED,
        "nothing here reads %.*s (%zu tensor(s) of its layers in all): the model is not what its config.json says, and would answer "
        "wrong; --force goes on without them",
        STR_ARG(first), n_in_layers);
}
