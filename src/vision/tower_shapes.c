/* Made-up towers of well-known models: their configs, and the tensors that those ask for. Numbers come from a hash. */
#include "base/fmath.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/json.h"
#include "vision/vision_internal.h"

/* Whether a name is that of the pattern. */
static bool is_named(const char *pattern, struct str name) {
    const char *p = name.p, *end = name.p + name.n;
    for (; *pattern && p < end; pattern++) {
        if (*pattern != '#' && *pattern != *p++) return false;
        while (*pattern == '#' && p < end && *p >= '0' && *p <= '9') p++;
    }
    return *pattern == 0 && p == end;
}

static bool store_find(void *user, struct str name, struct tensor_info *out) {
    const struct tower_shape *s = user;
    for (const struct shape_tensor *t = s->tensors; t < s->tensors + sizeof s->tensors / sizeof *s->tensors && t->name; t++) {
        if (!is_named(t->name, name)) continue;
        *out = (struct tensor_info){.name = name, .dtype = DT_BF16, .n_dims = t->rows ? 2 : 1, .handle = t};
        out->shape[0] = t->rows ? t->rows : t->columns;
        out->shape[1] = t->columns;
        return true;
    }
    return false;
}

/* Matrices keep numbers near 1; what norms multiply by is 1. */
static int store_read(void *user, const struct tensor_info *info, uint64_t offset, void *dst, size_t n, struct err *err) {
    (void)user, (void)err;
    const struct shape_tensor *t = info->handle;
    uint16_t *to = dst;
    uint64_t seed = hash_bytes(info->name.p, info->name.n, 1);
    float spread = t->rows ? (float)sqrt(3.0 / (double)t->columns) : 0.01f,
          middle = t->rows || !str_ends(info->name, STR("weight")) ? 0 : 1;
    for (uint64_t i = 0; i < n / 2; i++) {
        uint64_t at = offset / 2 + i, bits = hash_pair(seed, at / 4) >> (16 * (at % 4)) & 0xFFFF;
        to[i] = bf16_from_f32(middle + spread * ((float)bits / 32768.0f - 1.0f));
    }
    return ERR_OK;
}

/* The config of a shape, or of its first n layers. */
static struct str config_of(struct arena *a, const struct tower_shape *s, int64_t n) {
    struct str rest = str_of(s->config);
    struct sb out = {0};
    size_t at = str_find(rest, str_of(s->depth), 0) + strlen(s->depth);
    if (n == 0) return rest;
    sb_fmt(&out, "%.*s%d", (int)at, rest.p, (int)n);
    while (rest.p[at] >= '0' && rest.p[at] <= '9') at++;
    sb_put(&out, str_from(rest, at));
    rest = str_copy(a, sb_str(&out));
    sb_free(&out);
    return rest;
}

int vision_open_shape(struct arena *a, struct str shape, struct backend *be, struct vision **out, struct err *err) {
    struct config config;
    struct vision_source source = {.config = &config};
    const struct tower_shape *s = vision_shapes, *end = vision_shapes + vision_n_shapes;
    struct str name, layers = shape;
    int64_t n = 0;
    str_split_next(&layers, '/', &name);
    while (s < end && !str_is(name, s->name)) s++;
    if (s == end || (name.n < shape.n && (!str_to_int64(layers, &n) || n < 1 || n > TOWER_LAYERS_MAX)))
        return err_set(err, ERR_EARG,
                       "there is no made-up tower \"%.*s\"; there are %s and %s, and with /N behind the name their first N layers",
                       STR_ARG(shape), vision_shapes[0].name, vision_shapes[1].name);
    TRY(config_parse(a, config_of(a, s, n), "config.json", &config, err));
    TRY(json_parse(a, str_of(s->processor), "preprocessor_config.json", JSON_STRICT, &source.processor, err));
    struct tensor_store store = {.find = store_find, .read = store_read, .user = (void *)(uintptr_t)s};
    source.store = &store;
    source.text_hidden = s->text_hidden;
    return vision_open_source(&source, be, out, err);
}
