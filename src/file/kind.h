/* What a file is that was given as a model: told by its first bytes and its name, for the message that refuses it. Knows nothing of what a model holds. */
#ifndef MLXCEL_FILE_KIND_H
#define MLXCEL_FILE_KIND_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* Whether text commands read the file by itself: a tokenizer or a chat template. */
bool file_kind_is_text_part(const char *path);
/* 0 where the file may hold weights: it begins as GGUF or safetensors, or is called so, and its reader knows what is wrong with it. Else the message
 * says what it is and what to give instead. */
int file_kind_check(const char *path, struct err *err);
/* The same of a file that begins with these bytes. */
int file_kind_check_bytes(const char *path, struct str bytes, struct err *err);

#endif
