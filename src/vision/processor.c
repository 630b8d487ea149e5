/* Preprocessing: preprocessor_config.json, the size that a picture gets, and its patches in the tower's order. */
#include "vision/vision_internal.h"

#include "base/fmath.h"
#include "base/json.h"

static int read_three(yyjson_val *list, const char *key, const float *absent, float *out, struct err *err) {
    for (size_t i = 0; i < 3; i++) out[i] = absent[i];
    if (!list || yyjson_is_null(list)) return ERR_OK;
    for (size_t i = 0; i < 3; i++) {
        yyjson_val *v = yyjson_arr_get(list, i);
        if (!yyjson_is_num(v)) return err_set(err, ERR_EFORMAT, "preprocessor_config.json: %s must be three numbers", key);
        out[i] = (float)yyjson_get_num(v);
    }
    return ERR_OK;
}

/* Limits of the area, under the names that files have had for them. */
static int read_area(struct vision *v, yyjson_val *root, struct err *err) {
    yyjson_val *size = json_get(root, "size");
    if (v->family->resize != RESIZE_TO_AREA) {
        yyjson_val *crop = json_get(root, "crop_size");
        v->square = (int32_t)json_int(size, "height", json_int(size, "shortest_edge", -1));
        v->longest = (int32_t)json_int(size, "longest_edge", 1024);
        v->crop = (int32_t)(yyjson_is_num(crop) ? yyjson_get_int(crop) : json_int(crop, "height", v->square));
        if (v->family->resize == RESIZE_TO_FIT ? v->longest < v->patch || v->longest > IMAGE_MAX_SIDE
                                               : v->square < v->patch || v->square > 1 << 14 || v->crop < v->patch || v->crop > v->square)
            return err_set(err, ERR_EFORMAT, "preprocessor_config.json: a size of %d, %d or %d pixels", v->square, v->crop, v->longest);
        return ERR_OK;
    }
    v->min_pixels = json_int(size, "shortest_edge", json_int(root, "min_pixels", 56 * 56));
    v->max_pixels = json_int(size, "longest_edge", json_int(root, "max_pixels", 28 * 28 * 1280));
    if (v->min_pixels < 1 || v->max_pixels < v->min_pixels || v->max_pixels > IMAGE_MAX_PIXELS)
        return err_set(err, ERR_EFORMAT, "preprocessor_config.json: an area between %lld and %lld pixels", (long long)v->min_pixels,
                       (long long)v->max_pixels);
    return ERR_OK;
}

static int read_filter(struct vision *v, yyjson_val *root, struct err *err) {
    int64_t resample = json_int(root, "resample", 3);
    v->filter = resample == 1 ? IMAGE_LANCZOS : resample == 2 ? IMAGE_BILINEAR : IMAGE_BICUBIC;
    return resample >= 1 && resample <= 3 ? ERR_OK
                                          : err_set(err, ERR_EUNSUPPORTED, "preprocessor_config.json: resample %lld", (long long)resample);
}

int processor_open(struct vision *v, const struct checkpoint *c, struct err *err) {
    static const float clip_mean[] = {0.48145466f, 0.4578275f, 0.40821073f}, clip_std[] = {0.26862954f, 0.26130258f, 0.27577711f};
    struct str text;
    yyjson_val *root = NULL;
    int code = checkpoint_file_load(&v->arena, c, "preprocessor_config.json", 0, &text, err);
    if (code == ERR_OK) TRY(json_parse(&v->arena, text, "preprocessor_config.json", JSON_LENIENT, &root, err));
    if (code == ERR_ENOTFOUND) {
        TRY(checkpoint_file_load(&v->arena, c, "processor_config.json", 0, &text, err));
        TRY(json_parse(&v->arena, text, "processor_config.json", JSON_LENIENT, &root, err));
        root = json_get(root, "image_processor");
    } else TRY(code);
    TRY(read_three(json_get(root, "image_mean"), "image_mean", clip_mean, v->mean, err));
    TRY(read_three(json_get(root, "image_std"), "image_std", clip_std, v->std, err));
    for (int i = 0; i < 3; i++)
        if (!(v->std[i] > 0)) return err_set(err, ERR_EFORMAT, "preprocessor_config.json: image_std must be above 0");
    yyjson_val *factor = json_get(root, "rescale_factor");
    v->rescale = yyjson_is_num(factor) ? yyjson_get_num(factor) : 1.0 / 255;
    TRY(read_filter(v, root, err));
    return read_area(v, root, err);
}

