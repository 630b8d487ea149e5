/* Lists: the instructions of a step of one row, or of up to LIST_ROWS, which one launch of kernels/one.cu or few.cu runs. This file chooses the kernel and
 * makes the links.
 *
 * A link is memory through which a result goes from the blocks that make it to the blocks that read it. Its words carry a tag (kernels/sync.cuh), so
 * a reader waits for the words that it needs, and no barrier of all blocks is needed. An instruction whose x is the result of the one right before it
 * needs no barrier: no block can begin it before all blocks have finished that one, and so on back to the start. This also keeps the plan true,
 * which uses the memory of values again. Any other instruction waits for all blocks. There is memory for LINKS links, used in turn; an
 * instruction that reads an older result than LINK_REACH waits for all blocks too. */
#include "backend/cuda/decode/decode.h"

enum { FEW_DEPTH = 4, LINKS = 8, LINK_REACH = LINKS - 2, LINK_BYTES_MAX = 128 << 10 }; /* of a row */

/* ---- kernels -------------------------------------------------------------------------------------------------------- */

/* What the weights of a list are: codes of 4 bits, of 4 and 8, of 4 with experts, bf16, f16. */
enum one_kind { ONE_4, ONE_48, ONE_EXPERTS, ONE_16, ONE_F16, N_ONE_KINDS };

/* By kind of weights and width of heads: the kernel, the one for a cache of 8 bits, and the one for several rows (N_KERNELS: there is none). */
static const struct one_kernel {
    enum kernel_id id, id_8, id_few;
    enum one_kind kind;
    int32_t width;
} one_kernels[] = {
    {KERNEL_one_4_64, KERNEL_one8_4_64, KERNEL_few_4_64, ONE_4, 64},
    {KERNEL_one_4_128, KERNEL_one8_4_128, KERNEL_few_4_128, ONE_4, 128},
    {KERNEL_one_48_64, KERNEL_one8_48_64, KERNEL_few_48_64, ONE_48, 64},
    {KERNEL_one_48_128, KERNEL_one8_48_128, KERNEL_few_48_128, ONE_48, 128},
    {KERNEL_one_experts_64, KERNEL_one8_experts_64, N_KERNELS, ONE_EXPERTS, 64},
    {KERNEL_one_experts_128, KERNEL_one8_experts_128, N_KERNELS, ONE_EXPERTS, 128},
    {KERNEL_one_16_64, N_KERNELS, N_KERNELS, ONE_16, 64},
    {KERNEL_one_16_128, N_KERNELS, N_KERNELS, ONE_16, 128},
    {KERNEL_one_f16_64, N_KERNELS, N_KERNELS, ONE_F16, 64},
    {KERNEL_one_f16_128, N_KERNELS, N_KERNELS, ONE_F16, 128},
};

/* Elements of a product's x. The product that goes down from all chosen experts reads the inner values of all of them. */
static int64_t x_width(const struct k_step_linear *l) {
    return l->w.in * (l->e.half == K_HALF_DOWN ? l->e.k : 1);
}

/* Shared memory beside the rings. A product: x and the sums of its groups. Attention: queries, the new keys and values; its parts lie among
 * the sums. */
static size_t room_of(const struct k_instr *in) {
    const struct k_step_attn *a = &in->u.attn;
    size_t d = (size_t)a->c.k_width, heads = (size_t)a->group, rows = a->rows > 1 ? LIST_ROWS : 1;
    if (in->kind == K_STEP_ROUTER) return 0;
    if (in->kind == K_STEP_LINEAR) return (size_t)list_x_bytes((int)(x_width(&in->u.linear) / 64), in->u.linear.rows);
    if (a->c.dtype == K_I8) return (size_t)attn8_item_bytes(a->c.k_width);
    return (heads + 2 * rows) * d * sizeof(float);
}

/* What the instructions of a list need of a kernel: one mode of weights (-1: none yet) and, where they are plain, one type, one width of heads (0: none yet),
 * experts, codes of 8 bits beside those of 4, a cache of 8 bits; and how many rows all of them have. */
struct one_shape {
    int32_t mode, dtype, width, rows;
    bool has_experts, has_8, cache_8;
};

static enum one_kind kind_of(const struct one_shape *shape) {
    if (shape->mode == K_PLAIN) return shape->has_experts ? N_ONE_KINDS : shape->dtype == K_F16 ? ONE_F16 : ONE_16;
    if (shape->has_experts) return shape->has_8 ? N_ONE_KINDS : ONE_EXPERTS;
    return shape->has_8 ? ONE_48 : ONE_4;
}

