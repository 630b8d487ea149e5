/* Any bytes as a YAML file. What is read must be a tree whose lines and counts make sense. */
#include "base/yaml_tree.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void walk(const struct toml *v, int depth) {
    int32_t count = 0;
    if (depth > YAML_DEPTH_MAX || v->line < 1) abort();
    for (const struct toml *c = v->first; c; c = c->next, count++) walk(c, depth + 1);
    if (count != v->n || (count && v->kind != TOML_ARRAY && v->kind != TOML_TABLE)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct arena a = {0};
    struct err err = {0};
    struct toml *root;
    int code = yaml_tree(&a, str_n((const char *)data, n), "fuzz", &root, &err);
    if (code == ERR_OK) walk(root, 0);
    else if (!err.msg[0] || strchr(err.msg, '\n')) abort();
    arena_free(&a);
    return 0;
}
