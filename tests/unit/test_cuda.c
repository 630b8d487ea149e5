/* CUDA without a GPU: which image runs where, damaged kernel files, and every sentence that the probe can say, against the fake driver
 * of tests/cuda. */
#include "../test_paths.h"
#include "unit.h"

#include "backend/cuda/cuda.h"
#include "backend/cuda/device/probe.h"
#include "base/hash.h"
#include "os/os.h"

#include <zstd.h>

/* ---- architectures -------------------------------------------------------------------------------------------- */

static void arch_parse(void) {
    static const struct {
        const char *text;
        int number; /* 0: refused */
        char suffix;
    } rows[] = {{"75", 75, 0},
                {"7.5", 75, 0},
                {"90a", 90, 'a'},
                {"9.0a", 90, 'a'},
                {"sm_120", 120, 0},
                {"12.0", 120, 0},
                {"compute_75", 75, 0},
                {"100f", 100, 'f'},
                {"", 0, 0},
                {"a", 0, 0},
                {"9.", 0, 0},
                {"9.0.0", 0, 0},
                {".90", 0, 0},
                {"90b", 0, 0},
                {"90aa", 0, 0},
                {"1000", 0, 0},
                {"12", 0, 0},
                {"8 9", 0, 0},
                {"99999999999999999999", 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct cuda_arch arch = {0};
        bool ok = cuda_arch_parse(str_of(rows[i].text), &arch);
        FAIL_IF(ok != (rows[i].number != 0) || arch.number != rows[i].number || arch.suffix != rows[i].suffix, "\"%s\" gives %d, %d%c",
                rows[i].text, ok, arch.number, arch.suffix);
    }
}

static const struct cuda_arch full_set[] = {{75, 0}, {80, 0}, {86, 0}, {89, 0}, {90, 'a'}, {100, 0}, {120, 0}};
enum { N_FULL = sizeof full_set / sizeof full_set[0] };

static void arch_pick(void) {
    static const struct {
        int device, image; /* 0: none */
    } rows[] = {{75, 75},   {80, 80},   {86, 86}, {87, 0},    {88, 0},    {89, 89}, {90, 90}, {100, 100},
                {101, 100}, {103, 100}, {110, 0}, {120, 120}, {121, 120}, {70, 0},  {61, 0},  {130, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int k = cuda_arch_pick(full_set, N_FULL, rows[i].device);
        int got = k < 0 ? 0 : full_set[k].number;
        FAIL_IF(got != rows[i].image, "device %d takes image %d, expected %d", rows[i].device, got, rows[i].image);
    }
    const struct cuda_arch both[] = {{90, 0}, {90, 'a'}};
    CHECK_INT(cuda_arch_pick(both, 2, 90), 1);
    CHECK(!cuda_arch_runs((struct cuda_arch){100, 'a'}, 103));
}

/* The table of docs/cuda-kernels.md. */
static void put_support(struct sb *out) {
    sb_puts(out, "| compute capability | family | GPUs | image | driver | through PTX |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < CUDA_SUPPORT_ROWS; i++) {
        const struct cuda_support *s = &cuda_support_rows[i];
        sb_fmt(out, "| %d.%d | %s | %s | %s | %d | ", s->capability / 10, s->capability % 10, s->family, s->gpus, s->image, s->driver);
        if (s->driver_ptx) sb_fmt(out, "%d |\n", s->driver_ptx);
        else sb_puts(out, "- |\n");
    }
}

/* The table that docs and doctor are made of agrees with the rule. */
static void support_table(void) {
    const struct cuda_support *rows = cuda_support_rows;
    for (int i = 0; i < CUDA_SUPPORT_ROWS; i++) {
        int k = cuda_arch_pick(full_set, N_FULL, rows[i].capability);
        char arch[16] = "PTX";
        if (k >= 0) cuda_arch_format(full_set[k], arch);
        FAIL_IF(strcmp(arch, rows[i].image) != 0, "%d: the table says %s, the rule %s", rows[i].capability, rows[i].image, arch);
    }
    struct arena a = {0};
    struct sb table = {0}, compatibility = {0};
    struct str page;
    struct err err;
    CHECK_OK(os_file_load(&a, str_fmt(&a, "%s/docs/cuda-kernels.md", unit_source_dir()).p, 0, &page, &err), err);
    put_support(&table);
    FAIL_IF(str_find(page, sb_str(&table), 0) == STR_NONE, "docs/cuda-kernels.md lacks this table:\n%s", table.p);
    CHECK_OK(os_file_load(&a, str_fmt(&a, "%s/docs/cuda-compatibility.md", unit_source_dir()).p, 0, &page, &err), err);
    cuda_support_page(&compatibility);
    FAIL_IF(!str_eq(page, sb_str(&compatibility)),
            "docs/cuda-compatibility.md is old: kernelc --compatibility > docs/cuda-compatibility.md");
    sb_free(&table);
    sb_free(&compatibility);
    arena_free(&a);
}

/* ---- packs ---------------------------------------------------------------------------------------------------- */

struct image_spec {
    const char *name;
    int arch;
    char suffix;
    enum pack_kind kind;
    int min_driver;
};

static void put_pack(struct sb *out, const struct image_spec *specs, int n) {
    struct pack_header h = {.n_images = (uint32_t)n, .toolkit = 13000};
    memcpy(h.magic, PACK_MAGIC, sizeof h.magic);
    size_t head = sizeof h + (size_t)n * sizeof(struct pack_row);
    memset(sb_extend(out, head), 0, head);
    for (int i = 0; i < n; i++) {
        char raw[64], packed[256];
        memset(raw, 'a' + i, sizeof raw);
        size_t bytes = ZSTD_compress(packed, sizeof packed, raw, sizeof raw, 1);
        struct pack_row row = {.arch = (uint16_t)specs[i].arch,
                               .suffix = (uint8_t)specs[i].suffix,
                               .kind = (uint8_t)specs[i].kind,
                               .min_driver = (uint32_t)specs[i].min_driver,
                               .offset = out->n,
                               .packed_bytes = bytes,
                               .raw_bytes = sizeof raw,
                               .hash = hash_bytes(raw, sizeof raw, 0)};
        memcpy(row.name, specs[i].name, strlen(specs[i].name));
        sb_put(out, str_n(packed, bytes));
        memcpy(out->p + sizeof h + (size_t)i * sizeof row, &row, sizeof row);
    }
    h.bytes = out->n;
    memcpy(out->p, &h, sizeof h);
}

static const struct image_spec release[] = {
    {"attn", 75, 0, PACK_CUBIN, 13000},  {"attn", 80, 0, PACK_CUBIN, 13000}, {"attn", 90, 'a', PACK_CUBIN, 13000},
    {"attn", 120, 0, PACK_CUBIN, 13000}, {"attn", 75, 0, PACK_PTX, 12040},   {"wgmma", 90, 'a', PACK_CUBIN, 13000},
};
enum { N_RELEASE = sizeof release / sizeof release[0] };

static void pack_find(void) {
    struct sb data = {0}, words = {0};
    struct cuda_pack pack;
    struct err err;
    put_pack(&data, release, N_RELEASE);
    CHECK_OK(cuda_pack_open(&pack, data.p, data.n, "test", &err), err);
    CHECK_INT(pack.n_rows, N_RELEASE);
    static const struct {
        const char *name;
        int device, driver, row; /* -1: none */
    } rows[] = {{"attn", 75, 13000, 0},  {"attn", 86, 13000, 1},   {"attn", 90, 13000, 2},   {"attn", 121, 13000, 3},
                {"attn", 110, 13000, 4}, {"attn", 90, 12060, 4},   {"attn", 61, 13000, -1},  {"attn", 90, 12030, -1},
                {"wgmma", 90, 13000, 5}, {"wgmma", 90, 12060, -1}, {"wgmma", 89, 13000, -1}, {"nothing", 90, 13000, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct pack_row *r = cuda_image_find(&pack, str_of(rows[i].name), rows[i].device, rows[i].driver);
        int got = r ? (int)(r - pack.rows) : -1;
        FAIL_IF(got != rows[i].row, "%s on %d with driver %d: image %d, expected %d", rows[i].name, rows[i].device, rows[i].driver, got,
                rows[i].row);
    }
    void *image;
    size_t bytes;
    CHECK_OK(cuda_image_unpack(&pack, &pack.rows[2], &image, &bytes, &err), err);
    CHECK(bytes == 64 && memcmp(image, "cccc", 4) == 0 && ((char *)image)[64] == 0);
    mem_free(image);
    cuda_pack_describe(&pack, &words);
    CHECK_STR(sb_str(&words), STR("75 80 90a 120 and PTX 75"));
    sb_free(&words);
    sb_free(&data);
}

static void pack_damaged(void) {
    struct sb data = {0};
    struct cuda_pack pack;
    struct err err;
    put_pack(&data, release, N_RELEASE);
    CHECK_OK(cuda_pack_open(&pack, NULL, 0, "test", &err), err);
    CHECK_INT(pack.n_rows, 0);
    for (size_t n = 1; n < data.n; n++) CHECK_INT(cuda_pack_open(&pack, data.p, n, "test", &err), ERR_EFORMAT);
    /* Any byte may be wrong: opening or unpacking says so, or the image is the right one. */
    uint64_t x = 1;
    for (int round = 0; round < 4000; round++) {
        x = hash_mix(x + (uint64_t)round);
        size_t at = (size_t)(x % data.n);
        char old = data.p[at];
        data.p[at] = (char)(old ^ (char)(1 + (x >> 40) % 255));
        if (cuda_pack_open(&pack, data.p, data.n, "test", &err) == 0)
            for (int i = 0; i < pack.n_rows; i++) {
                void *image;
                size_t bytes;
                if (cuda_image_unpack(&pack, &pack.rows[i], &image, &bytes, &err) == 0) mem_free(image);
            }
        data.p[at] = old;
    }
    sb_free(&data);
}

/* ---- the probe ------------------------------------------------------------------------------------------------ */

static void (*fake_set)(const char *text);

static const char *fake_path(struct arena *a, const char *folder) {
    struct str exe = str_of(test_exe_path());
    while (exe.n && exe.p[exe.n - 1] != '/' && exe.p[exe.n - 1] != '\\') exe.n--;
    static const char *const names[] = {"nvcuda.dll", "libcuda.so.1"};
    for (int i = 0; i < 2; i++) {
        struct os_stat st;
        const char *path = str_fmt(a, "%.*s%s/%s", STR_ARG(exe), folder, names[i]).p;
        if (os_stat(path, &st, NULL) == 0) return path;
    }
    unit_skip("the fake driver was not built");
}

/* The fake driver's path, and it told what to be. */
static const char *fake_driver(struct arena *a, const char *config) {
    const char *path = fake_path(a, "fake-driver");
    static struct os_dl *lib;
    struct err err;
    if (!lib) {
        CHECK_OK(os_dl_open(path, OS_DL_ANY, &lib, &err), err);
        CHECK(os_dl_symbol(lib, "fake_cuda_set", &fake_set));
    }
    fake_set(config);
    return path;
}

#define H200 "device=90|NVIDIA H200|143771|143000"
#define RTX4090 "device=89|NVIDIA GeForce RTX 4090|24564|23000"
#define RTX3090 "device=86|NVIDIA GeForce RTX 3090|24576|24000"
#define GTX1080 "device=61|NVIDIA GeForce GTX 1080|8192|8000"

static void probe_messages(void) {
    static const struct {
        const char *config;
        enum cuda_state state;
        const char *says[5]; /* all of them, in the reason */
    } rows[] = {
        {H200, CUDA_READY, {0}},
        {"version=13020;" H200, CUDA_READY, {0}},
        {"init=100", CUDA_NO_DEVICE, {"CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES"}},
        {"", CUDA_NO_DEVICE, {"sees no GPU"}},
        {"version=12020;" H200, CUDA_DRIVER_OLD, {"CUDA 12.2 (driver 535)", "CUDA 12.4 (driver 550 or newer", "580"}},
        {"version=9000;" H200, CUDA_DRIVER_OLD, {"CUDA 9.0", "driver 550"}},
        {"init=803", CUDA_DRIVER_FAILS, {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", "restart the machine"}},
        {"init=34", CUDA_DRIVER_FAILS, {"CUDA_ERROR_STUB_LIBRARY (34)", "stub"}},
        {"init=999", CUDA_DRIVER_FAILS, {"CUDA_ERROR_UNKNOWN (999)", "nvidia_uvm"}},
        {"init=12345", CUDA_DRIVER_FAILS, {"CUDA_ERROR_OF_TOMORROW (12345): not invented yet"}},
        {"init=4321", CUDA_DRIVER_FAILS, {"(4321): no reason given"}},
        {"count=3;" H200, CUDA_DRIVER_FAILS, {"counting the GPUs"}},
        {GTX1080, CUDA_NOT_COVERED, {"GTX 1080", "compute capability 6.1", "75 80 90a 120 and PTX 75", "no build covers it"}},
        {GTX1080 ";device=70|Tesla V100|16384|16000", CUDA_NOT_COVERED, {"none of the 2 GPUs", "6.1, 7.0", "75 80 90a 120 and PTX 75"}},
        {"device=90|NVIDIA H200|143771|143000|prohibited", CUDA_NOT_COVERED, {"compute mode Prohibited", "nvidia-smi -i 0 -c 0"}},
        {"retain=46;" H200, CUDA_NOT_COVERED, {"opening GPU 0 (NVIDIA H200)", "CUDA_ERROR_DEVICE_UNAVAILABLE (46)", "exclusively"}},
        {GTX1080 ";" H200, CUDA_READY, {0}},
    };
    struct arena a = {0};
    struct sb data = {0};
    struct cuda_pack pack;
    struct err err;
    static struct cuda_probe p;
    put_pack(&data, release, N_RELEASE);
    CHECK_OK(cuda_pack_open(&pack, data.p, data.n, "test", &err), err);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = fake_driver(&a, rows[i].config), .pack = &pack, .want_free = true});
        FAIL_IF(p.state != rows[i].state, "\"%s\": state %d, expected %d: %s", rows[i].config, p.state, rows[i].state, p.reason.msg);
        FAIL_IF((p.state == CUDA_READY) != (p.reason.code == 0), "\"%s\": code %d", rows[i].config, p.reason.code);
        for (int k = 0; rows[i].says[k]; k++)
            FAIL_IF(!strstr(p.reason.msg, rows[i].says[k]), "\"%s\": \"%s\" lacks \"%s\"", rows[i].config, p.reason.msg, rows[i].says[k]);
    }
    sb_free(&data);
    arena_free(&a);
}

/* Drivers between the floor and the toolkit's own: served by PTX where the build has it, else refused with both versions. */
static void probe_older_driver(void) {
    struct arena a = {0};
    struct sb data = {0}, plain = {0}, words = {0};
    struct cuda_pack pack;
    struct err err;
    static struct cuda_probe p;
    put_pack(&data, release, N_RELEASE);
    CHECK_OK(cuda_pack_open(&pack, data.p, data.n, "test", &err), err);
    cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = fake_driver(&a, "version=12060;" H200), .pack = &pack});
    CHECK_INT(p.state, CUDA_READY);
    cuda_device_describe(&p.devices[0], &words);
    CHECK_STR(sb_str(&words), STR("GPU 0: NVIDIA H200, compute capability 9.0 (Hopper), 140.4 GiB, kernels from PTX 75"));
    put_pack(&plain, release, 4);
    CHECK_OK(cuda_pack_open(&pack, plain.p, plain.n, "test", &err), err);
    cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = fake_driver(&a, "version=12060;" H200), .pack = &pack});
    CHECK_INT(p.state, CUDA_DRIVER_OLD);
    CHECK(strstr(p.reason.msg, "CUDA 12.6 (driver 560)") && strstr(p.reason.msg, "CUDA 13.0 (driver 580 or newer)"));
    sb_free(&data);
    sb_free(&plain);
    sb_free(&words);
    arena_free(&a);
}

