/* The kernels of a cache of 8 or 4 bits: every set must give the reference's bits, and the reference must be near the truth. */
#include "check_cpu.h"
#include "check_tally.h"

#include "base/hash.h"

#include <math.h>

enum { HEADS = KV_HEADS_MAX, WIDTH = KV_WIDTH_MAX };

static float random_at(uint64_t i) {
    return (float)(hash_mix(i + 77) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

/* One element in 29 is large, and vectors differ in size. */
static float element(uint64_t vector, uint64_t i) {
    return random_at(vector * 1000 + i) * (i % 29 == 3 ? 20.0f : 1.0f) * (0.01f + (float)(vector % 5));
}

struct kv_case {
    int32_t width, bits, heads;
    float x[KV_BLOCK_POS][WIDTH], q[HEADS][WIDTH];
    unsigned char cache[KV_SCALE_BYTES + KV_BLOCK_POS * WIDTH];
};

/* A block in the layout of keys or of values, by the rule of kern_kv_tmpl.h; returns whether the codes are the reference's. */
static bool fill(const struct kernels *k, const struct kernels *plain, bool values, struct kv_case *c) {
    bool same = true;
    memset(c->cache, 0, sizeof c->cache);
    for (int32_t p = 0; p < KV_BLOCK_POS; p++) {
        uint8_t codes[WIDTH], want[WIDTH];
        float scale = k->kv_store(c->x[p], c->width, c->bits, codes), right = plain->kv_store(c->x[p], c->width, c->bits, want);
        same &= memcmp(codes, want, (size_t)c->width) == 0 && memcmp(&scale, &right, sizeof scale) == 0;
        memcpy(c->cache + 4 * p, &scale, sizeof scale);
        for (int32_t d = 0; d < c->width; d++) {
            int32_t n = values ? p : d, lane = values ? d : p, lanes = values ? c->width : KV_BLOCK_POS, each = 32 / c->bits;
            c->cache[KV_SCALE_BYTES + (n / each * lanes + lane) * 4 + n % 4] |= (unsigned char)(codes[d] << (n % each / 4 * 4));
        }
    }
    return same;
}

static const char *bits_name(const struct kv_case *c) {
    return c->bits == 8 ? "8 bits" : "4 bits";
}

static void check_keys(const struct kernels *k, const struct kernels *plain, struct kv_case *c) {
    struct kv_query mine[HEADS], theirs[HEADS];
    float got[HEADS][KV_BLOCK_POS], want[HEADS][KV_BLOCK_POS];
    tally_check(fill(k, plain, false, c), "kv_store", bits_name(c), "a key of width %d", (int)c->width);
    for (int32_t h = 0; h < c->heads; h++) {
        k->kv_query(c->q[h], c->width, &mine[h]);
        plain->kv_query(c->q[h], c->width, &theirs[h]);
    }
    struct kv_block b = {.cache = c->cache, .width = c->width, .bits = c->bits, .heads = c->heads, .scale = 0.25f};
    b.scores_stride = KV_BLOCK_POS;
    for (int i = 0; i < KV_ASKS; i++) b.ask[i] = c->cache;
    b.q = mine, b.scores = got[0], k->kv_scores(&b);
    b.q = theirs, b.scores = want[0], plain->kv_scores(&b);
    tally_check(memcmp(got, want, (size_t)c->heads * sizeof got[0]) == 0, "kv_scores", bits_name(c), "width %d, %d heads", (int)c->width,
                (int)c->heads);
    double error = 0, size = 0;
    for (int32_t h = 0; h < c->heads; h++)
        for (int32_t p = 0; p < KV_BLOCK_POS; p++) {
            double exact = 0;
            for (int32_t d = 0; d < c->width; d++) exact += 0.25 * (double)c->q[h][d] * (double)c->x[p][d];
            error += (exact - (double)got[h][p]) * (exact - (double)got[h][p]), size += exact * exact;
        }
    tally_check(error <= size * (c->bits == 8 ? 4e-4 : 0.1), "kv_scores", bits_name(c), "width %d, %d heads: off by %g", (int)c->width,
                (int)c->heads, error / size);
}

static void check_values(const struct kernels *k, const struct kernels *plain, struct kv_case *c) {
    static float got[HEADS][WIDTH], want[HEADS][WIDTH];
    float weights[HEADS][KV_BLOCK_POS];
    int32_t range[HEADS][2];
    tally_check(fill(k, plain, true, c), "kv_store", bits_name(c), "a value of width %d", (int)c->width);
    memset(got, 0, sizeof got), memset(want, 0, sizeof want);
    for (int32_t h = 0; h < c->heads; h++) {
        range[h][0] = h % 3 * 7, range[h][1] = KV_BLOCK_POS - h;
        for (int32_t p = 0; p < KV_BLOCK_POS; p++)
            weights[h][p] = p < range[h][0] || p >= range[h][1] ? NAN : fabsf(random_at((uint64_t)(h * 64 + p)));
    }
    struct kv_block b = {.cache = c->cache, .width = c->width, .bits = c->bits, .heads = c->heads, .range = range};
    for (int i = 0; i < KV_ASKS; i++) b.ask[i] = c->cache;
    b.scores = weights[0], b.scores_stride = KV_BLOCK_POS, b.out_stride = WIDTH;
    b.out = got[0], k->kv_mix(&b);
    b.out = want[0], plain->kv_mix(&b);
    tally_check(memcmp(got, want, (size_t)c->heads * sizeof got[0]) == 0, "kv_mix", bits_name(c), "width %d, %d heads", (int)c->width,
                (int)c->heads);
    double error = 0, size = 0;
    for (int32_t h = 0; h < c->heads; h++) {
        k->kv_turn(got[h], c->width);
        for (int32_t d = 0; d < c->width; d++) {
            double exact = 0, y = (double)got[h][d] / kv_turn_size(c->width);
            for (int32_t p = range[h][0]; p < range[h][1]; p++) exact += (double)weights[h][p] * (double)c->x[p][d];
            error += (exact - y) * (exact - y), size += exact * exact;
        }
    }
    tally_check(error <= size * (c->bits == 8 ? 4e-4 : 0.1), "kv_mix", bits_name(c), "width %d, %d heads: off by %g", (int)c->width,
                (int)c->heads, error / size);
}

/* Zeros stay zeros; what is not finite shows in the scale. */
static void check_edges(const struct kernels *k) {
    static const float edges[] = {0, 1e-38f, 1e37f, INFINITY, NAN};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        for (int32_t bits = 4; bits <= 8; bits += 4) {
            float x[64] = {0};
            uint8_t codes[64];
            x[17] = edges[i];
            float scale = k->kv_store(x, 64, bits, codes);
            tally_check(i < 3 ? isfinite(scale) : scale != scale, "kv_store", bits == 8 ? "8 bits" : "4 bits", "a vector with %g",
                        (double)edges[i]);
        }
}

void check_kv(const struct kernels *k, const struct kernels *plain) {
    static const int32_t widths[] = {16, 48, 64, 80, 96, 112, 128, 192, 256};
    static struct kv_case c;
    for (uint64_t p = 0; p < KV_BLOCK_POS; p++)
        for (uint64_t d = 0; d < WIDTH; d++) c.x[p][d] = element(p, d);
    for (uint64_t h = 0; h < HEADS; h++)
        for (uint64_t d = 0; d < WIDTH; d++) c.q[h][d] = element(h + 100, d);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (c.bits = 4; c.bits <= 8; c.bits += 4)
            for (c.heads = 1; c.heads <= HEADS; c.heads++) {
                c.width = widths[i];
                check_keys(k, plain, &c);
                check_values(k, plain, &c);
            }
    check_edges(k);
}
