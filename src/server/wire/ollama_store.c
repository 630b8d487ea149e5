/* Ollama: what changes the models of a server: /api/pull and /api/delete, and refusals with their reason for the rest.
 *
 * Only a server of the store has models that come and go: those that somebody named on the command line stay as they are. */
#include "server/wire/ollama.h"

#include "server/pull.h"
#include "server/server_internal.h"

#include <uv.h>

static struct str asked_name(const struct call *c) {
    return json_str(c->body, "model", json_str(c->body, "name", (struct str){0}));
}

static int refuse_change(struct call *c) {
    return api_fail(
        &c->error, 501, NULL, "model",
        "this server has the models that it was started with; one that is started without --model has those of the store, and takes more");
}

/* The name on the hub, with the variant of a GGUF file where one is named: what Ollama's clients put before and behind it taken off. */
static int hub_name(struct call *c, struct str *out) {
    static const char *const hosts[] = {"hf.co/", "huggingface.co/"};
    struct str name = asked_name(c);
    for (size_t i = 0; i < 2; i++)
        if (str_starts(name, str_of(hosts[i]))) name = str_from(name, strlen(hosts[i]));
    if (str_ends(name, STR(":latest"))) name.n -= STR(":latest").n;
    *out = name;
    return name.n ? 0 : api_fail(&c->error, 400, NULL, "model", "model is required");
}

/* ---- pull --------------------------------------------------------------------------------------------------------------- */

static void put_progress(struct call *c, struct str name, uint64_t done, uint64_t total, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "status", total ? str_fmt(&c->arena, "pulling %.*s", STR_ARG(name)) : STR("pulling manifest"));
    if (total) {
        ollama_put_digest(name, &w, "sha256:"); /* clients draw one bar for each */
        jsonw_put_int(&w, "total", (int64_t)total);
        jsonw_put_int(&w, "completed", (int64_t)done);
    }
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
}

static const struct pull_form pull_form = {.progress = put_progress, .success = {"{\"status\":\"success\"}", 20}};

static int prepare_pull(struct call *c) {
    struct str name;
    if (json_bool(c->body, "insecure", false))
        return api_fail(&c->error, 400, "unsupported_parameter", "insecure",
                        "insecure is not supported; which hub is asked, and how, is said when the server is started (--hub, --cacert)");
    return hub_name(c, &name);
}

/* Many clients pull a model before each use of it: one that is served is there. */
static bool is_served(struct call *c) {
    struct served *one = c->server->models;
    if (!models_is_one(c->server) || one->name.n) return models_find(c->server, asked_name(c)) != NULL;
    return models_state(one) == SERVED_LOADED && str_is(asked_name(c), service_info(one->service)->name);
}

static void pull(struct call *c) {
    bool streams = json_bool(c->body, "stream", true);
    struct str name;
    if (is_served(c)) {
        if (streams) call_reply(c, 200, c->wire->stream_type, STR("{\"status\":\"pulling manifest\"}\n{\"status\":\"success\"}\n"));
        else call_reply_json(c, 200, pull_form.success);
    } else if (!c->server->options.store) {
        refuse_change(c);
        call_reply_error(c);
    } else {
        hub_name(c, &name);
        pull_start(c, name, streams, &pull_form);
    }
}

/* ---- delete ------------------------------------------------------------------------------------------------------------- */

struct removal {
    struct call *call;
    struct served *model;
    uv_work_t work;
    int code;
    struct err err;
};

static void remove_files(uv_work_t *work) {
    struct removal *r = work->data;
    const struct server_store *store = r->call->server->options.store;
    r->code = store->remove(store->user, str_of(r->model->given->name), &r->err);
}

static void on_removed(uv_work_t *work, int status) {
    struct removal *r = work->data;
    struct call *c = r->call;
    (void)status;
    if (r->code) r->model->is_removed = false; /* it is still there */
    if (!c->exchange->conn) {
        call_end(c);
    } else if (r->code) {
        api_fail_err(&c->error, &r->err, "model");
        call_reply_error(c);
    } else {
        call_reply(c, 200, NULL, STR(""));
    }
}

/* Nobody has its files open any more. */
static void on_free(struct served *m) {
    struct removal *r = m->user;
    r->work.data = r;
    if (uv_queue_work(&m->server->loop, &r->work, remove_files, on_removed) == 0) return;
    remove_files(&r->work);
    on_removed(&r->work, 0);
}

static int prepare_delete(struct call *c) {
    return asked_name(c).n ? 0 : api_fail(&c->error, 400, NULL, "model", "model is required");
}

static int check_delete(struct call *c, struct served **out) {
    struct str name = asked_name(c);
    if (!c->server->options.store) return refuse_change(c);
    *out = models_find(c->server, name);
    if (!*out)
        return api_fail(&c->error, 404, "model_not_found", "model", "model '%.*s' not found", (int)(name.n > 100 ? 100 : name.n), name.p);
    if (!(*out)->given->is_stored) return api_fail(&c->error, 400, NULL, "model", "the built-in model is part of the program and stays");
    if (models_count(c->server) == 1)
        return api_fail(&c->error, 400, NULL, "model", "the only model of a server stays; mlxcel rm removes it when the server has ended");
    return 0;
}

static void delete_model(struct call *c) {
    struct served *m = NULL;
    if (check_delete(c, &m)) {
        call_reply_error(c);
        return;
    }
    struct removal *r = arena_new(&c->arena, struct removal, 1);
    *r = (struct removal){.call = c, .model = m};
    models_remove(m, on_free, r);
}

/* ---- the rest ----------------------------------------------------------------------------------------------------------- */

static void refuse_copy(struct call *c) {
    api_fail(&c->error, 501, NULL, NULL,
             "models are not copied: a copy would take the room of the model again; --model NAME=MODEL, or alias in the file of --config, "
             "give a model another name");
    call_reply_error(c);
}

static void refuse_making(struct call *c) {
    api_fail(&c->error, 501, NULL, NULL, "models are made by mlxcel import and quantize, not by a server");
    call_reply_error(c);
}

const struct route routes_ollama_store[] = {
    {"POST", "/api/pull", ROUTE_WITHOUT_MODEL, prepare_pull, pull},
    {"DELETE", "/api/delete", ROUTE_WITHOUT_MODEL, prepare_delete, delete_model},
    {"POST", "/api/copy", ROUTE_WITHOUT_MODEL, NULL, refuse_copy},
    {"POST", "/api/push", ROUTE_WITHOUT_MODEL, NULL, refuse_making},
    {"POST", "/api/create", ROUTE_WITHOUT_MODEL, NULL, refuse_making},
    {"POST", "/api/blobs/*", ROUTE_WITHOUT_MODEL, NULL, refuse_making},
    {0},
};
