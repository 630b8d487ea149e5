/* kernelc: compiles the CUDA kernels of kernels.list and packs them into one file that is embedded in the program. The same on Linux and
 * Windows. docs/cuda-kernels.md explains. */
#include "backend/cuda/device/image.h"
#include "backend/cuda/device/probe.h"
#include "build.h"

#include <stdio.h>
#include <stdlib.h>

enum command { CMD_NONE, CMD_LIST, CMD_PROBE, CMD_FUNCTIONS, CMD_SHOW, CMD_BUILD, CMD_PAGE };
enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct options {
    enum command command;
    const char *list, *out, *cache, *archs, *toolkit, *ccbin, *old_ptxas, *show, *driver, *depfile, *spills;
    const char *search[MAX_TOOLKITS + 1];
    int n_search, n_threads;
    bool report, allow_unsupported, quiet;
};

static const char help[] =
    "kernelc compiles CUDA kernels into one file\n"
    "\n"
    "  kernelc --list                  toolkits and host compilers on this machine, and which are taken\n"
    "  kernelc --probe                 compute capabilities of this machine's GPUs, in one line\n"
    "  kernelc --build OUT             compile the list into OUT\n"
    "  kernelc --show FILE             the images in such a file\n"
    "  kernelc --functions             the driver functions that mlxcel calls\n"
    "  kernelc --compatibility         the page docs/cuda-compatibility.md\n"
    "\n"
    "  --kernels FILE                  the list (default kernels/kernels.list)\n"
    "  --cache DIR                     where compiled images are kept (default OUT.cache)\n"
    "  --depfile FILE                  write the names of all files read, for make and ninja\n"
    "  --archs LIST                    all (default), auto (this machine's GPUs), or capabilities: \"89 90a\"; else CUDA_COMPUTE_CAP\n"
    "  --toolkit DIR                   this toolkit and no other\n"
    "  --search DIR                    look for toolkits here instead of in the usual places (may be repeated)\n"
    "  --ccbin PROGRAM                 host compiler; else NVCC_CCBIN\n"
    "  --allow-unsupported-compiler    try a host compiler that the toolkit does not know\n"
    "  --old-ptxas PROGRAM             ptxas of toolkit 12.4 or older: PTX gets a lower header, and must pass it\n"
    "  --driver FILE                   this driver library instead of the system's (tests)\n"
    "  -j N                            jobs at a time (default: processors)\n"
    "  --report                        registers and spills of every kernel\n"
    "  --spills fail|warn              what a kernel does that spills although kernels.list forbids it (default fail)\n"
    "  --quiet                         say only how it ended\n";

/* kernelc has no kernels of its own; backend/cuda/device/probe.c asks for them. */
int cuda_pack_embedded(struct cuda_pack *pack, struct err *err) {
    return cuda_pack_open(pack, NULL, 0, "kernelc", err);
}

/* ---- arguments ------------------------------------------------------------------------------------------------ */

