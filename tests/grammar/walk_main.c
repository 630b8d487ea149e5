/* grammar_walk: texts that a model with no opinion would write under a grammar.
 *
 * usage: grammar_walk TOKENIZER N_WALKS MAX_TOKENS [PASSES [N_VOCAB]] < lines
 *
 * Each line of standard input is {"schema": ...}, {"gbnf": ...}, {"regex": ...} or {"json_object": true}. Each walk draws tokens from
 * the mask, with a bias towards those that close strings, lists and objects. A line of output is {"refused": why} or {"walks": [...],
 * "compile_us"}; a walk is {"text", "ended", "tokens", "mask_us"}, and one that was cut also has "rest": bytes that complete it
 * (complete.c; absent where the search for them fails).
 * N_VOCAB is the length of the logits, where that is more than the tokenizer has. With PASSES above 1 the same tokens are taken again with a fresh machine, and mask_us is the least time of all passes. A state without a
 * way on, a token that the mask allows and the match does not take (or the other way round) is an error that ends the program. */
#include "complete.h"

#include "api/tokenizer_files.h"
#include "base/json.h"
#include "base/rng.h"
#include "os/os.h"
#include "text/grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>

struct walker {
    struct tok *tok;
    struct gram_vocab *vocab;
    size_t n_vocab;
    int32_t eos;
    bool *closes; /* [size] */
    int32_t *odd; /* tokens with white space and more than a word, quotes or backslashes: masks have ways of their own for those */
    size_t n_odd;
    uint32_t *bits;
    int32_t *allowed;
    uint64_t seed, draw;
    size_t max_tokens;
    int n_passes;
};

static void die(const char *what, struct str text) {
    fprintf(stderr, "grammar_walk: %s after %.*s\n", what, STR_ARG(text));
    exit(1);
}

static uint64_t draw(struct walker *w, uint64_t n) {
    return rng_at(w->seed, 0, w->draw++) % n;
}

static bool is_closer(struct str bytes) {
    bool closes = false;
    for (size_t i = 0; i < bytes.n; i++) {
        if (!memchr("\"}] ", bytes.p[i], 4)) return false;
        if (bytes.p[i] != ' ') closes = true;
    }
    return closes;
}

static bool is_odd(struct str bytes) {
    size_t n = 0, spaces = 0;
    for (size_t i = 0; i < bytes.n; i++) {
        n += memchr("\"\\\n\t\r{}[],:", bytes.p[i], 11) != NULL;
        spaces += bytes.p[i] == ' ';
    }
    return n > 0 || spaces > 1;
}

static size_t list_allowed(struct walker *w, bool closers) {
    size_t n = 0;
    for (size_t i = 0; i < gram_mask_words(w->vocab); i++)
        for (uint32_t word = w->bits[i], k = 0; word; word >>= 1, k++) {
            int32_t id = (int32_t)(32 * i + k);
            if (word & 1 && (!closers || w->closes[id])) w->allowed[n++] = id;
        }
    return n;
}

/* What the mask says and what the match does must be the same; a few tokens are tried at each step. */
static void check_some(struct walker *w, struct gram_match *m, struct str text) {
    for (int i = 0; i < 16; i++) {
        int32_t id = i % 2 && w->n_odd ? w->odd[draw(w, w->n_odd)] : (int32_t)draw(w, w->n_vocab);
        bool is_allowed = w->bits[id / 32] >> id % 32 & 1;
        if (gram_match_token(m, id) != is_allowed) die("mask and match disagree", text);
        if (is_allowed) gram_match_back(m, 1);
    }
}

enum { BIAS = 8 }; /* so often out of ten, a token that closes something is taken where there is one */

static int32_t choose(struct walker *w, struct str text) {
    if (w->bits[w->eos / 32] >> w->eos % 32 & 1) return w->eos;
    size_t n = draw(w, 10) < BIAS ? list_allowed(w, true) : 0;
    if (!n) n = list_allowed(w, false);
    if (!n) die("no token is allowed", text);
    return w->allowed[draw(w, n)];
}

