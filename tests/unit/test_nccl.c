/* NCCL without GPUs: the fake library of tests/cuda/nccl among ranks that are threads. Sums and gathers, the order of calls, and every call that can fail: all ranks get
 * the reason, nobody waits for ever. */
#include "../test_paths.h"
#include "unit.h"

#include "backend/cuda/device/nccl.h"
#include "base/log.h"
#include "comm/tcp.h"
#include "os/os.h"
#include "os/tcp.h"

#include <stdio.h>

enum { N_MOST = 4, N_NUMBERS = 1000, N_BYTES = 4096, N_ROUNDS = 3, HANG_MS = 60000 };

static struct {
    struct os_dl *lib;
    const char *path;
    void (*set)(const char *text);
    void (*rank)(int rank);
    const char *(*complaint)(void);
    int (*alive)(void);
    int (*idle)(CUstream stream);
    int (*stuck)(void);
    void (*release)(void);
} fake;

struct seat {
    struct comm *comm;
    struct nccl *nccl;
    struct os_thread *thread;
    const char *path; /* of the library */
    int32_t join_ms;
    const struct cuda_driver *driver;
    float in[N_NUMBERS], out[N_NUMBERS], in_place[N_NUMBERS];
    char own[N_BYTES], equal[N_MOST * N_BYTES], unlike[N_MOST * N_BYTES];
    int code;
    struct err err;
};

static struct seat seats[N_MOST];

typedef void seat_fn(void *seat);

static const char *library_path(struct arena *a, const char *folder) {
    struct str exe = str_of(test_exe_path());
    while (exe.n && exe.p[exe.n - 1] != '/' && exe.p[exe.n - 1] != '\\') exe.n--;
    const char *path = str_fmt(a, "%.*s%s/libnccl.so.2", STR_ARG(exe), folder).p;
    if (os_stat(path, &(struct os_stat){0}, NULL)) unit_skip("the fake NCCL was not built");
    return path;
}

/* Loads the fake and tells it how to be. */
static void tell(struct arena *a, const char *folder, const char *config) {
    struct err err;
    fake.path = library_path(a, folder);
    CHECK_OK(os_dl_open(fake.path, OS_DL_ANY, &fake.lib, &err), err);
    CHECK(os_dl_symbol(fake.lib, "fake_nccl_set", &fake.set) && os_dl_symbol(fake.lib, "fake_nccl_rank", &fake.rank) &&
          os_dl_symbol(fake.lib, "fake_nccl_complaint", &fake.complaint) && os_dl_symbol(fake.lib, "fake_nccl_alive", &fake.alive) &&
          os_dl_symbol(fake.lib, "fake_nccl_idle", &fake.idle) && os_dl_symbol(fake.lib, "fake_nccl_stuck", &fake.stuck) &&
          os_dl_symbol(fake.lib, "fake_nccl_release", &fake.release));
    fake.set(config);
    for (int32_t r = 0; r < N_MOST; r++) seats[r].path = fake.path, seats[r].join_ms = 0, seats[r].driver = NULL;
}

/* One thread for each rank, to the end of all of them. */
static void run_ranks(int32_t n, seat_fn *fn) {
    struct comm *comms[N_MOST];
    struct err err;
    CHECK_OK(comm_threads_open(n, comms, &err), err);
    for (int32_t r = 0; r < n; r++) {
        seats[r].comm = comms[r];
        seats[r].nccl = NULL;
        seats[r].code = ERR_OK;
        err_clear(&seats[r].err);
        CHECK_OK(os_thread_start(&seats[r].thread, fn, &seats[r], "rank", &err), err);
    }
    for (int32_t r = 0; r < n; r++) os_thread_join(seats[r].thread);
    for (int32_t r = 0; r < n; r++) comm_close(comms[r]);
}

static void check_no_misuse(const char *when) {
    FAIL_IF(fake.complaint()[0], "%s: %s", when, fake.complaint());
    FAIL_IF(fake.alive() != 0, "%s: %d communicators were not closed", when, fake.alive());
}

/* ---- what a rank does -------------------------------------------------------------------------------------------------- */

static CUdeviceptr at(const void *p) {
    return (CUdeviceptr)(uintptr_t)p;
}

static float number_of(int32_t rank, int32_t i) {
    return (float)(rank + 1) * (1.0f + (float)i / 17.0f);
}

static char byte_of(int32_t rank, size_t i) {
    return (char)(31 * rank + (int)(i % 29));
}

