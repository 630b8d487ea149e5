/* From the options of a job to what the engine wants. */
#include "lib/lib_internal.h"

void mlxcel_job_options_init(mlxcel_job_options *options, size_t struct_size) {
    mlxcel_job_options full = {.max_tokens = -1, .logprobs = -1};
    lib_options_write(options, struct_size, &full, sizeof full);
}

/* ---- sampling ----------------------------------------------------------------------------------------------------------- */

static int set_parameter(struct sampler_params *p, const mlxcel_parameter *given, struct err *err) {
    const struct sampler_field *f = given->name ? sampler_field_find(str_of(given->name)) : NULL;
    if (!f) return err_set(err, ERR_EARG, "there is no parameter \"%.60s\"", given->name ? given->name : "");
    if (sampler_field_set(p, f, given->value)) return ERR_OK;
    return err_set(err, ERR_EARG, "%s is %g; it is a %snumber between %g and %g", f->name, given->value, f->is_int ? "whole " : "", f->min,
                   f->max);
}

static int read_sampling(const struct mlxcel_model *m, struct arena *a, const mlxcel_job_options *o, struct job_spec *out,
                         struct err *err) {
    struct sampler_params *p = &out->sampling;
    *p = service_info(m->service)->sampling;
    if ((o->n_parameters && !o->parameters) || (o->n_bias && !o->bias))
        return err_set(err, ERR_EARG, "a list of the job's options is NULL");
    for (size_t i = 0; i < o->n_parameters; i++) TRY(set_parameter(p, &o->parameters[i], err));
    if (o->n_bias > SAMPLER_BIAS_MAX)
        return err_set(err, ERR_ELIMIT, "%zu tokens have a bias, at most %d may", o->n_bias, SAMPLER_BIAS_MAX);
    struct sampler_bias *bias = arena_new(a, struct sampler_bias, o->n_bias + 1);
    for (size_t i = 0; i < o->n_bias; i++) bias[i] = (struct sampler_bias){o->bias[i].token, o->bias[i].bias};
    p->bias = bias;
    p->n_bias = (int32_t)o->n_bias;
    p->seed = o->seed;
    p->n_top = o->logprobs < 0 ? -1 : o->logprobs;
    out->has_seed = o->has_seed != 0;
    return ERR_OK;
}

/* ---- prompt and end ------------------------------------------------------------------------------------------------------ */

static int read_prompt(struct mlxcel_model *m, struct arena *a, const mlxcel_job_options *o, struct lib_prompt *prompt,
                       struct job_spec *out, struct err *err) {
    if ((o->chat != NULL) + (o->text != NULL) + (o->tokens != NULL) != 1)
        return err_set(err, ERR_EARG, "a job has one prompt: set chat, text or tokens, and only one of them");
    if (o->n_tokens > INT32_MAX) return err_set(err, ERR_ELIMIT, "the prompt has too many tokens");
    out->continues = !o->chat;
    if (o->chat) TRY(lib_chat_encode(m, a, o->chat, o->tool_choice != MLXCEL_TOOLS_NONE, prompt, out, err));
    if (o->text) TRY(service_encode(m->service, a, str_of(o->text), SERVICE_ADD_SPECIAL | SERVICE_PARSE_SPECIAL, &prompt->ids, err));
    out->tokens = o->tokens ? o->tokens : prompt->ids.p;
    out->n_tokens = o->tokens ? (int32_t)o->n_tokens : prompt->ids.n;
    return ERR_OK;
}

static int read_end(struct arena *a, const mlxcel_job_options *o, struct job_spec *out, struct err *err) {
    if (o->max_tokens < -1) return err_set(err, ERR_EARG, "max_tokens is %d; it is a number of tokens, or -1 for no limit", o->max_tokens);
    if (o->max_reasoning < 0 || o->deadline_ms < 0) return err_set(err, ERR_EARG, "max_reasoning and deadline_ms are 0 or more");
    if (o->n_stops && !o->stops) return err_set(err, ERR_EARG, "stops is NULL, and n_stops is not 0");
    struct str *stops = arena_new(a, struct str, o->n_stops + 1);
    for (size_t i = 0; i < o->n_stops; i++) {
        if (!o->stops[i] || !*o->stops[i]) return err_set(err, ERR_EARG, "stop string %zu is empty", i);
        stops[i] = str_of(o->stops[i]);
    }
    out->stops = stops;
    out->n_stops = o->n_stops;
    out->max_new = o->max_tokens;
    out->ignore_eos = o->ignore_end != 0;
    out->deadline_ms = o->deadline_ms;
    out->max_reasoning = o->max_reasoning;
    return ERR_OK;
}

