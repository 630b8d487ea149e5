/* mlxcel fuse: a copy of a model with adapters added to its weights, or with the edits of a file. */
#include "tools/fuse.h"
#include "tools/new_folder.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/session_args.h"
#include "cli/store_args.h"

static bool show(void *user, uint64_t done, uint64_t total) {
    progress_show(user, done, total);
    return !interrupt_came();
}

int cmd_fuse(const struct args *args, struct err *err) {
    struct str source = args_str(args, OPT_QUANT_SOURCE), target = args_str(args, OPT_QUANT_TARGET);
    struct progress bar = {0};
    struct session_options given = {0};
    struct fuse_result r;
    char size[32];
    if (!source.p) return err_set(err, ERR_EARG, "--model MODEL is missing");
    if (!target.p) return err_set(err, ERR_EARG, "--output DIR is missing");
    TRY(args_adapters(args, &given, err));
    struct fuse_options o = {.target = str_cstr(args->arena, target),
                             .n_adapters = given.n_adapters,
                             .surgery = args_cstr(args, OPT_SURGERY),
                             .dequantize = args_flag(args, OPT_DEQUANTIZE),
                             .progress = show,
                             .user = &bar};
    if (!o.n_adapters && !o.surgery && !o.dequantize) return err_set(err, ERR_EARG, "--adapter DIR is missing, or --surgery FILE");
    struct fuse_adapter *adapters = arena_new(args->arena, struct fuse_adapter, o.n_adapters + 1);
    for (int32_t i = 0; i < o.n_adapters; i++) adapters[i] = (struct fuse_adapter){given.adapters[i].path, given.adapters[i].scale};
    o.adapters = adapters;
    TRY(new_folder_check(o.target, err));
    TRY(args_model(args, source, &o.source, NULL, err));
    interrupt_begin();
    int code = fuse_run(&o, &r, err);
    interrupt_end();
    progress_end(&bar);
    if (code) return code;
    log_info("%zu matrices changed, %s written", r.n_fused, hub_size_text(r.target_bytes, size));
    return ERR_OK;
}
