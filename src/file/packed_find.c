/* Finding the quantised matrices of a checkpoint by their tensors, and checking every size before anything is read. */
#include "file/packed.h"

enum { SIDE_MAX = 1 << 30 };

struct finder {
    const struct checkpoint *c;
    struct arena *arena;
    yyjson_val *config; /* quantization_config */
    struct packed_list *out;
    struct err *err;
};

static int wrong(const struct finder *f, const struct packed_matrix *m, const char *what) {
    return err_set(f->err, ERR_EUNSUPPORTED, "%s: %.*s as \"%.*s\" stores it: %s", f->c->path, (int)(m->path.n > 120 ? 120 : m->path.n),
                   m->path.p, STR_ARG(f->c->quant.foreign), what);
}

/* The tensor PATH + suffix, which is shown no more. */
static const struct checkpoint_tensor *take(const struct finder *f, const struct packed_matrix *m, const char *suffix) {
    const struct checkpoint_tensor *t = checkpoint_find(f->c, str_fmt(f->arena, "%.*s%s", STR_ARG(m->path), suffix));
    if (t) map_put(&f->out->taken, t->t->name, NULL);
    return t;
}

static bool is_shape(const struct checkpoint_tensor *t, enum dtype dt, int64_t rows, int64_t columns) {
    return t && t->t->dtype == dt && t->t->n_dims == 2 && t->t->shape[0] == rows && t->t->shape[1] == columns;
}

static bool is_plain_float(enum dtype dt) {
    return dt == DT_F32 || dt == DT_F16 || dt == DT_BF16;
}

static bool has_elements(const struct checkpoint_tensor *t, enum dtype dt, uint64_t n) {
    return t && t->t->dtype == dt && t->t->n_elements == n;
}

/* Rows and columns are what sizes are made of: products of them stay far from overflowing. */
static int set_shape(const struct finder *f, struct packed_matrix *m, int64_t rows, int64_t in) {
    if (rows < 1 || in < 1 || rows > SIDE_MAX || in > SIDE_MAX) return wrong(f, m, "it has no elements, or too many");
    m->n_experts = 1;
    m->n_dims = 2;
    m->shape[0] = m->rows = rows;
    m->shape[1] = m->in = in;
    m->block_rows = 1;
    return ERR_OK;
}

/* So many scales for a row. */
static int set_groups(const struct finder *f, struct packed_matrix *m, int64_t n_groups, int64_t said) {
    m->n_groups = n_groups;
    m->group = n_groups == 1 ? m->in : n_groups > 0 && m->in % n_groups == 0 ? m->in / n_groups : said;
    if (n_groups < 1 || m->group < 1 || (m->in + m->group - 1) / m->group != n_groups)
        return wrong(f, m, "the number of its scales does not go with its width");
    return ERR_OK;
}

/* ---- formats of ours ---------------------------------------------------------------------------------------------------------- */

/* The largest group of ours that lies in one of theirs everywhere; 0: none. */
static uint16_t our_group(const struct packed_matrix *m) {
    for (uint16_t g = 128; g >= 16; g /= 2)
        if (m->in % g == 0 && (m->n_groups == 1 || m->group % g == 0) && m->in * m->bits % 32 == 0) return g;
    return 0;
}

static int choose_format(const struct finder *f, struct packed_matrix *m) {
    static const bool widths[9] = {[2] = true, [3] = true, [4] = true, [5] = true, [6] = true, [8] = true};
    uint16_t group = our_group(m);
    bool powers = true;
    if (m->bits < 1 || m->bits > 8 || (!m->kind->is_fp && !widths[m->bits])) return wrong(f, m, "codes of that width are not read");
    m->format = (struct format){.dtype = m->kind->is_fp ? DT_F32 : m->dtype};
    if (m->is_scattered || group == 0 || m->nested) {
        f->out->n_unpacked++;
        return ERR_OK;
    }
    m->format.bits = (uint8_t)m->bits;
    m->format.group = group;
    if (m->kind == &packed_mxfp4 && m->group == 32) {
        m->format = (struct format){.mode = QUANT_MXFP4, .dtype = DT_U8, .bits = 4, .group = 32};
        return ERR_OK;
    }
    m->format.mode = !m->kind->is_fp ? QUANT_AFFINE : m->bits == 4 ? QUANT_FP4 : QUANT_FP8;
    if (m->kind->is_fp) return ERR_OK;
    TRY(packed_zeros_are_powers(m, &powers, f->err));
    if (!powers) m->format.dtype = DT_F32;
    return ERR_OK;
}

