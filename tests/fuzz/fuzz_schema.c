/* Any bytes as a JSON schema, in the schema's order or in any: which one comes from the bytes, since compiling is what takes long. */
#include "grammar_fuzz.h"

#include "base/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_grammar(GRAM_JSON_SCHEMA, data, n, hash_bytes(data, n, 0) & 1);
    return 0;
}
