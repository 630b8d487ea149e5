/* Ranks that are processes: each has a connection to every other one, and forms sums by itself.
 *
 * Sums of few numbers take one exchange: every rank sends its numbers to every other, and adds up what comes in the order of ranks. Of many numbers among more than two
 * ranks each forms the sums of a part and hands those out: two exchanges, but 2 (n - 1) / n times the bytes on the wire instead of n - 1 times. The bits
 * are the same, and those of threads: number for number it is the same sum in the same order.
 *
 * Every message begins with what it belongs to and how long it is. Ranks that have got out of step are an error rather than wrong numbers.
 */
#include "base/arena.h"
#include "comm/tcp_internal.h"

#include <stdatomic.h>

/* Numbers of one exchange at most, for each rank: larger sums take several, so that memory is known and nothing is allocated in a step. */
enum { CHUNK = 64 << 10, PARTS_FROM = 8 << 10, LOOKS = 100, SLEEP_MS = 100, REASON_MS = 1000 };

enum tcp_op { OP_SUM = 1, OP_SUM_PART, OP_GATHER, OP_BROADCAST };

struct head {
    uint32_t op, sequence;
    uint64_t bytes;
};

/* A message in one direction: its head, then its bytes. */
struct flow {
    struct os_tcp *link;
    int32_t rank;
    bool is_out;
    struct head head;
    char *data;
    size_t wanted, done; /* bytes, with the head's */
};

struct tcp {
    struct comm base;
    struct watch watch;
    struct os_tcp *data[COMM_RANKS_MAX]; /* by rank */
    struct flow flows[2 * COMM_RANKS_MAX];
    int32_t n_flows;
    uint32_t sequence;
    float *scratch; /* [size][CHUNK] */
};

/* ---- messages ------------------------------------------------------------------------------------------------------ */

static int begin(struct tcp *g, struct err *err) {
    g->n_flows = 0;
    g->sequence++;
    return atomic_load(&g->watch.has_failed) ? tcp_watch_failure(&g->watch, err) : ERR_OK;
}

static void send_to(struct tcp *g, int32_t rank, enum tcp_op op, const void *data, size_t bytes) {
    g->flows[g->n_flows++] = (struct flow){.link = g->data[rank],
                                           .rank = rank,
                                           .is_out = true,
                                           .head = {op, g->sequence, bytes},
                                           .data = (char *)(uintptr_t)data,
                                           .wanted = sizeof(struct head) + bytes};
}

/* The head first: the caller says where the rest goes when it knows how much that is. */
static struct flow *receive_from(struct tcp *g, int32_t rank) {
    struct flow *f = &g->flows[g->n_flows++];
    *f = (struct flow){.link = g->data[rank], .rank = rank, .wanted = sizeof(struct head)};
    return f;
}

/* Bytes that could be moved now; below 0: the connection is gone. */
static int64_t push(struct flow *f) {
    const size_t head = sizeof f->head;
    struct os_tcp_piece pieces[2] = {{(const char *)&f->head + f->done, head - f->done}, {f->data, f->wanted - head}};
    if (f->done >= head) {
        pieces[0] = (struct os_tcp_piece){f->data + (f->done - head), f->wanted - f->done};
        pieces[1] = (struct os_tcp_piece){NULL, 0};
    }
    return os_tcp_send(f->link, pieces);
}

static int64_t pull(struct flow *f) {
    const size_t head = sizeof f->head;
    return f->done < head ? os_tcp_receive(f->link, (char *)&f->head + f->done, head - f->done)
                          : os_tcp_receive(f->link, f->data + (f->done - head), f->wanted - f->done);
}

/* Who has closed its connection has usually said why, to the first rank. */
static int gone(struct tcp *g, int32_t rank, struct err *err) {
    struct err reason;
    uint64_t until = os_clock_ns() + (uint64_t)REASON_MS * 1000000;
    while (!atomic_load(&g->watch.has_failed) && os_clock_ns() < until) os_sleep_ms(5);
    if (!atomic_load(&g->watch.has_failed)) {
        err_set(&reason, ERR_ENETWORK, "rank %d has closed its connection", rank);
        tcp_watch_fail(&g->watch, &reason);
    }
    return tcp_watch_failure(&g->watch, err);
}

static void wait_for_any(struct tcp *g) {
    struct os_tcp_wish wishes[OS_TCP_WISHES_MAX];
    int n = 0;
    for (int32_t i = 0; i < g->n_flows && n < OS_TCP_WISHES_MAX; i++) {
        const struct flow *f = &g->flows[i];
        if (f->done < f->wanted) wishes[n++] = (struct os_tcp_wish){.t = f->link, .sends = f->is_out, .receives = !f->is_out};
    }
    os_tcp_wait(wishes, n, SLEEP_MS);
}

