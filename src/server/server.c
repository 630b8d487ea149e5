/* The loop: started, woken by the engine, ended by signals. */
#include "server/listen.h"
#include "server/pull.h"
#include "server/response_store.h"
#include "server/server_internal.h"

#include "server/tls.h"

#include "api/build.h"
#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"

#include <stdio.h>

enum { TICK_MS = 1000, DRAIN_TICK_MS = 20 };
static const struct http_limits limits = {.head_bytes = 64 * 1024, .n_headers = 100};

struct str server_new_id(struct server *s, struct arena *a, const char *prefix) {
    uint64_t low = hash_pair((uint64_t)os_wall_ns(), ++s->n_ids), high = hash_pair(os_clock_ns(), low);
    return str_fmt(a, "%s%08x%016llx", prefix, (unsigned)(high >> 32), (unsigned long long)low);
}

struct str server_fingerprint(struct call *c) {
    const struct service_info *info = service_info(c->service);
    struct build build;
    build_describe(&c->arena, &build);
    struct str text = str_fmt(&c->arena, "%s\n%s\n%s\n%s", build.version, build.commit, info->name, info->description);
    return str_fmt(&c->arena, "fp_%016llx", (unsigned long long)hash_bytes(text.p, text.n, 0));
}

/* ---- log ---------------------------------------------------------------------------------------------------------------- */

static void write_json_line(enum log_level level, const char *line, void *user) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    (void)user;
    jsonw_begin(&w, '{');
    jsonw_put_num(&w, "time", (double)(os_wall_ns() / 1000000) / 1000);
    jsonw_put_str(&w, "level", str_of(names[level]));
    jsonw_put_str(&w, "message", str_of(line));
    jsonw_end(&w, '}');
    sb_putc(&text, '\n');
    os_write(OS_STDERR, sb_str(&text), NULL);
    sb_free(&text);
}

size_t server_urls(struct arena *a, const struct server_options *o, struct str **out) {
    return listen_urls(a, o->host, o->port, o->cert_path != NULL, out);
}

/* One line on standard output when requests are taken. */
static void write_ready_line(struct server *s, const struct str *urls, size_t n_urls, const struct service_info *one) {
    struct sb line = {0};
    if (s->options.json_log) {
        struct jsonw w = {.out = &line};
        jsonw_begin(&w, '{');
        jsonw_put_str(&w, "event", STR("ready"));
        jsonw_put_str(&w, "url", urls[0]);
        jsonw_open(&w, "urls", '[');
        for (size_t i = 0; i < n_urls; i++) jsonw_str(&w, urls[i]);
        jsonw_end(&w, ']');
        jsonw_put_int(&w, "port", http_server_port(s->http));
        if (one) jsonw_put_str(&w, "model", str_of(one->name));
        else jsonw_put_int(&w, "models", (int64_t)models_count(s));
        jsonw_end(&w, '}');
        sb_putc(&line, '\n');
    } else {
        sb_puts(&line, "ready:");
        for (size_t i = 0; i < n_urls; i++) sb_fmt(&line, " %s", urls[i].p);
        sb_putc(&line, '\n');
    }
    os_write(OS_STDOUT, sb_str(&line), NULL);
    sb_free(&line);
}

static void announce(struct server *s) {
    const struct server_inside *inside = s->options.inside;
    struct arena a = {0};
    struct str *urls;
    s->options.port = http_server_port(s->http);
    size_t n_urls = server_urls(&a, &s->options, &urls);
    const struct service_info *one = models_is_one(s) ? service_info(s->models->service) : NULL;
    if (one) log_info("%s%s", one->description, one->n_seqs == 1 ? ", 1 request at once" : "");
    else log_info("%zu models, loaded when a request names them, at most %d at once", models_count(s), (int)s->options.models_max);
    s->announced = true;
    if (!inside && !s->options.no_page) log_info("the chat page is at %s/, Ctrl-C ends the server", urls[0].p);
    if (inside) inside->on_ready(inside->user, s, s->options.port);
    else write_ready_line(s, urls, n_urls, one);
    if (s->options.open_page && !browser_open(&s->loop, s->browsers, urls[0].p))
        log_warn("no browser could be started; open %s", urls[0].p);
    arena_free(&a);
}

