/* Attention of decode rows with what stands before it as one instruction: [NORM] [ROPE] [NORM] [ROPE] KV_WRITE ATTN. */
#include "backend/cuda/decode/decode.h"

enum { STEP_SPLIT = 256, STEP_SPLITS_MAX = 32, STEP_SINGLE_MAX = 1024, STEP_LONG = 1024, HEAD_BYTES = 4 * K_INSTR_BYTES + 2304 };

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

bool step_attention_find(const struct cuda *c, int32_t i, struct step_attention *out) {
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

static void place_args(const struct cuda *c, const struct step_attention *g, struct k_step_attn *a) {
    const struct op *ops = c->base.list.ops;
    const struct rope_args *r = &ops[g->ropes[0]].arg.rope;
    struct k_view q = cuda_view(c, before(c, g->norms[0], g->ropes[0])), k = cuda_view(c, before(c, g->norms[1], g->ropes[1])),
                  v = cuda_view(c, ops[g->write].in[1]);
    a->q = q.p, a->q_row = q.row_stride, a->q_head = q.head_stride;
    a->k = k.p, a->k_row = k.row_stride, a->k_head = k.head_stride;
    a->v = v.p, a->v_row = v.row_stride, a->v_head = v.head_stride;
    a->inv_freq = cuda_vec(r->inv_freq);
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

void step_attention_lower(struct cuda *c, const struct step_attention *g) {
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
