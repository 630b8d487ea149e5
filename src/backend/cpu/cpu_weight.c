/* Weights on the CPU: the checkpoint's planes, read row by row into memory of our own. */
#include "backend/cpu/cpu.h"

#include "os/os.h"

static int read_plane(const struct weight_source *s, enum weight_plane plane, unsigned char *dst, size_t stride, struct err *err) {
    enum { ROWS_AT_ONCE = 1024 };
    int64_t n_rows = s->n_experts * s->out;
    for (int64_t row = 0; row < n_rows; row += ROWS_AT_ONCE) {
        int64_t n = n_rows - row < ROWS_AT_ONCE ? n_rows - row : ROWS_AT_ONCE;
        TRY(s->read(s->user, plane, row, n, dst + (size_t)row * stride, err));
    }
    return ERR_OK;
}

static size_t align64(size_t n) {
    return (n + 63) / 64 * 64;
}

int cpu_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err) {
    (void)be;
    const struct format *f = &source->format;
    size_t n_rows = (size_t)source->n_experts * (size_t)source->out;
    struct cpu_weight *w = mem_alloc(sizeof *w);
    w->values_stride = quant_values_bytes(f, source->in);
    w->scales_stride = quant_scales_bytes(f, source->in);
    w->biases_stride = quant_biases_bytes(f, source->in);
    size_t values = align64(w->values_stride * n_rows), scales = align64(w->scales_stride * n_rows), biases = align64(w->biases_stride * n_rows);
    w->bytes = values + scales + biases;
    *out = (struct weight){.name = source->name, .format = *f, .n_experts = source->n_experts, .out = source->out, .in = source->in, .bytes = w->bytes, .packed = w};
    w->values = os_pages_alloc(w->bytes, err);
    if (!w->values) {
        mem_free(w);
        out->packed = NULL;
        return err_prefix(err, "%s", source->name);
    }
    if (scales) w->scales = w->values + values;
    if (biases) w->biases = w->values + values + scales;
    int code = read_plane(source, PLANE_VALUES, w->values, w->values_stride, err);
    if (!code && scales) code = read_plane(source, PLANE_SCALES, w->scales, w->scales_stride, err);
    if (!code && biases) code = read_plane(source, PLANE_BIASES, w->biases, w->biases_stride, err);
    if (code) cpu_weight_release(be, out);
    return code;
}

void cpu_weight_release(struct backend *be, struct weight *weight) {
    (void)be;
    struct cpu_weight *w = weight->packed;
    if (!w) return;
    os_pages_free(w->values, w->bytes);
    mem_free(w);
    weight->packed = NULL;
}
