/* The output chain: tokens in, finished text out, split into reasoning and content.
 *
 * Three stages, in this order: the tokenizer's stream makes complete characters, stop strings end the text, the splitter tells
 * reasoning from content. Each holds back what is not yet certain. The text is the same however often it is taken.
 *
 * The chain knows strings and one tokenizer, no engine. One thread uses a chain at a time.
 */
#ifndef MLXCEL_TEXT_OUTPUT_CHAIN_H
#define MLXCEL_TEXT_OUTPUT_CHAIN_H

#include "text/output/reasoning.h"
#include "text/output/stop.h"
#include "text/tokenizer/tokenizer.h"

struct chain_options {
    const struct str *stops; /* [n_stops] strings that end the text and are not part of it */
    size_t n_stops;
    bool splits;    /* reasoning at the beginning is told from the content */
    bool inside;    /* the prompt left the model inside its reasoning */
    bool continues; /* the text goes on with the prompt's: a space at its front stays */
};

struct chain {
    struct tok_stream stream;
    struct stop stop;
    struct reasoning split;
    struct sb raw, text; /* of one token: before and behind the stop strings */
    bool splits;
};

/* Where finished text goes: it is appended. */
struct chain_out {
    struct sb *content, *reasoning;
};

/* Copies the strings into the arena. */
int chain_init(struct chain *c, struct arena *a, const struct tok *tok, const struct chain_options *options, struct err *err);
void chain_free(struct chain *c); /* zeroed storage is fine */
/* Adds a token's text. True: a stop string is complete, the text is over. A token that cannot be decoded adds nothing. */
bool chain_push(struct chain *c, int32_t token, struct chain_out out);
/* The text ends: what was held back comes out. Unless a stop string was found. */
void chain_flush(struct chain *c, struct chain_out out);
/* Index of the stop string that was found; -1: none. */
int32_t chain_stopped_by(const struct chain *c);

#endif
