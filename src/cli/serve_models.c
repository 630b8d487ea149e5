/* Which models are served, under which names, on which device. */
#include "cli/serve_models.h"

#include "cli/session_args.h"
#include "cli/store_args.h"
#include "hub/names.h"
#include "hub/short_names.h"
#include "os/os.h"

struct list {
    const struct args *args;
    const struct settings *settings;
    struct server_model *p;
    struct serve_model *from;
    size_t n;
};

/* ---- one model ---------------------------------------------------------------------------------------------------------- */

static bool has_name(const struct server_model *m, struct str name) {
    if (m->name && str_is(name, m->name)) return true;
    for (size_t i = 0; i < m->n_aliases; i++)
        if (str_eq(m->aliases[i], name)) return true;
    return false;
}

/* No two models have a name in common. */
static int check_names(const struct list *l, const struct server_model *m, struct err *err) {
    for (size_t i = 0; i < l->n; i++) {
        if (m->name && has_name(&l->p[i], str_of(m->name)))
            return err_set(err, ERR_EARG, "two models are called %s; give one of them another name: --model NAME=%s", m->name,
                           m->session.model ? m->session.model : "MODEL");
        for (size_t k = 0; k < m->n_aliases; k++)
            if (has_name(&l->p[i], m->aliases[k]))
                return err_set(err, ERR_EARG, "two models are called %.*s; give one of them another alias", STR_ARG(m->aliases[k]));
    }
    return ERR_OK;
}

static void reserve(struct list *l, size_t n) {
    l->p = arena_new(l->args->arena, struct server_model, n);
    l->from = arena_new(l->args->arena, struct serve_model, n);
}

static int settings_args(const struct args *args, struct server_settings *out, struct err *err) {
    *out = (struct server_settings){.max_new = (int32_t)args_int(args, OPT_MAX_TOKENS),
                                    .has_seed = args_given(args, OPT_SEED),
                                    .seed = args_int(args, OPT_SEED),
                                    .thinking = (enum messages_thinking)args_choice(args, OPT_REASONING),
                                    .pooling = (enum session_pooling)args_choice(args, OPT_POOLING),
                                    .prefills = args_flag(args, OPT_PREFILL),
                                    .shifts = args_flag(args, OPT_CONTEXT_SHIFT),
                                    .keep_ms = args_int(args, OPT_KEEP_ALIVE) * 1000};
    return sampling_args(args, &out->sampling, err);
}

/* Everything of a session but the model itself. */
static int plain_session(const struct args *args, struct session_options *out, struct err *err) {
    struct args *own = arena_new(args->arena, struct args, 1);
    *own = *args;
    own->values[OPT_MODEL] = (struct arg_value){0};
    TRY(session_args(own, out, err));
    out->n_seqs = args_int(args, OPT_PARALLEL) > 0 ? (int32_t)args_int(args, OPT_PARALLEL) : -1;
    out->n_rows = (int32_t)args_int(args, OPT_BATCH_ROWS);
    out->max_step_ms = (int32_t)args_int(args, OPT_MAX_STEP_MS);
    out->kv_tokens = args_int(args, OPT_KV_TOKENS);
    out->cache_ram = (uint64_t)args_int(args, OPT_CACHE_RAM);
    if (out->cache_ram && out->cache_ram < 1 << 20)
        return err_set(err, ERR_EARG, "--cache-ram of %llu bytes is too little; for MiB write %lluM", (unsigned long long)out->cache_ram,
                       (unsigned long long)out->cache_ram);
    return ERR_OK;
}

static void read_aliases(const struct args *args, struct server_model *m) {
    struct str rest = args_str(args, OPT_ALIAS), piece;
    struct str *list = arena_new(args->arena, struct str, rest.n + 1);
    m->aliases = list;
    while (rest.p && str_split_next(&rest, ',', &piece))
        if (str_trim(piece).n) list[m->n_aliases++] = str_copy(args->arena, str_trim(piece));
}

