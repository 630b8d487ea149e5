/* The CPU backend: plans each op list and runs it op by op. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/tune.h"
#include "backend/fuse.h"
#include "os/cpu.h"
#include "os/os.h"

/* A kind without a runner is refused when a list with it is first run, by its name. */
static cpu_runner *const runners[N_OP_KINDS] = {
    [OP_EMBED] = cpu_run_embed,
    [OP_INPUT] = cpu_run_input,
    [OP_LINEAR] = cpu_run_linear,
    [OP_ADAPT] = cpu_run_adapt,
    [OP_HEAD_LINEAR] = cpu_run_head_linear,
    [OP_NORM] = cpu_run_norm,
    [OP_ADD_NORM] = cpu_run_add_norm,
    [OP_ADD] = cpu_run_add,
    [OP_ACT] = cpu_run_act,
    [OP_GLU] = cpu_run_glu,
    [OP_MULVEC] = cpu_run_mulvec,
    [OP_ROPE] = cpu_run_rope,
    [OP_CONCAT] = cpu_run_concat,
    [OP_ROWS] = cpu_run_rows,
    [OP_ARGMAX] = cpu_run_argmax,
    [OP_KV_WRITE] = cpu_run_kv_write,
    [OP_PICK] = cpu_run_pick,
    [OP_ATTN] = cpu_run_attn,
    [OP_ROUTE] = cpu_run_route,
    [OP_EXPERTS] = cpu_run_experts,
    [OP_CONV] = cpu_run_conv,
    [OP_DELTA] = cpu_run_delta,
    [OP_SSD] = cpu_run_ssd,
    [OP_SCAN] = cpu_run_scan,
    [OP_LIGHTNING] = cpu_run_lightning,
    [OP_LRU] = cpu_run_lru,
    [OP_WKV] = cpu_run_wkv,
    [OP_EXCHANGE] = cpu_run_exchange,
    [OP_MLSTM] = cpu_run_mlstm,
    [OP_COMPRESS] = cpu_run_compress,
    [OP_ATTN_MORE] = cpu_run_attn_more,
    [OP_BLEND] = cpu_run_blend,
    [OP_PASSING] = cpu_run_passing,
    [OP_GIVEN] = cpu_run_given,
    [OP_ATTN_ROWS] = cpu_run_attn_rows,
    [OP_POOL_ROWS] = cpu_run_pool_rows,
    [OP_SUM] = cpu_run_sum,
    [OP_GATHER] = cpu_run_gather,
};

static void cpu_close(struct backend *be) {
    struct cpu *c = (struct cpu *)be;
    cpu_kv_close(be);
    plan_free(&c->plan);
    oplist_free(&c->base.list);
    mem_free(c->thread_scratch);
    cpu_pages_free(be->device, c->acts, c->acts_bytes);
    mem_free(c->op_scratch);
    mem_free(c->rope_angles);
    cpu_pages_free(be->device, c->scratch, c->scratch_bytes);
    mem_free(c);
}

static int cpu_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err) {
    (void)err;
    struct cpu *c = mem_alloc(sizeof *c);
    c->base = (struct backend){.type = &cpu_backend,
                               .device = d,
                               .precision = options->precision,
                               .mixes_rows = true,
                               .adapts = true,
                               .gives = true,
                               .looks = true};
    c->base.takes_inputs = c->base.sums = true;
    c->device = (struct cpu_device *)d;
    c->pool = c->device->pool;
    c->no_fuse = options->no_fuse;
    c->kv_bits = options->kv_bits == 8 || options->kv_bits == 4 ? options->kv_bits : 0;
    c->base.kv_bits = c->kv_bits;
    kern_select(&c->kern, options->precision == PRECISION_EXACT ? 0 : cpu_flags());
    if (options->precision != PRECISION_EXACT) tune_kernels(&c->kern, &(struct tune){0});
    c->base.row_more = c->kern.row_more > 0 ? (double)c->kern.row_more : 0.25;
    *out = &c->base;
    return ERR_OK;
}

static int grow_scratch(struct cpu *c, struct err *err) {
    size_t need = (size_t)c->plan.bytes;
    if (need <= c->scratch_bytes) return ERR_OK;
    cpu_pages_free(c->base.device, c->scratch, c->scratch_bytes);
    c->scratch_bytes = 0;
    c->scratch = cpu_pages_alloc(c->base.device, need, "scratch memory of a step", err);
    if (!c->scratch) return err->code;
    c->scratch_bytes = need;
    return ERR_OK;
}

/* Scores of one row, or one dequantised weight row, per thread. */
static int64_t thread_floats(const struct cpu *c, const struct op *op) {
    int64_t most = 0;
    for (int32_t k = 0; k < op->n_in; k++)
        if (tensor_row_size(op->in[k]) * 2 > most) most = tensor_row_size(op->in[k]) * 2;
    if (op->kind == OP_ATTN) return most + c->layout.max_context + cpu_attn_half_floats(c, op);
    if (op->kind == OP_ATTN_ROWS) return most + cpu_attn_rows_floats(c, op);
    if (op->kind == OP_ATTN_MORE) return 2 * (int64_t)c->layout.max_context;
    if (op->kind == OP_PICK) return 2 * (int64_t)c->layout.max_context;
    if (op->kind == OP_ROUTE) return most * 2;
    if (op->kind == OP_DELTA) return 3 * op->arg.delta.k_width + op->arg.delta.v_width;
    if (op->kind == OP_SCAN) return 2 * op->arg.scan.state_width;
    if (op->kind == OP_EXPERTS) return most + op->arg.experts.inner;
    return most;
}

