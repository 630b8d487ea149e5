/* api/preflight and os/cgroup: what a cache needs by its classes, the context that fits, refusals with numbers, limits of groups. */
#include "../backend_alone.h"
#include "unit.h"

#include "api/session_internal.h"
#include "os/cgroup.h"
#include "os/os.h"

/* ---- the cache against what is free ------------------------------------------------------------------------------------ */

static uint64_t free_now;

static void tell_memory(struct device *d, uint64_t *out_free, uint64_t *out_total) {
    (void)d;
    *out_free = *out_total = free_now;
}

static const struct backend_type told_type = {.name = "told", .memory = tell_memory};
static struct device told_device = {.type = &told_type};

enum { ROWS = 64, SEQS = 2, WINDOW = 512, SPAN = WINDOW + ROWS + 2 * KV_BLOCK };
/* Two layers keep everything, six a window: bytes of one position each. */
enum { WHOLE_BYTES = 2 * 2 * (64 + 64) * 4, WINDOW_BYTES = 6 * 2 * (64 + 64) * 4 };

static struct session *make_session(struct backend *be) {
    struct session *s = mem_alloc(sizeof *s);
    *be = (struct backend){.type = &told_type, .device = &told_device};
    s->backend = be;
    s->model.spec.context = 131072;
    s->model.spec.kv.n_classes = 2;
    s->model.spec.kv.classes[0] = (struct kv_class){.n_layers = 2, .heads = 2, .k_width = 64, .v_width = 64};
    s->model.spec.kv.classes[1] = (struct kv_class){.n_layers = 6, .heads = 2, .k_width = 64, .v_width = 64, .window = WINDOW};
    return s;
}

static uint64_t bytes_of(int64_t context) {
    return SEQS * (uint64_t)(WHOLE_BYTES * context + WINDOW_BYTES * (context < SPAN ? context : SPAN));
}

static void a_small_cache_counts_as_such(void) {
    struct backend be;
    struct session *s = make_session(&be);
    CHECK(session_cache_bytes(s, 1) == WHOLE_BYTES + WINDOW_BYTES);
    be.kv_bits = 8;
    CHECK(session_cache_bytes(s, 1) == (2 + 6) * 2 * 2 * (64 + 4));
    be.kv_bits = 4;
    CHECK(session_cache_bytes(s, 1) == (2 + 6) * 2 * 2 * (32 + 4));
    free_now = bytes_of(131072) / 3;
    CHECK_INT(preflight_context(s, ROWS, SEQS), 131072);
    mem_free(s);
}

/* A cache that the device or the model cannot have is an error that says what to do. */
static void a_small_cache_is_never_forgotten(void) {
    struct session *s;
    struct err err;
    CHECK_INT(session_open(&(struct session_options){.backend = "trace", .kv_bits = 8}, &s, &err), ERR_EARG);
    CHECK_STR(str_of(err.msg),
              STR("--kv-bits 8 is for the CPU and CUDA and this runs on trace; leave it out, or use --device cpu without --backend"));
    struct backend *cpu;
    CHECK_OK(
        backend_open_alone(&cpu_backend, &(struct device_options){.n_threads = 1}, &(struct backend_options){.kv_bits = 4}, &cpu, &err),
        err);
    static const int32_t widths[][2] = {{576, 0}, {72, 64}, {64, 72}, {512, 512}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct kv_layout layout = {.n_classes = 1, .max_context = KV_BLOCK};
        layout.classes[0] = (struct kv_class){.n_layers = 1, .heads = 1, .k_width = widths[i][0], .v_width = widths[i][1], .n_blocks = 1};
        CHECK_INT(cpu_backend.kv_open(cpu, &layout, &err), ERR_EUNSUPPORTED);
        CHECK(strstr(err.msg, "--kv-bits 4: ") && strstr(err.msg, "leave it out"));
    }
    backend_close(cpu);
}

static void the_context_that_fits(void) {
    struct backend be;
    struct session *s = make_session(&be);
    free_now = 2 * bytes_of(131072);
    CHECK_INT(preflight_context(s, ROWS, SEQS), 131072);
    free_now -= 2;
    CHECK_INT(preflight_context(s, ROWS, SEQS), 131072 - KV_BLOCK);
    for (int32_t context = KV_BLOCK; context < 131072; context = context * 3 / KV_BLOCK * KV_BLOCK) {
        free_now = 2 * bytes_of(context); /* half of it is left to others */
        CHECK_INT(preflight_context(s, ROWS, SEQS), context);
        free_now = 2 * bytes_of(context + KV_BLOCK) - 2;
        CHECK_INT(preflight_context(s, ROWS, SEQS), context);
    }
    free_now = 1000;
    CHECK_INT(preflight_context(s, ROWS, SEQS), KV_BLOCK);
    free_now = 0; /* not known */
    CHECK_INT(preflight_context(s, ROWS, SEQS), 131072);
    s->model.spec.context = 40; /* less than a block */
    free_now = 1000;
    CHECK_INT(preflight_context(s, ROWS, SEQS), 40);
    mem_free(s);
}

