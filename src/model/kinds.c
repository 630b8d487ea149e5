/* Which layer is what: its mixer and whether it knows positions, in the many ways in which config.json may say so. */
#include "model/families.h"
#include "model/mixer.h"

static const char *pattern_of(const struct resolver *r) {
    return r->family->pattern ? r->family->pattern : "F";
}

/* The letter of the family's pattern that is one of (or none of) `letters`. */
static char letter_among(const char *pattern, const char *letters, bool among, char absent) {
    for (; *pattern; pattern++)
        if (*pattern != ' ' && (strchr(letters, *pattern) != NULL) == among) return *pattern;
    return absent;
}

/* A name of layer_types as a letter: what the name leaves open, the family's pattern says. */
static int letter_of(const struct resolver *r, struct str type, char *out, struct err *err) {
    const char *pattern = pattern_of(r);
    if (str_is(type, "full_attention") || str_is(type, "attention") || str_is(type, "indexed_attention"))
        *out = letter_among(pattern, "FLH", true, 'F');
    else if (str_is(type, "sliding_attention")) *out = letter_among(pattern, "A", true, 'S');
    else if (str_is(type, "heavily_compressed_attention")) *out = letter_among(pattern, "B", true, 0);
    else if (str_is(type, "compressed_sparse_attention")) *out = letter_among(pattern, "P", true, 0);
    else if (str_is(type, "chunked_attention")) *out = 'C';
    else if (str_is(type, "linear_attention") || (r->family->recur.layer_type && str_is(type, r->family->recur.layer_type)))
        *out = letter_among(pattern, "FSCLHABP-E", false, 0);
    else if (str_is(type, "hybrid")) *out = letter_among(pattern, "H", true, 0);
    else if (str_is(type, "mlp")) *out = '-';
    else if (str_is(type, "moe")) *out = 'E';
    else *out = 0;
    if (*out) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: layer type \"%.*s\" is not supported", r->cfg.file->name, STR_ARG(type));
}

/* sliding_window_pattern: every nth layer is a full one; or letters, L for local and G for global. */
static char letter_by_period(const struct resolver *r, int32_t layer, char usual) {
    const struct cfg *c = &r->cfg;
    int64_t n, n_dense = yyjson_get_sint(cfg_get(c, "first_k_dense_replace"));
    bool is_prefix = cfg_get(c, "prefix_dense_sliding_window_pattern") && layer < n_dense; /* dense layers have a period of their own */
    yyjson_val *v = cfg_get(c, is_prefix ? "prefix_dense_sliding_window_pattern" : "sliding_window_pattern");
    if (cfg_get(c, "prefix_dense_sliding_window_pattern") && !is_prefix) layer -= (int32_t)n_dense;
    struct str s = json_val_str(v);
    if (json_val_int(v, &n) && n > 0) return (layer + !r->family->attn.full_first) % n ? 'S' : 'F';
    if (s.n) return s.p[(size_t)layer % s.n] == 'L' ? 'S' : 'F';
    return usual;
}

/* use_sliding_window: which layers have the window, max_window_layers and the family's row say. */
static int letter_by_switch(const struct resolver *r, int32_t layer, char *out, struct err *err) {
    int32_t bound;
    bool rope;
    if (!cfg_bool(&r->cfg, "use_sliding_window", false)) return ERR_OK;
    TRY(cfg_int(&r->cfg, "max_window_layers", 0, 1 << 20, 28, &bound, err));
    TRY(resolve_has_rope(r, layer, &rope, err));
    const bool has_window[] = {[WINDOWS_FROM] = layer >= bound,
                               [WINDOWS_EVEN_BELOW] = layer % 2 == 0 && layer < bound,
                               [WINDOWS_NOPE] = !rope,
                               [WINDOWS_ALL] = true};
    if (has_window[r->family->attn.windows]) *out = 'S';
    return ERR_OK;
}

/* Hybrid models without layer_types: a string of letters, a period, or a list of the layers with attention. */
static char letter_of_hybrid(const struct resolver *r, int32_t layer, char usual) {
    static const char from_one[] = "linear_attn_config.full_attn_layers";
    const struct cfg *c = &r->cfg;
    char recurrent = letter_among(pattern_of(r), "FSCLHABP-E", false, 0), full = letter_among(pattern_of(r), "FLH", true, 'F');
    struct str letters = json_val_str(cfg_get(c, "hybrid_override_pattern"));
    int64_t period, offset = 0;
    if (!recurrent) return usual;
    if ((size_t)layer < letters.n) return letters.p[layer] == '*' ? 'F' : letters.p[layer];
    yyjson_val *blocks = cfg_get(c, "block_types"); /* a cycle of words; attention is local there */
    if (yyjson_is_arr(blocks) && yyjson_arr_size(blocks) > 0)
        return str_is(json_val_str(yyjson_arr_get(blocks, (size_t)layer % yyjson_arr_size(blocks))), "attention") ? 'S' : recurrent;
    if (yyjson_is_arr(cfg_get(c, from_one))) return cfg_list_has(c, from_one, layer + 1) ? full : recurrent;
    if (yyjson_is_arr(cfg_get(c, "full_attn_idxs"))) return cfg_list_has(c, "full_attn_idxs", layer) ? full : recurrent;
    if (json_val_int(cfg_get(c, "full_attention_interval"), &period) && period > 0) return (layer + 1) % period ? recurrent : full;
    if (!json_val_int(cfg_get(c, "attn_layer_period"), &period) || period < 1) return usual;
    json_val_int(cfg_get(c, "attn_layer_offset"), &offset);
    return layer % period == offset ? 'F' : recurrent;
}