/* Every row of the table of GPUs, as a machine would have it: from its driver on by its image, from the older one on by PTX, below by name. */
static void probe_each_row(void) {
    struct image_spec specs[N_FULL + 1];
    for (int i = 0; i < N_FULL; i++) specs[i] = (struct image_spec){"attn", full_set[i].number, full_set[i].suffix, PACK_CUBIN, 13000};
    specs[N_FULL] = (struct image_spec){"attn", 75, 0, PACK_PTX, 12040};
    struct arena a = {0};
    struct sb data = {0};
    struct cuda_pack pack;
    struct err err;
    static struct cuda_probe p;
    const struct cuda_support *rows = cuda_support_rows;
    put_pack(&data, specs, N_FULL + 1);
    CHECK_OK(cuda_pack_open(&pack, data.p, data.n, "test", &err), err);
    for (int i = 0; i < CUDA_SUPPORT_ROWS; i++)
        for (int version = 12020; version <= 13000; version += version == 12080 ? 920 : 10) {
            int branch = cuda_branch_of(version);
            bool full = branch >= rows[i].driver, ptx = !full && rows[i].driver_ptx && branch >= rows[i].driver_ptx;
            if (!full && !ptx && branch >= 550) continue; /* such a driver does not know that GPU */
            const char *config = str_fmt(&a, "version=%d;device=%d|a GPU|24000|23000", version, rows[i].capability).p;
            cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = fake_driver(&a, config), .pack = &pack});
            char arch[16] = "PTX";
            if (p.devices[0].image.suffix != 'p') cuda_arch_format(p.devices[0].image, arch);
            FAIL_IF(p.state != (full || ptx ? CUDA_READY : CUDA_DRIVER_OLD) || (full && strcmp(arch, rows[i].image) != 0) ||
                        (ptx && strcmp(arch, "PTX") != 0),
                    "\"%s\": state %d, image %s: %s", config, p.state, arch, p.reason.msg);
        }
    sb_free(&data);
    arena_free(&a);
}

