/* Weights on the CPU: read row by row, kept as the checkpoint's planes or packed into panels as they come. */
#include "backend/cpu/cpu.h"

#include "os/os.h"

#include <stdatomic.h>

enum { STAGE_ROWS = 1024 };

static size_t align64(size_t n) {
    return (n + 63) / 64 * 64;
}

static int64_t rows_of(const struct weight_source *s) {
    return s->n_experts * s->out;
}

/* ---- planes ------------------------------------------------------------------------------------------------------- */

static int read_plane(const struct weight_source *s, enum weight_plane plane, int64_t first, int64_t n_rows, unsigned char *dst,
                      size_t stride, struct err *err) {
    for (int64_t row = 0; row < n_rows && stride; row += STAGE_ROWS) {
        int64_t n = n_rows - row < STAGE_ROWS ? n_rows - row : STAGE_ROWS;
        TRY(s->read(s->user, plane, first + row, n, dst + (size_t)row * stride, err));
    }
    return ERR_OK;
}

/* Lays the three planes of n_rows rows into one piece of memory, and says how large it is. NULL: that alone. */
static size_t place_planes(struct cpu_weight *w, const struct weight_source *s, int64_t n_rows, unsigned char *memory) {
    const struct format *f = &s->format;
    w->values_stride = quant_values_bytes(f, s->in);
    w->scales_stride = quant_scales_bytes(f, s->in);
    w->biases_stride = quant_biases_bytes(f, s->in);
    size_t n = (size_t)n_rows, values = align64(w->values_stride * n), scales = align64(w->scales_stride * n);
    if (memory) {
        w->values = memory;
        w->scales = w->scales_stride ? memory + values : NULL;
        w->biases = w->biases_stride ? memory + values + scales : NULL;
    }
    return values + scales + align64(w->biases_stride * n);
}

static int read_planes(struct cpu_weight *w, const struct weight_source *s, int64_t first, int64_t n_rows, struct err *err) {
    TRY(read_plane(s, PLANE_VALUES, first, n_rows, w->values, w->values_stride, err));
    TRY(read_plane(s, PLANE_SCALES, first, n_rows, w->scales, w->scales_stride, err));
    return read_plane(s, PLANE_BIASES, first, n_rows, w->biases, w->biases_stride, err);
}

static int bind_planes(struct cpu *c, struct cpu_weight *w, const struct weight_source *s, struct err *err) {
    w->bytes = place_planes(w, s, rows_of(s), NULL);
    unsigned char *memory = cpu_pages_alloc(c->base.device, w->bytes, s->name, err);
    if (!memory) return err->code;
    place_planes(w, s, rows_of(s), memory);
    return read_planes(w, s, 0, rows_of(s), err);
}

/* ---- panels ------------------------------------------------------------------------------------------------------- */

struct pack_job {
    const struct cpu_weight *w, *stage;
    const struct weight_source *source;
    int64_t first, n_rows;  /* the staged rows */
    atomic_bool *is_nested; /* false as soon as a panel is not */
};

static void pack_panels(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct pack_job *job = ctx;
    for (int64_t p = first; p < last; p++) {
        struct quant_row rows[PANEL_ROWS];
        int64_t row = p * PANEL_ROWS, n = job->n_rows - row < PANEL_ROWS ? job->n_rows - row : PANEL_ROWS;
        for (int64_t i = 0; i < n; i++) {
            const struct weight view = {.packed = (void *)(uintptr_t)job->stage};
            rows[i] = cpu_weight_row(&view, row + i);
        }
        unsigned char *to = job->w->panels + (size_t)(job->first / PANEL_ROWS + p) * job->w->pack.panel_bytes;
        if (!atomic_load(job->is_nested)) return;
        if (!job->w->pack.nested) pack_panel(&job->w->pack, &job->source->format, rows, (int32_t)n, to);
        else if (!pack_nested_panel(&job->w->pack, &job->source->format, rows, (int32_t)n, to)) atomic_store(job->is_nested, false);
    }
}

/* Reads a stretch of rows, packs it with all threads, and goes on: memory beyond the panels stays small. */
static int pack_rows(struct cpu *c, struct cpu_weight *w, const struct weight_source *s, atomic_bool *is_nested, struct err *err) {
    int64_t n_rows = rows_of(s);
    struct cpu_weight stage = {0};
    unsigned char *memory = mem_alloc(place_planes(&stage, s, STAGE_ROWS, NULL));
    place_planes(&stage, s, STAGE_ROWS, memory);
    int code = ERR_OK;
    for (int64_t first = 0; first < n_rows && !code && atomic_load(is_nested); first += STAGE_ROWS) {
        struct pack_job job = {.w = w, .stage = &stage, .source = s, .first = first, .is_nested = is_nested};
        job.n_rows = n_rows - first < STAGE_ROWS ? n_rows - first : STAGE_ROWS;
        code = read_planes(&stage, s, first, job.n_rows, err);
        if (code) break;
        cpu_device_enter(c->device);
        pool_run(c->pool, (job.n_rows + PANEL_ROWS - 1) / PANEL_ROWS, 4, pack_panels, &job);
        cpu_device_leave(c->device);
    }
    mem_free(memory);
    return code;
}

