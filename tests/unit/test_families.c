/* The families' table and what spec_resolve makes of a config.json: sound ones, and absurd ones. */
#include "tools/arch.h"
#include "model/families.h"
#include "os/os.h"
#include "unit.h"

static struct arena arena;
static struct err err;

static int resolve(const char *json, struct spec *out) {
    struct config c;
    err_clear(&err);
    int code = config_parse(&arena, str_of(json), "config.json", &c, &err);
    return code ? code : spec_resolve(&arena, &c, out, &err);
}

#define BASE "\"hidden_size\":64,\"num_hidden_layers\":4,\"vocab_size\":100,\"num_attention_heads\":4,\"intermediate_size\":96"
#define MOE "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"

/* Later keys do not replace earlier ones, so each case writes its own. A message is one line that names what is wrong. */
static void absurd_configs_are_refused(void) {
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"{" BASE "}", "model_type is missing"},
        {"{\"model_type\":\"llamma\"," BASE "}", "\"llamma\" is not supported; the nearest are llama, "},
        {"{\"model_type\":\"a-name-of-more-than-sixty-four-letters-such-as-nobody-gives-to-a-family\"," BASE "}", "is not supported"},
        {"{\"model_type\":\"whisper\"," BASE "}", "\"whisper\" is not supported: it transcribes sound; the nearest are "},
        {"{\"model_type\":\"llama\",\"hidden_size\":0}", "hidden_size"},
        {"{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2000000}", "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":\"four\"}", "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":null}",
         "num_attention_heads is missing"},
        {"{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":10,\"num_attention_heads\":0}",
         "num_attention_heads"},
        {"{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":10,\"num_attention_heads\":3}",
         "no multiple"},
        {"{\"model_type\":\"llama\"," BASE ",\"num_key_value_heads\":3}", "no multiple"},
        {"{\"model_type\":\"llama\"," BASE ",\"head_dim\":7}", "head_dim 7 is odd"},
        {"{\"model_type\":\"llama\"," BASE ",\"head_dim\":70000}", "head_dim"},
        {"{\"model_type\":\"llama\"," BASE ",\"rms_norm_eps\":NaN}", "rms_norm_eps"},
        {"{\"model_type\":\"llama\"," BASE ",\"rms_norm_eps\":-1}", "negative"},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_theta\":0}", "rope_theta"},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"type\":\"spiral\"}}", "spiral"},
        {"{\"model_type\":\"llama\"," BASE ",\"hidden_act\":\"sine\"}", "sine"},
        {"{\"model_type\":\"llama\"," BASE ",\"layer_types\":[\"full_attention\"]}", "layer_types"},
        {"{\"model_type\":\"llama\"," BASE ",\"layer_types\":[\"a\",\"b\",\"c\",\"d\"]}", "layer type \"a\""},
        {"{\"model_type\":\"llama\"," BASE ",\"layer_types\":[1,2,3,4]}", "layer type"},
        {"{\"model_type\":\"smollm3\"," BASE ",\"no_rope_layers\":[1]}", "no_rope_layers"},
        {"{\"model_type\":\"llama\"," BASE ",\"logits_scaling\":0}", "logits_scaling"},
        {"{\"model_type\":\"bert\"," BASE ",\"is_decoder\":true}", "is_decoder"},
        {"{\"model_type\":\"bert\"," BASE ",\"position_embedding_type\":\"relative_key\"}", "position_embedding_type \"relative_key\""},
        {"{\"model_type\":\"bert\"," BASE ",\"type_vocab_size\":-1}", "type_vocab_size"},
        {"{\"model_type\":\"roberta\"," BASE ",\"max_position_embeddings\":2}", "leaves no position"},
        {"{\"model_type\":\"deberta-v2\"," BASE "}", "relative_attention"},
        {"{\"model_type\":\"deberta-v2\"," BASE ",\"relative_attention\":true,\"share_att_key\":true,\"position_biased_input\":false,"
         "\"pos_att_type\":\"c2p|p2c\",\"conv_kernel_size\":3}",
         "conv_kernel_size"},
        {"{\"model_type\":\"mpnet\"," BASE ",\"relative_attention_num_buckets\":16}", "relative_attention_num_buckets"},
        {"{\"model_type\":\"gemma4_text\"," BASE ",\"use_bidirectional_attention\":\"all\"}", "use_bidirectional_attention"},
        {"{\"model_type\":\"hunyuan\"," BASE "," MOE ",\"use_cla\":true}", "use_cla"},
        {"{\"model_type\":\"gemma2\"," BASE ",\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar"},
        {"{\"model_type\":\"qwen3_moe\"," BASE "," MOE ",\"zero_expert_num\":4,\"zero_expert_type\":\"drop\"}",
         "zero_expert_type is \"drop\""},
        {"{\"model_type\":\"qwen3_moe\"," BASE "," MOE ",\"zero_expert_num\":-1}", "zero_expert_num"},
        {"{\"model_type\":\"qwen3_moe\"," BASE ",\"num_experts\":8,\"num_experts_per_tok\":9,\"moe_intermediate_size\":8}",
         "num_experts_per_tok is 9 of 8"},
        {"{\"model_type\":\"qwen3_moe\"," BASE ",\"num_experts\":8,\"num_experts_per_tok\":null,\"moe_intermediate_size\":8}",
         "num_experts_per_tok"},
        {"{\"model_type\":\"qwen3_moe\"," BASE ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":null}",
         "moe_intermediate_size is missing"},
        {"{\"model_type\":\"qwen3_moe\"," BASE ",\"num_experts\":-8,\"num_experts_per_tok\":2}", "num_experts"},
        {"{\"model_type\":\"dots1\"," BASE "," MOE ",\"n_group\":3,\"topk_group\":1}", "n_group 3"},
        {"{\"model_type\":\"dots1\"," BASE "," MOE ",\"n_group\":8,\"topk_group\":2}", "n_group 8"},
        {"{\"model_type\":\"dots1\"," BASE "," MOE ",\"n_group\":2,\"topk_group\":3}", "topk_group 3"},
        {"{\"model_type\":\"deepseek_v3\"," BASE "," MOE ",\"n_group\":1,\"kv_lora_rank\":null}", "kv_lora_rank"},
        {"{\"model_type\":\"gemma3n_text\"," BASE ",\"num_kv_shared_layers\":9}", "num_kv_shared_layers"},
        {"{\"model_type\":\"gemma3n_text\"," BASE ",\"sliding_window\":8,\"num_kv_shared_layers\":3,\"layer_types\":"
         "[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"]}",
         "leaves layer 1 without keys"},
        {"{\"model_type\":\"gemma3n_text\"," BASE ",\"num_kv_shared_layers\":0,\"activation_sparsity_pattern\":[0,0,0,1]}",
         "activation_sparsity_pattern"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec spec;
        int code = resolve(cases[i].json, &spec);
        FAIL_IF(!code || !strstr(err.msg, cases[i].message) || strchr(err.msg, '\n'), "%s: \"%s\", expected \"%s\"", cases[i].json,
                code ? err.msg : "no error", cases[i].message);
        arena_reset(&arena);
    }
}

