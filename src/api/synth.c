/* Made-up models: the list of tensors of a shape, and their bytes from a hash, readable at any offset. */
#include "api/synth_internal.h"

#include "base/half.h"
#include "base/hash.h"

#include <math.h>

enum { GROUP = 64, MXFP4_GROUP = 32 };

/* rows 0: a vector. */
static struct synth_tensor *add(struct synth *s, struct str name, enum synth_kind kind, enum dtype dtype, int64_t rows, int64_t columns) {
    if (s->n_tensors == s->capacity) {
        struct synth_tensor *grown = arena_new(s->arena, struct synth_tensor, s->capacity ? s->capacity * 2 : 512);
        if (s->n_tensors) memcpy(grown, s->tensors, (size_t)s->n_tensors * sizeof *grown);
        s->capacity = s->capacity ? s->capacity * 2 : 512;
        s->tensors = grown;
    }
    struct synth_tensor *t = &s->tensors[s->n_tensors++];
    *t = (struct synth_tensor){.kind = kind, .info = {.name = name, .dtype = dtype, .n_dims = rows ? 2 : 1}};
    t->info.shape[0] = rows ? rows : columns;
    t->info.shape[1] = columns;
    t->bytes = (uint64_t)(rows ? rows : 1) * (uint64_t)columns * (uint64_t)dtype_bits(dtype) / 8;
    t->seed = hash_bytes(name.p, name.n, s->seed);
    return t;
}

/* Numbers of E2M1 have a root mean square of 2.93; the powers of two that scale them are one apart. */
static void add_mxfp4(struct synth *s, struct str path, int64_t out, int64_t in) {
    int exponent;
    frexp(1.0 / (2.93 * sqrt((double)in)), &exponent);
    add(s, str_fmt(s->arena, "%.*s.weight", STR_ARG(path)), SYNTH_CODES, DT_U32, out, in * 4 / 32);
    add(s, str_fmt(s->arena, "%.*s.scales", STR_ARG(path)), SYNTH_EXPONENTS, DT_U8, out, in / MXFP4_GROUP)->middle =
        (float)(127 + exponent);
}

static void add_plain(struct synth *s, struct str path, int64_t out, int64_t in) {
    add(s, str_fmt(s->arena, "%.*s.weight", STR_ARG(path)), SYNTH_PLAIN, s->dtype, out, in)->spread =
        (float)sqrt(3.0 / (double)in); /* variance 1 / in */
}

static void add_matrix(struct synth *s, struct str path, int64_t out, int64_t in) {
    if (s->bits >= 16) {
        add_plain(s, path, out, in);
        return;
    }
    struct str weight = str_fmt(s->arena, "%.*s.weight", STR_ARG(path));
    double levels = (double)(1 << s->bits);
    float scale = (float)(1.0 / sqrt((double)in * (levels * levels - 1.0) / 12.0));
    add(s, weight, SYNTH_CODES, DT_U32, out, in * s->bits / 32);
    struct synth_tensor *scales = add(s, str_fmt(s->arena, "%.*s.scales", STR_ARG(path)), SYNTH_SCALES, s->dtype, out, in / GROUP);
    scales->spread = scale;
    uint64_t seed = scales->seed; /* a bias belongs to its scale: same random number */
    struct synth_tensor *biases = add(s, str_fmt(s->arena, "%.*s.biases", STR_ARG(path)), SYNTH_BIASES, s->dtype, out, in / GROUP);
    biases->spread = scale;
    biases->middle = (float)((levels - 1.0) / 2.0);
    biases->seed = seed;
}

typedef void add_fn(struct synth *s, struct str path, int64_t out, int64_t in);

/* The matrices of all experts, one behind the other. */
static void add_stack(struct synth *s, add_fn *add_this, struct str path, int64_t out, int64_t in) {
    int32_t first = s->n_tensors;
    add_this(s, path, s->shape->experts.n * out, in);
    for (int32_t i = first; i < s->n_tensors; i++) {
        struct tensor_info *info = &s->tensors[i].info;
        *info = (struct tensor_info){
            .name = info->name, .dtype = info->dtype, .n_dims = 3, .shape = {s->shape->experts.n, out, info->shape[1]}};
    }
}

