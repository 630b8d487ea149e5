/* How processes become a group.
 *
 * The first rank listens at the address that all were given. Each other one calls there, proves the secret, and sends the facts that all must have in common
 * with the port at which it listens itself. When all are there, the first sends everybody the addresses, and each rank calls those before it: a connection for
 * data between every two. Whoever calls and cannot prove the secret is turned away and named, and the others wait on.
 */
#include "base/address.h"
#include "base/arena.h"
#include "base/log.h"
#include "comm/tcp_internal.h"

enum { FACTS_MAX = 4096, LOOK_MS = 100, PATIENCE_MS = 3000 /* with somebody who has called and says nothing */ };

struct seat {
    struct os_tcp_address address; /* where the rank listens */
};

struct joining {
    const struct comm_tcp_options *o;
    struct watch *watch;
    struct os_tcp **data;
    struct os_tcp *listener;
    struct seat seats[COMM_RANKS_MAX];
    uint64_t until_ns;
    struct err last_refused; /* who came and was turned away, for whoever looks for a rank that is missing */
};

static uint64_t sooner(const struct joining *j, int ms) {
    uint64_t then = os_clock_ns() + (uint64_t)ms * 1000000;
    return then < j->until_ns ? then : j->until_ns;
}

static bool is_late(const struct joining *j) {
    return os_clock_ns() >= j->until_ns;
}

static int check_private(const struct os_tcp_address *a, struct err *err) {
    char text[OS_TCP_TEXT];
    if (!address_is_public(a->bytes, a->n)) return ERR_OK;
    return err_set(err, ERR_EARG,
                   "%s is a public address, and what ranks send each other is not encrypted; give --coordinator an address of a private "
                   "network",
                   os_tcp_text(a, text));
}

/* ---- facts --------------------------------------------------------------------------------------------------------- */

/* Name and value of each, with a 0 behind either. */
static size_t write_facts(const struct comm_tcp_options *o, char out[FACTS_MAX]) {
    size_t n = 0;
    for (int32_t i = 0; i < o->n_facts; i++) {
        const char *texts[] = {o->facts[i].name, o->facts[i].value};
        for (int k = 0; k < 2; k++) {
            size_t length = strlen(texts[k]) + 1;
            if (n + length > FACTS_MAX) return n;
            memcpy(out + n, texts[k], length);
            n += length;
        }
    }
    return n;
}

static const char *next_text(const char *facts, size_t n, size_t *at) {
    const char *text = facts + *at, *end = *at < n ? memchr(text, 0, n - *at) : NULL;
    if (!end) return NULL;
    *at += (size_t)(end - text) + 1;
    return text;
}

static int compare_facts(const struct comm_tcp_options *o, int32_t rank, const char *facts, size_t n, struct err *err) {
    size_t at = 0;
    for (int32_t i = 0; i < o->n_facts; i++) {
        const char *name = next_text(facts, n, &at), *value = name ? next_text(facts, n, &at) : NULL;
        if (!value || strcmp(name, o->facts[i].name) != 0)
            return err_set(err, ERR_EARG, "rank %d says nothing of %s; use one version of mlxcel for all ranks", rank, o->facts[i].name);
        if (strcmp(value, o->facts[i].value) != 0)
            return err_set(err, ERR_EARG, "%s: rank %d has %.120s, and rank 0 has %.120s", name, rank, value, o->facts[i].value);
    }
    return ERR_OK;
}

/* ---- the first rank ------------------------------------------------------------------------------------------------ */

static void turn_away(struct joining *j, struct os_tcp *t, const struct err *why) {
    struct os_tcp_address peer;
    char text[OS_TCP_TEXT];
    os_tcp_peer_address(t, &peer);
    err_set(&j->last_refused, why->code, "%s was turned away: %s", os_tcp_text(&peer, text), why->msg);
    log_warn("rank %d: %s", j->o->rank, j->last_refused.msg);
    os_tcp_close(t);
}