/* ---- GPTQ and AWQ -------------------------------------------------------------------------------------------------------------- */

/* The group of each column. In order: nothing needs the list. */
static int read_order(const struct finder *f, struct packed_matrix *m) {
    const struct checkpoint_tensor *t = m->parts[PACKED_ORDER];
    unsigned char *raw;
    int code = ERR_OK;
    if (!t) return ERR_OK;
    if (!has_elements(t, DT_I32, (uint64_t)m->in)) return wrong(f, m, "g_idx is not one whole number per column");
    TRY(packed_read_bytes(t, &raw, f->err));
    for (int64_t k = 0; k < m->in && !code; k++) {
        int32_t g;
        memcpy(&g, raw + 4 * k, 4);
        if (g < 0 || g >= m->n_groups) code = wrong(f, m, "g_idx names a group that is not there");
        m->is_scattered |= g != k / m->group;
    }
    mem_free(raw);
    return code;
}

static int words_by_columns(struct finder *f, struct packed_matrix *m) {
    const struct st_tensor *t = m->parts[PACKED_VALUES]->t;
    struct str method = f->c->quant.foreign, form = json_str(f->config, "checkpoint_format", STR("gptq"));
    bool is_awq = str_is(method, "awq");
    const struct checkpoint_tensor *zeros = m->parts[PACKED_ZEROS] = take(f, m, ".qzeros");
    const struct checkpoint_tensor *scales = m->parts[PACKED_SCALES] = take(f, m, ".scales");
    struct str version = json_str(f->config, "version", STR("gemm"));
    if (!is_awq && !str_is(method, "gptq")) return wrong(f, m, "its layout is not known");
    if (!is_awq && !str_is(form, "gptq") && !str_is(form, "gptq_v2")) return wrong(f, m, "checkpoint_format must be gptq or gptq_v2");
    if (is_awq && !str_is(version, "gemm") && !str_is(version, "GEMM")) return wrong(f, m, "of AWQ's versions only gemm is read");
    if (t->n_dims != 2 || !zeros || zeros->t->n_dims != 2 || zeros->t->dtype != DT_I32 || !scales || scales->t->n_dims != 2)
        return wrong(f, m, "qzeros or scales are missing, or are no matrices");
    if (!is_plain_float(scales->t->dtype)) return wrong(f, m, "its scales are no floats");
    int64_t rows = scales->t->shape[1], words = zeros->t->shape[1], groups = scales->t->shape[0];
    if (rows < 1 || rows > SIDE_MAX || words > SIDE_MAX || t->shape[0] > SIDE_MAX) return wrong(f, m, "it has no elements, or too many");
    m->kind = is_awq ? &packed_awq : &packed_gptq;
    m->bits = (int)(words * 32 / rows > 8 ? 0 : words * 32 / rows);
    if (m->bits < 2 || words * 32 != rows * m->bits || (is_awq && m->bits != 4)) return wrong(f, m, "qzeros do not go with the scales");
    TRY(set_shape(f, m, rows, is_awq ? t->shape[0] : t->shape[0] * 32 / m->bits));
    if (!is_shape(zeros, DT_I32, groups, words) ||
        !is_shape(m->parts[PACKED_VALUES], DT_I32, is_awq ? m->in : m->in * m->bits / 32, is_awq ? words : rows))
        return wrong(f, m, "qweight, qzeros and scales have sizes that do not go together");
    TRY(set_groups(f, m, groups, json_int(f->config, "group_size", 0)));
    m->dtype = scales->t->dtype;
    m->zero_plus = !is_awq && str_is(form, "gptq");
    m->parts[PACKED_ORDER] = take(f, m, ".g_idx");
    return read_order(f, m);
}

