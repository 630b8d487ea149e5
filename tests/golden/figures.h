/* Reading golden.safetensors: what a reference computed. */
#ifndef MLXCEL_TESTS_FIGURES_H
#define MLXCEL_TESTS_FIGURES_H

#include "file/safetensors.h"
#include "os/os.h"

struct figures {
    struct os_file *file;
    struct st_source source;
    struct safetensors st;
};

/* Everything lies in the arena, but for the file, which figures_close closes. */
int figures_open(struct arena *a, const char *dir, struct figures *out, struct err *err);
void figures_close(struct figures *f);

/* The tensor STEM_k; NULL: there is none. */
const struct st_tensor *figures_find(const struct figures *f, const char *stem, int k);
/* Its n elements; 64-bit integers become 32-bit ones. */
int figures_load(struct arena *a, const struct figures *f, const char *stem, int k, void **out, int32_t *n, struct err *err);

#endif
