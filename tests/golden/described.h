/* A checkpoint without data: its config, and the names, types and shapes of its tensors, from a small JSON file
 * (tests/golden/traces). Reading a tensor gives zeros. */
#ifndef MLXCEL_TESTS_DESCRIBED_H
#define MLXCEL_TESTS_DESCRIBED_H

#include "model/model.h"

struct described {
    struct config config;
    struct quant_config quant;
    struct map tensors; /* struct tensor_info * */
    struct tensor_store store;
};

/* Fills d, which must stay where it is while its store is used. */
int described_load(struct arena *a, const char *path, struct described *d, struct err *err);
void described_free(struct described *d);

#endif
