/* grammar_walk: texts that a model with no opinion would write under a grammar.
 *
 * usage: grammar_walk TOKENIZER N_WALKS MAX_TOKENS [PASSES [N_VOCAB]] < lines
 *
 * Each line of standard input is {"schema": ...}, {"gbnf": ...}, {"regex": ...} or {"json_object": true}. Each walk draws tokens from
 * the mask, with a bias towards those that close strings, lists and objects. A line of output is {"refused": why} or {"walks": [...],
 * "compile_us"}; a walk is {"text", "ended", "tokens", "mask_us"}, and one that was cut also has "rest": bytes that complete it
 * (absent where the search for them fails).
 * N_VOCAB is the length of the logits, where that is more than the tokenizer has. With PASSES above 1 the same tokens are taken again with a fresh machine, and mask_us is the least time of all passes. A state without a
 * way on, a token that the mask allows and the match does not take (or the other way round) is an error that ends the program. */
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
    for (int i = 0; i < 8; i++) {
        int32_t id = (int32_t)draw(w, w->n_vocab);
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

/* ---- completing a text that was cut -------------------------------------------------------------------------------------- */

static bool has_byte(const uint32_t bits[8], int b) {
    return bits[b / 32] >> b % 32 & 1;
}

static bool has_any(const uint32_t bits[8], const char *bytes) {
    for (; *bytes; bytes++)
        if (has_byte(bits, (uint8_t)*bytes)) return true;
    return false;
}

/* A JSON text that is so far `text` and then `rest` is inside a string or a name. */
static bool in_string_after(struct str text, struct str rest) {
    bool is_inside = false;
    for (size_t i = 0; i < text.n + rest.n; i++) {
        char c = i < text.n ? text.p[i] : rest.p[i - text.n];
        if (c == '"') is_inside = !is_inside;
        else if (c == '\\') i++;
    }
    return is_inside;
}

/* Inside a number that may not end yet. */
static bool in_number(const uint32_t bits[8]) {
    return has_any(bits, "0123456789") && !has_any(bits, "\",:}]ntf[{");
}

struct reached {
    uint32_t state, before;
    char byte;
};

enum { MAX_REACHED = 1 << 11, MAX_REST_BYTES = 20000, MAX_TRIES = 2, MAX_SEARCHES = 100 };

static bool was_reached(uint32_t *slots, const struct reached *list, uint32_t state, uint32_t n) {
    uint32_t at = (uint32_t)hash_mix(state) & (2 * MAX_REACHED - 1);
    for (; slots[at]; at = (at + 1) & (2 * MAX_REACHED - 1))
        if (list[slots[at] - 1].state == state) return true;
    slots[at] = n + 1;
    return false;
}

/* The shortest way to where the string or number may end, breadth first; without escapes. `skip` ends are passed over. The last of it
 * in list[result]. */
static uint32_t search_end(struct gram_match *m, struct reached *list, uint32_t *slots, bool in_string, uint64_t skip) {
    uint32_t n = 1, last = UINT32_MAX;
    list[0] = (struct reached){m->state, 0, 0};
    was_reached(slots, list, m->state, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits[8];
        m->state = list[i].state;
        gram_match_next_bytes(m, bits);
        if (in_string ? has_byte(bits, '"') : gram_match_may_end(m) || has_any(bits, ",}]")) last = i;
        if (last == i && !skip--) return i;
        for (int b = 0x20; b < 256 && n < MAX_REACHED; b++) {
            char byte = (char)b;
            if (!has_byte(bits, b) || b == '\\') continue;
            m->state = list[i].state;
            if (gram_match_bytes(m, str_n(&byte, 1)) != 1) return UINT32_MAX;
            if (!was_reached(slots, list, m->state, n)) list[n++] = (struct reached){m->state, i, byte};
        }
    }
    return last;
}

static bool finish_inside(struct gram_match *m, bool in_string, uint64_t skip, struct str text, struct sb *rest) {
    struct reached *list = mem_alloc(MAX_REACHED * sizeof *list);
    uint32_t *slots = mem_alloc(2 * MAX_REACHED * sizeof *slots);
    uint32_t end = search_end(m, list, slots, in_string, skip);
    if (end == UINT32_MAX) {
        mem_free(list);
        mem_free(slots);
        return false;
    }
    m->state = list[end].state;
    size_t from = rest->n;
    for (uint32_t i = end; i; i = list[i].before) sb_putc(rest, list[i].byte);
    for (size_t i = from, k = rest->n; i + 1 < k; i++, k--) {
        char c = rest->p[i];
        rest->p[i] = rest->p[k - 1];
        rest->p[k - 1] = c;
    }
    if (in_string) {
        sb_putc(rest, '"');
        if (gram_match_bytes(m, STR("\"")) != 1) die("a quote is not taken", text);
    }
    mem_free(list);
    mem_free(slots);
    return true;
}

/* Bytes that complete the text: what closes first, then what is short; texts are the shortest, or one of `choices` short ones. False:
 * this simple way leads to no end. */
static bool complete(struct walker *w, struct gram_match *m, uint64_t choices, struct str text, struct sb *rest) {
    static const char order[] = "}],:ntf0123456789-.eE+\"[{";
    for (int n_searches = 0; !gram_match_may_end(m);) {
        uint32_t bits[8];
        char byte = 0;
        gram_match_next_bytes(m, bits);
        bool in_string = in_string_after(text, sb_str(rest));
        if (in_string || in_number(bits)) {
            if (++n_searches > MAX_SEARCHES || !finish_inside(m, in_string, draw(w, choices), text, rest)) return false;
            continue;
        }
        for (const char *p = order; *p && !byte; p++)
            if (has_byte(bits, (uint8_t)*p)) byte = *p;
        for (int b = 255; b >= 0x20 && !byte; b--)
            if (has_byte(bits, b)) byte = (char)b;
        if (!byte) die("no byte is allowed", text);
        if (gram_match_bytes(m, str_n(&byte, 1)) != 1) die("a byte of the list is not taken", text);
        sb_putc(rest, byte);
        if (rest->n > MAX_REST_BYTES) return false;
    }
    return true;
}

/* Several times: a name that must still come may be none of the shortest. */
static bool complete_somehow(struct walker *w, const struct gram_match *from, struct str text, struct sb *rest) {
    bool is_done = false;
    for (int i = 0; i < MAX_TRIES && !is_done; i++) {
        struct gram_match m;
        gram_match_copy(&m, from);
        sb_clear(rest);
        is_done = complete(w, &m, i ? 128 : 1, text, rest);
        gram_match_free(&m);
    }
    return is_done;
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
    k->completed = k->ended || complete_somehow(w, &m, sb_str(&k->text), rest);
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
    w.vocab = gram_vocab_create(w.tok, w.n_vocab, NULL, 0);
    fprintf(stderr, "vocabulary of %zu in %.0f ms\n", w.n_vocab, (double)(os_clock_ns() - from) / 1e6);
    w.bits = mem_alloc(gram_mask_words(w.vocab) * sizeof *w.bits);
    w.allowed = mem_alloc((n + 1) * sizeof *w.allowed);
    w.closes = mem_alloc(n + 1);
    for (size_t i = 0; i < n; i++) w.closes[i] = !tok_is_special(w.tok, (int32_t)i) && is_closer(tok_token_bytes(w.tok, (int32_t)i));
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
    gram_vocab_destroy(w.vocab);
    tok_destroy(w.tok);
    return 0;
}
