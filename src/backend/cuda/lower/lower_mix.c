/* Lowering of attention, routers and recurrent ops. */
#include "backend/cuda/lower/lower.h"

static struct k_attn attn_args_of(const struct cuda *c, const struct op *op) {
    const struct attn_args *t = &op->arg.attn;
    bool is_picked = op->n_in == 2;
    return (struct k_attn){
        .c = cuda_cache(c, t->kv),
        .q = cuda_view(c, op->in[0]),
        .y = cuda_view(c, op->out[0]),
        .sinks = cuda_vec(t->sinks),
        .slopes = cuda_vec(t->slopes),
        .slopes_in_bf16 = t->slopes_in_bf16,
        .distances = cuda_vec(t->distances),
        .farthest = t->farthest,
        .both_ways = t->both_ways,
        .picks = is_picked ? cuda_view(c, op->in[1]).p : 0,
        .picks_stride = is_picked ? op->in[1].row_stride : 0,
        .n_picks = is_picked ? op->in[1].width : 0,
        .pos = cuda_step_array(c, c->at.pos),
        .until = c->key.sees && !t->is_strict ? cuda_step_array(c, c->at.until) : 0,
        .spans = t->of_pictures ? cuda_step_array(c, c->at.spans[0]) : 0,
        .seq_of = cuda_step_array(c, c->at.seq_of),
        .seqs = cuda_step_array(c, c->at.seqs),
        .tiles = cuda_step_array(c, c->at.tiles),
        ATTN_FIELDS(t),
        .group = op->in[0].heads / c->kv[t->kv.kv_class].shape.heads,
    };
}

void lower_attn_ref(struct cuda *c, const struct op *op) {
    static const enum kernel_id by_width[][4] = {
        [K_F32] = {KERNEL_attn_ref_f32_64, KERNEL_attn_ref_f32_128, KERNEL_attn_ref_f32_256, KERNEL_attn_ref_f32_576},
        [K_BF16] = {KERNEL_attn_ref_bf16_64, KERNEL_attn_ref_bf16_128, KERNEL_attn_ref_bf16_256, KERNEL_attn_ref_bf16_576},
        [K_I8] = {KERNEL_attn_ref_i8_64, KERNEL_attn_ref_i8_128, KERNEL_attn_ref_i8_256}, /* backend_kv_check: none is wider */
    };
    struct k_attn a = attn_args_of(c, op);
    int32_t width = a.c.k_width > a.y.width ? a.c.k_width : a.y.width;
    int i = width <= 64 ? 0 : width <= 128 ? 1 : width <= 256 ? 2 : 3;
    EMIT(c, by_width[a.c.dtype][i], GRID(a.q.heads, a.q.rows, 1), 256, 0, a);
}

void lower_attn_relative(struct cuda *c, const struct op *op) {
    struct k_attn_relative a = {.a = attn_args_of(c, op),
                                .by_row = cuda_view(c, op->in[1]),
                                .by_key = cuda_view(c, op->in[2]),
                                .buckets = cuda_vec(op->arg.attn.buckets)};
    EMIT(c, a.a.c.dtype == K_F32 ? KERNEL_attn_relative_f32 : KERNEL_attn_relative_bf16, GRID(a.a.q.heads, a.a.q.rows, 1), 256, 0, a);
}

void lower_attn_more(struct cuda *c, const struct op *op) {
    struct k_attn_more a = {.a = attn_args_of(c, op), .more = cuda_cache(c, op->arg.attn.more), .every = op->arg.attn.every};
    EMIT(c, a.a.c.dtype == K_F32 ? KERNEL_attn_more_f32 : KERNEL_attn_more_bf16, GRID(a.a.q.heads, a.a.q.rows, 1), 256, 0, a);
}

static int32_t pick_keys(const struct op *op) {
    int32_t keys = 1;
    while (keys < op->arg.pick.k) keys *= 2;
    return keys;
}

static int64_t pick_shared(const struct op *op) {
    return 2 * (int64_t)pick_keys(op) * (int64_t)sizeof(uint64_t) +
           ((int64_t)op->in[0].heads * op->in[0].width + op->in[0].heads) * (int64_t)sizeof(float);
}

