/* mlxcel search: which models the hub has. */
#include "base/json.h"
#include "base/log.h"
#include "cli/store_args.h"
#include "hub/short_names.h"
#include "os/os.h"

static const char *const tags[] = {"mlx", "gguf", NULL}; /* as in --kind */

struct listing {
    const struct args *args;
    const char *models_dir; /* NULL: unknown */
    const struct hub_found *found;
    size_t n;
};

static bool is_here(const struct listing *l, struct str id) {
    struct repo_name repo;
    struct os_stat st;
    struct err ignored = {0};
    if (!l->models_dir || repo_name_parse(id, STR(""), &repo, &ignored)) return false;
    return os_stat(store_model_path(l->args->arena, l->models_dir, &repo), &st, NULL) == ERR_OK;
}

static void put_json(const struct listing *l, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (size_t i = 0; i < l->n; i++) {
        const struct hub_found *f = &l->found[i];
        struct str name = hub_short_of(l->args->arena, f->id);
        jsonw_begin(&w, '{');
        jsonw_put_str(&w, "name", f->id);
        jsonw_key(&w, "short_name");
        if (name.n) jsonw_str(&w, name);
        else jsonw_null(&w);
        jsonw_put_int(&w, "downloads", f->n_downloads);
        jsonw_put_int(&w, "likes", f->n_likes);
        jsonw_put_bool(&w, "gated", f->gated);
        jsonw_put_bool(&w, "stored", is_here(l, f->id));
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    sb_putc(out, '\n');
}

static void put_table(const struct listing *l, struct sb *out) {
    size_t width = 5;
    for (size_t i = 0; i < l->n; i++)
        if (l->found[i].id.n > width) width = l->found[i].id.n;
    sb_fmt(out, "%-*s  %-16s  %10s  %6s\n", (int)width, "MODEL", "SHORT NAME", "DOWNLOADS", "LIKES");
    for (size_t i = 0; i < l->n; i++) {
        const struct hub_found *f = &l->found[i];
        struct str name = hub_short_of(l->args->arena, f->id);
        sb_fmt(out, "%-*.*s  %-16.*s  %10lld  %6lld", (int)width, STR_ARG(f->id), STR_ARG(name), (long long)f->n_downloads,
               (long long)f->n_likes);
        if (f->gated) sb_puts(out, "  its terms have to be accepted");
        if (is_here(l, f->id)) sb_puts(out, "  in the store");
        sb_putc(out, '\n');
    }
}

static struct str words_of(const struct args *args) {
    struct sb words = {0};
    for (size_t i = 0; i < args->n_operands; i++) sb_fmt(&words, "%s%.*s", i ? " " : "", STR_ARG(args->operands[i]));
    struct str copy = str_copy(args->arena, sb_str(&words));
    sb_free(&words);
    return copy;
}

int cmd_search(const struct args *args, struct err *err) {
    struct store_options o;
    struct hub *h = NULL;
    struct hub_found *found = NULL;
    size_t n = 0;
    store_args(args, &o);
    if (o.hub.offline) return err_set(err, ERR_EARG, "search and --offline exclude each other; mlxcel list has the models of the store");
    struct hub_wish wish = {.words = words_of(args),
                            .owner = args_cstr(args, OPT_SEARCH_OWNER),
                            .tag = tags[args_choice(args, OPT_SEARCH_KIND)],
                            .most = (int32_t)args_int(args, OPT_SEARCH_MOST)};
    hub_interrupts_begin();
    int code = hub_open(args->arena, &o.hub, &h, err);
    if (code == ERR_OK) code = hub_search(args->arena, h, &wish, &found, &n, err);
    hub_close(h);
    hub_interrupts_end();
    TRY(code);
    struct listing l = {args, store_models_dir(args->arena, &o), found, n};
    struct sb out = {0};
    if (args_flag(args, OPT_JSON)) put_json(&l, &out);
    else if (n) put_table(&l, &out);
    else log_info("nothing found; fewer words, or --kind any, find more");
    code = cli_write(&out, err);
    sb_free(&out);
    return code;
}
