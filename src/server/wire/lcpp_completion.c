/* llama-server: POST /completion, and its manners. A stream is plain data lines: a frame for each token, then the record of the whole. */
#include "server/wire/lcpp.h"

#include "server/constrain.h"
#include "server/details.h"
#include "server/prompts.h"
#include "server/sse.h"

/* ---- manners ------------------------------------------------------------------------------------------------------------ */

static const char *type_of(const struct api_error *e) {
    if (e->n_prompt) return "exceed_context_size_error";
    return e->status == 404 ? "not_found_error" : e->status == 403 ? "permission_error" : e->type;
}

static void put_error(const struct api_error *e, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_open(&w, "error", '{');
    jsonw_put_int(&w, "code", e->status);
    jsonw_put_str(&w, "message", str_of(e->message));
    jsonw_put_str(&w, "type", str_of(type_of(e)));
    if (e->n_prompt) {
        jsonw_put_int(&w, "n_prompt_tokens", e->n_prompt);
        jsonw_put_int(&w, "n_ctx", e->n_context);
    }
    jsonw_end(&w, '}');
    jsonw_end(&w, '}');
}

static void put_stream_error(const struct api_error *e, struct sb *out) {
    struct sb json = {0};
    put_error(e, &json);
    sse_put(out, NULL, sb_str(&json));
    sb_free(&json);
}

static void put_ping(struct sb *out) {
    sse_put_comment(out, "keep-alive");
}

const struct wire wire_lcpp = {.stream_type = SSE_TYPE, .error = put_error, .stream_error = put_stream_error, .ping = put_ping};

void lcpp_refuse(struct call *c, const char *why) {
    api_fail(&c->error, 501, NULL, NULL, "%s", why);
    call_reply_error(c);
}

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

/* What the request wants of the record, by paths such as generation_settings/n_predict; what is not there is left out. */
static void put_selected(struct generation *g, yyjson_val *paths, struct str json, struct sb *out) {
    struct jsonw w = {.out = out};
    yyjson_val *record, *path;
    struct err err;
    size_t i, n;
    if (json_parse(&g->call->arena, json, "record", JSON_STRICT, &record, &err)) record = NULL; /* we wrote it */
    jsonw_begin(&w, '{');
    yyjson_arr_foreach(paths, i, n, path) {
        struct str rest = json_val_str(path), name;
        yyjson_val *at = record;
        while (at && str_split_next(&rest, '/', &name)) at = yyjson_obj_getn(at, name.p, name.n);
        if (!at) continue;
        jsonw_key_str(&w, json_val_str(path));
        jsonw_val(&w, at);
    }
    jsonw_end(&w, '}');
}

static void put_record(struct generation *g, struct gen_choice *c, struct sb *out) {
    yyjson_val *paths = json_get(g->call->body, "response_fields");
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    details_put(g, c, NULL, &w);
    if (yyjson_arr_size(paths)) put_selected(g, paths, sb_str(&json), out);
    else sb_put(out, sb_str(&json));
    sb_free(&json);
}

static void put_whole(struct generation *g, struct sb *out) {
    if (g->n_choices > 1) sb_putc(out, '[');
    for (int32_t i = 0; i < g->n_choices; i++) {
        if (i) sb_putc(out, ',');
        put_record(g, &g->choices[i], out);
    }
    if (g->n_choices > 1) sb_putc(out, ']');
}

/* One token of what has come, or text that was held back and has none; `text` goes with the first. */
static void put_frame(struct generation *g, struct gen_choice *c, struct str text, size_t i_token, bool is_progress, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    jsonw_begin(&w, '{');
    jsonw_put_int(&w, "index", c->index);
    jsonw_put_str(&w, "content", text);
    jsonw_open(&w, "tokens", '[');
    if (i_token < c->n_tokens) jsonw_int(&w, c->tokens[i_token].id);
    jsonw_end(&w, ']');
    jsonw_put_bool(&w, "stop", false);
    jsonw_put_int(&w, "id_slot", g->params.slot < 0 ? 0 : g->params.slot);
    jsonw_put_int(&w, "tokens_predicted", c->usage.n_new);
    jsonw_put_int(&w, "tokens_evaluated", c->usage.n_prompt);
    if (g->params.timings_always) generate_put_choice_timings(c, &w);
    if (is_progress) generate_put_progress(c, &w);
    if (g->params.logprobs && i_token < c->n_tokens) details_put_probabilities(g, c, i_token, 1, &w);
    jsonw_end(&w, '}');
    sse_put(out, NULL, sb_str(&json));
    sb_free(&json);
}

static void put_piece(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct sb text = {0};
    generate_join(&c->pieces, OUTPUT_CONTENT, &text);
    put_frame(g, c, sb_str(&text), 0, false, out);
    for (size_t i = 1; i < c->n_tokens; i++) put_frame(g, c, STR(""), i, false, out);
    sb_free(&text);
}

static void put_progress(struct generation *g, struct gen_choice *c, struct sb *out) {
    put_frame(g, c, STR(""), 0, true, out);
}

static void put_end(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct sb json = {0};
    put_record(g, c, &json);
    sse_put(out, NULL, sb_str(&json));
    sb_free(&json);
}

static void put_nothing(struct generation *g, struct gen_choice *c, struct sb *out) {
    (void)g, (void)c, (void)out;
}

static void put_done(struct generation *g, struct sb *out) {
    (void)g, (void)out;
}

static const struct gen_format lcpp_format = {.id_prefix = "cmpl-",
                                              .input = "prompt",
                                              .continues = true,
                                              .begin = put_nothing,
                                              .piece = put_piece,
                                              .end = put_end,
                                              .done = put_done,
                                              .whole = put_whole,
                                              .progress = put_progress};

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static int check_paths(struct call *c) {
    yyjson_val *paths = json_get(c->body, "response_fields"), *path;
    size_t i, n;
    bool ok = !paths || yyjson_is_null(paths) || yyjson_is_arr(paths);
    yyjson_arr_foreach(paths, i, n, path) ok &= yyjson_is_str(path);
    return ok ? 0 : api_fail(&c->error, 400, NULL, "response_fields", "response_fields must be a list of strings");
}

int lcpp_prepare(struct call *c, struct generation **out) {
    struct generation *g = generate_create(c, &lcpp_format);
    *out = g;
    if (params_read(&c->arena, c->body, PARAMS_LLAMA, &g->params, &c->error) || check_paths(c)) return -1;
    g->params.keeps_tokens |= g->params.stream;
    return constrain_read(&c->arena, c->body, c->service, NULL, &g->params, &c->error);
}

static int prepare(struct call *c) {
    struct generation *g;
    struct prompt_rules rules = {.param = "prompt", .encoding = SERVICE_ADD_SPECIAL | SERVICE_PARSE_SPECIAL, .takes_empty = true};
    if (lcpp_prepare(c, &g)) return -1;
    rules.n_max = PARAMS_CHOICES_MAX / g->params.n;
    return prompts_read(c, json_get(c->body, "prompt"), &rules, &g->prompts, &g->n_prompts);
}

const struct route routes_lcpp_completion[] = {
    {"POST", "/completion", 0, prepare, generate_start},
    {"POST", "/completions", 0, prepare, generate_start},
    {0},
};
