/* The experts of a step of one row as instructions of kernels/one.cu. NORM LINEAR ROUTE EXPERTS [LINEAR GLU LINEAR ADD] ADD become three: the router's scores; gate and up of the
 * chosen experts; down, with the residual. In brackets: an expert that every row takes, which is so many more choices as it is wider than the others
 * (kernels/one_latent.cu). Only where the whole step is lowered as one list (cuda.one_list). */
#include "backend/cuda/decode/decode.h"

static bool is_tiled(const struct weight *w) {
    return w && cuda_weight_args(w).tile_bytes;
}

static bool experts_suit(const struct experts_args *e) {
    return is_tiled(e->gate_up) && is_tiled(e->down) && !e->scale_input && e->inner % 64 == 0 && e->down->in == e->inner &&
           e->gate_up->out == 2 * e->inner && e->gate_up->format.dtype == e->down->format.dtype;
}

static bool router_suits(const struct op *router, const struct op *route) {
    const struct weight *w = router->arg.linear.weight;
    return w->in % 8 == 0 && w->n_experts == 1 && !cuda_weight_args(w).tile_bytes && w->out % 2 == 0 && w->out <= 1024 &&
           route->arg.route.k <= K_CHOICES_MAX && route->arg.route.n_groups <= w->out;
}

static bool is_same_format(const struct weight *a, const struct weight *b) {
    return a->format.mode == b->format.mode && a->format.bits == b->format.bits && a->format.group == b->format.group &&
           a->format.dtype == b->format.dtype;
}

/* Whether ops j to j + 3 are the expert that every row takes, and the sum of both. */
static bool shared_suits(const struct cuda *c, int32_t j, struct tensor x, const struct op *experts, int32_t chosen) {
    const struct oplist *l = &c->base.list;
    if (j + 3 >= l->n_ops || !c->gpu->functions[KERNEL_one_latent]) return false;
    const struct op *both = &l->ops[j], *glu = &l->ops[j + 1], *down = &l->ops[j + 2], *sum = &l->ops[j + 3];
    const struct experts_args *e = &experts->arg.experts;
    if (both->kind != OP_LINEAR || !cuda_is_halves(both, glu) || down->kind != OP_LINEAR || e->gate_up_bias || e->down_bias ||
        !is_tiled(e->gate_up))
        return false;
    const struct weight *up = both->arg.linear.weight, *out = down->arg.linear.weight;
    bool joins = cuda_same_view(both->in[0], x) && cuda_read_only_by(c, both->out[0], j + 1) && cuda_same_view(down->in[0], glu->out[0]) &&
                 cuda_read_only_by(c, glu->out[0], j + 2) && cuda_read_only_by(c, down->out[0], j + 3) &&
                 step_other_summand(experts->out[0], sum) >= 0 && step_other_summand(down->out[0], sum) >= 0 &&
                 sum->arg.add.a_scale == sum->arg.add.b_scale;
    return joins && is_tiled(up) && is_tiled(out) && is_same_format(up, e->gate_up) && is_same_format(out, e->down) && up->n_experts == 1 &&
           !both->arg.linear.bias && !down->arg.linear.bias && out->in % e->inner == 0 && out->out == e->down->out &&
           up->out == 2 * out->in && up->in == e->gate_up->in && chosen + out->in / e->inner <= K_CHOICES_MAX &&
           memcmp(&glu->arg.act, &e->act, sizeof e->act) == 0;
}

int32_t step_experts_find(const struct cuda *c, int32_t i, struct step_experts *g) {
    const struct oplist *l = &c->base.list;
    *g = (struct step_experts){i, i + 1, i + 2, i + 3, -1, i + 4};
    if (!c->one_list || g->add >= l->n_ops || c->key.n_rows != 1) return 0;
    const struct op *norm = &l->ops[g->norm], *router = &l->ops[g->router], *route = &l->ops[g->route], *experts = &l->ops[g->experts],
                    *add = &l->ops[g->add];
    if (!step_is_row_norm(norm) || router->kind != OP_LINEAR || route->kind != OP_ROUTE || experts->kind != OP_EXPERTS) return 0;
    struct tensor x = norm->out[0], y = experts->out[0];
    if (shared_suits(c, g->add, x, experts, route->arg.route.k)) {
        g->shared = g->add, g->add += 4;
        if (g->add >= l->n_ops) return 0;
        y = l->ops[g->add - 1].out[0], add = &l->ops[g->add];
    }
    bool reads = cuda_same_view(router->in[0], x) && cuda_same_view(experts->in[0], x) &&
                 step_count_reads(c, x) == (g->shared < 0 ? 2 : 3) && cuda_same_view(route->in[0], router->out[0]) &&
                 step_count_reads(c, router->out[0]) == 1 && cuda_same_view(experts->in[1], route->out[0]) &&
                 cuda_same_view(experts->in[2], route->out[1]) && step_count_reads(c, route->out[0]) == 1 &&
                 step_count_reads(c, route->out[1]) == 1 && step_count_reads(c, experts->out[0]) == 1 && step_count_reads(c, y) == 1;
    bool suits = reads && step_is_even(norm->in[0]) && step_other_summand(y, add) >= 0 && router_suits(router, route) &&
                 experts_suit(&experts->arg.experts);
    return suits ? g->add + 1 - i : 0;
}