/* Somebody who has proved the secret; *out NULL: nobody now. */
static int answer_one(struct joining *j, struct os_tcp **out, struct tcp_caller *caller, struct err *err) {
    struct err why;
    struct os_tcp *t;
    *out = NULL;
    TRY(os_tcp_accept(j->listener, LOOK_MS, &t, err));
    if (!t) return ERR_OK;
    if (tcp_proof_answer(t, j->o->secret, j->o->rank, caller, sooner(j, PATIENCE_MS), &why)) {
        turn_away(j, t, &why);
        return ERR_OK;
    }
    *out = t;
    return ERR_OK;
}

struct join_message {
    int32_t size, port;
    char facts[FACTS_MAX];
};

/* A rank that has the secret and does not fit ends the job: it would never be complete. */
static int seat(struct joining *j, struct os_tcp *t, int32_t rank, struct err *err) {
    struct join_message m;
    uint32_t kind;
    size_t n;
    if (rank <= 0 || rank >= j->o->size) {
        os_tcp_close(t);
        return err_set(err, ERR_EARG, "a process came as rank %d, and there are %d ranks; give all the same --world-size", rank,
                       j->o->size);
    }
    struct watch_peer *p = &j->watch->peers[rank];
    if (p->link) {
        os_tcp_close(t);
        return err_set(err, ERR_EARG, "two processes came as rank %d; give each a --rank of its own", rank);
    }
    p->link = t;
    if (tcp_message_receive(t, &kind, &m, sizeof m, &n, sooner(j, PATIENCE_MS), err)) return err_prefix(err, "rank %d", rank);
    size_t before = offsetof(struct join_message, facts);
    if (kind != MSG_JOIN || n < before) return err_set(err, ERR_EFORMAT, "rank %d says something else than that it joins", rank);
    if (m.size != j->o->size)
        return err_set(err, ERR_EARG, "rank %d expects %d ranks, and rank 0 expects %d; give all the same --world-size", rank, m.size,
                       j->o->size);
    TRY(compare_facts(j->o, rank, m.facts, n - before, err));
    os_tcp_peer_address(t, &j->seats[rank].address);
    os_tcp_text(&j->seats[rank].address, p->address);
    j->seats[rank].address.port = m.port;
    log_info("rank %d of %d has come from %s", rank, j->o->size, p->address);
    return ERR_OK;
}

/* The first rank whose connection of this kind is missing; 0: none is. */
static int32_t missing(const struct joining *j, enum tcp_use use) {
    for (int32_t r = 1; r < j->o->size; r++)
        if (use == USE_CONTROL ? !j->watch->peers[r].link : !j->data[r] && r > j->o->rank) return r;
    return 0;
}

static int never_came(const struct joining *j, int32_t rank, struct err *err) {
    return err_set(err, ERR_ENETWORK, "rank %d of %d has not come within %d s%s%s", rank, j->o->size, j->o->join_ms / 1000,
                   j->last_refused.code ? "; " : "", j->last_refused.msg);
}

/* Ranks that are there and have gone again. What they say is for the watch, later. */
static int check_seated(const struct joining *j, struct err *err) {
    for (int32_t r = 0; r < j->o->size; r++) {
        struct watch_peer *p = &j->watch->peers[r];
        if (!p->link || p->n == WATCH_BUFFER) continue;
        int64_t got = os_tcp_receive(p->link, p->buffer + p->n, WATCH_BUFFER - p->n);
        if (got < 0) return err_set(err, ERR_ENETWORK, "rank %d has gone before all were there", r);
        p->n += (size_t)got;
    }
    return ERR_OK;
}

