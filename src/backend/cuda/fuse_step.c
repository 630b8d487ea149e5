/* Instructions of decode steps: runs of ops that kernels/step.cu makes in one go.
 *
 * Two kinds. A product with what stands around it: [ROWS] [NORM] LINEAR [GLU or ADD]. And attention of decode rows with what stands before
 * it: [NORM] [ROPE] [NORM] [ROPE] KV_WRITE ATTN. Which ops join is decided by shapes and readers alone: what lies between them is read by
 * nobody else. A list without such runs is lowered as ever. */
#include "backend/cuda/fuse_step.h"

enum { STEP_THREADS = 512, STEP_SPLIT = 256, STEP_SPLITS_MAX = 32, STEP_SINGLE_MAX = 1024, STEP_LONG = 1024 };
enum { HEAD_BYTES = 4 * K_INSTR_BYTES + 2304, RED_BYTES = 8192 * 4, RED_BYTES_SMALL = 4096 * 4 }; /* of kernels/step.cu */

static_assert(sizeof(struct k_instr) == K_INSTR_BYTES, "an instruction has its room");

bool cuda_step_small(const struct cuda *c) {
    return !c->exact && !c->no_fuse && c->gpu->functions[KERNEL_step_run] && c->key.n_rows <= STEP_ROWS;
}

/* ---- products ------------------------------------------------------------------------------------------------------ */

/* As kernels/step.cu: sums of warps, their rings of units, sums of x, x. */
static size_t linear_shared_bytes(const struct cuda *c, const struct weight *w, int32_t rows) {
    bool is_plain = w->format.mode == QUANT_NONE, is_small = cuda_has_small_shared(c);
    size_t slot = is_plain ? 2048 : w->format.group == 32 ? 2 * 640 : 2 * 576, depth = is_small ? 2 : is_plain ? 3 : 4;
    size_t ring = STEP_THREADS / 32 * depth * slot;
    size_t sums = w->format.mode == QUANT_NONE ? 0 : (size_t)rows * (size_t)w->in / (w->format.group == 32 ? 32 : 64) * 4 + 16;
    return HEAD_BYTES + (is_small ? RED_BYTES_SMALL : RED_BYTES) + ring + sums + (size_t)rows * ((size_t)w->in + 32) * 2;
}

bool step_is_even(struct tensor t) {
    return t.row_stride % 8 == 0 && t.offset % 8 == 0;
}

bool step_linear_fits(const struct cuda *c, const struct op *op) {
    if (!cuda_step_small(c) || op->kind != OP_LINEAR || !cuda_may_round(c, op)) return false;
    const struct weight *w = op->arg.linear.weight;
    bool is_bf16 = w->format.mode == QUANT_NONE && w->format.dtype == DT_BF16;
    return op->in[0].rows <= STEP_ROWS && (is_bf16 || cuda_weight_args(w).tile_bytes) && w->n_experts == 1 && w->in % 64 == 0 &&
           step_is_even(op->in[0]) && linear_shared_bytes(c, w, op->in[0].rows) <= (size_t)c->gpu->shared_max;
}

/* Indices of the ops of a product's instruction; -1: not there. */
struct product {
    int32_t rows, norm, linear, glu, add, size;
};

bool step_is_row_norm(const struct op *op) {
    const struct norm_args *n = &op->arg.norm;
    return op->kind == OP_NORM && op->n_in == 1 && op->in[0].heads == 1 && n->kind == NORM_RMS && !n->bias && !n->per_head &&
           n->gate == GATE_NONE;
}

int step_other_summand(struct tensor y, const struct op *add) {
    if (add->kind != OP_ADD || add->in[0].id == add->in[1].id) return -1;
    for (int i = 0; i < 2; i++) {
        struct tensor t = add->in[i], other = add->in[1 - i];
        if (t.id == y.id && cuda_same_view(t, y) && other.heads == 1 && other.width == y.width && other.rows == y.rows) return 1 - i;
    }
    return -1;
}

static bool find_product(const struct cuda *c, int32_t i, struct product *out) {
    const struct oplist *l = &c->base.list;
    *out = (struct product){-1, -1, -1, -1, -1, 0};
    int32_t j = i;
    if (l->ops[j].kind == OP_ROWS && j + 2 < l->n_ops && step_is_row_norm(&l->ops[j + 1]) && step_is_even(l->ops[j].in[0]) &&
        cuda_same_view(l->ops[j + 1].in[0], l->ops[j].out[0]) && cuda_read_only_by(c, l->ops[j].out[0], j + 1))
        out->rows = j++;
    if (j + 1 < l->n_ops && step_is_row_norm(&l->ops[j]) && l->ops[j + 1].kind == OP_LINEAR && step_is_even(l->ops[j].in[0]) &&
        cuda_same_view(l->ops[j + 1].in[0], l->ops[j].out[0]) && cuda_read_only_by(c, l->ops[j].out[0], j + 1))
        out->norm = j++;
    if ((out->rows >= 0 && out->norm < 0) || !step_linear_fits(c, &l->ops[j])) return false;
    out->linear = j++;
    const struct op *linear = &l->ops[out->linear];
    if (j < l->n_ops && cuda_read_only_by(c, linear->out[0], j)) {
        if (cuda_is_halves(linear, &l->ops[j]) && l->ops[j].out[0].width % 16 == 0) out->glu = j++;
        else if (step_other_summand(linear->out[0], &l->ops[j]) >= 0) out->add = j++;
    }
    out->size = j - i;
    return true;
}

