/* The table of families: the only file that names one. docs/families.md and `mlxcel arch` are made from it. */
#include "model/families.h"

#include "model/shapes.h"

/* Tables, and so laid out by hand. */
/* clang-format off */

/* ---- keys that a family calls by another name --------------------------------------------------------------------- */

#define KEYS(name, ...) static const struct key_name name[] = {__VA_ARGS__, {NULL, NULL}}

KEYS(experts_have_intermediate_size, {"moe_intermediate_size", "intermediate_size"});
KEYS(gpt2_keys, {"hidden_size", "n_embd"}, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"},
     {"max_position_embeddings", "n_positions"}, {"intermediate_size", "n_inner"}, {"hidden_act", "activation_function"},
     {"head_dim", NULL}, {"num_key_value_heads", NULL});
KEYS(gpt_neox_keys, {"head_dim", NULL}, {"num_key_value_heads", NULL});
KEYS(ministral3_keys, {"position_scale_beta", "llama_4_scaling_beta"});
KEYS(hunyuan_moe_keys, {"moe_intermediate_size", "intermediate_size"}, {"num_experts_per_tok", "moe_topk"}, {"n_shared_experts", NULL});
KEYS(ernie_moe_keys, {"num_experts", "moe_num_experts"}, {"num_experts_per_tok", "moe_k"}, {"n_shared_experts", "moe_num_shared_experts"},
     {"first_k_dense_replace", "moe_layer_start_index"}, {"decoder_sparse_step", "moe_layer_interval"});
KEYS(gemma3_keys, {"attn_logit_softcapping", NULL});
KEYS(gemma4_keys, {"num_experts_per_tok", "top_k_experts"});
KEYS(llama4_keys, {"intermediate_size", "intermediate_size_mlp"}, {"moe_intermediate_size", "intermediate_size"},
     {"decoder_sparse_step", "interleave_moe_layer_step"});
KEYS(mamba_keys, {"ssm_width", "state_size"}, {"ssm_taps", "conv_kernel"}, {"ssm_expand", "expand"}, {"ssm_dt_rank", "time_step_rank"},
     {"ssm_inner", "intermediate_size"});
KEYS(mamba2_keys, {"ssm_width", "state_size"}, {"ssm_taps", "conv_kernel"}, {"ssm_expand", "expand"}, {"ssm_heads", "num_heads"},
     {"ssm_head_dim", "head_dim"}, {"ssm_groups", "n_groups"});
/* What hybrid models call their state spaces. */
#define SSM_KEYS \
    {"ssm_heads", "mamba_n_heads"}, {"ssm_head_dim", "mamba_d_head"}, {"ssm_groups", "mamba_n_groups"}, {"ssm_width", "mamba_d_state"}, \
    {"ssm_taps", "mamba_d_conv"}, {"ssm_expand", "mamba_expand"}, {"ssm_norm_first", "mamba_norm_before_gate"}, \
    {"ssm_norm", "mamba_rms_norm"}, {"ssm_dt_rank", "mamba_dt_rank"}
KEYS(falcon_h1_keys, SSM_KEYS, {"logit_scale", "lm_head_multiplier"});
KEYS(jamba_keys, SSM_KEYS, {"moe_intermediate_size", "intermediate_size"}, {"decoder_sparse_step", "expert_layer_period"});
KEYS(granite_hybrid_keys, SSM_KEYS, {"moe_intermediate_size", "intermediate_size"},
     {"shared_expert_intermediate_size", "shared_intermediate_size"}, {"num_experts", "num_local_experts"});