/* What a model is called that has no name: the last part of its path. */
static const char *name_by_path(const struct args *args, struct str path) {
    while (path.n > 1 && (path.p[path.n - 1] == '/' || path.p[path.n - 1] == '\\')) path.n--;
    size_t from = path.n;
    while (from > 0 && path.p[from - 1] != '/' && path.p[from - 1] != '\\') from--;
    return str_cstr(args->arena, str_from(path, from));
}

/* Whether no hub can have it: a slash in it, and not as OWNER/NAME. */
static bool is_path(struct str model) {
    return str_find_char(model, '/', 0) != STR_NONE && !repo_name_likely(model) && !repo_name_is_url(model);
}

/* Where a check looks, nothing is downloaded: a model that is not here is one that would be. */
static int find_model(const struct args *args, struct str model, struct session_options *session, bool *out_absent, struct err *err) {
    struct args *own = arena_new(args->arena, struct args, 1);
    struct os_stat st;
    bool looks = args_flag(args, OPT_CHECK);
    *own = *args;
    if (looks) own->values[OPT_OFFLINE].i = 1;
    int code = args_model(own, model, &session->model, &session->name, err);
    if (looks && code == ERR_ENOTFOUND && is_path(model)) return err_set(err, ERR_EARG, "there is no model %.*s", STR_ARG(model));
    *out_absent = looks && code == ERR_ENOTFOUND && !args_flag(args, OPT_OFFLINE);
    if (code) return *out_absent ? ERR_OK : code;
    if (looks && session->model && os_stat(session->model, &st, NULL))
        return err_set(err, ERR_EARG, "there is no model %s", session->model);
    if (looks && session->model && st.is_dir) return store_check(session->model, err);
    return ERR_OK;
}

/* name: {NULL, 0}: by its folder or the hub. */
static int make_model(struct list *l, const struct args *args, struct str name, struct str model, struct server_model *m, bool *out_absent,
                      struct err *err) {
    struct os_stat st;
    TRY(settings_args(args, &m->settings, err));
    TRY(plain_session(args, &m->session, err));
    if (m->session.shape && model.p) return err_set(err, ERR_EARG, "a model and --shape exclude each other");
    if (!m->session.shape) TRY(find_model(args, model, &m->session, out_absent, err));
    if (args->values[OPT_ALIAS].line) read_aliases(args, m); /* a table's own; that of the command line is for one model alone */
    bool is_file = model.p && os_stat(str_cstr(args->arena, model), &st, NULL) == 0;
    if (name.p) m->name = str_cstr(args->arena, name);
    else if (model.p) m->name = m->session.name && !is_file ? m->session.name : name_by_path(args, model);
    return check_names(l, m, err);
}

static int add(struct list *l, struct str name, struct str model, const struct toml *table, struct err *err) {
    struct args *own = arena_new(l->args->arena, struct args, 1);
    struct server_model m = {0};
    bool is_absent = false;
    TRY(settings_apply(l->args, l->settings, table, own, err));
    int code = make_model(l, own, name, model, &m, &is_absent, err);
    if (code) return settings_blame(l->settings, table, code, err);
    m.is_preloaded = settings_preloads(table);
    l->from[l->n] = (struct serve_model){&l->p[l->n], own, table, model, is_absent};
    l->p[l->n++] = m;
    return ERR_OK;
}

/* ---- all of them -------------------------------------------------------------------------------------------------------- */

/* NAME=MODEL, unless that is the name of a file. */
static struct str take_name(const struct args *args, struct str *model) {
    size_t eq = str_find_char(*model, '=', 0);
    struct str name = str_sub(*model, 0, eq);
    struct os_stat st;
    if (eq == STR_NONE || eq == 0 || os_stat(str_cstr(args->arena, *model), &st, NULL) == 0) return (struct str){0};
    *model = str_from(*model, eq + 1);
    return name;
}

