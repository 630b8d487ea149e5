/* Ollama: what is served (/api/version, /api/tags, /api/ps, /api/show), and vectors. */
#include "server/wire/ollama.h"

#include "server/embed.h"
#include "server/server_internal.h"

#include "base/sha256.h"
#include "os/os.h"

#include <stdio.h>

/* The version of Ollama whose protocol this is: clients leave things out for older ones. */
static const char protocol_version[] = "0.12.6";

static void show_version(struct call *c) {
    call_reply_json(c, 200, str_fmt(&c->arena, "{\"version\":\"%s\"}", protocol_version));
}

/* ---- the model ---------------------------------------------------------------------------------------------------------- */

void ollama_put_digest(struct str text, struct jsonw *w, const char *prefix) {
    unsigned char digest[32];
    char hex[80];
    struct sha256 h;
    int at = snprintf(hex, sizeof hex, "%.10s", prefix);
    sha256_init(&h);
    sha256_update(&h, text.p, text.n);
    sha256_final(&h, digest);
    for (int i = 0; i < 32; i++) at += snprintf(hex + at, 3, "%02x", (unsigned)digest[i]);
    jsonw_put_str(w, "digest", str_n(hex, (size_t)at));
}

/* info: NULL where the model is not loaded. */
static void put_details(const struct service_info *info, struct jsonw *w) {
    struct str type = str_of(info ? info->type : "");
    jsonw_open(w, "details", '{');
    jsonw_put_str(w, "parent_model", STR(""));
    jsonw_put_str(w, "format", STR("safetensors"));
    jsonw_put_str(w, "family", type);
    jsonw_open(w, "families", '[');
    if (type.n) jsonw_str(w, type);
    jsonw_end(w, ']');
    jsonw_put_str(w, "parameter_size", STR(""));
    jsonw_put_str(w, "quantization_level", str_of(info ? info->weights : ""));
    jsonw_end(w, '}');
}

/* When it goes, if nobody asks for it any more; one that stays gets a date that is far away. */
static void put_end(const struct served *m, struct jsonw *w) {
    bool stays = models_is_one(m->server) || m->keep_ms < 0;
    int64_t since_ms = m->n_calls ? 0 : (int64_t)((os_clock_ns() - m->used_ns) / 1000000);
    if (stays) jsonw_put_str(w, "expires_at", STR("2318-01-01T00:00:00Z"));
    else ollama_put_time(w, "expires_at", (m->keep_ms - since_ms) * 1000000);
}

static void put_model(const struct served *m, bool is_running, struct jsonw *w) {
    const struct service_info *info = models_state(m) == SERVED_LOADED ? service_info(m->service) : NULL;
    struct str name = m->name.n ? sb_str(&m->name) : str_of(info ? info->name : "");
    jsonw_begin(w, '{');
    jsonw_put_str(w, "name", name);
    jsonw_put_str(w, "model", name);
    jsonw_put_int(w, "size", info ? (int64_t)info->weight_bytes : 0);
    ollama_put_digest(info ? str_of(info->description) : name, w, "");
    put_details(info, w);
    if (is_running) {
        put_end(m, w);
        jsonw_put_int(w, "size_vram", info->on_gpu ? (int64_t)info->weight_bytes : 0);
        jsonw_put_int(w, "context_length", info->context);
    } else {
        ollama_put_time(w, "modified_at", 0);
    }
    jsonw_end(w, '}');
}

static void list(struct call *c, bool is_running) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_open(&w, "models", '[');
    for (const struct served *m = models_first(c->server); m; m = models_next(m))
        if (!is_running || models_state(m) == SERVED_LOADED) put_model(m, is_running, &w);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

static void list_models(struct call *c) {
    list(c, false);
}

static void list_running(struct call *c) {
    list(c, true);
}

static void put_model_info(const struct service_info *info, struct call *c, struct jsonw *w) {
    jsonw_open(w, "model_info", '{');
    jsonw_put_str(w, "general.architecture", str_of(info->type));
    jsonw_put_str(w, "general.basename", str_of(info->name));
    jsonw_key_str(w, str_fmt(&c->arena, "%s.context_length", info->type));
    jsonw_int(w, info->context);
    jsonw_key_str(w, str_fmt(&c->arena, "%s.embedding_length", info->type));
    jsonw_int(w, info->width);
    jsonw_end(w, '}');
}

static void show(struct call *c) {
    const struct service_info *info = service_info(c->service);
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "modelfile", str_fmt(&c->arena, "FROM %s\n", info->name));
    jsonw_put_str(&w, "parameters", str_fmt(&c->arena, "num_ctx %d\ntemperature %g", info->context, (double)info->sampling.temperature));
    jsonw_put_str(&w, "template", service_template(c->service));
    put_details(info, &w);
    put_model_info(info, c, &w);
    jsonw_open(&w, "capabilities", '[');
    jsonw_str(&w, STR("completion"));
    if (info->takes_pictures) jsonw_str(&w, STR("vision"));
    if (info->format) jsonw_str(&w, STR("tools"));
    if (str_find(service_template(c->service), output_reasoning_open(info->reasoning), 0) != STR_NONE) jsonw_str(&w, STR("thinking"));
    jsonw_end(&w, ']');
    ollama_put_time(&w, "modified_at", 0);
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

static int prepare_show(struct call *c) {
    if (json_str(c->body, "model", json_str(c->body, "name", STR(""))).n) return 0;
    return api_fail(&c->error, 400, NULL, "model", "model is required");
}

/* ---- vectors ------------------------------------------------------------------------------------------------------------ */

static void put_vectors(struct embedding *m, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "model", ollama_model(m->call));
    jsonw_open(&w, "embeddings", '[');
    for (int32_t i = 0; i < m->n_inputs; i++) embed_put_numbers(&w, m->inputs[i].vectors, m->width);
    jsonw_end(&w, ']');
    jsonw_put_int(&w, "total_duration", (int64_t)(os_clock_ns() - m->call->begun_ns));
    jsonw_put_int(&w, "load_duration", 0);
    jsonw_put_int(&w, "prompt_eval_count", m->n_tokens);
    jsonw_end(&w, '}');
}

static void put_vector(struct embedding *m, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_key(&w, "embedding");
    embed_put_numbers(&w, m->inputs[0].vectors, m->width);
    jsonw_end(&w, '}');
}

static int prepare_embed(struct call *c) {
    static const struct embed_form cut = {"input", put_vectors, true, false}, whole = {"input", put_vectors, false, false};
    if (ollama_keep_read(c)) return -1;
    return embed_prepare(c, json_get(c->body, "input"), json_bool(c->body, "truncate", true) ? &cut : &whole);
}

static int prepare_embeddings(struct call *c) {
    static const struct embed_form form = {"prompt", put_vector, true, false};
    if (!yyjson_is_str(json_get(c->body, "prompt"))) return api_fail(&c->error, 400, NULL, "prompt", "prompt must be a text");
    if (ollama_keep_read(c)) return -1;
    return embed_prepare(c, json_get(c->body, "prompt"), &form);
}

const struct route routes_ollama_models[] = {
    {"GET", "/api/version", ROUTE_WITHOUT_MODEL, NULL, show_version},
    {"GET", "/api/tags", ROUTE_OF_ALL, NULL, list_models},
    {"GET", "/api/ps", ROUTE_OF_ALL, NULL, list_running},
    {"POST", "/api/show", 0, prepare_show, show},
    {"POST", "/api/embed", 0, prepare_embed, embed_start},
    {"POST", "/api/embeddings", 0, prepare_embeddings, embed_start},
    {0},
};
