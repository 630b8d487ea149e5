/* The thread beside a rank that looks after the others: signs of life in both directions, reasons of failures, and the end.
 *
 * The first rank hears everybody and tells everybody; the others hear and tell the first. A process that is killed closes its connections at once; a machine
 * that is gone, or a process that is stopped, falls silent.
 */
#include "base/log.h"
#include "comm/tcp_internal.h"

#include <stdatomic.h>
#include <stdio.h>

enum { LOOK_MS = 50, BEATS_PER_SILENCE = 5, LEAVE_MS = 3000, GOODBYE_MS = 500 };

struct look {
    struct watch *w;
    uint64_t beat_ns, failed_ns; /* when the last sign was sent; when the failure was told */
    bool is_told;
};

static uint64_t ms_ns(int32_t ms) {
    return (uint64_t)ms * 1000000;
}

void tcp_watch_fail(struct watch *w, const struct err *reason) {
    os_mutex_lock(w->lock);
    if (!w->reason.code) w->reason = *reason;
    os_mutex_unlock(w->lock);
    atomic_store(&w->has_failed, 1);
}

int tcp_watch_failure(struct watch *w, struct err *err) {
    os_mutex_lock(w->lock);
    int code = err_set(err, w->reason.code, "%s", w->reason.msg);
    os_mutex_unlock(w->lock);
    return code;
}

/* Small, so that it goes out as a whole or, to somebody who reads nothing, not at all. */
static void tell(struct watch_peer *p, enum tcp_message kind, const void *data, size_t n) {
    struct tcp_message_head head = {kind, (uint32_t)n};
    if (p->link && !p->has_ended) os_tcp_send(p->link, (const struct os_tcp_piece[2]){{&head, sizeof head}, {data, n}});
}

static void tell_all(struct watch *w, enum tcp_message kind, const void *data, size_t n) {
    for (int32_t r = 0; r < w->size; r++) tell(&w->peers[r], kind, data, n);
}

static void tell_reason(struct watch *w) {
    unsigned char text[WATCH_BUFFER - sizeof(struct tcp_message_head)];
    struct err reason;
    tcp_watch_failure(w, &reason);
    size_t n = tcp_message_write_reason(&reason, text, sizeof text);
    tell_all(w, MSG_REASON, text, n);
}

static void take_message(struct watch *w, int32_t rank, uint32_t kind, const unsigned char *data, size_t n) {
    struct err reason, own;
    if (kind == MSG_END) {
        w->peers[rank].has_ended = true;
        os_tcp_finish(w->peers[rank].link); /* it waits for that */
    }
    if (kind != MSG_REASON) return;
    tcp_message_read_reason(data, n, &reason);
    if (w->rank == 0) err_set(&own, reason.code, "rank %d: %s", rank, reason.msg);
    else own = reason; /* as the first rank tells it */
    tcp_watch_fail(w, &own);
}

/* Whole messages out of what has come. */
static bool take_messages(struct watch *w, int32_t rank) {
    struct watch_peer *p = &w->peers[rank];
    struct tcp_message_head head;
    size_t at = 0;
    while (p->n - at >= sizeof head) {
        memcpy(&head, p->buffer + at, sizeof head);
        if (head.bytes > WATCH_BUFFER - sizeof head) return false;
        if (p->n - at < sizeof head + head.bytes) break;
        take_message(w, rank, head.kind, p->buffer + at + sizeof head, head.bytes);
        at += sizeof head + head.bytes;
    }
    memmove(p->buffer, p->buffer + at, p->n - at);
    p->n -= at;
    return true;
}

static void lose(struct watch *w, int32_t rank, const char *how) {
    struct watch_peer *p = &w->peers[rank];
    struct err reason;
    if (!p->has_ended) tcp_watch_fail(w, (err_set(&reason, ERR_ENETWORK, "rank %d at %s %s", rank, p->address, how), &reason));
    p->has_ended = true;
}