bool attn_pick_fits(const struct cuda *c, const struct op *op) {
    return op->in[0].width <= 256 && pick_shared(op) <= c->gpu->shared_max;
}

void lower_pick(struct cuda *c, const struct op *op) {
    struct k_pick a = {
        .c = cuda_cache(c, op->arg.pick.kv),
        .q = cuda_view(c, op->in[0]),
        .w = cuda_view(c, op->in[1]),
        .y = cuda_view(c, op->out[0]).p,
        .y_stride = op->out[0].row_stride,
        .pos = cuda_step_array(c, c->at.pos),
        .seq_of = cuda_step_array(c, c->at.seq_of),
        .k = op->arg.pick.k,
        .keys = pick_keys(op),
        .every = op->arg.pick.every > 0 ? op->arg.pick.every : 1,
    };
    EMIT(c, a.c.dtype == K_F32 ? KERNEL_pick_f32 : KERNEL_pick_bf16, GRID(1, a.q.rows, 1), 256, (unsigned int)pick_shared(op), a);
}

/* ---- decode rows split along their positions, prompt rows in tiles ------------------------------------------------- */

/* RUN_POSITIONS, LATENT_RUN: the fewest positions that are worth a block of their own, there and in kernels/latent.cu. FEW_HEADS, MANY_HEADS: query heads that a block of kernels/decode.cu takes.
 * SHORT: positions up to which the kernels with short rings are better. */
enum {
    RUN_POSITIONS = 256,
    LATENT_RUN = 128,
    RUNS_MAX = 64,
    BLOCKS_A_SM = 8,
    SHARED_BLOCKS_A_SM = 3,
    SHARED_BLOCKS_MIN = 4,
    FEW_HEADS = 8,
    MANY_HEADS = 16,
    SHORT = 256
};

/* Kernels for tiles of prompt rows, by the width of a head; group: the most query heads of a cached head in decode steps. */
static const struct flash_kernel {
    int32_t width, group;
    enum kernel_id kernel;
} flash_kernels[] = {{64, MANY_HEADS, KERNEL_attn_flash_64},
                     {80, FEW_HEADS, KERNEL_attn_flash_80},
                     {96, FEW_HEADS, KERNEL_attn_flash_96},
                     {128, MANY_HEADS, KERNEL_attn_flash_128},
                     {256, MANY_HEADS, KERNEL_attn_flash_256}};

static const struct flash_kernel *flash_of(int32_t width) {
    for (size_t i = 0; i < sizeof flash_kernels / sizeof *flash_kernels; i++)
        if (flash_kernels[i].width == width) return &flash_kernels[i];
    return NULL;
}

/* Kernels for GPUs with little shared memory have one stage for wide heads. */
static int flash_bytes(const struct cuda *c, int32_t width) {
    return cuda_has_small_shared(c) && width > 128 ? flash_narrow_bytes(width) : flash_shared_bytes(width);
}

bool attn_fast_fits(const struct cuda *c, const struct op *op) {
    const struct kv_class *k = &c->layout.classes[op->arg.attn.kv.kv_class];
    int32_t d = k->k_width, group = op->in[0].heads / k->heads;
    const struct flash_kernel *flash = flash_of(d);
    bool has_dtype = cuda_kv_dtype(c, k) == K_BF16 || cuda_kv_unpacks(c, k);
    return flash && c->gpu->functions[flash->kernel] && has_dtype && !op->arg.attn.slopes && !op->arg.attn.both_ways &&
           !op->arg.attn.of_pictures && k->v_width == d && op->out[0].width == d && group <= flash->group &&
           flash_bytes(c, d) <= c->gpu->shared_max;
}

/* The most positions that a row sees for itself, rounded up as the step's graph has it. */
static int32_t own_length(const struct cuda *c, const struct k_attn *a) {
    return cuda_length_bucket(a->shared_of ? c->key.max_len - c->key.shared_len : c->key.max_len);
}

