/* mlxcel generate: a prompt in, new text out as it comes; statistics to standard error. */
#include "base/log.h"
#include "cli/session_args.h"
#include "os/os.h"

#include <stdio.h>

enum { STDIN_BYTES_MAX = 64 << 20 };

struct output {
    struct session *session;
    bool ids;
    int32_t n;
    struct sb text;
    int code;
    struct err err;
};

static bool flush(struct output *o) {
    if (!o->code) o->code = os_write(OS_STDOUT, sb_str(&o->text), &o->err);
    sb_clear(&o->text);
    return o->code == ERR_OK;
}

static bool put_token(void *user, int32_t token) {
    struct output *o = user;
    if (o->ids) sb_fmt(&o->text, "%s%d", o->n++ ? " " : "", token);
    else o->code = session_decode_push(o->session, token, &o->text, &o->err);
    return flush(o);
}

static void print_stats(const struct generate_stats *s) {
    double prompt_rate = s->prompt_seconds > 0 ? s->n_prompt / s->prompt_seconds : 0;
    double rate = s->n_new > 1 && s->new_seconds > 0 ? (s->n_new - 1) / s->new_seconds : 0;
    log_info("%d prompt tokens at %.1f tok/s, %d new tokens at %.1f tok/s", s->n_prompt, prompt_rate, s->n_new, rate);
}

/* The prompt's ids: --tokens as they are, or text through tokenizer and template. */
static int read_prompt(const struct args *args, struct session *s, struct generate_request *r, struct err *err) {
    struct session_prompt prompt = {.text = args_str(args, OPT_PROMPT), .raw = args_flag(args, OPT_NO_TEMPLATE)};
    struct session_ids ids;
    TRY(token_args(args, &r->tokens, &r->n_tokens, err));
    if (r->n_tokens) return prompt.text.p ? err_set(err, ERR_EARG, "--prompt and --tokens exclude each other") : ERR_OK;
    if (!prompt.text.p) return err_set(err, ERR_EARG, "--prompt TEXT or --tokens IDS is missing");
    if (str_is(prompt.text, "-")) TRY(os_read_stdin(args->arena, STDIN_BYTES_MAX, &prompt.text, err));
    TRY(session_encode(s, &prompt, &ids, err));
    if (ids.n > INT32_MAX) return err_set(err, ERR_ELIMIT, "the prompt has too many tokens");
    r->tokens = ids.p;
    r->n_tokens = (int32_t)ids.n;
    return ERR_OK;
}

static int generate(const struct args *args, struct output *out, struct err *err) {
    struct generate_stats stats;
    struct generate_request r = {.max_new = (int32_t)args_int(args, OPT_MAX_TOKENS),
                                 .ignore_eos = args_flag(args, OPT_IGNORE_EOS),
                                 .on_token = put_token,
                                 .user = out};
    TRY(read_prompt(args, out->session, &r, err));
    if (!out->ids) TRY(session_decode_begin(out->session, err));
    TRY(session_generate(out->session, &r, &stats, err));
    if (!out->ids && !out->code) out->code = session_decode_end(out->session, &out->text, &out->err);
    sb_putc(&out->text, '\n');
    if (!flush(out)) return err_set(err, out->code, "%s", out->err.msg);
    print_stats(&stats);
    return ERR_OK;
}

int cmd_generate(const struct args *args, struct err *err) {
    struct session_options o;
    struct sb line = {0};
    struct output out = {.ids = args_flag(args, OPT_IDS)};
    TRY(session_args(args, &o, err));
    TRY(session_open(&o, &out.session, err));
    session_describe(out.session, &line);
    log_info("%s", line.p);
    int code = generate(args, &out, err);
    sb_free(&line);
    sb_free(&out.text);
    session_close(out.session);
    return code;
}