static bool one_fits(const struct cuda *c, const struct k_instr *in, struct one_shape *shape) {
    const struct k_step_linear *l = &in->u.linear;
    const struct k_step_attn *a = &in->u.attn;
    if (in->kind == K_STEP_ROUTER) return shape->has_experts = true;
    if (in->kind == K_STEP_ATTN) {
        if (!shape->width) shape->width = a->c.k_width, shape->cache_8 = a->c.dtype == K_I8;
        return a->rows == shape->rows && shape->cache_8 == (a->c.dtype == K_I8) && a->c.k_width == shape->width && a->items <= c->gpu->n_sm;
    }
    if (shape->mode < 0) shape->mode = l->w.mode, shape->dtype = l->w.dtype;
    if (l->w.mode == K_AFFINE && l->w.bits == 8) shape->has_8 = true;
    if (l->w.out / 16 * l->w.tile_bytes > INT32_MAX && l->glu_inner) return false; /* distances in k_stream have 32 bits */
    bool is_same = l->w.mode == K_PLAIN ? l->w.dtype == shape->dtype : tile_runs(l->w.group) == 1;
    return l->rows == shape->rows && l->w.mode == shape->mode && is_same;
}

static int32_t rows_of(const struct k_instr *in) {
    return in->kind == K_STEP_ATTN ? in->u.attn.rows : in->u.linear.rows;
}

static enum kernel_id kernel_for(const struct one_kernel *one, const struct one_shape *shape) {
    if (shape->rows > 1) return shape->cache_8 ? N_KERNELS : one->id_few;
    return shape->cache_8 ? one->id_8 : one->id;
}