static int grow_thread_scratch(struct cpu *c, struct err *err) {
    int64_t need = 0;
    const struct oplist *l = &c->base.list;
    for (int32_t i = 0; i < l->n_ops; i++) {
        int64_t floats = thread_floats(c, &l->ops[i]);
        if (floats > need) need = floats;
    }
    if (need <= c->thread_floats) return ERR_OK;
    mem_free(c->thread_scratch);
    c->thread_floats = 0;
    c->thread_scratch = mem_try((size_t)need * sizeof(float) * (size_t)pool_threads(c->pool));
    if (!c->thread_scratch) return err_set(err, ERR_EMEMORY, "no memory for the scratch space of %d threads", pool_threads(c->pool));
    c->thread_floats = need;
    return ERR_OK;
}

static int grow_op_scratch(struct cpu *c, struct err *err) {
    int64_t need = 0;
    const struct oplist *l = &c->base.list;
    for (int32_t i = 0; i < l->n_ops; i++) {
        int64_t floats = l->ops[i].kind == OP_EXPERTS ? cpu_experts_scratch(&l->ops[i]) : 0;
        if (l->ops[i].kind == OP_GATHER) floats = cpu_gather_floats(&l->ops[i]);
        if (l->ops[i].kind == OP_ADAPT) floats = cpu_adapt_floats(&l->ops[i]);
        if (l->ops[i].kind == OP_KV_WRITE) floats = l->n_rows + 1;
        if (l->ops[i].kind == OP_ATTN_ROWS) floats = cpu_attn_rows_op_floats(c, &l->ops[i]);
        if (l->ops[i].kind == OP_ARGMAX) floats = cpu_argmax_floats(&l->ops[i]);
        if (l->ops[i].kind == OP_ATTN && cpu_in_blocks(c, &l->ops[i])) floats = cpu_attn_op_floats(c, &l->ops[i]);
        if (floats > need) need = floats;
    }
    if (need <= c->op_floats) return ERR_OK;
    mem_free(c->op_scratch);
    c->op_floats = 0;
    c->op_scratch = mem_try((size_t)need * sizeof(float));
    if (!c->op_scratch) return err_set(err, ERR_EMEMORY, "no memory for what an operation keeps of %d rows", l->n_rows);
    c->op_floats = need;
    return ERR_OK;
}

static int grow_acts(struct cpu *c, struct err *err) {
    size_t need = 0;
    const struct oplist *l = &c->base.list;
    for (int32_t i = 0; i < l->n_ops; i++) {
        size_t bytes = l->ops[i].kind == OP_LINEAR ? cpu_linear_acts_bytes(&l->ops[i]) : 0;
        if (l->ops[i].kind == OP_HEAD_LINEAR) bytes = cpu_head_acts_bytes(&l->ops[i]);
        if (l->ops[i].kind == OP_EXPERTS) bytes = cpu_experts_acts_bytes(&l->ops[i]);
        if (bytes > need) need = bytes;
    }
    if (need <= c->acts_bytes) return ERR_OK;
    cpu_pages_free(c->base.device, c->acts, c->acts_bytes);
    c->acts_bytes = 0;
    c->acts = cpu_pages_alloc(c->base.device, need, "quantised activations", err);
    if (!c->acts) return err->code;
    c->acts_bytes = need;
    return ERR_OK;
}

static int grow_rope(struct cpu *c, struct err *err) {
    int64_t need = 0;
    const struct oplist *l = &c->base.list;
    for (int32_t i = 0; i < l->n_ops; i++)
        if (l->ops[i].kind == OP_ROPE && cpu_rope_floats(&l->ops[i]) > need) need = cpu_rope_floats(&l->ops[i]);
    for (int i = 0; i < CPU_ROPE_TABLES; i++) c->rope_known[i] = false; /* a new step, new positions */
    if (need <= c->rope_floats) return ERR_OK;
    mem_free(c->rope_angles);
    c->rope_floats = 0;
    c->rope_angles = mem_try((size_t)need * sizeof(float) * CPU_ROPE_TABLES);
    if (!c->rope_angles) return err_set(err, ERR_EMEMORY, "no memory for the angles of %d rows", l->n_rows);
    c->rope_floats = need;
    return ERR_OK;
}

/* The ops from the i-th on that one pass does; 0: none. */
static int32_t group_at(const struct cpu *c, int32_t i) {
    return c->no_fuse ? 0 : cpu_heads_find(&c->base.list, i);
}