/* ---- compressed-tensors ---------------------------------------------------------------------------------------------------------- */

/* The width among those that config.json names with which the columns fill so many words; 0: none, or several. */
static int width_of(const struct finder *f, int64_t in, int64_t words) {
    yyjson_val *groups = json_get(f->config, "config_groups"), *key, *group;
    size_t i, n;
    int found = 0;
    if (!yyjson_is_obj(groups)) return 0;
    yyjson_obj_foreach(groups, i, n, key, group) {
        int64_t bits = json_int(json_get(group, "weights"), "num_bits", 0);
        if (bits < 2 || bits > 8 || (in + 32 / bits - 1) / (32 / bits) != words) continue;
        if (found && found != bits) return 0;
        found = (int)bits;
    }
    return found;
}

/* Columns as weight_shape says it; the packed rows may be longer. */
static int said_shape(const struct finder *f, struct packed_matrix *m, int64_t *rows, int64_t *in) {
    const struct checkpoint_tensor *t = take(f, m, ".weight_shape");
    unsigned char *raw;
    if (!t || t->t->n_elements != 2 || (t->t->dtype != DT_I64 && t->t->dtype != DT_I32)) return wrong(f, m, "weight_shape is missing");
    TRY(packed_read_bytes(t, &raw, f->err));
    int64_t wide[2];
    int32_t narrow[2];
    memcpy(wide, raw, t->t->dtype == DT_I64 ? sizeof wide : 0);
    memcpy(narrow, raw, sizeof narrow);
    mem_free(raw);
    *rows = t->t->dtype == DT_I64 ? wide[0] : narrow[0];
    *in = t->t->dtype == DT_I64 ? wide[1] : narrow[1];
    return ERR_OK;
}

/* Scales [rows], [rows, groups] or a single one, and the zero points beside them. */
static int scales_by_rows(struct finder *f, struct packed_matrix *m, const struct checkpoint_tensor *scales) {
    m->parts[PACKED_SCALES] = scales;
    if (!scales || !is_plain_float(scales->t->dtype)) return wrong(f, m, "its scales are missing, or no floats");
    const struct st_tensor *t = scales->t;
    int64_t groups = t->n_dims == 2 ? t->shape[1] : 1;
    if (t->n_elements != 1 && (t->n_dims < 1 || t->n_dims > 2 || t->shape[0] != m->rows))
        return wrong(f, m, "its scales have another shape");
    m->dtype = t->dtype;
    TRY(set_groups(f, m, t->n_elements == 1 ? 1 : groups, 0));
    m->offset = (int64_t)1 << (m->bits - 1);
    const struct checkpoint_tensor *zeros = m->parts[PACKED_ZEROS] = take(f, m, ".weight_zero_point");
    int64_t per_word = 32 / m->bits;
    bool is_fine = !zeros || has_elements(zeros, DT_I8, (uint64_t)m->rows * (uint64_t)m->n_groups) || has_elements(zeros, DT_I8, 1) ||
                   is_shape(zeros, DT_I32, (m->rows + per_word - 1) / per_word, m->n_groups);
    return is_fine ? ERR_OK : wrong(f, m, "weight_zero_point has another shape or type");
}

static int words_by_rows(struct finder *f, struct packed_matrix *m) {
    const struct st_tensor *t = m->parts[PACKED_VALUES]->t;
    int64_t rows = 0, in = 0;
    if (t->n_dims != 2) return wrong(f, m, "weight_packed is no matrix");
    TRY(said_shape(f, m, &rows, &in));
    TRY(set_shape(f, m, rows, in));
    m->kind = &packed_rows_int;
    m->bits = width_of(f, in, t->shape[1]);
    if (t->shape[0] != rows || m->bits == 0) return wrong(f, m, "weight_packed goes with none of the widths that config.json names");
    TRY(scales_by_rows(f, m, take(f, m, ".weight_scale")));
    m->parts[PACKED_ORDER] = take(f, m, ".weight_g_idx");
    return read_order(f, m);
}

