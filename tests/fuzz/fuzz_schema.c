/* Any bytes as a JSON schema, in the schema's order and in any. */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_grammar(GRAM_JSON_SCHEMA, data, n, false);
    fuzz_grammar(GRAM_JSON_SCHEMA, data, n, true);
    return 0;
}
