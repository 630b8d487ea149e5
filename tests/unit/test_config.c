/* config.json in its dialects: which part wins, ranges, rope, quantisation, end-of-sequence ids. */
#include "unit.h"

#include "file/config.h"

static struct arena arena;
static struct config config;
static struct err err;

static void parse(const char *text) {
    CHECK_OK(config_parse(&arena, str_of(text), "config.json", &config, &err), err);
}

static void expect_error(int code, const char *message) {
    CHECK(code != 0);
    CHECK_STR(str_of(err.msg), str_of(message));
}

static const struct config_range any = {-1e18, 1e18};

static void text_part_wins(void) {
    int64_t i;
    parse("{\"model_type\":\"gemma3\",\"hidden_size\":1,\"only_top\":5,\"tie_word_embeddings\":false,\"context\":9,"
          "\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":2,\"tie_word_embeddings\":true,\"context\":null}}");
    CHECK_OK(config_int(&config, "hidden_size", any, 0, &i, &err), err);
    CHECK_INT(i, 2);
    CHECK_OK(config_int(&config, "only_top", any, 0, &i, &err), err);
    CHECK_INT(i, 5);
    CHECK_OK(config_int(&config, "context", any, 0, &i, &err), err); /* null counts as absent */
    CHECK_INT(i, 9);
    CHECK(yyjson_is_false(config_get(&config, "tie_word_embeddings"))); /* belongs to the whole model */
    CHECK_STR(config.model_type, STR("gemma3"));
    CHECK_STR(config.text_type, STR("gemma3_text"));
    parse("{\"text_config\":\"a string\",\"llm_config\":{\"x\":3}}");
    CHECK_OK(config_int(&config, "x", any, 0, &i, &err), err);
    CHECK_INT(i, 3);
}

static void ranges_and_types(void) {
    int64_t i;
    double d;
    struct str s;
    struct config_range heads = {1, 65536};
    parse("{\"zero\":0,\"big\":1e30,\"half\":1.5,\"text\":\"4\",\"nan\":NaN,\"inf\":-Infinity,\"whole\":64.0,\"list\":[1]}");
    expect_error(config_int(&config, "zero", heads, 1, &i, &err), "config.json: zero is 0, expected 1 to 65536");
    expect_error(config_int(&config, "big", heads, 1, &i, &err), "config.json: big is 1e+30, expected 1 to 65536");
    expect_error(config_int(&config, "half", heads, 1, &i, &err), "config.json: half is 1.5, expected 1 to 65536");
    expect_error(config_int(&config, "text", heads, 1, &i, &err), "config.json: text is \"4\", expected 1 to 65536");
    expect_error(config_int(&config, "list", heads, 1, &i, &err), "config.json: list is an array, expected 1 to 65536");
    expect_error(config_num(&config, "nan", any, 1, &d, &err), "config.json: nan is nan, expected a number from -1e+18 to 1e+18");
    expect_error(config_num(&config, "inf", any, 1, &d, &err), "config.json: inf is -inf, expected a number from -1e+18 to 1e+18");
    expect_error(config_str(&config, "zero", STR(""), &s, &err), "config.json: zero is 0, expected a string");
    CHECK_OK(config_int(&config, "whole", heads, 1, &i, &err), err);
    CHECK_INT(i, 64);
    CHECK_OK(config_int(&config, "gone", heads, 7, &i, &err), err);
    CHECK_INT(i, 7);
}

