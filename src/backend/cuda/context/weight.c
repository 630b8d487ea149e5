/* Weights in device memory: planes are read in pieces into pinned memory and copied while the next piece is read. */
#include "backend/cuda/context/context.h"

#include "tensor/quant.h"

/* Rows that lie one behind the other, in place to rows of `stride` bytes with zeros behind them: the last one first. */
static void spread_rows(unsigned char *data, int64_t n, size_t dense, size_t stride) {
    for (size_t r = (size_t)n; r-- > 0;) {
        memmove(data + r * stride, data + r * dense, dense);
        memset(data + r * stride + dense, 0, stride - dense);
    }
}

/* Rows [first, first + n) of one plane, through the two halves of the bounce buffer. */
static int upload_plane(struct cuda *c, const struct weight_source *s, enum weight_plane plane, int64_t first, int64_t n_rows,
                        CUdeviceptr to, size_t stride, struct err *err) {
    size_t dense = plane == PLANE_VALUES ? quant_values_bytes(&s->format, s->in) : stride;
    int64_t at_once = (int64_t)(BOUNCE_BYTES / stride);
    if (at_once == 0)
        return err_set(err, ERR_ELIMIT, "%s: a row of %zu bytes is larger than the %d that are uploaded at once", s->name, stride,
                       BOUNCE_BYTES);
    int half = 0;
    for (int64_t row = 0; row < n_rows; row += at_once, half ^= 1) {
        int64_t n = n_rows - row < at_once ? n_rows - row : at_once;
        unsigned char *data = c->bounce + (size_t)half * BOUNCE_BYTES;
        CUDA_TRY(c, c->d->cuEventSynchronize(c->bounced[half]), "uploading %s", s->name);
        TRY(s->read(s->user, plane, first + row, n, data, err));
        if (dense < stride) spread_rows(data, n, dense, stride);
        CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(to + (size_t)row * stride, data, (size_t)n * stride, c->stream), "uploading %s", s->name);
        CUDA_TRY(c, c->d->cuEventRecord(c->bounced[half], c->stream), "uploading %s", s->name);
    }
    return ERR_OK;
}

/* Rows of plain bf16 begin at multiples of 16 bytes, as the products of many rows read them: zeros fill them up. */
static size_t values_stride(const struct weight_source *s) {
    size_t dense = quant_values_bytes(&s->format, s->in);
    bool is_filled = s->format.mode == QUANT_NONE && s->format.dtype == DT_BF16 && !s->is_vector && s->n_experts == 1;
    return is_filled ? (dense + 15) / 16 * 16 : dense;
}

static struct cuda_planes planes_of(const struct weight_source *s, int64_t n_rows) {
    const struct format *f = &s->format;
    struct cuda_planes p = {.strides = {values_stride(s), quant_scales_bytes(f, s->in), quant_biases_bytes(f, s->in)}};
    for (int i = 0; i < N_PLANES; i++) {
        p.at[i] = p.bytes;
        p.bytes += align256(p.strides[i] * (size_t)n_rows);
    }
    return p;
}

static int upload_rows(struct cuda *c, const struct weight_source *s, const struct cuda_planes *p, int64_t first, int64_t n, CUdeviceptr to,
                       struct err *err) {
    for (int i = 0; i < N_PLANES; i++)
        if (p->strides[i]) TRY(upload_plane(c, s, (enum weight_plane)i, first, n, to + p->at[i], p->strides[i], err));
    return ERR_OK;
}

/* ---- tiles -------------------------------------------------------------------------------------------------------- */

/* Experts alone have kernels for mxfp4 in tiles. */
bool cuda_tiles(const struct cuda *c, const struct weight_source *s) {
    const struct format *f = &s->format;
    bool is_mode = f->mode == QUANT_AFFINE ? f->dtype != DT_F32 : f->mode == QUANT_MXFP4 && s->is_expert;
    bool fits =
        s->n_experts == 1 || (s->is_expert && tile_bits(f->bits) == 4 && s->out % TILE_ROWS == 0); /* experts' kernels take 4 bits */
    return c->gpu->functions[KERNEL_tile_pack] && !c->exact && !s->is_vector && !s->is_router && fits && is_mode && s->in % TILE_UNIT == 0;
}

int64_t cuda_tile_bytes(const struct format *f, int64_t in) {
    return in / TILE_UNIT * (f->mode == QUANT_MXFP4 ? TILE_FP4_BYTES : tile_unit_bytes(f->bits, f->group));
}

/* Memory for rows of a weight before they become tiles. It is kept for the next weight. */
static int staging(struct cuda *c, size_t bytes, struct err *err) {
    if (bytes <= c->staging_bytes) return ERR_OK;
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "uploading weights");
    cuda_free(c, &c->staging);
    c->staging_bytes = 0;
    TRY(cuda_alloc(c, bytes, "weights on their way", &c->staging, err));
    c->staging_bytes = bytes;
    return ERR_OK;
}

