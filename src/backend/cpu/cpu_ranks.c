/* What ranks do together: sums and parts behind each other. One thread of the rank does it. */
#include "backend/cpu/cpu.h"

void cpu_run_sum(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    size_t n = (size_t)op->in[0].rows * (size_t)tensor_row_size(op->in[0]);
    comm_all_reduce(c->base.comm, cpu_data(c, op->in[0]), cpu_data(c, op->out[0]), n, &c->failed);
}

/* The own part, dense, and all parts one behind the other. */
int64_t cpu_gather_floats(const struct op *op) {
    int64_t own = op->n_in ? op->in[0].width : 0;
    return op->out[0].rows * (own + op->out[0].width);
}

/* Ranks bring parts of different widths; of one row those lie as they are wanted. */
void cpu_run_gather(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct comm *comm = c->base.comm;
    int32_t width = op->n_in ? op->in[0].width : 0, widths[COMM_RANKS_MAX];
    int64_t rows = op->out[0].rows, whole = op->out[0].width, at = 0;
    float *own = c->op_scratch, *all = rows == 1 ? cpu_data(c, op->out[0]) : own + rows * width;
    for (int64_t r = 0; r < rows && width; r++) memcpy(own + r * width, cpu_row(c, op->in[0], r), (size_t)width * sizeof *own);
    if (rows > 1 && comm_all_gather(comm, &width, sizeof width, widths, (size_t)comm->size * sizeof width, &c->failed)) return;
    if (comm_all_gather(comm, own, (size_t)(rows * width) * sizeof *own, all, (size_t)(rows * whole) * sizeof *all, &c->failed)) return;
    for (int32_t k = 0; k < comm->size && rows > 1; k++) {
        for (int64_t r = 0; r < rows; r++, all += widths[k]) memcpy(cpu_row(c, op->out[0], r) + at, all, (size_t)widths[k] * sizeof *all);
        at += widths[k];
    }
}
