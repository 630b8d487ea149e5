/* Messages of Anthropic's requests, in chat's form. */
#ifndef MLXCEL_SERVER_WIRE_ANTHROPIC_MESSAGES_H
#define MLXCEL_SERVER_WIRE_ANTHROPIC_MESSAGES_H

#include "base/json.h"
#include "server/api_error.h"

/* The keys messages and continue_final_message of an object that is open, from system and messages. */
int anthropic_messages_put(struct jsonw *w, yyjson_val *body, struct api_error *e);

#endif
