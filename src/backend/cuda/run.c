/* Running steps: lower the list or replay a graph, upload the step block, launch, read results back. */
#include "backend/cuda/cuda.h"

#include "backend/paths.h"
#include "backend/fuse.h"
#include "backend/op_fields.h"

bool cuda_begin(struct backend *be, const struct step_key *key) {
    struct cuda *c = (struct cuda *)be;
    c->key = *key;
    c->replay = c->step_block && !c->times ? cuda_graph_find(c, key) : NULL;
    if (c->replay) return false;
    oplist_begin(&be->list, key->n_rows, key->n_logits + key->n_hidden);
    return true;
}

static void note_outputs(struct cuda *c) {
    const struct oplist *l = &c->base.list;
    c->n_outputs = 0;
    for (int32_t i = 0; i < l->n_values && c->n_outputs < OUTPUTS_MAX; i++)
        if (l->values[i].is_output) c->outputs[c->n_outputs++] = (struct cuda_output){i + 1, c->plan.offsets[i]};
}

/* Plans the list and lowers it to a program. Where scratch memory must grow, the list is lowered again with the new addresses. */
static int lower_list(struct cuda *c, struct err *err) {
    TRY(cuda_ranks_open(c, err));
    cuda_choose_dtypes(c);
    cuda_find_groups(c);
    plan_make(&c->plan, &c->base.list);
    TRY(cuda_grow(c, (size_t)c->plan.bytes, "scratch memory of a step", &c->scratch, &c->scratch_bytes, err));
    cuda_step_layout(c, &c->key, &c->at);
    c->passing.by_kernels = cuda_part_passes(c);
    TRY(cuda_lower(c, err));
    if (c->op_scratch_need > c->op_scratch_bytes || c->dequantised_need > c->dequantised_bytes || c->places.need > c->places.bytes) {
        TRY(cuda_grow(c, c->op_scratch_need, "scratch memory of an op", &c->op_scratch, &c->op_scratch_bytes, err));
        TRY(cuda_grow(c, c->dequantised_need, "dequantised weights", &c->dequantised, &c->dequantised_bytes, err));
        TRY(cuda_grow(c, c->places.need, "weights that the CPU lends", &c->places.memory, &c->places.bytes, err));
        TRY(cuda_lower(c, err));
    }
    return ERR_OK;
}

/* A step that may become one list of instructions only if it is lowered as such: of one row with experts, or with norms behind products; or of so many rows that single
 * launches have no room for x of its products. */
static bool may_be_one_list(const struct cuda *c) {
    const struct oplist *l = &c->base.list;
    const CUfunction *has = c->gpu->functions;
    bool has_experts = false, has_post_norms = false, has_wide = false;
    if (c->times || !cuda_step_small(c)) return false;
    for (int32_t i = 0; i < l->n_ops; i++) {
        has_experts = has_experts || l->ops[i].kind == OP_EXPERTS;
        has_post_norms = has_post_norms || step_is_post_norm(c, i);
        has_wide = has_wide || (l->ops[i].kind == OP_LINEAR && l->ops[i].arg.linear.wide);
    }
    if (c->key.n_rows == 1) return (has_experts && has[KERNEL_one_experts_128]) || (has_post_norms && has[KERNEL_one_post_128]);
    return c->key.n_rows > LIST_FEW && c->key.n_rows <= LIST_ROWS && !has_experts && !has_post_norms && !has_wide &&
           has[KERNEL_several_4_128];
}

/* A model whose checked drafts are one list: what rows take in steps of one, as measured with Llama-3.1-8B and Qwen3-0.6B (docs/speculation.md). */
static void note_list(struct cuda *c) {
    c->base.row_first = 0.1;
    c->base.row_more = 0.08;
}

/* Lowers a step that checks drafts with the instructions of decode steps. Where these are no single list, it is lowered as a prompt. */
static int lower_checks(struct cuda *c, struct err *err) {
    int32_t n_decode = c->n_decode, n_tiles = c->n_tiles;
    c->n_decode = c->key.n_rows, c->n_tiles = 0;
    c->one_list = may_be_one_list(c);
    TRY(lower_list(c, err));
    c->is_replayed = cuda_one_list_holds(c);
    if (c->is_replayed) {
        note_list(c);
        return ERR_OK;
    }
    c->n_decode = n_decode, c->n_tiles = n_tiles, c->one_list = false;
    return lower_list(c, err);
}

static bool reads_borrowed(struct oplist *l) {
    for (int32_t i = 0; i < l->n_ops; i++)
        for (int32_t k = 0; k < op_weight_places(); k++) {
            const struct weight **w = op_weight_at(&l->ops[i], k);
            if (w && *w && (*w)->is_borrowed) return true;
        }
    return false;
}

