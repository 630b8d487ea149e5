/* Integer products in plain C: quantisation of activations and one panel. */
#include "backend/cpu/kern.h"

#include "base/half.h"

#include <math.h>

/* Symmetric, largest magnitude to 127, ties to even. A group that is not finite poisons its scale, and so its row. */
static void quant_row(const float *x, int64_t n, int32_t group, int8_t *q, float *scale, float *sum) {
    for (int64_t g = 0; g < n / group; g++, x += group, q += group) {
        float max = 0;
        bool finite = true;
        for (int32_t i = 0; i < group; i++) {
            float a = fabsf(x[i]);
            finite &= a <= 3.4e38f;
            if (a > max) max = a;
        }
        float inverse = max > 0 ? 127.0f / max : 0;
        int32_t total = 0;
        for (int32_t i = 0; i < group; i++) {
            q[i] = (int8_t)lrintf(x[i] * inverse);
            total += q[i];
        }
        scale[g] = finite ? max * (1.0f / 127.0f) : NAN;
        sum[g] = scale[g] * (float)total;
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

static void group_dot(const struct pack_shape *s, const unsigned char *codes, const int8_t *q, int32_t total[PANEL_ROWS]) {
    memset(total, 0, PANEL_ROWS * sizeof *total);
    for (int32_t k = 0; k < s->group; k++)
        for (int r = 0; r < PANEL_ROWS; r++) {
            int32_t code = s->code_bits == 8 ? codes[k / 4 * PANEL_LINE + r * 4 + k % 4]
                                             : codes[k / 8 * PANEL_LINE + r * 4 + k % 4] >> (k % 8 < 4 ? 0 : 4) & 15;
            total[r] += code * q[k];
        }
}

static void panel(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    size_t code_bytes = (size_t)s->group * PANEL_ROWS * (size_t)s->code_bits / 8;
    for (int64_t m = 0; m < a->n_rows; m++) {
        const unsigned char *p = a->panel;
        float acc[PANEL_ROWS] = {0};
        for (int64_t g = 0; g < a->x.n_groups; g++, p += s->group_bytes) {
            int32_t total[PANEL_ROWS];
            float scale[PANEL_ROWS], bias[PANEL_ROWS];
            group_dot(s, p, a->x.q + m * a->x.in + g * s->group, total);
            read_scales(s, p + code_bytes, scale, bias);
            float sx = a->x.scale[m * a->x.n_groups + g], sum = a->x.sum[m * a->x.n_groups + g];
            for (int r = 0; r < PANEL_ROWS; r++) {
                acc[r] = fmaf((float)total[r], scale[r] * sx, acc[r]);
                acc[r] = fmaf(bias[r], sum, acc[r]);
            }
        }
        memcpy(a->y + m * a->y_stride, acc, sizeof acc);
    }
}

void kern_ref_packed(struct kernels *k) {
    k->quant_row = quant_row;
    k->panel = panel;
}
