/* Which kernel runs an op: a table of rows, best first within a kind, the reference row last. Lowering walks the list and asks it. */
#include "backend/cuda/cuda.h"

enum { FEW_ROWS = 16 };

static bool always(const struct cuda *c, const struct op *op) {
    (void)c, (void)op;
    return true;
}

static bool attn_ref_fits(const struct cuda *c, const struct op *op) {
    const struct kv_class *k = &c->layout.classes[op->arg.attn.kv.kv_class];
    return k->k_width <= 576 && op->out[0].width <= 576 && op->n_in < 3;
}

static bool attn_relative_fits(const struct cuda *c, const struct op *op) {
    const struct kv_class *k = &c->layout.classes[op->arg.attn.kv.kv_class];
    int32_t dtype = cuda_kv_dtype(c, k);
    return op->n_in == 3 && (dtype == K_F32 || dtype == K_BF16) && k->k_width <= 256 && op->out[0].width <= 256;
}

static bool attn_more_fits(const struct cuda *c, const struct op *op) {
    int32_t dtype = cuda_kv_dtype(c, &c->layout.classes[op->arg.attn.kv.kv_class]),
            more = cuda_kv_dtype(c, &c->layout.classes[op->arg.attn.more.kv_class]);
    return (dtype == K_F32 || dtype == K_BF16) && more == dtype && op->in[0].width <= 512;
}

static bool attn_rows_fits(const struct cuda *c, const struct op *op) {
    (void)c;
    return op->in[0].width <= 256 && op->in[2].width <= 256;
}

/* Products in f32 without tensor cores: as quick as memory for few rows, and slow for many. */
static bool few_rows_fit(const struct cuda *c, const struct op *op) {
    return op->in[0].rows <= FEW_ROWS && cuda_linear_few_fits(c, op);
}

static bool rope_fits(const struct cuda *c, const struct op *op) {
    (void)c;
    return op->arg.rope.n_rotated <= 1024;
}

static bool route_fits(const struct cuda *c, const struct op *op) {
    return op->in[0].width * 3 * (int32_t)sizeof(float) <= c->gpu->shared_max && op->arg.route.n_groups <= op->in[0].width;
}

static bool delta_fits(const struct cuda *c, const struct op *op) {
    return (op->arg.delta.k_width * 35 + 160) * (int32_t)sizeof(float) <= c->gpu->shared_max;
}

static bool lightning_fits(const struct cuda *c, const struct op *op) {
    return (op->arg.lightning.width * 34 + 160) * (int32_t)sizeof(float) <= c->gpu->shared_max;
}

static bool exchange_fits(const struct cuda *c, const struct op *op) {
    return (op->in[0].width * 37 + 160) * (int32_t)sizeof(float) <= c->gpu->shared_max;
}

static bool mlstm_fits(const struct cuda *c, const struct op *op) {
    return (op->in[0].width * 2 + 160) * (int32_t)sizeof(float) <= c->gpu->shared_max;
}

static bool ssd_fits(const struct cuda *c, const struct op *op) {
    (void)c;
    return op->arg.ssd.state_width <= 256;
}

static bool scan_fits(const struct cuda *c, const struct op *op) {
    (void)c;
    return op->arg.scan.state_width <= 256;
}