/* Until what is wanted has come; and gone, where `drains`. */
static int move(struct tcp *g, bool drains, struct err *err) {
    for (int looks = 0;; looks++) {
        bool is_done = true, has_moved = false;
        for (int32_t i = 0; i < g->n_flows; i++) {
            struct flow *f = &g->flows[i];
            while (f->done < f->wanted) {
                int64_t n = f->is_out ? push(f) : pull(f);
                if (n < 0) return gone(g, f->rank, err);
                if (n == 0) break;
                f->done += (size_t)n;
                has_moved = true;
            }
            if (f->done < f->wanted && (drains || !f->is_out)) is_done = false;
        }
        if (is_done) return ERR_OK;
        if (has_moved) looks = 0;
        else if (atomic_load(&g->watch.has_failed)) return tcp_watch_failure(&g->watch, err);
        else if (looks < LOOKS) os_thread_yield();
        else wait_for_any(g);
    }
}

static int check_head(const struct tcp *g, const struct flow *f, enum tcp_op op, struct err *err) {
    if (f->head.op == (uint32_t)op && f->head.sequence == g->sequence) return ERR_OK;
    return err_set(err, ERR_EINTERNAL, "rank %d is at call %u of kind %u, and rank %d at call %u of kind %d", f->rank, f->head.sequence,
                   f->head.op, g->base.rank, g->sequence, op);
}

/* Every rank that sends here sends so many bytes; rank r's go to places[r]. */
static int move_known(struct tcp *g, enum tcp_op op, void *const *places, const size_t *bytes, struct err *err) {
    TRY(move(g, false, err));
    for (int32_t i = 0; i < g->n_flows; i++) {
        struct flow *f = &g->flows[i];
        if (f->is_out) continue;
        TRY(check_head(g, f, op, err));
        if (f->head.bytes != bytes[f->rank])
            return err_set(err, ERR_EINTERNAL, "rank %d brings %llu bytes, and rank %d expects %zu", f->rank,
                           (unsigned long long)f->head.bytes, g->base.rank, bytes[f->rank]);
        f->data = places[f->rank];
        f->wanted += bytes[f->rank];
    }
    return move(g, true, err);
}

/* ---- calls --------------------------------------------------------------------------------------------------------- */

static void add_up(float *out, float *const *parts, int32_t size, size_t n) {
    if (n) memcpy(out, parts[0], n * sizeof *out);
    for (int32_t r = 1; r < size; r++)
        for (size_t i = 0; i < n; i++) out[i] += parts[r][i];
}

static int sum_whole(struct tcp *g, const float *in, float *out, size_t n, struct err *err) {
    void *places[COMM_RANKS_MAX];
    size_t bytes[COMM_RANKS_MAX];
    TRY(begin(g, err));
    for (int32_t r = 0; r < g->base.size; r++) {
        places[r] = g->scratch + (size_t)r * CHUNK;
        bytes[r] = n * sizeof *in;
        if (r == g->base.rank) {
            places[r] = (float *)(uintptr_t)in;
            continue;
        }
        send_to(g, r, OP_SUM, in, n * sizeof *in);
        receive_from(g, r);
    }
    TRY(move_known(g, OP_SUM, places, bytes, err));
    add_up(out, (float *const *)places, g->base.size, n);
    return ERR_OK;
}

/* The numbers that a rank sums up. */
static size_t part_from(const struct tcp *g, int32_t rank, size_t n) {
    return n / (size_t)g->base.size * (size_t)rank + (n % (size_t)g->base.size) * (size_t)rank / (size_t)g->base.size;
}

static int hand_out_sums(struct tcp *g, float *out, size_t n, struct err *err) {
    void *places[COMM_RANKS_MAX];
    size_t bytes[COMM_RANKS_MAX];
    TRY(begin(g, err));
    for (int32_t r = 0; r < g->base.size; r++) {
        size_t from = part_from(g, r, n);
        places[r] = out + from;
        bytes[r] = (part_from(g, r + 1, n) - from) * sizeof *out;
    }
    for (int32_t r = 0; r < g->base.size; r++) {
        if (r == g->base.rank) continue;
        send_to(g, r, OP_SUM_PART, places[g->base.rank], bytes[g->base.rank]);
        receive_from(g, r);
    }
    return move_known(g, OP_SUM_PART, places, bytes, err);
}

static int sum_in_parts(struct tcp *g, const float *in, float *out, size_t n, struct err *err) {
    void *places[COMM_RANKS_MAX];
    size_t bytes[COMM_RANKS_MAX], from = part_from(g, g->base.rank, n), own = part_from(g, g->base.rank + 1, n) - from;
    TRY(begin(g, err));
    for (int32_t r = 0; r < g->base.size; r++) {
        places[r] = r == g->base.rank ? (float *)(uintptr_t)(in + from) : g->scratch + (size_t)r * CHUNK;
        bytes[r] = own * sizeof *in;
        if (r == g->base.rank) continue;
        size_t theirs = part_from(g, r, n);
        send_to(g, r, OP_SUM_PART, in + theirs, (part_from(g, r + 1, n) - theirs) * sizeof *in);
        receive_from(g, r);
    }
    TRY(move_known(g, OP_SUM_PART, places, bytes, err));
    add_up(out + from, (float *const *)places, g->base.size, own);
    return hand_out_sums(g, out, n, err);
}

