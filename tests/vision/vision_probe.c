/* The tower by itself, for the tests: vision_probe MODEL FILE [rough] [DEVICE] writes what it makes of a picture: how many tiles it has, numbers of a patch, rows, sets
 * and numbers of a row (five int32); patches down and across of each tile (two int32), and its pixels as f32; then the rows of every set. */
#include "model/model.h"
#include "os/os.h"
#include "vision/vision_internal.h"

#include <stdio.h>

/* In the order of the reference's processor: windows are left out. */
static int write_tiles(struct vision *v, struct arena *a, const struct tiles *t, struct err *err) {
    int32_t window = v->window;
    v->window = 0;
    for (int32_t i = 0; i < t->n; i++) {
        struct patches p;
        TRY(processor_cut(v, a, &t->images[i], &p, err));
        int32_t size[] = {p.height, p.width};
        fwrite(size, sizeof size, 1, stdout);
        fwrite(p.pixels, sizeof(float), (size_t)p.n * (size_t)p.numbers, stdout);
    }
    v->window = window;
    return ERR_OK;
}

static int probe(const struct checkpoint *c, struct backend *be, const char *path, struct err *err) {
    struct arena a = {0};
    struct spec spec;
    struct tensor_store store = model_checkpoint_store(c);
    struct vision *v;
    struct str file;
    struct image image;
    struct vision_picture picture;
    struct tiles tiles;
    TRY(spec_resolve(&a, &c->config, &spec, err));
    TRY(vision_open(c, &store, be, spec.hidden, &v, err));
    TRY(os_file_load(&a, path, 1 << 30, &file, err));
    TRY(image_decode(file, &image, err));
    TRY(tiles_make(v, &a, &image, &tiles, err));
    TRY(vision_encode(v, &image, &picture, err));
    int32_t head[] = {tiles.n, 3 * v->frames * v->patch * v->patch, picture.n_rows, vision_facts(v).n_sets, spec.hidden};
    fwrite(head, sizeof head, 1, stdout);
    TRY(write_tiles(v, &a, &tiles, err));
    for (int32_t i = 0; i < head[3]; i++) fwrite(picture.rows[i], sizeof(float), (size_t)head[2] * (size_t)head[4], stdout);
    vision_picture_free(&picture);
    tiles_free(&tiles);
    image_free(&image);
    vision_close(v);
    arena_free(&a);
    return ERR_OK;
}

int main(int argc, char **argv) {
    struct checkpoint c;
    struct device *device;
    struct backend *be;
    struct err err = {0};
    bool is_rough = argc > 3 && strcmp(argv[3], "rough") == 0; /* as the program computes where nobody asks for more */
    const struct backend_type *type = argc > 3 + is_rough ? backend_find(str_of(argv[3 + is_rough])) : &cpu_backend;
    if (argc < 3 || !type) return 2;
    int code = checkpoint_open(argv[1], &c, &err);
    if (!code) code = device_open(type, &(struct device_options){.n_threads = 2}, &device, &err);
    if (!code) code = backend_open(device, &(struct backend_options){.precision = is_rough ? PRECISION_AUTO : PRECISION_EXACT}, &be, &err);
    if (!code) code = probe(&c, be, argv[2], &err);
    if (code) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    backend_close(be);
    device_release(device);
    checkpoint_close(&c);
    return 0;
}
