/* Adapters beside the weights: small matrices of the adapters' files, bound for the parts that a weight was put together from.
 *
 * They are not added to the weights: those may be quantised, and rows of one step may have different adapters. Rows of `up` are picked as the weight's
 * own rows were, so that fused, split and woven projections need nothing of their own. Everything is f32. */
#include "model/weights.h"

#include <math.h>

/* The path behind the prefix of layers, or of the head: an adapter may have been made for a checkpoint with another one. */
static struct str module_of(const struct loader *l, struct str path) {
    if (l->prefix.n && str_starts(path, l->prefix)) return str_from(path, l->prefix.n);
    if (l->head_prefix.n && str_starts(path, l->head_prefix)) return str_from(path, l->head_prefix.n);
    return path;
}

static int bind_numbers(struct loader *l, const struct adapter_module *m, const float *values, int64_t n, const struct weight **out,
                        struct err *err) {
    struct weight *w;
    TRY(loader_constant(l, str_cstr(l->arena, m->path), values, n, &w, err));
    *out = w;
    return ERR_OK;
}

/* g - 1, where g is what the magnitude makes of a row: magnitude / |W + up down|; up is multiplied by g. */
static int bind_gain(struct loader *l, const struct adapter_module *m, const struct adapted_part *p, const float *down, float *up,
                     struct adapt_part *out, struct err *err) {
    float *magnitude = mem_alloc((size_t)m->out * sizeof *magnitude), *row = mem_alloc((size_t)m->in * sizeof *row);
    float *gain = mem_alloc((size_t)p->n * sizeof *gain);
    int code = adapter_read_magnitude(m, magnitude, err);
    for (int64_t i = 0; i < p->n && !code; i++) {
        double sum = 0;
        code = p->unpack(p->user, i, row, err);
        for (int64_t c = 0; c < m->in && !code; c++) {
            double value = row[c];
            for (int32_t k = 0; k < m->rank; k++) value += (double)up[i * m->rank + k] * down[k * m->in + c];
            sum += value * value;
        }
        float g = (float)(magnitude[p->row(p->user, i)] / sqrt(sum));
        if (!code && !isfinite(g)) code = err_set(err, ERR_EFORMAT, "a row of %.*s has no length for its magnitude", STR_ARG(m->path));
        for (int32_t k = 0; k < m->rank; k++) up[i * m->rank + k] *= g;
        gain[i] = g - 1;
    }
    if (!code) code = bind_numbers(l, m, gain, p->n, &out->gain, err);
    mem_free(magnitude);
    mem_free(row);
    mem_free(gain);
    return code;
}

static int bind_part(struct loader *l, int32_t adapter, struct adapter_module *m, const struct adapted_part *p, struct adapt_part *out,
                     struct err *err) {
    const char *path = l->adapters[adapter].path;
    if (m->is_embedding != p->is_embedding)
        return err_set(err, ERR_EUNSUPPORTED, "%s: %.*s is %s embedding, and the model's is not so", path, STR_ARG(m->path),
                       m->is_embedding ? "an" : "no");
    int64_t in = m->is_embedding ? p->of : p->in, of = m->is_embedding ? p->in : p->of, n = m->is_embedding ? p->in : p->n;
    if (m->in != in || m->out != of)
        return err_set(err, ERR_EFORMAT, "%s: %.*s goes from %lld to %lld, and the model's from %lld to %lld", path, STR_ARG(m->path),
                       (long long)m->in, (long long)m->out, (long long)in, (long long)of);
    float *down = mem_try((size_t)(m->rank * m->in) * sizeof *down), *all = mem_try((size_t)(m->rank * m->out) * sizeof *all);
    float *up = mem_try((size_t)(m->rank * n) * sizeof *up);
    int code = down && all && up ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(m->path));
    *out = (struct adapt_part){.adapter = adapter, .rank = m->rank, .in = m->in, .out = n, .first = m->is_embedding ? 0 : p->first};
    if (!code) code = adapter_read_down(m, down, err);
    if (!code) code = adapter_read_up(m, all, err);
    for (int64_t i = 0; i < n && !code; i++)
        memcpy(up + i * m->rank, all + (m->is_embedding ? i : p->row(p->user, i)) * m->rank, (size_t)m->rank * sizeof *up);
    if (!code && m->magnitude) code = bind_gain(l, m, p, down, up, out, err);
    if (!code) code = bind_numbers(l, m, down, (int64_t)m->rank * m->in, &out->down, err);
    if (!code) code = bind_numbers(l, m, up, (int64_t)m->rank * n, &out->up, err);
    m->is_used = true;
    mem_free(down);
    mem_free(all);
    mem_free(up);
    return code;
}

