/* Messages and deltas as OpenAI's API has them, from the pieces of text/output. */
#include "tools/parse.h"

#include "tools/template.h"
#include "base/log.h"
#include "os/os.h"
#include "text/chat/chat.h"
#include "text/output/output.h"

enum { FILE_MAX_BYTES = 64 << 20 };

struct parse_tool {
    struct parse_options options;
    struct output_options output;
};

/* ---- options ---------------------------------------------------------------------------------------------------- */

static int find_format(struct str name, const struct output_format **out, struct err *err) {
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    *out = output_format_find(name);
    for (size_t i = 0; !*out && name.n < 100 && output_format_at(i); i++) {
        size_t distance = str_distance(name, str_of(output_format_name(output_format_at(i))));
        if (distance < best) {
            best = distance;
            nearest = output_format_name(output_format_at(i));
        }
    }
    if (*out) return ERR_OK;
    return err_set(err, ERR_EARG, "there is no format \"%.*s\"; the nearest is %s, and mlxcel parse --list names all", STR_ARG(name),
                   nearest ? nearest : "none");
}

void parse_tools_list(struct sb *out) {
    for (size_t i = 0; output_format_at(i); i++) sb_fmt(out, "%s\n", output_format_name(output_format_at(i)));
}

static void use_template(struct str text, struct output_options *out) {
    out->format = output_format_recognize(text);
    out->reasoning = output_reasoning_recognize(text, out->format);
}

static int load_template(struct arena *a, const struct parse_options *o, struct output_options *out, struct err *err) {
    struct chat_files files = {.model = o->template_file};
    struct chat_template *chat;
    struct str text;
    if (o->template_file) {
        TRY(os_file_load(a, o->template_file, FILE_MAX_BYTES, &text, err));
    } else {
        TRY(template_files_load(a, o->model, &files, err));
        TRY(chat_template_load(a, &files, &chat, err));
        text = chat_template_is_plain(chat) ? (struct str){0} : chat_template_text(chat, true);
    }
    use_template(text, out);
    if (!out->format) log_warn("%s: its chat template shows no way to write tool calls", files.model);
    return ERR_OK;
}

static int load_tools(struct arena *a, const char *path, struct output_tools *out, struct err *err) {
    struct str text;
    yyjson_val *list;
    TRY(os_file_load(a, path, FILE_MAX_BYTES, &text, err));
    TRY(json_parse(a, text, path, JSON_STRICT, &list, err));
    int code = output_tools_read(a, list, out, err);
    if (code) err_prefix(err, "%s", path);
    return code;
}

int parse_tools_open(struct arena *a, const struct parse_options *o, struct parse_tool **out_tool, struct err *err) {
    struct parse_tool *t = arena_new(a, struct parse_tool, 1);
    *out_tool = NULL;
    t->options = *o;
    t->output = (struct output_options){.takes_calls = true, .as_it_comes = o->as_it_comes};
    if (o->format.n) TRY(find_format(o->format, &t->output.format, err));
    else if (o->model || o->template_file) TRY(load_template(a, o, &t->output, err));
    if (o->tools_file) TRY(load_tools(a, o->tools_file, &t->output.tools, err));
    *out_tool = t;
    return ERR_OK;
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

typedef void pieces_fn(void *user, const struct output_pieces *pieces);

static size_t cut_at(struct str text, int64_t n_chars) {
    size_t n = 0;
    uint32_t code;
    if (n_chars <= 0) return text.n;
    while (n_chars-- > 0 && n < text.n) n += utf8_decode(text.p + n, text.n - n, &code);
    return n;
}

static void each_piece(const struct parse_tool *t, struct str text, int64_t n_chars, pieces_fn *take, void *user) {
    struct arena a = {0};
    struct output o;
    struct output_pieces pieces = {0};
    struct output_options options = t->output;
    const struct output_reasoning *r = options.reasoning ? options.reasoning : output_reasoning_recognize((struct str){0}, options.format);
    options.is_open = t->options.prompt.p ? output_reasoning_is_open(r, t->options.prompt) : output_reasoning_was_open(r, text);
    output_init(&o, &a, &options);
    for (size_t n; text.n; text = str_from(text, n)) {
        n = cut_at(text, n_chars);
        output_push(&o, str_sub(text, 0, n), &pieces);
        take(user, &pieces);
        output_pieces_clear(&pieces);
    }
    output_flush(&o, t->options.is_cut, &pieces);
    take(user, &pieces);
    output_pieces_free(&pieces);
    output_free(&o);
    arena_free(&a);
}

/* Here every call has an id: that of the text, else one that is the same every time. */
static struct str call_id(struct arena *a, const struct parse_tool *t, const struct output_pieces *pieces, const struct output_piece *p) {
    struct str id = output_piece_id(pieces, p);
    return id.n ? id : output_make_id(a, t->output.format, output_piece_text(pieces, p), p->call, (uint64_t)p->call + 1);
}

/* ---- the message ------------------------------------------------------------------------------------------------ */

struct whole {
    const struct parse_tool *tool;
    struct arena a;
    struct sb content, reasoning, calls, args;
    struct jsonw w; /* of calls */
};

static void put_call(struct whole *m, const struct output_pieces *pieces, const struct output_piece *p) {
    jsonw_begin(&m->w, '{');
    jsonw_put_str(&m->w, "id", call_id(&m->a, m->tool, pieces, p));
    jsonw_put_str(&m->w, "type", STR("function"));
    jsonw_open(&m->w, "function", '{');
    jsonw_put_str(&m->w, "name", output_piece_text(pieces, p));
}

static void end_call(struct whole *m) {
    jsonw_put_str(&m->w, "arguments", sb_str(&m->args));
    jsonw_end(&m->w, '}');
    jsonw_end(&m->w, '}');
    sb_clear(&m->args);
}

static void take_whole(void *user, const struct output_pieces *pieces) {
    struct whole *m = user;
    for (size_t i = 0; i < pieces->n; i++) {
        const struct output_piece *p = &pieces->p[i];
        struct str text = output_piece_text(pieces, p);
        switch (p->kind) {
        case OUTPUT_CONTENT: sb_put(&m->content, text); break;
        case OUTPUT_REASONING: sb_put(&m->reasoning, text); break;
        case OUTPUT_CALL: put_call(m, pieces, p); break;
        case OUTPUT_ARGUMENTS: sb_put(&m->args, text); break;
        case OUTPUT_CALL_END:
        case OUTPUT_CALL_CUT: end_call(m); break;
        }
    }
}

static void put_text(struct jsonw *w, const char *key, const struct sb *text) {
    if (text->n) jsonw_put_str(w, key, sb_str(text));
    else jsonw_put_null(w, key);
}

static void put_message(const struct parse_tool *t, struct str text, struct sb *out) {
    struct whole m = {.tool = t};
    struct jsonw w = {.out = out};
    m.w.out = &m.calls;
    each_piece(t, text, t->options.n_chars, take_whole, &m);
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "role", STR("assistant"));
    put_text(&w, "content", &m.content);
    put_text(&w, "reasoning_content", &m.reasoning);
    jsonw_open(&w, "tool_calls", '[');
    jsonw_raw(&w, sb_str(&m.calls));
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
    struct sb *buffers[] = {&m.content, &m.reasoning, &m.calls, &m.args};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) sb_free(buffers[i]);
    arena_free(&m.a);
}

