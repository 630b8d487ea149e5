/* The families with a tower: one row each. No other file of src/vision names a family. */
#include "vision/vision_internal.h"

#define QWEN_NAMES                                                                                                 \
    .patch = "patch_embed.proj", .norm1 = "blocks.#.norm1", .norm2 = "blocks.#.norm2", .qkv = "blocks.#.attn.qkv", \
    .out = "blocks.#.attn.proj"
#define QWEN_TOWER .prefixes = "visual.|model.visual.|vision_tower.", .rope = VISION_ROPE_HALVES, .has_frames = true, .has_places = true
#define QWEN_KEYS \
    { "hidden_size", "num_heads", "depth", "intermediate_size", "out_hidden_size", NULL }
#define QWEN_MERGER .merge_norm = "merger.ln_q", .merge_in = "merger.mlp.0", .merge_out = "merger.mlp.2"

/* '^' before a name: it stands beside the tower, not in it. */
#define MLP_PROJECTOR .merge_in = "^multi_modal_projector.linear_1", .merge_out = "^multi_modal_projector.linear_2"
#define CLIP_PREFIXES "vision_tower.vision_model.|vision_tower.|model.vision_tower.vision_model.|model.vision_tower."
#define CLIP_NAMES                                                                                                                \
    .patch = "embeddings.patch_embedding", .positions = "embeddings.position_embedding", .norm1 = "encoder.layers.#.layer_norm1", \
    .norm2 = "encoder.layers.#.layer_norm2", .q = "encoder.layers.#.self_attn.q_proj", .k = "encoder.layers.#.self_attn.k_proj",  \
    .v = "encoder.layers.#.self_attn.v_proj", .out = "encoder.layers.#.self_attn.out_proj", .up = "encoder.layers.#.mlp.fc1",     \
    .down = "encoder.layers.#.mlp.fc2"
#define PIXTRAL_NAMES                                                                                                                      \
    .patch = "patch_conv", .pre_norm = "ln_pre", .norm1 = "transformer.layers.#.attention_norm", .norm2 = "transformer.layers.#.ffn_norm", \
    .q = "transformer.layers.#.attention.q_proj", .k = "transformer.layers.#.attention.k_proj",                                            \
    .v = "transformer.layers.#.attention.v_proj", .out = "transformer.layers.#.attention.o_proj",                                          \
    .gate = "transformer.layers.#.feed_forward.gate_proj", .up = "transformer.layers.#.feed_forward.up_proj",                              \
    .down = "transformer.layers.#.feed_forward.down_proj"

#define CLIP_ENDS .class_row = "embeddings.class_embedding", .pre_norm = "pre_layrnorm|pre_layernorm"
#define CLIP_TOWER                                                                                                                    \
    .vision = "clip_vision_model", .title = "CLIP", .act = "quick_gelu", .prefixes = CLIP_PREFIXES, .norm = NORM_LAYER, .eps = 1e-5f, \
    .positions = POSITIONS_FIXED
#define SIGLIP_TOWER                                                                                                               \
    .vision = "siglip_vision_model", .title = "SigLIP", .act = "gelu_pytorch_tanh", .prefixes = CLIP_PREFIXES, .norm = NORM_LAYER, \
    .positions = POSITIONS_FIXED
#define KIMI(name) "encoder." name "|" name
#define PADDLE_LAYER(name) "encoder.layers.#." name "|layers.#." name
#define GEMMA4_LINEAR(name) "encoder.layers.#." name ".linear|encoder.layers.#." name
#define IDEFICS3(type_, title_)                                                                                                       \
    {                                                                                                                                 \
        .type = type_, .title = title_, .act = "gelu_pytorch_tanh", .prefixes = "model.vision_model.|vision_model.",                  \
        .names = {CLIP_NAMES, .post_norm = "post_layernorm", .merge_out = "^connector.modality_projection.proj"}, .norm = NORM_LAYER, \
        .positions = POSITIONS_BUCKETS, .merge_key = "scale_factor", .resize = TILES_BY_SIDE, .words = {                              \
            .tile = "<fake_token_around_image><row_{r}_col_{c}>",                                                                     \
            .tiles_end = "\n",                                                                                                        \
            .whole = "\n<fake_token_around_image><global-img>",                                                                       \
            .alone = "<fake_token_around_image><global-img>",                                                                         \
            .close = "<fake_token_around_image>"                                                                                      \
        }                                                                                                                             \
    }