static void refusals_have_the_numbers(void) {
    struct backend be;
    struct session *s = make_session(&be);
    struct err err = {0};
    free_now = bytes_of(100000);
    CHECK_OK(preflight_cache(s, 100000, ROWS, SEQS, &err), err);
    CHECK_INT(preflight_cache(s, 131072, ROWS, SEQS, &err), ERR_EMEMORY);
    /* 2 * 2048 * 131072 and 2 * 6144 * 704 bytes, 418,250,752 free; half of that is given to a cache without a wish */
    CHECK_STR(str_of(err.msg),
              STR("a context of 131072 for 2 at once needs 0.5 GB (0.5 GB for the whole context, 0.0 GB in windows of 512) and "
                  "0.4 GB are free here; --ctx-size 48896 fits, --force tries"));
    s->options.force = true;
    CHECK_OK(preflight_cache(s, 131072, ROWS, SEQS, &err), err);
    s->options.force = false;
    CHECK_INT(preflight_weights(s, free_now + 1, &err), ERR_EMEMORY);
    CHECK_STR(str_of(err.msg), STR("the weights need 0.4 GB and 0.4 GB are free here; take a smaller or more quantised model, or --force"));
    CHECK_OK(preflight_weights(s, free_now, &err), err);
    s->options.force = true;
    CHECK_OK(preflight_weights(s, UINT64_MAX, &err), err);
    mem_free(s);
}

/* Classes may differ in what they store: a half here, a float there. */
static int32_t number_bytes(const struct backend *be, const struct kv_class *k) {
    (void)be;
    return k->wide ? 4 : 2;
}

static void each_class_counts_its_own_numbers(void) {
    static const struct backend_type type = {.name = "mixed", .memory = tell_memory, .kv_number_bytes = number_bytes};
    struct backend be;
    struct session *s = make_session(&be);
    struct err err = {0};
    be.type = &type;
    s->model.spec.kv.classes[0].wide = true; /* the first a float, the last a half: neither speaks for both */
    CHECK_INT(session_cache_bytes(s, 1), WHOLE_BYTES + WINDOW_BYTES / 2);
    CHECK_INT(session_cache_bytes(s, 10000), WHOLE_BYTES * 10000 + WINDOW_BYTES / 2 * WINDOW); /* a window reads no more than itself */
    s->model.spec.kv.n_states = 2;
    s->model.spec.kv.states[0].elements = 1000;
    s->model.spec.kv.states[1].elements = 500;
    CHECK_INT(session_cache_bytes(s, 1), WHOLE_BYTES + WINDOW_BYTES / 2 + 1500 * 4);
    uint64_t need = SEQS * (uint64_t)(WHOLE_BYTES * 4096 + WINDOW_BYTES / 2 * SPAN + 1500 * 4);
    free_now = need;
    CHECK_OK(preflight_cache(s, 4096, ROWS, SEQS, &err), err);
    free_now = need - 1;
    CHECK_INT(preflight_cache(s, 4096, ROWS, SEQS, &err), ERR_EMEMORY);
    CHECK(strstr(err.msg, "0.0 GB of recurrent state)"));
    mem_free(s);
}

/* The embedding is a row where the head is a matrix of its own; of the experts a batch reads those that it can choose. */
static void what_a_token_reads(void) {
    struct backend be;
    struct session *s = make_session(&be);
    struct weight embed = {.n_experts = 1, .bytes = 1000}, head = {.n_experts = 1, .bytes = 300}, experts = {.n_experts = 8, .bytes = 800};
    struct weight *all[] = {&embed, &head, &experts};
    double cache = (double)session_cache_bytes(s, 5);
    s->model.weights.all = all;
    s->model.weights.n_all = 3;
    s->model.weights.global[ROLE_EMBED].w = &embed;
    s->model.spec.moe.route.k = 2;
    CHECK_NEAR(session_token_bytes(s, 1, 5), 300 + 200 + cache, 1e-6);
    CHECK_NEAR(session_token_bytes(s, 2, 5), (300 + 400) / 2.0 + cache, 1e-6);
    CHECK_NEAR(session_token_bytes(s, 16, 5), (300 + 800) / 16.0 + cache, 1e-6);
    s->model.spec.tied = true;
    CHECK_NEAR(session_token_bytes(s, 1, 5), 1000 + 300 + 200 + cache, 1e-6);
    mem_free(s);
}

/* ---- loading -------------------------------------------------------------------------------------------------------------- */

struct told {
    int n, n_ends;
    uint64_t last, total;
    bool falls;
};

