/* OpenAI: POST /v1/completions: strings, lists of strings, token ids, lists of lists of token ids. */
#include "server/constrain.h"
#include "server/generate.h"
#include "server/sse.h"

/* ---- the wire ----------------------------------------------------------------------------------------------------------- */

static int64_t count_chars(struct str s) {
    int64_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    return n;
}

/* A token's text; one that is part of a character by its bytes, as OpenAI writes it, so that two of them are two keys. */
static void put_name(struct generation *g, int32_t id, struct sb *out) {
    struct str text = service_token_text(g->call->service, id);
    sb_clear(out);
    if (utf8_valid(text)) {
        sb_put(out, text);
        return;
    }
    sb_puts(out, "bytes:");
    for (size_t i = 0; i < text.n; i++) sb_fmt(out, "\\x%02x", (unsigned char)text.p[i]);
}

static void put_top(struct generation *g, struct jsonw *w, int32_t id, float logprob) {
    struct sb name = {0};
    put_name(g, id, &name);
    jsonw_key_str(w, sb_str(&name));
    jsonw_fixed(w, generate_logprob(logprob));
    sb_free(&name);
}

/* The most likely ones, and the chosen one where it is none of them. */
static void put_tops(struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    const struct sampler_top *top = c->tops;
    jsonw_open(w, "top_logprobs", '[');
    for (size_t i = 0; i < c->n_tokens; i++) {
        const struct job_token *chosen = &c->tokens[i];
        bool has_chosen = g->params.job.sampling.n_top == 0;
        jsonw_begin(w, '{');
        for (int32_t k = 0; k < chosen->n_top; k++, top++) {
            put_top(g, w, top->token, top->logprob);
            has_chosen |= top->token == chosen->id;
        }
        if (!has_chosen) put_top(g, w, chosen->id, chosen->logprob);
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
}

static void put_tokens(struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    struct sb name = {0};
    jsonw_open(w, "tokens", '[');
    for (size_t i = 0; i < c->n_tokens; i++) {
        put_name(g, c->tokens[i].id, &name);
        jsonw_str(w, sb_str(&name));
    }
    jsonw_end(w, ']');
    sb_free(&name);
}

static void put_logprobs(struct generation *g, struct gen_choice *c, struct jsonw *w) {
    jsonw_open(w, "logprobs", '{');
    put_tokens(g, c, w);
    jsonw_open(w, "token_logprobs", '[');
    for (size_t i = 0; i < c->n_tokens; i++) jsonw_fixed(w, generate_logprob(c->tokens[i].logprob));
    jsonw_end(w, ']');
    put_tops(g, c, w);
    jsonw_open(w, "text_offset", '[');
    for (size_t i = 0; i < c->n_tokens; i++) {
        jsonw_int(w, c->n_chars);
        c->n_chars += count_chars(service_token_bytes(g->call->service, c->tokens[i].id));
    }
    jsonw_end(w, ']');
    jsonw_end(w, '}');
}

enum part { PART_ECHO = 1, PART_TEXT = 2, PART_END = 4 };

static void put_choice(struct generation *g, struct gen_choice *c, unsigned parts, struct jsonw *w) {
    struct sb text = {0};
    if (parts & PART_ECHO && g->params.echo) sb_put(&text, g->prompts[c->i_prompt].text);
    if (parts & PART_TEXT) generate_join(&c->pieces, OUTPUT_CONTENT, &text);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "text", sb_str(&text));
    jsonw_put_int(w, "index", c->index);
    bool has_tokens = parts & PART_TEXT && (c->n_tokens || !g->params.stream); /* text that was held back comes without */
    if (g->params.logprobs && has_tokens) put_logprobs(g, c, w);
    else jsonw_put_null(w, "logprobs");
    generate_put_finish(c, parts & PART_END ? c->finish : JOB_GOES_ON, w);
    jsonw_end(w, '}');
    sb_free(&text);
}

static void put_whole(struct generation *g, struct sb *out) {
    struct jsonw w = {.out = out};
    generate_put_head(g, "text_completion", &w);
    for (int32_t i = 0; i < g->n_choices; i++) put_choice(g, &g->choices[i], PART_ECHO | PART_TEXT | PART_END, &w);
    jsonw_end(&w, ']');
    generate_put_usage(g, &w);
    jsonw_end(&w, '}');
}

static void put_chunk(struct generation *g, struct gen_choice *c, enum part part, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    generate_put_head(g, "text_completion", &w);
    put_choice(g, c, part, &w);
    generate_end_chunk(g, &w, false, out);
}

static void put_begin(struct generation *g, struct gen_choice *c, struct sb *out) {
    if (g->params.echo) put_chunk(g, c, PART_ECHO, out);
}

