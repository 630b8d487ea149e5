/* Running programs and explaining what they did. */
#include "tool.h"

#include <assert.h>
#include <stdio.h>

void args_add(struct args_list *args, const char *arg) {
    assert(args->n < MAX_ARGS);
    args->v[args->n++] = arg;
    args->v[args->n] = NULL;
}

void tool_put_command(struct sb *out, const char *const *argv) {
    for (size_t i = 0; argv[i]; i++) {
        bool plain = argv[i][0] && !strpbrk(argv[i], " \t\n\"'\\$&;()<>|*?`");
        sb_fmt(out, "%s%s%s%s", i ? " " : "", plain ? "" : "\"", argv[i], plain ? "" : "\"");
    }
}

static bool by_signal(int exit_code) {
    return exit_code > 128 && exit_code <= 128 + 64;
}

void tool_put_exit(struct sb *out, int exit_code) {
    if (by_signal(exit_code)) sb_fmt(out, "ended by signal %d (exit code %d)", exit_code - 128, exit_code);
    else if (exit_code < 0) sb_fmt(out, "crashed (exit code 0x%08X)", (unsigned)exit_code);
    else sb_fmt(out, "exit code %d", exit_code);
}

/* What is known about a compiler's words: the first row whose text occurs in either stream. */
static const struct {
    const char *words, *advice;
} advice_rows[] = {
    {"Failed to preprocess host compiler properties",
     "nvcc finds no host compiler that works: install g++ (Linux) or the Visual Studio Build Tools with C++ (Windows), "
     "or name one with NVCC_CCBIN"},
    {"Cannot find compiler 'cl.exe'",
     "install the Visual Studio Build Tools with the C++ workload, or name cl.exe's folder with NVCC_CCBIN"},
    {"cc1plus", "the host compiler has no C++ part: install g++"},
    {"unsupported GNU version",
     "this gcc is newer than the toolkit knows: name an older one with NVCC_CCBIN=g++-13, or pass --allow-unsupported-compiler"},
    {"unsupported clang version",
     "this clang is newer than the toolkit knows: name an older one with NVCC_CCBIN, or pass --allow-unsupported-compiler"},
    {"unsupported Microsoft Visual Studio version", "this Visual Studio is newer than the toolkit knows: install an older toolset, or pass "
                                                    "--allow-unsupported-compiler"},
    {"Host compiler targets unsupported OS", "on Windows nvcc works with Microsoft's cl.exe alone, not with MinGW"},
    {"is not defined for option 'gpu", "this toolkit does not know the architecture: install a newer one"},
    {"Unsupported gpu architecture", "this toolkit does not know the architecture: install a newer one"},
    {"No space left on device", "the disk is full"},
    {"cicc: not found", "the toolkit is incomplete: reinstall it"},
    {"cannot open shared object file", "a library of the toolkit is missing: reinstall it"},
};

static void put_stream(struct sb *out, const char *name, struct str text) {
    enum { MOST = 16 * 1024 }; /* the compiler's first words matter; a template's thousand lines do not */
    while (text.n && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == '\r')) text.n--;
    if (str_trim(text).n == 0) {
        sb_fmt(out, "%s: nothing\n", name);
        return;
    }
    sb_fmt(out, "%s:\n", name);
    struct str rest = str_sub(text, 0, MOST), line;
    while (str_split_next(&rest, '\n', &line)) {
        if (line.n && line.p[line.n - 1] == '\r') line.n--;
        sb_puts(out, "  ");
        sb_put(out, line);
        sb_putc(out, '\n');
    }
    if (text.n > MOST) sb_fmt(out, "  ... (%zu bytes more)\n", text.n - MOST);
}

void tool_explain(struct sb *out, const char *const *argv, const struct os_run_result *result) {
    sb_puts(out, "command: ");
    tool_put_command(out, argv);
    sb_puts(out, "\nresult: ");
    tool_put_exit(out, result->exit_code);
    sb_putc(out, '\n');
    put_stream(out, "standard error", result->err);
    put_stream(out, "standard output", result->out);
    for (size_t i = 0; i < sizeof advice_rows / sizeof advice_rows[0]; i++) {
        struct str words = str_of(advice_rows[i].words);
        if (str_find(result->err, words, 0) == STR_NONE && str_find(result->out, words, 0) == STR_NONE) continue;
        sb_fmt(out, "advice: %s\n", advice_rows[i].advice);
        return;
    }
    if (result->exit_code < 0 || by_signal(result->exit_code))
        sb_puts(out,
                "advice: the compiler itself crashed or was ended; with little memory, try -j 1; otherwise try another toolkit version\n");
}

struct str first_line(struct str text) {
    struct str line;
    while (str_split_next(&text, '\n', &line)) {
        line = str_trim(line);
        if (line.n) return line;
    }
    return STR("");
}

char *path_join(struct arena *a, const char *folder, const char *name) {
    size_t n = strlen(folder);
    bool has = n && (folder[n - 1] == '/' || folder[n - 1] == '\\');
    return str_cstr(a, str_fmt(a, "%s%s%s", folder, has ? "" : "/", name));
}

char *path_parent(struct arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] != '/' && path[n - 1] != '\\') n--;
    if (n == 0) return str_cstr(a, STR("."));
    return str_cstr(a, str_n(path, n > 1 ? n - 1 : 1));
}

static void write_line(enum os_stream stream, const char *fmt, va_list args) {
    struct sb line = {0};
    sb_vfmt(&line, fmt, args);
    sb_putc(&line, '\n');
    os_write(stream, sb_str(&line), NULL);
    sb_free(&line);
}

void say(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    write_line(OS_STDOUT, fmt, args);
    va_end(args);
}

void complain(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    write_line(OS_STDERR, fmt, args);
    va_end(args);
}
