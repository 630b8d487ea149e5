/* Groups of ranks, as threads and over TCP: what comes out of every call, in the order of ranks, with the same bits each time; that nobody waits for a rank that
 * failed; and who may not join. */
#include "base/arena.h"
#include "base/log.h"
#include "comm/tcp.h"
#include "os/os.h"
#include "os/tcp.h"
#include "unit.h"

enum { N_MOST = 5, N_NUMBERS = 1000, ROUNDS = 20 };

struct seat {
    struct comm *comm;
    struct os_thread *thread;
    float in[N_NUMBERS], out[N_NUMBERS];
    int32_t pieces[N_MOST * N_MOST];
    struct err err;
    int code;
};

static struct seat seats[N_MOST];

typedef void seat_fn(void *seat);

enum kind { THREADS, TCP, N_KINDS };

/* ---- over TCP: each seat joins by itself ------------------------------------------------------------------------------ */

static const struct comm_fact facts[] = {{"the version", "1"}, {"the checkpoint", "a"}};
static struct comm_tcp_options joins[N_MOST];
static seat_fn *joined_fn;

/* One that nobody listens on. */
static int32_t free_port(void) {
    struct os_tcp_address at = {.bytes = {127, 0, 0, 1}, .n = 4};
    struct os_tcp *t;
    struct err err;
    CHECK_OK(os_tcp_listen(&at, &t, &err), err);
    os_tcp_own_address(t, &at);
    os_tcp_close(t);
    return at.port;
}

static void plan_joins(int32_t n) {
    int32_t port = free_port();
    for (int32_t i = 0; i < n; i++)
        joins[i] = (struct comm_tcp_options){.rank = i,
                                             .size = n,
                                             .host = "127.0.0.1",
                                             .port = port,
                                             .secret = STR("a secret of the job"),
                                             .join_ms = 60000,
                                             .silence_ms = 60000,
                                             .facts = facts,
                                             .n_facts = 2};
}

static void join_and_run(void *user) {
    struct seat *s = user;
    s->comm = NULL;
    s->code = comm_tcp_join(&joins[s - seats], &s->comm, &s->err);
    if (!s->code && joined_fn) joined_fn(s);
}

/* As joins[] says. */
static void run_joins(int32_t n, seat_fn *fn) {
    struct err err;
    joined_fn = fn;
    log_set_level(LOG_ERROR); /* who comes and who is turned away is told */
    for (int32_t i = 0; i < n; i++) CHECK_OK(os_thread_start(&seats[i].thread, join_and_run, &seats[i], "rank", &err), err);
    for (int32_t i = 0; i < n; i++) os_thread_join(seats[i].thread);
    for (int32_t i = 1; i < n; i++) comm_close(seats[i].comm); /* the first one last, as a program does */
    comm_close(seats[0].comm);
    log_set_level(LOG_INFO);
}

static void run_threads(int32_t n, seat_fn *fn) {
    struct err err;
    struct comm *comms[N_MOST];
    CHECK_OK(comm_threads_open(n, comms, &err), err);
    for (int32_t i = 0; i < n; i++) {
        seats[i].comm = comms[i];
        seats[i].code = ERR_OK;
        CHECK_OK(os_thread_start(&seats[i].thread, fn, &seats[i], "rank", &err), err);
    }
    for (int32_t i = 0; i < n; i++) os_thread_join(seats[i].thread);
    for (int32_t i = 0; i < n; i++) comm_close(comms[i]);
}

static void run_all(enum kind kind, int32_t n, seat_fn *fn) {
    if (kind == THREADS) {
        run_threads(n, fn);
        return;
    }
    plan_joins(n);
    run_joins(n, fn);
}

/* Numbers whose sum depends on the order in which it is formed. */
static float number_of(int32_t rank, int32_t i) {
    static const float scales[] = {1.0f, 3.1e7f, -3.1e7f, 1e-3f, 7.7f};
    return scales[(rank + i) % N_MOST] * (1.0f + (float)i / 17.0f);
}

static void sum_rounds(void *user) {
    struct seat *s = user;
    for (int32_t i = 0; i < N_NUMBERS; i++) s->in[i] = number_of(s->comm->rank, i);
    for (int k = 0; k < ROUNDS && !s->code; k++) s->code = comm_all_reduce(s->comm, s->in, s->out, (size_t)(N_NUMBERS - k), &s->err);
}

