/* Any bytes as a GBNF grammar. */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_grammar(GRAM_GBNF, data, n, false);

    return 0;
}