static void probe_without(void) {
    struct arena a = {0};
    static struct cuda_probe p;
    cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = "no such folder/libcuda.so.1"});
    CHECK_INT(p.state, CUDA_NO_DRIVER);
    CHECK(strstr(p.reason.msg, "no such folder"));
    cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = fake_path(&a, "fake-driver-broken")});
    CHECK_INT(p.state, CUDA_DRIVER_OLD);
    CHECK(strstr(p.reason.msg, "lacks cuGetErrorName") && strstr(p.reason.msg, "reinstall"));
    struct cuda_pack none = {0};
    cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = fake_driver(&a, H200), .pack = &none});
    CHECK_INT(p.state, CUDA_NO_KERNELS);
    CHECK(strstr(p.reason.msg, "without CUDA kernels") && strstr(p.reason.msg, "MLXCEL_CUDA=on"));
    CHECK_INT(p.n_devices, 1);
    arena_free(&a);
}

static void probe_choose(void) {
    static const struct {
        const char *config;
        int wanted, chosen; /* -1: refused */
        const char *says;
    } rows[] = {
        {H200, -1, 0, NULL},
        {RTX4090 ";" H200, -1, 1, NULL},
        {H200 ";" RTX4090 ";" RTX3090, -1, 0, NULL},
        {RTX4090 ";" RTX3090, -1, 1, NULL}, /* the one with more memory free */
        {GTX1080 ";" RTX4090, -1, 1, NULL}, /* the first is not covered */
        {RTX4090 ";" RTX3090, 0, 0, NULL},
        {RTX4090 ";" RTX3090, 2, -1, "there is no GPU 2: the driver has 2"},
        {GTX1080 ";" RTX4090, 0, -1, "compute capability 6.1"},
        {GTX1080, -1, -1, "compute capability 6.1"},
        {"init=100", 0, -1, "CUDA_ERROR_NO_DEVICE"},
    };
    struct arena a = {0};
    struct sb data = {0};
    struct cuda_pack pack;
    struct err err;
    static struct cuda_probe p;
    put_pack(&data, release, N_RELEASE);
    CHECK_OK(cuda_pack_open(&pack, data.p, data.n, "test", &err), err);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int got = -1;
        err_clear(&err);
        cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = fake_driver(&a, rows[i].config), .pack = &pack});
        int code = cuda_probe_choose(&p, rows[i].wanted, &got, &err);
        FAIL_IF((code == 0) != (rows[i].chosen >= 0) || got != rows[i].chosen, "\"%s\": GPU %d, expected %d (%s)", rows[i].config, got,
                rows[i].chosen, err.msg);
        FAIL_IF(rows[i].says && !strstr(err.msg, rows[i].says), "\"%s\": \"%s\" lacks \"%s\"", rows[i].config, err.msg, rows[i].says);
    }
    sb_free(&data);
    arena_free(&a);
}

