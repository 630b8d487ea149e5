/* Tokens by their ids, and words that become tokens. */
#include "server/token_fields.h"

enum { IDS_MAX = 65536, WORDS_MAX = 256 };

/* *out is NULL where the field is absent or empty. */
static int read_ids(struct arena *a, yyjson_val *body, const char *name, const struct params *p, const int32_t **out, int32_t *out_n,
                    struct api_error *e) {
    yyjson_val *list = json_get(body, name), *item;
    size_t i, n = yyjson_arr_size(list);
    if (!list || yyjson_is_null(list) || (yyjson_is_arr(list) && n == 0)) return 0;
    if (!yyjson_is_arr(list) || n > IDS_MAX)
        return api_fail(e, 400, NULL, name, "%s must be a list of at most %d token ids", name, IDS_MAX);
    int32_t *ids = arena_new(a, int32_t, n);
    yyjson_arr_foreach(list, i, n, item) {
        int64_t id;
        if (!json_val_int(item, &id) || id < 0 || id >= p->vocab)
            return api_fail(e, 400, NULL, name, "%s: every entry must be a token id below %d", name, p->vocab);
        ids[i] = (int32_t)id;
    }
    *out = ids;
    *out_n = (int32_t)n;
    return 0;
}

/* A word has other tokens at the beginning of a text than behind a space: both are meant. */
static int add_word(struct arena *a, struct str word, const struct params *p, struct job_words *out, struct api_error *e) {
    struct str forms[2] = {word, str_fmt(a, " %.*s", STR_ARG(str_trim(word)))};
    for (int i = 0; i < 2; i++) {
        struct service_ids ids;
        struct err err;
        if (service_encode(p->service, a, forms[i], 0, &ids, &err)) return api_fail_err(e, &err, "bad_words");
        out[i] = (struct job_words){ids.p, ids.n};
    }
    return 0;
}

static int read_words(struct arena *a, yyjson_val *body, struct params *p, struct api_error *e) {
    static const char name[] = "bad_words";
    yyjson_val *list = json_get(body, name), *item;
    size_t i, n = yyjson_arr_size(list);
    if (!list || yyjson_is_null(list) || (yyjson_is_arr(list) && n == 0)) return 0;
    if (!yyjson_is_arr(list) || n > WORDS_MAX || !p->service)
        return api_fail(e, 400, NULL, name, "%s must be a list of at most %d words", name, WORDS_MAX);
    struct job_words *words = arena_new(a, struct job_words, 2 * n);
    yyjson_arr_foreach(list, i, n, item) {
        struct str word = json_val_str(item);
        if (str_trim(word).n == 0 || word.n > PARAMS_STOP_BYTES_MAX)
            return api_fail(e, 400, NULL, name, "%s: every entry must be a word of at most %d bytes", name, PARAMS_STOP_BYTES_MAX);
        if (add_word(a, word, p, &words[2 * i], e)) return -1;
    }
    p->job.bad_words = words;
    p->job.n_bad_words = (int32_t)(2 * n);
    return 0;
}

int token_fields_read(struct arena *a, yyjson_val *body, struct params *p, struct api_error *e) {
    return read_ids(a, body, "stop_token_ids", p, &p->job.end_tokens, &p->job.n_end_tokens, e) ||
           read_ids(a, body, "allowed_token_ids", p, &p->job.allowed, &p->job.n_allowed, e) || read_words(a, body, p, e);
}