static void check_sums(enum kind kind) {
    for (int32_t n = 1; n <= N_MOST; n++) {
        run_all(kind, n, sum_rounds);
        for (int32_t r = 0; r < n; r++) {
            CHECK_OK(seats[r].code, seats[r].err);
            for (int32_t i = 0; i < N_NUMBERS; i++) {
                float want = number_of(0, i);
                for (int32_t k = 1; k < n; k++) want += number_of(k, i);
                FAIL_IF(memcmp(&want, &seats[r].out[i], sizeof want) != 0, "%d ranks: number %d of rank %d is %.9g, expected %.9g", n, i, r,
                        (double)seats[r].out[i], (double)want);
            }
        }
    }
}

static void sums_are_in_rank_order(void) {
    for (int kind = 0; kind < N_KINDS; kind++) check_sums((enum kind)kind);
}

/* Sums that take several exchanges, and those whose parts the ranks divide. */
enum { N_LARGE = 450007 };
static float *large_out[N_MOST];

static void sum_large(void *user) {
    struct seat *s = user;
    float *in = mem_alloc(N_LARGE * sizeof *in);
    for (int32_t i = 0; i < N_LARGE; i++) in[i] = number_of(s->comm->rank, i);
    large_out[s->comm->rank] = mem_alloc(N_LARGE * sizeof *in);
    s->code = comm_all_reduce(s->comm, in, large_out[s->comm->rank], N_LARGE, &s->err);
    mem_free(in);
}

static void large_sums_have_the_same_bits(void) {
    for (int32_t n = 2; n <= 4; n++) {
        run_all(TCP, n, sum_large);
        for (int32_t r = 0; r < n; r++) {
            CHECK_OK(seats[r].code, seats[r].err);
            int32_t n_wrong = 0;
            for (int32_t i = 0; i < N_LARGE; i++) {
                float want = number_of(0, i);
                for (int32_t k = 1; k < n; k++) want += number_of(k, i);
                n_wrong += memcmp(&want, &large_out[r][i], sizeof want) != 0;
            }
            CHECK_INT(n_wrong, 0);
            mem_free(large_out[r]);
        }
    }
}

/* Rank r brings r numbers: the first one none. */
static void gather_pieces(void *user) {
    struct seat *s = user;
    int32_t own[N_MOST], n = s->comm->size;
    for (int32_t i = 0; i < s->comm->rank; i++) own[i] = 100 * s->comm->rank + i;
    s->code =
        comm_all_gather(s->comm, own, (size_t)s->comm->rank * sizeof *own, s->pieces, (size_t)(n * (n - 1) / 2) * sizeof *own, &s->err);
}

static void pieces_of_all_ranks(void) {
    for (int32_t i = 0; i < N_KINDS * N_MOST; i++) {
        int32_t n = i % N_MOST + 1;
        run_all((enum kind)(i / N_MOST), n, gather_pieces);
        for (int32_t r = 0; r < n; r++) {
            CHECK_OK(seats[r].code, seats[r].err);
            for (int32_t k = 0, at = 0; k < n; k++)
                for (int32_t i = 0; i < k; i++, at++) CHECK_INT(seats[r].pieces[at], 100 * k + i);
        }
    }
}

static void hand_out(void *user) {
    struct seat *s = user;
    for (int32_t root = 0; root < s->comm->size && !s->code; root++) {
        s->pieces[root] = s->comm->rank == root ? 7 + root : -1;
        s->code = comm_broadcast(s->comm, root, &s->pieces[root], sizeof *s->pieces, &s->err);
    }
}

static void every_rank_hands_out(void) {
    for (int kind = 0; kind < N_KINDS; kind++) {
        run_all((enum kind)kind, N_MOST, hand_out);
        for (int32_t r = 0; r < N_MOST; r++) {
            CHECK_OK(seats[r].code, seats[r].err);
            for (int32_t root = 0; root < N_MOST; root++) CHECK_INT(seats[r].pieces[root], 7 + root);
        }
    }
}

static void fail_once(void *user) {
    struct seat *s = user;
    struct err reason;
    if (s->comm->rank == 1) {
        s->code = err_set(&reason, ERR_EMEMORY, "rank 1 has no memory");
        comm_fail(s->comm, &reason);
        return;
    }
    s->code = comm_all_reduce(s->comm, s->in, s->out, 1, &s->err);
    if (s->comm->rank == 2) s->code = comm_broadcast(s->comm, 0, s->out, 4, &s->err); /* and every later call */
}

static void a_failure_reaches_all(void) {
    run_all(THREADS, 4, fail_once);
    for (int32_t r = 0; r < 4; r++) {
        CHECK_INT(seats[r].code, ERR_EMEMORY);
        if (r != 1) CHECK(strcmp(seats[r].err.msg, "rank 1 has no memory") == 0);
    }
}

