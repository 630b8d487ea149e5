/* Vectors of length 1: prompts are read, the engine pools what it sees. */
#include "server/embed.h"

#include "server/fields.h"
#include "server/prompts.h"
#include "server/server_internal.h"

#include <math.h>
#include <stdio.h>

enum { INPUTS_MAX = 2048 };

void embed_put_numbers(struct jsonw *w, const float *v, int32_t n) {
    char text[32];
    jsonw_begin(w, '[');
    for (int32_t i = 0; i < n; i++) jsonw_raw(w, str_n(text, (size_t)snprintf(text, sizeof text, "%.9g", (double)v[i])));
    jsonw_end(w, ']');
}

const float *embed_vector(const struct embedding *m, const struct embed_input *in, int32_t i) {
    return in->vectors + (int64_t)i * service_info(m->call->service)->width;
}

/* The first numbers, of length 1 again. */
static void cut(float *v, int32_t n) {
    double square = 0;
    for (int32_t i = 0; i < n; i++) square += (double)v[i] * (double)v[i];
    for (int32_t i = 0; i < n && square > 0; i++) v[i] = (float)((double)v[i] / sqrt(square));
}

/* ---- the jobs ----------------------------------------------------------------------------------------------------------- */

static void release_all(struct embedding *m) {
    for (int32_t i = 0; i < m->n_inputs; i++)
        if (m->inputs[i].job) job_release(m->inputs[i].job);
}

/* All inputs have their vectors, or one of them failed. */
static void answer(struct embedding *m) {
    struct call *c = m->call;
    struct sb out = {0};
    release_all(m);
    if (c->error.status) {
        call_reply_error(c);
        return;
    }
    bool is_cut = m->width < service_info(c->service)->width && c->settings->pooling != SERVICE_POOL_NONE;
    for (int32_t i = 0; i < m->n_inputs && is_cut; i++) cut(m->inputs[i].vectors, m->width);
    m->form->put(m, &out);
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

static void on_ready(struct job_listener *listener) {
    struct embed_input *in = (struct embed_input *)listener;
    struct embedding *m = in->of;
    struct job_events ev;
    job_take(in->job, &ev);
    if (!ev.finish) return;
    if (generate_check_finish(&m->call->error, &ev, m->form->param)) {
        answer(m);
        return;
    }
    size_t n = (size_t)ev.n_vectors * (size_t)service_info(m->call->service)->width;
    in->n_vectors = ev.n_vectors;
    in->vectors = arena_copy(&m->call->arena, ev.vectors, n * sizeof *in->vectors);
    job_release(in->job);
    in->job = NULL;
    m->n_tokens += ev.usage.n_prompt;
    if (--m->n_open == 0) answer(m);
}

static void on_gone(struct call *c) {
    release_all(c->state);
}

void embed_start(struct call *c) {
    struct embedding *m = c->state;
    struct job_spec *specs = arena_new(&c->arena, struct job_spec, m->n_inputs);
    struct job **jobs = arena_new(&c->arena, struct job *, m->n_inputs);
    struct err err;
    enum job_pooling pooling;
    if (service_pick_pooling(c->service, c->settings->pooling, &pooling, &err)) {
        api_fail_err(&c->error, &err, m->form->param);
        call_reply_error(c);
        return;
    }
    for (int32_t i = 0; i < m->n_inputs; i++) {
        struct embed_input *in = &m->inputs[i];
        specs[i] = (struct job_spec){.tokens = in->ids.p,
                                     .n_tokens = in->ids.n,
                                     .rows = ROWS_HIDDEN,
                                     .pooling = pooling,
                                     .deadline_ms = c->server->options.deadline_ms,
                                     .user = in};
    }
    if (service_submit(c->service, specs, m->n_inputs, jobs, &err)) {
        api_fail_err(&c->error, &err, m->form->param);
        call_reply_error(c);
        return;
    }
    for (int32_t i = 0; i < m->n_inputs; i++) m->inputs[i].job = jobs[i];
    m->n_open = m->n_inputs;
    c->on_gone = on_gone;
}

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static int read_width(struct call *c, struct embedding *m) {
    yyjson_val *dimensions = json_get(c->body, "dimensions");
    int64_t width = service_info(c->service)->width, wanted = width;
    if (dimensions && !yyjson_is_null(dimensions) && (!json_val_int(dimensions, &wanted) || wanted < 1 || wanted > width))
        return api_fail(&c->error, 400, NULL, "dimensions", "dimensions must lie between 1 and %lld", (long long)width);
    m->width = (int32_t)wanted;
    return 0;
}

static int read_format(struct call *c, struct embedding *m) {
    yyjson_val *format = json_get(c->body, "encoding_format");
    struct str name = json_val_str(format);
    if (!format || yyjson_is_null(format)) return 0;
    m->is_base64 = str_is(name, "base64");
    if (!m->is_base64 && !str_is(name, "float"))
        return api_fail(&c->error, 400, NULL, "encoding_format", "encoding_format must be float or base64");
    return 0;
}

int embed_prepare(struct call *c, yyjson_val *texts, const struct embed_form *form) {
    struct embedding *m = arena_new(&c->arena, struct embedding, 1);
    struct prompt_rules rules = {.param = form->param, .encoding = SERVICE_ADD_SPECIAL, .n_max = INPUTS_MAX, .takes_empty = true};
    struct gen_prompt *prompts;
    int32_t context = service_info(c->service)->context;
    c->state = m;
    m->call = c;
    m->form = form;
    if (c->settings->pooling == SERVICE_POOL_NONE && !form->takes_many)
        return api_fail(&c->error, 400, NULL, NULL,
                        "the server was started with --pooling none, and this path has one vector for a text; ask POST /embeddings");
    if (fields_refuse(c->body, PARAMS_EMBEDDING, &c->error) || read_width(c, m) || read_format(c, m)) return -1;
    if (prompts_read(c, texts, &rules, &prompts, &m->n_inputs)) return -1;
    m->inputs = arena_new(&c->arena, struct embed_input, m->n_inputs);
    for (int32_t i = 0; i < m->n_inputs; i++) {
        m->inputs[i] = (struct embed_input){.listener = {on_ready}, .of = m, .ids = prompts[i].ids};
        if (form->cuts && m->inputs[i].ids.n > context) m->inputs[i].ids.n = context;
    }
    return 0;
}
