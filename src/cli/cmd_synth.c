/* mlxcel synth: a made-up checkpoint of a real shape on disk. */
#include "api/synth_write.h"
#include "cli/args.h"
#include "os/os.h"

#include <stdio.h>

struct progress {
    uint64_t last_ns;
    bool shown;
};

static void show(void *user, uint64_t done, uint64_t total) {
    struct progress *p = user;
    uint64_t now = os_clock_ns();
    if (!os_is_terminal(OS_STDERR) || (now - p->last_ns < 100000000 && done < total)) return;
    char line[80];
    int n = snprintf(line, sizeof line, "\r%5.1f%% of %.2f GB", total ? 100.0 * (double)done / (double)total : 100.0, (double)total * 1e-9);
    os_write(OS_STDERR, str_n(line, (size_t)n), NULL);
    p->last_ns = now;
    p->shown = true;
}

int cmd_synth(const struct args *args, struct err *err) {
    static const int32_t bits[] = {4, 8, 16, 32};
    struct str shape = args_str(args, OPT_SHAPE), dir = args_str(args, OPT_OUT_DIR);
    if (!shape.p) return err_set(err, ERR_EARG, "--shape NAME is missing");
    if (!dir.p) return err_set(err, ERR_EARG, "--output DIR is missing");
    struct progress p = {0};
    struct synth_write_options o = {.shape = shape,
                                    .bits = bits[args_choice(args, OPT_BITS)],
                                    .f16 = args_choice(args, OPT_DTYPE) == 1,
                                    .seed = (uint64_t)args_int(args, OPT_SYNTH_SEED),
                                    .dir = str_cstr(args->arena, dir),
                                    .progress = show,
                                    .user = &p};
    int code = synth_write(&o, err);
    if (p.shown) os_write(OS_STDERR, STR("\n"), NULL);
    return code;
}