static int bytes_by_rows(struct finder *f, struct packed_matrix *m) {
    const struct st_tensor *t = m->parts[PACKED_VALUES]->t;
    const struct checkpoint_tensor *largest = take(f, m, ".SCB");
    TRY(set_shape(f, m, t->shape[0], t->shape[1]));
    m->kind = &packed_rows_i8;
    m->bits = 8;
    return scales_by_rows(f, m, largest ? largest : take(f, m, ".weight_scale"));
}

/* ---- small floats ------------------------------------------------------------------------------------------------------------------ */

/* Two codes in a byte, a scale for each group, and one more for the whole. */
static int nibbles_by_rows(struct finder *f, struct packed_matrix *m) {
    const struct st_tensor *t = m->parts[PACKED_VALUES]->t;
    const struct checkpoint_tensor *scales = m->parts[PACKED_SCALES] = take(f, m, ".weight_scale");
    const struct checkpoint_tensor *second = take(f, m, ".weight_global_scale");
    if (!second) second = take(f, m, ".weight_scale_2");
    if (t->n_dims != 2 || t->shape[1] > SIDE_MAX) return wrong(f, m, "it is no matrix");
    TRY(set_shape(f, m, t->shape[0], 2 * t->shape[1]));
    m->bits = 4;
    m->parts[PACKED_SECOND] = second;
    m->kind = second ? &packed_nvfp4 : &packed_mxfp4;
    if (!scales || scales->t->n_dims != 2 || scales->t->shape[0] != m->rows)
        return wrong(f, m, "its scales are missing, or of another shape");
    bool is_byte = scales->t->dtype == DT_U8 || scales->t->dtype == DT_F8E8M0;
    if (second ? scales->t->dtype != DT_F8E4M3 || !has_elements(second, DT_F32, 1) : !is_byte)
        return wrong(f, m, "its scales are of another type");
    return set_groups(f, m, scales->t->shape[1], 0);
}

static const struct checkpoint_tensor *fp8_scales(const struct finder *f, const struct packed_matrix *m) {
    static const char *const suffixes[] = {".weight_scale_inv", ".weight_scale", "_scale_inv", "_scale"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const struct checkpoint_tensor *t = take(f, m, suffixes[i]);
        if (t) return t;
    }
    return NULL;
}

/* Rows and columns of a block, as config.json has it; 128 where it is silent. */
static void block_of(const struct finder *f, int64_t out[2]) {
    yyjson_val *said = json_get(f->config, "weight_block_size"), *groups = json_get(f->config, "config_groups"), *key, *group;
    size_t i, n;
    if (!said && yyjson_is_obj(groups))
        yyjson_obj_foreach(groups, i, n, key, group) if (!said) said = json_given(json_get(group, "weights"), "block_structure");
    for (int k = 0; k < 2; k++)
        if (!yyjson_is_arr(said) || !json_val_int(yyjson_arr_get(said, (size_t)k), &out[k]) || out[k] < 1 || out[k] > SIDE_MAX)
            out[k] = 128;
}

