/* Rotary positions: the inverse frequencies of every scaling, computed in f32 steps as the reference does. */
#include "model/spec.h"

#include "base/fmath.h"

static const double TWO_PI = 6.28318530717958647692;

static const struct {
    const char *name;
    enum rope_scaling scaling;
} scalings[] = {
    {"default", SCALE_NONE},  {"linear", SCALE_LINEAR},     {"dynamic", SCALE_DYNAMIC}, {"yarn", SCALE_YARN},
    {"llama3", SCALE_LLAMA3}, {"longrope", SCALE_LONGROPE}, {"su", SCALE_LONGROPE},     {"proportional", SCALE_PROPORTIONAL},
    {"mrope", SCALE_NONE},    {"factors", SCALE_FACTORS},
};

/* theta^(2i/dim) for pair i, as float32 arithmetic gives it. */
static float pair_period(float theta, int32_t i, int32_t dim) {
    float exponent = (float)(2 * i) / (float)dim;
    return m_powf(theta, exponent);
}

static void plain_table(float theta, int32_t dim, float *out) {
    for (int32_t i = 0; i < dim / 2; i++) out[i] = 1.0f / pair_period(theta, i, dim);
}

/* A key of the scaling's own object. */
static int num_of(const struct config_rope *p, const char *key, double absent, float *out, struct err *err) {
    double value;
    const struct config_part part = {"config.json", "rope", p->raw};
    TRY(config_part_num(&part, key, (struct config_range){-3.4e38, 3.4e38}, absent, &value, err));
    *out = (float)value;
    return ERR_OK;
}

static int list_of(struct arena *a, const struct config_rope *p, const char *key, int32_t n, float **out, struct err *err) {
    yyjson_val *list = json_get(p->raw, key);
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) != (size_t)n)
        return err_set(err, ERR_EFORMAT, "config.json: rope %s has %zu entries, expected %d", key, yyjson_arr_size(list), n);
    *out = arena_new(a, float, n);
    size_t i, max;
    yyjson_val *v;
    yyjson_arr_foreach(list, i, max, v) {
        (*out)[i] = (float)yyjson_get_num(v);
        if (!((*out)[i] > 0)) return err_set(err, ERR_EFORMAT, "config.json: rope %s must be above 0", key);
    }
    return ERR_OK;
}

static int scale_llama3(const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float low, high, original;
    TRY(num_of(p, "low_freq_factor", 1.0, &low, err));
    TRY(num_of(p, "high_freq_factor", 4.0, &high, err));
    TRY(num_of(p, "original_max_position_embeddings", 8192, &original, err));
    if (!(high >= low) || !(low > 0)) return err_set(err, ERR_EFORMAT, "config.json: rope high_freq_factor is below low_freq_factor");
    float low_wave = original / low, high_wave = original / high;
    for (int32_t i = 0; i < r->n_rotated / 2; i++) {
        float f = r->inv_freq[i], wave = (float)TWO_PI / f;
        float smooth = (original / wave - low) / (high - low);
        if (wave > low_wave) r->inv_freq[i] = f / r->factor;
        else if (wave >= high_wave && high > low) r->inv_freq[i] = (1.0f - smooth) * f / r->factor + smooth * f;
    }
    return ERR_OK;
}

static double yarn_magnitude(double factor, double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * m_log(factor) + 1.0;
}

/* Latent attention multiplies its scores by the square of this. */
static int resolve_score_scale(const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float all_dim;
    if (!p->raw || r->scaling == SCALE_NONE) return ERR_OK;
    TRY(num_of(p, "mscale_all_dim", 0, &all_dim, err));
    if (all_dim != 0) r->score_scale = (float)(yarn_magnitude(r->factor, all_dim) * yarn_magnitude(r->factor, all_dim));
    return ERR_OK;
}

static int resolve_position_scale(const struct cfg *c, const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float length;
    if (!p->raw) return ERR_OK;
    TRY(num_of(p, cfg_key(c, "position_scale_beta"), 0, &r->pos_scale_beta, err));
    TRY(num_of(p, "original_max_position_embeddings", 0, &length, err));
    if (r->pos_scale_beta == 0) return ERR_OK;
    if (!(length >= 1)) return err_set(err, ERR_EFORMAT, "%s: rope original_max_position_embeddings is missing", c->file->name);
    r->pos_scale_len = (int32_t)length;
    return ERR_OK;
}

/* The pair whose wavelength fits `turns` times into the original context. */
static double yarn_pair(double turns, int32_t dim, double theta, double original) {
    return dim * m_log(original / (turns * TWO_PI)) / (2.0 * m_log(theta));
}