int32_t step_count_reads(const struct cuda *c, struct tensor t) {
    const struct oplist *l = &c->base.list;
    if (l->values[t.id - 1].is_output) return -1;
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_ops; i++)
        for (int32_t k = 0; k < l->ops[i].n_in; k++) n += l->ops[i].in[k].id == t.id;
    return n;
}

void step_emit(struct cuda *c, const struct k_instr *in, unsigned int blocks, size_t shared_bytes) {
    struct k_step_run run = {.barrier = c->counters, .n = 1, .one = *in};
    EMIT(c, KERNEL_step_run, GRID(blocks, 1, 1), STEP_THREADS, (unsigned int)shared_bytes, run);
}

void step_put_norm(struct k_step_linear *a, const struct op *norm) {
    const struct norm_args *n = &norm->arg.norm;
    a->has_norm = 1;
    a->norm = cuda_vec(n->weight);
    a->eps = n->eps;
    a->norm_offset = n->weight_offset;
}

void step_put_residual(const struct cuda *c, struct k_step_linear *a, const struct op *add, int other) {
    struct k_view r = cuda_view(c, add->in[other]);
    a->residual = r.p;
    a->residual_stride = r.row_stride;
    a->residual_scale = other == 0 ? add->arg.add.a_scale : add->arg.add.b_scale;
    a->own_scale = other == 0 ? add->arg.add.b_scale : add->arg.add.a_scale;
}

void step_share_tiles(const struct cuda *c, struct k_step_linear *a, int64_t n_tiles) {
    a->n_tiles = (int32_t)n_tiles;
    a->tiles_each = a->n_tiles / c->gpu->n_sm;
    a->tiles_more = a->n_tiles % c->gpu->n_sm;
}

static void lower_product(struct cuda *c, const struct product *p) {
    const struct op *ops = c->base.list.ops, *linear = &ops[p->linear];
    const struct weight *w = linear->arg.linear.weight;
    const struct op *last = &ops[p->glu >= 0 ? p->glu : p->add >= 0 ? p->add : p->linear];
    struct k_view x = cuda_view(c, ops[p->rows >= 0 ? p->rows : p->norm >= 0 ? p->norm : p->linear].in[0]), y = cuda_view(c, last->out[0]);
    struct k_instr in = {.kind = K_STEP_LINEAR, .reads = step_count_reads(c, last->out[0])};
    struct k_step_linear *a = &in.u.linear;
    *a = (struct k_step_linear){
        .w = cuda_weight_args(w),
        .bias = cuda_vec(linear->arg.linear.bias),
        .x = x.p,
        .x_rows = p->rows >= 0 ? cuda_step_array(c, c->at.wanted_rows) : 0,
        .x_stride = x.row_stride,
        .x_dtype = x.dtype,
        .y = y.p,
        .y_stride = y.row_stride,
        .y_dtype = y.dtype,
        .rows = linear->in[0].rows,
        .own_scale = 1,
        .inv_in = 1.0f / (float)w->in,
    };
    if (p->norm >= 0) step_put_norm(a, &ops[p->norm]);
    if (p->glu >= 0) {
        a->glu_inner = last->out[0].width;
        a->act = cuda_act(&last->arg.act);
    }
    if (p->add >= 0) step_put_residual(c, a, last, step_other_summand(linear->out[0], last));
    step_share_tiles(c, a, p->glu >= 0 ? a->glu_inner / 16 : ceil_div(w->out, 16));
    step_emit(c, &in, (unsigned int)c->gpu->n_sm, linear_shared_bytes(c, w, a->rows));
}

void lower_step_linear(struct cuda *c, const struct op *op) {
    lower_product(c, &(struct product){-1, -1, (int32_t)(op - c->base.list.ops), -1, -1, 1});
}

/* ---- attention ------------------------------------------------------------------------------------------------------ */

/* Indices of the ops; -1: not there. */
struct attention {
    int32_t norms[2], ropes[2], write, attn, size; /* of queries, of keys */
};

static bool is_head_norm(const struct op *op) {
    const struct norm_args *n = &op->arg.norm;
    return op->kind == OP_NORM && op->n_in == 1 && n->kind == NORM_RMS && !n->bias && !n->per_head && n->gate == GATE_NONE;
}

