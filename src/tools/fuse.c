/* Fusing writes with the parts of quantize: its plan, with the formats that are there already, and its files. */
#include "tools/fuse.h"

#include "api/model_folder.h"
#include "tools/new_folder.h"
#include "tools/quantize_internal.h"
#include "tools/surgery.h"
#include "file/fused_view.h"
#include "file/plain_view.h"

/* What was packed becomes plain numbers of the type that its scales had, or of bf16. */
static void make_plain(struct map *formats) {
    for (size_t i = 0; i < formats->n; i++) {
        struct format *f = formats->entries[i].value.ptr;
        if (f->mode != QUANT_NONE) *f = (struct format){.dtype = f->mode == QUANT_AFFINE ? f->dtype : DT_BF16};
    }
}

/* Formats that MLX does not have are not written. */
static int check_formats(const struct checkpoint *c, const struct map *formats, struct err *err) {
    char name[32];
    bool is_foreign = c->gguf || c->quant.is_repacked;
    for (size_t i = 0; i < formats->n; i++) {
        struct format *f = formats->entries[i].value.ptr;
        if (f->mode > QUANT_AFFINE) f->dtype = DT_BF16; /* what is rounded on the way */
        if (f->mode != QUANT_NONE && (is_foreign || !format_valid(f)))
            return err_set(err, ERR_EUNSUPPORTED, "%s: %.*s is %s, which no MLX folder holds; add --dequantize", c->path,
                           STR_ARG(formats->entries[i].key), format_name(f, name));
    }
    return ERR_OK;
}

static int write(struct checkpoint *c, const struct fuse_options *o, struct map *formats, struct fuse_result *out, struct err *err) {
    const struct quantize_options q = {.source = o->source, .target = o->target, .progress = o->progress, .user = o->user};
    struct quantize_plan p;
    int code = quantize_plan_keep(c, &q, formats, o->dequantize, &p, err);
    if (!code) code = quantize_write(c, &p, err);
    out->target_bytes = p.target_bytes;
    quantize_plan_free(&p);
    return code;
}

static int fuse(struct checkpoint *c, const struct fuse_options *o, struct fused_changes *changes, const struct surgery *surgery,
                struct fuse_result *out, struct err *err) {
    struct map formats = {0}, changed = {0};
    struct fused_view *view = NULL;
    struct prune *prune = NULL;
    bool is_foreign = c->gguf || c->quant.is_repacked;
    int code = ERR_OK;
    if (is_foreign && !o->dequantize && c->quant.overrides.n)
        code = err_set(err, ERR_EUNSUPPORTED, "%s: its packed formats are not MLX's; add --dequantize", c->path);
    if (!code && o->dequantize) code = plain_view(c, &formats, err);
    if (!code) code = prune_plan(&c->arena, c, surgery->prunes, surgery->n_prunes, &prune, changes, err);
    if (!code) code = fused_view_open(c, changes, &changed, &view, err);
    for (size_t i = 0; i < changed.n && !code; i++) { /* what was unpacked before is known by what it was then */
        bool is_new;
        struct map_entry *e = map_put(&formats, changed.entries[i].key, &is_new);
        if (is_new) e->value = changed.entries[i].value;
    }
    out->n_fused = changed.n;
    if (!code && o->dequantize) make_plain(&formats);
    if (!code) code = check_formats(c, &formats, err);
    if (!code) code = prune_apply(prune, c, &formats, err);
    if (!code) code = write(c, o, &formats, out, err);
    fused_view_close(view);
    map_free(&formats);
    map_free(&changed);
    return code;
}

int fuse_run(const struct fuse_options *o, struct fuse_result *out, struct err *err) {
    struct checkpoint c = {0};
    struct arena a = {0};
    *out = (struct fuse_result){0};
    TRY(new_folder_check(o->target, err));
    struct adapter *files = arena_new(&a, struct adapter, o->n_adapters + 1);
    struct fused_adapter *adapters = arena_new(&a, struct fused_adapter, o->n_adapters + 1);
    int code = quantize_open(o->source, &c, NULL, err);
    for (int32_t i = 0; i < o->n_adapters && !code; i++) {
        code = adapter_open(o->adapters[i].path, &files[i], err);
        adapters[i] = (struct fused_adapter){&files[i], o->adapters[i].scale};
    }
    struct surgery surgery = {0};
    if (!code && o->surgery) code = surgery_open(&a, o->surgery, &surgery, err);
    struct fused_changes changes = {
        .adapters = adapters, .n_adapters = (size_t)o->n_adapters, .edits = surgery.edits, .n_edits = surgery.n_edits};
    if (!code) code = fuse(&c, o, &changes, &surgery, out, err);
    surgery_close(&surgery);
    for (int32_t i = 0; i < o->n_adapters; i++) adapter_close(&files[i]);
    checkpoint_close(&c);
    arena_free(&a);
    return code;
}
