/* Which models are served, under which names, on which device. */
#include "cli/serve_models.h"

#include "cli/session_args.h"
#include "cli/store_args.h"
#include "os/os.h"

struct list {
    struct server_model *p;
    size_t n;
};

/* NAME=MODEL, unless that is the name of a file. */
static struct str take_name(const struct args *args, struct str *model) {
    size_t eq = str_find_char(*model, '=', 0);
    struct str name = str_sub(*model, 0, eq);
    struct os_stat st;
    if (eq == STR_NONE || eq == 0 || os_stat(str_cstr(args->arena, *model), &st, NULL) == 0) return (struct str){0};
    *model = str_from(*model, eq + 1);
    return name;
}

static bool has_name(const struct args *args, struct str model) {
    return take_name(args, &model).p != NULL;
}

static int add(struct list *l, struct server_model m, struct err *err) {
    for (size_t i = 0; i < l->n; i++)
        if (m.name && l->p[i].name && strcmp(m.name, l->p[i].name) == 0)
            return err_set(err, ERR_EARG, "two models are called %s; give one of them another name: --model NAME=%s", m.name,
                           m.session.model ? m.session.model : "MODEL");
    l->p[l->n++] = m;
    return ERR_OK;
}

/* What a model is called that has no name: the last part of its path. */
static const char *name_by_path(const struct args *args, struct str path) {
    while (path.n > 1 && (path.p[path.n - 1] == '/' || path.p[path.n - 1] == '\\')) path.n--;
    size_t from = path.n;
    while (from > 0 && path.p[from - 1] != '/' && path.p[from - 1] != '\\') from--;
    return str_cstr(args->arena, str_from(path, from));
}

static int add_given(const struct args *args, const struct session_options *session, struct str model, struct list *l, struct err *err) {
    struct server_model m = {.session = *session};
    struct os_stat st;
    struct str name = take_name(args, &model);
    TRY(args_model(args, model, &m.session.model, &m.session.name, err));
    bool is_file = os_stat(str_cstr(args->arena, model), &st, NULL) == 0;
    m.name = name.p ? str_cstr(args->arena, name) : m.session.name && !is_file ? m.session.name : name_by_path(args, model);
    return add(l, m, err);
}

/* The whole ones. */
static int add_store(const struct args *args, const struct session_options *session, struct list *l, struct err *err) {
    struct store_options o;
    struct store_model *models;
    size_t n;
    store_args(args, &o);
    const char *dir = store_models_dir(args->arena, &o);
    if (!dir) return ERR_OK;
    TRY(store_list(args->arena, dir, &models, &n, err));
    l->p = arena_new(args->arena, struct server_model, n + 1);
    for (size_t i = 0; i < n; i++) {
        if (models[i].partial || models[i].problem.p) continue;
        struct server_model m = {.name = str_cstr(args->arena, models[i].id), .session = *session};
        m.session.model = models[i].path;
        m.session.name = m.name;
        TRY(add(l, m, err));
    }
    return ERR_OK;
}

static int mark_preloaded(const struct args *args, struct list *l, struct err *err) {
    const struct str *names;
    size_t n = args_strings(args, OPT_PRELOAD, &names);
    for (size_t i = 0; i < n; i++) {
        bool is_known = false;
        for (size_t k = 0; k < l->n; k++)
            if (str_is(names[i], l->p[k].name ? l->p[k].name : "")) is_known = l->p[k].is_preloaded = true;
        if (!is_known) return err_set(err, ERR_EARG, "--preload names %.*s, which is none of the models", STR_ARG(names[i]));
    }
    return ERR_OK;
}

/* One device for all, and a share of its memory for each that may be loaded beside others. */
static int share_device(const struct args *args, struct server_options *o, struct list *l, struct device **out, struct err *err) {
    if (l->n < 2) return ERR_OK;
    TRY(session_device_open(&l->p[0].session, (uint64_t)args_int(args, OPT_MEMORY_BUDGET), out, err));
    size_t at_once = (size_t)o->models_max < l->n ? (size_t)o->models_max : l->n;
    for (size_t i = 0; i < l->n; i++) {
        l->p[i].session.shared_device = *out;
        l->p[i].session.memory_share = 1.0 / (double)at_once;
    }
    return ERR_OK;
}

int serve_models(const struct args *args, struct server_options *o, struct device **out_device, struct err *err) {
    struct session_options session;
    struct list l = {0};
    const struct str *given;
    size_t n = args_strings(args, OPT_MODEL, &given);
    bool is_plain = n == 0 && args->n_operands == 0 && !args_str(args, OPT_SHAPE).p;
    *out_device = NULL;
    TRY(session_args(args, &session, err));
    session.n_seqs = args_int(args, OPT_PARALLEL) > 0 ? (int32_t)args_int(args, OPT_PARALLEL) : -1;
    session.n_rows = (int32_t)args_int(args, OPT_BATCH_ROWS);
    session.kv_tokens = args_int(args, OPT_KV_TOKENS);
    if (is_plain) TRY(add_store(args, &session, &l, err));
    if (n) l.p = arena_new(args->arena, struct server_model, n);
    for (size_t i = 0; i < n; i++) TRY(add_given(args, &session, given[i], &l, err));
    if (l.n == 0) { /* the built-in one, a made-up one, or what stands as an argument */
        l.p = arena_new(args->arena, struct server_model, 1);
        TRY(add(&l, (struct server_model){.session = session}, err));
    }
    if (l.n == 1 && n == 1 && !has_name(args, given[0])) l.p[0].name = NULL; /* by its folder, as it always was */
    const char *alias = args_cstr(args, OPT_ALIAS);
    if (alias && l.n > 1) return err_set(err, ERR_EARG, "--alias is for one model; of several, give each as --model NAME=MODEL");
    if (alias) l.p[0].name = alias;
    o->models_max = (int32_t)args_int(args, OPT_MODELS_MAX);
    TRY(mark_preloaded(args, &l, err));
    TRY(share_device(args, o, &l, out_device, err));
    o->models = l.p;
    o->n_models = l.n;
    return ERR_OK;
}
