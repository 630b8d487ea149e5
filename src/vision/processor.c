/* Preprocessing: preprocessor_config.json, the size that a picture gets, and its patches in the tower's order. */
#include "vision/vision_internal.h"

#include "base/fmath.h"
#include "base/half.h"
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

static int64_t limited(int64_t tokens) {
    return tokens < 0 ? 0 : tokens > 1 << 20 ? 1 << 20 : tokens;
}

/* Limits of the area, under the names that files have had for them; or of tokens, which are areas, too. */
static int read_area(struct vision *v, yyjson_val *root, struct err *err) {
    yyjson_val *size = json_get(root, "size");
    int64_t token = (int64_t)v->patch * v->patch * v->merge * v->merge, frames = v->family->area == AREA_FRAMES ? v->frames : 1;
    bool in_tokens = json_get(root, "max_image_tokens") != NULL;
    v->min_pixels = json_int(size, "shortest_edge", json_int(root, "min_pixels", 56 * 56));
    v->max_pixels = json_int(size, "longest_edge", json_int(root, "max_pixels", 28 * 28 * 1280));
    if (in_tokens || v->family->resize == TILES_IF_LARGE) {
        v->min_pixels = limited(json_int(root, "min_image_tokens", 64)) * token;
        v->max_pixels = limited(json_int(root, "max_image_tokens", 256)) * token;
    }
    if (v->min_pixels < 1 || v->max_pixels < v->min_pixels || v->max_pixels / frames > IMAGE_MAX_PIXELS)
        return err_set(err, ERR_EFORMAT, "preprocessor_config.json: an area between %lld and %lld pixels", (long long)v->min_pixels,
                       (long long)v->max_pixels);
    return ERR_OK;
}

static int wrong_size(const char *what, int64_t size, struct err *err) {
    return err_set(err, ERR_EFORMAT, "preprocessor_config.json: %s of %lld", what, (long long)size);
}

/* Sizes that a picture may have, each of whole tiles. */
static int read_list(struct vision *v, yyjson_val *list, struct err *err) {
    size_t i, n;
    yyjson_val *item;
    if (!yyjson_arr_size(list) || yyjson_arr_size(list) > 4096)
        return err_set(err, ERR_EFORMAT, "preprocessor_config.json: image_grid_pinpoints must be a list of sizes");
    v->list = (int32_t(*)[2])arena_new(&v->arena, int32_t, 2 * yyjson_arr_size(list));
    yyjson_arr_foreach(list, i, n, item) {
        for (size_t k = 0; k < 2; k++) {
            int64_t side = yyjson_get_sint(yyjson_arr_get(item, k));
            if (side < v->tile || side % v->tile || side > IMAGE_MAX_SIDE) return wrong_size("a side in image_grid_pinpoints", side, err);
            v->list[v->n_list][k] = (int32_t)side;
        }
        v->n_list++;
    }
    return ERR_OK;
}

static int read_tiles(struct vision *v, yyjson_val *root, struct err *err) {
    yyjson_val *whole = json_get(root, "use_thumbnail"), *tolerance = json_get(root, "max_pixels_tolerance");
    enum vision_resize kind = v->family->resize;
    bool cuts = json_bool(root, "do_image_splitting", json_bool(root, "crop_to_patches", true));
    int64_t tile = kind == TILES_BY_SIDE    ? json_int(json_get(root, "max_image_size"), "longest_edge", -1)
                   : kind == TILES_IF_LARGE ? json_int(root, "tile_size", 512)
                                            : v->crop;
    int64_t least = json_int(root, "min_tiles", json_int(root, "min_patches", 1)),
            most = json_int(root, "max_tiles", json_int(root, "max_patches", json_int(root, "max_image_tiles", 12)));
    if (tile < v->patch || tile > 1 << 14 || tile % (v->patch * v->merge)) return wrong_size("a tile", tile, err);
    if (least < 1 || most < least || most >= TILES_MAX) return wrong_size("a number of tiles", most, err);
    v->tile = (int32_t)tile;
    v->min_tiles = cuts ? (int32_t)least : 1;
    v->max_tiles = cuts ? kind == TILES_BY_SIDE ? TILES_MAX : (int32_t)most : 1;
    v->has_whole = !whole || yyjson_get_bool(whole);
    v->is_max_canvas = json_bool(root, "resize_to_max_canvas", false);
    v->tolerance = yyjson_is_num(tolerance) ? yyjson_get_num(tolerance) : 2.0;
    return kind == TILES_BY_LIST ? read_list(v, json_get(root, "image_grid_pinpoints"), err) : ERR_OK;
}

