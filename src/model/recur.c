/* What the recurrent mixers share: the causal convolution, and mixing with the position before. */
#include "model/recur.h"

int recur_conv_resolve(struct resolver *r, int32_t layer, int64_t channels, int32_t taps, struct err *err) {
    r->spec->recur.taps = taps;
    return resolve_state(r, channels * (taps - 1), &r->layers[layer].state, err);
}

/* One tensor for the queries, one for the keys, one for the values; how many channels each has, the file says. */
static int bind_parts(struct loader *l, int32_t layer, int64_t channels, struct weight **out, struct err *err) {
    static const enum role parts[] = {ROLE_CONV_Q, ROLE_CONV_K, ROLE_CONV_V};
    int64_t n = channels * l->spec->recur.taps, at = 0;
    float *values = mem_try((size_t)n * sizeof *values);
    int code = values ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for a convolution");
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !code; i++) {
        struct str path;
        struct tensor_info t;
        if (!loader_find(l, parts[i], layer, &path) || !loader_tensor_values(l, path, -1, &t)) {
            code = loader_missing(l, parts[i], layer, err);
            break;
        }
        int64_t size = loader_tensor_elements(&t, t.n_dims);
        if (size < 1 || size > n - at)
            code = err_set(err, ERR_EFORMAT, "%.*s has %lld elements, expected %lld at most", STR_ARG(t.name), (long long)size,
                           (long long)(n - at));
        if (!code) code = loader_read_f32(l, &t, size, values + at, err);
        at += size;
    }
    if (!code && at != n)
        code =
            err_set(err, ERR_EFORMAT, "the convolutions of layer %d have %lld elements, expected %lld", layer, (long long)at, (long long)n);
    if (!code) code = loader_constant(l, "conv", values, n, out, err);
    mem_free(values);
    return code;
}

int recur_conv_bind(struct loader *l, int32_t layer, int64_t channels, struct err *err) {
    struct str path;
    struct tensor_info t;
    struct bound *b = loader_slot(l, ROLE_CONV, layer);
    if (loader_has(l, ROLE_CONV_Q, layer)) return bind_parts(l, layer, channels, &b->w, err);
    if (!loader_find(l, ROLE_CONV, layer, &path) || !loader_tensor_values(l, path, -1, &t)) return loader_missing(l, ROLE_CONV, layer, err);
    TRY(loader_flat(l, &t, channels * l->spec->recur.taps, &b->w, err));
    return loader_tensor_bias(l, path, -1, &t) ? loader_flat(l, &t, channels, &b->bias, err) : ERR_OK;
}

struct tensor recur_conv(const struct pass *p, struct tensor x, enum act_kind act) {
    const struct bound *w = &p->w[ROLE_CONV];
    return op_conv(
        p->l, x, &(struct conv_args){.weight = w->w, .bias = w->bias, .taps = p->m->spec.recur.taps, .state = p->layer->state, .act = act});
}

bool recur_conv_is_mlx(struct loader *l, int32_t layer) {
    struct str path;
    struct tensor_info t;
    return loader_find(l, ROLE_CONV, layer, &path) && loader_tensor_values(l, path, -1, &t) && t.n_dims == 3 && t.shape[2] == 1 &&
           t.shape[1] > 1;
}

/* The position before is a convolution of two taps. */
int recur_shift_bind(struct loader *l, int32_t layer, struct err *err) {
    int32_t n = l->spec->hidden;
    if (layer >= 0) return ERR_OK;
    float *taps = arena_new(&l->scratch, float, 2 * n);
    for (int32_t i = 0; i < n; i++) taps[2 * i] = 1.0f, taps[2 * i + 1] = 0.0f;
    return loader_constant(l, "shift", taps, 2 * n, &loader_slot(l, ROLE_SHIFT, -1)->w, err);
}

struct shifted recur_shift(const struct pass *p, struct tensor x, int32_t state) {
    struct conv_args args = {.weight = p->m->weights.global[ROLE_SHIFT].w, .taps = 2, .state = p->layer->state + state};
    struct tensor before = op_conv(p->l, x, &args);
    return (struct shifted){before, op_add(p->l, x, before, &(struct add_args){1.0f, -1.0f})};
}

struct tensor recur_mixed(const struct pass *p, struct shifted s, enum role share) {
    return op_add(p->l, s.before, op_mulvec(p->l, s.change, &(struct vec_args){.mul = p->w[share].w}), NULL);
}
