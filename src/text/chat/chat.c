/* Choosing a template and collecting the special tokens that it may print. */
#include "text/chat/chat.h"

#include "text/chat/chat_continue.h"
#include "text/chat/chat_form.h"

enum { CHAT_MAX_TEMPLATES = 32 };

struct named_template {
    struct str name, source;
    struct tmpl *t;
    struct chat_form form;
};

struct chat_template {
    struct named_template templates[CHAT_MAX_TEMPLATES];
    size_t n_templates;
    bool is_plain;
    yyjson_val *special;
    const char *model;
};

/* Content may be a list of parts; only their text is shown. */
static const char plain_source[] = "{%- if bos_token is defined %}{{ bos_token }}{% endif -%}\n"
                                   "{%- for message in messages -%}\n"
                                   "{%- set content = message.content if message.content is string else (message.content or [])"
                                   "|selectattr('text', 'defined')|map(attribute='text')|join -%}\n"
                                   "{%- if message.role == 'system' -%}\n"
                                   "{{ content|trim ~ '\\n\\n' }}\n"
                                   "{%- elif message.role == 'assistant' -%}\n"
                                   "{{ 'Assistant: ' ~ content|trim ~ (eos_token if eos_token is defined else '') ~ '\\n' }}\n"
                                   "{%- else -%}\n"
                                   "{{ 'User: ' ~ content|trim ~ '\\n' }}\n"
                                   "{%- endif -%}\n"
                                   "{%- endfor -%}\n"
                                   "{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif -%}\n";

static int add_template(struct arena *a, struct chat_template *c, struct str name, struct str source, struct err *err) {
    if (c->n_templates == CHAT_MAX_TEMPLATES)
        return err_set(err, ERR_ELIMIT, "%s: more than %d chat templates", c->model, CHAT_MAX_TEMPLATES);
    struct named_template *t = &c->templates[c->n_templates];
    t->name = str_copy(a, name);
    t->source = str_copy(a, source);
    int code = tmpl_parse(a, source, &t->t, err);
    if (code) {
        err_prefix(err, "%s", c->model);
        return code;
    }
    t->form = chat_form_find(t->t, t->source, c->special);
    c->n_templates++;
    return ERR_OK;
}

/* A string, or a list of {"name", "template"}; anything else counts as absent. */
static int add_from_json(struct arena *a, struct chat_template *c, yyjson_val *value, struct err *err) {
    struct str text = json_val_str(value);
    if (text.p) return add_template(a, c, STR("default"), text, err);
    size_t i, n;
    yyjson_val *item, *key;
    if (yyjson_is_arr(value)) {
        yyjson_arr_foreach(value, i, n, item) {
            struct str source = json_str(item, "template", (struct str){0});
            if (source.p) TRY(add_template(a, c, json_str(item, "name", STR("default")), source, err));
        }
    } else if (yyjson_is_obj(value)) {
        yyjson_obj_foreach(value, i, n, key, item) {
            if (yyjson_is_str(item)) TRY(add_template(a, c, json_val_str(key), json_val_str(item), err));
        }
    }
    return ERR_OK;
}

static int parse_if_present(struct arena *a, const char *model, const char *name, struct str text, yyjson_val **out, struct err *err) {
    *out = NULL;
    if (!text.p) return ERR_OK;
    struct str label = str_fmt(a, "%s/%s", model, name);
    return json_parse(a, text, label.p, JSON_LENIENT, out, err);
}

static int choose(struct arena *a, struct chat_template *c, const struct chat_files *files, yyjson_val *config, struct err *err) {
    if (files->chat_template_jinja.p) return add_template(a, c, STR("default"), files->chat_template_jinja, err);
    yyjson_val *own;
    TRY(parse_if_present(a, c->model, "chat_template.json", files->chat_template_json, &own, err));
    TRY(add_from_json(a, c, json_get(own, "chat_template"), err));
    if (!c->n_templates) TRY(add_from_json(a, c, json_get(config, "chat_template"), err));
    if (c->n_templates) return ERR_OK;
    c->is_plain = true;
    return add_template(a, c, STR("default"), str_of(plain_source), err);
}