static int seat_all(struct joining *j, struct err *err) {
    int32_t absent;
    while ((absent = missing(j, USE_CONTROL))) {
        struct os_tcp *t;
        struct tcp_caller caller;
        if (is_late(j)) return never_came(j, absent, err);
        TRY(check_seated(j, err));
        TRY(answer_one(j, &t, &caller, err));
        if (t && caller.use != USE_CONTROL) os_tcp_close(t);
        else if (t) TRY(seat(j, t, caller.rank, err));
    }
    return ERR_OK;
}

/* The name may have no address yet, and the address may not be this machine's yet, where a cluster has just started it. */
static int listen_first(struct joining *j, struct err *err) {
    for (;;) {
        struct os_tcp_address at;
        int code = os_tcp_resolve(j->o->host, j->o->port, &at, err);
        if (!code) TRY(check_private(&at, err));
        if (!code) code = os_tcp_listen(&at, &j->listener, err);
        if (!code || is_late(j)) return code ? err_prefix(err, "rank 0") : ERR_OK;
        os_sleep_ms(LOOK_MS);
    }
}

/* Connections for data from the ranks behind this one. */
static int accept_data(struct joining *j, struct err *err) {
    int32_t absent;
    while ((absent = missing(j, USE_DATA))) {
        struct os_tcp *t;
        struct tcp_caller caller;
        if (is_late(j)) return never_came(j, absent, err);
        TRY(check_seated(j, err));
        TRY(answer_one(j, &t, &caller, err));
        if (!t) continue;
        bool fits = caller.use == USE_DATA && caller.rank > j->o->rank && caller.rank < j->o->size && !j->data[caller.rank];
        if (fits) j->data[caller.rank] = t;
        else os_tcp_close(t);
    }
    return ERR_OK;
}

/* The job has failed. Ranks that are still to call would wait for nobody, so they get a seat for a while, to be told why. */
static void seat_late(struct joining *j) {
    uint64_t until = sooner(j, PATIENCE_MS);
    while (missing(j, USE_CONTROL) && os_clock_ns() < until) {
        struct os_tcp *t;
        struct tcp_caller caller;
        struct err unread;
        if (answer_one(j, &t, &caller, &unread)) return;
        bool fits = t && caller.use == USE_CONTROL && caller.rank > 0 && caller.rank < j->o->size && !j->watch->peers[caller.rank].link;
        if (fits) j->watch->peers[caller.rank].link = t;
        else os_tcp_close(t);
    }
}

static void tell_seated(struct joining *j, const struct err *reason) {
    unsigned char text[ERR_MESSAGE_BYTES + 8];
    size_t n = tcp_message_write_reason(reason, text, sizeof text);
    for (int32_t r = 1; r < j->o->size; r++) {
        struct os_tcp *t = j->watch->peers[r].link;
        struct err unread;
        char byte;
        uint64_t soon = os_clock_ns() + 500000000;
        if (!t) continue;
        tcp_message_send(t, MSG_REASON, text, n, soon, &unread);
        os_tcp_finish(t);
        while (tcp_message_take(t, &byte, 1, soon, &unread) == 0) {} /* closing over unread bytes would take the reason back */
    }
}

static int join_first(struct joining *j, struct err *err) {
    TRY(listen_first(j, err));
    int code = seat_all(j, err);
    if (code) seat_late(j);
    for (int32_t r = 1; r < j->o->size && !code; r++)
        code = tcp_message_send(j->watch->peers[r].link, MSG_START, j->seats, (size_t)j->o->size * sizeof *j->seats, j->until_ns, err);
    if (!code) code = accept_data(j, err);
    if (code) tell_seated(j, err);
    return code;
}

/* ---- the others ---------------------------------------------------------------------------------------------------- */

/* Until somebody answers: the first rank may start later than this one. */
static int call_first(struct joining *j, struct os_tcp **out, struct err *err) {
    for (;;) {
        struct os_tcp_address to;
        int code = os_tcp_resolve(j->o->host, j->o->port, &to, err);
        if (!code) TRY(check_private(&to, err));
        if (!code) code = os_tcp_connect(&to, PATIENCE_MS, out, err);
        if (!code) return ERR_OK;
        if (is_late(j)) return err_prefix(err, "rank 0 has not come within %d s", j->o->join_ms / 1000);
        os_sleep_ms(LOOK_MS);
    }
}

