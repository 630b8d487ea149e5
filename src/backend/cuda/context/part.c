/* Parts of steps: what other devices have made goes in, and what they read goes out, through pinned memory of the host.
 *
 * Of a decode step a kernel in front and one behind pass these few kilobytes (kernels/pass.cu, lower/lower_part.c), and the last one counts a word of the host's memory up,
 * which the host looks at: copies by the driver, one for each value, and waiting for the stream take longer than many a part. */
#include "backend/cuda/context/context.h"

int cuda_note_inputs(struct cuda *c, struct err *err) {
    const struct oplist *l = &c->base.list;
    c->n_inputs = 0;
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        if (op->kind != OP_INPUT) continue;
        if (c->n_inputs == OUTPUTS_MAX) return err_set(err, ERR_ELIMIT, "a part of a step has more than %d inputs", OUTPUTS_MAX);
        const struct value *v = &l->values[op->out[0].id - 1];
        c->inputs[c->n_inputs++] = (struct cuda_input){
            .slot = op->arg.input.slot, .offset = c->plan.offsets[op->out[0].id - 1], .bytes = (size_t)v->elements * sizeof(float)};
    }
    return ERR_OK;
}

int cuda_inputs_send(struct cuda *c, const struct step *step, struct err *err) {
    if (c->passing.by_kernels) return ERR_OK;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const struct cuda_input *in = &c->inputs[i];
        if (in->bytes)
            CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(c->scratch + (size_t)in->offset, step->inputs[in->slot], in->bytes, c->stream),
                     "what another device has made");
    }
    return ERR_OK;
}

static int copy_output(struct cuda *c, struct tensor t, void *dst, struct err *err) {
    if (c->passing.by_kernels) return ERR_OK; /* it is on its way */
    size_t bytes = (size_t)t.rows * (size_t)tensor_row_size(t) * sizeof(float);
    for (int32_t i = 0; i < c->n_outputs; i++) {
        if (c->outputs[i].id != t.id) continue;
        if (bytes)
            CUDA_TRY(c, c->d->cuMemcpyDtoHAsync(dst, c->scratch + (size_t)c->outputs[i].offset, bytes, c->stream),
                     "what another device reads");
        return ERR_OK;
    }
    return err_set(err, ERR_EINTERNAL, "value %d is no output of the last step", t.id);
}

/* The driver is asked now and then: it sends what it has collected, and knows of faults. */
static int await_outputs(struct cuda *c, struct err *err) {
    enum { LOOKS = 4096 };
    struct cuda_passing *p = &c->passing;
    bool is_over = false;
    p->is_awaited = false;
    for (uint32_t n = 0; (int32_t)(atomic_load_explicit(p->done, memory_order_acquire) - p->n_parts) < 0; n++) {
        if (is_over) {
            p->n_parts = atomic_load(p->done);
            return err_set(err, ERR_EINTERNAL, "the outputs of a part of a step have not arrived");
        }
        if (n % LOOKS) continue;
        CUresult code = c->d->cuStreamQuery(c->stream);
        is_over = code == CUDA_SUCCESS;
        if (!is_over && code != CUDA_ERROR_NOT_READY) CUDA_TRY(c, code, "running a step");
    }
    return cuda_check_waits(c, err);
}

static int read_many(struct cuda *c, const struct tensor *t, void *const *dst, int32_t n, struct err *err) {
    TRY(cuda_use(c, err));
    for (int32_t i = 0; i < n; i++) TRY(copy_output(c, t[i], dst[i], err));
    return c->passing.is_awaited ? await_outputs(c, err) : cuda_wait(c, err);
}

int cuda_read_many(struct backend *be, const struct tensor *t, void *const *dst, int32_t n, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    return cuda_note_lost(c, read_many(c, t, dst, n, err));
}

int cuda_send_many(struct backend *be, const struct tensor *t, void *const *dst, int32_t n, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    int code = cuda_use(c, err);
    for (int32_t i = 0; i < n && !code; i++) code = copy_output(c, t[i], dst[i], err);
    return cuda_note_lost(c, code);
}

static int mark(struct cuda *c, struct err *err) {
    TRY(cuda_use(c, err));
    if (!c->launched) CUDA_TRY(c, c->d->cuEventCreate(&c->launched, CU_EVENT_DISABLE_TIMING), "an event");
    CUDA_TRY(c, c->d->cuEventRecord(c->launched, c->stream), "an event");
    return ERR_OK;
}

int cuda_follow(struct backend *be, struct backend *other, struct err *err) {
    struct cuda *c = (struct cuda *)be, *before = (struct cuda *)other;
    int code = mark(before, err);
    if (code) return cuda_note_lost(before, code);
    TRY(cuda_use(c, err));
    CUDA_TRY(c, c->d->cuStreamWaitEvent(c->stream, before->launched, 0), "waiting for GPU %d", before->gpu->about->index);
    return ERR_OK;
}

int cuda_host_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    CUDA_TRY(c, c->d->cuMemHostAlloc(out, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP), "%zu bytes of pinned memory",
             bytes);
    return ERR_OK;
}

void cuda_host_free(struct backend *be, void *p) {
    struct cuda *c = (struct cuda *)be;
    cuda_use(c, NULL);
    cuda_graphs_drop(c); /* their kernels may hold its address */
    c->d->cuMemFreeHost(p);
}

static int open_word(struct cuda *c, struct err *err) {
    void *word;
    CUDA_TRY(c, c->d->cuMemHostAlloc(&word, sizeof *c->passing.done, CU_MEMHOSTALLOC_DEVICEMAP), "pinned memory");
    c->passing.done = word;
    atomic_store(c->passing.done, 0);
    CUDA_TRY(c, c->d->cuMemHostGetDevicePointer(&c->passing.done_at, word, 0), "pinned memory");
    return ERR_OK;
}

int cuda_passing_begin(struct cuda *c, const struct step *step, struct err *err) {
    struct cuda_passing *p = &c->passing;
    p->inputs = step->inputs;
    p->outputs = step->outputs;
    p->n_outputs = step->n_outputs;
    p->is_awaited = p->by_kernels = false;
    return p->outputs && !p->done ? open_word(c, err) : ERR_OK;
}

void cuda_passing_end(struct cuda *c, int code) {
    struct cuda_passing *p = &c->passing;
    p->is_awaited = !code && p->by_kernels && p->n_outputs;
    p->n_parts += p->is_awaited;
    p->inputs = NULL, p->outputs = NULL;
}

void cuda_passing_close(struct cuda *c) {
    if (c->passing.done) c->d->cuMemFreeHost(c->passing.done);
}
