/* tensor/quant: packing and unpacking of every format, against its definition and against MLX's own results
 * (tests/fixtures/quant; tests/quant/test_quant_mlx.py compares with a living MLX). */
#include "unit.h"

#include "base/half.h"
#include "base/json.h"
#include "os/os.h"
#include "tensor/quant.h"

#include <math.h>
#include <stdio.h>

static const struct format formats[] = {
#define AFFINE(bits)                                                       \
    {QUANT_AFFINE, DT_F32, bits, 32}, {QUANT_AFFINE, DT_BF16, bits, 64}, { \
        QUANT_AFFINE, DT_F16, bits, 128                                    \
    }
    AFFINE(2),
    AFFINE(3),
    AFFINE(4),
    AFFINE(5),
    AFFINE(6),
    AFFINE(8),
#undef AFFINE
    {QUANT_MXFP4, DT_F32, 4, 32},
    {QUANT_MXFP8, DT_F32, 8, 32},
    {QUANT_NVFP4, DT_F32, 4, 16},
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

/* Weights that no checkpoint should hold, and codes that no quantiser writes: no crash, and zeros stay zeros. */
/* Codes of E2M1 and E4M3 with a scale of f32 for each group: what checkpoints of other programs become. */
static void small_floats_have_wide_scales(void) {
    const struct format fp4 = {.mode = QUANT_FP4, .dtype = DT_F32, .bits = 4, .group = 16};
    const struct format fp8 = {.mode = QUANT_FP8, .dtype = DT_F32, .bits = 8, .group = 16};
    const float scales[2] = {0.3f, -1e-20f};
    uint8_t codes[32], packed[32];
    float out[32];
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(i % 16);
    quant_put_codes(&fp4, codes, 32, packed);
    quant_unpack(&fp4, &(struct quant_row){packed, scales, NULL}, 0, 32, out);
    for (int i = 0; i < 32; i++) CHECK(out[i] == f4e2m1_values[i % 16] * scales[i / 16]);
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(i * 8);
    quant_unpack(&fp8, &(struct quant_row){codes, scales, NULL}, 0, 32, out);
    for (int i = 0; i < 32; i++) CHECK(out[i] == f8e4m3_to_f32(codes[i]) * scales[i / 16]);
    CHECK(format_row_bytes(&fp4, 32) == 16 + 8 && format_row_bytes(&fp8, 32) == 32 + 8 && quant_biases_bytes(&fp8, 32) == 0);
    CHECK(!format_valid(&fp8) && !quant_mode_parse(STR("fp8"), &(enum quant_mode){0})); /* no file of MLX declares it */
}

static void odd_rows_are_harmless(void) {
    static const float odd[] = {0.0f, -0.0f, 1e-45f, -1e-39f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN};
    for (int k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];
        float x[N] = {0}, y[N];
        uint8_t values[N], scales[N], biases[N];
        struct quant_row row = {values, scales, biases};
        quant_pack(f, x, N, values, scales, biases);
        quant_unpack(f, &row, 0, N, y);
        for (int i = 0; i < N; i++) CHECK(y[i] == 0);
        for (int i = 0; i < N; i++) x[i] = 1e-42f * (float)(i % 7);
        quant_pack(f, x, N, values, scales, biases);
        quant_unpack(f, &row, 0, N, y);
        for (int i = 0; i < N; i++) CHECK(fabsf(y[i]) < 1e-38f); /* no scale may wrap around to a huge one */
        for (int i = 0; i < N; i++) x[i] = odd[(i + i / 16) % 9];
        quant_pack(f, x, N, values, scales, biases);
        for (int i = 0; i < N; i++) values[i] = scales[i] = biases[i] = (uint8_t)i;
        quant_unpack(f, &row, 0, N, y);
    }
}

/* ---- fixtures made by MLX ---- */

enum { ROWS = 4, COLUMNS = 128 };

struct fixture {
    struct arena arena;
    struct str file;
    yyjson_val *header;
    struct format format;
};

static void fixture_open(struct fixture *fx, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/fixtures/quant/%s.safetensors", unit_source_dir(), name);
    *fx = (struct fixture){0};
    struct err err;
    CHECK_OK(os_file_load(&fx->arena, path, 1 << 20, &fx->file, &err), err);
    uint64_t n = 0;
    CHECK(fx->file.n > 8);
    memcpy(&n, fx->file.p, 8);
    CHECK(n < fx->file.n - 8);
    CHECK_OK(json_parse(&fx->arena, (struct str){fx->file.p + 8, (size_t)n}, path, JSON_STRICT, &fx->header, &err), err);
    yyjson_val *meta = json_get(fx->header, "__metadata__");
    int64_t bits, group;
    CHECK(quant_mode_parse(json_str(meta, "mode", STR("")), &fx->format.mode));
    CHECK(str_to_int64(json_str(meta, "bits", STR("")), &bits) && str_to_int64(json_str(meta, "group", STR("")), &group));
    struct str dtype = json_str(meta, "dtype", STR(""));
    fx->format.dtype = str_is(dtype, "f32") ? DT_F32 : str_is(dtype, "f16") ? DT_F16 : DT_BF16;
    fx->format.bits = (uint8_t)bits;
    fx->format.group = (uint16_t)group;
    CHECK(format_valid(&fx->format));
}

