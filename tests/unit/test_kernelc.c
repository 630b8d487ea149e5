/* kernelc from outside, with compilers that fail in each way (tests/cuda/fake_nvcc.c): whatever happens, the message has the command, the
 * exit code and the compiler's own words. Runs under Wine as well. */
#include "../test_paths.h"
#include "unit.h"

#include "os/os.h"

#ifdef _WIN32
#define EXE ".exe"
#else
#define EXE ""
#endif
#define NEW_TOOLKIT "fake toolkit \xc3\xbc 13.0"
#define OLD_TOOLKIT "fake toolkit \xc3\xbc 12.4"

struct bench {
    struct arena a;
    const char *bin;    /* the folder of the programs */
    const char *folder; /* of this test's files: a blank and a letter beyond ASCII in its name */
    struct os_run_result r;
    struct sb all; /* both streams */
};

static const char *in(struct bench *b, const char *folder, const char *name) {
    return str_fmt(&b->a, "%s/%s", folder, name).p;
}

static void save(struct bench *b, const char *name, const char *text) {
    struct err err;
    CHECK_OK(os_file_save(in(b, b->folder, name), str_of(text), &err), err);
}

static void fill(struct bench *b, const char *folder) {
    struct err err;
    b->folder = in(b, unit_scratch_dir(), folder);
    CHECK_OK(os_make_dirs(b->folder, &err), err);
    save(b, "kernels.list", "default 75,80,90a,ptx75\none.cu default - fail\ntwo.cu 80+ -DX=1,-DY=2 allow\n");
    save(b, "one.cu", "#include \"common.cuh\"\none\n");
    save(b, "two.cu", "two\n");
    save(b, "common.cuh", "common\n");
}

static void bench_init(struct bench *b) {
    *b = (struct bench){0};
    struct str exe = str_of(test_exe_path());
    struct os_stat st;
    while (exe.n && exe.p[exe.n - 1] != '/' && exe.p[exe.n - 1] != '\\') exe.n--;
    b->bin = str_cstr(&b->a, str_sub(exe, 0, exe.n - 1));
    if (os_stat(in(b, b->bin, "kernelc" EXE), &st, NULL) || os_stat(in(b, b->bin, NEW_TOOLKIT "/bin/nvcc" EXE), &st, NULL))
        unit_skip("kernelc and its fake toolkits were not built");
    fill(b, "k \xc3\xa9");
}

static void bench_free(struct bench *b) {
    sb_free(&b->all);
    arena_free(&b->a);
}

/* Runs kernelc with the words (NULL at the end) after the common ones; env: one "NAME=value" or NULL. */
static void run(struct bench *b, const char *env, const char *const *words) {
    const char *argv[40] = {in(b, b->bin, "kernelc" EXE), "--kernels", in(b, b->folder, "kernels.list")};
    static const char *const unset[] = {"FAKE_CUDA=", "CUDA_COMPUTE_CAP=", "NVCC_CCBIN="}; /* empty counts as unset */
    const char *vars[5] = {0};
    struct err err;
    int n = 3, n_vars = 0;
    for (int i = 0; i < 3; i++)
        if (!env || strncmp(env, unset[i], strlen(unset[i])) != 0) vars[n_vars++] = unset[i];
    vars[n_vars] = env;
    while (*words) argv[n++] = *words++;
    CHECK_OK(os_run(&b->a, argv, NULL, vars, STR(""), &b->r, &err), err);
    sb_clear(&b->all);
    sb_put(&b->all, b->r.out);
    sb_put(&b->all, b->r.err);
}

/* A build with the newer fake toolkit and its cl. */
static void build(struct bench *b, const char *env, const char *more, const char *value) {
    const char *words[] = {"--build",  in(b, b->folder, "out.bin"),
                           "--cache",  in(b, b->folder, "cache"),
                           "--search", in(b, b->bin, NEW_TOOLKIT),
                           "--search", in(b, b->bin, OLD_TOOLKIT),
                           "--ccbin",  in(b, b->bin, NEW_TOOLKIT "/bin/cl" EXE),
                           more,       value,
                           NULL};
    run(b, env, words);
}

#define SAYS(b, words)                                                                                                               \
    do {                                                                                                                             \
        if (str_find(sb_str(&(b)->all), str_of(words), 0) == STR_NONE)                                                               \
            unit_fail(__FILE__, __LINE__, "lacks \"%s\" (exit code %d): %.*s", words, (b)->r.exit_code, STR_ARG(sb_str(&(b)->all))); \
    } while (0)

