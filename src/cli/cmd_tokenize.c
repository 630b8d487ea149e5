/* mlxcel tokenize, mlxcel detokenize: text to token ids and back. */
#include "api/tokenizer_files.h"
#include "base/json.h"
#include "cli/session_args.h"
#include "cli/store_args.h"
#include "os/os.h"

enum { MAX_STDIN_BYTES = 1 << 30 };

static int open_tokenizer(const struct args *args, struct tok **out, struct err *err) {
    const char *path;
    TRY(args_model(args, args_str(args, OPT_TOKENIZER), &path, NULL, err));
    return text_tokenizer_open(path, out, err);
}

static void write_ids(struct sb *out, const struct tok_ids *ids) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (size_t i = 0; i < ids->n; i++) jsonw_int(&w, ids->p[i]);
    jsonw_end(&w, ']');
    sb_putc(out, '\n');
}

/* One token to a line: its id, and the text that it stands for. */
static void write_table(struct sb *out, const struct tok *t, const struct tok_ids *ids) {
    for (size_t i = 0; i < ids->n; i++) {
        struct str text = tok_is_special(t, ids->p[i]) ? tok_token_text(t, ids->p[i]) : tok_token_bytes(t, ids->p[i]);
        sb_fmt(out, "%8d  ", (int)ids->p[i]);
        json_quote(out, text);
        sb_putc(out, '\n');
    }
}

/* Reads one JSON value per line and answers each with one line, so that another program can ask and wait. */
typedef int line_fn(const struct args *args, const struct tok *t, struct tok_work *w, yyjson_val *value, struct sb *out, struct err *err);

static int each_line(const struct args *args, const struct tok *t, line_fn *answer, struct err *err) {
    struct tok_work *w = tok_work_create();
    struct sb line = {0}, out = {0};
    struct arena a = {0};
    bool is_there;
    int code;
    for (size_t number = 1; !(code = os_read_line(&line, &is_there, err)) && is_there; number++) {
        struct str text = sb_str(&line);
        yyjson_val *value;
        if (str_trim(text).n == 0) continue;
        sb_clear(&out);
        code = json_parse(&a, text, "input", JSON_STRICT, &value, err);
        if (!code) code = answer(args, t, w, value, &out, err);
        if (code) err_prefix(err, "line %zu", number);
        else code = cli_write(&out, err);
        arena_reset(&a);
        if (code) break;
    }
    arena_free(&a);
    sb_free(&line);
    sb_free(&out);
    tok_work_destroy(w);
    return code;
}

static unsigned encode_flags(const struct args *args) {
    return (args_flag(args, OPT_ADD_SPECIAL) ? TOK_ADD_SPECIAL : 0) | (args_flag(args, OPT_PARSE_SPECIAL) ? TOK_PARSE_SPECIAL : 0);
}

static int tokenize_line(const struct args *args, const struct tok *t, struct tok_work *w, yyjson_val *value, struct sb *out,
                         struct err *err) {
    struct tok_ids ids = {0};
    if (!yyjson_is_str(value)) return err_set(err, ERR_EFORMAT, "not a JSON string");
    struct tok_span span = {json_val_str(value), true};
    int code = tok_encode_spans(t, w, &span, 1, encode_flags(args), &ids, err);
    if (!code) write_ids(out, &ids);
    tok_ids_free(&ids);
    return code;
}

static int tokenize(const struct args *args, const struct tok *t, struct err *err) {
    if (args_flag(args, OPT_JSONL)) return each_line(args, t, tokenize_line, err);
    struct str text = args_str(args, OPT_TEXT);
    if (!text.p) TRY(os_read_stdin(args->arena, MAX_STDIN_BYTES, &text, err));
    struct tok_ids ids = {0};
    struct sb out = {0};
    int code = tok_encode(t, text, encode_flags(args), &ids, err);
    if (!code) {
        if (args_flag(args, OPT_JSON)) write_ids(&out, &ids);
        else write_table(&out, t, &ids);
        code = cli_write(&out, err);
    }
    sb_free(&out);
    tok_ids_free(&ids);
    return code;
}

/* With pictures the tokens are those that the model gets: it takes the tower's sizes to count them. */
static int tokenize_with_images(const struct args *args, struct err *err) {
    struct session_options o = {.device = "cpu"};
    struct session_prompt prompt = {.text = args_str(args, OPT_TEXT), .raw = true};
    struct session *s;
    struct session_ids ids;
    struct sb out = {0};
    TRY(session_args_images(args, &prompt.images, &prompt.n_images, err));
    if (!prompt.text.p) TRY(os_read_stdin(args->arena, MAX_STDIN_BYTES, &prompt.text, err));
    TRY(args_model(args, args_str(args, OPT_TOKENIZER), &o.model, &o.name, err));
    TRY(session_open(&o, &s, err));
    int code = session_encode(s, &prompt, &ids, err);
    struct tok_ids all = {.p = ids.p, .n = ids.n};
    if (!code) write_ids(&out, &all);
    if (!code) code = cli_write(&out, err);
    sb_free(&out);
    session_close(s);
    return code;
}