/* Row `row` of `n_rows` of a tensor; NULL when the fixture has no such tensor. */
static const uint8_t *fixture_row(const struct fixture *fx, const char *tensor, int row, int n_rows, size_t *out_bytes) {
    yyjson_val *offsets = json_get(json_get(fx->header, tensor), "data_offsets");
    int64_t begin = 0, end = 0;
    uint64_t header_bytes;
    if (!json_val_int(yyjson_arr_get(offsets, 0), &begin) || !json_val_int(yyjson_arr_get(offsets, 1), &end)) return NULL;
    memcpy(&header_bytes, fx->file.p, 8);
    CHECK(begin <= end && 8 + header_bytes + (uint64_t)end <= fx->file.n);
    *out_bytes = (size_t)(end - begin) / (size_t)n_rows;
    return (const uint8_t *)fx->file.p + 8 + header_bytes + begin + (size_t)row * *out_bytes;
}

static void check_plane(const char *name, const char *plane, const struct fixture *fx, int row, const uint8_t *got, size_t got_bytes) {
    size_t want_bytes = 0;
    const uint8_t *want = fixture_row(fx, plane, row, ROWS, &want_bytes);
    FAIL_IF(got_bytes != want_bytes, "%s: %s have %zu bytes, MLX %zu", name, plane, got_bytes, want_bytes);
    for (size_t i = 0; i < got_bytes; i++)
        FAIL_IF(got[i] != want[i], "%s: row %d, byte %zu of %s is %02x, MLX %02x", name, row, i, plane, got[i], want[i]);
}

static void check_fixture(const char *name) {
    struct fixture fx;
    fixture_open(&fx, name);
    const struct format *f = &fx.format;
    size_t bytes;
    float unpacked[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++) {
        float x[COLUMNS];
        uint8_t values[COLUMNS], scales[COLUMNS], biases[COLUMNS];
        CHECK(plain_to_f32(f->dtype, fixture_row(&fx, "weights", r, ROWS, &bytes), COLUMNS, x));
        quant_pack(f, x, COLUMNS, values, scales, biases);
        check_plane(name, "values", &fx, r, values, quant_values_bytes(f, COLUMNS));
        check_plane(name, "scales", &fx, r, scales, quant_scales_bytes(f, COLUMNS));
        check_plane(name, "biases", &fx, r, biases, quant_biases_bytes(f, COLUMNS));

        struct quant_row row = {fixture_row(&fx, "values", r, ROWS, &bytes), fixture_row(&fx, "scales", r, ROWS, &bytes),
                                fixture_row(&fx, "biases", r, ROWS, &bytes)};
        const uint8_t *want = fixture_row(&fx, "dequantised", r, ROWS, &bytes);
        quant_unpack(f, &row, 0, COLUMNS, unpacked[r]);
        for (int i = 0; i < COLUMNS; i++) {
            float w;
            memcpy(&w, want + 4 * i, 4);
            /* equal, not near: the fixture computes in f32 too (MLX left alone would round to bf16 for bf16 scales) */
            FAIL_IF(unpacked[r][i] != w, "%s: row %d, element %d is %.9g, MLX %.9g", name, r, i, (double)unpacked[r][i], (double)w);
        }
    }
    for (int k = 0; k < 2; k++) {
        float x[COLUMNS], want[ROWS];
        memcpy(x, fixture_row(&fx, "x", k, 2, &bytes), sizeof x);
        memcpy(want, fixture_row(&fx, "y", k, 2, &bytes), sizeof want);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0, magnitude = 0;
            for (int i = 0; i < COLUMNS; i++)
                sum += (double)x[i] * (double)unpacked[r][i], magnitude += fabs((double)x[i] * (double)unpacked[r][i]);
            CHECK_NEAR(want[r], sum, 1e-6 * magnitude); /* MLX sums in f32 */
        }
    }
    arena_free(&fx.arena);
}

static void affine_fixtures_match_mlx(void) {
    static const int bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 3; g++) {
            char name[64];
            snprintf(name, sizeof name, "affine-%d-g%d", bits[b], groups[g]);
            check_fixture(name);
        }
}

static void fp_fixtures_match_mlx(void) {
    static const char *const names[] = {"mxfp4-f32",  "mxfp4-f16", "mxfp4-bf16", "mxfp8-f32", "mxfp8-f16",
                                        "mxfp8-bf16", "nvfp4-f32", "nvfp4-f16",  "nvfp4-bf16"};
    for (int i = 0; i < 9; i++) check_fixture(names[i]);
}

const struct unit_suite unit_quant = {
    "quant",
    (const struct unit_case[]){
        {"plain_rows_convert", plain_rows_convert},
        {"sizes_agree_with_format", sizes_agree_with_format},
        {"codes_are_a_bit_stream", codes_are_a_bit_stream},
        {"rows_survive_a_round_trip", rows_survive_a_round_trip},
        {"small_floats_have_wide_scales", small_floats_have_wide_scales},
        {"odd_rows_are_harmless", odd_rows_are_harmless},
        {"affine_fixtures_match_mlx", affine_fixtures_match_mlx},
        {"fp_fixtures_match_mlx", fp_fixtures_match_mlx},
        {0},
    },
};