/* rows: some of a weight, as they lie in the staging memory. */
static int make_tiles(struct cuda *c, const struct k_weight *rows, CUdeviceptr to, struct err *err) {
    struct k_tile a = {.w = *rows, .out = to, .n = rows->out};
    unsigned int tiles = ceil_div(rows->out, TILE_ROWS), y = tiles < MAX_GRID_Y ? tiles : MAX_GRID_Y;
    void *params[] = {&a};
    CUDA_TRY(c,
             c->d->cuLaunchKernel(c->gpu->functions[KERNEL_tile_pack], ceil_div(rows->in / TILE_UNIT, 8), y, ceil_div(tiles, y), 256, 1, 1,
                                  0, c->stream, params, NULL),
             "tiles of a weight");
    return ERR_OK;
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

static const enum k_dtype dtypes[N_DTYPES] = {[DT_F32] = K_F32, [DT_F16] = K_F16, [DT_BF16] = K_BF16};
static const enum k_mode modes[N_QUANT_MODES] = {
    [QUANT_NONE] = K_PLAIN, [QUANT_AFFINE] = K_AFFINE, [QUANT_MXFP4] = K_MXFP4, [QUANT_MXFP8] = K_MXFP8, [QUANT_NVFP4] = K_NVFP4,
};

struct k_weight cuda_rows_args(const struct weight_source *s, const struct cuda_planes *p, CUdeviceptr base) {
    return (struct k_weight){
        .values = base + p->at[PLANE_VALUES],
        .scales = p->strides[PLANE_SCALES] ? base + p->at[PLANE_SCALES] : 0,
        .biases = p->strides[PLANE_BIASES] ? base + p->at[PLANE_BIASES] : 0,
        .values_bytes = (int64_t)p->strides[PLANE_VALUES],
        .scales_bytes = (int64_t)p->strides[PLANE_SCALES],
        .biases_bytes = (int64_t)p->strides[PLANE_BIASES],
        .out = s->out,
        .in = s->in,
        .mode = modes[s->format.mode],
        .bits = s->format.bits,
        .group = s->format.group,
        .dtype = dtypes[s->format.dtype],
    };
}

struct k_weight cuda_tiles_args(const struct weight_source *s, CUdeviceptr base) {
    struct cuda_planes row = planes_of(s, 1);
    struct k_weight k = cuda_rows_args(s, &row, base);
    k.values = base;
    k.scales = k.biases = 0;
    k.tile_bytes = cuda_tile_bytes(&s->format, s->in);
    k.bits = tile_bits(s->format.bits);
    return k;
}

/* Bytes of rows that become tiles at once: the experts of a layer may have a gigabyte in all. */
enum { STAGED_BYTES = 64 << 20 };

static int upload_tiles(struct cuda *c, const struct weight_source *s, int64_t n_rows, struct cuda_weight *w, struct err *err) {
    struct cuda_planes row = planes_of(s, 1);
    int64_t tile_bytes = cuda_tile_bytes(&s->format, s->in),
            at_once = STAGED_BYTES / (int64_t)row.bytes / TILE_ROWS * TILE_ROWS + TILE_ROWS;
    if (at_once > n_rows) at_once = n_rows;
    struct cuda_planes p = planes_of(s, at_once);
    TRY(staging(c, p.bytes, err));
    struct k_weight rows = cuda_rows_args(s, &p, c->staging);
    for (int64_t first = 0; first < n_rows; first += at_once) {
        rows.out = n_rows - first < at_once ? n_rows - first : at_once;
        TRY(upload_rows(c, s, &p, first, rows.out, c->staging, err));
        TRY(make_tiles(c, &rows, w->base + (uint64_t)(first / TILE_ROWS * tile_bytes), err));
    }
    w->k = cuda_tiles_args(s, w->base);
    return ERR_OK;
}

enum { SPARE_BYTES = 256 }; /* behind a weight: kernels read whole pieces */

static size_t bytes_of(const struct cuda *c, const struct weight_source *s, int64_t n_rows) {
    if (!cuda_tiles(c, s)) return planes_of(s, n_rows).bytes;
    return align256((size_t)cuda_tile_bytes(&s->format, s->in) * ceil_div(n_rows, TILE_ROWS));
}

/* ---- numbers that are stored otherwise than they come ------------------------------------------------------------------ */

static int convert_row(const struct cuda_stored *s, enum weight_plane plane, const void *from, void *to, struct err *err) {
    const struct format *f = &s->given->format;
    if (plane == PLANE_VALUES && f->mode == QUANT_AFFINE) {
        quant_codes(f, from, 0, s->given->in, to);
        return ERR_OK;
    }
    int64_t n = plane == PLANE_VALUES ? s->given->in : s->given->in / f->group;
    plain_from_f32(s->source.format.dtype, from, n, to);
    for (int64_t i = 0; i < n && plane != PLANE_VALUES; i++) {
        uint16_t half;
        memcpy(&half, (const unsigned char *)to + 2 * i, sizeof half);
        if ((half & 0x7C00u) == 0x7C00u)
            return err_set(err, ERR_EUNSUPPORTED, "%s: a scale or bias is too large for f16; run it with --precision exact",
                           s->given->name);
    }
    return ERR_OK;
}

static size_t plane_bytes(const struct weight_source *s, enum weight_plane plane) {
    if (plane == PLANE_VALUES) return quant_values_bytes(&s->format, s->in);
    return plane == PLANE_SCALES ? quant_scales_bytes(&s->format, s->in) : quant_biases_bytes(&s->format, s->in);
}

static int read_stored(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    const struct cuda_stored *s = user;
    size_t from = plane_bytes(s->given, plane), to = plane_bytes(&s->source, plane);
    if (from == to) return s->given->read(s->given->user, plane, row, n_rows, dst, err);
    unsigned char *values = mem_try((size_t)n_rows * from);
    int code = values ? s->given->read(s->given->user, plane, row, n_rows, values, err)
                      : err_set(err, ERR_EMEMORY, "no memory for rows of %s", s->given->name);
    for (size_t i = 0; i < (size_t)n_rows && !code; i++)
        code = convert_row(s, plane, values + i * from, (unsigned char *)dst + i * to, err);
    mem_free(values);
    return code;
}

/* Matrices of heads in f32, which products round to bf16 anyway. Scales of f32: with the 11 bits of f16 the numbers of a group are off by less than a
 * hundredth of a step, and activations are rounded to 8 bits. Experts of 5 and 6 bits: their kernels take bytes. */
void cuda_store_as(const struct cuda *c, const struct weight_source *given, struct cuda_stored *out) {
    const struct format *f = &given->format;
    *out = (struct cuda_stored){given, *given};
    struct weight_source *s = &out->source;
    if (c->exact || given->is_vector || given->is_router) return;
    bool is_affine = f->mode == QUANT_AFFINE && c->gpu->functions[KERNEL_tile_pack];
    bool is_heads =
        f->mode == QUANT_NONE && f->dtype == DT_F32 && given->n_experts > 1 && !given->is_expert && c->gpu->functions[KERNEL_qmv_16_64];
    if (is_heads) s->format.dtype = DT_BF16;
    if (is_affine && f->dtype == DT_F32) s->format.dtype = DT_F16;
    if (is_affine && given->is_expert && tile_bits(f->bits) == 8) s->format.bits = 8;
    s->read = read_stored;
    s->user = out;
}

size_t cuda_weight_bytes(const struct backend *be, const struct weight_source *source) {
    const struct cuda *c = (const struct cuda *)be;
    struct cuda_stored s;
    cuda_store_as(c, source, &s);
    return bytes_of(c, &s.source, source->n_experts * source->out) + SPARE_BYTES;
}

int cuda_weight_bind(struct backend *be, const struct weight_source *given, struct weight *out, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    struct cuda_stored stored;
    cuda_store_as(c, given, &stored);
    const struct weight_source *source = &stored.source;
    const struct format *f = &source->format;
    int64_t n_rows = source->n_experts * source->out;
    if (f->mode > QUANT_NVFP4)
        return err_set(err, ERR_EUNSUPPORTED,
                       "%s: %s with scales of f32 has no GPU kernels; run it with --device cpu, or mlxcel quantize it first", source->name,
                       quant_mode_name(f->mode));
    struct cuda_planes p = planes_of(source, n_rows);
    bool tiled = cuda_tiles(c, source);
    struct cuda_weight *w = mem_alloc(sizeof *w);
    *w = (struct cuda_weight){.bytes = bytes_of(c, source, n_rows)};
    *out = (struct weight){.name = source->name,
                           .format = *f,
                           .n_experts = source->n_experts,
                           .out = source->out,
                           .in = source->in,
                           .bytes = w->bytes,
                           .packed = w};
    int code = cuda_alloc(c, w->bytes + SPARE_BYTES, source->name, &w->base, err);
    if (!code && tiled) code = upload_tiles(c, source, n_rows, w, err);
    else if (!code) {
        code = upload_rows(c, source, &p, 0, n_rows, w->base, err);
        w->k = cuda_rows_args(source, &p, w->base);
    }
    if (code) {
        c->d->cuStreamSynchronize(c->stream);
        cuda_weight_drop(c, out);
    }
    return code;
}

void cuda_weight_drop(struct cuda *c, struct weight *weight) {
    struct cuda_weight *w = weight->packed;
    cuda_free(c, &w->base);
    mem_free(w);
    weight->packed = NULL;
}
