/* checkkern --cuda: every case on the CPU's reference and on the GPU, in both precisions; results within the tolerance, and the same bits
 * when the same steps run again. */
#include "../backend_alone.h"
#include "check_cuda.h"
#include "check_ops.h"

#include "base/rng.h"
#include "os/os.h"
#include "tensor/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool check_verbose;

enum { CASES_MAX = 2048, RESULT_MAX = 8 << 20 };

float check_value(uint64_t seed, int64_t i) {
    return (float)((double)(int64_t)(rng_uniform(seed, (uint64_t)i, 0) * 256.0) / 128.0 - 1.0);
}

/* ---- weights ------------------------------------------------------------------------------------------------------- */

struct planes {
    unsigned char *p[N_PLANES];
    size_t strides[N_PLANES];
};

static int read_planes(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    const struct planes *s = user;
    (void)err;
    memcpy(dst, s->p[plane] + (size_t)row * s->strides[plane], (size_t)n_rows * s->strides[plane]);
    return ERR_OK;
}

static void fail_if(int code, const struct err *err) {
    if (!code) return;
    printf("FAILED  %s\n", err->msg);
    exit(1);
}

/* is_expert: the matrices of several are experts', not heads'. */
static const struct weight *bind(struct check *c, struct format f, int32_t n_experts, bool is_expert, int64_t out, int64_t in,
                                 const float *x, bool vector) {
    size_t rows = (size_t)n_experts * (size_t)out;
    struct planes s = {.strides = {quant_values_bytes(&f, in), quant_scales_bytes(&f, in), quant_biases_bytes(&f, in)}};
    for (int p = 0; p < N_PLANES; p++) s.p[p] = arena_alloc(&c->arena, rows * s.strides[p] + 1);
    for (size_t r = 0; r < rows; r++)
        quant_pack(&f, x + r * (size_t)in, in, s.p[0] + r * s.strides[0], s.p[1] + r * s.strides[1], s.p[2] + r * s.strides[2]);
    struct weight_source source = {.name = "case",
                                   .format = f,
                                   .n_experts = n_experts,
                                   .out = out,
                                   .in = in,
                                   .is_vector = vector,
                                   .is_expert = is_expert,
                                   .read = read_planes,
                                   .user = &s};
    struct err err;
    fail_if(c->be->type->weight_bind(c->be, &source, &c->weights[c->n_weights], &err), &err);
    c->i_weight++;
    return &c->weights[c->n_weights++];
}

static const struct weight *make_weight(struct check *c, struct format f, int32_t n_experts, bool is_expert, int64_t out, int64_t in,
                                        uint64_t seed, float scale) {
    if (c->i_weight < c->n_weights) return &c->weights[c->i_weight++];
    int64_t n = n_experts * out * in;
    float *x = arena_new(&c->arena, float, n);
    for (int64_t i = 0; i < n; i++) x[i] = check_value(seed, i) * scale;
    return bind(c, f, n_experts, is_expert, out, in, x, false);
}

const struct weight *check_weight(struct check *c, struct format f, int32_t n_experts, int64_t out, int64_t in, uint64_t seed,
                                  float scale) {
    return make_weight(c, f, n_experts, n_experts > 1, out, in, seed, scale);
}

const struct weight *check_weight_of_heads(struct check *c, struct format f, int32_t heads, int64_t out, int64_t in, uint64_t seed,
                                           float scale) {
    return make_weight(c, f, heads, false, out, in, seed, scale);
}

const struct weight *check_vector(struct check *c, int64_t n, uint64_t seed, float scale, float offset) {
    if (c->i_weight < c->n_weights) return &c->weights[c->i_weight++];
    float *x = arena_new(&c->arena, float, n);
    for (int64_t i = 0; i < n; i++) x[i] = check_value(seed, i) * scale + offset;
    return bind(c, (struct format){.dtype = DT_F32}, 1, false, 1, n, x, true);
}

/* A table of rows by token id; ids are unique for every sequence and position. */
struct tensor check_input(struct check *c, struct oplist *l, int64_t width, uint64_t seed) {
    const struct weight *table = check_weight(c, (struct format){.dtype = DT_F32}, 1, CHECK_ROWS * CHECK_SEQS, width, seed + 100, 1);
    return op_embed(l, &(struct embed_args){.weight = table, .scale = 1});
}

/* ---- steps --------------------------------------------------------------------------------------------------------- */

