/* A conversation whose last message goes on: the prompt ends with that message's text, and the answer is the rest of it. */
#ifndef MLXCEL_TEXT_CHAT_CHAT_CONTINUE_H
#define MLXCEL_TEXT_CHAT_CHAT_CONTINUE_H

#include "text/template/template.h"

/* Renders ctx->input, which asks for a continuation, up to the end of its last message's text. */
int chat_continue_render(const struct tmpl *t, struct arena *a, const struct tmpl_context *ctx, struct tmpl_output *out, struct err *err);
/* Whether the input asks for that. */
bool chat_continues(yyjson_val *input);

#endif
