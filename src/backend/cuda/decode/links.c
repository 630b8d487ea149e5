/* Lists: the instructions of a step of one row, or of up to LIST_ROWS, which one launch of kernels/one.cu, few.cu or several.cu runs. This file chooses the kernel and
 * makes the links.
 *
 * A link is memory through which a result goes from the blocks that make it to the blocks that read it. Its words carry a tag (kernels/sync.cuh), so
 * a reader waits for the words that it needs, and no barrier of all blocks is needed. An instruction whose x is the result of the one right before it
 * needs no barrier: no block can begin it before all blocks have finished that one, and so on back to the start. This also keeps the plan true,
 * which uses the memory of values again. Products that read the same x, one right behind the other, need none either: only their x must not be
 * overwritten, and it lasts until the last of them has ended. Any other instruction waits for all blocks. There is memory for LINKS links, used in turn; an
 * instruction that reads an older result than LINK_REACH waits for all blocks too.
 *
 * A product whose x is a sum (k_step_linear.has_sum) makes that sum a second result, at the end of its link: the product that adds to it next reads it there. */
#include "backend/cuda/decode/decode.h"

enum {
    ROWS_DEPTH = 2, /* places of a ring that several rows need at least: with one kernels/step.cu is quicker */
    LINKS = 8,
    LINK_REACH = LINKS - 2,
    LINK_BYTES_MAX = 128 << 10 /* of a row */,
    WORD_BYTES = 8 /* of an f32 and its tag */
};

/* ---- kernels -------------------------------------------------------------------------------------------------------- */

/* What the weights of a list are: codes of 4 bits, of 4 and 8, of either in groups shorter than a unit, of 4 with experts, of any of these with experts or experts of mxfp4,
 * bf16, f16; of 4 with norms behind products or wide heads; of 4 with experts, beside latent attention. */
enum one_kind { ONE_4, ONE_48, ONE_GROUPS, ONE_EXPERTS, ONE_MIXED, ONE_16, ONE_F16, ONE_POST, ONE_LATENT, N_ONE_KINDS };

/* By kind of weights and width of heads: the kernel, the one for a cache of 8 bits, and those for few rows and for several (N_KERNELS: there is none). */
static const struct one_kernel {
    enum kernel_id id, id_8, id_few, id_several;
    enum one_kind kind;
    int32_t width;
} one_kernels[] = {
    {KERNEL_one_4_64, KERNEL_one8_4_64, KERNEL_few_4_64, KERNEL_several_4_64, ONE_4, 64},
    {KERNEL_one_4_128, KERNEL_one8_4_128, KERNEL_few_4_128, KERNEL_several_4_128, ONE_4, 128},
    {KERNEL_one_48_64, KERNEL_one8_48_64, KERNEL_few_48_64, KERNEL_several_48_64, ONE_48, 64},
    {KERNEL_one_48_128, KERNEL_one8_48_128, KERNEL_few_48_128, KERNEL_several_48_128, ONE_48, 128},
    {KERNEL_one_groups_64, KERNEL_one8_groups_64, N_KERNELS, N_KERNELS, ONE_GROUPS, 64},
    {KERNEL_one_groups_128, KERNEL_one8_groups_128, N_KERNELS, N_KERNELS, ONE_GROUPS, 128},
    {KERNEL_one_experts_64, KERNEL_one8_experts_64, N_KERNELS, N_KERNELS, ONE_EXPERTS, 64},
    {KERNEL_one_experts_128, KERNEL_one8_experts_128, N_KERNELS, N_KERNELS, ONE_EXPERTS, 128},
    {KERNEL_one_mixed_64, KERNEL_one8_mixed_64, N_KERNELS, N_KERNELS, ONE_MIXED, 64},
    {KERNEL_one_16_64, N_KERNELS, N_KERNELS, N_KERNELS, ONE_16, 64},
    {KERNEL_one_16_128, N_KERNELS, N_KERNELS, N_KERNELS, ONE_16, 128},
    {KERNEL_one_f16_64, N_KERNELS, N_KERNELS, N_KERNELS, ONE_F16, 64},
    {KERNEL_one_f16_128, N_KERNELS, N_KERNELS, N_KERNELS, ONE_F16, 128},
    {KERNEL_one_post_64, N_KERNELS, N_KERNELS, N_KERNELS, ONE_POST, 64},
    {KERNEL_one_post_128, N_KERNELS, N_KERNELS, N_KERNELS, ONE_POST, 128},
    {KERNEL_one_post_256, N_KERNELS, N_KERNELS, N_KERNELS, ONE_POST, 256},
    {KERNEL_one_latent, N_KERNELS, N_KERNELS, N_KERNELS, ONE_LATENT, LATENT_WIDTH},
};

