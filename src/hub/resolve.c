/* From a name to a folder: downloads into the store, and what -m stands for. */
#include "hub/store.h"

#include "base/log.h"
#include "file/kind.h"
#include "hub/short_names.h"
#include "os/os.h"

struct download {
    const char *dir;
    struct manifest manifest;
    bool lacks;        /* a file that was not asked for this time is not there yet */
    bool is_new;       /* it is not saved as it is */
    uint64_t saved_ns; /* when it last was */
};

/* The manifest is saved now and then, not after each of thousands of files. After a crash, files that it does not know of are hashed or fetched again. */
static void on_file(void *user, size_t i_file) {
    struct download *d = user;
    uint64_t now = os_clock_ns();
    if (d->manifest.have[i_file]) return;
    d->manifest.have[i_file] = d->is_new = true;
    if (now - d->saved_ns < UINT64_C(1000000000)) return;
    d->is_new = manifest_save(d->dir, &d->manifest, NULL) != ERR_OK;
    d->saved_ns = now;
}

static const struct hub_file *find_file(const struct manifest *m, struct str name, bool *out_have) {
    for (size_t i = 0; i < m->n_files; i++)
        if (str_eq(m->files[i].name, name)) {
            *out_have = m->have[i];
            return &m->files[i];
        }
    return NULL;
}

static bool lists_name(const struct hub_repo *r, struct str name) {
    for (size_t i = 0; i < r->n_files; i++)
        if (str_eq(r->files[i].name, name)) return true;
    return false;
}

/* Keeps files in the manifest that this download does not ask for: those of the same commit, and with --include everything that is there. */
static void carry_over(const struct hub_repo *r, const struct manifest *old, bool partly, struct download *d) {
    struct manifest *m = &d->manifest;
    bool same = str_eq(old->commit, r->commit);
    for (size_t i = 0; i < old->n_files; i++) {
        if (lists_name(r, old->files[i].name)) continue;
        if (!same && !partly) {
            m->stale[m->n_stale++] = old->files[i].name;
            continue;
        }
        d->lacks |= !old->complete && !old->have[i];
        m->have[m->n_files] = same && old->have[i];
        m->files[m->n_files++] = old->files[i];
    }
    for (size_t i = 0; i < old->n_stale; i++)
        if (!lists_name(r, old->stale[i])) m->stale[m->n_stale++] = old->stale[i];
}

/* The manifest of what is to come, with what is known of the files from the one that is there. The repository's files come first. */
static void make_manifest(struct arena *a, const struct hub_repo *r, const struct manifest *old, const struct download_request *q,
                          struct download *d) {
    struct manifest *m = &d->manifest;
    size_t n = r->n_files + old->n_files + 1;
    *m = (struct manifest){.id = str_of(r->id), .revision = str_of(q->revision ? q->revision : "main"), .commit = r->commit};
    m->files = arena_new(a, struct hub_file, n);
    m->have = arena_new(a, bool, n);
    m->stale = arena_new(a, struct str, old->n_files + old->n_stale + 1);
    memcpy(m->files, r->files, r->n_files * sizeof *m->files);
    m->n_files = r->n_files;
    bool same = str_eq(old->commit, r->commit);
    for (size_t i = 0; i < r->n_files && !q->verify; i++) {
        bool have = false;
        const struct hub_file *f = find_file(old, r->files[i].name, &have);
        if (f && have && f->size == r->files[i].size)
            m->have[i] = r->files[i].sha256[0] ? strcmp(f->sha256, r->files[i].sha256) == 0 : same;
    }
    carry_over(r, old, q->n_globs > 0 || q->repo->variant.n > 0, d);
}

static void say_done(const struct hub_repo *r, const char *dir, const struct fetch_result *f) {
    char a[32], b[32];
    if (f->n_received == 0) {
        log_info("%s is complete in %s (%zu files, %s)", r->id, dir, r->n_files, hub_size_text(r->total_bytes, a));
        return;
    }
    log_info("%s is complete in %s: %s in %.1f s, %s/s", r->id, dir, hub_size_text(f->received_bytes, a), f->seconds,
             hub_size_text((uint64_t)((double)f->received_bytes / (f->seconds > 0.001 ? f->seconds : 0.001)), b));
}

