/* Responses' answers: the response as one object, and as numbered events. */
#include "server/response_store.h"
#include "server/adapters.h"
#include "server/server_internal.h"
#include "server/sse.h"
#include "server/wire/responses_item.h"

/* ---- the response ------------------------------------------------------------------------------------------------------- */

/* A field of the request as it was, or what stands for its absence. */
static void put_echo(struct jsonw *w, yyjson_val *body, const char *key, const char *absent) {
    yyjson_val *val = json_get(body, key);
    jsonw_key(w, key);
    if (val && !yyjson_is_null(val)) jsonw_val(w, val);
    else jsonw_raw(w, str_of(absent));
}

static void put_usage(const struct generation *g, struct jsonw *w) {
    const struct job_usage *u = &g->choices[0].usage;
    jsonw_open(w, "usage", '{');
    jsonw_put_int(w, "input_tokens", g->prompts[0].ids.n);
    jsonw_open(w, "input_tokens_details", '{');
    jsonw_put_int(w, "cached_tokens", u->n_cached);
    jsonw_put_int(w, "cache_write_tokens", 0);
    jsonw_end(w, '}');
    jsonw_put_int(w, "output_tokens", u->n_new);
    jsonw_open(w, "output_tokens_details", '{');
    jsonw_put_int(w, "reasoning_tokens", u->n_reasoning);
    jsonw_end(w, '}');
    jsonw_put_int(w, "total_tokens", g->prompts[0].ids.n + u->n_new);
    jsonw_end(w, '}');
}

/* A call is, when its end has come: one that broke off has none. */
static bool is_whole(const struct responses_item *it, bool is_last, const char *status) {
    const struct output_pieces *all = &it->c->all;
    if (it->p->kind != OUTPUT_CALL) return !is_last || strcmp(status, "completed") == 0;
    for (size_t i = 0; i < all->n; i++)
        if (all->p[i].kind == OUTPUT_CALL_END && all->p[i].call == it->p->call) return true;
    return false;
}

static void put_output(struct generation *g, const char *status, struct jsonw *w) {
    struct gen_choice *c = &g->choices[0];
    int32_t n = 0;
    for (size_t i = 0; i < c->all.n; i++) n += responses_item_begins(&c->all.p[i]);
    jsonw_open(w, "output", '[');
    for (int32_t k = 0; k < n; k++) {
        struct responses_item it = responses_item_at(g, c, k);
        responses_item_put(&it, is_whole(&it, k + 1 == n, status) ? "completed" : "incomplete", false, w);
    }
    jsonw_end(w, ']');
}

static void put_error(const struct generation *g, const char *status, struct jsonw *w) {
    const struct api_error *e = &g->call->error;
    if (strcmp(status, "failed") != 0) {
        jsonw_put_null(w, "error");
        return;
    }
    jsonw_open(w, "error", '{');
    jsonw_put_str(w, "code", str_of(e->code ? e->code : "server_error"));
    jsonw_put_str(w, "message", str_of(e->message));
    jsonw_end(w, '}');
}

static void put_request_fields(struct generation *g, struct jsonw *w) {
    const struct responses_state *state = g->wire_state;
    yyjson_val *body = state->body;
    jsonw_put_str(w, "model", adapters_model_name(g->call));
    put_echo(w, body, "instructions", "null");
    put_echo(w, body, "max_output_tokens", "null");
    put_echo(w, body, "max_tool_calls", "null");
    put_echo(w, body, "metadata", "{}");
    put_echo(w, body, "parallel_tool_calls", "true");
    put_echo(w, body, "previous_response_id", "null");
    put_echo(w, body, "reasoning", "{\"effort\":null,\"summary\":null}");
    put_echo(w, body, "safety_identifier", "null");
    put_echo(w, body, "service_tier", "\"default\"");
    jsonw_put_bool(w, "store", state->is_kept);
    jsonw_key(w, "temperature");
    jsonw_num(w, (double)g->params.job.sampling.temperature);
    put_echo(w, body, "text", "{\"format\":{\"type\":\"text\"}}");
    put_echo(w, body, "tool_choice", "\"auto\"");
    put_echo(w, body, "tools", "[]");
    jsonw_put_int(w, "top_logprobs", 0);
    jsonw_key(w, "top_p");
    jsonw_num(w, (double)g->params.job.sampling.top_p);
    jsonw_put_str(w, "truncation", STR("disabled"));
    put_echo(w, body, "user", "null");
}

