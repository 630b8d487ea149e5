/* Describing a model. Counts follow one rule: what the quantisation declares and the tensors bear out is counted
 * unpacked, everything else as it is stored. */
#include "tools/inspect.h"

#include "api/model_folder.h"
#include "backend/cpu/tune.h"
#include "file/checkpoint.h"
#include "model/families.h"
#include "os/cpu.h"
#include "os/os.h"

/* The path before a suffix such as ".scales"; {NULL, 0} when the name does not end so. */
static struct str before(struct str name, struct str suffix) {
    return str_ends(name, suffix) ? str_sub(name, 0, name.n - suffix.n) : (struct str){0};
}

static int is_quantised(const struct checkpoint *c, struct str path, struct checkpoint_weight *out, bool *out_answer, struct err *err) {
    int code = checkpoint_weight(c, path, out, err);
    *out_answer = code == ERR_OK && out->format.mode != QUANT_NONE;
    return code == ERR_ENOTFOUND ? ERR_OK : code;
}

static int count_parameters(const struct checkpoint *c, uint64_t *out, struct err *err) {
    *out = 0;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct st_tensor *t = c->tensors[i].t;
        struct str path = before(t->name, STR(".weight")), side = before(t->name, STR(".scales"));
        if (!side.p) side = before(t->name, STR(".biases"));
        struct checkpoint_weight w;
        bool quantised = false;
        if (path.p || side.p) TRY(is_quantised(c, path.p ? path : side, &w, &quantised, err));
        if (!quantised) *out += t->n_elements;
        else if (path.p && t->n_elements) *out += t->n_elements / (uint64_t)t->shape[t->n_dims - 1] * (uint64_t)w.width;
    }
    return ERR_OK;
}

/* Attention layers: all, or those that layer_types calls so; the other kinds keep a state of fixed size instead. */
static uint64_t count_attention_layers(const struct config *c, int64_t n_layers) {
    yyjson_val *types = config_get(c, "layer_types"), *type;
    if (!yyjson_is_arr(types)) return (uint64_t)n_layers;
    size_t i, n;
    uint64_t n_attention = 0;
    yyjson_arr_foreach(types, i, n, type) {
        struct str name = json_val_str(type);
        n_attention += str_is(name, "full_attention") || str_is(name, "sliding_attention") || str_is(name, "chunked_attention");
    }
    return n_attention;
}

/* Plain attention only: a model with a compressed cache or without heads has no figure here. */
static int count_kv(const struct config *c, const struct config_shape *s, bool *out_has, uint64_t *out, struct err *err) {
    size_t bytes = 4; /* a key and a value of two bytes each */
    *out_has = false;
    if (!s->n_layers || !s->n_kv_heads || !s->head_dim || !s->context || config_get(c, "kv_lora_rank")) return ERR_OK;
    if (size_mul(bytes, (size_t)count_attention_layers(c, s->n_layers), &bytes) || size_mul(bytes, (size_t)s->n_kv_heads, &bytes) ||
        size_mul(bytes, (size_t)s->head_dim, &bytes) || size_mul(bytes, (size_t)s->context, &bytes) || bytes > INT64_MAX)
        return err_set(err, ERR_EFORMAT, "%s: the size of the KV cache overflows", c->name);
    *out = bytes;
    *out_has = true;
    return ERR_OK;
}

static int describe_config(struct arena *a, const struct checkpoint *c, struct inspect *out, struct err *err) {
    struct config_shape s;
    TRY(config_shape(&c->config, &s, err));
    if (c->config.model_type.p) out->model_type = str_copy(a, c->config.model_type);
    const struct alias *alias;
    out->is_known = family_of(&c->config, &alias, NULL) != NULL;
    out->tower = vision_title(&c->config, &out->has_tower);
    if (out->tower && vision_outline(c, (int32_t)s.hidden, &out->pictures, &out->no_pictures)) out->pictures.layers = 0;
    out->context = s.context;
    out->n_layers = s.n_layers;
    out->n_heads = s.n_heads;
    out->n_kv_heads = s.n_kv_heads;
    out->head_dim = s.head_dim;
    out->hidden = s.hidden;
    out->vocab = s.vocab;
    if (c->quant.present) {
        out->quant_mode = quant_mode_name(c->quant.base.mode);
        out->quant_bits = c->quant.base.bits;
        out->quant_group = c->quant.base.group;
        out->n_quant_overrides = c->quant.overrides.n;
    } else if (c->quant.foreign.p) {
        yyjson_val *declared = config_get(&c->config, "quantization_config");
        out->quant_mode = str_cstr(a, c->quant.foreign);
        out->quant_bits = json_int(declared, "bits", 0);
        out->quant_group = json_int(declared, "group_size", 0);
    }
    return count_kv(&c->config, &s, &out->has_kv, &out->kv_bytes, err);
}

static void copy_tensors(struct arena *a, const struct checkpoint *c, struct inspect *out) {
    out->tensors = arena_new(a, struct inspect_tensor, c->n_tensors + 1);
    out->n_tensors = c->n_tensors;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct st_tensor *t = c->tensors[i].t;
        out->tensors[i] = (struct inspect_tensor){
            .name = str_copy(a, t->name),
            .dtype = dtype_name(t->dtype),
            .n_dims = t->n_dims,
            .shape = arena_copy(a, t->shape, (size_t)t->n_dims * sizeof *t->shape),
            .bytes = t->bytes,
        };
    }
}

int inspect_model(struct arena *a, const char *path, struct inspect *out, struct err *err) {
    struct checkpoint c;
    *out = (struct inspect){0};
    TRY(model_folder_open(path, &c, err));
    out->path = str_cstr(a, str_of(c.path));
    out->has_config = c.has_config;
    out->n_shards = c.n_shards;
    out->weights_bytes = c.total_bytes;
    int code = c.has_config ? describe_config(a, &c, out, err) : ERR_OK;
    if (code == ERR_OK) code = count_parameters(&c, &out->parameters, err);
    if (code == ERR_OK) copy_tensors(a, &c, out);
    checkpoint_close(&c);
    return code;
}

void inspect_kernels(struct sb *out) {
    sb_fmt(out, "processor           %s, %d threads\n", os_cpu_name(), os_core_count());
    sb_puts(out, "instruction sets    ");
    cpu_describe(out);
    sb_putc(out, '\n');
    kern_describe(cpu_flags(), out);
    struct kernels k;
    struct tune tune;
    kern_select(&k, cpu_flags());
    tune_kernels(&k, &tune);
    tune_describe(&k, &tune, out);
}
