/* Models: loading, waiting in line, making room. */
#include "server/models.h"

#include "server/server_internal.h"
#include "server/slots.h"

#include "base/log.h"
#include "os/os.h"

const char *const models_state_names[N_SERVED_STATES] = {"unloaded", "loading", "loaded", "leaving", "failed"};

static struct served *skip_removed(struct served *m) {
    while (m && m->is_removed) m = m->next;
    return m;
}

struct served *models_first(const struct server *s) {
    return skip_removed(s->models);
}

struct served *models_next(const struct served *m) {
    return skip_removed(m->next);
}

size_t models_count(const struct server *s) {
    size_t n = 0;
    for (const struct served *m = models_first(s); m; m = models_next(m)) n++;
    return n;
}

bool models_is_one(const struct server *s) {
    return s->is_one;
}

enum models_state models_state(const struct served *m) {
    if (!m->service) return m->why.code ? SERVED_FAILED : SERVED_UNLOADED;
    if (m->is_leaving || m->is_closing) return SERVED_LEAVING;
    switch (service_state(m->service, NULL)) {
    case SERVICE_LOADING: return SERVED_LOADING;
    case SERVICE_READY: return SERVED_LOADED;
    case SERVICE_FAILED: break;
    }
    return SERVED_FAILED;
}

static struct str last_part(struct str name) {
    size_t from = name.n;
    while (from > 0 && name.p[from - 1] != '/' && name.p[from - 1] != '\\') from--;
    return str_from(name, from);
}