#define GLM4V(type_, title_)                                                                                                       \
    {                                                                                                                              \
        .type = type_, .title = title_, .act = "silu", .prefixes = "model.visual.|visual.|vision_tower.",                          \
        .names = {QWEN_NAMES,                                                                                                      \
                  .positions = "embeddings.position_embedding",                                                                    \
                  .pre_norm = "post_conv_layernorm",                                                                               \
                  .post_norm = "post_layernorm",                                                                                   \
                  .gate = "blocks.#.mlp.gate_proj",                                                                                \
                  .up = "blocks.#.mlp.up_proj",                                                                                    \
                  .down = "blocks.#.mlp.down_proj",                                                                                \
                  .merge_join = "downsample",                                                                                      \
                  .merge_in = "merger.proj",                                                                                       \
                  .merge_mid_norm = "merger.post_projection_norm",                                                                 \
                  .merge_gate = "merger.gate_proj",                                                                                \
                  .merge_up = "merger.up_proj",                                                                                    \
                  .merge_out = "merger.down_proj"},                                                                                \
        .keys = {"hidden_size", "num_heads", "depth", "out_hidden_size", "out_hidden_size", NULL}, .norm = NORM_RMS, .eps = 1e-5f, \
        .is_gated = true, .positions = POSITIONS_CUBIC, .rope = VISION_ROPE_HALVES, .has_positions_after = true,                   \
        .merges_by_channel = true, .merge_norm = {.eps = 1e-5f}, .area = AREA_FRAMES, .has_frames = true, .has_places = true       \
    }
#define PIXTRAL_TOWER                                                                                                                   \
    .vision = "pixtral", .title = "Pixtral", .act = "gelu", .prefixes = "vision_tower.vision_model.|vision_tower.|model.vision_tower.", \
    .norm = NORM_RMS, .eps = 1e-5f, .is_gated = true, .rope = VISION_ROPE_IN_TURN, .resize = RESIZE_TO_FIT,                             \
    .words = {.row_end = "[IMG_BREAK]", .end = "[IMG_END]"}

#define QWEN3(type_, title_)                                                                       \
    {                                                                                              \
        .type = type_, .title = title_, .act = "gelu_pytorch_tanh", QWEN_TOWER, .keys = QWEN_KEYS, \
        .names = {QWEN_NAMES,                                                                      \
                  .positions = "pos_embed",                                                        \
                  .up = "blocks.#.mlp.linear_fc1",                                                 \
                  .down = "blocks.#.mlp.linear_fc2",                                               \
                  .merge_norm = "merger.norm",                                                     \
                  .merge_in = "merger.linear_fc1",                                                 \
                  .merge_out = "merger.linear_fc2",                                                \
                  .deep_norm = "deepstack_merger_list.#.norm",                                     \
                  .deep_in = "deepstack_merger_list.#.linear_fc1",                                 \
                  .deep_out = "deepstack_merger_list.#.linear_fc2"},                               \
        .norm = NORM_LAYER, .positions = POSITIONS_STRETCHED                                       \
    }

