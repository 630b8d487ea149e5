/* The CUDA backend: the functions by which the engine reaches it. */
#include "backend/cuda/cuda.h"

/* Where the system limits how long a step may take (device.step_ms), each step is waited for: the engine sizes the next one by its time. */
static int end_watched(struct backend *be, const struct step *step, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_end(be, step, err));
    return be->device->step_ms ? cuda_note_lost(c, cuda_wait(c, err)) : ERR_OK;
}

static void cuda_describe(struct backend *be, struct sb *out) {
    struct cuda *c = (struct cuda *)be;
    char arch[16];
    bool ptx = c->gpu->about->image.suffix == 'p';
    cuda_arch_format((struct cuda_arch){c->gpu->about->image.number, ptx ? 0 : c->gpu->about->image.suffix}, arch);
    sb_fmt(out, "cuda:%d (%s, %s %s, driver for CUDA %d.%d%s)", c->gpu->about->index, c->gpu->about->name, ptx ? "PTX" : "sm", arch,
           c->d->version / 1000, c->d->version % 1000 / 10, c->exact ? ", exact" : "");
}

const struct backend_type cuda_backend = {
    .name = "cuda",
    .device_open = cuda_gpu_open,
    .device_close = cuda_gpu_close,
    .memory = cuda_gpu_memory,
    .open = cuda_open,
    .close = cuda_close,
    .weight_bind = cuda_weight_bind,
    .weight_release = cuda_weight_release,
    .weight_bytes = cuda_weight_bytes,
    .weight_borrow = cuda_weight_borrow,
    .borrow_bytes = cuda_borrow_bytes,
    .kv_number_bytes = cuda_kv_number_bytes,
    .kv_aside_bytes = cuda_kv_aside_bytes,
    .kv_open = cuda_kv_open,
    .kv_close = cuda_kv_close,
    .kv_borrow = cuda_kv_borrow,
    .block_copy = cuda_block_copy,
    .slot_copy = cuda_slot_copy,
    .block_bytes = cuda_block_bytes,
    .block_read = cuda_block_read,
    .block_write = cuda_block_write,
    .slot_read = cuda_slot_read,
    .slot_write = cuda_slot_write,
    .begin = cuda_begin,
    .end = end_watched,
    .reserve = cuda_reserve,
    .read = cuda_read,
    .read_many = cuda_read_many,
    .send_many = cuda_send_many,
    .follow = cuda_follow,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .choice_begin = cuda_choice_begin,
    .mask_room = cuda_mask_room,
    .chosen = cuda_chosen,
    .plan_device = cuda_plan_device,
    .plan_step = cuda_plan_step,
    .watch_times = cuda_watch_times,
    .describe = cuda_describe,
};