/* Elements of a product's x. The product that goes down from all chosen experts reads the inner values of all of them. */
static int64_t x_width(const struct k_step_linear *l) {
    return l->w.in * (l->e.half == K_HALF_DOWN ? l->e.k : 1);
}

static bool has_short_groups(enum one_kind kind) {
    return kind == ONE_GROUPS || kind == ONE_MIXED;
}

/* Shared memory beside the rings. A product of one row: x and what its units mean; of several rows: x that comes next. Attention: queries, the new keys and values; its parts lie among
 * the sums. */
static size_t room_of(const struct k_instr *in, enum one_kind kind, bool is_small) {
    const struct k_step_attn *a = &in->u.attn;
    size_t d = (size_t)a->c.k_width, heads = (size_t)a->group, rows = (size_t)list_room(a->rows);
    if (in->kind == K_STEP_ROUTER) return 0;
    if (cuda_is_latent(in)) return cuda_latent_room(in, is_small);
    if (in->kind == K_STEP_LINEAR) {
        int units = (int)(x_width(&in->u.linear) / 64);
        bool has_sums = has_short_groups(kind) && in->u.linear.w.mode == K_AFFINE;
        if (in->u.linear.rows > 1) return (size_t)(LIST_WARPS * rows_ahead_bytes(in->u.linear.rows));
        return (size_t)list_x_bytes(units) + (has_sums ? (size_t)units * GROUPS_SUMS_BYTES : 0) +
               (in->u.linear.has_sum ? (size_t)units * LIST_SUM_UNIT : 0);
    }
    if (a->c.dtype == K_I8) return (size_t)attn8_item_bytes(a->c.k_width);
    return (heads + 2 * rows) * d * sizeof(float);
}

/* What the instructions of a list need of a kernel: one mode of weights (-1: none yet) and, where they are plain, one type, one width of heads (0: none yet),
 * experts, experts beside those that are chosen, experts of mxfp4 or with biases, codes of 8 bits beside those of 4, groups shorter than a unit, norms behind products, a cache of
 * 8 bits; and how many rows all of them have. */
struct one_shape {
    int32_t mode, dtype, width, rows;
    bool has_experts, has_shared, has_fp4, has_biases, has_8, has_groups, has_sums, cache_8;
};

static enum one_kind kind_of(const struct one_shape *shape) {
    bool is_mixed = shape->has_8 || shape->has_groups || shape->has_fp4 || shape->has_biases;
    if (shape->has_sums) return shape->mode == K_PLAIN || shape->has_experts || is_mixed ? N_ONE_KINDS : ONE_POST;
    if (shape->mode == K_PLAIN) return shape->has_experts ? N_ONE_KINDS : shape->dtype == K_F16 ? ONE_F16 : ONE_16;
    if (shape->width == LATENT_WIDTH) return is_mixed ? N_ONE_KINDS : ONE_LATENT;
    if (shape->has_shared) return N_ONE_KINDS;
    if (shape->has_experts) return is_mixed ? ONE_MIXED : ONE_EXPERTS;
    if (shape->has_groups) return ONE_GROUPS;
    if (shape->has_8) return ONE_48;
    return shape->width > 128 ? ONE_POST : ONE_4;
}

