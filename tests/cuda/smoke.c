/* The first words with a real GPU: driver, image choice, module, launch, copies and an explicit graph, with kernels/probe.cu. Skipped where
 * there is no GPU or the build has no kernels. The .exe of it shows the same through Windows' calling convention. */
#include "backend/cuda/device/probe.h"
#include "base/arena.h"

#include <stdio.h>

enum { N = 1000, BLOCK = 256, GRID = (N + BLOCK - 1) / BLOCK };

struct smoke {
    struct cuda_probe p;
    struct cuda_driver *d;
    struct cuda_device *dev;
    CUcontext context;
    CUmodule module;
    CUstream stream;
    CUdeviceptr in, out;
    float host[N];
};

#define TRY_CU(call, ...) TRY(cuda_check(s->d, (call), err, __VA_ARGS__))

static int open_device(struct smoke *s, int i, struct err *err) {
    s->d = &s->p.driver;
    s->dev = &s->p.devices[i];
    TRY_CU(s->d->cuDevicePrimaryCtxRetain(&s->context, s->dev->handle), "opening GPU %d", i);
    TRY_CU(s->d->cuCtxSetCurrent(s->context), "using GPU %d", i);
    TRY_CU(s->d->cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING), "creating a stream");
    TRY_CU(s->d->cuMemAlloc(&s->in, sizeof s->host), "allocating");
    TRY_CU(s->d->cuMemAlloc(&s->out, sizeof s->host), "allocating");
    for (int k = 0; k < N; k++) s->host[k] = (float)k;
    TRY_CU(s->d->cuMemcpyHtoD(s->in, s->host, sizeof s->host), "copying to the GPU");
    return 0;
}

static int load(struct smoke *s, struct err *err) {
    const struct pack_row *row = cuda_image_find(&s->p.pack, STR("probe"), s->dev->capability, s->d->version);
    void *image;
    size_t bytes;
    char words[1024] = "";
    if (!row) return err_set(err, ERR_ENOTFOUND, "no image of probe.cu for this GPU");
    TRY(cuda_image_unpack(&s->p.pack, row, &image, &bytes, err));
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {words, (void *)(uintptr_t)sizeof words};
    CUresult result = s->d->cuModuleLoadDataEx(&s->module, image, 2, options, values);
    mem_free(image);
    return cuda_check(s->d, result, err, "loading probe.cu for %d%s%s", row->arch, words[0] ? ": " : "", words);
}

/* The image says for which architecture it was compiled. */
static int check_arch(struct smoke *s, struct err *err) {
    CUfunction f;
    int got = 0;
    void *arguments[] = {&s->out};
    TRY_CU(s->d->cuModuleGetFunction(&f, s->module, "probe_arch"), "finding probe_arch");
    TRY_CU(s->d->cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s->stream, arguments, NULL), "launching probe_arch");
    TRY_CU(s->d->cuStreamSynchronize(s->stream), "running probe_arch");
    TRY_CU(s->d->cuMemcpyDtoH(&got, s->out, sizeof got), "copying from the GPU");
    if (got != s->dev->image.number * 10 && s->dev->image.suffix != 'p')
        return err_set(err, ERR_EDEVICE, "the image for %d runs as %d", s->dev->image.number, got / 10);
    return 0;
}

static int check_result(struct smoke *s, float a, struct err *err) {
    TRY_CU(s->d->cuMemcpyDtoH(s->host, s->out, sizeof s->host), "copying from the GPU");
    for (int k = 0; k < N; k++) {
        float want = a * (float)k + (float)(BLOCK * (BLOCK - 1) / 2);
        if (s->host[k] != want) return err_set(err, ERR_EDEVICE, "element %d is %g, expected %g", k, (double)s->host[k], (double)want);
    }
    return 0;
}