/* With all words where it is another code: a failure that comes once in a thousand runs must tell its reason at once. */
#define EXITS(b, code)                                                                                                              \
    do {                                                                                                                            \
        FAIL_IF((b)->r.exit_code != (code), "exit code %d, expected %d: %.*s", (b)->r.exit_code, code, STR_ARG(sb_str(&(b)->all))); \
    } while (0)

static void builds(void) {
    struct bench b;
    struct str first, second, third;
    struct err err;
    bench_init(&b);
    build(&b, NULL, "--report", NULL);
    EXITS(&b, 0);
    SAYS(&b, "6 images of 2 files");
    SAYS(&b, "6 compiled, 0 from the cache");
    SAYS(&b, "fake_kernel");
    CHECK_OK(os_file_load(&b.a, in(&b, b.folder, "out.bin"), 0, &first, &err), err);
    build(&b, NULL, "-j", "1");
    SAYS(&b, "0 compiled, 6 from the cache");
    SAYS(&b, "(unchanged)");
    save(&b, "common.cuh", "changed\n"); /* only what includes it */
    build(&b, NULL, NULL, NULL);
    SAYS(&b, "4 compiled, 2 from the cache");
    save(&b, "kernels.list", "default 75,80,90a,ptx75\none.cu default - fail\ntwo.cu 80+ -DX=1 allow\n"); /* a flag */
    build(&b, NULL, NULL, NULL);
    SAYS(&b, "2 compiled, 4 from the cache");
    /* the same input gives the same bytes, from nothing and in one thread */
    save(&b, "common.cuh", "common\n");
    save(&b, "kernels.list", "default 75,80,90a,ptx75\none.cu default - fail\ntwo.cu 80+ -DX=1,-DY=2 allow\n");
    CHECK_OK(os_remove_tree(in(&b, b.folder, "cache"), &err), err);
    build(&b, NULL, "-j", "1");
    SAYS(&b, "6 compiled");
    CHECK_OK(os_file_load(&b.a, in(&b, b.folder, "out.bin"), 0, &second, &err), err);
    CHECK(str_eq(first, second));
    /* and in every folder: nvcc would put a checksum of the source's path into names */
    fill(&b, "another folder");
    build(&b, NULL, NULL, NULL);
    SAYS(&b, "6 compiled");
    CHECK_OK(os_file_load(&b.a, in(&b, b.folder, "out.bin"), 0, &third, &err), err);
    CHECK(str_eq(first, third));
    run(&b, NULL, (const char *[]){"--show", in(&b, b.folder, "out.bin"), NULL});
    SAYS(&b, "compute_75");
    SAYS(&b, "580 (CUDA 13.0)");
    bench_free(&b);
}

/* Two builds at the same time: each has its own files, and what one has finished the other takes from the cache. */
static void shares_the_cache(void) {
    struct bench b;
    struct str ours, rivals;
    struct err err;
    bench_init(&b);
    build(&b, "FAKE_NVCC=rival", "-j", "1");
    EXITS(&b, 0);
    SAYS(&b, "1 compiled, 5 from the cache");
    CHECK_OK(os_file_load(&b.a, in(&b, b.folder, "out.bin"), 0, &ours, &err), err);
    CHECK_OK(os_file_load(&b.a, in(&b, b.folder, "rival.bin"), 0, &rivals, &err), err);
    CHECK(str_eq(ours, rivals));
    struct str *names;
    size_t n;
    CHECK_OK(os_list_dir(&b.a, in(&b, b.folder, "cache"), &names, &n, &err), err);
    CHECK_INT(n, 6); /* the entries, and nothing that was on its way */
    bench_free(&b);
}

static void chooses_targets(void) {
    struct bench b;
    bench_init(&b);
    build(&b, "CUDA_COMPUTE_CAP=9.0", NULL, NULL);
    SAYS(&b, "2 images of 2 files");
    run(&b, NULL, (const char *[]){"--show", in(&b, b.folder, "out.bin"), NULL});
    SAYS(&b, "sm_90a");
    build(&b, "CUDA_COMPUTE_CAP=90", "--archs", "75"); /* the option wins */
    SAYS(&b, "1 images of 1 files");
    build(&b, "CUDA_COMPUTE_CAP=ninety", NULL, NULL);
    EXITS(&b, 1);
    SAYS(&b, "CUDA_COMPUTE_CAP: \"ninety\" is no architecture");
    build(&b, NULL, "--archs", "99");
    EXITS(&b, 1);
    SAYS(&b, "it does not compile for 99");
    bench_free(&b);
}

