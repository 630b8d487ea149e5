/* logit_bias of a request: OpenAI's object of token ids, and llama-server's forms: words instead of ids, a list of pairs, false for "never". */
#ifndef MLXCEL_SERVER_BIAS_H
#define MLXCEL_SERVER_BIAS_H

#include "base/json.h"
#include "server/params.h"

/* list: the field's value; NULL: it is absent. */
int bias_read(struct arena *a, yyjson_val *list, struct params *p, struct api_error *e);

#endif