static void open_step(struct check *c) {
    struct step *s = &c->step;
    *s = (struct step){
        .rows_capacity = CHECK_ROWS, .seqs_capacity = CHECK_SEQS, .table_capacity = CHECK_BLOCKS, .n_rope_tables = 2, .rope_width = 32};
    s->ids = arena_new(&c->arena, int32_t, CHECK_ROWS);
    s->pos = arena_new(&c->arena, int32_t, CHECK_ROWS);
    s->seq_of = arena_new(&c->arena, int32_t, CHECK_ROWS);
    s->wanted_rows = arena_new(&c->arena, int32_t, CHECK_ROWS);
    s->seqs = arena_new(&c->arena, struct step_seq, CHECK_SEQS);
    s->rope = arena_new(&c->arena, float, CHECK_SEQS * 2 * 32);
    s->tables[0] = arena_new(&c->arena, int32_t, CHECK_SEQS * CHECK_BLOCKS);
    s->sharing = arena_new(&c->arena, int32_t, CHECK_SEQS);
    s->places = arena_new(&c->arena, int32_t, CHECK_ROWS * STEP_AXES);
    c->until = arena_new(&c->arena, int32_t, CHECK_ROWS);
    for (int k = 0; k < 2; k++) {
        s->spans[k] = arena_new(&c->arena, int32_t, 2 * CHECK_ROWS);
        s->given[k] = arena_new(&c->arena, const float *, CHECK_ROWS);
    }
    c->numbers = arena_new(&c->arena, float, CHECK_ROWS *CHECK_GIVEN_WIDTH);
    for (int64_t i = 0; i < CHECK_ROWS * CHECK_GIVEN_WIDTH; i++) c->numbers[i] = check_value(60, i);
    for (int64_t i = 0; i < CHECK_SEQS * 2 * 32; i++) s->rope[i] = check_value(50, i) * 0.5f + 0.5f;
}

/* Blocks of a sequence lie scattered over the pool. */
static int32_t block_of(int32_t seq, int32_t i) {
    return 1 + (i * 5 + seq * 11) % CHECK_BLOCKS + CHECK_BLOCKS * seq;
}

/* With CHECK_SHARES the second sequence begins with the blocks of the first, which are there when it comes; the third does not. */
enum { SHARED_BLOCKS = 4, SHARING_SEQS = 2 };

static void fill_step(struct check *c, const struct check_step *rows, bool shares) {
    struct step *s = &c->step;
    s->n_rows = s->n_seqs = s->n_logits = s->n_wanted = s->n_sharing = 0;
    for (int pass = 0; pass < 2; pass++) /* decode rows first */
        for (int32_t q = 0; q < CHECK_SEQS; q++) {
            int32_t n = rows->rows[q];
            if (n == 0 || (pass == 0) != (n == 1)) continue;
            int32_t i_seq = s->n_seqs++;
            if (shares && q == 1 && c->done[q] == 0) c->done[q] = SHARED_BLOCKS * KV_BLOCK;
            if (shares && q < SHARING_SEQS) s->sharing[s->n_sharing++] = s->n_rows;
            s->seqs[i_seq] = (struct step_seq){.row = s->n_rows, .n_rows = n, .pos = c->done[q], .slot = q, .starts = c->done[q] == 0};
            for (int32_t i = 0; i < CHECK_BLOCKS; i++)
                s->tables[0][i_seq * CHECK_BLOCKS + i] = block_of(shares && q == 1 && i < SHARED_BLOCKS ? 0 : q, i);
            for (int32_t i = 0; i < n; i++, s->n_rows++, c->done[q]++) {
                s->ids[s->n_rows] = q * CHECK_ROWS + c->done[q];
                s->pos[s->n_rows] = c->done[q];
                s->seq_of[s->n_rows] = i_seq;
            }
            s->wanted_rows[s->n_wanted++] = s->n_rows - 1;
            s->n_logits = s->n_wanted;
        }
}

/* Numbers of some rows from the host; rows of a sequence that see each other; all rows of the step, or windows of 48; places, which are the same along all
 * axes in a decode step. */
