/* The sizes that a picture gets, and the tiles that it is cut into. The tower sees each tile by itself. */
#include "vision/vision_internal.h"

#include "base/fmath.h"

/* To the nearest whole number; halves to the even one. */
static int64_t nearest(double x) {
    double low = floor(x), rest = x - low;
    return (int64_t)low + (rest > 0.5 || (rest == 0.5 && (int64_t)low % 2 != 0));
}

static int64_t at_least(int64_t x, int64_t low) {
    return x < low ? low : x;
}

struct size {
    int64_t height, width;
};

static int too_long(const struct image *image, int32_t ratio, struct err *err) {
    return err_set(err, ERR_EARG, "the picture has %d x %d pixels; the model takes none whose sides differ more than %d times",
                   image->width, image->height, ratio);
}

/* Sides that a token has room in, where the family wants that first. */
static struct size enlarge(enum vision_area area, struct size s, int32_t f) {
    if (area == AREA_WHOLE && s.height < f) s.width = nearest((double)(s.width * f) / (double)s.height), s.height = f;
    if (area == AREA_WHOLE && s.width < f) s.height = nearest((double)(s.height * f) / (double)s.width), s.width = f;
    if (area != AREA_FRAMES || (s.height >= f && s.width >= f)) return s;
    double down = (double)f / (double)s.height, across = (double)f / (double)s.width, scale = down > across ? down : across;
    return (struct size){(int64_t)((double)s.height * scale), (int64_t)((double)s.width * scale)};
}

static int fit_area(const struct vision *v, const struct image *image, struct size *out, struct err *err) {
    enum { RATIO_MAX = 200 };
    enum vision_area area = v->family->area;
    int32_t f = v->patch * v->merge, frames = area == AREA_FRAMES ? v->frames : 1;
    struct size from = enlarge(area, (struct size){image->height, image->width}, f);
    int64_t longer = from.height > from.width ? from.height : from.width, shorter = from.height + from.width - longer;
    if (area != AREA_ONE_TOKEN && longer > RATIO_MAX * shorter) return too_long(image, RATIO_MAX, err);
    double h = (double)from.height, w = (double)from.width, pixels = h * w * frames;
    int64_t height = nearest(h / f) * f, width = nearest(w / f) * f;
    if (area == AREA_ONE_TOKEN) height = at_least(height, f), width = at_least(width, f);
    if (height * width * frames > v->max_pixels) {
        double beta = sqrt(pixels / (double)v->max_pixels);
        height = at_least((int64_t)floor(h / beta / f) * f, f);
        width = at_least((int64_t)floor(w / beta / f) * f, f);
    } else if (height * width * frames < v->min_pixels) {
        double beta = sqrt((double)v->min_pixels / pixels);
        height = (int64_t)ceil(h * beta / f) * f;
        width = (int64_t)ceil(w * beta / f) * f;
    }
    *out = (struct size){height, width};
    return ERR_OK;
}

/* No side longer than the limit; then up to whole tokens. */
static struct size fit_longest(const struct vision *v, const struct image *image) {
    double h = image->height, w = image->width, ratio = (h > w ? h : w) / v->longest;
    int32_t f = v->patch * v->merge;
    if (ratio > 1) h = floor(h / ratio), w = floor(w / ratio);
    return (struct size){(int64_t)ceil((h < 1 ? 1 : h) / f) * f, (int64_t)ceil((w < 1 ? 1 : w) / f) * f};
}

/* As large as the budget of tokens lets it, in whole tokens. */
static int fit_budget(const struct vision *v, const struct image *image, struct size *out, struct err *err) {
    int32_t f = v->patch * v->merge;
    double h = image->height, w = image->width;
    int64_t most = (int64_t)v->max_tokens * f * f;
    double factor = sqrt((double)most / (h * w));
    int64_t height = (int64_t)floor(factor * h / f) * f, width = (int64_t)floor(factor * w / f) * f, limit = (int64_t)v->max_tokens * f;
    if (height == 0) height = f, width = (int64_t)floor(w / h) * f;
    else if (width == 0) width = f, height = (int64_t)floor(h / w) * f;
    *out = (struct size){height > limit ? limit : height, width > limit ? limit : width};
    return out->height && out->width && out->height * out->width <= most ? ERR_OK : too_long(image, v->max_tokens, err);
}

