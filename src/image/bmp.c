/* BMP without compression: 1, 4, 8, 24 and 32 bits per pixel. */
#include "image/image_internal.h"

enum { FILE_HEADER = 14, HEADER_MIN = 40, PLAIN = 0, MASKS = 3 };

struct bmp {
    int64_t width, height;
    uint32_t bits;
    bool is_top_down;
    struct str palette; /* blue, green, red, nothing */
    struct str pixels;
};

static int read_header(struct str file, struct bmp *b, struct err *err) {
    if (file.n < FILE_HEADER + HEADER_MIN) return err_set(err, ERR_EFORMAT, "the file ends too early");
    const char *h = file.p + FILE_HEADER;
    uint32_t pixels_at = le32(file.p + 10), size = le32(h), compression = le32(h + 16);
    int64_t height = (int32_t)le32(h + 8);
    b->width = (int32_t)le32(h + 4);
    b->is_top_down = height < 0;
    b->height = height < 0 ? -height : height;
    b->bits = le16(h + 14);
    if (size < HEADER_MIN || size > file.n - FILE_HEADER) return err_set(err, ERR_EUNSUPPORTED, "its header has %u bytes", size);
    bool is_plain = compression == PLAIN && (b->bits == 1 || b->bits == 4 || b->bits == 8 || b->bits == 24 || b->bits == 32);
    bool is_usual = compression == MASKS && b->bits == 32 && file.n >= FILE_HEADER + 52 && le32(h + 40) == 0xff0000 &&
                    le32(h + 44) == 0xff00 && le32(h + 48) == 0xff;
    if (!is_plain && !is_usual)
        return err_set(err, ERR_EUNSUPPORTED, "%u bits per pixel with compression %u are not read", b->bits, compression);
    if (pixels_at > file.n) return err_set(err, ERR_EFORMAT, "the file ends too early");
    b->pixels = str_from(file, pixels_at);
    if (pixels_at > FILE_HEADER + size) b->palette = str_sub(file, FILE_HEADER + size, pixels_at - FILE_HEADER - size);
    return ERR_OK;
}

/* Colour of a pixel of a row: blue, green, red. */
static const char *pixel(const struct bmp *b, const char *row, size_t x) {
    static const char black[4] = {0};
    if (b->bits >= 24) return row + x * (b->bits / 8);
    size_t per_byte = 8 / b->bits, shift = (per_byte - 1 - x % per_byte) * b->bits;
    size_t index = (uint8_t)row[x / per_byte] >> shift & ((1u << b->bits) - 1);
    return index * 4 + 4 <= b->palette.n ? b->palette.p + index * 4 : black;
}

int image_decode_bmp(struct str file, struct raster *out, struct err *err) {
    struct bmp b = {0};
    TRY(read_header(file, &b, err));
    if (b.width < 0) return err_set(err, ERR_EFORMAT, "its width is %lld", (long long)b.width);
    size_t stride = ((size_t)b.width * b.bits + 31) / 32 * 4;
    if (b.width <= IMAGE_MAX_SIDE && b.height <= IMAGE_MAX_SIDE && stride * (size_t)b.height > b.pixels.n)
        return err_set(err, ERR_EFORMAT, "the file ends too early");
    TRY(image_raster_open(out, b.width, b.height, err));
    for (int32_t y = 0; y < out->height; y++) {
        const char *row = b.pixels.p + stride * (size_t)(b.is_top_down ? y : out->height - 1 - y);
        uint8_t *to = image_raster_row(out, y);
        for (int32_t x = 0; x < out->width; x++, to += 4) {
            const char *p = pixel(&b, row, (size_t)x);
            to[0] = (uint8_t)p[2], to[1] = (uint8_t)p[1], to[2] = (uint8_t)p[0], to[3] = 255;
        }
    }
    return ERR_OK;
}
