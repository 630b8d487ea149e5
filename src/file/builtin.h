/* The model inside the program: files by name, as they would lie in a model folder. */
#ifndef MLXCEL_FILE_BUILTIN_H
#define MLXCEL_FILE_BUILTIN_H

#include "base/str.h"

#define BUILTIN_NAME "built-in model"

/* The bytes live as long as the program; a NUL follows them. False when the model has no such file. */
bool builtin_file(struct str name, struct str *out);

#endif
