/* SHA-256 (FIPS 180-4): what hubs publish for large files. Ours, because the Windows build links no OpenSSL. */
#ifndef MLXCEL_BASE_SHA256_H
#define MLXCEL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* Whole blocks of 64 bytes into the state. */
typedef void sha256_blocks_fn(uint32_t state[8], const unsigned char *data, size_t n_blocks);
extern const uint32_t sha256_constants[64];

struct sha256 {
    sha256_blocks_fn *blocks; /* plain C after sha256_init; a faster one may be put here before the first byte */
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64];
};

void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t n);
void sha256_final(struct sha256 *s, unsigned char out[32]);
void sha256_hex(const unsigned char digest[32], char out[65]);

#endif