/* A token is a string or an object with its text in "content". */
static struct str token_text(yyjson_val *value) {
    struct str s = json_val_str(value);
    return s.p ? s : json_str(value, "content", (struct str){0});
}

static void put_token_list(struct jsonw *w, yyjson_val *list) {
    size_t i, n;
    yyjson_val *item;
    if (!yyjson_is_arr(list)) return;
    jsonw_open(w, "additional_special_tokens", '[');
    yyjson_arr_foreach(list, i, n, item) {
        if (token_text(item).p) jsonw_str(w, token_text(item));
    }
    jsonw_end(w, ']');
}

static int collect_special(struct arena *a, struct chat_template *c, yyjson_val *config, yyjson_val *map, struct err *err) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    jsonw_begin(&w, '{');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct str text = token_text(json_get(config, names[i]));
        if (!text.p) text = token_text(json_get(map, names[i]));
        if (!text.p) continue;
        jsonw_put_str(&w, names[i], text);
    }
    yyjson_val *more = json_get(config, "additional_special_tokens");
    put_token_list(&w, more ? more : json_get(map, "additional_special_tokens"));
    jsonw_end(&w, '}');
    int code = json_parse(a, sb_str(&json), "special tokens", JSON_STRICT, &c->special, err);
    sb_free(&json);
    return code;
}

int chat_template_load(struct arena *a, const struct chat_files *files, struct chat_template **out_template, struct err *err) {
    *out_template = NULL;
    struct chat_template *c = arena_new(a, struct chat_template, 1);
    c->model = str_cstr(a, files->model ? str_of(files->model) : STR("the model"));
    yyjson_val *config, *map;
    TRY(parse_if_present(a, c->model, "tokenizer_config.json", files->tokenizer_config, &config, err));
    TRY(parse_if_present(a, c->model, "special_tokens_map.json", files->special_tokens_map, &map, err));
    TRY(collect_special(a, c, config, map, err));
    TRY(choose(a, c, files, config, err));
    *out_template = c;
    return ERR_OK;
}

bool chat_template_is_plain(const struct chat_template *t) {
    return t->is_plain;
}

struct chat_template *chat_template_with_special(struct arena *a, const struct chat_template *t, yyjson_val *special) {
    struct chat_template *copy = arena_copy(a, t, sizeof *t);
    copy->special = special;
    return copy;
}

static const struct named_template *find(const struct chat_template *c, struct str name) {
    for (size_t i = 0; i < c->n_templates; i++)
        if (str_eq(c->templates[i].name, name)) return &c->templates[i];
    return NULL;
}

struct str chat_template_text(const struct chat_template *t, bool has_tools) {
    const struct named_template *found = has_tools ? find(t, STR("tool_use")) : NULL;
    if (!found) found = find(t, STR("default"));
    return found ? found->source : (struct str){0};
}

static int pick(const struct chat_template *c, const struct chat_request *r, const struct named_template **out, struct err *err) {
    yyjson_val *tools = json_get(r->input, "tools");
    if (r->name.n) {
        *out = find(c, r->name);
        if (*out) return ERR_OK;
        return err_set(err, ERR_EARG, "%s has no chat template named \"%.*s\"", c->model, STR_ARG(r->name));
    }
    *out = tools && !yyjson_is_null(tools) ? find(c, STR("tool_use")) : NULL;
    if (!*out) *out = find(c, STR("default"));
    if (*out) return ERR_OK;
    return err_set(err, ERR_EARG, "%s has several chat templates and none is called \"default\": name one", c->model);
}

int chat_render(const struct chat_template *t, struct arena *a, const struct chat_request *request, struct tmpl_output *out_output,
                struct err *err) {
    const struct named_template *chosen;
    yyjson_val *input = request->input;
    *out_output = (struct tmpl_output){0};
    TRY(pick(t, request, &chosen, err));
    if (request->fits_calls) TRY(chat_form_apply(a, chosen->form, input, &input, err));
    struct tmpl_context ctx = {
        .input = input, .special = t->special, .now = request->now, .limits = request->limits, .adds_usual = request->adds_usual};
    if (chat_continues(input)) return chat_continue_render(chosen->t, a, &ctx, out_output, err);
    return tmpl_render(chosen->t, a, &ctx, out_output, err);
}
