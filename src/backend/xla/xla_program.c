/* Programs by shape: compiled on first use and kept in memory, six of them unless the user wants another number. */
#include "backend/xla/xla.h"

#include "base/log.h"
#include "os/os.h"

int32_t xla_context_bucket(const struct kv_layout *layout, int32_t len) {
    int64_t most = ((int64_t)layout->max_context + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK, bucket = XLA_CONTEXT_FIRST;
    while (bucket < len) bucket *= XLA_CONTEXT_FACTOR;
    return (int32_t)(bucket < most ? bucket : most);
}

static void drop(struct xla *x, struct xla_executable *e) {
    if (e->exec) pjrt_executable_free(x->pjrt, e->exec);
    mem_free(e->weights);
    *e = (struct xla_executable){0};
}

void xla_programs_drop(struct xla *x) {
    for (int32_t i = 0; i < x->n_places; i++) drop(x, &x->programs[i]);
    for (int i = 0; i <= KV_CLASSES_MAX; i++) {
        if (x->copiers[i]) pjrt_executable_free(x->pjrt, x->copiers[i]);
        x->copiers[i] = NULL;
    }
}

static bool is_for_list(const struct xla *x, const struct xla_executable *e) {
    return e->exec && e->n_ops == x->base.list.n_ops && e->sees == x->sees;
}

/* Whether a program can do the work of a shape: prompts alone, decode steps together, never each other's. */
static bool serves(const struct xla *x, const struct xla_executable *e, const struct xla_shape *want) {
    if (!is_for_list(x, e) || x->needs.is_tower || e->at.context < want->context || e->at.rows < want->rows || e->at.seqs < want->seqs)
        return false;
    return want->rows == 1 ? e->at.rows == 1 : e->at.seqs == 1 && want->logits <= e->at.logits;
}

static int64_t work_of(const struct xla_shape *s) {
    return (int64_t)xla_all_rows(s) * (s->context + 4096) + s->logits;
}

static bool same_shape(const struct xla_shape *a, const struct xla_shape *b) {
    return a->seqs == b->seqs && a->rows == b->rows && a->logits == b->logits && a->context == b->context;
}

/* The program of exactly this shape; or, when all places are taken, the cheapest that serves. */
static struct xla_executable *find(struct xla *x, const struct xla_shape *want) {
    struct xla_executable *best = NULL;
    bool is_full = true;
    for (int32_t i = 0; i < x->n_places; i++) {
        struct xla_executable *e = &x->programs[i];
        is_full &= e->exec != NULL;
        if (is_for_list(x, e) && same_shape(&e->at, want)) return e;
        if (serves(x, e, want) && (!best || work_of(&e->at) < work_of(&best->at))) best = e;
    }
    return is_full ? best : NULL;
}

static struct xla_executable *free_place(struct xla *x) {
    struct xla_executable *oldest = &x->programs[0];
    for (int32_t i = 0; i < x->n_places; i++) {
        if (!x->programs[i].exec) return &x->programs[i];
        if (x->programs[i].last_use < oldest->last_use) oldest = &x->programs[i];
    }
    drop(x, oldest);
    return oldest;
}

static void dump_text(const struct xla *x, struct str text, const struct xla_shape *at) {
    struct arena a = {0};
    struct err err;
    const char *path = str_fmt(&a, "%s/s%d_r%d_l%d_c%d.mlir", x->device->dump_dir, at->seqs, at->rows, at->logits, at->context).p;
    if (os_file_save(path, text, &err)) log_warn("%s", err.msg);
    arena_free(&a);
}

static int compile(struct xla *x, struct str text, const struct xla_shape *at, struct pjrt_executable **out, struct err *err) {
    struct arena a = {0};
    struct str what = at->rows > 1 ? str_fmt(&a, "prompts (%d tokens at once, context %d)", at->rows, at->context)
                                   : str_fmt(&a, "decoding (batch %d, context %d)", at->seqs, at->context);
    if (x->device->dump_dir) dump_text(x, text, at);
    int code = xla_compile_cached(x, text, what.p, out, err);
    arena_free(&a);
    return code;
}

static int make(struct xla *x, struct xla_shape at, struct xla_executable *e, struct err *err) {
    struct xla_program program;
    struct emit_args args = {
        .list = &x->base.list, .at = at, .kv = &x->layout, .needs = &x->needs, .half = x->half, .n_devices = x->pjrt->n_used};
    TRY(emit_program(&args, &program, err));
    int code = compile(x, sb_str(&program.text), &at, &e->exec, err);
    if (!code) {
        e->at = at;
        e->n_ops = x->base.list.n_ops;
        e->weights = program.weights;
        e->n_weights = program.n_weights;
        e->n_outputs = program.n_outputs;
        memcpy(e->outputs, program.outputs, sizeof e->outputs);
        e->sees = x->sees;
        xla_step_layout(&at, &x->layout, &x->needs, &e->in);
        program.weights = NULL;
    }
    xla_program_free(&program);
    return code;
}

int xla_program_get(struct xla *x, struct xla_shape want, struct xla_executable **out, struct err *err) {
    struct xla_executable *e = find(x, &want);
    if (!e) {
        const char *guard = mem_guard_pause(); /* a program is made once and serves every later step of its shape */
        e = free_place(x);
        int code = make(x, want, e, err);
        mem_guard_resume(guard);
        TRY(code);
    }
    e->last_use = ++x->n_uses;
    *out = e;
    return ERR_OK;
}
