/* Resizing: two passes of weighted sums in fixed point. */
#include "image/image_internal.h"

#include "base/fmath.h"

enum { FRACTION = 22, SHORT = 15 }; /* bits of a weight behind the point; bits of a short one */

static double bilinear(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double sinc(double x) {
    double s, c;
    if (x == 0.0) return 1.0;
    x *= 3.14159265358979323846;
    m_sincos(x, &s, &c);
    return s / x;
}

static double lanczos(double x) {
    return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

static const struct {
    double (*weight)(double x);
    double support;
} filters[] = {[IMAGE_BILINEAR] = {bilinear, 1}, [IMAGE_BICUBIC] = {bicubic, 2}, [IMAGE_LANCZOS] = {lanczos, 3}};

/* What each output pixel of a line is made of: n inputs from `first` on. */
struct taps {
    int32_t most;     /* inputs of one output at most */
    int32_t fraction; /* bits of a weight behind the point */
    int32_t *first, *n, *weights;
};

static int32_t clip(double value, int32_t low, int32_t high) {
    return value < low ? low : value > high ? high : (int32_t)value;
}

/* Bits behind the point of short weights: as many as the largest of them leaves. */
static int32_t short_fraction(double largest) {
    int32_t bits = 0;
    while (bits < FRACTION && (int32_t)(0.5 + largest * (1 << (bits + 1))) < 1 << SHORT) bits++;
    return bits;
}

/* Shares of the n inputs of output i, from out->first[i] on. */
static void shares_make(int32_t from, int32_t to, enum image_filter filter, int32_t i, struct taps *out, double *w) {
    double scale = (double)from / to, wide = scale < 1.0 ? 1.0 : scale, support = filters[filter].support * wide;
    double center = (i + 0.5) * scale, sum = 0;
    int32_t first = clip(center - support + 0.5, 0, from), n = clip(center + support + 0.5, 0, from) - first;
    for (int32_t k = 0; k < n; k++) sum += w[k] = filters[filter].weight((k + first - center + 0.5) * (1.0 / wide));
    for (int32_t k = 0; k < n && sum != 0.0; k++) w[k] /= sum;
    out->first[i] = first;
    out->n[i] = n;
}

static int taps_make(struct arena *a, int32_t from, int32_t to, enum image_filter filter, enum image_arithmetic arithmetic,
                     struct taps *out, struct err *err) {
    double scale = (double)from / to, support = filters[filter].support * (scale < 1.0 ? 1.0 : scale), largest = 0;
    out->most = (int32_t)ceil(support) * 2 + 1;
    size_t count;
    double *w = size_mul((size_t)to, (size_t)out->most, &count) ? NULL : arena_try(a, (size_t)out->most * sizeof *w);
    out->weights = w ? arena_try(a, count * sizeof *out->weights) : NULL;
    out->first = out->weights ? arena_try(a, (size_t)to * 2 * sizeof *out->first) : NULL;
    if (!out->first) return err_set(err, ERR_EMEMORY, "no memory for resizing %d pixels to %d", from, to);
    out->n = out->first + to;
    for (int32_t i = 0; i < to && arithmetic == IMAGE_AS_TORCH; i++) {
        shares_make(from, to, filter, i, out, w);
        for (int32_t k = 0; k < out->n[i]; k++) largest = w[k] > largest ? w[k] : largest;
    }
    out->fraction = arithmetic == IMAGE_AS_TORCH ? short_fraction(largest) : FRACTION;
    for (int32_t i = 0; i < to; i++) {
        shares_make(from, to, filter, i, out, w);
        for (int32_t k = 0; k < out->n[i]; k++) {
            double share = w[k] * (1 << out->fraction);
            out->weights[(size_t)i * (size_t)out->most + (size_t)k] = (int32_t)(share < 0 ? share - 0.5 : share + 0.5);
        }
    }
    return ERR_OK;
}

static uint8_t rounded(int32_t sum, int32_t fraction) {
    sum >>= fraction;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void pass_across(const struct image *from, const struct taps *t, struct image *to) {
    int32_t half = 1 << (t->fraction - 1);
    for (int32_t y = 0; y < to->height; y++) {
        const uint8_t *row = from->rgb + (size_t)y * (size_t)from->width * 3;
        uint8_t *out = to->rgb + (size_t)y * (size_t)to->width * 3;
        for (int32_t x = 0; x < to->width; x++) {
            const int32_t *w = t->weights + (size_t)x * (size_t)t->most;
            const uint8_t *p = row + (size_t)t->first[x] * 3;
            int32_t sum[3] = {half, half, half};
            for (int32_t k = 0; k < t->n[x]; k++, p += 3)
                for (int c = 0; c < 3; c++) sum[c] += p[c] * w[k];
            for (int c = 0; c < 3; c++) *out++ = rounded(sum[c], t->fraction);
        }
    }
}

static void pass_down(const struct image *from, const struct taps *t, struct image *to) {
    size_t stride = (size_t)from->width * 3;
    int32_t half = 1 << (t->fraction - 1);
    for (int32_t y = 0; y < to->height; y++) {
        const int32_t *w = t->weights + (size_t)y * (size_t)t->most;
        uint8_t *out = to->rgb + (size_t)y * stride;
        for (size_t x = 0; x < stride; x++) {
            const uint8_t *p = from->rgb + (size_t)t->first[y] * stride + x;
            int32_t sum = half;
            for (int32_t k = 0; k < t->n[y]; k++, p += stride) sum += *p * w[k];
            out[x] = rounded(sum, t->fraction);
        }
    }
}

typedef void pass_fn(const struct image *from, const struct taps *t, struct image *to);

static int pass(struct arena *a, const struct image *from, bool is_across, int32_t size, enum image_filter filter,
                enum image_arithmetic arithmetic, struct image *out, struct err *err) {
    struct taps t;
    pass_fn *run = is_across ? pass_across : pass_down;
    TRY(taps_make(a, is_across ? from->width : from->height, size, filter, arithmetic, &t, err));
    TRY(image_open(out, is_across ? size : from->width, is_across ? from->height : size, err));
    run(from, &t, out);
    return ERR_OK;
}

int image_resize(const struct image *from, int32_t width, int32_t height, enum image_filter filter, enum image_arithmetic arithmetic,
                 struct image *out, struct err *err) {
    struct arena a = {0};
    struct image narrow = {0};
    int code = ERR_OK;
    *out = (struct image){0};
    if (width == from->width && height == from->height) return image_crop(from, 0, 0, width, height, out, err);
    if (width != from->width) code = pass(&a, from, true, width, filter, arithmetic, &narrow, err);
    const struct image *first = narrow.rgb ? &narrow : from;
    if (!code && height != from->height) code = pass(&a, first, false, height, filter, arithmetic, out, err);
    else if (!code) *out = narrow, narrow = (struct image){0};
    image_free(&narrow);
    arena_free(&a);
    return code;
}

int image_crop(const struct image *from, int32_t x, int32_t y, int32_t width, int32_t height, struct image *out, struct err *err) {
    TRY(image_open(out, width, height, err));
    int32_t left = x < 0 ? -x : 0, right = width < from->width - x ? width : from->width - x;
    for (int32_t i = 0; i < height; i++) {
        if (y + i < 0 || y + i >= from->height || right <= left) continue;
        memcpy(out->rgb + ((size_t)i * (size_t)width + (size_t)left) * 3,
               from->rgb + ((size_t)(y + i) * (size_t)from->width + (size_t)(x + left)) * 3, (size_t)(right - left) * 3);
    }
    return ERR_OK;
}
