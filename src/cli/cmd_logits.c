/* mlxcel logits and mlxcel trace: looking inside a model. */
#include "cli/session_args.h"
#include "os/os.h"
#include "tools/probe.h"

struct logits_file {
    struct os_file *file;
    uint64_t at;
    int32_t vocab;
};

static int write_row(void *user, const float *row, struct err *err) {
    struct logits_file *f = user;
    size_t n = (size_t)f->vocab * sizeof *row;
    TRY(os_file_write_at(f->file, row, n, f->at, err));
    f->at += n;
    return ERR_OK;
}

/* Rows that are cut off would be read as logits by whoever does not look at the exit code. A device stays. */
static void remove_part(const char *path) {
    struct os_stat st;
    if (os_stat(path, &st, NULL) == ERR_OK && st.is_file) os_remove(path, NULL);
}

/* --tokens, or --prompt as generate takes it; with the pictures. */
static int read_prompt(const struct args *args, struct session *s, struct job_spec *out, struct err *err) {
    struct session_prompt prompt = {.raw = args_flag(args, OPT_NO_TEMPLATE)};
    struct session_ids ids;
    TRY(session_args_images(args, &prompt.images, &prompt.n_images, err));
    if (out->n_tokens) return session_attach_files(s, prompt.images, prompt.n_images, out, err);
    TRY(args_prompt(args, &prompt.text, err));
    TRY(session_encode(s, &prompt, &ids, err));
    if (ids.n > INT32_MAX) return err_set(err, ERR_ELIMIT, "the prompt has too many tokens");
    out->tokens = ids.p;
    out->n_tokens = (int32_t)ids.n;
    return session_attach(s, out, err);
}

int cmd_logits(const struct args *args, struct err *err) {
    struct session_options o;
    struct session *s;
    struct job_spec prompt = {0};
    const char *path = args_cstr(args, OPT_OUT_FILE);
    TRY(args_tokens(args, &prompt.tokens, &prompt.n_tokens, err));
    if (!path) return err_set(err, ERR_EARG, "--out FILE is missing");
    if (!prompt.n_tokens == !args_str(args, OPT_PROMPT).p)
        return err_set(err, ERR_EARG, "give --tokens IDS or --prompt TEXT, and not both");
    TRY(session_args(args, &o, err));
    o.n_logits = -1;
    TRY(session_open(&o, &s, err));
    struct logits_file f = {.vocab = session_vocab(s)};
    int code = read_prompt(args, s, &prompt, err);
    if (!code) code = os_file_open(path, OS_WRITE, &f.file, err);
    bool is_open = code == ERR_OK;
    if (!code) code = probe_logits(s, &prompt, write_row, &f, err);
    os_file_close(f.file);
    if (code && is_open) remove_part(path);
    session_close(s);
    return code;
}

int cmd_trace(const struct args *args, struct err *err) {
    struct session_options o;
    struct session *s;
    struct sb out = {0};
    TRY(session_args(args, &o, err));
    o.backend = "trace";
    TRY(session_open(&o, &s, err));
    int code = probe_trace(s, (int32_t)args_int(args, OPT_TRACE_ROWS), &out, err);
    if (!code) code = cli_write(&out, err);
    sb_free(&out);
    session_close(s);
    return code;
}
