/* A bench for single ops on the CPU backend: inputs are rows of a made-up embedding, steps are described by hand.
 *
 * Every weight and input is a pure function of (seed, index), so that a case can compute its expectation in double
 * precision without reading anything back.
 */
#ifndef MLXCEL_TESTS_OPS_BENCH_H
#define MLXCEL_TESTS_OPS_BENCH_H

#include "../backend_alone.h"
#include "unit.h"

#include "backend/backend.h"
#include "base/rng.h"
#include "tensor/quant.h"

enum { BENCH_ROWS = 64, BENCH_SEQS = 8, BENCH_WEIGHTS = 16 };

struct ops_bench {
    struct backend *be;
    struct arena arena;
    struct weight weights[BENCH_WEIGHTS];
    int32_t n_weights;
    struct step step;
    int32_t ids[BENCH_ROWS], pos[BENCH_ROWS], seq_of[BENCH_ROWS], wanted_rows[BENCH_ROWS];
    struct step_seq seqs[BENCH_SEQS];
};

/* Element i of the data with this seed, in [-1, 1), exact in bf16. */
static inline float bench_value(uint64_t seed, int64_t i) {
    return (float)((double)(int64_t)(rng_uniform(seed, (uint64_t)i, 0) * 256.0) / 128.0 - 1.0);
}

static inline void bench_open_as(struct ops_bench *b, int32_t n_threads, enum precision precision) {
    struct err err;
    *b = (struct ops_bench){0};
    CHECK_OK(backend_open_alone(&cpu_backend, &(struct device_options){.n_threads = n_threads},
                                &(struct backend_options){.precision = precision}, &b->be, &err),
             err);
    b->step = (struct step){.rows_capacity = BENCH_ROWS,
                            .seqs_capacity = BENCH_SEQS,
                            .ids = b->ids,
                            .pos = b->pos,
                            .seq_of = b->seq_of,
                            .wanted_rows = b->wanted_rows,
                            .seqs = b->seqs};
}

static inline void bench_open(struct ops_bench *b, int32_t n_threads) {
    bench_open_as(b, n_threads, PRECISION_EXACT);
}

static inline void bench_close(struct ops_bench *b) {
    for (int32_t i = 0; i < b->n_weights; i++) cpu_backend.weight_release(b->be, &b->weights[i]);
    backend_close(b->be);
    arena_free(&b->arena);
}

struct bench_rows {
    const unsigned char *planes[N_PLANES];
    size_t strides[N_PLANES];
};

static inline int bench_read(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    const struct bench_rows *r = user;
    (void)err;
    memcpy(dst, r->planes[plane] + (size_t)row * r->strides[plane], (size_t)n_rows * r->strides[plane]);
    return ERR_OK;
}

/* A weight [experts, out, in] of the given numbers, packed in the format. */
static inline const struct weight *bench_weight(struct ops_bench *b, struct format f, int32_t n_experts, int64_t out, int64_t in,
                                                const float *x) {
    size_t n = (size_t)n_experts * (size_t)out;
    struct bench_rows rows = {.strides = {quant_values_bytes(&f, in), quant_scales_bytes(&f, in), quant_biases_bytes(&f, in)}};
    unsigned char *planes[N_PLANES];
    for (int p = 0; p < N_PLANES; p++) rows.planes[p] = planes[p] = arena_alloc(&b->arena, n * rows.strides[p] + 1);
    for (size_t r = 0; r < n; r++) {
        unsigned char *values = planes[0] + r * rows.strides[0];
        if (f.mode == QUANT_NONE) CHECK(plain_from_f32(f.dtype, x + r * (size_t)in, in, values));
        else quant_pack(&f, x + r * (size_t)in, in, values, planes[1] + r * rows.strides[1], planes[2] + r * rows.strides[2]);
    }
    struct weight_source source = {.name = "bench",
                                   .format = f,
                                   .n_experts = n_experts,
                                   .out = out,
                                   .in = in,
                                   .is_vector = out == 1,
                                   .read = bench_read,
                                   .user = &rows};
    struct err err;
    CHECK(b->n_weights < BENCH_WEIGHTS);
    CHECK_OK(cpu_backend.weight_bind(b->be, &source, &b->weights[b->n_weights], &err), err);
    return &b->weights[b->n_weights++];
}

/* n numbers of a seed, times scale, plus offset. */
static inline float *bench_floats(struct ops_bench *b, uint64_t seed, int64_t n, float scale, float offset) {
    float *x = arena_new(&b->arena, float, n);
    for (int64_t i = 0; i < n; i++) x[i] = bench_value(seed, i) * scale + offset;
    return x;
}

static inline const struct weight *bench_vector(struct ops_bench *b, const float *x, int64_t n) {
    return bench_weight(b, (struct format){.dtype = DT_F32}, 1, 1, n, x);
}

/* Begins a step without rows. */
static inline void bench_clear(struct ops_bench *b) {
    b->step.n_rows = b->step.n_seqs = 0;
}

/* Rows first ... first + n - 1 of the inputs as positions pos ... of the sequence in `slot`. */
static inline void bench_rows(struct ops_bench *b, int32_t slot, int32_t first, int32_t n, int32_t pos) {
    struct step *s = &b->step;
    s->seqs[s->n_seqs] = (struct step_seq){.row = s->n_rows, .n_rows = n, .pos = pos, .slot = slot, .starts = pos == 0};
    for (int32_t i = 0; i < n; i++) {
        s->ids[s->n_rows] = first + i;
        s->pos[s->n_rows] = pos + i;
        s->seq_of[s->n_rows] = s->n_seqs;
        s->n_rows++;
    }
    s->n_seqs++;
}

/* The list of the step, empty. */
static inline struct oplist *bench_begin(struct ops_bench *b) {
    cpu_backend.begin(b->be, &(struct step_key){.n_rows = b->step.n_rows, .n_seqs = b->step.n_seqs});
    return &b->be->list;
}

/* The step's input rows out of a table [n, width]. */
static inline struct tensor bench_input(struct oplist *l, const struct weight *table) {
    return op_embed(l, &(struct embed_args){.weight = table, .scale = 1.0f});
}

static inline void bench_run(struct ops_bench *b, struct tensor t, void *out) {
    struct err err = {0};
    oplist_output(&b->be->list, t);
    CHECK_OK(cpu_backend.end(b->be, &b->step, &err), err);
    if (out) CHECK_OK(cpu_backend.read(b->be, t, out, &err), err);
}

#endif