static int resize(const struct vision *v, const struct image *image, struct size to, struct image *out, struct err *err) {
    if (to.height < 1 || to.width < 1 || to.height > IMAGE_MAX_SIDE || to.width > IMAGE_MAX_SIDE || to.height * to.width > IMAGE_MAX_PIXELS)
        return err_set(err, ERR_ELIMIT, "the picture would get %lld x %lld pixels", (long long)to.width, (long long)to.height);
    return image_resize(image, (int32_t)to.width, (int32_t)to.height, v->filter, v->family->is_torch ? IMAGE_AS_TORCH : IMAGE_AS_PILLOW,
                        out, err);
}

/* One more tile. */
static struct image *next(struct tiles *t) {
    return &t->images[t->n++];
}

/* Resized, then a part of it; what lies beyond is black. */
static int resize_and_place(const struct vision *v, const struct image *image, struct size to, struct size canvas, int64_t top,
                            int64_t left, struct image *out, struct err *err) {
    struct image resized;
    TRY(resize(v, image, to, &resized, err));
    int code = image_crop(&resized, (int32_t)left, (int32_t)top, (int32_t)canvas.width, (int32_t)canvas.height, out, err);
    image_free(&resized);
    return code;
}

/* The shorter side to the length that is wanted, then the middle of it. */
static int crop_middle(const struct vision *v, const struct image *image, struct image *out, struct err *err) {
    bool is_tall = image->height > image->width;
    int64_t shorter = is_tall ? image->width : image->height, longer = is_tall ? image->height : image->width;
    int64_t length = v->square * longer / shorter;
    if (length > IMAGE_MAX_SIDE || length * v->square > IMAGE_MAX_PIXELS)
        return err_set(err, ERR_EARG, "the picture has %d x %d pixels, which is too long and thin for the model", image->width,
                       image->height);
    struct size to = {is_tall ? length : v->square, is_tall ? v->square : length};
    return resize_and_place(v, image, to, (struct size){v->crop, v->crop}, (to.height - v->crop) / 2, (to.width - v->crop) / 2, out, err);
}

