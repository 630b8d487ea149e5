/* What tools/paths.h says about models on GPUs that are not there, one line of JSON for each model and GPU. The GPUs have the kernels that
 * kernels/kernels.list compiles for them, and the sizes of a card of their kind.
 *
 * usage: cuda_paths KERNELS.LIST MODEL... */
#include "backend/cuda/device/gpu.h"
#include "base/json.h"
#include "os/os.h"
#include "tools/paths.h"

#include <stdio.h>

static const struct {
    const char *name, *card;
    int sm, n_sm, shared_max;
} gpus[] = {
    {"75", "RTX 2080 Ti", 75, 68, 64 << 10}, {"80", "A100", 80, 108, 163 << 10},  {"86", "RTX 3090", 86, 82, 99 << 10},
    {"89", "RTX 4090", 89, 128, 99 << 10},   {"90a", "H200", 90, 132, 227 << 10}, {"120", "RTX 5090", 120, 170, 99 << 10},
};

static const char *const files[N_KERNELS] = {
#define KERNEL(file, symbol) #file,
#include "backend/cuda/device/kernels.def"
#undef KERNEL
};

/* The column of a file's architectures: whether a GPU has its kernels. */
static bool has_file(struct str list, const char *file, int sm) {
    struct arena a = {0};
    struct str line, word, name = str_fmt(&a, "%s.cu", file), archs = {0};
    while (!archs.p && str_split_next(&list, '\n', &line)) {
        struct str rest = str_trim(line);
        if (!str_starts(rest, name)) continue;
        rest = str_trim(str_from(rest, name.n));
        str_split_next(&rest, ' ', &archs);
    }
    bool has = str_is(archs, "default") || (str_is(archs, "80+") && sm >= 80);
    while (!has && str_split_next(&archs, ',', &word)) has = str_is(word, "90a") && sm == 90;
    arena_free(&a);
    return has;
}

/* The GPU that plans are made like. Nobody calls its driver; that it has a function counts. */
static struct cuda_gpu *make_gpu(size_t i, struct str list) {
    static struct cuda_driver driver;
    struct cuda_gpu *g = mem_alloc(sizeof *g);
    driver.cuTensorMapEncodeTiled = (CUresult(*)(CUtensorMap *, CUtensorMapDataType, unsigned int, void *, const uint64_t *,
                                                 const uint64_t *, const unsigned int *, const unsigned int *, CUtensorMapInterleave,
                                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill))(uintptr_t)1;
    g->base.type = &cuda_backend;
    g->d = &driver;
    g->about = &g->probe.devices[0];
    snprintf(g->about->name, sizeof g->about->name, "%s", gpus[i].card);
    g->n_sm = gpus[i].n_sm, g->sm = gpus[i].sm, g->shared_max = gpus[i].shared_max;
    g->can_run_lists = true;
    for (int k = 0; k < N_KERNELS; k++)
        if (has_file(list, files[k], g->sm)) g->functions[k] = (CUfunction)(uintptr_t)1;
    return g;
}

static void put_step(struct jsonw *w, const struct paths_step *s) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "step", str_of(s->name));
    jsonw_put_num(w, "bytes", (double)s->paths.bytes);
    jsonw_put_num(w, "slow_bytes", (double)s->paths.slow_bytes);
    jsonw_put_num(w, "launches", s->paths.n_launches);
    struct sb text = {0};
    paths_describe(s, &text);
    jsonw_put_str(w, "text", sb_str(&text));
    sb_free(&text);
    jsonw_end(w, '}');
}

static int examine(const char *model, size_t i, struct cuda_gpu *gpu, struct err *err) {
    struct paths_report report;
    struct session_options o = {.model = model};
    TRY(paths_examine(&o, &gpu->base, &report, err));
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "model", str_of(model));
    jsonw_put_str(&w, "gpu", str_of(gpus[i].name));
    jsonw_open(&w, "steps", '[');
    for (int k = 0; k < PATHS_STEPS; k++) put_step(&w, &report.steps[k]);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    puts(out.p);
    sb_free(&out);
    return ERR_OK;
}

int main(int argc, char **argv) {
    struct arena a = {0};
    struct str list;
    struct err err;
    if (argc < 3) return fprintf(stderr, "usage: cuda_paths KERNELS.LIST MODEL...\n"), 2;
    int code = os_file_load(&a, argv[1], 1 << 20, &list, &err);
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus && !code; i++) {
        struct cuda_gpu *gpu = make_gpu(i, list);
        for (int k = 2; k < argc && !code; k++) {
            code = examine(argv[k], i, gpu, &err);
            if (code) fprintf(stderr, "%s on %s: %s\n", argv[k], gpus[i].name, err.msg);
        }
        mem_free(gpu);
    }
    if (code && argc < 3) fprintf(stderr, "%s\n", err.msg);
    arena_free(&a);
    return code ? 1 : 0;
}