/* Panels of the shape in w->pack; *is_nested is false where that is a nested one which these numbers do not have. */
static int fill_panels(struct cpu *c, struct cpu_weight *w, const struct weight_source *s, bool *is_nested, struct err *err) {
    int64_t n_panels = (rows_of(s) + PANEL_ROWS - 1) / PANEL_ROWS;
    atomic_bool fits = true;
    w->bytes = (size_t)n_panels * w->pack.panel_bytes;
    w->panels = cpu_pages_alloc(c->base.device, w->bytes, s->name, err);
    if (!w->panels) return err->code;
    int code = pack_rows(c, w, s, &fits, err);
    *is_nested = atomic_load(&fits);
    return code;
}

/* Whether the first row could be nested. */
static int try_nested(const struct weight_source *s, struct pack_shape *out, bool *answer, struct err *err) {
    struct cpu_weight stage = {0};
    unsigned char *memory = mem_alloc(place_planes(&stage, s, 1, NULL) + 1);
    place_planes(&stage, s, 1, memory);
    int code = read_planes(&stage, s, 0, 1, err);
    *answer = !code && pack_nested_shape_of(&s->format, s->in, &(struct quant_row){stage.values, stage.scales, stage.biases}, out);
    mem_free(memory);
    return code;
}

/* Nested where the numbers allow it: that is found out by trying, and ends at the first stretch of rows where they do not. */
static int bind_panels(struct cpu *c, struct cpu_weight *w, const struct weight_source *s, struct err *err) {
    struct pack_shape nested;
    bool is_nested = c->kern.nested && s->format.mode == QUANT_AFFINE && s->format.dtype == DT_F32 && rows_of(s) > 0;
    if (is_nested) TRY(try_nested(s, &nested, &is_nested, err));
    if (is_nested) {
        const struct pack_shape ordinary = w->pack;
        w->pack = nested;
        TRY(fill_panels(c, w, s, &is_nested, err));
        if (is_nested) return ERR_OK;
        cpu_pages_free(c->base.device, w->panels, w->bytes);
        w->panels = NULL;
        w->pack = ordinary;
    }
    return fill_panels(c, w, s, &is_nested, err);
}

/* Rounded activations only where they are wanted. Of many matrices none may share a panel with the next one, and they do not
 * grow: they are most of a model. */
static bool wants_panels(const struct cpu *c, const struct weight_source *s, struct pack_shape *out) {
    if (c->base.precision == PRECISION_EXACT || c->base.precision == PRECISION_F32 || s->is_vector || s->is_router) return false;
    const struct plain_kernels *plain = kern_plain(&c->kern, s->format.dtype);
    if (plain->panel && pack_plain_shape_of(&s->format, s->in, plain->unit, out))
        return s->n_experts == 1 ? s->out >= PANEL_ROWS : s->out % PANEL_ROWS == 0 && !pack_is_filled_up(out);
    if (!c->kern.panel || !pack_shape_of(&s->format, s->in, out)) return false;
    return s->n_experts == 1 || (s->out % PANEL_ROWS == 0 && s->format.mode == QUANT_AFFINE && s->format.bits == out->code_bits);
}

int cpu_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err) {
    struct cpu *c = (struct cpu *)be;
    struct cpu_weight *w = mem_alloc(sizeof *w);
    *out = (struct weight){
        .name = source->name, .format = source->format, .n_experts = source->n_experts, .out = source->out, .in = source->in, .packed = w};
    int code = wants_panels(c, source, &w->pack) ? bind_panels(c, w, source, err) : bind_planes(c, w, source, err);
    out->bytes = w->bytes;
    if (code) cpu_weight_release(be, out);
    return code;
}

void cpu_weight_release(struct backend *be, struct weight *weight) {
    struct cpu_weight *w = weight->packed;
    if (!w) return;
    cpu_pages_free(be->device, w->panels ? w->panels : w->values, w->bytes);
    mem_free(w);
    weight->packed = NULL;
}

bool cpu_weight_lend(const struct backend *be, const struct weight *weight, struct weight_lent *out) {
    const struct cpu_weight *w = weight->packed;
    (void)be;
    *out = (struct weight_lent){.data = w->panels ? w->panels : w->values, .bytes = w->bytes, .panels = w->panels != NULL};
    if (w->panels) {
        out->group = w->pack.group, out->code_bits = w->pack.code_bits, out->narrow_scales = w->pack.narrow_scales;
        return !w->pack.nested && !pack_is_plain(&w->pack);
    }
    const void *const planes[N_PLANES] = {w->values, w->scales, w->biases};
    const size_t strides[N_PLANES] = {w->values_stride, w->scales_stride, w->biases_stride};
    for (int i = 0; i < N_PLANES; i++) {
        out->strides[i] = strides[i];
        if (planes[i]) out->at[i] = (size_t)((const unsigned char *)planes[i] - w->values);
    }
    return true;
}