static bool one_fits(const struct cuda *c, const struct k_instr *in, struct one_shape *shape) {
    const struct k_step_linear *l = &in->u.linear;
    const struct k_step_attn *a = &in->u.attn;
    if (in->kind == K_STEP_ROUTER) return shape->has_experts = true;
    if (cuda_is_latent(in)) {
        if (!shape->width) shape->width = LATENT_WIDTH;
        return shape->width == LATENT_WIDTH && shape->rows == 1;
    }
    if (in->kind == K_STEP_ATTN) {
        if (!shape->width) shape->width = a->c.k_width, shape->cache_8 = a->c.dtype == K_I8;
        return a->rows == shape->rows && shape->cache_8 == (a->c.dtype == K_I8) && a->c.k_width == shape->width && a->items <= c->gpu->n_sm;
    }
    if (l->has_sum && l->x_dtype != K_F32) return false;
    if (l->has_sum) shape->has_sums = true;
    if (l->e.half) shape->has_experts = true;
    if (l->shared) shape->has_shared = true;
    if (l->e.half && l->bias) shape->has_biases = true;
    if (l->e.half && l->w.mode == K_MXFP4) return shape->has_fp4 = true;
    if (shape->mode < 0) shape->mode = l->w.mode, shape->dtype = l->w.dtype;
    if (l->w.mode == K_AFFINE && l->w.bits == 8) shape->has_8 = true;
    if (l->w.out / 16 * l->w.tile_bytes > INT32_MAX && l->glu_inner) return false; /* distances in k_stream have 32 bits */
    if (l->w.mode == K_AFFINE && tile_runs(l->w.group) > 1) shape->has_groups = true;
    bool is_same = l->w.mode == K_PLAIN ? l->w.dtype == shape->dtype : l->w.mode == K_AFFINE;
    int64_t units = ceil_div(l->w.in / TILE_UNIT, LIST_WARPS); /* of a warp; several rows: they may have to be made in one piece */
    if (l->rows > 1 && l->has_norm && units > rows_stage_units(cuda_has_small_shared(c))) return false;
    return l->rows == shape->rows && l->w.mode == shape->mode && is_same;
}

static int32_t rows_of(const struct k_instr *in) {
    if (cuda_is_latent(in)) return 1;
    return in->kind == K_STEP_ATTN ? in->u.attn.rows : in->u.linear.rows;
}

static enum kernel_id kernel_for(const struct one_kernel *one, const struct one_shape *shape) {
    if (shape->rows > 1) return shape->cache_8 ? N_KERNELS : shape->rows <= LIST_FEW ? one->id_few : one->id_several;
    return shape->cache_8 ? one->id_8 : one->id;
}

bool cuda_list_fits(const struct cuda *c, const struct k_instr *in, int32_t n, struct launch *out, int32_t *out_depth) {
    struct one_shape shape = {.mode = -1, .rows = rows_of(in)};
    bool is_small = cuda_has_small_shared(c);
    size_t most = 0, sums = shape.rows > 1 ? (size_t)rows_sums_bytes(is_small) : 2 * (size_t)list_sums(is_small) * sizeof(float);
    if (shape.rows > LIST_ROWS) return false;
    for (int32_t i = 0; i < n; i++)
        if (!one_fits(c, &in[i], &shape)) return false;
    enum one_kind kind = kind_of(&shape);
    for (int32_t i = 0; i < n; i++)
        if (room_of(&in[i], kind, is_small) > most) most = room_of(&in[i], kind, is_small);
    if (!shape.width) shape.width = kind == ONE_MIXED ? 64 : 128; /* no attention: any will do */
    for (size_t k = 0; k < sizeof one_kernels / sizeof *one_kernels; k++) {
        const struct one_kernel *one = &one_kernels[k];
        bool is_plain = one->kind == ONE_16 || one->kind == ONE_F16;
        size_t place = has_short_groups(kind) ? (size_t)GROUPS_PLACE : (size_t)list_place_bytes(is_plain, kind == ONE_48, is_small);
        size_t head = (size_t)list_head_bytes(shape.rows) + (kind == ONE_POST ? LIST_POST_HEAD : 0), fixed = head + sums + most,
               each = LIST_WARPS * place;
        enum kernel_id id = kernel_for(one, &shape);
        if (one->kind != kind || one->width != shape.width || id == N_KERNELS || !c->gpu->functions[id]) continue;
        if (fixed + each > (size_t)c->gpu->shared_max) return false;
        size_t depth = ((size_t)c->gpu->shared_max - fixed) / each;
        if (depth > (size_t)list_depth(is_plain)) depth = (size_t)list_depth(is_plain);
        if (shape.rows > 1 && depth < ROWS_DEPTH) return false;
        *out = (struct launch){id, {(unsigned int)c->gpu->n_sm, 1, 1}, LIST_WARPS * 32, (unsigned int)(fixed + depth * each), 0, 0, false};
        *out_depth = (int32_t)depth;
        return true;
    }
    return false;
}

/* ---- links ---------------------------------------------------------------------------------------------------------- */

/* The rows that an instruction writes. */
struct result {
    int64_t stride, width;
    int32_t rows, dtype;
};

