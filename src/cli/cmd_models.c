/* mlxcel list, show, rm, prune, import, cp: the store by hand. */
#include "base/json.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/store_args.h"
#include "os/os.h"

#include <stdio.h>
#include <time.h>

static int models_dir_of(const struct args *args, const char **out, struct err *err) {
    struct store_options o;
    store_args(args, &o);
    *out = store_models_dir(args->arena, &o);
    if (!*out) return err_set(err, ERR_EARG, "no place for models: the home folder is unknown; set MLXCEL_HOME");
    return ERR_OK;
}

static bool show_progress(void *user, uint64_t done, uint64_t total) {
    progress_show(user, done, total);
    return !interrupt_came();
}

static int finish(struct sb *out, struct err *err) {
    int code = cli_write(out, err);
    sb_free(out);
    return code;
}

/* ---- list --------------------------------------------------------------------------------------------------------------- */

static void put_or_null(struct jsonw *w, const char *key, struct str value) {
    jsonw_key(w, key);
    if (value.p && value.n) jsonw_str(w, value);
    else jsonw_null(w);
}

static void write_model(struct jsonw *w, const struct store_model *m) {
    put_or_null(w, "name", m->id);
    put_or_null(w, "path", str_of(m->path));
    jsonw_put_int(w, "size_bytes", (int64_t)m->bytes);
    put_or_null(w, "quantization", m->quant);
    put_or_null(w, "model_type", m->type);
    jsonw_key(w, "context");
    if (m->context) jsonw_int(w, m->context);
    else jsonw_null(w);
    jsonw_put_int(w, "last_used", m->used_ns / 1000000000);
    put_or_null(w, "revision", m->revision);
    put_or_null(w, "commit", m->commit);
    jsonw_put_bool(w, "complete", m->problem.p == NULL);
    put_or_null(w, "problem", m->problem);
}

static void write_date(struct sb *out, int64_t ns) {
    struct tm tm;
    char text[32] = "-";
    if (ns) {
        os_local_time(ns, &tm);
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &tm);
    }
    sb_fmt(out, "%-16s", text);
}

/* OWNER/NAME, a last part or a short name. */
static int stored_name(const struct args *args, struct str text, struct repo_name *out, struct err *err) {
    struct store_options o;
    struct str name;
    store_args(args, &o);
    TRY(store_expand(args->arena, &o, text, &name, err));
    return repo_name_parse(name, args_str(args, OPT_DEFAULT_ORG), out, err);
}

static void list_json(struct sb *out, const struct store_model *models, size_t n) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (size_t i = 0; i < n; i++) {
        jsonw_begin(&w, '{');
        write_model(&w, &models[i]);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    sb_putc(out, '\n');
}

static void list_text(struct sb *out, const struct store_model *models, size_t n) {
    size_t width = 5;
    char size[32];
    for (size_t i = 0; i < n; i++)
        if (models[i].id.n > width) width = models[i].id.n;
    sb_fmt(out, "%-*s  %8s  %-18s  %8s  %-16s\n", (int)width, "MODEL", "SIZE", "FORMAT", "CONTEXT", "LAST USED");
    for (size_t i = 0; i < n; i++) {
        const struct store_model *m = &models[i];
        sb_fmt(out, "%-*.*s  %8s  %-18.*s  %8lld  ", (int)width, STR_ARG(m->id), hub_size_text(m->bytes, size), STR_ARG(m->quant),
               (long long)m->context);
        write_date(out, m->used_ns);
        if (m->problem.p) sb_fmt(out, "  %s", m->partial ? "unfinished download" : "incomplete");
        sb_putc(out, '\n');
    }
}

int cmd_list(const struct args *args, struct err *err) {
    const char *dir;
    struct store_model *models;
    struct sb out = {0};
    size_t n;
    TRY(models_dir_of(args, &dir, err));
    TRY(store_list(args->arena, dir, &models, &n, err));
    if (args_flag(args, OPT_JSON)) list_json(&out, models, n);
    else if (args_flag(args, OPT_QUIET))
        for (size_t i = 0; i < n; i++) sb_fmt(&out, "%.*s\n", STR_ARG(models[i].id));
    else if (n) list_text(&out, models, n);
    else log_info("the store is empty (%s); mlxcel download OWNER/NAME fills it", dir);
    return finish(&out, err);
}

/* ---- show --------------------------------------------------------------------------------------------------------------- */

