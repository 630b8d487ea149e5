/* Anthropic's answers: a message of blocks, whole or as events. A block is text, thinking or a call; in a stream one is open at a time. */
#include "server/wire/anthropic.h"

#include "server/adapters.h"
#include "server/sse.h"

#include "base/hash.h"

/* ---- what both forms have ------------------------------------------------------------------------------------------------ */

/* Tokens that were known from an earlier request are not among the input's. */
static void put_usage(const struct generation *g, int32_t n_new, struct jsonw *w) {
    const struct job_usage *u = &g->choices[0].usage;
    jsonw_open(w, "usage", '{');
    jsonw_put_int(w, "input_tokens", g->prompts[0].ids.n - u->n_cached);
    jsonw_put_int(w, "cache_creation_input_tokens", 0);
    jsonw_put_int(w, "cache_read_input_tokens", u->n_cached);
    jsonw_put_int(w, "output_tokens", n_new);
    jsonw_open(w, "output_tokens_details", '{');
    jsonw_put_int(w, "thinking_tokens", n_new < u->n_reasoning ? n_new : u->n_reasoning);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

/* Why it ended, and by which stop sequence; both null while it goes on. */
static void put_stop(const struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    bool by_string = c->finish == JOB_STOP && c->stopped_by >= 0 && c->n_calls == 0;
    bool is_limit = g->params.job.max_new >= 0 && c->usage.n_new >= g->params.job.max_new; /* else the context is full */
    jsonw_key(w, "stop_reason");
    if (!c->finish) jsonw_null(w);
    else if (c->finish != JOB_STOP) jsonw_str(w, is_limit ? STR("max_tokens") : STR("model_context_window_exceeded"));
    else if (by_string) jsonw_str(w, STR("stop_sequence"));
    else jsonw_str(w, c->n_calls ? STR("tool_use") : STR("end_turn"));
    jsonw_key(w, "stop_sequence");
    if (by_string) jsonw_str(w, g->params.job.stops[c->stopped_by]);
    else jsonw_null(w);
}

static void put_head(const struct generation *g, struct jsonw *w) {
    jsonw_put_str(w, "id", g->id);
    jsonw_put_str(w, "type", STR("message"));
    jsonw_put_str(w, "role", STR("assistant"));
    jsonw_put_str(w, "model", adapters_model_name(g->call));
}

/* Clients keep thinking only with a signature, and send both back. Ours says nothing: any is taken. */
static void put_signature(const struct generation *g, struct jsonw *w) {
    uint64_t hash = hash_bytes(g->id.p, g->id.n, 0);
    jsonw_put_str(w, "signature", str_fmt(&g->call->arena, "mlxcel%016llx", (unsigned long long)hash));
}

/* ---- in one piece ------------------------------------------------------------------------------------------------------- */

static void put_call_block(struct generation *g, struct gen_choice *c, const struct output_piece *p, struct jsonw *w) {
    struct str arguments = chat_call_arguments(g, &c->pieces, p->call);
    yyjson_val *parsed;
    bool is_object = !json_parse(&g->call->arena, arguments, "arguments", JSON_STRICT, &parsed, NULL) && yyjson_is_obj(parsed);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("tool_use"));
    jsonw_put_str(w, "id", chat_call_id(g, c, &c->pieces, p));
    jsonw_put_str(w, "name", output_piece_text(&c->pieces, p));
    jsonw_put_raw(w, "input", is_object ? arguments : STR("{}"));
    jsonw_end(w, '}');
}

static void put_block(struct generation *g, struct gen_choice *c, const struct output_piece *p, struct jsonw *w) {
    const struct anthropic_state *state = g->wire_state;
    struct str text = output_piece_text(&c->pieces, p);
    if (p->kind == OUTPUT_CALL) {
        put_call_block(g, c, p, w);
    } else if (p->kind == OUTPUT_CONTENT) {
        jsonw_begin(w, '{');
        jsonw_put_str(w, "type", STR("text"));
        jsonw_put_str(w, "text", text);
        jsonw_end(w, '}');
    } else if (p->kind == OUTPUT_REASONING) {
        jsonw_begin(w, '{');
        jsonw_put_str(w, "type", STR("thinking"));
        jsonw_put_str(w, "thinking", state->hides_thoughts ? STR("") : text);
        put_signature(g, w);
        jsonw_end(w, '}');
    }
}

/* Neighbours of one kind are one piece already. */
static void put_whole(struct generation *g, struct sb *out) {
    struct gen_choice *c = &g->choices[0];
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    put_head(g, &w);
    jsonw_open(&w, "content", '[');
    for (size_t i = 0; i < c->pieces.n; i++) put_block(g, c, &c->pieces.p[i], &w);
    jsonw_end(&w, ']');
    put_stop(g, c, &w);
    put_usage(g, c->usage.n_new, &w);
    jsonw_end(&w, '}');
}

/* ---- events ------------------------------------------------------------------------------------------------------------- */

static void begin_event(struct jsonw *w, const char *type) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", str_of(type));
}

static void end_event(struct jsonw *w, const char *type, struct sb *out) {
    jsonw_end(w, '}');
    sse_put(out, type, sb_str(w->out));
    sb_free(w->out);
}