static struct result result_of(const struct k_instr *in) {
    const struct k_step_linear *l = &in->u.linear;
    const struct k_step_attn *a = &in->u.attn;
    const struct k_step_latent *t = &in->u.latent;
    if (in->kind == K_STEP_X || in->kind == K_STEP_LATENT) return (struct result){0};
    if (in->kind == K_STEP_QUERIES) return (struct result){(int64_t)t->heads * LATENT_WIDTH, (int64_t)t->heads * LATENT_WIDTH, 1, K_BF16};
    if (in->kind == K_STEP_VALUES) return (struct result){(int64_t)t->heads * t->v_width, (int64_t)t->heads * t->v_width, 1, K_F32};
    if (in->kind == K_STEP_ATTN) return (struct result){a->y_row, (int64_t)a->group * a->c.heads * a->c.k_width, a->rows, a->y_dtype};
    int64_t width = l->e.half == K_HALF_INNER ? l->glu_inner * l->e.k : l->glu_inner ? l->glu_inner : l->w.out;
    return (struct result){l->y_stride, width, l->rows, l->y_dtype};
}

/* The instruction before the i-th that made the value; -1: none of this list did. */
static int32_t maker_of(const struct step_values *values, int32_t i, struct tensor value) {
    while (--i >= 0 && values[i].y.id != value.id) {}
    return value.id ? i : -1;
}

static size_t link_bytes(struct result r) {
    return (size_t)(r.rows * r.width) * (r.dtype == K_F32 ? 8 : 4);
}

static bool can_link(struct result r) {
    return r.rows && r.width % 2 == 0 && link_bytes(r) / (size_t)r.rows <= LINK_BYTES_MAX;
}

/* Whether instruction p makes as many rows of `width` elements of the type, and `value` is the whole of them. */
static bool is_whole(const struct k_instr *in, const struct step_values *values, int32_t p, struct tensor value, int32_t rows,
                     int64_t width, int32_t dtype) {
    struct result r = result_of(&in[p]);
    return can_link(r) && value.offset == values[p].y.offset && r.width == width && r.stride == value.row_stride && r.dtype == dtype &&
           r.rows == rows;
}

/* Whether `value` is a part of the only row, of f32, that instruction p makes. Words come in pairs. */
static bool is_slice(const struct k_instr *in, const struct step_values *values, int32_t p, struct tensor value, int64_t width) {
    struct result r = result_of(&in[p]);
    int64_t at = value.offset - values[p].y.offset;
    return can_link(r) && r.rows == 1 && r.dtype == K_F32 && at >= 0 && at % 2 == 0 && at + width <= r.width;
}

/* Whether the i-th reads the x of the instruction before it, which is linked. */
static bool follows_linked(const struct k_instr *in, const struct step_values *values, int32_t i) {
    return values[i].is_next && i > 0 && in[i - 1].kind == K_STEP_LINEAR && in[i - 1].u.linear.x_link &&
           values[i - 1].x.id == values[i].x.id;
}

/* Links x. The inner product of experts reads the x that its router read, two instructions before, and the router's scores. */
static bool link_x(const struct k_instr *in, const struct step_values *values, int32_t i, struct k_step_linear *a) {
    bool is_inner = a->e.half == K_HALF_INNER;
    int32_t p = maker_of(values, i, values[i].x), first = i;
    while (follows_linked(in, values, first)) first--;
    if (p < 0 || p != first - (is_inner ? 2 : 1)) return false;
    if (is_inner) {
        if (maker_of(values, i, values[i].scores) != i - 1 || !can_link(result_of(&in[i - 1]))) return false;
        a->e.scores_maker = i - 1;
        a->e.scores_link = 1;
    }
    bool is_part = a->rows == 1 && a->x_dtype == K_F32 && is_slice(in, values, p, values[i].x, x_width(a));
    if (!is_part && !is_whole(in, values, p, values[i].x, a->rows, x_width(a), a->x_dtype)) return false;
    a->x_maker = p;
    a->x_link = 1;
    return true;
}

/* The instruction before the i-th whose x is the value, a sum; -1: none of this list. */
static int32_t sum_maker_of(const struct step_values *values, int32_t i, struct tensor value) {
    while (--i >= 0 && values[i].sum.id != value.id) {}
    return value.id ? i : -1;
}