/* The number of runs into which a sequence's positions are cut; each run gets a block. blocks: of a row. */
static int32_t count_runs(const struct cuda *c, const struct k_attn *a, int32_t blocks) {
    int32_t len = own_length(c, a);
    blocks *= c->n_decode;
    if (a->window > 0 && a->window < len) len = a->window;
    int32_t runs = (int32_t)ceil_div(len, RUN_POSITIONS), most = (int32_t)ceil_div(BLOCKS_A_SM * c->gpu->n_sm, blocks);
    if (blocks > COUNTERS - COUNTERS_FIRST) return 1;
    return runs > RUNS_MAX && most > RUNS_MAX ? RUNS_MAX : runs < most ? runs : most;
}

/* Kernels by the most query heads of a cached head, the width of a head and the most positions; the first that fits is taken. slots: of a warp's
 * ring; small: the same on GPUs with little shared memory. */
struct decoder {
    int32_t group, width, len, slots, small;
    enum kernel_id kernel;
};
static const struct decoder decoders[] = {
    {FEW_HEADS, 64, SHORT, DECODE_SHORT_SLOTS, DECODE_SHORT_SLOTS, KERNEL_attn_short_few_64},
    {FEW_HEADS, 128, SHORT, DECODE_SHORT_SLOTS, DECODE_SHORT_SLOTS, KERNEL_attn_short_few_128},
    {FEW_HEADS, 64, INT32_MAX, DECODE_SLOTS, DECODE_SLOTS, KERNEL_attn_few_64},
    {FEW_HEADS, 80, INT32_MAX, DECODE_SLOTS, DECODE_SLOTS, KERNEL_attn_few_80},
    {FEW_HEADS, 96, INT32_MAX, DECODE_SLOTS, DECODE_SLOTS, KERNEL_attn_few_96},
    {FEW_HEADS, 128, INT32_MAX, DECODE_SLOTS, DECODE_SLOTS, KERNEL_attn_few_128},
    {FEW_HEADS, 256, INT32_MAX, DECODE_SLOTS, DECODE_WIDE_SLOTS_SMALL, KERNEL_attn_few_256},
    {MANY_HEADS, 64, INT32_MAX, DECODE_SLOTS, DECODE_SLOTS, KERNEL_attn_many_64},
    {MANY_HEADS, 128, INT32_MAX, DECODE_SLOTS, DECODE_SLOTS, KERNEL_attn_many_128},
    {MANY_HEADS, 256, INT32_MAX, DECODE_SLOTS, DECODE_WIDE_SLOTS_SMALL, KERNEL_attn_many_256},
};

/* Those that make their heads of the projection themselves. */
static const struct decoder new_decoders[] = {
    {FEW_HEADS, 64, SHORT, DECODE_SHORT_SLOTS, DECODE_SHORT_SLOTS, KERNEL_attn_new_short_64},
    {FEW_HEADS, 128, SHORT, DECODE_SHORT_SLOTS, DECODE_SHORT_SLOTS, KERNEL_attn_new_short_128},
    {FEW_HEADS, 64, INT32_MAX, DECODE_SLOTS, DECODE_SLOTS, KERNEL_attn_new_few_64},
    {FEW_HEADS, 128, INT32_MAX, DECODE_SLOTS, DECODE_SLOTS, KERNEL_attn_new_few_128},
};

static const struct decoder *decoder_of(const struct cuda *c, const struct decoder *d, const struct k_attn *a) {
    while (d->group < a->group || d->width != a->c.k_width || d->len < own_length(c, a)) d++;
    return d;
}

static unsigned int decoder_bytes(const struct cuda *c, const struct decoder *d) {
    int32_t tiles = 1 + DECODE_WARPS * (cuda_has_small_shared(c) ? d->small : d->slots);
    return (unsigned int)(tiles * DECODE_TILE * flash_row_room(d->width)) * 2;
}

/* The runs of a row's positions, and memory for their parts. */
static void split_decode(struct cuda *c, struct k_attn *a, size_t *used) {
    a->splits = count_runs(c, a, a->c.heads);
    a->counters = c->counters + COUNTERS_FIRST * sizeof(uint32_t);
    size_t parts = (size_t)(a->splits + a->shared_splits);
    if (parts > 1)
        a->partial =
            cuda_op_scratch(c, used, (size_t)c->n_decode * (size_t)a->q.heads * parts * (size_t)(a->c.k_width + 2) * sizeof(float));
}

