/* Prompts from JSON. */
#include "server/prompts.h"

struct reader {
    struct call *call;
    const struct prompt_rules *rules;
    struct tok_list {
        int32_t *p;
        size_t n, capacity;
    } ids; /* of the prompt that is being read */
};

static int fail(struct reader *r) {
    const char *param = r->rules->param;
    return api_fail(&r->call->error, 400, NULL, param,
                    "%s must be a string, a list of strings, a list of token ids, or a list of those; none empty", param);
}

static void put_ids(struct reader *r, const int32_t *ids, size_t n) {
    struct tok_list *l = &r->ids;
    if (l->n + n > l->capacity) {
        l->capacity = (l->n + n) * 2;
        l->p = mem_realloc(l->p, l->capacity * sizeof *l->p);
    }
    memcpy(l->p + l->n, ids, n * sizeof *ids);
    l->n += n;
}

/* Only a text that a prompt begins with gets what the model wants at the beginning. */
static int put_text(struct reader *r, struct str text) {
    unsigned flags = r->rules->encoding & ~(r->ids.n ? (unsigned)SERVICE_ADD_SPECIAL : 0u);
    if (r->rules->before.n && r->ids.n == 0) text = str_fmt(&r->call->arena, "%.*s%.*s", STR_ARG(r->rules->before), STR_ARG(text));
    struct service_ids ids;
    struct err err;
    if (service_encode(r->call->service, &r->call->arena, text, flags, &ids, &err))
        return api_fail_err(&r->call->error, &err, r->rules->param);
    if (ids.n == 0 && r->ids.n == 0 && r->rules->takes_empty &&
        service_encode(r->call->service, &r->call->arena, STR(" "), flags, &ids, &err))
        return api_fail_err(&r->call->error, &err, r->rules->param);
    put_ids(r, ids.p, (size_t)ids.n);
    return 0;
}

static int put_id(struct reader *r, yyjson_val *val) {
    int32_t vocab = service_info(r->call->service)->vocab, token;
    int64_t id;
    if (!json_val_int(val, &id)) return fail(r);
    if (id < 0 || id >= vocab)
        return api_fail(&r->call->error, 400, NULL, r->rules->param, "%s: token %lld is outside the vocabulary of %d", r->rules->param,
                        (long long)id, vocab);
    token = (int32_t)id;
    put_ids(r, &token, 1);
    return 0;
}

static int put_list(struct reader *r, yyjson_val *list) {
    yyjson_val *item;
    size_t i, n;
    yyjson_arr_foreach(list, i, n, item) {
        if (yyjson_is_str(item) ? put_text(r, json_val_str(item)) : put_id(r, item)) return -1;
    }
    return 0;
}

/* {"prompt_string": text}, or {"content": [{"type": "text", "text": text} ...]}. */
static int put_object(struct reader *r, yyjson_val *val) {
    struct str text = json_str(val, "prompt_string", (struct str){0});
    yyjson_val *content = json_get(val, "content"), *media = json_get(val, "multimodal_data"), *part;
    struct sb joined = {0};
    size_t i, n;
    if (media && !yyjson_is_null(media))
        return api_fail(&r->call->error, 400, "unsupported_value", r->rules->param,
                        "%s: this model takes no images or sounds (multimodal_data)", r->rules->param);
    if (text.p) return put_text(r, text);
    int code = yyjson_arr_size(content) == 0 ? fail(r) : 0;
    yyjson_arr_foreach(content, i, n, part) {
        text = json_str(part, "text", (struct str){0});
        if (!code && (!str_is(json_str(part, "type", STR("")), "text") || !text.p))
            code = api_fail(&r->call->error, 400, NULL, r->rules->param, "%s: every part must be a text; this model takes nothing else",
                            r->rules->param);
        if (!code) sb_put(&joined, text);
    }
    if (!code) code = put_text(r, sb_str(&joined));
    sb_free(&joined);
    return code;
}

static int read_one(struct reader *r, yyjson_val *val, struct gen_prompt *out) {
    struct sb text = {0};
    struct err err;
    r->ids.n = 0;
    int code = yyjson_is_str(val)   ? put_text(r, json_val_str(val))
               : yyjson_is_arr(val) ? put_list(r, val)
               : yyjson_is_obj(val) ? put_object(r, val)
                                    : fail(r);
    if (code) return code;
    bool is_empty = yyjson_is_str(val) && yyjson_get_len(val) == 0 && !r->rules->takes_empty;
    if (r->ids.n == 0 || r->ids.n > INT32_MAX || is_empty) return fail(r);
    out->ids.p = arena_copy(&r->call->arena, r->ids.p, r->ids.n * sizeof *r->ids.p);
    out->ids.n = (int32_t)r->ids.n;
    if (yyjson_is_str(val)) {
        out->text = json_val_str(val);
    } else if (r->rules->wants_text) {
        if (service_decode(r->call->service, out->ids.p, out->ids.n, &text, &err) == ERR_OK)
            out->text = str_copy(&r->call->arena, sb_str(&text));
        sb_free(&text);
    }
    return 0;
}

/* A list with a number in it is one prompt, any other a list of prompts. */
static bool is_many(yyjson_val *val) {
    yyjson_val *item;
    size_t i, n;
    if (!yyjson_is_arr(val) || yyjson_arr_size(val) == 0) return false;
    yyjson_arr_foreach(val, i, n, item) if (yyjson_is_num(item)) return false;
    return true;
}

int prompts_read(struct call *c, yyjson_val *val, const struct prompt_rules *rules, struct gen_prompt **out, int32_t *out_n) {
    struct reader r = {.call = c, .rules = rules};
    bool many = is_many(val);
    size_t i, n = many ? yyjson_arr_size(val) : 1;
    yyjson_val *item;
    int code = 0;
    if (n > (size_t)rules->n_max)
        return api_fail(&c->error, 400, NULL, rules->param, "%s takes at most %d at once", rules->param, (int)rules->n_max);
    *out = arena_new(&c->arena, struct gen_prompt, n);
    if (!many) {
        code = read_one(&r, val, *out);
    } else {
        yyjson_arr_foreach(val, i, n, item) if (!code) code = read_one(&r, item, &(*out)[i]);
    }
    *out_n = (int32_t)n;
    mem_free(r.ids.p);
    return code;
}
