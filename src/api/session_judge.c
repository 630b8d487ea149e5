/* Documents judged by a query: what the model reads, and jobs that the calling thread runs. */
#include "api/session_internal.h"

#include "base/json.h"

/* What the family of rerankers that judges in words was trained with. */
static const char system_text[] =
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can "
    "only be \"yes\" or \"no\".";
static const char usual_instruction[] = "Given a web search query, retrieve relevant passages that answer the query";

void session_judge_words(struct session *s) {
    if (s->judge.kind != JUDGE_NONE || s->judge_why.code) return;
    if (s->model.spec.is_encoder) err_set(&s->judge_why, ERR_EUNSUPPORTED, "the model has no head for judging documents");
    else if (!session_has_template(s))
        err_set(&s->judge_why, ERR_EUNSUPPORTED, "the model has neither a head for judging documents nor a chat template to ask it");
    else judge_read_words(&s->arena, &s->checkpoint, &s->model.spec, s->tok, &s->judge, &s->judge_why);
}

int session_judge(const struct session *s, enum job_pooling *out_pooling, const struct pool_head **out_head, struct err *err) {
    if (s->judge.kind == JUDGE_NONE)
        return err_set(err, ERR_EUNSUPPORTED, "%s", s->judge_why.code ? s->judge_why.msg : "the model has no head for judging documents");
    *out_pooling = s->judge.pooling;
    *out_head = &s->judge.head;
    return ERR_OK;
}

/* ---- what the model reads ---------------------------------------------------------------------------------------------- */

static int encode_pair(const struct session *s, const struct session_question *q, struct tok_ids *out, struct err *err) {
    const struct spec *spec = &s->model.spec;
    struct tok_ids types = {0};
    struct tok_pair pair = {q->query, q->document, (size_t)session_context(s), q->cuts};
    int code = tok_encode_pair(s->tok, &pair, out, &types, err);
    for (size_t i = 0; i < out->n && !code && spec->n_types > 1; i++) out->p[i] += types.p[i] * spec->vocab;
    tok_ids_free(&types);
    return code;
}

static void put_message(struct jsonw *w, const char *role, struct str content) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "role", str_of(role));
    jsonw_put_str(w, "content", content);
    jsonw_end(w, '}');
}

static int encode_chat(const struct session *s, struct arena *a, const struct session_question *q, struct str document, struct tok_ids *out,
                       struct err *err) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    yyjson_val *input;
    struct str instruction = q->instruction.p ? q->instruction : str_of(usual_instruction);
    jsonw_begin(&w, '{');
    jsonw_open(&w, "messages", '[');
    put_message(&w, "system", str_of(system_text));
    put_message(
        &w, "user",
        str_fmt(a, "<Instruct>: %.*s\n<Query>: %.*s\n<Document>: %.*s", STR_ARG(instruction), STR_ARG(q->query), STR_ARG(document)));
    jsonw_end(&w, ']');
    jsonw_put_bool(&w, "add_generation_prompt", true);
    jsonw_put_bool(&w, "enable_thinking", false);
    jsonw_end(&w, '}');
    int code = json_parse(a, str_copy(a, sb_str(&json)), "prompt", JSON_STRICT, &input, err);
    sb_free(&json);
    return code ? code : session_chat_encode(s, a, input, NULL, out, NULL, err);
}

/* A document that is too long is cut at a character, a little shorter until it fits. */
static int encode_words(const struct session *s, struct arena *a, const struct session_question *q, struct tok_ids *out, struct err *err) {
    struct str document = q->document;
    size_t most = (size_t)session_context(s);
    for (;;) {
        out->n = 0;
        TRY(encode_chat(s, a, q, document, out, err));
        if (out->n <= most || !q->cuts || document.n == 0) break;
        size_t n = (size_t)((double)document.n * 0.95 * (double)most / (double)out->n);
        while (n > 0 && ((unsigned char)document.p[n] & 0xC0) == 0x80) n--;
        document.n = n;
    }
    if (out->n <= most) return ERR_OK;
    return err_set(err, ERR_ELIMIT, "the question has %zu tokens, which is too large: the model takes %zu", out->n, most);
}

int session_encode_question(const struct session *s, struct arena *a, const struct session_question *q, int32_t **out, int32_t *out_n,
                            struct err *err) {
    struct tok_ids ids = {0};
    int code = s->judge.kind == JUDGE_WORDS ? encode_words(s, a, q, &ids, err) : encode_pair(s, q, &ids, err);
    if (!code) {
        *out = arena_copy(a, ids.p, ids.n * sizeof *ids.p);
        *out_n = (int32_t)ids.n;
    }
    tok_ids_free(&ids);
    return code;
}

int session_score(struct session *s, const struct session_question *questions, int32_t n, float *out, struct err *err) {
    struct arena a = {0};
    struct job_spec spec = {.rows = ROWS_HIDDEN}, *specs = arena_new(&a, struct job_spec, n + 1);
    int code = session_judge(s, &spec.pooling, &spec.head, err);
    for (int32_t i = 0; i < n && !code; i++) {
        int32_t *ids;
        specs[i] = spec;
        code = session_encode_question(s, &a, &questions[i], &ids, &specs[i].n_tokens, err);
        if (code) err_prefix(err, "document %d", i + 1);
        else specs[i].tokens = ids;
    }
    if (!code) code = session_run_vectors(s, specs, n, 1, out, err);
    arena_free(&a);
    return code;
}
