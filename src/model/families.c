/* The table of families: the only file that names one. docs/families.md and `mlxcel arch` are made from it. */
#include "model/families.h"

#include "file/gguf_arch.h"
#include "model/shapes.h"

/* Tables, and so laid out by hand. */
/* clang-format off */

/* ---- keys that a family calls by another name --------------------------------------------------------------------- */

#define KEYS(name, ...) static const struct key_name name[] = {__VA_ARGS__, {NULL, NULL}}

KEYS(experts_have_intermediate_size, {"moe_intermediate_size", "intermediate_size"});
KEYS(never_normalized, {"norm_topk_prob", NULL});
KEYS(gpt2_keys, {"hidden_size", "n_embd"}, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"},
     {"max_position_embeddings", "n_positions"}, {"intermediate_size", "n_inner"}, {"hidden_act", "activation_function"},
     {"head_dim", NULL}, {"num_key_value_heads", NULL});
KEYS(gpt_neox_keys, {"head_dim", NULL}, {"num_key_value_heads", NULL});
KEYS(ministral3_keys, {"position_scale_beta", "llama_4_scaling_beta"});
KEYS(hunyuan_moe_keys, {"moe_intermediate_size", "intermediate_size"}, {"num_experts_per_tok", "moe_topk"}, {"n_shared_experts", NULL});
KEYS(ernie_moe_keys, {"num_experts", "moe_num_experts"}, {"num_experts_per_tok", "moe_k"}, {"n_shared_experts", "moe_num_shared_experts"},
     {"first_k_dense_replace", "moe_layer_start_index"}, {"decoder_sparse_step", "moe_layer_interval"});
KEYS(exaone_moe_keys, {"n_shared_experts", "num_shared_experts"});
KEYS(hy_v3_keys, {"n_shared_experts", "num_shared_experts"}, {"routed_scaling_factor", "router_scaling_factor"});
KEYS(afmoe_keys, {"n_shared_experts", "num_shared_experts"}, {"first_k_dense_replace", "num_dense_layers"}, {"routed_scaling_factor", "route_scale"},
     {"sliding_window_pattern", "global_attn_every_n_layers"});
KEYS(mimo_v2_keys, {"value_head_dim", "v_head_dim"}, {"window_kv_heads", "swa_num_key_value_heads"}, {"window_heads", "swa_num_attention_heads"},
     {"window_before", "sliding_window_size"}, {"rope_local_base_freq", "swa_rope_theta"});
KEYS(step_keys, {"window_heads", "num_sliding_attention_heads"}, {"shared_expert_intermediate_size", "share_expert_dim"},
     {"routed_scaling_factor", "moe_router_scaling_factor"});
KEYS(cohere2_moe_keys, {"intermediate_size", "prefix_dense_intermediate_size"}, {"moe_intermediate_size", "intermediate_size"},
     {"n_shared_experts", "num_shared_experts"});
KEYS(exaone_keys, {"num_hidden_layers", "num_layers"}, {"hidden_act", "activation_function"});
KEYS(bailing_moe_keys, {"n_shared_experts", "num_shared_experts"}, {"shared_expert_each", "moe_shared_expert_intermediate_size"},
     {"use_expert_bias", "moe_router_enable_expert_bias"});
KEYS(longcat_keys, {"num_hidden_layers", "num_layers"}, {"intermediate_size", "ffn_hidden_size"}, {"moe_intermediate_size", "expert_ffn_hidden_size"},
     {"num_experts_per_tok", "moe_topk"}, {"n_shared_experts", NULL}, {"norm_topk_prob", NULL});
KEYS(rwkv_keys, {"max_position_embeddings", NULL}, {"norm_eps", "layer_norm_epsilon"});
KEYS(deepseek_v4_keys, {"first_k_dense_replace", NULL}, {"n_group", NULL}, {"topk_group", NULL}, {"intermediate_size", "moe_intermediate_size"});
KEYS(rwkv7_keys, {"max_position_embeddings", NULL});
KEYS(xlstm_keys, {"max_position_embeddings", NULL}, {"intermediate_size", NULL}, {"final_logit_softcapping", "output_logit_soft_cap"});
KEYS(minicpm_keys, {"embedding_multiplier", "scale_emb"});
KEYS(opt_keys, {"intermediate_size", "ffn_dim"}, {"hidden_act", "activation_function"});
KEYS(falcon_keys, {"num_key_value_heads", "num_kv_heads"}, {"intermediate_size", "ffn_hidden_size"}, {"hidden_act", "activation"});
KEYS(bloom_keys, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}, {"num_key_value_heads", NULL}, {"intermediate_size", NULL}, {"hidden_act", NULL},
     {"head_dim", NULL}, {"max_position_embeddings", "seq_length"});
KEYS(mpt_keys, {"hidden_size", "d_model"}, {"num_hidden_layers", "n_layers"}, {"num_attention_heads", "n_heads"}, {"max_position_embeddings", "max_seq_len"},
     {"num_key_value_heads", NULL}, {"alibi", "attn_config.alibi"}, {"clip_qkv", "attn_config.clip_qkv"}, {"hidden_act", NULL}, {"intermediate_size", NULL},
     {"head_dim", NULL}, {"attention_multiplier", "attn_config.softmax_scale"});
KEYS(dbrx_keys, {"hidden_size", "d_model"}, {"num_hidden_layers", "n_layers"}, {"num_attention_heads", "n_heads"}, {"max_position_embeddings", "max_seq_len"},
     {"num_key_value_heads", "attn_config.kv_n_heads"}, {"clip_qkv", "attn_config.clip_qkv"}, {"moe_intermediate_size", "ffn_config.ffn_hidden_size"},
     {"num_experts", "ffn_config.moe_num_experts"}, {"num_experts_per_tok", "ffn_config.moe_top_k"}, {"hidden_act", "ffn_config.ffn_act_fn.name"},
     {"norm_topk_prob", "ffn_config.moe_normalize_expert_weights"}, {"head_dim", NULL});
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
#define KDA_KEYS \
    {"max_position_embeddings", "model_max_length"}, {"linear_num_key_heads", "linear_num_heads"}, {"linear_num_value_heads", "linear_num_heads"}, \
    {"linear_key_head_dim", "linear_head_dim"}, {"linear_value_head_dim", "linear_head_dim"}, {"n_shared_experts", "num_shared_experts"}, \
    {"n_group", "num_expert_group"}, {"norm_topk_prob", "moe_renormalize"}
KEYS(kimi_linear_keys, KDA_KEYS);
KEYS(bailing_hybrid_keys, KDA_KEYS, {"q_lora_rank", NULL}, {"linear_width_else", "head_dim"}, {"full_attention_interval", "layer_group_size"});
KEYS(recurrent_gemma_keys, {"sliding_window", "attention_window_size"}, {"final_logit_softcapping", "logits_soft_cap"});
KEYS(bamba_keys, SSM_KEYS, {"full_attn_idxs", "attn_layer_indices"});
KEYS(zamba2_keys, {"layer_types", "layers_block_type"}, {"ssm_heads", "n_mamba_heads"}, {"ssm_head_dim", "mamba_headdim"}, {"ssm_groups", "mamba_ngroups"},
     {"ssm_width", "mamba_d_state"}, {"ssm_taps", "mamba_d_conv"}, {"ssm_expand", "mamba_expand"}, {"head_dim", "attention_head_dim"});
KEYS(distilbert_keys, {"hidden_size", "dim"}, {"intermediate_size", "hidden_dim"}, {"num_hidden_layers", "n_layers"}, {"num_attention_heads", "n_heads"},
     {"hidden_act", "activation"});
KEYS(electra_keys, {"word_embed_proj_dim", "embedding_size"});
KEYS(modernbert_keys, {"sliding_window", "local_attention"}, {"sliding_window_pattern", "global_attn_every_n_layers"}, {"rope_local_base_freq", "local_rope_theta"});
#define EITHER(ours, theirs) {ours, ours}, {ours, theirs}
KEYS(nomic_bert_keys, EITHER("hidden_size", "n_embd"), EITHER("num_hidden_layers", "n_layer"), EITHER("num_attention_heads", "n_head"),
     EITHER("intermediate_size", "n_inner"), EITHER("max_position_embeddings", "n_positions"), EITHER("hidden_act", "activation_function"));
KEYS(lfm2_moe_keys, {"first_k_dense_replace", "num_dense_layers"});


#define CLASS(name, ...) static const char name##_class[] = #__VA_ARGS__;
#include "model/family_defaults.inc"
#undef CLASS

/* ---- tensors under names of their own ----------------------------------------------------------------------------- */

#define ROLES(name, ...) static const struct role_name name[] = {__VA_ARGS__, {ROLE_EMBED, NULL}}

ROLES(cross_roles, {ROLE_Q, "@a.q_proj|@l.cross_attn.q_proj"}, {ROLE_K, "@a.k_proj|@l.cross_attn.k_proj"}, {ROLE_V, "@a.v_proj|@l.cross_attn.v_proj"},
      {ROLE_O, "@a.o_proj|@l.cross_attn.o_proj"}, {ROLE_Q_NORM, "@l.cross_attn.q_norm"}, {ROLE_K_NORM, "@l.cross_attn.k_norm"});
ROLES(four_norms, {ROLE_FFN_NORM, "@l.post_attention_layernorm"}, {ROLE_MIX_POST_NORM, "@l.post_self_attn_layernorm"});
ROLES(norm_before_either, {ROLE_FFN_NORM, "@l.norm"});
ROLES(experts_beside_mlp, {ROLE_ROUTER, "@l.router.proj"},
      {ROLE_EXPERT_GATE_UP, "@l.experts.gate_up_proj|@l.experts.switch_glu.gate_up_proj"},
      {ROLE_EXPERT_GATE, "@l.experts.switch_glu.gate_proj"}, {ROLE_EXPERT_UP, "@l.experts.switch_glu.up_proj"},
      {ROLE_EXPERT_DOWN, "@l.experts.down_proj|@l.experts.switch_glu.down_proj"});