static void failures(void) {
    static const struct {
        const char *env, *says[5];
    } rows[] = {
        {"FAKE_NVCC=silent", {"the compiler failed", "exit code 3", "standard error: nothing", "standard output: nothing"}},
        {"FAKE_NVCC=stdout", {"exit code 1", "standard error: nothing", "the words are over here"}},
        {"FAKE_NVCC=host", {"exit code 1", "Failed to preprocess host compiler properties", "advice:", "NVCC_CCBIN"}},
        {"FAKE_NVCC=nothing", {"reported success but wrote nothing", "exit code 0"}},
        {"FAKE_NVCC=flood", {"exit code 1", "far too many words", "for the sake of symmetry", "bytes more"}},
        {"FAKE_NVCC=spill", {"kernel fake_kernel spills 12 bytes of stores and 20 of loads", "spill"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench b;
        bench_init(&b);
        build(&b, rows[i].env, NULL, NULL);
        EXITS(&b, 1);
        for (int k = 0; rows[i].says[k]; k++) SAYS(&b, rows[i].says[k]);
        if (i != 5) SAYS(&b, "command: \"");
        if (i != 5) SAYS(&b, NEW_TOOLKIT "/bin/nvcc");
        SAYS(&b, "-DMLXCEL_CUDA=prebuilt");
        struct os_stat st;
        CHECK(os_stat(in(&b, b.folder, "out.bin"), &st, NULL) != 0);
        bench_free(&b);
    }
}

/* A kernel that must not spill and does: named in any case, an error unless allowed. */
static void spills(void) {
    struct bench b;
    bench_init(&b);
    build(&b, "FAKE_NVCC=spill", "--spills", "warn");
    EXITS(&b, 0);
    SAYS(&b, "one.cu for sm_75: kernel fake_kernel spills 12 bytes");
    save(&b, "kernels.list", "default 75\none.cu default - fail:other_*\n");
    build(&b, "FAKE_NVCC=spill", NULL, NULL);
    EXITS(&b, 0);
    save(&b, "kernels.list", "default 75\none.cu default - fail>32:fake_*\n");
    build(&b, "FAKE_NVCC=spill", NULL, NULL);
    EXITS(&b, 0);
    save(&b, "kernels.list", "default 75\none.cu default - fail>31:fake_*\n");
    build(&b, "FAKE_NVCC=spill", NULL, NULL);
    EXITS(&b, 1);
    save(&b, "kernels.list", "default 75\none.cu default - fail:other_*,fake_*\n");
    build(&b, "FAKE_NVCC=spill", NULL, NULL);
    EXITS(&b, 1);
    SAYS(&b, "1 kernel spills registers");
    build(&b, NULL, "--spills", "perhaps");
    EXITS(&b, 1);
    SAYS(&b, "expected fail or warn");
    bench_free(&b);
}

/* A crash is told from a failure: a signal on Linux, a status like 0xC0000005 on Windows. */
static void crash(void) {
    struct bench b;
    bench_init(&b);
    build(&b, "FAKE_NVCC=crash", NULL, NULL);
    EXITS(&b, 1);
    SAYS(&b, EXE[0] ? "crashed (exit code 0xC0000005)" : "ended by signal 9 (exit code 137)");
    SAYS(&b, "advice: the compiler itself crashed");
    bench_free(&b);
}

static void lists_toolkits(void) {
    struct bench b;
    bench_init(&b);
    const char *words[] = {"--list",
                           "--search",
                           in(&b, b.bin, OLD_TOOLKIT),
                           "--search",
                           in(&b, b.bin, NEW_TOOLKIT),
                           "--search",
                           "no such folder",
                           "--ccbin",
                           in(&b, b.bin, NEW_TOOLKIT "/bin/cl" EXE),
                           NULL};
    run(&b, NULL, words); /* newest first, though it was named second */
    EXITS(&b, 0);
    SAYS(&b, "* toolkit 13.0.99");
    SAYS(&b, "taken, the newest that suits");
    SAYS(&b, "12.4.99");
    SAYS(&b, "not taken, a newer one suits");
    SAYS(&b, "no such folder (found by --search): not taken, there is no bin/nvcc in it");
    SAYS(&b, "* host compiler cl 1944");
    run(&b, "FAKE_NVCC_VERSION=silent", words);
    EXITS(&b, 1);
    SAYS(&b, "nvcc --version failed: exit code 7, and it said nothing");
    run(&b, "FAKE_NVCC_VERSION=garbage", words);
    SAYS(&b, "does not say \"release N.N\" but \"Hello, I am a compiler\"");
    save(&b, "kernels.list", "default 75,120\none.cu default - allow\n"); /* beyond the older one */
    run(&b, NULL, words);
    SAYS(&b, "not taken, it does not compile for 120");
    run(&b, NULL, (const char *[]){"--list", "--toolkit", in(&b, b.bin, OLD_TOOLKIT), NULL});
    EXITS(&b, 1);
    SAYS(&b, "no suitable CUDA toolkit");
    bench_free(&b);
}

static void host_compilers(void) {
    struct bench b;
    bench_init(&b);
    build(&b, NULL, "--toolkit", in(&b, b.bin, OLD_TOOLKIT));
    EXITS(&b, 1);
    SAYS(&b, "the toolkit accepts cl up to 1939");
    SAYS(&b, "no suitable host compiler");
    const char *words[] = {"--build", in(&b, b.folder, "out.bin"), "--toolkit", in(&b, b.bin, OLD_TOOLKIT), "--allow-unsupported-compiler",
                           NULL};
    const char *env = str_fmt(&b.a, "NVCC_CCBIN=%s", in(&b, b.bin, NEW_TOOLKIT "/bin/cl" EXE)).p;
    run(&b, env, words);
    EXITS(&b, 0);
    run(&b, "NVCC_CCBIN=no such compiler", words);
    EXITS(&b, 1);
    SAYS(&b, "no such compiler (found by NVCC_CCBIN): not taken, there is no such program");
    bench_free(&b);
}

/* This machine's GPUs, as the fake driver has them. */
static void probes(void) {
    struct bench b;
    struct os_stat st;
    bench_init(&b);
    const char *driver = in(&b, b.bin, EXE[0] ? "fake-driver/nvcuda.dll" : "fake-driver/libcuda.so.1");
    if (os_stat(driver, &st, NULL)) unit_skip("the fake driver was not built");
    const char *devices = "FAKE_CUDA=device=90|NVIDIA H200|143771|143000;device=75|Tesla T4|15360|15000";
    run(&b, devices, (const char *[]){"--probe", "--driver", driver, NULL});
    CHECK_STR(str_trim(b.r.out), STR("90 75"));
    run(&b, "FAKE_CUDA=init=100", (const char *[]){"--probe", "--driver", driver, NULL});
    CHECK_STR(str_trim(b.r.out), STR(""));
    SAYS(&b, "CUDA_ERROR_NO_DEVICE");
    const char *words[] = {
        "--build",  in(&b, b.folder, "out.bin"), "--driver", driver, "--archs", "auto", "--ccbin", in(&b, b.bin, NEW_TOOLKIT "/bin/cl" EXE),
        "--search", in(&b, b.bin, NEW_TOOLKIT),  NULL};
    run(&b, devices, words);
    EXITS(&b, 0);
    SAYS(&b, "3 images of 2 files"); /* one.cu for 75 and 90a, two.cu for 90a */
    run(&b, "FAKE_CUDA=version=12040;device=90|NVIDIA H200|143771|143000", words);
    SAYS(
        &b,
        "newer than this machine's driver: toolkit 13.0 makes kernels for driver 580 and later, the driver here speaks CUDA 12.4 (driver 550)");
    run(&b, "FAKE_CUDA=init=100", words);
    EXITS(&b, 1);
    SAYS(&b, "no GPU to compile for");
    bench_free(&b);
}

static void bad_lists(void) {
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"default 75\none.cu default -\n", "kernels.list:2: a line has four columns"},
        {"default 75\none.cpp default - allow\n", "kernels.list:2: one.cpp is no .cu file"},
        {"default 75\n../one.cu default - allow\n", "is no .cu file"},
        {"default 75,x\n", "kernels.list:1: \"x\" is no architecture"},
        {"default 75\none.cu default O3 allow\n", "\"O3\" is no flag"},
        {"default 75\none.cu default - maybe\n", "expected allow, fail, fail:PATTERN"},
        {"default 75\none.cu default - allow\none.cu 80 - allow\n", "one.cu is listed twice"},
        {"# nothing\n", "lists no kernel"},
    };
    struct bench b;
    bench_init(&b);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        save(&b, "kernels.list", rows[i].text);
        build(&b, NULL, NULL, NULL);
        EXITS(&b, 1);
        SAYS(&b, rows[i].says);
    }
    save(&b, "kernels.list", "default 75\nthree.cu default - allow\n");
    build(&b, NULL, NULL, NULL);
    EXITS(&b, 1);
    SAYS(&b, "three.cu");
    run(&b, NULL, (const char *[]){"--nonsense", NULL});
    EXITS(&b, 2);
    SAYS(&b, "--nonsense: unknown option");
    bench_free(&b);
}

static const struct unit_case cases[] = {
    {"builds", builds},
    {"shares_the_cache", shares_the_cache},
    {"chooses_targets", chooses_targets},
    {"failures", failures},
    {"crash", crash},
    {"spills", spills},
    {"lists_toolkits", lists_toolkits},
    {"host_compilers", host_compilers},
    {"probes", probes},
    {"bad_lists", bad_lists},
    {0},
};
const struct unit_suite unit_kernelc = {"kernelc", cases};
