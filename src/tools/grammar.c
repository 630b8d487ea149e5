/* Verdicts and masks, as text and as lines of JSON. */
#include "tools/grammar.h"

#include "api/tokenizer_files.h"
#include "base/json.h"
#include "os/os.h"

int grammar_tool_open(const char *model, bool with_masks, struct grammar_tool *out, struct err *err) {
    *out = (struct grammar_tool){.options = gram_judging()};
    if (!with_masks) return ERR_OK;
    TRY(text_tokenizer_open(model, &out->tok, err));
    out->vocab = gram_vocab_create(out->tok, tok_vocab_size(out->tok), NULL, 0, err);
    return out->vocab ? ERR_OK : ERR_EMEMORY;
}

void grammar_tool_close(struct grammar_tool *t) {
    gram_vocab_destroy(t->vocab);
    tok_destroy(t->tok);
}

static void judge_bytes(struct gram_match *m, struct str text, struct grammar_verdict *out) {
    *out = (struct grammar_verdict){.at = gram_match_bytes(m, text)};
    out->must_go_on = out->at == text.n && !gram_match_may_end(m);
    out->is_accepted = out->at == text.n && !out->must_go_on;
    if (out->is_accepted) return;
    if (!out->must_go_on) gram_match_bytes(m, str_sub(text, 0, out->at));
    gram_match_next_bytes(m, out->allowed);
}

static size_t count_bits(const uint32_t *bits, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        for (uint32_t w = bits[i]; w; w &= w - 1) count++;
    return count;
}

/* ---- masks ------------------------------------------------------------------------------------------------------------- */

struct mask_row {
    int32_t token;
    size_t n_allowed;
    uint64_t ns;
    bool is_taken;
};

/* Walks the text's own tokens; stops at the first that is not allowed. */
static size_t walk_tokens(const struct grammar_tool *t, struct gram_match *m, struct str text, struct mask_row **out) {
    struct tok_ids ids = {0};
    struct err err;
    size_t n = 0;
    uint32_t *bits = mem_alloc(gram_mask_words(t->vocab) * sizeof *bits);
    if (tok_encode(t->tok, text, 0, &ids, &err)) ids.n = 0;
    *out = mem_alloc((ids.n + 1) * sizeof **out);
    while (n < ids.n) {
        struct mask_row *r = &(*out)[n++];
        uint64_t from = os_clock_ns();
        gram_match_mask(m, bits);
        r->ns = os_clock_ns() - from;
        r->token = ids.p[n - 1];
        r->n_allowed = count_bits(bits, gram_mask_words(t->vocab));
        r->is_taken = gram_match_token(m, r->token);
        if (!r->is_taken) break;
    }
    mem_free(bits);
    tok_ids_free(&ids);
    return n;
}

static void report_masks(const struct grammar_tool *t, const struct mask_row *rows, size_t n, struct sb *out) {
    sb_puts(out, "   allowed   mask, us  token\n");
    for (size_t i = 0; i < n; i++) {
        sb_fmt(out, "%10zu %10.1f  ", rows[i].n_allowed, (double)rows[i].ns / 1000);
        json_quote(out, tok_token_bytes(t->tok, rows[i].token));
        sb_puts(out, rows[i].is_taken ? "\n" : "  not allowed\n");
    }
}

