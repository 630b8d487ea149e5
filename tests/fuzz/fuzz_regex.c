/* Any bytes as a regular expression. */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_grammar(GRAM_REGEX, data, n, false);

    return 0;
}
