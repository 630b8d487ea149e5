// A driver that runs kernels on the CPU: the functions of src/backend/cuda/device/driver.def over ordinary memory, launches as loops over blocks,
// threads as fibers. Built as libcuda.so.1 together with the kernels' sources.
#include "emu.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

EMU_OWN emu_state emu;

// ---- fibers ----

enum fiber_wait { READY, AT_WARP, AT_BLOCK, DONE };
enum { STACK = 64 << 10, THREADS_MAX = 1024 };

struct fiber {
    void *sp;
    unsigned char *stack;
    fiber_wait wait;
};

static EMU_OWN fiber fibers[THREADS_MAX];
static EMU_OWN uint64_t exchange[THREADS_MAX / 32][16][32];
static EMU_OWN unsigned n_threads, current;
static EMU_OWN void *scheduler_sp;
static EMU_OWN void (*kernel)(const void *);
static EMU_OWN const void *kernel_args;

extern "C" void emu_switch(void **save, void *to);
#ifdef __x86_64__
__asm__(".globl emu_switch\nemu_switch:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
#elif defined(__aarch64__)
__asm__(".globl emu_switch\nemu_switch:\n sub sp,sp,#160\n stp x19,x20,[sp]\n stp x21,x22,[sp,#16]\n stp x23,x24,[sp,#32]\n stp x25,x26,[sp,#48]\n"
        " stp x27,x28,[sp,#64]\n stp x29,x30,[sp,#80]\n stp d8,d9,[sp,#96]\n stp d10,d11,[sp,#112]\n stp d12,d13,[sp,#128]\n stp d14,d15,[sp,#144]\n"
        " mov x2,sp\n str x2,[x0]\n mov sp,x1\n"
        " ldp x19,x20,[sp]\n ldp x21,x22,[sp,#16]\n ldp x23,x24,[sp,#32]\n ldp x25,x26,[sp,#48]\n ldp x27,x28,[sp,#64]\n ldp x29,x30,[sp,#80]\n"
        " ldp d8,d9,[sp,#96]\n ldp d10,d11,[sp,#112]\n ldp d12,d13,[sp,#128]\n ldp d14,d15,[sp,#144]\n add sp,sp,#160\n ret\n");
#else
#error "the emulator switches fibers on x86_64 and aarch64 only"
#endif

// What emu_switch takes from a stack that it has not left yet: the registers it restores, and where it returns to.
#ifdef __x86_64__
enum { FRAME_WORDS = 8, FRAME_RETURN = 6 };
#else
enum { FRAME_WORDS = 20, FRAME_RETURN = 11 };
#endif

static void set_thread(unsigned t) {
    current = t;
    emu.thread = {t, 0, 0};
    emu.lane = t % 32;
    emu.warp = t / 32;
}

static void yield(fiber_wait why) {
    fiber *f = &fibers[current];
    f->wait = why;
    emu_switch(&f->sp, scheduler_sp);
}

static void fiber_main() {
    kernel(kernel_args);
    yield(DONE);
    abort();
}

static void fiber_start(unsigned t) {
    fiber *f = &fibers[t];
    if (!f->stack) f->stack = (unsigned char *)malloc(STACK);
    uintptr_t top = ((uintptr_t)f->stack + STACK) / 16 * 16;
    void **sp = (void **)top - FRAME_WORDS;
    for (int i = 0; i < FRAME_WORDS; i++) sp[i] = nullptr;
    sp[FRAME_RETURN] = (void *)fiber_main;
    f->sp = sp;
    f->wait = READY;
}

void emu_block_barrier() { yield(AT_BLOCK); }
void emu_warp_barrier() { yield(AT_WARP); }
void emu_pause() { sched_yield(); }
uint64_t *emu_exchange(unsigned slot) { return exchange[emu.warp][slot]; }
unsigned emu_live_lanes() {
    unsigned mask = 0;
    for (unsigned i = 0; i < 32 && emu.warp * 32 + i < n_threads; i++)
        if (fibers[emu.warp * 32 + i].wait != DONE) mask |= 1u << i;
    return mask;
}

// Runs the ready lanes of a warp until all wait or are done; releases them when they all wait for the warp. False: nothing could run.
static bool run_warp(unsigned w) {
    unsigned first = w * 32, last = first + 32 < n_threads ? first + 32 : n_threads;
    bool ran = false;
    for (;;) {
        unsigned waiting = 0, ready = 0, live = 0;
        for (unsigned t = first; t < last; t++) {
            if (fibers[t].wait == READY) {
                set_thread(t);
                emu_switch(&scheduler_sp, fibers[t].sp);
                ran = true;
            }
            ready += fibers[t].wait == READY;
            waiting += fibers[t].wait == AT_WARP;
            live += fibers[t].wait != DONE;
        }
        if (waiting == 0 || waiting != live) return ran;
        for (unsigned t = first; t < last; t++)
            if (fibers[t].wait == AT_WARP) fibers[t].wait = READY;
    }
}

static void run_block() {
    for (unsigned t = 0; t < n_threads; t++) fiber_start(t);
    for (;;) {
        bool ran = false;
        for (unsigned w = 0; w * 32 < n_threads; w++) ran |= run_warp(w);
        unsigned at_block = 0, live = 0;
        for (unsigned t = 0; t < n_threads; t++) at_block += fibers[t].wait == AT_BLOCK, live += fibers[t].wait != DONE;
        if (live == 0) return;
        if (at_block == live) {
            for (unsigned t = 0; t < n_threads; t++)
                if (fibers[t].wait == AT_BLOCK) fibers[t].wait = READY;
        } else if (!ran) {
            fprintf(stderr, "emu: deadlock: %u of %u threads wait for the block\n", at_block, live);
            abort();
        }
    }
}

// What EMU_CUDA="sms=28;shared=101376;lost;report" says: multiprocessors, shared memory for a block, whether launches of kernels/one.cu are a block
// short, for which the others then wait, and whether the end tells what ran, and how much memory nobody gave back. With "broken" the first of them
// faults, which the calls after it are told; with "taken" others take the GPU's memory when the first kernel runs; "memory=258" is how many MiB are
// free before that, and with "grabbed=20" others take them when we have allocated 20 MiB, without being seen in advance. "second=9000" is a second
// GPU with so many MiB free, "third=9000" one more; they do not reach each other with "apart", and with "unlike" each has a name of its own. "display" is a GPU whose kernels must be short. With "late" copies from pageable memory that name no stream have not arrived
// when other streams work: what the driver promises is that it has taken the bytes, and no more. Nor has a copy of a stream arrived for another one that has not waited
// for an event behind it.
static const char *setting(const char *name) {
    const char *all = getenv("EMU_CUDA"), *at = all ? strstr(all, name) : nullptr;
    return at ? at + strlen(name) : nullptr;
}
static int number(const char *name, int other) { return setting(name) ? atoi(setting(name)) : other; }
static unsigned shared_max() { return (unsigned)number("shared=", 232448); }

struct ran {
    unsigned launches, grid, shared;
};
static std::map<std::string, ran> all_ran;
static std::atomic<int> n_pieces; // of memory that is not free again
static void report() {
    for (auto &r : all_ran) fprintf(stderr, "emu: %s %u launches, at most %u blocks, %u bytes\n", r.first.c_str(), r.second.launches, r.second.grid, r.second.shared);
    fprintf(stderr, "emu: %d pieces of memory left\n", n_pieces.load());
}
static void note(const char *name, unsigned blocks, unsigned shared_bytes) {
    static std::mutex lock;
    std::lock_guard<std::mutex> hold(lock);
    if (all_ran.empty() && setting("report")) atexit(report);
    ran &r = all_ran[name];
    r.launches++;
    if (blocks > r.grid) r.grid = blocks;
    if (shared_bytes > r.shared) r.shared = shared_bytes;
}

// A fault stays: every call that asks for work answers with it.
static bool broken, started;

// Every thread says for itself which context it uses.
static thread_local bool has_context;

// Shared memory is poisoned (NaN), what lies behind it too, and must stay so.
enum { GUARD = 256 };
static bool launch(const char *name, void (*f)(const void *), const unsigned grid[3], unsigned threads, unsigned shared_bytes, const void *args) {
    static EMU_OWN std::vector<unsigned char> shared;
    note(name, grid[0] * grid[1] * grid[2], shared_bytes);
    if (shared_bytes > shared_max()) return false;
    shared.assign(shared_bytes + 1024 + GUARD, 0xff);
    emu.shared = (unsigned char *)(((uintptr_t)shared.data() + 1023) / 1024 * 1024);
    kernel = f;
    kernel_args = args;
    n_threads = threads;
    emu.block_dim = {threads, 1, 1};
    emu.grid_dim = {grid[0], grid[1], grid[2]};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                emu.block = {x, y, z};
                run_block();
            }
    for (unsigned i = shared_bytes; i < shared_bytes + GUARD; i++)
        if (emu.shared[i] != 0xff) fprintf(stderr, "emu: %s wrote beyond its %u bytes of shared memory\n", name, shared_bytes), abort();
    return true;
}

