/* mlxcel serve --check: what would be served, and where each setting comes from. */
#include "cli/serve_models.h"

/* A value as it could be typed. Keys stay secret. */
static void put_value(const struct opt *o, const struct arg_value *v, bool is_secret, struct sb *out) {
    if (is_secret) {
        sb_fmt(out, "%zu of them", v->n);
        return;
    }
    switch (o->type) {
    case ARG_FLAG: sb_puts(out, v->i ? "true" : "false"); break;
    case ARG_INT:
    case ARG_SIZE: sb_fmt(out, "%lld", (long long)v->i); break;
    case ARG_FLOAT: sb_fmt(out, "%g", v->f); break;
    case ARG_STRING:
    case ARG_CHOICE: sb_put(out, v->s); break;
    case ARG_INTS:
        for (size_t i = 0; i < v->n; i++) sb_fmt(out, "%s%lld", i ? "," : "", (long long)v->ints[i]);
        break;
    case ARG_STRINGS:
        for (size_t i = 0; i < v->n; i++) sb_fmt(out, "%s%.*s", i ? "," : "", STR_ARG(v->strings[i]));
        break;
    }
}

static void put_source(const struct settings *settings, const struct arg_value *v, struct sb *out) {
    if (v->source == ARG_FROM_FILE) sb_fmt(out, " (%s:%d)\n", settings->path, (int)v->line);
    else if (v->source == ARG_FROM_ENV) sb_fmt(out, " (%.*s)\n", STR_ARG(v->variable));
    else sb_puts(out, " (command line)\n");
}

/* Options that somebody gave; of_models: those that can be a model's. */
static void put_options(const struct args *args, const struct settings *settings, bool of_models, struct sb *out) {
    for (int i = 0; i < N_OPTIONS; i++) {
        enum opt_id id = (enum opt_id)i;
        const struct opt *o = &cli_options[i];
        if (!opt_is_flag(o, args->command) || !args_given(args, id) || settings_is_of_models(id) != of_models) continue;
        if (id == OPT_CHECK || id == OPT_CONFIG || id == OPT_MODEL) continue;
        sb_fmt(out, "  %s = ", o->name);
        put_value(o, &args->values[i], id == OPT_API_KEY, out);
        put_source(settings, &args->values[i], out);
    }
}

static void put_model(const struct serve_model *from, const struct settings *settings, struct sb *out) {
    const struct server_model *m = from->served;
    const char *path = m->session.shape ? m->session.shape : m->session.model ? m->session.model : "built-in";
    sb_fmt(out, "model %s: %s", m->name ? m->name : path, path);
    if (from->is_absent) sb_puts(out, ", not on this machine yet: it will be downloaded");
    if (m->is_preloaded) sb_puts(out, ", loaded at the start");
    sb_putc(out, '\n');
    put_options(from->args, settings, true, out);
}

void serve_models_describe(const struct args *args, const struct settings *settings, const struct server_options *o,
                           const struct serve_model *models, struct sb *out) {
    struct str *urls;
    size_t n = server_urls(args->arena, o, &urls);
    sb_puts(out, "server:");
    for (size_t i = 0; i < n; i++) sb_fmt(out, " %.*s", STR_ARG(urls[i]));
    if (o->n_models > 1) sb_fmt(out, ", %zu models, at most %d of them loaded at once", o->n_models, (int)o->models_max);
    sb_putc(out, '\n');
    put_options(args, settings, false, out);
    for (size_t i = 0; i < o->n_models; i++) put_model(&models[i], settings, out);
}
