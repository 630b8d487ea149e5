/* The xla backend on the fake plugin: which programs are compiled, kept, dropped and found on disk again; nothing leaks, whatever fails. */
#include "../backend_alone.h"
#include "xla_fake.h"

#include "api/synth.h"
#include "backend/xla/xla.h"
#include "base/log.h"
#include "engine/runner.h"
#include "model/model.h"

enum { N_ROWS = 600, N_SEQS = 8, MAX_CONTEXT = 8192 };

struct rig {
    struct arena arena;
    struct xla_fake fake;
    struct xla *x;
    struct model model;
    struct runner runner;
    struct sb log; /* lines since the rig was opened */
};

static void on_line(enum log_level level, const char *line, void *user) {
    if (level <= LOG_INFO) sb_fmt(&((struct rig *)user)->log, "%s\n", line);
}

static int rig_try(struct rig *r, const char *cache_dir, struct err *err) {
    struct synth *synth;
    struct backend *be;
    TRY(backend_open_alone(&xla_backend, &(struct device_options){.xla = {.plugin = r->fake.path, .cache = cache_dir ? cache_dir : "off"}},
                           &(struct backend_options){.precision = PRECISION_EXACT}, &be, err));
    r->x = (struct xla *)be;
    TRY(synth_create(&r->arena, &(struct synth_args){.shape = STR("tiny"), .bits = 4, .seed = 7}, &synth, err));
    struct tensor_store store = synth_store(synth);
    TRY(model_open(&r->arena, be, synth_config(synth), &store, NULL, &r->model, err));
    r->model.spec.context = MAX_CONTEXT;
    return runner_open(&r->model, be, &(struct runner_limits){.rows = N_ROWS, .seqs = N_SEQS, .kv_tokens = MAX_CONTEXT}, &r->runner, err);
}

static void rig_close(struct rig *r) {
    log_set_sink(NULL, NULL);
    r->fake.set("");
    runner_close(&r->runner);
    if (r->x) {
        model_close(&r->x->base, &r->model);
        backend_close(&r->x->base);
    }
    CHECK_INT(r->fake.alive(), 0);
    sb_free(&r->log);
    arena_free(&r->arena);
}

/* `version`: of the plugin; "": the usual one. */
static void rig_open(struct rig *r, const char *cache_dir, const char *version) {
    struct err err = {0};
    *r = (struct rig){0};
    r->fake = xla_fake_open(&r->arena, version);
    log_set_sink(on_line, r);
    CHECK_OK(rig_try(r, cache_dir, &err), err);
}

static bool said(const struct rig *r, const char *words) {
    return str_find(sb_str(&r->log), str_of(words), 0) != STR_NONE;
}

static int count_said(const struct rig *r, const char *words) {
    int n = 0;
    for (size_t at = 0; (at = str_find(sb_str(&r->log), str_of(words), at)) != STR_NONE; at++) n++;
    return n;
}

/* A step of n_seqs new sequences with n_rows tokens each. */
static int run_step(struct rig *r, int32_t n_seqs, int32_t n_rows, struct err *err) {
    struct sequence s[N_SEQS];
    const float *logits;
    batch_clear(&r->runner.batch);
    for (int32_t i = 0; i < n_seqs; i++) {
        CHECK(sequence_init(&s[i], &r->runner.kv, n_rows + 1));
        for (int32_t k = 0; k < n_rows; k++) sequence_append(&s[i], k % 100);
        s[i].n_prompt = n_rows;
        CHECK(sequence_reserve(&s[i], &r->runner.kv, n_rows));
        batch_add(&r->runner.batch, &s[i], n_rows, n_rows - 1, false);
    }
    int code = runner_run(&r->runner, err);
    if (!code) code = runner_logits(&r->runner, &logits, err);
    for (int32_t i = 0; i < n_seqs; i++) sequence_free(&s[i], &r->runner.kv);
    return code;
}

static void step(struct rig *r, int32_t n_seqs, int32_t n_rows) {
    struct err err = {0};
    CHECK_OK(run_step(r, n_seqs, n_rows, &err), err);
}

/* ---- in memory ----------------------------------------------------------------------------------------------------- */

static void test_buckets(void) {
    static const struct {
        int32_t most, len, bucket;
    } rows[] = {{8192, 1, 512},          {8192, 512, 512},      {8192, 513, 2048}, {8192, 2049, 8192}, {131072, 8193, 32768},
                {131072, 32769, 131072}, {40960, 32769, 40960}, {2000, 513, 2048}, {100, 1, 128},      {300, 300, 320}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kv_layout layout = {.max_context = rows[i].most};
        CHECK_INT(xla_context_bucket(&layout, rows[i].len), rows[i].bucket);
    }
}

/* The program that serves a shape; of the list that reserve() walked. */
static struct xla_executable *get(struct rig *r, int32_t seqs, int32_t rows, int32_t context) {
    struct xla_executable *e;
    struct err err = {0};
    CHECK_OK(xla_program_get(r->x, (struct xla_shape){.seqs = seqs, .rows = rows, .logits = seqs, .context = context}, &e, &err), err);
    return e;
}

