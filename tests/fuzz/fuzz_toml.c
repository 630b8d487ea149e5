/* Any bytes as a TOML file. */
#include "base/toml.h"

#include "tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    return tree_try(toml_parse, data, n, 3 * TOML_DEPTH_MAX);
}