/* Whether a folder has no more than its manifest: no file of the model, no part of one. */
static bool holds_nothing(struct arena *a, const char *dir) {
    struct str *names;
    size_t n;
    if (os_list_dir(a, dir, &names, &n, NULL) || n != 1 || !str_is(names[0], ".mlxcel")) return false;
    return !os_list_dir(a, str_fmt(a, "%s/.mlxcel", dir).p, &names, &n, NULL) && n == 1 && str_is(names[0], "manifest.json");
}

static int receive(struct arena *a, struct hub *h, const struct download_request *q, const struct hub_repo *repo, const char *dir,
                   struct err *err) {
    struct manifest old = {0};
    struct download d = {.dir = dir};
    struct fetch_result result;
    char size[32];
    if (manifest_load(a, dir, &old, NULL)) old = (struct manifest){0};
    make_manifest(a, repo, &old, q, &d);
    log_info("downloading %s from %s: %zu files, %s", repo->id, hub_options_of(h)->endpoint, repo->n_files,
             hub_size_text(repo->total_bytes, size));
    bool *trusted = arena_new(a, bool, repo->n_files + 1);
    memcpy(trusted, d.manifest.have, repo->n_files * sizeof *trusted);
    TRY(manifest_save(dir, &d.manifest, err));
    struct fetch_options fetch = {.dir = dir, .trusted = trusted, .quiet = q->quiet, .watch = q->watch, .on_file = on_file, .user = &d};
    int code = hub_fetch(h, repo, &fetch, &result, err);
    if (code == ERR_ECANCELLED) log_info("stopped; the same command goes on from here");
    d.manifest.complete = code == ERR_OK && !d.lacks;
    int saved = d.is_new || code == ERR_OK ? manifest_save(dir, &d.manifest, code ? NULL : err) : ERR_OK;
    if (code && holds_nothing(a, dir)) os_remove(str_fmt(a, "%s/.mlxcel/manifest.json", dir).p, NULL);
    TRY(code);
    TRY(saved);
    say_done(repo, dir, &result);
    return ERR_OK;
}

/* With the lock held. */
static int download_into(struct arena *a, struct hub *h, const struct download_request *q, const char *dir, struct err *err) {
    const char *revision = q->revision ? q->revision : "main";
    struct hub_query query = {.repo = q->repo, .revision = revision, .globs = q->globs, .n_globs = q->n_globs};
    struct hub_repo repo;
    bool by_interrupt = hub_options_of(h)->stop == NULL;
    if (by_interrupt) hub_interrupts_begin();
    int code = hub_list(a, h, &query, &repo, err);
    if (code == ERR_ECANCELLED) log_info("stopped");
    if (code == ERR_OK) code = receive(a, h, q, &repo, dir, err);
    if (by_interrupt) hub_interrupts_end();
    return code;
}

int store_download(struct arena *a, const struct store_options *o, const struct download_request *q, const char **out_path,
                   struct err *err) {
    struct hub *h = NULL;
    struct os_file *lock = NULL;
    const char *models_dir = store_models_dir(a, o);
    if (!q->local_dir && !models_dir) return err_set(err, ERR_EARG, "no place for models: the home folder is unknown; set MLXCEL_HOME");
    const char *dir = q->local_dir ? q->local_dir : store_model_path(a, models_dir, q->repo);
    TRY(hub_open(a, &o->hub, &h, err));
    /* the folder is made when the hub has listed its files, so that an unknown name never leaves a folder behind */
    int code = q->local_dir ? os_make_dirs(str_fmt(a, "%s/.mlxcel", dir).p, err) : ERR_OK;
    if (code == ERR_OK && q->local_dir) code = store_lock_file(str_fmt(a, "%s/.mlxcel/lock", dir).p, q->repo->id, !q->no_wait, &lock, err);
    else if (code == ERR_OK) code = store_lock(a, models_dir, q->repo, !q->no_wait, &lock, err);
    if (code == ERR_OK) {
        code = download_into(a, h, q, dir, err);
        os_file_close(lock);
    }
    hub_close(h);
    if (code && !q->local_dir) { /* nothing has arrived: no folder */
        if (!store_is_partial(dir)) os_remove(str_fmt(a, "%s/.mlxcel", dir).p, NULL);
        os_remove(dir, NULL);
        os_remove(str_fmt(a, "%s/%.*s", models_dir, STR_ARG(q->repo->owner)).p, NULL);
    }
    *out_path = dir;
    return code;
}

/* ---- what -m says ------------------------------------------------------------------------------------------------------- */

