/* Documents by how well they answer a query: Jina's, Cohere's, vLLM's and llama-server's form of it, Text Embeddings Inference's, and vLLM's scores of
 * pairs. */
#include "server/rank.h"
#include "server/adapters.h"
#include "server/server_internal.h"

static void put_usage(struct jsonw *w, int64_t n_tokens) {
    jsonw_open(w, "usage", '{');
    jsonw_put_int(w, "prompt_tokens", n_tokens);
    jsonw_put_int(w, "total_tokens", n_tokens);
    jsonw_end(w, '}');
}

/* {"results": [{"index", "relevance_score"} ...]}, the best first. */
static void put_results(struct embedding *m, struct sb *out) {
    const struct ranking *r = (const struct ranking *)m;
    const int32_t *order = rank_order(r);
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "id", server_new_id(m->call->server, &m->call->arena, "rerank-"));
    jsonw_put_str(&w, "object", STR("list"));
    jsonw_put_str(&w, "model", adapters_model_name(m->call));
    jsonw_open(&w, "results", '[');
    for (int32_t i = 0; i < r->top_n; i++) {
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "index", order[i]);
        jsonw_put_num(&w, "relevance_score", (double)rank_score(r, order[i]));
        if (r->shows_texts) {
            jsonw_open(&w, "document", '{');
            jsonw_put_str(&w, "text", r->pairs[order[i]].text);
            jsonw_end(&w, '}');
        }
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    put_usage(&w, m->n_tokens);
    jsonw_end(&w, '}');
}

/* [{"index", "score"} ...], the best first. */
static void put_list(struct embedding *m, struct sb *out) {
    const struct ranking *r = (const struct ranking *)m;
    const int32_t *order = rank_order(r);
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (int32_t i = 0; i < r->top_n; i++) {
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "index", order[i]);
        jsonw_put_num(&w, "score", (double)rank_score(r, order[i]));
        if (r->shows_texts) jsonw_put_str(&w, "text", r->pairs[order[i]].text);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
}

/* {"data": [{"index", "score"} ...]}, in the order of the request. */
static void put_scores(struct embedding *m, struct sb *out) {
    const struct ranking *r = (const struct ranking *)m;
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "id", server_new_id(m->call->server, &m->call->arena, "score-"));
    jsonw_put_str(&w, "object", STR("list"));
    jsonw_put_str(&w, "model", adapters_model_name(m->call));
    jsonw_open(&w, "data", '[');
    for (int32_t i = 0; i < m->n_inputs; i++) {
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "index", i);
        jsonw_put_str(&w, "object", STR("score"));
        jsonw_put_num(&w, "score", (double)rank_score(r, i));
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    put_usage(&w, m->n_tokens);
    jsonw_end(&w, '}');
}

static int prepare_ranking(struct call *c) {
    static const struct embed_form results = {"documents", put_results, false, false}, list = {"texts", put_list, false, false};
    const struct embed_form *form = json_get(c->body, "texts") && !json_get(c->body, "documents") ? &list : &results;
    struct str query = json_str(c->body, "query", (struct str){0}), *texts;
    int32_t n;
    if (rank_read_texts(c, form->param, false, &texts, &n)) return -1;
    if (!query.p) return api_fail(&c->error, 400, NULL, "query", "query must be a text");
    struct rank_pair *pairs = arena_new(&c->arena, struct rank_pair, n);
    for (int32_t i = 0; i < n; i++) pairs[i] = (struct rank_pair){query, texts[i]};
    return rank_prepare(c, pairs, n, form);
}

/* One query and many texts, or as many of both. */
static int prepare_scores(struct call *c) {
    static const struct embed_form form = {"text_2", put_scores, false, false};
    bool is_newer = json_get(c->body, "queries") != NULL;
    struct str *queries, *texts;
    int32_t n_queries, n;
    if (rank_read_texts(c, is_newer ? "queries" : "text_1", true, &queries, &n_queries)) return -1;
    if (rank_read_texts(c, is_newer ? "documents" : "text_2", true, &texts, &n)) return -1;
    if (n_queries != 1 && n_queries != n)
        return api_fail(&c->error, 400, NULL, form.param, "%d queries and %d texts make no pairs: one query, or as many as texts",
                        n_queries, n);
    struct rank_pair *pairs = arena_new(&c->arena, struct rank_pair, n);
    for (int32_t i = 0; i < n; i++) pairs[i] = (struct rank_pair){queries[n_queries == 1 ? 0 : i], texts[i]};
    return rank_prepare(c, pairs, n, &form);
}

const struct route routes_rerank[] = {
    {"POST", "/rerank", 0, prepare_ranking, embed_start},    {"POST", "/reranking", 0, prepare_ranking, embed_start},
    {"POST", "/v1/rerank", 0, prepare_ranking, embed_start}, {"POST", "/v1/reranking", 0, prepare_ranking, embed_start},
    {"POST", "/v2/rerank", 0, prepare_ranking, embed_start}, {"POST", "/score", 0, prepare_scores, embed_start},
    {"POST", "/v1/score", 0, prepare_scores, embed_start},   {0},
};
