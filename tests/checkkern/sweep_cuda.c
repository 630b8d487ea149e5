/* checkkern --cuda --sweep: every kernel that can run a product, timed on the products of real models, as JSON.
 *
 * A step holds several products of the same shape, each with a weight of its own so that the L2 cache does not answer for the memory. Its
 * time less that of a step without them, divided by their number, is one product's. What the backend would choose by itself is marked.
 * Nothing is compared here: checkkern --cuda does that. */
#include "../backend_alone.h"
#include "check_cuda.h"

#include "backend/cuda/cuda.h"
#include "base/json.h"
#include "os/os.h"
#include "tensor/quant.h"

#include <stdio.h>
#include <stdlib.h>

enum { COPIES_MAX = 8, COPIES_BYTES = 192 << 20, TIMED = 7, STEPS = 10, ROWS_MAX = 2048 };

struct sweep_product {
    const char *name;
    int64_t out, in;
};
static const struct sweep_product products[] = {
    {"qwen3-0.6b.qkv", 4096, 1024},        {"qwen3-0.6b.gate_up", 6144, 1024},    {"qwen3-0.6b.down", 1024, 3072},
    {"llama-3.2-1b.gate_up", 16384, 2048}, {"llama-3.2-1b.down", 2048, 8192},     {"llama-3.1-8b.qkv", 6144, 4096},
    {"llama-3.1-8b.o", 4096, 4096},        {"llama-3.1-8b.gate_up", 28672, 4096}, {"llama-3.1-8b.down", 4096, 14336},
};
static const struct sweep_product small = {"small", 64, 256}; /* for the emulator */
static const int32_t row_counts[] = {1, 4, 8, 16, 64, 512, 2048};
static const struct format formats[] = {
    {.mode = QUANT_AFFINE, .bits = 4, .group = 64, .dtype = DT_BF16},
    {.mode = QUANT_AFFINE, .bits = 8, .group = 64, .dtype = DT_BF16},
    {.dtype = DT_BF16},
};

struct sweep {
    struct cuda *c;
    struct arena arena;
    struct weight table, weights[COPIES_MAX];
    int32_t n_weights, n_timed, n_steps;
    struct step step;
    struct jsonw json;
};

static void fail_if(int code, const struct err *err) {
    if (!code) return;
    fprintf(stderr, "FAILED  %s\n", err->msg);
    exit(1);
}

/* Codes and bf16 numbers at random, of ordinary size; scales and biases that keep sums finite. */
static int read_random(void *user, enum weight_plane plane, int64_t row, int64_t n_rows, void *dst, struct err *err) {
    const size_t *strides = user;
    uint16_t *out = dst;
    uint64_t state = (uint64_t)row * 0x9e3779b97f4a7c15u + 1;
    (void)err;
    for (size_t i = 0; i < (size_t)n_rows * strides[plane] / 2; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out[i] = (uint16_t)(plane == PLANE_VALUES && strides[PLANE_SCALES] ? state >> 40 : 0x3c00 | (state >> 40 & 0x80ff));
    }
    return ERR_OK;
}

static void bind(struct sweep *s, struct format f, int64_t out, int64_t in, struct weight *w) {
    size_t strides[N_PLANES] = {quant_values_bytes(&f, in), quant_scales_bytes(&f, in), quant_biases_bytes(&f, in)};
    struct weight_source source = {
        .name = "sweep", .format = f, .n_experts = 1, .out = out, .in = in, .read = read_random, .user = strides};
    struct err err;
    fail_if(cuda_weight_bind(&s->c->base, &source, w, &err), &err);
}

static void release(struct sweep *s) {
    for (int32_t i = 0; i < s->n_weights; i++) cuda_weight_release(&s->c->base, &s->weights[i]);
    s->n_weights = 0;
}

static void open_step(struct sweep *s) {
    struct step *t = &s->step;
    *t = (struct step){.rows_capacity = ROWS_MAX, .seqs_capacity = ROWS_MAX, .table_capacity = 1, .n_rope_tables = 0};
    t->ids = arena_new(&s->arena, int32_t, ROWS_MAX);
    t->pos = arena_new(&s->arena, int32_t, ROWS_MAX);
    t->seq_of = arena_new(&s->arena, int32_t, ROWS_MAX);
    t->wanted_rows = arena_new(&s->arena, int32_t, ROWS_MAX);
    t->seqs = arena_new(&s->arena, struct step_seq, ROWS_MAX);
    t->rope = arena_new(&s->arena, float, 1);
}

/* Few rows: a sequence each, as in decode; many: a prompt. */
static struct step_key fill_step(struct sweep *s, int32_t n_rows) {
    struct step *t = &s->step;
    bool decode = n_rows <= 64;
    t->n_rows = n_rows, t->n_seqs = decode ? n_rows : 1, t->n_logits = t->n_wanted = 1;
    for (int32_t i = 0; i < n_rows; i++) t->ids[i] = i % 16, t->pos[i] = decode ? 0 : i, t->seq_of[i] = decode ? i : 0;
    for (int32_t i = 0; i < t->n_seqs; i++) t->seqs[i] = (struct step_seq){.row = i, .n_rows = decode ? 1 : n_rows, .starts = true};
    return (struct step_key){.n_rows = n_rows, .n_seqs = t->n_seqs, .n_logits = 1, .max_len = decode ? 1 : n_rows, .decode_only = decode};
}

