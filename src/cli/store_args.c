/* Options of the store from the command line. */
#include "cli/store_args.h"

#include "os/os.h"

static const char *hf_home(const struct args *args) {
    const char *home = args_cstr(args, OPT_HF_HOME), *cache = args_cstr(args, OPT_XDG_CACHE);
    if (home) return home;
    if (cache) return str_fmt(args->arena, "%s/huggingface", cache).p;
    return os_home_dir() ? str_fmt(args->arena, "%s/.cache/huggingface", os_home_dir()).p : NULL;
}

void store_args(const struct args *args, struct store_options *out) {
    *out = (struct store_options){.hub.endpoint = cli_options[OPT_HUB].initial};
    out->models_dir = args_cstr(args, OPT_MODELS_DIR);
    out->home = args_cstr(args, OPT_HOME);
    if (!out->home) out->home = args_cstr(args, OPT_CACHE_DIR);
    if (!args_has(args, OPT_HF_HOME)) return;
    out->owner = args_cstr(args, OPT_DEFAULT_ORG);
    out->hf_cache = args_cstr(args, OPT_HF_CACHE);
    out->hub.hf_home = hf_home(args);
    if (!args_has(args, OPT_HUB)) return;
    out->hub.token = args_cstr(args, OPT_HF_TOKEN);
    out->hub.token_path = args_cstr(args, OPT_HF_TOKEN_PATH);
    out->hub.insecure_token = args_flag(args, OPT_INSECURE_TOKEN);
    out->hub.endpoint = args_cstr(args, OPT_HUB);
    out->hub.cacert = args_cstr(args, OPT_CACERT);
    out->hub.offline = args_flag(args, OPT_OFFLINE);
    if (!args_has(args, OPT_HUB_CONNECTIONS)) return;
    out->hub.n_connections = (int32_t)args_int(args, OPT_HUB_CONNECTIONS);
    out->hub.n_tries = (int32_t)args_int(args, OPT_HUB_RETRIES) + 1;
    out->hub.stall_s = (int32_t)args_int(args, OPT_HUB_STALL);
    out->hub.max_wait_s = (int32_t)args_int(args, OPT_HUB_WAIT);
}

int args_model(const struct args *args, struct str model, const char **out_path, const char **out_name, struct err *err) {
    struct store_options o;
    const char *name;
    *out_path = NULL;
    if (out_name) *out_name = NULL;
    if (!model.p || str_is(model, "built-in")) return ERR_OK;
    if (model.n == 0) return err_set(err, ERR_EARG, "the model's name is empty; leave --model out for the built-in model");
    store_args(args, &o);
    return store_resolve(args->arena, &o, str_cstr(args->arena, model), out_path, out_name ? out_name : &name, err);
}
