/* The built-in model, byte for byte as it lies in models/tiny; found by builtin.c under these names. */
#include "base/embed.inc"

    EMBED SYMBOL(builtin_config), SYMBOL(builtin_config_end), "models/tiny/config.json"
    EMBED SYMBOL(builtin_generation_config), SYMBOL(builtin_generation_config_end), "models/tiny/generation_config.json"
    EMBED SYMBOL(builtin_model), SYMBOL(builtin_model_end), "models/tiny/model.safetensors"
    EMBED SYMBOL(builtin_tokenizer), SYMBOL(builtin_tokenizer_end), "models/tiny/tokenizer.json"
    EMBED SYMBOL(builtin_tokenizer_config), SYMBOL(builtin_tokenizer_config_end), "models/tiny/tokenizer_config.json"
