/* A conversation to a generation: what all protocols of chats share. Each of them turns its request into the fields of OpenAI's chat
 * completions, whose meaning is the widest. */
#ifndef MLXCEL_SERVER_CHAT_H
#define MLXCEL_SERVER_CHAT_H

#include "server/generate.h"

/* Reads parameters, tools, messages and constraints of `body` (OpenAI's chat completions) and encodes the prompt; c->state becomes the
 * generation. Nonzero: c->error says why not. On a worker. */
int chat_prepare(struct call *c, yyjson_val *body, const struct gen_format *format);
/* Tokens of the prompt that chat_prepare would make; nothing is generated. */
int chat_count(struct call *c, yyjson_val *body, int32_t *out_n);
/* What a call is known by: the id that the model wrote, or one that we make where it wrote none or a short one, which others may have.
 * pieces: those that p is one of. */
struct str chat_call_id(struct generation *g, const struct gen_choice *c, const struct output_pieces *pieces, const struct output_piece *p);
/* The arguments of a call, joined; in the arena of the request. */
struct str chat_call_arguments(struct generation *g, const struct output_pieces *pieces, int32_t call);

#endif
