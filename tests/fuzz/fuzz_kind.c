/* Any bytes under any name as a model: refused with a message, or they begin as GGUF or safetensors, or are called so, and then that reader takes or refuses
 * them. What begins as a pickle is never taken: not by its kind, nor by the reader that its name leads to. */
#include "file/gguf.h"
#include "file/kind.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static bool opens(struct str bytes) {
    struct arena a = {0};
    struct safetensors st;
    struct gguf g;
    struct err err = {0};
    struct st_source source = st_source_memory("input", &bytes);
    bool is_gguf = str_starts(bytes, STR("GGUF"));
    int code = is_gguf ? gguf_open(&a, &source, &g, &err) : st_open(&a, &source, &st, &err);
    require(code == ERR_OK || err.msg[0] != '\0');
    if (is_gguf && code == ERR_OK) gguf_close(&g);
    arena_free(&a);
    return code == ERR_OK;
}

/* A name up to a zero byte, then the file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    if (!zero) return 0;
    const char *name = (const char *)data;
    struct str bytes = str_n((const char *)zero + 1, n - (size_t)(zero + 1 - data));
    struct err err = {0};
    bool is_archive = str_starts(bytes, STR("PK\3\4")),
         is_pickle = bytes.n > 2 && (unsigned char)bytes.p[0] == 0x80 && bytes.p[1] > 1 && bytes.p[1] < 6;
    file_kind_is_text_part(name);
    if (file_kind_check_bytes(name, bytes, &err)) require(err.msg[0] != '\0');
    else {
        bool has_header = bytes.n > 8 && bytes.p[8] == '{'; /* the first bytes are then a length, whatever they look like */
        bool is_open = opens(bytes);
        require(!is_open || has_header || !(is_archive || is_pickle));
    }
    return 0;
}