static int add_given(struct list *l, const struct str *given, size_t n, struct err *err) {
    reserve(l, n);
    for (size_t i = 0; i < n; i++) {
        struct str model = given[i], name = take_name(l->args, &model);
        TRY(add(l, name, model, settings_model(l->settings, name.p ? name : model), err));
        if (n == 1 && !name.p && !l->from[0].table) l->p[0].name = NULL; /* by its folder, as it always was */
    }
    return ERR_OK;
}

/* A table without a model or a shape is called like its model. */
static int add_tables(struct list *l, struct err *err) {
    reserve(l, (size_t)l->settings->models->n);
    for (const struct toml *t = l->settings->models->first; t; t = t->next) {
        const struct toml *model = toml_get(t, STR("model"));
        struct str named = model && model->kind == TOML_STRING ? model->s : toml_get(t, STR("shape")) ? (struct str){0} : t->key;
        TRY(add(l, t->key, named, t, err));
    }
    return ERR_OK;
}

static void add_alias(struct list *l, struct server_model *m, struct str name) {
    struct str *more = arena_new(l->args->arena, struct str, m->n_aliases + 1);
    if (m->n_aliases) memcpy(more, m->aliases, m->n_aliases * sizeof *more);
    more[m->n_aliases++] = name;
    m->aliases = more;
}

static int add_stored(struct list *l, struct str name, const char *path, struct err *err) {
    TRY(add(l, name, str_of(path), NULL, err));
    l->p[l->n - 1].session.name = l->p[l->n - 1].name;
    l->p[l->n - 1].is_stored = true;
    struct str alias = hub_short_of(l->args->arena, name);
    if (alias.p) add_alias(l, &l->p[l->n - 1], alias);
    return ERR_OK;
}

/* A GGUF file is called ID:VARIANT; the only one of its model also ID. */
static int add_variant(struct list *l, struct str id, const struct store_variant *v, bool is_only, struct err *err) {
    TRY(add_stored(l, str_fmt(l->args->arena, "%.*s:%.*s", STR_ARG(id), STR_ARG(v->tag)), v->path, err));
    if (is_only) add_alias(l, &l->p[l->n - 1], id);
    return ERR_OK;
}

/* The whole ones. GGUF files that were imported have the name that they were given. */
static int add_store(struct list *l, struct err *err) {
    struct arena *a = l->args->arena;
    struct store_options o;
    struct store_model *models;
    size_t n, n_all = 0;
    store_args(l->args, &o);
    const char *dir = store_models_dir(a, &o);
    if (!dir) return ERR_OK;
    TRY(store_list(a, dir, &models, &n, err));
    struct store_variant **variants = arena_new(a, struct store_variant *, n + 1);
    size_t *n_variants = arena_new(a, size_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        n_variants[i] = models[i].imported || !models[i].commit.n ? 0 : store_variants(a, models[i].path, &variants[i]);
        n_all += n_variants[i] ? n_variants[i] : 1;
    }
    reserve(l, n_all + 1);
    for (size_t i = 0; i < n; i++) {
        if (models[i].partial || models[i].problem.p) continue;
        if (n_variants[i] == 0) TRY(add_stored(l, models[i].id, models[i].path, err));
        for (size_t k = 0; k < n_variants[i]; k++) TRY(add_variant(l, models[i].id, &variants[i][k], n_variants[i] == 1, err));
    }
    return ERR_OK;
}

/* Which of the files in a model's folder is meant; NULL: the folder itself. */
static const struct store_variant *pick_variant(struct arena *a, const struct repo_name *repo, const char *path) {
    struct store_variant *variants;
    size_t n = store_variants(a, path, &variants);
    for (size_t i = 0; i < n; i++)
        if (n == 1 || (repo->variant.n && hub_file_is_variant(str_of(variants[i].path), repo->variant))) return &variants[i];
    return NULL;
}

