/* Text for a service, on the caller's thread: the tokenizer and the template do not change once they are loaded. */
#include "api/service_internal.h"

static int take_ids(struct arena *a, struct tok_ids *ids, int code, struct service_ids *out, struct err *err) {
    if (!code && ids->n > INT32_MAX) code = err_set(err, ERR_ELIMIT, "the text has too many tokens");
    if (!code) {
        out->p = arena_copy(a, ids->p, ids->n * sizeof *ids->p);
        out->n = (int32_t)ids->n;
    }
    tok_ids_free(ids);
    return code;
}

int service_encode(const struct service *s, struct arena *a, struct str text, unsigned flags, struct service_ids *out, struct err *err) {
    struct tok_ids ids = {0};
    unsigned how =
        (flags & SERVICE_ADD_SPECIAL ? TOK_ADD_SPECIAL | TOK_ADD_BOS : 0) | (flags & SERVICE_PARSE_SPECIAL ? TOK_PARSE_SPECIAL : 0);
    return take_ids(a, &ids, tok_encode(s->session->tok, text, how, &ids, err), out, err);
}

int32_t service_token_id(const struct service *s, struct str token) {
    return tok_id_of(s->session->tok, token);
}

struct str service_template(const struct service *s) {
    return session_has_template(s->session) ? chat_template_text(s->session->chat, false) : STR("");
}

int service_encode_chat(const struct service *s, struct arena *a, yyjson_val *input, struct service_ids *out, struct str *out_text,
                        struct err *err) {
    struct tok_ids ids = {0};
    return take_ids(a, &ids, session_chat_encode(s->session, a, input, NULL, &ids, out_text, err), out, err);
}

int service_pictures(struct service *s, struct arena *a, const struct str *files, size_t n, struct service_pictures *out, struct err *err) {
    struct session_pictures *encoded = arena_new(a, struct session_pictures, 1);
    out->encoded = encoded;
    return session_pictures_make(s->session, a, files, n, encoded, err);
}

int service_encode_pictures(const struct service *s, struct arena *a, yyjson_val *input, const struct service_pictures *pictures,
                            struct service_ids *out, struct str *out_text, struct job_spec *job, struct err *err) {
    struct tok_ids ids = {0};
    TRY(take_ids(a, &ids, session_chat_encode(s->session, a, input, pictures->encoded, &ids, out_text, err), out, err));
    if (!pictures->encoded) return ERR_OK;
    struct job_spec prompt = {.tokens = out->p, .n_tokens = out->n};
    TRY(session_pictures_attach(s->session, a, pictures->encoded, &prompt, err));
    job->pictures = prompt.pictures;
    job->n_pictures = prompt.n_pictures;
    job->states = prompt.states;
    job->places = prompt.places;
    return ERR_OK;
}

bool service_thinks(const struct service *s, struct str prompt) {
    return output_reasoning_is_open(s->session->reasoning, prompt);
}

bool service_thinks_inside(const struct service *s, struct str text) {
    return output_reasoning_goes_on(s->session->reasoning, text);
}

bool service_may_think(const struct service *s, struct str prompt) {
    return !str_ends(str_trim(prompt), output_reasoning_close(NULL, s->session->reasoning));
}

int service_prepare_constraint(struct service *s, const struct constraint_source *source, struct sb *warnings, struct err *err) {
    return engine_prepare_constraint(s->session->engine, source, warnings, err);
}

int service_decode(const struct service *s, const int32_t *ids, int32_t n, struct sb *out, struct err *err) {
    return tok_decode(s->session->tok, ids, (size_t)n, false, out, err);
}

struct str service_token_bytes(const struct service *s, int32_t id) {
    struct str bytes = tok_token_bytes(s->session->tok, id);
    return bytes.p ? bytes : STR("");
}

struct str service_token_text(const struct service *s, int32_t id) {
    return tok_is_special(s->session->tok, id) ? tok_token_text(s->session->tok, id) : service_token_bytes(s, id);
}

int service_embedding(const struct service *s, enum session_pooling wanted, struct str prompt, struct session_embedding *out,
                      struct err *err) {
    return session_embedding(s->session, wanted, prompt, out, err);
}

int service_judge(const struct service *s, enum job_pooling *out_pooling, const struct pool_head **out_head, struct err *err) {
    return session_judge(s->session, out_pooling, out_head, err);
}

int service_encode_embedding(const struct service *s, struct arena *a, const struct session_embedding *how, struct str text,
                             struct service_ids *out, struct err *err) {
    struct tok_ids ids = {0};
    return take_ids(a, &ids, session_encode_embedding(s->session, how, text, &ids, err), out, err);
}

void service_cut(const struct service *s, struct service_ids *ids, int32_t most) {
    ids->n = session_cut(s->session, ids->p, ids->n, most);
}

int service_encode_question(const struct service *s, struct arena *a, const struct session_question *q, struct service_ids *out,
                            struct err *err) {
    return session_encode_question(s->session, a, q, &out->p, &out->n, err);
}