/* ---- the end ------------------------------------------------------------------------------------------------------------ */

static void close_handle(uv_handle_t *handle, void *user) {
    (void)user;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

static void unref_handle(uv_handle_t *handle, void *user) {
    (void)user;
    uv_unref(handle);
}

/* The loop now ends when the last worker is done: it reads what the service owns. */
static void on_http_closed(void *user) {
    struct server *s = user;
    s->http = NULL;
    uv_walk(&s->loop, unref_handle, NULL);
}

static void close_all(struct server *s) {
    if (s->closing) return;
    s->closing = true;
    uv_close((uv_handle_t *)&s->drain, NULL);
    uv_close((uv_handle_t *)&s->tick, NULL); /* signals are still caught: one more must not kill what is being put away */
    http_server_close(s->http, on_http_closed, s);
}

/* Ends the server as soon as nobody waits for an answer any more, or when their time is over. */
static void on_drain(uv_timer_t *timer) {
    struct server *s = timer->data;
    bool late = os_clock_ns() - s->drain_ns > (uint64_t)s->options.drain_ms * 1000000;
    if (late || (!s->calls && http_server_n_conns(s->http) == 0)) close_all(s);
}

static void begin_drain(struct server *s) {
    s->draining = true;
    s->drain_ns = os_clock_ns();
    pull_stop(s);
    http_server_drain(s->http);
    uv_timer_start(&s->drain, on_drain, 0, DRAIN_TICK_MS);
}

void server_end(struct server *s) {
    atomic_store(&s->is_told_to_end, true);
    uv_async_send(&s->wake);
}

static void on_signal(uv_signal_t *handle, int number) {
    struct server *s = handle->data;
    (void)number;
    if (s->closing) return;
    if (!s->announced) os_leave(0); /* nobody is served yet, and loading can take minutes */
    if (s->draining) {
        close_all(s);
        return;
    }
    begin_drain(s);
    log_info("ending: no new requests; those that run have %lld s to finish", (long long)(s->options.drain_ms / 1000)); /* and it is so */
}

/* ---- the loop ----------------------------------------------------------------------------------------------------------- */

/* Those of all models that have something to say. */
static void read_events(struct server *s) {
    for (struct served *m = s->models; m; m = m->next) {
        struct job *job;
        while (m->service && !m->is_closing && (job = service_next_ready(m->service))) {
            struct job_listener *listener = job_user(job);
            listener->on_ready(listener);
        }
    }
}

/* A server of one model begins when it is loaded, and ends with it. */
static void on_wake_one(struct server *s) {
    enum service_state state = service_state(s->models->service, &s->why);
    if (state == SERVICE_FAILED && !s->announced) close_all(s);
    if (state != SERVICE_READY && !s->announced) return;
    if (!s->announced) announce(s);
    read_events(s);
    if (state == SERVICE_FAILED && !s->draining) begin_drain(s); /* the device is lost: those that ran have been told */
}

static void on_wake(uv_async_t *handle) {
    struct server *s = handle->data;
    if (s->closing) return;
    if (atomic_load(&s->is_told_to_end) && !s->draining) begin_drain(s);
    if (models_is_one(s)) {
        on_wake_one(s);
        pull_turn(s);
        return;
    }
    read_events(s);
    pull_turn(s);
    models_turn(s);
}

static void on_tick(uv_timer_t *timer) {
    struct server *s = timer->data;
    uint64_t now = os_clock_ns();
    for (struct call *c = s->calls, *next; c; c = next) {
        next = c->next;
        if (c->on_tick) c->on_tick(c, now);
    }
    models_turn(s);
}

static void warn_of_strangers(const char *hosts) {
    struct str rest = str_of(hosts), host;
    while (str_split_next(&rest, ',', &host)) {
        host = str_trim(host);
        if (server_socket_path(host).p || guard_is_local(host)) continue;
        log_warn("listening on %.*s without an API key: everybody who can reach this machine can use the model; see --api-key",
                 STR_ARG(host));
    }
}

static int open_all(struct server *s, struct err *err) {
    const struct server_options *o = &s->options;
    struct http_options http = {.loop = &s->loop,
                                .host = o->host,
                                .port = o->port,
                                .limits = limits,
                                .n_conns = o->n_conns,
                                .tls = s->tls,
                                .accept = route_accepts,
                                .handle = route_handle,
                                .refuse = route_refuse,
                                .user = s};
    http.limits.body_bytes = o->body_bytes;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    TRY(http_server_open(&http, &s->http, err));
    TRY(models_open(s, err));
    for (int i = 0; i < 3; i++)
        if (!o->inside && !os_signal_was_ignored(numbers[i])) uv_signal_start(&s->signals[i], on_signal, numbers[i]);
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    if (o->n_keys == 0) warn_of_strangers(o->host);
    if (!models_is_one(s)) announce(s);
    return ERR_OK;
}

static void do_nothing(uv_work_t *work) {
    (void)work;
}

/* The loop's workers are started with their first work. They inherit who takes interrupts: none of them, or one that comes when the handles below are closed would
 * end the program there. */
static void start_workers(struct server *s) {
    os_hold_interrupts();
    uv_queue_work(&s->loop, &s->first_work, do_nothing, NULL);
    os_let_interrupts();
}

static void init_handles(struct server *s) {
    uv_loop_init(&s->loop);
    if (!s->options.inside) start_workers(s);
    uv_async_init(&s->loop, &s->wake, on_wake);
    uv_timer_init(&s->loop, &s->tick);
    uv_timer_init(&s->loop, &s->drain);
    s->wake.data = s->tick.data = s->drain.data = s;
    for (int i = 0; i < 3; i++) {
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
    }
}

static int check_slot_dir(const char *dir, struct err *err) {
    struct os_stat stat;
    if (!dir) return ERR_OK;
    if (os_stat(dir, &stat, err)) return err_prefix(err, "--slot-save-path");
    return stat.is_dir ? ERR_OK : err_set(err, ERR_EARG, "--slot-save-path %s is no folder", dir);
}

int server_check(const struct server_options *o, struct err *err) {
    struct tls_context *tls = NULL;
    TRY(listen_check(o->host, err));
    TRY(check_slot_dir(o->slot_dir, err));
    if (o->cert_path) TRY(tls_context_open(o->cert_path, o->key_path, &tls, err));
    tls_context_close(tls);
    return ERR_OK;
}

int server_run(const struct server_options *options, struct err *err) {
    struct server *s = mem_alloc(sizeof *s);
    struct guard_options guard = {options->keys, options->n_keys, options->origins, options->n_origins, options->hosts, options->n_hosts};
    s->options = *options;
    s->started = os_wall_ns() / 1000000000;
    s->guard = guard_create(&guard);
    s->responses = response_store_create();
    if (options->json_log) log_set_sink(write_json_line, NULL);
    init_handles(s);
    int code = options->cert_path ? tls_context_open(options->cert_path, options->key_path, &s->tls, err) : ERR_OK;
    if (!code) code = check_slot_dir(options->slot_dir, err);
    if (!code) code = open_all(s, err);
    if (code && s->http) http_server_close(s->http, NULL, NULL);
    if (code) uv_walk(&s->loop, close_handle, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    if (s->options.inside) s->options.inside->on_over(s->options.inside->user);
    pull_close(s);
    models_close(s);                              /* no job is left: their clients are gone */
    if (!s->options.inside) os_hold_interrupts(); /* the handles that take them are closed now */
    uv_walk(&s->loop, close_handle, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    if (!code && s->why.code) code = err_set(err, s->why.code, "%s", s->why.msg);
    tls_context_close(s->tls);
    guard_destroy(s->guard);
    response_store_destroy(s->responses);
    if (options->json_log) log_set_sink(NULL, NULL);
    mem_free(s);
    return code;
}
