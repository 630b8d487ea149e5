/* Fields of requests that would change the answer and are not there yet. They are refused by name: an answer that leaves them out would look
 * like one that kept to them. */
#ifndef MLXCEL_SERVER_FIELDS_H
#define MLXCEL_SERVER_FIELDS_H

#include "base/json.h"
#include "server/api_error.h"

/* Nonzero, with the error, where the body holds such a field with a value that asks for something. sets: one of enum param_sets. */
int fields_refuse(yyjson_val *body, unsigned sets, struct api_error *e);

/* A value that asks for nothing: one of the list, whose values are separated by "|" (NULL: none), or null, "" or []. */
bool fields_is_harmless(yyjson_val *val, const char *list);

#endif