static int parse_args(int argc, char **argv, struct options *o) {
    const struct {
        const char *name;
        enum command command;
        const char **value;
        bool *flag;
    } rows[] = {
        {"--list", CMD_LIST, NULL, NULL},           {"--probe", CMD_PROBE, NULL, NULL},
        {"--functions", CMD_FUNCTIONS, NULL, NULL}, {"--compatibility", CMD_PAGE, NULL, NULL},
        {"--build", CMD_BUILD, &o->out, NULL},      {"--show", CMD_SHOW, &o->show, NULL},
        {"--kernels", CMD_NONE, &o->list, NULL},    {"--cache", CMD_NONE, &o->cache, NULL},
        {"--archs", CMD_NONE, &o->archs, NULL},     {"--toolkit", CMD_NONE, &o->toolkit, NULL},
        {"--ccbin", CMD_NONE, &o->ccbin, NULL},     {"--old-ptxas", CMD_NONE, &o->old_ptxas, NULL},
        {"--depfile", CMD_NONE, &o->depfile, NULL}, {"--spills", CMD_NONE, &o->spills, NULL},
        {"--driver", CMD_NONE, &o->driver, NULL},   {"--report", CMD_NONE, NULL, &o->report},
        {"--quiet", CMD_NONE, NULL, &o->quiet},     {"--allow-unsupported-compiler", CMD_NONE, NULL, &o->allow_unsupported},
    };
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL, *text = NULL;
        bool known = false, takes_value = strcmp(arg, "-j") == 0 || strcmp(arg, "--search") == 0;
        known = takes_value;
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            if (strcmp(arg, rows[k].name) != 0) continue;
            known = true;
            if (rows[k].command) o->command = rows[k].command;
            if (rows[k].flag) *rows[k].flag = true;
            if (rows[k].value) *rows[k].value = value, takes_value = true;
        }
        if (!known) text = "unknown option";
        else if (takes_value && !value) text = "a value must follow";
        if (text) {
            complain("kernelc: %s: %s (kernelc --help)", arg, text);
            return EXIT_USAGE;
        }
        if (strcmp(arg, "-j") == 0) o->n_threads = atoi(value);
        if (strcmp(arg, "--search") == 0 && o->n_search < MAX_TOOLKITS) o->search[o->n_search++] = value;
        i += takes_value;
    }
    return 0;
}

/* ---- the machine ---------------------------------------------------------------------------------------------- */

static void probe(const struct options *o, struct cuda_probe *out) {
    cuda_probe_run(out, &(struct cuda_probe_args){.driver_path = o->driver});
}

/* The list, narrowed to what is asked for; *out_driver is this machine's where the kernels are for it. */
static int load_list(struct arena *a, const struct options *o, struct kernel_list *list, int *out_driver, struct err *err) {
    const char *asked = o->archs ? o->archs : os_env("CUDA_COMPUTE_CAP");
    struct cuda_arch wanted[MAX_ARCHS];
    int n = 0;
    *out_driver = 0;
    TRY(list_load(a, o->list, list, err));
    if (!asked || strcmp(asked, "all") == 0) return 0;
    if (strcmp(asked, "auto") == 0) {
        static struct cuda_probe p;
        probe(o, &p);
        for (int i = 0; i < p.n_devices; i++)
            if (p.devices[i].capability) wanted[n++] = (struct cuda_arch){p.devices[i].capability, 0};
        if (n == 0) return err_set(err, ERR_ENOTFOUND, "no GPU to compile for: %s", p.reason.msg);
        *out_driver = p.driver.version;
    } else if (list_parse_archs(asked, wanted, &n, err)) {
        return err_prefix(err, "%s", o->archs ? "--archs" : "CUDA_COMPUTE_CAP");
    }
    list_narrow(list, wanted, n);
    if (list->n_rows == 0) return err_set(err, ERR_EARG, "%s: no kernel is compiled for %s", o->list, asked);
    return 0;
}

struct machine {
    struct toolkits toolkits;
    struct hosts hosts;
};

static void examine_machine(struct arena *a, const struct options *o, const struct kernel_list *list, int driver, struct machine *m) {
    struct cuda_arch archs[MAX_ARCHS];
    struct toolkit_wish wish = {.only = o->toolkit, .folders = o->n_search ? o->search : NULL, .archs = archs, .driver_version = driver};
    wish.n_archs = list_archs(list, archs);
    toolkits_find(a, &wish, &m->toolkits);
    const struct toolkit *t = m->toolkits.chosen >= 0 ? &m->toolkits.items[m->toolkits.chosen] : NULL;
    hosts_find(
        a, &(struct host_wish){.only = o->ccbin ? o->ccbin : os_env("NVCC_CCBIN"), .toolkit = t, .allow_unsupported = o->allow_unsupported},
        &m->hosts);
}

static void put_machine(const struct machine *m, struct sb *out) {
    toolkits_print(&m->toolkits, out);
    hosts_print(&m->hosts, out);
}