static void device_details(void) {
    struct arena a = {0};
    struct sb data = {0}, words = {0};
    struct cuda_pack pack;
    struct err err;
    static struct cuda_probe p;
    put_pack(&data, release, N_RELEASE);
    CHECK_OK(cuda_pack_open(&pack, data.p, data.n, "test", &err), err);
    cuda_probe_run(
        &p, &(struct cuda_probe_args){.driver_path = fake_driver(&a, RTX4090 ";" H200 "|display"), .pack = &pack, .want_free = true});
    CHECK_INT(p.n_devices, 2);
    CHECK_STR(str_of(p.devices[1].pci_id), STR("0000:18:00.0"));
    CHECK_STR(str_of(p.devices[0].uuid), STR("GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"));
    CHECK(p.devices[1].display && !p.devices[0].display);
    cuda_device_describe(&p.devices[1], &words);
    CHECK_STR(sb_str(&words), STR("GPU 1: NVIDIA H200, compute capability 9.0 (Hopper), 140.4 GiB (139.6 GiB free), kernels 90a"));
    CHECK_INT(cuda_memory_error(&p.devices[0], "the weights", UINT64_C(30) << 30, UINT64_C(22) << 30, 0, &err), ERR_EMEMORY);
    CHECK(strstr(err.msg, "30.00 GiB wanted, 22.00 GiB of 23.99 GiB free") && strstr(err.msg, "--device cpu"));
    CHECK_INT(cuda_check(&p.driver, CUDA_ERROR_OUT_OF_MEMORY, &err, "allocating %d bytes", 7), ERR_EMEMORY);
    CHECK_STR(str_of(err.msg), STR("allocating 7 bytes: CUDA_ERROR_OUT_OF_MEMORY (2): the GPU has no memory left"));
    CHECK(cuda_result_is_fatal(CUDA_ERROR_ILLEGAL_ADDRESS) && !cuda_result_is_fatal(CUDA_ERROR_OUT_OF_MEMORY));
    sb_free(&data);
    sb_free(&words);
    arena_free(&a);
}

