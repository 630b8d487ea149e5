/* What a tower is, for people: from the files beside the weights alone. */
#include "vision/vision_internal.h"

#include "base/json.h"

/* Tokens of a tile with empty rows, which are only counted. */
static struct tile_rows empty_rows(const struct vision *v, struct arena *a, const struct image *tile) {
    int32_t side = v->patch * v->merge;
    struct tile_rows rows = {.height = tile->height / side, .width = tile->width / side};
    rows.n = rows.height * rows.width;
    rows.rows[0] = arena_new(a, float, (int64_t)rows.n * v->text_hidden);
    return rows;
}

static int count_tokens(struct vision *v, struct arena *a, int32_t side, int32_t *out, struct err *err) {
    struct image image = {.width = side, .height = side, .rgb = arena_new(a, uint8_t, (int64_t)side * side * 3)};
    struct vision_picture picture = {0};
    struct tiles t = {0};
    if (v->family->global) { /* one stands for all states of a picture */
        *out = 1;
        return ERR_OK;
    }
    if (v->family->names.newline) v->newline = arena_new(a, float, v->text_hidden);
    v->n_mergers = 1;
    int code = tiles_make(v, a, &image, &t, err);
    struct tile_rows *rows = arena_new(a, struct tile_rows, t.n + 1);
    for (int32_t i = 0; i < t.n && !code; i++) rows[i] = empty_rows(v, a, &t.images[i]);
    if (!code) code = layout_rows(v, &t, rows, &picture, err);
    *out = picture.n_tokens;
    vision_picture_free(&picture);
    tiles_free(&t);
    return code;
}

int vision_outline(const struct checkpoint *c, int32_t text_hidden, struct vision_outline *out, struct err *err) {
    struct vision v;
    struct arena a = {0};
    int code = vision_open_files(c, text_hidden, &v, err);
    *out = (struct vision_outline){0};
    if (!code) {
        const struct vision_names *n = &v.family->names;
        const char *const matrices[] = {n->merge_join, n->merge_in, n->merge_mid, n->merge_gate, n->merge_up, n->merge_out};
        *out = (struct vision_outline){.layers = v.layers + v.tiled.n_global,
                                       .hidden = v.hidden,
                                       .patch = v.patch,
                                       .merge = v.merge,
                                       .pools = v.family->pools,
                                       .n_sets = 1};
        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) out->n_matrices += matrices[i] != NULL;
        if (n->deep_in)
            out->n_sets += (int32_t)yyjson_arr_size(json_get(json_get(c->config.root, "vision_config"), "deepstack_visual_indexes"));
        code = count_tokens(&v, &a, VISION_USUAL_SIDE, &out->n_tokens, err);
    }
    arena_free(&a);
    arena_free(&v.arena);
    return code;
}
