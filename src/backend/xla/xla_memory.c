/* Weights, KV cache and recurrent state on the device. */
#include "backend/xla/xla.h"

#include "base/half.h"
#include "os/os.h"
#include "tensor/quant.h"

#include <math.h>

/* ---- weights ------------------------------------------------------------------------------------------------------ */

enum { STAGE_ROWS = 1024 };

static const enum dtype dtype_of[N_HLO_TYPES] = {
    [HLO_F32] = DT_F32, [HLO_BF16] = DT_BF16, [HLO_F16] = DT_F16, [HLO_I32] = DT_I32,
    [HLO_U8] = DT_U8,   [HLO_U16] = DT_U16,   [HLO_U32] = DT_U32,
};

static int upload(struct xla *x, const void *data, enum hlo_type type, struct hlo_shape shape, int32_t cut, struct pjrt_buffer **out,
                  struct err *err) {
    struct pjrt_shape s = {.dtype = dtype_of[type], .rank = shape.rank, .cut = cut};
    memcpy(s.dims, shape.dims, sizeof s.dims);
    return pjrt_upload(x->pjrt, data, &s, out, err);
}

/* One plane of the source, converted row by row to what is kept on the device. */
struct plane_job {
    const struct weight_source *source;
    enum weight_plane plane;
    enum hlo_type type;
    int64_t per_row; /* elements */
    size_t from_bytes, to_bytes;
    void (*convert)(const struct plane_job *job, const void *from, void *to);
};

static void convert_plain(const struct plane_job *job, const void *from, void *to) {
    enum dtype have = job->source->format.dtype, want = dtype_of[job->type];
    if (have == want) {
        memcpy(to, from, job->to_bytes);
        return;
    }
    float row[256];
    size_t have_bytes = (size_t)dtype_bits(have) / 8, want_bytes = (size_t)dtype_bits(want) / 8;
    for (int64_t i = 0; i < job->per_row; i += 256) {
        int64_t n = job->per_row - i < 256 ? job->per_row - i : 256;
        plain_to_f32(have, (const unsigned char *)from + (size_t)i * have_bytes, n, row);
        plain_from_f32(want, row, n, (unsigned char *)to + (size_t)i * want_bytes);
    }
}

static void convert_codes(const struct plane_job *job, const void *from, void *to) {
    quant_codes(&job->source->format, from, 0, job->per_row, to);
}

static void convert_copy(const struct plane_job *job, const void *from, void *to) {
    memcpy(to, from, job->to_bytes);
}

static void convert_fp_scales(const struct plane_job *job, const void *from, void *to) {
    const uint8_t *codes = from;
    for (int64_t i = 0; i < job->per_row; i++) {
        float scale = job->source->format.mode == QUANT_NVFP4 ? f8e4m3_to_f32(codes[i]) : e8m0_to_f32(codes[i]);
        memcpy((unsigned char *)to + (size_t)i * sizeof scale, &scale, sizeof scale);
    }
}

/* Reads a plane into memory of the host, in its final form. */
static int read_plane(const struct plane_job *job, unsigned char *dst, struct err *err) {
    const struct weight_source *s = job->source;
    int64_t rows = s->n_experts * s->out;
    unsigned char *stage = mem_try((size_t)STAGE_ROWS * job->from_bytes);
    if (!stage) return err_set(err, ERR_EMEMORY, "%s: no memory to read it", s->name);
    int code = ERR_OK;
    for (int64_t row = 0; row < rows && !code; row += STAGE_ROWS) {
        int64_t n = rows - row < STAGE_ROWS ? rows - row : STAGE_ROWS;
        code = s->read(s->user, job->plane, row, n, stage, err);
        for (int64_t i = 0; i < n && !code; i++)
            job->convert(job, stage + (size_t)i * job->from_bytes, dst + (size_t)(row + i) * job->to_bytes);
    }
    mem_free(stage);
    return code;
}