/* An event of the block that is open, up to where its delta's own keys go. */
static void begin_delta(const struct anthropic_state *s, struct jsonw *w, const char *type) {
    begin_event(w, "content_block_delta");
    jsonw_put_int(w, "index", s->n_blocks - 1);
    jsonw_open(w, "delta", '{');
    jsonw_put_str(w, "type", str_of(type));
}

static void end_delta(struct jsonw *w, struct sb *out) {
    jsonw_end(w, '}');
    end_event(w, "content_block_delta", out);
}

static void put_text_delta(const struct anthropic_state *s, const char *type, const char *key, struct str text, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    begin_delta(s, &w, type);
    jsonw_put_str(&w, key, text);
    end_delta(&w, out);
}

static void close_block(struct generation *g, struct anthropic_state *s, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    if (!s->is_open) return;
    if (s->kind == OUTPUT_REASONING) {
        begin_delta(s, &w, "signature_delta");
        put_signature(g, &w);
        end_delta(&w, out);
        w = (struct jsonw){.out = &json};
    }
    begin_event(&w, "content_block_stop");
    jsonw_put_int(&w, "index", s->n_blocks - 1);
    end_event(&w, "content_block_stop", out);
    s->is_open = false;
}

/* An empty block, which deltas fill. */
static void put_empty_block(struct generation *g, struct gen_choice *c, const struct output_piece *p, struct jsonw *w) {
    jsonw_open(w, "content_block", '{');
    if (p->kind == OUTPUT_CALL) {
        jsonw_put_str(w, "type", STR("tool_use"));
        jsonw_put_str(w, "id", chat_call_id(g, c, &c->pieces, p));
        jsonw_put_str(w, "name", output_piece_text(&c->pieces, p));
        jsonw_put_raw(w, "input", STR("{}"));
    } else if (p->kind == OUTPUT_REASONING) {
        jsonw_put_str(w, "type", STR("thinking"));
        jsonw_put_str(w, "thinking", STR(""));
        jsonw_put_str(w, "signature", STR(""));
    } else {
        jsonw_put_str(w, "type", STR("text"));
        jsonw_put_str(w, "text", STR(""));
    }
    jsonw_end(w, '}');
}

/* The block that the piece belongs to is open behind this. The first one is followed by a ping, as Anthropic's own streams have it. */
static void open_block(struct generation *g, struct gen_choice *c, const struct output_piece *p, struct sb *out) {
    struct anthropic_state *s = g->wire_state;
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    if (s->is_open && s->kind == p->kind && p->kind != OUTPUT_CALL) return;
    close_block(g, s, out);
    s->is_open = true;
    s->kind = p->kind;
    s->n_blocks++;
    begin_event(&w, "content_block_start");
    jsonw_put_int(&w, "index", s->n_blocks - 1);
    put_empty_block(g, c, p, &w);
    end_event(&w, "content_block_start", out);
    if (s->n_blocks == 1) g->call->wire->ping(out);
}

static void put_begin(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    begin_event(&w, "message_start");
    jsonw_open(&w, "message", '{');
    put_head(g, &w);
    jsonw_open(&w, "content", '[');
    jsonw_end(&w, ']');
    put_stop(g, &(struct gen_choice){.stopped_by = -1}, &w);
    put_usage(g, 1, &w); /* the first token; message_delta has them all */
    jsonw_end(&w, '}');
    end_event(&w, "message_start", out);
    (void)c;
}

static void put_pieces(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct anthropic_state *s = g->wire_state;
    for (size_t i = 0; i < c->pieces.n; i++) {
        const struct output_piece *p = &c->pieces.p[i];
        struct str text = output_piece_text(&c->pieces, p);
        switch (p->kind) {
        case OUTPUT_CONTENT:
            open_block(g, c, p, out);
            put_text_delta(s, "text_delta", "text", text, out);
            break;
        case OUTPUT_REASONING:
            open_block(g, c, p, out);
            if (!s->hides_thoughts) put_text_delta(s, "thinking_delta", "thinking", text, out);
            break;
        case OUTPUT_CALL:
            open_block(g, c, p, out);
            put_text_delta(s, "input_json_delta", "partial_json", STR(""), out);
            break;
        case OUTPUT_ARGUMENTS: put_text_delta(s, "input_json_delta", "partial_json", text, out); break;
        case OUTPUT_CALL_END:
        case OUTPUT_CALL_CUT: close_block(g, s, out); break;
        }
    }
}

static void put_end(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    close_block(g, g->wire_state, out);
    begin_event(&w, "message_delta");
    jsonw_open(&w, "delta", '{');
    put_stop(g, c, &w);
    jsonw_end(&w, '}');
    put_usage(g, c->usage.n_new, &w);
    end_event(&w, "message_delta", out);
}

static void put_done(struct generation *g, struct sb *out) {
    (void)g;
    sse_put(out, "message_stop", STR("{\"type\":\"message_stop\"}"));
}

const struct gen_format anthropic_format = {.id_prefix = "msg_",
                                            .input = "messages",
                                            .splits = true,
                                            .calls_in_parts = true,
                                            .begin = put_begin,
                                            .piece = put_pieces,
                                            .end = put_end,
                                            .done = put_done,
                                            .whole = put_whole};
