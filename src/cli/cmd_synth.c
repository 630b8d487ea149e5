/* mlxcel synth: a made-up checkpoint of a real shape on disk. */
#include "tools/synth_write.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/session_args.h"

static bool show(void *user, uint64_t done, uint64_t total) {
    progress_show(user, done, total);
    return !interrupt_came();
}

int cmd_synth(const struct args *args, struct err *err) {
    struct str shape = args_str(args, OPT_SHAPE), dir = args_str(args, OPT_OUT_DIR);
    if (!shape.p) return err_set(err, ERR_EARG, "--shape NAME is missing");
    if (!dir.p) return err_set(err, ERR_EARG, "--output DIR is missing");
    struct progress bar = {0};
    struct synth_write_options o = {.shape = shape,
                                    .n_layers = (int32_t)args_int(args, OPT_SHAPE_LAYERS),
                                    .bits = args_shape_bits(args),
                                    .f16 = args_choice(args, OPT_DTYPE) == 1,
                                    .seed = (uint64_t)args_int(args, OPT_SYNTH_SEED),
                                    .dir = str_cstr(args->arena, dir),
                                    .progress = show,
                                    .user = &bar};
    interrupt_begin();
    int code = synth_write(&o, err);
    interrupt_end();
    progress_end(&bar);
    return code;
}