KEYS(nemotron_h_keys, {"layer_types", "layers_block_type"}, {"ssm_heads", "mamba_num_heads"}, {"ssm_head_dim", "mamba_head_dim"},
     {"ssm_groups", "n_groups"}, {"ssm_width", "ssm_state_size"}, {"ssm_taps", "conv_kernel"}, {"hidden_act", "mlp_hidden_act"},
     {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"});
KEYS(lfm2_moe_keys, {"first_k_dense_replace", "num_dense_layers"});

/* ---- numbers and switches that files of a family leave out -------------------------------------------------------- */

#define DEFAULTS(name, ...) static const struct key_default name[] = {__VA_ARGS__, {NULL, 0}}

DEFAULTS(gemma3_defaults, {"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 256}, {"vocab_size", 262208},
         {"query_pre_attn_scalar", 256}, {"max_position_embeddings", 131072}, {"sliding_window", 4096});
DEFAULTS(cohere_defaults, {"logit_scale", 0.0625});
DEFAULTS(cohere2_defaults, {"logit_scale", 0.0625}, {"sliding_window", 4096});
DEFAULTS(nope_every_fourth, {"no_rope_layer_interval", 4});
DEFAULTS(llama4_defaults, {"no_rope_layer_interval", 4}, {"attn_temperature_tuning", 1}, {"use_qk_norm", 1});
DEFAULTS(gemma2_defaults, {"sliding_window", 4096});
DEFAULTS(gemma3n_defaults, {"attention_multiplier", 1}, {"sliding_window", 512});
DEFAULTS(gemma4_defaults, {"attention_multiplier", 1}, {"global_head_dim", 512}, {"sliding_window", 512});
DEFAULTS(olmo3_defaults, {"sliding_window", 4096});
DEFAULTS(gpt_oss_defaults, {"sliding_window", 128});
DEFAULTS(ernie_moe_defaults, {"first_k_dense_replace", 1});
DEFAULTS(lfm2_defaults, {"block_auto_adjust_ff_dim", 1});

/* ---- tensors under names of their own ----------------------------------------------------------------------------- */

#define ROLES(name, ...) static const struct role_name name[] = {__VA_ARGS__, {ROLE_EMBED, NULL}}

ROLES(four_norms, {ROLE_FFN_NORM, "@l.post_attention_layernorm"}, {ROLE_MIX_POST_NORM, "@l.post_self_attn_layernorm"});
ROLES(norm_before_either, {ROLE_FFN_NORM, "@l.norm"});
ROLES(experts_beside_mlp, {ROLE_ROUTER, "@l.router.proj"},
      {ROLE_EXPERT_GATE_UP, "@l.experts.gate_up_proj|@l.experts.switch_glu.gate_up_proj"},
      {ROLE_EXPERT_GATE, "@l.experts.switch_glu.gate_proj"}, {ROLE_EXPERT_UP, "@l.experts.switch_glu.up_proj"},
      {ROLE_EXPERT_DOWN, "@l.experts.down_proj|@l.experts.switch_glu.down_proj"});
ROLES(shared_mlp_alone, {ROLE_GATE, "@l.mlp.gate_proj"}, {ROLE_UP, "@l.mlp.up_proj"}, {ROLE_GATE_UP, "@l.shared_mlp.input_linear"},
      {ROLE_DOWN, "@l.shared_mlp.output_linear|@l.mlp.down_proj"});

/* ---- the table ---------------------------------------------------------------------------------------------------- */

#define LAYER_NORM {.kind = NORM_LAYER, .eps = 1e-5f}
#define SIGMOID_BIASED .score = ROUTE_SIGMOID, .norm_eps = 1e-20f, .bias = true, .group_top2 = true

const struct family family_table[] = {
    {.type = "llama", .title = "Llama 2, 3, 3.1, 3.2, 3.3; SmolLM 1, 2; Yi; TinyLlama"},
    {.type = "mistral", .title = "Mistral 7B, Nemo, Small", .pattern = "S"},
    {.type = "ministral3", .title = "Ministral 3", .norm = {.eps = 1e-5f}, .attn = {.theta = 1000000}, .pattern = "S", .keys = ministral3_keys},
    {.type = "mixtral", .title = "Mixtral", .norm = {.eps = 1e-5f}, .attn = {.theta = 1000000}, .pattern = "S", .ffn = FFN_EXPERTS, .moe = {.score = ROUTE_SOFTMAX_AFTER},
     .names = {.ffn = "block_sparse_moe"}, .keys = experts_have_intermediate_size},
    {.type = "llama4_text", .title = "Llama 4 (text)", .norm = {.eps = 1e-5f}, .pattern = "CCCF", .ffn = FFN_EXPERTS,
     .attn = {.rope = ROPE_PAIR, .theta = 500000, .qk_norm = QK_HEAD, .qk_switch = "use_qk_norm", .qk_norm_last = true,
     .qk_norm_bare = true},
     .moe = {.score = ROUTE_SIGMOID, .scale_input = true, .n_shared = 1, .is_transposed = true}, .names = {.ffn = "feed_forward"},
     .keys = llama4_keys, .defaults = llama4_defaults},

    {.type = "qwen2", .title = "Qwen2, Qwen2.5, QwQ"},
    {.type = "qwen2_moe", .title = "Qwen2 MoE, Qwen1.5 MoE", .ffn = FFN_EXPERTS, .moe = {.shared_gate = true}},
    {.type = "qwen3", .title = "Qwen3 dense", .attn = {.qk_norm = QK_HEAD}},
    {.type = "qwen3_moe", .title = "Qwen3 MoE", .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_HEAD}},

    {.type = "gemma", .title = "Gemma 1", .norm = {.offset = 1}, .act = ACT_GELU_TANH, .flags = FAM_TIED | FAM_EMBED_SCALE},
    {.type = "gemma2", .title = "Gemma 2", .pattern = "SF", .wiring = WIRE_PRE_POST, .norm = {.offset = 1}, .act = ACT_GELU_TANH,
     .flags = FAM_TIED | FAM_EMBED_SCALE, .defaults = gemma2_defaults},
    {.type = "gemma3_text", .title = "Gemma 3", .pattern = "SSSSSF", .wiring = WIRE_PRE_POST, .norm = {.offset = 1}, .act = ACT_GELU_TANH,
     .attn = {.qk_norm = QK_HEAD, .theta = 1000000, .local_rope = true, .local_theta = 10000}, .keys = gemma3_keys,
     .defaults = gemma3_defaults, .flags = FAM_TIED | FAM_EMBED_SCALE},

    {.type = "gemma3n_text", .title = "Gemma 3n (text)", .pattern = "SSSSF", .wiring = WIRE_PRE_POST, .act = ACT_GELU_TANH,
     .attn = {.qk_norm = QK_HEAD, .v_norm = true, .theta = 1000000, .local_rope = true, .local_theta = 10000},
     .defaults = gemma3n_defaults, .flags = FAM_TIED | FAM_EMBED_SCALE, .stream = &altup_stream},
    {.type = "gemma4_text", .title = "Gemma 4 (text)", .pattern = "SSSSSF", .wiring = WIRE_PRE_POST, .act = ACT_GELU_TANH,
     .moe = {.normalize = NORMALIZE_ALWAYS},
     .attn = {.qk_norm = QK_HEAD, .v_norm = true, .theta = 1000000, .local_rope = true, .local_theta = 10000},
     .names = {.roles = experts_beside_mlp}, .keys = gemma4_keys,
     .defaults = gemma4_defaults, .flags = FAM_TIED | FAM_EMBED_SCALE, .stream = &per_layer_stream},

    {.type = "phi", .title = "Phi 1, 1.5, 2", .wiring = WIRE_PARALLEL, .ffn = FFN_PLAIN, .act = ACT_GELU_TANH, .norm = LAYER_NORM,
     .attn = {.partial = 0.5f, .qk_norm = QK_HEAD, .qk_switch = "qk_layernorm"}},
    {.type = "phi3", .title = "Phi 3, 3.5, 4, 4 mini", .norm = {.eps = 1e-5f}, .pattern = "S"},
    {.type = "phimoe", .title = "Phi 3.5 MoE", .attn = {.theta = 1000000}, .pattern = "S", .ffn = FFN_EXPERTS, .norm = LAYER_NORM, .moe = {.score = ROUTE_SPARSEMIXER},
     .names = {.ffn = "block_sparse_moe"}, .keys = experts_have_intermediate_size},

    {.type = "olmo", .title = "OLMo", .norm = {.kind = NORM_LAYER, .eps = 1e-5f, .no_weight = true}},
    {.type = "olmo2", .title = "OLMo 2", .norm = {.eps = 1e-5f}, .wiring = WIRE_POST, .attn = {.qk_norm = QK_FULL}},
    {.type = "olmo3", .title = "OLMo 3", .norm = {.eps = 1e-5f}, .pattern = "SSSF", .wiring = WIRE_POST, .attn = {.theta = 500000, .qk_norm = QK_FULL, .local_rope = true}, .defaults = olmo3_defaults},
    {.type = "olmoe", .title = "OLMoE", .norm = {.eps = 1e-5f}, .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_FULL}, .keys = experts_have_intermediate_size},

    {.type = "cohere", .title = "Command R, R+", .wiring = WIRE_PARALLEL, .norm = LAYER_NORM,
     .attn = {.theta = 500000, .rope = ROPE_PAIR, .qk_norm = QK_PER_HEAD, .qk_switch = "use_qk_norm"}, .defaults = cohere_defaults, .flags = FAM_TIED},
    {.type = "cohere2", .title = "Command R7B, Command A", .pattern = "SSSF", .wiring = WIRE_PARALLEL, .norm = LAYER_NORM,
     .attn = {.rope = ROPE_PAIR, .nope = "F"}, .defaults = cohere2_defaults, .flags = FAM_TIED},

    {.type = "glm", .title = "GLM 4 9B", .norm = {.eps = 1.5625e-7f}, .attn = {.rope = ROPE_PAIR, .partial = 0.5f}},
    {.type = "glm4", .title = "GLM 4 0414, GLM Z1", .norm = {.eps = 1.5625e-7f}, .wiring = WIRE_PRE_POST, .attn = {.rope = ROPE_PAIR, .partial = 0.5f},
     .names = {.roles = four_norms}},
    {.type = "glm4_moe", .title = "GLM 4.5, 4.6, 4.7", .norm = {.eps = 1e-5f}, .ffn = FFN_EXPERTS,
     .attn = {.partial = 0.5f, .qk_norm = QK_HEAD, .qk_switch = "use_qk_norm"},
     .moe = {SIGMOID_BIASED, .normalize = NORMALIZE_ASK_YES}},
    {.type = "glm4_moe_lite", .title = "GLM 4.7 Flash", .norm = {.eps = 1e-5f}, .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .moe = {SIGMOID_BIASED, .normalize = NORMALIZE_ASK_YES}},

    {.type = "deepseek_v2", .title = "DeepSeek V2, V2.5", .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR}},
    {.type = "deepseek_v3", .title = "DeepSeek V3, R1; Kimi K2", .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .moe = {SIGMOID_BIASED, .normalize = NORMALIZE_ASK_YES}},
    {.type = "dots1", .title = "dots.llm1", .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_HEAD}, .moe = {SIGMOID_BIASED}},
    {.type = "gpt_oss", .title = "gpt-oss", .norm = {.eps = 1e-5f}, .pattern = "SF", .ffn = FFN_EXPERTS, .act = ACT_CLAMPED_SWIGLU, .attn = {.theta = 150000},
     .moe = {.score = ROUTE_SOFTMAX_AFTER, .is_transposed = true, .is_interleaved = true}, .keys = experts_have_intermediate_size, .defaults = gpt_oss_defaults},

    {.type = "granite", .title = "Granite 3"},
    {.type = "granitemoe", .title = "Granite 3 MoE", .ffn = FFN_EXPERTS, .moe = {.score = ROUTE_SOFTMAX_AFTER},
     .names = {.ffn = "block_sparse_moe"}, .keys = experts_have_intermediate_size},
    {.type = "starcoder2", .title = "StarCoder 2", .pattern = "S", .ffn = FFN_PLAIN, .act = ACT_GELU_TANH, .norm = LAYER_NORM, .flags = FAM_TIED},
    {.type = "stablelm", .title = "StableLM 2, Zephyr", .norm = LAYER_NORM,
     .attn = {.partial = 0.25f, .qk_norm = QK_PER_HEAD, .qk_switch = "qk_layernorm"}},
    {.type = "gpt2", .title = "GPT-2", .ffn = FFN_PLAIN, .act = ACT_GELU_TANH, .norm = LAYER_NORM, .attn = {.no_rope = true},
     .names = {.layers = "h", .attn = "attn"},
     .keys = gpt2_keys, .flags = FAM_TIED | FAM_LEARNED_POSITIONS | FAM_TRANSPOSED},
    {.type = "gpt_neox", .title = "GPT-NeoX, Pythia", .wiring = WIRE_PARALLEL_TWO, .ffn = FFN_PLAIN, .act = ACT_GELU, .norm = LAYER_NORM,
     .attn = {.partial = 0.25f, .qkv_by_head = true},
     .names = {.root = "gpt_neox.", .attn = "attention"}, .keys = gpt_neox_keys},
    {.type = "nemotron", .title = "Nemotron 3, 4, Minitron", .ffn = FFN_PLAIN, .act = ACT_RELU2,
     .norm = {.kind = NORM_LAYER, .eps = 1e-5f, .offset = 1}, .attn = {.partial = 0.5f}},

    {.type = "exaone4", .title = "EXAONE 4", .norm = {.eps = 1e-5f}, .pattern = "SSSF", .wiring = WIRE_POST, .attn = {.qk_norm = QK_HEAD, .nope = "F"}},
    {.type = "smollm3", .title = "SmolLM 3", .attn = {.theta = 2000000}, .defaults = nope_every_fourth},
    {.type = "hunyuan_v1_dense", .title = "Hunyuan 0.5B to 7B", .norm = {.eps = 1e-5f}, .attn = {.qk_norm = QK_HEAD, .qk_norm_last = true}},
    {.type = "hunyuan_v1_moe", .title = "Hunyuan A13B", .norm = {.eps = 1e-5f}, .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_HEAD, .qk_norm_last = true},
     .moe = {.normalize = NORMALIZE_ALWAYS, .n_shared = 1}, .keys = hunyuan_moe_keys},
    {.type = "ernie4_5", .title = "ERNIE 4.5", .norm = {.eps = 1e-5f}, .attn = {.rope = ROPE_PAIR, .theta = 500000}},
    {.type = "ernie4_5_moe", .title = "ERNIE 4.5 MoE", .norm = {.eps = 1e-5f}, .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR, .theta = 500000},
     .moe = {.normalize = NORMALIZE_ALWAYS, .bias = true}, .keys = ernie_moe_keys, .defaults = ernie_moe_defaults},
    {.type = "seed_oss", .title = "Seed-OSS"},
    {.type = "helium", .title = "Helium 1", .norm = {.eps = 1e-8f}, .attn = {.rope = ROPE_PAIR, .theta = 100000}},
    {.type = "arcee", .title = "Arcee AFM", .norm = {.eps = 1e-5f}, .ffn = FFN_PLAIN, .act = ACT_RELU2},
    {.type = "apertus", .title = "Apertus", .norm = {.eps = 1e-5f}, .ffn = FFN_PLAIN, .act = ACT_XIELU, .attn = {.theta = 12000000, .qk_norm = QK_HEAD}},
    {.type = "bitnet", .title = "BitNet, unpacked weights", .norm = {.eps = 1e-5f}, .attn = {.theta = 500000}, .act = ACT_RELU2},

    {.type = "qwen3_next", .title = "Qwen3-Next", .pattern = "DDDF", .ffn = FFN_EXPERTS, .norm = {.offset = 1},
     .attn = {.qk_norm = QK_HEAD, .gate = true, .partial = 0.25f}, .moe = {.normalize = NORMALIZE_ASK_YES, .shared_gate = true},
     .names = {.mixer = "linear_attn"}},
    {.type = "qwen3_5_text", .title = "Qwen3.5", .pattern = "DDDF", .norm = {.offset = 1},
     .attn = {.qk_norm = QK_HEAD, .gate = true, .partial = 0.25f},
     .names = {.mixer = "linear_attn"}},
    {.type = "qwen3_5_moe_text", .title = "Qwen3.5 MoE", .pattern = "DDDF", .ffn = FFN_EXPERTS, .norm = {.offset = 1},
     .attn = {.qk_norm = QK_HEAD, .gate = true, .partial = 0.25f}, .moe = {.normalize = NORMALIZE_ALWAYS, .shared_gate = true},
     .names = {.mixer = "linear_attn"}},
    {.type = "mamba", .title = "Mamba", .pattern = "N", .norm = {.eps = 1e-5f}, .keys = mamba_keys, .flags = FAM_TIED | FAM_ONE_HALF},
    {.type = "mamba2", .title = "Mamba-2, Codestral Mamba", .pattern = "M", .norm = {.eps = 1e-5f}, .keys = mamba2_keys,
     .flags = FAM_ONE_HALF},
    {.type = "granitemoehybrid", .title = "Granite 4.0", .pattern = "MF", .ffn = FFN_EXPERTS, .attn = {.rope_if_named = true},
     .moe = {.score = ROUTE_SOFTMAX_AFTER},
     .recur = {.layer_type = "mamba"}, .names = {.ffn = "block_sparse_moe", .mixer = "mamba", .roles = shared_mlp_alone},
     .keys = granite_hybrid_keys},
    {.type = "nemotron_h", .title = "Nemotron-H, Nemotron Nano 2 and 3", .pattern = "M-F-", .ffn = FFN_EXPERTS, .act = ACT_RELU2,
     .norm = {.eps = 1e-5f},
     .attn = {.no_rope = true}, .moe = {.score = ROUTE_SIGMOID, .normalize = NORMALIZE_ASK_YES, .norm_eps = 1e-20f, .bias = true,
     .group_top2 = true, .is_plain = true},
     .recur = {.group_norm = true, .time_step_min = true, .layer_type = "mamba"},
     .names = {.attn = "mixer", .ffn = "mixer", .roles = norm_before_either},
     .keys = nemotron_h_keys, .flags = FAM_ONE_HALF},
    {.type = "jamba", .title = "Jamba", .pattern = "NF", .ffn = FFN_EXPERTS, .attn = {.no_rope = true},
     .names = {.ffn = "feed_forward", .mixer = "mamba"}, .keys = jamba_keys},
    {.type = "lfm2", .title = "LFM2", .pattern = "K", .recur = {.layer_type = "conv"}, .norm = {.eps = 1e-5f},
     .attn = {.qk_norm = QK_HEAD, .theta = 1000000}, .names = {.ffn = "feed_forward", .mixer = "conv"},
     .flags = FAM_TIED, .defaults = lfm2_defaults},
    {.type = "lfm2_moe", .title = "LFM2 MoE", .pattern = "K", .recur = {.layer_type = "conv"}, .ffn = FFN_EXPERTS, .norm = {.eps = 1e-5f},
     .attn = {.qk_norm = QK_HEAD, .theta = 1000000},
     .moe = {.score = ROUTE_SIGMOID, .normalize = NORMALIZE_ASK_YES, .norm_eps = 1e-6f, .bias = true},
     .names = {.ffn = "feed_forward", .mixer = "conv"},
     .keys = lfm2_moe_keys, .flags = FAM_TIED},
    {.type = "falcon_h1", .title = "Falcon-H1", .norm = {.eps = 1e-5f}, .recur = {.group_norm = true},
     .names = {.ffn = "feed_forward", .mixer = "mamba"}, .keys = falcon_h1_keys,
     .stream = &hybrid_stream},
    {.type = "minimax", .title = "MiniMax-Text-01", .pattern = "GGGGGGGF", .ffn = FFN_EXPERTS, .norm = {.eps = 1e-5f},
     .attn = {.theta = 1000000},
     .moe = {.score = ROUTE_SOFTMAX_AFTER}, .names = {.ffn = "block_sparse_moe", .mixer = "self_attn"},
     .keys = experts_have_intermediate_size, .stream = &lightning_stream},
};