/* Rank 1 brings nothing. */
static size_t unlike_bytes(int32_t rank) {
    return rank == 1 ? 0 : (size_t)(1000 - 301 * rank);
}

/* A little, as long as it makes sense: what is waited for comes within milliseconds. */
static void wait_more(int *n, const char *what) {
    FAIL_IF(++*n > HANG_MS, "%s never came", what);
    os_sleep_ms(1);
}

/* As a program waits: it looks at the stream, and whether something went wrong. */
static int wait_for_stream(struct seat *s) {
    for (int n = 0; !fake.idle((CUstream)(void *)s); wait_more(&n, "the end of a stream")) TRY(nccl_check(s->nccl, &s->err));
    return nccl_check(s->nccl, &s->err);
}

static int one_round(struct seat *s) {
    CUstream stream = (CUstream)(void *)s;
    size_t equal[N_MOST], unlike[N_MOST], none[N_MOST] = {0};
    for (int32_t r = 0; r < s->comm->size; r++) equal[r] = 777, unlike[r] = unlike_bytes(r);
    for (int32_t i = 0; i < N_NUMBERS; i++) s->in[i] = s->in_place[i] = number_of(s->comm->rank, i);
    for (size_t i = 0; i < N_BYTES; i++) s->own[i] = byte_of(s->comm->rank, i);
    TRY(nccl_sum(s->nccl, at(s->in), at(s->out), N_NUMBERS, stream, &s->err));
    TRY(nccl_sum(s->nccl, at(s->in_place), at(s->in_place), 3, stream, &s->err));
    TRY(nccl_sum(s->nccl, at(s->in), at(s->out), 0, stream, &s->err));
    TRY(nccl_gather(s->nccl, at(s->own), at(s->equal), equal, stream, &s->err));
    TRY(nccl_gather(s->nccl, at(s->own), at(s->unlike), unlike, stream, &s->err));
    TRY(nccl_gather(s->nccl, at(s->own), at(s->unlike), none, stream, &s->err));
    return wait_for_stream(s);
}

static int open_seat(struct seat *s) {
    fake.rank(s->comm->rank);
    return nccl_open(s->comm, &(struct nccl_options){.driver = s->driver, .path = s->path, .join_ms = s->join_ms}, &s->nccl, &s->err);
}

static void whole_life(void *user) {
    struct seat *s = user;
    s->code = open_seat(s);
    for (int i = 0; i < N_ROUNDS && !s->code; i++) s->code = one_round(s);
    nccl_close(s->nccl);
}

static void check_numbers(int32_t n) {
    for (int32_t r = 0; r < n; r++) {
        const struct seat *s = &seats[r];
        CHECK_OK(s->code, s->err);
        size_t place = 0;
        for (int32_t i = 0; i < N_NUMBERS; i++) {
            float want = number_of(0, i);
            for (int32_t k = 1; k < n; k++) want += number_of(k, i);
            FAIL_IF(s->out[i] != want, "%d ranks: sum %d of rank %d is %.9g, expected %.9g", n, i, r, (double)s->out[i], (double)want);
            float want_in_place = i < 3 ? want : number_of(r, i);
            FAIL_IF(s->in_place[i] != want_in_place, "%d ranks: sum %d in place of rank %d is wrong", n, i, r);
        }
        for (int32_t k = 0; k < n; k++) {
            for (size_t i = 0; i < 777; i++) CHECK_INT(s->equal[(size_t)k * 777 + i], byte_of(k, i));
            for (size_t i = 0; i < unlike_bytes(k); i++) CHECK_INT(s->unlike[place + i], byte_of(k, i));
            place += unlike_bytes(k);
        }
    }
}

static const char *const modes[] = {"", ";queued"};

static void sums_and_gathers(void) {
    struct arena a = {0};
    for (int32_t n = 1; n <= N_MOST; n *= 2)
        for (int m = 0; m < 2; m++) {
            tell(&a, "fake-nccl", modes[m]);
            memset(seats[0].out, 0, sizeof seats[0].out);
            run_ranks(n, whole_life);
            check_numbers(n);
            check_no_misuse("sums and gathers");
        }
    arena_free(&a);
}

/* ---- the order of calls ------------------------------------------------------------------------------------------------- */

