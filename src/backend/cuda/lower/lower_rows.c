/* Lowering of what towers of pictures need besides the text model's ops: rows from the host, attention among rows, means of rows. */
#include "backend/cuda/lower/lower.h"

void lower_given(struct cuda *c, const struct op *op) {
    int32_t set = op->arg.given.set, rows = op->out[0].rows;
    struct k_given a = {.x = op->n_in ? cuda_view(c, op->in[0]) : (struct k_view){0},
                        .y = cuda_view(c, op->out[0]),
                        .at = cuda_step_array(c, c->at.given + (size_t)set * (size_t)rows * sizeof(int32_t)),
                        .numbers = c->given + c->given_at[set],
                        .adds = op->arg.given.adds};
    EMIT(c, KERNEL_given, GRID(ceil_div(a.y.width, 256), a.y.rows, 1), 256, 0, a);
}

void lower_pool_rows(struct cuda *c, const struct op *op) {
    struct k_pool_rows a = {.x = cuda_view(c, op->in[0]), .y = cuda_view(c, op->out[0]), .n = op->arg.pool_rows.n};
    EMIT(c, KERNEL_pool_rows, GRID(ceil_div((int64_t)a.y.heads * a.y.width, 256), a.y.rows, 1), 256, 0, a);
}

static struct k_attn_rows attn_rows_args(const struct cuda *c, const struct op *op) {
    return (struct k_attn_rows){.q = cuda_view(c, op->in[0]),
                                .k = cuda_view(c, op->in[1]),
                                .v = cuda_view(c, op->in[2]),
                                .y = cuda_view(c, op->out[0]),
                                .spans = cuda_step_array(c, c->at.spans[op->arg.attn_rows.set]),
                                .scale = op->arg.attn_rows.scale};
}

void lower_attn_rows(struct cuda *c, const struct op *op) {
    struct k_attn_rows a = attn_rows_args(c, op);
    bool is_narrow = a.q.width <= 128 && a.v.width <= 128;
    EMIT(c, is_narrow ? KERNEL_attn_rows_128 : KERNEL_attn_rows_256, GRID(a.q.heads, ceil_div(a.q.rows, 8), 1), 256, 0, a);
}

/* Widths that the tensor cores' kernels have; a head is filled up to one of them. */
static const struct {
    int32_t width;
    enum kernel_id kernel;
} widths[] = {{64, KERNEL_attn_rows_flash_64},
              {80, KERNEL_attn_rows_flash_80},
              {96, KERNEL_attn_rows_flash_96},
              {128, KERNEL_attn_rows_flash_128}};

static int width_index(const struct op *op) {
    int32_t width = op->in[0].width > op->in[2].width ? op->in[0].width : op->in[2].width;
    int i = 0;
    while (i < 4 && widths[i].width < width) i++;
    return i;
}

bool attn_rows_flash_fits(const struct cuda *c, const struct op *op) {
    int i = width_index(op);
    return !c->exact && !op_is_sharp(op) && i < 4 && op->in[0].width % 2 == 0 && op->in[2].width % 2 == 0 &&
           c->gpu->functions[widths[i].kernel] && flash_shared_bytes(widths[i].width) <= c->gpu->shared_max;
}

void lower_attn_rows_flash(struct cuda *c, const struct op *op) {
    struct k_attn_rows a = attn_rows_args(c, op);
    int i = width_index(op);
    size_t used = 0, bytes;
    a.width = widths[i].width;
    bytes = (size_t)a.k.heads * (size_t)a.k.rows * (size_t)a.width * 2;
    a.keys = cuda_op_scratch(c, &used, bytes);
    a.values = cuda_op_scratch(c, &used, bytes);
    EMIT(c, KERNEL_attn_rows_pack, GRID(a.k.rows, 1, 1), 256, 0, a);
    EMIT(c, widths[i].kernel, GRID(a.q.heads, ceil_div(a.q.rows, FLASH_ROWS), 1), 128, (unsigned int)flash_shared_bytes(a.width), a);
}
