/* SHA-256 at this machine's best speed. */
#ifndef MLXCEL_HUB_DIGEST_H
#define MLXCEL_HUB_DIGEST_H

#include "base/err.h"
#include "base/sha256.h"

void digest_begin(struct sha256 *s);
void digest_end(struct sha256 *s, char out_hex[65]);
/* Of a whole file. */
int digest_file(const char *path, char out_hex[65], struct err *err);

#endif