/* A context on a GPU, both empty but for each other. */
static struct cuda *bare_backend(void) {
    struct cuda *c = mem_alloc(sizeof *c);
    c->gpu = mem_alloc(sizeof *c->gpu);
    c->base.device = &c->gpu->base;
    return c;
}

static void free_backend(struct cuda *c) {
    oplist_free(&c->base.list);
    mem_free(c->pieces);
    mem_free(c->gpu);
    mem_free(c);
}

/* Memory that is not there: the sizes and what to do, whoever notices; what a model that runs still needs comes out of what is kept back. */
static void memory_errors(void) {
    static const struct {
        const char *config;
        uint64_t bytes;
        bool runs, fits;
    } rows[] = {
        {"device=90|NVIDIA H200|1024|300", 16 << 20, false, true},     {"device=90|NVIDIA H200|1024|300", 64 << 20, false, false},
        {"device=90|NVIDIA H200|1024|100", 1 << 20, false, false},     {"device=90|NVIDIA H200|1024|100", 1 << 20, true, true},
        {"device=90|NVIDIA H200|1024|100", 101 << 20, true, false},    {"alloc=2;device=90|NVIDIA H200|1024|1000", 1 << 20, false, false},
        {"device=90|NVIDIA H200|1024|1000", UINT64_MAX, false, false},
    };
    struct arena a = {0};
    struct sb data = {0};
    struct cuda_pack pack;
    struct err err = {0};
    struct cuda *c = bare_backend();
    struct cuda_gpu *g = c->gpu;
    put_pack(&data, release, N_RELEASE);
    CHECK_OK(cuda_pack_open(&pack, data.p, data.n, "test", &err), err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CUdeviceptr p = 1;
        cuda_probe_run(&g->probe, &(struct cuda_probe_args){.driver_path = fake_driver(&a, rows[i].config), .pack = &pack});
        c->d = g->d = &g->probe.driver, g->about = &g->probe.devices[0];
        c->d->cuDevicePrimaryCtxRetain(&g->context, 0);
        c->d->cuCtxSetCurrent(g->context);
        c->kept_back = rows[i].runs ? 0 : RESERVE_BYTES;
        int code = cuda_alloc(c, (size_t)rows[i].bytes, "it", &p, &err);
        FAIL_IF(code != (rows[i].fits ? ERR_OK : ERR_EMEMORY) || (p != 0) != rows[i].fits, "row %zu: code %d, %s", i, code, err.msg);
        FAIL_IF(code && (!strstr(err.msg, "too little memory for it") || !strstr(err.msg, "GiB wanted")), "row %zu: %s", i, err.msg);
        FAIL_IF(code && !strstr(err.msg, "0.25 GiB of that are kept back") != rows[i].runs, "row %zu: %s", i, err.msg);
        CHECK((atomic_load(&g->base.used) > 0) == rows[i].fits);
        cuda_free(c, &p);
        CHECK(atomic_load(&g->base.used) == 0);
    }
    sb_free(&data);
    arena_free(&a);
    free_backend(c);
}

/* More GPUs than the table holds: the first are taken, nothing is overrun. */
static void many_devices(void) {
    struct arena a = {0};
    struct sb config = {0}, data = {0};
    struct cuda_pack pack;
    struct err err;
    static struct cuda_probe p;
    for (int i = 0; i < 20; i++) sb_fmt(&config, "%s" H200, i ? ";" : "");
    put_pack(&data, release, N_RELEASE);
    CHECK_OK(cuda_pack_open(&pack, data.p, data.n, "test", &err), err);
    cuda_probe_run(&p, &(struct cuda_probe_args){.driver_path = fake_driver(&a, config.p), .pack = &pack});
    CHECK_INT(p.state, CUDA_READY);
    CHECK_INT(p.n_devices, CUDA_MAX_DEVICES);
    sb_free(&config);
    sb_free(&data);
    arena_free(&a);
}