/* ---- commands ------------------------------------------------------------------------------------------------- */

static int cmd_list(struct arena *a, const struct options *o, struct err *err) {
    static struct kernel_list list;
    static struct machine m;
    static struct cuda_probe p;
    struct sb out = {0};
    int driver;
    TRY(load_list(a, o, &list, &driver, err));
    examine_machine(a, o, &list, driver, &m);
    put_machine(&m, &out);
    probe(o, &p);
    if (p.driver.version)
        sb_fmt(&out, "  driver for CUDA %d.%d (branch %d) at %s\n", p.driver.version / 1000, p.driver.version % 1000 / 10,
               cuda_branch_of(p.driver.version), p.driver.path);
    for (int i = 0; i < p.n_devices; i++) {
        sb_puts(&out, "  ");
        cuda_device_describe(&p.devices[i], &out);
        sb_putc(&out, '\n');
    }
    if (p.n_devices == 0) sb_fmt(&out, "  no GPU: %s\n", p.reason.msg);
    os_write(OS_STDOUT, sb_str(&out), NULL);
    sb_free(&out);
    if (m.toolkits.chosen < 0) return err_set(err, ERR_ENOTFOUND, "no suitable CUDA toolkit");
    if (m.hosts.chosen < 0) return err_set(err, ERR_ENOTFOUND, "no suitable host compiler");
    return 0;
}

static int cmd_probe(const struct options *o) {
    static struct cuda_probe p;
    struct sb out = {0};
    probe(o, &p);
    for (int i = 0; i < p.n_devices; i++)
        if (p.devices[i].capability) sb_fmt(&out, "%s%d", out.n ? " " : "", p.devices[i].capability);
    say("%s", out.n ? out.p : "");
    if (!out.n) complain("kernelc: no GPU: %s", p.reason.msg);
    sb_free(&out);
    return 0;
}

static int cmd_show(struct arena *a, const struct options *o, struct err *err) {
    struct str data;
    struct cuda_pack pack;
    uint64_t raw = 0;
    TRY(os_file_load(a, o->show, 0, &data, err));
    TRY(cuda_pack_open(&pack, data.p, data.n, o->show, err));
    say("%-28s %-11s %10s %10s  driver", "file", "target", "bytes", "packed");
    for (int i = 0; i < pack.n_rows; i++) {
        const struct pack_row *r = &pack.rows[i];
        char arch[16], target[32];
        void *image;
        size_t bytes;
        TRY(cuda_image_unpack(&pack, r, &image, &bytes, err));
        mem_free(image);
        cuda_arch_format((struct cuda_arch){r->arch, (char)r->suffix}, arch);
        snprintf(target, sizeof target, "%s_%s", r->kind == PACK_PTX ? "compute" : "sm", arch);
        say("%-28s %-11s %10zu %10llu  %d (CUDA %d.%d)", r->name, target, bytes, (unsigned long long)r->packed_bytes,
            cuda_branch_of((int)r->min_driver), (int)r->min_driver / 1000, (int)r->min_driver % 1000 / 10);
        raw += bytes;
    }
    say("%d images, %zu bytes, %llu unpacked, made by toolkit %d.%d", pack.n_rows, data.n, (unsigned long long)raw, pack.toolkit / 1000,
        pack.toolkit % 1000 / 10);
    return 0;
}

/* An older ptxas must be one: a newer would pass what an older driver refuses. */
static int check_old_ptxas(struct arena *a, const char *path, struct err *err) {
    const char *argv[] = {path, "--version", NULL};
    struct os_run_result r;
    if (!path) return 0;
    TRY(os_run(a, argv, NULL, NULL, STR(""), &r, err));
    size_t at = str_find(r.out, STR("release "), 0);
    struct str text = at == STR_NONE ? STR("") : str_from(r.out, at + 8), release = {0}, major;
    int64_t x = 0, y = 0;
    str_split_next(&text, ',', &release);
    struct str minor = release;
    bool parsed = str_split_next(&minor, '.', &major) && str_to_int64(major, &x) && str_to_int64(minor, &y);
    if (!parsed || x * 1000 + y * 10 > CUDA_FLOOR)
        return err_set(err, ERR_EARG, "%s is ptxas %.*s; --old-ptxas wants %d.%d or older", path, STR_ARG(release), CUDA_FLOOR / 1000,
                       CUDA_FLOOR % 1000 / 10);
    return 0;
}