// ---- the driver ----

extern "C" {
typedef struct CUgraph_st *CUgraph;
#define _Alignas alignas
#include "backend/cuda/device/driver_types.h"

struct emu_function {
    char name[64];
    void (*call)(const void *);
};
struct emu_node {
    CUfunction func;
    unsigned grid[3], threads, shared;
    alignas(64) unsigned char args[1024];
};
struct CUgraph_st {
    std::vector<emu_node> nodes;
};

#define API __attribute__((visibility("default"))) CUresult

API cuInit(unsigned) { return CUDA_SUCCESS; }
API cuDriverGetVersion(int *v) { return *v = 13000, CUDA_SUCCESS; }
API cuGetErrorName(CUresult, const char **n) { return *n = "EMU", CUDA_SUCCESS; }
API cuGetErrorString(CUresult, const char **n) { return *n = "emulated", CUDA_SUCCESS; }
API cuDeviceGet(CUdevice *d, int i) { return *d = i, CUDA_SUCCESS; }
API cuDeviceGetCount(int *n) { return *n = 1 + (setting("second=") != nullptr) + (setting("third=") != nullptr), CUDA_SUCCESS; }
API cuDeviceGetName(char *name, int bytes, CUdevice d) { return snprintf(name, (size_t)bytes, setting("unlike") ? "emulator %d" : "emulator", d), CUDA_SUCCESS; }
API cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR                   ? 9
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR                 ? 0
         : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                     ? number("sms=", 8)
         : a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN        ? (int)shared_max()
         : a == CU_DEVICE_ATTRIBUTE_WARP_SIZE                                ? 32
         : a == CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT                      ? setting("display") != nullptr
                                                                             : 0;
    return CUDA_SUCCESS;
}
API cuDeviceTotalMem_v2(size_t *n, CUdevice) { return *n = (size_t)8 << 30, CUDA_SUCCESS; }
API cuDeviceGetUuid_v2(CUuuid *u, CUdevice) { return memset(u, 0, sizeof *u), CUDA_SUCCESS; }
API cuDeviceGetPCIBusId(char *id, int bytes, CUdevice) { return snprintf(id, (size_t)bytes, "0000:00:00.0"), CUDA_SUCCESS; }
API cuDeviceCanAccessPeer(int *can, CUdevice, CUdevice) { return *can = !setting("apart"), CUDA_SUCCESS; }
API cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }
API cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return *c = (CUcontext)(uintptr_t)(1 + d), CUDA_SUCCESS; }
API cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
// ---- streams. Kernels run at once; with "late" a copy to the device or from it waits until its own stream, or one that waits for it, goes on. With "lazy"
// kernels wait too, until somebody waits for their stream ----