/* ---- deltas ----------------------------------------------------------------------------------------------------- */

struct deltas {
    const struct parse_tool *tool;
    struct arena a;
    struct sb *out;
};

static void put_call_delta(struct deltas *d, struct jsonw *w, const struct output_pieces *pieces, const struct output_piece *p) {
    bool begins = p->kind == OUTPUT_CALL;
    struct str text = output_piece_text(pieces, p);
    jsonw_open(w, "tool_calls", '[');
    jsonw_begin(w, '{');
    jsonw_put_int(w, "index", p->call);
    if (begins) {
        jsonw_put_str(w, "id", call_id(&d->a, d->tool, pieces, p));
        jsonw_put_str(w, "type", STR("function"));
    }
    jsonw_open(w, "function", '{');
    if (begins) jsonw_put_str(w, "name", text);
    jsonw_put_str(w, "arguments", begins ? STR("") : text);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    jsonw_end(w, ']');
}

static void take_deltas(void *user, const struct output_pieces *pieces) {
    struct deltas *d = user;
    for (size_t i = 0; i < pieces->n; i++) {
        const struct output_piece *p = &pieces->p[i];
        struct jsonw w = {.out = d->out};
        if (p->kind == OUTPUT_CALL_END || p->kind == OUTPUT_CALL_CUT) continue;
        jsonw_begin(&w, '{');
        if (p->kind == OUTPUT_CONTENT) jsonw_put_str(&w, "content", output_piece_text(pieces, p));
        else if (p->kind == OUTPUT_REASONING) jsonw_put_str(&w, "reasoning_content", output_piece_text(pieces, p));
        else put_call_delta(d, &w, pieces, p);
        jsonw_end(&w, '}');
        sb_putc(d->out, '\n');
    }
}

void parse_tools_text(const struct parse_tool *t, struct str text, struct sb *out) {
    struct deltas d = {.tool = t, .out = out};
    if (t->options.streams) each_piece(t, text, t->options.n_chars, take_deltas, &d);
    else put_message(t, text, out);
    arena_free(&d.a);
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

static int read_line(struct arena *a, struct str line, struct parse_tool *own, struct str *out_text, struct err *err) {
    yyjson_val *root, *tools;
    TRY(json_parse(a, line, "line", JSON_STRICT, &root, err));
    struct str format = json_str(root, "format", (struct str){0}), source = json_str(root, "template", (struct str){0});
    struct str prompt = json_str(root, "prompt", (struct str){0});
    *out_text = json_str(root, "text", (struct str){0});
    tools = json_get(root, "tools");
    if (!out_text->p) return err_set(err, ERR_EARG, "the line has no text");
    if (source.p) use_template(source, &own->output);
    if (format.n) {
        own->output.reasoning = NULL;
        TRY(find_format(format, &own->output.format, err));
    }
    if (prompt.p) own->options.prompt = prompt;
    return tools ? output_tools_read(a, tools, &own->output.tools, err) : ERR_OK;
}

void parse_tools_line(const struct parse_tool *t, struct str line, struct sb *out) {
    struct arena a = {0};
    struct err err = {0};
    struct str text;
    struct parse_tool own = *t;
    if (read_line(&a, line, &own, &text, &err) == ERR_OK) {
        put_message(&own, text, out);
    } else {
        struct jsonw w = {.out = out};
        jsonw_begin(&w, '{');
        jsonw_put_str(&w, "error", str_of(err.msg));
        jsonw_end(&w, '}');
        sb_putc(out, '\n');
    }
    arena_free(&a);
}
