/* Reading heads for classification, and the rows of two words. */
#include "api/judge.h"

#include "api/stages.h"
#include "model/families.h"
#include "tensor/quant.h"

struct reader {
    const struct checkpoint *checkpoint;
    const struct spec *spec;
    struct judge *out;
    struct stages stages;
    enum act_kind last; /* of the score */
};

static bool has(const struct reader *r, const char *name) {
    return checkpoint_find(r->checkpoint, str_of(name)) != NULL;
}

/* ---- heads ------------------------------------------------------------------------------------------------------------- */

/* An activation by a key of config.json. */
static int act_of(const struct reader *r, const char *key, enum act_kind absent, enum act_kind *out, struct err *err) {
    struct str name = json_val_str(config_said(&r->checkpoint->config, key));
    *out = absent;
    if (!name.p) return ERR_OK;
    if (str_is(name, "tanh")) {
        *out = ACT_TANH;
        return ERR_OK;
    }
    return resolve_activation(name, out, err);
}

/* classifier.dense, classifier.out_proj on the first position. */
static int read_two_layers(struct reader *r, struct err *err) {
    enum act_kind act;
    TRY(act_of(r, "summary_activation", ACT_TANH, &act, err));
    TRY(stages_dense(&r->stages, r->checkpoint, "classifier.dense", act, err));
    return stages_dense(&r->stages, r->checkpoint, "classifier.out_proj", r->last, err);
}

/* head.dense, head.norm, classifier on the first position or on the mean. */
static int read_normed(struct reader *r, struct err *err) {
    struct str pooling = json_val_str(config_said(&r->checkpoint->config, "classifier_pooling"));
    enum act_kind act;
    if (pooling.p && !str_is(pooling, "cls") && !str_is(pooling, "mean"))
        return err_set(err, ERR_EUNSUPPORTED, "config.json: classifier_pooling \"%.*s\" is not supported", STR_ARG(pooling));
    if (str_is(pooling, "mean")) r->out->pooling = POOL_MEAN;
    TRY(act_of(r, "classifier_activation", ACT_GELU, &act, err));
    TRY(stages_dense(&r->stages, r->checkpoint, "head.dense", act, err));
    TRY(stages_norm(&r->stages, r->checkpoint, "head.norm", r->spec->norm.eps, err));
    return stages_dense(&r->stages, r->checkpoint, "classifier", r->last, err);
}

static int read_before(struct reader *r, struct err *err) {
    TRY(stages_dense(&r->stages, r->checkpoint, "pre_classifier", ACT_RELU, err));
    return stages_dense(&r->stages, r->checkpoint, "classifier", r->last, err);
}

/* The model's own pooler, then the classifier. */
static int read_pooler(struct reader *r, struct err *err) {
    const char *root = r->spec->family->names.root, *pooler = "pooler.dense";
    struct str inside = str_fmt(r->stages.arena, "%s%s", root ? root : "", pooler);
    enum act_kind act;
    TRY(act_of(r, "pooler_hidden_act", ACT_TANH, &act, err));
    if (!has(r, "pooler.dense.weight")) pooler = inside.p;
    TRY(stages_dense(&r->stages, r->checkpoint, pooler, act, err));
    return stages_dense(&r->stages, r->checkpoint, "classifier", r->last, err);
}

/* A head on the last position of a decoder. */
static int read_last(struct reader *r, struct err *err) {
    r->out->pooling = POOL_LAST;
    return stages_dense(&r->stages, r->checkpoint, "score", r->last, err);
}

static const struct {
    const char *sign; /* a tensor that only this kind has */
    int (*read)(struct reader *r, struct err *err);
} kinds[] = {{"classifier.out_proj.weight", read_two_layers},
             {"head.dense.weight", read_normed},
             {"pre_classifier.weight", read_before},
             {"classifier.weight", read_pooler},
             {"score.weight", read_last}};

/* What the score goes through at last: as the model's file says, else a sigmoid. */
static int read_last_act(struct reader *r, struct err *err) {
    static const char key[] = "sbert_ce_default_activation_function";
    const struct config *c = &r->checkpoint->config;
    struct str name = json_str(config_said(c, "sentence_transformers"), "activation_fn", json_val_str(config_said(c, key)));
    r->last = ACT_SIGMOID;
    return name.p ? stages_act(name, &r->last, err) : ERR_OK;
}