/* x of an instruction: the row that the norm reads, and the norm. */
static void put_x(const struct cuda *c, struct k_step_linear *a, const struct op *norm) {
    struct k_view x = cuda_view(c, norm->in[0]);
    a->x = x.p, a->x_stride = x.row_stride, a->x_dtype = x.dtype;
    step_put_norm(a, norm);
}

static struct k_instr instr_of(enum k_step_kind kind, const struct weight *w) {
    struct k_instr in = {.kind = kind};
    in.u.linear = (struct k_step_linear){
        .w = cuda_weight_args(w), .rows = 1, .own_scale = 1, .inv_in = 1.0f / (float)w->in, .y_dtype = K_F32, .x_dtype = K_F32};
    return in;
}

static void lower_router(struct cuda *c, const struct op *norm, const struct op *router) {
    struct k_instr in = instr_of(K_STEP_ROUTER, router->arg.linear.weight);
    struct k_view y = cuda_view(c, router->out[0]);
    put_x(c, &in.u.linear, norm);
    in.u.linear.bias = cuda_vec(router->arg.linear.bias);
    in.u.linear.y = y.p, in.u.linear.y_stride = y.row_stride;
    step_emit(c, &in, &(struct step_values){.x = norm->in[0], .y = router->out[0]}, (unsigned int)c->gpu->n_sm, 0);
}

void step_experts_lower(struct cuda *c, const struct step_experts *g) {
    const struct op *ops = c->base.list.ops, *norm = &ops[g->norm], *route = &ops[g->route], *add = &ops[g->add];
    const struct experts_args *e = &ops[g->experts].arg.experts;
    int other = step_other_summand(ops[g->add - 1].out[0], add);
    const struct op *shared = g->shared >= 0 ? &ops[g->shared] : NULL;
    struct k_step_experts chosen = {.rule = cuda_route_rule(&route->arg.route),
                                    .ids = cuda_view(c, route->out[0]).p,
                                    .weights = e->down_bias ? cuda_view(c, route->out[1]).p : 0,
                                    .n_experts = (int32_t)e->down->n_experts,
                                    .half = K_HALF_INNER,
                                    .k = route->arg.route.k};
    if (shared) chosen.k += (int32_t)(shared[2].arg.linear.weight->in / e->inner);
    lower_router(c, norm, &ops[g->router]);
    size_t used = 0;
    int64_t width = (int64_t)chosen.k * e->inner;
    struct k_instr in = instr_of(K_STEP_LINEAR, e->gate_up);
    struct k_step_linear *a = &in.u.linear;
    put_x(c, a, norm);
    a->y = cuda_op_scratch(c, &used, (size_t)width * sizeof(float)), a->y_stride = width;
    a->glu_inner = e->inner, a->act = cuda_act(&e->act), a->e = chosen;
    a->bias = cuda_vec(e->gate_up_bias);
    if (shared) a->shared = cuda_weight_args(shared[0].arg.linear.weight).values;
    step_share_tiles(c, a, width / TILE_ROWS);
    struct tensor between = {.id = STEP_INNER, .heads = 1, .rows = 1, .width = (int32_t)width, .row_stride = width};
    step_emit(c, &in, &(struct step_values){.x = norm->in[0], .scores = ops[g->router].out[0], .y = between}, (unsigned int)c->gpu->n_sm,
              0);
    CUdeviceptr inner = a->y;
    struct k_view y = cuda_view(c, add->out[0]);
    in = instr_of(K_STEP_LINEAR, e->down);
    a->x = inner, a->x_stride = width;
    a->y = y.p, a->y_stride = y.row_stride, a->y_dtype = y.dtype;
    a->e = chosen, a->e.half = K_HALF_DOWN;
    a->bias = cuda_vec(e->down_bias);
    step_put_residual(c, a, add, other);
    if (shared) a->shared = cuda_weight_args(shared[2].arg.linear.weight).values, a->own_scale *= shared[3].arg.add.a_scale;
    step_share_tiles(c, a, e->down->out / TILE_ROWS);
    step_emit(c, &in, &(struct step_values){.x = between, .residual = add->in[other], .y = add->out[0]}, (unsigned int)c->gpu->n_sm, 0);
}
