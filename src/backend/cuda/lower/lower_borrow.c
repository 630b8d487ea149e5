/* Lowering of what is borrowed: weights (context/borrow.c) get their places, and become tiles, before the op that reads them; a layer of the host's cache
 * (context/borrow_kv.c) is here while ops use it. */
#include "backend/cuda/lower/lower.h"

#include "backend/op_fields.h"

static struct cuda_loan *add_loan(struct program *p) {
    if (p->n_loans == p->loans_capacity) {
        p->loans_capacity = p->loans_capacity ? 2 * p->loans_capacity : 256;
        p->loans = mem_realloc(p->loans, (size_t)p->loans_capacity * sizeof *p->loans);
    }
    return &p->loans[p->n_loans++];
}

static void emit_tiles(struct cuda *c, const struct cuda_borrowed *b, CUdeviceptr place) {
    unsigned int tiles = ceil_div(b->n_rows, TILE_ROWS), y = tiles < MAX_GRID_Y ? tiles : MAX_GRID_Y;
    if (b->panels) {
        struct k_panels a = b->panels_args;
        a.in = place, a.out = place + b->tiles_at;
        EMIT(c, KERNEL_tile_of_panels, GRID(ceil_div(a.units, 8), y, ceil_div(tiles, y)), 256, 0, a);
        return;
    }
    struct k_tile a = {.w = b->rows_args, .out = place + b->tiles_at, .n = b->n_rows};
    a.w.values += place;
    if (a.w.scales) a.w.scales += place;
    if (a.w.biases) a.w.biases += place;
    EMIT(c, KERNEL_tile_pack, GRID(ceil_div(a.w.in / TILE_UNIT, 8), y, ceil_div(tiles, y)), 256, 0, a);
}

static void borrow(struct cuda *c, struct cuda_weight *w, size_t at, bool is_first) {
    struct program *p = &c->program;
    struct cuda_loan *loan = add_loan(p);
    *loan = (struct cuda_loan){
        .of = w->borrowed, .at = at, .end = p->loan_end, .first = p->n_launches, .waits = is_first, .waits_all = p->n_loans == 1};
    emit_tiles(c, w->borrowed, c->places.memory + at);
    w->k.values = c->places.memory + at + w->borrowed->tiles_at;
    c->carrier = -1; /* the launch before this one runs before the weight is there */
}

/* Each once. */
static int32_t find_borrowed(const struct weight *const *weights, int32_t n, struct cuda_weight **out) {
    int32_t n_out = 0;
    for (int32_t i = 0; i < n; i++) {
        bool is_new = weights[i] && weights[i]->is_borrowed;
        for (int32_t k = 0; k < i && is_new; k++) is_new = weights[k] != weights[i];
        if (is_new) out[n_out++] = weights[i]->packed;
    }
    return n_out;
}

void cuda_borrow_weights(struct cuda *c, const struct weight *const *weights, int32_t n) {
    struct program *p = &c->program;
    struct cuda_weight *found[BORROW_WEIGHTS];
    size_t bytes = 0;
    int32_t n_found = find_borrowed(weights, n, found);
    if (!n_found) return;
    for (int32_t i = 0; i < n_found; i++) bytes += found[i]->borrowed->place_bytes;
    size_t need = align256(bytes + p->bytes_before);
    if (need > c->places.need) c->places.need = need;
    bool is_behind = p->loan_end == 1 && c->places.bytes >= need; /* else this program is only lowered for its sizes */
    size_t at = is_behind ? c->places.bytes - bytes : 0;
    for (int32_t i = 0; i < n_found; i++) {
        borrow(c, found[i], at, i == 0);
        at += found[i]->borrowed->place_bytes;
    }
    p->bytes_before = bytes;
    p->loan_end = 1 - p->loan_end;
}

void cuda_borrow(struct cuda *c, int32_t first, int32_t n) {
    const struct weight *weights[BORROW_WEIGHTS];
    int32_t n_weights = 0;
    for (int32_t i = first; i < first + n; i++)
        for (int32_t k = 0; k < op_weight_places() && c->base.list.ops[i].kind != OP_EXPERTS; k++) {
            const struct weight **w = op_weight_at(&c->base.list.ops[i], k);
            if (w && *w && (*w)->is_borrowed && n_weights < BORROW_WEIGHTS) weights[n_weights++] = *w;
        }
    cuda_borrow_weights(c, weights, n_weights);
}

void cuda_borrow_done(struct cuda *c) {
    struct program *p = &c->program;
    for (; p->first_open < p->n_loans; p->first_open++) p->loans[p->first_open].last = p->n_launches - 1;
}

/* ---- cache ---------------------------------------------------------------------------------------------------------- */

static struct k_lent lent_args(const struct cuda *c, struct kv_ref kv, bool is_whole) {
    const struct cuda_kv_class *k = &c->kv[kv.kv_class];
    int32_t n_layers = k->shape.n_borrowed, layer = kv.index - k->shape.n_layers;
    return (struct k_lent){.c = cuda_cache(c, kv),
                           .k = k->lent_k + k->lent.k_bytes / (size_t)n_layers * (size_t)layer,
                           .v = k->lent_v + k->lent.v_bytes / (size_t)n_layers * (size_t)layer,
                           .seqs = cuda_step_array(c, c->at.seqs),
                           .window = k->shape.window,
                           .is_whole = is_whole};
}

static void emit_fetch(struct cuda *c, struct kv_ref kv, bool is_whole) {
    struct k_lent a = lent_args(c, kv, is_whole);
    EMIT(c, KERNEL_kv_fetch, GRID(ceil_div(c->key.max_len, K_BLOCK), a.c.heads, c->key.n_seqs), 128, 0, a);
    c->kv[kv.kv_class].guest = kv.index;
}

void cuda_fetch_cache(struct cuda *c, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) {
        struct op *op = &c->base.list.ops[i];
        const struct kv_ref *kv = op->kind == OP_KV_WRITE ? &op->arg.kv.kv : op->kind == OP_ATTN ? &op->arg.attn.kv : NULL;
        if (!kv || !cuda_is_lent(c, *kv) || c->kv[kv->kv_class].guest == kv->index) continue;
        emit_fetch(c, *kv,
                   op->kind == OP_ATTN); /* attention without new positions of this layer: an earlier op of the step has returned them */
    }
}

void cuda_return_cache(struct cuda *c, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) {
        const struct op *op = &c->base.list.ops[i];
        if (op->kind != OP_KV_WRITE || !cuda_is_lent(c, op->arg.kv.kv)) continue;
        struct k_lent a = lent_args(c, op->arg.kv.kv, false);
        EMIT(c, KERNEL_kv_return, GRID(c->key.n_rows / K_BLOCK + 2, a.c.heads, c->key.n_seqs), 128, 0, a);
    }
}
