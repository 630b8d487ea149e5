/* Rank, size, meeting point and secret of a group of processes. */
#include "cli/world_args.h"

#include "cli/session_args.h"
#include "os/os.h"

enum { RANKS_MAX = 64, PORT_USUAL = 29500, SECRET_FILE_MAX = 4096 };

/* By a flag, a file or a name of our own. What launchers set is there for any program that runs under them. */
static bool is_meant(const struct args *args, enum opt_id id) {
    const struct arg_value *v = &args->values[id];
    return args_given(args, id) && (v->source != ARG_FROM_ENV || str_starts(v->variable, STR("MLXCEL_")));
}

/* "--rank", or the variable that it came from. */
static struct str name_of(const struct args *args, enum opt_id id) {
    struct str variable = args->values[id].variable;
    return variable.p ? variable : str_fmt(args->arena, "--%s", cli_options[id].name);
}

static int number(const struct args *args, enum opt_id id, int64_t min, int64_t max, int32_t *out, struct err *err) {
    struct str text = args_str(args, id);
    int64_t n;
    if (!str_to_int64(text, &n) || n < min || n > max)
        return err_set(err, ERR_EARG, "%.*s: \"%.*s\" is no whole number from %lld to %lld", STR_ARG(name_of(args, id)), STR_ARG(text),
                       (long long)min, (long long)max);
    *out = (int32_t)n;
    return ERR_OK;
}

static int read_secret(const struct args *args, struct str *out, struct err *err) {
    const char *path = args_cstr(args, OPT_JOB_SECRET_FILE);
    *out = args_str(args, OPT_JOB_SECRET);
    if (!path) return ERR_OK;
    if (os_input_load(args->arena, path, SECRET_FILE_MAX, out, err)) return err_prefix(err, "--job-secret-file");
    *out = str_trim(*out);
    if (!out->n) return err_set(err, ERR_EARG, "--job-secret-file: %s is empty", path);
    return ERR_OK;
}

/* HOST, HOST:PORT, [IPV6]:PORT; a plain address of IPv6 has no port. */
static int split_address(const struct args *args, struct str text, struct session_world *w, struct err *err) {
    struct str host = text, port = {0};
    size_t close = text.n && text.p[0] == '[' ? str_find_char(text, ']', 0) : STR_NONE;
    size_t colon = str_find_char(text, ':', close == STR_NONE ? 0 : close);
    bool has_one = colon != STR_NONE && (close != STR_NONE || str_find_char(text, ':', colon + 1) == STR_NONE);
    int64_t n = w->port;
    if (has_one) host = str_sub(text, 0, colon), port = str_from(text, colon + 1);
    if (close != STR_NONE) host = str_sub(text, 1, close - 1);
    if (!host.n || (port.p && (!str_to_int64(port, &n) || n < 1 || n > 65535)))
        return err_set(err, ERR_EARG, "%.*s: \"%.*s\" is not HOST:PORT", STR_ARG(name_of(args, OPT_COORDINATOR)), STR_ARG(text));
    w->host = str_cstr(args->arena, host);
    w->port = (int32_t)n;
    return ERR_OK;
}

/* Ranks of this machine; 0: unknown. */
static int32_t ranks_here(const struct args *args) {
    int32_t n = 0;
    struct err unread;
    return args_given(args, OPT_LOCAL_SIZE) && number(args, OPT_LOCAL_SIZE, 1, RANKS_MAX, &n, &unread) == ERR_OK ? n : 0;
}

/* The number of this process among those; -1: unknown. */
static int32_t rank_here(const struct args *args) {
    int32_t n = 0;
    struct err unread;
    return args_given(args, OPT_LOCAL_RANK) && number(args, OPT_LOCAL_RANK, 0, RANKS_MAX, &n, &unread) == ERR_OK ? n : -1;
}

static int read_address(const struct args *args, struct session_world *w, struct err *err) {
    w->port = PORT_USUAL;
    if (args_given(args, OPT_MASTER_PORT)) TRY(number(args, OPT_MASTER_PORT, 1, 65535, &w->port, err));
    if (args_given(args, OPT_COORDINATOR)) return split_address(args, args_str(args, OPT_COORDINATOR), w, err);
    w->host = "127.0.0.1";
    if (ranks_here(args) == w->size) return ERR_OK;
    return err_set(err, ERR_EARG, "where rank 0 waits for the others is not known; give all ranks --coordinator HOST:PORT, or MASTER_ADDR");
}

