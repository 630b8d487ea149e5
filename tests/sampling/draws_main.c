/* Draws of the sampler for tests/sampling/test_sampling.py: each line of standard input is a JSON object with logits, history,
 * n_prompt, the sampler's parameters by name and what to do; each line of output is the answer.
 *
 *   {"draws": N, "by": "seed"}      how often each token came, over the seeds 1 ... N
 *   {"draws": N, "by": "position"}  the same over positions, with one seed
 *   {"sequence": N}                 N tokens one after another with mirostat's mu behind each, the history growing
 */
#include "base/json.h"
#include "engine/sampler.h"
#include "os/os.h"

#include <math.h>

enum { N_MAX = 1 << 20 };

struct job {
    struct sampler_params p;
    struct sampler_work *work;
    float *logits;
    int32_t *history;
    int32_t vocab, n_history, n_prompt;
    const uint32_t *breakers;
};

static void read_floats(yyjson_val *list, float *out) {
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(list, i, n, item) out[i] = yyjson_is_null(item)  ? -INFINITY
                                                  : yyjson_is_str(item) ? NAN
                                                                        : (float)yyjson_get_num(item);
}

static void read_ids(yyjson_val *list, int32_t *out) {
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(list, i, n, item) out[i] = (int32_t)yyjson_get_int(item);
}

static void read_params(struct arena *a, yyjson_val *root, struct job *j) {
    j->p = sampler_defaults();
    for (size_t i = 0; i < n_sampler_fields; i++) {
        yyjson_val *val = json_get(root, sampler_fields[i].name);
        if (val) sampler_field_set(&j->p, &sampler_fields[i], yyjson_get_num(val));
    }
    yyjson_val *bias = json_get(root, "logit_bias"), *breakers = json_get(root, "breakers"), *item;
    size_t i, n;
    struct sampler_bias *list = arena_new(a, struct sampler_bias, yyjson_arr_size(bias) + 1);
    yyjson_arr_foreach(bias, i, n, item) list[i] =
        (struct sampler_bias){(int32_t)yyjson_get_int(yyjson_arr_get(item, 0)), (float)yyjson_get_num(yyjson_arr_get(item, 1))};
    j->p.bias = list;
    j->p.n_bias = (int32_t)yyjson_arr_size(bias);
    uint32_t *bits = arena_new(a, uint32_t, j->vocab / 32 + 1);
    yyjson_arr_foreach(breakers, i, n, item) bits[yyjson_get_int(item) / 32] |= UINT32_C(1) << (yyjson_get_int(item) % 32);
    j->breakers = bits;
}

static int count_draws(struct arena *a, struct job *j, int64_t n, bool by_seed, double mu, struct sb *out, struct err *err) {
    int64_t *counts = arena_new(a, int64_t, j->vocab);
    for (int64_t i = 1; i <= n; i++) {
        struct sampler_state state = {mu > 0, mu};
        struct sampler_input in = {.logits = j->logits,
                                   .history = j->history,
                                   .n_history = by_seed ? j->n_history : (int32_t)i,
                                   .n_prompt = j->n_prompt,
                                   .breakers = j->breakers,
                                   .state = &state};
        j->p.seed = by_seed ? (uint64_t)i : 12345;
        int32_t token = sampler_choose(j->work, &j->p, &in, NULL, err);
        if (token < 0) return err->code;
        counts[token]++;
    }
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (int32_t i = 0; i < j->vocab; i++) jsonw_int(&w, counts[i]);
    jsonw_end(&w, ']');
    return ERR_OK;
}

static int follow(struct job *j, int32_t n, struct sb *out, struct err *err) {
    struct sampler_state state = {0};
    struct jsonw w = {.out = out};
    j->p.seed = 7;
    jsonw_begin(&w, '[');
    for (int32_t i = 0; i < n; i++) {
        struct sampler_input in = {.logits = j->logits,
                                   .history = j->history,
                                   .n_history = j->n_history,
                                   .n_prompt = j->n_prompt,
                                   .breakers = j->breakers,
                                   .state = &state};
        int32_t token = sampler_choose(j->work, &j->p, &in, NULL, err);
        if (token < 0) return err->code;
        j->history[j->n_history++] = token;
        jsonw_begin(&w, '[');
        jsonw_int(&w, token);
        jsonw_num(&w, state.mu);
        jsonw_end(&w, ']');
    }
    jsonw_end(&w, ']');
    return ERR_OK;
}

static int answer(struct arena *a, yyjson_val *root, struct sb *out, struct err *err) {
    yyjson_val *logits = json_get(root, "logits"), *history = json_get(root, "history");
    int64_t n = json_int(root, "draws", 0), n_sequence = json_int(root, "sequence", 0);
    struct job j = {.vocab = (int32_t)yyjson_arr_size(logits), .n_history = (int32_t)yyjson_arr_size(history)};
    if (j.vocab < 1 || j.vocab > N_MAX || n > N_MAX || n_sequence > N_MAX) return err_set(err, ERR_EARG, "bad size");
    j.logits = arena_new(a, float, j.vocab);
    j.history = arena_new(a, int32_t, j.n_history + N_MAX + 1);
    j.n_prompt = (int32_t)json_int(root, "n_prompt", 0);
    read_floats(logits, j.logits);
    read_ids(history, j.history);
    read_params(a, root, &j);
    TRY(sampler_check(&j.p, j.vocab, err));
    j.work = sampler_work_create(j.vocab);
    int code = n_sequence ? follow(&j, (int32_t)n_sequence, out, err)
                          : count_draws(a, &j, n, str_is(json_str(root, "by", STR("seed")), "seed"), json_num(root, "mu", 0), out, err);
    sampler_work_destroy(j.work);
    return code;
}

int main(void) {
    struct sb line = {0}, out = {0};
    bool is_there;
    os_console_init();
    while (os_read_line(&line, &is_there, NULL) == 0 && is_there) {
        struct arena a = {0};
        struct err err = {0};
        yyjson_val *root;
        sb_clear(&out);
        int code = json_parse(&a, sb_str(&line), "line", JSON_STRICT, &root, &err);
        if (!code) code = answer(&a, root, &out, &err);
        if (code) {
            sb_clear(&out);
            json_quote(&out, str_of(err.msg));
        }
        sb_putc(&out, '\n');
        os_write(OS_STDOUT, sb_str(&out), NULL);
        arena_free(&a);
    }
    sb_free(&line);
    sb_free(&out);
    return 0;
}
