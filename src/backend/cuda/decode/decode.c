/* The groups of ops that become instructions. A list without such groups is lowered op by op. */
#include "backend/cuda/decode/decode.h"

int32_t cuda_step_size(const struct cuda *c, int32_t i) {
    struct step_product p;
    struct step_attention g;
    if (!cuda_step_small(c)) return 0;
    int32_t n_experts = step_experts_size(c, i);
    if (n_experts) return n_experts;
    if (step_product_find(c, i, &p)) return p.size;
    return step_attention_find(c, i, &g) ? g.size : 0;
}

void cuda_step_lower(struct cuda *c, int32_t i) {
    struct step_product p;
    struct step_attention g;
    if (step_experts_size(c, i)) step_experts_lower(c, i);
    else if (step_product_find(c, i, &p)) step_product_lower(c, &p);
    else if (step_attention_find(c, i, &g)) step_attention_lower(c, &g);
}