/* What the published config.json of a model leaves out: its writers drop the family's own defaults inside text_config. */
static void text_config_may_leave_out_defaults(void) {
    struct spec s;
    CHECK_OK(
        resolve(
            "{\"model_type\":\"gemma3\",\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,\"model_type\":\"gemma3_text\","
            "\"num_hidden_layers\":34,\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024}}",
            &s),
        err);
    CHECK(s.layers[0].attn.heads == 8 && s.layers[0].attn.kv_heads == 4 && s.layers[0].attn.k_width == 256 && s.vocab == 262208);
    CHECK(s.layers[0].attn.window == 1024 && s.layers[5].attn.window == 0 && s.tied);
    const struct rope_spec *local = &s.ropes[s.layers[0].attn.rope], *global = &s.ropes[s.layers[5].attn.rope];
    CHECK(local->theta == 10000.0f && local->scaling == SCALE_NONE && global->theta == 1000000.0f && global->factor == 8.0f);
    CHECK(s.kv.n_classes == 2 && s.kv.classes[s.layers[0].kv.kv_class].window == 1024);
}

static void windows_follow_the_file(void) {
    struct spec s;
    CHECK_OK(resolve("{\"model_type\":\"mistral\"," BASE ",\"num_key_value_heads\":4,\"sliding_window\":null}", &s), err);
    CHECK(s.layers[0].attn.window == 0 && s.kv.n_classes == 1);
    CHECK_OK(resolve("{\"model_type\":\"qwen2\"," BASE ",\"sliding_window\":32,\"use_sliding_window\":false}", &s), err);
    CHECK(s.layers[3].attn.window == 0);
    CHECK_OK(resolve("{\"model_type\":\"qwen2\"," BASE ",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":2}", &s),
             err);
    CHECK(s.layers[1].attn.window == 0 && s.layers[2].attn.window == 32);
    CHECK_OK(resolve("{\"model_type\":\"exaone4\"," BASE ",\"sliding_window\":null}", &s), err);
    CHECK(s.layers[3].attn.rope >= 0);
    CHECK_OK(resolve("{\"model_type\":\"exaone4\"," BASE ",\"sliding_window\":16,\"sliding_window_pattern\":\"LLLG\"}", &s), err);
    CHECK(s.layers[3].attn.rope < 0 && s.layers[2].attn.window == 16);
}

