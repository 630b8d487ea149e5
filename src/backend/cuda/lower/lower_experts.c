/* Lowering of experts: on the tensor cores, pair by pair or sorted by expert (kernels/experts.cu); the reference rows (kernels/moe.cu). */
#include "backend/cuda/lower/lower.h"

/* The matrix with the rows of up, and the one with the rows of the gate (NULL: none). Where the two are stacked it is the same matrix. */
static const struct weight *up_of(const struct experts_args *e) {
    return e->gate_up ? e->gate_up : e->up;
}
static const struct weight *gate_of(const struct experts_args *e) {
    return e->gate_up ? e->gate_up : e->gate;
}

static struct k_experts experts_args_of(const struct cuda *c, const struct op *op) {
    const struct experts_args *e = &op->arg.experts;
    const struct weight *up = up_of(e), *up_bias = e->gate_up ? e->gate_up_bias : e->up_bias;
    const struct weight *gate = gate_of(e), *gate_bias = e->gate_up ? e->gate_up_bias : e->gate_bias;
    return (struct k_experts){
        .gate = cuda_weight_args(gate),
        .up = cuda_weight_args(up),
        .down = cuda_weight_args(e->down),
        .gate_rows = gate ? gate->out : 0,
        .up_rows = up->out,
        .up_first = e->gate_up ? e->inner : 0,
        .gate_bias = cuda_vec(gate_bias),
        .up_bias = cuda_vec(up_bias),
        .down_bias = cuda_vec(e->down_bias),
        .gate_bias_stride = gate ? gate->out : 0,
        .up_bias_stride = up->out,
        .up_bias_first = e->gate_up ? e->inner : 0,
        .x = cuda_view(c, op->in[0]),
        .y = cuda_view(c, op->out[0]),
        .ids = cuda_view(c, op->in[1]).p,
        .weights = cuda_view(c, op->in[2]).p,
        .ids_stride = op->in[1].row_stride,
        .weights_stride = op->in[2].row_stride,
        .act = cuda_act(&e->act),
        .inner = e->inner,
        .k = op->in[1].width,
        .n_experts = e->down->n_experts,
        .first = e->first,
        .scale_input = e->scale_input,
    };
}

/* Matrices that the host lends come half by half: those of the second are copied while the first computes. */
static void begin_inner(struct cuda *c, const struct op *op, struct k_experts *a) {
    const struct weight *up = up_of(&op->arg.experts), *gate = gate_of(&op->arg.experts);
    cuda_borrow_weights(c, (const struct weight *const[]){up, gate}, 2);
    a->gate = cuda_weight_args(gate);
    a->up = cuda_weight_args(up);
}
static void begin_down(struct cuda *c, const struct op *op, struct k_experts *a) {
    cuda_borrow_done(c);
    cuda_borrow_weights(c, &op->arg.experts.down, 1);
    a->down = cuda_weight_args(op->arg.experts.down);
}

void lower_experts_ref(struct cuda *c, const struct op *op) {
    struct k_experts a = experts_args_of(c, op);
    int64_t pairs = (int64_t)a.x.rows * a.k;
    size_t used = 0;
    a.inner_values = cuda_op_scratch(c, &used, (size_t)pairs * (size_t)a.inner * sizeof(float));
    begin_inner(c, op, &a);
    EMIT(c, KERNEL_experts_inner, GRID(pairs, ceil_div(a.inner, 8), 1), 256, 0, a);
    begin_down(c, op, &a);
    EMIT(c, KERNEL_experts_down, GRID(a.x.rows, ceil_div(a.down.out, 8), 1), 256, 0, a);
}

/* ---- on the tensor cores ------------------------------------------------------------------------------------------ */

/* Results of a warp are 32 rows of one matrix, or 16 of the gate's and 16 of up's. */
enum { TILE_INNER = EXPERTS_TILE_WARPS * 16, TILE_DOWN = EXPERTS_TILE_WARPS * 32 };
enum {
    FEW_SUMS = EXPERTS_CHOICES_MAX * EXPERTS_FEW_RESULTS * sizeof(float),
    SOME_PAIRS = 8,
    SOME_MORE_PAIRS = 16,
    FEW_DEPTH = 8,
    FEW_BLOCKS = 4
};
enum { FEW_MAX = 8, FEW_SHARED = 80 << 10 }; /* up to so many rows count as few; the most bytes that their terms may take */

enum kind { KIND_8, KIND_16, KIND_FP4, KIND_TILES, N_KINDS }; /* KIND_FP4 and KIND_TILES: mxfp4 and 4 bits, both in tiles */

