/* The HTTP server inside of the program: a thread that runs it, and whoever waits for its beginning and its end. */
#include "lib/lib_internal.h"

#include "cli/serve.h"

#include <stdio.h>

struct mlxcel_server {
    struct arena arena; /* the settings */
    struct serve_setting *settings;
    size_t n_settings;
    struct server_inside inside;
    struct os_thread *thread;
    struct os_mutex *lock; /* of what follows */
    struct os_cond *news;
    struct server *server; /* while it takes requests */
    int32_t port;
    bool is_ready, is_over;
    struct err err; /* why it ended by itself */
};

void mlxcel_server_options_init(mlxcel_server_options *options, size_t struct_size) {
    mlxcel_server_options full = {0};
    lib_options_write(options, struct_size, &full, sizeof full);
}

/* ---- on the server's thread ---------------------------------------------------------------------------------------------- */

static void on_ready(void *user, struct server *server, int32_t port) {
    struct mlxcel_server *s = user;
    os_mutex_lock(s->lock);
    s->server = server;
    s->port = port;
    s->is_ready = true;
    os_cond_broadcast(s->news);
    os_mutex_unlock(s->lock);
}

static void on_over(void *user) {
    struct mlxcel_server *s = user;
    os_mutex_lock(s->lock);
    s->server = NULL;
    os_mutex_unlock(s->lock);
}

static void run(void *user) {
    struct mlxcel_server *s = user;
    struct err err = {0};
    serve_inside(s->settings, s->n_settings, &s->inside, &err);
    os_mutex_lock(s->lock);
    s->err = err;
    s->is_over = true;
    os_cond_broadcast(s->news);
    os_mutex_unlock(s->lock);
}

/* ---- on the caller's ----------------------------------------------------------------------------------------------------- */

static void add(struct mlxcel_server *s, const char *name, const char *value) {
    struct arena *a = &s->arena;
    s->settings[s->n_settings++] =
        (struct serve_setting){name ? str_cstr(a, str_of(name)) : NULL, value ? str_cstr(a, str_of(value)) : NULL};
}

static int add_store(struct mlxcel_server *s, const mlxcel_store *given, struct err *err) {
    mlxcel_store o;
    mlxcel_store_init(&o, sizeof o);
    TRY(lib_options_read(&o, sizeof o, given, "mlxcel_store", err));
    const struct serve_setting all[] = {{"models-dir", o.models_dir}, {"HF_HOME", o.hf_home}, {"hub", o.hub},
                                        {"HF_TOKEN", o.token},        {"cacert", o.cacert},   {"offline", o.offline ? "true" : NULL}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].value) add(s, all[i].name, all[i].value);
    return ERR_OK;
}

static int take_options(struct mlxcel_server *s, const mlxcel_server_options *given, struct err *err) {
    mlxcel_server_options o;
    char port[16];
    mlxcel_server_options_init(&o, sizeof o);
    TRY(lib_options_read(&o, sizeof o, given, "mlxcel_server_options", err));
    if (o.n_models > LIB_SETTINGS_MAX || o.n_settings > LIB_SETTINGS_MAX)
        return err_set(err, ERR_ELIMIT, "a server has at most %d models and as many settings", LIB_SETTINGS_MAX);
    s->settings = arena_new(&s->arena, struct serve_setting, o.n_models + o.n_settings + 8);
    snprintf(port, sizeof port, "%d", (int)o.port);
    add(s, "port", port);
    if (o.host) add(s, "host", o.host);
    if (o.store) TRY(add_store(s, o.store, err));
    for (size_t i = 0; i < o.n_models; i++) {
        if (!o.models[i] || !*o.models[i]) return err_set(err, ERR_EARG, "models[%zu] has no name", i);
        add(s, "model", o.models[i]);
    }
    for (size_t i = 0; i < o.n_settings; i++) add(s, o.settings[i].name, o.settings[i].value);
    return ERR_OK;
}

/* Waits until it takes requests. */
static int begin(struct mlxcel_server *s, const mlxcel_server_options *options, struct err *err) {
    TRY(take_options(s, options, err));
    s->inside = (struct server_inside){on_ready, on_over, s};
    TRY(os_thread_start(&s->thread, run, s, "server", err));
    os_mutex_lock(s->lock);
    while (!s->is_ready && !s->is_over) os_cond_wait(s->news, s->lock);
    if (s->is_over) *err = s->err;
    bool is_lost = s->is_over && !s->err.code;
    os_mutex_unlock(s->lock);
    return is_lost ? err_set(err, ERR_EINTERNAL, "the server ended before it began") : err->code;
}

static int start(const mlxcel_server_options *options, mlxcel_server **out, struct err *err) {
    if (!out) return err_set(err, ERR_EARG, "mlxcel_server_start: out is NULL");
    *out = NULL;
    TRY(lib_events_check("mlxcel_server_start", err));
    TRY(lib_begin(err));
    struct mlxcel_server *s = mem_try(sizeof *s);
    if (!s) return err_set(err, ERR_EMEMORY, "no memory for a server");
    s->lock = os_mutex_create();
    s->news = os_cond_create();
    int code = begin(s, options, err);
    if (code) mlxcel_server_stop(s);
    else *out = s;
    return code;
}

int32_t mlxcel_server_start(const mlxcel_server_options *options, mlxcel_server **out, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, start(options, out, &err), &err);
}

int32_t mlxcel_server_port(const mlxcel_server *s) {
    return s ? s->port : -1; /* it is set once, before anybody has the handle */
}

void mlxcel_server_stop(mlxcel_server *s) {
    if (!s) return;
    os_mutex_lock(s->lock);
    if (s->server) server_end(s->server);
    os_mutex_unlock(s->lock);
    os_thread_join(s->thread);
    os_cond_destroy(s->news);
    os_mutex_destroy(s->lock);
    arena_free(&s->arena);
    mem_free(s);
}