ROLES(step_experts, {ROLE_ROUTER, "@l.moe.gate|@f.gate.gate"}, {ROLE_ROUTER_BIAS, "@l.moe.router_bias|@f.gate.router_bias"}, {ROLE_EXPERT_GATE, "@l.moe.gate_proj|@f.switch_mlp.gate_proj"},
      {ROLE_EXPERT_UP, "@l.moe.up_proj|@f.switch_mlp.up_proj"}, {ROLE_EXPERT_DOWN, "@l.moe.down_proj|@f.switch_mlp.down_proj"},
      {ROLE_SHARED_GATE, "@l.share_expert.gate_proj|@f.share_expert.gate_proj"}, {ROLE_SHARED_UP, "@l.share_expert.up_proj|@f.share_expert.up_proj"},
      {ROLE_SHARED_DOWN, "@l.share_expert.down_proj|@f.share_expert.down_proj"});
ROLES(exaone_roles, {ROLE_GATE, "@f.c_fc_0"}, {ROLE_UP, "@f.c_fc_1"});
ROLES(internlm2_roles, {ROLE_EMBED, "tok_embeddings"}, {ROLE_HEAD, "output"}, {ROLE_MIX_NORM, "@l.attention_norm"}, {ROLE_QKV, "@a.wqkv"}, {ROLE_O, "@a.wo"});
ROLES(bailing_moe_roles, {ROLE_ROUTER, "@f.gate|@f.gate.gate_proj"});
ROLES(recurrent_gemma_roles, {ROLE_MIX_NORM, "@l.temporal_pre_norm"}, {ROLE_FFN_NORM, "@l.channel_pre_norm"}, {ROLE_FINAL_NORM, "final_norm"},
      {ROLE_CONV, "@m.conv_1d"}, {ROLE_MIX_OUT, "@m.linear_out"});
ROLES(olmo_hybrid_norms, {ROLE_MIX_POST_NORM, "@l.post_attention_layernorm|@l.feedforward_layer_norm"});
ROLES(kimi_linear_experts, {ROLE_ROUTER, "@l.block_sparse_moe.gate|@f.gate"},
      {ROLE_ROUTER_BIAS, "@l.block_sparse_moe.gate.e_score_correction_bias|@f.e_score_correction_bias|@f.gate.e_score_correction_bias"},
      {ROLE_EXPERT_GATE, "@l.block_sparse_moe.experts.#.w1|@f.switch_mlp.gate_proj"}, {ROLE_EXPERT_UP, "@l.block_sparse_moe.experts.#.w3|@f.switch_mlp.up_proj"},
      {ROLE_EXPERT_DOWN, "@l.block_sparse_moe.experts.#.w2|@f.switch_mlp.down_proj"},
      {ROLE_SHARED_GATE, "@l.block_sparse_moe.shared_experts.gate_proj|@f.shared_experts.gate_proj"},
      {ROLE_SHARED_UP, "@l.block_sparse_moe.shared_experts.up_proj|@f.shared_experts.up_proj"},
      {ROLE_SHARED_DOWN, "@l.block_sparse_moe.shared_experts.down_proj|@f.shared_experts.down_proj"});
ROLES(dbrx_roles, {ROLE_MIX_NORM, "@l.norm_attn_norm.norm_1"}, {ROLE_FFN_NORM, "@l.norm_attn_norm.norm_2"}, {ROLE_EXPERT_GATE, "@f.experts.mlp.w1"},
      {ROLE_EXPERT_UP, "@f.experts.mlp.v1"}, {ROLE_EXPERT_DOWN, "@f.experts.mlp.w2"});
ROLES(shared_mlp_alone, {ROLE_GATE, "@l.mlp.gate_proj"}, {ROLE_UP, "@l.mlp.up_proj"}, {ROLE_GATE_UP, "@l.shared_mlp.input_linear"},
      {ROLE_DOWN, "@l.shared_mlp.output_linear|@l.mlp.down_proj"});

ROLES(longcat_roles, {ROLE_MIX_NORM, "@s.input_layernorm.%"}, {ROLE_FFN_NORM, "@s.post_attention_layernorm.%"}, {ROLE_Q_A, "@s.self_attn.%.q_a_proj"},
      {ROLE_Q_A_NORM, "@s.self_attn.%.q_a_layernorm"}, {ROLE_Q_B, "@s.self_attn.%.q_b_proj"}, {ROLE_KV_A, "@s.self_attn.%.kv_a_proj_with_mqa"},
      {ROLE_KV_A_NORM, "@s.self_attn.%.kv_a_layernorm"}, {ROLE_KV_B, "@s.self_attn.%.kv_b_proj"}, {ROLE_O, "@s.self_attn.%.o_proj"},
      {ROLE_K_ABSORBED, "@s.self_attn.%.embed_q"}, {ROLE_V_ABSORBED, "@s.self_attn.%.unembed_out"}, {ROLE_GATE, "@s.mlps.%.gate_proj"},
      {ROLE_UP, "@s.mlps.%.up_proj"}, {ROLE_GATE_UP, "@s.mlps.%.gate_up_proj"}, {ROLE_DOWN, "@s.mlps.%.down_proj"}, {ROLE_ROUTER, "@s.mlp.router.classifier"},
      {ROLE_ROUTER_BIAS, "@s.mlp.router.e_score_correction_bias"}, {ROLE_EXPERT_GATE, "@s.mlp.switch_mlp.gate_proj|@s.mlp.experts.#.gate_proj"},
      {ROLE_EXPERT_UP, "@s.mlp.switch_mlp.up_proj|@s.mlp.experts.#.up_proj"}, {ROLE_EXPERT_GATE_UP, "@s.mlp.experts.gate_up_proj"},
      {ROLE_EXPERT_DOWN, "@s.mlp.switch_mlp.down_proj|@s.mlp.experts.#.down_proj"});
ROLES(rwkv_roles, {ROLE_EMBED_NORM, "blocks.0.pre_ln"}, {ROLE_FINAL_NORM, "ln_out"}, {ROLE_HEAD, "head"}, {ROLE_MIX_NORM, "@l.ln1"}, {ROLE_FFN_NORM, "@l.ln2"},
      {ROLE_MIX_OUT, "@m.output"}, {ROLE_UP, "@f.key"}, {ROLE_DOWN, "@f.value"});
ROLES(deepseek_v4_roles, {ROLE_EMBED, "embed"}, {ROLE_HEAD, "head"}, {ROLE_MIX_NORM, "@l.attn_norm"}, {ROLE_Q_A, "@a.wq_a"}, {ROLE_Q_A_NORM, "@a.q_norm"},
      {ROLE_Q_B, "@a.wq_b"}, {ROLE_KV_A, "@a.wkv"}, {ROLE_KV_A_NORM, "@a.kv_norm"}, {ROLE_O, "@a.wo_b"}, {ROLE_SINKS, "@a.attn_sink"}, {ROLE_ROUTER_BIAS, "@f.gate.bias"},
      {ROLE_SHARED_GATE, "@f.shared_experts.w1"}, {ROLE_SHARED_UP, "@f.shared_experts.w3"}, {ROLE_SHARED_DOWN, "@f.shared_experts.w2"},
      {ROLE_HYPER_MIX, "@l.hc_attn_fn"}, {ROLE_HYPER_MIX_MAP, "@l.hc_attn"}, {ROLE_HYPER_FFN, "@l.hc_ffn_fn"}, {ROLE_HYPER_FFN_MAP, "@l.hc_ffn"},
      {ROLE_HYPER_HEAD, "hc_head_fn"}, {ROLE_HYPER_HEAD_MAP, "hc_head"});
ROLES(rwkv7_roles, {ROLE_EMBED_NORM, "layers.0.pre_norm"}, {ROLE_MIX_NORM, "@l.attn_norm"}, {ROLE_SHIFT_R, "@m.x_r"}, {ROLE_SHIFT_K, "@m.x_k"}, {ROLE_SHIFT_V, "@m.x_v"},
      {ROLE_FFN_SHIFT_K, "@f.x_k"}, {ROLE_WKV_R, "@m.r_proj"}, {ROLE_WKV_K, "@m.k_proj"}, {ROLE_WKV_V, "@m.v_proj"}, {ROLE_DELTA_Z_DOWN, "@m.g_lora.lora.0"},
      {ROLE_DELTA_Z_UP, "@m.g_lora.lora.2"}, {ROLE_MIX_OUT_NORM, "@m.g_norm"}, {ROLE_UP, "@f.key"}, {ROLE_DOWN, "@f.value"});
ROLES(xlstm_roles, {ROLE_FINAL_NORM, "out_norm"}, {ROLE_MIX_NORM, "@l.norm_mlstm"}, {ROLE_FFN_NORM, "@l.norm_ffn"}, {ROLE_DELTA_Q, "@m.q"}, {ROLE_DELTA_K, "@m.k"},
      {ROLE_DELTA_V, "@m.v"}, {ROLE_DELTA_Z, "@m.ogate_preact"}, {ROLE_DELTA_B, "@m.igate_preact"}, {ROLE_DELTA_A, "@m.fgate_preact"},
      {ROLE_DELTA_QKVZ, "@m.qkv_opreact"}, {ROLE_DELTA_BA, "@m.ifgate_preact"}, {ROLE_MIX_OUT_NORM, "@m.multihead_norm"}, {ROLE_GATE, "@f.proj_up_gate"},
      {ROLE_UP, "@f.proj_up"}, {ROLE_GATE_UP, "@f.proj_up_gate_z"}, {ROLE_DOWN, "@f.proj_down"});