struct kind_kernels {
    enum kernel_id few_inner, few_down, many_inner, many_down;
    int32_t x_bits; /* x has the layout in shared memory that codes of so many bits need (codes_x_stride) */
};

#define KIND(name, bits)                                                                                   \
    {                                                                                                      \
        KERNEL_experts_few_inner_##name, KERNEL_experts_few_down_##name, KERNEL_experts_many_inner_##name, \
            KERNEL_experts_many_down_##name, bits                                                          \
    }
static const struct kind_kernels kinds[N_KINDS] = {
    [KIND_8] = KIND(8, 8),
    [KIND_16] = KIND(16, 16),
    [KIND_FP4] = KIND(fp4, 16),
    [KIND_TILES] = KIND(t4, 16),
};

/* N_KINDS: none of them. */
static enum kind kind_of(const struct weight *w) {
    const struct format *f = &w->format;
    if (cuda_weight_args(w).tile_bytes) return f->mode == QUANT_MXFP4 ? KIND_FP4 : KIND_TILES;
    if (f->mode == QUANT_NONE) return f->dtype == DT_BF16 ? KIND_16 : N_KINDS;
    return f->mode == QUANT_AFFINE && f->bits == 8 ? KIND_8 : N_KINDS;
}

/* Bytes of n numbers as two bf16 terms each. */
static int64_t terms_bytes(int64_t n) {
    return 2 * 2 * n;
}

static unsigned int many_shared_bytes(enum kind k) {
    return EXPERTS_TILE_STAGES * (unsigned int)terms_bytes((int64_t)EXPERTS_TILE_PAIRS * codes_x_stride(kinds[k].x_bits));
}

bool experts_fit(const struct cuda *c, const struct op *op) {
    const struct experts_args *e = &op->arg.experts;
    const struct weight *up = up_of(e), *gate = gate_of(e);
    struct tensor x = op->in[0];
    bool alike =
        !gate || (kind_of(gate) == kind_of(up) && gate->format.group == up->format.group && gate->format.dtype == up->format.dtype);
    bool dense = x.heads == 1 && x.row_stride % 4 == 0 && x.offset % 4 == 0 && c->base.list.values[x.id - 1].dtype == DT_F32;
    return !c->exact && c->gpu->functions[KERNEL_experts_sort] && alike && dense && kind_of(up) != N_KINDS && kind_of(e->down) != N_KINDS &&
           up->in % TILE_UNIT == 0 && e->down->in % TILE_UNIT == 0 && e->down->n_experts <= EXPERTS_MAX &&
           op->in[1].width <= EXPERTS_CHOICES_MAX && FEW_SHARED + FEW_SUMS <= c->gpu->shared_max; /* the kernels of tiles need less */
}

static void emit_few(struct cuda *c, const struct op *op, struct k_experts *a, enum kind inner, enum kind down) {
    int64_t pairs = (int64_t)a->x.rows * a->k;
    size_t used = 0;
    a->inner_terms = cuda_op_scratch(c, &used, (size_t)terms_bytes(pairs * a->inner));
    begin_inner(c, op, a);
    cuda_emit(c, kinds[inner].few_inner, GRID(ceil_div(a->inner, EXPERTS_FEW_RESULTS), pairs, 1), EXPERTS_INNER_WARPS * 32,
              (unsigned int)terms_bytes(a->up.in), a, sizeof *a);
    begin_down(c, op, a);
    cuda_emit(c, kinds[down].few_down, GRID(ceil_div(a->down.out, EXPERTS_FEW_RESULTS), a->x.rows, 1), EXPERTS_DOWN_WARPS * 32,
              (unsigned int)terms_bytes((int64_t)a->k * a->inner), a, sizeof *a);
}

/* Sorts pairs of row and expert by expert, in tiles of at most tile_pairs pairs, and gives the kernels their scratch memory. Returns the most tiles
 * that there can be. `sort`: experts_sort, or a kernel that also rewrites x in the same launch, one block for each row. */
