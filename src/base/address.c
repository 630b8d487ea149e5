/* The registries of special addresses (IANA, RFC 6890 and later), as a table of what is refused. */
#include "base/address.h"

#include <stddef.h>

struct block {
    unsigned char bytes[4];
    int bits;
};

/* This network, private ones, carriers' and link-local ones (where clouds keep their keys), loopback, documentation, benchmarks, 6to4 relays, many at once,
 * reserved ones and everybody. */
static const struct block refused_4[] = {
    {{0}, 8},          {{10}, 8},           {{100, 64}, 10},  {{127}, 8},      {{169, 254}, 16},     {{172, 16}, 12},     {{192, 0, 0}, 24},
    {{192, 0, 2}, 24}, {{192, 88, 99}, 24}, {{192, 168}, 16}, {{198, 18}, 15}, {{198, 51, 100}, 24}, {{203, 0, 113}, 24}, {{224}, 3}};
/* Of what is global by its first bits: protocols, among them tunnels to IPv4 (2001::/23), documentation, 6to4, documentation again. */
static const struct block refused_6[] = {{{0x20, 0x01, 0, 0}, 23}, {{0x20, 0x01, 0x0D, 0xB8}, 32}, {{0x20, 0x02}, 16}, {{0x3F, 0xFF}, 20}};
static const struct block global_6 = {{0x20}, 3};

static bool is_in(const unsigned char *address, const struct block *b) {
    int i = 0, bits = b->bits;
    for (; bits >= 8; i++, bits -= 8)
        if (address[i] != b->bytes[i]) return false;
    unsigned int mask = 0xFF00u >> bits & 0xFF;
    return bits == 0 || (address[i] & mask) == (b->bytes[i] & mask);
}

static bool is_in_any(const unsigned char *address, const struct block *blocks, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (is_in(address, &blocks[i])) return true;
    return false;
}

bool address_is_public(const unsigned char *address, int n) {
    if (n == 4) return !is_in_any(address, refused_4, sizeof refused_4 / sizeof *refused_4);
    if (n != 16) return false;
    bool is_mapped = address[10] == 0xFF && address[11] == 0xFF; /* ::ffff:1.2.3.4 */
    for (int i = 0; i < 10; i++) is_mapped = is_mapped && address[i] == 0;
    if (is_mapped) return address_is_public(address + 12, 4);
    return is_in(address, &global_6) && !is_in_any(address, refused_6, sizeof refused_6 / sizeof *refused_6);
}
