/* Pictures: files to pixels, and pixels to another size. Nothing here knows a model.
 *
 * (1) A file is told by its first bytes, never by its name. Its size in pixels is read and held against the limits before anything is decoded.
 * (2) Pixels are 8-bit red, green and blue. Grey becomes colour, of 16 bits the upper 8 count, what is transparent lies on white, and an
 *     orientation that a camera noted is applied. Colour profiles are not looked at, as the models' own processors do not.
 * (3) Of several frames the first is taken.
 */
#ifndef MLXCEL_IMAGE_IMAGE_H
#define MLXCEL_IMAGE_IMAGE_H

#include "base/arena.h"
#include "base/str.h"

struct image {
    int32_t width, height;
    uint8_t *rgb; /* [height][width][3] */
};

enum {
    IMAGE_MAX_BYTES = 64 << 20,  /* of a file */
    IMAGE_MAX_SIDE = 65535,      /* pixels */
    IMAGE_MAX_PIXELS = 50 << 20, /* in all; four bytes each while a file is decoded */
};

/* The pixels of a file, which image_free frees. One line says what is wrong with it. */
int image_decode(struct str file, struct image *out, struct err *err);
/* The same with a limit of pixels below IMAGE_MAX_PIXELS. */
int image_decode_small(struct str file, int64_t max_pixels, struct image *out, struct err *err);
void image_free(struct image *image);

enum image_filter { IMAGE_BILINEAR, IMAGE_BICUBIC, IMAGE_LANCZOS };

/* Whose arithmetic resizing has, bit for bit: Pillow's (before its version 13), or torchvision's for pictures of 8 bits, whose weights have 16 bits. */
enum image_arithmetic { IMAGE_AS_PILLOW, IMAGE_AS_TORCH };

/* Another size, by a filter that widens where the picture shrinks: rows first, then columns, each pass rounded to 8 bits. */
int image_resize(const struct image *from, int32_t width, int32_t height, enum image_filter filter, enum image_arithmetic arithmetic,
                 struct image *out, struct err *err);
/* A part of a picture; what lies outside of it is black. */
int image_crop(const struct image *from, int32_t x, int32_t y, int32_t width, int32_t height, struct image *out, struct err *err);

#endif