int32_t cuda_take_place(const struct cuda *c, int32_t j, int32_t *norm, int32_t *rope, struct tensor *t) {
    const struct oplist *l = &c->base.list;
    *norm = *rope = -1;
    *t = (struct tensor){0};
    if (j < l->n_ops && is_head_norm(&l->ops[j])) {
        *t = l->ops[j].out[0];
        *norm = j++;
    }
    bool follows = j < l->n_ops && l->ops[j].kind == OP_ROPE && !cuda_turns_by_axes(c, &l->ops[j].arg.rope) &&
                   (!tensor_is(*t) || (cuda_same_view(l->ops[j].in[0], *t) && cuda_read_only_by(c, *t, j)));
    if (follows) {
        *t = l->ops[j].out[0];
        *rope = j++;
    }
    return j;
}

/* What the queries or keys of the run are before it. */
static struct tensor before(const struct cuda *c, int32_t norm, int32_t rope) {
    return c->base.list.ops[norm >= 0 ? norm : rope].in[0];
}

/* The most positions that a row of this step can see, rounded up as graphs are. */
static int32_t visible_most(const struct cuda *c, int32_t window, int32_t chunk) {
    int32_t len = cuda_length_bucket(c->key.max_len);
    if (window > 0 && window < len) len = window;
    return chunk > 0 && chunk < len ? chunk : len;
}

static bool find_attention(const struct cuda *c, int32_t i, struct attention *out) {
    const struct oplist *l = &c->base.list;
    struct tensor q, k;
    if (c->n_tiles || c->n_decode != c->key.n_rows) return false;
    int32_t j = cuda_take_place(c, i, &out->norms[0], &out->ropes[0], &q);
    j = cuda_take_place(c, j, &out->norms[1], &out->ropes[1], &k);
    if (j + 1 >= l->n_ops || out->ropes[0] < 0 || out->ropes[1] < 0) return false;
    const struct op *write = &l->ops[j], *attn = &l->ops[j + 1];
    if (write->kind != OP_KV_WRITE || attn->kind != OP_ATTN || write->n_in != 2 || attn->arg.attn.slopes || attn->arg.attn.both_ways)
        return false;
    if (memcmp(&l->ops[out->ropes[0]].arg.rope, &l->ops[out->ropes[1]].arg.rope, sizeof(struct rope_args)) != 0) return false;
    if (memcmp(&write->arg.kv.kv, &attn->arg.attn.kv, sizeof(struct kv_ref)) != 0) return false;
    if (!cuda_same_view(write->in[0], k) || !cuda_read_only_by(c, k, j) || !cuda_same_view(attn->in[0], q) ||
        !cuda_read_only_by(c, q, j + 1))
        return false;
    const struct kv_class *kv = &c->layout.classes[write->arg.kv.kv.kv_class];
    int32_t d = kv->k_width, group = q.heads / kv->heads;
    struct tensor from_q = before(c, out->norms[0], out->ropes[0]), from_k = before(c, out->norms[1], out->ropes[1]), v = write->in[1];
    bool shapes = !cuda_kv_is_f32(c, kv) && (d == 64 || d == 128 || d == 256) && kv->v_width == d && attn->out[0].width == d &&
                  from_q.width == d && from_k.width == d && v.width == d && from_k.heads == kv->heads && v.heads == kv->heads &&
                  group >= 1 && group <= 8 && group * kv->heads == q.heads && attn->out[0].head_stride == d &&
                  (int64_t)c->key.n_rows * q.heads < COUNTERS - COUNTERS_FIRST;
    /* several rows with much to read are quicker in kernels/decode.cu; one row would lose the list that it is a part of */
    bool is_long = c->key.n_rows > 1 && visible_most(c, attn->arg.attn.window, attn->arg.attn.chunk) > STEP_LONG;
    bool f32 = l->values[from_q.id - 1].dtype == DT_F32 && l->values[from_k.id - 1].dtype == DT_F32 && l->values[v.id - 1].dtype == DT_F32;
    out->write = j;
    out->attn = j + 1;
    out->size = j + 2 - i;
    return shapes && f32 && !is_long;
}