static int tcp_all_reduce(struct comm *c, const float *in, float *out, size_t n, struct err *err) {
    struct tcp *g = (struct tcp *)c;
    const size_t most = c->size > 2 ? (size_t)c->size * CHUNK : CHUNK;
    do {
        size_t now = n < most ? n : most;
        TRY(c->size > 2 && now >= PARTS_FROM ? sum_in_parts(g, in, out, now, err) : sum_whole(g, in, out, now, err));
        in += now, out += now, n -= now;
    } while (n);
    return ERR_OK;
}

static int tcp_all_gather(struct comm *c, const void *in, size_t bytes, void *out, size_t total, struct err *err) {
    struct tcp *g = (struct tcp *)c;
    uint64_t sum = 0, sizes[COMM_RANKS_MAX] = {[0] = 0};
    sizes[c->rank] = bytes;
    TRY(begin(g, err));
    for (int32_t r = 0; r < c->size; r++) {
        if (r == c->rank) continue;
        send_to(g, r, OP_GATHER, in, bytes);
        receive_from(g, r);
    }
    TRY(move(g, false, err));
    for (int32_t i = 0; i < g->n_flows; i++) {
        if (g->flows[i].is_out) continue;
        TRY(check_head(g, &g->flows[i], OP_GATHER, err));
        sizes[g->flows[i].rank] = g->flows[i].head.bytes;
    }
    for (int32_t r = 0; r < c->size; r++)
        if ((sum += sizes[r]) > total || sizes[r] > total) break;
    if (sum != total) return err_set(err, ERR_EINTERNAL, "%llu bytes were gathered, expected %zu", (unsigned long long)sum, total);
    for (int32_t i = 0; i < g->n_flows; i++) {
        struct flow *f = &g->flows[i];
        if (f->is_out) continue;
        f->data = out;
        for (int32_t r = 0; r < f->rank; r++) f->data += sizes[r];
        f->wanted += sizes[f->rank];
    }
    char *own = out;
    for (int32_t r = 0; r < c->rank; r++) own += sizes[r];
    if (bytes) memcpy(own, in, bytes);
    return move(g, true, err);
}

static int tcp_broadcast(struct comm *c, int32_t root, void *data, size_t bytes, struct err *err) {
    struct tcp *g = (struct tcp *)c;
    void *places[COMM_RANKS_MAX] = {[0] = NULL};
    size_t sizes[COMM_RANKS_MAX] = {[0] = 0};
    TRY(begin(g, err));
    places[root] = data;
    sizes[root] = bytes;
    if (c->rank != root) receive_from(g, root);
    for (int32_t r = 0; r < c->size && c->rank == root; r++)
        if (r != root) send_to(g, r, OP_BROADCAST, data, bytes);
    return move_known(g, OP_BROADCAST, places, sizes, err);
}

static void tcp_fail(struct comm *c, const struct err *reason) {
    tcp_watch_fail(&((struct tcp *)c)->watch, reason);
}

static void tcp_close(struct comm *c) {
    struct tcp *g = (struct tcp *)c;
    tcp_watch_stop(&g->watch);
    for (int32_t r = 0; r < c->size; r++) os_tcp_close(g->data[r]);
    os_mutex_destroy(g->watch.lock);
    mem_free(g->scratch);
    mem_free(g);
}

static const struct comm_type tcp_type = {.name = "tcp",
                                          .all_reduce = tcp_all_reduce,
                                          .all_gather = tcp_all_gather,
                                          .broadcast = tcp_broadcast,
                                          .fail = tcp_fail,
                                          .close = tcp_close};

static int check_options(const struct comm_tcp_options *o, struct err *err) {
    enum { SECRET_MIN = 16 };
    if (o->size < 1 || o->size > COMM_RANKS_MAX) return err_set(err, ERR_EARG, "%d ranks; there may be 1 to %d", o->size, COMM_RANKS_MAX);
    if (o->rank < 0 || o->rank >= o->size) return err_set(err, ERR_EARG, "there is no rank %d among %d", o->rank, o->size);
    if (o->secret.n < SECRET_MIN)
        return err_set(err, ERR_EARG, "the job secret has %zu bytes; it needs %d at least", o->secret.n, SECRET_MIN);
    return ERR_OK;
}

int comm_tcp_join(const struct comm_tcp_options *o, struct comm **out, struct err *err) {
    TRY(check_options(o, err));
    struct tcp *g = mem_alloc(sizeof *g);
    g->base = (struct comm){.type = &tcp_type, .rank = o->rank, .size = o->size, .n_here = 1};
    g->watch.rank = o->rank;
    g->watch.size = o->size;
    g->watch.options = *o;
    g->watch.lock = os_mutex_create();
    g->scratch = mem_alloc((size_t)o->size * CHUNK * sizeof *g->scratch);
    int code = tcp_join(o, &g->watch, g->data, err);
    g->watch.options.facts = NULL; /* the caller's, for the joining alone */
    if (!code) code = tcp_watch_start(&g->watch, err);
    if (code) {
        tcp_close(&g->base);
        return code;
    }
    *out = &g->base;
    return ERR_OK;
}