/* Where rows have blocks in common: those by kernels/prefix.cu, as many blocks of it as fill the GPU some times over. */
static const struct {
    int32_t width;
    enum kernel_id kernel;
} prefixes[] = {{64, KERNEL_attn_prefix_64}, {128, KERNEL_attn_prefix_128}};

static int prefix_of(const struct cuda *c, const struct k_attn *a) {
    if (!c->key.shared_len || a->window || a->chunk) return -1;
    for (int i = 0; i < (int)(sizeof prefixes / sizeof *prefixes); i++)
        if (prefixes[i].width == a->c.k_width && c->gpu->functions[prefixes[i].kernel]) return i;
    return -1;
}

static int32_t count_shared_runs(const struct cuda *c, const struct k_attn *a, int32_t tiles) {
    int32_t runs = cuda_length_bucket(c->key.shared_len) / K_BLOCK / SHARED_BLOCKS_MIN;
    int32_t most = SHARED_BLOCKS_A_SM * c->gpu->n_sm / (tiles * a->c.heads); /* all of them on the GPU at once */
    return runs < most ? runs : most > 1 ? most : 1;
}

static void emit_decode(struct cuda *c, struct k_attn *a) {
    int d = a->c.k_width, prefix = prefix_of(c, a);
    int32_t n_tiles = (int32_t)ceil_div((int64_t)c->n_decode * a->group, FLASH_ROWS);
    size_t used = 0;
    if (prefix >= 0) {
        a->sharing = cuda_step_array(c, c->at.sharing);
        a->shared_of = cuda_step_array(c, c->at.shared_of);
        a->shared_splits = count_shared_runs(c, a, n_tiles);
    }
    const struct decoder *by = decoder_of(c, decoders, a);
    split_decode(c, a, &used);
    if (prefix >= 0)
        EMIT(c, prefixes[prefix].kernel, GRID(a->shared_splits, a->c.heads, n_tiles), 128, (unsigned int)flash_shared_bytes(d), *a);
    cuda_emit(c, by->kernel, GRID(a->splits, a->c.heads, c->n_decode), DECODE_WARPS * 32, decoder_bytes(c, by), a, sizeof *a);
}

/* Each warp of a block makes one head: two in turn take longer than the launch that is saved. */
bool cuda_attn_takes_parts(const struct cuda *c, const struct op *op) {
    const struct kv_class *k = &c->layout.classes[op->arg.attn.kv.kv_class];
    return !c->n_tiles && c->n_decode == c->key.n_rows && !c->key.shared_len && op->n_in == 1 && attn_fast_fits(c, op) &&
           cuda_kv_dtype(c, k) == K_BF16 && (k->k_width == 64 || k->k_width == 128) && op->in[0].heads / k->heads + 2 <= DECODE_WARPS &&
           c->gpu->functions[KERNEL_attn_new_few_64];
}

void cuda_lower_parts_attn(struct cuda *c, const struct op *op, const struct k_qkv *heads, size_t *used) {
    struct k_attn_new a = {.a = attn_args_of(c, op), .n = *heads};
    const struct decoder *by = decoder_of(c, new_decoders, &a.a);
    split_decode(c, &a.a, used);
    EMIT(c, by->kernel, GRID(a.a.splits, a.a.c.heads, c->n_decode), DECODE_WARPS * 32, decoder_bytes(c, by), a);
}

