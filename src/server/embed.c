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
    return in->vectors + (int64_t)i * m->how.width;
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
    bool is_cut = m->width < m->how.width && m->how.pooling != POOL_NONE;
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
    in->n_vectors = ev.n_vectors;
    in->vectors = arena_copy(&m->call->arena, ev.vectors, (size_t)ev.n_vectors * (size_t)m->how.width * sizeof *in->vectors);
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
    for (int32_t i = 0; i < m->n_inputs; i++) {
        struct embed_input *in = &m->inputs[i];
        specs[i] = session_embedding_job(&m->how, in->ids.p, in->ids.n);
        specs[i].n_skip = in->n_skip; /* not the prompt's where the client sent token ids */
        specs[i].deadline_ms = c->server->options.deadline_ms;
        specs[i].adapters = c->adapters;
        specs[i].user = in;
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
    int64_t width = m->how.width, wanted = width;
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

/* Which of the model's prompts, and how its states become a vector. */
static int pick(struct call *c, struct embedding *m) {
    yyjson_val *name = json_get(c->body, "prompt_name");
    struct err err;
    if (name && !yyjson_is_null(name) && !yyjson_is_str(name))
        return api_fail(&c->error, 400, NULL, "prompt_name", "prompt_name must be a string");
    struct str prompt = yyjson_is_str(name) ? json_val_str(name) : (struct str){0};
    if (!service_embedding(c->service, c->settings->pooling, prompt, &m->how, &err)) return 0;
    return api_fail_err(&c->error, &err, err.code == ERR_EARG ? "prompt_name" : m->form->param);
}

/* A text that is too long: cut where the protocol does that, with the token that closes it; else refused. */
static int check_length(struct call *c, struct embedding *m, struct service_ids *ids) {
    int32_t most = m->how.max_tokens;
    if (ids->n > most && !m->form->cuts)
        return api_fail(&c->error, 400, "context_length_exceeded", m->form->param,
                        "the prompt has %d tokens, which is too large: it exceeds the available context size of %d", ids->n, most);
    service_cut(c->service, ids, most);
    return 0;
}

struct embed_input *embed_inputs(struct call *c, struct embedding *m) {
    struct embed_input *inputs = arena_new(&c->arena, struct embed_input, m->n_inputs);
    for (int32_t i = 0; i < m->n_inputs; i++) inputs[i] = (struct embed_input){.listener = {on_ready}, .of = m};
    return inputs;
}

int embed_prepare(struct call *c, yyjson_val *texts, const struct embed_form *form) {
    struct embedding *m = arena_new(&c->arena, struct embedding, 1);
    struct prompt_rules rules = {.param = form->param, .encoding = SERVICE_ADD_SPECIAL, .n_max = INPUTS_MAX, .takes_empty = true};
    struct gen_prompt *prompts;
    c->state = m;
    m->call = c;
    m->form = form;
    if (c->settings->pooling == SESSION_POOL_NONE && !form->takes_many)
        return api_fail(&c->error, 400, NULL, NULL,
                        "the server was started with --pooling none, and this path has one vector for a text; ask POST /embeddings");
    if (fields_refuse(c->body, PARAMS_EMBEDDING, &c->error) || pick(c, m) || read_width(c, m) || read_format(c, m)) return -1;
    rules.before = m->how.prompt;
    if (prompts_read(c, texts, &rules, &prompts, &m->n_inputs)) return -1;
    m->inputs = embed_inputs(c, m);
    for (int32_t i = 0; i < m->n_inputs; i++) {
        m->inputs[i].ids = prompts[i].ids;
        if (prompts[i].text.p) m->inputs[i].n_skip = m->how.n_skip; /* token ids have no prompt before them */
        if (check_length(c, m, &m->inputs[i].ids)) return -1;
    }
    return 0;
}
