/* What the fuzz targets of TOML and YAML share: both readers make trees of struct toml. */
#ifndef MLXCEL_TESTS_FUZZ_TREE_H
#define MLXCEL_TESTS_FUZZ_TREE_H

#include "base/toml.h"

#include <stdlib.h>
#include <string.h>

/* Lines and counts must make sense, and no path is longer than `most`. */
static inline void tree_walk(const struct toml *v, int most) {
    int32_t count = 0;
    if (most < 0 || v->line < 1) abort();
    for (const struct toml *c = v->first; c; c = c->next, count++) tree_walk(c, most - 1);
    if (count != v->n || (count && v->kind != TOML_ARRAY && v->kind != TOML_TABLE)) abort();
}

typedef int tree_reader(struct arena *a, struct str text, const char *name, struct toml **out, struct err *err);

/* What is read must be such a tree; what is not read has one line that says why. */
static inline int tree_try(tree_reader *read, const uint8_t *data, size_t n, int most) {
    struct arena a = {0};
    struct err err = {0};
    struct toml *root;
    if (read(&a, str_n((const char *)data, n), "fuzz", &root, &err) == ERR_OK) tree_walk(root, most);
    else if (!err.msg[0] || strchr(err.msg, '\n')) abort();
    arena_free(&a);
    return 0;
}

#endif