/* The kernels in this program, whatever they are, open and unpack. */
static void embedded(void) {
    struct cuda_pack pack;
    struct err err;
    CHECK_OK(cuda_pack_embedded(&pack, &err), err);
    if (pack.n_rows == 0) unit_skip("built without CUDA kernels");
    for (int i = 0; i < pack.n_rows; i++) {
        void *image;
        size_t bytes;
        CHECK_OK(cuda_image_unpack(&pack, &pack.rows[i], &image, &bytes, &err), err);
        CHECK(pack.rows[i].kind == PACK_PTX || memcmp(image, "\177ELF", 4) == 0);
        mem_free(image);
    }
}

/* Two wide products of one input, one with a bias, one product that is not: the list as cuda_split_wide leaves it for that many rows. */
static void split_wide(struct cuda *c, int32_t rows, bool exact) {
    static const struct weight table = {.n_experts = 1, .out = 10, .in = 64}, up = {.n_experts = 1, .out = 32, .in = 64},
                               odd = {.n_experts = 1, .out = 64, .in = 32}, bias = {.n_experts = 1, .out = 1, .in = 32};
    struct oplist *l = &c->base.list;
    c->exact = exact;
    c->key.n_rows = rows;
    c->gpu->functions[KERNEL_gemm_bf16] = c->gpu->functions[KERNEL_step_run] = (CUfunction)(void *)c;
    oplist_begin(l, rows, 1);
    struct tensor x = op_embed(l, &(struct embed_args){.weight = &table, .scale = 1});
    struct tensor a = op_linear(l, x, &(struct linear_args){&up, &bias, 1}), b = op_linear(l, x, &(struct linear_args){&up, NULL, 1});
    op_linear(l, op_add(l, a, b, NULL), &(struct linear_args){&odd, NULL, 0});
    CHECK(l->err.code == 0);
    CHECK_INT(cuda_split_wide(c), !exact);
}

static void wide_products(void) {
    static const enum op_kind kinds[] = {OP_EMBED, OP_TERMS, OP_LINEAR, OP_TERMS_SUM, OP_LINEAR, OP_TERMS_SUM, OP_ADD, OP_LINEAR};
    static const int32_t rows[] = {1, 4, 6, 9};
    struct cuda *c = bare_backend();
    const struct oplist *l = &c->base.list;
    for (int i = 0; i < 4; i++) {
        split_wide(c, rows[i], false);
        CHECK_INT(l->n_ops, 8);
        for (int k = 0; k < 8; k++) CHECK_INT(l->ops[k].kind, kinds[k]);
        const struct op *terms = &l->ops[1], *first = &l->ops[2], *sum = &l->ops[3], *second = &l->ops[4];
        CHECK(terms->out[0].rows == 2 * rows[i] && l->values[terms->out[0].id - 1].dtype == DT_BF16);
        CHECK(first->in[0].id == terms->out[0].id && second->in[0].id == terms->out[0].id); /* both read the same terms */
        CHECK(!first->arg.linear.wide && !first->arg.linear.bias && sum->arg.linear.bias && !l->ops[5].arg.linear.bias);
        CHECK(sum->in[0].id == first->out[0].id && sum->in[0].rows == 2 * rows[i] && sum->out[0].rows == rows[i]);
        CHECK(l->ops[6].in[0].id == sum->out[0].id && l->values[sum->out[0].id - 1].first_op == 3);
        CHECK(l->values[terms->out[0].id - 1].last_op == 4 && l->values[l->ops[0].out[0].id - 1].last_op == 1);
    }
    split_wide(c, 6, false);
    CHECK(!step_linear_fits(c, &l->ops[2])); /* twelve rows: more than a decode step's kernels take */
    split_wide(c, 9, true);
    CHECK(l->n_ops == 5 && l->ops[1].arg.linear.wide && !cuda_may_round(c, &l->ops[1]));
    free_backend(c);
}

/* A layer of 64 elements with one cached head and two queries of 16: qkv, attention, o, gate and up, down. Addresses are made up, and values have
 * their numbers. */
enum { AT_X = 0x1000, AT_QKV = 0x2000, AT_HEADS = 0x3000, AT_SUM = 0x4000, AT_INNER = 0x5000, AT_NEXT = 0x6000 };
enum { X = 1, QKV, HEADS, SUM, INNER, NEXT };

struct layer {
    struct k_instr in[5];
    struct step_values values[5];
};

static struct tensor value_of(int32_t id, int64_t offset, int32_t width, int64_t stride) {
    return (struct tensor){.id = id, .offset = offset, .rows = 1, .heads = 1, .width = width, .row_stride = stride};
}

static struct k_instr product_from(CUdeviceptr x, int32_t x_dtype, int64_t in, CUdeviceptr y, int32_t y_dtype, int64_t out) {
    struct k_instr i = {.kind = K_STEP_LINEAR};
    struct k_step_linear *l = &i.u.linear;
    l->w.in = in, l->w.out = out, l->w.mode = K_AFFINE, l->w.group = 64, l->w.tile_bytes = in / 64 * 576;
    l->x = x, l->x_stride = in, l->x_dtype = x_dtype;
    l->y = y, l->y_stride = out, l->y_dtype = y_dtype;
    l->rows = 1;
    return i;
}