bool cuda_list_fits(const struct cuda *c, const struct k_instr *in, int32_t n, struct launch *out, int32_t *out_depth) {
    struct one_shape shape = {.mode = -1, .rows = rows_of(in)};
    bool is_small = cuda_has_small_shared(c);
    size_t most = 0, sums = 2 * (size_t)list_sums(is_small) * sizeof(float);
    if (shape.rows > LIST_ROWS) return false;
    for (int32_t i = 0; i < n; i++) {
        if (!one_fits(c, &in[i], &shape)) return false;
        if (room_of(&in[i]) > most) most = room_of(&in[i]);
    }
    if (!shape.width) shape.width = 128;
    for (size_t k = 0; k < sizeof one_kernels / sizeof *one_kernels; k++) {
        const struct one_kernel *one = &one_kernels[k];
        bool is_plain = one->kind == ONE_16 || one->kind == ONE_F16;
        size_t place = (size_t)list_place_bytes(is_plain, one->kind == ONE_48, is_small, shape.rows);
        size_t fixed = (size_t)list_head_bytes(shape.rows) + sums + most, each = LIST_WARPS * place;
        enum kernel_id id = kernel_for(one, &shape);
        if (one->kind != kind_of(&shape) || one->width != shape.width || id == N_KERNELS || !c->gpu->functions[id]) continue;
        if (fixed + each > (size_t)c->gpu->shared_max) return false;
        size_t depth = ((size_t)c->gpu->shared_max - fixed) / each;
        if (depth > (size_t)list_depth(is_plain, shape.rows)) depth = (size_t)list_depth(is_plain, shape.rows);
        if (shape.rows > 1 && depth < FEW_DEPTH && c->key.decode_only) return false; /* kernels/step.cu is quicker */
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
    return r.width % 2 == 0 && link_bytes(r) / (size_t)r.rows <= LINK_BYTES_MAX;
}

/* Whether instruction p makes as many rows of `width` elements of the type, and `value` is the whole of them. */
static bool is_whole(const struct k_instr *in, const struct step_values *values, int32_t p, struct tensor value, int32_t rows,
                     int64_t width, int32_t dtype) {
    struct result r = result_of(&in[p]);
    return can_link(r) && value.offset == values[p].y.offset && r.width == width && r.stride == value.row_stride && r.dtype == dtype &&
           r.rows == rows;
}

/* Links x. The inner product of experts reads the x that its router read, two instructions before, and the router's scores. */
static bool link_x(const struct k_instr *in, const struct step_values *values, int32_t i, struct k_step_linear *a) {
    bool is_inner = a->e.half == K_HALF_INNER;
    int32_t p = maker_of(values, i, values[i].x);
    if (p < 0 || p != i - (is_inner ? 2 : 1)) return false;
    if (is_inner) {
        if (maker_of(values, i, values[i].scores) != i - 1 || !can_link(result_of(&in[i - 1]))) return false;
        a->e.scores_maker = i - 1;
        a->e.scores_link = 1;
    }
    if (!is_whole(in, values, p, values[i].x, a->rows, x_width(a), a->x_dtype)) return false;
    a->x_maker = p;
    a->x_link = 1;
    return true;
}

/* Links the residual. True where it will be there in time: linked, or made before the list. */
static bool link_residual(const struct k_instr *in, const struct step_values *values, int32_t i, struct k_step_linear *a) {
    int32_t p = maker_of(values, i, values[i].residual);
    if (p < 0) return true;
    if (i - p > LINK_REACH || !is_whole(in, values, p, values[i].residual, a->rows, a->glu_inner ? a->glu_inner : a->w.out, K_F32))
        return false;
    a->residual_maker = p;
    a->residual_link = 1;
    return true;
}

static bool link_qkv(const struct k_instr *in, const struct step_values *values, int32_t i, struct k_step_attn *a) {
    const struct step_values *v = &values[i];
    int32_t p = maker_of(values, i, v->x);
    if (p < 0 || p != i - 1 || v->k.id != v->x.id || v->v.id != v->x.id) return false;
    struct result r = result_of(&in[p]);
    if (!can_link(r) || r.dtype != K_F32 || r.stride != a->q_row || r.stride != a->k_row || r.stride != a->v_row || r.rows != a->rows)
        return false;
    int64_t first = values[p].y.offset;
    a->q_at = (int32_t)(v->x.offset - first), a->k_at = (int32_t)(v->k.offset - first), a->v_at = (int32_t)(v->v.offset - first);
    a->qkv_row = (int32_t)r.width;
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

size_t cuda_links_find(struct k_instr *in, const struct step_values *values, int32_t n) {
    size_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        in[i].number = i;
        if (in[i].kind == K_STEP_LINEAR) in[i].stream = stream_of(&in[i].u.linear);
        if (in[i].kind == K_STEP_ATTN) {
            in[i].waits = !link_qkv(in, values, i, &in[i].u.attn) && i > 0;
            continue;
        }
        bool has_x = link_x(in, values, i, &in[i].u.linear), has_residual = link_residual(in, values, i, &in[i].u.linear);
        in[i].waits = (!has_x || !has_residual) && i > 0;
    }
    for (int32_t i = 0; i + 1 < n; i++) {
        size_t bytes = link_bytes(result_of(&in[i]));
        if (can_link(result_of(&in[i])) && bytes > most) most = bytes;
    }
    return most * LINKS;
}

/* How many ops read the result of instruction p through a link. */
static int32_t linked_reads(const struct k_instr *in, int32_t n, int32_t p) {
    int32_t reads = 0;
    for (int32_t i = p + 1; i < n && i <= p + LINK_REACH; i++) {
        const struct k_step_linear *l = &in[i].u.linear;
        const struct k_step_attn *a = &in[i].u.attn;
        if (in[i].kind == K_STEP_ATTN) reads += a->qkv_link && a->qkv_maker == p ? 3 : 0;
        else if (l->e.half == K_HALF_INNER)
            reads += l->e.scores_link && l->e.scores_maker == p; /* its x counts with the router's: the two are reads of one norm */
        else reads += (l->x_link && l->x_maker == p) + (l->residual_link && l->residual_maker == p);
    }
    return reads;
}

void cuda_links_place(struct k_instr *in, const struct step_values *values, int32_t n, CUdeviceptr links, size_t bytes) {
    size_t each = bytes / LINKS;
    for (int32_t i = 0; i < n; i++) {
        struct k_step_linear *l = &in[i].u.linear;
        struct k_step_attn *a = &in[i].u.attn;
        int32_t reads = linked_reads(in, n, i);
        uint64_t *y = in[i].kind == K_STEP_ATTN ? &a->y : &l->y, *y_link = in[i].kind == K_STEP_ATTN ? &a->y_link : &l->y_link;
        if (reads) *y_link = links + (size_t)(i % LINKS) * each;
        if (reads && reads == values[i].reads) *y = 0; /* nobody reads it elsewhere */
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
