/* Groups of ranks: what comes out of every call, in the order of ranks, with the same bits each time; and that nobody waits for a rank that failed. */
#include "base/arena.h"
#include "comm/comm.h"
#include "os/os.h"
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

static void run_all(int32_t n, seat_fn *fn) {
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

static void sums_are_in_rank_order(void) {
    for (int32_t n = 1; n <= N_MOST; n++) {
        run_all(n, sum_rounds);
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

/* Rank r brings r numbers: the first one none. */
static void gather_pieces(void *user) {
    struct seat *s = user;
    int32_t own[N_MOST], n = s->comm->size;
    for (int32_t i = 0; i < s->comm->rank; i++) own[i] = 100 * s->comm->rank + i;
    s->code =
        comm_all_gather(s->comm, own, (size_t)s->comm->rank * sizeof *own, s->pieces, (size_t)(n * (n - 1) / 2) * sizeof *own, &s->err);
}

static void pieces_of_all_ranks(void) {
    for (int32_t n = 1; n <= N_MOST; n++) {
        run_all(n, gather_pieces);
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
    run_all(N_MOST, hand_out);
    for (int32_t r = 0; r < N_MOST; r++) {
        CHECK_OK(seats[r].code, seats[r].err);
        for (int32_t root = 0; root < N_MOST; root++) CHECK_INT(seats[r].pieces[root], 7 + root);
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
    run_all(4, fail_once);
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
    run_all(3, bring_too_much);
    for (int32_t r = 0; r < 3; r++) CHECK_INT(seats[r].code, ERR_EINTERNAL);
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
                                         {"pieces_of_all_ranks", pieces_of_all_ranks},
                                         {"every_rank_hands_out", every_rank_hands_out},
                                         {"a_failure_reaches_all", a_failure_reaches_all},
                                         {"unlike_sizes_are_refused", unlike_sizes_are_refused},
                                         {"numbers_of_ranks", numbers_of_ranks},
                                         {0}};

const struct unit_suite unit_comm = {"comm", cases};
