/* SHA-256, straight from the standard: message schedule, 64 rounds, big-endian words. */
#include "base/sha256.h"

#include <string.h>

const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void compress(uint32_t state[8], const unsigned char *block) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++, block += 4)
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25), choose = (e & f) ^ (~e & g);
        uint32_t t1 = h + s1 + choose + sha256_constants[i] + w[i];
        uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
        uint32_t t2 = s0 + majority;
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

static void blocks(uint32_t state[8], const unsigned char *data, size_t n_blocks) {
    for (; n_blocks; n_blocks--, data += 64) compress(state, data);
}

void sha256_init(struct sha256 *s) {
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, initial, sizeof initial);
    s->n_bytes = 0;
    s->blocks = blocks;
}

void sha256_update(struct sha256 *s, const void *data, size_t n) {
    const unsigned char *p = data;
    size_t held = (size_t)(s->n_bytes % 64);
    s->n_bytes += n;
    if (held) {
        size_t take = 64 - held < n ? 64 - held : n;
        memcpy(s->block + held, p, take);
        p += take, n -= take;
        if (held + take < 64) return;
        s->blocks(s->state, s->block, 1);
    }
    if (n >= 64) s->blocks(s->state, p, n / 64);
    p += n / 64 * 64, n %= 64;
    if (n) memcpy(s->block, p, n);
}

void sha256_final(struct sha256 *s, unsigned char out[32]) {
    uint64_t bits = s->n_bytes * 8;
    unsigned char pad[72] = {0x80};
    size_t n_pad = (size_t)((119 - s->n_bytes % 64) % 64) + 1;
    for (int i = 0; i < 8; i++) pad[n_pad + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_update(s, pad, n_pad + 8);
    for (int i = 0; i < 32; i++) out[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hex(const unsigned char digest[32], char out[65]) {
    for (int i = 0; i < 32; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[64] = '\0';
}