static int bind_plane(struct xla *x, struct plane_job *job, struct xla_weight *w, struct err *err) {
    const struct weight_source *s = job->source;
    int64_t rows = s->n_experts * s->out;
    job->to_bytes = (size_t)job->per_row * (size_t)dtype_bits(dtype_of[job->type]) / 8;
    size_t bytes = job->to_bytes * (size_t)rows;
    unsigned char *data = os_pages_alloc(bytes ? bytes : 1, err);
    if (!data) return err_prefix(err, "%s", s->name);
    struct xla_plane *p = &w->planes[job->plane];
    p->type = job->type;
    p->shape = s->is_vector ? HLO_SHAPE(rows * job->per_row) : HLO_SHAPE(rows, job->per_row);
    p->cut = xla_cut_matrix(rows, job->per_row, s->is_vector, x->pjrt->n_used);
    int code = read_plane(job, data, err);
    if (!code && s->is_vector) {
        w->host = mem_try(bytes ? bytes : 1);
        if (w->host) memcpy(w->host, data, bytes);
        else code = err_set(err, ERR_EMEMORY, "%s: no memory for it", s->name);
    }
    if (!code && upload(x, data, p->type, p->shape, p->cut, &p->buffer, err)) code = err_prefix(err, "%s", s->name);
    w->bytes += bytes;
    os_pages_free(data, bytes ? bytes : 1);
    return code;
}

static enum hlo_type plain_type(const struct xla *x, const struct weight_source *s) {
    return x->half && !s->is_vector && !s->is_router ? HLO_BF16 : HLO_F32;
}

static enum hlo_type scale_type(const struct format *f) {
    return f->dtype == DT_F32 ? HLO_F32 : f->dtype == DT_F16 ? HLO_F16 : HLO_BF16;
}

static int bind_quantised(struct xla *x, const struct weight_source *s, struct xla_weight *w, struct err *err) {
    const struct format *f = &s->format;
    w->unpacked = f->bits != 2 && f->bits != 4 && f->bits != 8;
    struct plane_job values = {.source = s, .plane = PLANE_VALUES, .type = HLO_U8, .from_bytes = quant_values_bytes(f, s->in)};
    values.per_row = w->unpacked ? s->in : (int64_t)values.from_bytes;
    values.convert = w->unpacked ? convert_codes : convert_copy;
    TRY(bind_plane(x, &values, w, err));
    bool affine = f->mode == QUANT_AFFINE;
    struct plane_job scales = {.source = s,
                               .plane = PLANE_SCALES,
                               .type = affine ? scale_type(f) : HLO_F32,
                               .per_row = s->in / f->group,
                               .from_bytes = quant_scales_bytes(f, s->in),
                               .convert = format_scale_dtype(f) == DT_U8 ? convert_fp_scales : convert_copy};
    TRY(bind_plane(x, &scales, w, err));
    if (!affine) return ERR_OK;
    scales.plane = PLANE_BIASES;
    return bind_plane(x, &scales, w, err);
}

int xla_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err) {
    struct xla *x = (struct xla *)be;
    struct xla_weight *w = mem_alloc(sizeof *w);
    *out = (struct weight){
        .name = source->name, .format = source->format, .n_experts = source->n_experts, .out = source->out, .in = source->in, .packed = w};
    w->exact = source->is_router;
    int code;
    if (source->format.mode == QUANT_NONE) {
        struct plane_job job = {.source = source,
                                .plane = PLANE_VALUES,
                                .type = plain_type(x, source),
                                .per_row = source->in,
                                .from_bytes = quant_values_bytes(&source->format, source->in),
                                .convert = convert_plain};
        code = bind_plane(x, &job, w, err);
    } else {
        code = bind_quantised(x, source, w, err);
    }
    out->bytes = w->bytes;
    if (code) xla_weight_release(be, out);
    return code;
}

void xla_weight_release(struct backend *be, struct weight *weight) {
    struct xla *x = (struct xla *)be;
    struct xla_weight *w = weight->packed;
    if (!w) return;
    for (int i = 0; i < N_PLANES; i++)
        if (w->planes[i].buffer) pjrt_buffer_free(x->pjrt, w->planes[i].buffer);
    mem_free(w->host);
    mem_free(w);
    weight->packed = NULL;
}