void responses_put(struct generation *g, const char *status, struct jsonw *w) {
    bool is_running = strcmp(status, "in_progress") == 0;
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", g->id);
    jsonw_put_str(w, "object", STR("response"));
    jsonw_put_int(w, "created_at", g->created);
    jsonw_put_str(w, "status", str_of(status));
    jsonw_put_bool(w, "background", false);
    put_error(g, status, w);
    jsonw_key(w, "incomplete_details");
    if (strcmp(status, "incomplete") == 0) jsonw_raw(w, STR("{\"reason\":\"max_output_tokens\"}"));
    else jsonw_null(w);
    put_request_fields(g, w);
    put_output(g, status, w);
    if (is_running) jsonw_put_null(w, "usage");
    else put_usage(g, w);
    jsonw_end(w, '}');
}

static const char *final_status(const struct generation *g) {
    return g->choices[0].finish == JOB_STOP ? "completed" : "incomplete";
}

static void keep(struct generation *g, struct str response) {
    const struct responses_state *state = g->wire_state;
    struct response_record record = {g->id, response, state->items};
    if (state->is_kept) response_store_put(g->call->server->responses, &record);
}

static void put_whole(struct generation *g, struct sb *out) {
    struct jsonw w = {.out = out};
    responses_put(g, final_status(g), &w);
    keep(g, sb_str(out));
}

/* ---- events ------------------------------------------------------------------------------------------------------------- */

static void begin_event(struct generation *g, struct jsonw *w, const char *type) {
    struct responses_state *state = g->wire_state;
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", str_of(type));
    jsonw_put_int(w, "sequence_number", state->n_events++);
}

static void end_event(struct jsonw *w, const char *type, struct sb *out) {
    jsonw_end(w, '}');
    sse_put(out, type, sb_str(w->out));
    sb_free(w->out);
}

static void put_response_event(struct generation *g, const char *type, const char *status, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    begin_event(g, &w, type);
    jsonw_key(&w, "response");
    responses_put(g, status, &w);
    end_event(&w, type, out);
}

static void put_item_event(const struct responses_item *it, const char *type, const char *status, bool is_new, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    begin_event(it->g, &w, type);
    jsonw_put_int(&w, "output_index", it->k);
    jsonw_key(&w, "item");
    responses_item_put(it, status, is_new, &w);
    end_event(&w, type, out);
}

/* An event of something in an item: the keys that all of them have. */
static void begin_inner(const struct responses_item *it, struct jsonw *w, const char *type) {
    begin_event(it->g, w, type);
    jsonw_put_str(w, "item_id", str_of(responses_item_id(it).text));
    jsonw_put_int(w, "output_index", it->k);
    if (it->p->kind != OUTPUT_CALL) jsonw_put_int(w, "content_index", 0);
}

static void put_part_event(const struct responses_item *it, const char *type, struct str text, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    if (it->p->kind == OUTPUT_CALL) return;
    begin_inner(it, &w, type);
    jsonw_key(&w, "part");
    responses_item_put_part(&w, it->p->kind, text);
    end_event(&w, type, out);
}

/* What events of an item's text are called, and the key that holds the whole of it. */
struct text_names {
    const char *delta, *done, *key;
};

static struct text_names names_of(const struct responses_item *it) {
    static const struct text_names message = {"response.output_text.delta", "response.output_text.done", "text"};
    static const struct text_names thoughts = {"response.reasoning_text.delta", "response.reasoning_text.done", "text"};
    static const struct text_names call = {"response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments"};
    static const struct text_names custom = {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "input"};
    if (it->p->kind == OUTPUT_CALL) return it->is_custom ? custom : call;
    return it->p->kind == OUTPUT_CONTENT ? message : thoughts;
}

