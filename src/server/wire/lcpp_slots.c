/* llama-server: the cache of a slot's last request in a file: POST /slots/ID?action=save|restore|erase.
 *
 * The engine copies blocks and state; files are read and written on workers. */
#include "server/wire/lcpp.h"

#include "server/server_internal.h"
#include "server/slots.h"

#include "os/os.h"

struct slot_order;

struct slot_action {
    const char *name;
    bool has_file;
    void (*start)(struct slot_order *o); /* the job is submitted, now or when a file is read */
    void (*done)(struct slot_order *o);  /* it is done: answers, or goes on */
};

struct slot_order {
    struct job_listener listener; /* first: the job's user */
    struct call *call;
    const struct slot_action *action;
    int64_t id;
    const char *filename, *path;
    struct job *job;
    struct job_events events;
    struct service_saved *file; /* of a restore */
    struct err err;             /* of a worker */
};

static void release(struct slot_order *o) {
    if (o->job) job_release(o->job);
    service_saved_free(o->file);
    o->job = NULL;
    o->file = NULL;
}

static void fail(struct slot_order *o) {
    release(o);
    call_reply_error(o->call);
}

/* The answer: the slot, and what this action tells besides. */
static void answer(struct slot_order *o, const char *count, int64_t n, const char *size, uint64_t bytes, const char *time) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    jsonw_begin(&w, '{');
    jsonw_put_int(&w, "id_slot", o->id);
    if (o->filename) jsonw_put_str(&w, "filename", str_of(o->filename));
    jsonw_put_int(&w, count, n);
    if (size) jsonw_put_int(&w, size, (int64_t)bytes);
    if (time) {
        jsonw_open(&w, "timings", '{');
        jsonw_put_num(&w, time, (double)(os_clock_ns() - o->call->begun_ns) * 1e-6);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, '}');
    release(o);
    call_reply_json(o->call, 200, sb_str(&json));
    sb_free(&json);
}

static struct slot *slot_of(struct slot_order *o) {
    return slots_get(o->call, o->id);
}

/* What the slot holds, for the engine. */
static int prompt_of(struct slot_order *o, struct service_prompt *out, struct err *err) {
    const struct slot *s = slot_of(o);
    *out = (struct service_prompt){s->tokens, s->n_tokens, s->n_asked, s->adapters};
    return s->n_tokens ? ERR_OK : err_set(err, ERR_EARG, "slot %lld is empty: no request had it yet", (long long)o->id);
}

static void on_ready(struct job_listener *listener) {
    struct slot_order *o = (struct slot_order *)listener;
    struct call *c = o->call;
    job_take(o->job, &o->events);
    if (!o->events.finish) return;
    if (!c->exchange->conn) {
        release(o);
        call_end(c);
    } else if (generate_check_finish(&c->error, &o->events, "filename")) {
        fail(o);
    } else {
        o->action->done(o);
    }
}

static void refuse(struct slot_order *o, const struct err *err) {
    api_fail_err(&o->call->error, err, "filename");
    fail(o);
}

/* Nothing is released while a job or a worker has it, even where the client has left: both end soon. */
static void submit(struct slot_order *o, struct job_spec spec) {
    struct err err;
    spec.user = o;
    if (service_submit(o->call->service, &spec, 1, &o->job, &err)) refuse(o, &err);
}

static void queue(struct slot_order *o, uv_work_cb work, uv_after_work_cb after) {
    if (uv_queue_work(&o->call->server->loop, &o->call->work, work, after) == 0) return;
    api_fail(&o->call->error, 503, NULL, NULL, "the server is busy");
    fail(o);
}

/* A worker is done with the file. False: the client left, or it is answered with the error. */
static bool came_back(struct slot_order *o, int32_t status) {
    struct call *c = o->call;
    if (c->exchange->conn && !o->err.code) return true;
    if (c->exchange->conn) {
        api_fail(&c->error, status, NULL, "filename", "%s: %s", o->filename, o->err.msg);
        fail(o);
    } else {
        release(o);
        call_end(c);
    }
    return false;
}

/* ---- save ----------------------------------------------------------------------------------------------------------------- */

static void start_save(struct slot_order *o) {
    struct service_prompt p;
    struct err err;
    if (prompt_of(o, &p, &err)) refuse(o, &err);
    else submit(o, service_prompt_job(&p, CACHE_SAVE));
}

static void on_write(uv_work_t *work) {
    struct slot_order *o = ((struct call *)work->data)->state;
    service_write_prompt(&o->events, o->path, &o->err);
}

