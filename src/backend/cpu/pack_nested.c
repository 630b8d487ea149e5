/* Nested panels: scales as bytes times a number that 256 inputs share.
 *
 * Nobody says whether the scales of a format are such products; it is found out. The numbers of a span are whole multiples of a power of two;
 * their greatest common divisor is the largest number that all of them are multiples of, and the smallest bytes go with it.
 */
#include "backend/cpu/pack.h"

#include "base/half.h"

enum { LEAST = -128, MOST = 127, GROUPS_MAX = PACK_SPAN / 16 };

/* Whether all biases are -centre times the scale. */
static bool is_centred(const struct quant_row *row, int64_t n, float centre) {
    for (int64_t i = 0; i < n; i++) {
        float scale, bias;
        memcpy(&scale, (const unsigned char *)row->scales + 4 * i, sizeof scale);
        memcpy(&bias, (const unsigned char *)row->biases + 4 * i, sizeof bias);
        if (bias != -centre * scale) return false;
    }
    return true;
}

bool pack_nested_shape_of(const struct format *f, int64_t in, const struct quant_row *row, struct pack_shape *out) {
    bool fits = f->mode == QUANT_AFFINE && f->dtype == DT_F32 && f->bits <= 6 && (f->group == 16 || f->group == 32) &&
                in % PACK_SPAN == 0 && in <= PACK_NESTED_MAX;
    if (!fits) return false;
    int32_t centre = 1 << (f->bits - 1);
    bool centred = is_centred(row, in / f->group, (float)centre);
    if (!centred && f->bits > 5) return false; /* sums of larger codes would not fit in 32 bits */
    *out = (struct pack_shape){.in = in, .group = f->group, .nested = true, .centre = centred ? centre : 0};
    out->code_bits = f->bits <= 4 ? 4 : 6;
    out->group_bytes = (size_t)f->group * PANEL_ROWS * (size_t)out->code_bits / 8;
    size_t groups = (size_t)(PACK_SPAN / f->group), planes = centred ? 1 : 2;
    out->span_bytes = groups * out->group_bytes + planes * (groups * PANEL_ROWS + 2 * PANEL_ROWS);
    out->span_bytes = (out->span_bytes + PANEL_LINE - 1) / PANEL_LINE * PANEL_LINE;
    out->panel_bytes = out->span_bytes * (size_t)(in / PACK_SPAN);
    return true;
}

/* ---- factors ------------------------------------------------------------------------------------------------------ */

/* |v| = whole * 2^(place - 150), whole odd. False: no number. */
static bool take_apart(float v, uint32_t *whole, int *place) {
    uint32_t bits = f32_bits(v) & 0x7FFFFFFFu, exponent = bits >> 23, mantissa = (bits & 0x7FFFFFu) | (exponent ? 0x800000u : 0);
    if (exponent == 255) return false;
    int zeros = mantissa ? __builtin_ctz(mantissa) : 0;
    *whole = mantissa >> zeros;
    *place = (int)(exponent ? exponent : 1) + zeros;
    return true;
}

static uint64_t divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* unit * 2^(place - 150) / share as a number of f16; false where it is none. */
static bool half_of(uint64_t unit, int place, uint64_t share, uint16_t *out) {
    if (unit % share || unit / share > 0xFFFFFF) return false;
    float v = (float)(unit / share);
    for (; place > 150; place--) v *= 2.0f;
    for (; place < 150; place++) v *= 0.5f;
    *out = f16_from_f32(v);
    return f16_to_f32(*out) == v;
}

/* v[i] = bytes[i] * number. False where that cannot be. */
static bool factor(const float *v, int32_t n, int8_t *bytes, uint16_t *number) {
    uint32_t odd[GROUPS_MAX];
    uint64_t whole[GROUPS_MAX], unit = 0, most = 0;
    int places[GROUPS_MAX], place = INT32_MAX;
    for (int32_t i = 0; i < n; i++) {
        if (!take_apart(v[i], &odd[i], &places[i])) return false;
        if (odd[i] && places[i] < place) place = places[i];
    }
    for (int32_t i = 0; i < n; i++) {
        if (odd[i] && places[i] - place > 30) return false;
        whole[i] = odd[i] ? (uint64_t)odd[i] << (places[i] - place) : 0;
        unit = divisor(whole[i], unit);
        if (whole[i] > most) most = whole[i];
    }
    *number = 0;
    for (int32_t i = 0; i < n; i++) bytes[i] = 0;
    if (unit == 0) return true;
    uint64_t share = 1;
    while (!half_of(unit, place, share, number))
        if (++share > MOST || most / unit * share > -LEAST) return false;
    bool turned = false; /* 128 is a byte with the other sign only */
    for (int32_t i = 0; i < n; i++) turned |= v[i] > 0 && whole[i] / unit * share > MOST;
    if (turned) *number ^= 0x8000u;
    for (int32_t i = 0; i < n; i++) {
        int64_t byte = (int64_t)(whole[i] / unit * share);
        if ((v[i] < 0) != turned) byte = -byte;
        if (byte < LEAST || byte > MOST) return false;
        bytes[i] = (int8_t)byte;
    }
    return true;
}

