/* Lowering of borrowed weights (context/borrow.c): they get their places, and become tiles, before the op that reads them. */
#include "backend/cuda/lower/lower.h"

#include "backend/op_fields.h"

static void add_loan(struct program *p, struct cuda_loan loan) {
    if (p->n_loans == p->loans_capacity) {
        p->loans_capacity = p->loans_capacity ? 2 * p->loans_capacity : 256;
        p->loans = mem_realloc(p->loans, (size_t)p->loans_capacity * sizeof *p->loans);
    }
    p->loans[p->n_loans++] = loan;
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

static void borrow(struct cuda *c, struct cuda_weight *w) {
    struct program *p = &c->program;
    const struct cuda_borrowed *b = w->borrowed;
    int32_t place = p->n_loans % BORROW_PLACES;
    size_t need = b->place_bytes * BORROW_PLACES;
    if (need > c->places.need) c->places.need = need;
    add_loan(p, (struct cuda_loan){.of = b, .place = place, .first = p->n_launches});
    emit_tiles(c, b, cuda_loan_place(c, place));
    w->k.values = cuda_loan_place(c, place) + b->tiles_at;
    c->carrier = -1; /* the launch before this one runs before the weight is there */
}

int32_t cuda_borrow(struct cuda *c, int32_t first, int32_t n) {
    int32_t before = c->program.n_loans;
    for (int32_t i = first; i < first + n; i++)
        for (int32_t k = 0; k < op_weight_places(); k++) {
            const struct weight **w = op_weight_at(&c->base.list.ops[i], k);
            if (w && *w && (*w)->is_borrowed) borrow(c, (*w)->packed);
        }
    return before;
}

void cuda_borrow_done(struct cuda *c, int32_t first_loan) {
    for (int32_t i = first_loan; i < c->program.n_loans; i++) c->program.loans[i].last = c->program.n_launches - 1;
}