/* Found in the store: whole, or to be finished, or damaged. */
static int use_stored(struct arena *a, const struct store_options *o, const struct repo_name *repo, const char *dir, bool *out_use,
                      struct err *err) {
    struct err why = {0};
    *out_use = store_check(dir, &why) == ERR_OK;
    if (*out_use || (store_is_partial(dir) && !o->hub.offline)) return ERR_OK;
    struct store_model m;
    TRY(store_describe(a, dir, str_of(repo->id), &m, err));
    return err_set(err, ERR_EFORMAT, "%s in %s is incomplete: %.200s; repair it by: %s", repo->id, dir, why.msg, store_repair(a, &m));
}

/* A variant of a model, from the store or downloaded into it. */
static int resolve_variant(struct arena *a, const struct store_options *o, const struct repo_name *repo, const char **out_path,
                           struct err *err) {
    const char *models_dir = store_models_dir(a, o), *dir = models_dir ? store_model_path(a, models_dir, repo) : NULL;
    const char *found = dir ? store_find_variant(a, dir, repo->variant) : NULL;
    if (!found || store_check(dir, NULL)) {
        if (o->hub.offline)
            return err_set(err, ERR_ENOTFOUND, "there is no %s:%.*s in the store (%s), and this is --offline", repo->id,
                           STR_ARG(repo->variant), models_dir ? models_dir : "unknown");
        log_info("%s:%.*s is not on this machine; getting it", repo->id, STR_ARG(repo->variant));
        TRY(store_download(a, o, &(struct download_request){.repo = repo, .quiet = o->watch != NULL, .watch = o->watch}, &dir, err));
        found = store_find_variant(a, dir, repo->variant);
        if (!found) return err_set(err, ERR_ENOTFOUND, "%s: no GGUF file of %.*s there", dir, STR_ARG(repo->variant));
    }
    store_touch(dir);
    *out_path = found;
    return ERR_OK;
}

/* Calls `each` with the id of every folder of the store. */
static void walk_store(struct arena *a, const struct store_options *o, void (*each)(void *user, struct str id), void *user) {
    const char *dir = store_models_dir(a, o);
    struct str *owners, *names;
    size_t n_owners, n;
    if (!dir || os_list_dir(a, dir, &owners, &n_owners, NULL)) return;
    for (size_t i = 0; i < n_owners; i++) {
        if (owners[i].p[0] == '.' || os_list_dir(a, str_fmt(a, "%s/%.*s", dir, STR_ARG(owners[i])).p, &names, &n, NULL)) continue;
        for (size_t k = 0; k < n; k++)
            if (names[k].p[0] != '.') each(user, str_fmt(a, "%.*s/%.*s", STR_ARG(owners[i]), STR_ARG(names[k])));
    }
}

struct search {
    struct str wanted, owner; /* a last part; whose models come first */
    struct str found;
    struct sb all; /* those that fit */
    int n;
};

static void by_last_part(void *user, struct str id) {
    struct search *s = user;
    if (!hub_same_ignoring_case(hub_last_part(id), s->wanted)) return;
    bool is_preferred = s->owner.p && str_starts(id, s->owner) && id.p[s->owner.n] == '/';
    sb_fmt(&s->all, "%s%.*s", s->n ? ", " : "", STR_ARG(id));
    if (!s->n++ || is_preferred) s->found = id;
    if (is_preferred) s->n = INT32_MIN; /* and no other counts */
}