static int floats_by_rows(struct finder *f, struct packed_matrix *m) {
    const struct st_tensor *t = m->parts[PACKED_VALUES]->t;
    const struct checkpoint_tensor *scales = m->parts[PACKED_SCALES] = fp8_scales(f, m);
    int64_t rows = t->shape[t->n_dims - 2], experts = t->n_dims == 3 ? t->shape[0] : 1, block[2];
    if (rows < 1 || experts < 1 || experts > SIDE_MAX / rows) return wrong(f, m, "it has no elements, or too many");
    TRY(set_shape(f, m, rows * experts, t->shape[t->n_dims - 1]));
    m->n_experts = experts;
    m->n_dims = t->n_dims;
    memcpy(m->shape, t->shape, (size_t)t->n_dims * sizeof *m->shape);
    m->kind = &packed_fp8;
    m->bits = 8;
    if (!scales || (!is_plain_float(scales->t->dtype) && scales->t->dtype != DT_F8E8M0))
        return wrong(f, m, "its scales are missing, or no floats");
    const struct st_tensor *s = scales->t;
    if (s->n_elements == 1) return set_groups(f, m, 1, 0);
    if (s->n_elements == (uint64_t)m->rows) return set_groups(f, m, 1, 0);
    block_of(f, block);
    if (s->n_dims != t->n_dims || (experts > 1 && s->shape[0] != experts)) return wrong(f, m, "its scales have another shape");
    int64_t by_rows = s->shape[s->n_dims - 2], by_columns = s->shape[s->n_dims - 1];
    m->block_rows = by_rows == rows ? 1 : block[0];
    if ((rows + m->block_rows - 1) / m->block_rows != by_rows) return wrong(f, m, "its scales have another shape");
    m->n_groups = by_columns;
    m->group = by_rows == rows && by_columns > 0 && m->in % by_columns == 0 ? m->in / by_columns : block[1];
    return by_columns > 0 && (m->in + m->group - 1) / m->group == by_columns ? ERR_OK : wrong(f, m, "its scales have another shape");
}

/* ---- bitsandbytes -------------------------------------------------------------------------------------------------------------------- */

static int dtype_said(const struct finder *f, const struct packed_matrix *m, yyjson_val *state, enum dtype *out) {
    static const struct {
        const char *name;
        enum dtype dt;
    } names[] = {{"float32", DT_F32}, {"float16", DT_F16}, {"bfloat16", DT_BF16}};
    struct str said = json_str(state, "dtype", (struct str){0});
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_is(said, names[i].name)) {
            *out = names[i].dt;
            return ERR_OK;
        }
    return wrong(f, m, "its state names no type of floats");
}

static int read_state(struct finder *f, struct packed_matrix *m) {
    const struct checkpoint_tensor *t = m->parts[PACKED_STATE];
    unsigned char *raw;
    yyjson_val *state, *shape;
    int64_t rows = 0, in = 0;
    if (t->t->dtype != DT_U8 || t->t->n_elements > 1 << 16) return wrong(f, m, "its state is no text");
    TRY(packed_read_bytes(t, &raw, f->err));
    int code = json_parse(f->arena, str_n((char *)raw, (size_t)t->t->bytes), "quant_state", JSON_STRICT, &state, f->err);
    if (code) {
        mem_free(raw);
        return code;
    }
    shape = json_get(state, "shape");
    bool is_matrix = yyjson_is_arr(shape) && yyjson_arr_size(shape) == 2 && json_val_int(yyjson_arr_get(shape, 0), &rows) &&
                     json_val_int(yyjson_arr_get(shape, 1), &in);
    m->nested = arena_new(f->arena, struct packed_nested, 1);
    *m->nested =
        (struct packed_nested){.block = json_int(state, "nested_blocksize", 0), .offset = (float)json_num(state, "nested_offset", 0)};
    m->group = json_int(state, "blocksize", 0);
    code = is_matrix ? set_shape(f, m, rows, in) : wrong(f, m, "its state names no shape");
    if (!code) code = dtype_said(f, m, state, &m->dtype);
    mem_free(raw);
    return code;
}