/* ---- cache and state ---------------------------------------------------------------------------------------------- */

static int open_zeros(struct xla *x, enum hlo_type type, struct hlo_shape shape, int32_t cut, struct err *err) {
    size_t bytes = (size_t)shape.dims[0] * (size_t)shape.dims[1] * (size_t)dtype_bits(dtype_of[type]) / 8;
    void *zeros = os_pages_alloc(bytes ? bytes : 1, err);
    if (!zeros) return err_prefix(err, "KV cache");
    int code = upload(x, zeros, type, shape, cut, &x->memory[x->n_memory], err);
    os_pages_free(zeros, bytes ? bytes : 1);
    if (code) return err_prefix(err, "KV cache");
    x->n_memory++;
    return ERR_OK;
}

int32_t xla_kv_number_bytes(const struct backend *be, const struct kv_class *k) {
    (void)k;
    return ((const struct xla *)be)->half ? 2 : sizeof(float);
}

int xla_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err) {
    struct xla *x = (struct xla *)be;
    xla_kv_close(be);
    x->layout = *layout;
    enum hlo_type type = x->half ? HLO_BF16 : HLO_F32;
    int32_t n = layout->n_states;
    for (int32_t c = 0; c < layout->n_classes; c++) n += 2 * layout->classes[c].n_layers;
    x->memory = mem_alloc((size_t)(n + 1) * sizeof *x->memory);
    for (int32_t c = 0; c < layout->n_classes; c++) {
        const struct kv_class *k = &layout->classes[c];
        int64_t positions = (int64_t)k->n_blocks * KV_BLOCK;
        int32_t cut = xla_cut_heads(k->heads, x->pjrt->n_used);
        for (int32_t i = 0; i < k->n_layers; i++) {
            TRY(open_zeros(x, type, HLO_SHAPE(positions, (int64_t)k->heads * k->k_width), cut, err));
            if (k->v_width) TRY(open_zeros(x, type, HLO_SHAPE(positions, (int64_t)k->heads * k->v_width), cut, err));
        }
    }
    for (int32_t i = 0; i < layout->n_states; i++)
        TRY(open_zeros(x, HLO_F32, HLO_SHAPE(layout->n_slots + 1, layout->states[i].elements), 0, err));
    return ERR_OK;
}

void xla_kv_close(struct backend *be) {
    struct xla *x = (struct xla *)be;
    xla_pieces_drop(x);
    xla_programs_drop(x);
    for (int32_t i = 0; i < x->n_memory; i++) pjrt_buffer_free(x->pjrt, x->memory[i]);
    mem_free(x->memory);
    x->memory = NULL;
    x->n_memory = 0;
    x->layout = (struct kv_layout){0};
}

/* ---- copies -------------------------------------------------------------------------------------------------------- */

/* The buffers that a copier changes: those of one class, or all states. */
static void copied_range(const struct xla *x, int32_t which, int32_t *out_first, int32_t *out_n) {
    int32_t at = 0;
    for (int32_t c = 0; c < x->layout.n_classes; c++) {
        int32_t n = x->layout.classes[c].n_layers * (x->layout.classes[c].v_width ? 2 : 1);
        if (c == which) {
            *out_first = at, *out_n = n;
            return;
        }
        at += n;
    }
    *out_first = at;
    *out_n = x->layout.n_states;
}

/* The shape of a buffer as units that are copied: blocks [n_blocks, elements] or slots. */
static struct hlo_shape unit_shape(const struct xla *x, int32_t which, int32_t i, int64_t *out_units) {
    if (which == KV_CLASSES_MAX) {
        *out_units = x->layout.n_slots + 1;
        return HLO_SHAPE(*out_units, x->layout.states[i].elements);
    }
    const struct kv_class *k = &x->layout.classes[which];
    int32_t width = k->v_width == 0 || i % 2 == 0 ? k->k_width : k->v_width;
    *out_units = k->n_blocks;
    return HLO_SHAPE((int64_t)k->n_blocks * KV_BLOCK, (int64_t)k->heads * width);
}