static int check_launches(struct smoke *s, struct err *err) {
    CUfunction f;
    float a = 2.0f;
    int64_t n = N;
    void *arguments[] = {&s->in, &a, &s->out, &n};
    TRY_CU(s->d->cuModuleGetFunction(&f, s->module, "probe_axpy"), "finding probe_axpy");
    TRY_CU(s->d->cuLaunchKernel(f, GRID, 1, 1, BLOCK, 1, 1, 0, s->stream, arguments, NULL), "launching probe_axpy");
    TRY_CU(s->d->cuStreamSynchronize(s->stream), "running probe_axpy");
    TRY(check_result(s, a, err));
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {
        .gridDimX = GRID, .gridDimY = 1, .gridDimZ = 1, .blockDimX = BLOCK, .blockDimY = 1, .blockDimZ = 1, .hStream = s->stream};
    if (s->dev->capability >= 90) config.attrs = &attribute, config.numAttrs = 1;
    a = 3.0f;
    TRY_CU(s->d->cuLaunchKernelEx(&config, f, arguments, NULL), "launching probe_axpy with attributes");
    TRY_CU(s->d->cuStreamSynchronize(s->stream), "running probe_axpy");
    TRY(check_result(s, a, err));
    a = 4.0f;
    TRY_CU(s->d->cuLaunchCooperativeKernel(f, GRID, 1, 1, BLOCK, 1, 1, 0, s->stream, arguments), "launching probe_axpy cooperatively");
    TRY_CU(s->d->cuStreamSynchronize(s->stream), "running probe_axpy");
    return check_result(s, a, err);
}

/* memset -> kernel, then the kernel's arguments changed in the instantiated graph. */
static int check_graph(struct smoke *s, struct err *err) {
    CUfunction f;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode clear, kernel;
    float a = 5.0f;
    int64_t n = N;
    void *arguments[] = {&s->in, &a, &s->out, &n};
    CUDA_MEMSET_NODE_PARAMS zero = {.dst = s->out, .value = 0, .elementSize = 4, .width = N, .height = 1};
    TRY_CU(s->d->cuModuleGetFunction(&f, s->module, "probe_axpy"), "finding probe_axpy");
    CUDA_KERNEL_NODE_PARAMS params = {.func = f,
                                      .gridDimX = GRID,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = BLOCK,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = arguments};
    TRY_CU(s->d->cuGraphCreate(&graph, 0), "creating a graph");
    TRY_CU(s->d->cuGraphAddMemsetNode(&clear, graph, NULL, 0, &zero, s->context), "adding a memset");
    TRY_CU(s->d->cuGraphAddKernelNode(&kernel, graph, NULL, 0, &params), "adding a kernel");
    TRY_CU(s->d->cuGraphAddDependencies(graph, &clear, &kernel, NULL, 1), "adding an edge");
    TRY_CU(s->d->cuGraphInstantiate(&exec, graph, 0), "instantiating a graph");
    TRY_CU(s->d->cuGraphLaunch(exec, s->stream), "launching a graph");
    TRY_CU(s->d->cuStreamSynchronize(s->stream), "running a graph");
    TRY(check_result(s, a, err));
    a = 6.0f;
    TRY_CU(s->d->cuGraphExecKernelNodeSetParams(exec, kernel, &params), "changing a node");
    TRY_CU(s->d->cuGraphLaunch(exec, s->stream), "launching a graph");
    TRY_CU(s->d->cuStreamSynchronize(s->stream), "running a graph");
    TRY(check_result(s, a, err));
    TRY_CU(s->d->cuGraphExecDestroy(exec), "destroying a graph");
    return cuda_check(s->d, s->d->cuGraphDestroy(graph), err, "destroying a graph");
}

int main(void) {
    static struct smoke s;
    static const struct {
        const char *name;
        int (*run)(struct smoke *s, struct err *err);
    } steps[] = {{"load", load}, {"arch", check_arch}, {"launches", check_launches}, {"graph", check_graph}};
    struct err err = {0};
    int i = 0, n_passed = 0, n_steps = (int)(sizeof steps / sizeof steps[0]);
    cuda_probe_run(&s.p, &(struct cuda_probe_args){.want_free = true});
    if (cuda_probe_choose(&s.p, -1, &i, &err)) {
        printf("skipped: %s\n0 passed, 0 failed, %d skipped\n", err.msg, n_steps);
        return 0;
    }
    struct sb words = {0};
    cuda_device_describe(&s.p.devices[i], &words);
    printf("%s\n", words.p);
    sb_free(&words);
    int code = open_device(&s, i, &err);
    for (int k = 0; k < n_steps && code == 0; k++) {
        code = steps[k].run(&s, &err);
        if (code) printf("FAILED %s: %s\n", steps[k].name, err.msg);
        else n_passed++;
    }
    if (code && n_passed == 0) printf("FAILED: %s\n", err.msg);
    printf("%d passed, %d failed\n", n_passed, n_steps - n_passed);
    return code ? 1 : 0;
}
