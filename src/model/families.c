/* The table of families: the only file that names one. docs/families.md and `mlxcel arch` are made from it. */
#include "model/families.h"

const struct family families[] = {
    {.type = "llama", .title = "Llama 2, 3, 3.1, 3.2, 3.3; SmolLM 1, 2; Yi; TinyLlama"},
    {.type = "qwen3", .title = "Qwen3 dense", .qk_norm = QK_HEAD},
};

const int32_t n_families = (int32_t)(sizeof families / sizeof *families);

static const char *nearest_family(struct str type) {
    const char *best = families[0].type;
    size_t best_distance = STR_NONE;
    for (int32_t i = 0; i < n_families; i++) {
        size_t d = str_distance(type, str_of(families[i].type));
        if (d < best_distance) {
            best_distance = d;
            best = families[i].type;
        }
    }
    return best;
}

const struct family *family_find(struct str type, struct err *err) {
    for (int32_t i = 0; i < n_families; i++)
        if (str_is(type, families[i].type)) return &families[i];
    err_set(err, ERR_EUNSUPPORTED, "model type \"%.*s\" is not supported; the nearest is \"%s\" (`mlxcel arch` lists all)", STR_ARG(type), nearest_family(type));
    return NULL;
}
