/* Items of a response's input, in chat's form. */
#ifndef MLXCEL_SERVER_WIRE_RESPONSES_INPUT_H
#define MLXCEL_SERVER_WIRE_RESPONSES_INPUT_H

#include "base/json.h"
#include "server/api_error.h"

/* The key messages of an object that is open: the instructions of body, then the items, of which n_before come from earlier turns. */
int responses_input_put(struct jsonw *w, yyjson_val *body, yyjson_val *items, size_t n_before, struct api_error *e);

#endif