static int read_square(struct vision *v, yyjson_val *root, struct err *err) {
    yyjson_val *size = json_get(root, "size"), *crop = json_get(root, "crop_size");
    int64_t side = json_int(size, "height", json_int(size, "shortest_edge", -1));
    int64_t middle = yyjson_is_num(crop) ? yyjson_get_sint(crop) : json_int(crop, "height", side);
    if (side < v->patch || side > 1 << 14) return wrong_size("a size", side, err);
    if (middle < v->patch || middle > side) return wrong_size("a crop_size", middle, err);
    v->square = (int32_t)side;
    v->crop = (int32_t)middle;
    return ERR_OK;
}

/* Limits of one side, or of tokens. */
static int read_longest(struct vision *v, yyjson_val *root, struct err *err) {
    yyjson_val *size = json_get(root, "size");
    bool in_patches = v->family->resize == RESIZE_AND_PAD;
    int64_t longest = in_patches ? json_int(size, "max_height", 512) : json_int(size, "longest_edge", 1024),
            patches = json_int(root, "max_patches", 16384);
    if (longest < (in_patches ? v->merge : v->patch) || longest > IMAGE_MAX_SIDE / (in_patches ? v->patch : 1))
        return wrong_size("a longest side", longest, err);
    if (patches < v->merge * v->merge || patches > 1 << 20) return wrong_size("max_patches", patches, err);
    v->longest = (int32_t)longest;
    v->max_patches = (int32_t)patches;
    return ERR_OK;
}

static int read_budget(struct vision *v, yyjson_val *root, struct err *err) {
    int64_t most = json_int(root, "max_soft_tokens", 280);
    if (most < 1 || most > 1 << 14) return wrong_size("max_soft_tokens", most, err);
    v->max_tokens = (int32_t)most;
    return ERR_OK;
}

static int read_sizes(struct vision *v, yyjson_val *root, struct err *err) {
    switch (v->family->resize) {
    case RESIZE_TO_AREA: return read_area(v, root, err);
    case RESIZE_TO_BUDGET: return read_budget(v, root, err);
    case RESIZE_TO_FIT:
    case RESIZE_AND_PAD: return read_longest(v, root, err);
    case RESIZE_TO_SQUARE:
    case RESIZE_AND_CROP: return read_square(v, root, err);
    case TILES_BY_SIDE: TRY(read_longest(v, root, err)); break;
    case TILES_IF_LARGE: TRY(read_area(v, root, err)); break;
    default: TRY(read_square(v, root, err));
    }
    return read_tiles(v, root, err);
}

static int read_filter(struct vision *v, yyjson_val *root, struct err *err) {
    int64_t resample = json_int(root, "resample", 3);
    v->filter = resample == 1 ? IMAGE_LANCZOS : resample == 2 ? IMAGE_BILINEAR : IMAGE_BICUBIC;
    return resample >= 1 && resample <= 3 ? ERR_OK
                                          : err_set(err, ERR_EUNSUPPORTED, "preprocessor_config.json: resample %lld", (long long)resample);
}

