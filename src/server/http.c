/* Connections: accept, read, hand over, wait, close. One timer looks at all of them twice a second.
 *
 * A connection is freed in libuv's closing callback and nowhere else. The exchange that it holds is let go before that.
 */
#include "server/http_internal.h"

#include "server/tls.h"

#include "base/log.h"
#include "os/os.h"

enum {
    TICK_MS = 500,
    HEAD_MS = 15000,         /* from the first byte to the last header */
    BODY_MS = 30000,         /* without a byte of the body */
    WHOLE_MS = 300000,       /* the whole request */
    IDLE_MS = 75000,         /* between requests */
    WRITE_MS = 30000,        /* without the client taking a byte */
    LINGER_MS = 2000,        /* without a byte from the client */
    LINGER_WHOLE_MS = 30000, /* after everything has left */
    PROBES_MAX = 5,          /* clients may take no more answers of 1xx to one request */
    PROBE_MS = 500,          /* before the second one; then twice as long each time */
    WAITING_MAX = 64 * 1024,
    UNSENT_MAX = 256 * 1024,   /* answers that the client has not taken: its next request waits */
    IGNORED_MAX = 1024 * 1024, /* bytes after the last answer, besides a body that was not read */
};

struct write {
    uv_write_t request;
    struct http_conn *conn;
    char data[];
};

static void set_state(struct http_conn *c, enum conn_state state) {
    c->state = state;
    c->since_ns = os_clock_ns();
}

/* ---- exchanges --------------------------------------------------------------------------------------------------------- */

static struct http_exchange *new_exchange(struct http_conn *c) {
    struct http_exchange *x = mem_alloc(sizeof *x);
    x->conn = c;
    x->n_holds = 1;
    c->exchange = x;
    http_parse_begin(&c->parse, &x->request);
    return x;
}

void http_hold(struct http_exchange *x) {
    x->n_holds++;
}

void http_release(struct http_exchange *x) {
    if (--x->n_holds > 0) return;
    http_request_free(&x->request);
    sb_free(&x->headers);
    mem_free(x);
}

/* ---- closing ------------------------------------------------------------------------------------------------------------ */

static void handle_closed(struct http_server *s) {
    if (--s->n_handles > 0 || !s->closing) return;
    void (*on_closed)(void *) = s->on_closed;
    void *user = s->closed_user;
    mem_free(s);
    if (on_closed) on_closed(user);
}

static void on_conn_closed(uv_handle_t *handle) {
    struct http_conn *c = (struct http_conn *)handle;
    struct http_server *s = c->server;
    http_parse_free(&c->parse);
    sb_free(&c->waiting);
    tls_close(c->tls);
    mem_free(c);
    s->n_conns--;
    handle_closed(s);
}

void conn_close(struct http_conn *c) {
    if (c->state == CONN_CLOSED) return;
    c->state = CONN_CLOSED;
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    struct http_exchange *x = c->exchange;
    c->exchange = NULL;
    if (x) {
        x->conn = NULL;
        if (x->on_gone) x->on_gone(x);
        http_release(x);
    }
    uv_close(&c->peer.handle, on_conn_closed);
}

static void on_shutdown(uv_shutdown_t *request, int status) {
    struct http_conn *c = (struct http_conn *)request->handle;
    mem_free(request);
    c->is_shut = true;
    if (status < 0 || c->is_ended) conn_close(c);
}

static void read_on(struct http_conn *c);

/* The answer has been queued: after it nothing more is said, and what still comes is thrown away for a while, so that the
 * client can read the answer before the connection is reset. */
static void linger(struct http_conn *c) {
    set_state(c, CONN_LINGER);
    sb_free(&c->waiting);
    read_on(c); /* bytes that lie unread when a socket is closed reset it */
    uv_shutdown_t *request = mem_alloc(sizeof *request);
    if (c->tls) tls_shutdown(c->tls);
    if (c->state != CONN_LINGER || uv_shutdown(request, &c->peer.stream, on_shutdown)) {
        mem_free(request);
        conn_close(c);
    }
}

static size_t unsent(const struct http_conn *c) {
    return uv_stream_get_write_queue_size(&c->peer.stream);
}