/* Smaller where it has too many patches, then black up to whole tokens. */
static int shrink_and_pad(const struct vision *v, const struct image *image, struct image *out, struct err *err) {
    double h = image->height, w = image->width, most = (double)v->longest * v->patch;
    double count = (double)at_least(image->height / v->patch, 1) * (double)at_least(image->width / v->patch, 1);
    double scales[] = {sqrt(v->max_patches / count), most / h, most / w}, scale = 1;
    for (int i = 0; i < 3; i++) scale = scales[i] < scale ? scales[i] : scale;
    struct size to = {at_least((int64_t)(h * scale), 1), at_least((int64_t)(w * scale), 1)};
    int64_t f = (int64_t)v->patch * v->merge;
    struct size canvas = {(to.height + f - 1) / f * f, (to.width + f - 1) / f * f};
    return resize_and_place(v, image, to, canvas, 0, 0, out, err);
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------- */

/* Cuts a canvas of whole tiles, row by row. */
static int cut(struct tiles *t, const struct image *canvas, int32_t side, struct err *err) {
    t->rows = canvas->height / side;
    t->columns = canvas->width / side;
    for (int32_t i = 0; i < t->rows * t->columns; i++)
        TRY(image_crop(canvas, i % t->columns * side, i / t->columns * side, side, side, next(t), err));
    return ERR_OK;
}

static int count_fits(const struct vision *v, int64_t rows, int64_t columns, struct err *err) {
    if (rows * columns < TILES_MAX) return ERR_OK;
    return err_set(err, ERR_ELIMIT, "the picture would have %lld tiles of %d pixels; at most %d are taken", (long long)(rows * columns),
                   v->tile, TILES_MAX - 1);
}

/* Resized to a canvas, which is cut. */
static int resize_and_cut(const struct vision *v, const struct image *image, int64_t rows, int64_t columns, struct tiles *t,
                          struct err *err) {
    struct image canvas;
    TRY(count_fits(v, rows, columns, err));
    TRY(resize(v, image, (struct size){rows * v->tile, columns * v->tile}, &canvas, err));
    int code = cut(t, &canvas, v->tile, err);
    image_free(&canvas);
    return code;
}

/* The grid whose width and height are to each other as the picture's; of equal ones a larger one if the picture fills half of it. */
static void nearest_grid(const struct vision *v, const struct image *image, int32_t *out_rows, int32_t *out_columns) {
    double ratio = (double)image->width / image->height, best = INFINITY, area = (double)image->width * image->height;
    *out_rows = *out_columns = 1;
    for (int32_t n = v->min_tiles; n <= v->max_tiles; n++)
        for (int32_t columns = 1; columns <= n; columns++) {
            if (n % columns) continue;
            int32_t rows = n / columns;
            double far = fabs(ratio - (double)columns / rows);
            if (far > best || (far == best && area <= 0.5 * v->tile * v->tile * n)) continue;
            best = far;
            *out_rows = rows, *out_columns = columns;
        }
}

static int tiles_by_ratio(const struct vision *v, const struct image *image, struct size whole, struct tiles *t, struct err *err) {
    int32_t rows, columns;
    nearest_grid(v, image, &rows, &columns);
    TRY(resize_and_cut(v, image, rows, columns, t, err));
    if (rows * columns == 1) t->rows = t->columns = 0;
    t->has_whole = v->has_whole && rows * columns > 1;
    return t->has_whole ? resize(v, image, whole, next(t), err) : ERR_OK;
}

static int tiles_if_large(const struct vision *v, const struct image *image, struct tiles *t, struct err *err) {
    int32_t f = v->patch * v->merge;
    struct size whole;
    int64_t height = at_least(nearest((double)image->height / f) * f, v->patch),
            width = at_least(nearest((double)image->width / f) * f, v->patch);
    TRY(fit_area(v, image, &whole, err));
    if (v->max_tiles > 1 && (double)(height * width) > (double)v->max_pixels * v->tolerance) return tiles_by_ratio(v, image, whole, t, err);
    return resize(v, image, whole, next(t), err);
}

/* Of the sizes in the list the one that shows most of the picture, and of those the one that wastes least. */
static struct size best_of_list(const struct vision *v, const struct image *image) {
    struct size best = {v->list[0][0], v->list[0][1]};
    int64_t shown = 0, wasted = INT64_MAX, all = (int64_t)image->height * image->width;
    for (int32_t i = 0; i < v->n_list; i++) {
        int64_t height = v->list[i][0], width = v->list[i][1];
        double across = (double)width / image->width, down = (double)height / image->height, scale = across < down ? across : down;
        int64_t pixels = (int64_t)(image->width * scale) * (int64_t)(image->height * scale), waste;
        if (pixels > all) pixels = all;
        waste = height * width - pixels;
        if (pixels < shown || (pixels == shown && waste >= wasted)) continue;
        best = (struct size){height, width};
        shown = pixels, wasted = waste;
    }
    return best;
}

static int tiles_by_list(const struct vision *v, const struct image *image, struct tiles *t, struct err *err) {
    struct size canvas = best_of_list(v, image), to = canvas;
    double across = (double)canvas.width / image->width, down = (double)canvas.height / image->height;
    if (across < down) to.height = (int64_t)ceil(image->height * across);
    else to.width = (int64_t)ceil(image->width * down);
    to.height = to.height > canvas.height ? canvas.height : to.height;
    to.width = to.width > canvas.width ? canvas.width : to.width;
    TRY(count_fits(v, canvas.height / v->tile, canvas.width / v->tile, err));
    t->has_whole = t->is_whole_first = true;
    TRY(resize(v, image, (struct size){v->tile, v->tile}, next(t), err));
    struct image placed;
    TRY(resize_and_place(v, image, to, canvas, -((canvas.height - to.height) / 2), -((canvas.width - to.width) / 2), &placed, err));
    int code = cut(t, &placed, v->tile, err);
    image_free(&placed);
    return code;
}

/* The longest side to a length, the other one even; no side longer than the models' authors let it be. */
static struct size to_longest(const struct vision *v, const struct image *image) {
    enum { LONGEST = 4096 };
    double ratio = (double)image->width / image->height;
    bool is_wide = image->width >= image->height;
    int64_t longer = v->longest, shorter = (int64_t)(is_wide ? (double)longer / ratio : (double)longer * ratio);
    shorter = at_least(shorter + shorter % 2, 1);
    if (longer > LONGEST) {
        ratio = is_wide ? (double)longer / (double)shorter : (double)shorter / (double)longer;
        longer = LONGEST;
        shorter = at_least((int64_t)(is_wide ? LONGEST / ratio : LONGEST * ratio), 1);
    }
    return is_wide ? (struct size){shorter, longer} : (struct size){longer, shorter};
}

/* Tiles that hold the picture: the longer side up to whole ones, and what the other one becomes, too. */
static struct size whole_tiles(const struct image *image, int32_t tile) {
    double ratio = (double)image->width / image->height;
    bool is_wide = image->width >= image->height;
    int64_t longer = ((is_wide ? image->width : image->height) + tile - 1) / tile;
    double side = (double)(longer * tile);
    int64_t shorter = ((int64_t)(is_wide ? side / ratio : side * ratio) + tile - 1) / tile;
    return is_wide ? (struct size){at_least(shorter, 1), longer} : (struct size){longer, at_least(shorter, 1)};
}

static int tiles_by_side(const struct vision *v, const struct image *image, struct tiles *t, struct err *err) {
    struct image first, canvas;
    TRY(resize(v, image, to_longest(v, image), &first, err));
    struct size grid = v->max_tiles > 1 ? whole_tiles(&first, v->tile) : (struct size){1, 1};
    int code = count_fits(v, grid.height, grid.width, err);
    if (!code) code = resize(v, &first, (struct size){grid.height * v->tile, grid.width * v->tile}, &canvas, err);
    image_free(&first);
    TRY(code);
    t->has_whole = grid.height * grid.width > 1;
    if (t->has_whole) code = cut(t, &canvas, v->tile, err);
    if (!code) code = resize(v, &canvas, (struct size){v->tile, v->tile}, next(t), err);
    image_free(&canvas);
    return code;
}

/* The canvas that enlarges the picture least, else the one that shrinks it least; of equal ones the smallest. */
static struct size best_canvas(const struct vision *v, const struct image *image) {
    struct size best = {1, 1};
    double chosen = -1;
    for (int32_t n = v->max_tiles; n > 0; n--)
        for (int32_t rows = 1; rows <= n; rows++) {
            if (n % rows) continue;
            double across = (double)(n / rows * v->tile) / image->width, down = (double)(rows * v->tile) / image->height;
            double scale = down > across ? across : down;
            if (v->family->is_torch) scale = (float)scale;
            bool is_better = chosen < 0 || (v->is_max_canvas || (scale < 1 && chosen < 1) ? scale > chosen
                                            : scale >= 1 && chosen >= 1                   ? scale < chosen
                                                                                          : scale >= 1);
            if (!is_better && !(scale == chosen && n < best.height * best.width)) continue;
            chosen = scale;
            best = (struct size){rows, n / rows};
        }
    return best;
}

static int tiles_on_canvas(const struct vision *v, const struct image *image, struct tiles *t, struct err *err) {
    struct size grid = best_canvas(v, image), canvas = {grid.height * v->tile, grid.width * v->tile}, to = canvas;
    struct image placed;
    TRY(count_fits(v, grid.height, grid.width, err));
    if (!v->is_max_canvas) {
        int64_t height = at_least(image->height, v->tile), width = at_least(image->width, v->tile);
        to.height = height < to.height ? height : to.height;
        to.width = width < to.width ? width : to.width;
    }
    double across = (double)to.width / image->width, down = (double)to.height / image->height;
    if (across < down) to.height = at_least((int64_t)floor(image->height * across), 1);
    else to.width = at_least((int64_t)floor(image->width * down), 1);
    TRY(resize_and_place(v, image, to, canvas, 0, 0, &placed, err));
    int code = cut(t, &placed, v->tile, err);
    image_free(&placed);
    TRY(code);
    if (v->family->global) return ERR_OK;
    t->has_whole = grid.height * grid.width > 1;
    if (!t->has_whole) t->rows = t->columns = 0;
    return t->has_whole ? resize(v, image, (struct size){v->tile, v->tile}, next(t), err) : ERR_OK;
}

static int make(const struct vision *v, const struct image *image, struct tiles *t, struct err *err) {
    struct size size = {v->square, v->square};
    switch (v->family->resize) {
    case RESIZE_AND_CROP: return crop_middle(v, image, next(t), err);
    case RESIZE_AND_PAD: return shrink_and_pad(v, image, next(t), err);
    case TILES_BY_RATIO: return tiles_by_ratio(v, image, (struct size){v->tile, v->tile}, t, err);
    case TILES_IF_LARGE: return tiles_if_large(v, image, t, err);
    case TILES_BY_LIST: return tiles_by_list(v, image, t, err);
    case TILES_BY_SIDE: return tiles_by_side(v, image, t, err);
    case TILES_ON_CANVAS: return tiles_on_canvas(v, image, t, err);
    case RESIZE_TO_AREA: TRY(fit_area(v, image, &size, err)); break;
    case RESIZE_TO_FIT: size = fit_longest(v, image); break;
    case RESIZE_TO_BUDGET: TRY(fit_budget(v, image, &size, err)); break;
    case RESIZE_TO_SQUARE: break;
    }
    return resize(v, image, size, next(t), err);
}

int tiles_make(const struct vision *v, struct arena *a, const struct image *image, struct tiles *out, struct err *err) {
    *out = (struct tiles){.images = arena_new(a, struct image, TILES_MAX), .height = image->height, .width = image->width};
    int code = make(v, image, out, err);
    if (code) tiles_free(out);
    return code;
}

void tiles_free(struct tiles *t) {
    for (int32_t i = 0; i < t->n; i++) image_free(&t->images[i]);
    t->n = 0;
}
