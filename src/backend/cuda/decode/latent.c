/* Latent attention of a step of one row as three instructions of kernels/one_latent.cu: NORM ROPE CONCAT KV_WRITE HEAD_LINEAR ROPE CONCAT ATTN HEAD_LINEAR become queries in the space
 * of latents, attention, and results out of it. Only where the whole step is lowered as one list (cuda.one_list). */
#include "backend/cuda/decode/decode.h"

enum { TILES_OF_RUN = 4, RUNS_SHORT = 32 }; /* tiles of 32 positions of a run, at least, where there are more than RUNS_SHORT runs */

bool cuda_is_latent(const struct k_instr *in) {
    return in->kind == K_STEP_QUERIES || in->kind == K_STEP_LATENT || in->kind == K_STEP_VALUES;
}

/* ---- what joins ------------------------------------------------------------------------------------------------------ */

static bool is_stack(const struct weight *w, int32_t heads, int64_t out, int64_t in) {
    return w->n_experts == heads && w->out == out && w->in == in && in % 8 == 0 && !cuda_weight_args(w).tile_bytes;
}

/* Whether the op at i is of this kind, reads `in` as its n-th input, and makes what the op at j alone reads (j < 0: whoever). */
static bool continues(const struct cuda *c, int32_t i, enum op_kind kind, int n, struct tensor in, int32_t j) {
    const struct op *op = &c->base.list.ops[i];
    return op->kind == kind && n < op->n_in && cuda_same_view(op->in[n], in) && (j < 0 || cuda_read_only_by(c, op->out[0], j));
}

static bool ropes_suit(const struct cuda *c, const struct op *a, const struct op *b) {
    const struct rope_args *r = &a->arg.rope;
    return memcmp(r, &b->arg.rope, sizeof *r) == 0 && !r->shift && !r->first && r->n_rotated == LATENT_ROPE &&
           a->in[0].width == LATENT_ROPE && b->in[0].width == LATENT_ROPE && (r->kind == ROPE_HALF || r->kind == ROPE_PAIR) &&
           !cuda_turns_by_axes(c, r);
}

static bool norm_suits(const struct op *op) {
    return step_is_row_norm(op) && op->in[0].width == LATENT_VALUES;
}

static bool attn_suits(const struct cuda *c, const struct op *attn, const struct op *write) {
    const struct attn_args *t = &attn->arg.attn;
    const struct kv_class *kv = &c->layout.classes[t->kv.kv_class];
    return attn->n_in == 1 && write->n_in == 1 && memcmp(&write->arg.kv.kv, &t->kv, sizeof t->kv) == 0 && kv->heads == 1 &&
           kv->k_width == LATENT_WIDTH && kv->v_width == 0 && cuda_kv_dtype(c, kv) == K_BF16 && t->v_width == LATENT_VALUES && !t->sinks &&
           !t->slopes && !t->distances && !t->buckets && !t->softcap && !t->window && !t->chunk && !t->both_ways && !t->of_pictures;
}

static bool heads_suit(const struct cuda *c, const struct op *into, const struct op *out_of) {
    struct tensor q = into->in[0], y = out_of->out[0];
    int32_t nope = q.width;
    return ceil_div(q.heads, LATENT_HEADS) <= (unsigned int)c->gpu->n_sm &&
           is_stack(into->arg.linear.weight, q.heads, LATENT_VALUES, nope) && !into->arg.linear.bias && !out_of->arg.linear.bias &&
           is_stack(out_of->arg.linear.weight, q.heads, y.width, LATENT_VALUES) && y.width % TILE_ROWS == 0 && y.head_stride == y.width &&
           q.head_stride == nope + LATENT_ROPE;
}

int32_t step_latent_find(const struct cuda *c, int32_t i, struct step_latent *g) {
    const struct oplist *l = &c->base.list;
    *g = (struct step_latent){i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7, i + 8};
    if (!c->one_list || g->out_of >= l->n_ops || c->key.n_rows != 1 || !c->gpu->functions[KERNEL_one_latent]) return 0;
    const struct op *o = l->ops;
    bool joins =
        o[g->norm].kind == OP_NORM && o[g->rope].kind == OP_ROPE && continues(c, g->concat, OP_CONCAT, 0, o[g->norm].out[0], g->write) &&
        cuda_same_view(o[g->concat].in[1], o[g->rope].out[0]) && continues(c, g->write, OP_KV_WRITE, 0, o[g->concat].out[0], -1) &&
        o[g->into].kind == OP_HEAD_LINEAR && o[g->q_rope].kind == OP_ROPE &&
        continues(c, g->q_concat, OP_CONCAT, 0, o[g->into].out[0], g->attn) && cuda_same_view(o[g->q_concat].in[1], o[g->q_rope].out[0]) &&
        continues(c, g->attn, OP_ATTN, 0, o[g->q_concat].out[0], g->out_of) &&
        continues(c, g->out_of, OP_HEAD_LINEAR, 0, o[g->attn].out[0], -1);
    if (!joins) return 0;
    struct tensor latent = o[g->norm].in[0], key = o[g->rope].in[0], q = o[g->into].in[0], turned = o[g->q_rope].in[0];
    bool lie = latent.id == key.id && key.offset == latent.offset + LATENT_VALUES && q.id == turned.id &&
               turned.offset == q.offset + q.width && turned.head_stride == q.head_stride && turned.heads == q.heads &&
               latent.offset % 2 == 0 && q.offset % 2 == 0 && cuda_read_only_by(c, o[g->norm].out[0], g->concat) &&
               cuda_read_only_by(c, o[g->rope].out[0], g->concat) && cuda_read_only_by(c, o[g->into].out[0], g->q_concat) &&
               cuda_read_only_by(c, o[g->q_rope].out[0], g->q_concat);
    bool suits = lie && norm_suits(&o[g->norm]) && ropes_suit(c, &o[g->rope], &o[g->q_rope]) && heads_suit(c, &o[g->into], &o[g->out_of]) &&
                 attn_suits(c, &o[g->attn], &o[g->write]);
    return suits ? g->out_of + 1 - i : 0;
}

