/* Between image.c and the files that know one format each. */
#ifndef MLXCEL_IMAGE_IMAGE_INTERNAL_H
#define MLXCEL_IMAGE_IMAGE_INTERNAL_H

#include "image/image.h"

/* What a file has: red, green, blue and opacity of each pixel. */
struct raster {
    int32_t width, height;
    uint8_t *rgba;       /* [height][width][4], mem_free */
    int32_t orientation; /* 1 to 8 as EXIF counts them; 0: none was noted */
    int64_t max_pixels;  /* as the caller limits them */
};

/* Decoders fill a raster; on failure its memory, if any, is freed by the caller. */
typedef int image_decoder(struct str file, struct raster *out, struct err *err);
image_decoder image_decode_png, image_decode_jpeg, image_decode_webp, image_decode_gif, image_decode_bmp;

/* Checks a size against the limits and takes the memory for it. */
int image_raster_open(struct raster *r, int64_t width, int64_t height, struct err *err);
static inline uint8_t *image_raster_row(const struct raster *r, int32_t y) {
    return r->rgba + (size_t)y * (size_t)r->width * 4;
}
/* The orientation in a block of EXIF ("II*" or "MM*" at its front); 0: it has none. */
int32_t image_exif_orientation(struct str tiff);

/* An image of this size, its pixels black. */
int image_open(struct image *image, int32_t width, int32_t height, struct err *err);

static inline uint32_t le16(const char *p) {
    const uint8_t *b = (const uint8_t *)p;
    return b[0] | (uint32_t)b[1] << 8;
}
static inline uint32_t le32(const char *p) {
    return le16(p) | le16(p + 2) << 16;
}

#endif
