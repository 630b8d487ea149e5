/* Programs by shape: compiled on first use, kept in memory (six of them), and on disk where the plugin can save them. */
#include "backend/xla/xla.h"

#include "base/log.h"
#include "base/sha256.h"
#include "os/os.h"

#include <assert.h>

/* ---- the cache on disk -------------------------------------------------------------------------------------------- */

static const char cache_magic[8] = {'M', 'L', 'X', 'C', 'E', 'L', 'X', '1'};
enum { DIGEST_BYTES = 32, CACHE_HEAD = sizeof cache_magic + DIGEST_BYTES };

static void digest_of(struct str data, unsigned char out[DIGEST_BYTES]) {
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, data.p, data.n);
    sha256_final(&s, out);
}

/* By plugin, device and program. */
static const char *cache_path(struct xla *x, struct arena *a, struct str text) {
    struct sb key = {0};
    char hex[DIGEST_BYTES * 2 + 1];
    unsigned char digest[DIGEST_BYTES];
    sb_fmt(&key, "%s\n%s\n%s\n%d.%d\n", x->pjrt.platform, x->pjrt.platform_version, x->pjrt.device_kind, x->pjrt.major, x->pjrt.minor);
    sb_put(&key, text);
    digest_of(sb_str(&key), digest);
    sha256_hex(digest, hex);
    sb_free(&key);
    return str_fmt(a, "%s/%.32s.bin", x->cache_dir, hex).p;
}

static bool cache_load(struct xla *x, const char *path, struct pjrt_executable **out) {
    struct arena a = {0};
    struct str file;
    unsigned char digest[DIGEST_BYTES];
    bool good = os_file_load(&a, path, 0, &file, NULL) == ERR_OK && file.n > CACHE_HEAD && !memcmp(file.p, cache_magic, sizeof cache_magic);
    if (good) {
        digest_of(str_from(file, CACHE_HEAD), digest);
        good = !memcmp(digest, file.p + sizeof cache_magic, sizeof digest);
    }
    struct err err = {0};
    if (good && pjrt_deserialize(&x->pjrt, str_from(file, CACHE_HEAD), out, &err)) {
        log_debug("%s: %s", path, err.msg);
        good = false;
    }
    arena_free(&a);
    return good;
}

/* What cannot be saved is compiled again next time: worth a line in the debug log only. */
static void cache_save(struct xla *x, const char *path, struct pjrt_executable *exec) {
    struct sb bytes = {0};
    struct err err = {0};
    unsigned char digest[DIGEST_BYTES];
    char *head = sb_extend(&bytes, CACHE_HEAD);
    memset(head, 0, CACHE_HEAD);
    int code = pjrt_serialize(&x->pjrt, exec, &bytes, &err);
    if (!code) {
        digest_of(str_from(sb_str(&bytes), CACHE_HEAD), digest);
        memcpy(bytes.p, cache_magic, sizeof cache_magic);
        memcpy(bytes.p + sizeof cache_magic, digest, sizeof digest);
        code = os_make_dirs(x->cache_dir, &err);
    }
    if (!code) code = os_file_save(path, sb_str(&bytes), &err);
    if (code) log_debug("a compiled program is not kept: %s", err.msg);
    sb_free(&bytes);
}

int xla_compile_cached(struct xla *x, struct str text, const char *what, struct pjrt_executable **out, struct err *err) {
    struct arena a = {0};
    const char *path = x->cache_dir ? cache_path(x, &a, text) : NULL;
    int code = ERR_OK;
    if (path && cache_load(x, path, out)) {
        x->n_loaded++;
        log_debug("xla: program for %s loaded from %s", what, path);
    } else {
        uint64_t start = os_clock_ns();
        log_info("xla: compiling the program for %s ...", what);
        code = pjrt_compile(&x->pjrt, text, out, err);
        if (!code) {
            x->n_compiled++;
            log_info("xla: compiled the program for %s in %.1f s", what, (double)(os_clock_ns() - start) * 1e-9);
            if (path) cache_save(x, path, *out);
        }
    }
    arena_free(&a);
    return code;
}

/* ---- by shape ----------------------------------------------------------------------------------------------------- */

