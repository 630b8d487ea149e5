/* The families with a tower: one row each. No other file of src/vision names a family. */
#include "vision/vision_internal.h"

#define QWEN_NAMES                                                                                                 \
    .patch = "patch_embed.proj", .norm1 = "blocks.#.norm1", .norm2 = "blocks.#.norm2", .qkv = "blocks.#.attn.qkv", \
    .out = "blocks.#.attn.proj"
#define QWEN_TOWER \
    .prefixes = "visual.|model.visual.|vision_tower.", .eps = 1e-6f, .rope = VISION_ROPE_HALVES, .has_frames = true, .has_places = true
#define QWEN_KEYS \
    { "hidden_size", "num_heads", "depth", "intermediate_size", "out_hidden_size" }
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
#define CLIP_KEYS \
    { "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", NULL }

#define PIXTRAL_TOWER                                                                                                                   \
    .vision = "pixtral", .title = "Pixtral", .act = "gelu", .prefixes = "vision_tower.vision_model.|vision_tower.|model.vision_tower.", \
    .keys = CLIP_KEYS, .norm = NORM_RMS, .eps = 1e-5f, .is_gated = true, .rope = VISION_ROPE_IN_TURN, .resize = RESIZE_TO_FIT,          \
    .row_end = "[IMG_BREAK]", .end = "[IMG_END]"

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
     .keys = {"embed_dim", "num_heads", "depth", NULL, "hidden_size"},
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
    {.type = "llava",
     .vision = "clip_vision_model",
     .title = "CLIP",
     .act = "quick_gelu",
     .prefixes = CLIP_PREFIXES,
     .names = {CLIP_NAMES, .class_row = "embeddings.class_embedding", .pre_norm = "pre_layrnorm|pre_layernorm", MLP_PROJECTOR},
     .keys = CLIP_KEYS,
     .norm = NORM_LAYER,
     .eps = 1e-5f,
     .positions = POSITIONS_FIXED,
     .resize = RESIZE_AND_CROP},
    {.type = "gemma3",
     .title = "SigLIP",
     .act = "gelu_pytorch_tanh",
     .prefixes = CLIP_PREFIXES,
     .names = {CLIP_NAMES, .post_norm = "post_layernorm", .merge_norm = "^multi_modal_projector.mm_soft_emb_norm",
               .merge_out = "^multi_modal_projector.mm_input_projection_weight|^multi_modal_projector.mm_input_projection"},
     .keys = CLIP_KEYS,
     .norm = NORM_LAYER,
     .eps = 1e-6f,
     .positions = POSITIONS_FIXED,
     .resize = RESIZE_TO_SQUARE,
     .pools = true,
     .merge_norm = {NORM_RMS, 1.0f},
     .is_out_transposed = true,
     .size_key = "mm_tokens_per_image",
     .open = "\n\n",
     .close = "\n\n",
     .open_key = "boi_token_index",
     .close_key = "eoi_token_index",
     .sees_both_ways = true},
    {.type = "mistral3",
     PIXTRAL_TOWER,
     .names = {PIXTRAL_NAMES, .merge_norm = "^multi_modal_projector.norm",
               .merge_join = "^multi_modal_projector.patch_merger.merging_layer", MLP_PROJECTOR},
     .merges_by_channel = true},
    {.type = "llava", PIXTRAL_TOWER, .names = {PIXTRAL_NAMES, MLP_PROJECTOR}},
    QWEN3("qwen3_vl", "Qwen3-VL"),
    QWEN3("qwen3_vl_moe", "Qwen3-VL"),
    QWEN3("qwen3_5", "Qwen3.5"),
    QWEN3("qwen3_5_moe", "Qwen3.5"),
};
const int32_t vision_n_families = sizeof vision_table / sizeof *vision_table;
