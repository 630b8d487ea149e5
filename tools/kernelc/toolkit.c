/* Finding CUDA toolkits. Every place is looked at, even when the first has one: `--list` shows the whole picture. */
#include "toolkit.h"

#include "backend/cuda/device/driver.h"

#include <stdio.h>

/* ---- candidates ----------------------------------------------------------------------------------------------- */

struct search {
    struct arena *a;
    struct toolkits *out;
};

static bool same_program(const char *a, const char *b) {
    struct os_stat sa, sb;
    if (strcmp(a, b) == 0) return true;
    return os_stat(a, &sa, NULL) == 0 && os_stat(b, &sb, NULL) == 0 && sa.size == sb.size && sa.mtime_ns == sb.mtime_ns;
}

/* Adds a folder. One that the user named is kept without an nvcc too, so that the list can say so. */
static void add_root(struct search *s, const char *root, const char *found_by, bool named) {
    struct toolkits *out = s->out;
    if (out->n >= MAX_TOOLKITS) return;
    char *nvcc = os_find_program(s->a, path_join(s->a, root, "bin/nvcc"));
    if (!nvcc && !named) return;
    struct toolkit t = {.root = str_cstr(s->a, str_of(root)), .nvcc = nvcc, .found_by = found_by};
    if (!nvcc) t.problem = "there is no bin/nvcc in it";
    for (int i = 0; i < out->n; i++)
        if (strcmp(out->items[i].root, root) == 0) return;
    out->items[out->n++] = t;
}

static void add_env(struct search *s, const char *name) {
    const char *root = os_env(name);
    if (root) add_root(s, root, str_cstr(s->a, str_of(name)), true);
}

/* Every "cuda*" or "v*" below a folder. */
static void add_below(struct search *s, const char *folder, const char *pattern, const char *found_by) {
    struct str *names;
    size_t n;
    if (os_list_dir(s->a, folder, &names, &n, NULL)) return;
    for (size_t i = 0; i < n; i++)
        if (str_glob(str_of(pattern), names[i])) add_root(s, path_join(s->a, folder, str_cstr(s->a, names[i])), found_by, false);
}

static void add_path(struct search *s) {
    char *nvcc = os_find_program(s->a, "nvcc");
    if (nvcc) add_root(s, path_parent(s->a, path_parent(s->a, nvcc)), "PATH", true);
}

/* The installer on Windows leaves CUDA_PATH_V13_0 and a registry key for each version. */
static void add_versions(struct search *s) {
    for (int major = 15; major >= 11; major--)
        for (int minor = 9; minor >= 0; minor--) {
            char name[96];
            snprintf(name, sizeof name, "CUDA_PATH_V%d_%d", major, minor);
            add_env(s, name);
            snprintf(name, sizeof name, "SOFTWARE\\NVIDIA Corporation\\GPU Computing Toolkit\\CUDA\\v%d.%d", major, minor);
            char *root = os_registry_string(s->a, name, "InstallDir");
            if (root) add_root(s, root, "registry", true);
        }
}

static void add_usual_places(struct search *s) {
    add_env(s, "CUDA_PATH");
    add_env(s, "CUDA_HOME");
    add_path(s);
    add_versions(s);
    add_below(s, "/usr/local", "cuda*", "/usr/local");
    add_below(s, "/opt", "cuda*", "/opt");
    add_root(s, "/usr/lib/cuda", "/usr/lib", false);
    add_root(s, "/usr/lib/nvidia-cuda-toolkit", "/usr/lib", false);
    static const char *const program_files[] = {"ProgramW6432", "ProgramFiles"};
    for (int i = 0; i < 2; i++) {
        const char *base = os_env(program_files[i]);
        if (base) add_below(s, path_join(s->a, base, "NVIDIA GPU Computing Toolkit/CUDA"), "v*", "Program Files");
    }
}

/* ---- what each one is ----------------------------------------------------------------------------------------- */

/* "Cuda compilation tools, release 13.0, V13.0.88" */
static bool parse_version(struct arena *a, struct str text, struct toolkit *t) {
    size_t at = str_find(text, STR("release "), 0);
    if (at == STR_NONE) return false;
    struct str rest = str_from(text, at + 8), release, full;
    if (!str_split_next(&rest, ',', &release)) return false;
    struct str major_text, minor_text = release;
    int64_t major, minor;
    if (!str_split_next(&minor_text, '.', &major_text) || !str_to_int64(major_text, &major) || !str_to_int64(str_trim(minor_text), &minor))
        return false;
    if (major < 1 || major > 99 || minor < 0 || minor > 99) return false;
    rest = str_trim(rest);
    if (!str_starts(rest, STR("V")) || !str_split_next(&rest, '\n', &full)) full = release;
    else full = str_from(full, 1);
    t->version = (int)(major * 1000 + minor * 10);
    t->version_text = str_cstr(a, str_trim(full));
    return true;
}

static void parse_archs(struct str text, struct toolkit *t) {
    struct str line;
    while (str_split_next(&text, '\n', &line) && t->n_archs < MAX_ARCHS)
        if (cuda_arch_parse(str_trim(line), &t->archs[t->n_archs])) t->n_archs++;
}

static const char *said(struct arena *a, const struct os_run_result *r) {
    struct str words = first_line(r->err.n ? r->err : r->out);
    struct sb exit = {0};
    tool_put_exit(&exit, r->exit_code);
    struct str text = words.n ? str_fmt(a, "%s: %.*s", exit.p, STR_ARG(words)) : str_fmt(a, "%s, and it said nothing", exit.p);
    sb_free(&exit);
    return text.p;
}

