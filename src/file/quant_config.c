/* The quantisation that config.json declares, and its check against the tensors.
 *
 * MLX writes `quantization` (and a copy as `quantization_config`): group_size, bits, mode, and one entry per path that
 * differs, an object or false. An entry that leaves something out gets MLX's defaults for its mode, not the file's: a
 * file in mxfp4 with the entry {"group_size": 64, "bits": 8} means affine there. Other programs write
 * `quantization_config` with a quant_method; that is recognised by its name so that loading can refuse it by name. */
#include "file/config.h"

#include <stdio.h>

/* What MLX takes when a mode is named without the rest. */
static const struct format mode_defaults[N_QUANT_MODES] = {
    [QUANT_AFFINE] = {.mode = QUANT_AFFINE, .bits = 4, .group = 64},
    [QUANT_MXFP4] = {.mode = QUANT_MXFP4, .bits = 4, .group = 32},
    [QUANT_MXFP8] = {.mode = QUANT_MXFP8, .bits = 8, .group = 32},
    [QUANT_NVFP4] = {.mode = QUANT_NVFP4, .bits = 4, .group = 16},
};

/* where: "quantization", or "quantization of model.layers.0..." */
static int read_format(const struct config *c, const char *where, yyjson_val *obj, struct format *out, struct err *err) {
    enum quant_mode mode = QUANT_AFFINE;
    yyjson_val *name = json_get(obj, "mode");
    if (name && !yyjson_is_null(name) && (!yyjson_is_str(name) || !quant_mode_parse(json_val_str(name), &mode)))
        return err_set(err, ERR_EUNSUPPORTED, "%s: %s.mode is %.40s, known are affine, mxfp4, mxfp8 and nvfp4", c->name, where,
                       yyjson_is_str(name) ? yyjson_get_str(name) : yyjson_get_type_desc(name));
    *out = mode_defaults[mode];
    int64_t bits, group;
    const struct config_part part = {c->name, where, obj};
    TRY(config_part_int(&part, "bits", (struct config_range){1, 32}, out->bits, &bits, err));
    TRY(config_part_int(&part, "group_size", (struct config_range){1, 65536}, out->group, &group, err));
    if (group > 128 || bits > 8) bits = group = 0; /* no format has these: reported below */
    struct format f = {.mode = mode, .bits = (uint8_t)bits, .group = (uint16_t)group};
    if (!bits || !format_valid(&f))
        return err_set(err, ERR_EUNSUPPORTED, "%s: %s is %s with bits %lld and group_size %lld, expected %s", c->name, where,
                       quant_mode_name(mode), (long long)json_int(obj, "bits", out->bits),
                       (long long)json_int(obj, "group_size", out->group),
                       mode == QUANT_AFFINE ? "bits 2, 3, 4, 5, 6 or 8 and groups of 32, 64 or 128" : "the mode's own");
    *out = f;
    return ERR_OK;
}

static int read_overrides(struct arena *a, const struct config *c, yyjson_val *obj, struct quant_config *out, struct err *err) {
    size_t i, n;
    yyjson_val *key, *val;
    yyjson_obj_foreach(obj, i, n, key, val) {
        struct format *f = NULL;
        if (yyjson_is_obj(val)) {
            const char *where = str_fmt(a, "quantization of %.120s", yyjson_get_str(key)).p;
            f = arena_new(a, struct format, 1);
            TRY(read_format(c, where, val, f, err));
        } else if (yyjson_is_true(val) && str_find_char(json_val_str(key), '.', 0) != STR_NONE) {
            f = arena_copy(a, &out->base, sizeof out->base);
        } else if (!yyjson_is_false(val)) {
            continue; /* group_size, bits, mode, and remarks of the program that wrote the file */
        }
        map_put(&out->overrides, json_val_str(key), NULL)->value.ptr = f;
    }
    return ERR_OK;
}

