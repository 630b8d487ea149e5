/* The built-in model, byte for byte as it lies in models/tiny; found by builtin.c under these names. */

#if defined(__ELF__)
#define HIDE(name) .hidden name
    .section .rodata.mlxcel_builtin, "a"
#else
#define HIDE(name)
    .section .rdata, "dr"
#endif

#define EMBED(name, path)         \
    .balign 64;                   \
    .globl builtin_##name;        \
    HIDE(builtin_##name);         \
    builtin_##name:               \
    .incbin path;                 \
    .globl builtin_##name##_end;  \
    HIDE(builtin_##name##_end);   \
    builtin_##name##_end:         \
    .byte 0

EMBED(config, "models/tiny/config.json")
EMBED(generation_config, "models/tiny/generation_config.json")
EMBED(model, "models/tiny/model.safetensors")
EMBED(tokenizer, "models/tiny/tokenizer.json")
EMBED(tokenizer_config, "models/tiny/tokenizer_config.json")

#if defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