static std::recursive_mutex order;
struct emu_stream {
    std::deque<std::function<void()>> work; // that waits
    uint64_t n_given, n_done;
};
struct emu_event {
    uintptr_t stream; // that it was recorded on last
    uint64_t behind;  // so much of its work
};
static std::map<uintptr_t, emu_stream> streams;
static std::map<uintptr_t, emu_event> recorded;
static std::atomic<uintptr_t> n_handles{1};

static void arrive_until(emu_stream &s, uint64_t n) {
    while (s.n_done < n && !s.work.empty()) {
        std::function<void()> work = s.work.front();
        s.work.pop_front();
        work();
        s.n_done++;
    }
}
static void arrive(CUstream stream) {
    std::lock_guard<std::recursive_mutex> hold(order);
    emu_stream &s = streams[(uintptr_t)stream];
    arrive_until(s, s.n_given);
}
static void arrive_before(CUevent event) {
    std::lock_guard<std::recursive_mutex> hold(order);
    if (!recorded.count((uintptr_t)event)) return;
    emu_event e = recorded[(uintptr_t)event];
    arrive_until(streams[e.stream], e.behind);
}
static void arrive_all() {
    std::lock_guard<std::recursive_mutex> hold(order);
    for (auto &s : streams) arrive_until(s.second, s.second.n_given);
}
static void wait_on(CUstream stream, std::function<void()> work) {
    std::lock_guard<std::recursive_mutex> hold(order);
    emu_stream &s = streams[(uintptr_t)stream];
    s.work.push_back(work);
    s.n_given++;
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned) { return CUDA_SUCCESS; }
static thread_local uintptr_t which; // GPU of the context
API cuCtxSetCurrent(CUcontext c) { return has_context = c != nullptr, which = c ? (uintptr_t)c - 1 : 0, CUDA_SUCCESS; }
API cuCtxGetCurrent(CUcontext *c) { return *c = (CUcontext)(has_context ? which + 1 : 0), CUDA_SUCCESS; }
API cuCtxSynchronize(void) { return arrive_all(), CUDA_SUCCESS; }
API cuCtxGetStreamPriorityRange(int *a, int *b) { return *a = *b = 0, CUDA_SUCCESS; }
API cuModuleLoadDataEx(CUmodule *m, const void *, unsigned, CUjit_option *, void **) { return *m = (CUmodule)1, CUDA_SUCCESS; }
API cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
API cuModuleGetFunction(CUfunction *f, CUmodule, const char *name) {
    emu_function *e = (emu_function *)calloc(1, sizeof *e);
    snprintf(e->name, sizeof e->name, "%s", name);
    Dl_info info;
    dladdr((void *)emu_switch, &info);
    void *self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *(void **)&e->call = dlsym(self, name);
    *f = (CUfunction)e;
    return e->call ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
API cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, CUmodule, const char *) { return CUDA_ERROR_NOT_FOUND; }
API cuFuncGetAttribute(int *v, CUfunction_attribute, CUfunction) { return *v = 0, CUDA_SUCCESS; }
API cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction, int, size_t) { return *n = 1, CUDA_SUCCESS; }
API cuOccupancyMaxActiveClusters(int *n, CUfunction, const CUlaunchConfig *) { return *n = 1, CUDA_SUCCESS; }
static CUresult fault() { return !has_context ? CUDA_ERROR_INVALID_CONTEXT : broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS; }
API cuMemGetInfo_v2(size_t *f, size_t *t) {
    int free_mib = which == 2 ? number("third=", 0) : which == 1 ? number("second=", 0) : number("memory=", 7 << 10);
    *f = (size_t)(started && setting("taken") ? 32 : free_mib) << 20, *t = (size_t)8 << 30;
    return fault();
}
static void *piece(size_t n) {
    void *m = nullptr;
    if (posix_memalign(&m, 512, n)) return nullptr;
    n_pieces++;
    return m;
}
static CUresult give_back(void *p) {
    if (!has_context) return CUDA_ERROR_INVALID_CONTEXT;
    n_pieces -= p != nullptr;
    return free(p), CUDA_SUCCESS;
}
API cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    if (fault()) return fault();
    static std::atomic<size_t> n_had;
    if (setting("grabbed=") && (n_had += n) > (size_t)number("grabbed=", 0) << 20) return CUDA_ERROR_OUT_OF_MEMORY;
    void *m = piece(n);
    if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(m, 0xff, n < (64 << 20) ? n : 0); // poison: NaN
    return *p = (CUdeviceptr)m, CUDA_SUCCESS;
}
API cuMemFree_v2(CUdeviceptr p) { return arrive_all(), give_back((void *)p); }
API cuMemHostAlloc(void **p, size_t n, unsigned) {
    if (fault()) return fault();
    return (*p = piece(n)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API cuMemFreeHost(void *p) { return arrive_all(), give_back(p); }
API cuMemHostRegister_v2(void *, size_t, unsigned) { return setting("unpinned") ? CUDA_ERROR_NOT_SUPPORTED : (n_pieces++, CUDA_SUCCESS); }
API cuMemHostUnregister(void *) { return n_pieces--, CUDA_SUCCESS; }
API cuMemHostGetDevicePointer_v2(CUdeviceptr *a, void *p, unsigned) { return *a = (CUdeviceptr)p, CUDA_SUCCESS; }
static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t n) { return memcpy((void *)to, (void *)from, n), fault(); }
API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) { return setting("late") ? fault() : copy(to, (CUdeviceptr)from, n); }
API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) { return copy((CUdeviceptr)to, from, n); }
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s) {
    if (!setting("late")) return arrive(s), copy(to, (CUdeviceptr)from, n);
    wait_on(s, [=] { memcpy((void *)to, from, n); });
    return fault();
}
API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s) {
    if (!setting("late")) return arrive(s), copy((CUdeviceptr)to, from, n);
    wait_on(s, [=] { memcpy(to, (const void *)from, n); });
    return fault();
}
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) { return arrive(s), copy(to, from, n); }
API cuMemsetD8_v2(CUdeviceptr to, unsigned char v, size_t n) { return memset((void *)to, v, n), fault(); }
API cuMemsetD8Async(CUdeviceptr to, unsigned char v, size_t n, CUstream s) { return arrive(s), memset((void *)to, v, n), fault(); }
API cuMemsetD32Async(CUdeviceptr to, unsigned v, size_t n, CUstream s) {
    arrive(s);
    for (size_t i = 0; i < n; i++) ((unsigned *)to)[i] = v;
    return fault();
}
API cuStreamCreate(CUstream *s, unsigned) { return *s = (CUstream)n_handles++, CUDA_SUCCESS; }
API cuStreamCreateWithPriority(CUstream *s, unsigned, int) { return *s = (CUstream)n_handles++, CUDA_SUCCESS; }
API cuStreamDestroy_v2(CUstream s) { return arrive(s), CUDA_SUCCESS; }
API cuStreamSynchronize(CUstream s) { return arrive(s), fault(); }
API cuStreamQuery(CUstream s) { return arrive(s), fault(); }
API cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
    if (!setting("lazy")) return arrive_before(e), CUDA_SUCCESS;
    std::lock_guard<std::recursive_mutex> hold(order);
    if (!recorded.count((uintptr_t)e)) return CUDA_SUCCESS;
    emu_event at = recorded[(uintptr_t)e];
    return wait_on(s, [=] { arrive_until(streams[at.stream], at.behind); }), CUDA_SUCCESS;
}
API cuEventCreate(CUevent *e, unsigned) { return *e = (CUevent)n_handles++, CUDA_SUCCESS; }
API cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
API cuEventRecord(CUevent e, CUstream s) {
    std::lock_guard<std::recursive_mutex> hold(order);
    return recorded[(uintptr_t)e] = {(uintptr_t)s, streams[(uintptr_t)s].n_given}, CUDA_SUCCESS;
}
API cuEventQuery(CUevent e) { return arrive_before(e), CUDA_SUCCESS; }
API cuEventSynchronize(CUevent e) { return arrive_before(e), CUDA_SUCCESS; }
API cuEventElapsedTime(float *ms, CUevent, CUevent) { return *ms = 0, CUDA_SUCCESS; }
static CUresult start(CUfunction f, const unsigned all[3], unsigned threads, unsigned shared_bytes, const void *args) {
    const emu_function *e = (const emu_function *)f;
    bool is_one = !strncmp(e->name, "one_", 4), is_short = setting("lost") && is_one && all[0] > 1;
    if (fault()) return fault();
    started |= strncmp(e->name, "tile_", 5) != 0;
    broken = setting("broken") && is_one;
    if (broken) return CUDA_SUCCESS; // it runs
    if (all[1] > 65535 || all[2] > 65535) return CUDA_ERROR_INVALID_VALUE;
    const unsigned grid[3] = {all[0] - is_short, all[1], all[2]};
    return launch(e->name, e->call, grid, threads, shared_bytes, args) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// Now, or when its stream goes on.
static CUresult start_on(CUstream s, const emu_node &node) {
    if (!setting("lazy")) return arrive(s), start(node.func, node.grid, node.threads, node.shared, node.args);
    uintptr_t gpu = which;
    wait_on(s, [=] {
        uintptr_t before = which;
        which = gpu;
        if (start(node.func, node.grid, node.threads, node.shared, node.args)) fprintf(stderr, "emu: a kernel failed\n"), abort();
        which = before;
    });
    return fault();
}
static emu_node node_of(CUfunction f, const unsigned grid[3], unsigned threads, unsigned shared, const void *args) {
    emu_node n = {f, {grid[0], grid[1], grid[2]}, threads, shared, {0}};
    return memcpy(n.args, args, sizeof n.args), n;
}
API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned, unsigned, unsigned shared, CUstream s, void **args, void **) {
    const unsigned grid[3] = {gx, gy, gz};
    return start_on(s, node_of(f, grid, bx, shared, args[0]));
}
API cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **args, void **) {
    const unsigned grid[3] = {c->gridDimX, c->gridDimY, c->gridDimZ};
    return start_on(c->hStream, node_of(f, grid, c->blockDimX, c->sharedMemBytes, args[0]));
}
API cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **) { return CUDA_ERROR_NOT_SUPPORTED; }
API cuGraphCreate(CUgraph *g, unsigned) { return *g = new CUgraph_st, CUDA_SUCCESS; }
API cuGraphDestroy(CUgraph g) { return delete g, CUDA_SUCCESS; }
API cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph g, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *p) {
    const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
    g->nodes.push_back(node_of(p->func, grid, p->blockDimX, p->sharedMemBytes, p->kernelParams[0]));
    return *node = (CUgraphNode)1, CUDA_SUCCESS;
}
API cuGraphAddMemcpyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_MEMCPY3D *, CUcontext) { return CUDA_ERROR_NOT_SUPPORTED; }
API cuGraphAddMemsetNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_MEMSET_NODE_PARAMS *, CUcontext) { return CUDA_ERROR_NOT_SUPPORTED; }
API cuGraphAddEmptyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t) { return CUDA_ERROR_NOT_SUPPORTED; }
API cuGraphAddDependencies_v2(CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t) { return CUDA_SUCCESS; }
API cuGraphKernelNodeSetAttribute(CUgraphNode, CUkernelNodeAttrID, const CUkernelNodeAttrValue *) { return CUDA_SUCCESS; }
API cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, CUflags64) { return *e = (CUgraphExec) new CUgraph_st(*g), CUDA_SUCCESS; }
API cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
API cuGraphLaunch(CUgraphExec e, CUstream s) {
    CUresult code = fault();
    for (emu_node &n : ((CUgraph_st *)e)->nodes)
        if (!code && !broken) code = start_on(s, n);
    return code;
}
API cuGraphExecUpdate_v2(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *) { return CUDA_ERROR_NOT_SUPPORTED; }
API cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *) { return CUDA_ERROR_NOT_SUPPORTED; }
API cuGraphExecDestroy(CUgraphExec e) { return delete (CUgraph_st *)e, CUDA_SUCCESS; }
API cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType, unsigned, void *p, const uint64_t *dims, const uint64_t *strides, const unsigned *,
                           const unsigned *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    uint64_t words[] = {(uint64_t)p, dims[0], dims[1], strides[0]};
    return memcpy(map, words, sizeof words), CUDA_SUCCESS;
}
}