static int cmd_build(struct arena *a, const struct options *o, struct err *err) {
    static struct kernel_list list;
    static struct machine m;
    int driver;
    bool warn = o->spills && strcmp(o->spills, "warn") == 0;
    if (o->spills && !warn && strcmp(o->spills, "fail") != 0)
        return err_set(err, ERR_EARG, "--spills is \"%s\", expected fail or warn", o->spills);
    TRY(load_list(a, o, &list, &driver, err));
    TRY(check_old_ptxas(a, o->old_ptxas, err));
    examine_machine(a, o, &list, driver, &m);
    if (m.toolkits.chosen < 0 || m.hosts.chosen < 0) {
        struct sb out = {0};
        put_machine(&m, &out);
        os_write(OS_STDERR, sb_str(&out), NULL);
        sb_free(&out);
        return err_set(err, ERR_ENOTFOUND, "no suitable %s", m.toolkits.chosen < 0 ? "CUDA toolkit" : "host compiler");
    }
    const struct toolkit *t = &m.toolkits.items[m.toolkits.chosen];
    if (t->note) complain("kernelc: warning: the toolkit at %s is %s", t->root, t->note);
    struct build_args args = {.list = &list,
                              .toolkit = t,
                              .host = &m.hosts.items[m.hosts.chosen],
                              .out = o->out,
                              .cache_dir = o->cache ? o->cache : str_fmt(a, "%s.cache", o->out).p,
                              .depfile = o->depfile,
                              .old_ptxas = o->old_ptxas,
                              .n_threads = o->n_threads > 0 ? o->n_threads : os_cpu_count(),
                              .allow_unsupported = o->allow_unsupported,
                              .report = o->report,
                              .spills_pass = warn,
                              .quiet = o->quiet};
    return build_run(a, &args, err);
}

static int cmd_page(struct err *err) {
    struct sb page = {0};
    cuda_support_page(&page);
    int code = os_write(OS_STDOUT, sb_str(&page), err);
    sb_free(&page);
    return code;
}

static int run(struct arena *a, const struct options *o, struct err *err) {
    switch (o->command) {
    case CMD_LIST: return cmd_list(a, o, err);
    case CMD_PROBE: return cmd_probe(o);
    case CMD_SHOW: return cmd_show(a, o, err);
    case CMD_BUILD: return cmd_build(a, o, err);
    case CMD_FUNCTIONS:
        for (const char *const *s = cuda_driver_symbols(); *s; s++) say("%s", *s);
        return 0;
    case CMD_PAGE: return cmd_page(err);
    case CMD_NONE: break;
    }
    return os_write(OS_STDOUT, str_of(help), err);
}

int main(int argc, char **argv) {
    struct arena arena = {0};
    struct err err = {0};
    struct options o = {.list = "kernels/kernels.list"};
    char **utf8_argv;
    os_console_init();
    argc = os_args(&arena, argc, argv, &utf8_argv);
    if (argc == 2 && strcmp(utf8_argv[1], "--help") == 0) argc = 1;
    int status = parse_args(argc, utf8_argv, &o);
    if (status == 0 && run(&arena, &o, &err)) {
        complain("kernelc: %s", err.msg);
        if (o.command == CMD_BUILD)
            complain(
                "kernelc: way out: -DMLXCEL_CUDA=prebuilt takes kernels that were compiled elsewhere, -DMLXCEL_CUDA=off builds without any");
        status = EXIT_FAILED;
    }
    arena_free(&arena);
    return status;
}
