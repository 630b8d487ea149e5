/* Opening a model: config to spec, checkpoint to weights. */
#include "model/model.h"

#include "base/log.h"

static bool store_find(void *user, struct str name, struct tensor_info *out) {
    const struct checkpoint_tensor *t = checkpoint_find(user, name);
    if (!t || t->t->n_dims > TENSOR_DIMS) return false;
    *out = (struct tensor_info){.name = t->t->name, .dtype = t->t->dtype, .n_dims = t->t->n_dims, .handle = t};
    for (int i = 0; i < t->t->n_dims; i++) out->shape[i] = t->t->shape[i];
    return true;
}

static int store_read(void *user, const struct tensor_info *t, uint64_t offset, void *dst, size_t n, struct err *err) {
    (void)user;
    return checkpoint_read(t->handle, offset, dst, n, err);
}

static int store_format(void *user, struct str path, struct format *out, struct err *err) {
    const struct checkpoint *c = user;
    if (quant_lookup(&c->quant, path, out) == QUANT_IS_PLAIN)
        return err_set(err, ERR_EFORMAT, "%s: %.*s has scales, but config.json declares no quantisation for it", c->path, STR_ARG(path));
    return ERR_OK;
}

static struct str store_name_at(void *user, size_t i) {
    const struct checkpoint *c = user;
    return i < c->n_tensors ? c->tensors[i].t->name : (struct str){0};
}

struct tensor_store model_checkpoint_store(const struct checkpoint *c) {
    return (struct tensor_store){
        .find = store_find, .read = store_read, .format = store_format, .name_at = store_name_at, .user = (void *)(uintptr_t)c};
}

int model_open(struct arena *a, struct backend *be, const struct config *config, const struct tensor_store *store,
               const struct weights_adapters *adapters, struct model *out, struct err *err) {
    *out = (struct model){0};
    TRY(spec_resolve(a, config, &out->spec, err));
    out->is_prefix = out->spec.is_prefix;
    return weights_bind(a, be, store, &out->spec, adapters, &out->weights, err);
}

/* What somebody does with a checkpoint that is refused. */
#define MODEL_WAY_OUT "; take the unquantised checkpoint, and quantise it by: mlxcel quantize -m PLAIN -o NEW"

/* Whether the weights are quantised as a foreign method does it. Converters back to plain weights leave the method's name behind. */
static bool has_foreign_weights(const struct checkpoint *c) {
    static const char *const signs[] = {"*.qweight",       "*.qzeros", "*.weight_scale", "*.weight_scale_inv",
                                        "*.weight_packed", "*.absmax", "*.quant_state.*"};
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct st_tensor *t = c->tensors[i].t;
        if (t->n_dims == 2 && t->dtype > DT_BF16 && str_ends(t->name, STR(".weight"))) return true;
        for (size_t k = 0; k < sizeof signs / sizeof *signs; k++)
            if (str_glob(str_of(signs[k]), t->name)) return true;
    }
    return false;
}

int model_open_checkpoint(struct arena *a, struct backend *be, const struct checkpoint *c, const struct tensor_store *store,
                          const struct weights_adapters *adapters, struct model *out, struct err *err) {
    if (!c->has_config) return err_set(err, ERR_EFORMAT, "%s has no config.json", c->path);
    /* mxfp4 stores what MLX's format of the name stores */
    bool is_foreign = c->quant.foreign.p && !c->quant.is_repacked && !str_is(c->quant.foreign, "mxfp4");
    if (c->quant.refusal.p) return err_set(err, ERR_EUNSUPPORTED, "%.*s" MODEL_WAY_OUT, STR_ARG(c->quant.refusal));
    if (is_foreign && !has_foreign_weights(c))
        log_warn("%s: config.json says \"%.*s\", but the weights are plain: they are taken as they are", c->path,
                 STR_ARG(c->quant.foreign));
    else if (is_foreign)
        return err_set(err, ERR_EUNSUPPORTED, "%s: weights quantised by \"%.*s\" are not read" MODEL_WAY_OUT, c->path,
                       STR_ARG(c->quant.foreign));
    return model_open(a, be, &c->config, store, adapters, out, err);
}

void model_close(struct backend *be, struct model *m) {
    weights_release(be, &m->weights);
}
