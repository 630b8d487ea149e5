/* Products by tiles (kern_amx_nested_tmpl.h) for processors that have none: what AMX's instructions do, in plain C. */
#include "kern_in_c.h"

enum { TILES_N = 8, TILE_LINE = 64, TILE_LINES = 16 };

static struct {
    int32_t lines; /* that are in use; the others keep what they have */
    unsigned char at[TILE_LINES][TILE_LINE];
} tiles[TILES_N];

static void tiles_configure(int32_t n, int first) {
    memset(tiles, 0xA5, sizeof tiles);
    for (int i = 0; i < TILES_N; i++) tiles[i].lines = i == first || i == first + 1 ? TILE_LINES : n;
}

static void tile_load(int to, const void *from, int64_t stride) {
    for (int i = 0; i < tiles[to].lines; i++) memcpy(tiles[to].at[i], (const char *)from + i * stride, TILE_LINE);
}

static void tile_store(int from, void *to, int64_t stride) {
    for (int i = 0; i < tiles[from].lines; i++) memcpy((char *)to + i * stride, tiles[from].at[i], TILE_LINE);
}

static int32_t byte_at(int tile, int line, int column, bool has_sign) {
    unsigned char byte = tiles[tile].at[line][column];
    return has_sign ? (int8_t)byte : byte;
}

/* sum[m][n] += x[m][4 k + i] * w[k][4 n + i] over k and i. */
static void tile_dot(int sum, int x, int w, bool w_has_sign) {
    for (int m = 0; m < tiles[sum].lines; m++)
        for (int n = 0; n < TILE_LINE / 4; n++) {
            int32_t total;
            memcpy(&total, &tiles[sum].at[m][4 * n], sizeof total);
            for (int k = 0; k < tiles[w].lines; k++)
                for (int i = 0; i < 4; i++) total += byte_at(x, m, 4 * k + i, true) * byte_at(w, k, 4 * n + i, w_has_sign);
            memcpy(&tiles[sum].at[m][4 * n], &total, sizeof total);
        }
}

#define TILE_LOAD(tile, base, stride) tile_load(tile, base, stride)
#define TILE_STORE(tile, base, stride) tile_store(tile, base, stride)
#define TILE_ZERO(tile) memset(tiles[tile].at, 0, sizeof tiles[tile].at)
#define TILE_DOT_UNSIGNED(sum, x, w) tile_dot(sum, x, w, false)
#define TILE_DOT_SIGNED(sum, x, w) tile_dot(sum, x, w, true)
#define tiles_release() ((void)0)
#include "backend/cpu/kern_amx_nested_tmpl.h"

void kern_tiles_in_c(struct kernels *k) {
    k->nested = nested;
}
