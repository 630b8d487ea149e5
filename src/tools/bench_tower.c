/* Measuring towers: a made-up picture through the tower of a model, or of a shape. */
#include "tools/bench.h"

#include "api/session_internal.h"
#include "base/fmath.h"
#include "base/hash.h"
#include "os/os.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int run(struct vision *v, const struct bench_tower_plan *plan, struct bench_tower_result *out, struct err *err) {
    size_t bytes = (size_t)plan->width * (size_t)plan->height * 3;
    struct image image = {.width = plan->width, .height = plan->height, .rgb = mem_try(bytes)};
    int code = image.rgb ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for a picture of %d x %d pixels", plan->width, plan->height);
    for (size_t i = 0; !code && i < bytes; i++) image.rgb[i] = (uint8_t)hash_mix(i / 3);
    for (int32_t i = 0; i <= plan->n_repeats && !code; i++) {
        struct vision_picture picture;
        uint64_t start = os_clock_ns(), used = os_cpu_ns();
        code = vision_encode(v, &image, &picture, err);
        if (i) out->seconds[i - 1] = (double)(os_clock_ns() - start) * 1e-9, out->processor[i - 1] = (double)(os_cpu_ns() - used) * 1e-9;
        if (!code) out->n_tokens = picture.n_tokens, vision_picture_free(&picture);
    }
    mem_free(image.rgb);
    struct vision_work work = vision_work(v);
    out->flops = work.flops;
    out->bytes = work.bytes;
    out->n_repeats = plan->n_repeats;
    qsort(out->seconds, (size_t)plan->n_repeats, sizeof *out->seconds, by_value);
    qsort(out->processor, (size_t)plan->n_repeats, sizeof *out->processor, by_value);
    return code;
}

static int run_shape(const struct session_options *o, const struct bench_tower_plan *plan, struct bench_tower_result *out,
                     struct err *err) {
    struct arena a = {0};
    struct device *device = NULL;
    struct backend *be = NULL;
    struct vision *v = NULL;
    struct session_options options = *o;
    options.device = options.device ? options.device : "cpu";
    struct backend_options backend = {.precision = o->precision == SESSION_EXACT ? PRECISION_EXACT : PRECISION_AUTO, .no_fuse = o->no_fuse};
    int code = session_device_open(&options, 0, &device, err);
    if (!code) code = backend_open(device, &backend, &be, err);
    if (!code) code = vision_open_shape(&a, str_of(o->shape), be, &v, err);
    if (!code) code = run(v, plan, out, err);
    vision_close(v);
    if (be) backend_close(be);
    if (device) device_release(device);
    arena_free(&a);
    return code;
}

int bench_tower(const struct session_options *o, const struct bench_tower_plan *plan, struct bench_tower_result *out, struct err *err) {
    struct session *s;
    *out = (struct bench_tower_result){0};
    if (o->shape) return run_shape(o, plan, out, err);
    TRY(session_open(o, &s, err));
    int code = session_check_pictures(s, err);
    if (!code) code = run(s->vision, plan, out, err);
    session_close(s);
    return code;
}
