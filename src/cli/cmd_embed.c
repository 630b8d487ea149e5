/* mlxcel embed: texts to vectors. */
#include "base/json.h"
#include "base/log.h"
#include "cli/session_args.h"
#include "os/os.h"

#include <stdio.h>

enum { TEXTS_AT_ONCE = 256 };

static void put_vector(struct sb *out, const float *v, int32_t n) {
    char text[32];
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (int32_t i = 0; i < n; i++) jsonw_raw(&w, str_n(text, (size_t)snprintf(text, sizeof text, "%.9g", (double)v[i])));
    jsonw_end(&w, ']');
    sb_putc(out, '\n');
}

static int embed_some(struct session *s, const struct session_embedding *how, const struct str *texts, int32_t n, struct err *err) {
    struct sb out = {0};
    float *vectors = mem_alloc((size_t)n * (size_t)how->width * sizeof *vectors + 1);
    int code = session_embed(s, how, texts, n, vectors, err);
    for (int32_t i = 0; i < n && !code; i++) put_vector(&out, vectors + (int64_t)i * how->width, how->width);
    if (!code) code = cli_write(&out, err);
    sb_free(&out);
    mem_free(vectors);
    return code;
}

/* Each line of standard input is a text; as many as are there are computed together. */
static int embed_lines(struct session *s, const struct session_embedding *how, struct err *err) {
    struct arena a = {0};
    struct sb line = {0};
    struct str texts[TEXTS_AT_ONCE];
    bool is_there = true;
    int code = ERR_OK;
    while (is_there && !code) {
        int32_t n = 0;
        while (n < TEXTS_AT_ONCE && !(code = os_read_line(&line, &is_there, err)) && is_there) texts[n++] = str_copy(&a, sb_str(&line));
        if (!code && n) code = embed_some(s, how, texts, n, err);
        arena_reset(&a);
    }
    sb_free(&line);
    arena_free(&a);
    return code;
}

static int embed_operands(const struct args *args, struct session *s, const struct session_embedding *how, struct err *err) {
    for (size_t i = 0; i < args->n_operands; i += TEXTS_AT_ONCE) {
        size_t n = args->n_operands - i < TEXTS_AT_ONCE ? args->n_operands - i : TEXTS_AT_ONCE;
        TRY(embed_some(s, how, args->operands + i, (int32_t)n, err));
    }
    return ERR_OK;
}

int cmd_embed(const struct args *args, struct err *err) {
    struct session_options o;
    struct session *s;
    struct session_embedding how;
    struct sb line = {0};
    if (args_choice(args, OPT_POOLING) == SESSION_POOL_NONE)
        return err_set(err, ERR_EARG, "--pooling none gives a vector for each token, which mlxcel serve alone can tell; name another kind");
    TRY(session_args(args, &o, err));
    o.n_seqs = -1;
    o.n_queue = -1;
    TRY(session_open(&o, &s, err));
    session_describe(s, &line);
    log_info("%s", line.p);
    sb_free(&line);
    struct str prompt = args_given(args, OPT_PROMPT_NAME) ? args_str(args, OPT_PROMPT_NAME) : (struct str){0};
    int code = session_text_load(s, err);
    if (!code) code = session_embedding(s, (enum session_pooling)args_choice(args, OPT_POOLING), prompt, &how, err);
    how.cuts = args_flag(args, OPT_TRUNCATE);
    if (!code) code = args->n_operands ? embed_operands(args, s, &how, err) : embed_lines(s, &how, err);
    session_close(s);
    return code;
}
