/* Layers that look at pictures: queries are of the text, keys and values of the states that a tower has made of the pictures. Those are computed once, in a step of their
 * own (forward_states), and stay in a class of the cache whose positions are rows of pictures. Which of them a row sees, the step's spans say.
 *
 * Rows without a picture pass such a layer as if it were not there; where no row has one, the layer is left out. Rows before the first picture see all pictures with
 * their attention and pass by the feed-forward: so the reference has it. Rows of zeros, which the host gives, do both. */
#include "base/fmath.h"
#include "base/json.h"
#include "model/families.h"
#include "model/mixer.h"

/* The sets of rows that the host gives. */
enum { UNSEEN_BY_ATTENTION, UNSEEN_BY_FFN };

/* States of one picture: those of all tiles that it may have, each with a class token. */
static int32_t rows_of_picture(const struct cfg *c) {
    yyjson_val *tower = json_get(c->file->root, "vision_config");
    int64_t image = json_int(tower, "image_size", 448), patch = json_int(tower, "patch_size", 14),
            tiles = json_int(tower, "max_num_tiles", 4);
    if (!tower || patch < 1 || image < patch || image > 1 << 14 || tiles < 1 || tiles > 64) return KV_BLOCK;
    return (int32_t)(tiles * ((image / patch) * (image / patch) + 1));
}

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = &r->layers[layer];
    struct kv_layout *kv = &r->spec->kv;
    if (kv->n_classes == 0)
        return err_set(err, ERR_EUNSUPPORTED, "%s: the first layer looks at pictures, which is not supported", r->cfg.file->name);
    TRY(resolve_attention(r, layer, err));
    l->attn.rope = -1;
    l->attn.qk_norm = QK_HEAD;
    kv->n_of_pictures = 1;
    struct kv_class want = {
        .heads = l->attn.kv_heads, .k_width = l->attn.k_width, .v_width = l->attn.v_width, .picture_rows = rows_of_picture(&r->cfg)};
    return resolve_kv(r, &want, &l->kv, err);
}

/* Gates are stored before their tanh. */
static int bind_gate(struct loader *l, enum role role, int32_t layer, struct err *err) {
    float gate;
    TRY(loader_values(l, role, layer, "", 1, &gate, err));
    gate = m_tanhf(gate);
    return loader_constant(l, "gate", &gate, 1, &loader_slot(l, role, layer)->w, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct attn_spec *a = &l->spec->layers[layer].attn;
    int64_t hidden = l->spec->hidden, mixed = (int64_t)a->heads * a->v_width;
    TRY(loader_matrix(l, ROLE_Q, layer, (int64_t)a->heads * a->k_width, hidden, err));
    TRY(loader_matrix(l, ROLE_K, layer, (int64_t)a->kv_heads * a->k_width, hidden, err));
    TRY(loader_matrix(l, ROLE_V, layer, (int64_t)a->kv_heads * a->v_width, hidden, err));
    l->keeps_whole = true; /* one norm for all heads */
    int code = loader_vector(l, ROLE_Q_NORM, layer, a->k_width, true, err);
    if (!code) code = loader_vector(l, ROLE_K_NORM, layer, a->k_width, true, err);
    l->keeps_whole = false;
    if (code) return code;
    TRY(bind_gate(l, ROLE_CROSS_GATE, layer, err));
    TRY(bind_gate(l, ROLE_CROSS_FFN_GATE, layer, err));
    return loader_matrix(l, ROLE_O, layer, hidden, mixed, err);
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct attn_spec *a = &p->layer->attn;
    struct tensor q = pass_norm(p, tensor_split_heads(pass_linear(p, x, ROLE_Q), a->heads), &p->w[ROLE_Q_NORM]);
    struct attn_args args = {.kv = p->layer->kv, .scale = a->scale, .v_width = a->v_width, .of_pictures = 1};
    return pass_linear(p, tensor_join_heads(op_attn(p->l, q, &args)), ROLE_O);
}

const struct mixer cross_mixer = {.name = "cross attention", .resolve = resolve, .bind = bind, .mix = mix};

void forward_states(const struct model *m, struct oplist *l) {
    struct pass p = {.l = l, .m = m};
    struct tensor none = {0}, x = op_given(l, none, &(struct given_args){.width = m->spec.hidden});
    for (int32_t i = 0; i < m->spec.n_layers; i++) {
        if (m->spec.layers[i].mixer != MIX_CROSS) continue;
        l->layer = i;
        p.layer = &m->spec.layers[i];
        p.w = m->weights.layers[i];
        struct tensor k = tensor_split_heads(pass_linear(&p, x, ROLE_K), p.layer->attn.kv_heads),
                      v = tensor_split_heads(pass_linear(&p, x, ROLE_V), p.layer->attn.kv_heads);
        op_kv_write(l, pass_norm(&p, k, &p.w[ROLE_K_NORM]), v, p.layer->kv);
    }
    l->layer = -1;
}

/* ---- the stream ------------------------------------------------------------------------------------------------------- */

/* Classes that follow the text come first. */
static int resolve_classes(struct resolver *r, struct err *err) {
    const struct kv_layout *kv = &r->spec->kv;
    if (!kv->n_of_pictures || kv->classes[kv->n_classes - 1].picture_rows) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: layers of different heads among those that look at pictures are not supported",
                   r->cfg.file->name);
}

/* The embedding has rows for a few tokens beyond the vocabulary, which the head never chooses. */
static int settle(struct loader *l, struct spec *spec, struct err *err) {
    enum { MOST_MORE = 1024 };
    struct str path;
    struct tensor_info t;
    if (spec->tied || !loader_find(l, ROLE_EMBED, -1, &path) || !loader_tensor_values(l, path, -1, &t) || t.n_dims != 2) return ERR_OK;
    if (t.shape[0] > (int64_t)spec->vocab + MOST_MORE)
        return err_set(err, ERR_EFORMAT, "%.*s has %lld rows, and vocab_size is %d", STR_ARG(path), (long long)t.shape[0], spec->vocab);
    if (t.shape[0] > spec->vocab) spec->embed_rows = (int32_t)t.shape[0];
    return ERR_OK;
}

/* What a half of the layer makes, behind its gate; 0 in rows that do not see it. */
static struct tensor gated(const struct pass *p, struct tensor h, enum role gate, int32_t set) {
    h = op_mulvec(p->l, h, &(struct vec_args){.mul = p->w[gate].w});
    return p->l->gives ? op_given(p->l, h, &(struct given_args){.set = set, .width = p->m->spec.hidden}) : h;
}

static struct tensor block(const struct pass *p, struct tensor x) {
    if (p->layer->mixer != MIX_CROSS) return pass_block(p, x);
    if (!p->l->has_spans) return x;
    struct tensor h = pass_mix(p, pass_norm(p, x, &p->w[ROLE_MIX_NORM]));
    x = op_add(p->l, x, gated(p, h, ROLE_CROSS_GATE, UNSEEN_BY_ATTENTION), NULL);
    h = feed_forward(p, pass_norm(p, x, &p->w[ROLE_FFN_NORM]));
    return op_add(p->l, x, gated(p, h, ROLE_CROSS_FFN_GATE, UNSEEN_BY_FFN), NULL);
}

const struct stream cross_stream = {.resolve = resolve_classes, .settle = settle, .block = block};
