/* What the processor can do, in the bundles in which chips really offer it.
 *
 * A flag is set only when the operating system also saves the registers that it needs. The mask takes flags away: tests
 * use it to run every kernel level on one machine, users to name a level by --cpu.
 */
#ifndef MLXCEL_OS_CPU_H
#define MLXCEL_OS_CPU_H

#include "base/str.h"

/* id, name, what it stands for */
#define CPU_FLAGS(X)                                 \
    X(AVX2, "avx2", "AVX2, FMA, F16C, BMI2")         \
    X(AVX512, "avx512", "AVX-512 F, BW, DQ, VL")     \
    X(VNNI, "vnni", "AVX-512 VNNI")                  \
    X(AVXVNNI, "avxvnni", "AVX VNNI (256 bits)")     \
    X(AVX512BF16, "avx512bf16", "AVX-512 BF16")      \
    X(AMX_INT8, "amx-int8", "AMX tiles of int8")     \
    X(AMX_BF16, "amx-bf16", "AMX tiles of bfloat16") \
    X(NEON, "neon", "Advanced SIMD")                 \
    X(DOTPROD, "dotprod", "int8 dot products")       \
    X(FP16, "fp16", "half-precision arithmetic")     \
    X(I8MM, "i8mm", "int8 matrix products")          \
    X(BF16, "bf16", "bfloat16 products")             \
    X(SVE, "sve", "Scalable Vector Extension")       \
    X(SHA, "sha", "SHA-256")

enum cpu_flag_index {
#define X(id, name, text) CPU_INDEX_##id,
    CPU_FLAGS(X)
#undef X
        N_CPU_FLAGS
};

enum cpu_flag {
#define X(id, name, text) CPU_##id = 1 << CPU_INDEX_##id,
    CPU_FLAGS(X)
#undef X
};

/* Flags of this machine under the mask. Cached; safe from any thread. */
uint32_t cpu_flags(void);
/* Flags outside the mask are no longer reported. Meant for the start of the program and for tests. */
void cpu_flags_mask(uint32_t mask);
/* Whether a mask is set. */
bool cpu_flags_masked(void);

/* The mask of a level name: that bundle and all below it ("ref": nothing). Levels of both processor families are known
 * everywhere. ERR_EARG names the known ones. */
int cpu_level_parse(struct str name, uint32_t *out_mask, struct err *err);

/* The names of the flags in use, separated by spaces; "ref" when there are none. */
void cpu_describe(struct sb *out);

#endif
