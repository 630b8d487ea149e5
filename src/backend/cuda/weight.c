/* Device memory, and weights in it: planes are read in pieces into pinned memory and copied while the next piece is read. */
#include "backend/cuda/cuda.h"

#include "tensor/quant.h"

/* The driver's own refusal says what ours does: others may have taken the memory in between, or it lies in pieces. */
static int alloc(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err) {
    size_t free_bytes = 0, total = 0;
    CUDA_TRY(c, c->d->cuMemGetInfo(&free_bytes, &total), "asking for free memory");
    bool fits = free_bytes >= c->kept_back && free_bytes - c->kept_back >= bytes;
    CUresult code = fits ? c->d->cuMemAlloc(out, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (code) *out = 0;
    if (code == CUDA_ERROR_OUT_OF_MEMORY) return cuda_memory_error(c->gpu->about, what, bytes, free_bytes, c->kept_back, err);
    CUDA_TRY(c, code, "memory for %s", what);
    return ERR_OK;
}

/* Notes how large a piece is, so that its bytes can be given back. */
static void note_piece(struct cuda *c, CUdeviceptr p, size_t bytes) {
    if (c->n_pieces == c->pieces_capacity) {
        c->pieces_capacity = c->pieces_capacity ? 2 * c->pieces_capacity : 256;
        c->pieces = mem_realloc(c->pieces, (size_t)c->pieces_capacity * sizeof *c->pieces);
    }
    c->pieces[c->n_pieces++] = (struct cuda_piece){p, bytes};
}

int cuda_alloc(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err) {
    *out = 0;
    if (bytes == 0) return ERR_OK;
    TRY(device_take(c->base.device, bytes, what, err));
    int code = alloc(c, bytes, what, out, err);
    if (code) device_give(c->base.device, bytes);
    else note_piece(c, *out, bytes);
    return code;
}

void cuda_free(struct cuda *c, CUdeviceptr *p) {
    if (!*p) return;
    int32_t i = c->n_pieces - 1; /* what came last goes first, mostly */
    while (c->pieces[i].p != *p) i--;
    device_give(c->base.device, c->pieces[i].bytes);
    c->pieces[i] = c->pieces[--c->n_pieces];
    c->d->cuMemFree(*p);
    *p = 0;
}

/* A copy that names no stream may arrive after work of ours that was launched later: ours does not wait for the stream that it is in. */
int cuda_upload(struct cuda *c, CUdeviceptr to, const void *from, size_t bytes, const char *what, struct err *err) {
    CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(to, from, bytes, c->stream), "uploading %s", what);
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "uploading %s", what);
    return ERR_OK;
}

static size_t align256(size_t n) {
    return (n + 255) / 256 * 256;
}

/* One plane, through the two halves of the bounce buffer. */
static int upload_plane(struct cuda *c, const struct weight_source *s, enum weight_plane plane, CUdeviceptr to, size_t stride,
                        struct err *err) {
    int64_t n_rows = s->n_experts * s->out, at_once = (int64_t)(BOUNCE_BYTES / stride);
    if (at_once == 0)
        return err_set(err, ERR_ELIMIT, "%s: a row of %zu bytes is larger than the %d that are uploaded at once", s->name, stride,
                       BOUNCE_BYTES);
    int half = 0;
    for (int64_t row = 0; row < n_rows; row += at_once, half ^= 1) {
        int64_t n = n_rows - row < at_once ? n_rows - row : at_once;
        unsigned char *data = c->bounce + (size_t)half * BOUNCE_BYTES;
        CUDA_TRY(c, c->d->cuEventSynchronize(c->bounced[half]), "uploading %s", s->name);
        TRY(s->read(s->user, plane, row, n, data, err));
        CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(to + (size_t)row * stride, data, (size_t)n * stride, c->stream), "uploading %s", s->name);
        CUDA_TRY(c, c->d->cuEventRecord(c->bounced[half], c->stream), "uploading %s", s->name);
    }
    return ERR_OK;
}

/* ---- tiles -------------------------------------------------------------------------------------------------------- */

bool cuda_tiles(const struct cuda *c, const struct weight_source *s) {
    const struct format *f = &s->format;
    return c->gpu->functions[KERNEL_tile_pack] && !c->exact && !s->is_vector && !s->is_router && s->n_experts == 1 &&
           f->mode == QUANT_AFFINE && f->bits == 4 && f->dtype != DT_F32 && s->in % 64 == 0;
}

int64_t cuda_tile_bytes(const struct format *f, int64_t in) {
    return in / 64 * (512 + (f->group == 32 ? 128 : 64));
}