static void layer(struct layer *l) {
    struct k_instr *in = l->in;
    in[0] = product_from(AT_X, K_F32, 64, AT_QKV, K_F32, 64);
    l->values[0] = (struct step_values){.x = value_of(X, 0, 64, 64), .y = value_of(QKV, 0, 64, 64), .reads = 3};
    in[1] = (struct k_instr){.kind = K_STEP_ATTN};
    struct k_step_attn *a = &in[1].u.attn;
    a->c.heads = 1, a->c.k_width = 16, a->group = 2, a->rows = 1;
    a->q = AT_QKV, a->k = AT_QKV + 32 * 4, a->v = AT_QKV + 48 * 4;
    a->q_row = a->k_row = a->v_row = 64;
    a->y = AT_HEADS, a->y_row = 32, a->y_dtype = K_BF16;
    l->values[1] = (struct step_values){.x = value_of(QKV, 0, 16, 64),
                                        .k = value_of(QKV, 32, 16, 64),
                                        .v = value_of(QKV, 48, 16, 64),
                                        .y = value_of(HEADS, 0, 32, 32),
                                        .reads = 1};
    in[2] = product_from(AT_HEADS, K_BF16, 32, AT_SUM, K_F32, 64);
    in[2].u.linear.residual = AT_X, in[2].u.linear.residual_stride = 64;
    l->values[2] = (struct step_values){
        .x = value_of(HEADS, 0, 32, 32), .residual = value_of(X, 0, 64, 64), .y = value_of(SUM, 0, 64, 64), .reads = 2};
    in[3] = product_from(AT_SUM, K_F32, 64, AT_INNER, K_BF16, 256);
    in[3].u.linear.glu_inner = 128, in[3].u.linear.y_stride = 128;
    l->values[3] = (struct step_values){.x = value_of(SUM, 0, 64, 64), .y = value_of(INNER, 0, 128, 128), .reads = 1};
    in[4] = product_from(AT_INNER, K_BF16, 128, AT_NEXT, K_F32, 64);
    in[4].u.linear.residual = AT_SUM, in[4].u.linear.residual_stride = 64;
    l->values[4] = (struct step_values){
        .x = value_of(INNER, 0, 128, 128), .residual = value_of(SUM, 0, 64, 64), .y = value_of(NEXT, 0, 64, 64), .reads = -1};
}

static void links(void) {
    struct layer of;
    struct k_instr *in = of.in;
    layer(&of);
    size_t bytes = cuda_links_find(in, of.values, 5);
    CHECK_INT((int64_t)bytes, 8 * 64 * 8);
    for (int i = 0; i < 5; i++) CHECK(in[i].number == i && !in[i].waits);
    const struct k_stream *both = &in[3].stream, *one = &in[4].stream; /* tiles of gate and up are eight apart; neighbours */
    CHECK(both->parts == 2 && both->second == 8 * 576 && both->pair_bytes == 576 && both->units == 1 && in[1].stream.units == 0);
    CHECK(one->parts == 1 && one->second == 1152 && one->pair_bytes == 2304 && one->units == 2);
    cuda_links_place(in, of.values, 5, 0x100000, bytes);
    const struct k_step_linear *o = &in[2].u.linear, *down = &in[4].u.linear;
    CHECK(!in[0].u.linear.x_link && in[0].u.linear.x == AT_X);     /* older than the list */
    CHECK(in[0].u.linear.y_link == 0x100000 && !in[0].u.linear.y); /* all that read it are linked */
    CHECK(in[1].u.attn.qkv_link == in[0].u.linear.y_link && in[1].u.attn.k_at == 32 && in[1].u.attn.v_at == 48);
    CHECK(o->x_link == in[1].u.attn.y_link && o->x_maker == 1 && !o->residual_link && o->residual == AT_X);
    CHECK(down->residual_link == o->y_link && down->residual_maker == 2 && down->x_maker == 3);
    CHECK(!down->y_link && down->y == AT_NEXT); /* read outside */
    layer(&of);
    of.values[3].x.id = X;                 /* not what stands right before it: it waits for all blocks */
    of.values[4].residual.row_stride = 65; /* not the whole of what was made */
    cuda_links_place(in, of.values, 5, 0x100000, cuda_links_find(in, of.values, 5));
    CHECK(!in[2].waits && in[3].waits && in[4].waits && !in[3].u.linear.x_link && !in[4].u.linear.residual_link);
    CHECK(in[2].u.linear.y == AT_SUM && !in[2].u.linear.y_link && in[4].u.linear.x_link);
    layer(&of);
    in[4].u.linear.residual = AT_QKV; /* memory that another value had before: who made it is known by its number alone */
    cuda_links_place(in, of.values, 5, 0x100000, cuda_links_find(in, of.values, 5));
    CHECK(!in[4].waits && in[4].u.linear.residual_maker == 2);
}