/* To the nearest whole number; halves to the even one. */
static int64_t nearest(double x) {
    double low = floor(x), rest = x - low;
    return (int64_t)low + (rest > 0.5 || (rest == 0.5 && (int64_t)low % 2 != 0));
}

static int fit_area(const struct vision *v, const struct image *image, int32_t *out_height, int32_t *out_width, struct err *err) {
    enum { RATIO_MAX = 200 };
    int32_t f = v->patch * v->merge, long_side = image->height > image->width ? image->height : image->width;
    int32_t short_side = image->height > image->width ? image->width : image->height;
    double h = image->height, w = image->width;
    if (long_side / short_side >= RATIO_MAX && long_side > RATIO_MAX * short_side)
        return err_set(err, ERR_EARG, "the picture has %d x %d pixels; the model takes none whose sides differ more than %d times",
                       image->width, image->height, RATIO_MAX);
    int64_t height = nearest(h / f) * f, width = nearest(w / f) * f;
    if (height * width > v->max_pixels) {
        double beta = sqrt(h * w / (double)v->max_pixels);
        height = (int64_t)floor(h / beta / f) * f;
        width = (int64_t)floor(w / beta / f) * f;
        height = height < f ? f : height;
        width = width < f ? f : width;
    } else if (height * width < v->min_pixels) {
        double beta = sqrt((double)v->min_pixels / (h * w));
        height = (int64_t)ceil(h * beta / f) * f;
        width = (int64_t)ceil(w * beta / f) * f;
    }
    if (height * width > IMAGE_MAX_PIXELS)
        return err_set(err, ERR_ELIMIT, "the picture would get %lld x %lld pixels", (long long)width, (long long)height);
    *out_height = (int32_t)height;
    *out_width = (int32_t)width;
    return ERR_OK;
}

/* No side longer than the limit; then up to whole tokens. */
static void fit_longest(const struct vision *v, const struct image *image, int32_t *out_height, int32_t *out_width) {
    double h = image->height, w = image->width, ratio = (h > w ? h : w) / v->longest;
    int32_t f = v->patch * v->merge;
    if (ratio > 1) h = floor(h / ratio), w = floor(w / ratio);
    *out_height = (int32_t)ceil((h < 1 ? 1 : h) / f) * f;
    *out_width = (int32_t)ceil((w < 1 ? 1 : w) / f) * f;
}

/* The shorter side to the length that is wanted, then the middle of it. */
static int crop_middle(const struct vision *v, const struct image *image, struct image *out, struct err *err) {
    bool is_tall = image->height > image->width;
    int64_t shorter = is_tall ? image->width : image->height, longer = is_tall ? image->height : image->width;
    int64_t length = v->square * longer / shorter;
    struct image resized;
    if (length > IMAGE_MAX_SIDE || length * v->square > IMAGE_MAX_PIXELS)
        return err_set(err, ERR_EARG, "the picture has %d x %d pixels, which is too long and thin for the model", image->width,
                       image->height);
    int32_t width = is_tall ? v->square : (int32_t)length, height = is_tall ? (int32_t)length : v->square;
    TRY(image_resize(image, width, height, v->filter, &resized, err));
    int code = image_crop(&resized, (width - v->crop) / 2, (height - v->crop) / 2, v->crop, v->crop, out, err);
    image_free(&resized);
    return code;
}

