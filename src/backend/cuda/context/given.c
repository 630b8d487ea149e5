/* Rows that the host gives for a step (GIVEN): they lie in memory of their own, since a picture's are much larger than the step block, and only steps with
 * pictures have any. */
#include "backend/cuda/context/context.h"

int cuda_given_open(struct cuda *c, struct err *err) {
    const struct oplist *l = &c->base.list;
    size_t used = 0;
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct op *op = &l->ops[i];
        if (op->kind != OP_GIVEN) continue;
        c->given_at[op->arg.given.set] = used;
        used += align256((size_t)op->out[0].rows * (size_t)op->arg.given.width * sizeof(float));
    }
    return cuda_grow(c, used, "rows of pictures", &c->given, &c->given_bytes, err);
}

/* Rows that lie one behind the other on the host go in one piece. */
static int upload_rows(struct cuda *c, const float *const *rows, int32_t n, size_t width, CUdeviceptr to, struct err *err) {
    for (int32_t r = 0, n_run; r < n; r += n_run) {
        n_run = 1;
        if (!rows[r]) continue;
        while (r + n_run < n && rows[r + n_run] == rows[r] + (size_t)n_run * width) n_run++;
        size_t bytes = (size_t)n_run * width * sizeof(float);
        TRY(cuda_upload(c, to, rows[r], bytes, "rows of pictures", err));
        to += bytes;
    }
    return ERR_OK;
}

int cuda_given_upload(struct cuda *c, const struct step *step, struct err *err) {
    const struct oplist *l = &c->base.list;
    TRY(cuda_given_open(c, err));
    for (int32_t i = 0; i < l->n_ops; i++) {
        const struct given_args *a = &l->ops[i].arg.given;
        if (l->ops[i].kind == OP_GIVEN && step->given[a->set])
            TRY(upload_rows(c, step->given[a->set], step->n_rows, (size_t)a->width, c->given + c->given_at[a->set], err));
    }
    return ERR_OK;
}
