/* Texts, tokens and conversations. */
#include "lib/lib_internal.h"

static int tokenize(const mlxcel_model *m, struct str text, uint32_t flags, int32_t **out, size_t *out_n, struct err *err) {
    _Static_assert(MLXCEL_ADD_SPECIAL == (int)SERVICE_ADD_SPECIAL && MLXCEL_PARSE_SPECIAL == (int)SERVICE_PARSE_SPECIAL, "the same flags");
    struct arena a = {0};
    struct service_ids ids;
    void *p = NULL;
    if (!m || !out || !out_n || (!text.p && text.n)) return err_set(err, ERR_EARG, "mlxcel_tokenize: an argument is NULL");
    if (flags & ~(uint32_t)(MLXCEL_ADD_SPECIAL | MLXCEL_PARSE_SPECIAL))
        return err_set(err, ERR_EARG, "mlxcel_tokenize: unknown flags %u", flags);
    int code = service_encode(m->service, &a, text, flags, &ids, err);
    if (!code) code = lib_copy(ids.p, (size_t)ids.n * sizeof *ids.p, &p, err);
    if (!code) *out = p, *out_n = (size_t)ids.n;
    arena_free(&a);
    return code;
}

int32_t mlxcel_tokenize(const mlxcel_model *model, const char *text, size_t n_bytes, uint32_t flags, int32_t **out_tokens, size_t *out_n,
                        mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, tokenize(model, str_n(text ? text : "", text ? n_bytes : 0), flags, out_tokens, out_n, &err), &err);
}

static int detokenize(const mlxcel_model *m, const int32_t *tokens, size_t n, char **out, size_t *out_bytes, struct err *err) {
    struct sb text = {0};
    if (!m || !out || (!tokens && n)) return err_set(err, ERR_EARG, "mlxcel_detokenize: an argument is NULL");
    if (n > INT32_MAX) return err_set(err, ERR_ELIMIT, "mlxcel_detokenize: %zu tokens are too many", n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= service_info(m->service)->vocab)
            return err_set(err, ERR_EARG, "token %d is outside the vocabulary of %d", tokens[i], service_info(m->service)->vocab);
    int code = service_decode(m->service, tokens, (int32_t)n, &text, err);
    if (!code) code = lib_copy_text(sb_str(&text), out, out_bytes, err);
    sb_free(&text);
    return code;
}

int32_t mlxcel_detokenize(const mlxcel_model *model, const int32_t *tokens, size_t n_tokens, char **out_text, size_t *out_bytes,
                          mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, detokenize(model, tokens, n_tokens, out_text, out_bytes, &err), &err);
}

int32_t mlxcel_token_id(const mlxcel_model *model, const char *token) {
    return model && token ? service_token_id(model->service, str_of(token)) : -1;
}

/* ---- conversations ------------------------------------------------------------------------------------------------------ */

void mlxcel_chat_init(mlxcel_chat *chat, size_t struct_size) {
    mlxcel_chat full = {0};
    lib_options_write(chat, struct_size, &full, sizeof full);
}

static int parse(struct arena *a, const char *text, const char *name, bool is_list, yyjson_val **out, struct err *err) {
    TRY(json_parse(a, str_of(text), name, JSON_STRICT, out, err));
    if (is_list ? yyjson_is_arr(*out) : yyjson_is_obj(*out)) return ERR_OK;
    return err_set(err, ERR_EARG, "%s must be a JSON %s", name, is_list ? "list" : "object");
}

/* Templates take what they are given: what is no message would become an empty one. */
static int check_message(yyjson_val *message, size_t i, struct err *err) {
    yyjson_val *content = json_get(message, "content");
    if (!yyjson_is_obj(message) || !json_str(message, "role", (struct str){0}).n)
        return err_set(err, ERR_EARG, "messages_json[%zu] must be an object with a role", i);
    if (content && !yyjson_is_str(content) && !yyjson_is_null(content))
        return err_set(err, ERR_EARG, "messages_json[%zu].content must be a string", i);
    return ERR_OK;
}

static int put_given(struct arena *a, const char *json, struct jsonw *w, struct err *err) {
    yyjson_val *list, *message;
    size_t i, n;
    TRY(parse(a, json, "messages_json", true, &list, err));
    if (yyjson_arr_size(list) == 0) return err_set(err, ERR_EARG, "messages_json has no messages");
    yyjson_arr_foreach(list, i, n, message) TRY(check_message(message, i, err));
    jsonw_key(w, "messages");
    jsonw_val(w, list);
    return ERR_OK;
}

