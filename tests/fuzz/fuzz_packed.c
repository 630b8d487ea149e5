/* Any bytes as a checkpoint that another program quantised: config.json up to a zero byte, then the safetensors file. Refused with a message, or every tensor
 * can be read, or says why not. */
#include "file/packed.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void read_all(const struct checkpoint *c) {
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        struct err err = {0};
        unsigned char *bytes = malloc((size_t)t->t->bytes + 1);
        if (!bytes) continue;
        int code = checkpoint_read(t, 0, bytes, (size_t)t->t->bytes, &err);
        require(code == ERR_OK || err.msg[0] != '\0');
        struct checkpoint_weight w;
        if (str_ends(t->t->name, STR(".weight"))) checkpoint_weight(c, str_sub(t->t->name, 0, t->t->name.n - 7), &w, &err);
        free(bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    if (!zero) return 0;
    struct str config = str_n((const char *)data, (size_t)(zero - data)),
               bytes = str_n((const char *)zero + 1, n - (size_t)(zero + 1 - data));
    struct checkpoint_shard shard = {.name = "input"};
    struct checkpoint c = {.path = "input", .has_config = true};
    struct err err = {0};
    struct st_source source = st_source_memory("input", &bytes);
    int code = st_open(&c.arena, &source, &shard.st, &err);
    if (!code) code = config_parse(&c.arena, config, "config.json", &c.config, &err);
    if (!code) code = quant_config_read(&c.arena, &c.config, &c.quant, &err);
    if (!code) {
        c.n_tensors = shard.st.n_tensors;
        c.tensors = arena_new(&c.arena, struct checkpoint_tensor, c.n_tensors + 1);
        for (size_t i = 0; i < c.n_tensors; i++) {
            c.tensors[i] = (struct checkpoint_tensor){&shard.st.tensors[i], &shard};
            map_put(&c.by_name, shard.st.tensors[i].name, NULL)->value.i = (int64_t)i;
        }
        code = packed_open(&c, &err);
        if (!code) read_all(&c);
    }
    require(code == ERR_OK || err.msg[0] != '\0');
    checkpoint_close(&c);
    return 0;
}
