/* Any bytes as a saved cache. Refused with a message, or every part of it lies inside the data. The first byte says whether the sum and the size are made right
 * before: a fuzzer does not find them by itself. */
#include "engine/saved.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static struct saved_reader make_reader(int32_t n_states) {
    const struct kv_class plain = {.n_layers = 1, .heads = 1, .k_width = 1, .v_width = 1};
    struct kv_layout layout = {.n_classes = 2, .n_states = n_states, .classes = {plain, plain}, .states = {{.elements = 4}}};
    layout.classes[1].window = 64;
    struct saved_reader r = {.own = saved_head(7, &layout), .n_adapters = 2, .vocab = 100, .context = 1000};
    for (int32_t c = 0; c < 2; c++) saved_class_blocks(&r.own.classes[c], 24, "cpu-f16");
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct saved saved;
    struct err err = {0};
    if (n == 0) return 0;
    bool is_sealed = data[0] & 1;
    struct saved_reader reader = make_reader(data[0] & 2 ? 1 : 0);
    unsigned char *copy = malloc(n); /* aligned, and of its own size */
    require(copy != NULL);
    memcpy(copy, data + 1, --n);
    if (is_sealed && n > sizeof reader.own + sizeof(uint64_t)) {
        uint64_t bytes = n;
        struct saved_head head = reader.own; /* what must be the same is; the counts are the input's */
        memcpy(&head.n_scales, copy + offsetof(struct saved_head, n_scales), 2 * sizeof head.n_scales);
        head.file_bytes = bytes;
        memcpy(copy, &head, sizeof head);
        saved_seal(copy, bytes);
    }
    if (saved_open(copy, n, &reader, &saved, &err)) {
        require(err.msg[0] != '\0');
    } else {
        uint64_t sum = 0;
        require(saved.n_tokens >= 1 && saved.n_tokens <= reader.context);
        for (int32_t i = 0; i < saved.n_tokens; i++) require(saved.tokens[i] >= 0 && saved.tokens[i] < reader.vocab);
        for (int32_t c = 0; c < 2; c++)
            for (int32_t i = 0; i < saved.n_blocks; i++) sum += saved.there[c][i] * reader.own.classes[c].block_bytes;
        for (uint64_t i = 0; i < sum; i++) require(saved.blocks[i] <= 255);
        require((saved.state != NULL) == (reader.own.state_bytes > 0));
        if (saved.state) require((const unsigned char *)saved.state + reader.own.state_bytes + 8 == copy + n);
    }
    free(copy);
    return 0;
}