int processor_load(struct arena *a, const struct checkpoint *c, yyjson_val **out, struct err *err) {
    struct str text;
    int code = checkpoint_file_load(a, c, "preprocessor_config.json", 0, &text, err);
    if (code == ERR_OK) return json_parse(a, text, "preprocessor_config.json", JSON_LENIENT, out, err);
    if (code != ERR_ENOTFOUND) return code;
    TRY(checkpoint_file_load(a, c, "processor_config.json", 0, &text, err));
    TRY(json_parse(a, text, "processor_config.json", JSON_LENIENT, out, err));
    *out = json_get(*out, "image_processor");
    return ERR_OK;
}

int processor_open(struct vision *v, yyjson_val *root, struct err *err) {
    static const float clip_mean[] = {0.48145466f, 0.4578275f, 0.40821073f}, clip_std[] = {0.26862954f, 0.26130258f, 0.27577711f};
    TRY(read_three(json_get(root, "image_mean"), "image_mean", clip_mean, v->mean, err));
    TRY(read_three(json_get(root, "image_std"), "image_std", clip_std, v->std, err));
    for (int i = 0; i < 3; i++)
        if (!(v->std[i] > 0)) return err_set(err, ERR_EFORMAT, "preprocessor_config.json: image_std must be above 0");
    yyjson_val *factor = json_get(root, "rescale_factor");
    v->rescale = yyjson_is_num(factor) ? yyjson_get_num(factor) : 1.0 / 255;
    if (!json_bool(root, "do_normalize", true))
        for (int i = 0; i < 3; i++) v->mean[i] = 0, v->std[i] = 1;
    TRY(read_filter(v, root, err));
    return read_sizes(v, root, err);
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

/* What a level of a colour becomes. */
static float normal(const struct vision *v, int c, int level) {
    if (!v->family->is_bf16) return ((float)(level * v->rescale) - v->mean[c]) / v->std[c];
    float x = bf16_to_f32(bf16_from_f32((float)level * (float)v->rescale));
    x = bf16_to_f32(bf16_from_f32(x - bf16_to_f32(bf16_from_f32(v->mean[c]))));
    return bf16_to_f32(bf16_from_f32(x / bf16_to_f32(bf16_from_f32(v->std[c]))));
}

static void fill_patches(const struct vision *v, const struct image *image, struct patches *p) {
    float tables[3][256];
    int32_t w = p->width / v->merge, r = 0;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 256; i++) tables[c][i] = normal(v, c, i);
    for (int32_t i = 0; i < p->n / (v->merge * v->merge); i++)
        for (int32_t k = 0; k < v->merge * v->merge; k++, r++) {
            int32_t y = p->cells[i] / w * v->merge + k / v->merge, x = p->cells[i] % w * v->merge + k % v->merge;
            fill_patch(v, image, y * v->patch, x * v->patch, tables, p->pixels + (int64_t)r * p->numbers);
            p->places[r * STEP_AXES] = 0;
            p->places[r * STEP_AXES + 1] = y;
            p->places[r * STEP_AXES + 2] = x;
        }
}

int processor_cut(const struct vision *v, struct arena *a, const struct image *tile, struct patches *out, struct err *err) {
    *out = (struct patches){
        .height = tile->height / v->patch, .width = tile->width / v->patch, .numbers = 3 * v->frames * v->patch * v->patch};
    out->n = out->height * out->width;
    if (out->n == 0 || out->height % v->merge || out->width % v->merge)
        return err_set(err, ERR_EFORMAT, "%d x %d patches are no whole tokens of the model", out->width, out->height);
    out->pixels = arena_try(a, (size_t)out->n * (size_t)out->numbers * sizeof *out->pixels);
    if (!out->pixels) return err_set(err, ERR_EMEMORY, "no memory for %d patches of a picture", out->n);
    out->cells = arena_new(a, int32_t, out->n / (v->merge * v->merge));
    out->places = arena_new(a, int32_t, (int64_t)out->n * STEP_AXES);
    for (int i = 0; i < 2; i++) out->spans[i] = arena_new(a, int32_t, 2 * (int64_t)out->n);
    order_cells(v, out);
    fill_patches(v, tile, out);
    return ERR_OK;
}
