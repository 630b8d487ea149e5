/* The staircase: reference kernels first, then each better instruction set overrides what it has, oldest to newest. */
#include "backend/cpu/kern.h"

#include "os/cpu.h"

#include <stddef.h>

void kern_select(struct kernels *k, uint32_t flags) {
    kern_ref(k);
#if defined(__x86_64__)
    if (flags & CPU_AVX2) {
        kern_avx2(k);
        kern_avx2_plain(k);
        kern_avx2_nested(k);
        kern_kv_avx2(k);
    }
    if ((flags & CPU_AVX2) && (flags & CPU_AVXVNNI)) kern_avxvnni(k);
    if (flags & CPU_AVX512) {
        kern_avx512(k);
        kern_avx512_plain(k);
    }
    if ((flags & CPU_AVX512) && (flags & CPU_VNNI)) {
        kern_vnni(k);
        kern_vnni_nested(k);
        kern_kv_vnni(k);
        if (flags & CPU_AMX_INT8) {
            kern_amx(k);
            kern_amx_nested(k);
            if ((flags & CPU_AMX_BF16) && (flags & CPU_AVX512BF16)) kern_amx_plain(k);
        }
    }
#elif defined(__aarch64__)
    if (flags & CPU_NEON) {
        kern_neon(k);
        kern_neon_plain(k);
    }
    if (flags & CPU_FP16) kern_half(k);
    if (flags & CPU_DOTPROD) {
        kern_dotprod(k);
        kern_dotprod_nested(k);
        kern_kv_dotprod(k);
        if (flags & CPU_I8MM) {
            kern_i8mm(k);
            if (flags & CPU_BF16) kern_bfmmla(k);
        }
    }
#else
    (void)flags;
#endif
}

void kern_describe(uint32_t flags, struct sb *out) {
    typedef void any_fn(void);
    static const char *const levels[] = {"ref", "avx2", "avxvnni", "avx512", "vnni", "amx", "neon", "dotprod", "i8mm", "bf16"};
    static const struct {
        const char *what;
        size_t at;
    } parts[] = {
        {"integer products", offsetof(struct kernels, panel)},   {"quantised rows", offsetof(struct kernels, quant_row)},
        {"nested scales", offsetof(struct kernels, nested)},     {"float products", offsetof(struct kernels, dot)},
        {"bf16 products", offsetof(struct kernels, bf16.panel)}, {"f16 products", offsetof(struct kernels, f16.panel)},
        {"half products", offsetof(struct kernels, half_panel)}, {"f32 products", offsetof(struct kernels, f32.panel)},
        {"plain rows", offsetof(struct kernels, plain)},         {"attention scores", offsetof(struct kernels, block_scores)},
        {"attention mix", offsetof(struct kernels, block_mix)},  {"small cache", offsetof(struct kernels, kv_scores)},
        {"activations", offsetof(struct kernels, act)},          {"sums, norms", offsetof(struct kernels, sum_squares)},
        {"exponentials", offsetof(struct kernels, exp_sum)},     {"unpacking", offsetof(struct kernels, unpack)},
    };
    struct kernels best;
    kern_select(&best, flags);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *from = "none";
        any_fn *chosen, *at_level;
        memcpy(&chosen, (const char *)&best + parts[i].at, sizeof chosen);
        for (size_t k = 0; k < sizeof levels / sizeof *levels && chosen; k++) {
            struct kernels level;
            uint32_t mask;
            if (cpu_level_parse(str_of(levels[k]), &mask, NULL)) continue;
            kern_select(&level, flags & mask);
            memcpy(&at_level, (const char *)&level + parts[i].at, sizeof at_level);
            if (at_level != chosen) continue;
            from = level.isa;
            break;
        }
        sb_fmt(out, "%-18s  %s\n", parts[i].what, from);
    }
}
