/* Anthropic's messages, between its files: requests become OpenAI's chat, answers become blocks. */
#ifndef MLXCEL_SERVER_WIRE_ANTHROPIC_H
#define MLXCEL_SERVER_WIRE_ANTHROPIC_H

#include "server/chat.h"

/* What a request is read for: an answer, or the number of its tokens, which needs no max_tokens. */
enum anthropic_use { ANTHROPIC_ANSWERS, ANTHROPIC_COUNTS };

/* The body of c in the fields of OpenAI's chat completions, in the call's arena. Nonzero: c->error names the field as it was written. */
int anthropic_to_chat(struct call *c, enum anthropic_use use, yyjson_val **out_body);
/* The fields of an error of chat_prepare, under the names that they have here. */
void anthropic_rename_fields(struct api_error *e);

/* What an answer needs; the generation's wire_state, in the arena. */
struct anthropic_state {
    bool hides_thoughts; /* thinking.display omitted: blocks of thinking are empty */
    /* of a stream */
    bool is_open;          /* a block is */
    enum output_kind kind; /* of that block: content, reasoning, call */
    int32_t n_blocks;
};

extern const struct gen_format anthropic_format;

#endif
