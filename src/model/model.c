/* Opening a model: config to spec, checkpoint to weights. */
#include "model/model.h"

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

int model_open(struct arena *a, struct backend *be, const struct config *config, const struct tensor_store *store, struct model *out,
               struct err *err) {
    *out = (struct model){0};
    TRY(spec_resolve(a, config, &out->spec, err));
    return weights_bind(a, be, store, &out->spec, &out->weights, err);
}

int model_open_checkpoint(struct arena *a, struct backend *be, const struct checkpoint *c, const struct tensor_store *store,
                          struct model *out, struct err *err) {
    if (!c->has_config) return err_set(err, ERR_EFORMAT, "%s has no config.json", c->path);
    if (c->quant.foreign.p && !str_is(c->quant.foreign, "mxfp4")) /* that one stores what MLX's format of the name stores */
        return err_set(err, ERR_EUNSUPPORTED,
                       "%s: weights quantised by \"%.*s\" are not supported; use an MLX-quantised or an unquantised checkpoint", c->path,
                       STR_ARG(c->quant.foreign));
    return model_open(a, be, &c->config, store, out, err);
}

void model_close(struct backend *be, struct model *m) {
    weights_release(be, &m->weights);
}
