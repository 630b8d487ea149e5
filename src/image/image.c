/* Files to pixels: which format it is, then what all formats have in common. */
#include "image/image_internal.h"

static const struct {
    const char *name;
    const char *magic;
    size_t n, at;
    image_decoder *decode;
} formats[] = {
    {"PNG", "\x89PNG\r\n\x1a\n", sizeof("\x89PNG\r\n\x1a\n") - 1, 0, image_decode_png},
    {"JPEG", "\xff\xd8\xff", sizeof("\xff\xd8\xff") - 1, 0, image_decode_jpeg},
    {"WebP", "WEBP", sizeof("WEBP") - 1, 8, image_decode_webp},
    {"GIF", "GIF87a", sizeof("GIF87a") - 1, 0, image_decode_gif},
    {"GIF", "GIF89a", sizeof("GIF89a") - 1, 0, image_decode_gif},
    {"BMP", "BM", sizeof("BM") - 1, 0, image_decode_bmp},
};

int image_raster_open(struct raster *r, int64_t width, int64_t height, struct err *err) {
    if (width < 1 || height < 1)
        return err_set(err, ERR_EFORMAT, "the picture has no pixels: %lld x %lld", (long long)width, (long long)height);
    if (width > IMAGE_MAX_SIDE || height > IMAGE_MAX_SIDE || width * height > r->max_pixels)
        return err_set(err, ERR_ELIMIT, "the picture has %lld x %lld pixels; at most %d x %d and %g million are taken", (long long)width,
                       (long long)height, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE, (double)r->max_pixels / (1 << 20));
    r->width = (int32_t)width;
    r->height = (int32_t)height;
    r->rgba = mem_try((size_t)width * (size_t)height * 4);
    if (!r->rgba) return err_set(err, ERR_EMEMORY, "no memory for a picture of %lld x %lld pixels", (long long)width, (long long)height);
    memset(r->rgba, 0, (size_t)width * (size_t)height * 4);
    return ERR_OK;
}

int image_open(struct image *image, int32_t width, int32_t height, struct err *err) {
    *image = (struct image){.width = width, .height = height};
    size_t bytes = (size_t)width * (size_t)height * 3;
    image->rgb = width > 0 && height > 0 ? mem_try(bytes) : NULL;
    if (!image->rgb) return err_set(err, ERR_EMEMORY, "no memory for a picture of %d x %d pixels", width, height);
    memset(image->rgb, 0, bytes);
    return ERR_OK;
}

void image_free(struct image *image) {
    mem_free(image->rgb);
    *image = (struct image){0};
}

/* One colour on white, in the fixed-point arithmetic that Pillow has for it. */
static uint8_t on_white(uint32_t colour, uint32_t opacity) {
    uint32_t share = opacity << 7, sum = colour * share + 255 * ((255u << 7) - share) + (0x80 << 7);
    return (uint8_t)((((sum >> 8) + sum) >> 8) >> 7);
}

/* Where a pixel of the turned picture comes from. Orientations above 4 exchange rows and columns. */
static size_t source_of(const struct raster *r, int32_t x, int32_t y) {
    int32_t o = r->orientation, right = r->width - 1, bottom = r->height - 1;
    int32_t column = o > 4 ? y : x, row = o > 4 ? x : y;
    if (o == 2 || o == 3 || o == 7 || o == 8) column = right - column;
    if (o == 3 || o == 4 || o == 6 || o == 7) row = bottom - row;
    return ((size_t)row * (size_t)r->width + (size_t)column) * 4;
}

static int flatten(const struct raster *r, struct image *out, struct err *err) {
    bool turns = r->orientation > 4;
    TRY(image_open(out, turns ? r->height : r->width, turns ? r->width : r->height, err));
    uint8_t *to = out->rgb;
    for (int32_t y = 0; y < out->height; y++)
        for (int32_t x = 0; x < out->width; x++, to += 3) {
            const uint8_t *p = r->rgba + source_of(r, x, y);
            for (int k = 0; k < 3; k++) to[k] = p[3] == 255 ? p[k] : on_white(p[k], p[3]);
        }
    return ERR_OK;
}

int image_decode(struct str file, struct image *out, struct err *err) {
    return image_decode_small(file, IMAGE_MAX_PIXELS, out, err);
}

int image_decode_small(struct str file, int64_t max_pixels, struct image *out, struct err *err) {
    *out = (struct image){0};
    if (file.n == 0) return err_set(err, ERR_EFORMAT, "the picture's file is empty");
    if (file.n > IMAGE_MAX_BYTES)
        return err_set(err, ERR_ELIMIT, "the picture's file has %zu bytes; at most %d are taken", file.n, IMAGE_MAX_BYTES);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!str_eq(str_sub(file, formats[i].at, formats[i].n), str_n(formats[i].magic, formats[i].n))) continue;
        struct raster r = {.max_pixels = max_pixels};
        int code = formats[i].decode(file, &r, err);
        if (!code) code = flatten(&r, out, err);
        mem_free(r.rgba);
        return code ? err_prefix(err, "%s", formats[i].name) : ERR_OK;
    }
    return err_set(err, ERR_EUNSUPPORTED, "no picture that can be read: PNG, JPEG, WebP, GIF and BMP are");
}
