/* Attention of decode rows with what stands before it as one instruction: [NORM] [ROPE] [NORM] [ROPE] KV_WRITE ATTN. */
#include "backend/cuda/decode/decode.h"

enum { STEP_RUN = 256, STEP_SPLITS_MAX = 32, STEP_SINGLE_RUNS = 8, STEP_LONG = 1024, STEP_LONG_FEW = 4096 };

/* The most positions that a row of this step can see; lengths are rounded up to the bucket of the step's graph. */
static int32_t visible_most(const struct cuda *c, int32_t window, int32_t chunk) {
    int32_t len = cuda_length_bucket(c->key.max_len);
    if (window > 0 && window < len) len = window;
    return chunk > 0 && chunk < len ? chunk : len;
}

/* A cache of 8 bits: several rows, and wide heads, are for kernels/decode8.cu. */
static bool dtype_fits(const struct cuda *c, const struct kv_class *kv) {
    enum k_dtype dtype = cuda_kv_dtype(c, kv);
    int32_t d = kv->k_width;
    if (dtype == K_I8) return c->key.n_rows == 1 && (d == 64 || d == 128);
    return dtype == K_BF16 && (d == 64 || d == 128 || d == 256);
}

static bool shapes_fit(const struct cuda *c, const struct cuda_qkv *qkv, const struct op *attn) {
    const struct kv_class *kv = &c->layout.classes[attn->arg.attn.kv.kv_class];
    struct tensor q = qkv->from[0], k = qkv->from[1], v = qkv->from[2];
    int32_t d = kv->k_width, group = q.heads / kv->heads;
    bool is_f32 = true;
    for (int i = 0; i < 3; i++) is_f32 = is_f32 && c->base.list.values[qkv->from[i].id - 1].dtype == DT_F32;
    return is_f32 && dtype_fits(c, kv) && kv->v_width == d && attn->out[0].width == d && q.width == d && k.width == d && v.width == d &&
           k.heads == kv->heads && v.heads == kv->heads && group >= 1 && group <= 8 && group * kv->heads == q.heads &&
           attn->out[0].head_stride == d && (int64_t)c->key.n_rows * q.heads < COUNTERS - COUNTERS_FIRST;
}

int32_t step_attention_find(const struct cuda *c, int32_t i, struct step_attention *out) {
    const struct oplist *l = &c->base.list;
    if (!cuda_step_small(c) || c->n_tiles || c->n_decode != c->key.n_rows) return 0;
    int32_t n = cuda_find_qkv(c, i, &out->qkv);
    if (!n || i + n >= l->n_ops) return 0;
    out->attn = i + n;
    const struct op *write = &l->ops[out->qkv.write], *attn = &l->ops[out->attn];
    if (attn->kind != OP_ATTN || attn->arg.attn.slopes || attn->arg.attn.both_ways || attn->arg.attn.of_pictures) return 0;
    if (memcmp(&write->arg.kv.kv, &attn->arg.attn.kv, sizeof(struct kv_ref)) != 0) return 0;
    if (!cuda_same_view(attn->in[0], out->qkv.q) || !cuda_read_only_by(c, out->qkv.q, out->attn)) return 0;
    /* kernels/decode.cu is quicker for several rows with long contexts; few rows stay here longer, because their list may have no gap */
    int32_t longest = c->key.n_rows == 1 ? INT32_MAX : c->key.n_rows <= LIST_ROWS ? STEP_LONG_FEW : STEP_LONG;
    bool is_long = visible_most(c, attn->arg.attn.window, attn->arg.attn.chunk) > longest;
    return shapes_fit(c, &out->qkv, attn) && !is_long ? n + 1 : 0;
}

