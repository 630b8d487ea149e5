/* Any bytes as an adapter: a first byte for whose it is, adapter_config.json up to a zero byte, then the safetensors file. Refused with a message, or every
 * module can be read. */
#include "file/adapter.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void read_all(const struct adapter *a) {
    for (size_t i = 0; i < a->n_modules; i++) {
        const struct adapter_module *m = &a->modules[i];
        int64_t most = m->in > m->out ? m->in : m->out;
        float *values = malloc((size_t)(most * m->rank) * sizeof *values);
        require(values && m->rank > 0);
        require(adapter_read_down(m, values, NULL) == ERR_OK && adapter_read_up(m, values, NULL) == ERR_OK);
        if (m->magnitude) require(adapter_read_magnitude(m, values, NULL) == ERR_OK);
        require(adapter_find(a, m->path) != NULL);
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *zero = n ? memchr(data + 1, 0, n - 1) : NULL;
    if (!zero) return 0;
    struct str config = str_n((const char *)data + 1, (size_t)(zero - data - 1)),
               bytes = str_n((const char *)zero + 1, n - (size_t)(zero + 1 - data));
    struct checkpoint_shard shard = {.name = "input"};
    struct adapter a = {.path = "input"};
    struct err err = {0};
    struct st_source source = st_source_memory("input", &bytes);
    if (st_open(&a.file.arena, &source, &shard.st, &err) == ERR_OK) {
        a.file.n_tensors = shard.st.n_tensors;
        a.file.tensors = arena_new(&a.file.arena, struct checkpoint_tensor, shard.st.n_tensors + 1);
        for (size_t i = 0; i < shard.st.n_tensors; i++) a.file.tensors[i] = (struct checkpoint_tensor){&shard.st.tensors[i], &shard};
        int code = adapter_read(&a, config, data[0] & 1, &err);
        if (code == ERR_OK) read_all(&a);
        else require(err.msg[0] != '\0');
    }
    arena_free(&a.file.arena);
    return 0;
}
