/* Lowering of what a part of a decode step reads from other devices and makes for them: a launch in front, and one behind (context/part.c). */
#include "backend/cuda/lower/lower.h"

enum { PASS_BYTES = 128 << 10, PASS_THREADS = 1024 };

static size_t value_bytes(const struct cuda *c, int32_t id) {
    return (size_t)c->base.list.values[id - 1].elements * sizeof(float);
}

static CUdeviceptr place_of(const struct cuda *c, int32_t id) {
    return c->scratch + (size_t)c->plan.offsets[id - 1];
}

/* The address of the host's memory for kernels. */
static uint64_t seen_from_here(struct cuda *c, const void *p) {
    CUdeviceptr at = 0;
    CUresult code = c->d->cuMemHostGetDevicePointer(&at, (void *)(uintptr_t)p, 0);
    if (code && !c->lower_code) c->lower_code = code;
    return at;
}

bool cuda_part_passes(const struct cuda *c) {
    const struct oplist *l = &c->base.list;
    const struct cuda_passing *p = &c->passing;
    size_t bytes = 0;
    int32_t n_in = 0;
    if (!p->outputs || p->n_outputs > PASS_VALUES || !c->gpu->functions[KERNEL_pass_out]) return false;
    for (int32_t i = 0; i < l->n_ops; i++)
        if (l->ops[i].kind == OP_INPUT) bytes += value_bytes(c, l->ops[i].out[0].id), n_in++;
    for (int32_t i = 0; i < p->n_outputs; i++) bytes += value_bytes(c, p->outputs[i].id);
    return n_in <= PASS_VALUES && bytes <= PASS_BYTES;
}

void cuda_pass_inputs(struct cuda *c) {
    const struct oplist *l = &c->base.list;
    struct k_pass a = {0};
    for (int32_t i = 0; c->passing.by_kernels && i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        if (op->kind != OP_INPUT) continue;
        a.of[a.n].from = seen_from_here(c, c->passing.inputs[op->arg.input.slot]);
        a.of[a.n].to = place_of(c, op->out[0].id);
        a.of[a.n++].bytes = (int64_t)value_bytes(c, op->out[0].id);
    }
    if (a.n) EMIT(c, KERNEL_pass_in, GRID(a.n, 1, 1), 256, 0, a);
}

void cuda_pass_outputs(struct cuda *c) {
    const struct cuda_passing *p = &c->passing;
    struct k_pass a = {.count = c->counters + COUNTERS_PARTS * sizeof(uint32_t), .done = p->done_at};
    for (int32_t i = 0; p->by_kernels && i < p->n_outputs; i++) {
        a.of[a.n].from = place_of(c, p->outputs[i].id);
        a.of[a.n].to = seen_from_here(c, p->outputs[i].to);
        a.of[a.n++].bytes = (int64_t)value_bytes(c, p->outputs[i].id);
    }
    if (a.n) EMIT(c, KERNEL_pass_out, GRID(1, 1, 1), PASS_THREADS, 0, a);
}
