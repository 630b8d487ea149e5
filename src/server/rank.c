/* Pairs of texts to scores. */
#include "server/rank.h"

#include "server/fields.h"
#include "server/server_internal.h"

enum { PAIRS_MAX = 2048 };

/* What would change the scores or their form, and values that ask for nothing. */
static const struct {
    const char *name, *harmless;
} refused[] = {
    {"raw_scores", "false"},      {"use_activation", "true"},   {"activation", "true"},           {"rank_fields", NULL},
    {"max_tokens_per_doc", NULL}, {"max_chunks_per_doc", NULL}, {"truncate_prompt_tokens", NULL}, {"truncation_direction", "right|Right"},
    {"chat_template", NULL}};

static int refuse_fields(struct call *c) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        yyjson_val *val = json_get(c->body, refused[i].name);
        if (!val || fields_is_harmless(val, refused[i].harmless)) continue;
        return api_fail(&c->error, 400, "unsupported_parameter", refused[i].name, "%s is not supported; leave it out", refused[i].name);
    }
    return 0;
}

static int fail_texts(struct call *c, const char *field) {
    return api_fail(&c->error, 400, NULL, field, "%s must be a list of at least one text", field);
}

int rank_read_texts(struct call *c, const char *field, bool takes_one, struct str **out, int32_t *out_n) {
    yyjson_val *list = json_get(c->body, field), *item;
    size_t i, n;
    bool is_one = takes_one && yyjson_is_str(list);
    *out_n = is_one ? 1 : (int32_t)yyjson_arr_size(list);
    if (*out_n < 1) return fail_texts(c, field);
    if (*out_n > PAIRS_MAX) return api_fail(&c->error, 400, NULL, field, "%s takes at most %d texts at once", field, PAIRS_MAX);
    *out = arena_new(&c->arena, struct str, *out_n);
    if (is_one) (*out)[0] = json_val_str(list);
    yyjson_arr_foreach(list, i, n, item) {
        struct str text = yyjson_is_obj(item) ? json_str(item, "text", (struct str){0}) : json_val_str(item);
        if (!text.p) return fail_texts(c, field);
        (*out)[i] = text;
    }
    return 0;
}

static int read_options(struct call *c, struct ranking *r) {
    yyjson_val *top_n = json_get(c->body, "top_n"), *instruction = json_get(c->body, "instruction");
    int64_t n;
    if (refuse_fields(c)) return -1;
    if (top_n && !yyjson_is_null(top_n)) {
        if (!json_val_int(top_n, &n) || n < 1) return api_fail(&c->error, 400, NULL, "top_n", "top_n must be a whole number above 0");
        if (n < r->top_n) r->top_n = (int32_t)n;
    }
    if (instruction && !yyjson_is_null(instruction) && !yyjson_is_str(instruction))
        return api_fail(&c->error, 400, NULL, "instruction", "instruction must be a text");
    r->shows_texts = json_bool(c->body, "return_documents", json_bool(c->body, "return_text", false));
    return 0;
}

static int encode_pairs(struct call *c, struct ranking *r) {
    struct session_question q = {.instruction = json_str(c->body, "instruction", (struct str){0}),
                                 .cuts = json_bool(c->body, "truncate", false)};
    struct err err;
    for (int32_t i = 0; i < r->m.n_inputs; i++) {
        q.query = r->pairs[i].query;
        q.document = r->pairs[i].text;
        if (service_encode_question(c->service, &c->arena, &q, &r->m.inputs[i].ids, &err)) {
            err_prefix(&err, "text %d", i);
            return api_fail_err(&c->error, &err, r->m.form->param);
        }
    }
    return 0;
}

int rank_prepare(struct call *c, const struct rank_pair *pairs, int32_t n, const struct embed_form *form) {
    struct ranking *r = arena_new(&c->arena, struct ranking, 1);
    struct err err;
    c->state = r;
    r->pairs = pairs;
    r->top_n = n;
    r->m = (struct embedding){.call = c, .form = form, .n_inputs = n, .width = 1, .how = {.width = 1}};
    if (read_options(c, r)) return -1;
    if (service_judge(c->service, &r->m.how.pooling, &r->m.how.head, &err))
        return api_fail(&c->error, 501, NULL, NULL, "%s cannot rank texts: %s", service_info(c->service)->name, err.msg);
    r->m.inputs = embed_inputs(c, &r->m);
    return encode_pairs(c, r);
}

float rank_score(const struct ranking *r, int32_t i) {
    return r->m.inputs[i].vectors[0];
}

/* Of equal scores the first text comes first. */
const int32_t *rank_order(const struct ranking *r) {
    int32_t n = r->m.n_inputs, *order = arena_new(&r->m.call->arena, int32_t, n);
    for (int32_t i = 0; i < n; i++) {
        int32_t at = i;
        for (; at > 0 && rank_score(r, order[at - 1]) < rank_score(r, i); at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}
