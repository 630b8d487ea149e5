/* Planning the parts of ranks: heads and widths in steps that quantised groups allow. */
#include "model/cut.h"

#include "model/families.h"
#include "model/mixer.h"

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static int64_t lcm(int64_t a, int64_t b) {
    return a / gcd(a, b) * b;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

struct cut_range cut_share(int64_t units, int64_t step, struct rank r) {
    int64_t steps = (units + step - 1) / step;
    int64_t first = least(steps * r.i / r.n * step, units), end = least(steps * (r.i + 1) / r.n * step, units);
    return (struct cut_range){first, end - first, units};
}

/* Whole groups of query heads with their key head; where there are more ranks than such, several share a key head and divide its queries. */
void cut_attention(const struct cut_heads *h, struct rank r, struct cut_range *out_heads, struct cut_range *out_kv) {
    int64_t each = h->heads / h->kv_heads, step = h->group / gcd(h->group, h->v_width); /* query heads that fill groups */
    int64_t kv_step = step / gcd(step, each);
    if (h->kv_heads >= r.n || each % step) {
        *out_kv = cut_share(h->kv_heads, kv_step, r);
        *out_heads = (struct cut_range){out_kv->first * each, out_kv->n * each, h->heads};
        return;
    }
    int32_t kv = r.i * h->kv_heads / r.n, first = 0, n = 0;
    for (int32_t i = 0; i < r.n; i++) {
        if (i * h->kv_heads / r.n != kv) continue;
        if (n++ == 0) first = i;
    }
    struct cut_range own = cut_share(each, step, (struct rank){r.i - first, n});
    *out_kv = (struct cut_range){kv, 1, h->kv_heads};
    *out_heads = (struct cut_range){kv * each + own.first, own.n, h->heads};
}

/* ---- a model's layers ---------------------------------------------------------------------------------------------- */

/* Elements along `in` that may not be torn apart. */
static int group_of(struct loader *l, enum role role, int32_t layer, int64_t *out, struct err *err) {
    struct str path;
    struct tensor_info t;
    struct format f;
    *out = 1;
    if (!loader_find(l, role, layer, &path)) return ERR_OK;
    if (loader_tensor(l, path, "_scales", 0, &t)) *out = 32;
    if (!loader_tensor(l, path, ".scales", 0, &t)) return ERR_OK;
    TRY(l->store->format(l->store->user, path, &f, err));
    *out = f.group;
    return ERR_OK;
}

/* A width in steps of whole groups, and of what kernels like where there is enough of it. */
static int share_width(struct loader *l, enum role role, int32_t layer, int64_t width, struct cut_range *out, struct err *err) {
    int64_t group, step = 64;
    TRY(group_of(l, role, layer, &group, err));
    while (step > 1 && (width % step || width / step < l->rank.n)) step /= 2;
    *out = cut_share(width, lcm(step, group), l->rank);
    return ERR_OK;
}

static bool is_attention(enum mixer_kind m) {
    return m == MIX_ATTENTION || m == MIX_LATENT || m == MIX_CROSS || m == MIX_SHARED || m == MIX_COMPRESSED;
}

/* Heads can be told apart unless keys get numbers that are made of all values. */
static bool cuts_heads(const struct spec *s, const struct layer_spec *l) {
    if (l->mixer == MIX_LATENT) return true;
    return is_attention(l->mixer) && l->mixer != MIX_COMPRESSED && !l->attn.has_key_bias && s->relative.span == 0;
}

/* The steps in which heads are cut are the same for all layers, since those of a class share a cache. */
static int heads_group(struct loader *l, int64_t *out, struct err *err) {
    *out = 1;
    for (int32_t i = 0; i < l->spec->n_layers; i++) {
        int64_t group;
        TRY(group_of(l, ROLE_O, i, &group, err));
        *out = lcm(*out, group);
        arena_reset(&l->scratch);
    }
    return ERR_OK;
}

static void plan_mixer(const struct loader *l, int32_t layer, int64_t group, struct layer_cut *out) {
    const struct spec *s = l->spec;
    const struct layer_spec *ls = &s->layers[layer];
    bool is_owner = (ls->mixer == MIX_EXCHANGE ? 0 : layer % l->rank.n) == l->rank.i; /* an exchange reads what the first layer made */
    bool is_latent = ls->mixer == MIX_LATENT;
    out->no_recurrence = !is_owner;
    out->no_attention = !is_owner;
    if (!cuts_heads(s, ls)) return;
    struct cut_heads heads = {ls->attn.heads, is_latent ? ls->attn.heads : ls->attn.kv_heads,
                              is_latent ? s->latent.v_width : ls->attn.v_width, (int32_t)group};
    cut_attention(&heads, l->rank, &out->axes[AXIS_HEADS], &out->axes[AXIS_KV]);
    if (is_latent) out->axes[AXIS_KV] = (struct cut_range){0};
    out->no_attention = out->axes[AXIS_HEADS].n == 0;
}

int cut_plan(struct loader *l, struct layer_cut **out, struct err *err) {
    const struct spec *s = l->spec;
    int64_t group;
    *out = NULL;
    if (l->rank.n == 1) return ERR_OK;
    if (l->n_adapters)
        return err_set(err, ERR_EUNSUPPORTED, "--adapter is not computed with --tensor-parallel; fuse it into the model first");
    if (l->store->lender) return err_set(err, ERR_EUNSUPPORTED, "a head that drafts is not computed with --tensor-parallel; leave it out");
    struct layer_cut *cuts = arena_new(l->arena, struct layer_cut, s->n_layers);
    TRY(heads_group(l, &group, err));
    for (int32_t i = 0; i < s->n_layers; i++) {
        const struct layer_spec *ls = &s->layers[i];
        plan_mixer(l, i, group, &cuts[i]);
        if (ls->inner) TRY(share_width(l, ROLE_DOWN, i, ls->inner, &cuts[i].axes[AXIS_INNER], err));
        if (s->moe.shared_inner) TRY(share_width(l, ROLE_SHARED_DOWN, i, s->moe.shared_inner, &cuts[i].axes[AXIS_SHARED], err));
        arena_reset(&l->scratch);
    }
    *out = cuts;
    return ERR_OK;
}

void cut_spec(const struct loader *l, struct spec *spec) {
    if (!l->cuts) return;
    struct layer_spec *layers = arena_new(l->arena, struct layer_spec, spec->n_layers);
    for (int32_t i = 0; i < spec->n_layers; i++) {
        const struct layer_cut *c = &l->cuts[i];
        const struct cut_range *heads = &c->axes[AXIS_HEADS], *kv = &c->axes[AXIS_KV], *inner = &c->axes[AXIS_INNER];
        struct layer_spec *ls = &layers[i];
        *ls = spec->layers[i];
        ls->no_attention = c->no_attention;
        ls->no_recurrence = c->no_recurrence;
        if (inner->of) ls->inner = (int32_t)inner->n, ls->inner_part = *inner;
        if (heads->of) ls->attn.heads = (int32_t)heads->n, ls->heads_part = *heads;
        if (!kv->of) continue;
        ls->attn.kv_heads = kv->n ? (int32_t)kv->n : 1; /* a cache has one head at least */
        ls->kv_part = *kv;
        if (!ls->borrows_kv) spec->kv.classes[ls->kv.kv_class].heads = ls->attn.kv_heads;
    }
    spec->layers = layers;
    spec->rank = l->rank;
}
