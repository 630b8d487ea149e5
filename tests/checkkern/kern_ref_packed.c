/* Integer products in plain C: quantisation of activations and one panel. */
#include "kern_ref_packed.h"

#include "base/fmath.h"
#include "base/half.h"

/* One group by its span's factor; returns the sum of its numbers. low: 0 where a number is one byte. */
static float quant_group(const float *x, int32_t n, float inverse, int8_t *q, int64_t low) {
    int32_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t whole = inverse > 0 ? (int32_t)lrintf(x[i] * inverse) : 0, high = low ? (whole + 8) >> 4 : whole;
        q[i] = (int8_t)high;
        if (low) q[low + i] = (int8_t)(whole - 16 * high);
        total += whole;
    }
    return (float)total;
}

/* Symmetric, largest magnitude to ACTS_MAX or ACTS_BYTE_MAX, ties to even. A span that is not finite poisons its scale, and so its row. */
static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row to = acts_row_at(out, row);
    float limit = out->nested ? (float)ACTS_BYTE_MAX : (float)ACTS_MAX;
    for (int64_t g = 0; g < out->n_groups; to.scale += to.step) {
        int64_t end = g + acts_span_groups(out, g), n = (end - g) * out->group;
        float max = 0;
        bool finite = true;
        for (int64_t i = 0; i < n; i++) {
            float a = fabsf(x[i]);
            finite &= a <= 3.4e38f;
            if (a > max) max = a;
        }
        float inverse = finite && max > ACTS_LEAST ? limit / max : 0;
        *to.scale = finite ? max * (1.0f / limit) : NAN;
        for (; g < end; g++, x += out->group, to.q += to.q_step, to.sum += to.step)
            *to.sum = quant_group(x, out->group, inverse, to.q, out->nested ? 0 : to.low);
    }
}

static void read_scales(const struct pack_shape *s, const unsigned char *p, float *scale, float *bias) {
    for (int r = 0; r < PANEL_ROWS; r++) {
        if (s->narrow_scales) {
            uint16_t h[2];
            memcpy(&h[0], p + 2 * r, 2);
            memcpy(&h[1], p + 2 * (PANEL_ROWS + r), 2);
            scale[r] = bf16_to_f32(h[0]), bias[r] = bf16_to_f32(h[1]);
        } else {
            memcpy(&scale[r], p + 4 * r, 4);
            memcpy(&bias[r], p + 4 * (PANEL_ROWS + r), 4);
        }
    }
}

static void group_dot(const struct pack_shape *s, const unsigned char *codes, const int8_t *q, int64_t low, int32_t total[PANEL_ROWS]) {
    memset(total, 0, PANEL_ROWS * sizeof *total);
    for (int32_t k = 0; k < s->group; k++)
        for (int r = 0; r < PANEL_ROWS; r++) {
            int32_t code = s->code_bits == 8 ? codes[k / 4 * PANEL_LINE + r * 4 + k % 4]
                                             : codes[k / 8 * PANEL_LINE + r * 4 + k % 4] >> (k % 8 < 4 ? 0 : 4) & 15;
            total[r] += code * (16 * q[k] + q[low + k]);
        }
}

static void panel_row(const struct panel_args *a, const unsigned char *p, int64_t row, float *y) {
    const struct pack_shape *s = a->shape;
    size_t code_bytes = (size_t)s->group * PANEL_ROWS * (size_t)s->code_bits / 8;
    struct acts_row x = acts_row_at(&a->x, row);
    float acc[PANEL_ROWS] = {0};
    for (int64_t g = 0; g < a->x.n_groups; x.scale += x.step) {
        float inner[PANEL_ROWS] = {0};
        for (int64_t end = g + acts_span_groups(&a->x, g); g < end; g++, p += s->group_bytes, x.q += x.q_step, x.sum += x.step) {
            int32_t total[PANEL_ROWS];
            float scale[PANEL_ROWS], bias[PANEL_ROWS];
            group_dot(s, p, x.q, x.low, total);
            read_scales(s, p + code_bytes, scale, bias);
            for (int r = 0; r < PANEL_ROWS; r++) {
                inner[r] = m_fmaf((float)total[r], scale[r], inner[r]);
                inner[r] = m_fmaf(bias[r], *x.sum, inner[r]);
            }
        }
        for (int r = 0; r < PANEL_ROWS; r++) acc[r] = m_fmaf(inner[r], *x.scale, acc[r]);
    }
    memcpy(y, acc, sizeof acc);
}

static void panel(const struct panel_args *a) {
    for (int64_t p = 0; p < a->n_panels; p++)
        for (int64_t m = 0; m < a->n_rows; m++)
            panel_row(a, a->panels + (size_t)p * a->shape->panel_bytes, m, a->y + m * a->y_stride + p * PANEL_ROWS);
}

/* ---- nested ------------------------------------------------------------------------------------------------------- */

static int32_t nested_code(const struct pack_shape *s, const unsigned char *p, int32_t k, int r) {
    p += (size_t)(k / 16 * 16 * PANEL_ROWS * s->code_bits / 8) + (size_t)(4 * r + k % 4);
    if (s->code_bits == 4) return p[k % 16 / 8 * PANEL_LINE] >> (k % 8 < 4 ? 0 : 4) & 15;
    if (k % 16 < 12) return p[k % 16 / 4 * PANEL_LINE] & 63;
    return p[0] >> 6 | p[PANEL_LINE] >> 6 << 2 | p[2 * PANEL_LINE] >> 6 << 4;
}

static float nested_span(const struct pack_shape *s, const unsigned char *p, struct acts_row x, int r) {
    struct pack_span at = pack_span_at(s, p);
    int32_t scales = 0, biases = 0;
    for (int32_t g = 0; g < PACK_SPAN / s->group; g++, x.q += x.q_step, x.sum += x.step) {
        int32_t dot = -s->centre * (int32_t)*x.sum;
        for (int32_t k = 0; k < s->group; k++) dot += nested_code(s, p, g * s->group + k, r) * x.q[k];
        scales += dot * at.scale[g * PANEL_ROWS + r];
        if (at.bias) biases += (int32_t)*x.sum * at.bias[pack_bias_place(g, r)];
    }
    float v = (float)scales * f16_to_f32(at.scale_1[r]);
    return at.bias ? m_fmaf((float)biases, f16_to_f32(at.bias_1[r]), v) : v;
}

static void nested(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    for (int64_t p = 0; p < a->n_panels; p++)
        for (int64_t m = 0; m < a->n_rows; m++)
            for (int r = 0; r < PANEL_ROWS; r++) {
                struct acts_row x = acts_row_at(&a->x, m);
                const unsigned char *span = a->panels + (size_t)p * s->panel_bytes;
                float acc = 0;
                for (int64_t i = 0; i < s->in / PACK_SPAN; i++, span += s->span_bytes, x.scale += x.step) {
                    acc = m_fmaf(nested_span(s, span, x, r), *x.scale, acc);
                    x.q += PACK_SPAN / s->group * x.q_step, x.sum += PACK_SPAN / s->group * x.step;
                }
                a->y[m * a->y_stride + p * PANEL_ROWS + r] = acc;
            }
}

void kern_ref_packed(struct kernels *k) {
    k->nested = nested;
    k->nested_row = quant_row;
    k->quant_row = quant_row;
    k->panel = panel;
}