/* A client that asks on and on and takes no answer must not fill our memory. */
static bool may_begin(const struct http_conn *c) {
    return c->state == CONN_IDLE && unsent(c) <= UNSENT_MAX;
}

static void go_on(struct http_conn *c);

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

static void on_written(uv_write_t *request, int status) {
    struct write *w = (struct write *)request;
    struct http_conn *c = w->conn;
    mem_free(w);
    if (c->state == CONN_CLOSED) return;
    c->went_ns = os_clock_ns();
    if (status < 0) {
        conn_close(c);
        return;
    }
    struct http_exchange *x = c->exchange;
    if (x && x->on_drained && unsent(c) == 0) x->on_drained(x);
    else if (c->waiting.n > 0 && may_begin(c)) go_on(c);
}

void conn_write(struct http_conn *c, struct str data) {
    if (c->state == CONN_CLOSED || data.n == 0) return;
    struct write *w = mem_alloc(sizeof *w + data.n);
    w->conn = c;
    memcpy(w->data, data.p, data.n);
    if (unsent(c) == 0) c->went_ns = os_clock_ns();
    uv_buf_t buf = uv_buf_init(w->data, (unsigned)data.n);
    if (uv_write(&w->request, &c->peer.stream, &buf, 1, on_written)) {
        mem_free(w);
        conn_close(c);
    }
}

void conn_send(struct http_conn *c, struct str data) {
    if (c->tls) tls_send(c->tls, data);
    else conn_write(c, data);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    static char shared[64 * 1024]; /* the loop's thread fills and empties it at once */
    (void)handle, (void)suggested;
    *buf = uv_buf_init(shared, sizeof shared);
}

/* Whether something can be sent to the client before its answer, to see if it is still there. */
static bool can_probe(const struct http_conn *c) {
    return !c->tls && (c->exchange->streaming || !c->is_http10);
}

/* Whoever has asked and waits gets its answer; that it is gone shows when something is sent to it. */
void conn_ended(struct http_conn *c) {
    c->is_ended = true;
    if (c->state == CONN_BUSY && can_probe(c)) return;
    if (c->state == CONN_IDLE && c->waiting.n > 0) return; /* it has asked more, and takes its answers first */
    if (c->state == CONN_IDLE && unsent(c) > 0) linger(c);
    else if (c->state != CONN_LINGER || c->is_shut) conn_close(c);
}

/* An interim answer means nothing to a client that waits, and is answered by a reset where nobody does. A stream is probed by whoever writes
 * it. */
static void probe(struct http_conn *c, uint64_t now) {
    if (c->exchange->streaming || c->is_http10 || c->n_probes == PROBES_MAX || now < c->probe_ns) return;
    c->probe_ns = now + ((uint64_t)PROBE_MS * 1000000 << c->n_probes++);
    conn_send(c, STR("HTTP/1.1 100 Continue\r\n\r\n"));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct http_conn *c = (struct http_conn *)stream;
    if (n == 0 || c->state == CONN_CLOSED) return;
    if (n < 0) {
        if (n == UV_EOF) conn_ended(c);
        else conn_close(c);
        return;
    }
    c->came_ns = os_clock_ns();
    if (c->state == CONN_LINGER) {
        c->n_ignored += (size_t)n;
        if (c->n_ignored > c->ignored_max) conn_close(c);
        return;
    }
    if (c->tls) tls_input(c->tls, buf->base, (size_t)n);
    else conn_input(c, buf->base, (size_t)n);
}

static void begin_request(struct http_conn *c) {
    if (!c->exchange) new_exchange(c);
    set_state(c, CONN_READING);
}

/* As much of the request is known as has been read. */
static struct http_exchange *begin_answer(struct http_conn *c) {
    struct http_exchange *x = c->exchange;
    c->is_http10 = x->request.minor == 0;
    c->is_head = str_is(x->request.method, "HEAD");
    c->n_probes = 0;
    c->probe_ns = 0;
    set_state(c, CONN_BUSY);
    http_hold(x);
    return x;
}

static void hand_over(struct http_conn *c) {
    struct http_exchange *x = begin_answer(c);
    c->server->options.handle(c->server->options.user, x);
    http_release(x);
}

