/* Element-wise and row-wise ops: norms, sums, activations, concatenation, row selection, argmax. */
#include "backend/cpu/cpu.h"

#include "base/fmath.h"

struct elem_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
};

static void run_rows(struct cpu *c, const struct op *op, const struct step *step, int64_t n_rows, pool_fn *fn) {
    struct elem_job job = {c, op, step};
    /* a single row is not worth a barrier */
    if (n_rows <= 2) fn(&job, 0, n_rows, 0);
    else pool_run(c->pool, n_rows, 0, fn, &job);
}

/* Normalises n elements of x into y; w and b may be NULL. */
/* What is more than `cut` standard deviations above the mean, and how much more. */
static void cut_head(const struct kernels *k, float cut, const float *x, float *y, int64_t n) {
    float mean = (float)(k->sum(x, n) / (double)n);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - mean;
    float above = cut * (float)sqrt(k->sum_squares(y, n) / (double)n);
    for (int64_t i = 0; i < n; i++) y[i] = y[i] > above ? y[i] - above : 0;
}

static void norm_head(const struct kernels *k, const struct norm_args *a, const float *x, float *y, int64_t n, const float *w,
                      const float *b) {
    float mean = 0;
    double square;
    if (a->kind == NORM_CUT) {
        cut_head(k, a->cut, x, y, n);
        return;
    }
    if (a->kind == NORM_LAYER) {
        mean = (float)(k->sum(x, n) / (double)n);
        for (int64_t i = 0; i < n; i++) y[i] = x[i] - mean;
        square = k->sum_squares(y, n);
        x = y;
    } else {
        square = k->sum_squares(x, n);
    }
    float scale = 1.0f / (float)sqrt((double)(float)(square / (double)n) + (double)a->eps), offset = a->weight_offset;
    if (w && !b) { /* nearly every norm; a loop that compilers make vectors of */
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * (w[i] + offset);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] * scale;
        if (w) v *= w[i] + offset;
        y[i] = b ? v + b[i] : v;
    }
}

void cpu_norm_head(struct cpu *c, const struct op *op, int64_t head, const float *from, float *to) {
    const struct norm_args *a = &op->arg.norm;
    const float *w = cpu_vec(a->weight), *b = cpu_vec(a->bias);
    int32_t width = op->out[op->n_out - 1].width;
    int64_t at = a->per_head ? head * width : 0;
    norm_head(&c->kern, a, from, to, width, w ? w + at : NULL, b ? b + at : NULL);
}

static void norm_row(struct cpu *c, const struct op *op, int64_t r, const float *from, int64_t from_stride, struct tensor to) {
    for (int64_t h = 0; h < to.heads; h++) cpu_norm_head(c, op, h, from + h * from_stride, cpu_row(c, to, r) + h * to.head_stride);
}

/* Gate of a row, activated, dense, in the thread's scratch memory. */
static const float *gate_row(struct cpu *c, const struct op *op, int64_t r, int32_t thread) {
    struct tensor g = op->in[1];
    float *out = cpu_thread(c, thread);
    for (int64_t h = 0; h < g.heads; h++) memcpy(out + h * g.width, cpu_row(c, g, r) + h * g.head_stride, (size_t)g.width * sizeof(float));
    c->kern.act(out, tensor_row_size(g), &(struct act_args){.kind = op->arg.norm.gate_act});
    return out;
}

/* x with the magnitude of the second input. */
static void match_row(struct cpu *c, const struct op *op, int64_t r) {
    struct tensor x = op->in[0], model = op->in[1], y = op->out[0];
    for (int64_t h = 0; h < x.heads; h++) {
        const float *px = cpu_row(c, x, r) + h * x.head_stride, *pm = cpu_row(c, model, r) + h * model.head_stride;
        float *py = cpu_row(c, y, r) + h * y.head_stride;
        float have = (float)(c->kern.sum_squares(px, x.width) / (double)x.width);
        float want = (float)(c->kern.sum_squares(pm, x.width) / (double)x.width);
        float target = (float)sqrt((double)want), magnitude = (float)sqrt((double)(have > op->arg.norm.eps ? have : op->arg.norm.eps));
        for (int64_t i = 0; i < x.width; i++) py[i] = px[i] * target / magnitude;
    }
}

