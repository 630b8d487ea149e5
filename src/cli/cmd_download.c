/* mlxcel download: a model from the hub into the store, or into a folder. */
#include "cli/store_args.h"
#include "os/os.h"

int cmd_download(const struct args *args, struct err *err) {
    struct store_options o;
    struct repo_name repo;
    const struct str *globs;
    const char *path;
    struct sb out = {0};
    store_args(args, &o);
    struct str name;
    TRY(store_expand(args->arena, &o, args->operands[0], &name, err));
    TRY(repo_name_parse_variant(name, args_str(args, OPT_DEFAULT_ORG), &repo, err));
    struct download_request q = {.repo = &repo,
                                 .revision = args_cstr(args, OPT_REVISION),
                                 .local_dir = args_cstr(args, OPT_LOCAL_DIR),
                                 .verify = args_flag(args, OPT_HUB_VERIFY),
                                 .quiet = args_flag(args, OPT_QUIET)};
    q.n_globs = args_strings(args, OPT_INCLUDE, &globs);
    q.globs = globs;
    if (repo.variant.n && q.n_globs) return err_set(err, ERR_EARG, "%s names a GGUF file by itself: leave --include out", repo.id);
    if (o.hub.offline) return err_set(err, ERR_EARG, "download and --offline exclude each other");
    TRY(store_download(args->arena, &o, &q, &path, err));
    sb_fmt(&out, "%s\n", path);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}
