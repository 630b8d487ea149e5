/* A model before and behind: bound where nothing is kept, and compared. */
#include "model/model.h"
#include "tools/prune_internal.h"

struct looker {
    struct arena *arena;
    struct prune_model *out;
};

static void note_layers(void *user, struct str before) {
    struct looker *l = user;
    l->out->before = str_copy(l->arena, before);
}

static void note_use(void *user, const struct tensor_use *use) {
    struct looker *l = user;
    struct prune_model *m = l->out;
    if (m->n_uses == m->capacity) {
        struct tensor_use *old = m->uses;
        m->capacity = m->capacity ? 2 * m->capacity : 256;
        m->uses = arena_new(l->arena, struct tensor_use, m->capacity);
        if (old) memcpy(m->uses, old, m->n_uses * sizeof *old);
    }
    m->uses[m->n_uses] = *use;
    m->uses[m->n_uses++].path = str_copy(l->arena, use->path);
}

int prune_look(struct arena *a, const struct checkpoint *c, struct prune_model *out, struct err *err) {
    struct looker l = {a, out};
    const struct tensor_watch watch = {.layers = note_layers, .use = note_use, .user = &l};
    struct tensor_store store = model_checkpoint_store(c);
    struct device *device = NULL;
    struct backend *be = NULL;
    struct model m;
    *out = (struct prune_model){0};
    store.watch = &watch;
    TRY(device_open(&trace_backend, &(struct device_options){0}, &device, err));
    int code = backend_open(device, &(struct backend_options){0}, &be, err);
    if (!code) {
        code = model_open_checkpoint(a, be, c, &store, NULL, &m, err);
        out->spec = m.spec;
        if (!code) model_close(be, &m);
    }
    backend_close(be);
    device_release(device);
    return code;
}

/* ---- comparing ----------------------------------------------------------------------------------------------------------- */

static bool ropes_eq(const struct spec *a, int32_t i, const struct spec *b, int32_t k) {
    if (i < 0 || k < 0) return i < 0 && k < 0;
    const struct rope_spec *x = &a->ropes[i], *y = &b->ropes[k];
    return x->kind == y->kind && x->scaling == y->scaling && x->n_rotated == y->n_rotated && x->theta == y->theta &&
           x->magnitude == y->magnitude && x->factor == y->factor;
}

static bool attention_eq(const struct spec *old, const struct attn_spec *a, const struct spec *left, const struct attn_spec *b) {
    if (a->heads == 0) return b->heads == 0; /* another mixer */
    return a->k_width == b->k_width && a->v_width == b->v_width && a->window == b->window && a->chunk == b->chunk && a->scale == b->scale &&
           a->softcap == b->softcap && a->qk_norm == b->qk_norm && a->v_is_k == b->v_is_k && a->clip == b->clip &&
           a->pos_scale_beta == b->pos_scale_beta && a->pos_scale_len == b->pos_scale_len && a->has_slopes == b->has_slopes &&
           ropes_eq(old, a->rope, left, b->rope);
}

int32_t prune_look_writer(const struct spec *s, int32_t layer) {
    const struct kv_ref *kv = &s->layers[layer].kv;
    for (int32_t i = 0; i < layer; i++)
        if (!s->layers[i].borrows_kv && s->layers[i].kv.kv_class == kv->kv_class && s->layers[i].kv.index == kv->index) return i;
    return layer;
}

static bool layers_eq(const struct prune *p, int32_t i, const struct spec *left, int32_t k) {
    const struct spec *old = &p->model.spec;
    const struct layer_spec *a = &old->layers[i], *b = &left->layers[k];
    const struct prune_layer *want = &p->layers[i];
    if (a->kind != b->kind || a->wiring != b->wiring || a->mixer != b->mixer || a->ffn != b->ffn || a->is_unnormed != b->is_unnormed ||
        a->borrows_kv != b->borrows_kv || a->borrows_picks != b->borrows_picks || a->every != b->every || a->by_token != b->by_token ||
        a->limit != b->limit || a->expert_limit != b->expert_limit || a->is_cut != b->is_cut || a->cut != b->cut)
        return false;
    if (a->borrows_kv &&
        (p->layers[prune_look_writer(old, i)].goes || prune_number(p, prune_look_writer(old, i)) != prune_look_writer(left, k)))
        return false;
    if (a->ffn != FFN_EXPERTS && b->inner != want->n_inner) return false;
    return b->attn.heads == want->n_heads && b->attn.kv_heads == want->n_kv && attention_eq(old, &a->attn, left, &b->attn);
}