static int put_messages(struct arena *a, const mlxcel_chat *c, struct jsonw *w, struct err *err) {
    if ((c->messages_json != NULL) == (c->messages != NULL))
        return err_set(err, ERR_EARG, "a chat has messages or messages_json: set one of them");
    if (c->messages_json) return put_given(a, c->messages_json, w, err);
    if (c->n_messages == 0) return err_set(err, ERR_EARG, "the chat has no messages");
    jsonw_open(w, "messages", '[');
    for (size_t i = 0; i < c->n_messages; i++) {
        if (!c->messages[i].role || !c->messages[i].content) return err_set(err, ERR_EARG, "message %zu has no role or no content", i);
        jsonw_begin(w, '{');
        jsonw_put_str(w, "role", str_of(c->messages[i].role));
        jsonw_put_str(w, "content", str_of(c->messages[i].content));
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
    return ERR_OK;
}

/* Further values for the template; those that are made here are not among them. */
static int put_values(struct arena *a, const char *json, struct jsonw *w, struct err *err) {
    static const char *const own[] = {"messages", "tools", "add_generation_prompt", "continue_final_message"};
    yyjson_val *object, *key, *val;
    size_t i, n;
    TRY(parse(a, json, "template_json", false, &object, err));
    yyjson_obj_foreach(object, i, n, key, val) {
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (str_is(json_val_str(key), own[k])) return err_set(err, ERR_EARG, "template_json must not have %s", own[k]);
        jsonw_key_str(w, json_val_str(key));
        jsonw_val(w, val);
    }
    return ERR_OK;
}

static int put_input(struct arena *a, const mlxcel_chat *c, bool takes_tools, yyjson_val **out_tools, struct jsonw *w, struct err *err) {
    *out_tools = NULL;
    jsonw_begin(w, '{');
    TRY(put_messages(a, c, w, err));
    if (c->tools_json && takes_tools) {
        TRY(parse(a, c->tools_json, "tools_json", true, out_tools, err));
        if (yyjson_arr_size(*out_tools) == 0) *out_tools = NULL;
    }
    if (*out_tools) {
        jsonw_key(w, "tools");
        jsonw_val(w, *out_tools);
    }
    if (c->template_json) TRY(put_values(a, c->template_json, w, err));
    jsonw_put_bool(w, "add_generation_prompt", !c->continues);
    if (c->continues) jsonw_put_bool(w, "continue_final_message", true);
    jsonw_end(w, '}');
    return ERR_OK;
}

/* Where the prompt leaves the model: before an answer, in one, or in thoughts. */
static void take_state(const struct mlxcel_model *m, yyjson_val *input, struct str rendered, struct job_spec *spec) {
    struct str last = json_str(yyjson_arr_get_last(json_get(input, "messages")), "content", STR(""));
    spec->continues = json_bool(input, "continue_final_message", false);
    spec->thinks = spec->continues ? service_thinks_inside(m->service, last) : service_thinks(m->service, rendered);
    spec->may_think = !spec->continues && service_may_think(m->service, rendered);
}

int lib_chat_encode(const struct mlxcel_model *m, struct arena *a, const mlxcel_chat *given, bool takes_tools, struct lib_prompt *out,
                    struct job_spec *spec, struct err *err) {
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    mlxcel_chat c;
    yyjson_val *input;
    mlxcel_chat_init(&c, sizeof c);
    TRY(lib_options_read(&c, sizeof c, given, "mlxcel_chat", err));
    int code = put_input(a, &c, takes_tools, &out->tools, &w, err);
    if (!code) code = json_parse(a, sb_str(&text), "chat", JSON_STRICT, &input, err);
    sb_free(&text);
    TRY(code);
    if (service_encode_chat(m->service, a, input, &out->ids, &out->text, err)) return err_prefix(err, "the chat template");
    take_state(m, input, out->text, spec);
    return ERR_OK;
}

static int render(const mlxcel_model *m, const mlxcel_chat *chat, struct arena *a, char **out_text, int32_t **out_tokens, size_t *out_n,
                  struct err *err) {
    struct lib_prompt prompt = {0};
    struct job_spec ignored = {0};
    char *text = NULL;
    void *tokens = NULL;
    TRY(lib_chat_encode(m, a, chat, true, &prompt, &ignored, err));
    if (out_text) TRY(lib_copy_text(prompt.text, &text, NULL, err));
    int code = out_tokens ? lib_copy(prompt.ids.p, (size_t)prompt.ids.n * sizeof *prompt.ids.p, &tokens, err) : ERR_OK;
    if (code) mem_free(text);
    else if (out_text) *out_text = text;
    if (!code && out_tokens) *out_tokens = tokens;
    if (!code && out_n) *out_n = (size_t)prompt.ids.n;
    return code;
}

int32_t mlxcel_chat_render(const mlxcel_model *model, const mlxcel_chat *chat, char **out_text, int32_t **out_tokens, size_t *out_n,
                           mlxcel_error *error) {
    struct err err = {0};
    struct arena a = {0};
    int code = model && chat ? render(model, chat, &a, out_text, out_tokens, out_n, &err)
                             : err_set(&err, ERR_EARG, "mlxcel_chat_render: the model or the chat is NULL");
    arena_free(&a);
    return lib_result(error, code, &err);
}