static void add_experts(struct synth *s, struct str path, int64_t out, int64_t in) {
    add_stack(s, add_matrix, path, out, in);
}

static void add_norm(struct synth *s, struct str path, int64_t n) {
    add(s, str_fmt(s->arena, "%.*s.weight", STR_ARG(path)), SYNTH_CONSTANT, s->dtype, 0, n)->middle = s->shape->norms_add_one ? 0.0f : 1.0f;
}

/* Small numbers: the bias of a matrix, or of each expert's. */
static void add_small(struct synth *s, struct str name, int64_t rows, int64_t n) {
    add(s, name, SYNTH_PLAIN, s->dtype, rows, n)->spread = 0.1f;
}

static void add_to_layer(struct synth *s, int32_t layer, const char *name, add_fn *add_this, int64_t out, int64_t in) {
    add_this(s, str_fmt(s->arena, "model.layers.%d.%s", layer, name), out, in);
}

static void add_block(struct synth *s, int32_t layer) {
    const struct model_shape *m = s->shape;
    if (m->experts.n) {
        add_to_layer(s, layer, "mlp.gate", add_matrix, m->experts.n, m->hidden);
        add_to_layer(s, layer, "mlp.switch_mlp.gate_proj", add_experts, m->experts.inner, m->hidden);
        add_to_layer(s, layer, "mlp.switch_mlp.up_proj", add_experts, m->experts.inner, m->hidden);
        add_to_layer(s, layer, "mlp.switch_mlp.down_proj", add_experts, m->hidden, m->experts.inner);
    } else {
        add_to_layer(s, layer, "mlp.gate_proj", add_matrix, m->inner, m->hidden);
        add_to_layer(s, layer, "mlp.up_proj", add_matrix, m->inner, m->hidden);
        add_to_layer(s, layer, "mlp.down_proj", add_matrix, m->hidden, m->inner);
    }
}

static void add_part(struct synth *s, int32_t layer, const struct shape_part *p) {
    struct str path = str_fmt(s->arena, "model.layers.%d.%s", layer, p->name);
    add_fn *matrix = p->flags & PART_MXFP4 ? add_mxfp4 : p->flags & PART_PLAIN ? add_plain : add_matrix;
    if (layer < s->shape->dense_layers ? p->flags & PART_REST : p->flags & PART_FIRST) return;
    if (p->flags & PART_NORM) add_norm(s, path, p->in);
    else if (p->flags & PART_VECTOR) add_small(s, path, 0, p->in);
    else if (p->flags & PART_EXPERTS) add_stack(s, matrix, path, p->out, p->in);
    else matrix(s, path, p->out, p->in);
    if (p->flags & PART_BIAS)
        add_small(s, str_fmt(s->arena, "%.*s.bias", STR_ARG(path)), p->flags & PART_EXPERTS ? s->shape->experts.n : 0, p->out);
}

static void add_layer(struct synth *s, int32_t layer) {
    const struct model_shape *m = s->shape;
    for (const struct shape_part *p = m->parts; p && p->name; p++) add_part(s, layer, p);
    if (m->parts) return;
    int64_t q_width = (int64_t)m->heads * m->head_dim, kv_width = (int64_t)m->kv_heads * m->head_dim;
    add_to_layer(s, layer, "self_attn.q_proj", add_matrix, q_width, m->hidden);
    add_to_layer(s, layer, "self_attn.k_proj", add_matrix, kv_width, m->hidden);
    add_to_layer(s, layer, "self_attn.v_proj", add_matrix, kv_width, m->hidden);
    add_to_layer(s, layer, "self_attn.o_proj", add_matrix, m->hidden, q_width);
    add_block(s, layer);
    add_norm(s, str_fmt(s->arena, "model.layers.%d.input_layernorm", layer), m->hidden);
    add_norm(s, str_fmt(s->arena, "model.layers.%d.post_attention_layernorm", layer), m->hidden);
    if (!m->head_norms) return;
    add_norm(s, str_fmt(s->arena, "model.layers.%d.self_attn.q_norm", layer), m->head_dim);
    add_norm(s, str_fmt(s->arena, "model.layers.%d.self_attn.k_norm", layer), m->head_dim);
}

