/* Lists of instructions of one row, for kernels/one.cu: which kernel runs them, and the links between them, results that go from block to
 * block as tagged words (kernels/sync.cuh), without a barrier.
 *
 * An instruction goes without one when its x is what the instruction right before it makes: then nobody begins it before all blocks are done
 * with that, and so on back to the start, so that memory may be used again as the plan says. Otherwise it waits for all blocks. Places of
 * links are used again after LINKS instructions; who reads one later than that waits too. */
#include "backend/cuda/decode/decode.h"

enum { LINKS = 8, LINK_REACH = LINKS - 2, LINK_BYTES_MAX = 128 << 10 };

/* ---- kernels -------------------------------------------------------------------------------------------------------- */

enum { ONE_HEAD = 8 * K_INSTR_BYTES + 2560, ONE_WARPS = 16, ONE_AT_ONCE = 16, ONE_AT_ONCE_SMALL = 8 }; /* of kernels/one.cu */

/* By mode of weights and width of heads; the most places of a warp's ring of weights, and the bytes of one, also where shared memory is small. */
static const struct one_kernel {
    enum kernel_id id;
    int32_t mode, width, depth;
    size_t place, small_place;
    bool has_experts, has_8;
} one_kernels[] = {
    {KERNEL_one_4_64, K_AFFINE, 64, 4, 4 * 576, 2 * 576, false, false},
    {KERNEL_one_4_128, K_AFFINE, 128, 4, 4 * 576, 2 * 576, false, false},
    {KERNEL_one_48_64, K_AFFINE, 64, 4, 4 * 576, 2 * 1088, false, true},
    {KERNEL_one_48_128, K_AFFINE, 128, 4, 4 * 576, 2 * 1088, false, true},
    {KERNEL_one_experts_64, K_AFFINE, 64, 4, 4 * 576, 2 * 576, true, false},
    {KERNEL_one_experts_128, K_AFFINE, 128, 4, 4 * 576, 2 * 576, true, false},
    {KERNEL_one_16_64, K_PLAIN, 64, 3, 2048, 2048, false, false},
    {KERNEL_one_16_128, K_PLAIN, 128, 3, 2048, 2048, false, false},
};

/* Elements of a product's x: those of all choices where it goes along them. */
static int64_t x_width(const struct k_step_linear *l) {
    return l->w.in * (l->e.half == K_HALF_DOWN ? l->e.k : 1);
}

/* Sums of x and x; queries, the new key and value, and what the warps make of them. */
static size_t room_of(const struct k_instr *in) {
    const struct k_step_attn *a = &in->u.attn;
    size_t units = (size_t)x_width(&in->u.linear) / 64, d = (size_t)a->c.k_width, heads = (size_t)a->per_item;
    if (in->kind == K_STEP_ROUTER) return 0;
    if (in->kind == K_STEP_LINEAR) return (units + 1) / 2 * 16 + units * 128;
    size_t each = heads == 1 ? ONE_WARPS : ONE_WARPS / ((heads + 1) / 2);
    return ((heads + 2) * d + heads * each * (d + 2)) * sizeof(float);
}

/* What one kernel can do: weights of one kind, heads of one width (0: none yet), experts, codes of 8 bits beside those of 4. */
struct one_shape {
    int32_t mode, width;
    bool has_experts, has_8;
};

static bool one_fits(const struct cuda *c, const struct k_instr *in, struct one_shape *shape) {
    const struct k_step_linear *l = &in->u.linear;
    const struct k_step_attn *a = &in->u.attn;
    if (in->kind == K_STEP_ROUTER) return shape->has_experts = true;
    if (in->kind == K_STEP_ATTN) {
        if (!shape->width) shape->width = a->c.k_width;
        return a->rows == 1 && a->c.k_width == shape->width && a->c.heads * a->sets * a->splits <= c->gpu->n_sm;
    }
    if (shape->mode < 0) shape->mode = l->w.mode;
    if (l->w.mode == K_AFFINE && l->w.bits == 8) shape->has_8 = true;
    if (l->w.out / 16 * l->w.tile_bytes > INT32_MAX && l->glu_inner) return false; /* distances of a stream */
    return l->rows == 1 && l->w.mode == shape->mode && (l->w.mode == K_PLAIN || l->w.group != 32);
}

