/* Memory planning: one walk over the ops; each new value takes the smallest hole that fits, each dead one leaves one. */
#include "backend/plan.h"

struct plan_hole {
    int64_t offset, bytes;
};

static int64_t value_bytes(const struct value *v) {
    int64_t bytes = v->elements * dtype_bits(v->dtype) / 8;
    return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

static void hole_remove(struct plan *p, int32_t i) {
    memmove(&p->holes[i], &p->holes[i + 1], (size_t)(p->n_holes - i - 1) * sizeof *p->holes);
    p->n_holes--;
}

/* Keeps holes sorted by offset and merges neighbours. */
static void hole_add(struct plan *p, int64_t offset, int64_t bytes) {
    int32_t i = 0;
    while (i < p->n_holes && p->holes[i].offset < offset) i++;
    if (i > 0 && p->holes[i - 1].offset + p->holes[i - 1].bytes == offset) {
        p->holes[--i].bytes += bytes;
    } else {
        if (p->n_holes == p->holes_capacity) {
            p->holes_capacity = p->holes_capacity ? p->holes_capacity * 2 : 64;
            p->holes = mem_realloc(p->holes, (size_t)p->holes_capacity * sizeof *p->holes);
        }
        memmove(&p->holes[i + 1], &p->holes[i], (size_t)(p->n_holes - i) * sizeof *p->holes);
        p->n_holes++;
        p->holes[i] = (struct plan_hole){offset, bytes};
    }
    struct plan_hole *h = &p->holes[i];
    if (i + 1 < p->n_holes && h->offset + h->bytes == p->holes[i + 1].offset) {
        h->bytes += p->holes[i + 1].bytes;
        hole_remove(p, i + 1);
    }
}

static int64_t take(struct plan *p, int64_t bytes) {
    int32_t best = -1;
    for (int32_t i = 0; i < p->n_holes; i++)
        if (p->holes[i].bytes >= bytes && (best < 0 || p->holes[i].bytes < p->holes[best].bytes)) best = i;
    if (best < 0) {
        int64_t offset = p->bytes;
        if (p->n_holes && p->holes[p->n_holes - 1].offset + p->holes[p->n_holes - 1].bytes == p->bytes) {
            offset = p->holes[p->n_holes - 1].offset; /* grow the hole at the end */
            p->n_holes--;
        }
        p->bytes = offset + bytes;
        return offset;
    }
    int64_t offset = p->holes[best].offset;
    p->holes[best].offset += bytes;
    p->holes[best].bytes -= bytes;
    if (p->holes[best].bytes == 0) hole_remove(p, best);
    return offset;
}

/* Values by the op after which nobody reads them: heads by op, then a chain through the values. */
static void chain_dead(struct plan *p, const struct oplist *l) {
    for (int32_t i = 0; i < l->n_ops; i++) p->dead[i] = -1;
    for (int32_t i = l->n_values - 1; i >= 0; i--) {
        int32_t last = l->values[i].last_op;
        if (l->values[i].is_output || last < 0) continue;
        p->next[i] = p->dead[last];
        p->dead[last] = i;
    }
}

static void grow(struct plan *p, const struct oplist *l) {
    if (p->capacity < l->n_values) {
        p->capacity = l->n_values;
        p->offsets = mem_realloc(p->offsets, (size_t)p->capacity * sizeof *p->offsets);
        p->next = mem_realloc(p->next, (size_t)p->capacity * sizeof *p->next);
    }
    if (p->ops_capacity < l->n_ops) {
        p->ops_capacity = l->n_ops;
        p->dead = mem_realloc(p->dead, (size_t)p->ops_capacity * sizeof *p->dead);
    }
}

void plan_make(struct plan *p, const struct oplist *l) {
    grow(p, l);
    chain_dead(p, l);
    p->bytes = 0;
    p->n_holes = 0;
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        for (int32_t k = 0; k < op->n_out; k++) p->offsets[op->out[k].id - 1] = take(p, value_bytes(&l->values[op->out[k].id - 1]));
        for (int32_t v = p->dead[i]; v >= 0; v = p->next[v]) hole_add(p, p->offsets[v], value_bytes(&l->values[v]));
    }
}

void plan_free(struct plan *p) {
    mem_free(p->offsets);
    mem_free(p->next);
    mem_free(p->dead);
    mem_free(p->holes);
    *p = (struct plan){0};
}
