/* Packing panels: codes by quant_codes, scales and biases widened once. Portable; runs at load, in parallel by panels. */
#include "backend/cpu/pack.h"

#include "base/half.h"

bool pack_shape_of(const struct format *f, int64_t in, struct pack_shape *out) {
    if (f->mode == QUANT_NONE || f->mode == QUANT_MXFP8 || f->mode == QUANT_FP8) return false;
    int32_t group = f->group > PACK_GROUP_MAX ? PACK_GROUP_MAX : f->group;
    *out = (struct pack_shape){.in = in, .group = group};
    out->code_bits = f->mode == QUANT_AFFINE && f->bits <= 4 ? 4 : 8;
    out->narrow_scales = f->mode == QUANT_AFFINE && f->dtype == DT_BF16;
    out->group_bytes = (size_t)group * PANEL_ROWS * (size_t)out->code_bits / 8 + (out->narrow_scales ? 2u : 4u) * 2 * PANEL_ROWS;
    out->panel_bytes = out->group_bytes * (size_t)(in / group);
    return true;
}

static float scale_at(const struct format *f, const void *plane, int64_t i) {
    const unsigned char *p = plane;
    uint16_t h;
    float v;
    switch (f->mode) {
    case QUANT_MXFP4: return e8m0_to_f32(p[i]);
    case QUANT_NVFP4: return f8e4m3_to_f32(p[i]);
    default: break;
    }
    if (f->dtype == DT_F32) {
        memcpy(&v, p + 4 * i, 4);
        return v;
    }
    memcpy(&h, p + 2 * i, 2);
    return f->dtype == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

/* Codes of E2M1 values: 2 v is whole, 12 makes it non-negative. */
static void whole_codes(uint8_t *codes, int64_t n) {
    for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)(2.0f * f4e2m1_values[codes[i] & 15] + 12.0f);
}

/* Four codes at a time; 4-bit codes of two quads share bytes. */
static void put_codes(const struct pack_shape *s, const uint8_t *codes, int32_t row, unsigned char *out) {
    out += row * 4;
    if (s->code_bits == 8) {
        for (int32_t k = 0; k < s->group; k += 4, out += PANEL_LINE) memcpy(out, codes + k, 4);
        return;
    }
    for (int32_t k = 0; k < s->group; k += 8, out += PANEL_LINE) {
        uint32_t low, high;
        memcpy(&low, codes + k, 4);
        memcpy(&high, codes + k + 4, 4);
        low |= high << 4; /* within each byte: codes are below 16 */
        memcpy(out, &low, 4);
    }
}

/* The same from a checkpoint's own 4-bit codes, without unpacking them one by one. */
void pack_put_nibbles(const unsigned char *values, int32_t n, unsigned char *out) {
    for (int32_t k = 0; k < n; k += 8, values += 4, out += PANEL_LINE) {
        uint32_t low = values[0] | (uint32_t)values[1] << 8, high = values[2] | (uint32_t)values[3] << 8;
        low = (low | low << 8) & 0x00FF00FFu;
        high = (high | high << 8) & 0x00FF00FFu;
        low = (low | low << 4) & 0x0F0F0F0Fu;
        high = (high | high << 4) & 0x0F0F0F0Fu;
        for (int i = 0; i < 4; i++) out[i] = (unsigned char)((low | high << 4) >> 8 * i);
    }
}

static void put_scale(const struct pack_shape *s, unsigned char *scales, int32_t row, float scale, float bias) {
    if (s->narrow_scales) {
        uint16_t h[2] = {bf16_from_f32(scale), bf16_from_f32(bias)};
        memcpy(scales + 2 * row, &h[0], 2);
        memcpy(scales + 2 * (PANEL_ROWS + row), &h[1], 2);
    } else {
        memcpy(scales + 4 * row, &scale, 4);
        memcpy(scales + 4 * (PANEL_ROWS + row), &bias, 4);
    }
}

void pack_panel(const struct pack_shape *s, const struct format *f, const struct quant_row *rows, int32_t n_rows, unsigned char *out) {
    uint8_t codes[128];
    if (pack_is_plain(s)) {
        pack_plain_panel(s, rows, n_rows, out);
        return;
    }
    memset(out, 0, s->panel_bytes);
    size_t code_bytes = (size_t)s->group * PANEL_ROWS * (size_t)s->code_bits / 8;
    int32_t per_group = f->group / s->group;
    bool nibbles = f->mode == QUANT_AFFINE && f->bits == 4;
    for (int32_t row = 0; row < n_rows; row++)
        for (int64_t g = 0; g < s->in / f->group; g++) {
            if (!nibbles) quant_codes(f, rows[row].values, g * f->group, f->group, codes);
            float scale = scale_at(f, rows[row].scales, g), bias = f->mode == QUANT_AFFINE ? scale_at(f, rows[row].biases, g) : 0;
            if (f->mode != QUANT_AFFINE) {
                whole_codes(codes, f->group);
                scale *= 0.5f;
                bias = -12.0f * scale;
            }
            for (int32_t i = 0; i < per_group; i++) {
                unsigned char *group = out + (size_t)(g * per_group + i) * s->group_bytes;
                const unsigned char *values = (const unsigned char *)rows[row].values + (g * f->group + i * s->group) / 2;
                if (nibbles) pack_put_nibbles(values, s->group, group + 4 * row);
                else put_codes(s, codes + i * s->group, row, group);
                put_scale(s, group + code_bytes, row, scale, bias);
            }
        }
}

void pack_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out) {
    if (pack_is_plain(s)) {
        pack_plain_unpack_row(s, panel, row, out);
        return;
    }
    if (s->nested) {
        pack_nested_unpack_row(s, panel, row, out);
        return;
    }
    size_t code_bytes = (size_t)s->group * PANEL_ROWS * (size_t)s->code_bits / 8;
    for (int64_t g = 0; g < s->in / s->group; g++, panel += s->group_bytes) {
        const unsigned char *scales = panel + code_bytes;
        float scale, bias;
        if (s->narrow_scales) {
            uint16_t h[2];
            memcpy(&h[0], scales + 2 * row, 2);
            memcpy(&h[1], scales + 2 * (PANEL_ROWS + row), 2);
            scale = bf16_to_f32(h[0]), bias = bf16_to_f32(h[1]);
        } else {
            memcpy(&scale, scales + 4 * row, 4);
            memcpy(&bias, scales + 4 * (PANEL_ROWS + row), 4);
        }
        for (int32_t k = 0; k < s->group; k++) {
            unsigned code = s->code_bits == 8 ? panel[k / 4 * PANEL_LINE + row * 4 + k % 4]
                                              : panel[k / 8 * PANEL_LINE + row * 4 + k % 4] >> (k % 8 < 4 ? 0 : 4) & 15u;
            *out++ = (float)code * scale + bias;
        }
    }
}
