/* POST /v1/embeddings: texts or token ids to vectors of length 1. */
#include "server/fields.h"
#include "server/generate.h"
#include "server/server_internal.h"

#include <math.h>
#include <stdio.h>

enum { INPUTS_MAX = 2048 };

struct embedding;

struct input {
    struct job_listener listener; /* first: the job's user */
    struct embedding *of;
    struct service_ids ids;
    struct job *job; /* NULL: ended and released */
    float *vector;   /* [width of the model] */
};

struct embedding {
    struct call *call;
    struct input *inputs;
    int32_t n_inputs, n_open;
    int64_t n_tokens;
    int32_t width; /* asked for */
    bool is_base64;
};

/* ---- the wire ----------------------------------------------------------------------------------------------------------- */

static void put_base64(struct jsonw *w, const float *v, int32_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)v;
    size_t bytes = (size_t)n * sizeof *v;
    struct sb text = {0};
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t b = (uint32_t)p[i] << 16 | (i + 1 < bytes ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < bytes ? p[i + 2] : 0);
        sb_putc(&text, digits[b >> 18]);
        sb_putc(&text, digits[b >> 12 & 63]);
        sb_putc(&text, i + 1 < bytes ? digits[b >> 6 & 63] : '=');
        sb_putc(&text, i + 2 < bytes ? digits[b & 63] : '=');
    }
    jsonw_str(w, sb_str(&text));
    sb_free(&text);
}

static void put_numbers(struct jsonw *w, const float *v, int32_t n) {
    char text[32];
    jsonw_begin(w, '[');
    for (int32_t i = 0; i < n; i++) jsonw_raw(w, str_n(text, (size_t)snprintf(text, sizeof text, "%.9g", (double)v[i])));
    jsonw_end(w, ']');
}

/* The first numbers, of length 1 again. */
static void cut(float *v, int32_t n) {
    double square = 0;
    for (int32_t i = 0; i < n; i++) square += (double)v[i] * (double)v[i];
    for (int32_t i = 0; i < n && square > 0; i++) v[i] = (float)((double)v[i] / sqrt(square));
}

