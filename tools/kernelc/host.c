/* Finding the host compiler and holding it against what the toolkit's own header (crt/host_config.h) accepts. */
#include "host.h"

#include <stdio.h>

#ifdef _WIN32
enum { ON_WINDOWS = 1 };
#else
enum { ON_WINDOWS = 0 };
#endif

/* ---- the toolkit's limits ------------------------------------------------------------------------------------- */

struct limits {
    int gcc_most, clang_most, cl_below; /* 0: not known */
};

static int number_after(struct str text, const char *words) {
    size_t at = str_find(text, str_of(words), 0);
    if (at == STR_NONE) return 0;
    struct str rest = str_trim(str_sub(text, at + strlen(words), 12));
    int value = 0;
    for (size_t i = 0; i < rest.n && rest.p[i] >= '0' && rest.p[i] <= '9'; i++) value = value * 10 + (rest.p[i] - '0');
    return value;
}

static struct limits read_limits(struct arena *a, const struct toolkit *t) {
    struct limits l = {0};
    struct str text;
    static const char *const places[] = {"include/crt/host_config.h", "targets/x86_64-linux/include/crt/host_config.h",
                                         "targets/sbsa-linux/include/crt/host_config.h"};
    for (int i = 0; t && i < 3; i++) {
        if (os_file_load(a, path_join(a, t->root, places[i]), 1 << 20, &text, NULL)) continue;
        l.gcc_most = number_after(text, "__GNUC__ >");
        int clang_below = number_after(text, "__clang_major__ >=");
        l.clang_most = clang_below ? clang_below - 1 : 0;
        l.cl_below = number_after(text, "_MSC_VER >=");
        break;
    }
    return l;
}

/* ---- candidates ----------------------------------------------------------------------------------------------- */

static bool add(struct hosts *out, struct host h) {
    for (int i = 0; i < out->n; i++)
        if (strcmp(out->items[i].path, h.path) == 0) return false;
    if (out->n >= MAX_HOSTS) return false;
    out->items[out->n++] = h;
    return true;
}

static void add_named(struct arena *a, struct hosts *out, const char *name) {
    char *path = os_find_program(a, name);
    if (path) add(out, (struct host){.path = path, .found_by = "PATH"});
}

/* cl.exe of the newest Visual Studio (or Build Tools) that has the C++ tools. */
static void add_visual_studio(struct arena *a, struct hosts *out) {
    const char *base = os_env("ProgramFiles(x86)");
    struct os_run_result r;
    if (!base) base = os_env("ProgramFiles");
    if (!base) return;
    const char *argv[] = {path_join(a, base, "Microsoft Visual Studio/Installer/vswhere.exe"),
                          "-latest",
                          "-products",
                          "*",
                          "-utf8",
                          "-requires",
                          "Microsoft.VisualStudio.Component.VC.Tools.x86.x64",
                          "-property",
                          "installationPath",
                          NULL};
    if (!os_find_program(a, argv[0]) || os_run(a, argv, NULL, NULL, STR(""), &r, NULL) || r.exit_code) return;
    struct str root = first_line(r.out), version;
    if (!root.n) return;
    char *folder = path_join(a, str_cstr(a, root), "VC");
    if (os_file_load(a, path_join(a, folder, "Auxiliary/Build/Microsoft.VCToolsVersion.default.txt"), 4096, &version, NULL)) return;
    struct str cl = str_fmt(a, "%s/Tools/MSVC/%.*s/bin/Hostx64/x64/cl.exe", folder, STR_ARG(str_trim(version)));
    if (os_find_program(a, cl.p)) add(out, (struct host){.path = cl.p, .found_by = "vswhere"});
}

static void add_usual(struct arena *a, struct hosts *out) {
    if (ON_WINDOWS) {
        add_visual_studio(a, out);
        add_named(a, out, "cl");
        return;
    }
    static const char *const families[] = {"gcc", "clang"};
    for (int f = 0; f < 2; f++) {
        add_named(a, out, families[f]);
        for (int version = 22; version >= 8; version--) {
            char name[16];
            snprintf(name, sizeof name, "%s-%d", families[f], version);
            add_named(a, out, name);
        }
    }
}

/* ---- what each one is ----------------------------------------------------------------------------------------- */

static int first_number(struct str text, size_t from) {
    int value = 0;
    while (from < text.n && (text.p[from] < '0' || text.p[from] > '9')) from++;
    for (; from < text.n && text.p[from] >= '0' && text.p[from] <= '9' && value < 100000; from++) value = value * 10 + (text.p[from] - '0');
    return value;
}

/* "Compiler Version 19.44.35207 for x64" -> _MSC_VER 1944. cl says it on standard error, without being asked. */
static int cl_version(struct str text) {
    size_t at = str_find(text, STR("Version "), 0);
    if (at == STR_NONE) return 0;
    int major = first_number(text, at);
    size_t dot = str_find_char(text, '.', at);
    return dot == STR_NONE ? 0 : major * 100 + first_number(text, dot);
}