static struct str experts_text(const struct synth *s) {
    const struct model_shape *m = s->shape;
    if (!m->experts.n) return STR("");
    return str_fmt(s->arena,
                   ",\n \"num_experts\": %d,\n \"num_experts_per_tok\": %d,\n \"moe_intermediate_size\": %d,\n \"norm_topk_prob\": true",
                   m->experts.n, m->experts.used, m->experts.inner);
}

static bool is_mxfp4(const struct synth_tensor *t) {
    return t->kind == SYNTH_EXPONENTS;
}

/* The bits of all matrices that have scales, and those that have others. */
static void put_quantization(const struct synth *s, struct sb *text) {
    bool any = s->bits < 16;
    size_t before = text->n;
    sb_fmt(text, ",\n \"quantization\": {\"group_size\": %d, \"bits\": %d", GROUP, any ? s->bits : 8);
    for (int32_t i = 0; i < s->n_tensors; i++) {
        struct str name = s->tensors[i].info.name;
        if (!is_mxfp4(&s->tensors[i])) continue;
        sb_fmt(text, ",\n  \"%.*s\": {\"group_size\": %d, \"bits\": 4, \"mode\": \"mxfp4\"}", (int)(name.n - strlen(".scales")), name.p,
               MXFP4_GROUP);
        any = true;
    }
    sb_putc(text, '}');
    if (!any) text->n = before;
}

static struct str config_text(const struct synth *s) {
    const struct model_shape *m = s->shape;
    struct str experts = experts_text(s);
    struct sb text = {0};
    sb_fmt(&text,
           "{\n \"model_type\": \"%s\",\n \"hidden_size\": %d,\n \"intermediate_size\": %d,\n \"num_hidden_layers\": %d,\n"
           " \"num_attention_heads\": %d,\n \"num_key_value_heads\": %d,\n \"head_dim\": %d,\n \"vocab_size\": %d,\n"
           " \"max_position_embeddings\": %d,\n \"rms_norm_eps\": 1e-06,\n \"rope_theta\": %.1f,\n \"rope_scaling\": %s,\n"
           " \"hidden_act\": \"silu\",\n \"tie_word_embeddings\": %s,\n \"bos_token_id\": 0,\n \"eos_token_id\": 2%.*s%s%s",
           m->type, m->hidden, m->inner, m->layers, m->heads, m->kv_heads, m->head_dim, m->vocab, m->context, (double)m->theta,
           m->rope_scaling ? m->rope_scaling : "null", m->tied ? "true" : "false", STR_ARG(experts), m->config ? ",\n " : "",
           m->config ? m->config : "");
    put_quantization(s, &text);
    sb_puts(&text, "\n}\n");
    struct str out = str_copy(s->arena, sb_str(&text));
    sb_free(&text);
    return out;
}

int synth_create(struct arena *a, const struct synth_args *args, struct synth **out, struct err *err) {
    const struct model_shape *found = model_shape_find(args->shape, err);
    int32_t bits = args->bits;
    if (!found) return err->code;
    if (args->n_layers > found->layers) return err_set(err, ERR_EARG, "--layers %d: %s has %d", args->n_layers, found->name, found->layers);
    bool is_known = (bits >= 2 && bits <= 6) || bits == 8 || bits == 16 || bits == 32;
    if (!is_known) return err_set(err, ERR_EARG, "made-up weights have 2, 3, 4, 5, 6, 8, 16 or 32 bits, not %d", bits);
    struct synth *s = arena_new(a, struct synth, 1);
    s->arena = a;
    struct model_shape *shape = arena_new(a, struct model_shape, 1);
    *shape = *found;
    if (args->n_layers > 0) shape->layers = args->n_layers;
    s->shape = shape;
    s->bits = bits;
    s->dtype = bits == 32 ? DT_F32 : args->f16 ? DT_F16 : DT_BF16;
    s->seed = args->seed;
    add_matrix(s, STR("model.embed_tokens"), found->vocab, found->hidden);
    add_norm(s, STR("model.norm"), found->hidden);
    if (!found->tied) add_matrix(s, STR("lm_head"), found->vocab, found->hidden);
    for (int32_t i = 0; i < shape->layers; i++) add_layer(s, i);
    s->config_json = config_text(s);
    *out = s;
    return config_parse(a, s->config_json, "config.json", &s->config, err);
}