static void decoder_shape(void) {
    struct config_shape s;
    parse("{\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":2,\"max_position_embeddings\":16,\"vocab_size\":8}");
    CHECK_OK(config_shape(&config, &s, &err), err);
    CHECK(s.head_dim == 16 && s.n_kv_heads == 4 && s.context == 16 && s.n_layers == 2);
    parse("{\"n_embd\":64,\"n_head\":4,\"n_layer\":2,\"n_positions\":16}");
    CHECK_OK(config_shape(&config, &s, &err), err);
    CHECK(s.head_dim == 16 && s.hidden == 64 && s.context == 16);
    parse("{\"num_attention_heads\":3,\"hidden_size\":64}");
    CHECK(config_shape(&config, &s, &err) == ERR_EFORMAT);
    parse("{\"num_hidden_layers\":1000000000}");
    expect_error(config_shape(&config, &s, &err), "config.json: num_hidden_layers is 1000000000, expected 1 to 4096");
    parse("{\"num_key_value_heads\":[1,2],\"num_attention_heads\":2,\"hidden_size\":4,\"intermediate_size\":[8,8]}");
    CHECK_OK(config_shape(&config, &s, &err), err);
    CHECK(s.n_kv_heads == 0 && s.intermediate == 0); /* one per layer: not for here */
    parse(
        "{\"max_position_embeddings\":40960,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":32768}}");
    CHECK_OK(config_shape(&config, &s, &err), err);
    CHECK_INT(s.context, 131072); /* as far as it runs */
}

static void rope_dialects(void) {
    struct config_rope r;
    parse("{}");
    CHECK_OK(config_rope(&config, &(struct rope_ask){.layer_type = NULL, .theta = 10000}, &r, &err), err);
    CHECK(r.theta == 10000 && r.partial == 1 && r.factor == 1 && !r.raw);
    CHECK_STR(r.type, STR("default"));
    parse("{\"rope_theta\":500000.0,\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
          "\"original_max_position_embeddings\":8192}}");
    CHECK_OK(config_rope(&config, &(struct rope_ask){.layer_type = NULL, .theta = 10000}, &r, &err), err);
    CHECK(r.theta == 500000 && r.partial == 0.5 && r.factor == 8 && r.original_context == 8192);
    CHECK_STR(r.type, STR("llama3"));
    parse("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}");
    CHECK_OK(config_rope(&config, &(struct rope_ask){.layer_type = NULL, .theta = 10000}, &r, &err), err);
    CHECK_STR(r.type, STR("linear"));
    parse("{\"rope_theta\":1,\"rope_parameters\":{\"rope_theta\":12000000.0,\"rope_type\":\"yarn\",\"factor\":32}}");
    CHECK_OK(config_rope(&config, &(struct rope_ask){.layer_type = "full_attention", .theta = 10000}, &r, &err), err);
    CHECK(r.theta == 12000000 && r.factor == 32);
    parse("{\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6,\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25},"
          "\"sliding_attention\":{\"rope_theta\":1e4,\"rope_type\":\"default\"}}}");
    CHECK_OK(config_rope(&config, &(struct rope_ask){.layer_type = "sliding_attention", .theta = 5}, &r, &err), err);
    CHECK(r.theta == 1e4 && r.partial == 1);
    CHECK_OK(config_rope(&config, &(struct rope_ask){.layer_type = NULL, .theta = 5}, &r, &err), err);
    CHECK(r.theta == 1e6 && r.partial == 0.25);
    parse("{\"rope_theta\":1e6,\"rope_local_base_freq\":1e4,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}");
    CHECK_OK(config_rope(&config, &(struct rope_ask){.layer_type = "sliding_attention", .theta = 5}, &r, &err), err);
    CHECK(r.theta == 1e4 && r.factor == 1);
    CHECK_OK(config_rope(&config, &(struct rope_ask){.layer_type = "full_attention", .theta = 5}, &r, &err), err);
    CHECK(r.theta == 1e6 && r.factor == 8);
    parse("{\"rope_theta\":NaN}");
    CHECK(config_rope(&config, &(struct rope_ask){.layer_type = NULL, .theta = 5}, &r, &err) == ERR_EFORMAT);
    parse("{\"rope_parameters\":{\"rope_theta\":0}}");
    expect_error(config_rope(&config, &(struct rope_ask){.layer_type = NULL, .theta = 5}, &r, &err),
                 "config.json: rope_parameters.rope_theta is 0, expected a number from 1e-06 to 1e+15");
}

