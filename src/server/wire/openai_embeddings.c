/* OpenAI: POST /v1/embeddings. */
#include "server/embed.h"

#include "server/adapters.h"
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

static void put_answer(struct embedding *m, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "object", STR("list"));
    jsonw_open(&w, "data", '[');
    for (int32_t i = 0; i < m->n_inputs; i++) {
        const float *v = m->inputs[i].vectors;
        jsonw_begin(&w, '{');
        jsonw_put_str(&w, "object", STR("embedding"));
        jsonw_put_int(&w, "index", i);
        jsonw_key(&w, "embedding");
        if (m->is_base64) put_base64(&w, v, m->width);
        else embed_put_numbers(&w, v, m->width);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    jsonw_put_str(&w, "model", adapters_model_name(m->call));
    jsonw_open(&w, "usage", '{');
    jsonw_put_int(&w, "prompt_tokens", m->n_tokens);
    jsonw_put_int(&w, "total_tokens", m->n_tokens);
    jsonw_end(&w, '}');
    jsonw_end(&w, '}');
}

static const struct embed_form form = {"input", put_answer, false, false};

static int prepare(struct call *c) {
    return embed_prepare(c, json_get(c->body, "input"), &form);
}

const struct route routes_embeddings[] = {
    {"POST", "/v1/embeddings", 0, prepare, embed_start},
    {0},
};
