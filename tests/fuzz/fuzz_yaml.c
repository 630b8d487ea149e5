/* Any bytes as a YAML file. */
#include "base/yaml_tree.h"

#include "tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    return tree_try(yaml_tree, data, n, YAML_DEPTH_MAX);
}