/* Where queries, keys and values lie, and what is done with them before attention. */
static void put_qkv(const struct cuda *c, const struct cuda_qkv *g, struct k_step_attn *a) {
    const struct op *ops = c->base.list.ops;
    const struct rope_args *r = &ops[g->ropes[0]].arg.rope;
    struct k_view q = cuda_view(c, g->from[0]), k = cuda_view(c, g->from[1]), v = cuda_view(c, g->from[2]);
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

/* The most items that a row of a list has, by its number of runs. */
static int32_t most_items(const struct k_step_attn *a) {
    int32_t most = 0;
    for (int32_t runs = 1; runs <= a->splits; runs++) {
        int32_t n = a->c.heads * runs * (runs <= a->single ? a->group : 1);
        if (n > most) most = n;
    }
    return most;
}

/* Whether such a step may run as a list. Then a row's runs do not depend on the other rows, so that it has the same bits with and without them. */
static bool may_be_list(const struct cuda *c, int32_t rows) {
    if (rows <= LIST_FEW || rows > LIST_ROWS) return rows <= LIST_FEW;
    const struct oplist *l = &c->base.list;
    int32_t i = 0;
    while (i < l->n_ops && l->ops[i].kind != OP_LINEAR) i++;
    if (i == l->n_ops) return false;
    struct k_weight w = cuda_weight_args(l->ops[i].arg.linear.weight);
    return w.mode == K_AFFINE && w.tile_bytes && tile_runs(w.group) == 1;
}

/* Cuts the positions into runs of at least LIST_RUN (of a cache of 8 bits, and of more rows, STEP_RUN), at most one run for each block. With few runs each query head gets a block where there
 * are enough blocks. With many, or a cache of 8 bits, a block takes all query heads of a cached head, so that the cache is read once. */
static void share_attention(const struct cuda *c, struct k_step_attn *a) {
    bool is_list = may_be_list(c, a->rows);
    int32_t len = visible_most(c, a->window, a->chunk), most = c->gpu->n_sm / ((is_list ? 1 : a->rows) * a->c.heads);
    int32_t splits = (int32_t)ceil_div(len, is_list && a->c.dtype != K_I8 ? LIST_RUN : STEP_RUN);
    if (splits > most) splits = most;
    if (splits > STEP_SPLITS_MAX) splits = STEP_SPLITS_MAX;
    a->splits = splits < 1 ? 1 : splits;
    a->single = a->c.dtype == K_I8 ? 0 : c->gpu->n_sm / (a->c.heads * a->group);
    if (a->single > STEP_SINGLE_RUNS) a->single = STEP_SINGLE_RUNS;
    a->items = most_items(a);
}

void step_attention_lower(struct cuda *c, const struct step_attention *g) {
    const struct op *attn = &c->base.list.ops[g->attn];
    const struct attn_args *t = &attn->arg.attn;
    struct k_view y = cuda_view(c, attn->out[0]);
    struct k_instr in = {.kind = K_STEP_ATTN};
    struct step_values values = {.x = g->qkv.from[0], .k = g->qkv.from[1], .v = g->qkv.from[2], .y = attn->out[0]};
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
        ATTN_FIELDS(t),
        .group = attn->in[0].heads / c->kv[t->kv.kv_class].shape.heads,
        .rows = attn->in[0].rows,
    };
    put_qkv(c, &g->qkv, a);
    share_attention(c, a);
    bool is_8 = a->c.dtype == K_I8;
    size_t used = 0, d = (size_t)a->c.k_width, heads = (size_t)a->group, warps = STEP_WARPS / ((heads + 1) / 2), part = d + (is_8 ? 4 : 2);
    if (a->splits > 1)
        a->partial = cuda_op_scratch(c, &used, (size_t)a->rows * (size_t)attn->in[0].heads * (size_t)a->splits * part * sizeof(float));
    size_t sums = 2 * (size_t)list_sums(cuda_has_small_shared(c)) * sizeof(float); /* of lists: attention of 8 bits has its parts there */
    size_t shared_bytes = is_8 ? (size_t)list_head_bytes(1) + sums + (size_t)attn8_item_bytes((int)d)
                               : STEP_HEAD_BYTES + ((heads + 2) * d + heads * warps * part) * sizeof(float);
    step_emit(c, &in, &values, (unsigned int)(a->rows * a->c.heads * a->splits), shared_bytes);
}