/* One rank's lines of the log; those of ncclCommGetAsyncError come as often as somebody looks. */
static void put_calls_of(struct sb *out, struct str log, char rank) {
    while (log.n) {
        size_t n = str_find(log, STR("\n"), 0);
        struct str line = str_n(log.p, n == STR_NONE ? log.n : n);
        if (line.p[0] == rank && str_find(line, STR("AsyncError"), 0) == STR_NONE) sb_fmt(out, "%.*s\n", STR_ARG(line));
        log = n == STR_NONE ? str_n(log.p, 0) : str_n(log.p + n + 1, log.n - n - 1);
    }
}

static void one_life(void *user) {
    struct seat *s = user;
    s->code = open_seat(s);
    if (!s->code) s->code = one_round(s);
    nccl_close(s->nccl);
}

static void calls_come_in_order(void) {
    static const char *const want[] = {"0 ncclGetVersion\n0 ncclGetUniqueId\n0 ncclCommInitRank n=3\n",
                                       "1 ncclGetVersion\n1 ncclCommInitRank n=3\n", "2 ncclGetVersion\n2 ncclCommInitRank n=3\n"};
    static const char round[] =
        "R ncclAllReduce n=1000 type=7 root=0\nR ncclAllReduce n=3 type=7 root=0\nR ncclAllGather n=777 type=0 root=0\n"
        "R ncclGroupStart\nR ncclBroadcast n=1000 type=0 root=0\nR ncclBroadcast n=398 type=0 root=2\n"
        "R ncclGroupEnd n=2\nR ncclCommDestroy\n";
    struct arena a = {0};
    struct err err;
    struct str log;
    const char *file = str_fmt(&a, "%s/nccl.log", unit_scratch_dir()).p;
    tell(&a, "fake-nccl", str_fmt(&a, "log=%s", file).p);
    run_ranks(3, one_life);
    CHECK_OK(os_file_load(&a, file, 0, &log, &err), err);
    for (int32_t r = 0; r < 3; r++) {
        struct sb got = {0}, expected = {0};
        CHECK_OK(seats[r].code, seats[r].err);
        sb_puts(&expected, want[r]);
        for (const char *p = round; *p; p++)
            sb_put(&expected, *p == 'R' && (p == round || p[-1] == '\n') ? str_n(&"012"[r], 1) : str_n(p, 1));
        put_calls_of(&got, log, (char)('0' + r));
        CHECK_STR(sb_str(&got), sb_str(&expected));
        sb_free(&got);
        sb_free(&expected);
    }
    arena_free(&a);
}

/* ---- failures ----------------------------------------------------------------------------------------------------------- */

static void check_all_say(int32_t n, const char *when, const char *words) {
    for (int32_t r = 0; r < n; r++) {
        FAIL_IF(!seats[r].code, "%s: rank %d of %d has no error", when, r, n);
        FAIL_IF(!strstr(seats[r].err.msg, words), "%s: rank %d of %d says \"%s\", expected \"%s\"", when, r, n, seats[r].err.msg, words);
    }
}

/* Each call of each rank fails once, the first one and a later one. */
static void every_call_fails(void) {
    static const struct {
        const char *name, *says;
        int last; /* of the calls that are tried */
    } rows[] = {
        {"ncclGetVersion", "ncclGetVersion: internal error (3): ncclGetVersion was told to fail", 1},
        {"ncclGetUniqueId", "ncclGetUniqueId: internal error (3): ncclGetUniqueId was told to fail", 1},
        {"ncclCommInitRank", "internal error (3): ncclCommInitRank was told to fail", 1},
        {"ncclAllReduce", "ncclAllReduce: internal error (3): ncclAllReduce was told to fail", 3},
        {"ncclAllGather", "ncclAllGather: internal error (3): ncclAllGather was told to fail", 2},
        {"ncclGroupStart", "ncclGroupStart: internal error (3): ncclGroupStart was told to fail", 2},
        {"ncclBroadcast", "ncclBroadcast: internal error (3)", 3},
        {"ncclGroupEnd", "ncclGroupEnd: internal error (3): ncclGroupEnd was told to fail", 2},
        {"ncclCommGetAsyncError", "ncclCommGetAsyncError: internal error (3)", 2},
        {"async", "work of NCCL (ncclCommGetAsyncError): internal error (3)", 4},
    };
    struct arena a = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int32_t n = 1; n <= N_MOST; n *= 2)
            for (int32_t r = 0; r < n; r++)
                for (int k = 1; k <= rows[i].last; k++) {
                    bool has_groups = n > 1, is_of_rank_0 = strcmp(rows[i].name, "ncclGetUniqueId") == 0;
                    if ((is_of_rank_0 && r > 0) || (!has_groups && (strstr(rows[i].name, "Group") || strstr(rows[i].name, "Broadcast"))))
                        continue;
                    const char *config = str_fmt(&a, "fail=%s:%d:%d%s", rows[i].name, k, r, modes[(r + k) % 2]).p;
                    tell(&a, "fake-nccl", config);
                    run_ranks(n, whole_life);
                    check_all_say(n, config, rows[i].says);
                    check_no_misuse(config);
                }
    arena_free(&a);
}

