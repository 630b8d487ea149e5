/* Plugins live in Python packages: site-packages/jax_plugins/NAME/xla_DEVICE_plugin.so and the like. */
#include "backend/xla/find.h"

#include "base/log.h"
#include "os/os.h"

/* Folders of site-packages that hold one folder per plugin. */
static const char *const plugin_dirs[] = {"jax_plugins", "xla_plugins"};

/* "xla_cuda13" is cuda; "xla_cpu_pjrt" is cpu; else the word after "xla_". */
static struct str device_of(struct str name) {
    if (str_starts(name, STR("xla_"))) name = str_from(name, 4);
    size_t end = 0;
    while (end < name.n && name.p[end] >= 'a' && name.p[end] <= 'z') end++;
    return str_sub(name, 0, end);
}

static bool is_library(struct str name) {
    return str_ends(name, STR(".so")) || str_ends(name, STR(".dll")) || str_ends(name, STR(".dylib"));
}

static void add_package(struct arena *a, const char *dir, struct str name, struct xla_plugins *out) {
    struct str *files;
    size_t n;
    const char *path = str_fmt(a, "%s/%.*s", dir, STR_ARG(name)).p;
    if (os_list_dir(a, path, &files, &n, NULL)) return;
    for (size_t i = 0; i < n && out->n < XLA_PLUGINS_MAX; i++) {
        bool fits =
            is_library(files[i]) && (str_find(files[i], STR("plugin"), 0) != STR_NONE || str_find(files[i], STR("pjrt"), 0) != STR_NONE);
        if (fits) out->items[out->n++] = (struct xla_plugin){str_fmt(a, "%s/%.*s", path, STR_ARG(files[i])), device_of(name)};
    }
}

static void search_site(struct arena *a, const char *site, struct xla_plugins *out) {
    for (size_t d = 0; d < sizeof plugin_dirs / sizeof *plugin_dirs; d++) {
        struct str *names;
        size_t n;
        const char *dir = str_fmt(a, "%s/%s", site, plugin_dirs[d]).p;
        if (os_list_dir(a, dir, &names, &n, NULL)) continue;
        for (size_t i = 0; i < n; i++) add_package(a, dir, names[i], out);
    }
}

/* An environment's lib/python3.x/site-packages (Lib/site-packages on Windows). */
void xla_plugins_search(struct arena *a, const char *root, struct xla_plugins *out) {
    struct str *names;
    size_t n;
    if (!root) return;
    search_site(a, str_fmt(a, "%s/Lib/site-packages", root).p, out);
    if (os_list_dir(a, str_fmt(a, "%s/lib", root).p, &names, &n, NULL)) return;
    for (size_t i = 0; i < n; i++)
        if (str_starts(names[i], STR("python"))) search_site(a, str_fmt(a, "%s/lib/%.*s/site-packages", root, STR_ARG(names[i])).p, out);
}

void xla_plugins_find(struct arena *a, const struct xla_options *o, struct xla_plugins *out) {
    *out = (struct xla_plugins){0};
    for (size_t i = 0; i < sizeof o->environments / sizeof *o->environments; i++) xla_plugins_search(a, o->environments[i], out);
    if (os_home_dir()) xla_plugins_search(a, str_fmt(a, "%s/.local", os_home_dir()).p, out);
}

const char *xla_plugins_pick(const struct xla_plugins *found, const char *device) {
    struct str rest = str_of(device ? device : ""), kind = {0};
    str_split_next(&rest, ':', &kind);
    for (int32_t i = 0; i < found->n; i++) {
        struct str have = found->items[i].device;
        bool is_gpu = str_is(have, "cuda") || str_is(have, "rocm");
        if (kind.n == 0 || str_eq(have, kind) || (is_gpu && str_is(kind, "gpu"))) return found->items[i].path.p;
    }
    return NULL;
}

int xla_plugin_choose(struct arena *a, const struct xla_options *o, const char *device, const char **out, struct err *err) {
    *out = o->plugin;
    if (*out) return ERR_OK;
    struct xla_plugins found;
    xla_plugins_find(a, o, &found);
    *out = xla_plugins_pick(&found, device);
    if (*out) return ERR_OK;
    return err_set(err, ERR_ENOTFOUND,
                   "no PJRT plugin%s%s found: give its library with --xla-plugin PATH (docs/openxla.md says where to get one)",
                   device ? " for " : "", device ? device : "");
}