static void bring_too_much(void *user) {
    struct seat *s = user;
    s->code = comm_all_reduce(s->comm, s->in, s->out, s->comm->rank == 2 ? 3 : 4, &s->err);
}

static void unlike_sizes_are_refused(void) {
    for (int kind = 0; kind < N_KINDS; kind++) {
        run_all((enum kind)kind, 3, bring_too_much);
        for (int32_t r = 0; r < 3; r++) CHECK_INT(seats[r].code, ERR_EINTERNAL);
    }
}

/* ---- who joins ----------------------------------------------------------------------------------------------------------- */

static struct err lost[N_MOST];

static void keep_reason(void *user, const struct err *reason) {
    *(struct err *)user = *reason;
}

static void check_says(int32_t rank, const char *words) {
    FAIL_IF(!seats[rank].code, "rank %d has joined, expected: %s", rank, words);
    FAIL_IF(!strstr(seats[rank].err.msg, words), "rank %d says: %s, expected: %s", rank, seats[rank].err.msg, words);
}

/* A rank that is very slow to start may call when the first has given up. */
static void check_says_or_late(int32_t rank, const char *words) {
    bool is_late = seats[rank].code && strstr(seats[rank].err.msg, "rank 0 has not come within");
    if (!is_late) check_says(rank, words);
}

static void a_failure_reaches_all_processes(void) {
    plan_joins(4);
    for (int32_t i = 0; i < 4; i++) joins[i].on_fail = keep_reason, joins[i].user = &lost[i];
    memset(lost, 0, sizeof lost);
    run_joins(4, fail_once);
    for (int32_t r = 0; r < 4; r++) {
        CHECK_INT(seats[r].code, ERR_EMEMORY);
        if (r == 1) continue;
        check_says(r, "rank 1: rank 1 has no memory");
        CHECK(strcmp(lost[r].msg, seats[r].err.msg) == 0); /* also those that wait for nobody are told */
    }
}

/* Whoever has another secret is turned away and says so; the others wait for the rank until their time is over. */
static void another_secret_is_turned_away(void) {
    plan_joins(3);
    joins[0].join_ms = 2000;
    joins[2].join_ms = 5000;
    joins[1].secret = STR("a secret of another job");
    run_joins(3, NULL);
    check_says(1, "it has another job secret");
    check_says(0, "rank 1 of 3 has not come within 2 s; 127.0.0.1:");
    check_says(0, "was turned away: a process that calls itself rank 1 went away without proving the job secret");
    check_says_or_late(2, "rank 1 of 3 has not come within 2 s");
}

static void a_missing_rank_is_named(void) {
    plan_joins(3);
    joins[0].join_ms = 1000;
    joins[1] = joins[2];
    joins[1].join_ms = 3000; /* it may come when the first has given up */
    run_joins(2, NULL);
    check_says(0, "rank 1 of 3 has not come within 1 s");
    check_says(1, "has not come within");
    plan_joins(2);
    joins[0] = joins[1];
    joins[0].join_ms = 1000;
    run_joins(1, NULL);
    check_says(0, "rank 0 has not come within 1 s");
}

static void other_facts_are_named(void) {
    static const struct comm_fact others[] = {{"the version", "1"}, {"the checkpoint", "b"}}, none[] = {{"the version", "1"}};
    plan_joins(3);
    joins[2].facts = others;
    joins[1].join_ms = 5000;
    run_joins(3, NULL);
    for (int32_t r = 0; r < 3; r += 2) check_says(r, "the checkpoint: rank 2 has b, and rank 0 has a");
    check_says_or_late(1, "the checkpoint: rank 2 has b, and rank 0 has a");
    plan_joins(2);
    joins[1].facts = none, joins[1].n_facts = 1;
    run_joins(2, NULL);
    for (int32_t r = 0; r < 2; r++) check_says(r, "rank 1 says nothing of the checkpoint");
}

/* The first rank has found a misfit; one that calls later is told so, and does not wait for nobody. */
static void who_calls_late_is_told(void) {
    static const struct comm_fact others[] = {{"the version", "1"}, {"the checkpoint", "b"}};
    struct err err;
    plan_joins(3);
    joins[1].facts = others;
    joined_fn = NULL;
    log_set_level(LOG_ERROR);
    for (int32_t i = 0; i < 3; i++) {
        CHECK_OK(os_thread_start(&seats[i].thread, join_and_run, &seats[i], "rank", &err), err);
        if (i == 1) os_sleep_ms(300);
    }
    for (int32_t i = 0; i < 3; i++) os_thread_join(seats[i].thread);
    log_set_level(LOG_INFO);
    for (int32_t i = 0; i < 3; i++) check_says(i, "the checkpoint: rank 1 has b, and rank 0 has a");
}