/* clang-format on */

const int32_t family_count = (int32_t)(sizeof family_table / sizeof *family_table);

/* Wrappers around a text model whose own type the file may leave out. */
static const struct {
    const char *type, *family;
} aliases[] = {
    {"gemma3", "gemma3_text"},   {"gemma3n", "gemma3n_text"},         {"gemma4", "gemma4_text"},
    {"llama4", "llama4_text"},   {"kimi_k2", "deepseek_v3"},

    {"qwen3_5", "qwen3_5_text"}, {"qwen3_5_moe", "qwen3_5_moe_text"},
};

const struct refusal family_refusals[] = {
    {"bert", "it is an encoder, and does not write text"},
    {"bloom", "its positions are biases on the scores (ALiBi), which no op computes yet"},
    {"deepseek_v32", "its attention chooses the positions that it looks at by an index of its own"},
    {"falcon", "its positions are biases on the scores (ALiBi) in some models, and old layouts differ in others"},
    {"kimi_linear", "its delta rule decays every channel on its own"},
    {"mllama", "its layers look at an image through cross-attention"},
    {"mpt", "its positions are biases on the scores (ALiBi), which no op computes yet"},
    {"opt", "its learned positions count padding in"},
    {"rwkv7", "its time mixing is a recurrence that no op computes yet"},
    {"t5", "it is an encoder and a decoder, with relative positions"},
    {"whisper", "it transcribes sound"},
};
const int32_t family_n_refusals = (int32_t)(sizeof family_refusals / sizeof *family_refusals);