bool cuda_list_fits(const struct cuda *c, const struct k_instr *in, int32_t n, struct launch *out, int32_t *out_depth) {
    struct one_shape shape = {.mode = -1};
    bool is_small = cuda_has_small_shared(c);
    size_t most = 0, sums = (size_t)(is_small ? ONE_AT_ONCE_SMALL : ONE_AT_ONCE) * 2 * 16 * (ONE_WARPS + 1) * sizeof(float);
    for (int32_t i = 0; i < n; i++) {
        if (!one_fits(c, &in[i], &shape)) return false;
        if (room_of(&in[i]) > most) most = room_of(&in[i]);
    }
    if (!shape.width) shape.width = 128;
    for (size_t k = 0; k < sizeof one_kernels / sizeof *one_kernels; k++) {
        const struct one_kernel *one = &one_kernels[k];
        size_t fixed = ONE_HEAD + sums + most, each = ONE_WARPS * (is_small ? one->small_place : one->place);
        bool is_it =
            one->mode == shape.mode && one->width == shape.width && one->has_experts == shape.has_experts && one->has_8 == shape.has_8;
        if (!is_it || !c->gpu->functions[one->id]) continue;
        if (fixed + each > (size_t)c->gpu->shared_max) return false;
        size_t depth = ((size_t)c->gpu->shared_max - fixed) / each;
        if (depth > (size_t)one->depth) depth = (size_t)one->depth;
        *out = (struct launch){one->id, {(unsigned int)c->gpu->n_sm, 1, 1}, ONE_WARPS * 32, (unsigned int)(fixed + depth * each), 0, 0};
        *out_depth = (int32_t)depth;
        return true;
    }
    return false;
}

/* ---- links ---------------------------------------------------------------------------------------------------------- */

/* What an instruction writes: rows of `width` elements. */
struct made {
    CUdeviceptr y;
    int64_t stride, width;
    int32_t rows, dtype;
};

static struct made made_by(const struct k_instr *in) {
    const struct k_step_linear *l = &in->u.linear;
    const struct k_step_attn *a = &in->u.attn;
    if (in->kind == K_STEP_ATTN) return (struct made){a->y, a->y_row, (int64_t)a->group * a->c.heads * a->c.k_width, a->rows, a->y_dtype};
    int64_t width = l->e.half == K_HALF_INNER ? l->glu_inner * l->e.k : l->glu_inner ? l->glu_inner : l->w.out;
    return (struct made){l->y, l->y_stride, width, l->rows, l->y_dtype};
}

/* The last instruction before the i-th that wrote there, -1: none. */
static int32_t maker_of(const struct k_instr *in, int32_t i, CUdeviceptr at) {
    while (--i >= 0) {
        struct made m = made_by(&in[i]);
        int64_t bytes = ((m.rows - 1) * m.stride + m.width) * (m.dtype == K_F32 ? 4 : 2);
        if (at >= m.y && at < m.y + (CUdeviceptr)bytes) return i;
    }
    return -1;
}

static size_t link_bytes(struct made m) {
    return (size_t)(m.rows * m.width) * (m.dtype == K_F32 ? 8 : 4);
}

static bool can_link(struct made m) {
    return m.width % 2 == 0 && link_bytes(m) <= LINK_BYTES_MAX;
}

/* Experts read what the instruction before the router made, and the router's scores. */
static bool link_x(const struct k_instr *in, int32_t i, struct k_step_linear *a) {
    int32_t p = maker_of(in, i, a->x), back = a->e.half == K_HALF_INNER ? 2 : 1;
    if (p < 0 || p != i - back) return false;
    struct made m = made_by(&in[p]);
    if (a->e.half == K_HALF_INNER) {
        if (in[i - 1].kind != K_STEP_ROUTER || !can_link(made_by(&in[i - 1]))) return false;
        a->e.scores_maker = i - 1;
        a->e.scores_link = 1;
    }
    if (!can_link(m) || m.y != a->x || m.width != x_width(a) || m.stride != a->x_stride || m.dtype != a->x_dtype || m.rows != 1)
        return false;
    a->x_maker = p;
    a->x_link = 1;
    return true;
}