static void place_args(const struct cuda *c, const struct attention *g, struct k_step_attn *a) {
    const struct op *ops = c->base.list.ops;
    const struct rope_args *r = &ops[g->ropes[0]].arg.rope;
    struct k_view q = cuda_view(c, before(c, g->norms[0], g->ropes[0])), k = cuda_view(c, before(c, g->norms[1], g->ropes[1])),
                  v = cuda_view(c, ops[g->write].in[1]);
    a->q = q.p, a->q_row = q.row_stride, a->q_head = q.head_stride;
    a->k = k.p, a->k_row = k.row_stride, a->k_head = k.head_stride;
    a->v = v.p, a->v_row = v.row_stride, a->v_head = v.head_stride;
    a->inv_freq = cuda_vec(r->inv_freq);
    a->rope_pos = cuda_rope_pos(c, r);
    a->step_rope = cuda_step_array(c, c->at.rope);
    a->rope_kind = (int32_t)r->kind;
    a->rope_first = r->first;
    a->n_rotated = r->n_rotated;
    a->table = r->table;
    a->n_rope_tables = c->n_rope_tables;
    a->rope_width = c->rope_width;
    a->magnitude = r->magnitude;
    a->has_q_norm = g->norms[0] >= 0;
    a->has_k_norm = g->norms[1] >= 0;
    if (a->has_q_norm) {
        const struct norm_args *n = &ops[g->norms[0]].arg.norm;
        a->q_norm = cuda_vec(n->weight), a->q_eps = n->eps, a->q_offset = n->weight_offset;
    }
    if (a->has_k_norm) {
        const struct norm_args *n = &ops[g->norms[1]].arg.norm;
        a->k_norm = cuda_vec(n->weight), a->k_eps = n->eps, a->k_offset = n->weight_offset;
    }
}

/* Runs of at least STEP_SPLIT positions, as many as there are blocks for. One row with few positions has a block for every query head where
 * there are enough of them; many positions: a cached head is read once for all of its query heads. */
static void share_attention(const struct cuda *c, struct k_step_attn *a) {
    int32_t len = visible_most(c, a->window, a->chunk), most = c->gpu->n_sm / (a->rows * a->c.heads);
    int32_t splits = (int32_t)ceil_div(len, STEP_SPLIT);
    if (splits > most) splits = most;
    if (splits > STEP_SPLITS_MAX) splits = STEP_SPLITS_MAX;
    a->splits = splits < 1 ? 1 : splits;
    a->per_item = len <= STEP_SINGLE_MAX && a->c.heads * a->group * a->splits <= c->gpu->n_sm ? 1 : a->group;
    a->sets = (int32_t)ceil_div(a->group, a->per_item);
}

static void lower_attention(struct cuda *c, const struct attention *g) {
    const struct op *attn = &c->base.list.ops[g->attn];
    const struct attn_args *t = &attn->arg.attn;
    struct k_view y = cuda_view(c, attn->out[0]);
    struct k_instr in = {.kind = K_STEP_ATTN, .reads = step_count_reads(c, attn->out[0])};
    struct k_step_attn *a = &in.u.attn;
    *a = (struct k_step_attn){
        .c = cuda_cache(c, t->kv),
        .y = y.p,
        .y_row = y.row_stride,
        .y_dtype = y.dtype,
        .sinks = cuda_vec(t->sinks),
        .pos = cuda_step_array(c, c->at.pos),
        .seq_of = cuda_step_array(c, c->at.seq_of),
        .counters = c->counters + COUNTERS_FIRST * sizeof(uint32_t),
        .scale = t->scale,
        .softcap = t->softcap,
        .pos_scale_beta = t->pos_scale_beta,
        .window = t->window,
        .chunk = t->chunk,
        .pos_scale_len = t->pos_scale_len,
        .pos_scale_first = t->pos_scale_first,
        .group = attn->in[0].heads / c->kv[t->kv.kv_class].shape.heads,
        .rows = attn->in[0].rows,
    };
    place_args(c, g, a);
    share_attention(c, a);
    size_t used = 0, d = (size_t)a->c.k_width, heads = (size_t)a->group, warps = 16 / ((heads + 1) / 2);
    if (a->splits > 1)
        a->partial = cuda_op_scratch(c, &used, (size_t)a->rows * (size_t)attn->in[0].heads * (size_t)a->splits * (d + 2) * sizeof(float));
    size_t shared_bytes = HEAD_BYTES + ((heads + 2) * d + heads * warps * (d + 2)) * sizeof(float);
    step_emit(c, &in, (unsigned int)(a->rows * a->c.heads * a->splits), shared_bytes);
}

/* ---- both ------------------------------------------------------------------------------------------------------------ */

int32_t cuda_step_size(const struct cuda *c, int32_t i) {
    struct product p;
    struct attention g;
    if (!cuda_step_small(c)) return 0;
    int32_t n_experts = step_experts_size(c, i);
    if (n_experts) return n_experts;
    if (find_product(c, i, &p)) return p.size;
    return find_attention(c, i, &g) ? g.size : 0;
}

void cuda_step_lower(struct cuda *c, int32_t i) {
    struct product p;
    struct attention g;
    if (step_experts_size(c, i)) step_experts_lower(c, i);
    else if (find_product(c, i, &p)) lower_product(c, &p);
    else if (find_attention(c, i, &g)) lower_attention(c, &g);
}