enum { TYPE_SHOWN = 60 }; /* names are shorter; what is longer has no distance */

/* The next supported type in the order of distance from `type`, then of the table; place -1 begins. */
static int32_t next_nearest(struct str type, size_t *distance, int32_t place) {
    int32_t best = -1;
    size_t best_distance = STR_NONE, last = *distance;
    for (int32_t i = 0; i < family_count; i++) {
        size_t d = str_distance(type, str_of(family_table[i].type));
        if ((d < last || (d == last && i <= place)) && place >= 0) continue;
        if (d < best_distance) best = i, best_distance = d;
    }
    *distance = best_distance;
    return best;
}

static int refuse(struct str type, struct err *err) {
    type = str_sub(type, 0, TYPE_SHOWN);
    int32_t near[3] = {-1, -1, -1};
    size_t distance = 0;
    for (int32_t i = 0, place = -1; i < 3; i++) place = near[i] = next_nearest(type, &distance, place);
    const char *why = NULL;
    for (int32_t i = 0; i < family_n_refusals; i++)
        if (str_is(type, family_refusals[i].type)) why = family_refusals[i].why;
    return err_set(err, ERR_EUNSUPPORTED,
                   "model type \"%.*s\" is not supported%s%s; the nearest are %s, %s and %s (`mlxcel arch` lists all)", STR_ARG(type),
                   why ? ": " : "", why ? why : "", family_table[near[0]].type, family_table[near[1]].type, family_table[near[2]].type);
}

