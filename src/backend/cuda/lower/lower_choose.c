/* Lowering of the choice of tokens: the launches of kernels/choose.cu. */
#include "backend/cuda/lower/lower.h"

enum { ROW_SLICES_MAX = 32, SLICES_SHORT = 4 };
static_assert(SLICES_SHORT * CHOOSE_THREADS / 32 / 2 >= CHOICE_SHORT, "half as many tokens as warps");

/* Blocks for each row: enough to fill the GPU, few where there are many rows. At least SLICES_SHORT, because their warps then hold twice as many
 * best tokens as a list of CHOICE_SHORT needs. */
static int32_t slices_of(const struct cuda *c, int32_t rows, int32_t pieces) {
    int32_t n = 4 * c->gpu->n_sm / rows;
    n = n < SLICES_SHORT ? SLICES_SHORT : n > ROW_SLICES_MAX ? ROW_SLICES_MAX : n;
    return n < pieces ? n : pieces;
}

bool choose_fits(const struct cuda *c, const struct op *op) {
    return c->gpu->functions[KERNEL_choose_draw] && op->in[0].width <= CHOOSE_THREADS * K_PIECE;
}

void lower_choose(struct cuda *c, const struct op *op) {
    struct tensor x = op->in[0];
    size_t used = 0, rows = (size_t)x.rows, both = 2 * rows, vocab = (size_t)x.width, pieces = ceil_div(x.width, K_PIECE);
    size_t slices = (size_t)slices_of(c, x.rows, (int32_t)pieces);
    struct k_choose a = {
        .logits = cuda_view(c, x).p,
        .choices = cuda_step_array(c, c->at.choices),
        .masks = c->masks,
        .said = c->said,
        .bias = c->biases,
        .ids = cuda_step_array(c, c->at.ids),
        .wanted_rows = cuda_step_array(c, c->at.wanted_rows),
        .chosen = c->chosen,
        .out = cuda_view(c, op->out[0]).p,
        .counters = c->choose_counters,
        .stride = x.row_stride,
        .vocab = x.width,
        .rows = x.rows,
        .slices = (int32_t)slices,
        .mask_words = c->mask_words,
    };
    a.shaped = cuda_op_scratch(c, &used, rows * vocab * sizeof(float));
    a.state = cuda_op_scratch(c, &used, both * sizeof(struct k_choose_row));
    a.part_best = cuda_op_scratch(c, &used, both * slices * sizeof(float));
    a.part_at = cuda_op_scratch(c, &used, both * slices * sizeof(int32_t));
    a.part_sum = cuda_op_scratch(c, &used, both * slices * sizeof(float));
    a.buckets = cuda_op_scratch(c, &used, both * slices * 2 * K_BUCKETS * sizeof(uint32_t));
    a.lists = cuda_op_scratch(c, &used, both * 2 * K_LIST_MAX * sizeof(uint64_t));
    a.list_n = cuda_op_scratch(c, &used, both * 2 * sizeof(int32_t));
    a.piece_sum = cuda_op_scratch(c, &used, both * pieces * CHOOSE_PIECE_PARTS * sizeof(float));
    const unsigned int *once = GRID(slices, rows, 1), *twice = GRID(slices, both, 1);
    bool lists = c->key.chooses & CHOICE_LISTS, counts = lists && (c->key.chooses & CHOICE_COUNTS || slices < SLICES_SHORT);
    if (c->key.chooses & CHOICE_SHAPES) EMIT(c, KERNEL_choose_shape, once, CHOOSE_THREADS, 0, a);
    EMIT(c, KERNEL_choose_max, lists ? twice : once, CHOOSE_THREADS, 0, a);
    if (counts) EMIT(c, KERNEL_choose_count, twice, CHOOSE_THREADS, 2 * K_BUCKETS * sizeof(uint32_t), a);
    if (lists) EMIT(c, KERNEL_choose_gather, twice, CHOOSE_THREADS, K_LIST_BYTES, a);
    EMIT(c, KERNEL_choose_draw, once, CHOOSE_THREADS, 0, a);
}
