/* The text side of a session: tokenizer and chat template from the model's files, prompts to ids, ids to text. */
#include "api/session_internal.h"
#include "api/tokenizer_files.h"
#include "file/builtin.h"
#include "os/os.h"

#include <assert.h>
#include <time.h>

/* A side file's text; {NULL, 0} when the model has none. */
static int side_file(struct session *s, const struct checkpoint *c, const char *name, struct str *out, struct err *err) {
    *out = (struct str){0};
    int code = checkpoint_file_load(&s->arena, c, name, 0, out, err);
    if (code != ERR_ENOTFOUND) return code;
    *out = (struct str){0};
    return ERR_OK;
}

/* A file of weights alone has no folder, and so nothing to read text with. */
static int load_tokenizer(struct session *s, const struct checkpoint *c, struct err *err) {
    bool is_built_in = c->path && strcmp(c->path, BUILTIN_NAME) == 0;
    if (!c->dir && !c->gguf && !is_built_in) return err_set(err, ERR_ENOTFOUND, "%s has no tokenizer: it cannot read text", s->name);
    return text_tokenizer_of(c, &s->tok, err);
}

static int load_files(struct session *s, const struct checkpoint *c, struct err *err) {
    struct chat_files files = {.model = s->name};
    TRY(side_file(s, c, "tokenizer_config.json", &files.tokenizer_config, err));
    TRY(side_file(s, c, "special_tokens_map.json", &files.special_tokens_map, err));
    TRY(side_file(s, c, "chat_template.jinja", &files.chat_template_jinja, err));
    TRY(side_file(s, c, "chat_template.json", &files.chat_template_json, err));
    if (s->options.template.p) files.chat_template_jinja = s->options.template;
    TRY(load_tokenizer(s, c, err));
    TRY(chat_template_load(&s->arena, &files, &s->chat, err));
    struct str text = chat_template_is_plain(s->chat) ? (struct str){0} : chat_template_text(s->chat, true);
    s->format = output_format_recognize(text);
    s->reasoning = output_reasoning_recognize(text, s->format);
    return ERR_OK;
}

int session_text_load(struct session *s, struct err *err) {
    if (s->text_loaded) return ERR_OK;
    struct checkpoint built_in = {0};
    int code;
    if (s->has_checkpoint) {
        code = load_files(s, &s->checkpoint, err);
    } else { /* a made-up model speaks with the built-in one's tokenizer */
        TRY(checkpoint_open(NULL, &built_in, err));
        code = load_files(s, &built_in, err);
        checkpoint_close(&built_in);
    }
    s->text_loaded = code == ERR_OK;
    if (!code && s->has_checkpoint) session_judge_words(s);
    if (!code) engine_set_text(s->engine, s->tok, s->format, s->reasoning);
    return code;
}

void session_text_close(struct session *s) {
    tok_ids_free(&s->ids);
    tok_destroy(s->tok);
}

bool session_has_template(const struct session *s) {
    return s->chat && !chat_template_is_plain(s->chat);
}

static struct tmpl_time now(void) {
    struct tm t;
    os_local_time(os_wall_ns(), &t);
    return (struct tmpl_time){t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, 0};
}

/* Pictures stand before the text. */
static void put_parts(struct jsonw *w, struct str text, size_t n_images) {
    jsonw_open(w, "content", '[');
    for (size_t i = 0; i < n_images; i++) {
        jsonw_begin(w, '{');
        jsonw_put_str(w, "type", STR("image"));
        jsonw_end(w, '}');
    }
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("text"));
    jsonw_put_str(w, "text", text);
    jsonw_end(w, '}');
    jsonw_end(w, ']');
}

static void put_message(struct jsonw *w, const char *role, struct str content, size_t n_images) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "role", str_of(role));
    if (n_images) put_parts(w, content, n_images);
    else jsonw_put_str(w, "content", content);
    jsonw_end(w, '}');
}

/* The conversation as the template's input. */
static struct str chat_input(struct arena *a, const struct session_prompt *p) {
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    jsonw_begin(&w, '{');
    jsonw_open(&w, "messages", '[');
    for (size_t i = 0; i < p->n_messages; i++) put_message(&w, p->messages[i].role, p->messages[i].content, p->messages[i].n_images);
    if (!p->messages) put_message(&w, "user", p->text, p->n_images);
    jsonw_end(&w, ']');
    jsonw_put_bool(&w, "add_generation_prompt", true);
    jsonw_end(&w, '}');
    struct str copy = str_copy(a, sb_str(&text));
    sb_free(&text);
    return copy;
}

int session_chat_encode(const struct session *s, struct arena *a, yyjson_val *input, const struct session_pictures *pictures,
                        struct tok_ids *out, struct str *out_text, struct err *err) {
    struct chat_request request = {.input = input, .now = now(), .fits_calls = true, .adds_usual = true};
    struct tmpl_output output;
    TRY(chat_render(s->chat, a, &request, &output, err));
    struct tok_span *spans = arena_new(a, struct tok_span, output.n_spans + 1);
    for (size_t i = 0; i < output.n_spans; i++) spans[i] = (struct tok_span){output.spans[i].text, !output.spans[i].is_user};
    if (out_text) *out_text = output.text;
    TRY(session_pictures_expand(s, a, pictures, &spans, output.n_spans, err));
    return tok_encode_spans(s->tok, NULL, spans, output.n_spans, TOK_PARSE_SPECIAL, out, err);
}

static int encode_chat(struct session *s, struct arena *a, const struct session_prompt *p, bool *out_thinks, struct err *err) {
    yyjson_val *input;
    struct str rendered;
    TRY(json_parse(a, chat_input(a, p), "prompt", JSON_STRICT, &input, err));
    TRY(session_chat_encode(s, a, input, &s->pictures, &s->ids, &rendered, err));
    *out_thinks = output_reasoning_is_open(s->reasoning, rendered);
    return ERR_OK;
}

/* A raw prompt is its own template. */
static int encode_raw(struct session *s, struct arena *a, struct str text, struct err *err) {
    struct tok_span *span = &(struct tok_span){text, true};
    TRY(session_pictures_expand(s, a, &s->pictures, &span, 1, err));
    return tok_encode(s->tok, span->text, TOK_ADD_SPECIAL | TOK_ADD_BOS | TOK_PARSE_SPECIAL, &s->ids, err);
}

int session_encode(struct session *s, const struct session_prompt *prompt, struct session_ids *out, struct err *err) {
    TRY(session_text_load(s, err));
    struct arena a = {0};
    bool raw = prompt->raw || !session_has_template(s), thinks = false;
    assert(!raw || !prompt->messages);
    s->ids.n = 0;
    arena_reset(&s->prompt_arena);
    TRY(session_pictures_make(s, &s->prompt_arena, prompt->images, prompt->n_images, &s->pictures, err));
    int code = raw ? encode_raw(s, &a, prompt->text, err) : encode_chat(s, &a, prompt, &thinks, err);
    arena_free(&a);
    *out = (struct session_ids){s->ids.p, s->ids.n, thinks};
    return code;
}

void session_split(const struct session *s, bool thinks, struct job_spec *out) {
    out->splits = true;
    out->thinks = thinks;
    out->format = s->format;
    out->reasoning = s->reasoning;
    out->may_think = true;
}

int session_check_constraint(const struct constraint_source *source, struct err *err) {
    struct gram_options options = gram_defaults();
    struct gram *g;
    TRY(gram_compile(&source->grammar, &options, NULL, &g, err));
    gram_destroy(g);
    return ERR_OK;
}
