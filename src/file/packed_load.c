/* Reading quantised matrices of every layout into codes, scales and zero points. The sizes of all parts were checked when they were found. */
#include "file/packed.h"

#include "base/half.h"
#include "tensor/quant.h"

int packed_read_bytes(const struct checkpoint_tensor *t, unsigned char **out, struct err *err) {
    *out = mem_try((size_t)t->t->bytes + 8);
    if (!*out) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->t->name));
    int code = checkpoint_read(t, 0, *out, (size_t)t->t->bytes, err);
    if (code) mem_free(*out), *out = NULL;
    return code;
}

static float small_float(enum dtype dt, uint8_t b) {
    return dt == DT_F8E4M3 ? f8e4m3_to_f32(b) : e8m0_to_f32(b);
}

int packed_read_floats(const struct checkpoint_tensor *t, float **out, struct err *err) {
    unsigned char *raw;
    int64_t n = (int64_t)t->t->n_elements;
    enum dtype dt = t->t->dtype;
    TRY(packed_read_bytes(t, &raw, err));
    float *values = *out = mem_try((size_t)n * sizeof **out + 1);
    int code = values ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->t->name));
    if (!code && dtype_bits(dt) == 8)
        for (int64_t i = 0; i < n; i++) values[i] = small_float(dt, raw[i]);
    else if (!code && !plain_to_f32(dt, raw, n, values))
        code = err_set(err, ERR_EUNSUPPORTED, "%.*s is %s, expected a float type", STR_ARG(t->t->name), dtype_name(dt));
    mem_free(raw);
    if (code) mem_free(values), *out = NULL;
    return code;
}

/* ---- codes in words --------------------------------------------------------------------------------------------------------- */

static uint32_t word_at(const unsigned char *p, int64_t i) {
    uint32_t w;
    memcpy(&w, p + 4 * i, 4);
    return w;
}

/* Bits [at, at + bits) of a stream of words that lie `stride` words apart. */
static unsigned stream_bits(const unsigned char *p, int64_t stride, int64_t at, int bits) {
    uint64_t low = word_at(p, at / 32 * stride), wide = low;
    if (at % 32 + bits > 32) wide |= (uint64_t)word_at(p, (at / 32 + 1) * stride) << 32;
    return (unsigned)(wide >> at % 32) & ((1u << bits) - 1);
}

/* A scale and a zero point for each group out of [groups, rows]. */
static int turned_scales(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    float *scales;
    TRY(packed_read_floats(m->parts[PACKED_SCALES], &scales, err));
    for (int64_t g = 0; g < m->n_groups; g++)
        for (int64_t r = 0; r < m->rows; r++) out->scales[r * m->n_groups + g] = scales[g * m->rows + r];
    mem_free(scales);
    return ERR_OK;
}

/* ---- GPTQ: words along the inputs; AWQ: along the outputs, in an order of its own ------------------------------------------------ */

static int gptq_zeros(const struct packed_matrix *m, float *out, struct err *err) {
    unsigned char *raw;
    int64_t words = m->rows * m->bits / 32;
    TRY(packed_read_bytes(m->parts[PACKED_ZEROS], &raw, err));
    for (int64_t g = 0; g < m->n_groups; g++)
        for (int64_t r = 0; r < m->rows; r++)
            out[r * m->n_groups + g] = (float)((int)stream_bits(raw + 4 * g * words, 1, r * m->bits, m->bits) + m->zero_plus);
    mem_free(raw);
    return ERR_OK;
}

static int gptq_load(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    unsigned char *raw;
    TRY(turned_scales(m, out, err));
    TRY(gptq_zeros(m, out->zeros, err));
    TRY(packed_read_bytes(m->parts[PACKED_VALUES], &raw, err));
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t k = 0; k < m->in; k++) out->codes[r * m->in + k] = (uint8_t)stream_bits(raw + 4 * r, m->rows, k * m->bits, m->bits);
    mem_free(raw);
    return ERR_OK;
}

/* Eight outputs in a word: the even ones first. */
static unsigned awq_code(const unsigned char *row, int64_t i) {
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return word_at(row, i / 8) >> 4 * place[i % 8] & 15u;
}