/* Fuses the list and lowers it. */
static int prepare(struct cuda *c, struct err *err) {
    struct oplist *l = &c->base.list;
    if (l->err.code) return err_set(err, l->err.code, "%s", l->err.msg);
    c->borrows = reads_borrowed(l);
    c->one_list = c->key.decode_only && may_be_one_list(c);
    if (c->one_list) {
        TRY(lower_list(c, err));
        c->one_list = c->is_replayed = cuda_one_list_holds(c);
    }
    if (!c->one_list) {
        bool mostly_wide = cuda_split_wide(c);
        bool is_fused = !c->no_fuse && (mostly_wide || !cuda_step_small(c)); /* instructions want sums and norms as ops of their own */
        if (is_fused) fuse_list(l);
        c->is_replayed = c->key.decode_only;
        TRY(!is_fused && !c->times && cuda_step_small(c) && cuda_key_checks(&c->key) ? lower_checks(c, err) : lower_list(c, err));
    }
    note_outputs(c);
    return cuda_note_inputs(c, err);
}

int cuda_prepare_plan(struct cuda *c, struct err *err) {
    c->n_decode = c->key.decode_only ? c->key.n_rows : 0;
    c->n_tiles = c->key.decode_only ? 0 : (int32_t)ceil_div(c->key.n_rows, FLASH_ROWS);
    TRY(cuda_given_open(c, err));
    return prepare(c, err);
}

/* Smaller steps may have other kernels, and more launches, than the largest: room for those too. */
static void reserve_program(struct program *p, int32_t n_ops) {
    int32_t launches = n_ops * 8 + 64;
    cuda_program_reserve(p, launches);
    size_t args = (size_t)launches * 256 + p->args_used;
    if (p->args_capacity < args) {
        p->args = mem_realloc(p->args, args);
        p->args_capacity = args;
    }
}

int cuda_reserve(struct backend *be, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "uploading weights");
    cuda_free(c, &c->staging);
    c->staging_bytes = 0;
    c->n_decode = c->key.n_seqs;
    c->n_tiles = c->key.n_rows / K_BLOCK + c->key.n_seqs;
    int32_t n_ops = be->list.n_ops;
    TRY(cuda_given_open(c, err));
    TRY(prepare(c, err));
    reserve_program(&c->program, n_ops);
    c->kept_back = 0;
    return ERR_OK;
}

/* Events for n launches and one more. */
static int need_timers(struct cuda *c, int32_t n, struct err *err) {
    if (n < c->n_timers) return ERR_OK;
    c->timers = mem_realloc(c->timers, (size_t)(n + 1) * sizeof *c->timers);
    for (; c->n_timers <= n; c->n_timers++) CUDA_TRY(c, c->d->cuEventCreate(&c->timers[c->n_timers], 0), "an event");
    return ERR_OK;
}

static int add_times(struct cuda *c, struct err *err) {
    const struct program *p = &c->program;
    double *to = c->key.decode_only ? c->times->decode : c->times->prompt;
    TRY(cuda_wait(c, err));
    for (int32_t i = 0; i < p->n_launches; i++) {
        float ms = 0;
        CUDA_TRY(c, c->d->cuEventElapsedTime(&ms, c->timers[i], c->timers[i + 1]), "timing %s", cuda_kernel_name(p->launches[i].kernel));
        to[0] += (double)ms;
        if (p->launches[i].is_slow) to[1] += (double)ms;
    }
    return ERR_OK;
}

static int launch_all(struct cuda *c, struct err *err) {
    const struct program *p = &c->program;
    int32_t begun = 0, ended = 0; /* loans */
    if (c->times) TRY(need_timers(c, p->n_launches, err));
    for (int32_t i = 0; i < p->n_launches; i++) {
        const struct launch *l = &p->launches[i];
        for (; begun < p->n_loans && p->loans[begun].first == i; begun++) TRY(cuda_loan_begin(c, &p->loans[begun], err));
        if (c->times) CUDA_TRY(c, c->d->cuEventRecord(c->timers[i], c->stream), "an event");
        void *params[] = {p->args + l->args};
        if (l->kernel == N_KERNELS) TRY(cuda_call(c, params[0], err));
        else
            CUDA_TRY(c,
                     c->d->cuLaunchKernel(c->gpu->functions[l->kernel], l->grid[0], l->grid[1], l->grid[2], l->threads, 1, 1,
                                          l->shared_bytes, c->stream, params, NULL),
                     "launching %s for op %d (%s), grid %u %u %u, %u threads, %u bytes", cuda_kernel_name(l->kernel), l->op,
                     op_name(c->base.list.ops[l->op].kind), l->grid[0], l->grid[1], l->grid[2], l->threads, l->shared_bytes);
        for (; ended < begun && p->loans[ended].last == i; ended++) TRY(cuda_loan_end(c, &p->loans[ended], err));
    }
    if (!c->times) return ERR_OK;
    CUDA_TRY(c, c->d->cuEventRecord(c->timers[p->n_launches], c->stream), "an event");
    return add_times(c, err);
}