static void on_load(void *user, uint64_t done, uint64_t total) {
    struct told *t = user;
    t->falls |= done < t->last || done > total || t->n_ends;
    t->n++;
    t->n_ends += done == total;
    t->last = done;
    t->total = total;
}

static void loading_is_told(void) {
    struct told t = {0};
    struct session *s;
    struct err err = {0};
    struct session_options o = {.device = "cpu", .context = 64, .on_load = on_load, .load_user = &t};
    CHECK_OK(session_open(&o, &s, &err), err);
    session_close(s);
    CHECK(t.n > 10 && t.n_ends == 1 && !t.falls && t.total > 1000000);
    t = (struct told){0};
    o.shape = "tiny", o.bits = 4; /* making up takes its time, too */
    CHECK_OK(session_open(&o, &s, &err), err);
    session_close(s);
    CHECK(t.n > 10 && t.n_ends == 1 && !t.falls && t.total > 100000);
}

/* ---- control groups ------------------------------------------------------------------------------------------------------ */

static void put_file(struct arena *a, const char *mount, const char *dir, const char *name, const char *text) {
    struct err err;
    const char *path = str_fmt(a, "%s/%s", mount, dir).p;
    CHECK_OK(os_make_dirs(path, &err), err);
    CHECK_OK(os_file_save(str_fmt(a, "%s/%s", path, name).p, str_of(text), &err), err);
}

struct limits {
    uint64_t total, available;
};

static struct limits memory_of(struct arena *a, const char *mount, const char *groups) {
    struct limits m = {16000, 9000};
    cgroup_memory(a, mount, str_of(groups), &m.total, &m.available);
    return m;
}

/* The smallest limit on the way up counts; pages of files that nobody uses count as free. */
static void group_limits_count(void) {
    struct arena a = {0};
    const char *mount = str_fmt(&a, "%s/groups", unit_scratch_dir()).p;
    struct limits m = memory_of(&a, mount, "0::/job/one\n");
    CHECK(m.total == 16000 && m.available == 9000);
    put_file(&a, mount, "job", "memory.max", "8000\n");
    put_file(&a, mount, "job", "memory.current", "5000\n");
    put_file(&a, mount, "job", "memory.stat", "anon 4000\ninactive_file 1000\n");
    put_file(&a, mount, "job/one", "memory.max", "max\n");
    put_file(&a, mount, "job/one", "memory.current", "7000\n");
    m = memory_of(&a, mount, "0::/job/one\n");
    CHECK(m.total == 8000 && m.available == 4000);
    put_file(&a, mount, "job/one", "memory.max", "7500\n");
    m = memory_of(&a, mount, "0::/job/one\n");
    CHECK(m.total == 7500 && m.available == 500);
    put_file(&a, mount, "job/one", "memory.current", "7600\n");
    CHECK_INT(memory_of(&a, mount, "0::/job/one\n").available, 0);
    m = memory_of(&a, mount, "0::/elsewhere\n");
    CHECK(m.total == 16000 && m.available == 9000);
    put_file(&a, mount, "memory/box", "memory.limit_in_bytes", "6000\n");
    put_file(&a, mount, "memory/box", "memory.usage_in_bytes", "2000\n");
    put_file(&a, mount, "memory/box", "memory.stat", "inactive_file 9\ntotal_inactive_file 500\n");
    m = memory_of(&a, mount, "4:memory:/box\n0::/\n");
    CHECK(m.total == 6000 && m.available == 4500);
    put_file(&a, mount, "memory", "memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_INT(memory_of(&a, mount, "4:memory:/\n").total, 16000);
    /* processors likewise */
    CHECK_INT(cgroup_quota(&a, mount, STR("0::/job/one\n")), 0);
    put_file(&a, mount, "job", "cpu.max", "300000 100000\n");
    put_file(&a, mount, "job/one", "cpu.max", "max 100000\n");
    CHECK_INT(cgroup_quota(&a, mount, STR("0::/job/one\n")), 3);
    put_file(&a, mount, "job/one", "cpu.max", "150000 100000\n");
    CHECK_INT(cgroup_quota(&a, mount, STR("0::/job/one\n")), 2);
    arena_free(&a);
}

const struct unit_suite unit_preflight = {
    "preflight",
    (const struct unit_case[]){{"the_context_that_fits", the_context_that_fits},
                               {"a_small_cache_counts_as_such", a_small_cache_counts_as_such},
                               {"a_small_cache_is_never_forgotten", a_small_cache_is_never_forgotten},
                               {"refusals_have_the_numbers", refusals_have_the_numbers},
                               {"each_class_counts_its_own_numbers", each_class_counts_its_own_numbers},
                               {"what_a_token_reads", what_a_token_reads},
                               {"loading_is_told", loading_is_told},
                               {"group_limits_count", group_limits_count},
                               {0}},
};