static void test_places(void) {
    struct rig r;
    rig_open(&r, NULL, "");
    CHECK_INT(r.x->n_places, 6);
    CHECK_INT(r.x->n_compiled, 0); /* nothing before its first use */
    struct xla_executable *prompt = get(&r, 1, 64, 512), *first = get(&r, 1, 1, 512);
    for (int32_t seqs = 2; seqs <= 8; seqs *= 2) get(&r, seqs, 1, 512);
    struct xla_executable *wide = get(&r, 1, 1, 2048);
    CHECK_INT(r.x->n_compiled, 6);
    CHECK(get(&r, 1, 64, 512) == prompt);
    CHECK(get(&r, 1, 1, 512) == first);
    CHECK_INT(r.x->n_compiled, 6);
    /* all places are taken: larger batches do the work of a smaller one, and nothing is compiled */
    struct xla_executable *e = get(&r, 7, 1, 512);
    CHECK(e->at.seqs == 8 && e->at.context == 512);
    CHECK_INT(r.x->n_compiled, 6);
    CHECK(get(&r, 1, 1, 2048) == wide);
    /* nobody can do this: the longest unused makes room, which is the batch of 2 */
    get(&r, 1, 512, 512);
    CHECK_INT(r.x->n_compiled, 7);
    CHECK_INT(get(&r, 2, 1, 512)->at.seqs, 4);
    CHECK_INT(r.x->n_compiled, 7);
    rig_close(&r);
}

static void test_one_place(void) {
    struct rig r;
    rig_open(&r, NULL, "");
    xla_programs_drop(r.x);
    r.x->n_places = 1;
    for (int i = 0; i < 3; i++) {
        step(&r, 1, 40);
        step(&r, 3, 1);
    }
    CHECK_INT(r.x->n_compiled, 6);
    CHECK_INT(count_said(&r, "compiling the program for prompts (64 tokens at once, context 512)"), 3);
    CHECK_INT(count_said(&r, "compiling the program for decoding (batch 4, context 512)"), 3);
    rig_close(&r);
}

/* Sequences of one token together, others alone and in chunks. */
static void test_pieces(void) {
    struct rig r;
    rig_open(&r, NULL, "");
    step(&r, 5, 1);
    step(&r, 2, 3);
    step(&r, 1, 600);
    CHECK_INT(r.x->n_pieces, 2); /* 512 and 88 */
    CHECK(said(&r, "compiling the program for decoding (batch 8, context 512)"));
    CHECK(said(&r, "compiling the program for prompts (64 tokens at once, context 512)"));
    CHECK(said(&r, "compiling the program for prompts (512 tokens at once, context 512)"));
    CHECK(said(&r, "compiling the program for prompts (512 tokens at once, context 2048)"));
    CHECK_INT(r.x->n_compiled, 4);
    rig_close(&r);
}

/* Whatever fails in a step, the next one works and nothing is left behind. */
static void test_failing_steps(void) {
    static const struct xla_fault rows[] = {
        {"compile", ERR_EDEVICE, "compiling a program: line 3: unknown operation"},
        {"memory", ERR_EMEMORY, "copying to the device: out of memory allocating 17 bytes"},
        {"run", ERR_EDEVICE, "running a program: the device is lost"},
        {"await", ERR_EDEVICE, "the device stopped"},
    };
    struct rig r;
    rig_open(&r, NULL, "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        r.fake.set(rows[i].mode);
        CHECK_INT(run_step(&r, 1, 1, &err), rows[i].code);
        xla_fake_said(&rows[i], &err);
        r.fake.set("");
        step(&r, 1, 1);
    }
    rig_close(&r);
}

static void test_failing_start(void) {
    static const char *const modes[] = {"memory", "await"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct rig r = {0};
        struct err err = {0};
        r.fake = xla_fake_open(&r.arena, modes[i]);
        CHECK(rig_try(&r, NULL, &err) != 0);
        CHECK(str_find(str_of(err.msg), STR("copying to the device"), 0) != STR_NONE);
        rig_close(&r);
    }
}

/* ---- on disk ------------------------------------------------------------------------------------------------------- */

/* Names of the cache's files; with their folder. */
static size_t list_files(struct arena *a, const char *dir, struct str **out) {
    struct err err;
    size_t n;
    CHECK_OK(os_list_dir(a, dir, out, &n, &err), err);
    return n;
}

static const char *new_folder(struct arena *a, const char *name) {
    return str_fmt(a, "%s/%s", unit_scratch_dir(), name).p;
}

static void start(struct rig *r, const char *dir, const char *version, int32_t n_compiled, int32_t n_loaded) {
    rig_open(r, dir, version);
    step(r, 1, 1);
    step(r, 1, 5);
    CHECK_INT(r->x->n_compiled, n_compiled);
    CHECK_INT(r->x->n_loaded, n_loaded);
    CHECK_INT(count_said(r, "compiling"), n_compiled);
}

