/* The norms and ropes of queries and keys in one pass: each head of each row by itself. One after the other, these ops are either left to one thread, while the
 * others wait, or end with a barrier each.
 *
 * A norm that only its rope reads is never stored: the rope turns it where it belongs. */
#include "backend/cpu/cpu.h"

/* What the ops of a group do for queries or for keys. */
struct heads_part {
    const struct op *norm, *rope; /* norm NULL: there is none */
    const float *angles;
};

struct heads_job {
    struct cpu *c;
    struct heads_part parts[2];
    int64_t heads; /* of both, in a row */
};

/* A norm of each head by itself, which the op behind it turns, or that op alone; how many they are, 0: neither. */
static int32_t find_part(const struct oplist *l, int32_t i, struct heads_part *out) {
    const struct op *first = i < l->n_ops ? &l->ops[i] : NULL, *next = i + 1 < l->n_ops ? &l->ops[i + 1] : NULL;
    *out = (struct heads_part){.rope = first};
    if (!first || first->kind == OP_ROPE) return first != NULL;
    if (first->kind != OP_NORM || first->n_in != 1 || !next || next->kind != OP_ROPE) return 0;
    struct tensor made = first->out[0], read = next->in[0];
    const struct value *v = &l->values[made.id - 1];
    bool is_whole = made.id == read.id && made.offset == read.offset && made.heads == read.heads && made.width == read.width;
    *out = (struct heads_part){.norm = first, .rope = next};
    return is_whole && v->last_op == i + 1 && !v->is_output ? 2 : 0;
}

static struct tensor input_of(const struct heads_part *p) {
    return p->norm ? p->norm->in[0] : p->rope->in[0];
}

/* Two parts of one pass know nothing of each other: a second rope of the same heads, as towers have for the two sides of a picture, waits for the first. */
static int32_t find(const struct oplist *l, int32_t i, struct heads_part out[2]) {
    int32_t n = find_part(l, i, &out[0]), m = n ? find_part(l, i + n, &out[1]) : 0;
    if (!m || out[0].rope->out[0].rows != out[1].rope->out[0].rows) return 0;
    return input_of(&out[1]).id != out[0].rope->out[0].id ? n + m : 0;
}

int32_t cpu_heads_find(const struct oplist *l, int32_t i) {
    struct heads_part parts[2];
    return find(l, i, parts);
}

static void turn_head(const struct heads_job *job, const struct heads_part *p, int64_t r, int64_t h) {
    struct tensor x = input_of(p), y = p->rope->out[0];
    float *out = cpu_row(job->c, y, r) + h * y.head_stride;
    const float *from = cpu_row(job->c, x, r) + h * x.head_stride;
    if (p->norm) cpu_norm_head(job->c, p->norm, h, from, out);
    else memcpy(out, from, (size_t)y.width * sizeof *out);
    cpu_rope_turn(&p->rope->arg.rope, p->angles + r * p->rope->arg.rope.n_rotated, out);
}

static void turn_heads(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct heads_job *job = ctx;
    int64_t queries = job->parts[0].rope->out[0].heads;
    for (int64_t i = first; i < last; i++) {
        int64_t h = i % job->heads;
        turn_head(job, &job->parts[h >= queries], i / job->heads, h < queries ? h : h - queries);
    }
}

/* About the nanoseconds of one thread; what a barrier costs. */
enum { NORM_WORK = 2, ROPE_WORK = 1, BARRIER_WORK = 4096 };

static int64_t work_of(const struct heads_part *p) {
    return (int64_t)tensor_row_size(p->rope->out[0]) * (p->norm ? NORM_WORK + ROPE_WORK : ROPE_WORK);
}

void cpu_run_heads(struct cpu *c, int32_t i, const struct step *step) {
    struct heads_job job = {.c = c};
    enum { TURNS = 8 }; /* of a thread: with fewer items each takes its share at once */
    find(&c->base.list, i, job.parts);
    struct heads_part *q = &job.parts[0], *k = &job.parts[1];
    int64_t n_threads = pool_threads(c->pool), n_rows = q->rope->out[0].rows;
    cpu_rope_angles(c, q->rope, k->rope, step, &q->angles, &k->angles);
    job.heads = q->rope->out[0].heads + k->rope->out[0].heads;
    int64_t n = n_rows * job.heads, share = (n + n_threads - 1) / n_threads;
    if (n_rows * (work_of(q) + work_of(k)) < BARRIER_WORK) turn_heads(&job, 0, n, 0);
    else pool_run(c->pool, n, share < TURNS ? share : 0, turn_heads, &job);
}