/* A pass may read any input of its ops after it wrote a result, so the inputs live to its end. */
static void extend_lives(struct cpu *c) {
    struct oplist *l = &c->base.list;
    for (int32_t i = 0, n; i < l->n_ops; i += n ? n : 1) {
        n = group_at(c, i);
        for (int32_t j = i; j < i + n; j++)
            for (int32_t k = 0; k < l->ops[j].n_in; k++) {
                struct value *v = &l->values[l->ops[j].in[k].id - 1];
                if (v->first_op < i && v->last_op < i + n - 1) v->last_op = i + n - 1;
            }
    }
}

static int prepare(struct cpu *c, struct err *err) {
    struct oplist *l = &c->base.list;
    if (l->err.code) return err_set(err, l->err.code, "%s", l->err.msg);
    for (int32_t i = 0; i < l->n_ops; i++)
        if (!runners[l->ops[i].kind])
            return err_set(err, ERR_EUNSUPPORTED, "the CPU backend has no kernel for the op \"%s\"", op_name(l->ops[i].kind));
    if (!c->no_fuse) fuse_list(l);
    extend_lives(c);
    plan_make(&c->plan, l);
    TRY(grow_scratch(c, err));
    TRY(grow_acts(c, err));
    TRY(grow_op_scratch(c, err));
    TRY(grow_rope(c, err));
    return grow_thread_scratch(c, err);
}

static int cpu_reserve(struct backend *be, struct err *err) {
    return prepare((struct cpu *)be, err);
}

static bool cpu_begin(struct backend *be, const struct step_key *key) {
    oplist_begin(&be->list, key->n_rows, key->n_logits + key->n_hidden);
    return true;
}

/* The LINEAR that comes after op i; after the last one the first, since the next step will be much like this one. */
static const struct op *next_linear(const struct oplist *l, int32_t i) {
    for (int32_t k = 1; k < l->n_ops; k++) {
        const struct op *op = &l->ops[(i + k) % l->n_ops];
        if (op->kind == OP_LINEAR) return op;
    }
    return NULL;
}

static void read_ahead(struct cpu *c, int32_t i) {
    const struct op *next = next_linear(&c->base.list, i);
    if (next) pool_read_ahead(c->pool, cpu_linear_ahead(c, next));
}

static int cpu_end(struct backend *be, const struct step *step, struct err *err) {
    struct cpu *c = (struct cpu *)be;
    TRY(prepare(c, err));
    err_clear(&c->failed);
    c->expected = NULL;
    cpu_device_enter(c->device);
    for (int32_t i = 0, n; i < be->list.n_ops && !c->failed.code; i += n ? n : 1) {
        const struct op *op = &be->list.ops[i];
        n = group_at(c, i);
        if (n) {
            cpu_run_heads(c, i, step);
            continue;
        }
        if (op->kind == OP_LINEAR) read_ahead(c, i);
        if (i + 1 < be->list.n_ops) cpu_linear_expect(c, op, op + 1);
        runners[op->kind](c, op, step);
    }
    cpu_device_leave(c->device);
    return c->failed.code ? err_set(err, c->failed.code, "%s", c->failed.msg) : ERR_OK;
}

static int cpu_read(struct backend *be, struct tensor t, void *dst, struct err *err) {
    (void)err;
    struct cpu *c = (struct cpu *)be;
    size_t head_bytes = (size_t)t.width * sizeof(float);
    for (int64_t r = 0; r < t.rows; r++)
        for (int64_t h = 0; h < t.heads; h++)
            memcpy((char *)dst + (size_t)(r * t.heads + h) * head_bytes, cpu_row(c, t, r) + h * t.head_stride, head_bytes);
    return ERR_OK;
}

static const float *cpu_view(struct backend *be, struct tensor t) {
    return t.heads == 1 && t.row_stride == t.width ? cpu_row((struct cpu *)be, t, 0) : NULL;
}

static void cpu_describe_backend(struct backend *be, struct sb *out) {
    struct cpu *c = (struct cpu *)be;
    sb_fmt(out, "cpu (%s, %s kernels, %d thread%s)", os_cpu_name(), c->kern.isa, pool_threads(c->pool),
           pool_threads(c->pool) == 1 ? "" : "s");
}

const struct backend_type cpu_backend = {
    .name = "cpu",
    .device_open = cpu_device_open,
    .device_close = cpu_device_close,
    .memory = cpu_device_memory,
    .each = cpu_device_each,
    .n_workers = cpu_device_workers,
    .open = cpu_open,
    .close = cpu_close,
    .weight_bind = cpu_weight_bind,
    .weight_release = cpu_weight_release,
    .weight_lend = cpu_weight_lend,
    .kv_number_bytes = cpu_kv_number_bytes,
    .kv_open = cpu_kv_open,
    .kv_close = cpu_kv_close,
    .kv_lend = cpu_kv_lend,
    .block_copy = cpu_block_copy,
    .slot_copy = cpu_slot_copy,
    .block_bytes = cpu_block_bytes,
    .block_read = cpu_block_read,
    .block_write = cpu_block_write,
    .slot_read = cpu_slot_read,
    .slot_write = cpu_slot_write,
    .begin = cpu_begin,
    .end = cpu_end,
    .reserve = cpu_reserve,
    .read = cpu_read,
    .view = cpu_view,
    .describe = cpu_describe_backend,
};
