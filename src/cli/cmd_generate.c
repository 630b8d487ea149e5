/* mlxcel generate: a prompt in, new text out as it comes; statistics to standard error. */
#include "base/json.h"
#include "base/log.h"
#include "cli/answer.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/session_args.h"
#include "os/os.h"

#include <stdio.h>

struct result {
    struct session *session;
    struct job_spec job;
    struct answer answer;
    struct progress bar; /* until the first token */
    bool ids, json;
    struct sb line;             /* --ids */
    struct sb tokens, logprobs; /* --json: the insides of two arrays */
    struct jsonw w_tokens, w_logprobs;
    int code;
    struct err err;
};

static void put_logprob(struct jsonw *w, int32_t token, float logprob) {
    jsonw_put_int(w, "token", token);
    jsonw_put_num(w, "logprob", (double)logprob);
}

static void put_logprobs(struct jsonw *w, const struct job_token *t, const struct sampler_top *tops) {
    jsonw_begin(w, '{');
    put_logprob(w, t->id, t->logprob);
    jsonw_open(w, "top", '[');
    for (int32_t i = 0; i < t->n_top; i++) {
        jsonw_begin(w, '{');
        put_logprob(w, tops[i].token, tops[i].logprob);
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
    jsonw_end(w, '}');
}

static void on_prompt(void *user, int32_t done, int32_t total) {
    struct result *o = user;
    progress_prompt(&o->bar, done, total);
}

static void keep_json(struct result *o, const struct job_events *ev) {
    const struct sampler_top *tops = ev->tops;
    for (size_t i = 0; i < ev->n_tokens; i++) {
        jsonw_int(&o->w_tokens, ev->tokens[i].id);
        if (o->job.sampling.n_top >= 0) put_logprobs(&o->w_logprobs, &ev->tokens[i], tops);
        tops += ev->tokens[i].n_top;
    }
}

static void print_ids(struct result *o, const struct job_events *ev) {
    for (size_t i = 0; i < ev->n_tokens && !o->code; i++) {
        sb_clear(&o->line);
        sb_fmt(&o->line, "%s%d", o->tokens.n ? " " : "", ev->tokens[i].id);
        sb_putc(&o->tokens, ' ');
        o->code = cli_write(&o->line, &o->err);
    }
}

static bool on_events(void *user, const struct job_events *ev) {
    struct result *o = user;
    if (ev->usage.n_new) progress_end(&o->bar);
    if (o->json) keep_json(o, ev);
    else if (o->ids) print_ids(o, ev);
    return o->code == ERR_OK && answer_push(&o->answer, ev->pieces);
}

static double rate(int32_t n, double seconds) {
    return n > 0 && seconds > 0 ? n / seconds : 0;
}

static void print_stats(const struct job_usage *s) {
    char drafts[80] = "";
    if (s->n_drafted) snprintf(drafts, sizeof drafts, ", %d of %d drafted tokens accepted", s->n_accepted, s->n_drafted);
    log_info("%d prompt tokens at %.1f tok/s, %d new tokens at %.1f tok/s%s", s->n_prompt, rate(s->n_prompt, s->prompt_seconds), s->n_new,
             rate(s->n_new - 1, s->new_seconds), drafts);
}

static int print_json(struct result *o, const struct session_result *r, struct err *err) {
    static const char *const finishes[] = {[JOB_STOP] = "stop", [JOB_LENGTH] = "length", [JOB_CANCELLED] = "interrupted"};
    const struct job_usage *s = &r->usage;
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "text", sb_str(&o->answer.text));
    if (o->answer.thoughts.n) jsonw_put_str(&w, "reasoning", sb_str(&o->answer.thoughts));
    jsonw_put_str(&w, "finish_reason", str_of(finishes[r->finish]));
    jsonw_put_num(&w, "prompt_tokens", s->n_prompt);
    jsonw_put_num(&w, "completion_tokens", s->n_new);
    jsonw_put_num(&w, "prompt_seconds", s->prompt_seconds);
    jsonw_put_num(&w, "completion_seconds", s->new_seconds);
    jsonw_put_num(&w, "prompt_tokens_per_second", rate(s->n_prompt, s->prompt_seconds));
    jsonw_put_num(&w, "completion_tokens_per_second", rate(s->n_new - 1, s->new_seconds));
    jsonw_put_int(&w, "draft_tokens", s->n_drafted);
    jsonw_put_int(&w, "draft_tokens_accepted", s->n_accepted);
    if (o->job.sampling.temperature > 0) jsonw_put_num(&w, "seed", (double)o->job.sampling.seed);
    jsonw_open(&w, "tokens", '[');
    jsonw_raw(&w, sb_str(&o->tokens));
    jsonw_end(&w, ']');
    if (o->job.sampling.n_top >= 0) {
        jsonw_open(&w, "logprobs", '[');
        jsonw_raw(&w, sb_str(&o->logprobs));
        jsonw_end(&w, ']');
    }
    jsonw_end(&w, '}');
    sb_putc(&out, '\n');
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

static int encode_prompt(const struct args *args, struct result *o, struct str text, struct session_ids *out, struct err *err) {
    struct session_prompt prompt = {.text = text, .raw = args_flag(args, OPT_NO_TEMPLATE)};
    struct str system = args_str(args, OPT_SYSTEM);
    TRY(session_text_load(o->session, err));
    o->job.splits = !prompt.raw && session_has_template(o->session);
    TRY(session_args_images(args, &prompt.images, &prompt.n_images, err));
    struct session_message messages[2] = {{"system", system, 0}, {"user", text, prompt.n_images}};
    if (o->job.splits) {
        prompt.messages = system.p ? messages : messages + 1;
        prompt.n_messages = system.p ? 2 : 1;
    } else if (system.p) {
        return err_set(err, ERR_EARG, "--system needs a chat template, and %s",
                       prompt.raw ? "--no-chat-template is given" : "this model has none");
    }
    return session_encode(o->session, &prompt, out, err);
}

/* The prompt's ids: --tokens as they are, or text through tokenizer and template. */
static int read_prompt(const struct args *args, struct result *o, struct err *err) {
    struct job_spec *r = &o->job;
    struct str text;
    struct session_ids ids;
    TRY(args_tokens(args, &r->tokens, &r->n_tokens, err));
    answer_begin(&o->answer);
    if (r->n_tokens) {
        struct session_prompt given = {0};
        TRY(session_args_images(args, &given.images, &given.n_images, err));
        return session_attach_files(o->session, given.images, given.n_images, r, err);
    }
    TRY(args_prompt(args, &text, err));
    TRY(encode_prompt(args, o, text, &ids, err));
    if (ids.n > INT32_MAX) return err_set(err, ERR_ELIMIT, "the prompt has too many tokens");
    if (r->splits) session_split(o->session, ids.thinks, r);
    r->tokens = ids.p;
    r->n_tokens = (int32_t)ids.n;
    return session_attach(o->session, r, err);
}

/* Greedy, until a sampling option says otherwise. */
static int read_sampling(const struct args *args, struct result *o, struct err *err) {
    struct sampling_given given;
    o->job.sampling = sampler_defaults();
    TRY(sampling_args(args, &given, err));
    if (given.fields || args_given(args, OPT_SEED)) {
        o->job.sampling.temperature = SAMPLING_TEMPERATURE;
        sampling_resolve(o->session, &given, &o->job.sampling);
    }
    if (args_given(args, OPT_LOGPROBS)) o->job.sampling.n_top = (int32_t)args_int(args, OPT_LOGPROBS);
    return sampling_args_extra(args, &o->job.sampling, err);
}

static int finish(struct result *o, const struct session_result *result, struct err *err) {
    if (o->ids && !o->code) o->code = os_write(OS_STDOUT, STR("\n"), &o->err);
    if (!o->ids && !answer_end(&o->answer)) {
        o->code = o->answer.code;
        o->err = o->answer.err;
    }
    if (o->code) return err_set(err, o->code, "%s", o->err.msg);
    if (o->json) return print_json(o, result, err);
    print_stats(&result->usage);
    return ERR_OK;
}

/* Ids went in, and text was to come out. */
static int no_tokenizer(struct err *err) {
    struct err why = *err;
    return err_set(err, why.code, "%.300s; --ids prints the new tokens as ids", why.msg);
}

static int generate(const struct args *args, struct result *o, struct err *err) {
    struct session_result result;
    struct session_watch watch = {.on_events = on_events, .on_prompt = on_prompt, .user = o};
    struct job_spec *job = &o->job;
    job->max_new = (int32_t)args_int(args, OPT_MAX_TOKENS);
    job->ignore_eos = args_flag(args, OPT_IGNORE_EOS);
    job->wants_progress = true;
    job->has_seed = true;
    TRY(read_sampling(args, o, err));
    TRY(read_prompt(args, o, err));
    job->n_stops = args_strings(args, OPT_STOP, &job->stops);
    job->wants_text = !o->ids || job->n_stops || job->constraint;
    job->continues = !job->splits; /* a raw prompt's text goes on, with the space that it goes on with */
    watch.interrupt = interrupt_begin();
    int code = session_run(o->session, job, &watch, &result, err);
    interrupt_end();
    progress_end(&o->bar);
    if (code == ERR_ENOTFOUND && args_given(args, OPT_TOKENS)) return no_tokenizer(err);
    if (!code) code = finish(o, &result, err);
    if (!code && interrupt_came()) return err_set(err, ERR_ECANCELLED, "interrupted");
    return code;
}

/* What is wrong without looking at the model is said before it is downloaded or loaded. */
static int check_usage(const struct args *args, struct err *err) {
    const int64_t *ids;
    bool has_flag = args_str(args, OPT_PROMPT).p, has_text = has_flag || args->n_operands, has_ids = args_ints(args, OPT_TOKENS, &ids) > 0;
    if (has_flag && args->n_operands) return err_set(err, ERR_EARG, "give the prompt once: as an argument or by --prompt");
    if (has_text && has_ids) return err_set(err, ERR_EARG, "a prompt and --tokens exclude each other");
    if (!has_text && !has_ids)
        return err_set(
            err, ERR_EARG,
            "give the text to continue, as an argument or by --prompt TEXT (\"-\": from standard input), or its ids by --tokens IDS");
    if (has_ids && args_given(args, OPT_SYSTEM)) return err_set(err, ERR_EARG, "--system needs --prompt: ids are taken as they are");
    if (args_flag(args, OPT_JSON) && args_flag(args, OPT_IDS)) return err_set(err, ERR_EARG, "--json and --ids exclude each other");
    if (args_given(args, OPT_LOGPROBS) && !args_flag(args, OPT_JSON)) return err_set(err, ERR_EARG, "--logprobs needs --json");
    return sampling_args_check(args, err);
}

int cmd_generate(const struct args *args, struct err *err) {
    struct session_options o;
    struct sb line = {0};
    struct result out = {.ids = args_flag(args, OPT_IDS), .json = args_flag(args, OPT_JSON)};
    out.w_tokens.out = &out.tokens;
    out.w_logprobs.out = &out.logprobs;
    out.answer.silent = out.json || out.ids;
    out.answer.shows = args_flag(args, OPT_SHOW_REASONING);
    TRY(check_usage(args, err));
    TRY(args_constraint(args, &out.job.constraint, err));
    TRY(session_args(args, &o, err));
    TRY(session_open(&o, &out.session, err));
    session_describe(out.session, &line);
    log_info("%s", line.p);
    int code = generate(args, &out, err);
    sb_free(&line);
    sb_free(&out.line);
    sb_free(&out.tokens);
    sb_free(&out.logprobs);
    answer_free(&out.answer);
    session_close(out.session);
    return code;
}
