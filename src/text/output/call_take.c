/* Holes that hold a whole call: JSON objects with name and arguments, and code behind a marker. */
#include "text/output/splitter.h"

/* ---- %c, %o: JSON that holds the whole call --------------------------------------------------------------------- */

static bool is_one_of(struct str key, const char *const *keys) {
    while (*keys && !str_is(key, *keys)) keys++;
    return *keys != NULL;
}

static const char *const name_keys[] = {"name", "tool_name", NULL};
static const char *const args_keys[] = {"arguments", "parameters", "args", NULL};
static const char *const id_keys[] = {"id", "tool_call_id", "call_id", NULL};
static const char *const other_keys[] = {"type", NULL};

bool output_is_arguments_key(struct str key) {
    return is_one_of(key, args_keys);
}

/* The text of a JSON string that stands in a buffer. */
static bool unquote(struct str json, struct sb *out) {
    struct arena a = {0};
    yyjson_val *value;
    bool good = json_parse(&a, json, "string", JSON_STRICT, &value, NULL) == ERR_OK && yyjson_is_str(value);
    sb_clear(out);
    if (good) sb_put(out, json_val_str(value));
    arena_free(&a);
    return good;
}

/* The member of the call's object that has just ended. */
bool call_take_member(struct splitter *s) {
    struct call *c = &s->call;
    struct value_reader *r = &c->value;
    struct str key = str_sub(sb_str(&c->json), r->key_begin + 1, r->key_end - r->key_begin - 2),
               value = str_from(sb_str(&c->json), r->value_reader_begin);
    r->has_member = false;
    if (s->format->flags & FORMAT_KEY_NAME) {
        if (c->n_members++ || value.p[0] != '{') return false;
        c->args_begin = r->value_reader_begin;
        c->args_end = c->json.n;
        return unquote(str_sub(sb_str(&c->json), r->key_begin, r->key_end - r->key_begin), &c->text) && call_set_name(s, sb_str(&c->text));
    }
    if (is_one_of(key, name_keys)) return !c->has_name && unquote(value, &c->text) && call_set_name(s, sb_str(&c->text));
    if (is_one_of(key, args_keys)) {
        if (c->args_end) return false;
        c->args_begin = r->value_reader_begin;
        c->args_end = c->json.n;
        return true;
    }
    if (is_one_of(key, id_keys)) return value.p[0] != '"' || unquote(value, &c->id);
    return !(s->format->flags & FORMAT_WHOLE) || is_one_of(key, other_keys);
}

/* Arguments are an object; some models write it once more as a string. None at all are {} where the tool needs none. */
bool call_take_arguments(struct splitter *s) {
    struct call *c = &s->call;
    struct str args = str_sub(sb_str(&c->json), c->args_begin, c->args_end - c->args_begin);
    enum value_type type;
    if (args.n && args.p[0] == '{') {
        sb_put(&c->args, args);
        return true;
    }
    if (args.n && args.p[0] == '"')
        return unquote(args, &c->text) && value_reader_read(sb_str(&c->text), VALUE_JSON, &c->args, &type) && type == VALUE_OBJECT;
    if (args.n && args.p[0] != 'n') return false;
    const struct output_tool *tool = typed_tool(s->options.tools, sb_str(&c->name));
    return tool && !typed_requires_any(call_arguments_type(s));
}

static bool take_call_value(struct splitter *s, yyjson_val *call) {
    struct call *c = &s->call;
    struct jsonw w = {.out = &c->args};
    yyjson_val *inner = json_get(call, "function"), *args = NULL;
    struct str name = {0}, id = json_str(call, "id", (struct str){0});
    if (inner) call = inner;
    for (size_t i = 0; name_keys[i] && !name.p; i++) name = json_str(call, name_keys[i], name);
    for (size_t i = 0; args_keys[i] && !args; i++) args = json_get(call, args_keys[i]);
    if (!name.n || !yyjson_is_obj(args) || !call_set_name(s, name)) return false;
    sb_put(&c->id, id);
    jsonw_val(&w, args);
    return true;
}

/* {"tool_calls": [...]} becomes calls, which are complete here, and {"response": text} content. */
bool call_take_answer(struct splitter *s, struct str json) {
    struct arena a = {0};
    yyjson_val *root, *item;
    size_t i, n;
    bool good = json_parse(&a, json, "answer", JSON_STRICT, &root, NULL) == ERR_OK;
    yyjson_val *calls = json_get(root, "tool_calls"), *response = json_get(root, "response");
    if (good && yyjson_is_str(response) && !calls) {
        output_pieces_put(&s->held, OUTPUT_CONTENT, -1, json_val_str(response));
    } else {
        good = good && yyjson_arr_size(calls) > 0;
        if (good) yyjson_arr_foreach(calls, i, n, item) good = good && take_call_value(s, item) && call_commit(s);
    }
    arena_free(&a);
    return good;
}

/* ---- %y: code, or something else behind the same marker --------------------------------------------------------- */

bool output_is_code_tool(struct str name) {
    return str_is(name, "python") || str_is(name, "ipython") || str_is(name, "code_interpreter");
}

/* tool.call(key=value, ...) */
static bool take_builtin(struct splitter *s, struct str text) {
    struct call *c = &s->call;
    size_t open = str_find(text, STR(".call("), 0);
    if (open == STR_NONE || open == 0) return false;
    for (size_t i = 0; i < open; i++)
        if (!call_is_name_char(text.p[i])) return false;
    value_reader_begin_keywords(&c->value, &c->args);
    for (size_t i = open + 6; i < text.n; i++) {
        enum value_reader_step step = value_reader_step(&c->value, text.p[i], false);
        if (step == VALUE_DONE && i + 1 == text.n) return call_set_name(s, str_sub(text, 0, open));
        if (step != VALUE_MORE) break;
    }
    sb_clear(&c->args);
    return false;
}

static bool take_json(struct splitter *s, struct str text) {
    struct arena a = {0};
    yyjson_val *root;
    bool good = json_parse(&a, text, "call", JSON_STRICT, &root, NULL) == ERR_OK && take_call_value(s, root);
    arena_free(&a);
    return good;
}

static struct str code_tool(const struct splitter *s) {
    for (size_t i = 0; i < s->options.tools.n; i++)
        if (output_is_code_tool(s->options.tools.p[i].name)) return s->options.tools.p[i].name;
    return STR("python");
}

bool call_take_code(struct splitter *s) {
    struct call *c = &s->call;
    struct sb code = c->text; /* names and arguments may need the buffer */
    c->text = (struct sb){0};
    struct str text = str_trim(sb_str(&code));
    bool good = text.n > 0;
    if (good && !(!c->has_name && (take_builtin(s, text) || take_json(s, text)))) {
        sb_clear(&c->args);
        sb_puts(&c->args, "{\"code\": ");
        json_quote(&c->args, text);
        sb_putc(&c->args, '}');
        good = c->has_name || call_set_name(s, code_tool(s));
    }
    sb_free(&code);
    return good;
}