#define EITHER_MAMBA(name) "@l.mamba." name "|@l.mamba_decoder.mamba." name
ROLES(zamba2_roles, {ROLE_MIX_NORM, "@l.input_layernorm|@l.mamba_decoder.input_layernorm"}, {ROLE_FFN_NORM, "@l.shared_transformer.pre_ff_layernorm"},
      {ROLE_MIX_IN, EITHER_MAMBA("in_proj")}, {ROLE_CONV, EITHER_MAMBA("conv1d")}, {ROLE_A_LOG, EITHER_MAMBA("A_log")}, {ROLE_SKIP, EITHER_MAMBA("D")},
      {ROLE_DT_BIAS, EITHER_MAMBA("dt_bias")}, {ROLE_MIX_OUT_NORM, EITHER_MAMBA("norm")}, {ROLE_MIX_OUT, EITHER_MAMBA("out_proj")});

#define BERT_FFN {ROLE_FFN_NORM, "@l.output.LayerNorm"}, {ROLE_UP, "@l.intermediate.dense"}, {ROLE_DOWN, "@l.output.dense"}
#define BERT_EMBED {ROLE_EMBED, "embeddings.word_embeddings"}, {ROLE_EMBED_NORM, "embeddings.LayerNorm"}
ROLES(bert_roles, BERT_EMBED, BERT_FFN, {ROLE_EMBED_IN, "embeddings_project"}, {ROLE_MIX_NORM, "@a.output.LayerNorm"}, {ROLE_Q, "@a.self.query"}, {ROLE_K, "@a.self.key"},
      {ROLE_V, "@a.self.value"}, {ROLE_O, "@a.output.dense"});
ROLES(mpnet_roles, BERT_EMBED, BERT_FFN, {ROLE_MIX_NORM, "@a.LayerNorm"}, {ROLE_Q, "@a.attn.q"}, {ROLE_K, "@a.attn.k"}, {ROLE_V, "@a.attn.v"}, {ROLE_O, "@a.attn.o"});
ROLES(distilbert_roles, BERT_EMBED, {ROLE_MIX_NORM, "@l.sa_layer_norm"}, {ROLE_FFN_NORM, "@l.output_layer_norm"}, {ROLE_Q, "@a.q_lin"}, {ROLE_K, "@a.k_lin"},
      {ROLE_V, "@a.v_lin"}, {ROLE_O, "@a.out_lin"}, {ROLE_UP, "@f.lin1"}, {ROLE_DOWN, "@f.lin2"});
ROLES(deberta_roles, BERT_EMBED, BERT_FFN, {ROLE_MIX_NORM, "@a.output.LayerNorm"}, {ROLE_Q, "@a.self.query_proj"}, {ROLE_K, "@a.self.key_proj"}, {ROLE_V, "@a.self.value_proj"},
      {ROLE_O, "@a.output.dense"});
ROLES(gte_roles, BERT_EMBED, {ROLE_MIX_NORM, "@l.attn_ln"}, {ROLE_FFN_NORM, "@l.mlp_ln"}, {ROLE_GATE_UP, "@f.up_gate_proj"});
ROLES(nomic_bert_roles, {ROLE_EMBED, "embeddings.word_embeddings"}, {ROLE_EMBED_NORM, "emb_ln"}, {ROLE_MIX_NORM, "@l.norm1"}, {ROLE_FFN_NORM, "@l.norm2"}, {ROLE_GATE, "@f.fc12"},
      {ROLE_UP, "@f.fc11"});
ROLES(jina_roles, {ROLE_EMBED, "embeddings.word_embeddings"}, {ROLE_EMBED_NORM, "emb_ln"}, {ROLE_MIX_NORM, "@l.norm1"}, {ROLE_FFN_NORM, "@l.norm2"});
ROLES(modernbert_roles, {ROLE_EMBED, "embeddings.tok_embeddings"}, {ROLE_EMBED_NORM, "embeddings.norm"}, {ROLE_FINAL_NORM, "final_norm"}, {ROLE_MIX_NORM, "@l.attn_norm"},
      {ROLE_FFN_NORM, "@l.mlp_norm"}, {ROLE_O, "@a.Wo"}, {ROLE_GATE_UP, "@f.Wi"}, {ROLE_DOWN, "@f.Wo"});

/* ---- the table ---------------------------------------------------------------------------------------------------- */

#define LAYER_NORM {.kind = NORM_LAYER}
#define BERT_LIKE .wiring = WIRE_SUM_NORM, .norm = LAYER_NORM
#define SIGMOID_BIASED .score = ROUTE_SIGMOID, .norm_eps = 1e-20f, .bias = true, .group_top2 = true

