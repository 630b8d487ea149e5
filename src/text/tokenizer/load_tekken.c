/* tekken.json: a pattern, tokens in base64 with their ranks, and special tokens, whose ids come before those of the others. */
#include "text/tokenizer/internal.h"

enum { SPECIAL_MAX = 65536 };

/* What files from before they named their special tokens mean, in the order of their ids. */
static const char *const unnamed[] = {"<unk>",
                                      "<s>",
                                      "</s>",
                                      "[INST]",
                                      "[/INST]",
                                      "[AVAILABLE_TOOLS]",
                                      "[/AVAILABLE_TOOLS]",
                                      "[TOOL_RESULTS]",
                                      "[/TOOL_RESULTS]",
                                      "[TOOL_CALLS]",
                                      "[IMG]",
                                      "<pad>",
                                      "[IMG_BREAK]",
                                      "[IMG_END]",
                                      "[PREFIX]",
                                      "[MIDDLE]",
                                      "[SUFFIX]",
                                      "[SYSTEM_PROMPT]",
                                      "[/SYSTEM_PROMPT]",
                                      "[TOOL_CONTENT]"};

struct tekken {
    struct str pattern;
    int64_t n_special, n_tokens; /* n_tokens: of the ordinary ones that count */
    yyjson_val *vocab, *special;
};

static int read_sizes(yyjson_val *root, struct tekken *k, struct err *err) {
    yyjson_val *config = json_get(root, "config");
    k->pattern = json_str(config, "pattern", (struct str){0});
    k->n_special = json_int(config, "default_num_special_tokens", -1);
    k->n_tokens = json_int(config, "default_vocab_size", -1) - k->n_special;
    k->vocab = json_get(root, "vocab");
    k->special = json_get(root, "special_tokens");
    bool sound = k->pattern.n && k->n_special >= 0 && k->n_special <= SPECIAL_MAX && k->n_tokens > 0 && k->n_tokens < TOK_MAX_ID;
    if (!sound || !yyjson_is_arr(k->vocab)) return err_set(err, ERR_EFORMAT, "tekken.json: config or vocab is not what it should be");
    if ((uint64_t)k->n_tokens > yyjson_arr_size(k->vocab))
        return err_set(err, ERR_EFORMAT, "tekken.json: vocab has %zu tokens, default_vocab_size wants %lld", yyjson_arr_size(k->vocab),
                       (long long)k->n_tokens);
    return ERR_OK;
}

static int read_ranks(struct arena *a, const struct tekken *k, struct tok_ranks *r, struct err *err) {
    yyjson_val *item;
    size_t i, n;
    r->starts = arena_try(a, ((size_t)k->n_tokens + 1) * sizeof *r->starts);
    r->ids = arena_try(a, (size_t)k->n_tokens * sizeof *r->ids);
    if (!r->starts || !r->ids) return err_set(err, ERR_EMEMORY, "tekken.json: no memory for %lld tokens", (long long)k->n_tokens);
    yyjson_arr_foreach(k->vocab, i, n, item) {
        int64_t rank = json_int(item, "rank", -1);
        if (rank >= k->n_tokens) continue;
        if (rank < 0 || r->n == (size_t)k->n_tokens || !tok_base64(json_str(item, "token_bytes", STR("?")), &r->bytes))
            return err_set(err, ERR_EFORMAT, "tekken.json: entry %zu of vocab is not a rank and a token in base64", i);
        r->ids[r->n] = (int32_t)(rank + k->n_special);
        r->starts[++r->n] = r->bytes.n;
    }
    return ERR_OK;
}

static int add_special(struct tok *t, const struct tekken *k, struct err *err) {
    yyjson_val *item;
    size_t i, n, n_unnamed = sizeof unnamed / sizeof *unnamed;
    TRY(tok_added_room(t, yyjson_is_arr(k->special) ? yyjson_arr_size(k->special) : n_unnamed, err));
    for (i = 0; i < n_unnamed && !yyjson_is_arr(k->special); i++)
        TRY(tok_added_put(t, (struct tok_added_token){.content = str_of(unnamed[i]), .id = (int32_t)i, .special = true}, err));
    if (yyjson_is_arr(k->special)) yyjson_arr_foreach(k->special, i, n, item) {
            int64_t id = json_int(item, "rank", -1);
            struct str content = json_str(item, "token_str", (struct str){0});
            if (id < 0 || id >= k->n_special || !content.n)
                return err_set(err, ERR_EFORMAT, "tekken.json: entry %zu of special_tokens is not a rank and a text", i);
            TRY(tok_added_put(t, (struct tok_added_token){.content = content, .id = (int32_t)id, .special = true}, err));
        }
    return ERR_OK;
}

static int build(struct tok *t, struct arena *a, struct str json, struct err *err) {
    struct tok_ranks r = {0};
    struct tekken k = {0};
    yyjson_val *root;
    int code = json_parse(a, json, "tekken.json", JSON_LENIENT, &root, err);
    if (!code) code = read_sizes(root, &k, err);
    if (!code) code = read_ranks(a, &k, &r, err);
    if (!code) code = tok_build_ranks(t, a, &r, k.pattern, err);
    if (!code) code = add_special(t, &k, err);
    if (!code) code = tok_finish(t, err);
    sb_free(&r.bytes);
    return code;
}

bool tok_is_tekken(struct str json) {
    return str_find(str_sub(json, 0, 4096), STR("\"default_num_special_tokens\""), 0) != STR_NONE;
}

int tok_load_tekken(struct tok **out, struct str json, struct str config_json, struct err *err) {
    struct arena a = {0};
    struct tok *t = tok_new();
    int code = build(t, &a, json, err);
    if (!code) {
        t->bos = tok_id_of(t, STR("<s>"));
        t->eos = tok_id_of(t, STR("</s>"));
        t->config_bos = true;
        if (config_json.n) code = tok_read_config(t, config_json, err);
    }
    arena_free(&a);
    if (code) tok_destroy(t), t = NULL;
    *out = t;
    return code;
}