static void fill_pictures(struct check *c, const struct check_case *which) {
    struct step *s = &c->step;
    s->until = which->has & CHECK_SEEN ? c->until : NULL;
    bool is_text = s->n_rows == s->n_seqs && !(which->has & CHECK_GIVEN);
    int32_t *spans[2] = {(int32_t *)(uintptr_t)s->spans[0], (int32_t *)(uintptr_t)s->spans[1]};
    for (int32_t r = 0; r < s->n_rows; r++) {
        const struct step_seq *seq = &s->seqs[s->seq_of[r]];
        int32_t behind = seq->pos + seq->n_rows * 2 / 3, window = r / 48 * 48;
        for (int32_t k = 0; k < 2; k++) s->given[k][r] = (r + k) % 3 ? c->numbers + (int64_t)r * CHECK_GIVEN_WIDTH / (k + 1) : NULL;
        for (int32_t k = 0; k < STEP_AXES; k++) s->places[r * STEP_AXES + k] = is_text ? s->pos[r] + 5 : s->pos[r] / (k + 1) + k;
        c->until[r] = s->pos[r] < behind ? behind - 1 : -1;
        spans[0][2 * r] = 0, spans[0][2 * r + 1] = s->n_rows;
        spans[1][2 * r] = window, spans[1][2 * r + 1] = window + 48 < s->n_rows ? window + 48 : s->n_rows;
    }
}

static struct step_key key_of(const struct check *c, const struct check_case *which) {
    const struct step *s = &c->step;
    struct step_key key = {.n_rows = s->n_rows, .n_seqs = s->n_seqs, .n_logits = s->n_logits, .decode_only = s->n_rows == s->n_seqs};
    key.gives = which->has & CHECK_GIVEN, key.has_places = which->has & CHECK_PLACES;
    if (key.decode_only && s->n_sharing > 1) key.shared_len = SHARED_BLOCKS * KV_BLOCK;
    key.sees = which->has & CHECK_SEEN, key.has_spans = which->has & CHECK_SPANS;
    for (int32_t i = 0; i < s->n_seqs; i++)
        if (s->seqs[i].pos + s->seqs[i].n_rows > key.max_len) key.max_len = s->seqs[i].pos + s->seqs[i].n_rows;
    return key;
}

/* All steps of a case; the results one behind the other. Returns their number. */
static int64_t run_case(struct check *c, const struct check_case *which, float *out) {
    int64_t n = 0;
    struct tensor t = c->result;
    memset(c->done, 0, sizeof c->done);
    for (int32_t i = 0; i < which->n_steps; i++) {
        struct err err = {0};
        fill_step(c, &which->steps[i], which->has & CHECK_SHARES);
        struct step_key key = key_of(c, which);
        fill_pictures(c, which);
        if (c->be->type->begin(c->be, &key)) {
            c->i_weight = 0;
            t = which->build(c, &c->be->list, which);
            oplist_output(&c->be->list, t);
            c->result = t;
        } else {
            t.rows = c->step.n_rows; /* replayed */
        }
        fail_if(c->be->type->end(c->be, &c->step, &err), &err);
        int64_t size = t.rows * tensor_row_size(t);
        if (n + size > RESULT_MAX) {
            printf("FAILED  %s: more results than fit\n", which->name);
            exit(1);
        }
        fail_if(c->be->type->read(c->be, t, out + n, &err), &err);
        n += size;
    }
    return n;
}

static struct backend *open_backend(const struct backend_type *type, enum precision precision, int32_t kv_bits) {
    struct err err;
    struct backend *be = NULL;
    struct backend_options options = {.precision = precision, .kv_bits = kv_bits};
    fail_if(backend_open_alone(type, &(struct device_options){.n_threads = 2}, &options, &be, &err), &err);
    return be;
}

static void open_check(struct check *c, struct backend *be, const struct check_case *which) {
    struct err err;
    *c = (struct check){.be = be};
    c->layout = (struct kv_layout){.n_states = 5, .n_slots = CHECK_SEQS, .max_context = CHECK_BLOCKS * KV_BLOCK};
    static const int64_t states[] = {1200, 4 * 128 * 128, 4 * 64 * 128, 40 * 64, 3 * 96 * 96};
    for (int i = 0; i < 5; i++) c->layout.states[i].elements = states[i];
    if (which->p[2] && which->p[0] >= which->p[1]) { /* of attention; harmless elsewhere */
        c->layout.n_classes = 1;
        c->layout.classes[0] = (struct kv_class){.n_layers = 2,
                                                 .heads = which->p[1] > 0 ? which->p[1] : 1,
                                                 .k_width = which->p[2],
                                                 .v_width = which->p[3] < 0 ? 0 : which->p[3],
                                                 .n_blocks = CHECK_SEQS * CHECK_BLOCKS + 1};
    }
    fail_if(be->type->kv_open(c->be, &c->layout, &err), &err);
    open_step(c);
}