const struct family family_table[] = {
    {.type = "llama", .title = "Llama 2, 3, 3.1, 3.2, 3.3; SmolLM 1, 2; Yi; TinyLlama", .defaults = llama_class},
    {.type = "mistral", .title = "Mistral 7B, Nemo, Small", .defaults = mistral_class, .pattern = "S"},
    {.type = "ministral3", .title = "Ministral 3", .defaults = ministral3_class, .pattern = "S", .keys = ministral3_keys},
    {.type = "mixtral", .title = "Mixtral", .defaults = mixtral_class, .pattern = "S", .ffn = FFN_EXPERTS, .moe = {.score = ROUTE_SOFTMAX_AFTER},
     .names = {.ffn = "block_sparse_moe"}, .keys = experts_have_intermediate_size},
    {.type = "mllama_text_model", .title = "Llama 3.2 Vision", .defaults = mllama_text_model_class, .attn = {.cross = "cross_attention_layers"},
     .names = {.roles = cross_roles}, .stream = &cross_stream},
    {.type = "llama4_text", .title = "Llama 4 (text)", .defaults = llama4_text_class, .pattern = "CCCF", .ffn = FFN_EXPERTS,
     .attn = {.chunks_have_rope = true, .rope = ROPE_PAIR, .qk_norm = QK_HEAD, .qk_switch = "use_qk_norm", .qk_norm_last = true,
     .qk_norm_bare = true},
     .moe = {.score = ROUTE_SIGMOID, .scale_input = true, .n_shared = 1, .is_transposed = true}, .names = {.ffn = "feed_forward"},
     .keys = llama4_keys},

    {.type = "qwen2", .title = "Qwen2, Qwen2.5, QwQ", .defaults = qwen2_class},
    {.type = "qwen2_moe", .title = "Qwen2 MoE, Qwen1.5 MoE", .defaults = qwen2_moe_class, .ffn = FFN_EXPERTS, .attn = {.windows = WINDOWS_EVEN_BELOW}, .moe = {.shared_gate = true}},
    {.type = "qwen3", .title = "Qwen3 dense", .defaults = qwen3_class, .attn = {.qk_norm = QK_HEAD}},
    {.type = "qwen3_moe", .title = "Qwen3 MoE", .defaults = qwen3_moe_class, .ffn = FFN_EXPERTS, .attn = {.windows = WINDOWS_ALL, .qk_norm = QK_HEAD}},

    {.type = "qwen3_vl_moe_text", .title = "Qwen3-VL MoE (text)", .defaults = qwen3_vl_moe_text_class, .ffn = FFN_EXPERTS,
     .attn = {.windows = WINDOWS_ALL, .qk_norm = QK_HEAD}, .moe = {.normalize = true, .is_transposed = true}},
    {.type = "cwm", .title = "Code World Model", .defaults = cwm_class, .pattern = "FSSS"},

    {.type = "gemma", .title = "Gemma 1", .defaults = gemma_class, .norm = {.offset = 1}, .flags = FAM_EMBED_SCALE},
    {.type = "gemma2", .title = "Gemma 2", .defaults = gemma2_class, .pattern = "SF", .wiring = WIRE_PRE_POST, .norm = {.offset = 1},
     .flags = FAM_EMBED_SCALE},
    {.type = "vaultgemma", .title = "VaultGemma", .defaults = vaultgemma_class, .pattern = "SF", .norm = {.offset = 1}, .flags = FAM_EMBED_SCALE},
    {.type = "gemma3_text", .title = "Gemma 3", .defaults = gemma3_text_class, .pattern = "SSSSSF", .wiring = WIRE_PRE_POST, .norm = {.offset = 1},
     .attn = {.qk_norm = QK_HEAD, .local_rope = true}, .keys = gemma3_keys,
     .flags = FAM_EMBED_SCALE},

    {.type = "gemma3n_text", .title = "Gemma 3n (text)", .defaults = gemma3n_text_class, .pattern = "SSSSF", .wiring = WIRE_PRE_POST,
     .attn = {.qk_norm = QK_HEAD, .v_norm = true, .local_rope = true},
     .flags = FAM_EMBED_SCALE, .stream = &altup_stream},
    {.type = "gemma4_text", .title = "Gemma 4 (text)", .defaults = gemma4_text_class, .pattern = "SSSSSF", .wiring = WIRE_PRE_POST,
     .moe = {.normalize = true},
     .attn = {.qk_norm = QK_HEAD, .v_norm = true, .local_rope = true, .ends_full = true},
     .names = {.roles = experts_beside_mlp}, .keys = gemma4_keys,
     .flags = FAM_EMBED_SCALE, .stream = &per_layer_stream},

    {.type = "phi", .title = "Phi 1, 1.5, 2", .defaults = phi_class, .wiring = WIRE_PARALLEL, .ffn = FFN_PLAIN, .norm = LAYER_NORM,
     .attn = {.qk_norm = QK_HEAD, .qk_switch = "qk_layernorm"}},
    {.type = "phi3", .title = "Phi 3, 3.5, 4, 4 mini", .defaults = phi3_class, .pattern = "S"},
    {.type = "phimoe", .title = "Phi 3.5 MoE", .defaults = phimoe_class, .pattern = "S", .ffn = FFN_EXPERTS, .norm = LAYER_NORM, .moe = {.score = ROUTE_SPARSEMIXER},
     .names = {.ffn = "block_sparse_moe"}, .keys = experts_have_intermediate_size},

    {.type = "olmo", .title = "OLMo", .defaults = olmo_class, .norm = {.kind = NORM_LAYER, .no_weight = true}},
    {.type = "olmo2", .title = "OLMo 2", .defaults = olmo2_class, .wiring = WIRE_POST, .attn = {.qk_norm = QK_FULL}},
    {.type = "olmo3", .title = "OLMo 3", .defaults = olmo3_class, .pattern = "SSSF", .wiring = WIRE_POST, .attn = {.qk_norm = QK_FULL, .local_rope = true}},
    {.type = "olmoe", .title = "OLMoE", .defaults = olmoe_class, .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_FULL}, .keys = experts_have_intermediate_size},

    {.type = "cohere", .title = "Command R, R+", .defaults = cohere_class, .wiring = WIRE_PARALLEL, .norm = LAYER_NORM,
     .attn = {.rope = ROPE_PAIR, .qk_norm = QK_PER_HEAD, .qk_switch = "use_qk_norm"}},
    {.type = "cohere2", .title = "Command R7B, Command A", .defaults = cohere2_class, .pattern = "SSSF", .wiring = WIRE_PARALLEL, .norm = LAYER_NORM,
     .attn = {.rope = ROPE_PAIR, .nope = "F"}},
    {.type = "cohere2_moe", .title = "Command A MoE", .defaults = cohere2_moe_class, .pattern = "SSSF", .wiring = WIRE_PARALLEL, .norm = LAYER_NORM, .ffn = FFN_EXPERTS,
     .attn = {.rope = ROPE_PAIR, .nope = "F"}, .moe = {.score = ROUTE_SOFTMAX_AFTER}, .keys = cohere2_moe_keys},

    {.type = "glm", .title = "GLM 4 9B", .defaults = glm_class, .attn = {.rope = ROPE_PAIR}},
    {.type = "glm4", .title = "GLM 4 0414, GLM Z1", .defaults = glm4_class, .wiring = WIRE_PRE_POST, .attn = {.rope = ROPE_PAIR},
     .names = {.roles = four_norms}},
    {.type = "glm4_moe", .title = "GLM 4.5, 4.6, 4.7", .defaults = glm4_moe_class, .ffn = FFN_EXPERTS,
     .attn = {.qk_norm = QK_HEAD, .qk_switch = "use_qk_norm"},
     .moe = {SIGMOID_BIASED}},
    {.type = "glm4_moe_lite", .title = "GLM 4.7 Flash", .defaults = glm4_moe_lite_class, .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .moe = {SIGMOID_BIASED}},

    {.type = "deepseek", .title = "DeepSeek MoE 16B", .defaults = llama_class, .ffn = FFN_EXPERTS},
    {.type = "deepseek_v2", .title = "DeepSeek V2, V2.5", .defaults = deepseek_v2_class, .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .keys = never_normalized},
    {.type = "deepseek_v3", .title = "DeepSeek V3, R1; Kimi K2", .defaults = deepseek_v3_class, .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .moe = {SIGMOID_BIASED}},
    {.type = "deepseek_v32", .title = "DeepSeek V3.2", .defaults = deepseek_v32_class, .pattern = "L", .ffn = FFN_EXPERTS,
     .attn = {.rope = ROPE_PAIR, .index_rope = ROPE_HALF}, .moe = {SIGMOID_BIASED}},
    {.type = "deepseek_v4", .title = "DeepSeek V4", .defaults = deepseek_v4_class, .pattern = "BBBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBPBP A",
     .ffn = FFN_EXPERTS, .moe = {.score = ROUTE_PLAIN, .score_act = ACT_SQRT_SOFTPLUS, .normalize = true, .norm_eps = 1e-20f, .limits_first = true, .limits_shared = true},
     .names = {.attn = "attn", .ffn = "ffn", .roles = deepseek_v4_roles}, .keys = deepseek_v4_keys, .stream = &blend_stream},
    {.type = "glm_moe_dsa", .title = "GLM 5", .defaults = glm_moe_dsa_class, .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .moe = {SIGMOID_BIASED}},
    {.type = "mistral4", .title = "Mistral 4", .defaults = mistral4_class, .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .moe = {.norm_eps = 1e-20f, .group_top2 = true}, .keys = ministral3_keys},
    {.type = "longcat_flash", .title = "LongCat-Flash", .defaults = longcat_flash_class, .pattern = "L", .attn = {.rope = ROPE_PAIR, .latents_grow = true},
     .moe = {.bias = true}, .names = {.roles = longcat_roles}, .keys = longcat_keys, .flags = FAM_TWO_IN_ONE, .stream = &shortcut_stream},
    {.type = "afmoe", .title = "Trinity (AFMoE)", .defaults = afmoe_class, .pattern = "SSSF", .wiring = WIRE_PRE_POST, .ffn = FFN_EXPERTS,
     .attn = {.qk_norm = QK_HEAD, .nope = "F", .gate = ATTN_GATE_OWN},
     .moe = {.score = ROUTE_SIGMOID, .normalize = true, .norm_eps = 1e-20f, .bias = true}, .keys = afmoe_keys},
    {.type = "mimo_v2_flash", .title = "MiMo-V2-Flash", .defaults = mimo_v2_flash_class, .pattern = "SSSSSF", .ffn = FFN_EXPERTS,
     .attn = {.begins_full = true, .window_kv = 2, .local_rope = true}, .moe = {SIGMOID_BIASED}, .keys = mimo_v2_keys},
    {.type = "step3p5", .title = "Step 3.5, 3.7 (text)", .defaults = step3p5_class, .norm = {.offset = 1}, .ffn = FFN_EXPERTS,
     .attn = {.qk_norm = QK_HEAD, .gate = ATTN_GATE_HEAD, .local_rope = true}, .moe = {.score = ROUTE_SIGMOID, .normalize = true, .bias = true},
     .names = {.roles = step_experts}, .keys = step_keys, .flags = FAM_MLX_ADDS_ONE},
    {.type = "dots1", .title = "dots.llm1", .defaults = dots1_class, .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_HEAD}, .moe = {SIGMOID_BIASED}},
    {.type = "gpt_oss", .title = "gpt-oss", .defaults = gpt_oss_class, .pattern = "SF", .ffn = FFN_EXPERTS, .act = ACT_CLAMPED_SWIGLU,
     .moe = {.score = ROUTE_SOFTMAX_AFTER, .is_transposed = true, .is_interleaved = true}, .keys = experts_have_intermediate_size},

    {.type = "granite", .title = "Granite 3", .defaults = granite_class},
    {.type = "granitemoe", .title = "Granite 3 MoE", .defaults = granitemoe_class, .ffn = FFN_EXPERTS, .moe = {.score = ROUTE_SOFTMAX_AFTER},
     .names = {.ffn = "block_sparse_moe"}, .keys = experts_have_intermediate_size},
    {.type = "starcoder2", .title = "StarCoder 2", .defaults = starcoder2_class, .pattern = "S", .ffn = FFN_PLAIN, .norm = LAYER_NORM},
    {.type = "stablelm", .title = "StableLM 2, Zephyr", .defaults = stablelm_class, .norm = LAYER_NORM,
     .attn = {.qk_norm = QK_PER_HEAD, .qk_switch = "qk_layernorm"}},
    {.type = "gpt2", .title = "GPT-2", .defaults = gpt2_class, .ffn = FFN_PLAIN, .norm = LAYER_NORM, .attn = {.no_rope = true},
     .names = {.attn = "attn"},
     .keys = gpt2_keys, .flags = FAM_LEARNED_POSITIONS | FAM_TRANSPOSED},
    {.type = "gpt_neox", .title = "GPT-NeoX, Pythia", .defaults = gpt_neox_class, .wiring = WIRE_PARALLEL_TWO, .ffn = FFN_PLAIN, .norm = LAYER_NORM,
     .attn = {.qkv = QKV_BY_GROUP},
     .names = {.root = "gpt_neox.", .attn = "attention"}, .keys = gpt_neox_keys},
    {.type = "gptj", .title = "GPT-J", .defaults = gptj_class, .wiring = WIRE_PARALLEL, .ffn = FFN_PLAIN, .norm = LAYER_NORM, .attn = {.rope = ROPE_PAIR},
     .names = {.attn = "attn"}, .keys = gpt2_keys},
    {.type = "codegen", .title = "CodeGen", .defaults = gptj_class, .wiring = WIRE_PARALLEL, .ffn = FFN_PLAIN, .norm = LAYER_NORM,
     .attn = {.rope = ROPE_PAIR, .qkv = QKV_QVK_BY_FOUR}, .names = {.attn = "attn"}, .keys = gpt2_keys},
    {.type = "gpt_bigcode", .title = "StarCoder, SantaCoder", .defaults = gpt_bigcode_class, .ffn = FFN_PLAIN, .norm = LAYER_NORM,
     .attn = {.no_rope = true, .qkv = QKV_BY_GROUP}, .names = {.attn = "attn"}, .keys = gpt2_keys, .flags = FAM_LEARNED_POSITIONS},
    {.type = "persimmon", .title = "Persimmon", .defaults = persimmon_class, .ffn = FFN_PLAIN, .norm = LAYER_NORM,
     .attn = {.qkv = QKV_BY_GROUP, .qk_norm = QK_HEAD, .qk_switch = "qk_layernorm"}},
    {.type = "opt", .title = "OPT", .defaults = opt_class, .ffn = FFN_PLAIN, .norm = LAYER_NORM, .attn = {.no_rope = true}, .keys = opt_keys,
     .first_position = 2, .flags = FAM_LEARNED_POSITIONS},
    {.type = "falcon", .title = "Falcon 7B, 40B, 180B, 11B, RW", .defaults = falcon_class, .wiring = WIRE_PARALLEL, .ffn = FFN_PLAIN, .norm = LAYER_NORM,
     .attn = {.qkv = QKV_BY_GROUP, .slopes = SLOPES_IN_BF16}, .names = {.attn = "self_attention"}, .keys = falcon_keys},
    {.type = "bloom", .title = "BLOOM", .defaults = bloom_class, .ffn = FFN_PLAIN, .norm = LAYER_NORM, .attn = {.no_rope = true, .qkv = QKV_BY_GROUP, .slopes = SLOPES_ALWAYS},
     .act = ACT_GELU_TANH, .names = {.attn = "self_attention"}, .keys = bloom_keys},
    {.type = "mpt", .title = "MPT", .defaults = mpt_class, .ffn = FFN_PLAIN, .norm = LAYER_NORM, .attn = {.no_rope = true, .slopes = SLOPES_ASK}, .act = ACT_GELU,
     .names = {.layers = "blocks", .attn = "attn", .ffn = "ffn"}, .keys = mpt_keys},
    {.type = "dbrx", .title = "DBRX", .defaults = dbrx_class, .ffn = FFN_EXPERTS, .norm = LAYER_NORM, .moe = {.is_down_transposed = true},
     .names = {.layers = "blocks", .attn = "norm_attn_norm.attn", .ffn = "ffn", .roles = dbrx_roles}, .keys = dbrx_keys},
    {.type = "internlm2", .title = "InternLM 2, 2.5", .defaults = llama_class, .attn = {.qkv = QKV_BY_GROUP},
     .names = {.attn = "attention", .ffn = "feed_forward", .roles = internlm2_roles}},
    {.type = "minicpm", .title = "MiniCPM 1, 2", .defaults = llama_class, .keys = minicpm_keys},
    {.type = "minicpm3", .title = "MiniCPM 3", .defaults = minicpm3_class, .pattern = "L", .keys = minicpm_keys},
    {.type = "nemotron", .title = "Nemotron 3, 4, Minitron", .defaults = nemotron_class, .ffn = FFN_PLAIN,
     .norm = {.kind = NORM_LAYER, .offset = 1}},

    {.type = "exaone", .title = "EXAONE 3, 3.5, Deep", .defaults = exaone_class, .names = {.attn = "attn.attention", .roles = exaone_roles}, .keys = exaone_keys},
    {.type = "exaone4", .title = "EXAONE 4", .defaults = exaone4_class, .pattern = "SSSF", .wiring = WIRE_POST, .attn = {.qk_norm = QK_HEAD, .nope = "F"}},
    {.type = "exaone_moe", .title = "EXAONE MoE", .defaults = exaone_moe_class, .pattern = "SSSF", .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_HEAD, .nope = "F"},
     .moe = {SIGMOID_BIASED}, .keys = exaone_moe_keys},
    {.type = "solar_open", .title = "Solar Open", .defaults = solar_open_class, .ffn = FFN_EXPERTS, .moe = {SIGMOID_BIASED}},
    {.type = "hy_v3", .title = "Hunyuan 3", .defaults = hy_v3_class, .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_HEAD},
     .moe = {.score = ROUTE_SIGMOID, .normalize = true, .norm_eps = 1e-20f, .bias = true}, .keys = hy_v3_keys},
    {.type = "hy_v4", .title = "Hunyuan 4", .defaults = hy_v4_class, .pattern = "L", .ffn = FFN_EXPERTS, .attn = {.gate = ATTN_GATE_OWN, .index_turns_last = true},
     .moe = {SIGMOID_BIASED, .limits_first = true}, .stream = &hyper_stream},
    {.type = "doge", .title = "Doge", .defaults = doge_class, .pattern = "S", .attn = {.qk_norm = QK_HEAD, .key_bias = true}},
    {.type = "jais2", .title = "Jais 2", .defaults = jais2_class, .ffn = FFN_PLAIN, .norm = LAYER_NORM},
    {.type = "smollm3", .title = "SmolLM 3", .defaults = smollm3_class, .attn = {.windows = WINDOWS_NOPE}},
    {.type = "hunyuan_v1_dense", .title = "Hunyuan 0.5B to 7B", .defaults = hunyuan_v1_dense_class, .attn = {.qk_norm = QK_HEAD, .qk_norm_last = true}},
    {.type = "hunyuan_v1_moe", .title = "Hunyuan A13B", .defaults = hunyuan_v1_moe_class, .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_HEAD, .qk_norm_last = true},
     .moe = {.normalize = true, .n_shared = 1}, .keys = hunyuan_moe_keys},
    {.type = "ernie4_5", .title = "ERNIE 4.5", .defaults = ernie4_5_class, .attn = {.rope = ROPE_PAIR}},
    {.type = "ernie4_5_moe", .title = "ERNIE 4.5 MoE", .defaults = ernie4_5_moe_class, .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .moe = {.normalize = true, .bias = true, .may_lack_bias = true}, .keys = ernie_moe_keys},
    {.type = "ernie4_5_vl_moe_text", .title = "ERNIE 4.5 VL (text)", .defaults = ernie4_5_vl_moe_text_class, .ffn = FFN_EXPERTS, .attn = {.rope = ROPE_PAIR},
     .moe = {.normalize = true, .bias = true, .beside_images = true}, .keys = ernie_moe_keys},
    {.type = "seed_oss", .title = "Seed-OSS", .defaults = seed_oss_class},
    {.type = "helium", .title = "Helium 1", .defaults = helium_class, .attn = {.rope = ROPE_PAIR}},
    {.type = "arcee", .title = "Arcee AFM", .defaults = arcee_class, .ffn = FFN_PLAIN},
    {.type = "apertus", .title = "Apertus", .defaults = apertus_class, .ffn = FFN_PLAIN, .attn = {.qk_norm = QK_HEAD}},
    {.type = "bitnet", .title = "BitNet, unpacked weights", .defaults = bitnet_class},

    {.type = "qwen3_next", .title = "Qwen3-Next", .defaults = qwen3_next_class, .pattern = "DDDF", .ffn = FFN_EXPERTS, .norm = {.offset = 1},
     .attn = {.qk_norm = QK_HEAD, .gate = ATTN_GATE_IN_Q}, .moe = {.shared_gate = true},
     .names = {.mixer = "linear_attn"}},
    {.type = "qwen3_5_text", .title = "Qwen3.5", .defaults = qwen3_5_text_class, .pattern = "DDDF", .norm = {.offset = 1},
     .attn = {.qk_norm = QK_HEAD, .gate = ATTN_GATE_IN_Q},
     .names = {.mixer = "linear_attn"}},
    {.type = "qwen3_5_moe_text", .title = "Qwen3.5 MoE", .defaults = qwen3_5_moe_text_class, .pattern = "DDDF", .ffn = FFN_EXPERTS, .norm = {.offset = 1},
     .attn = {.qk_norm = QK_HEAD, .gate = ATTN_GATE_IN_Q}, .moe = {.normalize = true, .shared_gate = true},
     .names = {.mixer = "linear_attn"}},
    {.type = "recurrent_gemma", .title = "RecurrentGemma, Griffin", .defaults = recurrent_gemma_class, .pattern = "UUS", .norm = {.offset = 1},
     .names = {.attn = "temporal_block", .ffn = "mlp_block", .mixer = "temporal_block", .roles = recurrent_gemma_roles}, .keys = recurrent_gemma_keys,
     .flags = FAM_EMBED_SCALE_BF16 | FAM_INNER_HALVED},
    {.type = "olmo_hybrid", .title = "OLMo Hybrid", .defaults = olmo_hybrid_class, .pattern = "DDDF", .wiring = WIRE_POST, .attn = {.qk_norm = QK_FULL},
     .recur = {.norms_before = true, .norm_eps = 1e-5f}, .names = {.mixer = "linear_attn", .roles = olmo_hybrid_norms}},
    {.type = "kimi_linear", .title = "Kimi Linear", .defaults = kimi_linear_class, .pattern = "DDDDLDDDLDDDLDDDLDDDLDDDLDD", .ffn = FFN_EXPERTS, .attn = {.no_rope = true},
     .moe = {SIGMOID_BIASED}, .recur = {.decays_by_channel = true}, .names = {.mixer = "self_attn", .roles = kimi_linear_experts}, .keys = kimi_linear_keys},
    {.type = "bailing_hybrid", .title = "Ling 3", .defaults = bailing_hybrid_class, .pattern = "DDDDDL", .ffn = FFN_EXPERTS,
     .attn = {.rope = ROPE_PAIR, .gate = ATTN_GATE_HEAD}, .moe = {SIGMOID_BIASED}, .recur = {.decays_by_channel = true},
     .names = {.attn = "attention", .mixer = "attention"}, .keys = bailing_hybrid_keys},
    {.type = "bailing_moe", .title = "Ling and Ring 1, 2", .defaults = bailing_moe_class, .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_HEAD, .qk_switch = "use_qk_norm"},
     .moe = {.norm_eps = 1e-20f, .bias = true, .group_top2 = true}, .names = {.attn = "attention", .roles = bailing_moe_roles}, .keys = bailing_moe_keys},
    {.type = "mamba", .title = "Mamba", .defaults = mamba_class, .pattern = "N", .keys = mamba_keys, .flags = FAM_ONE_HALF},
    {.type = "rwkv", .title = "RWKV 4", .defaults = rwkv_class, .pattern = "R", .norm = LAYER_NORM,
     .names = {.root = "rwkv.", .layers = "blocks", .ffn = "feed_forward", .mixer = "attention", .roles = rwkv_roles}, .keys = rwkv_keys, .flags = FAM_ONE_HALF,
     .stream = &wkv_stream},
    {.type = "rwkv7", .title = "RWKV 7", .defaults = rwkv7_class, .pattern = "W", .norm = LAYER_NORM, .ffn = FFN_PLAIN, .act = ACT_RELU2,
     .names = {.ffn = "ffn", .mixer = "attn", .roles = rwkv7_roles}, .keys = rwkv7_keys, .stream = &exchange_stream},
    {.type = "xlstm", .title = "xLSTM", .defaults = xlstm_class, .pattern = "X",
     .names = {.root = "backbone.", .layers = "blocks", .ffn = "ffn", .mixer = "mlstm_layer", .roles = xlstm_roles}, .keys = xlstm_keys},
    {.type = "falcon_mamba", .title = "Falcon Mamba", .defaults = mamba_class, .pattern = "N", .recur = {.bare_norms = true}, .keys = mamba_keys,
     .flags = FAM_ONE_HALF},
    {.type = "mamba2", .title = "Mamba-2, Codestral Mamba", .defaults = mamba2_class, .pattern = "M", .keys = mamba2_keys,
     .flags = FAM_ONE_HALF},
    {.type = "granitemoehybrid", .title = "Granite 4.0", .defaults = granitemoehybrid_class, .pattern = "M F", .ffn = FFN_EXPERTS, .attn = {.rope_if_named = true},
     .moe = {.score = ROUTE_SOFTMAX_AFTER},
     .recur = {.layer_type = "mamba"}, .names = {.ffn = "block_sparse_moe", .mixer = "mamba", .roles = shared_mlp_alone},
     .keys = granite_hybrid_keys},
    {.type = "nemotron_h", .title = "Nemotron-H, Nemotron Nano 2 and 3", .defaults = nemotron_h_class, .pattern = "MEF-", .ffn = FFN_EXPERTS,
     .attn = {.no_rope = true}, .moe = {.score = ROUTE_SIGMOID, .norm_eps = 1e-20f, .bias = true,
     .group_top2 = true, .is_plain = true},
     .recur = {.group_norm = true, .time_step_min = true, .layer_type = "mamba"},
     .names = {.attn = "mixer", .ffn = "mixer", .roles = norm_before_either},
     .keys = nemotron_h_keys, .flags = FAM_ONE_HALF},
    {.type = "bamba", .title = "Bamba", .defaults = bamba_class, .pattern = "M F", .names = {.ffn = "feed_forward", .mixer = "mamba"}, .keys = bamba_keys},
    {.type = "zamba2", .title = "Zamba 2", .defaults = zamba2_class, .pattern = "MMMMMMHMMMMMHMMMMMHMMMMMHMMMMMHMMMMMHMMMMMHMMMMHMMMHMM",
     .attn = {.inputs = 2, .rope_switch = "use_mem_rope"}, .recur = {.group_norm = true, .time_step_min = true, .norm_eps = 1e-5f, .layer_type = "mamba"},
     .names = {.attn = "shared_transformer.self_attn", .ffn = "shared_transformer.feed_forward", .roles = zamba2_roles}, .keys = zamba2_keys,
     .flags = FAM_ONE_HALF, .stream = &shared_stream},
    {.type = "jamba", .title = "Jamba", .defaults = jamba_class, .pattern = "NF", .ffn = FFN_EXPERTS, .attn = {.no_rope = true},
     .names = {.ffn = "feed_forward", .mixer = "mamba"}, .keys = jamba_keys},
    {.type = "lfm2", .title = "LFM2", .defaults = lfm2_class, .pattern = "F K", .recur = {.layer_type = "conv"}, .attn = {.qk_norm = QK_HEAD},
     .names = {.ffn = "feed_forward", .mixer = "conv"}},
    {.type = "lfm2_moe", .title = "LFM2 MoE", .defaults = lfm2_moe_class, .pattern = "K F", .recur = {.layer_type = "conv"}, .ffn = FFN_EXPERTS,
     .attn = {.qk_norm = QK_HEAD},
     .moe = {.score = ROUTE_SIGMOID, .norm_eps = 1e-6f, .bias = true},
     .names = {.ffn = "feed_forward", .mixer = "conv"},
     .keys = lfm2_moe_keys},
    {.type = "falcon_h1", .title = "Falcon-H1", .defaults = falcon_h1_class, .recur = {.group_norm = true},
     .names = {.ffn = "feed_forward", .mixer = "mamba"}, .keys = falcon_h1_keys,
     .stream = &hybrid_stream},
    {.type = "minimax", .title = "MiniMax-Text-01", .defaults = minimax_class, .pattern = "FG", .ffn = FFN_EXPERTS,
     .moe = {.score = ROUTE_SOFTMAX_AFTER}, .names = {.ffn = "block_sparse_moe", .mixer = "self_attn"},
     .keys = experts_have_intermediate_size, .stream = &lightning_stream},
    {.type = "minimax_m2", .title = "MiniMax-M2", .defaults = minimax_m2_class, .ffn = FFN_EXPERTS, .attn = {.qk_norm = QK_FULL},
     .moe = {.score = ROUTE_SIGMOID, .normalize = true, .bias = true}, .names = {.ffn = "block_sparse_moe"},
     .keys = experts_have_intermediate_size},

    {.type = "bert", .title = "BERT; MiniLM, BGE, E5, GTE and others (embeddings, rerankers)", .defaults = bert_class, BERT_LIKE, .ffn = FFN_PLAIN, .attn = {.no_rope = true},
     .names = {.root = "bert.", .layers = "encoder.layer", .attn = "attention", .roles = bert_roles}, .flags = FAM_ENCODER | FAM_LEARNED_POSITIONS},
    {.type = "roberta", .title = "RoBERTa, XLM-RoBERTa; BGE-M3, multilingual E5, BGE rerankers (embeddings, rerankers)", .defaults = roberta_class, BERT_LIKE, .ffn = FFN_PLAIN,
     .attn = {.no_rope = true}, .names = {.root = "roberta.", .layers = "encoder.layer", .attn = "attention", .roles = bert_roles},
     .flags = FAM_ENCODER | FAM_LEARNED_POSITIONS | FAM_POSITIONS_BEHIND_PAD},
    {.type = "mpnet", .title = "MPNet (embeddings)", .defaults = mpnet_class, BERT_LIKE, .ffn = FFN_PLAIN, .attn = {.no_rope = true},
     .names = {.root = "mpnet.", .layers = "encoder.layer", .attn = "attention", .roles = mpnet_roles},
     .flags = FAM_ENCODER | FAM_LEARNED_POSITIONS | FAM_POSITIONS_BEHIND_PAD | FAM_DISTANCES},
    {.type = "distilbert", .title = "DistilBERT (embeddings)", .defaults = distilbert_class, BERT_LIKE, .ffn = FFN_PLAIN, .attn = {.no_rope = true},
     .names = {.root = "distilbert.", .layers = "transformer.layer", .attn = "attention", .ffn = "ffn", .roles = distilbert_roles}, .keys = distilbert_keys,
     .flags = FAM_ENCODER | FAM_LEARNED_POSITIONS},
    {.type = "electra", .title = "ELECTRA (embeddings)", .defaults = electra_class, BERT_LIKE, .ffn = FFN_PLAIN, .attn = {.no_rope = true},
     .names = {.root = "electra.", .layers = "encoder.layer", .attn = "attention", .roles = bert_roles}, .keys = electra_keys, .flags = FAM_ENCODER | FAM_LEARNED_POSITIONS},
    {.type = "modernbert", .title = "ModernBERT; GTE, Granite and others (embeddings, rerankers)", .defaults = modernbert_class, .pattern = "FSS", .norm = LAYER_NORM,
     .attn = {.local_rope = true, .full_first = true}, .names = {.attn = "attn", .roles = modernbert_roles}, .keys = modernbert_keys, .flags = FAM_ENCODER | FAM_FIRST_UNNORMED},
    {.type = "nomic_bert", .title = "Nomic Embed 1, 1.5 (embeddings)", .defaults = nomic_bert_class, BERT_LIKE,
     .names = {.layers = "encoder.layers", .attn = "attn", .roles = nomic_bert_roles}, .keys = nomic_bert_keys, .flags = FAM_ENCODER},
    {.type = "gte", .title = "GTE 1.5, multilingual (embeddings)", .defaults = gte_class, BERT_LIKE,
     .names = {.root = "new.", .layers = "encoder.layer", .attn = "attention", .roles = gte_roles}, .flags = FAM_ENCODER | FAM_UP_FIRST},
    {.type = "jina_embeddings_v3", .title = "Jina Embeddings 3, without its adapters", .defaults = jina_embeddings_v3_class, BERT_LIKE, .ffn = FFN_PLAIN,
     .names = {.layers = "encoder.layers", .attn = "mixer", .roles = jina_roles}, .flags = FAM_ENCODER},
    {.type = "deberta-v2", .title = "DeBERTa 2, 3 (embeddings, rerankers)", .defaults = deberta_v2_class, BERT_LIKE, .ffn = FFN_PLAIN, .attn = {.no_rope = true},
     .names = {.root = "deberta.", .layers = "encoder.layer", .attn = "attention", .roles = deberta_roles}, .flags = FAM_ENCODER | FAM_RELATIVE},
    {.type = "eurobert", .title = "EuroBERT (embeddings)", .defaults = eurobert_class, .flags = FAM_ENCODER},
};