static void test_second_start(void) {
    struct arena a = {0};
    struct rig r;
    struct str *names;
    const char *dir = new_folder(&a, "cache/deep");
    start(&r, dir, "", 2, 0);
    rig_close(&r);
    CHECK_INT(list_files(&a, dir, &names), 2);
    start(&r, dir, "", 0, 2);
    CHECK_INT(r.log.n, 0);
    rig_close(&r);
    /* another version of the plugin has programs of its own */
    start(&r, dir, "version 2", 2, 0);
    rig_close(&r);
    CHECK_INT(list_files(&a, dir, &names), 4);
    start(&r, dir, "version 2", 0, 2);
    rig_close(&r);
    start(&r, dir, "", 0, 2);
    rig_close(&r);
    arena_free(&a);
}

/* Cut short, changed, empty, not ours, refused by the plugin: compiled again, one line each, and whole afterwards. */
static void test_damage(void) {
    struct arena a = {0};
    struct rig r;
    struct str *names, whole;
    struct err err = {0};
    const char *dir = new_folder(&a, "cache");
    start(&r, dir, "", 2, 0);
    rig_close(&r);
    CHECK_INT(list_files(&a, dir, &names), 2);
    const char *path = str_fmt(&a, "%s/%.*s", dir, STR_ARG(names[0])).p;
    CHECK_OK(os_file_load(&a, path, 0, &whole, &err), err);
    struct str changed = str_copy(&a, whole), other = str_copy(&a, whole);
    ((char *)(uintptr_t)changed.p)[whole.n - 1] ^= 1;
    ((char *)(uintptr_t)other.p)[0] ^= 1;
    const struct str damaged[] = {str_sub(whole, 0, whole.n - 3), changed, other, STR(""), STR("not ours"), str_sub(whole, 0, 40)};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        CHECK_OK(os_file_save(path, damaged[i], &err), err);
        start(&r, dir, "", 1, 1);
        CHECK_INT(count_said(&r, "is damaged; the program is compiled again"), 1);
        rig_close(&r);
        start(&r, dir, "", 0, 2);
        rig_close(&r);
    }
    start(&r, dir, "load", 2, 0);
    CHECK_INT(count_said(&r, "loading a saved program: damaged program; the program is compiled again"), 2);
    rig_close(&r);
    arena_free(&a);
}

static void test_no_keeping(void) {
    struct arena a = {0};
    struct rig r;
    struct err err = {0};
    const char *file = new_folder(&a, "file");
    CHECK_OK(os_file_save(file, STR("in the way"), &err), err);
    start(&r, str_fmt(&a, "%s/cache", file).p, "", 2, 0); /* a folder that cannot be made */
    CHECK_INT(count_said(&r, "compiled programs are not kept"), 1);
    CHECK(said(&r, "MLXCEL_XLA_CACHE names another folder"));
    rig_close(&r);
    start(&r, new_folder(&a, "unused"), "no saving", 2, 0);
    CHECK_INT(count_said(&r, "compiled programs are not kept: the plugin cannot save compiled programs"), 1);
    rig_close(&r);
    CHECK(os_stat(new_folder(&a, "unused"), &(struct os_stat){0}, NULL) != 0);
    arena_free(&a);
}

/* A folder that has grown too large loses the oldest programs; what is not ours stays. */
static void test_trimming(void) {
    struct arena a = {0};
    struct rig r;
    struct err err = {0};
    struct os_file *f;
    const char *dir = new_folder(&a, "large"), *old = str_fmt(&a, "%s/0123.bin", dir).p, *other = str_fmt(&a, "%s/notes.txt", dir).p;
    CHECK_OK(os_make_dirs(dir, &err), err);
    CHECK_OK(os_file_open(old, OS_WRITE, &f, &err), err);
    CHECK_OK(os_file_truncate(f, XLA_CACHE_BYTES_MAX, &err), err);
    os_file_close(f);
    CHECK_OK(os_file_save(other, STR("mine"), &err), err);
    start(&r, dir, "", 2, 0);
    rig_close(&r);
    CHECK_INT(os_stat(old, &(struct os_stat){0}, NULL), ERR_ENOTFOUND);
    CHECK_OK(os_stat(other, &(struct os_stat){0}, &err), err);
    start(&r, dir, "", 0, 2);
    rig_close(&r);
    arena_free(&a);
}

const struct unit_suite unit_xla_run = {"xla_run", (const struct unit_case[]){
                                                       {"context buckets", test_buckets},
                                                       {"six programs", test_places},
                                                       {"one program", test_one_place},
                                                       {"pieces of a step", test_pieces},
                                                       {"steps that fail", test_failing_steps},
                                                       {"starts that fail", test_failing_start},
                                                       {"a second start compiles nothing", test_second_start},
                                                       {"damaged files", test_damage},
                                                       {"programs that are not kept", test_no_keeping},
                                                       {"a folder that is full", test_trimming},
                                                       {0},
                                                   }};