static void close_check(struct check *c) {
    for (int32_t i = 0; i < c->n_weights; i++) c->be->type->weight_release(c->be, &c->weights[i]);
    c->be->type->kv_close(c->be);
    arena_free(&c->arena);
}

/* ---- comparing ----------------------------------------------------------------------------------------------------- */

/* |got - want| / |want| over all results; huge where something is not a number. */
static double distance(const float *got, const float *want, int64_t n) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        difference += d * d;
        size += (double)want[i] * (double)want[i];
    }
    if (!(difference >= 0)) return 1e30;
    return sqrt(difference) / (sqrt(size) + 1e-30);
}

struct tally {
    int n_passed, n_failed;
    float *want, *got, *again;
};

static void compare(struct tally *t, const struct check_case *which, const char *how, struct backend *be, int64_t n) {
    struct check c;
    open_check(&c, be, which);
    int64_t n_got = run_case(&c, which, t->got), n_again = run_case(&c, which, t->again);
    double exact = be->kv_bits ? 1e-3 : 1e-5; /* of 8 bits: a sum that is rounded otherwise may be another code */
    double limit = be->precision == PRECISION_EXACT ? exact : 8e-3 * (which->slack > 0 ? which->slack : 1),
           d = n_got == n ? distance(t->got, t->want, n) : 1e30;
    bool equal = n_got == n_again && memcmp(t->got, t->again, (size_t)n * sizeof(float)) == 0;
    if (which->exact_ints) d = memcmp(t->got, t->want, (size_t)n * sizeof(float)) == 0 ? 0 : 1e30;
    bool ok = d <= limit && equal;
    if (ok) t->n_passed++;
    else t->n_failed++;
    if (!ok || check_verbose)
        printf("%s  %-60s %-8s %.2g%s\n", ok ? "ok    " : "FAILED", which->name, how, d,
               equal ? "" : ", and another result the second time");
    fflush(stdout);
    close_check(&c);
}

static struct tally open_tally(void) {
    size_t bytes = RESULT_MAX * sizeof(float);
    return (struct tally){.want = mem_alloc(bytes), .got = mem_alloc(bytes), .again = mem_alloc(bytes)};
}

/* Says what passed. Returns the number of the exit status. */
static int close_tally(struct tally *t) {
    printf("%d passed, %d failed\n", t->n_passed, t->n_failed);
    mem_free(t->want);
    mem_free(t->got);
    mem_free(t->again);
    return t->n_failed ? 1 : 0;
}

/* Each case on the CPU's reference and on two backends (the first may be NULL), which are closed. */
static void check_backends(struct tally *t, struct check_case *cases, int32_t n_cases, const char *only, struct check_part part,
                           struct backend *exact, struct backend *rounded) {
    struct backend *cpu = open_backend(&cpu_backend, PRECISION_EXACT, rounded->kv_bits);
    for (int32_t i = 0; i < n_cases; i++) {
        if (i % part.n != part.i || (only && !strstr(cases[i].name, only))) continue;
        struct check c;
        open_check(&c, cpu, &cases[i]);
        int64_t n = run_case(&c, &cases[i], t->want);
        close_check(&c);
        if (exact) compare(t, &cases[i], "exact", exact, n);
        compare(t, &cases[i], "default", rounded, n);
    }
    backend_close(cpu);
    backend_close(exact);
    backend_close(rounded);
}

int check_cuda(const char *only, bool quick, struct check_part part) {
    struct check_case *cases = mem_alloc(CASES_MAX * sizeof *cases);
    struct tally t = open_tally();
    for (int32_t bits = 0; bits <= 8; bits += 8) {
        struct backend *exact = open_backend(&cuda_backend, PRECISION_EXACT, bits),
                       *rounded = open_backend(&cuda_backend, PRECISION_AUTO, bits);
        int32_t n = bits ? check_kv8_cases(cases, CASES_MAX, quick) : check_cases(cases, CASES_MAX, quick);
        check_backends(&t, cases, n, only, part, exact, rounded);
    }
    int code = close_tally(&t);
    mem_free(cases);
    return code;
}

int check_cpu_shapes(const char *only) {
    struct check_case *cases = mem_alloc(CASES_MAX * sizeof *cases);
    struct tally t = open_tally();
    check_backends(&t, cases, check_shape_cases(cases, CASES_MAX), only, (struct check_part){0, 1}, NULL,
                   open_backend(&cpu_backend, PRECISION_AUTO, 0));
    mem_free(cases);
    return close_tally(&t);
}
