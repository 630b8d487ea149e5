/* Layers whose cache stays in the host's memory: a prompt's step computes with them here.
 *
 * A class has room for one such layer, the guest. Before new positions of a lent layer are written, what its sequences have of it is fetched from the
 * host's memory; behind them the new positions go back (kernels/lent.cu, lower/lower_borrow.c). Kernels read and write that memory themselves, so it must be pinned. */
#include "backend/cuda/context/context.h"

static int open_guest(struct cuda *c, struct cuda_kv_class *k, struct err *err) {
    size_t blocks = (size_t)k->shape.n_blocks;
    const char *what = "a layer of the CPU's KV cache";
    TRY(cuda_kv_pool(c, blocks * cuda_kv_block_bytes(c, &k->shape, k->shape.k_width), what, &k->guest_k, err));
    return cuda_kv_pool(c, blocks * cuda_kv_block_bytes(c, &k->shape, k->shape.v_width), what, &k->guest_v, err);
}

static bool pin(struct cuda *c, void *p, size_t bytes, CUdeviceptr *out) {
    if (c->d->cuMemHostRegister(p, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) != CUDA_SUCCESS) return false;
    if (c->d->cuMemHostGetDevicePointer(out, p, 0) == CUDA_SUCCESS) return true;
    c->d->cuMemHostUnregister(p);
    return false;
}

int cuda_kv_borrow(struct backend *be, int32_t kv_class, const struct kv_lent *lent, bool *out_does, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    struct cuda_kv_class *k = &c->kv[kv_class];
    *out_does = false;
    TRY(cuda_use(c, err));
    if (!cuda_kv_borrows(c, &k->shape)) return ERR_OK;
    TRY(open_guest(c, k, err));
    if (!pin(c, lent->k, lent->k_bytes, &k->lent_k)) return ERR_OK;
    if (pin(c, lent->v, lent->v_bytes, &k->lent_v)) {
        k->lent = *lent;
        *out_does = true;
    } else c->d->cuMemHostUnregister(lent->k);
    return ERR_OK;
}
