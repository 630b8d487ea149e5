/* A compiler that fails in every way a compiler can, for the tests of kernelc. Started without arguments it plays
 * cl.exe, which then says its version.
 *
 * FAKE_NVCC says what a compilation does:
 *   (unset)   writes an image that looks like machine code, or PTX, and ptxas' words
 *   silent    exit code 3 and not a word          stdout    exit code 1, words on standard output only
 *   host      the words of a missing host compiler crash     ends by a fault
 *   nothing   exit code 0 and no file             spill     succeeds, with a kernel that spills
 *   flood     exit code 1 after a megabyte of words on both streams
 *   rival     succeeds, and before it ends another kernelc has built the same list with the same cache
 * FAKE_NVCC_VERSION: silent (exit code 7), garbage, or unset: the number at the end of the toolkit's folder name. */
#include "../test_paths.h"

#include "os/os.h"

#include <signal.h>

static void put(enum os_stream s, const char *text) {
    os_write(s, str_of(text), NULL);
}

static struct str folder_of(struct str path, int up) {
    while (up-- > 0) {
        while (path.n && path.p[path.n - 1] != '/' && path.p[path.n - 1] != '\\') path.n--;
        if (path.n) path.n--;
    }
    return path;
}

/* ".../fake toolkit 13.0/bin/nvcc" -> "13.0" */
static struct str version_of(const char *exe) {
    struct str path = folder_of(str_of(exe), 2); /* without the program's name, and "bin" */
    size_t from = path.n;
    while (from > 0 && (path.p[from - 1] == '.' || (path.p[from - 1] >= '0' && path.p[from - 1] <= '9'))) from--;
    return str_from(path, from);
}

static int say_version(void) {
    const char *mode = os_env("FAKE_NVCC_VERSION");
    if (mode && strcmp(mode, "silent") == 0) return 7;
    if (mode && strcmp(mode, "garbage") == 0) {
        put(OS_STDOUT, "Hello, I am a compiler\n");
        return 0;
    }
    struct sb out = {0};
    struct str v = version_of(test_exe_path());
    sb_fmt(&out, "nvcc: fake\nCuda compilation tools, release %.*s, V%.*s.99\n", STR_ARG(v), STR_ARG(v));
    put(OS_STDOUT, out.p);
    sb_free(&out);
    return 0;
}

static int say_archs(void) {
    put(OS_STDOUT, str_starts(version_of(test_exe_path()), STR("13"))
                       ? "sm_75\nsm_80\nsm_86\nsm_87\nsm_89\nsm_90\nsm_100\nsm_103\nsm_120\nsm_121\n"
                       : "sm_50\nsm_61\nsm_75\nsm_80\nsm_86\nsm_89\nsm_90\n");
    return 0;
}

static int fail_by_mode(const char *mode) {
    if (strcmp(mode, "silent") == 0) return 3;
    if (strcmp(mode, "stdout") == 0) put(OS_STDOUT, "kernel.cu(7): error: the words are over here\n");
    if (strcmp(mode, "host") == 0) put(OS_STDERR, "nvcc fatal   : Failed to preprocess host compiler properties.\n");
    if (strcmp(mode, "flood") == 0)
        for (int i = 0; i < 1 << 14; i++) {
            put(OS_STDERR, "error: far too many words, on and on, without an end in sight\n");
            put(OS_STDOUT, "note: and as many on this side, for the sake of symmetry\n");
        }
    if (strcmp(mode, "crash") == 0) {
#ifdef _WIN32
        return (int)0xC0000005; /* what a fault ends with; a true one would start the debugger */
#else
        raise(SIGKILL); /* not a fault: a sanitizer would turn that into an exit code */
#endif
    }
    return 1;
}

/* ".../fake toolkit 13.0/bin/nvcc", whose kernelc is two folders up; the source lies beside its list, the image in the cache. */
static int build_as_rival(struct arena *a, const char *source, const char *image) {
    struct str exe = str_of(test_exe_path()), toolkit = folder_of(exe, 2), cache = folder_of(str_of(image), 1);
    const char *suffix = str_ends(exe, STR(".exe")) ? ".exe" : "";
    const char *argv[] = {str_fmt(a, "%.*s/kernelc%s", STR_ARG(folder_of(exe, 3)), suffix).p,
                          "--build",
                          str_fmt(a, "%.*s/rival.bin", STR_ARG(folder_of(cache, 1))).p,
                          "--kernels",
                          str_fmt(a, "%.*s/kernels.list", STR_ARG(folder_of(str_of(source), 1))).p,
                          "--cache",
                          str_cstr(a, cache),
                          "--toolkit",
                          str_cstr(a, toolkit),
                          "--ccbin",
                          str_fmt(a, "%.*s/bin/cl%s", STR_ARG(toolkit), suffix).p,
                          NULL};
    const char *const unset[] = {"FAKE_NVCC=", NULL};
    struct os_run_result r;
    struct err err;
    if (os_run(a, argv, NULL, unset, STR(""), &r, &err)) {
        put(OS_STDERR, err.msg);
        return 1;
    }
    os_write(OS_STDERR, r.err, NULL);
    return r.exit_code;
}

static int compile(int argc, char **argv, struct arena *a) {
    const char *out = NULL, *mode = os_env("FAKE_NVCC"), *arch = "?", *source = argv[argc - 1], *name = source;
    bool ptx = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) out = argv[i + 1];
        if (strncmp(argv[i], "-arch=", 6) == 0) arch = argv[i] + 6;
        ptx |= strcmp(argv[i], "-ptx") == 0;
        if (strcmp(argv[i], "--orig_src_path_name") == 0 && i + 2 < argc) name = argv[i + 2]; /* between them: -Xcicc */
    }
    bool spill = mode && strcmp(mode, "spill") == 0, nothing = mode && strcmp(mode, "nothing") == 0;
    bool rival = mode && strcmp(mode, "rival") == 0;
    if (mode && !spill && !nothing && !rival) return fail_by_mode(mode);
    struct err err;
    struct str text, words;
    if (os_file_load(a, source, 0, &text, &err)) {
        put(OS_STDERR, err.msg);
        return 1;
    }
    struct str image = str_fmt(a, "%s %s %s\n.version 9.0\n%.*s", ptx ? "//" : "\177ELF fake", arch, name, STR_ARG(text));
    if (!nothing && out && os_file_save(out, image, &err)) {
        put(OS_STDERR, err.msg);
        return 1;
    }
    if (rival && build_as_rival(a, source, out)) return 1;
    words = str_fmt(
        a,
        "ptxas info    : Compiling entry function 'fake_kernel' for '%s'\nptxas info    : Function properties for fake_kernel\n"
        "    %d bytes stack frame, %d bytes spill stores, %d bytes spill loads\nptxas info    : Used 40 registers, 512 bytes smem\n",
        arch, spill ? 16 : 0, spill ? 12 : 0, spill ? 20 : 0);
    if (!ptx) os_write(OS_STDERR, words, NULL);
    return 0;
}

int main(int argc, char **argv) {
    struct arena a = {0};
    char **utf8;
    argc = os_args(&a, argc, argv, &utf8);
    int code = 0;
    if (argc == 1) put(OS_STDERR, "Microsoft (R) C/C++ Optimizing Compiler Version 19.44.35207 for x64\n");
    else if (argc == 2 && strcmp(utf8[1], "--version") == 0) code = say_version();
    else if (argc == 2 && strcmp(utf8[1], "--list-gpu-code") == 0) code = say_archs();
    else code = compile(argc, utf8, &a);
    arena_free(&a);
    return code;
}