static char plain(char c) {
    return c == ':' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* In any case, and with a colon before the size or the bits, as on the command line (src/hub/resolve.c). */
static bool is_last_part(struct str name, struct str wanted) {
    struct str part = last_part(name);
    if (part.n != wanted.n) return false;
    for (size_t i = 0; i < part.n; i++)
        if (plain(part.p[i]) != plain(wanted.p[i])) return false;
    return true;
}

struct served *models_find(struct server *s, struct str name) {
    const struct str latest = STR(":latest"),
                     hubs[] = {STR("hf.co/"), STR("huggingface.co/")}; /* Ollama's clients put them behind and before names */
    if (!name.p) return models_first(s);
    if (str_ends(name, latest)) name.n -= latest.n;
    for (size_t i = 0; i < 2; i++)
        if (str_starts(name, hubs[i])) name = str_from(name, hubs[i].n);
    for (struct served *m = models_first(s); m; m = models_next(m))
        if (str_eq(sb_str(&m->name), name)) return m;
    for (struct served *m = models_first(s); m; m = models_next(m))
        for (size_t i = 0; i < m->given->n_aliases; i++)
            if (str_eq(m->given->aliases[i], name)) return m;
    for (struct served *m = models_first(s); m; m = models_next(m))
        if (is_last_part(sb_str(&m->name), name)) return m;
    return NULL;
}

struct served *models_any(struct server *s) {
    for (struct served *m = models_first(s); m; m = models_next(m))
        if (models_state(m) == SERVED_LOADED) return m;
    return NULL;
}

/* ---- closing ------------------------------------------------------------------------------------------------------------ */

static void close_service(uv_work_t *work) {
    struct served *m = work->data;
    service_close(m->service);
}

static void on_closed(uv_work_t *work, int status) {
    struct served *m = work->data;
    (void)status;
    m->service = NULL;
    slots_free(m);
    m->is_closing = m->is_leaving = false;
    m->server->n_closed++;
    models_turn(m->server);
}

static void begin_close(struct served *m) {
    m->is_closing = true;
    m->work.data = m;
    if (uv_queue_work(&m->server->loop, &m->work, close_service, on_closed) == 0) return;
    close_service(&m->work);
    on_closed(&m->work, 0);
}

static void unload(struct served *m) {
    log_info("unloading %s", m->name.p);
    m->n_unloads++;
    begin_close(m);
}

void models_unload(struct served *m) {
    if (m->service && !m->is_closing) m->is_leaving = true;
    m->why = (struct err){0};
    models_turn(m->server);
}

/* ---- loading ------------------------------------------------------------------------------------------------------------ */

static void notify(void *user) {
    uv_async_send(user);
}

static int open_service(struct served *m, struct err *err) {
    const struct server_options *o = &m->server->options;
    struct service_options service = {.session = m->given->session,
                                      .sampling = m->given->settings.sampling,
                                      .name = m->name.n ? m->name.p : NULL,
                                      .n_queue = o->n_queue,
                                      .notify = notify,
                                      .user = &m->server->wake};
    m->why = (struct err){0};
    m->loaded_ns = m->used_ns = os_clock_ns();
    m->keep_ms = m->given->settings.keep_ms > 0 ? m->given->settings.keep_ms : -1;
    m->n_loads++;
    m->n_closed = m->server->n_closed;
    return service_open(&service, &m->service, err);
}

/* Everybody in the line is told why. */
static void refuse_line(struct served *m, const struct err *why) {
    struct call *c = m->first;
    m->first = NULL;
    m->last = &m->first;
    for (struct call *next; c; c = next) {
        next = c->next_waiting;
        c->model = NULL;
        c->is_waiting = false;
        c->on_gone = NULL;
        c->on_tick = NULL;
        api_fail(&c->error, 503, "model_failed", "model", "%s could not be loaded: %s", m->name.p, why->msg);
        call_reply_error(c);
    }
}

/* Whom to send away: the one that was asked last the longest ago of those that nobody holds, else the one that has been here longest. NULL: one is
 * going already, or none can. */
static struct served *choose_victim(const struct served *wanted) {
    struct server *s = wanted->server;
    struct served *idle = NULL, *busy = NULL;
    for (struct served *m = s->models; m; m = m->next) {
        if (m == wanted || !m->service) continue;
        if (m->is_leaving || m->is_closing) return NULL;
        if (m->first || service_state(m->service, NULL) == SERVICE_LOADING) continue; /* whose line has not been served yet */
        if (m->n_calls == 0 && (!idle || m->used_ns < idle->used_ns)) idle = m;
        if (m->n_calls && (!busy || m->loaded_ns < busy->loaded_ns)) busy = m;
    }
    return idle ? idle : busy;
}

static bool has_others(const struct served *wanted) {
    for (struct served *m = models_first(wanted->server); m; m = models_next(m))
        if (m != wanted && m->service) return true;
    return false;
}

static void send_away(struct served *m) {
    m->is_leaving = true;
    if (m->n_calls == 0) unload(m);
}

static int32_t count_loaded(const struct server *s) {
    int32_t n = 0;
    for (const struct served *m = s->models; m; m = m->next) n += m->service != NULL;
    return n;
}

static void load(struct served *m) {
    struct err err;
    if (count_loaded(m->server) >= m->server->options.models_max) {
        struct served *victim = choose_victim(m);
        if (victim) send_away(victim);
        return;
    }
    log_info("loading %s", m->name.p);
    if (open_service(m, &err)) {
        m->why = err;
        refuse_line(m, &err);
    }
}

/* It failed for lack of memory: others go first, and it is tried again; so it is where another went while it was loading. */
static bool may_try_again(struct served *m, const struct err *why) {
    struct served *victim;
    if (why->code != ERR_EMEMORY || !m->first) return false;
    if (m->n_closed != m->server->n_closed) return true;
    if (!has_others(m)) return false;
    if ((victim = choose_victim(m))) send_away(victim);
    return true;
}

static void look_after_failed(struct served *m) {
    struct err why = {0};
    service_state(m->service, &why);
    bool again = may_try_again(m, &why);
    if (!again) {
        log_error("%s could not be loaded: %s", m->name.p, why.msg);
        refuse_line(m, &why);
    }
    m->n_failed++;
    m->why = again ? (struct err){0} : why;
    begin_close(m);
}

/* ---- the line ----------------------------------------------------------------------------------------------------------- */

static void leave_line(struct call *c) {
    models_leave(c);
}

static void on_tick(struct call *c, uint64_t now) {
    uint64_t ping_ns = (uint64_t)c->server->options.ping_ms * 1000000;
    if (ping_ns == 0 || now < c->pinged_ns + ping_ns) return;
    c->pinged_ns = now;
    route_ping(c);
}

void models_ask(struct served *m, struct call *c) {
    c->model = m;
    c->is_waiting = true;
    c->pinged_ns = os_clock_ns();
    c->on_gone = leave_line;
    c->on_tick = on_tick;
    c->next_waiting = NULL;
    if (!m->last) m->last = &m->first;
    *m->last = c;
    m->last = &c->next_waiting;
    models_turn(m->server);
}

static void leave(struct served *m, struct call *c) {
    struct call **link = &m->first;
    while (*link != c) link = &(*link)->next_waiting;
    *link = c->next_waiting;
    if (m->last == &c->next_waiting) m->last = link;
}

void models_leave(struct call *c) {
    struct served *m = c->model;
    if (!m) return;
    c->model = NULL;
    if (c->is_waiting) {
        leave(m, c);
        return;
    }
    m->n_calls--;
    m->used_ns = os_clock_ns();
    if (c->keeps) m->keep_ms = c->keep_ms;
    if (m->keep_ms == 0 && m->service && !models_is_one(m->server)) m->is_leaving = true;
    uv_async_send(&m->server->wake); /* somebody may wait for the room */
}

static void serve_line(struct served *m) {
    struct call *c = m->first;
    m->first = NULL;
    m->last = &m->first;
    m->used_ns = os_clock_ns();
    for (struct call *next; c; c = next) {
        next = c->next_waiting;
        c->is_waiting = false;
        c->on_gone = NULL;
        c->on_tick = NULL;
        c->service = m->service;
        c->settings = &m->given->settings;
        m->n_calls++;
        route_go_on(c);
    }
}

static void look_after(struct served *m) {
    if (m->is_closing) return;
    if (!m->service) {
        if (m->first) load(m);
        return;
    }
    enum service_state state = service_state(m->service, NULL);
    if (state == SERVICE_LOADING) return;
    if (state == SERVICE_FAILED && m->n_calls == 0) look_after_failed(m);
    else if (m->is_leaving && m->n_calls == 0) unload(m);
    else if (state == SERVICE_READY && !m->is_leaving && m->first) serve_line(m);
    else if (m->keep_ms > 0 && m->n_calls == 0 && os_clock_ns() - m->used_ns > (uint64_t)m->keep_ms * 1000000) send_away(m);
}

/* ---- models that come and go ----------------------------------------------------------------------------------------- */

static struct served *append(struct server *s, const struct server_model *given) {
    struct served *m = mem_alloc(sizeof *m), **end = &s->models;
    while (*end) end = &(*end)->next;
    *end = m;
    m->server = s;
    m->given = given;
    m->last = &m->first;
    if (given->name) sb_puts(&m->name, given->name);
    return m;
}

void models_add(struct server *s, const struct server_model *given) {
    struct served *one = s->models;
    if (s->is_one && !one->name.n) sb_puts(&one->name, service_info(one->service)->name);
    s->is_one = false; /* from here on each is loaded when it is asked for; the first one is already */
    append(s, given);
}

void models_remove(struct served *m, void (*on_free)(struct served *m), void *user) {
    struct err why = {0};
    err_set(&why, ERR_ENOTFOUND, "it is being removed");
    m->is_removed = true;
    m->on_free = on_free;
    m->user = user;
    refuse_line(m, &why);
    if (m->service && !m->is_closing) m->is_leaving = true;
    models_turn(m->server);
}

/* One that is being removed is looked after until it is closed, and then handed over. */
static void look_after_removed(struct served *m) {
    void (*on_free)(struct served *) = m->on_free;
    if (m->is_closing || !on_free) return;
    if (m->service) {
        if (m->n_calls == 0 && service_state(m->service, NULL) != SERVICE_LOADING) unload(m);
        return;
    }
    m->on_free = NULL;
    on_free(m);
}

void models_turn(struct server *s) {
    if (models_is_one(s) || s->closing) return;
    for (struct served *m = s->models; m; m = m->next)
        if (m->is_removed) look_after_removed(m);
        else look_after(m);
}

/* ---- all of them -------------------------------------------------------------------------------------------------------- */

int models_open(struct server *s, struct err *err) {
    const struct server_options *o = &s->options;
    int32_t n_wanted = 0;
    for (size_t i = 0; i < o->n_models; i++) append(s, &o->models[i]);
    s->is_one = o->n_models == 1;
    if (models_is_one(s)) return open_service(s->models, err);
    for (struct served *m = models_first(s); m; m = models_next(m))
        if (m->given->is_preloaded && n_wanted++ < o->models_max) TRY(open_service(m, err));
    return ERR_OK;
}

void models_close(struct server *s) {
    for (struct served *m = s->models, *next; m; m = next) {
        next = m->next;
        service_close(m->service);
        slots_free(m);
        sb_free(&m->name);
        mem_free(m);
    }
    s->models = NULL;
}