static int awq_zeros(const struct packed_matrix *m, float *out, struct err *err) {
    unsigned char *raw;
    TRY(packed_read_bytes(m->parts[PACKED_ZEROS], &raw, err));
    for (int64_t g = 0; g < m->n_groups; g++)
        for (int64_t r = 0; r < m->rows; r++) out[r * m->n_groups + g] = (float)awq_code(raw + g * m->rows / 2, r);
    mem_free(raw);
    return ERR_OK;
}

static int awq_load(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    unsigned char *raw;
    TRY(turned_scales(m, out, err));
    TRY(awq_zeros(m, out->zeros, err));
    TRY(packed_read_bytes(m->parts[PACKED_VALUES], &raw, err));
    for (int64_t k = 0; k < m->in; k++)
        for (int64_t r = 0; r < m->rows; r++) out->codes[r * m->in + k] = (uint8_t)awq_code(raw + k * m->rows / 2, r);
    mem_free(raw);
    return ERR_OK;
}

/* ---- rows of words, and of bytes: compressed-tensors, LLM.int8 ------------------------------------------------------------------- */

/* Scales [rows / block_rows, groups], or one for everything. */
static int row_scales(const struct packed_matrix *m, float *out, struct err *err) {
    float *scales;
    int64_t rows = m->rows / m->n_experts, blocks = (rows + m->block_rows - 1) / m->block_rows;
    TRY(packed_read_floats(m->parts[PACKED_SCALES], &scales, err));
    bool is_one = m->parts[PACKED_SCALES]->t->n_elements == 1;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t g = 0; g < m->n_groups; g++)
            out[r * m->n_groups + g] = scales[is_one ? 0 : (r / rows * blocks + r % rows / m->block_rows) * m->n_groups + g];
    mem_free(scales);
    return ERR_OK;
}

/* Zero points [rows, groups] of whole numbers, or words of them along the rows. */
static int row_zeros(const struct packed_matrix *m, float *out, struct err *err) {
    const struct checkpoint_tensor *t = m->parts[PACKED_ZEROS];
    unsigned char *raw;
    int64_t n = m->rows * m->n_groups, per_word = 32 / m->bits;
    for (int64_t i = 0; i < n && !t; i++) out[i] = (float)m->offset;
    if (!t) return ERR_OK;
    TRY(packed_read_bytes(t, &raw, err));
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t g = 0; g < m->n_groups; g++) {
            int64_t i = r * m->n_groups + g, at = r / per_word * m->n_groups + g;
            out[i] = t->t->dtype == DT_I8 ? (float)((int8_t)raw[t->t->n_elements == 1 ? 0 : i] + m->offset)
                                          : (float)(word_at(raw, at) >> m->bits * (r % per_word) & ((1u << m->bits) - 1));
        }
    mem_free(raw);
    return ERR_OK;
}

static int rows_int_load(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    unsigned char *raw;
    int64_t per_word = 32 / m->bits, words = (m->in + per_word - 1) / per_word;
    TRY(row_scales(m, out->scales, err));
    TRY(row_zeros(m, out->zeros, err));
    TRY(packed_read_bytes(m->parts[PACKED_VALUES], &raw, err));
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t k = 0; k < m->in; k++)
            out->codes[r * m->in + k] =
                (uint8_t)(word_at(raw, r * words + k / per_word) >> m->bits * (k % per_word) & ((1u << m->bits) - 1));
    mem_free(raw);
    return ERR_OK;
}

/* Signed bytes; what bitsandbytes has beside them is the largest number of a row. */
static int rows_i8_load(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    TRY(row_scales(m, out->scales, err));
    if (str_ends(m->parts[PACKED_SCALES]->t->name, STR(".SCB")))
        for (int64_t i = 0; i < m->rows * m->n_groups; i++) out->scales[i] /= 127.0f;
    TRY(row_zeros(m, out->zeros, err));
    TRY(checkpoint_read(m->parts[PACKED_VALUES], 0, out->codes, (size_t)(m->rows * m->in), err));
    for (int64_t i = 0; i < m->rows * m->in; i++) out->codes[i] ^= 0x80;
    return ERR_OK;
}

/* ---- small floats --------------------------------------------------------------------------------------------------------------- */

static int fp8_load(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    TRY(row_scales(m, out->scales, err));
    return checkpoint_read(m->parts[PACKED_VALUES], 0, out->codes, (size_t)(m->rows * m->in), err);
}

static int fp4_codes(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    unsigned char *raw;
    TRY(packed_read_bytes(m->parts[PACKED_VALUES], &raw, err));
    for (int64_t i = 0; i < m->rows * m->in; i++) out->codes[i] = raw[i / 2] >> 4 * (i % 2) & 15;
    mem_free(raw);
    return ERR_OK;
}

