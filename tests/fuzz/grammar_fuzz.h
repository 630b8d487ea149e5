/* What the fuzz targets of grammars share: a grammar is refused with a message, or every text that begins in it can go on. */
#ifndef MLXCEL_TESTS_GRAMMAR_FUZZ_H
#define MLXCEL_TESTS_GRAMMAR_FUZZ_H

#include "api/tokenizer_files.h"
#include "base/rng.h"
#include "text/grammar/grammar.h"

#include <stdlib.h>

static inline void fuzz_require(bool ok) {
    if (!ok) abort();
}

/* The built-in vocabulary, opened once. */
static inline struct gram_vocab *fuzz_vocab(size_t *out_n) {
    static struct gram_vocab *v;
    static size_t n;
    struct tok *t;
    if (!v) {
        fuzz_require(text_tokenizer_open(NULL, &t, NULL) == ERR_OK);
        n = tok_vocab_size(t);
        v = gram_vocab_create(t, n, NULL, 0, NULL);
        fuzz_require(v != NULL);
        tok_destroy(t);
    }
    *out_n = n;
    return v;
}

/* What the mask says of some tokens is what the match does with them; the masks of rules may leave some out. */
static inline void fuzz_mask(struct gram_match *m, enum gram_kind kind, uint64_t seed) {
    enum { N_TRIES = 64, MAX_WORDS = 4096 };
    size_t n;
    struct gram_vocab *v = fuzz_vocab(&n);
    uint32_t bits[MAX_WORDS];
    fuzz_require(gram_mask_words(v) <= MAX_WORDS);
    gram_match_mask(m, bits);
    for (uint64_t i = 0; i < N_TRIES; i++) {
        int32_t token = (int32_t)(rng_at(seed, i, 1) % n);
        bool is_taken = gram_match_token(m, token);
        if (is_taken) gram_match_back(m, 1);
        bool is_allowed = bits[token / 32] >> token % 32 & 1;
        fuzz_require(is_taken == is_allowed || (is_taken && kind == GRAM_GBNF));
    }
}

/* Goes on with any of the bytes that are allowed; there must be one where the text may not end. */
static inline void fuzz_walk(struct gram_machine *machine, enum gram_kind kind, uint64_t seed) {
    enum { MAX_BYTES = 64, MASK_EVERY = 16 };
    struct gram_match m;
    struct sb forced = {0};
    gram_match_init(&m, machine);
    for (uint64_t i = 0; i < MAX_BYTES; i++) {
        uint32_t bits[8], n = 0;
        if (i % MASK_EVERY == seed % MASK_EVERY) fuzz_mask(&m, kind, seed + i);
        gram_match_next_bytes(&m, bits);
        for (int b = 0; b < 256; b++) n += bits[b / 32] >> b % 32 & 1;
        fuzz_require(gram_match_must_end(&m) == (n == 0));
        if (n == 0) break;
        uint64_t nth = rng_at(seed, i, 0) % n;
        int b = 0;
        for (;; b++)
            if (bits[b / 32] >> b % 32 & 1 && nth-- == 0) break;
        char byte = (char)b;
        sb_clear(&forced);
        gram_match_forced(&m, &forced);
        fuzz_require(!forced.n || (n == 1 && forced.p[0] == byte));
        fuzz_require(gram_match_bytes(&m, str_n(&byte, 1)) == 1);
    }
    uint32_t bits[8], any = 0;
    gram_match_next_bytes(&m, bits);
    for (int i = 0; i < 8; i++) any |= bits[i];
    fuzz_require(any || gram_match_may_end(&m));
    sb_free(&forced);
    gram_match_free(&m);
}

static inline void fuzz_grammar(enum gram_kind kind, const uint8_t *data, size_t n, bool any_order) {
    struct gram_source source = {.kind = kind, .text = str_n((const char *)data, n)};
    struct gram_options o = any_order ? gram_judging() : gram_defaults();
    struct err err = {0};
    struct gram *g;
    o.max_work = 200000; /* a hostile one costs some 50 ms under the sanitizers; limits themselves are unit tests */
    int code = gram_compile(&source, &o, NULL, &g, &err);
    if (code) {
        fuzz_require(err.code == code && err.msg[0] != '\0' && !g);
        return;
    }
    size_t n_vocab;
    struct gram_machine *machine = gram_machine_create(g, fuzz_vocab(&n_vocab), NULL, 0);
    fuzz_walk(machine, kind, n);
    gram_machine_destroy(machine);
    gram_destroy(g);
}

#endif
