/* The output chain: tokens in, finished pieces of text out.
 *
 * Three stages, in this order: the tokenizer's stream makes complete characters, stop strings end the text, the splitter tells
 * content, reasoning and calls apart (output.h). Each holds back what is not yet certain. The pieces are the same however
 * often they are taken.
 *
 * The chain knows strings and one tokenizer, no engine. One thread uses a chain at a time.
 */
#ifndef MLXCEL_TEXT_OUTPUT_CHAIN_H
#define MLXCEL_TEXT_OUTPUT_CHAIN_H

#include "text/output/output.h"
#include "text/output/stop.h"
#include "text/tokenizer/tokenizer.h"

struct chain_options {
    const struct str *stops; /* [n_stops] strings that end the text and are not part of it */
    size_t n_stops;
    bool keeps_stop;              /* the one that was found is part of the text */
    bool continues;               /* the text goes on with another: a space at its front stays */
    bool splits;                  /* the text is taken apart; else all of it is content */
    struct output_options output; /* how; its tokenizer is the chain's */
};

struct chain {
    struct tok_stream stream;
    struct stop stop;
    struct output output;
    struct sb raw, text; /* of one token: before and behind the stop strings */
    const struct output_format *format;
    const struct output_reasoning *reasoning;
    bool splits;
};

/* Copies the strings into the arena. Format and tools must outlive the chain. */
int chain_init(struct chain *c, struct arena *a, const struct tok *tok, const struct chain_options *options, struct err *err);
void chain_free(struct chain *c); /* zeroed storage is fine */
/* Appends what a token makes certain to *out. True: a stop string is complete, the text is over. A token that cannot be decoded adds nothing. */
bool chain_push(struct chain *c, int32_t token, struct output_pieces *out);
/* The text ends: what was held back comes out, unless a stop string was found. is_cut: a limit on its length ended it. */
void chain_flush(struct chain *c, bool is_cut, struct output_pieces *out);
/* Index of the stop string that was found; -1: none. */
int32_t chain_stopped_by(const struct chain *c);
/* What comes next is reasoning, unless it ends it; content, unless it begins something else. */
bool chain_is_reasoning(const struct chain *c);
bool chain_is_content(const struct chain *c);
/* The text of the last token, as far as its characters are complete, with marks around a marker. */
struct str chain_last(const struct chain *c);

#endif
