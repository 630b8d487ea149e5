/* Any bytes as a GGUF file: refused with a message, or every tensor lies inside the file, and config, tokenizer and planes can be made of it. */
#include "file/gguf_open.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void check_tensors(const struct gguf *g) {
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        require(!t->bytes || (t->offset <= g->source.size && t->bytes <= g->source.size - t->offset));
    }
}

static void check_view(struct arena *a, const struct gguf_set *s) {
    struct map formats = {0};
    struct safetensors st;
    struct err err = {0};
    if (gguf_view(a, s, 0, &formats, &st, &err) == ERR_OK) {
        for (size_t i = 0; i < st.n_tensors; i++) {
            const struct st_tensor *t = &st.tensors[i];
            char bytes[64];
            size_t some = t->bytes < sizeof bytes ? (size_t)t->bytes : sizeof bytes;
            st_read(&st, t, 0, bytes, some, &err);
            st_read(&st, t, t->bytes - some, bytes, some, &err);
        }
    } else require(err.msg[0] != '\0');
    map_free(&formats);
}

static void check_model(struct arena *a, struct gguf *g) {
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    struct gguf_set s = {.parts = g, .n_parts = 1};
    struct err err = {0};
    struct str text;
    if (gguf_arch_of(g, &s.arch, &err)) return;
    if (gguf_config(a, &s, &err)) {
        require(err.msg[0] != '\0');
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (gguf_file_exists(&s, names[i])) gguf_file_make(a, &s, names[i], &text, &err);
    check_view(a, &s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct str bytes = str_n((const char *)data, n);
    struct st_source source = st_source_memory("input", &bytes);
    struct arena a = {0};
    struct gguf g;
    struct err err = {0};
    int code = gguf_open(&a, &source, &g, &err);
    if (code == ERR_OK) {
        check_tensors(&g);
        check_model(&a, &g);
        gguf_close(&g);
    } else require(err.msg[0] != '\0' && err.code == code);
    arena_free(&a);
    return 0;
}
