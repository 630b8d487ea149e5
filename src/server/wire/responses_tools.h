/* Tools of a response's request, in chat's form. */
#ifndef MLXCEL_SERVER_WIRE_RESPONSES_TOOLS_H
#define MLXCEL_SERVER_WIRE_RESPONSES_TOOLS_H

#include "base/json.h"
#include "server/api_error.h"

/* The key tools of an object that is open. customs: a list of the names of those whose input is a text. */
int responses_tools_put(struct jsonw *w, yyjson_val *body, struct jsonw *customs, struct api_error *e);
/* Likewise tool_choice. */
int responses_tools_put_choice(struct jsonw *w, yyjson_val *body, struct api_error *e);

#endif
