/* Counting what a step reads by the rows that run it. */
#include "backend/paths.h"

#include "backend/cuda/cuda.h"

static uint64_t weight_bytes(const struct weight *w) {
    return w ? w->bytes : 0;
}

/* Of all experts, those that the rows choose: at most `k` others for each. */
static uint64_t experts_bytes(const struct op *op) {
    const struct experts_args *e = &op->arg.experts;
    uint64_t all = weight_bytes(e->gate_up) + weight_bytes(e->gate) + weight_bytes(e->up) + weight_bytes(e->down), n = e->down->n_experts,
             chosen = (uint64_t)op->in[1].rows * (uint64_t)op->in[1].width;
    return chosen < n ? all / n * chosen : all;
}

/* The part of the cache that all rows of the step see, once. */
static uint64_t cache_bytes(const struct cuda *c, const struct op *op) {
    const struct attn_args *a = &op->arg.attn;
    const struct kv_class *k = &c->layout.classes[a->kv.kv_class];
    uint64_t len = (uint64_t)c->key.max_len, span = c->key.decode_only ? 0 : (uint64_t)c->key.n_rows;
    if (a->window > 0 && (uint64_t)a->window + span < len) len = (uint64_t)a->window + span;
    if (a->chunk > 0 && (uint64_t)a->chunk + span < len) len = (uint64_t)a->chunk + span;
    if (op->n_in == 2 && (uint64_t)op->in[1].width < len) len = (uint64_t)op->in[1].width; /* picked positions */
    return len * (uint64_t)c->key.n_seqs * (uint64_t)k->heads * (uint64_t)(k->k_width + k->v_width) *
           (uint64_t)cuda_kv_number_bytes(&c->base, k);
}

static uint64_t bytes_of(const struct cuda *c, const struct op *op) {
    switch (op->kind) {
    case OP_LINEAR:
    case OP_HEAD_LINEAR: return weight_bytes(op->arg.linear.weight);
    case OP_EXPERTS: return experts_bytes(op);
    case OP_ATTN: return cache_bytes(c, op);
    case OP_PICK: return (uint64_t)c->key.max_len * (uint64_t)c->key.n_seqs * (uint64_t)op->in[0].width * sizeof(float);
    default: return 0; /* vectors, single rows of a table, and values of the step */
    }
}

static void note_slow(struct step_paths *out, const char *op, const char *row, uint64_t bytes) {
    int32_t i = 0;
    out->slow_bytes += bytes;
    while (i < out->n_slow && (strcmp(out->slow[i].op, op) != 0 || strcmp(out->slow[i].row, row) != 0)) i++;
    if (i == STEP_PATHS_MAX) return;
    if (i == out->n_slow) out->slow[out->n_slow++] = (struct step_path){op, row, 0};
    out->slow[i].bytes += bytes;
}

/* The launches of ops [0, n_ops) in order; an op of a group has those of the group's first. */
static void count_launches(const struct program *p, struct step_paths *out) {
    bool was_instruction = false;
    for (int32_t i = 0; i < p->n_launches; i++) {
        bool is_instruction = p->launches[i].kernel == KERNEL_step_run;
        out->n_launches += !(is_instruction && was_instruction);
        was_instruction = is_instruction;
    }
}

static bool is_slow(const struct program *p, int32_t op) {
    for (int32_t i = 0; i < p->n_launches; i++)
        if (p->launches[i].op == op) return p->launches[i].is_slow;
    return false;
}

int cuda_plan_step(struct backend *be, struct step_paths *out, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    *out = (struct step_paths){0};
    TRY(cuda_prepare_plan(c, err));
    const struct oplist *l = &be->list;
    for (int32_t i = 0; i < l->n_ops; i++) {
        uint64_t bytes = bytes_of(c, &l->ops[i]);
        out->bytes += bytes;
        if (bytes && is_slow(&c->program, i)) note_slow(out, op_name(l->ops[i].kind), cuda_select(c, &l->ops[i])->name, bytes);
    }
    count_launches(&c->program, out);
    return ERR_OK;
}

void cuda_watch_times(struct backend *be, struct step_times *to) {
    ((struct cuda *)be)->times = to;
}

struct device *cuda_plan_device(struct device *gpu) {
    return cuda_gpu_for_plans((const struct cuda_gpu *)gpu);
}
