/* mlxcel serve: options to the server. */
#include "cli/serve.h"
#include "cli/serve_models.h"
#include "cli/serve_store.h"
#include "cli/session_args.h"
#include "cli/world_args.h"
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

/* Everything but the models. */
static int server_args(const struct args *args, struct server_options *o, struct err *err) {
    struct keys keys = {0};
    *o = (struct server_options){.host = args_cstr(args, OPT_HOST),
                                 .port = (int32_t)args_int(args, OPT_PORT),
                                 .n_queue = (int32_t)args_int(args, OPT_QUEUE),
                                 .n_conns = (int32_t)args_int(args, OPT_CONNECTIONS),
                                 .body_bytes = (size_t)args_int(args, OPT_MAX_BODY),
                                 .deadline_ms = args_int(args, OPT_TIMEOUT) * 1000,
                                 .drain_ms = args_int(args, OPT_DRAIN) * 1000,
                                 .ping_ms = args_int(args, OPT_SSE_PING) * 1000,
                                 .cert_path = args_cstr(args, OPT_SSL_CERT),
                                 .key_path = args_cstr(args, OPT_SSL_KEY),
                                 .json_log = args_choice(args, OPT_LOG_FORMAT) == 1,
                                 .open_page = args_flag(args, OPT_OPEN),
                                 .verbose = str_is(args_str(args, OPT_LOG_LEVEL), "debug"),
                                 .no_page = !args_flag(args, OPT_UI),
                                 .slot_dir = args_cstr(args, OPT_SLOT_SAVE_PATH),
                                 .fetches_pictures = args_flag(args, OPT_REMOTE_IMAGES),
                                 .no_slots = !args_flag(args, OPT_SLOTS)};
    if (!o->cert_path != !o->key_path) return err_set(err, ERR_EARG, "--ssl-cert-file and --ssl-key-file belong together");
    TRY(read_keys(args, &keys, err));
    o->keys = keys.list;
    o->n_keys = keys.n;
    o->n_origins = args_strings(args, OPT_CORS_ORIGINS, &o->origins);
    o->n_hosts = args_strings(args, OPT_ALLOWED_HOSTS, &o->hosts);
    return ERR_OK;
}

/* --check: says what would be served. Whatever is wrong is a mistake of whoever wrote the options. */
static int check(const struct args *args, const struct settings *settings, const struct server_options *o, const struct serve_model *models,
                 struct err *err) {
    struct sb text = {0};
    TRY(server_check(o, err));
    serve_models_describe(args, settings, o, models, &text);
    int code = cli_write(&text, err);
    sb_free(&text);
    return code;
}

/* inside NULL: the server is the process. */
static int serve(struct args *args, const struct server_inside *inside, struct err *err) {
    struct settings settings;
    struct server_options o;
    struct serve_model *models;
    struct device *device = NULL;
    struct serve_store *store = NULL;
    TRY(settings_read(args, &settings, err));
    TRY(server_args(args, &o, err));
    o.inside = inside;
    TRY(serve_models(args, &settings, &o, &models, err));
    if (args_flag(args, OPT_CHECK)) return check(args, &settings, &o, models, err);
    const struct session_options *session = &o.models[0].session;
    bool is_one = session->world.size > 1 || session_takes_gpus(session);
    if (is_one && (o.n_models > 1 || o.models[0].is_stored))
        return err_set(err, ERR_EARG, "several %s compute one model together: name one by --model",
                       session->world.size > 1 ? "processes" : "GPUs");
    if (session->world.rank > 0) return world_args_follow(session, err);
    if (serve_models_are_stored(args, &settings) && !is_one) {
        store = serve_store_open(args, &settings, &o);
        o.store = serve_store_functions(store);
    }
    int code = serve_models_device(args, &o, models, &device, err);
    if (code == ERR_OK) code = server_run(&o, err);
    serve_store_close(store);
    device_release(device);
    return code;
}

int cmd_serve(const struct args *args, struct err *err) {
    struct args *own = arena_new(args->arena, struct args, 1);
    *own = *args;
    if (args->n_operands && own->values[OPT_MODEL].source == ARG_FROM_FLAG)
        return err_set(err, ERR_EARG, "give the models once: as arguments or by --model");
    for (size_t i = 0; i < args->n_operands; i++) TRY(args_set(own, OPT_MODEL, "MODEL", args->operands[i], ARG_FROM_FLAG, err));
    own->n_operands = 0;
    int code = serve(own, NULL, err);
    return code && args_flag(own, OPT_CHECK) ? ERR_EARG : code;
}

/* ---- inside of a program ------------------------------------------------------------------------------------------------- */

static const char *no_environment(const char *name) {
    (void)name;
    return NULL;
}

/* The option without a flag that this variable of the environment stands for; -1: none. */
static int find_variable(struct str name) {
    for (int id = 0; id < N_OPTIONS; id++) {
        struct str rest = str_of(cli_options[id].env ? cli_options[id].env : ""), variable;
        if (cli_options[id].name || !opt_applies(&cli_options[id], CMD_SERVE)) continue;
        while (str_split_next(&rest, ',', &variable))
            if (str_eq(variable, name)) return id;
    }
    return -1;
}

static int set(struct args *args, const struct serve_setting *s, struct err *err) {
    static const enum opt_id of_the_process[] = {OPT_CHECK, OPT_LOG_FORMAT, OPT_LOG_LEVEL, OPT_RANK, OPT_WORLD_SIZE};
    if (!s->name) return err_set(err, ERR_EARG, "a setting has no name");
    int id = find_variable(str_of(s->name));
    if (id < 0) TRY(args_find(CMD_SERVE, str_of(s->name), &id, err));
    for (size_t i = 0; i < sizeof of_the_process / sizeof *of_the_process; i++)
        if (id == (int)of_the_process[i])
            return err_set(err, ERR_EARG, "setting %s is the command's; a server inside of a program does not have it", s->name);
    if (!s->value && cli_options[id].type != ARG_FLAG) return err_set(err, ERR_EARG, "setting %s has no value", s->name);
    return args_set(args, id, str_fmt(args->arena, "setting %s", s->name).p, s->value ? str_of(s->value) : STR("1"), ARG_FROM_FLAG, err);
}

static int parse_inside(struct arena *a, const struct serve_setting *settings, size_t n, struct args *out, struct err *err) {
    char *const argv[] = {"mlxcel", "serve"};
    TRY(args_parse(a, 2, argv, no_environment, out, err));
    for (size_t i = 0; i < n; i++) TRY(set(out, &settings[i], err));
    return ERR_OK;
}

int serve_inside(const struct serve_setting *settings, size_t n, const struct server_inside *inside, struct err *err) {
    struct arena a = {0};
    struct args args;
    int code = parse_inside(&a, settings, n, &args, err);
    if (!code) code = serve(&args, inside, err);
    arena_free(&a);
    return code;
}