static void quant_declarations(void) {
    struct quant_config q;
    struct format f;
    parse("{\"quantization\":{\"group_size\":64,\"bits\":4,\"a.b\":{\"bits\":6},\"c.d\":false,\"e.f\":true}}");
    CHECK_OK(quant_config_read(&arena, &config, &q, &err), err);
    CHECK_INT(quant_lookup(&q, STR("x.y"), &f), QUANT_IS_DEFAULT);
    CHECK(f.mode == QUANT_AFFINE && f.bits == 4 && f.group == 64);
    CHECK_INT(quant_lookup(&q, STR("a.b"), &f), QUANT_IS_DECLARED);
    CHECK(f.bits == 6 && f.group == 64);
    CHECK_INT(quant_lookup(&q, STR("c.d"), &f), QUANT_IS_PLAIN);
    CHECK_INT(quant_lookup(&q, STR("e.f"), &f), QUANT_IS_DECLARED);
    CHECK(f.bits == 4);
    quant_config_free(&q);
    /* An entry without a mode is affine, whatever the file's mode. */
    parse("{\"quantization\":{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\",\"a.b\":{\"group_size\":64,\"bits\":8}}}");
    CHECK_OK(quant_config_read(&arena, &config, &q, &err), err);
    CHECK_INT(quant_lookup(&q, STR("a.b"), &f), QUANT_IS_DECLARED);
    CHECK(f.mode == QUANT_AFFINE && f.bits == 8 && q.base.mode == QUANT_MXFP4);
    quant_config_free(&q);
    parse("{\"text_config\":{\"quantization_config\":{\"group_size\":32,\"bits\":8}}}");
    CHECK_OK(quant_config_read(&arena, &config, &q, &err), err);
    CHECK(q.present && q.base.bits == 8);
    quant_config_free(&q);
    parse("{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4}}");
    CHECK_OK(quant_config_read(&arena, &config, &q, &err), err);
    CHECK(!q.present);
    CHECK_STR(q.foreign, STR("awq"));
    CHECK_INT(quant_lookup(&q, STR("x"), &f), QUANT_IS_PLAIN);
    parse("{\"quantization\":{\"group_size\":64,\"bits\":4},\"quantization_config\":{\"quant_method\":\"fp8\"}}");
    CHECK_OK(quant_config_read(&arena, &config, &q, &err), err); /* converted by MLX, the old entry was left in */
    CHECK(q.present && !q.foreign.p);
    quant_config_free(&q);
    static const char *const bad[] = {
        "{\"quantization\":{\"group_size\":3,\"bits\":4}}",
        "{\"quantization\":{\"group_size\":64,\"bits\":7}}",
        "{\"quantization\":{\"group_size\":64,\"bits\":0}}",
        "{\"quantization\":{\"group_size\":65600,\"bits\":4}}",
        "{\"quantization\":{\"mode\":\"int4\"}}",
        "{\"quantization\":{\"mode\":\"mxfp4\",\"group_size\":64}}",
        "{\"quantization\":{\"mode\":4}}",
        "{\"quantization\":{\"bits\":4,\"a\":{\"bits\":\"4\"}}}",
        "{\"quantization\":{\"bits\":260,\"group_size\":64}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        parse(bad[i]);
        FAIL_IF(quant_config_read(&arena, &config, &q, &err) == 0, "accepted: %s", bad[i]);
    }
}

static struct st_tensor tensor(enum dtype dt, int64_t rows, int64_t width) {
    int64_t *shape = arena_new(&arena, int64_t, 2);
    shape[0] = rows, shape[1] = width;
    return (struct st_tensor){.name = STR("p.weight"), .dtype = dt, .n_dims = 2, .shape = shape, .n_elements = (uint64_t)(rows * width)};
}