#include "model/family_gguf.inc"

/* clang-format on */

const int32_t family_count = (int32_t)(sizeof family_table / sizeof *family_table);

/* Other names of a family. Some have defaults of their own; some mean it only in files of one architecture. Then models with a tower for
 * images or sound around a text model, whose own type the file may leave out. */
const struct alias family_aliases[] = {
    {.type = "bailing_moe_v2", .family = "bailing_moe"},
    {.type = "camembert", .family = "roberta", .defaults = xlm_roberta_class},
    {.type = "gemma4_unified_text", .family = "gemma4_text", .defaults = gemma4_unified_text_class},
    {.type = "glm4v_moe_text", .family = "glm4_moe", .defaults = glm4v_moe_text_class},
    {.type = "glm4v_text", .family = "glm4", .defaults = glm4v_text_class},
    {.type = "hunyuan", .family = "hunyuan_v1_moe"},
    {.type = "internlm3", .family = "llama"},
    {.type = "iquestcoder", .family = "llama"},
    {.type = "joyai_llm_flash", .family = "deepseek_v3"},
    {.type = "kimi_k2", .family = "deepseek_v3"},
    {.type = "minimax", .family = "minimax_m2", .architecture = "MiniMaxM2ForCausalLM"},
    {.type = "mimo", .family = "qwen2"},
    {.type = "ministral", .family = "mistral"},
    {.type = "new", .family = "gte"},
    {.type = "paddleocr_vl_text", .family = "llama", .defaults = ernie4_5_class},
    {.type = "qwen2_5_vl_text", .family = "qwen2", .defaults = qwen2_vl_text_class},
    {.type = "qwen2_vl_text", .family = "qwen2", .defaults = qwen2_vl_text_class},
    {.type = "qwen3_vl_text", .family = "qwen3", .defaults = qwen3_vl_text_class},
    {.type = "xlm-roberta", .family = "roberta", .defaults = xlm_roberta_class},
    {.type = "xverse", .family = "llama"},

    {.type = "aya_vision", .family = "cohere2", .has_bare_head = true},
    {.type = "ernie4_5_vl_moe", .family = "ernie4_5_vl_moe_text"},
    {.type = "gemma3", .family = "gemma3_text"},
    {.type = "gemma3n", .family = "gemma3n_text"},
    {.type = "gemma4", .family = "gemma4_text"},
    {.type = "gemma4_unified", .family = "gemma4_text", .defaults = gemma4_unified_text_class},
    {.type = "glm46v", .family = "glm4", .defaults = glm4v_text_class},
    {.type = "glm4v", .family = "glm4", .defaults = glm4v_text_class},
    {.type = "glm4v_moe", .family = "glm4_moe", .defaults = glm4v_moe_text_class},
    {.type = "idefics2", .family = "mistral", .has_bare_head = true},
    {.type = "idefics3", .family = "llama", .has_bare_head = true},
    {.type = "internvl", .family = "qwen2", .has_bare_head = true},
    {.type = "kimi_k25", .family = "deepseek_v3"},
    {.type = "lfm2_vl", .family = "lfm2"},
    {.type = "llama4", .family = "llama4_text"},
    {.type = "llava", .family = "llama", .has_bare_head = true},
    {.type = "llava_next", .family = "llama", .has_bare_head = true},
    {.type = "llava_onevision", .family = "qwen2", .has_bare_head = true},
    {.type = "mistral3", .family = "mistral", .has_bare_head = true},
    {.type = "mllama", .family = "mllama_text_model"},
    {.type = "paddleocr_vl", .family = "llama", .defaults = ernie4_5_class},
    {.type = "paligemma", .family = "gemma", .has_bare_head = true},
    {.type = "qwen2_5_vl", .family = "qwen2", .defaults = qwen2_vl_text_class},
    {.type = "qwen2_vl", .family = "qwen2", .defaults = qwen2_vl_text_class},
    {.type = "qwen3_5", .family = "qwen3_5_text"},
    {.type = "qwen3_5_moe", .family = "qwen3_5_moe_text"},
    {.type = "qwen3_vl", .family = "qwen3", .defaults = qwen3_vl_text_class},
    {.type = "qwen3_vl_moe", .family = "qwen3_vl_moe_text"},
    {.type = "smolvlm", .family = "llama", .has_bare_head = true},
    {.type = "step3p7", .family = "step3p5"},
    {.type = "vipllava", .family = "llama", .has_bare_head = true},
};
const int32_t family_n_aliases = (int32_t)(sizeof family_aliases / sizeof *family_aliases);