/* Nanoseconds of one step with this many products; `chosen` becomes the row that the backend takes. */
static double step_ns(struct sweep *s, int32_t n_rows, int32_t n_products, const struct select_row **chosen) {
    struct backend *be = &s->c->base;
    uint64_t best = UINT64_MAX;
    struct err err;
    cuda_graphs_drop(s->c);
    for (int32_t i = 0; i < s->n_timed; i++) {
        uint64_t start = os_clock_ns();
        for (int32_t k = 0; k < s->n_steps; k++) {
            struct step_key key = fill_step(s, n_rows);
            if (cuda_begin(be, &key)) {
                struct tensor x = op_embed(&be->list, &(struct embed_args){.weight = &s->table, .scale = 1}), y = x;
                for (int32_t j = 0; j < n_products; j++) y = op_linear(&be->list, x, &(struct linear_args){.weight = &s->weights[j]});
                oplist_output(&be->list, y);
                if (n_products) *chosen = cuda_select(s->c, &be->list.ops[be->list.n_ops - 1]);
            }
            fail_if(cuda_end(be, &s->step, &err), &err);
        }
        fail_if(cuda_check(s->c->d, s->c->d->cuStreamSynchronize(s->c->stream), &err, "waiting for the GPU"), &err);
        uint64_t took = os_clock_ns() - start;
        if (took < best) best = took;
    }
    return (double)best / s->n_steps;
}

static void report(struct sweep *s, const struct sweep_product *p, int32_t rows, const struct select_row *row, bool chosen, double ns) {
    const struct format *f = &s->weights[0].format;
    struct jsonw *w = &s->json;
    jsonw_begin(w, '{');
    jsonw_key(w, "product"), jsonw_str(w, str_of(p->name));
    jsonw_key(w, "out"), jsonw_int(w, p->out);
    jsonw_key(w, "in"), jsonw_int(w, p->in);
    jsonw_key(w, "bits"), jsonw_int(w, f->mode == QUANT_NONE ? 16 : f->bits);
    jsonw_key(w, "rows"), jsonw_int(w, rows);
    jsonw_key(w, "kernel"), jsonw_str(w, str_of(row->name));
    jsonw_key(w, "chosen"), jsonw_bool(w, chosen);
    jsonw_key(w, "us"), jsonw_num(w, (double)(int64_t)(ns / 10) / 100);
    jsonw_key(w, "weight_gb_s"), jsonw_num(w, (double)(int64_t)((double)s->weights[0].bytes / ns * 10) / 10);
    jsonw_key(w, "tflop_s"), jsonw_num(w, (double)(int64_t)(2.0 * (double)rows * (double)p->out * (double)p->in / ns / 100) / 10);
    jsonw_end(w, '}');
}

/* One product, format and number of rows on every row of the table that takes it. */
static void sweep_rows(struct sweep *s, const struct sweep_product *p, int32_t n_rows) {
    const struct select_row *own = NULL, *taken = NULL;
    s->c->forced = NULL;
    double empty = step_ns(s, n_rows, 0, &taken);
    (void)step_ns(s, n_rows, s->n_weights, &own);
    for (const struct select_row *row = cuda_select_rows; row->name; row++) {
        if (row->kind != OP_LINEAR) continue;
        if (row->lower == lower_linear_ref && row != own) continue; /* a hundred times as slow: not a choice */
        s->c->forced = row;
        double ns = step_ns(s, n_rows, s->n_weights, &taken) - empty;
        if (taken == row) report(s, p, n_rows, taken, taken == own, ns / s->n_weights);
    }
    s->c->forced = NULL;
}

int sweep_cuda(const char *only, bool quick) {
    struct sweep s = {.n_timed = quick ? 1 : TIMED, .n_steps = quick ? 2 : STEPS};
    struct sb out = {0};
    struct err err;
    struct backend *be = NULL;
    fail_if(backend_open_alone(&cuda_backend, &(struct device_options){0}, &(struct backend_options){0}, &be, &err), &err);
    s.c = (struct cuda *)be;
    s.json = (struct jsonw){.out = &out};
    fail_if(be->type->kv_open(be, &(struct kv_layout){.n_slots = 1, .max_context = ROWS_MAX}, &err), &err);
    open_step(&s);
    jsonw_begin(&s.json, '[');
    const struct sweep_product *list = quick ? &small : products;
    for (size_t i = 0; i < (quick ? 1 : sizeof products / sizeof *products); i++) {
        if (only && !strstr(list[i].name, only)) continue;
        bind(&s, (struct format){.dtype = DT_F32}, 16, list[i].in, &s.table);
        for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
            do {
                bind(&s, formats[k], list[i].out, list[i].in, &s.weights[s.n_weights]);
            } while (++s.n_weights < (quick ? 1 : COPIES_MAX) && (size_t)s.n_weights * s.weights[0].bytes < COPIES_BYTES);
            for (size_t r = 0; r < (quick ? 3 : sizeof row_counts / sizeof *row_counts); r++) sweep_rows(&s, &list[i], row_counts[r]);
            release(&s);
        }
        cuda_weight_release(be, &s.table);
    }
    jsonw_end(&s.json, ']');
    struct sb lines = {0};
    json_pretty(sb_str(&out), &lines);
    printf("%.*s\n", (int)lines.n, lines.p);
    sb_free(&out), sb_free(&lines);
    be->type->kv_close(be);
    backend_close(be);
    arena_free(&s.arena);
    return 0;
}
