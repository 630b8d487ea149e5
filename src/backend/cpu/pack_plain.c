/* Panels of plain weights: the same bytes in another order (pack.h). */
#include "backend/cpu/pack.h"

#include "base/half.h"

bool pack_plain_shape_of(const struct format *f, int64_t in, int32_t unit, struct pack_shape *out) {
    int64_t filled = (in + PACK_PLAIN_GROUP - 1) / PACK_PLAIN_GROUP * PACK_PLAIN_GROUP;
    if (f->mode != QUANT_NONE || in < PACK_PLAIN_GROUP) return false;
    if (f->dtype != DT_F32 && f->dtype != DT_F16 && f->dtype != DT_BF16) return false;
    *out = (struct pack_shape){
        .in = filled, .width = in, .group = PACK_PLAIN_GROUP, .code_bits = dtype_bits(f->dtype), .dtype = f->dtype, .unit = unit};
    out->group_bytes = PACK_PLAIN_GROUP * PANEL_ROWS * (size_t)out->code_bits / 8;
    out->panel_bytes = out->group_bytes * (size_t)(filled / PACK_PLAIN_GROUP);
    return true;
}

static size_t unit_bytes_of(const struct pack_shape *s) {
    return (size_t)(s->unit * s->code_bits / 8);
}

/* Line by line, so that what is written stays in the cache; the rows are sixteen streams. */
static inline void put_units(const struct pack_shape *s, const struct quant_row *rows, int32_t n_rows, unsigned char *out,
                             const size_t unit_bytes) {
    size_t row_bytes = (size_t)s->width * (size_t)s->code_bits / 8, rest = row_bytes % unit_bytes, whole = row_bytes - rest;
    for (size_t at = 0; at < whole; at += unit_bytes, out += PANEL_ROWS * unit_bytes)
        for (int32_t r = 0; r < n_rows; r++) memcpy(out + (size_t)r * unit_bytes, (const unsigned char *)rows[r].values + at, unit_bytes);
    for (int32_t r = 0; rest && r < n_rows; r++) memcpy(out + (size_t)r * unit_bytes, (const unsigned char *)rows[r].values + whole, rest);
}

void pack_plain_panel(const struct pack_shape *s, const struct quant_row *rows, int32_t n_rows, unsigned char *out) {
    if (n_rows < PANEL_ROWS || pack_is_filled_up(s)) memset(out, 0, s->panel_bytes);
    switch (unit_bytes_of(s)) {
    case 2: put_units(s, rows, n_rows, out, 2); break;
    case 4: put_units(s, rows, n_rows, out, 4); break;
    default: put_units(s, rows, n_rows, out, 8); break;
    }
}

static float value_at(const unsigned char *p, enum dtype dtype) {
    uint16_t h;
    float v;
    if (dtype == DT_F32) {
        memcpy(&v, p, 4);
        return v;
    }
    memcpy(&h, p, 2);
    return dtype == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

void pack_plain_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out) {
    size_t unit_bytes = unit_bytes_of(s);
    const unsigned char *p = panel + (size_t)row * unit_bytes;
    for (int64_t k = 0; k < s->width; k += s->unit, p += PANEL_ROWS * unit_bytes)
        for (int32_t i = 0; i < s->unit && k + i < s->width; i++) out[k + i] = value_at(p + i * s->code_bits / 8, s->dtype);
}