static void show_files(struct sb *out, struct jsonw *w, const struct manifest *m) {
    char size[32];
    for (size_t i = 0; i < m->n_files; i++) {
        const struct hub_file *f = &m->files[i];
        if (!w) {
            sb_fmt(out, "  %-40.*s %10s  %.16s\n", STR_ARG(f->name), hub_size_text(f->size, size), f->sha256);
            continue;
        }
        jsonw_begin(w, '{');
        put_or_null(w, "name", f->name);
        jsonw_put_int(w, "size", (int64_t)f->size);
        put_or_null(w, "sha256", str_of(f->sha256));
        jsonw_end(w, '}');
    }
}

static void show_json(struct sb *out, const struct store_model *m, const struct manifest *manifest) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    write_model(&w, m);
    jsonw_open(&w, "files", '[');
    show_files(out, &w, manifest);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
}

static void show_text(struct arena *a, struct sb *out, const struct store_model *m, const struct manifest *manifest) {
    char size[32];
    sb_fmt(out, "model      %.*s\nfolder     %s\nsize       %s\n", STR_ARG(m->id), m->path, hub_size_text(m->bytes, size));
    if (m->type.p) sb_fmt(out, "type       %.*s\n", STR_ARG(m->type));
    if (m->quant.n) sb_fmt(out, "format     %.*s\n", STR_ARG(m->quant));
    if (m->context) sb_fmt(out, "context    %lld tokens\n", (long long)m->context);
    if (m->commit.p) sb_fmt(out, "commit     %.*s (%.*s)\n", STR_ARG(m->commit), STR_ARG(m->revision));
    sb_puts(out, "last used  ");
    write_date(out, m->used_ns);
    sb_putc(out, '\n');
    if (m->problem.p) sb_fmt(out, "problem    %.*s; repair it by: %s\n", STR_ARG(m->problem), store_repair(a, m));
    else sb_puts(out, "state      complete\n");
    if (manifest->n_files) sb_puts(out, "files\n");
    show_files(out, NULL, manifest);
}

static size_t n_hashes(const struct manifest *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->n_files; i++) n += m->files[i].sha256[0] != 0;
    return n;
}

/* What is wrong becomes the model's problem; a model without hashes cannot be verified, and that is said. */
static int verify(const struct args *args, const struct manifest *manifest, struct store_model *m, struct err *err) {
    struct progress bar = {0};
    struct watch watch = {.tell = show_progress, .user = &bar};
    struct err why = {0};
    if (m->problem.p) return ERR_OK;
    interrupt_begin();
    int code = store_verify(m->path, &watch, &why);
    interrupt_end();
    progress_end(&bar);
    if (code == ERR_ECANCELLED) return err_set(err, code, "%s", why.msg);
    m->wrong = code != ERR_OK;
    if (code) m->problem = str_copy(args->arena, str_of(why.msg));
    else if (n_hashes(manifest) == 0)
        log_warn("%.*s: no sha256 is known to compare with; only that its files are there was checked", STR_ARG(m->id));
    else
        log_info("%zu of %zu files have the right sha256%s", n_hashes(manifest), manifest->n_files,
                 n_hashes(manifest) < manifest->n_files ? ", the others the right size: no sha256 of theirs is known" : "");
    return ERR_OK;
}

int cmd_show(const struct args *args, struct err *err) {
    const char *dir, *path;
    struct store_options options;
    struct repo_name repo;
    struct store_model m;
    struct manifest manifest;
    struct os_stat st;
    struct sb out = {0};
    TRY(models_dir_of(args, &dir, err));
    TRY(stored_name(args, args->operands[0], &repo, err));
    path = store_model_path(args->arena, dir, &repo);
    if (os_stat(path, &st, NULL)) {
        store_args(args, &options);
        path = store_find_hf(args->arena, &options, &repo, "main");
        if (!path) return err_set(err, ERR_ENOTFOUND, "%s is neither in the store (%s) nor in the Hugging Face cache", repo.id, dir);
    }
    TRY(store_describe(args->arena, path, str_of(repo.id), &m, err));
    if (manifest_load(args->arena, path, &manifest, NULL)) manifest = (struct manifest){0};
    if (args_flag(args, OPT_HUB_VERIFY)) TRY(verify(args, &manifest, &m, err));
    if (args_flag(args, OPT_JSON)) show_json(&out, &m, &manifest);
    else show_text(args->arena, &out, &m, &manifest);
    TRY(finish(&out, err));
    return m.problem.p && args_flag(args, OPT_HUB_VERIFY) ? err_set(err, ERR_EFORMAT, "%s is damaged: %.*s; repair it by: %s", repo.id,
                                                                    STR_ARG(m.problem), store_repair(args->arena, &m))
                                                          : ERR_OK;
}

/* ---- rm, prune ---------------------------------------------------------------------------------------------------------- */