/* Which lists the kernels of one row take. */
static void lists_of_one_row(void) {
    struct cuda *c = bare_backend();
    struct launch l;
    int32_t depth;
    struct layer of;
    struct k_instr *in = of.in;
    c->gpu->n_sm = 132, c->gpu->shared_max = 232448;
    layer(&of);
    in[1].u.attn.c.k_width = 64, in[1].u.attn.items = 2, in[1].u.attn.splits = 1;
    CHECK(!cuda_list_fits(c, in, 5, &l, &depth)); /* not compiled for this GPU */
    c->gpu->functions[KERNEL_one_4_64] = (CUfunction)(void *)c;
    CHECK(cuda_list_fits(c, in, 5, &l, &depth) && l.kernel == KERNEL_one_4_64 && l.grid[0] == 132 && depth == 4);
    c->gpu->shared_max = 163 << 10; /* fewer places of the rings */
    CHECK(cuda_list_fits(c, in, 5, &l, &depth) && depth == 3 && l.shared_bytes <= 163 << 10);
    c->gpu->shared_max = 232448;
    in[3].u.linear.w.mode = K_PLAIN;
    CHECK(!cuda_list_fits(c, in, 5, &l, &depth));
    in[3].u.linear.w.mode = K_AFFINE, in[4].u.linear.rows = 2;
    CHECK(!cuda_list_fits(c, in, 5, &l, &depth));
    in[4].u.linear.rows = 1, in[3].u.linear.w.tile_bytes = 1 << 28;
    CHECK(!cuda_list_fits(c, in, 5, &l, &depth));                     /* too far from gate to up */
    in[3].u.linear.w.tile_bytes = 576, c->gpu->shared_max = 99 << 10; /* a GeForce: places of half the size */
    CHECK(cuda_list_fits(c, in, 5, &l, &depth) && depth == 4 && l.shared_bytes <= 99 << 10);
    in[4].u.linear.w.in = 14336;
    CHECK(cuda_list_fits(c, in, 5, &l, &depth) && depth == 2 && l.shared_bytes <= 99 << 10);
    in[4].u.linear.w.in = 27648;
    CHECK(cuda_list_fits(c, in, 5, &l, &depth) && depth == 1 && l.shared_bytes <= 99 << 10);
    in[4].u.linear.w.in = 28672;
    CHECK(!cuda_list_fits(c, in, 5, &l, &depth));
    free_backend(c);
}

/* The same of several rows: all instructions have as many, and links hold all of them. */
static void lists_of_few_rows(void) {
    struct cuda *c = bare_backend();
    struct launch l;
    int32_t depth;
    struct layer of;
    struct k_instr *in = of.in;
    c->gpu->n_sm = 132, c->gpu->shared_max = 232448;
    layer(&of);
    in[1].u.attn.c.k_width = 64, in[1].u.attn.items = 132, in[1].u.attn.splits = 1, in[1].u.attn.rows = 3;
    for (int i = 0; i < 5; i++)
        if (i != 1) in[i].u.linear.rows = 3;
    c->gpu->functions[KERNEL_one_4_64] = (CUfunction)(void *)c;
    CHECK(!cuda_list_fits(c, in, 5, &l, &depth)); /* not compiled for this GPU */
    c->gpu->functions[KERNEL_few_4_64] = (CUfunction)(void *)c;
    CHECK(cuda_list_fits(c, in, 5, &l, &depth) && l.kernel == KERNEL_few_4_64 && depth == 4);
    in[4].u.linear.w.in = 14336; /* an 8B's: x of several rows lies in memory, and leaves as much for the rings */
    CHECK(cuda_list_fits(c, in, 5, &l, &depth) && depth == 4 && l.shared_bytes <= 232448);
    in[1].u.attn.rows = 5; /* beyond four, the next units of x are on their way to shared memory */
    for (int i = 0; i < 5; i++)
        if (i != 1) in[i].u.linear.rows = 5;
    CHECK(!cuda_list_fits(c, in, 5, &l, &depth));
    c->gpu->functions[KERNEL_several_4_64] = (CUfunction)(void *)c;
    CHECK(cuda_list_fits(c, in, 5, &l, &depth) && l.kernel == KERNEL_several_4_64 && depth == 3 && l.shared_bytes <= 232448);
    layer(&of);
    in[1].u.attn.rows = 3;
    for (int i = 0; i < 5; i++)
        if (i != 1) in[i].u.linear.rows = 3;
    CHECK_INT((int64_t)cuda_links_find(in, of.values, 5), 3 * 8 * 64 * 8);
    for (int i = 0; i < 5; i++) CHECK(!in[i].waits);
    CHECK(in[1].u.attn.qkv_link && in[1].u.attn.qkv_row == 64);
    in[2].u.linear.rows = 2; /* of other rows than were made: it waits for all blocks */
    cuda_links_find(in, of.values, 5);
    CHECK(in[2].waits && !cuda_list_fits(c, in, 5, &l, &depth));
    for (int i = 0; i < 5; i++)
        if (i != 1) in[i].u.linear.rows = LIST_ROWS + 1;
    in[1].u.attn.rows = LIST_ROWS + 1;
    CHECK(!cuda_list_fits(c, in, 5, &l, &depth));
    free_backend(c);
}

/* Every file of kernels.def finds a place, when a GPU has an image of each. */
static void kernel_files(void) {
    static const char *const files[] = {
#define KERNEL(file, symbol) #file,
#include "backend/cuda/device/kernels.def"
#undef KERNEL
    };
    int n = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t k = 0;
        while (strcmp(files[k], files[i]) != 0) k++;
        n += k == i;
    }
    FAIL_IF(n < 20 || n > CUDA_MODULES_MAX, "%d kernel files, and there is room for %d", n, CUDA_MODULES_MAX);
}

static const struct unit_case cases[] = {
    {"arch_parse", arch_parse},
    {"arch_pick", arch_pick},
    {"support_table", support_table},
    {"pack_find", pack_find},
    {"pack_damaged", pack_damaged},
    {"probe_messages", probe_messages},
    {"probe_older_driver", probe_older_driver},
    {"probe_each_row", probe_each_row},
    {"probe_without", probe_without},
    {"probe_choose", probe_choose},
    {"device_details", device_details},
    {"memory_errors", memory_errors},
    {"many_devices", many_devices},
    {"embedded", embedded},
    {"kernel_files", kernel_files},
    {"wide_products", wide_products},
    {"links", links},
    {"lists_of_one_row", lists_of_one_row},
    {"lists_of_few_rows", lists_of_few_rows},
    {0},
};
const struct unit_suite unit_cuda = {"cuda", cases};