static int yarn_attention_factor(const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float mscale, all_dim, attention;
    TRY(num_of(p, "mscale", 0, &mscale, err));
    TRY(num_of(p, "mscale_all_dim", 0, &all_dim, err));
    TRY(num_of(p, "attention_factor", -1, &attention, err));
    if (attention >= 0) r->magnitude = attention;
    else if (mscale != 0 && all_dim != 0) r->magnitude = (float)(yarn_magnitude(r->factor, mscale) / yarn_magnitude(r->factor, all_dim));
    else r->magnitude = (float)yarn_magnitude(r->factor, 1.0);
    return ERR_OK;
}

static int scale_yarn(const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float fast, slow, original;
    TRY(num_of(p, "beta_fast", 32, &fast, err));
    TRY(num_of(p, "beta_slow", 1, &slow, err));
    TRY(num_of(p, "original_max_position_embeddings", r->original_len, &original, err));
    TRY(yarn_attention_factor(p, r, err));
    int32_t dim = r->n_rotated;
    if (!(fast > 0 && slow > 0 && original > 0))
        return err_set(err, ERR_EFORMAT, "config.json: rope beta_fast, beta_slow and original length must be above 0");
    double low = yarn_pair(fast, dim, r->theta, original), high = yarn_pair(slow, dim, r->theta, original);
    if (json_bool(p->raw, "truncate", true)) {
        low = floor(low);
        high = ceil(high);
    }
    if (low < 0) low = 0;
    if (high > dim - 1) high = dim - 1;
    if (low == high) high += 0.001;
    for (int32_t i = 0; i < dim / 2; i++) {
        float period = pair_period(r->theta, i, dim);
        float ramp = (float)((i - low) / (high - low));
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1.0f - ramp; /* extrapolate fast pairs, interpolate slow ones */
        r->inv_freq[i] = 1.0f / (r->factor * period) * (1.0f - keep) + 1.0f / period * keep;
    }
    return ERR_OK;
}

/* One magnitude for all lengths: a file that names two must have them equal. */
static int longrope_magnitude(const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float attention, shorter, longer;
    TRY(num_of(p, "attention_factor", -1, &attention, err));
    TRY(num_of(p, "short_mscale", -1, &shorter, err));
    TRY(num_of(p, "long_mscale", shorter, &longer, err));
    if (shorter != longer) return err_set(err, ERR_EUNSUPPORTED, "config.json: rope short_mscale and long_mscale differ");
    if (r->original_len < 2) return err_set(err, ERR_EFORMAT, "config.json: rope original_max_position_embeddings is %d", r->original_len);
    if (attention >= 0) r->magnitude = attention;
    else if (shorter >= 0) r->magnitude = shorter;
    else r->magnitude = r->factor <= 1 ? 1.0f : (float)sqrt(1.0 + m_log(r->factor) / m_log(r->original_len));
    return ERR_OK;
}

static int scale_longrope(struct arena *a, const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float *shorter, *longer;
    int32_t n = r->n_rotated / 2;
    TRY(list_of(a, p, "short_factor", n, &shorter, err));
    TRY(list_of(a, p, "long_factor", n, &longer, err));
    TRY(longrope_magnitude(p, r, err));
    r->long_freq = arena_new(a, float, n);
    for (int32_t i = 0; i < n; i++) {
        float period = pair_period(r->theta, i, r->n_rotated);
        r->inv_freq[i] = 1.0f / (shorter[i] * period);
        r->long_freq[i] = 1.0f / (longer[i] * period);
    }
    return ERR_OK;
}

/* What each pair's frequency is divided by, as GGUF files have it. */
static int scale_factors(struct arena *a, const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float *factors;
    TRY(list_of(a, p, "factors", r->n_rotated / 2, &factors, err));
    for (int32_t i = 0; i < r->n_rotated / 2; i++) r->inv_freq[i] /= factors[i];
    return ERR_OK;
}

/* Only a part of the pairs turns, but the exponents count the whole head. */
static void scale_proportional(struct rope_spec *r, int32_t head_dim, float partial) {
    int32_t turning = (int32_t)(partial * (float)head_dim / 2);
    r->n_rotated = head_dim;
    for (int32_t i = 0; i < head_dim / 2; i++) r->inv_freq[i] = i < turning ? 1.0f / pair_period(r->theta, i, head_dim) / r->factor : 0.0f;
}

static int find_scaling(struct str name, enum rope_scaling *out, struct err *err) {
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++)
        if (str_is(name, scalings[i].name)) {
            *out = scalings[i].scaling;
            return ERR_OK;
        }
    return err_set(err, ERR_EUNSUPPORTED, "config.json: rope type \"%.*s\" is not supported", STR_ARG(name));
}

/* Dynamic scaling for one length, chosen when the model was trained: alpha stands for it, and the table is fixed. */
static int resolve_alpha(const struct config_rope *p, struct rope_spec *r, struct err *err) {
    float alpha;
    TRY(num_of(p, "alpha", 0, &alpha, err));
    if (r->n_rotated <= 2) return err_set(err, ERR_EFORMAT, "config.json: dynamic rope of %d rotated elements", r->n_rotated);
    if (!(alpha > 0)) return ERR_OK;
    r->scaling = SCALE_NONE;
    r->theta = (float)(p->theta * m_pow((double)alpha, (double)r->n_rotated / (r->n_rotated - 2)));
    return ERR_OK;
}