static char warning[ERR_MESSAGE_BYTES];

static void keep_warning(enum log_level level, const char *line, void *user) {
    (void)user;
    if (level == LOG_WARN) snprintf(warning, sizeof warning, "%s", line);
}

/* Numbers stay right, and a warning says what was wrong; a failure that is the reason of the end stays the reason. */
static void closing_fails(void) {
    struct arena a = {0};
    tell(&a, "fake-nccl", "fail=ncclCommDestroy:1:1");
    log_set_sink(keep_warning, NULL);
    warning[0] = 0;
    run_ranks(2, whole_life);
    check_numbers(2);
    CHECK(strstr(warning, "ncclCommDestroy: internal error (3): ncclCommDestroy was told to fail"));
    check_no_misuse("ncclCommDestroy");
    arena_free(&a);
}

static void keeps_failing(void *user) {
    struct seat *s = user;
    struct err first;
    size_t bytes[N_MOST] = {4, 4, 4, 4};
    s->code = open_seat(s);
    if (!s->code) s->code = one_round(s);
    first = s->err;
    CHECK(s->code && nccl_sum(s->nccl, at(s->in), at(s->out), 4, NULL, &s->err) == s->code && strcmp(first.msg, s->err.msg) == 0);
    CHECK(nccl_gather(s->nccl, at(s->own), at(s->equal), bytes, NULL, &s->err) == s->code && strcmp(first.msg, s->err.msg) == 0);
    CHECK(nccl_check(s->nccl, &s->err) == s->code && strcmp(first.msg, s->err.msg) == 0);
    CHECK(comm_broadcast(s->comm, 0, s->own, 1, &s->err) == s->code && strcmp(first.msg, s->err.msg) == 0);
    nccl_close(s->nccl);
}

static void later_calls_say_the_same(void) {
    struct arena a = {0};
    tell(&a, "fake-nccl", "queued;fail=ncclAllReduce:2:2");
    run_ranks(4, keeps_failing);
    check_all_say(4, "later calls", "ncclAllReduce was told to fail");
    check_no_misuse("later calls");
    arena_free(&a);
}

/* A rank that fails for a reason of its own, and is slow to close: the others do not wait for it. */
static _Atomic int n_closed;

static void one_leaves(void *user) {
    struct seat *s = user;
    struct err reason;
    s->code = open_seat(s);
    if (!s->code) s->code = one_round(s);
    if (!s->code && s->comm->rank == 1) {
        s->code = err_set(&s->err, ERR_EMEMORY, "rank 1 has no memory");
        reason = s->err;
        comm_fail(s->comm, &reason);
        for (int n = 0; n_closed < s->comm->size - 1;) wait_more(&n, "the end of the other ranks");
    }
    nccl_close(s->nccl);
    n_closed++;
    if (s->comm->rank != 1) s->code = comm_broadcast(s->comm, 0, s->own, 1, &s->err);
}

static void a_rank_leaves(void) {
    struct arena a = {0};
    tell(&a, "fake-nccl", "");
    n_closed = 0;
    run_ranks(4, one_leaves);
    check_all_say(4, "a rank leaves", "rank 1 has no memory");
    check_no_misuse("a rank leaves");
    arena_free(&a);
}

/* ---- ranks that do not come together -------------------------------------------------------------------------------------- */

/* The comm is as good as before. */
static void open_in_vain(void *user) {
    struct seat *s = user;
    float in = 1, sum = 0;
    struct err err;
    s->code = open_seat(s);
    CHECK(s->code && !s->nccl);
    CHECK_OK(comm_all_reduce(s->comm, &in, &sum, 1, &err), err);
    CHECK_INT((int64_t)sum, s->comm->size);
}

