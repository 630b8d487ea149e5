/* Weights that stay in the host's memory: a prompt's step copies each of them while the op before it computes.
 *
 * The copies go to one piece of device memory, in turn to its beginning and to its end: it has room for any two that follow each other. They run on a stream
 * of their own. A copy waits until what lay at its end before is used no more, and the op that reads the weight waits for the copy. The CPU's panels
 * of 16 rows are as large as our tiles where scales are bf16, and become tiles where they lie. */
#include "backend/cuda/context/context.h"

enum { SPARE = 256 }; /* behind a weight: kernels read whole pieces */

/* ---- binding ------------------------------------------------------------------------------------------------------ */

/* Panels have codes of 4 or 8 bits, as tiles do. Scales of f16 are f32 there, and go back without loss. */
static bool takes_panels(const struct weight_source *given, const struct weight_lent *lent) {
    const struct format *f = &given->format;
    enum dtype scales = lent->narrow_scales ? DT_BF16 : DT_F16;
    return f->mode == QUANT_AFFINE && f->dtype == scales && lent->code_bits == tile_bits(f->bits) && TILE_UNIT % lent->group == 0;
}

/* Rows become tiles as they do when a weight is bound, where nothing is converted on the way. */
static bool takes_rows(const struct cuda_stored *s, const struct weight_lent *lent) {
    const struct format *from = &s->given->format, *to = &s->source.format;
    return from->bits == to->bits && from->dtype == to->dtype && lent->strides[PLANE_SCALES];
}

static size_t panels_bytes(const struct k_panels *p) {
    size_t group = (size_t)(p->group * TILE_ROWS * p->bits / 8 + 2 * TILE_ROWS * (p->narrow ? 2 : 4));
    return (size_t)(p->n * p->units) * (size_t)(TILE_UNIT / p->group) * group;
}

static bool describe_panels(struct cuda_borrowed *b, const struct weight_source *given, const struct weight_lent *lent) {
    b->panels = true;
    b->panels_args = (struct k_panels){.n = ceil_div(b->n_rows, TILE_ROWS),
                                       .units = given->in / TILE_UNIT,
                                       .bits = lent->code_bits,
                                       .group = lent->group,
                                       .narrow = lent->narrow_scales};
    return panels_bytes(&b->panels_args) == lent->bytes;
}

static void describe_rows(struct cuda_borrowed *b, const struct weight_source *source, const struct weight_lent *lent) {
    struct cuda_planes p = {0};
    for (int i = 0; i < N_PLANES; i++) p.strides[i] = lent->strides[i], p.at[i] = lent->at[i];
    b->rows_args = cuda_rows_args(source, &p, 0);
    b->rows_args.out = b->n_rows;
}

static size_t tiles_bytes(const struct weight_source *s) {
    return (size_t)cuda_tile_bytes(&s->format, s->in) * ceil_div(s->n_experts * s->out, TILE_ROWS);
}

static bool describe(struct cuda_borrowed *b, const struct cuda_stored *s, const struct weight_lent *lent) {
    int64_t n_rows = s->given->n_experts * s->given->out;
    size_t tiles = tiles_bytes(&s->source);
    *b = (struct cuda_borrowed){.data = lent->data, .bytes = lent->bytes, .n_rows = n_rows};
    bool is_known = lent->panels ? takes_panels(s->given, lent) && describe_panels(b, s->given, lent) : takes_rows(s, lent);
    if (is_known && !lent->panels) describe_rows(b, &s->source, lent);
    b->tiles_at = b->panels && tiles == lent->bytes ? 0 : align256(lent->bytes);
    b->place_bytes = b->tiles_at + align256(tiles) + SPARE;
    return is_known;
}

/* Where it is not known yet how the host keeps it: of scales of bf16 tiles alone, else what the host has, too. */
size_t cuda_borrow_bytes(const struct backend *be, const struct weight_source *source) {
    const struct cuda *c = (const struct cuda *)be;
    struct cuda_stored s;
    cuda_store_as(c, source, &s);
    if (!cuda_tiles(c, &s.source)) return 0;
    size_t tiles = align256(tiles_bytes(&s.source)) + SPARE;
    bool in_place = source->format.mode == QUANT_AFFINE && source->format.dtype == DT_BF16;
    return in_place ? tiles : 3 * tiles;
}

