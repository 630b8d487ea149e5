/* llama-server: what it tells of itself (/props, /slots, /lora-adapters), /apply-template, its form of embeddings, and refusals with their reason for
 * what is not there. */
#include "server/wire/lcpp.h"

#include "server/adapters.h"
#include "server/chat.h"
#include "server/details.h"
#include "server/embed.h"
#include "server/server_internal.h"

#include "api/build.h"

/* ---- the server --------------------------------------------------------------------------------------------------------- */

static void put_defaults(struct call *c, struct jsonw *w) {
    struct generation g = {.call = c, .params = {.job = {.sampling = service_info(c->service)->sampling}}};
    g.params.job.sampling.seed = (uint64_t)c->settings->seed;
    g.params.job.has_seed = c->settings->has_seed;
    g.params.job.max_new = c->settings->max_new;
    jsonw_open(w, "default_generation_settings", '{');
    details_put_settings(&g, "params", w);
    jsonw_put_int(w, "n_ctx", service_info(c->service)->context);
    jsonw_end(w, '}');
}

static void show_props(struct call *c) {
    const struct service_info *info = service_info(c->service);
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    struct build build;
    build_describe(&c->arena, &build);
    jsonw_begin(&w, '{');
    put_defaults(c, &w);
    jsonw_put_int(&w, "total_slots", info->n_seqs);
    jsonw_put_str(&w, "model_alias", str_of(info->name));
    jsonw_put_str(&w, "model_path", str_of(info->path ? info->path : info->name));
    jsonw_open(&w, "modalities", '{');
    jsonw_put_bool(&w, "vision", info->takes_pictures);
    jsonw_put_bool(&w, "audio", false);
    jsonw_end(&w, '}');
    jsonw_put_bool(&w, "endpoint_slots", !c->server->options.no_slots);
    jsonw_put_bool(&w, "endpoint_props", false);
    jsonw_put_bool(&w, "endpoint_metrics", true);
    jsonw_put_bool(&w, "webui", !c->server->options.no_page);
    jsonw_put_str(&w, "chat_template", service_template(c->service));
    jsonw_put_str(&w, "build_info", str_of(build.version));
    jsonw_put_bool(&w, "is_sleeping", false);
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&json));
    sb_free(&json);
}

static void change_props(struct call *c) {
    lcpp_refuse(c, "properties are set when the server is started, not while it runs");
}

/* There are no slots: requests share one cache. So many at once are slots to those who count them. */
static void show_slots(struct call *c) {
    const struct service_info *info = service_info(c->service);
    struct engine_stats stats = service_stats(c->service);
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    if (c->server->options.no_slots) {
        lcpp_refuse(c, "the server was started with --no-slots");
        return;
    }
    if (str_find(c->exchange->request.query, STR("fail_on_no_slot"), 0) != STR_NONE && stats.n_running >= info->n_seqs) {
        api_fail(&c->error, 503, NULL, NULL, "no slot is free");
        call_reply_error(c);
        return;
    }
    jsonw_begin(&w, '[');
    for (int32_t i = 0; i < info->n_seqs; i++) {
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "id", i);
        jsonw_put_int(&w, "n_ctx", info->context);
        jsonw_put_bool(&w, "speculative", info->drafts);
        jsonw_put_bool(&w, "is_processing", i < stats.n_running);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    call_reply_json(c, 200, sb_str(&json));
    sb_free(&json);
}

static void list_adapters(struct call *c) {
    const struct service_info *info = service_info(c->service);
    const float *scales = service_adapter_scales(c->service);
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    jsonw_begin(&w, '[');
    for (int32_t i = 0; i < info->n_adapters; i++) {
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "id", i);
        jsonw_put_str(&w, "path", str_of(info->adapters[i].path));
        jsonw_put_str(&w, "name", str_of(info->adapters[i].name));
        jsonw_put_num(&w, "scale", (double)scales[i]);
        jsonw_put_str(&w, "task_name", STR(""));
        jsonw_put_str(&w, "prompt_prefix", STR(""));
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    call_reply_json(c, 200, sb_str(&json));
    sb_free(&json);
}

static int prepare_adapters(struct call *c) {
    return adapters_read_scales(c, c->body, &c->adapters);
}

/* For requests to the model itself that have no scales of their own. */
static void change_adapters(struct call *c) {
    memcpy(service_adapter_scales(c->service), c->adapters, (size_t)service_info(c->service)->n_adapters * sizeof *c->adapters);
    call_reply_json(c, 200, STR("{\"success\":true}"));
}

/* ---- templates ---------------------------------------------------------------------------------------------------------- */

static int prepare_template(struct call *c) {
    int32_t n;
    return chat_count(c, c->body, &n);
}

static void show_template(struct call *c) {
    const struct generation *g = c->state;
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "prompt", g->prompts[0].text);
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&json));
    sb_free(&json);
}

/* ---- vectors ------------------------------------------------------------------------------------------------------------ */

static void put_vectors(struct embedding *m, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (int32_t i = 0; i < m->n_inputs; i++) {
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "index", i);
        jsonw_open(&w, "embedding", '[');
        for (int32_t k = 0; k < m->inputs[i].n_vectors; k++) embed_put_numbers(&w, embed_vector(m, &m->inputs[i], k), m->width);
        jsonw_end(&w, ']');
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
}

static int prepare_vectors(struct call *c) {
    static const struct embed_form content_form = {"content", put_vectors, false, true}, input_form = {"input", put_vectors, false, true};
    yyjson_val *input = json_get(c->body, "input");
    return input ? embed_prepare(c, input, &input_form) : embed_prepare(c, json_get(c->body, "content"), &content_form);
}

const struct route routes_lcpp_server[] = {
    {"GET", "/props", 0, NULL, show_props},
    {"POST", "/props", 0, NULL, change_props},
    {"GET", "/slots", ROUTE_WATCHED, NULL, show_slots},
    {"GET", "/lora-adapters", 0, NULL, list_adapters},
    {"POST", "/lora-adapters", ROUTE_TAKES_LIST, prepare_adapters, change_adapters},
    {"POST", "/apply-template", 0, prepare_template, show_template},
    {"POST", "/embedding", 0, prepare_vectors, embed_start},
    {"POST", "/embeddings", 0, prepare_vectors, embed_start},
    {0},
};
