/* Attention with embeddings of distances: a query is multiplied by the key's side of the distance, and a key by the query's side. The embeddings go through
 * the layer's own projections once, when the model is loaded. */
#include "base/fmath.h"
#include "model/mixer.h"

/* Distances near 0 count one by one, those farther away by their logarithm. */
static int32_t bucket_of(const struct spec *s, int32_t distance) {
    int32_t span = s->relative.span, mid = span / 2, steps = distance < 0 ? -distance : distance, n = distance;
    if (s->relative.is_log && steps > mid) {
        float grown = m_logf((float)steps / (float)mid) / m_logf((float)(s->relative.reach - 1) / (float)mid) * (float)(mid - 1);
        n = (int32_t)ceil((double)grown) + mid;
        if (distance < 0) n = -n;
    }
    n += span;
    return n < 0 ? 0 : n > 2 * span - 1 ? 2 * span - 1 : n;
}

/* The column of each distance, from the farthest key before a row to the farthest behind it. */
static int bind_buckets(struct loader *l, struct err *err) {
    const struct spec *s = l->spec;
    int32_t n = 2 * s->context + 1;
    float *columns = arena_new(&l->scratch, float, n);
    for (int32_t i = 0; i < n; i++) columns[i] = (float)bucket_of(s, s->context - i);
    bool is_absent = l->is_absent;
    l->is_absent = false; /* a rank without the first layer may have others */
    int code = loader_constant(l, "buckets", columns, n, &loader_slot(l, ROLE_RELATIVE, -1)->w, err);
    l->is_absent = is_absent;
    return code;
}

static int read_embeddings(struct loader *l, float *out, struct err *err) {
    const struct spec *s = l->spec;
    int64_t width = s->hidden, n = 2 * (int64_t)s->relative.span;
    TRY(loader_values(l, ROLE_RELATIVE, -1, ".weight", n * width, out, err));
    if (!s->relative.has_norm) return ERR_OK;
    float *weight = arena_new(&l->scratch, float, width), *bias = arena_new(&l->scratch, float, width);
    TRY(loader_values(l, ROLE_RELATIVE_NORM, -1, ".weight", width, weight, err));
    TRY(loader_values(l, ROLE_RELATIVE_NORM, -1, ".bias", width, bias, err));
    for (int64_t i = 0; i < n; i++) {
        float *x = out + i * width;
        double mean = 0, square = 0;
        for (int64_t k = 0; k < width; k++) mean += (double)x[k] / (double)width;
        for (int64_t k = 0; k < width; k++) square += ((double)x[k] - mean) * ((double)x[k] - mean) / (double)width;
        double scale = 1 / sqrt(square + (double)s->norm.eps);
        for (int64_t k = 0; k < width; k++) x[k] = (float)(((double)x[k] - mean) * scale * (double)weight[k] + (double)bias[k]);
    }
    return ERR_OK;
}

/* Memory for one layer: the loader's own scratch is emptied between weights. */
struct work {
    float *embeddings; /* [2 span][hidden] */
    float *w, *b;      /* a projection */
    float *out;        /* [heads][2 span][width of a head] */
};

/* The embeddings through one projection, as a matrix [columns, width of a head] for each head. */
static int bind_side(struct loader *l, enum role projection, enum role into, int32_t layer, const struct work *m, struct err *err) {
    const struct spec *s = l->spec;
    const struct attn_spec *a = &s->layers[layer].attn;
    int64_t width = s->hidden, rows = (int64_t)a->heads * a->k_width, n = 2 * (int64_t)s->relative.span;
    enum dtype dtype;
    struct stack_part part = {.role = projection, .out = rows};
    TRY(loader_unpack(l, &(struct matrix_args){.into = projection, .layer = layer, .parts = &part, .n_parts = 1, .in = width}, m->w, &dtype,
                      err));
    TRY(loader_values(l, projection, layer, ".bias", rows, m->b, err));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            double sum = (double)m->b[r];
            for (int64_t k = 0; k < width; k++) sum += (double)m->w[r * width + k] * (double)m->embeddings[i * width + k];
            m->out[(r / a->k_width * n + i) * a->k_width + r % a->k_width] = (float)sum;
        }
    struct weight_source shape = {.name = "relative", .format = {.dtype = DT_F32}, .n_experts = a->heads, .out = n, .in = a->k_width};
    return loader_made(l, &shape, m->out, &loader_slot(l, into, layer)->w, err);
}

int relative_bind(struct loader *l, int32_t layer, struct err *err) {
    const struct spec *s = l->spec;
    const struct attn_spec *a = &s->layers[layer].attn;
    if (s->relative.span == 0) return ERR_OK;
    if (layer == 0) TRY(bind_buckets(l, err));
    int64_t width = s->hidden, rows = (int64_t)a->heads * a->k_width, n = 2 * (int64_t)s->relative.span;
    float *all = mem_try((size_t)(n * width + rows * width + rows + rows * n) * sizeof *all);
    if (!all) return err_set(err, ERR_EMEMORY, "no memory for the embeddings of distances");
    struct work m = {all, all + n * width, all + n * width + rows * width, all + n * width + rows * width + rows};
    int code = read_embeddings(l, m.embeddings, err);
    if (!code) code = bind_side(l, ROLE_K, ROLE_RELATIVE_ROW, layer, &m, err);
    if (!code) code = bind_side(l, ROLE_Q, ROLE_RELATIVE_KEY, layer, &m, err);
    mem_free(all);
    return code;
}

struct tensor relative_attend(const struct pass *p, struct tensor q, struct tensor k, const struct attn_args *usual) {
    struct attn_args attn = *usual;
    attn.buckets = p->m->weights.global[ROLE_RELATIVE].w;
    attn.farthest = p->m->spec.context;
    struct tensor by_row = op_head_linear(p->l, q, &(struct linear_args){.weight = p->w[ROLE_RELATIVE_ROW].w});
    struct tensor by_key = op_head_linear(p->l, k, &(struct linear_args){.weight = p->w[ROLE_RELATIVE_KEY].w});
    return op_attn_relative(p->l, q, by_row, by_key, &attn);
}
