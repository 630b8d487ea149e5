/* Fields of requests that name tokens: which may come, and which end an answer. */
#ifndef MLXCEL_SERVER_TOKEN_FIELDS_H
#define MLXCEL_SERVER_TOKEN_FIELDS_H

#include "base/json.h"
#include "server/params.h"

/* stop_token_ids, allowed_token_ids and bad_words of a body. */
int token_fields_read(struct arena *a, yyjson_val *body, struct params *p, struct api_error *e);

#endif