static int codes_of_a_table(struct finder *f, struct packed_matrix *m) {
    m->kind = &packed_codebook;
    m->bits = 4;
    TRY(read_state(f, m));
    m->parts[PACKED_SCALES] = take(f, m, ".weight.absmax");
    m->parts[PACKED_MAP] = take(f, m, ".weight.quant_map");
    m->parts[PACKED_SECOND] = take(f, m, ".weight.nested_absmax");
    m->parts[PACKED_MAP_2] = take(f, m, ".weight.nested_quant_map");
    struct packed_nested *n = m->nested;
    n->is_nested = m->parts[PACKED_SECOND] != NULL;
    uint64_t total = (uint64_t)m->rows * (uint64_t)m->in;
    if (m->group < 1 || m->parts[PACKED_VALUES]->t->n_elements != (total + 1) / 2)
        return wrong(f, m, "it has another number of codes than its state says");
    uint64_t blocks = (total + (uint64_t)m->group - 1) / (uint64_t)m->group;
    if (!has_elements(m->parts[PACKED_MAP], DT_F32, 16) || !has_elements(m->parts[PACKED_SCALES], n->is_nested ? DT_U8 : DT_F32, blocks))
        return wrong(f, m, "its table or its scales are missing, or of another size");
    if (!n->is_nested) return ERR_OK;
    if (n->block < 1 || !has_elements(m->parts[PACKED_MAP_2], DT_F32, 256) ||
        !has_elements(m->parts[PACKED_SECOND], DT_F32, (blocks + (uint64_t)n->block - 1) / (uint64_t)n->block))
        return wrong(f, m, "its scales' own scales are missing, or of another size");
    return ERR_OK;
}

static int bytes_of_codes(struct finder *f, struct packed_matrix *m) {
    static const char *const states[] = {".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        m->parts[PACKED_STATE] = take(f, m, states[i]);
        if (m->parts[PACKED_STATE]) return codes_of_a_table(f, m);
    }
    return nibbles_by_rows(f, m);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------------------ */

/* How a matrix is recognised: what the name of its codes ends in, and their type. */
static const struct sign {
    const char *suffix;
    enum dtype dtype;
    int most_dims;
    int (*fill)(struct finder *f, struct packed_matrix *m);
} signs[] = {
    {".qweight", DT_I32, 2, words_by_columns}, {".weight_packed", DT_I32, 2, words_by_rows}, {".weight_packed", DT_U8, 2, nibbles_by_rows},
    {".weight", DT_F8E4M3, 3, floats_by_rows}, {".weight", DT_I8, 2, bytes_by_rows},         {".weight", DT_U8, 2, bytes_of_codes},
    {"_proj", DT_F8E4M3, 3, floats_by_rows},
};

static int add_matrix(struct finder *f, const struct checkpoint_tensor *t, const struct sign *sign) {
    static const char *const beside[] = {".input_scale",      ".input_global_scale", ".output_scale", ".activation_scale",
                                         ".input_zero_point", ".weight_format",      ".weight_shape"};
    struct packed_matrix *m = &f->out->matrices[f->out->n];
    bool is_bare = sign->suffix[0] != '.'; /* stacked experts have no ".weight" */
    *m = (struct packed_matrix){.path = str_sub(t->t->name, 0, t->t->name.n - (is_bare ? 0 : strlen(sign->suffix)))};
    m->parts[PACKED_VALUES] = t;
    map_put(&f->out->taken, t->t->name, NULL);
    TRY(sign->fill(f, m));
    if ((uint64_t)m->rows * (uint64_t)m->n_groups > SIZE_MAX / 64 || (uint64_t)m->rows * (uint64_t)m->in > SIZE_MAX / 64)
        return wrong(f, m, "it is too large");
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) take(f, m, beside[i]);
    TRY(choose_format(f, m));
    f->out->n++;
    return ERR_OK;
}

static const struct sign *sign_of(const struct st_tensor *t) {
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (t->dtype == signs[i].dtype && t->n_dims >= 2 && t->n_dims <= signs[i].most_dims && str_ends(t->name, str_of(signs[i].suffix)))
            return &signs[i];
    return NULL;
}

int packed_find(const struct checkpoint *c, struct arena *a, struct packed_list *out, struct err *err) {
    struct finder f = {.c = c, .arena = a, .config = config_get(&c->config, "quantization_config"), .out = out, .err = err};
    out->matrices = arena_new(a, struct packed_matrix, c->n_tensors + 1);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct sign *sign = sign_of(c->tensors[i].t);
        if (sign) TRY(add_matrix(&f, &c->tensors[i], sign));
    }
    return ERR_OK;
}

void packed_list_free(struct packed_list *l) {
    map_free(&l->taken);
}
