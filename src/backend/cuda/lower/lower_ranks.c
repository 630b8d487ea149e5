/* Lowering of what ranks do together, sums and parts behind each other: kernels/ranks.cu, or calls of NCCL. */
#include "backend/cuda/lower/lower.h"

enum { FEW_BLOCKS = 16 }; /* of a short sum: it is over in one trip, and blocks that wait take room from others */

static struct k_ranks ranks_args(const struct cuda *c, int64_t total) {
    struct k_ranks a = {
        .rounds = c->ranks.rounds, .counters = c->counters, .total = total, .rank = c->base.comm->rank, .n = c->base.comm->size};
    memcpy(a.desks, c->ranks.desks, sizeof a.desks);
    return a;
}

/* Blocks that exchange a slot each in a round; the same on all ranks, since the result is. */
static unsigned int exchange_grid(const struct cuda *c, struct k_ranks *a, unsigned int slots) {
    unsigned int most = (unsigned int)c->ranks.n_blocks, blocks = slots < most ? slots : most;
    a->n_rounds = blocks ? (int32_t)ceil_div(slots, blocks) : 0;
    return blocks;
}

static void emit_gather(struct cuda *c, struct k_ranks *a, int64_t rows) {
    a->total = rows * ceil_div(a->whole, DESK_SLOT);
    EMIT(c, KERNEL_ranks_gather, GRID(exchange_grid(c, a, (unsigned int)a->total), 1, 1), RANKS_THREADS, 0, *a);
}

static void emit_call(struct cuda *c, const struct cuda_call *call) {
    cuda_emit(c, N_KERNELS, GRID(1, 1, 1), 0, 0, call, sizeof *call);
}

static void call_sum(struct cuda *c, const struct op *op) {
    emit_call(c, &(struct cuda_call){.kind = CALL_SUM,
                                     .in = cuda_view(c, op->in[0]).p,
                                     .out = cuda_view(c, op->out[0]).p,
                                     .total = op->in[0].rows * tensor_row_size(op->in[0])});
}

static void call_gather(struct cuda *c, const struct op *op) {
    struct k_view x = cuda_view(c, op->n_in ? op->in[0] : (struct tensor){0}), y = cuda_view(c, op->out[0]);
    size_t used = 0;
    emit_call(c, &(struct cuda_call){.kind = CALL_GATHER,
                                     .rows = y.rows,
                                     .width = x.width,
                                     .whole = y.width,
                                     .in = x.p,
                                     .out = y.p,
                                     .parts = cuda_op_scratch(c, &used, 2 * (size_t)y.rows * (size_t)y.width * sizeof(float)),
                                     .in_stride = x.row_stride,
                                     .out_stride = y.row_stride});
}

void lower_sum(struct cuda *c, const struct op *op) {
    if (c->ranks.by_nccl) {
        call_sum(c, op);
        return;
    }
    struct k_ranks a = ranks_args(c, op->in[0].rows * tensor_row_size(op->in[0]));
    a.in = cuda_view(c, op->in[0]).p;
    a.out = cuda_view(c, op->out[0]).p;
    unsigned int few = ceil_div(a.total, RANKS_THREADS);
    if (a.total <= DESK_FEW) EMIT(c, KERNEL_ranks_sum_few, GRID(few < FEW_BLOCKS ? few : FEW_BLOCKS, 1, 1), RANKS_THREADS, 0, a);
    else EMIT(c, KERNEL_ranks_sum_many, GRID(exchange_grid(c, &a, ceil_div(a.total, DESK_SLOT)), 1, 1), RANKS_THREADS, 0, a);
}

void lower_gather(struct cuda *c, const struct op *op) {
    if (c->ranks.by_nccl) {
        call_gather(c, op);
        return;
    }
    struct tensor y = op->out[0];
    struct k_ranks a = ranks_args(c, 0);
    a.whole = y.width, a.out_stride = y.row_stride;
    a.out = cuda_view(c, y).p;
    if (op->n_in) {
        struct k_view x = cuda_view(c, op->in[0]);
        a.in = x.p, a.width = x.width, a.in_stride = x.row_stride;
    }
    emit_gather(c, &a, y.rows);
}

/* The first rank chooses, and the next step of all may begin before the host knows what. */
void cuda_tell_chosen(struct cuda *c) {
    if (!c->base.comm || c->key.n_logits == 0 || c->key.no_choice) return;
    if (c->ranks.by_nccl) {
        emit_call(c, &(struct cuda_call){.kind = CALL_TELL, .in = c->chosen, .out = c->chosen, .total = c->key.n_logits});
        return;
    }
    struct k_ranks a = ranks_args(c, 0);
    a.whole = c->key.n_logits;
    a.width = c->base.comm->rank == 0 ? c->key.n_logits : 0;
    a.in = a.out = c->chosen;
    emit_gather(c, &a, 1);
}
