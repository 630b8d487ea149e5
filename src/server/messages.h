/* Messages of a chat request to what the model's template takes. */
#ifndef MLXCEL_SERVER_MESSAGES_H
#define MLXCEL_SERVER_MESSAGES_H

#include "base/json.h"
#include "server/api_error.h"
#include "server/pictures.h"
#include "server/server.h"

struct messages_options {
    yyjson_val *tools; /* NULL: none */
    bool prefills;     /* an answer at the end of the messages is gone on with, unless the request says otherwise */
    enum messages_thinking thinking;
    struct pictures *pictures; /* takes what image parts bring */
};

/* The template's input as JSON, appended to out: messages with plain text contents, or with
 * lists of texts and images where they bring some, tools, add_generation_prompt, continue_final_message, and
 * the keywords of chat_template_kwargs. Refuses what a text model cannot read, naming the message and the part. */
int messages_to_input(yyjson_val *body, const struct messages_options *options, struct sb *out, struct api_error *e);

#endif
