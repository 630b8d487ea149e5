/* Made-up towers of well-known models: their configs, and the tensors that those ask for. Numbers come from a hash. */
#include "base/fmath.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/json.h"
#include "vision/vision_internal.h"

/* '#' in a name stands for a number. Vectors have 0 rows. */
struct shape_tensor {
    const char *name;
    int64_t rows, columns;
};

struct tower_shape {
    const char *name, *config, *processor;
    int32_t text_hidden;
    struct shape_tensor tensors[24];
};

static const struct tower_shape shapes[] = {
    {.name = "qwen2.5-vl-3b",
     .text_hidden = 2048,
     .config =
         "{\"model_type\": \"qwen2_5_vl\", \"image_token_id\": 151655, \"text_config\": {}, \"vision_config\": {\"depth\": 32, \"hidden_size\": 1280,"
         "\"intermediate_size\": 3420, \"num_heads\": 16, \"out_hidden_size\": 2048, \"patch_size\": 14, \"spatial_merge_size\": 2, \"window_size\": 112,"
         "\"fullatt_block_indexes\": [7, 15, 23, 31], \"hidden_act\": \"silu\"}}",
     .processor = "{\"min_pixels\": 3136, \"max_pixels\": 12845056}",
     .tensors = {{"visual.patch_embed.proj.weight", 1280, 1176},
                 {"visual.blocks.#.norm1.weight", 0, 1280},
                 {"visual.blocks.#.norm2.weight", 0, 1280},
                 {"visual.blocks.#.attn.qkv.weight", 3840, 1280},
                 {"visual.blocks.#.attn.qkv.bias", 0, 3840},
                 {"visual.blocks.#.attn.proj.weight", 1280, 1280},
                 {"visual.blocks.#.attn.proj.bias", 0, 1280},
                 {"visual.blocks.#.mlp.gate_proj.weight", 3420, 1280},
                 {"visual.blocks.#.mlp.gate_proj.bias", 0, 3420},
                 {"visual.blocks.#.mlp.up_proj.weight", 3420, 1280},
                 {"visual.blocks.#.mlp.up_proj.bias", 0, 3420},
                 {"visual.blocks.#.mlp.down_proj.weight", 1280, 3420},
                 {"visual.blocks.#.mlp.down_proj.bias", 0, 1280},
                 {"visual.merger.ln_q.weight", 0, 1280},
                 {"visual.merger.mlp.0.weight", 5120, 5120},
                 {"visual.merger.mlp.0.bias", 0, 5120},
                 {"visual.merger.mlp.2.weight", 2048, 5120},
                 {"visual.merger.mlp.2.bias", 0, 2048}}},
    {.name = "gemma-3-4b",
     .text_hidden = 2560,
     .config =
         "{\"model_type\": \"gemma3\", \"image_token_index\": 262144, \"mm_tokens_per_image\": 256, \"text_config\": {}, \"vision_config\": {\"hidden_size\":"
         " 1152, \"image_size\": 896, \"intermediate_size\": 4304, \"num_attention_heads\": 16, \"num_hidden_layers\": 27, \"patch_size\": 14}}",
     .processor = "{\"size\": {\"height\": 896, \"width\": 896}, \"resample\": 2}",
     .tensors = {{"vision_tower.vision_model.embeddings.patch_embedding.weight", 1152, 588},
                 {"vision_tower.vision_model.embeddings.patch_embedding.bias", 0, 1152},
                 {"vision_tower.vision_model.embeddings.position_embedding.weight", 4096, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.layer_norm1.weight", 0, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.layer_norm1.bias", 0, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.layer_norm2.weight", 0, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.layer_norm2.bias", 0, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.self_attn.q_proj.weight", 1152, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.self_attn.q_proj.bias", 0, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.self_attn.k_proj.weight", 1152, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.self_attn.k_proj.bias", 0, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.self_attn.v_proj.weight", 1152, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.self_attn.v_proj.bias", 0, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.self_attn.out_proj.weight", 1152, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.self_attn.out_proj.bias", 0, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.mlp.fc1.weight", 4304, 1152},
                 {"vision_tower.vision_model.encoder.layers.#.mlp.fc1.bias", 0, 4304},
                 {"vision_tower.vision_model.encoder.layers.#.mlp.fc2.weight", 1152, 4304},
                 {"vision_tower.vision_model.encoder.layers.#.mlp.fc2.bias", 0, 1152},
                 {"vision_tower.vision_model.post_layernorm.weight", 0, 1152},
                 {"vision_tower.vision_model.post_layernorm.bias", 0, 1152},
                 {"multi_modal_projector.mm_soft_emb_norm.weight", 0, 1152},
                 {"multi_modal_projector.mm_input_projection_weight", 1152, 2560}}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

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

int vision_open_shape(struct arena *a, struct str shape, struct backend *be, struct vision **out, struct err *err) {
    struct config config;
    struct vision_source source = {.config = &config};
    const struct tower_shape *s = shapes;
    while (s < shapes + N_SHAPES && !str_is(shape, s->name)) s++;
    if (s == shapes + N_SHAPES)
        return err_set(err, ERR_EARG, "there is no made-up tower \"%.*s\"; there are %s and %s", STR_ARG(shape), shapes[0].name,
                       shapes[1].name);
    TRY(config_parse(a, str_of(s->config), "config.json", &config, err));
    TRY(json_parse(a, str_of(s->processor), "preprocessor_config.json", JSON_STRICT, &source.processor, err));
    struct tensor_store store = {.find = store_find, .read = store_read, .user = (void *)(uintptr_t)s};
    source.store = &store;
    source.text_hidden = s->text_hidden;
    return vision_open_source(&source, be, out, err);
}
