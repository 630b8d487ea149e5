/* mlxcel perplexity: how well a model predicts a file. */
#include "tools/perplexity.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/session_args.h"
#include "os/os.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

static bool show(void *user, uint64_t done, uint64_t total, double perplexity) {
    (void)user;
    struct sb line = {0};
    if (os_is_terminal(OS_STDERR)) {
        sb_fmt(&line, "\r%3.0f%% of %llu tokens", 100.0 * (double)done / (double)total, (unsigned long long)total);
        if (perplexity > 0) sb_fmt(&line, ", perplexity %.4f ", perplexity);
        os_write(OS_STDERR, sb_str(&line), NULL);
    }
    sb_free(&line);
    return !interrupt_came();
}

static void print(const struct perplexity_result *r, int32_t chunk, bool json, struct sb *out) {
    struct jsonw w = {.out = out};
    if (!json) {
        sb_fmt(out, "perplexity %.4f +- %.4f (%llu tokens predicted in %llu chunk%s of %d)\n", r->perplexity, r->error,
               (unsigned long long)r->n_predicted, (unsigned long long)r->n_chunks, r->n_chunks == 1 ? "" : "s", chunk);
        return;
    }
    jsonw_begin(&w, '{');
    jsonw_put_num(&w, "perplexity", r->perplexity);
    jsonw_put_num(&w, "error", r->error);
    jsonw_put_int(&w, "tokens", (int64_t)r->n_predicted);
    jsonw_put_int(&w, "chunks", (int64_t)r->n_chunks);
    jsonw_put_int(&w, "chunk", chunk);
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
}

static int measure(const struct args *args, struct session *s, struct str text, struct err *err) {
    struct perplexity_options o = {.chunk = (int32_t)args_int(args, OPT_CHUNK), .progress = show};
    struct perplexity_result r;
    struct session_ids ids;
    struct sb out = {0};
    TRY(session_encode(s, &(struct session_prompt){.text = text, .raw = true}, &ids, err));
    o.tokens = ids.p;
    o.n_tokens = ids.n;
    if (o.chunk > session_context(s)) o.chunk = session_context(s);
    interrupt_begin();
    int code = perplexity_run(s, &o, &r, err);
    interrupt_end();
    if (os_is_terminal(OS_STDERR)) os_write(OS_STDERR, STR("\n"), NULL);
    if (code) return code;
    print(&r, o.chunk, args_flag(args, OPT_JSON), &out);
    code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

int cmd_perplexity(const struct args *args, struct err *err) {
    struct session_options o;
    struct session *s;
    struct str text;
    struct sb line = {0};
    /* the text first: a model may have to be downloaded */
    if (str_is(args->operands[0], "-")) TRY(os_read_stdin(args->arena, TEXT_BYTES_MAX, &text, err));
    else TRY(os_input_load(args->arena, os_path(args->arena, args->operands[0]), TEXT_BYTES_MAX, &text, err));
    TRY(session_args(args, &o, err));
    o.n_seqs = (int32_t)args_int(args, OPT_CHUNKS_AT_ONCE);
    o.context = (int32_t)args_int(args, OPT_CHUNK);
    o.n_logits = -1;
    TRY(session_open(&o, &s, err));
    session_describe(s, &line);
    log_info("%s", line.p);
    int code = measure(args, s, text, err);
    sb_free(&line);
    session_close(s);
    return code;
}