/* The same over a cache of 8 bits. */
static void emit_decode8(struct cuda *c, struct k_attn *a) {
    int d = a->c.k_width;
    int32_t blocks = a->c.heads * (int32_t)ceil_div(a->group, ATTN8_HEADS);
    size_t used = 0;
    a->splits = count_runs(c, a, blocks);
    a->counters = c->counters + COUNTERS_FIRST * sizeof(uint32_t);
    if (a->splits > 1)
        a->partial =
            cuda_op_scratch(c, &used, (size_t)c->n_decode * (size_t)a->q.heads * (size_t)a->splits * (size_t)attn8_part(d) * sizeof(float));
    cuda_emit(c,
              d == 64    ? KERNEL_attn8_64
              : d == 128 ? KERNEL_attn8_128
                         : KERNEL_attn8_256,
              GRID(a->splits, blocks, c->n_decode), ATTN8_WARPS * 32, 0, a, sizeof *a);
}

/* The blocks of a cache of 8 bits that prompt rows see, as bf16; a then reads those. */
static void emit_unpack(struct cuda *c, struct k_attn *a, const struct cuda_kv_class *kv) {
    struct k_kv_unpack u = {.c = a->c,
                            .k = kv->unpacked_k,
                            .v = kv->unpacked_v,
                            .seqs = a->seqs,
                            .window = a->window,
                            .chunk = a->chunk,
                            .first_seq = c->n_decode};
    int d = a->c.k_width;
    EMIT(c,
         d == 64    ? KERNEL_kv8_unpack_64
         : d == 128 ? KERNEL_kv8_unpack_128
                    : KERNEL_kv8_unpack_256,
         GRID(ceil_div(c->key.max_len, K_BLOCK), a->c.heads, c->key.n_seqs - c->n_decode), 128, 0, u);
    a->c.k = kv->unpacked_k, a->c.v = kv->unpacked_v, a->c.dtype = K_BF16;
}

static bool is_even(struct k_view v) {
    return v.row_stride % 8 == 0 && v.head_stride % 8 == 0 && v.p % 16 == 0;
}

/* Prompt tiles on sm_90a; a block takes two or four query heads of one cached head. False: the kernel does not take this shape. */
static bool emit_wflash(struct cuda *c, const struct k_attn *a, const struct kv_class *kv) {
    int64_t d = a->c.k_width, rows = (int64_t)kv->n_blocks * kv->heads * K_BLOCK, width = d == 64 && a->group % 4 == 0 ? 4 : 2;
    int shared_bytes = wflash_shared_bytes((int)d, (int)width);
    if (!c->gpu->functions[KERNEL_attn_wflash_64_2] || !c->d->cuTensorMapEncodeTiled || (d != 64 && d != 128) || a->group % 2 != 0 ||
        a->softcap > 0 || a->until || !(a->scale > 0) || rows > INT32_MAX || !is_even(a->q) || !is_even(a->y) ||
        shared_bytes > c->gpu->shared_max)
        return false;
    struct k_flash f = {.a = *a};
    cuda_encode_map(c, &f.k_map, a->c.k, rows, d, K_BLOCK, d);
    cuda_encode_map(c, &f.v_map, a->c.v, rows, d, K_BLOCK, d);
    EMIT(c,
         d == 128     ? KERNEL_attn_wflash_128_2
         : width == 4 ? KERNEL_attn_wflash_64_4
                      : KERNEL_attn_wflash_64_2,
         GRID(a->q.heads / width, c->n_tiles, 1), (unsigned int)(128 * (width + 1)), (unsigned int)shared_bytes, f);
    return true;
}

void lower_attn_fast(struct cuda *c, const struct op *op) {
    struct k_attn a = attn_args_of(c, op);
    int32_t d = a.c.k_width;
    bool is_8 = a.c.dtype == K_I8;
    if (c->n_decode && is_8) emit_decode8(c, &a);
    else if (c->n_decode) emit_decode(c, &a);
    if (c->n_tiles && is_8) emit_unpack(c, &a, &c->kv[op->arg.attn.kv.kv_class]);
    if (c->n_tiles && !emit_wflash(c, &a, &c->kv[op->arg.attn.kv.kv_class].shape))
        EMIT(c, flash_of(d)->kernel, GRID(a.q.heads, c->n_tiles, 1), d == 256 ? 256 : 128, (unsigned int)flash_bytes(c, d), a);
}

/* ---- latent attention: rows of prompts and of decode steps by one kernel -------------------------------------------- */

