/* Downloads into the store while the server runs. */
#include "server/pull.h"

#include "server/server_internal.h"

#include "os/os.h"

enum { PULLS_MAX = 4 };

struct pull {
    struct server *server;
    struct sb name;
    struct server_progress progress;
    struct os_thread *thread;
    atomic_bool is_over; /* the fields below are set */
    int code;
    struct err err;
    const struct server_model *made;
    struct call *calls; /* by next_waiting */
    struct pull *next;
};

struct watcher {
    struct pull *pull;
    const struct pull_form *form;
    bool streams;
    uint64_t told; /* bytes that its client knows of */
};

static void run(void *user) {
    struct pull *p = user;
    const struct server_store *store = p->server->options.store;
    p->code = store->pull(store->user, sb_str(&p->name), &p->progress, &p->made, &p->err);
    atomic_store(&p->is_over, true);
    uv_async_send(&p->server->wake);
}

/* ---- those that watch --------------------------------------------------------------------------------------------------- */

static void on_gone(struct call *c) {
    struct pull *p = ((struct watcher *)c->state)->pull;
    struct call **link = &p->calls;
    while (*link != c) link = &(*link)->next_waiting;
    *link = c->next_waiting;
    if (!p->calls) atomic_store(&p->progress.stop, true);
}

static void on_tick(struct call *c, uint64_t now) {
    struct watcher *w = c->state;
    struct pull *p = w->pull;
    uint64_t done = atomic_load(&p->progress.done), total = atomic_load(&p->progress.total);
    struct sb out = {0};
    (void)now;
    if (!w->streams || total == 0 || (done == w->told && !http_is_half_closed(c->exchange))) return;
    w->told = done;
    w->form->progress(c, sb_str(&p->name), done, total, &out);
    http_stream_write(c->exchange, sb_str(&out));
    sb_free(&out);
}

static void watch(struct pull *p, struct call *c, bool streams, const struct pull_form *form) {
    struct watcher *w = arena_new(&c->arena, struct watcher, 1);
    struct sb out = {0};
    *w = (struct watcher){.pull = p, .form = form, .streams = streams};
    c->state = w;
    c->on_gone = on_gone;
    c->on_tick = on_tick;
    c->next_waiting = p->calls;
    p->calls = c;
    if (!streams) return;
    http_stream_begin(c->exchange, 200, c->wire->stream_type);
    form->progress(c, sb_str(&p->name), 0, 0, &out);
    http_stream_write(c->exchange, sb_str(&out));
    sb_free(&out);
}

/* ---- the end of one ----------------------------------------------------------------------------------------------------- */

/* What the hub says may be told: it holds addresses, no paths. */
static void fail(struct call *c, const struct err *why) {
    static const int32_t statuses[N_ERR_CODES] = {
        [ERR_EARG] = 400, [ERR_ENOTFOUND] = 404, [ERR_ENETWORK] = 502, [ERR_EBUSY] = 503, [ERR_ECANCELLED] = 503};
    int32_t status = why->code > 0 && why->code < N_ERR_CODES ? statuses[why->code] : 0;
    if (status) api_fail(&c->error, status, NULL, "model", "%s", why->msg);
    else api_fail_err(&c->error, why, "model");
    call_reply_error(c);
}

static void succeed(struct call *c) {
    const struct watcher *w = c->state;
    uint64_t total = atomic_load(&w->pull->progress.total);
    struct sb out = {0};
    if (!w->streams) {
        call_reply_json(c, 200, w->form->success);
        return;
    }
    if (total) w->form->progress(c, sb_str(&w->pull->name), total, total, &out);
    sb_put(&out, w->form->success);
    sb_putc(&out, '\n');
    call_end_stream(c, sb_str(&out));
    sb_free(&out);
}

static void finish(struct pull *p) {
    struct server *s = p->server;
    os_thread_join(p->thread);
    if (p->code == ERR_OK && !models_find(s, str_of(p->made->name))) models_add(s, p->made);
    for (struct call *c = p->calls, *next; c; c = next) {
        next = c->next_waiting;
        c->on_gone = NULL;
        c->on_tick = NULL;
        if (p->code) fail(c, &p->err);
        else succeed(c);
    }
    sb_free(&p->name);
    mem_free(p);
}

void pull_turn(struct server *s) {
    for (struct pull **link = &s->pulls; *link;) {
        struct pull *p = *link;
        if (!atomic_load(&p->is_over)) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        finish(p);
    }
}

void pull_stop(struct server *s) {
    for (struct pull *p = s->pulls; p; p = p->next) atomic_store(&p->progress.stop, true);
}

void pull_close(struct server *s) {
    pull_stop(s);
    for (struct pull *p = s->pulls, *next; p; p = next) {
        next = p->next;
        os_thread_join(p->thread);
        sb_free(&p->name);
        mem_free(p);
    }
    s->pulls = NULL;
}

/* ---- the beginning ------------------------------------------------------------------------------------------------------ */

static struct pull *find(const struct server *s, struct str name, size_t *out_n) {
    struct pull *found = NULL;
    for (struct pull *p = s->pulls; p; p = p->next, ++*out_n)
        if (str_eq(sb_str(&p->name), name)) found = p;
    return found;
}

void pull_start(struct call *c, struct str name, bool streams, const struct pull_form *form) {
    struct server *s = c->server;
    struct err err;
    size_t n = 0;
    struct pull *p = find(s, name, &n);
    bool is_ending = p && atomic_load(&p->progress.stop);
    if (is_ending || (!p && (n >= PULLS_MAX || s->draining))) {
        api_fail(&c->error, 503, "server_busy", "model",
                 is_ending ? "the last download of this model is just ending; try again"
                           : "too many models are being downloaded; try again when one is here");
        call_reply_error(c);
        return;
    }
    if (p) {
        watch(p, c, streams, form);
        return;
    }
    p = mem_alloc(sizeof *p);
    p->server = s;
    sb_put(&p->name, name);
    if (os_thread_start(&p->thread, run, p, "pull", &err)) {
        sb_free(&p->name);
        mem_free(p);
        fail(c, &err);
        return;
    }
    p->next = s->pulls;
    s->pulls = p;
    watch(p, c, streams, form);
}