static void report_masks_json(const struct grammar_tool *t, const struct mask_row *rows, size_t n, struct jsonw *w) {
    jsonw_open(w, "tokens", '[');
    for (size_t i = 0; i < n; i++) {
        jsonw_begin(w, '{');
        jsonw_put_int(w, "id", rows[i].token);
        jsonw_put_str(w, "text", tok_token_bytes(t->tok, rows[i].token));
        jsonw_put_int(w, "allowed", (int64_t)rows[i].n_allowed);
        jsonw_put_num(w, "mask_us", (double)rows[i].ns / 1000);
        jsonw_put_bool(w, "taken", rows[i].is_taken);
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
}

static bool is_allowed(const struct grammar_verdict *v, int byte) {
    return byte < 256 && v->allowed[byte / 32] >> byte % 32 & 1;
}

/* Printable ASCII as it is, the rest in hex. */
static void put_byte(struct sb *out, int byte) {
    sb_fmt(out, byte > 0x20 && byte < 0x7F ? "%c" : "0x%02X", byte);
}

static void report_allowed(const struct grammar_verdict *v, struct sb *out) {
    const char *before = "; allowed:";
    for (int from = 0, to; from < 256; from = to + 1) {
        for (to = from; is_allowed(v, from) && is_allowed(v, to + 1);) to++;
        if (!is_allowed(v, from)) continue;
        sb_puts(out, before);
        sb_putc(out, ' ');
        put_byte(out, from);
        if (to > from) sb_puts(out, to > from + 1 ? " to " : " ");
        if (to > from) put_byte(out, to);
        before = "";
    }
    sb_putc(out, '\n');
}

static void report_verdict(const struct grammar_verdict *v, struct sb *out) {
    if (v->is_accepted) sb_puts(out, "accepted\n");
    else if (v->must_go_on) sb_fmt(out, "rejected: the text must go on after its %zu bytes", v->at);
    else sb_fmt(out, "rejected: byte %zu is not allowed", v->at);
    if (!v->is_accepted) report_allowed(v, out);
}

static void report_json(const struct grammar_tool *t, const struct grammar_verdict *v, const struct mask_row *rows, size_t n,
                        struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "verdict", v->is_accepted ? STR("accepted") : STR("rejected"));
    if (!v->is_accepted) jsonw_put_int(&w, "at", (int64_t)v->at);
    if (!v->is_accepted) jsonw_put_bool(&w, "must_go_on", v->must_go_on);
    if (t->vocab) report_masks_json(t, rows, n, &w);
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
}

void grammar_tool_refused(const struct err *err, struct sb *report) {
    struct str why = str_of(err->msg);
    size_t end = str_starts(why, STR("at #")) ? str_find(why, STR(": "), 0) : STR_NONE;
    struct jsonw w = {.out = report};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "verdict", STR("refused"));
    jsonw_put_str(&w, "reason", end == STR_NONE ? why : str_from(why, end + 2));
    if (end != STR_NONE) jsonw_put_str(&w, "path", str_sub(why, 3, end - 3));
    jsonw_end(&w, '}');
    sb_putc(report, '\n');
}

void grammar_tool_judge(const struct grammar_tool *t, const struct gram *g, struct str text, bool as_json, struct grammar_verdict *out,
                        struct sb *report) {
    struct gram_machine *machine = gram_machine_create(g, t->vocab, NULL, 0);
    struct gram_match m;
    struct mask_row *rows = NULL;
    size_t n = 0;
    gram_match_init(&m, machine);
    if (t->vocab) n = walk_tokens(t, &m, text, &rows);
    gram_match_free(&m);
    gram_match_init(&m, machine);
    judge_bytes(&m, text, out);
    gram_match_free(&m);
    if (as_json) {
        report_json(t, out, rows, n, report);
    } else {
        if (t->vocab) report_masks(t, rows, n, report);
        report_verdict(out, report);
    }
    mem_free(rows);
    gram_machine_destroy(machine);
}

/* ---- lines of JSON ----------------------------------------------------------------------------------------------------- */

static void write_masks(const struct grammar_tool *t, struct gram_match *m, struct str text, struct jsonw *w) {
    struct mask_row *rows;
    size_t n = walk_tokens(t, m, text, &rows);
    jsonw_open(w, "tokens", '[');
    for (size_t i = 0; i < n; i++) jsonw_int(w, rows[i].token);
    jsonw_end(w, ']');
    jsonw_open(w, "allowed", '[');
    for (size_t i = 0; i < n; i++) jsonw_int(w, (int64_t)rows[i].n_allowed);
    jsonw_end(w, ']');
    jsonw_open(w, "mask_us", '[');
    for (size_t i = 0; i < n; i++) jsonw_num(w, (double)rows[i].ns / 1000);
    jsonw_end(w, ']');
    mem_free(rows);
}