static void numbers_of_processes(void) {
    plan_joins(3);
    joins[1].rank = 2;
    joins[1].join_ms = joins[2].join_ms = 5000;
    run_joins(3, NULL);
    check_says(0, "two processes came as rank 2");
    plan_joins(2);
    joins[1].size = 3;
    run_joins(2, NULL);
    check_says(1, "rank 1 expects 3 ranks, and rank 0 expects 2");
    plan_joins(1);
    joins[0].rank = 1;
    run_joins(1, NULL);
    check_says(0, "there is no rank 1 among 1");
    plan_joins(1);
    joins[0].secret = STR("short");
    run_joins(1, NULL);
    check_says(0, "the job secret has 5 bytes; it needs 16 at least");
}

/* Nothing is sent there: the address is looked at first. */
static void public_addresses_are_refused(void) {
    plan_joins(2);
    joins[0].host = joins[1].host = "8.8.8.8";
    run_joins(2, NULL);
    for (int32_t r = 0; r < 2; r++) check_says(r, "8.8.8.8:");
    for (int32_t r = 0; r < 2; r++) check_says(r, "is a public address");
}

/* Somebody who is no rank at all calls first, and says something else, or nothing. */
static void strangers_change_nothing(void) {
    struct os_tcp *t[2];
    struct err err;
    plan_joins(2);
    struct os_tcp_address at = {.bytes = {127, 0, 0, 1}, .n = 4, .port = joins[0].port};
    joined_fn = sum_rounds;
    log_set_level(LOG_ERROR);
    CHECK_OK(os_thread_start(&seats[0].thread, join_and_run, &seats[0], "rank", &err), err);
    for (int i = 0; i < 2; i++)
        while (os_tcp_connect(&at, 1000, &t[i], &err)) os_sleep_ms(5);
    static const char words[] = "GET / HTTP/1.1\r\nHost: somebody else entirely, and long enough for a hello\r\n\r\n";
    os_tcp_send(t[0], (const struct os_tcp_piece[2]){{words, sizeof words}, {NULL, 0}});
    CHECK_OK(os_thread_start(&seats[1].thread, join_and_run, &seats[1], "rank", &err), err);
    os_tcp_close(t[1]);
    for (int i = 0; i < 2; i++) os_thread_join(seats[i].thread);
    for (int i = 0; i < 2; i++) CHECK_OK(seats[i].code, seats[i].err);
    for (int i = 1; i >= 0; i--) comm_close(seats[i].comm);
    os_tcp_close(t[0]);
    log_set_level(LOG_INFO);
}

static void numbers_of_ranks(void) {
    struct err err;
    struct comm *out[1];
    int32_t x = 0;
    CHECK_INT(comm_threads_open(0, out, &err), ERR_EARG);
    CHECK_INT(comm_threads_open(COMM_RANKS_MAX + 1, out, &err), ERR_EARG);
    CHECK_OK(comm_threads_open(1, out, &err), err);
    CHECK_INT(comm_broadcast(out[0], 1, &x, sizeof x, &err), ERR_EARG);
    comm_close(out[0]);
}

static const struct unit_case cases[] = {{"sums_are_in_rank_order", sums_are_in_rank_order},
                                         {"large_sums_have_the_same_bits", large_sums_have_the_same_bits},
                                         {"pieces_of_all_ranks", pieces_of_all_ranks},
                                         {"every_rank_hands_out", every_rank_hands_out},
                                         {"a_failure_reaches_all", a_failure_reaches_all},
                                         {"unlike_sizes_are_refused", unlike_sizes_are_refused},
                                         {"a_failure_reaches_all_processes", a_failure_reaches_all_processes},
                                         {"another_secret_is_turned_away", another_secret_is_turned_away},
                                         {"a_missing_rank_is_named", a_missing_rank_is_named},
                                         {"other_facts_are_named", other_facts_are_named},
                                         {"who_calls_late_is_told", who_calls_late_is_told},
                                         {"numbers_of_processes", numbers_of_processes},
                                         {"public_addresses_are_refused", public_addresses_are_refused},
                                         {"strangers_change_nothing", strangers_change_nothing},
                                         {"numbers_of_ranks", numbers_of_ranks},
                                         {0}};

const struct unit_suite unit_comm = {"comm", cases};