int32_t xla_context_bucket(const struct kv_layout *layout, int32_t len) {
    int64_t most = ((int64_t)layout->max_context + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK, bucket = XLA_CONTEXT_FIRST;
    while (bucket < len) bucket *= XLA_CONTEXT_FACTOR;
    return (int32_t)(bucket < most ? bucket : most);
}

static void drop(struct xla *x, struct xla_executable *e) {
    if (e->exec) pjrt_executable_free(&x->pjrt, e->exec);
    mem_free(e->weights);
    *e = (struct xla_executable){0};
}

void xla_programs_drop(struct xla *x) {
    for (int i = 0; i < XLA_PROGRAMS_MAX; i++) drop(x, &x->programs[i]);
    for (int i = 0; i <= KV_CLASSES_MAX; i++) {
        if (x->copiers[i]) pjrt_executable_free(&x->pjrt, x->copiers[i]);
        x->copiers[i] = NULL;
    }
}

/* Whether a program can do the work of a shape: prompts alone, decode steps together, never each other's. */
static bool serves(const struct xla *x, const struct xla_executable *e, const struct xla_shape *want) {
    if (!e->exec || e->n_ops != x->base.list.n_ops || e->at.context < want->context || e->at.rows < want->rows || e->at.seqs < want->seqs)
        return false;
    return want->rows == 1 ? e->at.rows == 1 : e->at.seqs == 1 && (e->at.logits == e->at.rows ? true : want->logits <= e->at.logits);
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
    for (int i = 0; i < XLA_PROGRAMS_MAX; i++) {
        struct xla_executable *e = &x->programs[i];
        is_full &= e->exec != NULL;
        if (e->exec && e->n_ops == x->base.list.n_ops && same_shape(&e->at, want)) return e;
        if (serves(x, e, want) && (!best || work_of(&e->at) < work_of(&best->at))) best = e;
    }
    return is_full ? best : NULL;
}

static struct xla_executable *free_place(struct xla *x) {
    struct xla_executable *oldest = &x->programs[0];
    for (int i = 0; i < XLA_PROGRAMS_MAX; i++) {
        if (!x->programs[i].exec) return &x->programs[i];
        if (x->programs[i].last_use < oldest->last_use) oldest = &x->programs[i];
    }
    drop(x, oldest);
    return oldest;
}

struct str xla_dump_path(struct arena *a, const struct xla *x, const struct xla_shape *at, const char *what) {
    return str_fmt(a, "%s/s%d_r%d_l%d_c%d.%s", x->dump_dir, at->seqs, at->rows, at->logits, at->context, what);
}

static void dump_text(const struct xla *x, struct str text, const struct xla_shape *at) {
    struct arena a = {0};
    struct err err;
    if (x->dump_dir && os_file_save(xla_dump_path(&a, x, at, "mlir").p, text, &err)) log_warn("%s", err.msg);
    arena_free(&a);
}

static int make(struct xla *x, struct xla_shape at, struct xla_executable *e, struct err *err) {
    struct xla_program program;
    char what[96];
    struct emit_args args = {.list = &x->base.list, .at = at, .kv = &x->layout, .ropes = &x->ropes, .half = x->half};
    TRY(emit_program(&args, &program, err));
    struct sb name = {0};
    if (at.rows > 1) sb_fmt(&name, "prompts (%d tokens at once, context %d)", at.rows, at.context);
    else sb_fmt(&name, "decoding (batch %d, context %d)", at.seqs, at.context);
    memcpy(what, name.p, name.n + 1 < sizeof what ? name.n + 1 : sizeof what);
    sb_free(&name);
    dump_text(x, sb_str(&program.text), &at);
    int code = xla_compile_cached(x, sb_str(&program.text), what, &e->exec, err);
    if (!code) {
        e->at = at;
        e->n_ops = x->base.list.n_ops;
        e->weights = program.weights;
        e->n_weights = program.n_weights;
        e->n_outputs = program.n_outputs;
        memcpy(e->outputs, program.outputs, sizeof e->outputs);
        xla_step_layout(&at, &x->layout, &x->ropes, &e->in);
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
        int code = xla_ropes_find(&x->base.list, &x->ropes) ? make(x, want, e, err)
                                                            : err_set(err, ERR_EUNSUPPORTED, "more than %d rope tables", XLA_ROPES_MAX);
        mem_guard_resume(guard);
        TRY(code);
    }
    e->last_use = ++x->n_steps;
    *out = e;
    return ERR_OK;
}
