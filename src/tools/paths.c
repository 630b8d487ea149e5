/* Planning a model's steps, and saying which kernels they take. */
#include "tools/paths.h"

#include "api/model_folder.h"
#include "api/session_internal.h"
#include "api/synth.h"
#include "base/str.h"
#include "engine/kv_size.h"
#include "model/model.h"

static const struct paths_step usual_steps[PATHS_STEPS] = {
    {.name = "1 row", .rows = 1, .len = 4096},
    {.name = "16 rows", .rows = 16, .len = 4096},
    {.name = "a prompt of 2048", .rows = 2048, .len = 2048, .is_prompt = true},
};

/* ---- tensors without their numbers ------------------------------------------------------------------------------------ */

enum { READ_MAX = 1 << 20 }; /* numbers of larger tensors are not read: they decide nothing */

static bool bare_find(void *user, struct str name, struct tensor_info *out) {
    const struct tensor_store *inner = user;
    return inner->find(inner->user, name, out);
}

static int bare_read(void *user, const struct tensor_info *t, uint64_t offset, void *dst, size_t n, struct err *err) {
    const struct tensor_store *inner = user;
    int64_t elements = 1;
    for (int32_t i = 0; i < t->n_dims; i++) elements *= t->shape[i];
    if (elements <= READ_MAX) return inner->read(inner->user, t, offset, dst, n, err);
    if (n < READ_MAX) memset(dst, 0, n); /* larger pieces are only passed on to a driver that does nothing */
    return ERR_OK;
}

static int bare_format(void *user, struct str path, struct format *out, struct err *err) {
    const struct tensor_store *inner = user;
    return inner->format(inner->user, path, out, err);
}

/* ---- planning --------------------------------------------------------------------------------------------------------- */

static int open_cache(struct backend *be, const struct spec *spec, struct err *err) {
    struct kv_layout layout = spec->kv;
    layout.max_context = spec->context;
    layout.n_slots = 1;
    for (int i = 0; i < PATHS_STEPS; i++) {
        const struct paths_step *s = &usual_steps[i];
        int32_t seqs = s->is_prompt ? 1 : s->rows;
        for (int32_t k = 0; k < layout.n_classes; k++) layout.classes[k].n_blocks = seqs * (s->len / KV_BLOCK + 2);
        if (seqs > layout.n_slots) layout.n_slots = seqs;
    }
    return be->type->kv_open(be, &layout, err);
}

static int plan_step(struct backend *be, const struct model *m, struct paths_step *s, struct err *err) {
    struct oplist *l = &be->list;
    int32_t longest = spec_longest(&m->spec, s->len);
    if (s->len > longest) s->len = longest;
    if (s->is_prompt && s->rows > s->len) s->rows = s->len;
    int32_t seqs = s->is_prompt ? 1 : s->rows;
    struct step_key key = {.n_rows = s->rows, .n_seqs = seqs, .n_logits = seqs, .max_len = s->len, .decode_only = !s->is_prompt};
    if (m->spec.is_encoder) key.n_logits = 0, key.n_hidden = seqs;
    be->type->begin(be, &key);
    struct tensor states = forward_hidden(m, l, NULL);
    if (m->spec.is_encoder) oplist_output(l, states);
    else oplist_output(l, op_argmax(l, forward_head(m, l, states)));
    return be->type->plan_step(be, &s->paths, err);
}

static int examine(struct device *plan, const struct config *config, const struct tensor_store *store,
                   const struct backend_options *options, struct paths_report *out, struct err *err) {
    struct arena a = {0};
    struct backend *be = NULL;
    struct model m;
    struct tensor_store inner = *store;
    struct tensor_store bare = {.find = bare_find, .read = bare_read, .format = bare_format, .may_be_unread = true, .user = &inner};
    int code = backend_open(plan, options, &be, err);
    if (!code) code = model_open(&a, be, config, &bare, NULL, &m, err);
    if (!code) {
        code = open_cache(be, &m.spec, err);
        for (int i = 0; i < PATHS_STEPS && !code; i++) code = plan_step(be, &m, &out->steps[i], err);
        model_close(be, &m);
    }
    backend_close(be);
    arena_free(&a);
    return code;
}

int paths_examine(const struct session_options *o, struct device *gpu, struct paths_report *out, struct err *err) {
    struct arena a = {0};
    struct synth *synth;
    struct synth_args args = {
        .shape = str_of(o->shape ? o->shape : ""), .n_layers = o->n_layers, .bits = o->bits, .f16 = o->f16, .seed = o->seed};
    struct checkpoint checkpoint;
    memcpy(out->steps, usual_steps, sizeof usual_steps);
    if (!gpu->type->plan_device) return err_set(err, ERR_EUNSUPPORTED, "%s has one kernel for each op", gpu->type->name);
    struct device *plan = gpu->type->plan_device(gpu);
    int code = o->shape ? synth_create(&a, &args, &synth, err) : model_folder_open(o->model, &checkpoint, err);
    if (!code) {
        struct tensor_store store = o->shape ? synth_store(synth) : model_checkpoint_store(&checkpoint);
        struct backend_options options = {.precision = (enum precision)o->precision, .kv_bits = o->kv_bits};
        code = examine(plan, o->shape ? synth_config(synth) : &checkpoint.config, &store, &options, out, err);
        if (!o->shape) checkpoint_close(&checkpoint);
    }
    device_release(plan);
    arena_free(&a);
    return code;
}

int paths_of_session(struct session *s, const struct session_options *o, struct paths_report *out, struct err *err) {
    return paths_examine(o, s->backend->device ? s->backend->device : s->device, out, err);
}

double paths_slow_share(const struct step_paths *p) {
    return p->bytes ? (double)p->slow_bytes / (double)p->bytes : 0;
}

void paths_describe(const struct paths_step *s, struct sb *out) {
    const struct step_paths *p = &s->paths;
    sb_fmt(out, "%s", s->name);
    if (!s->is_prompt) sb_fmt(out, " at %d tokens", s->len);
    sb_fmt(out, ": reads %.3g GB in %d launches, ", (double)p->bytes * 1e-9, p->n_launches);
    if (!p->slow_bytes) sb_puts(out, "none of it by reference rows");
    else sb_fmt(out, "%.2f %% of it by reference rows:", 100 * paths_slow_share(p));
    for (int32_t i = 0; i < p->n_slow; i++)
        sb_fmt(out, "%s %s (%s) %.2f %%", i ? "," : "", p->slow[i].row, p->slow[i].op, 100 * (double)p->slow[i].bytes / (double)p->bytes);
}