bool attn_latent_fits(const struct cuda *c, const struct op *op) {
    const struct attn_args *t = &op->arg.attn;
    const struct kv_class *k = &c->layout.classes[t->kv.kv_class];
    bool is_plain = !t->of_pictures && !t->slopes && !t->distances && !t->sinks && !t->both_ways && !(t->softcap > 0);
    return c->gpu->functions[KERNEL_attn_latent] && cuda_kv_dtype(c, k) == K_BF16 && k->heads == 1 && k->k_width == LATENT_WIDTH &&
           k->v_width == 0 && op->out[0].width == LATENT_VALUES && op->n_in == 1 && is_plain && latent_shared_bytes() <= c->gpu->shared_max;
}

/* Few rows are cut into runs of positions, so that each multiprocessor has a block. */
void lower_attn_latent(struct cuda *c, const struct op *op) {
    struct k_attn a = attn_args_of(c, op);
    int32_t groups = (int32_t)ceil_div(a.q.heads, LATENT_HEADS), len = cuda_length_bucket(c->key.max_len);
    int64_t blocks = (int64_t)groups * a.q.rows, most = ceil_div(2 * c->gpu->n_sm, blocks), runs = ceil_div(len, LATENT_RUN);
    size_t used = 0;
    a.splits = (int32_t)(runs < most ? runs : most);
    if (a.splits > RUNS_MAX) a.splits = RUNS_MAX;
    if (blocks > COUNTERS - COUNTERS_FIRST) a.splits = 1;
    a.counters = c->counters + COUNTERS_FIRST * sizeof(uint32_t);
    if (a.splits > 1)
        a.partial =
            cuda_op_scratch(c, &used, (size_t)a.q.rows * (size_t)a.q.heads * (size_t)a.splits * (LATENT_VALUES + 2) * sizeof(float));
    EMIT(c, KERNEL_attn_latent, GRID(a.splits, groups, a.q.rows), LATENT_WARPS * 32, (unsigned int)latent_shared_bytes(), a);
}

struct k_route_rule cuda_route_rule(const struct route_args *r) {
    return (struct k_route_rule){
        .bias = cuda_vec(r->bias),
        .expert_scale = cuda_vec(r->expert_scale),
        .score = (int32_t)r->score,
        .k = r->k,
        .normalize = r->normalize,
        .n_groups = r->n_groups,
        .top_groups = r->top_groups,
        .group_top2 = r->group_top2,
        .norm_eps = r->norm_eps,
        .scale = r->scale,
        .jitter = r->jitter,
    };
}

void lower_route(struct cuda *c, const struct op *op) {
    struct k_route a = {
        .x = cuda_view(c, op->in[0]),
        .ids = cuda_view(c, op->out[0]).p,
        .weights = cuda_view(c, op->out[1]).p,
        .ids_stride = op->out[0].row_stride,
        .weights_stride = op->out[1].row_stride,
        .rule = cuda_route_rule(&op->arg.route),
    };
    EMIT(c, KERNEL_route, GRID(a.x.rows, 1, 1), 32, (unsigned int)a.x.width * 3 * sizeof(float), a);
}

void lower_passing(struct cuda *c, const struct op *op) {
    struct k_passing a = {
        .ids = cuda_view(c, op->in[0]).p,
        .weights = cuda_view(c, op->in[1]).p,
        .out_ids = cuda_view(c, op->out[0]).p,
        .out_weights = cuda_view(c, op->out[1]).p,
        .ids_stride = op->in[0].row_stride,
        .weights_stride = op->in[1].row_stride,
        .rows = op->in[0].rows,
        .k = op->in[0].width,
        .n_experts = op->arg.passing.n_experts,
    };
    EMIT(c, KERNEL_passing, GRID(ceil_div(a.rows, 128), 1, 1), 128, 0, a);
}

/* ---- recurrent ---------------------------------------------------------------------------------------------------- */

static struct k_state state_args(const struct cuda *c, int32_t state) {
    return (struct k_state){
        .p = c->states + (uint64_t)c->state_offsets[state] * sizeof(float),
        .slot_stride = c->state_total,
        .seqs = cuda_step_array(c, c->at.seqs),
        .seq_of = cuda_step_array(c, c->at.seq_of),
    };
}