/* Links the residual that x is a sum with. */
static bool link_summand(const struct k_instr *in, const struct step_values *values, int32_t i, struct k_step_linear *a) {
    int32_t p = sum_maker_of(values, i, values[i].residual);
    if (p < 0) return maker_of(values, i, values[i].residual) < 0;
    if (i - p > LINK_REACH || in[p].u.linear.w.in != a->w.in) return false;
    a->residual_maker = p;
    a->residual_link = 1;
    return true;
}

/* Links the residual. True where it will be there in time: linked, or made before the list. */
static bool link_residual(const struct k_instr *in, const struct step_values *values, int32_t i, struct k_step_linear *a) {
    if (a->has_sum) return link_summand(in, values, i, a);
    int32_t p = maker_of(values, i, values[i].residual);
    if (p < 0) return true;
    if (i - p > LINK_REACH || !is_whole(in, values, p, values[i].residual, a->rows, a->glu_inner ? a->glu_inner : a->w.out, K_F32))
        return false;
    a->residual_maker = p;
    a->residual_link = 1;
    return true;
}

/* Elements that the instructions before the i-th put into the link that it shares with them. */
static int64_t joined_before(const struct k_instr *in, int32_t i) {
    int64_t n = 0;
    for (int32_t j = in[i].number; j < i; j++) n += result_of(&in[j]).width;
    return n;
}

/* Where a value lies among what instructions [first, i) make; -1: none of them makes it. */
static int32_t place_among(const struct k_instr *in, const struct step_values *values, int32_t first, int32_t i, struct tensor value) {
    int32_t p = maker_of(values, i, value);
    return p < first ? -1 : (int32_t)(joined_before(in, p) + value.offset - values[p].y.offset);
}

/* Links queries, keys and values. They come from one product, or from two or three that read the same x: those share a link and a number, so that attention finds them
 * as if one had made them. */
static bool link_qkv(struct k_instr *in, const struct step_values *values, int32_t i, struct k_step_attn *a) {
    const struct step_values *v = &values[i];
    int32_t first = i - 1;
    while (first > 0 && a->rows == 1 && follows_linked(in, values, first)) first--;
    if (first < 0 || in[first].kind != K_STEP_LINEAR) return false;
    for (int32_t j = first; j < i; j++) {
        struct result r = result_of(&in[j]);
        bool has_rows = r.stride == a->q_row && r.stride == a->k_row && r.stride == a->v_row;
        if (!can_link(r) || r.dtype != K_F32 || r.rows != a->rows || !(has_rows || a->rows == 1)) return false;
    }
    for (int32_t j = first; j < i; j++) in[j].number = first;
    a->q_at = place_among(in, values, first, i, v->x);
    a->k_at = place_among(in, values, first, i, v->k);
    a->v_at = place_among(in, values, first, i, v->v);
    if (a->q_at < 0 || a->k_at < 0 || a->v_at < 0) {
        for (int32_t j = first; j < i; j++) in[j].number = j;
        return false;
    }
    a->qkv_row = (int32_t)result_of(&in[first]).width;
    a->qkv_maker = first;
    a->qkv_link = 1;
    return true;
}

/* Links one of the three instructions of latent attention. */
static bool link_latent(const struct k_instr *in, const struct step_values *values, int32_t i, struct k_step_latent *a) {
    if (in[i].kind == K_STEP_VALUES) return i > 0 && in[i - 1].kind == K_STEP_LATENT;
    bool is_first = in[i].kind == K_STEP_QUERIES;
    struct tensor t = is_first ? values[i].x : values[i].k;
    int32_t p = maker_of(values, i, t), *maker = is_first ? &a->q_maker : &a->kv_maker, *at = is_first ? &a->q_at : &a->kv_at;
    int64_t width = is_first ? (int64_t)a->heads * (a->nope + LATENT_ROPE) : LATENT_WIDTH;
    if (p < 0 || i - p > LINK_REACH || in[p].kind != K_STEP_LINEAR || !is_slice(in, values, p, t, width)) return false;
    *maker = p;
    *at = (int32_t)(t.offset - values[p].y.offset);
    return is_first || (in[i - 1].kind == K_STEP_QUERIES && can_link(result_of(&in[i - 1])));
}