struct walk {
    struct sb text;
    struct tok_ids tokens;
    double *mask_us;
    bool ended, completed;
};

static double timed_mask(struct walker *w, struct gram_match *m) {
    uint64_t from = os_cpu_ns(); /* one thread: what others do on the machine does not count */
    gram_match_mask(m, w->bits);
    return (double)(os_cpu_ns() - from) / 1000;
}

/* The same tokens again, with a machine that knows nothing yet; only the masks are timed. */
static void repeat(struct walker *w, struct gram_machine *machine, struct walk *k) {
    struct gram_match m;
    gram_match_init(&m, machine);
    for (size_t i = 0; i < k->tokens.n; i++) {
        double us = timed_mask(w, &m);
        if (us < k->mask_us[i]) k->mask_us[i] = us;
        gram_match_token(&m, k->tokens.p[i]);
    }
    gram_match_free(&m);
}

static void do_walk(struct walker *w, struct gram_machine *machine, struct walk *k, struct sb *rest) {
    struct gram_match m;
    gram_match_init(&m, machine);
    while (k->tokens.n < w->max_tokens) {
        k->mask_us[k->tokens.n] = timed_mask(w, &m);
        check_some(w, &m, sb_str(&k->text));
        int32_t token = choose(w, sb_str(&k->text));
        tok_ids_put(&k->tokens, token);
        if (!gram_match_token(&m, token)) die("a token of the mask is not taken", sb_str(&k->text));
        if (token == w->eos) {
            k->ended = true;
            break;
        }
        sb_put(&k->text, tok_token_bytes(w->tok, token));
    }
    k->completed = k->ended || complete_text(&m, rest);
    gram_match_free(&m);
}

static void write_walk(struct jsonw *j, const struct walk *k, struct str rest) {
    jsonw_begin(j, '{');
    jsonw_put_str(j, "text", sb_str(&k->text));
    jsonw_put_bool(j, "ended", k->ended);
    if (!k->ended && k->completed) jsonw_put_str(j, "rest", rest);
    jsonw_open(j, "tokens", '[');
    for (size_t i = 0; i < k->tokens.n; i++) jsonw_int(j, k->tokens.p[i]);
    jsonw_end(j, ']');
    jsonw_open(j, "mask_us", '[');
    for (size_t i = 0; i < k->tokens.n; i++) jsonw_num(j, k->mask_us[i]);
    jsonw_end(j, ']');
    jsonw_end(j, '}');
}

static void walk_grammar(struct walker *w, const struct gram *g, int n_walks, struct jsonw *j) {
    struct walk *walks = mem_alloc((size_t)n_walks * sizeof *walks);
    struct sb *rests = mem_alloc((size_t)n_walks * sizeof *rests);
    for (int pass = 0; pass < w->n_passes; pass++) {
        struct gram_machine *machine = gram_machine_create(g, w->vocab, &w->eos, 1);
        for (int i = 0; i < n_walks; i++) {
            if (pass) {
                repeat(w, machine, &walks[i]);
                continue;
            }
            walks[i].mask_us = mem_alloc((w->max_tokens + 1) * sizeof *walks[i].mask_us);
            do_walk(w, machine, &walks[i], &rests[i]);
        }
        gram_machine_destroy(machine);
    }
    jsonw_open(j, "walks", '[');
    for (int i = 0; i < n_walks; i++) {
        write_walk(j, &walks[i], sb_str(&rests[i]));
        sb_free(&walks[i].text);
        sb_free(&rests[i]);
        tok_ids_free(&walks[i].tokens);
        mem_free(walks[i].mask_us);
    }
    jsonw_end(j, ']');
    mem_free(walks);
    mem_free(rests);
}

static struct gram_source source_of(struct arena *a, yyjson_val *v) {
    yyjson_val *schema = json_get(v, "schema");
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    if (json_get(v, "gbnf")) return (struct gram_source){.kind = GRAM_GBNF, .text = json_str(v, "gbnf", STR(""))};
    if (json_get(v, "regex")) return (struct gram_source){.kind = GRAM_REGEX, .text = json_str(v, "regex", STR(""))};
    if (!schema) return (struct gram_source){.kind = GRAM_JSON_OBJECT};
    jsonw_val(&w, schema);
    struct gram_source s = {.kind = GRAM_JSON_SCHEMA, .text = str_copy(a, sb_str(&text))};
    sb_free(&text);
    return s;
}

