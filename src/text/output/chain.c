/* The output chain: three stages in a row. */
#include "text/output/chain.h"

int chain_init(struct chain *c, struct arena *a, const struct tok *tok, const struct chain_options *options, struct err *err) {
    *c = (struct chain){.splits = options->splits, .format = options->output.format, .reasoning = options->output.reasoning};
    tok_stream_init(&c->stream, tok, true);
    if (options->continues) tok_stream_continue(&c->stream);
    if (options->splits) {
        struct output_options output = options->output;
        output.tok = tok;
        output_init(&c->output, a, &output);
    }
    TRY(stop_init(&c->stop, a, options->stops, options->n_stops, err));
    c->stop.keeps = options->keeps_stop;
    return ERR_OK;
}

void chain_free(struct chain *c) {
    if (c->stream.t) tok_stream_free(&c->stream);
    stop_free(&c->stop);
    output_free(&c->output);
    sb_free(&c->raw);
    sb_free(&c->text);
}

/* Hands on what has passed the stop strings. */
static void give(struct chain *c, struct output_pieces *out) {
    if (c->splits) output_push(&c->output, sb_str(&c->text), out);
    else output_pieces_add(out, OUTPUT_CONTENT, sb_str(&c->text));
    sb_clear(&c->text);
}

/* No more text will come. */
static void finish(struct chain *c, bool is_cut, struct output_pieces *out) {
    give(c, out);
    if (c->splits) output_flush(&c->output, is_cut, out);
}

/* A token that is one of the format's markers: its letters stand in the text, marked as a token's. */
static bool is_marker(const struct chain *c, int32_t token) {
    const struct tok *t = c->stream.t;
    return c->splits && output_uses_token(c->format, c->reasoning, tok_token_text(t, token));
}

static void put_marker(struct chain *c, int32_t token) {
    struct err err;
    tok_stream_flush(&c->stream, &c->raw, &err);
    tok_stream_continue(&c->stream); /* what follows is no text of its own */
    sb_puts(&c->raw, OUTPUT_TOKEN_MARK);
    sb_put(&c->raw, tok_token_text(c->stream.t, token));
    sb_puts(&c->raw, OUTPUT_TOKEN_MARK);
}

bool chain_push(struct chain *c, int32_t token, struct output_pieces *out) {
    struct err err;
    sb_clear(&c->raw);
    if (is_marker(c, token)) put_marker(c, token);
    else if (tok_stream_push(&c->stream, token, &c->raw, &err)) return false;
    bool stopped = stop_push(&c->stop, sb_str(&c->raw), &c->text);
    if (stopped) finish(c, false, out);
    else give(c, out);
    return stopped;
}

void chain_flush(struct chain *c, bool is_cut, struct output_pieces *out) {
    struct err err;
    if (c->stop.matched >= 0) return;
    sb_clear(&c->raw);
    if (tok_stream_flush(&c->stream, &c->raw, &err) == ERR_OK) stop_push(&c->stop, sb_str(&c->raw), &c->text);
    stop_flush(&c->stop, &c->text);
    finish(c, is_cut, out);
}

int32_t chain_stopped_by(const struct chain *c) {
    return c->stop.matched;
}

bool chain_is_reasoning(const struct chain *c) {
    return c->splits && output_is_reasoning(&c->output);
}

bool chain_is_content(const struct chain *c) {
    return !c->splits || output_is_content(&c->output);
}

struct str chain_last(const struct chain *c) {
    return sb_str(&c->raw);
}
