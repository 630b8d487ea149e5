/* mlxcel inspect: what a model is, for people in columns and for programs in JSON. */
#include "tools/inspect.h"
#include "api/session.h"
#include "base/json.h"
#include "cli/session_args.h"
#include "cli/store_args.h"

#include <stdio.h>

static void json_count(struct jsonw *w, const char *key, bool known, uint64_t value) {
    jsonw_key(w, key);
    if (known) jsonw_int(w, (int64_t)value);
    else jsonw_null(w);
}

static void json_quantization(struct jsonw *w, const struct inspect *m) {
    jsonw_key(w, "quantization");
    if (!m->quant_mode) {
        jsonw_null(w);
        return;
    }
    jsonw_begin(w, '{');
    json_count(w, "bits", m->quant_bits > 0, (uint64_t)m->quant_bits);
    json_count(w, "group_size", m->quant_group > 0, (uint64_t)m->quant_group);
    jsonw_put_str(w, "mode", str_of(m->quant_mode));
    jsonw_end(w, '}');
}

static void json_tensor(struct jsonw *w, const struct inspect_tensor *t) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "name", t->name);
    jsonw_put_str(w, "dtype", str_of(t->dtype));
    jsonw_open(w, "shape", '[');
    for (int i = 0; i < t->n_dims; i++) jsonw_int(w, t->shape[i]);
    jsonw_end(w, ']');
    json_count(w, "bytes", true, t->bytes);
    jsonw_end(w, '}');
}

static void write_json(struct sb *out, const struct inspect *m) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "path", str_of(m->path));
    jsonw_key(&w, "model_type");
    if (m->model_type.p) jsonw_str(&w, m->model_type);
    else jsonw_null(&w);
    json_count(&w, "parameters", true, m->parameters);
    json_quantization(&w, m);
    json_count(&w, "weights_bytes", true, m->weights_bytes);
    json_count(&w, "kv_bytes", m->has_kv, m->kv_bytes);
    json_count(&w, "context", m->context > 0, (uint64_t)m->context);
    json_count(&w, "shards", true, m->n_shards);
    jsonw_open(&w, "tensors", '[');
    for (size_t i = 0; i < m->n_tensors; i++) json_tensor(&w, &m->tensors[i]);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
}

/* "3.97 MiB" */
static const char *size_text(uint64_t bytes, char out[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int i = 0;
    for (; value >= 1024 && i < 6; i++) value /= 1024;
    snprintf(out, 32, i ? "%.2f %s" : "%.0f %s", value, units[i]);
    return out;
}

/* "7.34 M" */
static const char *count_text(uint64_t n, char out[32]) {
    static const char *const units[] = {"", " K", " M", " B", " T"};
    double value = (double)n;
    int i = 0;
    for (; value >= 1000 && i < 4; i++) value /= 1000;
    snprintf(out, 32, i ? "%.2f%s" : "%.0f%s", value, units[i]);
    return out;
}

/* Names come from the file: what would move the cursor is shown as '?'. */
static void put_name(struct sb *out, struct str name) {
    for (size_t i = 0; i < name.n; i++) sb_putc(out, (unsigned char)name.p[i] < 0x20 || name.p[i] == 0x7F ? '?' : name.p[i]);
}

static void write_tensors(struct sb *out, const struct inspect *m) {
    size_t width = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].name.n > width && m->tensors[i].name.n <= 80) width = m->tensors[i].name.n;
    sb_putc(out, '\n');
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct inspect_tensor *t = &m->tensors[i];
        struct sb shape = {0};
        char size[32];
        for (int k = 0; k < t->n_dims; k++) sb_fmt(&shape, "%s%lld", k ? " x " : "", (long long)t->shape[k]);
        put_name(out, t->name);
        for (size_t k = t->name.n; k < width; k++) sb_putc(out, ' ');
        sb_fmt(out, "  %-8s  %-20s  %11s\n", t->dtype, t->n_dims ? shape.p : "scalar", size_text(t->bytes, size));
        sb_free(&shape);
    }
}

/* A scale of four bytes stands beside every key and value of --kv-bits 8 and 4. */
static void put_cache(struct sb *out, const struct inspect *m) {
    char text[32];
    uint64_t vectors = m->kv_bytes / (2 * (uint64_t)m->head_dim);
    sb_fmt(out, "KV cache      %s for the whole context in bf16", size_text(m->kv_bytes, text));
    for (uint64_t bits = 8; bits >= 4 && m->head_dim % 16 == 0 && m->head_dim <= 256; bits -= 4)
        sb_fmt(out, ", %s with --kv-bits %d", size_text(m->kv_bytes * bits / 16 + 4 * vectors, text), (int)bits);
    sb_puts(out, "\n");
}