const struct family *family_find(struct str type, struct err *err) {
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (str_is(type, aliases[i].type)) type = str_of(aliases[i].family);
    for (int32_t i = 0; i < family_count; i++)
        if (str_is(type, family_table[i].type)) return &family_table[i];
    refuse(type, err);
    return NULL;
}

/* ---- dimensions of well-known checkpoints, from their config.json --------------------------------------------------- */

#define LLAMA3_ROPE(factor)                         \
    "{\"rope_type\":\"llama3\",\"factor\":" #factor \
    ",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"

const struct model_shape model_shapes[] = {
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, true, true, NULL, {0}},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6f, true, true, NULL, {0}},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e6f, true, true, NULL, {0}},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6f, false, true, NULL, {0}},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 1e6f, false, true, NULL, {128, 8, 768}},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5f, true, false, LLAMA3_ROPE(32.0), {0}},
    {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5f, true, false, LLAMA3_ROPE(32.0), {0}},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, false, false, LLAMA3_ROPE(8.0), {0}},
    {"llama-2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 1e4f, false, false, NULL, {0}},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, true, false, NULL, {0}},
    {"tiny", "qwen3", 2, 128, 256, 4, 2, 64, 4096, 512, 1e4f, true, true, NULL, {0}},
    {"tiny-moe", "qwen3_moe", 2, 128, 256, 4, 2, 64, 4096, 512, 1e4f, true, true, NULL, {8, 2, 64}},
};

const int32_t model_n_shapes = (int32_t)(sizeof model_shapes / sizeof *model_shapes);