static void norm_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct elem_job *job = ctx;
    struct cpu *c = job->c;
    const struct op *op = job->op;
    struct tensor x = op->in[0], y = op->out[0];
    int64_t n = tensor_row_size(y);
    for (int64_t r = first; r < last; r++) {
        if (op->n_in == 1) {
            norm_row(c, op, r, cpu_row(c, x, r), x.head_stride, y);
            cpu_made_row(c, op, r);
            continue;
        }
        if (op->arg.norm.gate == GATE_MATCH) {
            match_row(c, op, r);
            cpu_made_row(c, op, r);
            continue;
        }
        const float *gate = gate_row(c, op, r, thread);
        float *out = cpu_row(c, y, r);
        if (op->arg.norm.gate == GATE_BEFORE) {
            float *product = cpu_thread(c, thread) + n;
            for (int64_t i = 0; i < n; i++) product[i] = cpu_row(c, x, r)[i / x.width * x.head_stride + i % x.width] * gate[i];
            norm_row(c, op, r, product, y.width, y);
        } else {
            norm_row(c, op, r, cpu_row(c, x, r), x.head_stride, y);
            for (int64_t i = 0; i < n; i++) out[i] *= gate[i];
        }
        cpu_made_row(c, op, r);
    }
}

void cpu_run_norm(struct cpu *c, const struct op *op, const struct step *step) {
    run_rows(c, op, step, op->out[0].rows, norm_rows);
}

static void add_row(struct cpu *c, const struct op *op, int64_t r, float a_scale, float b_scale) {
    struct tensor a = op->in[0], b = op->in[1], y = op->out[0];
    for (int64_t h = 0; h < y.heads; h++) {
        const float *pa = cpu_row(c, a, r) + h * a.head_stride, *pb = cpu_row(c, b, r) + h * b.head_stride;
        float *py = cpu_row(c, y, r) + h * y.head_stride;
        for (int64_t i = 0; i < y.width; i++) py[i] = pa[i] * a_scale + pb[i] * b_scale;
    }
}

static void add_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct elem_job *job = ctx;
    for (int64_t r = first; r < last; r++) add_row(job->c, job->op, r, job->op->arg.add.a_scale, job->op->arg.add.b_scale);
}

void cpu_run_add(struct cpu *c, const struct op *op, const struct step *step) {
    run_rows(c, op, step, op->out[0].rows, add_rows);
}

static void add_norm_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct elem_job *job = ctx;
    struct cpu *c = job->c;
    for (int64_t r = first; r < last; r++) {
        add_row(c, job->op, r, job->op->arg.norm.a_scale, job->op->arg.norm.b_scale);
        norm_row(c, job->op, r, cpu_row(c, job->op->out[0], r), job->op->out[0].head_stride, job->op->out[1]);
        cpu_made_row(c, job->op, r);
    }
}

void cpu_run_add_norm(struct cpu *c, const struct op *op, const struct step *step) {
    run_rows(c, op, step, op->out[0].rows, add_norm_rows);
}

static void act_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct elem_job *job = ctx;
    struct cpu *c = job->c;
    const struct act_args *a = &job->op->arg.act;
    struct tensor x = job->op->in[0], y = job->op->out[0];
    for (int64_t r = first; r < last; r++) {
        float *out = cpu_row(c, y, r);
        for (int64_t h = 0; h < x.heads; h++)
            memcpy(out + h * y.head_stride, cpu_row(c, x, r) + h * x.head_stride, (size_t)x.width * sizeof(float));
        c->kern.act(out, tensor_row_size(y), a);
        if (a->scale != 1.0f)
            for (int64_t i = 0; i < tensor_row_size(y); i++) out[i] *= a->scale;
    }
}

void cpu_run_act(struct cpu *c, const struct op *op, const struct step *step) {
    run_rows(c, op, step, op->out[0].rows, act_rows);
}