/* compressed-tensors divides by the second scale, ModelOpt multiplies. */
static int nvfp4_load(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    float *second;
    bool divides = str_ends(m->parts[PACKED_SECOND]->t->name, STR("_global_scale"));
    TRY(row_scales(m, out->scales, err));
    TRY(packed_read_floats(m->parts[PACKED_SECOND], &second, err));
    for (int64_t i = 0; i < m->rows * m->n_groups; i++) out->scales[i] = divides ? out->scales[i] / second[0] : out->scales[i] * second[0];
    mem_free(second);
    return fp4_codes(m, out, err);
}

static int mxfp4_load(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    unsigned char *raw;
    TRY(packed_read_bytes(m->parts[PACKED_SCALES], &raw, err));
    for (int64_t i = 0; i < m->rows * m->n_groups; i++) out->scales[i] = e8m0_to_f32(raw[i]);
    mem_free(raw);
    return fp4_codes(m, out, err);
}

/* ---- a table of values: bitsandbytes ----------------------------------------------------------------------------------------------- */

/* Scales of blocks that go on over the ends of rows; they may be quantised themselves. */
static int block_scales(const struct packed_matrix *m, float **out, struct err *err) {
    const struct packed_nested *n = m->nested;
    const struct checkpoint_tensor *t = m->parts[PACKED_SCALES];
    unsigned char *raw;
    float *map = NULL, *outer = NULL;
    if (!n->is_nested) return packed_read_floats(t, out, err);
    TRY(packed_read_bytes(t, &raw, err));
    int code = packed_read_floats(m->parts[PACKED_MAP_2], &map, err);
    if (!code) code = packed_read_floats(m->parts[PACKED_SECOND], &outer, err);
    *out = code ? NULL : mem_try((size_t)t->t->n_elements * sizeof **out + 1);
    if (!code && !*out) code = err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->t->name));
    for (uint64_t i = 0; i < t->t->n_elements && !code; i++) (*out)[i] = map[raw[i]] * outer[i / (uint64_t)n->block] + n->offset;
    mem_free(map);
    mem_free(outer);
    mem_free(raw);
    return code;
}

static int codebook_load(const struct packed_matrix *m, struct packed_numbers *out, struct err *err) {
    unsigned char *raw = NULL;
    float *scales = NULL, *map = NULL;
    int code = block_scales(m, &scales, err);
    if (!code) code = packed_read_floats(m->parts[PACKED_MAP], &map, err);
    if (!code) code = packed_read_bytes(m->parts[PACKED_VALUES], &raw, err);
    for (int64_t i = 0; i < m->rows * m->in && !code; i++) out->values[i] = map[raw[i / 2] >> (i % 2 ? 0 : 4) & 15] * scales[i / m->group];
    mem_free(raw);
    mem_free(map);
    mem_free(scales);
    return code;
}

const struct packed_kind packed_gptq = {"GPTQ", false, gptq_load}, packed_awq = {"AWQ", false, awq_load},
                         packed_rows_int = {"compressed-tensors", false, rows_int_load}, packed_rows_i8 = {"int8", false, rows_i8_load},
                         packed_fp8 = {"FP8", true, fp8_load}, packed_nvfp4 = {"NVFP4", true, nvfp4_load},
                         packed_mxfp4 = {"MXFP4", true, mxfp4_load}, packed_codebook = {"bitsandbytes", false, codebook_load};

int packed_zeros_are_powers(const struct packed_matrix *m, bool *out, struct err *err) {
    *out = true;
    if (!m->parts[PACKED_ZEROS]) return ERR_OK; /* the offset is one */
    int64_t n = m->rows * m->n_groups;
    float *zeros = mem_try((size_t)n * sizeof *zeros + 1);
    if (!zeros) return err_set(err, ERR_EMEMORY, "no memory for zero points of %.*s", STR_ARG(m->path));
    int code = (m->kind == &packed_gptq ? gptq_zeros : m->kind == &packed_awq ? awq_zeros : row_zeros)(m, zeros, err);
    for (int64_t i = 0; i < n && !code && *out; i++) *out = zeros[i] >= 0 && ((int)zeros[i] & ((int)zeros[i] - 1)) == 0;
    mem_free(zeros);
    return code;
}