static void examine_cl(struct arena *a, struct host *h) {
    const char *argv[] = {h->path, NULL};
    struct os_run_result r;
    struct err err;
    h->kind = "cl";
    if (os_run(a, argv, NULL, NULL, STR(""), &r, &err)) h->problem = str_fmt(a, "it does not start: %s", err.msg).p;
    else h->version = cl_version(r.err.n ? r.err : r.out);
}

/* gcc without its C++ part, or without C++ headers, is the usual half-installed case. */
static void check_cxx(struct arena *a, struct host *h) {
    const char *argv[] = {h->path, "-x", "c++", "-E", "-o", ON_WINDOWS ? "NUL" : "/dev/null", "-", NULL};
    struct os_run_result r;
    struct err err;
    if (os_run(a, argv, NULL, NULL, STR("#include <utility>\n"), &r, &err)) h->problem = str_fmt(a, "it does not start: %s", err.msg).p;
    else if (r.exit_code)
        h->problem =
            str_fmt(a, "it cannot preprocess C++ (install g++, or libstdc++'s headers): %.*s", STR_ARG(first_line(r.err.n ? r.err : r.out)))
                .p;
}

static void examine(struct arena *a, struct host *h) {
    const char *slash = strrchr(h->path, '/'), *back = strrchr(h->path, '\\');
    struct str base = str_of(back > slash ? back + 1 : slash ? slash + 1 : h->path);
    if (str_is(base, "cl.exe") || str_is(base, "cl")) {
        examine_cl(a, h);
        return;
    }
    const char *argv[] = {h->path, "--version", NULL};
    struct os_run_result r;
    struct err err;
    h->kind = "gcc";
    if (os_run(a, argv, NULL, NULL, STR(""), &r, &err)) {
        h->problem = str_fmt(a, "it does not start: %s", err.msg).p;
        return;
    }
    size_t clang = str_find(r.out, STR("clang version "), 0);
    if (clang != STR_NONE) h->kind = "clang";
    /* "gcc (Debian 12.2.0-14+deb12u1) 12.2.0": the number after the bracket */
    size_t bracket = str_find(r.out, STR(") "), 0);
    h->version = first_number(r.out, clang != STR_NONE ? clang : bracket == STR_NONE ? 0 : bracket);
    if (r.exit_code)
        h->problem = str_fmt(a, "--version gave exit code %d: %.*s", r.exit_code, STR_ARG(first_line(r.err.n ? r.err : r.out))).p;
    else check_cxx(a, h);
}

static void judge(struct arena *a, const struct limits *l, struct host *h) {
    if (h->problem) return;
    int most = strcmp(h->kind, "gcc") == 0     ? l->gcc_most
               : strcmp(h->kind, "clang") == 0 ? l->clang_most
               : l->cl_below                   ? l->cl_below - 1
                                               : 0;
    if (most && h->version > most)
        h->problem = str_fmt(a, "the toolkit accepts %s up to %d (--allow-unsupported-compiler tries it all the same)", h->kind, most).p;
}

void hosts_find(struct arena *a, const struct host_wish *wish, struct hosts *out) {
    *out = (struct hosts){.chosen = -1};
    struct limits limits = wish->allow_unsupported ? (struct limits){0} : read_limits(a, wish->toolkit);
    if (wish->only) {
        char *path = os_find_program(a, wish->only);
        struct os_stat st;
        if (!path && os_stat(wish->only, &st, NULL) == 0 && st.is_dir)
            path = os_find_program(a, path_join(a, wish->only, ON_WINDOWS ? "cl.exe" : "gcc"));
        struct host h = {.path = path ? path : wish->only, .found_by = "NVCC_CCBIN", .kind = "?"};
        if (!path) h.problem = "there is no such program";
        add(out, h);
    } else {
        add_usual(a, out);
    }
    for (int i = 0; i < out->n; i++) {
        if (!out->items[i].problem) examine(a, &out->items[i]);
        judge(a, &limits, &out->items[i]);
        if (!out->items[i].problem && out->chosen < 0) {
            out->chosen = i;
            out->n = i + 1; /* the rest need not be started */
        }
    }
}

void hosts_print(const struct hosts *all, struct sb *out) {
    if (all->n == 0)
        sb_puts(out, ON_WINDOWS ? "no host compiler: install the Visual Studio Build Tools with the C++ workload, or set NVCC_CCBIN\n"
                                : "no host compiler: nvcc needs gcc or clang with C++; install g++, or set NVCC_CCBIN\n");
    for (int i = 0; i < all->n; i++) {
        const struct host *h = &all->items[i];
        sb_fmt(out, "%s host compiler %s %d at %s (found by %s)%s%s\n", i == all->chosen ? "*" : " ", h->kind, h->version, h->path,
               h->found_by, h->problem ? ": not taken, " : "", h->problem ? h->problem : "");
    }
}
