/* Any bytes as a picture: refused with a message, or pixels of a size within the limits, which can be resized. The limit is small: large pictures
 * take long and say nothing that small ones do not. */
#include "image/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    enum { PIXELS = 1 << 16 };
    struct image image, small;
    struct err err = {0};
    if (image_decode_small(str_n((const char *)data, n), PIXELS, &image, &err)) {
        if (!err.msg[0] || image.rgb) abort();
        return 0;
    }
    if (image.width < 1 || image.height < 1 || (int64_t)image.width * image.height > PIXELS) abort();
    if (!image_resize(&image, 7, 5, (enum image_filter)(n % 3), (enum image_arithmetic)(n % 2), &small, &err)) image_free(&small);
    image_free(&image);
    return 0;
}