void lower_conv(struct cuda *c, const struct op *op) {
    const struct conv_args *v = &op->arg.conv;
    struct k_conv a = {
        .s = state_args(c, v->state),
        .x = cuda_view(c, op->in[0]),
        .y = cuda_view(c, op->out[0]),
        .weight = cuda_vec(v->weight),
        .bias = cuda_vec(v->bias),
        .taps = v->taps,
        .act = (int32_t)v->act,
    };
    EMIT(c, KERNEL_conv, GRID(ceil_div(a.x.width, 256), a.x.rows, 1), 256, 0, a);
    EMIT(c, KERNEL_conv_keep, GRID(ceil_div(a.x.width, 256), c->key.n_seqs, 1), 256, 0, a);
}

void lower_delta(struct cuda *c, const struct op *op) {
    const struct delta_args *t = &op->arg.delta;
    struct k_delta a = {
        .s = state_args(c, t->state),
        .q = cuda_view(c, op->in[0]),
        .k = cuda_view(c, op->in[1]),
        .v = cuda_view(c, op->in[2]),
        .a = cuda_view(c, op->in[3]),
        .b = cuda_view(c, op->in[4]),
        .y = cuda_view(c, op->out[0]),
        .a_log = cuda_vec(t->a_log),
        .dt_bias = cuda_vec(t->dt_bias),
        .k_heads = t->k_heads,
        .v_heads = t->v_heads,
        .k_width = t->k_width,
        .v_width = t->v_width,
        .scale = t->scale,
        .l2_eps = t->l2_eps,
        .l2_norm = t->l2_norm,
        .by_channel = t->by_channel,
        .bound = t->bound,
        .beta_scale = t->beta_scale,
    };
    EMIT(c, KERNEL_delta, GRID(ceil_div(t->v_width, 32), t->v_heads, c->key.n_seqs), 128,
         (unsigned int)(t->k_width * 35 + 160) * sizeof(float), a);
}

void lower_ssd(struct cuda *c, const struct op *op) {
    const struct ssd_args *t = &op->arg.ssd;
    struct k_ssd a = {
        .s = state_args(c, t->state),
        .x = cuda_view(c, op->in[0]),
        .b = cuda_view(c, op->in[1]),
        .c = cuda_view(c, op->in[2]),
        .dt = cuda_view(c, op->in[3]),
        .y = cuda_view(c, op->out[0]),
        .a_log = cuda_vec(t->a_log),
        .d = cuda_vec(t->d),
        .dt_bias = cuda_vec(t->dt_bias),
        .heads = t->heads,
        .head_width = t->head_width,
        .groups = t->groups,
        .state_width = t->state_width,
        .dt_min = t->dt_min,
        .dt_max = t->dt_max,
    };
    EMIT(c, KERNEL_ssd, GRID(ceil_div(t->head_width, 4), t->heads, c->key.n_seqs), 128, 0, a);
}

void lower_scan(struct cuda *c, const struct op *op) {
    const struct scan_args *t = &op->arg.scan;
    struct k_scan a = {
        .s = state_args(c, t->state),
        .x = cuda_view(c, op->in[0]),
        .dt = cuda_view(c, op->in[1]),
        .b = cuda_view(c, op->in[2]),
        .c = cuda_view(c, op->in[3]),
        .y = cuda_view(c, op->out[0]),
        .a_log = cuda_vec(t->a_log),
        .d = cuda_vec(t->d),
        .state_width = t->state_width,
    };
    EMIT(c, KERNEL_scan, GRID(ceil_div(a.x.width, 8), c->key.n_seqs, 1), 256, 0, a);
}

void lower_lru(struct cuda *c, const struct op *op) {
    struct k_lru a = {
        .s = state_args(c, op->arg.lru.state),
        .x = cuda_view(c, op->in[0]),
        .i = cuda_view(c, op->in[1]),
        .r = cuda_view(c, op->in[2]),
        .y = cuda_view(c, op->out[0]),
        .rate = cuda_vec(op->arg.lru.rate),
    };
    EMIT(c, KERNEL_lru, GRID(ceil_div(a.x.width, 128), c->key.n_seqs, 1), 128, 0, a);
}

