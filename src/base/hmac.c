/* HMAC with SHA-256. */
#include "base/hmac.h"

#include <string.h>

enum { BLOCK = 64 };

static void hash_two(const unsigned char key[BLOCK], unsigned char mask, const void *message, size_t n, unsigned char out[HMAC_BYTES]) {
    unsigned char pad[BLOCK];
    struct sha256 s;
    for (int i = 0; i < BLOCK; i++) pad[i] = key[i] ^ mask;
    sha256_init(&s);
    sha256_update(&s, pad, BLOCK);
    sha256_update(&s, message, n);
    sha256_final(&s, out);
}

void hmac_sha256(const void *key, size_t n_key, const void *message, size_t n, unsigned char out[HMAC_BYTES]) {
    unsigned char block[BLOCK] = {0}, inner[HMAC_BYTES];
    struct sha256 s;
    if (n_key > BLOCK) {
        sha256_init(&s);
        sha256_update(&s, key, n_key);
        sha256_final(&s, block);
    } else if (n_key) {
        memcpy(block, key, n_key);
    }
    hash_two(block, 0x36, message, n, inner);
    hash_two(block, 0x5C, inner, sizeof inner, out);
}

bool hmac_equal(const unsigned char a[HMAC_BYTES], const unsigned char b[HMAC_BYTES]) {
    unsigned char differs = 0;
    for (int i = 0; i < HMAC_BYTES; i++) differs |= a[i] ^ b[i];
    return differs == 0;
}