/* The tower, what makes rows of the text model out of its patches, and what a picture takes of the context. */
static void put_pictures(struct sb *out, const struct inspect *m) {
    const struct vision_outline *p = &m->pictures;
    if (!m->tower || !p->layers) {
        sb_fmt(out, "pictures      not taken: %s\n", m->tower ? m->no_pictures.msg : "its tower is not one that this program runs");
        return;
    }
    sb_fmt(out, "pictures      %s: %d layers, hidden size %d, patches of %d x %d pixels\n", m->tower, p->layers, p->hidden, p->patch,
           p->patch);
    if (p->merge > 1) sb_fmt(out, "projector     %d x %d patches %s", p->merge, p->merge, p->pools ? "averaged" : "joined");
    else sb_puts(out, "projector     each patch alone");
    sb_fmt(out, ", %d %s to %lld", p->n_matrices, p->n_matrices == 1 ? "matrix" : "matrices", (long long)m->hidden);
    if (p->n_sets > 1) sb_fmt(out, "; likewise behind %d other layers", p->n_sets - 1);
    sb_fmt(out, "\ntokens        %d for a picture of %d x %d pixels\n", p->n_tokens, VISION_USUAL_SIDE, VISION_USUAL_SIDE);
}

static void write_text(struct sb *out, const struct inspect *m) {
    char text[32];
    sb_fmt(out, "model         %s\n", m->path);
    if (m->model_type.p) {
        sb_puts(out, "type          ");
        put_name(out, m->model_type);
        sb_puts(out, m->is_known ? "\n" : " (not one that this program runs)\n");
    }
    sb_fmt(out, "parameters    %s (%llu)\n", count_text(m->parameters, text), (unsigned long long)m->parameters);
    if (m->quant_bits && m->quant_group) {
        sb_fmt(out, "quantization  %s, %lld bits, groups of %lld", m->quant_mode, (long long)m->quant_bits, (long long)m->quant_group);
        if (m->n_quant_overrides) sb_fmt(out, "; %zu paths differ", m->n_quant_overrides);
        sb_putc(out, '\n');
    } else {
        const char *none = m->has_config ? "none" : "unknown: there is no config.json; parameters are counted as they are stored";
        sb_fmt(out, "quantization  %s\n", m->quant_mode ? m->quant_mode : none);
    }
    if (m->n_layers) sb_fmt(out, "layers        %lld, hidden size %lld\n", (long long)m->n_layers, (long long)m->hidden);
    if (m->n_heads)
        sb_fmt(out, "heads         %lld of %lld, %lld for keys and values\n", (long long)m->n_heads, (long long)m->head_dim,
               (long long)m->n_kv_heads);
    if (m->has_tower) put_pictures(out, m);
    if (m->vocab) sb_fmt(out, "vocabulary    %lld\n", (long long)m->vocab);
    if (m->context) sb_fmt(out, "context       %lld tokens\n", (long long)m->context);
    sb_fmt(out, "weights       %s in %zu tensors, %zu file(s)\n", size_text(m->weights_bytes, text), m->n_tensors, m->n_shards);
    if (m->has_kv) put_cache(out, m);
}

/* Where it would run, on a machine with a GPU; what does not fit is told, and is no failure of this command. */
static int write_placement(const struct args *args, const char *model, struct sb *out, struct err *err) {
    struct session_options o = {.model = model, .device = args_cstr(args, OPT_DEVICE), .context = (int32_t)args_int(args, OPT_CONTEXT)};
    struct sb line = {0};
    struct err why = {0};
    TRY(args_placement(args, &o, err));
    if (session_plan(&o, &line, &why)) sb_fmt(&line, "not here: %s", why.msg);
    if (line.n) sb_fmt(out, "places        %s\n", line.p);
    sb_free(&line);
    return ERR_OK;
}

int cmd_inspect(const struct args *args, struct err *err) {
    struct str path;
    TRY(args_model_name(args, &path, err));
    if (args_flag(args, OPT_KERNELS)) {
        if (args_flag(args, OPT_JSON)) return err_set(err, ERR_EARG, "--kernels has no JSON form");
        struct sb text = {0};
        TRY(args_cpu_level(args, err));
        inspect_kernels(&text);
        int code = cli_write(&text, err);
        sb_free(&text);
        return code;
    }
    struct inspect m;
    const char *model;
    TRY(args_model(args, path, &model, NULL, err));
    TRY(inspect_model(args->arena, model, &m, err));
    struct sb out = {0};
    if (args_flag(args, OPT_JSON)) write_json(&out, &m);
    else write_text(&out, &m);
    int code = args_flag(args, OPT_JSON) || !m.is_known ? ERR_OK : write_placement(args, model, &out, err);
    if (args_flag(args, OPT_TENSORS) && !args_flag(args, OPT_JSON)) write_tensors(&out, &m);
    if (!code) code = cli_write(&out, err);
    sb_free(&out);
    return code;
}