int quant_config_read(struct arena *a, const struct config *c, struct quant_config *out, struct err *err) {
    *out = (struct quant_config){0};
    yyjson_val *mlx = config_get(c, "quantization"), *any = config_get(c, "quantization_config");
    if (!yyjson_is_obj(mlx)) mlx = NULL;
    if (!mlx && yyjson_is_obj(any)) {
        struct str method = json_str(any, "quant_method", (struct str){0});
        if (method.p) out->foreign = method;
        else if (json_get(any, "bits") || json_get(any, "group_size")) mlx = any;
        else out->foreign = STR("unknown");
    }
    if (!mlx) return ERR_OK;
    out->present = true;
    int code = read_format(c, "quantization", mlx, &out->base, err);
    if (code == ERR_OK) code = read_overrides(a, c, mlx, out, err);
    if (code) quant_config_free(out);
    return code;
}

void quant_config_free(struct quant_config *q) {
    map_free(&q->overrides);
    *q = (struct quant_config){0};
}

int quant_lookup(const struct quant_config *q, struct str path, struct format *out) {
    if (!q->present) return QUANT_IS_PLAIN;
    const struct map_entry *e = map_find(&q->overrides, path);
    if (!e) {
        *out = q->base;
        return QUANT_IS_DEFAULT;
    }
    if (!e->value.ptr) return QUANT_IS_PLAIN;
    *out = *(const struct format *)e->value.ptr;
    return QUANT_IS_DECLARED;
}

/* ---- against the tensors -------------------------------------------------------------------------------------- */

static int wrong(const char *file, const struct st_tensor *t, const struct format *f, const char *expected, struct err *err) {
    char shape[80], name[32];
    return err_set(err, ERR_EFORMAT, "%s: tensor %.*s is %s %s, which is not %s as declared (%s)", file,
                   (int)(t->name.n > 160 ? 160 : t->name.n), t->name.p, dtype_name(t->dtype), st_shape_text(t, shape, sizeof shape),
                   format_name(f, name), expected);
}

/* All dimensions but the last are the same. */
static bool same_rows(const struct st_tensor *a, const struct st_tensor *b) {
    return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, (size_t)(a->n_dims - 1) * sizeof *a->shape) == 0;
}

static bool is_scale_float(enum dtype dt) {
    return dt == DT_F32 || dt == DT_F16 || dt == DT_BF16;
}

int quant_verify(const char *file, const struct st_tensor *weight, const struct st_tensor *scales, const struct st_tensor *biases,
                 struct format *f, int64_t *out_width, struct err *err) {
    bool affine = f->mode == QUANT_AFFINE;
    f->dtype = affine ? scales->dtype : format_scale_dtype(f);
    if (affine && !is_scale_float(scales->dtype)) return wrong(file, scales, f, "scales are F32, F16 or BF16", err);
    if (scales->dtype != format_scale_dtype(f)) return wrong(file, scales, f, "scales are of another type", err);
    if (weight->dtype != DT_U32) return wrong(file, weight, f, "packed values are U32", err);
    if (weight->n_dims < 2 || !same_rows(weight, scales)) return wrong(file, scales, f, "scales have the rows of the weight", err);
    if (affine && !biases) return wrong(file, scales, f, "biases are missing", err);
    if (!affine && biases) return wrong(file, biases, f, "there are no biases", err);
    if (biases && (biases->dtype != scales->dtype || biases->n_dims != scales->n_dims ||
                   memcmp(biases->shape, scales->shape, (size_t)scales->n_dims * sizeof *scales->shape) != 0))
        return wrong(file, biases, f, "biases are like the scales", err);
    int64_t packed = weight->shape[weight->n_dims - 1], groups = scales->shape[scales->n_dims - 1];
    if (packed > INT64_MAX / 32 || groups > INT64_MAX / (8 * 128) || packed * 32 != groups * f->group * f->bits) {
        char shape[80], expected[112];
        snprintf(expected, sizeof expected, "with scales %s", st_shape_text(scales, shape, sizeof shape));
        return wrong(file, weight, f, expected, err);
    }
    *out_width = groups * f->group;
    return ERR_OK;
}
