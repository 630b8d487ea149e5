/* The one field of EXIF that matters here. */
#include "image/image_internal.h"

static uint32_t number(struct str s, size_t at, size_t n, bool is_big) {
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++) value = value << 8 | (uint8_t)s.p[is_big ? at + i : at + n - 1 - i];
    return value;
}

int32_t image_exif_orientation(struct str tiff) {
    enum { ORIENTATION = 0x112, ENTRY = 12 };
    if (tiff.n < 8 || (memcmp(tiff.p, "II*\0", 4) != 0 && memcmp(tiff.p, "MM\0*", 4) != 0)) return 0;
    bool is_big = tiff.p[0] == 'M';
    size_t at = number(tiff, 4, 4, is_big);
    if (at > tiff.n || tiff.n - at < 2) return 0;
    size_t n = number(tiff, at, 2, is_big);
    for (at += 2; n > 0 && tiff.n - at >= ENTRY; n--, at += ENTRY) {
        if (number(tiff, at, 2, is_big) != ORIENTATION) continue;
        uint32_t value = number(tiff, at + 8, 2, is_big);
        return value >= 1 && value <= 8 ? (int32_t)value : 0;
    }
    return 0;
}