static void on_written(uv_work_t *work, int status) {
    struct slot_order *o = ((struct call *)work->data)->state;
    (void)status;
    if (came_back(o, 500)) answer(o, "n_saved", o->events.usage.n_prompt, "n_written", o->events.n_saved, "save_ms");
}

static void write_file(struct slot_order *o) {
    queue(o, on_write, on_written);
}

/* ---- restore -------------------------------------------------------------------------------------------------------------- */

static void on_read(uv_work_t *work) {
    struct slot_order *o = ((struct call *)work->data)->state;
    service_read_prompt(o->call->service, o->path, &o->file, &o->err);
}

static void on_was_read(uv_work_t *work, int status) {
    struct slot_order *o = ((struct call *)work->data)->state;
    (void)status;
    if (came_back(o, o->err.code == ERR_EMEMORY ? 503 : 400)) submit(o, service_restore_job(o->file));
}

static void start_restore(struct slot_order *o) {
    queue(o, on_read, on_was_read);
}

static void restored(struct slot_order *o) {
    struct service_prompt p = service_saved_prompt(o->file);
    slots_set(o->call, slot_of(o), &p);
    answer(o, "n_restored", o->events.usage.n_cached, "n_read", service_saved_bytes(o->file), "restore_ms");
}

/* ---- erase ---------------------------------------------------------------------------------------------------------------- */

static void erased(struct slot_order *o) {
    struct slot *s = slot_of(o);
    int32_t n = s->n_tokens;
    slots_set(o->call, s, &(struct service_prompt){0});
    answer(o, "n_erased", n, NULL, 0, NULL);
}

static void start_erase(struct slot_order *o) {
    struct service_prompt p;
    struct err err;
    if (prompt_of(o, &p, &err)) erased(o); /* there is nothing */
    else submit(o, service_prompt_job(&p, CACHE_ERASE));
}

/* ---- the request ---------------------------------------------------------------------------------------------------------- */

static const struct slot_action actions[] = {
    {"save", true, start_save, write_file},
    {"restore", true, start_restore, restored},
    {"erase", false, start_erase, erased},
};

static int read_action(struct slot_order *o) {
    struct str query = o->call->exchange->request.query, pair, action = {0};
    while (str_split_next(&query, '&', &pair))
        if (str_starts(pair, STR("action="))) action = str_from(pair, strlen("action="));
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (str_is(action, actions[i].name)) o->action = &actions[i];
    return o->action ? 0
                     : api_fail(&o->call->error, 400, NULL, "action", "action must be save, restore or erase: POST /slots/0?action=save");
}

static int read_id(struct slot_order *o) {
    struct str id = str_from(o->call->exchange->request.path, strlen("/slots/"));
    int32_t n = slots_count(o->call);
    if (str_to_int64(id, &o->id) && o->id >= 0 && o->id < n) return 0;
    return api_fail(&o->call->error, 400, NULL, "id_slot", "there is no slot %.*s; slots have the numbers 0 to %d",
                    (int)(id.n > 20 ? 20 : id.n), id.p, n - 1);
}

static int read_name(struct slot_order *o) {
    struct call *c = o->call;
    struct str name = json_str(c->body, "filename", (struct str){0});
    if (!o->action->has_file) return 0;
    if (!name.p) return api_fail(&c->error, 400, NULL, "filename", "filename must be the name of a file in the folder of --slot-save-path");
    if (!service_name_safe(name))
        return api_fail(&c->error, 400, NULL, "filename", "filename must be a plain name: no folders, drives or device names");
    o->filename = str_cstr(&c->arena, name);
    o->path = str_fmt(&c->arena, "%s/%s", c->server->options.slot_dir, o->filename).p;
    return 0;
}

static int prepare_order(struct call *c) {
    struct slot_order *o = arena_new(&c->arena, struct slot_order, 1);
    *o = (struct slot_order){.listener = {on_ready}, .call = c};
    c->state = o;
    if (!slots_are_kept(c))
        return api_fail(&c->error, 501, NULL, NULL, "slots are saved, restored and erased where the server has --slot-save-path DIR");
    return read_action(o) || read_id(o) || read_name(o) ? -1 : 0;
}

static void start_order(struct call *c) {
    struct slot_order *o = c->state;
    o->action->start(o);
}

const struct route routes_lcpp_slots[] = {
    {"POST", "/slots/*", ROUTE_TAKES_NOTHING, prepare_order, start_order},
    {0},
};
