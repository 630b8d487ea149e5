/* Numbers that nobody can guess, for keys. */
#ifndef MLXCEL_OS_RANDOM_H
#define MLXCEL_OS_RANDOM_H

#include "base/err.h"

#include <stddef.h>

int os_random(void *out, size_t n, struct err *err);

#endif
