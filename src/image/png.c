/* PNG, by libpng. */
#include "image/image_internal.h"

#include <png.h>
#include <setjmp.h>

struct source {
    struct str rest;
    struct err *err;
};

static void on_error(png_structp png, png_const_charp message) {
    struct source *s = png_get_error_ptr(png);
    err_set(s->err, ERR_EFORMAT, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png, (void)message;
}

static void on_read(png_structp png, png_bytep out, size_t n) {
    struct source *s = png_get_io_ptr(png);
    if (n > s->rest.n) png_error(png, "the file ends too early");
    memcpy(out, s->rest.p, n);
    s->rest = str_from(s->rest, n);
}

/* Whatever the file has becomes red, green, blue and opacity of 8 bits. */
static void ask_for_rgba(png_structp png) {
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_gray_to_rgb(png);
    png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
}

static int32_t orientation_of(png_structp png, png_infop info) {
#ifdef PNG_eXIf_SUPPORTED
    png_bytep exif = NULL;
    png_uint_32 n = 0;
    if (png_get_eXIf_1(png, info, &n, &exif)) return image_exif_orientation(str_n((const char *)exif, n));
#else
    (void)png, (void)info;
#endif
    return 0;
}

static int read_all(png_structp png, png_infop info, struct raster *out, struct err *err) {
    enum { CHUNK_BYTES = 8 << 20, CHUNKS = 128 };
    if (setjmp(png_jmpbuf(png))) return err->code;
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff); /* ours say which picture it was */
    png_set_chunk_malloc_max(png, CHUNK_BYTES);
    png_set_chunk_cache_max(png, CHUNKS);
    png_read_info(png, info);
    TRY(image_raster_open(out, png_get_image_width(png, info), png_get_image_height(png, info), err));
    ask_for_rgba(png);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)out->width * 4) png_error(png, "its pixels are of an unknown kind");
    for (int pass = 0; pass < passes; pass++)
        for (int32_t y = 0; y < out->height; y++) png_read_row(png, image_raster_row(out, y), NULL);
    png_read_end(png, info);
    out->orientation = orientation_of(png, info);
    return ERR_OK;
}

int image_decode_png(struct str file, struct raster *out, struct err *err) {
    struct err why = {0};
    struct source source = {file, &why};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    int code = ERR_EMEMORY;
    if (info) {
        png_set_read_fn(png, &source, on_read);
        code = read_all(png, info, out, &why);
    } else err_set(&why, ERR_EMEMORY, "no memory for the decoder");
    png_destroy_read_struct(&png, &info, NULL);
    return code ? err_set(err, code, "%s", why.msg) : ERR_OK;
}