void cpu_gate(const struct act_args *a, float *y, const float *up, int64_t n, int64_t up_stride) {
    if (up_stride == 1 && a->kind != ACT_CLAMPED_SWIGLU && a->kind != ACT_LIMITED_SWIGLU) { /* a loop that compilers make vectors of */
        float scale = a->scale;
        for (int64_t i = 0; i < n; i++) y[i] *= up[i] * scale;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float b = up[i * up_stride];
        if (a->kind == ACT_CLAMPED_SWIGLU) {
            float limit = a->p[1];
            b = (b > limit ? limit : b < -limit ? -limit : b) + 1.0f;
        } else if (a->kind == ACT_LIMITED_SWIGLU) {
            float limit = a->p[0];
            b = b > limit ? limit : b < -limit ? -limit : b;
        }
        y[i] *= b * a->scale;
    }
}

/* Columns [from, from + n) of one head of one row. */
static void glu_part(const struct elem_job *job, int64_t r, int64_t h, int64_t from, int64_t n) {
    struct cpu *c = job->c;
    struct tensor a = job->op->in[0], b = job->op->in[1], y = job->op->out[0];
    float *out = cpu_row(c, y, r) + h * y.head_stride + from;
    const float *up = cpu_row(c, b, r) + (b.heads == 1 ? 0 : h) * b.head_stride;
    memcpy(out, cpu_row(c, a, r) + h * a.head_stride + from, (size_t)n * sizeof(float));
    c->kern.act(out, n, &job->op->arg.act);
    if (b.width == 1) cpu_gate(&job->op->arg.act, out, up, n, 0);
    else cpu_gate(&job->op->arg.act, out, up + from, n, 1);
}

/* Pieces stay in the level-1 cache from one pass to the next. */
enum { GLU_PIECE = ACTS_SPAN };

static void glu_pieces(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct elem_job *job = ctx;
    struct tensor a = job->op->in[0];
    int64_t n_pieces = (a.width + GLU_PIECE - 1) / GLU_PIECE;
    for (int64_t i = first; i < last; i++) {
        int64_t from = i % n_pieces * GLU_PIECE, head = i / n_pieces;
        int64_t n = a.width - from < GLU_PIECE ? a.width - from : GLU_PIECE;
        glu_part(job, head / a.heads, head % a.heads, from, n);
        cpu_made_part(job->c, job->op, head / a.heads, from, n);
    }
}

void cpu_run_glu(struct cpu *c, const struct op *op, const struct step *step) {
    struct elem_job job = {c, op, step};
    struct tensor a = op->in[0];
    int64_t n = (int64_t)a.rows * a.heads * ((a.width + GLU_PIECE - 1) / GLU_PIECE);
    if (n < 6) glu_pieces(&job, 0, n, 0); /* less work than a barrier */
    else pool_run(c->pool, n, 0, glu_pieces, &job);
}

void cpu_run_mulvec(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    const struct vec_args *a = &op->arg.vec;
    const float *mul = cpu_vec(a->mul), *add = cpu_vec(a->add);
    bool one = a->mul && a->mul->in == 1;
    struct tensor x = op->in[0], y = op->out[0];
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t h = 0; h < y.heads; h++) {
            const float *px = cpu_row(c, x, r) + h * x.head_stride;
            float *py = cpu_row(c, y, r) + h * y.head_stride;
            for (int64_t i = 0; i < y.width; i++) {
                float v = mul ? px[i] * mul[one ? 0 : i] : px[i];
                py[i] = add ? v + add[i] : v;
            }
        }
}

void cpu_run_concat(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct tensor a = op->in[0], b = op->in[1], y = op->out[0];
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t h = 0; h < y.heads; h++) {
            float *out = cpu_row(c, y, r) + h * y.head_stride;
            memcpy(out, cpu_row(c, a, r) + h * a.head_stride, (size_t)a.width * sizeof(float));
            memcpy(out + a.width, cpu_row(c, b, r) + (b.heads == 1 ? 0 : h) * b.head_stride, (size_t)b.width * sizeof(float));
        }
}

void cpu_run_rows(struct cpu *c, const struct op *op, const struct step *step) {
    struct tensor x = op->in[0], y = op->out[0];
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t h = 0; h < y.heads; h++)
            memcpy(cpu_row(c, y, r) + h * y.head_stride, cpu_row(c, x, step->wanted_rows[r]) + h * x.head_stride,
                   (size_t)x.width * sizeof(float));
}

/* The first of the largest; -1 for a poisoned row, whose request fails. A sum tells what the maximum passes over: anything that is no
 * number. Rows are cut into pieces, so that one row keeps all threads busy. */