/* What the reference takes where a published file leaves a key out, writes an empty list, or says it in an older way. */
static void absent_keys_mean_what_the_reference_takes(void) {
    struct spec s;
    CHECK_OK(resolve("{\"model_type\":\"cohere\"," BASE "}", &s), err);
    CHECK(s.logit_scale == 0.0625f);
    CHECK_OK(resolve("{\"model_type\":\"smollm3\"," BASE ",\"num_key_value_heads\":4}", &s), err);
    CHECK(s.layers[2].attn.rope >= 0 && s.layers[3].attn.rope < 0);
    CHECK_OK(resolve("{\"model_type\":\"lfm2\"," BASE ",\"num_key_value_heads\":4,\"tie_embedding\":false}", &s), err);
    CHECK(!s.tied && s.untied);
    CHECK_OK(resolve("{\"model_type\":\"llama4_text\"," BASE ",\"num_key_value_heads\":4," MOE
                     ",\"no_rope_layers\":[],\"rope_scaling\":{\"rope_type\":\"llama3\","
                     "\"factor\":16.0,\"low_freq_factor\":1.0,\"high_freq_factor\":1.0,\"original_max_position_embeddings\":8192}}",
                     &s),
             err);
    CHECK(s.layers[2].attn.rope >= 0 && s.layers[3].attn.rope < 0);
    CHECK(s.layers[2].attn.qk_norm == QK_HEAD && s.layers[3].attn.pos_scale_beta == 0.1f);
    for (int i = 0; i < 8; i++) CHECK(s.ropes[0].inv_freq[i] > 0 && s.ropes[0].inv_freq[i] <= 1);
    CHECK_OK(resolve("{\"model_type\":\"mixtral\"," BASE ",\"num_key_value_heads\":4," MOE "}", &s), err);
    CHECK(s.ropes[0].theta == 1000000.0f && s.norm.eps == 1e-5f && s.layers[0].attn.window == 0);
    CHECK_OK(resolve("{\"model_type\":\"gemma2\"," BASE ",\"num_key_value_heads\":4}", &s), err);
    CHECK(s.layers[0].attn.window == 4096 && s.layers[1].attn.window == 0);
    CHECK_OK(resolve("{\"model_type\":\"phi\"," BASE "}", &s), err);
    CHECK(s.act.kind == ACT_GELU_TANH);
    CHECK_OK(resolve("{\"model_type\":\"ernie4_5_moe\"," BASE
                     ",\"num_key_value_heads\":4,\"moe_num_experts\":8,\"moe_k\":2,\"moe_intermediate_size\":32}",
                     &s),
             err);
    CHECK(s.layers[0].ffn == FFN_GATED && s.layers[1].ffn == FFN_EXPERTS);
    CHECK_OK(resolve("{\"model_type\":\"lfm2\"," BASE ",\"num_key_value_heads\":4}", &s), err);
    CHECK(s.layers[0].inner == 256);
    CHECK_OK(resolve("{\"model_type\":\"lfm2_moe\"," BASE ",\"num_key_value_heads\":4," MOE ",\"use_expert_bias\":false}", &s), err);
    CHECK(!s.moe.has_bias);
}

/* One switch with four meanings. */
static void layers_with_a_window_follow_the_family(void) {
    static const struct {
        const char *type, *kinds;
    } cases[] = {{"qwen2", "FFFS"}, {"qwen2_moe", "SFSF"}, {"qwen3_moe", "SSSS"}, {"smollm3", "FFFS"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec s;
        const char *json = str_fmt(&arena,
                                   "{\"model_type\":\"%s\"," BASE ",\"num_key_value_heads\":4," MOE
                                   ",\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":3}",
                                   cases[i].type)
                               .p;
        CHECK_OK(resolve(json, &s), err);
        for (int32_t k = 0; k < 4; k++) CHECK(s.layers[k].kind == cases[i].kinds[k]);
    }
}

