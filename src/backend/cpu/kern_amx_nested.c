/* AMX int8 over nested panels. Few rows are left to the set below, whose results are the same bits. */
#include "backend/cpu/kern_amx.h"

#define TILE_ZERO(tile) _tile_zero(tile)
#define TILE_DOT_UNSIGNED(sum, x, w) _tile_dpbsud(sum, x, w)
#define TILE_DOT_SIGNED(sum, x, w) _tile_dpbssd(sum, x, w)
#define tiles_release() _tile_release()
#include "backend/cpu/kern_amx_nested_tmpl.h"

void kern_amx_nested(struct kernels *k) {
    k->nested = nested;
}
