/* mlxcel generate: a prompt in, new text out as it comes; statistics to standard error. */
#include "base/log.h"
#include "cli/session_args.h"
#include "os/os.h"

#include <stdio.h>

struct output {
    bool ids;
    int32_t n;
    int code;
    struct err err;
};

static bool put_token(void *user, int32_t token) {
    struct output *o = user;
    char text[16];
    int n = snprintf(text, sizeof text, "%s%d", o->n++ ? " " : "", token);
    o->code = os_write(OS_STDOUT, str_n(text, (size_t)n), &o->err);
    return o->code == ERR_OK;
}

static void print_stats(const struct generate_stats *s) {
    double prompt_rate = s->prompt_seconds > 0 ? s->n_prompt / s->prompt_seconds : 0;
    double rate = s->n_new > 1 && s->new_seconds > 0 ? (s->n_new - 1) / s->new_seconds : 0;
    log_info("%d prompt tokens at %.1f tok/s, %d new tokens at %.1f tok/s", s->n_prompt, prompt_rate, s->n_new, rate);
}

static int generate(const struct args *args, struct session *s, struct err *err) {
    struct output out = {.ids = true};
    struct generate_stats stats;
    struct generate_request r = {.max_new = (int32_t)args_int(args, OPT_MAX_TOKENS), .ignore_eos = args_flag(args, OPT_IGNORE_EOS), .on_token = put_token, .user = &out};
    TRY(token_args(args, &r.tokens, &r.n_tokens, err));
    TRY(session_generate(s, &r, &stats, err));
    if (out.code) return err_set(err, out.code, "%s", out.err.msg);
    TRY(os_write(OS_STDOUT, STR("\n"), err));
    print_stats(&stats);
    return ERR_OK;
}

int cmd_generate(const struct args *args, struct err *err) {
    struct session_options o;
    struct session *s;
    struct sb line = {0};
    TRY(session_args(args, &o, err));
    TRY(session_open(&o, &s, err));
    session_describe(s, &line);
    log_info("%s", line.p);
    int code = generate(args, s, err);
    sb_free(&line);
    session_close(s);
    return code;
}
