/* backend/device: two models on one device share its threads and its budget, and nothing else. MLXCEL_TEST_DEVICE names another backend than
 * the CPU's: tests/cuda/test_emulated.py does. */
#include "unit.h"

#include "api/session_internal.h"
#include "os/os.h"

enum { N_NEW = 24, N_JOBS = 4 };

/* What a model says to a few prompts, and the session that says it. */
struct side {
    struct session *session;
    const char *shape;
    int32_t tokens[N_JOBS][N_NEW], n[N_JOBS];
};

static const char *backend_name(void) {
    const char *name = os_env("MLXCEL_TEST_DEVICE");
    return name ? name : "cpu";
}

static struct device *open_device(uint64_t limit) {
    struct device *d;
    struct err err;
    const struct backend_type *type = backend_find(str_of(backend_name()));
    CHECK_OK(device_open(type, &(struct device_options){.n_threads = 2, .memory_limit = limit}, &d, &err), err);
    return d;
}

static int open_side(struct side *s, const char *shape, struct device *d, struct err *err) {
    struct session_options o = {.shape = shape, .bits = 4, .seed = 3, .n_seqs = 2, .n_rows = 64, .context = 128, .n_queue = -1};
    o.shared_device = d;
    o.backend = backend_name();
    *s = (struct side){.shape = shape};
    return session_open(&o, &s->session, err);
}

static void submit(struct side *s) {
    for (intptr_t i = 0; i < N_JOBS; i++) {
        int32_t prompt[] = {(int32_t)i, 2, 3, 5, 8};
        struct job_spec spec = {.tokens = prompt,
                                .n_tokens = 5,
                                .max_new = N_NEW,
                                .ignore_eos = true,
                                .sampling = sampler_defaults(),
                                .has_seed = true,
                                .user = (void *)i};
        struct job *job;
        struct err err;
        if (i % 2) spec.sampling.temperature = 1; /* chosen by the device's workers */
        CHECK_OK(engine_submit(s->session->engine, &spec, 1, &job, &err), err);
    }
}

/* One turn; false when nothing is left to do. */
static bool turn(struct side *s) {
    struct err err;
    struct job *job;
    bool idle;
    CHECK_OK(engine_turn(s->session->engine, &idle, &err), err);
    while ((job = engine_next_ready(s->session->engine))) {
        intptr_t i = (intptr_t)job_user(job);
        struct job_events ev;
        job_take(job, &ev);
        for (size_t k = 0; k < ev.n_tokens; k++) s->tokens[i][s->n[i]++] = ev.tokens[k].id;
        if (ev.finish) job_release(job);
    }
    return !idle;
}

static void run_alone(struct side *s, const char *shape) {
    struct err err;
    CHECK_OK(open_side(s, shape, NULL, &err), err);
    submit(s);
    while (turn(s)) continue;
    session_close(s->session);
}

static void check_same(const struct side *got, const struct side *want) {
    for (int i = 0; i < N_JOBS; i++) {
        CHECK_INT(got->n[i], N_NEW);
        CHECK(memcmp(got->tokens[i], want->tokens[i], sizeof want->tokens[i]) == 0);
    }
}

static struct side alone_a, alone_b;

static void run_both_alone(void) {
    if (alone_a.n[0]) return;
    run_alone(&alone_a, "tiny");
    run_alone(&alone_b, "tiny-moe");
}

static void turn_by_turn(void) {
    struct side a, b;
    struct err err;
    run_both_alone();
    struct device *d = open_device(0);
    CHECK_OK(open_side(&a, "tiny", d, &err), err);
    CHECK_OK(open_side(&b, "tiny-moe", d, &err), err);
    device_release(d);
    submit(&a);
    submit(&b);
    for (bool more = true; more;) {
        bool more_a = turn(&a), more_b = turn(&b);
        more = more_a || more_b;
    }
    check_same(&a, &alone_a);
    check_same(&b, &alone_b);
    session_close(a.session); /* the one that was opened first */
    submit(&b);
    memset(b.n, 0, sizeof b.n);
    while (turn(&b)) continue;
    check_same(&b, &alone_b);
    session_close(b.session);
}