int adapt_weight(struct loader *l, struct weight *w, const struct adapted_part *parts, int32_t n_parts, struct err *err) {
    struct adapt_part *list = arena_new(l->arena, struct adapt_part, (int64_t)l->n_adapters * n_parts);
    struct adapt_site *site = arena_new(l->arena, struct adapt_site, 1);
    for (int32_t a = 0; a < l->n_adapters; a++)
        for (int32_t i = 0; i < n_parts; i++) {
            struct adapter_module *m = adapter_find(&l->adapters[a], module_of(l, parts[i].path));
            if (!m) continue;
            struct adapt_part *p = &list[site->n_parts++];
            TRY(bind_part(l, a, m, &parts[i], p, err));
            site->n_hidden += p->rank;
        }
    site->parts = list;
    site->by_token = n_parts && parts[0].is_embedding;
    if (site->n_parts) w->adapters = site;
    return ERR_OK;
}

static int64_t same_row(const void *user, int64_t i) {
    (void)user;
    return i;
}

/* As mlx-lm has it, what is added to an embedding counts for the head, too, the other way round. */
static int bind_turned(struct loader *l, int32_t adapter, const struct adapter_module *m, struct adapt_part *out, struct err *err) {
    float *tokens = mem_alloc((size_t)(m->rank * m->in) * sizeof *tokens), *up = mem_alloc((size_t)(m->rank * m->out) * sizeof *up);
    float *down = mem_alloc((size_t)(m->rank * m->out) * sizeof *down);
    *out = (struct adapt_part){.adapter = adapter, .rank = m->rank, .in = m->out, .out = m->in};
    int code = adapter_read_down(m, tokens, err);
    if (!code) code = adapter_read_up(m, up, err);
    for (int64_t i = 0; i < m->out; i++)
        for (int32_t k = 0; k < m->rank; k++) down[k * m->out + i] = up[i * m->rank + k];
    if (!code) code = bind_numbers(l, m, down, (int64_t)m->rank * m->out, &out->down, err);
    if (!code) code = bind_numbers(l, m, tokens, (int64_t)m->rank * m->in, &out->up, err);
    mem_free(tokens);
    mem_free(up);
    mem_free(down);
    return code;
}

int adapt_tied_head(struct loader *l, struct weight **w, struct err *err) {
    struct adapted_part part = {.in = (*w)->in, .of = (*w)->out, .n = (*w)->out, .row = same_row};
    struct weight *own = arena_new(l->arena, struct weight, 1);
    struct adapt_part *list = arena_new(l->arena, struct adapt_part, 2 * l->n_adapters + 1);
    struct adapt_site *site = arena_new(l->arena, struct adapt_site, 1);
    if (l->n_adapters == 0) return ERR_OK;
    for (int32_t a = 0; a < l->n_adapters; a++) {
        struct adapter_module *head = adapter_find(&l->adapters[a], module_of(l, loader_path(l, ROLE_HEAD, -1)));
        if (head && head->magnitude)
            return err_set(err, ERR_EUNSUPPORTED, "%s: magnitudes of a head that is the embedding's matrix are not supported",
                           l->adapters[a].path);
        if (head) TRY(bind_part(l, a, head, &part, &list[site->n_parts++], err));
        for (size_t i = 0; i < l->adapters[a].n_modules; i++)
            if (l->adapters[a].modules[i].goes_to_head) TRY(bind_turned(l, a, &l->adapters[a].modules[i], &list[site->n_parts++], err));
    }
    for (int32_t i = 0; i < site->n_parts; i++) site->n_hidden += list[i].rank;
    site->parts = list;
    *own = **w;
    own->adapters = site->n_parts ? site : NULL;
    *w = own;
    return ERR_OK;
}

int adapt_check(const struct loader *l, struct err *err) {
    for (int32_t a = 0; a < l->n_adapters; a++)
        for (size_t i = 0; i < l->adapters[a].n_modules; i++) {
            const struct adapter_module *m = &l->adapters[a].modules[i];
            if (!m->is_used)
                return err_set(err, ERR_EUNSUPPORTED, "%s: the model has no place for %.*s, or none where an adapter can be computed",
                               l->adapters[a].path, STR_ARG(m->path));
        }
    return ERR_OK;
}
