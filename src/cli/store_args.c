/* Options of the store from the command line. */
#include "cli/store_args.h"

void store_args(const struct args *args, struct store_options *out) {
    *out = (struct store_options){.hub.endpoint = cli_options[OPT_HUB].initial};
    if (args_has(args, OPT_MODELS_DIR)) out->models_dir = args_cstr(args, OPT_MODELS_DIR);
    if (!args_has(args, OPT_HUB)) return;
    out->hub.endpoint = args_cstr(args, OPT_HUB);
    out->hub.cacert = args_cstr(args, OPT_CACERT);
    out->hub.offline = args_flag(args, OPT_OFFLINE);
    if (!args_has(args, OPT_HUB_CONNECTIONS)) return;
    out->hub.n_connections = (int32_t)args_int(args, OPT_HUB_CONNECTIONS);
    out->hub.n_tries = (int32_t)args_int(args, OPT_HUB_RETRIES) + 1;
    out->hub.stall_s = (int32_t)args_int(args, OPT_HUB_STALL);
}

int args_model(const struct args *args, struct str model, const char **out_path, const char **out_name, struct err *err) {
    struct store_options o;
    const char *name;
    *out_path = NULL;
    if (out_name) *out_name = NULL;
    if (!model.p) return ERR_OK;
    if (model.n == 0) return err_set(err, ERR_EARG, "the model's name is empty; leave --model out for the built-in model");
    store_args(args, &o);
    return store_resolve(args->arena, &o, str_cstr(args->arena, model), out_path, out_name ? out_name : &name, err);
}