/* Memory for a weight's rows on their way; kept for the next one. */
static int staging(struct cuda *c, size_t bytes, struct err *err) {
    if (bytes <= c->staging_bytes) return ERR_OK;
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "uploading weights");
    cuda_free(c, &c->staging);
    c->staging_bytes = 0;
    TRY(cuda_alloc(c, bytes, "weights on their way", &c->staging, err));
    c->staging_bytes = bytes;
    return ERR_OK;
}

/* rows: as they lie in the staging memory. */
static int make_tiles(struct cuda *c, const struct k_weight *rows, CUdeviceptr to, struct err *err) {
    struct k_tile a = {.w = *rows, .out = to, .n = rows->out};
    unsigned int tiles = ceil_div(rows->out, 16), y = tiles < MAX_GRID_Y ? tiles : MAX_GRID_Y;
    void *params[] = {&a};
    CUDA_TRY(c,
             c->d->cuLaunchKernel(c->gpu->functions[KERNEL_tile_pack], ceil_div(rows->in / 64, 8), y, ceil_div(tiles, y), 256, 1, 1, 0,
                                  c->stream, params, NULL),
             "tiles of a weight");
    return ERR_OK;
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

static const enum k_dtype dtypes[N_DTYPES] = {[DT_F32] = K_F32, [DT_F16] = K_F16, [DT_BF16] = K_BF16};
static const enum k_mode modes[N_QUANT_MODES] = {
    [QUANT_NONE] = K_PLAIN, [QUANT_AFFINE] = K_AFFINE, [QUANT_MXFP4] = K_MXFP4, [QUANT_MXFP8] = K_MXFP8, [QUANT_NVFP4] = K_NVFP4,
};

int cuda_weight_bind(struct backend *be, const struct weight_source *source, struct weight *out, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    const struct format *f = &source->format;
    size_t n_rows = (size_t)source->n_experts * (size_t)source->out;
    size_t strides[N_PLANES] = {quant_values_bytes(f, source->in), quant_scales_bytes(f, source->in), quant_biases_bytes(f, source->in)},
           at[N_PLANES], bytes = 0;
    for (int p = 0; p < N_PLANES; p++) {
        at[p] = bytes;
        bytes += align256(strides[p] * n_rows);
    }
    bool tiled = cuda_tiles(c, source);
    size_t raw_bytes = bytes;
    int64_t tile_bytes = tiled ? cuda_tile_bytes(f, source->in) : 0;
    if (tiled) bytes = align256((size_t)tile_bytes * ceil_div(source->out, 16));
    struct cuda_weight *w = mem_alloc(sizeof *w);
    *out = (struct weight){.name = source->name,
                           .format = *f,
                           .n_experts = source->n_experts,
                           .out = source->out,
                           .in = source->in,
                           .bytes = bytes,
                           .packed = w};
    int code = cuda_alloc(c, bytes + 256, source->name, &w->base, err);
    if (!code && tiled) code = staging(c, raw_bytes, err);
    CUdeviceptr base = tiled ? c->staging : w->base;
    for (int p = 0; p < N_PLANES && !code; p++)
        if (strides[p]) code = upload_plane(c, source, (enum weight_plane)p, base + at[p], strides[p], err);
    w->bytes = bytes;
    w->k = (struct k_weight){
        .values = base + at[PLANE_VALUES],
        .scales = strides[PLANE_SCALES] ? base + at[PLANE_SCALES] : 0,
        .biases = strides[PLANE_BIASES] ? base + at[PLANE_BIASES] : 0,
        .values_bytes = (int64_t)strides[PLANE_VALUES],
        .scales_bytes = (int64_t)strides[PLANE_SCALES],
        .biases_bytes = (int64_t)strides[PLANE_BIASES],
        .out = source->out,
        .in = source->in,
        .mode = modes[f->mode],
        .bits = f->bits,
        .group = f->group,
        .dtype = dtypes[f->dtype],
    };
    if (!code && tiled) {
        code = make_tiles(c, &w->k, w->base, err);
        w->k.values = w->base;
        w->k.scales = w->k.biases = 0;
        w->k.tile_bytes = tile_bytes;
    }
    if (code) cuda_weight_release(be, out);
    return code;
}

void cuda_weight_release(struct backend *be, struct weight *weight) {
    struct cuda *c = (struct cuda *)be;
    struct cuda_weight *w = weight->packed;
    if (!w) return;
    cuda_use(c, NULL);
    c->d->cuStreamSynchronize(c->stream);
    cuda_graphs_drop(c); /* they hold its address */
    cuda_free(c, &w->base);
    mem_free(w);
    weight->packed = NULL;
}
