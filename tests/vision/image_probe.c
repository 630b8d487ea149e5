/* Pictures for the tests: image_probe FILE [WIDTH HEIGHT bilinear|bicubic|lanczos] writes a PPM, "-" with many files only says what became of each. */
#include "image/image.h"
#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>

static int decode(const char *path, struct image *out, struct err *err) {
    struct arena a = {0};
    struct str file;
    *out = (struct image){0};
    int code = os_file_load(&a, path, 1 << 30, &file, err);
    if (!code) code = image_decode(file, out, err);
    arena_free(&a);
    return code;
}

static int report(int n, char **paths) {
    for (int i = 0; i < n; i++) {
        struct image image;
        struct err err = {0};
        if (decode(paths[i], &image, &err)) printf("%s: %s\n", paths[i], err.msg);
        else printf("%s: %d x %d\n", paths[i], image.width, image.height);
        image_free(&image);
    }
    return 0;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"bilinear", "bicubic", "lanczos"};
    struct image image, resized;
    struct err err = {0};
    if (argc > 2 && strcmp(argv[1], "-") == 0) return report(argc - 2, argv + 2);
    if (argc != 2 && argc != 5) return 2;
    int code = decode(argv[1], &image, &err);
    if (!code && argc == 5) {
        int filter = 0;
        while (filter < 2 && strcmp(names[filter], argv[4]) != 0) filter++;
        code = image_resize(&image, atoi(argv[2]), atoi(argv[3]), (enum image_filter)filter, IMAGE_AS_PILLOW, &resized, &err);
        image_free(&image);
        image = resized;
    }
    if (code) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    printf("P6 %d %d 255\n", image.width, image.height);
    fwrite(image.rgb, 3, (size_t)image.width * (size_t)image.height, stdout);
    image_free(&image);
    return 0;
}