/* The same with bytes that are not negative. */
static bool factor_biases(const float *v, int32_t n, int8_t *bytes, uint16_t *number) {
    if (!factor(v, n, bytes, number)) return false;
    int32_t below = 0, above = 0;
    for (int32_t i = 0; i < n; i++) below += bytes[i]<0, above += bytes[i]> 0;
    if (below == 0) return true;
    for (int32_t i = 0; i < n; i++) {
        if (bytes[i] == LEAST) return false;
        bytes[i] = (int8_t)-bytes[i];
    }
    *number ^= 0x8000u;
    return above == 0;
}

/* ---- packing ------------------------------------------------------------------------------------------------------ */

/* Sixteen codes of one row: `out` is the row's place in the first of their lines. */
static void put_codes(const struct pack_shape *s, const uint8_t *codes, unsigned char *out) {
    for (int i = 0; i < 4; i++)
        for (int line = 0; line < s->code_bits / 2; line++)
            out[line * PANEL_LINE + i] = (unsigned char)(s->code_bits == 4 ? codes[8 * line + i] | codes[8 * line + 4 + i] << 4
                                                                           : codes[4 * line + i] | (codes[12 + i] >> 2 * line & 3) << 6);
}

static bool pack_span(const struct pack_shape *s, const struct format *f, const struct quant_row *row, int64_t span, int32_t r,
                      unsigned char *out) {
    uint8_t codes[PACK_SPAN];
    float scales[GROUPS_MAX], biases[GROUPS_MAX];
    int32_t groups = PACK_SPAN / s->group;
    size_t at = (size_t)(span * groups) * sizeof(float), quad_bytes = (size_t)(16 * PANEL_ROWS * s->code_bits / 8);
    memcpy(scales, (const unsigned char *)row->scales + at, (size_t)groups * sizeof *scales);
    memcpy(biases, (const unsigned char *)row->biases + at, (size_t)groups * sizeof *biases);
    if (f->bits == 4) pack_put_nibbles((const unsigned char *)row->values + span * PACK_SPAN / 2, PACK_SPAN, out + 4 * r);
    else quant_codes(f, row->values, span * PACK_SPAN, PACK_SPAN, codes);
    for (int32_t k = 0; k < PACK_SPAN && f->bits != 4; k += 16) put_codes(s, codes + k, out + (size_t)(k / 16) * quad_bytes + 4 * r);
    struct pack_span to = pack_span_at(s, out);
    int8_t bytes[GROUPS_MAX];
    uint16_t number;
    for (int32_t g = 0; g < groups && s->centre; g++)
        if (biases[g] != -(float)s->centre * scales[g]) return false;
    if (!factor(scales, groups, bytes, &number)) return false;
    for (int32_t g = 0; g < groups; g++) out[(const unsigned char *)to.scale - out + g * PANEL_ROWS + r] = (unsigned char)bytes[g];
    memcpy(out + ((const unsigned char *)(to.scale_1 + r) - out), &number, sizeof number);
    if (s->centre) return true;
    if (!factor_biases(biases, groups, bytes, &number)) return false;
    for (int32_t g = 0; g < groups; g++) out[(const unsigned char *)to.bias - out + pack_bias_place(g, r)] = (unsigned char)bytes[g];
    memcpy(out + ((const unsigned char *)(to.bias_1 + r) - out), &number, sizeof number);
    return true;
}

bool pack_nested_panel(const struct pack_shape *s, const struct format *f, const struct quant_row *rows, int32_t n_rows,
                       unsigned char *out) {
    memset(out, 0, s->panel_bytes);
    for (int64_t span = 0; span < s->in / PACK_SPAN; span++, out += s->span_bytes)
        for (int32_t r = 0; r < n_rows; r++)
            if (!pack_span(s, f, &rows[r], span, r, out)) return false;
    return true;
}

static unsigned code_at(const struct pack_shape *s, const unsigned char *p, int32_t k) {
    p += k % 4;
    if (s->code_bits == 4) return p[k / 8 * PANEL_LINE] >> (k % 8 < 4 ? 0 : 4) & 15u;
    if (k < 12) return p[k / 4 * PANEL_LINE] & 63u;
    return p[0] >> 6 | (unsigned)p[PANEL_LINE] >> 6 << 2 | (unsigned)p[2 * PANEL_LINE] >> 6 << 4;
}

void pack_nested_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out) {
    size_t quad_bytes = (size_t)(16 * PANEL_ROWS * s->code_bits / 8);
    for (int64_t i = 0; i < s->in / PACK_SPAN; i++, panel += s->span_bytes) {
        struct pack_span at = pack_span_at(s, panel);
        float scale_1 = f16_to_f32(at.scale_1[row]), bias_1 = s->centre ? 0 : f16_to_f32(at.bias_1[row]);
        for (int32_t k = 0; k < PACK_SPAN; k++) {
            int32_t g = k / s->group * PANEL_ROWS + row;
            float scale = scale_1 * (float)at.scale[g],
                  bias = s->centre ? -(float)s->centre * scale : bias_1 * (float)at.bias[pack_bias_place(k / s->group, row)];
            *out++ = (float)code_at(s, panel + (size_t)(k / 16) * quad_bytes + 4 * row, k % 16) * scale + bias;
        }
    }
}
