// Lists of quantised weights (kernels/one.cu) over a cache of 8 bits, and their attention by itself, for lists that no launch can run. Kernels of their own: both kinds of attention
// in one would take registers from the products. For sm_80 and later.
#define ONE_CACHE_8
#include "one_attn.cuh"

template <int WARPS, int D> static __device__ __forceinline__ void run_list_item8(const k_instr &in, shared_head *head, known_item *known, unsigned char *room, float *parts, int item, uint32_t *count) {
    const k_step_attn &a = in.u.attn;
    if (!knows_item(a, head, known, item)) know_item(a, head, known, item);
    run_item8<WARPS, D>(a, known, angles_of(a, head, 0), room, parts, head->tag + a.qkv_maker, head->tag + in.number, count);
}

#include "one.cu"

#ifndef ONE_MIXED
ONE(one8_4_64, W4, LIST_WARPS, 64)
ONE(one8_4_128, W4, LIST_WARPS, 128)
ONE(one8_48_64, W48, LIST_WARPS, 64)
ONE(one8_48_128, W48, LIST_WARPS, 128)
ONE(one8_groups_64, WG, LIST_WARPS, 64)
ONE(one8_groups_128, WG, LIST_WARPS, 128)
ONE(one8_experts_64, W4E, LIST_WARPS, 64)
ONE(one8_experts_128, W4E, LIST_WARPS, 128)

// The attention of a row: a block for each item. Shared memory: as of lists, without rings.
#define STEP8(d)                                                                                             \
    extern "C" __global__ void __launch_bounds__(LIST_WARPS * 32, 1) step8_attn_##d(KARGS(k_step_run) a) { \
        DYNAMIC_SHARED(unsigned char, smem);                                                                 \
        shared_head *head = (shared_head *)smem;                                                             \
        if (threadIdx.x < K_INSTR_BYTES / 4) ((uint32_t *)smem)[threadIdx.x] = ((const uint32_t *)&a.one)[threadIdx.x]; \
        if (threadIdx.x == 0) head->known[0].item = -1, head->tag = 0;                                                 \
        __syncthreads();                                                                                     \
        run_list_item8<LIST_WARPS, d>(head->slots[0], head, &head->known[0], smem + rings_at<LIST_WARPS>(), (float *)(smem + HEAD_BYTES), blockIdx.x, a.barrier); \
    }
STEP8(64)
STEP8(128)
#endif