static void put_answer(struct embedding *m, struct sb *out) {
    const struct service_info *info = service_info(m->call->service);
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "object", STR("list"));
    jsonw_open(&w, "data", '[');
    for (int32_t i = 0; i < m->n_inputs; i++) {
        float *v = m->inputs[i].vector;
        if (m->width < info->width) cut(v, m->width);
        jsonw_begin(&w, '{');
        jsonw_put_str(&w, "object", STR("embedding"));
        jsonw_put_int(&w, "index", i);
        jsonw_key(&w, "embedding");
        if (m->is_base64) put_base64(&w, v, m->width);
        else put_numbers(&w, v, m->width);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    jsonw_put_str(&w, "model", str_of(info->name));
    jsonw_open(&w, "usage", '{');
    jsonw_put_int(&w, "prompt_tokens", m->n_tokens);
    jsonw_put_int(&w, "total_tokens", m->n_tokens);
    jsonw_end(&w, '}');
    jsonw_end(&w, '}');
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
    put_answer(m, &out);
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

static void on_ready(struct job_listener *listener) {
    struct input *in = (struct input *)listener;
    struct embedding *m = in->of;
    struct job_events ev;
    job_take(in->job, &ev);
    if (!ev.finish) return;
    if (generate_check_finish(&m->call->error, &ev, "input")) {
        answer(m);
        return;
    }
    memcpy(in->vector, ev.vector, (size_t)service_info(m->call->service)->width * sizeof *in->vector);
    job_release(in->job);
    in->job = NULL;
    m->n_tokens += ev.usage.n_prompt;
    if (--m->n_open == 0) answer(m);
}

static void on_gone(struct call *c) {
    release_all(c->state);
}

static void start(struct call *c) {
    struct embedding *m = c->state;
    struct job_spec *specs = arena_new(&c->arena, struct job_spec, m->n_inputs);
    struct job **jobs = arena_new(&c->arena, struct job *, m->n_inputs);
    struct err err;
    enum job_pooling pooling;
    if (service_pick_pooling(c->service, c->server->options.pooling, &pooling, &err)) {
        api_fail_err(&c->error, &err, "input");
        call_reply_error(c);
        return;
    }
    for (int32_t i = 0; i < m->n_inputs; i++) {
        struct input *in = &m->inputs[i];
        in->vector = arena_new(&c->arena, float, service_info(c->service)->width);
        specs[i] = (struct job_spec){.tokens = in->ids.p,
                                     .n_tokens = in->ids.n,
                                     .rows = ROWS_HIDDEN,
                                     .pooling = pooling,
                                     .deadline_ms = c->server->options.deadline_ms,
                                     .user = in};
    }
    if (service_submit(c->service, specs, m->n_inputs, jobs, &err)) {
        api_fail_err(&c->error, &err, "input");
        call_reply_error(c);
        return;
    }
    for (int32_t i = 0; i < m->n_inputs; i++) m->inputs[i].job = jobs[i];
    m->n_open = m->n_inputs;
    c->on_gone = on_gone;
}

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static int fail_input(struct call *c) {
    return api_fail(&c->error, 400, NULL, "input",
                    "input must be a string, a list of strings, a list of token ids, or a list of those; none empty");
}

static int read_input(struct call *c, struct embedding *m, yyjson_val *val) {
    struct input *input = &m->inputs[m->n_inputs++];
    struct service_ids *in = &input->ids;
    struct str text = json_val_str(val);
    yyjson_val *item;
    size_t i, n;
    struct err err;
    *input = (struct input){.listener = {on_ready}, .of = m};
    if (text.p) {
        if (text.n == 0) return fail_input(c);
        if (service_encode(c->service, &c->arena, text, false, in, &err)) return api_fail_err(&c->error, &err, "input");
        return in->n ? 0 : fail_input(c);
    }
    n = yyjson_arr_size(val);
    if (!yyjson_is_arr(val) || n == 0 || n > INT32_MAX) return fail_input(c);
    in->p = arena_new(&c->arena, int32_t, n);
    in->n = (int32_t)n;
    yyjson_arr_foreach(val, i, n, item) {
        int64_t id;
        if (!json_val_int(item, &id) || id < 0 || id >= service_info(c->service)->vocab) return fail_input(c);
        in->p[i] = (int32_t)id;
    }
    return 0;
}

static int read_inputs(struct call *c, struct embedding *m) {
    yyjson_val *input = json_get(c->body, "input"), *item;
    size_t i, n = yyjson_is_arr(input) ? yyjson_arr_size(input) : 1;
    bool many = yyjson_is_arr(input) && n > 0 && !yyjson_is_num(yyjson_arr_get_first(input));
    if (many && n > INPUTS_MAX) return api_fail(&c->error, 400, NULL, "input", "input takes at most %d texts", INPUTS_MAX);
    m->inputs = arena_new(&c->arena, struct input, many ? n : 1);
    if (!many) return read_input(c, m, input);
    yyjson_arr_foreach(input, i, n, item) if (read_input(c, m, item)) return -1;
    return 0;
}

static int prepare(struct call *c) {
    struct embedding *m = arena_new(&c->arena, struct embedding, 1);
    yyjson_val *dimensions = json_get(c->body, "dimensions"), *format = json_get(c->body, "encoding_format");
    int64_t width = service_info(c->service)->width, wanted = width;
    c->state = m;
    m->call = c;
    if (fields_refuse(c->body, PARAMS_EMBEDDING, &c->error)) return -1;
    if (dimensions && !yyjson_is_null(dimensions) && (!json_val_int(dimensions, &wanted) || wanted < 1 || wanted > width))
        return api_fail(&c->error, 400, NULL, "dimensions", "dimensions must lie between 1 and %lld", (long long)width);
    m->width = (int32_t)wanted;
    if (format && !yyjson_is_null(format)) {
        struct str name = json_val_str(format);
        m->is_base64 = str_is(name, "base64");
        if (!m->is_base64 && !str_is(name, "float"))
            return api_fail(&c->error, 400, NULL, "encoding_format", "encoding_format must be float or base64");
    }
    return read_inputs(c, m);
}

const struct route routes_embeddings[] = {
    {"POST", "/v1/embeddings", 0, prepare, start},
    {"POST", "/embeddings", 0, prepare, start},
    {0},
};
