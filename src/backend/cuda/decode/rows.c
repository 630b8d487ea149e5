/* Lists of several rows: x of their products (kernels/rows_x.cuh).
 *
 * Before each product stands an instruction that makes its x; products that read the same norm share it. The memory of x is used in turn, and is cleared by the next but one such
 * instruction; what the last two of a list make has a place of its own, which is cleared when the launch ends. */
#include "backend/cuda/decode/decode.h"

enum { X_BUFFERS = 4, X_REST = 2 };

static struct k_instr make_x_for(const struct k_instr *product) {
    struct k_instr in = {.kind = K_STEP_X};
    const struct k_step_linear *l = &product->u.linear;
    in.u.linear = (struct k_step_linear){.w.in = l->w.in,
                                         .x = l->x,
                                         .x_rows = l->x_rows,
                                         .x_stride = l->x_stride,
                                         .x_dtype = l->x_dtype,
                                         .norm = l->norm,
                                         .norm_offset = l->norm_offset,
                                         .has_norm = l->has_norm,
                                         .rows = l->rows};
    return in;
}

int32_t cuda_rows_expand(struct k_instr *in, struct step_values *values, int32_t n) {
    int32_t n_x = 0;
    for (int32_t i = 0; i < n; i++) n_x += in[i].kind == K_STEP_LINEAR && !values[i].is_next;
    for (int32_t i = n - 1, to = n + n_x - 1; i >= 0; i--) {
        in[to] = in[i], values[to] = values[i], to--;
        if (in[i].kind != K_STEP_LINEAR || values[i].is_next) continue;
        values[to] = (struct step_values){.x = values[i].x};
        in[to--] = make_x_for(&in[i]);
    }
    return n + n_x;
}

struct rows_memory cuda_rows_memory(const struct k_instr *in, int32_t n) {
    struct rows_memory m = {0};
    for (int32_t i = 0; i < n; i++) {
        if (in[i].kind != K_STEP_X) continue;
        size_t bytes = (size_t)rows_x_bytes((int)(in[i].u.linear.w.in / TILE_UNIT), in[i].u.linear.rows);
        if (bytes > m.each) m.each = bytes;
        m.n++;
    }
    m.rest = X_BUFFERS * m.each;
    m.bytes = m.n ? m.rest + X_REST * m.each : 0;
    return m;
}

/* Where the i-th x of n lies. */
static CUdeviceptr place_of(const struct rows_memory *m, CUdeviceptr memory, int32_t i) {
    int32_t before_end = m->n - 1 - i;
    return memory + (before_end < X_REST ? m->rest + (size_t)before_end * m->each : (size_t)(i % X_BUFFERS) * m->each);
}

/* The first blocks that have tiles of every product. */
static int32_t busy_blocks(const struct k_instr *in, int32_t n) {
    int32_t blocks = INT32_MAX;
    for (int32_t i = 0; i < n; i++) {
        const struct k_step_linear *l = &in[i].u.linear;
        if (in[i].kind == K_STEP_LINEAR && l->n_tiles < blocks) blocks = l->n_tiles;
    }
    return blocks;
}

void cuda_rows_place(struct k_instr *in, int32_t n, const struct rows_memory *m, CUdeviceptr memory) {
    int32_t at = -1, blocks = busy_blocks(in, n);
    struct k_step_linear *last[X_REST + 1] = {0}; /* the instructions before, the newest first */
    for (int32_t i = 0; i < n; i++) {
        struct k_step_linear *l = &in[i].u.linear;
        if (in[i].kind == K_STEP_X) {
            at++;
            last[2] = last[1], last[1] = last[0], last[0] = l;
            l->x_units = place_of(m, memory, at);
            if (last[2]) l->x_old = last[2]->x_units, l->x_old_in = (int32_t)last[2]->w.in, l->x_old_blocks = blocks;
        } else if (in[i].kind == K_STEP_LINEAR && last[0]) l->x_units = last[0]->x_units;
    }
}
