/* The families with a tower: one row each. No other file of src/vision names a family. */
#include "vision/vision_internal.h"

#define QWEN_NAMES                                                                                                 \
    .patch = "patch_embed.proj", .norm1 = "blocks.#.norm1", .norm2 = "blocks.#.norm2", .qkv = "blocks.#.attn.qkv", \
    .out = "blocks.#.attn.proj"
#define QWEN_PREFIXES "visual.|model.visual.|vision_tower."

#define QWEN3(type_, title_)                                                                                                     \
    {                                                                                                                            \
        .type = type_, .title = title_, .prefixes = QWEN_PREFIXES,                                                               \
        .names = {QWEN_NAMES,                                                                                                    \
                  .positions = "pos_embed",                                                                                      \
                  .up = "blocks.#.mlp.linear_fc1",                                                                               \
                  .down = "blocks.#.mlp.linear_fc2",                                                                             \
                  .merge_norm = "merger.norm",                                                                                   \
                  .merge_in = "merger.linear_fc1",                                                                               \
                  .merge_out = "merger.linear_fc2",                                                                              \
                  .deep_norm = "deepstack_merger_list.#.norm",                                                                   \
                  .deep_in = "deepstack_merger_list.#.linear_fc1",                                                               \
                  .deep_out = "deepstack_merger_list.#.linear_fc2"},                                                             \
        .keys = {"hidden_size", "num_heads", "depth", "intermediate_size", "out_hidden_size"}, .norm = NORM_LAYER, .eps = 1e-6f, \
        .positions = POSITIONS_STRETCHED, .has_places = true                                                                     \
    }

const struct vision_family vision_table[] = {
    {.type = "qwen2_vl",
     .title = "Qwen2-VL",
     .prefixes = QWEN_PREFIXES,
     .names = {QWEN_NAMES, .up = "blocks.#.mlp.fc1", .down = "blocks.#.mlp.fc2", .merge_norm = "merger.ln_q", .merge_in = "merger.mlp.0",
               .merge_out = "merger.mlp.2"},
     .keys = {"embed_dim", "num_heads", "depth", NULL, "hidden_size"},
     .norm = NORM_LAYER,
     .eps = 1e-6f,
     .has_places = true},
    {.type = "qwen2_5_vl",
     .title = "Qwen2.5-VL",
     .prefixes = QWEN_PREFIXES,
     .names = {QWEN_NAMES, .gate = "blocks.#.mlp.gate_proj", .up = "blocks.#.mlp.up_proj", .down = "blocks.#.mlp.down_proj",
               .merge_norm = "merger.ln_q", .merge_in = "merger.mlp.0", .merge_out = "merger.mlp.2"},
     .keys = {"hidden_size", "num_heads", "depth", "intermediate_size", "out_hidden_size"},
     .norm = NORM_RMS,
     .eps = 1e-6f,
     .is_gated = true,
     .has_windows = true,
     .has_places = true},
    QWEN3("qwen3_vl", "Qwen3-VL"),
    QWEN3("qwen3_vl_moe", "Qwen3-VL"),
    QWEN3("qwen3_5", "Qwen3.5"),
    QWEN3("qwen3_5_moe", "Qwen3.5"),
};
const int32_t vision_n_families = sizeof vision_table / sizeof *vision_table;