int store_expand(struct arena *a, const struct store_options *o, struct str text, struct str *out, struct err *err) {
    size_t colon = str_find_char(text, ':', 0);
    char repo[REPO_NAME_BYTES];
    struct sb sizes = {0};
    *out = text;
    if (str_find_char(text, '/', 0) != STR_NONE || str_find_char(text, '\\', 0) != STR_NONE) return ERR_OK;
    struct str last =
        colon == STR_NONE ? text : str_fmt(a, "%.*s-%.*s", STR_ARG(str_sub(text, 0, colon)), STR_ARG(str_from(text, colon + 1)));
    struct search s = {.wanted = last, .owner = o->owner ? str_of(o->owner) : (struct str){0}};
    walk_store(a, o, by_last_part, &s);
    int code = ERR_OK;
    if (s.n > 1) code = err_set(err, ERR_EARG, "\"%.*s\" may be each of these: %s; give OWNER/NAME", STR_ARG(text), s.all.p);
    else if (s.found.p) *out = s.found;
    else if (hub_short_find(text, repo)) *out = str_copy(a, str_of(repo));
    else if (colon != STR_NONE && hub_short_sizes(text, &sizes))
        code = err_set(err, ERR_EARG, "there is no \"%.*s\"; \"%.*s\" has the sizes %s, and bits behind them, such as %.*s:8bit",
                       STR_ARG(text), STR_ARG(str_sub(text, 0, colon)), sizes.p, STR_ARG(str_sub(text, 0, colon)));
    sb_free(&s.all);
    sb_free(&sizes);
    return code;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* A stored model that was perhaps meant: the longest begin in common with its last part, of four letters at least. */
static void by_likeness(void *user, struct str id) {
    struct search *s = user;
    struct str last = hub_last_part(id);
    int n = 0;
    while ((size_t)n < last.n && (size_t)n < s->wanted.n && lower(last.p[n]) == lower(s->wanted.p[n])) n++;
    if (n >= 4 && n > s->n) s->n = n, s->found = id;
}

/* Adds to an error what may be meant instead. */
static int suggest(struct arena *a, const struct store_options *o, struct str text, int code, struct err *err) {
    struct search s = {.wanted = hub_last_part(text)};
    struct err why = *err;
    walk_store(a, o, by_likeness, &s);
    if (!s.found.p) return code;
    return err_set(err, code, "%.400s; the store has %.*s", why.msg, STR_ARG(s.found));
}

int store_resolve(struct arena *a, const struct store_options *o, const char *model, const char **out_path, const char **out_name,
                  struct err *err) {
    struct os_stat st;
    struct str full = str_of(model);
    struct repo_name *repo = arena_new(a, struct repo_name, 1);
    *out_path = *out_name = model;
    bool is_there = os_stat(model, &st, NULL) == ERR_OK;
    /* said here, where the name still is what was typed; commands that read no weights take parts of a model, too */
    if (is_there && st.is_file && !file_kind_is_text_part(model)) TRY(file_kind_check(os_path(a, str_of(model)), err));
    if (!is_there) TRY(store_expand(a, o, str_of(model), &full, err));
    bool is_name = repo_name_likely(full) || repo_name_is_url(full);
    if (is_there || !is_name) {
        *out_path = *out_name = os_path(a, str_of(model));
        if (is_there) return ERR_OK;
        err_set(err, ERR_ENOTFOUND,
                "there is no file or folder \"%.200s\", and it is no name of a model; models are called OWNER/NAME, as on the hub",
                *out_path);
        return suggest(a, o, full, ERR_ENOTFOUND, err);
    }
    model = str_cstr(a, full);
    TRY(repo_name_parse_variant(str_of(model), o->owner ? str_of(o->owner) : (struct str){0}, repo, err));
    *out_name = repo->variant.n ? model : repo->id;
    if (repo->variant.n) return resolve_variant(a, o, repo, out_path, err);
    const char *models_dir = store_models_dir(a, o), *found;
    if (models_dir && os_stat(found = store_model_path(a, models_dir, repo), &st, NULL) == ERR_OK) {
        bool use;
        TRY(use_stored(a, o, repo, found, &use, err));
        *out_path = found;
        if (use) store_touch(found);
        if (use) return ERR_OK;
    } else if ((found = store_find_hf(a, o, repo, "main"))) {
        *out_path = found;
        log_info("using %s from the Hugging Face cache", repo->id);
        return ERR_OK;
    }
    if (o->hub.offline)
        return suggest(a, o, full,
                       err_set(err, ERR_ENOTFOUND, "there is no file or folder \"%s\", no %s in the store (%s), and this is --offline",
                               model, repo->id, models_dir ? models_dir : "unknown"),
                       err);
    log_info("%s is not on this machine; getting it", repo->id);
    struct download_request q = {.repo = repo, .quiet = o->watch != NULL, .watch = o->watch};
    int code = store_download(a, o, &q, out_path, err);
    if (code == ERR_ENOTFOUND) err_prefix(err, "there is no file or folder \"%s\" here", model);
    if (code == ERR_ENETWORK) err_prefix(err, "there is no file or folder \"%s\" here, and %s could not be downloaded", model, repo->id);
    if (code == ERR_ENOTFOUND || code == ERR_ENETWORK) suggest(a, o, full, code, err);
    if (code == ERR_OK) store_touch(*out_path);
    return code;
}
