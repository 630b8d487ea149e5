/* Sums of matrices and adapters, at places of a file that does not exist. */
#include "file/fused_view.h"

#include "tensor/quant.h"

#include <math.h>

/* What one adapter adds to a matrix, in f32. */
struct addend {
    struct adapter_module *module;
    float *down, *up, *magnitude; /* as adapter_read_* give them; NULL until they are needed */
    float scale;
    struct addend *next;
};

/* An edit of one weight. */
struct step {
    const struct fused_edit *edit;
    struct checkpoint_weight first, other; /* first: only where the edit has one */
    bool is_weighed;
    double mine, theirs; /* what the two are multiplied by, once is_weighed */
    struct step *next;
};

struct sum {
    struct checkpoint_weight w;
    struct step *steps;
    struct addend *addends;
    const struct fused_mask *mask; /* NULL: none */
};

struct fused_view {
    struct checkpoint_shard shard;
    struct sum *sums; /* [n_tensors of the shard] */
};

/* ---- numbers -------------------------------------------------------------------------------------------------------------------- */

static void drop_numbers(struct addend *a) {
    mem_free(a->down);
    mem_free(a->up);
    mem_free(a->magnitude);
    a->down = a->up = a->magnitude = NULL;
}

static int load_numbers(struct addend *a, struct err *err) {
    struct adapter_module *m = a->module;
    if (a->up) return ERR_OK;
    a->down = mem_try((size_t)(m->rank * m->in) * sizeof(float));
    a->up = mem_try((size_t)(m->rank * m->out) * sizeof(float));
    a->magnitude = mem_try((size_t)m->out * sizeof(float));
    int code = a->down && a->up && a->magnitude ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(m->path));
    if (!code) code = adapter_read_down(m, a->down, err);
    if (!code) code = adapter_read_up(m, a->up, err);
    if (!code && m->magnitude) code = adapter_read_magnitude(m, a->magnitude, err);
    if (code) drop_numbers(a);
    return code;
}

/* Row r of an embedding is a token's: down has its numbers, and up those of the columns. */
static double product(const struct addend *a, int64_t r, int64_t k) {
    const struct adapter_module *m = a->module;
    double sum = 0;
    for (int32_t i = 0; i < m->rank; i++)
        sum += m->is_embedding ? (double)a->down[r * m->rank + i] * a->up[k * m->rank + i]
                               : (double)a->up[r * m->rank + i] * a->down[i * m->in + k];
    return sum * a->scale;
}

static int add_row(struct addend *a, int64_t r, int64_t width, float *row, struct err *err) {
    double length = 0;
    TRY(load_numbers(a, err));
    for (int64_t k = 0; k < width; k++) {
        double value = row[k] + product(a, r, k);
        row[k] = (float)value;
        length += value * value;
    }
    if (!a->module->magnitude) return ERR_OK;
    double gain = a->magnitude[r] / sqrt(length);
    if (!isfinite(gain)) return err_set(err, ERR_EFORMAT, "a row of %.*s has no length for its magnitude", STR_ARG(a->module->path));
    for (int64_t k = 0; k < width; k++) row[k] = (float)(row[k] * gain);
    return ERR_OK;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

static int64_t rows_of(const struct checkpoint_weight *w) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < w->values->t->n_dims; i++) rows *= w->values->t->shape[i];
    return rows;
}

/* A row of the weight before a step: NULL gives that behind the last. */
static int row_before(const struct sum *s, const struct step *end, int64_t r, float *row, float *other, struct err *err);