static void copier_text(const struct xla *x, int32_t which, int32_t n, struct sb *out) {
    struct hlo h = {0};
    struct sb head = {0}, names = {0}, types = {0}, ends = {0};
    enum hlo_type type = x->half && which != KV_CLASSES_MAX ? HLO_BF16 : HLO_F32;
    int32_t n_devices = x->pjrt->n_used, cut = which == KV_CLASSES_MAX ? 0 : xla_cut_heads(x->layout.classes[which].heads, n_devices);
    struct hlo_val pair = hlo_name(&h, HLO_I32, HLO_SHAPE(2));
    sb_fmt(&head, "%%%d: tensor<2xi32>", pair.id);
    emit_put_attributes(&head, n_devices, 0, -1);
    struct hlo_val *pools = mem_alloc((size_t)(n + 1) * sizeof *pools);
    for (int32_t i = 0; i < n; i++) {
        int64_t units;
        pools[i] = hlo_name(&h, type, unit_shape(x, which, i, &units));
        sb_fmt(&head, ", %%%d: ", pools[i].id);
        hlo_put_type(&head, type, pools[i].shape);
        emit_put_attributes(&head, n_devices, cut, i);
    }
    struct hlo_val from = hlo_slice(&h, pair, 0, 0, 1), to = hlo_slice(&h, pair, 0, 1, 2);
    for (int32_t i = 0; i < n; i++) {
        int64_t units;
        struct hlo_shape shape = unit_shape(x, which, i, &units);
        struct hlo_val v = hlo_reshape(&h, pools[i], HLO_SHAPE(units, shape.dims[0] / units * shape.dims[1]));
        v = hlo_reshape(&h, hlo_put(&h, v, to, hlo_take(&h, v, from)), shape);
        sb_fmt(&names, "%s%%%d", i ? ", " : "", v.id);
        if (i) sb_puts(&types, ", "), sb_puts(&ends, ", ");
        hlo_put_type(&types, type, shape);
        hlo_put_type(&ends, type, shape);
        emit_put_attributes(&ends, n_devices, cut, -1);
    }
    emit_put_module(out, "copy", n_devices);
    sb_fmt(out, "func.func public @main(%s)\n    -> (%s) {\n", head.p, ends.p);
    sb_put(out, sb_str(&h.text));
    sb_fmt(out, "  return %s : %s\n}\n}\n", names.p, types.p);
    mem_free(pools);
    sb_free(&head);
    sb_free(&names);
    sb_free(&types);
    sb_free(&ends);
    sb_free(&h.text);
}

static int copy(struct xla *x, int32_t which, int32_t from, int32_t to, struct err *err) {
    int32_t first = 0, n = 0;
    copied_range(x, which, &first, &n);
    if (n == 0) return ERR_OK;
    if (!x->copiers[which]) {
        struct sb text = {0};
        copier_text(x, which, n, &text);
        int code = xla_compile_cached(x, sb_str(&text), "copying", &x->copiers[which], err);
        sb_free(&text);
        TRY(code);
    }
    int32_t pair[2] = {from, to};
    struct pjrt_buffer **args = mem_alloc((size_t)(n + 1) * sizeof *args), **results = mem_alloc((size_t)n * sizeof *results);
    memcpy(args + 1, x->memory + first, (size_t)n * sizeof *args);
    int code = upload(x, pair, HLO_I32, HLO_SHAPE(2), 0, &args[0], err);
    if (!code) {
        code = pjrt_execute(x->pjrt, x->copiers[which], args, (size_t)n + 1, results, (size_t)n, err);
        pjrt_buffer_free(x->pjrt, args[0]);
        for (int32_t i = 0; i < n && !code; i++) {
            pjrt_buffer_free(x->pjrt, x->memory[first + i]);
            x->memory[first + i] = results[i];
        }
    }
    mem_free(args);
    mem_free(results);
    return code;
}

int xla_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err) {
    return copy((struct xla *)be, kv_class, from, to, err);
}

int xla_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err) {
    return copy((struct xla *)be, KV_CLASSES_MAX, from, to, err);
}
