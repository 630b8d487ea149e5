/* Rotary positions. Sines and cosines depend on the row's position and the table alone: they are computed once per step
 * and table, and serve queries and keys of all layers. Two tables are kept, for models that alternate between two. */
#include "backend/cpu/cpu.h"

#include "base/fmath.h"

struct rope_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
    float *angles; /* [rows][n_rotated]: cosines, then sines */
};

static const float *table_of(const struct rope_args *a, const struct step *step, int32_t seq) {
    if (a->inv_freq) return cpu_vec(a->inv_freq);
    return step->rope + ((int64_t)seq * step->n_rope_tables + a->table) * step->rope_width;
}

static void angle_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct rope_job *job = ctx;
    const struct rope_args *a = &job->op->arg.rope;
    int32_t half = a->n_rotated / 2;
    for (int64_t r = first; r < last; r++) {
        const float *inv_freq = table_of(a, job->step, job->step->seq_of[r]);
        float *out = job->angles + r * a->n_rotated;
        for (int32_t i = 0; i < half; i++) {
            double s, co;
            int32_t place = a->axes ? job->step->places[r * STEP_AXES + a->axes[i]] : job->step->pos[r] + a->shift;
            m_sincos((double)((float)place * inv_freq[i]), &s, &co);
            out[i] = (float)co * a->magnitude;
            out[half + i] = (float)s * a->magnitude;
        }
    }
}

void cpu_rope_turn(const struct rope_args *a, const float *angles, float *x) {
    int32_t half = a->n_rotated / 2;
    const float *cosines = angles, *sines = angles + half;
    x += a->first;
    if (a->kind == ROPE_HALF) {
        for (int32_t i = 0; i < half; i++) {
            float u = x[i], v = x[i + half];
            x[i] = u * cosines[i] - v * sines[i];
            x[i + half] = v * cosines[i] + u * sines[i];
        }
        return;
    }
    for (int32_t i = 0; i < half; i++) {
        float u = x[2 * i], v = x[2 * i + 1];
        x[2 * i] = u * cosines[i] - v * sines[i];
        x[2 * i + 1] = v * cosines[i] + u * sines[i];
    }
}

static void rope_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct rope_job *job = ctx;
    const struct rope_args *a = &job->op->arg.rope;
    struct tensor x = job->op->in[0], y = job->op->out[0];
    for (int64_t r = first; r < last; r++)
        for (int64_t h = 0; h < x.heads; h++) {
            float *out = cpu_row(job->c, y, r) + h * y.head_stride;
            memcpy(out, cpu_row(job->c, x, r) + h * x.head_stride, (size_t)x.width * sizeof(float));
            cpu_rope_turn(a, job->angles + r * a->n_rotated, out);
        }
}

static void run_rows(const struct rope_job *job, pool_fn *fn) {
    int64_t n_rows = job->op->out[0].rows;
    if (n_rows <= 2) fn((void *)(uintptr_t)job, 0, n_rows, 0); /* less work than a barrier */
    else pool_run(job->c->pool, n_rows, 0, fn, (void *)(uintptr_t)job);
}

static bool same_table(const struct rope_args *a, const struct rope_args *b) {
    return a->inv_freq == b->inv_freq && a->table == b->table && a->n_rotated == b->n_rotated && a->magnitude == b->magnitude &&
           a->axes == b->axes && a->shift == b->shift;
}

int64_t cpu_rope_floats(const struct op *op) {
    return (int64_t)op->out[0].rows * op->arg.rope.n_rotated;
}

/* Where the op's angles are, computed if they are not known yet. */
static float *angles_of(struct cpu *c, const struct op *op, const struct step *step) {
    struct rope_job job = {.c = c, .op = op, .step = step};
    for (int i = 0; i < CPU_ROPE_TABLES; i++)
        if (c->rope_known[i] && same_table(&c->rope_args[i], &op->arg.rope)) return c->rope_angles + i * c->rope_floats;
    int i = c->rope_next++ % CPU_ROPE_TABLES;
    job.angles = c->rope_angles + i * c->rope_floats;
    c->rope_args[i] = op->arg.rope;
    c->rope_known[i] = true;
    run_rows(&job, angle_rows);
    return job.angles;
}

void cpu_rope_angles(struct cpu *c, const struct op *a, const struct op *b, const struct step *step, const float **out_a,
                     const float **out_b) {
    *out_a = angles_of(c, a, step);
    *out_b = angles_of(c, b, step);
    if (*out_b == *out_a && !same_table(&a->arg.rope, &b->arg.rope))
        *out_a = angles_of(c, a, step); /* b's came where a's were: now they go elsewhere */
}

void cpu_run_rope(struct cpu *c, const struct op *op, const struct step *step) {
    struct rope_job job = {.c = c, .op = op, .step = step, .angles = angles_of(c, op, step)};
    run_rows(&job, rope_rows);
}