/* How the answer is taken apart: of a conversation alone. */
static void split_answer(const struct mlxcel_model *m, struct arena *a, const mlxcel_job_options *o, yyjson_val *tools,
                         struct job_spec *out) {
    const struct service_info *info = service_info(m->service);
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    out->wants_text = true;
    if (!o->chat) return;
    out->splits = true;
    out->format = info->format;
    out->reasoning = info->reasoning;
    if (!tools) return;
    jsonw_val(&w, tools);
    out->tools = str_copy(a, sb_str(&text));
    out->takes_calls = true;
    out->one_call = o->one_call != 0;
    sb_free(&text);
}

static int make_spec(struct mlxcel_model *m, struct arena *a, const mlxcel_job_options *o, struct job_spec *out, struct err *err) {
    struct lib_prompt prompt = {0};
    *out = (struct job_spec){0};
    TRY(read_sampling(m, a, o, out, err));
    TRY(read_end(a, o, out, err));
    TRY(read_prompt(m, a, o, &prompt, out, err));
    split_answer(m, a, o, prompt.tools, out);
    out->wants_progress = o->wants_progress != 0;
    return lib_constrain(m, a, o, prompt.tools, out, err);
}

/* ---- submitting --------------------------------------------------------------------------------------------------------- */

static int submit(mlxcel_model *m, const mlxcel_job_options *given, mlxcel_job **out, struct err *err) {
    mlxcel_job_options o;
    struct arena a = {0};
    struct job_spec spec;
    if (!m || !given || !out) return err_set(err, ERR_EARG, "mlxcel_submit: the model, the options or out is NULL");
    *out = NULL;
    TRY(lib_begin(err));
    mlxcel_job_options_init(&o, sizeof o);
    TRY(lib_options_read(&o, sizeof o, given, "mlxcel_job_options", err));
    int code = make_spec(m, &a, &o, &spec, err);
    struct mlxcel_job *j = code ? NULL : lib_job_create(m, err);
    if (j) {
        j->on_event = o.on_event;
        j->user = o.user;
        j->wants_tokens = o.wants_tokens || o.logprobs >= 0;
        j->wants_logprobs = o.logprobs >= 0;
        j->wants_progress = o.wants_progress != 0;
        code = lib_jobs_submit(m, &spec, 1, &j, err);
        *out = j;
    } else if (!code) {
        code = err->code;
    }
    arena_free(&a);
    return code;
}

int32_t mlxcel_submit(mlxcel_model *model, const mlxcel_job_options *options, mlxcel_job **out, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, submit(model, options, out, &err), &err);
}

/* ---- to the end --------------------------------------------------------------------------------------------------------- */

static int collect(mlxcel_job *j, struct sb *text, struct err *err) {
    mlxcel_event e;
    mlxcel_error why;
    mlxcel_event_init(&e, sizeof e);
    while (e.kind != MLXCEL_EVENT_END) {
        if (mlxcel_next(j, -1, &e, &why)) return err_set(err, why.code, "%s", why.message);
        if (e.kind == MLXCEL_EVENT_TEXT) sb_put(text, str_n(e.text, e.text_bytes));
    }
    switch (e.finish) {
    case MLXCEL_FINISH_CANCELLED: return err_set(err, ERR_ECANCELLED, "the job was cancelled");
    case MLXCEL_FINISH_DEADLINE: return err_set(err, ERR_ECANCELLED, "the job took longer than its deadline allows");
    case MLXCEL_FINISH_ERROR: return err_set(err, e.code, "%s", e.text);
    default: return ERR_OK;
    }
}

static int complete(mlxcel_model *m, const mlxcel_job_options *options, char **out_text, size_t *out_bytes, struct err *err) {
    struct sb text = {0};
    mlxcel_job *j = NULL;
    if (!out_text) return err_set(err, ERR_EARG, "mlxcel_complete: out_text is NULL");
    *out_text = NULL;
    TRY(lib_events_check("mlxcel_complete", err));
    TRY(submit(m, options, &j, err));
    int code = collect(j, &text, err);
    mlxcel_job_free(j);
    if (!code) code = lib_copy_text(sb_str(&text), out_text, out_bytes, err);
    sb_free(&text);
    return code;
}

int32_t mlxcel_complete(mlxcel_model *model, const mlxcel_job_options *options, char **out_text, size_t *out_bytes, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, complete(model, options, out_text, out_bytes, &err), &err);
}