static void hear(struct watch *w, int32_t rank, uint64_t now) {
    struct watch_peer *p = &w->peers[rank];
    char how[64];
    for (;;) {
        int64_t got = os_tcp_receive(p->link, p->buffer + p->n, WATCH_BUFFER - p->n);
        if (got > 0) {
            p->heard_ns = now;
            p->n += (size_t)got;
            if (take_messages(w, rank)) continue;
        }
        if (got != 0) lose(w, rank, "has ended without a word");
        break;
    }
    if (p->has_ended || now - p->heard_ns < ms_ns(w->options.silence_ms)) return;
    snprintf(how, sizeof how, "has not been heard of for %d s", w->options.silence_ms / 1000);
    lose(w, rank, how);
}

static void wait_and_hear(struct watch *w, int ms) {
    struct os_tcp_wish wishes[COMM_RANKS_MAX];
    int n = 0;
    for (int32_t r = 0; r < w->size; r++)
        if (w->peers[r].link && !w->peers[r].has_ended) wishes[n++] = (struct os_tcp_wish){.t = w->peers[r].link, .receives = true};
    if (n) os_tcp_wait(wishes, n, ms);
    else os_sleep_ms(ms);
    uint64_t now = os_clock_ns();
    for (int32_t r = 0; r < w->size; r++)
        if (w->peers[r].link && !w->peers[r].has_ended) hear(w, r, now);
}

/* Everybody is told once; then the process has some seconds to end in order. */
static void look_after_failure(struct look *l) {
    struct watch *w = l->w;
    struct err reason;
    uint64_t now = os_clock_ns();
    if (!atomic_load(&w->has_failed)) return;
    tcp_watch_failure(w, &reason);
    if (!l->is_told) {
        l->is_told = true;
        l->failed_ns = now;
        tell_reason(w);
        if (w->options.on_fail) w->options.on_fail(w->options.user, &reason);
    }
    if (!w->options.ends_process || now - l->failed_ns < ms_ns(LEAVE_MS)) return;
    log_error("rank %d ends: %s", w->rank, reason.msg);
    os_leave(1);
}

/* Closing over bytes that nobody has read would take back what was said last. */
static void say_goodbye(struct look *l) {
    struct watch *w = l->w;
    uint64_t until = os_clock_ns() + ms_ns(GOODBYE_MS);
    if (atomic_load(&w->has_failed) && !l->is_told) tell_reason(w);
    tell_all(w, MSG_END, NULL, 0);
    for (int32_t r = 0; r < w->size; r++) {
        struct os_tcp *t = w->peers[r].link;
        char unread[64];
        int64_t got = 0;
        if (!t) continue;
        os_tcp_finish(t);
        while (got >= 0 && os_clock_ns() < until) {
            got = os_tcp_receive(t, unread, sizeof unread);
            if (got == 0) os_tcp_wait(&(struct os_tcp_wish){.t = t, .receives = true}, 1, LOOK_MS);
        }
    }
}

static void run(void *user) {
    struct look l = {.w = user};
    struct watch *w = user;
    uint64_t every = ms_ns(w->options.silence_ms / BEATS_PER_SILENCE);
    while (!atomic_load(&w->quits)) {
        uint64_t now = os_clock_ns();
        if (now - l.beat_ns >= every) {
            l.beat_ns = now;
            tell_all(w, MSG_BEAT, NULL, 0);
        }
        wait_and_hear(w, LOOK_MS);
        look_after_failure(&l);
    }
    say_goodbye(&l);
}

int tcp_watch_start(struct watch *w, struct err *err) {
    for (int32_t r = 0; r < w->size; r++) w->peers[r].heard_ns = os_clock_ns();
    return os_thread_start(&w->thread, run, w, "mlxcel-watch", err);
}

void tcp_watch_stop(struct watch *w) {
    atomic_store(&w->quits, 1);
    if (w->thread) os_thread_join(w->thread);
    for (int32_t r = 0; r < w->size; r++) os_tcp_close(w->peers[r].link);
}
