/* The staircase: reference kernels first, then each better instruction set overrides what it has, oldest to newest. */
#include "backend/cpu/kern.h"

#include "os/cpu.h"

void kern_select(struct kernels *k, uint32_t flags) {
    kern_ref(k);
#if defined(__x86_64__)
    if (flags & CPU_AVX2) kern_avx2(k);
    if ((flags & CPU_AVX512) && (flags & CPU_VNNI)) {
        kern_vnni(k);
        if (flags & CPU_AMX_INT8) kern_amx(k);
    }
#elif defined(__aarch64__)
    if (flags & CPU_NEON) kern_neon(k);
    if (flags & CPU_DOTPROD) {
        kern_dotprod(k);
        if (flags & CPU_I8MM) kern_i8mm(k);
    }
#else
    (void)flags;
#endif
}