const struct refusal family_refusals[] = {
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

static const struct alias *alias_find(struct str type, struct str architecture) {
    for (int32_t i = 0; i < family_n_aliases; i++)
        if (str_is(type, family_aliases[i].type) &&
            (!family_aliases[i].architecture || str_is(architecture, family_aliases[i].architecture)))
            return &family_aliases[i];
    return NULL;
}

const struct family *family_of(const struct config *c, const struct alias **out_alias, struct err *err) {
    struct str architecture = json_val_str(yyjson_arr_get(config_said(c, "architectures"), 0));
    *out_alias = alias_find(c->text_type, architecture);
    return family_find(*out_alias ? str_of((*out_alias)->family) : c->text_type, err);
}

const struct family *family_find(struct str type, struct err *err) {
    for (int32_t i = 0; i < family_count; i++)
        if (str_is(type, family_table[i].type)) return &family_table[i];
    refuse(type, err);
    return NULL;
}

/* ---- dimensions of well-known checkpoints, from their config.json --------------------------------------------------- */

#define LLAMA3_ROPE(factor)                         \
    "{\"rope_type\":\"llama3\",\"factor\":" #factor \
    ",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"

#define YARN(factor, more) \
    "{\"rope_type\":\"yarn\",\"factor\":" #factor ",\"beta_fast\":32.0,\"beta_slow\":1.0,\"original_max_position_embeddings\":4096" more "}"

/* clang-format off */
#define SHAPE_PARTS(id, ...) static const struct shape_part id[] = {__VA_ARGS__, {NULL, 0, 0, 0}}
#define TWO_NORMS(hidden) {"input_layernorm", 0, hidden, PART_NORM}, {"post_attention_layernorm", 0, hidden, PART_NORM}

SHAPE_PARTS(gpt_oss_parts, TWO_NORMS(2880),
      {"self_attn.q_proj", 4096, 2880, PART_BIAS}, {"self_attn.k_proj", 512, 2880, PART_BIAS}, {"self_attn.v_proj", 512, 2880, PART_BIAS},
      {"self_attn.o_proj", 2880, 4096, PART_BIAS}, {"self_attn.sinks", 0, 64, PART_VECTOR},
      {"mlp.router", 32, 2880, PART_PLAIN | PART_BIAS},
      {"mlp.experts.gate_proj", 2880, 2880, PART_EXPERTS | PART_MXFP4 | PART_BIAS},
      {"mlp.experts.up_proj", 2880, 2880, PART_EXPERTS | PART_MXFP4 | PART_BIAS},
      {"mlp.experts.down_proj", 2880, 2880, PART_EXPERTS | PART_MXFP4 | PART_BIAS});
SHAPE_PARTS(tiny_oss_parts, TWO_NORMS(192),
      {"self_attn.q_proj", 512, 192, PART_BIAS}, {"self_attn.k_proj", 128, 192, PART_BIAS}, {"self_attn.v_proj", 128, 192, PART_BIAS},
      {"self_attn.o_proj", 192, 512, PART_BIAS}, {"self_attn.sinks", 0, 8, PART_VECTOR},
      {"mlp.router", 8, 192, PART_PLAIN | PART_BIAS},
      {"mlp.experts.gate_proj", 64, 192, PART_EXPERTS | PART_MXFP4 | PART_BIAS},
      {"mlp.experts.up_proj", 64, 192, PART_EXPERTS | PART_MXFP4 | PART_BIAS},
      {"mlp.experts.down_proj", 192, 64, PART_EXPERTS | PART_MXFP4 | PART_BIAS});
#define TINY_LATENT_PARTS(heads) \
      {"self_attn.kv_a_proj_with_mqa", 576, 128, 0}, {"self_attn.kv_a_layernorm", 0, 512, PART_NORM}, \
      {"self_attn.kv_b_proj", heads * 128, 512, 0}, {"self_attn.o_proj", 128, heads * 64, 0}, \
      {"mlp.gate_proj", 128, 128, PART_FIRST}, {"mlp.up_proj", 128, 128, PART_FIRST}, {"mlp.down_proj", 128, 128, PART_FIRST}, \
      {"mlp.gate", 8, 128, PART_PLAIN | PART_REST}, \
      {"mlp.switch_mlp.gate_proj", 64, 128, PART_EXPERTS | PART_REST}, {"mlp.switch_mlp.up_proj", 64, 128, PART_EXPERTS | PART_REST}, \
      {"mlp.switch_mlp.down_proj", 128, 64, PART_EXPERTS | PART_REST}, \
      {"mlp.shared_experts.gate_proj", 128, 128, PART_REST}, {"mlp.shared_experts.up_proj", 128, 128, PART_REST}, \
      {"mlp.shared_experts.down_proj", 128, 128, PART_REST}
SHAPE_PARTS(tiny_latent_parts, TWO_NORMS(128), {"self_attn.q_proj", 4 * 128, 128, 0}, TINY_LATENT_PARTS(4));
SHAPE_PARTS(tiny_latents_parts, TWO_NORMS(128),
      {"self_attn.q_a_proj", 192, 128, 0}, {"self_attn.q_a_layernorm", 0, 192, PART_NORM}, {"self_attn.q_b_proj", 20 * 128, 192, 0},
      {"mlp.gate.e_score_correction_bias", 0, 8, PART_VECTOR | PART_REST}, TINY_LATENT_PARTS(20));
SHAPE_PARTS(glm_air_parts, TWO_NORMS(4096),
      {"self_attn.q_proj", 12288, 4096, PART_BIAS}, {"self_attn.k_proj", 1024, 4096, PART_BIAS}, {"self_attn.v_proj", 1024, 4096, PART_BIAS},
      {"self_attn.o_proj", 4096, 12288, 0},
      {"mlp.gate_proj", 10944, 4096, PART_FIRST}, {"mlp.up_proj", 10944, 4096, PART_FIRST}, {"mlp.down_proj", 4096, 10944, PART_FIRST},
      {"mlp.gate", 128, 4096, PART_PLAIN | PART_REST}, {"mlp.gate.e_score_correction_bias", 0, 128, PART_VECTOR | PART_REST},
      {"mlp.switch_mlp.gate_proj", 1408, 4096, PART_EXPERTS | PART_REST}, {"mlp.switch_mlp.up_proj", 1408, 4096, PART_EXPERTS | PART_REST},
      {"mlp.switch_mlp.down_proj", 4096, 1408, PART_EXPERTS | PART_REST},
      {"mlp.shared_experts.gate_proj", 1408, 4096, PART_REST}, {"mlp.shared_experts.up_proj", 1408, 4096, PART_REST},
      {"mlp.shared_experts.down_proj", 4096, 1408, PART_REST});
SHAPE_PARTS(deepseek_lite_parts, TWO_NORMS(2048),
      {"self_attn.q_proj", 3072, 2048, 0}, {"self_attn.kv_a_proj_with_mqa", 576, 2048, 0}, {"self_attn.kv_a_layernorm", 0, 512, PART_NORM},
      {"self_attn.kv_b_proj", 4096, 512, 0}, {"self_attn.o_proj", 2048, 2048, 0},
      {"mlp.gate_proj", 10944, 2048, PART_FIRST}, {"mlp.up_proj", 10944, 2048, PART_FIRST}, {"mlp.down_proj", 2048, 10944, PART_FIRST},
      {"mlp.gate", 64, 2048, PART_PLAIN | PART_REST},
      {"mlp.switch_mlp.gate_proj", 1408, 2048, PART_EXPERTS | PART_REST}, {"mlp.switch_mlp.up_proj", 1408, 2048, PART_EXPERTS | PART_REST},
      {"mlp.switch_mlp.down_proj", 2048, 1408, PART_EXPERTS | PART_REST},
      {"mlp.shared_experts.gate_proj", 2816, 2048, PART_REST}, {"mlp.shared_experts.up_proj", 2816, 2048, PART_REST},
      {"mlp.shared_experts.down_proj", 2048, 2816, PART_REST});
SHAPE_PARTS(gemma3_parts, TWO_NORMS(2560),
      {"pre_feedforward_layernorm", 0, 2560, PART_NORM}, {"post_feedforward_layernorm", 0, 2560, PART_NORM},
      {"self_attn.q_proj", 2048, 2560, 0}, {"self_attn.k_proj", 1024, 2560, 0}, {"self_attn.v_proj", 1024, 2560, 0},
      {"self_attn.o_proj", 2560, 2048, 0}, {"self_attn.q_norm", 0, 256, PART_NORM}, {"self_attn.k_norm", 0, 256, PART_NORM},
      {"mlp.gate_proj", 10240, 2560, 0}, {"mlp.up_proj", 10240, 2560, 0}, {"mlp.down_proj", 2560, 10240, 0});
SHAPE_PARTS(tiny_gemma_parts, TWO_NORMS(192),
      {"pre_feedforward_layernorm", 0, 192, PART_NORM}, {"post_feedforward_layernorm", 0, 192, PART_NORM},
      {"self_attn.q_proj", 1024, 192, 0}, {"self_attn.k_proj", 512, 192, 0}, {"self_attn.v_proj", 512, 192, 0},
      {"self_attn.o_proj", 192, 1024, 0}, {"self_attn.q_norm", 0, 256, PART_NORM}, {"self_attn.k_norm", 0, 256, PART_NORM},
      {"mlp.gate_proj", 256, 192, 0}, {"mlp.up_proj", 256, 192, 0}, {"mlp.down_proj", 192, 256, 0});
SHAPE_PARTS(phi3_parts, TWO_NORMS(3072),
      {"self_attn.qkv_proj", 9216, 3072, 0}, {"self_attn.o_proj", 3072, 3072, 0},
      {"mlp.gate_up_proj", 16384, 3072, 0}, {"mlp.down_proj", 3072, 8192, 0});
/* clang-format on */

const struct model_shape model_shapes[] = {
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, true, true, NULL, {0}, NULL, NULL, 0, false},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6f, true, true, NULL, {0}, NULL, NULL, 0, false},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e6f, true, true, NULL, {0}, NULL, NULL, 0, false},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6f, false, true, NULL, {0}, NULL, NULL, 0, false},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 1e6f, false, true, NULL, {128, 8, 768}, NULL, NULL, 0, false},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5f, true, false, LLAMA3_ROPE(32.0), {0}, NULL, NULL, 0, false},
    {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5f, true, false, LLAMA3_ROPE(32.0), {0}, NULL, NULL, 0, false},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, false, false, LLAMA3_ROPE(8.0), {0}, NULL, NULL, 0, false},
    {"llama-2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 1e4f, false, false, NULL, {0}, NULL, NULL, 0, false},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, true, false, NULL, {0}, NULL, NULL, 0, false},
    {.name = "gpt-oss-20b",
     .type = "gpt_oss",
     .layers = 24,
     .hidden = 2880,
     .inner = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .vocab = 201088,
     .context = 131072,
     .theta = 150000.0f,
     .rope_scaling = YARN(32.0, ",\"truncate\":false"),
     .experts = {32, 4, 2880},
     .parts = gpt_oss_parts,
     .config = "\"num_local_experts\": 32, \"sliding_window\": 128, \"swiglu_limit\": 7.0"},
    {.name = "glm-4.5-air",
     .type = "glm4_moe",
     .layers = 46,
     .hidden = 4096,
     .inner = 10944,
     .heads = 96,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 151552,
     .context = 131072,
     .theta = 1e6f,
     .experts = {128, 8, 1408},
     .dense_layers = 1,
     .parts = glm_air_parts,
     .config = "\"n_routed_experts\": 128, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"n_group\": 1, \"topk_group\": 1, "
               "\"routed_scaling_factor\": 1.0, \"partial_rotary_factor\": 0.5, \"attention_bias\": true, \"use_qk_norm\": false"},
    {.name = "deepseek-v2-lite",
     .type = "deepseek_v2",
     .layers = 27,
     .hidden = 2048,
     .inner = 10944,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 128,
     .vocab = 102400,
     .context = 163840,
     .theta = 1e4f,
     .rope_scaling = YARN(40.0, ",\"mscale\":0.707,\"mscale_all_dim\":0.707"),
     .experts = {64, 6, 1408},
     .dense_layers = 1,
     .parts = deepseek_lite_parts,
     .config = "\"n_routed_experts\": 64, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"routed_scaling_factor\": 1.0, "
               "\"topk_method\": \"greedy\", \"scoring_func\": \"softmax\", \"kv_lora_rank\": 512, \"q_lora_rank\": null, "
               "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128"},
    {.name = "gemma-3-4b",
     .type = "gemma3_text",
     .layers = 34,
     .hidden = 2560,
     .inner = 10240,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .vocab = 262208,
     .context = 131072,
     .theta = 1e6f,
     .tied = true,
     .rope_scaling = "{\"rope_type\":\"linear\",\"factor\":8.0}",
     .parts = gemma3_parts,
     .norms_add_one = true,
     .config = "\"hidden_activation\": \"gelu_pytorch_tanh\", \"sliding_window\": 1024, \"sliding_window_pattern\": 6, "
               "\"query_pre_attn_scalar\": 256, \"rope_local_base_freq\": 10000.0"},
    {.name = "phi-3-mini",
     .type = "phi3",
     .layers = 32,
     .hidden = 3072,
     .inner = 8192,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 96,
     .vocab = 32064,
     .context = 4096,
     .theta = 1e4f,
     .parts = phi3_parts,
     .config = "\"sliding_window\": 2047"},
    {"tiny", "qwen3", 2, 128, 256, 4, 2, 64, 4096, 512, 1e4f, true, true, NULL, {0}, NULL, NULL, 0, false},
    {"tiny-moe", "qwen3_moe", 2, 128, 256, 4, 2, 64, 4096, 512, 1e4f, true, true, NULL, {8, 2, 64}, NULL, NULL, 0, false},
    {.name = "tiny-oss",
     .type = "gpt_oss",
     .layers = 2,
     .hidden = 192,
     .inner = 64,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 64,
     .vocab = 4096,
     .context = 512,
     .theta = 1e4f,
     .rope_scaling = YARN(2.0, ",\"truncate\":false"),
     .experts = {8, 4, 64},
     .parts = tiny_oss_parts,
     .config = "\"num_local_experts\": 8, \"sliding_window\": 16, \"swiglu_limit\": 7.0"},
    {.name = "tiny-gemma",
     .type = "gemma3_text",
     .layers = 4,
     .hidden = 192,
     .inner = 256,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 256,
     .vocab = 4096,
     .context = 512,
     .theta = 1e6f,
     .tied = true,
     .rope_scaling = "{\"rope_type\":\"linear\",\"factor\":8.0}",
     .parts = tiny_gemma_parts,
     .norms_add_one = true,
     .config = "\"hidden_activation\": \"gelu_pytorch_tanh\", \"sliding_window\": 16, \"sliding_window_pattern\": 2, "
               "\"query_pre_attn_scalar\": 256, \"rope_local_base_freq\": 10000.0"},
    {.name = "tiny-latent",
     .type = "deepseek_v2",
     .layers = 3,
     .hidden = 128,
     .inner = 128,
     .heads = 4,
     .kv_heads = 4,
     .head_dim = 64,
     .vocab = 4096,
     .context = 512,
     .theta = 1e4f,
     .rope_scaling = YARN(2.0, ",\"mscale\":0.707,\"mscale_all_dim\":0.707"),
     .experts = {8, 3, 64},
     .dense_layers = 1,
     .parts = tiny_latent_parts,
     .config = "\"n_routed_experts\": 8, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"routed_scaling_factor\": 1.0, "
               "\"topk_method\": \"greedy\", \"scoring_func\": \"softmax\", \"kv_lora_rank\": 512, \"q_lora_rank\": null, "
               "\"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 64, \"v_head_dim\": 64"},
    {.name = "tiny-latents",
     .type = "deepseek_v3",
     .layers = 3,
     .hidden = 128,
     .inner = 128,
     .heads = 20,
     .kv_heads = 20,
     .head_dim = 64,
     .vocab = 4096,
     .context = 512,
     .theta = 1e4f,
     .experts = {8, 3, 64},
     .dense_layers = 1,
     .parts = tiny_latents_parts,
     .config = "\"n_routed_experts\": 8, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"routed_scaling_factor\": 1.5, "
               "\"n_group\": 2, \"topk_group\": 1, \"norm_topk_prob\": true, \"topk_method\": \"noaux_tc\", \"scoring_func\": \"sigmoid\", "
               "\"kv_lora_rank\": 512, \"q_lora_rank\": 192, \"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 64, \"v_head_dim\": 64"},
};

const int32_t model_n_shapes = (int32_t)(sizeof model_shapes / sizeof *model_shapes);