/* The lengths of the two weights as vectors, and the angle between them, say how much each counts. */
static int weigh_arc(const struct sum *s, struct step *e, struct err *err) {
    static const double PARALLEL = 1e-6; /* of the cosine: below that sines are too small to divide by */
    double dot = 0, mine = 0, theirs = 0, ratio = e->edit->number;
    int64_t rows = rows_of(&s->w), width = s->w.width;
    float *row = mem_try((size_t)width * 3 * sizeof *row);
    if (!row) return err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(s->w.values->t->name));
    int code = ERR_OK;
    for (int64_t r = 0; r < rows && !code; r++) {
        float *other = row + width;
        code = row_before(s, e, r, row, row + 2 * width, err);
        if (!code && e->edit->first) code = checkpoint_weight_row(&e->first, r, row, err);
        if (!code) code = checkpoint_weight_row(&e->other, r, other, err);
        for (int64_t k = 0; k < width && !code; k++) {
            dot += (double)row[k] * other[k];
            mine += (double)row[k] * row[k];
            theirs += (double)other[k] * other[k];
        }
    }
    mem_free(row);
    double cosine = mine > 0 && theirs > 0 ? dot / sqrt(mine * theirs) : 1, angle = acos(fmin(fmax(cosine, -1), 1));
    bool is_parallel = !(fabs(cosine) <= 1 - PARALLEL);
    e->mine = is_parallel ? 1 - ratio : sin((1 - ratio) * angle) / sin(angle);
    e->theirs = is_parallel ? ratio : sin(ratio * angle) / sin(angle);
    e->is_weighed = !code;
    return code;
}

static int weigh(const struct sum *s, struct step *e, struct err *err) {
    double number = e->edit->number;
    const double weights[][2] = {
        [FUSED_SCALE] = {number, 0}, [FUSED_ADD] = {1, number}, [FUSED_INTERPOLATE] = {1 - number, number}, [FUSED_REPLACE] = {0, 1}};
    if (e->is_weighed) return ERR_OK;
    if (e->edit->op == FUSED_SLERP) return weigh_arc(s, e, err);
    e->mine = weights[e->edit->op][0];
    e->theirs = weights[e->edit->op][1];
    e->is_weighed = true;
    return ERR_OK;
}

static int edit_row(const struct sum *s, struct step *e, int64_t r, float *row, float *other, struct err *err) {
    int64_t width = s->w.width;
    TRY(weigh(s, e, err));
    if (!e->edit->source) {
        for (int64_t k = 0; k < width; k++) row[k] = (float)(row[k] * e->mine);
        return ERR_OK;
    }
    if (e->edit->first) TRY(checkpoint_weight_row(&e->first, r, row, err));
    TRY(checkpoint_weight_row(&e->other, r, other, err));
    for (int64_t k = 0; k < width; k++) row[k] = (float)((e->mine != 0 ? e->mine * row[k] : 0) + e->theirs * other[k]);
    return ERR_OK;
}

static int row_before(const struct sum *s, const struct step *end, int64_t r, float *row, float *other, struct err *err) {
    TRY(checkpoint_weight_row(&s->w, r, row, err));
    for (struct step *e = s->steps; e != end; e = e->next) TRY(edit_row(s, e, r, row, other, err));
    return ERR_OK;
}

static void mask_row(const struct fused_mask *m, int64_t r, int64_t width, float *row) {
    for (int64_t k = 0; k < width; k++)
        if (m->inputs[m->is_transposed ? r : k]) row[k] = 0;
}

static int read_row(void *user, size_t i, int64_t r, float *row, struct err *err) {
    const struct fused_view *v = user;
    const struct sum *s = &v->sums[i];
    float *other = mem_try((size_t)s->w.width * sizeof *other);
    if (!other) return err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(s->w.values->t->name));
    int code = row_before(s, NULL, r, row, other, err);
    mem_free(other);
    for (struct addend *a = s->addends; a && !code; a = a->next) code = add_row(a, r, s->w.width, row, err);
    if (s->mask && !code) mask_row(s->mask, r, s->w.width, row);
    return code;
}

static int view_read_at(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    struct fused_view *v = user;
    size_t i = st_at(&v->shard.st, offset);
    int code = checkpoint_view_rows(&v->shard.st, read_row, v, offset, data, n, err);
    for (size_t k = 0; k < v->shard.st.n_tensors; k++) /* matrices are read one after the other: numbers of one are enough */
        for (struct addend *a = v->sums[k].addends; a && k != i; a = a->next) drop_numbers(a);
    return code;
}

/* ---- finding -------------------------------------------------------------------------------------------------------------------- */