static void quant_against_tensors(void) {
    struct format q4 = {.mode = QUANT_AFFINE, .bits = 4, .group = 64}, f = q4;
    struct st_tensor w = tensor(DT_U32, 8, 16), s = tensor(DT_BF16, 8, 2), b = s;
    int64_t width;
    CHECK_OK(quant_verify("x", &w, &s, &b, &f, &width, &err), err);
    CHECK(width == 128 && f.dtype == DT_BF16);
    f = (struct format){.mode = QUANT_AFFINE, .bits = 8, .group = 32}; /* would be the same bytes: only the declaration tells */
    struct st_tensor s4 = tensor(DT_BF16, 8, 2);
    CHECK_OK(quant_verify("x", &w, &s4, &s4, &f, &width, &err), err);
    CHECK_INT(width, 64);
    f = (struct format){.mode = QUANT_AFFINE, .bits = 4, .group = 32};
    expect_error(quant_verify("x", &w, &s, &b, &f, &width, &err),
                 "x: tensor p.weight is U32 [8, 16], which is not affine 4-bit g32 as declared (with scales [8, 2])");
    f = q4;
    CHECK(quant_verify("x", &w, &s, NULL, &f, &width, &err) == ERR_EFORMAT);
    struct st_tensor u8 = tensor(DT_U8, 8, 4), rows = tensor(DT_BF16, 7, 2), f32 = tensor(DT_F32, 8, 2);
    f = q4;
    CHECK(quant_verify("x", &w, &u8, &u8, &f, &width, &err) == ERR_EFORMAT);
    f = q4;
    CHECK(quant_verify("x", &w, &rows, &rows, &f, &width, &err) == ERR_EFORMAT);
    f = q4;
    CHECK(quant_verify("x", &w, &s, &f32, &f, &width, &err) == ERR_EFORMAT);
    f = q4;
    CHECK(quant_verify("x", &f32, &s, &b, &f, &width, &err) == ERR_EFORMAT);
    f = (struct format){.mode = QUANT_MXFP4, .bits = 4, .group = 32};
    CHECK_OK(quant_verify("x", &w, &u8, NULL, &f, &width, &err), err);
    CHECK_INT(width, 128);
    CHECK(quant_verify("x", &w, &u8, &u8, &f, &width, &err) == ERR_EFORMAT);
}

static void eos_ids(void) {
    struct config generation;
    int64_t *ids;
    size_t n;
    parse("{\"eos_token_id\":2}");
    CHECK_OK(config_eos_ids(&arena, &config, NULL, &ids, &n, &err), err);
    CHECK(n == 1 && ids[0] == 2);
    CHECK_OK(config_parse(&arena, STR("{\"eos_token_id\":[7,2,7]}"), "generation_config.json", &generation, &err), err);
    CHECK_OK(config_eos_ids(&arena, &config, &generation, &ids, &n, &err), err);
    CHECK(n == 2 && ids[0] == 7 && ids[1] == 2);
    parse("{\"eos_token_id\":-1}");
    expect_error(config_eos_ids(&arena, &config, NULL, &ids, &n, &err), "config.json: eos_token_id is -1, expected 0 to 2147483647");
    parse("{\"eos_token_id\":[1,106],\"text_config\":{\"eos_token_id\":1}}"); /* the whole model's, not its text part's */
    CHECK_OK(config_eos_ids(&arena, &config, NULL, &ids, &n, &err), err);
    CHECK(n == 2 && ids[0] == 1 && ids[1] == 106);
    parse("{}");
    CHECK_OK(config_eos_ids(&arena, &config, NULL, &ids, &n, &err), err);
    CHECK_INT(n, 0);
}

const struct unit_suite unit_config = {
    "config",
    (const struct unit_case[]){
        {"text_part_wins", text_part_wins},
        {"ranges_and_types", ranges_and_types},
        {"decoder_shape", decoder_shape},
        {"rope_dialects", rope_dialects},
        {"quant_declarations", quant_declarations},
        {"quant_against_tensors", quant_against_tensors},
        {"eos_ids", eos_ids},
        {0},
    },
};