static int no_secret(const struct args *args, int32_t size, struct err *err) {
    return err_set(err, ERR_EARG,
                   "%.*s says that %d processes compute together, which takes a secret that all of them have: MLXCEL_JOB_SECRET or "
                   "--job-secret-file FILE; with --world-size 1 this process computes alone",
                   STR_ARG(name_of(args, OPT_WORLD_SIZE)), size);
}

int args_ranks(const struct args *args, int32_t *out, struct err *err) {
    struct str text = args_str(args, OPT_TENSOR_PARALLEL);
    int64_t n;
    *out = RANKS_AUTO;
    if (str_is(text, "auto")) return ERR_OK;
    if (!str_to_int64(text, &n) || n < 1 || n > RANKS_MAX)
        return err_set(err, ERR_EARG, "--tensor-parallel is '%.*s', expected auto or a whole number from 1 to %d", STR_ARG(text),
                       RANKS_MAX);
    *out = (int32_t)n;
    return ERR_OK;
}

int args_world(const struct args *args, struct session_options *out, struct err *err) {
    struct session_world w = {.join_ms = (int32_t)args_int(args, OPT_JOIN_TIMEOUT) * 1000,
                              .silence_ms = (int32_t)args_int(args, OPT_RANK_TIMEOUT) * 1000};
    bool is_meant_so = is_meant(args, OPT_WORLD_SIZE), cuts = args_given(args, OPT_TENSOR_PARALLEL) && out->n_ranks > 1;
    TRY(read_secret(args, &w.secret, err));
    if (!w.secret.p && !is_meant_so && !cuts && !is_meant(args, OPT_RANK)) return ERR_OK;
    if (!args_given(args, OPT_WORLD_SIZE)) {
        if (is_meant(args, OPT_RANK)) return err_set(err, ERR_EARG, "--rank goes with --world-size");
        return ERR_OK;
    }
    TRY(number(args, OPT_WORLD_SIZE, 1, RANKS_MAX, &w.size, err));
    if (w.size == 1) return ERR_OK;
    if (!w.secret.p) return no_secret(args, w.size, err);
    if (!args_given(args, OPT_RANK)) return err_set(err, ERR_EARG, "--world-size goes with --rank");
    TRY(number(args, OPT_RANK, 0, w.size - 1, &w.rank, err));
    if (cuts && out->n_ranks != w.size)
        return err_set(err, ERR_EARG, "--tensor-parallel %d among %d processes: each process is one rank; leave it out", out->n_ranks,
                       w.size);
    TRY(read_address(args, &w, err));
    w.rank_here = rank_here(args);
    out->n_ranks = w.size;
    out->world = w;
    int32_t here = ranks_here(args);
    if (here > 1 && out->n_threads == 0) out->n_threads = os_core_count() / here > 0 ? os_core_count() / here : 1;
    return ERR_OK;
}

/* The first rank ends the others: a launcher tells all of them to end at once, and the first has answers to finish. */
static void ignore(void) {}

static void on_joined(void *user) {
    (void)user;
    os_on_interrupt(ignore);
}

int world_args_follow(const struct session_options *o, struct err *err) {
    struct session_options own = *o;
    own.world.on_joined = on_joined;
    int code = session_follow(&own, err);
    os_on_interrupt(NULL);
    return code ? err_prefix(err, "rank %d", o->world.rank) : ERR_OK;
}

int world_args_follow_command(const struct args *args, bool *out_follows, struct err *err) {
    struct session_options o;
    *out_follows = false;
    if (args->command == CMD_SERVE || !args_has(args, OPT_WORLD_SIZE) || !args_given(args, OPT_RANK)) return ERR_OK;
    struct session_options wanted = {0};
    TRY(args_ranks(args, &wanted.n_ranks, err));
    TRY(args_world(args, &wanted, err));
    if (wanted.world.rank == 0) return ERR_OK;
    *out_follows = true;
    TRY(session_args(args, &o, err));
    return world_args_follow(&o, err);
}
