/* WebP, by libwebp's decoder. */
#include "image/image_internal.h"

#include <webp/decode.h>

/* The block of EXIF, which lies behind the pixels. */
static int32_t orientation_of(struct str file) {
    enum { HEADER = 12, CHUNK = 8 };
    for (size_t at = HEADER; at < file.n && file.n - at >= CHUNK;) {
        size_t n = le32(file.p + at + 4), left = file.n - at - CHUNK;
        if (n > left) return 0;
        struct str body = str_sub(file, at + CHUNK, n);
        if (memcmp(file.p + at, "EXIF", 4) == 0)
            return image_exif_orientation(body.n > 6 && !memcmp(body.p, "Exif\0", 6) ? str_from(body, 6) : body);
        at += CHUNK + n + (n & 1);
    }
    return 0;
}

int image_decode_webp(struct str file, struct raster *out, struct err *err) {
    WebPBitstreamFeatures f;
    const uint8_t *data = (const uint8_t *)file.p;
    if (WebPGetFeatures(data, file.n, &f) != VP8_STATUS_OK) return err_set(err, ERR_EFORMAT, "the file is damaged or ends too early");
    if (f.has_animation) return err_set(err, ERR_EUNSUPPORTED, "animations are not read");
    TRY(image_raster_open(out, f.width, f.height, err));
    size_t stride = (size_t)out->width * 4;
    if (!WebPDecodeRGBAInto(data, file.n, out->rgba, stride * (size_t)out->height, (int)stride))
        return err_set(err, ERR_EFORMAT, "the file is damaged or ends too early");
    out->orientation = orientation_of(file);
    return ERR_OK;
}
