/* Memory and processors on POSIX systems: what this process may use, not what the machine has.
 *
 * Linux answers in text files (/proc, /sys, control groups); other systems get the portable answers of sysconf. */
#include "os/cgroup.h"
#include "os/cpu_internal.h"
#include "os/os_internal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/auxv.h>
#include <sys/syscall.h>
#endif

enum { HUGE_PAGE = 2 * 1024 * 1024, TEXT_BYTES = 1 << 16 };

/* ---- pages ---- */

static size_t page_round(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes > SIZE_MAX - page ? 0 : (bytes + page - 1) / page * page + (bytes == 0) * page;
}

/* Memory of two megabytes and more starts on a huge page: the excess on both sides is given back. */
void *os_pages_alloc(size_t bytes, struct err *err) {
    size_t size = page_round(bytes), slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    if (size == 0 || size > SIZE_MAX / 2) goto fail;
    char *p = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) goto fail;
    if (slack) {
        size_t before = (HUGE_PAGE - ((uintptr_t)p & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
        if (before) munmap(p, before);
        if (slack - before) munmap(p + before + size, slack - before);
        p += before;
#ifdef MADV_HUGEPAGE
        madvise(p, size, MADV_HUGEPAGE);
#endif
    }
    return p;
fail:
    err_set(err, ERR_EMEMORY, "cannot allocate %zu MiB of memory", bytes >> 20);
    return NULL;
}

void os_pages_free(void *p, size_t bytes) {
    if (p) munmap(p, page_round(bytes));
}

/* ---- Linux text files ---- */

static bool read_text(struct arena *a, const char *path, struct str *out) {
    return os_input_load(a, path, TEXT_BYTES * 16, out, NULL) == 0;
}

/* The value of "key: value" in /proc files, in bytes when it ends in kB. */
static uint64_t proc_value(struct str text, struct str key) {
    struct str line;
    while (str_split_next(&text, '\n', &line)) {
        if (!str_starts(line, key)) continue;
        line = str_trim(str_from(line, key.n));
        struct str number;
        int64_t value;
        str_split_next(&line, ' ', &number);
        if (!str_to_int64(number, &value) || value < 0) return 0;
        return (uint64_t)value * (line.p ? 1024 : 1);
    }
    return 0;
}

/* ---- memory ---- */

void os_memory(struct os_memory *out) {
    struct arena a = {0};
    struct str text;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *out = (struct os_memory){.total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page};
    out->available = out->total;
    if (read_text(&a, "/proc/meminfo", &text)) {
        uint64_t total = proc_value(text, STR("MemTotal:")), available = proc_value(text, STR("MemAvailable:"));
        if (total) out->total = total;
        out->available = available ? available : out->total;
    }
    if (read_text(&a, "/proc/self/cgroup", &text)) cgroup_memory(&a, CGROUP_MOUNT, text, &out->total, &out->available);
    if (read_text(&a, "/proc/self/status", &text)) out->resident = proc_value(text, STR("VmRSS:"));
    if (out->available > out->total) out->available = out->total;
    arena_free(&a);
}

/* ---- processors ---- */

static pthread_once_t cpus_once = PTHREAD_ONCE_INIT;
static int n_cpus = 1, n_cores = 1;
static char cpu_name[128];

#ifdef __linux__

enum { MAX_CPUS = 16384 };

/* Cores: each is counted at the first of its usable hardware threads. */
static int count_cores(struct arena *a, const cpu_set_t *set, size_t set_bytes) {
    int n = 0;
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
        if (!CPU_ISSET_S((size_t)cpu, set_bytes, set)) continue;
        struct str text;
        bool is_first = true;
        int first, last;
        if (read_text(a, str_fmt(a, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu).p, &text))
            while (is_first && cgroup_list_next(&text, &first, &last))
                for (int k = first; k <= last && k < cpu; k++)
                    if (CPU_ISSET_S((size_t)k, set_bytes, set)) is_first = false;
        n += is_first;
    }
    return n;
}