/* Whether the residual is there when it is asked for: linked, or older than the list. */
static bool link_residual(const struct k_instr *in, int32_t i, struct k_step_linear *a) {
    int32_t p = a->residual ? maker_of(in, i, a->residual) : -1;
    if (p < 0) return true;
    struct made m = made_by(&in[p]);
    int64_t width = a->glu_inner ? a->glu_inner : a->w.out;
    if (i - p > LINK_REACH || !can_link(m) || m.y != a->residual || m.width != width || m.stride != a->residual_stride ||
        m.dtype != K_F32 || m.rows != 1)
        return false;
    a->residual_maker = p;
    a->residual_link = 1;
    return true;
}

static bool link_qkv(const struct k_instr *in, int32_t i, struct k_step_attn *a) {
    int32_t p = maker_of(in, i, a->q);
    if (p < 0 || p != i - 1 || maker_of(in, i, a->k) != p || maker_of(in, i, a->v) != p) return false;
    struct made m = made_by(&in[p]);
    if (!can_link(m) || m.dtype != K_F32 || m.stride != a->q_row || m.stride != a->k_row || m.stride != a->v_row || m.rows != 1)
        return false;
    a->q_at = (int32_t)((a->q - m.y) / 4), a->k_at = (int32_t)((a->k - m.y) / 4), a->v_at = (int32_t)((a->v - m.y) / 4);
    a->qkv_row = (int32_t)m.width;
    a->qkv_maker = p;
    a->qkv_link = 1;
    return true;
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

size_t cuda_links_find(struct k_instr *in, int32_t n) {
    size_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        in[i].number = i;
        if (in[i].kind == K_STEP_LINEAR) in[i].stream = stream_of(&in[i].u.linear);
        if (in[i].kind == K_STEP_ATTN) {
            in[i].waits = !link_qkv(in, i, &in[i].u.attn) && i > 0;
            continue;
        }
        bool has_x = link_x(in, i, &in[i].u.linear), has_residual = link_residual(in, i, &in[i].u.linear);
        in[i].waits = (!has_x || !has_residual) && i > 0;
    }
    for (int32_t i = 0; i + 1 < n; i++) {
        size_t bytes = link_bytes(made_by(&in[i]));
        if (can_link(made_by(&in[i])) && bytes > most) most = bytes;
    }
    return most * LINKS;
}

/* Ops that read what instruction p makes through a link. */
static int32_t linked_reads(const struct k_instr *in, int32_t n, int32_t p) {
    int32_t reads = 0;
    for (int32_t i = p + 1; i < n && i <= p + LINK_REACH; i++) {
        const struct k_step_linear *l = &in[i].u.linear;
        const struct k_step_attn *a = &in[i].u.attn;
        if (in[i].kind == K_STEP_ATTN) reads += a->qkv_link && a->qkv_maker == p ? 3 : 0;
        else if (l->e.half == K_HALF_INNER) reads += l->e.scores_link && l->e.scores_maker == p; /* x: with the router, one op */
        else reads += (l->x_link && l->x_maker == p) + (l->residual_link && l->residual_maker == p);
    }
    return reads;
}

void cuda_links_place(struct k_instr *in, int32_t n, CUdeviceptr links, size_t bytes) {
    size_t each = bytes / LINKS;
    for (int32_t i = 0; i < n; i++) {
        struct k_step_linear *l = &in[i].u.linear;
        struct k_step_attn *a = &in[i].u.attn;
        int32_t reads = linked_reads(in, n, i);
        uint64_t *y = in[i].kind == K_STEP_ATTN ? &a->y : &l->y, *y_link = in[i].kind == K_STEP_ATTN ? &a->y_link : &l->y_link;
        if (reads) *y_link = links + (size_t)(i % LINKS) * each;
        if (reads && reads == in[i].reads) *y = 0;
    }
    for (int32_t i = 0; i < n; i++) {
        struct k_step_linear *l = &in[i].u.linear;
        struct k_step_attn *a = &in[i].u.attn;
        if (in[i].kind == K_STEP_ATTN) {
            if (a->qkv_link) a->qkv_link = links + (size_t)(a->qkv_maker % LINKS) * each;
            continue;
        }
        if (l->e.scores_link) l->e.scores_link = links + (size_t)(l->e.scores_maker % LINKS) * each;
        if (l->x_link) l->x_link = links + (size_t)(l->x_maker % LINKS) * each;
        if (l->residual_link) l->residual_link = links + (size_t)(l->residual_maker % LINKS) * each;
    }
}