static void write_result(const struct grammar_tool *t, struct gram_machine *machine, struct str text, struct jsonw *w) {
    struct gram_match m;
    struct grammar_verdict v;
    jsonw_begin(w, '{');
    gram_match_init(&m, machine);
    if (t->vocab) write_masks(t, &m, text, w);
    gram_match_free(&m);
    gram_match_init(&m, machine);
    judge_bytes(&m, text, &v);
    jsonw_put_bool(w, "accepted", v.is_accepted);
    if (!v.is_accepted) jsonw_put_int(w, "at", (int64_t)v.at);
    gram_match_free(&m);
    jsonw_end(w, '}');
}

static int read_source(struct arena *a, yyjson_val *line, struct gram_source *out, struct err *err) {
    yyjson_val *schema = json_get(line, "schema");
    if (schema) {
        struct sb text = {0};
        struct jsonw w = {.out = &text};
        jsonw_val(&w, schema);
        *out = (struct gram_source){.kind = GRAM_JSON_SCHEMA, .text = str_copy(a, sb_str(&text))};
        sb_free(&text);
    } else if (json_get(line, "gbnf")) {
        *out = (struct gram_source){.kind = GRAM_GBNF, .text = json_str(line, "gbnf", STR(""))};
    } else if (json_get(line, "regex")) {
        *out = (struct gram_source){.kind = GRAM_REGEX, .text = json_str(line, "regex", STR(""))};
    } else if (json_bool(line, "json_object", false)) {
        *out = (struct gram_source){.kind = GRAM_JSON_OBJECT};
    } else {
        return err_set(err, ERR_EARG, "a line has one of schema, gbnf, regex, json_object");
    }
    return ERR_OK;
}

static void write_lines(struct jsonw *w, const char *key, struct str text) {
    struct str line;
    jsonw_open(w, key, '[');
    while (text.n && str_split_next(&text, '\n', &line))
        if (line.n) jsonw_str(w, line);
    jsonw_end(w, ']');
}

static void write_results(const struct grammar_tool *t, const struct gram *g, yyjson_val *texts, struct jsonw *w) {
    struct gram_machine *machine = gram_machine_create(g, t->vocab, NULL, 0);
    size_t i, n;
    yyjson_val *text;
    jsonw_open(w, "results", '[');
    yyjson_arr_foreach(texts, i, n, text) write_result(t, machine, json_val_str(text).p ? json_val_str(text) : STR(""), w);
    jsonw_end(w, ']');
    gram_machine_destroy(machine);
}

void grammar_tool_line(const struct grammar_tool *t, struct str line, struct sb *out) {
    struct arena a = {0};
    struct err err = {0};
    struct sb warnings = {0};
    struct jsonw w = {.out = out};
    struct gram_source source;
    struct gram *g = NULL;
    yyjson_val *v;
    int code = json_parse(&a, line, "line", JSON_RAW_NUMBERS, &v, &err);
    if (!code) code = read_source(&a, v, &source, &err);
    uint64_t from = os_clock_ns();
    if (!code) code = gram_compile(&source, &t->options, &warnings, &g, &err);
    uint64_t ns = os_clock_ns() - from;
    jsonw_begin(&w, '{');
    if (code) jsonw_put_str(&w, "refused", str_of(err.msg));
    else write_results(t, g, json_get(v, "texts"), &w);
    jsonw_put_num(&w, "compile_us", (double)ns / 1000);
    write_lines(&w, "warnings", sb_str(&warnings));
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
    gram_destroy(g);
    sb_free(&warnings);
    arena_free(&a);
}
