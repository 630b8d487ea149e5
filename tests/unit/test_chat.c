/* text/chat: which template is chosen, which special tokens it sees, the form for models without one. */
#include "unit.h"

#include "base/log.h"
#include "text/chat/chat.h"

static int n_warnings;

static void count_warning(enum log_level level, const char *line, void *user) {
    (void)line, (void)user;
    n_warnings += level == LOG_WARN;
}

/* Loads and renders; the arena keeps the text. */
static struct str render(struct arena *a, const struct chat_files *files, const char *json, struct str name) {
    struct err err;
    struct chat_template *t;
    struct tmpl_output out;
    yyjson_val *input;
    CHECK_OK(json_parse(a, str_of(json), "input", JSON_STRICT, &input, &err), err);
    CHECK_OK(chat_template_load(a, files, &t, &err), err);
    struct chat_request r = {.input = input, .now = {.year = 2025, .month = 7, .day = 10}, .name = name};
    CHECK_OK(chat_render(t, a, &r, &out, &err), err);
    return out.text;
}

static const char hello[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"add_generation_prompt\": true}";
static const char with_tools[] = "{\"messages\": [], \"tools\": [{\"type\": \"function\"}]}";

static void files_have_their_order(void) {
    struct arena a = {0};
    struct chat_files f = {.model = "m", .tokenizer_config = STR("{\"chat_template\": \"config\"}")};
    CHECK_STR(render(&a, &f, hello, STR("")), STR("config"));
    f.chat_template_json = STR("{\"chat_template\": \"json\"}");
    CHECK_STR(render(&a, &f, hello, STR("")), STR("json"));
    f.chat_template_jinja = STR("jinja {{ messages[0].content }}\n");
    CHECK_STR(render(&a, &f, hello, STR("")), STR("jinja Hi"));
    arena_free(&a);
}

static void lists_are_chosen_from(void) {
    struct arena a = {0};
    struct err err;
    struct chat_template *t;
    struct tmpl_output out;
    struct chat_files f = {.tokenizer_config =
                               STR("{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, "
                                   "{\"name\": \"tool_use\", \"template\": \"T\"}, {\"name\": \"rag\", \"template\": \"R\"}]}")};
    CHECK_STR(render(&a, &f, hello, STR("")), STR("D"));
    CHECK_STR(render(&a, &f, with_tools, STR("")), STR("T"));
    CHECK_STR(render(&a, &f, "{\"tools\": null}", STR("")), STR("D"));
    CHECK_STR(render(&a, &f, with_tools, STR("rag")), STR("R"));
    CHECK_OK(chat_template_load(&a, &f, &t, &err), err);
    CHECK_INT(chat_render(t, &a, &(struct chat_request){.name = STR("nope")}, &out, &err), ERR_EARG);
    f.tokenizer_config = STR("{\"chat_template\": [{\"name\": \"rag\", \"template\": \"R\"}, {\"name\": \"b\", \"template\": \"B\"}]}");
    CHECK_OK(chat_template_load(&a, &f, &t, &err), err);
    CHECK_INT(chat_render(t, &a, &(struct chat_request){0}, &out, &err), ERR_EARG);
    arena_free(&a);
}

static void special_tokens_are_seen(void) {
    struct arena a = {0};
    struct chat_files f = {
        .tokenizer_config = STR("{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\", \"lstrip\": false}, \"pad_token\": null, "
                                "\"chat_template\": \"{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token is defined }}{{ "
                                "additional_special_tokens }}\"}"),
        .special_tokens_map =
            STR("{\"unk_token\": \"<unk>\", \"bos_token\": \"no\", \"additional_special_tokens\": [\"<a>\", {\"content\": \"<b>\"}]}"),
    };
    CHECK_STR(render(&a, &f, hello, STR("")), STR("<s></s><unk>False['<a>', '<b>']"));
    arena_free(&a);
}

/* A template that takes the date from its caller, and one that wants the tools as text. */
static void templates_get_what_is_usual(void) {
    struct arena a = {0};
    struct err err;
    struct chat_template *t;
    struct tmpl_output out;
    yyjson_val *input, *own;
    struct chat_files f = {.chat_template_jinja = STR("{% if not date_string is defined %}{% set date_string = 'fixed' %}{% endif %}"
                                                      "{{ date_string }}{% if datetime is defined %}, {{ datetime }}{% endif %}")};
    CHECK_OK(json_parse(&a, str_of(hello), "input", JSON_STRICT, &input, &err), err);
    CHECK_OK(json_parse(&a, STR("{\"messages\": [], \"date_string\": \"yesterday\"}"), "input", JSON_STRICT, &own, &err), err);
    CHECK_OK(chat_template_load(&a, &f, &t, &err), err);
    struct chat_request r = {.input = input, .now = {.year = 2025, .month = 7, .day = 4}};
    CHECK_OK(chat_render(t, &a, &r, &out, &err), err);
    CHECK_STR(out.text, STR("fixed"));
    r.adds_usual = true;
    CHECK_OK(chat_render(t, &a, &r, &out, &err), err);
    CHECK_STR(out.text, STR("04 Jul 2025, Jul 04 2025"));
    CHECK_INT((int64_t)out.n_spans, 1); /* the template's own text, however it is cut into tokens */
    r.input = own;
    CHECK_OK(chat_render(t, &a, &r, &out, &err), err);
    CHECK_STR(out.text, STR("yesterday, Jul 04 2025"));
    f.chat_template_jinja = STR("<{{ functions }}>");
    CHECK_OK(chat_template_load(&a, &f, &t, &err), err);
    CHECK_OK(chat_render(t, &a, &r, &out, &err), err);
    CHECK_STR(out.text, STR("<>"));
    CHECK_OK(json_parse(&a, str_of(with_tools), "input", JSON_STRICT, &r.input, &err), err);
    CHECK_OK(chat_render(t, &a, &r, &out, &err), err);
    CHECK(str_starts(out.text, STR("<[")) && str_find(out.text, STR("\"type\": \"function\""), 0) != STR_NONE);
    CHECK_INT((int64_t)out.n_spans, 3); /* what the user wrote stays the user's */
    arena_free(&a);
}

static void plain_form_without_template(void) {
    struct arena a = {0};
    struct err err;
    struct chat_template *t;
    struct chat_files f = {.model = "m", .tokenizer_config = STR("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}")};
    n_warnings = 0;
    log_set_sink(count_warning, NULL);
    struct str got =
        render(&a, &f,
               "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", \"content\": [{\"type\": \"text\", "
               "\"text\": \"Hi\"}, {\"type\": \"image\"}]}, {\"role\": \"assistant\", \"content\": \"Hello\"}, {\"role\": \"user\", "
               "\"content\": \"Bye \"}], \"add_generation_prompt\": true}",
               STR(""));
    CHECK_OK(chat_template_load(&a, &f, &t, &err), err);
    log_set_sink(NULL, NULL);
    CHECK_STR(got, STR("<s>Be kind.\n\nUser: Hi\nAssistant: Hello</s>\nUser: Bye\nAssistant:"));
    CHECK(chat_template_is_plain(t));
    CHECK_INT(n_warnings, 0); /* generate completes raw, and the form is none of its business */
    arena_free(&a);
}

/* A prompt that ends with the last message's text: as the template prints it, or behind a generation prompt where it does not. */
static void last_messages_go_on(void) {
    static const struct {
        const char *template, *want;
    } rows[] = {
        {"{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}",
         "<user>It is</><assistant>It is "},
        {"{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", "[It is][It is "},
        {"{% for m in messages %}{{ m.content }}|{{ m.content }};{% endfor %}", "It is|It is;It is "},
        {"{% if messages[-1].role == 'assistant' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}"
         "{% if add_generation_prompt %}>{% endif %}",
         "It is>It is "},
        {"{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}", "It is>It is "},
    };
    static const char input[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"It is\"}, {\"role\": \"assistant\", \"content\": "
                                "\"It is \"}], \"continue_final_message\": true}";
    struct arena a = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_files f = {.chat_template_jinja = str_of(rows[i].template)};
        CHECK_STR(render(&a, &f, input, STR("")), str_of(rows[i].want));
    }
    arena_free(&a);
}

static void broken_files_are_named(void) {
    struct arena a = {0};
    struct err err;
    struct chat_template *t;
    CHECK_INT(chat_template_load(&a, &(struct chat_files){.model = "dir", .tokenizer_config = STR("{")}, &t, &err), ERR_EFORMAT);
    CHECK(str_starts(str_of(err.msg), STR("dir/tokenizer_config.json: ")));
    CHECK_INT(chat_template_load(&a, &(struct chat_files){.model = "dir", .chat_template_jinja = STR("{% if")}, &t, &err), ERR_EFORMAT);
    CHECK(str_starts(str_of(err.msg), STR("dir: chat template line 1: TemplateSyntaxError")));
    arena_free(&a);
}

static const struct unit_case cases[] = {
    {"order_of_files", files_have_their_order},  {"lists", lists_are_chosen_from},
    {"special_tokens", special_tokens_are_seen}, {"usual", templates_get_what_is_usual},
    {"plain_form", plain_form_without_template}, {"go_on", last_messages_go_on},
    {"broken_files", broken_files_are_named},    {0},
};

const struct unit_suite unit_chat = {"chat", cases};