static int open_places(struct cuda *c, struct err *err) {
    struct cuda_places *p = &c->places;
    if (p->stream) return ERR_OK;
    CUDA_TRY(c, c->d->cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING), "a stream");
    CUDA_TRY(c, c->d->cuEventCreate(&p->arrived, CU_EVENT_DISABLE_TIMING), "an event");
    for (int i = 0; i < BORROW_ENDS; i++) CUDA_TRY(c, c->d->cuEventCreate(&p->freed[i], CU_EVENT_DISABLE_TIMING), "an event");
    return ERR_OK;
}

/* Memory that is not pinned is copied too, by a detour that the driver makes. */
static void pin(struct cuda *c, struct cuda_borrowed *b) {
    b->is_pinned = c->d->cuMemHostRegister && c->d->cuMemHostUnregister &&
                   c->d->cuMemHostRegister((void *)(uintptr_t)b->data, b->bytes, 0) == CUDA_SUCCESS;
}

int cuda_weight_borrow(struct backend *be, const struct weight_source *given, const struct weight_lent *lent, struct weight *out,
                       struct err *err) {
    struct cuda *c = (struct cuda *)be;
    struct cuda_stored stored;
    struct cuda_borrowed b;
    TRY(cuda_use(c, err));
    cuda_store_as(c, given, &stored);
    *out = (struct weight){.name = given->name,
                           .format = stored.source.format,
                           .n_experts = given->n_experts,
                           .out = given->out,
                           .in = given->in,
                           .is_borrowed = true};
    if (!cuda_tiles(c, &stored.source) || !c->gpu->functions[KERNEL_tile_of_panels] || !describe(&b, &stored, lent)) return ERR_OK;
    TRY(open_places(c, err));
    pin(c, &b);
    struct cuda_weight *w = mem_alloc(sizeof *w);
    struct cuda_borrowed *kept = mem_alloc(sizeof *kept);
    *kept = b;
    *w = (struct cuda_weight){.k = cuda_tiles_args(&stored.source, 0), .borrowed = kept};
    out->packed = w;
    return ERR_OK;
}

static void give_back(struct cuda *c, struct cuda_borrowed *b) {
    c->d->cuStreamSynchronize(c->places.stream);
    if (b->is_pinned) c->d->cuMemHostUnregister((void *)(uintptr_t)b->data);
    mem_free(b);
}

void cuda_weight_release(struct backend *be, struct weight *weight) {
    struct cuda *c = (struct cuda *)be;
    struct cuda_weight *w = weight->packed;
    if (!w) return;
    cuda_use(c, NULL);
    c->d->cuStreamSynchronize(c->stream);
    cuda_graphs_drop(c); /* their kernels hold its address */
    if (w->borrowed) give_back(c, w->borrowed);
    cuda_weight_drop(c, weight);
}

/* ---- copying ------------------------------------------------------------------------------------------------------ */

int cuda_loan_begin(struct cuda *c, const struct cuda_loan *loan, struct err *err) {
    struct cuda_places *p = &c->places;
    for (int i = 0; i < BORROW_ENDS; i++)
        if (p->used[i] && (loan->waits_all || (loan->waits && loan->end == i)))
            CUDA_TRY(c, c->d->cuStreamWaitEvent(p->stream, p->freed[i], 0), "waiting for a place");
    CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(p->memory + loan->at, loan->of->data, loan->of->bytes, p->stream), "copying a weight");
    CUDA_TRY(c, c->d->cuEventRecord(p->arrived, p->stream), "an event");
    CUDA_TRY(c, c->d->cuStreamWaitEvent(c->stream, p->arrived, 0), "waiting for a weight");
    return ERR_OK;
}

int cuda_loan_end(struct cuda *c, const struct cuda_loan *loan, struct err *err) {
    c->places.used[loan->end] = true;
    CUDA_TRY(c, c->d->cuEventRecord(c->places.freed[loan->end], c->stream), "an event");
    return ERR_OK;
}

void cuda_places_close(struct cuda *c) {
    struct cuda_places *p = &c->places;
    cuda_free(c, &p->memory);
    if (p->arrived) c->d->cuEventDestroy(p->arrived);
    for (int i = 0; i < BORROW_ENDS; i++)
        if (p->freed[i]) c->d->cuEventDestroy(p->freed[i]);
    if (p->stream) c->d->cuStreamDestroy(p->stream);
}
