/* Any bytes as a safetensors file: refused with a message, or every tensor lies inside the file and can be read. */
#include "file/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void check_tensors(const struct safetensors *st) {
    uint64_t total = 0;
    for (size_t i = 0; i < st->n_tensors; i++) {
        const struct st_tensor *t = &st->tensors[i];
        char shape[40], byte;
        require(t->offset <= st->source.size && t->bytes <= st->source.size - t->offset);
        require(t->n_elements * (uint64_t)dtype_bits(t->dtype) == t->bytes * 8);
        st_shape_text(t, shape, sizeof shape);
        require(st_read(st, t, t->bytes, &byte, 0, NULL) == ERR_OK);
        require(st_read(st, t, t->bytes, &byte, 1, NULL) == ERR_EARG);
        if (t->bytes) require(st_read(st, t, t->bytes - 1, &byte, 1, NULL) == ERR_OK);
        total += t->bytes;
    }
    require(total == st->data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct str bytes = str_n((const char *)data, n);
    struct st_source source = st_source_memory("input", &bytes);
    struct arena a = {0};
    struct safetensors st;
    struct err err = {0};
    int code = st_open(&a, &source, &st, &err);
    if (code == ERR_OK) check_tensors(&st);
    else require(err.msg[0] != '\0' && err.code == code);
    arena_free(&a);
    return 0;
}