/* A file that says null means none; a default is for what it does not mention. */
static void null_is_no_default(void) {
    struct spec s;
    CHECK_OK(resolve("{\"model_type\":\"gemma2\"," BASE ",\"num_key_value_heads\":4,\"final_logit_softcapping\":null,"
                     "\"sliding_window\":null}",
                     &s),
             err);
    CHECK(s.logit_softcap == 0 && s.layers[0].attn.window == 0 && s.layers[0].attn.softcap == 50.0f);
    CHECK_OK(resolve("{\"model_type\":\"gpt_oss\"," BASE ",\"num_key_value_heads\":4,\"rope_parameters\":null}", &s), err);
    CHECK(s.ropes[0].scaling == SCALE_YARN && s.ropes[0].theta == 150000.0f);
}

/* Both references leave the weights of this family's experts as they are, whatever its files say. */
static void weights_of_experts_stay_as_they_are(void) {
    struct spec s;
    CHECK_OK(resolve("{\"model_type\":\"deepseek_v2\"," BASE "," MOE ",\"norm_topk_prob\":true}", &s), err);
    CHECK(!s.moe.route.normalize && s.moe.route.n_groups == 0);
}

/* The words of the published Step 3.5: lists per layer, one setting for sliding layers, experts by a text of numbers. */
static void lists_per_layer_count(void) {
    struct spec s;
    CHECK_OK(
        resolve("{\"model_type\":\"step3p5\",\"hidden_size\":64,\"num_hidden_layers\":4,\"vocab_size\":100,\"num_attention_heads\":4,"
                "\"num_attention_groups\":2,\"head_dim\":32,\"attention_other_setting\":{\"num_attention_heads\":6},"
                "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"],"
                "\"sliding_window\":16,\"rope_theta\":[5000000.0,10000.0,10000.0,5000000.0],\"partial_rotary_factors\":[0.5,1.0,1.0,0.5],"
                "\"moe_layers_enum\":\"1,2, 3\",\"moe_num_experts\":8,\"moe_top_k\":2,\"moe_intermediate_size\":24,\"share_expert_dim\":40,"
                "\"moe_router_scaling_factor\":3.0,\"swiglu_limits\":[0,0,7.0,0],\"swiglu_limits_shared\":[0,0,0,16.0]}",
                &s),
        err);
    CHECK(s.layers[0].attn.heads == 4 && s.layers[1].attn.heads == 6 && s.layers[1].attn.kv_heads == 2);
    CHECK(s.ropes[s.layers[0].attn.rope].theta == 5000000.0f && s.ropes[s.layers[0].attn.rope].n_rotated == 16);
    CHECK(s.ropes[s.layers[1].attn.rope].theta == 10000.0f && s.ropes[s.layers[1].attn.rope].n_rotated == 32);
    CHECK(s.layers[0].ffn == FFN_GATED && s.layers[1].ffn == FFN_EXPERTS && s.layers[3].ffn == FFN_EXPERTS);
    CHECK(s.moe.n_experts == 8 && s.moe.route.k == 2 && s.moe.route.scale == 3.0f && s.moe.shared_inner == 40);
    CHECK(s.layers[2].expert_limit == 7.0f && s.layers[3].limit == 16.0f && s.layers[1].limit == 0 && s.layers[2].limit == 0);
}

/* GPT-2's two switches on the scale of its scores. */
static void scores_are_scaled_by_the_file(void) {
    struct spec s;
    CHECK_OK(resolve("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":9,"
                     "\"scale_attn_by_inverse_layer_idx\":true}",
                     &s),
             err);
    CHECK(s.layers[0].attn.scale == 0.25f && s.layers[1].attn.scale == 0.125f);
    CHECK_OK(
        resolve("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":9,\"scale_attn_weights\":false}", &s),
        err);
    CHECK(s.layers[0].attn.scale == 1.0f);
}

static void dense_layers_come_first(void) {
    struct spec s;
    CHECK_OK(resolve("{\"model_type\":\"dots1\"," BASE "," MOE ",\"first_k_dense_replace\":2}", &s), err);
    CHECK(s.layers[1].ffn == FFN_GATED && s.layers[2].ffn == FFN_EXPERTS);
    CHECK_OK(resolve("{\"model_type\":\"qwen3_moe\"," BASE "," MOE ",\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]}", &s), err);
    CHECK(s.layers[0].ffn == FFN_GATED && s.layers[1].ffn == FFN_EXPERTS && s.layers[3].ffn == FFN_GATED);
}

