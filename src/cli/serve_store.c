/* Downloads into the store and removals from it, for the server, on threads of its own. What a new model is made of lives until the server ends. */
#include "cli/serve_store.h"

#include "cli/store_args.h"
#include "os/os.h"

struct serve_store {
    const struct args *args;
    const struct settings *settings;
    const struct server_options *options;
    struct server_store functions;
    struct os_mutex *mutex; /* of the list */
    struct shelf {
        struct arena arena;
        struct shelf *next;
    } * shelves; /* one for each model that came */
};

static struct shelf *new_shelf(struct serve_store *s) {
    struct shelf *shelf = mem_alloc(sizeof *shelf);
    os_mutex_lock(s->mutex);
    shelf->next = s->shelves;
    s->shelves = shelf;
    os_mutex_unlock(s->mutex);
    return shelf;
}

static bool show(void *user, uint64_t done, uint64_t total) {
    struct server_progress *p = user;
    atomic_store(&p->done, done);
    atomic_store(&p->total, total);
    return true;
}

static int download(struct args *own, struct str name, struct server_progress *progress, struct repo_name *repo, const char **out_path,
                    struct err *err) {
    struct store_options o;
    struct watch watch = {.tell = show, .user = progress};
    store_args(own, &o);
    o.hub.stop = &progress->stop;
    if (o.hub.offline) return err_set(err, ERR_EARG, "the server was started with --offline, and downloads nothing");
    TRY(store_expand(own->arena, &o, name, &name, err));
    TRY(repo_name_parse_variant(name, args_str(own, OPT_DEFAULT_ORG), repo, err));
    struct download_request q = {.repo = repo, .quiet = true, .no_wait = true, .watch = &watch};
    return store_download(own->arena, &o, &q, out_path, err);
}

static int pull(void *user, struct str name, struct server_progress *progress, const struct server_model **out, struct err *err) {
    struct serve_store *s = user;
    struct arena *a = &new_shelf(s)->arena;
    struct args *own = arena_new(a, struct args, 1);
    struct repo_name *repo = arena_new(a, struct repo_name, 1);
    struct server_model *m = arena_new(a, struct server_model, 1);
    const char *path;
    *own = *s->args;
    own->arena = a;
    TRY(download(own, name, progress, repo, &path, err));
    TRY(store_check(path, err));
    TRY(serve_models_stored(own, s->settings, repo, path, m, err));
    m->session.shared_device = s->options->models[0].session.shared_device;
    m->session.memory_share = 1.0 / s->options->models_max;
    *out = m;
    return ERR_OK;
}

static int remove_model(void *user, struct str name, struct err *err) {
    struct serve_store *s = user;
    struct arena a = {0};
    struct args own = *s->args;
    struct store_options o;
    struct repo_name repo;
    own.arena = &a;
    store_args(&own, &o);
    const char *dir = store_models_dir(&a, &o);
    int code = repo_name_parse_variant(name, (struct str){0}, &repo, err);
    if (!code) code = (repo.variant.n ? store_remove_variant : store_remove)(&a, dir, &repo, err);
    arena_free(&a);
    return code;
}

struct serve_store *serve_store_open(const struct args *args, const struct settings *settings, const struct server_options *options) {
    struct serve_store *s = mem_alloc(sizeof *s);
    *s = (struct serve_store){.args = args, .settings = settings, .options = options, .mutex = os_mutex_create()};
    s->functions = (struct server_store){.pull = pull, .remove = remove_model, .user = s};
    return s;
}

void serve_store_close(struct serve_store *s) {
    if (!s) return;
    for (struct shelf *shelf = s->shelves, *next; shelf; shelf = next) {
        next = shelf->next;
        arena_free(&shelf->arena);
        mem_free(shelf);
    }
    os_mutex_destroy(s->mutex);
    mem_free(s);
}

const struct server_store *serve_store_functions(struct serve_store *s) {
    return &s->functions;
}