const struct vision_family vision_table[] = {
    {.type = "qwen2_vl",
     .title = "Qwen2-VL",
     .act = "quick_gelu",
     QWEN_TOWER,
     .names = {QWEN_NAMES, .up = "blocks.#.mlp.fc1", .down = "blocks.#.mlp.fc2", QWEN_MERGER},
     .keys = {"embed_dim", "num_heads", "depth", NULL, "hidden_size", NULL},
     .norm = NORM_LAYER},
    {.type = "qwen2_5_vl",
     .title = "Qwen2.5-VL",
     .act = "silu",
     QWEN_TOWER,
     .names = {QWEN_NAMES, .gate = "blocks.#.mlp.gate_proj", .up = "blocks.#.mlp.up_proj", .down = "blocks.#.mlp.down_proj", QWEN_MERGER},
     .keys = QWEN_KEYS,
     .norm = NORM_RMS,
     .is_gated = true,
     .has_windows = true},
    {.type = "llava", CLIP_TOWER, .names = {CLIP_NAMES, CLIP_ENDS, MLP_PROJECTOR}, .resize = RESIZE_AND_CROP},
    {.type = "llava", SIGLIP_TOWER, .names = {CLIP_NAMES, MLP_PROJECTOR}, .resize = RESIZE_TO_SQUARE},
    {.type = "llava_next",
     CLIP_TOWER,
     .names = {CLIP_NAMES, CLIP_ENDS, MLP_PROJECTOR, .newline = "^image_newline"},
     .resize = TILES_BY_LIST},
    {.type = "llava_next", SIGLIP_TOWER, .names = {CLIP_NAMES, MLP_PROJECTOR, .newline = "^image_newline"}, .resize = TILES_BY_LIST},
    {.type = "llava_onevision", SIGLIP_TOWER, .names = {CLIP_NAMES, MLP_PROJECTOR, .newline = "^image_newline"}, .resize = TILES_BY_LIST},
    {.type = "paligemma",
     SIGLIP_TOWER,
     .names = {CLIP_NAMES, .post_norm = "post_layernorm", .merge_out = "^multi_modal_projector.linear"},
     .resize = RESIZE_TO_SQUARE,
     .words = {.prompt_end = "\n"},
     .is_prefix = true},
    {.type = "internvl",
     .title = "InternViT",
     .act = "gelu",
     .prefixes = "vision_tower.|model.vision_tower.",
     .names = {.patch = "embeddings.patch_embeddings.projection",
               .positions = "embeddings.position_embeddings",
               .class_row = "embeddings.cls_token",
               .norm1 = "encoder.layer.#.layernorm_before",
               .norm2 = "encoder.layer.#.layernorm_after",
               .q = "encoder.layer.#.attention.q_proj",
               .k = "encoder.layer.#.attention.k_proj",
               .v = "encoder.layer.#.attention.v_proj",
               .q_norm = "encoder.layer.#.attention.q_norm",
               .k_norm = "encoder.layer.#.attention.k_norm",
               .out = "encoder.layer.#.attention.projection_layer",
               .up = "encoder.layer.#.mlp.fc1",
               .down = "encoder.layer.#.mlp.fc2",
               .scale1 = "encoder.layer.#.lambda_1",
               .scale2 = "encoder.layer.#.lambda_2",
               .merge_norm = "^multi_modal_projector.layer_norm",
               MLP_PROJECTOR},
     .norm = NORM_LAYER,
     .positions = POSITIONS_FIXED,
     .merge_key = "downsample_ratio",
     .is_merge_norm_joined = true,
     .merge_norm = {.eps = 1e-5f},
     .resize = TILES_BY_RATIO,
     .words = {.open = "<img>", .close = "</img>"}},
    IDEFICS3("idefics3", "Idefics3"),
    IDEFICS3("smolvlm", "SmolVLM"),
    {.type = "lfm2_vl",
     .title = "SigLIP2",
     .act = "gelu_pytorch_tanh",
     .prefixes = CLIP_PREFIXES,
     .names = {CLIP_NAMES, .post_norm = "post_layernorm", .merge_norm = "^multi_modal_projector.layer_norm", MLP_PROJECTOR},
     .norm = NORM_LAYER,
     .positions = POSITIONS_SMOOTH,
     .has_colours_last = true,
     .merge_key = "downsample_factor",
     .is_merge_norm_joined = true,
     .merge_norm = {.eps = 1e-5f},
     .resize = TILES_IF_LARGE,
     .area = AREA_ONE_TOKEN,
     .is_torch = true,
     .words = {.open = "<|image_start|>", .close = "<|image_end|>", .tile = "<|img_row_{r}_col_{c}|>", .whole = "<|img_thumbnail|>"}},
    {.type = "gemma4",
     .title = "Gemma 4",
     .act = "gelu_pytorch_tanh",
     .prefixes = "model.vision_tower.|vision_tower.",
     .names = {.patch = "patch_embedder.input_proj",
               .positions = "patch_embedder.position_embedding_table",
               .norm1 = "encoder.layers.#.input_layernorm",
               .post1 = "encoder.layers.#.post_attention_layernorm",
               .norm2 = "encoder.layers.#.pre_feedforward_layernorm",
               .post2 = "encoder.layers.#.post_feedforward_layernorm",
               .q = GEMMA4_LINEAR("self_attn.q_proj"),
               .k = GEMMA4_LINEAR("self_attn.k_proj"),
               .v = GEMMA4_LINEAR("self_attn.v_proj"),
               .out = GEMMA4_LINEAR("self_attn.o_proj"),
               .q_norm = "encoder.layers.#.self_attn.q_norm",
               .k_norm = "encoder.layers.#.self_attn.k_norm",
               .gate = GEMMA4_LINEAR("mlp.gate_proj"),
               .up = GEMMA4_LINEAR("mlp.up_proj"),
               .down = GEMMA4_LINEAR("mlp.down_proj"),
               .shift = "std_bias",
               .stretch = "std_scale",
               .merge_out = "^embed_vision.embedding_projection"},
     .norm = NORM_RMS,
     .is_gated = true,
     .positions = POSITIONS_AXES,
     .rope = VISION_ROPE_APART,
     .rope_theta = 100.0f,
     .score_scale = 1.0f,
     .norms_values = true,
     .has_colours_last = true,
     .is_centred = true,
     .pools = true,
     .is_pool_scaled = true,
     .is_merge_norm_bare = true,
     .merge_key = "pooling_kernel_size",
     .resize = RESIZE_TO_BUDGET,
     .open_key = "boi_token_id",
     .close_key = "eoi_token_id",
     .sees_key = "use_bidirectional_attention"},
    {.type = "llama4",
     .title = "Llama 4",
     .act = "gelu",
     .prefixes = "vision_model.|model.vision_model.",
     .names = {.patch = "patch_embedding.linear",
               .positions = "positional_embedding_vlm",
               .class_row = "class_embedding",
               .pre_norm = "layernorm_pre",
               .post_norm = "layernorm_post",
               .norm1 = "model.layers.#.input_layernorm",
               .norm2 = "model.layers.#.post_attention_layernorm",
               .q = "model.layers.#.self_attn.q_proj",
               .k = "model.layers.#.self_attn.k_proj",
               .v = "model.layers.#.self_attn.v_proj",
               .out = "model.layers.#.self_attn.o_proj",
               .up = "model.layers.#.mlp.fc1",
               .down = "model.layers.#.mlp.fc2",
               .merge_in = "vision_adapter.mlp.fc1",
               .merge_mid = "vision_adapter.mlp.fc2",
               .merge_out = "^multi_modal_projector.linear_1"},
     .norm = NORM_LAYER,
     .eps = 1e-5f,
     .positions = POSITIONS_FIXED,
     .rope = VISION_ROPE_PAIRS,
     .first_place = 1,
     .is_class_last = true,
     .merge_key = "pixel_shuffle_ratio",
     .resize = TILES_ON_CANVAS,
     .is_torch = true,
     .is_bf16 = true,
     .words = {.placeholder = "<|image|>",
               .open = "<|image_start|>",
               .close = "<|image_end|>",
               .between = "<|tile_x_separator|>",
               .tiles_end = "<|tile_y_separator|>",
               .whole = "<|image|>",
               .alone = "<|image|>"}},
    {.type = "mllama",
     .title = "Llama 3.2 Vision",
     .act = "gelu",
     .prefixes = "vision_model.|vision_tower.|model.vision_model.",
     .global = "global_",
     .names = {.patch = "patch_embedding",
               .positions = "gated_positional_embedding.embedding",
               .class_row = "class_embedding",
               .pre_norm = "layernorm_pre",
               .post_norm = "layernorm_post",
               .norm1 = "transformer.layers.#.input_layernorm",
               .norm2 = "transformer.layers.#.post_attention_layernorm",
               .q = "transformer.layers.#.self_attn.q_proj",
               .k = "transformer.layers.#.self_attn.k_proj",
               .v = "transformer.layers.#.self_attn.v_proj",
               .out = "transformer.layers.#.self_attn.o_proj",
               .up = "transformer.layers.#.mlp.fc1",
               .down = "transformer.layers.#.mlp.fc2",
               .gate1 = "transformer.layers.#.gate_attn",
               .gate2 = "transformer.layers.#.gate_ffn",
               .tile_before = "pre_tile_positional_embedding.embedding",
               .tile_before_gate = "pre_tile_positional_embedding.gate",
               .tile_positions = "gated_positional_embedding.tile_embedding",
               .position_gate = "gated_positional_embedding.gate",
               .tile_behind = "post_tile_positional_embedding.embedding",
               .tile_behind_gate = "post_tile_positional_embedding.gate",
               .merge_out = "^multi_modal_projector"},
     .keys = {"hidden_size", "attention_heads", "num_hidden_layers", "intermediate_size", NULL, "num_global_layers"},
     .norm = NORM_LAYER,
     .eps = 1e-5f,
     .positions = POSITIONS_FIXED,
     .resize = TILES_ON_CANVAS,
     .adds_bos = true},
    GLM4V("glm4v", "GLM-4V"),
    GLM4V("glm4v_moe", "GLM-4.5V"),
    GLM4V("glm46v", "GLM-4.6V"),
    {.type = "paddleocr_vl",
     .title = "PaddleOCR-VL",
     .act = "gelu_pytorch_tanh",
     .prefixes = "visual.vision_model.|model.visual.vision_model.|visual.",
     .names = {.patch = "embeddings.patch_embedding",
               .positions = "embeddings.position_embedding",
               .post_norm = "post_layernorm",
               .norm1 = PADDLE_LAYER("layer_norm1"),
               .norm2 = PADDLE_LAYER("layer_norm2"),
               .q = PADDLE_LAYER("self_attn.q_proj"),
               .k = PADDLE_LAYER("self_attn.k_proj"),
               .v = PADDLE_LAYER("self_attn.v_proj"),
               .qkv = PADDLE_LAYER("self_attn.qkv"),
               .out = PADDLE_LAYER("self_attn.out_proj"),
               .up = PADDLE_LAYER("mlp.fc1"),
               .down = PADDLE_LAYER("mlp.fc2"),
               .merge_norm = "^mlp_AR.pre_norm|projector.pre_norm",
               .merge_in = "^mlp_AR.linear_1|projector.linear_1",
               .merge_out = "^mlp_AR.linear_2|projector.linear_2"},
     .norm = NORM_LAYER,
     .positions = POSITIONS_STRETCHED,
     .rope = VISION_ROPE_HALVES,
     .merge_norm = {.eps = 1e-5f},
     .area = AREA_WHOLE,
     .has_places = true},
    {.type = "kimi_k25",
     .title = "MoonViT",
     .act = "gelu_pytorch_tanh",
     .prefixes = "vision_tower.",
     .names = {.patch = KIMI("patch_embed.proj"),
               .positions = "patch_embed.pos_emb",
               .post_norm = KIMI("final_layernorm"),
               .norm1 = KIMI("blocks.#.norm0"),
               .norm2 = KIMI("blocks.#.norm1"),
               .qkv = KIMI("blocks.#.wqkv") "|blocks.#.attn.wqkv",
               .out = KIMI("blocks.#.wo") "|blocks.#.attn.wo",
               .up = KIMI("blocks.#.mlp.fc0"),
               .down = KIMI("blocks.#.mlp.fc1"),
               .merge_norm = "^mm_projector.pre_norm",
               .merge_in = "^mm_projector.proj.0",
               .merge_out = "^mm_projector.proj.2"},
     .norm = NORM_LAYER,
     .eps = 1e-5f,
     .positions = POSITIONS_CUBIC,
     .rope = VISION_ROPE_MIXED,
     .merge_key = "merge_kernel_size",
     .resize = RESIZE_AND_PAD,
     .is_torch = true},
    {.type = "gemma3",
     .title = "SigLIP",
     .act = "gelu_pytorch_tanh",
     .prefixes = CLIP_PREFIXES,
     .names = {CLIP_NAMES, .post_norm = "post_layernorm", .merge_norm = "^multi_modal_projector.mm_soft_emb_norm",
               .merge_out = "^multi_modal_projector.mm_input_projection_weight|^multi_modal_projector.mm_input_projection"},
     .norm = NORM_LAYER,
     .positions = POSITIONS_FIXED,
     .resize = RESIZE_TO_SQUARE,
     .pools = true,
     .merge_norm = {.kind = NORM_RMS, .offset = 1.0f},
     .is_out_transposed = true,
     .size_key = "mm_tokens_per_image",
     .words = {.open = "\n\n", .close = "\n\n"},
     .open_key = "boi_token_index",
     .close_key = "eoi_token_index",
     .is_open_placeholder = true,
     .sees_both_ways = true},
    {.type = "mistral3",
     PIXTRAL_TOWER,
     .names = {PIXTRAL_NAMES, .merge_norm = "^multi_modal_projector.norm",
               .merge_join = "^multi_modal_projector.patch_merger.merging_layer", MLP_PROJECTOR},
     .merges_by_channel = true,
     .merge_norm = {.has_text_eps = true}},
    {.type = "llava", PIXTRAL_TOWER, .names = {PIXTRAL_NAMES, MLP_PROJECTOR}},
    QWEN3("qwen3_vl", "Qwen3-VL"),
    QWEN3("qwen3_vl_moe", "Qwen3-VL"),
    QWEN3("qwen3_5", "Qwen3.5"),
    QWEN3("qwen3_5_moe", "Qwen3.5"),
};
const int32_t vision_n_families = sizeof vision_table / sizeof *vision_table;

/* Made-up ones, for measuring. */
const struct tower_shape vision_shapes[] = {
    {.name = "qwen2.5-vl-3b",
     .text_hidden = 2048,
     .depth = "\"depth\": ",
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
     .depth = "\"num_hidden_layers\": ",
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
const int32_t vision_n_shapes = sizeof vision_shapes / sizeof *vision_shapes;