static size_t sort_pairs(struct cuda *c, struct k_experts *a, int32_t tile_pairs, enum kernel_id sort, size_t *used) {
    size_t pairs = (size_t)a->x.rows * (size_t)a->k, n_experts = (size_t)a->n_experts;
    size_t tiles = pairs / (size_t)tile_pairs + (pairs < n_experts ? pairs : n_experts);
    a->outer = cuda_op_scratch(c, used, pairs * (size_t)a->down.out * sizeof(float));
    a->pairs = cuda_op_scratch(c, used, pairs * sizeof(int32_t));
    a->places = cuda_op_scratch(c, used, pairs * sizeof(int32_t));
    a->tiles = cuda_op_scratch(c, used, (1 + 3 * tiles) * sizeof(int32_t));
    a->tile_pairs = tile_pairs;
    cuda_emit(c, sort, GRID(sort == KERNEL_experts_sort ? 1 : 1 + a->x.rows, 1, 1), EXPERTS_MAX, 0, a, sizeof *a);
    return tiles;
}

static void emit_fold(struct cuda *c, const struct k_experts *a) {
    cuda_emit(c, KERNEL_experts_fold, GRID(ceil_div(a->down.out, 256), a->x.rows, 1), 256, 0, a, sizeof *a);
}

/* Kernels of batches by pairs of a block and by the depth of a warp's ring: SOME_PAIRS of depth 4 or of the least that there is, half of that with depth 4 or FEW_DEPTH,
 * SOME_MORE_PAIRS. 0: there is none. */
struct some_half {
    enum kernel_id few_pairs, deep, shallow, more_pairs, few_deeper;
};
struct some_kernels {
    enum kernel_id sort;
    struct some_half inner, down;
    int64_t (*x_bytes)(int64_t width);
    int32_t unit_bytes, least_depth;
};

static const struct some_kernels some_tiles = {
    .sort = KERNEL_experts_sort_x16,
    .inner = {.few_pairs = KERNEL_experts_some_inner_4_4,
              .deep = KERNEL_experts_some_inner_4_8,
              .shallow = KERNEL_experts_some_inner_2_8,
              .few_deeper = KERNEL_experts_some_inner_8_4},
    .down = {.few_pairs = KERNEL_experts_some_down_4_4,
             .deep = KERNEL_experts_some_down_4_8,
             .shallow = KERNEL_experts_some_down_2_8,
             .few_deeper = KERNEL_experts_some_down_8_4},
    .x_bytes = x16_bytes,
    .unit_bytes = TILE_CODES + TILE_META,
    .least_depth = 2,
};
static const struct some_kernels some_fp4 = {
    .sort = KERNEL_experts_sort_xf16,
    .inner = {.few_pairs = KERNEL_experts_some_inner_fp4_4,
              .deep = KERNEL_experts_some_inner_fp4_8,
              .shallow = KERNEL_experts_some_inner_fp4_8,
              .more_pairs = KERNEL_experts_some_inner_fp4_16},
    .down = {.few_pairs = KERNEL_experts_some_down_fp4_4,
             .deep = KERNEL_experts_some_down_fp4_8,
             .shallow = KERNEL_experts_some_down_fp4_8,
             .more_pairs = KERNEL_experts_some_down_fp4_16},
    .x_bytes = xf16_bytes,
    .unit_bytes = TILE_FP4_BYTES,
    .least_depth = 4,
};

/* Shared memory of a block with one warp for each pair: x of all pairs, and a ring of weights for each warp. */
static int64_t some_shared_bytes(const struct some_kernels *s, int64_t width, int32_t depth, int32_t pairs) {
    return pairs * (s->x_bytes(width) + (int64_t)depth * 2 * s->unit_bytes);
}

static int64_t some_widest(const struct k_experts *a) {
    return a->up.in > a->inner ? a->up.in : a->inner;
}

/* Whether blocks of 16 pairs fit. They are for weights that many pairs share: an expert then rarely needs more than one tile. */
static bool takes_more(const struct cuda *c, const struct k_experts *a, const struct some_kernels *s) {
    return s->inner.more_pairs && some_shared_bytes(s, some_widest(a), 4, SOME_MORE_PAIRS) <= c->gpu->shared_max;
}

static bool has_pairs(const struct k_experts *a, int64_t of_expert) {
    return (int64_t)a->x.rows * a->k <= of_expert * a->n_experts;
}

/* For batches in which an expert has six pairs at most on average: it then rarely needs more than one tile of eight. Twice as many where tiles of 16 fit. NULL: no kernels for
 * these weights. */
static const struct some_kernels *some_of(const struct cuda *c, const struct k_experts *a, enum kind inner, enum kind down) {
    const struct some_kernels *s = inner == KIND_FP4 ? &some_fp4 : &some_tiles;
    bool is_kind =
        inner == down && (inner == KIND_FP4 || (inner == KIND_TILES && tile_runs(a->up.group) == 1 && tile_runs(a->down.group) == 1));
    bool fits = is_kind && has_pairs(a, takes_more(c, a, s) ? 12 : 6) &&
                some_shared_bytes(s, some_widest(a), s->least_depth, SOME_PAIRS) <= c->gpu->shared_max;
    return fits ? s : NULL;
}