static void run_side(void *user) {
    while (turn(user)) continue;
}

static void on_two_threads(void) {
    run_both_alone();
    for (int round = 0; round < 3; round++) {
        struct side a, b;
        struct err err;
        struct os_thread *threads[2];
        struct device *d = open_device(0);
        CHECK_OK(open_side(&a, "tiny", d, &err), err);
        CHECK_OK(open_side(&b, "tiny-moe", d, &err), err);
        submit(&a);
        submit(&b);
        CHECK_OK(os_thread_start(&threads[0], run_side, &a, "a", &err), err);
        CHECK_OK(os_thread_start(&threads[1], run_side, &b, "b", &err), err);
        os_thread_join(threads[0]);
        os_thread_join(threads[1]);
        check_same(&a, &alone_a);
        check_same(&b, &alone_b);
        session_close(round % 2 ? a.session : b.session);
        CHECK(atomic_load(&d->used) > 0);
        session_close(round % 2 ? b.session : a.session);
        CHECK(atomic_load(&d->used) == 0);
        device_release(d);
    }
}

/* One model answers all the time; others are opened, answer and are closed beside it, on two threads. */
struct visitors {
    struct device *device;
    const char *shape;
    const struct side *want;
    int n_rounds;
};

static void visit(void *user) {
    const struct visitors *v = user;
    for (int i = 0; i < v->n_rounds; i++) {
        struct side s;
        struct err err;
        CHECK_OK(open_side(&s, v->shape, v->device, &err), err);
        submit(&s);
        for (int k = 0; k < 5 * (i + 1) && i % 2; k++) turn(&s); /* every second one is closed before its jobs have ended */
        while (i % 2 == 0 && turn(&s)) continue;
        if (i % 2 == 0) check_same(&s, v->want);
        session_close(s.session);
    }
}

static void others_come_and_go(void) {
    struct side host;
    struct err err;
    struct os_thread *threads[2];
    run_both_alone();
    struct device *d = open_device(0);
    struct visitors visitors[] = {{d, "tiny", &alone_a, 4}, {d, "tiny-moe", &alone_b, 4}};
    CHECK_OK(open_side(&host, "tiny", d, &err), err);
    for (int i = 0; i < 2; i++) CHECK_OK(os_thread_start(&threads[i], visit, &visitors[i], "visitor", &err), err);
    for (int i = 0; i < 4; i++) {
        memset(host.n, 0, sizeof host.n);
        submit(&host);
        while (turn(&host)) continue;
        check_same(&host, &alone_a);
    }
    for (int i = 0; i < 2; i++) os_thread_join(threads[i]);
    CHECK(atomic_load(&d->used) > 0);
    device_release(d); /* the model keeps it */
    session_close(host.session);
}

/* What the first has taken is not there for the second, until it is closed. */
static void one_budget(void) {
    struct side a, b;
    struct err err;
    struct device *d = open_device(0);
    CHECK_OK(open_side(&a, "tiny", d, &err), err);
    uint64_t need = atomic_load(&d->used);
    session_close(a.session);
    CHECK(atomic_load(&d->used) == 0);
    device_release(d);
    d = open_device(need + need / 2);
    CHECK_OK(open_side(&a, "tiny", d, &err), err);
    CHECK_INT(open_side(&b, "tiny", d, &err), ERR_EMEMORY);
    CHECK(atomic_load(&d->used) == need); /* the failure left nothing behind */
    session_close(a.session);
    CHECK_OK(open_side(&b, "tiny", d, &err), err);
    session_close(b.session);
    device_release(d);
}

const struct unit_suite unit_device = {
    "device",
    (const struct unit_case[]){{"turn_by_turn", turn_by_turn},
                               {"on_two_threads", on_two_threads},
                               {"others_come_and_go", others_come_and_go},
                               {"one_budget", one_budget},
                               {0}},
};
