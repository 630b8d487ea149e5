/* The model inside the program. builtin.S holds the bytes. */
#include "file/builtin.h"

#define BUILTIN_FILES(X)                           \
    X(config, "config.json")                       \
    X(generation_config, "generation_config.json") \
    X(model, "model.safetensors")                  \
    X(tokenizer, "tokenizer.json")                 \
    X(tokenizer_config, "tokenizer_config.json")

#define X(id, name) extern const char builtin_##id[], builtin_##id##_end[];
BUILTIN_FILES(X)
#undef X

static const struct {
    const char *name, *begin, *end;
} files[] = {
#define X(id, name) {name, builtin_##id, builtin_##id##_end},
    BUILTIN_FILES(X)
#undef X
};

bool builtin_file(struct str name, struct str *out) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (str_is(name, files[i].name)) {
            *out = str_n(files[i].begin, (size_t)(files[i].end - files[i].begin));
            return true;
        }
    return false;
}