/* A request that was not understood is answered, and its connection closed. */
static void refuse(struct http_conn *c, int32_t status, const char *why) {
    struct http_exchange *x = begin_answer(c);
    c->close_after = true;
    c->server->options.refuse(c->server->options.user, x, status, why);
    http_release(x);
}

/* Feeds as much as belongs to the current request. */
static size_t feed(struct http_conn *c, const char *data, size_t n) {
    if (c->state == CONN_IDLE) begin_request(c);
    bool had_head = c->parse.has_head;
    size_t used = http_parse_feed(&c->parse, data, n);
    if (c->parse.turned_away) {
        c->close_after = true; /* its body follows */
        hand_over(c);
        return n;
    }
    if (c->parse.state == HTTP_BAD) {
        refuse(c, c->parse.status, c->parse.why);
        return n;
    }
    if (!had_head && c->parse.wants_continue && c->parse.state == HTTP_MORE) conn_send(c, STR("HTTP/1.1 100 Continue\r\n\r\n"));
    if (c->parse.state == HTTP_DONE) hand_over(c);
    return used;
}

static void keep_waiting(struct http_conn *c, const char *data, size_t n) {
    sb_put(&c->waiting, str_n(data, n));
    if (c->waiting.n > WAITING_MAX && !c->reading_paused) {
        uv_read_stop(&c->peer.stream);
        c->reading_paused = true;
    }
}

static void read_on(struct http_conn *c) {
    if (!c->reading_paused || c->state == CONN_CLOSED) return;
    c->reading_paused = false;
    if (uv_read_start(&c->peer.stream, on_alloc, on_read)) conn_close(c);
}

void conn_input(struct http_conn *c, const char *data, size_t n) {
    if (c->waiting.n > 0) { /* bytes that came before these are not read yet */
        keep_waiting(c, data, n);
        return;
    }
    c->handling = true; /* an answer that is complete at once must not begin the next request inside this one */
    while (n > 0 && (c->state == CONN_READING || may_begin(c))) {
        size_t used = feed(c, data, n);
        data += used;
        n -= used;
    }
    c->handling = false;
    if (n > 0 && (c->state == CONN_BUSY || c->state == CONN_IDLE)) keep_waiting(c, data, n);
}

/* What came while the last request was answered, or while its answer was not taken. */
static void go_on(struct http_conn *c) {
    while (c->waiting.n > 0 && may_begin(c)) {
        struct sb bytes = c->waiting;
        c->waiting = (struct sb){0};
        conn_input(c, bytes.p, bytes.n);
        sb_free(&bytes);
    }
    if (c->is_ended && c->state == CONN_IDLE && c->waiting.n == 0) linger(c);
    else if (c->is_ended && c->state == CONN_READING) conn_close(c); /* the rest will not come */
    if (c->waiting.n <= WAITING_MAX) read_on(c);
}

void conn_answered(struct http_conn *c) {
    struct http_exchange *x = c->exchange;
    /* a client that sends a body before it looks for an answer shall find it */
    c->ignored_max = IGNORED_MAX + (c->parse.state == HTTP_BAD ? c->server->options.limits.body_bytes - x->request.body.n : 0);
    c->exchange = NULL;
    x->conn = NULL;
    http_release(x);
    if (c->close_after || c->server->draining) { /* a stream may have begun before the end did */
        linger(c);
        return;
    }
    set_state(c, CONN_IDLE);
    if (!c->handling) go_on(c);
}

/* ---- the listener -------------------------------------------------------------------------------------------------------- */

static void link_conn(struct http_conn *c) {
    struct http_server *s = c->server;
    c->next = s->conns;
    c->link = &s->conns;
    if (c->next) c->next->link = &c->next;
    s->conns = c;
    s->n_conns++;
    s->n_handles++;
}

