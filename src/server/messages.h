/* Messages of a chat request to what the model's template takes. */
#ifndef MLXCEL_SERVER_MESSAGES_H
#define MLXCEL_SERVER_MESSAGES_H

#include "base/json.h"
#include "server/api_error.h"
#include "server/server.h"

/* The template's input as JSON, appended to out: messages with plain text contents, tools (NULL: none), add_generation_prompt, and the
 * keywords of chat_template_kwargs. Refuses what a text model cannot read, naming the message and the part. */
int messages_to_input(yyjson_val *body, yyjson_val *tools, enum messages_thinking thinking, struct sb *out, struct api_error *e);

#endif