/* NCCL waits for ever for the rank that failed: the threads in which it does stay behind, and end what they get when they come back. */
static void waiting_for_ever(void) {
    static const struct {
        const char *config, *says;
        int n_stuck;
    } rows[] = {{"stuck;fail=ncclCommInitRank:1:1", "rank 1: ncclCommInitRank of rank 1 among 3: internal error (3)", 2},
                {"stuck=all", "rank 0: NCCL has not brought 3 ranks together within 0 s (ncclCommInitRank): NCCL_SOCKET_IFNAME", 3}};
    struct arena a = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tell(&a, "fake-nccl", rows[i].config);
        for (int32_t r = 0; r < 3; r++) seats[r].join_ms = i ? 100 : 0;
        run_ranks(3, open_in_vain);
        check_all_say(3, rows[i].config, rows[i].says);
        CHECK_INT(fake.stuck(), rows[i].n_stuck);
        CHECK_INT(fake.alive(), rows[i].n_stuck);
        fake.release();
        for (int n = 0; fake.alive();) wait_more(&n, "the end of what was left");
        check_no_misuse(rows[i].config);
    }
    tell(&a, "fake-nccl", "");
    run_ranks(1, whole_life); /* whoever comes next joins those threads */
    check_numbers(1);
    arena_free(&a);
}

static void a_library_is_missing(void) {
    struct arena a = {0};
    for (int32_t r = 0; r < 3; r++) {
        tell(&a, "fake-nccl", "");
        seats[r].path = "no such folder/libnccl.so.2";
        run_ranks(3, open_in_vain);
        check_all_say(3, "a missing library", str_fmt(&a, "rank %d: ", r).p);
        check_all_say(3, "a missing library", "no such folder/libnccl.so.2");
        check_all_say(3, "a missing library", "install NVIDIA's package libnccl2, or the package nvidia-nccl-cu12 by pip");
        check_all_say(3, "a missing library", "LD_LIBRARY_PATH");
        for (int32_t k = 0; k < 3; k++) CHECK_INT(seats[k].code, ERR_ENOTFOUND);
        check_no_misuse("a missing library");
    }
    arena_free(&a);
}

/* The machine's own, where it has one. */
static void the_system_library(void) {
    struct nccl_library l;
    struct err err;
    if (nccl_library_open(&l, NULL, &err)) CHECK(strstr(err.msg, "libnccl.so.2"));
    else CHECK(l.version >= NCCL_FLOOR);
}

static void versions(void) {
    static const struct {
        const char *config, *says; /* NULL: it works */
    } rows[] = {{"version=20800", "libnccl.so.2 is NCCL 2.8.0, and mlxcel needs 2.10.0 or newer"},
                {"version=2804", "libnccl.so.2 is NCCL 2.8.4, and mlxcel needs 2.10.0 or newer"},
                {"version=20909", "libnccl.so.2 is NCCL 2.9.9"},
                {"version=20909:1", "rank 1: "},
                {"version=21903:1", "rank 1 has NCCL 2.19.3, and rank 0 has NCCL 2.21.5: all ranks need the same"},
                {"version=21000", NULL},
                {"version=23203", NULL}};
    struct arena a = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tell(&a, "fake-nccl", rows[i].config);
        run_ranks(2, rows[i].says ? open_in_vain : whole_life);
        if (rows[i].says) check_all_say(2, rows[i].config, rows[i].says);
        else check_numbers(2);
        check_no_misuse(rows[i].config);
    }
    arena_free(&a);
}

static void functions_are_missing(void) {
    struct arena a = {0};
    struct nccl_library l;
    struct err err;
    CHECK_INT(nccl_library_open(&l, library_path(&a, "fake-nccl-broken"), &err), ERR_EUNSUPPORTED);
    CHECK(strstr(err.msg, "lacks ncclCommAbort, which NCCL has since 2.4.0"));
    tell(&a, "fake-nccl-older", "version=21000");
    run_ranks(2, whole_life);
    check_numbers(2);
    tell(&a, "fake-nccl-older", "version=21000;fail=ncclAllReduce:1:0");
    run_ranks(2, whole_life);
    for (int32_t r = 0; r < 2; r++) CHECK_STR(str_of(seats[r].err.msg), STR("ncclAllReduce: internal error (3)"));
    check_no_misuse("an older library");
    arena_free(&a);
}

/* ---- contexts ------------------------------------------------------------------------------------------------------------- */