/* Which pairs turn by time, height and width: one part behind the other, or by threes. */
static int resolve_axes(struct arena *a, const struct config_rope *p, struct rope_spec *r, struct err *err) {
    yyjson_val *sections = json_get(p->raw, "mrope_section");
    int64_t n[3] = {0}, half = r->n_rotated / 2;
    if (!yyjson_is_arr(sections)) return ERR_OK;
    for (size_t i = 0; i < 3; i++) n[i] = yyjson_get_int(yyjson_arr_get(sections, i));
    if (yyjson_arr_size(sections) != 3 || n[0] < 0 || n[1] < 0 || n[2] < 0 || n[0] > half || n[1] > half || n[2] > half ||
        n[0] + n[1] + n[2] != half)
        return err_set(err, ERR_EFORMAT, "config.json: mrope_section does not add up to %lld", (long long)half);
    bool by_threes = json_bool(p->raw, "mrope_interleaved", false);
    int8_t *axes = arena_new(a, int8_t, half);
    for (int64_t i = 0; i < half; i++) {
        axes[i] = i < n[0] ? 0 : i < n[0] + n[1] ? 1 : 2;
        if (by_threes) axes[i] = i % 3 && i < 3 * n[i % 3] ? (int8_t)(i % 3) : 0;
    }
    r->axes = axes;
    return ERR_OK;
}

int rope_resolve(struct arena *a, const struct cfg *config, const struct config_rope *params, int32_t head_dim, struct rope_spec *out,
                 struct err *err) {
    struct rope_spec *r = out;
    int32_t context;
    TRY(find_scaling(params->type, &r->scaling, err));
    TRY(cfg_int(config, "max_position_embeddings", 1, INT32_MAX, 2048, &context, err));
    TRY(cfg_int(config, "original_max_position_embeddings", 1, INT32_MAX, context, &r->original_len, err));
    if (params->original_context > 0) r->original_len = (int32_t)params->original_context;
    if (r->scaling == SCALE_DYNAMIC) r->original_len = context;
    r->theta = (float)params->theta;
    r->factor = (float)params->factor;
    if ((r->scaling == SCALE_YARN || r->scaling == SCALE_LONGROPE) && !yyjson_is_num(json_get(params->raw, "factor")))
        r->factor = (float)context / (float)r->original_len; /* left out, or null */
    r->n_rotated = (int32_t)((double)head_dim * params->partial) / 2 * 2;
    r->magnitude = r->score_scale = 1.0f;
    r->table = -1;
    if (!(r->theta > 1.0f) || !(r->factor > 0) || r->n_rotated < 2 || r->n_rotated > head_dim)
        return err_set(err, ERR_EFORMAT, "%s: rope_theta %g, factor %g, %d of %d rotated: out of range", config->file->name, params->theta,
                       params->factor, r->n_rotated, head_dim);
    if (r->scaling == SCALE_DYNAMIC) TRY(resolve_alpha(params, r, err));
    r->inv_freq = arena_new(a, float, head_dim / 2 + 1);
    plain_table(r->theta, r->n_rotated, r->inv_freq);
    TRY(resolve_axes(a, params, r, err));
    TRY(resolve_score_scale(params, r, err));
    TRY(resolve_position_scale(config, params, r, err));
    if (r->scaling == SCALE_LINEAR)
        for (int32_t i = 0; i < r->n_rotated / 2; i++) r->inv_freq[i] /= r->factor;
    if (r->scaling == SCALE_LLAMA3) TRY(scale_llama3(params, r, err));
    if (r->scaling == SCALE_YARN) TRY(scale_yarn(params, r, err));
    if (r->scaling == SCALE_LONGROPE) TRY(scale_longrope(a, params, r, err));
    if (r->scaling == SCALE_FACTORS) TRY(scale_factors(a, params, r, err));
    if (r->scaling == SCALE_PROPORTIONAL) scale_proportional(r, head_dim, (float)params->partial);
    return ERR_OK;
}

void rope_table_at(const struct rope_spec *r, int32_t len, float *out) {
    int32_t n = r->n_rotated / 2;
    if (len <= r->original_len || (r->scaling != SCALE_DYNAMIC && r->scaling != SCALE_LONGROPE)) {
        memcpy(out, r->inv_freq, (size_t)n * sizeof *out);
    } else if (r->scaling == SCALE_LONGROPE) {
        memcpy(out, r->long_freq, (size_t)n * sizeof *out);
    } else {
        double stretch = (double)r->factor * len / r->original_len - ((double)r->factor - 1.0);
        double theta = (double)r->theta * m_pow(stretch, (double)r->n_rotated / (r->n_rotated - 2));
        plain_table((float)theta, r->n_rotated, out);
    }
}
