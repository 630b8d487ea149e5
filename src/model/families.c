/* The table of families: the only file that names one. docs/families.md and `mlxcel arch` are made from it. */
#include "model/families.h"

#include "model/shapes.h"

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

/* ---- dimensions of well-known checkpoints, from their config.json --------------------------------------------------- */

#define LLAMA3_ROPE(factor) \
    "{\"rope_type\":\"llama3\",\"factor\":" #factor ",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"

const struct model_shape model_shapes[] = {
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, true, true, NULL},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6f, true, true, NULL},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e6f, true, true, NULL},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6f, false, true, NULL},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5f, true, false, LLAMA3_ROPE(32.0)},
    {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5f, true, false, LLAMA3_ROPE(32.0)},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, false, false, LLAMA3_ROPE(8.0)},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, true, false, NULL},
    {"tiny", "qwen3", 2, 128, 256, 4, 2, 64, 4096, 512, 1e4f, true, true, NULL},
};

const int32_t n_model_shapes = (int32_t)(sizeof model_shapes / sizeof *model_shapes);