static int call(struct joining *j, int32_t rank, enum tcp_use use, struct os_tcp *t, struct err *err) {
    struct os_tcp_address peer;
    char text[OS_TCP_TEXT];
    os_tcp_peer_address(t, &peer);
    int code = tcp_proof_call(t, j->o->secret, &(struct tcp_caller){j->o->rank, use}, rank, j->until_ns, err);
    return code ? err_prefix(err, "rank %d at %s", rank, os_tcp_text(&peer, text)) : ERR_OK;
}

/* The other ranks reach this one where the first does. */
static int listen_behind(struct joining *j, struct os_tcp *control, int32_t *out_port, struct err *err) {
    struct os_tcp_address own;
    os_tcp_own_address(control, &own);
    own.port = 0;
    TRY(os_tcp_listen(&own, &j->listener, err));
    os_tcp_own_address(j->listener, &own);
    *out_port = own.port;
    return ERR_OK;
}

static int wait_for_start(struct joining *j, struct os_tcp *control, struct err *err) {
    unsigned char text[sizeof j->seats];
    uint32_t kind;
    size_t n;
    int code = tcp_message_receive(control, &kind, text, sizeof text, &n, j->until_ns + (uint64_t)PATIENCE_MS * 1000000, err);
    if (code) return err_prefix(err, "waiting with rank 0 for the other ranks");
    if (kind == MSG_REASON) {
        tcp_message_read_reason(text, n, err);
        return err->code;
    }
    if (kind != MSG_START || n != (size_t)j->o->size * sizeof *j->seats)
        return err_set(err, ERR_EFORMAT, "rank 0 says something else than that all are there");
    memcpy(j->seats, text, n);
    return ERR_OK;
}

static int call_data(struct joining *j, struct err *err) {
    for (int32_t r = 0; r < j->o->rank; r++) {
        if (r == 0) os_tcp_peer_address(j->watch->peers[0].link, &j->seats[0].address);
        TRY(check_private(&j->seats[r].address, err));
        if (os_tcp_connect(&j->seats[r].address, PATIENCE_MS, &j->data[r], err)) return err_prefix(err, "rank %d", r);
        TRY(call(j, r, USE_DATA, j->data[r], err));
    }
    return ERR_OK;
}

static int join_behind(struct joining *j, struct err *err) {
    struct join_message *m = mem_alloc(sizeof *m);
    struct watch_peer *first = &j->watch->peers[0];
    struct os_tcp_address peer;
    int code = call_first(j, &first->link, err);
    if (!code) code = call(j, 0, USE_CONTROL, first->link, err);
    m->size = j->o->size;
    if (!code) code = listen_behind(j, first->link, &m->port, err);
    size_t n = offsetof(struct join_message, facts) + write_facts(j->o, m->facts);
    if (!code) code = tcp_message_send(first->link, MSG_JOIN, m, n, j->until_ns, err);
    mem_free(m);
    if (!code) code = wait_for_start(j, first->link, err);
    if (!code) os_tcp_peer_address(first->link, &peer), os_tcp_text(&peer, first->address);
    if (!code) code = call_data(j, err);
    return code ? code : accept_data(j, err);
}

int tcp_join(const struct comm_tcp_options *o, struct watch *w, struct os_tcp **data, struct err *err) {
    struct joining *j = mem_alloc(sizeof *j);
    *j = (struct joining){.o = o, .watch = w, .data = data, .until_ns = os_clock_ns() + (uint64_t)o->join_ms * 1000000};
    int code = o->rank == 0 ? join_first(j, err) : join_behind(j, err);
    os_tcp_close(j->listener);
    mem_free(j);
    return code;
}