static int64_t row_of(const struct tensor_use *u, int64_t i) {
    return u->run ? u->from + i / u->run * u->step + i % u->run : u->from + i;
}

/* Rows that stay of an old tensor, in their order: which of them is row r of the new one. */
static int64_t *rows_left(struct arena *a, const struct prune *p, const struct tensor_use *one) {
    bool *gone = arena_new(a, bool, one->of);
    int64_t *left = arena_new(a, int64_t, one->of), k = 0;
    for (size_t i = 0; i < p->model.n_uses; i++) {
        const struct tensor_use *u = &p->model.uses[i];
        if (u->layer != one->layer || u->side != CUT_ROWS || !str_eq(u->path, one->path)) continue;
        const bool *units = prune_gone(&p->layers[u->layer], u->axis);
        int64_t each = units ? u->n / prune_units(&p->model.spec.layers[u->layer], u->axis) : 1;
        for (int64_t r = 0; r < u->n && units; r++)
            if (units[r / each]) gone[row_of(u, r)] = true;
    }
    for (int64_t r = 0; r < one->of; r++)
        if (!gone[r]) left[k++] = r;
    return left;
}

/* Whether the rows of a use are those that it had, but for what went. */
static bool rows_eq(const struct prune *p, const struct tensor_use *old, const struct tensor_use *left, const int64_t *rows) {
    const bool *units = prune_gone(&p->layers[old->layer], old->axis);
    int64_t each = units ? old->n / prune_units(&p->model.spec.layers[old->layer], old->axis) : 1, k = 0;
    for (int64_t i = 0; i < old->n; i++) {
        if (units && units[i / each]) continue;
        if (k == left->n || rows[row_of(left, k)] != row_of(old, i)) return false;
        k++;
    }
    return k == left->n;
}

static int compare_uses(const struct prune *p, const struct prune_model *left, const char *path, struct err *err) {
    const struct prune_model *old = &p->model;
    struct arena a = {0};
    size_t k = 0;
    bool is_same = true;
    struct str name = {0};
    for (size_t i = 0; i < old->n_uses && is_same; i++) {
        const struct tensor_use *u = &old->uses[i], *v = &left->uses[k];
        if (u->layer >= 0 && p->layers[u->layer].goes) continue;
        name = u->path;
        is_same = k < left->n_uses && u->role == v->role && u->axis == v->axis && u->side == v->side;
        if (is_same && u->layer >= 0 && u->side == CUT_ROWS && prune_gone(&p->layers[u->layer], u->axis))
            is_same = rows_eq(p, u, v, rows_left(&a, p, u));
        k++;
        arena_reset(&a);
    }
    arena_free(&a);
    if (is_same) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: %.*s holds heads or channels in an order that is another without those", path,
                   STR_ARG(name));
}

int prune_look_compare(const struct prune *p, const struct prune_model *left, const char *path, struct err *err) {
    const struct spec *old = &p->model.spec, *now = &left->spec;
    if (now->n_layers != p->n_left)
        return err_set(err, ERR_EUNSUPPORTED, "%s: its config.json cannot say that there are %d layers", path, p->n_left);
    if (now->residual_scale != old->residual_scale || now->embed_scale != old->embed_scale || now->logit_scale != old->logit_scale)
        return err_set(err, ERR_EUNSUPPORTED, "%s: it scales what layers add by their number, which would change", path);
    for (int32_t i = 0, k = 0; i < old->n_layers; i++) {
        if (p->layers[i].goes) continue;
        if (!layers_eq(p, i, now, k))
            return err_set(err, ERR_EUNSUPPORTED, "%s: its config.json cannot say what layer %d is without the parts that go", path, i);
        k++;
    }
    return compare_uses(p, left, path, err);
}