static _Thread_local CUcontext context;
static _Atomic int n_taken[N_MOST], fail_rank; /* threads that took the context of the rank; -1: nobody fails */

static CUresult get_context(CUcontext *out) {
    *out = context;
    return CUDA_SUCCESS;
}

/* A seat is its context. */
static CUresult take_context(CUcontext wanted) {
    if (context) return CUDA_ERROR_INVALID_CONTEXT; /* the rank's thread has it already */
    int32_t rank = (int32_t)((struct seat *)(void *)wanted - seats);
    if (rank == fail_rank) return CUDA_ERROR_LAUNCH_FAILED;
    context = wanted;
    n_taken[rank]++;
    return CUDA_SUCCESS;
}

static void live_with_context(void *user) {
    context = (CUcontext)user;
    whole_life(user);
}

/* NCCL begins in another thread, which must have the rank's context. */
static void the_context_goes_along(void) {
    static const struct cuda_driver driver = {.cuCtxGetCurrent = get_context, .cuCtxSetCurrent = take_context};
    struct arena a = {0};
    for (int32_t n = 3; n >= 1; n -= 2) { /* the one alone fails */
        fail_rank = n == 1 ? 0 : -1;
        tell(&a, "fake-nccl", "");
        for (int32_t r = 0; r < n; r++) seats[r].driver = &driver, n_taken[r] = 0;
        run_ranks(n, live_with_context);
        if (n > 1) check_numbers(n);
        else check_all_say(1, "a context that fails", "taking the context of rank 0: CUDA_ERROR_LAUNCH_FAILED");
        for (int32_t r = 0; r < n; r++) CHECK_INT(n_taken[r], n > 1);
        check_no_misuse("contexts");
    }
    arena_free(&a);
}

/* ---- over TCP --------------------------------------------------------------------------------------------------------------- */

static struct comm_tcp_options joins[N_MOST];

static void join_and_live(void *user) {
    struct seat *s = user;
    struct comm *comm = NULL;
    s->nccl = NULL;
    s->code = comm_tcp_join(&joins[s - seats], &comm, &s->err);
    s->comm = comm;
    if (!s->code) whole_life(s);
}

static void run_over_tcp(int32_t n) {
    struct os_tcp_address address = {.bytes = {127, 0, 0, 1}, .n = 4};
    struct os_tcp *t;
    struct err err;
    CHECK_OK(os_tcp_listen(&address, &t, &err), err);
    os_tcp_own_address(t, &address);
    os_tcp_close(t);
    log_set_level(LOG_ERROR);
    for (int32_t r = 0; r < n; r++) {
        joins[r] = (struct comm_tcp_options){.rank = r,
                                             .size = n,
                                             .host = "127.0.0.1",
                                             .port = address.port,
                                             .secret = STR("a secret of the job"),
                                             .join_ms = 60000,
                                             .silence_ms = 60000};
        CHECK_OK(os_thread_start(&seats[r].thread, join_and_live, &seats[r], "rank", &err), err);
    }
    for (int32_t r = 0; r < n; r++) os_thread_join(seats[r].thread);
    for (int32_t r = n - 1; r >= 0; r--) comm_close(seats[r].comm); /* the first one last, as a program does */
    log_set_level(LOG_INFO);
}

static void ranks_over_tcp(void) {
    struct arena a = {0};
    tell(&a, "fake-nccl", "queued");
    run_over_tcp(3);
    check_numbers(3);
    check_no_misuse("TCP");
    tell(&a, "fake-nccl", "queued;fail=ncclAllReduce:3:2");
    run_over_tcp(3);
    check_all_say(3, "TCP", "(");
    CHECK(strstr(seats[2].err.msg, "ncclAllReduce was told to fail"));
    check_no_misuse("TCP, a failure");
    arena_free(&a);
}

/* ---- the fake itself ---------------------------------------------------------------------------------------------------------- */

static const struct nccl_library *direct(struct arena *a, const char *config, ncclComm_t *comm) {
    static struct nccl_library l;
    ncclUniqueId id;
    struct err err;
    tell(a, "fake-nccl", config);
    CHECK_OK(nccl_library_open(&l, fake.path, &err), err);
    CHECK_INT(l.ncclGetUniqueId(&id), ncclSuccess);
    CHECK_INT(l.ncclCommInitRank(comm, 1, id, 0), ncclSuccess);
    return &l;
}

static void check_noticed(const char *words) {
    FAIL_IF(!strstr(fake.complaint(), words), "the fake says \"%s\", expected \"%s\"", fake.complaint(), words);
}