const struct select_row cuda_select_rows[] = {
    {OP_EMBED, "embed", always, lower_embed, false},
    {OP_INPUT, "input", always, lower_input, false},
    {OP_ADAPT, "adapt", always, lower_adapt, false},
    {OP_LINEAR, "step", step_linear_fits, lower_step_linear, false},
    {OP_LINEAR, "qmv", qmv_fits, lower_qmv, false},
    {OP_LINEAR, "wqmm", cuda_wqmm_fits, lower_wqmm, false},
    {OP_LINEAR, "qmm", qmm_fits, lower_qmm, false},
    {OP_LINEAR, "gemm_bytes", gemm_bytes_fit, lower_gemm_bytes, false},
    {OP_LINEAR, "gemm", gemm_fits, lower_gemm, false},
    {OP_LINEAR, "linear_few", few_rows_fit, lower_linear_few, false},
    {OP_LINEAR, "linear_many", cuda_linear_few_fits, lower_linear_few, true},
    {OP_LINEAR, "linear_ref", always, lower_linear_ref, true},
    {OP_HEAD_LINEAR, "head_qmv", qmv_heads_fit, lower_head_qmv, false},
    {OP_HEAD_LINEAR, "head_gemm", gemm_heads_fit, lower_head_gemm, false},
    {OP_HEAD_LINEAR, "linear_ref", always, lower_linear_ref, true},
    {OP_NORM, "norm", always, lower_norm, false},
    {OP_ADD_NORM, "add_norm", always, lower_add_norm, false},
    {OP_ADD, "add", always, lower_add, false},
    {OP_ACT, "act", always, lower_act, false},
    {OP_GLU, "glu", always, lower_glu, false},
    {OP_MULVEC, "mulvec", always, lower_mulvec, false},
    {OP_ROPE, "rope", rope_fits, lower_rope, false},
    {OP_KV_WRITE, "kv_write", always, lower_kv_write, false},
    {OP_PICK, "pick", attn_pick_fits, lower_pick, false},
    {OP_ATTN, "attn_decode + attn_flash", attn_fast_fits, lower_attn_fast, false},
    {OP_ATTN, "attn_latent", attn_latent_fits, lower_attn_latent, false},
    {OP_ATTN, "attn_ref", attn_ref_fits, lower_attn_ref, true},
    {OP_ATTN, "attn_relative", attn_relative_fits, lower_attn_relative, true},
    {OP_GIVEN, "given", always, lower_given, false},
    {OP_POOL_ROWS, "pool_rows", always, lower_pool_rows, false},
    {OP_ATTN_ROWS, "attn_rows_flash", attn_rows_flash_fits, lower_attn_rows_flash, false},
    {OP_ATTN_ROWS, "attn_rows", attn_rows_fits, lower_attn_rows, true},
    {OP_ROUTE, "route", route_fits, lower_route, false},
    {OP_PASSING, "passing", always, lower_passing, false},
    {OP_EXPERTS, "experts", experts_fit, lower_experts, false},
    {OP_EXPERTS, "experts_ref", always, lower_experts_ref, true},
    {OP_CONV, "conv", always, lower_conv, false},
    {OP_DELTA, "delta", delta_fits, lower_delta, false},
    {OP_SSD, "ssd", ssd_fits, lower_ssd, false},
    {OP_SCAN, "scan", scan_fits, lower_scan, false},
    {OP_LIGHTNING, "lightning", lightning_fits, lower_lightning, false},
    {OP_LRU, "lru", always, lower_lru, false},
    {OP_WKV, "wkv", always, lower_wkv, false},
    {OP_EXCHANGE, "exchange", exchange_fits, lower_exchange, false},
    {OP_MLSTM, "mlstm", mlstm_fits, lower_mlstm, true},
    {OP_COMPRESS, "compress", always, lower_compress, false},
    {OP_ATTN_MORE, "attn_more", attn_more_fits, lower_attn_more, true},
    {OP_BLEND, "blend", always, lower_blend, false},
    {OP_SUM, "ranks_sum", always, lower_sum, false},
    {OP_GATHER, "ranks_gather", always, lower_gather, false},
    {OP_CONCAT, "concat", always, lower_concat, false},
    {OP_ROWS, "rows", always, lower_rows, false},
    {OP_ARGMAX, "argmax", always, lower_argmax, false},
    {OP_CHOOSE, "choose", choose_fits, lower_choose, false},
    {OP_TERMS, "terms", always, lower_terms, false},
    {OP_TERMS_SUM, "terms_sum", always, lower_terms_sum, false},
    {.name = NULL},
};

const struct select_row *cuda_select(const struct cuda *c, const struct op *op) {
    if (c->forced && c->forced->kind == op->kind && c->forced->fits(c, op)) return c->forced;
    for (const struct select_row *row = cuda_select_rows; row->name; row++)
        if (row->kind == op->kind && row->fits(c, op)) return row;
    return NULL;
}

/* ---- element types ------------------------------------------------------------------------------------------------ */