static void put_piece(struct generation *g, struct gen_choice *c, struct sb *out) {
    put_chunk(g, c, PART_TEXT, out);
}

static void put_end(struct generation *g, struct gen_choice *c, struct sb *out) {
    put_chunk(g, c, PART_END, out);
}

static void put_done(struct generation *g, struct sb *out) {
    if (g->params.include_usage) {
        struct sb json = {0};
        struct jsonw w = {.out = &json};
        generate_put_head(g, "text_completion", &w);
        generate_end_chunk(g, &w, true, out);
    }
    sse_put(out, NULL, STR("[DONE]"));
}

static const struct gen_format completion_format = {.id_prefix = "cmpl-",
                                                    .input = "prompt",
                                                    .continues = true,
                                                    .begin = put_begin,
                                                    .piece = put_piece,
                                                    .end = put_end,
                                                    .done = put_done,
                                                    .whole = put_whole};

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static int fail_prompt(struct call *c) {
    return api_fail(&c->error, 400, NULL, "prompt",
                    "prompt must be a string, a list of strings, a list of token ids, or a list of those; none empty");
}

static int read_text(struct call *c, struct generation *g, struct str text) {
    struct gen_prompt *p = &g->prompts[g->n_prompts++];
    struct err err;
    if (text.n == 0) return fail_prompt(c);
    p->text = text;
    if (service_encode(c->service, &c->arena, text, true, &p->ids, &err)) return api_fail_err(&c->error, &err, "prompt");
    return p->ids.n ? 0 : fail_prompt(c);
}

static int read_ids(struct call *c, struct generation *g, yyjson_val *list) {
    struct gen_prompt *p = &g->prompts[g->n_prompts++];
    int32_t vocab = service_info(c->service)->vocab;
    yyjson_val *item;
    size_t i, n = yyjson_arr_size(list);
    struct sb text = {0};
    struct err err;
    if (n == 0 || n > INT32_MAX) return fail_prompt(c);
    p->ids.p = arena_new(&c->arena, int32_t, n);
    p->ids.n = (int32_t)n;
    yyjson_arr_foreach(list, i, n, item) {
        int64_t id;
        if (!json_val_int(item, &id)) return fail_prompt(c);
        if (id < 0 || id >= vocab)
            return api_fail(&c->error, 400, NULL, "prompt", "prompt: token %lld is outside the vocabulary of %d", (long long)id, vocab);
        p->ids.p[i] = (int32_t)id;
    }
    if (g->params.echo && service_decode(c->service, p->ids.p, p->ids.n, &text, &err) == ERR_OK)
        p->text = str_copy(&c->arena, sb_str(&text));
    sb_free(&text);
    return 0;
}

static int read_prompts(struct call *c, struct generation *g) {
    yyjson_val *prompt = json_get(c->body, "prompt"), *item;
    size_t i, n = yyjson_is_arr(prompt) ? yyjson_arr_size(prompt) : 1;
    bool many = yyjson_is_arr(prompt) && n > 0 && !yyjson_is_num(yyjson_arr_get_first(prompt));
    size_t n_prompts = many ? n : 1;
    if (n_prompts * (size_t)g->params.n > PARAMS_CHOICES_MAX)
        return api_fail(&c->error, 400, NULL, "prompt", "at most %d choices can be asked for at once", PARAMS_CHOICES_MAX);
    g->prompts = arena_new(&c->arena, struct gen_prompt, n_prompts);
    if (!many)
        return yyjson_is_str(prompt)   ? read_text(c, g, json_val_str(prompt))
               : yyjson_is_arr(prompt) ? read_ids(c, g, prompt)
                                       : fail_prompt(c);
    yyjson_arr_foreach(prompt, i, n, item) {
        int code = yyjson_is_str(item) ? read_text(c, g, json_val_str(item)) : yyjson_is_arr(item) ? read_ids(c, g, item) : fail_prompt(c);
        if (code) return code;
    }
    return 0;
}

static int prepare(struct call *c) {
    struct generation *g = generate_create(c, &completion_format);
    g->params.job.sampling = service_info(c->service)->sampling;
    g->params.vocab = service_info(c->service)->vocab;
    if (params_read(&c->arena, c->body, PARAMS_COMPLETION, &g->params, &c->error)) return -1;
    if (read_prompts(c, g)) return -1;
    return constrain_read(&c->arena, c->body, c->service, NULL, &g->params, &c->error);
}

const struct route routes_completions[] = {
    {"POST", "/v1/completions", 0, prepare, generate_start},
    {"POST", "/completions", 0, prepare, generate_start},
    {0},
};