static void on_connection(uv_stream_t *listener, int status) {
    struct http_server *s = listener->data;
    if (status < 0) return;
    struct http_conn *c = mem_alloc(sizeof *c);
    c->server = s;
    if (listen_init_peer((const union listen_stream *)listener, s->options.loop, &c->peer)) {
        mem_free(c);
        return;
    }
    http_parse_init(&c->parse, &s->options.limits);
    c->parse.accept = s->options.accept;
    c->parse.accept_user = s->options.user;
    link_conn(c);
    set_state(c, CONN_IDLE);
    if (uv_accept(listener, &c->peer.stream)) {
        conn_close(c);
        return;
    }
    if (!listen_is_socket(&c->peer)) uv_tcp_nodelay(&c->peer.tcp, 1);
    if (s->options.tls && !(c->tls = tls_open(s->options.tls, c))) {
        conn_close(c);
        return;
    }
    if (uv_read_start(&c->peer.stream, on_alloc, on_read)) {
        conn_close(c);
        return;
    }
    if (s->n_conns <= s->options.n_conns) return;
    if (c->tls) { /* nothing can be said before the handshake */
        conn_close(c);
        return;
    }
    begin_request(c);
    refuse(c, 503, "too many connections");
}

/* What happened while a tick runs is later than its time. */
static uint64_t ms_from(uint64_t then, uint64_t now) {
    return now > then ? (now - then) / 1000000 : 0;
}

static bool is_late(const struct http_conn *c, uint64_t now) {
    uint64_t since = ms_from(c->since_ns, now), came = ms_from(c->came_ns, now), went = ms_from(c->went_ns, now);
    uint64_t done = since < went ? since : went; /* since the state began and everything has left */
    bool is_writing = unsent(c) > 0;
    if (is_writing && went > WRITE_MS) return true;
    switch (c->state) {
    case CONN_IDLE: return done > IDLE_MS;
    case CONN_READING: return since > WHOLE_MS || (c->parse.has_head ? came > BODY_MS : since > HEAD_MS);
    case CONN_LINGER: return !is_writing && (done > LINGER_WHOLE_MS || (done > LINGER_MS && came > LINGER_MS));
    case CONN_BUSY:
    case CONN_CLOSED: break;
    }
    return false;
}

static void on_tick(uv_timer_t *timer) {
    struct http_server *s = timer->data;
    uint64_t now = os_clock_ns();
    for (struct http_conn *c = s->conns, *next; c; c = next) {
        next = c->next; /* closing c or answering it touches no other connection */
        size_t queued = unsent(c);
        if (queued < c->last_queued) c->went_ns = now;
        c->last_queued = queued;
        if (c->is_ended && c->state == CONN_BUSY) probe(c, now);
        if (c->state == CONN_CLOSED || !is_late(c, now)) continue;
        if (c->state == CONN_READING && queued == 0) refuse(c, 408, "the request took too long");
        else conn_close(c);
    }
}

static void on_handle_closed(uv_handle_t *handle) {
    handle_closed(handle->data);
}

int http_server_open(const struct http_options *options, struct http_server **out, struct err *err) {
    struct http_server *s = mem_alloc(sizeof *s);
    s->options = *options;
    uv_timer_init(options->loop, &s->timer);
    s->timer.data = s;
    uv_timer_start(&s->timer, on_tick, TICK_MS, TICK_MS);
    int code = listen_open(&s->listeners, options->loop, options->host, options->port, on_connection, s, err);
    s->n_handles = 1 + s->listeners.n;
    if (code) {
        http_server_close(s, NULL, NULL);
        return code;
    }
    *out = s;
    return ERR_OK;
}

int32_t http_server_port(const struct http_server *s) {
    return s->listeners.port;
}

static void close_listeners(struct http_server *s) {
    for (int32_t i = 0; i < s->listeners.n; i++)
        if (!uv_is_closing(&s->listeners.all[i].handle)) uv_close(&s->listeners.all[i].handle, on_handle_closed);
}

int32_t http_server_n_conns(const struct http_server *s) {
    return s->n_conns;
}

void http_server_drain(struct http_server *s) {
    if (s->draining) return;
    s->draining = true;
    close_listeners(s);
    for (struct http_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (c->state != CONN_IDLE) continue;
        if (unsent(c) > 0) linger(c); /* its last answer is still on the way */
        else conn_close(c);
    }
}

void http_server_close(struct http_server *s, void (*on_closed)(void *user), void *user) {
    s->closing = true;
    s->on_closed = on_closed;
    s->closed_user = user;
    close_listeners(s);
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    while (s->conns) conn_close(s->conns);
}
