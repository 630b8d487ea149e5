/* HMAC with SHA-256 (RFC 2104): a number that only who has the key can give to a message. */
#ifndef MLXCEL_BASE_HMAC_H
#define MLXCEL_BASE_HMAC_H

#include "base/sha256.h"

#include <stdbool.h>

enum { HMAC_BYTES = 32 };

void hmac_sha256(const void *key, size_t n_key, const void *message, size_t n, unsigned char out[HMAC_BYTES]);
/* Takes the same time wherever they differ. */
bool hmac_equal(const unsigned char a[HMAC_BYTES], const unsigned char b[HMAC_BYTES]);

#endif