enum { PEAK_PIECE = 8192 };

struct peak {
    double sum;
    float most;
    int32_t at;
};

struct argmax_job {
    struct cpu *c;
    struct tensor x;
    int32_t n_pieces;
    struct peak *peaks; /* [rows][n_pieces] */
};

static int32_t peak_pieces(const struct op *op) {
    return (op->in[0].width + PEAK_PIECE - 1) / PEAK_PIECE;
}

int64_t cpu_argmax_floats(const struct op *op) {
    return (int64_t)op->in[0].rows * peak_pieces(op) * (int64_t)(sizeof(struct peak) / sizeof(float));
}

static void find_peaks(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct argmax_job *job = ctx;
    const struct kernels *k = &job->c->kern;
    for (int64_t i = first; i < last; i++) {
        int32_t from = (int32_t)(i % job->n_pieces) * PEAK_PIECE, at = 0;
        int32_t n = job->x.width - from < PEAK_PIECE ? job->x.width - from : PEAK_PIECE;
        const float *p = cpu_row(job->c, job->x, i / job->n_pieces) + from;
        float most = k->max(p, n, -INFINITY);
        while (at < n && p[at] != most) at++;
        job->peaks[i] = (struct peak){k->sum(p, n), most, from + at};
    }
}

void cpu_run_argmax(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct argmax_job job = {c, op->in[0], peak_pieces(op), (struct peak *)(void *)c->op_scratch};
    pool_run(c->pool, (int64_t)job.x.rows * job.n_pieces, 1, find_peaks, &job);
    for (int64_t r = 0; r < job.x.rows; r++) {
        const struct peak *p = job.peaks + r * job.n_pieces, *best = p;
        double sum = 0;
        for (int32_t i = 0; i < job.n_pieces; i++) {
            sum += p[i].sum;
            if (p[i].most > best->most) best = p + i;
        }
        int32_t at = isfinite(best->most) && isfinite(cpu_row(c, job.x, r)[0]) && !isnan(sum) ? best->at : -1;
        memcpy(cpu_row(c, op->out[0], r), &at, sizeof at);
    }
}

/* ---- streams ------------------------------------------------------------------------------------------------------ */

/* c [n, n] divided by the sums of its columns, or of its rows. */
static void divide_by_sums(float *c, int32_t n, bool columns, float eps) {
    for (int32_t i = 0; i < n; i++) {
        float sum = 0;
        for (int32_t j = 0; j < n; j++) sum += c[columns ? j * n + i : i * n + j];
        for (int32_t j = 0; j < n; j++) c[columns ? j * n + i : i * n + j] /= sum + eps;
    }
}

static void blend_weights(const struct cpu *c, const struct blend_args *a, const float *logits, int32_t n, float *out) {
    memcpy(out, logits, (size_t)(n * n) * sizeof *out);
    for (int32_t i = 0; i < n; i++) {
        float *row = out + i * n, sum = c->kern.exp_sum(row, n, c->kern.max(row, n, -INFINITY));
        for (int32_t j = 0; j < n; j++) row[j] = row[j] / sum + a->eps;
    }
    divide_by_sums(out, n, true, a->eps);
    for (int32_t i = 1; i < a->rounds; i++) {
        divide_by_sums(out, n, false, a->eps);
        divide_by_sums(out, n, true, a->eps);
    }
}

void cpu_run_blend(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct tensor x = op->in[0], y = op->out[0];
    float weights[BLEND_STREAMS_MAX * BLEND_STREAMS_MAX];
    for (int64_t r = 0; r < x.rows; r++) {
        const float *made = cpu_row(c, op->in[2], r), *post = cpu_row(c, op->in[3], r);
        blend_weights(c, &op->arg.blend, cpu_row(c, op->in[1], r), x.heads, weights);
        for (int32_t k = 0; k < x.heads; k++) {
            float *out = cpu_row(c, y, r) + k * y.head_stride;
            for (int32_t i = 0; i < x.width; i++) out[i] = post[k] * made[i];
            for (int32_t j = 0; j < x.heads; j++)
                c->kern.axpy(out, cpu_row(c, x, r) + j * x.head_stride, weights[j * x.heads + k], x.width);
        }
    }
}