static bool is_end(struct str whole, struct str end) {
    return str_eq(whole, end) || (str_ends(whole, end) && whole.p[whole.n - end.n - 1] == '.');
}

/* The path of the matrix that a module goes with: either may have a prefix that the other lacks. {NULL, 0}: none. */
static struct str path_of(const struct checkpoint *c, struct str module) {
    for (size_t i = 0; i < c->n_tensors; i++) {
        struct str name = c->tensors[i].t->name;
        if (!str_ends(name, STR(".weight"))) continue;
        name.n -= STR(".weight").n;
        if (is_end(name, module) || is_end(module, name)) return name;
    }
    return (struct str){0};
}

static int check_place(const struct checkpoint *c, const struct adapter *a, const struct adapter_module *m,
                       const struct checkpoint_weight *w, struct err *err) {
    int64_t rows = w->values->t->n_dims == 2 ? w->values->t->shape[0] : 0;
    int64_t out = m->is_embedding ? m->in : m->out, in = m->is_embedding ? m->out : m->in;
    if (rows != out || w->width != in)
        return err_set(err, ERR_EFORMAT, "%s: %.*s goes from %lld to %lld, and the model's from %lld to %lld", a->path, STR_ARG(m->path),
                       (long long)m->in, (long long)m->out, (long long)w->width, (long long)rows);
    if (m->is_embedding && !m->goes_to_head && !path_of(c, STR("lm_head")).p)
        return err_set(err, ERR_EUNSUPPORTED,
                       "%s: %.*s would change the head, which is the embedding's matrix; run it beside the model instead: --adapter",
                       a->path, STR_ARG(m->path));
    return ERR_OK;
}

static struct sum *sum_of(struct fused_view *v, struct checkpoint *c, struct map *known, struct str path,
                          const struct checkpoint_weight *w) {
    bool is_new;
    struct map_entry *e = map_put(known, path, &is_new);
    struct safetensors *st = &v->shard.st;
    if (!is_new) return &v->sums[e->value.i];
    e->value.i = (int64_t)st->n_tensors;
    v->sums[st->n_tensors] = (struct sum){.w = *w};
    st->tensors[st->n_tensors] = checkpoint_weight_plain(&c->arena, w, st->data_bytes);
    st->data_bytes += st->tensors[st->n_tensors].bytes;
    return &v->sums[st->n_tensors++];
}

static int add_module(struct fused_view *v, struct checkpoint *c, struct map *known, const struct fused_adapter *f,
                      struct adapter_module *m, struct map *formats, struct err *err) {
    struct checkpoint_weight w;
    struct str path = path_of(c, m->path);
    if (!path.p) return err_set(err, ERR_EUNSUPPORTED, "%s: the model has no place for %.*s", f->adapter->path, STR_ARG(m->path));
    TRY(checkpoint_weight(c, path, &w, err));
    TRY(check_place(c, f->adapter, m, &w, err));
    if (m->magnitude && f->scale != 1) return err_set(err, ERR_EUNSUPPORTED, "%s: its magnitudes belong to a scale of 1", f->adapter->path);
    struct sum *s = sum_of(v, c, known, path, &w);
    struct addend *a = arena_new(&c->arena, struct addend, 1), **last = &s->addends;
    *a = (struct addend){.module = m, .scale = f->scale};
    while (*last) last = &(*last)->next;
    *last = a;
    map_put(formats, path, NULL)->value.ptr = arena_copy(&c->arena, &w.format, sizeof w.format);
    return ERR_OK;
}

/* ---- edits ---------------------------------------------------------------------------------------------------------------------- */

/* The weight of another model, of the same shape. */
static int find_other(const struct checkpoint *c, const struct fused_edit *e, const struct checkpoint *from, struct str path,
                      const struct checkpoint_weight *w, struct checkpoint_weight *out, struct err *err) {
    TRY(checkpoint_weight(from, e->source_path.p ? e->source_path : path, out, err));
    if (out->width == w->width && rows_of(out) == rows_of(w)) return ERR_OK;
    return err_set(err, ERR_EFORMAT, "%s: %.*s is [%lld, %lld], and that of %s [%lld, %lld]", c->path, STR_ARG(path), (long long)rows_of(w),
                   (long long)w->width, from->path, (long long)rows_of(out), (long long)out->width);
}

