/* OpenAI: POST /v1/completions: strings, lists of strings, token ids, lists of lists of token ids. */
#include "server/constrain.h"
#include "server/prompts.h"
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

/* Tokens with their log-probabilities: of the echoed prompt, then of the answer. */
struct scored {
    const struct job_token *tokens;
    const struct sampler_top *tops;
    size_t n;
};

struct scored_parts {
    struct scored p[2];
    int32_t first; /* a prompt's first token, which has no log-probability; -1: there is none */
};

static struct scored_parts parts_of(const struct generation *g, const struct gen_choice *c, bool has_echo, bool has_text) {
    struct scored_parts s = {.first = -1};
    if (has_echo && g->params.echo) {
        s.first = g->prompts[c->i_prompt].ids.p[0];
        s.p[0] = (struct scored){c->scores, c->score_tops, c->n_scores};
    }
    if (has_text) s.p[1] = (struct scored){c->tokens, c->tops, c->n_tokens};
    return s;
}

/* The most likely ones, and the chosen one where it is none of them. */
static void put_tops(struct generation *g, const struct scored *s, struct jsonw *w) {
    const struct sampler_top *top = s->tops;
    for (size_t i = 0; i < s->n; i++) {
        const struct job_token *chosen = &s->tokens[i];
        bool has_chosen = g->params.job.sampling.n_top == 0;
        jsonw_begin(w, '{');
        for (int32_t k = 0; k < chosen->n_top; k++, top++) {
            put_top(g, w, top->token, top->logprob);
            has_chosen |= top->token == chosen->id;
        }
        if (!has_chosen) put_top(g, w, chosen->id, chosen->logprob);
        jsonw_end(w, '}');
    }
}

static void put_token_name(struct generation *g, int32_t id, struct jsonw *w) {
    struct sb name = {0};
    put_name(g, id, &name);
    jsonw_str(w, sb_str(&name));
    sb_free(&name);
}

static void put_offset(struct generation *g, struct gen_choice *c, int32_t id, struct jsonw *w) {
    jsonw_int(w, c->n_chars);
    c->n_chars += count_chars(service_token_bytes(g->call->service, id));
}

static void put_logprobs(struct generation *g, struct gen_choice *c, const struct scored_parts *s, struct jsonw *w) {
    jsonw_open(w, "logprobs", '{');
    jsonw_open(w, "tokens", '[');
    if (s->first >= 0) put_token_name(g, s->first, w);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < s->p[k].n; i++) put_token_name(g, s->p[k].tokens[i].id, w);
    jsonw_end(w, ']');
    jsonw_open(w, "token_logprobs", '[');
    if (s->first >= 0) jsonw_null(w);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < s->p[k].n; i++) jsonw_fixed(w, generate_logprob(s->p[k].tokens[i].logprob));
    jsonw_end(w, ']');
    jsonw_open(w, "top_logprobs", '[');
    if (s->first >= 0) jsonw_null(w);
    for (int k = 0; k < 2; k++) put_tops(g, &s->p[k], w);
    jsonw_end(w, ']');
    jsonw_open(w, "text_offset", '[');
    if (s->first >= 0) put_offset(g, c, s->first, w);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < s->p[k].n; i++) put_offset(g, c, s->p[k].tokens[i].id, w);
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
    struct scored_parts scored = parts_of(g, c, parts & PART_ECHO, has_tokens);
    if (g->params.logprobs && (has_tokens || scored.first >= 0)) put_logprobs(g, c, &scored, w);
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
    generate_put_timings(g, &w);
    jsonw_end(&w, '}');
}

static void put_chunk(struct generation *g, struct gen_choice *c, enum part part, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    generate_put_head(g, "text_completion", &w);
    put_choice(g, c, part, &w);
    bool is_last = part & PART_END && g->n_open == 0 && !g->params.include_usage;
    generate_end_chunk(g, &w, is_last || (g->params.timings_always && part & PART_TEXT) ? CHUNK_TIMINGS : 0, out);
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
        generate_end_chunk(g, &w, CHUNK_USAGE | CHUNK_TIMINGS, out);
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

static int prepare(struct call *c) {
    struct generation *g = generate_create(c, &completion_format);
    struct prompt_rules rules = {.param = "prompt", .encoding = SERVICE_ADD_SPECIAL | SERVICE_PARSE_SPECIAL};
    if (params_read(&c->arena, c->body, PARAMS_COMPLETION, &g->params, &c->error)) return -1;
    rules.n_max = PARAMS_CHOICES_MAX / g->params.n;
    rules.wants_text = g->params.echo;
    if (prompts_read(c, json_get(c->body, "prompt"), &rules, &g->prompts, &g->n_prompts)) return -1;
    return constrain_read(&c->arena, c->body, c->service, NULL, &g->params, &c->error);
}

const struct route routes_completions[] = {
    {"POST", "/v1/completions", 0, prepare, generate_start},
    {0},
};