/* ERR_ECANCELLED when the answer is no. */
static int confirm(const struct args *args, const char *question, struct err *err) {
    struct sb line = {0};
    if (args_flag(args, OPT_YES)) return ERR_OK;
    if (!os_is_terminal(OS_STDIN)) return err_set(err, ERR_EARG, "%s Nobody is there to ask: --yes says yes", question);
    sb_fmt(&line, "%s [y/N] ", question);
    os_write(OS_STDERR, sb_str(&line), NULL);
    sb_clear(&line);
    bool is_there;
    int code = os_read_line(&line, &is_there, err);
    bool yes = !code && is_there && line.n && (line.p[0] == 'y' || line.p[0] == 'Y');
    sb_free(&line);
    return code || yes ? code : ERR_ECANCELLED;
}

int cmd_rm(const struct args *args, struct err *err) {
    const char *dir;
    struct repo_name repo;
    struct sb question = {0};
    struct os_stat st;
    char size[32];
    TRY(models_dir_of(args, &dir, err));
    for (size_t i = 0; i < args->n_operands; i++) {
        TRY(stored_name(args, args->operands[i], &repo, err));
        const char *path = store_model_path(args->arena, dir, &repo);
        if (os_stat(path, &st, NULL)) return err_set(err, ERR_ENOTFOUND, "the store has no model %s (%s)", repo.id, dir);
        sb_clear(&question);
        sb_fmt(&question, "Remove %s (%s)?", repo.id, hub_size_text(store_dir_bytes(args->arena, path), size));
        int code = confirm(args, question.p, err);
        if (code == ERR_OK) code = store_remove(args->arena, dir, &repo, err);
        if (code) {
            sb_free(&question);
            return code;
        }
        log_info("removed %s", repo.id);
    }
    sb_free(&question);
    return ERR_OK;
}

int cmd_prune(const struct args *args, struct err *err) {
    const char *dir;
    struct prune_entry *list;
    size_t n;
    uint64_t bytes = 0;
    char size[32];
    struct sb out = {0};
    TRY(models_dir_of(args, &dir, err));
    TRY(store_prune_list(args->arena, dir, &list, &n, err));
    for (size_t i = 0; i < n; i++) {
        bytes += list[i].bytes;
        sb_fmt(&out, "%10s  %.*s: %s\n", hub_size_text(list[i].bytes, size), STR_ARG(list[i].what), list[i].path);
    }
    TRY(finish(&out, err));
    if (n == 0) {
        log_info("there is nothing to remove");
        return ERR_OK;
    }
    struct str question = str_fmt(args->arena, "Remove these (%s)?", hub_size_text(bytes, size));
    TRY(confirm(args, question.p, err));
    for (size_t i = 0; i < n; i++) TRY(store_prune(args->arena, dir, &list[i], err));
    log_info("freed %s", hub_size_text(bytes, size));
    return ERR_OK;
}

/* ---- import, cp --------------------------------------------------------------------------------------------------------- */

/* A folder into the store under the name that the second operand has. */
static int take_in(const struct args *args, const char *dir, const char *from, const char *done, struct err *err) {
    struct repo_name repo;
    struct sb out = {0};
    struct progress bar = {0};
    struct watch watch = {.tell = show_progress, .user = &bar};
    struct import_request q = {.from = from, .repo = &repo, .watch = &watch};
    TRY(repo_name_parse(args->operands[1], args_str(args, OPT_DEFAULT_ORG), &repo, err));
    interrupt_begin();
    int code = store_import(args->arena, dir, &q, err);
    interrupt_end();
    progress_end(&bar);
    TRY(code);
    log_info("%s %s", done, repo.id);
    sb_fmt(&out, "%s\n", store_model_path(args->arena, dir, &repo));
    return finish(&out, err);
}

int cmd_import(const struct args *args, struct err *err) {
    const char *dir;
    TRY(models_dir_of(args, &dir, err));
    return take_in(args, dir, os_path(args->arena, args->operands[0]), "imported", err);
}

int cmd_cp(const struct args *args, struct err *err) {
    const char *dir, *from;
    struct repo_name repo;
    struct os_stat st;
    TRY(models_dir_of(args, &dir, err));
    TRY(stored_name(args, args->operands[0], &repo, err));
    from = store_model_path(args->arena, dir, &repo);
    if (os_stat(from, &st, NULL)) return err_set(err, ERR_ENOTFOUND, "the store has no model %s (%s)", repo.id, dir);
    struct store_variant *ggufs;
    if (store_variants(args->arena, from, &ggufs))
        return err_set(err, ERR_EUNSUPPORTED, "%s is GGUF files, which need no store: copy %s, and -m takes the copy", repo.id,
                       ggufs[0].path);
    return take_in(args, dir, from, "copied to", err);
}