/* What nccl.c must not do would be seen. */
static void the_fake_notices(void) {
    struct arena a = {0};
    ncclComm_t c;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    ncclUniqueId other = {{0}};
    const struct nccl_library *l = direct(&a, "", &c);
    CHECK_INT(l->ncclAllReduce(x, y, 4, ncclFloat32, ncclSum, c, NULL), ncclSuccess);
    CHECK(y[3] == 4 && !fake.complaint()[0]);
    CHECK_INT(l->ncclCommDestroy(c), ncclSuccess);
    CHECK_INT(l->ncclAllReduce(x, y, 4, ncclFloat32, ncclSum, c, NULL), ncclInvalidUsage);
    check_noticed("ncclAllReduce of a communicator that was closed");
    direct(&a, "", &c);
    CHECK_INT(l->ncclAllReduce(x, y, 4, ncclInt8, ncclSum, c, NULL), ncclInvalidUsage);
    check_noticed("ncclAllReduce of type 0");
    direct(&a, "", &c);
    CHECK_INT(l->ncclAllReduce(x, y, 4, ncclFloat32, (ncclRedOp_t)2, c, NULL), ncclInvalidUsage);
    check_noticed("ncclAllReduce with operation 2");
    direct(&a, "", &c);
    CHECK_INT(l->ncclAllReduce(x, x + 1, 3, ncclFloat32, ncclSum, c, NULL), ncclInvalidUsage);
    check_noticed("ncclAllReduce reads where it writes");
    direct(&a, "", &c);
    CHECK_INT(l->ncclBroadcast(x, y, 4, ncclInt8, 1, c, NULL), ncclInvalidUsage);
    check_noticed("ncclBroadcast from rank 1 of 1");
    direct(&a, "", &c);
    CHECK_INT(l->ncclGroupEnd(), ncclInvalidUsage);
    check_noticed("ncclGroupEnd without ncclGroupStart");
    direct(&a, "", &c);
    CHECK(l->ncclGroupStart() == ncclSuccess && l->ncclCommDestroy(c) == ncclInvalidUsage && l->ncclGroupEnd() == ncclSuccess);
    check_noticed("ncclCommDestroy within a group");
    direct(&a, "", &c);
    CHECK_INT(l->ncclCommInitRank(&c, 1, other, 0), ncclInvalidUsage);
    check_noticed("rank 0 has an id that nobody made");
    arena_free(&a);
}

/* Rank 0 sums, rank 1 gathers. */
static void out_of_step(void *user) {
    struct seat *s = user;
    size_t bytes[N_MOST] = {4, 4};
    s->code = open_seat(s);
    if (!s->code && s->comm->rank == 0) s->code = nccl_sum(s->nccl, at(s->in), at(s->out), 1, NULL, &s->err);
    if (!s->code && s->comm->rank == 1) s->code = nccl_gather(s->nccl, at(s->own), at(s->equal), bytes, NULL, &s->err);
    if (!s->code) s->code = wait_for_stream(s);
    nccl_close(s->nccl);
}

static void ranks_out_of_step(void) {
    struct arena a = {0};
    tell(&a, "fake-nccl", "");
    run_ranks(2, out_of_step);
    check_all_say(2, "out of step", "operation 1 is ncclAll");
    check_noticed("operation 1 is ncclAll");
    CHECK_INT(fake.alive(), 0);
    arena_free(&a);
}

static const struct unit_case cases[] = {{"sums_and_gathers", sums_and_gathers},
                                         {"calls_come_in_order", calls_come_in_order},
                                         {"every_call_fails", every_call_fails},
                                         {"closing_fails", closing_fails},
                                         {"later_calls_say_the_same", later_calls_say_the_same},
                                         {"a_rank_leaves", a_rank_leaves},
                                         {"waiting_for_ever", waiting_for_ever},
                                         {"a_library_is_missing", a_library_is_missing},
                                         {"the_system_library", the_system_library},
                                         {"versions", versions},
                                         {"functions_are_missing", functions_are_missing},
                                         {"the_context_goes_along", the_context_goes_along},
                                         {"ranks_over_tcp", ranks_over_tcp},
                                         {"the_fake_notices", the_fake_notices},
                                         {"ranks_out_of_step", ranks_out_of_step},
                                         {0}};

const struct unit_suite unit_nccl = {"nccl", cases};
