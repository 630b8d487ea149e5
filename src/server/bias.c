/* What is added to the logits of tokens. */
#include "server/bias.h"

static const char field[] = "logit_bias";

struct bias_list {
    struct arena *arena;
    struct params *params;
    struct sampler_bias *items; /* [SAMPLER_BIAS_MAX] */
};

static int read_value(yyjson_val *val, float *out, struct api_error *e) {
    double by = yyjson_is_false(val) ? -1e6 : yyjson_get_num(val);
    if (!yyjson_is_false(val) && (!yyjson_is_num(val) || !(by >= -100 && by <= 100)))
        return api_fail(e, 400, NULL, field, "%s: every value must be a number between -100 and 100, or false", field);
    *out = (float)by;
    return 0;
}

static int add(struct bias_list *l, int64_t id, float by, struct api_error *e) {
    struct sampler_params *s = &l->params->job.sampling;
    if (id < 0 || id >= l->params->vocab)
        return api_fail(e, 400, NULL, field, "%s: token %lld is outside the vocabulary of %d", field, (long long)id, l->params->vocab);
    if (s->n_bias == SAMPLER_BIAS_MAX) return api_fail(e, 400, NULL, field, "%s takes at most %d tokens", field, SAMPLER_BIAS_MAX);
    l->items[s->n_bias++] = (struct sampler_bias){(int32_t)id, by};
    return 0;
}

/* Every token of a text. */
static int add_word(struct bias_list *l, struct str word, float by, struct api_error *e) {
    struct service_ids ids;
    struct err err;
    if (!l->params->service) return api_fail(e, 400, NULL, field, "%s: every key must be a token id", field);
    if (service_encode(l->params->service, l->arena, word, 0, &ids, &err)) return api_fail_err(e, &err, field);
    for (int32_t i = 0; i < ids.n; i++)
        if (add(l, ids.p[i], by, e)) return -1;
    return 0;
}

static int add_pair(struct bias_list *l, yyjson_val *pair, struct api_error *e) {
    yyjson_val *key = yyjson_arr_get(pair, 0);
    float by;
    int64_t id;
    if (yyjson_arr_size(pair) != 2 || (!yyjson_is_str(key) && !json_val_int(key, &id)))
        return api_fail(e, 400, NULL, field, "%s: every entry of a list must be a pair of a token id or a text and a number", field);
    if (read_value(yyjson_arr_get(pair, 1), &by, e)) return -1;
    return yyjson_is_str(key) ? add_word(l, json_val_str(key), by, e) : add(l, id, by, e);
}

static int add_member(struct bias_list *l, struct str key, yyjson_val *val, struct api_error *e) {
    float by;
    int64_t id;
    if (read_value(val, &by, e)) return -1;
    return str_to_int64(key, &id) ? add(l, id, by, e) : add_word(l, key, by, e);
}

int bias_read(struct arena *a, yyjson_val *list, struct params *p, struct api_error *e) {
    yyjson_val *key, *val;
    size_t i, n;
    if (!list) return 0;
    if (!yyjson_is_obj(list) && !yyjson_is_arr(list))
        return api_fail(e, 400, NULL, field, "%s must be an object of token ids and numbers, or a list of pairs of them", field);
    if ((yyjson_is_obj(list) ? yyjson_obj_size(list) : yyjson_arr_size(list)) > SAMPLER_BIAS_MAX)
        return api_fail(e, 400, NULL, field, "%s takes at most %d tokens", field, SAMPLER_BIAS_MAX);
    struct bias_list l = {a, p, arena_new(a, struct sampler_bias, SAMPLER_BIAS_MAX)};
    p->job.sampling.bias = l.items;
    if (yyjson_is_obj(list)) {
        yyjson_obj_foreach(list, i, n, key, val) if (add_member(&l, json_val_str(key), val, e)) return -1;
    } else {
        yyjson_arr_foreach(list, i, n, val) if (add_pair(&l, val, e)) return -1;
    }
    return 0;
}
