/* mlxcel rerank: documents by how well they answer a query. */
#include "base/json.h"
#include "base/log.h"
#include "cli/session_args.h"
#include "os/os.h"

#include <stdlib.h>

enum { DOCUMENTS_MAX = 1 << 16 };

struct ranked {
    struct session_question *questions; /* [n] */
    float *scores;
    int32_t *order;
    int32_t n;
};

/* Each line of standard input is a document. */
static int read_lines(const struct args *args, struct ranked *r, struct err *err) {
    struct sb line = {0};
    bool is_there = true;
    int code = ERR_OK;
    while (!code && !(code = os_read_line(&line, &is_there, err)) && is_there) {
        if (r->n == DOCUMENTS_MAX) code = err_set(err, ERR_ELIMIT, "more than %d documents", DOCUMENTS_MAX);
        else r->questions[r->n++].document = str_copy(args->arena, sb_str(&line));
    }
    sb_free(&line);
    return code;
}

static int read_documents(const struct args *args, struct ranked *r, struct err *err) {
    r->questions = arena_new(args->arena, struct session_question, DOCUMENTS_MAX);
    if (args->n_operands - 1 > DOCUMENTS_MAX) return err_set(err, ERR_ELIMIT, "more than %d documents", DOCUMENTS_MAX);
    for (size_t i = 1; i < args->n_operands; i++) r->questions[r->n++].document = args->operands[i];
    if (r->n == 0) TRY(read_lines(args, r, err));
    if (r->n == 0) return err_set(err, ERR_EARG, "there is no document to judge");
    for (int32_t i = 0; i < r->n; i++) {
        r->questions[i].query = args->operands[0];
        r->questions[i].cuts = args_flag(args, OPT_TRUNCATE);
        if (args_given(args, OPT_INSTRUCTION)) r->questions[i].instruction = args_str(args, OPT_INSTRUCTION);
    }
    r->scores = arena_new(args->arena, float, r->n);
    r->order = arena_new(args->arena, int32_t, r->n);
    return ERR_OK;
}

static const float *sorted_scores; /* qsort hands nothing on */

static int by_score(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    if (sorted_scores[i] != sorted_scores[k]) return sorted_scores[i] > sorted_scores[k] ? -1 : 1;
    return i < k ? -1 : i > k;
}

static void print(const struct args *args, const struct ranked *r, struct sb *out) {
    struct jsonw w = {.out = out};
    bool json = args_flag(args, OPT_JSON);
    int32_t n = args_given(args, OPT_TOP_N) && args_int(args, OPT_TOP_N) < r->n ? (int32_t)args_int(args, OPT_TOP_N) : r->n;
    if (json) jsonw_begin(&w, '[');
    for (int32_t i = 0; i < n; i++) {
        int32_t at = r->order[i];
        struct str text = r->questions[at].document;
        if (!json) {
            sb_fmt(out, "%.6f  %d  %.*s\n", (double)r->scores[at], at, STR_ARG(text));
            continue;
        }
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "index", at);
        jsonw_put_num(&w, "relevance_score", (double)r->scores[at]);
        jsonw_put_str(&w, "document", text);
        jsonw_end(&w, '}');
    }
    if (json) jsonw_end(&w, ']');
    if (json) sb_putc(out, '\n');
}

static int rank(const struct args *args, struct session *s, struct ranked *r, struct err *err) {
    struct sb out = {0};
    TRY(session_text_load(s, err));
    TRY(session_score(s, r->questions, r->n, r->scores, err));
    for (int32_t i = 0; i < r->n; i++) r->order[i] = i;
    sorted_scores = r->scores;
    qsort(r->order, (size_t)r->n, sizeof *r->order, by_score);
    print(args, r, &out);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

int cmd_rerank(const struct args *args, struct err *err) {
    struct session_options o;
    struct session *s;
    struct ranked r = {0};
    struct sb line = {0};
    TRY(read_documents(args, &r, err));
    TRY(session_args(args, &o, err));
    o.n_seqs = -1;
    o.n_queue = -1;
    o.prefix_cache = true;
    TRY(session_open(&o, &s, err));
    session_describe(s, &line);
    log_info("%s", line.p);
    sb_free(&line);
    int code = rank(args, s, &r, err);
    session_close(s);
    return code;
}