static int replay(struct cuda *c, const struct step *step, struct err *err) {
    struct cuda_graph *g = c->replay;
    cuda_step_layout(c, &c->key, &c->at);
    TRY(cuda_step_upload(c, step, err));
    g->last_use = c->n_steps;
    c->n_outputs = g->n_outputs;
    c->n_inputs = g->n_inputs;
    c->passing.by_kernels = g->passes;
    memcpy(c->outputs, g->outputs, sizeof c->outputs);
    memcpy(c->inputs, g->inputs, sizeof c->inputs);
    TRY(cuda_inputs_send(c, step, err));
    TRY(cuda_ranks_meet(c, err));
    CUDA_TRY(c, c->d->cuGraphLaunch(g->exec, c->stream), "launching a graph");
    return ERR_OK;
}

static int run_list(struct cuda *c, const struct step *step, struct err *err) {
    TRY(cuda_step_open(c, step, err));
    cuda_step_layout(c, &c->key, &c->at);
    TRY(cuda_step_upload(c, step, err));
    if (c->key.gives) TRY(cuda_given_upload(c, step, err));
    TRY(prepare(c, err));
    TRY(cuda_inputs_send(c, step, err));
    bool wanted = !c->times && c->key.decode_only && cuda_graph_wanted(c, &c->key);
    if (c->times || (!wanted && !cuda_graph_at_once(c))) {
        TRY(cuda_ranks_meet(c, err));
        return launch_all(c, err);
    }
    struct cuda_graph *g;
    TRY(cuda_graph_build(c, &g, err));
    TRY(cuda_ranks_meet(c, err));
    CUDA_TRY(c, c->d->cuGraphLaunch(g->exec, c->stream), "launching a graph");
    return ERR_OK;
}

static int run_step(struct cuda *c, const struct step *step, struct err *err) {
    TRY(cuda_use(c, err));
    c->n_steps++;
    TRY(cuda_passing_begin(c, step, err));
    int code = c->replay ? replay(c, step, err) : run_list(c, step, err);
    cuda_passing_end(c, code);
    return code;
}

int cuda_end(struct backend *be, const struct step *step, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    int code = run_step(c, step, err);
    if (!code && !c->key.no_choice) code = cuda_results_send(c, err);
    if (!c->key.no_choice) c->passing.is_awaited = false; /* results are on their way behind it */
    return cuda_note_lost(c, cuda_ranks_result(c, code));
}

static int read_piece(struct cuda *c, CUdeviceptr from, size_t bytes, unsigned char *dst, struct err *err) {
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done < BOUNCE_BYTES ? bytes - done : BOUNCE_BYTES;
        CUDA_TRY(c, c->d->cuMemcpyDtoHAsync(c->bounce, from + done, n, c->stream), "reading a result");
        TRY(cuda_wait(c, err));
        memcpy(dst + done, c->bounce, n);
        done += n;
    }
    return ERR_OK;
}

static int read_output(struct cuda *c, struct tensor t, void *dst, struct err *err) {
    TRY(cuda_use(c, err));
    for (int32_t i = 0; i < c->n_outputs; i++) {
        if (c->outputs[i].id != t.id) continue;
        CUdeviceptr from = c->scratch + (size_t)c->outputs[i].offset + (size_t)t.offset * 4;
        size_t row = (size_t)tensor_row_size(t) * 4;
        if (t.row_stride == tensor_row_size(t) && tensor_rows_dense(t)) return read_piece(c, from, row * (size_t)t.rows, dst, err);
        for (int64_t r = 0; r < t.rows; r++)
            for (int64_t h = 0; h < t.heads; h++)
                TRY(read_piece(c, from + (size_t)(r * t.row_stride + h * t.head_stride) * 4, (size_t)t.width * 4,
                               (unsigned char *)dst + (size_t)(r * t.heads + h) * (size_t)t.width * 4, err));
        return ERR_OK;
    }
    return err_set(err, ERR_EINTERNAL, "value %d is no output of the last step", t.id);
}

int cuda_read(struct backend *be, struct tensor t, void *dst, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    return cuda_note_lost(c, read_output(c, t, dst, err));
}
