/* The KV cache and the recurrent state on the device: pools sized once, blocks and slots numbered by the engine. */
#include "backend/cuda/context/context.h"

enum k_dtype cuda_kv_dtype(const struct cuda *c, const struct kv_class *k) {
    return c->base.kv_bits ? K_I8 : c->exact || k->wide ? K_F32 : K_BF16;
}

int32_t cuda_kv_number_bytes(const struct backend *be, const struct kv_class *k) {
    static const int32_t bytes[] = {[K_F32] = 4, [K_BF16] = 2, [K_I8] = 1};
    return bytes[cuda_kv_dtype((const struct cuda *)be, k)];
}

bool cuda_kv_unpacks(const struct cuda *c, const struct kv_class *k) {
    int32_t d = k->k_width;
    return c->base.kv_bits && !c->exact && (d == 64 || d == 128 || d == 256) && k->v_width == d && c->gpu->functions[KERNEL_attn8_64];
}

bool cuda_kv_borrows(const struct cuda *c, const struct kv_class *k) {
    return cuda_kv_dtype(c, k) == K_BF16 && k->v_width > 0 && !k->picture_rows && c->gpu->functions[KERNEL_kv_fetch] &&
           c->d->cuMemHostRegister && c->d->cuMemHostUnregister;
}

int32_t cuda_kv_aside_bytes(const struct backend *be, const struct kv_class *k) {
    const struct cuda *c = (const struct cuda *)be;
    bool unpacks = k->n_layers && cuda_kv_unpacks(c, k), borrows = k->n_borrowed && cuda_kv_borrows(c, k);
    return unpacks || borrows ? (k->k_width + k->v_width) * 2 : 0;
}

size_t cuda_kv_block_bytes(const struct cuda *c, const struct kv_class *k, int32_t width) {
    if (c->base.kv_bits) return (size_t)k->heads * (size_t)kv8_block_bytes(width);
    return (size_t)k->heads * K_BLOCK * (size_t)width * (size_t)cuda_kv_number_bytes(&c->base, k);
}

int cuda_kv_pool(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err) {
    TRY(cuda_alloc(c, bytes, what, out, err));
    if (bytes) CUDA_TRY(c, c->d->cuMemsetD8Async(*out, 0, bytes, c->stream), "clearing the %s", what);
    return ERR_OK;
}

int cuda_kv_open(struct backend *be, const struct kv_layout *layout, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    cuda_kv_close(be);
    c->kept_back = RESERVE_BYTES;
    c->layout = *layout;
    for (int32_t i = 0; i < layout->n_classes; i++) {
        struct cuda_kv_class *k = &c->kv[i];
        size_t blocks = (size_t)layout->classes[i].n_layers * (size_t)layout->classes[i].n_blocks;
        k->shape = layout->classes[i];
        if (c->base.kv_bits) TRY(backend_kv_check(c->base.kv_bits, &k->shape, err));
        TRY(cuda_kv_pool(c, blocks * cuda_kv_block_bytes(c, &k->shape, k->shape.k_width), "KV cache", &k->k, err));
        TRY(cuda_kv_pool(c, blocks * cuda_kv_block_bytes(c, &k->shape, k->shape.v_width), "KV cache", &k->v, err));
        if (!cuda_kv_unpacks(c, &k->shape) || !k->shape.n_layers) continue;
        size_t numbers = (size_t)k->shape.n_blocks * (size_t)k->shape.heads * K_BLOCK * (size_t)k->shape.k_width;
        TRY(cuda_kv_pool(c, numbers * 2, "a layer of the KV cache in 16 bits", &k->unpacked_k, err));
        TRY(cuda_kv_pool(c, numbers * 2, "a layer of the KV cache in 16 bits", &k->unpacked_v, err));
    }
    c->state_total = 0;
    for (int32_t i = 0; i < layout->n_states; i++) {
        c->state_offsets[i] = c->state_total;
        c->state_total += layout->states[i].elements;
    }
    return cuda_kv_pool(c, (size_t)c->state_total * (size_t)layout->n_slots * sizeof(float), "recurrent state", &c->states, err);
}

/* What the host has lent (borrow_kv.c). */
static void give_back(struct cuda *c, struct cuda_kv_class *k) {
    if (k->lent.k) c->d->cuMemHostUnregister(k->lent.k);
    if (k->lent.k) c->d->cuMemHostUnregister(k->lent.v);
    cuda_free(c, &k->guest_k);
    cuda_free(c, &k->guest_v);
}

void cuda_kv_close(struct backend *be) {
    struct cuda *c = (struct cuda *)be;
    cuda_use(c, NULL);
    if (c->stream) c->d->cuStreamSynchronize(c->stream);
    cuda_ranks_rest(c);
    cuda_graphs_drop(c);
    for (int32_t i = 0; i < KV_CLASSES_MAX; i++) {
        cuda_free(c, &c->kv[i].k);
        cuda_free(c, &c->kv[i].v);
        cuda_free(c, &c->kv[i].unpacked_k);
        cuda_free(c, &c->kv[i].unpacked_v);
        give_back(c, &c->kv[i]);
        c->kv[i] = (struct cuda_kv_class){0};
    }
    cuda_free(c, &c->states);
    cuda_free(c, &c->said);
    cuda_free(c, &c->biases);
    cuda_masks_close(c);
    cuda_free(c, &c->masks);
    cuda_step_close(c);
    c->layout = (struct kv_layout){0};
}