/* One half of the experts: gate and up, or down. Few pairs: so many blocks with deeper rings fill a multiprocessor as well as more with shallow ones, and what is left of
 * the last round of blocks has more under way. of_warp: results of a warp. */
static void emit_some_half(struct cuda *c, struct k_experts *a, const struct some_kernels *s, const struct some_half *k, int64_t width,
                           int64_t n, int64_t of_warp, size_t tiles) {
    int32_t pairs = a->tile_pairs;
    bool is_deep = some_shared_bytes(s, width, 4, pairs) <= c->gpu->shared_max;
    bool is_deeper =
        pairs < SOME_PAIRS && k->few_deeper && FEW_BLOCKS * some_shared_bytes(s, width, FEW_DEPTH, pairs) <= c->gpu->shared_max;
    a->depth = is_deeper ? FEW_DEPTH : is_deep ? 4 : 2;
    cuda_emit(c,
              is_deeper            ? k->few_deeper
              : pairs < SOME_PAIRS ? k->few_pairs
              : pairs > SOME_PAIRS ? k->more_pairs
              : is_deep            ? k->deep
                                   : k->shallow,
              GRID(ceil_div(n, of_warp * pairs), tiles, 1), (unsigned int)pairs * 32,
              (unsigned int)some_shared_bytes(s, width, a->depth, pairs), a, sizeof *a);
}

/* Where most experts have one pair, blocks of four: more of them fit a multiprocessor, and less of the GPU is idle at the end. */
static int32_t some_pairs(const struct cuda *c, const struct k_experts *a, const struct some_kernels *s) {
    bool are_few = (int64_t)a->x.rows * a->k * 4 <= (int64_t)a->n_experts * 5;
    if (are_few && some_shared_bytes(s, some_widest(a), 4, SOME_PAIRS / 2) <= c->gpu->shared_max) return SOME_PAIRS / 2;
    return takes_more(c, a, s) && !has_pairs(a, 4) ? SOME_MORE_PAIRS : SOME_PAIRS;
}

static void emit_some(struct cuda *c, const struct op *op, struct k_experts *a, const struct some_kernels *s) {
    size_t used = 0;
    a->x_terms = cuda_op_scratch(c, &used, (size_t)a->x.rows * (size_t)s->x_bytes(a->x.width));
    a->inner_terms = cuda_op_scratch(c, &used, (size_t)a->x.rows * (size_t)a->k * (size_t)s->x_bytes(a->inner));
    size_t tiles = sort_pairs(c, a, some_pairs(c, a, s), s->sort, &used);
    begin_inner(c, op, a);
    emit_some_half(c, a, s, &s->inner, a->up.in, a->inner, 16, tiles);
    begin_down(c, op, a);
    emit_some_half(c, a, s, &s->down, a->inner, a->down.out, 32, tiles);
    emit_fold(c, a);
}

static void emit_many(struct cuda *c, const struct op *op, struct k_experts *a, enum kind inner, enum kind down) {
    size_t used = 0, rows = (size_t)a->x.rows;
    a->x_terms = cuda_op_scratch(c, &used, (size_t)terms_bytes((int64_t)rows * a->x.width));
    a->inner_terms = cuda_op_scratch(c, &used, (size_t)terms_bytes((int64_t)rows * a->k * a->inner));
    cuda_emit(c, KERNEL_experts_terms, GRID(ceil_div(a->x.width, 256), rows, 1), 256, 0, a, sizeof *a);
    size_t tiles = sort_pairs(c, a, EXPERTS_TILE_PAIRS, KERNEL_experts_sort, &used);
    begin_inner(c, op, a);
    cuda_emit(c, kinds[inner].many_inner, GRID(ceil_div(a->inner, TILE_INNER), tiles, 1), EXPERTS_TILE_WARPS * 32, many_shared_bytes(inner),
              a, sizeof *a);
    begin_down(c, op, a);
    cuda_emit(c, kinds[down].many_down, GRID(ceil_div(a->down.out, TILE_DOWN), tiles, 1), EXPERTS_TILE_WARPS * 32, many_shared_bytes(down),
              a, sizeof *a);
    emit_fold(c, a);
}