void lower_wkv(struct cuda *c, const struct op *op) {
    struct k_wkv a = {
        .s = state_args(c, op->arg.wkv.state),
        .k = cuda_view(c, op->in[0]),
        .v = cuda_view(c, op->in[1]),
        .y = cuda_view(c, op->out[0]),
        .rate = cuda_vec(op->arg.wkv.rate),
        .first = cuda_vec(op->arg.wkv.first),
    };
    EMIT(c, KERNEL_wkv, GRID(ceil_div(a.k.width, 128), c->key.n_seqs, 1), 128, 0, a);
}

void lower_compress(struct cuda *c, const struct op *op) {
    const struct compress_args *t = &op->arg.compress;
    struct k_compress a = {
        .s = state_args(c, t->state),
        .x = cuda_view(c, op->in[0]),
        .y = cuda_view(c, op->out[0]),
        .bias = cuda_vec(t->bias),
        .pos = cuda_step_array(c, c->at.pos),
        .every = t->every,
        .width = t->width,
        .overlaps = t->overlaps,
    };
    struct k_conv keep = {.s = a.s, .x = a.x, .taps = t->every * (t->overlaps ? 2 : 1)};
    EMIT(c, KERNEL_compress, GRID(ceil_div(t->width, 128), a.x.rows, 1), 128, 0, a);
    EMIT(c, KERNEL_conv_keep, GRID(ceil_div(a.x.width, 256), c->key.n_seqs, 1), 256, 0, keep);
}

void lower_exchange(struct cuda *c, const struct op *op) {
    struct k_exchange a = {
        .s = state_args(c, op->arg.exchange.state),
        .r = cuda_view(c, op->in[0]),
        .w = cuda_view(c, op->in[1]),
        .k = cuda_view(c, op->in[2]),
        .v = cuda_view(c, op->in[3]),
        .at = cuda_view(c, op->in[4]),
        .share = cuda_view(c, op->in[5]),
        .y = cuda_view(c, op->out[0]),
        .width = op->in[0].width,
        .rate = op->arg.exchange.rate,
    };
    EMIT(c, KERNEL_exchange, GRID(ceil_div(a.width, 32), op->in[0].heads, c->key.n_seqs), 128,
         (unsigned int)(a.width * 37 + 160) * sizeof(float), a);
}

void lower_mlstm(struct cuda *c, const struct op *op) {
    struct k_mlstm a = {
        .s = state_args(c, op->arg.mlstm.state),
        .q = cuda_view(c, op->in[0]),
        .k = cuda_view(c, op->in[1]),
        .v = cuda_view(c, op->in[2]),
        .i = cuda_view(c, op->in[3]),
        .f = cuda_view(c, op->in[4]),
        .y = cuda_view(c, op->out[0]),
        .heads = op->in[0].heads,
        .k_width = op->in[0].width,
        .v_width = op->in[2].width,
        .scale = op->arg.mlstm.scale,
        .eps = op->arg.mlstm.eps,
    };
    EMIT(c, KERNEL_mlstm, GRID(a.heads, c->key.n_seqs, 1), 256, (unsigned int)(a.k_width * 2 + 160) * sizeof(float), a);
}

void lower_lightning(struct cuda *c, const struct op *op) {
    const struct lightning_args *t = &op->arg.lightning;
    struct k_lightning a = {
        .s = state_args(c, t->state),
        .q = cuda_view(c, op->in[0]),
        .k = cuda_view(c, op->in[1]),
        .v = cuda_view(c, op->in[2]),
        .y = cuda_view(c, op->out[0]),
        .slope = cuda_vec(t->slope),
        .heads = t->heads,
        .width = t->width,
    };
    EMIT(c, KERNEL_lightning, GRID(ceil_div(t->width, 32), t->heads, c->key.n_seqs), 128,
         (unsigned int)(t->width * 34 + 160) * sizeof(float), a);
}