static struct k_stream stream_of(const struct k_step_linear *l) {
    int32_t tile_bytes = (int32_t)l->w.tile_bytes, half = l->e.half;
    return (struct k_stream){
        .values = l->w.values,
        .norm = l->norm,
        .second = l->glu_inner ? (int32_t)(l->glu_inner / 16) * tile_bytes : tile_bytes,
        .tile_bytes = tile_bytes,
        .pair_bytes = l->glu_inner ? tile_bytes : 2 * tile_bytes,
        .units = (int32_t)(x_width(l) / 64),
        .parts = l->glu_inner ? 2 : 1,
        .tiles_each = l->tiles_each,
        .tiles_more = l->tiles_more,
        .half = half,
        .expert_tiles = half ? (int32_t)(l->w.out / 16) : 0,
        .each = half == K_HALF_INNER  ? (int32_t)(l->glu_inner / 16)
                : half == K_HALF_DOWN ? (int32_t)(l->w.in / 64)
                                      : 0,
    };
}

/* Of a tile along k; 0: the weight is narrower than one, or not in tiles. */
static int32_t unit_bytes(const struct k_weight *w) {
    return w->in < TILE_UNIT ? 0 : (int32_t)(w->tile_bytes / (w->in / TILE_UNIT));
}

/* Bytes at the end of an instruction's link, in which its x goes to who adds to it. */
static size_t sum_bytes(const struct k_instr *in) {
    bool has_sum = in->kind == K_STEP_LINEAR && in->u.linear.has_sum;
    return has_sum ? (size_t)in->u.linear.w.in * WORD_BYTES : 0;
}

size_t cuda_links_find(struct k_instr *in, const struct step_values *values, int32_t n) {
    size_t most = 0;
    int32_t x_of_rows = -1; /* the last instruction that made x of several rows */
    for (int32_t i = 0; i < n; i++) {
        in[i].number = i;
        if (in[i].kind == K_STEP_LINEAR) {
            in[i].stream = stream_of(&in[i].u.linear);
            in[i].unit_bytes = unit_bytes(&in[i].u.linear.w);
        }
        if (in[i].kind == K_STEP_ATTN) {
            in[i].waits = !link_qkv(in, values, i, &in[i].u.attn) && i > 0;
            continue;
        }
        if (cuda_is_latent(&in[i])) {
            in[i].waits = !link_latent(in, values, i, &in[i].u.latent);
            continue;
        }
        bool is_of_rows = in[i].kind == K_STEP_LINEAR && x_of_rows >= 0;
        if (in[i].kind == K_STEP_X) x_of_rows = i;
        if (is_of_rows) in[i].u.linear.x_maker = x_of_rows;
        bool has_x = is_of_rows || link_x(in, values, i, &in[i].u.linear), has_residual = link_residual(in, values, i, &in[i].u.linear);
        in[i].waits = (!has_x || !has_residual) && i > 0;
    }
    for (int32_t i = 0; i + 1 < n; i++) {
        size_t bytes = link_bytes(result_of(&in[i])) + (size_t)joined_before(in, i) * WORD_BYTES;
        if (!can_link(result_of(&in[i]))) bytes = 0;
        bytes += sum_bytes(&in[i]);
        if (bytes > most) most = bytes;
    }
    return most * LINKS;
}

/* The same of an instruction of latent attention, the i-th: queries and new positions are two ops each. */
static int32_t latent_reads(const struct k_instr *in, int32_t i, int32_t p) {
    const struct k_step_latent *a = &in->u.latent;
    if (in->kind == K_STEP_QUERIES) return a->q_maker == p ? 2 : 0;
    return in->kind == K_STEP_LATENT ? (a->kv_maker == p ? 2 : 0) + (i - 1 == p) : 0;
}

/* How many ops read the result of instruction p through a link. */
static int32_t linked_reads(const struct k_instr *in, const struct step_values *values, int32_t n, int32_t p) {
    int32_t reads = 0;
    for (int32_t i = p + 1; i < n && i <= p + LINK_REACH; i++) {
        const struct k_step_linear *l = &in[i].u.linear;
        const struct k_step_attn *a = &in[i].u.attn;
        int32_t y = values[p].y.id;
        if (cuda_is_latent(&in[i])) reads += latent_reads(&in[i], i, p);
        else if (in[i].kind == K_STEP_ATTN)
            reads +=
                a->qkv_link && a->qkv_maker == in[p].number ? (values[i].x.id == y) + (values[i].k.id == y) + (values[i].v.id == y) : 0;
        else if (l->e.half == K_HALF_INNER)
            reads += l->e.scores_link && l->e.scores_maker == p; /* its x counts with the router's: the two are reads of one norm */
        else reads += (l->x_link && l->x_maker == p && !values[i].is_next) + (l->residual_link && !l->has_sum && l->residual_maker == p);
    }
    return reads;
}

