/* Files, clock and JSON lines around text/chat. */
#include "tools/template.h"

#include "base/log.h"
#include "file/limits.h"
#include "os/os.h"
#include "text/chat/chat.h"

#include <time.h>

struct template_tool {
    struct chat_template *chat; /* NULL: every line brings its own template */
    yyjson_val *special;        /* NULL: the chat template's */
    struct tmpl_time now;
    bool has_now;
};

static struct tmpl_time local_now(void) {
    struct tm tm;
    int64_t ns = os_wall_ns();
    os_local_time(ns, &tm);
    return (struct tmpl_time){tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(ns / 1000 % 1000000)};
}

static int load_if_present(struct arena *a, const char *dir, const char *name, struct str *out, struct err *err) {
    struct str path = str_fmt(a, "%s/%s", dir, name);
    struct os_stat st;
    *out = (struct str){0};
    if (os_stat(path.p, &st, NULL) == ERR_ENOTFOUND) return ERR_OK;
    return os_file_load(a, path.p, CONFIG_MAX_BYTES, out, err);
}

int template_files_load(struct arena *a, const char *model, struct chat_files *out, struct err *err) {
    struct os_stat st;
    *out = (struct chat_files){.model = model};
    TRY(os_stat(model, &st, err));
    if (st.is_file) return os_file_load(a, model, CONFIG_MAX_BYTES, &out->tokenizer_config, err);
    TRY(load_if_present(a, model, "tokenizer_config.json", &out->tokenizer_config, err));
    TRY(load_if_present(a, model, "special_tokens_map.json", &out->special_tokens_map, err));
    TRY(load_if_present(a, model, "chat_template.jinja", &out->chat_template_jinja, err));
    return load_if_present(a, model, "chat_template.json", &out->chat_template_json, err);
}

static int load_special(struct arena *a, const char *path, yyjson_val **out, struct err *err) {
    struct str text;
    TRY(os_input_load(a, path, CONFIG_MAX_BYTES, &text, err));
    TRY(json_parse(a, text, path, JSON_LENIENT, out, err));
    return yyjson_is_obj(*out) ? ERR_OK : err_set(err, ERR_EARG, "%s: not a JSON object", path);
}

int template_tool_open(struct arena *a, const struct template_options *o, struct template_tool **out_tool, struct err *err) {
    struct template_tool *t = arena_new(a, struct template_tool, 1);
    struct chat_files files = {.model = o->template_file};
    *out_tool = NULL;
    if (o->model) TRY(template_files_load(a, o->model, &files, err));
    if (o->template_file) {
        TRY(os_input_load(a, o->template_file, CONFIG_MAX_BYTES, &files.chat_template_jinja, err));
        files.model = o->template_file;
    }
    if (o->special_file) TRY(load_special(a, o->special_file, &t->special, err));
    if (o->model || o->template_file) TRY(chat_template_load(a, &files, &t->chat, err));
    if (t->chat && chat_template_is_plain(t->chat)) log_warn("%s has no chat template: using a plain User/Assistant form", files.model);
    if (o->now.n && !tmpl_time_parse(o->now, &t->now))
        return err_set(err, ERR_EARG, "\"%.*s\" is not a time such as 2025-07-10T12:00:00", STR_ARG(o->now));
    t->has_now = o->now.n != 0;
    *out_tool = t;
    return ERR_OK;
}

static int render(const struct template_tool *t, struct arena *a, yyjson_val *input, yyjson_val *special, struct str *out,
                  struct err *err) {
    if (!t->chat) return err_set(err, ERR_EARG, "no template: give a model or a template");
    if (!yyjson_is_obj(input)) return err_set(err, ERR_EARG, "the input is not a JSON object with messages");
    struct chat_request r = {.input = input, .now = t->has_now ? t->now : local_now()};
    struct tmpl_output output;
    struct chat_template *chat = t->chat;
    if (special) chat = chat_template_with_special(a, chat, special);
    TRY(chat_render(chat, a, &r, &output, err));
    *out = output.text;
    return ERR_OK;
}

int template_tool_render(const struct template_tool *t, struct arena *a, struct str input, struct str *out_text, struct err *err) {
    yyjson_val *root;
    *out_text = (struct str){0};
    TRY(json_parse(a, input, "input", JSON_LENIENT, &root, err));
    return render(t, a, root, t->special, out_text, err);
}

static int render_line(const struct template_tool *t, struct arena *a, struct str line, struct str *out, struct err *err) {
    yyjson_val *root;
    TRY(json_parse(a, line, "line", JSON_LENIENT, &root, err));
    struct template_tool own = *t;
    struct chat_files files = {.model = "line", .chat_template_jinja = json_str(root, "template", (struct str){0})};
    if (files.chat_template_jinja.p) TRY(chat_template_load(a, &files, &own.chat, err));
    yyjson_val *special = json_get(root, "special");
    return render(&own, a, json_get(root, "input"), yyjson_is_obj(special) ? special : t->special, out, err);
}

void template_tool_line(const struct template_tool *t, struct str line, struct sb *out) {
    struct arena a = {0};
    struct err err = {0};
    struct str text;
    int code = render_line(t, &a, line, &text, &err);
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, code ? "error" : "ok", code ? str_of(err.msg) : text);
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
    arena_free(&a);
}