const struct config *synth_config(const struct synth *s) {
    return &s->config;
}

static float rounded(enum dtype dtype, float x) {
    if (dtype == DT_F32) return x;
    return dtype == DT_F16 ? f16_to_f32(f16_from_f32(x)) : bf16_to_f32(bf16_from_f32(x));
}

/* Eight bytes of values from one hash; those of 16 bits are rounded as such a checkpoint's are. */
static void put_values(const struct synth_tensor *t, uint64_t hash, unsigned char out[8]) {
    enum dtype dtype = t->info.dtype;
    for (int i = 0; i < (dtype == DT_F32 ? 2 : 4); i++) {
        float unit = (float)(hash >> (16 * i) & 0xFFFF) * (1.0f / 65536.0f); /* [0, 1) */
        float value = t->middle;
        if (t->kind == SYNTH_PLAIN) value = (2.0f * unit - 1.0f) * t->spread;
        if (t->kind == SYNTH_SCALES) value = (0.5f + unit) * t->spread;
        if (t->kind == SYNTH_BIASES) value = -t->middle * rounded(dtype, (0.5f + unit) * t->spread);
        uint16_t half = dtype == DT_F16 ? f16_from_f32(value) : bf16_from_f32(value);
        if (dtype == DT_F32) memcpy(out + 4 * i, &value, 4);
        else memcpy(out + 2 * i, &half, 2);
    }
}

/* Scales of mxfp4: one of two powers of two. */
static void put_exponents(const struct synth_tensor *t, uint64_t hash, unsigned char out[8]) {
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)((int)t->middle - (int)(hash >> (8 * i) & 1));
}

/* Eight bytes at a time; every tensor is a multiple of two bytes and starts at index 0. */
void synth_fill(const struct synth_tensor *t, uint64_t offset, void *dst, size_t n) {
    unsigned char *p = dst;
    while (n) {
        uint64_t index = offset / 8, hash = hash_pair(t->seed, index);
        unsigned char word[8];
        if (t->kind == SYNTH_CODES) memcpy(word, &hash, 8);
        else if (t->kind == SYNTH_EXPONENTS) put_exponents(t, hash, word);
        else put_values(t, hash, word);
        size_t at = (size_t)(offset % 8), take = 8 - at < n ? 8 - at : n;
        memcpy(p, word + at, take);
        p += take, offset += take, n -= take;
    }
}

static bool store_find(void *user, struct str name, struct tensor_info *out) {
    const struct synth *s = user;
    for (int32_t i = 0; i < s->n_tensors; i++)
        if (str_eq(s->tensors[i].info.name, name)) {
            *out = s->tensors[i].info;
            out->handle = &s->tensors[i];
            return true;
        }
    return false;
}

static int store_read(void *user, const struct tensor_info *info, uint64_t offset, void *dst, size_t n, struct err *err) {
    (void)user;
    const struct synth_tensor *t = info->handle;
    if (offset > t->bytes || n > t->bytes - offset) return err_set(err, ERR_EINTERNAL, "%.*s: read beyond its end", STR_ARG(info->name));
    synth_fill(t, offset, dst, n);
    return ERR_OK;
}

static int store_format(void *user, struct str path, struct format *out, struct err *err) {
    (void)err;
    const struct synth *s = user;
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct synth_tensor *t = &s->tensors[i];
        if (!is_mxfp4(t) || !str_starts(t->info.name, path) || t->info.name.n != path.n + strlen(".scales")) continue;
        *out = (struct format){.mode = QUANT_MXFP4, .dtype = DT_U8, .bits = 4, .group = MXFP4_GROUP};
        return ERR_OK;
    }
    *out = (struct format){.mode = QUANT_AFFINE, .dtype = s->dtype, .bits = (uint8_t)s->bits, .group = GROUP};
    return ERR_OK;
}

uint64_t synth_bytes(const struct synth *s) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < s->n_tensors; i++) sum += s->tensors[i].bytes;
    return sum;
}

struct tensor_store synth_store(struct synth *s) {
    return (struct tensor_store){.find = store_find, .read = store_read, .format = store_format, .user = s};
}

const char *synth_shape_name(int i) {
    return i < model_n_shapes ? model_shapes[i].name : NULL;
}
