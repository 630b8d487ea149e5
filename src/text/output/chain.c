/* The output chain: three stages in a row. */
#include "text/output/chain.h"

int chain_init(struct chain *c, struct arena *a, const struct tok *tok, const struct chain_options *options, struct err *err) {
    *c = (struct chain){.splits = options->splits};
    tok_stream_init(&c->stream, tok, true);
    if (options->continues) tok_stream_continue(&c->stream);
    reasoning_init(&c->split, options->inside);
    return stop_init(&c->stop, a, options->stops, options->n_stops, err);
}

void chain_free(struct chain *c) {
    if (c->stream.t) tok_stream_free(&c->stream);
    stop_free(&c->stop);
    reasoning_free(&c->split);
    sb_free(&c->raw);
    sb_free(&c->text);
}

/* Hands on what has passed the stop strings. */
static void give(struct chain *c, struct chain_out out) {
    if (c->splits) reasoning_push(&c->split, sb_str(&c->text), out.reasoning, out.content);
    else sb_put(out.content, sb_str(&c->text));
    sb_clear(&c->text);
}

/* No more text will come. */
static void finish(struct chain *c, struct chain_out out) {
    give(c, out);
    if (c->splits) reasoning_flush(&c->split, out.reasoning, out.content);
}

bool chain_push(struct chain *c, int32_t token, struct chain_out out) {
    struct err err;
    sb_clear(&c->raw);
    if (tok_stream_push(&c->stream, token, &c->raw, &err)) return false;
    bool stopped = stop_push(&c->stop, sb_str(&c->raw), &c->text);
    if (stopped) finish(c, out);
    else give(c, out);
    return stopped;
}

void chain_flush(struct chain *c, struct chain_out out) {
    struct err err;
    if (c->stop.matched >= 0) return;
    sb_clear(&c->raw);
    if (tok_stream_flush(&c->stream, &c->raw, &err) == ERR_OK) stop_push(&c->stop, sb_str(&c->raw), &c->text);
    stop_flush(&c->stop, &c->text);
    finish(c, out);
}

int32_t chain_stopped_by(const struct chain *c) {
    return c->stop.matched;
}