static int add_edit(struct fused_view *v, struct checkpoint *c, struct map *known, const struct fused_edit *e, struct str path,
                    struct map *formats, struct err *err) {
    struct checkpoint_weight w;
    struct step *step = arena_new(&c->arena, struct step, 1);
    TRY(checkpoint_weight(c, path, &w, err));
    step->edit = e;
    if (e->first) TRY(find_other(c, e, e->first, path, &w, &step->first, err));
    if (e->source) TRY(find_other(c, e, e->source, path, &w, &step->other, err));
    struct step **last = &sum_of(v, c, known, path, &w)->steps;
    while (*last) last = &(*last)->next;
    *last = step;
    map_put(formats, path, NULL)->value.ptr = arena_copy(&c->arena, &w.format, sizeof w.format);
    return ERR_OK;
}

static int add_edits(struct fused_view *v, struct checkpoint *c, struct map *known, struct fused_edit *e, struct map *formats,
                     struct err *err) {
    for (size_t i = 0; i < c->n_tensors; i++) {
        struct str path = c->tensors[i].t->name;
        if (!str_ends(path, STR(".weight"))) continue;
        path.n -= STR(".weight").n;
        if (!str_glob(e->pattern, path)) continue;
        e->n_matched++;
        TRY(add_edit(v, c, known, e, path, formats, err));
    }
    return e->n_matched ? ERR_OK : err_set(err, ERR_EARG, "the pattern %.*s matches no weight of %s", STR_ARG(e->pattern), c->path);
}

static int add_mask(struct fused_view *v, struct checkpoint *c, struct map *known, const struct fused_mask *m, struct map *formats,
                    struct err *err) {
    struct checkpoint_weight w;
    TRY(checkpoint_weight(c, m->path, &w, err));
    if (m->n_inputs != (m->is_transposed ? rows_of(&w) : w.width))
        return err_set(err, ERR_EFORMAT, "%s: %.*s has not %lld inputs", c->path, STR_ARG(m->path), (long long)m->n_inputs);
    sum_of(v, c, known, m->path, &w)->mask = m;
    map_put(formats, m->path, NULL)->value.ptr = arena_copy(&c->arena, &w.format, sizeof w.format);
    return ERR_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------------ */

int fused_view_open(struct checkpoint *c, const struct fused_changes *changes, struct map *out_formats, struct fused_view **out,
                    struct err *err) {
    struct fused_view *v = *out = arena_new(&c->arena, struct fused_view, 1);
    struct map known = {0};
    int code = ERR_OK;
    v->shard.name = c->path;
    v->shard.st.tensors = arena_new(&c->arena, struct st_tensor, c->n_tensors + 1);
    v->sums = arena_new(&c->arena, struct sum, c->n_tensors + 1);
    for (size_t i = 0; i < changes->n_edits && !code; i++) code = add_edits(v, c, &known, &changes->edits[i], out_formats, err);
    for (size_t i = 0; i < changes->n_adapters && !code; i++)
        for (size_t k = 0; k < changes->adapters[i].adapter->n_modules && !code; k++)
            code = add_module(v, c, &known, &changes->adapters[i], &changes->adapters[i].adapter->modules[k], out_formats, err);
    for (size_t i = 0; i < changes->n_masks && !code; i++) code = add_mask(v, c, &known, &changes->masks[i], out_formats, err);
    map_free(&known);
    v->shard.st.source = (struct st_source){.name = c->path, .size = v->shard.st.data_bytes, .read_at = view_read_at, .user = v};
    if (!code) checkpoint_replace(c, &v->shard);
    return code;
}

void fused_view_close(struct fused_view *v) {
    for (size_t i = 0; v && i < v->shard.st.n_tensors; i++)
        for (struct addend *a = v->sums[i].addends; a; a = a->next) drop_numbers(a);
}
