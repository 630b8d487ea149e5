/* SHA-256 at this machine's best speed. */
#ifndef MLXCEL_HUB_DIGEST_H
#define MLXCEL_HUB_DIGEST_H

#include "base/err.h"
#include "base/sha256.h"
#include "hub/watch.h"

void digest_begin(struct sha256 *s);
void digest_end(struct sha256 *s, char out_hex[65]);
/* Of a whole file. watch may be NULL. */
int digest_file(const char *path, char out_hex[65], struct watch *watch, struct err *err);

#endif