/* Kinds whose kernels can store their result as f32 or bf16. */
static bool stores_bf16(enum op_kind kind) {
    return kind == OP_NORM || kind == OP_ADD_NORM || kind == OP_GLU || kind == OP_ACT || kind == OP_ATTN || kind == OP_ATTN_ROWS ||
           kind == OP_MULVEC;
}

/* Whether this op rounds its input to bf16 anyway, or is a small part of a product that does. The router's product and wide ones do not, so what they read
 * stays in f32. */
static bool reads_as_bf16(const struct oplist *l, const struct op *op) {
    if (op->kind == OP_ADAPT) return true;
    if ((op->kind != OP_LINEAR && op->kind != OP_HEAD_LINEAR) || op->arg.linear.wide) return false;
    return l->ops[l->values[op->out[0].id - 1].last_op].kind != OP_ROUTE;
}

static void set_dtype(struct oplist *l, int32_t id, enum dtype dt) {
    l->values[id - 1].dtype = dt;
}

void cuda_choose_dtypes(struct cuda *c) {
    struct oplist *l = &c->base.list;
    if (c->exact) return;
    for (int32_t i = 0; i < l->n_ops; i++)
        if (stores_bf16(l->ops[i].kind)) {
            const struct op *op = &l->ops[i];
            int32_t id = op->out[op->n_out - 1].id; /* of ADD_NORM the norm: the sum stays f32 */
            if (!l->values[id - 1].is_output) set_dtype(l, id, DT_BF16);
        }
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        if (reads_as_bf16(l, op)) continue;
        for (int32_t k = 0; k < op->n_in; k++)
            if (l->values[op->in[k].id - 1].dtype == DT_BF16) set_dtype(l, op->in[k].id, DT_F32);
    }
}

/* ---- lowering ----------------------------------------------------------------------------------------------------- */

/* Launches from `first` on are of this op. */
static void note_launches(struct program *p, int32_t first, int32_t op, bool is_slow) {
    for (int32_t i = first; i < p->n_launches; i++) p->launches[i].op = op, p->launches[i].is_slow = is_slow;
}

int cuda_lower(struct cuda *c, struct err *err) {
    struct oplist *l = &c->base.list;
    struct program *p = &c->program;
    p->n_launches = 0;
    p->args_used = 0;
    c->op_scratch_need = 0;
    c->lower_code = CUDA_SUCCESS;
    c->dequantised_need = 0;
    c->places.need = 0;
    p->n_loans = p->first_open = p->loan_end = 0;
    p->bytes_before = 0;
    for (int32_t i = 0; i < c->layout.n_classes; i++) c->kv[i].guest = -1;
    c->i_dequantised = 0;
    c->carrier = -1;
    cuda_pass_inputs(c);
    note_launches(p, 0, 0, false);
    for (int32_t i = 0, n, i_group = 0; i < l->n_ops; i += n) {
        int32_t first = p->n_launches;
        bool is_slow = false;
        bool is_group = i_group < c->n_groups && c->groups[i_group].first == i;
        n = is_group ? c->groups[i_group].n : 1;
        cuda_borrow(c, i, n);
        cuda_fetch_cache(c, i, n);
        if (is_group) {
            cuda_lower_group(c, &c->groups[i_group++]);
        } else if (!cuda_op_is_empty(&l->ops[i])) {
            const struct select_row *row = cuda_select(c, &l->ops[i]);
            if (!row)
                return err_set(err, ERR_EUNSUPPORTED, "the CUDA backend has no kernel for the op \"%s\" of this shape; use --device cpu",
                               op_name(l->ops[i].kind));
            row->lower(c, &l->ops[i]);
            is_slow = row->is_slow;
        }
        cuda_return_cache(c, i, n);
        cuda_borrow_done(c);
        note_launches(p, first, i, is_slow);
    }
    int32_t behind = p->n_launches;
    cuda_tell_chosen(c);
    cuda_pass_outputs(c);
    note_launches(p, behind, l->n_ops - 1, false);
    return cuda_check(c->d, c->lower_code, err, "describing a matrix to the copy engine");
}