/* A list of 0 for full and 1 for sliding layers. */
static int letter_by_list(const struct resolver *r, int32_t layer, char *out, struct err *err) {
    yyjson_val *list;
    int64_t is_sliding;
    TRY(cfg_list(&r->cfg, "hybrid_layer_pattern", r->spec->n_layers, &list, err));
    *out = json_val_int(yyjson_arr_get(list, (size_t)layer), &is_sliding) && is_sliding ? 'S' : 'F';
    return ERR_OK;
}

/* A list of how many positions an entry stands for; 0: the layer has a window alone. */
static int letter_by_ratio(const struct resolver *r, int32_t layer, char *out, struct err *err) {
    yyjson_val *list;
    int64_t n = 0;
    TRY(cfg_list(&r->cfg, "compress_ratios", 0, &list, err));
    if (!list || (size_t)layer >= yyjson_arr_size(list)) return ERR_OK;
    json_val_int(yyjson_arr_get(list, (size_t)layer), &n);
    *out = n == 0 ? 'A' : n <= 16 ? 'P' : 'B';
    return ERR_OK;
}

/* Where nothing names the layers' types. */
static int letter_without_types(const struct resolver *r, int32_t layer, char *out, struct err *err) {
    const char *pattern = pattern_of(r);
    bool rope;
    *out = pattern[(size_t)layer % strcspn(pattern, " ")];
    if (r->family->attn.begins_full && layer == 0) *out = 'F';
    TRY(letter_by_switch(r, layer, out, err));
    *out = letter_by_period(r, layer, *out);
    if (yyjson_is_arr(cfg_get(&r->cfg, "hybrid_layer_pattern"))) TRY(letter_by_list(r, layer, out, err));
    *out = letter_of_hybrid(r, layer, *out);
    if (letter_among(pattern, "P", true, 0)) TRY(letter_by_ratio(r, layer, out, err));
    if (!r->family->attn.chunks_have_rope) return ERR_OK;
    TRY(resolve_has_rope(r, layer, &rope, err));
    *out = rope ? 'C' : 'F';
    return ERR_OK;
}

/* One dialect counts the positions before a row, without itself. */
int resolve_window_length(const struct cfg *c, int32_t *out, struct err *err) {
    int32_t before;
    TRY(cfg_int(c, "window_before", 0, INT32_MAX - 1, -1, &before, err));
    if (before < 0) return cfg_int(c, "sliding_window", 0, INT32_MAX, 0, out, err);
    *out = before + 1;
    return ERR_OK;
}

int resolve_kinds(struct resolver *r, struct err *err) {
    struct spec *s = r->spec;
    yyjson_val *types;
    int32_t window;
    TRY(resolve_window_length(&r->cfg, &window, err));
    TRY(cfg_list(&r->cfg, "layer_types", s->n_layers, &types, err));
    for (int32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &r->layers[i];
        if (types) TRY(letter_of(r, json_val_str(yyjson_arr_get(types, (size_t)i)), &l->kind, err));
        else TRY(letter_without_types(r, i, &l->kind, err));
        if (r->family->attn.ends_full && i == s->n_layers - 1) l->kind = 'F';
        if (l->kind == 'S' && window == 0) l->kind = 'F';
        l->mixer = mixer_of(l->kind);
        l->wiring = r->family->recur.norms_before && !strchr("FSCLH", l->kind) ? WIRE_PRE : s->wiring;
        if (l->mixer == N_MIXERS || !mixer_table[l->mixer])
            return err_set(err, ERR_EUNSUPPORTED, "%s: layer %d is of kind '%c', which is not supported", r->cfg.file->name, i, l->kind);
        if (r->family->flags & FAM_TWO_IN_ONE) l->lender = i / 2, l->use = i % 2;
        l->is_unnormed = i == 0 && r->family->flags & FAM_FIRST_UNNORMED;
        if (r->family->flags & FAM_ONE_HALF && l->mixer != MIX_NONE) l->ffn = FFN_NONE;
    }
    return ERR_OK;
}

/* ---- positions ---------------------------------------------------------------------------------------------------- */

bool spec_has_windows(const struct spec *s) {
    for (int32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].kind == 'S' || s->layers[i].kind == 'C') return true;
    return false;
}

int resolve_has_rope(const struct resolver *r, int32_t layer, bool *out, struct err *err) {
    const struct attn_row *row = &r->family->attn;
    yyjson_val *list = cfg_get(&r->cfg, "no_rope_layers");
    int32_t interval;
    int64_t flag;
    bool is_empty = yyjson_is_arr(list) && yyjson_arr_size(list) == 0; /* as if it were not there */
    if (!is_empty) TRY(cfg_list(&r->cfg, "no_rope_layers", r->spec->n_layers, &list, err));
    TRY(cfg_int(&r->cfg, "no_rope_layer_interval", 1, 1 << 20, 0, &interval, err));
    bool has_null = yyjson_is_null(json_get(cfg_get(&r->cfg, "rope_parameters"), "rope_theta"));
    bool is_on = !row->no_rope && (!row->rope_switch || cfg_bool(&r->cfg, row->rope_switch, false));
    *out = is_on && !has_null && (!row->rope_if_named || str_is(cfg_str(&r->cfg, "position_embedding_type", (struct str){0}), "rope"));
    if (row->nope && spec_has_windows(r->spec) && strchr(row->nope, r->layers[layer].kind)) *out = false;
    int64_t period;
    bool is_dense = r->layers[layer].ffn != FFN_EXPERTS; /* of the layers before those with experts */
    if (is_dense && json_val_int(cfg_get(&r->cfg, "prefix_dense_sliding_window_pattern"), &period) && period == 1) *out = true;
    if (list && !is_empty) *out = json_val_int(yyjson_arr_get(list, (size_t)layer), &flag) && flag;
    else if (interval && (layer + 1) % interval == 0) *out = false;
    return ERR_OK;
}