int serve_models_stored(const struct args *args, const struct settings *settings, const struct repo_name *repo, const char *path,
                        struct server_model *out, struct err *err) {
    struct list l = {.args = args, .settings = settings};
    const struct store_variant *v = pick_variant(args->arena, repo, path);
    reserve(&l, 1);
    if (v) TRY(add_variant(&l, str_of(repo->id), v, repo->variant.n == 0, err));
    else TRY(add_stored(&l, str_of(repo->id), path, err));
    if (v && repo->variant.n && !str_eq(v->tag, repo->variant)) /* as it was asked for */
        add_alias(&l, &l.p[0], str_fmt(args->arena, "%s:%.*s", repo->id, STR_ARG(repo->variant)));
    *out = l.p[0];
    return ERR_OK;
}

bool serve_models_are_stored(const struct args *args, const struct settings *settings) {
    const struct str *given;
    return args_strings(args, OPT_MODEL, &given) == 0 && !(settings->models && settings->models->n) && !args_str(args, OPT_SHAPE).p;
}

static int mark_preloaded(struct list *l, struct err *err) {
    const struct str *names;
    size_t n = args_strings(l->args, OPT_PRELOAD, &names);
    for (size_t i = 0; i < n; i++) {
        bool is_known = false;
        for (size_t k = 0; k < l->n; k++)
            if (has_name(&l->p[k], names[i])) is_known = l->p[k].is_preloaded = true;
        if (!is_known) return err_set(err, ERR_EARG, "--preload names %.*s, which is none of the models", STR_ARG(names[i]));
    }
    return ERR_OK;
}

/* Of a model that has no table, the first alias is the name that it goes by. */
static int name_by_alias(struct list *l, struct err *err) {
    if (!args_str(l->args, OPT_ALIAS).p) return ERR_OK;
    if (l->n > 1) return err_set(err, ERR_EARG, "--alias is for one model; of several, give each as --model NAME=MODEL");
    l->p[0].n_aliases = 0;
    read_aliases(l->args, &l->p[0]);
    if (l->p[0].n_aliases && !l->from[0].table) l->p[0].name = str_cstr(l->args->arena, l->p[0].aliases[0]);
    return ERR_OK;
}

int serve_models(const struct args *args, const struct settings *settings, struct server_options *o, struct serve_model **out,
                 struct err *err) {
    struct list l = {.args = args, .settings = settings};
    const struct str *given;
    size_t n = args_strings(args, OPT_MODEL, &given);
    bool is_shape = args_str(args, OPT_SHAPE).p != NULL;
    if (n && is_shape) return err_set(err, ERR_EARG, "a model and --shape exclude each other");
    if (n) TRY(add_given(&l, given, n, err));
    else if (settings->models && settings->models->n) TRY(add_tables(&l, err));
    else if (serve_models_are_stored(args, settings)) TRY(add_store(&l, err));
    if (l.n == 0) { /* the built-in one, or a made-up one */
        reserve(&l, 1);
        TRY(add(&l, (struct str){0}, (struct str){0}, NULL, err));
    }
    if (l.p[0].session.n_adapters && (l.n > 1 || serve_models_are_stored(args, settings)))
        return err_set(err, ERR_EARG, "--adapter is for a server of one model, which --model names");
    TRY(name_by_alias(&l, err));
    TRY(mark_preloaded(&l, err));
    o->models_max = (int32_t)args_int(args, OPT_MODELS_MAX);
    o->models = l.p;
    o->n_models = l.n;
    *out = l.from;
    return ERR_OK;
}

int serve_models_device(const struct args *args, const struct server_options *o, const struct serve_model *models,
                        struct device **out_device, struct err *err) {
    *out_device = NULL;
    if (o->n_models < 2 && !o->store) return ERR_OK;
    TRY(session_device_open(&models[0].served->session, (uint64_t)args_int(args, OPT_MEMORY_BUDGET), out_device, err));
    size_t at_once = (size_t)o->models_max < o->n_models ? (size_t)o->models_max : o->n_models;
    for (size_t i = 0; i < o->n_models; i++) {
        models[i].served->session.shared_device = *out_device;
        models[i].served->session.memory_share = 1.0 / (double)at_once;
    }
    return ERR_OK;
}
