/* CPU features: detection on x86 by cpuid, on arm64 by the system's word, then the mask. */
#include "os/cpu_internal.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct {
    const char *name;
} flag_rows[N_CPU_FLAGS] = {
#define X(id, name, text) [CPU_INDEX_##id] = {name},
    CPU_FLAGS(X)
#undef X
};

/* From low to high within each family; a level holds its own flags and those of the rows above it in the same family. */
static const struct level {
    const char *name;
    uint32_t family;
    uint32_t flags;
} levels[] = {
    {"ref", 0, 0},
    {"avx2", 1, CPU_AVX2 | CPU_SHA},
    {"avxvnni", 1, CPU_AVXVNNI},
    {"avx512", 1, CPU_AVX512},
    {"vnni", 1, CPU_VNNI | CPU_AVX512BF16},
    {"amx", 1, CPU_AMX_INT8 | CPU_AMX_BF16},
    {"neon", 2, CPU_NEON | CPU_SHA},
    {"dotprod", 2, CPU_DOTPROD | CPU_FP16},
    {"i8mm", 2, CPU_I8MM},
    {"bf16", 2, CPU_BF16 | CPU_SVE},
};

#if defined(__x86_64__)

static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has(uint32_t reg, int bit) {
    return reg >> bit & 1;
}

static uint32_t detect(void) {
    enum { XCR0_YMM = 0x06, XCR0_ZMM = 0xE6, XCR0_TILES = 0x60000 };
    uint32_t a, b, c, d, b7, c7, d7, a71 = 0, flags = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, 27 /* OSXSAVE */)) return 0;
    bool avx = has(c, 28) && has(c, 12 /* FMA */) && has(c, 29 /* F16C */);
    uint64_t xcr0 = read_xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return 0;
    uint32_t max_sub = a;
    if (max_sub >= 1) __get_cpuid_count(7, 1, &a71, &b, &c, &d);
    if (!avx || (xcr0 & XCR0_YMM) != XCR0_YMM || !has(b7, 5) || !has(b7, 8 /* BMI2 */)) return 0;
    flags |= CPU_AVX2;
    if (has(b7, 29)) flags |= CPU_SHA;
    if (has(a71, 4)) flags |= CPU_AVXVNNI;
    bool zmm = has(b7, 16 /* F */) && has(b7, 30 /* BW */) && has(b7, 17 /* DQ */) && has(b7, 31 /* VL */);
    if (!zmm || (xcr0 & XCR0_ZMM) != XCR0_ZMM) return flags;
    flags |= CPU_AVX512;
    if (has(c7, 11)) flags |= CPU_VNNI;
    if (has(a71, 5)) flags |= CPU_AVX512BF16;
    if (!has(d7, 24 /* tiles */) || (xcr0 & XCR0_TILES) != XCR0_TILES || !cpu_os_grants_amx()) return flags;
    if (has(d7, 25)) flags |= CPU_AMX_INT8;
    if (has(d7, 22)) flags |= CPU_AMX_BF16;
    return flags;
}

bool cpu_brand(char *out, size_t out_bytes) {
    uint32_t words[12];
    char text[sizeof words + 1] = {0};
    for (uint32_t i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &words[i * 4], &words[i * 4 + 1], &words[i * 4 + 2], &words[i * 4 + 3])) return false;
    memcpy(text, words, sizeof words);
    struct str name = str_trim(str_of(text));
    if (name.n == 0 || name.n >= out_bytes) return false;
    memcpy(out, name.p, name.n);
    out[name.n] = 0;
    return true;
}

#else

static uint32_t detect(void) {
    return cpu_os_arm_flags();
}

bool cpu_brand(char *out, size_t out_bytes) {
    (void)out;
    (void)out_bytes;
    return false;
}

#endif

/* Detection gives the same answer each time, so that threads which race to be first do no harm. */
enum { FLAGS_KNOWN = 1u << 30 };
static _Atomic uint32_t found_flags;
static _Atomic uint32_t flags_mask = UINT32_MAX;

uint32_t cpu_flags(void) {
    uint32_t found = atomic_load_explicit(&found_flags, memory_order_relaxed);
    if (!found) {
        found = detect() | FLAGS_KNOWN;
        atomic_store_explicit(&found_flags, found, memory_order_relaxed);
    }
    return found & ~(uint32_t)FLAGS_KNOWN & atomic_load_explicit(&flags_mask, memory_order_relaxed);
}

void cpu_flags_mask(uint32_t mask) {
    atomic_store_explicit(&flags_mask, mask, memory_order_relaxed);
}

bool cpu_flags_masked(void) {
    return atomic_load_explicit(&flags_mask, memory_order_relaxed) != UINT32_MAX;
}

int cpu_level_parse(struct str name, uint32_t *out_mask, struct err *err) {
    size_t n = sizeof levels / sizeof levels[0];
    struct sb known = {0};
    for (size_t i = 0; i < n; i++) {
        sb_fmt(&known, "%s%s", i ? ", " : "", levels[i].name);
        if (!str_is(name, levels[i].name)) continue;
        uint32_t mask = 0;
        for (size_t k = 0; k <= i; k++)
            if (levels[k].family == levels[i].family) mask |= levels[k].flags;
        *out_mask = mask;
        sb_free(&known);
        return 0;
    }
    err_set(err, ERR_EARG, "unknown CPU level \"%.*s\", known are: %s", STR_ARG(str_sub(name, 0, 60)), known.p);
    sb_free(&known);
    return ERR_EARG;
}

void cpu_describe(struct sb *out) {
    uint32_t flags = cpu_flags();
    const char *gap = "";
    for (int i = 0; i < N_CPU_FLAGS; i++) {
        if (!(flags >> i & 1)) continue;
        sb_fmt(out, "%s%s", gap, flag_rows[i].name);
        gap = " ";
    }
    if (!flags) sb_puts(out, "ref");
}
