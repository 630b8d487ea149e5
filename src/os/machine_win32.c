/* Memory and processors on Windows: what this process may use. Job objects are the control groups of this system. */
#include "os/cpu_internal.h"
#include "os/win32.h"

#define PSAPI_VERSION 2
#include <psapi.h>

/* Huge pages need a right that users do not have; nothing is lost by not asking. */
void *os_pages_alloc(size_t bytes, struct err *err) {
    void *p = VirtualAlloc(NULL, bytes ? bytes : 1, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    if (!p) err_set(err, ERR_EMEMORY, "cannot allocate %zu MiB of memory", bytes >> 20);
    return p;
}

void os_pages_free(void *p, size_t bytes) {
    (void)bytes;
    if (p) VirtualFree(p, 0, MEM_RELEASE);
}

static uint64_t job_memory_limit(void) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION job = {0};
    uint64_t limit = UINT64_MAX;
    if (!QueryInformationJobObject(NULL, JobObjectExtendedLimitInformation, &job, sizeof job, NULL)) return limit;
    DWORD flags = job.BasicLimitInformation.LimitFlags;
    if ((flags & JOB_OBJECT_LIMIT_JOB_MEMORY) && job.JobMemoryLimit < limit) limit = job.JobMemoryLimit;
    if ((flags & JOB_OBJECT_LIMIT_PROCESS_MEMORY) && job.ProcessMemoryLimit < limit) limit = job.ProcessMemoryLimit;
    return limit ? limit : UINT64_MAX;
}

void os_memory(struct os_memory *out) {
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    PROCESS_MEMORY_COUNTERS own = {.cb = sizeof own};
    *out = (struct os_memory){0};
    if (K32GetProcessMemoryInfo(GetCurrentProcess(), &own, sizeof own)) out->resident = own.WorkingSetSize;
    if (!GlobalMemoryStatusEx(&m)) return;
    out->total = m.ullTotalPhys;
    /* memory is promised when it is allocated, so what the page file cannot back is not available */
    out->available = m.ullAvailPhys < m.ullAvailPageFile ? m.ullAvailPhys : m.ullAvailPageFile;
    uint64_t limit = job_memory_limit();
    if (limit < out->total) out->total = limit;
    uint64_t left = limit > own.PagefileUsage ? limit - own.PagefileUsage : 0;
    if (left < out->available) out->available = left;
    if (out->available > out->total) out->available = out->total;
}

/* ---- processors ---- */

static INIT_ONCE cpus_once = INIT_ONCE_STATIC_INIT;
static int n_cpus = 1, n_cores = 1;
static char cpu_name[128] = "unknown processor";

enum { MAX_GROUPS = 64 };

static int count_bits(uint64_t x) {
    int n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

/* Which processors of which group are ours. Within a single group the affinity mask counts; a process that spans
 * several groups has no such mask. */
static void usable_masks(uint64_t out[MAX_GROUPS]) {
    USHORT groups[MAX_GROUPS], n = MAX_GROUPS;
    DWORD_PTR own, all;
    if (!GetProcessGroupAffinity(GetCurrentProcess(), &n, groups)) n = 0;
    for (int i = 0; i < MAX_GROUPS; i++) out[i] = 0;
    for (USHORT i = 0; i < n; i++) {
        DWORD count = GetActiveProcessorCount(groups[i]);
        if (groups[i] < MAX_GROUPS) out[groups[i]] = count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    }
    if (n <= 1 && GetProcessAffinityMask(GetCurrentProcess(), &own, &all) && own) out[n ? groups[0] % MAX_GROUPS : 0] = own;
}

static int count_cores(const uint64_t masks[MAX_GROUPS]) {
    DWORD bytes = 0;
    int n = 0;
    GetLogicalProcessorInformationEx(RelationProcessorCore, NULL, &bytes);
    if (bytes == 0) return 0;
    char *all = mem_alloc(bytes);
    if (!GetLogicalProcessorInformationEx(RelationProcessorCore, (PSYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX)(void *)all, &bytes)) bytes = 0;
    for (DWORD at = 0; at < bytes;) {
        const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX *row = (const void *)(all + at);
        bool is_usable = false;
        for (WORD i = 0; i < row->Processor.GroupCount; i++) {
            const GROUP_AFFINITY *g = &row->Processor.GroupMask[i];
            is_usable |= g->Group < MAX_GROUPS && (g->Mask & masks[g->Group]);
        }
        n += is_usable;
        at += row->Size;
    }
    mem_free(all);
    return n;
}

/* A hard cap on the job's processor time, in 1/100 % of the whole machine. */
static int job_cpus(void) {
    enum { RATE_ENABLED = 1, RATE_HARD_CAP = 4 };
    struct {
        DWORD flags, rate;
    } job = {0, 0};
    if (!QueryInformationJobObject(NULL, JobObjectCpuRateControlInformation, &job, sizeof job, NULL)) return 0;
    if ((job.flags & (RATE_ENABLED | RATE_HARD_CAP)) != (RATE_ENABLED | RATE_HARD_CAP)) return 0;
    return (int)(((uint64_t)job.rate * GetActiveProcessorCount(ALL_PROCESSOR_GROUPS) + 9999) / 10000);
}

static BOOL CALLBACK find_cpus(PINIT_ONCE once, PVOID parameter, PVOID *context) {
    (void)once;
    (void)parameter;
    (void)context;
    uint64_t masks[MAX_GROUPS];
    int n = 0, quota = job_cpus();
    usable_masks(masks);
    for (int i = 0; i < MAX_GROUPS; i++) n += count_bits(masks[i]);
    if (quota > 0 && quota < n) n = quota;
    n_cpus = n > 0 ? n : 1;
    n_cores = count_cores(masks);
    if (n_cores < 1 || n_cores > n_cpus) n_cores = n_cpus;
    cpu_brand(cpu_name, sizeof cpu_name);
    return TRUE;
}

int os_cpu_count(void) {
    InitOnceExecuteOnce(&cpus_once, find_cpus, NULL, NULL);
    return n_cpus;
}

int os_core_count(void) {
    InitOnceExecuteOnce(&cpus_once, find_cpus, NULL, NULL);
    return n_cores;
}

const char *os_cpu_name(void) {
    InitOnceExecuteOnce(&cpus_once, find_cpus, NULL, NULL);
    return cpu_name;
}

/* ---- what cpu.c asks of the system ---- */

bool cpu_os_grants_amx(void) {
    BOOL(WINAPI * enable)(DWORD64);
    return win32_symbol(L"kernel32.dll", "EnableProcessOptionalXStateFeatures", &enable) && enable(UINT64_C(1) << 18 /* tile data */);
}

uint32_t cpu_os_arm_flags(void) {
    enum { DOT_PRODUCT_AVAILABLE = 43 };
#if defined(__aarch64__)
    return CPU_NEON | (IsProcessorFeaturePresent(DOT_PRODUCT_AVAILABLE) ? CPU_DOTPROD : 0);
#else
    return 0;
#endif
}
