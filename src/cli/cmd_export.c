/* mlxcel export: a model as a file of another program. */
#include "tools/export.h"

#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/session_args.h"
#include "cli/store_args.h"

static bool show(void *user, uint64_t done, uint64_t total) {
    progress_show(user, done, total);
    return !interrupt_came();
}

int cmd_export(const struct args *args, struct err *err) {
    struct str source = args_str(args, OPT_QUANT_SOURCE);
    struct progress bar = {0};
    struct export_options o = {.target = args_cstr(args, OPT_GGUF_FILE), .progress = show, .user = &bar};
    struct export_result r;
    char size[32];
    if (!source.p) return err_set(err, ERR_EARG, "--model MODEL is missing");
    if (!o.target) return err_set(err, ERR_EARG, "--gguf FILE is missing");
    TRY(args_model(args, source, &o.source, NULL, err));
    interrupt_begin();
    int code = export_gguf(&o, &r, err);
    interrupt_end();
    progress_end(&bar);
    if (code) return code;
    log_info("%zu tensors, %s written", r.n_tensors, hub_size_text(r.bytes, size));
    return ERR_OK;
}
