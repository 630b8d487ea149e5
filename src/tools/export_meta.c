/* What config.json says, as metadata of a GGUF file. Only what a reader of such files computes alike is written; the rest is refused. */
#include "tools/export_internal.h"

#include "base/fmath.h"

#include <math.h>
#include <stdio.h>

static bool is_type(const struct gguf_arch *a, struct str type) {
    return str_is(type, a->type) || (a->also && str_is(type, a->also));
}

int export_meta_arch(struct export *e, struct err *err) {
    const struct config *config = &e->c.config;
    struct sb known = {0};
    for (int32_t i = 0; i < gguf_arch_count; i++) {
        const struct gguf_arch *a = &gguf_arch_table[i];
        if (!(a->flags & GGUF_WRITTEN)) continue;
        if (is_type(a, config->text_type)) e->arch = a;
        sb_fmt(&known, "%s%s%s%s", known.n ? ", " : "", a->type, a->also ? ", " : "", a->also ? a->also : "");
    }
    if (!e->arch)
        err_set(err, ERR_EUNSUPPORTED, "%s: models of type %.*s are not written as GGUF files; those of type %s are", e->c.path,
                STR_ARG(config->text_type), known.p);
    sb_free(&known);
    return e->arch ? ERR_OK : ERR_EUNSUPPORTED;
}

static const char *key_of(struct export *e, const char *key) {
    return str_cstr(&e->arena, str_fmt(&e->arena, "%s.%s", e->arch->name, key));
}

static int refuse(const struct export *e, const char *what, struct err *err) {
    return err_set(err, ERR_EUNSUPPORTED, "%s: %s of config.json has no place in a GGUF file of %s models", e->c.path, what, e->arch->name);
}

/* Keys that change what a model computes, and that files do not say. */
static int check_keys(const struct export *e, struct err *err) {
    const struct config *c = &e->c.config;
    struct str act;
    double partial;
    TRY(config_str(c, "hidden_act", STR("silu"), &act, err));
    if (!str_is(act, "silu")) return refuse(e, "hidden_act", err);
    yyjson_val *slides = config_get(c, "use_sliding_window"), *window = config_get(c, "sliding_window");
    bool has_window = slides ? yyjson_get_bool(slides) : window && !yyjson_is_null(window);
    if (has_window) return refuse(e, "sliding_window", err);
    TRY(config_num(c, "partial_rotary_factor", (struct config_range){0, 1}, 1, &partial, err));
    if (partial != 1) return refuse(e, "partial_rotary_factor", err);
    return ERR_OK;
}

/* By what each frequency is divided. */
static int llama3_factors(struct export *e, const struct config_rope *r, struct err *err) {
    const struct config_part part = {e->c.config.name, "rope_scaling", r->raw};
    double low, high, original, two_pi = 6.283185307179586;
    int64_t half = e->shape.head_dim / 2;
    TRY(config_part_num(&part, "low_freq_factor", (struct config_range){1e-9, 1e9}, 1, &low, err));
    TRY(config_part_num(&part, "high_freq_factor", (struct config_range){1e-9, 1e9}, 4, &high, err));
    TRY(config_part_num(&part, "original_max_position_embeddings", (struct config_range){1, 1e9}, 8192, &original, err));
    e->rope_factors = arena_new(&e->arena, float, half + 1);
    for (int64_t i = 0; i < half; i++) {
        double wave = two_pi * pow(r->theta, 2.0 * (double)i / (double)e->shape.head_dim), smooth = (original / wave - low) / (high - low);
        double factor = 1;
        if (wave > original / low) factor = r->factor;
        else if (wave >= original / high && high > low) factor = 1 / ((1 - smooth) / r->factor + smooth);
        e->rope_factors[i] = (float)factor;
    }
    return ERR_OK;
}

static int put_rope(struct export *e, struct err *err) {
    struct config_rope r;
    TRY(config_rope(&e->c.config, &(struct rope_ask){.theta = 10000}, &r, err));
    if (r.partial != 1 || r.is_nested) return refuse(e, "rope_parameters", err);
    gguf_put_f32(&e->w, key_of(e, "rope.freq_base"), r.theta);
    gguf_put_u32(&e->w, key_of(e, "rope.dimension_count"), (uint32_t)e->shape.head_dim);
    if (str_is(r.type, "default")) return ERR_OK;
    if (str_is(r.type, "llama3")) return llama3_factors(e, &r, err);
    if (!str_is(r.type, "linear"))
        return err_set(err, ERR_EUNSUPPORTED, "%s: rope_scaling of type %.*s is not written to GGUF files; linear and llama3 are",
                       e->c.path, STR_ARG(r.type));
    gguf_put_string(&e->w, key_of(e, "rope.scaling.type"), r.type);
    gguf_put_f32(&e->w, key_of(e, "rope.scaling.factor"), r.factor);
    return ERR_OK;
}

int export_meta(struct export *e, struct err *err) {
    struct config_shape *s = &e->shape;
    double eps;
    TRY(check_keys(e, err));
    TRY(config_num(&e->c.config, "rms_norm_eps", (struct config_range){0, 1}, -1, &eps, err));
    if (eps < 0) return err_set(err, ERR_EFORMAT, "%s: config.json has no rms_norm_eps", e->c.path);
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        {"context_length", s->context},           {"embedding_length", s->hidden},         {"block_count", s->n_layers},
        {"feed_forward_length", s->intermediate}, {"attention.head_count", s->n_heads},    {"attention.head_count_kv", s->n_kv_heads},
        {"attention.key_length", s->head_dim},    {"attention.value_length", s->head_dim}, {"vocab_size", s->vocab},
    };
    gguf_put_string(&e->w, "general.architecture", str_of(e->arch->name));
    gguf_put_u32(&e->w, "general.quantization_version", 2);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value <= 0 || numbers[i].value > INT32_MAX)
            return err_set(err, ERR_EFORMAT, "%s: config.json does not say what %s needs", e->c.path, numbers[i].key);
        gguf_put_u32(&e->w, key_of(e, numbers[i].key), (uint32_t)numbers[i].value);
    }
    gguf_put_f32(&e->w, key_of(e, "attention.layer_norm_rms_epsilon"), eps);
    return put_rope(e, err);
}
