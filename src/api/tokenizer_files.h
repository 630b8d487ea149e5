/* Tokenizers by path: what the commands `tokenize` and `detokenize` use, and whoever opens a model. */
#ifndef MLXCEL_API_TOKENIZER_FILES_H
#define MLXCEL_API_TOKENIZER_FILES_H

#include "file/checkpoint.h"
#include "text/tokenizer/tokenizer.h"

/* path: a model folder (tokenizer.json, else tekken.json, tokenizer.model or a .tiktoken file), one of those files itself, a .gguf file, or
 * NULL for the built-in model. tokenizer_config.json is read from beside it where there is one. */
int text_tokenizer_open(const char *path, struct tok **out, struct err *err);
/* That of a model that is open. */
int text_tokenizer_of(const struct checkpoint *c, struct tok **out, struct err *err);

#endif
