/* Rows of our formats as blocks of GGUF, for the types that hold the same numbers. */
#include "tensor/block.h"

#include "base/half.h"
#include "tensor/quant.h"

enum { GROUP_MAX = 128 };

static void put_nibbles(const uint8_t *codes, int n_bytes, uint8_t *p) {
    for (int i = 0; i < n_bytes; i++) p[i] = (uint8_t)((codes[i] & 15) | (codes[n_bytes + i] & 15) << 4);
}

static bool put_half(float v, uint8_t *p) {
    uint16_t half = f16_from_f32(v);
    p[0] = (uint8_t)half, p[1] = (uint8_t)(half >> 8);
    return f16_to_f32(half) == v;
}

static bool join_q4_0(const struct block_parts *in, uint8_t *p) {
    put_nibbles(in->codes, 16, p + 2);
    return put_half(in->scales[0], p) && in->biases[0] == -8 * in->scales[0];
}

static bool join_q4_1(const struct block_parts *in, uint8_t *p) {
    put_nibbles(in->codes, 16, p + 4);
    return put_half(in->scales[0], p) && put_half(in->biases[0], p + 2);
}

static void put_fifth_bits(const uint8_t *codes, uint8_t *p) {
    memset(p, 0, 4);
    for (int e = 0; e < 32; e++) p[e / 8] |= (uint8_t)((codes[e] >> 4 & 1) << e % 8);
}

static bool join_q5_0(const struct block_parts *in, uint8_t *p) {
    put_fifth_bits(in->codes, p + 2);
    put_nibbles(in->codes, 16, p + 6);
    return put_half(in->scales[0], p) && in->biases[0] == -16 * in->scales[0];
}

static bool join_q5_1(const struct block_parts *in, uint8_t *p) {
    put_fifth_bits(in->codes, p + 4);
    put_nibbles(in->codes, 16, p + 8);
    return put_half(in->scales[0], p) && put_half(in->biases[0], p + 2);
}

static bool join_q8_0(const struct block_parts *in, uint8_t *p) {
    for (int e = 0; e < 32; e++) p[2 + e] = in->codes[e] ^ 0x80;
    return put_half(in->scales[0], p) && in->biases[0] == -128 * in->scales[0];
}

static bool join_mxfp4(const struct block_parts *in, uint8_t *p) {
    p[0] = in->raw[0];
    put_nibbles(in->codes, 16, p + 1);
    return true;
}

static bool join_nvfp4(const struct block_parts *in, uint8_t *p) {
    for (int k = 0; k < 4; k++) {
        p[k] = in->raw[k];
        if (p[k] >= 0x7F) return false; /* signs and the byte that is no number are not read */
        put_nibbles(in->codes + 16 * k, 8, p + 4 + 8 * k);
    }
    return true;
}

/* The smaller ones first. */
static const struct join {
    const char *name;
    enum quant_mode mode;
    int32_t bits;
    bool (*join)(const struct block_parts *in, uint8_t *p);
} joins[] = {
    {"Q4_0", QUANT_AFFINE, 4, join_q4_0},  {"Q4_1", QUANT_AFFINE, 4, join_q4_1}, {"Q5_0", QUANT_AFFINE, 5, join_q5_0},
    {"Q5_1", QUANT_AFFINE, 5, join_q5_1},  {"Q8_0", QUANT_AFFINE, 8, join_q8_0}, {"MXFP4", QUANT_MXFP4, 4, join_mxfp4},
    {"NVFP4", QUANT_NVFP4, 4, join_nvfp4},
};
enum { N_JOINS = sizeof joins / sizeof *joins };

const struct block_type *block_for(const struct format *f, int i) {
    for (size_t k = 0; k < N_JOINS; k++)
        if (joins[k].mode == f->mode && joins[k].bits == f->bits && i-- == 0) return block_named(joins[k].name);
    return NULL;
}

static bool (*join_of(const struct block_type *t))(const struct block_parts *, uint8_t *) {
    for (size_t k = 0; k < N_JOINS; k++)
        if (strcmp(joins[k].name, t->name) == 0) return joins[k].join;
    return NULL;
}

/* Group g of a row. */
static void read_scales(const struct format *f, const struct quant_row *row, int64_t g, float *scale, float *bias, uint8_t *raw) {
    if (f->mode != QUANT_AFFINE) {
        *raw = ((const uint8_t *)row->scales)[g];
        return;
    }
    size_t at = (size_t)g * (size_t)dtype_bits(f->dtype) / 8;
    plain_to_f32(f->dtype, (const uint8_t *)row->scales + at, 1, scale);
    plain_to_f32(f->dtype, (const uint8_t *)row->biases + at, 1, bias);
}

bool block_join(const struct block_type *t, const struct format *f, const struct quant_row *row, int64_t n, void *out) {
    bool (*join)(const struct block_parts *, uint8_t *) = join_of(t);
    uint8_t *p = out, codes[GROUP_MAX];
    int32_t step = f->group > t->n ? f->group : t->n, n_groups = t->n / (f->group < t->n ? f->group : t->n);
    if (!join || step > GROUP_MAX || n % step) return false;
    for (int64_t e = 0; e < n; e += step) {
        quant_codes(f, row->values, e, step, codes);
        for (int32_t k = 0; k < step; k += t->n, p += t->bytes) {
            struct block_parts parts = {0};
            memcpy(parts.codes, codes + k, t->n);
            for (int32_t g = 0; g < n_groups && g < BLOCK_GROUPS_MAX; g++)
                read_scales(f, row, (e + k) / f->group + g, &parts.scales[g], &parts.biases[g], &parts.raw[g]);
            if (!join(&parts, p)) return false;
        }
    }
    return true;
}