static void examine(struct arena *a, struct toolkit *t) {
    struct os_run_result r;
    struct err err;
    if (t->problem) return;
    const char *version[] = {t->nvcc, "--version", NULL}, *codes[] = {t->nvcc, "--list-gpu-code", NULL};
    if (os_run(a, version, NULL, NULL, STR(""), &r, &err)) t->problem = str_fmt(a, "nvcc does not start: %s", err.msg).p;
    else if (r.exit_code) t->problem = str_fmt(a, "nvcc --version failed: %s", said(a, &r)).p;
    else if (!parse_version(a, r.out, t))
        t->problem = str_fmt(a, "nvcc --version does not say \"release N.N\" but \"%.*s\"", STR_ARG(first_line(r.out))).p;
    if (t->problem) return;
    if (os_run(a, codes, NULL, NULL, STR(""), &r, &err) == 0 && r.exit_code == 0) parse_archs(r.out, t);
    if (t->n_archs == 0) t->problem = "nvcc --list-gpu-code names no architecture: the toolkit is older than 11.5";
}

/* ---- which one is taken --------------------------------------------------------------------------------------- */

/* nvcc lists the plain names only; a toolkit that has sm_90 has sm_90a as well. */
static bool compiles(const struct toolkit *t, struct cuda_arch arch) {
    for (int i = 0; i < t->n_archs; i++)
        if (t->archs[i].number == arch.number) return true;
    return false;
}

static void judge_archs(struct arena *a, const struct toolkit_wish *wish, struct toolkit *t) {
    struct sb missing = {0};
    for (int i = 0; i < wish->n_archs; i++) {
        char name[16];
        cuda_arch_format(wish->archs[i], name);
        if (!compiles(t, wish->archs[i])) sb_fmt(&missing, "%s%s", missing.n ? " " : "", name);
    }
    if (missing.n) t->problem = str_fmt(a, "it does not compile for %s", missing.p).p;
    sb_free(&missing);
}

static void note_driver(struct arena *a, const struct toolkit_wish *wish, struct toolkit *t) {
    int major = t->version / 1000, driver = wish->driver_version;
    if (t->problem || !driver || major <= driver / 1000) return;
    t->note =
        str_fmt(
            a,
            "newer than this machine's driver: toolkit %d.%d makes kernels for driver %d and later, the driver here speaks CUDA %d.%d (driver %d)",
            major, t->version % 1000 / 10, cuda_branch_of(major * 1000), driver / 1000, driver % 1000 / 10, cuda_branch_of(driver))
            .p;
}

/* Newest first; the order in which they were found otherwise. */
static void sort(struct toolkits *all) {
    for (int i = 1; i < all->n; i++) {
        struct toolkit t = all->items[i];
        int k = i;
        for (; k > 0 && all->items[k - 1].version < t.version; k--) all->items[k] = all->items[k - 1];
        all->items[k] = t;
    }
}

/* /usr/local/cuda and /usr/local/cuda-13.0 are usually one. */
static void drop_twins(struct toolkits *all) {
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        bool twin = false;
        const struct toolkit *t = &all->items[i];
        for (int k = 0; k < n && t->nvcc && t->version; k++)
            twin |= all->items[k].nvcc && all->items[k].version == t->version && same_program(all->items[k].nvcc, t->nvcc);
        if (!twin) all->items[n++] = *t;
    }
    all->n = n;
}

void toolkits_find(struct arena *a, const struct toolkit_wish *wish, struct toolkits *out) {
    *out = (struct toolkits){.chosen = -1};
    struct search s = {a, out};
    if (wish->only) add_root(&s, wish->only, "--toolkit", true);
    else if (wish->folders)
        for (int i = 0; wish->folders[i]; i++) add_root(&s, wish->folders[i], "--search", true);
    else add_usual_places(&s);
    for (int i = 0; i < out->n; i++) {
        examine(a, &out->items[i]);
        if (!out->items[i].problem) judge_archs(a, wish, &out->items[i]);
        note_driver(a, wish, &out->items[i]);
    }
    sort(out);
    drop_twins(out);
    for (int i = 0; i < out->n && out->chosen < 0; i++)
        if (!out->items[i].problem && !out->items[i].note) out->chosen = i;
    for (int i = 0; i < out->n && out->chosen < 0; i++) /* too new for the driver is better than none: its PTX may still do */
        if (!out->items[i].problem) out->chosen = i;
}

void toolkits_print(const struct toolkits *all, struct sb *out) {
    if (all->n == 0) sb_puts(out, "no CUDA toolkit: neither CUDA_PATH, CUDA_HOME and PATH nor the usual folders have one\n");
    for (int i = 0; i < all->n; i++) {
        const struct toolkit *t = &all->items[i];
        sb_fmt(out, "%s toolkit %s at %s (found by %s)", i == all->chosen ? "*" : " ", t->version_text ? t->version_text : "?", t->root,
               t->found_by);
        if (i == all->chosen) sb_puts(out, ": taken, the newest that suits");
        else if (t->problem) sb_fmt(out, ": not taken, %s", t->problem);
        else if (!t->note) sb_puts(out, ": not taken, a newer one suits");
        if (t->note) sb_fmt(out, "%s %s", i == all->chosen ? "; it is" : ": not taken,", t->note);
        sb_putc(out, '\n');
    }
}