/* ---- instructions ---------------------------------------------------------------------------------------------------- */

/* Runs of positions at most: a block for each and 16 heads. Many runs take long to join. */
static int32_t count_runs(const struct cuda *c, int32_t heads) {
    int32_t tiles = (int32_t)ceil_div(cuda_length_bucket(c->key.max_len), LATENT_TILE),
            most = c->gpu->n_sm / (int32_t)ceil_div(heads, LATENT_HEADS);
    int32_t runs = tiles <= RUNS_SHORT ? tiles : tiles / TILES_OF_RUN > RUNS_SHORT ? tiles / TILES_OF_RUN : RUNS_SHORT;
    if (runs > LATENT_RUNS_MAX) runs = LATENT_RUNS_MAX;
    return runs < 1 || most < 1 ? 1 : runs < most ? runs : most;
}

static struct k_step_latent args_of(const struct cuda *c, const struct step_latent *g) {
    const struct op *o = c->base.list.ops;
    const struct rope_args *r = &o[g->rope].arg.rope;
    const struct norm_args *n = &o[g->norm].arg.norm;
    const struct attn_args *t = &o[g->attn].arg.attn;
    struct tensor q = o[g->into].in[0];
    return (struct k_step_latent){
        .c = cuda_cache(c, t->kv),
        .norm = cuda_vec(n->weight),
        .eps = n->eps,
        .norm_offset = n->weight_offset,
        .inv_freq = cuda_vec(r->inv_freq),
        .step_rope = cuda_step_array(c, c->at.rope),
        .pos = cuda_step_array(c, c->at.pos),
        .rope_pos = cuda_rope_pos(c, r),
        .seq_of = cuda_step_array(c, c->at.seq_of),
        .heads = q.heads,
        .nope = q.width,
        .v_width = o[g->out_of].out[0].width,
        .splits = count_runs(c, q.heads),
        .rope_kind = (int32_t)r->kind,
        .table = r->table,
        .n_rope_tables = c->n_rope_tables,
        .rope_width = c->rope_width,
        .magnitude = r->magnitude,
        .scale = t->scale,
        .pos_scale_beta = t->pos_scale_beta,
        .pos_scale_len = t->pos_scale_len,
        .pos_scale_first = t->pos_scale_first,
    };
}

void step_latent_lower(struct cuda *c, const struct step_latent *g) {
    const struct op *o = c->base.list.ops;
    struct k_instr in = {.kind = K_STEP_QUERIES, .u.latent = args_of(c, g)};
    unsigned int blocks = (unsigned int)c->gpu->n_sm;
    struct tensor q = o[g->q_concat].out[0], mixed = o[g->attn].out[0];
    in.u.latent.w = cuda_weight_args(o[g->into].arg.linear.weight);
    step_emit(c, &in, &(struct step_values){.x = o[g->into].in[0], .y = q}, blocks, 0);
    in.kind = K_STEP_LATENT;
    step_emit(c, &in, &(struct step_values){.x = q, .k = o[g->norm].in[0], .y = mixed}, blocks, 0);
    in.kind = K_STEP_VALUES;
    in.u.latent.w = cuda_weight_args(o[g->out_of].arg.linear.weight);
    step_emit(c, &in, &(struct step_values){.x = mixed, .y = o[g->out_of].out[0]}, blocks, 0);
}

/* ---- links ----------------------------------------------------------------------------------------------------------- */

size_t cuda_latent_room(const struct k_instr *in, bool is_small) {
    if (in->kind == K_STEP_LATENT) return (size_t)list_latent_bytes(is_small);
    return in->kind == K_STEP_VALUES ? (LATENT_VALUES + LATENT_RUNS_MAX) * sizeof(float) : 0;
}

size_t cuda_latent_parts(const struct k_instr *in, int32_t n) {
    size_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct k_step_latent *a = &in[i].u.latent;
        if (in[i].kind != K_STEP_LATENT) continue;
        size_t bytes = (size_t)a->heads * (size_t)a->splits * LATENT_PART * sizeof(uint64_t);
        if (bytes > most) most = bytes;
    }
    return (most + 127) / 128 * 128;
}

void cuda_latent_place(struct k_instr *in, int32_t n, CUdeviceptr parts) {
    for (int32_t i = 0; i < n; i++) {
        if (in[i].kind == K_STEP_LATENT) in[i].u.latent.y_link = parts;
        if (in[i].kind == K_STEP_VALUES) in[i].u.latent.x_link = parts;
    }
}
