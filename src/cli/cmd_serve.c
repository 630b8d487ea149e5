/* mlxcel serve: options to the server. */
#include "cli/serve_models.h"
#include "cli/session_args.h"
#include "os/os.h"
#include "server/server.h"

enum { KEY_FILE_BYTES_MAX = 1 << 20, KEYS_MAX = 10000 };

struct keys {
    struct str *list;
    size_t n;
};

static int add_key(struct keys *keys, struct str key, struct err *err) {
    key = str_trim(key);
    if (key.n == 0) return ERR_OK;
    if (keys->n == KEYS_MAX) return err_set(err, ERR_EARG, "there are more than %d API keys", KEYS_MAX);
    keys->list[keys->n++] = key;
    return ERR_OK;
}

/* Keys of the flag (several in one are separated by commas) and of the file. An empty list where keys were asked for would open
 * the server to everybody: refused. */
static int read_keys(const struct args *args, struct keys *out, struct err *err) {
    const struct str *given;
    struct str text, piece, path = args_str(args, OPT_API_KEY_FILE);
    size_t n = args_strings(args, OPT_API_KEY, &given);
    out->list = arena_new(args->arena, struct str, KEYS_MAX);
    for (size_t i = 0; i < n; i++) {
        text = given[i];
        while (str_split_next(&text, ',', &piece)) TRY(add_key(out, piece, err));
    }
    if (path.p) {
        if (os_input_load(args->arena, str_cstr(args->arena, path), KEY_FILE_BYTES_MAX, &text, err))
            return err_prefix(err, "--api-key-file");
        while (str_split_next(&text, '\n', &piece)) TRY(add_key(out, piece, err));
    }
    if ((n || path.p) && out->n == 0) return err_set(err, ERR_EARG, "--api-key and --api-key-file hold no key");
    return ERR_OK;
}

int cmd_serve(const struct args *args, struct err *err) {
    struct keys keys = {0};
    struct device *device;
    struct server_options o = {.host = args_cstr(args, OPT_HOST),
                               .port = (int32_t)args_int(args, OPT_PORT),
                               .n_queue = (int32_t)args_int(args, OPT_QUEUE),
                               .n_conns = (int32_t)args_int(args, OPT_CONNECTIONS),
                               .body_bytes = (size_t)args_int(args, OPT_MAX_BODY),
                               .keep_ms = args_int(args, OPT_KEEP_ALIVE) * 1000,
                               .deadline_ms = args_int(args, OPT_TIMEOUT) * 1000,
                               .ping_ms = args_int(args, OPT_SSE_PING) * 1000,
                               .cert_path = args_cstr(args, OPT_SSL_CERT),
                               .key_path = args_cstr(args, OPT_SSL_KEY),
                               .pooling = (enum session_pooling)args_choice(args, OPT_POOLING),
                               .prefills = args_flag(args, OPT_PREFILL),
                               .json_log = args_choice(args, OPT_LOG_FORMAT) == 1,
                               .open_page = args_flag(args, OPT_OPEN),
                               .thinking = (enum messages_thinking)args_choice(args, OPT_REASONING),
                               .verbose = str_is(args_str(args, OPT_LOG_LEVEL), "debug"),
                               .no_page = !args_flag(args, OPT_UI),
                               .no_slots = !args_flag(args, OPT_SLOTS),
                               .max_new = (int32_t)args_int(args, OPT_MAX_TOKENS),
                               .has_seed = args_given(args, OPT_SEED),
                               .seed = args_int(args, OPT_SEED)};
    if (!o.cert_path != !o.key_path) return err_set(err, ERR_EARG, "--ssl-cert-file and --ssl-key-file belong together");
    TRY(sampling_args(args, &o.sampling, err));
    TRY(read_keys(args, &keys, err));
    TRY(serve_models(args, &o, &device, err));
    o.keys = keys.list;
    o.n_keys = keys.n;
    o.n_origins = args_strings(args, OPT_CORS_ORIGINS, &o.origins);
    o.n_hosts = args_strings(args, OPT_ALLOWED_HOSTS, &o.hosts);
    int code = server_run(&o, err);
    device_release(device);
    return code;
}