/* How many instructions add to the sum that x of instruction p is, through a link. */
static int32_t linked_sums(const struct k_instr *in, int32_t n, int32_t p) {
    int32_t reads = 0;
    for (int32_t i = p + 1; i < n && i <= p + LINK_REACH; i++) {
        const struct k_step_linear *l = &in[i].u.linear;
        reads += in[i].kind == K_STEP_LINEAR && l->has_sum && l->residual_link && l->residual_maker == p;
    }
    return reads;
}

bool cuda_sums_hold(const struct k_instr *in, const struct step_values *values, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (in[i].kind != K_STEP_LINEAR || !in[i].u.linear.has_sum) continue;
        if (in[i].waits || !in[i].u.linear.x_link || linked_sums(in, n, i) != values[i].sum_reads) return false;
    }
    return true;
}

static CUdeviceptr sum_link_of(const struct k_instr *in, int32_t maker, CUdeviceptr links, size_t each) {
    return links + (size_t)(maker % LINKS + 1) * each - sum_bytes(&in[maker]);
}

/* From a link's beginning to where x begins in it, in bytes. Only parts of a row of f32 begin elsewhere. */
static size_t slice_at(const struct k_instr *in, const struct step_values *values, int32_t i) {
    const struct k_step_linear *l = &in[i].u.linear;
    if (l->rows > 1 || l->x_dtype != K_F32 || l->x_units) return 0;
    return (size_t)(values[i].x.offset - values[l->x_maker].y.offset) * WORD_BYTES;
}

void cuda_links_place(struct k_instr *in, const struct step_values *values, int32_t n, CUdeviceptr links, size_t bytes) {
    size_t each = bytes / LINKS;
    for (int32_t i = 0; i < n; i++) {
        struct k_step_linear *l = &in[i].u.linear;
        struct k_step_attn *a = &in[i].u.attn;
        int32_t reads = linked_reads(in, values, n, i);
        if (cuda_is_latent(&in[i])) {
            if (reads) in[i].u.latent.y_link = links + (size_t)(i % LINKS) * each;
            continue;
        }
        uint64_t *y = in[i].kind == K_STEP_ATTN ? &a->y : &l->y, *y_link = in[i].kind == K_STEP_ATTN ? &a->y_link : &l->y_link;
        if (reads) *y_link = links + (size_t)(in[i].number % LINKS) * each + (size_t)joined_before(in, i) * WORD_BYTES;
        if (reads && reads == values[i].reads) *y = 0; /* nobody reads it elsewhere */
        if (sum_bytes(&in[i]) && linked_sums(in, n, i)) l->sum_link = sum_link_of(in, i, links, each);
    }
    for (int32_t i = 0; i < n; i++) {
        struct k_step_linear *l = &in[i].u.linear;
        struct k_step_attn *a = &in[i].u.attn;
        if (in[i].kind == K_STEP_ATTN) {
            if (a->qkv_link) a->qkv_link = links + (size_t)(a->qkv_maker % LINKS) * each;
            continue;
        }
        if (cuda_is_latent(&in[i])) {
            struct k_step_latent *t = &in[i].u.latent;
            if (in[i].kind == K_STEP_QUERIES) t->q_link = links + (size_t)(t->q_maker % LINKS) * each;
            if (in[i].kind == K_STEP_LATENT) t->kv_link = links + (size_t)(t->kv_maker % LINKS) * each;
            if (in[i].kind == K_STEP_LATENT) t->x_link = links + (size_t)((i - 1) % LINKS) * each;
            continue;
        }
        if (l->e.scores_link) l->e.scores_link = links + (size_t)(l->e.scores_maker % LINKS) * each;
        if (l->x_link) l->x_link = links + (size_t)(l->x_maker % LINKS) * each + slice_at(in, values, i);
        if (l->residual_link && l->has_sum) l->residual_link = sum_link_of(in, l->residual_maker, links, each);
        else if (l->residual_link) l->residual_link = links + (size_t)(l->residual_maker % LINKS) * each;
    }
}