static void answer(struct walker *w, struct str line, int n_walks, struct sb *out) {
    struct arena a = {0};
    struct err err = {0};
    struct jsonw j = {.out = out};
    struct gram *g = NULL;
    yyjson_val *v;
    if (json_parse(&a, line, "line", JSON_RAW_NUMBERS, &v, &err)) die(err.msg, line);
    struct gram_source source = source_of(&a, v);
    struct gram_options options = gram_defaults();
    uint64_t least = UINT64_MAX;
    int code = 0;
    for (int pass = 0; pass < w->n_passes && !code; pass++) {
        gram_destroy(g);
        uint64_t from = os_cpu_ns();
        code = gram_compile(&source, &options, NULL, &g, &err);
        uint64_t used = os_cpu_ns() - from;
        least = used < least ? used : least;
    }
    jsonw_begin(&j, '{');
    if (code) jsonw_put_str(&j, "refused", str_of(err.msg));
    else walk_grammar(w, g, n_walks, &j);
    jsonw_put_num(&j, "compile_us", (double)least / 1000);
    jsonw_end(&j, '}');
    sb_putc(out, '\n');
    gram_destroy(g);
    arena_free(&a);
}

int main(int argc, char **argv) {
    struct walker w = {.seed = 1, .n_passes = argc > 4 ? atoi(argv[4]) : 1};
    struct err err = {0};
    struct sb line = {0}, out = {0};
    bool is_there;
    if (argc < 4) die("usage: grammar_walk TOKENIZER N_WALKS MAX_TOKENS [PASSES [N_VOCAB]]", STR(""));
    if (text_tokenizer_open(argv[1], &w.tok, &err)) die(err.msg, STR(""));
    size_t n = tok_vocab_size(w.tok);
    w.max_tokens = (size_t)atoi(argv[3]);
    w.eos = (int32_t)n; /* one more than the vocabulary has */
    uint64_t from = os_clock_ns();
    w.n_vocab = argc > 5 ? (size_t)atoi(argv[5]) : 0;
    if (w.n_vocab <= n) w.n_vocab = n + 1;
    w.vocab = gram_vocab_create(w.tok, w.n_vocab, NULL, 0, &err);
    if (!w.vocab) die(err.msg, STR(""));
    fprintf(stderr, "vocabulary of %zu in %.0f ms\n", w.n_vocab, (double)(os_clock_ns() - from) / 1e6);
    w.bits = mem_alloc(gram_mask_words(w.vocab) * sizeof *w.bits);
    w.allowed = mem_alloc((n + 1) * sizeof *w.allowed);
    w.closes = mem_alloc(n + 1);
    for (size_t i = 0; i < n; i++) w.closes[i] = !tok_is_special(w.tok, (int32_t)i) && is_closer(tok_token_bytes(w.tok, (int32_t)i));
    w.odd = mem_alloc((n + 1) * sizeof *w.odd);
    for (size_t i = 0; i < n; i++)
        if (!tok_is_special(w.tok, (int32_t)i) && is_odd(tok_token_bytes(w.tok, (int32_t)i))) w.odd[w.n_odd++] = (int32_t)i;
    while (!os_read_line(&line, &is_there, &err) && is_there) {
        sb_clear(&out);
        answer(&w, sb_str(&line), atoi(argv[2]), &out);
        if (os_write(OS_STDOUT, sb_str(&out), &err)) die(err.msg, STR(""));
    }
    sb_free(&line);
    sb_free(&out);
    mem_free(w.bits);
    mem_free(w.allowed);
    mem_free(w.closes);
    mem_free(w.odd);
    gram_vocab_destroy(w.vocab);
    tok_destroy(w.tok);
    return 0;
}