static void put_text_event(const struct responses_item *it, const char *type, const char *key, struct str text, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    begin_inner(it, &w, type);
    jsonw_put_str(&w, key, text);
    if (it->p->kind == OUTPUT_CONTENT) jsonw_put_raw(&w, "logprobs", STR("[]"));
    if (it->p->kind == OUTPUT_CALL && strcmp(key, "arguments") == 0) jsonw_put_str(&w, "name", output_piece_text(&it->c->all, it->p));
    end_event(&w, type, out);
}

static void open_item(struct generation *g, struct gen_choice *c, enum output_kind kind, struct sb *out) {
    struct responses_state *state = g->wire_state;
    state->is_open = true;
    state->kind = kind;
    struct responses_item it = responses_item_at(g, c, state->n_items++);
    put_item_event(&it, "response.output_item.added", "in_progress", true, out);
    put_part_event(&it, "response.content_part.added", STR(""), out);
}

static void close_item(struct generation *g, struct gen_choice *c, const char *status, struct sb *out) {
    struct responses_state *state = g->wire_state;
    if (!state->is_open) return;
    struct responses_item it = responses_item_at(g, c, state->n_items - 1);
    struct text_names names = names_of(&it);
    struct str text = responses_item_text(&it);
    state->is_open = false;
    if (it.is_custom) put_text_event(&it, names.delta, "delta", text, out);
    put_text_event(&it, names.done, names.key, text, out);
    put_part_event(&it, "response.content_part.done", text, out);
    put_item_event(&it, "response.output_item.done", status, false, out);
}

static void put_delta(struct generation *g, struct gen_choice *c, struct str text, struct sb *out) {
    const struct responses_state *state = g->wire_state;
    struct responses_item it = responses_item_at(g, c, state->n_items - 1);
    if (!it.is_custom) put_text_event(&it, names_of(&it).delta, "delta", text, out); /* a custom tool's input stands inside its arguments */
}

static void put_begin(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct output_pieces all = c->all;
    c->all = (struct output_pieces){0}; /* what has come already is told next */
    put_response_event(g, "response.created", "in_progress", out);
    put_response_event(g, "response.in_progress", "in_progress", out);
    c->all = all;
}

static void put_pieces(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct responses_state *state = g->wire_state;
    for (size_t i = 0; i < c->pieces.n; i++) {
        const struct output_piece *p = &c->pieces.p[i];
        bool goes_on = state->is_open && state->kind == p->kind && p->kind != OUTPUT_CALL;
        if (responses_item_begins(p) && !goes_on) {
            close_item(g, c, "completed", out);
            open_item(g, c, p->kind, out);
        }
        if (p->kind == OUTPUT_CALL_END) close_item(g, c, "completed", out);
        else if (p->kind == OUTPUT_CALL_CUT) close_item(g, c, "incomplete", out);
        else if (p->kind != OUTPUT_CALL) put_delta(g, c, output_piece_text(&c->pieces, p), out);
    }
}

static void put_end(struct generation *g, struct gen_choice *c, struct sb *out) {
    close_item(g, c, final_status(g), out);
}

static void put_done(struct generation *g, struct sb *out) {
    const char *status = final_status(g);
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    put_response_event(g, strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete", status, out);
    responses_put(g, status, &w);
    keep(g, sb_str(&json));
    sb_free(&json);
}

static void put_failure(struct generation *g, struct sb *out) {
    if (!g->choices[0].has_begun) put_begin(g, &g->choices[0], out);
    put_response_event(g, "response.failed", "failed", out);
}

const struct gen_format responses_format = {.id_prefix = "resp_",
                                            .input = "input",
                                            .splits = true,
                                            .calls_in_parts = true,
                                            .keeps = true,
                                            .begin = put_begin,
                                            .piece = put_pieces,
                                            .end = put_end,
                                            .done = put_done,
                                            .fail = put_failure,
                                            .whole = put_whole};
