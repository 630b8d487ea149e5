/* Sampling options: each is called like the sampler's parameter, with dashes. */
#include "cli/session_args.h"

#include "base/hash.h"
#include "os/os.h"

static const struct sampler_field *field_of(const struct args *args, const struct opt *o) {
    struct str name = str_copy(args->arena, str_of(o->name));
    char *p = (char *)(uintptr_t)name.p;
    for (size_t i = 0; i < name.n; i++)
        if (p[i] == '-') p[i] = '_';
    return sampler_field_find(name);
}

int sampling_args(const struct args *args, struct sampling_given *out, struct err *err) {
    *out = (struct sampling_given){.values = sampler_defaults()};
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct opt *o = &cli_options[i];
        if (!opt_applies(o, args->command) || !args_given(args, (enum opt_id)i)) continue;
        const struct sampler_field *f = field_of(args, o);
        if (!f) continue;
        double value = o->type == ARG_INT ? (double)args_int(args, (enum opt_id)i) : args_float(args, (enum opt_id)i);
        if (!sampling_give(out, f, value)) return err_set(err, ERR_EARG, "--%s must lie between %g and %g", o->name, f->min, f->max);
    }
    return ERR_OK;
}

/* "15043+1.5", "15043-inf" */
static bool parse_bias(struct str text, struct sampler_bias *out) {
    size_t n = 0;
    int64_t id;
    double bias;
    while (n < text.n && text.p[n] >= '0' && text.p[n] <= '9') n++;
    if (n == 0 || n == text.n || !str_to_int64(str_sub(text, 0, n), &id) || id > INT32_MAX) return false;
    struct str rest = str_from(text, text.p[n] == '+' ? n + 1 : n);
    if (str_is(rest, "-inf")) bias = -1e6;
    else if (!str_to_double(rest, &bias) || !(bias >= -1e6 && bias <= 1e6)) return false;
    *out = (struct sampler_bias){(int32_t)id, (float)bias};
    return true;
}

int sampling_args_extra(const struct args *args, struct sampler_params *p, struct err *err) {
    const struct str *texts;
    size_t n = args_strings(args, OPT_LOGIT_BIAS, &texts);
    if (n > SAMPLER_BIAS_MAX) return err_set(err, ERR_EARG, "--logit-bias is given more than %d times", SAMPLER_BIAS_MAX);
    struct sampler_bias *bias = arena_new(args->arena, struct sampler_bias, n + 1);
    for (size_t i = 0; i < n; i++)
        if (!parse_bias(texts[i], &bias[i]))
            return err_set(err, ERR_EARG, "--logit-bias is '%.*s', expected a token id and a number such as 15043+1 or 15043-inf",
                           STR_ARG(texts[i]));
    p->bias = bias;
    p->n_bias = (int32_t)n;
    p->n_breakers = args_strings(args, OPT_DRY_BREAKERS, &p->breakers);
    if (p->n_breakers == 0) p->breakers = NULL;
    p->seed = args_given(args, OPT_SEED) ? (uint64_t)args_int(args, OPT_SEED)
                                         : hash_pair(os_clock_ns(), (uint64_t)os_process_id()) >> 33; /* short enough to be typed */
    return ERR_OK;
}

int sampling_args_check(const struct args *args, struct err *err) {
    struct sampling_given given;
    struct sampler_params params = sampler_defaults();
    TRY(sampling_args(args, &given, err));
    return sampling_args_extra(args, &params, err);
}
