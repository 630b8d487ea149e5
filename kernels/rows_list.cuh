// kernels/few.cu and several.cu: a list of instructions of several rows. Each row has the bits that it has alone.
#pragma once
#include "one_attn.cuh"
#include "rows_product.cuh"

// Items of all rows, one behind the other; a block keeps what it knows of as many as a step has rows.
template <int KIND, int WARPS, int D> static __device__ __forceinline__ void run_attention_of_rows(const k_step_run &run, const k_instr &in, shared_head *head, float *heads, float *parts) {
    int items = in.u.attn.rows * items_of_row(in.u.attn);
#pragma unroll 1
    for (int item = gridDim.x - 1 - blockIdx.x, k = 0; item < items; item += gridDim.x, k++) {
        run_list_item<KIND, WARPS, D>(in, head, &head->known[k < ROWS ? k : ROWS - 1], heads, parts, item, run.barrier);
        __syncthreads();
    }
}

// Their first keys and values are on their way while the product before them runs.
template <int WARPS, int D> static __device__ __forceinline__ void ask_items(const k_step_attn &a, const shared_head *head) {
    int items = a.rows * items_of_row(a);
#pragma unroll 1
    for (int item = gridDim.x - 1 - blockIdx.x, k = 0; item < items && k < ROWS; item += gridDim.x, k++) ask_item<WARPS, D>(a, &head->known[k]);
}

template <int KIND, int WARPS, int D> static __device__ __forceinline__ void run_list_of_rows(const k_step_run &a, unsigned char *smem) {
    shared_head *head = (shared_head *)smem;
    unsigned char *places = smem + HEAD_BYTES + rows_sums_bytes(SMALL_SHARED), *room = places + WARPS * a.depth * place_bytes<KIND>();
    int n_instrs = a.n;
    rows_ring r;
    uint32_t arrivals = 0;
    begin_list<WARPS>(a, head);
    begin_rows_ring<KIND, WARPS>(r, a, head, places);
#pragma unroll 1
    while (r.under_way < r.depth && has_rows_unit<KIND, WARPS>(r.c, head, AHEAD_INSTRS < n_instrs ? AHEAD_INSTRS : n_instrs)) fetch_rows<KIND, WARPS>(r, head);
#pragma unroll 1
    for (int i = 0; i < n_instrs; i++) {
        const k_instr &in = head->slots[i % SLOTS];
        if (in.waits) grid_barrier(a.barrier, arrivals += gridDim.x);
        if (in.kind == K_STEP_X) make_x<KIND, WARPS>(a, in, head, smem, i);
        else if (in.kind == K_STEP_LINEAR) {
            const k_instr &next = head->slots[(i + 1) % SLOTS];
            if (i + 1 < n_instrs && next.kind == K_STEP_ATTN) ask_items<WARPS, D>(next.u.attn, head);
            run_product_of_rows<KIND, WARPS>(a, in, head, smem, room, r, i, i + LOOK + 1 < n_instrs ? i + LOOK + 1 : n_instrs);
        } else {
            coming next = begin_instr(a, head, i);
            run_attention_of_rows<KIND, WARPS, D>(a, in, head, (float *)room, (float *)(smem + HEAD_BYTES));
            end_instr(next, head, i);
            __syncthreads();
        }
    }
    copy_wait<0>();
    if (a.tags) leave_rows(a, head);
}

#define ROWS_LIST(name, kind, d)                                                                 \
    extern "C" __global__ void __launch_bounds__(LIST_WARPS * 32, 1) name(KARGS(k_step_run) a) { \
        DYNAMIC_SHARED(unsigned char, smem);                                                     \
        run_list_of_rows<kind, LIST_WARPS, d>(a, smem);                                          \
    }