/* Files may leave the factor out, or write null: then the lengths give it. */
static void rope_factor_from_lengths(void) {
    static const char *const scalings[] = {"{\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":512}",
                                           "{\"rope_type\":\"yarn\",\"factor\":null,\"original_max_position_embeddings\":512}",
                                           "{\"type\":\"yarn\",\"original_max_position_embeddings\":512}"};
    struct spec s[3];
    for (int i = 0; i < 3; i++) {
        const char *json =
            str_fmt(&arena, "{\"model_type\":\"llama\"," BASE ",\"max_position_embeddings\":2048,\"rope_scaling\":%s}", scalings[i]).p;
        CHECK_OK(resolve(json, &s[i]), err);
        CHECK(s[i].ropes[0].factor == 4.0f && s[i].ropes[0].magnitude == s[0].ropes[0].magnitude && s[i].ropes[0].magnitude > 1.1f);
        CHECK(memcmp(s[i].ropes[0].inv_freq, s[0].ropes[0].inv_freq, 8 * sizeof(float)) == 0);
    }
}

/* A file with yarn reaches as far as its factor says, though max_position_embeddings be the old length. */
static void yarn_stretches_the_context(void) {
    static const struct {
        const char *scaling;
        int32_t context;
    } cases[] = {
        {"{\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":32768}", 131072},
        {"{\"type\":\"yarn\",\"factor\":2.0}", 81920},
        {"{\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":4096}", 40960},
        {"{\"rope_type\":\"yarn\",\"factor\":null,\"original_max_position_embeddings\":4096}", 40960},
        {"{\"rope_type\":\"yarn\",\"factor\":1e9}", 40960},
        {"{\"rope_type\":\"llama3\",\"factor\":8.0,\"original_max_position_embeddings\":8192}", 40960},
        {"null", 40960},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec s;
        const char *json =
            str_fmt(&arena, "{\"model_type\":\"qwen3\"," BASE ",\"max_position_embeddings\":40960,\"rope_scaling\":%s}", cases[i].scaling)
                .p;
        CHECK_OK(resolve(json, &s), err);
        CHECK_INT(s.context, cases[i].context);
    }
    struct spec learned; /* a table of positions does not grow */
    CHECK_OK(resolve("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":9,\"n_positions\":128,"
                     "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0}}",
                     &learned),
             err);
    CHECK_INT(learned.context, 128);
}

static void rows_are_sound(void) {
    for (int32_t i = 0; i < family_count; i++) {
        CHECK(family_table[i].type && family_table[i].title && family_table[i].title[0]);
        CHECK(family_find(str_of(family_table[i].type), &err) == &family_table[i]);
        yyjson_val *defaults;
        CHECK_OK(json_parse(&arena, str_of(family_table[i].defaults), family_table[i].type, JSON_LENIENT, &defaults, &err), err);
        CHECK(yyjson_is_obj(defaults));
        for (const char *p = family_table[i].pattern; p && *p; p++) CHECK(strchr("FSCLDMNKGUHRWXABP-E ", *p) != NULL);
    }
    for (int32_t i = 0; i < family_n_aliases; i++) {
        CHECK(family_find(str_of(family_aliases[i].family), &err) != NULL);
        CHECK(family_aliases[i].architecture || family_find(str_of(family_aliases[i].type), &err) == NULL);
    }
    for (int32_t i = 0; i < family_n_refusals; i++) CHECK(family_find(str_of(family_refusals[i].type), &err) == NULL);
}

static void docs_page_is_current(void) {
    struct str page;
    struct sb out = {0};
    CHECK_OK(os_file_load(&arena, str_fmt(&arena, "%s/docs/families.md", unit_source_dir()).p, 0, &page, &err), err);
    arch_markdown(&out);
    FAIL_IF(!str_eq(sb_str(&out), page), "docs/families.md is old: mlxcel arch --markdown > docs/families.md");
    sb_free(&out);
}

const struct unit_suite unit_families = {
    "families",
    (const struct unit_case[]){
        {"absurd_configs_are_refused", absurd_configs_are_refused},
        {"text_config_may_leave_out_defaults", text_config_may_leave_out_defaults},
        {"windows_follow_the_file", windows_follow_the_file},
        {"absent_keys_mean_what_the_reference_takes", absent_keys_mean_what_the_reference_takes},
        {"layers_with_a_window_follow_the_family", layers_with_a_window_follow_the_family},
        {"null_is_no_default", null_is_no_default},
        {"weights_of_experts_stay_as_they_are", weights_of_experts_stay_as_they_are},
        {"lists_per_layer_count", lists_per_layer_count},
        {"scores_are_scaled_by_the_file", scores_are_scaled_by_the_file},
        {"dense_layers_come_first", dense_layers_come_first},
        {"rope_factor_from_lengths", rope_factor_from_lengths},
        {"yarn_stretches_the_context", yarn_stretches_the_context},
        {"rows_are_sound", rows_are_sound},
        {"docs_page_is_current", docs_page_is_current},
        {0},
    },
};