int cuda_block_copy(struct backend *be, int32_t kv_class, int32_t from, int32_t to, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    const struct cuda_kv_class *k = &c->kv[kv_class];
    for (int32_t layer = 0; layer < k->shape.n_layers; layer++) {
        size_t first = (size_t)layer * (size_t)k->shape.n_blocks, bytes = cuda_kv_block_bytes(c, &k->shape, k->shape.k_width);
        CUDA_TRY(c, c->d->cuMemcpyDtoDAsync(k->k + (first + (size_t)to) * bytes, k->k + (first + (size_t)from) * bytes, bytes, c->stream),
                 "copying a KV block");
        if (!k->v) continue;
        bytes = cuda_kv_block_bytes(c, &k->shape, k->shape.v_width);
        CUDA_TRY(c, c->d->cuMemcpyDtoDAsync(k->v + (first + (size_t)to) * bytes, k->v + (first + (size_t)from) * bytes, bytes, c->stream),
                 "copying a KV block");
    }
    return ERR_OK;
}

int cuda_slot_copy(struct backend *be, int32_t from, int32_t to, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_use(c, err));
    size_t bytes = (size_t)c->state_total * sizeof(float);
    CUDA_TRY(c, c->d->cuMemcpyDtoDAsync(c->states + (size_t)to * bytes, c->states + (size_t)from * bytes, bytes, c->stream),
             "copying recurrent state");
    return ERR_OK;
}

/* ---- blocks and slots in and out ---------------------------------------------------------------------------------------- */

size_t cuda_block_bytes(const struct backend *be, int32_t kv_class, const char **out_layout) {
    const struct cuda *c = (const struct cuda *)be;
    const struct kv_class *k = &c->kv[kv_class].shape;
    static const char *const names[] = {[K_F32] = "cuda-f32", [K_BF16] = "cuda-bf16", [K_I8] = "cuda-i8"};
    *out_layout = names[cuda_kv_dtype(c, k)];
    return (cuda_kv_block_bytes(c, k, k->k_width) + cuda_kv_block_bytes(c, k, k->v_width)) * (size_t)k->n_layers;
}

/* Copies go through the stream of the steps, so they come after what was launched before. */
static int copies_done(struct cuda *c, struct err *err) {
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "copying the KV cache");
    return ERR_OK;
}

/* The keys or values of a block, layer by layer, to `out` or from `in`; one of them is NULL. Pinned memory is copied without a detour. */
static int move_block(struct cuda *c, const struct kv_class *k, CUdeviceptr pool, int32_t width, int32_t block, unsigned char *out,
                      const unsigned char *in, struct err *err) {
    size_t bytes = cuda_kv_block_bytes(c, k, width);
    for (size_t layer = 0; bytes && layer < (size_t)k->n_layers; layer++) {
        CUdeviceptr at = pool + (layer * (size_t)k->n_blocks + (size_t)block) * bytes;
        if (out) CUDA_TRY(c, c->d->cuMemcpyDtoHAsync(out + layer * bytes, at, bytes, c->stream), "reading the KV cache");
        else CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(at, in + layer * bytes, bytes, c->stream), "writing the KV cache");
    }
    return ERR_OK;
}

int cuda_block_read(struct backend *be, int32_t kv_class, int32_t block, void *dst, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    const struct cuda_kv_class *k = &c->kv[kv_class];
    size_t keys = cuda_kv_block_bytes(c, &k->shape, k->shape.k_width) * (size_t)k->shape.n_layers;
    TRY(cuda_use(c, err));
    TRY(move_block(c, &k->shape, k->k, k->shape.k_width, block, dst, NULL, err));
    TRY(move_block(c, &k->shape, k->v, k->shape.v_width, block, (unsigned char *)dst + keys, NULL, err));
    return copies_done(c, err);
}

int cuda_block_write(struct backend *be, int32_t kv_class, int32_t block, const void *src, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    const struct cuda_kv_class *k = &c->kv[kv_class];
    size_t keys = cuda_kv_block_bytes(c, &k->shape, k->shape.k_width) * (size_t)k->shape.n_layers;
    TRY(cuda_use(c, err));
    TRY(move_block(c, &k->shape, k->k, k->shape.k_width, block, NULL, src, err));
    TRY(move_block(c, &k->shape, k->v, k->shape.v_width, block, NULL, (const unsigned char *)src + keys, err));
    return copies_done(c, err);
}

int cuda_slot_read(struct backend *be, int32_t slot, float *dst, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    size_t bytes = (size_t)c->state_total * sizeof *dst;
    TRY(cuda_use(c, err));
    CUDA_TRY(c, c->d->cuMemcpyDtoHAsync(dst, c->states + (size_t)slot * bytes, bytes, c->stream), "reading recurrent state");
    return copies_done(c, err);
}

int cuda_slot_write(struct backend *be, int32_t slot, const float *src, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    size_t bytes = (size_t)c->state_total * sizeof *src;
    TRY(cuda_use(c, err));
    return cuda_upload(c, c->states + (size_t)slot * bytes, src, bytes, "recurrent state", err);
}
