/* One table: the fields of OpenAI, vLLM, llama-server and mlx-lm that would change the answer. A field that works goes into params.c, and its
 * row goes away. docs/server.md lists them all, and beside them the known fields that change no answer and are passed over. */
#include "server/fields.h"

#include "server/params.h"

enum {
    CHAT = PARAMS_CHAT,
    LLAMA = PARAMS_LLAMA,
    TEXT = PARAMS_COMPLETION | LLAMA,
    EMBED = PARAMS_EMBEDDING,
    BOTH = CHAT | TEXT,
    ALL = BOTH | EMBED
};

struct refused {
    const char *name;
    unsigned sets;
    const char *harmless; /* values that ask for nothing, separated by "|"; null, "" and [] never do */
    const char *instead;  /* what to use, or NULL */
};

static const struct refused rows[] = {
    /* what the answer must look like */
    {"grammar_lazy", BOTH, "false", NULL},
    {"grammar_triggers", BOTH, NULL, NULL},
    {"structural_tag", BOTH, NULL, NULL},
    {"functions", BOTH, NULL, NULL},
    {"function_call", BOTH, "none|auto", NULL},
    {"tools", TEXT, NULL, NULL},
    {"tool_choice", TEXT, "none|auto", NULL},
    {"verbosity", BOTH, "medium", NULL},
    {"modalities", BOTH, "text", NULL},
    {"audio", BOTH, NULL, NULL},
    {"web_search_options", BOTH, NULL, NULL},
    {"moderation", BOTH, NULL, NULL},
    /* which tokens may come, and when it ends */
    {"skip_special_tokens", BOTH, "true", NULL},
    {"repetition_detection", BOTH, NULL, NULL},
    {"max_completion_tokens", PARAMS_COMPLETION, NULL, "max_tokens"},
    {"n_indent", BOTH, "0", NULL},
    /* how tokens are chosen */
    {"use_beam_search", BOTH, "false", NULL},
    {"length_penalty", BOTH, "1", NULL},
    {"early_stopping", BOTH, "false", NULL},
    {"samplers", BOTH, NULL, NULL},
    {"min_keep", BOTH, "0", NULL},
    {"top_n_sigma", BOTH, "-1", NULL},
    {"adaptive_target", BOTH, "-1", NULL},
    {"frequency_context_size", BOTH, NULL, NULL},
    {"presence_context_size", BOTH, NULL, NULL},
    {"logits_processors", BOTH, NULL, NULL},
    {"watermarking", BOTH, NULL, NULL},
    {"vllm_xargs", BOTH, "{}", NULL},
    {"adapters", BOTH, NULL, NULL},
    {"speculative.n_min", BOTH, "0", NULL},
    {"speculative.p_min", BOTH, "0", NULL},
    /* how the prompt is made */
    {"add_special_tokens", CHAT, "false", NULL},
    {"add_special_tokens", TEXT | EMBED, "true", NULL},
    {"chat_template", CHAT, NULL, NULL},
    {"documents", CHAT, NULL, NULL},
    {"echo", CHAT, "false", NULL},
    {"suffix", TEXT, NULL, NULL},
    {"multimodal_data", LLAMA, NULL, NULL},
    {"prompt_embeds", TEXT, NULL, NULL},
    {"truncate_prompt_tokens", ALL, NULL, NULL},
    {"cache_salt", ALL, NULL, NULL},
    {"kv_transfer_params", BOTH, "{}", NULL},
    {"ec_transfer_params", BOTH, "{}", NULL},
    /* reasoning */
    {"reasoning_effort", TEXT, NULL, NULL},
    {"include_reasoning", BOTH, "true", NULL},
    {"reasoning_format", BOTH, "auto|deepseek", NULL},
    {"thinking_token_budget", TEXT, "-1", NULL},
    {"thinking_budget_tokens", TEXT, "-1", NULL},
    {"reasoning_budget_tokens", TEXT, "-1", NULL},
    {"reasoning_budget_message", BOTH, NULL, NULL},
    /* what the answer tells besides */
    {"prompt_logprobs", BOTH, NULL, NULL},
    {"logprob_token_ids", BOTH, NULL, NULL},
    {"n_probs", CHAT | PARAMS_COMPLETION, "0", "logprobs"},
    {"post_sampling_probs", CHAT | PARAMS_COMPLETION, "false", NULL},
    {"return_tokens", CHAT | PARAMS_COMPLETION, "false", NULL},
    {"return_token_ids", BOTH, "false", NULL},
    {"return_tokens_as_token_ids", BOTH, "false", NULL},
    {"return_token_offsets", BOTH, "false", NULL},
    {"return_prompt_text", BOTH, "false", NULL},
    {"response_fields", CHAT | PARAMS_COMPLETION, NULL, NULL},
    /* embeddings */
    {"messages", EMBED, NULL, "input"},
    {"embed_dtype", EMBED, "float32", NULL},
    {"endianness", EMBED, "native|little", NULL},
    {"use_activation", EMBED, "true", NULL},
    {"normalize", EMBED, "true", NULL},
    {"embd_normalize", EMBED, "2", NULL},
};

/* Whether a value is the one that is written in the table. */
static bool is_value(yyjson_val *val, struct str written) {
    double number;
    if (yyjson_is_bool(val)) return str_is(written, yyjson_get_bool(val) ? "true" : "false");
    if (yyjson_is_num(val)) return str_to_double(written, &number) && yyjson_get_num(val) == number;
    if (yyjson_is_obj(val)) return str_is(written, "{}") && yyjson_obj_size(val) == 0;
    return str_eq(json_val_str(val), written);
}

static bool is_among(yyjson_val *val, const char *list) {
    struct str rest = list ? str_of(list) : (struct str){0}, one;
    while (str_split_next(&rest, '|', &one))
        if (is_value(val, one)) return true;
    return false;
}

bool fields_is_harmless(yyjson_val *val, const char *list) {
    yyjson_val *item;
    size_t i, n;
    if (yyjson_is_null(val) || (yyjson_is_str(val) && yyjson_get_len(val) == 0)) return true;
    if (!yyjson_is_arr(val)) return is_among(val, list);
    yyjson_arr_foreach(val, i, n, item) if (!is_among(item, list)) return false;
    return true;
}

static const struct refused *find(struct str name, unsigned sets) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].sets & sets && str_is(name, rows[i].name)) return &rows[i];
    return NULL;
}

static int refuse(const struct refused *row, struct api_error *e) {
    static const char code[] = "unsupported_parameter";
    if (row->instead) return api_fail(e, 400, code, row->name, "%s is not supported; use %s", row->name, row->instead);
    if (!row->harmless) return api_fail(e, 400, code, row->name, "%s is not supported; leave it out", row->name);
    int n = (int)strcspn(row->harmless, "|");
    return api_fail(e, 400, code, row->name, "%s is not supported; leave it out or set it to %.*s", row->name, n, row->harmless);
}

int fields_refuse(yyjson_val *body, unsigned sets, struct api_error *e) {
    yyjson_val *key, *val;
    size_t i, n;
    yyjson_obj_foreach(body, i, n, key, val) {
        const struct refused *row = find(json_val_str(key), sets);
        if (!row || fields_is_harmless(val, row->harmless)) continue;
        return refuse(row, e);
    }
    return 0;
}