int cmd_tokenize(const struct args *args, struct err *err) {
    struct tok *t;
    if (args_given(args, OPT_IMAGE)) return tokenize_with_images(args, err);
    TRY(open_tokenizer(args, &t, err));
    int code = tokenize(args, t, err);
    tok_destroy(t);
    return code;
}

static int put_id(const struct tok *t, int64_t id, struct tok_ids *ids, struct err *err) {
    if (id < 0 || (uint64_t)id >= tok_vocab_size(t))
        return err_set(err, ERR_EARG, "id %lld is not in the vocabulary of %zu", (long long)id, tok_vocab_size(t));
    tok_ids_put(ids, (int32_t)id);
    return ERR_OK;
}

static bool parts_ids(char c) {
    return c == ',' || c == ' ' || (c >= '\t' && c <= '\r') || c == '[' || c == ']';
}

/* "5 6,7", or the array that tokenize --json prints. */
static int parse_ids(const struct tok *t, struct str text, struct tok_ids *ids, struct err *err) {
    for (size_t from = 0, to; from < text.n; from = to + 1) {
        for (to = from; to < text.n && !parts_ids(text.p[to]);) to++;
        struct str number = str_sub(text, from, to - from);
        int64_t id;
        if (number.n == 0) continue;
        if (!str_to_int64(number, &id)) return err_set(err, ERR_EARG, "\"%.*s\" is not a token id", STR_ARG(number));
        TRY(put_id(t, id, ids, err));
    }
    return ERR_OK;
}

static int read_ids(const struct args *args, const struct tok *t, struct tok_ids *ids, struct err *err) {
    struct str text;
    for (size_t i = 0; i < args->n_operands; i++) TRY(parse_ids(t, args->operands[i], ids, err));
    if (args->n_operands) return ERR_OK;
    TRY(os_read_stdin(args->arena, MAX_STDIN_BYTES, &text, err));
    return parse_ids(t, text, ids, err);
}

static int detokenize_line(const struct args *args, const struct tok *t, struct tok_work *w, yyjson_val *value, struct sb *out,
                           struct err *err) {
    struct tok_ids ids = {0};
    struct sb text = {0};
    yyjson_val *item;
    size_t i, n;
    int code = yyjson_is_arr(value) ? ERR_OK : err_set(err, ERR_EFORMAT, "not a JSON array");
    (void)w;
    if (!code) yyjson_arr_foreach(value, i, n, item) {
            int64_t id;
            code = json_val_int(item, &id) ? put_id(t, id, &ids, err) : err_set(err, ERR_EFORMAT, "element %zu is not a token id", i);
            if (code) break;
        }
    if (!code) code = tok_decode(t, ids.p, ids.n, args_flag(args, OPT_SKIP_SPECIAL), &text, err);
    if (!code) {
        json_quote(out, sb_str(&text));
        sb_putc(out, '\n');
    }
    sb_free(&text);
    tok_ids_free(&ids);
    return code;
}

static int detokenize(const struct args *args, const struct tok *t, struct err *err) {
    if (args_flag(args, OPT_JSONL)) {
        if (args->n_operands) return err_set(err, ERR_EARG, "--jsonl reads ids from standard input: leave out the arguments");
        return each_line(args, t, detokenize_line, err);
    }
    struct tok_ids ids = {0};
    struct sb text = {0}, out = {0};
    int code = read_ids(args, t, &ids, err);
    if (!code) code = tok_decode(t, ids.p, ids.n, args_flag(args, OPT_SKIP_SPECIAL), &text, err);
    if (!code) {
        if (args_flag(args, OPT_JSON)) json_quote(&out, sb_str(&text));
        else sb_put(&out, sb_str(&text));
        sb_putc(&out, '\n');
        code = cli_write(&out, err);
    }
    sb_free(&out);
    sb_free(&text);
    tok_ids_free(&ids);
    return code;
}

int cmd_detokenize(const struct args *args, struct err *err) {
    struct tok *t;
    TRY(open_tokenizer(args, &t, err));
    int code = detokenize(args, t, err);
    tok_destroy(t);
    return code;
}
