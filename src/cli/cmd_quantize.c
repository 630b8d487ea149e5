/* mlxcel quantize: a quantised copy of a model. */
#include "tools/new_folder.h"
#include "tools/quantize.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/store_args.h"
#include "os/os.h"

static bool show(void *user, uint64_t done, uint64_t total) {
    progress_show(user, done, total);
    return !interrupt_came();
}

static int read_overrides(const struct args *args, struct quantize_options *o, struct err *err) {
    const struct str *texts;
    size_t n = args_strings(args, OPT_QUANT_OVERRIDE, &texts);
    struct quantize_override *list = arena_new(args->arena, struct quantize_override, n + 1);
    for (size_t i = 0; i < n; i++) {
        size_t at = str_find_char(texts[i], '=', 0);
        int64_t bits;
        if (at == STR_NONE || at == 0 || !str_to_int64(str_from(texts[i], at + 1), &bits) || bits < 2 || bits > 16)
            return err_set(err, ERR_EARG, "--override is '%.*s', expected GLOB=BITS such as *.down_proj=6", STR_ARG(texts[i]));
        list[i] = (struct quantize_override){str_sub(texts[i], 0, at), (int32_t)bits};
    }
    o->overrides = list;
    o->n_overrides = n;
    return ERR_OK;
}

int cmd_quantize(const struct args *args, struct err *err) {
    struct str source = args_str(args, OPT_QUANT_SOURCE), target = args_str(args, OPT_QUANT_TARGET);
    struct progress bar = {0};
    struct quantize_result r;
    if (!source.p) return err_set(err, ERR_EARG, "--model MODEL is missing");
    if (!target.p) return err_set(err, ERR_EARG, "--output DIR is missing");
    struct quantize_options o = {.target = str_cstr(args->arena, target),
                                 .format = {.mode = (enum quant_mode)(QUANT_AFFINE + args_choice(args, OPT_QUANT_MODE))},
                                 .surgery = args_cstr(args, OPT_SURGERY),
                                 .progress = show,
                                 .user = &bar};
    if (args_given(args, OPT_QUANT_BITS)) o.format.bits = (uint8_t)args_int(args, OPT_QUANT_BITS);
    if (args_given(args, OPT_QUANT_GROUP)) o.format.group = (uint16_t)args_int(args, OPT_QUANT_GROUP);
    TRY(read_overrides(args, &o, err));
    TRY(new_folder_check(o.target, err));
    TRY(args_model(args, source, &o.source, NULL, err));
    interrupt_begin();
    int code = quantize_run(&o, &r, err);
    interrupt_end();
    progress_end(&bar);
    if (code) return code;
    char before[32], after[32];
    log_info("%zu matrices quantised, %zu tensors left plain: %s -> %s, %.3f bits per weight", r.n_quantized, r.n_plain,
             hub_size_text(r.source_bytes, before), hub_size_text(r.target_bytes, after), r.bits_per_weight);
    return ERR_OK;
}
