/* Tokenizers by path: what the commands `tokenize` and `detokenize` use, and whoever opens a model. */
#ifndef MLXCEL_API_TEXT_TOOLS_H
#define MLXCEL_API_TEXT_TOOLS_H

#include "text/tokenizer/tokenizer.h"

/* path: a model folder (tokenizer.json, else tekken.json, tokenizer.model or a .tiktoken file), one of those files itself, or
 * NULL for the built-in model. tokenizer_config.json is read from beside it where there is one. */
int text_tokenizer_open(const char *path, struct tok **out, struct err *err);

#endif
