/* Lowering of ADAPT: what the adapters of each row add. The parts of a site go as arguments of the launches, so many at a time. */
#include "backend/cuda/lower/lower.h"

#include "backend/cuda/shared/adapt.h"

static struct k_adapt_part part_args(const struct adapt_part *p, int32_t at) {
    return (struct k_adapt_part){.down = cuda_vec(p->down),
                                 .up = cuda_vec(p->up),
                                 .gain = cuda_vec(p->gain),
                                 .adapter = p->adapter,
                                 .rank = p->rank,
                                 .in = (int32_t)p->in,
                                 .out = (int32_t)p->out,
                                 .first = (int32_t)p->first,
                                 .at = at};
}

void lower_adapt(struct cuda *c, const struct op *op) {
    const struct adapt_args *arg = &op->arg.adapt;
    const struct adapt_site *site = arg->site;
    size_t used = 0;
    struct k_adapt a = {.x = cuda_view(c, op->in[0]),
                        .y = cuda_view(c, op->in[1]),
                        .out = cuda_view(c, op->out[0]),
                        .bias = cuda_vec(arg->bias),
                        .scales = cuda_step_array(c, c->at.adapters),
                        .seq_of = cuda_step_array(c, c->at.seq_of),
                        .wanted = arg->of_wanted ? cuda_step_array(c, c->at.wanted_rows) : 0,
                        .ids = cuda_step_array(c, c->at.ids),
                        .chosen = c->chosen,
                        .n_adapters = c->n_adapters,
                        .n_hidden = site->n_hidden,
                        .by_token = site->by_token,
                        .scale = arg->scale};
    a.hidden = cuda_op_scratch(c, &used, (size_t)a.y.rows * (size_t)site->n_hidden * sizeof(float));
    for (int32_t first = 0, at = 0; first < site->n_parts; first += a.n_parts) {
        int32_t rank = 0;
        a.n_parts = site->n_parts - first < K_ADAPT_PARTS ? site->n_parts - first : K_ADAPT_PARTS;
        a.adds = first > 0;
        for (int32_t i = 0; i < a.n_parts; i++) {
            const struct adapt_part *p = &site->parts[first + i];
            a.parts[i] = part_args(p, at);
            at += p->rank;
            if (p->rank > rank) rank = p->rank;
        }
        EMIT(c, KERNEL_adapt_down, GRID(ceil_div(rank, ADAPT_WARPS), a.n_parts, ceil_div(a.y.rows, ADAPT_ROWS)), ADAPT_WARPS * 32, 0, a);
        EMIT(c, KERNEL_adapt_up, GRID(ceil_div(a.y.width, 256), a.y.rows, 1), 256, 0, a);
    }
}