/* ---- warpgroup products (kernels/experts_sm90.cu) ------------------------------------------------------------------- */

static bool warpgroup_fits(const struct cuda *c, const struct k_experts *a, enum kind inner, enum kind down) {
    return c->gpu->functions[KERNEL_wexperts_inner] && inner == down && (inner == KIND_TILES || inner == KIND_FP4) && a->gate.values &&
           a->x.width % TILE_UNIT == 0 && a->up.group >= 32 && a->down.group >= 32 &&
           (a->act.kind == ACT_SILU || a->act.kind == ACT_GELU_TANH || a->act.kind == ACT_CLAMPED_SWIGLU) &&
           wexperts_shared_bytes() <= c->gpu->shared_max;
}

static bool is_plain(const struct k_weight *w) {
    return w->dtype == K_BF16 && tile_runs(w->group) == 1;
}

/* One block for each multiprocessor; it takes tile after tile. */
static void emit_warpgroup_half(struct cuda *c, const struct k_experts *a, enum kernel_id id, size_t tiles, unsigned int parts) {
    size_t items = tiles * parts, n_sm = (size_t)c->gpu->n_sm;
    cuda_emit(c, id, GRID(items < n_sm ? items : n_sm, 1, 1), (WEXPERTS_WARPS + WEXPERTS_FILLERS) * 32,
              (unsigned int)wexperts_shared_bytes(), a, sizeof *a);
}

struct warpgroup_kernels {
    enum kernel_id inner, down;
    int32_t pairs; /* of a tile */
};

/* Batches of mxfp4: experts with some ten pairs each. */
static const struct warpgroup_kernels *warpgroup_of(const struct k_experts *a, enum kind kind) {
    static const struct warpgroup_kernels plain = {KERNEL_wexperts_inner, KERNEL_wexperts_down, WEXPERTS_PAIRS},
                                          any = {KERNEL_wexperts_inner_any, KERNEL_wexperts_down_any, WEXPERTS_ANY_PAIRS},
                                          fp4 = {KERNEL_wexperts_inner_fp4, KERNEL_wexperts_down_fp4, WEXPERTS_PAIRS},
                                          fp4_batch = {KERNEL_wexperts_inner_fp4_batch, KERNEL_wexperts_down_fp4_batch,
                                                       WEXPERTS_BATCH_PAIRS};
    if (kind == KIND_FP4) return (int64_t)a->x.rows * a->k <= (int64_t)24 * a->n_experts ? &fp4_batch : &fp4;
    return is_plain(&a->up) && is_plain(&a->down) ? &plain : &any;
}

static void emit_warpgroup(struct cuda *c, const struct op *op, struct k_experts *a, enum kind kind) {
    size_t used = 0, rows = (size_t)a->x.rows, pairs = rows * (size_t)a->k;
    a->x_terms = cuda_op_scratch(c, &used, rows * ((size_t)a->x.width * 2 + sizeof(float)));
    a->inner_terms = cuda_op_scratch(c, &used, pairs * (size_t)a->inner * 2);
    const struct warpgroup_kernels *k = warpgroup_of(a, kind);
    size_t tiles = sort_pairs(c, a, k->pairs, KERNEL_experts_sort_f16, &used);
    begin_inner(c, op, a);
    emit_warpgroup_half(c, a, k->inner, tiles, ceil_div(a->inner, WEXPERTS_INNER));
    begin_down(c, op, a);
    emit_warpgroup_half(c, a, k->down, tiles, ceil_div(a->down.out, WEXPERTS_DOWN));
    emit_fold(c, a);
}

void lower_experts(struct cuda *c, const struct op *op) {
    const struct experts_args *e = &op->arg.experts;
    struct k_experts a = experts_args_of(c, op);
    enum kind inner = kind_of(up_of(e)), down = kind_of(e->down);
    bool small = terms_bytes(a.up.in) <= FEW_SHARED && terms_bytes((int64_t)a.k * a.inner) <= FEW_SHARED;
    const struct some_kernels *some = some_of(c, &a, inner, down);
    bool is_part = c->base.comm; /* choices of other ranks' experts are passed over by those that sort */
    if (!is_part && a.x.rows <= FEW_MAX && small && (a.x.rows == 1 || !some)) emit_few(c, op, &a, inner, down);
    else if (some) emit_some(c, op, &a, some);
    else if (warpgroup_fits(c, &a, inner, down)) emit_warpgroup(c, op, &a, inner);
    else emit_many(c, op, &a, inner, down);
}