int judge_read(struct arena *a, const struct checkpoint *c, const struct spec *spec, struct judge *out, struct err *err) {
    struct reader r = {.checkpoint = c, .spec = spec, .out = out, .stages = {.arena = a, .width = spec->hidden, .widest = spec->hidden}};
    *out = (struct judge){.kind = JUDGE_NONE, .pooling = POOL_FIRST};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!has(&r, kinds[i].sign)) continue;
        TRY(read_last_act(&r, err));
        TRY(kinds[i].read(&r, err));
        if (r.stages.width != 1)
            return err_set(err, ERR_EUNSUPPORTED, "the model puts texts into %d classes, and a judge of documents has one number",
                           r.stages.width);
        out->head = stages_head(&r.stages);
        out->kind = JUDGE_PAIR;
        return ERR_OK;
    }
    return ERR_OK;
}

/* ---- words ------------------------------------------------------------------------------------------------------------- */

static int read_plane(struct arena *a, const struct checkpoint_tensor *t, size_t row_bytes, int64_t row, const void **out,
                      struct err *err) {
    *out = NULL;
    if (!t) return ERR_OK;
    void *bytes = arena_alloc(a, row_bytes + 8);
    *out = bytes;
    return checkpoint_read(t, (uint64_t)row * row_bytes, bytes, row_bytes, err);
}

/* A row of the head, whatever it is stored as. */
static int read_row(struct arena *a, const struct checkpoint *c, struct str path, int32_t row, int32_t width, float *out, struct err *err) {
    struct checkpoint_weight w;
    struct quant_row q;
    TRY(checkpoint_weight(c, path, &w, err));
    const struct st_tensor *t = w.values->t;
    if (w.width != width || t->n_dims != 2 || row >= t->shape[0] || (w.format.mode == QUANT_NONE && w.format.dtype > DT_BF16))
        return err_set(err, ERR_EFORMAT, "%.*s has no row %d of %d numbers", STR_ARG(path), row, width);
    TRY(read_plane(a, w.values, quant_values_bytes(&w.format, width), row, &q.values, err));
    TRY(read_plane(a, w.scales, quant_scales_bytes(&w.format, width), row, &q.scales, err));
    TRY(read_plane(a, w.biases, quant_biases_bytes(&w.format, width), row, &q.biases, err));
    quant_unpack(&w.format, &q, 0, width, out);
    return ERR_OK;
}

/* The head's matrix, or the embedding's where they are one. */
static bool find_head(const struct checkpoint *c, bool is_tied, struct str *out) {
    static const struct {
        struct str name;
        bool is_embedding;
    } names[] = {{{"lm_head.weight", 14}, false},
                 {{"language_model.lm_head.weight", 29}, false},
                 {{"model.embed_tokens.weight", 25}, true},
                 {{"language_model.model.embed_tokens.weight", 40}, true},
                 {{"embed_tokens.weight", 19}, true}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].is_embedding != is_tied || !checkpoint_find(c, names[i].name)) continue;
        *out = str_sub(names[i].name, 0, names[i].name.n - sizeof ".weight" + 1);
        return true;
    }
    return false;
}

int judge_read_words(struct arena *a, const struct checkpoint *c, const struct spec *spec, const struct tok *tok, struct judge *out,
                     struct err *err) {
    int32_t yes = tok_id_of(tok, STR("yes")), no = tok_id_of(tok, STR("no")), width = spec->hidden;
    struct str path;
    *out = (struct judge){.kind = JUDGE_NONE, .pooling = POOL_LAST};
    if (yes < 0 || no < 0)
        return err_set(err, ERR_EUNSUPPORTED, "the model has no head for judging, and its words yes and no are not one token each");
    if (spec->logit_softcap > 0 || spec->embed_width != width || !find_head(c, spec->tied, &path))
        return err_set(err, ERR_EUNSUPPORTED, "the model has no head for judging, and its words yes and no cannot be read");
    float *rows = arena_new(a, float, 2 * (int64_t)width);
    TRY(read_row(a, c, path, yes, width, rows, err));
    TRY(read_row(a, c, path, no, width, rows + width, err));
    for (int32_t i = 0; i < width; i++) rows[i] = (rows[i] - rows[width + i]) * spec->logit_scale;
    struct pool_stage stage = {.kind = STAGE_DENSE, .in = width, .out = 1, .w = rows, .act = ACT_SIGMOID};
    out->head = (struct pool_head){.stages = arena_copy(a, &stage, sizeof stage), .n = 1, .width = 1, .widest = width};
    out->kind = JUDGE_WORDS;
    return ERR_OK;
}
