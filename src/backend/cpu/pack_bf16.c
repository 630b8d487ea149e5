/* Panels of bf16 weights: the same bytes in another order (pack.h). */
#include "backend/cpu/pack.h"

#include "base/half.h"

bool pack_bf16_shape_of(const struct format *f, int64_t in, int32_t unit, struct pack_shape *out) {
    if (f->mode != QUANT_NONE || f->dtype != DT_BF16 || in % PACK_BF16_GROUP) return false;
    *out = (struct pack_shape){.in = in, .group = PACK_BF16_GROUP, .code_bits = 16, .unit = unit};
    out->group_bytes = PACK_BF16_GROUP * PANEL_ROWS * 2;
    out->panel_bytes = out->group_bytes * (size_t)(in / PACK_BF16_GROUP);
    return true;
}

/* Line by line, so that what is written stays in the cache; the rows are sixteen streams. */
static inline void put_units(const struct pack_shape *s, const struct quant_row *rows, int32_t n_rows, unsigned char *out,
                             const size_t unit_bytes) {
    size_t row_bytes = (size_t)s->in * 2;
    for (size_t at = 0; at < row_bytes; at += unit_bytes, out += PANEL_ROWS * unit_bytes)
        for (int32_t r = 0; r < n_rows; r++) memcpy(out + (size_t)r * unit_bytes, (const unsigned char *)rows[r].values + at, unit_bytes);
}

void pack_bf16_panel(const struct pack_shape *s, const struct quant_row *rows, int32_t n_rows, unsigned char *out) {
    if (n_rows < PANEL_ROWS) memset(out, 0, s->panel_bytes);
    if (s->unit == 2) put_units(s, rows, n_rows, out, 4);
    else put_units(s, rows, n_rows, out, 8);
}

void pack_bf16_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out) {
    size_t unit_bytes = (size_t)s->unit * 2;
    const unsigned char *p = panel + (size_t)row * unit_bytes;
    for (int64_t k = 0; k < s->in; k += s->unit, p += PANEL_ROWS * unit_bytes)
        for (int32_t i = 0; i < s->unit; i++) {
            uint16_t h;
            memcpy(&h, p + 2 * i, 2);
            out[k + i] = bf16_to_f32(h);
        }
}
