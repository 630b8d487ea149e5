/* tensor/quant: packing and unpacking of every format. */
#include "unit.h"

#include "base/half.h"
#include "base/rng.h"
#include "tensor/quant.h"

#include <math.h>

static const struct format formats[] = {
#define AFFINE(bits) {QUANT_AFFINE, DT_F32, bits, 32}, {QUANT_AFFINE, DT_BF16, bits, 64}, {QUANT_AFFINE, DT_F16, bits, 128}
    AFFINE(2), AFFINE(3), AFFINE(4), AFFINE(5), AFFINE(6), AFFINE(8),
#undef AFFINE
    {QUANT_MXFP4, DT_F32, 4, 32}, {QUANT_MXFP8, DT_F32, 8, 32}, {QUANT_NVFP4, DT_F32, 4, 16},
};
enum { N_FORMATS = sizeof formats / sizeof *formats, N = 256 };

static void plain_rows_convert(void) {
    uint16_t halves[2048];
    float got[2048];
    for (int base = 0; base < 65536; base += 2048) {
        for (int i = 0; i < 2048; i++) halves[i] = (uint16_t)(base + i);
        CHECK(plain_to_f32(DT_F16, halves, 2048, got));
        for (int i = 0; i < 2048; i++) CHECK_INT(f32_bits(got[i]), f32_bits(f16_to_f32(halves[i])));
        CHECK(plain_to_f32(DT_BF16, halves, 2048, got));
        for (int i = 0; i < 2048; i++) CHECK_INT(f32_bits(got[i]), (uint32_t)halves[i] << 16);
    }
    CHECK(!plain_to_f32(DT_F64, halves, 1, got) && !plain_to_f32(DT_I32, halves, 1, got));
    CHECK(!plain_from_f32(DT_F64, got, 1, halves));
}

static void sizes_agree_with_format(void) {
    for (int k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];
        CHECK(format_valid(f));
        CHECK_INT(quant_values_bytes(f, N) + quant_scales_bytes(f, N) + quant_biases_bytes(f, N), format_row_bytes(f, N));
    }
}

/* A bit at a time, as the format is defined: the specialised loops must agree. */
static void codes_are_a_bit_stream(void) {
    for (int k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];
        uint8_t bytes[N + 1], got[N];
        for (int i = 0; i < N; i++) bytes[i + 1] = (uint8_t)(i * 151 + k * 77 + (i * i >> 3));
        quant_codes(f, bytes + 1, 128, N - 128, got); /* unaligned on purpose */
        for (int i = 0; i < N - 128; i++) {
            int want = 0;
            for (int b = 0; b < f->bits; b++) {
                int at = (i + 128) * f->bits + b;
                want |= (bytes[1 + at / 8] >> at % 8 & 1) << b;
            }
            CHECK_INT(got[i], want);
        }
    }
}

static void rows_survive_a_round_trip(void) {
    for (int k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];
        float x[N], y[N], z[N];
        uint8_t values[N], scales[N], biases[N];
        for (int i = 0; i < N; i++) x[i] = bf16_to_f32(bf16_from_f32(sinf((float)(i * i + k)) * (float)(1 + i % 5)));
        quant_pack(f, x, N, values, scales, biases);
        struct quant_row row = {values, scales, biases};
        quant_unpack(f, &row, 0, N, y);
        /* |x| <= 5. A whole step, not half: affine bends its scale so that zero has a code and may cut off the other
         * edge; the power-of-two modes cut off tops (by up to sqrt(2)). */
        float bound = f->mode == QUANT_AFFINE ? 10.0f / (float)((1 << f->bits) - 1) + 0.05f : 1.5f;
        for (int i = 0; i < N; i++) CHECK_NEAR(y[i], x[i], bound);
        /* a part of a row is that part of the whole */
        quant_unpack(f, &row, 128, 128, z);
        for (int i = 0; i < 128; i++) CHECK(z[i] == y[128 + i]);
    }
}

const struct unit_suite unit_quant = {
    "quant",
    (const struct unit_case[]){
        {"plain_rows_convert", plain_rows_convert},
        {"sizes_agree_with_format", sizes_agree_with_format},
        {"codes_are_a_bit_stream", codes_are_a_bit_stream},
        {"rows_survive_a_round_trip", rows_survive_a_round_trip},
        {0},
    },
};