static void count_cpus(struct arena *a) {
    size_t set_bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *set = arena_alloc(a, set_bytes);
    if (sched_getaffinity(0, set_bytes, set) == 0) {
        n_cpus = CPU_COUNT_S(set_bytes, set);
        n_cores = count_cores(a, set, set_bytes);
    } else {
        n_cpus = n_cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    struct str groups;
    int quota = read_text(a, "/proc/self/cgroup", &groups) ? cgroup_quota(a, CGROUP_MOUNT, groups) : 0;
    if (quota && quota < n_cpus) n_cpus = quota;
}

#else

static void count_cpus(struct arena *a) {
    (void)a;
    n_cpus = n_cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
}

#endif

/* ARM chips carry numbers where others carry names. */
static const char *arm_part_name(uint64_t implementer, uint64_t part) {
    static const struct {
        uint16_t implementer, part;
        const char *name;
    } parts[] = {
        {0x41, 0xD03, "Arm Cortex-A53"},  {0x41, 0xD07, "Arm Cortex-A57"},  {0x41, 0xD08, "Arm Cortex-A72"},
        {0x41, 0xD0B, "Arm Cortex-A76"},  {0x41, 0xD0C, "Arm Neoverse N1"}, {0x41, 0xD40, "Arm Neoverse V1"},
        {0x41, 0xD49, "Arm Neoverse N2"}, {0x41, 0xD4F, "Arm Neoverse V2"}, {0x41, 0xD84, "Arm Neoverse V3"},
        {0x41, 0xD8E, "Arm Neoverse N3"}, {0xC0, 0xAC3, "Ampere-1"},        {0xC0, 0xAC4, "Ampere-1A"},
        {0x4E, 0x004, "NVIDIA Carmel"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].implementer == implementer && parts[i].part == part) return parts[i].name;
    return implementer == 0x61 ? "Apple silicon" : NULL;
}

/* "key : value" in /proc/cpuinfo; the first one. */
static struct str cpuinfo(struct str text, struct str key) {
    struct str line;
    while (str_split_next(&text, '\n', &line)) {
        size_t colon = str_find_char(line, ':', 0);
        if (colon != STR_NONE && str_eq(str_trim(str_sub(line, 0, colon)), key)) return str_trim(str_from(line, colon + 1));
    }
    return STR("");
}

static uint64_t hex_value(struct str s) {
    uint64_t value = 0;
    for (size_t i = str_starts(s, STR("0x")) ? 2 : 0; i < s.n; i++) {
        char c = s.p[i];
        value = value * 16 + (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return value;
}

static void find_name(struct arena *a) {
    struct str text;
    if (cpu_brand(cpu_name, sizeof cpu_name)) return;
    if (!read_text(a, "/proc/cpuinfo", &text)) text = STR("");
    struct str model = cpuinfo(text, STR("model name"));
    const char *arm = arm_part_name(hex_value(cpuinfo(text, STR("CPU implementer"))), hex_value(cpuinfo(text, STR("CPU part"))));
    if (model.n == 0) model = str_of(arm ? arm : "unknown processor");
    snprintf(cpu_name, sizeof cpu_name, "%.*s", (int)model.n, model.p);
}

static void find_cpus(void) {
    struct arena a = {0};
    count_cpus(&a);
    if (n_cpus < 1) n_cpus = 1;
    if (n_cores < 1 || n_cores > n_cpus) n_cores = n_cpus;
    find_name(&a);
    arena_free(&a);
}

int os_cpu_count(void) {
    pthread_once(&cpus_once, find_cpus);
    return n_cpus;
}

int os_core_count(void) {
    pthread_once(&cpus_once, find_cpus);
    return n_cores;
}

const char *os_cpu_name(void) {
    pthread_once(&cpus_once, find_cpus);
    return cpu_name;
}

/* ---- what cpu.c asks of the system ---- */

bool cpu_os_grants_amx(void) {
#if defined(__linux__) && defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

uint32_t cpu_os_arm_flags(void) {
    uint32_t flags = 0;
#if defined(__linux__) && defined(__aarch64__)
    /* bits of AT_HWCAP and AT_HWCAP2 that the kernel promises to keep */
    static const struct {
        uint32_t flag;
        int word, bit;
    } rows[] = {{CPU_SHA, 0, 6}, {CPU_FP16, 0, 10}, {CPU_DOTPROD, 0, 20}, {CPU_SVE, 0, 22}, {CPU_I8MM, 1, 13}, {CPU_BF16, 1, 14}};
    const uint64_t words[] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
    flags = CPU_NEON;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (words[rows[i].word] >> rows[i].bit & 1) flags |= rows[i].flag;
#elif defined(__aarch64__)
    flags = CPU_NEON;
#endif
    return flags;
}