static int resize(const struct vision *v, const struct image *image, struct image *out, struct err *err) {
    int32_t height = v->square, width = v->square;
    if (v->family->resize == RESIZE_AND_CROP) return crop_middle(v, image, out, err);
    if (v->family->resize == RESIZE_TO_AREA) TRY(fit_area(v, image, &height, &width, err));
    if (v->family->resize == RESIZE_TO_FIT) fit_longest(v, image, &height, &width);
    return image_resize(image, width, height, v->filter, out, err);
}

/* Tokens in the order of windows: windows row by row, and the tokens of each row by row. Without windows one window holds all. */
static void order_cells(const struct vision *v, struct patches *p) {
    int32_t h = p->height / v->merge, w = p->width / v->merge, each = v->merge * v->merge, n = 0;
    int32_t side_h = v->window ? v->window : h, side_w = v->window ? v->window : w;
    for (int32_t top = 0; top < h; top += side_h)
        for (int32_t left = 0; left < w; left += side_w) {
            int32_t first = n;
            for (int32_t y = top; y < h && y < top + side_h; y++)
                for (int32_t x = left; x < w && x < left + side_w; x++) p->cells[n++] = y * w + x;
            for (int32_t r = first * each; r < n * each; r++) {
                p->spans[0][2 * r] = 0, p->spans[0][2 * r + 1] = p->n;
                p->spans[1][2 * r] = first * each, p->spans[1][2 * r + 1] = n * each;
            }
        }
}

/* The numbers of one patch: colour by colour, the picture once for each frame, then row by row. */
static void fill_patch(const struct vision *v, const struct image *image, int32_t top, int32_t left, float tables[3][256], float *out) {
    for (int c = 0; c < 3; c++)
        for (int32_t t = 0; t < v->frames; t++)
            for (int32_t y = 0; y < v->patch; y++) {
                const uint8_t *row = image->rgb + ((size_t)(top + y) * (size_t)image->width + (size_t)left) * 3 + c;
                for (int32_t x = 0; x < v->patch; x++) *out++ = tables[c][row[3 * x]];
            }
}

static void fill_patches(const struct vision *v, const struct image *image, struct patches *p) {
    float tables[3][256];
    int32_t w = p->width / v->merge, r = 0;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 256; i++) tables[c][i] = ((float)(i * v->rescale) - v->mean[c]) / v->std[c];
    for (int32_t i = 0; i < p->n / (v->merge * v->merge); i++)
        for (int32_t k = 0; k < v->merge * v->merge; k++, r++) {
            int32_t y = p->cells[i] / w * v->merge + k / v->merge, x = p->cells[i] % w * v->merge + k % v->merge;
            fill_patch(v, image, y * v->patch, x * v->patch, tables, p->pixels + (int64_t)r * p->numbers);
            p->places[r * STEP_AXES] = 0;
            p->places[r * STEP_AXES + 1] = y;
            p->places[r * STEP_AXES + 2] = x;
        }
}

int processor_cut(const struct vision *v, struct arena *a, const struct image *image, struct patches *out, struct err *err) {
    struct image resized;
    TRY(resize(v, image, &resized, err));
    *out = (struct patches){
        .height = resized.height / v->patch, .width = resized.width / v->patch, .numbers = 3 * v->frames * v->patch * v->patch};
    out->n = out->height * out->width;
    out->pixels = arena_try(a, (size_t)out->n * (size_t)out->numbers * sizeof *out->pixels + 1);
    bool fits = out->n > 0 && out->height % v->merge == 0 && out->width % v->merge == 0;
    if (out->pixels && fits) {
        out->cells = arena_new(a, int32_t, out->n / (v->merge * v->merge));
        out->places = arena_new(a, int32_t, (int64_t)out->n * STEP_AXES);
        for (int i = 0; i < 2; i++) out->spans[i] = arena_new(a, int32_t, 2 * (int64_t)out->n);
        order_cells(v, out);
        fill_patches(v, &resized, out);
    }
    image_free(&resized);
    if (!fits) return err_set(err, ERR_EFORMAT, "%d x %d patches are no whole tokens of the model", out->width, out->height);
    return out->pixels ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for %d patches of a picture", out->n);
}
